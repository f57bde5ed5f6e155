"""Matrix units and dot-product instructions: what a target has beside multiply-add.

In:   nothing, or the sizes and dtypes of an instruction.
Out:  ``TensorCore``, the description that a renderer lists in ``tensor_cores``; the instructions of CPUs.
Why:  a policy looks for one whose dtypes fit a contraction, the step TC brings both operands into its form, and
      the renderer finds the instruction by the arg of the WMMA node.

A dot-product instruction sums a few products per lane: acc[l] += a[l, 0] * b[l, 0] + a[l, 1] * b[l, 1] + ... Its
operands are vectors of 32-bit words, each of them 2 or 4 packed narrow numbers, the first one in the lowest bits.

A tile instruction does this for whole matrices of words: acc[i, j] += dot(a[i, w], b[w, j]) for every word w. Its
operands and sums are tiles of 16 x 16 words, which lie in memory row by row and are loaded and stored as a whole.
"""

from __future__ import annotations

from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.record import field, record


@record(frozen=True)
class TensorCore:
    """A matrix unit.

    Args:
        dims: Sizes (N, M, K) of one operation.
        threads: Threads that take part.
        elements_per_thread: Numbers of the first factor, the second factor and the sum that each thread holds.
        dtype_in: Dtype of the factors; uint8 stands for an unsigned first and a signed second factor, int8 of a tile
            instruction for bytes of any signs.
        dtype_out: Dtype of the sums.
        opts: Steps that the unit takes the place of.
        swizzle: How threads hold their numbers.
    """

    dims: tuple[int, int, int]
    threads: int
    elements_per_thread: tuple[int, int, int]
    dtype_in: DType
    dtype_out: DType
    opts: tuple[str, ...] = ()
    swizzle: tuple[Any, ...] = field(default=())

    @property
    def packed(self) -> int:
        """Factors in one word of 32 bits."""
        return 4 // self.dtype_in.itemsize

    @property
    def is_tile(self) -> bool:
        """Whether operands and sums are tiles."""
        return self.dims[1] > 1

    @property
    def words(self) -> int:
        """Words of each operand that enter one sum."""
        return self.dims[2] // self.packed

    def takes(self, first: DType, second: DType, sums: DType) -> bool:
        """Whether the unit sums products of factors with these dtypes, in either order."""
        if self.dtype_in is dtypes.bfloat16:
            return first is second is dtypes.bfloat16 and sums is self.dtype_out
        if not {first, second} <= {dtypes.int8, dtypes.uint8}:
            return False
        if self.is_tile:
            return sums in (dtypes.int32, dtypes.uint32)
        return dtypes.int8 in (first, second) and sums is self.dtype_out

    def arg(self, device: str, factors: tuple[DType, DType] | None = None) -> tuple[Any, ...]:
        """Return the arg of the WMMA node; ``factors`` are the dtypes of both operands of a tile instruction."""
        return self.dims, self.dtype_in, device, self.threads, factors


def dot_product(lanes: int, packed: int, dtype_in: DType, dtype_out: DType) -> TensorCore:
    """Return the description of a dot-product instruction of a CPU."""
    return TensorCore((lanes, 1, packed), 1, (lanes * packed, packed, lanes), dtype_in, dtype_out)


def tile_product(dtype_in: DType, dtype_out: DType) -> TensorCore:
    """Return the description of a tile instruction of a CPU."""
    depth = 16 * 4 // dtype_in.itemsize
    return TensorCore((16, 16, depth), 1, (16 * depth, 16 * depth, 256), dtype_in, dtype_out)


def is_tile_arg(arg: tuple[Any, ...]) -> bool:
    """Whether the arg of a WMMA node is that of a tile instruction."""
    return bool(arg[0][1] > 1)


TILE_REGISTERS = 8

# vdpbf16ps: sums in float32, rounded after each product; subnormal numbers count as 0.
BFLOAT16 = dot_product(16, 2, dtypes.bfloat16, dtypes.float32)
# vpdpbusd: exact, sums wrap as int32 does.
BYTES = dot_product(16, 4, dtypes.uint8, dtypes.int32)
# tdpbf16ps: products at even and at odd places are summed on their own, fused, from 0; then both sums are added, and
# their sum to the one so far. Everything is rounded to nearest even in float32; subnormal numbers count as 0.
BFLOAT16_TILES = tile_product(dtypes.bfloat16, dtypes.float32)
# tdpbssd, tdpbsud, tdpbusd, tdpbuud: exact, sums wrap as int32 does.
BYTE_TILES = tile_product(dtypes.int8, dtypes.int32)


__all__ = [
    "BFLOAT16",
    "BFLOAT16_TILES",
    "BYTES",
    "BYTE_TILES",
    "TILE_REGISTERS",
    "TensorCore",
    "dot_product",
    "is_tile_arg",
    "tile_product",
]
