"""Checkpoints of PyTorch: from a file to the object that was saved, with tensors that stay in the file until used.

In:   a path or a one-dimensional uint8 tensor, in one of three formats: a zip archive (since 1.6), one pickle after the
      other followed by raw data (before), or a tar archive (before 0.1.10).
Out:  the object that was saved. Tensors whose elements lie one after the other are lazy slices of the file; other views
      are lazy too, over a lazy copy of what they view.
Why:  the pickle only says how tensors view storages and which other objects there are, so reading it touches no data.
      It is run by ``restricted_pickle``, and every view is checked against the length of its storage.

The zip format: NAME/data.pkl is the pickle, NAME/data/KEY a storage, NAME/byteorder the byte order.
"""

from __future__ import annotations

import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import prod
from tinygrad.nn.archives import TensorIO, ZipArchive, accept_filename, tar_extract
from tinygrad.nn.restricted_pickle import Allowed, restricted_load
from tinygrad.tensor import Tensor

__all__ = ["torch_load"]

_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL: Final = 1001
_MAX_DIMS: Final = 64
_MAX_NUMEL: Final = 2**63 - 1

_DTYPES: Final[dict[str, DType]] = {
    "float64": dtypes.float64,
    "double": dtypes.float64,
    "float32": dtypes.float32,
    "float": dtypes.float32,
    "float16": dtypes.float16,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
    "float8_e4m3fnuz": dtypes.fp8e4m3fnuz,
    "float8_e5m2fnuz": dtypes.fp8e5m2fnuz,
    "int64": dtypes.int64,
    "int32": dtypes.int32,
    "int16": dtypes.int16,
    "int8": dtypes.int8,
    "uint64": dtypes.uint64,
    "uint32": dtypes.uint32,
    "uint16": dtypes.uint16,
    "uint8": dtypes.uint8,
    "bool": dtypes.bool,
}
_STORAGES: Final[dict[str, DType]] = {
    "DoubleStorage": dtypes.float64,
    "FloatStorage": dtypes.float32,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "LongStorage": dtypes.int64,
    "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16,
    "CharStorage": dtypes.int8,
    "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
    "UntypedStorage": dtypes.uint8,
}
_NUMPY_CODES: Final = frozenset({
    "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16",
})  # fmt: skip


class _Storage:
    """A range of bytes of which tensors show parts."""

    __slots__ = ("data", "dtype", "size")

    def __init__(self, data: Tensor, dtype: DType) -> None:
        self.data, self.dtype = data, dtype
        self.size = int(data.shape[0])  # in bytes

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("the pickle tries to change a storage")

    def elements(self, dtype: DType, start: int, count: int) -> Tensor:
        """Return elements [start, start + count) as a lazy one-dimensional tensor."""
        itemsize = dtype.itemsize
        data = self.data[start * itemsize : (start + count) * itemsize]
        if not _is_aligned(data, itemsize):
            data = data.to(None).contiguous()  # elements across their natural boundaries cannot be viewed in place
        return data.bitcast(dtype)


def _is_aligned(data: Tensor, itemsize: int) -> bool:
    view = data.uop.contiguous_view()
    return view is not None and view[1] % itemsize == 0


@accept_filename
def torch_load(fn: Tensor) -> Any:
    """Open a checkpoint that ``torch.save`` wrote, in any of its formats.

    Nothing that the file names is imported or run: objects of classes that are not known become placeholders with the
    same attributes, and names of Python's own library outside an allow list are refused.

    Args:
        fn: Path of the file, or its bytes as a one-dimensional uint8 tensor.

    Returns:
        The object that was saved. Its tensors are lazy. Those whose elements lie one after the other, at a multiple of
        their size as in every zip archive, are on the device of the file; others are copies on the default device.

    Raises:
        FileNotFoundError: There is no such file.
        pickle.UnpicklingError: The pickle is truncated, damaged or names what is not allowed, or a tensor reaches
            beyond its storage.
        zipfile.BadZipFile: The zip archive is truncated or damaged.
        tarfile.ReadError: The tar archive is truncated or damaged.
        KeyError: A storage has a dtype that does not exist here, such as complex numbers.
        ValueError: The file has the other byte order, or is empty.
    """
    if fn.ndim != 1 or fn.dtype != dtypes.uint8:
        raise ValueError(f"torch_load: expected a one-dimensional uint8 tensor, got {fn.dtype} and shape {fn.shape}")
    head = TensorIO(fn).read(tarfile.BLOCKSIZE)
    if not head:
        raise ValueError(f"torch_load: {fn.device} is empty")
    if head.startswith(b"PK\3\4"):
        return _load_zip(fn)
    if _is_tar_header(head):
        return _load_tar(fn)
    return _load_legacy(fn)


