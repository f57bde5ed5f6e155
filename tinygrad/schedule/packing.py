"""Give one operand of each large contraction a layout that vectors can read.

In:   kernels that contain REDUCE(ADD, A * B).
Out:  the same kernels, with an operand replaced by a packed copy where that pays, and the kernels that pack.
Why:  a register tile reads one operand as vectors along an output loop j (step 1 in memory) and the other as scalars.
      In a convolution no operand has a long enough loop of step 1: the weights, packed as panels of [terms][output
      channels], do.
      The operand is small against the work, or read often, so that packing it is a few percent of the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.indexing import flatten_index, steps
from tinygrad.schedule.kernel import Kernel, Leaf, StoreNest
from tinygrad.schedule.split import lane_fill, takes_blocks
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import ParamArg, UOp
from tinygrad.uop.rewrite import substitute

MIN_WORK = 1 << 18  # multiply-adds below which packing is not worth a kernel
MIN_REUSE = 16  # multiply-adds per packed element
PANELS = 32, 48  # lanes of a panel: the vectors of a register tile, of which there are two or three
GOOD_FILL = 0.9  # share of lanes in use that needs no improvement


def _load_of(u: UOp) -> UOp | None:
    while u.op is Ops.CAST:
        u = u.src[0]
    return u if u.op is Ops.INDEX else None


def _contraction(nest: StoreNest) -> tuple[UOp, UOp, UOp] | None:
    """Return (REDUCE, A load, B load) of a nest's only sum of products."""
    found = [u for u in nest.value.toposort() if u.op is Ops.REDUCE]
    if len(found) != 1 or found[0].arg[0] is not Ops.ADD:
        return None
    body = found[0].src[0]
    while body.op is Ops.CAST:
        body = body.src[0]
    if body.op is not Ops.MUL:
        return None
    a, b = _load_of(body.src[0]), _load_of(body.src[1])
    return None if a is None or b is None else (found[0], a, b)


def _size(r: UOp) -> int:
    return int(r.src[0].vmax)


def _packs_itself(nest: StoreNest, reduce: UOp, a: UOp, b: UOp) -> bool:
    """Whether the kernel is a matmul so large that it copies blocks of its operands itself."""
    step = steps(nest.index)
    if len(reduce.src) != 2 or step is None:
        return False
    mine = [[_size(r) for r in nest.ranges if r in x.ranges and r not in y.ranges] for x, y in ((a, b), (b, a))]
    last = [r for r in nest.ranges if step.get(r) == 1 and (r in a.ranges) != (r in b.ranges)]
    if not all(mine) or not last:
        return False
    return takes_blocks(max(mine[0]), max(mine[1]), _size(reduce.src[1]))


def choose(nest: StoreNest) -> tuple[UOp, UOp] | None:
    """Return (operand load, lane range) to pack, or None if the operands are fine as they are."""
    found = _contraction(nest)
    if found is None:
        return None
    reduce, a, b = found
    work = prod(tuple(_size(r) for r in (*nest.ranges, *reduce.src[1:])))
    if work < MIN_WORK or _packs_itself(nest, reduce, a, b):
        return None
    ready = 0.0
    packs: list[tuple[float, int, int, UOp, UOp]] = []
    for load, other in ((a, b), (b, a)):
        mine, theirs = load.ranges, other.ranges
        step = steps(load.src[1])
        for j in nest.ranges:
            if j not in mine or j in theirs or _size(j) < 8:
                continue
            fill = lane_fill(_size(j))
            if step is not None and step.get(j) == 1 and len(load.src) == 2:
                ready = max(ready, fill)
                continue
            packed = prod(tuple(_size(r) for r in mine))
            if packed <= 2 * prod(load.src[0].arg.shape) and work >= MIN_REUSE * packed:
                packs.append((fill, -packed, len(packs), load, j))
    if not packs or ready >= GOOD_FILL:
        return None
    best = max(packs, key=lambda p: p[:3])
    return (best[3], best[4]) if best[0] > ready + 0.1 else None


def pack_operands(kernels: list[Kernel], leaves: dict[UOp, Leaf], slots: Iterator[int]) -> list[Kernel]:
    """Return the kernels with operands packed where it pays, each packing kernel before its user."""
    ids = itertools.count(1 << 20)  # loop numbers that no other kernel uses
    done: list[Kernel] = []
    for kernel in kernels:
        if kernel.kind == "compute" and len(kernel.nests) == 1 and not kernel.nests[0].serial:
            chosen = choose(kernel.nests[0])
            if chosen is not None:
                done.append(_pack(kernel, *chosen, leaves, slots, ids))
        done.append(kernel)
    return done


def _pack(
    kernel: Kernel, load: UOp, lane: UOp, leaves: dict[UOp, Leaf], slots: Iterator[int], ids: Iterator[int]
) -> Kernel:
    nest = kernel.nests[0]
    load, lane = _cut_in_panels(nest, load, lane, ids)
    outer = [r for r in nest.ranges if r in load.ranges and r is not lane]
    inner = [r for r in load.ranges if r not in nest.ranges]
    order = (*outer, *inner, lane)
    shape = tuple(_size(r) for r in order)
    arg = ParamArg(next(slots), load.dtype, (prod(shape),), kernel.device, name="stored")
    storage = UOp(Ops.BUFFER, load.dtype, (), arg)
    state = UOp(Ops.NOOP, dtypes.void, (), ("packed", arg.slot))
    leaves[storage] = Leaf(storage, state)
    loops = tuple(UOp.range(size, next(ids), AxisType.LOOP) for size in shape)
    packed = StoreNest(
        storage, flatten_index(shape, loops), None, substitute(load, dict(zip(order, loops, strict=True))), loops
    )
    read = UOp(Ops.INDEX, load.dtype, (storage, flatten_index(shape, order)))
    nest.value = substitute(nest.value, {load: read})
    return Kernel("compute", kernel.device, nests=[packed], writes=[state])


def _cut_in_panels(nest: StoreNest, load: UOp, lane: UOp, ids: Iterator[int]) -> tuple[UOp, UOp]:
    """Cut the loop with lanes in two if it is long; return the operand and the inner loop.

    Each panel of the packed operand is consecutive memory then. Rows of all lanes would lie so far apart that what one
    register tile reads of them falls into a few sets of the caches.
    """
    size = _size(lane)
    width = next((n for n in PANELS if size % n == 0), size)
    if width == size:
        return load, lane
    outer, inner = (UOp.range(n, next(ids), AxisType.LOOP) for n in (size // width, width))
    parts = {lane: outer * width + inner}
    nest.ranges = tuple([r for old in nest.ranges for r in ((outer, inner) if old is lane else (old,))])
    nest.index, nest.value = substitute(nest.index, parts), substitute(nest.value, parts)
    nest.gate = None if nest.gate is None else substitute(nest.gate, parts)
    return substitute(load, parts), inner
