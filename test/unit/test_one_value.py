"""A value that is read in several places is one value: all of them get the same bits.

Sums of few terms are cheap to compute anew wherever they are read, but two loops may add in different orders, or fuse
different products. Then no element equals the maximum, ``argmax`` finds nothing, and its gradient is lost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Tensor

Inputs = dict[str, Tensor]
SUMS: dict[str, Callable[[Inputs], Tensor]] = {
    "distances": lambda v: (v["a"][:, None] - v["b"][None]).square().sum(-1),
    "matmul": lambda v: v["a"] @ v["b"].T,
    "cosine similarity": lambda v: (
        (v["a"] @ v["b"].T) / (v["a"].square().sum(-1).sqrt()[:, None] * v["b"].square().sum(-1).sqrt()[None])
    ),
    "products": lambda v: (v["c"] * v["c"].flip(0)).sum(-1),
    "einsum": lambda v: Tensor.einsum("nmk,mk->nm", v["c"], v["b"]),
    "mean": lambda v: v["c"].mean(-1) * 3 + 1,
    "product": lambda v: v["c"].prod(-1),
    "rms": lambda v: v["c"][..., 0] / (v["c"].square().mean(-1) + 1e-5).sqrt(),
}
SHAPES = [(30, 3, 2), (2, 3, 5), (2, 17, 3), (100, 2, 4), (7, 5, 16)]  # rows, columns, terms


def inputs(rows: int, columns: int, terms: int) -> Inputs:
    generator = np.random.default_rng(rows + columns + terms)
    shapes = {"a": (rows, terms), "b": (columns, terms), "c": (rows, columns, terms)}
    return {name: Tensor(generator.uniform(-1, 2, s).astype(np.float32)).realize() for name, s in shapes.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_an_extreme_is_one_of_the_elements(name: str, shape: tuple[int, int, int]) -> None:
    values, compute = inputs(*shape), SUMS[name]
    stored = compute(values).numpy()
    for axis in (0, 1):
        x = compute(values)
        assert (x == x.max(axis, keepdim=True)).any(axis).all().item()
        np.testing.assert_array_equal(compute(values).argmax(axis).numpy(), stored.argmax(axis))
        np.testing.assert_array_equal(compute(values).argmin(axis).numpy(), stored.argmin(axis))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_the_gradient_of_a_maximum_arrives(name: str, shape: tuple[int, int, int]) -> None:
    x = SUMS[name](inputs(*shape))
    (gradient,) = x.max(1).sum().gradient(x)
    np.testing.assert_array_equal(gradient.numpy().sum(1), np.ones(shape[0]))
