"""Reading a single number does not change what backward and gradient find: the graph that it came from is kept."""

import weakref
from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, nn, origins

READS: dict[str, Callable[[Tensor], object]] = {
    "item": Tensor.item,
    "tolist": Tensor.tolist,
    "numpy": Tensor.numpy,
    "data": Tensor.data,
    "realize": Tensor.realize,
    "print": lambda t: print(t, t.item()),
    "twice": lambda t: (t.item(), t.item()),
}


@pytest.fixture
def weight() -> Tensor:
    return Tensor([1.0, 2.0, 3.0]).realize()


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_loss_that_was_read_still_has_gradients(read: Callable[[Tensor], object], weight: Tensor) -> None:
    loss = (weight * weight).sum()
    read(loss)
    np.testing.assert_array_equal(loss.gradient(weight)[0].numpy(), [2, 4, 6])
    loss.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [2, 4, 6])
    assert loss.grad.item() == 1


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_any_shape_of_one_element(shape: tuple[int, ...], weight: Tensor) -> None:
    loss = (weight * 3).sum().reshape(shape)
    loss.item()
    loss.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [3, 3, 3])


def test_values_on_the_way_and_numbers_made_of_numbers(weight: Tensor) -> None:
    doubled = weight * 2
    first = doubled.sum()
    first.item()
    second = first * first
    second.item()
    (first + second).backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [50, 50, 50])
    np.testing.assert_array_equal(doubled.grad.numpy(), [25, 25, 25])
    assert (first.grad.item(), second.grad.item()) == (25, 1)


def test_a_total_that_is_read_in_every_step(weight: Tensor) -> None:
    total = Tensor(0.0)
    for i in range(4):
        loss = (weight * i).sum()
        loss.item()
        total = total + loss
        total.item()
    total.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [6, 6, 6])


def test_one_element_of_a_vector(weight: Tensor) -> None:
    squares = weight * weight
    assert squares[1].item() == 4
    squares.sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [2, 4, 6])


def test_dropout_draws_the_same_mask_again() -> None:
    weight = Tensor.ones(64).realize()
    with Context(TRAINING=1):
        kept = (weight * 3).dropout(0.5).dropout(0.25)
        loss = kept.sum()
        loss.item()
        Tensor.rand(4).realize()
        loss.backward()
    np.testing.assert_allclose(weight.grad.numpy(), kept.numpy())


def test_an_overwritten_weight_ends_it(weight: Tensor) -> None:
    loss = (weight * weight).sum()
    loss.item()
    weight.assign(weight * 2).realize()
    loss.backward()
    assert weight.grad is None, "the value that the gradient needs is gone"


def test_a_training_loop_may_print_before_backward() -> None:
    losses = []
    for is_read_first in (False, True):
        Tensor.manual_seed(3)
        layer = nn.Linear(4, 1)
        optimizer = nn.optim.Adam(nn.state.get_parameters(layer), lr=0.1)
        x = Tensor.arange(8).reshape(2, 4).float().realize()
        with Context(TRAINING=1):
            for _ in range(3):
                loss = layer(x).dropout(0.1).square().mean()
                if is_read_first:
                    loss.item()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    np.testing.assert_allclose(losses[3:], losses[:3], rtol=1e-5)


def test_graphs_do_not_pile_up(weight: Tensor) -> None:
    kept = [(weight * i).sum() for i in range(origins._MOST + 10)]
    for number in kept:
        number.item()
    assert len(origins._origins) <= origins._MOST
    del kept, number
    assert not origins._origins


def test_a_loop_that_keeps_losses_does_not_keep_inputs(weight: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_MOST_BYTES", 1 << 16)
    losses, inputs = [], []
    for i in range(40):
        batch = Tensor.full((1 << 10,), float(i)).contiguous().realize()
        inputs.append(weakref.ref(batch.uop.base))
        loss = (weight.sum() * batch).mean()
        losses.append((loss.item(), loss))
    del batch
    assert sum(ref() is not None for ref in inputs) <= 16 + origins._LOOK_EVERY, "16 of 4 KiB, and the last ones"
    losses[-1][1].backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [39.0] * weight.numel()


def test_a_parameter_of_one_element_stays_a_parameter() -> None:
    weight = (Tensor([1.0]) * 3).realize()
    optimizer = nn.optim.SGD([weight], lr=0.5)
    with Context(TRAINING=1):
        for expected in (9.0, 0.0, 0.0):
            optimizer.zero_grad()
            loss = (weight * weight).sum()
            assert loss.item() == expected
            loss.backward()
            optimizer.step()


def test_a_replay_reads_what_a_number_has_become() -> None:
    scale = (Tensor([1.0]) * 3).realize()

    @TinyJit
    def slope(x: Tensor) -> Tensor:
        return (x * scale * scale).sum().gradient(x)[0].realize()

    for factor in (3.0, 3.0, 3.0, 5.0):
        scale.assign(Tensor([factor])).realize()
        assert slope(Tensor([1.0, 2.0]).realize()).tolist() == [factor**2] * 2


@pytest.mark.parametrize("is_argument", [False, True])
def test_a_replay_that_overwrites_a_weight_ends_it(is_argument: bool) -> None:
    weight = Tensor([1.0, 2.0]).clone().realize()

    @TinyJit
    def double(w: Tensor) -> None:
        (w if is_argument else weight).assign(weight * 2).realize()

    for _ in range(4):
        double(weight if is_argument else Tensor([0.0]).realize())
    loss = (weight * weight).sum()
    loss.item()
    double(weight if is_argument else Tensor([0.0]).realize())
    loss.backward()
    assert weight.grad is None, "the value that the gradient needs is gone"
