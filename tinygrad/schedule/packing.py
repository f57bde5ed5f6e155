"""Give one operand of each large contraction a layout that vectors can read.

In:   kernels that contain REDUCE(ADD, A * B).
Out:  the same kernels, with an operand replaced by a packed copy where that pays, and the kernels that pack.
Why:  a register tile reads one operand as vectors along an output loop j (step 1 in memory) and the other as scalars.
      In a convolution no operand has a long enough loop of step 1: the weights, packed as panels of [terms][output
      channels], do. A large matmul copies blocks itself, but of rows at positions without a step (heads, which were a
      part of each row and lie apart) it copies element after element, or finds several loops where there was one sum.
      Of pixels that lie apart, as a step of 2 leaves them, it would not even know that it is one.
      The operand is small against the work, or read often, so that packing it is a few percent of the time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

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
MIN_REUSE_OF_ROWS = 128  # of an operand of a matmul, whose own copies cost little more
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


def _product(ranges: Iterable[UOp]) -> int:
    return prod(tuple(_size(r) for r in ranges))


def tangled(nest: StoreNest) -> list[tuple[UOp, tuple[UOp, ...]]]:
    """Return the operands of a large matmul that are read at positions without steps, and their loops in good order."""
    found = _contraction(nest)
    if found is None or any(r.src[0].op is not Ops.CONST for r in (*nest.ranges, *found[0].src[1:])):
        return []
    reduce, a, b = found
    rows, columns = (
        _product([r for r in nest.ranges if r in x.ranges and r not in y.ranges]) for x, y in ((a, b), (b, a))
    )
    if not takes_blocks(rows, columns, _product(reduce.src[1:])):
        return []
    work = _product((*nest.ranges, *reduce.src[1:]))
    chosen = []
    for load, other in ((a, b), (b, a)):
        if len(load.src) != 2 or steps(load.src[1]) is not None:
            continue
        copied = _product(load.ranges)
        if copied > prod(load.src[0].arg.shape) or work < MIN_REUSE_OF_ROWS * copied:
            continue
        # Terms in the order of the other operand: loops that are one loop there are one here.
        far = steps(other.src[1]) or {}
        terms = sorted(reduce.src[1:], key=lambda r: -far.get(r, 0))
        last = min(load.ranges, key=lambda r: _first_step(load, r))
        chosen.append((load, (*[r for r in (*nest.ranges, *terms) if r in load.ranges and r is not last], last)))
    return chosen


def stepped(nest: StoreNest) -> tuple[UOp, tuple[UOp, ...]] | None:
    """Return the operand whose steps make two loops of one in a large matmul, and its loops in good order.

    Pixels that a convolution of single ones skips (steps of 2) or that are cropped: rows and columns of the result are
    one loop, those of the image are not, and each of its channels is on a memory page of its own.
    """
    found, out = _contraction(nest), steps(nest.index)
    if found is None or out is None or any(r.src[0].op is not Ops.CONST for r in (*nest.ranges, *found[0].src[1:])):
        return None
    reduce, a, b = found
    if len(reduce.src) != 2 or _packs_itself(nest, reduce, a, b):
        return None
    (k,), work = reduce.src[1:], _product((*nest.ranges, *reduce.src[1:]))
    for load, other in ((a, b), (b, a)):
        step, copied = steps(load.src[1]), _product(load.ranges)
        if len(load.src) != 2 or step is None or copied > prod(load.src[0].arg.shape):
            continue
        mine = [r for r in nest.ranges if r in load.ranges and r not in other.ranges and r in out]
        theirs = [r for r in nest.ranges if r in other.ranges and r not in load.ranges]
        pairs = [(y, x) for y in mine for x in mine if out[x] == 1 and out[y] == _size(x)]
        if not pairs or work < MIN_REUSE_OF_ROWS * copied:
            continue
        y, x = pairs[0]
        if step.get(y) == _size(x) * step.get(x, 0) or not takes_blocks(_product((y, x)), _product(theirs), _size(k)):
            continue
        return load, (*[r for r in (*nest.ranges, k) if r in load.ranges and r not in (y, x)], y, x)
    return None


def _first_step(load: UOp, r: UOp) -> float:
    """Return how far apart the first two iterations of a loop are in memory, the others being at their first."""
    index = load.src[1]
    first, second = (substitute(index, {x: x.const_like(n if x is r else 0) for x in load.ranges}) for n in (0, 1))
    apart = (second - first).simplify()
    return abs(apart.arg) if apart.op is Ops.CONST else math.inf


def pack_operands(kernels: list[Kernel], leaves: dict[UOp, Leaf], slots: Iterator[int]) -> list[Kernel]:
    """Return the kernels with operands packed where it pays, each packing kernel before its user."""
    ids = itertools.count(1 << 20)  # loop numbers that no other kernel uses
    done: list[Kernel] = []
    for kernel in kernels:
        if kernel.kind == "compute" and len(kernel.nests) == 1 and not kernel.nests[0].serial:
            nest = kernel.nests[0]
            if _contraction(nest) is None:
                done.append(kernel)
                continue
            together = stepped(nest)
            for load, order in tangled(nest) if together is None else [together]:
                done.append(_copy(kernel, load, order, leaves, slots, ids))
            # The kernel in which two loops become one copies blocks itself.
            chosen = choose(nest) if together is None else None
            if chosen is not None:
                load, lane = _cut_in_panels(nest, *chosen, ids)
                outer = [r for r in nest.ranges if r in load.ranges and r is not lane]
                inner = [r for r in load.ranges if r not in nest.ranges]
                done.append(_copy(kernel, load, (*outer, *inner, lane), leaves, slots, ids))
        done.append(kernel)
    return done


def _copy(
    kernel: Kernel, load: UOp, order: tuple[UOp, ...], leaves: dict[UOp, Leaf], slots: Iterator[int], ids: Iterator[int]
) -> Kernel:
    """Return a kernel that copies an operand, its loops in the given order; ``kernel`` reads the copy."""
    nest = kernel.nests[0]
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
