"""Origins: the graphs of values that were read before anybody asked for their gradient.

In:   a float tensor of one element that gets its value, such as a loss whose ``item()`` is printed, or one of any size
      that is read, such as predictions that are compared with labels in numpy.
Out:  ``with_origins``, graphs in which the storage of such values is the expression that it was computed from.
Why:  storage does not know how its content was computed, but printing a value must not change what ``backward`` does.

A graph is kept as long as somebody shows the value, none of the storage that it reads was overwritten, and neither too
many others nor too much storage were kept since. Values that are realized without being read have none, unless they are
single numbers, or copies that such a value stands on: what a program stores on purpose is often large, and keeping what
it was computed from would double its memory. For the same reason a chain of values, each computed from the one before,
is kept in part only. A copy of data alone (``clone``, ``contiguous``) is data and has no graph.

Where a graph could not be kept, a gradient that would have to go through it is missing; that is a warning. So is a
write to a part of storage that the value stands on.
"""

from __future__ import annotations

import atexit
import itertools
import warnings
import weakref
from typing import TYPE_CHECKING, Final

from tinygrad.dtype import dtypes
from tinygrad.errors import error_text, shown
from tinygrad.live import buffer_under, is_view_node, rebase, storage_under
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tinygrad.tensor import Tensor

_MOST: Final = 32  # graphs that are kept
# Bytes of storage that may stay alive for them, beside the newest ones: a loop that evaluates a model and keeps losses
# must not keep all inputs. It is looked at when so many numbers were added.
_MOST_BYTES: Final = 1 << 28
_LOOK_EVERY: Final = 8
_LARGE: Final = 1 << 20  # bytes of a value after which it is looked at each time
_MOST_LOST: Final = 64  # values whose lost graphs are remembered, for the warning


class _Origin:
    """An expression, and the BUFFERs that it reads, which are looked up when the first of any is written."""

    __slots__ = ("_reads", "value")

    def __init__(self, value: UOp) -> None:
        self.value = value
        self._reads: frozenset[UOp] | None = None

    @property
    def reads(self) -> frozenset[UOp]:
        if self._reads is None:
            self._reads = frozenset(u for u in self.value.toposort(enter_calls=False) if u.op is Ops.BUFFER)
        return self._reads


_added = itertools.count(1)
# BUFFER -> what its elements were computed from; the newest last.
_origins: weakref.WeakKeyDictionary[UOp, _Origin] = weakref.WeakKeyDictionary()
# BUFFER -> the BUFFERs that its elements were computed from, where that graph is not kept any more; the newest last.
_lost: weakref.WeakKeyDictionary[UOp, weakref.WeakSet[UOp]] = weakref.WeakKeyDictionary()
# Storage to a part of which something was written that has a gradient.
_partly_written: weakref.WeakSet[UOp] = weakref.WeakSet()
atexit.register(_origins.clear)  # nodes must not outlive the modules that their removal needs
atexit.register(_lost.clear)


def has_origin(tensor: Tensor, is_read: bool) -> bool:
    """Return whether the graph of a tensor that gets its value is kept: floats of one device, a number or read."""
    u = tensor.uop
    if not dtypes.is_float(u.dtype) or not isinstance(u.device, str):
        return False
    return all(type(n) is int and (is_read or n == 1) for n in u.shape)


def remember_origin(before: UOp, now: UOp, becomes: Mapping[UOp, UOp]) -> None:
    """Note what a value was computed from.

    Args:
        before: The node that was computed.
        now: The node that shows its value.
        becomes: What nodes of the schedule have become.
    """
    buffer = buffer_under(now)
    is_view = storage_under(before) is not before
    if buffer is None or (_is_data(before) and not is_view):
        return
    if buffer.numel() != 1 and not _is_whole(now):
        # What was stored is the value under the views; a DETACH among them holds for this tensor only.
        base = storage_under(before)
        stored = becomes.get(base)
        if stored is None or not _is_whole(stored) or rebase(before, base, stored) is not now:
            return
        before = base
    graph = set(before.toposort(enter_calls=False))  # the kernels of a FUNCTION write storage of their own
    written = [u for u in becomes if u.op is Ops.AFTER]
    # Each storage as it is after the last write that the value stands on. Random numbers are in storage of their own.
    earlier = {u.src[0] for u in written}
    last = {u: becomes[u] for u in written if u in graph and u not in earlier}
    value = before.substitute(last, walk=True) if last else before
    nodes = value.toposort(enter_calls=False)
    read = {u for u in nodes if u.op is Ops.BUFFER}
    is_overwritten = any(u.without_after in read and u not in graph for u in written)
    if is_overwritten or any(u.op is Ops.AFTER for u in nodes):
        _note_lost(buffer, read)
        return
    for write in last:
        if dtypes.is_float(write.dtype):
            _note_content(write, last, written)
    _keep(buffer, value)


def _note_content(write: UOp, last: dict[UOp, UOp], written: Sequence[UOp]) -> None:
    """Note what the content of storage was computed from; or, after a write to a part of it, that it is not known.

    Args:
        write: The AFTER.
        last: AFTERs that are replaced by the storage that they have become.
        written: All AFTERs that were computed.
    """
    storage, content = write.without_after, _contents(write)
    value = (write if content is None else content).substitute({u: u.const_like(0) for u in last if u is not write})
    reads = {u for u in value.toposort(enter_calls=False) if u.op is Ops.BUFFER}
    if any(u.without_after in reads - {storage} for u in written):
        return  # an update of a parameter, say: what it was computed from is overwritten, too
    if content is not None and any(dtypes.is_float(u.dtype) for u in content.toposort() if u.op is Ops.BUFFER):
        _keep(storage, content.substitute(last, walk=True))
    elif content is None and any(dtypes.is_float(u.dtype) and u is not storage for u in reads):
        _note_lost(storage, reads - {storage})
        _partly_written.add(storage)


