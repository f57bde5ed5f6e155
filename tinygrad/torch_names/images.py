"""Functions of images in torch.nn.functional: places of pixels, windows, and sampling along a grid.

In:   images (N, C, *spatial), blocks of windows, or grids of places in [-1, 1].
Out:  ``ImageNames``.
Why:  see ``torch_names``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.helpers import make_tuple, prod
from tinygrad.mixin.conv import pads_of, per_dim
from tinygrad.mixin.resize import cubic_weights
from tinygrad.torch_names.checks import require_int, require_number, require_shape
from tinygrad.torch_names.products import ProductNames

if TYPE_CHECKING:
    from typing import Self

    Sizes = int | Sequence[int]

_SAMPLING: Final = ("bilinear", "nearest", "bicubic")
_PADDING: Final = ("zeros", "border", "reflection")


class ImageNames(ProductNames):
    """Places of pixels, windows, and sampling along a grid."""

    __slots__ = ()

    # ---- places of pixels --------------------------------------------------------------------------------------------

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """``t.rearrange("b (c p q) h w -> b c (h p) (w q)", p=r, q=r)``."""
        r = upscale_factor
        require_int("pixel_shuffle", "upscale_factor", r, 1)
        require_shape(self.ndim >= 3 and self.shape[-3] % (r * r) == 0, "pixel_shuffle", f"factor {r}",
                      {"input": self}, f"(..., C, H, W) with C a multiple of {r * r}")  # fmt: skip
        *batch, c, h, w = self.shape
        apart, n = self.reshape(*batch, c // (r * r), r, r, h, w), len(batch)
        turned = apart.permute([*range(n + 1), n + 3, n + 1, n + 4, n + 2])
        return turned.reshape(*batch, c // (r * r), h * r, w * r)

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """``t.rearrange("b c (h p) (w q) -> b (c p q) h w", p=r, q=r)``."""
        r = downscale_factor
        require_int("pixel_unshuffle", "downscale_factor", r, 1)
        require_shape(self.ndim >= 3 and self.shape[-1] % r == self.shape[-2] % r == 0, "pixel_unshuffle",
                      f"factor {r}", {"input": self}, f"(..., C, H, W) with H and W multiples of {r}")  # fmt: skip
        *batch, c, h, w = self.shape
        apart, n = self.reshape(*batch, c, h // r, r, w // r, r), len(batch)
        turned = apart.permute([*range(n + 1), n + 2, n + 4, n + 1, n + 3])
        return turned.reshape(*batch, c * r * r, h // r, w // r)

    def channel_shuffle(self, groups: int) -> Self:
        """``t.rearrange("b (g c) ... -> b (c g) ...", g=groups)``."""
        require_int("channel_shuffle", "groups", groups, 1)
        require_shape(self.ndim >= 3 and self.shape[1] % groups == 0, "channel_shuffle", f"{groups} groups",
                      {"input": self}, f"(N, C, ...) with C a multiple of {groups}")  # fmt: skip
        return self.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)

    # ---- windows -----------------------------------------------------------------------------------------------------

    def fold(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> Self:
        """The image whose windows add up to the columns of t, (N, C * h * w, number of windows): adds overlaps."""
        kernel, apart, steps = (
            per_dim("fold", name, make_tuple(value, 2), 2)
            for name, value in (("kernel_size", kernel_size), ("dilation", dilation), ("stride", stride))
        )
        size, pads = per_dim("fold", "output_size", make_tuple(output_size, 2), 2), pads_of(padding, 2)
        counts = [
            (n + before + after - d * (k - 1) - 1) // s + 1
            for n, k, d, s, (before, after) in zip(size, kernel, apart, steps, pads, strict=True)
        ]
        taps = prod(kernel)
        require_shape(self.ndim in {2, 3} and self.shape[-2] % taps == 0 and self.shape[-1] == prod(counts), "fold",
                      f"windows of {kernel} in {size}, {counts[0]} by {counts[1]}", {"columns": self},
                      f"(N, a multiple of {taps}, {prod(counts)})")  # fmt: skip
        batch, channels = (self.shape[0] if self.ndim == 3 else 1), self.shape[-2] // taps
        columns = self.reshape(batch, channels, *kernel, *counts).permute(0, 1, 4, 5, 2, 3)
        # The gradient of cutting windows adds them up; nothing reads the values of the image that is cut.
        image = type(self).empty(batch, channels, *size, dtype=self.dtype, device=self.device)
        windows = image.pad(((0, 0), (0, 0), *pads))._pool(kernel, steps, apart)
        (folded,) = windows.gradient(image, gradient=columns)
        return folded if self.ndim == 3 else folded.squeeze(0)

    def im2col(
        self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> Self:  # fmt: skip
        """The windows of an image (N, C, H, W) as columns, (N, C * h * w, number of windows): F.unfold of torch."""
        kernel, apart, steps = (
            per_dim("im2col", name, make_tuple(value, 2), 2)
            for name, value in (("kernel_size", kernel_size), ("dilation", dilation), ("stride", stride))
        )
        image, pads = (self if self.ndim == 4 else self.unsqueeze(0)), pads_of(padding, 2)
        spans = [d * (k - 1) + 1 - sum(pad) for k, d, pad in zip(kernel, apart, pads, strict=True)]
        require_shape(self.ndim in {3, 4} and all(n >= span for n, span in zip(image.shape[2:], spans, strict=True)),
                      "im2col", f"windows of {kernel}", {"image": self},
                      "(N, C, H, W) or (C, H, W), padded at least as large as a window")  # fmt: skip
        windows = image.pad(((0, 0), (0, 0), *pads))._pool(kernel, steps, apart).permute(0, 1, 4, 5, 2, 3)
        columns = windows.flatten(4, 5).flatten(1, 3)
        return columns if self.ndim == 4 else columns.squeeze(0)

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def affine_grid(self, size: Sequence[int], align_corners: bool = False) -> Self:
        """Places for ``grid_sample``: the matrices t, (N, 2, 3), times (x, y, 1) of the pixels of an (N, C, H, W)."""
        dims = len(size) - 2
        require_shape(dims in {2, 3} and tuple(self.shape) == (size[0], dims, dims + 1), "affine_grid",
                      f"size {tuple(size)}", {"theta": self}, "theta (N, 2, 3) with a size (N, C, H, W), or (N, 3, 4) "
                      "with (N, C, D, H, W)")  # fmt: skip
        for n in size:
            require_int("affine_grid", "size", n, 1)
        spatial, axes = tuple(size[2:]), []
        for i, n in enumerate(spatial):
            places = (type(self).arange(n, dtype=least_upper_dtype(self.dtype, dtypes.float32)) * 2 - (n - 1)) / (
                max(n - 1, 1) if align_corners else n
            )
            axes.append(places.reshape([-1 if i == j else 1 for j in range(dims)]).expand(spatial))
        points = axes[-1].stack(*axes[-2::-1], axes[0].const_like(1.0), dim=-1)
        flat = points.reshape(1, -1, dims + 1).cast(self.dtype) @ self.transpose(1, 2)
        return flat.reshape(size[0], *spatial, dims)

    def grid_sample(
        self,
        grid: Self,
        mode: Literal["bilinear", "nearest", "bicubic"] = "bilinear",
        padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
        align_corners: bool = False,
    ) -> Self:
        """Values of t, (N, C, H, W), at the places (x, y) of ``grid``, (N, h, w, 2): -1 and 1 are its edges."""
        dims = self.ndim - 2
        for name, value, known in (("mode", mode, _SAMPLING), ("padding_mode", padding_mode, _PADDING)):
            require_number(value in known, "grid_sample", name, value, f"one of {', '.join(known)}")
        require_shape(dims in {2, 3} and grid.ndim == self.ndim and grid.shape[0] == self.shape[0] and
                      grid.shape[-1] == dims and (dims == 2 or mode != "bicubic"), "grid_sample", f"mode {mode!r}",
                      {"input": self, "grid": grid}, "(N, C, H, W) with a grid (N, h, w, 2), or, but for bicubic, "
                      "(N, C, D, H, W) with (N, d, h, w, 3)")  # fmt: skip
        axes = []
        for i, n in enumerate(self.shape[2:]):
            x = grid.select(-1, dims - 1 - i)  # the last number is the first spatial dim
            place = (x + 1) * ((n - 1) / 2) if align_corners else ((x + 1) * n - 1) / 2
            axes.append(_taps(place, n, mode, padding_mode, align_corners))
        flat = self.flatten(2)
        total: Any = None
        for taps in itertools.product(*axes):
            index, weight = taps[0]
            for n, (at, share) in zip(self.shape[3:], taps[1:], strict=True):
                index, weight = index * n + at, weight * share
            where = index.reshape(index.shape[0], 1, -1).expand(*flat.shape[:2], prod(index.shape[1:]))
            found = flat.gather(2, where).reshape(*flat.shape[:2], *index.shape[1:])
            part = found * weight.unsqueeze(1).cast(self.dtype)
            total = part if total is None else total + part
        sampled: Self = total
        return sampled


def _taps(place: Any, n: int, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Any, Any]]:
    """Return (index, weight) of the elements of one dim that the value at ``place`` is made of."""
    if mode == "bicubic":
        low = place.floor()
        weights: tuple[Any, ...] = cubic_weights(place - low)
        steps = [low.detach() + step for step in (-1, 0, 1, 2)]
        inside = [_inside(step, n, padding_mode, align_corners) for step in steps]
    else:
        place = _inside(place, n, padding_mode, align_corners)
        low = (place.round() if mode == "nearest" else place.floor()).detach()
        inside = [low] if mode == "nearest" else [low, low + 1]
        weights = (place.const_like(1.0),) if mode == "nearest" else (low + 1 - place, place - low)
    taps = []
    for at, weight in zip(inside, weights, strict=True):
        is_there = (at >= 0) & (at <= n - 1)
        # A place that is no number has no value, also outside of the image.
        known = weight.isnan().where(math.nan, is_there.where(weight, 0.0))
        taps.append((is_there.where(at, 0.0).cast(dtypes.int32), known))
    return taps


def _inside(place: Any, n: int, padding_mode: str, align_corners: bool) -> Any:
    """Return places that padding moves into the image: to its edge, or mirrored at it."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        # Mirrors stand at the centres of the outer pixels, or at their outer edges.
        first, span = (0.0, n - 1) if align_corners else (-0.5, n)
        if span == 0:
            return place * 0
        away = (place - first).abs()
        turns = (away / span).floor().detach()
        rest = away - turns * span
        place = (turns % 2).eq(0).where(rest, span - rest) + first
    # On the bounds the value has a kink: there, and beyond, the gradient of the place is 0. NaN is at the first bound.
    is_between = (place > 0) & (place < n - 1)
    return is_between.where(place, (place > 0).where(float(n - 1), 0.0))
