"""Reductions.

In:   ``_rop(op, axes)`` with ADD, MUL, MAX, which keeps reduced axes with size 1, and the operators.
Out:  reductions over any axes, accumulated in a dtype that is wide enough.
Why:  sums in a narrow dtype overflow or stop growing; users should not have to think of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes, least_upper_dtype, strong_dtype, sum_acc_dtype, to_dtype
from tinygrad.errors import ShapeError, error_text
from tinygrad.helpers import prod
from tinygrad.mixin.elementwise import ElementwiseMixin
from tinygrad.mixin.unary import float_function
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.dtype import DTypeLike

Axis = int | Sequence[int] | None


class ReduceMixin(ElementwiseMixin):
    """Sums, products, extremes, statistics. ``dim`` is accepted as another name of ``axis``."""

    __slots__ = ()

    def _resolve_axes(self, axis: Axis, op: str = "reduce") -> tuple[int, ...]:
        """Return the axes counted from the front, in order; None means all.

        Raises:
            ShapeError: An axis is out of range.
            RuntimeError: An axis is given twice.
        """
        if axis is None:
            return tuple(range(self.ndim))
        wanted: Any = axis  # of any type: what is no int is refused below
        several = hasattr(wanted, "__iter__") and not isinstance(wanted, str) and not hasattr(wanted, "_uop")
        given = tuple(wanted) if several else (wanted,)
        axes = tuple(self._resolve_dim(a, op=op) for a in given)
        if len(set(axes)) != len(axes):
            raise RuntimeError(error_text(op, f"an axis appears multiple times in {given}", {"tensor": self}))
        return tuple(sorted(axes)) if self.ndim else ()

    def _reduce(self, op: Ops, axis: Axis, keepdim: bool, name: str = "reduce") -> Self:
        axes = self._resolve_axes(axis, name)
        reduced = self._rop(op, axes) if axes else self
        return reduced if keepdim else reduced._drop_axes(axes)

    def _drop_axes(self, axes: tuple[int, ...]) -> Self:
        return self.reshape(tuple(s for i, s in enumerate(self.shape) if i not in axes))

    # ---- sums and products -----------------------------------------------------------------------------------------

    def sum(
        self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None, *, dim: Axis = None
    ) -> Self:
        """Return the sum over ``axis`` (all axes if None); 0 for no elements.

        Narrow floats accumulate in float32 and come back in their dtype; small integers widen to 32 bits.

        Args:
            axis: Axis or axes.
            keepdim: Keep the reduced axes with size 1.
            dtype: Dtype of accumulator and result.
            dim: Another name of ``axis``.

        Raises:
            ShapeError: An axis is out of range.
            RuntimeError: An axis is given twice.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
            [4, 6]
        """
        acc = sum_acc_dtype(self.dtype) if dtype is None else to_dtype(dtype)
        total = self.cast(acc)._reduce(Ops.ADD, axis if dim is None else dim, keepdim, "sum")
        return total.cast(self._result_dtype(acc)) if dtype is None else total

    def _quotient_of_sum(self, count: Any, axis: Axis = None, keepdim: bool = False) -> Self:
        """Return the sum over ``axis`` by ``count``, a number or a tensor: narrow floats are rounded once, at the end.

        Such a sum may leave the range of its dtype where the quotient does not.
        """
        quotient: Self = self.sum(axis, keepdim, dtype=sum_acc_dtype(self.dtype)) / count
        return quotient.cast(self._result_dtype(quotient.dtype))

    def _result_dtype(self, acc: DType) -> DType:
        """Sums of strong floats return in their own dtype, all others in that of the accumulator."""
        return self.dtype if dtypes.is_float(self.dtype) and self.dtype not in dtypes.weaks else acc

    def prod(
        self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None, *, dim: Axis = None
    ) -> Self:
        """Return the product over ``axis``; 1 for no elements. Narrow floats accumulate in float32.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).prod(axis=1).tolist()
            [2, 12]
        """
        own = strong_dtype(self.dtype) if dtype is None else to_dtype(dtype)
        acc = least_upper_dtype(own, dtypes.float32) if dtypes.is_float(own) else own
        return self.cast(acc)._reduce(Ops.MUL, axis if dim is None else dim, keepdim, "prod").cast(own)

    # ---- extremes --------------------------------------------------------------------------------------------------

    def max(self, axis: Axis = None, keepdim: bool = False, *, dim: Axis = None) -> Self:
        """Return the maximum over ``axis``; NaN if there is one. Ties share the gradient equally.

        No elements give the smallest value of the dtype.

        Example:
            >>> Tensor([[1, 5], [3, 4]]).max(axis=0).tolist()
            [3, 5]
        """
        return self.cast(strong_dtype(self.dtype))._reduce(Ops.MAX, axis if dim is None else dim, keepdim, "max")

    def min(self, axis: Axis = None, keepdim: bool = False, *, dim: Axis = None) -> Self:
        """Return the minimum over ``axis``; NaN if there is one. Ties share the gradient equally.

        Example:
            >>> Tensor([[1, 5], [3, 4]]).min(axis=1, keepdim=True).tolist()
            [[1], [3]]
        """
        return self._mirrored().max(axis if dim is None else dim, keepdim)._mirrored()

    def any(self, axis: Axis = None, keepdim: bool = False, *, dim: Axis = None) -> Self:
        """Whether any element is non-zero.

        Example:
            >>> Tensor([[0, 1], [0, 0]]).any(axis=1).tolist()
            [True, False]
        """
        return self.cast(dtypes.bool).max(axis if dim is None else dim, keepdim)

    def all(self, axis: Axis = None, keepdim: bool = False, *, dim: Axis = None) -> Self:
        """Whether all elements are non-zero.

        Example:
            >>> Tensor([[1, 1], [0, 1]]).all(axis=1).tolist()
            [True, False]
        """
        return self.logical_not().any(axis if dim is None else dim, keepdim).logical_not()

    def argmax(self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None) -> Self:
        """Return the int32 index of the first maximum (of the first NaN, if there is one) along ``axis``.

        None means the index into the flattened tensor.

        Raises:
            ShapeError: There are no elements to choose from.

        Example:
            >>> Tensor([[1, 5, 5], [9, 0, 2]]).argmax(axis=1).tolist()
            [1, 0]
            >>> Tensor([[1, 5, 5], [9, 0, 2]]).argmax().item()
            3
        """
        axis = axis if dim is None else dim
        self._check_choice(axis, "argmax")
        if axis is None or not self.ndim:
            flat = self.flatten().argmax(0)
            return flat.reshape((1,) * self.ndim) if keepdim else flat
        axis = self._resolve_dim(axis, op="argmax")
        x = self if self.ndim else self.reshape(1)
        # NaN differs from everything, itself included: where the maximum is NaN, the NaNs are the candidates.
        best = x.max(axis, keepdim=True)
        candidate = x.eq(best)
        if dtypes.is_float(x.dtype):
            candidate = candidate | x.isnan()
        size = x.shape[axis]
        position: Self = type(self).arange(size, 0, -1, dtype=dtypes.int32)
        backwards = position.reshape([size if i == axis else 1 for i in range(x.ndim)])
        furthest = candidate.where(backwards, 0).max(axis, keepdim)
        index: Self = (furthest * -1 + size).cast(dtypes.int32)
        return index if self.ndim or keepdim else index.reshape(())

    def argmin(self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None) -> Self:
        """Return the int32 index of the first minimum (of the first NaN, if there is one) along ``axis``.

        Raises:
            ShapeError: There are no elements to choose from.

        Example:
            >>> Tensor([[1, 5, 5], [9, 0, 2]]).argmin(axis=1).tolist()
            [0, 1]
        """
        axis = axis if dim is None else dim
        self._check_choice(axis, "argmin")
        return self._mirrored().argmax(axis, keepdim)

    def _check_choice(self, axis: int | None, op: str) -> None:
        """Refuse to choose one of no elements: no index is right."""
        if axis is not None:
            axis = self._resolve_dim(axis, op=op)
        sizes = self.shape if axis is None else self.shape[axis : axis + 1]
        if any(isinstance(size, int) and size == 0 for size in sizes):
            where = "the tensor" if axis is None else f"axis {axis}"
            raise ShapeError(error_text(op, f"{where} has no elements", {"tensor": self}, rule="at least one element"))

    # ---- statistics ------------------------------------------------------------------------------------------------

    def mean(
        self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None, *, dim: Axis = None
    ) -> Self:
        """Return the mean over ``axis``: float32 for integers, NaN for no elements.

        Narrow floats are summed and divided in float32, so that neither step overflows.

        Example:
            >>> Tensor([[1, 2], [3, 6]]).mean(axis=0).tolist()
            [2.0, 4.0]
        """
        axis = axis if dim is None else dim
        own = self._statistics_dtype(dtype)
        x = self.cast(least_upper_dtype(own, dtypes.float32))
        total = x._reduce(Ops.ADD, axis, keepdim, "mean")
        return total.div(self._count(axis)).cast(own)

    def _statistics_dtype(self, dtype: DTypeLike | None = None) -> DType:
        if dtype is not None:
            return to_dtype(dtype)
        return strong_dtype(self.dtype) if dtypes.is_float(self.dtype) else dtypes.float32

    def _count(self, axis: Axis) -> Any:
        """Number of elements that a reduction over ``axis`` combines: an int or a symbolic one."""
        return prod(self.shape[a] for a in self._resolve_axes(axis)) if self.ndim else 1

    def _freedom(self, axes: tuple[int, ...], correction: int) -> Any:
        """Number of elements that a variance is divided by: an int, at least 0, or a symbolic one."""
        count = self._count(axes)
        return max(count - correction, 0) if isinstance(count, int) else count - correction

    def _squares_dtype(self) -> DType:
        """Return the dtype in which squares are added up where the sum must neither overflow nor vanish.

        float64 holds the squares of all float32 numbers, float32 those of all halves. Without float64 it is float32.
        """
        own = self._statistics_dtype()
        if own in {dtypes.float16, *dtypes.fp8s}:
            return dtypes.float32
        from tinygrad.device import Device

        device = self.device[0] if isinstance(self.device, tuple) else self.device
        opened = Device.described(Device.DEFAULT if device is None else device)
        has_double = not opened.renderers or dtypes.float64 in opened.renderer.supported_dtypes()
        return dtypes.float64 if has_double else least_upper_dtype(own, dtypes.float32)

    def _centered(self, axes: tuple[int, ...]) -> tuple[Self, Self]:
        """Return (x - mean, mean) over axes that are kept, in the dtype in which squares are added up.

        A difference, and a sum of squares before its division, may leave the dtype where the result does not.
        """
        x = self.cast(self._squares_dtype())
        mean = x.mean(axes, keepdim=True) if axes else x
        return x - mean, mean

    def var(self, axis: Axis = None, keepdim: bool = False, correction: int = 1, *, dim: Axis = None) -> Self:
        """Return the variance over ``axis``, divided by (number of elements - correction).

        Example:
            >>> Tensor([1.0, 2.0, 3.0]).var().item()
            1.0
            >>> Tensor([1.0, 3.0]).var(correction=0).item()
            1.0
        """
        return self.var_mean(axis if dim is None else dim, keepdim, correction)[0]

    def var_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: int = 1, *, dim: Axis = None
    ) -> tuple[Self, Self]:
        """Return (variance, mean) over ``axis``. Two passes: the mean is subtracted before squaring.

        Example:
            >>> [t.item() for t in Tensor([1.0, 2.0, 3.0]).var_mean()]
            [1.0, 2.0]
        """
        axes = self._resolve_axes(axis if dim is None else dim, "var")
        own = self._statistics_dtype()
        x = self.cast(least_upper_dtype(own, dtypes.float32))
        (centered, mean), divisor = self._centered(axes), self._freedom(axes, correction)
        variance = centered.square()._reduce(Ops.ADD, axes, True).div(divisor).cast(x.dtype)
        # The derivative through the mean vanishes: the centered values sum to 0.
        variance = variance._with_gradient(x, (x - mean.cast(x.dtype)).div(divisor) * 2)
        variance, mean = variance.cast(own), mean.cast(own)
        return (variance, mean) if keepdim else (variance._drop_axes(axes), mean._drop_axes(axes))

    def std(self, axis: Axis = None, keepdim: bool = False, correction: int = 1, *, dim: Axis = None) -> Self:
        """Return the standard deviation over ``axis``; where it is 0, its gradient is 0.

        Example:
            >>> Tensor([1.0, 3.0]).std(correction=0).item()
            1.0
        """
        return self.std_mean(axis if dim is None else dim, keepdim, correction)[0]

    def std_mean(
        self, axis: Axis = None, keepdim: bool = False, correction: int = 1, *, dim: Axis = None
    ) -> tuple[Self, Self]:
        """Return (standard deviation, mean) over ``axis``.

        Example:
            >>> [t.item() for t in Tensor([1.0, 2.0, 3.0]).std_mean()]
            [1.0, 2.0]
        """
        axes = self._resolve_axes(axis if dim is None else dim, "std")
        own = self._statistics_dtype()
        x = self.cast(least_upper_dtype(own, dtypes.float32))
        (centered, mean), divisor = self._centered(axes), self._freedom(axes, correction)
        # The root of a variance that the dtype cannot hold may be one that it can.
        root = centered.square()._reduce(Ops.ADD, axes, True).div(divisor).sqrt().cast(x.dtype)
        # The derivative through the mean vanishes: the centered values sum to 0.
        slope = root.eq(0).where(0.0, ((x - mean.cast(x.dtype)) / root).div(divisor))
        root, mean = root._with_gradient(x, slope).cast(own), mean.cast(own)
        return (root, mean) if keepdim else (root._drop_axes(axes), mean._drop_axes(axes))

    # ---- norms -----------------------------------------------------------------------------------------------------

    @float_function()
    def logsumexp(self, axis: Axis = None, keepdim: bool = False, *, dim: Axis = None) -> Self:
        """Return log(sum(exp(x))) over ``axis`` without overflow; -inf if all are -inf.

        Example:
            >>> Tensor([[0.0, 0.0], [1000.0, 0.0]]).logsumexp(axis=1).numpy()
            array([6.931472e-01, 1.000000e+03], dtype=float32)
        """
        axes = self._resolve_axes(axis if dim is None else dim, "logsumexp")
        largest = self.max(axes, keepdim=True)
        shift = largest.isinf().where(0.0, largest).detach()
        value = (self - shift).exp()._reduce(Ops.ADD, axes, True).log() + shift
        # The softmax. Infinite results have no difference: +inf belongs to the elements that are +inf, -inf to nobody.
        at_top = self.eq(math.inf)
        slope = at_top.where(1.0, (self - value.isinf(True, True).where(0.0, value)).exp())
        slope = value.isinf(True, False).where(at_top.where(1.0, 0.0), slope)
        value = value._with_gradient(self, slope)
        return value if keepdim else value._drop_axes(axes)

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Divide by the p-norm along ``dim`` (by ``eps`` if that is larger); p=0 counts the non-zero elements.

        p=inf is the largest absolute value, p=-inf the smallest.

        Example:
            >>> Tensor([[3.0, 4.0]]).normalize().numpy()
            array([[0.6, 0.8]], dtype=float32)
        """
        own = self._statistics_dtype()
        wide = self.cast(least_upper_dtype(own, dtypes.float32))
        magnitude = wide.abs()
        if p == 0:
            norm = self.ne(0).sum(dim, keepdim=True)._kept_within(eps, None)
        elif p == math.inf:
            norm = magnitude.max(dim, keepdim=True)._kept_within(eps, None)
        elif p == -math.inf:
            norm = magnitude.min(dim, keepdim=True)._kept_within(eps, None)
        elif p == 1:
            norm = magnitude.sum(dim, keepdim=True)._kept_within(eps, None)
        else:
            norm = wide._power_norm(p, dim, keepdim=True)._kept_within(eps, None)
        return (wide / norm).cast(own)

    def _power_norm(self, p: float, axis: Axis, keepdim: bool) -> Self:
        """Return (|x|^p).sum()^(1/p) for p other than 0 and the infinities; its gradient at 0 is 0.

        No power is out of the range of the dtype: squares are added up in one that holds them, other powers after the
        division by the largest element, or the smallest one for p < 0, which is a factor of the result.
        """
        axes = self._resolve_axes(axis, "norm")
        if p == 2:
            x = self.cast(self._squares_dtype())
            exact = x.square()._reduce(Ops.ADD, axes, True).sqrt()
            slope = exact.eq(0).where(0.0, x / exact).cast(self.dtype)
            root = exact.cast(self.dtype).detach()._with_gradient(self, slope)
        else:
            size = self.abs()
            scale = (size.max(axes, keepdim=True) if p > 0 else size.min(axes, keepdim=True)).detach()
            scale = ((scale > 0) & scale.isfinite()).where(scale, 1.0)
            root = scale * (size / scale).pow(p)._reduce(Ops.ADD, axes, True).pow(1 / p)
            slope = (root.eq(0) | size.eq(0)).where(0.0, (size / root).pow(p - 1))
            root = root.detach()._with_gradient(size, slope)
        return root if keepdim else root._drop_axes(axes)
