"""Attention whose scores are never in memory as a whole: softmax(q k^T + mask) v over blocks of queries and of keys.

In:   queries (..., L, d), keys (..., S, d), values (..., S, dv) and a mask (..., L, S), whose leading dims broadcast.
Out:  a FUNCTION of one kernel with a gradient of its own: the result (..., L, dv).
How:  a block of scores lies in scratch memory. The largest score and the sum of each row run along with the blocks of
      keys, and what is summed so far is scaled down whenever a larger score turns up. Scores are stored with queries
      beside each other: row maxima and sums are then elementwise, and keys and values are read as they lie in memory.
Why:  memory grows with L + S instead of L * S, and blocks of keys that a causal mask hides are never looked at.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, arXiv:1805.02867; Dao, Fu, Ermon,
Rudra and Re, "FlashAttention", 2022, arXiv:2205.14135.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.mixin.nests import Nests, equal_blocks, has_fast_scratch, inside
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

QUERIES = 64  # of a block: a few vectors, so that every key and value that is loaded is used by many of them
KEYS = 64  # of a block: small enough to skip most of what a causal mask hides, and for the first cache
LANES = 16  # queries of a block are a multiple of it
# Below these sizes the scores stay in the caches anyway.
MIN_QUERIES, MIN_SCORES = 16, 1 << 12
MAX_DEPTH = 512  # of keys and values: blocks of them are in scratch memory
_LN2 = math.log(2)


def is_worth_blocks(q: UOp, k: UOp, v: UOp, mask: UOp | None = None) -> bool:
    """Return whether ``attention`` takes these arguments, and is better than products with all scores."""
    args = (q, k, v) if mask is None else (q, k, v, mask)
    if any(x.ndim < 2 or not all_int(x.shape) or 0 in x.shape for x in args):
        return False
    length, count, depth, width = q.max_shape[-2], *k.max_shape[-2:], v.max_shape[-1]
    lead = _broadcast([x.max_shape[:-2] for x in args])
    fits = q.max_shape[-1] == depth and v.max_shape[-2] == count and lead is not None
    if mask is not None:
        fits = fits and all(n in (1, size) for n, size in zip(mask.max_shape[-2:], (length, count), strict=True))
    is_large = length >= MIN_QUERIES and length * count >= MIN_SCORES and max(depth, width) <= MAX_DEPTH
    return fits and is_large and has_fast_scratch(q.device)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape to which all broadcast, or None."""
    longest = max(map(len, shapes))
    dims = zip(*((1,) * (longest - len(shape)) + shape for shape in shapes), strict=True)
    sizes = [set(dim) - {1} for dim in dims]
    return None if any(len(s) > 1 for s in sizes) else tuple(max(s, default=1) for s in sizes)


