"""Every dtype under every operation: values against Python's and numpy's arithmetic, dtypes against the lattice.

A table row is an operation on tensors and the same one on Python numbers. All rows of one dtype run in one realize.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType, float_to_int, truncate

ml_dtypes = pytest.importorskip("ml_dtypes")

Array = np.ndarray
FLOATS = list(dtypes.floats)
INTS = list(dtypes.ints)
ALL = [dtypes.bool, *INTS, *FLOATS]
NUMPY: dict[DType, Any] = {dtype: np.dtype(dtype.fmt) for dtype in dtypes.all if dtype.fmt} | {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.fp8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    dtypes.fp8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}
LARGEST = {
    dtypes.fp8e4m3: 448.0, dtypes.fp8e5m2: 57344.0, dtypes.fp8e4m3fnuz: 240.0, dtypes.fp8e5m2fnuz: 57344.0,
    dtypes.float16: 65504.0, dtypes.bfloat16: float.fromhex("0x1.fep127"),
    dtypes.float32: float(np.finfo(np.float32).max), dtypes.float64: float(np.finfo(np.float64).max),
}  # fmt: skip
by_dtype = pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.full_name)
by_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.full_name)
by_int = pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.full_name)


@pytest.fixture(autouse=True)
def quiet_numpy():
    """Infinities, NaN and overflow are what these tests are about."""
    with np.errstate(all="ignore"):
        yield


# ---- values --------------------------------------------------------------------------------------------------------


def round_to(values: Any, dtype: DType) -> Array:
    """Return floats rounded to a float dtype (as float64), by numpy and ml_dtypes; finite overflow of fp8 saturates."""
    exact = np.asarray(values, np.float64)
    if dtype in dtypes.fp8s:
        largest = LARGEST[dtype]
        exact = np.where(np.isfinite(exact), np.clip(exact, -largest, largest), exact)
        if dtype is not dtypes.fp8e5m2:  # these have no infinity
            exact = np.where(np.isinf(exact), np.nan, exact)
    return exact.astype(NUMPY[dtype]).astype(np.float64)


def values_of(dtype: DType) -> list[Any]:
    """Numbers that a dtype holds: its limits and their neighbours, small ones, special ones."""
    if dtype is dtypes.bool:
        return [False, True]
    if dtypes.is_int(dtype):
        near = [dtype.min, dtype.min + 1, -100, -8, -3, -2, -1, 0, 1, 2, 3, 8, 100, dtype.max // 2 + 1, dtype.max]
        near += [2**53 + 1, -(2**53) - 1, 2**63 + 12345]
        return sorted({x for x in near if dtype.min <= x <= dtype.max})
    exponent, mantissa = dtypes.finfo(dtype)
    tiny = 2.0 ** (2 - 2 ** (exponent - 1) - mantissa)
    numbers = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 7.0, 100.0, 1 / 3, tiny, 3 * tiny, LARGEST[dtype], LARGEST[dtype] / 3]
    signed = [*numbers, *(-x for x in numbers), math.inf, -math.inf, math.nan]
    rounded = round_to(signed, dtype)
    return list({repr(x): x for x in rounded.tolist()}.values())


def tensor_of(values: list[Any], dtype: DType) -> Tensor:
    """A realized tensor; the numbers go through numpy's (or ml_dtypes') own storage."""
    array = np.array(values, NUMPY[dtype])
    if dtype.fmt is not None:
        return Tensor(array).clone().realize()
    return Tensor(array.view(np.uint16 if dtype.itemsize == 2 else np.uint8)).clone().bitcast(dtype).realize()


def assert_same(result: Tensor, expected: list[Any], dtype: DType, name: str, inputs: list[Any]) -> None:
    """Compare values and signs of zeros; any NaN is as good as another."""
    assert result.dtype is dtype, f"{name}: dtype {result.dtype}, expected {dtype}"
    got = result.numpy().reshape(-1).tolist()
    assert len(got) == len(expected)
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        same = (a == b and (a != 0 or math.copysign(1, a) == math.copysign(1, b))) or (a != a and b != b)
        assert same, f"{name}{inputs[i]} = {a!r}, expected {b!r}"


def wrapped(dtype: DType, values: list[Any]) -> list[Any]:
    if dtypes.is_float(dtype):
        return round_to(values, dtype).tolist()
    return values if dtype is dtypes.weakint else [truncate[dtype](v) for v in values]


Row = tuple[str, Callable[..., Tensor], Callable[..., Any], DType]


def check_table(rows: list[Row], columns: list[list[Any]], tensors: list[Tensor]) -> None:
    """Run all rows in one realize and compare."""
    inputs = list(zip(*columns, strict=True))
    results = [function(*tensors) for _, function, _, _ in rows]
    Tensor.realize(*[r for r in results if r.dtype not in dtypes.weaks])
    for (name, _, oracle, dtype), result in zip(rows, results, strict=True):
        assert_same(result, wrapped(dtype, [oracle(*x) for x in inputs]), dtype, name, inputs)


# ---- integers and bool ---------------------------------------------------------------------------------------------


def quotient_down(a: int, b: int) -> int:
    return a // b if b else 0


def remainder_down(a: int, b: int) -> int:
    return a % b if b else a


def quotient_to_zero(a: int, b: int) -> int:
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0


def integer_rows(dtype: DType) -> list[Row]:
    bits, small = dtype.bitsize, (dtypes.uint32 if dtypes.is_unsigned(dtype) else dtypes.int32)
    summed = dtype if bits >= 32 else small
    default = dtypes.float32

    def shift(a: int, count: int, left: bool) -> int:
        if 0 <= count < bits:
            return a << count if left else a >> count
        return 0 if left or a >= 0 else -1  # too far, or a negative count

    return [
        ("add", lambda a, b: a + b, lambda a, b: a + b, dtype),
        ("sub", lambda a, b: a - b, lambda a, b: a - b, dtype),
        ("mul", lambda a, b: a * b, lambda a, b: a * b, dtype),
        ("floordiv", lambda a, b: a // b, quotient_down, dtype),
        ("mod", lambda a, b: a % b, remainder_down, dtype),
        ("div trunc", lambda a, b: a.div(b, rounding_mode="trunc"), quotient_to_zero, dtype),
        ("fmod", lambda a, b: a.fmod(b), lambda a, b: a - quotient_to_zero(a, b) * b, dtype),
        ("and", lambda a, b: a & b, lambda a, b: a & b, dtype),
        ("or", lambda a, b: a | b, lambda a, b: a | b, dtype),
        ("xor", lambda a, b: a ^ b, lambda a, b: a ^ b, dtype),
        ("lshift", lambda a, b: a << b, lambda a, b: shift(a, b, True), dtype),
        ("rshift", lambda a, b: a >> b, lambda a, b: shift(a, b, False), dtype),
        ("maximum", lambda a, b: a.maximum(b), max, dtype),
        ("minimum", lambda a, b: a.minimum(b), min, dtype),
        ("pow", lambda a, b: a.pow(b & 31), lambda a, b: a ** (b & 31), dtype),
        ("divide", lambda a, b: a / b, lambda a, b: np.float64(np.float32(a)) / np.float64(np.float32(b)), default),
        ("lt", lambda a, b: a < b, lambda a, b: a < b, dtypes.bool),
        ("le", lambda a, b: a <= b, lambda a, b: a <= b, dtypes.bool),
        ("gt", lambda a, b: a > b, lambda a, b: a > b, dtypes.bool),
        ("ge", lambda a, b: a >= b, lambda a, b: a >= b, dtypes.bool),
        ("eq", lambda a, b: a == b, lambda a, b: a == b, dtypes.bool),
        ("ne", lambda a, b: a != b, lambda a, b: a != b, dtypes.bool),
        ("where", lambda a, b: (a < b).where(a, b * 2), lambda a, b: a if a < b else b * 2, dtype),
        ("neg", lambda a, b: -a, lambda a, b: -a, dtype),
        ("abs", lambda a, b: a.abs(), lambda a, b: abs(a), dtype),
        ("sign", lambda a, b: a.sign(), lambda a, b: (a > 0) - (a < 0), dtype),
        ("square", lambda a, b: a.square(), lambda a, b: a * a, dtype),
        ("not", lambda a, b: ~a, lambda a, b: ~a, dtype),
        ("logical_not", lambda a, b: a.logical_not(), lambda a, b: not a, dtypes.bool),
        ("relu", lambda a, b: a.relu(), lambda a, b: max(a, 0), dtype),
        ("clamp", lambda a, b: a.clamp(1, 100), lambda a, b: min(max(a, 1), 100), dtype),
        ("trunc", lambda a, b: a.trunc(), lambda a, b: a, dtype),
        ("floor", lambda a, b: a.floor(), lambda a, b: a, dtype),
        ("ceil", lambda a, b: a.ceil(), lambda a, b: a, dtype),
        ("by 7", lambda a, b: a // 7 + a % 7, lambda a, b: a // 7 + a % 7, dtype),
        ("by 8", lambda a, b: a // 8 - a % 8, lambda a, b: a // 8 - a % 8, dtype),
        ("shift by 3", lambda a, b: (a << 3) ^ (a >> 3), lambda a, b: (a << 3) ^ (a >> 3), dtype),
        ("cube", lambda a, b: a**3, lambda a, b: a**3, dtype),
        ("isnan", lambda a, b: a.isnan() | a.isinf() | ~a.isfinite(), lambda a, b: False, dtypes.bool),
        ("sum of one", lambda a, b: a.reshape(-1, 1).sum(1), lambda a, b: a, summed),
    ]


@by_int
def test_integer_operations(dtype: DType) -> None:
    pairs = list(itertools.product(values_of(dtype), repeat=2))
    columns = [[a for a, _ in pairs], [b for _, b in pairs]]
    rows = integer_rows(dtype)
    if dtypes.is_unsigned(dtype):  # the comparisons of Python are on numbers that did not wrap
        rows = [row for row in rows if row[0] != "by 8"]
    check_table(rows, columns, [tensor_of(c, dtype) for c in columns])


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS], ids=lambda d: d.full_name)
def test_folded_operations(dtype: DType) -> None:
    """Operations on constants are computed while the graph is built, and give what a kernel gives."""
    pairs = list(itertools.product(values_of(dtype), repeat=2))[3::79]
    rows = integer_rows(dtype) if dtypes.is_int(dtype) else float_rows(dtype)
    results = []
    for name, function, oracle, target in rows:
        if name in {"sum of one", "pow", "sqrt"}:  # nothing to fold; a root is folded in another precision
            continue
        made = [function(Tensor(a, dtype=dtype), Tensor(b, dtype=dtype)) for a, b in pairs]
        results.append((name, Tensor.stack(*made), wrapped(target, [oracle(a, b) for a, b in pairs]), target))
    Tensor.realize(*[r for _, r, _, _ in results])
    for name, result, expected, target in results:
        assert_same(result, expected, target, f"constant {name}", pairs)


@by_int
def test_division_by_constants(dtype: DType) -> None:
    values = values_of(dtype)
    divisors = [d for d in (1, 2, 3, 5, 10, 64, 100, 127, -1, -2, -3, -7, -64, 0) if dtype.min <= d <= dtype.max]
    rows: list[Row] = []
    for d in divisors:
        rows += [
            (f"// {d} ", lambda a, d=d: a // d, lambda a, d=d: quotient_down(a, d), dtype),
            (f"% {d} ", lambda a, d=d: a % d, lambda a, d=d: remainder_down(a, d), dtype),
            (
                f"trunc {d} ",
                lambda a, d=d: a.div(d, rounding_mode="trunc"),
                lambda a, d=d: quotient_to_zero(a, d),
                dtype,
            ),
            (f"{d} // ", lambda a, d=d: d // a, lambda a, d=d: quotient_down(d, a), dtype),
        ]
    check_table(rows, [values], [tensor_of(values, dtype)])


@by_int
def test_shifts_by_constants(dtype: DType) -> None:
    values, bits = values_of(dtype), dtype.bitsize
    rows: list[Row] = []
    for count in (0, 1, bits - 1, bits, bits + 1, 100):
        if count <= dtype.max:
            far = count >= bits
            rows += [
                (f"<< {count} ", lambda a, n=count: a << n, lambda a, n=count, far=far: 0 if far else a << n, dtype),
                (f">> {count} ", lambda a, n=count: a >> n, lambda a, n=count: a >> n, dtype),
            ]
    check_table(rows, [values], [tensor_of(values, dtype)])


def test_bool_operations() -> None:
    pairs = list(itertools.product([False, True], repeat=2))
    columns = [[a for a, _ in pairs], [b for _, b in pairs]]
    rows: list[Row] = [
        ("add", lambda a, b: a + b, lambda a, b: a or b, dtypes.bool),
        ("mul", lambda a, b: a * b, lambda a, b: a and b, dtypes.bool),
        ("and", lambda a, b: a & b, lambda a, b: a and b, dtypes.bool),
        ("or", lambda a, b: a | b, lambda a, b: a or b, dtypes.bool),
        ("xor", lambda a, b: a ^ b, lambda a, b: a != b, dtypes.bool),
        ("not", lambda a, b: ~a, lambda a, b: not a, dtypes.bool),
        ("neg", lambda a, b: -a, lambda a, b: not a, dtypes.bool),
        ("maximum", lambda a, b: a.maximum(b), max, dtypes.bool),
        ("minimum", lambda a, b: a.minimum(b), min, dtypes.bool),
        ("lt", lambda a, b: a < b, lambda a, b: a < b, dtypes.bool),
        ("le", lambda a, b: a <= b, lambda a, b: a <= b, dtypes.bool),
        ("eq", lambda a, b: a == b, lambda a, b: a == b, dtypes.bool),
        ("ne", lambda a, b: a != b, lambda a, b: a != b, dtypes.bool),
        ("where", lambda a, b: a.where(b, ~b), lambda a, b: b if a else not b, dtypes.bool),
        ("divide", lambda a, b: a / b, lambda a, b: np.float64(a) / np.float64(b), dtypes.float32),
        ("abs", lambda a, b: a.abs(), lambda a, b: a, dtypes.bool),
        ("mod", lambda a, b: a % b, lambda a, b: remainder_down(int(a), int(b)), dtypes.weakint),
        ("fmod", lambda a, b: a.fmod(b), lambda a, b: remainder_down(int(a), int(b)), dtypes.weakint),
        ("floordiv", lambda a, b: a // b, lambda a, b: quotient_down(int(a), int(b)), dtypes.weakint),
        ("sum", lambda a, b: a.reshape(-1, 1).sum(1), lambda a, b: int(a), dtypes.int32),
    ]
    check_table(rows, columns, [tensor_of(c, dtypes.bool) for c in columns])


# ---- floats --------------------------------------------------------------------------------------------------------


def float_rows(dtype: DType) -> list[Row]:
    def maximum(a: float, b: float) -> float:
        return math.nan if a != a or b != b else max(a, b)

    def sign(a: float) -> float:
        return a if a != a else float(a > 0) - float(a < 0)

    f = np.float64
    return [
        ("add", lambda a, b: a + b, lambda a, b: f(a) + b, dtype),
        ("sub", lambda a, b: a - b, lambda a, b: f(a) - b, dtype),
        ("mul", lambda a, b: a * b, lambda a, b: f(a) * b, dtype),
        ("divide", lambda a, b: a / b, lambda a, b: f(a) / f(b), dtype),
        ("floordiv", lambda a, b: a // b, lambda a, b: np.floor_divide(f(a), f(b)), dtype),
        ("div trunc", lambda a, b: a.div(b, rounding_mode="trunc"),
         lambda a, b: np.trunc(round_to(f(a) / f(b), dtype)), dtype),
        ("mod", lambda a, b: a % b, lambda a, b: np.mod(f(a), f(b)), dtype),
        ("fmod", lambda a, b: a.fmod(b), lambda a, b: np.fmod(f(a), f(b)), dtype),
        ("maximum", lambda a, b: a.maximum(b) + 0.0, lambda a, b: maximum(a, b) + 0.0, dtype),
        ("minimum", lambda a, b: a.minimum(b) + 0.0, lambda a, b: -maximum(-a, -b) + 0.0, dtype),
        ("lt", lambda a, b: a < b, lambda a, b: a < b, dtypes.bool),
        ("le", lambda a, b: a <= b, lambda a, b: a <= b, dtypes.bool),
        ("gt", lambda a, b: a > b, lambda a, b: a > b, dtypes.bool),
        ("ge", lambda a, b: a >= b, lambda a, b: a >= b, dtypes.bool),
        ("eq", lambda a, b: a == b, lambda a, b: a == b, dtypes.bool),
        ("ne", lambda a, b: a != b, lambda a, b: a != b, dtypes.bool),
        ("where", lambda a, b: (a < b).where(a, b), lambda a, b: a if a < b else b, dtype),
        ("copysign", lambda a, b: a.copysign(b.isnan().where(1.0, b)),  # the sign of a NaN means nothing
         lambda a, b: math.copysign(a, 1.0 if b != b else b), dtype),
        ("neg", lambda a, b: -a, lambda a, b: -a, dtype),
        ("abs", lambda a, b: a.abs(), lambda a, b: abs(a), dtype),
        ("sign", lambda a, b: a.sign(), lambda a, b: sign(a), dtype),
        ("square", lambda a, b: a.square(), lambda a, b: f(a) * a, dtype),
        ("sqrt", lambda a, b: a.sqrt(), lambda a, b: np.sqrt(f(a)), dtype),
        ("reciprocal", lambda a, b: a.reciprocal(), lambda a, b: 1 / f(a), dtype),
        ("trunc", lambda a, b: a.trunc(), lambda a, b: np.trunc(a), dtype),
        ("floor", lambda a, b: a.floor(), lambda a, b: np.floor(a), dtype),
        ("ceil", lambda a, b: a.ceil(), lambda a, b: np.ceil(a), dtype),
        ("round", lambda a, b: a.round(), lambda a, b: np.round(a), dtype),
        ("isnan", lambda a, b: a.isnan(), lambda a, b: math.isnan(a), dtypes.bool),
        ("isinf", lambda a, b: a.isinf(), lambda a, b: math.isinf(a), dtypes.bool),
        ("isfinite", lambda a, b: a.isfinite(), lambda a, b: math.isfinite(a), dtypes.bool),
        ("logical_not", lambda a, b: a.logical_not(), lambda a, b: not a, dtypes.bool),
        ("relu", lambda a, b: a.relu() + 0.0, lambda a, b: maximum(a, 0.0) + 0.0, dtype),
        ("clamp", lambda a, b: a.clamp(-2.0, 2.0), lambda a, b: a if a != a else min(max(a, -2.0), 2.0), dtype),
        ("times 0", lambda a, b: a * 0, lambda a, b: f(a) * 0, dtype),
        ("plus -0", lambda a, b: a + -0.0, lambda a, b: f(a) + -0.0, dtype),
        ("plus 0", lambda a, b: a + 0.0, lambda a, b: f(a) + 0.0, dtype),
        ("minus itself", lambda a, b: a - a, lambda a, b: f(a) - a, dtype),
        ("by itself", lambda a, b: a / a, lambda a, b: f(a) / f(a), dtype),
        ("0 by", lambda a, b: 0.0 / a, lambda a, b: 0.0 / f(a), dtype),
        ("scalar", lambda a, b: (a * 3 - 1.5) / 2,
         lambda a, b: round_to(round_to(f(a) * 3, dtype) - 1.5, dtype) / 2, dtype),
        ("sum of one", lambda a, b: a.reshape(-1, 1).sum(1), lambda a, b: a, dtype),
    ]  # fmt: skip


@by_float
def test_float_operations(dtype: DType) -> None:
    pairs = list(itertools.product(values_of(dtype), repeat=2))
    columns = [[a for a, _ in pairs], [b for _, b in pairs]]
    check_table(float_rows(dtype), columns, [tensor_of(c, dtype) for c in columns])


@by_float
def test_bit_operations_reject_floats(dtype: DType) -> None:
    x = tensor_of([1.0], dtype)
    for function in (lambda: x & x, lambda: x | 1, lambda: x ^ x, lambda: x << 1, lambda: ~x):
        with pytest.raises(RuntimeError):
            function()


# ---- casts ---------------------------------------------------------------------------------------------------------


def cast_value(value: Any, target: DType) -> Any:
    if target is dtypes.bool:
        return value != 0
    if dtypes.is_int(target):
        return float_to_int(value, target) if isinstance(value, float) else truncate[target](int(value))
    if isinstance(value, int) and target is dtypes.float32:
        return float(np.float32(value))
    return truncate[target](value) if isinstance(value, int) else round_to(value, target)[()]


EXTRA = [300.7, -300.7, 255.9, -0.9, 2.0**31, -(2.0**31), 2.0**31 - 0.5, 3e9, 2.0**32, 2.0**62, 2.0**63, -(2.0**63),
         1.5e19, 2.0**64, 1e30, -1e30, -1.5, 65535.4, 65536.0, 70000.0, 464.0, 465.0, 1e-8]  # fmt: skip


@by_dtype
def test_casts(dtype: DType) -> None:
    """To every dtype: out of a buffer, and folded from constants."""
    values = values_of(dtype)
    if dtypes.is_float(dtype):
        values = list({repr(x): x for x in [*values, *round_to(EXTRA, dtype).tolist()]}.values())
    x = tensor_of(values, dtype)
    results = {target: x.cast(target) for target in ALL}
    folded = {target: [Tensor(v, dtype=dtype).cast(target) for v in values] for target in ALL}
    arrays = {target: Tensor.stack(*row) for target, row in folded.items()}
    Tensor.realize(*results.values(), *arrays.values())
    for target, result in results.items():
        expected = [cast_value(v, target) for v in values]
        assert_same(result, expected, target, f"{dtype} to {target} of ", values)
        assert_same(arrays[target], expected, target, f"constant {dtype} to {target} of ", values)


def test_integers_round_once_to_floats() -> None:
    """Integers beyond 2**53 and 2**24, and at the middles between neighbours."""
    values = [2**53 + 1, 2**53 + 3, 2**54 + 2, 2**63 - 1, -(2**63), 2**24 + 1, 2**24 + 3, 2**40 + 2**16,
              2**40 + 2**16 + 1, 65519, 65520, 2**60 + 2**36, 2**60 + 2**36 + 1, -(2**60) - 2**36 - 1]  # fmt: skip
    x = tensor_of(values, dtypes.int64)
    targets = [dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16]
    results = [x.cast(target) for target in targets]
    Tensor.realize(*results)
    for target, result in zip(targets, results, strict=True):
        expected = [truncate[target](v) for v in values]
        assert result.float().tolist() == expected if target is not dtypes.float64 else result.tolist() == expected


def test_known_conversions() -> None:
    """The rule of docs/developer/numerics.md, as plain numbers."""
    x = Tensor([3e9, 300.7, math.inf, math.nan, -1.0, -300.7]).realize()
    assert x.cast(dtypes.int32).tolist()[0] == -(2**31)
    assert x.cast(dtypes.int8).tolist() == [0, 44, 0, 0, -1, -44]
    assert x.cast(dtypes.uint8).tolist() == [0, 44, 0, 0, 255, 212]
    assert x.cast(dtypes.int16).tolist()[2:4] == [0, 0]
    assert x.cast(dtypes.uint32).tolist() == [3_000_000_000, 300, 0, 0, 2**32 - 1, 2**32 - 300]
    assert x.cast(dtypes.int64).tolist()[2:4] == [-(2**63)] * 2
    assert x.cast(dtypes.bool).tolist() == [True] * 6
    assert Tensor([-128, 127, 200, -1]).cast(dtypes.uint8).tolist() == [128, 127, 200, 255]
    assert (Tensor.arange(256).cast(dtypes.int8) < 0).sum().item() == 128


@by_dtype
def test_bitcast_round_trip(dtype: DType) -> None:
    if dtype is dtypes.bool:
        return
    unsigned = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[dtype.itemsize]
    count = 256 if dtype.itemsize == 1 else 4096
    step = (1 << (8 * dtype.itemsize)) // count
    bits = (np.arange(count, dtype=np.uint64) * step + (3 if dtype.itemsize > 1 else 0)).astype(NUMPY[unsigned])
    there = Tensor(bits).clone().realize().bitcast(dtype).contiguous().realize()
    expected = bits.view(NUMPY[dtype])
    np.testing.assert_array_equal(there.numpy().astype(np.float64), expected.astype(np.float64))
    if dtypes.is_int(dtype):
        assert there.bitcast(unsigned).tolist() == bits.tolist()
    halves = Tensor(bits).bitcast(dtypes.uint8)
    assert halves.numpy().tobytes() == bits.tobytes()


# ---- reductions, movement, indexing --------------------------------------------------------------------------------


@by_dtype
def test_reductions(dtype: DType) -> None:
    values = [v for v in values_of(dtype) if v == v and abs(v) < 1000] * 2 or [False, True]
    rows = [values, values[::-1]]
    x = tensor_of([v for row in rows for v in row], dtype).reshape(2, -1)
    summed = dtype if dtypes.is_float(dtype) or dtype.bitsize >= 32 else dtypes.int32
    summed = dtypes.uint32 if dtypes.is_unsigned(dtype) and dtype.bitsize < 32 else summed
    mean = dtype if dtypes.is_float(dtype) else dtypes.float32
    results = {
        "sum": (x.sum(1), [math.fsum(row) for row in rows], summed),
        "max": (x.max(1), [max(row) for row in rows], dtype),
        "min": (x.min(1), [min(row) for row in rows], dtype),
        "any": (x.any(1), [any(row) for row in rows], dtypes.bool),
        "all": (x.all(1), [all(row) for row in rows], dtypes.bool),
        "argmax": (x.argmax(1), [row.index(max(row)) for row in rows], dtypes.int32),
        "argmin": (x.argmin(1), [row.index(min(row)) for row in rows], dtypes.int32),
        "mean": (x.mean(1), [math.fsum(row) / len(row) for row in rows], mean),
    }
    Tensor.realize(*[r for r, _, _ in results.values()])
    for name, (result, expected, wanted) in results.items():
        if wanted is dtypes.float32 or wanted in dtypes.floats:
            assert result.dtype is wanted, name
            tolerance = 2.0 ** -(dtypes.finfo(wanted)[1] - 1)
            # In whatever order n numbers are added, n - 1 sums of at most sum(|x|) are rounded, half in float32.
            fraction_bits = max(dtypes.finfo(wanted)[1], dtypes.finfo(dtypes.float32)[1])
            rounded = (len(values) - 1) * 2.0 ** -(fraction_bits + 1) * math.fsum(abs(float(v)) for v in values)
            np.testing.assert_allclose(
                result.numpy(),
                round_to(expected, wanted),
                rtol=tolerance,
                atol={"sum": rounded, "mean": rounded / len(values)}.get(name, 0),
                err_msg=name,
            )
        else:
            assert_same(result, wrapped(wanted, [int(v) for v in expected]), wanted, name, rows)


@by_int
def test_integer_sums_and_products_wrap(dtype: DType) -> None:
    values = values_of(dtype)
    x = tensor_of(values, dtype)
    total, product = x.sum(), x.prod()
    running, own = x.cumsum(0), x.sum(dtype=dtype)
    Tensor.realize(total, product, running, own)
    assert total.item() == truncate[total.dtype](sum(values))
    assert own.item() == truncate[dtype](sum(values))
    assert own.dtype is product.dtype is dtype
    assert product.item() == truncate[dtype](math.prod(values))
    assert running.tolist() == [truncate[running.dtype](v) for v in itertools.accumulate(values)]


@by_dtype
def test_movement_keeps_bits(dtype: DType) -> None:
    values = (values_of(dtype) * 12)[:12]
    array = np.array(values, NUMPY[dtype]).reshape(3, 4)
    x = tensor_of(values, dtype).reshape(3, 4)
    results = {
        "permute": (x.permute(1, 0), array.T),
        "flip": (x.flip((0, 1)), array[::-1, ::-1]),
        "slice": (x[1:, ::2], array[1:, ::2]),
        "expand": (x[:, None].expand(3, 2, 4), np.broadcast_to(array[:, None], (3, 2, 4))),
        "pad": (x.pad(((1, 0), (0, 2))), np.pad(array.view(f"u{dtype.itemsize}"), ((1, 0), (0, 2))).view(array.dtype)),
        "cat": (x.cat(x.flip(0), dim=0), np.concatenate([array, array[::-1]])),
        "stack": (Tensor.stack(x, x, dim=1), np.stack([array, array], 1)),
        "roll": (x.roll(1, 1), np.roll(array, 1, 1)),
        "repeat": (x.repeat(2, 1), np.tile(array, (2, 1))),
        "tril": (x.tril(), np.where(np.tri(3, 4, dtype=bool), array, np.zeros((), array.dtype))),
        "copy": (x.contiguous(), array),
    }
    Tensor.realize(*[r for r, _ in results.values()])
    for name, (result, expected) in results.items():
        assert result.dtype is dtype, name
        got, wanted = result.numpy().astype(np.float64), np.asarray(expected).astype(np.float64)
        np.testing.assert_array_equal(got, wanted, err_msg=name)
        real = wanted == wanted
        np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(wanted[real]), err_msg=name)


@by_dtype
def test_indexing(dtype: DType) -> None:
    values = (values_of(dtype) * 8)[:8]
    array = np.array(values, NUMPY[dtype]).astype(object if dtypes.is_int(dtype) else np.float64)
    x = tensor_of(values, dtype)
    index = Tensor([5, 0, 3, 3])
    mask = Tensor([True, False, False, True, True, False, True, False])
    written = x.clone()
    written[Tensor([1, 6])] = tensor_of(values[:2], dtype)
    filled = x.clone()
    filled[2:5] = 1
    scattered = x.scatter(0, Tensor([7, 2]), tensor_of(values[:2], dtype))
    one, a = array.copy(), array.copy()
    one[[1, 6]], a[2:5] = array[:2], 1
    moved = array.copy()
    moved[[7, 2]] = array[:2]
    results = {
        "take": (x[index], array[[5, 0, 3, 3]]),
        "gather": (x.gather(0, index), array[[5, 0, 3, 3]]),
        "mask": (x[mask], array[[0, 3, 4, 6]]),
        "masked_fill": (x.masked_fill(mask, False), np.where(mask.numpy(), 0, array)),
        "setitem": (written, one),
        "fill": (filled, a),
        "scatter": (scattered, moved),
        "one": (x[3], array[3]),
    }
    Tensor.realize(*[r for r, _ in results.values()])
    for name, (result, expected) in results.items():
        assert result.dtype is dtype, name
        got = result.numpy()
        np.testing.assert_array_equal(got.astype(array.dtype), np.asarray(expected, array.dtype), err_msg=name)


@by_dtype
def test_sorting(dtype: DType) -> None:
    values = (values_of(dtype) * 3)[:11]
    x = tensor_of(values, dtype)
    up, order = x.sort()
    down, _ = x.sort(descending=True)
    top, _ = x.topk(3)
    Tensor.realize(up, order, down, top)
    key = [(v != v, v if v == v else 0) for v in values]
    wanted = [values[i] for i in sorted(range(len(values)), key=lambda i: key[i])]
    assert up.dtype is dtype
    assert order.dtype is dtypes.int32
    np.testing.assert_array_equal(up.numpy().astype(np.float64), np.array(wanted, np.float64))
    np.testing.assert_array_equal(down.numpy().astype(np.float64), np.array(wanted[::-1], np.float64))
    np.testing.assert_array_equal(top.numpy().astype(np.float64), np.array(wanted[::-1][:3], np.float64))
    picked = [values[i] for i in order.tolist()]
    np.testing.assert_array_equal(np.array(picked, np.float64), np.array(wanted, np.float64))


@by_dtype
def test_matmul(dtype: DType) -> None:
    """Narrow floats accumulate in float32, integers in their own width."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 2 if dtype is dtypes.bool else 5, (4, 6)), rng.integers(0, 2, (6, 3))
    result = tensor_of(a.ravel().tolist(), dtype).reshape(4, 6) @ tensor_of(b.ravel().tolist(), dtype).reshape(6, 3)
    exact = (a @ b > 0) if dtype is dtypes.bool else a @ b  # on bool, sum and product are the logical operations
    expected = round_to(exact, dtype) if dtypes.is_float(dtype) else exact
    np.testing.assert_array_equal(result.numpy().astype(np.float64), expected.astype(np.float64))


