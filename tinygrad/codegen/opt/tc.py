"""Matrix units and dot-product instructions: what a target has beside multiply-add.

In:   nothing, or the sizes and dtypes of an instruction.
Out:  ``TensorCore``, the description that a renderer lists in ``tensor_cores``; the instructions of CPUs.
Why:  a policy looks for one whose dtypes fit a contraction, the step TC brings both operands into its form, and
      the renderer finds the instruction by the arg of the WMMA node.

A dot-product instruction sums a few products per lane: acc[l] += a[l, 0] * b[l, 0] + a[l, 1] * b[l, 1] + ... Its
operands are vectors of 32-bit words, each of them 2 or 4 packed narrow numbers, the first one in the lowest bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinygrad.dtype import DType, dtypes


@dataclass(frozen=True)
class TensorCore:
    """A matrix unit.

    Args:
        dims: Sizes (N, M, K) of one operation.
        threads: Threads that take part.
        elements_per_thread: Numbers of the first factor, the second factor and the sum that each thread holds.
        dtype_in: Dtype of the factors; uint8 stands for an unsigned first and a signed second factor.
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
        """Factors in one word of a dot-product instruction."""
        return self.dims[2]

    def arg(self, device: str) -> tuple[Any, ...]:
        """Return the arg of the WMMA node."""
        return self.dims, self.dtype_in, device, self.threads, None


def dot_product(lanes: int, packed: int, dtype_in: DType, dtype_out: DType) -> TensorCore:
    """Return the description of a dot-product instruction of a CPU."""
    return TensorCore((lanes, 1, packed), 1, (lanes * packed, packed, lanes), dtype_in, dtype_out)


# vdpbf16ps: sums in float32, rounded after each product; subnormal numbers count as 0.
BFLOAT16 = dot_product(16, 2, dtypes.bfloat16, dtypes.float32)
# vpdpbusd: exact, sums wrap as int32 does.
BYTES = dot_product(16, 4, dtypes.uint8, dtypes.int32)


__all__ = ["BFLOAT16", "BYTES", "TensorCore", "dot_product"]
