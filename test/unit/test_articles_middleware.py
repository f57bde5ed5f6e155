"""What the article on the layers says: nodes, PatternMatcher, own rules at any stage, TinyJit and its errors."""

import re

import numpy as np
import pytest

from tinygrad import Context, GlobalCounters, Tensor, middleware, nn
from tinygrad.engine.jit import JitError, TinyJit
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat, dtypes, graph_rewrite

# The rule of the article: a * 1.0 becomes a + a, which changes the result so that one sees it.
pm = PatternMatcher([
    (UOp(Ops.MUL, src=(UOp.variable("a"), UOp.const(1.0))), lambda ctx, a: UOp(Ops.ADD, src=(a, a))),
])


def stored(*values: float) -> Tensor:
    return Tensor(list(values)).realize()


def times_one(a: Tensor) -> Tensor:
    """a * 1.0, which the frontend itself would already fold."""
    return Tensor(UOp(Ops.MUL, src=(a.uop, UOp.const(1.0, a.dtype))))


# ---- the node --------------------------------------------------------------------------------------------------------


def test_a_node_is_op_dtype_src_arg() -> None:
    a, b = UOp.variable("a", 0, 10, dtypes.float), UOp.variable("b", 0, 10, dtypes.float)
    m = UOp(Ops.MUL, dtypes.float, src=(a, b), arg=None)
    assert (m.op, m.dtype, m.src, m.arg) == (Ops.MUL, dtypes.float32, (a, b), None)
    assert UOp(Ops.MUL, dtypes.float, (a, b)) is m, "equal nodes are one node"


