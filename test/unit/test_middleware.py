"""Middleware: rules of users at every stage, seen by name, never mixed into other results."""

import threading

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, middleware
from tinygrad.dtype import dtypes
from tinygrad.middleware import MiddlewareError, insert, run_stage, stages
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, graph_rewrite

# The rule of the article, with a result that shows: a * 3.0 becomes a + a.
triple_to_double = PatternMatcher([(UPat.var("a") * 3.0, lambda a: a + a)])
SIZES = iter(range(1000, 2000))


def data() -> tuple[Tensor, np.ndarray]:
    """Numbers of a size that no other test has used: nothing comes from a cache."""
    values = np.arange(next(SIZES), dtype=np.float32)
    return Tensor(values).realize(), values


def test_stages_are_listed_in_order_with_a_line_each():
    names = [stage.name for stage in stages()]
    assert names == ["function", "schedule", "kernel", "simplify", "optimize", "decompose", "lower", "linear", "render"]
    assert "schedule" in stages()
    lines = str(stages()).splitlines()
    assert len(lines) == len(names)
    assert all(line.startswith(name) and len(line) > 20 for line, name in zip(lines, names, strict=True))


@pytest.mark.parametrize("stage", ["function", "schedule", "kernel", "simplify", "optimize"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rule_table_at_every_graph_stage(stage, when):
    x, values = data()
    with insert(stage, triple_to_double, name="mine", when=when) as mine:
        np.testing.assert_array_equal((x * 3.0).numpy(), values * 2)
        assert mine.hits == 1
        assert mine.runs >= 1
    np.testing.assert_array_equal((x * 3.0).numpy(), values * 3)


def test_the_template_of_the_article():
    rules = PatternMatcher([
        (UOp(Ops.MUL, src=(UOp.variable("a"), UOp.const(1.0))), lambda ctx, a: UOp(Ops.ADD, src=(a, a))),
    ])
    x, values = data()
    with insert("schedule", rules, name="my_middleware") as mine:
        np.testing.assert_array_equal((x * Tensor(1.0)).numpy(), values * 2)
    assert mine.hits == 1


def test_results_with_and_without_never_mix():
    x, values = data()
    plain = insert("schedule", triple_to_double)
    for _ in range(2):
        np.testing.assert_array_equal((x * 3.0 + 1).numpy(), values * 3 + 1)
        with plain:
            np.testing.assert_array_equal((x * 3.0 + 1).numpy(), values * 2 + 1)


def test_cache_token_is_equal_for_equal_insertions_only():
    assert middleware.cache_token() == ()
    with insert("schedule", triple_to_double, name="a"):
        first = middleware.cache_token()
    with insert("schedule", triple_to_double, name="a"):
        assert middleware.cache_token() == first
    with insert("schedule", triple_to_double, name="a", when="after"):
        assert middleware.cache_token() != first
    assert first != ()
    assert middleware.cache_token() == ()


def test_cached_schedules_are_used_inside_too():
    x, values = data()
    with insert("schedule", triple_to_double) as mine:
        for _ in range(3):
            np.testing.assert_array_equal((x * 3.0).numpy(), values * 2)
    assert mine.runs == 1


def test_plain_functions_with_and_without_ctx():
    seen = []

    def watch(graph):
        seen.append(graph.op)
        return graph

    def target(graph, ctx):
        seen.append(type(ctx).__name__)
        return graph

    x, values = data()
    with insert("schedule", watch), insert("optimize", target) as second:
        np.testing.assert_array_equal((x + 1).numpy(), values + 1)
    assert seen[0] is Ops.SINK
    assert "Renderer" in seen[1]
    assert second.name == "target"
    assert second.hits == 0


def test_functions_on_the_list_and_on_the_text():
    sizes = {}

    def count(uops):
        sizes["list"] = len(uops)
        return uops

    def comment(text):
        sizes["text"] = len(text)
        return text + "\n"

    x, values = data()
    with insert("linear", count), insert("render", comment) as second:
        np.testing.assert_array_equal((x + 1).numpy(), values + 1)
    assert sizes["list"] > 5
    assert sizes["text"] > 100
    assert second.hits == 1


def test_a_rule_table_on_the_list():
    x, values = data()
    rules = PatternMatcher([
        (UPat(Ops.CONST, dtypes.float, arg=5.0, name="c"), lambda c: UOp.const(7.0, dtypes.float)),
    ])
    with insert("linear", rules) as mine:
        np.testing.assert_array_equal((x + 5.0).numpy(), values + 7)
    assert mine.hits >= 1


def test_replace_runs_instead_of_the_passes():
    graph = UOp.sink(UOp.const(1.0))
    ran = []
    with insert("lower", lambda g: g, name="nothing", when="replace"):
        assert run_stage("lower", graph, passes=lambda g: ran.append(g)) is graph
    assert ran == []


def test_order_of_several():
    order = []

    def note(name):
        def run(graph):
            order.append(name)
            return graph

        return run

    def passes(graph):
        order.append("passes")
        return graph

    graph = UOp.sink(UOp.const(1.0))
    with insert("lower", note("after"), when="after"), insert("lower", note("first")), insert("lower", note("second")):
        run_stage("lower", graph, passes=passes)
    assert order == ["first", "second", "passes", "after"]


def test_install_and_remove():
    x, values = data()
    mine = insert("schedule", triple_to_double, name="permanent").install()
    try:
        found = []
        thread = threading.Thread(target=lambda: found.append((x * 3.0).numpy()))
        thread.start()
        thread.join()
        np.testing.assert_array_equal(found[0], values * 2)
    finally:
        mine.remove()
    np.testing.assert_array_equal((x * 3.0).numpy(), values * 3)
    mine.remove()


def test_a_with_block_belongs_to_its_thread():
    tokens = []
    with insert("schedule", triple_to_double):
        thread = threading.Thread(target=lambda: tokens.append(middleware.cache_token()))
        thread.start()
        thread.join()
        assert middleware.cache_token() != ()
    assert tokens == [()]


def test_blocks_may_end_in_any_order():
    a, b = insert("lower", lambda g: g, name="a"), insert("lower", lambda g: g, name="b")
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    assert middleware.active() == (b,)
    b.__exit__(None, None, None)
    assert middleware.active() == ()


def test_captured_functions_contain_the_middleware():
    x, values = data()
    f = TinyJit(lambda x: x * 3.0)
    with insert("schedule", triple_to_double):
        for _ in range(3):
            np.testing.assert_array_equal(f(x).numpy(), values * 2)


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "function", "fault"),
    [
        ("schedule", lambda g: None, "expected a UOp, got NoneType"),
        ("schedule", lambda g: g.src[0], "the root must stay SINK"),
        ("schedule", lambda g: g.replace(src=()), "must keep its 1 sources"),
        ("schedule", lambda g: g.replace(src=(g.src[0].cast(dtypes.half),)), "rules must keep dtype and shape"),
        ("kernel", lambda g: g.replace(arg=None), "must keep its KernelInfo"),
        ("linear", lambda uops: [], "expected a list of UOps"),
        ("render", lambda text: 3, "expected text, got int"),
    ],
)
def test_wrong_results_name_the_middleware(stage, function, fault):
    x, values = data()
    with insert(stage, function, name="culprit"), pytest.raises(MiddlewareError, match="culprit") as caught:
        (x + 1).realize()
    assert fault in str(caught.value)
    np.testing.assert_array_equal((x + 2).numpy(), values + 2)


