"""``copy.copy`` and ``copy.deepcopy`` of tensors and of what holds them: models, optimizers, jitted functions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, Variable, dtypes, nn


def stored() -> Tensor:
    return Tensor([1.0, 2.0, 3.0]).clone().realize()


def written() -> Tensor:
    x = Tensor([1.0, 5.0, 3.0]).clone().realize()
    x[1] = 2.0
    return x


def view() -> Tensor:
    return Tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]).clone().realize()[:, 0]


STATES: dict[str, Callable[[], Tensor]] = {
    "list": lambda: Tensor([1.0, 2.0, 3.0]).realize(),
    "array": lambda: Tensor(np.array([1.0, 2.0, 3.0], np.float32)),
    "stored": stored,
    "not yet stored": lambda: Tensor([1.0, 2.0, 3.0]).clone(),
    "written": written,
    "expression": lambda: Tensor([0.0, 1.0, 2.0]) + 1,
    "constant": lambda: Tensor.ones(3).cumsum(),
    "view": view,
    "view of an expression": lambda: (Tensor([[3.0, 2.0, 1.0]]) * 1).flip(1)[0],
    "on several devices": lambda: Tensor([1.0, 2.0, 3.0]).shard(("CPU", "CPU:1")).realize(),
    "split over devices": lambda: Tensor([1.0, 2.0, 3.0]).shard(("CPU", "CPU:1", "CPU:2"), 0).realize(),
}
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "+=": lambda t: t.__iadd__(1),
    "assign": lambda t: t.assign(t * 0),
    "setitem": lambda t: t.__setitem__(0, 9.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
@pytest.mark.parametrize("is_copy_written", [False, True])
def test_a_deep_copy_is_a_value_of_its_own(
    make: Callable[[], Tensor], write: Callable[[Tensor], Any], is_copy_written: bool
) -> None:
    original = make()
    made = copy.deepcopy(original)
    target, other = (made, original) if is_copy_written else (original, made)
    write(target)
    target.realize()
    assert other.tolist() == [1.0, 2.0, 3.0]
    assert target.tolist() != [1.0, 2.0, 3.0]
    assert (made.shape, made.dtype, made.device) == (original.shape, original.dtype, original.device)


@pytest.mark.parametrize("make", [s for n, s in STATES.items() if n != "constant"], ids=lambda f: f.__name__)
def test_gradients_of_a_copy_are_not_those_of_the_original(make: Callable[[], Tensor]) -> None:
    original = make()
    made = copy.deepcopy(original)
    (made * made).sum().backward()
    assert original.grad is None
    assert made.grad is not None
    assert made.grad.tolist() == [2.0, 4.0, 6.0]
    (original * 3).sum().backward()
    assert made.grad.tolist() == [2.0, 4.0, 6.0]


def test_grad_flags_and_attributes_are_copied() -> None:
    x = stored().is_param_(False)
    x.note = {"weights": x}  # type: ignore[attr-defined]
    (x * x).sum().backward()
    made = copy.deepcopy(x)
    assert made.is_param is False
    assert made.note["weights"] is made  # type: ignore[attr-defined]
    assert made.grad is not None
    assert x.grad is not None
    x.grad += 1
    assert made.grad.tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("make", [stored, lambda: stored() * 1], ids=["stored", "expression"])
def test_views_copied_together_stay_views_of_one_value(make: Callable[[], Tensor]) -> None:
    x = make()
    part = x[1:]
    made = copy.deepcopy({"x": x, "part": part, "tied": x})
    assert made["tied"] is made["x"]
    made["part"][0] = 7.0
    assert (made["x"].tolist(), made["part"].tolist()) == ([1.0, 7.0, 3.0], [7.0, 3.0])
    assert (x.tolist(), part.tolist()) == ([1.0, 2.0, 3.0], [2.0, 3.0])


def test_equal_expressions_are_copied_apart() -> None:
    x = stored()
    a, b = copy.deepcopy((x + 1, x + 1))
    a += 1
    assert (a.tolist(), b.tolist()) == ([3.0, 4.0, 5.0], [2.0, 3.0, 4.0])


def test_a_copy_of_random_numbers_has_the_same_numbers() -> None:
    x = Tensor.rand(5)
    made = copy.deepcopy(x)
    assert made.tolist() == x.tolist()


def test_a_copy_of_a_file_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    x = Tensor(path).bitcast(dtypes.float32)[1:]
    made = copy.deepcopy(x)
    made += 1
    assert made.tolist() == [2.0, 3.0, 4.0]
    assert np.frombuffer(path.read_bytes(), np.float32).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_empty_tensors_weak_constants_and_symbolic_sizes() -> None:
    assert copy.deepcopy(Tensor.zeros(0, 3).clone().realize()).shape == (0, 3)
    assert copy.deepcopy(Tensor(2)).item() == 2
    size = Variable("n", 1, 3).bind(2)
    made = copy.deepcopy(stored()[:size])
    assert made.sum().item() == 3.0


def test_a_shallow_copy_shows_the_same_elements() -> None:
    for x in (stored(), stored() * 1, Tensor([1.0, 2.0, 3.0])):
        x.is_param_(False)
        other = copy.copy(x)
        assert other is not x
        assert other.is_param is False
        x += 1
        assert other.tolist() == [2.0, 3.0, 4.0]


# ---- what holds tensors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("realized", [False, True])
def test_the_copy_of_a_model_keeps_its_values_in_a_step(realized: bool) -> None:
    model = nn.Linear(2, 1, bias=False)
    if realized:
        model.weight.realize()
    average = copy.deepcopy(model)
    best = copy.deepcopy(nn.state.get_state_dict(model))
    with Context(TRAINING=1):
        optimizer = nn.optim.SGD([model.weight], lr=1.0)
        model(Tensor([[1.0, 1.0]])).sum().backward()
        assert average.weight.grad is None
        optimizer.step()
    assert average.weight.tolist() == best["weight"].tolist()
    np.testing.assert_allclose(model.weight.numpy(), average.weight.numpy() - 1, rtol=1e-6)


def test_tied_weights_stay_tied_and_an_optimizer_copied_along_steps_the_copy() -> None:
    class Tied:
        def __init__(self) -> None:
            self.embed, self.out = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
            self.out.weight = self.embed.weight

    model = Tied()
    optimizer = nn.optim.Adam([model.out.weight], lr=0.1)
    before = model.out.weight.tolist()
    other, its_optimizer = copy.deepcopy((model, optimizer))
    assert other.out.weight is other.embed.weight is its_optimizer.params[0]
    with Context(TRAINING=1):
        (other.out.weight * 2).sum().backward()
        its_optimizer.step()
    assert model.out.weight.tolist() == before
    assert np.all(other.out.weight.numpy() < np.array(before))
    assert optimizer.m[0].tolist() == np.zeros((4, 3)).tolist()


def test_a_snapshot_is_not_overwritten_by_replays() -> None:
    w, x = stored(), Tensor.ones(3).contiguous().realize()
    step = TinyJit(lambda x: w.assign(w + x).realize())
    for _ in range(3):
        step(x)
    snapshot = copy.deepcopy(w)
    step(x)
    assert (snapshot.tolist(), w.tolist()) == ([4.0, 5.0, 6.0], [5.0, 6.0, 7.0])


def test_a_copy_inside_of_a_jit_is_replayed() -> None:
    @TinyJit
    def snapshot(x: Tensor) -> Tensor:
        return copy.deepcopy(x)

    for i in range(4):
        assert snapshot(Tensor([float(i)]).realize()).tolist() == [i]


class Counter:
    """A model with a jitted method, and with a jitted bound method as an attribute."""

    def __init__(self) -> None:
        self.total = Tensor([0.0]).clone().realize()
        self.jitted = TinyJit(self.add)

    def add(self, x: Tensor) -> Tensor:
        return self.total.assign(self.total + x).realize()

    @TinyJit
    def method(self, x: Tensor) -> Tensor:
        return self.add(x)


@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("name", ["jitted", "method", "kept"])
def test_a_copied_model_has_jitted_functions_of_its_own(name: str, calls: int) -> None:
    model, one = Counter(), Tensor([1.0]).realize()
    if name == "kept":
        model.kept = model.method  # type: ignore[attr-defined]
    for _ in range(calls):
        getattr(model, name)(one)
    other = copy.deepcopy(model)
    for i in range(4):
        assert getattr(other, name)(one).item() == calls + i + 1
    assert model.total.item() == calls
    assert getattr(model, name)(one).item() == calls + 1
