"""EXP2, LOG2 and SQRT from additions, multiplications, bit operations and selections.

In:   one node of such an op in float32 or float64 (narrower floats come here as float32).
Out:  the same value from operations that vectorise: no branch, no table in memory, no call.
Why:  every target gets the same bits, and a chain of them stays one vector loop.

Largest errors, in units in the last place of the result, over all finite inputs (tested):

    exp2(x)    0.9    log2(x)    1.0 in float32, 2.5 in float64    log(x)    1.2 in float32
    e**x written as exp2(x * log2(e)) 0.9

Subnormal numbers are exact inputs and results, infinities and NaN follow IEEE 754. The coefficients are the output of
``extra/fit_polynomials.py``. Method: Cody and Waite, "Software Manual for the Elementary Functions", 1980. Sine and
power stand in ``trigonometry`` and ``power``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tinygrad.codegen.decomp.value import Value, polynomial
from tinygrad.dtype import DType, dtypes
from tinygrad.record import record
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def hex_table(*digits: str) -> tuple[float, ...]:
    """Return the numbers of a table written in hexadecimal."""
    return tuple(float.fromhex(text) for text in digits)


@record(frozen=True)
class Layout:
    """How a float dtype is laid out, and the numbers that follow from it."""

    dtype: DType
    bits: DType
    mantissa: int
    bias: int

    @property
    def rounder(self) -> float:
        """Adding this rounds a small number to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def power_rounder(self) -> float:
        """As ``rounder``, but the low bits are twice the bias more."""
        return self.rounder + 2 * self.bias

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)


F32: Final = Layout(dtypes.float32, dtypes.int32, 23, 127)
F64: Final = Layout(dtypes.float64, dtypes.int64, 52, 1023)
LAYOUTS: Final = {dtypes.float32: F32, dtypes.float64: F64}

# ---- exponential ---------------------------------------------------------------------------------------------------

# 2**r = 1 + r * p(r) for |r| <= 1/2
_EXP2_F32: Final = hex_table(
    "0x1.62e43p-1", "0x1.ebfbep-3", "0x1.c6af74p-5", "0x1.3b2a48p-7", "0x1.5f0cbp-10", "0x1.4424bp-13"
)
_EXP2_F64: Final = hex_table(
    "0x1.62e42fefa39efp-1", "0x1.ebfbdff82c58fp-3", "0x1.c6b08d704a184p-5", "0x1.3b2ab6fba4d7fp-7",
    "0x1.5d87fe78887d0p-10",
    "0x1.430912f8a9a47p-13", "0x1.ffcbfcdcc9c57p-17", "0x1.62c0216179c0ep-20", "0x1.b524200d7e542p-24",
    "0x1.e4d208ea68404p-28", "0x1.eb01d9fe465f9p-32", "0x1.c0d85fa36e8e7p-36",
)  # fmt: skip

# The logarithms of 2 and 10, each as a sum of two numbers.
_LN2_HI, _LN2_LO = hex_table("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56")
_LN10_HI, _LN10_LO = hex_table("0x1.26bb1bbb55516p+1", "-0x1.f48ad494ea3e9p-53")


@record(frozen=True)
class Factor:
    """The constant c of exp2(x * c), with 1/c in two pieces whose products with small integers are exact."""

    c: float
    scale: float  # ln(2) * c, the leading coefficient
    inverse_hi: float
    inverse_lo: float


@lru_cache(maxsize=256)
def _factor(c: float, layout: Layout) -> Factor | None:
    """Return the split of 1/c; None if c is so large or small that the pieces would leave the dtype."""
    if not 2.0**-16 < abs(c) < 2.0**16:
        return None
    exact, tolerance = Fraction(c), 2.0 ** -(layout.mantissa + 1)
    for known in (
        1 / (Fraction(_LN2_HI) + Fraction(_LN2_LO)),
        (Fraction(_LN10_HI) + Fraction(_LN10_LO)) / (Fraction(_LN2_HI) + Fraction(_LN2_LO)),
    ):
        # The constant of exp or 10**x, rounded to either dtype, stands for the exact one (times a power of two).
        ratio = abs(c) / float(known)
        power = round(math.log2(ratio))
        if abs(ratio / 2.0**power - 1) <= tolerance:
            exact = known * Fraction(2) ** power * (1 if c > 0 else -1)
    inverse = 1 / exact
    kept = 15 if layout is F32 else 40  # with the 8 (11) bits of n the product has 23 (51) bits
    exponent = math.frexp(float(inverse))[1]
    high = math.ldexp(math.trunc(math.ldexp(float(inverse), kept - exponent)), exponent - kept)
    scale = exact * (Fraction(_LN2_HI) + Fraction(_LN2_LO))
    return Factor(float(exact), float(scale), high, float(inverse - Fraction(high)))


