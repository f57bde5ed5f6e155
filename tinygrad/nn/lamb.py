"""LAMB, and the optimisers that are cases of it: Adam and AdamW.

In:   parameters with gradients; see ``nn/optim.py`` for the life cycle of a step.
Out:  steps along the mean of the gradient over the root of its mean square.
Why:  one formula covers the three: LAMB adds a trust ratio to AdamW, and Adam adds the decay to the gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.boundary import explain_methods, explained
from tinygrad.dtype import dtypes
from tinygrad.nn.optim import Optimizer, decay_rates, require_at_least_0
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LAMB", "Adam", "AdamW"]


class LAMB(Optimizer):
    """Adam, whose rate is scaled for each parameter by the ratio of its norm to the norm of its update.

    With gradient g, decay w and step t = 1, 2, ...::

        m = b1 * m + (1 - b1) * g;      v = b2 * v + (1 - b2) * g * g
        amsgrad:                        x = max(x, v), which takes the place of v below
        u = (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + eps) + w * p
        p -= lr * r * u                 r = norm(p) / norm(u), or 1 when a norm is 0 or with adam

    The decay is decoupled, as in AdamW; with ``decoupled_weight_decay=False`` w * p is added to g instead. ``betas`` is
    another way to write (b1, b2).

    Attributes:
        m: Running mean of the gradient, one tensor for each parameter.
        v: Running mean of its square.
        v_max: Its largest value so far; empty without amsgrad.
        b1_t: b1**t, shape (1,).
        b2_t: b2**t, shape (1,).

    Raises:
        ValueError: A negative weight decay or ``eps``, or ``b1`` or ``b2`` outside [0, 1).

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
        *,
        betas: tuple[float, float] | None = None,
        amsgrad: bool = False,
        decoupled_weight_decay: bool = True,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, device, fused, maximize=maximize)
        require_at_least_0("weight_decay", weight_decay)
        require_at_least_0("eps", eps)
        b1, b2 = decay_rates(b1, b2, betas)
        self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
        # The powers are tensors and not numbers: a replayed graph has to advance them.
        self.b1_t, self.b2_t = (
            Tensor.ones(1, dtype=dtypes.float32, device=self.device).is_param_(False) for _ in (b1, b2)
        )
        self.m, self.v = self._new_state(), self._new_state()
        self.v_max = self._new_state() if amsgrad else []
        self.amsgrad, self.decoupled_weight_decay = amsgrad, decoupled_weight_decay

    def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        updates = []
        for index, (param, raw, mean, square) in enumerate(zip(params, grads, self.m, self.v, strict=True)):
            # Stored, like the gradients: state depends on the old parameter, which depends on the old state.
            is_coupled = self.wd and not self.decoupled_weight_decay
            grad = (raw + self.wd * param).contiguous() if is_coupled else raw
            new_mean = mean * self.b1 + grad * (1.0 - self.b1)
            new_square = square * self.b2 + grad * grad * (1.0 - self.b2)
            largest = self.v_max[index].maximum(new_square) if self.amsgrad else new_square
            update = new_mean / (1.0 - self.b1_t) / ((largest / (1.0 - self.b2_t)).sqrt() + self.eps)
            if self.wd and not is_coupled:
                update = update + self.wd * param
            mean.assign(new_mean.cast(mean.dtype))
            square.assign(new_square.cast(square.dtype))
            if self.amsgrad:
                self.v_max[index].assign(largest.cast(square.dtype))
            rate = self.lr.to(grad.device)
            if not self.adam:
                rate = rate * self._trust_ratio(param, update, 1.0, 0.0)
            updates.append(rate * update)
        return updates, [self.b1_t, self.b2_t, *self.m, *self.v, *self.v_max]


@explained
def Adam(  # noqa: N802  # named as the optimiser that it makes
    params: Iterable[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    device: str | tuple[str, ...] | None = None,
    fused: bool | None = None,
    *,
    weight_decay: float = 0.0,
    betas: tuple[float, float] | None = None,
    amsgrad: bool = False,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
) -> LAMB:
    """Return Adam: ``LAMB`` without the trust ratio, whose weight decay is added to the gradient, as in torch.

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
    made = LAMB(
        params, lr, b1, b2, eps, weight_decay, adam=True, device=device, fused=fused, betas=betas, amsgrad=amsgrad,
        decoupled_weight_decay=decoupled_weight_decay, maximize=maximize,
    )  # fmt: skip
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
    *,
    betas: tuple[float, float] | None = None,
    amsgrad: bool = False,
    maximize: bool = False,
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
    made = LAMB(
        params, lr, b1, b2, eps, weight_decay, adam=True, device=device, fused=fused, betas=betas, amsgrad=amsgrad,
        maximize=maximize,
    )  # fmt: skip
    made.name = "AdamW"
    return made


explain_methods(LAMB, ("__init__", "step", "schedule_step", "zero_grad"))