def share_heads(q: UOp, *others: UOp) -> list[UOp]:
    """Give each head of keys and values (dim -3) its group of query heads: a dim more, along which they broadcast."""
    groups = others[0].shape[-3]
    found = []
    for x in (q, *others):
        if x.ndim > 2:
            split = (1, 1) if x.shape[-3] == 1 else (groups, x.shape[-3] // groups)
            x = x.reshape((*x.shape[:-3], *split, *x.shape[-2:]))
        found.append(x)
    return found


def attention(q: UOp, k: UOp, v: UOp, mask: UOp | None = None, *, causal: bool = False) -> UOp:
    """Return softmax(q @ k.T / sqrt(d) + mask) @ v in the dtype of the arguments; rows without keys are 0.

    Args:
        q: (..., L, d), float32 or float64.
        k: (..., S, d), same dtype; leading dims broadcast with those of q.
        v: (..., S, dv), same dtype.
        mask: (..., L, S) or broadcast to it: bool, True where a key counts, or numbers that are added.
        causal: Whether query i sees only keys 0 to i.
    """
    from tinygrad.uop.ops import UOp

    args = (q, k, v) if mask is None else (q, k, v, mask)
    body = _body(*(arg.param_like(slot) for slot, arg in enumerate(args)), causal=causal)
    return UOp.maketuple(body).call(*args, grad_fxn=AttentionGradient(causal), name="attention").gettuple(0)


def _body(q: UOp, k: UOp, v: UOp, mask: UOp | None = None, *, causal: bool) -> UOp:
    from tinygrad.device import canonicalize_device
    from tinygrad.uop.ops import UOp

    args = [q.contiguous(), k.contiguous(), v.contiguous()]
    lead = _broadcast([x.max_shape[:-2] for x in (*args, *(() if mask is None else (mask,)))])
    assert lead is not None
    if mask is not None:
        # The queries of a block lie beside each other in the scores, so they should in the mask.
        args.append(mask.transpose(-2, -1).contiguous())
    device = canonicalize_device(q.device)
    assert isinstance(device, str)
    size = (*lead, q.max_shape[-2], v.max_shape[-1])
    out = UOp.new_buffer(device, prod(size), q.dtype).reshape(size)
    return UOp.custom_kernel(out, *args, fxn=_Kernel(causal))[0]


@dataclass(frozen=True)
class AttentionGradient:
    """Gradient function: the weights are computed again, from the scores of all keys.

    Args:
        causal: As for ``attention``.
    """

    causal: bool

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp | None, ...]:
        """Return the gradients of queries, keys, values and mask."""
        q, k, v, *masks = call.src[1:]
        scale = 1.0 / math.sqrt(q.max_shape[-1])
        scores = q.matmul(k.transpose(-2, -1)) * scale
        hidden: Any = None
        if self.causal:
            hidden = scores.const_like(True, dtypes.bool).tril()
        for mask in masks:
            if mask.dtype == dtypes.bool:
                hidden = mask
            else:
                scores = scores + mask
        # Keeping the logarithms of the sums of the first pass would not save this: the scores are rounded in another
        # order there, so that weights would be wrong by a tenth where scores are a million.
        weights = _weights(scores if hidden is None else hidden.where(scores, -math.inf))
        direct = grad.matmul(v.transpose(-2, -1))
        slope = weights * (direct - (weights * direct).sum(axis=-1, keepdim=True))
        gradients: list[UOp | None] = [
            _summed_to(slope.matmul(k) * scale, q),
            _summed_to(slope.transpose(-2, -1).matmul(q) * scale, k),
            _summed_to(weights.transpose(-2, -1).matmul(grad), v),
        ]
        return (*gradients, *(None if m.dtype == dtypes.bool else _summed_to(slope, m) for m in masks))


def _weights(scores: UOp) -> UOp:
    """Return the softmax of each row, zeros for a row that is -inf throughout."""
    largest = scores.max(axis=-1, keepdim=True).detach()
    powers = (scores - (largest > -math.inf).where(largest, 0.0)).exp()
    total = powers.sum(axis=-1, keepdim=True)
    return powers / (total > 0).where(total, 1.0)


def _summed_to(grad: UOp, like: UOp) -> UOp:
    """Sum a gradient over the dims along which ``like`` was broadcast."""
    shape = (1,) * (grad.ndim - like.ndim) + tuple(like.max_shape)
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and grad.max_shape[i] != 1)
    return (grad.sum(axis=axes, keepdim=True) if axes else grad).reshape(like.shape)


