"""Types of GGML: from the bytes of a tensor in a GGUF file to its numbers.

In:   a one-dimensional uint8 tensor, the number of elements, the number of the type.
Out:  a lazy one-dimensional tensor: for native types the same bytes with another dtype, for quantised ones float32.
Why:  the unpacking is written with operations of Tensor, so it runs inside the kernel that uses the weights, which then
      reads the packed bytes. Fields of different width are cut out of a byte by a shift by a range: that is arithmetic
      on indices, where stacking the parts would need a selection.

A quantised tensor is a row of blocks, each of some bytes for a number of elements. A block has one or two scales in
half precision, and integers ``q`` of 1 to 8 bits; most types mean ``scale * q - minimum``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

from tinygrad.dtype import DType, dtypes
from tinygrad.llm.ggml_grids import GRIDS
from tinygrad.tensor import Tensor

__all__ = ["GGML_TYPES", "GGMLType", "ggml_data_to_tensor"]

# The 16 numbers that four bits stand for: a non-linear scale, and E2M1 floats times two.
_IQ4_LEVELS: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_MXFP4_LEVELS: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
    """Return the elements of a tensor as GGML stores it.

    Args:
        t: One-dimensional uint8 tensor that starts with the data, on a device that computes unless the type is native.
        n: Number of elements, for quantised types a multiple of the block size.
        ggml_type: Number of the type.

    Returns:
        Lazy tensor of shape (n,) on the same device; float32 for quantised types.

    Raises:
        ValueError: The type is not supported, ``n`` is no multiple of its block size, or ``t`` is too short.

    Example:
        >>> ggml_data_to_tensor(Tensor(bytes([0, 0x3C, 0, 0xC0])), 2, 1).tolist()
        [1.0, -2.0]
    """
    kind = GGML_TYPES.get(ggml_type)
    if kind is None:
        known = ", ".join(f"{number} {known.name}" for number, known in GGML_TYPES.items())
        raise ValueError(f"GGML type {ggml_type} is not supported; supported are {known}")
    if t.ndim != 1 or t.dtype != dtypes.uint8:
        raise ValueError(f"ggml_data_to_tensor: expected a one-dimensional uint8 tensor, got {t.dtype} and {t.shape}")
    nbytes = kind.nbytes(n)
    if nbytes > int(t.shape[0]):
        raise ValueError(f"ggml_data_to_tensor: {n} elements of {kind.name} take {nbytes} bytes, got {t.shape[0]}")
    data = t[:nbytes]
    if isinstance(kind.unpack, DType):
        return data.bitcast(kind.unpack)
    return kind.unpack(data.reshape(-1, kind.block_bytes)).reshape(n)


# ---- parts of blocks ----


def _half(blocks: Tensor, at: int) -> Tensor:
    """Return the half float at byte ``at`` of each block, as float32 of shape (blocks, 1)."""
    return _words16(blocks[:, at : at + 2]).bitcast(dtypes.float16).float()


def _shifts(count: int, step: int, *trailing: int) -> Tensor:
    """Return the uint8 numbers 0, step, 2 * step ..., of shape (count, *trailing)."""
    return (Tensor.arange(count) * step).cast(dtypes.uint8).reshape(count, *trailing)


def _nibbles(x: Tensor, size: int) -> Tensor:
    """Split rows into parts of ``size`` bytes; of each first the low halves of all bytes, then the high ones."""
    return _fields(x, size, 4)


def _fields(x: Tensor, size: int, bits: int) -> Tensor:
    """Split rows into parts of ``size`` bytes; of each first the lowest ``bits`` of all bytes, then the next ones.

    (blocks, bytes) -> (blocks, bytes * 8 / bits).
    """
    fields: Tensor = (x.reshape(x.shape[0], -1, 1, size) >> _shifts(8 // bits, bits, 1)) & (2**bits - 1)
    return fields.reshape(x.shape[0], -1)


def _bits(x: Tensor) -> Tensor:
    """Return the bits of each byte, lowest first: (blocks, bytes) -> (blocks, bytes * 8)."""
    return ((x.unsqueeze(-1) >> _shifts(8, 1)) & 1).reshape(x.shape[0], -1)


def _signs(bits: Tensor) -> Tensor:
    return 1.0 - 2.0 * bits.float()


def _even_signs(seven: Tensor) -> Tensor:
    """Return the signs of eight numbers each, of which an even number are minus: (blocks, n) -> (blocks, n * 8).

    The lowest seven bits of a byte are those of seven numbers, the eighth follows.
    """
    fold = seven ^ (seven >> 4)
    parity = (fold ^ (fold >> 2) ^ (fold >> 1) ^ (fold >> 3)) & 1
    return _signs(_bits(seven + parity * 128))


def _signs_and_scales(b: Tensor) -> tuple[Tensor, Tensor]:
    """Cut words of four bytes: into the signs of 32 numbers, four times seven bits, and a scale of four bits.

    (blocks, words * 4) -> (blocks, words * 32) and (blocks, words).
    """
    rows = b.reshape(b.shape[0], -1, 4).cast(dtypes.uint32)
    word = rows[:, :, 0] | rows[:, :, 1] << 8 | rows[:, :, 2] << 16 | rows[:, :, 3] << 24
    seven = ((word.unsqueeze(-1) >> _shifts(4, 7).cast(dtypes.uint32)) & 127).cast(dtypes.uint8)
    return _even_signs(seven.reshape(b.shape[0], -1)), (word >> 28).float()


def _nibble_pairs(x: Tensor) -> Tensor:
    """Return the two halves of each byte next to each other, the low one first: (blocks, n) -> (blocks, n * 2)."""
    return ((x.unsqueeze(-1) >> _shifts(2, 4)) & 15).reshape(x.shape[0], -1)


def _words16(x: Tensor) -> Tensor:
    """Join two bytes each, the low one first: (blocks, n * 2) -> (blocks, n) of uint16."""
    rows = x.reshape(x.shape[0], -1, 2).cast(dtypes.uint16)
    return rows[:, :, 0] | rows[:, :, 1] << 8


def _spread(x: Tensor, size: int) -> Tensor:
    """Repeat each number of a row ``size`` times in place: (blocks, numbers) -> (blocks, numbers * size)."""
    return x.unsqueeze(-1).expand(*x.shape, size).reshape(x.shape[0], -1)


@functools.cache
def _table(values: bytes, dtype: DType, shape: tuple[int, ...], device: str | None) -> Tensor:
    """Return a table in the memory of a device; one for all tensors that look up in it."""
    return Tensor(values, device="PYTHON").bitcast(dtype).reshape(shape).to(device).realize()


def _levels(q: Tensor, levels: tuple[int, ...]) -> Tensor:
    data = bytes(level & 255 for level in levels)
    return _table(data, dtypes.int8, (len(levels),), _device_of(q))[q].float()


def _ggml_iq_grid(q: Tensor, name: str) -> Tensor:
    """Look up entries of a codebook: (blocks, indices) -> (blocks, indices * width), float32."""
    grid = GRIDS[name]
    entries = _table(grid.entries(), dtypes.uint8, (-1, grid.width), _device_of(q))
    return entries[q].reshape(q.shape[0], -1).float()


def _device_of(t: Tensor) -> str | None:
    return t.device if isinstance(t.device, str) else None


# ---- blocks of 32 and 64 ----


def _q4_0(b: Tensor) -> Tensor:
    return (_nibbles(b[:, 2:], 16).float() - 8) * _half(b, 0)


def _q4_1(b: Tensor) -> Tensor:
    return _nibbles(b[:, 4:], 16).float() * _half(b, 0) + _half(b, 2)


def _q5_0(b: Tensor) -> Tensor:
    return ((_nibbles(b[:, 6:], 16) + _bits(b[:, 2:6]) * 16).float() - 16) * _half(b, 0)


def _q5_1(b: Tensor) -> Tensor:
    return (_nibbles(b[:, 8:], 16) + _bits(b[:, 4:8]) * 16).float() * _half(b, 0) + _half(b, 2)


def _q8_0(b: Tensor) -> Tensor:
    return b[:, 2:].bitcast(dtypes.int8).float() * _half(b, 0)


def _iq4_nl(b: Tensor) -> Tensor:
    return _levels(_nibbles(b[:, 2:], 16), _IQ4_LEVELS) * _half(b, 0)


def _mxfp4(b: Tensor) -> Tensor:
    # The scale is a power of two, E8M0 over 2 since the levels are doubled. Its two smallest values are subnormal.
    exponent = b[:, :1].cast(dtypes.uint32)
    bits = (exponent < 2).where((exponent + 1) * 0x200000, (exponent.maximum(1) - 1) * 0x800000)
    return _levels(_nibbles(b[:, 1:], 16), _MXFP4_LEVELS) * bits.bitcast(dtypes.float32)


def _nvfp4(b: Tensor) -> Tensor:
    # Four scales in E4M3 without a sign, for 16 numbers each, over 2 since the levels are doubled; 127 stands for 0.
    codes = b[:, :4].cast(dtypes.uint32)
    normal = (((codes & 127) << 20) + (119 << 23)).bitcast(dtypes.float32)
    small = (codes & 7).float() * 2.0**-10
    scales = (codes == 127).where(0.0, ((codes & 120) == 0).where(small, normal))
    return _levels(_nibbles(b[:, 4:], 8), _MXFP4_LEVELS) * _spread(scales, 16)


# ---- blocks of 128 and 256 ----


def _q1_0(b: Tensor) -> Tensor:
    return (_bits(b[:, 2:]).float() * 2 - 1) * _half(b, 0)


def _q2_k(b: Tensor) -> Tensor:
    scales = _half(b, 80) * (b[:, :16] & 15).float()
    minima = _half(b, 82) * (b[:, :16] >> 4).float()
    return _spread(scales, 16) * _fields(b[:, 16:80], 32, 2).float() - _spread(minima, 16)


def _q3_k(b: Tensor) -> Tensor:
    # 16 scales of 6 bits: low halves in 8 bytes, the upper two bits in 4.
    scales = _fields(b[:, 96:104], 8, 4) + _fields(b[:, 104:108], 4, 2) * 16
    high = _fields(b[:, :32], 32, 1)
    q = _fields(b[:, 32:96], 32, 2).float() - (1 - high.float()) * 4
    return _spread(_half(b, 108) * (scales.float() - 32), 16) * q


def _k_scales(b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the 8 scales and 8 minima of 6 bits, that lie in bytes 4 to 16, times those of the block."""
    rows = b[:, 4:16].reshape(-1, 3, 4)
    # The first four are whole in a row. Of the others four bits are in the last row and two are left over in the first.
    late = _shifts(2, 1, 1)
    mask = 63 - late * 48
    scales = (rows[:, ::2] & mask) + (rows[:, :1] >> 6) * 16 * late
    minima = ((rows[:, 1:] >> late * 4) & mask) + (rows[:, 1:2] >> 6) * 16 * late
    return _half(b, 0) * scales.reshape(-1, 8).float(), _half(b, 2) * minima.reshape(-1, 8).float()


