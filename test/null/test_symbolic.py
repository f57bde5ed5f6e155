"""Simplification: normal forms of index arithmetic, soundness against evaluation, floats that must not fold."""

from __future__ import annotations

import builtins
import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from test.helpers_timing import processor_seconds
from tinygrad.dtype import Invalid, dtypes
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.affine import normalize_product, normalize_sum
from tinygrad.uop.alu import exec_alu
from tinygrad.uop.bounds import vmin_vmax
from tinygrad.uop.movement import apply_movement_op, flatten_index
from tinygrad.uop.ops import UOp, graph_rewrite
from tinygrad.uop.render import render
from tinygrad.uop.symbolic import pm_move_where_on_load, simplify_valid, sym, symbolic, symbolic_simple, uop_given_valid

# ---- building and evaluating -----------------------------------------------------------------------------------------


def const(value, dtype=None) -> UOp:
    return UOp.const(value, dtype)


def node(op: Ops, *src, **kwargs) -> UOp:
    return UOp(op, None, tuple(s if isinstance(s, UOp) else const(s) for s in src), **kwargs)


def add(*xs) -> UOp:
    out = xs[0]
    for x in xs[1:]:
        out = node(Ops.ADD, out, x)
    return out


def mul(x, y) -> UOp:
    return node(Ops.MUL, x, y)


def div(x, y) -> UOp:
    return node(Ops.FLOORDIV, x, y)


def mod(x, y) -> UOp:
    return node(Ops.FLOORMOD, x, y)


def lt(x, y) -> UOp:
    return node(Ops.CMPLT, x, y)


def ge(x, y) -> UOp:
    return negated(lt(x, y))


def both(x, y) -> UOp:
    return node(Ops.AND, x, y)


def negated(x) -> UOp:
    return node(Ops.CMPNE, x, const(True))


def where(c, x, y) -> UOp:
    return node(Ops.WHERE, c, x, y)


def rng(size: int | UOp, number: int) -> UOp:
    return UOp.range(size, number, AxisType.LOOP)


def simplified(u: UOp, rules=symbolic) -> UOp:
    return graph_rewrite(u, rules)


def text(u: UOp, rules=symbolic) -> str:
    return render(simplified(u, rules))


def evaluate(u: UOp, values: dict[UOp, int]):
    """Compute a node; the reference that rules are checked against."""
    done = dict(values)
    for n in u.toposort(gate=lambda n: n not in values):
        if n in done:
            continue
        if n.op is Ops.CONST:
            done[n] = n.arg
        elif n.op is Ops.CAST:
            done[n] = n.dtype.const(done[n.src[0]])
        else:
            done[n] = exec_alu(n.op, n.dtype, tuple(done[s] for s in n.src))
    return done[u]


def leaves(*us: UOp) -> list[UOp]:
    found: dict[UOp, None] = {}
    for u in us:
        found |= {n: None for n in u.toposort() if n.op in (Ops.RANGE, Ops.PARAM)}
    return list(found)


def assignments(names: list[UOp], limit: int = 400):
    spaces = [range(n.vmin, n.vmax + 1) for n in names]
    if math.prod(map(len, spaces)) <= limit:
        for row in itertools.product(*spaces):
            yield dict(zip(names, row, strict=True))
        return
    source = random.Random(0)
    for corner in itertools.product(*[(s[0], s[-1]) for s in spaces]):
        yield dict(zip(names, corner, strict=True))
    for _ in range(limit):
        yield {n: source.choice(s) for n, s in zip(names, spaces, strict=True)}


def assert_equal_everywhere(before: UOp, after: UOp, where_true: UOp | None = None) -> None:
    names = leaves(before, after, *([where_true] if where_true is not None else []))
    for values in assignments(names):
        if where_true is not None and not evaluate(where_true, values):
            continue
        expected, got = evaluate(before, values), evaluate(after, values)
        assert expected == got, f"{render(before)} -> {render(after)} at {[(render(n), v) for n, v in values.items()]}"


