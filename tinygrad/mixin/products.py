"""The derivative of a product: for each factor, the product of the others.

In:   a node, and the axes along which its elements are multiplied.
Out:  a node of its shape.
Why:  the product divided by the factor is wrong where a factor is 0, and where the product overflows. Only
      multiplications are used here, so the result is right for any number of zeros, and so are its own derivatives.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.helpers import argsort, ceildiv
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

BLOCK = 16  # of so many factors, the others are multiplied for each; longer rows are cut into blocks of it


def product_of_others(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Return for each element the product of the others along ``axes``: O(n) work for n elements, and any derivative.

    Symbolic sizes count with their maximum: factors of 1 fill up what is missing.
    """
    if x.axis in axes:  # the factors of one product are on several devices
        return product_of_others(x.gathered(), axes).place_like(x)
    order = (*(a for a in range(x.ndim) if a not in axes), *axes)
    rows = x.permute(order)
    most = rows.max_shape
    kept = x.ndim - len(axes)
    largest = (*rows.shape[:kept], *most[kept:])
    flat = rows.pad_to(largest, value=1).reshape((*rows.shape[:kept], math.prod(most[kept:])))
    others = _others(flat).reshape(largest)
    return others.shrink_to(rows.shape).permute(argsort(order))


def _others(rows: UOp) -> UOp:
    n: Any = rows.shape[-1]
    if n <= BLOCK:
        at = type(rows).arange(n)
        factors = at.eq(at.reshape(-1, 1)).where(1.0, rows.unsqueeze(-2))
        return factors._rop(Ops.MUL, (rows.ndim,)).reshape(rows.shape)
    batch, blocks = rows.shape[:-1], ceildiv(n, BLOCK)
    cut = rows.pad_to((*batch, blocks * BLOCK), value=1).reshape((*batch, blocks, BLOCK))
    totals = cut._rop(Ops.MUL, (cut.ndim - 1,)).reshape((*batch, blocks))
    # Stored, as each element of a block needs it: computed on the way, it would be computed for each of them.
    between = _others(totals).contiguous().unsqueeze(-1)
    return (_others(cut) * between).reshape((*batch, blocks * BLOCK)).shrink_to((*batch, n))
