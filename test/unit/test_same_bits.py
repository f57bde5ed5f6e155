"""The CPU gives the bits that PYTHON, the definition of the IR, gives: elementwise code of every kind and dtype."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType, strong_dtype
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


def test_a_bool_that_is_stored_and_used_as_a_number() -> None:
    """The byte of a stored bool is unsigned, the number in the same bits is not."""
    flags, numbers = (
        Tensor([True, False] * 8).clone().realize(),
        Tensor(np.arange(-8, 8, dtype=np.int8)).clone().realize(),
    )
    stored = (flags | flags.flip(0)).contiguous()
    larger = stored.maximum(numbers)
    Tensor.realize(stored, larger)
    assert larger.tolist() == [1] * 10 + [2, 3, 4, 5, 6, 7]


def test_random_bits() -> None:
    results = []
    for device in ("CPU", "PYTHON"):
        Tensor.manual_seed(42)
        results.append(Tensor.rand(3, device=device).tolist())
    assert results[0] == results[1] == pytest.approx([0.53342068, 0.67015517, 0.76307893], abs=1e-8)


# ---- random expressions of mixed dtypes ----------------------------------------------------------------------------

MIXED = [dtypes.bool, *dtypes.ints, *dtypes.fp8_ocp, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "maximum": lambda a, b: a.maximum(b),
    "minimum": lambda a, b: a.minimum(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "ne": lambda a, b: a != b,
    "where": lambda a, b: (a > 0).where(a, b),
    "and": lambda a, b: a.cast(dtypes.int16) & b.cast(dtypes.int16),
    "xor": lambda a, b: a.cast(dtypes.uint32) ^ b.cast(dtypes.uint32),
    "shl": lambda a, b: a.cast(dtypes.int32) << b.cast(dtypes.int32),
    "shr": lambda a, b: a.cast(dtypes.int64) >> b.cast(dtypes.int8),
    "pow": lambda a, b: a.float().pow(b.float()),
}
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": lambda a: -a,
    "abs": lambda a: a.abs(),
    "sign": lambda a: a.sign(),
    "round": lambda a: a.round(),
    "floor": lambda a: a.floor(),
    "sqrt": lambda a: a.sqrt(),
    "reciprocal": lambda a: a.reciprocal(),
    "exp2": lambda a: a.exp2(),
    "log": lambda a: a.log(),
    "sin": lambda a: a.sin(),
    "cos": lambda a: a.cos(),
    "tanh": lambda a: a.tanh(),
    "gelu": lambda a: a.gelu(),
    "logical_not": lambda a: a.logical_not(),
    "relu": lambda a: a.relu(),
    "isfinite": lambda a: a.isfinite(),
    "flip": lambda a: a.flip(0),
    "roll": lambda a: a.roll(3, 0),
    "shifted": lambda a: a[1:].pad((1, 0)),
    "maximum of all": lambda a: a - a.max(),
    "scaled": lambda a: a * 3 + 1,
    "halved": lambda a: a * 0.5,
}
STEPS = st.one_of(
    st.tuples(st.sampled_from(list(BINARY)), st.integers(0, 40), st.integers(0, 40)),
    st.tuples(st.sampled_from(list(UNARY)), st.integers(0, 40)),
    st.tuples(st.sampled_from(MIXED), st.integers(0, 40)),
)


def run_steps(leaves: list[Tensor], steps: list[tuple]) -> list[Tensor]:
    """Apply each step to values made before; every one of them is a result."""
    values = list(leaves)
    for kind, *where in steps:
        operands = [values[-1 - i % len(values)] for i in where]
        if isinstance(kind, DType):
            values.append(operands[0].cast(kind))
        else:
            values.append((BINARY.get(kind) or UNARY[kind])(*operands))
    return [x.cast(strong_dtype(x.dtype)).contiguous() for x in values[len(leaves) :]]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(MIXED), min_size=2, max_size=4), st.lists(STEPS, min_size=4, max_size=14))
def test_random_expressions(kinds: list[DType], steps: list[tuple]) -> None:
    everything = np.concatenate([
        FLOATS.astype(np.float64),
        INTS.astype(np.float64),
        [2.0**40, -(2.0**62), 1e300, 1e-310],
    ])
    arrays = [np.roll(everything, 7 * i)[:29] for i in range(len(kinds))]
    results = []
    for device in ("CPU", "PYTHON"):
        with Context(**({"DEV": "PYTHON"} if device == "PYTHON" else {})):
            leaves = [Tensor(a).to(device).cast(k).contiguous() for a, k in zip(arrays, kinds, strict=True)]
            Tensor.realize(*leaves)
            outputs = run_steps(leaves, steps)
            Tensor.realize(*outputs)
            results.append([(x.dtype, x.numpy()) for x in outputs])
    for step, (dtype, cpu), (_, python) in zip(steps, *results, strict=True):
        same = (cpu == python) & (np.signbit(cpu) == np.signbit(python) if dtypes.is_float(dtype) else True)
        same |= (cpu != cpu) & (python != python)
        assert same.all(), f"{step} of {dtype}: {cpu[~same][:4]} and {python[~same][:4]}"
