"""POW of floats: base ** exponent = 2 ** (exponent * log2(base)), with the logarithm in two floats.

In:   base and exponent, both float32 or both float64.
Out:  nodes for the power, and the special cases of IEEE 754.
Why:  the exponent multiplies an error of log2(base): without the second float, up to ten bits are lost.

Largest error in units in the last place: 0.6 in float32 where float64 exists, 1.2 in float32 elsewhere and in float64.

Source: Dekker, "A Floating-Point Technique for Extending the Available Precision", 1971. The coefficients are the
output of ``extra/fit_polynomials.py``.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from tinygrad.codegen.decomp.transcendental import F32, F64, LAYOUTS, Layout, exp2_of_pair, hex_table
from tinygrad.codegen.decomp.value import Value, polynomial
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# log2(m) = s * (a + z * (b + z * p(z))), s = (m-1)/(m+1), z = s*s, for m between sqrt(1/2) and sqrt(2); a and b are
# sums of two numbers.
_A: Final = {
    F32: hex_table("0x1.715476p+1", "0x1.4ae0cp-25"),
    F64: hex_table("0x1.71547652b82fep+1", "0x1.777d0ffda0d24p-55"),
}
_B: Final = {
    F32: hex_table("0x1.ec709ep-1", "-0x1.e2fe02p-28"),
    F64: hex_table("0x1.ec709dc3a03fdp-1", "0x1.d27f05548af0cp-55"),
}
_LOG2: Final = {
    F32: hex_table("0x1.2776c4p-1", "0x1.a61946p-2", "0x1.47b4b4p-2", "0x1.202c94p-2"),
    F64: hex_table(
        "0x1.2776c50ef9bfep-1", "0x1.a61762a7ae13dp-2", "0x1.484b13d79a42cp-2", "0x1.0c9a84ace1e26p-2",
        "0x1.c68f4ad7092fcp-3", "0x1.89f5be17042b0p-3", "0x1.5b6817d46e424p-3", "0x1.390b64b28dd04p-3",
        "0x1.22aecf6e814abp-3",
    ),
}  # fmt: skip
_SQRT_HALF_BITS: Final = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}


class Pair(NamedTuple):
    """The sum of two floats, the second of which is at most the rounding error of the first."""

    high: Value
    low: Value


def _sum(a: Value | float, b: Value, low: Value | float) -> Pair:
    """Return a + b + low for abs(a) >= abs(b); the rounding error of a + b is exact."""
    total = b + a
    return Pair(total, (b - (total - a)) + low)


def _product(a: Value, b: Value, low: Value) -> Pair:
    """Return a * b + low; the rounding error of the product comes from products of halves, which are exact."""
    layout = LAYOUTS[a.dtype]
    mask = -1 << (layout.mantissa + 2) // 2
    a_high, b_high = ((x.bits(layout.bits) & mask).bits(layout.dtype) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return Pair(product, error + low)


def _log2(size: Value, layout: Layout) -> Pair:
    """Return log2 of a positive number. What comes for zero, infinity and NaN is without meaning."""
    shift = layout.mantissa + 2
    is_small = size < layout.smallest_normal
    bits = is_small.where(size * 2.0**shift, size).bits(layout.bits)
    e = (bits - _SQRT_HALF_BITS[layout]) >> layout.mantissa
    m = (bits - (e << layout.mantissa)).bits(layout.dtype)
    exponent = (e - is_small.where(e.const(shift), 0)).cast(layout.dtype)
    # s = f / (f + 2), and what is left of f after the division.
    f = m - 1.0
    below = m + 1.0
    quotient = f / below
    back = _product(quotient, below, quotient * (m - (below - 1.0)))
    s = Pair(quotient, ((f - back.high) - back.low) / below)
    z = _product(s.high, s.high, s.high * s.low * 2.0)
    (a, a_low), (b, b_low) = _A[layout], _B[layout]
    inner = _sum(b, z.high * polynomial(z.high, _LOG2[layout]), b_low)
    scaled = _product(z.high, inner.high, z.high * inner.low + z.low * inner.high)
    outer = _sum(a, scaled.high, scaled.low + a_low)
    result = _product(s.high, outer.high, s.high * outer.low + s.low * outer.high)
    return _sum(exponent, result.high, result.low)


def power(base: UOp, exponent: UOp, has_double: bool) -> UOp:
    """Return nodes for base ** exponent of floats, with the special cases of IEEE 754."""
    x, y = Value(base), Value(exponent)
    size = (x < 0.0).where(x * -1.0, x)
    value = _by_double(size, y) if has_double and base.dtype is dtypes.float32 else _by_pairs(size, y)
    half = y * 0.5
    is_integer, is_odd = y.trunc().eq(y), (half.trunc() * 2.0).ne(y)
    is_negative = x.bits(LAYOUTS[base.dtype].bits) < 0
    value = (is_negative & is_integer & is_odd).where(value * -1.0, value)
    undefined = (x < 0.0) & (x > -math.inf) & y.trunc().ne(y)
    value = undefined.where(math.nan, value)
    is_one = x.eq(1.0) | (x.eq(-1.0) & (y.eq(math.inf) | y.eq(-math.inf)))
    return (is_one | y.eq(0.0)).where(1.0, value).u


def _by_double(size: Value, y: Value) -> Value:
    log = Value(UOp(Ops.LOG2, dtypes.float64, (size.cast(dtypes.float64).u,)))
    product = y.cast(dtypes.float64) * log
    return Value(UOp(Ops.EXP2, dtypes.float64, (product.u,))).cast(dtypes.float32)


def _by_pairs(size: Value, y: Value) -> Value:
    log = _log2(size, LAYOUTS[size.dtype])
    is_finite = size < math.inf
    high = size.eq(0.0).where(-math.inf, is_finite.where(log.high, size))
    product = _product(y, high, y * log.low)
    return exp2_of_pair(product.high, product.low)
