"""Tile instructions in a kernel: the step TC with a unit whose operands and sums are matrices in registers.

In:   a Schedule whose innermost output loops are ``..., copies of rows, copies of columns, rows, columns`` of a tile.
Out:  ``TileDot``, what the step decided; ``TileRebuild``, which writes the nest.
Why:  a tile is loaded, multiplied and stored as a whole, so both operands and the sums lie in scratch memory tile by
      tile: each is 256 consecutive words. In the nest such a tile is a value of 256 lanes along one VECTOR range; what
      row, column or word a lane stands for is known to the copies, to the instruction and to the reader of the sums.
      A sum starts from that of the blocks before: loading and storing a tile costs less than adding vectors. Long
      sums of floats add up blocks instead, as everywhere.

    for block of the reduction:
        left[rows of tiles, tiles, copies, row, word] = words of the operand with rows
        right[columns of tiles, tiles, copies, word, column] = words of the operand with columns
        for rows and columns of tiles:
            sums[copies, tile] += reduce(WMMA(left[copies, tile], right[copies, tile]), tiles)
    store(epilogue(sums[row, column]))
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.codegen.opt import KernelOptError, Opt
from tinygrad.codegen.opt.rebuild import Cached, Dot, Env, Rebuild, Staged, place_of
from tinygrad.codegen.opt.tc import TILE_REGISTERS, TensorCore
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.codegen.opt.scratch import ScratchSteps


LONGEST_CHAIN = 128  # tile products that are added to one float sum before blocks are summed on their own


@record(frozen=True)
class TileDot(Dot):
    """A TC step with a tile instruction.

    Args:
        words: The iterations of the reduction, in words, that a row of the first operand's tile holds.
        rows: The output loop along the rows of a tile.
        columns: The output loop along its columns.
        copies: Output loops whose iterations have tiles of their own.
    """

    words: UOp
    rows: UOp
    columns: UOp
    copies: tuple[UOp, ...]

    @property
    def first(self) -> int:
        """Which factor comes first: the one with rows."""
        return 1 - self.wide

    @property
    def is_offset(self) -> bool:
        """Whether the first factor is made unsigned; there are instructions for bytes of any signs."""
        return False


def find_tile(steps: ScratchSteps, opt: Opt, core: TensorCore, narrow: tuple[UOp, UOp]) -> TileDot:
    """Split the reduction for a tile instruction; returns the form of the nest.

    Raises:
        KernelOptError: The loops do not have the form that the instruction needs.
    """
    _, wide, copies = opt.arg
    position = opt.axis if isinstance(opt.axis, int) else 0
    inside = [a for a in steps.axes[position:] if not a.reduce]
    if not isinstance(copies, int) or not 0 <= copies <= len(inside) - 2:
        raise KernelOptError(
            f"{opt}: {copies} axes of copies, rows and columns are not among {len(inside)} output axes"
        )
    # A reduction in one block leaves the sums of a few tiles at once, which are stored right away.
    cached = steps.cached or Cached(tuple(a.range for a in inside[len(inside) - 2 - copies :]), ())
    if steps.cached and [a.range for a in inside] != list(cached.outputs):
        raise KernelOptError(f"{opt}: the sums are kept in front of another axis, or axes changed since")
    if [a.size for a in inside[-2:]] != [core.dims[1], core.dims[0]]:
        raise KernelOptError(f"{opt}: the last two output axes are no tile of {core.dims[1]} x {core.dims[0]}")
    loops = [i for i in steps.reduce_axes() if steps.axes[i].range not in cached.blocks]
    size = steps.axes[loops[-1]].size if len(loops) == 1 else 0
    factors = steps.factors()
    if not isinstance(size, int) or size % core.dims[2] or size < 2 * core.dims[2]:
        raise KernelOptError(f"{opt}: the reduction is no multiple of {core.dims[2]}, or too short; use PADTO before")
    if not all(steps.depends(f, steps.axes[loops[-1]].range) for f in factors):
        raise KernelOptError(f"{opt}: an operand does not depend on the reduction")
    repeated = inside[len(inside) - 2 - copies : -2]
    registers = [math.prod(int(a.size) for a in repeated if steps.depends(f, a.range)) for f in factors]
    if math.prod(registers) + sum(registers) > TILE_REGISTERS:
        raise KernelOptError(f"{opt}: the copies need more than {TILE_REGISTERS} tiles")
    for r, i in ((inside[-2].range, 1 - wide), (inside[-1].range, wide)):
        if not steps.depends(factors[i], r) or steps.depends(factors[1 - i], r):
            raise KernelOptError(f"{opt}: rows belong to one operand and columns to the other one")
    steps.cached = cached
    steps.around_copies.update(a.range for a in steps.axes[:position] if not a.reduce)
    packed = steps.split_inner(loops[-1], core.packed, AxisType.UNROLL)
    words = steps.split_inner(loops[-1], core.words, AxisType.REDUCE)
    rows, columns = (a.range for a in inside[-2:])
    return TileDot(packed, core, narrow, wide, words, rows, columns, tuple(a.range for a in repeated))


class TileRebuild(Rebuild):
    """Rebuilds the kernel of a Schedule with a tile instruction."""

    def layout(self, staged: Staged, lane: UOp | None, lanes: int, line: int) -> tuple[dict[UOp, int], int]:
        """Return the step of each range in the copy of an operand, and its size: tile by tile, in the order of reading.

        Panels start in different cache lines of different sets.
        """
        dot = self.dot
        own = (dot.rows, dot.words) if dot.rows in staged.outputs else (dot.words, dot.columns)
        copies = [r for r in staged.outputs if r in dot.copies]
        tiles = [r for r in staged.reduces if r is not dot.words]
        steps: dict[UOp, int] = {}
        step = 1
        for r in reversed([*tiles, *copies, *own]):
            steps[r] = step
            step *= r.src[0].arg
        step += line
        for r in reversed([r for r in staged.outputs if r not in steps]):
            steps[r] = step
            step *= r.src[0].arg
        return steps, step

    @property
    def dot(self) -> TileDot:
        """The form of the nest."""
        assert isinstance(self.s.dot, TileDot)
        return self.s.dot

    def cache(self, u: UOp, cached: Cached) -> UOp:
        """Make the nest that multiplies tiles; returns the sum."""
        dot, factors = self.dot, self.s.factors()
        sizes = {r: r.src[0].arg for r in cached.outputs}
        scratch = self.scratch(u.dtype, math.prod(sizes.values()))
        steps: dict[UOp, int] = {}
        step = 1
        for r in reversed(cached.outputs):
            steps[r] = step
            step *= sizes[r]
        fresh = {
            r: self.s.new_range(n, AxisType.UPCAST if r in dot.copies else AxisType.LOOP, frozenset())
            for r, n in sizes.items()
            if r not in (dot.rows, dot.columns)
        }
        lane = self.s.new_range(dot.core.dims[0] * dot.core.dims[1], AxisType.VECTOR, frozenset())
        groups = {self.final.get(r, r): value for r, value in fresh.items() if r not in dot.copies}
        env = Env(self.s, self.final, groups)
        operands = [self._tiles(env, factors[i], fresh, lane) for i in (dot.first, 1 - dot.first)]
        signs = dot.narrow[dot.first].dtype, dot.narrow[1 - dot.first].dtype
        place = place_of([*((value, steps[r]) for r, value in fresh.items()), (lane, 1)])
        target = self.sum_so_far(scratch, u, place)
        goes_on = bool(self.blocks) and self._is_short_chain(u)
        start = target if goes_on else UOp(Ops.CONST, u.dtype, (), 0)
        product = UOp(Ops.WMMA, u.dtype, (*operands, start), dot.core.arg("CPU", signs))
        tiles = [r for r in self.in_order(u.src[1:]) if r not in (*self.blocks, *self.in_order((dot.words, dot.range)))]
        total = UOp(Ops.REDUCE, u.dtype, (product, *tiles), u.arg)
        if self.blocks and not goes_on:
            total = UOp(u.arg[0], u.dtype, (target, total))
        done = target.store(total).end(*fresh.values(), lane).end(*self.blocks)
        result = place_of([(self.final.get(r, r), step) for r, step in steps.items()])
        return scratch.after(done).index(result)

    def _is_short_chain(self, u: UOp) -> bool:
        """Whether a sum may be one chain of tile products: it is exact, or they are few."""
        words = math.prod(r.src[0].arg for r in self.in_order(u.src[1:]) if r not in self.in_order((self.dot.range,)))
        return u.dtype.kind != "float" or words <= LONGEST_CHAIN * self.dot.core.words

    def _tiles(self, env: Env, operand: UOp, fresh: dict[UOp, UOp], lane: UOp) -> UOp:
        """Copy an operand; returns the read of one tile."""
        copy, steps = self.filled(env, operand, self.s.staged[operand])
        dot = self.dot
        own = [(fresh.get(r, env.value(r)), step) for r, step in steps.items()
               if r not in (dot.rows, dot.columns, dot.words)]  # fmt: skip
        return copy.index(place_of([*own, (lane, 1)]))
