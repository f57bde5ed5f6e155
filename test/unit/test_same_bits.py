"""The CPU gives the bits that PYTHON, the definition of the IR, gives: elementwise code of every kind and dtype."""

from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType
from tinygrad.helpers import Context

_RNG = np.random.default_rng(11)
FLOATS = np.concatenate([
    _RNG.normal(size=37) * 10.0 ** _RNG.uniform(-3, 3, 37),
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1e-40, 3e38, -3e38, 1e9, 3e9, -3e9, 1e19, 300.7, -129.0, np.inf, -np.inf, np.nan],
]).astype(np.float32)
INTS = np.array(
    [0, 1, -1, 7, -7, 127, -128, 255, 1 << 15, -(1 << 15), 2**31 - 1, -(2**31), 12345678, -98765432], np.int32
)
NARROW = [dtypes.float16, dtypes.bfloat16, *dtypes.fp8s]
STORED = {dtypes.bfloat16: dtypes.uint16, dtypes.float16: dtypes.uint16, **dict.fromkeys(dtypes.fp8s, dtypes.uint8)}


def assert_same_bits(function: Callable[..., Tensor], *arrays: np.ndarray, arch: str = "") -> None:
    """Run on both devices and compare the stored bits; any NaN equals any other."""
    results = []
    for device in ("CPU", "PYTHON"):
        with Context(**({"DEV": f"PYTHON::{arch}"} if device == "PYTHON" else {})):
            out = function(*(Tensor(a).to(device) for a in arrays)).contiguous().realize()
            results.append((out.numpy(), out.uop.base.buffer.as_memoryview(), out.dtype))
    (cpu, cpu_raw, dtype), (python, python_raw, _) = results
    raw = [np.frombuffer(bits, f"u{dtype.itemsize}")[: cpu.size].reshape(cpu.shape) for bits in (cpu_raw, python_raw)]
    same = (raw[0] == raw[1]) | ((cpu != cpu) & (python != python))
    assert same.all(), f"{(~same).sum()} of {same.size} differ: {cpu[~same][:5]} and {python[~same][:5]}"


@pytest.mark.parametrize(
    "name", ["exp", "exp2", "log", "log2", "sin", "cos", "tan", "sqrt", "reciprocal", "tanh", "sigmoid", "erf", "atan",
             "expm1", "log1p", "trunc", "floor", "round", "relu", "abs", "sign"],
)  # fmt: skip
def test_functions(name: str) -> None:
    assert_same_bits(lambda x: getattr(x, name)(), FLOATS)


@pytest.mark.parametrize("arch", ["vec0", "vec64", "gpu", "threads"])
def test_style_of_the_kernel_does_not_matter(arch: str) -> None:
    assert_same_bits(lambda x: (x.exp() - x * 3).sin() / (x * x + 1), FLOATS, arch=arch)


def test_binary_operations() -> None:
    x, y = FLOATS, np.roll(FLOATS, 5)
    for function in (
        lambda a, b: a + b,
        lambda a, b: a * b - b,
        lambda a, b: a / b,
        lambda a, b: a.maximum(b),
        lambda a, b: a.pow(b),
        lambda a, b: (a < b).where(a, b),
        lambda a, b: (a <= b).cast(dtypes.int8) + a.eq(b) * 2 + (a != b) * 4,
    ):
        assert_same_bits(function, x, y)


@pytest.mark.parametrize("dtype", [*dtypes.ints, dtypes.bool, dtypes.float64], ids=lambda d: d.full_name)
def test_casts_of_floats(dtype: DType) -> None:
    assert_same_bits(lambda x: x.cast(dtype), FLOATS)
    assert_same_bits(lambda x: x.cast(dtype), FLOATS.astype(np.float64) * 1.37)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.full_name)
def test_casts_of_integers(dtype: DType) -> None:
    assert_same_bits(lambda x: x.cast(dtype), INTS)
    assert_same_bits(lambda x: x.cast(dtype), INTS.astype(np.int64) * 1_000_003)
    assert_same_bits(lambda x: x.cast(dtype), INTS.astype(np.uint8))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.full_name)
def test_narrow_floats(dtype: DType) -> None:
    assert_same_bits(lambda x: x.cast(dtype), FLOATS)
    assert_same_bits(lambda x: x.cast(dtype), FLOATS.astype(np.float64) * 1.0000001)
    assert_same_bits(lambda x: (x.cast(dtype) * 1.7 + 0.3) / 3, FLOATS)
    assert_same_bits(lambda x: x.cast(dtype).exp(), FLOATS)
    assert_same_bits(lambda x: x.cast(dtype).cast(dtypes.int32), FLOATS)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.full_name)
def test_every_narrow_bit_pattern_is_read_the_same(dtype: DType) -> None:
    stored = STORED[dtype]
    count = 256 if dtype.itemsize == 1 else 4096
    bits = np.arange(count, dtype=np.uint16) * (1 if dtype.itemsize == 1 else 16)
    bits = bits.astype(np.uint8 if stored is dtypes.uint8 else np.uint16)
    assert_same_bits(lambda x: x.bitcast(dtype).cast(dtypes.float32), bits)


@pytest.mark.parametrize(
    "dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.int64], ids=lambda d: d.full_name
)
def test_integer_arithmetic(dtype: DType) -> None:
    x, y = INTS, np.roll(INTS, 3)
    for function in (
        lambda a, b: a * b + a - b,
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: (a ^ b) | (a & 3),
        lambda a, b: (a >> 2) + (a << 3),
        lambda a, b: a // 7 + a % 8,
        lambda a, b: a.maximum(b),
    ):
        assert_same_bits(lambda a, b, f=function: f(a.cast(dtype), b.cast(dtype)), x, y)


def test_random_bits() -> None:
    results = []
    for device in ("CPU", "PYTHON"):
        Tensor.manual_seed(42)
        results.append(Tensor.rand(3, device=device).tolist())
    assert results[0] == results[1] == pytest.approx([0.53342068, 0.67015517, 0.76307893], abs=1e-8)
