"""Activation functions.

In:   the operators and the math functions.
Out:  graphs with finite, right gradients at saturation and at the corners (as torch).
Why:  a formula alone is not enough: most of them overflow or lose digits, or their gradients do, somewhere.

The errors that docstrings state are the largest ones over all float32 inputs, in units in the last place of the result
(``test/backend/test_accuracy.py``). Narrow floats are computed in float32 and rounded once more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.mixin.trigonometry import TrigonometryMixin
from tinygrad.mixin.unary import float_function

if TYPE_CHECKING:
    from typing import Self

_SHIFT = 64.0
_FAR = 10000.0  # sigmoid(-10000) is 0 in every dtype


class ActivationMixin(TrigonometryMixin):
    """Activation functions."""

    __slots__ = ()

    def relu(self) -> Self:
        """Return max(x, 0); NaN stays, the gradient at 0 is 0.

        Example:
            >>> Tensor([-1.0, 2.0]).relu().tolist()
            [0.0, 2.0]
        """
        larger = self.maximum(0)
        if not dtypes.is_float(self.dtype):
            return larger
        larger = larger.detach()
        return larger.eq(0).where(larger, self)  # NaN keeps its gradient, as in torch

    def relu6(self) -> Self:
        """Return min(max(x, 0), 6).

        Example:
            >>> Tensor([-1.0, 2.0, 9.0]).relu6().tolist()
            [0.0, 2.0, 6.0]
        """
        return self._hard_limit(0, 6)

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """Limit to [min_val, max_val]; the gradient on the bounds is 0.

        Example:
            >>> Tensor([-3.0, 0.5, 3.0]).hardtanh().tolist()
            [-1.0, 0.5, 1.0]
        """
        if min_val > max_val:
            raise ValueError(f"hardtanh: min_val={min_val}, max_val={max_val}; expected min_val <= max_val")
        return self._hard_limit(min_val, max_val)

    def _hard_limit(self, low: float, high: float) -> Self:
        limited = self._kept_within(low, high).detach()
        return ((self <= low) | (self >= high)).where(limited, self)  # NaN keeps its gradient, as in torch

    @float_function(weak=True)
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)). Error: 2.4 ulp.

        Example:
            >>> Tensor([0.0, 1.0, -1000.0]).sigmoid().numpy()
            array([0.5      , 0.7310586, 0.       ], dtype=float32)
        """
        # exp(x) / (1 + exp(x)) is accurate for all negative x; from 40 on the result is 1 in every dtype.
        power = (self > 40).where(40.0, self).exp()
        value = power / (power + 1)
        return value._with_gradient(self, value * (1 - value))

    @float_function(weak=True)
    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """Return x above 0, neg_slope * x below. Error: 1 ulp.

        Example:
            >>> Tensor([-2.0, 2.0]).leaky_relu(neg_slope=0.25).tolist()
            [-0.5, 2.0]
        """
        return (self > 0).where(self, self * neg_slope)

    @float_function()
    def elu(self, alpha: float = 1.0) -> Self:
        """Return x above 0, alpha * (exp(x) - 1) below. Error: 1.8 ulp.

        Example:
            >>> Tensor([-1.0, 2.0]).elu().numpy()
            array([-0.63212055,  2.        ], dtype=float32)
        """
        below = (self > 0).where(0.0, self)
        value = (self > 0).where(self, below.expm1() * alpha)
        return value._with_gradient(self, (self > 0).where(1.0, below.exp() * alpha))

    @float_function(weak=True)
    def celu(self, alpha: float = 1.0) -> Self:
        """Return max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)). Error: 1.8 ulp.

        Example:
            >>> Tensor([-1.0, 2.0]).celu(alpha=2.0).numpy()
            array([-0.78693867,  2.        ], dtype=float32)
        """
        if alpha == 0:
            raise ValueError(f"celu: alpha={alpha}; expected another number than 0: x is divided by it")
        below = (self > 0).where(0.0, self) / alpha
        value = (self > 0).where(self, below.expm1() * alpha)
        return value._with_gradient(self, below.exp())

    @float_function()
    def selu(self, alpha: float = 1.67326, gamma: float = 1.0507) -> Self:
        """Return gamma * elu(x, alpha). Error: 4.1 ulp.

        Example:
            >>> Tensor([-1.0, 2.0]).selu().numpy()
            array([-1.1113275,  2.1014   ], dtype=float32)
        """
        return self.elu(alpha) * gamma

    @float_function(weak=True)
    def gelu(self, approximate: str = "tanh") -> Self:
        """Return x times the normal distribution function, through tanh or (``none``) exactly, through erf.

        Error: 6 ulp exactly, 4 + 2 * x**2 ulp through tanh.

        Raises:
            RuntimeError: Another approximation.

        Example:
            >>> Tensor([-1.0, 2.0]).gelu().numpy()
            array([-0.158808 ,  1.9545978], dtype=float32)
            >>> Tensor([-1.0, 2.0]).gelu(approximate="none").numpy()
            array([-0.15865526,  1.9544997 ], dtype=float32)
        """
        if approximate not in {"tanh", "none"}:
            raise RuntimeError(f"gelu: approximate {approximate!r}; expected 'tanh' or 'none'")
        if approximate == "none":
            return self._normal_gelu()
        factor = 2 * math.sqrt(2 / math.pi)
        inner = (self + self * self * self * 0.044715) * factor  # (1 + tanh(y)) / 2 is sigmoid(2 y)
        near = self._limited()
        return self._times_sigmoid(inner, (near * near * (3 * 0.044715) + 1) * factor)

    def _normal_gelu(self) -> Self:
        from tinygrad.mixin import approx

        if self.dtype in dtypes.weaks:
            return self.cast(dtypes.default_float)._normal_gelu().cast(self.dtype)
        x = self._kept_within(-100.0, 100.0)
        density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        slope = ((x * math.sqrt(0.5)).erf() + 1) * 0.5 + x * density
        return approx.times_normal(self)._with_gradient(self, slope)

    @float_function(weak=True)
    def quick_gelu(self) -> Self:
        """Return x * sigmoid(1.702 x). Error: 3 + 2 * abs(x) ulp.

        Example:
            >>> Tensor([-1.0, 2.0]).quick_gelu().numpy()
            array([-0.15420423,  1.9356586 ], dtype=float32)
        """
        return self._times_sigmoid(self * 1.702, self.const_like(1.702))

    @float_function(weak=True)
    def swish(self) -> Self:
        """Return x * sigmoid(x). Error: 3 ulp.

        Example:
            >>> Tensor([-1.0, 2.0]).swish().numpy()
            array([-0.26894143,  1.761594  ], dtype=float32)
        """
        return self._times_sigmoid(self, self.const_like(1.0))

    def _limited(self) -> Self:
        """Return self within bounds beyond which a sigmoid is 0 or 1: an infinity times that 0 would be NaN."""
        return self._kept_within(-_FAR, _FAR)

    def _times_sigmoid(self, inner: Self, inner_slope: Self) -> Self:
        """Return self * sigmoid(inner), given the derivative of ``inner`` with respect to self.

        Where exp(-inner) would be infinite, the quotient x / (1 + exp(-inner)) is expanded by exp(-64).
        """
        is_small = inner < -_SHIFT
        one = is_small.where(self.const_like(math.exp(-_SHIFT)), 1.0)
        power = (is_small.where(inner + _SHIFT, inner) * -1).exp()
        value = self._not_below() * one / (one + power)
        part = inner.sigmoid()
        slope = part * (self._limited() * inner_slope * (1 - part) + 1)
        return value._with_gradient(self, slope)

    def _not_below(self) -> Self:
        """Return self, bounded where these activations are 0, so that -inf gives 0 too."""
        return (self < -_FAR).where(-_FAR, self)

    def silu(self) -> Self:
        """Alias of ``swish``.

        Example:
            >>> Tensor([-1.0, 2.0]).silu().numpy()
            array([-0.26894143,  1.761594  ], dtype=float32)
        """
        return self.swish()

    @float_function(weak=True)
    def hardswish(self) -> Self:
        """Return x * relu6(x + 3) / 6. Error: 2.6 ulp.

        Example:
            >>> Tensor([-4.0, 0.0, 3.0]).hardswish().tolist()
            [-0.0, 0.0, 3.0]
        """
        value = (self < -3).where(-3.0, self) * ((self + 3)._kept_within(0, 6) * (1 / 6))
        inside = self * (1 / 3) + 0.5
        return value._with_gradient(self, (self <= -3).where(0.0, (self < 3).where(inside, 1.0)))

    @float_function(weak=True)
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """Return alpha * x + beta, limited to [0, 1]. Error: 1.5 ulp.

        Example:
            >>> Tensor([-4.0, 0.0, 3.0]).hardsigmoid().tolist()
            [0.0, 0.5, 1.0]
        """
        # With x + beta / alpha nothing cancels after a rounding.
        line = (self + beta / alpha) * alpha if alpha else self * alpha + beta
        # Beyond the limits, and at NaN, there is no slope, as in torch.
        return ((line > 0) & (line < 1)).where(line, line._kept_within(0, 1).detach())

    @float_function(weak=True)
    def softplus(self, beta: float = 1.0, threshold: float = math.inf) -> Self:
        """Return log(1 + exp(beta x)) / beta, or x where beta x > threshold. Error: 2.6 ulp, in float64 4.2 ulp.

        No threshold is needed for large x.

        Example:
            >>> Tensor([-1.0, 0.0, 100.0]).softplus().numpy()
            array([  0.3132617,   0.6931472, 100.       ], dtype=float32)
        """
        from tinygrad.mixin import approx

        scaled = self * beta
        # The linear part is self, not beta x / beta: beta x may overflow.
        value = approx.log1p_of_share((scaled.abs() * -1).exp()) / beta + (scaled > 0).where(self, 0.0)
        value = value._with_gradient(self, scaled.sigmoid())
        return value if threshold == math.inf else (scaled > threshold).where(self, value)

    @float_function(weak=True)
    def mish(self) -> Self:
        """Return x * tanh(softplus(x)). Error: 4.3 ulp.

        Example:
            >>> Tensor([-1.0, 2.0]).mish().numpy()
            array([-0.30340147,  1.943959  ], dtype=float32)
        """
        # For y = exp(x), tanh(log(1 + y)) is n / (n + 2) with n = y * (y + 2). Where y may be a subnormal
        # number, that is 2y / 2, and exp(x + 64) stands for y. Beyond 40 the quotient is 1 in every dtype.
        is_small = self < -_SHIFT
        power = is_small.where(self + _SHIFT, (self > 40).where(40.0, self)).exp()
        numerator = is_small.where(power, power * (power + 2))
        denominator = is_small.where(math.exp(_SHIFT), numerator + 2)
        x = self._not_below()
        value = is_small.where(x * numerator, numerator) / denominator * is_small.where(1.0, x)
        part = numerator / denominator
        slope = part + self._limited() * self.sigmoid() * (1 - part * part)
        return value._with_gradient(self, slope)

    @float_function(weak=True)
    def logsigmoid(self) -> Self:
        """Return log(sigmoid(x)) without overflow. Error: 2.6 ulp, in float64 4.2 ulp.

        Example:
            >>> Tensor([-100.0, 0.0]).logsigmoid().numpy()
            array([-100.       ,   -0.6931472], dtype=float32)
        """
        return -(-self).softplus()

    @float_function()
    def softsign(self) -> Self:
        """Return x / (1 + abs(x)), -1 and 1 at the infinities. Error: 1.5 ulp.

        Example:
            >>> Tensor([-1.0, 3.0]).softsign().tolist()
            [-0.5, 0.75]
        """
        # Beyond 2**60 the quotient is 1 in every dtype.
        x = self._kept_within(-(2.0**60), 2.0**60)
        divisor = self.abs() + 1
        return (x / (x.abs() + 1))._with_gradient(self, (divisor * divisor).reciprocal())
