"""Layers: plain classes that hold parameters and are called with a tensor.

In:   the sizes of a layer, then tensors.
Out:  tensors; each parameter is an attribute, and its name is its key in ``nn.state.get_state_dict``.
Why:  there is no base class. A layer is an object with tensors in it, and so is a model: ``nn.state`` finds
      the tensors by walking the attributes, the optimisers take them as a list.

Parameters are drawn in ``dtypes.default_float`` from the uniform distribution on [-b, b] with b = 1/sqrt(fan_in),
unless a layer says otherwise.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING

from tinygrad.boundary import explain_methods, explained
from tinygrad.dtype import dtypes
from tinygrad.errors import error_text, shown
from tinygrad.helpers import make_tuple, prod
from tinygrad.mixin.conv import named_padding, pads_of
from tinygrad.mixin.hooks import same_shape
from tinygrad.name_hints import MissingNameError
from tinygrad.nn import optim as optim, state as state
from tinygrad.nn.normalization import (
    BatchNorm,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    LayerShapeError,
    RMSNorm,
)
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from tinygrad.dtype import DType
    from tinygrad.nn import datasets as datasets

__all__ = [
    "BatchNorm", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d", "Embedding",
    "GroupNorm", "InstanceNorm", "LSTMCell", "LayerNorm", "LayerNorm2d", "Linear", "RMSNorm", "datasets", "optim",
    "state",
]  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name != "datasets":
        raise MissingNameError(__name__, name)
    # Imported when it is asked for: it needs numpy, whose import takes longer than that of all the rest.
    return importlib.import_module("tinygrad.nn.datasets")


def _uniform(shape: Sequence[int], fan_in: int) -> Tensor:
    """Draw a parameter from U(-b, b), b = 1/sqrt(fan_in); a layer without inputs has nothing to scale by: zeros."""
    if fan_in == 0:
        return Tensor.zeros(*shape)
    bound = 1 / math.sqrt(fan_in)
    return Tensor.uniform(*shape, low=-bound, high=bound)


def _check_sizes(**sizes: int) -> None:
    """Raise a ValueError for a negative size of a layer."""
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"{name}={size} is negative; expected a number of features or channels, at least 0")


class Linear:
    """Affine map of the last axis: x @ weight.T + bias.

    Attributes:
        weight: Shape (out_features, in_features), from U(1/sqrt(in_features)).
        bias: Shape (out_features,), from the same distribution, or None.

    Raises:
        ValueError: A negative size.
        RuntimeError: On the call, when the last axis of x is not ``in_features`` long.

    Example:
        >>> nn.Linear(20, 30)(Tensor.rand(128, 20)).shape
        (128, 30)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        _check_sizes(in_features=in_features, out_features=out_features)
        self.weight = _uniform((out_features, in_features), in_features)
        self.bias = _uniform((out_features,), in_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Map x of shape (..., in_features) to (..., out_features)."""
        return x.linear(self.weight.transpose(), self.bias)


class Conv2d:
    """Convolution over the axes after the second one; two of them, unless ``kernel_size`` is a tuple of another length.

    Args:
        in_channels: Length of axis 1 of the input.
        out_channels: Length of axis 1 of the output.
        kernel_size: One length for both axes, or one for each.
        stride: Step of the window, one number or one for each axis.
        padding: Zeros on both sides, one number, one for each axis, or flat (before, after) pairs, last axis first;
            or "same": as many as keep the size, the odd one behind, as in torch; or "valid": none.
        dilation: Distance between the taps of the kernel.
        groups: Number of independent parts that the channels are cut into.
        bias: Whether a value per output channel is added.
        padding_mode: What the padding is filled with: "zeros", or what is there already: "reflect", "replicate" or
            "circular", as in ``Tensor.pad``.

    Attributes:
        weight: Shape (out_channels, in_channels // groups, *kernel_size), from U(1/sqrt(in_channels * taps)).
        bias: Shape (out_channels,), from the same distribution, or None.

    Raises:
        ValueError: Another string as padding or padding mode, or "same" with a stride; a kernel without elements; a
            negative number of channels, or one that ``groups`` does not divide.
        AssertionError: On the call, when the channels do not fit.
        ShapeError: On the call, when the input is smaller than what its padding repeats of it.

    Example:
        >>> nn.Conv2d(3, 8, 5, padding="same")(Tensor.rand(1, 3, 32, 32)).shape
        (1, 8, 32, 32)
    """

    _padding_modes: tuple[str, ...] = ("zeros", "reflect", "replicate", "circular")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        _check_sizes(in_channels=in_channels, out_channels=out_channels)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups={groups} with in_channels={in_channels} and out_channels={out_channels}; "
                "expected groups >= 1 that divides both"
            )
        self.kernel_size: tuple[int, ...] = make_tuple(kernel_size, 2)
        if any(size < 1 for size in self.kernel_size):
            raise ValueError(f"kernel_size={kernel_size}; expected sizes of at least 1")
        if padding_mode not in self._padding_modes:
            raise ValueError(f"padding_mode={padding_mode!r}; expected {', '.join(map(repr, self._padding_modes))}")
        self.padding_mode = padding_mode
        self.stride, self.dilation, self.groups = stride, dilation, groups
        self.padding = self._padding_named(padding) if isinstance(padding, str) else padding
        fan_in = in_channels * prod(self.kernel_size)
        self.weight = _uniform(self._weight_shape(in_channels, out_channels), fan_in)
        self.bias = _uniform((out_channels,), fan_in) if bias else None

    def _padding_named(self, padding: str) -> tuple[int, ...]:
        stride, dilation = (make_tuple(x, len(self.kernel_size)) for x in (self.stride, self.dilation))
        return named_padding(type(self).__name__, padding, self.kernel_size, stride, dilation)

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return (out_channels, in_channels // self.groups, *self.kernel_size)

    def __call__(self, x: Tensor) -> Tensor:
        """Convolve x of shape (N, in_channels, *spatial)."""
        padding = self.padding
        if self.padding_mode != "zeros":
            pads = pads_of(padding, len(self.kernel_size))
            x, padding = x.pad((*[(0, 0)] * (x.ndim - len(pads)), *pads), mode=self.padding_mode), 0
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, padding)


@explained
def Conv1d(  # noqa: N802  # a layer like the others, though it needs no class of its own
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
    padding_mode: str = "zeros",
) -> Conv2d:
    """Return a ``Conv2d`` with a kernel of one axis, for inputs of shape (N, in_channels, length).

    Example:
        >>> nn.Conv1d(2, 4, 3)(Tensor.rand(1, 2, 10)).shape
        (1, 4, 8)
    """
    return Conv2d(in_channels, out_channels, (kernel_size,), stride, padding, dilation, groups, bias, padding_mode)


class ConvTranspose2d(Conv2d):
    """Transposed convolution: the map that takes an output of ``Conv2d`` back to the size of its input.

    Args:
        in_channels: Length of axis 1 of the input.
        out_channels: Length of axis 1 of the output.
        kernel_size: One length for both axes, or one for each.
        stride: Step between the places where the kernel is added.
        padding: What is cut off on both sides.
        output_padding: What is added behind each axis, to choose among the sizes that one stride can come from.
        dilation: Distance between the taps of the kernel.
        groups: Number of independent parts that the channels are cut into.
        bias: Whether a value per output channel is added.
        padding_mode: "zeros": here the padding is no values, but what is cut off.

    Attributes:
        weight: Shape (in_channels, out_channels // groups, *kernel_size), from U(1/sqrt(in_channels * taps)).
        bias: Shape (out_channels,), from the same distribution, or None.

    Raises:
        ValueError: As ``Conv2d``.
        AssertionError: On the call, when the channels do not fit.

    Example:
        >>> nn.ConvTranspose2d(4, 2, 3, stride=2)(Tensor.rand(1, 4, 5, 5)).shape
        (1, 2, 11, 11)
    """

    _padding_modes = ("zeros",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        output_padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode)
        self.output_padding = output_padding

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return (in_channels, out_channels // self.groups, *self.kernel_size)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the transposed convolution to x of shape (N, in_channels, *spatial)."""
        return x.conv_transpose2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding, self.output_padding
        )


@explained
def ConvTranspose1d(  # noqa: N802  # a layer like the others, though it needs no class of its own
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
    padding_mode: str = "zeros",
) -> ConvTranspose2d:
    """Return a ``ConvTranspose2d`` with a kernel of one axis, for inputs of shape (N, in_channels, length).

    Example:
        >>> nn.ConvTranspose1d(4, 2, 3, stride=2)(Tensor.rand(1, 4, 5)).shape
        (1, 2, 11)
    """
    return ConvTranspose2d(
        in_channels, out_channels, (kernel_size,), stride, padding, output_padding, dilation, groups, bias, padding_mode
    )


class Embedding:
    """Rows of a table, chosen by integers; an index outside the table, negative ones too, gives a row of zeros.

    Attributes:
        weight: Shape (vocab_size, embed_size), from ``Tensor.glorot_uniform``.

    Raises:
        TypeError: On the call, when the indices are not integers.

    Example:
        >>> nn.Embedding(100, 8)(Tensor([[1, 2, 3]])).shape
        (1, 3, 8)
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.vocab_size, self.embed_size = vocab_size, embed_size
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, idx: Tensor) -> Tensor:
        """Map indices of any shape to rows of shape (*idx.shape, embed_size)."""
        if not dtypes.is_int(idx.dtype):
            raise TypeError(f"Embedding: indices must be integers, not {idx.dtype}; use idx.cast(dtypes.int32)")
        if not dtypes.is_unsigned(idx.dtype):
            # An index of a tensor counts from the end when it is negative; here it is out of range like any other.
            # The cast makes room for vocab_size, which an int8 may not hold.
            idx = idx.cast(_at_least_int32(idx.dtype))
            idx = (idx < 0).where(self.vocab_size, idx)
        return self.weight[idx]


def _at_least_int32(dtype: DType) -> DType:
    return dtype if dtype in (dtypes.int32, dtypes.int64) else dtypes.int32


class LSTMCell:
    """One step of a long short-term memory; the four gates are stacked in the order input, forget, cell, output.

    Attributes:
        weight_ih: Shape (4 * hidden_size, input_size), from U(1/sqrt(hidden_size)).
        weight_hh: Shape (4 * hidden_size, hidden_size), from U(1/sqrt(hidden_size)).
        bias_ih: Zeros, shape (4 * hidden_size,), or None without ``bias``.
        bias_hh: Zeros, shape (4 * hidden_size,), or None without ``bias``.

    Example:
        >>> hidden, cell = nn.LSTMCell(3, 5)(Tensor.rand(2, 3))
        >>> hidden.shape, cell.shape
        ((2, 5), (2, 5))

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with the forget gate of Gers et al., 2000.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        _check_sizes(input_size=input_size, hidden_size=hidden_size)
        self.hidden_size = hidden_size
        self.weight_ih = _uniform((4 * hidden_size, input_size), hidden_size)
        self.weight_hh = _uniform((4 * hidden_size, hidden_size), hidden_size)
        self.bias_ih = Tensor.zeros(4 * hidden_size) if bias else None
        self.bias_hh = Tensor.zeros(4 * hidden_size) if bias else None

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Advance the state by x.

        Args:
            x: Shape (N, input_size).
            hc: Hidden and cell state, each of shape (N, hidden_size); zeros when None.

        Returns:
            The new (hidden, cell).

        Raises:
            ValueError: ``x`` is not two-dimensional, or ``hc`` is no pair of tensors of that shape.
        """
        if x.ndim != 2:
            raise LayerShapeError(error_text("LSTMCell", f"{x.ndim} dims", {"x": x}, "x has the shape (N, input_size)"))
        expected = x.shape[0], self.hidden_size
        # A tensor would be unpacked into its rows, and a row fits every batch.
        states: Sequence[Tensor] = (x, x) if hc is None else hc
        fits = len(states) == 2 and all(same_shape(state.shape, expected) for state in states)
        if hc is not None and not fits:
            raise LayerShapeError(
                error_text("LSTMCell", f"hc is {shown(hc)}", {"x": x}, f"hc is (hidden, cell), each {shown(expected)}")
            )
        if hc is None:
            zeros = Tensor.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            hc = (zeros, zeros)
        hidden, cell = hc
        stacked = x.linear(self.weight_ih.transpose(), self.bias_ih)
        stacked = stacked + hidden.linear(self.weight_hh.transpose(), self.bias_hh)
        i, f, g, o = stacked.chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        # The state is read several times by the next step: stored once, it is not computed again by each reader.
        return hidden.contiguous(), cell.contiguous()


for _layer in (Linear, Conv2d, ConvTranspose2d, Embedding, LSTMCell):
    explain_methods(_layer, ("__init__", "__call__"))
