"""From Python, numpy and files to nodes.

In:   scalars, nested lists, bytes, numpy arrays, paths, nodes.
Out:  a node: a constant, or a buffer on PYTHON, NPY or DISK that already holds the data.
Why:  what becomes of a Python object is decided in one place, before there is a graph.
"""

from __future__ import annotations

import errno
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinygrad.buffer import Buffer
from tinygrad.device import Device, canonicalize_device
from tinygrad.dtype import DType, _from_np_dtype, dtypes, storage_fmt_for_dtype, to_storage_scalar
from tinygrad.dtype_lattice import require_fit
from tinygrad.errors import DeviceError, DTypeError, ShapeError, shown
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
    """Return the storage bytes of Python numbers: integers wrap, floats round to nearest even.

    Raises:
        OverflowError: An integer that is not 0 would wrap to 0, so that nothing of it would be left.
    """
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
    stored = [to_storage_scalar(v, dtype) for v in values]
    if dtypes.is_int(dtype):
        for value, kept in zip(values, stored, strict=True):
            if kept == 0:
                require_fit("Tensor", value, dtype)
    return struct.pack(layout, *stored)


def from_python(data: list[Any] | tuple[Any, ...] | bytes, dtype: DType, shape: tuple[int, ...] | None = None) -> UOp:
    """Return a node over a PYTHON buffer that holds nested lists, or raw bytes of the dtype."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        raw = bytes(data)
        shape = shape or (_whole_elements(len(raw), dtype),)
    else:
        shape = get_shape(data) if shape is None else shape
        raw = pack(fully_flatten(data), dtype)
    buffer = Buffer("PYTHON", prod(shape), dtype, initial_value=raw)
    return UOp.from_buffer(buffer).reshape(shape)


def _whole_elements(nbytes: int, dtype: DType) -> int:
    """Return how many elements raw bytes hold."""
    count, rest = divmod(nbytes, dtype.itemsize)
    if rest:
        raise ValueError(
            f"Tensor: {nbytes} bytes hold no whole number of elements of {dtype} of {dtype.itemsize} bytes"
        )
    return count


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
        hint = numpy_of_torch(wrong) or " (use Tensor.stack for a list of tensors)"
        raise RuntimeError(f"Tensor: could not infer dtype of {shown(wrong)} of type {type(wrong).__name__} inside a "
                           f"list; expected numbers{hint}")  # fmt: skip
    kind = dtypes.from_py(values) if dtype is None else dtype
    return from_python(values, kind, shape)


def from_path(path: Path, dtype: DType) -> UOp:
    """Return a node over a file.

    Raises:
        FileNotFoundError: There is no such file.
        IsADirectoryError: It is a folder.
        ValueError: It is a pipe or a device.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Tensor: a file is expected, this is a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"Tensor: {path} is no regular file; read it and pass the bytes")
    node = UOp.new_buffer(f"DISK:{path.resolve()}", found.st_size // dtype.itemsize, dtype)
    node.buffer.ensure_allocated()  # the contents are there; the file is opened when they are read
    return node


def from_address(address: int, shape: tuple[int, ...], dtype: DType, device: str) -> UOp:
    """Return a node over memory of this process that somebody else owns.

    Raises:
        ShapeError: The shape is none, or takes more memory than can be addressed.
        ValueError: The address is none, or is not a multiple of the size of an element.
        DTypeError: The dtype has no size in memory.
        DeviceError: The device uses no memory of this process.
    """
    if any(size < 0 for size in shape):
        raise ShapeError(f"from_blob: shape is {shown(shape)}, expected sizes >= 0")
    if dtype in dtypes.weaks or dtype is dtypes.void:
        raise DTypeError(f"from_blob: {dtype} has no size in memory; give a concrete dtype")
    nbytes, last = prod(shape) * dtype.itemsize, 1 << 8 * struct.calcsize("P")
    if nbytes >= last:
        raise ShapeError(f"from_blob: shape {shown(shape)} of {dtype} takes {nbytes} bytes, more than there can be")
    if nbytes and not 0 < address <= last - nbytes:
        raise ValueError(f"from_blob: there is no memory of {nbytes} bytes at address {address}")
    if address % dtype.itemsize:  # kernels load elements whole
        raise ValueError(f"from_blob: address {address:#x} is no multiple of {dtype.itemsize}, the size of {dtype}")
    if not Device[device].allocator.wraps_memory:
        raise DeviceError(f"from_blob: {device} cannot use memory of this process; wrap it on CPU, then copy with .to")
    buffer = Buffer(device, prod(shape), dtype).allocate(external_ptr=address)
    return UOp.from_buffer(buffer).reshape(shape)


def node_of(data: Any, device: Any, dtype: DType | None) -> UOp:
    """Return the node of whatever the constructor of Tensor was given.

    Raises:
        RuntimeError: ``data`` has a type that no tensor can be made of, or a weak dtype is asked for stored data.
        OverflowError: ``data`` is an int that the dtype does not hold, or a list has one that would wrap to 0.
    """
    if isinstance(data, UOp):
        node = data if dtype is None else data.cast(dtype)
        if device is None or node.device is None or node.device == canonicalize_device(device):
            return node
        return node.copy_to_device(canonicalize_device(device))
    if data is None or isinstance(data, (int, float)):
        require_fit("Tensor", data, dtype)
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
            f"Tensor: could not infer dtype of {shown(data)} of type {type(data).__name__}; expected a number, list, "
            f"bytes, numpy array, path or node{numpy_of_torch(data)}"
        )
    moved = node if node.device == where else node.copy_to_device(where)
    return moved if dtype is None else moved.cast(dtype)


def numpy_of_torch(data: Any) -> str:
    """Return what to write in place of a tensor of torch, empty for anything else."""
    if type(data).__module__.partition(".")[0] != "torch" or not hasattr(data, "detach"):
        return ""
    return "; of a torch tensor x write Tensor(x.detach().cpu().numpy()), after .float() if it is bfloat16"
