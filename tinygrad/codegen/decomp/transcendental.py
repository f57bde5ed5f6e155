"""EXP2, LOG2, SIN, SQRT and POW from additions, multiplications, bit operations and selections.

In:   one node of such an op in float32 or float64 (narrower floats come here as float32).
Out:  the same value from operations that vectorise: no branch, no table in memory, no call.
Why:  every target gets the same bits, and a chain of them stays one vector loop.

Largest errors, in units in the last place of the result, over all finite float32 inputs (tested):

    exp2(x)                 0.9        e**x written as exp2(x * log2(e))    0.9
    log2(x)                 1.0        sin(x), cos(x)                       1.4
    x**y (float32)          0.6 where float64 exists

float64: exp2 1, log2 3, sin and cos 1 for |x| < 1e8 and NaN beyond; pow loses digits as |y * log2(x)| grows.
Subnormal numbers are exact inputs and results, infinities and NaN follow IEEE 754. The coefficients are the output of
``extra/fit_polynomials.py``. Methods: Cody and Waite, "Software Manual for the Elementary Functions", 1980; Payne
and Hanek,
"Radian Reduction for Trigonometric Functions", 1983.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tinygrad.codegen.decomp.value import Value, polynomial
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def _table(*digits: str) -> tuple[float, ...]:
    return tuple(float.fromhex(text) for text in digits)


@dataclass(frozen=True)
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
    def rounder_bits(self) -> int:
        """The bits of ``rounder``."""
        return ((self.bias + self.mantissa) << self.mantissa) + (1 << (self.mantissa - 1))

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)


F32: Final = Layout(dtypes.float32, dtypes.int32, 23, 127)
F64: Final = Layout(dtypes.float64, dtypes.int64, 52, 1023)
LAYOUTS: Final = {dtypes.float32: F32, dtypes.float64: F64}

# ---- exponential ---------------------------------------------------------------------------------------------------

# 2**r = 1 + r * p(r) for |r| <= 1/2
_EXP2_F32: Final = _table(
    "0x1.62e43p-1", "0x1.ebfbep-3", "0x1.c6af74p-5", "0x1.3b2a48p-7", "0x1.5f0cbp-10", "0x1.4424bp-13"
)
_EXP2_F64: Final = _table(
    "0x1.62e42fefa39efp-1", "0x1.ebfbdff82c58fp-3", "0x1.c6b08d704a184p-5", "0x1.3b2ab6fba4d7fp-7",
    "0x1.5d87fe78887d0p-10",
    "0x1.430912f8a9a47p-13", "0x1.ffcbfcdcc9c57p-17", "0x1.62c0216179c0ep-20", "0x1.b524200d7e542p-24",
    "0x1.e4d208ea68404p-28", "0x1.eb01d9fe465f9p-32", "0x1.c0d85fa36e8e7p-36",
)  # fmt: skip

# The logarithms of 2 and 10, each as a sum of two numbers.
_LN2_HI, _LN2_LO = _table("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56")
_LN10_HI, _LN10_LO = _table("0x1.26bb1bbb55516p+1", "-0x1.f48ad494ea3e9p-53")


@dataclass(frozen=True)
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
    shifted = (value if factor is None else value * c) + layout.rounder
    n = shifted - layout.rounder
    if factor is None:
        r = value - n
    else:
        r = (value - n * factor.inverse_hi) - n * factor.inverse_lo
        coefficients = tuple(k * c ** (i + 1) for i, k in enumerate(coefficients))
        coefficients = (factor.scale, *coefficients[1:])
    return _scaled_by_power(_one_plus(r, coefficients), shifted, layout).u


def _one_plus(r: Value, coefficients: tuple[float, ...]) -> Value:
    """Return 1 + r * p(r); the rounding error of 1 + r * c0 is computed and put back."""
    first = r if coefficients[0] == 1.0 else r * coefficients[0]  # e**x: the constants of exp2 and of x cancel
    total = first + 1.0
    lost = first - (total - 1.0)
    return total + (lost + (r * r) * polynomial(r, coefficients[1:]))


def _scaled_by_power(value: Value, shifted: Value, layout: Layout) -> Value:
    n = shifted.bits(layout.bits) - layout.rounder_bits
    half = n >> 1
    first = ((half + layout.bias) << layout.mantissa).bits(layout.dtype)
    second = ((n - half + layout.bias) << layout.mantissa).bits(layout.dtype)
    return value * first * second


# ---- logarithm -----------------------------------------------------------------------------------------------------

# log2(1 + f) = f * log2(e) + f*f * p(f) for |f| <= 1/3
_LOG2_F32: Final = _table(
    "-0x1.715478p-1", "0x1.ec70a2p-2", "-0x1.7152ap-2", "0x1.2774aep-2", "-0x1.ed118ep-3", "0x1.a6c19cp-3",
    "-0x1.65af26p-3",
    "0x1.3c9fccp-3", "-0x1.855c5cp-3", "0x1.66c032p-3",
)  # fmt: skip
# log2(m) = s * 2 * log2(e) + s*z * p(z), s = (m-1)/(m+1), z = s*s, for m between sqrt(1/2) and sqrt(2)
_LOG2_F64: Final = _table(
    "0x1.ec709dc3a03fdp-1", "0x1.2776c50ef9e5bp-1", "0x1.a61762a733a93p-2", "0x1.484b1433d86efp-2",
    "0x1.0c9a5f013ba8ep-2",
    "0x1.c6a0fb2310731p-3", "0x1.87942c2c3dfe8p-3", "0x1.86d22fecb90f0p-3",
)  # fmt: skip
_LOG2_E: Final = 1.4426950408889634
_LOG2_E_12_BITS: Final = 1.44189453125
_TWO_THIRDS_BITS: Final = 0x3F2AAAAB
_SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD


def log2(x: UOp) -> UOp:
    """Return nodes for the logarithm to base 2, that of the exponent plus a polynomial in the mantissa."""
    layout = LAYOUTS[x.dtype]
    value = Value(x)
    shift = layout.mantissa + 2
    is_small = value < layout.smallest_normal
    bits = is_small.where(value * 2.0**shift, value).bits(layout.bits)
    e = (bits - (_TWO_THIRDS_BITS if layout is F32 else _SQRT_HALF_BITS)) >> layout.mantissa
    m = (bits - (e << layout.mantissa)).bits(layout.dtype)
    exponent = (e - is_small.where(e.const(shift), 0)).cast(layout.dtype)
    high, low = (_log2_parts_f32 if layout is F32 else _log2_parts_f64)(m)
    # The exponent is an integer, so the sum loses only low bits of ``high``; they are put back.
    total = exponent + high
    result = total + (low + (high - (total - exponent)))
    result = (value < 0.0).where(math.nan, result)
    result = value.eq(0.0).where(-math.inf, result)
    return (value < math.inf).where(result, value).u


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


# ---- sine ----------------------------------------------------------------------------------------------------------

# sin(r) = r + r*z * p(z) and cos(r) = 1 - z/2 + z*z * p(z), z = r*r, |r| <= pi/4
_SIN_F32: Final = _table("-0x1.555546p-3", "0x1.11077cp-7", "-0x1.9955bep-13")
_COS_F32: Final = _table("0x1.55554ap-5", "-0x1.6c0c2ep-10", "0x1.99eac8p-16")
_SIN_F64: Final = _table(
    "-0x1.5555555555549p-3", "0x1.111111110f8a1p-7", "-0x1.a01a019c150e4p-13", "0x1.71de3579ee4fbp-19",
    "-0x1.ae5e678785599p-26", "0x1.5d9348faf1f03p-33",
)  # fmt: skip
_COS_F64: Final = _table(
    "0x1.555555555554ep-5", "-0x1.6c16c16c155cep-10", "0x1.a01a019d1012fp-16", "-0x1.27e4f846e19a9p-22",
    "0x1.1eea118b1752ap-29", "-0x1.8fc08673e123cp-37",
)  # fmt: skip

# 2/pi * 2**(26*j) modulo 4 as a sum of three numbers; the first has 28 bits and the second 29, so their products
# with the
# 24 bits of a float32 are exact in float64.
_TWO_OVER_PI: Final = (
    _table("0x1.45f3068p-1", "0x1.727220ap-27", "0x1.29fc2757d1f53p-56"),
    _table("0x1.b939104p+0", "0x1.4a7f09cp-28", "0x1.5f47d4d377037p-56"),
    _table("0x1.529fc24p+0", "0x1.abe8fa9p-27", "0x1.4ddc0db629599p-56"),
    _table("0x1.d5f47d4p+0", "0x1.a6ee06cp-29", "0x1.b14acc9e21c82p-57"),
)
# pi/2 in pieces of 27 bits, then the rest; and of 11 bits for float32
_HALF_PI_F64: Final = _table("0x1.921fb54p+0", "0x1.10b46p-30", "0x1.1a62630000000p-54", "0x1.8a2e03707344ap-81")
# The binary digits of 2/pi, 32 a word.
_TWO_OVER_PI_WORDS: Final = (
    0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
)  # fmt: skip


def sin(x: UOp, has_double: bool) -> UOp:
    """Return nodes for the sine, or for the cosine if x is written as y + pi/2 or pi/2 - y.

    Args:
        x: The argument.
        has_double: float64 and int64 are native.
    """
    argument = cosine_argument(x)
    quarter_turns, x = (0, x) if argument is None else (1, argument)
    value = Value(x)
    if x.dtype is dtypes.float64:
        return _sin_f64(value, quarter_turns).u
    reduce = _reduce_by_double if has_double else _reduce_by_words
    return _sin_f32(value, quarter_turns, *reduce((value.bits(dtypes.int32) & 0x7FFFFFFF).bits(dtypes.float32))).u


def cosine_argument(x: UOp) -> UOp | None:
    """Return y if x is y + pi/2 or pi/2 - y, whose sine is the cosine of y, else None."""
    if x.op is not Ops.ADD:
        return None
    constant = next((s for s in x.src if s.op is Ops.CONST), None)
    if constant is None or not _is_half_pi(float(constant.arg)):
        return None
    return x.src[0] if x.src[1] is constant else x.src[1]


def _is_half_pi(c: float) -> bool:
    return c == math.pi / 2 or c == struct.unpack("f", struct.pack("f", math.pi / 2))[0]


def _sin_f32(x: Value, quarter_turns: int, quadrant: Value, r: Value, low: Value) -> Value:
    """Return the sine (cosine for one quarter turn) from |x| = quadrant * pi/2 + r + low."""
    z = r * r
    sine = r + (low + (r * z) * polynomial(z, _SIN_F32))
    cosine = (z * -0.5 + (z * z) * polynomial(z, _COS_F32)) + 1.0
    quadrant = quadrant + quarter_turns if quarter_turns else quadrant
    value = (quadrant & 1).ne(0).where(cosine, sine)
    sign = (quadrant & 2) << 30
    if not quarter_turns:
        sign = sign ^ (x.bits(dtypes.int32) & -0x80000000)
    return (value.bits(dtypes.int32) ^ sign).bits(dtypes.float32)


def _reduce_by_double(size: Value) -> tuple[Value, Value, Value]:
    """Reduce a float32 size >= 0 exactly: multiply by 2/pi modulo 4, with the digits that matter for its exponent.

    From 2**50 on (2**76, 2**102) the size is an integer multiple of 2**26 (2**52, 2**78), so the digits of 2/pi whose
    products are multiples of 4 are left out and the next ones taken.
    """
    limits = [size > float.fromhex(text) for text in ("0x1.fffffep+49", "0x1.fffffep+75", "0x1.fffffep+101")]

    def pick(*choices: float) -> Value:
        chosen = Value(UOp(Ops.CONST, dtypes.float64, (), choices[0]))
        for limit, choice in zip(limits, choices[1:], strict=True):
            chosen = limit.where(choice, chosen)
        return chosen

    y = size.cast(dtypes.float64) * pick(*(2.0 ** (-26 * j) for j in range(4)))
    first, second, third = (pick(*(row[i] for row in _TWO_OVER_PI)) for i in range(3))
    part, turns = _split_integer(y * first)
    more, more_turns = _split_integer(y * second)
    fraction, last_turns = _split_integer((part + more) + y * third)
    quadrant = (turns + more_turns + last_turns).cast(dtypes.int32)
    angle = fraction * (math.pi / 2)
    r = angle.cast(dtypes.float32)
    return quadrant, r, (angle - r.cast(dtypes.float64)).cast(dtypes.float32)


def _split_integer(x: Value) -> tuple[Value, Value]:
    """Return x minus its nearest integer, and a number whose two low bits are those of the integer."""
    shifted = x + F64.rounder
    return x - (shifted - F64.rounder), shifted.bits(dtypes.int64)


def _reduce_by_words(size: Value) -> tuple[Value, Value, Value]:
    """The same without float64: the product of the mantissa with 96 digits of 2/pi, in 16-bit pieces (Payne, Hanek)."""
    u32 = dtypes.uint32
    bits = size.bits(dtypes.int32)
    mantissa = ((bits & 0x7FFFFF) | 0x800000).cast(u32)
    # size = mantissa * 2**(exponent - 23); the digits of 2/pi that matter begin two places before the binary point.
    exponent = (bits >> 23) - 127
    start = exponent + 7  # number of digits of 2/pi to leave out, counted from 32 zeros that are put in front of them
    start = (start < 0).where(start.const(0), start)
    word, shift = start >> 5, (start & 31).cast(u32)
    words = [0, *_TWO_OVER_PI_WORDS]
    picked = []
    for k in range(4):
        chosen = shift.const(words[k])
        for j in range(1, 5):
            chosen = word.eq(j).where(words[j + k], chosen)
        picked.append(chosen)
    back = shift.const(31) - shift
    window = [(picked[k] << shift) | ((picked[k + 1] >> back) >> 1) for k in range(3)]
    high, low = _product_fraction(mantissa, window)
    return _angle_from_fraction(high, low, size)


def _product_fraction(mantissa: Value, window: list[Value]) -> tuple[Value, Value]:
    """Return the upper 64 of the lower 96 bits of mantissa (24 bits) * window (96 bits)."""
    digits = [piece for word in reversed(window) for piece in (word & 0xFFFF, word >> 16)]
    factors = [mantissa & 0xFFFF, mantissa >> 16]
    columns: list[list[Value]] = [[] for _ in range(8)]
    for i, digit in enumerate(digits):
        for j, factor in enumerate(factors):
            product = digit * factor
            columns[i + j].append(product & 0xFFFF)
            columns[i + j + 1].append(product >> 16)
    result, carry = [], None
    for column in columns[:6]:
        total = column[0]
        for term in [*column[1:], *([carry] if carry is not None else [])]:
            total = total + term
        result.append(total & 0xFFFF)
        carry = total >> 16
    return (result[5] << 16) | result[4], (result[3] << 16) | result[2]


def _angle_from_fraction(high: Value, low: Value, size: Value) -> tuple[Value, Value, Value]:
    """Quadrant and angle from the product: two bits of quadrant, then 62 bits of fraction."""
    i32, f32 = dtypes.int32, dtypes.float32
    upper, lower = (high << 2) | (low >> 30), low << 2
    quadrant = (((high >> 29) + 1) >> 1).cast(i32)  # rounded to the nearest quarter turn
    signed = upper.cast(i32)
    main = signed.cast(f32)
    # The largest float may round up to 2**31, which int32 lacks; the wrapped difference is right all the same.
    rest = (upper - _f32_to_u32(main)).cast(i32).cast(f32)
    r = main * 2.0**-32
    low_part = rest * 2.0**-32 + (lower >> 1).cast(i32).cast(f32) * 2.0**-63
    half_pi, half_pi_low = 1.57079637050628662109375, -4.37113900018624283e-8
    # Split r, so that its product with the upper half of pi/2 is exact.
    upper_r = (r.bits(i32) & -4096).bits(f32)
    pi_upper = 1.5703125
    exact = upper_r * pi_upper
    tail = (r - upper_r) * pi_upper + (r * (half_pi - pi_upper) + (r * half_pi_low + low_part * half_pi))
    angle = exact + tail
    correction = tail - (angle - exact)
    is_small = size < 0.78515625
    is_finite = size < math.inf
    angle = is_finite.where(is_small.where(size, angle), math.nan)
    return is_small.where(quadrant.const(0), quadrant), angle, is_small.where(0.0, correction)


def _f32_to_u32(x: Value) -> Value:
    """The integer value of a float between -2**31 and 2**31, modulo 2**32."""
    negative = x < 0.0
    size = (negative.where(x * -1.0, x) * 0.5).cast(dtypes.int32).cast(dtypes.uint32) << 1
    odd = (x * 0.5).trunc() * 2.0
    size = size + odd.ne(x).where(size.const(1), 0)
    return negative.where(size.const(0) - size, size)


def _sin_f64(x: Value, quarter_turns: int) -> Value:
    """Reduce by pi/2 in four pieces, whose products are exact up to 2**26 quarter turns. Larger arguments give NaN."""
    shifted = x * (2 / math.pi) + F64.rounder
    n = shifted - F64.rounder
    exact = (x - n * _HALF_PI_F64[0]) - n * _HALF_PI_F64[1]
    third, last = n * _HALF_PI_F64[2], n * _HALF_PI_F64[3]
    r = exact - third
    angle = r - last
    low = ((exact - r) - third) + ((r - angle) - last)
    z = angle * angle
    sine = angle + (low + (angle * z) * polynomial(z, _SIN_F64))
    cosine = (z * -0.5 + (z * z) * polynomial(z, _COS_F64)) + 1.0
    quadrant = shifted.bits(dtypes.int64)
    quadrant = quadrant + quarter_turns if quarter_turns else quadrant
    value = (quadrant & 1).ne(0).where(cosine, sine)
    value = (value.bits(dtypes.int64) ^ ((quadrant & 2) << 62)).bits(dtypes.float64)
    if not quarter_turns:
        value = x.eq(0.0).where(x, value)
    size = (x.bits(dtypes.int64) & 0x7FFFFFFFFFFFFFFF).bits(dtypes.float64)
    return (size < 2.0**26 * math.pi / 2).where(value, math.nan)


# ---- square root and power -----------------------------------------------------------------------------------------


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


def power(base: UOp, exponent: UOp, has_double: bool) -> UOp:
    """Return nodes for base ** exponent of floats, with the special cases of IEEE 754."""
    x, y = Value(base), Value(exponent)
    dtype = base.dtype
    wide = dtypes.float64 if has_double and dtype is dtypes.float32 else dtype
    size = (x < 0.0).where(x * -1.0, x)
    log = Value(UOp(Ops.LOG2, wide, (size.cast(wide).u,)))
    value = Value(UOp(Ops.EXP2, wide, ((y.cast(wide) * log).u,))).cast(dtype)
    half = y * 0.5
    is_integer, is_odd = y.trunc().eq(y), (half.trunc() * 2.0).ne(y)
    layout = LAYOUTS[dtype]
    is_negative = x.bits(layout.bits) < 0
    value = (is_negative & is_integer & is_odd).where(value * -1.0, value)
    undefined = (x < 0.0) & (x > -math.inf) & y.trunc().ne(y)
    value = undefined.where(math.nan, value)
    is_one = x.eq(1.0) | (x.eq(-1.0) & (y.eq(math.inf) | y.eq(-math.inf)))
    return (is_one | y.eq(0.0)).where(1.0, value).u
