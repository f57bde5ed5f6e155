"""graph_rewrite and substitute: order, sharing, modes, memory of results, and rules that never settle."""

from __future__ import annotations

import pytest

from test.helpers_timing import processor_seconds
from tinygrad.dtype import dtypes
from tinygrad.settings import Context
from tinygrad.uop import Ops, tracing
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, graph_rewrite
from tinygrad.uop.rewrite import BottomUpGate, substitute


def var(name: str) -> UOp:
    return UOp.variable(name, 0, 9)


def add(x: UOp, y: UOp) -> UOp:
    return UOp(Ops.ADD, None, (x, y))


def mul(x: UOp, y: UOp) -> UOp:
    return UOp(Ops.MUL, None, (x, y))


def const(v: int) -> UOp:
    return UOp.const(v)


a, b, c = var("a"), var("b"), var("c")
fold = PatternMatcher([
    (UPat.cvar("x") + UPat.cvar("y"), lambda x, y: UOp.const(x.arg + y.arg)),
    (UPat.cvar("x") * UPat.cvar("y"), lambda x, y: UOp.const(x.arg * y.arg)),
    (UPat.var("x") * 1, lambda x: x),
])


def test_rewrites_to_the_end() -> None:
    assert graph_rewrite(mul(mul(a, add(const(-1), const(2))), mul(const(1), const(1))), fold) is a


def test_same_object_if_nothing_changes() -> None:
    sink = UOp.sink(add(a, b), mul(a, c))
    assert graph_rewrite(sink, fold) is sink


def test_shared_nodes_are_offered_once() -> None:
    seen: list[UOp] = []
    pm = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda ctx, x: ctx.append(x))])
    shared = add(a, b)
    graph_rewrite(UOp.sink(mul(shared, shared), shared), pm, ctx=seen)
    assert seen == [shared]


def test_sources_before_users_and_top_down_first_in_bottom_up() -> None:
    def order(**kwargs) -> list[Ops]:
        seen: list[Ops] = []
        pm = PatternMatcher([(UPat({Ops.ADD, Ops.MUL}, name="x"), lambda ctx, x: ctx.append(x.op))])
        graph_rewrite(mul(add(a, b), c), pm, ctx=seen, **kwargs)
        return seen

    assert order() == [Ops.ADD, Ops.MUL]
    assert order(bottom_up=True) == [Ops.MUL, Ops.ADD]


def test_replacement_is_rewritten() -> None:
    pm = PatternMatcher([
        (UPat.var("x") * 2, lambda x: add(x, x)),
        (UPat.var("x") + UPat.var("x"), lambda x: UOp(Ops.SHL, None, (x, const(1)))),
    ])
    assert graph_rewrite(mul(a, const(2)), pm) is UOp(Ops.SHL, None, (a, const(1)))
    assert graph_rewrite(mul(a, const(2)), pm, bottom_up=True) is UOp(Ops.SHL, None, (a, const(1)))
    assert graph_rewrite(mul(a, const(2)), pm, walk=True) is add(a, a)
    assert graph_rewrite(mul(a, const(2)), pm, walk=True, bottom_up=True) is add(a, a)


def test_bottom_up_offers_a_rebuilt_node_again() -> None:
    assert graph_rewrite(mul(a, add(const(-1), const(2))), fold, bottom_up=True) is a


def test_bottom_up_gate_keeps_the_node_and_its_sources() -> None:
    def stop(x: UOp) -> None:
        raise BottomUpGate

    pm = PatternMatcher([(UPat(Ops.SHL, name="x"), stop)]) + fold
    inner = mul(a, const(1))
    gated = UOp(Ops.SHL, None, (inner, const(3)))
    sink = graph_rewrite(UOp.sink(gated, inner), pm, bottom_up=True)
    assert sink.src == (gated, a)


def test_bpm_runs_before_sources_together_with_pm() -> None:
    before = PatternMatcher([
        (UPat(Ops.SHL, src=(UPat.var("x"), UPat.cvar("k"))), lambda x, k: mul(x, const(1 << k.arg)))
    ])
    sink = UOp(Ops.SHL, None, (mul(a, add(const(0), const(1))), const(2)))
    assert graph_rewrite(sink, fold, bpm=before) is mul(a, const(4))


def test_call_bodies_are_not_entered() -> None:
    body = UOp.sink(mul(a, const(1)))
    call = UOp(Ops.CALL, dtypes.void, (body, mul(b, const(1))))
    assert graph_rewrite(call, fold).src == (body, b)
    assert graph_rewrite(call, fold, enter_calls=True).src == (UOp.sink(a), b)
    assert graph_rewrite(call, fold, bottom_up=True).src == (body, b)
    assert substitute(call, {a: c, b: c}).src[0] is body
    assert substitute(call, {a: c}, enter_calls=True).src[0] is UOp.sink(mul(c, const(1)))


def test_dtypes_follow_the_sources() -> None:
    x = add(a, const(3))
    changed = substitute(x, {a: UOp.variable("a", 0, 9, dtypes.int64)})
    assert changed.dtype is dtypes.int64
    compared = UOp(Ops.CMPLT, None, (a, b))
    assert substitute(compared, {a: UOp.variable("a", 0, 9, dtypes.int64)}).dtype is dtypes.bool


