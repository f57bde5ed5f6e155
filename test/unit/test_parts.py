"""Parts that overlap: adaptive pools and areas, and graphs that are as large for ten parts as for hundreds."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tinygrad import Tensor, dtypes


@pytest.mark.parametrize("name", ["adaptive_avg_pool1d", "adaptive_max_pool1d"])
@pytest.mark.parametrize(("old", "n"), [(7, 3), (10, 7), (5, 8), (12, 9), (3, 10), (64, 48), (6, 4), (9, 1)])
def test_values_and_gradients(name: str, old: int, n: int) -> None:
    x = np.random.default_rng(old).standard_normal((2, 3, old)).astype(np.float32)
    theirs, ours = torch.tensor(x, requires_grad=True), Tensor(x)
    expected, found = getattr(F, name)(theirs, n), getattr(ours, name)(n)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    (expected * expected * expected).sum().backward()
    (gradient,) = (found * found * found).sum().gradient(ours)
    np.testing.assert_allclose(gradient.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_gradient_of_a_gradient() -> None:
    x = np.random.default_rng(1).standard_normal((1, 4, 7)).astype(np.float32)
    theirs, ours = torch.tensor(x, requires_grad=True), Tensor(x)
    expected, found = (F.adaptive_avg_pool2d(theirs, (3, 4)) ** 3).sum(), (ours.adaptive_avg_pool2d((3, 4)) ** 3).sum()
    (slope,) = torch.autograd.grad(expected, theirs, create_graph=True)
    (second,) = torch.autograd.grad((slope * slope).sum(), theirs)
    (mine,) = found.gradient(ours)
    np.testing.assert_allclose((mine * mine).sum().gradient(ours)[0].numpy(), second.numpy(), rtol=1e-4, atol=1e-5)


def test_a_part_does_not_see_its_neighbours() -> None:
    x = Tensor([[1.0, 2.0, float("inf"), 4.0, 5.0, 6.0, 7.0]])
    assert x.adaptive_avg_pool1d(3).tolist() == [[np.inf, np.inf, 6.0]]
    assert x[None].interpolate((3,), mode="area").tolist() == [[[np.inf, np.inf, 6.0]]]
    lowest = Tensor.full((1, 1, 7), -float("inf"))
    values, places = lowest.adaptive_max_pool1d(3, return_indices=True)
    assert values.tolist() == [[[-np.inf] * 3]]
    assert places.tolist() == [[[0, 2, 4]]]


def test_other_dtypes() -> None:
    assert Tensor.full((1, 10), 60000.0, dtype=dtypes.half).adaptive_avg_pool1d(3).tolist() == [[60000.0] * 3]
    assert Tensor([[1, 2, 3, 4, 5]]).adaptive_avg_pool1d(2).tolist() == [[2.0, 4.0]]
    assert Tensor([[1, 2, 3, 4, 5]]).adaptive_max_pool1d(2).tolist() == [[3, 5]]


def test_powers_of_a_vector() -> None:
    x = Tensor([2.0, 0.0, -1.0])
    assert x.vander(4).tolist() == [[8.0, 4.0, 2.0, 1.0], [0.0, 0.0, 0.0, 1.0], [-1.0, 1.0, -1.0, 1.0]]
    assert x.vander(4, increasing=True).sum().gradient(x)[0].tolist() == [17.0, 1.0, 2.0]
    assert Tensor([2, 3]).vander(1).tolist() == [[1], [1]]


GROWING: dict[str, Callable[[int], Tensor]] = {
    "adaptive_avg_pool1d": lambda n: Tensor.empty(1, 1, n).adaptive_avg_pool1d(n * 3 // 4 + 1),
    "adaptive_max_pool1d": lambda n: Tensor.empty(1, 1, n).adaptive_max_pool1d(n * 3 // 4 + 1),
    "places of maxima": lambda n: (
        Tensor.empty(1, 1, n).adaptive_max_pool1d(n * 3 // 4 + 1, return_indices=True)[1].float()
    ),
    "area": lambda n: Tensor.empty(1, 1, n).interpolate((n * 3 // 4 + 1,), mode="area"),
    "vander": lambda n: Tensor.empty(4).vander(n),
}


@pytest.mark.parametrize("name", GROWING)
def test_graphs_do_not_grow_with_sizes(name: str) -> None:
    counts = [len(GROWING[name](n).uop.toposort()) for n in (1000, 4000)]
    assert abs(counts[1] - counts[0]) < 200, counts
