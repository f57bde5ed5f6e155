"""Hashing: the Keccak sponge and a tree hash over it.

In:   bytes along the last dim.
Out:  digests, equal to those of hashlib.
Why:  the permutation is one kernel written by hand, with the 25 words of the state in registers. As tensor operations
      it would be 24 rounds of kernels for every block of the message.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.dtype import AddrSpace, dtypes, strong_dtype
from tinygrad.errors import error_text, shown
from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.mixin.hooks import Hooks, hint_to_pad
from tinygrad.uop import AxisType

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.mixin.elementwise import ElementwiseMixin as _Base
    from tinygrad.uop.ops import UOp
else:
    _Base = Hooks

_STATE_BYTES = 200
_LANES = 25
_ROUNDS = 24
_TREE_CHUNK, _TREE_BLOCK = 1 << 20, 4096
# Name -> (rate in bytes, domain byte). The digest has half as many bytes as the capacity, 200 - rate.
_CONFIGS = {"sha3_224": (144, 0x06), "sha3_256": (136, 0x06), "shake_128": (168, 0x1F)}


def _round_constants() -> list[int]:
    """Return the constant of each round: bit 2**j - 1 is output 7 * round + j of a shift register."""
    register, bits = 1, []
    for _ in range(7 * _ROUNDS):
        bits.append(register & 1)
        register = (register << 1) ^ (0x171 if register & 0x80 else 0)
    return [sum(bits[7 * r + j] << ((1 << j) - 1) for j in range(7)) for r in range(_ROUNDS)]


def _rotations() -> list[int]:
    """Return by how many bits the lane x + 5*y is rotated."""
    found = [0] * _LANES
    x, y = 1, 0
    for t in range(24):
        found[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return found


def _rotated(lane: UOp, bits: int) -> UOp:
    return lane if bits == 0 else (lane << bits) | (lane >> (64 - bits))


def _round(lanes: list[UOp], constant: UOp) -> list[UOp]:
    """Return the state after one round; lane (x, y) is at x + 5*y."""
    columns = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
    mixed = [columns[(x + 4) % 5] ^ _rotated(columns[(x + 1) % 5], 1) for x in range(5)]
    moved: dict[int, UOp] = {}
    for i, bits in enumerate(_rotations()):
        x, y = i % 5, i // 5
        moved[y + 5 * ((2 * x + 3 * y) % 5)] = _rotated(lanes[i] ^ mixed[x], bits)
    result = []
    for i in range(_LANES):
        x, row = i % 5, i - i % 5
        result.append(moved[i] ^ ((moved[row + (x + 1) % 5] ^ -1) & moved[row + (x + 2) % 5]))
    result[0] = result[0] ^ constant
    return result


def sponge_kernel(out: UOp, message: UOp, constants: UOp) -> UOp:
    """Return the kernel that absorbs a batch of messages.

    Args:
        out: (batch, 25) uint64, the state after the last block.
        message: (batch, blocks, words) uint64, padded to whole blocks.
        constants: (24,) uint64, one constant per round.
    """
    from tinygrad.uop.ops import KernelInfo, UOp

    batch, blocks, words = message.shape
    item, block, turn = UOp.range(batch, 0, AxisType.GLOBAL), UOp.range(blocks, 1), UOp.range(_ROUNDS, 2)
    state = [UOp.placeholder((1,), dtypes.uint64, i, AddrSpace.REG) for i in range(_LANES)]
    state = [lane.after(item)[0].set(0) for lane in state]
    absorbed = []
    for i, lane in enumerate(state):
        inside = lane.after(block)[0]
        absorbed.append(inside.set(inside ^ message[item, block, i]) if i < words else lane.after(block))
    before = [lane.after(turn)[0] for lane in absorbed]
    after = _round(before, constants[turn])
    stores = UOp.group(*[old.store(new) for old, new in zip(before, after, strict=True)])
    done = stores.end(turn).end(block)
    writes = UOp.group(*[out[item, i].store(lane.after(done)[0]) for i, lane in enumerate(state)])
    return writes.end(item).sink(arg=KernelInfo(name=f"keccak_{batch}_{blocks}_{words}", opts_to_apply=()))


class HashMixin(_Base):
    """Hashes of bytes."""

    __slots__ = ()

    def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
        """Hash the bytes along the last dim, as hashlib does; wider elements count as their bytes.

        Args:
            cfg: ``sha3_224`` (28 bytes), ``sha3_256`` (32 bytes) or ``shake_128`` (16 bytes), or (rate in bytes, domain
                byte) of another sponge, whose digest has (200 - rate) / 2 bytes.

        Returns:
            uint8 tensor whose last dim is the digest.

        Raises:
            KeyError: Unknown name.
            ValueError: The rate is not a multiple of 8 below 200, or the tensor has no dim or a symbolic one.

        Example:
            >>> bytes(Tensor(b"abc").keccak().tolist()).hex()[:16]
            '3a985da74fe225b2'

        Source: FIPS 202, "SHA-3 Standard: Permutation-Based Hash and Extendable-Output Functions", 2015.
        """
        if isinstance(cfg, str) and cfg not in _CONFIGS:
            raise KeyError(f"no hash {cfg!r}; expected one of {', '.join(_CONFIGS)}, or (rate, domain byte)")
        rate, domain = _CONFIGS[cfg] if isinstance(cfg, str) else cfg
        if rate % 8 or not 0 < rate < _STATE_BYTES:
            raise ValueError(f"keccak: rate {rate}; expected a multiple of 8 between 8 and {_STATE_BYTES - 8}")
        if self.ndim == 0 or not all_int(self.shape):
            raise ValueError(
                error_text(
                    "keccak",
                    f"shape {shown(self.shape)}",
                    {"tensor": self},
                    "at least one dim, static sizes",
                    hint_to_pad(self.shape),
                )
            )
        return self._wrap_uop(_sponge(_as_bytes(self._uop), rate, domain))

    def hash(self) -> Self:
        """Return 16 bytes that identify the content: a tree of shake_128 digests.

        The bytes are padded with zeros to whole MiB. Each MiB is cut into blocks of 4096 bytes, and becomes the digest
        of its blocks' digests; the digests of all MiB are treated in the same way until there is a single one.

        Raises:
            AssertionError: The size is symbolic.

        Example:
            >>> Tensor([1, 2, 3]).hash().shape
            (16,)
        """
        if not all_int(self.shape):
            raise AssertionError(error_text("hash", "the size is symbolic", {"tensor": self},
                                            hint=hint_to_pad(self.shape)))  # fmt: skip
        rate, domain = _CONFIGS["shake_128"]
        data = _as_bytes(self._uop.flatten())
        while True:
            chunks = max(ceildiv(prod(data.shape), _TREE_CHUNK), 1)
            data = data.pad_to(chunks * _TREE_CHUNK)
            blocks = _sponge(data.reshape((chunks * (_TREE_CHUNK // _TREE_BLOCK), _TREE_BLOCK)), rate, domain)
            data = _sponge(blocks.reshape((chunks, -1)), rate, domain).flatten()
            if chunks == 1:
                return self._wrap_uop(data)


def _as_bytes(u: UOp) -> UOp:
    u = u.cast(strong_dtype(u.dtype))
    return u if u.dtype is dtypes.uint8 else u.bitcast(dtypes.uint8)


def _sponge(data: UOp, rate: int, domain: int) -> UOp:
    """Return the digests (..., (200 - rate) / 2) of bytes (..., length)."""
    from tinygrad.device import canonicalize_device
    from tinygrad.mixin.creation import CreationMixin
    from tinygrad.uop.ops import UOp

    *lead, length = data.shape
    batch, size = math.prod(lead), (_STATE_BYTES - rate) // 2
    device = canonicalize_device(data.device)
    if batch == 0:
        return UOp.empty(*lead, size, dtype=dtypes.uint8, device=device)
    blocks = length // rate + 1
    # Padding: the domain byte right after the message, and the top bit of the last byte of its block, maybe the same.
    at = UOp.arange(blocks * rate)
    padding = at.eq(length).where(domain, 0) ^ at.eq(blocks * rate - 1).where(0x80, 0)
    messages = data.reshape((batch, length))
    axis = 0 if messages.axis == 0 else None  # each device hashes the messages that it has, or all of them
    messages = messages if axis == messages.axis else messages.gathered()
    padded = messages.pad_to((batch, blocks * rate)) ^ padding.cast(dtypes.uint8)
    words = padded.contiguous().bitcast(dtypes.uint64).reshape((batch, blocks, rate // 8))
    constants = CreationMixin._frompy(_round_constants(), dtypes.uint64, device)
    state = UOp.placed_buffer(device, (batch, _LANES), dtypes.uint64, axis)
    state = UOp.custom_kernel(state, words, constants, fxn=sponge_kernel)[0]
    return state.bitcast(dtypes.uint8).shrink_to((batch, size)).reshape((*lead, size))
