"""Simplification rules for every stage: constants, identities, index arithmetic, conditions.

In:   any graph.
Out:  rule tables. ``symbolic_simple`` is sound for every dtype and shape: constant folding and identities. ``symbolic``
      adds normal forms for index arithmetic (weakint scalars, which do not wrap; ``uop/affine.py``, ``divmod.py``,
      ``validity.py``). ``sym`` adds gates: conditions of accesses, and indices given their condition.
Why:  every stage may produce clumsy graphs, and one set of rules cleans all of them.

Soundness: no rule changes a value within the bounds that Variables and RANGEs declare. Floats fold only where it holds
for every value, NaN, infinities and -0.0 included: so not x*0, x-x, x+0, 0/x. Integers with a width wrap around.
Termination: each rule makes the graph smaller, or brings a node into a normal form on which it returns the node itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import Invalid, bitcast, can_lossless_cast, dtypes, float_to_int
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.affine import build, normalize_product, normalize_sum, order
from tinygrad.uop.alu import exec_alu
from tinygrad.uop.divmod import simplify_divmod
from tinygrad.uop.matcher import PatternMatcher
from tinygrad.uop.ops import UOp
from tinygrad.uop.upat import UPat
from tinygrad.uop.validity import (
    compare_equal,
    compare_less,
    logical_not,
    merge_bounds,
    parse_bound,
    simplified_gate,
    simplify_valid,
    truth,
    uop_given_valid,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "commutative", "pm_move_where_on_load", "pm_remove_invalid", "pm_simplify_valid", "simplify_valid", "sym",
    "symbolic",
    "symbolic_simple", "uop_given_valid",
]  # fmt: skip

INTS = (*dtypes.ints, dtypes.weakint)
INTS_BOOL = (*INTS, dtypes.bool)
_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD})
_ANY = UPat.var


def _make(op: Ops, *src: UOp, arg: Any = None) -> UOp:
    return UOp(op, None, src, arg)


def _const(u: UOp, value: Any) -> UOp:
    """Return a constant of the node's dtype."""
    return UOp(Ops.CONST, u.dtype, (), value)


def _scaled(x: UOp, factor: int) -> UOp:
    return _make(Ops.MUL, x, _const(x, factor))


def _scalar_const(u: UOp, value: Any) -> UOp | None:
    """Return a constant in place of ``u``; None if that would lose a shape."""
    return _const(u, value) if u._shape == () else None


def _same_shape(u: UOp, x: UOp) -> UOp | None:
    """Return ``x`` in place of ``u`` unless ``u`` was broadcast to a larger shape."""
    return x if x._shape == u._shape else None


# ---- constants -------------------------------------------------------------------------------------------------------


def fold_constants(u: UOp) -> UOp | None:
    """Compute an operation on constants; index arithmetic never divides by 0."""
    values = tuple(s.arg for s in u.src)
    if u.op in _DIVISIONS and u.dtype is dtypes.weakint and values[1] == 0:
        raise ZeroDivisionError(f"{u.op.name.lower()} of the index {values[0]} by 0")
    return _const(u, exec_alu(u.op, u.dtype, values))


def fold_cast(u: UOp, c: UOp) -> UOp:
    """Convert a constant; floats become integers by the rule of ``dtype.float_to_int``."""
    value: Any = c.arg
    if isinstance(value, float) and dtypes.is_int(u.dtype):
        value = float_to_int(value, u.dtype) if u.dtype is not dtypes.weakint else int(value)
    elif value is not Invalid and u.dtype in dtypes.floats:
        value = exec_alu(Ops.MAX, u.dtype, (float(value), float(value)))  # rounds to the dtype
    return _const(u, value)


def fold_bitcast(u: UOp, c: UOp) -> UOp | None:
    """Reinterpret a constant of the same size."""
    if c.arg is Invalid or c.dtype.itemsize != u.dtype.itemsize or u.dtype in dtypes.weaks or c.dtype in dtypes.weaks:
        return None
    return _const(u, bitcast(c.arg, c.dtype, u.dtype))


