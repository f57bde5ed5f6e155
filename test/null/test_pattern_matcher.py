"""UPat and PatternMatcher: what matches, in which order, with which captures, and which mistakes are reported."""

from __future__ import annotations

import math
import pickle

import pytest

from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.matcher import _get_code
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, graph_rewrite


def var(name: str = "v", dtype=dtypes.weakint) -> UOp:
    return UOp.variable(name, 0, 9, dtype)


def node(op: Ops, *src: UOp, **kwargs) -> UOp:
    return UOp(op, None, src, **kwargs)


a, b, c = var("a"), var("b"), var("c")
f, g = (node(Ops.CAST, x, arg=dtypes.float32) for x in (a, b))


def one_rule(pattern, function=None) -> PatternMatcher:
    return PatternMatcher([
        (pattern, function or (lambda **captured: UOp(Ops.NOOP, arg=tuple(sorted(captured.items())))))
    ])


def captures(pattern, uop: UOp) -> dict[str, UOp] | None:
    """Compile a rule and return what it captures; also check that interpretation agrees."""
    found = one_rule(pattern).rewrite(uop)
    interpreted = pattern.match(uop, {})
    assert (found is None) == (not interpreted)
    if found is None:
        return None
    # a name of an alternative that was not taken is None
    named = {name: captured for name, captured in found.arg if captured is not None}
    assert named in interpreted
    return named


# ---- the article's program -------------------------------------------------------------------------------------------


def test_article_program_rewrites_a_times_one() -> None:
    pm = PatternMatcher([
        (UOp(Ops.MUL, src=(UOp.variable("a"), UOp.const(1.0))), lambda ctx, a: UOp(Ops.ADD, src=(a, a))),
    ])
    sink = UOp.sink(node(Ops.MUL, f, UOp.const(1.0, dtypes.float32)), node(Ops.MUL, g, UOp.const(2.0, dtypes.float32)))
    new_graph = graph_rewrite(sink, pm, name="my_middleware")
    assert new_graph.src[0] is node(Ops.ADD, f, f)
    assert new_graph.src[1] is sink.src[1]


def test_template_matches_both_orders_and_every_dtype_of_the_kind() -> None:
    pm = one_rule(UOp(Ops.MUL, src=(UOp.variable("a"), UOp.const(1.0))), lambda a: a)
    for dtype in (dtypes.float32, dtypes.half, dtypes.float64):
        x = node(Ops.CAST, a, arg=dtype)
        assert pm.rewrite(node(Ops.MUL, x, UOp.const(1.0, dtype))) is x
        assert pm.rewrite(node(Ops.MUL, UOp.const(1.0, dtype), x)) is x
    assert pm.rewrite(node(Ops.MUL, a, UOp.const(1))) is None  # an integer 1 is of another kind


def test_template_zero_has_a_sign() -> None:
    pm = one_rule(UOp(Ops.ADD, src=(UOp.variable("a"), UOp.const(-0.0))), lambda a: a)
    assert pm.rewrite(node(Ops.ADD, f, UOp.const(-0.0, dtypes.float32))) is f
    assert pm.rewrite(node(Ops.ADD, f, UOp.const(0.0, dtypes.float32))) is None


def test_template_with_bounded_variable_matches_that_variable_only() -> None:
    pm = one_rule(UOp(Ops.ADD, src=(a, UOp.variable("x"))), lambda x: x)
    assert pm.rewrite(node(Ops.ADD, b, a)) is b
    assert pm.rewrite(node(Ops.ADD, b, c)) is None


def test_template_twice_the_same_wildcard() -> None:
    pm = one_rule(UOp(Ops.FLOORDIV, src=(UOp.variable("x"), UOp.variable("x"))), lambda x: UOp.const(1))
    assert pm.rewrite(node(Ops.FLOORDIV, a, a)) is UOp.const(1)
    assert pm.rewrite(node(Ops.FLOORDIV, a, b)) is None


# ---- fields ----------------------------------------------------------------------------------------------------------


