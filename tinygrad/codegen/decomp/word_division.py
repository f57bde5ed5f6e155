"""Division of 64-bit integers by 32-bit divisions, without a loop.

In:   pairs of words; the divisor is not 0 (codegen/decomp/integer.py has seen to that).
Out:  quotient and remainder.
Why:  three divisions of words and a correction take a fraction of the 64 steps of shifting and subtracting, and lanes
      of a vector need no branch.

Source: Knuth, "The Art of Computer Programming", volume 2, 4.3.1, algorithm D, with digits of 16 bits; the case of a
divisor of more than one word is that of Warren, "Hacker's Delight", 2nd edition, 2012, 9-5.
"""

from __future__ import annotations

from tinygrad.codegen.decomp.words import U32, Pair, Word, is_less, multiply, negate, select, subtract

_BASE = 1 << 16


def _leading_zeros(x: Word) -> Word:
    """Return how many bits in front of the first one are 0; the word is not 0."""
    count = x.const(0)
    for half in (16, 8, 4, 2, 1):
        is_small = x < (1 << (32 - half))
        count = count + is_small.where(x.const(half), 0)
        x = is_small.where(x << half, x)
    return count


def _digit(rest: Word, following: Word, divisor: Word) -> Word:
    """Return one digit of 16 bits of a quotient: estimated with the upper half of the divisor, then corrected.

    Because the first bit of the divisor is set, the estimate is too large by 2 at most.
    """
    upper, lower = divisor >> 16, divisor & 0xFFFF
    digit = rest // upper
    left = rest - digit * upper
    for _ in range(2):
        too_large = ~(digit < _BASE) | ((left << 16 | following) < digit * lower)
        wrong = too_large & (left < _BASE)
        digit = digit - wrong.cast(U32)
        left = left + wrong.where(upper, 0)
    return digit


def _divide_two_by_one(high: Word, low: Word, divisor: Word) -> Word:
    """Return the quotient of two words by one that has its first bit set and is larger than ``high``."""
    first = _digit(high, low >> 16, divisor)
    rest = (high << 16 | low >> 16) - first * divisor
    second = _digit(rest, low & 0xFFFF, divisor)
    return (first << 16) + second


def divide(x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """Return the quotient and the remainder of unsigned numbers."""
    if x.high.known == 0 and y.high.known == 0:
        word, zero = x.low // y.low, x.high.const(0)
        return Pair(word, zero), Pair(x.low - word * y.low, zero)
    is_short = y.high.eq(0)
    # The divisor is shifted to the left until its first bit is set, and its first word divides.
    top = is_short.where(y.low, y.high)
    places = _leading_zeros(top)
    beyond = places ^ 31
    divisor = (top << places) | is_short.where(y.low.const(0), (y.low >> 1) >> beyond)
    # A divisor of one word: the high word is divided first; its remainder and the low word give the low quotient.
    short = is_short.where(y.low, 1)
    high_quotient = x.high // short
    rest = x.high - high_quotient * short
    # A longer one: half of the dividend is divided, so that its first word is smaller than the divisor.
    high = is_short.where((rest << places) | ((x.low >> 1) >> beyond), x.high >> 1)
    low = is_short.where(x.low << places, (x.low >> 1) | (x.high << 31))
    estimate = _divide_two_by_one(high, low, divisor)
    # The shifts are undone. The quotient by the first word alone may be too large by 1: 1 less is never too large.
    undone = estimate >> beyond
    undone = undone - undone.ne(0).cast(U32)
    quotient_low = is_short.where(estimate, undone)
    quotient_high = is_short.where(high_quotient, 0)
    remainder = subtract(x, multiply(Pair(quotient_low, quotient_high), y))
    is_one_short = ~is_less(remainder, y, signed=False)
    quotient = Pair(quotient_low + is_one_short.cast(U32), quotient_high)
    return quotient, select(is_one_short, subtract(remainder, y), remainder)


def divide_signed(x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """Return the quotient toward zero and the remainder with the sign of the dividend.

    The smallest number is its own size as an unsigned number, and divided by -1 gives itself.
    """
    x_negative, y_negative = x.high.is_negative(), y.high.is_negative()
    quotient, remainder = divide(select(x_negative, negate(x), x), select(y_negative, negate(y), y))
    sign = x_negative.ne(y_negative)
    return select(sign, negate(quotient), quotient), select(x_negative, negate(remainder), remainder)
