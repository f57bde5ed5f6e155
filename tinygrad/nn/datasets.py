"""Data sets: arrays of images and labels, shipped with the package or downloaded once.

In:   nothing, or the device where the tensors shall be.
Out:  (X_train, Y_train, X_test, Y_test), all uint8; images are (N, channels, height, width).
Why:  MNIST is shipped, so that the first example runs without a network. Every file is compared with its known digest
      before it is read, and its header is compared with its length before anything of that size is made.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import math
import mmap
import os
import struct
import tarfile
import urllib.error
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tinygrad.fetching import cache_home
from tinygrad.helpers import fetch
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.uint8]

__all__ = ["cifar", "mnist"]

_MNIST_FOLDER: Final = Path(__file__).parent / "data" / "mnist"
_FASHION_URL: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_CIFAR_URL: Final = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_CIFAR_MD5: Final = "c32a1d4ab5d03f1284b67883e8d87530"
_CIFAR_RECORD: Final = 1 + 3 * 32 * 32  # one label, then the red, green and blue plane


class _IdxFile(NamedTuple):
    """One of the four files of MNIST or Fashion-MNIST."""

    name: str
    shape: tuple[int, ...]
    sha256: str  # of the file as it is shipped here
    fashion_md5: str  # of the file of the same name as the authors of Fashion-MNIST publish it


_IDX_FILES: Final = (
    _IdxFile(
        "train-images-idx3-ubyte.gz",
        (60000, 28, 28),
        "71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    ),
    _IdxFile(
        "train-labels-idx1-ubyte.gz",
        (60000,),
        "fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e",
        "25c81989df183df01b3e8a0aad5dffbe",
    ),
    _IdxFile(
        "t10k-images-idx3-ubyte.gz",
        (10000, 28, 28),
        "5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341",
        "bef4ecab320f06d8554ea6380940ec79",
    ),
    _IdxFile(
        "t10k-labels-idx1-ubyte.gz",
        (10000,),
        "ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
)


def mnist(device: str | None = None, fashion: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Load the handwritten digits of MNIST, or the articles of clothing of Fashion-MNIST.

    Args:
        device: Where the tensors shall be; the default device when None.
        fashion: Load Fashion-MNIST, which is downloaded at the first use; MNIST is part of the package.

    Returns:
        X_train (60000, 1, 28, 28), Y_train (60000,), X_test (10000, 1, 28, 28), Y_test (10000,), all uint8.

    Raises:
        RuntimeError: A file is damaged, or could not be downloaded.

    Example:
        >>> x_train, y_train, x_test, y_test = nn.datasets.mnist()
        >>> x_train.shape, y_train.shape, x_test.shape, y_train[:5].tolist()
        ((60000, 1, 28, 28), (60000,), (10000, 1, 28, 28), [5, 0, 4, 1, 9])

    Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits"; Xiao, Rasul and Vollgraf,
        "Fashion-MNIST", 2017, arXiv:1708.07747.
    """
    arrays = []
    for file in _IDX_FILES:
        if fashion:
            path = _download(_FASHION_URL + file.name, "Fashion-MNIST")
            packed = _checked_bytes(path, "md5", file.fashion_md5)
        else:
            path = _MNIST_FOLDER / file.name
            packed = _checked_bytes(path, "sha256", file.sha256)
        array = _parse_idx(packed, file.shape, path)
        arrays.append(array.reshape(-1, 1, 28, 28) if array.ndim == 3 else array)
    return _on_device(arrays, device)


