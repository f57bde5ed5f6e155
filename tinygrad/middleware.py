"""A user's own rules at any stage of the pipeline.

In:   the name of a stage, and a rule table or a function from graph to graph.
Out:  ``run_stage``, through which every stage runs: the built-in passes, with what users inserted before, after or
      instead.
Why:  one function makes every stage visible and replaceable, and knows whom to blame when a graph comes out wrong.

``with insert(...)`` belongs to the running context (thread), like the context variables; ``install()`` is for the
process. What is inserted is part of every cache key (``cache_token``), so results with and without it never mix. A
graph that was taken from a cache is not rewritten again, so it counts no hits.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from tinygrad.forking import renew_in_child
from tinygrad.helpers import ById
from tinygrad.record import record
from tinygrad.settings import DEBUG, SPEC
from tinygrad.uop.ops import PatternMatcher, UOp, graph_rewrite

When = Literal["before", "after", "replace"]
Graph = TypeVar("Graph")  # a UOp, a list of UOps, or text


@record(frozen=True)
class Stage:
    """A named stage.

    Attributes:
        name: What ``insert`` takes.
        summary: What its graph looks like.
        kind: "graph" (one UOp), "list" (UOps in execution order) or "text".
        spec: Name of the rule table in ``tinygrad.uop.spec`` that its graph must satisfy, or None.
    """

    name: str
    summary: str
    kind: Literal["graph", "list", "text"] = "graph"
    spec: str | None = None

    def __str__(self) -> str:
        return f"{self.name:<10} {self.summary}"


class StageTable(tuple[Stage, ...]):
    """The stages in order; prints one line per stage, and ``name in table`` works."""

    __slots__ = ()

    def __contains__(self, item: object) -> bool:
        return any(item == stage or item == stage.name for stage in self)

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


_STAGES: Final = StageTable((
    Stage("function", "tensor SINK with the user's FUNCTION calls, before they are inlined", spec="spec_tensor"),
    Stage("schedule", "tensor SINK: movement, elementwise, REDUCE, BUFFER, STORE/AFTER, COPY", spec="spec_tensor"),
    Stage(
        "kernel",
        "SINK of one kernel as scheduled: STORE, RANGE, INDEX, REDUCE, elementwise; no movement",
        spec="spec_kernel",
    ),
    Stage("simplify", "the same kernel, ranges and index arithmetic simplified", spec="spec_kernel"),
    Stage("optimize", "the same kernel, ranges split and typed by the schedule language", spec="spec_optimized"),
    Stage("decompose", "the same kernel with only the operations and dtypes that the target has"),
    Stage("lower", "the kernel with vectors, LOADs and gates, before it is put into order"),
    Stage("linear", "list of UOps in execution order, SINK last", kind="list", spec="spec_program"),
    Stage("render", "source text of the kernel", kind="text"),
))
_BY_NAME: Final = {stage.name: stage for stage in _STAGES}


def stages() -> StageTable:
    """Return every named stage, in order, with one line on what its graph looks like."""
    return _STAGES


class MiddlewareError(RuntimeError):
    """Inserted middleware gave back something that its stage does not allow."""


class Middleware:
    """A rule table or function inserted at a stage: a context manager, or permanent through ``install``.

    Attributes:
        stage: Name of the stage.
        name: By which reports refer to it.
        when: "before", "after" or "replace".
        hits: How often a rule replaced a node; for a function, how often it changed the graph.
        runs: How often the stage ran it.
    """

    def __init__(self, stage: str, rules: PatternMatcher | Callable[..., Any], name: str, when: When) -> None:
        self.stage, self.name, self.when, self.rules = stage, name, when, rules
        self.runs, self._changed = 0, 0
        # A table of its own: the counts are those of this insertion, not of everybody who uses the same rules.
        self._matcher: PatternMatcher | None = None
        self._function: Callable[[Any, Any], Any] | None = None
        if isinstance(rules, PatternMatcher):
            self._matcher = PatternMatcher(rules.patterns, trace=True)
        else:
            self._function = _with_context(rules)

    @property
    def hits(self) -> int:
        """How often it changed something."""
        return self._changed if self._matcher is None else sum(rule.hits for rule in self._matcher.rules)

    @property
    def token(self) -> tuple[Hashable, ...]:
        """What identifies its effect in cache keys. It holds the rules, so their identity is not reused."""
        return self.stage, self.when, self.name, ById(self.rules)

    def apply(self, stage: Stage, graph: Any, ctx: Any) -> Any:
        """Return what this makes of a graph.

        Raises:
            MiddlewareError: The result is not allowed at this stage.
        """
        self.runs += 1
        try:
            result = self._run(stage, graph, ctx)
        except Exception as error:
            error.add_note(f"raised in middleware {self.name!r}, {self.when} stage {stage.name!r}")
            raise
        if self._matcher is None and result is not graph:
            self._changed += 1
        fault = _shape_fault(stage, graph, result) or _spec_fault(stage, result)
        if fault:
            raise MiddlewareError(
                f"middleware {self.name!r} ({self.when} stage {stage.name!r}) gave a wrong result: {fault}\n"
                f"  stage  {stage.summary}\n  hint   fix the rules of {self.name!r}, or remove it to see the stage "
                "without it"
            )
        if DEBUG.get() >= 3:
            print(f"middleware {self.name} {self.when} {stage.name}: {self.hits} hits in {self.runs} runs")  # noqa: T201
        return result

    def _run(self, stage: Stage, graph: Any, ctx: Any) -> Any:
        if self._function is not None:
            return self._function(graph, ctx)
        assert self._matcher is not None
        if stage.kind == "graph":
            return graph_rewrite(graph, self._matcher, ctx=ctx, name=self.name)
        if stage.kind == "list":
            return rewrite_list(graph, self._matcher, ctx)
        raise TypeError(
            f"stage {stage.name!r} holds text, which a PatternMatcher cannot rewrite; insert a function str -> str"
        )

    def install(self) -> Self:
        """Insert it for the whole process, every thread; returns self."""
        global _installed
        with _lock:
            if self not in _installed:
                _installed = (*_installed, self)
        return self

    def remove(self) -> None:
        """Undo ``install``. Removing what is not installed does nothing."""
        global _installed
        with _lock:
            _installed = tuple(m for m in _installed if m is not self)

    def __enter__(self) -> Self:
        _inserted.set((*_inserted.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found = list(_inserted.get())
        # The innermost entry: the same object may be entered twice.
        found.reverse()
        if self in found:
            found.remove(self)
        _inserted.set(tuple(reversed(found)))

    def __repr__(self) -> str:
        return f"<middleware {self.name!r} {self.when} {self.stage}, {self.hits} hits in {self.runs} runs>"


_installed: tuple[Middleware, ...] = ()
_inserted: contextvars.ContextVar[tuple[Middleware, ...]] = contextvars.ContextVar("middleware", default=())
_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")


def insert(
    stage: str, rules: PatternMatcher | Callable[..., Any], name: str | None = None, when: When = "before"
) -> Middleware:
    """Return middleware for a stage; enter it with ``with``, or call ``install()`` and later ``remove()``.

    Args:
        stage: A name of ``stages()``.
        rules: A PatternMatcher; or a function ``graph -> graph`` (or ``(graph, ctx) -> graph``). At "linear" the graph
            is a list of UOps, at "render" it is text.
        name: By which reports refer to it; default: the function's name.
        when: "before" or "after" the built-in passes of the stage, or "replace" to run instead of them.

    Raises:
        KeyError: There is no such stage.
        ValueError: Another ``when``.
        TypeError: ``rules`` is neither a PatternMatcher nor callable.

    Example:
        >>> from tinygrad.uop.ops import UPat, Ops
        >>> rules = PatternMatcher([(UPat.var("x") * 1.0, lambda x: x)])
        >>> with insert("schedule", rules, name="drop_ones") as drop_ones:
        ...     print(drop_ones.hits)
        0
    """
    if stage not in _BY_NAME:
        import difflib

        close = difflib.get_close_matches(stage, _BY_NAME, n=1)
        raise KeyError(
            f"middleware: there is no stage {stage!r}{f', did you mean {close[0]!r}' if close else ''}; "
            f"stages: {', '.join(_BY_NAME)}"
        )
    if when not in ("before", "after", "replace"):
        raise ValueError(f"middleware: when must be 'before', 'after' or 'replace', got {when!r}")
    if not isinstance(rules, PatternMatcher) and not callable(rules):
        raise TypeError(
            f"middleware: expected a PatternMatcher or a function graph -> graph, got {type(rules).__name__}"
        )
    return Middleware(stage, rules, name or str(getattr(rules, "__name__", type(rules).__name__)), when)


def active(stage: str | None = None) -> tuple[Middleware, ...]:
    """Return what is inserted now, in the order in which it was inserted; with a name, only what sits at that stage."""
    found = _installed + _inserted.get()
    return found if stage is None or not found else tuple(m for m in found if m.stage == stage)


def cache_token() -> tuple[Hashable, ...]:
    """Return what every cache key must include: empty without middleware.

    The token is only meaningful in this process: a cache on disk must be neither read nor written while it is not
    empty.
    """
    found = _installed + _inserted.get()
    return tuple([m.token for m in found]) if found else ()


def run_stage(name: str, graph: Graph, ctx: Any = None, passes: Callable[[Any], Graph] | None = None) -> Graph:
    """Run a stage: what is inserted before, the built-in passes (or what replaces them), what is inserted after.

    Args:
        name: Name of the stage.
        graph: What the stage takes: a UOp, a list of UOps, or text.
        ctx: Given to rules that ask for it.
        passes: The built-in passes; None leaves the graph as it is.

    Raises:
        MiddlewareError: Middleware gave a graph that is not allowed here; the message names it.
    """
    here = active(name)
    if not here:
        result = graph if passes is None else passes(graph)
        if SPEC.get() >= 2 and (fault := _spec_fault(_BY_NAME[name], result)):
            raise RuntimeError(f"stage {name!r} gave an illegal graph, which is a bug of this package: {fault}")
        return result
    stage = _BY_NAME[name]
    for middleware in here:
        if middleware.when == "before":
            graph = middleware.apply(stage, graph, ctx)
    replacing = [m for m in here if m.when == "replace"]
    if replacing:
        for middleware in replacing:
            graph = middleware.apply(stage, graph, ctx)
    elif passes is not None:
        graph = _blame(passes, graph, here)
    for middleware in here:
        if middleware.when == "after":
            graph = middleware.apply(stage, graph, ctx)
    return graph


def _blame(passes: Callable[[Any], Graph], graph: Any, here: tuple[Middleware, ...]) -> Graph:
    before = [m.name for m in here if m.when == "before"]
    try:
        return passes(graph)
    except Exception as error:
        if before:
            error.add_note(f"the graph went through middleware {', '.join(map(repr, before))} before this stage")
        raise


def rewrite_list(uops: list[UOp], matcher: PatternMatcher, ctx: Any = None) -> list[UOp]:
    """Apply rules once to every node of a list in execution order.

    A rule may return a list or tuple of nodes, which takes the place of the one; its last node is what users refer to.
    """
    new: dict[UOp, UOp] = {}
    out: list[UOp] = []
    for u in uops:
        src = tuple([new.get(s, s) for s in u.src])
        current = u if src == u.src else u.replace(src=src)
        found: Any = matcher.rewrite(current, ctx)
        made = [current] if found is None else list(found) if isinstance(found, (list, tuple)) else [found]
        out += made
        if made:
            new[u] = made[-1]
    return out


def _with_context(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a function of (graph, ctx); one that takes only the graph is called without the context."""
    import inspect  # slow to import

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        parameters = []
    positional = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return function if len(positional) == 2 else lambda graph, ctx: function(graph)


