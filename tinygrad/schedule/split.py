"""Split long reductions with few results into two: partial results in parallel, then their combination.

In:   one tensor-level REDUCE.
Out:  the same value; where it pays, REDUCE(REDUCE(x with one axis split in two)).
Why:  a kernel runs in parallel over its results, so a sum to one number would run on one core; and a contraction over
      hundreds of thousands of terms with a small result (a convolution's weight gradient) would walk all of both
      operands once per tile of results, while a block of terms fits the cache.
The split depends on sizes only, never on the number of threads, so results do not either.
"""

from __future__ import annotations

from typing import Any

from tinygrad.helpers import getenv, prod
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

MIN_REDUCE = 32768  # shorter reductions stay whole, unless they are contractions whose operands are large
MIN_PRODUCTS = 1024  # terms of a contraction that are worth writing and reading partial results
MIN_PARALLEL = 64  # enough results to keep the cores busy
CACHE_BYTES = 512 * 1024  # operands of one block of terms should fit this
LANES = 16  # floats in the widest vectors; narrower ones divide it
LARGE_BYTES = 4 * 1024 * 1024  # operands that do not stay in the caches of one core
MAX_PARTS = 256
# From these sizes on the kernel of a matmul copies blocks of its operands: multiply-adds, terms, and rows and columns
# of the result.
BLOCK_WORK, MIN_TERMS, MIN_SIDE = 1 << 24, 96, 48


def contraction_operands(x: UOp) -> tuple[UOp, UOp] | None:
    """Return the two factors if ``x`` is a product (seen through casts and reshapes of unit axes), else None."""
    while x.op is Ops.CAST:
        x = x.src[0]
    return (x.src[0], x.src[1]) if x.op is Ops.MUL and len(x.src) == 2 else None


def is_contraction(reduce: UOp) -> bool:
    """Return whether a REDUCE sums products of factors that are smaller than the product: a matmul or convolution."""
    if reduce.arg[0] is not Ops.ADD:
        return False
    factors = contraction_operands(reduce.src[0])
    if factors is None:
        return False
    full = prod(reduce.src[0].max_shape)
    return all(_footprint(f) * 4 <= full for f in factors)


def takes_blocks(rows: int, columns: int, terms: int) -> bool:
    """Return whether the kernel of a matmul of this size copies blocks of its operands in the order it reads them."""
    return rows * columns * terms >= BLOCK_WORK and terms >= MIN_TERMS and min(rows, columns) >= MIN_SIDE


def stays_near(rows: int, columns: int, terms: int, itemsize: int, cache_bytes: int) -> bool:
    """Return whether a matmul is so small that copying blocks costs more than reading its operands where they lie.

    That is for an operand with columns that vectors can read as it is, and that stays in the memory near a core.
    """
    return 2 * rows * columns * terms < 3 * BLOCK_WORK and 2 * columns * terms * itemsize <= cache_bytes


