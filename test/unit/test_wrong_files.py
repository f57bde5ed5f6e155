"""What the functions that open files say about files that are none of theirs, and about what is no file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tinygrad import Tensor
from tinygrad.llm.gguf import gguf_load
from tinygrad.nn.state import safe_load, safe_load_metadata, tar_extract, torch_load, zip_extract

OPENERS: list[Callable[..., Any]] = [torch_load, safe_load, safe_load_metadata, zip_extract, tar_extract, gguf_load]
FAULTS = (ValueError, pickle.UnpicklingError, zipfile.BadZipFile, tarfile.ReadError)
openers = pytest.mark.parametrize("opener", OPENERS, ids=lambda f: f.__name__)


@openers
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(b"text" * 100), "it looks like a gzip file: decompress it first"),
        (bz2.compress(b"text" * 100), "it looks like a bzip2 file: decompress it first"),
        (lzma.compress(b"text" * 100), "it looks like an xz file: decompress it first"),
        (b"<!DOCTYPE html><html>404 Not Found</html>", "it looks like a web page: the download went wrong"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "it looks like a pointer of Git LFS"),
    ],
    ids=["gz", "bz2", "xz", "html", "lfs"],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_other_kinds_of_files(opener: Callable, content: bytes, kind: str, tmp_path: Path, in_memory: bool) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FAULTS, match=kind):
        opener(Tensor(content) if in_memory else tmp_path / "file")


def test_files_of_another_opener() -> None:
    with pytest.raises(pickle.UnpicklingError, match="it looks like a safetensors file: safe_load opens it"):
        torch_load(Tensor(b"\2\0\0\0\0\0\0\0{}"))
    with pytest.raises(ValueError, match="it looks like a zip archive: torch_load opens checkpoints"):
        safe_load(Tensor(b"PK\3\4" + b"\0" * 200))
    with pytest.raises(zipfile.BadZipFile, match="it looks like a GGUF file: gguf_load opens it"):
        zip_extract(Tensor(b"GGUF" + b"\0" * 200))


def _zipped() -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("name", b"abc" * 50)
    return file.getvalue()


@pytest.mark.parametrize(
    ("opener", "content"),
    [
        (zip_extract, _zipped()[:-30]),
        (zip_extract, _zipped()[:100] + _zipped()[140:]),
        (torch_load, _zipped()[:-30]),
        (safe_load, b"\x80\0\0\0\0\0\0\0{}"),
    ],
    ids=["zip", "middle of zip", "checkpoint", "safetensors"],
)
def test_a_file_that_was_cut_is_not_said_to_be_of_another_kind(opener: Callable, content: bytes) -> None:
    with pytest.raises(FAULTS, match="it begins like one, so its end is missing or it is damaged") as caught:
        opener(Tensor(content))
    assert "TensorIO" not in str(caught.value)
    assert "looks like" not in str(caught.value)


def test_an_empty_file_is_no_zip_file() -> None:
    with pytest.raises(zipfile.BadZipFile, match="is no zip file, or damaged: File is not a zip file"):
        zip_extract(Tensor(b""))


@openers
@pytest.mark.parametrize("other", [None, 3, b"bytes", ["list"]], ids=str)
def test_what_is_no_name(opener: Callable, other: object) -> None:
    with pytest.raises(TypeError, match=f"{opener.__name__}: fn is .*expected Tensor or str or pathlib.Path"):
        opener(other)


@openers
@pytest.mark.parametrize("other", [Tensor([1.0, 2.0]), Tensor([[1, 2]], dtype="uint8")], ids=["float32", "2d"])
def test_tensors_that_hold_no_file(opener: Callable, other: Tensor) -> None:
    with pytest.raises(ValueError, match="expected a one-dimensional uint8 tensor"):
        opener(other)


@openers
def test_what_is_not_there(opener: Callable, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opener(tmp_path / "absent")
    with pytest.raises(IsADirectoryError, match="a file is expected, this is a folder"):
        opener(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"a URL, not a file; fetch\(url\) downloads it"):
        opener("https://example.com/model")


@openers
def test_messages_do_not_blame_a_path(opener: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"garbage" * 20)
    with pytest.raises(FAULTS, match=f"^{opener.__name__}: ") as caught:
        opener(tmp_path / "file")
    assert "expected Tensor" not in str(caught.value)
