"""64-bit integers of two words give the bits of native ones: numbers, conversions, memory, indices, random draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinygrad import Device, Tensor, dtypes
from tinygrad.dtype import AddrSpace, DType
from tinygrad.helpers import Context
from tinygrad.uop.ops import AxisType, KernelInfo, UOp

SMALL = Device.DEFAULT == "PYTHON"
RNG = np.random.default_rng(8)
EMULATED = "int64,uint64"
BORDERS = sorted({
    sign * ((1 << power) + step) for power in (0, 1, 3, 8, 16, 24, 31, 32, 33, 40, 47, 48, 53, 62, 63, 64)
    for step in (-1, 0, 1) for sign in (-1, 1)
})  # fmt: skip
WIDE = (dtypes.int64, dtypes.uint64)


def wrapped(x: int, dtype: DType) -> int:
    x &= (1 << 64) - 1
    return x - (1 << 64) if dtype is dtypes.int64 and x >> 63 else x


def as_array(numbers: list[int], dtype: DType) -> np.ndarray:
    return np.array([x & (1 << 64) - 1 for x in numbers], np.uint64).view(
        np.int64 if dtype is dtypes.int64 else np.uint64
    )


def numbers(dtype: DType, count: int) -> np.ndarray:
    """Return borders, and numbers of every size and sign."""
    sizes = RNG.integers(0, 1 << 64, count, dtype=np.uint64) >> RNG.integers(0, 64, count, dtype=np.uint64)
    signed = np.where(RNG.integers(0, 2, count) == 1, sizes, ~sizes)
    found = np.concatenate([as_array(BORDERS, dtypes.uint64), signed])
    RNG.shuffle(found)
    return found.view(np.int64 if dtype is dtypes.int64 else np.uint64)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    x, y = (numbers(dtype, 10)[: 30 if SMALL else None] for _ in range(2))
    return np.repeat(x, len(y)), np.tile(y, len(x))


def stored(tensor: Tensor) -> np.ndarray:
    """Return the bits of a result; any NaN is the same NaN."""
    found = tensor.contiguous().realize()
    raw = np.frombuffer(found.uop.base.buffer.as_memoryview(), f"u{found.dtype.itemsize}")[: found.numel()]
    values = found.numpy().reshape(-1)
    return np.where(values == values, raw, 0) if dtypes.is_float(found.dtype) else raw


def assert_same_bits(function: Callable[..., Tensor], *arrays: np.ndarray) -> np.ndarray:
    """Compare with native integers, and return the native bits."""
    results = []
    for names in ("", EMULATED):
        with Context(EMULATED_DTYPES=names):
            results.append(stored(function(*(Tensor(a) for a in arrays))))
    wrong = results[0] != results[1]
    examples = [a[wrong][:4] for a in arrays if a.shape == wrong.shape]
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ: {examples}: {[r[wrong][:4] for r in results]}"
    return results[0]


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def python_cdiv(x: int, y: int) -> int:
    return 0 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "-": (lambda x, y: x - y, lambda x, y: x - y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "cdiv": (lambda x, y: x.div(y, rounding_mode="trunc"), python_cdiv),
    "//": (lambda x, y: x // y, lambda x, y: 0 if y == 0 else x // y),
    "%": (lambda x, y: x % y, lambda x, y: x if y == 0 else x % y),
    "&": (lambda x, y: x & y, lambda x, y: x & y),
    "|": (lambda x, y: x | y, lambda x, y: x | y),
    "^": (lambda x, y: x ^ y, lambda x, y: x ^ y),
    "max": (lambda x, y: x.maximum(y), max),
    "min": (lambda x, y: x.minimum(y), min),
    "<<": (lambda x, y: x << (y & 63), lambda x, y: x << (y & 63)),
    ">>": (lambda x, y: x >> (y & 63), lambda x, y: x >> (y & 63)),
    "where": (lambda x, y: (x < y).where(x - y, y), lambda x, y: x - y if x < y else y),
    "x*y+x": (lambda x, y: x * y + x, lambda x, y: x * y + x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_operations(name: str, dtype: DType) -> None:
    ours, oracle = BINARY[name]
    x, y = pairs(dtype)
    found = assert_same_bits(ours, x, y)
    expected = [wrapped(oracle(a, b), dtype) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert found.tolist() == as_array(expected, dtype).view(np.uint64).tolist()


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("name", ["<", "<=", "==", "!=", "any shift left", "any shift right", "pow", "true division"])
def test_comparisons_and_other_operations(name: str, dtype: DType) -> None:
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "<": lambda x, y: x < y,
        "<=": lambda x, y: x <= y,
        "==": lambda x, y: x == y,
        "!=": lambda x, y: x != y,
        "any shift left": lambda x, y: x << y,
        "any shift right": lambda x, y: x >> y,
        "pow": lambda x, y: x.pow(y & 7),
        "true division": lambda x, y: x / y,
    }
    assert_same_bits(functions[name], *pairs(dtype))


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_constants(dtype: DType) -> None:
    x = numbers(dtype, 20)
    for constant in (0, 1, 7, 16, 31, 32, 63, 1000, 2**31, 2**32 - 1, 2**40 + 3, 2**62, 2**63 - 1):
        for sign in (1, -1) if dtype is dtypes.int64 and constant else (1,):
            c = sign * constant
            assert_same_bits(lambda t, c=c: Tensor.stack(t + c, t * c, t & c, t | c, t // c, t % c, t.maximum(c)), x)
        if 0 <= constant < 64:
            assert_same_bits(lambda t, c=constant: Tensor.stack(t << c, t >> c), x)


def test_shifts_by_shorter_integers() -> None:
    x = numbers(dtypes.int64, 64)
    for dtype in (np.int8, np.uint8, np.int32, np.uint32):
        counts = np.resize(np.array([0, 1, 31, 32, 63, 64, 100, -1]).astype(dtype), x.shape)
        assert_same_bits(lambda t, n: Tensor.stack(t << n.cast(dtypes.int64), t >> n.cast(dtypes.int64)), x, counts)


LEAVES = st.one_of(st.sampled_from(BORDERS), st.integers(-(1 << 63), (1 << 64) - 1), st.sampled_from(["x", "y", "z"]))
EXPRESSIONS = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(sorted(BINARY)), inner, inner), max_leaves=8)
COLUMNS = as_array([*BORDERS, *RNG.integers(0, 1 << 62, 32).tolist()], dtypes.uint64)


def evaluated(tree: Any, names: dict[str, int], dtype: DType) -> int:
    if isinstance(tree, tuple):
        left, right = (evaluated(t, names, dtype) for t in tree[1:])
        return wrapped(BINARY[tree[0]][1](left, right), dtype)
    return names[tree] if isinstance(tree, str) else wrapped(tree, dtype)


def built(tree: Any, names: dict[str, Tensor], dtype: DType) -> Tensor:
    if isinstance(tree, tuple):
        return BINARY[tree[0]][0](built(tree[1], names, dtype), built(tree[2], names, dtype))
    return names[tree] if isinstance(tree, str) else Tensor(wrapped(tree, dtype), dtype=dtype)


@given(tree=EXPRESSIONS, dtype=st.sampled_from(WIDE))
@settings(max_examples=25)
def test_expressions_are_those_of_python(tree: Any, dtype: DType) -> None:
    kind = np.int64 if dtype is dtypes.int64 else np.uint64
    arrays = {name: np.roll(COLUMNS, shift)[:48].view(kind) for name, shift in (("x", 0), ("y", 7), ("z", 31))}
    with Context(EMULATED_DTYPES=EMULATED):
        result = built(tree, {name: Tensor(array) for name, array in arrays.items()}, dtype)
        found = (result + Tensor.zeros(48, dtype=dtype).contiguous()).tolist()
    rows = zip(*(array.tolist() for array in arrays.values()), strict=True)
    assert found == [evaluated(tree, dict(zip(arrays, row, strict=True)), dtype) for row in rows]


# ---- conversions -----------------------------------------------------------------------------------------------------


FLOATS = np.concatenate([
    [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-300, 2.0**52 + 0.5, 2.0**31, 2.0**32, -(2.0**32)],
    [2.0**63, -(2.0**63), 2.0**63 - 1024, -(2.0**63) - 2048, 2.0**64, 2.0**64 - 2048, -(2.0**64), 1e30, -1e30],
    RNG.normal(size=60) * 2.0 ** RNG.integers(-5, 66, 60),
])


@pytest.mark.parametrize("other", [*dtypes.ints, dtypes.bool, *dtypes.floats], ids=str)
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_conversions(dtype: DType, other: DType) -> None:
    x = numbers(dtype, 100)
    assert_same_bits(lambda t: t.cast(other), x)
    assert_same_bits(lambda t: t[7:8].cast(other), x)
    with np.errstate(all="ignore"):
        source = FLOATS.astype(np.float32) if dtypes.is_float(other) and other is not dtypes.float64 else FLOATS
    assert_same_bits(lambda t: t.cast(other).cast(dtype), source if dtypes.is_float(other) else x)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_float32_is_rounded_once(dtype: DType) -> None:
    """Halfway between two numbers, and beside it, for every size: what is far below decides."""
    near = [(m << e) + (1 << e >> 1) + d for m in (0x800000, 0x800001, 0xFFFFFF) for e in range(40) for d in (-1, 0, 1)]
    x = as_array([n for n in near if n < 1 << (63 if dtype is dtypes.int64 else 64)], dtype)
    found = assert_same_bits(lambda t: t.cast(dtypes.float32), x)
    assert found.tolist() == x.astype(np.float32).view(np.uint32).tolist()


@pytest.mark.parametrize("other", [dtypes.float64, dtypes.int32, dtypes.uint8, dtypes.uint64], ids=str)
def test_bits(other: DType) -> None:
    x = numbers(dtypes.int64, 60)[:96]
    assert_same_bits(lambda t: (t + 1).bitcast(other), x)
    assert_same_bits(lambda t: (t[3:4] + 1).bitcast(other), x)
    array = x.view({dtypes.float64: np.float64, dtypes.int32: np.int32, dtypes.uint8: np.uint8}.get(other, np.uint64))
    assert_same_bits(lambda t: t.bitcast(dtypes.int64) - 1, array)
    assert_same_bits(lambda t: t[:8].bitcast(dtypes.int64) - 1, array)


def test_functions_of_float64_use_its_bits() -> None:
    x = RNG.normal(size=40) * 10
    for function in (lambda t: t.exp2(), lambda t: t.abs().log2(), lambda t: t.sin(), lambda t: t.abs().pow(1.7)):
        assert_same_bits(function, x)
        assert_same_bits(function, x.astype(np.float32))


# ---- memory, reductions ----------------------------------------------------------------------------------------------

SHAPED: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda t: t.sum(),
    "rows": lambda t: t.sum(1),
    "columns": lambda t: t.sum(0),
    "product": lambda t: t.prod(0),
    "largest": lambda t: t.max(1),
    "smallest": lambda t: t.min(0),
    "largest of all": lambda t: t.max(),
    "running sum": lambda t: t.cumsum(0),
    "running product": lambda t: t.cumprod(1),
    "matmul": lambda t: t[:16, :16] @ t[4:20, 8:24],
    "convolution": lambda t: t[:12, :12].reshape(1, 1, 12, 12).conv2d(t[:3, :3].reshape(1, 1, 3, 3)),
    "transpose": lambda t: t.T.contiguous() * 3,
    "stride": lambda t: t[::3, ::2] + 1,
    "flip": lambda t: t.flip((0, 1)) + 1,
    "pad": lambda t: t.pad(((1, 2), (3, 5))) + 1,
    "joined": lambda t: t.cat(t * 2, dim=1),
    "woven": lambda t: Tensor.stack(t, t + 1, dim=-1).reshape(t.shape[0], -1),
    "sorted": lambda t: t[0].sort()[0],
    "order": lambda t: t[1].sort(descending=True)[1],
    "top": lambda t: t.topk(3)[0],
    "place of the largest": lambda t: t.argmax(1),
    "place of the smallest": lambda t: t.argmin(0),
    "one hot": lambda t: (t[:3, :5] % 7).one_hot(7).cast(dtypes.int64),
    "mean": lambda t: t.mean(0),
    "mask": lambda t: t.masked_fill(t > 5, 1),
    "parity": lambda t: (t & 1).sum(0),
}


@pytest.mark.parametrize("name", SHAPED)
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_arrays(name: str, dtype: DType) -> None:
    assert_same_bits(SHAPED[name], numbers(dtype, 24 * 37)[: 24 * 37].reshape(24, 37))


def test_long_sums_carry() -> None:
    x = RNG.integers(-(1 << 62), 1 << 62, 500 if SMALL else 100_000)
    found = assert_same_bits(lambda t: t.sum(), x)
    assert found.tolist() == [sum(x.tolist()) % (1 << 64)]


def test_stores_in_place() -> None:
    def shifted(t: Tensor) -> Tensor:
        t = t.contiguous().realize()
        t[3:40] = t[2:39] * 5
        t[50:60] += 1
        t[::9] = -1
        return t

    assert_same_bits(shifted, numbers(dtypes.int64, 100)[:100])


@pytest.fixture(params=[AddrSpace.REG, AddrSpace.LOCAL], ids=str)
def place(request: pytest.FixtureRequest) -> AddrSpace:
    found: AddrSpace = request.param
    return found


@pytest.mark.parametrize("size", [1, 8])
def test_custom_kernels(place: AddrSpace, size: int) -> None:
    """Registers and scratch memory of a kernel that is written by hand, and a gated store."""

    def kernel(out: UOp, a: UOp) -> UOp:
        i, k = UOp.range(out.shape[0], 0), UOp.range(a.shape[1], 1, AxisType.REDUCE)
        scratch = UOp.placeholder((size,), dtypes.int64, 0, addrspace=place)
        scratch = scratch.after(i)[size - 1].set(UOp.const(7, dtypes.int64))
        scratch = scratch[size - 1].set(scratch.after(k)[size - 1] * 3 + a[i, k], end=k)
        info = KernelInfo(name="scratch", opts_to_apply=())
        return out[i].store(scratch[size - 1]).end(i).sink(arg=info)

    x = numbers(dtypes.int64, 48)[:48].reshape(6, 8)
    found = assert_same_bits(
        lambda t: Tensor.empty(6, dtype=dtypes.int64).custom_kernel(t.contiguous().realize(), fxn=kernel)[0], x
    )
    expected = []
    for row in x.tolist():
        total = 7
        for number in row:
            total = wrapped(total * 3 + number, dtypes.int64)
        expected.append(total)
    assert found.view(np.int64).tolist() == expected


# ---- indices, random numbers -----------------------------------------------------------------------------------------


BASE = RNG.normal(size=(20, 5)).astype(np.float32)
INDICES = np.array([0, 5, -1, -20, 19, 3, 2**31, -(2**31), 2**32 + 1, -(2**32) + 1, 2**40, -(2**63), 2**63 - 1])


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_an_index_outside_of_32_bits_is_outside_of_the_tensor(dtype: DType) -> None:
    indices = INDICES if dtype is dtypes.int64 else INDICES[INDICES >= 0].astype(np.uint64)
    assert_same_bits(lambda t, i: t[i], BASE, indices)
    assert_same_bits(lambda t, i: t[i], numbers(dtypes.int64, 30)[:20], indices)
    assert_same_bits(lambda t, i: t[i // 3, i % 4], BASE, indices)


INDEXED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gather": lambda t, i: t.gather(0, (i % 20).reshape(-1, 1).expand(13, 5)),
    "scatter": lambda t, i: t.scatter(0, (i % 20).reshape(-1, 1).expand(13, 5), t[:13] * 2),
    "scatter and add": lambda t, i: t.scatter_reduce(0, (i % 20).reshape(-1, 1).expand(13, 5), t[:13], reduce="sum"),
    "embedding": lambda t, i: (i % 20).one_hot(20).float() @ t,
    "take": lambda t, i: t.reshape(-1)[i % 100],
    "rows and columns": lambda t, i: t[i % 20][:, (i % 5)],
}


@pytest.mark.parametrize("name", INDEXED)
def test_indexing(name: str) -> None:
    assert_same_bits(INDEXED[name], BASE, INDICES)


def test_random_numbers() -> None:
    drawn = []
    for names in ("", EMULATED):
        with Context(EMULATED_DTYPES=names):
            Tensor.manual_seed(3)
            drawn.append([
                Tensor.rand(50).tolist(),
                Tensor.randn(20).tolist(),
                Tensor.randint(30, low=-5, high=1000, dtype=dtypes.int64).tolist(),
                Tensor.randperm(12).tolist(),
            ])
    assert drawn[0] == drawn[1]


def test_reduce_operations_of_lanes() -> None:
    """A horizontal combination is what is left of a vector of partial results."""
    x = numbers(dtypes.int64, 4096)[:4096]
    for operation in (lambda t: t.sum(), lambda t: t.max(), lambda t: t.min(), lambda t: (t | 1).prod()):
        assert_same_bits(operation, x)