def fold_by_bounds(u: UOp) -> UOp | None:
    """Replace an integer or bool that can have only one value."""
    if u.vmin != u.vmax or u._shape != () or u.op is Ops.CONST:
        return None
    # An undefined branch is a gate: it must stay visible.
    if u.ops_below >> Ops.WHERE & 1 and any(n.op is Ops.CONST and n.arg is Invalid for n in u.toposort()):
        return None
    return _const(u, u.vmin)


def constant_last(u: UOp, c: UOp, x: UOp) -> UOp | None:
    """Put the constant of a commutative operation second."""
    return None if x.op is Ops.CONST else u.replace(src=(x, c))


def fold_two(x: UOp, c: UOp, d: UOp, u: UOp) -> UOp | None:
    """Join the constants of (x op c) op d."""
    if c.arg is Invalid or d.arg is Invalid:
        return None
    return u.replace(src=(x, _const(c, exec_alu(u.op, u.dtype, (c.arg, d.arg)))))


# ---- conditions ------------------------------------------------------------------------------------------------------


def decided_where(u: UOp, c: UOp, x: UOp, y: UOp) -> UOp | None:
    """Take the branch of a WHERE that its condition selects."""
    if c.op is Ops.CONST and c.arg is not Invalid:
        return _same_shape(u, x if c.arg else y)
    return None


def where_same(u: UOp, c: UOp, x: UOp) -> UOp | None:
    """Both branches are one node."""
    return _same_shape(u, x)


def where_bool(u: UOp, c: UOp, x: UOp, y: UOp) -> UOp | None:
    """Write a WHERE of bools with AND and OR where a branch is constant."""
    if x.op is Ops.CONST and x.arg is not Invalid:
        if y.op is Ops.CONST and y.arg is not Invalid:
            return None if x.arg == y.arg else c if x.arg else logical_not(c)
        return _make(Ops.OR, c, y) if x.arg else _make(Ops.AND, logical_not(c), y)
    if y.op is Ops.CONST and y.arg is not Invalid:
        return _make(Ops.OR, logical_not(c), x) if y.arg else _make(Ops.AND, c, x)
    return None


def _is_limit_of(m: UOp, x: UOp, holds: Callable[[Any], bool]) -> bool:
    """Whether m = max(x, k) with a constant for which ``holds``."""
    if m.op is not Ops.MAX:
        return False
    return any(a is x and k.op is Ops.CONST and k.arg is not Invalid and holds(k.arg) for a, k in (m.src, m.src[::-1]))


def above_limit(z: UOp, m: UOp, x: UOp) -> UOp | None:
    """Where m = max(x, k) is above z >= k, m is x."""
    return m if z.arg is not Invalid and _is_limit_of(m, x, lambda k: z.arg >= k) else None


def off_limit(z: UOp, m: UOp, x: UOp) -> UOp | None:
    """Where m = max(x, k) is not k, m is x; NaN is, too."""
    return m if z.arg is not Invalid and _is_limit_of(m, x, lambda k: z.arg == k) else None


def not_of(u: UOp, x: UOp) -> UOp | None:
    """Push a negation into what it negates."""
    if x.op is Ops.CMPNE and x.src[1].op is Ops.CONST and x.src[1].arg is True:
        return _same_shape(u, x.src[0])
    if x.op is Ops.CMPNE:
        return _make(Ops.CMPEQ, *x.src)
    if x.op is Ops.CMPEQ:
        return _make(Ops.CMPNE, *x.src)
    if x.op is Ops.CMPLT and x.src[0].dtype is dtypes.weakint:  # not a < b  is  b < a + 1
        return _make(Ops.CMPLT, x.src[1], _make(Ops.ADD, x.src[0], _const(x.src[0], 1)))
    if x.op is Ops.OR and any(s.op in GroupOp.Comparison and s.src[0].dtype is dtypes.weakint for s in x.src):
        return _make(Ops.AND, logical_not(x.src[0]), logical_not(x.src[1]))
    return None


