"""Activations, windows, pools and norms of torch.nn.functional.

In:   the methods of Tensor. Channels are dim 1, and the places of windows the last dims.
Out:  ``LayerNames``.
Why:  see ``torch_names``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.helpers import make_tuple
from tinygrad.torch_names.products import ProductNames

if TYPE_CHECKING:
    from typing import Self

    Sizes = int | Sequence[int]


class LayerNames(ProductNames):
    """Activations, windows, pools and norms."""

    __slots__ = ()

    # ---- activations -------------------------------------------------------------------------------------------------

    log_sigmoid = ProductNames.logsigmoid

    def glu(self, dim: int = -1) -> Self:
        """``a * b.sigmoid()`` with a, b = t.chunk(2, dim)."""
        a, b = self.chunk(2, dim)
        return a * b.sigmoid()

    def prelu(self, weight: Self) -> Self:
        """``(t > 0).where(t, weight * t)``, a weight for each channel of dim 1."""
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
        return (self > lambd).where(self - lambd, (self < -lambd).where(self + lambd, self * 0))

    def tanhshrink(self) -> Self:
        """``t - t.tanh()``."""
        return self - self.tanh()

    # ---- windows: conv2d and the pools take any number of dims -------------------------------------------------------

    def conv1d(
        self, weight: Self, bias: Self | None = None, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1,
        groups: int = 1,
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
        count_include_pad: bool = True,
    ) -> Self:  # fmt: skip
        """``t.avg_pool2d((k, k, k), stride, padding=padding)``."""
        return self.avg_pool2d(make_tuple(kernel_size, 3), stride, 1, padding, ceil_mode, count_include_pad)

    def _adaptive_pool(self, sizes: Sequence[int | None], reduce: Callable[[Self, int], Self]) -> Self:
        """Reduce each of the last dims to so many parts, which overlap where they do not divide it."""
        value = self
        for axis, size in enumerate(sizes, start=self.ndim - len(sizes)):
            n = value.shape[axis]
            if size is None or size == n:
                continue
            if n % size == 0:
                value = reduce(value.unflatten(axis, (size, n // size)), axis + 1)
                continue
            ends = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
            parts = [reduce(value._slice_dim(axis, a, b), axis) for a, b in ends]
            value = parts[0].stack(*parts[1:], dim=axis)
        return value

    def adaptive_avg_pool1d(self, output_size: Any) -> Self:
        """``t.avg_pool2d((n // output_size,))`` if it divides the last dim of n."""
        return self._adaptive_pool(make_tuple(output_size, 1), lambda x, axis: x.mean(axis))

    def adaptive_avg_pool2d(self, output_size: Any) -> Self:
        """``t.avg_pool2d((h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_pool(make_tuple(output_size, 2), lambda x, axis: x.mean(axis))

    def adaptive_avg_pool3d(self, output_size: Any) -> Self:
        """``t.avg_pool2d((d // output_size, h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_pool(make_tuple(output_size, 3), lambda x, axis: x.mean(axis))

    def adaptive_max_pool1d(self, output_size: Any) -> Self:
        """``t.max_pool2d((n // output_size,))`` if it divides the last dim of n."""
        return self._adaptive_pool(make_tuple(output_size, 1), lambda x, axis: x.max(axis))

    def adaptive_max_pool2d(self, output_size: Any) -> Self:
        """``t.max_pool2d((h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_pool(make_tuple(output_size, 2), lambda x, axis: x.max(axis))

    def adaptive_max_pool3d(self, output_size: Any) -> Self:
        """``t.max_pool2d((d // output_size, h // output_size, w // output_size))`` if it divides the last dims."""
        return self._adaptive_pool(make_tuple(output_size, 3), lambda x, axis: x.max(axis))

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """``t.rearrange("b (c p q) h w -> b c (h p) (w q)", p=r, q=r)``."""
        r = upscale_factor
        *batch, c, h, w = self.shape
        apart, n = self.reshape(*batch, c // (r * r), r, r, h, w), len(batch)
        turned = apart.permute([*range(n + 1), n + 3, n + 1, n + 4, n + 2])
        return turned.reshape(*batch, c // (r * r), h * r, w * r)

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """``t.rearrange("b c (h p) (w q) -> b (c p q) h w", p=r, q=r)``."""
        r = downscale_factor
        *batch, c, h, w = self.shape
        apart, n = self.reshape(*batch, c, h // r, r, w // r, r), len(batch)
        turned = apart.permute([*range(n + 1), n + 2, n + 4, n + 1, n + 3])
        return turned.reshape(*batch, c * r * r, h // r, w // r)

    def channel_shuffle(self, groups: int) -> Self:
        """``t.rearrange("b (g c) ... -> b (c g) ...", g=groups)``."""
        return self.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)

    # ---- norms and tables --------------------------------------------------------------------------------------------

    def layer_norm(
        self, normalized_shape: Sequence[int], weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """``t.layernorm(last dims, eps) * weight + bias``."""
        return self.layernorm(tuple(range(-len(normalized_shape), 0)), eps)._affine(weight, bias)

    def rms_norm(self, normalized_shape: Sequence[int], weight: Self | None = None, eps: float | None = None) -> Self:
        """``t * (t.square().mean(last dims, keepdim=True) + eps).rsqrt() * weight``."""
        axes = tuple(range(-len(normalized_shape), 0))
        small = 1.1920928955078125e-07 if eps is None else eps
        x = self.float() if self.dtype.itemsize < 4 else self
        return (x * (x.square().mean(axes, keepdim=True) + small).rsqrt()).cast(self.dtype)._affine(weight, None)

    def group_norm(
        self, num_groups: int, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """``t.reshape(b, num_groups, -1).layernorm(-1, eps).reshape(t.shape) * weight + bias``."""
        whole = self.reshape(self.shape[0], num_groups, -1).layernorm(-1, eps).reshape(self.shape)
        along = (-1, *(1,) * (self.ndim - 2))
        return whole._affine(*(None if x is None else x.reshape(along) for x in (weight, bias)))

    def embedding(self, weight: Self) -> Self:
        """``weight[t]``."""
        return weight[self]

    def _affine(self, weight: Self | None, bias: Self | None) -> Self:
        scaled = self if weight is None else self * weight
        return scaled if bias is None else scaled + bias
