"""Gradients go through in-place operations as in torch, wherever values are read in between.

A recurrence is run with reads at every place, one at a time and all together; gradients are compared with torch.
"""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, nn, origins

W, X = [1.5, -2.0, 0.5], [2.0, 3.0, 4.0]
Read = Callable[..., None]


def added(z: Any, w: Any, x: Any, read: Read) -> Any:
    z += w * w
    read(z)
    z -= x
    return z


def of_a_value_that_was_read(z: Any, w: Any, x: Any, read: Read) -> Any:
    squares = w * w
    read(squares)
    z += squares
    return z


def a_sum_in_a_loop(z: Any, w: Any, x: Any, read: Read) -> Any:
    for i in range(4):
        z += w * x * (i + 1)
        read(z)
    return z


def scaled_and_added(z: Any, w: Any, x: Any, read: Read) -> Any:
    for _ in range(2):
        z *= 0.5
        read(z)
        z += w * x
        read(z)
    return z


def a_slice(z: Any, w: Any, x: Any, read: Read) -> Any:
    z[1:] += w[1:] * 3
    read(z)
    z -= w
    read(z)
    z[0] = x[0] * w[0]
    return z


def a_view(z: Any, w: Any, x: Any, read: Read) -> Any:
    tail = z[1:]
    tail += w[1:] * 3
    read(z)
    tail -= x[:2]
    return z


def all_elements(z: Any, w: Any, x: Any, read: Read) -> Any:
    z[:] = w * w * x
    read(z)
    z += w
    return z


def read_before(z: Any, w: Any, x: Any, read: Read) -> Any:
    thrice = z * 3 + w
    read(thrice)
    z += w * x
    read(z, thrice)
    return z * thrice


def multiplied(z: Any, w: Any, x: Any, read: Read) -> Any:
    for _ in range(3):
        z *= w
        read(z)
        z += x
        read(z)
    return z


LINEAR = (added, of_a_value_that_was_read, a_sum_in_a_loop, scaled_and_added, a_slice, a_view, all_elements)
# These need what was overwritten, which has to be computed again.
COMPUTED = (*LINEAR, read_before, multiplied)


def by_torch(run: Callable[..., Any], start: Callable[[Any], Any]) -> list[Any]:
    w, x = (torch.tensor(v, requires_grad=True) for v in (W, X))
    result = run(start(x), w, x, lambda *_: None)
    found = torch.autograd.grad((result * result).sum(), [w, x], allow_unused=True)
    return [np.zeros(3) if g is None else g.numpy() for g in found]


def check(run: Callable[..., Any], start: Callable[[Any], Any], expected: list[Any]) -> None:
    places = itertools.count()
    run(start(Tensor(X)), Tensor(W), Tensor(X), lambda *_: next(places))
    for where in (*range(next(places)), None):
        w, x, number = Tensor(W), Tensor(X), itertools.count()

        def read(*values: Tensor, where: int | None = where, number: Any = number) -> None:
            if where is None or next(number) == where:
                for value in values:
                    value.numpy()

        z = start(x)
        if where is None:
            z.numpy()
        result = run(z, w, x, read)
        for found, wanted in zip((result * result).sum().gradient(w, x), expected, strict=True):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, err_msg=f"{run.__name__} read at {where}")


@pytest.mark.parametrize("run", COMPUTED)
def test_a_computed_tensor_that_is_written_in_place(run: Callable[..., Any]) -> None:
    def start(x: Any) -> Any:
        return x * 2

    check(run, start, by_torch(run, start))


@pytest.mark.parametrize("run", LINEAR)
def test_data_that_is_written_in_place(run: Callable[..., Any]) -> None:
    expected = by_torch(run, lambda _: torch.ones(3))
    check(run, lambda _: Tensor([1.0, 1.0, 1.0]), expected)


