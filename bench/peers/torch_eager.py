"""torch, eager.

In:   arrays and functions of workloads, as every adapter gets them.
Out:  ``Adapter``: arrays on this library's side, and the step to measure.
Why:  what most programs run on today.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench.inputs import Array


class Adapter:
    """torch's side of a measurement."""

    lib = torch

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self.about = f"torch {torch.__version__}, eager, {torch.get_num_threads()} threads"

    def load(self, array: Array, dtype: str) -> Any:
        """Return a tensor; ``dtype`` is empty for the array's own."""
        tensor = torch.from_numpy(array)
        return tensor.to(getattr(torch, dtype)) if dtype else tensor

    def prepare(self, function: Callable[..., Any], arguments: list[Any], make: bool) -> Callable[[], Any]:
        """Return the step to measure, without arguments."""
        return function(torch, *arguments) if make else lambda: function(torch, *arguments)

    def array(self, result: Any) -> Array:
        """Return a result as a numpy array."""
        array: Array = (result.float() if result.dtype is torch.bfloat16 else result).numpy()
        return array