def test_op_sets_and_names() -> None:
    pattern = UPat(GroupOp.ALU, name="x")
    for op in (Ops.ADD, Ops.MAX):
        assert captures(pattern, node(op, a, b)) == {"x": node(op, a, b)}
    assert captures(pattern, node(Ops.CAST, a, arg=dtypes.float32)) is None


def test_dtype_one_tuple_and_none() -> None:
    assert captures(UPat(Ops.CAST, dtypes.float32, name="x"), f) == {"x": f}
    assert captures(UPat(Ops.CAST, dtypes.half, name="x"), f) is None
    assert captures(UPat(Ops.CAST, dtypes.floats, name="x"), f) == {"x": f}
    assert captures(UPat(Ops.CAST, {dtypes.half, dtypes.int}, name="x"), f) is None


def test_tuple_is_ordered_list_is_not() -> None:
    ordered = UPat(Ops.ADD, src=(UPat(Ops.CONST, name="k"), UPat.var("x")))
    either = UPat(Ops.ADD, src=[UPat(Ops.CONST, name="k"), UPat.var("x")])
    k = UOp.const(3)
    assert captures(ordered, node(Ops.ADD, k, a)) == {"k": k, "x": a}
    assert captures(ordered, node(Ops.ADD, a, k)) is None
    for src in ((k, a), (a, k)):
        assert captures(either, node(Ops.ADD, *src)) == {"k": k, "x": a}


def test_list_of_three_any_order() -> None:
    pattern = UPat(Ops.SINK, src=[UPat(Ops.CONST, name="k"), UPat(Ops.CAST, name="x"), UPat(Ops.PARAM, name="p")])
    k = UOp.const(3)
    for src in ((k, f, a), (f, a, k), (a, f, k), (a, k, f)):
        assert captures(pattern, UOp.sink(*src)) == {"k": k, "x": f, "p": a}
    assert captures(pattern, UOp.sink(k, f, f)) is None


def test_single_pattern_fits_every_source() -> None:
    pattern = UPat(Ops.SINK, src=UPat(Ops.PARAM), name="s")
    assert captures(pattern, UOp.sink(a, b, c)) is not None
    assert captures(pattern, UOp.sink()) is not None
    assert captures(pattern, UOp.sink(a, f)) is None


def test_broadcast_captures_one_node() -> None:
    pattern = UPat.var("x").broadcast()
    assert captures(pattern, node(Ops.STACK, a, a, a)) == {"x": a}
    assert captures(pattern, node(Ops.STACK, a, b)) is None


def test_prefix() -> None:
    pattern = UPat(Ops.SINK, src=(UPat(Ops.PARAM, name="p"),), allow_any_len=True)
    assert captures(pattern, UOp.sink(a, f)) == {"p": a}
    assert captures(pattern, UOp.sink(f, a)) is None
    assert captures(pattern, UOp.sink()) is None
    assert captures(UPat(Ops.SINK, src=(UPat(Ops.PARAM, name="p"),)), UOp.sink(a, f)) is None


def test_arg_and_tag() -> None:
    assert captures(UPat(Ops.NOOP, arg="hi", name="x"), UOp(Ops.NOOP, arg="hi")) is not None
    assert captures(UPat(Ops.NOOP, arg="hi", name="x"), UOp(Ops.NOOP, arg="ho")) is None
    assert captures(UPat(Ops.NOOP, tag="t", name="x"), UOp(Ops.NOOP, tag="t")) is not None
    assert captures(UPat(Ops.NOOP, tag={"t", "u"}, name="x"), UOp(Ops.NOOP)) is None


def test_same_name_same_node() -> None:
    pattern = UPat.var("x") + UPat.var("x")
    assert captures(pattern, node(Ops.ADD, a, a)) == {"x": a}
    assert captures(pattern, node(Ops.ADD, a, b)) is None
    nested = (UPat.var("x") * UPat.var("y")) + UPat.var("x")
    assert captures(nested, node(Ops.ADD, b, node(Ops.MUL, a, b))) == {"x": b, "y": a}


