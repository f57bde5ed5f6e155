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
from io import BytesIO
from typing import Any, Final

from tinygrad.boundary import explained
from tinygrad.dtype import DType, dtypes
from tinygrad.nn.archives import TensorIO, ZipArchive, accept_filename, looks_like, tar_extract
from tinygrad.nn.restricted_pickle import Allowed, restricted_load
from tinygrad.nn.torch_objects import ALLOWED, MAX_DIMS, NOTHING, Storage, storage_dtype, view
from tinygrad.tensor import Tensor

__all__ = ["torch_load"]

_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL: Final = 1001


@explained
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
        KeyError: A storage has a dtype that does not exist here, such as complex or quantised numbers.
        NotImplementedError: A tensor is sparse, nested, on the meta device, or a lazy conjugate.
        ValueError: The file has the other byte order, or is empty.

    Example:
        >>> import pathlib, tempfile, torch
        >>> path = pathlib.Path(tempfile.mkdtemp(), "file.pt")
        >>> torch.save({"a": torch.ones(2)}, path)
        >>> nn.state.torch_load(path)["a"].tolist()
        [1.0, 1.0]
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
        storages: dict[str, Storage] = {}

        def persistent_load(pid: Any) -> Storage:
            kind, key, numel = _storage_id(pid)
            dtype, name = storage_dtype(kind), f"{folder}data/{key}"
            if key not in storages:
                if name not in archive.members:
                    raise pickle.UnpicklingError(f"there is no storage {key!r} in the archive: truncated?")
                if numel * dtype.itemsize > archive.members[name].size:
                    raise pickle.UnpicklingError(
                        f"storage {key!r} has {archive.members[name].size} bytes, declared are {numel} of {dtype}"
                    )
                storages[key] = Storage(archive.tensor(name), dtype)
            return storages[key]

        program = BytesIO(archive.read(pickles[0]))
        return restricted_load(program, allowed=ALLOWED, persistent_load=persistent_load, origin=origin)


def _storage_id(pid: Any) -> tuple[Any, str, int]:
    """Return (type, key, number of elements) of a persistent id ("storage", type, key, location, number, ...)."""
    if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
        raise pickle.UnpicklingError(f"persistent id {pid!r:.100}; expected a storage")
    if not isinstance(pid[2], str) or type(pid[4]) is not int or pid[4] < 0:
        raise pickle.UnpicklingError(f"storage with the key {pid[2]!r:.100} and {pid[4]!r:.100} elements")
    return pid[1], pid[2], pid[4]


# ---- pickles with raw data behind them ----


def _load_legacy(t: Tensor) -> Any:
    origin, file = str(t.device), TensorIO(t)
    try:
        magic = _load_plain(file, origin)
    except pickle.UnpicklingError as error:
        detail = str(error).removeprefix(f"torch_load: {origin}: ")
        raise pickle.UnpicklingError(
            f"torch_load: {origin} is no file that torch.save wrote: {detail}{looks_like(t, 'torch_load')}"
        ) from error
    if magic != _LEGACY_MAGIC:
        raise pickle.UnpicklingError(f"torch_load: {origin} is no checkpoint: its magic number is another one")
    protocol = _load_plain(file, origin)
    if protocol != _LEGACY_PROTOCOL:
        raise pickle.UnpicklingError(f"torch_load: {origin} has protocol {protocol!r:.50}, expected {_LEGACY_PROTOCOL}")
    system = _load_plain(file, origin)
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise ValueError(f"torch_load: {origin} is big endian; only little endian is supported")
    # Which storages there are stands in the pickle, and where they are only behind it: so it is read twice.
    start = file.tell()
    known: dict[str, Storage] = {}
    nothing = Tensor.empty(0, dtype=dtypes.uint8)

    def first_time(pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]
        kind, key, _ = _storage_id(pid)
        return known.setdefault(key, Storage(nothing, storage_dtype(kind)))

    inert = {key: NOTHING if isinstance(value, Allowed) else value for key, value in ALLOWED.items()}
    restricted_load(file, allowed=inert, persistent_load=first_time, origin=origin)
    keys = _load_plain(file, origin)
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in known for key in keys):
        raise pickle.UnpicklingError(f"torch_load: {origin}: the list of storages {keys!r:.100} names unknown ones")
    storages = {key: Storage(_raw_elements(t, file, known[key].dtype, key), known[key].dtype) for key in keys}

    def second_time(pid: Any) -> Any:
        if pid[0] == "module":
            return pid[1]
        if pid[2] not in storages:
            raise pickle.UnpicklingError(f"storage {pid[2]!r} has no data: truncated?")
        return _part_of(storages[pid[2]], pid[5] if len(pid) > 5 else None)

    file.seek(start)
    return restricted_load(file, allowed=ALLOWED, persistent_load=second_time, origin=origin)


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


