"""Layers that normalise: over the batch, over groups of channels, over trailing axes, or by the root mean square.

In:   the sizes of a layer, then tensors.
Out:  tensors of the same shape, with mean 0 and variance 1 over some axes (or mean square 1), scaled and shifted.
Why:  they differ in the axes of the statistics and in what is scaled, and ``BatchNorm`` alone has a state that moves.
"""

from __future__ import annotations

from tinygrad.boundary import explain_methods
from tinygrad.dtype import dtypes
from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import TRAINING, make_tuple, prod
from tinygrad.mixin.composite import sizes_differ
from tinygrad.tensor import Tensor

__all__ = [
    "BatchNorm", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm", "LayerNorm", "LayerNorm2d", "RMSNorm",
]  # fmt: skip


class LayerShapeError(ShapeError, AssertionError):
    """An input whose shape a layer cannot take; an AssertionError too, for programs that handle that."""


class BatchNorm:
    """Normalise each channel (axis 1) over the batch and all other axes, then scale and shift it.

    With ``TRAINING`` on, the statistics are those of the batch, and the running ones move towards them:
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance; a momentum of None weighs all
    batches the same. With it off, the running ones are
    used, or those of the batch when ``track_running_stats`` is False. The moves are lazy: they are computed with the
    optimiser's step (which realizes the tensors that are no parameters), or by realizing ``running_mean`` itself.

    Attributes:
        weight: Ones, shape (sz,), or None without ``affine``.
        bias: Zeros, shape (sz,), or None without ``affine``.
        num_batches_tracked: Zero-dimensional int64; how many batches the running statistics have seen.
        running_mean: Zeros, shape (sz,); only with ``track_running_stats``.
        running_var: Ones, shape (sz,); only with ``track_running_stats``.

    Raises:
        ValueError: A negative size.
        ZeroDivisionError: In training, when a channel has one element, so that its variance is not defined.

    Example:
        >>> with Context(TRAINING=1):
        ...     print(nn.BatchNorm(1)(Tensor([[1.0], [3.0]])).numpy())
        [[-0.999995]
         [ 0.999995]]

    Source: Ioffe and Szegedy, "Batch Normalization", 2015, arXiv:1502.03167.
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float | None = 0.1,
    ) -> None:
        if sz < 0:
            raise ValueError(f"sz={sz} is negative; expected a number of channels, at least 0")
        self.eps, self.track_running_stats, self.momentum = eps, track_running_stats, momentum
        self.weight = Tensor.ones(sz) if affine else None
        self.bias = Tensor.zeros(sz) if affine else None
        self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64).is_param_(False)
        if track_running_stats:
            self.running_mean = Tensor.zeros(sz).is_param_(False)
            self.running_var = Tensor.ones(sz).is_param_(False)

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (mean, variance) of shape (sz,) that normalise x: those of the batch in training, else the running."""
        if self.track_running_stats and not TRAINING:
            return self.running_mean, self.running_var
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        mean = x.mean(axis=axes)
        centred = x - mean.reshape(1, -1, *(1,) * (x.ndim - 2))
        return mean, centred.square().mean(axis=axes)

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x of shape (N, sz, ...).

        Raises:
            LayerShapeError: Axis 1 of ``x`` has another size.
        """
        held = self.running_mean if self.track_running_stats else self.weight
        if held is not None and (x.ndim < 2 or sizes_differ(x.shape[1], held.shape[0])):
            summary = f"expected an input with {held.shape[0]} channels in axis 1, got shape {shown(x.shape)}"
            raise LayerShapeError(error_text("BatchNorm", summary, {"input": x}))
        mean, var = self.calc_stats(x)
        if self.track_running_stats and TRAINING:
            self._track(x, mean.detach(), var.detach())
        return x.batchnorm(self.weight, self.bias, mean, (var + self.eps).rsqrt())

    def _track(self, x: Tensor, mean: Tensor, var: Tensor) -> None:
        numel, channels = x.numel(), x.shape[1]
        if numel == channels:
            raise ZeroDivisionError(
                f"BatchNorm: input {shown(x.shape)} has one element per channel, whose variance is not defined; "
                "train with more than one sample"
            )
        unbiased = var * (numel / (numel - channels))
        share = (self.num_batches_tracked + 1).cast(mean.dtype).reciprocal() if self.momentum is None else self.momentum
        for running, batch in ((self.running_mean, mean), (self.running_var, unbiased)):
            moved = running * (1 - share) + batch * share
            running.assign(moved.cast(running.dtype).shard_like(running))  # channels of x may be split
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)


BatchNorm2d = BatchNorm3d = BatchNorm


class GroupNorm:
    """Normalise each sample over groups of channels (axis 1), then scale and shift each channel.

    Attributes:
        weight: Ones, shape (num_channels,), or None without ``affine``.
        bias: Zeros, shape (num_channels,), or None without ``affine``.

    Raises:
        ValueError: ``num_groups`` does not divide ``num_channels``.

    Example:
        >>> nn.GroupNorm(2, 4)(Tensor([[1.0, 3.0, 10.0, 30.0]])).numpy().round(3)
        array([[-1.,  1., -1.,  1.]], dtype=float32)

    Source: Wu and He, "Group Normalization", 2018, arXiv:1803.08494.
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        if num_groups <= 0 or num_channels % num_groups != 0:
            raise ValueError(f"GroupNorm: {num_channels} channels cannot be cut into {num_groups} groups of one size")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Tensor.ones(num_channels) if affine else None
        self.bias = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x of shape (N, num_channels, ...)."""
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            summary = f"expected an input with {self.num_channels} channels in axis 1, got shape {shown(x.shape)}"
            raise LayerShapeError(error_text(type(self).__name__, summary, {"input": x}))
        groups = x.reshape(x.shape[0], self.num_groups, prod(x.shape[1:]) // self.num_groups)
        normal = groups.layernorm(axis=-1, eps=self.eps).reshape(x.shape)
        if self.weight is None or self.bias is None:
            return normal
        per_channel = (1, -1, *(1,) * (x.ndim - 2))
        return normal * self.weight.reshape(per_channel) + self.bias.reshape(per_channel)


class InstanceNorm(GroupNorm):
    """Normalise each channel (axis 1) of each sample over its remaining axes, then scale and shift it.

    Attributes:
        weight: Ones, shape (num_features,), or None without ``affine``.
        bias: Zeros, shape (num_features,), or None without ``affine``.

    Raises:
        ValueError: On the call, when axis 1 of x is not ``num_features`` long.

    Example:
        >>> nn.InstanceNorm(2)(Tensor([[[1.0, 3.0], [10.0, 30.0]]])).numpy().round(3)
        array([[[-1.,  1.],
                [-1.,  1.]]], dtype=float32)

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016, arXiv:1607.08022.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)