def test_base_and_view() -> None:
    x = stored(0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    view = x.reshape(2, 3).permute(1, 0)
    assert view.uop.base is x.uop.base
    assert view.uop.base.op is Ops.BUFFER
    used = GlobalCounters.mem_used
    part = x[2:4].realize()
    assert GlobalCounters.mem_used == used, "a view takes no memory"
    assert part.tolist() == [2.0, 3.0]


def test_rewriting_makes_new_nodes() -> None:
    node = UOp.variable("x", 0, 10) + 1
    new = graph_rewrite(node, PatternMatcher([(UPat(Ops.CONST, arg=1), lambda: UOp.const(2))]))
    assert node.src[1].arg == 1
    assert new is UOp.variable("x", 0, 10) + 2


# ---- PatternMatcher --------------------------------------------------------------------------------------------------


def test_rules_with_nodes_as_patterns() -> None:
    a = stored(1.0, 2.0).uop
    sink = UOp.sink(times_one(Tensor(a)).uop)
    new_graph = graph_rewrite(sink, pm, name="my_middleware")
    assert new_graph is UOp.sink(UOp(Ops.ADD, src=(a, a)))
    unrelated = UOp.sink(a * 2.0)
    assert graph_rewrite(unrelated, pm, name="my_middleware") is unrelated


def test_rules_go_on_until_nothing_changes() -> None:
    halve = PatternMatcher([
        # a guard: None means no match
        (UPat(Ops.CONST, name="c"), lambda c: c.replace(arg=c.arg // 2) if c.arg > 1 else None),
    ])
    assert graph_rewrite(UOp.const(1024), halve).arg == 1


def test_rules_that_never_settle_are_stopped() -> None:
    count = PatternMatcher([(UPat(Ops.CONST, name="c"), lambda c: c.replace(arg=c.arg + 1))])
    divided = UPat(Ops.CDIV, src=(UPat.var("x"), UPat.var("y")))
    swap = PatternMatcher([(divided, lambda x, y: UOp(Ops.CDIV, src=(y, x)))])
    with Context(REWRITE_STACK_LIMIT=2000), pytest.raises(RuntimeError, match=r"test_articles_middleware\.py"):
        graph_rewrite(UOp.const(0), count)
    with pytest.raises(RuntimeError, match=r"test_articles_middleware\.py"):
        graph_rewrite(UOp(Ops.CDIV, src=(UOp.variable("x", 0, 9), UOp.variable("y", 0, 9))), swap)


def test_trace_counts_the_hits_of_each_rule() -> None:
    traced = PatternMatcher(
        [
            (UPat.var("x") * 1, lambda x: x),
            (UPat.var("x") + 0, lambda x: x),
        ],
        trace=True,
    )
    x = UOp.variable("x", 0, 10)
    nodes = UOp.sink(*(UOp(Ops.MUL, src=(x + i, UOp.const(1))) for i in range(1, 4)))
    graph_rewrite(nodes, traced)
    assert [rule.hits for rule in traced.stats()] == [3, 0]


def test_context_is_given_to_rules_that_ask() -> None:
    seen: list[UOp] = []
    graph_rewrite(
        stored(1.0).uop + 2.0, PatternMatcher([(UPat(Ops.CONST, name="c"), lambda ctx, c: ctx.append(c))]), ctx=seen
    )
    assert 2.0 in [c.arg for c in seen]


# ---- middleware ------------------------------------------------------------------------------------------------------


def test_stages_have_names() -> None:
    names = [stage.name for stage in middleware.stages()]
    assert names[:2] == ["function", "schedule"]
    assert {"kernel", "simplify", "optimize", "decompose", "lower", "linear", "render"} <= set(names)
    assert len(str(middleware.stages()).splitlines()) == len(names)


def test_a_rule_at_the_schedule_stage() -> None:
    a = stored(1.0, 2.0)
    with middleware.insert("schedule", pm, name="my_middleware") as mine:
        assert times_one(a).tolist() == [2.0, 4.0]
    assert mine.hits == 1
    assert times_one(a).tolist() == [1.0, 2.0], "without the rules nothing of their effect is left, in no cache"


@pytest.mark.parametrize("stage", ["schedule", "kernel", "simplify", "optimize", "decompose"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rule_at_every_stage_that_holds_arithmetic(stage: str, when: str) -> None:
    rules = PatternMatcher([(UPat(Ops.CONST, arg=77.0, name="c"), lambda c: c.replace(arg=78.0))])
    x = stored(1.0, 2.0)
    with middleware.insert(stage, rules, name="one_more", when=when) as one_more:
        assert (x + 77.0).tolist() == [79.0, 80.0]
    assert one_more.hits >= 1
    assert (x + 77.0).tolist() == [78.0, 79.0]


def test_functions_at_the_last_stages() -> None:
    x, seen = stored(1.0, 2.0), {}
    with (
        middleware.insert("linear", lambda uops: seen.setdefault("linear", uops), name="look"),
        middleware.insert("render", lambda text: seen.setdefault("render", text), name="look"),
    ):
        (x + 3.5).realize()
    assert seen["linear"][-1].op is Ops.SINK
    assert "define void" in seen["render"]


def test_wrong_middleware_is_blamed_by_name() -> None:
    with (
        middleware.insert("schedule", lambda graph: None, name="forgot_to_return"),
        pytest.raises(middleware.MiddlewareError, match="forgot_to_return"),
    ):
        (stored(1.0) + 1.25).realize()


# ---- TinyJit ---------------------------------------------------------------------------------------------------------


def test_train_step_of_the_article() -> None:
    layer = nn.Linear(6, 3)
    runs = 0

    def model(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return layer(x)

    @TinyJit
    def train_step(x: Tensor, target: Tensor) -> Tensor:
        loss = model(x).sparse_categorical_crossentropy(target)
        return loss.backward()

    for call in range(1, 6):
        x, target = Tensor.rand(4, 6).realize(), Tensor([0, 1, 2, 1]).realize()
        loss = train_step(x, target)
        wanted = layer(x).sparse_categorical_crossentropy(target)
        np.testing.assert_allclose(loss.numpy(), wanted.numpy(), rtol=1e-5)
        assert (train_step.captured is not None) == (call >= 2), "the first call warms up, the second is captured"
        assert runs == min(call, 2), "from the third on Python does not run"
    assert train_step.captured.linear.op is Ops.LINEAR
    assert all(call.op is Ops.CALL for call in train_step.captured.linear.src)


def test_replays_do_not_schedule_or_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    f = TinyJit(lambda x: (x.exp() + 1).sum().realize())
    inputs = [stored(float(i), 1.0) for i in range(5)]
    for x in inputs[:2]:
        f(x)
    import tinygrad.codegen
    import tinygrad.schedule

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a replay must not get here")

    monkeypatch.setattr(tinygrad.schedule, "create_linear_with_vars", refuse)
    monkeypatch.setattr(tinygrad.codegen, "to_program", refuse)
    results = [f(x) for x in inputs[2:]]
    monkeypatch.undo()
    np.testing.assert_allclose([r.item() for r in results], [np.exp(i) + np.e + 2 for i in (2, 3, 4)], rtol=1e-6)


@pytest.mark.parametrize("jit", [0, 1, 2])
def test_jit_levels(jit: int) -> None:
    runs = 0

    def add(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return (x + 1).realize()

    with Context(JIT=jit):
        f = TinyJit(add)
        assert [f(stored(float(i))).tolist() for i in range(5)] == [[i + 1.0] for i in range(5)]
    assert runs == (5 if jit == 0 else 2)


def test_debug_2_tells_how_many_kernels_were_captured(capsys: pytest.CaptureFixture[str]) -> None:
    f = TinyJit(lambda x: (x.contiguous() + 1).sum().realize())
    with Context(DEBUG=2):
        for i in range(3):
            f(stored(float(i), 2.0))
    output = capsys.readouterr().out
    (captured,) = re.findall(r"JIT captured (\d+) kernels", output)
    assert int(captured) == len(f.captured.linear.src)
    assert output.count("*** CPU") >= 3 * int(captured), "and the launches of every call"


def call_three_times(f: TinyJit, *arguments: Tensor) -> None:
    for _ in range(3):
        f(*arguments)


def test_views_as_inputs() -> None:
    f = TinyJit(lambda x: (x + 1).realize())
    x = Tensor([[0, 1, 2], [3, 4, 5]]).realize()
    with pytest.raises(JitError, match=re.escape("JIT inputs must be real buffers; use .clone()")):
        call_three_times(f, x[:, 1])
    for i in range(4):
        assert f((x + i)[:, 1].clone()).tolist() == [i + 2, i + 5]
    assert f(x[:, 0].clone()).tolist() == [1, 4]


def test_constants_as_inputs() -> None:
    with pytest.raises(JitError, match=re.escape("JIT inputs must be real buffers; use .clone()")):
        call_three_times(TinyJit(lambda x: (x + stored(1.0)).realize()), Tensor(2.0))


def test_duplicate_inputs() -> None:
    f = TinyJit(lambda x, y: (x + y).realize())
    x = stored(1.0, 2.0)
    with pytest.raises(JitError, match="duplicate inputs to JIT"):
        call_three_times(f, x, x)


def test_nested_jits() -> None:
    inner = TinyJit(lambda x: (x + 1).realize())
    outer = TinyJit(lambda x: inner(x * 2).realize())
    with pytest.raises(RuntimeError, match="TinyJit inside another TinyJit is not supported"):
        call_three_times(outer, stored(1.0))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: (x + 1).item(), "cannot access tensor data during JIT capture"),
        (lambda x: (x + 1).numpy(), "cannot access tensor data during JIT capture"),
        (lambda x: 3.0, "non-Tensor value"),
        (lambda x: None, "didn't JIT anything!"),
    ],
)
def test_what_cannot_be_captured(function: object, text: str) -> None:
    f = TinyJit(function)
    x = stored(1.0)
    f(x)
    with pytest.raises(JitError, match=re.escape(text)):
        f(x)


@pytest.mark.parametrize(
    "other", [lambda: stored(1.0, 2.0, 3.0), lambda: Tensor([1, 2]).realize()], ids=["shape", "dtype"]
)
def test_inputs_must_look_the_same(other: object) -> None:
    f = TinyJit(lambda x: (x + 1).realize())
    call_three_times(f, stored(1.0, 2.0))
    with pytest.raises(JitError, match="args mismatch in JIT"):
        f(other())
