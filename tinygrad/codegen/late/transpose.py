"""Transposes in registers: copies that lie beside each other in memory and lanes that lie apart change places.

In:   pieces of rows in registers (after loads), or columns of lanes (before stores).
Out:  columns of lanes, or pieces of rows, made by shuffles of two vectors.
Ops:  adds STACK of lanes of vectors.
Why:  a row of p elements is one access instead of p. The shuffles stay inside of blocks of 16 bytes, which is one
      instruction on every target; what has to cross blocks does so on its way from or to memory.

How:  an element has a row and a column. The rows are the lanes of a column: n of them, in blocks of b lanes. There are
      p columns, a power of two up to b, so that a block holds pieces of b / p rows. In vector v, element w of block k
      is (row k*b + v*b/p + w // p, column w % p). Written in bits, the place (v, w) inside a block is
      (row, column), and it has to become (column, row), which is a rotation: each round rotates it by one bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tinygrad.codegen.late.values import Values
    from tinygrad.dtype import DType
    from tinygrad.uop.ops import UOp

BLOCK_BYTES = 16


def block_lanes(dtype: DType, lanes: int) -> int:
    """Return the lanes of a block: also the longest piece of a row."""
    return min(lanes, max(1, BLOCK_BYTES // dtype.itemsize))


def runs(places: list[int], longest: int) -> list[tuple[int, int]]:
    """Cut sorted places into runs of neighbours as (first, count), count a power of two up to ``longest``."""
    found = []
    start = 0
    while start < len(places):
        count = 1
        while start + count < len(places) and count < longest and places[start + count] == places[start] + count:
            count += 1
        count = 1 << count.bit_length() - 1
        found.append((start, count))
        start += count
    return found


def columns_of(values: Values, pieces: Sequence[UOp], count: int, block: int) -> list[UOp]:
    """Return ``count`` columns, whose lanes are the rows.

    Args:
        values: Makes the nodes.
        pieces: One per row: the ``count`` elements of that row.
        count: Columns, a power of two from 2 up to ``block``.
        block: Lanes of a block.
    """
    n = len(pieces)
    numbers = tuple(range(n))
    vectors = [
        values.shuffle(tuple(pieces[_row(v, start, count, block)] for start in range(0, n, count)), numbers)
        for v in range(count)
    ]
    return _rotated(values, vectors, block, block.bit_length() - 1)


def pieces_of(values: Values, columns: list[UOp], block: int) -> list[UOp]:
    """Return one vector per row, which holds its elements of all columns; the inverse of ``columns_of``."""
    n, count = values.width[columns[0]], len(columns)
    vectors = _rotated(values, columns, block, count.bit_length() - 1)
    pieces: dict[int, UOp] = {}
    for v, vector in enumerate(vectors):
        for start in range(0, n, count):
            piece = vector if count == n else values.shuffle((vector,), tuple(range(start, start + count)))
            pieces[_row(v, start, count, block)] = piece
    return [pieces[row] for row in range(n)]


def _row(v: int, lane: int, count: int, block: int) -> int:
    """Return the row of which vector ``v`` holds an element in a lane, when blocks hold pieces of rows."""
    return lane // block * block + v * (block // count) + lane % block // count


def _rotated(values: Values, vectors: list[UOp], block: int, rounds: int) -> list[UOp]:
    """Move each element from place (v, w) of its block to the place whose number has its bits rotated to the left."""
    n, half = values.width[vectors[0]], len(vectors) // 2
    # The lower and the upper half of each block of two vectors, taken in turns.
    lower = tuple(e % 2 * n + e - e % block + e % block // 2 for e in range(n))
    upper = tuple(e + block // 2 for e in lower)
    for _ in range(rounds):
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        vectors = [values.shuffle(pair, lanes) for pair in pairs for lanes in (lower, upper)]
    return vectors
