"""Functions that make floats of integers compute in floats: nothing wraps on the way, in unsigned and narrow dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes

VALUES: dict[str, list[Any]] = {
    "bool": [False, True, True, False],
    "uint8": [0, 1, 5, 255],
    "int8": [-128, -1, 5, 127],
    "uint16": [0, 1, 300, 65535],
    "int16": [-32768, -1, 300, 32767],
    "uint32": [0, 1, 2**31, 2**32 - 1],
    "uint64": [0, 1, 2**40, 2**64 - 1],
}
FUNCTIONS = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "celu", "elu", "erf", "expm1", "exp2", "exp", "gelu",
    "hardsigmoid", "hardswish", "log", "log10", "log1p", "log2", "log_softmax", "logit", "logsigmoid", "logsumexp",
    "mean", "mish", "nanmean", "norm", "quick_gelu", "reciprocal", "rsqrt", "selu", "sigmoid", "silu", "sinc",
    "softmax", "softmin", "softplus", "softsign", "sqrt", "std", "tanh", "trapezoid", "cumulative_trapezoid", "var",
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", VALUES)
def test_as_for_floats_of_the_same_values(name: str, dtype: str) -> None:
    if (name, dtype) in {("norm", "uint64"), ("std", "uint64"), ("var", "uint64")}:
        pytest.skip("squares of the largest integers are no float32")
    found = getattr(Tensor(VALUES[dtype], dtype=dtype), name)()
    assert dtypes.is_float(found.dtype)
    wide = Tensor([float(x) for x in VALUES[dtype]], dtype="float64")
    with np.errstate(over="ignore"):
        expected = getattr(wide, name)().numpy().astype(np.float32)
    np.testing.assert_allclose(found.numpy().astype(np.float32), expected, rtol=1e-4, atol=1e-5)


def test_places_of_a_trapezoid_may_fall() -> None:
    places = Tensor([5, 3, 0], dtype=dtypes.uint8)
    assert Tensor([200, 200, 200], dtype=dtypes.uint8).trapezoid(places).item() == -1000.0
