"""Data types and their values: the public module; the types themselves are declared in ``dtype_lattice``.

In:   Python scalars, raw storage, numpy and torch dtypes.
Out:  Python values that a dtype holds (``truncate``), their storage, and the dtypes of numpy and torch.
Why:  callers import one module; the types alone can be imported by what these functions need.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tinygrad.constants import AddrSpace, ConstFloat, ConstType, Invalid, InvalidType, PyConst
from tinygrad.dtype_lattice import (
    DTYPES_DICT,
    INVERSE_DTYPES_DICT,
    TORCH_FP8,
    DType,
    DTypeLike,
    DTypes,
    can_lossless_cast,
    conversion_range,
    dtypes,
    float_to_int,
    least_upper_dtype,
    least_upper_float,
    strong_dtype,
    sum_acc_dtype,
    to_dtype,
    weak_dtype,
)
from tinygrad.errors import PlainKeyError
from tinygrad.scalars import (
    E4M3,
    E4M3_FNUZ,
    E5M2,
    E5M2_FNUZ,
    Fp8Format,
    bf16_to_bits,
    bits_to_bf16,
    encode_fp8,
    float_to_bf16,
    float_to_fp16,
    float_to_fp32,
    fp8_values,
    wrap_int,
)

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = [
    "DTYPES_DICT",
    "FP8_FORMATS",
    "INVERSE_DTYPES_DICT",
    "AddrSpace",
    "ConstFloat",
    "ConstType",
    "DType",
    "DTypeLike",
    "DTypes",
    "Invalid",
    "InvalidType",
    "PyConst",
    "_from_np_dtype",
    "_from_torch_dtype",
    "_to_np_dtype",
    "_to_torch_dtype",
    "bitcast",
    "can_lossless_cast",
    "conversion_range",
    "dtypes",
    "float_to_bf16",
    "float_to_fp8",
    "float_to_fp16",
    "float_to_int",
    "fp8_to_float",
    "from_storage_scalar",
    "least_upper_dtype",
    "least_upper_float",
    "storage_fmt_for_dtype",
    "strong_dtype",
    "sum_acc_dtype",
    "to_dtype",
    "to_storage_scalar",
    "truncate",
    "weak_dtype",
]


def _int_truncation(dtype: DType) -> Callable[[Any], int]:
    low, high, bits, signed = dtype.min, dtype.max, dtype.bitsize, dtype.kind == "int"

    def truncate_int(x: Any) -> int:
        if isinstance(x, float):
            return float_to_int(x, dtype)
        x = int(x)
        return x if low <= x <= high else wrap_int(x, bits, signed)

    return truncate_int


FP8_FORMATS: Final[dict[DType, Fp8Format]] = {
    dtypes.fp8e4m3: E4M3,
    dtypes.fp8e5m2: E5M2,
    dtypes.fp8e4m3fnuz: E4M3_FNUZ,
    dtypes.fp8e5m2fnuz: E5M2_FNUZ,
}


def _fp8_format(operation: str, dtype: DType) -> Fp8Format:
    if dtype not in FP8_FORMATS:
        raise AssertionError(f"{operation}: {dtype} is not an fp8 dtype; expected one of {dtypes.fp8s}")
    return FP8_FORMATS[dtype]


def float_to_fp8(x: float, dtype: DType) -> int:
    """Return the byte of ``x`` in an fp8 dtype.

    Rounds to nearest even; finite values beyond the largest number saturate to it. e4m3 turns infinities into NaN, e5m2
    keeps them, the fnuz kinds have one NaN (0x80) for both and no negative zero.

    Raises:
        AssertionError: ``dtype`` is not an fp8 dtype.
    """
    return encode_fp8(x, _fp8_format("float_to_fp8", dtype))


def fp8_to_float(byte: int, dtype: DType) -> float:
    """Return the value of a byte of an fp8 dtype.

    Raises:
        AssertionError: ``dtype`` is not an fp8 dtype.
    """
    return fp8_values(_fp8_format("fp8_to_float", dtype))[byte & 0xFF]


def _fp8_truncation(fmt: Fp8Format) -> Callable[[Any], float]:
    return lambda x: fp8_values(fmt)[encode_fp8(x, fmt)]


# dtype -> function that rounds (floats) or wraps (integers) a Python value to the dtype
truncate: Final[dict[DType, Callable[[Any], Any]]] = {
    dtypes.bool: bool,
    **{dtype: _int_truncation(dtype) for dtype in dtypes.ints},
    **{dtype: _fp8_truncation(fmt) for dtype, fmt in FP8_FORMATS.items()},
    dtypes.float16: float_to_fp16,
    dtypes.bfloat16: float_to_bf16,
    dtypes.float32: float_to_fp32,
    dtypes.float64: float,
    dtypes.weakint: int,
    dtypes.weakfloat: float,
}


# ---- storage ---------------------------------------------------------------------------------------------------------


def storage_fmt_for_dtype(dtype: DType) -> str | None:
    """Return the ``struct`` code of the raw storage: H for bfloat16, B for fp8, else the dtype's own (None: weak)."""
    if dtype is dtypes.bfloat16:
        return "H"
    return "B" if dtype in dtypes.fp8s else dtype.fmt


