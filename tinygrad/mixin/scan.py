"""Scans and sorting: cumulative operations, sort, topk.

In:   a tensor and an axis.
Out:  scans in O(n * BLOCK) work on log(n) levels; sorts in O(n**2) comparisons within one kernel for short axes, and by
      a bitonic network, O(n * log(n)**2), for long ones. Both are stable and keep every NaN (NaN is the largest value).
Why:  values are read back through the indices that were found, so their gradients are those of an indexed load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype, strong_dtype, sum_acc_dtype
from tinygrad.errors import ShapeError, error_text
from tinygrad.helpers import ceildiv
from tinygrad.mixin.composite import composite
from tinygrad.mixin.index import IndexMixin
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# Elements that a scan combines by comparing positions; longer axes are cut into blocks of it.
BLOCK = 32
# A longer axis is sorted by a network of kernels instead of one kernel that compares all pairs.
RANK_LIMIT = 2048

_IDENTITY = {Ops.ADD: 0, Ops.MUL: 1}
_JOIN: dict[Ops, Callable[[Any, Any], Any]] = {
    Ops.ADD: lambda before, part: before + part,
    Ops.MUL: lambda before, part: before * part,
    Ops.MAX: lambda before, part: before.maximum(part),
}


def _scan_last(x: UOp, inner: Callable[[UOp], UOp], join: Callable[[UOp, UOp], UOp], fill: Any) -> UOp:
    """Scan the last axis.

    Args:
        x: Shape (..., n).
        inner: Inclusive scan of a short last axis.
        join: Combines the total of all blocks before with a block's own scan.
        fill: Neutral value.
    """
    n = x.shape[-1]
    if n <= 2 * BLOCK:
        return inner(x)
    batch, blocks = x.shape[:-1], ceildiv(n, BLOCK)
    keep = ((0, 0),) * len(batch)
    cut = x.pad((*keep, (0, blocks * BLOCK - n)), value=fill).reshape((*batch, blocks, BLOCK))
    within = inner(cut).contiguous()
    totals = within.shrink([*[None] * (len(batch) + 1), (BLOCK - 1, BLOCK)]).reshape((*batch, blocks))
    before = _scan_last(totals, inner, join, fill).shrink([*[None] * len(batch), (0, blocks - 1)])
    shifted = before.pad((*keep, (1, 0)), value=fill).reshape((*batch, blocks, 1))
    return join(shifted, within).reshape((*batch, blocks * BLOCK)).shrink_to((*batch, n))


def _up_to(n: int) -> UOp:
    """Return the (n, n) mask whose row i is True up to column i."""
    from tinygrad.uop.ops import UOp

    return UOp.arange(n) < UOp.arange(n).reshape(n, 1) + 1


def _reduce_scan(x: UOp, op: Ops) -> UOp:
    fill = x.dtype.min if op is Ops.MAX else _IDENTITY[op]

    def inner(part: UOp) -> UOp:
        n = part.shape[-1]
        seen = _up_to(n).where(part.unsqueeze(-2), part.const_like(fill).unsqueeze(-2))
        return seen._rop(op, (seen.ndim - 1,)).reshape(part.shape)

    return _scan_last(x, inner, _JOIN[op], fill)


def _logsumexp_scan(x: UOp) -> UOp:
    def inner(part: UOp) -> UOp:
        n = part.shape[-1]
        return _up_to(n).where(part.unsqueeze(-2), float("-inf")).logsumexp(axis=-1)

    return _scan_last(x, inner, lambda before, part: before._broadcast_to(part.shape).logaddexp(part), float("-inf"))


@dataclass(frozen=True)
class SumScanGradient:
    """Gradient function of a cumulative sum: the cumulative sum from the other end."""

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp]:
        """Return the gradient of the scanned value."""
        last = grad.ndim - 1
        return (_sum_scan(grad.flip(last)).flip(last),)


def _sum_scan(x: UOp) -> UOp:
    return composite(lambda a: _reduce_scan(a, Ops.ADD), (x,), SumScanGradient(), "cumsum")


def _largest_first(a: Any, b: Any, floating: bool) -> Any:
    """Return a > b, where NaN is larger than every number and equal to NaN."""
    return (b < a) | (a.isnan() & b.isnan().logical_not()) if floating else b < a


class ScanMixin(IndexMixin):
    """Scans and sorting of Tensor and UOp."""

    __slots__ = ()

    def _along_last(self, axis: int, name: str) -> tuple[UOp, tuple[int, ...]]:
        """Return the node with the axis last, and the order that brings it back."""
        axis = self._resolve_dim(axis, op=name)
        order = (*(i for i in range(self.ndim) if i != axis), axis)
        return self._uop.permute(order), tuple(order.index(i) for i in range(self.ndim))

    def _is_trivial_scan(self) -> bool:
        return self.ndim == 0 or any(isinstance(n, int) and n == 0 for n in self.shape)

    # ---- scans -----------------------------------------------------------------------------------------------------------

    def cumsum(self, axis: int = 0, *, dim: int | None = None) -> Self:
        """Return the inclusive cumulative sum; integers widen as for ``sum``, half precision sums in float32.

        Args:
            axis: The axis that is summed along.
            dim: Another name of ``axis``.

        Example:
            >>> Tensor([1, 2, 3]).cumsum().tolist()
            [1, 3, 6]
        """
        x, back = self._along_last(axis if dim is None else dim, "cumsum")
        wide = strong_dtype(sum_acc_dtype(self.dtype))
        result = self.dtype if dtypes.is_float(self.dtype) and self.dtype not in dtypes.weaks else wide
        if self._is_trivial_scan():
            return self.cast(result)
        return self._wrap_uop(_sum_scan(x.cast(wide)).permute(back).cast(result))

    def cumprod(self, axis: int, *, dim: int | None = None) -> Self:
        """Return the inclusive cumulative product along ``axis`` (also ``dim``)."""
        x, back = self._along_last(axis if dim is None else dim, "cumprod")
        if self._is_trivial_scan():
            return self
        own = strong_dtype(self.dtype)
        wide = least_upper_dtype(own, dtypes.float32) if dtypes.is_float(own) else own
        return self._wrap_uop(_reduce_scan(x.cast(wide), Ops.MUL).permute(back).cast(own))

    def logcumsumexp(self, axis: int = 0, *, dim: int | None = None) -> Self:
        """Return log(cumsum(exp(x))) along ``axis`` (also ``dim``) without overflow."""
        floating = self if dtypes.is_float(self.dtype) and self.dtype not in dtypes.weaks else self.cast(dtypes.default_float)
        if self._is_trivial_scan():
            return floating
        x, back = floating._along_last(axis if dim is None else dim, "logcumsumexp")
        return self._wrap_uop(_logsumexp_scan(x).permute(back))

    def cummax(self, axis: int = 0, *, dim: int | None = None) -> tuple[Self, Self]:
        """Return the largest value so far and the int32 index of its first occurrence; NaN stays from the first on.

        Args:
            axis: The axis that is scanned along.
            dim: Another name of ``axis``.

        Example:
            >>> Tensor([1, 3, 2]).cummax()[0].tolist()
            [1, 3, 3]
        """
        axis = axis if dim is None else dim
        if self._is_trivial_scan():
            return self, self.const_like(0, dtypes.int32)
        x, back = self._along_last(axis, "cummax")
        x = x.cast(strong_dtype(self.dtype)).detach()
        best, n = _reduce_scan(x, Ops.MAX), x.shape[-1]
        keep = [None] * (x.ndim - 1)
        before = best.shrink([*keep, (0, n - 1)]).pad([*keep, (1, 0)], value=x.dtype.min)
        first = type(x).arange(n, dtype=dtypes.int32)
        fresh = _largest_first(x, before, dtypes.is_float(x.dtype)) | first.eq(0)
        index = self._wrap_uop(_reduce_scan(fresh.where(first, 0).cast(dtypes.int32), Ops.MAX).permute(back))
        return self.gather(axis, index), index

    def cummin(self, axis: int = 0, *, dim: int | None = None) -> tuple[Self, Self]:
        """Return the smallest value so far and the int32 index of its first occurrence; see ``cummax``."""
        axis = axis if dim is None else dim
        _, index = self._mirrored().cummax(axis)
        return (self, index) if self._is_trivial_scan() else (self.gather(axis, index), index)

    # ---- order -----------------------------------------------------------------------------------------------------------

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """Return the int32 indices that sort along ``dim``; see ``sort``."""
        return self.sort(dim, descending)[1]

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """Return (sorted values, int32 indices) along ``dim``; equal values keep their order, NaN counts as largest.

        Args:
            dim: The dim that is sorted.
            descending: Largest first.

        Example:
            >>> Tensor([3, 1, 2]).sort()[0].tolist()
            [1, 2, 3]
        """
        x, back = self._along_last(dim, "sort")
        if self._is_trivial_scan() or x.shape[-1] == 1:
            return self, self.const_like(0, dtypes.int32)
        x = x.cast(strong_dtype(self.dtype)).detach()
        order = _sort_by_rank(x, descending) if x.shape[-1] <= RANK_LIMIT else _sort_by_network(x, descending)
        index = self._wrap_uop(order.permute(back))
        return self.gather(dim, index), index

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True) -> tuple[Self, Self]:
        """Return the k largest (or smallest) values along ``dim`` in order, and their int32 indices.

        Raises:
            ShapeError: ``k`` is larger than the dim.
            NotImplementedError: ``sorted_`` is False.
        """
        if not sorted_:
            raise NotImplementedError("topk: sorted_=False; results are always sorted, leave the argument out")
        axis = self._resolve_dim(dim, op="topk")
        if self.ndim and not 0 <= k <= self.shape[axis]:
            raise ShapeError(error_text("topk", f"k={k} for dim {axis} of size {self.shape[axis]}", {"tensor": self},
                                        rule="0 <= k <= size"))  # fmt: skip
        if self.ndim == 0:
            return self, self.const_like(0, dtypes.int32)
        index = self.sort(axis, descending=largest)[1]._slice_dim(axis, 0, k)
        return self.gather(axis, index), index


def _sort_by_rank(x: UOp, descending: bool) -> UOp:
    """Return the sorting indices of the last axis: count for each element those that go before it, then invert."""
    n, floating = x.shape[-1], dtypes.is_float(x.dtype)
    mine, other = x.unsqueeze(-1), x.unsqueeze(-2)
    at = type(x).arange(n, dtype=dtypes.int32)
    earlier = at < at.reshape(n, 1)
    ahead = _largest_first(other, mine, floating) if descending else _largest_first(mine, other, floating)
    behind = _largest_first(mine, other, floating) if descending else _largest_first(other, mine, floating)
    tied = (ahead | behind).logical_not()
    rank = (ahead | (tied & earlier)).cast(dtypes.int32)._rop(Ops.ADD, (x.ndim,)).reshape(x.shape).contiguous()
    hit = rank.unsqueeze(-2).eq(at.reshape(n, 1))  # [place, element]
    return hit.where(at, 0).cast(dtypes.int32)._rop(Ops.ADD, (x.ndim,)).reshape(x.shape)


def _sort_by_network(x: UOp, descending: bool) -> UOp:
    """Return the sorting indices of the last axis by Batcher's bitonic network; one kernel per exchange."""
    n, floating, batch = x.shape[-1], dtypes.is_float(x.dtype), x.shape[:-1]
    size = 1 << (n - 1).bit_length()
    keep = ((0, 0),) * len(batch)
    values = x.pad((*keep, (0, size - n))).contiguous()
    # Padding sorts behind everything by its index, whatever its value.
    index = type(x).arange(size, dtype=dtypes.int32).reshape((*(1,) * len(batch), size)).expand((*batch, size))
    block = 2
    while block <= size:
        half = block // 2
        while half >= 1:
            values, index = _exchange(values, index, block, half, n, descending, floating)
            half //= 2
        block *= 2
    return index.shrink_to((*batch, n))


