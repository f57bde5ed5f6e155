"""Differentiation: rules, the walk, accumulation, writes, calls, higher derivatives, depth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from test.helpers_timing import processor_seconds
from tinygrad import Tensor, dtypes
from tinygrad.mixin.gradient import compute_gradient, pm_gradient, reduce_gradient
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def test_second_derivative() -> None:
    x = Tensor([2.0])
    first = (x * 3).exp().sum().gradient(x)[0]
    np.testing.assert_allclose(first.sum().gradient(x)[0].numpy(), [9 * math.exp(6)], rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["exp", "log", "sin", "cos", "tanh", "sigmoid", "sqrt", "erf", "asinh", "log1p", "expm1", "softplus", "square"],
)
def test_second_derivative_like_torch(name: str) -> None:
    ours, theirs = Tensor([0.3, 0.8, 1.7]), torch.tensor([0.3, 0.8, 1.7], requires_grad=True)
    function = torch.nn.functional.softplus if name == "softplus" else getattr(torch, name)
    expected = torch.autograd.grad(
        torch.autograd.grad(function(theirs).sum(), theirs, create_graph=True)[0].sum(), theirs
    )[0]
    got = getattr(ours, name)().sum().gradient(ours)[0].sum().gradient(ours)[0]
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_second_derivative_of_variance() -> None:
    values = [1.0, 2.0, 4.0]
    ours, theirs = Tensor(values), torch.tensor(values, requires_grad=True)
    first = torch.autograd.grad((theirs.var() ** 2), theirs, create_graph=True)[0]
    expected = torch.autograd.grad((first * torch.tensor([1.0, 3.0, -2.0])).sum(), theirs)[0]
    got = ((ours.var() ** 2).gradient(ours)[0] * Tensor([1.0, 3.0, -2.0])).sum().gradient(ours)[0]
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4)


def test_backward_fills_parameters_and_intermediates() -> None:
    x, w = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    y = x * w
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    assert w.grad.tolist() == [1.0, 2.0]
    assert y.grad.tolist() == [1.0, 1.0]


def test_backward_leaves_requires_grad_false_alone() -> None:
    x = Tensor([1.0, 2.0], requires_grad=False)
    copies, w, frozen = [x.clone(), x.to("PYTHON").to("CPU")], Tensor([3.0, 4.0]), Tensor([5.0, 6.0]).is_param_(False)
    assert not any(t.requires_grad for t in copies)
    loss = (x * w * frozen).sum()
    for copy in copies:
        loss = loss + (copy * w).sum()
    loss.backward()
    assert [t.grad for t in (x, *copies)] == [None, None, None]
    assert (w.grad.tolist(), frozen.grad.tolist()) == ([7.0, 16.0], [3.0, 8.0])
    (x.requires_grad_() * w).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    assert x.gradient(x.requires_grad_(False), gradient=Tensor([1.0, 1.0]))[0].tolist() == [1.0, 1.0]


def test_backward_twice_adds() -> None:
    x, w = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    for _ in range(2):
        (x * w).sum().backward()
    assert x.grad.tolist() == [6.0, 8.0]
    x.grad.realize()
    grad = x.grad
    (x * w).sum().backward()
    assert x.grad is grad, "a realized gradient keeps its storage"
    assert x.grad.tolist() == [9.0, 12.0]


def test_gradient_does_not_touch_grad() -> None:
    x, other = Tensor([1.0, 2.0]), Tensor([[5.0]])
    found = (x * x).sum().gradient(x, other)
    assert [g.tolist() for g in found] == [[2.0, 4.0], [[0.0]]]
    assert x.grad is None


def test_gradient_given() -> None:
    x = Tensor([1.0, 2.0])
    (x * x).backward(gradient=Tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 40.0]


def test_errors() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(AssertionError, match="must be called on a scalar"):
        (x * 2).backward()
    with pytest.raises(AssertionError, match="shape of the tensor"):
        (x * 2).backward(Tensor([1.0]))
    with pytest.raises(RuntimeError, match="only float Tensors have gradient"):
        Tensor([1, 2]).sum().backward()
    with pytest.raises(RuntimeError, match="only float Tensors have gradient"):
        x.sum().gradient(Tensor([1, 2]))


MAKE_A_PARAMETER = {
    "Tensor(2.0)": lambda: Tensor(2.0, requires_grad=True),
    "with a dtype": lambda: Tensor(2.0, dtype="half", requires_grad=True),
    "numpy scalar": lambda: Tensor(np.float32(2.0), requires_grad=True),
    "numpy array of no dims": lambda: Tensor(np.array(2.0), requires_grad=True),
    "requires_grad_()": lambda: Tensor(2.0).requires_grad_(),
    "arange": lambda: Tensor.arange(2.0, requires_grad=True),
    "eye": lambda: Tensor.eye(2, requires_grad=True),
    "full": lambda: Tensor.full((2,), 2.0, buffer=False, requires_grad=True),
}


@pytest.mark.parametrize("make", MAKE_A_PARAMETER.values(), ids=MAKE_A_PARAMETER)
def test_constants_that_require_gradients_have_storage(make: Callable[[], Tensor]) -> None:
    x = make()
    same = Tensor(2.0) + 0 * x.detach()  # the same value, which is not x
    (x * 2.0 * same).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(x.shape, 4.0))
    assert (x / 2.0).sum().gradient(x)[0].numpy().flatten()[0] == 0.5
    assert x.device == Tensor([1.0]).device


def test_detach_cuts() -> None:
    x = Tensor([2.0])
    (x.detach() * x).sum().backward()
    assert x.grad.tolist() == [2.0]
    y = Tensor([2.0])
    (y.detach() * x).sum().backward()
    assert y.grad is None


def test_where_and_comparison() -> None:
    x = Tensor([-1.0, 2.0])
    (x > 0).where(x * x, x * 5).sum().backward()
    assert x.grad.tolist() == [5.0, 4.0]


def test_corner_conventions() -> None:
    def grad(function, values: list[float]) -> list[float]:
        x = Tensor(values)
        function(x).sum().backward()
        return x.grad.tolist()

    assert grad(lambda x: x.relu(), [0.0, -0.0, 1.0]) == [0.0, 0.0, 1.0]
    assert grad(lambda x: x.abs(), [0.0, -2.0]) == [0.0, -1.0]
    assert grad(lambda x: x.sign(), [0.0, -2.0]) == [0.0, 0.0]
    assert grad(lambda x: x.clip(0, 1), [0.0, 1.0, 2.0]) == [1.0, 1.0, 0.0]
    assert grad(lambda x: x.sqrt(), [0.0]) == [math.inf]
    assert grad(lambda x: x.maximum(1.0), [1.0, 2.0]) == [0.5, 1.0]
    assert grad(lambda x: x**0, [0.0, 3.0]) == [0.0, 0.0]
    assert grad(lambda x: Tensor([0.0, 2.0]) ** x, [2.0, 0.0]) == [0.0, pytest.approx(math.log(2))]
    assert grad(lambda x: x.pow(Tensor([0.0, 2.0])), [0.0, 0.0]) == [0.0, 0.0]
    assert grad(lambda x: x.trunc(), [1.5]) == [0.0]


@pytest.mark.parametrize(
    "name", ["elu", "celu", "selu", "softplus", "sigmoid", "tanh", "logsigmoid", "gelu", "mish", "silu"]
)
def test_saturation_is_finite(name: str) -> None:
    x = Tensor([-300.0, -100.0, 100.0, 300.0])
    getattr(x, name)().sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_broadcast_sums() -> None:
    x, y = Tensor([[1.0], [2.0]]), Tensor([1.0, 2.0, 3.0])
    (x * y).sum().backward()
    assert x.grad.tolist() == [[6.0], [6.0]]
    assert y.grad.tolist() == [3.0, 3.0, 3.0]


def test_casts() -> None:
    x = Tensor([1.0, 2.0])
    (x.half() * 3).float().sum().backward()
    assert x.grad.dtype == dtypes.float32
    assert x.grad.tolist() == [3.0, 3.0]
    assert x.int().float().sum().gradient(x)[0].tolist() == [0.0, 0.0]


def test_empty_matmul() -> None:
    a, b = Tensor.zeros(4, 0), Tensor.zeros(0, 4)
    ga, gb = (a @ b).sum().gradient(a, b)
    assert ga.numpy().shape == (4, 0)
    assert gb.numpy().shape == (0, 4)


# ---- writes --------------------------------------------------------------------------------------------------------


def test_gradient_through_assigned_view() -> None:
    t, v = Tensor.zeros(2, 5).contiguous(), Tensor.ones(2, 3)
    t[:, ::2].assign(v * 3)
    loss = (t * Tensor.arange(10).reshape(2, 5)).sum()
    assert loss.gradient(v)[0].tolist() == [[0.0, 6.0, 12.0], [15.0, 21.0, 27.0]]


def test_gradient_of_what_is_not_overwritten() -> None:
    x, v = Tensor([1.0, 2.0, 3.0]), Tensor([5.0])
    t = (x * 2).clone()
    t[1:2].assign(v * v)
    gx, gv = (t * Tensor([1.0, 10.0, 100.0])).sum().gradient(x, v)
    assert gx.tolist() == [2.0, 0.0, 200.0]
    assert gv.tolist() == [100.0]


def test_gradient_through_clone_and_contiguous() -> None:
    x = Tensor([1.0, 2.0])
    (x.clone() * x.contiguous() * x.contiguous_backward()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [3.0, 12.0])


# ---- calls ---------------------------------------------------------------------------------------------------------


def test_call_is_differentiated_through_its_body() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    result = x.call(y, fxn=x.as_param(0) * y.as_param(1) + x.as_param(0))
    assert result.tolist() == [4.0, 10.0]
    gx, gy = x.call(y, fxn=x.as_param(0) * y.as_param(1) + x.as_param(0)).sum().gradient(x, y)
    assert gx.tolist() == [4.0, 5.0]
    assert gy.tolist() == [1.0, 2.0]


def test_call_with_gradient_function() -> None:
    x = Tensor([1.0, 2.0])
    result = x.call(fxn=x.as_param(0) * 2, grad_fxn=lambda grad, call: (grad * 100,))
    assert result.sum().gradient(x)[0].tolist() == [100.0, 100.0]


def test_backward_call_is_named() -> None:
    x = UOp.param(0, dtypes.float32, (3,), "CPU")
    arg = UOp.new_buffer("CPU", 3, dtypes.float32)
    call = (x * x).call(arg, name="square")
    grad = compute_gradient(call.gettuple(0), arg.const_like(1.0), [arg])[arg]
    assert grad.op is Ops.GETTUPLE
    assert grad.src[0].arg.name == "square_backward"


# ---- the table and the walk ----------------------------------------------------------------------------------------


def test_rule_table() -> None:
    a, b = (UOp.new_buffer("CPU", 4, dtypes.float32) for _ in range(2))
    ctx = UOp.new_buffer("CPU", 4, dtypes.float32)
    assert pm_gradient.rewrite(a + b, ctx=ctx) == (ctx, ctx)
    ga, gb = pm_gradient.rewrite(a * b, ctx=ctx)
    assert ga is b * ctx
    assert gb is a * ctx
    total = a._rop(Ops.ADD, (0,))
    assert reduce_gradient(ctx.shrink(((0, 1),)), total, Ops.ADD)[0].shape == (4,)


def test_missing_rule_is_named() -> None:
    x = UOp.new_buffer("CPU", 4, dtypes.float32)
    with pytest.raises(RuntimeError, match="failed to compute gradient for CUSTOMI"):
        compute_gradient(UOp(Ops.CUSTOMI, dtypes.float32, (x,), "f({0})"), x, [x])


def test_long_chain_is_linear() -> None:
    def build(n: int) -> None:
        x = Tensor([1.0])
        y = x
        for _ in range(n):
            y = y * x + 1
        y.sum().gradient(x)

    build(1000)
    short, long = (processor_seconds(lambda n=n: build(n)) for n in (2000, 20_000))
    assert long < 30 * short + 1


def test_many_consumers_make_a_shallow_sum() -> None:
    x = Tensor([1.0])
    total = sum((x * i for i in range(200)), Tensor([0.0]))
    assert total.sum().gradient(x)[0].item() == 199 * 100


VIEWS = [
    ("slice", lambda t: t[1:, :2]),
    ("steps", lambda t: t[::2, 1::2]),
    ("backwards", lambda t: t[::-1, ::-2]),
    ("row", lambda t: t[2]),
    ("transposed", lambda t: t.T[1:3]),
    ("reshaped", lambda t: t.reshape(2, 8)[:, 3:6]),
    ("of a view", lambda t: t[1:][:, 1:][::2]),
    ("whole", lambda t: t),
    ("flat", lambda t: t.reshape(-1)[5:6]),
]


@pytest.mark.parametrize("view", [v for _, v in VIEWS], ids=[n for n, _ in VIEWS])
def test_gradient_through_writes_to_views(view: object) -> None:
    rng = np.random.default_rng(0)
    base = rng.standard_normal((4, 4)).astype(np.float32)
    values = rng.standard_normal(view(Tensor(base)).shape).astype(np.float32)
    weight = rng.standard_normal((4, 4)).astype(np.float32)
    x, v = torch.tensor(base, requires_grad=True), torch.tensor(values, requires_grad=True)
    # torch has no negative steps: the numbers of the elements say where a view writes.
    places = view(Tensor(np.arange(16, dtype=np.int32).reshape(4, 4))).numpy().reshape(-1)
    written = (x * 2).reshape(-1).index_put((torch.tensor(places),), (v * v).reshape(-1)).reshape(4, 4)
    (written * written * torch.tensor(weight)).sum().backward()
    a, b = Tensor(base), Tensor(values)
    t = (a * 2).clone()
    view(t).assign(b * b)
    ga, gb = (t * t * Tensor(weight)).sum().gradient(a, b)
    np.testing.assert_allclose(t.numpy(), written.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(ga.numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gb.numpy(), v.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_gradient_of_rows_read_one_by_one() -> None:
    x = Tensor(np.arange(24, dtype=np.float32).reshape(8, 3))
    total = sum(((x[i] * x[i]).sum() * i for i in range(1, 7)), Tensor(0.0))
    grad = total.gradient(x)[0]
    expected = 2 * x.numpy() * np.array([0, 1, 2, 3, 4, 5, 6, 0])[:, None]
    np.testing.assert_allclose(grad.numpy(), expected)
    overlapping = sum((x[i : i + 2].sum() for i in range(6)), Tensor(0.0)).gradient(x)[0]
    assert overlapping.numpy()[:, 0].tolist() == [1, 2, 2, 2, 2, 2, 1, 0]


@pytest.mark.parametrize("exponent", [-3, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 1.3, -1.3, 20])
def test_powers_where_steps_would_be_zero_times_infinity(exponent: float) -> None:
    values = np.array([0.0, -0.0, 1e-3, 1.0, 2.5, math.inf, math.nan], np.float32)
    ours, theirs = Tensor(values), torch.tensor(values, requires_grad=True)
    (expected,) = torch.autograd.grad((theirs**exponent).sum(), theirs)
    np.testing.assert_allclose((ours**exponent).sum().gradient(ours)[0].numpy(), expected.numpy(), rtol=1e-5)
    finite, plain = Tensor(values[2:5]), torch.tensor(values[2:5], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad((plain**exponent).sum(), plain, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), plain) if exponent not in {0, 1} else (torch.zeros(3),)
    got = ((finite**exponent).sum().gradient(finite)[0] ** 2).sum().gradient(finite)[0]
    np.testing.assert_allclose(got.numpy(), second.numpy(), rtol=1e-4, atol=1e-38)