def less_or_equal(u: UOp, a: UOp, b: UOp) -> UOp | None:
    """Join ``a < b or a == b`` of indices, and two bounds on one sum."""
    for first, second in ((a, b), (b, a)):
        if (absorbed := logical_not_absorbs(first, second)) is not None:
            return absorbed if u._shape == () else None
    low, high = parse_bound(a), parse_bound(b)
    if low is None or high is None or low[0] != high[0]:
        return None
    (key, a_low, a_high), (_, b_low, b_high) = low, high
    pieces = sorted([(a_low, a_high), (b_low, b_high)], key=lambda p: -(10**400) if p[0] is None else p[0])
    (first_low, first_high), (next_low, next_high) = pieces
    if first_high is not None and next_low is not None and next_low > first_high + 1:
        return None
    top = None if first_high is None or next_high is None else max(first_high, next_high)
    terms = build(dict(key), 0)
    if first_low is None:
        return truth(True) if top is None else _make(Ops.CMPLT, terms, _const(terms, top + 1))
    if top is not None:
        return None  # two bounds at once are no simpler than what is there
    return _make(Ops.CMPLT, _const(terms, first_low - 1), terms)


def logical_not_absorbs(a: UOp, b: UOp) -> UOp | None:
    """Return True for ``x or not x``."""
    if a.op is Ops.CMPNE and a.src[1].op is Ops.CONST and a.src[1].arg is True and a.src[0] is b:
        return truth(True)
    return None


def nested_where(c: UOp, d: UOp, x: UOp, y: UOp) -> UOp:
    """Join WHERE(c, WHERE(d, x, y), y)."""
    return _make(Ops.WHERE, _make(Ops.AND, c, d), x, y)


# ---- casts -----------------------------------------------------------------------------------------------------------


def cast_of_cast(u: UOp, x: UOp, inner: UOp) -> UOp | None:
    """Drop an inner conversion that keeps every value."""
    if not can_lossless_cast(x.dtype, inner.dtype):
        return None
    through_float = dtypes.is_float(inner.dtype) and dtypes.is_int(u.dtype) and dtypes.is_int(x.dtype)
    # A float becomes an integer by another rule than an integer does, where the value does not fit.
    if through_float and not can_lossless_cast(x.dtype, u.dtype):
        return None
    if dtypes.weakint in (x.dtype, inner.dtype) and u.dtype not in INTS_BOOL:
        return None
    return x if x.dtype is u.dtype else _make(Ops.CAST, x, arg=u.dtype)


def cast_constants(u: UOp, c: UOp, x: UOp, y: UOp) -> UOp:
    """Convert the branches of a WHERE of constants."""
    return _make(Ops.WHERE, c, _make(Ops.CAST, x, arg=u.dtype), _make(Ops.CAST, y, arg=u.dtype))


def truth_of_cast(b: UOp, k: UOp, u: UOp) -> UOp | None:
    """Compare a converted bool with 0 or 1."""
    if k.arg is Invalid or k.arg not in (0, 1):
        return None
    return b if (u.op is Ops.CMPNE) == (k.arg == 0) else logical_not(b)


# ---- integers --------------------------------------------------------------------------------------------------------


def small_enough(u: UOp, x: UOp, c: UOp) -> UOp | None:
    """Drop a remainder that changes nothing: 0 <= x < c."""
    return x if c.arg is not Invalid and x.vmin >= 0 and x.vmax < c.arg else None


def mask_covers(x: UOp, c: UOp) -> UOp | None:
    """Drop a mask that keeps every bit that x can have."""
    bits = (1 << max(x.vmax, 0).bit_length()) - 1
    return x if x.vmin >= 0 and c.arg & bits == bits else None


