"""Gradients of every differentiable operation: by differences in float64, beside torch, and twice for smooth ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from test.helpers_gradcheck import gradcheck, once, row, spread, table
from tinygrad import Tensor, Variable, function

F = torch.nn.functional


# ---- one value -----------------------------------------------------------------------------------------------------

ANY, POSITIVE, UNIT, ABOVE1 = (-2.0, 2.0), (0.2, 3.0), (-0.9, 0.9), (1.1, 4.0)
UNARY = {
    "neg": ANY, "abs": ANY, "sign": ANY, "square": ANY, "sqrt": POSITIVE, "rsqrt": POSITIVE, "reciprocal": POSITIVE,
    "exp": ANY, "exp2": ANY, "log": POSITIVE, "log2": POSITIVE, "log10": POSITIVE, "sin": ANY, "cos": ANY,
        "tan": (-1, 1),
    "asin": UNIT, "acos": UNIT, "atan": (-4, 4), "sinh": ANY, "cosh": ANY, "asinh": (-4, 4), "acosh": ABOVE1,
    "atanh": UNIT, "erf": ANY, "expm1": ANY, "log1p": (-0.5, 3), "trunc": ANY, "ceil": ANY, "floor": ANY, "round": ANY,
    "relu": ANY, "relu6": (-2, 8), "sigmoid": (-4, 4), "tanh": ANY, "softsign": ANY, "logsigmoid": (-5, 5),
    "silu": (-4, 4), "mish": (-4, 4), "hardswish": (-5, 5), "softplus": (-5, 5), "selu": ANY,
}  # fmt: skip
IN_F = {"relu6", "softsign", "logsigmoid", "silu", "mish", "hardswish", "softplus"}
# The documented constants of selu have five digits.
UNLIKE_TORCH = {"selu"}
FLAT = {"neg", "abs", "sign", "trunc", "ceil", "floor", "round", "relu", "relu6"}


@pytest.mark.parametrize("name", UNARY)
def test_one_value(name: str) -> None:
    like = None if name in UNLIKE_TORCH else getattr(F, name) if name in IN_F else getattr(torch, name)
    gradcheck(lambda x: getattr(x, name)(), ((3, 5), *UNARY[name]), like=like, second=name not in FLAT)


@table(
    row("elu", lambda x: x.elu(0.7), (9,), like=lambda x: F.elu(x, 0.7)),
    row("celu", lambda x: x.celu(0.7), (9,), like=lambda x: F.celu(x, 0.7)),
    row("gelu-tanh", lambda x: x.gelu(), (9,), like=lambda x: F.gelu(x, approximate="tanh")),
    row("gelu-erf", lambda x: x.gelu("none"), (9,), like=F.gelu),
    row("quick_gelu", lambda x: x.quick_gelu(), (9,), like=lambda x: x * (1.702 * x).sigmoid()),
    row("swish", lambda x: x.swish(), (9,), like=F.silu),
    row("softplus-beta", lambda x: x.softplus(3.0), (9,), like=lambda x: F.softplus(x, 3.0, 1e9)),
    once("leaky_relu", lambda x: x.leaky_relu(0.2), (9,), like=lambda x: F.leaky_relu(x, 0.2)),
    once("hardsigmoid", lambda x: x.hardsigmoid(), ((9,), -5, 5), like=F.hardsigmoid),
    once("hardsigmoid-options", lambda x: x.hardsigmoid(0.3, 0.4), ((9,), -5, 5), like=None),
    once("hardtanh", lambda x: x.hardtanh(-0.7, 1.2), (9,), like=lambda x: F.hardtanh(x, -0.7, 1.2)),
    once("double-relu", lambda x: x.relu() - x.relu(), (9,)),
    row("selu-options", lambda x: x.selu(1.5, 1.2), (9,), like=lambda x: 1.2 * F.elu(x, 1.5)),
)
def test_activations(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


# ---- two values ----------------------------------------------------------------------------------------------------

P34, P4 = ((3, 4), 0.3, 2.5), ((4,), 0.4, 2.2)
MASK = np.arange(12).reshape(3, 4) % 3 == 0


@table(
    row("add-mul-sub", lambda a, b: (a + b) * (2 - a) - b * 3, (3, 4), (4,)),
    row("div", lambda a, b: a / b, (3, 1), P34), row("rdiv", lambda a: 2 / a, P34),
    once("div-trunc", lambda a, b: a.div(b, rounding_mode="trunc") + a, P34, P4),
    once("div-floor", lambda a, b: a.div(b, rounding_mode="floor") + b, P34, P4),
    once("mod", lambda a, b: a % b, (3, 4), ((4,), 0.71, 2.9)), once("mod-negative", lambda a: a % -0.7, (3, 4)),
    once("fmod", lambda a, b: a.fmod(b), (3, 4), ((4,), 0.71, 2.9)),
    row("pow", lambda a, b: a**b, P34, (4,)), row("pow-constant", lambda a: a**3 + a**-2 + a**0.5 + a**0 + a**1, P34),
    row("pow-of-negative", lambda a: a**3 + a**2, (3, 4)), row("rpow", lambda a: 2.5**a, (3, 4)),
    once("maximum", lambda a, b: a.maximum(b), (3, 4), ((4,), -1.7, 1.9)),
    once("minimum", lambda a, b: a.minimum(b), (3, 4), ((4,), -1.7, 1.9)),
    once("copysign", lambda a, b: a.copysign(b), (3, 4), (4,)),
    row("logaddexp", lambda a, b: a.logaddexp(b), (3, 4), (4,)),
    row("lerp", lambda a, b, w: a.lerp(b, w), (3, 4), (3, 4), (4,), like=torch.lerp),
    once("lerp-number", lambda a, b: a.lerp(b, 0.3), (3, 4), (3, 4)),
    once("clamp", lambda a: a.clamp(-1.1, 0.9) + a.clip(max_=0.3) + a.clamp(min_=-0.4), (3, 4),
         like=lambda a: a.clamp(-1.1, 0.9) + a.clip(max=0.3) + a.clamp(min=-0.4)),
    once("clamp-tensors", lambda a, lo, hi: a.clamp(lo, hi), (3, 4), ((4,), -1.2, -0.3), ((3, 1), 0.2, 1.4)),
    once("where", lambda m, a, b: m.where(a, b), MASK, (3, 4), (4,), like=lambda m, a, b: torch.where(m, a, b)),
    once("where-number", lambda m, a: m.where(a, 2.0) + m.where(1.0, a), MASK, (4,),
         like=lambda m, a: torch.where(m, a, 2.0) + torch.where(m, 1.0, a)),
    once("masked_fill", lambda a, m, v: a.masked_fill(m, v), (3, 4), MASK, (4,),
         like=lambda a, m, v: torch.where(m, v, a)),
    once("usum", lambda a, b, c: a.usum(b, c), (3, 4), (4,), (3, 1), like=lambda a, b, c: a + b + c),
    row("uprod", lambda a, b, c: a.uprod(b, c), (3, 4), (4,), (3, 1), like=lambda a, b, c: a * b * c),
    row("same-operand", lambda a: a * a + a / (a * a + 1) - a, (3, 4)),
    row("0-d", lambda a, b: a * b.exp(), (), (3,)),
)  # fmt: skip
def test_two_values(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


# ---- movement ------------------------------------------------------------------------------------------------------


@table(
    once("reshape", lambda x: x.reshape(4, 6).view(2, -1), (2, 3, 4)),
    once("expand", lambda x: x.expand(2, 3, 4), (3, 1), like=lambda x: x.expand(2, 3, 4)),
    once("permute", lambda x: x.permute(2, 0, 1), (2, 3, 4)), once("transpose", lambda x: x.transpose(0, 2), (2, 3, 4)),
    once("T", lambda x: x.T, (2, 3)), once("flip", lambda x: x.flip((0, 2)), (2, 3, 4)),
    once("shrink", lambda x: x.shrink(((0, 2), None, (1, 3))), (2, 3, 4), like=lambda x: x[:2, :, 1:3]),
    once("shrink_to", lambda x: x.shrink_to(1, None, 3), (2, 3, 4), like=lambda x: x[:1, :, :3]),
    once("squeeze", lambda x: x.squeeze(1).unsqueeze(0).squeeze(), (2, 1, 3)),
    once("flatten", lambda x: x.flatten(1).unflatten(1, (2, -1)), (2, 3, 4)),
    once("rearrange", lambda x: x.rearrange("a (b c) d -> (d b) a c", b=2), (2, 6, 3), like=None),
    once("split", lambda x: x.split([1, 3, 2], 1), (2, 6)), once("split-int", lambda x: x.split(4, 1)[1], (2, 6)),
    once("chunk", lambda x: x.chunk(3, 1), (2, 7)),
    once("meshgrid", lambda a, b: a.meshgrid(b), (3,), (4,), like=lambda a, b: torch.meshgrid(a, b, indexing="ij")),
    once("meshgrid-xy", lambda a, b: a.meshgrid(b, indexing="xy"), (3,), (4,),
         like=lambda a, b: torch.meshgrid(a, b, indexing="xy")),
    once("repeat", lambda x: x.repeat(2, 3, 1), (2, 3)),
    once("repeat_interleave", lambda x: x.repeat_interleave(3, 1), (2, 3)),
    once("repeat_interleave-flat", lambda x: x.repeat_interleave(2), (2, 3)),
    once("roll", lambda x: x.roll((1, -2), (0, 1)), (3, 4)), once("roll-flat", lambda x: x.roll(5), (3, 4)),
    once("diag", lambda x: x.diag(), (4,)), once("diagonal", lambda x: x.diagonal(), (4, 5)),
    once("diagonal-dims", lambda x: x.diagonal(-1, 2, 0), (4, 2, 5)),
    once("unfold", lambda x: x.unfold(1, 3, 2), (2, 8)), once("unfold-overlap", lambda x: x.unfold(0, 4, 1), (7, 2)),
    once("triu", lambda x: x.triu(1), (2, 4, 5)), once("tril", lambda x: x.tril(-1), (4, 5)),
    once("pad-flat", lambda x: x.pad((1, 2, 0, 1)), (3, 4), like=lambda x: F.pad(x, (1, 2, 0, 1))),
    once("pad-groups", lambda x: x.pad(((1, 0), None)), (3, 4), like=lambda x: F.pad(x, (0, 0, 1, 0))),
    once("pad-value", lambda x: x.pad((1, 2), value=5.0), (3, 4), like=lambda x: F.pad(x, (1, 2), value=5.0)),
    once("pad-negative", lambda x: x.pad((-1, 2, 1, -1)), (3, 4), like=lambda x: F.pad(x, (-1, 2, 1, -1))),
    *(once(f"pad-{mode}", lambda x, m=mode: x.pad((2, 1, 1, 3), mode=m), (1, 2, 4, 5),
           like=lambda x, m=mode: F.pad(x, (2, 1, 1, 3), mode=m)) for mode in ("reflect", "replicate", "circular")),
    once("pad_to", lambda x: x.pad_to(4, None, value=2), (3, 4), like=lambda x: F.pad(x, (0, 0, 0, 1), value=2)),
    once("cat", lambda a, b, c: a.cat(b, a, c, dim=1), (2, 3), (2, 1), (2, 4),
         like=lambda a, b, c: torch.cat((a, b, a, c), 1)),
    once("cat-many", lambda *x: x[0].cat(*x[1:]), *[(1 + i % 3, 2) for i in range(9)], like=lambda *x: torch.cat(x)),
    once("stack", lambda a, b: Tensor.stack(a, b, a, dim=-1), (2, 3), (2, 3),
         like=lambda a, b: torch.stack((a, b, a), -1)),
    once("stack-many", lambda *x: Tensor.stack(*x), *[(3,)] * 20, like=lambda *x: torch.stack(x)),
    once("cast", lambda x: x.cast("float32").double() * x, (3, 4), like=lambda x: x.float().double() * x, slope=False),
    once("contiguous", lambda x: x.contiguous().contiguous_backward().clone() * x.detach(), (3, 4),
         like=lambda x: x * x.detach(), slope=False),
    row("copies", lambda x: (x.to("PYTHON") * 2).to("CPU") * x, (3,), like=lambda x: 2 * x * x),
)  # fmt: skip
def test_movement(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


# ---- reductions and scans ------------------------------------------------------------------------------------------


@table(
    once("sum", lambda x: x.sum((0, 2)), (2, 3, 4)), once("sum-keep", lambda x: x.sum(1, True) * x, (2, 3, 4)),
    row("prod", lambda x: x.prod(1), (2, 3, 4)), row("prod-all", lambda x: x.prod(), ((5,), 0.5, 1.5)),
    once("max", lambda x: x.max(1), (2, 3, 4), like=lambda x: x.amax(1)), once("max-all", lambda x: x.max(), (3, 4)),
    once("min", lambda x: x.min((0, 2)), (2, 3, 4), like=lambda x: x.amin((0, 2))),
    once("mean", lambda x: x.mean(1), (2, 3, 4)),
    row("var", lambda x: x.var(1), (2, 3, 4)), row("var-0", lambda x: x.var((0, 2), correction=0), (2, 3, 4)),
    row("std", lambda x: x.std(1, correction=2), (2, 4)), row("var_mean", lambda x: x.var_mean(1), (2, 4),
         like=lambda x: torch.var_mean(x, 1)),
    row("std_mean", lambda x: x.std_mean(0), (3, 4), like=lambda x: torch.std_mean(x, 0)),
    row("logsumexp", lambda x: x.logsumexp(1), (2, 3, 4)), row("normalize", lambda x: x.normalize(), (2, 3),
         like=F.normalize),
    row("normalize-3", lambda x: x.normalize(3.0, 0), ((3, 4), 0.3, 2), like=lambda x: F.normalize(x, 3.0, 0)),
    once("normalize-1", lambda x: x.normalize(1.0), (3, 4), like=lambda x: F.normalize(x, 1.0)),
    row("softmax", lambda x: x.softmax(1), (2, 3, 4)), row("log_softmax", lambda x: x.log_softmax(0), (2, 3, 4)),
    row("softmin", lambda x: x.softmin(-1), (2, 3, 4), like=lambda x: F.softmin(x, -1)),
    once("softmax-dtype", lambda x: x.softmax(1, dtype="float64"), (2, 3),
         like=lambda x: x.softmax(1, dtype=torch.float64)),
    once("cumsum", lambda x: x.cumsum(1), (2, 5, 3)), once("cumsum-long", lambda x: x.cumsum(0), (70, 2)),
    row("cumprod", lambda x: x.cumprod(1), (2, 4)), once("cumprod-long", lambda x: x.cumprod(0), ((70,), 0.9, 1.1)),
    row("logcumsumexp", lambda x: x.logcumsumexp(1), (2, 5)),
    once("logcumsumexp-long", lambda x: x.logcumsumexp(0), (70,)),
    once("cummax", lambda x: x.cummax(1)[0], (3, 7), like=lambda x: x.cummax(1).values),
    once("cummin", lambda x: x.cummin(0)[0], (70, 2), like=lambda x: x.cummin(0).values),
    once("sort", lambda x: x.sort(1)[0], (3, 7), like=lambda x: x.sort(1).values),
    once("sort-down", lambda x: x.sort(0, True)[0], (7, 2), like=lambda x: x.sort(0, True).values),
    once("topk", lambda x: x.topk(3, 1)[0], (2, 7), like=lambda x: x.topk(3, 1).values),
    once("topk-smallest", lambda x: x.topk(2, 0, largest=False)[0], (5, 3),
         like=lambda x: x.topk(2, 0, largest=False).values),
    once("argsort", lambda x: x.gather(1, x.argsort(1)), (3, 7)),
)  # fmt: skip
def test_reductions_and_scans(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 40, 300])
@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_prod_with_zeros(n: int, zeros: int) -> None:
    if zeros > n:
        pytest.skip("as many as there are factors")
    x = spread((n,), *((0.8, 1.25) if n < 100 else (0.99, 1.01)))  # third derivatives must not drown the slopes
    x[np.random.default_rng(n).permutation(n)[:zeros]] = 0
    gradcheck(lambda t: t.prod(), x)
    gradcheck(
        lambda t: t.reshape(n, 1).expand(n, 2).prod((0, 1)), x, like=lambda t: t.reshape(n, 1).expand(n, 2).prod()
    )


def test_prod_of_several_axes_with_zeros() -> None:
    many = spread((4, 3, 6), 0.5, 1.5)
    many[1, 2, 3] = many[2, 1, 0] = many[3, 1, 0] = 0
    gradcheck(lambda t: t.prod((0, 2)), many, like=lambda t: t.prod(2).prod(0))
    gradcheck(
        lambda t: t.permute(1, 0, 2).prod((1, 2), keepdim=True), many, like=lambda t: t.prod(2).prod(0).reshape(3, 1, 1)
    )


def test_third_derivative_of_prod() -> None:
    x = Tensor(np.array([0.0, 0.0, 0.0] + [1.5] * 20), dtype="float64")
    first = x.prod().gradient(x)[0]
    second = first[0].gradient(x)[0]
    third = second[1].gradient(x)[0]
    np.testing.assert_allclose(third.numpy(), [0, 0, 1.5**20, *[0] * 20], rtol=1e-12)


def test_gradient_of_a_product_that_underflows() -> None:
    x = Tensor([1e-30, 1e-30] + [1.0] * 30)
    np.testing.assert_allclose(x.prod().gradient(x)[0].numpy(), [1e-30, 1e-30] + [0] * 30, rtol=1e-5)


def test_gradient_of_prod_of_symbolic_size_and_over_devices() -> None:
    values = spread((40,), 0.5, 1.5)
    values[[3, 7]] = 0
    length = Variable("length", 1, 40).bind(30)
    x = Tensor(values, dtype="float64")
    (x[:length].prod() + x.sum()).backward()
    given = torch.tensor(values, requires_grad=True)
    (given[:30].prod() + given.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), given.grad.numpy(), rtol=1e-12)
    split = Tensor(values, dtype="float64").shard(("CPU:0", "CPU:1"), axis=0)
    expected = torch.tensor(values, requires_grad=True)
    expected.prod().backward()
    np.testing.assert_allclose(split.prod().gradient(split)[0].numpy(), expected.grad.numpy(), rtol=1e-12)


def test_cumprod_with_zeros() -> None:
    for zeros in ((1,), (1, 3)):
        x = spread((5,))
        x[list(zeros)] = 0
        gradcheck(lambda t: t.cumprod(0), x)


# ---- products, convolutions, pooling -------------------------------------------------------------------------------

EINSUM = [("ij,jk->ik", (2, 3), (3, 4)), ("iij,j->ij", (3, 3, 4), (4,)), ("...ij,...kj->...ik", (2, 2, 3), (4, 3)),
          ("bij,bjk,kl->bil", (2, 2, 3), (2, 3, 2), (2, 2)), ("ii", (3, 3)), ("i,j,k->kij", (2,), (3,),
              (2,))]  # fmt: skip
CONV = [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": (2, 1)},
    {"groups": 2, "stride": (2, 1), "dilation": (1, 2)},
        {"groups": 4, "padding": 1}]  # fmt: skip


@table(
    row("matmul", lambda a, b: a @ b, (3, 4), (4, 2)), row("batches", lambda a, b: a.dot(b), (2, 1, 2, 3),
         (4, 3, 2), like=torch.matmul),
    once("vectors", lambda a, b: a @ b, (4,), (4,)), once("matrix-vector", lambda a, b: a @ b, (2, 3, 4), (4,)),
    once("matmul-reverse", lambda a, b: a.matmul(b, reverse=True), (3, 4), (2, 3), like=lambda a, b: b @ a),
    once("image_dot", lambda a, b: a.image_dot(b), (3, 4), (4, 4), like=torch.matmul),
    row("linear", lambda x, w, b: x.linear(w, b), (2, 3), (3, 4), (4,), like=lambda x, w, b: x @ w + b),
    once("linear-vector", lambda x, w: x.linear(w), (2, 3), (3,), like=lambda x, w: x * w),
    row("sequential", lambda x: x.sequential([Tensor.tanh, Tensor.exp]), (3,), like=lambda x: x.tanh().exp()),
    *(once(f"einsum-{f}", lambda *x, f=f: Tensor.einsum(f, *x), *shapes, like=lambda *x, f=f: torch.einsum(f, *x))
      for f, *shapes in EINSUM),
    *(row(f"conv2d-{i}", lambda x, w, b, o=o: x.conv2d(w, b, **o), (1, 4, 5, 5),
         (4, 4 // o.get("groups", 1), 3, 2), (4,),
          like=lambda x, w, b, o=o: F.conv2d(x, w, b, **o), second=i in (1, 3)) for i, o in enumerate(CONV)),
    *(row(f"conv_transpose2d-{i}", lambda x, w, b, o=o: x.conv_transpose2d(w, b, **o), (1, 4, 4, 3),
          (4, 4 // o.get("groups", 1), 3, 2), (4,),
              like=lambda x, w, b, o=o: F.conv_transpose2d(x, w, b, **o), second=i == 1)
      for i, o in enumerate([*CONV, {"stride": 2, "output_padding": 1}])),
    once("conv1d", lambda x, w: x.conv2d(w, stride=2, padding=1), (2, 2, 7), (3, 2, 3),
         like=lambda x, w: F.conv1d(x, w, None, 2, 1)),
    once("conv3d", lambda x, w: x.conv2d(w), (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), like=F.conv3d),
    once("conv-padding-flat", lambda x, w: x.conv2d(w, padding=(1, 0, 2, -1)), (1, 1, 5, 5), (2, 1, 3, 3),
         like=lambda x, w: F.conv2d(F.pad(x, (1, 0, 2, -1)), w)),
    once("image_conv2d", lambda x, w: x.image_conv2d(w, padding=1), (1, 4, 4, 4), (4, 4, 3, 3),
         like=lambda x, w: F.conv2d(x, w, padding=1)),
)  # fmt: skip
def test_products_and_convolutions(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


POOL = [{}, {"stride": 1}, {"kernel_size": 3, "padding": 1},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
            {"kernel_size": 3, "stride": 3, "padding": 1, "ceil_mode": True}]  # fmt: skip


def pool_options(options: dict[str, Any]) -> dict[str, Any]:
    kernel = options.get("kernel_size", 2)
    return {**options, "kernel_size": kernel if isinstance(kernel, tuple) else (kernel, kernel)}


@pytest.mark.parametrize("options", POOL, ids=str)
def test_pooling(options: dict[str, Any]) -> None:
    made = pool_options(options)
    gradcheck(lambda x: x.max_pool2d(**made), (1, 2, 6, 7), like=lambda x: F.max_pool2d(x, **made), second=False)
    for include in (True, False):
        gradcheck(lambda x, i=include: x.avg_pool2d(**made, count_include_pad=i), (1, 2, 6, 7), second=False,
                  like=lambda x, i=include: F.avg_pool2d(x, **made, count_include_pad=i))  # fmt: skip


@table(
    once("max-dilation", lambda x: x.max_pool2d((2, 3), dilation=2), (1, 1, 6, 7),
         like=lambda x: F.max_pool2d(x, (2, 3), dilation=2)),
    once("avg-dilation", lambda x: x.avg_pool2d((2, 2), stride=1, dilation=2), (1, 1, 5, 5), like=None),
    once("max-indices", lambda x: x.max_pool2d(return_indices=True)[0], (1, 2, 4, 4),
         like=lambda x: F.max_pool2d(x, 2)),
    once("max-1d", lambda x: x.max_pool2d((3,), stride=2), (1, 2, 9), like=lambda x: F.max_pool1d(x, 3, 2)),
    once("max_unpool2d", lambda x: Tensor.max_unpool2d(*x.max_pool2d(return_indices=True)), (1, 1, 4, 6),
         like=lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    *(once(f"interpolate-{mode}-{size}-{corners}", lambda x, m=mode, s=size, c=corners: x.interpolate(s, m, c),
         (1, 2, 4, 5),
           like=lambda x, m=mode, s=size, c=corners: F.interpolate(
               x, s, mode="bilinear" if m == "linear" else m, align_corners=c if m == "linear" else None))
      for mode, corners in (("linear", False), ("linear", True), ("nearest", False), ("nearest-exact", False),
                            ("area", False))
      for size in ((7, 3), (8, 10))),
)  # fmt: skip
def test_other_pooling(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


# ---- indexing, gather, scatter, writes -----------------------------------------------------------------------------

I1, I2 = np.array([0, 2, 1, -1, 2]), np.array([[0], [1]])


@table(
    once("slices", lambda x: x[1:, ::2][..., None, :2] * x[0, 0], (3, 5)),
    once("negative-steps", lambda x: x[::-1, ::-2], (3, 5), like=lambda x: x.flip(0, 1)[:, ::2]),
    once("array", lambda x, i: x[i], (3, 4), I1), once("array-columns", lambda x, i: x[:, i], (3, 4), I1),
    once("arrays", lambda x, i, j: x[i, :, j], (3, 2, 4), I2, I1[:3]), once("list", lambda x: x[[0, 0, 2]], (3, 4)),
    once("many-rows", lambda x, i: x[i], (40, 3), np.arange(60) * 7 % 40),
    once("mask", lambda x, m: x[m], (3, 4), MASK), once("mask-of-rows", lambda x, m: x[m], (3, 4), MASK[:, 0]),
    once("masked_select", lambda x, m: x.masked_select(m), (3, 4), MASK),
    once("masked_select-size", lambda x, m: x.masked_select(m, size=6), (3, 4), MASK,
         like=lambda x, m: F.pad(x.masked_select(m), (0, 2))),
    once("gather", lambda x, i: x.gather(1, i), (3, 4), np.array([[0, 0, 3], [1, 2, 1]])),
    once("gather-many", lambda x, i: x.gather(0, i), (40, 2), np.arange(120).reshape(60, 2) * 7 % 40),
    once("scatter", lambda x, i, s: x.scatter(1, i, s), (3, 4), np.array([[0, 3], [1, 2], [2, 0]]), (3, 2)),
    once("scatter-many", lambda x, i, s: x.scatter(0, i, s),
         (40, 2), np.stack([np.arange(30), np.arange(30)[::-1]], 1).copy(), (30, 2)),
    once("scatter-number", lambda x, i: x.scatter(1, i, 3.0), (3, 4), np.array([[0, 3], [1, 2]])),
    once("scatter-add", lambda x, i: x.scatter(1, i, 3.0, reduce="add"), (3, 4), np.array([[0, 3], [1, 2]]),
         like=lambda x, i: x + 0
         + torch.zeros_like(x).scatter(1, i, 3.0)),
    once("scatter-multiply", lambda x, i: x.scatter(1, i, 3.0, reduce="multiply"), (3, 4), np.array([[0, 3], [1, 2]]),
         like=lambda x, i: x * torch.ones_like(x).scatter(1, i, 3.0)),
    *(once(f"scatter_reduce-{r}-{s}", lambda x, i, v, r=r, s=s: x.scatter_reduce(1, i, v, r, s), ((3, 4), 0.3, 2.5),
           np.array([[0, 3, 3], [1, 2, 1], [2, 2, 2]]), ((3, 3), 0.4, 2.6),
           like=lambda x, i, v, r=r, s=s: x.scatter_reduce(1, i, v, r, include_self=s))
      for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)),
)  # fmt: skip
def test_indexing(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


def written(x: Any, *writes: Callable[[Any], None]) -> Any:
    """Return a copy of x after writes, in the manner of numpy, to it and to views of it."""
    t = x.clone()
    for write in writes:
        write(t)
    return t


def put(items: Any, value: Any) -> Callable[[Any], None]:
    return lambda t: t.__setitem__(items, value)


@table(
    once("slice", lambda x, v: written(x, put(slice(1, 3), v)), (4, 3), (3,)),
    once("strided", lambda x, v: written(x, put((slice(None), slice(None, None, 2)), v * v)), (2, 5), (2, 3)),
    once("array", lambda x, v, i: written(x, put(i, v)), (5, 2), (3, 2), np.array([4, 0, 2])),
    once("arrays", lambda x, v, i, j: written(x, put((i, j), v)), (3, 4),
         (3,), np.array([2, 0, 1]), np.array([1, 1, 3])),
    once("mask", lambda x, v, m: written(x, put(m, v)), (3, 4), (), MASK),
    once("mask-values", lambda x, v, m: written(x, put(m, v)), (3, 4), (4,), MASK),
    once("twice", lambda x, v, w: written(x, put(slice(0, 3), v), put(slice(2, 4), w)), (5,), (3,), (2,)),
    once("from-itself", lambda x: written(x, lambda t: t.__setitem__(slice(1, None), t[:-1] * t[1:])), (5,),
         like=lambda x: torch.cat((x[:1], x[:-1] * x[1:]))),
    once("add-in-place", lambda x, v: written(x, lambda t: t.__setitem__(slice(2), t[:2] + v)), (5,), (2,)),
)  # fmt: skip
def test_writes(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


def test_writes_through_views() -> None:
    def ours(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
        t = x.clone()
        t.transpose()[1:].assign(v)
        t[:, ::-2].assign(w + t[:, :2])
        t.reshape(-1)[2:4] *= 3
        return t

    def like(x: Any, v: Any, w: Any) -> Any:
        t = x.clone()
        t.T[1:] = v
        t[:, [3, 1]] = w + t[:, :2].clone()
        t.view(-1)[2:4] *= 3
        return t

    gradcheck(ours, (3, 4), (3, 3), (3, 2), like=like, second=False)


# ---- calls and linear algebra --------------------------------------------------------------------------------------


def test_functions_and_calls() -> None:
    @function
    def inner(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).tanh()

    @function(precompile=True)
    def outer(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        hidden = inner(x, w)
        return hidden * hidden, inner(hidden, w)

    gradcheck(lambda x, w: outer(x, w), (3, 4), (4, 4),
              like=lambda x, w: ((x @ w).tanh() ** 2, ((x @ w).tanh() @ w).tanh()))  # fmt: skip

    def body(x: Tensor, y: Tensor) -> Tensor:
        return x.call(y, fxn=(x.as_param(0) * y.as_param(1)).sin())

    gradcheck(body, (3,), (3,), like=lambda x, y: (x * y).sin())

    def stated(x: Tensor, y: Tensor) -> Tensor:
        def grad_fxn(grad: Any, call: Any) -> Any:
            a, b = call.src[1:]
            return grad * b, grad * a

        return x.call(y, fxn=x.as_param(0) * y.as_param(1), grad_fxn=grad_fxn)

    gradcheck(stated, (3,), (3,), like=lambda x, y: x * y)


@table(
    once("inverse", lambda x: x.inverse(), np.eye(3) + 0.1 * spread((3, 3)), tol=1e-5),
    once("qr", lambda x: x.qr(), np.eye(3) + 0.3 * spread((3, 3)), like=None, tol=1e-5),
    once("singular-values", lambda x: x.svd()[1], np.diag([3.0, 2.0, 1.0]) + 0.1 * spread((3, 3)),
         like=lambda x: torch.linalg.svd(x).S, tol=1e-5),
    once("newton_schulz", lambda x: x.newton_schulz(3, (3.4445, -4.775, 2.0315)), (3, 4), like=None, tol=1e-5),
)  # fmt: skip
def test_linear_algebra(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)
