"""64-bit integers on targets without them: two 32-bit words, the low one first, as they lie in memory.

In:   a lowered kernel (accumulators, vectors, loads with gates), not yet in order.
Out:  the same kernel on uint32 memory and uint32 values: each result has the bits that 64-bit arithmetic gives.
Ops:  a 64-bit value becomes ``TUPLE(low, high)``, which lives only inside of this walk; a register becomes two, a
      vector load or store of n elements one of 2 * n words. Every other node keeps its form; scalars stay scalars,
      except the words of a float64, which are lanes of a BITCAST.
Why:  after lowering, because only there a sum over a loop is a chain of additions, which can carry.

One walk, sources first; what replaces a node is final. The table has a row for each operation on 64-bit integers: the
arithmetic is in ``words``, ``word_division`` and ``word_floats``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Final

from tinygrad.codegen.decomp.word_division import divide, divide_signed
from tinygrad.codegen.decomp.word_floats import from_float, to_float
from tinygrad.codegen.decomp.words import (
    I32,
    U32,
    Pair,
    Word,
    add,
    differs,
    is_less,
    multiply,
    negate,
    select,
    shift_left,
    shift_right,
    subtract,
)
from tinygrad.codegen.late.values import Values
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.errors import DTypeError, error_text
from tinygrad.record import replace
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat

WIDE: Final = dtypes.int64s
_MASK: Final = 0xFFFFFFFF
_ORDERS: Final = frozenset({Ops.AFTER, Ops.GROUP, Ops.END, Ops.BARRIER, Ops.SINK})  # what comes after values, too


class Wide:
    """What the rules ask and make: pairs of lowered nodes, and the node that is being rewritten.

    Args:
        values: Makes lowered nodes, and knows their lanes.
        ops: Operations that the target has.
        has_double: Whether it has float64.
        slots: Numbers for new registers.
    """

    def __init__(self, values: Values, ops: Container[Ops], has_double: bool, slots: Iterator[int]) -> None:
        self.values, self.ops, self.has_double, self.slots = values, ops, has_double, slots
        self.node = UOp(Ops.NOOP, dtypes.void)

    def word(self, u: UOp) -> Word:
        """Return a node as a word."""
        return Word(self.values, self.ops, u)

    def pair(self, u: UOp) -> Pair:
        """Return the words of a rewritten 64-bit value."""
        return Pair(self.word(u.src[0]), self.word(u.src[1]))

    def made(self, words: Pair) -> UOp:
        """Return a 64-bit value; both words get the lanes of the node that it replaces."""
        n = self.lanes(self.node)
        return UOp(Ops.TUPLE, self.node.dtype, tuple(self.values.splat(word.u, n) for word in words))

    def lanes(self, u: UOp) -> int:
        """Return the number of lanes of a lowered node."""
        return self.values.width.get(u, 1)

    def vector(self, u: UOp, n: int) -> UOp:
        """Note the lanes of a new node."""
        if n > 1:
            self.values.width[u] = n
        return u

    def woven(self, low: UOp, high: UOp) -> UOp:
        """Return the words in the order of memory: low and high in turns."""
        n = self.lanes(low)
        low_constants, high_constants = self.values.const_lanes(low), self.values.const_lanes(high)
        if low_constants is not None and high_constants is not None:
            both = (x for pair in zip(low_constants, high_constants, strict=True) for x in pair)
            return self.values.stack(tuple(UOp(Ops.CONST, low.dtype, (), x) for x in both))
        return self.values.shuffle((low, high), tuple(i % 2 * n + i // 2 for i in range(2 * n)))

    def unwoven(self, words: UOp) -> tuple[UOp, UOp]:
        """Return the low and the high words of a vector in the order of memory."""
        n = self.lanes(words)
        low, high = (self.values.shuffle((words,), tuple(range(start, n, 2))) for start in (0, 1))
        return low, high

    @property
    def is_signed(self) -> bool:
        """Whether the sources of the node are signed."""
        return self.node.src[0].dtype is dtypes.int64


# ---- arithmetic ----------------------------------------------------------------------------------------------------


def rewrite_sum(ctx: Wide, x: UOp, y: UOp) -> UOp:
    """X + y."""
    return ctx.made(add(ctx.pair(x), ctx.pair(y)))


def rewrite_difference(ctx: Wide, x: UOp, y: UOp) -> UOp:
    """X - y."""
    return ctx.made(subtract(ctx.pair(x), ctx.pair(y)))


def rewrite_product(ctx: Wide, x: UOp, y: UOp) -> UOp:
    """X * y."""
    return ctx.made(multiply(ctx.pair(x), ctx.pair(y)))


def rewrite_multiply_add(ctx: Wide, x: UOp, y: UOp, z: UOp) -> UOp:
    """X * y + z."""
    return ctx.made(add(multiply(ctx.pair(x), ctx.pair(y)), ctx.pair(z)))


def rewrite_negation(ctx: Wide, x: UOp) -> UOp:
    """-x."""
    return ctx.made(negate(ctx.pair(x)))


def rewrite_bits(ctx: Wide, u: UOp, x: UOp, y: UOp) -> UOp:
    """X & y, x | y, x ^ y: each word for itself."""
    return ctx.made(Pair(*(ctx.word(ctx.values.alu(u.op, U32, words)) for words in zip(x.src, y.src, strict=True))))


def rewrite_shift(ctx: Wide, u: UOp, x: UOp, y: UOp) -> UOp:
    """X << y, x >> y; a count that is negative or has the width of x or more leaves nothing, or the sign."""
    if y.op is Ops.TUPLE:
        count, beyond = ctx.pair(y)
    else:
        count = ctx.word(y).cast(I32 if y.dtype.kind == "int" else U32).bits(U32)
        beyond = count.const(0)
    is_too_far = beyond.ne(0) | ~(count < 64)
    if u.op is Ops.SHL:
        return ctx.made(shift_left(ctx.pair(x), count, is_too_far))
    return ctx.made(shift_right(ctx.pair(x), count, is_too_far, ctx.is_signed))


def rewrite_division(ctx: Wide, u: UOp, x: UOp, y: UOp) -> UOp:
    """X / y and x mod y, toward zero."""
    # The bounds are those of the nodes; their words have none.
    nodes = ctx.node.src
    x_words, y_words = (_known(ctx.pair(u), node) for u, node in zip((x, y), nodes, strict=True))
    has_sign = nodes[0].vmin < 0 or nodes[1].vmin < 0
    quotient, remainder = divide_signed(x_words, y_words) if has_sign else divide(x_words, y_words)
    return ctx.made(quotient if u.op is Ops.CDIV else remainder)


def _known(x: Pair, node: UOp) -> Pair:
    """Return the words of a number with what its bounds say about the high one."""
    return x._replace(high=x.high.const(0)) if node.vmin >= 0 and node.vmax <= _MASK else x


def rewrite_maximum(ctx: Wide, x: UOp, y: UOp) -> UOp:
    """max(x, y) = x < y ? y : x."""
    a, b = ctx.pair(x), ctx.pair(y)
    return ctx.made(select(is_less(a, b, ctx.is_signed), b, a))


def rewrite_selection(ctx: Wide, condition: UOp, x: UOp, y: UOp) -> UOp:
    """Condition ? x : y."""
    return ctx.made(select(ctx.word(condition), ctx.pair(x), ctx.pair(y)))


def rewrite_comparison(ctx: Wide, u: UOp, x: UOp, y: UOp) -> UOp:
    """X < y, x != y, x == y."""
    a, b = ctx.pair(x), ctx.pair(y)
    if u.op is Ops.CMPLT:
        result = is_less(a, b, ctx.is_signed)
    else:
        result = differs(a, b) if u.op is Ops.CMPNE else ~differs(a, b)
    return ctx.values.splat(result.u, ctx.lanes(ctx.node))


def rewrite_lanes_reduced(ctx: Wide, u: UOp, x: UOp) -> UOp:
    """Combine the lanes of a vector by halves, until one is left."""
    combine = _COMBINE[u.arg[0]]
    words, n = x.src, ctx.lanes(x.src[0])
    while n > 1:
        n //= 2
        first, second = (Pair(*(ctx.word(_part(ctx, word, start, n)) for word in words)) for start in (0, n))
        words = tuple(word.u for word in combine(first, second, ctx.is_signed))
    return UOp(Ops.TUPLE, u.dtype, words)


def _part(ctx: Wide, vector: UOp, start: int, n: int) -> UOp:
    return ctx.values.lane(vector, start) if n == 1 else ctx.values.shuffle((vector,), tuple(range(start, start + n)))


_COMBINE: Final[dict[Ops, Callable[[Pair, Pair, bool], Pair]]] = {
    Ops.ADD: lambda x, y, signed: add(x, y),
    Ops.MUL: lambda x, y, signed: multiply(x, y),
    Ops.MAX: lambda x, y, signed: select(is_less(x, y, signed), y, x),
}


# ---- conversions ---------------------------------------------------------------------------------------------------


def rewrite_constant(ctx: Wide, u: UOp) -> UOp:
    """A constant is two constants."""
    return UOp(Ops.TUPLE, u.dtype, tuple(UOp(Ops.CONST, U32, (), u.arg >> place & _MASK) for place in (0, 32)))


def widen(ctx: Wide, x: UOp) -> UOp:
    """Convert a bool, a shorter integer or a float to 64 bits."""
    word = ctx.word(x)
    if dtypes.is_float(x.dtype):
        return ctx.made(from_float(word, ctx.node.dtype is dtypes.int64))
    if x.dtype.kind == "int":
        low = word.cast(I32).bits(U32)
        return ctx.made(Pair(low, low.fill() if ctx.node.src[0].vmin < 0 else low.const(0)))
    low = word.cast(U32)
    return ctx.made(Pair(low, low.const(0)))


def narrow(ctx: Wide, u: UOp, x: UOp) -> UOp:
    """Convert 64 bits to a bool (any bit), to fewer bits (the low ones), or to a float."""
    pair = ctx.pair(x)
    if u.dtype is dtypes.bool:
        result = (pair.low | pair.high).ne(0)
    elif dtypes.is_float(u.dtype):
        result = to_float(pair, u.dtype, ctx.is_signed, ctx.has_double)
    else:
        result = pair.low.bits(u.dtype) if u.dtype is I32 else pair.low.cast(u.dtype)
    return ctx.values.splat(result.u, ctx.lanes(ctx.node))


def retype(ctx: Wide, u: UOp, x: UOp) -> UOp:
    """Signed and unsigned numbers have the same words."""
    return x.replace(dtype=u.dtype)


def take_bits(ctx: Wide, u: UOp, x: UOp) -> UOp:
    """Return the words of a float64."""
    n = ctx.lanes(x)
    # A vector of two of the same number, because a scalar has no lanes that could become twice as many.
    numbers = ctx.values.splat(x, max(n, 2))
    words = ctx.vector(UOp(Ops.BITCAST, U32, (numbers,), U32), 2 * max(n, 2))
    low, high = ctx.unwoven(words) if n > 1 else (ctx.values.lane(words, 0), ctx.values.lane(words, 1))
    return UOp(Ops.TUPLE, u.dtype, (low, high))


def give_bits(ctx: Wide, u: UOp, x: UOp) -> UOp:
    """Return the float64 that has these words."""
    n = ctx.lanes(x.src[0])
    low, high = (ctx.values.splat(word, max(n, 2)) for word in x.src)
    numbers = ctx.vector(UOp(Ops.BITCAST, u.dtype, (ctx.woven(low, high),), u.dtype), max(n, 2))
    return numbers if n > 1 else ctx.values.lane(numbers, 0)


# ---- memory --------------------------------------------------------------------------------------------------------


def rewrite_storage(ctx: Wide, u: UOp) -> UOp:
    """Memory of n integers is memory of 2 * n words; a register is two registers; a Variable fits 32 bits."""
    arg = u.arg
    if arg.addrspace is AddrSpace.ALU:
        if not I32.min <= u.vmin <= u.vmax <= I32.max:
            raise _unsupported(u, f"the Variable {arg.name} from {u.vmin} to {u.vmax}", "give it bounds of 32 bits")
        word = ctx.word(UOp(u.op, I32, (), replace(arg, dtype=I32), u.tag))
        return ctx.made(Pair(word.bits(U32), word.fill()))
    if arg.addrspace is AddrSpace.REG:
        slots = arg.slot, next(ctx.slots)
        return UOp(
            Ops.TUPLE, u.dtype, tuple(UOp(u.op, U32, (), replace(arg, dtype=U32, slot=slot), u.tag) for slot in slots)
        )
    size = arg.shape[0] if arg.shape else 1
    return UOp(u.op, U32, u.src, replace(arg, dtype=U32, shape=(2 * size,)), u.tag)


def rewrite_order(ctx: Wide, u: UOp) -> UOp:
    """AFTER of two registers is two AFTERs; memory has become memory of words."""
    target, *effects = u.src
    if target.op is Ops.TUPLE:
        return UOp(Ops.TUPLE, u.dtype, tuple(UOp(Ops.AFTER, U32, (word, *effects), u.arg) for word in target.src))
    return UOp(Ops.AFTER, target.dtype, u.src, u.arg)


def rewrite_index(ctx: Wide, u: UOp) -> UOp:
    """Element i begins at word 2 * i; a lane of a vector is a lane of both words."""
    base, index = u.src
    if base.op is Ops.TUPLE:
        return UOp(Ops.TUPLE, u.dtype, tuple(ctx.values.lane(word, index.arg) for word in base.src))
    if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
        doubled = UOp(Ops.CONST, index.dtype, (), 2 * index.src[1].arg)
        return UOp(Ops.INDEX, U32, (base, ctx.values.add(ctx.values.scaled(index.src[0], 2), doubled)))
    return UOp(Ops.INDEX, U32, (base, ctx.values.scaled(index, 2)))


def _places(ctx: Wide, index: UOp) -> tuple[UOp, UOp]:
    """Return the places of the low and of the high words of elements. The constant of a sum stays its last term."""
    memory, low = index.src
    first, constant = (low.src[0], low.src[1].arg) if low.op is Ops.ADD and low.src[1].op is Ops.CONST else (low, 0)
    step = ctx.values.splat(ctx.values.const(constant + 1, low.dtype), ctx.lanes(low))
    return index, UOp(Ops.INDEX, U32, (memory, ctx.values.add(first, step)))


def rewrite_load(ctx: Wide, u: UOp) -> UOp:
    """Load both words: those of consecutive elements together, those of one or of chosen elements each for itself."""
    source, *gated = u.src
    n = ctx.lanes(ctx.node)
    if source.op is Ops.TUPLE:
        return UOp(Ops.TUPLE, u.dtype, tuple(ctx.vector(UOp(Ops.LOAD, U32, (word,)), n) for word in source.src))
    if n > 1 and ctx.lanes(source.src[1]) == 1:
        others = (ctx.woven(*gated[0].src), _doubled(ctx, gated[1])) if gated else ()
        words = UOp(Ops.LOAD, U32, (source, *others), 2 * n, u.tag)
        return UOp(Ops.TUPLE, u.dtype, ctx.unwoven(ctx.vector(words, 2 * n)))
    loads = []
    for i, place in enumerate(_places(ctx, source)):
        others = (gated[0].src[i], gated[1]) if gated else ()
        loads.append(ctx.vector(UOp(Ops.LOAD, U32, (place, *others), None, u.tag), n))
    return UOp(Ops.TUPLE, u.dtype, tuple(loads))


def rewrite_store(ctx: Wide, u: UOp, target: UOp, x: UOp) -> UOp:
    """Store both words, as they are loaded."""
    gate = u.src[2:]
    if target.op is not Ops.TUPLE and ctx.lanes(x.src[0]) > 1 and ctx.lanes(target.src[1]) == 1:
        wide_gate = tuple(_doubled(ctx, g) for g in gate)
        return UOp(Ops.STORE, dtypes.void, (target, ctx.woven(*x.src), *wide_gate))
    places = target.src if target.op is Ops.TUPLE else _places(ctx, target)
    pairs = zip(places, x.src, strict=True)
    return UOp.group(*(UOp(Ops.STORE, dtypes.void, (*pair, *gate)) for pair in pairs))


def _doubled(ctx: Wide, gate: UOp) -> UOp:
    """Return a gate of elements as one of words."""
    return ctx.woven(gate, gate) if ctx.lanes(gate) > 1 else gate


def rewrite_stack(ctx: Wide, u: UOp) -> UOp:
    """A vector of integers is a vector of low words and one of high words."""
    sides = (tuple(s.src[side] for s in u.src) for side in (0, 1))
    made = (ctx.values.stack(side) if u.arg is None else ctx.values.shuffle(side, u.arg) for side in sides)
    return UOp(Ops.TUPLE, u.dtype, tuple(made))


# ---- the table -----------------------------------------------------------------------------------------------------

_X, _Y = UPat(Ops.TUPLE, name="x"), UPat(Ops.TUPLE, name="y")

pm_wide = PatternMatcher([
    # x + y, x - y, x * y, x * y + z, -x
    (UPat(Ops.ADD, src=(_X, _Y)), rewrite_sum),
    (UPat(Ops.SUB, src=(_X, _Y)), rewrite_difference),
    (UPat(Ops.MUL, src=(_X, _Y)), rewrite_product),
    (UPat(Ops.MULACC, src=(_X, _Y, UPat(Ops.TUPLE, name="z"))), rewrite_multiply_add),
    (UPat(Ops.NEG, src=(_X,)), rewrite_negation),
    # x / y, x mod y toward zero
    (UPat((Ops.CDIV, Ops.CMOD), src=(_X, _Y), name="u"), rewrite_division),
    # bits, shifts
    (UPat((Ops.AND, Ops.OR, Ops.XOR), src=(_X, _Y), name="u"), rewrite_bits),
    (UPat((Ops.SHL, Ops.SHR), src=(_X, UPat.var("y")), name="u"), rewrite_shift),
    # comparisons, selections
    (UPat((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ), src=(_X, _Y), name="u"), rewrite_comparison),
    (UPat(Ops.MAX, src=(_X, _Y)), rewrite_maximum),
    (UPat(Ops.WHERE, src=(UPat.var("condition"), _X, _Y)), rewrite_selection),
    (UPat(Ops.TRUNC, src=(_X,)), lambda x: x),
    # the lanes of a vector, combined
    (UPat(Ops.REDUCE, src=(_X,), name="u"), rewrite_lanes_reduced),
    # values
    (UPat(Ops.CONST, WIDE, name="u"), rewrite_constant),
    (UPat(Ops.STACK, WIDE, name="u"), rewrite_stack),
    (UPat((Ops.CAST, Ops.BITCAST), WIDE, src=(_X,), name="u"), retype),
    (UPat(Ops.CAST, src=(_X,), name="u"), narrow),
    (UPat(Ops.CAST, WIDE, src=(UPat.var("x"),)), widen),
    (UPat(Ops.BITCAST, src=(_X,), name="u"), give_bits),
    (UPat(Ops.BITCAST, WIDE, src=(UPat.var("x"),), name="u"), take_bits),
    # memory
    (UPat((Ops.PARAM, Ops.BUFFER), WIDE, name="u"), rewrite_storage),
    (UPat(Ops.AFTER, WIDE, name="u"), rewrite_order),
    (UPat(Ops.INDEX, WIDE, name="u"), rewrite_index),
    (UPat(Ops.LOAD, WIDE, name="u"), rewrite_load),
    (UPat(Ops.STORE, src=(UPat.var("target"), _X), allow_any_len=True, name="u"), rewrite_store),
])


# ---- the walk ------------------------------------------------------------------------------------------------------


def split_wide(sink: UOp, order: Iterable[UOp], ctx: Wide) -> tuple[UOp, list[UOp]]:
    """Rewrite a lowered kernel so that no 64-bit integer is left in it.

    Args:
        sink: The kernel.
        order: Nodes of it in the order in which they should come.
        ctx: Makes the nodes.

    Returns:
        The kernel, and what stands for the nodes of ``order``.

    Raises:
        DTypeError: An operation is not in the table, such as text of the target's own language on a 64-bit integer.
    """
    new: dict[UOp, UOp] = {}
    width = ctx.values.width
    for u in sink.toposort():
        src = tuple([new[s] for s in u.src])
        if u.op in _ORDERS:
            src = (*src[:1], *_flat(src[1:])) if u.op is Ops.AFTER else tuple(_flat(src))
        is_wide = u.dtype in WIDE
        if src == u.src and not is_wide:
            new[u] = u
            continue
        rebuilt = UOp(u.op, u.dtype, src, u.arg, u.tag)
        if u in width:
            width[rebuilt] = width[u]
        if is_wide or any(s.op is Ops.TUPLE for s in src):
            ctx.node = u
            found = pm_wide.rewrite(rebuilt, ctx)
            if found is None:
                raise _unsupported(u, f"{u.op.name}", "compute it in 32 bits")
            rebuilt = found
        new[u] = rebuilt
    return new[sink], _flat(new[u] for u in order if u in new)


def _flat(nodes: Iterable[UOp]) -> list[UOp]:
    """Return the words of values, and other nodes as they are."""
    return [word for u in nodes for word in (u.src if u.op is Ops.TUPLE else (u,))]


def _unsupported(u: UOp, what: str, hint: str) -> DTypeError:
    wide: Any = u.dtype if u.dtype in WIDE else next(s.dtype for s in u.src if s.dtype in WIDE)
    fault = f"{what} of {wide} cannot be made of 32-bit words"
    return DTypeError(error_text("emulated integers", fault, hint=hint))
