"""tinygrad through TinyJit: this project, and upstream as a black box in its own environment (the same interface).

In:   arrays and functions of workloads, as every adapter gets them.
Out:  ``Adapter``: arrays on the library's side, and the step to measure.
Why:  what is timed is the replay of a captured call, with its results realised and the device waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tinygrad
from bench.inputs import Array


class Adapter:
    """tinygrad's side of a measurement."""

    lib = tinygrad

    def __init__(self, threads: int) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("tinygrad")
        except PackageNotFoundError:
            number = "from this tree"
        self.device = tinygrad.Device[tinygrad.Device.DEFAULT]
        self.about = f"tinygrad {number}, TinyJit on {tinygrad.Device.DEFAULT}, {threads} processors"

    def load(self, array: Array, dtype: str) -> Any:
        """Return a realised tensor with memory of its own."""
        tensor = tinygrad.Tensor(array)
        tensor = tensor.cast(getattr(tinygrad.dtypes, dtype)) if dtype else tensor
        return tensor.contiguous().clone().realize()

    def prepare(self, function: Callable[..., Any], arguments: list[Any], make: bool) -> Callable[[], Any]:
        """Return the step to measure, without arguments."""
        wait = self.device.synchronize
        if make:
            step = function(tinygrad, *arguments)
        else:

            def realized(*xs: Any) -> Any:
                results = function(tinygrad, *xs)
                results = results if isinstance(results, tuple) else (results,)
                results[0].realize(*results[1:])
                return results

            captured = tinygrad.TinyJit(realized)

            def step() -> Any:
                return captured(*arguments)

        def run() -> Any:
            result = step()
            wait()
            return result

        return run

    def array(self, result: Any) -> Array:
        """Return a result as a numpy array."""
        narrow = result.dtype == tinygrad.dtypes.bfloat16
        # A copy: what a replay returned may be written again by the next one.
        return np.array((result.float() if narrow else result).numpy())
