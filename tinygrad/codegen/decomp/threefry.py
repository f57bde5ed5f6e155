"""THREEFRY: the Threefry-2x32 block cipher with 20 rounds, in 32-bit additions, rotations and exclusive ors.

In:   THREEFRY(x, key), both uint64: two 32-bit words each, the low word first.
Out:  the encrypted pair in the same form.
Why:  every device draws the same random numbers, whatever integers it has.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Final

from tinygrad.codegen.decomp.value import Value
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import UOp

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA


def threefry(x: UOp, key: UOp) -> UOp:
    """Return nodes for one block."""
    word0, word1 = _words(Value(x))
    key0, key1 = _words(Value(key))
    keys = (key0, key1, key0 ^ key1 ^ _PARITY)
    word0, word1 = word0 + key0, word1 + key1
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            word0 = word0 + word1
            word1 = _rotate(word1, rotation) ^ word0
        word0 = word0 + keys[(group + 1) % 3]
        word1 = word1 + keys[(group + 2) % 3] + (group + 1)
    return (word0.cast(dtypes.uint64) | (word1.cast(dtypes.uint64) << 32)).u


def _words(x: Value) -> tuple[Value, Value]:
    return x.cast(dtypes.uint32), (x >> 32).cast(dtypes.uint32)


def _rotate(x: Value, places: int) -> Value:
    return (x << places) | (x >> (32 - places))
