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


DEVIATIONS: dict[str, Callable[[Any], Any]] = {
    "std": lambda t: t.std(-1),
    "std without correction": lambda t: t.std(-1, correction=0),
    "std of std_mean": lambda t: Tensor.std_mean(t, -1)[0] if isinstance(t, Tensor) else torch.std_mean(t, -1)[0],
    "mean of std_mean": lambda t: Tensor.std_mean(t, -1)[1] if isinstance(t, Tensor) else torch.std_mean(t, -1)[1],
    "var": lambda t: t.var(-1),
    "var without correction": lambda t: t.var(-1, correction=0),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviations_near_the_largest_number(name: str) -> None:
    # Differences, their squares or the sum of these are beyond float32 where the result is not.
    far = np.array([[3e38, -3e38, 3e38, -3e38], [1e38, 2e38, 3e38, 3.4e38], [-1e-38, 2e-38, 3e-38, 1e-40]], np.float32)
    near = np.array([[1.5e19, -1.5e19, 1.5e19, -1.5e19], [1e18, 2e18, 3e18, 1e19], [1.0, 2.0, 4.0, 8.0]], np.float32)
    values = near if "var" in name else far
    wanted = DEVIATIONS[name](torch.tensor(values, dtype=torch.float64)).numpy()
    expected = np.where(np.abs(wanted) > np.finfo(np.float32).max, np.inf, wanted)
    got = DEVIATIONS[name](Tensor(values))
    assert got.dtype is dtypes.float32
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-45)


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


BASE = np.array([[0.5, -1.25, 2.0, 0.75], [-1.5, 1.0, -0.625, 1.75]])
UPSTREAM = np.array([[1.0, -2.0, 0.5, 0.25], [0.75, 1.5, -1.0, 2.0]])
POWERS = [0, 0.5, 1, 1.5, 2, 2.5, 3, 7, 9, -0.5, -1, -2, -3, float("inf"), float("-inf")]
# name: the same function of tensors of both packages, and of what the gradient is weighted with
SCALED: dict[str, Callable[[Any, Any], Any]] = {
    **{f"norm {p}": (lambda t, w, p=p: _norm(t, p, None)) for p in POWERS},
    **{f"norm {p} of rows": (lambda t, w, p=p: _norm(t, p, 1)) for p in POWERS},
    "std": lambda t, w: t.std(1),
    "std of all": lambda t, w: t.std(),
    "normalize": lambda t, w: _normalize(t, 2.0) * w,
    "normalize 3": lambda t, w: _normalize(t, 3.0) * w,
    "normalize 1": lambda t, w: _normalize(t, 1.0) * w,
    "cosine_similarity": lambda t, w: _similarity(t, w),
    "hypot": lambda t, w: t.hypot(t * 0.75) * w,
    "softplus": lambda t, w: _softplus(t) * w,
    "logsumexp": lambda t, w: t.logsumexp(1) * w[:, 0],
    "logaddexp": lambda t, w: t.logaddexp(t * 0.5) * w,
    "cross-entropy": lambda t, w: -t.log_softmax(1)[:, 1],
}  # fmt: skip


def _norm(t: Any, p: float, dim: int | None) -> Any:
    return t.norm(p, dim) if isinstance(t, Tensor) else torch.linalg.vector_norm(t, p, dim)


def _normalize(t: Any, p: float) -> Any:
    normalize = Tensor.normalize if isinstance(t, Tensor) else torch.nn.functional.normalize
    return normalize(t, p, 1, 0.0)


def _similarity(t: Any, other: Any) -> Any:
    similarity = Tensor.cosine_similarity if isinstance(t, Tensor) else torch.nn.functional.cosine_similarity
    return similarity(t, other, 1, 0.0)


def _softplus(t: Any) -> Any:
    return t.softplus() if isinstance(t, Tensor) else torch.nn.functional.softplus(t)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e20, 1e-20])
def test_numbers_whose_powers_have_no_place(name: str, scale: float) -> None:
    """Values and gradients of float32 are those of float64, rounded."""
    array = (BASE * scale).astype(np.float32)
    ours, theirs = Tensor(array), torch.tensor(array, dtype=torch.float64, requires_grad=True)
    found = SCALED[name](ours, Tensor(UPSTREAM.astype(np.float32)))
    wanted = SCALED[name](theirs, torch.tensor(UPSTREAM))
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=2e-5, atol=2e-38)
    slopes = found.sum().gradient(ours)[0].numpy()
    (wanted.sum() + 0 * theirs.sum()).backward()  # a count alone has no gradient
    assert theirs.grad is not None
    largest = theirs.grad.abs().max().item()
    np.testing.assert_allclose(slopes, theirs.grad.numpy(), rtol=2e-4, atol=2e-6 * largest + 2e-38)


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float64])
def test_squares_of_other_dtypes(dtype: Any) -> None:
    scale = 1e30 if dtype is dtypes.bfloat16 else 1e100
    x = Tensor((BASE * scale).tolist(), dtype=dtype)
    np.testing.assert_allclose(x.norm().float().numpy() if scale == 1e30 else x.norm().numpy(),
                               np.linalg.norm(BASE) * scale, rtol=1e-2)  # fmt: skip


@pytest.mark.parametrize("values", [[1e25, 1e25, 0.0], [1e30, -1.0], [3e38] * 4])
def test_gradients_of_norms_that_are_out_of_range(values: list[float]) -> None:
    tensor, source = Tensor(values), torch.tensor(values, dtype=torch.float64, requires_grad=True)
    source.norm().backward()
    assert source.grad is not None
    (found,) = tensor.norm().gradient(tensor)
    np.testing.assert_allclose(found.numpy(), source.grad.numpy(), rtol=1e-6)
