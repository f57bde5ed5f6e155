"""Remainders and rounded quotients of floats: exact for every pair of numbers, as numpy's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.device import Device
from tinygrad.dtype import DType
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

RANDOM, STEP = (1000, 5) if Device.DEFAULT == "PYTHON" else (100_000, 1)
FLOATS = (np.float16, np.float32, np.float64)
NARROW = (dtypes.bfloat16, *dtypes.fp8s)
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "fmod": (lambda x, y: x.fmod(y), np.fmod),
    "mod": (lambda x, y: x % y, np.mod),
    "floor": (lambda x, y: x // y, np.floor_divide),
}


def extremes(dtype: Any) -> np.ndarray:
    """Return zeros, infinities, NaN, both ends of the range, and numbers about the size of the mantissa."""
    info = np.finfo(dtype)
    half = [0, 1, 0.5, 0.1, 3, 7, np.inf, info.max, info.tiny, info.smallest_subnormal, 2.0**info.nmant, 1 - info.eps]
    return np.array([*half, *(-x for x in half), np.nan], dtype=dtype)


def pairs(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of extremes, of random bit patterns, of moderate numbers, and multiples and their neighbours."""
    rng, bits = np.random.default_rng(5), np.dtype(f"u{np.dtype(dtype).itemsize}")
    corner = np.array(list(itertools.product(extremes(dtype), repeat=2)), dtype=dtype)
    patterns = rng.integers(0, np.iinfo(bits).max, (RANDOM, 2), dtype=bits, endpoint=True).view(dtype)
    moderate = (rng.standard_normal((RANDOM, 2)) * np.exp2(rng.integers(-8, 8, (RANDOM, 2)))).astype(dtype)
    with np.errstate(over="ignore"):
        multiple = np.stack([np.round(moderate[:, 0]) * moderate[:, 1], moderate[:, 1]], axis=1)
    beside = np.stack([np.nextafter(multiple[:, 0], dtype(0)), multiple[:, 1]], axis=1)
    both = np.concatenate([corner, patterns, moderate, multiple, beside])
    return both[:, 0].copy(), both[:, 1].copy()


def assert_same_bits(ours: np.ndarray, wanted: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Compare values and the signs of zeros; NaN is NaN."""
    assert ours.dtype == wanted.dtype
    same = ((ours == wanted) & (np.signbit(ours) == np.signbit(wanted))) | (np.isnan(ours) & np.isnan(wanted))
    assert same.all(), [v[~same][:5] for v in np.broadcast_arrays(x, y, ours, wanted)]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_pair_gives_what_numpy_gives(dtype: Any, name: str) -> None:
    ours, theirs = OPERATIONS[name]
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        wanted = theirs(x, y)
    assert_same_bits(ours(Tensor(x), Tensor(y)).numpy(), wanted, x, y)


@pytest.mark.parametrize("name", ["fmod", "mod"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_floats_are_exact(dtype: DType, name: str) -> None:
    # Every pair of fp8 numbers, and a grid of bfloat16; the remainder is a number of the dtype.
    bits = (np.arange(256) if dtype.itemsize == 1 else np.arange(0, 1 << 16, 257)).astype(f"u{dtype.itemsize}")[::STEP]
    numbers = Tensor(bits).bitcast(dtype)
    x, y = numbers.reshape(-1, 1).expand(bits.size, bits.size), numbers.reshape(1, -1).expand(bits.size, bits.size)
    ours, theirs = OPERATIONS[name]
    found = ours(x, y)
    assert found.dtype is dtype
    a, b = (v.double().numpy() for v in (x, y))
    with np.errstate(all="ignore"):
        wanted = Tensor(theirs(a, b)).cast(dtype).double().numpy()
    assert_same_bits(found.double().numpy(), wanted, a, b)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_constants_fold_to_the_same_numbers(dtype: Any, name: str) -> None:
    ours, theirs = OPERATIONS[name]
    kind, numbers = Tensor(np.zeros(1, dtype=dtype)).dtype, extremes(dtype)
    x, y = (np.array(side) for side in zip(*itertools.product(numbers, repeat=2), strict=True))
    with np.errstate(all="ignore"):
        wanted = theirs(x, y)
    nodes = [ours(UOp.const(float(a), kind), UOp.const(float(b), kind)) for a, b in zip(x, y, strict=True)]
    folded = [(u.src[0] if u.op is Ops.DETACH else u).simplify() for u in nodes]
    assert all(u.op is Ops.CONST for u in folded)
    assert_same_bits(np.array([float(u.arg) for u in folded], dtype=dtype), wanted, x, y)


@pytest.mark.parametrize(("x", "y"), [(3.4e38, 0.5), (1.0, 1e-45), (3e38, 0.7), (-1e-45, 3e38), (5.0, math.inf)])
def test_numbers_and_scalars_agree(x: float, y: float) -> None:
    a, b = np.float32(x), np.float32(y)
    for tensor in (Tensor([a]) % float(b), float(a) % Tensor([b])):
        assert_same_bits(tensor.numpy(), np.mod([a], [b]), a, b)


@pytest.mark.parametrize("name", ["fmod", "mod"])
def test_gradients_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(200) * 100).astype(np.float32)
    y = np.concatenate([rng.standard_normal(196), [0.1, -0.1, np.inf, 3]]).astype(np.float32)
    x[-4:] = 1, 1, 5, -9
    theirs = [torch.tensor(v, requires_grad=True) for v in (x, y)]
    (torch.fmod if name == "fmod" else torch.remainder)(*theirs).sum().backward()
    ours = [Tensor(v, requires_grad=True) for v in (x, y)]
    OPERATIONS[name][0](*ours).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        assert a.grad is not None
        # torch's quotient of fmod is rounded before it is truncated.
        close = np.abs(a.grad.numpy() - b.grad.numpy()) <= (1 if name == "fmod" else 0)
        assert close.all()


def test_rounded_quotients_of_floats_have_no_gradient() -> None:
    x = Tensor([3.0, -4.0], requires_grad=True)
    (x // 2.5 + x.div(2.5, rounding_mode="trunc") + x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]