def _keep(buffer: UOp, value: UOp) -> None:
    _lost.pop(buffer, None)
    _origins.pop(buffer, None)
    _origins[buffer] = _Origin(value)
    if next(_added) % _LOOK_EVERY == 0 or buffer.numel() * buffer.dtype.itemsize >= _LARGE:
        _bound_storage()
    while len(_origins) > _MOST:
        _lose(next(iter(_origins.keys())))


def _contents(write: UOp) -> UOp | None:
    """Return what a write leaves in storage that it fills as a whole, without reading it; None for other writes."""
    base, *effects = write.src
    if len(effects) != 1 or effects[0].op is not Ops.STORE:
        return None
    storage, (target, value) = write.without_after, effects[0].src[:2]
    while target.op is Ops.RESHAPE:
        target = target.src[0]
    is_whole = storage.op is Ops.BUFFER and target in (base, storage)
    if not is_whole or any(u.without_after is storage for u in value.toposort(enter_calls=False)):
        return None
    # A copy is a variable of its own: another copy of the same value has another gradient.
    return UOp(Ops.CONTIGUOUS, value.dtype, (value.reshape(storage.shape),), tag=storage.arg.slot)


def _is_whole(u: UOp) -> bool:
    """Return whether a node is the elements of a BUFFER, all of them and in order."""
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u.op is Ops.BUFFER


def _lose(buffer: UOp) -> None:
    """Forget a graph, but for what it read."""
    origin = _origins.pop(buffer, None)
    if origin is not None:
        _note_lost(buffer, origin.reads)


def _note_lost(buffer: UOp, reads: Collection[UOp]) -> None:
    _lost[buffer] = weakref.WeakSet(reads)
    while len(_lost) > _MOST_LOST:
        _lost.pop(next(iter(_lost.keys())), None)


def _bound_storage() -> None:
    """Forget the older graphs where all of them together keep too much storage alive."""
    kept: set[UOp] = set()
    nbytes = 0
    for count, (buffer, origin) in enumerate(reversed(list(_origins.items()))):
        more = origin.reads - kept
        kept |= more
        nbytes += sum(int(u.numel()) * u.dtype.itemsize for u in more)
        if nbytes > _MOST_BYTES and (count or buffer.numel() > 1):
            _lose(buffer)


def _is_data(u: UOp) -> bool:
    """Return whether a node is storage or a constant, in whatever place and shape."""
    while is_view_node(u) or u.op in {Ops.COPY, Ops.CONTIGUOUS, Ops.AFTER}:
        u = u.src[0]
    return u.op in {Ops.BUFFER, Ops.CONST}


def forget_readers(is_overwritten: Callable[[UOp], bool]) -> None:
    """Forget the graphs that read, or led to, BUFFERs that are about to be overwritten."""
    if not _origins and not _lost:
        return  # walking through weak dictionaries takes its time, even if they are empty
    for buffer, origin in list(_origins.items()):
        if is_overwritten(buffer):
            _origins.pop(buffer, None)
        elif any(map(is_overwritten, origin.reads)):
            _lose(buffer)
    for buffer in [b for b in list(_lost.keys()) if is_overwritten(b)]:
        _lost.pop(buffer, None)


def with_origins(root: Tensor, *others: Tensor) -> list[UOp]:
    """Return the nodes of tensors; values in the graph of ``root`` whose origin is known are expressions there.

    Warns:
        RuntimeWarning: The origin of a value is forgotten, and one of the others was in it and is not in the graph; or
            it was written to a part of storage in the graph.
    """
    nodes = [t.uop for t in (root, *others)]
    expressions = _expressions_in(root.uop) if _origins else {}
    if expressions:
        graph = set(root.uop.toposort())
        there = [i for i, u in enumerate(nodes) if u in graph or buffer_under(u) in expressions]
        for i, node in zip(there, _substituted([nodes[i] for i in there], expressions), strict=True):
            nodes[i] = node
    if _lost:
        _warn_of_lost(nodes, others)
    return nodes


def _substituted(nodes: Sequence[UOp], expressions: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """Return several nodes with the expressions in place of storage; what they share stays shared."""
    return UOp(Ops.SINK, dtypes.void, tuple(nodes)).substitute(expressions, walk=True).src


def _warn_of_lost(nodes: Sequence[UOp], others: Sequence[Tensor]) -> None:
    graph = nodes[0].toposort()
    for buffer in [b for b in list(_lost.keys()) if b in graph]:
        reads = _lost.pop(buffer)  # one warning is enough
        is_cut = buffer in _partly_written
        starved = [
            t for t, u in zip(others, nodes[1:], strict=True) if buffer_under(u) in reads and (is_cut or u not in graph)
        ]
        if starved:
            what = f"a value of {buffer.numel()} elements was read before, and its graph is not kept any more, so "
            shapes = ", ".join(sorted({shown(t.shape) for t in starved})[:4])
            hint = "read it after backward, before what it was computed from is overwritten; or use its detach()"
            text = error_text("backward", f"{what}tensors of shape {shapes} get no gradient through it", hint=hint)
            warnings.warn(text, RuntimeWarning, stacklevel=2)


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
    # A value is noted after those that it was computed from, so that their expressions are whole by then.
    whole: dict[UOp, UOp] = {}
    for number in list(_origins.keys()):
        if number in found:
            whole[number] = found[number].substitute(whole, walk=True)
    return whole
