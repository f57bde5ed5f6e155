"""64-bit integers as two 32-bit words: the arithmetic, on lowered values.

In:   words (nodes of uint32, int32, bool, float; scalars or vectors) and pairs of uint32 words, the low one first.
Out:  words and pairs; constants are folded, so that what is known of an operand leaves no instruction.
Why:  two's complement: sums, products and left shifts are the same for signed and unsigned numbers, so both kinds are
      pairs of unsigned words, and only comparisons, right shifts and division ask for the sign.

Source: Warren, "Hacker's Delight", 2nd edition, 2012, chapter 2 (double-length arithmetic) and 8-2 (high products).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.codegen.late.values import Values

U32, I32 = dtypes.uint32, dtypes.int32


class Word:
    """A lowered value with plain operators; constants are folded, and scalars meet vectors."""

    __slots__ = ("ops", "u", "values")

    def __init__(self, values: Values, ops: Container[Ops], u: UOp) -> None:
        self.values, self.ops, self.u = values, ops, u

    @property
    def dtype(self) -> DType:
        """Dtype of the node."""
        return self.u.dtype

    @property
    def known(self) -> int | None:
        """The value of a constant, of which a vector has the same in all lanes; else None."""
        if self.u.op is Ops.CONST:
            return int(self.u.arg)
        lanes = set(self.values.const_lanes(self.u) or ())
        return int(lanes.pop()) if len(lanes) == 1 else None

    def of(self, u: UOp) -> Word:
        """Return another node of the same kernel as a word."""
        return Word(self.values, self.ops, u)

    def const(self, x: float) -> Word:
        """Return a constant of this word's dtype."""
        return self.of(UOp(Ops.CONST, self.dtype, (), x))

    def _alu(self, op: Ops, dtype: DType, *operands: Word | float) -> Word:
        src = [x if isinstance(x, Word) else self.const(x) for x in operands]
        return self.of(self.values.alu(op, dtype, (self.u, *(x.u for x in src))))

    def __add__(self, x: Word | float) -> Word:
        return self._alu(Ops.ADD, self.dtype, x)

    def __sub__(self, x: Word) -> Word:
        if x.known is not None:
            return self + (-x.known & 0xFFFFFFFF)
        return self._alu(Ops.SUB, self.dtype, x) if Ops.SUB in self.ops else self + ~x + 1

    def __mul__(self, x: Word | float) -> Word:
        return self._alu(Ops.MUL, self.dtype, x)

    def __and__(self, x: Word | int) -> Word:
        return self._alu(Ops.AND, self.dtype, x)

    def __or__(self, x: Word | int) -> Word:
        return self._alu(Ops.OR, self.dtype, x)

    def __xor__(self, x: Word | int) -> Word:
        return self._alu(Ops.XOR, self.dtype, x)

    def __invert__(self) -> Word:
        return self ^ (1 if self.dtype is dtypes.bool else 0xFFFFFFFF)

    def __lshift__(self, x: Word | int) -> Word:
        return self._alu(Ops.SHL, self.dtype, x)

    def __rshift__(self, x: Word | int) -> Word:
        return self._alu(Ops.SHR, self.dtype, x)

    def __floordiv__(self, x: Word) -> Word:
        return self._alu(Ops.CDIV, self.dtype, x)

    def __lt__(self, x: Word | float) -> Word:
        if self.dtype is U32 and (x == 0 if isinstance(x, int) else isinstance(x, Word) and x.known == 0):
            return self.truth(False)
        return self._alu(Ops.CMPLT, dtypes.bool, x)

    def ne(self, x: Word | int) -> Word:
        """Whether different."""
        return self._alu(Ops.CMPNE, dtypes.bool, x)

    def eq(self, x: Word | int) -> Word:
        """Whether equal."""
        return self._alu(Ops.CMPEQ, dtypes.bool, x) if Ops.CMPEQ in self.ops else ~self.ne(x)

    def truth(self, x: bool) -> Word:
        """Return a constant condition."""
        return self.of(UOp(Ops.CONST, dtypes.bool, (), x))

    def where(self, x: Word, y: Word | int) -> Word:
        """Select ``x`` where this (a bool) holds, else ``y``."""
        other = y if isinstance(y, Word) else x.const(y)
        return x if x.u is other.u else self._alu(Ops.WHERE, x.dtype, x, other)

    def trunc(self) -> Word:
        """Round a float toward zero."""
        return self._alu(Ops.TRUNC, self.dtype)

    def cast(self, dtype: DType) -> Word:
        """Convert."""
        if dtype is self.dtype:
            return self
        if self.u.op is Ops.CONST and not dtypes.is_float(self.dtype):
            return self.of(UOp(Ops.CONST, dtype, (), dtype.const(self.u.arg)))
        return self.of(self.values.alu(Ops.CAST, dtype, (self.u,), dtype))

    def bits(self, dtype: DType) -> Word:
        """Reinterpret as ``dtype`` of the same size."""
        if dtype is self.dtype:
            return self
        if self.u.op is Ops.CONST and {dtype, self.dtype} == {U32, I32}:
            return self.of(UOp(Ops.CONST, dtype, (), _wrapped(self.u.arg, dtype)))
        return self.of(self.values.alu(Ops.BITCAST, dtype, (self.u,), dtype))

    def is_negative(self) -> Word:
        """Whether the first bit is set."""
        return self.bits(I32) < 0

    def fill(self) -> Word:
        """Return a word full of the first bit."""
        return (self.bits(I32) >> 31).bits(U32)