def test_tags_survive() -> None:
    tagged = mul(add(const(1), const(2)), a).rtag("mark")
    assert graph_rewrite(tagged, fold).tag == "mark"


# ---- never settling --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bottom_up", [False, True])
def test_two_rules_that_undo_each_other(bottom_up: bool) -> None:
    pm = PatternMatcher([
        (UPat(Ops.ADD, src=(UPat.var("x"), UPat.var("y"))), lambda x, y: mul(x, y)),
        (UPat(Ops.MUL, src=(UPat.var("x"), UPat.var("y"))), lambda x, y: add(x, y)),
    ])
    with pytest.raises(RuntimeError, match=r"(?s)infinite loop in .*test_rewrite\.py:\d+.*ADD.*MUL"):
        graph_rewrite(UOp.sink(add(a, b)), pm, bottom_up=bottom_up)


@pytest.mark.parametrize("bottom_up", [False, True])
def test_rule_that_wraps_its_own_match(bottom_up: bool) -> None:
    pm = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda x: add(x, const(1)))])
    with pytest.raises(RuntimeError, match=r"infinite loop in (graph_rewrite|fixed_point_rewrite)"):
        graph_rewrite(add(a, b), pm, bottom_up=bottom_up, name="wraps")


@pytest.mark.parametrize("bottom_up", [False, True])
def test_rule_that_always_builds_a_new_node(bottom_up: bool) -> None:
    pm = PatternMatcher([(UPat.var("x") + UPat.cvar("k"), lambda x, k: add(x, const(k.arg + 1)))])
    with (
        Context(REWRITE_STACK_LIMIT=1000),
        pytest.raises(RuntimeError, match=r"(?s)infinite loop in .*test_rewrite\.py"),
    ):
        graph_rewrite(add(a, const(0)), pm, bottom_up=bottom_up)


def test_rule_that_grows_without_end() -> None:
    pm = PatternMatcher([
        (UPat.var("x") + UPat.cvar("k"), lambda x, k: UOp(Ops.SHL, None, (add(x, const(k.arg + 1)), const(1))))
    ])
    with Context(REWRITE_STACK_LIMIT=1000), pytest.raises(RuntimeError, match="stack too big"):
        graph_rewrite(add(a, const(0)), pm)


# ---- size and speed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bottom_up", [False, True])
def test_deep_graphs(bottom_up: bool) -> None:
    x = a
    for i in range(100_000):
        x = add(x, b if i % 2 else c)
    x = mul(x, const(1))
    assert graph_rewrite(x, fold, bottom_up=bottom_up) is x.src[0]
    assert substitute(x, {a: const(1)}).op is Ops.MUL


def test_pure_results_are_remembered() -> None:
    calls = 0

    def count(x: UOp) -> None:
        nonlocal calls
        calls += 1

    pm = PatternMatcher([(UPat(Ops.ADD, name="x"), count)], pure=True)
    x = add(add(a, b), c)
    graph_rewrite(x, pm)
    graph_rewrite(UOp.sink(x, add(x, x)), pm)
    assert calls == 3


def test_closures_and_context_are_not_remembered() -> None:
    seen: list[UOp] = []
    pm = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda x: seen.append(x))])
    x = add(a, b)
    graph_rewrite(x, pm)
    graph_rewrite(x, pm)
    assert seen == [x, x]


def test_subgraphs_without_root_ops_are_skipped() -> None:
    x = a
    for _ in range(20_000):
        x = add(x, b)
    x.ops_below  # noqa: B018  computed once per node
    pm = PatternMatcher([(UPat(Ops.SIN, name="x"), lambda ctx, x: None)])
    assert processor_seconds(lambda: graph_rewrite(x, pm)) < 0.01
    assert graph_rewrite(x, pm) is x


# ---- substitute ------------------------------------------------------------------------------------------------------


def test_substitute_replaces_and_shares() -> None:
    x = mul(add(a, b), add(a, b))
    new = substitute(x, {a: c})
    assert new is mul(add(c, b), add(c, b))
    assert substitute(x, {var("z"): c}) is x


def test_substitute_resubstitutes_unless_walk() -> None:
    chain = {a: add(b, const(1)), b: const(2)}
    assert substitute(mul(a, b), chain) is mul(add(const(2), const(1)), const(2))
    assert substitute(mul(a, b), chain, walk=True) is mul(add(b, const(1)), const(2))


def test_substitute_with_the_key_in_its_value() -> None:
    split = {a: add(mul(a, const(4)), b)}
    assert substitute(mul(a, c), split) is mul(split[a], c)
    assert substitute(mul(split[a], c), split) is mul(add(mul(split[a], const(4)), b), c)


def test_substitute_swap() -> None:
    assert substitute(UOp(Ops.FLOORDIV, None, (a, b)), {a: b, b: a}) is UOp(Ops.FLOORDIV, None, (b, a))


# ---- traces ----------------------------------------------------------------------------------------------------------


def test_traces_keep_every_replacement() -> None:
    with Context(TRACK_MATCH_STATS=2):
        graph_rewrite(mul(a, add(const(0), const(1))), fold, name="traced")
    record = tracing.active_group()[-1]
    assert record.name == "traced"
    assert [(m[0].op, m[1].op) for m in record.matches] == [(Ops.ADD, Ops.CONST), (Ops.MUL, Ops.PARAM)]
    assert all("test_rewrite.py" in m[2] for m in record.matches)
    assert record.result is a
