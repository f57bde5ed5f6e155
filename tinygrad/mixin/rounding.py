"""Sign, magnitude, rounding to integers, and what kind of number a value is.

In:   ``alu`` with TRUNC, and the operators.
Out:  exact functions of one value, and ``_with_gradient`` for all that build on them.

``_with_gradient`` states a derivative: the node has the value of its first source, and its gradient with respect to the
second source is the third one times the incoming gradient. So the backward pass reads the result that the forward pass
stored, and is right where differentiating the formula would give inf * 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes, least_upper_dtype, strong_dtype
from tinygrad.mixin.operators import OperatorMixin
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self


class RoundingMixin(OperatorMixin):
    """Sign, magnitude, rounding and tests."""

    __slots__ = ()

    def _with_gradient(self, *pairs: Self) -> Self:
        """State the derivative of self: ``pairs`` are a source and d self / d source, as often as there are sources."""
        return self.alu(Ops.DETACH, *pairs)

    # ---- sign, magnitude, rounding ---------------------------------------------------------------------------------

    def neg(self) -> Self:
        """Negation (logical not on bool).

        Example:
            >>> Tensor([1, -2]).neg().tolist()
            [-1, 2]
        """
        return self.logical_not() if self.dtype is dtypes.bool else self * -1

    def abs(self) -> Self:
        """Absolute value; the gradient at 0 is 0.

        Example:
            >>> Tensor([1, -2]).abs().tolist()
            [1, 2]
        """
        if self.dtype is dtypes.bool or dtypes.is_unsigned(self.dtype):
            return self
        negative = (self < 0).where(self * -1, self)
        if not dtypes.is_float(self.dtype):
            return negative
        # The product serves 0, -0.0 and NaN: it is 0 without a sign or NaN.
        value = (self > 0).where(self, (self < 0).where(self * -1, self * self))
        return value._with_gradient(self, self.sign())

    def sign(self) -> Self:
        """-1, 0 or 1; NaN stays.

        Example:
            >>> Tensor([2.0, -3.0, 0.0]).sign().tolist()
            [1.0, -1.0, 0.0]
        """
        if self.dtype is dtypes.bool:
            return self
        if not dtypes.is_float(self.dtype):
            return (self > 0).where(self.const_like(1), (self < 0).where(self.const_like(-1), self.const_like(0)))
        zero_or_nan = self.isnan().where(self.detach(), self.const_like(0))
        return (self > 0).where(1.0, (self < 0).where(-1.0, zero_or_nan))

    def trunc(self) -> Self:
        """Toward zero.

        Example:
            >>> Tensor([1.7, -1.7]).trunc().tolist()
            [1.0, -1.0]
        """
        return self.alu(Ops.TRUNC) if dtypes.is_float(self.dtype) else self

    def floor(self) -> Self:
        """Down to the next integer.

        Example:
            >>> Tensor([1.7, -1.7]).floor().tolist()
            [1.0, -2.0]
        """
        if not dtypes.is_float(self.dtype):
            return self.cast(least_upper_dtype(self.dtype, dtypes.weakint))
        toward_zero = self.trunc()
        return (self < toward_zero).where(toward_zero - 1, toward_zero)

    def ceil(self) -> Self:
        """Up to the next integer.

        Example:
            >>> Tensor([1.2, -1.2]).ceil().tolist()
            [2.0, -1.0]
        """
        if not dtypes.is_float(self.dtype):
            return self.cast(least_upper_dtype(self.dtype, dtypes.weakint))
        toward_zero = self.trunc()
        return (toward_zero < self).where(toward_zero + 1, toward_zero)

    def round(self, decimals: int = 0) -> Self:
        """To the nearest integer, halves to the even one; or to so many decimals, tens for -1.

        Example:
            >>> Tensor([0.5, 1.5, -2.6]).round().tolist()
            [0.0, 2.0, -3.0]
            >>> Tensor([1234.0]).round(decimals=-2).tolist()
            [1200.0]
        """
        if not dtypes.is_float(self.dtype):
            floats = self.cast(least_upper_dtype(self.dtype, dtypes.weakfloat))
            return floats.round(decimals) if decimals else floats
        if decimals:
            wide = self if self.dtype in dtypes.weaks else self.cast(least_upper_dtype(self.dtype, dtypes.float32))
            return wide._rounded_at(decimals).cast(self.dtype)
        toward_zero = self.trunc()
        part = (self - toward_zero).abs()
        odd = ((toward_zero * 0.5).trunc() * 2).ne(toward_zero)
        away = (part > 0.5) | (part.eq(0.5) & odd)
        return away.where(toward_zero + (self < 0).where(-1.0, 1.0).cast(self.dtype), toward_zero)

    def _rounded_at(self, decimals: int) -> Self:
        """Round floats of at least 32 bits to so many decimals, not 0; values that are coarser than these stay."""
        exponent, mantissa = dtypes.finfo(strong_dtype(self.dtype))
        most = int(2 ** (exponent - 1) * math.log10(2))  # 10**most has a place in the dtype
        # By the positive power, which is exact where the negative one is not.
        power = 10.0 ** min(abs(decimals), most)
        if decimals < -most:
            return (self / power / power).round()  # zeros with their signs, infinities, NaN
        if decimals < 0:
            return (self / power).round() * power
        kept = self.detach()  # a step function has no slope
        if decimals > most:
            return kept
        scaled = self * power
        rounded: Self = (scaled.abs() < 2.0 ** (mantissa + 1)).where(scaled.round() / power, kept)
        return rounded

    # ---- tests -----------------------------------------------------------------------------------------------------

    def isnan(self) -> Self:
        """Whether NaN.

        Example:
            >>> Tensor([1.0, math.nan]).isnan().tolist()
            [False, True]
        """
        return self.ne(self) if dtypes.is_float(self.dtype) else self.const_like(False, dtypes.bool)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Whether infinite; the flags choose which infinities count.

        Example:
            >>> Tensor([1.0, math.inf, -math.inf]).isinf(detect_negative=False).tolist()
            [False, True, False]
        """
        found = self.const_like(False, dtypes.bool)
        if dtypes.is_float(self.dtype):
            if detect_positive:
                found = self.eq(math.inf)
            if detect_negative:
                found = found | self.eq(-math.inf) if detect_positive else self.eq(-math.inf)
        return found

    def isfinite(self) -> Self:
        """Whether neither infinite nor NaN.

        Example:
            >>> Tensor([1.0, math.inf, math.nan]).isfinite().tolist()
            [True, False, False]
        """
        if not dtypes.is_float(self.dtype):
            return self.const_like(True, dtypes.bool)
        if self.dtype in dtypes.fp8s and self.dtype is not dtypes.fp8e5m2:  # they have no infinity
            return self.isnan().logical_not()
        return (self < math.inf) & (self > -math.inf)

    def logical_not(self) -> Self:
        """Whether False (or zero).

        Example:
            >>> Tensor([0, 1, 2]).logical_not().tolist()
            [True, False, False]
        """
        return self.cast(dtypes.bool).alu(Ops.CMPNE, self.ufix(True))