def to_storage_scalar(x: Any, dtype: DType) -> Any:
    """Return the raw storage value of ``x``: the bits of bfloat16 and fp8, else ``x`` rounded to the dtype."""
    if dtype is dtypes.bfloat16:
        return bf16_to_bits(x)
    return float_to_fp8(x, dtype) if dtype in dtypes.fp8s else truncate[dtype](x)


def from_storage_scalar(x: Any, dtype: DType) -> Any:
    """Return the Python value of a raw storage value: the inverse of ``to_storage_scalar``."""
    if dtype is dtypes.bfloat16:
        return bits_to_bf16(x)
    return fp8_to_float(x, dtype) if dtype in dtypes.fp8s else x


def bitcast(x: Any, source: DType, target: DType) -> Any:
    """Reinterpret the bits of one Python value of dtype ``source`` as dtype ``target``.

    Raises:
        AssertionError: The item sizes differ, or a dtype has no storage.

    Example:
        >>> hex(bitcast(1.0, dtypes.float32, dtypes.uint32))
        '0x3f800000'
    """
    source_fmt, target_fmt = storage_fmt_for_dtype(source), storage_fmt_for_dtype(target)
    if source.itemsize != target.itemsize or source_fmt is None or target_fmt is None:
        raise AssertionError(
            f"bitcast: {source} ({source.itemsize} bytes) and {target} ({target.itemsize} bytes) must have one size"
        )
    raw = struct.pack("<" + source_fmt, to_storage_scalar(x, source))
    return from_storage_scalar(struct.unpack("<" + target_fmt, raw)[0], target)


# ---- numpy and torch -------------------------------------------------------------------------------------------------


def _to_np_dtype(dtype: DType) -> type[Any] | None:
    """Return the numpy scalar type: float32 for bfloat16 and fp8, None for weak dtypes."""
    if dtype in dtypes.weaks:
        return None
    return _np_type(dtype)


@functools.cache
def _np_type(dtype: DType) -> type[Any]:
    import numpy as np

    if dtype is dtypes.bfloat16 or dtype in dtypes.fp8s:
        return np.float32
    if dtype.fmt is None:
        raise KeyError(dtype)
    return np.dtype(dtype.full_name).type


def _from_np_dtype(np_dtype: np.dtype[Any] | type[Any]) -> DType:
    """Return the dtype of a numpy dtype.

    Raises:
        KeyError: numpy's dtype has no counterpart, such as complex64.
    """
    import numpy as np

    name = np.dtype(np_dtype).name
    if name not in DTYPES_DICT:
        raise PlainKeyError(f"the numpy dtype {name} has no counterpart; convert the array with .astype")
    return DTYPES_DICT[name]


def _to_torch_dtype(dtype: DType) -> torch.dtype | None:
    """Return the torch dtype: uint8 for fp8, the default for weak dtypes, None if this torch lacks it."""
    import torch

    if dtype in dtypes.fp8s:
        return torch.uint8
    return getattr(torch, strong_dtype(dtype).full_name, None)


def _from_torch_dtype(torch_dtype: torch.dtype) -> DType:
    """Return the dtype of a torch dtype.

    Raises:
        KeyError: torch's dtype has no counterpart.
    """
    name = str(torch_dtype).removeprefix("torch.")
    return DTYPES_DICT[TORCH_FP8.get(name, name)]
