"""Calls at the edges: limits of NaN, infinite data, places on a border, lengths of 0, no elements. All as in torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor

torch = pytest.importorskip("torch")

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "dim"), [((0, 3), None), ((0, 3), 0), ((3, 0), 1), ((2, 0), -1), ((0,), None)])
def test_no_index_of_no_elements(name: str, shape: tuple[int, ...], dim: int | None) -> None:
    with pytest.raises((IndexError, ValueError), match=rf"{name}.*no elements") as caught:
        getattr(Tensor.zeros(*shape), name)(dim)
    assert str(shape) in str(caught.value)
    with pytest.raises(IndexError):
        getattr(torch.zeros(shape), name)(*(() if dim is None else (dim,)))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "dim"), [((0, 3), 1), ((3, 0), 0), ((2, 0, 4), 2)])
def test_no_indices_of_no_rows(name: str, shape: tuple[int, ...], dim: int) -> None:
    got, wanted = getattr(Tensor.zeros(*shape), name)(dim), getattr(torch.zeros(shape), name)(dim)
    assert got.tolist() == wanted.tolist()
    assert got.shape == tuple(wanted.shape)


CLAMPS = [(NAN, 3.0), (0.0, NAN), (NAN, NAN), (NAN, None), (None, NAN), (0.0, 3.0), (4.0, 2.0), (1.0, None)]


@pytest.mark.parametrize("limits", CLAMPS)
@pytest.mark.parametrize("kind", ["number", "tensor", "tensor of one"])
@pytest.mark.parametrize("name", ["clamp", "clip"])
def test_clamp_with_nan(limits: tuple[float | None, float | None], kind: str, name: str) -> None:
    values = [-1.0, 1.0, 2.0, 5.0]
    size = 4 if kind == "tensor" else 1
    ours: list[Any] = [Tensor(values)]
    theirs: list[Any] = [torch.tensor(values, requires_grad=True)]
    for limit in limits:
        plain = limit is None or kind == "number"
        ours.append(limit if plain else Tensor([limit] * size))
        theirs.append(limit if plain else torch.tensor([limit] * size))
    got, wanted = getattr(ours[0], name)(*ours[1:]), getattr(theirs[0], name)(*theirs[1:])
    slope = got.sum().gradient(ours[0])[0]
    wanted.sum().backward()
    np.testing.assert_array_equal(got.numpy(), wanted.detach().numpy())
    np.testing.assert_array_equal(slope.numpy(), theirs[0].grad.numpy())
    assert Tensor([1, 2]).clamp(*limits).isnan().any().item() == any(x != x for x in limits if x is not None)


PLACES = [0.0, 0.1, 0.25, 0.5, 0.6, 0.75, 1.0]


def infinite_data(seed: int, rows: int, infinite: float) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(seed)
    data = generator.normal(size=(rows, 6)).astype(np.float32)
    return np.where(generator.random(data.shape) < infinite, np.where(data > 0, INF, -INF), data).astype(np.float32)


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("infinite", [0.1, 0.4])
def test_quantiles_of_infinite_data(how: Any, dim: int | None, infinite: float) -> None:
    """Where torch gives no number, subtracting infinite values, the float64 of the definition may."""
    for seed in range(3):
        data = infinite_data(seed, 5, infinite)
        got = Tensor(data).quantile(PLACES, dim, interpolation=how).numpy()
        wanted = torch.tensor(data).quantile(torch.tensor(PLACES), dim, interpolation=how).numpy()
        known = ~np.isnan(wanted)
        np.testing.assert_allclose(got[known], wanted[known], rtol=1e-5, atol=1e-6)
        if how in {"lower", "higher", "nearest"}:
            assert known.all()
        # Only between -inf and inf there is no number.
        low, high = (np.quantile(data, PLACES, axis=dim, method=method) for method in ("lower", "higher"))
        opposite = (low == -INF) & (high == INF)
        assert not np.isnan(got[~opposite]).any()


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("data", [[1.0, 2.0, INF], [-INF, 1.0, 2.0], [-INF, INF, INF], [3.0, 1.0, 2.0]])
@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.6, 1.0])
def test_gradients_of_quantiles_of_infinite_data(how: Any, data: list[float], q: float) -> None:
    x, y = Tensor(data), torch.tensor(data, requires_grad=True)
    y.quantile(q, interpolation=how).backward()
    np.testing.assert_allclose(x.quantile(q, interpolation=how).gradient(x)[0].numpy(), y.grad.numpy(), atol=1e-6)


# Both edges, places between, and places beyond that reflection moves onto an edge or between.
COORDINATES = [-3.0, -1.5, -4 / 3, -1.0, -2 / 3, 0.0, 0.5, 2 / 3, 1.0, 4 / 3, 1.5, 3.0]


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", [3, 5])
def test_gradient_of_places_on_a_border(mode: Any, padding: Any, align_corners: bool, size: int) -> None:
    image = np.random.default_rng(size).normal(size=(1, 2, size, size)).astype(np.float32)
    # Both coordinates lie on bounds, in turn and at once.
    grid = np.array([[[[x, y] for x in COORDINATES] for y in COORDINATES[::3]]], dtype=np.float32)
    x, g = Tensor(image), Tensor(grid)
    a, b = torch.tensor(image, requires_grad=True), torch.tensor(grid, requires_grad=True)
    sampled = torch.nn.functional.grid_sample(a, b, mode, padding, align_corners)
    (sampled**2).sum().backward()
    got = x.grid_sample(g, mode, padding, align_corners)
    slopes = (got**2).sum().gradient(x, g)
    np.testing.assert_allclose(got.numpy(), sampled.detach().numpy(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(slopes, (a.grad, b.grad), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_sampling_at_no_place(mode: Any, padding: Any, value: float) -> None:
    image = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    got = Tensor(image).grid_sample(Tensor([[[[value, 0.0]]]]), mode, padding)
    if mode == "bicubic" or (mode, padding) == ("bilinear", "zeros"):
        wanted = NAN
    elif padding == "zeros":
        wanted = 0.0
    else:
        wanted = 6.0 if (padding, value) == ("border", INF) else 4.0
    np.testing.assert_array_equal(got.numpy(), [[[[wanted]]]])


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize(("steps", "labels"), [((0, 0, 3, 1), (0, 2, 2, 1)), ((0, 1, 1, 0), (1, 0, 2, 0))])
def test_alignments_of_no_steps(zero_infinity: bool, steps: tuple[int, ...], labels: tuple[int, ...]) -> None:
    scores = np.random.default_rng(2).normal(size=(3, 4, 3)).astype(np.float32)
    ids = np.array([[1, 2], [1, 2], [1, 1], [2, 1]], dtype=np.int32)
    x, y = Tensor(scores), torch.tensor(scores, requires_grad=True)
    got = x.log_softmax(-1).ctc_loss(Tensor(ids), steps, labels, reduction="none", zero_infinity=zero_infinity)
    wanted = torch.nn.functional.ctc_loss(
        y.log_softmax(-1), torch.tensor(ids), steps, labels, reduction="none", zero_infinity=zero_infinity
    )
    np.testing.assert_allclose(got.numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    if zero_infinity:
        wanted.sum().backward()
        x = Tensor(scores)
        loss = x.log_softmax(-1).ctc_loss(Tensor(ids), steps, labels, reduction="sum", zero_infinity=True)
        np.testing.assert_allclose(loss.gradient(x)[0].numpy(), y.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("error", [ZeroDivisionError, ValueError])
@pytest.mark.parametrize("bounds", [(1, 5, 0), (5, 1, 0), (0, 0, 0), (1.0, 5.0, 0.0)])
def test_range_with_a_step_of_zero(error: type[Exception], bounds: tuple[float, float, float]) -> None:
    with pytest.raises(error, match="arange: step is 0"):
        Tensor.arange(*bounds)


OF_ONE_NUMBER = {
    "argmax": 0, "argmin": 0, "max": 3.0, "min": 3.0, "sum": 3.0, "prod": 3.0, "mean": 3.0, "var": NAN, "std": NAN,
    "any": True, "all": True, "logsumexp": 3.0,
}  # fmt: skip


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", OF_ONE_NUMBER)
def test_reductions_of_a_number_are_numbers(name: str, keepdim: bool, axis: int | None) -> None:
    found = getattr(Tensor(3.0).clone(), name)(axis, keepdim=keepdim)
    assert found.shape == ()
    np.testing.assert_allclose(found.numpy(), OF_ONE_NUMBER[name], rtol=1e-6)
