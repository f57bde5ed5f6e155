"""How many kernels whole programs take, and why.

A change here is a change of speed: explain it where the number stands.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, nn
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def kernels_of(linear: UOp) -> list[UOp]:
    return [call.src[0] for call in linear.src if call.src[0].op is Ops.SINK]


def train_step(model: object, optimizer: nn.optim.Optimizer, x: Tensor, y: Tensor) -> list[UOp]:
    with Context(TRAINING=1):
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()  # type: ignore[operator]
        return kernels_of(loss.schedule_linear(*optimizer.schedule_step()))


class LinearNet:
    """The classifier of the articles."""

    def __init__(self) -> None:
        self.l1 = Tensor.kaiming_uniform(784, 128)
        self.l2 = Tensor.kaiming_uniform(128, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1).dot(self.l1).relu().dot(self.l2)


def test_linear_classifier_step() -> None:
    model = LinearNet()
    optimizer = nn.optim.Adam([model.l1, model.l2], lr=0.001)
    Tensor.realize(*nn.state.get_parameters(model), *nn.state.get_parameters(optimizer))
    x, y = Tensor.empty(4, 1, 28, 28), Tensor.empty(4, dtype="int32")
    kernels = train_step(model, optimizer, x, y)
    # forward: label check, first product with relu, second product, log-softmax statistics of a row, loss        5
    # backward: gradient of the logits, of the hidden layer (with the relu mask), of l2, of l1                    4
    # optimiser: both powers of the betas in one; p, m, v and the gradient of a parameter in one per parameter    3
    # the gradient of x, which lives on and reads l1 as it was before the step: a product and its reshaped copy    2
    assert len(kernels) <= 14


def test_optimizer_does_not_launch_a_kernel_per_quantity() -> None:
    params = [Tensor.ones(size).contiguous().realize() for size in (7, 300, 5000)]
    for make in (nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW):
        optimizer = make(params)
        with Context(TRAINING=1):
            for _ in range(2):
                optimizer.zero_grad()
                sum((p * p).sum() for p in params).backward()  # type: ignore[union-attr, arg-type]
                Tensor.realize(*[p.grad for p in params if p.grad is not None])
                kernels = kernels_of(Tensor.schedule_linear(*optimizer.schedule_step()))
        # One kernel a parameter, with one store for it and one for each moment; one for the powers of the betas.
        assert len(kernels) <= len(params) + 2, make.__name__


def test_mnist_step() -> None:
    path = Path(__file__).parents[2] / "examples" / "beautiful_mnist.py"
    assert importlib.util.find_spec("tinygrad") is not None
    source = path.read_text(encoding="utf-8")
    start = source.index("class Model")
    namespace: dict[str, object] = {"Tensor": Tensor, "nn": nn}
    exec(source[start : source.index("\nif ", start)], namespace)
    model = namespace["Model"]()  # type: ignore[operator]
    optimizer = nn.optim.Adam(nn.state.get_parameters(model))
    Tensor.realize(*nn.state.get_parameters(model), *nn.state.get_parameters(optimizer))
    kernels = train_step(model, optimizer, Tensor.empty(512, 1, 28, 28), Tensor.empty(512, dtype="int32"))
    # Four convolutions: packed weights, product with bias and relu (8); two batch norms: mean, variance (split over the
    # batch for the large one) and the running statistics (10); two poolings with the normalisation in them (2); the
    # last layer and the loss (6). Backward: for each convolution padded gradient, packed weights, input gradient (not
    # for the first), packed gradient, partial and total weight gradient, bias gradient. Optimiser: one kernel per
    # parameter size.
    assert len(kernels) <= 90
    contractions = [k for k in kernels if sum(u.op is Ops.REDUCE for u in k.toposort()) and _multiplies(k)]
    assert len(contractions) >= 12


def _multiplies(kernel: UOp) -> bool:
    return any(u.op is Ops.REDUCE and u.arg[0] is Ops.ADD and u.src[0].op is Ops.MUL for u in kernel.toposort())


WRITES: dict[str, Callable[[Any, int], None]] = {
    "a row": lambda x, i: x.__setitem__(i, 1.5),
    "an element": lambda x, i: x.__setitem__((i, 2), 1.5),
    "a column": lambda x, i: x.__setitem__((slice(None), i), 2.5),
    "a box": lambda x, i: x.__setitem__((slice(i, i + 2), slice(1, 4)), 3.5),
    "in place": lambda x, i: x.__setitem__(i, x[i] * 2),
    "from the row before": lambda x, i: x.__setitem__(i + 1, x[i] * 2 + 1),
    "from the columns": lambda x, i: x.__setitem__((slice(None), i + 1), x[:, i] + x[:, i + 2]),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_at_different_places_run_the_same_kernels(name: str) -> None:
    kernels = set()
    for i in range(1, 4):
        array = np.arange(48, dtype=np.float32).reshape(6, 8)
        planned, x = (Tensor(array).clone().realize() for _ in range(2))
        for written in (planned, x, array):
            WRITES[name](written, i)
        kernels.add(tuple(call.src[0] for call in planned.schedule_linear().src))
        np.testing.assert_array_equal(x.numpy(), array)
    assert len(kernels) == 1


@pytest.mark.parametrize("read", [lambda x, i: x[i].sum(), lambda x, i: x[:, i].sum(), lambda x, i: x[i] + x[i + 1]])
def test_reads_at_different_places_run_one_kernel(read: Callable[[Tensor, int], Tensor]) -> None:
    x = Tensor(np.arange(48, dtype=np.float32).reshape(6, 8)).clone().realize()
    kernels = {call.src[0] for i in range(1, 5) for call in read(x, i).schedule_linear().src}
    assert len(kernels) == 1


@pytest.mark.parametrize(
    ("mode", "times"), [("nearest", 2), ("nearest", 4), ("nearest-exact", 2), ("nearest-exact", 3)]
)
def test_places_that_repeat_are_not_looked_up(mode: str, times: int) -> None:
    # One kernel reads the old places; no table of positions is made and read.
    x = Tensor.empty(2, 3, 5, 4)
    kernels = kernels_of(x.interpolate((5 * times, 4 * times), mode=mode).schedule_linear())
    assert len(kernels) == 1