def _q4_k(b: Tensor) -> Tensor:
    scales, minima = _k_scales(b)
    return _spread(scales, 32) * _nibbles(b[:, 16:], 32).float() - _spread(minima, 32)


def _q5_k(b: Tensor) -> Tensor:
    scales, minima = _k_scales(b)
    q = _nibbles(b[:, 48:], 32) + _fields(b[:, 16:48], 32, 1) * 16
    return _spread(scales, 32) * q.float() - _spread(minima, 32)


def _q6_k(b: Tensor) -> Tensor:
    q = _nibbles(b[:, :128], 64) + _fields(b[:, 128:192], 32, 2) * 16
    scales = _half(b, 208) * b[:, 192:208].bitcast(dtypes.int8).float()
    return _spread(scales, 16) * (q.float() - 32)


def _iq4_xs(b: Tensor) -> Tensor:
    # 8 scales of 6 bits: low halves in 4 bytes, the upper two bits in 2.
    high = ((b[:, 2:4].unsqueeze(-1) >> _shifts(4, 2)) & 3).reshape(-1, 8)
    scales = _half(b, 0) * ((_nibble_pairs(b[:, 4:8]) + high * 16).float() - 32)
    return _spread(scales, 32) * _levels(_nibbles(b[:, 8:], 16), _IQ4_LEVELS)


