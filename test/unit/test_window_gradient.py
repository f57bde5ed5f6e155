"""Gradients of pooling with windows that overlap, against torch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, Variable, dtypes
from tinygrad.dtype import DType
from tinygrad.uop import Ops

torch = pytest.importorskip("torch")

# size, kernel, stride, padding, dilation
CASES = [
    ((11, 13), (3, 3), 2, 1, 1), ((7, 7), (3, 3), 1, 1, 1), ((3, 3), (3, 3), 1, 0, 1), ((1, 9), (1, 3), 1, 0, 1),
    ((9, 5), (2, 3), 1, 1, 1), ((16, 17), (5, 5), 3, 2, 1), ((11, 13), (3, 2), 1, 1, 2), ((12, 12), (2, 2), 1, 0, 3),
    ((10, 10), (3, 3), (2, 3), 0, 1),
]  # fmt: skip
KINDS = ("max_pool2d", "avg_pool2d")


def gradients(kind: str, case: Any, dtype: DType = dtypes.float32) -> tuple[Tensor, Tensor, Any]:
    """Return input, its gradient, and torch's."""
    size, kernel, stride, padding, dilation = case
    rng = np.random.default_rng(sum(size))
    x = rng.permutation(6 * size[0] * size[1]).reshape(2, 3, *size)  # no two are equal
    theirs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    apart = {"dilation": dilation} if kind == "max_pool2d" else {}
    y = getattr(torch.nn.functional, kind)(theirs, kernel, stride, padding, **apart)
    grad = rng.integers(-8, 9, tuple(y.shape))
    (want,) = torch.autograd.grad(y, theirs, torch.tensor(grad, dtype=torch.float64))
    ours = Tensor(x, dtype=dtype).realize()
    mine = getattr(ours, kind)(kernel, stride=stride, padding=padding, **apart)
    got = mine.gradient(ours, gradient=Tensor(grad, dtype=dtype).realize())[0]
    return ours, got, want.numpy()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_overlapping_windows(kind: str, case: Any) -> None:
    if kind == "avg_pool2d" and case[-1] != 1:
        pytest.skip("torch has no dilation here")
    _, got, want = gradients(kind, case)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_other_dtypes(kind: str, dtype: DType) -> None:
    _, got, want = gradients(kind, CASES[0], dtype)
    assert got.dtype is dtype
    np.testing.assert_allclose(got.numpy(), want, rtol=5e-3, atol=5e-2 if dtype is dtypes.float16 else 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_not_divided(kind: str) -> None:
    """Each place of the input is a sum over taps: no reduction over repetitions of the input."""
    _, got, _ = gradients(kind, CASES[1])
    last = [call.src[0] for call in got.schedule_linear().src if call.src[0].op is Ops.SINK][-1]
    assert not last.op_in_backward_slice_with_self(Ops.REDUCE)
    assert not last.op_in_backward_slice_with_self(Ops.FLOORMOD)


def test_gradients_of_gradients() -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 6, 7)).astype(np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    first = torch.autograd.grad(
        torch.nn.functional.avg_pool2d(theirs, 3, 2, 1).square().sum(), theirs, create_graph=True
    )[0]
    (want,) = torch.autograd.grad(first.pow(3).sum(), theirs)
    ours = Tensor(x).realize()
    mine = ours.avg_pool2d((3, 3), stride=2, padding=1).square().sum().gradient(ours)[0]
    got = mine.pow(3).sum().gradient(ours)[0]
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_symbolic_batches() -> None:
    x = np.random.default_rng(0).normal(size=(4, 2, 6, 6)).astype(np.float32)
    n = Variable("n", 1, 4).bind(3)
    got = Tensor(x).realize()[:n].avg_pool2d((3, 3), stride=1).sum().item()
    want = torch.nn.functional.avg_pool2d(torch.tensor(x[:3]), 3, 1).sum().item()
    assert abs(got - want) < 1e-3


def test_windows_of_integers_and_indices() -> None:
    x = np.random.default_rng(0).permutation(2 * 9 * 9).reshape(1, 2, 9, 9)
    values, where = Tensor(x.astype(np.int32)).max_pool2d((3, 3), stride=1, return_indices=True)
    want = torch.nn.functional.max_pool2d(torch.tensor(x.astype(np.float32)), 3, 1, return_indices=True)
    np.testing.assert_array_equal(values.numpy(), want[0].numpy())
    np.testing.assert_array_equal(where.numpy(), want[1].numpy())


@pytest.mark.parametrize("size", [1, 3, 4, 7])
@pytest.mark.parametrize("kernel", [1, 2, 5])
@pytest.mark.parametrize("stride", [1, 2, 4, 5])
def test_partial_windows_are_those_of_torch(size: int, kernel: int, stride: int) -> None:
    """With ceil_mode the last window may be longer than what is left, even if it is the only one."""
    x = np.random.default_rng(size).standard_normal((1, 2, size, size)).astype(np.float32)
    for name, padding in itertools.product(("max_pool2d", "avg_pool2d"), range(kernel // 2 + 1)):
        try:
            wanted = getattr(torch.nn.functional, name)(torch.from_numpy(x), kernel, stride, padding, ceil_mode=True)
        except RuntimeError:
            with pytest.raises(ValueError, match="kernel spans"):
                getattr(Tensor(x), name)(kernel, stride, padding=padding, ceil_mode=True)
            continue
        found = getattr(Tensor(x), name)(kernel, stride, padding=padding, ceil_mode=True)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-5, 1e-6)
