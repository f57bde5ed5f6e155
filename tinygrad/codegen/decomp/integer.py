"""Integer division: FLOORDIV and FLOORMOD as CDIV, CMOD, shifts and masks; divisions that no processor stops at.

In:   one integer node FLOORDIV, FLOORMOD, CDIV or CMOD, with the bounds that are known of its operands.
Out:  the same value. A divisor of zero gives 0 for a quotient and the dividend for a remainder, on every target.
Why:  processors divide slowly, differ in how they round, and some stop at a divisor of zero.
"""

from __future__ import annotations

from tinygrad.codegen.decomp.value import Value
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def power_of_two(u: UOp) -> int | None:
    """Return k if ``u`` is the constant 2**k, else None."""
    if u.op is not Ops.CONST or not dtypes.is_int(u.dtype):
        return None
    value = int(u.arg)
    return value.bit_length() - 1 if value > 0 and not value & (value - 1) else None


def floor_div(x: UOp, y: UOp) -> UOp:
    """X // y = cdiv(x, y), minus 1 where the remainder and the divisor have different signs."""
    shift = power_of_two(y)
    if shift is not None:
        return (Value(x) >> shift).u if shift else x  # an arithmetic shift rounds down
    quotient = Value(x).cdiv(y)
    if same_sign(x, y):
        return quotient.u
    remainder = Value(x) - quotient * y
    correction = _signs_differ(remainder, y).where(quotient.const(1), 0)
    return (quotient - correction).u


def floor_mod(x: UOp, y: UOp) -> UOp:
    """X % y = cmod(x, y), plus y where it and the divisor have different signs."""
    shift = power_of_two(y)
    if shift is not None:
        return (Value(x) & ((1 << shift) - 1)).u
    remainder = Value(x).cmod(y)
    if same_sign(x, y):
        return remainder.u
    return _signs_differ(remainder, y).where(remainder + y, remainder).u


def same_sign(x: UOp, y: UOp) -> bool:
    """Whether the bounds show that a quotient is not negative, so that rounding toward zero is rounding down."""
    return dtypes.is_unsigned(x.dtype) or (x.vmin >= 0 and y.vmin >= 0) or (x.vmax <= 0 and y.vmax < 0)


def _signs_differ(remainder: Value, y: UOp) -> Value:
    # A zero divisor leaves the dividend as the remainder; adding zero to it changes nothing.
    if y.vmin >= 0:
        return (remainder < 0) if y.vmin > 0 else (remainder < 0) & Value(y).ne(0)
    if y.vmax < 0:
        return remainder > 0
    return remainder.ne(0) & (Value(y) < 0).ne(remainder < 0) & Value(y).ne(0)


def guarded(op: Ops, x: UOp, y: UOp) -> UOp | None:
    """Keep CDIV and CMOD away from the two divisions that stop a processor: by zero, and of the smallest number by -1.

    Returns None if the bounds of the divisor exclude both.
    """
    may_be_zero = y.vmin <= 0 <= y.vmax
    may_overflow = _is_signed(x.dtype) and x.vmin <= x.dtype.min and y.vmin <= -1 <= y.vmax
    if not may_be_zero and not may_overflow:
        return None
    if y.op is Ops.CONST:
        return _by_constant(op, x, int(y.arg))
    divisor, dividend = Value(y), Value(x)
    is_zero, is_minus_one = divisor.eq(0), divisor.eq(-1)
    # The quotient by 1 is the negated quotient by -1 and the remainder by 1 is 0, so 1 stands in for both.
    bad = is_zero | is_minus_one if may_overflow and may_be_zero else is_zero if may_be_zero else is_minus_one
    safe = bad.where(divisor.const(1), divisor)
    result = Value(UOp(op, x.dtype, (x, safe.u)))
    if op is Ops.CDIV:
        if may_overflow:
            result = is_minus_one.where(dividend * -1, result)
        return (is_zero.where(result.const(0), result) if may_be_zero else result).u
    return (is_zero.where(dividend, result) if may_be_zero else result).u


def _is_signed(dtype: DType) -> bool:
    return dtype.kind == "int"


def _by_constant(op: Ops, x: UOp, divisor: int) -> UOp:
    if divisor == 0:
        return x if op is Ops.CMOD else UOp(Ops.CONST, x.dtype, (), 0)
    return UOp(Ops.CONST, x.dtype, (), 0) if op is Ops.CMOD else (Value(x) * -1).u


def divide_by_power(op: Ops, x: UOp, y: UOp) -> UOp | None:
    """CDIV and CMOD by 2**k of a dividend that is not negative are a shift and a mask."""
    shift = power_of_two(y)
    if shift is None or x.vmin < 0:
        return None
    return (Value(x) >> shift).u if op is Ops.CDIV else (Value(x) & ((1 << shift) - 1)).u


def multiply_shift(x: UOp, divisor: int) -> UOp | None:
    """Divide 0 <= x by a constant through a multiplication in 64 bits (Granlund, Montgomery 1994).

    Returns None if the product does not fit.
    """
    largest = int(x.vmax)
    if x.vmin < 0 or divisor <= 1 or largest >= 1 << 32:
        return None
    for shift in range(64):
        factor = (1 << shift) // divisor + 1
        # The error factor * divisor - 2**shift, times x, must not reach the next multiple.
        if largest * (factor * divisor - (1 << shift)) < 1 << shift:
            if largest * factor >= 1 << 64:
                return None
            return ((Value(x).cast(dtypes.uint64) * factor) >> shift).cast(x.dtype).u
    return None


def int_power(x: UOp, y: UOp) -> UOp:
    """X ** y of integers by squaring, modulo 2**bits. A negative exponent gives 0, except for bases 1 and -1."""
    base, exponent = Value(x), Value(y)
    result = base.const(1)
    steps = max(1, min(int(y.vmax).bit_length(), x.dtype.bitsize))  # one for each bit that an exponent can have
    factor = base
    for step in range(steps):
        bit = (exponent >> step) & 1
        result = bit.ne(0).where(result * factor, result)
        factor = factor * factor
    if y.vmin < 0:
        odd = (exponent & 1).ne(0)
        inverse = base.eq(1).where(base, base.eq(-1).where(odd.where(base, base.const(1)), 0))
        result = (exponent < 0).where(inverse, result)
    return result.u
