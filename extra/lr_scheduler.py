"""Schedules of the learning rate: from the number of steps so far to the rate of an optimizer.

In:   an optimizer of ``tinygrad.nn.optim``, or an ``OptimizerGroup``.
Out:  ``step`` counts and assigns the new rate in place.
Why:  the counter and the rate are tensors, and the rate is an expression over the counter. So a step of a schedule can
      be part of a TinyJit with the step of the optimizer. Only ``ReduceLROnPlateau`` decides in Python, from a loss
      that the program has read anyway.

Every schedule has the rate of step 0 when it is made, as in PyTorch: call ``step`` after the step of the optimizer.
"""

from __future__ import annotations

import math

from tinygrad.nn.optim import Optimizer, OptimizerGroup
from tinygrad.tensor import Tensor

__all__ = [
    "CosineAnnealingLR", "CosineAnnealingLRWithWarmup", "LRSchedulerGroup", "LR_Scheduler", "MultiStepLR", "OneCycleLR",
    "ReduceLROnPlateau",
]  # fmt: skip


class LR_Scheduler:  # noqa: N801  the name that programs use
    """What all schedules share. A subclass defines ``get_lr``; this one keeps the rate.

    Args:
        optimizer: Its ``lr`` is assigned, in each optimizer of a group.

    Attributes:
        optimizer: The optimizer.
        epoch_counter: Steps so far, a float tensor of shape (1,).

    Raises:
        TypeError: ``optimizer`` is something else.
    """

    def __init__(self, optimizer: Optimizer | OptimizerGroup) -> None:
        if not isinstance(optimizer, (Optimizer, OptimizerGroup)):
            name = type(optimizer).__name__
            raise TypeError(f"{type(self).__name__}: optimizer is a {name}; expected an Optimizer or OptimizerGroup")
        self.optimizer = optimizer
        self.epoch_counter = Tensor([0.0], device=self._rates()[0].device).is_param_(False)

    def get_lr(self) -> Tensor:
        """Return the rate after ``epoch_counter`` steps, a lazy tensor of the shape of the optimizer's ``lr``."""
        return self._rates()[0]

    def schedule_step(self) -> list[Tensor]:
        """Assign counter and rate lazily; returns the tensors to realize."""
        self.epoch_counter.assign(self.epoch_counter + 1)
        return [self.epoch_counter, *self._assign(self.get_lr())]

    def step(self) -> None:
        """Count one step and set the rate."""
        Tensor.realize(*self.schedule_step())

    def _rates(self) -> list[Tensor]:
        """Return the ``lr`` of the optimizer, or of each optimizer of a group."""
        group = self.optimizer.optimizers if isinstance(self.optimizer, OptimizerGroup) else [self.optimizer]
        return [optimizer.lr for optimizer in group]

    def _assign(self, rate: Tensor) -> list[Tensor]:
        rates = self._rates()
        return [lr.assign(rate.reshape(lr.shape).cast(lr.dtype)) for lr in rates]

    def _initial_lr(self) -> float:
        """Return the rate of the optimizer now.

        Raises:
            ValueError: The optimizers of a group have different rates.
        """
        values = {float(lr.item()) for lr in self._rates()}
        if len(values) > 1:
            raise ValueError(
                f"{type(self).__name__}: the optimizers of the group have the rates {sorted(values)}; make a schedule "
                "for each and put them into an LRSchedulerGroup"
            )
        return values.pop()


class LRSchedulerGroup:
    """Several schedules that take their steps together.

    Args:
        *schedulers: One for each optimizer of a group.
    """

    def __init__(self, *schedulers: LR_Scheduler) -> None:
        self.schedulers = schedulers

    def schedule_step(self) -> list[Tensor]:
        """Assign all counters and rates lazily; returns the tensors to realize."""
        return [tensor for scheduler in self.schedulers for tensor in scheduler.schedule_step()]

    def step(self) -> None:
        """Take a step of each."""
        Tensor.realize(*self.schedule_step())