a, b, c = (UOp.variable(n, 0, top) for n, top in (("a", 9), ("b", 2), ("c", 3)))
neg = UOp.variable("neg", -7, 5)

# ---- named cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (add(a, 0), "a"),
        (add(add(1, a), 2), "(a+3)"),
        (add(a, a), "(a*2)"),
        (add(mul(a, 3), mul(a, -3), 4), "4"),
        (mul(add(a, 1), 2), "(a*2+2)"),
        (add(a, mul(a, -1)), "0"),
        (div(add(mul(a, 6), b), 3), "(a*2)"),
        (div(add(mul(a, 6), c), 3), "(a*2+c//3)"),
        (mod(add(mul(a, 6), c), 3), "(c%3)"),
        (div(add(mul(a, 4), c), 4), "a"),
        (mod(add(mul(a, 4), c), 4), "c"),
        (mod(add(mul(a, 4), c), 8), "(c+a%2*4)"),
        (div(add(mul(a, 4), c), 8), "(a//2)"),
        (div(div(a, 2), 3), "(a//6)"),
        (mod(mod(neg, 12), 4), "(neg%4)"),
        (div(mod(neg, 12), 4), "(neg//4%3)"),
        (add(mul(div(neg, 4), 4), mod(neg, 4)), "neg"),
        (add(mul(mod(div(neg, 3), 5), 3), mod(neg, 3)), "(neg%15)"),
        (add(mul(mod(div(neg, 3), 2), 3), mod(neg, 3)), "(neg%6)"),
        (div(a, 10), "0"),
        (mod(a, 10), "a"),
        (div(add(a, 15), 5), "(a//5+3)"),
        (mod(mul(a, 8), 4), "0"),
        (div(mul(a, 8), 12), "(a*2//3)"),
        (mod(add(mul(a, -1), 9), 10), "(a*-1+9)"),
        (lt(add(a, 3), 5), "(a<2)"),
        (lt(mul(a, 4), 5), "(a<2)"),
        (lt(div(a, 3), 2), "(a<6)"),
        (lt(a, 10), "True"),
        (lt(a, 0), "False"),
        (ge(a, 3), "(2<a)"),
        (lt(add(mul(a, 4), c), 16), "(a<4)"),
        (lt(a, b), "(a<b)"),
        (both(lt(a, 5), lt(a, 3)), "(a<3)"),
        (both(lt(a, 3), lt(4, a)), "False"),
        (both(lt(a, 3), ge(a, 2)), "(a==2)"),
        (node(Ops.OR, lt(a, 3), lt(a, 5)), "(a<5)"),
        (node(Ops.OR, lt(a, 3), ge(a, 3)), "True"),
        (node(Ops.OR, lt(a, 3), node(Ops.CMPEQ, a, 3)), "(a<4)"),
        (node(Ops.CMPEQ, mul(a, 2), 5), "False"),
        (node(Ops.CMPNE, mul(a, 2), 4), "(a!=2)"),
        (node(Ops.MAX, a, 0), "a"),
        (node(Ops.MAX, node(Ops.MAX, a, 3), 5), "max(a, 5)"),
        (where(lt(a, 10), a, b), "a"),
        (where(lt(a, 5), b, b), "b"),
        (where(lt(a, 5), where(lt(a, 5), b, c), neg), "(b if a<5 else neg)"),
        (div(a, -3), "(a*-1//3)"),
    ],
)
def test_normal_form(expression: UOp, expected: str) -> None:
    result = simplified(expression)
    assert_equal_everywhere(expression, result)
    assert render(result) == expected


def test_order_of_writing_does_not_matter() -> None:
    assert simplified(add(a, mul(b, 4), c)) is simplified(add(c, add(mul(4, b), a)))
    assert simplified(both(lt(add(a, b), 5), lt(c, 2))).ops_below & (1 << Ops.AND)


