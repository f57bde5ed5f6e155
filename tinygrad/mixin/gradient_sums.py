"""Sums of the gradients that reach one node.

In:   the gradients, nodes of one shape.
Out:  one node.
Why:  gradients of slices that lie beside each other are joined, where adding them would write the whole each time; and
      a balanced tree keeps sums of many shallow.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_FEWEST_SLICES = 4  # gradients of fewer slices are added


def joined_slices(values: list[UOp]) -> list[UOp]:
    """Join gradients of slices that do not overlap, which are paddings along one axis, into one value.

    The rows of a sequence that a loop reads one by one would otherwise each give a gradient of the whole size to add.
    """
    slices: dict[int, list[tuple[int, int, UOp]]] = {}
    others: list[UOp] = []
    for value in values:
        found = _padded_axis(value)
        if found is None:
            others.append(value)
        else:
            axis, before, end = found
            slices.setdefault(axis, []).append((before, end, value))
    for axis, parts in slices.items():
        parts.sort(key=lambda part: part[:2])
        disjoint = all(a[1] <= b[0] for a, b in itertools.pairwise(parts))
        if len(parts) < _FEWEST_SLICES or not disjoint:
            others += [value for _, _, value in parts]
        else:
            others.append(_join_slices(axis, parts))
    return others


def _padded_axis(value: UOp) -> tuple[int, int, int] | None:
    """Return (axis, begin, end of what is not padding) if ``value`` is zero-padded along exactly one axis."""
    if value.op is not Ops.PAD or len(value.src) > 1:
        return None
    axes = [i for i, pair in enumerate(value.marg) if pair != (0, 0)]
    if len(axes) != 1:
        return None
    before, size = value.marg[axes[0]][0], value.src[0].shape[axes[0]]
    return (axes[0], before, before + size) if isinstance(size, int) else None


def _join_slices(axis: int, parts: list[tuple[int, int, UOp]]) -> UOp:
    whole = parts[0][2]
    size = whole.shape[axis]
    assert isinstance(size, int)
    pieces: list[UOp] = []

    def fill(begin: int, end: int) -> None:
        if begin < end:
            shape = tuple(end - begin if i == axis else s for i, s in enumerate(whole.shape))
            pieces.append(whole.const(0, whole.dtype)._broadcast_to(shape))

    position = 0
    for begin, end, value in parts:
        fill(position, begin)
        pieces.append(value.src[0])
        position = end
    fill(position, size)
    return pieces[0].cat(*pieces[1:], dim=axis)


def add_all(values: Sequence[UOp]) -> UOp:
    """Return the sum of the nodes as a balanced tree, so that its depth stays small."""
    level = list(values)
    while len(level) > 1:
        level = [level[i] + level[i + 1] if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]
