"""Storage in kernels: the BUFFER stand-ins by which their graphs name what they read and write.

In:   nodes of the prepared graph that have storage: BUFFERs and PARAMs, states of them after writes (AFTER), values
      that this schedule stores, and contiguous views of all of these.
Out:  for each a BUFFER node known by number within the schedule, and in ``leaves`` what it stands for.
Why:  kernels of equal layers differ in their storage alone, and reads of different states of one storage have to be
      told apart until the kernels are in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from typing import Any

from tinygrad.dtype import strong_dtype
from tinygrad.schedule.kernel import Leaf
from tinygrad.schedule.prepare import is_stored, numel, runs_kernels
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import ParamArg, UOp


def resizes(u: UOp) -> bool:
    """Return whether a BITCAST changes the item size, so that it is a view of memory."""
    return u.op is Ops.BITCAST and u.src[0].dtype.itemsize != u.dtype.itemsize


class StandIns:
    """The stand-ins of one schedule.

    Args:
        order: The nodes of the graph, sources first.
        stored: The values that kernels of this schedule store; it may grow while it is in use.

    Attributes:
        made: The stand-in of each node with storage.
        leaves: What each stand-in stands for.
        slots: Numbers for further storage.
    """

    def __init__(self, order: Sequence[UOp], stored: Container[UOp]) -> None:
        self.order, self.stored = order, stored
        self.made: dict[UOp, UOp] = {}
        self.leaves: dict[UOp, Leaf] = {}
        self.slots = itertools.count()
        self.slices: dict[UOp, bool] = {}
        self.written = {u.without_after for u in order if u.op is Ops.AFTER}

    def is_slice(self, u: UOp) -> bool:
        """Return whether a SHRINK is a contiguous piece of given storage, so that kernels can be handed just the piece.

        The rows that a loop reads one by one then run the same kernel, whatever their offsets. Storage that this
        schedule writes is left whole: reads and writes of it are compared by position.
        """
        if u.op is not Ops.SHRINK:
            return False
        found = self.slices.get(u)
        if found is None:
            base = u.base
            found = (
                is_stored(base)
                and base.device is not None
                and len(u.src) == 1
                and base.without_after not in self.written
                and all(isinstance(s, int) and s > 0 for s in u.shape)
                and 2 * numel(u) <= numel(base)
                and u.contiguous_view() is not None
            )
            self.slices[u] = found
        return found

    def node_with_storage(self, u: UOp) -> UOp | None:
        """Return the node whose storage holds ``u`` unchanged (seen through RESHAPE and CONTIGUOUS), or None."""
        while u.op in (Ops.RESHAPE, Ops.CONTIGUOUS) and u not in self.stored:
            u = u.src[0]
        found = u in self.stored or is_stored(u) or u.op is Ops.COPY or resizes(u) or self.is_slice(u)
        return u if found else None

    def new_storage(self, u: UOp, device: Any) -> UOp:
        """Return a BUFFER for the value of ``u``, known by number within this schedule."""
        if device is None:  # a value of constants and ranges: it lives where the kernels run
            results_first = (n._device for n in reversed(self.order))
            device = next((d for d in results_first if isinstance(d, str) and runs_kernels(d)), None)
        dtype = strong_dtype(u.dtype)
        return UOp(Ops.BUFFER, dtype, (), ParamArg(next(self.slots), dtype, (numel(u),), device, name="stored"))

    def of(self, u: UOp) -> UOp:
        """Return the BUFFER that stands for a stored value (or state of storage) in kernels."""
        node = self.node_with_storage(u)
        assert node is not None, f"{u.op} has no storage"
        found = self.made.get(node)
        if found is not None:
            return found
        if self.is_slice(node):
            return self.of_view(node)
        if node.op is Ops.BUFFER or node.op is Ops.PARAM:
            made, leaf = node, Leaf(node, node)
        elif node.op is Ops.AFTER:
            storage = self.leaves[self.of(node.without_after)].storage
            arg = ParamArg(next(self.slots), storage.dtype, storage.arg.shape, storage.arg.device, name="state")
            made, leaf = UOp(Ops.BUFFER, storage.dtype, (), arg), Leaf(storage, node)
        elif resizes(node):
            below = self.of_view(node.src[0])
            made = self.new_storage(node, node.device).replace(tag=("bitcast", below))
            leaf = Leaf(made, node)
        else:
            made = self.new_storage(node, node.device)
            leaf = Leaf(made, node)
        self.made[node] = made
        self.leaves[made] = leaf
        return made

    def of_view(self, u: UOp) -> UOp:
        """Return a BUFFER for a contiguous view: the whole storage, or a part of it known by offset."""
        node = self.node_with_storage(u)
        if node is not None and not self.is_slice(node):
            is_whole = not is_stored(node) or numel(u) == numel(node.without_after)
            if is_whole:
                return self.of(u)
        view = u.contiguous_view()
        if view is None:
            raise RuntimeError(
                f"non-contiguous view is not supported here: shape {u.shape} on {u.device}; use .contiguous()"
            )
        base = u
        while base.op in GroupOp.Movement or base.op in (Ops.DETACH, Ops.BITCAST, Ops.CONTIGUOUS):
            base = base.src[0]
        key = UOp(Ops.NOOP, u.dtype, (base,), ("view", view[1], numel(u)))
        if key not in self.made:
            below = self.of(base)
            made = self.new_storage(u, u.device).replace(tag=("view", below, view[1]))
            self.made[key] = made
            self.leaves[made] = Leaf(made, base)
        return self.made[key]

    def of_target(self, base: UOp) -> UOp:
        """Return the storage that a STORE writes."""
        if not is_stored(base):
            raise RuntimeError(
                f"store: the target must be storage or a view of it, got {base.op}; call .contiguous() first"
            )
        return self.leaves[self.of(base.without_after)].storage
