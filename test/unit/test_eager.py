"""Graphs that were computed before are computed by the same kernels, on the right buffers: engine/eager.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, Variable, dtypes, middleware
from tinygrad.engine import eager
from tinygrad.recent import Recent
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat

Function = Callable[..., Any]


class _Hits:
    """Counts the graphs that were known."""

    def __init__(self) -> None:
        self.count = 0
        self.run = eager.run_known

    def __call__(self, form: eager.Form, update_stats: bool) -> Any:
        shown = self.run(form, update_stats)
        self.count += shown is not None
        return shown


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Hits]:
    """Count hits, of a table that is empty at first."""
    counted = _Hits()
    monkeypatch.setattr(eager, "run_known", counted)
    monkeypatch.setattr(eager, "_known", Recent(1024))
    return counted


def arrays(*shapes: tuple[int, ...], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-2, 2, shape).astype(np.float32) for shape in shapes]


PROGRAMS: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "one kernel": (lambda a, b: a + b, [(4,), (4,)]),
    "broadcast": (lambda a, b: a * b, [(3, 4), (4,)]),
    "same input twice": (lambda a, b: a * a + b * a, [(5,), (5,)]),
    "scalar result": (lambda a, b: (a - b).sum(), [(6, 7), (6, 7)]),
    "views of inputs": (lambda a, b: a.T + b[1:4], [(5, 3), (6, 5)]),
    "view of the result": (lambda a, b: (a + b).T.reshape(12), [(3, 4), (3, 4)]),
    "two kernels": (lambda a, b: (a @ b).sum(0), [(8, 9), (9, 10)]),
    "intermediates that share memory": (lambda a, b: ((a @ b) @ b) @ b, [(33, 40), (40, 40)]),
    "constants": (lambda a, b: (a * 2 + 1) / (b * b + 3), [(4,), (4,)]),
    "empty": (lambda a, b: a + b, [(0, 3), (0, 3)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_buffers(name: str, hits: _Hits) -> None:
    function, shapes = PROGRAMS[name]
    results, expected = [], []
    for seed in range(4):
        inputs = arrays(*shapes, seed=seed)
        tensors = [Tensor(x).realize() for x in inputs]
        results.append(function(*tensors).realize())
        expected.append(function(*inputs))
    assert hits.count >= 3 or name == "empty"
    for result, right in zip(results, expected, strict=True):  # read at the end: results do not share memory
        np.testing.assert_allclose(result.numpy(), right, rtol=1e-3, atol=1e-3)


def test_the_same_inputs_in_another_order(hits: _Hits) -> None:
    x, y = (Tensor(v).realize() for v in arrays((4,), (4,), seed=0))
    for a, b in ((x, y), (y, x), (x, x), (y, y), (x, y)):
        np.testing.assert_array_equal((a - b).numpy(), a.numpy() - b.numpy())
    assert hits.count == 3  # x - x is another graph


@pytest.mark.parametrize("constants", [(0.0, -0.0), (1, 1.0), (True, 1), (2.0, 3.0), (float("nan"), 1.0)], ids=str)
def test_constants_are_told_apart(constants: tuple[Any, Any], hits: _Hits) -> None:
    x = Tensor([0.0, -0.0, 1.0, 4.0]).realize()
    for c in (*constants, *constants):
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal((1 / (x * c)).numpy(), 1 / (x.numpy() * np.float32(c)))


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.float16, dtypes.float64], ids=str)
def test_dtypes_are_told_apart(dtype: Any, hits: _Hits) -> None:
    x = Tensor([100, 120, 3]).cast(dtype).realize()
    y = Tensor([100.0, 120.0, 3.0]).realize()
    for _ in range(2):
        for t in (x, y):
            np.testing.assert_array_equal((t + t).numpy(), t.numpy() + t.numpy())
    assert hits.count == 2


def test_shapes_and_sizes_are_told_apart(hits: _Hits) -> None:
    for _ in range(2):
        for shape in ((6,), (2, 3), (3, 2), (12,)):
            x = Tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)).realize()
            np.testing.assert_array_equal((x + 1).sum(0).numpy(), (x.numpy() + 1).sum(0))
    assert hits.count >= 4


def test_slices_of_storage_are_read_where_they_are(hits: _Hits) -> None:
    x = Tensor(np.arange(20, dtype=np.float32)).realize()
    for start in (0, 3, 3, 7, 0):
        np.testing.assert_array_equal((x[start : start + 5] * 2).numpy(), np.arange(start, start + 5) * 2.0)


def test_two_nodes_of_one_storage_are_two_inputs(hits: _Hits) -> None:
    storage = Tensor([1.0, 2.0]).realize().uop.base.buffer
    same = [Tensor(UOp.from_buffer(storage)) for _ in range(2)]
    others = [Tensor([5.0, 6.0]).realize(), Tensor([7.0, 9.0]).realize()]
    for a, b in (same, others, same):
        np.testing.assert_array_equal((a - b * 2).numpy(), a.numpy() - b.numpy() * 2)


def test_devices_are_told_apart(hits: _Hits) -> None:
    for device in ("CPU", "PYTHON", "CPU", "PYTHON"):
        x = Tensor([1.0, 2.0], device=device).realize()
        y = (x + x).realize()
        assert y.device == device
        assert y.tolist() == [2.0, 4.0]
    assert hits.count == 2


def test_writes_before_and_after(hits: _Hits) -> None:
    x, value = Tensor([1.0, 2.0, 3.0]).realize(), np.array([1.0, 2.0, 3.0])
    for _ in range(4):
        before = x + 1
        x.assign(x * 2)
        after = (x + 1).realize()
        np.testing.assert_array_equal(before.numpy(), value + 1)
        value = value * 2
        np.testing.assert_array_equal(after.numpy(), value + 1)


def test_a_write_to_a_result_changes_nothing_else(hits: _Hits) -> None:
    x = Tensor([1.0, 2.0]).realize()
    kept = []
    for step in range(3):
        y = (x * 3).realize()
        y += step
        kept.append(y.realize())
    assert [y.tolist() for y in kept] == [[3.0, 6.0], [4.0, 7.0], [5.0, 8.0]]
    assert x.tolist() == [1.0, 2.0]


def test_who_shows_the_value_shows_the_storage(hits: _Hits) -> None:
    for _ in range(3):
        x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
        y = x * 5
        view, further = y[0], y + 1
        y.realize()
        assert y.uop.is_realized
        assert view.uop.base is y.uop.base
        assert y.uop.base in further.uop.toposort()
        view.assign(view * 0).realize()
        assert y.tolist() == [[0.0, 0.0], [15.0, 20.0]]
    assert hits.count >= 2


def test_equal_expressions_are_values_of_their_own(hits: _Hits) -> None:
    for _ in range(3):
        x = Tensor([1.0, 2.0]).realize()
        a, b = x + 1, x + 1
        a.realize()
        a += 1
        assert (a.tolist(), b.tolist()) == ([3.0, 4.0], [2.0, 3.0])


def test_variables_keep_their_values(hits: _Hits) -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    n = Variable("n", 1, 4)
    assert [(x[: n.bind(k)] * 2).sum().item() for k in (1, 2, 4, 2)] == [2.0, 6.0, 20.0, 6.0]
    assert hits.count == 0


def test_random_numbers_are_new_each_time(hits: _Hits) -> None:
    assert len({tuple(Tensor.rand(3).tolist()) for _ in range(5)}) == 5


def test_a_capture_sees_graphs_that_are_known(hits: _Hits) -> None:
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(2):
        (x + 1).realize()
    add = TinyJit(lambda t: (t + 1).realize())
    for value in (1.0, 5.0, 7.0, 9.0):
        assert add(Tensor([value, 0.0]).realize()).tolist() == [value + 1, 1.0]
    assert add.captured is not None


def test_switches_that_change_code_are_told_apart(hits: _Hits) -> None:
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(2):
        (x * 7).realize()
    assert hits.count == 1
    with Context(NOOPT=1):
        assert (x * 7).realize().tolist() == [7.0, 14.0]
        assert hits.count == 1
        (x * 7).realize()
    assert hits.count == 2


def test_middleware_sees_graphs_that_are_known(hits: _Hits) -> None:
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(2):
        assert (x * 7).tolist() == [7.0, 14.0]
    rules = PatternMatcher([(UPat(Ops.MUL, name="m"), lambda m: m.src[0] + m.src[1])])
    with middleware.insert("schedule", rules, name="add"):
        assert (x * 7).tolist() == [8.0, 9.0]
    assert (x * 7).tolist() == [7.0, 14.0]


def test_reports_show_every_launch(hits: _Hits, capfd: pytest.CaptureFixture[str]) -> None:
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(2):
        (x * 7).realize()
    with Context(DEBUG=2):
        (x * 7).realize()
    assert "E_" in capfd.readouterr().out


def test_counters_are_those_of_a_first_run(hits: _Hits) -> None:
    counts = []
    for seed in range(3):
        a, b = (Tensor(v).realize() for v in arrays((16, 16), (16, 16), seed=seed))
        GlobalCounters.reset()
        (a @ b).sum(1).realize()
        counts.append((GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.global_mem))
        before = GlobalCounters.kernel_count
        (a + b).realize(do_update_stats=False)
        assert GlobalCounters.kernel_count == before
    assert len(set(counts)) == 1
    assert hits.count == 4


def test_many_graphs_are_forgotten(hits: _Hits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "_known", Recent(3))
    x = Tensor([1.0, 2.0]).realize()
    for n in range(8):
        assert (x.reshape(2, *[1] * n) + 1).flatten().tolist() == [2.0, 3.0]
        assert len(eager._known) <= 3


def test_a_large_graph_is_left_to_the_scheduler(hits: _Hits) -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = x
    for _ in range(eager._MOST_NODES):
        y = y + x
    assert eager.form_of(y.uop) is None
