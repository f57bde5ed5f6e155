"""Quotients beside places that a mask fills: 0 / 0 behind a mask is the filling, never NaN."""

from __future__ import annotations

import numpy as np
import pytest

from tinygrad import Context, Tensor, dtypes
from tinygrad.dtype import DType

DEVICES = ["CPU", "CPU:LLVM:x86_64,x86-64", "CPU:LLVM:x86_64,haswell", "PYTHON"]


def operands(n: int, dtype: DType) -> tuple[Tensor, Tensor, np.ndarray]:
    a, b = (np.arange(n) % 5 - 2).astype(np.float32), (np.arange(n) % 3).astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = a / b
    left, right = (Tensor(x).cast(dtype).realize() for x in (a, b))
    return left, right, wanted


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("n", [1, 7, 16, 33, 65])
def test_quotients_between_gaps(n: int, dtype: DType, device: str) -> None:
    tolerance = 1e-2 if dtype.itemsize == 2 else 1e-6
    with Context(DEV=device):
        left, right, wanted = operands(n, dtype)
        quotient = left / right
        np.testing.assert_allclose(quotient.float().numpy(), wanted, tolerance)
        for gap in (1, 2, 3):
            found = quotient.reshape(n, 1).pad(((0, 0), (0, gap))).float().numpy()
            np.testing.assert_allclose(found[:, 0], wanted, tolerance)
            np.testing.assert_array_equal(found[:, 1:], np.zeros((n, gap)))


@pytest.mark.parametrize("n", [6, 7, 13, 14, 28, 30])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (1, 3), (1, 4), (2, 3), (2, 5)])
def test_gradients_of_pools_with_gaps_between_windows(n: int, kernel: int, stride: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(n)
    x = rng.standard_normal((2, 2, n, 13)).astype(np.float32)
    source = torch.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.max_pool2d(source, kernel, stride)
    weights = rng.standard_normal(tuple(wanted.shape)).astype(np.float32)
    (wanted * torch.from_numpy(weights)).sum().backward()
    mine = Tensor(x).realize()
    (found,) = (mine.max_pool2d(kernel, stride) * Tensor(weights).realize()).sum().gradient(mine)
    np.testing.assert_allclose(found.numpy(), source.grad.numpy(), 1e-6)