# ---- promotion -----------------------------------------------------------------------------------------------------

NAMES = {
    "b1": dtypes.bool, "wi": dtypes.weakint, "i8": dtypes.int8, "u8": dtypes.uint8, "i16": dtypes.int16,
    "u16": dtypes.uint16, "i32": dtypes.int32, "u32": dtypes.uint32, "i64": dtypes.int64, "u64": dtypes.uint64,
    "f64": dtypes.float64,
}  # fmt: skip
EVERY = [*NAMES.values(), dtypes.weakfloat, *dtypes.fp8s, dtypes.float16, dtypes.bfloat16, dtypes.float32]
# Integers by row and column; f64 where a signed integer meets uint64. A float beats every integer and weak float.
INTEGER_TABLE = """
b1  b1  wi  i8  u8  i16 u16 i32 u32 i64 u64
wi  wi  wi  i8  u8  i16 u16 i32 u32 i64 u64
i8  i8  i8  i8  i16 i16 i32 i32 i64 i64 f64
u8  u8  u8  i16 u8  i16 u16 i32 u32 i64 u64
i16 i16 i16 i16 i16 i16 i32 i32 i64 i64 f64
u16 u16 u16 i32 u16 i32 u16 i32 u32 i64 u64
i32 i32 i32 i32 i32 i32 i32 i32 i64 i64 f64
u32 u32 u32 i64 u32 i64 u32 i64 u32 i64 u64
i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 f64
u64 u64 u64 f64 u64 f64 u64 f64 u64 f64 u64
"""


