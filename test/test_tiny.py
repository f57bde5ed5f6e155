"""The shortest programs that use each large part once: a first look at whether an installation works."""

from __future__ import annotations

import numpy as np
import pytest

from tinygrad import Context, Device, GlobalCounters, Tensor, TinyJit, UOp, Variable, dtypes, nn


def test_plus() -> None:
    assert (Tensor([1.0, 2, 3]) + Tensor([4.0, 5, 6])).tolist() == [5.0, 7.0, 9.0]


def test_plus_of_constants() -> None:
    assert (Tensor(1) + 2).item() == 3


def test_sum() -> None:
    assert Tensor.ones(256).sum().item() == 256.0


def test_matmul() -> None:
    a = Tensor.eye(64).contiguous()
    b = Tensor.arange(64 * 64).reshape(64, 64).float()
    np.testing.assert_equal((a @ b).numpy(), np.arange(64 * 64).reshape(64, 64))


def test_cat() -> None:
    assert Tensor.cat(Tensor([1, 2]), Tensor([3])).tolist() == [1, 2, 3]


def test_backward() -> None:
    x = Tensor.eye(3).clone()
    y = Tensor([[2.0, 0, -2.0]])
    y.matmul(x).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3, [0.0] * 3, [-2.0] * 3]
    assert y.grad.tolist() == [[1.0, 1.0, 1.0]]


def test_random() -> None:
    Tensor.manual_seed(42)
    np.testing.assert_allclose(Tensor.rand(3).numpy(), [0.53342068, 0.67015517, 0.76307893], rtol=1e-6)


def test_jit() -> None:
    @TinyJit
    def double(x: Tensor) -> Tensor:
        return (x * 2).realize()

    assert [double(Tensor([float(i)]).realize()).item() for i in range(5)] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_symbolic() -> None:
    i = Variable("i", 1, 10)
    ones = Tensor.ones(10).contiguous()
    for n in range(3, 6):
        assert ones[: i.bind(n)].sum().item() == n


def test_model_of_convolutions() -> None:
    layers = [
        nn.Conv2d(1, 8, 5),
        Tensor.relu,
        nn.BatchNorm(8),
        Tensor.max_pool2d,
        lambda x: x.flatten(1),
        nn.Linear(1152, 10),
    ]
    with Context(TRAINING=0):
        assert Tensor.empty(2, 1, 28, 28).sequential(layers).realize().shape == (2, 10)


def test_training_step() -> None:
    weight = Tensor.zeros(4, 1)
    x, y = Tensor(np.eye(4, dtype=np.float32)), Tensor([[1.0], [2.0], [3.0], [4.0]])
    optimizer = nn.optim.SGD([weight], lr=1.0)
    with Tensor.train():
        for _ in range(20):
            optimizer.zero_grad()
            loss = ((x @ weight - y) ** 2).mean().backward()
            optimizer.step()
    assert loss.item() < 1e-4


def test_names_of_the_package() -> None:
    assert isinstance(Device.DEFAULT, str)
    assert dtypes.float32.itemsize == 4
    assert UOp.const(3).arg == 3
    GlobalCounters.reset()
    (Tensor([1.0]) + 1).realize()
    assert GlobalCounters.kernel_count > 0
    with pytest.raises(ImportError):
        from tinygrad import nothing_of_this_name  # noqa: F401