def test_illegal_nodes_are_caught_at_the_boundary():
    # A movement node inside of a kernel.
    bad = PatternMatcher([
        (UPat.var("a") + 9.0, lambda a: UOp(Ops.RESHAPE, dtypes.float, (a + a,), ())),
    ])
    x, _ = data()
    with insert("kernel", bad, name="culprit"), pytest.raises(MiddlewareError, match=r"(?s)'culprit'.*RESHAPE"):
        (x + 9.0).realize()


def test_exceptions_carry_the_name():
    def fails(graph):
        raise ZeroDivisionError("mine")

    x, values = data()
    with insert("schedule", fails), pytest.raises(ZeroDivisionError) as caught:
        (x + 1).realize()
    assert any("fails" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal((x + 1).numpy(), values + 1)


def test_arguments_of_insert():
    with pytest.raises(KeyError, match="did you mean 'schedule'"):
        insert("shedule", triple_to_double)
    with pytest.raises(ValueError, match="when must be"):
        insert("schedule", triple_to_double, when="during")
    with pytest.raises(TypeError, match="expected a PatternMatcher or a function"):
        insert("schedule", 3)


def test_a_table_cannot_rewrite_text():
    x, _ = data()
    with insert("render", triple_to_double, name="culprit"), pytest.raises(TypeError, match="holds text"):
        (x + 1).realize()


def test_rules_stay_usable_alone():
    graph = UOp.sink(UOp.new_buffer("CPU", 4, dtypes.float) * UOp.const(3.0, dtypes.float))
    assert graph_rewrite(graph, triple_to_double, name="my_middleware").src[0].op is Ops.ADD
