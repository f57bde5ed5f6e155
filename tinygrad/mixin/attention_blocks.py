"""The kernel of attention: loops over blocks of queries and of keys, and what its gradient shares with them.

In:   queries (..., L, d), keys (..., S, d), values (..., S, dv) and a mask (..., S, L) in memory.
Out:  the result (..., L, dv), and of each row of scores the largest one and the factor that makes weights of powers.
How:  a block of scores lies in scratch memory. The largest score and the sum of each row run along with the blocks of
      keys, and what is summed so far is scaled down whenever a larger score turns up. Scores are stored with queries
      beside each other: row maxima and sums are then elementwise, and keys and values are read as they lie in memory.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, arXiv:1805.02867; Dao, Fu, Ermon,
Rudra and Re, "FlashAttention", 2022, arXiv:2205.14135.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import ceildiv, prod
from tinygrad.mixin.nests import Nests, equal_blocks, inside
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

QUERIES = 64  # of a block: a few vectors, so that every key and value that is loaded is used by many of them
KEYS = 64  # of a block: small enough to skip most of what a causal mask hides, and for the first cache
LANES = 16  # queries of a block are a multiple of it
# With fewer blocks of queries in all heads, blocks are half as long: they are what runs in parallel.
FEW_BLOCKS = 4
LN2 = math.log(2)


@record(frozen=True)
class AttentionKernel:
    """Maker of the kernel: one loop over blocks of queries, in parallel; inside, one over blocks of keys.

    Args:
        causal: Whether query i sees only keys 0 to i.
    """

    causal: bool

    def __call__(self, out: UOp, stats: UOp, q: UOp, k: UOp, v: UOp, mask: UOp | None = None) -> UOp:
        """Return the kernel.

        Args:
            out: (..., L, dv).
            stats: (heads, 2, L): the largest score of each row in units of ln 2, 0 for a row without keys; and one over
                the sum of the powers relative to it, or 0.
            q: (..., L, d).
            k: (..., S, d).
            v: (..., S, dv).
            mask: (..., S, L) or with sizes of 1.
        """
        block = _Forward(out, q, k, v)
        block.start(q)
        number = block.loop(block.blocks_of_keys(self.causal))
        block.enter(number)
        block.score(k, mask, number, self.causal)
        block.weigh()
        block.add(v, number)
        block.leave(number)
        block.store(out, stats)
        return block.finish("attention", *block.lead, block.length, block.count, block.depth)


class Blocks(Nests):
    """Blocks of queries and keys in scratch memory, and the scores between them.

    Args:
        groups: Iterations of the outermost loop.
        lead: The leading dims of the scores.
        q: Queries.
        k: Keys.
        dtype: Of scratch memory.
        sizes: Queries and keys of a block.

    Attributes:
        head: The leading dims as one number.
        first: The first query of the block.
    """

    head: UOp
    first: UOp

    def __init__(self, groups: int, lead: Sequence[int], q: UOp, k: UOp, dtype: DType, sizes: tuple[int, int]) -> None:
        super().__init__(groups)
        self.lead, self.dtype = tuple(lead), dtype
        self.length, self.depth = q.max_shape[-2:]
        self.count = k.max_shape[-2]
        self.queries, self.keys = sizes

    def keep_rows(self, **rows: int) -> None:
        """Declare scratch memory: so many rows of a block of queries."""
        for name, count in rows.items():
            self.keep(name, count * self.queries, self.dtype)

    def of(self, name: str, i: UOp, row: UOp | None = None) -> UOp:
        """Return what scratch memory holds for query ``i``."""
        return self.at(name, i if row is None else row * self.queries + i)

    def blocks_of_keys(self, causal: bool) -> UOp | int:
        """Return how many blocks of keys the block of queries sees."""
        ends: int = ceildiv(self.count, self.keys)
        if not causal:
            return ends
        seen: UOp = ((self.first + (self.queries + self.keys - 1)) // self.keys).minimum(ends)
        return seen

    # ---- places in the tensors

    def heads(self, x: UOp) -> list[UOp]:
        """Return the indices of the leading dims of an argument; those of the result are ``head`` as one number."""
        own, found, stride = x.max_shape[:-2], [], 1
        for n, size in itertools.zip_longest(reversed(own), reversed(self.lead)):
            if n is not None:
                found.append((self.head // stride) % size if n > 1 else self.head * 0)
            stride *= size
        return found[::-1]

    def query(self, i: UOp) -> tuple[UOp, UOp | None]:
        """Return which query is number ``i`` of the block, and the condition that there is one."""
        at = self.first + i
        return at, inside(at, self.length, self.queries)

    def key(self, number: UOp, j: UOp) -> tuple[UOp, UOp | None]:
        """Return which key is number ``j`` of a block, and the condition that no block before has it.

        The last block ends with the last key, so that what it reads is there without a test for each element.
        """
        if self.count % self.keys == 0:
            return number * self.keys + j, None
        at = (number * self.keys).minimum(self.count - self.keys) + j
        return at, at >= number * self.keys

    # ---- the nests

    def transpose(self, name: str, x: UOp, scale: float = 1.0) -> None:
        """Copy a block of rows of (..., L, n) to scratch memory, transposed and scaled."""
        c, i = self.loop(x.max_shape[-1]), self.loop(self.queries)
        at, exists = self.query(i)
        row = x.index(*self.heads(x), at, c, gate=exists)
        self.run(self.of(name, i, c).store(row if scale == 1.0 else row * scale), c, i)

    def transpose_queries(self, q: UOp) -> None:
        """Copy the queries in units in which exp2 is exp."""
        self.transpose("queries", q, 1.0 / math.sqrt(self.depth) / LN2)

    def clear(self, name: str, rows: int) -> None:
        """Set scratch memory to 0."""
        d, i = self.loop(rows), self.loop(self.queries)
        self.run(self.of(name, i, d).store(0.0), d, i)

    def score(self, k: UOp, mask: UOp | None, number: UOp, causal: bool) -> None:
        """Store the scores of a block of keys, -inf for those that do not count."""
        j, i, c = self.loop(self.keys), self.loop(self.queries), self.loop(self.depth, AxisType.REDUCE)
        (key, is_new), (query, is_query) = self.key(number, j), self.query(i)
        product = self.of("queries", i, c) * k.index(*self.heads(k), key, c)
        score = product.reduce(c, arg=Ops.ADD)
        counts = [] if is_new is None else [is_new]
        if causal:
            counts.append(key < query + 1)
        if mask is not None:
            places = [x if n > 1 else x * 0 for x, n in zip((key, query), mask.max_shape[-2:], strict=True)]
            given = mask.index(*self.heads(mask), *places, gate=is_query)
            if mask.dtype == dtypes.bool:
                counts.append(given)
            else:
                score = score + given * (1 / LN2)
        seen = both(*counts)
        self.run(self.of("scores", i, j).store(score if seen is None else seen.where(score, -math.inf)), j, i)


class _Forward(Blocks):
    """What is done for one block of queries: nests of loops, one after the other, on scratch memory.

    Args:
        out: The result (..., L, dv).
        q: Queries.
        k: Keys.
        v: Values.
    """

    def __init__(self, out: UOp, q: UOp, k: UOp, v: UOp) -> None:
        lead, self.width = out.max_shape[:-2], v.max_shape[-1]
        sizes = block_sizes(q.max_shape[-2], k.max_shape[-2])
        if prod(lead) * ceildiv(q.max_shape[-2], sizes[0]) < FEW_BLOCKS:
            sizes = equal_blocks(q.max_shape[-2], QUERIES // 2, LANES), sizes[1]
        blocks = ceildiv(q.max_shape[-2], sizes[0])
        super().__init__(prod(lead) * blocks, lead, q, k, q.dtype, sizes)
        self.head, self.first = self.group // blocks, (self.group % blocks) * self.queries
        self.keep_rows(queries=self.depth, scores=self.keys, sums=self.width)
        self.keep_rows(largest=1, shift=1, scale=1, total=1)

    def start(self, q: UOp) -> None:
        """Copy the queries, and clear the sums."""
        self.transpose_queries(q)
        i = self.loop(self.queries)
        self.run(self.of("largest", i).store(-math.inf).group(self.of("total", i).store(0.0)), i)
        self.clear("sums", self.width)

    def weigh(self) -> None:
        """Turn scores into weights relative to the largest score so far; note how the sums before are scaled."""
        i, j = self.loop(self.queries), self.loop(self.keys, AxisType.REDUCE)
        best = self.of("scores", i, j).reduce(j, arg=Ops.MAX).maximum(self.of("largest", i))
        self.run(self.of("shift", i).store(best), i)
        i = self.loop(self.queries)
        best = self.of("shift", i)
        # Where there is no score yet, -inf is shifted by 0: -inf - -inf is NaN.
        shift = best.eq(-math.inf).where(0.0, best)
        scale = (self.of("largest", i) - shift).exp2()
        updates = {"scale": scale, "largest": best, "shift": shift}
        stores = [self.of(name, i).store(value) for name, value in updates.items()]
        self.run(stores[0].group(*stores[1:]), i)
        j, i = self.loop(self.keys), self.loop(self.queries)
        score = self.of("scores", i, j)
        self.run(score.store((score - self.of("shift", i)).exp2()), j, i)
        i, j = self.loop(self.queries), self.loop(self.keys, AxisType.REDUCE)
        total = self.of("total", i)
        self.run(total.store(total * self.of("scale", i) + self.of("scores", i, j).reduce(j, arg=Ops.ADD)), i)

    def add(self, v: UOp, number: UOp) -> None:
        """Add the weighted values of a block of keys to the sums."""
        d, i, j = self.loop(self.width), self.loop(self.queries), self.loop(self.keys, AxisType.REDUCE)
        key, is_new = self.key(number, j)
        product = self.of("scores", i, j) * v.index(*self.heads(v), key, d, gate=is_new)
        sums = self.of("sums", i, d)
        self.run(sums.store(sums * self.of("scale", i) + product.reduce(j, arg=Ops.ADD)), d, i)

    def store(self, out: UOp, stats: UOp) -> None:
        """Store the results, and what gives the weights again; a row without keys is 0."""
        i, d = self.loop(self.queries), self.loop(self.width)
        query, is_query = self.query(i)
        total = self.of("total", i)
        result = self.of("sums", i, d) / total.eq(0).where(1.0, total)
        self.run(out.index(*self.heads(out), query, d, gate=is_query).store(result), i, d)
        i = self.loop(self.queries)
        query, is_query = self.query(i)
        total = self.of("total", i)
        factor = total.eq(0).where(0.0, total.eq(0).where(1.0, total).reciprocal())
        places = [stats.index(self.head, self.head * 0 + n, query, gate=is_query) for n in range(2)]
        self.run(places[0].store(self.of("shift", i)).group(places[1].store(factor)), i)


def block_sizes(length: int, count: int) -> tuple[int, int]:
    """Return how many queries and keys a block has; there are as many keys at least."""
    return equal_blocks(length, QUERIES, LANES), min(count, equal_blocks(count, KEYS, 8))


def both(*conditions: UOp | None) -> UOp | None:
    """Return the conjunction of those conditions that there are."""
    found = [c for c in conditions if c is not None]
    return functools.reduce(lambda a, b: a & b, found) if found else None