def max_by_bounds(u: UOp, x: UOp, y: UOp) -> UOp | None:
    """Take the operand that is never smaller."""
    if x.vmin >= y.vmax:
        return _same_shape(u, x)
    return _same_shape(u, y) if y.vmin >= x.vmax else None


def ordered_max(u: UOp, x: UOp, y: UOp) -> UOp | None:
    """Put the operands of an index maximum in order."""
    return u.replace(src=(y, x)) if y.op is not Ops.CONST and order(y) < order(x) else None


def lane(v: UOp, i: UOp) -> UOp | None:
    """Take a lane of a vector that is built from scalars."""
    return v.src[i.arg] if isinstance(i.arg, int) and 0 <= i.arg < len(v.src) else None


symbolic_simple = PatternMatcher([
    # op(constants) = constant
    (UPat(GroupOp.ALU, src=UPat(Ops.CONST), name="u"), fold_constants),
    (UPat(Ops.CAST, src=(UPat.cvar("c"),), name="u"), fold_cast),
    (UPat(Ops.BITCAST, src=(UPat.cvar("c"),), name="u"), fold_bitcast),
    # c op x = x op c
    (UPat(GroupOp.Commutative, src=(UPat.cvar("c"), _ANY("x")), name="u"), constant_last),
    # x * 1 = x, for every dtype; x + -0.0 = x for floats, x + 0 = x for integers
    (UPat(Ops.MUL, src=(_ANY("x"), UPat.const(1))), lambda x: x),
    (UPat(Ops.MUL, src=(_ANY("x"), UPat.const(True))), lambda x: x),
    (UPat(Ops.ADD, src=(_ANY("x"), UPat.const(-0.0))), lambda x: x),
    (UPat(Ops.ADD, INTS, src=(_ANY("x"), UPat.const(0))), lambda x: x),
    # x * 0 = 0, x + -x = 0    integers
    (UPat(Ops.MUL, INTS, src=(_ANY(), UPat.const(0)), name="u"), lambda u: _scalar_const(u, 0)),
    (
        UPat(Ops.ADD, INTS, src=[_ANY("x"), UPat(Ops.MUL, src=(_ANY("x"), UPat.const(-1)))], name="u"),
        lambda u, x: _scalar_const(u, 0),
    ),
    # (x + c) + d = x + (c+d), the same for *, &, |, ^    integers and bools
    *[
        (UPat(op, INTS_BOOL, src=(UPat(op, src=(_ANY("x"), UPat.cvar("c"))), UPat.cvar("d")), name="u"), fold_two)
        for op in (Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR, Ops.MAX)
    ],
    # (x * -1) * -1 = x    any dtype
    (UPat(Ops.MUL, src=(UPat(Ops.MUL, src=(_ANY("x"), UPat.const(-1))), UPat.const(-1))), lambda x: x),
    (_ANY("x").alu(Ops.NEG).alu(Ops.NEG), lambda x: x),
    # x // 1 = x, x % 1 = 0    integers
    (UPat({Ops.FLOORDIV, Ops.CDIV}, INTS, src=(_ANY("x"), UPat.const(1))), lambda x: x),
    (UPat({Ops.FLOORMOD, Ops.CMOD}, INTS, src=(_ANY(), UPat.const(1)), name="u"), lambda u: _scalar_const(u, 0)),
    (UPat({Ops.FLOORMOD, Ops.CMOD}, INTS, src=(_ANY("x"), UPat.cvar("c")), name="u"), small_enough),
    # x << 0 = x >> 0 = x | 0 = x ^ 0 = x, x & 0 = 0, x & -1 = x    integers
    (UPat({Ops.SHL, Ops.SHR, Ops.OR, Ops.XOR}, INTS, src=(_ANY("x"), UPat.const(0))), lambda x: x),
    (UPat(Ops.AND, INTS, src=(_ANY(), UPat.const(0)), name="u"), lambda u: _scalar_const(u, 0)),
    (UPat(Ops.AND, INTS, src=(_ANY("x"), UPat.cvar("c"))), mask_covers),
    # x | x = x & x = max(x, x) = x, x ^ x = 0
    (UPat(GroupOp.Idempotent, src=(_ANY("x"), _ANY("x"))), lambda x: x),
    (UPat(Ops.XOR, INTS_BOOL, src=(_ANY("x"), _ANY("x")), name="u"), lambda u, x: _scalar_const(u, 0)),
    # x | (x & y) = x & (x | y) = x
    (_ANY("x") | (_ANY("x") & _ANY("y")), lambda x, y: x if x._shape == _make(Ops.AND, x, y)._shape else None),
    (_ANY("x") & (_ANY("x") | _ANY("y")), lambda x, y: x if x._shape == _make(Ops.OR, x, y)._shape else None),
    # b & True = b | False = b ^ False = b, b & False = False, b | True = True    bools
    (UPat(Ops.AND, src=(_ANY("x"), UPat.const(True))), lambda x: x),
    (UPat({Ops.OR, Ops.XOR, Ops.ADD, Ops.MAX}, src=(_ANY("x"), UPat.const(False))), lambda x: x),
    (UPat({Ops.AND, Ops.MUL}, src=(_ANY(), UPat.const(False)), name="u"), lambda u: _scalar_const(u, False)),
    (UPat(Ops.OR, src=(_ANY(), UPat.const(True)), name="u"), lambda u: _scalar_const(u, True)),
    (UPat(Ops.XOR, src=(_ANY("x"), UPat.const(True))), lambda x: logical_not(x)),
    # (b != False) = (b == True) = b, (b == False) = not b
    (UPat(Ops.CMPNE, src=(_ANY("x"), UPat.const(False))), lambda x: x),
    (UPat(Ops.CMPEQ, src=(_ANY("x"), UPat.const(True))), lambda x: x),
    (UPat(Ops.CMPEQ, src=(_ANY("x"), UPat.const(False))), lambda x: logical_not(x)),
    (UPat(Ops.CMPNE, src=(_ANY("x"), UPat.const(True)), name="u"), not_of),
    # x < x = False (NaN too); x != x = False, x == x = True    but for floats
    (UPat(Ops.CMPLT, src=(_ANY("x"), _ANY("x")), name="u"), lambda u, x: _scalar_const(u, False)),
    (UPat(Ops.CMPNE, src=(_ANY("x", INTS_BOOL), _ANY("x")), name="u"), lambda u, x: _scalar_const(u, False)),
    (UPat(Ops.CMPEQ, src=(_ANY("x", INTS_BOOL), _ANY("x")), name="u"), lambda u, x: _scalar_const(u, True)),
    # where(True, x, y) = x, where(c, x, x) = x, where(not c, x, y) = where(c, y, x)
    (UPat(Ops.WHERE, src=(_ANY("c"), _ANY("x"), _ANY("y")), name="u"), decided_where),
    (UPat(Ops.WHERE, src=(_ANY("c"), _ANY("x"), _ANY("x")), name="u"), where_same),
    (UPat(Ops.WHERE, dtypes.bool, src=(_ANY("c"), _ANY("x"), _ANY("y")), name="u"), where_bool),
    (
        UPat(Ops.WHERE, src=(UPat(Ops.CMPNE, src=(_ANY("c"), UPat.const(True))), _ANY("x"), _ANY("y"))),
        lambda c, x, y: None if y.op is Ops.CONST and y.arg is Invalid else _make(Ops.WHERE, c, y, x),
    ),
    # where(c, where(c, x, y), z) = where(c, x, z), and in the other branch
    (
        UPat(Ops.WHERE, src=(_ANY("c"), UPat(Ops.WHERE, src=(_ANY("c"), _ANY("x"), _ANY())), _ANY("z"))),
        lambda c, x, z: _make(Ops.WHERE, c, x, z),
    ),
    (
        UPat(Ops.WHERE, src=(_ANY("c"), _ANY("x"), UPat(Ops.WHERE, src=(_ANY("c"), _ANY(), _ANY("z"))))),
        lambda c, x, z: _make(Ops.WHERE, c, x, z),
    ),
    # where(c, where(d, x, y), y) = where(c & d, x, y)
    (UPat(Ops.WHERE, src=(_ANY("c"), UPat(Ops.WHERE, src=(_ANY("d"), _ANY("x"), _ANY("y"))), _ANY("y"))), nested_where),
    # where(z < m, x, m) = m    m = max(x, k), z >= k
    (UPat(Ops.WHERE, src=(UPat(Ops.CMPLT, src=(UPat.cvar("z"), _ANY("m"))), _ANY("x"), _ANY("m"))), above_limit),
    # where(m == k, m, x) = m    m = max(x, k)
    (UPat(Ops.WHERE, src=(UPat(Ops.CMPEQ, src=(_ANY("m"), UPat.cvar("z"))), _ANY("m"), _ANY("x"))), off_limit),
    (UPat(Ops.WHERE, src=(UPat(Ops.CMPNE, src=(_ANY("m"), UPat.cvar("z"))), _ANY("x"), _ANY("m"))), off_limit),
    # casts
    (UPat(Ops.CAST, name="u"), lambda u: u.src[0] if u.src[0].dtype is u.dtype else None),
    (UPat(Ops.BITCAST, name="u"), lambda u: u.src[0] if u.src[0].dtype is u.dtype else None),
    (UPat(Ops.CAST, src=(UPat(Ops.CAST, src=(_ANY("x"),), name="inner"),), name="u"), cast_of_cast),
    (UPat(Ops.CAST, src=(UPat(Ops.WHERE, src=(_ANY("c"), UPat.cvar("x"), UPat.cvar("y"))),), name="u"), cast_constants),
    (
        UPat({Ops.CMPNE, Ops.CMPEQ}, src=(UPat(Ops.CAST, src=(_ANY("b", dtypes.bool),)), UPat.cvar("k")), name="u"),
        truth_of_cast,
    ),
    # max by bounds    integers
    (UPat(Ops.MAX, INTS, src=(_ANY("x"), _ANY("y")), name="u"), max_by_bounds),
    # stack(x, y, ...)[i]
    (UPat(Ops.INDEX, src=(UPat(Ops.STACK, name="v"), UPat.cvar("i"))), lane),
    # bounds leave one value
    (UPat(GroupOp.ALU | {Ops.CAST}, INTS_BOOL, name="u"), fold_by_bounds),
])

