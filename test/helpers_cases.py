"""Cases of operations: our call beside what numpy or torch gives; and the arrays that they share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor

RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(3, 4)).astype(np.float32)
ROW = RNG.normal(size=(4,)).astype(np.float32)
INTS = RNG.integers(-9, 9, size=(3, 4)).astype(np.int32)
POSITIVE = RNG.integers(1, 5, size=(4,)).astype(np.int32)
BYTES = INTS.astype(np.uint8)
BOOLS = FLOATS > 0
EMPTY = np.zeros((0, 3), dtype=np.float32)
INDEX = np.random.default_rng(1).integers(0, 3, size=(2, 4))
IMAGES = RNG.normal(size=(2, 3, 7, 8)).astype(np.float32)
INF, NAN = math.inf, math.nan

Case = tuple[str, Callable[[], Any], Any]


def arrays(x: Any) -> list[np.ndarray]:
    if isinstance(x, (tuple, list)):
        return [a for y in x for a in arrays(y)]
    if isinstance(x, Tensor):
        return [x.numpy()]
    return [x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)]


def assert_case(case: Case, tolerance: float = 1e-5) -> None:
    _, ours, expected = case
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = arrays(expected() if callable(expected) else expected)
    found = arrays(ours())
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype.kind == b.dtype.kind, f"{a.dtype}, not {b.dtype}"
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def section(rows: list[Case]) -> Any:
    return pytest.mark.parametrize("case", rows, ids=[row[0] for row in rows])


def f32(x: Any) -> np.ndarray:
    return np.asarray(x, dtype=np.float32)


def i32(x: Any) -> np.ndarray:
    return np.asarray(x, dtype=np.int32)


t = torch.tensor


def with_int_indices(result: Any) -> Any:
    """Return (values, indices) of torch with the indices as int32, as ours are."""
    return result[0], result[1].int()
