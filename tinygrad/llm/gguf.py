"""GGUF files: metadata and tensors of a language model.

In:   a path (the first one if the model is split over several files), or a one-dimensional uint8 tensor with the file.
Out:  the metadata as a dict, and name -> lazy tensor, with quantised weights unpacked.
Why:  the header is read once, without touching the data. Numbers in it are compared with the length of the file before
      they are used, so a damaged file cannot ask for much memory.

The format (versions 2 and 3, little endian): "GGUF", version, number of tensors, number of metadata entries; the
entries (key, type, value); for each tensor its name, dims from the innermost outwards, type and position in the data;
padding; the data, in which each tensor starts at a multiple of ``general.alignment``.
"""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

from tinygrad.boundary import explained
from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import prod
from tinygrad.llm.ggml_types import GGML_TYPES, GGMLType, ggml_data_to_tensor
from tinygrad.nn.archives import TensorIO, looks_like, open_file
from tinygrad.tensor import Tensor

__all__ = ["ggml_data_to_tensor", "gguf_load"]

_PART: Final = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_DIMS: Final = 8
_MAX_NESTING: Final = 8
_STRING: Final = 8
_ARRAY: Final = 9
_NUMBERS: Final[dict[int, str]] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_LAYOUTS: Final = {code: struct.Struct("<" + code) for code in _NUMBERS.values()}


