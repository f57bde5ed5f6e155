"""Arithmetic on integers: quotients of each kind of rounding, multiples, parts of words.

In:   Python ints; where the type is Any, symbolic ints too.
Out:  the same.
Why:  sizes, addresses and the constants of kernels are computed in every stage, with the rounding of C or of Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "cdiv", "ceildiv", "cmod", "data64", "data64_le", "floordiv", "floormod", "getbits", "hi32", "i2u", "lo32",
    "next_power2", "polyN", "round_down", "round_up", "to_be32", "to_be64",
]  # fmt: skip


def ceildiv(num: Any, amt: Any) -> Any:
    """Divide, rounded up. Works for ints and for symbolic ints."""
    return -(num // -amt)


def round_up(num: Any, amt: Any) -> Any:
    """Return the smallest multiple of ``amt`` that is at least ``num``."""
    return ceildiv(num, amt) * amt


def round_down(num: Any, amt: Any) -> Any:
    """Return the largest multiple of ``amt`` that is at most ``num``."""
    return num // amt * amt


def next_power2(x: int) -> int:
    """Return the smallest power of two that is at least ``x`` (1 for 0)."""
    return 1 << max(x - 1, 0).bit_length()


def cdiv(x: int, y: int) -> int:
    """Divide as C does, rounding toward zero; 0 if ``y`` is 0."""
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def cmod(x: int, y: int) -> int:
    """Return the remainder of ``cdiv``, with the sign of ``x``; ``x`` itself if ``y`` is 0."""
    return x - cdiv(x, y) * y


def floordiv(x: int, y: int) -> int:
    """Divide as Python does, rounding down; 0 if ``y`` is 0."""
    return x // y if y else 0


def floormod(x: int, y: int) -> int:
    """Return the remainder of ``floordiv``, with the sign of ``y``; ``x`` itself if ``y`` is 0."""
    return x % y if y else x


def lo32(x: Any) -> Any:
    """Return the low 32 bits."""
    return x & 0xFFFFFFFF


def hi32(x: Any) -> Any:
    """Return what is above the low 32 bits."""
    return x >> 32


def data64(x: Any) -> tuple[Any, Any]:
    """Return (high, low) halves of a 64-bit number."""
    return hi32(x), lo32(x)


def data64_le(x: Any) -> tuple[Any, Any]:
    """Return (low, high) halves of a 64-bit number."""
    return lo32(x), hi32(x)


def to_be32(x: int) -> int:
    """Reverse the bytes of a 32-bit number."""
    return int.from_bytes(x.to_bytes(4, "little"), "big")


def to_be64(x: int) -> int:
    """Reverse the bytes of a 64-bit number."""
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def getbits(value: int, start: int, end: int) -> int:
    """Return bits ``start`` to ``end`` of ``value``, both included."""
    return (value >> start) & ((1 << (end - start + 1)) - 1)


def i2u(bits: int, value: int) -> int:
    """Return the unsigned number with the two's complement bits of ``value``."""
    return value & ((1 << bits) - 1)


def polyN(x: Any, coeffs: Sequence[Any]) -> Any:  # noqa: N802  public name
    """Evaluate a polynomial by Horner's rule; the first coefficient belongs to the highest power."""
    total = coeffs[0]
    for coefficient in coeffs[1:]:
        total = x * total + coefficient
    return total
