"""Powers, exponentials, logarithms and the error function.

In:   ``alu`` with EXP2, LOG2, SQRT, RECIPROCAL, and the operators.
Out:  graphs that are accurate over the whole range, with the derivative stated where that is simpler than deriving it.
Why:  targets have few functions; here is what the others are made of, the same on all of them.

The errors that docstrings state are the largest ones over all float32 inputs, in units in the last place of the result
(``test/backend/test_accuracy.py``); float64 stays within them too where no second number is given. Narrow floats are
computed in float32 and rounded once more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tinygrad.dtype import dtypes, least_upper_dtype, least_upper_float
from tinygrad.mixin.division import DivisionMixin
from tinygrad.mixin.operators import NARROW_FLOATS
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


class UnaryMixin(DivisionMixin):
    """Powers, exponentials, logarithms and the error function."""

    __slots__ = ()

    def _float(self) -> Self:
        return self.cast(least_upper_float(self.dtype))

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

        return approx.expm1(self)._with_gradient(self, self.exp())

    @float_function()
    def log1p(self) -> Self:
        """Return log(1 + x), accurate near 0. Error: 2 ulp, in float64 3 ulp.

        Example:
            >>> Tensor([1e-6, 1.0]).log1p().numpy()
            array([9.999995e-07, 6.931472e-01], dtype=float32)
        """
        from tinygrad.mixin import approx

        return approx.log1p(self)._with_gradient(self, (self + 1).reciprocal())

    @float_function()
    def erf(self) -> Self:
        """Error function. Error: 4 ulp, in float64 4.5 ulp.

        Example:
            >>> Tensor([0.0, 1.0]).erf().numpy()
            array([0.        , 0.84270084], dtype=float32)
        """
        from tinygrad.mixin import approx

        slope = (self * self * -1).exp() * (2.0 / math.sqrt(math.pi))
        return approx.erf(self)._with_gradient(self, slope)
