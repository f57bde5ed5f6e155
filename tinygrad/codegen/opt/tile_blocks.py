"""Blocks for contractions of narrow numbers on a target with tile instructions.

In:   a Schedule of a kernel that is a large contraction, and its sides.
Out:  the Schedule with steps applied, or untouched if no tile instruction fits.
How:  as in ``blocking.py``: blocks of outputs (parallel), blocks of the reduction inside. The operand with columns, a
      block of the reduction deep, stays in the second cache; strips of the other one, as high as the tiles in
      registers, are copied when their turn comes and stay in the first cache while the columns pass by. A reduction of
      one block needs no memory for sums: tiles are stored, side by side along rows, when they are done.
Why:  a tile instruction does in 16 cycles what vectors do in more than a hundred, so reading the operands from memory
      costs as much as multiplying: blocks are as large as their sums, or the operand with columns, allow.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.blocking import (
    Product,
    axis_of,
    cut,
    cuts,
    find_product,
    move_to_the_end,
    run_blocks_in_parallel,
)
from tinygrad.codegen.opt.rebuild import narrow_factors
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.opt.tc import TILE_REGISTERS, TensorCore
from tinygrad.codegen.opt.words import WORD_BYTES
from tinygrad.record import record
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.codegen.opt.contraction import Sides

WORDS = 256  # of a block of the reduction: a strip of 32 rows is 32 KiB
ROWS, COLUMNS = 512, 512  # of a block of outputs at most: sums and the operand with columns fit 2 MiB of second cache
ONE_BLOCK = 512  # words of a reduction that is not cut into blocks
ONE_BLOCK_ROWS, ONE_BLOCK_COLUMNS = 1024, 1024  # of a block of outputs then, if ...
CACHE_SHARE = 2  # ... the operand with columns fits this part of the second cache
MOST_PADDING = 2  # times the size of a side or of the reduction
PRODUCT_CYCLES, LOAD_CYCLES = 16, 8  # of a tile
COPY_CYCLES = 0.4  # of copying one factor: what reading it from beyond the second cache costs


@record(frozen=True)
class TileBlocks:
    """Sizes: tiles in registers, groups of them per block of outputs, blocks of outputs; of rows and of columns."""

    copies: tuple[int, int]
    groups: tuple[int, int]
    blocks: tuple[int, int]

    def size(self, side: int, core: TensorCore) -> int:
        """Return the size of a side with what is padded."""
        return self.copies[side] * self.groups[side] * self.blocks[side] * core.dims[1 - side]


def copies_in_registers() -> list[tuple[int, int, float]]:
    """Return (tiles of rows, tiles of columns, cycles per product) that fit the registers."""
    found = []
    for rows, columns in itertools.product(range(1, 4), repeat=2):
        loads = rows + columns
        if rows * columns + loads <= TILE_REGISTERS:
            each = loads / (rows * columns)
            found.append((rows, columns, max(PRODUCT_CYCLES, each * LOAD_CYCLES) + each * LOAD_CYCLES / 4))
    return found


def longest_sides(words: int, cache_bytes: int) -> tuple[int, int]:
    """Return the rows and columns of a block of outputs at most, for a reduction of so many words."""
    if words > ONE_BLOCK:
        return ROWS, COLUMNS
    return ONE_BLOCK_ROWS, min(ONE_BLOCK_COLUMNS, cache_bytes // (CACHE_SHARE * WORD_BYTES * words))


def choose_tile_blocks(rows: int, columns: int, around: int, core: TensorCore, longest: tuple[int, int]) -> TileBlocks:
    """Return the sizes with the least estimated time.

    Args:
        rows: Size of the side with rows.
        columns: Size of the side with columns.
        around: Iterations of other output loops.
        core: The instruction.
        longest: Rows and columns of a block at most.
    """
    best: tuple[float, TileBlocks] | None = None
    per_product = core.dims[0] * core.dims[1] * core.dims[2]
    for row_copies, column_copies, cycles in copies_in_registers():
        height, width = row_copies * core.dims[1], column_copies * core.dims[0]
        for (rg, rb), (cg, cb) in itertools.product(cuts(rows, height, longest[0]), cuts(columns, width, longest[1])):
            padded = rg * rb * height * cg * cb * width
            copying = COPY_CYCLES / (cg * width) + COPY_CYCLES / (rg * height)
            cost = padded * (cycles / per_product + copying) * (1 + 1 / (rb * cb * around))
            if best is None or cost < best[0]:
                best = cost, TileBlocks((row_copies, column_copies), (rg, cg), (rb, cb))
    assert best is not None
    return best[1]


def terms_per_block(terms: int, core: TensorCore) -> int:
    """Return the terms of a block of the reduction: whole tiles, at least two; all, or blocks of about equal size."""
    tiles = max(2, -(-terms // core.dims[2]))
    blocks = 1 if tiles * core.words <= ONE_BLOCK else -(-tiles * core.words // WORDS)
    return max(2, -(-tiles // blocks)) * core.dims[2]


def optimize_tiled(schedule: Schedule, kernel: Kernel, sides: Sides) -> bool:
    """Apply tiles to a large contraction; False if no tile instruction fits it."""
    factors = schedule.factors()
    cores = enumerate(schedule.renderer.tensor_cores)
    unit = next((n for n, c in cores if c.is_tile and len(factors) == 2 and narrow_factors(factors, c)), None)
    product = None if unit is None else find_product(schedule, kernel, sides)
    if unit is None or product is None:
        return False
    (rows, columns, size), core = product.sizes, schedule.renderer.tensor_cores[unit]
    longest = longest_sides(-(-size // core.packed), schedule.renderer.cache_bytes)
    chosen, terms = choose_tile_blocks(rows, columns, product.around, core, longest), terms_per_block(size, core)
    padded = chosen.size(0, core), chosen.size(1, core), -(-size // terms) * terms
    if any(p > MOST_PADDING * n for p, n in zip(padded, product.sizes, strict=True)):
        return False
    _apply(schedule, product, unit, chosen, terms)
    return True


def _apply(schedule: Schedule, product: Product, unit: int, chosen: TileBlocks, terms: int) -> None:
    """Write the steps."""
    core: TensorCore = schedule.renderer.tensor_cores[unit]
    (i, j, k), size = product.ranges, product.sizes[2]
    down = _cut(schedule, i, core.dims[1], chosen, 0)
    across = _cut(schedule, j, core.dims[0], chosen, 1)
    inside = [down[1], across[1], down[2], across[2], down[3], across[3]]
    wanted = [r for r in (down[0], across[0], *inside) if r is not None]
    first = move_to_the_end(schedule, wanted, inside)
    schedule.apply(Opt(OptOps.PADTO, axis_of(schedule, k), -(-size // terms) * terms))
    if size > terms:
        schedule.apply(Opt(OptOps.BLOCK, 0, terms))
        schedule.apply(Opt(OptOps.CACHE, first))
    copies = sum(r is not None for r in (down[2], across[2]))
    schedule.apply(Opt(OptOps.TC, first, (unit, product.wide_side, copies)))
    lanes = schedule.renderer.vector_bytes // 4
    schedule.apply(Opt(OptOps.VECTOR, axis_of(schedule, across[3]), min(lanes, core.dims[0])))
    if across[2] is not None:
        schedule.apply(Opt(OptOps.UPCAST, axis_of(schedule, across[2]), 0))
    run_blocks_in_parallel(schedule, first)


def _cut(
    schedule: Schedule, r: UOp, tile: int, chosen: TileBlocks, side: int
) -> tuple[UOp | None, UOp | None, UOp | None, UOp]:
    """Cut an output loop; returns the ranges of blocks, of groups, of tiles in registers, and within a tile."""
    copies = chosen.copies[side]
    outer, middle, inner = cut(schedule, r, tile * copies, chosen.groups[side], chosen.blocks[side])
    if copies == 1:
        return outer, middle, None, inner
    at = axis_of(schedule, inner)
    schedule.apply(Opt(OptOps.SPLIT, at, tile))
    return outer, middle, schedule.axes[at].range, schedule.axes[at + 1].range
