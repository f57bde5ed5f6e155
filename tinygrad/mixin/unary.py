"""Math functions of one value.

In:   ``alu`` with EXP2, LOG2, SIN, SQRT, RECIPROCAL, TRUNC, and the operators.
Out:  graphs that are accurate over the whole range, with the derivative stated where that is simpler than deriving it.
Why:  targets have few functions; here is what the others are made of, the same on all of them.

The errors that docstrings state are the largest ones over all float32 inputs, in units in the last place of the result
(``test/backend/test_accuracy.py``); float64 stays within them too where no second number is given. Narrow floats are
computed in float32 and rounded once more.

``_with_gradient`` states a derivative: the node has the value of its first source, and its gradient with respect to the
second source is the third one times the incoming gradient. So the backward pass reads the result that the forward pass
stored, and is right where differentiating the formula would give inf * 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tinygrad.dtype import dtypes, least_upper_dtype, least_upper_float
from tinygrad.mixin.operators import NARROW_FLOATS, OperatorMixin
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self

LN2 = math.log(2.0)
LOG2E = 1.0 / LN2


F = TypeVar("F", bound=Callable[..., Any])


def float_function(*, weak: bool = False, weak_bool: bool = False) -> Callable[[F], F]:
    """Decorate a function of a float: other dtypes are cast first, narrow floats are computed in float32.

    Args:
        weak: Integers and bools become weakfloat instead of the default float.
        weak_bool: Bools do.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            dtype = self.dtype
            if dtype in NARROW_FLOATS:
                return function(self.cast(dtypes.float32), *args, **kwargs).cast(dtype)
            if not dtypes.is_float(dtype):
                self = self.cast(
                    least_upper_dtype(dtype, dtypes.weakfloat)
                    if weak or (weak_bool and dtype is dtypes.bool)
                    else least_upper_float(dtype)
                )
            return function(self, *args, **kwargs)

        return cast("F", run)

    return decorate