def _iq3_xxs(b: Tensor) -> Tensor:
    signs, scales = _signs_and_scales(b[:, 66:])
    scales = _half(b, 0) * (scales + 0.5) * 0.5
    return _spread(scales, 32) * _ggml_iq_grid(b[:, 2:66], "IQ3_XXS") * signs


def _iq3_s(b: Tensor) -> Tensor:
    indices = b[:, 2:66].cast(dtypes.uint16) + _bits(b[:, 66:74]).cast(dtypes.uint16) * 256
    scales = _nibble_pairs(b[:, 106:110]).float() * 2 + 1
    return _spread(_half(b, 0) * scales, 32) * _ggml_iq_grid(indices, "IQ3_S") * _signs(_bits(b[:, 74:106]))


def _iq2_s(b: Tensor) -> Tensor:
    high = ((b[:, 66:74].unsqueeze(-1) >> _shifts(4, 2)) & 3).reshape(-1, 32)
    indices = b[:, 2:34].cast(dtypes.uint16) + high.cast(dtypes.uint16) * 256
    scales = _half(b, 0) * (_nibble_pairs(b[:, 74:82]).float() + 0.5) * 0.25
    return _spread(scales, 16) * _ggml_iq_grid(indices, "IQ2_S") * _signs(_bits(b[:, 34:66]))


