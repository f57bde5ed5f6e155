"""Activation functions.

In:   the operators and the math functions.
Out:  graphs with finite, right gradients at saturation and at the corners (as torch).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.mixin.unary import UnaryMixin, float_function

if TYPE_CHECKING:
    from typing import Self


class ActivationMixin(UnaryMixin):
    """Activation functions."""

    __slots__ = ()

    def relu(self) -> Self:
        """Return max(x, 0); NaN stays, the gradient at 0 is 0."""
        larger = self.maximum(0)
        if not dtypes.is_float(self.dtype):
            return larger
        larger = larger.detach()
        return (larger > 0).where(self, larger)

    def relu6(self) -> Self:
        """Return min(max(x, 0), 6)."""
        return self._hard_limit(0, 6)

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """Limit to [min_val, max_val]; the gradient on the bounds is 0."""
        return self._hard_limit(min_val, max_val)

    def _hard_limit(self, low: float, high: float) -> Self:
        limited = self.clamp(low, high).detach()
        return ((self > low) & (self < high)).where(self, limited)

    @float_function(weak=True)
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))."""
        # exp(x) / (1 + exp(x)) is accurate for all negative x; from 40 on the result is 1 in every dtype.
        power = (self > 40).where(40.0, self).exp()
        value = power / (power + 1)
        return value._with_gradient(self, value * (1 - value))

    @float_function(weak=True)
    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """Return x above 0, neg_slope * x below."""
        return (self > 0).where(self, self * neg_slope)

    @float_function()
    def elu(self, alpha: float = 1.0) -> Self:
        """Return x above 0, alpha * (exp(x) - 1) below."""
        below = (self > 0).where(0.0, self).expm1() * alpha
        return (self > 0).where(self, below)._with_gradient(self, (self > 0).where(1.0, below + alpha))

    @float_function(weak=True)
    def celu(self, alpha: float = 1.0) -> Self:
        """Return max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
        minus_one = ((self > 0).where(0.0, self) / alpha).expm1()
        value = (self > 0).where(self, minus_one * alpha)
        return value._with_gradient(self, (self > 0).where(1.0, minus_one + 1))

    def selu(self, alpha: float = 1.67326, gamma: float = 1.0507) -> Self:
        """Return gamma * elu(x, alpha)."""
        return self.elu(alpha) * gamma

    @float_function(weak=True)
    def gelu(self, approximate: str = "tanh") -> Self:
        """Return x times the normal distribution function, through tanh or (``none``) exactly, through erf.

        Raises:
            RuntimeError: Another approximation.
        """
        if approximate not in {"tanh", "none"}:
            raise RuntimeError(f"gelu: approximate {approximate!r}; expected 'tanh' or 'none'")
        if approximate == "none":
            return self * 0.5 * ((self * math.sqrt(0.5)).erf() + 1)
        inner = (self + self * self * self * 0.044715) * math.sqrt(2 / math.pi)
        return self * 0.5 * (inner.tanh() + 1)

    @float_function(weak=True)
    def quick_gelu(self) -> Self:
        """Return x * sigmoid(1.702 x)."""
        return self * (self * 1.702).sigmoid()

    @float_function(weak=True)
    def swish(self) -> Self:
        """Return x * sigmoid(x)."""
        return self * self.sigmoid()

    def silu(self) -> Self:
        """Alias of ``swish``."""
        return self.swish()

    @float_function(weak=True)
    def hardswish(self) -> Self:
        """Return x * relu6(x + 3) / 6."""
        value = self * (self + 3).clamp(0, 6) * (1 / 6)
        inside = self * (1 / 3) + 0.5
        return value._with_gradient(self, (self <= -3).where(0.0, (self < 3).where(inside, 1.0)))

    @float_function(weak=True)
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """Return alpha * x + beta, limited to [0, 1]."""
        return (self * alpha + beta)._hard_limit(0, 1)

    @float_function(weak=True)
    def softplus(self, beta: float = 1.0) -> Self:
        """Return log(1 + exp(beta x)) / beta."""
        scaled = self * beta
        value = ((scaled.abs() * -1).exp().log1p() + scaled.maximum(0)) / beta
        return value._with_gradient(self, scaled.sigmoid())

    @float_function(weak=True)
    def mish(self) -> Self:
        """Return x * tanh(softplus(x))."""
        return self * self.softplus().tanh()

    def logsigmoid(self) -> Self:
        """Return log(sigmoid(x)) without overflow."""
        return (self * -1).softplus() * -1

    @float_function()
    def softsign(self) -> Self:
        """Return x / (1 + abs(x))."""
        return self / (self.abs() + 1)