def test_simplifying_twice_changes_nothing() -> None:
    once = simplified(div(add(mul(a, 6), mul(b, 5), c), 4))
    assert simplified(once) is once


def test_division_by_zero() -> None:
    for op in (Ops.FLOORDIV, Ops.FLOORMOD):
        with pytest.raises(ZeroDivisionError):
            simplified(node(op, a, 0))
        with pytest.raises(ZeroDivisionError):
            simplified(node(op, 4, 0))


def test_variables_as_divisors() -> None:
    n = UOp.variable("n", 1, 40)
    r, s = rng(8, 0), rng(n, 1)
    assert simplified(div(add(mul(r, n), s), n)) is r
    assert simplified(mod(add(mul(r, n), s), n)) is s
    q = rng(4, 2)
    flat = add(mul(r, mul(n, 4)), mul(s, 4), q)
    assert simplified(div(flat, mul(n, 4))) is r
    assert simplified(mod(div(flat, 4), n)) is s
    assert simplified(mod(flat, 4)) is q


@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_conditions_that_a_loop_over_a_symbolic_size_implies(step: int, shift: int) -> None:
    n, m = UOp.variable("n", 1, 9), UOp.variable("m", 1, 9)
    for size in (n, mul(n, 2), add(n, mul(m, 3)), add(n, 2)):
        end = div(add(size, step - 1), step)
        r = rng(end, 0)
        condition = lt(add(mul(r, step), shift), size)
        result = simplified(condition)
        assert shift > 0 or result is const(True), render(result)
        for values in assignments([n, m]):
            for i in range(evaluate(end, values)):
                now = {**values, r: i}
                assert evaluate(result, now) == evaluate(condition, now)


def test_one_iteration_range_and_fixed_variable() -> None:
    assert text(add(mul(rng(1, 0), 5), a)) == "a"
    assert text(add(UOp.variable("k", 3, 3), a)) == "(a+3)"


# ---- convolutions written as movement --------------------------------------------------------------------------------


class View:
    """The index of every dimension of a view, as an expression; movement ops change them (outside in)."""

    def __init__(self, shape: tuple[int, ...], number: int = 0) -> None:
        self.idx = [rng(n, number + i) if n > 1 else const(0) for i, n in enumerate(shape)]
        self.shape = shape
        self.gate: UOp = const(True)

    def of_reshape(self, source: tuple[int, ...]) -> None:
        flat = const(0)
        for i, n in zip(self.idx, self.shape, strict=True):
            flat = add(mul(flat, n), i)
        out = []
        for n in reversed(source):
            out.append(mod(flat, n))
            flat = div(flat, n)
        self.idx, self.shape = out[::-1], source

    def of_repeat(self, source: tuple[int, ...]) -> None:
        self.idx, self.shape = [mod(i, n) for i, n in zip(self.idx, source, strict=True)], source

    def of_shrink_from(self, source: tuple[int, ...]) -> None:
        self.shape = source

    def of_pad(self, source: tuple[int, ...], before: int) -> None:
        self.idx = [add(i, -before) for i in self.idx]
        for i, n in zip(self.idx, source, strict=True):
            self.gate = both(self.gate, both(ge(i, 0), lt(i, n)))
        self.shape = source


def pool(source: int, kernel: int, dilation: int = 1) -> UOp:
    """The index into one spatial axis of a window view made by repeat, shrink, reshape, shrink."""
    out = source - dilation * (kernel - 1)
    view = View((out, kernel))
    y, k = view.idx
    # permute, then shrink (k, source + dilation) to (k, out), reshape to flat, shrink, repeat
    view.idx, view.shape = [k, y], (kernel, source + dilation)
    view.of_reshape((kernel * (source + dilation),))
    view.of_repeat((source,))
    return view.idx[0]


