"""Replays and random numbers that users tripped over, each with others of its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, Variable, dtypes, nn

RNG = np.random.default_rng(0)


def real(values: Any, dtype: Any = None) -> Tensor:
    return Tensor(values, dtype=dtype).clone().realize()


# ---- results -------------------------------------------------------------------------------------------------------

RESULTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "elementwise": (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    "two kernels": (lambda x: (x @ x).softmax(1).sum(0), None),  # compared with the plain call
    "view of a result": (lambda x: (x + 1)[1:, ::-1], lambda x: (x + 1)[1:, ::-1]),
    "cast": (lambda x: x.cast(dtypes.int32), lambda x: x.astype(np.int32)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_read_after_all_calls_keep_their_values(name: str) -> None:
    function, expected = RESULTS[name]
    jitted = TinyJit(lambda x: function(x).realize())
    inputs = [RNG.normal(size=(4, 4)).astype(np.float32) * 5 for _ in range(6)]
    results = [jitted(real(x)) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        wanted = expected(x) if expected is not None else function(Tensor(x)).numpy()
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_sums_of_three_inputs() -> None:
    f = TinyJit(lambda x: x.sum().realize())
    results = [f(real([value, value])) for value in (1.0, 2.0, 3.0)]
    assert [r.item() for r in results] == [2, 4, 6]
    assert not (f(real([1.0, 5.0])) == f(real([2.0, 2.0]))).item()


# ---- arguments -----------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    left: Tensor
    right: Tensor


CONTAINERS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Tensor]]] = {
    "list": (lambda a, b: [a, b], lambda c: c[0] - c[1]),
    "tuple in a list": (lambda a, b: [(a, b)], lambda c: c[0][0] - c[0][1]),
    "dict": (lambda a, b: {"a": a, "b": b}, lambda c: c["a"] - c["b"]),
    "dict of lists": (lambda a, b: {"x": [a, b]}, lambda c: c["x"][0] - c["x"][1]),
    "dataclass": (Pair, lambda c: c.left - c.right),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_tensors_in_containers_are_inputs(name: str) -> None:
    make, function = CONTAINERS[name]
    f = TinyJit(lambda c: function(c).realize())
    for k in range(5):
        assert f(make(real([5.0 * k]), real([k * 1.0]))).tolist() == [4.0 * k]


SCALARS = [(1, 2, 3, 4), (1.5, 2.5, -1.5), (True, False, True), ("sum", "max"), (None, 3), (2, 2.0, True)]


@pytest.mark.parametrize("values", SCALARS, ids=str)
@pytest.mark.parametrize("by_name", [False, True], ids=["positional", "keyword"])
def test_python_arguments_are_not_frozen(values: tuple[Any, ...], by_name: bool) -> None:
    @TinyJit
    def f(x: Tensor, y: Any) -> Tensor:
        if isinstance(y, str):
            return getattr(x, y)().realize()
        return (x if y is None else x * y).clone().realize()

    x = np.array([10.0, 30.0], np.float32)
    for _ in range(3):
        for y in values:
            expected = getattr(x, y)() if isinstance(y, str) else x if y is None else x * y
            got = f(real(x), y=y) if by_name else f(real(x), y)
            np.testing.assert_array_equal(got.numpy(), expected)


def test_methods_of_two_objects() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @TinyJit
        def __call__(self, x: Tensor) -> Tensor:
            return (x * self.by).realize()

        @TinyJit
        def plus(self, x: Tensor) -> Tensor:
            return (x + self.by).realize()

    two, three = Scale(2.0), Scale(3.0)
    for _ in range(4):
        assert [two(real([5.0])).item(), three(real([5.0])).item()] == [10, 15]
        assert [two.plus(real([5.0])).item(), three.plus(real([5.0])).item()] == [7, 8]


@pytest.mark.parametrize("which", ["slice", "sum", "pad", "row"])
def test_results_follow_the_variable_of_the_call(which: str) -> None:
    i = Variable("i", 1, 9)
    bodies: dict[str, Callable[[Tensor], Tensor]] = {
        "slice": lambda x: x * 2,
        "sum": lambda x: x.sum(),
        "pad": lambda x: (x * 2).pad_to(10),
        "row": lambda x: (x * 2).reshape(1, x.shape[0]),
    }
    f = TinyJit(lambda x: bodies[which](x).realize())
    whole = real(np.arange(1, 11, dtype=np.float32))
    for k in (1, 2, 3, 4, 9, 1, 5):
        bound = i.bind(k)
        result = f(whole[:bound])
        if which == "slice":
            assert [s if isinstance(s, int) else s.bound_value() for s in result.shape] == [k]
            assert result.pad_to(10).numpy()[:k].tolist() == [2.0 * (j + 1) for j in range(k)]
        elif which == "sum":
            assert result.item() == k * (k + 1) / 2
        elif which == "pad":
            assert result.tolist() == [2.0 * (j + 1) if j < k else 0.0 for j in range(10)]
        else:
            assert [s if isinstance(s, int) else s.bound_value() for s in result.shape] == [1, k]


# ---- state ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("n", [1 << 8, 1 << 18])
def test_rolling_buffer(threads: int, n: int) -> None:
    @TinyJit
    def roll(buffer: Tensor, new: Tensor) -> Tensor:
        return buffer[n // 2 :].cat(new).realize()

    with Context(NUM_CPU_THREADS=threads):
        ours, expected = real(np.zeros(n, np.float32)), np.zeros(n, np.float32)
        for k in range(12):
            new = np.full(n // 2, k + 1, np.float32) + np.arange(n // 2, dtype=np.float32)
            ours, expected = roll(ours, real(new)), np.concatenate([expected[n // 2 :], new])
            np.testing.assert_array_equal(ours.numpy(), expected)


def two_batches(jitted: bool) -> list[list[float]]:
    weight = real([1.0, 2.0])
    optimizer = nn.optim.SGD([weight], lr=0.125)

    def train(first: Tensor, second: Tensor) -> Tensor:
        optimizer.zero_grad()
        (weight * first).sum().backward()
        (weight * weight * second).sum().backward()
        assert weight.grad is not None
        gradient = weight.grad.clone()
        optimizer.step()
        return gradient.realize()

    run = TinyJit(train) if jitted else train
    seen = []
    with Context(TRAINING=1):
        for k in range(6):
            seen += [run(real([1.0 + k, 2.0]), real([3.0, k * 1.0])).tolist(), weight.tolist()]
    return seen


def test_two_micro_batches_add_up_in_a_step() -> None:
    weight, expected = np.array([1.0, 2.0]), []
    for k in range(6):
        gradient = np.array([1.0 + k, 2.0]) + 2 * weight * np.array([3.0, k])
        weight = weight - 0.125 * gradient
        expected += [gradient, weight]
    for jitted in (False, True):
        np.testing.assert_allclose(two_batches(jitted), expected, rtol=1e-4)


# ---- random numbers ------------------------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: Tensor.rand(100),
    "randn": lambda: Tensor.randn(100),
    "randint": lambda: Tensor.randint(100, high=1 << 30).cast(dtypes.float32),
    "uniform half": lambda: Tensor.uniform(100, dtype=dtypes.half).cast(dtypes.float32),
    "dropout": lambda: Tensor.ones(100).contiguous().dropout(0.5),
    "randperm": lambda: Tensor.randperm(100).cast(dtypes.float32),
}


@pytest.mark.parametrize("name", DRAWS)
def test_replays_draw_new_numbers_the_same_as_plain_calls(name: str) -> None:
    draw = DRAWS[name]

    def run(jitted: bool) -> list[tuple[float, ...]]:
        Tensor.manual_seed(7)

        def f(x: Tensor) -> Tensor:
            return (x + draw()).realize()

        call = TinyJit(f) if jitted else f
        with Context(TRAINING=1):
            return [tuple(call(real(np.zeros(100, np.float32))).tolist()) for _ in range(8)]

    replayed = run(jitted=True)
    assert len(set(replayed)) == 8
    assert replayed == run(jitted=False)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_numbers_do_not_depend_on_the_order_of_reading(name: str, order: tuple[int, ...]) -> None:
    draws = []
    with Context(TRAINING=1):
        for reading in ((0, 1, 2), order):
            Tensor.manual_seed(3)
            made = [DRAWS[name]() for _ in range(3)]
            read = {i: made[i].tolist() for i in reading}
            draws.append([read[i] for i in range(3)])
    assert draws[0] == draws[1]
    assert len({tuple(d) for d in draws[0]}) == 3


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16, dtypes.float32, dtypes.float64])
def test_uniform_numbers_are_below_one_and_normal_ones_finite(dtype: Any) -> None:
    uniform = Tensor.rand(200_000, dtype=dtype).cast(dtypes.float64).numpy()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert np.isfinite(Tensor.randn(200_000, dtype=dtype).cast(dtypes.float64).numpy()).all()


@pytest.mark.parametrize("weights", [[1.0] * 4, [0.0, 1.0, 3.0, 0.0], [1e-3, 1.0, 1e3, 1.0], [2.0, 2.0]])
def test_multinomial_with_replacement_follows_the_weights(weights: list[float]) -> None:
    Tensor.manual_seed(0)
    drawn = Tensor(weights).multinomial(4000, replacement=True).numpy()
    expected = 4000 * np.array(weights) / np.sum(weights)
    counts = np.bincount(drawn, minlength=len(weights))
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()
    assert not counts[np.array(weights) == 0].any()


@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_multinomial_without_replacement_is_a_permutation(n: int) -> None:
    assert sorted(Tensor.ones(n).multinomial(n).tolist()) == list(range(n))
