"""Download files once and keep them.

In:   a URL, optionally the sha256 of the content.
Out:  the path of a complete file: it is written aside and renamed, so that no other process sees half of it.
Why:  examples and tests need data, and should need the network only once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tinygrad.boundary import explained
from tinygrad.progress import tqdm
from tinygrad.settings import getenv

if TYPE_CHECKING:
    import tarfile
    from http.client import HTTPResponse

__all__ = [
    "cache_home",
    "fetch",
    "fetch_fw",
]

_CHUNK: Final = 1 << 20
_FIRMWARE_URL: Final = "https://gitlab.com/kernel-firmware/linux-firmware/-/raw/main"


def cache_home() -> Path:
    """Return the folder of this package's caches: ``tinygrad`` in XDG_CACHE_HOME, or where the system keeps caches."""
    import sys

    default = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(getenv("XDG_CACHE_HOME", "") or default).expanduser() / "tinygrad"


@explained
def fetch(
    url: str,
    name: Path | str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = not getenv("DISABLE_HTTP_CACHE"),
    headers: Mapping[str, str] | None = None,
    sha256: str | None = None,
    extract: bool = False,
) -> Path:
    """Download a file, unless it is there already, and return its path.

    Args:
        url: Where from. One that starts with ``/`` or ``.`` is a local path and comes back as it is.
        name: File name in the download folder; with a ``/``, or as a Path, the path itself. Default: a hash of the URL.
        subdir: Folder below the download folder.
        gunzip: Decompress gzip while downloading.
        allow_caching: False downloads again.
        headers: HTTP headers; part of the hash.
        sha256: Hex digest that the content (as downloaded) must have; a kept file is checked too.
        extract: Unpack the tar file into a folder next to it and return that folder.

    Raises:
        RuntimeError: The content has another sha256, is shorter than the server said, or is no gzip file (``gunzip``).
        AssertionError: The server answered with another status than 200.
        urllib.error.URLError: The server could not be reached, or answered with an error (``HTTPError``).
        ValueError: ``url`` is none, or ``name`` is not the name of a file.
    """
    if url.startswith(("/", ".")):
        return _extract(Path(url)) if extract else Path(url)
    path = _target_path(url, name, subdir, gunzip, headers or {})
    if not (allow_caching and path.is_file() and _is_expected(path, None if gunzip else sha256)):
        _download(url, path, gunzip, headers or {}, sha256)
    return _extract(path) if extract else path


def _target_path(
    url: str, name: Path | str | None, subdir: str | None, gunzip: bool, headers: Mapping[str, str]
) -> Path:
    if isinstance(name, Path) or (name is not None and "/" in name):
        return Path(name)
    if name in {"", ".", ".."}:
        raise ValueError(f"fetch: {name!r} is not the name of a file")
    if name is None:
        name = _md5(url)
        if headers:
            name += "_" + _md5("\n".join(f"{key.lower()}:{text}" for key, text in sorted(headers.items())))
        name += ".gunzip" if gunzip else ""
    return cache_home() / "downloads" / (subdir or "") / name


def _md5(text: str) -> str:
    import hashlib

    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _is_expected(path: Path, sha256: str | None) -> bool:
    if sha256 is None:
        return True
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256.lower()


def _download(url: str, path: Path, gunzip: bool, headers: Mapping[str, str], sha256: str | None) -> None:
    import tempfile
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "tinygrad 0.14", **headers})
    path.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(request, timeout=30) as response:
        if getattr(response, "status", None) not in {None, 200}:
            raise AssertionError(f"fetch: {url} answered with status {response.status}, expected 200")
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
        try:
            with os.fdopen(handle, "wb") as file:
                digest = _copy(response, file, url, gunzip)
            if sha256 is not None and digest != sha256.lower():
                raise RuntimeError(f"fetch: {url} has sha256 {digest}, expected {sha256}; the file was not kept")
            Path(aside).chmod(0o644)
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise


