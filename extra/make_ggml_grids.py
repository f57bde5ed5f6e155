"""Read the codebooks of the IQ types off a dequantiser, and print them for tinygrad/llm/ggml_grids.py.

In:   the package ``gguf``, used as a black box: blocks of which every index occurs once, with scale and signs of one.
Out:  printed hex digits: ``python extra/make_ggml_grids.py``.
Why:  the tables in the source can be checked and made again.

The entries of a codebook are vectors of 4 or 8 numbers out of a few levels, so an entry is stored as the numbers of its
levels: 3 bits each where there are 8 levels, 2 bits where there are 3.
"""

from __future__ import annotations

import gguf
import numpy as np

ONE = np.frombuffer(np.float16(1).tobytes(), np.uint8)


def dequantized(blocks: list[np.ndarray], kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Return what the black box makes of blocks."""
    return gguf.quants.dequantize(np.stack(blocks).astype(np.uint8), kind)


def iq3_xxs() -> np.ndarray:
    """Return the 256 entries: 64 index bytes, then 32 bytes of scales (0 means 1/4) and signs."""
    blocks = [np.concatenate([ONE, np.arange(64) + 64 * i, np.zeros(32)]) for i in range(4)]
    return (dequantized(blocks, gguf.GGMLQuantizationType.IQ3_XXS) * 4).reshape(256, 4)


def iq3_s() -> np.ndarray:
    """Return the 512 entries: 64 bytes with 8 bits of an index, 8 with the ninth; signs; scales (0 means 1)."""
    blocks = [
        np.concatenate([ONE, np.arange(64) + 64 * (i % 4), np.full(8, 255 * (i // 4)), np.zeros(36)]) for i in range(8)
    ]
    return dequantized(blocks, gguf.GGMLQuantizationType.IQ3_S).reshape(512, 4)


def iq2_s() -> np.ndarray:
    """Return the 1024 entries: 32 bytes with 8 bits of an index; signs; 8 with two more bits; scales (0 means 1/8)."""
    blocks = [
        np.concatenate([
            ONE,
            np.arange(32) + 32 * (i % 8),
            np.zeros(32),
            np.full(8, 0b01010101 * (i // 8)),
            np.zeros(8),
        ])
        for i in range(32)
    ]
    return (dequantized(blocks, gguf.GGMLQuantizationType.IQ2_S) * 8).reshape(1024, 8)


def iq2_xxs() -> np.ndarray:
    """Return the 256 entries: 8 times 4 index bytes and a word of scale (0 means 1/8) and signs."""
    blocks = [
        np.concatenate([ONE, np.pad((np.arange(32) + 32 * i).reshape(8, 4), ((0, 0), (0, 4))).ravel()])
        for i in range(8)
    ]
    return (dequantized(blocks, gguf.GGMLQuantizationType.IQ2_XXS) * 8).reshape(256, 8)


def iq2_xs() -> np.ndarray:
    """Return the 512 entries: 32 words of an index in nine bits and signs; scales (0 means 1/8)."""
    words = np.arange(512, dtype="<u2").reshape(16, 32)
    blocks = [np.concatenate([ONE, row.view(np.uint8), np.zeros(8)]) for row in words]
    return (dequantized(blocks, gguf.GGMLQuantizationType.IQ2_XS) * 8).reshape(512, 8)


def iq1() -> np.ndarray:
    """Return the 2048 entries, one added: 32 bytes with 8 bits of an index; 8 words with three more bits of four.

    A scale of 0 means 1, and an eighth is added to all numbers.
    """
    blocks = [
        np.concatenate([ONE, np.arange(32) + 32 * (i % 8), np.full(8, 0b001001001001 * (i // 8), "<u2").view(np.uint8)])
        for i in range(64)
    ]
    return (dequantized(blocks, gguf.GGMLQuantizationType.IQ1_S) + 0.875).reshape(2048, 8)


def print_grid(name: str, entries: np.ndarray, bits: int) -> None:
    """Print an entry after the other, the first number of an entry in the lowest bits, as hex digits."""
    levels = np.unique(entries)
    assert len(levels) <= 2**bits, levels
    assert len(np.unique(entries, axis=0)) == len(entries), "an entry occurs twice: the indices were not enumerated"
    numbers = (np.searchsorted(levels, entries) << (bits * np.arange(entries.shape[1]))).sum(1)
    digits = "".join(f"{n:0{bits * entries.shape[1] // 4}x}" for n in numbers)
    print(f"{name}: levels {[int(level) for level in levels]}, {len(entries)} entries")  # noqa: T201
    for i in range(0, len(digits), 104):
        print(f'    "{digits[i : i + 104]}"')  # noqa: T201


if __name__ == "__main__":
    print_grid("IQ3_XXS", iq3_xxs(), 3)
    print_grid("IQ3_S", iq3_s(), 3)
    print_grid("IQ2_S", iq2_s(), 2)
    print_grid("IQ2_XXS", iq2_xxs(), 2)
    print_grid("IQ2_XS", iq2_xs(), 2)
    print_grid("IQ1", iq1(), 2)
