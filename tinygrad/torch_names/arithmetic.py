"""Arithmetic, comparisons and reductions under the names of other packages.

In:   the methods of Tensor.
Out:  ``ArithmeticNames``.
Why:  see ``torch_names``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from tinygrad.dtype import DTypeLike, dtypes, least_upper_dtype, strong_dtype
from tinygrad.errors import ShapeError, error_text
from tinygrad.mixin.hooks import check_parts, most_of
from tinygrad.torch_names.checks import require_int
from tinygrad.torch_names.shapes import ShapeNames

if TYPE_CHECKING:
    from typing import Self


class ArithmeticNames(ShapeNames):
    """Arithmetic, comparisons and reductions."""

    __slots__ = ()

    # ---- arithmetic --------------------------------------------------------------------------------------------------

    absolute, negative = ShapeNames.abs, ShapeNames.neg
    subtract, multiply, fix, sgn = ShapeNames.sub, ShapeNames.mul, ShapeNames.trunc, ShapeNames.sign
    arcsin, arccos, arctan, arcsinh = ShapeNames.asin, ShapeNames.acos, ShapeNames.atan, ShapeNames.asinh
    arccosh, arctanh, expit = ShapeNames.acosh, ShapeNames.atanh, ShapeNames.sigmoid
    amax, amin, not_equal, argwhere = ShapeNames.max, ShapeNames.min, ShapeNames.ne, ShapeNames.nonzero
    bitwise_left_shift, bitwise_right_shift, remainder = ShapeNames.lshift, ShapeNames.rshift, ShapeNames.mod

    def divide(self, other: Any, rounding_mode: Any = None) -> Self:
        """``t.div(other, rounding_mode=rounding_mode)``."""
        return self.div(other, rounding_mode=rounding_mode)

    def true_divide(self, other: Any) -> Self:
        """``t / other``."""
        return self.div(other)

    def floor_divide(self, other: Any) -> Self:
        """``t // other``."""
        return self.div(other, rounding_mode="floor")

    def rsub(self, other: Any, alpha: float = 1) -> Self:
        """``other - alpha * t``."""
        return self._scaled(alpha).sub(other, reverse=True)

    def _scaled(self, factor: float) -> Self:
        return self if factor == 1 else self * factor

    def clamp_min(self, min: Any) -> Self:  # noqa: A002  as torch
        """``t.clamp(min, None)``."""
        return self.clamp(min, None)

    def clamp_max(self, max: Any) -> Self:  # noqa: A002  as torch
        """``t.clamp(None, max)``."""
        return self.clamp(None, max)

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """``t.isnan().where(nan, t)``, infinities as the largest and the smallest finite number."""
        if not dtypes.is_float(self.dtype):
            return self
        exponent, mantissa = dtypes.finfo(strong_dtype(self.dtype))
        most = (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)
        high, low = (most if posinf is None else posinf), (-most if neginf is None else neginf)
        value = self.isnan().where(nan, self.isinf(True, False).where(high, self.isinf(False, True).where(low, self)))
        return value.cast(self.dtype)

    def frac(self) -> Self:
        """``t - t.trunc()``."""
        return self - self.trunc()

    def deg2rad(self) -> Self:
        """``t * (math.pi / 180)``."""
        return self * 0.017453292519943295

    def rad2deg(self) -> Self:
        """``t * (180 / math.pi)``."""
        return self * 57.29577951308232

    def logit(self, eps: float | None = None) -> Self:
        """``(t / (1 - t)).log()``, of ``t.clamp(eps, 1 - eps)`` if ``eps`` is given.

        The gradient is infinite at 0 and 1, where the value is, and NaN outside.
        """
        t = self._float()
        p = t if eps is None else t.clamp(eps, 1 - eps)
        slope = ((p >= 0) & (p <= 1)).where((p * (1 - p)).reciprocal(), math.nan)
        return (p / (1 - p)).log()._with_gradient(p, slope)

    def signbit(self) -> Self:
        """``t < 0``, True for -0.0 too."""
        return self._signbit()

    def xlogy(self, other: Any) -> Self:
        """``t * other.log()``, 0 where t is 0 and ``other`` is not NaN; its gradient for t is 0 at (0, 0)."""
        x, y = (operand._float() for operand in self._operands(other, op="xlogy"))
        value = y.isnan().where(y, x.eq(0).where(0.0, x * y.log()))
        return value._with_gradient(x, (x.eq(0) & (y <= 0)).where(0.0, y.log()), y, x / y)

    def addcmul(self, tensor1: Self, tensor2: Self, *, value: float = 1) -> Self:
        """``t + value * tensor1 * tensor2``."""
        return self + (tensor1 * tensor2)._scaled(value)

    def addcdiv(self, tensor1: Self, tensor2: Self, *, value: float = 1) -> Self:
        """``t + value * tensor1 / tensor2``."""
        return self + (tensor1 / tensor2)._scaled(value)

    def float_power(self, exponent: Any) -> Self:
        """``t.double() ** exponent``."""
        return self.double().pow(exponent)

    # ---- comparisons -------------------------------------------------------------------------------------------------

    def gt(self, other: Any) -> Self:
        """``t > other``."""
        result: Self = self > other
        return result

    def lt(self, other: Any) -> Self:
        """``t < other``."""
        result: Self = self < other
        return result

    def ge(self, other: Any) -> Self:
        """``t >= other``."""
        result: Self = self >= other
        return result

    def le(self, other: Any) -> Self:
        """``t <= other``."""
        result: Self = self <= other
        return result

    greater, less, greater_equal, less_equal = gt, lt, ge, le

    def equal(self, other: Self) -> bool:
        """``t.shape == other.shape and (t == other).all().item()``."""
        return self.shape == other.shape and self.eq(other).all().item()

    def logical_and(self, other: Any) -> Self:
        """``t.bool() & other.bool()``."""
        return self.bool() & self.ufix(other).bool()

    def logical_or(self, other: Any) -> Self:
        """``t.bool() | other.bool()``."""
        return self.bool() | self.ufix(other).bool()

    def logical_xor(self, other: Any) -> Self:
        """``t.bool() ^ other.bool()``."""
        return self.bool() ^ self.ufix(other).bool()

    def isposinf(self) -> Self:
        """``t.isinf(detect_negative=False)``."""
        return self.isinf(True, False)

    def isneginf(self) -> Self:
        """``t.isinf(detect_positive=False)``."""
        return self.isinf(False, True)

    # ---- reductions --------------------------------------------------------------------------------------------------

    def norm(
        self, p: float | Literal["fro"] = 2, dim: Any = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
    ) -> Self:
        """``(t.abs() ** p).sum(dim, keepdim) ** (1 / p)``; the largest element for p = inf. Its gradient at 0 is 0.

        Powers neither overflow nor vanish where the norm itself has a place in the dtype. ``fro`` is 2.
        """
        if dtype is not None:
            return self.cast(dtype).norm(p, dim, keepdim)
        if p == "fro":
            p = 2
        own = self._statistics_dtype()
        wide = self.cast(least_upper_dtype(own, dtypes.float32))
        if p in {math.inf, -math.inf}:
            return self.abs().max(dim, keepdim) if p > 0 else self.abs().min(dim, keepdim)
        if p == 0:
            return self.ne(0).cast(self.dtype).sum(dim, keepdim)
        if p == 1:
            return wide.abs().sum(dim, keepdim).cast(self.abs().sum(dim, keepdim).dtype)
        return wide._power_norm(p, dim, keepdim).cast(own)

    def aminmax(self, dim: Any = None, keepdim: bool = False) -> tuple[Self, Self]:
        """``t.min(dim, keepdim), t.max(dim, keepdim)``."""
        return self.min(dim, keepdim), self.max(dim, keepdim)

    def count_nonzero(self, dim: Any = None) -> Self:
        """``(t != 0).sum(dim)``."""
        return self.ne(0).sum(dim)

    def nansum(self, dim: Any = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Self:
        """``t.isnan().where(0, t).sum(dim, keepdim)``."""
        return self.isnan().where(0, self).sum(dim, keepdim, dtype=dtype)

    def nanmean(self, dim: Any = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Self:
        """``t.nansum(dim, keepdim) / (~t.isnan()).sum(dim, keepdim)``."""
        values = self._float() if dtype is None else self.cast(dtype)
        count = values.isnan().logical_not().sum(dim, keepdim)
        return values.isnan().where(0, values)._quotient_of_sum(count, dim, keepdim)

    def diff(self, n: int = 1, dim: int = -1, prepend: Self | None = None, append: Self | None = None) -> Self:
        """``t[1:] - t[:-1]`` along ``dim``, ``n`` times, of ``prepend.cat(t, append, dim=dim)``."""
        require_int("diff", "n", n, 0)
        axis, value = self._resolve_dim(dim, op="diff"), self
        if prepend is not None:
            value = prepend.cat(value, dim=axis)
        if append is not None:
            value = value.cat(append, dim=axis)
        if n > 0 and value.ndim == 0:
            raise ShapeError(
                error_text("diff", "a number has no neighbours", {"self": self}, hint="reshape it to (1,)")
            )
        steps = min(n, most_of(value.shape[axis])) if n > 0 else 0  # then nothing is left
        check_parts("diff", steps, self)
        for _ in range(steps):
            size = value.shape[axis]
            value = value._slice_dim(axis, min(1, size), size) - value._slice_dim(axis, 0, max(size - 1, 0))
        return value

    def trace(self) -> Self:
        """``t.diagonal().sum()``."""
        return self.diagonal().sum()
