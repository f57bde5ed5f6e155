"""Parts of a dim that overlap where their number does not divide it, as one node whose gradient is stated.

In:   a node, a dim, and into how many parts of about the same length to cut it.
Out:  the parts, each a row that is filled up to the longest of them; and how many elements they have.
Why:  that an element belongs to a part says the same of both: the elements of part i of n, of ``old``, and the parts of
      element j of ``old``, of n, come from one formula. So the gradient of a gather is a gather again, where it would
      be a store in the order of the program. The graph is as large for ten parts as for thousands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.mixin.composite import composite, materialized
from tinygrad.mixin.gather import gather_rows
from tinygrad.mixin.hooks import same_size
from tinygrad.record import record

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


def overlapping_parts(x: UOp, dim: int, n: int, fill: Any) -> UOp:
    """Return the n parts of a dim: (..., old, ...) becomes (..., n, longest, ...); shorter ones end in ``fill``."""
    old: Any = x.shape[dim]
    gradient = PartsGradient(dim, n, old)
    return composite(lambda a: _cut(a, dim, n, fill), (x,), gradient, "parts")


def part_sums(x: UOp, dim: int, n: int) -> UOp:
    """Return the sums of the n parts of a dim."""
    old: Any = x.shape[dim]
    if divides(n, old):
        return _sum(x.reshape((*x.shape[:dim], n, old // n, *x.shape[dim + 1 :])), dim + 1)
    return composite(lambda a: _sum(_cut(a, dim, n, 0), dim + 1), (x,), SumsGradient(dim, old), "part_sums")


def divides(n: int, old: Any) -> bool:
    """Return whether the n parts of ``old`` elements, an int or a symbolic size, are of one length."""
    return same_size(old % n, 0)


def lengths(old: Any, n: int) -> UOp:
    """Return how many elements the n parts of ``old`` elements have."""
    place = _range(n, dtypes.int64)
    count: UOp = ((place + 1) * old + (n - 1)) // n - place * old // n
    return count


def longest_part(old: Any, n: int) -> int:
    """Return the length of the longest of n parts of ``old`` elements."""
    if divides(n, old):
        return int(old) // n
    # A part begins g, 2*g, ... n - g n-ths after an element, g = gcd(old, n): the last of these reaches farthest.
    longest: int = ceildiv(old - math.gcd(old, n), n) + 1
    return longest


@record(frozen=True)
class SumsGradient:
    """Gradient function of ``part_sums``; ``old`` is the length of the dim."""

    dim: int
    old: int

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp]:
        """Return the gradient of the input: what flows to the parts that an element belongs to is summed, too."""
        return (part_sums(materialized(grad), self.dim, self.old),)  # stored: read at many places, and maybe long


@record(frozen=True)
class PartsGradient:
    """Gradient function of ``overlapping_parts``."""

    dim: int
    n: int
    old: int

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp]:
        """Return the gradient of the input: each element gets what flows to it in the parts that it belongs to."""
        dim, n, old = self.dim, self.n, self.old
        longest, most = grad.shape[dim + 1], longest_part(n, old)
        element, step = _range(old, dtypes.int64).reshape((old, 1)), _range(most, dtypes.int64)
        part = (element * n // old + step).minimum(n - 1)
        tap = (element - part * old // n).maximum(0).minimum(longest - 1)
        flat = grad.reshape((*grad.shape[:dim], n * longest, *grad.shape[dim + 2 :]))
        taken = _take(materialized(flat), dim, part * longest + tap)
        return (_sum(_masked(taken, dim, old, n, 0), dim + 1),)


def _cut(x: UOp, dim: int, n: int, fill: Any) -> UOp:
    old: Any = x.shape[dim]
    start = _range(n, dtypes.int64).reshape((n, 1)) * old // n
    index = (start + _range(longest_part(old, n), dtypes.int64)).minimum(old - 1)
    return _masked(_take(x, dim, index), dim, n, old, fill)


def _masked(rows: UOp, dim: int, n: int, old: Any, fill: Any) -> UOp:
    """Return n rows, from ``dim`` on, with ``fill`` behind the elements that parts of ``old`` elements have."""
    is_inside = _range(rows.shape[dim + 1], dtypes.int64) < lengths(old, n).reshape((n, 1))
    rest = (1,) * (rows.ndim - dim - 2)
    return is_inside.reshape((*is_inside.shape, *rest)).where(rows, fill)


def _take(x: UOp, dim: int, index: UOp) -> UOp:
    """Return the entries of ``dim`` at the positions (n, longest), which take its place."""
    order = (dim, *(i for i in range(x.ndim) if i != dim))
    rows = gather_rows(x.permute(order), index.cast(dtypes.int32))
    return rows.permute((*range(2, dim + 2), 0, 1, *range(dim + 2, rows.ndim)))


def _sum(x: UOp, dim: int) -> UOp:
    total: UOp = x.sum(dim)
    return total


def _range(n: Any, dtype: DType) -> UOp:
    from tinygrad.uop.ops import UOp

    return UOp.arange(n, dtype=dtype)
