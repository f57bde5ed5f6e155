"""SIN, and the cosine that is written as one, of every float32 and float64 number.

In:   the argument of a SIN node in float32 or float64.
Out:  nodes for the sine: an exact reduction to a quarter turn, then two polynomials and a selection.
Why:  multiplying by 2/pi in the float's own arithmetic loses all digits of a large argument.

Largest errors, in units in the last place: 1.4 in float32 (over all inputs), 1.3 in float64. float32 is reduced in
float64 where that exists (``_reduce_by_double``); float64, and float32 elsewhere, in integers (``_reduce_by_words``).

Source: Payne, Hanek, "Radian Reduction for Trigonometric Functions", 1983. The coefficients are the output of
``extra/fit_polynomials.py``.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from tinygrad.codegen.decomp.transcendental import F32, F64, LAYOUTS, Layout, hex_table
from tinygrad.codegen.decomp.value import Value, polynomial
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# sin(r) = r + r*z * p(z) and cos(r) = 1 - z/2 + z*z * p(z), z = r*r, |r| <= pi/4
_SIN: Final = {
    F32: hex_table("-0x1.555546p-3", "0x1.11077cp-7", "-0x1.9955bep-13"),
    F64: hex_table(
        "-0x1.5555555555549p-3", "0x1.111111110f8a1p-7", "-0x1.a01a019c150e4p-13", "0x1.71de3579ee4fbp-19",
        "-0x1.ae5e678785599p-26", "0x1.5d9348faf1f03p-33",
    ),
}  # fmt: skip
_COS: Final = {
    F32: hex_table("0x1.55554ap-5", "-0x1.6c0c2ep-10", "0x1.99eac8p-16"),
    F64: hex_table(
        "0x1.555555555554ep-5", "-0x1.6c16c16c155cep-10", "0x1.a01a019d1012fp-16", "-0x1.27e4f846e19a9p-22",
        "0x1.1eea118b1752ap-29", "-0x1.8fc08673e123cp-37",
    ),
}  # fmt: skip

# 2/pi * 2**(26*j) modulo 4 as a sum of three numbers; the first has 28 bits and the second 29, so their products with
# the 24 bits of a float32 are exact in float64.
_TWO_OVER_PI: Final = (
    hex_table("0x1.45f3068p-1", "0x1.727220ap-27", "0x1.29fc2757d1f53p-56"),
    hex_table("0x1.b939104p+0", "0x1.4a7f09cp-28", "0x1.5f47d4d377037p-56"),
    hex_table("0x1.529fc24p+0", "0x1.abe8fa9p-27", "0x1.4ddc0db629599p-56"),
    hex_table("0x1.d5f47d4p+0", "0x1.a6ee06cp-29", "0x1.b14acc9e21c82p-57"),
)
# pi/2: a piece whose product with half of a mantissa is exact, all bits, and what the rounding of those loses.
_HALF_PI: Final = {
    F32: hex_table("0x1.92p+0", "0x1.921fb6p+0", "-0x1.777a5cp-25"),
    F64: hex_table("0x1.921fb4p+0", "0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54"),
}
# The binary digits of 2/pi, as many as the largest float64 needs.
_DIGITS: Final = (
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921C"
    "FE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F49C845F8BBDF9283B1FF897FFDE05980F"
    "EF2F118B5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D08"
    "56033046FC7B6BAB"
)


def sin(x: UOp, has_double: bool) -> UOp:
    """Return nodes for the sine, or for the cosine if x is written as y + pi/2 or pi/2 - y.

    Args:
        x: The argument.
        has_double: float64 is native.
    """
    argument = cosine_argument(x)
    quarter_turns, x = (0, x) if argument is None else (1, argument)
    value, layout = Value(x), LAYOUTS[x.dtype]
    size = (value.bits(layout.bits) & layout.bits.max).bits(layout.dtype)
    by_double = layout is F32 and has_double
    quadrant, r, low = _reduce_by_double(size) if by_double else _reduce_by_words(size, layout)
    return _sin_reduced(value, quarter_turns, quadrant, r, low, layout).u


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


def _sin_reduced(x: Value, quarter_turns: int, quadrant: Value, r: Value, low: Value, layout: Layout) -> Value:
    """Return the sine (cosine for one quarter turn) from |x| = quadrant * pi/2 + r + low."""
    z = r * r
    sine = r + (low + (r * z) * polynomial(z, _SIN[layout]))
    # The first two terms are exact together; the low part of the angle belongs to the derivative, -sin(r).
    cosine = (z * -0.5 + ((z * z) * polynomial(z, _COS[layout]) - r * low)) + 1.0
    quadrant = quadrant + quarter_turns if quarter_turns else quadrant
    value = (quadrant & 1).ne(0).where(cosine, sine)
    sign = (quadrant & 2) << (layout.bits.bitsize - 2)
    if not quarter_turns:
        sign = sign ^ (x.bits(layout.bits) & layout.bits.min)
    return (value.bits(layout.bits) ^ sign).bits(layout.dtype)


# ---- reduction of float32 in float64 -------------------------------------------------------------------------------


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

    y = size.cast(dtypes.float64)
    pieces = [[piece * 2.0 ** (-26 * j) for piece in row] for j, row in enumerate(_TWO_OVER_PI)]
    first, second, third = (pick(*column) for column in zip(*pieces, strict=True))
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


# ---- reduction in integers -----------------------------------------------------------------------------------------


def _reduce_by_words(size: Value, layout: Layout) -> tuple[Value, Value, Value]:
    """Reduce a size >= 0 exactly: its mantissa, an integer, times those three words of 2/pi that matter.

    A word is as wide as the float. Digits before them give multiples of four quarter turns. What the digits after them
    would add is less than 2**-60 of the smallest angle that any float leaves.
    """
    width, unsigned = layout.bits.bitsize, _unsigned(layout)
    bits = size.bits(layout.bits)
    mantissa = ((bits & ((1 << layout.mantissa) - 1)) | (1 << layout.mantissa)).cast(unsigned)
    # size = mantissa * 2**(exponent - m). Digit number exponent - m - 2 is the last whose product is a multiple of 4,
    # so this many are left out, counted from one word of zeros that is put in front of them.
    exponent = (bits >> layout.mantissa) - layout.bias
    start = exponent + (width - layout.mantissa - 2)
    start = (start < 0).where(start.const(0), start)
    word, shift = start >> (width.bit_length() - 1), (start & (width - 1)).cast(unsigned)
    picked = _pick_words(word, shift, layout)
    back = shift.const(width - 1) - shift
    window = [(picked[k] << shift) | ((picked[k + 1] >> back) >> 1) for k in range(3)]
    return _angle_of_fraction(*_product_fraction(mantissa, window, width), size, layout)


def _unsigned(layout: Layout) -> DType:
    return dtypes.uint32 if layout is F32 else dtypes.uint64


def _pick_words(index: Value, like: Value, layout: Layout) -> list[Value]:
    """Return the four words from number ``index`` on, by halving the choice with each bit of the index."""
    digits = layout.bits.bitsize // 4
    words = [0, *(int(_DIGITS[i : i + digits], 16) for i in range(0, len(_DIGITS), digits))]
    largest = (layout.bias + layout.bits.bitsize - layout.mantissa - 2) // layout.bits.bitsize
    choices = [like.const(word) for word in words[: largest + 4]]
    for place in reversed(range(largest.bit_length())):
        step = 1 << place
        upper = (index & step).ne(0)
        # What lies beyond the four words of the largest index is never reached.
        count = min(len(choices), step + 3)
        choices = [upper.where(choices[i + step], c) if i + step < len(choices) else c
                   for i, c in enumerate(choices[:count])]  # fmt: skip
    return choices


def _product_fraction(mantissa: Value, window: list[Value], width: int) -> tuple[Value, Value]:
    """Return the upper two of the three lower words of mantissa * window, without the carry of the lowest digits.

    The multiplication is that of paper, with digits of half a word.
    """
    half, mask = width // 2, (1 << (width // 2)) - 1
    digits = [piece for word in reversed(window) for piece in (word & mask, word >> half)]
    low, high = mantissa & mask, mantissa >> half
    row, carry = [], (digits[1] * low) >> half
    for digit in digits[2:]:
        total = digit * low + carry
        row.append(total & mask)
        carry = total >> half
    result, carry = [], (digits[0] * high) >> half
    for digit, above in zip(digits[1:5], row, strict=True):
        total = digit * high + above + carry
        result.append(total & mask)
        carry = total >> half
    return (result[3] << half) | result[2], (result[1] << half) | result[0]


def _angle_of_fraction(high: Value, low: Value, size: Value, layout: Layout) -> tuple[Value, Value, Value]:
    """Return quadrant and angle (in two parts) from two bits of quadrant and then bits of its fraction."""
    width, signed = layout.bits.bitsize, layout.bits
    quadrant = (((high >> (width - 3)) + 1) >> 1).cast(signed)  # rounded to the nearest quarter turn
    upper, lower = ((high << 2) | (low >> (width - 2))).cast(signed), (low << 2) >> 1
    # Both parts of the upper word are exact in the float.
    rest_bits = width - 1 - layout.mantissa
    main = (upper & (-1 << rest_bits)).cast(layout.dtype) * 2.0**-width
    rest = (upper & ((1 << rest_bits) - 1)).cast(layout.dtype) * 2.0**-width
    tail = rest + lower.cast(signed).cast(layout.dtype) * 2.0 ** (1 - 2 * width)
    fraction = main + tail
    tail = tail - (fraction - main)
    # Times pi/2: the product of the upper halves is exact.
    pi_upper, half_pi, half_pi_low = _HALF_PI[layout]
    upper_part = (fraction.bits(signed) & (-1 << (layout.mantissa + 2) // 2)).bits(layout.dtype)
    exact = upper_part * pi_upper
    small = (fraction - upper_part) * pi_upper + (
        fraction * (half_pi - pi_upper) + (fraction * half_pi_low + tail * half_pi)
    )
    angle = exact + small
    correction = small - (angle - exact)
    is_small, is_finite = size < 0.78515625, size < math.inf
    angle = is_finite.where(is_small.where(size, angle), math.nan)
    return is_small.where(quadrant.const(0), quadrant), angle, is_small.where(0.0, correction)