# x op y = y op x, in a fixed order    integers: the grouping of sums of floats is their value, so they keep theirs
commutative = PatternMatcher([
    (
        UPat(GroupOp.Commutative, dtypes.weakint, src=(_ANY("x"), _ANY("y")), name="u"),
        lambda u, x, y: u.replace(src=(y, x)) if order(y) < order(x) else None,
    ),
])

_INDEX = _ANY("x", dtypes.weakint)
symbolic = PatternMatcher([
    # sums and products of indices
    (UPat(Ops.ADD, dtypes.weakint, name="u"), normalize_sum),
    (UPat(Ops.MUL, dtypes.weakint, name="u"), normalize_product),
    (UPat(Ops.SUB, dtypes.weakint, src=(_INDEX, _ANY("y"))), lambda x, y: _make(Ops.ADD, x, _scaled(y, -1))),
    (UPat(Ops.NEG, dtypes.weakint, src=(_INDEX,)), lambda x: _scaled(x, -1)),
    (UPat(Ops.SHL, dtypes.weakint, src=(_INDEX, UPat.cvar("c"))), lambda x, c: _scaled(x, 1 << c.arg)),
    # quotients and remainders of indices
    (UPat({Ops.FLOORDIV, Ops.FLOORMOD}, dtypes.weakint, name="u"), simplify_divmod),
    (UPat(Ops.MAX, dtypes.weakint, src=(_INDEX, _ANY("y")), name="u"), ordered_max),
    # comparisons of indices
    (UPat(Ops.CMPLT, src=(_INDEX, _ANY()), name="u"), lambda u, x: compare_less(u)),
    (UPat({Ops.CMPNE, Ops.CMPEQ}, src=(_INDEX, _ANY()), name="u"), lambda u, x: compare_equal(u)),
]) + symbolic_simple + PatternMatcher([
    # conjunctions and disjunctions of bounds
    (UPat(Ops.AND, dtypes.bool, name="u"), merge_bounds),
    (UPat(Ops.OR, dtypes.bool, src=(_ANY("a"), _ANY("b")), name="u"), less_or_equal),
])  # fmt: skip


