"""Downloads, from a server on the loopback interface."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tinygrad import fetching
from tinygrad.fetching import fetch

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def tar_of(name: str, content: bytes) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


FILES = {
    "/file": CONTENT,
    "/file.gz": gzip.compress(CONTENT[:1000]) + gzip.compress(CONTENT[1000:]),
    "/cut.gz": gzip.compress(CONTENT)[:-10],
    "/padded.gz": gzip.compress(CONTENT) + bytes(1000),
    "/garbage-behind.gz": gzip.compress(CONTENT) + b"garbage",
    "/a.tar.gz": tar_of("inner/x.txt", b"text"),
    "/evil.tar.gz": tar_of("../evil.txt", b"text"),
}


class Handler(BaseHTTPRequestHandler):
    requests: list[str] = []  # noqa: RUF012  one server for the module

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path == "/nothing-here":
            self.send_response(204)
            self.end_headers()
            return
        if self.path == "/cut-parts":
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nab")
            return
        content = FILES.get(self.path, CONTENT)
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        length = str(len(content) + (100 if self.path == "/short" else 0))
        self.send_header("content-length", self.path.rpartition("/")[2] if self.path.startswith("/length/") else length)
        self.end_headers()
        self.wfile.write(self.headers.get("X-Name", "").encode() if self.path == "/echo" else content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  name fixed by the base class
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetching, "cache_home", lambda: tmp_path)
    Handler.requests.clear()
    return tmp_path


class TestFetch:
    def test_downloads_once(self, server: str, home: Path) -> None:
        path = fetch(f"{server}/file", allow_caching=True)
        assert path.read_bytes() == CONTENT
        assert path.parent == home / "downloads"
        assert path.name == hashlib.md5(f"{server}/file".encode()).hexdigest()
        assert fetch(f"{server}/file", allow_caching=True) == path
        assert Handler.requests == ["/file"]
        fetch(f"{server}/file", allow_caching=False)
        assert Handler.requests == ["/file", "/file"]
        assert list(path.parent.iterdir()) == [path]

    def test_names(self, server: str, home: Path) -> None:
        assert fetch(f"{server}/file", "name", subdir="sub") == home / "downloads" / "sub" / "name"
        assert fetch(f"{server}/file", home / "own").read_bytes() == CONTENT
        assert fetch(f"{server}/file", f"{home}/other/own").read_bytes() == CONTENT
        assert fetch("/etc/hostname") == Path("/etc/hostname")
        assert fetch("./x") == Path("x")

    def test_headers_are_sent_and_part_of_the_key(self, server: str) -> None:
        with pytest.raises(RuntimeError, match="ended after"):
            fetch(f"{server}/echo", headers={"X-Name": "me"})
        one = fetch(f"{server}/file", headers={"X-Name": "a"})
        two = fetch(f"{server}/file", headers={"X-Name": "b"})
        assert len({one, two, fetch(f"{server}/file")}) == 3

    def test_sha256(self, server: str, home: Path) -> None:
        path = fetch(f"{server}/file", sha256=SHA256.upper())
        path.write_bytes(b"damaged")
        assert fetch(f"{server}/file", sha256=SHA256).read_bytes() == CONTENT
        with pytest.raises(RuntimeError, match=f"has sha256 {SHA256}, expected 0000"):
            fetch(f"{server}/file", "checked", sha256="0" * 64)
        assert not (home / "downloads" / "checked").exists()

    def test_gunzip(self, server: str) -> None:
        digest = hashlib.sha256(FILES["/file.gz"]).hexdigest()
        assert fetch(f"{server}/file.gz", gunzip=True, sha256=digest).read_bytes() == CONTENT
        with pytest.raises(RuntimeError, match="not a complete gzip file"):
            fetch(f"{server}/cut.gz", gunzip=True)

    def test_errors_leave_nothing(self, server: str, home: Path) -> None:
        with pytest.raises(RuntimeError, match="ended after 256000 of 256100 bytes"):
            fetch(f"{server}/short")
        with pytest.raises(AssertionError, match="status 204"):
            fetch(f"{server}/nothing-here")
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(f"{server}/missing")
        caught.value.close()
        assert [path for path in home.rglob("*") if path.is_file()] == []

    def test_extract(self, server: str, home: Path) -> None:
        folder = fetch(f"{server}/a.tar.gz", extract=True)
        assert (folder / "inner" / "x.txt").read_text() == "text"
        (folder / "mark").touch()
        assert (fetch(f"{server}/a.tar.gz", extract=True) / "mark").exists()
        with pytest.raises(tarfile.TarError, match="outside"):
            fetch(f"{server}/evil.tar.gz", extract=True)
        assert not list(home.rglob("evil.txt"))


def test_zeros_behind_a_gzip_file(server: str) -> None:
    assert fetch(f"{server}/padded.gz", gunzip=True).read_bytes() == CONTENT


@pytest.mark.parametrize("path", ["/file", "/garbage-behind.gz"])
def test_no_gzip_file(server: str, path: str) -> None:
    with pytest.raises(RuntimeError, match=f"{path} is not a gzip file, or damaged: .*incorrect header"):
        fetch(server + path, gunzip=True)


@pytest.mark.parametrize("length", ["abc", "-5"])
def test_a_length_that_is_none(server: str, length: str) -> None:
    assert fetch(f"{server}/length/{length}").read_bytes() == CONTENT


def test_a_body_in_parts_that_ends_within_one(server: str) -> None:
    with pytest.raises(RuntimeError, match="/cut-parts ended early"):
        fetch(f"{server}/cut-parts")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"url": None}, TypeError, "fetch: url is None, expected str"),
        ({"url": Path("/etc/hostname")}, TypeError, "fetch: url is .* of type PosixPath, expected str"),
        ({"url": "no-url"}, ValueError, "fetch: unknown url type: 'no-url'"),
        ({"url": "http://127.0.0.1:1/", "name": ""}, ValueError, "'' is not the name of a file"),
        ({"url": "http://127.0.0.1:1/", "name": ".."}, ValueError, "'..' is not the name of a file"),
        ({"url": "http://127.0.0.1:1/", "name": 3}, TypeError, "name is 3 of type int, expected .*Path or str"),
    ],
)
def test_arguments(arguments: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        fetch(**arguments)
