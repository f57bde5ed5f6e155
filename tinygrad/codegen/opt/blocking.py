"""Blocks for large contractions: what is read again and again stays in the caches.

In:   a Schedule of a kernel that is a contraction, and its sides.
Out:  the Schedule with steps applied, or untouched if the contraction is too small or of another form.
How:  blocks of outputs (parallel); inside, blocks of the reduction; inside, both operands are copied to scratch memory
      (STAGE), one in panels as wide as the register tile, so that the innermost loops read consecutive memory without
      masks. A panel of the wide operand stays in the first cache, a block of the narrow one in the second. Sums of a
      block are added up in scratch memory (CACHE), which also keeps chains of float additions short.
Why:  a tile of registers alone reads both operands from memory once per tile, which is slower than multiplying.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Access, Kernel
from tinygrad.codegen.opt.rebuild import narrow_factors
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.record import record
from tinygrad.schedule.split import stays_near, takes_blocks
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.codegen.opt.contraction import Sides

TERMS = (192, 320)  # of a block of the reduction, in float32
ONE_BLOCK = 512  # terms that are not cut into blocks: sums stay in registers, and are not much longer than elsewhere
# Parts of the second cache that copied blocks of the narrow and of the wide operand take at most: all of the narrow one
# is read again for every panel of the wide one.
CACHE_SHARES = 2, 1
STACK_BYTES = 7 << 19  # sums and copied blocks of both operands live on the stack of a thread
UNROLL = 4
COPY_CYCLES = 1.0  # of copying one element in vectors, from beyond the second cache
TRANSPOSE_CYCLES = 1.2  # of copying one element across the lanes
LOAD_COST = 0.5  # of a load beside multiply-adds that could do without
FEW_CHAINS = 0.5  # of a cycle lost per multiply-add where one chain of them is all there is
# Pieces that a thread waits for others at the end: about half of one, more where a processor is slowed down meanwhile.
UNEVEN = 0.6


@record(frozen=True)
class Blocks:
    """Sizes: register tile (rows x vectors), tiles per block of outputs, blocks of outputs, terms per block."""

    rows: int
    vectors: int
    narrow_tiles: int
    wide_tiles: int
    narrow_blocks: int
    wide_blocks: int


def tiles(registers: int) -> list[tuple[int, int, float]]:
    """Return register tiles (rows, vectors) with the time of a multiply-add in them, relative to one without loads.

    Loads run beside multiply-adds, but take energy and ports: tiles near a square need the least of them.
    """
    found = []
    for vectors in range(1, 5):
        for rows in range(2, (registers - 2) // vectors):
            accumulators = rows * vectors
            loads = rows + vectors
            if accumulators + vectors + 1 < registers and accumulators >= 8:
                found.append((rows, vectors, 1 + (LOAD_COST * loads + FEW_CHAINS) / accumulators))
    return found


def terms_per_block(terms: int, longest: int) -> int:
    """Return the terms of a block of the reduction: near ``longest``, a multiple of the unrolling, little padding."""
    if terms * TERMS[1] <= ONE_BLOCK * longest:
        return -(-terms // UNROLL) * UNROLL
    first = -(-terms // longest)
    counts = range(first, max(first, terms * TERMS[1] // (TERMS[0] * longest)) + 1)
    sizes = [-(-terms // (n * UNROLL)) * UNROLL for n in counts]
    return min(zip(counts, sizes, strict=True), key=lambda c: (c[0] * c[1], c[0]))[1]


def cuts(size: int, tile: int, longest: int) -> list[tuple[int, int]]:
    """Return (tiles per block, blocks) that cover ``size``."""
    total = -(-size // tile)
    most = max(1, longest // tile)
    return [(-(-total // n), n) for n in range(-(-total // most), min(total, 4 * -(-total // most) + 3) + 1)]


@record(frozen=True)
class Machine:
    """What the sizes of blocks depend on: vector registers, lanes of a vector, threads, rows and columns at most."""

    registers: int
    lanes: int
    threads: int
    longest: tuple[int, int]


def longest_sides(cache_bytes: int, itemsize: int) -> tuple[int, int]:
    """Return the rows and columns of a block of outputs at most: copied blocks of the operands fit their shares."""
    itemsize = max(4, itemsize)
    terms = TERMS[1] * 4 // itemsize
    # The side of a square whose sums and operands fill the stack: side^2 + 2 * terms * side = elements.
    side = math.isqrt(terms**2 + STACK_BYTES // itemsize) - terms
    rows, columns = (min(side, cache_bytes // (share * terms * itemsize)) for share in CACHE_SHARES)
    return rows, columns


def choose_blocks(narrow: int, wide: int, machine: Machine, around: int, copies: tuple[float, float]) -> Blocks:
    """Return the sizes with the least estimated time.

    Args:
        narrow: Rows: the side that is broadcast.
        wide: Columns: the side with lanes.
        machine: The target.
        around: Iterations of other output loops.
        copies: Cycles to copy one element of the narrow and of the wide operand.
    """
    lanes, threads = machine.lanes, machine.threads
    best: tuple[float, Blocks] | None = None
    for rows, vectors, cost in tiles(machine.registers):
        across = lanes * vectors
        for (nt, nb), (wt, wb) in itertools.product(
            cuts(narrow, rows, machine.longest[0]), cuts(wide, across, machine.longest[1])
        ):
            padded = nt * nb * rows * wt * wb * across
            copying = copies[0] / (wt * across) + copies[1] / (nt * rows)
            blocks = nb * wb * around
            waiting = (-(-blocks // threads) + UNEVEN) * threads / blocks
            cycles = padded * (cost / (2 * lanes) + copying) * waiting
            if best is None or cycles < best[0]:
                best = cycles, Blocks(rows, vectors, nt, wt, nb, wb)
    assert best is not None
    return best[1]


def copy_cycles(loads: list[Access], r: UOp, k: UOp, needs_panel: bool) -> float:
    """Return the cycles per element of copying an operand."""
    if all(a.step(r) in (0, 1) for a in loads):
        return COPY_CYCLES
    return COPY_CYCLES if not needs_panel and all(a.step(k) in (0, 1) for a in loads) else TRANSPOSE_CYCLES


def _main(kernel: Kernel, ranges: list[UOp]) -> UOp:
    return max(ranges, key=kernel.size)


@record(frozen=True)
class Product:
    """A large contraction over one loop of known size.

    Args:
        ranges: The loops i (rows: the side that is broadcast), j (columns: the side with lanes) and k.
        sizes: Their sizes.
        wide_side: Which factor depends on j.
        around: Iterations of other output loops.
    """

    ranges: tuple[UOp, UOp, UOp]
    sizes: tuple[int, int, int]
    wide_side: int
    around: int


def find_product(schedule: Schedule, kernel: Kernel, sides: Sides) -> Product | None:
    """Return the contraction if it is large and of a form for blocks, or None."""
    if len(sides.contracted) != 1 or sides.contracted[0].src[0].op is not Ops.CONST or len(kernel.ends) != 1:
        return None
    k, ranges = sides.contracted[0], [_main(kernel, side) for side in sides.ranges]
    stores = [a for a in kernel.accesses if a.is_store]
    wide_side = next((n for n in (1, 0) if all(a.step(ranges[n]) == 1 for a in stores)), None)
    if wide_side is None or len(schedule.factors()) != 2 or schedule.reads_outputs():
        return None
    i, j = ranges[1 - wide_side], ranges[wide_side]
    sizes = kernel.size(i), kernel.size(j), kernel.size(k)
    if not takes_blocks(*sizes):
        return None
    others = [a for a in schedule.axes if not a.reduce and a.range not in (i, j)]
    if any(a.kind is not AxisType.LOOP for a in schedule.axes if not a.reduce):
        return None
    around = math.prod(a.size for a in others if isinstance(a.size, int))
    return Product((i, j, k), sizes, wide_side, around)


def needs_no_copies(schedule: Schedule, kernel: Kernel, sides: Sides) -> bool:
    """Whether a contraction is read where its operands lie: it is small, and vectors can read columns as they are."""
    product = find_product(schedule, kernel, sides)
    if product is None or any(narrow_factors(schedule.factors(), c) for c in schedule.renderer.tensor_cores):
        return False
    if any(a.step(product.ranges[1]) != 1 or a.gate_ranges for a in sides.loads[product.wide_side]):
        return False
    return stays_near(*product.sizes, sides.reduce.dtype.itemsize, schedule.renderer.cache_bytes)


def optimize_blocked(schedule: Schedule, kernel: Kernel, sides: Sides) -> bool:
    """Apply blocks to a large contraction; False if it is not one."""
    product = find_product(schedule, kernel, sides)
    if product is None:
        return False
    (i, j, k), sizes, wide_side = product.ranges, product.sizes, product.wide_side
    renderer, itemsize = schedule.renderer, sides.reduce.dtype.itemsize
    lanes, longest = kernel.lanes(j, renderer.vector_bytes), longest_sides(renderer.cache_bytes, itemsize)
    machine = Machine(renderer.vector_registers, lanes, renderer.threads, longest)
    narrow, wide = sides.loads[1 - wide_side], sides.loads[wide_side]
    copies = copy_cycles(narrow, i, k, False), copy_cycles(wide, j, k, True)
    chosen = choose_blocks(*sizes[:2], machine, product.around, copies)
    cores, factors = enumerate(renderer.tensor_cores), schedule.factors()
    unit = next((n for n, c in cores if not c.is_tile and c.dims[0] == lanes and narrow_factors(factors, c)), None)
    packed = 1 if unit is None else renderer.tensor_cores[unit].packed
    words = terms_per_block(-(-sizes[2] // packed), TERMS[1] * 4 // max(4, itemsize))
    panel = any(a.step(i) == 1 for a in narrow)
    _apply(schedule, (i, j, k), chosen, words * packed, Form(lanes, wide_side, panel, unit))
    return True


@record(frozen=True)
class Form:
    """How the operands are read: lanes, the operand that has them, whether the other one is a panel too, the unit."""

    lanes: int
    wide_side: int
    panel: bool
    unit: int | None


def _apply(schedule: Schedule, ranges: tuple[UOp, UOp, UOp], blocks: Blocks, terms: int, form: Form) -> None:
    """Write the steps."""
    lanes, wide_side = form.lanes, form.wide_side
    i, j, k = ranges
    narrow = cut(schedule, i, blocks.rows, blocks.narrow_tiles, blocks.narrow_blocks)
    wide = cut(schedule, j, blocks.vectors * lanes, blocks.wide_tiles, blocks.wide_blocks)
    # Blocks outside, the loop over panels around that over rows: a panel stays in the cache for all of them.
    inside = [wide[1], narrow[1], narrow[2], wide[2]]
    first = move_to_the_end(schedule, [r for r in (narrow[0], wide[0], *inside) if r is not None], inside)
    size = k.src[0].arg
    schedule.apply(Opt(OptOps.PADTO, axis_of(schedule, k), -(-size // terms) * terms))
    if size > terms:
        schedule.apply(Opt(OptOps.BLOCK, 0, terms))
        schedule.apply(Opt(OptOps.CACHE, first))
    if form.unit is not None:
        schedule.apply(Opt(OptOps.TC, first, (form.unit, wide_side, form.panel)))
    else:
        schedule.apply(Opt(OptOps.STAGE, first, (1 - wide_side, form.panel)))
        schedule.apply(Opt(OptOps.STAGE, first, (wide_side, True)))
    rows, columns = axis_of(schedule, narrow[2]), axis_of(schedule, wide[2])
    schedule.apply(Opt(OptOps.UPCAST, rows, 0))
    schedule.apply(Opt(OptOps.VECTOR, columns, lanes))
    if blocks.vectors > 1:
        schedule.apply(Opt(OptOps.UPCAST, columns, 0))
    schedule.apply(Opt(OptOps.UNROLL, len(schedule.reduce_axes()) - 1, UNROLL))
    run_blocks_in_parallel(schedule, first)


def axis_of(schedule: Schedule, r: UOp) -> int:
    """Return the position of a current range."""
    return next(n for n, a in enumerate(schedule.axes) if a.range is r)


def cut(schedule: Schedule, r: UOp, tile: int, count: int, blocks: int) -> tuple[UOp | None, UOp | None, UOp]:
    """Cut an output loop into blocks of ``count`` tiles; returns the ranges of blocks, of tiles, and within a tile."""
    at = axis_of(schedule, r)
    schedule.apply(Opt(OptOps.PADTO, at, tile * count * blocks))
    outer = middle = None
    if blocks > 1:
        schedule.apply(Opt(OptOps.SPLIT, at, tile * count))
        outer = schedule.axes[at].range
        at += 1
    if count > 1:
        schedule.apply(Opt(OptOps.SPLIT, at, tile))
        middle = schedule.axes[at].range
        at += 1
    return outer, middle, schedule.axes[at].range


def move_to_the_end(schedule: Schedule, wanted: list[UOp], inside: Sequence[UOp | None]) -> int:
    """Move output loops to the end, in the given order; returns the position of the first one that is ``inside``."""
    outputs = [n for n, a in enumerate(schedule.axes) if not a.reduce]
    for place, r in zip(outputs[len(outputs) - len(wanted) :], wanted, strict=True):
        at = axis_of(schedule, r)
        if at != place:
            schedule.apply(Opt(OptOps.SWAP, place, at))
    return next(n for n, a in enumerate(schedule.axes) if a.range in inside)


def run_blocks_in_parallel(schedule: Schedule, first: int) -> None:
    """Join the loops over blocks and run them in parallel."""
    if not schedule.renderer.has_threads or first == 0 or not isinstance(schedule.axes[0].size, int):
        return
    while first > 1 and isinstance(schedule.axes[1].size, int):
        schedule.apply(Opt(OptOps.MERGE, 0, 1))
        first -= 1
    schedule.apply(Opt(OptOps.THREAD, 0, 0))
