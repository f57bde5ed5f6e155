"""Counts and sizes of every kind: numbers of numpy work like those of Python, absurd ones are laziness or errors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, Variable, dtypes, nn

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

# Of a row of 300 numbers, which is longer than 8 bits count, and an image of as many columns.
ROW, COLUMNS = Tensor.arange(300).realize(), Tensor.arange(300.0).reshape(1, 1, 1, 300).realize()
SQUARE, CUBE = Tensor.arange(300 * 300).reshape(300, 300), Tensor.ones(2, 3, 4)

# Calls that compute with the number, or hand it on, beside those above.
LONG_CALLS: dict[str, Callable[[Any], Any]] = {
    "arange by steps": lambda n: Tensor.arange(0, 1000, n),
    "arange down": lambda n: Tensor.arange(n, -300, -7),
    "linspace": lambda n: Tensor.linspace(0, 1, n),
    "full": lambda n: Tensor.full((2,), n),
    "full_like": lambda n: ROW.full_like(n),
    "randint": lambda n: Tensor.randint(3, low=0, high=n),
    "eye": lambda n: Tensor.eye(n, n),
    "one_hot": lambda n: Tensor([0, 1]).one_hot(n),
    "split": lambda n: ROW.split(n),
    "split in list": lambda n: ROW.split([n, 300 - int(n)]),
    "split_with_sizes": lambda n: ROW.split_with_sizes([n, 300 - int(n)]),
    "chunk": lambda n: ROW.chunk(n),
    "tensor_split": lambda n: ROW.tensor_split(n),
    "tensor_split at": lambda n: ROW.tensor_split((n, n)),
    "narrow": lambda n: ROW.narrow(0, n, 100),
    "narrow both": lambda n: ROW.narrow(0, n, n),
    "select": lambda n: ROW.select(0, n),
    "element": lambda n: ROW[n],
    "elements": lambda n: ROW[[n, n]],
    "slice": lambda n: ROW[n:],
    "slice both": lambda n: ROW[n : int(n) + 90 : n],
    "slice by": lambda n: ROW[::n],
    "slice back": lambda n: ROW[n::-1],
    "shrink": lambda n: ROW.shrink(((n, 300),)),
    "shrink_to": lambda n: ROW.shrink_to(n),
    "pad": lambda n: ROW.pad((n, n)),
    "pad in pairs": lambda n: ROW.pad(((n, n),)),
    "pad in circles": lambda n: COLUMNS.pad((n, n), mode="circular"),
    "pad by reflection": lambda n: COLUMNS.pad((n, n), mode="reflect"),
    "pad by the edge": lambda n: COLUMNS.pad((n, n), mode="replicate"),
    "pad_to": lambda n: ROW[:10].pad_to(n),
    "roll": lambda n: ROW.roll(n),
    "roll both": lambda n: SQUARE.roll((n, n), (0, 1)),
    "unfold": lambda n: ROW.unfold(0, n, n),
    "unfold by": lambda n: ROW.unfold(0, 2, n),
    "repeat": lambda n: T.repeat(n, n),
    "repeat in tuple": lambda n: T.repeat((n, 2)),
    "tile": lambda n: T.tile((n,)),
    "repeat_interleave": lambda n: T.repeat_interleave(n),
    "expand": lambda n: Tensor.ones(1, 1).expand(n, n),
    "reshape": lambda n: SQUARE[:, : int(n)].reshape(n, 300),
    "unflatten": lambda n: T.expand(int(n), 4).reshape(-1).unflatten(0, (n, 4)),
    "diagonal": lambda n: SQUARE.diagonal(n),
    "diag": lambda n: T.diag(n),
    "diag_embed": lambda n: T.diag_embed(n),
    "tril": lambda n: SQUARE.tril(n),
    "topk": lambda n: ROW.topk(n)[0],
    "kthvalue": lambda n: ROW.kthvalue(n),
    "diff": lambda n: ROW.diff(n) * 0,
    "vander": lambda n: T.vander(n),
    "bincount": lambda n: Tensor([0, 1]).bincount(minlength=n),
    "histc": lambda n: ROW.float().histc(n),
    "masked_fill": lambda n: ROW.masked_fill(ROW < 5, n),
    "clamp": lambda n: ROW.clamp(n, n),
    "add": lambda n: ROW + n,
    "times from the left": lambda n: n * ROW,
    "power": lambda n: (ROW % 2) ** n,
    "quotient": lambda n: ROW // n,
    "remainder": lambda n: ROW % n,
    "avg_pool2d": lambda n: COLUMNS.avg_pool2d((1, n), n),
    "max_pool2d": lambda n: COLUMNS.max_pool2d((1, n), 1),
    "max_pool2d of padding": lambda n: COLUMNS.max_pool2d((1, 255), 1, padding=(0, int(n) // 2)),
    "conv2d": lambda n: COLUMNS.conv2d(WINDOW[:, :, :1], padding=n, stride=n),
    "conv2d dilated": lambda n: COLUMNS.conv2d(WINDOW[:, :, :1], dilation=(1, n)),
    "conv_transpose2d": lambda n: IMAGE.conv_transpose2d(WINDOW, stride=n, padding=1),
    "interpolate": lambda n: IMAGE.interpolate((n, n)),
    "adaptive_avg_pool2d": lambda n: COLUMNS.adaptive_avg_pool2d((1, n)),
    "pixel_shuffle": lambda n: Tensor.ones(1, int(n) ** 2, 1, 1).pixel_shuffle(n),
    "movedim": lambda n: CUBE.movedim(0, n),
    "permute": lambda n: CUBE.permute(n, 0, 1),
    "flip": lambda n: CUBE.flip(n),
    "sum": lambda n: CUBE.sum((0, n)),
    "softmax": lambda n: CUBE.softmax(n),
    "cumsum": lambda n: CUBE.cumsum(n),
    "sort": lambda n: CUBE.sort(n)[0],
    "stack": lambda n: CUBE.stack(CUBE, dim=n),
    "cat": lambda n: CUBE.cat(CUBE, dim=n),
    "unsqueeze": lambda n: CUBE.unsqueeze(n),
    "flatten": lambda n: CUBE.flatten(n),
    "gather": lambda n: CUBE.gather(n, Tensor.zeros(2, 3, 4, dtype="int")),
    "rot90": lambda n: CUBE.rot90(n),
    "layernorm": lambda n: CUBE.layernorm(n),
    "Linear": lambda n: nn.Linear(n, n).weight * 0,
    "Conv2d": lambda n: nn.Conv2d(n, 2, n, padding=n, groups=2).weight[0, 0, 0] * 0,
    "BatchNorm": lambda n: nn.BatchNorm(n).weight,
    "GroupNorm": lambda n: nn.GroupNorm(n, n).weight,
    "LayerNorm": lambda n: nn.LayerNorm((n, n)).weight,
    "Embedding": lambda n: nn.Embedding(n, n).weight * 0,
    "Variable": lambda n: ROW[: Variable("n", 1, n).bind(n) + n].sum(),
}
NARROW = [np.uint8(200), np.int8(-2)]


def outcome(call: Callable[[Any], Any], number: Any) -> list[tuple[str, Any]] | tuple[type, str]:
    """Return the dtypes and values of what a call gives, or the type and the text of its error."""
    Tensor.manual_seed(0)
    try:
        found = call(number)
        tensors = found if isinstance(found, (tuple, list)) else (found,)
        return [(str(t.dtype), t.tolist()) for t in tensors]
    except Exception as error:  # noqa: BLE001  whatever it is, it is the same
        return type(error), str(error).partition("\n  line ")[0]


@pytest.mark.parametrize("number", NARROW, ids=lambda n: f"{type(n).__name__} {n}")
@pytest.mark.parametrize("name", LONG_CALLS)
def test_narrow_numbers_of_numpy_are_those_of_python(name: str, number: Any) -> None:
    """A sum of them would wrap at 8 bits."""
    assert outcome(LONG_CALLS[name], number) == outcome(LONG_CALLS[name], int(number))


def test_numbers_of_numpy_in_values_keep_their_dtype() -> None:
    assert Tensor(np.uint8(200)).dtype is dtypes.uint8
    assert Tensor([np.uint8(200), np.uint8(100)]).sum().item() == 300
    written = Tensor.zeros(3, dtype="uint8").contiguous()
    written[np.uint8(1)] = np.uint8(200)
    assert written.tolist() == [0, 200, 0]


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