@pytest.mark.parametrize(("source", "kernel", "dilation"), [(28, 5, 1), (10, 3, 1), (14, 3, 2), (7, 7, 1)])
def test_windows_are_sums(source: int, kernel: int, dilation: int) -> None:
    index = pool(source, kernel, dilation)
    result = simplified(index)
    assert not result.ops_below & (1 << Ops.FLOORDIV | 1 << Ops.FLOORMOD)
    assert_equal_everywhere(index, result)


def test_convolution_2d_is_affine() -> None:
    h, w, k = 28, 30, 5
    view = View((4, h - k + 1, w - k + 1, k, k))
    n, y, x, ky, kx = view.idx
    iy = mod(div(add(mul(ky, h + 1), y), 1), h)
    ix = mod(add(mul(kx, w + 1), x), w)
    flat = add(mul(n, h * w), mul(iy, w), ix)
    split = add(mul(mod(div(flat, w), h), w), mod(flat, w), mul(div(flat, h * w), h * w))
    assert text(split) == "(r0*840+r1*30+r2+r3*30+r4)"


def test_padded_convolution_has_one_gate_per_axis() -> None:
    h, k = 16, 3
    y, ky = rng(h, 0), rng(k, 1)
    padded = mod(add(mul(ky, h + 3), y), h + 2)
    i = add(padded, -1)
    access = node(Ops.INDEX, UOp.placeholder((h,), dtypes.float32, 0), i, both(ge(i, 0), lt(i, h)))
    result = simplified(access, sym)
    assert render(result.src[1]) == "(r0+r1+-1)"
    assert render(result.src[2]) == "((0<r0+r1)&(r0+r1<17))"


def test_gate_makes_the_division_go_away() -> None:
    h = 16
    y, ky = rng(h, 0), rng(3, 1)
    inside = add(y, ky, -1)
    valid = both(ge(inside, 0), lt(inside, h))
    index = add(mul(div(inside, h), 1000), mod(inside, h))
    result = uop_given_valid(simplified(valid), simplified(index))
    assert render(result) == "(r0+r1+-1)"
    assert_equal_everywhere(index, result, valid)


def test_clause_that_others_imply_is_dropped() -> None:
    valid = both(lt(add(a, b), 5), lt(a, 7))
    result = simplify_valid(simplified(valid))
    assert result is not None
    assert render(result) == "(a+b<5)"
    assert_equal_everywhere(valid, result)


def test_speed_of_a_convolution_index() -> None:
    pool(40, 3)  # rules are compiled before the clock starts
    simplified(pool(40, 3))
    assert processor_seconds(lambda: [simplified(pool(50 + i, 5)) for i in range(20)]) / 20 < 0.02


# ---- random expressions ----------------------------------------------------------------------------------------------

_names = [rng(5, 0), rng(7, 1), rng(2, 2), UOp.variable("v", -6, 4), UOp.variable("w", 1, 9)]
_ints = st.integers(-9, 9).map(const)
_positive = st.integers(1, 13).map(const)


def _grow(children):
    pairs = st.tuples(children, children)
    return st.one_of(
        st.tuples(st.sampled_from([Ops.ADD, Ops.ADD, Ops.MUL, Ops.MAX]), pairs).map(lambda t: node(t[0], *t[1])),
        st.tuples(st.sampled_from([Ops.FLOORDIV, Ops.FLOORMOD]), children, _positive).map(lambda t: node(*t)),
        st.tuples(children, _ints).map(lambda t: mul(*t)),
        st.tuples(children, children, children, children).map(lambda t: where(lt(t[0], t[1]), t[2], t[3])),
    )


expressions = st.recursive(st.one_of(st.sampled_from(_names), _ints), _grow, max_leaves=12)
_compare = st.tuples(st.sampled_from([Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ]), expressions, expressions).map(
    lambda t: node(*t)
)
conditions = st.recursive(
    _compare,
    lambda ch: st.one_of(
        st.tuples(st.sampled_from([Ops.AND, Ops.OR, Ops.CMPNE]), ch, ch).map(lambda t: node(*t)), ch.map(negated)
    ),
    max_leaves=4,
)
_quick = settings(max_examples=150)


