"""Activations, windows, pools, norms and tables of torch.nn.functional.

In:   the methods of Tensor. Channels are dim 1, and the places of windows the last dims.
Out:  ``LayerNames``.
Why:  see ``torch_names``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from tinygrad.dtype import dtypes
from tinygrad.errors import error_text, shown
from tinygrad.helpers import make_tuple, prod
from tinygrad.mixin.hooks import check_parts, same_size
from tinygrad.mixin.loss import known_values
from tinygrad.torch_names.checks import (
    require_int,
    require_last_dims,
    require_number,
    require_same_shape,
    require_shape,
)
from tinygrad.torch_names.images import ImageNames

if TYPE_CHECKING:
    from typing import Self

    Sizes = int | Sequence[int]


class LayerNames(ImageNames):
    """Activations, windows, pools and norms."""

    __slots__ = ()

    # ---- activations -------------------------------------------------------------------------------------------------

    log_sigmoid = ImageNames.logsigmoid

    def glu(self, dim: int = -1) -> Self:
        """``a * b.sigmoid()`` with a, b = t.chunk(2, dim)."""
        size = self.shape[self._resolve_dim(dim, op="glu")] if self.ndim else 1
        require_shape(size % 2 == 0, "glu", f"dim {dim} has {size} elements", {"input": self}, "an even number")
        a, b = self.chunk(2, dim)
        return a * b.sigmoid()

    def prelu(self, weight: Self) -> Self:
        """``(t > 0).where(t, weight * t)``, a weight for each channel of dim 1."""
        channels = self.shape[1] if self.ndim > 1 else 1
        require_shape(weight.ndim < 2 and weight.numel() in {1, channels}, "prelu", "weights do not fit",
                      {"input": self, "weight": weight}, f"one weight, or {channels}: one a channel")  # fmt: skip
        if self.ndim > 1:
            weight = weight.reshape(-1, *(1,) * (self.ndim - 2))
        return (self > 0).where(self, weight * self)

    def threshold(self, threshold: float, value: float) -> Self:
        """``(t > threshold).where(t, value)``."""
        return (self <= threshold).where(value, self)

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """``(t.abs() > lambd).where(t, 0)``."""
        return (self.abs() <= lambd).where(0, self)

    def softshrink(self, lambd: float = 0.5) -> Self:
        """``t.sign() * (t.abs() - lambd).relu()``."""
        require_number(lambd >= 0, "softshrink", "lambd", lambd, "lambd >= 0")
        return (self > lambd).where(self - lambd, (self < -lambd).where(self + lambd, self * 0))

    def tanhshrink(self) -> Self:
        """``t - t.tanh()``."""
        return self - self.tanh()

    # ---- windows: conv2d and the pools take any number of dims -------------------------------------------------------

    def conv1d(
        self, weight: Self, bias: Self | None = None, stride: Sizes = 1, padding: Sizes | str = 0,
        dilation: Sizes = 1, groups: int = 1,
    ) -> Self:  # fmt: skip
        """``t.conv2d(weight, bias, groups, stride, dilation, padding)``."""
        return self.conv2d(weight, bias, groups, stride, dilation, padding)

    conv3d = conv1d

    def conv_transpose1d(
        self, weight: Self, bias: Self | None = None, stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0,
        groups: int = 1, dilation: Sizes = 1,
    ) -> Self:  # fmt: skip
        """``t.conv_transpose2d(weight, bias, groups, stride, dilation, padding, output_padding)``."""
        return self.conv_transpose2d(weight, bias, groups, stride, dilation, padding, output_padding)

    conv_transpose3d = conv_transpose1d

    def max_pool1d(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        """``t.max_pool2d((kernel_size,), stride, dilation, padding)``."""
        return self.max_pool2d(make_tuple(kernel_size, 1), stride, dilation, padding, ceil_mode, return_indices)

    def max_pool3d(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        """``t.max_pool2d((k, k, k), stride, dilation, padding)``."""
        return self.max_pool2d(make_tuple(kernel_size, 3), stride, dilation, padding, ceil_mode, return_indices)

    def avg_pool1d(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:  # fmt: skip
        """``t.avg_pool2d((kernel_size,), stride, padding=padding)``."""
        return self.avg_pool2d(make_tuple(kernel_size, 1), stride, 1, padding, ceil_mode, count_include_pad)

    def avg_pool3d(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Self:  # fmt: skip
        """``t.avg_pool2d((k, k, k), stride, padding=padding)``."""
        return self.avg_pool2d(make_tuple(kernel_size, 3), stride, 1, padding, ceil_mode, count_include_pad,
                               divisor_override=divisor_override)  # fmt: skip

    def _adaptive_sizes(self, sizes: Sequence[int | None]) -> tuple[int, ...]:
        """Return into how many parts to cut each of the last dims: None leaves it as it is.

        Raises:
            ShapeError: There are not enough dims, or a number is negative, or one that no program can use.
        """
        name = f"adaptive pool to {shown(tuple(sizes))}"
        require_shape(self.ndim > len(sizes), name, f"{self.ndim} dims", {"input": self},
                      f"(C, *spatial) or (N, C, *spatial), with {len(sizes)} spatial dims")  # fmt: skip
        for size in sizes:
            if size is not None:
                require_int(name, "output_size", size, 0)
                check_parts(name, size, self)
        first = self.ndim - len(sizes)
        return tuple(self.shape[first + i] if size is None else size for i, size in enumerate(sizes))

    def _adaptive_avg_pool(self, sizes: Sequence[int | None]) -> Self:
        value, counts = self, self._adaptive_sizes(sizes)
        for axis, size in enumerate(counts, start=self.ndim - len(counts)):
            if size == 0:
                value = value._slice_dim(axis, 0, 0)
            elif not same_size(size, value.shape[axis]):
                value = value._averaged(axis, size)
        return value

    def adaptive_avg_pool1d(self, output_size: Any) -> Self:
        """``t.avg_pool2d((n // output_size,))`` if it divides the last dim of n."""
        return self._adaptive_avg_pool(make_tuple(output_size, 1))

    def adaptive_avg_pool2d(self, output_size: Any) -> Self:
        """``t.avg_pool2d((h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_avg_pool(make_tuple(output_size, 2))

    def adaptive_avg_pool3d(self, output_size: Any) -> Self:
        """``t.avg_pool2d((d // output_size, h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_avg_pool(make_tuple(output_size, 3))

    def _adaptive_max_pool(self, sizes: Sequence[int | None], return_indices: bool) -> Any:
        """Return the largest values; with them, if asked for, where they were first, as ``max_pool2d`` does."""
        counts = self._adaptive_sizes(sizes)
        first, values = self.ndim - len(counts), self
        for axis, size in enumerate(counts, start=first):
            if size == 0:
                values = values._slice_dim(axis, 0, 0)
            elif not same_size(size, values.shape[axis]):
                values = values._parts(axis, size, self.dtype.min).max(axis + 1)
        if not return_indices:
            return values
        if 0 in values.shape:
            return values, values.detach().cast(dtypes.int32)
        spatial, largest = self.shape[first:], self.detach()
        places = type(self).arange(prod(spatial), dtype=dtypes.int32).reshape(spatial).expand(self.shape)
        # The last axis first: of the parts' maxima in equal rows, the one in the first row is chosen.
        for axis, size in reversed(list(enumerate(counts, start=first))):
            if not same_size(size, largest.shape[axis]):
                parts = largest._parts(axis, size, self.dtype.min)
                index = parts.argmax(axis + 1, keepdim=True)
                largest = parts.gather(axis + 1, index).squeeze(axis + 1)
                places = places._parts(axis, size).gather(axis + 1, index).squeeze(axis + 1)
        return values, places

    def adaptive_max_pool1d(self, output_size: Any, return_indices: bool = False) -> Any:
        """``t.max_pool2d((n // output_size,))`` if it divides the last dim of n."""
        return self._adaptive_max_pool(make_tuple(output_size, 1), return_indices)

    def adaptive_max_pool2d(self, output_size: Any, return_indices: bool = False) -> Any:
        """``t.max_pool2d((h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_max_pool(make_tuple(output_size, 2), return_indices)

    def adaptive_max_pool3d(self, output_size: Any, return_indices: bool = False) -> Any:
        """``t.max_pool2d((d // output_size, h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_max_pool(make_tuple(output_size, 3), return_indices)

    # ---- norms and tables --------------------------------------------------------------------------------------------

    def layer_norm(
        self, normalized_shape: Sequence[int], weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """``t.layernorm(last dims, eps) * weight + bias``."""
        require_last_dims("layer_norm", self, normalized_shape, weight=weight, bias=bias)
        return self.layernorm(tuple(range(-len(normalized_shape), 0)), eps)._affine(weight, bias)

    def rms_norm(self, normalized_shape: Sequence[int], weight: Self | None = None, eps: float | None = None) -> Self:
        """``t * (t.square().mean(last dims, keepdim=True) + eps).rsqrt() * weight``."""
        require_last_dims("rms_norm", self, normalized_shape, weight=weight)
        axes = tuple(range(-len(normalized_shape), 0))
        small = 1.1920928955078125e-07 if eps is None else eps
        x = self.float() if self.dtype.itemsize < 4 else self
        return (x * (x.square().mean(axes, keepdim=True) + small).rsqrt()).cast(self.dtype)._affine(weight, None)

    def group_norm(
        self, num_groups: int, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """``t.reshape(b, num_groups, -1).layernorm(-1, eps).reshape(t.shape) * weight + bias``."""
        require_int("group_norm", "num_groups", num_groups, 1)
        require_shape(self.ndim > 1 and self.shape[1] % num_groups == 0, "group_norm", f"{num_groups} groups",
                      {"input": self}, f"(N, C, ...) with C a multiple of {num_groups}")  # fmt: skip
        whole = (
            self
            .reshape(self.shape[0], num_groups, prod(self.shape[1:]) // num_groups)
            .layernorm(-1, eps)
            .reshape(self.shape)
        )
        along = (-1, *(1,) * (self.ndim - 2))
        return whole._affine(*(None if x is None else x.reshape(along) for x in (weight, bias)))

    def embedding(self, weight: Self, padding_idx: int | None = None) -> Self:
        """``weight[t]``; row ``padding_idx`` gets no gradient."""
        rows = weight[self]
        if padding_idx is None:
            return rows
        return self.eq(_row(weight, padding_idx, "embedding")).unsqueeze(-1).where(rows.detach(), rows)

    def embedding_bag(
        self,
        weight: Self,
        offsets: Self | None = None,
        mode: Literal["sum", "mean", "max"] = "mean",
        per_sample_weights: Self | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """``weight[t].mean(1)``: rows of a table combined for each row of t, or from each of ``offsets`` on."""
        require_number(mode in {"sum", "mean", "max"}, "embedding_bag", "mode", mode, "one of sum, mean, max")
        require_shape(self.ndim == (2 if offsets is None else 1), "embedding_bag", f"ids of {self.ndim} dims",
                      {"ids": self}, "2 dims, or 1 with offsets")  # fmt: skip
        rows, counts = weight[self], self.const_like(True, dtypes.bool)
        if per_sample_weights is not None:
            require_number(mode == "sum", "embedding_bag", "mode", mode, "sum, with per_sample_weights")
            require_same_shape("embedding_bag", ids=self, per_sample_weights=per_sample_weights)
            rows = rows * per_sample_weights.unsqueeze(-1)
        if padding_idx is not None:
            counts = self.ne(_row(weight, padding_idx, "embedding_bag"))
        if offsets is not None:
            self._check_offsets(offsets)
            # Ids of all bags for each bag: those from its offset to the next one count.
            starts = offsets.shrink_to(offsets.shape[0] - 1) if include_last_offset else offsets
            bag = (starts <= type(self).arange(self.shape[0]).unsqueeze(1)).sum(1) - 1
            counts = bag.eq(type(self).arange(starts.shape[0]).unsqueeze(1)) & counts
            rows = rows.unsqueeze(0)
        mask, found = counts.unsqueeze(-1), counts.sum(1, keepdim=True)
        if mode == "max":
            return (found > 0).where(mask.where(rows, -math.inf).max(1), 0.0).cast(weight.dtype)
        kept = mask.where(rows, 0.0)
        return (kept.sum(1) if mode == "sum" else kept._quotient_of_sum(found.maximum(1), 1)).cast(weight.dtype)

    def _check_offsets(self, offsets: Self) -> None:
        """Raise unless offsets that are few and in memory begin at 0, do not fall, and end within the ids."""
        known = known_values(offsets)
        if known and (known[0] != 0 or known[-1] > self.shape[0] or known != sorted(known)):
            rule = f"offsets begin with 0, do not fall, and are at most {self.shape[0]}, the number of ids"
            raise ValueError(error_text("embedding_bag", f"offsets are {shown(known)}", {"ids": self}, rule))

    def _affine(self, weight: Self | None, bias: Self | None) -> Self:
        scaled = self if weight is None else self * weight
        return scaled if bias is None else scaled + bias


def _row(table: Any, index: int, op: str) -> int:
    """Return the index of a row, counted from the first one."""
    count = table.shape[0]
    require_int(op, "padding_idx", index, -count)
    require_number(-count <= index < count, op, "padding_idx", index, f"a row of the table: {-count} to {count - 1}")
    return int(index % count)
