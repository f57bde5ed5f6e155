"""Strips of columns for large contractions: the wide operand is copied once, the narrow one is read where it lies.

In:   a Schedule of a kernel that is a contraction, and its sides.
Out:  the Schedule with steps applied, or untouched if the contraction is too small or of another form.
How:  strips of columns, one register tile wide (parallel); each copies all terms of its columns to scratch memory
      (STAGE), as one panel that stays in the second cache, and then runs over the rows. A register tile takes all terms
      at once, in blocks (BLOCK) that keep chains of float additions short, and is stored when it is complete.
Why:  blocks of rows and columns (``blocking.py``) copy the wide operand once per block of rows and the narrow one once
      per block of columns, and add sums up in memory. Rows whose terms lie beside each other need no copy: they come as
      streams from whichever cache holds them, as slowly as one element per column tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.codegen.late.structure import is_memory
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.blocking import (
    ONE_BLOCK,
    STACK_BYTES,
    UNEVEN,
    Product,
    axis_of,
    copy_cycles,
    cut,
    find_product,
    move_to_the_end,
    run_blocks_in_parallel,
    tiles,
)
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.record import record
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.codegen.opt.contraction import Sides

# Of fewer rows too little is left to do per copied element, which comes from short pieces of memory rows; panels of
# more terms are too narrow for a good tile.
MIN_ROWS, MAX_TERMS = 160, 4096
PANEL_SHARE = 2  # a panel takes this part of the memory near a core at most
ROWS_BYTES = 8  # times this memory: rows of a block, which every strip reads from the third cache
BLOCK_TERMS = 64, 512  # of a block of the reduction: long enough for a loop, short enough for a chain of additions
UNROLLED = range(2, 17)  # terms that are copies in a loop
MOST_PADDING = 2  # times the columns
PAGE, WAYS = 4096, 8  # lines a multiple of this far apart share one set of the first cache, which holds so many


@record(frozen=True)
class Strips:
    """Sizes: register tile (rows x vectors), rows of a block, strips of columns."""

    rows: int
    vectors: int
    block: int
    strips: int


def reads_rows(product: Product, schedule: Schedule, sides: Sides) -> bool:
    """Whether the narrow factor is a plain load whose terms lie beside each other."""
    i, _, k = product.ranges
    narrow = 1 - product.wide_side
    loads, factor = sides.loads[narrow], schedule.factors()[narrow]
    plain = factor.op is Ops.INDEX and is_memory(factor.src[0]) and len(factor.src) == 2
    return plain and len(loads) == 1 and loads[0].step(k) == 1 and loads[0].step(i) is not None


def split_terms(terms: int) -> tuple[int, int] | None:
    """Return (terms of a block, terms that are copies) that divide ``terms`` evenly, or None.

    Rows are read without copying, so nothing can be padded with zeros.
    """
    shortest, longest = BLOCK_TERMS
    blocks = [terms] if terms <= ONE_BLOCK else [b for b in range(longest, shortest - 1, -1) if terms % b == 0]
    found = [(b, u) for b in blocks for u in UNROLLED if b % u == 0]
    return min(found, key=lambda c: (abs(c[1] - 4), -c[0]), default=None)


def choose_strips(product: Product, schedule: Schedule, lanes: int, row_bytes: int, copying: float) -> Strips | None:
    """Return the sizes with the least estimated time, or None if no panel fits.

    Args:
        product: The contraction.
        schedule: Its schedule, for the target.
        lanes: Of a vector.
        row_bytes: From one row of the narrow operand to the next.
        copying: Cycles to copy one element of the wide operand.
    """
    (rows, columns, terms), renderer = product.sizes, schedule.renderer
    itemsize = renderer.vector_bytes // lanes
    most = rows if row_bytes % PAGE else WAYS
    fewest = -(-rows * terms * itemsize // (ROWS_BYTES * renderer.cache_bytes))
    best: tuple[float, Strips] | None = None
    for height, vectors, cost in tiles(renderer.vector_registers):
        across = lanes * vectors
        panel_bytes = terms * across * itemsize
        if height > min(rows, most) or panel_bytes > min(renderer.cache_bytes // PANEL_SHARE, STACK_BYTES):
            continue
        total, strips = -(-rows // height), -(-columns // across)
        if strips * across > MOST_PADDING * columns:
            continue
        for count in range(fewest, min(total, fewest + 4 * renderer.threads) + 1):
            block = -(-total // count) * height
            blocks = -(-rows // block) * strips * product.around
            waiting = (-(-blocks // renderer.threads) + UNEVEN) * renderer.threads / blocks
            cycles = total * height * strips * across * (cost / (2 * lanes) + copying / block) * waiting
            if best is None or cycles < best[0]:
                best = cycles, Strips(height, vectors, block, strips)
    return best[1] if best else None


def optimize_strips(schedule: Schedule, kernel: Kernel, sides: Sides) -> bool:
    """Apply strips to a large contraction; False if it is none or has another form."""
    product = find_product(schedule, kernel, sides)
    if product is None or not reads_rows(product, schedule, sides):
        return False
    if product.sizes[0] < MIN_ROWS or product.sizes[2] > MAX_TERMS:
        return False
    (i, j, k), wide = product.ranges, sides.loads[product.wide_side]
    terms = split_terms(product.sizes[2])
    lanes = kernel.lanes(j, schedule.renderer.vector_bytes)
    row_bytes = abs(sides.loads[1 - product.wide_side][0].step(i) or 0) * sides.reduce.dtype.itemsize
    chosen = choose_strips(product, schedule, lanes, row_bytes, copy_cycles(wide, j, k, True))
    if terms is None or chosen is None:
        return False

    at, rows = axis_of(schedule, i), []
    for size in (chosen.block, chosen.rows):
        if size < product.sizes[0]:
            schedule.apply(Opt(OptOps.OVERLAP, at, size))
            rows.append(schedule.axes[at].range)
            at += 1
    tile = schedule.axes[at].range
    columns = cut(schedule, j, chosen.vectors * lanes, 1, chosen.strips)
    outside = [r for r in (rows[0] if len(rows) == 2 else None, columns[0]) if r is not None]
    inside = [*rows[-1:], tile, columns[2]]
    first = move_to_the_end(schedule, [*outside, *inside], inside)
    schedule.apply(Opt(OptOps.BLOCK, 0, terms[0]))
    schedule.apply(Opt(OptOps.STAGE, first, (product.wide_side, True)))
    height, across = axis_of(schedule, tile), axis_of(schedule, columns[2])
    schedule.apply(Opt(OptOps.UPCAST, height, 0))
    schedule.apply(Opt(OptOps.VECTOR, across, lanes))
    if chosen.vectors > 1:
        schedule.apply(Opt(OptOps.UPCAST, across, 0))
    schedule.apply(Opt(OptOps.UNROLL, len(schedule.reduce_axes()) - 1, terms[1]))
    run_blocks_in_parallel(schedule, first)
    return True
