"""What was written down before a write reads the state before it, whenever it is computed."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def stored(*values: float) -> Tensor:
    return Tensor(list(values)).contiguous().realize()


def test_pending_reader_keeps_the_old_value() -> None:
    w = stored(1.0, 2.0)
    y = w * 10
    w.assign(w + 1).realize()
    assert y.tolist() == [10.0, 20.0]
    assert w.tolist() == [2.0, 3.0]


def test_reader_of_old_and_new_state() -> None:
    x = stored(0.0, 1.0, 2.0, 3.0)
    old = x * 2
    x.assign(x.flip(0))
    assert (x + old).tolist() == [3.0, 4.0, 5.0, 6.0]


def test_several_writes_and_readers_between_them() -> None:
    w = stored(1.0)
    readers = []
    for _ in range(4):
        readers.append(w * 1)
        w.assign(w * 2)
    w.realize()
    assert [r.item() for r in readers] == [1.0, 2.0, 4.0, 8.0]
    assert w.item() == 16.0


def test_pending_reader_inside_and_outside_a_jit() -> None:
    w = stored(1.0)
    outside = w * 100

    @TinyJit
    def step() -> Tensor:
        seen = w * 3
        w.assign(w + 1).realize()
        return seen

    assert [step().item() for _ in range(5)] == [3.0, 6.0, 9.0, 12.0, 15.0]
    assert outside.item() == 100.0


def test_loss_read_after_the_step_is_the_loss_before_it() -> None:
    weight = stored(3.0)
    optimizer = nn.optim.SGD([weight], lr=0.5)
    with Context(TRAINING=1):
        for expected in (9.0, 0.0, 0.0):
            optimizer.zero_grad()
            loss = (weight * weight).sum().backward()
            optimizer.step()
            assert loss.item() == expected


def test_gradients_of_results_are_not_computed_for_a_step() -> None:
    weight, x = stored(3.0), Tensor([2.0])
    hidden = x * 2
    out = hidden * weight
    out.sum().backward()
    kept = hidden.grad
    weight.assign(weight - weight.grad).realize()
    assert out.grad is not None, "it does not depend on the weight"
    assert x.grad is None, "nobody refers to it, and it could not be computed any more"
    assert kept is not None
    assert kept.tolist() == [3.0], "somebody else refers to this one"
    assert weight.grad.tolist() == [4.0]


def test_assigning_through_a_mask_of_the_tensor_itself() -> None:
    for make in (stored, lambda *v: Tensor(list(v)).clone()):
        t = make(1.0, 2.0, 3.0)
        t[t > 1.5] = 0
        assert t.tolist() == [1.0, 0.0, 0.0]
        mask = t > 0.5
        t[mask] = 7
        assert t.tolist() == [7.0, 0.0, 0.0]
        assert mask.tolist() == [True, False, False], "the mask is what it was before the write"


def test_numpy_arrays_of_another_byte_order_keep_their_values() -> None:
    import numpy as np

    for code in (">i4", ">f8", "<i4", ">u2"):
        assert Tensor(np.arange(3, dtype=code)).tolist() == [0, 1, 2]


def test_gradient_of_a_long_chain_is_scheduled_in_stretches() -> None:
    from tinygrad.schedule import siblings

    x = stored(0.5)
    y = x
    for _ in range(2 * siblings.WINDOW):
        y = y * x + 1
    y.sum().backward()
    assert x.grad is not None
    # y_n = x y_(n-1) + 1 with y_0 = x tends to 1 / (1 - x) = 2, whose derivative is 1 / (1 - x)^2 = 4.
    assert abs(x.grad.item() - 4.0) < 1e-4


def overwritten(state: UOp, value: UOp) -> UOp:
    return state.after(UOp(Ops.STORE, None, (state, value)))


# Graphs that no program of tensors makes: one storage is written twice in the same state, and both results are read.
HISTORIES: dict[str, Callable[[UOp, UOp], UOp]] = {
    "constants": lambda x, _: overwritten(x, x.const_like(5.0)) + overwritten(x, x.const_like(6.0)),
    "of itself": lambda x, _: overwritten(x, x * 2) + overwritten(x, x * 3),
    "reversed": lambda x, _: overwritten(x, x.flip(0) * 2).flip(0) + overwritten(x, x * 3),
    "one reads the other": lambda x, y: overwritten(x, y).flip(0) + overwritten(x, overwritten(x, y) + 1),
    "three": lambda x, y: (
        overwritten(x, y) + overwritten(x, x * 2) + overwritten(x, overwritten(x, y) + overwritten(x, x * 2))
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_two_histories_of_one_storage_are_an_error(name: str) -> None:
    def give_up(*_: object) -> None:
        raise TimeoutError("the scheduler does not come to an end")

    x, y = stored(1.0, 2.0, 3.0).uop.base, stored(4.0, 5.0, 6.0).uop
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(100)
    try:
        with pytest.raises(RuntimeError, match=r"two histories of one storage, \(3,\) float32 on CPU"):
            Tensor(HISTORIES[name](x, y)).realize()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
