"""Optimisers that scale each element of a gradient by what its own history was: Adagrad and what followed it.

In:   parameters with gradients; see ``nn/optim.py`` for the life cycle of a step.
Out:  Adagrad, Adadelta, RMSprop, Adamax, NAdam and RAdam. Adam itself is a case of ``LAMB``.
Why:  each is one formula between the same few running means. Names of arguments and defaults are those of torch, but
      for the decay rates of the Adam family, which are ``b1`` and ``b2`` as in ``nn.optim.Adam``.

The formulas are written for a gradient g, to which ``weight_decay`` * p was added before, and the step t = 1, 2, ...
With ``decoupled_weight_decay`` it is added to the update, as AdamW does; with ``maximize`` steps go along the gradient.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tinygrad.boundary import explain_methods
from tinygrad.dtype import dtypes
from tinygrad.nn.optim import Optimizer, decay_rates
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    Device = str | tuple[str, ...] | None

__all__ = ["Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop"]

_WARM_UP: Final = 0.96  # by which the momentum of NAdam nears b1, to the power t * momentum_decay


class _Adaptive(Optimizer):
    """What these optimisers share: the step counter, the decay of weights, and state that is listed once.

    A subclass names its state in ``_state``, and gives the update of one parameter in ``_update``.

    Attributes:
        t: Number of steps so far, float32 of shape (1,).
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, weight_decay: float, device: Device, fused: bool | None,
        maximize: bool, decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, device, fused, maximize=maximize)
        _require_not_negative(weight_decay=weight_decay)
        self.wd, self.decoupled_weight_decay = weight_decay, decoupled_weight_decay
        # A tensor and not a number: a replayed graph has to advance it.
        self.t = Tensor.zeros(1, dtype=dtypes.float32, device=self.device).is_param_(False)
        self._state: list[list[Tensor]] = []

    def _add_state(self, initial: float = 0.0) -> list[Tensor]:
        state = [(t + initial).is_param_(False) for t in self._new_state()] if initial else self._new_state()
        self._state.append(state)
        return state

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        self.t.assign(self.t + 1)
        self._begin_step()
        updates = []
        for index, (param, raw) in enumerate(zip(params, grads, strict=True)):
            # Stored, like the gradients: state depends on the old parameter, which depends on the old state.
            is_coupled = self.wd and not self.decoupled_weight_decay
            grad = (raw + self.wd * param).contiguous() if is_coupled else raw
            update = self._update(index, grad)
            if self.wd and not is_coupled:
                update = update + self.wd * param
            updates.append(self.lr.to(grad.device) * update)
        return updates, [self.t, *self._shared_state(), *(t for state in self._state for t in state)]

    def _begin_step(self) -> None:
        """Advance what all parameters share."""

    def _shared_state(self) -> list[Tensor]:
        """Return the tensors that ``_begin_step`` assigns."""
        return []

    def _update(self, index: int, grad: Tensor) -> Tensor:
        """Return the direction to move a parameter against, in units of the learning rate; assigns its state."""
        raise NotImplementedError(f"{type(self).__name__} does not define _update")


class Adagrad(_Adaptive):
    """Gradient descent by the gradient over the root of the sum of all its squares so far.

        s += g * g;      p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    Attributes:
        s: Sum of the squares, one tensor for each parameter.

    Raises:
        ValueError: A negative argument.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.Adagrad([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy()
        array([ 0.9,  1.9, -2.9], dtype=float32)

    Source: Duchi, Hazan and Singer, "Adaptive Subgradient Methods", 2011, jmlr.org/papers/v12/duchi11a.html.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.01, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, device: Device = None, fused: bool | None = None,
        *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, weight_decay, device, fused, maximize)
        _require_not_negative(lr_decay=lr_decay, initial_accumulator_value=initial_accumulator_value, eps=eps)
        self.lr_decay, self.eps = lr_decay, eps
        self.s = self._add_state(initial_accumulator_value)

    def _update(self, index: int, grad: Tensor) -> Tensor:
        total = self.s[index] + grad * grad
        self.s[index].assign(total.cast(self.s[index].dtype))
        step = grad / (total.sqrt() + self.eps)
        return step / (1.0 + (self.t - 1.0) * self.lr_decay) if self.lr_decay else step


class Adadelta(_Adaptive):
    """Gradient descent in steps of the size of the last ones, without a unit that a learning rate would have to set.

        v = rho * v + (1 - rho) * g * g
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d * d;      p -= lr * d

    Attributes:
        v: Running mean of the squared gradient, one tensor for each parameter.
        u: Running mean of the squared step.

    Raises:
        ValueError: A negative argument, or ``rho`` above 1.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.Adadelta([p], lr=100.0)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy().round(3)
        array([ 0.684,  1.684, -2.684], dtype=float32)

    Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012, arXiv:1212.5701.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0.0, device: Device = None, fused: bool | None = None, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, weight_decay, device, fused, maximize)
        _require_not_negative(eps=eps)
        if not 0 <= rho <= 1:
            raise ValueError(f"rho must be in [0, 1], got {rho}")
        self.rho, self.eps = rho, eps
        self.v, self.u = self._add_state(), self._add_state()

    def _update(self, index: int, grad: Tensor) -> Tensor:
        square = _mean(self.v[index], grad * grad, self.rho)
        step = (self.u[index] + self.eps).sqrt() / (square + self.eps).sqrt() * grad
        _mean(self.u[index], step * step, self.rho)
        return step


