"""Conversions between floats and 64-bit integers of two words, rounded once as a native conversion is.

In:   pairs of words, or floats.
Out:  floats (nearest even), or pairs (toward zero; what does not fit, as ``tinygrad.dtype`` says).
Why:  a 64-bit integer that is first rounded to one float and then added to another would be rounded twice.
"""

from __future__ import annotations

from tinygrad.codegen.decomp.words import I32, U32, Pair, Word, negate, select
from tinygrad.dtype import DType, dtypes


def to_float64(x: Pair, signed: bool) -> Word:
    """Return high * 2**32 + low: both terms are exact, so the sum is rounded once."""
    high = (x.high.bits(I32) if signed else x.high).cast(dtypes.float64)
    return high * 2.0**32 + x.low.cast(dtypes.float64)


def to_float32(x: Pair, signed: bool) -> Word:
    """Return the nearest float32, as the sum of two exact numbers of 24 bits.

    From 2**48 the lowest 16 bits do not fit in; whether there are any goes to the last bit that does, which is far
    enough below the last bit of the result to decide a tie and nothing else.
    """
    is_negative = x.high.is_negative() if signed else x.high.truth(False)
    size = select(is_negative, negate(x), x)
    is_large = ~(size.high < 1 << 16)
    upper = is_large.where(size.high >> 8, (size.high << 8) | (size.low >> 24))
    sticky = (size.low & 0xFFFF).ne(0).cast(U32)
    lower = is_large.where((size.high & 0xFF) << 16 | size.low >> 16 | sticky, size.low & 0xFFFFFF)
    upper_float, lower_float = (part.bits(I32).cast(dtypes.float32) for part in (upper, lower))
    total = upper_float * 2.0**24 + lower_float
    total = is_large.where(total * 2.0**16, total)
    return is_negative.where(total * -1.0, total)


def to_float(x: Pair, dtype: DType, signed: bool, has_double: bool) -> Word:
    """Return the nearest number of any float dtype."""
    if dtype is dtypes.float64:
        return to_float64(x, signed)
    # Half precision is infinite where float32 rounds. Others are rounded from the widest float, as a native one is.
    if dtype in {dtypes.float32, dtypes.float16} or not has_double:
        return to_float32(x, signed).cast(dtype)
    return to_float64(x, signed).cast(dtype)


def from_float(x: Word, signed: bool) -> Pair:
    """Round toward zero. What does not fit, and NaN, becomes -2**63; negative numbers wrap where there is no sign."""
    if x.dtype not in {dtypes.float32, dtypes.float64}:
        x = x.cast(dtypes.float32)
    is_negative = x < 0.0
    fits = ~(x < -(2.0**63)) & (x < (2.0**63 if signed else 2.0**64))
    size = fits.where(is_negative.where(x * -1.0, x), x.const(2.0**63))
    upper = (size * 2.0**-32).trunc()
    lower = size + upper * -(2.0**32)  # exact: what is left are bits of the same number
    whole = Pair(lower.cast(U32), upper.cast(U32))
    return select(is_negative, negate(whole), whole)
