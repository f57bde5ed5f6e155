"""Write a Kernel down as the node that the code generator takes.

In:   a Kernel whose graph refers to storage by stand-ins.
Out:  SINK(END(STORE(INDEX(PARAM, index), value), ranges...), ...) and the storages in the order of the PARAM slots.
Why:  loops and arguments are numbered by position, so that equal kernels of different layers are the same node and
      compile once.
"""

from __future__ import annotations

from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.schedule.kernel import Kernel, Leaf, StoreNest
from tinygrad.schedule.ordering import root_storage
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import KernelInfo, UOp
from tinygrad.uop.rewrite import substitute


def loop_order(nest: StoreNest) -> tuple[UOp, ...]:
    """Return the nest's loops, those that reductions depend on outside the others, so that each runs only once."""
    used: set[UOp] = set()
    for u in nest.value.toposort():
        if u.op is Ops.REDUCE:
            used |= {r for r in u.ranges if r in nest.ranges}
    if not used or len(used) == len(nest.ranges):
        return nest.ranges
    return (*(r for r in nest.ranges if r in used), *(r for r in nest.ranges if r not in used))


def storage_of(stand_in: UOp, leaves: dict[UOp, Leaf]) -> UOp:
    """Return the storage that a kernel argument is: views keep their own stand-in, over the storage that they view."""
    if stand_in.tag is None:
        return leaves[stand_in].storage
    kind, below, *rest = stand_in.tag
    return stand_in.replace(tag=(kind, storage_of(below, leaves), *rest))


def kernel_ast(kernel: Kernel, leaves: dict[UOp, Leaf]) -> tuple[UOp, list[UOp]]:
    """Return the kernel's SINK and its storages, outputs first."""
    storages: dict[UOp, int] = {}
    for nest in kernel.nests:
        storages.setdefault(nest.target, len(storages))
    swap: dict[UOp, UOp] = {}
    for stand_in in (*(n.target for n in kernel.nests), *kernel.loads()):
        storage = storage_of(stand_in, leaves) if stand_in in leaves else stand_in
        slot = storages.setdefault(storage, len(storages))
        swap[stand_in] = UOp.param(slot, stand_in.dtype, stand_in.arg.shape)
    stores: list[UOp] = []
    loops: dict[UOp, None] = {}
    for nest in kernel.nests:
        order = loop_order(nest)
        loops.update(dict.fromkeys(order))
        stores.append(_store(nest).end(*order) if order else _store(nest))
    sink = UOp(Ops.SINK, dtypes.void, tuple(stores), KernelInfo())
    for u in sink.toposort():
        if u.op is Ops.RANGE:
            loops[u] = None
    for number, r in enumerate(loops):
        swap[r] = UOp(Ops.RANGE, r.dtype, r.src, (number, *r.arg[1:]))
    # All at once: the new number of one loop may be the old number of another.
    return substitute(sink, swap, walk=True), list(storages)


def _store(nest: StoreNest) -> UOp:
    address: tuple[Any, ...] = (nest.target, nest.index) if nest.gate is None else (nest.target, nest.index, nest.gate)
    index = UOp(Ops.INDEX, nest.target.dtype, address)
    value = nest.value
    if nest.accumulate:
        value = UOp(nest.accumulate, value.dtype, (UOp(Ops.INDEX, nest.target.dtype, address), value))
    return UOp(Ops.STORE, dtypes.void, (index, value), "serial" if nest.serial else None)


__all__ = ["AxisType", "kernel_ast", "loop_order", "root_storage", "storage_of"]