@explained
def gguf_load(fn: Tensor | str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Open a GGUF file.

    Args:
        fn: Path, of the first part for a model in several files (``NAME-00001-of-00003.gguf``); or the bytes of one
            file as a one-dimensional uint8 tensor. On a device that computes, tensors are views of these bytes, and
            quantised weights are unpacked anew in each kernel that uses them.

    Returns:
        (metadata, tensors). Metadata are Python numbers, strings and lists. Tensors are lazy; those of a path are on
        the default device, copied and unpacked when they are realized.

    Raises:
        FileNotFoundError: There is no such file, or a part is missing.
        ValueError: The file has no GGUF magic, another version, or is truncated or damaged; a tensor has an unsupported
            type or reaches beyond the file; a model in several parts is given as a tensor, not by its first part, or
            under a name that does not tell where the others are.
    """
    t = fn if isinstance(fn, Tensor) else open_file(fn)
    metadata, tensors = _load_file(t)
    count, number = metadata.get("split.count", 1), metadata.get("split.no", 0)
    if not (isinstance(count, int) and isinstance(number, int)):
        raise ValueError(
            f"GGUF: {t.device} has split.count {count!r:.50} and split.no {number!r:.50}; expected integers"
        )
    if number != 0:
        raise ValueError(
            f"GGUF: {t.device} is part {number + 1} of {count}; open the first part, *-00001-of-{count:05}.gguf"
        )
    if count <= 1:
        return metadata, tensors
    if isinstance(fn, Tensor):
        raise ValueError(f"GGUF: the model is split into {count} parts; give the path of the first one, not a tensor")
    for number, path in enumerate(_other_parts(Path(fn), count), 1):
        part, more = _load_file(Tensor(path))
        if part.get("split.no") != number or part.get("split.count") != count:
            raise ValueError(
                f"GGUF: {path} is not part {number + 1} of {count}: its header has another split.no or count"
            )
        if twice := tensors.keys() & more.keys():
            raise ValueError(f"GGUF: tensor {min(twice)!r} occurs in {path} and in an earlier part")
        tensors.update(more)
    expected = metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise ValueError(f"GGUF: the {count} parts have {len(tensors)} tensors, expected {expected!r:.50}")
    return metadata, tensors


def _other_parts(first: Path, count: int) -> list[Path]:
    match = _PART.fullmatch(first.name)
    if match is None or int(match["count"]) != count or int(match["part"]) != 1:
        raise ValueError(
            f"GGUF: {first.name} is the first of {count} parts; expected the name NAME-00001-of-{count:05}.gguf, which "
            "tells the names of the others"
        )
    paths = [first.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(2, count + 1)]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"GGUF: {first.name} is the first of {count} parts, but there is no {path}")
    return paths


def _load_file(t: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if t.ndim != 1 or t.dtype != dtypes.uint8:
        raise ValueError(f"GGUF: expected a one-dimensional uint8 tensor, got {t.dtype} and shape {t.shape}")
    header = _Header(t)
    metadata, entries = header.read()
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise ValueError(f"GGUF: {t.device} has general.alignment {alignment!r:.50}; expected a power of two")
    start = header.position + -header.position % alignment
    _check_places(entries, int(t.shape[0]) - start, alignment, str(t.device))
    return metadata, {entry.name: _tensor_at(t, start, entry) for entry in entries}


class _Entry(NamedTuple):
    """A tensor as the header describes it; ``offset`` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    number: int
    kind: GGMLType
    offset: int

    @property
    def nbytes(self) -> int:
        return self.kind.nbytes(prod(self.shape))


def _check_places(entries: list[_Entry], size: int, alignment: int, origin: str) -> None:
    end, previous = 0, ""
    for entry in sorted(entries, key=lambda e: (e.offset, e.nbytes)):
        if entry.offset % alignment:
            raise ValueError(
                f"GGUF: tensor {entry.name!r} starts at {entry.offset}, which is no multiple of {alignment}"
            )
        if entry.offset < end:
            raise ValueError(f"GGUF: the data of tensors {previous!r} and {entry.name!r} overlap")
        end, previous = entry.offset + entry.nbytes, entry.name
        if end > size:
            raise ValueError(
                f"GGUF: the data of tensor {entry.name!r} end at {end}, but {origin} has {max(size, 0)} bytes of data: "
                "truncated?"
            )


def _tensor_at(t: Tensor, start: int, entry: _Entry) -> Tensor:
    dtype = entry.kind.unpack if isinstance(entry.kind.unpack, DType) else dtypes.float32
    if entry.nbytes == 0:
        return Tensor.empty(*entry.shape, dtype=dtype)
    data = t[start + entry.offset : start + entry.offset + entry.nbytes]
    if str(t.device).startswith("DISK"):
        data = data.to(None)
    return ggml_data_to_tensor(data, prod(entry.shape), entry.number).reshape(entry.shape)


class _Header:
    """Reads the header of a file from its start; ``position`` is where it ended."""

    def __init__(self, t: Tensor) -> None:
        self._tensor = t
        self._file = io.BufferedReader(TensorIO(t), 1 << 20)
        self._size = int(t.shape[0])
        self._origin = str(t.device)
        self.position = 0

    def read(self) -> tuple[dict[str, Any], list[_Entry]]:
        """Return the metadata and the tensors."""
        magic = self._take(4, "the magic number")
        if magic != b"GGUF":
            raise ValueError(
                f"GGUF: {self._origin} starts with {magic!r}, expected b'GGUF'{looks_like(self._tensor, 'gguf_load')}"
            )
        version = self._number("I")
        if version not in (2, 3):
            hint = "; it is big endian" if version & 0xFFFF == 0 else ""
            raise ValueError(f"GGUF: {self._origin} has version {version}, supported are 2 and 3{hint}")
        tensor_count = self._count("tensors", smallest=24)
        entry_count = self._count("metadata entries", smallest=13)
        metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self._string("a key")
            if key in metadata:
                raise ValueError(f"GGUF: {self._origin} has the key {key!r:.100} twice")
            metadata[key] = self._value(self._number("I"), key, 0)
        entries: dict[str, _Entry] = {}
        for _ in range(tensor_count):
            entry = self._entry()
            if entry.name in entries:
                raise ValueError(f"GGUF: {self._origin} has the tensor {entry.name!r:.100} twice")
            entries[entry.name] = entry
        return metadata, list(entries.values())

    def _take(self, count: int, what: str) -> bytes:
        if count > self._size - self.position:
            raise ValueError(
                f"GGUF: {self._origin} is truncated or damaged: {what} at byte {self.position} takes {count} bytes, "
                f"{self._size - self.position} are left"
            )
        self.position += count
        return self._file.read(count)

    def _number(self, code: str) -> Any:
        layout = _LAYOUTS[code]
        return layout.unpack(self._take(layout.size, "a number"))[0]

    def _count(self, what: str, smallest: int) -> int:
        """Read a number of things that take at least ``smallest`` bytes each."""
        count: int = self._number("Q")
        left = self._size - self.position
        if count * smallest > left:
            raise ValueError(
                f"GGUF: {self._origin} is truncated or damaged: it declares {count} {what}, but {left} bytes are left"
            )
        return count

    def _string(self, what: str) -> str:
        # Tokens may be parts of characters. Escaped, they stay apart, and encoding gives back what they were.
        return self._take(self._number("Q"), what).decode("utf-8", errors="surrogateescape")

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _STRING:
            return self._string(f"the value of {key!r:.100}")
        if kind == _ARRAY:
            return self._array(key, depth + 1)
        raise ValueError(f"GGUF: {self._origin} has the unknown type {kind} for {key!r:.100}")

    def _array(self, key: str, depth: int) -> list[Any]:
        if depth > _MAX_NESTING:
            raise ValueError(f"GGUF: the lists of {key!r:.100} are nested more than {_MAX_NESTING} deep")
        kind = self._number("I")
        if kind in _NUMBERS:
            code = _NUMBERS[kind]
            count = self._count(f"numbers of {key!r:.100}", smallest=struct.calcsize(code))
            return list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(code), key)))
        count = self._count(f"items of {key!r:.100}", smallest=8 if kind == _STRING else 12)
        return [self._value(kind, key, depth) for _ in range(count)]

    def _entry(self) -> _Entry:
        name = self._string("the name of a tensor")
        ndim = self._number("I")
        if ndim > _MAX_DIMS:
            raise ValueError(f"GGUF: tensor {name!r:.100} has {ndim} dims, at most {_MAX_DIMS} are supported")
        dims = struct.unpack(f"<{ndim}Q", self._take(8 * ndim, f"the shape of {name!r:.100}"))
        number, offset = self._number("I"), self._number("Q")
        kind = GGML_TYPES.get(number)
        if kind is None:
            raise ValueError(f"GGUF: tensor {name!r:.100} has the type {number}, which is not supported")
        if dims and dims[0] % kind.block_size:
            raise ValueError(
                f"GGUF: tensor {name!r:.100} of type {kind.name} has rows of {dims[0]} elements; expected a multiple "
                f"of {kind.block_size}"
            )
        return _Entry(name, tuple(reversed(dims)), number, kind, offset)
