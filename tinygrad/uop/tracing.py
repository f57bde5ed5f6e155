"""Records of what rewriting did, for VIZ and for the table of rule counts.

In:   calls from ``graph_rewrite`` and from traced matchers while TRACK_MATCH_STATS is set (VIZ sets it to 2).
Out:  level 1: counts per rule; level 2: ``tracked_ctxs``, per group the rewrites with every (before, after, rule,
      seconds); level 3: each match printed as it happens.
Why:  a wrong or slow graph is found by looking at what each named rewrite did to it.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tinygrad.record import field, record
from tinygrad.settings import TRACK_MATCH_STATS

if TYPE_CHECKING:
    from tinygrad.uop.matchcode import Rule
    from tinygrad.uop.ops import UOp

P = ParamSpec("P")
T = TypeVar("T")


@record
class TrackedGraphRewrite:
    """One call of ``graph_rewrite``: where it was called, its input and output, and every replacement in order.

    A match is (node before, node after, "file:line" of the rule, seconds).
    """

    loc: tuple[str, int]
    sink: UOp
    matches: list[tuple[UOp, UOp, str, float]]
    name: str | None
    depth: int
    bottom_up: bool
    walk: bool = False
    enter_calls: bool = False
    result: UOp | None = None


@record
class TracingKey:
    """Label of a group of rewrites."""

    display_name: str
    keys: tuple[Any, ...] = ()
    ret: Any = None


@record
class RewriteTrace:
    """Everything that was recorded."""

    keys: list[TracingKey] = field(default_factory=list)
    rewrites: list[list[TrackedGraphRewrite]] = field(default_factory=list)
    uop_fields: dict[int, tuple[Any, ...]] = field(default_factory=dict)


tracked_keys: list[TracingKey] = []
tracked_ctxs: list[list[TrackedGraphRewrite]] = []
uop_fields: dict[int, tuple[Any, ...]] = {}
_group_numbers = itertools.count(1)
_numbers: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count()


def trace_number(u: UOp) -> int:
    """Return the number of a node in traces. (op, dtype, numbers of the sources, arg, tag) are put in ``uop_fields``.

    The sources get their numbers first, so a trace that is read from front to back knows all that a node refers to.
    """
    if u not in _numbers:
        for node in u.toposort(gate=lambda x: x not in _numbers):
            number = _numbers[node] = next(_next_number)
            uop_fields[number] = (node.op, node.dtype, tuple(_numbers[s] for s in node.src), node.arg, node.tag)
    return _numbers[u]


class _Active(threading.local):
    def __init__(self) -> None:
        self.rewrites: list[TrackedGraphRewrite] = []
        self.groups: list[list[TrackedGraphRewrite]] = []


_active = _Active()


def active_rewrites() -> list[TrackedGraphRewrite]:
    """Return the rewrites that run now in this thread, outermost first."""
    return _active.rewrites


def active_group() -> list[TrackedGraphRewrite]:
    """Return the group that collects this thread's rewrites."""
    if not _active.groups:
        tracked_keys.append(TracingKey("default"))
        tracked_ctxs.append([])
        _active.groups.append(tracked_ctxs[-1])
    return _active.groups[-1]


def start(record: TrackedGraphRewrite) -> None:
    """Open the record of a graph_rewrite."""
    record.depth = len(_active.rewrites)
    active_group().append(record)
    _active.rewrites.append(record)


def finish(result: UOp | None) -> None:
    """Close the innermost record."""
    _active.rewrites.pop().result = result


def on_match(rule: Rule, before: UOp, after: UOp, seconds: float) -> None:
    """Take note of one replacement."""
    level = TRACK_MATCH_STATS.get()
    if level >= 2 and _active.rewrites:
        _active.rewrites[-1].matches.append((before, after, rule.where, seconds))
    if level >= 3:
        sys.stderr.write(f"{seconds * 1e6:7.1f} us  {rule.where}  {before.op} -> {getattr(after, 'op', after)}\n")


def rewrite_group(
    name: bool | Callable[..., Any] = True, replay: bool = False, new_ctx: bool = True
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Group the rewrites of a function's calls in traces.

    Args:
        name: True labels a group with the function's name and a number; a function is called with the arguments (and
            ``ret=``, the result) and returns the label.
        replay: Accepted for compatibility.
        new_ctx: False adds the rewrites to the running group.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            if TRACK_MATCH_STATS.get() < 2 or not new_ctx:
                return function(*args, **kwargs)
            key = TracingKey(f"{function.__name__} n{next(_group_numbers)}")
            rewrites: list[TrackedGraphRewrite] = []
            tracked_keys.append(key)
            tracked_ctxs.append(rewrites)
            _active.groups.append(rewrites)
            try:
                result = function(*args, **kwargs)
            finally:
                _active.groups.pop()
            if callable(name):
                label = name(*args, **kwargs, ret=result)
                key.display_name, key.ret = getattr(label, "display_name", None) or str(label), None
            return result

        return wrapper

    return decorate
