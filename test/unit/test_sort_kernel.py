"""Sorting at sizes that a kernel of its own takes, and that runs, blocks and the other dtypes go around."""

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.mixin.sort_kernel import LONGEST
from tinygrad.uop import Ops

RNG = np.random.default_rng(5)
# Fewer rows than lanes, a rest of rows, one row, two columns; columns that are no power of two; an axis inside.
SHAPES = [((3, 700), 1), ((21, 64), 1), ((1500,), 0), ((600, 2), 1), ((4, 130, 5), 1), ((LONGEST,), 0)]
BEYOND = [((2, LONGEST + 1), 1), ((3 * LONGEST,), 0)]  # merged runs


def has_kernel(x: Tensor) -> bool:
    bodies = [u.src[0] for u in x.uop.toposort() if u.op is Ops.CALL]
    return any(body.op is Ops.SINK and body.arg.name.startswith("sort_") for body in bodies)


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    if kind.kind != "f":
        limits = np.iinfo(kind)
        wide = RNG.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
        return np.where(RNG.random(shape) < 0.5, wide, RNG.integers(0, 3, shape).astype(kind))
    x = np.round(RNG.standard_normal(shape) * 8).astype(kind)  # many equal ones
    for special in (np.nan, -np.nan, np.inf, -np.inf, -0.0, np.finfo(kind).smallest_subnormal):
        x.flat[RNG.integers(0, x.size, 3)] = special
    return x


def stable_order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Backwards, what was last of equal ones is first of them again; NaN comes first.
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


@pytest.mark.parametrize(("shape", "axis"), SHAPES + BEYOND, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_like_numpy(shape: tuple[int, ...], axis: int, descending: bool) -> None:
    x = values(shape, "float32")
    found, index = Tensor(x).sort(axis, descending)
    assert has_kernel(index)
    wanted = stable_order(x, axis, descending)
    np.testing.assert_array_equal(index.numpy(), wanted)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(x, wanted, axis))


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "int64", "uint64", "float64"]
)
def test_dtypes(dtype: str) -> None:
    x = values((5, 300), dtype)
    for descending in (False, True):
        index = Tensor(x).argsort(1, descending)
        assert has_kernel(index) is (np.dtype(dtype).itemsize <= 4)
        np.testing.assert_array_equal(index.numpy(), stable_order(x, 1, descending))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize(("shape", "k"), [((2, 3000), 1), ((7, 1030), 50), ((3, 700), 174), ((3, 700), 175)])
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_few(dtype: str, shape: tuple[int, int], k: int, largest: bool) -> None:
    x = values(shape, dtype)
    found, index = Tensor(x).topk(k, 1, largest)
    wanted = stable_order(x, 1, largest)[:, :k]
    np.testing.assert_array_equal(index.numpy(), wanted)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(x, wanted, 1))


def test_few_elements_need_no_kernel() -> None:
    assert not has_kernel(Tensor.empty(4, 10).sort()[1])


def test_on_the_reference_device() -> None:
    x = values((9, 120), "float32")
    index = Tensor(x, device="PYTHON").argsort(1)
    assert has_kernel(index)
    np.testing.assert_array_equal(index.numpy(), stable_order(x, 1, False))


def test_gradients_come_from_where_values_came_from() -> None:
    x = Tensor(values((8, 200), "float16").astype(np.float32)).nan_to_num()
    weight = Tensor(RNG.standard_normal((8, 200)), dtype=dtypes.float32)
    found, index = x.sort(1)
    (grad,) = (found * weight).sum().gradient(x)
    wanted = np.zeros((8, 200), np.float32)
    np.put_along_axis(wanted, index.numpy(), weight.numpy(), 1)
    np.testing.assert_array_equal(grad.numpy(), wanted)