@dataclass(frozen=True)
class _Kernel:
    """Maker of the kernel: one loop over blocks of queries, in parallel; inside, one over blocks of keys.

    Args:
        causal: As for ``attention``.
    """

    causal: bool

    def __call__(self, out: UOp, q: UOp, k: UOp, v: UOp, mask: UOp | None = None) -> UOp:
        """Return the kernel.

        Args:
            out: (..., L, dv).
            q: (..., L, d).
            k: (..., S, d).
            v: (..., S, dv).
            mask: (..., S, L) or with sizes of 1.
        """
        block = _Block(out, q, k, v)
        block.start(q)
        ends = ceildiv(block.count, block.keys)
        seen = ((block.first + (block.queries + block.keys - 1)) // block.keys).minimum(ends) if self.causal else ends
        number = block.loop(seen)
        block.enter(number)
        block.score(k, mask, number * block.keys, self.causal)
        block.weigh()
        block.add(v, number * block.keys)
        block.leave(number)
        block.store(out)
        return block.finish("attention", *block.lead, block.length, block.count, block.depth)


class _Block(Nests):
    """What is done for one block of queries: nests of loops, one after the other, on scratch memory.

    Args:
        out: The result (..., L, dv).
        q: Queries.
        k: Keys.
        v: Values.
    """

    def __init__(self, out: UOp, q: UOp, k: UOp, v: UOp) -> None:
        *self.lead, self.length, self.width = out.max_shape
        self.count, self.depth = k.max_shape[-2:]
        self.queries, self.keys = equal_blocks(self.length, QUERIES, LANES), equal_blocks(self.count, KEYS, 8)
        blocks = ceildiv(self.length, self.queries)
        super().__init__(prod(self.lead) * blocks)
        self.head, self.first = self.group // blocks, (self.group % blocks) * self.queries
        rows = {"queries": self.depth, "scores": self.keys, "sums": self.width}
        rows |= dict.fromkeys(("largest", "shift", "scale", "total"), 1)
        for name, count in rows.items():
            self.keep(name, count * self.queries, q.dtype)

    def of(self, name: str, i: UOp, row: UOp | None = None) -> UOp:
        """Return what scratch memory holds for query ``i``."""
        return self.at(name, i if row is None else row * self.queries + i)

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

    def key(self, start: UOp, j: UOp) -> tuple[UOp, UOp | None]:
        """Return which key is number ``j`` of a block, and the condition that there is one."""
        at = start + j
        return at, inside(at, self.count, self.keys)

    # ---- the nests

    def start(self, q: UOp) -> None:
        """Copy the queries, transposed and in units in which exp2 is exp; clear the sums."""
        c, i = self.loop(self.depth), self.loop(self.queries)
        at, exists = self.query(i)
        query = q.index(*self.heads(q), at, c, gate=exists)
        self.run(self.of("queries", i, c).store(query * (1.0 / math.sqrt(self.depth) / _LN2)), c, i)
        i = self.loop(self.queries)
        self.run(self.of("largest", i).store(-math.inf).group(self.of("total", i).store(0.0)), i)
        d, i = self.loop(self.width), self.loop(self.queries)
        self.run(self.of("sums", i, d).store(0.0), d, i)

    def score(self, k: UOp, mask: UOp | None, start: UOp, causal: bool) -> None:
        """Store the scores of a block of keys."""
        j, i, c = self.loop(self.keys), self.loop(self.queries), self.loop(self.depth, AxisType.REDUCE)
        (key, is_key), (query, is_query) = self.key(start, j), self.query(i)
        product = self.of("queries", i, c) * k.index(*self.heads(k), key, c, gate=is_key)
        score = product.reduce(c, arg=Ops.ADD)
        counts = [] if is_key is None else [is_key]
        if causal:
            counts.append(key < query + 1)
        if mask is not None:
            places = [x if n > 1 else x * 0 for x, n in zip((key, query), mask.max_shape[-2:], strict=True)]
            given = mask.index(*self.heads(mask), *places, gate=_all(is_key, is_query))
            if mask.dtype == dtypes.bool:
                counts.append(given)
            else:
                score = score + given * (1 / _LN2)
        seen = _all(*counts)
        self.run(self.of("scores", i, j).store(score if seen is None else seen.where(score, -math.inf)), j, i)

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

    def add(self, v: UOp, start: UOp) -> None:
        """Add the weighted values of a block of keys to the sums."""
        d, i, j = self.loop(self.width), self.loop(self.queries), self.loop(self.keys, AxisType.REDUCE)
        key, is_key = self.key(start, j)
        product = self.of("scores", i, j) * v.index(*self.heads(v), key, d, gate=is_key)
        sums = self.of("sums", i, d)
        self.run(sums.store(sums * self.of("scale", i) + product.reduce(j, arg=Ops.ADD)), d, i)

    def store(self, out: UOp) -> None:
        """Store the results; a row without keys is 0."""
        i, d = self.loop(self.queries), self.loop(self.width)
        query, is_query = self.query(i)
        total = self.of("total", i)
        result = self.of("sums", i, d) / total.eq(0).where(1.0, total)
        self.run(out.index(*self.heads(out), query, d, gate=is_query).store(result), i, d)


def _all(*conditions: UOp | None) -> UOp | None:
    """Return the conjunction of those conditions that there are."""
    found = [c for c in conditions if c is not None]
    return functools.reduce(lambda a, b: a & b, found) if found else None