class MultiStepLR(LR_Scheduler):
    """Multiplies the rate by ``gamma`` at each milestone.

    Args:
        optimizer: The optimizer.
        milestones: Numbers of steps, in any order; one that occurs twice counts twice, 0 before the first step.
        gamma: The factor.
    """

    def __init__(self, optimizer: Optimizer | OptimizerGroup, milestones: list[int], gamma: float = 0.1) -> None:
        super().__init__(optimizer)
        self.milestones, self.gamma = sorted(milestones), gamma
        self._base = self._initial_lr()
        Tensor.realize(*self._assign(self.get_lr()))  # a milestone may be step 0

    def get_lr(self) -> Tensor:
        """Return the rate after ``epoch_counter`` steps."""
        rate = self.epoch_counter.full_like(self._base)
        for milestone in self.milestones:
            rate = rate * (self.epoch_counter >= milestone).where(self.gamma, 1.0)
        return rate


class ReduceLROnPlateau(LR_Scheduler):
    """Multiplies the rate by ``factor`` when a quantity has not improved for more than ``patience`` steps.

    Args:
        optimizer: The optimizer.
        mode: "min" if less is better, "max" if more is.
        factor: The factor, less than 1.
        patience: Steps without improvement that are let pass.
        threshold: By how much the best value has to be beaten.
        threshold_mode: "rel" if the threshold is a share of the best value, "abs" if it is a difference.

    Raises:
        ValueError: ``factor`` is not less than 1, or a mode is unknown.
    """

    def __init__(
        self,
        optimizer: Optimizer | OptimizerGroup,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
    ) -> None:
        super().__init__(optimizer)
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor {factor} does not reduce; expected less than 1")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"ReduceLROnPlateau: mode {mode!r} and threshold_mode {threshold_mode!r}; expected 'min' or 'max', and "
                "'rel' or 'abs'"
            )
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_epoch = 0

    def is_better(self, current: float) -> bool:
        """Whether a value beats the best one by the threshold."""
        sign = -1 if self.mode == "min" else 1
        relative = self.threshold_mode == "rel"
        target = self.best * (1 + sign * self.threshold) if relative else self.best + sign * self.threshold
        return current * sign > target * sign

    def step(self, current: float | Tensor | None = None) -> None:
        """Count one step, with the value of the quantity.

        Raises:
            ValueError: There is no value.
        """
        if current is None:
            raise ValueError("ReduceLROnPlateau: step needs the quantity that is watched, such as the validation loss")
        value = float(current.item()) if isinstance(current, Tensor) else float(current)
        if self.is_better(value):
            self.best, self.bad_epoch = value, 0
        else:
            self.bad_epoch += 1
        changed = [self.epoch_counter.assign(self.epoch_counter + 1)]
        if self.bad_epoch > self.patience:
            self.bad_epoch = 0
            changed += [lr.assign(lr * self.factor) for lr in self._rates()]
        Tensor.realize(*changed)


class CosineAnnealingLR(LR_Scheduler):
    """Goes along half a cosine from the initial rate to ``eta_min`` in ``T_max`` steps, and back.

    Args:
        optimizer: The optimizer.
        T_max: Steps to the lowest rate.
        eta_min: The lowest rate.

    Raises:
        ValueError: ``T_max`` is not positive.

    Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017, arXiv:1608.03983.
    """

    def __init__(self, optimizer: Optimizer | OptimizerGroup, T_max: int, eta_min: float = 0.0) -> None:
        super().__init__(optimizer)
        if T_max <= 0:
            raise ValueError(f"CosineAnnealingLR: T_max is {T_max}; expected a number of steps, at least 1")
        self.T_max, self.eta_min = T_max, eta_min
        self.eta_max = self._initial_lr()

    def get_lr(self) -> Tensor:
        """Return the rate after ``epoch_counter`` steps."""
        wave = (self.epoch_counter * (math.pi / self.T_max)).cos() + 1
        return self.eta_min + 0.5 * (self.eta_max - self.eta_min) * wave