def promotion_table() -> dict[tuple[DType, DType], DType]:
    table = {}
    rows = [line.split() for line in INTEGER_TABLE.strip().splitlines()]
    integers = [row[0] for row in rows]
    for row in rows:
        for column, cell in zip(integers, row[1:], strict=True):
            table[NAMES[row[0]], NAMES[column]] = NAMES[cell]
    order = [*dtypes.fp8s, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
    for a, b in itertools.product(EVERY, repeat=2):
        if (a, b) in table:
            continue
        floats = [d for d in (a, b) if d in dtypes.floats]
        if not floats:
            result = dtypes.weakfloat
        elif len(floats) == 1 or floats[0] is floats[1]:
            result = floats[0]
        elif set(floats) <= set(dtypes.fp8s):
            result = dtypes.float16
        elif set(floats) == {dtypes.float16, dtypes.bfloat16}:
            result = dtypes.float32
        else:
            result = max(floats, key=order.index)
        table[a, b] = result
    return table


def test_promotion_of_every_pair() -> None:
    samples = {d: Tensor([1]).cast(d) if d not in dtypes.weaks else Tensor(1 if d is dtypes.weakint else 1.0)
               for d in EVERY}  # fmt: skip
    for (a, b), expected in promotion_table().items():
        x, y = samples[a], samples[b]
        for name, result in {
            "add": x + y, "mul": x * y, "maximum": x.maximum(y), "minimum": x.minimum(y),
            "where": Tensor([True]).where(x, y),
        }.items():  # fmt: skip
            assert result.dtype is expected, f"{name}({a}, {b}) is {result.dtype}, expected {expected}"
        for result in (x < y, x <= y, x == y, x != y):
            assert result.dtype is dtypes.bool
        if a not in dtypes.weaks and b not in dtypes.weaks:
            assert x.cat(y).dtype is Tensor.stack(x, y).dtype is expected
            assert (x.reshape(1, 1) @ y.reshape(1, 1)).dtype is expected


def test_promoted_values() -> None:
    """Mixed operands are converted before the operation, not after."""
    int64, uint64 = tensor_of([-1, 2**53 + 1], dtypes.int64), tensor_of([2**63, 2], dtypes.uint64)
    both = int64 + uint64
    assert both.dtype is dtypes.float64
    assert both.tolist() == [2.0**63 - 1, 2.0**53 + 2]
    assert (tensor_of([-1], dtypes.int8) + tensor_of([200], dtypes.uint8)).tolist() == [199]
    assert (tensor_of([-1], dtypes.int8) < tensor_of([200], dtypes.uint8)).tolist() == [True]
    assert (tensor_of([-1], dtypes.int32) < tensor_of([2**32 - 1], dtypes.uint32)).tolist() == [True]
    assert (tensor_of([2**24 + 1], dtypes.int32) + tensor_of([0.0], dtypes.float32)).tolist() == [2.0**24]
    assert (tensor_of([1.0], dtypes.float16) + tensor_of([2**-9], dtypes.bfloat16)).tolist() == [1 + 2**-9]
    assert (tensor_of([200], dtypes.uint8) + 100).tolist() == [44]
    assert (tensor_of([1.0], dtypes.float16) + 2049).tolist() == [2048.0]


# ---- large integers ------------------------------------------------------------------------------------------------


def test_uint64_and_int64_beyond_floats() -> None:
    large = [2**63, 2**64 - 1, 2**63 + 2**10 + 1, 2**53 + 1, 0]
    x = tensor_of(large, dtypes.uint64)
    results = [x // 3, x % 1000, x >> 1, x > 2**63, x.maximum(2**63 + 5), x.max(), x.min(), x.argmax(), x + 1, x * 3]
    Tensor.realize(*results)
    assert results[0].tolist() == [v // 3 for v in large]
    assert results[1].tolist() == [v % 1000 for v in large]
    assert results[2].tolist() == [v >> 1 for v in large]
    assert results[3].tolist() == [v > 2**63 for v in large]
    assert results[4].tolist() == [max(v, 2**63 + 5) for v in large]
    assert [r.item() for r in results[5:8]] == [2**64 - 1, 0, 1]
    assert results[8].tolist() == [(v + 1) % 2**64 for v in large]
    assert results[9].tolist() == [v * 3 % 2**64 for v in large]
    signed = [2**53 + 1, -(2**53) - 1, 2**62 + 1]
    y = tensor_of(signed, dtypes.int64)
    assert (y * 2 - y).tolist() == signed
    assert (y == 2**53).tolist() == [False] * 3
    assert y.sort()[0].tolist() == sorted(signed)


def test_literals_widen() -> None:
    assert Tensor([2**40]).dtype is dtypes.int64
    assert Tensor([2**40]).item() == 2**40
    assert Tensor([2**63]).dtype is dtypes.uint64
    assert Tensor(2**63).item() == 2**63
    assert (Tensor([1]) + 2**40).tolist() == [2**40 + 1]
    assert (Tensor([1]) * 2**31).tolist() == [2**31]
    for literal in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError):
            Tensor([literal])
    assert Tensor.full((2,), 2**40).tolist() == [2**40] * 2
    assert (Tensor(1, dtype=dtypes.uint32) << 31).item() == 2**31
    assert (tensor_of([1], dtypes.uint32) << 31).tolist() == [2**31]


@pytest.mark.parametrize("target", [*dtypes.floats, *dtypes.ints, dtypes.bool], ids=str)
@pytest.mark.parametrize("source", dtypes.floats, ids=str)
def test_constants_hold_what_storage_holds(source: DType, target: DType) -> None:
    one = Tensor([1.0], dtype=dtypes.float64).realize()
    for value in (0.1, -2.7, 100.3, 2049.0, 1e-8, 0.0, -0.0):
        if value < 0 and dtypes.is_unsigned(target):
            continue
        constant = Tensor(value, dtype=source).cast(target)
        stored = Tensor([value], dtype=source).realize().cast(target).realize()
        expected = stored.cast(dtypes.float64).numpy()
        np.testing.assert_array_equal((one * constant.cast(dtypes.float64)).numpy(), expected)
        np.testing.assert_array_equal(constant.cast(dtypes.float64).item(), expected[0])
        # Operations on constants are folded: they round like those on stored values.
        third = Tensor([3], dtype=target).realize()
        folded = (constant * Tensor(3, dtype=target)).cast(dtypes.float64)
        if target != dtypes.bool:
            np.testing.assert_array_equal(folded.item(), (stored * third).cast(dtypes.float64).item())


@pytest.mark.parametrize("dtype", dtypes.fp8s, ids=str)
def test_a_fraction_is_cut_to_a_zero_that_the_dtype_has(dtype: DType) -> None:
    has_negative_zero = round_to(-0.0, dtype)[()]
    for x in (Tensor([-0.3], dtype=dtype), Tensor(-0.3, dtype=dtype)):
        cut = np.float64(x.trunc().numpy().reshape(-1)[0])
        assert cut == 0
        assert np.signbit(cut) == np.signbit(has_negative_zero)