class RMSprop(_Adaptive):
    """Gradient descent by the gradient over the root of its mean square.

        v = alpha * v + (1 - alpha) * g * g
        m = alpha * m + (1 - alpha) * g;      v - m * m takes the place of v below if centered
        d = g / (sqrt(v) + eps)
        b = momentum * b + d;      p -= lr * b, or lr * d without momentum

    Attributes:
        v: Running mean of the squared gradient, one tensor for each parameter.
        m: Running mean of the gradient; empty unless centered.
        b: Running sum of the steps; empty without momentum.

    Raises:
        ValueError: A negative argument.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.RMSprop([p], lr=0.01)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy()
        array([ 0.9,  1.9, -2.9], dtype=float32)

    Source: Hinton, Srivastava and Swersky, "Neural Networks for Machine Learning", lecture 6, 2012; the centered form:
    Graves, "Generating Sequences With Recurrent Neural Networks", 2013, arXiv:1308.0850.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, device: Device = None,
        fused: bool | None = None, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, weight_decay, device, fused, maximize)
        _require_not_negative(alpha=alpha, eps=eps, momentum=momentum)
        self.alpha, self.eps, self.momentum, self.centered = alpha, eps, momentum, centered
        self.v = self._add_state()
        self.m = self._add_state() if centered else []
        self.b = self._add_state() if momentum else []

    def _update(self, index: int, grad: Tensor) -> Tensor:
        square = _mean(self.v[index], grad * grad, self.alpha)
        if self.centered:
            mean = _mean(self.m[index], grad, self.alpha)
            square = square - mean * mean
        step = grad / (square.sqrt() + self.eps)
        if not self.momentum:
            return step
        total = self.b[index] * self.momentum + step
        self.b[index].assign(total.cast(self.b[index].dtype))
        return total


class _Moments(_Adaptive):
    """What Adam's relatives share: the decay rates b1 and b2, and the running means that they weigh.

    Attributes:
        m: Running mean of the gradient, one tensor for each parameter.
        v: Running mean of its square, or for Adamax its largest size.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, b1: float, b2: float, eps: float, weight_decay: float,
        device: Device, fused: bool | None, maximize: bool, betas: tuple[float, float] | None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, weight_decay, device, fused, maximize, decoupled_weight_decay)
        _require_not_negative(eps=eps)
        b1, b2 = decay_rates(b1, b2, betas)
        self.b1, self.b2, self.eps = b1, b2, eps
        self.m, self.v = self._add_state(), self._add_state()

    def _bias(self, decay: float) -> Tensor:
        """Return 1 - decay**t, exact where the power is close to 1."""
        return (self.t * math.log(decay)).expm1() * -1 if decay else self.t.const_like(1.0)


