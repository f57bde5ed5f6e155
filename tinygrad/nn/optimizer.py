"""What all optimisers share: the parameters, the learning rate and the life cycle of a step.

In:   parameters whose ``grad`` was filled by ``backward``.
Out:  ``schedule_step`` assigns every update lazily and returns the tensors to realize; ``step`` realizes them at once.
Why:  a step is a graph like any other, so it is scheduled with the rest and runs inside a TinyJit as it is. The
      formulas are subclasses (``nn.optim``), which see lists of tensors and not how parameters are fused or where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.boundary import explain_methods
from tinygrad.dtype import dtypes, least_upper_dtype, to_dtype
from tinygrad.errors import ArgumentError, shown
from tinygrad.helpers import FUSE_OPTIM, TRAINING, dedup, getenv
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Optimizer", "OptimizerGroup"]


class Optimizer:
    """What all optimisers share: the parameters, the learning rate and the life cycle of a step.

    A subclass defines ``_step``. With ``fused`` its lists hold one flat tensor in which all parameters lie one after
    the other; without, one entry for each parameter.

    Args:
        params: Tensors to update. Those with ``is_param`` False are buffers: they are only realized with the step.
        lr: Learning rate, at least 0.
        device: Where the state lives; the device of the first parameter when None.
        fused: Whether all parameters are updated as one flat tensor; the context variable FUSE_OPTIM when None.

    Attributes:
        params: The parameters, each once.
        buffers: The other tensors, each once.
        lr: Tensor of shape (1,), or without axes when the environment sets CONST_LR; ``lr.assign`` changes it.
        name: What users call it, in messages.
        device: Device of the state.
        fused: Whether one flat update is made.
        param_dtype: Dtype of the state, from the environment variable OPTIM_DTYPE (float32).

    Raises:
        AssertionError: No tensor to train.
        ValueError: A negative learning rate.

    Example:
        >>> class Descent(nn.optim.Optimizer):
        ...     def _step(self, params, grads):
        ...         return [g * self.lr for g in grads], []
        >>> p = Tensor([1.0, 2.0])
        >>> optimizer = Descent([p], lr=0.25)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.tolist()
        [0.5, 1.0]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        device: str | tuple[str, ...] | None = None,
        fused: bool | None = None,
    ) -> None:
        self.name = type(self).__name__
        if lr < 0:
            raise ValueError(f"the learning rate must not be negative, got {lr}")
        if isinstance(params, Tensor):  # which is an iterable of its rows
            raise ArgumentError("params is one Tensor, expected a list of them")
        given: list[Any] = list(params)
        if not all(isinstance(t, Tensor) for t in given):
            raise ArgumentError(f"params hold {shown(next(t for t in given if not isinstance(t, Tensor)))}, no Tensor")
        tensors = dedup(given)
        self.params: list[Tensor] = [t for t in tensors if t.is_param]
        self.buffers: list[Tensor] = [t for t in tensors if not t.is_param]
        if not self.params:
            raise AssertionError(f"none of the {len(tensors)} tensors has is_param set, so there is none to train")
        self.device = self.params[0].device if device is None else device
        self.fused = bool(FUSE_OPTIM.value) if fused is None else bool(fused)
        self.param_dtype = to_dtype(getenv("OPTIM_DTYPE", "float32"))
        self._sizes = [int(p.numel()) for p in self.params]
        # At least float32: a rate of 1e-4 times a small gradient vanishes in half precision.
        lr_dtype = least_upper_dtype(dtypes.default_float, dtypes.float32)
        if getenv("CONST_LR", 0):
            self.lr = Tensor(lr, dtype=lr_dtype)
        else:
            self.lr = Tensor([lr], device=self.device, dtype=lr_dtype)
        self.lr.is_param_(False)

    def _new_state(self) -> list[Tensor]:
        """Return zeros for one state variable: a flat one when fused, else one in the shape of each parameter."""
        if self.fused:
            flat = Tensor.zeros(sum(self._sizes), dtype=self.param_dtype, device=self.device)
            return [flat.is_param_(False)]
        return [self._zeros_for(p).is_param_(False) for p in self.params]

    def _zeros_for(self, param: Tensor) -> Tensor:
        if isinstance(self.device, tuple) and self.device == param.device:
            return param.zeros_like(dtype=self.param_dtype)  # keeps the sharding of the parameter
        return Tensor.zeros(*param.shape, dtype=self.param_dtype, device=self.device)

    def zero_grad(self) -> None:
        """Forget the gradients, so that the next ``backward`` does not add to them."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Update the parameters: ``schedule_step``, then one realize.

        Raises:
            RuntimeError: TRAINING is off.
            AssertionError: A parameter has no gradient.
        """
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Assign all updates without running anything.

        Returns:
            Every tensor that the step changes, to be realized: state, parameters, buffers and the learning rate.

        Raises:
            RuntimeError: TRAINING is off.
            AssertionError: A parameter has no gradient.
        """
        if not TRAINING:
            raise RuntimeError(
                f"{self.name}: TRAINING must be enabled for a step; run it within `with Context(TRAINING=1):`"
            )
        grads = [self._gradient(index, param) for index, param in enumerate(self.params)]
        params = [param.detach().to(self.device) for param in self.params]
        if self.fused:
            params, grads = [_concatenate(params)], [_concatenate(grads)]
        updates, extra = self._step(params, grads)
        if self.fused:
            updates = self._pieces(updates[0])
        for param, update in zip(self.params, updates, strict=True):
            self._apply_update(param, update)
        rate = [] if self.lr.device is None else [self.lr]
        return [*extra, *self.params, *self.buffers, *rate]

    def _gradient(self, index: int, param: Tensor) -> Tensor:
        if param.grad is None:
            raise AssertionError(
                f"{self.name}: parameter {index} of shape {param.shape} has no gradient; call backward() on "
                "a loss that depends on it, or leave it out with is_param_(False)"
            )
        # The state is kept in param_dtype, and a square of a half gradient may overflow: widen first.
        grad = param.grad.detach().to(self.device)
        return grad.cast(least_upper_dtype(grad.dtype, self.param_dtype)).contiguous()

    def _pieces(self, flat: Tensor) -> list[Tensor]:
        """Cut a flat tensor of all parameters into one tensor in the shape of each."""
        pieces = flat.split(self._sizes)
        return [piece.reshape(param.shape) for piece, param in zip(pieces, self.params, strict=True)]

    def _trust_ratio(self, param: Tensor, divisor: Tensor, scale: float, decay: float) -> Tensor:
        """Return scale * norm(p) / (norm(d) + decay * norm(p)) for each parameter, 1 where one of the norms is 0."""
        if not self.fused:
            return _ratio(param, divisor, scale, decay)
        pairs = zip(self._pieces(param), self._pieces(divisor), strict=True)
        ratios = [
            _ratio(p, d, scale, decay).reshape(1).expand(size) for (p, d), size in zip(pairs, self._sizes, strict=True)
        ]
        return _concatenate(ratios)

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return what is to be subtracted from each of ``params``, and the state tensors that were assigned."""
        raise NotImplementedError(f"{type(self).__name__} does not define _step")

    def _apply_update(self, param: Tensor, update: Tensor) -> None:
        """Assign param - update to the parameter, lazily."""
        param.assign((param.detach() - update.to(param.device)).cast(param.dtype))


