"""A device with 32-bit numbers alone, as WebGPU is: programs with 64-bit integers run on it without any setting."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.device import Compiled
from tinygrad.dtype import DType
from tinygrad.helpers import Context
from tinygrad.renderer.python import PythonRenderer
from tinygrad.runtime.ops_python import PythonAllocator, PythonDevice, PythonProgram

NAME = "tinygrad.runtime.ops_shortwords"


class ShortWordsRenderer(PythonRenderer):
    """Four dtypes."""

    def supported_dtypes(self) -> tuple[DType, ...]:
        """Return the dtypes that kernels may use."""
        return (dtypes.bool, dtypes.int32, dtypes.uint32, dtypes.float32)


class ShortWordsDevice(PythonDevice):
    """The device ``SHORTWORDS``."""

    def __init__(self, device: str = "SHORTWORDS") -> None:
        runtime = functools.partial(PythonProgram, self)
        Compiled.__init__(self, device, PythonAllocator(self), [ShortWordsRenderer], runtime)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    module = types.ModuleType(NAME)
    module.ShortWordsDevice = ShortWordsDevice  # type: ignore[attr-defined]
    sys.modules[NAME] = module
    with Context(DEV="SHORTWORDS"):
        yield
    del sys.modules[NAME]


RNG = np.random.default_rng(2)
LONGS = RNG.integers(-(1 << 62), 1 << 62, (6, 10))

CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "arithmetic": (lambda t: t * 3 - (t >> 7), lambda a: a * 3 - (a >> 7)),
    "division": (lambda t: t // 1000003 + t % -77, lambda a: a // 1000003 + a % -77),
    "sum": (lambda t: t.sum(1), lambda a: a.sum(1)),
    "sort": (lambda t: t[0].sort()[0], lambda a: np.sort(a[0])),
    "argmax": (lambda t: t.argmax(0), lambda a: a.argmax(0)),
    "index": (lambda t: t[(t[:, 0] % 6)], lambda a: a[a[:, 0] % 6]),
    "float": (lambda t: t.float(), lambda a: a.astype(np.float32)),
    "mask": (lambda t: (t > 0).where(t, -t), np.abs),
}


@pytest.mark.parametrize("name", CASES)
def test_wide_integers(name: str) -> None:
    ours, theirs = CASES[name]
    found = ours(Tensor(LONGS)).numpy()
    np.testing.assert_array_equal(found, theirs(LONGS))


def test_random_numbers_are_those_of_other_devices() -> None:
    Tensor.manual_seed(5)
    found = Tensor.rand(20).tolist()
    with Context(DEV="PYTHON"):
        Tensor.manual_seed(5)
        assert Tensor.rand(20).tolist() == found


def test_replays() -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x * x + 1).realize()

    for shift in range(4):
        np.testing.assert_array_equal(step(Tensor(LONGS + shift).realize()).numpy(), (LONGS + shift) ** 2 + 1)
