"""Trigonometric and hyperbolic functions, and their inverses.

In:   ``alu`` with SIN, and exponentials and logarithms.
Out:  graphs that are accurate over the whole range, with the derivative stated where that is simpler than deriving it.
Why:  as ``unary``, which also says what the errors in the docstrings mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.mixin.unary import LN2, LOG2E, UnaryMixin, float_function
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self


class TrigonometryMixin(UnaryMixin):
    """Trigonometric and hyperbolic functions."""

    __slots__ = ()

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

        return approx.acos(self)._with_gradient(self, ((1 - self) * (1 + self)).rsqrt() * -1)

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
        whole = (self.abs()._kept_within(None, 40.0) * LOG2E).alu(Ops.EXP2)
        return (self.abs() > 20).where(half * 0.5 * half, (whole + whole.reciprocal()) * 0.5)

    @float_function(weak=True)
    def tanh(self) -> Self:
        """Hyperbolic tangent, accurate near 0 and far out. Error: 4 ulp.

        Example:
            >>> Tensor([0.0, 1.0, 100.0]).tanh().numpy()
            array([0.       , 0.7615942, 1.       ], dtype=float32)
        """
        from tinygrad.mixin import approx

        value = approx.tanh(self)
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
