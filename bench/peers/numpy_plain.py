"""NumPy, with the BLAS that its wheel brings.

In:   arrays and functions of workloads, as every adapter gets them.
Out:  ``Adapter``: arrays on this library's side, and the step to measure.
Why:  the library that everybody has; without fusion, so it shows what fusion brings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.inputs import Array


class Adapter:
    """NumPy's side of a measurement. The number of BLAS threads is set by the environment of the process."""

    lib = np

    def __init__(self, threads: int) -> None:
        self.about = f"numpy {np.__version__}, BLAS with {threads} threads"

    def load(self, array: Array, dtype: str) -> Any:
        """Return the array itself, or converted."""
        return array.astype(dtype) if dtype else array

    def prepare(self, function: Callable[..., Any], arguments: list[Any], make: bool) -> Callable[[], Any]:
        """Return the step to measure, without arguments."""
        return function(np, *arguments) if make else lambda: function(np, *arguments)

    def array(self, result: Any) -> Array:
        """Return a result as a numpy array."""
        return np.asarray(result)