class OptimizerGroup(Optimizer):
    """Several optimisers that step together, each with parameters of its own.

    Attributes:
        optimizers: The optimisers; ``group[i]`` is the i-th.
        params: The parameters of all.
        buffers: The buffers of all.

    Example:
        >>> a, b = Tensor([1.0]), Tensor([1.0])
        >>> group = nn.optim.OptimizerGroup(nn.optim.SGD([a], lr=0.5), nn.optim.SGD([b], lr=0.25))
        >>> with Context(TRAINING=1):
        ...     _ = (a + b).sum().backward()
        ...     group.step()
        >>> a.item(), b.item()
        (0.5, 0.75)
    """

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers
        self.params = [param for optimizer in optimizers for param in optimizer.params]
        self.buffers = [buffer for optimizer in optimizers for buffer in optimizer.buffers]

    def __getitem__(self, index: int) -> Optimizer:
        """Return one of the optimisers."""
        return self.optimizers[index]

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def schedule_step(self) -> list[Tensor]:
        """Assign the updates of all optimisers and return the tensors to realize."""
        return [tensor for optimizer in self.optimizers for tensor in optimizer.schedule_step()]


explain_methods(Optimizer, ("__init__", "step", "schedule_step", "zero_grad"))
explain_methods(OptimizerGroup, ("__init__", "schedule_step"))


def _concatenate(tensors: list[Tensor]) -> Tensor:
    flat = [tensor.flatten() for tensor in tensors]
    return flat[0].cat(*flat[1:]) if len(flat) > 1 else flat[0]


def _ratio(param: Tensor, divisor: Tensor, scale: float, decay: float) -> Tensor:
    param_norm = param.float().square().sum().sqrt()
    other_norm = divisor.float().square().sum().sqrt()
    both = (param_norm > 0) & (other_norm > 0)
    # The divisor is made 1 where the ratio is not used, so that no 0 / 0 is computed.
    return both.where(scale * param_norm / both.where(other_norm + decay * param_norm, 1.0), 1.0)
