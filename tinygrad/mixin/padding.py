"""Padding: with a value, or with what is there already (reflected, repeated, wrapped around).

In:   a tensor and, per dim, how many elements to add before and after; negative amounts crop.
Out:  the padded tensor. A PAD node fills with 0; everything else is built from it and from views.
Why:  all that is not PAD is index arithmetic, which fuses into whatever reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tinygrad.dtype import dtypes
from tinygrad.dtype_lattice import require_fit
from tinygrad.errors import error_text, shown
from tinygrad.helpers import ceildiv, flat_to_grouped
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.mixin.views import ViewMixin

X = TypeVar("X", bound="ViewMixin")


def pad(x: X, padding: Sequence[Any], mode: str = "constant", value: Any = 0.0) -> X:
    """Pad or crop; see ``ViewMixin.pad``."""
    if mode not in {"constant", "reflect", "replicate", "circular"}:
        raise NotImplementedError(f"pad: mode {mode!r}; expected constant, reflect, replicate or circular")
    pads = _pairs(x, padding)
    if dtypes.is_int(x.dtype) and isinstance(value, float) and not math.isfinite(value):
        kind = OverflowError if math.isinf(value) else ValueError
        raise kind(error_text("pad", f"value {value} is no integer", {"tensor": x}, hint="pad a tensor of floats"))
    require_fit("pad", value, x.dtype)
    if mode != "constant":
        return _pad_by_copying(x, pads, mode)
    cropped = x
    if any(isinstance(p, int) and p < 0 for pair in pads for p in pair):
        cropped = x.shrink([
            (-min(b, 0), s + min(e, 0)) for (b, e), s in zip(pads, x.shape, strict=True)
        ])  # fmt: skip
        pads = tuple((max(b, 0), max(e, 0)) for b, e in pads)
    return pad_constant(cropped, pads, value)


def pad_constant(x: X, pads: tuple[tuple[Any, Any], ...], value: Any) -> X:
    """Pad with one value; amounts are not negative."""
    if all(isinstance(b, int) and isinstance(e, int) and b == 0 == e for b, e in pads):
        return x
    padded = x._mop(Ops.PAD, pads)
    if isinstance(value, (int, float)) and value == 0:
        return padded
    # PAD fills with 0, so another value is selected by a mask that is padded with False.
    inside = x.const_like(True, dtypes.bool)._mop(Ops.PAD, pads)
    return inside.where(padded, x.ufix(value).cast(x.dtype))


def _pairs(x: ViewMixin, padding: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """Return (before, after) of every dim."""
    if isinstance(padding, str):
        raise TypeError(
            error_text("pad", f"padding is the str {padding!r}", {"tensor": x}, "numbers, or pairs of them")
        )
    padding = tuple(padding)
    if any(p is None or isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != x.ndim:
            raise x._movement_error("pad", f"{len(padding)} pairs for {x.ndim} dims", "one pair (or None) per dim")
        return tuple((0, 0) if p is None else (p[0], p[1]) for p in padding)
    if len(padding) % 2 != 0 or len(padding) > 2 * x.ndim:
        raise x._movement_error("pad", f"flat padding {shown(padding)} has {len(padding)} numbers",
                                   f"an even number of at most {2 * x.ndim}")  # fmt: skip
    return ((0, 0),) * (x.ndim - len(padding) // 2) + flat_to_grouped(padding)


def _pad_by_copying(x: X, pads: tuple[tuple[Any, Any], ...], mode: str) -> X:
    symbolic = [n for n, pair in zip(x.shape, pads, strict=True) if pair != (0, 0) and not isinstance(n, int)]
    if symbolic:
        raise AssertionError(
            error_text("pad", f"mode {mode} needs a static shape where it pads, not {shown(tuple(symbolic))}",
                       {"tensor": x}, hint="cat the slices that it would copy, such as x[:1].cat(x)")
        )  # fmt: skip
    result = x
    padded = [dim for dim, pair in enumerate(pads) if any(pair)]
    # Dims that end empty come first: of the others, nothing is read then.
    for dim in sorted(padded, key=lambda dim: bool(x.shape[dim] + sum(pads[dim]))):
        result = _pad_dim(result, dim, *pads[dim], mode)
    return result


def _pad_dim(x: X, dim: int, before: int, after: int, mode: str) -> X:
    crop_before, crop_after, before, after = max(-before, 0), max(-after, 0), max(before, 0), max(after, 0)
    size = x.shape[dim]
    limit = {"reflect": size - 1, "circular": size, "replicate": max(before, after) if size else 0}[mode]
    if before > limit or after > limit:
        raise x._movement_error("pad", f"padding ({before}, {after}) of dim {dim} is too large for mode {mode}",
                                   f"at most {limit}")  # fmt: skip
    if mode == "circular" and (crop_before or crop_after):
        return _pad_cropped(x, dim, (crop_before, before), (crop_after, after))

    if mode == "circular":
        left, right = x._slice_dim(dim, size - before, size), x._slice_dim(dim, 0, after)
    elif mode == "reflect":
        left = x._slice_dim(dim, 1, 1 + before).flip(dim)
        right = x._slice_dim(dim, size - 1 - after, size - 1).flip(dim)
    else:
        keep = [-1] * x.ndim
        left = x._slice_dim(dim, 0, 1).expand([*keep[:dim], before, *keep[dim + 1 :]])
        right = x._slice_dim(dim, size - 1, size).expand([*keep[:dim], after, *keep[dim + 1 :]])
    parts = [p for p in (left, x, right) if p.shape[dim] != 0]
    joined = parts[0].cat(*parts[1:], dim=dim) if len(parts) > 1 else x
    return joined._slice_dim(dim, crop_before, joined.shape[dim] - crop_after)


def _pad_cropped(x: X, dim: int, front: tuple[int, int], back: tuple[int, int]) -> X:
    """Crop, then wrap around what is left, as often as it takes: what is cropped does not come round again.

    Args:
        x: The tensor.
        dim: The dim.
        front: How many elements are cropped before it, and how many added.
        back: The same behind it.

    Raises:
        ShapeError: More is cropped than there is, or nothing is left that could come round.
    """
    size = x.shape[dim]
    left = size - front[0] - back[0]
    total = left + front[1] + back[1]
    shape = [*x.shape[:dim], total, *x.shape[dim + 1 :]]
    if total >= 0 and 0 in shape:
        return x.flatten()._slice_dim(0, 0, 0).reshape(shape)
    if left <= 0:
        fault = f"({front[0]}, {back[0]}) elements are cropped of dim {dim}, which has {size}"
        raise x._movement_error("pad", fault, "something is left to come round in mode circular")
    start = -front[1] % left
    rounds, outer, inner = ceildiv(start + total, left), x.shape[:dim], x.shape[dim + 1 :]
    once = x._slice_dim(dim, front[0], front[0] + left).reshape((*outer, 1, left, *inner))
    several = once.expand((*outer, rounds, left, *inner)).reshape((*outer, rounds * left, *inner))
    return several._slice_dim(dim, start, start + total)
