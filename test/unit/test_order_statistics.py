"""Order statistics: gradients among equal elements are those of torch, and scans along any axis copy nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import GlobalCounters, Tensor

RNG = np.random.default_rng(3)
Call = Callable[[Any], Any]

# By name: the call here, and in torch. Without those whose choice among equals torch leaves open (the median of rows,
# kthvalue).
STATISTICS: dict[str, tuple[Call, Call]] = {
    "max": (lambda x: x.max(), lambda x: x.amax()),
    "max of rows": (lambda x: x.max(-1), lambda x: x.amax(-1)),
    "min of columns": (lambda x: x.min(0), lambda x: x.amin(0)),
    "median": (lambda x: x.median(), lambda x: x.median()),
    "sort": (lambda x: x.sort(0)[0], lambda x: torch.sort(x, dim=0, stable=True)[0]),
    "sort down": (
        lambda x: x.sort(-1, descending=True)[0], lambda x: torch.sort(x, dim=-1, stable=True, descending=True)[0],
    ),
    **{
        f"{name} {axis}": (
            lambda x, name=name, axis=axis: getattr(x, name)(axis)[0],
            lambda x, name=name, axis=axis: getattr(x, name)(axis)[0],
        )
        for name in ("cummax", "cummin") for axis in (0, -1)
    },
    "maximum": (lambda x: x.maximum(x.flip(0)), lambda x: x.maximum(x.flip(0))),
}  # fmt: skip
INPUTS = {
    "few values": RNG.integers(0, 3, (7, 6)), "all equal": np.ones((4, 5)),
    "falling": np.arange(12)[::-1].reshape(3, 4), "one": np.array([[2.0]]),
    "long": RNG.integers(0, 9, (70, 3)), "rows": RNG.integers(0, 9, (4, 130)),
    "deep": RNG.integers(0, 4, (3, 33, 4)), "many rows": RNG.integers(0, 4, (300, 20)),
    "beside": RNG.integers(0, 4, (64, 130)),
}  # fmt: skip


def assert_same_gradient(ours: Call, theirs: Call, values: np.ndarray[Any, Any]) -> None:
    x, y = Tensor(values).clone().realize(), torch.tensor(values, requires_grad=True)
    wanted = theirs(y)
    weights = RNG.standard_normal(tuple(wanted.shape)).astype(values.dtype)
    (want,) = torch.autograd.grad((wanted * torch.tensor(weights)).sum(), y)
    made = ours(x)
    (got,) = (made * Tensor(weights)).sum().gradient(x)
    tolerance = 1e-2 if values.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(made.numpy(), wanted.detach().numpy())


@pytest.mark.parametrize("values", INPUTS)
@pytest.mark.parametrize("name", STATISTICS)
def test_gradients_among_equal_elements(name: str, values: str) -> None:
    assert_same_gradient(*STATISTICS[name], INPUTS[values].astype(np.float32))


@pytest.mark.parametrize("name", ["median", "cummax 0", "cummin 0"])
def test_gradients_of_nan(name: str) -> None:
    values = np.array([1.0, 3.0, np.nan, 5.0, np.nan, 4.0], dtype=np.float32)
    assert_same_gradient(*STATISTICS[name], values)
    assert_same_gradient(*STATISTICS[name], np.array([np.inf, 1.0, np.inf, -np.inf], dtype=np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("name", ["median", "cummax 0", "cummin -1"])
def test_gradients_of_other_dtypes(name: str, dtype: str) -> None:
    assert_same_gradient(*STATISTICS[name], INPUTS["few values"].astype(dtype))


@pytest.mark.parametrize(("shape", "axis"), [((200, 512), 0), ((3, 200, 256), 1), ((2, 90, 4, 80), 1)])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_scans_along_other_axes_copy_nothing(name: str, shape: tuple[int, ...], axis: int) -> None:
    values = RNG.integers(-50, 50, shape).astype(np.float32)
    x = Tensor(values).clone().realize()
    GlobalCounters.reset()
    value, index = getattr(x, name)(axis)
    value.realize(index)
    # The scan reads x and writes int32; reading the values at the indices reads both and writes as much.
    assert GlobalCounters.kernel_count == (2 if name == "cummax" else 3)  # cummin scans the numbers negated
    choose = np.maximum if name == "cummax" else np.minimum
    np.testing.assert_array_equal(value.numpy(), choose.accumulate(values, axis))
    np.testing.assert_array_equal(np.take_along_axis(values, index.numpy().astype(np.int64), axis), value.numpy())


def test_a_median_of_integers_and_of_constants() -> None:
    assert Tensor([3, 1, 2]).median().item() == 2
    assert Tensor(4.0).median().item() == 4.0
    assert (Tensor([1, 2, 3]) * 1.5).median().item() == 3.0
