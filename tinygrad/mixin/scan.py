"""Scans and sorting: cumulative operations, sort, topk.

In:   a tensor and an axis.
Out:  scans in one pass over rows by a kernel of their own, else in blocks that compare positions, on log(n) levels;
      values in order, whose indices ``sorting`` finds.
Why:  values are read back through the indices that were found, so their gradients are those of an indexed load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import DTypeLike, dtypes, least_upper_dtype, strong_dtype, sum_acc_dtype
from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.mixin.composite import composite, materialized
from tinygrad.mixin.hooks import exceeds, same_size
from tinygrad.mixin.index import IndexMixin
from tinygrad.mixin.nests import has_fast_scratch, kernel_result
from tinygrad.mixin.scan_kernel import JOIN, LargestKernel, ScanKernel, neutral
from tinygrad.mixin.sorting import first_indices, sorting_indices
from tinygrad.record import record
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# Elements that a scan combines by comparing positions; longer axes are cut into blocks of it.
BLOCK = 32
# Where a kernel of its own scans rows: the fewest rows that fill vectors and threads, the longest row that is not cut,
# and the fewest elements that are worth it.
MIN_ROWS, LONGEST_ROW, MIN_ELEMENTS = 256, 8192, 1 << 12
MIN_BESIDE = 64  # rows beside each other in memory that are scanned as they are; fewer are brought below each other

_REDUCE = {"sum": Ops.ADD, "product": Ops.MUL, "max": Ops.MAX}


def _scan(x: UOp, op: str, axis: int = -1) -> UOp:
    """Scan an axis of a node, in the dtype that it has; ``op`` is a key of ``JOIN``."""
    if axis != -1 and not (isinstance(x.shape[axis], int) and _has_kernel(x)):
        return _with_axis_last(x, axis, lambda a: _scan(a, op))
    if not isinstance(x.shape[axis], int):
        return _scan(_filled_up(x, op), op).shrink_to(x.shape)
    if op == "sum":
        return composite(lambda a: _scanned(a, op, axis), (x,), SumScanGradient(axis), "cumsum")
    if op == "max" or not _has_kernel(x):
        return _scanned(x, op, axis)
    return composite(lambda a: _scanned(a, op, axis), (x,), ScanGradient(op, axis), op)


def _with_axis_last(x: UOp, axis: int, scan: Callable[[UOp], UOp]) -> UOp:
    """Apply a scan of the last axis to another one."""
    axis %= x.ndim
    order = (*(i for i in range(x.ndim) if i != axis), axis)
    return scan(x.permute(order)).permute(tuple(order.index(i) for i in range(x.ndim)))


def _filled_up(x: UOp, op: str) -> UOp:
    """Return a node whose last axis has a symbolic size with that size's maximum, filled with the neutral value."""
    missing = x.max_shape[-1] - x.shape[-1]
    return x.pad((*((0, 0),) * (x.ndim - 1), (0, missing)), value=neutral(op, x.dtype))


def _has_kernel(x: UOp) -> bool:
    return all_int(x.shape) and prod(x.max_shape) >= MIN_ELEMENTS and has_fast_scratch(x.device)


