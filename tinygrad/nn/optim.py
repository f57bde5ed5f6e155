"""Optimisers: the formulas by which parameters move along their gradients.

In:   parameters and gradients, as lists that ``Optimizer`` prepared; the state of the step before.
Out:  what is subtracted from each parameter, and the state tensors that were assigned, all of it lazy.
Why:  the new state and the new parameter are expressions over the old ones, so one kernel can write m, v and p of a
      parameter. Gradients, which may still be expressions over the parameter, are stored first: state that is computed
      from the old parameter, and a parameter that is computed from the old state, would wait for each other.

Two families cover all: ``LARS`` (with ``SGD`` and ``Muon``) moves along the gradient or its running sum, ``LAMB`` (with
``Adam`` and ``AdamW``) along the mean of the gradient over the root of its mean square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tinygrad.boundary import explain_methods, explained
from tinygrad.dtype import dtypes
from tinygrad.name_hints import MissingNameError
from tinygrad.nn.optimizer import Optimizer, OptimizerGroup
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Muon", "Optimizer", "OptimizerGroup"]


def __getattr__(name: str) -> NoReturn:
    raise MissingNameError(__name__, name)


class LARS(Optimizer):
    """Gradient descent with momentum, whose rate is scaled for each parameter by the ratio of its norms.

    With gradient g, decay w and r = tcoef * norm(p) / (norm(g) + w * norm(p)), or 1 when tcoef or a norm is 0::

        pre_wd:            g += w * p
        classic:           g *= r * lr
        momentum:          b = momentum * b + g;  g = g + momentum * b if nesterov else b
        ns_coefficients:   g = newton_schulz(g as a matrix)
        not classic:       g *= r * lr
        not pre_wd:        g += w * lr * p
        p -= g

    Attributes:
        b: Running sum of the gradients, one tensor for each parameter; empty without momentum.

    Raises:
        ValueError: A negative momentum.
        AssertionError: Newton-Schulz on parameters that are fused into one.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.LARS([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy()
        array([ 0.9999,  1.9998, -2.9997], dtype=float32)

    Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017, arXiv:1708.03888.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        ns_steps: int = 0,
        ns_coefficients: Sequence[float] | None = None,
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
        device: str | tuple[str, ...] | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, device, fused)
        if momentum < 0:
            raise ValueError(f"momentum must not be negative, got {momentum}")
        if self.fused and ns_coefficients is not None:
            raise AssertionError("Newton-Schulz works on the matrix of each parameter, so it cannot be fused")
        self.momentum, self.wd, self.nesterov, self.classic = momentum, weight_decay, nesterov, classic
        self.pre_wd, self.tcoef = pre_wd, tcoef
        self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
        self.b = self._new_state() if momentum else []

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        updates = []
        for index, (param, raw) in enumerate(zip(params, grads, strict=True)):
            rate = self.lr.to(raw.device)
            if self.tcoef != 0:
                rate = rate * self._trust_ratio(param, raw, self.tcoef, self.wd)
            # Stored, like the gradients: the sum depends on the old parameter, which depends on the old sum.
            grad = (raw + self.wd * param).contiguous() if self.pre_wd and self.wd else raw
            if self.classic:
                grad = grad * rate
            if self.momentum:
                grad = self._accumulate(self.b[index], grad)
            if self.ns_coefficients is not None:
                matrix = grad.reshape(grad.shape[0], -1)
                grad = _newton_schulz(matrix, self.ns_steps, self.ns_coefficients).reshape(grad.shape)
            if not self.classic:
                grad = grad * rate
            if self.wd and not self.pre_wd:
                grad = grad + self.wd * self.lr.to(raw.device) * param
            updates.append(grad)
        return updates, self.b

    def _accumulate(self, state: Tensor, grad: Tensor) -> Tensor:
        """Add the gradient to the running sum, lazily, and return the direction to move in."""
        total = state * self.momentum + grad
        state.assign(total.cast(state.dtype))
        return grad + total * self.momentum if self.nesterov else total


@explained
def SGD(  # noqa: N802  # named as the optimiser that it makes
    params: Iterable[Tensor],
    lr: float = 0.001,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    classic: bool = False,
    device: str | tuple[str, ...] | None = None,
    fused: bool | None = None,
) -> LARS:
    """Return stochastic gradient descent: ``LARS`` without the trust ratio.

    With ``classic`` the gradient is scaled by the rate before it is added to the momentum, as in the paper; without,
    the sum is scaled, as in torch. They differ once the rate changes.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.SGD([p], lr=0.25)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.tolist()
        [0.5, 1.0, -1.5]

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013.
    """
    made = LARS(
        params,
        lr,
        momentum,
        weight_decay,
        0,
        None,
        nesterov,
        classic,
        pre_wd=True,
        tcoef=0.0,
        device=device,
        fused=fused,
    )
    made.name = "SGD"
    return made


@explained
def Muon(  # noqa: N802  # named as the optimiser that it makes
    params: Iterable[Tensor],
    lr: float = 0.001,
    momentum: float = 0.95,
    weight_decay: float = 0.1,
    ns_steps: int = 5,
    ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315),
    nesterov: bool = True,
    device: str | tuple[str, ...] | None = None,
    fused: bool | None = None,
) -> LARS:
    """Return Muon: momentum whose matrix is made orthogonal by Newton-Schulz, with the decay after it.

    Example:
        >>> p = Tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> optimizer = nn.optim.Muon([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy().round(2)
        array([[1.91, 0.  ],
               [0.  , 0.88]], dtype=float32)

    Source: K. Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024.
    """
    made = LARS(
        params,
        lr,
        momentum,
        weight_decay,
        ns_steps,
        ns_coefficients,
        nesterov,
        classic=False,
        pre_wd=False,
        tcoef=0.0,
        device=device,
        fused=fused,
    )
    made.name = "Muon"
    return made


