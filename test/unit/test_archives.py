"""zip and tar files as tensors, a tensor as a file, and archives that were made to do harm."""

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from tinygrad import Tensor, dtypes
from tinygrad.nn.state import TensorIO, accept_filename, tar_extract, zip_extract

MEMBERS = {"a/b.txt": b"hello", "../../etc/passwd": b"only a name", "/absolute": b"\x00\xff" * 300, "empty": b""}


def _bytes(t: Tensor) -> bytes:
    return bytes(t.data())


def _zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


# ---- zip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("source", ["path", "string", "disk tensor", "memory"])
def test_zip(tmp_path: Path, method: int, source: str) -> None:
    path = _zip(tmp_path / "a.zip", MEMBERS, method)
    given = {"path": path, "string": str(path), "disk tensor": Tensor(path), "memory": Tensor(path.read_bytes())}[
        source
    ]
    found = zip_extract(given)
    assert {name: _bytes(t) for name, t in found.items()} == MEMBERS
    assert all(t.dtype is dtypes.uint8 and t.ndim == 1 for t in found.values())
    if source != "memory":
        assert found["a/b.txt"].device.startswith("DISK" if method == zipfile.ZIP_STORED else Tensor([1]).device)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip"], "names are keys, nothing is written"


def test_zip_with_data_before_it_and_folders(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"#!/bin/sh\n" + _zip(tmp_path / "b.zip", {"folder/": b"", "folder/x": b"1"}).read_bytes())
    assert {name: _bytes(t) for name, t in zip_extract(path).items()} == {"folder/x": b"1"}