class Adamax(_Moments):
    """Adam with the largest gradient so far, which fades, in place of the root of the mean square.

        m = b1 * m + (1 - b1) * g;      v = max(b2 * v, abs(g) + eps);      p -= lr / (1 - b1**t) * m / v

    Raises:
        ValueError: A negative argument, or ``b1`` or ``b2`` outside [0, 1).

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.Adamax([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy().round(4)
        array([ 0.9,  1.9, -2.9], dtype=float32)

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", section 7, 2014, arXiv:1412.6980.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.002, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
        weight_decay: float = 0.0, device: Device = None, fused: bool | None = None, *,
        betas: tuple[float, float] | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, b1, b2, eps, weight_decay, device, fused, maximize, betas)

    def _update(self, index: int, grad: Tensor) -> Tensor:
        mean, largest = _mean(self.m[index], grad, self.b1), self.v[index]
        size = (largest * self.b2).maximum(grad.abs() + self.eps)
        largest.assign(size.cast(largest.dtype))
        return mean / size / self._bias(self.b1)


class NAdam(_Moments):
    """Adam that looks ahead as Nesterov's momentum does, with a momentum that grows towards b1.

        c(t) = b1 * (1 - 0.96 ** (t * momentum_decay) / 2);      k = c(1) * ... * c(t)
        m = b1 * m + (1 - b1) * g;      v = b2 * v + (1 - b2) * g * g
        u = c(t + 1) * m / (1 - k * c(t + 1)) + (1 - c(t)) * g / (1 - k)
        p -= lr * u / (sqrt(v / (1 - b2**t)) + eps)

    Attributes:
        k: Product of the momenta so far, shape (1,).

    Raises:
        ValueError: A negative argument, or ``b1`` or ``b2`` outside [0, 1).

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.NAdam([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy().round(4)
        array([ 0.8944,  1.8944, -2.8944], dtype=float32)

    Source: Dozat, "Incorporating Nesterov Momentum into Adam", 2016, openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.002, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum_decay: float = 0.004, device: Device = None, fused: bool | None = None,
        *, betas: tuple[float, float] | None = None, decoupled_weight_decay: bool = False, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, b1, b2, eps, weight_decay, device, fused, maximize, betas, decoupled_weight_decay)
        _require_not_negative(momentum_decay=momentum_decay)
        self.momentum_decay = momentum_decay
        self.k = Tensor.ones(1, dtype=dtypes.float32, device=self.device).is_param_(False)

    def _momentum(self, t: Tensor) -> Tensor:
        return self.b1 * (1.0 - 0.5 * (t * (self.momentum_decay * math.log(_WARM_UP))).exp())

    def _begin_step(self) -> None:
        self.k.assign(self.k * self._momentum(self.t))

    def _shared_state(self) -> list[Tensor]:
        return [self.k]

    def _update(self, index: int, grad: Tensor) -> Tensor:
        mean, square = _mean(self.m[index], grad, self.b1), _mean(self.v[index], grad * grad, self.b2)
        now, then = self._momentum(self.t), self._momentum(self.t + 1.0)
        ahead = then / (1.0 - self.k * then) * mean + (1.0 - now) / (1.0 - self.k) * grad
        return ahead / ((square / self._bias(self.b2)).sqrt() + self.eps)


class RAdam(_Moments):
    """Adam that waits until the mean square is known well enough, and moves along the mean gradient until then.

        m = b1 * m + (1 - b1) * g;      v = b2 * v + (1 - b2) * g * g
        n = 2 / (1 - b2) - 1;      n(t) = n - 2 * t * b2**t / (1 - b2**t)
        r = sqrt((n(t) - 4) * (n(t) - 2) * n / ((n - 4) * (n - 2) * n(t)))
        u = r * sqrt(1 - b2**t) / (sqrt(v) + eps) if n(t) > 5, else 1;      p -= lr * u * m / (1 - b1**t)

    Raises:
        ValueError: A negative argument, or ``b1`` or ``b2`` outside [0, 1).

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.RAdam([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy().round(4)
        array([ 0.8,  1.6, -2.4], dtype=float32)

    Source: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2019, arXiv:1908.03265.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.001, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
        weight_decay: float = 0.0, device: Device = None, fused: bool | None = None,
        *, betas: tuple[float, float] | None = None, decoupled_weight_decay: bool = False, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, b1, b2, eps, weight_decay, device, fused, maximize, betas, decoupled_weight_decay)

    def _update(self, index: int, grad: Tensor) -> Tensor:
        mean, square = _mean(self.m[index], grad, self.b1), _mean(self.v[index], grad * grad, self.b2)
        bias = self._bias(self.b2)
        most = 2.0 / (1.0 - self.b2) - 1.0
        if most <= 5.0:  # then it never is known
            return mean / self._bias(self.b1)
        known = most - 2.0 * self.t * (1.0 - bias) / bias
        is_known = known > 5.0
        # Where it is not known, the root of a negative number would be NaN.
        enough = is_known.where(known, 6.0)
        rectified = ((enough - 4.0) * (enough - 2.0) / enough * (most / ((most - 4.0) * (most - 2.0)))).sqrt()
        scale = is_known.where(rectified * bias.sqrt() / (square.sqrt() + self.eps), 1.0)
        return mean / self._bias(self.b1) * scale


for _optimizer in (Adagrad, Adadelta, RMSprop, Adamax, NAdam, RAdam):
    explain_methods(_optimizer, ("__init__",))


def _mean(state: Tensor, value: Tensor, decay: float) -> Tensor:
    """Move a running mean towards a value, lazily, and return the new mean."""
    mean = state * decay + value * (1.0 - decay)
    state.assign(mean.cast(state.dtype))
    return mean


def _require_not_negative(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number >= 0:
            raise ValueError(f"{name} must not be negative, got {number}")
