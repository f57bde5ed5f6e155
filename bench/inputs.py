"""Numbers for the inputs of a workload, the same in every process and with every version of numpy.

In:   a seed and shapes.
Out:  arrays.
Why:  peers have environments of their own, in which numpy's generators may differ; this hash of the position does not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_BLOCK = 1 << 20
Array = np.ndarray[Any, Any]


class Inputs:
    """A stream of arrays; each call continues where the last one ended."""

    def __init__(self, seed: int = 1) -> None:
        self.position = seed << 40

    def uniform(self, *shape: int) -> Array:
        """Return float32 numbers in [0, 1)."""
        count = math.prod(shape)
        result = np.empty(count, np.float32)
        for start in range(0, count, _BLOCK):
            stop = min(start + _BLOCK, count)
            # Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: the mixing of SplitMix64.
            x = np.arange(self.position + start, self.position + stop, dtype=np.uint64)
            x *= np.uint64(0x9E3779B97F4A7C15)
            x ^= x >> np.uint64(30)
            x *= np.uint64(0xBF58476D1CE4E5B9)
            x ^= x >> np.uint64(27)
            x *= np.uint64(0x94D049BB133111EB)
            result[start:stop] = (x >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        self.position += count
        return result.reshape(shape)

    def floats(self, *shape: int, scale: float = 1.0) -> Array:
        """Return float32 numbers of mean 0 and standard deviation ``scale``."""
        return (self.uniform(*shape) - np.float32(0.5)) * np.float32(scale * math.sqrt(12.0))

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int32) -> Array:
        """Return integers from ``low`` to ``high - 1``."""
        return (np.floor(self.uniform(*shape) * np.float32(high - low)) + low).astype(dtype)
