"""Archives as dicts of tensors: members of zip and tar files, and a tensor of bytes as a file object.

In:   a path, or a one-dimensional uint8 tensor that holds a file.
Out:  name -> uint8 tensor. What is stored as it is becomes a lazy slice of the file; what is deflated is unpacked.
Why:  an archive is somebody else's data. Names are keys and nothing else: nothing is written anywhere. Positions and
      sizes are compared with the length of the file before they are used, so a small file cannot ask for much memory.
"""

from __future__ import annotations

import errno
import functools
import inspect
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, NoReturn, ParamSpec, TypeVar, cast

from tinygrad.boundary import explained
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from typing import Self

    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["TensorIO", "ZipArchive", "accept_filename", "looks_like", "open_file", "tar_extract", "zip_extract"]

R = TypeVar("R")
P = ParamSpec("P")

_WINDOW: Final = 1 << 20  # bytes that are fetched at once from a device that cannot be mapped
_MAX_DEFLATE_RATIO: Final = 1032  # no deflated byte stands for more
# What senseless numbers make Python's own readers raise.
_DAMAGE: Final = (struct.error, ValueError, OverflowError, EOFError, MemoryError)
_MEMBER: Final = b"PK\3\4"  # how a member of a zip file begins, and so the file
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")  # magic, then after other things the lengths of name and extra field


def accept_filename(func: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Tensor | str | Path, P], R]:
    """Let a function of a uint8 tensor take a path too, which is opened as a tensor on the DISK device.

    Example:
        >>> length = nn.state.accept_filename(lambda t: t.shape[0])
        >>> length(Tensor(b"abc"))
        3
    """

    @functools.wraps(func)
    def wrapper(fn: Tensor | str | Path, *args: P.args, **kwargs: P.kwargs) -> R:
        return func(fn if isinstance(fn, Tensor) else open_file(fn), *args, **kwargs)

    signature = inspect.signature(func)
    first, *others = signature.parameters.values()
    parameters = [first.replace(annotation=Tensor | str | Path), *others]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what messages show
    # The type cannot say that the first argument may be given by name too.
    return cast("Callable[Concatenate[Tensor | str | Path, P], R]", wrapper)


def open_file(name: str | Path) -> Tensor:
    """Return a file as a tensor of bytes on the DISK device.

    Raises:
        FileNotFoundError: There is no such file.
        IsADirectoryError: It is a folder.
    """
    if isinstance(name, str) and "://" in name:
        raise FileNotFoundError(errno.ENOENT, "a URL, not a file; fetch(url) downloads it", name)
    return Tensor(Path(name))


# How files begin that are taken for others, and what to do with them.
_BEGINNINGS: Final = (
    (b"\x1f\x8b", "a gzip file: decompress it first"),
    (b"BZh", "a bzip2 file: decompress it first"),
    (b"\xfd7zXZ", "an xz file: decompress it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: decompress it first"),
    (_MEMBER, "a zip archive: torch_load opens checkpoints, zip_extract others"),
    (b"GGUF", "a GGUF file: gguf_load opens it"),
    (b"\x93NUMPY", "a numpy file: numpy.load opens it"),
    (b"version https://git-lfs", "a pointer of Git LFS: git lfs pull fetches the file"),
    (b"<", "a web page: the download went wrong"),
)


def looks_like(t: Tensor, opener: str) -> str:
    """Return the part of a message of ``opener`` that says what a file of bytes is that it cannot open."""
    head = TensorIO(t).read(32)
    kinds = [kind for beginning, kind in _BEGINNINGS if head.startswith(beginning)]
    if head[8:9] == b"{":
        kinds.append("a safetensors file: safe_load opens it")
    if kinds and opener in kinds[0]:
        return "; it begins like one, so its end is missing or it is damaged"
    return f"; it looks like {kinds[0]}" if kinds else ""