def _scanned(x: UOp, op: str, axis: int = -1) -> UOp:
    """Scan an axis: by the kernel where there are enough rows, which long ones are cut into."""
    if axis not in (-1, x.ndim - 1):
        n, beside = x.shape[axis], prod(x.max_shape[axis:][1:])
        if _has_kernel(x) and n <= LONGEST_ROW and beside >= MIN_BESIDE:
            return kernel_result(x.reshape((-1, n, beside)), x.dtype, ScanKernel(op)).reshape(x.shape)
        return _with_axis_last(x, axis, lambda a: _scanned(a, op))
    if not _has_kernel(x):
        return _scanned_by_comparing(x, op)
    *batch, n = x.max_shape
    rows = prod(batch)
    if n <= LONGEST_ROW and (rows >= MIN_ROWS or n <= 4 * BLOCK):
        return kernel_result(x.reshape((rows, n)), x.dtype, ScanKernel(op)).reshape(x.shape)
    block = 1 << max(2 * BLOCK, min(LONGEST_ROW // 2, rows * n // (2 * MIN_ROWS))).bit_length() - 1

    def again(part: UOp) -> UOp:
        return _scanned(part, op)

    return _scan_blocks(x, block, again, again, op)


def _scan_blocks(x: UOp, block: int, within: Callable[[UOp], UOp], between: Callable[[UOp], UOp], op: str) -> UOp:
    """Scan the last axis in blocks of ``block``: each of them, then their totals, then join both."""
    n, fill = x.shape[-1], neutral(op, x.dtype)
    batch, blocks = x.shape[:-1], ceildiv(n, block)
    keep = ((0, 0),) * len(batch)
    cut = x.pad((*keep, (0, blocks * block - n)), value=fill).reshape((*batch, blocks, block))
    inner = within(cut)
    totals = inner.shrink([*[None] * (len(batch) + 1), (block - 1, block)]).reshape((*batch, blocks))
    before = between(totals).shrink([*[None] * len(batch), (0, blocks - 1)])
    shifted = before.pad((*keep, (1, 0)), value=fill).reshape((*batch, blocks, 1))
    joined: UOp = JOIN[op](shifted._broadcast_to(inner.shape), inner)
    return joined.reshape((*batch, blocks * block)).shrink_to((*batch, n))


def _scanned_by_comparing(x: UOp, op: str) -> UOp:
    """Scan the last axis: in short blocks each element is combined with all that are before it."""
    size = x.shape[-1]
    if size <= 2 * BLOCK:
        return _compared(x, op)

    def again(totals: UOp) -> UOp:
        return _scanned_by_comparing(totals, op)

    if x.axis == x.ndim - 1 and isinstance(x.device, tuple) and isinstance(size, int):
        return _scan_blocks(x, size // len(x.device), again, again, op)  # each device scans its own part
    return _scan_blocks(x, BLOCK, lambda part: materialized(_compared(part, op)), again, op)


def _compared(part: UOp, op: str) -> UOp:
    seen = _up_to(part.shape[-1]).where(part.unsqueeze(-2), part.const_like(neutral(op, part.dtype)).unsqueeze(-2))
    if op == "logaddexp":
        return seen.logsumexp(axis=-1)
    return seen._rop(_REDUCE[op], (seen.ndim - 1,)).reshape(part.shape)


def _up_to(n: Any) -> UOp:
    """Return the (n, n) mask whose row i is True up to column i."""
    from tinygrad.uop.ops import UOp

    return UOp.arange(n) < UOp.arange(n).reshape(n, 1) + 1


@record(frozen=True)
class SumScanGradient:
    """Gradient function of a cumulative sum: the cumulative sum from the other end.

    Args:
        axis: The scanned one.
    """

    axis: int

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp]:
        """Return the gradient of the scanned value."""
        return (_scan(grad.flip(self.axis), "sum", self.axis).flip(self.axis),)


@record(frozen=True)
class ScanGradient:
    """Gradient function of another scan: that of the scan by comparing, which the rules of all operations give.

    Args:
        op: Key of ``JOIN``.
        axis: The scanned one.
    """

    op: str
    axis: int

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp]:
        """Return the gradient of the scanned value."""
        from tinygrad.mixin.gradient import compute_gradient

        x = call.src[1]
        scanned = _with_axis_last(x, self.axis, lambda a: _scanned_by_comparing(a, self.op))
        return (compute_gradient(scanned, grad, [x])[x],)


def _largest_so_far(x: UOp, axis: int = -1) -> UOp:
    """Return the int32 index of the first occurrence of the largest element so far along an axis."""
    n = x.shape[axis]
    if axis not in (-1, x.ndim - 1):
        beside = prod(x.max_shape[axis:][1:])
        if _has_kernel(x) and n <= LONGEST_ROW and beside >= MIN_BESIDE:
            return kernel_result(x.reshape((-1, n, beside)), dtypes.int32, LargestKernel()).reshape(x.shape)
        return _with_axis_last(x, axis, _largest_so_far)
    if not isinstance(n, int):
        return _largest_so_far(_filled_up(x, "max")).shrink_to(x.shape)
    if _has_kernel(x) and prod(x.max_shape[:-1]) >= MIN_ROWS:
        return kernel_result(x.reshape((-1, n)), dtypes.int32, LargestKernel()).reshape(x.shape)
    best = _scan(x, "max")
    keep = [None] * (x.ndim - 1)
    before = best.shrink([*keep, (0, n - 1)]).pad([*keep, (1, 0)], value=x.dtype.min)
    first = type(x).arange(n, dtype=dtypes.int32)
    fresh = _largest_first(x, before, dtypes.is_float(x.dtype)) | first.eq(0)
    return _scan(fresh.where(first, 0).cast(dtypes.int32), "max")


@record(frozen=True)
class LatestGradient:
    """Gradient function of the extreme values so far: each passes its gradient to the latest element that equals it.

    Args:
        axis: The scanned one.

    Source: the gradient of torch.cummax. (The index that is returned is that of the first such element.)
    """

    axis: int

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None]:
        """Return the gradient of the scanned value; the other argument is where the values were found."""
        from tinygrad.mixin.gradient import compute_gradient

        x, first = call.src[1:]
        equal = x.eq(x.gather(self.axis, first))
        equal = equal | x.isnan() if dtypes.is_float(x.dtype) else equal
        places = type(x).arange(x.shape[self.axis], dtype=dtypes.int32)
        places = places.reshape([-1 if i == self.axis else 1 for i in range(x.ndim)])
        latest = _scan(equal.where(places, 0).cast(dtypes.int32), "max", self.axis)
        return compute_gradient(x.gather(self.axis, latest), grad, [x])[x], None