def test_what_needs_overwritten_data_is_a_warning() -> None:
    w, z = Tensor(W), Tensor([3.0, 4.0, 5.0]).realize()
    z *= w
    z.numpy()
    z += 1
    z.numpy()
    with pytest.warns(RuntimeWarning, match="get no gradient through it"):
        z.sum().gradient(w)


def test_a_long_chain_ends_in_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_LARGEST_UPDATED", 32)
    w, x = Tensor(W), Tensor(X)
    z = x * 2
    for _ in range(40):
        z += w
        z.numpy()
    with pytest.warns(RuntimeWarning, match="get no gradient through it"):
        z.sum().gradient(w, x)


@pytest.mark.parametrize("has_optimizer", [False, True])
def test_a_parameter_that_is_read_after_its_step_is_a_parameter(has_optimizer: bool) -> None:
    w, x = Tensor.uniform(3), Tensor(X)
    optimizer = nn.optim.SGD([w], lr=0.1, momentum=0.5)
    w.numpy()
    with warnings.catch_warnings(), Tensor.train():
        warnings.simplefilter("error")
        for _ in range(3):
            w.grad = x.grad = None
            (w * w * x).sum().backward()
            assert x.grad is not None
            np.testing.assert_allclose(x.grad.numpy(), np.square(w.numpy()), rtol=1e-5)
            if has_optimizer:
                optimizer.schedule_step()
            else:
                w.assign(w - 0.1 * w.grad)
            w.numpy()


def test_a_state_that_a_jitted_step_updates() -> None:
    w, state = Tensor(W).realize(), Tensor([1.0, 1.0, 1.0]).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state * 0.5 + w * x)
        state.assign(state * w)
        return (state * state).sum().gradient(w)[0].realize(state)

    held, u = torch.ones(3), torch.tensor(W, requires_grad=True)
    for i in range(5):
        x = [1.0 + i, 2.0, 3.0 - i]
        after = (held * 0.5 + u * torch.tensor(x)) * u
        (expected,) = torch.autograd.grad((after * after).sum(), [u])
        np.testing.assert_allclose(step(Tensor(x).realize()).numpy(), expected.numpy(), rtol=1e-4)
        held = after.detach()
        np.testing.assert_allclose(state.numpy(), held.numpy(), rtol=1e-4)


def descend(a: Tensor, b: Tensor, read: Read) -> list[float]:
    """Return the parameters after some steps that are written by hand, with reads between them."""
    for i in range(5):
        a.grad = b.grad = None
        loss = (((Tensor([[1.0, 2.0 - i]]) @ a).tanh() @ b) ** 2).mean()
        loss.backward()
        read(i, loss, a, b)
        for t in (a, b):
            t.assign(t - 0.1 * t.grad)  # type: ignore[operator]
        read(-i, loss, a, b)
    return [*a.flatten().tolist(), *b.flatten().tolist()]


