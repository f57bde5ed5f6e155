"""State of models: find the tensors in an object, replace them, store them in safetensors files and read them again.

In:   any object that holds tensors; a path or a one-dimensional uint8 tensor that holds a file.
Out:  flat dicts from dotted names to tensors.
Why:  models have no base class, so their tensors are found by walking what they hold. Tensors that are read from a
      file stay in the file until they are used. A file is somebody else's data: every number in its header is
      compared with its length before it is used.

The file format: eight bytes with the length of the header (little endian), the header in JSON (name -> dtype, shape and
[begin, end) in the data), then the data.
"""

from __future__ import annotations

import functools
import json
import secrets
import struct
import types
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tinygrad.boundary import explained
from tinygrad.dtype import DType, dtypes
from tinygrad.errors import shown
from tinygrad.helpers import DEBUG, prod, tqdm
from tinygrad.nn.archives import TensorIO, accept_filename, tar_extract, zip_extract
from tinygrad.nn.content_store import fs_load, fs_store
from tinygrad.nn.torch_file import torch_load
from tinygrad.tensor import Tensor

__all__ = [
    "TensorIO", "accept_filename", "fs_load", "fs_store", "get_parameters", "get_state_dict", "inverse_safe_dtypes",
    "load_state_dict", "safe_dtypes", "safe_load", "safe_load_metadata", "safe_save", "tar_extract", "torch_load",
    "zip_extract",
]  # fmt: skip

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


# ---- tensors of an object ----


@explained
def get_state_dict(obj: Any, prefix: str = "", tensor_type: Any = Tensor) -> dict[str, Any]:
    """Find every tensor that an object holds.

    Attributes, items of dicts, lists, tuples and named tuples are walked; everything else is ignored. A tensor that is
    reached on two ways has two names. Functions, lambdas, methods and ``functools.partial`` objects are searched last,
    for tensors that no other way leads to: layers in a closure, in default arguments or bound to a partial.

    Args:
        obj: A model, a list of layers, a tensor, ...
        prefix: Put before each name, with a dot between.
        tensor_type: The type (or tuple of types) to look for.

    Returns:
        Name -> tensor. A bare tensor has the name ''.

    Example:
        >>> sorted(nn.state.get_state_dict({"first": nn.Linear(2, 3)}))
        ['first.bias', 'first.weight']
    """
    walk = _Walk(tensor_type)
    found = dict(walk(obj, prefix.strip(".")))
    known = {id(tensor) for tensor in found.values()}
    seen: set[int] = set()
    for name, function in walk.functions:  # grows meanwhile: a closure may hold an object that holds another closure
        if id(function) in seen:
            continue
        seen.add(id(function))
        for inner_name, held in _held_by_function(function):
            for key, tensor in walk(held, _join(name, inner_name)):
                if id(tensor) not in known and key not in found:
                    known.add(id(tensor))
                    found[key] = tensor
    return found


@explained
def get_parameters(obj: Any) -> list[Tensor]:
    """Return every tensor that an object holds, those that are not trained included.

    Example:
        >>> [p.shape for p in nn.state.get_parameters(nn.Linear(2, 3))]
        [(3, 2), (3,)]
    """
    return list(get_state_dict(obj).values())


def _join(prefix: str, name: object) -> str:
    return f"{prefix}.{name}" if prefix else str(name)


class _Walk:
    """A depth-first walk through objects; several calls share what earlier ones have learnt."""

    def __init__(self, tensor_type: Any) -> None:
        self.tensor_type = tensor_type
        self.functions: list[tuple[str, Any]] = []  # met so far, with their names
        self._barren: set[int] = set()  # objects without any tensor below: not entered again
        self._found = 0

    def __call__(self, root: Any, root_name: str) -> Iterator[tuple[str, Any]]:
        """Yield (name, tensor) for each tensor below ``root``, in order."""
        on_path: set[int] = set()  # an object that holds itself, as a child that knows its parent does, ends there
        # An object is on the stack to be entered, then, with the number of tensors found before it, to be left.
        stack: list[tuple[str, Any, int | None]] = [(root_name, root, None)]
        while stack:
            name, obj, found_before = stack.pop()
            if found_before is not None:
                on_path.discard(id(obj))
                if found_before == self._found:
                    self._barren.add(id(obj))
            elif isinstance(obj, self.tensor_type):
                self._found += 1
                yield name, obj
            elif _is_function(obj):
                self.functions.append((name, obj))
            elif id(obj) not in on_path and id(obj) not in self._barren and (children := _children(obj)):
                on_path.add(id(obj))
                stack.append((name, obj, self._found))
                stack.extend((_join(name, key), child, None) for key, child in reversed(children))


