"""Pooling over the trailing dims.

In:   (..., *spatial).
Out:  windows reduced by max or mean, and their inverse.
Why:  windows that do not overlap are a reshape, so their gradient is one too; that of others is stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import dtypes
from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import ceildiv, make_tuple, prod
from tinygrad.mixin.composite import CompositeShapeError
from tinygrad.mixin.conv import Pair, pads_of, per_dim
from tinygrad.mixin.hooks import check_same_device, exceeds, most_of, smax, smin, ssimplify
from tinygrad.mixin.resize import ResizeMixin
from tinygrad.mixin.window_gradient import overlapping_windows

if TYPE_CHECKING:
    Sizes = int | Sequence[int]


def _ceil_pads(
    spatial: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pads: tuple[Pair, ...],
) -> tuple[Pair, ...]:
    """Grow the padding behind so that the last, partial window counts, unless it would start in that padding."""
    grown = []
    for n, k, s, d, (before, after) in zip(spatial, kernel, stride, dilation, pads, strict=True):
        reach = d * (k - 1) + 1
        windows = smin(ceildiv(n + before + after - reach, s) + 1, ceildiv(n + before, s))
        grown.append((before, smax(after, ssimplify((windows - 1) * s + reach - n - before))))
    return tuple(grown)


class PoolMixin(ResizeMixin):
    """Pooling of Tensor and UOp."""

    __slots__ = ()

    def _pool_setup(
        self, name: str, kernel_size: Sizes, stride: Sizes | None, dilation: Sizes, padding: Sizes, ceil_mode: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[Pair, ...], tuple[Pair, ...]]:
        """Return (kernel, stride, dilation, pads as given, pads with ceil_mode), all per dim."""
        kernel = make_tuple(kernel_size, 2)
        dims = len(kernel)
        kernel = per_dim(name, "kernel_size", kernel, dims)
        steps = kernel if stride is None else per_dim(name, "stride", stride, dims)
        apart = per_dim(name, "dilation", dilation, dims)
        if self.ndim < dims:
            raise CompositeShapeError(
                error_text(
                    name,
                    f"kernel {kernel}, stride {steps}, dilation {apart} for {self.ndim} dims",
                    {"input": self},
                    rule="one number per kernel dim, and at least as many dims as the kernel",
                )
            )
        pads = pads_of(padding, dims)
        spatial = self.shape[self.ndim - dims :]
        for n, k, s, d, (before, after) in zip(spatial, kernel, steps, apart, pads, strict=True):
            room, reach = ssimplify(n + before + after), d * (k - 1) + 1
            if exceeds(1, n):
                raise CompositeShapeError(error_text(name, f"a dim of size {shown(n)}", {"input": self},
                                                     "the dims of the windows have elements"))  # fmt: skip
            # With ceil_mode a window may be longer than the input, by less than a step.
            if exceeds(reach - (s - 1 if ceil_mode else 0), room):
                raise CompositeShapeError(
                    error_text(
                        name,
                        f"kernel spans {d * (k - 1) + 1}, the padded input {shown(room)}",
                        {"input": self},
                        rule="dilation*(kernel - 1) + 1 <= size + pads",
                    )
                )
        return kernel, steps, apart, pads, _ceil_pads(spatial, kernel, steps, apart, pads) if ceil_mode else pads

    def _pool_windows(
        self,
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        dilation: tuple[int, ...],
        pads: tuple[Pair, ...],
        fill: Any,
    ) -> Self:
        lead = ((0, 0),) * (self.ndim - len(kernel))
        padded = self.pad((*lead, *pads), value=fill)
        return self._wrap_uop(overlapping_windows(padded._uop, kernel, stride, dilation))

    def _check_padding_is_small(
        self, name: str, kernel: tuple[int, ...], padding: Sizes, pads: tuple[Pair, ...]
    ) -> None:
        """Refuse padding of more than half of the kernel, as PyTorch does: windows could have no element of the input.

        Raises:
            ShapeError: It is more.
        """
        if any(max(pair) > k // 2 for pair, k in zip(pads, kernel, strict=True)):
            fault = f"padding {shown(padding)} is more than half of the kernel {kernel}"
            raise CompositeShapeError(error_text(name, fault, {"input": self}, "padding <= kernel_size // 2"))

    def _check_windows_reach_in(
        self,
        name: str,
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        dilation: tuple[int, ...],
        pads: tuple[Pair, ...],
    ) -> None:
        """Refuse windows that have no element of the input: their maximum has no index, and they have no mean.

        Raises:
            ShapeError: There is one: it begins in the padding and steps over the whole input.
        """
        spatial = self.shape[self.ndim - len(kernel) :]
        for n, k, s, d, (before, after) in zip(spatial, kernel, stride, dilation, pads, strict=True):
            last = most_of(n) + after - (d * (k - 1) + 1)
            for start in range(-before, min(0, last + 1), s):
                if exceeds(start % d + 1, n):
                    fault = f"a window over a dim of size {shown(n)} has elements of the padding only"
                    raise CompositeShapeError(error_text(name, fault, {"input": self},
                                                         "where it matters, a window has an element of the input",
                                                         "less padding or dilation"))  # fmt: skip

    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        *,
        divisor_override: int | None = None,
    ) -> Self:
        """Average windows over the trailing dims, as many as the kernel has.

        Args:
            kernel_size: Window, one number (two dims) or one per dim.
            stride: Step; the kernel size if None.
            dilation: Distance between the elements of a window.
            padding: Zeros around: one number, one per dim, or flat (before, after) pairs, last dim first.
            ceil_mode: Whether a last, partial window counts.
            count_include_pad: Whether the padding counts as elements of a window.
            divisor_override: What the sums of the windows are divided by, in place of the number of elements.

        Raises:
            ShapeError: The kernel is larger than the padded input, a dim is empty, or lengths do not fit; without
                ``count_include_pad``, the padding is more than half of the kernel or a window has nothing else.

        Example:
            >>> Tensor.arange(4).reshape(1, 1, 2, 2).float().avg_pool2d().tolist()
            [[[[1.5]]]]
        """
        kernel, steps, apart, pads, grown = self._pool_setup(
            "avg_pool2d", kernel_size, stride, dilation, padding, ceil_mode
        )
        axes = tuple(range(-len(kernel), 0))

        def windows(x: Self) -> Self:
            return x._pool_windows(kernel, steps, apart, grown, 0)

        if divisor_override is not None:
            if divisor_override == 0:
                raise ValueError("avg_pool2d: divisor_override=0; expected another number than 0")
            return windows(self)._quotient_of_sum(divisor_override, axes)
        if not count_include_pad:
            self._check_padding_is_small("avg_pool2d", kernel, padding, pads)
            self._check_windows_reach_in("avg_pool2d", kernel, steps, apart, grown)
        if all(p == (0, 0) for p in grown) or (count_include_pad and grown == pads):
            return windows(self).mean(axis=axes)
        counted = self.const_like(1, dtypes.default_float)
        if count_include_pad:
            # The padding counts, what ceil_mode added behind it does not.
            wide = counted.pad((*((0, 0),) * (self.ndim - len(kernel)), *pads), value=1)
            rest = tuple((0, g - p) for (_, p), (_, g) in zip(pads, grown, strict=True))
            count = wide._pool_windows(kernel, steps, apart, rest, 0).sum(axis=axes)
        else:
            count = windows(counted).sum(axis=axes)
        return windows(self)._quotient_of_sum(count, axes)

    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """Take the maximum of windows over the trailing dims; arguments as for ``avg_pool2d``.

        Args:
            kernel_size: Window, one number (two dims) or one per dim.
            stride: Step; the kernel size if None.
            dilation: Distance between the elements of a window.
            padding: Amounts around, filled with the smallest value of the dtype.
            ceil_mode: Whether a last, partial window counts.
            return_indices: Whether to return (values, indices) with int32 indices into the flattened spatial dims.

        Raises:
            ShapeError: The kernel is larger than the padded input, the padding more than half of the kernel, a dim is
                empty, or lengths do not fit; with ``return_indices``, a window has elements of the padding only.

        Example:
            >>> Tensor.arange(4).reshape(1, 1, 2, 2).max_pool2d().tolist()
            [[[[3]]]]
        """
        kernel, steps, apart, pads, grown = self._pool_setup(
            "max_pool2d", kernel_size, stride, dilation, padding, ceil_mode
        )
        self._check_padding_is_small("max_pool2d", kernel, padding, pads)
        axes = tuple(range(-len(kernel), 0))
        windows = self._pool_windows(kernel, steps, apart, grown, self.dtype.min)
        values = windows.max(axis=axes)
        if not return_indices:
            return values
        self._check_windows_reach_in("max_pool2d", kernel, steps, apart, grown)
        spatial = self.shape[self.ndim - len(kernel) :]
        largest = prod(spatial)
        position = type(self).arange(largest, dtype=dtypes.int32).reshape(spatial)
        positions = position._pool_windows(kernel, steps, apart, grown, largest)
        best = values.reshape((*values.shape, *(1,) * len(kernel)))
        chosen = windows.eq(best) | windows.isnan() if dtypes.is_float(self.dtype) else windows.eq(best)
        # The first maximum of a window is the one with the smallest index.
        return values, chosen.where(positions, largest).min(axis=axes).cast(dtypes.int32)

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_size: Any = None,
    ) -> Self:
        """Put values back to where ``max_pool2d(return_indices=True)`` took them from; 0 elsewhere.

        Args:
            indices: Same shape as ``self``: positions in the flattened spatial dims of the output.
            kernel_size: Of the pooling.
            stride: Of the pooling.
            dilation: Of the pooling.
            padding: Of the pooling.
            output_size: Shape of the output (its last entries count); computed from the pooling if None.

        Raises:
            ShapeError: Shapes of values and indices differ.
            DeviceError: Their devices do.
            IndexError: With CHECK_BOUNDS=1, an index is no position of the output. By default its value is left out.

        Example:
            >>> values, where = Tensor([[[[1.0, 9.0], [2.0, 3.0]]]]).max_pool2d(return_indices=True)
            >>> values.max_unpool2d(where).tolist()
            [[[[0.0, 9.0], [0.0, 0.0]]]]
        """
        if self.shape != indices.shape:
            raise ShapeError(
                error_text(
                    "max_unpool2d",
                    "values and indices have different shapes",
                    {"values": self, "indices": indices},
                    rule="equal shapes",
                )
            )
        check_same_device("max_unpool2d", self, indices)
        kernel = make_tuple(kernel_size, 2)
        dims, name = len(kernel), "max_unpool2d"
        kernel = per_dim(name, "kernel_size", kernel, dims)
        steps = kernel if stride is None else per_dim(name, "stride", stride, dims)
        apart = per_dim(name, "dilation", dilation, dims)
        pads, lead = pads_of(padding, dims), self.shape[: self.ndim - dims]
        spatial = tuple(
            (n - 1) * s - before - after + d * (k - 1) + 1
            for n, s, k, d, (before, after) in zip(self.shape[-dims:], steps, kernel, apart, pads, strict=True)
        )
        if output_size is not None:
            spatial = tuple(output_size)[-dims:]
        self._check_bounds(name, indices, 0, prod(spatial))
        flat = (*lead, prod(self.shape[-dims:]))
        empty = type(self).full((*lead, prod(spatial)), 0, dtype=self.dtype, buffer=False)
        return empty.scatter(-1, indices.reshape(flat), self.reshape(flat)).reshape((*lead, *spatial))
