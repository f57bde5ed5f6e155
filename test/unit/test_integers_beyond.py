"""Python ints that an integer tensor's dtype does not hold: exact where the result can be, wrapped or an error else.

Sums, products and bitwise operations wrap, as in torch: the result is that of the number, modulo the range.
Comparisons are exact. Limits that all values keep to limit nothing. Everything else would take another number's value.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, dtypes
from tinygrad.dtype import DType

DTYPES = [
    dtypes.uint8, dtypes.int8, dtypes.uint16, dtypes.int16, dtypes.uint32, dtypes.int32, dtypes.uint64, dtypes.int64,
]  # fmt: skip
NARROW = [d for d in DTYPES if d.bitsize < 32]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_narrow = pytest.mark.parametrize("dtype", NARROW, ids=str)


def values_of(dtype: DType) -> list[int]:
    return [int(dtype.min), 0, 1, 7, int(dtype.max)]


def beyond(dtype: DType) -> list[int]:
    """Return ints outside of the dtype, close to its range and far from it."""
    low, high = int(dtype.min), int(dtype.max)
    return [low - 1, high + 1, low - 300, high + 44, -(2**40) * (dtype.bitsize < 40) + low - 5, high * 2 + 2]


COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@each_dtype
@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_comparisons_are_exact(dtype: DType, compare: Callable[[Any, Any], Any]) -> None:
    values = values_of(dtype)
    tensor = Tensor(values, dtype=dtype)
    for number in beyond(dtype):
        assert compare(tensor, number).tolist() == [compare(v, number) for v in values], number
        assert compare(number, tensor).tolist() == [compare(number, v) for v in values], number


@each_narrow
@pytest.mark.parametrize("name", ["add", "sub", "mul", "and_", "or_", "xor"])
def test_what_can_wrap_wraps(dtype: DType, name: str) -> None:
    apply, values = getattr(operator, name), values_of(dtype)
    tensor = Tensor(values, dtype=dtype)
    for number in (int(dtype.min) - 1, int(dtype.max) + 45, -300 - int(dtype.max)):
        for found, expected in (
            (apply(tensor, number), [apply(v, number) for v in values]),
            (apply(number, tensor), [apply(number, v) for v in values]),
        ):
            assert found.dtype is dtype
            size, low = 1 << dtype.bitsize, int(dtype.min)
            assert found.tolist() == [(v - low) % size + low for v in expected], number


def _assigned(tensor: Tensor, index: Any, number: int) -> Tensor:
    tensor[index] = number
    return tensor


@each_dtype
@pytest.mark.parametrize("name", ["add", "sub", "mul", "and_", "or_", "xor"])
def test_what_a_dtype_holds_keeps_it(dtype: DType, name: str) -> None:
    # Also where the negative of the number is beyond the range.
    apply, values = getattr(operator, name), values_of(dtype)
    tensor, array = Tensor(values, dtype=dtype), np.array(values, dtype.fmt)
    for number in values:
        for found, expected in (
            (apply(tensor, number), apply(array, array.dtype.type(number))),
            (apply(number, tensor), apply(array.dtype.type(number), array)),
        ):
            assert found.dtype is dtype, number
            np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint32, dtypes.int8], ids=str)
def test_sums_and_differences_with_large_numbers_widen_alike(dtype: DType) -> None:
    tensor = Tensor([0, 5], dtype=dtype)
    for number in (2**31, 2**32, -(2**31), -(2**31) - 1, 2**40):
        assert (tensor - number).dtype is (number - tensor).dtype is (tensor + number).dtype
        if (tensor - number).dtype is dtypes.int64:
            assert (tensor - number).tolist() == [-number, 5 - number]


NEED_THE_VALUE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "//": lambda t, n: t // n,
    "r//": lambda t, n: n // t,
    "%": lambda t, n: t % n,
    "fmod": lambda t, n: t.fmod(n),
    "trunc": lambda t, n: t.div(n, rounding_mode="trunc"),
    "r>>": lambda t, n: n >> t,
    "where": lambda t, n: (t > 0).where(t, n),
    "where not": lambda t, n: (t > 0).where(n, t),
    "masked_fill": lambda t, n: t.masked_fill(t > 0, n),
    "full_like": lambda t, n: t.full_like(n),
    "fill_": lambda t, n: t.clone().fill_(n),
    "index_fill": lambda t, n: t.index_fill(0, Tensor([0]), n),
    "scatter": lambda t, n: t.scatter(0, Tensor([0]), n),
    "pad": lambda t, n: t.pad((1, 1), value=n),
    "setitem": lambda t, n: _assigned(t.clone(), 0, n),
    "setitem of a mask": lambda t, n: _assigned(t.clone(), t > 0, n),
    "new_full": lambda t, n: t.new_full((2,), n),
    "threshold": lambda t, n: t.threshold(0, n),
    "full": lambda t, n: Tensor.full((2,), n, dtype=t.dtype),
    "Tensor": lambda t, n: Tensor(n, dtype=t.dtype),
}


@each_narrow
@pytest.mark.parametrize("use", NEED_THE_VALUE.values(), ids=NEED_THE_VALUE.keys())
def test_another_number_is_never_taken_in_its_place(dtype: DType, use: Callable[[Tensor, int], Tensor]) -> None:
    tensor = Tensor(values_of(dtype), dtype=dtype)
    for number in (int(dtype.min) - 1, int(dtype.max) + 45):
        with pytest.raises(OverflowError, match=rf"{number} does not fit {dtype} \({dtype.min} to {dtype.max}\)"):
            use(tensor, number)


@each_dtype
def test_limits_beyond_the_range(dtype: DType) -> None:
    values = values_of(dtype)
    tensor, low, high = Tensor(values, dtype=dtype), int(dtype.min) - 3, int(dtype.max) + 3
    for found in (tensor.clamp(low, high), tensor.maximum(low), tensor.minimum(high), tensor.clip(min_=low)):
        assert found.dtype is dtype
        assert found.tolist() == values
    if dtype in NARROW:
        for unreachable in (lambda: tensor.clamp(min_=high), lambda: tensor.maximum(high), lambda: tensor.minimum(low)):
            with pytest.raises(OverflowError, match="cast the tensor to a wider dtype first"):
                unreachable()


@each_narrow
def test_quotients_that_are_floats(dtype: DType) -> None:
    values, number = values_of(dtype), int(dtype.max) + 45
    tensor = Tensor(values, dtype=dtype)
    np.testing.assert_allclose((tensor / number).numpy(), [v / number for v in values], rtol=1e-6)
    np.testing.assert_allclose((number / tensor).numpy(), [number / v if v else np.inf for v in values], rtol=1e-6)


@each_dtype
@pytest.mark.parametrize("count", [256, 257, 65536, -1, 8 * 8])
def test_shifts_by_the_width_or_more_leave_the_sign(dtype: DType, count: int) -> None:
    values = values_of(dtype)
    tensor = Tensor(values, dtype=dtype)
    assert (tensor << count).tolist() == [0] * len(values)
    assert (tensor >> count).tolist() == [-1 if v < 0 else 0 for v in values]


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_numbers_made_of_loops_go_beyond_32_bits(device: str) -> None:
    """They are index arithmetic until they are cast, which is 32 bits wide on some devices."""
    with Context(DEV=device):
        wide = Tensor.arange(0, 2**40, 2**37, dtype=dtypes.int64)
        assert wide.tolist() == list(range(0, 2**40, 2**37))
        assert (wide // 3).tolist() == [x // 3 for x in range(0, 2**40, 2**37)]
        assert wide.float().tolist() == [float(x) for x in range(0, 2**40, 2**37)]
        assert (Tensor.arange(4, dtype=dtypes.int64) * 2**31 > 2**32).tolist() == [False, False, False, True]