class CosineAnnealingLRWithWarmup(LR_Scheduler):
    """Rises linearly to ``base_lr`` in the warm-up, then goes along half a cosine to ``end_lr``, where it stays.

    Args:
        optimizer: The optimizer.
        base_lr: The highest rate.
        end_lr: The rate at the end.
        warmup_steps: Steps to the highest rate.
        decay_steps: Steps from there to the end.

    Raises:
        ValueError: ``warmup_steps`` is negative, or ``decay_steps`` not positive.
    """

    def __init__(
        self, optimizer: Optimizer | OptimizerGroup, base_lr: float, end_lr: float, warmup_steps: int, decay_steps: int
    ) -> None:
        super().__init__(optimizer)
        if warmup_steps < 0 or decay_steps <= 0:
            raise ValueError(
                f"CosineAnnealingLRWithWarmup: warmup_steps {warmup_steps}, decay_steps {decay_steps}; expected at "
                "least 0 and at least 1"
            )
        self.base_lr, self.end_lr = base_lr, end_lr
        self.warmup_steps, self.decay_steps = warmup_steps, decay_steps
        Tensor.realize(*self._assign(self.get_lr()))

    def get_lr(self) -> Tensor:
        """Return the rate after ``epoch_counter`` steps."""
        done = self.epoch_counter + 1
        rising = done * (self.base_lr / self.warmup_steps) if self.warmup_steps else done
        share = ((done - self.warmup_steps) / self.decay_steps).clip(0, 1)
        falling = self.end_lr + 0.5 * (self.base_lr - self.end_lr) * ((share * math.pi).cos() + 1)
        return (done < self.warmup_steps + 1).where(rising, falling)


class OneCycleLR(LR_Scheduler):
    """Rises from ``max_lr / div_factor`` to ``max_lr``, then falls to the initial rate over ``final_div_factor``.

    Args:
        optimizer: The optimizer; its rate is set to the initial one at once.
        max_lr: The highest rate.
        div_factor: The highest rate over the initial one.
        final_div_factor: The initial rate over the last one.
        total_steps: Steps of the whole cycle.
        pct_start: Share of the steps in which the rate rises.
        anneal_strategy: "linear" or "cos".
        cycle_momentum: Not supported: must be False.

    Raises:
        ValueError: Another strategy, ``cycle_momentum``, no steps, a share outside of [0, 1], or a factor of 0.

    Source: Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates",
    2018, arXiv:1708.07120.
    """

    def __init__(
        self,
        optimizer: Optimizer | OptimizerGroup,
        max_lr: float,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        total_steps: int = 0,
        pct_start: float = 0.3,
        anneal_strategy: str = "linear",
        cycle_momentum: bool = False,
    ) -> None:
        super().__init__(optimizer)
        if anneal_strategy not in ("linear", "cos") or cycle_momentum or total_steps <= 0:
            raise ValueError(
                f"OneCycleLR: anneal_strategy {anneal_strategy!r}, cycle_momentum {cycle_momentum}, total_steps "
                f"{total_steps}; expected 'linear' or 'cos', False, and a number of steps"
            )
        if not 0 <= pct_start <= 1 or div_factor <= 0 or final_div_factor <= 0:
            raise ValueError(
                f"OneCycleLR: pct_start {pct_start}, div_factor {div_factor}, final_div_factor {final_div_factor}; "
                "expected a share from 0 to 1, and factors above 0"
            )
        self.max_lr, self.initial_lr = max_lr, max_lr / div_factor
        self.min_lr = self.initial_lr / final_div_factor
        self.total_steps, self.pct_start, self.anneal_strategy = total_steps, pct_start, anneal_strategy
        Tensor.realize(*self._assign(self.get_lr()))

    def _anneal(self, start: float, end: float, share: Tensor) -> Tensor:
        if self.anneal_strategy == "cos":
            share = (1 - (share * math.pi).cos()) * 0.5
        return (1 - share) * start + share * end  # exact at both ends

    def get_lr(self) -> Tensor:
        """Return the rate after ``epoch_counter`` steps."""
        rising_steps = self.total_steps * self.pct_start - 1
        falling_steps = self.total_steps - 1 - rising_steps
        rising = self._anneal(self.initial_lr, self.max_lr, self.epoch_counter / rising_steps if rising_steps else
                              self.epoch_counter)  # fmt: skip
        share = (self.epoch_counter - rising_steps) / falling_steps if falling_steps else self.epoch_counter
        falling = self._anneal(self.max_lr, self.min_lr, share.minimum(1))  # after the last step it stays
        return (self.epoch_counter <= rising_steps).where(rising, falling)