@pytest.mark.parametrize(
    ("value", "dtype", "matching", "others"),
    [
        (0, dtypes.int32, [0, 0.0], [-0.0, False]),
        (1, dtypes.int32, [1, 1.0], [True, 2]),
        (1.0, dtypes.float32, [1.0], [1, True, 1.5]),
        (-0.0, dtypes.float32, [-0.0], [0.0, 0]),
        (math.nan, dtypes.float32, [math.nan], [0.0]),
        (math.inf, dtypes.float32, [math.inf], [-math.inf]),
        (True, dtypes.bool, [True], [1, 1.0, False]),
    ],
)
def test_const_values(value, dtype, matching, others) -> None:
    pattern = UPat(Ops.NOOP, src=(UPat.const(value).named("k"),))
    for x in matching:
        assert captures(pattern, node(Ops.NOOP, UOp.const(x))) is not None, x
    for x in others:
        assert captures(pattern, node(Ops.NOOP, UOp.const(x))) is None, x


def test_any_and_or_casted() -> None:
    pattern = UPat(Ops.ADD, src=(UPat.var("x", dtypes.weakint).or_casted("y"), UPat.var()))
    assert captures(
        UPat(Ops.NOOP, src=(UPat.any(UPat(Ops.CONST, name="k"), UPat(Ops.PARAM, name="k")),)), node(Ops.NOOP, a)
    ) == {"k": a}
    # the first alternative renames the node itself
    assert captures(pattern, node(Ops.ADD, a, b)) == {"y": a}
    assert captures(pattern, node(Ops.ADD, f, g)) == {"x": a, "y": f}


def test_any_at_the_top() -> None:
    pm = one_rule(UPat.any(UPat.var("x") * 2, UPat.var("x") + UPat.var("x")), lambda x: x)
    assert pm.rewrite(node(Ops.MUL, a, UOp.const(2))) is a
    assert pm.rewrite(node(Ops.ADD, a, a)) is a
    assert pm.rewrite(node(Ops.ADD, a, b)) is None


def test_operators_build_the_forms_of_nodes() -> None:
    minus = UPat.var("x") - UPat.var("y")
    assert captures(minus, node(Ops.ADD, a, node(Ops.MUL, b, UOp.const(-1)))) == {"x": a, "y": b}
    assert captures(UPat.var("x") > UPat.cvar("k"), node(Ops.CMPLT, UOp.const(3), a)) == {"x": a, "k": UOp.const(3)}
    assert captures(UPat.var("x").ne(UPat.var("y")), node(Ops.CMPNE, a, b)) is not None
    assert (UPat.var("x") == UPat.var("x")) is False
    where = UPat.var("k", dtypes.bool).where(UPat.var("x"), UPat.const(0))
    condition = node(Ops.CMPLT, a, b)
    assert captures(where, node(Ops.WHERE, condition, a, UOp.const(0))) == {"k": condition, "x": a}


def test_many_alternatives_fall_back_to_interpretation() -> None:
    wide = UPat(Ops.SINK, src=[UPat(Ops.PARAM, name=f"p{i}") for i in range(6)])
    nodes = [var(f"n{i}") for i in range(6)]
    assert captures(wide, UOp.sink(*nodes)) is not None
    assert captures(wide, UOp.sink(*nodes[:5], UOp.const(1))) is None


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_first_success_wins_and_none_or_same_means_no_match() -> None:
    calls: list[str] = []

    def record(name: str, result):
        def rule(x: UOp) -> UOp | None:
            calls.append(name)
            return x if result == "same" else result

        return rule

    add = UPat(Ops.ADD, name="x")
    pm = PatternMatcher([
        (add, record("none", None)),
        (add, record("same", "same")),
        (add, record("hit", a)),
        (add, record("late", b)),
    ])
    assert pm.rewrite(node(Ops.ADD, a, b)) is a
    assert calls == ["none", "same", "hit"]


def test_ctx_is_passed_and_optional() -> None:
    pm = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda ctx, x: ctx.append(x))])
    seen: list[UOp] = []
    assert pm.rewrite(node(Ops.ADD, a, b), seen) is None
    assert seen == [node(Ops.ADD, a, b)]


