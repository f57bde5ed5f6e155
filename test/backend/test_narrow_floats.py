"""Narrow floats: a sum that leaves their range is right where what is made of it lies inside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType

F16 = dtypes.float16
COUNT = 70_000  # more ones than the largest half, 65504


def large(*shape: int) -> Tensor:
    """Halves of which two are more than the largest one."""
    return Tensor.full(shape, 40_000.0, dtype=F16).contiguous()


def zeros(count: int) -> Tensor:
    return Tensor.zeros(count, dtype=dtypes.int32)


# name -> (a mean of equal halves, what each of them is)
MEANS: dict[str, tuple[Callable[[], Tensor], float]] = {
    "mean": (lambda: large(8).mean(), 40_000),
    "nanmean": (lambda: large(8).nanmean(), 40_000),
    "avg_pool2d": (lambda: large(1, 1, 4, 4).avg_pool2d(2), 40_000),
    "avg_pool2d-inner": (
        lambda: large(1, 1, 4, 4).avg_pool2d(2, padding=1, count_include_pad=False)[0, 0, 1], 40_000,
    ),
    "avg_pool2d-ceil": (lambda: large(1, 1, 5, 5).avg_pool2d(2, ceil_mode=True), 40_000),
    "avg_pool2d-divisor": (lambda: large(1, 1, 4, 4).avg_pool2d(2, divisor_override=8), 20_000),
    "adaptive_avg_pool2d": (lambda: large(1, 1, 5, 5).adaptive_avg_pool2d(3), 40_000),
    "interpolate-area": (lambda: large(1, 1, 5, 5).interpolate((2, 2), mode="area"), 40_000),
    "scatter_reduce": (
        lambda: large(1).scatter_reduce(0, zeros(4), large(4), "mean", include_self=False), 40_000,
    ),
    "scatter_reduce-many": (lambda: large(600).scatter_reduce(0, zeros(600), large(600), "mean"), 40_000),
    "embedding_bag": (lambda: Tensor([[0, 1, 0]]).embedding_bag(large(2, 3)), 40_000),
    "mse_loss": (lambda: (large(4) * 0).mse_loss(large(4) * 0 + 1, weight=large(4)), 1),
    "cross_entropy": (
        lambda: Tensor([[0.5, -0.5]] * 4, dtype=F16).cross_entropy(zeros(4) + 1, weight=large(2)), 1.31326,
    ),
    "kl_div": (lambda: (large(4, 1) * -1).kl_div(large(4, 1) * 0 + 1, "batchmean"), 40_000),
    "layernorm": (lambda: (large(4) * Tensor([1, -1, 1, -1])).layernorm() * Tensor([1, -1, 1, -1]), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANS)
def test_means_of_large_values(name: str) -> None:
    compute, value = MEANS[name]
    result = compute()
    assert result.dtype == F16
    np.testing.assert_allclose(result.numpy().astype(np.float64), value, rtol=1e-3)


def test_softmax_of_many() -> None:
    x = Tensor.zeros(COUNT, dtype=F16).contiguous()
    share, logarithm = x.softmax(), x.log_softmax()
    assert share.dtype == logarithm.dtype == F16
    np.testing.assert_allclose(share.numpy().astype(np.float64), 1 / COUNT, rtol=1e-2)  # a subnormal half
    np.testing.assert_allclose(logarithm.numpy().astype(np.float64), -np.log(COUNT), rtol=1e-3)
    loss = x.reshape(1, COUNT).cross_entropy(Tensor([3]))
    assert loss.item() == pytest.approx(np.log(COUNT), rel=1e-3)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.full_name)
def test_softmax_rounds_once(dtype: DType) -> None:
    values = np.random.default_rng(5).normal(size=(40, 30)) * 3
    x = Tensor(values).cast(dtype).realize()
    exact = x.double().numpy()
    exact = exact - np.log(np.exp(exact).sum(1, keepdims=True))
    for result, wanted in ((x.log_softmax(), exact), (x.softmax(), np.exp(exact)), (x.neg().softmin(), np.exp(exact))):
        nearest = Tensor(wanted).cast(dtype).double().numpy()
        spacing = np.abs(nearest) * (2.0**-10 if dtype is dtypes.float16 else 2.0**-7)
        assert (np.abs(result.double().numpy() - wanted) <= spacing * 0.51 + 1e-7).all()
