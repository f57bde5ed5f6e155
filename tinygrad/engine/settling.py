"""What has to be computed before a replay: tensors that read what it writes, and pending writes to what it uses.

In:   the storages that the launches of a capture use, and those of them that they write.
Out:  ``Settling.settle``, which computes such tensors, and looks only at those that are new since the last replay.
      Numbers that were read, whose graphs read what it writes, lose these graphs (``origins.py``).
Why:  a replay only launches kernels. ``old = w.clone(); step(); old.tolist()`` must show w before the step, and
      ``w.assign(w + 1); step()`` must start from the new w, as they do without a JIT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinygrad.engine.arguments import leaves
from tinygrad.engine.capturing import capturing
from tinygrad.live import storage_under, unsettled_since
from tinygrad.origins import forget_readers
from tinygrad.pending import without_forgotten_gradients
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers


class Settling:
    """Finds and computes the tensors that a replay must not overtake.

    Args:
        used: Storages (ids of Buffers, which are kept alive elsewhere) that the launches read or write as their state.
        written: Those that they write.
        writes_inputs: Whether they write to arguments.
    """

    __slots__ = ("_last", "_used", "_writes_inputs", "_written")

    def __init__(self, used: set[int], written: set[int], writes_inputs: bool) -> None:
        self._used, self._written, self._writes_inputs = used, written, writes_inputs
        self._last = 0  # up to which tensors are known to be computed as well after a replay

    def settle(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compute what has to come before a replay on these arguments."""
        if capturing:
            return
        written = self._written | _storages_of(args, kwargs) if self._writes_inputs else self._written
        if written:
            forget_readers(lambda u: not written.isdisjoint(_storages(u)))
        pending, last = unsettled_since(0 if self._writes_inputs else self._last)
        if pending:
            found = without_forgotten_gradients([t for t in pending if self._comes_first(t.uop, written)])
            if found:
                found[0].realize(*found[1:])
                last = 0
        self._last = last

    def _comes_first(self, root: UOp, written: set[int]) -> bool:
        if root.is_virtual:
            return False
        for u in root.toposort(enter_calls=False):
            if u.op is Ops.BUFFER and not written.isdisjoint(_storages(u)):
                return True
            if u.op is Ops.AFTER and not self._used.isdisjoint(_storages(u.without_after)):
                return True
        return False


def _storages(node: UOp) -> list[int]:
    """Return the ids of the Buffers whose memory a BUFFER stands for."""
    found: Any = buffers.get(node)
    return [] if found is None else [id(part.base) for part in getattr(found, "bufs", (found,))]


def _storages_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[int]:
    tensors = [value for _, value in leaves(args, kwargs) if isinstance(value, Tensor)]
    nodes = [storage_under(t.uop).without_after for t in tensors]
    return {storage for node in nodes for storage in _storages(node)}