class TensorIO(io.RawIOBase):
    """A tensor of bytes as a binary file object for reading.

    Args:
        t: One-dimensional uint8 tensor, on any device. A file on DISK is mapped, not copied.

    Raises:
        ValueError: Another rank or dtype.

    Example:
        >>> nn.state.TensorIO(Tensor(b"abc")).read(2)
        b'ab'
    """

    def __init__(self, t: Tensor) -> None:
        if t.ndim != 1 or t.dtype != dtypes.uint8:
            raise ValueError(f"TensorIO: expected a one-dimensional uint8 tensor, got {t.dtype} and shape {t.shape}")
        self._tensor = t
        self._size = int(t.shape[0])
        self._position = 0
        self._start = 0  # of the bytes that were fetched last
        self._bytes = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to ``offset`` from the start, the position or the end; returns the new position.

        Raises:
            io.UnsupportedOperation: The new position is before the start; an OSError and a ValueError, as files and
                ``io.BytesIO`` raise.
            ValueError: ``whence`` is unknown.
        """
        origins = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        if whence not in origins:
            raise ValueError(f"TensorIO: seek from {whence}; expected 0 (start), 1 (position) or 2 (end)")
        if origins[whence] + offset < 0:
            raise io.UnsupportedOperation(f"TensorIO: seek to {origins[whence] + offset}, before the start")
        self._position = origins[whence] + offset
        return self._position

    def peek(self, size: int = 1, /) -> bytes:
        """Return up to ``size`` bytes at the position without moving it."""
        return bytes(self._at_position(size))

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, all that follow if it is negative or None."""
        data = bytes(self._at_position(self._size if size is None or size < 0 else size))
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Return all bytes that follow."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill ``buffer`` as far as there are bytes; returns their number."""
        dest = memoryview(buffer).cast("B")
        data = self._at_position(len(dest))
        dest[: len(data)] = data
        self._position += len(data)
        return len(data)

    def write(self, data: ReadableBuffer, /) -> NoReturn:
        """Raise io.UnsupportedOperation."""
        raise io.UnsupportedOperation("TensorIO: write; the tensor is only read, use assign to change it")

    def writelines(self, lines: Iterable[ReadableBuffer], /) -> NoReturn:
        """Raise io.UnsupportedOperation."""
        raise io.UnsupportedOperation("TensorIO: writelines; the tensor is only read, use assign to change it")

    def _at_position(self, size: int) -> memoryview:
        size = max(0, min(size, self._size - self._position))
        begin = self._position - self._start
        if size and not 0 <= begin <= begin + size <= len(self._bytes):
            self._fetch(size)
            begin = self._position - self._start
        return self._bytes[begin : begin + size] if size else memoryview(b"")

    def _fetch(self, size: int) -> None:
        t = self._tensor
        if str(t.device).startswith("DISK") and t.uop.contiguous_view() is not None:
            self._start, self._bytes = 0, t.uop.buffer.ensure_allocated().as_memoryview(force_zero_copy=True)
            return
        stop = min(self._position + max(size, _WINDOW), self._size)
        part = t[self._position : stop]
        part = part.to(None) if str(t.device).startswith("DISK") else part
        self._start, self._bytes = self._position, memoryview(bytes(part.data()))


# ---- zip ----


class ZipMember(NamedTuple):
    """A member of a zip file; its bytes are [start, start + stored_size) of the file."""

    name: str
    start: int
    stored_size: int
    size: int
    info: zipfile.ZipInfo


class ZipArchive:
    """The members of a zip file, each inside the file and none over another.

    Args:
        t: The file, a one-dimensional uint8 tensor.

    Attributes:
        members: Name -> member. Of two with the same name the last counts, as for every unpacker.

    Raises:
        zipfile.BadZipFile: It is no zip file, it is truncated, members overlap, or a size is impossible.
        NotImplementedError: A member is encrypted, or compressed by another method than deflate.
    """

    def __init__(self, t: Tensor) -> None:
        self._tensor = t
        self._file = TensorIO(t)
        try:
            self._zip = zipfile.ZipFile(self._file)
            members = [self._member(info) for info in self._zip.infolist() if not info.filename.endswith("/")]
        except (*_DAMAGE, IndexError, zipfile.BadZipFile) as error:
            raise zipfile.BadZipFile(f"zip_extract: {self._fault(error)}") from error
        self._check_apart(members)
        self.members = {member.name: member for member in members}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def tensor(self, name: str) -> Tensor:
        """Return a member: a lazy slice of the file, or a tensor on the default device if it is deflated.

        Raises:
            zipfile.BadZipFile: The deflated bytes are damaged.
        """
        member = self.members[name]
        if member.info.compress_type == zipfile.ZIP_STORED:
            return self._tensor[member.start : member.start + member.size]
        return Tensor(self.read(name)).to(None)

    def read(self, name: str) -> bytes:
        """Return the bytes of a member, checked against its checksum.

        Raises:
            zipfile.BadZipFile: They are damaged.
        """
        import zlib

        member = self.members[name]
        try:
            data = self._zip.read(member.info)
        except (zlib.error, EOFError, ValueError, OverflowError) as error:
            raise zipfile.BadZipFile(f"zip_extract: member {name!r} is damaged: {error}") from error
        if len(data) != member.size:
            raise zipfile.BadZipFile(f"zip_extract: member {name!r} has {len(data)} bytes, {member.size} are declared")
        return data

    def _member(self, info: zipfile.ZipInfo) -> ZipMember:
        name = info.filename
        if info.flag_bits & 1:
            raise NotImplementedError(f"zip_extract: member {name!r} is encrypted; unpack it with its password first")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotImplementedError(
                f"zip_extract: member {name!r} is compressed by method {info.compress_type}; only stored (0) and "
                "deflate (8) are supported"
            )
        self._file.seek(info.header_offset)
        magic, name_length, extra_length = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        if magic != _MEMBER:
            raise zipfile.BadZipFile(f"zip_extract: there is no header of member {name!r} at {info.header_offset}")
        start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if start + info.compress_size > self._zip.start_dir:
            raise zipfile.BadZipFile(
                f"zip_extract: member {name!r} ends at {start + info.compress_size}, but the members end at "
                f"{self._zip.start_dir}: truncated?"
            )
        stored = info.compress_type == zipfile.ZIP_STORED
        most = info.compress_size if stored else info.compress_size * _MAX_DEFLATE_RATIO
        if info.file_size > most or (stored and info.file_size != info.compress_size):
            raise zipfile.BadZipFile(
                f"zip_extract: member {name!r} of {info.compress_size} bytes declares {info.file_size} bytes unpacked"
            )
        return ZipMember(name, start, info.compress_size, info.file_size, info)

    def _fault(self, error: Exception) -> str:
        detail = "it says that parts lie before its start" if isinstance(error, io.UnsupportedOperation) else error
        return f"{self._tensor.device} is no zip file, or damaged: {detail}{looks_like(self._tensor, 'zip_extract')}"

    @staticmethod
    def _check_apart(members: list[ZipMember]) -> None:
        end, previous = 0, ""
        for member in sorted(members, key=lambda m: m.info.header_offset):
            if member.info.header_offset < end:
                raise zipfile.BadZipFile(f"zip_extract: members {previous!r} and {member.name!r} overlap")
            end, previous = member.start + member.stored_size, member.name