class UnaryMixin(OperatorMixin):
    """Math functions of one value."""

    __slots__ = ()

    def _with_gradient(self, *pairs: Self) -> Self:
        """State the derivative of self: ``pairs`` are a source and d self / d source, as often as there are sources."""
        return self.alu(Ops.DETACH, *pairs)

    def _float(self) -> Self:
        return self.cast(least_upper_float(self.dtype))

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

    def round(self) -> Self:
        """To the nearest integer, halves to the even one.

        Example:
            >>> Tensor([0.5, 1.5, -2.6]).round().tolist()
            [0.0, 2.0, -3.0]
        """
        if not dtypes.is_float(self.dtype):
            return self.cast(least_upper_dtype(self.dtype, dtypes.weakfloat))
        toward_zero = self.trunc()
        part = (self - toward_zero).abs()
        odd = ((toward_zero * 0.5).trunc() * 2).ne(toward_zero)
        away = (part > 0.5) | (part.eq(0.5) & odd)
        return away.where(toward_zero + (self < 0).where(-1.0, 1.0).cast(self.dtype), toward_zero)

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

    # ---- powers ----------------------------------------------------------------------------------------------------

    def square(self) -> Self:
        """Return x * x.

        Example:
            >>> Tensor([1.0, -3.0]).square().tolist()
            [1.0, 9.0]
        """
        return self * self

    def sqrt(self) -> Self:
        """Square root; NaN below 0. Error: 0.5 ulp.

        Example:
            >>> Tensor([4.0, 0.25]).sqrt().tolist()
            [2.0, 0.5]
        """
        return self._float().alu(Ops.SQRT)

    @float_function()
    def rsqrt(self) -> Self:
        """1 / sqrt(x). Error: 1.5 ulp.

        Example:
            >>> Tensor([4.0, 0.25]).rsqrt().tolist()
            [0.5, 2.0]
        """
        return self.sqrt().reciprocal()

    def reciprocal(self) -> Self:
        """1 / x. Error: 0.5 ulp.

        Example:
            >>> Tensor([4.0, 0.5]).reciprocal().tolist()
            [0.25, 2.0]
        """
        return self._float().alu(Ops.RECIPROCAL)

    # ---- exponentials and logarithms -------------------------------------------------------------------------------

    @float_function()
    def exp(self) -> Self:
        """Return e ** x. Error: 0.9 ulp.

        Example:
            >>> Tensor([0.0, 1.0]).exp().numpy()
            array([1.       , 2.7182817], dtype=float32)
        """
        # Lowering recognises this product and reduces the argument in extended precision.
        value = (self * LOG2E).alu(Ops.EXP2)
        return value._with_gradient(self, value)

    def exp2(self) -> Self:
        """2 ** x. Error: 0.9 ulp.

        Example:
            >>> Tensor([0.0, 3.0, -1.0]).exp2().tolist()
            [1.0, 8.0, 0.5]
        """
        return self._float().alu(Ops.EXP2)

    @float_function()
    def log(self) -> Self:
        """Natural logarithm. Error: 1.5 ulp, in float64 2.8 ulp.

        Example:
            >>> Tensor([1.0, 10.0]).log().numpy()
            array([0.       , 2.3025851], dtype=float32)
        """
        return (self.alu(Ops.LOG2) * LN2)._with_gradient(self, self.reciprocal())

    def log2(self) -> Self:
        """Logarithm to base 2: -inf at 0, NaN below. Error: 1 ulp, in float64 2.5 ulp.

        Example:
            >>> Tensor([8.0, 0.5]).log2().tolist()
            [3.0, -1.0]
        """
        return self._float().alu(Ops.LOG2)

    @float_function()
    def log10(self) -> Self:
        """Logarithm to base 10. Error: 2.2 ulp, in float64 2.8 ulp.

        Example:
            >>> Tensor([1.0, 5.0]).log10().numpy()
            array([0.     , 0.69897], dtype=float32)
        """
        return (self.alu(Ops.LOG2) * math.log10(2.0))._with_gradient(self, (self * math.log(10.0)).reciprocal())

    @float_function()
    def expm1(self) -> Self:
        """Return e ** x - 1, accurate near 0. Error: 1.8 ulp.

        Example:
            >>> Tensor([1e-6, 1.0]).expm1().numpy()
            array([1.0000005e-06, 1.7182817e+00], dtype=float32)
        """
        from tinygrad.mixin import approx

        value = approx.expm1(self)
        return value._with_gradient(self, value + 1)

    @float_function()
    def log1p(self) -> Self:
        """Return log(1 + x), accurate near 0. Error: 2 ulp, in float64 3 ulp.

        Example:
            >>> Tensor([1e-6, 1.0]).log1p().numpy()
            array([9.999995e-07, 6.931472e-01], dtype=float32)
        """
        from tinygrad.mixin import approx

        return approx.log1p(self)._with_gradient(self, (self + 1).reciprocal())

    # ---- trigonometry ----------------------------------------------------------------------------------------------

    def sin(self) -> Self:
        """Sine, of any size of x; NaN for infinities. Error: 1.1 ulp.

        Example:
            >>> Tensor([0.0, 1.0, 1e6]).sin().numpy()
            array([ 0.        ,  0.84147096, -0.3499935 ], dtype=float32)
        """
        return self._float().alu(Ops.SIN)

    @float_function()
    def cos(self) -> Self:
        """Cosine, of any size of x; NaN for infinities. Error: 1.1 ulp.

        Example:
            >>> Tensor([0.0, 1.0, 1e6]).cos().numpy()
            array([1.        , 0.54030234, 0.93675214], dtype=float32)
        """
        # Lowering recognises the sum: it shifts by a quarter turn after the exact reduction of x, and adds nothing.
        value = (self + math.pi / 2).alu(Ops.SIN)
        return value._with_gradient(self, self.alu(Ops.SIN) * -1)

    @float_function()
    def tan(self) -> Self:
        """Tangent, of any size of x; NaN for infinities. Error: 2.7 ulp.

        Example:
            >>> Tensor([0.0, 1.0]).tan().numpy()
            array([0.       , 1.5574076], dtype=float32)
        """
        value = self.alu(Ops.SIN).alu(Ops.FDIV, self.cos())
        return value._with_gradient(self, value * value + 1)

    @float_function(weak=True)
    def asin(self) -> Self:
        """Inverse sine; NaN outside [-1, 1]. Error: 2.8 ulp.

        Example:
            >>> Tensor([0.0, 0.5, 1.0]).asin().numpy()
            array([0.       , 0.5235988, 1.5707964], dtype=float32)
        """
        from tinygrad.mixin import approx

        return approx.asin(self)._with_gradient(self, ((1 - self) * (1 + self)).rsqrt())

    @float_function(weak=True)
    def acos(self) -> Self:
        """Inverse cosine; NaN outside [-1, 1]. Error: 2.2 ulp.

        Example:
            >>> Tensor([0.0, 0.5, 1.0]).acos().numpy()
            array([1.5707964, 1.0471976, 0.       ], dtype=float32)
        """
        from tinygrad.mixin import approx

        near_one = approx.asin(((1 - self) * 0.5).sqrt()) * 2
        value = (self > 0.5).where(near_one, approx.asin(self) * -1 + math.pi / 2)
        return value._with_gradient(self, ((1 - self) * (1 + self)).rsqrt() * -1)

    @float_function(weak_bool=True)
    def atan(self) -> Self:
        """Inverse tangent. Error: 1.9 ulp.

        Example:
            >>> Tensor([0.0, 1.0, math.inf]).atan().numpy()
            array([0.       , 0.7853981, 1.5707964], dtype=float32)
        """
        from tinygrad.mixin import approx

        return approx.atan(self)._with_gradient(self, (self * self + 1).reciprocal())

    # ---- hyperbolic functions --------------------------------------------------------------------------------------

    @float_function()
    def sinh(self) -> Self:
        """Hyperbolic sine. Error: 3 ulp.

        Example:
            >>> Tensor([0.0, 1.0]).sinh().numpy()
            array([0.       , 1.1752012], dtype=float32)
        """
        return self._sinh()._with_gradient(self, self._cosh())

    @float_function()
    def cosh(self) -> Self:
        """Hyperbolic cosine. Error: 2.5 ulp.

        Example:
            >>> Tensor([0.0, 1.0]).cosh().numpy()
            array([1.       , 1.5430806], dtype=float32)
        """
        return self._cosh()._with_gradient(self, self._sinh())

    def _sinh(self) -> Self:
        from tinygrad.mixin import approx

        minus_one = approx.expm1(self.abs())
        moderate = (minus_one + minus_one / (minus_one + 1)) * 0.5
        # exp(x) overflows before sinh(x) does.
        half = (self.abs() * 0.5 * LOG2E).alu(Ops.EXP2)
        value = (self.abs() > 20).where(half * 0.5 * half, moderate)
        return (self < 0).where(value * -1, self.eq(0).where(self, value))

    def _cosh(self) -> Self:
        half = (self.abs() * 0.5 * LOG2E).alu(Ops.EXP2)
        whole = (self.abs().clamp(max_=40.0) * LOG2E).alu(Ops.EXP2)
        return (self.abs() > 20).where(half * 0.5 * half, (whole + whole.reciprocal()) * 0.5)

    @float_function(weak=True)
    def tanh(self) -> Self:
        """Hyperbolic tangent, accurate near 0 and far out. Error: 4 ulp.

        Example:
            >>> Tensor([0.0, 1.0, 100.0]).tanh().numpy()
            array([0.       , 0.7615942, 1.       ], dtype=float32)
        """
        from tinygrad.mixin import approx

        # From 20 on the result is 1 in every dtype; the bound keeps expm1 finite.
        minus_one = approx.expm1((self > 20).where(20.0, self) * 2)
        value = minus_one / (minus_one + 2)
        return value._with_gradient(self, 1 - value * value)

    @float_function(weak_bool=True)
    def asinh(self) -> Self:
        """Inverse hyperbolic sine. Error: 2.8 ulp, in float64 3.5 ulp.

        Example:
            >>> Tensor([0.0, 1.0]).asinh().numpy()
            array([0.       , 0.8813736], dtype=float32)
        """
        from tinygrad.mixin import approx

        x = self.abs()
        small = approx.log1p(x + x * x / ((x * x + 1).sqrt() + 1))
        value = (x > 1e9).where(x.log() + LN2, small)
        value = (self < 0).where(value * -1, self.eq(0).where(self, value))
        # The square of a large number is infinite.
        slope = (x > 1e9).where(x.reciprocal(), (self * self + 1).rsqrt())
        return value._with_gradient(self, slope)

    @float_function(weak_bool=True)
    def acosh(self) -> Self:
        """Inverse hyperbolic cosine; NaN below 1. Error: 3.1 ulp.

        Example:
            >>> Tensor([1.0, 2.0]).acosh().numpy()
            array([0.      , 1.316958], dtype=float32)
        """
        from tinygrad.mixin import approx

        above = self - 1
        small = approx.log1p(above + (above * (above + 2)).sqrt())
        value = (self > 1e9).where(self.log() + LN2, (self < 1).where(math.nan, small))
        return value._with_gradient(self, above.rsqrt() * (self + 1).rsqrt())

    @float_function()
    def atanh(self) -> Self:
        """Inverse hyperbolic tangent: infinite at -1 and 1, NaN outside. Error: 2.9 ulp, in float64 4 ulp.

        Example:
            >>> Tensor([0.0, 0.5, 1.0]).atanh().numpy()
            array([0.        , 0.54930615,        inf], dtype=float32)
        """
        from tinygrad.mixin import approx

        x = self.abs()
        value = approx.log1p(x * 2 / (1 - x)) * 0.5
        value = (self < 0).where(value * -1, self.eq(0).where(self, value))
        return value._with_gradient(self, ((1 - self) * (1 + self)).reciprocal())

    @float_function()
    def erf(self) -> Self:
        """Error function. Error: 2.5 ulp, in float64 4.5 ulp.

        Example:
            >>> Tensor([0.0, 1.0]).erf().numpy()
            array([0.        , 0.84270084], dtype=float32)
        """
        from tinygrad.mixin import approx

        slope = (self * self * -1).exp() * (2.0 / math.sqrt(math.pi))
        return approx.erf(self)._with_gradient(self, slope)