def exp2(x: UOp) -> UOp:
    """Return nodes for 2**x. A product of x with a constant is part of the function, so that e**x is accurate.

    With x = n + r, n an integer and |r| <= 1/2, the polynomial gives 2**r; 2**n is put together from exponent bits in
    two factors, so that subnormal results are rounded once.
    """
    layout = LAYOUTS[x.dtype]
    factor = None
    if x.op is Ops.MUL:
        constant = next((s for s in x.src if s.op is Ops.CONST), None)
        if constant is not None:
            factor = _factor(float(constant.arg), layout)
            if factor is not None:
                x = x.src[0] if x.src[1] is constant else x.src[1]
    coefficients = _EXP2_F32 if layout is F32 else _EXP2_F64
    c = 1.0 if factor is None else factor.c
    # Beyond these the result is 0 or infinite. NaN passes both tests.
    low, high = sorted(((-layout.bias - layout.mantissa - 2) / c, (layout.bias + 2) / c))
    value = Value(x)
    value = (value < low).where(low, value)
    value = (value > high).where(high, value)
    shifted = (value if factor is None else value * c) + layout.power_rounder
    n = shifted - layout.power_rounder
    if factor is None:
        r = value - n
    else:
        r = (value - n * factor.inverse_hi) - n * factor.inverse_lo
        coefficients = tuple(k * c ** (i + 1) for i, k in enumerate(coefficients))
        coefficients = (factor.scale, *coefficients[1:])
    return _scaled_by_power(_one_plus(r, coefficients), shifted, layout).u


def exp2_of_pair(high: Value, low: Value) -> Value:
    """Return 2**(high + low), where ``low`` is at most the rounding error of ``high``."""
    layout = LAYOUTS[high.dtype]
    limit = float(layout.bias + layout.mantissa + 2)
    is_inside = (high > -limit) & (high < limit)
    bounded = (high < -limit).where(-limit, high)
    bounded = (bounded > limit).where(limit, bounded)
    low = is_inside.where(low, 0.0)
    shifted = bounded + layout.power_rounder
    fraction = bounded - (shifted - layout.power_rounder)
    r = fraction + low
    rest = low - (r - fraction)
    value = _one_plus(r, _EXP2_F32 if layout is F32 else _EXP2_F64, rest)
    return _scaled_by_power(value, shifted, layout)


def _one_plus(r: Value, coefficients: tuple[float, ...], rest: Value | None = None) -> Value:
    """Return 1 + (r + rest) * p(r); the rounding error of 1 + r * c0 is computed and put back."""
    first = r if coefficients[0] == 1.0 else r * coefficients[0]  # e**x: the constants of exp2 and of x cancel
    total = first + 1.0
    lost = first - (total - 1.0)
    if rest is not None:
        lost = lost + rest * coefficients[0]
    return total + (lost + (r * r) * polynomial(r, coefficients[1:]))


def _scaled_by_power(value: Value, shifted: Value, layout: Layout) -> Value:
    """Return value * 2**n, given n + ``power_rounder``: two halves of n, with a bias each, stand in its low bits."""
    bits = shifted.bits(layout.bits)
    half = bits >> 1
    first = (half << layout.mantissa).bits(layout.dtype)
    second = ((bits - half) << layout.mantissa).bits(layout.dtype)
    return value * first * second


# ---- logarithm -----------------------------------------------------------------------------------------------------

# log2(1 + f) = f * log2(e) + f*f * p(f) for |f| <= 1/3
_LOG2_F32: Final = hex_table(
    "-0x1.715478p-1", "0x1.ec70a2p-2", "-0x1.7152ap-2", "0x1.2774aep-2", "-0x1.ed118ep-3", "0x1.a6c19cp-3",
    "-0x1.65af26p-3",
    "0x1.3c9fccp-3", "-0x1.855c5cp-3", "0x1.66c032p-3",
)  # fmt: skip
# log2(m) = s * 2 * log2(e) + s*z * p(z), s = (m-1)/(m+1), z = s*s, for m between sqrt(1/2) and sqrt(2)
_LOG2_F64: Final = hex_table(
    "0x1.ec709dc3a03fdp-1", "0x1.2776c50ef9e5bp-1", "0x1.a61762a733a93p-2", "0x1.484b1433d86efp-2",
    "0x1.0c9a5f013ba8ep-2",
    "0x1.c6a0fb2310731p-3", "0x1.87942c2c3dfe8p-3", "0x1.86d22fecb90f0p-3",
)  # fmt: skip
# log(1 + f) = f + f*f * p(f) for |f| <= 1/3
_LOG_F32: Final = hex_table(
    "-0x1.ffffd2p-2", "0x1.5555p-2", "-0x1.001522p-2", "0x1.99d27ep-3", "-0x1.501f9cp-3", "0x1.1eb6cap-3",
    "-0x1.3b816p-3",
    "0x1.1ef28p-3",
)  # fmt: skip
# The logarithm of 2: a float32, and one with so few bits that its product with an exponent is exact, and the rest.
_LN2_F32, _LN2_16_BITS, _LN2_LO_F32 = hex_table("0x1.62e43p-1", "0x1.62e4p-1", "0x1.7f7d1cp-20")
_LOG2_E: Final = 1.4426950408889634
_LOG2_E_12_BITS: Final = 1.44189453125
_TWO_THIRDS_BITS: Final = 0x3F2AAAAB
_SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD


