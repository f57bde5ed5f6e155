"""The remainder of floats in LLVM IR: exact for every pair of numbers, and vectors while quotients are small.

In:   dividends and divisors, scalars or vectors of equal lanes.
Out:  a call of a function of the module, whose text the builder keeps among its definitions.
Why:  LLVM's own ``frem`` calls the C library once per lane. Here it is left for quotients of 2**p or more (p bits of
      mantissa), infinities, NaN and divisors of 0.

For a, b > 0 and a/b < 2**p the quotient q = trunc(round(a / b)) is the right one or one more, because integers up to
2**p are floats and rounding keeps order. a - q*b is then a multiple of the last place of b and no larger than b, so a
fused multiply-add gives it without rounding; where it is negative, q was one more, and adding b is exact too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.llvm_build import Builder, Value, constant_text, suffix, vector, vector_type

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_MANTISSA_BITS: Final = {dtypes.float32: 24, dtypes.float64: 53}


def emit_remainder(b: Builder, u: UOp, x: Value, y: Value) -> Value:
    """Emit the remainder toward zero of floats, as C's fmod. float16 goes through float32, where it is exact too."""
    if x.dtype is dtypes.float16:
        wide = vector_type(dtypes.float32, x.lanes)
        x, y = (b.emit(f"fpext {v} to {wide}", dtypes.float32, x.lanes) for v in (x, y))
        rest = emit_remainder(b, u, x, y)
        return b.emit(f"fptrunc {rest} to {vector_type(dtypes.float16, x.lanes)}", dtypes.float16, x.lanes)
    name = f"remainder.{suffix('float' if x.dtype is dtypes.float32 else 'double', x.lanes)}"
    b.definitions[name] = _definition(b, name, x.dtype, x.lanes)
    return b.emit(f"call {x.type} @{name}({x}, {y})", x.dtype, x.lanes)


def _definition(b: Builder, name: str, dtype: DType, lanes: int) -> str:
    form, flags = vector_type(dtype, lanes), vector("i1", lanes)
    kind = form.split()[-1].rstrip(">")

    def constant(value: float) -> str:
        text = constant_text(value, dtype)
        return text if lanes == 1 else f"splat ({kind} {text})"

    def call(function: str, *operands: str) -> str:
        typed = [f"{form} {operand}" for operand in operands]
        b.declare(form, f"llvm.{function}.{suffix(kind, lanes)}", typed)
        return f"call {form} @llvm.{function}.{suffix(kind, lanes)}({', '.join(typed)})"

    all_small = ["%quick = or i1 %small, false"]
    if lanes > 1:
        all_small = [f"%bits = bitcast {flags} %small to i{lanes}", f"%quick = icmp eq i{lanes} %bits, -1"]
    lines = [
        f"%a = {call('fabs', '%x')}",
        f"%b = {call('fabs', '%y')}",
        f"%ratio = fdiv {form} %a, %b",
        f"%small = fcmp olt {form} %ratio, {constant(2.0 ** _MANTISSA_BITS[dtype])}",
        *all_small,
        "br i1 %quick, label %vector, label %lanes",
        "vector:",
        f"%q = {call('trunc', '%ratio')}",
        f"%minus = fneg {form} %q",
        f"%near = {call('fma', '%minus', '%b', '%a')}",
        f"%over = fcmp olt {form} %near, {constant(0.0)}",
        f"%back = fadd {form} %near, %b",
        f"%rest = select {flags} %over, {form} %back, {form} %near",
        # A quotient of 0 leaves the dividend: 0 times an infinite divisor would be NaN.
        f"%none = fcmp oeq {form} %q, {constant(0.0)}",
        f"%size = select {flags} %none, {form} %a, {form} %rest",
        f"%signed = {call('copysign', '%size', '%x')}",
        f"ret {form} %signed",
        "lanes:",
        f"%exact = frem {form} %x, %y",
        f"ret {form} %exact",
    ]
    body = "\n".join(f"  {line}" if not line.endswith(":") else line for line in lines)
    return f"define internal {form} @{name}({form} %x, {form} %y) #0 {{\n{body}\n}}\n"