def _iq2_xxs(b: Tensor) -> Tensor:
    groups = b[:, 2:].reshape(-1, 8, 8)  # four indices, and a word
    signs, scales = _signs_and_scales(groups[:, :, 4:].reshape(-1, 32))
    scales = _half(b, 0) * (scales + 0.5) * 0.25
    return _spread(scales, 32) * _ggml_iq_grid(groups[:, :, :4].reshape(-1, 32), "IQ2_XXS") * signs


def _iq2_xs(b: Tensor) -> Tensor:
    words = _words16(b[:, 2:66])  # nine bits of an index, seven of signs
    scales = _half(b, 0) * (_nibble_pairs(b[:, 66:]).float() + 0.5) * 0.25
    signs = _even_signs((words >> 9).cast(dtypes.uint8))
    return _spread(scales, 16) * _ggml_iq_grid(words & 511, "IQ2_XS") * signs


def _iq1_s(b: Tensor) -> Tensor:
    # Of 32 numbers: the upper three bits of four indices, a scale, and the sign of an eighth that is added to all.
    words = _words16(b[:, 34:])
    high = ((words.unsqueeze(-1) >> _shifts(4, 3).cast(dtypes.uint16)) & 7).reshape(-1, 32)
    scales = _half(b, 0) * (((words >> 12) & 7).float() * 2 + 1)
    shift = _spread(_signs(words >> 15), 32) * 0.125
    return _spread(scales, 32) * (_iq1_grid(b[:, 2:34].cast(dtypes.uint16) + high * 256) + shift)


def _iq1_m(b: Tensor) -> Tensor:
    # The scale of the block lies in the upper halves of four words, above four scales of three bits each.
    words = _words16(b[:, 48:])
    digits = (words >> 12) << _shifts(4, 4).cast(dtypes.uint16)
    half = (digits[:, :1] | digits[:, 1:2] | digits[:, 2:3] | digits[:, 3:]).bitcast(dtypes.float16).float()
    scales = ((words.unsqueeze(-1) >> _shifts(4, 3).cast(dtypes.uint16)) & 7).reshape(-1, 16)
    nibbles = _nibble_pairs(b[:, 32:48])  # of 8 numbers: the upper three bits of an index, and the sign of the eighth
    indices = b[:, :32].cast(dtypes.uint16) + (nibbles & 7).cast(dtypes.uint16) * 256
    shift = _spread(_signs(nibbles >> 3), 8) * 0.125
    return _spread(half * (scales.float() * 2 + 1), 16) * (_iq1_grid(indices) + shift)


def _iq1_grid(indices: Tensor) -> Tensor:
    return _ggml_iq_grid(indices, "IQ1") - 1