def _extreme_so_far(x: UOp, index: UOp, axis: int) -> UOp:
    """Return the values at the indices that a scan has found, with the gradient of that scan."""
    if x.dtype in dtypes.weaks:
        return x.gather(axis, index)
    return composite(lambda a, i: a.gather(axis, i), (x, index), LatestGradient(axis), "cummax")


def _largest_first(a: Any, b: Any, floating: bool) -> Any:
    """Return a > b, where NaN is larger than every number and equal to NaN."""
    return (b < a) | (a.isnan() & b.isnan().logical_not()) if floating else b < a


class ScanMixin(IndexMixin):
    """Scans and sorting of Tensor and UOp."""

    __slots__ = ()

    def _along_last(self, axis: int, name: str) -> tuple[UOp, tuple[int, ...]]:
        """Return the node with the axis last, and the order that brings it back."""
        axis = self._resolve_dim(axis, op=name)
        if self.ndim == 0:
            return self._uop, ()
        order = (*(i for i in range(self.ndim) if i != axis), axis)
        return self._uop.permute(order), tuple(order.index(i) for i in range(self.ndim))

    def _is_trivial_scan(self) -> bool:
        return self.ndim == 0 or any(isinstance(n, int) and n == 0 for n in self.shape)

    # ---- scans -----------------------------------------------------------------------------------------------------

    def cumsum(self, axis: int = 0, *, dim: int | None = None, dtype: DTypeLike | None = None) -> Self:
        """Return the inclusive cumulative sum; integers widen as for ``sum``, half precision sums in float32.

        Args:
            axis: The axis that is summed along.
            dim: Another name of ``axis``.
            dtype: What the elements are cast to before.

        Example:
            >>> Tensor([1, 2, 3]).cumsum().tolist()
            [1, 3, 6]
        """
        if dtype is not None:
            return self.cast(dtype).cumsum(axis if dim is None else dim)
        axis = self._resolve_dim(axis if dim is None else dim, op="cumsum")
        wide = strong_dtype(sum_acc_dtype(self.dtype))
        result = self.dtype if dtypes.is_float(self.dtype) and self.dtype not in dtypes.weaks else wide
        if self._is_trivial_scan():
            return self.cast(result)
        return self._wrap_uop(_scan(self._uop.cast(wide), "sum", axis).cast(result))

    def cumprod(self, axis: int, *, dtype: DTypeLike | None = None) -> Self:
        """Return the inclusive cumulative product along ``axis`` (also ``dim``), of elements cast to ``dtype``.

        Example:
            >>> Tensor([1, 2, 3]).cumprod(axis=0).tolist()
            [1, 2, 6]
        """
        if dtype is not None:
            return self.cast(dtype).cumprod(axis)
        axis = self._resolve_dim(axis, op="cumprod")
        if self._is_trivial_scan():
            return self
        own = strong_dtype(self.dtype)
        wide = least_upper_dtype(own, dtypes.float32) if dtypes.is_float(own) else own
        return self._wrap_uop(_scan(self._uop.cast(wide), "product", axis).cast(own))

    def logcumsumexp(self, axis: int = 0, *, dim: int | None = None) -> Self:
        """Return log(cumsum(exp(x))) along ``axis`` (also ``dim``) without overflow.

        Example:
            >>> Tensor([0.0, 0.0, 1000.0]).logcumsumexp().numpy()
            array([0.000000e+00, 6.931472e-01, 1.000000e+03], dtype=float32)
        """
        floating = (
            self if dtypes.is_float(self.dtype) and self.dtype not in dtypes.weaks else self.cast(dtypes.default_float)
        )
        axis = self._resolve_dim(axis if dim is None else dim, op="logcumsumexp")
        if self._is_trivial_scan():
            return floating
        return self._wrap_uop(_scan(floating._uop, "logaddexp", axis))

    def cummax(self, axis: int = 0, *, dim: int | None = None) -> tuple[Self, Self]:
        """Return the largest value so far and the int32 index of its first occurrence; NaN stays from the first on.

        Args:
            axis: The axis that is scanned along.
            dim: Another name of ``axis``.

        Example:
            >>> Tensor([1, 3, 2]).cummax()[0].tolist()
            [1, 3, 3]
        """
        axis = self._resolve_dim(axis if dim is None else dim, op="cummax")
        if self._is_trivial_scan():
            return self, self.const_like(0, dtypes.int32)
        index = _largest_so_far(self._uop.cast(strong_dtype(self.dtype)).detach(), axis)
        return self._wrap_uop(_extreme_so_far(self._uop, index, axis)), self._wrap_uop(index)

    def cummin(self, axis: int = 0, *, dim: int | None = None) -> tuple[Self, Self]:
        """Return the smallest value so far and the int32 index of its first occurrence; see ``cummax``.

        Example:
            >>> [t.tolist() for t in Tensor([3, 1, 2]).cummin()]
            [[3, 1, 1], [0, 1, 1]]
        """
        axis = self._resolve_dim(axis if dim is None else dim, op="cummin")
        _, index = self._mirrored().cummax(axis)
        if self._is_trivial_scan():
            return self, index
        return self._wrap_uop(_extreme_so_far(self._uop, index._uop, axis)), index

    # ---- order -----------------------------------------------------------------------------------------------------

    def argsort(self, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Self:
        """Return the int32 indices that sort along ``dim``; see ``sort``.

        Example:
            >>> Tensor([3, 1, 2]).argsort().tolist()
            [1, 2, 0]
            >>> Tensor([3, 1, 2]).argsort(descending=True).tolist()
            [0, 2, 1]
        """
        return self.sort(dim, descending, stable=stable)[1]

    def sort(self, dim: int = -1, descending: bool = False, *, stable: bool = True) -> tuple[Self, Self]:
        """Return (sorted values, int32 indices) along ``dim``; equal values keep their order, NaN counts as largest.

        Args:
            dim: The dim that is sorted.
            descending: Largest first.
            stable: Nothing to choose: equal values keep their order with False too.

        Example:
            >>> Tensor([3, 1, 2]).sort()[0].tolist()
            [1, 2, 3]
        """
        x, back = self._along_last(dim, "sort")
        if self._is_trivial_scan() or x.shape[-1] == 1:
            return self, self.const_like(0, dtypes.int32)
        x = x.cast(strong_dtype(self.dtype)).detach()
        index = self._wrap_uop(sorting_indices(x, descending).permute(back))
        return self.gather(dim, index), index

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True) -> tuple[Self, Self]:
        """Return the k largest (or smallest) values along ``dim`` in order, and their int32 indices.

        Raises:
            ShapeError: ``k`` is larger than the dim.
            NotImplementedError: ``sorted_`` is False.

        Example:
            >>> [t.tolist() for t in Tensor([3, 1, 2]).topk(2)]
            [[3, 2], [0, 2]]
        """
        if not sorted_:
            raise NotImplementedError("topk: sorted_=False; results are always sorted, leave the argument out")
        axis = self._resolve_dim(dim, op="topk")
        if k < 0 or (self.ndim and exceeds(k, self.shape[axis])):
            raise ShapeError(
                error_text(
                    "topk",
                    f"k={k} for dim {axis} of size {shown(self.shape[axis] if self.ndim else 1)}",
                    {"tensor": self},
                    rule="0 <= k <= size",
                )
            )
        if self.ndim == 0:
            return self, self.const_like(0, dtypes.int32)
        if self._is_trivial_scan() or k == 0 or same_size(self.shape[axis], 1):
            index = self.const_like(0, dtypes.int32)._slice_dim(axis, 0, k)
            return self._slice_dim(axis, 0, k), index
        x, back = self._along_last(axis, "topk")
        index = self._wrap_uop(first_indices(x.cast(strong_dtype(self.dtype)).detach(), k, largest).permute(back))
        return self.gather(axis, index), index
