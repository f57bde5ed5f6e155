"""Gradients by central differences in float64, and beside those of torch.

In:   a function of tensors, and its inputs.
Out:  an AssertionError where the gradient (or the gradient of the gradient) is not the slope of the function.
How:  the outputs are summed with fixed random weights; the slope along random directions of all inputs together is
      compared with the gradient along them, so one wrong element of it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes

Function = Callable[..., Any]
Array = np.ndarray[Any, Any]
SAME: Function = lambda *_: None  # noqa: E731 - the same expression is right for torch
DIRECTIONS = 2


def spread(shape: tuple[int, ...], low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Return different, evenly spread numbers in random order: none is near another, or near 0, 0.5, 1, 3 or 6."""
    n = int(np.prod(shape))
    values = low + (high - low) * (np.arange(n) + 0.5 + 0.013 * seed) / max(n, 1)
    for kink in (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0):
        near = np.abs(values - kink) < 1e-3
        values[near] = kink + 0.0037
    return np.random.default_rng(seed + n).permutation(values).reshape(shape)


def arrays_of(inputs: Sequence[Any]) -> list[Array]:
    """Return inputs as arrays: a shape stands for spread numbers, (shape, low, high) for those of an interval."""
    made: list[Array] = []
    for seed, x in enumerate(inputs):
        if isinstance(x, tuple) and x and isinstance(x[0], tuple):
            made.append(spread(*x, seed=seed))
        elif isinstance(x, tuple):
            made.append(spread(x, seed=seed))
        else:
            made.append(np.asarray(x))
    return made


def outputs(result: Any) -> list[Any]:
    """Return the float outputs of a function as a list."""
    many = list(result) if isinstance(result, (tuple, list)) else [result]
    return [
        r
        for r in many
        if (isinstance(r, Tensor) and dtypes.is_float(r.dtype)) or (torch.is_tensor(r) and r.is_floating_point())
    ]


def total(result: Any) -> Any:
    """Return the weighted sum of all float outputs, as a scalar."""
    found = []
    for number, out in enumerate(outputs(result)):
        weight = np.random.default_rng(number).uniform(0.5, 1.5, tuple(out.shape))
        found.append((out * (Tensor(weight) if isinstance(out, Tensor) else torch.tensor(weight))).sum())
    return sum(found[1:], found[0])


def tensor(x: Array) -> Tensor:
    """Return a leaf; a 0-d array alone would become a constant."""
    return Tensor(x) if x.ndim else Tensor(x.reshape(1)).reshape(())


def is_float(x: Array) -> bool:
    return x.dtype.kind == "f"


def assert_slope(loss: Function, arrays: list[Array], grads: list[Array], step: float, tol: float, what: str) -> None:
    """Compare gradients with the slope of ``loss`` along random directions."""
    rng = np.random.default_rng(5)
    for _ in range(DIRECTIONS):
        direction = [
            rng.uniform(0.5, 1.0, a.shape) * rng.choice([-1, 1], a.shape) if is_float(a) else None for a in arrays
        ]
        ahead, behind = (
            loss(
                *(tensor(a if d is None else a + sign * step * d) for a, d in zip(arrays, direction, strict=True))
            ).item()
            for sign in (1, -1)
        )
        slope = (ahead - behind) / (2 * step)
        along = [d for d in direction if d is not None]
        expected = sum(float((g * d).sum()) for g, d in zip(grads, along, strict=True))
        scale = sum(float(np.abs(g * d).sum()) for g, d in zip(grads, along, strict=True)) + 1e-3
        assert abs(slope - expected) <= tol * scale, f"{what}: slope {slope}, by the gradient {expected}"


def gradcheck(
    fn: Function, *inputs: Any, like: Function | None = SAME, slope: bool = True, second: bool = True, tol: float = 1e-6
) -> None:
    """Check the gradients of ``fn``.

    Args:
        fn: Function of tensors to a tensor or several.
        *inputs: Shapes, (shape, low, high), or arrays; arrays of integers have no gradient.
        like: The same in torch; SAME if ``fn`` works on torch tensors; None if torch does not have it.
        slope: Whether the gradient is the slope; not for ``detach`` and for rounding.
        second: Whether to check the gradient of the gradient too.
        tol: Largest relative error.
    """
    arrays = arrays_of(inputs)
    loss = lambda *x: total(fn(*x))  # noqa: E731
    ours = [tensor(a) for a in arrays]
    leaves = [x for x, a in zip(ours, arrays, strict=True) if is_float(a)]
    found = loss(*ours).gradient(*leaves)
    Tensor.realize(*found)
    grads = [g.numpy() for g in found]
    assert [g.shape for g in grads] == [a.shape for a in arrays if is_float(a)]
    if like is not None:
        theirs = [torch.tensor(a, requires_grad=is_float(a)) for a in arrays]
        value = total((fn if like is SAME else like)(*theirs))
        np.testing.assert_allclose(loss(*ours).item(), value.item(), rtol=1e-6, atol=1e-9, err_msg="value")
        wanted = torch.autograd.grad(value, [t for t in theirs if t.requires_grad], allow_unused=True)
        for number, (mine, other) in enumerate(zip(grads, wanted, strict=True)):
            expected = np.zeros_like(mine) if other is None else other.numpy()
            np.testing.assert_allclose(mine, expected, rtol=2e-6, atol=1e-8, err_msg=f"gradient {number} and torch")
    if slope:
        assert_slope(loss, arrays, grads, 1e-6, tol, "gradient")
    if second:
        check_second(loss, arrays, tol)


def check_second(loss: Function, arrays: list[Array], tol: float) -> None:
    """Check the gradient of a gradient: that of its sum with fixed random weights."""
    rng = np.random.default_rng(3)
    weights = [rng.uniform(-1.0, 1.0, a.shape) for a in arrays if is_float(a)]

    def first(*x: Tensor) -> Tensor:
        leaves = [t for t, a in zip(x, arrays, strict=True) if is_float(a)]
        found = loss(*x).gradient(*leaves)
        return sum(((g * Tensor(w)).sum() for g, w in zip(found, weights, strict=True)), Tensor(np.zeros(())))

    ours = [tensor(a) for a in arrays]
    found = first(*ours).gradient(*(x for x, a in zip(ours, arrays, strict=True) if is_float(a)))
    Tensor.realize(*found)
    assert_slope(first, arrays, [g.numpy() for g in found], 1e-5, 20 * tol, "second gradient")


def row(name: str, fn: Function, *inputs: Any, **options: Any) -> Any:
    """Return a row of a table of checks."""
    return pytest.param(fn, inputs, options, id=name)


def table(*rows: Any) -> Any:
    """Return the decorator of a test that runs the rows."""
    return pytest.mark.parametrize(("fn", "inputs", "options"), list(rows))


def once(name: str, fn: Function, *inputs: Any, **options: Any) -> Any:
    """Return a row for an operation whose second derivative is 0 or that is made of operations tested elsewhere."""
    return row(name, fn, *inputs, second=False, **options)
