"""Counts and sizes of every kind: numbers of numpy work like those of Python, absurd ones are laziness or errors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor

T, M = Tensor.ones(4), Tensor.ones(2, 3)
IMAGE, WINDOW = Tensor.ones(1, 1, 4, 4), Tensor.ones(1, 1, 2, 2)

CALLS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda n: Tensor.zeros(2, n),
    "ones": lambda n: Tensor.ones(n),
    "full": lambda n: Tensor.full((n,), 1.0),
    "empty": lambda n: Tensor.empty(n, 2),
    "arange": lambda n: Tensor.arange(n),
    "arange from": lambda n: Tensor.arange(0, n, 2),
    "arange by": lambda n: Tensor.arange(0, 5, n),
    "linspace": lambda n: Tensor.linspace(0, 1, n),
    "eye": lambda n: Tensor.eye(n),
    "eye of two": lambda n: Tensor.eye(3, n),
    "rand": lambda n: Tensor.rand(n),
    "randn": lambda n: Tensor.randn(2, n),
    "uniform": lambda n: Tensor.uniform(n),
    "randint": lambda n: Tensor.randint(n, low=0, high=3),
    "randint below": lambda n: Tensor.randint(3, low=0, high=n),
    "randperm": lambda n: Tensor.randperm(n),
    "kaiming_uniform": lambda n: Tensor.kaiming_uniform(n, 3),
    "kaiming_normal": lambda n: Tensor.kaiming_normal(3, n),
    "multinomial": lambda n: T.multinomial(n, replacement=True),
    "one_hot": lambda n: Tensor([0, 1, 2]).one_hot(n),
    "tile": lambda n: T.tile((n, 2)),
    "repeat": lambda n: T.repeat(2, n),
    "repeat_interleave": lambda n: T.repeat_interleave(n),
    "pad": lambda n: T.pad((n, 0)),
    "pad by reflection": lambda n: IMAGE.pad((n, 0), mode="reflect"),
    "pad in circles": lambda n: IMAGE.pad((n, 0), mode="circular"),
    "pad_to": lambda n: Tensor.ones(1).pad_to(n),
    "expand": lambda n: Tensor.ones(1).expand(n),
    "reshape": lambda n: Tensor.ones(3).reshape(n),
    "view": lambda n: Tensor.ones(3).view(n, 1),
    "shrink": lambda n: T.shrink(((0, n),)),
    "shrink_to": lambda n: T.shrink_to(n),
    "element": lambda n: T[n],
    "slice": lambda n: T[:n],
    "slice by": lambda n: T[::n],
    "split": lambda n: T.split(n),
    "chunk": lambda n: T.chunk(n),
    "unfold": lambda n: T.unfold(0, n, 1),
    "unfold by": lambda n: T.unfold(0, 1, n),
    "roll": lambda n: T.roll(n),
    "tril": lambda n: M.tril(n),
    "triu": lambda n: M.triu(n),
    "unflatten": lambda n: Tensor.ones(6).unflatten(0, (n, -1)),
    "squeeze": lambda n: Tensor.ones(1, 1, 1, 1).squeeze(n),
    "sum": lambda n: Tensor.ones(1, 1, 1, 2).sum(n),
    "transpose": lambda n: Tensor.ones(1, 1, 1, 2).transpose(0, n),
    "topk": lambda n: T.topk(n),
    "diagonal": lambda n: M.diagonal(n),
    "diag": lambda n: T.diag(n),
    "meshgrid": lambda n: T.meshgrid(Tensor.ones(n)),
    "interpolate": lambda n: IMAGE.interpolate((n,)),
    "interpolate to areas": lambda n: IMAGE.interpolate((n,), mode="area"),
    "avg_pool2d": lambda n: IMAGE.avg_pool2d(n),
    "avg_pool2d by": lambda n: IMAGE.avg_pool2d(2, n),
    "max_pool2d": lambda n: IMAGE.max_pool2d(2, 1, n),
    "conv2d": lambda n: IMAGE.conv2d(WINDOW, padding=n),
    "conv2d by": lambda n: IMAGE.conv2d(WINDOW, stride=n),
    "conv_transpose2d": lambda n: IMAGE.conv_transpose2d(WINDOW, stride=n),
    "diff": lambda n: T.diff(n),
    "vander": lambda n: T.vander(n),
    "matrix_power": lambda n: Tensor.ones(3, 3).matrix_power(n),
    "tensor_split": lambda n: T.tensor_split(n),
    "narrow": lambda n: T.narrow(0, 0, n),
    "adaptive_avg_pool2d": lambda n: IMAGE.adaptive_avg_pool2d(n),
    "nonzero": lambda n: T.nonzero(size=n),
}


def shapes(result: Any) -> list[tuple[Any, ...]]:
    return [t.shape for t in (result if isinstance(result, (tuple, list)) else (result,))]


@pytest.mark.parametrize("number", [np.int64(3), np.int32(3), np.int16(3)], ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("name", CALLS)
def test_numbers_of_numpy(name: str, number: Any) -> None:
    found = shapes(CALLS[name](number))
    assert found == shapes(CALLS[name](3))
    assert all(type(size) is int for shape in found for size in shape)


ABSURD = [10**18, 2**31, 10**30, -(10**18), 2.5, np.float32(2.5), math.nan, math.inf, None, "3", [3]]


@pytest.mark.parametrize("number", ABSURD, ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_absurd_numbers_are_laziness_or_an_error(name: str, number: Any) -> None:
    message, found = "", []
    try:
        found = shapes(CALLS[name](number))
    except (ValueError, TypeError, IndexError, RuntimeError, AssertionError, MemoryError, ArithmeticError) as error:
        message = str(error)
    assert "has no attribute" not in message.partition("\n")[0], "an error of the insides"
    assert all(size >= 0 for shape in found for size in shape)


def test_a_range_of_numpy_floats_is_one_of_floats() -> None:
    assert Tensor.arange(np.float32(2.5)).tolist() == [0.0, 1.0, 2.0]
    assert Tensor.arange(np.float64(0), np.int64(2), np.float64(0.5)).tolist() == [0.0, 0.5, 1.0, 1.5]