def _wrapped(x: int, dtype: DType) -> int:
    return x & 0xFFFFFFFF if dtype is U32 else (x + (1 << 31) & 0xFFFFFFFF) - (1 << 31)


class Pair(NamedTuple):
    """A 64-bit integer: two words of uint32."""

    low: Word
    high: Word

    def both(self, x: int) -> Pair:
        """Return a constant."""
        return Pair(self.low.const(x & 0xFFFFFFFF), self.high.const(x >> 32 & 0xFFFFFFFF))


# ---- sums and products ---------------------------------------------------------------------------------------------


def add(x: Pair, y: Pair) -> Pair:
    """Return x + y: the low sum wrapped if it is less than an operand."""
    low = x.low + y.low
    carry = low.truth(False) if y.low.known == 0 else low < x.low
    return Pair(low, x.high + y.high + carry.cast(U32))


def subtract(x: Pair, y: Pair) -> Pair:
    """Return x - y."""
    borrow = x.low < y.low
    return Pair(x.low - y.low, x.high - y.high - borrow.cast(U32))


def negate(x: Pair) -> Pair:
    """Return -x = ~x + 1."""
    low = ~x.low + 1
    return Pair(low, ~x.high + low.eq(0).cast(U32))


def high_product(x: Word, y: Word) -> Word:
    """Return the upper 32 bits of the product of two words, by products of their halves, which fit 32 bits."""
    x0, x1, y0, y1 = x & 0xFFFF, x >> 16, y & 0xFFFF, y >> 16
    middle = x1 * y0 + (x0 * y0 >> 16)
    other = x0 * y1 + (middle & 0xFFFF)
    return x1 * y1 + (middle >> 16) + (other >> 16)


def multiply(x: Pair, y: Pair) -> Pair:
    """Return x * y, modulo 2**64."""
    high = high_product(x.low, y.low) + x.low * y.high + x.high * y.low
    return Pair(x.low * y.low, high)


# ---- shifts --------------------------------------------------------------------------------------------------------


def _crossing(word: Word, count: Word) -> tuple[Word, Word]:
    """Return the bits that leave a word to the left and to the right, at the places where they enter the other one.

    Shifted twice, because a shift by the full width, where ``count`` is 0, is not the same on all targets.
    """
    rest = count ^ 31
    return (word >> 1) >> rest, (word << 1) << rest


def shift_left(x: Pair, count: Word, is_too_far: Word) -> Pair:
    """Return x << count, and 0 where it is shifted by the width or more."""
    few, is_far = count & 31, (count & 32).ne(0)
    low = x.low << few
    high = (x.high << few) | _crossing(x.low, few)[0]
    shifted = Pair(is_far.where(low.const(0), low), is_far.where(low, high))
    return select(is_too_far, x.both(0), shifted)


def shift_right(x: Pair, count: Word, is_too_far: Word, signed: bool) -> Pair:
    """Return x >> count, and the sign (0 if unsigned) where it is shifted by the width or more."""
    few, is_far = count & 31, (count & 32).ne(0)
    fill = x.high.fill() if signed else x.high.const(0)
    high = (x.high.bits(I32) >> few.bits(I32)).bits(U32) if signed else x.high >> few
    low = (x.low >> few) | _crossing(x.high, few)[1]
    shifted = Pair(is_far.where(high, low), is_far.where(fill, high))
    return select(is_too_far, Pair(fill, fill), shifted)


# ---- comparisons and selections ------------------------------------------------------------------------------------


def is_less(x: Pair, y: Pair, signed: bool) -> Word:
    """Whether x < y: decided by the high words unless they are equal."""
    high = x.high.bits(I32) < y.high.bits(I32) if signed else x.high < y.high
    return high | (x.high.eq(y.high) & (x.low < y.low))


def differs(x: Pair, y: Pair) -> Word:
    """Whether x != y."""
    return ((x.low ^ y.low) | (x.high ^ y.high)).ne(0)


def select(condition: Word, x: Pair, y: Pair) -> Pair:
    """Return x where the condition holds, else y."""
    return Pair(condition.where(x.low, y.low), condition.where(x.high, y.high))