def lane_fill(size: int) -> float:
    """Return the share of vector lanes that a loop of this length uses."""
    return size / (-(-size // LANES) * LANES)


def widens_late(reduce: UOp, operand: UOp) -> bool:
    """Return whether an operand of a contraction is a cast to a wider dtype that is left to the kernel.

    A large matmul copies blocks of its operands anyway, so it reads the narrow numbers and converts them on the way, or
    multiplies them as they are.
    """
    if operand.op is not Ops.CAST or operand.src[0].dtype.itemsize >= operand.dtype.itemsize:
        return False
    factors = contraction_operands(reduce.src[0])
    if factors is None or len(reduce.arg[1]) != 1 or not all(isinstance(s, int) for s in reduce.src[0].shape):
        return False
    full, terms = prod(reduce.src[0].shape), reduce.src[0].shape[reduce.arg[1][0]]
    return full >= BLOCK_WORK and terms >= MIN_TERMS and all(_footprint(f) * MIN_SIDE <= full for f in factors)


def _footprint(u: UOp) -> int:
    # Elements under a chain of views: an expanded operand occupies only its source.
    smallest = prod(u.max_shape)
    while u.op in GroupOp.Movement or u.op is Ops.CAST:
        u = u.src[0]
        smallest = min(smallest, prod(u.max_shape))
    return smallest


def _parts(reduce: UOp, terms: int, results: int) -> int:
    factors = contraction_operands(reduce.src[0]) if is_contraction(reduce) else None
    if factors is None:
        return 1 if results >= MIN_PARALLEL or terms < MIN_REDUCE else min(MAX_PARTS, max(1, terms // 4096))
    nbytes = sum(_footprint(f) for f in factors) * reduce.dtype.itemsize
    # With one axis this is a matmul, whose kernel copies blocks of its operands if it is large.
    if terms < MIN_REDUCE and (len(reduce.arg[1]) == 1 or nbytes < LARGE_BYTES):
        return 1
    parts = min(MAX_PARTS, max(1, nbytes // CACHE_BYTES), terms // MIN_PRODUCTS)
    # Partial results are written and read once each: keep them from outgrowing the operands.
    while parts > 1 and results * parts * reduce.dtype.itemsize > 2 * nbytes:
        parts //= 2
    return parts


def split_reduce(reduce: UOp) -> UOp:
    """Return the reduction, split in two where ``_parts`` says so and a divisor of some axis allows it."""
    if not getenv("SPLIT_REDUCEOP", 1) or not all(isinstance(s, int) for s in reduce.src[0].shape):
        return reduce
    op, axes = reduce.arg
    shape = reduce.src[0].shape
    terms = prod(tuple(shape[a] for a in axes))
    results = prod(reduce.shape)
    if terms < 2 * MIN_PRODUCTS or results == 0:
        return reduce
    want = _parts(reduce, terms, results)
    if want < 2:
        return reduce
    axis, parts = max(
        ((a, max(d for d in range(1, want + 1) if shape[a] % d == 0)) for a in axes), key=lambda pair: pair[1]
    )
    if parts < 2:
        return reduce
    inner_axes = tuple(a if a < axis else a + 1 for a in axes)
    x = _split_axis(reduce.src[0], axis - reduce.ndim, parts)
    partial = x._rop(op, inner_axes)
    # The partial results are an array of their own: the second reduction reads them from memory.
    order = storage_order(x, partial.shape)
    stored = UOp(Ops.CONTIGUOUS, partial.dtype, (partial._mop(Ops.PERMUTE, order),))
    partial = stored._mop(Ops.PERMUTE, tuple(order.index(i) for i in range(len(order))))
    return partial._rop(op, (axis,))._mop(Ops.RESHAPE, reduce.shape)


def storage_order(x: UOp, shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the order of axes in which partial results of a sum over ``x`` are stored.

    A contraction computes vectors along an axis that only one factor has. Where the last axis is none that fills them,
    the best one comes last, or every element of a vector would be stored far from the others.
    """
    order = tuple(range(len(shape)))
    factors = contraction_operands(x)
    if factors is None:
        return order
    left, right = ((1,) * (len(order) - f.ndim) + f.shape for f in factors)
    fills = [
        (lane_fill(shape[i]), -prod(mine), i)
        for mine, other in ((left, right), (right, left))
        for i in order
        if shape[i] > 1 and mine[i] > 1 and other[i] == 1
    ]
    if not fills:
        return order
    last = max(i for i in order if shape[i] > 1)
    ready = next((fill for fill, _, i in fills if i == last), 0.0)
    fill, _, best = max(fills)
    return order if fill <= ready + 0.1 else (*order[:best], *order[best + 1 :], best)


def _split_axis(x: UOp, axis: int, parts: int, depth: int = 3) -> UOp:
    """Return ``x`` with ``axis`` (negative) split in two; of a product the factors are split, so it stays a product."""
    if -axis > x.ndim:
        return x
    if x.op in (Ops.MUL, Ops.CAST) and depth > 0:
        return x.replace(src=tuple(_split_axis(s, axis, parts, depth - 1) for s in x.src))
    at = x.ndim + axis
    size = x.shape[at]
    pair = (1, 1) if size == 1 else (parts, size // parts)
    return x._mop(Ops.RESHAPE, (*x.shape[:at], *pair, *x.shape[at + 1 :]))
