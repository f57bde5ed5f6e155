"""A seeded program draws the same numbers with and without TinyJit, whatever is captured, replayed or drawn."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator

import pytest

from tinygrad import Context, Tensor, TinyJit, function, nn


def draw(x: Tensor) -> Tensor:
    return (x + Tensor.rand(2)).realize()


def draw_twice(x: Tensor) -> Tensor:
    return (x + Tensor.rand(2) + 10 * Tensor.randn(2)).realize()


def drop(x: Tensor) -> Tensor:
    with Context(TRAINING=1):
        return (x + 1).dropout(0.5).realize()


def draw_unused(x: Tensor) -> Tensor:
    Tensor.rand(3)
    return (x + Tensor.rand(2)).realize()


def seed_inside(x: Tensor) -> Tensor:
    Tensor.manual_seed(3)
    return (x + Tensor.rand(2)).realize()


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [draw, draw_twice, drop, draw_unused]


def shift() -> Tensor:
    return Tensor([0.0, 0.0]).clone().realize()


def seeded(program: Callable[[], Iterator[list[float]]], seed: int = 0) -> list[list[float]]:
    Tensor.manual_seed(seed)
    return list(program())


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_seed_starts_the_sequence_of_a_capture_anew(function: Callable[[Tensor], Tensor]) -> None:
    jitted, x = TinyJit(function), shift()
    expected = seeded(lambda: (function(x).tolist() for _ in range(4)))
    for _ in range(3):
        assert seeded(lambda: (jitted(x).tolist() for _ in range(4))) == expected
    assert seeded(lambda: (jitted(x).tolist() for _ in range(4)), seed=1) != expected
    assert seeded(lambda: (jitted(x).tolist() for _ in range(4)), seed=0) == expected


@pytest.mark.parametrize("warm", range(4))
@pytest.mark.parametrize("first", [("CPU",), ("CPU:1", "CPU"), ("PYTHON", "CPU:1", "CPU"), ("CPU", "CPU:1")])
@pytest.mark.parametrize("order", [("CPU", "CPU:1"), ("CPU:1", "CPU"), ("CPU",), ("CPU:1",)])
def test_devices_drawn_from_before_change_nothing(order: tuple[str, ...], first: tuple[str, ...], warm: int) -> None:
    def on_devices(x: Tensor) -> list[Tensor]:
        return [(x.to(device) + Tensor.rand(2, device=device)).realize() for device in order]

    Tensor.manual_seed(1)
    for device in first:
        Tensor.rand(2, device=device).realize()
    jitted, x = TinyJit(on_devices), shift()
    for _ in range(warm):
        jitted(x)
    for seed in (0, 3):
        expected = seeded(lambda: ([t.tolist() for t in on_devices(x)] for _ in range(4)), seed)
        assert seeded(lambda: ([t.tolist() for t in jitted(x)] for _ in range(4)), seed) == expected


@pytest.mark.parametrize("warm", range(3))
@pytest.mark.parametrize("order", [("CPU", "CPU:1"), ("CPU:1", "CPU")])
@pytest.mark.parametrize("earlier", [("CPU",), ("CPU:1",), ("CPU", "CPU:1"), ("CPU:1", "CPU")])
def test_what_earlier_captures_draw_from_is_numbered_anew(
    earlier: tuple[str, ...], order: tuple[str, ...], warm: int
) -> None:
    def on(devices: tuple[str, ...], x: Tensor) -> list[Tensor]:
        return [(x.to(device) + Tensor.rand(2, device=device)).realize() for device in devices]

    kept, jitted, x = TinyJit(lambda x: on(earlier, x)), TinyJit(lambda x: on(order, x)), shift()
    for _ in range(3):
        kept(x)
    for _ in range(warm):
        jitted(x)
    for seed in (0, 3):
        expected = seeded(lambda: ([t.tolist() for t in on(order, x)] for _ in range(4)), seed)
        assert seeded(lambda: ([t.tolist() for t in jitted(x)] for _ in range(4)), seed) == expected


def test_a_traced_function_in_a_capture_draws_from_the_sequence() -> None:
    @function
    def traced(x: Tensor) -> Tensor:
        return x + Tensor.rand(2)

    def outer(x: Tensor) -> Tensor:
        return (traced(x) * 2).realize()

    jitted, x = TinyJit(outer), shift()
    jitted(x)
    expected = seeded(lambda: (outer(x).tolist() for _ in range(4)))
    assert seeded(lambda: (jitted(x).tolist() for _ in range(4))) == expected


@pytest.mark.parametrize("warm", range(4))
@pytest.mark.parametrize("function", [draw, drop], ids=lambda f: f.__name__)
def test_a_seed_between_any_two_calls(function: Callable[[Tensor], Tensor], warm: int) -> None:
    jitted, x = TinyJit(function), shift()
    for _ in range(warm):
        jitted(x)
    expected = seeded(lambda: (function(x).tolist() for _ in range(5)))
    assert seeded(lambda: (jitted(x).tolist() for _ in range(5))) == expected


def mixed(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor], x: Tensor) -> list[list[float]]:
    """Draw in two functions and between; some draws are read only at the end, and one never."""
    results, late = [], []
    for i in range(5):
        results.append(first(x))
        late.append(Tensor.rand(2))
        results.append(second(x))
        if i % 2:
            Tensor.rand(3)
            results.append(Tensor.randn(2))
    return [t.tolist() for t in (*results, *late)]


def test_functions_and_draws_between_share_one_sequence() -> None:
    x = shift()
    one, two = TinyJit(draw), TinyJit(draw_twice)
    for seed in (0, 7, 0):
        Tensor.manual_seed(seed)
        expected = mixed(draw, draw_twice, x)
        Tensor.manual_seed(seed)
        found = mixed(one, two, x)
        assert found == expected
        assert len({tuple(numbers) for numbers in found}) == len(found)


def test_draws_made_before_a_seed_keep_their_numbers() -> None:
    jitted, x = TinyJit(draw), shift()
    for _ in range(3):
        jitted(x)
    Tensor.manual_seed(5)
    before = Tensor.rand(2)
    Tensor.manual_seed(6)
    jitted(x)
    Tensor.manual_seed(5)
    assert before.tolist() == Tensor.rand(2).tolist()


def test_a_seed_inside_of_the_function_counts_in_every_call() -> None:
    jitted, x = TinyJit(seed_inside), shift()
    expected = seed_inside(x).tolist()
    assert [jitted(x).tolist() for _ in range(4)] == [expected] * 4


def test_devices_have_sequences_of_their_own() -> None:
    def on_two(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x + Tensor.rand(2, device="CPU")).realize(), Tensor.rand(2, device="CPU:1").realize()

    jitted, x = TinyJit(on_two), shift()
    Tensor.manual_seed(2)
    expected = [[t.tolist() for t in on_two(x)] for _ in range(4)]
    for _ in range(2):
        Tensor.manual_seed(2)
        assert [[t.tolist() for t in jitted(x)] for _ in range(4)] == expected


def test_a_capture_in_another_thread_draws_new_numbers_in_each_call() -> None:
    jitted, x = TinyJit(draw), shift()
    results = [jitted(x).tolist()]

    def replay() -> None:
        results.extend(jitted(x).tolist() for _ in range(4))

    thread = threading.Thread(target=replay)
    thread.start()
    thread.join()
    assert len({tuple(numbers) for numbers in results}) == 5


def test_training_with_dropout_repeats_under_a_seed() -> None:
    x = Tensor.ones(4, 8).contiguous().realize()

    def losses(is_jitted: bool) -> list[float]:
        Tensor.manual_seed(4)
        layer = nn.Linear(8, 8)
        optimizer = nn.optim.SGD([layer.weight, layer.bias], lr=0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = layer(x).dropout(0.5).square().mean()
            loss.backward()
            optimizer.step()
            return loss.realize()

        run = TinyJit(step) if is_jitted else step
        with Context(TRAINING=1):
            return [run(x).item() for _ in range(5)]

    assert losses(is_jitted=True) == pytest.approx(losses(is_jitted=False), rel=1e-5)


def test_an_unpickled_capture_draws_new_numbers() -> None:
    jitted, x = TinyJit(draw), shift()
    for _ in range(2):
        jitted(x)
    loaded = pickle.loads(pickle.dumps(jitted))
    results = [loaded(x).tolist() for _ in range(3)]
    assert len({tuple(numbers) for numbers in results}) == 3
