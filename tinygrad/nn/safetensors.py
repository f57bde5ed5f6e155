"""Safetensors files: tensors by name, with no code in the file.

In:   a path or a one-dimensional uint8 tensor that holds a file; or tensors by name.
Out:  name -> lazy tensor in the file; or the file.
Why:  tensors that are read from a file stay in the file until they are used. A file is somebody else's data: every
      number in its header is compared with its length before it is used.

The file format: eight bytes with the length of the header (little endian), the header in JSON (name -> dtype, shape and
[begin, end) in the data), then the data.
"""

from __future__ import annotations

import errno
import json
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tinygrad.boundary import explained
from tinygrad.dtype import DType, dtypes
from tinygrad.errors import ArgumentError, shown
from tinygrad.helpers import all_int, prod
from tinygrad.nn.archives import accept_filename, looks_like
from tinygrad.tensor import Tensor

__all__ = ["inverse_safe_dtypes", "safe_dtypes", "safe_load", "safe_load_metadata", "safe_save"]

safe_dtypes: Final[dict[str, DType]] = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "U8": dtypes.uint8,
    "I16": dtypes.int16,
    "U16": dtypes.uint16,
    "I32": dtypes.int32,
    "U32": dtypes.uint32,
    "I64": dtypes.int64,
    "U64": dtypes.uint64,
    "F8_E4M3": dtypes.fp8e4m3,
    "F8_E5M2": dtypes.fp8e5m2,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
}
inverse_safe_dtypes: Final[dict[DType, str]] = {dtype: code for code, dtype in safe_dtypes.items()}

_MAX_HEADER: Final = 100_000_000  # bytes; the limit of the format's own reader


