"""Optimisers: from the gradients of parameters to lazy in-place updates of the parameters.

In:   parameters whose ``grad`` was filled by ``backward``.
Out:  ``schedule_step`` assigns every update lazily and returns the tensors to realize; ``step`` realizes them at once.
Why:  a step is a graph like any other, so it is scheduled with the rest and runs inside a TinyJit as it is. The new
      state and the new parameter are expressions over the old ones, so one kernel can write m, v and p of a parameter.
      Gradients, which may still be expressions over the parameter, are stored first: state that is computed from the
      old parameter, and a parameter that is computed from the old state, would wait for each other.

``LARS`` (with ``SGD`` and ``Muon``), defined here, moves along the gradient or its running sum; ``lamb`` and
``adaptive`` have the optimisers that know the size of each element's gradients.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tinygrad.boundary import explain_methods, explained
from tinygrad.dtype import dtypes, least_upper_dtype, to_dtype
from tinygrad.errors import ArgumentError, DTypeError, shown
from tinygrad.helpers import FUSE_OPTIM, TRAINING, dedup, getenv
from tinygrad.name_hints import MissingNameError
from tinygrad.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tinygrad.nn.adaptive import Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop
    from tinygrad.nn.lamb import LAMB, Adam, AdamW

__all__ = [
    "LAMB", "LARS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "OptimizerGroup", "RAdam", "RMSprop",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:  # one of those that build on the classes here
        module = "lamb" if name in ("LAMB", "Adam", "AdamW") else "adaptive"
        globals()[name] = found = getattr(importlib.import_module(f"tinygrad.nn.{module}"), name)
        return found
    raise MissingNameError(__name__, name)


def require_at_least_0(name: str, value: float) -> None:
    """Raise a ValueError for a negative number or NaN."""
    if not value >= 0:
        raise ValueError(f"{name} must not be {'negative' if value < 0 else 'NaN'}, got {value}")


_DECAYS = (0.9, 0.999)  # of all optimisers that take betas


def decay_rates(b1: float, b2: float, betas: Sequence[float] | None) -> tuple[float, float]:
    """Return the decay rates of running means, which may be given as the pair ``betas``.

    Raises:
        TypeError: They are given both ways, and differ.
        ValueError: Not two of them, or one outside [0, 1).
    """
    if betas is not None:
        if len(betas) != 2:
            raise ValueError(f"betas must be two numbers, got {shown(betas)}")
        if (b1, b2) not in {_DECAYS, tuple(betas)}:
            what = f"b1 and b2 are {b1} and {b2}, and betas, another name of both, is {shown(betas)}"
            raise TypeError(f"{what}; say one of them")
        b1, b2 = betas
    for name, decay in (("b1", b1), ("b2", b2)):
        if not 0 <= decay < 1:
            raise ValueError(f"{name} must be in [0, 1), got {decay}")
    return b1, b2


class Optimizer:
    """What all optimisers share: the parameters, the learning rate and the life cycle of a step.

    A subclass defines ``_step``. With ``fused`` its lists hold one flat tensor in which all parameters lie one after
    the other; without, one entry for each parameter.

    Args:
        params: Tensors to update. Those with ``is_param`` False are buffers: they are only realized with the step.
            A float constant such as ``Tensor(1.0)`` gets storage, so compute with it only afterwards.
        lr: Learning rate, at least 0.
        device: Where the state lives; the device of the first parameter when None.
        fused: Whether all parameters are updated as one flat tensor; the context variable FUSE_OPTIM when None.
        maximize: Whether the loss is to grow: steps go along the gradient, not against it. All optimisers have it.

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
        DTypeError: A parameter holds no floats.
        ValueError: A learning rate that is negative or NaN.

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
        *,
        maximize: bool = False,
    ) -> None:
        self.name, self.maximize = type(self).__name__, maximize
        require_at_least_0("the learning rate", lr)
        if isinstance(params, Tensor):  # which is an iterable of its rows
            raise ArgumentError("params is one Tensor, expected a list of them")
        given: list[Any] = list(params)
        if not all(isinstance(t, Tensor) for t in given):
            wrong = next(t for t in given if not isinstance(t, Tensor))
            groups = "; make an optimiser for each group of options, and OptimizerGroup(first, second) of them"
            raise ArgumentError(f"params hold {shown(wrong)}, no Tensor{groups if isinstance(wrong, dict) else ''}")
        tensors = dedup(given)
        self.params: list[Tensor] = [t for t in tensors if t.is_param]
        self.buffers: list[Tensor] = [t for t in tensors if not t.is_param]
        whole = next((t for t in self.params if not dtypes.is_float(t.dtype)), None)
        if whole is not None:
            raise DTypeError(f"a parameter of dtype {whole.dtype} has no gradient; expected floats, or "
                             "buffers, which .is_param_(False) makes")  # fmt: skip
        if not self.params:
            raise AssertionError(f"none of the {len(tensors)} tensors has is_param set, so there is none to train")
        for param in self.params:
            param._give_storage()
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
        """Return zeros for one state variable: flat when fused, else in the shape of each parameter, (1,) for ()."""
        if self.fused:
            flat = Tensor.zeros(sum(self._sizes), dtype=self.param_dtype, device=self.device)
            return [flat.is_param_(False)]
        return [self._zeros_for(p).is_param_(False) for p in self.params]

    def _zeros_for(self, param: Tensor) -> Tensor:
        if isinstance(self.device, tuple) and self.device == param.device and param.ndim:
            return param.zeros_like(dtype=self.param_dtype)  # keeps the sharding of the parameter
        return Tensor.zeros(*(param.shape or (1,)), dtype=self.param_dtype, device=self.device)

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
        params = [_with_dims(param.detach().to(self.device)) for param in self.params]
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
                "a loss that depends on it, before what lies between them is realized or read, or leave it out with "
                "is_param_(False)"
            )
        # The state is kept in param_dtype, and a square of a half gradient may overflow: widen first.
        grad = param.grad.detach().to(self.device)
        grad = _with_dims(grad.cast(least_upper_dtype(grad.dtype, self.param_dtype)))
        return (grad * -1 if self.maximize else grad).contiguous()

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
        """Return what is to be subtracted from each of ``params``, and the state tensors that were assigned.

        Single numbers come in the shape (1,), which the learning rate has.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define _step")

    def _apply_update(self, param: Tensor, update: Tensor) -> None:
        """Assign param - update to the parameter, lazily."""
        update = update.to(param.device).reshape(param.shape)
        param.assign((param.detach() - update).cast(param.dtype))


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


class LARS(Optimizer):
    """Gradient descent with momentum, whose rate is scaled for each parameter by the ratio of its norms.

    With gradient g, decay w and r = tcoef * norm(p) / (norm(g) + w * norm(p)), or 1 when tcoef or a norm is 0::

        pre_wd:            g += w * p
        classic:           g *= r * lr
        momentum:          b = momentum * b + (1 - dampening) * g, or g in the first step
                           g = g + momentum * b if nesterov else b
        ns_coefficients:   g = newton_schulz(g as a matrix)
        not classic:       g *= r * lr
        not pre_wd:        g += w * lr * p
        p -= g

    Attributes:
        b: Running sum of the gradients, one tensor for each parameter; empty without momentum.

    Raises:
        ValueError: A negative momentum, or dampening together with nesterov.
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
        *,
        dampening: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, device, fused, maximize=maximize)
        require_at_least_0("momentum", momentum)
        require_at_least_0("weight_decay", weight_decay)
        if nesterov and dampening:
            raise ValueError(f"nesterov with dampening={dampening}; expected no dampening")
        if self.fused and ns_coefficients is not None:
            raise AssertionError("Newton-Schulz works on the matrix of each parameter, so it cannot be fused")
        self.momentum, self.wd, self.nesterov, self.classic = momentum, weight_decay, nesterov, classic
        self.pre_wd, self.tcoef = pre_wd, tcoef
        self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
        self.b = self._new_state() if momentum else []
        # The first gradient is not damped. What it counts is a tensor: a replayed graph has to change it.
        self.dampening = dampening
        first = Tensor.ones(1, dtype=dtypes.float32, device=self.device).is_param_(False)
        self._share = [first] if momentum and dampening else []

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
        for share in self._share:
            share.assign(share.full_like(1.0 - self.dampening))
        return updates, [*self.b, *self._share]

    def _accumulate(self, state: Tensor, grad: Tensor) -> Tensor:
        """Add the gradient to the running sum, lazily, and return the direction to move in."""
        total = state * self.momentum + (grad * self._share[0].to(grad.device) if self._share else grad)
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
    *,
    dampening: float = 0.0,
    maximize: bool = False,
) -> LARS:
    """Return stochastic gradient descent: ``LARS`` without the trust ratio.

    With ``classic`` the gradient is scaled by the rate before it is added to the momentum, as in the paper; without,
    the sum is scaled, as in torch. They differ once the rate changes.

    Raises:
        ValueError: As for ``LARS``, and nesterov without momentum.

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
    if nesterov and not momentum:
        raise ValueError(f"nesterov with momentum={momentum}; it looks ahead along the momentum, expected one above 0")
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
        dampening=dampening,
        maximize=maximize,
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
    *,
    maximize: bool = False,
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
        maximize=maximize,
    )
    made.name = "Muon"
    return made


for _optimizer in (Optimizer, LARS):
    explain_methods(_optimizer, ("__init__", "step", "schedule_step", "zero_grad"))
explain_methods(OptimizerGroup, ("__init__", "schedule_step"))


def _with_dims(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim else tensor.reshape(1)


def _concatenate(tensors: list[Tensor]) -> Tensor:
    flat = [tensor.flatten() for tensor in tensors]
    return flat[0].cat(*flat[1:]) if len(flat) > 1 else flat[0]


def _ratio(param: Tensor, divisor: Tensor, scale: float, decay: float) -> Tensor:
    param_norm = param.float().square().sum().sqrt()
    other_norm = divisor.float().square().sum().sqrt()
    both = (param_norm > 0) & (other_norm > 0)
    # The divisor is made 1 where the ratio is not used, so that no 0 / 0 is computed.
    return both.where(scale * param_norm / both.where(other_norm + decay * param_norm, 1.0), 1.0)


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
