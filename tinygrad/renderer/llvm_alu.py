"""LLVM instructions of every arithmetic operation.

In:   a node, and the values of its sources (scalars, or vectors of equal lanes).
Out:  the value of the node; instructions are emitted through the builder at the place that it has chosen.
Ops:  ``ALU`` has one entry per native operation. EXP2, LOG2, SIN and THREEFRY are lowered before.
Why:  what LLVM leaves undefined (shifts, conversions, NaN) is defined here as the PYTHON device has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.llvm_build import Builder, Value, ir_type, suffix, vector_type
from tinygrad.renderer.llvm_remainder import emit_remainder
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# (float, integer, bool) forms of the operations that are one instruction each
_ARITHMETIC: Final = {
    Ops.ADD: ("fadd", "add", "or"),
    Ops.SUB: ("fsub", "sub", "xor"),
    Ops.MUL: ("fmul", "mul", "and"),
    Ops.XOR: ("", "xor", "xor"),
    Ops.OR: ("", "or", "or"),
    Ops.AND: ("", "and", "and"),
}
# (float, signed, unsigned and bool) predicates; comparisons with NaN are False, except "not equal"
_COMPARE: Final = {
    Ops.CMPLT: ("fcmp olt", "icmp slt", "icmp ult"),
    Ops.CMPNE: ("fcmp une", "icmp ne", "icmp ne"),
    Ops.CMPEQ: ("fcmp oeq", "icmp eq", "icmp eq"),
}


def _arithmetic(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    forms = _ARITHMETIC[u.op]
    name = forms[0] if dtypes.is_float(x.dtype) else forms[2] if x.dtype is dtypes.bool else forms[1]
    return b.emit(f"{name} {x}, {y.name}", x.dtype, x.lanes)


def _quotient(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    """Emit a division.

    LLVM takes a lane of a quotient for 0 if both operands are known to be 0 there, though it is NaN, and then leaves
    out the selection of another value for it. It does not look through a constrained division, which costs the same.
    """
    if x.lanes == 1 or not (x.name.startswith("%") and y.name.startswith("%")):
        return b.emit(f"fdiv {x}, {y.name}", x.dtype, x.lanes)
    name = f"llvm.experimental.constrained.fdiv.{suffix(ir_type(x.dtype), x.lanes)}"
    exact = 'metadata !"round.tonearest"', 'metadata !"fpexcept.ignore"'
    return b.call(x.dtype, x.lanes, name, str(x), str(y), *exact)


def _compare(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    forms = _COMPARE[u.op]
    signed = x.dtype.kind == "int"
    name = forms[0] if dtypes.is_float(x.dtype) else forms[1] if signed else forms[2]
    return b.emit(f"{name} {x}, {y.name}", dtypes.bool, x.lanes)


def _maximum(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    if x.dtype is dtypes.bool:
        return b.emit(f"or {x}, {y.name}", x.dtype, x.lanes)
    if not dtypes.is_float(x.dtype):
        name = "smax" if x.dtype.kind == "int" else "umax"
        return b.call(x.dtype, x.lanes, f"llvm.{name}.{suffix(ir_type(x.dtype), x.lanes)}", str(x), str(y))
    return maximum(b, u, x, y)


def maximum(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    """Emit the float maximum that propagates NaN: one max instruction and one blend on x86.

    ``x > y ? x : y`` is x86's max, which gives y if either is NaN; so only a NaN in x needs care. A running maximum
    therefore goes to y: the test of x is then outside the chain from one iteration to the next.
    """
    if u.op is Ops.MAX and u.src[0].op is Ops.LOAD and u.src[0].src[0].op is not Ops.INDEX:
        x, y = y, x
    greater = b.emit(f"fcmp ogt {x}, {y.name}", dtypes.bool, x.lanes)
    larger = b.select(greater, x, y)
    is_nan = b.emit(f"fcmp uno {x}, {x.name}", dtypes.bool, x.lanes)
    return b.select(is_nan, x, larger)


def _negate(b: Builder, u: UOp, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return b.emit(f"fneg {x}", x.dtype, x.lanes)
    if x.dtype is dtypes.bool:
        return b.emit(f"xor {x}, {b.splat_constant(True, x.dtype, x.lanes).name}", x.dtype, x.lanes)
    return b.emit(f"sub {x.type} {b.zero(x.dtype, x.lanes).name}, {x.name}", x.dtype, x.lanes)


def _reciprocal(b: Builder, u: UOp, x: Value) -> Value:
    return b.emit(f"fdiv {x.type} {b.splat_constant(1.0, x.dtype, x.lanes).name}, {x.name}", x.dtype, x.lanes)


def _intrinsic(name: str) -> Callable[..., Value]:
    def emit(b: Builder, u: UOp, x: Value) -> Value:
        if not dtypes.is_float(x.dtype):
            return x  # TRUNC of an integer
        return b.call(x.dtype, x.lanes, f"llvm.{name}.{suffix(ir_type(x.dtype), x.lanes)}", str(x))

    return emit


def _multiply_add(b: Builder, u: UOp, x: Value, y: Value, z: Value) -> Value:
    if not dtypes.is_float(x.dtype):
        product = b.emit(f"mul {x}, {y.name}", x.dtype, x.lanes)
        return b.emit(f"add {product}, {z.name}", x.dtype, x.lanes)
    return b.call(x.dtype, x.lanes, f"llvm.fma.{suffix(ir_type(x.dtype), x.lanes)}", str(x), str(y), str(z))


def _where(b: Builder, u: UOp, condition: Value, x: Value, y: Value) -> Value:
    return b.select(condition, x, y)


def _is_constant(x: Value) -> bool:
    return x.name[0] in "-0123456789" or x.name.startswith("splat")


def _constant_number(x: Value) -> int:
    return int(x.name.removeprefix("splat (").removesuffix(")").rpartition(" ")[2])


def _divide(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    """Emit integer division or remainder that never traps: x/0 = 0, x%0 = x, and the smallest number by -1 wraps.

    What is asked about the divisor alone stands where that is known, in front of the loops that only x changes in.
    """
    signed, quotient = x.dtype.kind == "int", u.op is Ops.CDIV
    if x.dtype is dtypes.bool:
        return x if quotient else b.zero(x.dtype, x.lanes)
    name = ("s" if signed else "u") + ("div" if quotient else "rem")
    if (_is_constant(y) and _constant_number(y) not in (0, -1)) or u.src[1].vmin > 0:
        return b.emit(f"{name} {x}, {y.name}", x.dtype, x.lanes)
    zero, one = b.zero(x.dtype, x.lanes), b.splat_constant(1, x.dtype, x.lanes)
    b.at(y)
    by_zero = b.emit(f"icmp eq {y}, {zero.name}", dtypes.bool, x.lanes)
    minus_one = b.splat_constant(-1, x.dtype, x.lanes)
    by_minus_one = b.emit(f"icmp eq {y}, {minus_one.name}", dtypes.bool, x.lanes) if signed else by_zero
    unsafe = b.emit(f"or {by_zero}, {by_minus_one.name}", dtypes.bool, x.lanes) if signed else by_zero
    divisor = b.select(unsafe, one, y)
    b.at(x, y)
    safe = b.emit(f"{name} {x}, {divisor.name}", x.dtype, x.lanes)
    if not quotient:
        return b.select(by_zero, x, safe)
    if signed:
        negative = b.emit(f"sub {x.type} {zero.name}, {x.name}", x.dtype, x.lanes)
        safe = b.select(by_minus_one, negative, safe)
    return b.select(by_zero, zero, safe)


def _modulo(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    return (emit_remainder if dtypes.is_float(x.dtype) else _divide)(b, u, x, y)


def _shift(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    """Emit a shift. By the width or more: 0, or the sign for a signed shift to the right."""
    bits, left, signed = x.dtype.bitsize, u.op is Ops.SHL, x.dtype.kind == "int"
    name = "shl" if left else "ashr" if signed else "lshr"
    if x.dtype is dtypes.weakint:
        bits = 64
    if _is_constant(y) and 0 <= _constant_number(y) < bits:
        amount = b.splat_constant(_constant_number(y), x.dtype, x.lanes)
        return b.emit(f"{name} {x}, {amount.name}", x.dtype, x.lanes)
    width = b.splat_constant(bits - 1, y.dtype, y.lanes)
    too_far = b.emit(f"icmp ugt {y}, {width.name}", dtypes.bool, x.lanes)
    amount = resize(b, b.select(too_far, width, y), x.dtype)
    shifted = b.emit(f"{name} {x}, {amount.name}", x.dtype, x.lanes)
    return shifted if signed and not left else b.select(too_far, b.zero(x.dtype, x.lanes), shifted)


def resize(b: Builder, x: Value, dtype: DType) -> Value:
    """Emit the conversion between two integer dtypes, or from bool."""
    before, after = ir_type(x.dtype), ir_type(dtype)
    if before == after:
        return x._replace(dtype=dtype)
    narrow = int(before[1:]) > int(after[1:])
    name = "trunc" if narrow else "sext" if x.dtype.kind == "int" else "zext"
    return b.emit(f"{name} {x} to {vector_type(dtype, x.lanes)}", dtype, x.lanes)


def emit_cast(b: Builder, x: Value, dtype: DType, machine: str) -> Value:
    """Emit a conversion of values."""
    if x.dtype is dtype:
        return x
    if dtype is dtypes.bool:
        name = "fcmp une" if dtypes.is_float(x.dtype) else "icmp ne"
        return b.emit(f"{name} {x}, {b.zero(x.dtype, x.lanes).name}", dtype, x.lanes)
    if dtypes.is_float(x.dtype):
        return _float_to_float(b, x, dtype) if dtypes.is_float(dtype) else _float_to_int(b, x, dtype, machine)
    if dtypes.is_float(dtype):
        name = "sitofp" if x.dtype.kind == "int" else "uitofp"
        if dtype is dtypes.float16 and x.dtype.itemsize > 2:
            # Beyond 2**24, where float32 rounds, half precision is infinite: one rounding counts.
            wide = b.emit(f"{name} {x} to {vector_type(dtypes.float32, x.lanes)}", dtypes.float32, x.lanes)
            return _float_to_float(b, wide, dtype)
        return b.emit(f"{name} {x} to {vector_type(dtype, x.lanes)}", dtype, x.lanes)
    return resize(b, x, dtype)


def _float_to_float(b: Builder, x: Value, dtype: DType) -> Value:
    form = vector_type(dtype, x.lanes)
    if dtype.itemsize > x.dtype.itemsize:
        return b.emit(f"fpext {x} to {form}", dtype, x.lanes)
    if x.dtype is dtypes.float64 and dtype is dtypes.float16:
        x = _round_to_odd(b, x)
    return b.emit(f"fptrunc {x} to {form}", dtype, x.lanes)


def _round_to_odd(b: Builder, x: Value) -> Value:
    """Round float64 to float32 such that rounding again to float16 gives what one rounding would.

    Inexact results get their last bit set: truncate toward zero, then or 1.
    """
    n, bits = x.lanes, vector_type(dtypes.int32, x.lanes)
    near = b.emit(f"fptrunc {x} to {vector_type(dtypes.float32, n)}", dtypes.float32, n)
    back = b.emit(f"fpext {near} to {x.type}", dtypes.float64, n)
    inexact = b.emit(f"fcmp one {back}, {x.name}", dtypes.bool, n)
    size = [b.call(dtypes.float64, n, f"llvm.fabs.{suffix('double', n)}", str(v)) for v in (back, x)]
    too_large = b.emit(f"fcmp ogt {size[0]}, {size[1].name}", dtypes.bool, n)
    pattern = b.emit(f"bitcast {near} to {bits}", dtypes.int32, n)
    one = b.splat_constant(1, dtypes.int32, n)
    below = b.emit(f"sub {pattern}, {one.name}", dtypes.int32, n)
    odd = b.emit(f"or {b.select(too_large, below, pattern)}, {one.name}", dtypes.int32, n)
    return b.emit(f"bitcast {b.select(inexact, odd, pattern)} to {near.type}", dtypes.float32, n)


def _float_to_int(b: Builder, x: Value, dtype: DType, machine: str) -> Value:
    """Round toward zero into int32 or int64, then wrap; what does not fit, and NaN, becomes the smallest number."""
    if x.dtype is dtypes.float16:
        x = _float_to_float(b, x, dtypes.float32)
    if dtype is dtypes.uint64:
        return _float_to_uint64(b, x, machine)
    wide = dtypes.int32 if dtype.itemsize <= 2 or dtype is dtypes.int32 else dtypes.int64
    return resize(b, _to_signed(b, x, wide, machine), dtype)


def _to_signed(b: Builder, x: Value, dtype: DType, machine: str) -> Value:
    made = b.emit(f"fptosi {x} to {vector_type(dtype, x.lanes)}", dtype, x.lanes)
    if machine == "x86_64":
        return made  # the instruction itself gives the smallest number for what does not fit
    limit = float(1 << (dtype.bitsize - 1))
    low, high = (b.splat_constant(v, x.dtype, x.lanes) for v in (-limit, limit))
    above = b.emit(f"fcmp oge {x}, {low.name}", dtypes.bool, x.lanes)
    below = b.emit(f"fcmp olt {x}, {high.name}", dtypes.bool, x.lanes)
    fits = b.emit(f"and {above}, {below.name}", dtypes.bool, x.lanes)
    return b.select(fits, made, b.splat_constant(dtype.min, dtype, x.lanes))


def _float_to_uint64(b: Builder, x: Value, machine: str) -> Value:
    half, top = (b.splat_constant(v, x.dtype, x.lanes) for v in (2.0**63, 2.0**64))
    sign = b.splat_constant(1 << 63, dtypes.int64, x.lanes)
    large = b.emit(f"fcmp oge {x}, {half.name}", dtypes.bool, x.lanes)
    reduced = b.emit(f"fsub {x}, {half.name}", x.dtype, x.lanes)
    signed = _to_signed(b, b.select(large, reduced, x), dtypes.int64, machine)
    shifted = b.emit(f"xor {signed}, {sign.name}", dtypes.int64, x.lanes)
    too_large = b.emit(f"fcmp oge {x}, {top.name}", dtypes.bool, x.lanes)
    out = b.select(too_large, sign, b.select(large, shifted, signed))
    return out._replace(dtype=dtypes.uint64)


def emit_bitcast(b: Builder, x: Value, dtype: DType) -> Value:
    """Emit a reinterpretation of bits; a bool counts as a byte."""
    if x.dtype is dtypes.bool:
        x = resize(b, x, dtypes.uint8)
    if dtype is dtypes.bool:
        byte = x if ir_type(x.dtype) == "i8" else emit_bitcast(b, x, dtypes.uint8)
        return b.emit(f"icmp ne {byte}, {b.zero(byte.dtype, x.lanes).name}", dtype, x.lanes)
    if ir_type(x.dtype) == ir_type(dtype):
        return x._replace(dtype=dtype)
    lanes = x.lanes * x.dtype.itemsize // dtype.itemsize
    return b.emit(f"bitcast {x} to {vector_type(dtype, lanes)}", dtype, lanes)


def words_of(b: Builder, x: Value, dtype: DType) -> tuple[Value, Value]:
    """Emit the two halves of the bits of a scalar of 64 bits, the low one first."""
    bits = emit_bitcast(b, x, dtypes.uint64)
    high = b.emit(f"lshr {bits}, 32", dtypes.uint64, 1)
    low, high = (b.emit(f"trunc {half} to {ir_type(dtype)}", dtype, 1) for half in (bits, high))
    return low, high


def emit_horizontal(b: Builder, u: UOp, x: Value) -> Value:
    """Emit the reduction of all lanes by halves: lanes i and i + n/2, until one is left."""
    op = u.arg[0]
    while x.lanes > 1:
        low, high = b.halves(x)
        b.at(x)
        if op is not Ops.MAX:
            forms = _ARITHMETIC[op]
            name = forms[0] if dtypes.is_float(x.dtype) else forms[2] if x.dtype is dtypes.bool else forms[1]
            x = b.emit(f"{name} {low}, {high.name}", x.dtype, low.lanes)
        else:
            x = _maximum(b, u, low, high)
    return x


ALU: Final[dict[Ops, Callable[..., Any]]] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_COMPARE, _compare),
    Ops.FDIV: _quotient,
    Ops.MAX: _maximum,
    Ops.NEG: _negate,
    Ops.RECIPROCAL: _reciprocal,
    Ops.SQRT: _intrinsic("sqrt"),
    Ops.TRUNC: _intrinsic("trunc"),
    Ops.CDIV: _divide,
    Ops.CMOD: _modulo,
    Ops.SHL: _shift,
    Ops.SHR: _shift,
    Ops.WHERE: _where,
    Ops.MULACC: _multiply_add,
}