class _Entry(NamedTuple):
    """One tensor as the header describes it; ``begin`` and ``end`` count from the start of the data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


@explained
@accept_filename
def safe_load_metadata(fn: Tensor) -> tuple[Tensor, int, dict[str, Any]]:
    """Read the header of a safetensors file.

    Args:
        fn: Path of the file, or its bytes as a one-dimensional uint8 tensor.

    Returns:
        The file as a tensor, the position where the data starts, and the header.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is truncated, or its header is not one.
        KeyError: The header names an unknown dtype.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "file.safetensors")
        >>> nn.state.safe_save({"a": Tensor([1.0, 2.0])}, path)
        >>> nn.state.safe_load_metadata(path)[2]
        {'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}}
    """
    header, data_start = _read_header(fn)
    _parse_entries(header, int(fn.shape[0]) - data_start)
    return fn, data_start, header


@explained
@accept_filename
def safe_load(fn: Tensor) -> dict[str, Tensor]:
    """Open a safetensors file; its tensors stay on the DISK device until they are used.

    Args:
        fn: Path of the file, or its bytes as a one-dimensional uint8 tensor.

    Returns:
        Name -> lazy tensor on the device of the file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is truncated, its header is not one, or the data of its tensors lie outside the file, over
            each other or with holes between.
        KeyError: The header names an unknown dtype.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "file.safetensors")
        >>> nn.state.safe_save({"a": Tensor([1.0, 2.0])}, path)
        >>> nn.state.safe_load(path)["a"].tolist()
        [1.0, 2.0]
    """
    header, data_start = _read_header(fn)
    entries = _parse_entries(header, int(fn.shape[0]) - data_start)
    return {entry.name: _tensor_at(fn, data_start, entry) for entry in entries}


@explained
def safe_save(tensors: Mapping[str, Tensor], fn: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file, in the order of the dict.

    The file is written beside its place and renamed when it is complete. So a reader never sees half of it, an error
    leaves an existing file as it was, and tensors may be saved onto the file that they are loaded from.

    Args:
        tensors: Name -> tensor, on any device.
        fn: Path of the file; an existing one is replaced.
        metadata: Text to store with the tensors, under ``__metadata__``.

    Raises:
        ValueError: A tensor of a weak dtype, which has no size in memory; metadata that are no text; or a name that the
            format does not allow.
        KeyError: A tensor of a dtype that the format does not have.
        ArgumentError: A name is no string, or a value no tensor.
        AssertionError: The shape of a tensor is symbolic.
        FileNotFoundError: There is no folder for the file.
        IsADirectoryError: ``fn`` is a folder.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "file.safetensors")
        >>> nn.state.safe_save({"a": Tensor([1.0, 2.0])}, path, metadata={"by": "me"})
        >>> path.stat().st_size
        104
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    _check_text(header.get("__metadata__", {}))
    position = 0
    for name, tensor in tensors.items():
        _check_storable(name, tensor)
        nbytes = prod(tensor.shape) * tensor.dtype.itemsize
        header[name] = {
            "dtype": inverse_safe_dtypes[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, position + nbytes],
        }
        position += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    _write_and_rename(Path(fn), [struct.pack("<Q", len(text)), text], tensors)


def _check_storable(name: Any, tensor: Any) -> None:
    if not isinstance(name, str):
        raise ArgumentError(f"safe_save: {name!r:.100} is the name of a tensor, expected a string")
    if name == "__metadata__" or not _is_unicode(name):
        raise ValueError(f"safe_save: the file format allows no tensor of the name {name!r:.100}")
    if not isinstance(tensor, Tensor):
        raise ArgumentError(
            f"safe_save: {name} is of type {type(tensor).__module__}.{type(tensor).__qualname__}, expected a Tensor; "
            "get_state_dict makes names for what nested dicts and lists hold"
        )
    if tensor.dtype in dtypes.weaks:
        raise ValueError(f"safe_save: {name} is of the weak dtype {tensor.dtype}; cast it to one that is stored")
    if tensor.dtype not in inverse_safe_dtypes:
        raise KeyError(f"safe_save: the file format has no code for {tensor.dtype}, the dtype of {name}")
    if not all_int(tensor.shape):
        raise AssertionError(
            f"safe_save: {name} has the symbolic shape {shown(tensor.shape)}; shrink it to a static one"
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _write_and_rename(path: Path, head: list[bytes], tensors: Mapping[str, Tensor]) -> None:
    path = path.resolve()  # the target of a symbolic link is replaced, not the link
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "safe_save: the name of a file is expected, this is a folder", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "safe_save: there is no such folder", str(path.parent))
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with aside.open("xb") as file:
            file.writelines(head)
            for tensor in tensors.values():
                file.write(_tensor_bytes(tensor))
        if path.exists():
            aside.chmod(path.stat().st_mode & 0o777)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _tensor_bytes(tensor: Tensor) -> bytes:
    """Return the elements of a tensor in memory order, little endian."""
    if 0 in tensor.shape:
        return b""
    if str(tensor.device).startswith("DISK"):
        tensor = tensor.to(None)
    # numpy has no bfloat16 and no fp8: their bits travel as integers of the same size.
    raw = {dtypes.bfloat16: dtypes.uint16, dtypes.fp8e4m3: dtypes.uint8, dtypes.fp8e5m2: dtypes.uint8}
    if tensor.dtype in raw:
        tensor = tensor.contiguous().bitcast(raw[tensor.dtype])
    array = tensor.numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _read_header(t: Tensor) -> tuple[dict[str, Any], int]:
    """Return the header of a file and the position where the data starts."""
    if t.ndim != 1 or t.dtype != dtypes.uint8:
        raise ValueError(f"safetensors: expected a one-dimensional uint8 tensor, got {t.dtype} and {shown(t.shape)}")
    size = int(t.shape[0])
    if size < 8:
        raise ValueError(f"safetensors: {_origin(t)} has {size} bytes, but the length of the header alone takes 8")
    (length,) = struct.unpack("<Q", _slice_bytes(t, 0, 8))
    if length > min(_MAX_HEADER, size - 8):
        raise ValueError(
            f"safetensors: {_origin(t)} declares a header of {length} bytes, but {size - 8} follow and "
            f"{_MAX_HEADER} are allowed: it is truncated or no safetensors file{looks_like(t, 'safe_load')}"
        )
    try:
        header = json.loads(_slice_bytes(t, 8, 8 + length), object_pairs_hook=_dict_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"safetensors: the header of {_origin(t)} is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"safetensors: the header of {_origin(t)} is a {type(header).__name__}, expected an object")
    return header, 8 + length


def _dict_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _parse_entries(header: dict[str, Any], data_size: int) -> list[_Entry]:
    """Return the tensors of a header. Their data follow each other without holes, as the format demands."""
    _check_text(header.get("__metadata__", {}))
    entries = [_parse_entry(name, info, data_size) for name, info in header.items() if name != "__metadata__"]
    position, previous = 0, ""
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin < position:
            raise ValueError(f"safetensors: the data of {entry.name!r} and {previous!r} overlap")
        if entry.begin > position:
            before = f"after those of {previous!r}" if previous else "first"
            raise ValueError(
                f"safetensors: the data of {entry.name!r} start at {entry.begin}, but {position} comes {before}: a hole"
            )
        position, previous = entry.end, entry.name
    if position != data_size:
        raise ValueError(f"safetensors: the tensors take {position} bytes, but the file has {data_size} bytes of data")
    return entries


def _check_text(metadata: Any) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise ValueError(f"safetensors: __metadata__ is {metadata!r:.200}; expected an object of strings")


def _parse_entry(name: str, info: Any, data_size: int) -> _Entry:
    try:
        code, shape, (begin, end) = info["dtype"], info["shape"], info["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"safetensors: {name!r} has no dtype, shape and data_offsets, but {info!r:.200}") from error
    if not isinstance(shape, list) or not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"safetensors: {name!r} has shape {shape!r:.200} and data_offsets {[begin, end]!r:.200}")
    if not isinstance(code, str) or code not in safe_dtypes:
        raise KeyError(f"safetensors: {name!r} has the unknown dtype {code!r}; known are {', '.join(safe_dtypes)}")
    nbytes = prod(shape) * safe_dtypes[code].itemsize
    if end - begin != nbytes:
        raise ValueError(
            f"safetensors: {name!r} of dtype {code} and shape {shape} takes {nbytes} bytes, but its data_offsets "
            f"{[begin, end]} hold {end - begin}"
        )
    if end > data_size:
        raise ValueError(
            f"safetensors: the data of {name!r} end at {end}, but the file has {data_size} bytes of data: truncated?"
        )
    return _Entry(name, safe_dtypes[code], tuple(shape), begin, end)


def _tensor_at(t: Tensor, data_start: int, entry: _Entry) -> Tensor:
    if entry.begin == entry.end:
        return Tensor.empty(*entry.shape, dtype=entry.dtype)
    start = data_start + entry.begin
    data = t[start : data_start + entry.end]
    if start % entry.dtype.itemsize != 0:
        data = data.to(None).contiguous()  # elements across their natural boundaries cannot be viewed in place
    return data.bitcast(entry.dtype).reshape(entry.shape)


def _slice_bytes(t: Tensor, start: int, stop: int) -> bytes:
    return bytes(t[start:stop].data())


def _origin(t: Tensor) -> str:
    return str(t.device)
