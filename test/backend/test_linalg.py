"""Decompositions against numpy, their gradients against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, Variable, dtypes

RNG = np.random.default_rng(7)
SHAPES = [(3, 3), (5, 3), (3, 5), (1, 1), (4, 1), (1, 4), (2, 2, 4, 3)]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def turned(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def assert_orthogonal(q: np.ndarray, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(
        turned(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2)), atol=atol
    )


def read(*tensors: Tensor) -> list[np.ndarray]:
    Tensor.realize(*tensors)
    return [t.numpy() for t in tensors]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_qr(shape: tuple[int, ...]) -> None:
    a = normal(*shape)
    q, r = read(*Tensor(a).qr())
    assert q.shape == (*shape[:-1], shape[-2])
    assert r.shape == shape
    np.testing.assert_allclose(q @ r, a, atol=2e-6)
    np.testing.assert_array_equal(r, np.triu(r))
    assert_orthogonal(q)


def assert_svd(a: np.ndarray, full: bool, rtol: float = 2e-6) -> None:
    u, s, vt = read(*Tensor(a).svd(full))
    wanted = np.linalg.svd(a.astype(np.float64), full_matrices=full)
    assert [x.shape for x in (u, s, vt)] == [x.shape for x in wanted]
    size, k = max(float(np.abs(a).max()), 1e-30), min(a.shape[-2:])
    np.testing.assert_allclose(s / size, wanted[1] / size, atol=rtol)
    np.testing.assert_allclose((u[..., :k] * (s / size)[..., None, :]) @ vt[..., :k, :], a / size, atol=rtol)
    assert (np.diff(s, axis=-1) <= 0).all()
    assert_orthogonal(u)
    assert_orthogonal(turned(vt))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_svd(shape: tuple[int, ...], full: bool) -> None:
    assert_svd(normal(*shape), full)


HARD = {
    "zeros": np.zeros((3, 3)),
    "ones": np.ones((4, 4)),
    "rank 1": np.outer(np.arange(5), np.arange(4)),
    "identity": np.eye(6),
    "equal values": np.diag([2.0, 2, 1, 1]),
    "huge": RNG.normal(size=(4, 4)) * 1e30,
    "small": RNG.normal(size=(4, 4)) * 1e-30,
    "hilbert": 1 / (np.arange(12)[:, None] + np.arange(12) + 1),
    "graded": RNG.normal(size=(8, 8)) * 10.0 ** -np.arange(8),
}


@pytest.mark.parametrize("name", HARD)
def test_svd_of_hard_matrices(name: str) -> None:
    assert_svd(HARD[name].astype(np.float32), True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("shape", [(200, 3, 5), (200, 5, 3), (200, 4, 4), (200, 2, 4), (200, 6, 2)], ids=str)
def test_svd_of_matrices_of_low_rank(shape: tuple[int, int, int], rank: int, dtype: type) -> None:
    # What is left of the other columns are rounding errors of every size, down to subnormal numbers.
    batch, m, n = shape
    generator = np.random.default_rng(m * n + rank)
    a = generator.normal(size=(batch, m, rank)) @ generator.normal(size=(batch, rank, n))
    a[: batch // 2] = np.rint(a[: batch // 2])
    a[1] = a[1, :, :1]  # equal columns
    assert_svd(a.astype(dtype), True, rtol=5e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_qr_of_columns_whose_squares_underflow(dtype: type) -> None:
    tiny, low = float(np.finfo(dtype).tiny), -36 if dtype is np.float32 else -300
    powers = [0, low / 2, low / 1.6, low]
    a = np.stack([normal(4, 4) * 10.0**p for p in powers] + [normal(4, 4) * 10.0 ** np.array(powers)])
    a = np.concatenate([a, normal(1, 4, 4) * np.array([1.0, tiny / 4, tiny, 0.0])]).astype(dtype)
    q, r = read(*Tensor(a).qr())
    np.testing.assert_allclose(q @ r, a, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(r, np.triu(r))
    assert_orthogonal(q)


def test_svd_of_a_larger_matrix() -> None:
    assert_svd(normal(48, 40), True, rtol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 3, 3), (2, 0, 3)], ids=str)
def test_empty_matrices(shape: tuple[int, ...]) -> None:
    a = np.zeros(shape, dtype=np.float32)
    q, r = read(*Tensor(a).qr())
    assert (q.shape, r.shape) == ((*shape[:-1], shape[-2]), shape)
    for full in (True, False):
        found, wanted = read(*Tensor(a).svd(full)), np.linalg.svd(a, full_matrices=full)
        assert [x.shape for x in found] == [x.shape for x in wanted]


def test_dtypes() -> None:
    half = Tensor(normal(3, 3)).half()
    assert [x.dtype for x in (*half.qr(), *half.svd(), half.inverse())] == [dtypes.half] * 6
    assert Tensor([[1, 2], [3, 4]]).svd()[1].dtype is dtypes.float32
    a = RNG.normal(size=(4, 3))
    u, s, vt = read(*Tensor(a).svd(False))
    np.testing.assert_allclose((u * s) @ vt, a, atol=1e-14)


def test_nan_stays() -> None:
    a = np.full((3, 3), np.nan, dtype=np.float32)
    assert np.isnan(Tensor(a).svd()[1].numpy()).all()


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 5, 5)], ids=str)
def test_inverse(shape: tuple[int, ...]) -> None:
    a = normal(*shape)
    np.testing.assert_allclose(Tensor(a).inverse().numpy() @ a, np.broadcast_to(np.eye(shape[-1]), shape), atol=1e-4)


def test_inverse_needs_pivots() -> None:
    np.testing.assert_allclose(Tensor([[0.0, 2.0], [1.0, 0.0]]).inverse().numpy(), [[0, 1], [0.5, 0]])


def test_newton_schulz() -> None:
    a = normal(2, 3, 5)
    wanted = []
    for m in a.astype(np.float64):
        x = m / (np.linalg.norm(m) + 1e-7)
        for _ in range(4):
            g = x @ x.T
            x = 2 * x - 1.5 * g @ x + 0.5 * g @ g @ x
        wanted.append(x)
    found = Tensor(a).newton_schulz(4, (2, -1.5, 0.5))
    np.testing.assert_allclose(found.numpy(), wanted, atol=2e-6)
    np.testing.assert_allclose(
        Tensor(turned(a).copy()).newton_schulz(4, (2, -1.5, 0.5)).numpy(), turned(np.array(wanted)), atol=2e-6
    )


# ---- gradients: of functions that do not depend on the signs of the factors ------------------------------------------


def signed_qr(x: Any, qr: Callable[..., Any], k: int) -> tuple[Any, Any]:
    q, r = qr(x)
    sign = r.diagonal(0, -2, -1).sign()
    return q[..., :k] * sign.unsqueeze(-2), r[..., :k, :] * sign.unsqueeze(-1)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3)], ids=str)
@pytest.mark.parametrize("name", ["qr", "u", "s and v"])
def test_gradients(shape: tuple[int, ...], name: str) -> None:
    k, a = min(shape[-2:]), normal(*shape)
    left, right = normal(*shape[:-1], shape[-2]), normal(*shape[:-2], shape[-1], shape[-1])

    def run(x: Any, qr: Any, svd: Any, to: Any) -> Any:
        if name == "qr":
            q, r = signed_qr(x, qr, k)
            return (q * to(left)[..., :k]).sum() + (r * r * r).sum()
        u, s, vt = svd(x)
        if name == "u":
            return ((u * s.unsqueeze(-2)) @ u.transpose(-1, -2) * to(left)).sum()
        return ((vt.transpose(-1, -2) * (s + 1).unsqueeze(-2)) @ vt * to(right)).sum()

    x, t = Tensor(a), torch.tensor(a, dtype=torch.float64, requires_grad=True)
    run(x, Tensor.qr, lambda m: m.svd(False), Tensor).backward()
    run(t, torch.linalg.qr, lambda m: torch.linalg.svd(m, full_matrices=False), torch.tensor).backward()
    wanted = t.grad.numpy()
    np.testing.assert_allclose(x.grad.numpy(), wanted, atol=1e-4 * max(1.0, float(np.abs(wanted).max())))


def test_gradient_of_the_inverse() -> None:
    a, w = normal(4, 4) + 3 * np.eye(4, dtype=np.float32), normal(4, 4)
    x, t = Tensor(a), torch.tensor(a, requires_grad=True)
    (x.inverse() * Tensor(w)).sum().backward()
    (torch.linalg.inv(t) * torch.tensor(w)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), atol=1e-5)


# ---- storage, errors -------------------------------------------------------------------------------------------------


def test_results_keep_their_values() -> None:
    u, s, vt = Tensor([[1.0, 2.0], [3.0, 4.0]]).svd()
    vt.realize()
    vt.assign(0).realize()
    np.testing.assert_allclose(s.numpy(), np.linalg.svd([[1.0, 2.0], [3.0, 4.0]])[1], rtol=1e-6)
    assert vt.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert_orthogonal(u.numpy())


def test_inside_a_jit() -> None:
    @TinyJit
    def factors(x: Tensor) -> tuple[Tensor, Tensor]:
        q, r = x.qr()
        return q.realize(), r.realize()

    for _ in range(4):
        a = normal(3, 3)
        q, r = factors(Tensor(a).clone().realize())
        np.testing.assert_allclose(q.numpy() @ r.numpy(), a, atol=2e-6)


def test_errors() -> None:
    for method in ("qr", "svd", "inverse"):
        with pytest.raises(AssertionError, match=f"{method}: shape"):
            getattr(Tensor([1.0, 2.0]), method)()
    with pytest.raises(AssertionError, match="newton_schulz: 1 dims"):
        Tensor([1.0, 2.0]).newton_schulz(1, (1.0,))
    with pytest.raises(ValueError, match="inverse: the matrices are 2 x 3"):
        Tensor.ones(2, 3).inverse()
    n = Variable("n", 1, 4).bind(3)
    with pytest.raises(AssertionError, match="static sizes"):
        Tensor.ones(4, 4)[:n].qr()