@_quick
@given(expressions)
def test_random_expressions_keep_their_values(u: UOp) -> None:
    result = simplified(u)
    assert_equal_everywhere(u, result)
    assert simplified(result) is result


@_quick
@given(conditions)
def test_random_conditions_keep_their_values(u: UOp) -> None:
    assert_equal_everywhere(u, simplified(u))


@_quick
@given(expressions)
def test_bounds_hold(u: UOp) -> None:
    names = leaves(u)
    for n in u.toposort():
        low, high = vmin_vmax(n)
        for values in assignments(names, 60):
            if all(x in values for x in leaves(n)):
                assert low <= evaluate(n, values) <= high, render(n)


@_quick
@given(conditions, expressions)
def test_random_expressions_given_a_condition(valid: UOp, u: UOp) -> None:
    valid, u = simplified(valid), simplified(u)
    if valid.op is Ops.CONST:
        return
    assert_equal_everywhere(u, uop_given_valid(valid, u), valid)
    smaller = simplify_valid(valid)
    if smaller is not None:
        assert_equal_everywhere(valid, smaller)


_sized = [
    UOp.variable("i", -128, 127, dtypes.int8),
    UOp.variable("j", -3, 5, dtypes.int8),
    UOp.variable("k", 0, 100, dtypes.int8),
]
_sized_ops = [Ops.ADD, Ops.MUL, Ops.MAX, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD, Ops.AND, Ops.OR, Ops.XOR]
sized_expressions = st.recursive(
    st.one_of(st.sampled_from(_sized), st.integers(-128, 127).map(lambda v: const(v, dtypes.int8))),
    lambda ch: st.one_of(
        st.tuples(st.sampled_from(_sized_ops), ch, ch).map(lambda t: node(*t)),
        st.tuples(ch, ch, ch, ch).map(lambda t: where(lt(t[0], t[1]), t[2], t[3])),
    ),
    max_leaves=8,
)


@_quick
@given(sized_expressions)
def test_integers_with_a_width_wrap(u: UOp) -> None:
    result = simplified(u)
    for values in assignments(leaves(u), 200):
        expected = evaluate(u, values)
        assert expected == evaluate(result, values), f"{render(u)} -> {render(result)}"
        low, high = vmin_vmax(u)
        assert low <= expected <= high


_specials = [0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan, 2.0**100]
_floats = [UOp.param(i, dtypes.float32, ()) for i in range(2)]
float_expressions = st.recursive(
    st.one_of(st.sampled_from(_floats), st.sampled_from(_specials).map(lambda v: const(v, dtypes.float32))),
    lambda ch: st.one_of(
        st.tuples(st.sampled_from([Ops.ADD, Ops.MUL, Ops.MAX]), ch, ch).map(lambda t: node(*t)),
        st.tuples(ch, ch, ch, ch).map(lambda t: where(lt(t[0], t[1]), t[2], t[3])),
        st.tuples(st.sampled_from([Ops.CMPNE, Ops.CMPEQ]), ch, ch, ch, ch).map(
            lambda t: where(node(t[0], t[1], t[2]), t[3], t[4])
        ),
    ),
    max_leaves=8,
)


@_quick
@given(float_expressions)
def test_floats_fold_only_where_it_always_holds(u: UOp) -> None:
    result = simplified(u)
    for x, y in itertools.product(_specials, repeat=2):
        values = dict(zip(_floats, (x, y), strict=True))
        expected, got = evaluate(u, values), evaluate(result, values)
        assert repr(float(expected)) == repr(float(got)), f"{render(u)} -> {render(result)} at {x}, {y}"


# ---- every dtype -----------------------------------------------------------------------------------------------------