class LAMB(Optimizer):
    """Adam, whose rate is scaled for each parameter by the ratio of its norm to the norm of its update.

    With gradient g, decay w and step t = 1, 2, ...::

        m = b1 * m + (1 - b1) * g;      v = b2 * v + (1 - b2) * g * g
        u = (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + eps) + w * p
        p -= lr * r * u                 r = norm(p) / norm(u), or 1 when a norm is 0 or with adam

    Attributes:
        m: Running mean of the gradient, one tensor for each parameter.
        v: Running mean of its square.
        b1_t: b1**t, shape (1,).
        b2_t: b2**t, shape (1,).

    Raises:
        ValueError: A negative weight decay.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.LAMB([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy()
        array([ 0.78397536,  1.7839754 , -2.7839754 ], dtype=float32)

    Source: You et al., "Large Batch Optimization for Deep Learning", 2019, arXiv:1904.00962.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        device: str | tuple[str, ...] | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, device, fused)
        if weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {weight_decay}")
        self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
        # The powers are tensors and not numbers: a replayed graph has to advance them.
        self.b1_t, self.b2_t = (
            Tensor.ones(1, dtype=dtypes.float32, device=self.device).is_param_(False) for _ in (b1, b2)
        )
        self.m, self.v = self._new_state(), self._new_state()

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        updates = []
        for param, grad, mean, square in zip(params, grads, self.m, self.v, strict=True):
            new_mean = mean * self.b1 + grad * (1.0 - self.b1)
            new_square = square * self.b2 + grad * grad * (1.0 - self.b2)
            update = new_mean / (1.0 - self.b1_t) / ((new_square / (1.0 - self.b2_t)).sqrt() + self.eps)
            if self.wd:
                update = update + self.wd * param
            mean.assign(new_mean.cast(mean.dtype))
            square.assign(new_square.cast(square.dtype))
            rate = self.lr.to(grad.device)
            if not self.adam:
                rate = rate * self._trust_ratio(param, update, 1.0, 0.0)
            updates.append(rate * update)
        return updates, [self.b1_t, self.b2_t, *self.m, *self.v]


@explained
def Adam(  # noqa: N802  # named as the optimiser that it makes
    params: Iterable[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    device: str | tuple[str, ...] | None = None,
    fused: bool | None = None,
) -> LAMB:
    """Return Adam: ``LAMB`` without the trust ratio and without weight decay.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.Adam([p], lr=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy()
        array([ 0.9000007,  1.9000007, -2.9000006], dtype=float32)

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014, arXiv:1412.6980.
    """
    made = LAMB(params, lr, b1, b2, eps, 0.0, adam=True, device=device, fused=fused)
    made.name = "Adam"
    return made


@explained
def AdamW(  # noqa: N802  # named as the optimiser that it makes
    params: Iterable[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    device: str | tuple[str, ...] | None = None,
    fused: bool | None = None,
) -> LAMB:
    """Return Adam with decoupled weight decay: ``LAMB`` without the trust ratio.

    Example:
        >>> p = Tensor([1.0, 2.0, -3.0])
        >>> optimizer = nn.optim.AdamW([p], lr=0.1, weight_decay=0.1)
        >>> with Context(TRAINING=1):
        ...     _ = (p * p).sum().backward()
        ...     optimizer.step()
        >>> p.numpy()
        array([ 0.89000064,  1.8800007 , -2.8700006 ], dtype=float32)

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2017, arXiv:1711.05101.
    """
    made = LAMB(params, lr, b1, b2, eps, weight_decay, adam=True, device=device, fused=fused)
    made.name = "AdamW"
    return made


for _optimizer in (LARS, LAMB):
    explain_methods(_optimizer, ("__init__", "step", "schedule_step", "zero_grad"))


def _newton_schulz(matrix: Tensor, steps: int, coefficients: Sequence[float], eps: float = 1e-7) -> Tensor:
    """Move the singular values of a matrix towards 1, by an odd polynomial that is applied ``steps`` times.

    One step takes X to c0 * X + c1 * (X X^T) X + c2 * (X X^T)^2 X + ..., which acts on each singular value alone.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.transpose() if tall else matrix  # X X^T is the smaller of the two products then
    x = x / (x.square().sum().sqrt() + eps)
    for _ in range(steps):
        gram = x @ x.transpose()
        power, total = x, x * coefficients[0]
        for coefficient in coefficients[1:]:
            power = gram @ power
            total = total + power * coefficient
        x = total
    return x.transpose() if tall else x
