"""Schedules of the learning rate against torch, step by step, and inside a TinyJit."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, nn

sys.path.insert(0, str(Path(__file__).parents[2]))  # extra/ is not installed

from extra.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingLRWithWarmup,
    LR_Scheduler,
    LRSchedulerGroup,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
)

TORCH = torch.optim.lr_scheduler
CASES = {
    "milestones": (lambda o: MultiStepLR(o, [2, 5], gamma=0.5), lambda o: TORCH.MultiStepLR(o, [2, 5], gamma=0.5)),
    "milestone twice": (lambda o: MultiStepLR(o, [4, 2, 4]), lambda o: TORCH.MultiStepLR(o, [4, 2, 4])),
    "milestone 0": (lambda o: MultiStepLR(o, [0, 3]), lambda o: TORCH.MultiStepLR(o, [0, 3])),
    "cosine": (lambda o: CosineAnnealingLR(o, 5, 0.01), lambda o: TORCH.CosineAnnealingLR(o, 5, 0.01)),
    "linear cycle": (
        lambda o: OneCycleLR(o, 2.0, total_steps=10),
        lambda o: TORCH.OneCycleLR(o, 2.0, total_steps=10, anneal_strategy="linear", cycle_momentum=False),
    ),
    "cosine cycle": (
        lambda o: OneCycleLR(o, 2.0, 10.0, 100.0, total_steps=12, pct_start=0.25, anneal_strategy="cos"),
        lambda o: TORCH.OneCycleLR(
            o, 2.0, div_factor=10.0, final_div_factor=100.0, total_steps=12, pct_start=0.25, cycle_momentum=False
        ),
    ),
    "constant": (LR_Scheduler, lambda o: TORCH.ConstantLR(o, factor=1.0)),
}


def _optimizer(lr: float = 0.4) -> nn.optim.Optimizer:
    return nn.optim.SGD([Tensor([1.0])], lr=lr)


def _torch_optimizer(lr: float = 0.4) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=lr)


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str) -> None:
    make: tuple[Callable, Callable] = CASES[name]
    optimizer, reference = _optimizer(), _torch_optimizer()
    schedule, expected = make[0](optimizer), make[1](reference)
    for step in range(10):
        np.testing.assert_allclose(
            optimizer.lr.item(), reference.param_groups[0]["lr"], rtol=3e-6, atol=1e-8, err_msg=f"step {step}"
        )
        reference.step()
        if step < 9:
            schedule.step()
            expected.step()


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau_like_torch(mode: str, threshold_mode: str) -> None:
    losses = [3.0, 2.0, 2.0, 1.9999, 2.1, 1.5, 1.6, 1.6, 1.6, 1.6, 1.4, 9.0, 9.0, 9.5, 9.6]
    optimizer, reference = _optimizer(), _torch_optimizer()
    options = {"mode": mode, "threshold_mode": threshold_mode, "factor": 0.5, "patience": 2, "threshold": 0.1}
    schedule, expected = ReduceLROnPlateau(optimizer, **options), TORCH.ReduceLROnPlateau(reference, **options)
    rates = []
    for loss in losses:
        schedule.step(loss)
        expected.step(loss)
        rates.append(optimizer.lr.item())
        assert rates[-1] == pytest.approx(reference.param_groups[0]["lr"])
    assert rates[-1] < 0.4, "the rate was never reduced, so this test proves nothing"


def test_warmup() -> None:
    optimizer = _optimizer()
    schedule = CosineAnnealingLRWithWarmup(optimizer, 1.0, 0.1, 2, 4)
    rates = [optimizer.lr.item()]
    for _ in range(7):
        schedule.step()
        rates.append(optimizer.lr.item())
    falling = [0.1 + 0.45 * (1 + math.cos(math.pi * share)) for share in (0.25, 0.5, 0.75, 1, 1, 1)]
    np.testing.assert_allclose(rates, [0.5, 1.0, *falling], rtol=1e-6)


def test_inside_a_jit() -> None:
    optimizer = _optimizer()
    schedule = MultiStepLR(optimizer, [3, 4])

    @TinyJit
    def step() -> Tensor:
        schedule.step()
        return optimizer.lr.clone().realize()

    np.testing.assert_allclose([step().item() for _ in range(6)], [0.4, 0.4, 0.04, 0.004, 0.004, 0.004], rtol=1e-6)


def test_group() -> None:
    first, second = _optimizer(1.0), _optimizer(2.0)
    group = LRSchedulerGroup(MultiStepLR(first, [1]), MultiStepLR(second, [2]))
    group.step()
    assert (first.lr.item(), second.lr.item()) == pytest.approx((0.1, 2.0))
    group.step()
    assert (first.lr.item(), second.lr.item()) == pytest.approx((0.1, 0.2))
    together = nn.optim.OptimizerGroup(_optimizer(1.0), _optimizer(1.0))
    MultiStepLR(together, [1]).step()
    assert [optimizer.lr.item() for optimizer in together.optimizers] == pytest.approx([0.1, 0.1])
    with pytest.raises(ValueError, match="the optimizers of the group have the rates"):
        MultiStepLR(nn.optim.OptimizerGroup(first, second), [1])


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"factor 1\.0 does not reduce"):
        ReduceLROnPlateau(_optimizer(), factor=1.0)
    with pytest.raises(ValueError, match="mode 'less'"):
        ReduceLROnPlateau(_optimizer(), mode="less")
    with pytest.raises(ValueError, match="step needs the quantity"):
        ReduceLROnPlateau(_optimizer()).step()
    with pytest.raises(ValueError, match="total_steps 0; expected"):
        OneCycleLR(_optimizer(), 1.0)


def test_one_cycle_stays_at_its_last_rate() -> None:
    weight = Tensor([1.0])
    optimizer = nn.optim.SGD([weight], lr=1.0)
    scheduler = OneCycleLR(optimizer, 1.0, total_steps=5)
    rates = []
    for _ in range(9):
        scheduler.step()
        rates.append(optimizer.lr.item())
    assert rates[4:] == [rates[4]] * 5
    assert min(rates) > 0
