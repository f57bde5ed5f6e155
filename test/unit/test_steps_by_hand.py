"""Training steps that are written by hand: nothing that is read between them changes them, and none is a false warning.

Each program is run without reads, with a read at every place, and with one at every second place: the parameters come
out equal, and no warning tells that a gradient is missing. Programs in which one is missing say so.
"""

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor

STEPS = 4
Read = Callable[..., None]
Program = Callable[[Read], Sequence[Tensor]]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).realize()


def zeros_like(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [Tensor.zeros(*p.shape).contiguous().realize() for p in parameters]


def parameters() -> list[Tensor]:
    return [numbers(3, 4, seed=1), numbers(4, seed=2), numbers(4, 2, seed=3)]


def outputs(ps: Sequence[Tensor]) -> Tensor:
    return (numbers(6, 3, seed=4) @ ps[0] + ps[1]).tanh() @ ps[2]


def loss_of(ps: Sequence[Tensor]) -> Tensor:
    return ((outputs(ps) - numbers(6, 2, seed=5)) ** 2).mean()


def by_backward(loss: Tensor, ps: Sequence[Tensor]) -> list[Tensor]:
    for p in ps:
        p.grad = None
    loss.backward()
    return [p.grad for p in ps]  # type: ignore[misc]


def by_gradient(loss: Tensor, ps: Sequence[Tensor]) -> list[Tensor]:
    return loss.gradient(*ps)


GRADIENTS = (by_backward, by_gradient)


def descent(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    for _ in range(STEPS):
        loss = loss_of(ps)
        found = gradients(loss, ps)
        read(loss, *ps)
        for p, g in zip(ps, found, strict=True):
            p.assign(p - 0.1 * g)
        read(loss, *ps)
    return ps


def momentum(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    ms = zeros_like(ps)
    for _ in range(STEPS):
        loss = loss_of(ps)
        for p, g, m in zip(ps, gradients(loss, ps), ms, strict=True):
            decayed = g + p * 0.01
            m.assign(m * 0.9 + decayed)
            read(m)
            p.assign(p - 0.1 * (decayed + 0.9 * m))
            read(p)
        read(loss, *ms)
    return ps


def adam(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    ms, vs = zeros_like(ps), zeros_like(ps)
    for i in range(1, STEPS + 1):
        loss = loss_of(ps)
        for p, g, m, v in zip(ps, gradients(loss, ps), ms, vs, strict=True):
            m.assign(m * 0.9 + g * 0.1)
            v.assign(v * 0.99 + g * g * 0.01)
            read(m, v)
            p.assign(p - 0.1 * (m / (1 - 0.9**i)) / ((v / (1 - 0.99**i)).sqrt() + 1e-6))
        read(*ps)
        read(loss, *ms, *vs)
    return ps


def scaled_by_norms(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    ms = zeros_like(ps)
    for _ in range(STEPS):
        for p, g, m in zip(ps, gradients(loss_of(ps), ps), ms, strict=True):
            m.assign(m * 0.9 + g * 0.1)
            read(m)
            p.assign(p - 0.1 * m * p.square().sum().sqrt() / (m.square().sum().sqrt() + 1e-3))
            read(p)
    return ps


def clipped(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    for _ in range(STEPS):
        found = gradients(loss_of(ps), ps)
        norm = Tensor.stack(*((g * g).sum() for g in found)).sum().sqrt()
        read(norm)
        for p, g in zip(ps, found, strict=True):
            p.assign(p - 0.1 * g * (1 / norm).minimum(1))
        read(*ps)
    return ps


def stored(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    for _ in range(STEPS):
        found = gradients(loss_of(ps), ps)
        read(*found)
        Tensor.realize(*found)
        for p, g in zip(ps, found, strict=True):
            p.assign(p - 0.1 * g)
        read(*ps)
    return ps


def with_loss_scale(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps, scale = parameters(), Tensor([8.0]).realize()
    for _ in range(STEPS):
        loss = loss_of(ps) * scale.detach().sum()
        found = [g / scale.detach() for g in gradients(loss, ps)]
        is_bad = Tensor.stack(*(g.isinf().sum() for g in found)).sum() > 0
        for p, g in zip(ps, found, strict=True):
            p.assign(is_bad.where(p, p - 0.1 * g))
            read(p)
        scale.assign(is_bad.where(scale * 0.5, scale * 1.5))
        read(scale, loss)
    return ps


def with_an_average(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    average = [p.clone().realize() for p in ps]
    for _ in range(STEPS):
        loss = ((outputs(ps) - outputs(average).detach()) ** 2).mean() + loss_of(ps)
        found = gradients(loss, ps)
        read(loss)
        for p, g in zip(ps, found, strict=True):
            p.assign(p - 0.1 * g)
        for p, a in zip(ps, average, strict=True):
            a.assign(0.9 * a + 0.1 * p.detach())
        read(*average)
        read(loss_of(average))
    return [*ps, *average]


def with_a_state_that_reads_detached_weights(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    w, u = numbers(4, 4, seed=6), numbers(4, seed=7)
    for _ in range(STEPS):
        product = w.detach() @ u
        u.assign(product / product.square().sum().sqrt())
        read(u)
        loss = (w * numbers(4, 4, seed=8)).tanh().sum() * (u.detach() @ (w @ u.detach()))
        (g,) = gradients(loss, [w])
        read(loss)
        w.assign(w - 0.01 * g)
        read(w)
    return [w, u]


def accumulated(gradients: Callable[..., list[Tensor]], read: Read) -> list[Tensor]:
    ps = parameters()
    sums = zeros_like(ps)
    for i in range(STEPS):
        for s, g in zip(sums, gradients(loss_of(ps), ps), strict=True):
            s += g
        read(sums[0])
        if i % 2:
            for p, s in zip(ps, sums, strict=True):
                p -= 0.05 * s
                s.assign(Tensor.zeros(*s.shape))
            read(*ps)
    return ps


PROGRAMS = (
    descent,
    momentum,
    adam,
    scaled_by_norms,
    clipped,
    stored,
    with_loss_scale,
    with_an_average,
    with_a_state_that_reads_detached_weights,
    accumulated,
)


@pytest.mark.parametrize("gradients", GRADIENTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_reads_between_steps_change_nothing(program: Callable[..., list[Tensor]], gradients: Any) -> None:
    expected = [t.numpy() for t in program(gradients, lambda *_: None)]
    for every in (1, 2):
        places = itertools.count()

        def read(*values: Tensor, every: int = every, places: Any = places) -> None:
            if next(places) % every == 0:
                for value in values:
                    value.numpy()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = [t.numpy() for t in program(gradients, read)]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("other_way", [lambda z, w: (z * w).sum(), lambda z, w: w.sum() * 0, lambda z, w: 0])
def test_a_gradient_that_is_missing_in_part_is_a_warning(other_way: Callable[..., Any]) -> None:
    w, z = Tensor([1.5, -2.0, 0.5]).realize(), Tensor([3.0, 4.0, 5.0]).realize()
    z *= w
    z.numpy()
    with pytest.warns(RuntimeWarning, match=r"tensors of shape \(3,\) get no gradient through it"):
        (other_way(z, w) + (z * z).sum()).gradient(w)


@pytest.mark.parametrize("is_read", [True, False])
def test_no_gradient_goes_through_the_step_that_another_parameter_took_by_its_gradient(is_read: bool) -> None:
    a, c = Tensor([2.0]).realize(), Tensor([3.0]).realize()
    for expected in (0.8, 0.8 - 0.1 * 2 * 0.8 * 3.0):
        (g,) = (a * a * c).sum().gradient(a)
        a.assign(a - 0.1 * g)
        if is_read:
            a.numpy()
        assert (a * c).sum().gradient(c)[0].item() == pytest.approx(expected)


def test_gradients_go_through_fast_weights() -> None:
    w = Tensor([1.5, -2.0]).realize()
    fast = w.clone()
    (g,) = (fast * fast * fast).sum().gradient(fast)
    fast.assign(fast - 0.1 * g)
    (found,) = (fast * fast).sum().gradient(w)
    after = np.array([1.5, -2.0]) - 0.3 * np.array([1.5, -2.0]) ** 2
    np.testing.assert_allclose(found.numpy(), 2 * after * (1 - 0.6 * np.array([1.5, -2.0])), rtol=1e-5)