def log2(x: UOp) -> UOp:
    """Return nodes for the logarithm to base 2, that of the exponent plus a polynomial in the mantissa."""
    layout = LAYOUTS[x.dtype]
    value = Value(x)
    exponent, m = _split_exponent(value, layout)
    high, low = (_log2_parts_f32 if layout is F32 else _log2_parts_f64)(m)
    # The exponent is an integer, so the sum loses only low bits of ``high``; they are put back.
    total = exponent + high
    return _with_limits(value, total + (low + (high - (total - exponent)))).u


def natural_log(x: UOp) -> UOp:
    """Return nodes for the natural logarithm of a float32: its series begins with f itself, so no product is split."""
    value = Value(x)
    exponent, m = _split_exponent(value, F32)
    f = m - 1.0
    rest = (f * f) * polynomial(f, _LOG_F32) + exponent * _LN2_LO_F32
    return _with_limits(value, exponent * _LN2_16_BITS + (f + rest)).u


def is_natural_log(c: UOp) -> bool:
    """Return whether a product with this constant turns a logarithm to base 2 into a natural one, in float32."""
    return c.dtype is dtypes.float32 and float(c.arg) in {_LN2_HI, _LN2_F32}


def _split_exponent(value: Value, layout: Layout) -> tuple[Value, Value]:
    """Return exponent and mantissa of a positive number; the mantissa is near 1."""
    shift = layout.mantissa + 2
    is_small = value < layout.smallest_normal
    bits = is_small.where(value * 2.0**shift, value).bits(layout.bits)
    e = (bits - (_TWO_THIRDS_BITS if layout is F32 else _SQRT_HALF_BITS)) >> layout.mantissa
    m = (bits - (e << layout.mantissa)).bits(layout.dtype)
    return is_small.where(e - shift, e).cast(layout.dtype), m


def _with_limits(value: Value, log: Value) -> Value:
    """Return ``log``, and what a logarithm is of zero, negative numbers, infinity and NaN."""
    log = (value < 0.0).where(math.nan, log)
    log = value.eq(0.0).where(-math.inf, log)
    return (value < math.inf).where(log, value)


def _log2_parts_f32(m: Value) -> tuple[Value, Value]:
    f = m - 1.0
    # The upper 12 bits of f times 12 bits of log2(e) are exact.
    upper = (f.bits(dtypes.int32) & -4096).bits(dtypes.float32)
    rest = (f - upper) * _LOG2_E_12_BITS + f * (_LOG2_E - _LOG2_E_12_BITS)
    return upper * _LOG2_E_12_BITS, (f * f) * polynomial(f, _LOG2_F32) + rest


def _log2_parts_f64(m: Value) -> tuple[Value, Value]:
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    return s * (2 * _LOG2_E), (s * z) * polynomial(z, _LOG2_F64)


# ---- square root ----------------------------------------------------------------------------------------------------


def sqrt(x: UOp) -> UOp:
    """Return nodes for the square root by Newton's method on 1/sqrt, for a target without the instruction: 1 ulp."""
    layout = LAYOUTS[x.dtype]
    value = Value(x)
    is_small = value < 2.0 ** (2 * layout.mantissa - layout.bias + 1)
    scaled = is_small.where(value * 4.0**layout.mantissa, value)
    guess_bits = 0x5F375A86 if layout is F32 else 0x5FE6EB50C7B537A9
    y = (Value(UOp(Ops.CONST, layout.bits, (), guess_bits)) - (scaled.bits(layout.bits) >> 1)).bits(layout.dtype)
    half = scaled * 0.5
    for _ in range(4 if layout is F32 else 5):
        y = y * (y.const(1.5) - half * y * y)
    root = scaled * y
    root = root + (scaled - root * root) * (y * 0.5)
    root = is_small.where(root * 2.0**-layout.mantissa, root)
    root = (value < 0.0).where(math.nan, root)
    keeps = value.eq(0.0).u
    return Value(keeps).where(value, (value < math.inf).where(root, value)).u