READS: dict[str, Read] = {
    "one gradient": lambda i, loss, a, b: a.grad.numpy(),
    "a gradient, and a parameter": lambda i, loss, a, b: b.numpy() if i < 0 else b.grad.tolist(),
    "a loss, and a parameter once": lambda i, loss, a, b: (loss.item(), b.numpy() if i == -1 else None),
    "a gradient that is realized": lambda i, loss, a, b: (a.grad.realize(), b.realize() if i == 2 else None),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("stored", [True, False])
def test_steps_by_hand_go_on_whatever_is_read_of_them(read: Read, stored: bool) -> None:
    def parameters() -> list[Tensor]:
        arrays = [np.array(v, np.float32) for v in ([[0.5, 0.2], [0.1, -0.3]], [[0.3], [0.4]])]
        return [Tensor(v).realize() if stored else Tensor(v) for v in arrays]

    expected = descend(*parameters(), lambda *_: None)
    np.testing.assert_allclose(descend(*parameters(), read), expected, rtol=1e-5)


def test_a_state_that_was_written_beside_the_step_of_what_it_reads_ends_gradients_with_a_warning() -> None:
    w, h = Tensor([[0.5, 0.2], [0.1, -0.3]]).realize(), Tensor.zeros(1, 2).contiguous().realize()
    for _ in range(2):
        h.assign((h.detach() * 0.5 + Tensor([[1.0, 2.0]]) @ w).tanh())
        w.grad = None
        (h * h).sum().backward()
        w.assign(w - 0.1 * w.grad)  # type: ignore[operator]
    h.assign((h.detach() * 0.5 + Tensor([[1.0, 2.0]]) @ w).tanh())
    loss = (h * h).sum()
    loss.item()
    with pytest.warns(RuntimeWarning, match="get no gradient through it"):
        loss.backward()


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("is_jitted", [True, False])
@pytest.mark.parametrize("is_read", [True, False])
def test_no_gradient_goes_through_the_step_of_another_parameter(stored: bool, is_jitted: bool, is_read: bool) -> None:
    def step() -> Tensor:
        a, c = Tensor([2.0]).clone() if stored else Tensor([2.0]), Tensor([3.0])
        (a * a * c).sum().backward()
        a.assign(a - 0.1 * a.grad)  # type: ignore[operator]
        c.grad = None
        loss = (a * c).sum()
        if is_read and not is_jitted:
            loss.item()
        loss.backward()
        assert c.grad is not None
        return c.grad.realize()

    run = TinyJit(step) if is_jitted else step
    assert [round(run().item(), 5) for _ in range(3)] == [0.8] * 3


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("is_exact", [True, False])
def test_what_was_computed_only_because_its_data_is_overwritten(size: int, is_exact: bool) -> None:
    w, data = Tensor([3.0] * size).realize(), Tensor([2.0] * size).realize()
    z = data * w if is_exact else data
    if is_exact:
        z.numpy()  # whose graph is known from now on
    product = z * w
    z -= 1.0
    z.numpy()
    loss = product.sum()
    if is_exact:
        assert loss.gradient(w)[0].tolist() == [2.0 * 2.0 * 3.0] * size
        return
    with pytest.warns(RuntimeWarning, match="get no gradient through it"):
        loss.gradient(w)


WRITES: dict[str, Callable[[Any, Any], None]] = {
    "slice": lambda z, w: z.__setitem__(slice(1, 3), w[1:3] * 2),
    "element": lambda z, w: z.__setitem__(1, w[0] * 3),
    "all": lambda z, w: z.__setitem__(slice(None), w * 3),
    "number": lambda z, w: z.__setitem__(slice(1, 3), 5.0),
    "positions": lambda z, w: z.__setitem__([1, 2], w[:2]),
    "positions, twice": lambda z, w: (z.__setitem__([1, 2], w[:2]), z.__setitem__([2, 3], w[2:] * 2))[0],
}


@pytest.mark.parametrize("reads", [(), ("before",), ("after",), ("before", "after")], ids=lambda r: "+".join(r) or "no")
@pytest.mark.parametrize("is_computed", [True, False], ids=["computed", "data"])
@pytest.mark.parametrize("name", WRITES)
def test_selections_of_tensors_over_several_devices_are_written_as_on_one(
    name: str, is_computed: bool, reads: tuple[str, ...]
) -> None:
    def gradient(z: Any, w: Any, read: Callable[[Any], object]) -> Any:
        z = z * w if is_computed else z
        if "before" in reads:
            read(z)
        WRITES[name](z, w)
        if "after" in reads:
            read(z)
        return (z * z * w).sum()

    start, weights = [1.0, 2.0, 3.0, 4.0], [4.0, 1.0, 2.0, 3.0]
    devices = ("CPU:0", "CPU:1")
    w = Tensor(weights).shard(devices, 0).realize()
    found = gradient(Tensor(start).shard(devices, 0).realize(), w, Tensor.numpy).gradient(w)[0]
    expected = torch.tensor(weights, requires_grad=True)
    gradient(torch.tensor(start), expected, lambda _: None).backward()
    assert expected.grad is not None
    assert found.tolist() == expected.grad.tolist()