def test_keyword_only_defaults_and_closures() -> None:
    offset = 5

    def rule(x: UOp, *, k: UOp, scale: int = 2) -> UOp:
        return UOp.const(k.arg * scale + offset)

    pm = PatternMatcher([(UPat.var("x") + UPat.cvar("k"), rule)])
    assert pm.rewrite(node(Ops.ADD, a, UOp.const(7))) is UOp.const(19)


def test_wrong_parameters_are_reported_with_rule_and_place() -> None:
    with pytest.raises(TypeError, match=r"(?s)test_pattern_matcher\.py.*add \['y'\] to the parameters"):
        PatternMatcher([(UPat.var("x") + UPat.var("y"), lambda x: x)])
    with pytest.raises(TypeError, match=r"captures no \['z'\]"):
        PatternMatcher([(UPat.var("x") + UPat.var("x"), lambda x, z: x)])


def test_malformed_rows() -> None:
    with pytest.raises(TypeError, match="a rule is a pair"):
        PatternMatcher([UPat(Ops.ADD)])
    with pytest.raises(TypeError, match="left side of a rule"):
        PatternMatcher([("ADD", lambda: None)])
    with pytest.raises(AssertionError, match="must name its op"):
        PatternMatcher([(UPat.var("x"), lambda x: None)])
    with pytest.raises(AssertionError, match="'ctx' is reserved"):
        UPat.var("ctx")


def test_addition_keeps_order_and_is_cached() -> None:
    first = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda x: x.src[0])])
    second = PatternMatcher([
        (UPat(Ops.ADD, name="x"), lambda x: x.src[1]),
        (UPat(Ops.MUL, name="x"), lambda x: x.src[1]),
    ])
    both = first + second
    assert both is first + second
    assert both.rewrite(node(Ops.ADD, a, b)) is a
    assert both.rewrite(node(Ops.MUL, a, b)) is b
    assert len(both.patterns) == 3


def test_rules_remember_their_line() -> None:
    pm = PatternMatcher([
        (UPat(Ops.ADD, name="x"), lambda x: None),
        (UPat(Ops.MUL, name="x"), lambda x: None),
    ])
    lines = [rule.location[1] for rule in pm.rules]
    assert lines[1] == lines[0] + 1
    assert all(rule.location[0].endswith("test_pattern_matcher.py") for rule in pm.rules)


def test_trace_counts_hits() -> None:
    pm = PatternMatcher(
        [
            (UPat(Ops.MUL, src=(UPat.var("x"), UPat.const(1.0))), lambda x: x),
            (UPat(Ops.MUL, name="x"), lambda x: None),
        ],
        trace=True,
    )
    twice = node(Ops.MUL, node(Ops.MUL, f, UOp.const(1.0, dtypes.float32)), UOp.const(1.0, dtypes.float32))
    assert graph_rewrite(twice, pm) is f
    first, second = pm.stats()
    assert (first.tries, first.hits, second.tries, second.hits) == (2, 2, 0, 0)
    assert "test_pattern_matcher.py" in first.location


def test_exceptions_propagate() -> None:
    def rule(x: UOp) -> UOp:
        raise LookupError("from the rule")

    with pytest.raises(LookupError, match="from the rule"):
        PatternMatcher([(UPat(Ops.ADD, name="x"), rule)]).rewrite(node(Ops.ADD, a, b))


def test_pickling() -> None:
    offset = 2
    pm = PatternMatcher([(UPat.var("x") + UPat.cvar("k"), lambda x, k: UOp.const(k.arg + offset))])
    again = pickle.loads(pickle.dumps(pm))
    assert again.rewrite(node(Ops.ADD, a, UOp.const(1))) is UOp.const(3)


def test_generated_code_tests_ops_first() -> None:
    text = _get_code((UPat.var("x", dtypes.ints) * UPat.cvar("k")) + UPat.cvar("l"))
    first = next(line for line in text.splitlines() if line.strip().startswith("if "))
    assert "op" in first.lower() or first.strip().startswith("if o")
    assert "arg" not in first
    assert "dtype" not in first