@explained
@accept_filename
def zip_extract(fn: Tensor) -> dict[str, Tensor]:
    """Open a zip file as tensors.

    Args:
        fn: Path of the file, or its bytes as a one-dimensional uint8 tensor.

    Returns:
        Name -> uint8 tensor, without folders. Stored members are lazy slices; deflated ones are on the default device.

    Raises:
        FileNotFoundError: There is no such file.
        zipfile.BadZipFile: It is no zip file, truncated, damaged, or hostile (overlapping members, impossible sizes).
        NotImplementedError: Encryption, or another compression.

    Example:
        >>> import io, zipfile
        >>> with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        ...     archive.writestr("name", b"abc")
        >>> nn.state.zip_extract(Tensor(file.getvalue()))["name"].tolist()
        [97, 98, 99]
    """
    with ZipArchive(fn) as archive:
        return {name: archive.tensor(name) for name in archive.members}


# ---- tar ----


class _CheckedTarInfo(tarfile.TarInfo):
    """Refuses negative sizes, with which a reader would go backwards for ever."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if info.size < 0:
            raise tarfile.ReadError(f"tar_extract: member {info.name!r} has the size {info.size}")
        return info


@explained
@accept_filename
def tar_extract(fn: Tensor) -> dict[str, Tensor]:
    """Open an uncompressed tar file as tensors.

    Args:
        fn: Path of the file, or its bytes as a one-dimensional uint8 tensor.

    Returns:
        Name -> lazy uint8 slice, for regular members only. Of two with the same name the last counts.

    Raises:
        FileNotFoundError: There is no such file.
        tarfile.ReadError: It is no uncompressed tar file, or a member reaches beyond its end.
        NotImplementedError: A member is sparse, so that its bytes do not lie one after the other.

    Example:
        >>> import io, tarfile
        >>> with tarfile.open(fileobj=(file := io.BytesIO()), mode="w") as archive:
        ...     info = tarfile.TarInfo("name")
        ...     info.size = 3
        ...     archive.addfile(info, io.BytesIO(b"abc"))
        >>> nn.state.tar_extract(Tensor(file.getvalue()))["name"].tolist()
        [97, 98, 99]
    """
    file, size = TensorIO(fn), int(fn.shape[0])
    try:
        with tarfile.open(fileobj=file, mode="r:", tarinfo=_CheckedTarInfo) as archive:
            members = archive.getmembers()
    except (*_DAMAGE, RecursionError, tarfile.ReadError) as error:
        fault = f"{fn.device} is no tar file, or damaged: {error}{looks_like(fn, 'tar_extract')}"
        raise tarfile.ReadError(f"tar_extract: {fault}") from error
    tensors = {}
    for member in members:
        if not member.isreg():
            continue
        if member.issparse():
            raise NotImplementedError(f"tar_extract: member {member.name!r} is sparse; pack it without --sparse")
        end = member.offset_data + member.size
        if not 0 <= member.offset_data <= end <= size:
            raise tarfile.ReadError(
                f"tar_extract: member {member.name!r} ends at {end}, but the file has {size} bytes: truncated?"
            )
        tensors[member.name] = fn[member.offset_data : end]
    return tensors
