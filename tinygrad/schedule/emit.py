"""Write a Kernel down as the node that the code generator takes.

In:   a Kernel whose graph refers to storage by stand-ins.
Out:  SINK(END(STORE(INDEX(PARAM, index), value), ranges...), ...) and the storages in the order of the PARAM slots.
Why:  loops and arguments are numbered by position, so that equal kernels of different layers are the same node and
      compile once. For the same reason a kernel that leaves out the beginning of a storage, such as ``x[i] = v`` for
      some i, is handed the rest of it, and counts from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.schedule.kernel import Kernel, Leaf, StoreNest
from tinygrad.schedule.ordering import root_storage
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp
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


def kernel_ast(kernel: Kernel, leaves: dict[UOp, Leaf], slots: Iterator[int]) -> tuple[UOp, list[UOp]]:
    """Return the kernel's SINK and its storages, outputs first.

    Args:
        kernel: The kernel.
        leaves: What the stand-ins stand for.
        slots: Gives numbers to further storage.
    """
    storages: dict[UOp, int] = {}
    for nest in kernel.nests:
        storages.setdefault(nest.target, len(storages))
    shown: dict[UOp, UOp] = {}
    for stand_in in (*(n.target for n in kernel.nests), *kernel.loads()):
        storage = shown[stand_in] = storage_of(stand_in, leaves) if stand_in in leaves else stand_in
        storages.setdefault(storage, len(storages))
    stores: list[UOp] = []
    loops: dict[UOp, None] = {}
    for nest in kernel.nests:
        order = loop_order(nest)
        loops.update(dict.fromkeys(order))
        stores.append(_store(nest).end(*order) if order else _store(nest))
    sink = UOp(Ops.SINK, dtypes.void, tuple(stores), KernelInfo())
    sink, parts = _count_from_first(sink, shown, slots)
    swap = {
        stand_in: UOp.param(storages[storage], stand_in.dtype, parts.get(storage, stand_in).arg.shape)
        for stand_in, storage in shown.items()
    }
    for u in sink.toposort():
        if u.op is Ops.RANGE:
            loops[u] = None
    for number, r in enumerate(loops):
        swap[r] = UOp(Ops.RANGE, r.dtype, r.src, (number, *r.arg[1:]))
    # All at once: the new number of one loop may be the old number of another.
    return substitute(sink, swap, walk=True), [parts.get(storage, storage) for storage in storages]


def _count_from_first(sink: UOp, shown: dict[UOp, UOp], slots: Iterator[int]) -> tuple[UOp, dict[UOp, UOp]]:
    """Let the indices of given storage count from the first element that the kernel uses.

    Args:
        sink: The kernel, on stand-ins.
        shown: The storage of each stand-in.
        slots: Gives numbers to the parts.

    Returns:
        The kernel, and for each storage of which it uses a later part that part.
    """
    uses: dict[UOp, list[UOp]] = {}
    for u in sink.toposort():
        if u.op is Ops.INDEX and (storage := shown.get(u.src[0])) is not None and storage.arg.name == "given":
            uses.setdefault(storage, []).append(u)
    swap: dict[UOp, UOp] = {}
    parts: dict[UOp, UOp] = {}
    for storage, indices in uses.items():
        places = [u.src[1] for u in indices]
        bounds = [(p.vmin, p.vmax) for p in places]
        first = min(low for low, _ in bounds)
        if not isinstance(first, int) or first <= 0 or any(p.op_in_backward_slice_with_self(Ops.INDEX) for p in places):
            continue
        count = min(max(high for _, high in bounds) + 1, storage.arg.shape[0]) - first
        if count <= 0:
            continue  # behind the end: all of these are gated, and never take place
        arg = ParamArg(next(slots), storage.dtype, (count,), storage.arg.device, name="stored")
        parts[storage] = UOp(Ops.BUFFER, storage.dtype, (), arg, ("view", storage, first))
        for u, place in zip(indices, places, strict=True):
            swap[u] = u.replace(src=(u.src[0], (place - first).simplify(), *u.src[2:]))
    return substitute(sink, swap, walk=True) if swap else sink, parts


def _store(nest: StoreNest) -> UOp:
    address: tuple[Any, ...] = (nest.target, nest.index) if nest.gate is None else (nest.target, nest.index, nest.gate)
    index = UOp(Ops.INDEX, nest.target.dtype, address)
    value = nest.value
    if nest.accumulate:
        value = UOp(nest.accumulate, value.dtype, (UOp(Ops.INDEX, nest.target.dtype, address), value))
    return UOp(Ops.STORE, dtypes.void, (index, value), "serial" if nest.serial else None)


__all__ = ["AxisType", "kernel_ast", "loop_order", "root_storage", "storage_of"]
