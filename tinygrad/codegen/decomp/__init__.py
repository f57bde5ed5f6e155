"""Lower a kernel to the operations and dtypes that its target declares.

In:   an optimised kernel SINK: scalar nodes, any op of ``GroupOp.ALU``, any dtype.
Out:  the same kernel; every ALU op is in ``renderer.code_for_op`` and every dtype in ``renderer.supported_dtypes()``.
Why:  a device implements some 25 operations and gets all the others, with the same bits everywhere.

Order: narrow floats first (their operations become float32 operations), then operations, then the forms that only some
targets have (SUB, NEG, CMPEQ, FDIV) or lack. 64-bit integers that the target lacks stay until the kernel is lowered
(``wide_integers``), since a sum over a loop is one node here; only index arithmetic is made ready for 32 bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tinygrad.codegen.decomp import integer, power, transcendental, trigonometry
from tinygrad.codegen.decomp.dtypes import NARROW, Emulation
from tinygrad.codegen.decomp.narrow_indices import index_dtype, narrow_indices
from tinygrad.codegen.decomp.threefry import threefry
from tinygrad.codegen.decomp.value import Value
from tinygrad.dtype import DType, dtypes, to_dtype
from tinygrad.errors import DTypeError
from tinygrad.record import record
from tinygrad.settings import DISABLE_FAST_IDIV, EMULATED_DTYPES, TRANSCENDENTAL
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, graph_rewrite

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer


@record(frozen=True)
class Support:
    """What the target has natively."""

    ops: frozenset[Ops]
    dtypes: frozenset[DType]
    fast_division: bool

    @property
    def has_double(self) -> bool:
        """Whether float64 can be computed and taken apart; the integers for that may be emulated."""
        return dtypes.float64 in self.dtypes

    @property
    def has_wide_integers(self) -> bool:
        """Whether 64-bit integers are native; where one kind is missing, both are made of 32-bit words."""
        return self.dtypes.issuperset(dtypes.int64s)


# ---- operations ----------------------------------------------------------------------------------------------------


def lower_transcendental(ctx: Support, x: UOp) -> UOp | None:
    """Write exp2, log2, sin or sqrt as polynomials; narrow floats go through float32."""
    # A native sine of y + pi/2 would lose what the addition rounds off, so a cosine is always computed here.
    if x.op in ctx.ops and not (x.op is Ops.SIN and trigonometry.cosine_argument(x.src[0]) is not None):
        return None
    if x.dtype not in transcendental.LAYOUTS:
        wide = UOp(x.op, dtypes.float32, tuple(s.cast(dtypes.float32) for s in x.src))
        return wide.cast(x.dtype)
    match x.op:
        case Ops.EXP2:
            return transcendental.exp2(x.src[0])
        case Ops.LOG2:
            return transcendental.log2(x.src[0])
        case Ops.SIN:
            return trigonometry.sin(x.src[0], ctx.has_double)
        case _:
            return transcendental.sqrt(x.src[0])


def lower_natural_log(ctx: Support, x: UOp, c: UOp) -> UOp | None:
    """Write log2(x) * log(2) as one function, which is shorter and rounds once less."""
    if Ops.LOG2 in ctx.ops or not transcendental.is_natural_log(c):
        return None
    return transcendental.natural_log(x)


def lower_absolute(ctx: Support, x: UOp, u: UOp) -> UOp | None:
    """Clear the sign bit."""
    if u.dtype is dtypes.float64 and not ctx.has_wide_integers:
        return None
    layout = transcendental.LAYOUTS.get(u.dtype)
    return None if layout is None else (Value(x).bits(layout.bits) & layout.bits.max).bits(u.dtype).u


def lower_pow(ctx: Support, x: UOp, y: UOp, u: UOp) -> UOp:
    """Write a power of floats as 2 ** (y * log2(x)), and of integers by squaring."""
    if dtypes.is_int(u.dtype) or u.dtype is dtypes.bool:
        return integer.int_power(x, y)
    if u.dtype in transcendental.LAYOUTS:
        return power.power(x, y, ctx.has_double)
    wide = UOp(Ops.POW, dtypes.float32, (x.cast(dtypes.float32), y.cast(dtypes.float32)))
    return wide.cast(u.dtype)


def lower_threefry(ctx: Support, x: UOp, key: UOp) -> UOp | None:
    """Write one block of random bits as 20 rounds."""
    return None if Ops.THREEFRY in ctx.ops else threefry(x, key)


def lower_division(ctx: Support, x: UOp, y: UOp, u: UOp) -> UOp | None:
    """Avoid the division where a shift, mask or multiplication does; else keep it from dividing by 0."""
    if dtypes.is_float(x.dtype):
        return None  # a remainder that targets have, as C's fmod
    by_power = integer.divide_by_power(u.op, x, y)
    if by_power is not None:
        return by_power
    if ctx.fast_division and ctx.has_wide_integers and y.op is Ops.CONST and x.dtype is not dtypes.weakint:
        quotient = integer.multiply_shift(x, int(y.arg))
        if quotient is not None:
            return quotient if u.op is Ops.CDIV else (Value(x) - Value(quotient) * y).u
    return integer.guarded(u.op, x, y)


def lower_max(ctx: Support, x: UOp, y: UOp) -> UOp | None:
    """max(x, y) = x > y or x is NaN ? x : y."""
    if Ops.MAX in ctx.ops:
        return None
    a = Value(x)
    if x.dtype is dtypes.bool:
        return (a | y).u
    takes_first = (a > y) | a.ne(a) if dtypes.is_float(x.dtype) else a > y
    return takes_first.where(a, y).u


pm_operations = PatternMatcher([
    # exp2, log2, sin, sqrt -> polynomials
    (UPat((Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT), name="x"), lower_transcendental),
    # x ** y
    (UPat(Ops.POW, src=(UPat.var("x"), UPat.var("y")), name="u"), lower_pow),
    # 20 rounds of additions and rotations
    (UPat(Ops.THREEFRY, src=(UPat.var("x"), UPat.var("key"))), lower_threefry),
    # x // y, x % y -> shifts and masks, or division toward zero with a correction
    (UPat(Ops.FLOORDIV, src=(UPat.var("x"), UPat.var("y"))), lambda x, y: integer.floor_div(x, y)),
    (UPat(Ops.FLOORMOD, src=(UPat.var("x"), UPat.var("y"))), lambda x, y: integer.floor_mod(x, y)),
    # max(x, y) -> selection
    (UPat(Ops.MAX, src=(UPat.var("x"), UPat.var("y"))), lower_max),
])

# Offered before the sources are lowered.
pm_whole_functions = PatternMatcher([
    # log2(x) * log(2) -> polynomial
    (UPat(Ops.MUL, src=[UPat(Ops.LOG2, src=(UPat.var("x"),)), UPat.cvar("c")]), lower_natural_log),
    # x > 0 ? x : x < 0 ? -x : x*x -> x without its sign
    (
        UPat(
            Ops.WHERE,
            src=(
                UPat(Ops.CMPLT, src=(UPat.const(0), UPat.var("x"))),
                UPat.var("x"),
                UPat(
                    Ops.WHERE,
                    src=(
                        UPat(Ops.CMPLT, src=(UPat.var("x"), UPat.const(0))),
                        UPat(Ops.MUL, src=[UPat.var("x"), UPat.const(-1)]),
                        UPat(Ops.MUL, src=(UPat.var("x"), UPat.var("x"))),
                    ),
                ),
            ),
            name="u",
        ),
        lower_absolute,
    ),
])

# Applied in one walk: what replaces a division holds a division.
pm_division = PatternMatcher([
    # x / y, x mod y -> shift, mask, multiplication, or a division by what is neither 0 nor -1
    (UPat((Ops.CDIV, Ops.CMOD), src=(UPat.var("x"), UPat.var("y")), name="u"), lower_division),
])


# ---- forms that some targets have and others lack ------------------------------------------------------------------


def lower_sub(ctx: Support, x: UOp, y: UOp) -> UOp | None:
    """A - b = a + b * -1, exactly."""
    return None if Ops.SUB in ctx.ops and x.dtype is not dtypes.weakint else (Value(x) + Value(y) * -1).u


def lower_neg(ctx: Support, x: UOp) -> UOp | None:
    """-a = a * -1."""
    return None if Ops.NEG in ctx.ops and x.dtype is not dtypes.weakint else (Value(x) * -1).u


def lower_equal(ctx: Support, x: UOp, y: UOp) -> UOp | None:
    """(a == b) = ((a != b) != True)."""
    return None if Ops.CMPEQ in ctx.ops else Value(x).ne(y).ne(True).u


def lower_quotient(ctx: Support, x: UOp, y: UOp) -> UOp | None:
    """A / b = a * (1 / b), which rounds twice: only where there is no division."""
    return None if Ops.FDIV in ctx.ops else (Value(x) * UOp(Ops.RECIPROCAL, y.dtype, (y,))).u


def lower_reciprocal(ctx: Support, x: UOp) -> UOp | None:
    """1 / a as a division, for targets that have only that."""
    return None if Ops.RECIPROCAL in ctx.ops or Ops.FDIV not in ctx.ops else (Value(x).const(1.0) / x).u


def form_quotient(ctx: Support, x: UOp, y: UOp, u: UOp, inverse: UOp) -> UOp | None:
    """Make a * (1 / b) one division, rounded once; unless 1 / b is the same for a whole inner loop."""
    if Ops.FDIV not in ctx.ops or (y.op is not Ops.CONST and len(inverse.ranges) < len(u.ranges)):
        return None
    return (Value(x) / y).u


def form_difference(ctx: Support, x: UOp, y: UOp) -> UOp | None:
    """A + b * -1 = a - b."""
    return (Value(x) - y).u if Ops.SUB in ctx.ops and x.dtype is not dtypes.weakint else None


def form_negation(ctx: Support, x: UOp) -> UOp | None:
    """A * -1 = -a."""
    return UOp(Ops.NEG, x.dtype, (x,)) if Ops.NEG in ctx.ops and x.dtype is not dtypes.weakint else None


def form_equal(ctx: Support, x: UOp, y: UOp) -> UOp | None:
    """(a != b) != True is a == b."""
    return Value(x).eq(y).u if Ops.CMPEQ in ctx.ops else None


pm_forms = PatternMatcher([
    (UPat(Ops.SUB, src=(UPat.var("x"), UPat.var("y"))), lower_sub),
    (UPat(Ops.NEG, src=(UPat.var("x"),)), lower_neg),
    (UPat(Ops.CMPEQ, src=(UPat.var("x"), UPat.var("y"))), lower_equal),
    (UPat(Ops.FDIV, src=(UPat.var("x"), UPat.var("y"))), lower_quotient),
    (UPat(Ops.RECIPROCAL, src=(UPat.var("x"),)), lower_reciprocal),
])

pm_native_forms = PatternMatcher([
    (
        UPat(Ops.MUL, src=[UPat.var("x"), UPat(Ops.RECIPROCAL, src=(UPat.var("y"),), name="inverse")], name="u"),
        form_quotient,
    ),
    (UPat(Ops.ADD, src=[UPat.var("x"), UPat(Ops.MUL, src=[UPat.var("y"), UPat.const(-1)])]), form_difference),
    (UPat(Ops.MUL, src=[UPat.var("x"), UPat.const(-1)]), form_negation),
    (UPat(Ops.CMPNE, src=[UPat(Ops.CMPNE, src=(UPat.var("x"), UPat.var("y"))), UPat.const(True)]), form_equal),
])


# ---- the stage -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _support(ops: frozenset[Ops], supported: frozenset[DType], emulated: str, software: bool, fast: bool) -> Support:
    missing = frozenset(to_dtype(name.strip()) for name in emulated.split(",") if name.strip())
    if software:
        ops -= {Ops.EXP2, Ops.LOG2, Ops.SIN}
    return Support(ops, supported - missing, fast)


def support_of(renderer: Renderer) -> Support:
    """Return what a renderer declares, as the context variables change it."""
    return _support(
        frozenset(renderer.code_for_op),
        frozenset(renderer.supported_dtypes()),
        EMULATED_DTYPES.value,
        TRANSCENDENTAL >= 2,
        not DISABLE_FAST_IDIV,
    )


def emulated_dtypes(sink: UOp, renderer: Renderer) -> list[DType]:
    """Return the dtypes of a kernel that are computed with others, because the target or a setting lacks them."""
    support = support_of(renderer)
    missing = set(NARROW) - support.dtypes
    if not support.has_wide_integers:
        missing.update(dtypes.int64s)
    return sorted({u.dtype for u in sink.toposort()} & missing)


def _check_dtypes(sink: UOp, support: Support, renderer: Renderer) -> None:
    known = {dtypes.void, *dtypes.weaks, *dtypes.int64s}
    used = {u.dtype for u in sink.toposort()} - support.dtypes - known
    for dtype in sorted(used):
        others = (dtypes.float32, dtypes.float64) if dtypes.is_float(dtype) else (dtypes.int32, dtypes.int64)
        instead = next((other for other in others if other in support.dtypes), dtypes.int64)
        raise DTypeError(
            f"{renderer.target}: this target has no {dtype} and it cannot be emulated here; cast the tensor to a dtype "
            f"that it has, such as {instead}"
        )


def decompose(sink: UOp, renderer: Renderer) -> UOp:
    """Return the kernel in terms of what the renderer declares; 64-bit integers are left to ``split_wide``.

    Raises:
        DTypeError: The kernel needs a dtype that the target lacks and that cannot be emulated, or 64-bit indices.
    """
    support = support_of(renderer)
    if index_dtype(sink, renderer.index_dtype, support.has_wide_integers) is dtypes.int32:
        sink = narrow_indices(sink)
    missing = frozenset(NARROW) - support.dtypes
    if missing:
        sink = Emulation(missing, support.has_double).run(sink)
    _check_dtypes(sink, support, renderer)
    sink = graph_rewrite(sink, pm_operations, ctx=support, bpm=pm_whole_functions, name="lower operations")
    sink = graph_rewrite(sink, pm_division, ctx=support, walk=True, name="lower divisions")
    sink = graph_rewrite(sink, pm_native_forms, ctx=support, name="native forms")
    result: UOp = graph_rewrite(sink, pm_forms, ctx=support, name="lower forms")
    return result