# ---- gates -----------------------------------------------------------------------------------------------------------


def simplify_gate(u: UOp) -> UOp | None:
    """Simplify the gate of an access, and its index given the gate."""
    base, idx, gate = u.src
    if gate.op is Ops.CONST:
        return u.replace(src=(base, idx)) if gate.arg is True else None
    new_gate = simplified_gate(gate)
    new_idx = uop_given_valid(new_gate, idx)
    return None if new_gate is gate and new_idx is idx else u.replace(src=(base, new_idx, new_gate))


def simplify_valid_index(u: UOp, c: UOp, x: UOp, y: UOp) -> UOp | None:
    """The same for an index whose gate is a WHERE with an undefined branch."""
    if y.arg is not Invalid:
        return None
    new_gate = simplified_gate(c)
    new_idx = uop_given_valid(new_gate, x)
    return None if new_gate is c and new_idx is x else _make(Ops.WHERE, new_gate, new_idx, y)


def where_to_gate(c: UOp, load: UOp, k: UOp, inverted: bool = False) -> UOp | None:
    """Turn a choice between a loaded element and 0 into the gate of the access."""
    if k.arg is Invalid or k.arg != 0 or str(k.arg) == "-0.0" or load.src[0].op not in (Ops.PARAM, Ops.AFTER):
        return None
    # A gate that needs memory itself would order loads one after the other.
    if c.ops_below >> Ops.INDEX & 1 or c.ops_below >> Ops.LOAD & 1:
        return None
    gate = logical_not(c) if inverted else c
    if len(load.src) == 3:
        gate = _make(Ops.AND, gate, load.src[2])
    return load.replace(src=(*load.src[:2], gate))


