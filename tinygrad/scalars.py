"""Round Python numbers to the formats of machines: wrapped integers, half, bfloat16, float32, fp8.

In:   a Python int or float.
Out:  the Python value that the format holds, or the bits of it. A format is given by numbers; no dtypes here.
Why:  constant folding and the reference device round exactly as hardware does.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Final, NamedTuple


def wrap_int(x: int, bits: int, signed: bool) -> int:
    """Return ``x`` modulo 2**bits, in the signed or the unsigned range."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> (bits - 1) else x


def float_to_wrapped_int(x: float, low: int, high: int, bits: int, signed: bool) -> int:
    """Round toward zero into the conversion type [low, high], then wrap; what it does not hold becomes ``low``."""
    whole = math.trunc(x) if math.isfinite(x) else low
    return wrap_int(whole if low <= whole <= high else low, bits, signed)


def as_float(x: float) -> float:
    """Return a number as a float that rounds further as the number itself would, to any format of up to 51 bits.

    An int beyond 53 bits would be rounded twice; here its lowest kept bit records that bits were lost ("round to odd").
    """
    if isinstance(x, int) and (extra := x.bit_length() - 53) > 0:
        kept = abs(x) >> extra
        if kept << extra != abs(x):
            kept |= 1
        if extra > 971:
            return -math.inf if x < 0 else math.inf
        return math.ldexp(-kept if x < 0 else kept, extra)
    return float(x)


def round_mantissa(x: float, exponent_bias: int, mantissa_bits: int) -> float:
    """Round a finite float to nearest even at ``mantissa_bits``, subnormals too; the exponent has no upper limit."""
    if x == 0.0:
        return x
    exponent = max(math.frexp(x)[1] - 1, 1 - exponent_bias)
    # Scaling by a power of two is exact, and Python's round goes to the even neighbour.
    scaled = math.ldexp(x, mantissa_bits - exponent)
    try:
        return math.copysign(math.ldexp(float(round(scaled)), exponent - mantissa_bits), x)
    except OverflowError:
        return math.copysign(math.inf, x)


def float_to_fp16(x: float) -> float:
    """Round to float16: nearest even, beyond the largest number to infinity."""
    return _through_struct("<e", x)


def float_to_fp32(x: float) -> float:
    """Round to float32: nearest even, beyond the largest number to infinity."""
    return _through_struct("<f", x)


def _through_struct(fmt: str, x: float) -> float:
    try:
        return float(struct.unpack(fmt, struct.pack(fmt, as_float(x)))[0])
    except OverflowError:
        return -math.inf if x < 0 else math.inf


_LARGEST_BF16: Final = math.ldexp(255, 120)


def float_to_bf16(x: float) -> float:
    """Round to bfloat16: nearest even, beyond the largest number to infinity."""
    x = as_float(x)
    if not math.isfinite(x):
        return x
    rounded = round_mantissa(x, 127, 7)
    return rounded if abs(rounded) <= _LARGEST_BF16 else math.copysign(math.inf, x)


def bf16_to_bits(x: float) -> int:
    """Return the 16 bits of a float rounded to bfloat16."""
    return int(struct.unpack("<I", struct.pack("<f", float_to_bf16(x)))[0]) >> 16


def bits_to_bf16(bits: int) -> float:
    """Return the value of 16 bits of bfloat16."""
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


class Fp8Format(NamedTuple):
    """An 8-bit float: sign, exponent, mantissa.

    Attributes:
        bias: Exponent bias.
        mantissa_bits: 3 or 2; the exponent has the other 4 or 5.
        largest: Largest finite value.
        infinity: Bits of +infinity, if the format has it.
        is_fnuz: No infinity, no negative zero; the one NaN is 0x80.
    """

    bias: int
    mantissa_bits: int
    largest: float
    infinity: int | None = None
    is_fnuz: bool = False


E4M3: Final = Fp8Format(7, 3, 448.0)
E5M2: Final = Fp8Format(15, 2, 57344.0, infinity=0x7C)
E4M3_FNUZ: Final = Fp8Format(8, 3, 240.0, is_fnuz=True)
E5M2_FNUZ: Final = Fp8Format(16, 2, 57344.0, is_fnuz=True)


def encode_fp8(x: float, fmt: Fp8Format) -> int:
    """Return the byte of ``x``: rounded to nearest even, finite values beyond the largest number saturated to it."""
    x = as_float(x)
    sign = 0x80 if math.copysign(1.0, x) < 0 else 0
    if not math.isfinite(x):
        if fmt.is_fnuz:
            return 0x80
        return sign | (fmt.infinity if fmt.infinity is not None and math.isinf(x) else 0x7F)
    size = min(abs(round_mantissa(x, fmt.bias, fmt.mantissa_bits)), fmt.largest)
    if size == 0.0:
        return 0 if fmt.is_fnuz else sign
    exponent = max(math.frexp(size)[1] - 1, 1 - fmt.bias)
    # The mantissa, with the hidden bit if the number is normal: the hidden bit carries into the exponent field.
    steps = int(math.ldexp(size, fmt.mantissa_bits - exponent))
    return sign | (steps + ((exponent + fmt.bias - 1) << fmt.mantissa_bits))


@functools.cache
def fp8_values(fmt: Fp8Format) -> tuple[float, ...]:
    """Return the values of all 256 bytes."""
    return tuple(_decode_fp8(byte, fmt) for byte in range(256))


def _decode_fp8(byte: int, fmt: Fp8Format) -> float:
    sign, size = (-1.0 if byte & 0x80 else 1.0), byte & 0x7F
    if fmt.is_fnuz:
        if byte == 0x80:
            return math.nan
    elif fmt.infinity is not None:
        if size >= fmt.infinity:
            return sign * math.inf if size == fmt.infinity else math.copysign(math.nan, sign)
    elif size == 0x7F:
        return math.copysign(math.nan, sign)
    exponent, mantissa = size >> fmt.mantissa_bits, size & ((1 << fmt.mantissa_bits) - 1)
    if exponent:
        mantissa += 1 << fmt.mantissa_bits
    return sign * math.ldexp(mantissa, max(exponent, 1) - fmt.bias - fmt.mantissa_bits)
