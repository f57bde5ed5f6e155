"""Origins: the graphs of single numbers that were read before anybody asked for their gradient.

In:   a float tensor of one element that gets its value, such as a loss whose ``item()`` is printed.
Out:  ``with_origins``, graphs in which the storage of such numbers is the expression that it was computed from.
Why:  storage does not know how its content was computed, but printing a loss must not change what ``backward`` does.

A graph is kept as long as somebody shows the number, none of the storage that it reads was overwritten, and neither too
many others nor too much storage were kept since. Only single numbers have one: keeping what a large value was computed
from would double the memory of programs that never ask for a gradient. For the same reason a chain of numbers, each
computed from the one before, is kept in part only.
"""

from __future__ import annotations

import atexit
import itertools
import weakref
from typing import TYPE_CHECKING, Final

from tinygrad.dtype import dtypes
from tinygrad.live import buffer_under, is_view_node
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tinygrad.tensor import Tensor

_MOST: Final = 32  # graphs that are kept
# Bytes of storage that may stay alive for them, beside the newest ones: a loop that evaluates a model and keeps losses
# must not keep all inputs. It is looked at when so many numbers were added.
_MOST_BYTES: Final = 1 << 28
_LOOK_EVERY: Final = 8


class _Origin:
    """An expression, and the BUFFERs that it reads, which are looked up when the first of any is written."""

    __slots__ = ("_reads", "value")

    def __init__(self, value: UOp) -> None:
        self.value = value
        self._reads: frozenset[UOp] | None = None

    @property
    def reads(self) -> frozenset[UOp]:
        if self._reads is None:
            self._reads = frozenset(u for u in self.value.toposort() if u.op is Ops.BUFFER)
        return self._reads


_added = itertools.count(1)
# BUFFER -> what its one element was computed from; the newest last.
_origins: weakref.WeakKeyDictionary[UOp, _Origin] = weakref.WeakKeyDictionary()
atexit.register(_origins.clear)  # nodes must not outlive the modules that their removal needs


def is_single_float(tensor: Tensor) -> bool:
    """Return whether a tensor is one float of one device: a number that can be differentiated."""
    u = tensor.uop
    return dtypes.is_float(u.dtype) and isinstance(u.device, str) and all(type(n) is int and n == 1 for n in u.shape)


def remember_origin(before: UOp, now: UOp, becomes: Mapping[UOp, UOp]) -> None:
    """Note what a number was computed from.

    Args:
        before: The node that was computed.
        now: The node that shows its value.
        becomes: What nodes of the schedule have become.
    """
    buffer = buffer_under(now)
    if buffer is None or buffer.numel() != 1 or _is_data(before):
        return
    written = [u for u in becomes if u.op is Ops.AFTER]
    if any(dtypes.is_float(u.dtype) for u in written):
        return  # what the number was computed from is overwritten already
    # Draws of random numbers have storage of their own, which is written once: the same numbers can be drawn again.
    drawn = {u: becomes[u] for u in written if u.src[0].op is Ops.BUFFER}
    value = before.substitute(drawn, walk=True) if drawn else before
    if not value.op_in_backward_slice_with_self(Ops.AFTER):
        _origins[buffer] = _Origin(value)
        if next(_added) % _LOOK_EVERY == 0:
            _bound_storage()
        while len(_origins) > _MOST:
            _origins.pop(next(iter(_origins.keys())), None)


def _bound_storage() -> None:
    """Forget the older graphs where all of them together keep too much storage alive."""
    kept: set[UOp] = set()
    nbytes = 0
    for count, (number, origin) in enumerate(reversed(list(_origins.items()))):
        more = origin.reads - kept
        kept |= more
        nbytes += sum(int(u.numel()) * u.dtype.itemsize for u in more)
        if nbytes > _MOST_BYTES and count:
            _origins.pop(number, None)


def _is_data(u: UOp) -> bool:
    """Return whether a node is storage or a constant, in whatever place and shape."""
    while is_view_node(u) or u.op in {Ops.COPY, Ops.CONTIGUOUS, Ops.AFTER}:
        u = u.src[0]
    return u.op in {Ops.BUFFER, Ops.CONST}


def forget_readers(is_overwritten: Callable[[UOp], bool]) -> None:
    """Forget the graphs that read, or led to, BUFFERs that are about to be overwritten."""
    for number, origin in list(_origins.items()):
        if is_overwritten(number) or any(map(is_overwritten, origin.reads)):
            _origins.pop(number, None)


def with_origins(root: Tensor, *others: Tensor) -> list[UOp]:
    """Return the nodes of tensors; numbers in the graph of ``root`` whose origin is known are expressions there."""
    given = [t.uop for t in (root, *others)]
    expressions = _expressions_in(root.uop) if _origins else {}
    if not expressions:
        return given
    return [
        u.substitute(expressions, walk=True) if u is given[0] or buffer_under(u) in expressions else u for u in given
    ]


def _expressions_in(root: UOp) -> dict[UOp, UOp]:
    """Return BUFFER -> expression, for the numbers in a graph and in the expressions of these."""
    found: dict[UOp, UOp] = {}
    stack = [root]
    while stack:
        for node in stack.pop().toposort():
            origin = _origins.get(node) if node.op is Ops.BUFFER and node not in found else None
            if origin is not None:
                found[node] = origin.value.reshape(node.shape)
                stack.append(origin.value)
    # A number is noted after those that it was computed from, so that their expressions are whole by then.
    whole: dict[UOp, UOp] = {}
    for number in list(_origins.keys()):
        if number in found:
            whole[number] = found[number].substitute(whole, walk=True)
    return whole