def _copy(response: HTTPResponse, file: IO[bytes], url: str, gunzip: bool) -> str:
    """Copy the body with a progress bar; return the sha256 of what came over the wire."""
    import hashlib

    length = str(response.headers.get("content-length") or "")
    expected = int(length) if length.isdecimal() else 0
    digest, received = hashlib.sha256(), 0
    unpacked = _Gunzip(file, url) if gunzip else None
    bar: tqdm[bytes] = tqdm(total=expected or None, unit="B", unit_scale=True, desc=url, disable=None)
    with bar:
        while chunk := _read(response, url):
            digest.update(chunk)
            received += len(chunk)
            bar.update(len(chunk))
            (unpacked or file).write(chunk)
    if received < expected:
        raise RuntimeError(f"fetch: {url} ended after {received} of {expected} bytes; try again")
    if unpacked is not None:
        unpacked.finish()
    return digest.hexdigest()


def _read(response: HTTPResponse, url: str) -> bytes:
    from http.client import HTTPException

    try:
        return response.read(_CHUNK)
    except HTTPException as error:  # a body in parts of declared lengths that ends within one
        raise RuntimeError(f"fetch: {url} ended early ({error}); try again") from error


class _Gunzip:
    """Writes to a file what is in the gzip file that is written to this."""

    def __init__(self, file: IO[bytes], url: str) -> None:
        import zlib

        self._file, self._url, self._zlib = file, url, zlib
        self._member = zlib.decompressobj(wbits=31)

    def write(self, chunk: bytes) -> None:
        """Unpack some more bytes."""
        while chunk:
            if self._member.eof:
                # A gzip file may hold several members one after the other, and zeros behind the last one.
                chunk = chunk.lstrip(b"\0")
                if not chunk:
                    return
                self._member = self._zlib.decompressobj(wbits=31)
            try:
                self._file.write(self._member.decompress(chunk))
            except self._zlib.error as error:
                raise RuntimeError(f"fetch: {self._url} is not a gzip file, or damaged: {error}") from error
            chunk = self._member.unused_data

    def finish(self) -> None:
        """Raise if the last member is not complete."""
        if not self._member.eof:
            raise RuntimeError(f"fetch: {self._url} is not a complete gzip file")


def _unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Unpack all members, but for paths and links that leave the folder, which are an error."""
    import tarfile

    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
        return
    # The first releases of Python 3.11 have no filters: plain files and folders inside of the folder are unpacked.
    members = tar.getmembers()
    for member in members:
        place = (folder / member.name).resolve()
        if not (member.isfile() or member.isdir()) or not place.is_relative_to(folder.resolve()):
            raise tarfile.TarError(f"{member.name!r} would be unpacked outside of {folder}, or is no plain file")
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    tar.extractall(folder, members)


def _extract(archive: Path) -> Path:
    """Unpack a tar file into ``<archive>.extracted`` once."""
    import shutil
    import tarfile
    import tempfile

    folder = archive.with_name(archive.name + ".extracted")
    if folder.is_dir() and folder.stat().st_mtime >= archive.stat().st_mtime:
        return folder
    aside = Path(tempfile.mkdtemp(dir=archive.parent, prefix=folder.name))
    try:
        with tarfile.open(archive) as tar:
            _unpack(tar, aside)
        shutil.rmtree(folder, ignore_errors=True)
        os.utime(aside)
        try:
            aside.rename(folder)
        except OSError:
            # Another process unpacked the same archive in the meantime.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def fetch_fw(path: str, name: str, sha256: str) -> bytes:
    """Return the bytes of a firmware file of the linux-firmware collection, from this machine or downloaded.

    Raises:
        RuntimeError: The file has another sha256.
    """
    for folder in ("/lib/firmware", "/usr/lib/firmware"):
        local = Path(folder) / path / name
        if local.is_file() and _is_expected(local, sha256):
            return local.read_bytes()
    return fetch(f"{_FIRMWARE_URL}/{path}/{name}", subdir="fw", sha256=sha256).read_bytes()