_LOADED = UPat(Ops.INDEX, src=(_ANY(), _ANY()), allow_any_len=True, name="load")
pm_move_where_on_load = PatternMatcher([
    # where(c, buf[i], 0) = buf[i] gated by c
    (UPat(Ops.WHERE, src=(_ANY("c"), _LOADED, UPat.cvar("k"))), where_to_gate),
    (UPat(Ops.WHERE, src=(_ANY("c"), UPat.cvar("k"), _LOADED)), lambda c, load, k: where_to_gate(c, load, k, True)),
])

pm_simplify_valid = PatternMatcher([
    (UPat(Ops.INDEX, src=(_ANY(), _ANY(), _ANY(dtype=dtypes.bool)), name="u"), simplify_gate),
    (UPat(Ops.WHERE, dtypes.weakint, src=(_ANY("c"), _ANY("x"), UPat.cvar("y")), name="u"), simplify_valid_index),
])

pm_remove_invalid = PatternMatcher([
    # where(c, x, undefined) = x, undefined = 0
    (UPat(Ops.WHERE, src=(_ANY(), _ANY("x"), UPat.cvar("y"))), lambda x, y: x if y.arg is Invalid else None),
    (UPat(Ops.CONST, name="u"), lambda u: _const(u, 0) if u.arg is Invalid else None),
])

sym = symbolic + pm_simplify_valid
