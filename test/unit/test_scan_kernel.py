"""Cumulative operations at sizes that a kernel takes: whole and partial tiles, cut rows, special values."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes
from tinygrad.uop import Ops

RNG = np.random.default_rng(0)
# Rows enough; a rest in both directions; one row, cut once and twice; a few long rows; many short ones; an axis inside.
SHAPES = [((512, 128), 1), ((300, 131), 1), ((9000,), 0), ((3, 20001), 1), ((2050, 3), 1), ((7, 301, 5), 1)]
# Rows beside each other: few, one block and a rest, many with a rest, several axes inside, one step, all but too long.
BESIDE = [((131, 64), 0), ((63, 67), 0), ((65, 1100), 0), ((5, 127, 7, 11), 1), ((70, 1, 64), 1), ((8193, 64), 0)]
OPERATIONS = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
    "logcumsumexp": np.logaddexp.accumulate,
}


def has_kernel(x: Tensor) -> bool:
    bodies = [u.src[0] for u in x.uop.toposort() if u.op is Ops.CALL]
    return any(body.op is Ops.SINK and body.arg.name.startswith("scan_") for body in bodies)


def result(x: Tensor, operation: str, axis: int) -> Tensor:
    found = getattr(x, operation)(axis)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_like_numpy(operation, shape, axis):
    x = RNG.uniform(0.9, 1.1, shape) if operation == "cumprod" else RNG.standard_normal(shape)
    x = x.astype(np.float32)
    out = result(Tensor(x), operation, axis)
    # The largest of few rows is found by comparing.
    assert has_kernel(out) or operation == "cummax"
    wanted = OPERATIONS[operation](x.astype(np.float64), axis=axis)
    rtol, atol = (4e-5, 0) if operation == "cumprod" else (2e-6, 2e-6 * x.shape[axis] ** 0.5)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("shape", "axis"), [((1024, 4096), 1), ((1024, 4096), 0), ((4, 100, 80), 1), ((2, 64, 9, 9), 1)]
)
@pytest.mark.parametrize("operation", ["cumsum", "cumprod", "logcumsumexp"])
def test_one_kernel_does_it_all(operation, shape, axis):
    assert len(result(Tensor.empty(*shape), operation, axis).schedule_linear().src) == 1


@pytest.mark.parametrize(("shape", "axis"), BESIDE, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_beside_each_other(operation, shape, axis):
    test_like_numpy(operation, shape, axis)


@pytest.mark.parametrize("operation", ["cumsum", "cumprod", "logcumsumexp"])
def test_gradients_of_rows_beside_each_other(operation):
    x = RNG.uniform(0.8, 1.2, (3, 33, 70)).astype(np.float32)
    weight = RNG.standard_normal(x.shape).astype(np.float32)
    ours, theirs = Tensor(x), torch.tensor(x, requires_grad=True)
    (first,) = (result(ours, operation, 1) * Tensor(weight)).sum().gradient(ours)
    (other,) = torch.autograd.grad((getattr(torch, operation)(theirs, 1) * torch.tensor(weight)).sum(), theirs)
    np.testing.assert_allclose(first.numpy(), other.numpy(), rtol=1e-3, atol=1e-3)


def test_sums_do_not_drift():
    x = RNG.uniform(0, 1, (256, 8192)).astype(np.float32)
    np.testing.assert_allclose(Tensor(x).cumsum(1).numpy(), np.cumsum(x.astype(np.float64), axis=1), rtol=8e-7)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float64", "float16"])
def test_dtypes(dtype):
    x = RNG.integers(0, 3, (300, 131)).astype(dtype)
    for operation, wanted in (("cumsum", np.cumsum), ("cummax", np.maximum.accumulate)):
        out = result(Tensor(x), operation, 1)
        assert has_kernel(out)
        assert out.dtype is (Tensor(x).sum() if operation == "cumsum" else Tensor(x)).dtype
        np.testing.assert_array_equal(out.numpy(), wanted(x, axis=1))


def test_special_values_do_not_spread():
    x = np.ones((512, 200), np.float32)
    x[0, 70], x[1, 70], x[2, 130] = np.nan, np.inf, -np.inf
    x[3, 70], x[3, 71] = np.inf, -np.inf
    for operation, wanted in OPERATIONS.items():
        with np.errstate(invalid="ignore"):
            exact = wanted(x.astype(np.float64), axis=1)
        np.testing.assert_allclose(result(Tensor(x), operation, 1).numpy(), exact, rtol=1e-5, err_msg=operation)


def test_index_of_the_largest_is_its_first():
    x = RNG.integers(0, 50, (300, 131)).astype(np.float32)
    x[5, 60:] = np.nan
    x[6] = -np.inf
    value, index = Tensor(x).cummax(1)
    place = np.array([[np.argmax(row[: i + 1]) for i in range(131)] for row in x])
    np.testing.assert_array_equal(index.numpy(), place)
    np.testing.assert_array_equal(value.numpy(), np.take_along_axis(x, place, 1))
    assert index.dtype is dtypes.int32
    smallest, index = Tensor(-x).cummin(1)
    np.testing.assert_array_equal(index.numpy(), place)
    np.testing.assert_array_equal(smallest.numpy(), -np.take_along_axis(x, place, 1))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_gradients_match_torch(operation):
    x = RNG.uniform(0.8, 1.2, (260, 40)).astype(np.float32)
    weight = RNG.standard_normal((260, 40)).astype(np.float32)
    ours, theirs = Tensor(x), torch.tensor(x, requires_grad=True)
    out = result(ours, operation, 1)
    assert has_kernel(out)
    (first,) = (out * Tensor(weight)).sum().gradient(ours)
    (second,) = first.square().sum().gradient(ours)
    found = getattr(torch, operation)(theirs, 1)
    found = found[0] if isinstance(found, tuple) else found
    (other,) = torch.autograd.grad((found * torch.tensor(weight)).sum(), theirs, create_graph=True)
    np.testing.assert_allclose(first.numpy(), other.detach().numpy(), rtol=1e-3, atol=1e-3)
    if operation in ("cumprod", "logcumsumexp"):
        (other,) = torch.autograd.grad(other.square().sum(), theirs)
        np.testing.assert_allclose(second.numpy(), other.numpy(), rtol=1e-2, atol=np.abs(other.numpy()).max() * 1e-5)