def _tq1_0(b: Tensor) -> Tensor:
    # A byte is a fraction of 256, and has five digits of base three; of the last four bytes only four digits count.
    def digits(x: Tensor, count: int) -> Tensor:
        powers = Tensor([3**i for i in range(count)], dtype=dtypes.uint8, device=x.device).reshape(count, 1)
        rest = x.unsqueeze(1) * powers  # what wraps are the digits before
        return ((rest.cast(dtypes.uint16) * 3) >> 8).reshape(x.shape[0], -1)

    parts = (digits(b[:, :32], 5), digits(b[:, 32:48], 5), digits(b[:, 48:52], 4))
    return (parts[0].cat(*parts[1:], dim=1).float() - 1) * _half(b, 52)


def _tq2_0(b: Tensor) -> Tensor:
    return (_fields(b[:, :64], 32, 2).float() - 1) * _half(b, 64)


# ---- the table ----


class GGMLType(NamedTuple):
    """A type: how many elements a block has and how many bytes, and what these mean.

    Attributes:
        name: As GGML calls it.
        block_size: Elements of a block.
        block_bytes: Bytes of a block.
        unpack: A dtype for native types; else a function of blocks, (blocks, block_bytes) -> (blocks, block_size).
    """

    name: str
    block_size: int
    block_bytes: int
    unpack: DType | Callable[[Tensor], Tensor]

    def nbytes(self, n: int) -> int:
        """Return how many bytes ``n`` elements take.

        Raises:
            ValueError: ``n`` is negative or no multiple of the block size.
        """
        if n < 0 or n % self.block_size:
            raise ValueError(f"{n} elements of GGML type {self.name}; expected a multiple of {self.block_size}")
        return n // self.block_size * self.block_bytes


GGML_TYPES: Final[dict[int, GGMLType]] = {
    0: GGMLType("F32", 1, 4, dtypes.float32),
    1: GGMLType("F16", 1, 2, dtypes.float16),
    2: GGMLType("Q4_0", 32, 18, _q4_0),
    3: GGMLType("Q4_1", 32, 20, _q4_1),
    6: GGMLType("Q5_0", 32, 22, _q5_0),
    7: GGMLType("Q5_1", 32, 24, _q5_1),
    8: GGMLType("Q8_0", 32, 34, _q8_0),
    10: GGMLType("Q2_K", 256, 84, _q2_k),
    11: GGMLType("Q3_K", 256, 110, _q3_k),
    12: GGMLType("Q4_K", 256, 144, _q4_k),
    13: GGMLType("Q5_K", 256, 176, _q5_k),
    14: GGMLType("Q6_K", 256, 210, _q6_k),
    16: GGMLType("IQ2_XXS", 256, 66, _iq2_xxs),
    17: GGMLType("IQ2_XS", 256, 74, _iq2_xs),
    18: GGMLType("IQ3_XXS", 256, 98, _iq3_xxs),
    19: GGMLType("IQ1_S", 256, 50, _iq1_s),
    20: GGMLType("IQ4_NL", 32, 18, _iq4_nl),
    21: GGMLType("IQ3_S", 256, 110, _iq3_s),
    22: GGMLType("IQ2_S", 256, 82, _iq2_s),
    23: GGMLType("IQ4_XS", 256, 136, _iq4_xs),
    24: GGMLType("I8", 1, 1, dtypes.int8),
    25: GGMLType("I16", 1, 2, dtypes.int16),
    26: GGMLType("I32", 1, 4, dtypes.int32),
    27: GGMLType("I64", 1, 8, dtypes.int64),
    28: GGMLType("F64", 1, 8, dtypes.float64),
    29: GGMLType("IQ1_M", 256, 56, _iq1_m),
    30: GGMLType("BF16", 1, 2, dtypes.bfloat16),
    34: GGMLType("TQ1_0", 256, 54, _tq1_0),
    35: GGMLType("TQ2_0", 256, 66, _tq2_0),
    39: GGMLType("MXFP4", 32, 17, _mxfp4),
    40: GGMLType("NVFP4", 64, 36, _nvfp4),
    41: GGMLType("Q1_0", 128, 18, _q1_0),
}