def _children(obj: Any) -> list[tuple[object, Any]]:
    """Return what an object holds by name; nothing for leaves such as numbers, classes and graph nodes."""
    if isinstance(obj, (str, bytes, int, float, type, types.ModuleType, Tensor)):
        return []
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return list(zip(obj._fields, obj, strict=True))
    if isinstance(obj, dict):
        return list(obj.items())
    if isinstance(obj, (list, tuple)):
        return list(enumerate(obj))
    if type(obj).__module__.startswith(_INNER_MODULES):
        # A JIT and a @function hold graphs and results of their own; what belongs to the model is the wrapped function.
        wrapped = getattr(obj, "fxn", None)
        return [("fxn", wrapped)] if wrapped is not None else []
    if hasattr(obj, "__dict__"):
        return list(vars(obj).items())
    if hasattr(type(obj), "__dataclass_fields__"):  # a dataclass with slots
        return [(name, getattr(obj, name)) for name in type(obj).__dataclass_fields__ if hasattr(obj, name)]
    return []


# Objects of these modules are machinery, not models.
_INNER_MODULES: Final = (
    "tinygrad.engine", "tinygrad.function", "tinygrad.uop", "tinygrad.dtype", "tinygrad.device", "tinygrad.runtime",
    "tinygrad.renderer", "tinygrad.settings",
)  # fmt: skip


def _is_function(obj: Any) -> bool:
    return isinstance(obj, (types.FunctionType, types.MethodType, functools.partial))


def _held_by_function(function: Any) -> list[tuple[str, Any]]:
    """Return the objects that a function refers to: its closure, default arguments, bound object or bound arguments."""
    if isinstance(function, functools.partial):
        positional = [(f"args.{index}", arg) for index, arg in enumerate(function.args)]
        return [("func", function.func), *positional, *function.keywords.items()]
    if isinstance(function, types.MethodType):
        return [("self", function.__self__), ("func", function.__func__)]
    held = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held.append((name, cell.cell_contents))
        except ValueError:  # the variable has no value yet
            continue
    defaults = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    held += zip(names[len(names) - len(defaults) :], defaults, strict=True)
    held += (function.__kwdefaults__ or {}).items()
    return held


@explained
def load_state_dict(
    model: Any,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Replace each tensor of a model by the one of the same name, moved to where the model's tensor is.

    The dtype is that of the new tensor. Shapes have to agree, but () and (1,) are taken for each other. All names and
    shapes are looked at first: after an error the model is as it was.

    Args:
        model: What ``get_state_dict`` walks.
        state_dict: Name -> tensor. With DEBUG >= 1, names that the model does not have are reported.
        strict: Whether a tensor of the model without a counterpart is an error.
        verbose: Whether a progress bar is shown, on a terminal.
        consume: Whether each entry is deleted once it was used, so that its memory can be given back.
        realize: Whether the tensors are loaded now.

    Returns:
        The tensors of the model that were replaced.

    Raises:
        KeyError: A name is missing and ``strict`` is set.
        ValueError: Two shapes differ.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> new = {"weight": Tensor([[3.0, 4.0]]), "bias": Tensor([0.5])}
        >>> _ = nn.state.load_state_dict(layer, new, verbose=False)
        >>> layer.weight.tolist()
        [[3.0, 4.0]]
    """
    own = get_state_dict(model)
    missing = [name for name in own if name not in state_dict]
    if missing and strict:
        raise KeyError(
            f"load_state_dict: the state dict has no entry for {', '.join(name or repr(name) for name in missing)}; "
            "pass strict=False to leave them"
        )
    unused = [name for name in state_dict if name not in own]
    if unused and DEBUG >= 1:
        warnings.warn(f"load_state_dict: the model has no tensor for {', '.join(unused)}", stacklevel=2)
    names = [name for name in own if name in state_dict]
    for name in names:
        _check_same_shape(name, own[name], state_dict[name])
    loaded = []
    for name in tqdm(names, desc="loading state dict", disable=None if verbose else True):
        tensor, new = own[name], state_dict[name]
        if consume:
            del state_dict[name]
        new = new.reshape(tensor.shape)
        tensor.replace(new.shard_like(tensor) if isinstance(tensor.device, tuple) else new.to(tensor.device))
        if realize and consume:
            tensor.realize()
        loaded.append(tensor)
    if realize and loaded:
        Tensor.realize(*loaded)
    return loaded


def _check_same_shape(name: str, own: Tensor, new: Tensor) -> None:
    if own.shape != new.shape and {own.shape, new.shape} != {(), (1,)}:
        raise ValueError(
            f"Shape mismatch in layer `{name}`: expected shape {shown(own.shape)}, but found {shown(new.shape)} in the "
            "state dict"
        )


# ---- safetensors files ----


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
        ValueError: A tensor of a weak dtype, which has no size in memory; or metadata that are no text.
        KeyError: A tensor of a dtype that the format does not have.

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
        if tensor.dtype in dtypes.weaks:
            raise ValueError(f"safe_save: {name} is of the weak dtype {tensor.dtype}; cast it to one that is stored")
        if tensor.dtype not in inverse_safe_dtypes:
            raise KeyError(f"safe_save: the file format has no code for {tensor.dtype}, the dtype of {name}")
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


def _write_and_rename(path: Path, head: list[bytes], tensors: Mapping[str, Tensor]) -> None:
    path = path.resolve()  # the target of a symbolic link is replaced, not the link
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
            f"{_MAX_HEADER} are allowed: it is truncated or no safetensors file"
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
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
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
