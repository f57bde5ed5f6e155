"""A short sum that is compared with a maximum over it is the same bits on both sides, whichever kernels compute it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tinygrad import Tensor

SHAPE = (2, 3, 16, 4)
# Each has sums of few terms, which are computed where they are used: not stored, and in whatever order is fast there.
SHORT_SUMS: dict[str, Callable] = {
    "centered": lambda x: x - x.mean(1, keepdim=True),
    "softmax": lambda x: x.softmax(1),
    "softmax of the last axis": lambda x: x.softmax(3),
    "norms": lambda x: x / (x * x).sum(1, keepdim=True).sqrt(),
    "sums": lambda x: x.sum(1, keepdim=True) * x,
    "products": lambda x: x.prod(1, keepdim=True) + x,
    "sums of sums": lambda x: x - (x - x.mean(1, keepdim=True)).square().sum(3, keepdim=True),
    "logsumexp": lambda x: x - x.logsumexp(1, keepdim=True),
}
CHOICES = [("max", (3,)), ("min", (3,)), ("max", (0,)), ("min", (2,)), ("max", (3, 0))]


def numbers(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("read_first", [False, True], ids=["gradient alone", "value read first"])
@pytest.mark.parametrize(("method", "axes"), CHOICES)
@pytest.mark.parametrize("name", SHORT_SUMS)
def test_gradient_of_a_maximum_over_short_sums(name: str, method: str, axes: tuple, read_first: bool) -> None:
    """Where no value equals the maximum, its gradient would be lost."""
    function, data = SHORT_SUMS[name], numbers(len(name))

    def largest(x: Tensor | torch.Tensor) -> Tensor | torch.Tensor:
        value = function(x)
        for axis in axes:
            name = method if isinstance(value, Tensor) else f"a{method}"
            value = getattr(value, name)(axis, keepdim=True)
        return value

    ours, theirs = Tensor(data.copy()), torch.tensor(data, requires_grad=True)
    value, expected = largest(ours), largest(theirs)
    weights = numbers(1, value.shape)
    (value * Tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    if read_first:
        value.realize()
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [SHAPE, (3, 3, 16, 4), (2, 5, 8, 4), (4, 3, 32, 8), (2, 7, 16, 2)], ids=str)
@pytest.mark.parametrize("name", SHORT_SUMS)
def test_one_value_equals_the_maximum(name: str, shape: tuple[int, ...]) -> None:
    """Counted along another axis too, which is another order of loops."""
    for axis in (0, 1, 2, 3):
        value = SHORT_SUMS[name](Tensor(numbers(axis, shape)).realize())
        found = (value == value.max(3, keepdim=True)).sum(axis).sum().item()
        assert found >= np.prod(shape[:3]), axis


def test_the_maximum_is_one_of_short_sums_themselves() -> None:
    for rows in (3, 5, 16):
        sums = Tensor(numbers(rows, (6, rows, 8))).realize().sum(1)
        assert (sums == sums.max(1, keepdim=True)).sum(0).sum().item() == 6
        assert (sums >= sums.max()).sum().item() == 1
