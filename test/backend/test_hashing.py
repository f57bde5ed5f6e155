"""Hashes against hashlib."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tinygrad import Context, Tensor, Variable, dtypes

HASHES = {
    "sha3_224": lambda data: hashlib.sha3_224(data).digest(),
    "sha3_256": lambda data: hashlib.sha3_256(data).digest(),
    "shake_128": lambda data: hashlib.shake_128(data).digest(16),
}
MIB = 1 << 20


def text(n: int) -> bytes:
    return bytes((i * 7 + 3) % 256 for i in range(n))


@pytest.mark.parametrize("n", [0, 1, 135, 136, 137, 143, 168, 300])
@pytest.mark.parametrize("name", HASHES)
def test_lengths(name: str, n: int) -> None:
    data = Tensor(np.frombuffer(text(n), dtype=np.uint8)) if n else Tensor.empty(0, dtype=dtypes.uint8)
    assert bytes(data.keccak(name).tolist()) == HASHES[name](text(n))


def test_batch_and_default() -> None:
    rows = np.random.default_rng(0).integers(0, 256, size=(2, 3, 50), dtype=np.uint8)
    digests = Tensor(rows).keccak().numpy()
    assert digests.shape == (2, 3, 32)
    for i in range(2):
        for j in range(3):
            assert digests[i, j].tobytes() == hashlib.sha3_256(rows[i, j].tobytes()).digest()


def test_other_dtypes_and_python_device() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Context(DEV="PYTHON"):
        found = Tensor(data).keccak("shake_128").numpy()
    assert [row.tobytes() for row in found] == [HASHES["shake_128"](row.tobytes()) for row in data]
    assert bytes(Tensor([True, False]).keccak().tolist()) == HASHES["sha3_256"](b"\1\0")


def test_sponge_by_numbers() -> None:
    assert bytes(Tensor(b"abc").keccak((72, 6)).tolist()) == hashlib.sha3_512(b"abc").digest()
    assert Tensor.empty(0, 5, dtype=dtypes.uint8).keccak().shape == (0, 32)


def test_keccak_errors() -> None:
    with pytest.raises(KeyError, match="md5"):
        Tensor(b"abc").keccak("md5")
    with pytest.raises(ValueError, match="rate 100"):
        Tensor(b"abc").keccak((100, 6))
    with pytest.raises(ValueError, match="at least one dim"):
        Tensor(1).keccak()


def reference(data: bytes) -> bytes:
    shake = HASHES["shake_128"]
    while True:
        data = data.ljust(max(-(-len(data) // MIB), 1) * MIB, b"\0")
        parts = [data[i : i + MIB] for i in range(0, len(data), MIB)]
        data = b"".join(shake(b"".join(shake(p[i : i + 4096]) for i in range(0, MIB, 4096))) for p in parts)
        if len(parts) == 1:
            return data


@pytest.mark.parametrize("n", [0, 5, MIB, MIB + 1])
def test_hash(n: int) -> None:
    data = Tensor(np.frombuffer(text(n), dtype=np.uint8)) if n else Tensor.empty(0, dtype=dtypes.uint8)
    assert bytes(data.hash().tolist()) == reference(text(n))


def test_hash_of_any_shape_and_dtype() -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert bytes(Tensor(data).hash().tolist()) == reference(data.tobytes())
    assert bytes(Tensor(2.5).hash().tolist()) == reference(np.float32(2.5).tobytes())
    with pytest.raises(AssertionError, match="symbolic"):
        Tensor.ones(4)[: Variable("n", 1, 4).bind(3)].hash()