def test_zip_of_other_methods(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="member 'a' is compressed by method 12; only stored"):
        zip_extract(_zip(tmp_path / "a.zip", {"a": b"1"}, zipfile.ZIP_BZIP2))
    data = bytearray(_zip(tmp_path / "b.zip", {"a": b"1"}).read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(NotImplementedError, match="member 'a' is encrypted"):
        zip_extract(Tensor(bytes(data)))


def _patched(data: bytes, field: int, layout: str, value: int, entry: int = 0) -> Tensor:
    """Return a zip file with another number in an entry of the directory."""
    changed, at = bytearray(data), -1
    for _ in range(entry + 1):
        at = data.index(b"PK\1\2", at + 1)
    struct.pack_into(layout, changed, at + field, value)
    return Tensor(bytes(changed))


def test_hostile_zip(tmp_path: Path) -> None:
    stored = _zip(tmp_path / "a.zip", {"first": b"x" * 100, "second": b"y" * 100}).read_bytes()
    deflated = _zip(tmp_path / "b.zip", {"first": b"x" * 100}, zipfile.ZIP_DEFLATED).read_bytes()
    packed, size, place = 20, 24, 42  # fields of the directory
    with pytest.raises(zipfile.BadZipFile, match="member 'first' of 100 bytes declares 4000000000 bytes"):
        zip_extract(_patched(stored, size, "<I", 4_000_000_000))
    with pytest.raises(zipfile.BadZipFile, match=r"member 'first' of .* bytes declares 4000000000 bytes"):
        zip_extract(_patched(deflated, size, "<I", 4_000_000_000))
    with pytest.raises(zipfile.BadZipFile, match="member 'first' ends at 1000035, but the members end at"):
        zip_extract(_patched(stored, packed, "<I", 1_000_000))
    with pytest.raises(zipfile.BadZipFile, match="there is no header of member 'second' at 7"):
        zip_extract(_patched(stored, place, "<I", 7, entry=1))
    with pytest.raises(zipfile.BadZipFile, match="members 'first' and 'second' overlap"):
        zip_extract(_patched(stored, place, "<I", 0, entry=1))


def test_zip_with_damaged_names() -> None:
    with pytest.raises(zipfile.BadZipFile):
        zip_extract(Tensor(_nameless_zip()))


def _nameless_zip() -> bytes:
    """Return a zip file whose directory gives the name of its member no characters, and damages what follows."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("first", b"x" * 100)
    data = bytearray(file.getvalue())
    struct.pack_into("<H", data, data.index(b"PK\1\2") + 28, 0)
    return bytes(data)


def test_damaged_zip(tmp_path: Path) -> None:
    data = _zip(tmp_path / "b.zip", {"first": b"x" * 100}, zipfile.ZIP_DEFLATED).read_bytes()
    broken = bytearray(data)
    broken[36] ^= 255
    with pytest.raises(zipfile.BadZipFile):
        zip_extract(Tensor(bytes(broken)))
    for length in (0, 1, 30, 60, len(data) - 1):
        with pytest.raises(zipfile.BadZipFile):
            zip_extract(Tensor(data[:length]) if length else Tensor.empty(0, dtype=dtypes.uint8))
    with pytest.raises(FileNotFoundError):
        zip_extract(tmp_path / "absent.zip")


# ---- tar


@pytest.mark.parametrize("source", ["path", "memory"])
def test_tar(tmp_path: Path, source: str) -> None:
    members = MEMBERS | {"n" * 200: b"a long name"}
    path = _tar(tmp_path / "a.tar", members)
    found = tar_extract(path if source == "path" else Tensor(path.read_bytes()))
    assert {name: _bytes(t) for name, t in found.items()} == members
    if source == "path":
        assert found["a/b.txt"].device == f"DISK:{path}"


def test_tar_gives_regular_members_only(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as file:
        for name, kind in (("link", tarfile.SYMTYPE), ("folder", tarfile.DIRTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            file.addfile(info)
        for text in (b"old", b"new"):
            info = tarfile.TarInfo("x")
            info.size = 3
            file.addfile(info, io.BytesIO(text))
    assert {name: _bytes(t) for name, t in tar_extract(path).items()} == {"x": b"new"}


def _tar_header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    head = bytearray(
        name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0") + b"0" * 11
    )
    head += b"\0" + b" " * 8 + kind
    head = head.ljust(512, b"\0")
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return bytes(head)


@pytest.mark.parametrize("size", [b"77777777777", b"\x80" + (2**70).to_bytes(11, "big"), b"\xff" * 11 + b"\x00"])
def test_hostile_tar_sizes(size: bytes) -> None:
    with pytest.raises(tarfile.ReadError, match=r"truncated|has the size -256|unexpected end"):
        tar_extract(Tensor(_tar_header("a", size) + bytes(2048)))


def test_hostile_tar_extended_header() -> None:
    with pytest.raises(tarfile.ReadError):
        tar_extract(Tensor(_tar_header("a", b"77777777777", b"x") + b"9 size=1\n" + bytes(2048)))


def test_damaged_tar(tmp_path: Path) -> None:
    data = _tar(tmp_path / "a.tar", {"a": b"x" * 2000}).read_bytes()
    with pytest.raises(tarfile.ReadError):
        tar_extract(Tensor(data[:1024]))
    with pytest.raises(tarfile.ReadError):
        tar_extract(Tensor(b"no tar file at all" * 100))
    with pytest.raises(FileNotFoundError):
        tar_extract(tmp_path / "absent.tar")


# ---- a tensor as a file


@pytest.mark.parametrize("on_disk", [True, False])
def test_tensor_as_a_file(tmp_path: Path, on_disk: bool) -> None:
    data = bytes(range(256)) * 8192  # more than is fetched at once
    path = tmp_path / "x"
    path.write_bytes(data)
    file = TensorIO(Tensor(path) if on_disk else Tensor(data))
    assert file.readable()
    assert file.seekable()
    assert not file.writable()
    assert file.read(3) == data[:3]
    assert file.tell() == 3
    assert file.peek(2)[:2] == data[3:5]
    assert file.seek(-2, 2) == len(data) - 2
    assert file.read() == b"\xfe\xff"
    assert file.read(5) == b""
    assert file.seek(1_500_000) == 1_500_000
    assert file.read(1_000) == data[1_500_000:1_501_000]
    assert file.seek(-1_000, 1) == 1_500_000
    buffer = bytearray(7)
    assert file.readinto(buffer) == 7
    assert buffer == data[1_500_000:1_500_007]
    file.seek(0)
    assert file.readall() == data
    assert file.seek(len(data) + 10) == len(data) + 10
    assert file.read(1) == b""
    assert io.BufferedReader(TensorIO(Tensor(b"a\nb\n"))).readlines() == [b"a\n", b"b\n"]
    assert TensorIO(Tensor(b"a\nb\n")).readlines() == [b"a\n", b"b\n"]


def test_tensor_as_a_file_errors() -> None:
    file = TensorIO(Tensor(b"abc"))
    for write in (lambda: file.write(b"x"), lambda: file.writelines([b"x"])):
        with pytest.raises(io.UnsupportedOperation, match="the tensor is only read"):
            write()
    with pytest.raises(ValueError, match="seek to -1, before the start"):
        file.seek(-1)
    with pytest.raises(ValueError, match="seek from 7"):
        file.seek(0, 7)
    with pytest.raises(ValueError, match=r"expected a one-dimensional uint8 tensor, got dtypes.int and shape \(2,\)"):
        TensorIO(Tensor([1, 2]))
    with pytest.raises(ValueError, match="one-dimensional"):
        TensorIO(Tensor([[1]], dtype=dtypes.uint8))


def test_accept_filename(tmp_path: Path) -> None:
    @accept_filename
    def length(t: Tensor, factor: int = 1) -> int:
        return t.shape[0] * factor

    (tmp_path / "x").write_bytes(b"12345")
    assert length(tmp_path / "x") == length(str(tmp_path / "x")) == length(Tensor(tmp_path / "x")) == 5
    assert length(tmp_path / "x", factor=2) == 10
