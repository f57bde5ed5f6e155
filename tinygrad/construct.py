"""From Python, numpy and files to nodes.

In:   scalars, nested lists, bytes, numpy arrays, paths, nodes.
Out:  a node: a constant, or a buffer on PYTHON, NPY or DISK that already holds the data.
Why:  what becomes of a Python object is decided in one place, before there is a graph.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinygrad.buffer import Buffer
from tinygrad.device import canonicalize_device
from tinygrad.dtype import DType, _from_np_dtype, dtypes, storage_fmt_for_dtype, to_storage_scalar
from tinygrad.helpers import fully_flatten, get_shape, prod
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    import numpy as np


def is_numpy_ndarray(x: object) -> bool:
    """Whether ``x`` is a numpy array. numpy need not be imported for that."""
    return type(x).__module__ == "numpy" and type(x).__name__ in {"ndarray", "memmap"}


def is_numpy_scalar(x: object) -> bool:
    """Whether ``x`` is a numpy scalar such as ``np.float32(1)``."""
    return type(x).__module__ == "numpy" and getattr(x, "shape", None) == () and hasattr(x, "item")


def _fromnp(x: np.ndarray[Any, Any]) -> UOp:
    """Return a node over the array's own memory, on the NPY device, already counted as realized."""
    import numpy as np

    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))  # the devices know one byte order
    dtype = _from_np_dtype(x.dtype)
    flat = np.ascontiguousarray(x).reshape(-1)
    buffer = Buffer("NPY", flat.size, dtype, opaque=flat)
    return UOp.from_buffer(buffer).reshape(x.shape)


def pack(values: Sequence[Any], dtype: DType) -> bytes:
    """Return the storage bytes of Python numbers: integers wrap, floats round to nearest even."""
    fmt = storage_fmt_for_dtype(dtype)
    if fmt is None:
        raise RuntimeError(f"{dtype} cannot be stored; give a concrete dtype")
    layout = f"<{len(values)}{fmt}"
    exact = dtype not in dtypes.fp8s and dtype is not dtypes.bfloat16 and dtype is not dtypes.float16
    if exact:
        try:
            return struct.pack(layout, *values)
        except (struct.error, OverflowError, TypeError):
            pass  # a value that has to wrap, to round or to change its type: convert one by one
    return struct.pack(layout, *[to_storage_scalar(v, dtype) for v in values])


def from_python(data: list[Any] | tuple[Any, ...] | bytes, dtype: DType, shape: tuple[int, ...] | None = None) -> UOp:
    """Return a node over a PYTHON buffer that holds nested lists, or raw bytes of the dtype."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        raw, shape = bytes(data), shape or (len(data) // dtype.itemsize,)
    else:
        shape = get_shape(data) if shape is None else shape
        raw = pack(fully_flatten(data), dtype)
    buffer = Buffer("PYTHON", prod(shape), dtype, initial_value=raw)
    return UOp.from_buffer(buffer).reshape(shape)


def from_list(data: list[Any] | tuple[Any, ...], dtype: DType | None) -> UOp:
    """Return the node of nested lists; the dtype is inferred unless given.

    Raises:
        ValueError: The lists are ragged.
        RuntimeError: They hold something that is no number.
    """
    if any(is_numpy_ndarray(item) for item in data):
        import numpy as np

        node = _fromnp(np.stack([np.asarray(item) for item in data]))
        return node if dtype is None else node.cast(dtype)
    shape = get_shape(data)
    values = fully_flatten(data)
    wrong = next((v for v in values if not isinstance(v, (int, float)) and not is_numpy_scalar(v)), None)
    if wrong is not None:
        raise RuntimeError(f"Tensor: could not infer dtype of {wrong!r} of type {type(wrong).__name__} inside a list; "
                           "expected numbers (use Tensor.stack for a list of tensors)")  # fmt: skip
    kind = dtypes.from_py(values) if dtype is None else dtype
    return from_python(values, kind, shape)


def from_path(path: Path, dtype: DType) -> UOp:
    """Return a node over a file.

    Raises:
        FileNotFoundError: There is no such file.
    """
    size = path.stat().st_size // dtype.itemsize
    node = UOp.new_buffer(f"DISK:{path.resolve()}", size, dtype)
    node.buffer.ensure_allocated()  # the contents are there; the file is opened when they are read
    return node


def node_of(data: Any, device: Any, dtype: DType | None) -> UOp:
    """Return the node of whatever the constructor of Tensor was given.

    Raises:
        RuntimeError: ``data`` has a type that no tensor can be made of, or a weak dtype is asked for stored data.
    """
    if isinstance(data, UOp):
        node = data if dtype is None else data.cast(dtype)
        if device is None or node.device is None or node.device == canonicalize_device(device):
            return node
        return node.copy_to_device(canonicalize_device(device))
    if data is None or isinstance(data, (int, float)):
        return UOp.const(0.0 if data is None else data, dtype)
    if dtype in dtypes.weaks:
        raise RuntimeError(f"Tensor: weak dtype {dtype} cannot be stored; give a concrete dtype")
    if isinstance(data, Path):
        node = from_path(data, dtypes.uint8 if dtype is None else dtype)
        return node if device is None else node.copy_to_device(canonicalize_device(device))
    where = canonicalize_device(device)
    if (is_numpy_ndarray(data) and data.shape == ()) or is_numpy_scalar(data):
        return UOp.const(data.item(), _from_np_dtype(data.dtype) if dtype is None else dtype)
    if is_numpy_ndarray(data):
        node = _fromnp(data)
        moved = node if node.device == where else node.copy_to_device(where)
        return moved if dtype is None else moved.cast(dtype)
    if isinstance(data, (bytes, bytearray, memoryview)):
        node = from_python(bytes(data), dtypes.uint8 if dtype is None else dtype)
    elif isinstance(data, (list, tuple)):
        node = from_list(data, dtype)
    else:
        raise RuntimeError(
            f"Tensor: could not infer dtype of {type(data).__name__} {data!r}; expected a number, list, bytes, "
            "numpy array, path or node"
        )
    moved = node if node.device == where else node.copy_to_device(where)
    return moved if dtype is None else moved.cast(dtype)