class LayerNorm:
    """Normalise over the trailing axes of shape ``normalized_shape``, then scale and shift each element.

    Attributes:
        weight: Ones of shape ``normalized_shape``, or None without ``elementwise_affine``.
        bias: Zeros of shape ``normalized_shape``, or None without ``elementwise_affine``.

    Raises:
        AssertionError: On the call, when the trailing axes of x have another shape.

    Example:
        >>> nn.LayerNorm(2)(Tensor([[1.0, 3.0], [10.0, 30.0]])).numpy().round(3)
        array([[-1.,  1.],
               [-1.,  1.]], dtype=float32)

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016, arXiv:1607.06450.
    """

    def __init__(
        self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True
    ) -> None:
        self.normalized_shape: tuple[int, ...] = make_tuple(normalized_shape, 1)
        self.axis = tuple(range(-len(self.normalized_shape), 0))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Tensor.ones(*self.normalized_shape) if elementwise_affine else None
        self.bias = Tensor.zeros(*self.normalized_shape) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x of shape (..., *normalized_shape)."""
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            summary = (
                f"expected an input whose trailing axes have shape {shown(self.normalized_shape)}, "
                f"got shape {shown(x.shape)}"
            )
            raise LayerShapeError(error_text(type(self).__name__, summary, {"input": x}))
        normal = x.layernorm(axis=self.axis, eps=self.eps)
        if self.weight is None or self.bias is None:
            return normal
        return normal * self.weight + self.bias


class LayerNorm2d(LayerNorm):
    """``LayerNorm`` over the channels (axis 1) of images of shape (N, C, H, W), at each pixel.

    Example:
        >>> nn.LayerNorm2d(3)(Tensor.rand(1, 3, 4, 4)).shape
        (1, 3, 4, 4)
    """

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x of shape (N, C, H, W) over C."""
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
    """Divide each row by its root mean square, then scale it: x * rsqrt(mean(x * x) + eps) * weight.

    The quotient is computed in float32, whatever the dtype of x, and cast back before it is scaled.

    Attributes:
        weight: Ones, shape (dim,), or None without ``elementwise_affine``.

    Example:
        >>> nn.RMSNorm(2)(Tensor([[3.0, 4.0]])).numpy()
        array([[0.8485281, 1.1313708]], dtype=float32)

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.
    """

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        self.eps = eps
        self.weight = Tensor.ones(dim) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x over its last axis."""
        wide = x.float()
        normal = (wide * (wide.square().mean(axis=-1, keepdim=True) + self.eps).rsqrt()).cast(x.dtype)
        return normal if self.weight is None else normal * self.weight


for _layer in (BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, RMSNorm):
    explain_methods(_layer, ("__init__", "__call__"))
