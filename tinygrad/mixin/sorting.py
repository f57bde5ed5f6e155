"""Sorting: the indices that put the last axis of a node in order.

In:   values, (*batch, n).
Out:  ``sorting_indices`` of all of them, ``first_indices`` of some. Equal values keep their order, NaN is the largest.
How:  values become unsigned integers of the same order. Rows that fit a cache are sorted by a kernel of their own,
      longer ones in runs, which are merged; where there is no such kernel, runs are sorted by counting for each element
      those before it. The first few are looked for only in the blocks that hold the least elements.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.mixin.composite import materialized
from tinygrad.mixin.gather import gather_along, positions_along, store_at, zeros
from tinygrad.mixin.nests import has_fast_scratch, kernel_result
from tinygrad.mixin.sort_kernel import LONGEST, SortKernel
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# Without the kernel: a longer axis is cut into runs, which are merged, instead of comparing all pairs.
RANK_LIMIT = 2048
RUN = 512
MIN_ELEMENTS = 1 << 10  # that are worth a kernel of their own
FEW_OF = 4  # the first of an axis of which all are fewer than this many times as many are found by sorting all


def sorting_indices(x: UOp, descending: bool) -> UOp:
    """Return the int32 indices that sort the last axis.

    Args:
        x: Values of a strong dtype, at least two in the last axis.
        descending: Largest first; equal values keep their order all the same.
    """
    return _order(materialized(_sort_keys(x, descending)))


def first_indices(x: UOp, k: int, descending: bool) -> UOp:
    """Return the first k of ``sorting_indices``."""
    return _first(_sort_keys(x, descending), k)


def _order(key: UOp) -> UOp:
    """Return the sorting indices of the last axis of stored keys."""
    n = key.shape[-1]
    if _has_kernel(key):
        return _sorted_by_kernel(key) if n <= LONGEST else _sort_by_merging(key)
    short = n <= RANK_LIMIT or isinstance(key.device, tuple)
    return _sort_by_rank(key) if short else _sort_by_merging(key)


def _first(key: UOp, k: int) -> UOp:
    """Return the indices of the first k of the last axis.

    All of them lie in the k blocks whose least elements come first.
    """
    n = key.shape[-1]
    keep = [None] * (key.ndim - 1)
    if not all_int(key.shape) or isinstance(key.device, tuple) or prod(key.shape) < MIN_ELEMENTS or n <= FEW_OF * k:
        return _order(materialized(key)).shrink([*keep, (0, k)])
    block = max(2, math.isqrt(n // k))
    count, batch = ceildiv(n, block), key.shape[:-1]
    last = key.dtype.max
    blocks = key.pad((*((0, 0),) * len(batch), (0, count * block - n)), value=last).reshape((*batch, count, block))
    least = blocks.bitwise_not()._rop(Ops.MAX, (len(batch) + 1,)).reshape((*batch, count)).bitwise_not()
    chosen = _first(materialized(least), k)
    # In the order of their positions, so that equal elements keep theirs.
    chosen = gather_along(chosen, _order(materialized(chosen.cast(dtypes.uint32))))
    column = type(key).arange(block, dtype=dtypes.int32)
    places = materialized((chosen.unsqueeze(-1) * block + column).reshape((*batch, k * block)))
    candidates = (places < n).where(gather_along(key, places), last)
    return gather_along(places, _order(materialized(candidates)).shrink([*keep, (0, k)]))


def _has_kernel(key: UOp) -> bool:
    fits = key.dtype.itemsize <= 4 and all_int(key.shape) and prod(key.max_shape) >= MIN_ELEMENTS
    return fits and has_fast_scratch(key.device)


def _sorted_by_kernel(key: UOp) -> UOp:
    return kernel_result(key.reshape((-1, key.shape[-1])), dtypes.int32, SortKernel()).reshape(key.shape)


def _sort_keys(x: UOp, descending: bool) -> UOp:
    """Return unsigned integers in the order in which the values are sorted; equal values have equal keys."""
    if dtypes.is_float(x.dtype):
        wide = x.cast(least_upper_dtype(x.dtype, dtypes.float32))
        plain = wide.isnan().where(math.nan, wide + 0.0)  # one NaN, one zero
        kind = dtypes.uint64 if wide.dtype == dtypes.float64 else dtypes.uint32
        bits = plain.bitcast(kind)
        top = 1 << (kind.bitsize - 1)
        # Negative numbers grow downwards as integers, and come before the positive ones.
        key = (bits & top).ne(0).where(bits.bitwise_not(), bits | top)
    elif dtypes.is_unsigned(x.dtype) or x.dtype == dtypes.bool:
        key = x.cast(dtypes.uint8) if x.dtype == dtypes.bool else x
    else:
        kind = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[x.dtype.itemsize]
        key = x.bitcast(kind) ^ (1 << (kind.bitsize - 1))
    return key.bitwise_not() if descending else key


def _sort_by_rank(key: UOp) -> UOp:
    """Return the sorting indices of the last axis: count for each element those that go before it, then invert."""
    n, axis = key.shape[-1], key.ndim
    mine, other = key.unsqueeze(-1), key.unsqueeze(-2)
    at = type(key).arange(n, dtype=dtypes.int32)
    before = (other < mine) | (other.eq(mine) & (at < at.reshape(n, 1)))
    rank = materialized(before.cast(dtypes.int32)._rop(Ops.ADD, (axis,)).reshape(key.shape))
    hit = rank.unsqueeze(-2).eq(at.reshape(n, 1))  # [place, element]
    return hit.where(at, 0).cast(dtypes.int32)._rop(Ops.ADD, (axis,)).reshape(key.shape)


def _sort_by_merging(key: UOp) -> UOp:
    """Return the sorting indices of the last axis: sort runs, then merge them pairwise."""
    n, batch = key.shape[-1], key.shape[:-1]
    run = LONGEST if _has_kernel(key) else RUN
    size = run << max(ceildiv(n, run) - 1, 0).bit_length()
    # Padding has the largest key and the highest positions, so it stays behind everything.
    padded = materialized(key.pad((*((0, 0),) * len(batch), (0, size - n)), value=key.dtype.max))
    within = _order(padded.reshape((*batch, size // run, run)))
    start = type(key).arange(size // run, dtype=dtypes.int32).reshape(size // run, 1) * run
    order = materialized((within + start).reshape((*batch, size)))
    while run < size:
        place = _merged_places(materialized(gather_along(padded, order)), run)
        flat = positions_along(place, size).flatten()
        order = store_at(zeros(prod(order.shape), order.dtype), flat, order.flatten()).reshape(order.shape)
        run *= 2
    return order.shrink_to((*batch, n))


def _merged_places(key: UOp, run: int) -> UOp:
    """Return where each element goes when neighbouring runs are merged: a binary search in the other run."""
    size = key.shape[-1]
    at = type(key).arange(size, dtype=dtypes.int32)
    number, own = at // run, at % run
    first = (number % 2).eq(0)
    other = (number + first.where(1, -1).cast(dtypes.int32)) * run
    count = at * 0
    step = run // 2
    probes = [1 << i for i in range(step.bit_length() - 1, -1, -1)] + [1]
    for width in probes:
        probe = gather_along(key, (other + count + (width - 1))._broadcast_to(key.shape))
        # Equal elements of the first run go first.
        goes_before = (probe < key) | (probe.eq(key) & first.logical_not())
        count = count + goes_before.where(width, 0).cast(dtypes.int32)
    return count + own + (number // 2) * (2 * run)