def _shape_fault(stage: Stage, before: Any, after: Any) -> str | None:
    """Return what is wrong with a result regardless of its ops, or None."""
    if stage.kind == "text":
        return None if isinstance(after, str) else f"expected text, got {type(after).__name__}"
    if stage.kind == "list":
        good = isinstance(after, (list, tuple)) and bool(after) and all(isinstance(u, UOp) for u in after)
        return None if good else f"expected a list of UOps, got {type(after).__name__}"
    if not isinstance(after, UOp):
        return f"expected a UOp, got {type(after).__name__}" + (
            " (return the graph, also when it is unchanged)" * (after is None)
        )
    if not isinstance(before, UOp) or after is before:
        return None
    if after.op is not before.op:
        return f"the root must stay {before.op.name}, it became {after.op.name}"
    if type(after.arg) is not type(before.arg):
        return f"the root must keep its {type(before.arg).__name__} as argument, it became {after.arg!r}"
    if stage.spec != "spec_tensor":
        return None
    if len(after.src) != len(before.src):
        return f"the root must keep its {len(before.src)} sources, it has {len(after.src)}"
    for i, (old, new) in enumerate(zip(before.src, after.src, strict=True)):
        if old is not new and (old.dtype is not new.dtype or old._shape != new._shape):
            return (
                f"result {i} was {old.dtype} of shape {old._shape} and became {new.dtype} of shape {new._shape}; "
                "rules must keep dtype and shape"
            )
    return None


def _spec_fault(stage: Stage, graph: Any) -> str | None:
    """Return the violation of the stage's spec, or None."""
    if stage.spec is None:
        return None
    from tinygrad.uop import spec

    try:
        spec.type_verify(graph, getattr(spec, stage.spec))
    except RuntimeError as error:
        return str(error)
    return None


__all__ = [
    "Middleware", "MiddlewareError", "Stage", "active", "cache_token", "insert", "rewrite_list", "run_stage", "stages",
]  # fmt: skip