def _exchange(
    values: UOp, index: UOp, block: int, half: int, n: int, descending: bool, floating: bool
) -> tuple[UOp, UOp]:
    """Order pairs that are ``half`` apart: upwards in even blocks, downwards in odd ones."""
    batch, size = values.shape[:-1], values.shape[-1]
    pairs = (*batch, size // (2 * half), 2, half)
    lead = [None] * (len(batch) + 1)
    (a, b), (i, j) = (
        tuple(y.reshape(pairs).shrink([*lead, (s, s + 1), None]) for s in (0, 1)) for y in (values, index)
    )
    greater = _largest_first(b, a, floating) if descending else _largest_first(a, b, floating)
    smaller = _largest_first(a, b, floating) if descending else _largest_first(b, a, floating)
    real = (i < n) & (j < n)
    after = (real & (greater | (smaller.logical_not() & (j < i)))) | (real.logical_not() & (j < i))
    group = type(values).arange(size // (2 * half)).reshape(size // (2 * half), 1, 1)
    downwards = (group // (block // (2 * half)) % 2).eq(1)
    swap = after ^ downwards
    first, second = swap.where(b, a), swap.where(a, b)
    ranks = swap.where(j, i), swap.where(i, j)
    place = type(values).arange(2).reshape(2, 1).eq(0)
    joined = place.where(first, second).reshape(values.shape).contiguous()
    return joined, place.where(*ranks).reshape(values.shape).contiguous()