f = UOp.param(0, dtypes.float32, ())
i32 = UOp.param(1, dtypes.int32, ())


def same(u: UOp) -> None:
    assert simplified(u) is u, f"{render(u)} became {text(u)}"


def fconst(v: float) -> UOp:
    return const(v, dtypes.float32)


def test_float_identities_that_do_not_hold_are_left_alone() -> None:
    same(mul(f, fconst(0.0)))
    same(add(f, fconst(0.0)))
    same(add(f, mul(f, fconst(-1.0))))
    same(mul(f, node(Ops.RECIPROCAL, f)))
    same(node(Ops.CMPNE, f, f))


def test_float_identities_that_hold() -> None:
    assert simplified(mul(f, fconst(1.0))) is f
    assert simplified(add(f, fconst(-0.0))) is f
    assert simplified(node(Ops.MAX, f, f)) is f
    assert simplified(mul(mul(f, fconst(-1.0)), fconst(-1.0))) is f
    assert simplified(node(Ops.CMPLT, f, f)) is const(False)


def test_integer_identities() -> None:
    zero = const(0, dtypes.int32)
    assert simplified(mul(i32, zero)) is zero
    assert simplified(add(i32, mul(i32, const(-1, dtypes.int32)))) is zero
    assert simplified(add(add(i32, const(2**31 - 1, dtypes.int32)), const(1, dtypes.int32))).src[1].arg == -(2**31)


def test_relu_select_is_the_maximum() -> None:
    zero = fconst(0.0)
    m = node(Ops.MAX, f, zero)
    assert simplified(where(lt(zero, m), f, m)) is m
    assert simplified(where(lt(fconst(1.0), m), f, m)) is m
    same(where(lt(fconst(-1.0), m), f, m))


def test_constants_round_and_wrap() -> None:
    assert simplified(add(const(250, dtypes.uint8), const(10, dtypes.uint8))).arg == 4
    third = simplified(mul(fconst(1.0), node(Ops.RECIPROCAL, fconst(3.0))))
    assert third.arg == float(np.float32(1) / np.float32(3))
    cast = node(Ops.CAST, const(300.7, dtypes.float32), arg=dtypes.int8)
    assert simplified(cast).arg == 44
    half = node(Ops.CAST, const(0.1, dtypes.float32), arg=dtypes.half)
    assert simplified(half).arg == float(np.float16(0.1))


def test_casts() -> None:
    def cast(x: UOp, dtype) -> UOp:
        return UOp(Ops.CAST, dtype, (x,), dtype)

    assert simplified(cast(cast(i32, dtypes.int64), dtypes.int32)) is i32
    assert simplified(cast(cast(i32, dtypes.int64), dtypes.int8)) is cast(i32, dtypes.int8)
    same(cast(cast(i32, dtypes.int8), dtypes.int32))
    same(cast(cast(f, dtypes.half), dtypes.float32))
    flag = lt(f, fconst(1.0))
    assert simplified(node(Ops.CMPNE, cast(flag, dtypes.int32), const(0, dtypes.int32))) is flag
    assert simplified(node(Ops.CMPNE, cast(flag, dtypes.float32), fconst(0.0))) is flag


def test_bools() -> None:
    p, q = lt(f, fconst(1.0)), lt(f, fconst(2.0))
    assert simplified(negated(negated(p))) is p
    assert simplified(both(p, negated(p))) is const(False)
    assert simplified(both(p, both(q, p))) is both(p, q)
    assert simplified(where(p, const(True), const(False))) is p
    assert simplified(where(negated(p), f, fconst(3.0))) is where(p, fconst(3.0), f)
    assert simplified(where(p, q, const(False))) is both(p, q)


def test_shapes_are_kept() -> None:
    x = UOp.param(0, dtypes.int32, (3,))
    for u in (mul(x, const(0, dtypes.int32)), where(const(True), i32, x), add(x, mul(x, const(-1, dtypes.int32)))):
        assert simplified(u, symbolic_simple)._shape == (3,)


