"""A content-addressed store: bytes are found by what they are.

In:   tensors to keep; 16-byte digests to find them by.
Out:  ``fs_store`` and ``fs_load``, and files below ``store`` in the cache folder, named by the digest of their content.
Why:  a program names its data by digest, so it gets exactly those bytes or an error, and equal data is kept once. The
      store is on this machine: a server that speaks another machine's protocol would stand behind the same functions.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tinygrad.boundary import explained
from tinygrad.dtype import dtypes
from tinygrad.errors import shown
from tinygrad.fetching import cache_home
from tinygrad.tensor import Tensor

__all__ = ["fs_load", "fs_store"]

DIGEST_BYTES = 16


@explained
def fs_store(t: Tensor) -> Tensor:
    """Keep the bytes of a tensor; returns the digest under which ``fs_load`` finds them.

    Args:
        t: Of any shape and dtype.

    Returns:
        ``t.hash()``: 16 bytes, uint8. The number of bytes is not part of it: it is that of the content padded with
        zeros to whole MiB.

    Raises:
        RuntimeError: The dtype is weak, so the tensor has no bytes.
        OSError: The cache folder cannot be written.

    Example:
        >>> digest = nn.state.fs_store(Tensor([1, 2, 3], dtype="uint8"))
        >>> nn.state.fs_load(digest, 3).tolist()
        [1, 2, 3]
    """
    data = t.contiguous().realize()
    digest = data.hash().realize()
    path = _path_of(digest)
    content = data.flatten().bitcast(dtypes.uint8).contiguous().realize().data().tobytes()
    if not path.exists() or path.stat().st_size < len(content):  # kept with more zeros at the end, it serves as well
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            aside.write_bytes(content)
            os.replace(aside, path)  # noqa: PTH105  atomic, also where somebody else stores the same
        finally:
            aside.unlink(missing_ok=True)
    return digest


@explained
def fs_load(t: Tensor, size: int) -> Tensor:
    """Return the bytes that were stored under a digest.

    Args:
        t: The digest: 16 bytes, uint8.
        size: Number of bytes to return, at most as many as were stored.

    Returns:
        Tensor of shape (size,), uint8, on the device of the digest.

    Raises:
        AssertionError: The digest has another dtype or length.
        FileNotFoundError: Nothing with this digest has been stored on this machine.
        ValueError: Fewer bytes were stored.
        RuntimeError: The content is damaged: it has another digest.

    Example:
        >>> digest = nn.state.fs_store(Tensor([1.5, 2.5]))
        >>> nn.state.fs_load(digest, 8).bitcast("float32").tolist()
        [1.5, 2.5]
    """
    assert_digest(t)
    path = _path_of(t)
    if not path.exists():
        raise FileNotFoundError(f"fs_load: nothing is stored under {path.name} (no file {path})")
    content = Tensor(path).to(t.device)
    if not 0 <= size <= content.shape[0]:
        raise ValueError(f"fs_load: {size} bytes asked for, {content.shape[0]} are stored under {path.name}")
    if _path_of(content.hash()) != path:
        raise RuntimeError(f"fs_load: the content of {path} is damaged: it has another digest")
    return content[:size]


def assert_digest(t: Tensor) -> None:
    """Check that a tensor can be a digest.

    Raises:
        AssertionError: It has another dtype or length.
    """
    if t.dtype is not dtypes.uint8 or t.shape != (DIGEST_BYTES,):
        raise AssertionError(f"fs_load: a digest is {DIGEST_BYTES} bytes of uint8, got {shown(t.shape)} of {t.dtype}")


def _path_of(digest: Tensor) -> Path:
    name = digest.data().tobytes().hex()
    return cache_home() / "store" / name[:2] / name
