"""Constants that a program made are values of their own for gradients, though equal ones are computed once."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.schedule import schedule_cache
from tinygrad.uop.ops import UOp

# What makes a constant here, and in torch.
MAKERS: dict[str, tuple[Callable[[], Tensor], Callable[[], torch.Tensor]]] = {
    "a number with a dtype": (lambda: Tensor(2.0, dtype="float32"), lambda: torch.tensor(2.0)),
    "a number of numpy": (lambda: Tensor(np.float32(2.0)), lambda: torch.tensor(2.0)),
    "an array of no dims": (lambda: Tensor(np.array(2.0, np.float32)), lambda: torch.tensor(2.0)),
    "const": (lambda: Tensor.const(2.0, "float32"), lambda: torch.tensor(2.0)),
    "a number that is cast": (lambda: Tensor(2.0).float(), lambda: torch.tensor(2.0)),
    "an int that is cast": (lambda: Tensor(2).cast("float64"), lambda: torch.tensor(2.0, dtype=torch.float64)),
    "full": (lambda: Tensor.full((3,), 2.0), lambda: torch.full((3,), 2.0)),
    "full without storage": (
        lambda: Tensor.full((3,), 2.0, dtype="float32", buffer=False), lambda: torch.full((3,), 2.0)
    ),
    "ones": (lambda: Tensor.ones(3), lambda: torch.ones(3)),
    "zeros": (lambda: Tensor.zeros(3), lambda: torch.zeros(3)),
    "full_like": (lambda: Tensor.arange(3.0).full_like(2.0), lambda: torch.full((3,), 2.0)),
    "const_like": (lambda: Tensor([1.0, 2.0, 3.0]).const_like(2.0), lambda: torch.full((3,), 2.0)),
    "arange": (lambda: Tensor.arange(3.0), lambda: torch.arange(3.0)),
    "arange of ints, cast": (lambda: Tensor.arange(3).float(), lambda: torch.arange(3).float()),
    "linspace": (lambda: Tensor.linspace(0, 1, 3), lambda: torch.linspace(0, 1, 3)),
    "eye": (lambda: Tensor.eye(3), lambda: torch.eye(3)),
    "deepcopy": (lambda: copy.deepcopy(Tensor.arange(3.0)), lambda: torch.arange(3.0)),
}  # fmt: skip
NO_STORAGE = sorted(MAKERS.keys() - {"full", "ones", "zeros"})


@pytest.mark.parametrize("name", MAKERS)
def test_two_equal_constants(name: str) -> None:
    make, make_torch = MAKERS[name]
    a, b = make(), make()
    p, q = make_torch().requires_grad_(), make_torch().requires_grad_()
    found = (a * b * b * 2.0 + a).sum().gradient(a, b)
    expected = torch.autograd.grad((p * q * q * 2.0 + p).sum(), (p, q))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", [*NO_STORAGE, "full"])
def test_a_constant_and_equal_literals(name: str) -> None:
    make, make_torch = MAKERS[name]
    a, p = make(), make_torch().requires_grad_()
    # Arithmetic with literals, and functions that have such constants inside.
    found = ((a * 2.0).exp() * 2.0 + (a + 2.0) * (a > 1.0).where(2.0, 0.0)).sum().gradient(a)[0]
    loss = ((p * 2.0).exp() * 2.0 + (p + 2.0) * torch.where(p > 1.0, 2.0, 0.0)).sum()
    np.testing.assert_allclose(found.numpy(), torch.autograd.grad(loss, p)[0].numpy(), rtol=1e-6)


def test_an_identity_and_a_function_that_uses_one() -> None:
    a, p = Tensor.eye(3), torch.eye(3).requires_grad_()
    found = ((a + 0.5) @ (a * 2.0 + 0.25).inverse()).square().sum().gradient(a)[0]
    loss = ((p + 0.5) @ (p * 2.0 + 0.25).inverse()).square().sum()
    np.testing.assert_allclose(found.numpy(), torch.autograd.grad(loss, p)[0].numpy(), rtol=1e-4, atol=1e-5)


def test_literals_are_one_node() -> None:
    x = Tensor([1.0, 2.0])
    assert (x * 2.0).uop is (x * 2.0).uop
    assert Tensor(2.0).uop is UOp.const(2.0)


@pytest.mark.parametrize("name", NO_STORAGE)
def test_constants_have_no_storage_and_cost_no_kernel(name: str) -> None:
    constant = MAKERS[name][0]()
    assert constant.device is None
    assert not constant.realize().uop.is_realized
    x = Tensor([1.0, 2.0, 3.0]).realize()
    GlobalCounters.reset()
    (x * constant + MAKERS[name][0]()).realize()
    assert GlobalCounters.kernel_count == 1


@pytest.mark.parametrize("steps", [1, 2])
def test_a_program_that_runs_again_finds_its_schedule(steps: int) -> None:
    def run() -> None:
        x = Tensor([1.0, 2.0, 3.0]).realize()
        made = [x * Tensor.linspace(0, 1, 3) * Tensor.eye(3)[i] * Tensor.const(3.0, "float32") for i in range(steps)]
        Tensor.realize(*made)

    run()
    known = set(schedule_cache)
    run()
    assert set(schedule_cache) == known


def test_equal_constants_are_computed_once() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    two = x * Tensor.linspace(0, 1, 3) + x * Tensor.linspace(0, 1, 3)
    ramp = Tensor.linspace(0, 1, 3)
    before = len(schedule_cache)
    Tensor.realize(two, Tensor([0.0]))  # by the scheduler, not as a single expression
    Tensor.realize(x * ramp + x * ramp, Tensor([0.0]))
    assert len(schedule_cache) <= before + 1
    assert two.tolist() == [0.0, 2.0, 6.0]


def test_constants_stay_apart_in_a_pickle() -> None:
    a, b = pickle.loads(pickle.dumps((Tensor.arange(3.0), Tensor.arange(3.0))))
    c = Tensor.arange(3.0)
    found = (a * b * c).sum().gradient(a, b, c)
    assert [g.tolist() for g in found] == [[0.0, 1.0, 4.0]] * 3


def test_a_copy_of_a_constant_takes_no_gradient() -> None:
    a = Tensor.arange(3.0)
    b = copy.deepcopy(a)
    assert [g.tolist() for g in (a * b).sum().gradient(a, b)] == [[0.0, 1.0, 2.0]] * 2


def test_the_error_for_a_number_without_a_dtype_says_what_to_write() -> None:
    x = Tensor(2.0)
    with pytest.raises(RuntimeError, match=r"target 0 is dtypes.weakfloat.*\n.*\n.*\n.*dtype=.*clone\(\)"):
        (x * 2.0).float().sum().gradient(x)
    for stored in (Tensor(2.0).clone(), Tensor(2.0, dtype=dtypes.float32)):
        assert (stored * 2.0).gradient(stored)[0].item() == 2.0


def test_equal_expressions_among_the_targets_are_a_warning() -> None:
    x = Tensor([1.0, 2.0])
    y, z = x + 1, x + 1
    with pytest.warns(RuntimeWarning, match=r"targets 0 and 2 are equal expressions.*\n.*\n.*\n.*clone\(\)"):
        (y * z).sum().gradient(y, x, z)
    y, z = (x + 1).clone(), (x + 1).clone()
    assert [g.tolist() for g in (y * z).sum().gradient(y, z)] == [[2.0, 3.0]] * 2


def test_an_equal_expression_that_is_no_target_is_a_warning_too() -> None:
    x = Tensor([1.0, 2.0])
    y, z = x + 1, x + 1
    with pytest.warns(RuntimeWarning, match="target 1 and another tensor are equal expressions"):
        (y * z).sum().gradient(x, y)
    del z
    view = y.reshape(2, 1)
    assert (y * 3).sum().gradient(y)[0].tolist() == [3.0, 3.0], "a view is no other value"
    assert (view * 3).sum().gradient(y)[0].tolist() == [3.0, 3.0]
    weight = Tensor([0.0, 0.0]).replace(y)
    assert (weight * 3).sum().gradient(y)[0].tolist() == [3.0, 3.0], "replaced by it, and so meant"
    assert (y * 3).sum().gradient(weight)[0].tolist() == [3.0, 3.0]
    alike = [Tensor([1.0, 2.0]) for _ in range(2)]
    assert (alike[0] * alike[1]).sum().gradient(alike[0])[0].tolist() == [1.0, 2.0], "data is one variable a tensor"