def test_vector_lane() -> None:
    v = node(Ops.STACK, f, fconst(2.0))
    assert simplified(node(Ops.INDEX, v, 1)) is fconst(2.0)


def test_gates() -> None:
    buf = UOp.placeholder((16,), dtypes.float32, 0)
    r = rng(32, 0)
    gated = graph_rewrite(where(lt(r, 16), node(Ops.INDEX, buf, r), fconst(0.0)), pm_move_where_on_load)
    assert gated is node(Ops.INDEX, buf, r, lt(r, 16))
    assert simplified(node(Ops.INDEX, buf, r, lt(r, 40)), sym) is node(Ops.INDEX, buf, r)
    negative_zero = where(lt(r, 16), node(Ops.INDEX, buf, r), fconst(-0.0))
    assert graph_rewrite(negative_zero, pm_move_where_on_load) is negative_zero


def test_undefined_branches_stay() -> None:
    gated = where(lt(a, 3), const(5), UOp(Ops.CONST, dtypes.weakint, (), Invalid))
    assert simplified(add(gated, 1)).ops_below >> Ops.WHERE & 1


def test_reference_arithmetic() -> None:
    assert exec_alu(Ops.LOG2, dtypes.float32, (0.0,)) == -math.inf
    assert math.isnan(exec_alu(Ops.LOG2, dtypes.float32, (-1.0,)))
    assert exec_alu(Ops.RECIPROCAL, dtypes.float32, (-0.0,)) == -math.inf
    assert math.isnan(exec_alu(Ops.SQRT, dtypes.float32, (-1.0,)))
    assert math.isnan(exec_alu(Ops.SIN, dtypes.float32, (math.inf,)))
    assert exec_alu(Ops.EXP2, dtypes.float32, (200.0,)) == math.inf
    assert exec_alu(Ops.EXP2, dtypes.float64, (1e9,)) == math.inf
    assert (exec_alu(Ops.CDIV, dtypes.int32, (-7, 2)), exec_alu(Ops.CMOD, dtypes.int32, (-7, 2))) == (-3, -1)
    assert (exec_alu(Ops.FLOORDIV, dtypes.int32, (-7, 2)), exec_alu(Ops.FLOORMOD, dtypes.int32, (-7, 2))) == (-4, 1)
    assert (exec_alu(Ops.CDIV, dtypes.int32, (5, 0)), exec_alu(Ops.CMOD, dtypes.int32, (5, 0))) == (0, 5)
    assert math.isnan(exec_alu(Ops.MAX, dtypes.float32, (1.0, math.nan)))
    assert math.isnan(exec_alu(Ops.MAX, dtypes.float32, (math.nan, 1.0)))
    assert math.isnan(exec_alu(Ops.POW, dtypes.float32, (-2.0, 0.5)))
    assert exec_alu(Ops.POW, dtypes.float32, (0.0, -1.0)) == math.inf
    assert exec_alu(Ops.ADD, dtypes.half, (2048.0, 1.0)) == 2048.0
    assert exec_alu(Ops.MUL, dtypes.int32, (2**31 - 1, 2)) == -2
    # known answer of Threefry-2x32-20: counter 0, key 0
    assert exec_alu(Ops.THREEFRY, dtypes.uint64, (0, 0)) == 0x99BA4EFE << 32 | 0x6B200159
    for op in GroupOp.ALU:
        assert op in __import__("tinygrad.uop.alu", fromlist=["python_alu"]).python_alu, op


