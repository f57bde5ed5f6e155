"""numpy arrays and the dtypes that numpy lacks: the array counterpart of ``truncate`` and of the storage functions.

In:   a numpy array of any numeric type.
Out:  a numpy array with the values that a dtype holds (bfloat16, fp8 as float32), or its raw storage (uint16, uint8).
Why:  element by element in Python would be too slow for arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import FP8_FORMATS, DType, _to_np_dtype, conversion_range, dtypes
from tinygrad.scalars import Fp8Format, fp8_values

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


def truncate_array(values: Array, dtype: DType) -> Array:
    """Return ``values`` cast to ``dtype``, as ``truncate[dtype]`` does element by element.

    Args:
        values: Array of bools, integers or floats.
        dtype: A dtype that can be stored.

    Returns:
        Array of the same shape in the numpy type of ``dtype``; float32 for bfloat16 and fp8.
    """
    if dtype is dtypes.bfloat16 or dtype in dtypes.fp8s:
        return from_storage_array(to_storage_array(values, dtype), dtype)
    import numpy as np

    np_type = _to_np_dtype(dtype)
    if dtypes.is_int(dtype) and values.dtype.kind == "f":
        return _floats_to_ints(values, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np_type)


def _floats_to_ints(values: Array, dtype: DType) -> Array:
    import numpy as np

    low, high = conversion_range(dtype)
    with np.errstate(invalid="ignore"):
        whole = np.trunc(values.astype(np.float64))
        # The limits as floats: high + 1 is a power of two, so the test is exact; NaN fails it.
        fits = (whole >= float(low)) & (whole < float(high + 1))
        above = whole >= 2.0**63  # uint64 alone: int64 cannot hold these
        wide = np.where(fits & ~above, whole, float(low)).astype(np.int64)
        if dtype is dtypes.uint64:
            return np.where(fits & above, np.where(fits, whole, 0.0).clip(0).astype(np.uint64), wide.astype(np.uint64))
    return wide.astype(_to_np_dtype(dtype))


def to_storage_array(values: Array, dtype: DType) -> Array:
    """Return the raw storage of ``values`` in ``dtype``: uint16 for bfloat16, uint8 for fp8, else the cast array."""
    import numpy as np

    if dtype in FP8_FORMATS:
        return _encode_fp8_array(values.astype(np.float64), FP8_FORMATS[dtype])
    if dtype is not dtypes.bfloat16:
        return truncate_array(values, dtype)
    if values.dtype != np.float32:
        rounded = _round_mantissa_array(values.astype(np.float64), 127, 7)
        with np.errstate(over="ignore"):
            return (rounded.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    bits = np.ascontiguousarray(values).view(np.uint32)
    # Add half a step, less one if the kept part is even: ties go to even. A carry into the exponent is the right value.
    rounded_bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet_nan, rounded_bits).astype(np.uint16).reshape(values.shape)


def from_storage_array(storage: Array, dtype: DType) -> Array:
    """Return the values of raw storage: float32 for bfloat16 and fp8; other arrays come back as they are."""
    import numpy as np

    if dtype in FP8_FORMATS:
        return np.array(fp8_values(FP8_FORMATS[dtype]), dtype=np.float32)[storage.view(np.uint8)]
    if dtype is not dtypes.bfloat16:
        return storage
    widened: Array = storage.astype(np.uint32) << np.uint32(16)
    return widened.view(np.float32)


def _round_mantissa_array(values: Array, exponent_bias: int, mantissa_bits: int) -> Array:
    import numpy as np

    exponent = np.maximum(np.frexp(values)[1] - 1, 1 - exponent_bias)
    scaled: Array = np.rint(np.ldexp(values, mantissa_bits - exponent))
    with np.errstate(over="ignore", under="ignore"):
        rounded: Array = np.copysign(np.ldexp(scaled, exponent - mantissa_bits), values)
    return rounded


def _encode_fp8_array(values: Array, fmt: Fp8Format) -> Array:
    import numpy as np

    finite = np.isfinite(values)
    sign = np.where(np.signbit(values), 0x80, 0)
    size = np.minimum(
        np.abs(_round_mantissa_array(np.where(finite, values, 0.0), fmt.bias, fmt.mantissa_bits)), fmt.largest
    )
    exponent = np.maximum(np.frexp(size)[1] - 1, 1 - fmt.bias)
    steps = np.ldexp(size, fmt.mantissa_bits - exponent).astype(np.int64)
    code = np.where(size == 0.0, 0, steps + ((exponent + fmt.bias - 1) << fmt.mantissa_bits))
    if fmt.is_fnuz:
        return np.where(finite, np.where(code == 0, 0, sign | code), 0x80).astype(np.uint8)
    special = np.where(np.isinf(values), 0x7F if fmt.infinity is None else fmt.infinity, 0x7F)
    return (sign | np.where(finite, code, special)).astype(np.uint8)
