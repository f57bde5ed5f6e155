"""Norms and deviations: gradients where a length is 0, and halves whose squares have no place in their dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes

NORMS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda t: t.norm(),
    "norm 3": lambda t: t.norm(3),
    "rows": lambda t: t.norm(2, 1),
    "dist": lambda t: t.dist(t.detach()),
    "renorm": lambda t: t.renorm(2, 0, 1.0),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("scale", [0, 1])
def test_gradients_are_those_of_torch_at_0_too(name: str, scale: int) -> None:
    array = np.sin(np.arange(12, dtype=np.float32)).reshape(3, 4) * scale
    ours, theirs = Tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    for t in (ours, theirs):
        (NORMS[name](t).sum() + t.sum()).backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-6)


HALVES: dict[str, Callable[[Any], Any]] = {
    "norm": lambda t: t.norm(),
    "norm 3": lambda t: t.norm(3),
    "std": lambda t: t.std(),
    "row": lambda t: t.reshape(1, -1).norm(2, 1),
}


@pytest.mark.parametrize("name", HALVES)
def test_halves_whose_squares_overflow(name: str) -> None:
    values = [300.0, 400.0, -5000.0]
    got = HALVES[name](Tensor(values, dtype=dtypes.float16))
    assert got.dtype is dtypes.float16
    wanted = HALVES[name](torch.tensor(values, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-3)


def test_normalized_halves() -> None:
    values = Tensor([[300.0, 400.0]], dtype=dtypes.float16)
    unit = values.normalize()
    assert unit.dtype is dtypes.float16
    np.testing.assert_allclose(unit.numpy(), [[0.6, 0.8]], rtol=1e-3)
    np.testing.assert_allclose(values.cosine_similarity(values).numpy(), [1.0], rtol=1e-3)


def test_quantiles_and_covariances_of_what_has_none() -> None:
    with pytest.raises(ValueError, match=r"quantile: q=1\.5"):
        Tensor.rand(4).quantile(1.5)
    with pytest.raises(ValueError, match=r"cov: shape \(2, 2, 2\)"):
        Tensor.ones(2, 2, 2).cov()
