"""The kernels of cumulative operations: one pass over rows, many rows at once.

In:   rows in memory, below each other (rows, n) or beside each other (batch, n, rows), and how two parts are joined.
Out:  kernels that store the same shape: each element joined with all before it in its row, or where the largest of
      them is.
How:  a tile of some rows and columns is copied to scratch memory with its rows beside each other, so that each step
      along the row is one vector operation; the results go back the same way.
Why:  one read and one write per element. Within a tile the operation starts anew, and what came before is joined last:
      errors grow with the width of a tile plus the number of tiles, not with n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.mixin.nests import Nests, equal_blocks, inside
from tinygrad.record import record

if TYPE_CHECKING:
    from tinygrad.dtype import DType
    from tinygrad.uop.ops import UOp

ROWS: Final = 16  # of a tile: lanes, and streams in which memory is read
WIDE: Final = 64  # rows of a tile that lie beside each other in memory too
COLUMNS: Final = 64  # of a tile: whole cache lines
MIN_GROUPS: Final = 16  # blocks of wide tiles that leave every thread its share
UNROLL: Final = 8  # steps along the row without a trip to memory

# Operations that can be scanned, by name.
JOIN: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": lambda before, part: before + part,
    "product": lambda before, part: before * part,
    "max": lambda before, part: before.maximum(part),
    "logaddexp": lambda before, part: before.logaddexp(part),
}


def neutral(op: str, dtype: DType) -> Any:
    """Return the value that changes nothing."""
    return {"sum": 0, "product": 1, "logaddexp": -math.inf}.get(op, dtype.min)


class _Tiles(Nests):
    """A kernel that goes through each of its blocks of rows tile by tile.

    Args:
        x: (rows, n), or (batch, n, rows).
    """

    def __init__(self, x: UOp) -> None:
        self.sizes, self.is_beside = x.max_shape, x.ndim == 3
        repeats, self.n, self.rows = self.sizes if self.is_beside else (1, *reversed(self.sizes))
        is_wide = self.is_beside and self.rows * repeats >= WIDE * MIN_GROUPS
        self.height = equal_blocks(self.rows, WIDE if is_wide else ROWS, ROWS)
        self.blocks = ceildiv(self.rows, self.height)
        super().__init__(repeats * self.blocks)
        self.first_row = (self.group % self.blocks if self.is_beside else self.group) * self.height
        if self.blocks > 1 and self.rows % self.height:
            # The last block starts where a whole one fits: rows are scanned twice, which is cheaper than masks.
            self.first_row = self.first_row.minimum(self.rows - self.height)
        # The loop over tiles, once it is entered.
        self.tile: UOp = self.group

    def at_row(self, x: UOp, r: UOp, c: UOp) -> UOp:
        """Return the element of a tensor that is (r, c) in the tile."""
        row, column = self.first_row + r, self.column(c)
        place = (self.group // self.blocks, column, row) if self.is_beside else (row, column)
        found = inside(row, self.rows, self.height if self.blocks == 1 else 1), inside(column, self.n, COLUMNS)
        gates = [g for g in found if g is not None]
        return x.index(*place, gate=gates[0] & gates[-1] if gates else None)

    def column(self, c: UOp) -> UOp:
        """Return which column of the tensor is number ``c`` of the tile."""
        return self.tile * COLUMNS + c

    def place(self, name: str, r: UOp, c: UOp) -> UOp:
        """Return element (r, c) of a tile in scratch memory."""
        return self.at(name, c * self.height + r)

    def fill(self, name: str, value: Any) -> None:
        """Set scratch memory of one element per row."""
        r = self.loop(self.height)
        self.run(self.at(name, r).store(value), r)

    def load(self, x: UOp) -> None:
        """Copy the tile from a tensor."""
        c, r = self.loop(COLUMNS), self.loop(self.height)
        self.run(self.place("tile", r, c).store(self.at_row(x, r, c)), c, r)

    def steps(self, step: Callable[[UOp, UOp], list[UOp]], last: Callable[[UOp], list[UOp]]) -> None:
        """Walk along the columns of the tile; ``step(r, c)`` and ``last(r)`` return stores."""
        from tinygrad.uop.ops import UOp

        part = self.loop(COLUMNS // UNROLL)
        self.enter(part)
        r = self.loop(self.height)
        stores = [store for i in range(UNROLL) for store in step(r, part * UNROLL + i)]
        self.run(UOp.group(*stores, *last(r)), r)
        self.leave(part)


@record(frozen=True)
class ScanKernel:
    """Maker of the kernel of an operation.

    Args:
        op: Key of ``JOIN``.
    """

    op: str

    def __call__(self, out: UOp, x: UOp) -> UOp:
        """Return the kernel.

        Args:
            out: The shape and dtype of x.
            x: (rows, n), or (batch, n, rows).
        """
        kernel, join, fill = _Tiles(x), JOIN[self.op], neutral(self.op, x.dtype)
        # What a sum of floats lost by rounding is kept, so that many tiles add no error.
        is_exact = self.op == "sum" and dtypes.is_float(x.dtype)
        kernel.keep("tile", COLUMNS * kernel.height, x.dtype)
        for name in ("now", "before", "lost"):
            kernel.keep(name, kernel.height, x.dtype)
        kernel.fill("before", fill)
        if is_exact:
            kernel.fill("lost", 0)
        kernel.tile = kernel.loop(ceildiv(kernel.n, COLUMNS))
        kernel.enter(kernel.tile)
        kernel.load(x)
        kernel.fill("now", fill)
        state: dict[UOp, UOp] = {}

        def step(r: UOp, c: UOp) -> list[UOp]:
            place = kernel.place("tile", r, c)
            state[r] = join(state.get(r, kernel.at("now", r)), place)
            return [place.store(state[r])]

        kernel.steps(step, lambda r: [kernel.at("now", r).store(state[r])])
        c, r = kernel.loop(COLUMNS), kernel.loop(kernel.height)
        part = kernel.place("tile", r, c)
        part = part + kernel.at("lost", r) if is_exact else part
        kernel.run(kernel.at_row(out, r, c).store(join(kernel.at("before", r), part)), c, r)
        self._carry(kernel, is_exact)
        kernel.leave(kernel.tile)
        return kernel.finish(f"scan_{self.op}", *kernel.sizes)

    def _carry(self, kernel: _Tiles, is_exact: bool) -> None:
        """Join the tile to what is before the next one.

        Source: Knuth, "The Art of Computer Programming", volume 2, 4.2.2, theorem B (the error of a sum is a float).
        """
        from tinygrad.uop.ops import UOp

        r = kernel.loop(kernel.height)
        before, now = kernel.at("before", r), kernel.at("now", r)
        if not is_exact:
            kernel.run(before.store(JOIN[self.op](before, now)), r)
            return
        lost = kernel.at("lost", r)
        now = now + lost
        total = before + now
        added = total - before
        error = (before - (total - added)) + (now - added)
        # An infinite or undefined sum has lost nothing.
        error = (error.eq(error)).where(error, 0)
        kernel.run(UOp.group(before.store(total), lost.store(error)), r)


@record(frozen=True)
class LargestKernel:
    """Maker of the kernel that stores where the largest element so far is."""

    def __call__(self, out: UOp, x: UOp) -> UOp:
        """Return the kernel.

        Args:
            out: The shape of x, int32: the index of the first occurrence of the largest element so far, or of the first
                NaN.
            x: (rows, n), or (batch, n, rows).
        """
        kernel = _Tiles(x)
        for name, size, dtype in (
            ("tile", COLUMNS, x.dtype),
            ("index", COLUMNS, dtypes.int32),
            ("best", 1, x.dtype),
            ("where", 1, dtypes.int32),
        ):
            kernel.keep(name, size * kernel.height, dtype)
        kernel.fill("best", x.dtype.min)
        kernel.fill("where", 0)
        kernel.tile = kernel.loop(ceildiv(kernel.n, COLUMNS))
        kernel.enter(kernel.tile)
        kernel.load(x)
        state: dict[UOp, tuple[UOp, UOp]] = {}

        def step(r: UOp, c: UOp) -> list[UOp]:
            best, where = state.get(r, (kernel.at("best", r), kernel.at("where", r)))
            value = kernel.place("tile", r, c)
            larger = best < value
            if dtypes.is_float(x.dtype):
                larger = larger | (value.ne(value) & best.eq(best))
            where = larger.where(kernel.column(c).cast(dtypes.int32), where)
            state[r] = larger.where(value, best), where
            return [kernel.place("index", r, c).store(where)]

        kernel.steps(
            step, lambda r: [kernel.at(name, r).store(s) for name, s in zip(("best", "where"), state[r], strict=True)]
        )
        c, r = kernel.loop(COLUMNS), kernel.loop(kernel.height)
        kernel.run(kernel.at_row(out, r, c).store(kernel.place("index", r, c)), c, r)
        kernel.leave(kernel.tile)
        return kernel.finish("scan_largest", *kernel.sizes)
