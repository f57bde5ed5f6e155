"""Concatenation of nodes.

In:   nodes of one dtype whose sizes agree in all dims but one.
Out:  one node. Its gradient is stated: every part gets its slice.
Why:  there is no concatenation in hardware; an element of the result selects the part that it lies in. Parts that are
      large are padded, so that only the selected one is read. Small parts of equal size are selected by their number,
      which needs no masks at all: thousands of them stay cheap to compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.helpers import all_int, prod
from tinygrad.mixin.composite import composite, materialized
from tinygrad.record import record

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# A kernel that joins more inputs than this is cut into a tree of kernels, all alike: one is compiled, once.
FAN_IN = 32
# Parts of at most this many elements may be read once for each part of the result, from the cache.
SMALL = 16384


def join(parts: list[UOp], dim: int) -> UOp:
    """Concatenate nodes of one dtype along ``dim``."""
    parts = [part for part in parts if not (isinstance(part.shape[dim], int) and part.shape[dim] == 0)] or parts[:1]
    while len(parts) > FAN_IN:
        groups = [parts[i : i + FAN_IN] for i in range(0, len(parts), FAN_IN)]
        parts = [materialized(_join_few(group, dim)) for group in groups]
    return _join_few(parts, dim)


def _join_few(parts: list[UOp], dim: int) -> UOp:
    if len(parts) == 1:
        return parts[0]
    if not dtypes.is_float(parts[0].dtype) or parts[0].dtype in dtypes.weaks:
        return joined(parts, dim)  # nothing to differentiate
    sizes = tuple(part.shape[dim] for part in parts)
    return composite(lambda *few: joined(list(few), dim), tuple(parts), JoinGradient(dim, sizes), "cat")


def joined(parts: list[UOp], dim: int) -> UOp:
    """Concatenate nodes along ``dim`` in the open graph, without a stated gradient."""
    shape = parts[0].shape
    if len(parts) > 4 and all_int(shape) and prod(shape) <= SMALL and all(part.shape == shape for part in parts):
        return _select_by_number(parts, dim)
    while len(parts) > 1:
        # Pairs of neighbours, so that an element passes through log(n) selections and not n.
        pairs = [_join_pair(a, b, dim) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _select_by_number(parts: list[UOp], dim: int) -> UOp:
    shape, n = parts[0].shape, len(parts)
    number = type(parts[0]).arange(n, dtype=dtypes.int32).reshape((n, *(1,) * (len(shape) - dim)))
    level = [(i, part.reshape((*shape[:dim], 1, *shape[dim:]))) for i, part in enumerate(parts)]
    while len(level) > 1:
        pairs = [(i, (number < j).where(a, b)) for (i, a), (j, b) in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0][1].reshape((*shape[:dim], n * shape[dim], *shape[dim + 1 :]))


def _join_pair(a: UOp, b: UOp, dim: int) -> UOp:
    before: list[Any] = [None] * a.ndim
    after: list[Any] = [None] * a.ndim
    after[dim], before[dim] = (0, b.shape[dim]), (a.shape[dim], 0)
    left, right = a.pad(after), b.pad(before)
    if dtypes.is_int(a.dtype):
        return left + right
    if a.dtype == dtypes.bool:
        return left | right
    # Not a sum: -0.0 + 0.0 is 0.0. The mask is the padding itself, so it is index arithmetic and never memory.
    return a.const_like(True, dtypes.bool).pad(after).where(left, right)


@record(frozen=True)
class JoinGradient:
    """Gradient function of a concatenation along ``dim`` of parts of these sizes."""

    dim: int
    sizes: tuple[Any, ...]

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, ...]:
        """Return the slice of each part."""
        slices, start = [], 0
        for size in self.sizes:
            slices.append(grad._slice_dim(self.dim, start, start + size))
            start += size
        return tuple(slices)
