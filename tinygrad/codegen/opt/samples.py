"""Values to run variants of a kernel on, and whether two of them computed the same.

In:   a dtype and a number of elements; the bytes of two results.
Out:  bytes of ordinary values, the same for the same seed; a sentence about the largest difference, or None.
Why:  a search that compares results (``BEAM_STRICT_MODE=1``) finds faults of the code generator that zeros would hide.
"""

from __future__ import annotations

import numpy as np

from tinygrad.dtype import DType, dtypes
from tinygrad.rounding import from_storage_array, to_storage_array

# Relative to the largest value: sums in another order differ by a few roundings.
_TOLERANCES = {8: 1e-9, 4: 1e-3, 2: 5e-2, 1: 0.5}


def sample_bytes(dtype: DType, size: int, seed: int) -> bytes:
    """Return ``size`` elements: floats between -1 and 1, integers from 0 to 3 (small enough as indices of a table)."""
    numbers = np.random.default_rng(seed)
    if dtype.kind == "float":
        return to_storage_array(numbers.uniform(-1, 1, size).astype(np.float32), dtype).tobytes()
    return to_storage_array(numbers.integers(0, 2 if dtype is dtypes.bool else 4, size), dtype).tobytes()


def differ(dtype: DType, expected: bytes, got: bytes) -> str | None:
    """Return how two results differ by more than rounding, in words, or None."""
    stored = to_storage_array(np.zeros(1, np.float32), dtype).dtype
    a, b = (from_storage_array(np.frombuffer(data, stored), dtype) for data in (expected, got))
    if dtype.kind != "float":
        wrong = a != b
    else:
        a, b = a.astype(np.float64), b.astype(np.float64)
        largest = np.max(np.abs(a), where=np.isfinite(a), initial=0.0)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= _TOLERANCES[dtype.itemsize] * largest
        wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    return f"{b[first]} instead of {a[first]} at {first}, {int(wrong.sum())} of {a.size} elements differ"
