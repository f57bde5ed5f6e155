"""The kernel that sorts rows: a network of exchanges, many rows side by side.

In:   keys of rows in memory, (rows, n), unsigned integers of at most 32 bits.
Out:  a kernel that stores the int32 indices which sort each row.
How:  a key and its position are one 64-bit number, so that all are different and the sort is stable. The numbers of
      some rows lie beside each other in scratch memory; an exchange of two columns is a few vector operations.
Why:  which columns are exchanged does not depend on the keys: n * log(n)**2 / 4 exchanges without a jump or a lookup
      take less time than fewer comparisons that have to be waited for.

Source: Batcher, "Sorting networks and their applications", AFIPS 1968, in the form in which all exchanges point the
same way: the first step of each merge reads the second run backwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.mixin.nests import Nests
from tinygrad.record import record

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

LANES: Final = 8  # rows side by side
LONGEST: Final = 4096  # columns of which the scratch memory stays in a cache

EXCHANGES: Final = 8  # of a step of the innermost loop

_POSITION_BITS: Final = 32


@record(frozen=True)
class SortKernel:
    """Maker of the kernel."""

    def __call__(self, out: UOp, keys: UOp) -> UOp:
        """Return the kernel.

        Args:
            out: (rows, n), int32.
            keys: (rows, n), n <= LONGEST; equal ones keep their order.
        """
        from tinygrad.uop.ops import UOp

        rows, n = keys.max_shape
        height, levels = min(LANES, rows), (n - 1).bit_length()
        size = 1 << levels
        kernel = Nests(ceildiv(rows, height))
        # The last block starts where a whole one fits: some rows are sorted twice.
        first_row = (kernel.group * height).minimum(rows - height)
        kernel.keep("number", size * height, dtypes.uint64)

        c, r = kernel.loop(n), kernel.loop(height)
        number = (keys.index(first_row + r, c).cast(dtypes.uint64) << _POSITION_BITS) | c.cast(dtypes.uint64)
        kernel.run(kernel.at("number", c * height + r).store(number), c, r)
        if size > n:
            c, r = kernel.loop(size - n), kernel.loop(height)
            kernel.run(kernel.at("number", (c + n) * height + r).store(dtypes.uint64.max), c, r)

        stage, part = kernel.loop(levels * (levels + 1) // 2), kernel.loop(ceildiv(size // 2, EXCHANGES))
        kernel.enter(stage)
        kernel.enter(part)
        r = kernel.loop(height)
        stores: list[UOp] = []
        for i in range(min(EXCHANGES, size // 2)):
            low, high = _exchanged((part * EXCHANGES + i).cast(dtypes.int32), stage.cast(dtypes.int32), levels)
            first, second = (kernel.at("number", column.cast(r.dtype) * height + r) for column in (low, high))
            in_order = first < second
            stores += first.store(in_order.where(first, second)), second.store(in_order.where(second, first))
        kernel.run(UOp.group(*stores), r)
        kernel.leave(part)
        kernel.leave(stage)

        c, r = kernel.loop(n), kernel.loop(height)
        position = kernel.at("number", c * height + r).cast(dtypes.uint32).cast(dtypes.int32)
        kernel.run(out.index(first_row + r, c).store(position), c, r)
        return kernel.finish("sort", rows, n)


def _exchanged(pair: UOp, stage: UOp, levels: int) -> tuple[UOp, UOp]:
    """Return the two columns of an exchange, the lower first.

    Args:
        pair: Number of the exchange, of size / 2.
        stage: Number of the stage. Stages 0; 1, 2; 3, 4, 5; ... are those of the merges into runs of 2, 4, 8, ...
        levels: log2(size).
    """
    merge = stage.const_like(0)
    for m in range(1, levels):
        merge = merge + (stage < m * (m + 1) // 2).where(0, 1)
    step = stage - merge * (merge + 1) // 2
    shift = merge - step
    distance = stage.const_like(1) << shift
    low = ((pair >> shift) << (shift + 1)) | (pair & (distance - 1))
    return low, low ^ step.eq(0).where(2 * distance - 1, distance)