def _part_of(storage: Storage, part: Any) -> Storage:
    """Return the part (key, offset, size) of a storage, in elements; the whole if it is None."""
    if part is None:
        return storage
    if not (isinstance(part, tuple) and len(part) == 3 and all(type(n) is int and n >= 0 for n in part[1:])):
        raise pickle.UnpicklingError(f"part {part!r:.100} of a storage; expected (key, offset, size)")
    itemsize = storage.dtype.itemsize
    if (part[1] + part[2]) * itemsize > storage.size:
        raise pickle.UnpicklingError(f"part {part!r:.100} of a storage of {storage.size} bytes")
    return Storage(storage.data[part[1] * itemsize : (part[1] + part[2]) * itemsize], storage.dtype)


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
    return restricted_load(file, allowed=ALLOWED, persistent_load=persistent_load, origin=origin)


def _tar_storages(t: Tensor, origin: str) -> dict[str, Storage]:
    file = TensorIO(t)
    storages: dict[str, Storage] = {}
    for _ in range(_count(_load_plain(file, origin), t)):
        entry = _load_typed(file, origin)
        if not (isinstance(entry, tuple) and len(entry) == 3):
            raise pickle.UnpicklingError(f"torch_load: {origin}: storage {entry!r:.100}; expected key, place, type")
        key, _, kind = entry
        dtype = storage_dtype(kind)
        storages[str(key)] = Storage(_raw_elements(t, file, dtype, key), dtype)
    for entry in _load_plain(file, origin):
        if not (isinstance(entry, tuple) and len(entry) == 4 and str(entry[1]) in storages):
            raise pickle.UnpicklingError(f"torch_load: {origin}: storage view {entry!r:.100}")
        key, root, offset, size = entry
        storages[str(key)] = _part_of(storages[str(root)], (key, offset, size))
    return storages


def _tar_tensors(t: Tensor, storages: dict[str, Storage], origin: str) -> dict[str, Tensor]:
    file = TensorIO(t)
    tensors = {}
    for _ in range(_count(_load_plain(file, origin), t)):
        entry = _load_typed(file, origin)
        if not (isinstance(entry, tuple) and len(entry) == 3 and str(entry[1]) in storages):
            raise pickle.UnpicklingError(f"torch_load: {origin}: tensor {entry!r:.100}; expected (key, storage, type)")
        (ndim,) = _integers(file, "i4x", 1, origin)  # with four bytes that mean nothing behind it
        if not 0 <= ndim <= MAX_DIMS:
            raise pickle.UnpicklingError(f"torch_load: {origin}: tensor {entry[0]!r} has {ndim} dims")
        numbers = _integers(file, f"{2 * ndim + 1}q", 2 * ndim + 1, origin)
        storage = storages[str(entry[1])]
        shown = numbers[2 * ndim], tuple(numbers[:ndim]), tuple(numbers[ndim : 2 * ndim])
        tensors[str(entry[0])] = view(storage, storage.dtype, *shown)
    return tensors


def _count(number: Any, t: Tensor) -> int:
    if type(number) is not int or not 0 <= number <= int(t.shape[0]):
        raise pickle.UnpicklingError(f"torch_load: {t.device}: {number!r:.50} entries in {t.shape[0]} bytes")
    return number


def _load_typed(file: TensorIO, origin: str) -> Any:
    """Read a pickle that names types of storages and tensors besides plain values."""

    def class_of(pid: Any) -> Any:
        return pid[0] if isinstance(pid, tuple) and pid else pid

    return restricted_load(file, allowed=ALLOWED, persistent_load=class_of, origin=origin)


def _integers(file: TensorIO, layout: str, count: int, origin: str) -> tuple[int, ...]:
    numbers = struct.Struct("<" + layout)
    data = file.read(numbers.size)
    if len(data) != numbers.size:
        raise pickle.UnpicklingError(f"torch_load: {origin}: {count} numbers end after {len(data)} bytes: truncated?")
    return numbers.unpack(data)
