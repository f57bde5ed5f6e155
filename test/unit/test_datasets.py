"""The shipped data set, and what happens when a file is damaged or a download fails."""

import gzip
import hashlib
import io
import struct
import tarfile
import urllib.error
from pathlib import Path

import numpy as np
import pytest

from tinygrad import dtypes
from tinygrad.nn import datasets


def test_mnist() -> None:
    x_train, y_train, x_test, y_test = datasets.mnist()
    assert [t.shape for t in (x_train, y_train, x_test, y_test)] == [
        (60000, 1, 28, 28), (60000,), (10000, 1, 28, 28), (10000,),
    ]  # fmt: skip
    assert {t.dtype for t in (x_train, y_train, x_test, y_test)} == {dtypes.uint8}
    assert y_train[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert y_test[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    # The means of the pixels are known: 0.1307 and 0.1325 of 255.
    assert x_train.numpy().mean() == pytest.approx(33.3184, abs=1e-3)
    assert x_test.numpy().mean() == pytest.approx(33.7912, abs=1e-3)
    assert not x_train.is_param


def test_mnist_on_a_device() -> None:
    assert [t.device for t in datasets.mnist(device="CPU:1")] == ["CPU:1"] * 4


def idx(shape: tuple[int, ...], data: bytes, kind: int = 8) -> bytes:
    return gzip.compress(struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape) + data, mtime=0)


def test_parse_idx() -> None:
    array = datasets._parse_idx(idx((2, 3), bytes(range(6))), (2, 3), Path("f"))
    np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])


def test_the_kept_copy_is_used_and_damage_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "cache_home", lambda: tmp_path)
    packed, want = idx((2, 3), bytes(range(6))), [[0, 1, 2], [3, 4, 5]]
    load = lambda: datasets._parse_idx(packed, (2, 3), Path("f")).tolist()  # noqa: E731
    assert load() == want
    (kept,) = (tmp_path / "datasets").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "_unpack_idx", lambda *_: pytest.fail("unpacked again"))
        assert load() == want
    whole = kept.read_bytes()
    for damaged in (b"", whole[:-1], whole + b"x", whole[:-1] + b"x"):
        kept.write_bytes(damaged)
        assert load() == want
        assert kept.read_bytes() == whole


def test_no_copy_is_kept_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(datasets, "cache_home", lambda: tmp_path / "file")
    assert datasets._parse_idx(idx((2,), b"ab"), (2,), Path("f")).tolist() == [97, 98]


@pytest.mark.parametrize(
    "content",
    [
        idx((2, 4), bytes(8)),
        idx((2, 3), bytes(5)),
        idx((2, 3), bytes(7)),
        idx((2, 3), bytes(6), kind=13),
        idx((2**31, 2**31), bytes(6)),
        gzip.compress(b"", mtime=0),
    ],
)
def test_wrong_header_or_length(content: bytes) -> None:
    with pytest.raises(RuntimeError, match=r"f is not an idx file of unsigned bytes with shape \(2, 3\)"):
        datasets._parse_idx(content, (2, 3), Path("f"))


def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(50_000_000), compresslevel=1)
    with pytest.raises(RuntimeError, match="unpacks to 19 bytes or more"):
        datasets._parse_idx(bomb, (2, 3), Path("f"))


@pytest.mark.parametrize("content", [b"", b"no gzip", idx((2, 3), bytes(6))[:-12]])
def test_damaged_gzip(content: bytes) -> None:
    with pytest.raises(RuntimeError, match="f is not"):
        datasets._parse_idx(content, (2, 3), Path("f"))


def test_damaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in datasets._IDX_FILES:
        (tmp_path / file.name).write_bytes(b"other content")
    monkeypatch.setattr(datasets, "_MNIST_FOLDER", tmp_path)
    with pytest.raises(RuntimeError, match=r"train-images-idx3-ubyte\.gz is damaged: its sha256 is"):
        datasets.mnist()


@pytest.mark.parametrize(
    ("load", "title"), [(lambda: datasets.mnist(fashion=True), "Fashion-MNIST"), (datasets.cifar, "CIFAR-10")]
)
def test_no_network(monkeypatch: pytest.MonkeyPatch, load, title: str) -> None:
    def fail(url: str) -> Path:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(datasets, "fetch", fail)
    with pytest.raises(RuntimeError, match=f"{title}: .* could not be downloaded .*no route to host.*network"):
        load()


def test_fashion_uses_the_files_of_its_authors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = tuple(
        file._replace(shape=(2, *file.shape[1:]), fashion_md5=hashlib.md5(content).hexdigest())
        for file in datasets._IDX_FILES
        for content in [idx((2, *file.shape[1:]), bytes(2 * int(np.prod(file.shape[1:]))))]
    )
    urls = []

    def fetch(url: str) -> Path:
        urls.append(url)
        shape = next(file.shape for file in small if url.endswith(file.name))
        path = tmp_path / url.rsplit("/", 1)[1]
        path.write_bytes(idx(shape, bytes(int(np.prod(shape)))))
        return path

    monkeypatch.setattr(datasets, "_IDX_FILES", small)
    monkeypatch.setattr(datasets, "fetch", fetch)
    assert [t.shape for t in datasets.mnist(fashion=True)] == [(2, 1, 28, 28), (2,), (2, 1, 28, 28), (2,)]
    assert [url.rsplit("/", 1)[1] for url in urls] == [file.name for file in small]


def test_cifar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    batch = np.zeros((10000, 3073), dtype=np.uint8)
    batch[:, 0] = np.arange(10000) % 10
    batch[:, 1] = 7  # the first pixel of the red plane
    path = tmp_path / "cifar"
    with tarfile.open(path, "w") as archive:
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = batch.nbytes
            archive.addfile(info, io.BytesIO(batch.tobytes()))
    monkeypatch.setattr(datasets, "fetch", lambda url: path)
    monkeypatch.setattr(datasets, "_CIFAR_MD5", hashlib.md5(path.read_bytes()).hexdigest())
    x_train, y_train, x_test, y_test = datasets.cifar()
    assert [t.shape for t in (x_train, y_train, x_test, y_test)] == [
        (50000, 3, 32, 32), (50000,), (10000, 3, 32, 32), (10000,),
    ]  # fmt: skip
    assert y_test[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert x_test[3, :, 0, :2].tolist() == [[7, 0], [0, 0], [0, 0]]