@pytest.mark.parametrize("numbers", [(0, 1), (3, 9), (17, 18), (5, 1000)])
def test_the_order_of_a_sum_does_not_depend_on_loop_numbers(numbers):
    def indices(first, second):
        a, b = UOp.range(12, first), UOp.range(20, second)
        return [a // 2 * 40 + b // 4 * 8 + a % 2 * 4 + b % 4, b // 2 * 7 + a // 3 * 11 + b // 5 * 100 + a // 2 * 999]

    loops = {UOp.range(12, numbers[0]): UOp.range(12, 0), UOp.range(20, numbers[1]): UOp.range(20, 1)}
    renumbered = [index.simplify().substitute(loops) for index in indices(*numbers)]
    assert renumbered == [index.simplify() for index in indices(0, 1)]


# ---- what comes out in normal form is not simplified once more ------------------------------------------------------


def _index_of_loops(sizes):
    return [UOp.range(size, i, AxisType.LOOP) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", [(4, 5, 6), (1, 5, 1, 7), (3,), (1, 1)])
def test_an_index_of_loops_is_written_in_normal_form(sizes, monkeypatch):
    loops = _index_of_loops(sizes)
    written = sum((loop * math.prod(sizes[i + 1 :]) for i, loop in enumerate(loops)), UOp.const(0, dtypes.weakint))
    expected = written.simplify()
    monkeypatch.setattr(UOp, "simplify", lambda u: pytest.fail("it was rewritten"))
    assert flatten_index(sizes, loops) is expected


def test_an_index_of_anything_else_is_simplified():
    a, b = _index_of_loops((8, 6))
    assert flatten_index((4, 2), (a // 2, a % 2)) is a  # quotient and remainder join
    assert flatten_index((6, 4, 2), (b, a // 2, a % 2)) is (b * 8 + a).simplify()
    assert flatten_index((6, 1), (b, a)) is b
    v = UOp.variable("v", 1, 9)
    assert flatten_index((6, v), (b, a)) is (b * v + a).simplify()


@pytest.mark.parametrize("by", [-3, 2])
def test_shifted_indices_are_normal_sums(by):
    a, b = _index_of_loops((8, 6))
    arg = ((2, 9),) if by > 0 else ((3, 0),)
    op = Ops.SHRINK if by > 0 else Ops.PAD
    assert apply_movement_op(op, (12,), arg, (a * 3 + b + 1,)) == ((a * 3 + b + (by + 1)).simplify(),)


def test_loops_with_numbers_of_their_own_are_ordered_without_digests():
    loops = [UOp.range(size, 900 + i, AxisType.LOOP) for i, size in enumerate((11, 13, 17))]
    total = (loops[2] + loops[0] * 7 + loops[1] * 5).simplify()
    assert total is ((loops[0] * 7 + loops[1] * 5) + loops[2]).simplify()
    assert not any(hasattr(loop, "_key") for loop in loops)


def test_a_sum_in_normal_form_is_not_taken_apart_again(monkeypatch):
    loops = _index_of_loops((4, 5, 6, 7))
    whole = (loops[3] * 2 + loops[1] * 210 + loops[2] * 30 + loops[0] * 1050 + 1).simplify()
    sums = [u for u in whole.toposort() if u.op is Ops.ADD]
    assert len(sums) == 4
    monkeypatch.setattr("tinygrad.uop.affine.linear", lambda *args: pytest.fail("it was taken apart"))
    assert [normalize_sum(u) for u in sums] == [None] * 4
    assert normalize_product(loops[3] * 2) is None


def test_a_sum_that_joins_again_is_normal_at_once():
    a, b = _index_of_loops((8, 6))
    joined = (a % 4 + b * 8 + (a // 4) * 4).simplify()
    assert joined is (a + b * 8).simplify()


def test_index_arithmetic_imports_nothing_while_it_computes(monkeypatch):
    a, b = _index_of_loops((8, 6))
    (a + 1).simplify()  # the first time the rules are loaded
    imported: list[str] = []
    real = builtins.__import__

    def noting(name, *args, **kwargs):
        imported.append(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", noting)
    (a * 7 + b * 3 + 2).simplify()
    ((a * 6 + b) // 4).simplify()
    monkeypatch.undo()
    assert not imported  # each takes as long as ten nodes
