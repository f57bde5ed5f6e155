"""Resizing of the trailing dims.

In:   (..., *spatial), and new sizes or factors.
Out:  nearest, linear or cubic resampling, or means of areas.
Why:  dim by dim, each new place reads a few old ones: gathers with weights, so that gradients scatter. Where whole
      places repeat there is nothing to gather: a view, whose gradient is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError, error_text, shown
from tinygrad.mixin.composite import CompositeShapeError
from tinygrad.mixin.hooks import hint_to_pad, known_size, ssimplify
from tinygrad.mixin.index import IndexMixin
from tinygrad.mixin.parts import divides, lengths, overlapping_parts, part_sums

if TYPE_CHECKING:
    Factors = float | Sequence[float]

# Mode -> (how one dim is resampled, number of dims that it is for; 0 for any).
_MODES = {
    "linear": ("linear", 0), "bilinear": ("linear", 2), "trilinear": ("linear", 3), "bicubic": ("cubic", 2),
    "nearest": ("nearest", 0), "nearest-exact": ("nearest-exact", 0), "area": ("area", 0),
}  # fmt: skip
_CUBIC = -0.75  # slope of the cubic kernel at 1, as torch has it


def cubic_weights(part: Any) -> tuple[Any, Any, Any, Any]:
    """Return the weights of the elements at -1, 0, 1, 2 for a place ``part`` of the way from 0 to 1.

    Source: Keys, "Cubic convolution interpolation for digital image processing", 1981,
    doi.org/10.1109/TASSP.1981.1163711.
    """

    def near(x: Any) -> Any:  # 0 <= x <= 1
        return ((x * (_CUBIC + 2)) - (_CUBIC + 3)) * x * x + 1

    def far(x: Any) -> Any:  # 1 <= x <= 2
        return ((x * _CUBIC - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    return far(part + 1), near(part), near(1 - part), far(2 - part)


def _whole_factor(old: Any, n: Any, ratio: float, method: str) -> int:
    """Return how often each place is repeated where a dim of ``old`` places becomes one of n by repeating, else 0."""
    if not (isinstance(old, int) and isinstance(n, int)) or n % old or ratio * (n // old) != 1:
        return 0
    # Rounded, a place of "nearest" may lie below the whole number that it is, but not where steps are powers of two.
    times = n // old
    return times if method == "nearest-exact" or times & (times - 1) == 0 else 0


class ResizeMixin(IndexMixin):
    """Resizing of Tensor and UOp."""

    __slots__ = ()

    def interpolate(
        self,
        size: Sequence[int] | None = None,
        mode: str = "linear",
        align_corners: bool = False,
        *,
        scale_factor: Factors | None = None,
    ) -> Self:
        """Resize the last ``len(size)`` dims.

        Args:
            size: New sizes.
            mode: ``linear`` (``bilinear``, ``trilinear`` for 2 and 3 sizes), ``bicubic`` for 2, ``nearest``,
                ``nearest-exact``, or ``area``: the mean of all that a new place covers, in whole or in part.
            align_corners: With ``linear`` and ``bicubic``: the first and last samples coincide with those of the input.
            scale_factor: In place of ``size``: factors of the sizes, or one for all dims after the second one. As in
                torch, places are computed from the factors, not from the sizes that they are rounded down to.

        Raises:
            ShapeError: ``size`` is no tuple or list, has more sizes than dims, or one that is not positive; or not just
                one of ``size`` and ``scale_factor``; or a dim to resize is empty.
            AssertionError: Another mode, or ``align_corners`` without ``linear`` or ``bicubic``.

        Example:
            >>> Tensor([[[0.0, 1.0]]]).interpolate((4,)).tolist()
            [[[0.0, 0.25, 0.75, 1.0]]]
            >>> Tensor([[[0.0, 1.0]]]).interpolate(scale_factor=2, mode="nearest").tolist()
            [[[0.0, 0.0, 1.0, 1.0]]]
        """
        sizes, ratios = self._new_sizes(size, scale_factor)
        method, dims = _MODES.get(mode, ("", 0))
        if not method or dims not in {0, len(sizes)} or (align_corners and method not in {"linear", "cubic"}):
            raise AssertionError(
                f"interpolate: mode {mode!r}, align_corners={align_corners} for {len(sizes)} sizes; expected one of "
                f"{', '.join(_MODES)} (two for bilinear and bicubic, three for trilinear), and align_corners with the "
                "linear and cubic ones only"
            )
        if any(known_size(n) == 0 for n in self.shape[self.ndim - len(sizes) :]):
            fault = "a dim to resize has no elements"
            raise CompositeShapeError(error_text("interpolate", fault, {"input": self}, "sizes of at least 1"))
        x = self if method.startswith("nearest") or dtypes.is_float(self.dtype) else self.cast(dtypes.default_float)
        for i, (n, ratio) in enumerate(zip(sizes, ratios, strict=True)):
            dim = self.ndim - len(sizes) + i
            x = x._averaged(dim, n) if method == "area" else x._resize(dim, n, ratio, method, align_corners)
        return x.cast(self.dtype)

    def _new_sizes(self, size: Any, factor: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the new sizes of the last dims, and the distance of new places in old ones."""
        if factor is not None and size is None:
            factors = tuple(factor) if isinstance(factor, (tuple, list)) else (factor,) * (self.ndim - 2)
            if not all(isinstance(f, (int, float)) for f in factors):
                raise ArgumentError(error_text("interpolate", f"scale_factor is {shown(factor)}", {"input": self},
                                               "a number, or a tuple of numbers"))  # fmt: skip
            old = self.shape[self.ndim - len(factors) :] if len(factors) <= self.ndim else ()
            sizes = tuple(self._scaled_size(n, f) for n, f in zip(old, factors, strict=False))
            ratios = tuple(1 / f if f > 0 else 0.0 for f in factors)
        else:
            sizes = tuple(size) if isinstance(size, (tuple, list)) and factor is None else ()
            ratios = tuple(n / max(m, 1) for n, m in zip(self.shape[self.ndim - len(sizes) :], sizes, strict=False))
        known = [known_size(n) for n in sizes]
        if not 0 < len(sizes) <= self.ndim or any(n is not None and n <= 0 for n in known):
            raise CompositeShapeError(
                error_text(
                    "interpolate",
                    f"size {size}, scale_factor {factor} for {self.ndim} dims",
                    {"input": self},
                    rule="one of the two: a tuple of 1 to ndim positive sizes, or factors of them",
                )
            )
        return sizes, ratios

    def _scaled_size(self, size: Any, factor: float) -> Any:
        """Return a size times a factor, rounded down.

        Raises:
            ShapeError: The size is symbolic, and the factor no integer.
        """
        if isinstance(size, int):
            return int(size * factor)
        if factor != int(factor):
            raise CompositeShapeError(
                error_text("interpolate", f"scale_factor {factor} of the symbolic size {shown(size)}", {"input": self},
                           "an integer factor of a symbolic size, or sizes", hint_to_pad(self.shape))
            )  # fmt: skip
        return ssimplify(size * int(factor))

    def _averaged(self, dim: int, n: int) -> Self:
        """Return the means of the n parts of a dim."""
        old = self.shape[dim]
        if divides(n, old):
            return self.unflatten(dim, (n, old // n)).mean(dim + 1)
        wide = self.cast(least_upper_dtype(self.dtype, dtypes.float32))
        sums, counts = self._wrap_uop(part_sums(wide._uop, dim, n)), self._wrap_uop(lengths(old, n))
        means = sums / counts.cast(dtypes.default_float).reshape(n, *(1,) * (self.ndim - dim - 1))
        return means.cast(self.dtype if dtypes.is_float(self.dtype) else dtypes.default_float)

    def _parts(self, dim: int, n: int, fill: Any = 0) -> Self:
        """Cut a dim into n parts of about the same length, which overlap where n does not divide it.

        Shorter ones end in ``fill``; dim + 1 is in the parts.
        """
        old = self.shape[dim]
        if divides(n, old):
            return self.unflatten(dim, (n, old // n))
        return self._wrap_uop(overlapping_parts(self._uop, dim, n, fill))

    def _resize(self, dim: int, n: int, ratio: float, method: str, align_corners: bool) -> Self:
        old = self.shape[dim]
        along = (1,) * dim + (n,) + (1,) * (self.ndim - dim - 1)
        precise = dtypes.float64 if self.dtype == dtypes.float64 else dtypes.float32
        index = type(self).arange(n, dtype=precise)
        if method.startswith("nearest"):
            times = _whole_factor(old, n, ratio, method)
            if times:
                return self.repeat_interleave(times, dim)
            shifted = index + 0.5 if method == "nearest-exact" else index
            nearest = (shifted * ratio).cast(dtypes.int32).minimum(old - 1)
            return self._take(nearest, dim)
        place = index * ((old - 1) / (n - 1) if n > 1 else 0.0) if align_corners else (index + 0.5) * ratio - 0.5
        if method == "cubic":
            low = place.floor()
            weights = cubic_weights((place - low).cast(self.dtype).reshape(along))
            at = [(low.cast(dtypes.int32) + step).maximum(0).minimum(old - 1) for step in (-1, 0, 1, 2)]
            first, *rest = (self._take(i, dim) * w for i, w in zip(at, weights, strict=True))
            summed: Self = sum(rest, start=first)
            return summed
        place = place.maximum(0.0).minimum(old - 1.0)
        low = place.cast(dtypes.int32)
        high = (low + 1).minimum(old - 1)
        weight = (place - low.cast(precise)).cast(self.dtype).reshape(along)
        first, second = self._take(low, dim), self._take(high, dim)
        return first + (second - first) * weight
