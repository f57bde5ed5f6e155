"""Functions of two numbers that PyTorch and numpy have: angles and lengths, common divisors, the bits of floats.

In:   the methods of Tensor.
Out:  ``NumberNames``.
Why:  see ``torch_names``. Most state their derivative, which a formula with cases would not give at the seams.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_float, strong_dtype
from tinygrad.errors import DTypeError, error_text
from tinygrad.mixin.operators import NARROW_FLOATS
from tinygrad.torch_names.arithmetic import ArithmeticNames
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.dtype import DType

# dtype -> (integer of its size, bits of the mantissa, of the exponent)
_FIELDS = {dtypes.float32: (dtypes.int32, 23, 8), dtypes.float64: (dtypes.int64, 52, 11)}


class NumberNames(ArithmeticNames):
    """Functions of two numbers, and of the parts of one."""

    __slots__ = ()

    def _float_pair(self, other: Any, name: str) -> tuple[Self, Self, DType]:
        """Return both as floats of a dtype to compute in, and the dtype of the result."""
        lhs, rhs = self._operands(other, op=name)
        dtype = least_upper_float(lhs.dtype)
        wide = dtypes.float32 if dtype in NARROW_FLOATS else dtype
        return lhs.cast(wide), rhs.cast(wide), dtype

    def _check_float(self, name: str) -> None:
        if not dtypes.is_float(self.dtype) or self.dtype.itemsize < 2:
            raise DTypeError(error_text(name, f"of float16 or wider floats, got {self.dtype}", {"tensor": self},
                                        hint="cast it: t.float()"))  # fmt: skip

    def atan2(self, other: Any) -> Self:
        """``(t / other).atan()`` in the quadrant of the point (other, t): from -pi to pi."""
        y, x, dtype = self._float_pair(other, "atan2")
        height, width = y.abs(), x.abs()
        smaller, larger = height.minimum(width), height.maximum(width)
        same = height.eq(width)  # 0 / 0 and inf / inf
        slope = same.where(larger.eq(0).where(0.0, 1.0), smaller / larger)
        angle = slope.atan()
        angle = (height > width).where(math.pi / 2 - angle, angle)
        angle = x._signbit().where(math.pi - angle, angle).copysign(y)
        square = x * x + y * y
        inverse = square.eq(0).where(0.0, square.reciprocal())
        return angle._with_gradient(y, x * inverse, x, y * inverse * -1).cast(dtype)

    arctan2 = atan2

    def hypot(self, other: Any) -> Self:
        """``(t * t + other * other).sqrt()``, which neither overflows nor underflows."""
        x, y, dtype = self._float_pair(other, "hypot")
        smaller, larger = x.abs().minimum(y.abs()), x.abs().maximum(y.abs())
        ratio = larger.eq(0).where(0.0, smaller / larger)
        length = (x.isinf() | y.isinf()).where(math.inf, larger * (ratio * ratio + 1).sqrt())
        return length._with_gradient(x, x / length, y, y / length).cast(dtype)

    def logaddexp2(self, other: Any) -> Self:
        """``(t.exp2() + other.exp2()).log2()``, stable for large values."""
        from tinygrad.mixin import approx

        x, y, dtype = self._float_pair(other, "logaddexp2")
        same = x.eq(y) & x.isinf()  # the difference of equal infinities is NaN
        distance = same.where(0.0, x - y) * math.log(2)
        value = x.maximum(y).detach() + approx.log1p_of_share((distance.abs() * -1).exp()) * (1 / math.log(2))
        return value._with_gradient(x, distance.sigmoid(), y, (distance * -1).sigmoid()).cast(dtype)

    def heaviside(self, values: Any) -> Self:
        """``(t > 0).where(1, (t == 0).where(values, 0))``."""
        lhs, rhs = self._operands(values, op="heaviside")
        return (lhs > 0).where(1, lhs.eq(0).where(rhs, 0)).cast(lhs.dtype)

    def sinc(self) -> Self:
        """``(math.pi * t).sin() / (math.pi * t)``, 1 at 0."""
        angle = self * math.pi
        is_zero = angle.eq(0)
        safe = is_zero.where(1.0, angle)
        value = is_zero.where(1.0, safe.sin() / safe)
        # cos a - sin a / a cancels near 0: there the slope is the series of that, over a.
        a2 = angle.square()
        near = angle * (a2 * (a2 * (a2 * (a2 / 3991680 - 1 / 45360) + 1 / 840) - 1 / 30) + 1 / 3) * -math.pi
        slope = (angle.abs() < 1).where(near, (safe.cos() - value) / safe * math.pi)
        return value._with_gradient(self, slope)

    def fmax(self, other: Any) -> Self:
        """``t.maximum(other)``, the other one where one of them is NaN."""
        x, y = self._operands(other, op="fmax")
        return ((x >= y) | y.isnan()).where(x, y)  # of equal ones the first has the gradient, as in torch

    def fmin(self, other: Any) -> Self:
        """``t.minimum(other)``, the other one where one of them is NaN."""
        x, y = self._operands(other, op="fmin")
        return ((x <= y) | y.isnan()).where(x, y)

    def gcd(self, other: Any) -> Self:
        """The greatest common divisor of integers, by Euclid's algorithm."""
        return self._gcd(other, "gcd").abs()

    def _gcd(self, other: Any, name: str) -> Self:
        a, b = self._operands(other, op=name)
        if not dtypes.is_int(a.dtype):
            raise DTypeError(error_text(name, f"operands must be int, got {a.dtype}", {"left": self, "right": b}))
        # The slowest are Fibonacci numbers: 1.44 steps for each bit.
        for _ in range(math.ceil(1.44 * a.dtype.bitsize) + 1):
            done = b.eq(0)
            a, b = done.where(a, b), done.where(b, a.alu(Ops.CMOD, b))
        return a

    def lcm(self, other: Any) -> Self:
        """``t // t.gcd(other) * other`` without a sign, 0 where one of them is 0."""
        a, b = self._operands(other, op="lcm")
        return (a.div(a._gcd(b, "lcm"), rounding_mode="trunc") * b).abs()

    def ldexp(self, other: Any) -> Self:
        """``t * 2.0 ** other``."""
        return self * self.ufix(other).float().exp2()

    def frexp(self) -> tuple[Self, Self]:
        """``(mantissa, exponent)`` with t = mantissa * 2 ** exponent, and a mantissa of [0.5, 1) or 0."""
        self._check_float("frexp")
        if self.dtype in dtypes.weaks:
            return self.cast(strong_dtype(self.dtype)).frexp()
        if self.dtype in NARROW_FLOATS:
            mantissa, exponent = self.float().frexp()
            return mantissa.cast(self.dtype), exponent
        integer, fraction, width = _FIELDS[self.dtype]
        bias, mask = (1 << (width - 1)) - 2, ((1 << width) - 1) << fraction
        is_small = self.abs() < 2.0 ** (1 - bias)
        bits = is_small.where(self * 2.0 ** (fraction + 1), self).bitcast(integer)
        exponent = ((bits & mask) >> fraction) - is_small.where(bias + fraction + 1, bias)
        mantissa = ((bits & ~mask) | (bias << fraction)).bitcast(self.dtype)
        plain = self.isfinite() & self.ne(0)
        exponent = plain.where(exponent, 0).cast(dtypes.int32)
        slope = (exponent * -1).cast(self.dtype).exp2()
        return plain.where(mantissa, self.detach())._with_gradient(self, slope), exponent

    def nextafter(self, other: Any) -> Self:
        """The neighbour of t towards ``other`` among the numbers of the dtype."""
        x, y = self._operands(other, op="nextafter")
        x._check_float("nextafter")
        x, y = (z.cast(strong_dtype(z.dtype)) for z in (x, y))
        integer = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[x.dtype.itemsize]
        bits = x.bitcast(integer)
        away = (x < y).eq(x > 0)  # the size grows, and with it the bits
        moved = (bits + away.where(bits.const_like(1), bits.const_like(-1))).bitcast(x.dtype)
        smallest = bits.const_like(1).bitcast(x.dtype)
        moved = x.eq(0).where((y > 0).where(smallest, smallest * -1), moved)
        found = (x.isnan() | y.isnan()).where(x + y, x.eq(y).where(y, moved))
        return found._with_gradient(x, x.const_like(1))

    def positive(self) -> Self:
        """``t``."""
        return self

    def is_nonzero(self) -> bool:
        """``bool(t.item())``, of one element."""
        return bool(self.reshape(()).item())