def _is_tar_header(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


# ---- zip ----


def _load_zip(t: Tensor) -> Any:
    origin = str(t.device)
    with ZipArchive(t) as archive:
        pickles = [name for name in archive.members if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise zipfile.BadZipFile(f"torch_load: {origin} has {len(pickles)} members named data.pkl, expected one")
        folder = pickles[0].removesuffix("data.pkl")
        order = archive.read(folder + "byteorder") if folder + "byteorder" in archive.members else b"little"
        if order != b"little":
            raise ValueError(f"torch_load: {origin} has the byte order {order[:20]!r}; only little endian is supported")
        storages: dict[str, _Storage] = {}

        def persistent_load(pid: Any) -> _Storage:
            kind, key, numel = _storage_id(pid)
            dtype, name = _storage_dtype(kind), f"{folder}data/{key}"
            if key not in storages:
                if name not in archive.members:
                    raise pickle.UnpicklingError(f"there is no storage {key!r} in the archive: truncated?")
                if numel * dtype.itemsize > archive.members[name].size:
                    raise pickle.UnpicklingError(
                        f"storage {key!r} has {archive.members[name].size} bytes, declared are {numel} of {dtype}"
                    )
                storages[key] = _Storage(archive.tensor(name), dtype)
            return storages[key]

        program = BytesIO(archive.read(pickles[0]))
        return restricted_load(program, allowed=_ALLOWED, persistent_load=persistent_load, origin=origin)


def _storage_id(pid: Any) -> tuple[Any, str, int]:
    """Return (type, key, number of elements) of a persistent id ("storage", type, key, location, number, ...)."""
    if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
        raise pickle.UnpicklingError(f"persistent id {pid!r:.100}; expected a storage")
    if not isinstance(pid[2], str) or type(pid[4]) is not int or pid[4] < 0:
        raise pickle.UnpicklingError(f"storage with the key {pid[2]!r:.100} and {pid[4]!r:.100} elements")
    return pid[1], pid[2], pid[4]


def _storage_dtype(kind: Any) -> DType:
    if isinstance(kind, _StorageType):
        return kind.dtype
    name = getattr(kind, "__qualname__", kind)
    raise KeyError(f"torch_load: storage type {name!r} is not supported; known are {', '.join(_STORAGES)}")


# ---- pickles with raw data behind them ----


def _load_legacy(t: Tensor) -> Any:
    origin, file = str(t.device), TensorIO(t)
    if _load_plain(file, origin) != _LEGACY_MAGIC:
        raise pickle.UnpicklingError(f"torch_load: {origin} is no checkpoint: its magic number is another one")
    protocol = _load_plain(file, origin)
    if protocol != _LEGACY_PROTOCOL:
        raise pickle.UnpicklingError(f"torch_load: {origin} has protocol {protocol!r:.50}, expected {_LEGACY_PROTOCOL}")
    system = _load_plain(file, origin)
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise ValueError(f"torch_load: {origin} is big endian; only little endian is supported")
    # Which storages there are stands in the pickle, and where they are only behind it: so it is read twice.
    start = file.tell()
    known: dict[str, _Storage] = {}
    nothing = Tensor.empty(0, dtype=dtypes.uint8)

    def first_time(pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]
        kind, key, _ = _storage_id(pid)
        return known.setdefault(key, _Storage(nothing, _storage_dtype(kind)))

    inert = {key: _NOTHING if isinstance(value, Allowed) else value for key, value in _ALLOWED.items()}
    restricted_load(file, allowed=inert, persistent_load=first_time, origin=origin)
    keys = _load_plain(file, origin)
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in known for key in keys):
        raise pickle.UnpicklingError(f"torch_load: {origin}: the list of storages {keys!r:.100} names unknown ones")
    storages = {key: _Storage(_raw_elements(t, file, known[key].dtype, key), known[key].dtype) for key in keys}

    def second_time(pid: Any) -> Any:
        if pid[0] == "module":
            return pid[1]
        if pid[2] not in storages:
            raise pickle.UnpicklingError(f"storage {pid[2]!r} has no data: truncated?")
        return _part_of(storages[pid[2]], pid[5] if len(pid) > 5 else None)

    file.seek(start)
    return restricted_load(file, allowed=_ALLOWED, persistent_load=second_time, origin=origin)


def _load_plain(file: TensorIO, origin: str) -> Any:
    """Read a pickle of numbers, strings, lists and dicts."""

    def no_ids(pid: Any) -> Any:
        raise pickle.UnpicklingError(f"persistent id {pid!r:.100} where plain values are expected")

    return restricted_load(file, allowed={}, persistent_load=no_ids, origin=origin)


def _raw_elements(t: Tensor, file: TensorIO, dtype: DType, key: object) -> Tensor:
    """Return the bytes of a storage at the position of the file: a number of elements, then these."""
    head = file.read(8)
    count = struct.unpack("<q", head)[0] if len(head) == 8 else -1
    start, left = file.tell(), int(t.shape[0]) - file.tell()
    if not 0 <= count * dtype.itemsize <= left:
        raise pickle.UnpicklingError(
            f"torch_load: {t.device}: storage {key!r} declares {count} elements of {dtype}, but {max(left, 0)} bytes "
            "are left: truncated?"
        )
    file.seek(start + count * dtype.itemsize)
    return t[start : start + count * dtype.itemsize]


def _part_of(storage: _Storage, part: Any) -> _Storage:
    """Return the part (key, offset, size) of a storage, in elements; the whole if it is None."""
    if part is None:
        return storage
    if not (isinstance(part, tuple) and len(part) == 3 and all(type(n) is int and n >= 0 for n in part[1:])):
        raise pickle.UnpicklingError(f"part {part!r:.100} of a storage; expected (key, offset, size)")
    itemsize = storage.dtype.itemsize
    if (part[1] + part[2]) * itemsize > storage.size:
        raise pickle.UnpicklingError(f"part {part!r:.100} of a storage of {storage.size} bytes")
    return _Storage(storage.data[part[1] * itemsize : (part[1] + part[2]) * itemsize], storage.dtype)


# ---- tar ----


def _load_tar(t: Tensor) -> Any:
    origin, members = str(t.device), tar_extract(t)
    missing = [name for name in ("storages", "tensors", "pickle") if name not in members]
    if missing:
        raise tarfile.ReadError(f"torch_load: {origin} has no member {', '.join(missing)}: no checkpoint, or truncated")
    storages = _tar_storages(members["storages"], origin)
    tensors = _tar_tensors(members["tensors"], storages, origin)

    def persistent_load(pid: Any) -> Any:
        if isinstance(pid, tuple) and pid:  # the source of a class goes with it
            return pid[0]
        if not isinstance(pid, (int, str)) or str(pid) not in tensors:
            raise pickle.UnpicklingError(f"there is no tensor {pid!r:.100} in the archive")
        return tensors[str(pid)]

    file = TensorIO(members["pickle"])
    return restricted_load(file, allowed=_ALLOWED, persistent_load=persistent_load, origin=origin)


def _tar_storages(t: Tensor, origin: str) -> dict[str, _Storage]:
    file = TensorIO(t)
    storages: dict[str, _Storage] = {}
    for _ in range(_count(_load_plain(file, origin), t)):
        entry = _load_typed(file, origin)
        if not (isinstance(entry, tuple) and len(entry) == 3):
            raise pickle.UnpicklingError(f"torch_load: {origin}: storage {entry!r:.100}; expected key, place, type")
        key, _, kind = entry
        dtype = _storage_dtype(kind)
        storages[str(key)] = _Storage(_raw_elements(t, file, dtype, key), dtype)
    for entry in _load_plain(file, origin):
        if not (isinstance(entry, tuple) and len(entry) == 4 and str(entry[1]) in storages):
            raise pickle.UnpicklingError(f"torch_load: {origin}: storage view {entry!r:.100}")
        key, root, offset, size = entry
        storages[str(key)] = _part_of(storages[str(root)], (key, offset, size))
    return storages


def _tar_tensors(t: Tensor, storages: dict[str, _Storage], origin: str) -> dict[str, Tensor]:
    file = TensorIO(t)
    tensors = {}
    for _ in range(_count(_load_plain(file, origin), t)):
        entry = _load_typed(file, origin)
        if not (isinstance(entry, tuple) and len(entry) == 3 and str(entry[1]) in storages):
            raise pickle.UnpicklingError(f"torch_load: {origin}: tensor {entry!r:.100}; expected (key, storage, type)")
        (ndim,) = _integers(file, "i4x", 1, origin)  # with four bytes that mean nothing behind it
        if not 0 <= ndim <= _MAX_DIMS:
            raise pickle.UnpicklingError(f"torch_load: {origin}: tensor {entry[0]!r} has {ndim} dims")
        numbers = _integers(file, f"{2 * ndim + 1}q", 2 * ndim + 1, origin)
        storage = storages[str(entry[1])]
        view = numbers[2 * ndim], tuple(numbers[:ndim]), tuple(numbers[ndim : 2 * ndim])
        tensors[str(entry[0])] = _view(storage, storage.dtype, *view)
    return tensors


def _count(number: Any, t: Tensor) -> int:
    if type(number) is not int or not 0 <= number <= int(t.shape[0]):
        raise pickle.UnpicklingError(f"torch_load: {t.device}: {number!r:.50} entries in {t.shape[0]} bytes")
    return number


def _load_typed(file: TensorIO, origin: str) -> Any:
    """Read a pickle that names types of storages and tensors besides plain values."""

    def class_of(pid: Any) -> Any:
        return pid[0] if isinstance(pid, tuple) and pid else pid

    return restricted_load(file, allowed=_ALLOWED, persistent_load=class_of, origin=origin)


def _integers(file: TensorIO, layout: str, count: int, origin: str) -> tuple[int, ...]:
    numbers = struct.Struct("<" + layout)
    data = file.read(numbers.size)
    if len(data) != numbers.size:
        raise pickle.UnpicklingError(f"torch_load: {origin}: {count} numbers end after {len(data)} bytes: truncated?")
    return numbers.unpack(data)


# ---- tensors ----


def _view(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    """Return the tensor that shows element ``offset + sum(index * stride)`` of a storage at each index."""
    if not (isinstance(storage, _Storage) and isinstance(dtype, DType)):
        raise pickle.UnpicklingError(f"a tensor of {storage!r:.100} and {dtype!r:.100}; expected a storage and a dtype")
    _check_view(storage, dtype, offset, size, stride)
    if 0 in size:
        return Tensor.empty(*size, dtype=dtype)
    axes = [axis for axis, length in enumerate(size) if length > 1 and stride[axis] > 0]  # others repeat the element
    by_stride = sorted(axes, key=lambda axis: (-stride[axis], -size[axis]))
    sizes = [size[axis] for axis in by_stride]
    dense = [stride[axis] for axis in by_stride] == [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    count = 1 + sum((size[axis] - 1) * stride[axis] for axis in axes)
    data = storage.elements(dtype, offset, count)
    if dense and by_stride == axes and count == prod(size):
        return data.reshape(size)
    data = data.to(None)
    if dense:
        data = data.reshape(sizes).permute([by_stride.index(axis) for axis in axes])
    else:
        data = data[_positions([size[axis] for axis in axes], [stride[axis] for axis in axes])]
    return data.reshape([length if axis in axes else 1 for axis, length in enumerate(size)]).expand(size)


def _check_view(storage: _Storage, dtype: DType, offset: Any, size: Any, stride: Any) -> None:
    lists = isinstance(size, (tuple, list)) and isinstance(stride, (tuple, list)) and len(size) == len(stride)
    if not lists or len(size) > _MAX_DIMS or not all(type(n) is int and n >= 0 for n in (offset, *size, *stride)):
        raise pickle.UnpicklingError(
            f"a tensor with offset {offset!r:.50}, shape {size!r:.100} and strides {stride!r:.100}; expected ints >= 0"
        )
    if prod(size) > _MAX_NUMEL:
        raise pickle.UnpicklingError(f"a tensor of shape {size!r:.100} has more than {_MAX_NUMEL} elements")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if 0 not in size and (last + 1) * dtype.itemsize > storage.size:
        raise pickle.UnpicklingError(
            f"a tensor of {dtype} with offset {offset}, shape {tuple(size)} and strides {tuple(stride)} reaches "
            f"element {last}, but its storage has {storage.size // dtype.itemsize}"
        )


def _positions(size: list[int], stride: list[int]) -> Tensor:
    """Return where each element of a strided view lies; arithmetic on ranges that never exists in memory."""
    last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    dtype = dtypes.int32 if last < 2**31 else dtypes.int64
    total = Tensor.zeros(*[1] * len(size), dtype=dtype)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = [length if i == axis else 1 for i in range(len(size))]
        total = total + Tensor.arange(length, dtype=dtype).reshape(along) * step
    return total


# ---- names of torch in pickles ----


class _StorageType:
    """A class of storages, of which only the dtype matters."""

    __slots__ = ("_dtype",)

    _dtype: DType

    def __init__(self, dtype: DType) -> None:
        object.__setattr__(self, "_dtype", dtype)

    @property
    def dtype(self) -> DType:
        """Dtype of the elements; uint8 if they have none of their own."""
        return self._dtype

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("the pickle tries to change a storage type")


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
    return _view(storage, getattr(storage, "dtype", None), offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any = None, _hooks: Any = None, metadata: Any = None
) -> Tensor:
    _check_metadata(metadata)
    return _view(storage, getattr(storage, "dtype", None), offset, size, stride)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, metadata: Any = None
) -> Tensor:
    _check_metadata(metadata)
    if not isinstance(dtype, DType):
        raise KeyError(f"torch_load: a tensor of {dtype!r} is not supported; known dtypes are {', '.join(_DTYPES)}")
    return _view(storage, dtype, offset, size, stride)


def _check_metadata(metadata: Any) -> None:
    if isinstance(metadata, dict) and (metadata.get("conj") or metadata.get("neg")):
        raise NotImplementedError("torch_load: a tensor with a lazy conjugate or sign; save it with .resolve_neg()")


class _NumpyType:
    """The dtype of a numpy scalar."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or code not in _NUMPY_CODES:
            raise pickle.UnpicklingError(f"numpy dtype {code!r:.50}; expected one of numbers")
        self.code, self.order = code, "<"

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = state[1]


def _numpy_scalar(kind: Any, data: Any) -> Any:
    import numpy as np

    if not (isinstance(kind, _NumpyType) and isinstance(data, bytes)):
        raise pickle.UnpicklingError(f"a numpy scalar of {kind!r:.50} and {data!r:.50}; expected a dtype and bytes")
    dtype = np.dtype(kind.code).newbyteorder("<" if kind.order == "=" else kind.order)
    if dtype.itemsize != len(data):
        raise pickle.UnpicklingError(f"a numpy scalar of {dtype} and {len(data)} bytes")
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))[0]


def _first(*args: Any) -> Any:
    return args[0]


def _size(numbers: Any = ()) -> tuple[Any, ...]:
    return tuple(numbers)


def _device(kind: Any = "cpu", index: Any = None) -> str:
    return f"{kind}" if index is None else f"{kind}:{index}"


def _from_type(function: Any, _kind: Any, args: Any, _state: Any = None) -> Any:
    """Return what a subclass of tensor wraps."""
    if not isinstance(function, Allowed) or not isinstance(args, tuple):
        raise pickle.UnpicklingError(f"a tensor built by {function!r:.100} of {args!r:.100}")
    return function(*args)


_FUNCTIONS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("torch", "Size"): _size,
    ("torch", "device"): _device,
    ("numpy", "dtype"): _NumpyType,
    ("numpy._core.multiarray", "scalar"): _numpy_scalar,
    ("numpy.core.multiarray", "scalar"): _numpy_scalar,
}
_ALLOWED: Final[dict[tuple[str, str], Any]] = {
    **{(module, name): Allowed(f"{module}.{name}", call) for (module, name), call in _FUNCTIONS.items()},
    **{("torch", name): dtype for name, dtype in _DTYPES.items()},
    **{
        (module, name): _StorageType(dtype)
        for module in ("torch", "torch.cuda", "torch.storage")
        for name, dtype in _STORAGES.items()
    },
}
_NOTHING: Final = Allowed("a function of torch", lambda *_: None)