def cifar(device: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Load CIFAR-10, ten classes of small colour photographs; it is downloaded at the first use (170 MB).

    Args:
        device: Where the tensors shall be; the default device when None.

    Returns:
        X_train (50000, 3, 32, 32), Y_train (50000,), X_test (10000, 3, 32, 32), Y_test (10000,), all uint8.

    Raises:
        RuntimeError: The archive is damaged, or could not be downloaded.

    Example:
        >>> nn.datasets.cifar()[0].shape  # doctest: +SKIP
        (50000, 3, 32, 32)

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """
    path = _download(_CIFAR_URL, "CIFAR-10")
    _checked_bytes(path, "md5", _CIFAR_MD5)
    train_names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    with tarfile.open(path) as archive:
        batches = {name: _cifar_batch(archive, name) for name in [*train_names, "test_batch.bin"]}
    train = np.concatenate([batches[name] for name in train_names])
    arrays = []
    for records in (train, batches["test_batch.bin"]):
        arrays += [np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32), records[:, 0].copy()]
    return _on_device(arrays, device)


def _on_device(arrays: list[Array], device: str | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tensors = [Tensor(array, device=device).is_param_(False) for array in arrays]
    x_train, y_train, x_test, y_test = tensors
    # Realized here: a JIT and @function take the storage of a tensor that they find in a closure, not a pending copy.
    Tensor.realize(x_train, y_train, x_test, y_test)
    return x_train, y_train, x_test, y_test


def _download(url: str, title: str) -> Path:
    try:
        return fetch(url)
    except (urllib.error.URLError, TimeoutError, ConnectionError, AssertionError) as error:
        raise RuntimeError(
            f"{title}: {url} could not be downloaded ({error}); this data set is not part of the package, so the "
            "first use needs a network connection"
        ) from error


def _checked_bytes(path: Path, algorithm: str, digest: str) -> bytes:
    """Read a file and compare it with its digest."""
    content = path.read_bytes()
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != digest:
        raise RuntimeError(
            f"{path} is damaged: its {algorithm} is {found}, expected {digest}; delete it to have it downloaded again, "
            "or install the package again if it is part of it"
        )
    return content


def _parse_idx(packed: bytes, shape: tuple[int, ...], path: Path) -> Array:
    """Unpack an idx file: two zero bytes, the type (8 = unsigned bytes), the rank, each length, then the elements."""
    expected_size = 4 + 4 * len(shape) + math.prod(shape)
    # A gzip file ends with the CRC-32 of its content: enough to see that a kept copy is this content, undamaged.
    kept = cache_home() / "datasets" / hashlib.sha256(packed).hexdigest()
    content: bytes | mmap.mmap | None = _kept_copy(kept, expected_size, packed[-8:-4])
    if content is None:
        content = unpacked = _unpack_idx(packed, shape, expected_size, path)
        _keep_copy(kept, unpacked)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def _kept_copy(kept: Path, size: int, crc: bytes) -> mmap.mmap | None:
    """Map the unpacked copy of a file into memory, or return None if there is none, or one that is damaged."""
    try:
        with kept.open("rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                return None
            content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    return content if zlib.crc32(content).to_bytes(4, "little") == crc else None


def _keep_copy(kept: Path, content: bytes) -> None:
    """Write an unpacked copy, which is read five times faster than it is unpacked; failing to is no error."""
    aside = kept.with_name(f"{kept.name}.{os.getpid()}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.replace(kept)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def _unpack_idx(packed: bytes, shape: tuple[int, ...], expected_size: int, path: Path) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            # One byte more than expected and no further: a hostile file cannot unpack to gigabytes.
            content = file.read(expected_size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RuntimeError(f"{path} is not a gzip file or is cut off: {error}") from error
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    if not content.startswith(header) or len(content) != expected_size:
        raise RuntimeError(
            f"{path} is not an idx file of unsigned bytes with shape {shape}: it starts with "
            f"{content[: len(header)].hex()} and unpacks to {len(content)} bytes or more, expected {header.hex()} and "
            f"{expected_size} bytes"
        )
    return content


def _cifar_batch(archive: tarfile.TarFile, name: str) -> Array:
    """Return 10,000 records of one label and 3072 colour values, as an array of shape (10000, 3073)."""
    size = 10000 * _CIFAR_RECORD
    try:
        file = archive.extractfile(f"cifar-10-batches-bin/{name}")
    except KeyError:
        file = None
    content = file.read(size + 1) if file is not None else b""
    if len(content) != size:
        raise RuntimeError(f"CIFAR-10: {name} in the archive has {len(content)} bytes, expected {size}")
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
