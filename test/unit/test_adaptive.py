"""Adagrad and what followed it: every step against torch, over their options, fused, in half precision and replayed."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Context, Tensor, TinyJit, dtypes, nn

NAMES = ["Adagrad", "Adadelta", "RMSprop", "Adamax", "NAdam", "RAdam"]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in NAMES),
    *((name, {"weight_decay": 0.1, "lr": 0.05}) for name in NAMES),
    *((name, {"eps": 1e-3}) for name in NAMES),
    *((name, {"b1": 0.5, "b2": 0.8}) for name in ("Adamax", "NAdam", "RAdam")),
    ("RAdam", {"b1": 0.9, "b2": 0.6}),
    ("RAdam", {"b1": 0.9, "b2": 0.3}),
    ("Adagrad", {"lr_decay": 0.3}),
    ("Adagrad", {"initial_accumulator_value": 0.5}),
    ("Adadelta", {"rho": 0.3, "lr": 0.5}),
    ("RMSprop", {"alpha": 0.6}),
    ("RMSprop", {"momentum": 0.8}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "weight_decay": 0.1}),
    ("NAdam", {"momentum_decay": 0.1}),
]
SHAPES = [(3, 4), (5,), (2, 1, 2)]


@pytest.fixture(autouse=True)
def training():
    with Context(TRAINING=1):
        yield


def in_torch(name: str, params: list[torch.Tensor], arguments: dict[str, Any]) -> torch.optim.Optimizer:
    """Return torch's optimizer of the name."""
    given = {k: v for k, v in arguments.items() if k not in {"b1", "b2"}}
    if "b1" in arguments:
        given["betas"] = (arguments["b1"], arguments["b2"])
    return getattr(torch.optim, name)(params, **given)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("name", "arguments"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "plain"
)
def test_steps_equal_those_of_torch(name: str, arguments: dict[str, Any], fused: bool) -> None:
    rng = np.random.default_rng(5)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    ours = [Tensor(v).clone().realize() for v in values]
    theirs = [torch.from_numpy(v.copy()).requires_grad_() for v in values]
    optimizer = getattr(nn.optim, name)(ours, fused=fused, **arguments)
    reference = in_torch(name, theirs, arguments)
    for _ in range(8):  # RAdam begins to use the mean square in the sixth
        for o, t in zip(ours, theirs, strict=True):
            gradient = rng.standard_normal(o.shape).astype(np.float32)
            o.grad, t.grad = Tensor(gradient), torch.from_numpy(gradient)
        optimizer.step()
        reference.step()
        for o, t in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(o.numpy(), t.detach().numpy(), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_those_of_torch(name: str) -> None:
    ours = inspect.signature(getattr(nn.optim, name).__init__).parameters
    theirs = inspect.signature(getattr(torch.optim, name).__init__).parameters
    betas = theirs["betas"].default if "betas" in theirs else ()
    expected = {k: p.default for k, p in theirs.items() if k in ours and k not in {"self", "params", "fused", "betas"}}
    expected |= dict(zip(("b1", "b2"), betas, strict=False))
    assert {k: ours[k].default for k in expected} == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_replayed_step_goes_on(name: str) -> None:
    def trained(is_jitted: bool) -> np.ndarray:
        weight = Tensor([[1.0, -2.0], [0.5, 3.0]]).clone().realize()
        optimizer = getattr(nn.optim, name)([weight], lr=0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (x @ weight).square().sum().backward()
            optimizer.step()
            return loss.realize()

        run = TinyJit(step) if is_jitted else step
        for i in range(8):
            run(Tensor([[1.0, 0.1 * i]]).realize())
        return weight.numpy()

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_keeps_its_state_in_float32(name: str) -> None:
    weight = Tensor([1.0, -2.0], dtype=dtypes.float16).clone().realize()
    optimizer = getattr(nn.optim, name)([weight], lr=0.1)
    weight.grad = Tensor([300.0, -1e-4], dtype=dtypes.float16)  # the squares are infinite and 0 in half precision
    optimizer.step()
    assert weight.dtype is dtypes.float16
    assert np.isfinite(weight.numpy()).all()
    assert all(state.dtype is dtypes.float32 for states in optimizer._state for state in states)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        *((name, {"weight_decay": -1.0}, "weight_decay must not be negative, got -1.0") for name in NAMES),
        *((name, {"eps": -1.0}, "eps must not be negative, got -1.0") for name in NAMES),
        *((name, {"lr": -1.0}, "the learning rate must not be negative") for name in NAMES),
        *((name, {"b2": 1.0}, r"b2 must be in \[0, 1\), got 1.0") for name in ("Adamax", "NAdam", "RAdam")),
        ("Adadelta", {"rho": 1.5}, r"rho must be in \[0, 1\], got 1.5"),
        ("RMSprop", {"momentum": -0.5}, "momentum must not be negative, got -0.5"),
        ("Adagrad", {"lr_decay": float("nan")}, "lr_decay must not be negative, got nan"),
    ],
)
def test_arguments_without_a_meaning_are_refused(name: str, arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(nn.optim, name)([Tensor([1.0])], **arguments)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_parameters_on_several_devices(name: str, axis: int | None) -> None:
    def trained(devices: tuple[str, ...] | None) -> np.ndarray:
        weight = Tensor([[1.0, -2.0], [0.5, 3.0]]).clone().realize()
        x = Tensor([[1.0, 0.5]])
        if devices:
            weight, x = weight.shard(devices, axis).realize(), x.shard(devices)
        optimizer = getattr(nn.optim, name)([weight], lr=0.1, weight_decay=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (x @ weight).square().sum().backward()
            optimizer.step()
        assert weight.uop.axis == (axis if devices else None)
        return weight.numpy()

    np.testing.assert_allclose(trained(("CPU:0", "CPU:1")), trained(None), rtol=1e-5)
