"""Operations against torch, values and gradients: movement, elementwise, math, activations, reductions, creation."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes

F = torch.nn.functional
Shapes = Sequence[tuple[int, ...]]


def make_inputs(shapes: Shapes, low: float, high: float, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, size=shape).astype(np.float32) for shape in shapes]


def assert_like_torch(
    shapes: Shapes | list[np.ndarray],
    torch_fn: Callable[..., Any],
    fn: Callable[..., Any] | None = None,
    *,
    low: float = -2.0,
    high: float = 2.0,
    atol: float = 1e-5,
    rtol: float = 2e-5,
    grad: bool = True,
) -> None:
    """Compare the result, and the gradients of a weighted sum of it, with torch."""
    arrays = list(shapes) if shapes and isinstance(shapes[0], np.ndarray) else make_inputs(shapes, low, high)
    ours = [Tensor(a) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=grad and a.dtype == np.float32) for a in arrays]
    result, expected = (fn or torch_fn)(*ours), torch_fn(*theirs)
    assert result.shape == tuple(expected.shape)
    np.testing.assert_allclose(result.numpy(), expected.detach().numpy(), atol=atol, rtol=rtol, err_msg="values")
    if not grad:
        return
    weight = make_inputs([tuple(expected.shape)], 0.5, 1.5, seed=1)[0]
    # A realized tensor no longer knows how it was computed, so the graph is built anew.
    ((fn or torch_fn)(*ours) * Tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if b.requires_grad:
            if b.grad is None:
                assert a.grad is None or not a.grad.numpy().any()
                continue
            assert a.grad is not None
            wanted = b.grad.numpy()
            np.testing.assert_allclose(a.grad.numpy(), wanted, atol=atol * 5, rtol=rtol * 5, err_msg=f"gradient {i}")


def cases(*rows: tuple) -> Any:
    return pytest.mark.parametrize(
        ("shapes", "torch_fn", "fn", "options"), [r[1:] for r in rows], ids=[r[0] for r in rows]
    )


def row(name: str, shapes: Any, torch_fn: Any, fn: Any = None, **options: Any) -> tuple:
    return name, shapes, torch_fn, fn, options


# ---- movement ------------------------------------------------------------------------------------------------------


@cases(
    row("reshape", [(4, 3, 6)], lambda x: x.reshape(12, 6)),
    row("reshape-infer", [(4, 3, 6)], lambda x: x.reshape(-1, 9)),
    row("view", [(4, 6)], lambda x: x.view(2, 12)),
    row("flatten", [(2, 3, 4)], lambda x: x.flatten(1)),
    row("unflatten", [(2, 12)], lambda x: x.unflatten(1, (3, -1))),
    row("permute", [(2, 3, 4)], lambda x: x.permute(2, 0, 1)),
    row("permute-negative", [(2, 3, 4)], lambda x: x.permute(-1, 0, -2)),
    row("transpose", [(2, 3, 4)], lambda x: x.transpose(1, 2)),
    row("T", [(2, 3)], lambda x: x.T),
    row("expand", [(4, 1, 2)], lambda x: x.expand(4, 3, 2)),
    row("expand-leading", [(1, 3)], lambda x: x.expand(5, -1, 3)),
    row("squeeze", [(1, 3, 1)], lambda x: x.squeeze()),
    row("squeeze-dim", [(1, 3, 1)], lambda x: x.squeeze(-1)),
    row("unsqueeze", [(2, 3)], lambda x: x.unsqueeze(-1)),
    row("flip", [(3, 4)], lambda x: x.flip((0, 1))),
    row("roll", [(3, 4)], lambda x: x.roll(1, 0)),
    row("roll-two", [(3, 4)], lambda x: x.roll((2, -1), (0, 1))),
    row("roll-flat", [(3, 4)], lambda x: x.roll(5)),
    row("repeat", [(2, 3)], lambda x: x.repeat(2, 1, 3)),
    row("repeat_interleave", [(2, 3)], lambda x: x.repeat_interleave(2, 1)),
    row("repeat_interleave-flat", [(2, 3)], lambda x: x.repeat_interleave(3)),
    row("diag", [(5,)], lambda x: x.diag()),
    row("diagonal", [(4, 5)], lambda x: x.diagonal()),
    row("diagonal-up", [(4, 5)], lambda x: x.diagonal(2)),
    row("diagonal-down-batch", [(2, 4, 5)], lambda x: x.diagonal(-1, 1, 2)),
    row("unfold", [(3, 8)], lambda x: x.unfold(1, 3, 2)),
    row("unfold-first", [(8, 3)], lambda x: x.unfold(0, 2, 1)),
    row("unfold-number", [(1,)], lambda x: x.reshape(()).unfold(0, 1, 1)),
    row("unfold-nothing-of-a-number", [(1,)], lambda x: x.reshape(()).unfold(-1, 0, 2)),
    row("unfold-gaps", [(20,)], lambda x: x.unfold(0, 2, 5)),
    row("split", [(7, 2)], lambda x: x.split(3)[1] * 2),
    row("split-sizes", [(7, 2)], lambda x: x.split([1, 4, 2])[1] * 2),
    row("chunk", [(7, 2)], lambda x: x.chunk(3)[2] * 2),
    row("pad", [(3, 4)], lambda x: F.pad(x, (1, 2, 0, 1)), lambda x: x.pad((1, 2, 0, 1))),
    row("pad-value", [(3,)], lambda x: F.pad(x, (1, 2), value=3.5), lambda x: x.pad((1, 2), value=3.5)),
    row("pad-crop", [(5,)], lambda x: F.pad(x, (-1, 2)), lambda x: x.pad((-1, 2))),
    row(
        "pad-reflect",
        [(1, 2, 5)],
        lambda x: F.pad(x, (2, 3), mode="reflect"),
        lambda x: x.pad((2, 3), mode="reflect"),
    ),
    row(
        "pad-replicate",
        [(1, 2, 5)],
        lambda x: F.pad(x, (2, 3), mode="replicate"),
        lambda x: x.pad((2, 3), mode="replicate"),
    ),
    row(
        "pad-circular",
        [(1, 2, 5)],
        lambda x: F.pad(x, (2, 3), mode="circular"),
        lambda x: x.pad((2, 3), mode="circular"),
    ),
    row("meshgrid", [(3,), (4,)], lambda a, b: sum(torch.meshgrid(a, b, indexing="ij")),
        lambda a, b: sum(a.meshgrid(b))),
    row(
        "meshgrid-xy",
        [(3,), (4,)],
        lambda a, b: torch.meshgrid(a, b, indexing="xy")[0],
        lambda a, b: a.meshgrid(b, indexing="xy")[0],
    ),
)  # fmt: skip
def test_movement(shapes: Any, torch_fn: Any, fn: Any, options: dict) -> None:
    assert_like_torch(shapes, torch_fn, fn, **options)


def test_axis_and_dim_are_both_understood() -> None:
    x = Tensor.arange(6).reshape(1, 2, 3)
    assert x.squeeze(axis=0).shape == x.squeeze(dim=0).shape == (2, 3)
    assert x.unsqueeze(axis=-1).shape == x.unsqueeze(dim=-1).shape == (1, 2, 3, 1)
    assert x.flip(axis=2).tolist() == x.flip(dims=(2,)).tolist() == [[[2, 1, 0], [5, 4, 3]]]
    assert x.roll(1, axis=2).tolist() == x.roll(1, dims=2).tolist()
    assert [p.shape for p in x.split(2, axis=2)] == [p.shape for p in x.split(2, dim=2)] == [(1, 2, 2), (1, 2, 1)]
    assert len(x.chunk(3, axis=2)) == 3
    assert x.sum(axis=2).tolist() == x.sum(dim=2).tolist()
    assert x.argmax(axis=2).tolist() == x.argmax(dim=2).tolist()


def test_rearrange() -> None:
    x = np.arange(2 * 6 * 4).reshape(2, 6, 4)
    t = Tensor(x)
    np.testing.assert_equal(
        t.rearrange("b (h w) c -> b c h w", h=2).numpy(), x.reshape(2, 2, 3, 4).transpose(0, 3, 1, 2)
    )
    np.testing.assert_equal(t.rearrange("... c -> c ...").numpy(), x.transpose(2, 0, 1))
    np.testing.assert_equal(t.rearrange("a b c -> (a b c) 1").numpy(), x.reshape(-1, 1))
    with pytest.raises(AssertionError, match="names differ"):
        t.rearrange("a b c -> a b d")


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation"),
    [
        (10, 3, 1, 1),
        (10, 3, 2, 1),
        (11, 3, 1, 2),
        (11, 2, 3, 1),
        (9, 3, 3, 1),
        (12, 2, 5, 3),
        (7, 7, 1, 1),
        (5, 1, 2, 1),
    ],
)
def test_pool_windows(size: int, kernel: int, stride: int, dilation: int) -> None:
    x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    count = (size - dilation * (kernel - 1) - 1) // stride + 1
    expected = np.stack(
        [x[:, y * stride : y * stride + dilation * (kernel - 1) + 1 : dilation] for y in range(count)], 1
    )
    np.testing.assert_equal(Tensor(x)._pool((kernel,), stride, dilation).numpy(), expected)


# ---- two operands --------------------------------------------------------------------------------------------------


@cases(
    row("add", [(3, 4), (3, 4)], lambda x, y: x + y),
    row("add-broadcast", [(3, 4), (4,)], lambda x, y: x + y),
    row("add-broadcast-both", [(3, 1), (1, 4)], lambda x, y: x + y),
    row("add-scalar", [(3, 4)], lambda x: x + 2),
    row("radd", [(3, 4)], lambda x: 2 + x),
    row("sub", [(3, 4), (3, 1)], lambda x, y: x - y),
    row("rsub", [(3, 4)], lambda x: 1.5 - x),
    row("mul", [(3, 4), (1, 4)], lambda x, y: x * y),
    row("div", [(3, 4), (3, 4)], lambda x, y: x / y, low=0.5),
    row("div-scalar", [(3, 4)], lambda x: x / 3),
    row("rdiv", [(3, 4)], lambda x: 3 / x, low=0.5),
    row("div-trunc", [(3, 4), (4,)], lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: x.div(y, rounding_mode="trunc"), grad=False),
    row("floordiv", [(3, 4), (4,)], lambda x, y: x // y, grad=False),
    row("mod", [(3, 4)], lambda x: x % 0.75, grad=False),
    row("fmod", [(3, 4)], lambda x: torch.fmod(x, 0.75), lambda x: x.fmod(0.75), grad=False),
    row("pow-2", [(3, 4)], lambda x: x**2),
    row("pow-3", [(3, 4)], lambda x: x**3),
    row("pow-0", [(3, 4)], lambda x: x**0),
    row("pow-neg", [(3, 4)], lambda x: x**-2, low=0.5),
    row("pow-half", [(3, 4)], lambda x: x**0.5, low=0.1),
    row("pow-1.5", [(3, 4)], lambda x: x**1.5, low=0.1),
    row("pow-0.3", [(3, 4)], lambda x: x**0.3, low=0.1),
    row("pow-tensor", [(3, 4), (3, 4)], lambda x, y: x**y, low=0.1),
    row("rpow", [(3, 4)], lambda x: 2**x),
    row("maximum", [(3, 4), (3, 4)], torch.maximum, lambda x, y: x.maximum(y)),
    row("minimum", [(3, 4), (4,)], torch.minimum, lambda x, y: x.minimum(y)),
    row("where", [(3, 4), (3, 4)], lambda x, y: torch.where(x > 0, x, y), lambda x, y: (x > 0).where(x, y)),
    row("masked_fill", [(3, 4)], lambda x: x.masked_fill(x > 0.1, -9)),
    row("lerp", [(3, 4), (3, 4), (3, 4)], lambda x, y, w: x.lerp(y, w)),
    row("copysign", [(3, 4), (3, 4)], lambda x, y: x.copysign(y)),
    row("logaddexp", [(3, 4), (3, 4)], torch.logaddexp, lambda x, y: x.logaddexp(y), low=-50, high=50),
    row("clamp", [(3, 4)], lambda x: x.clamp(-1, 1)),
    row("clamp-low", [(3, 4)], lambda x: x.clamp(min=0.5), lambda x: x.clamp(min_=0.5)),
    row("clamp-tensors", [(3, 4), (3, 4), (3, 4)], torch.clamp, lambda x, a, b: x.clamp(a, b)),
)  # fmt: skip
def test_binary(shapes: Any, torch_fn: Any, fn: Any, options: dict) -> None:
    assert_like_torch(shapes, torch_fn, fn, **options)


SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.5], np.float32)


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne", "add", "sub", "mul", "truediv"])
def test_special_values(op: str) -> None:
    a, b = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    name = f"__{op}__"
    with np.errstate(all="ignore"):
        expected = getattr(a, name)(b)
    got = getattr(Tensor(a), name)(Tensor(b)).numpy()
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(
        np.signbit(got), np.signbit(expected) & ~np.isnan(expected) | np.signbit(got) & np.isnan(expected)
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "bool"])
def test_extremes_of_integers(dtype: str) -> None:
    info = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    a = np.array([info[0], info[1], 1, info[0]], dtype)
    b = np.array([info[1], info[0], 0, info[0]], dtype)
    x, y = Tensor(a), Tensor(b)
    np.testing.assert_equal(x.maximum(y).numpy(), np.maximum(a, b))
    np.testing.assert_equal(x.minimum(y).numpy(), np.minimum(a, b))
    assert x.max().item() == a.max()
    assert x.min().item() == a.min()
    assert x.argmin().item() == a.argmin()


INTS = [
    ("+", lambda x, y: x + y), ("-", lambda x, y: x - y), ("*", lambda x, y: x * y), ("//", lambda x, y: x // y),
    ("%", lambda x, y: x % y), ("&", lambda x, y: x & y), ("|", lambda x, y: x | y), ("^", lambda x, y: x ^ y),
    ("<", lambda x, y: x < y), ("<=", lambda x, y: x <= y), (">=", lambda x, y: x >= y), ("!=", lambda x, y: x != y),
]  # fmt: skip


@pytest.mark.parametrize("fn", [f for _, f in INTS], ids=[n for n, _ in INTS])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int16"])
def test_integers(fn: Any, dtype: str) -> None:
    a = np.array([-7, 7, -7, 7, 100, 110, -128, 3], np.int64).astype(dtype)
    b = np.array([3, -3, -3, 3, 7, 55, 5, 2], np.int64).astype(dtype)
    np.testing.assert_equal(fn(Tensor(a), Tensor(b)).numpy(), fn(a, b))


def test_integer_division_rounding() -> None:
    x, y = Tensor([-7, 7, -7, 7]), Tensor([3, -3, -3, 3])
    assert (x // y).tolist() == [-3, -3, 2, 2]
    assert (x % y).tolist() == [2, -2, -1, 1]
    assert x.div(y, rounding_mode="trunc").tolist() == [-2, -2, 2, 2]
    assert x.fmod(y).tolist() == [-1, 1, -1, 1]
    assert (Tensor([110]) / 55).tolist() == [2.0]
    assert (Tensor([1]) / 0).tolist() == [math.inf]


def test_shifts_and_integer_powers() -> None:
    assert (Tensor([1], dtype="uint32") << 31).tolist() == [1 << 31]
    assert (Tensor([-8, 8]) >> 1).tolist() == [-4, 4]
    assert (2 << Tensor([1, 3])).tolist() == [4, 16]
    assert (~Tensor([0, 5])).tolist() == [-1, -6]
    assert (Tensor([3, -2, 0]) ** 5).tolist() == [243, -32, 0]
    assert (Tensor([3, -2, 0, 1, -1]) ** Tensor([4, 3, 0, -2, -3])).tolist() == [81, -8, 1, 1, -1]
    with pytest.raises(RuntimeError, match="base needs to be float"):
        Tensor([2]) ** -1
    with pytest.raises(RuntimeError, match="shift operands must be int"):
        Tensor([1.0]) << 1


def test_negative_zero_and_rounding() -> None:
    x = Tensor([0.5, 1.5, 2.5, -0.5, -0.0, -1.5, 1e12])
    for name, function in (("round", np.round), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc)):
        got, expected = getattr(x, name)().numpy(), function(x.numpy())
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected), err_msg=name)
    assert Tensor([1.0, 1.0]).copysign(Tensor([-0.0, 0.0])).tolist() == [-1.0, 1.0]
    assert (1 / Tensor([-0.0])).tolist() == [-math.inf]


# ---- one operand ---------------------------------------------------------------------------------------------------

UNARY = [
    ("neg", {}), ("abs", {}), ("sign", {}), ("square", {}), ("sqrt", {"low": 0.1}), ("rsqrt", {"low": 0.1}),
    ("reciprocal", {"low": 0.2}), ("exp", {"low": -20, "high": 20}), ("exp2", {"low": -20, "high": 20}),
    ("log", {"low": 1e-3}),
    ("log2", {"low": 1e-3}), ("log10", {"low": 1e-3}), ("sin", {"low": -100, "high": 100}),
    ("cos", {"low": -100, "high": 100}),
    ("tan", {"low": -1.4, "high": 1.4}), ("asin", {"low": -0.99, "high": 0.99}), ("acos", {"low": -0.99, "high": 0.99}),
    ("atan", {"low": -100, "high": 100}), ("sinh", {"low": -8, "high": 8}), ("cosh", {"low": -8, "high": 8}),
    ("asinh", {"low": -1000, "high": 1000}), ("acosh", {"low": 1.01, "high": 1000}),
    ("atanh", {"low": -0.99, "high": 0.99}),
    ("erf", {"low": -4, "high": 4}), ("trunc", {}), ("floor", {}), ("ceil", {}), ("round", {}),
    ("sigmoid", {"low": -30, "high": 30}),
    ("tanh", {"low": -10, "high": 10}), ("relu", {}), ("expm1", {"low": -5, "high": 5}),
    ("log1p", {"low": -0.9, "high": 5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), UNARY, ids=[n for n, _ in UNARY])
def test_unary(name: str, options: dict) -> None:
    assert_like_torch([(5, 13)], lambda x: getattr(x, name)(), **options)


ACTIVATIONS = [
    ("relu6", F.relu6, lambda x: x.relu6()),
    ("leaky_relu", lambda x: F.leaky_relu(x, 0.1), lambda x: x.leaky_relu(0.1)),
    ("elu", F.elu, lambda x: x.elu()),
    ("elu-alpha", lambda x: F.elu(x, 0.3), lambda x: x.elu(0.3)),
    ("celu", lambda x: F.celu(x, 2.0), lambda x: x.celu(2.0)),
    ("gelu", lambda x: F.gelu(x, approximate="tanh"), lambda x: x.gelu()),
    ("gelu-erf", F.gelu, lambda x: x.gelu("none")),
    ("quick_gelu", lambda x: x * torch.sigmoid(1.702 * x), lambda x: x.quick_gelu()),
    ("silu", F.silu, lambda x: x.silu()),
    ("hardswish", F.hardswish, lambda x: x.hardswish()),
    ("hardsigmoid", F.hardsigmoid, lambda x: x.hardsigmoid()),
    ("hardtanh", F.hardtanh, lambda x: x.hardtanh()),
    ("softplus", F.softplus, lambda x: x.softplus()),
    ("softplus-beta", lambda x: F.softplus(x, 3.0), lambda x: x.softplus(3.0)),
    ("mish", F.mish, lambda x: x.mish()),
    ("logsigmoid", F.logsigmoid, lambda x: x.logsigmoid()),
    ("softsign", F.softsign, lambda x: x.softsign()),
]


@pytest.mark.parametrize(("torch_fn", "fn"), [a[1:] for a in ACTIVATIONS], ids=[a[0] for a in ACTIVATIONS])
def test_activations(torch_fn: Any, fn: Any) -> None:
    assert_like_torch([(5, 13)], torch_fn, fn, low=-6, high=6)


@pytest.mark.parametrize(("torch_fn", "fn"), [a[1:] for a in ACTIVATIONS], ids=[a[0] for a in ACTIVATIONS])
def test_activations_at_corners_and_far_out(torch_fn: Any, fn: Any) -> None:
    corners = np.array([-300, -30, -6, -3, -1, 0, 1, 3, 6, 30, 300], np.float32)
    assert_like_torch([corners], torch_fn, fn)


def test_selu() -> None:
    x = Tensor([100.0, 300.0, -300.0, -1.0])
    y = x.selu()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1.0507, 1.0507, 0, 1.0507 * 1.67326 * math.exp(-1)], rtol=1e-5)
    np.testing.assert_allclose(y.numpy()[3], 1.0507 * 1.67326 * math.expm1(-1), rtol=1e-5)


def test_accuracy_in_ulp() -> None:
    x = np.linspace(-87, 88, 20001).astype(np.float32)
    assert max_ulp(Tensor(x).exp().numpy(), np.exp(x.astype(np.float64))) <= 2
    x = np.concatenate([np.geomspace(1e-30, 1e30, 10001), np.linspace(0.9, 1.1, 10001)]).astype(np.float32)
    assert max_ulp(Tensor(x).log().numpy(), np.log(x.astype(np.float64))) <= 3
    x = np.concatenate([np.linspace(-100, 100, 10001), np.geomspace(1, 1e30, 1001)]).astype(np.float32)
    assert max_ulp(Tensor(x).sin().numpy(), np.sin(x.astype(np.float64))) <= 2
    assert max_ulp(Tensor(x).cos().numpy(), np.cos(x.astype(np.float64))) <= 2
    assert max_ulp(Tensor(x).tan().numpy(), np.tan(x.astype(np.float64))) <= 5
    x = np.concatenate([np.linspace(-12, 12, 10001), np.geomspace(1e-30, 1, 1001)]).astype(np.float32)
    assert max_ulp(Tensor(x).tanh().numpy(), np.tanh(x.astype(np.float64))) <= 4
    assert max_ulp(Tensor(x).sigmoid().numpy(), 1 / (1 + np.exp(-x.astype(np.float64)))) <= 4
    assert max_ulp(Tensor(x).atan().numpy(), np.arctan(x.astype(np.float64))) <= 4
    assert max_ulp(Tensor(x).asinh().numpy(), np.arcsinh(x.astype(np.float64))) <= 5
    assert max_ulp(Tensor(x).sinh().numpy(), np.sinh(x.astype(np.float64))) <= 5


def max_ulp(got: np.ndarray, expected: np.ndarray) -> float:
    unit = np.spacing(np.maximum(np.abs(expected.astype(np.float32)), np.finfo(np.float32).tiny)).astype(np.float64)
    return float(np.max(np.abs(got.astype(np.float64) - expected) / unit))


def test_isnan_isinf_isfinite() -> None:
    x = Tensor(SPECIAL)
    assert x.isnan().tolist() == np.isnan(SPECIAL).tolist()
    assert x.isinf().tolist() == np.isinf(SPECIAL).tolist()
    assert x.isinf(detect_negative=False).tolist() == np.isposinf(SPECIAL).tolist()
    assert x.isinf(detect_positive=False).tolist() == np.isneginf(SPECIAL).tolist()
    assert x.isfinite().tolist() == np.isfinite(SPECIAL).tolist()
    assert Tensor([1, 2]).isnan().tolist() == [False, False]


def test_isclose() -> None:
    a = np.array([1.0, np.nan, np.inf, -np.inf, 1.0], np.float32)
    b = np.array([1.0 + 1e-7, np.nan, np.inf, np.inf, 2.0], np.float32)
    for equal_nan in (False, True):
        expected = np.isclose(a, b, equal_nan=equal_nan).tolist()
        assert Tensor(a).isclose(Tensor(b), equal_nan=equal_nan).tolist() == expected
    assert Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.0])).item()


# ---- reductions ----------------------------------------------------------------------------------------------------


@cases(
    row("sum", [(4, 5, 6)], lambda x: x.sum()),
    row("sum-axis", [(4, 5, 6)], lambda x: x.sum(1)),
    row("sum-axes", [(4, 5, 6)], lambda x: x.sum((0, 2))),
    row("sum-keepdim", [(4, 5, 6)], lambda x: x.sum(-1, keepdim=True)),
    row("sum-dim", [(4, 5, 6)], lambda x: x.sum(dim=1)),
    row("prod", [(4, 5)], lambda x: x.prod(1), None),
    row("mean", [(4, 5, 6)], lambda x: x.mean((0, 1))),
    row("max", [(4, 5)], lambda x: x.max(1)[0], lambda x: x.max(1)),
    row("max-all", [(4, 5)], lambda x: x.max()),
    row("min", [(4, 5)], lambda x: x.min(0)[0], lambda x: x.min(0)),
    row("var", [(4, 5, 6)], lambda x: x.var(1)),
    row("var-all", [(4, 5)], lambda x: x.var()),
    row("var-biased", [(4, 5)], lambda x: x.var(1, correction=0)),
    row("var-offset", [(4, 50)], lambda x: (x + 1000).var(1), atol=1e-4),
    row("std", [(4, 5)], lambda x: x.std(1)),
    row("var_mean", [(4, 5)], lambda x: sum(torch.var_mean(x, 1)), lambda x: sum(x.var_mean(1))),
    row("std_mean", [(4, 5)], lambda x: sum(torch.std_mean(x, 1)), lambda x: sum(x.std_mean(1))),
    row("logsumexp", [(4, 5)], lambda x: x.logsumexp(1), low=-100, high=100),
    row("normalize", [(4, 5)], lambda x: F.normalize(x), lambda x: x.normalize()),
    row("normalize-1", [(4, 5)], lambda x: F.normalize(x, 1.0, 0), lambda x: x.normalize(1.0, 0)),
    row("normalize-3", [(4, 5)], lambda x: F.normalize(x, 3.0), lambda x: x.normalize(3.0), low=0.5),
    row("argmax", [(4, 5)], lambda x: x.argmax(1), grad=False),
    row("argmax-all", [(4, 5)], lambda x: x.argmax(), grad=False),
    row("argmin", [(4, 5)], lambda x: x.argmin(0, keepdim=True), grad=False),
    row("any", [(4, 5)], lambda x: (x > 1.5).any(1), grad=False),
    row("all", [(4, 5)], lambda x: (x > -1.5).all(0), grad=False),
)  # fmt: skip
def test_reductions(shapes: Any, torch_fn: Any, fn: Any, options: dict) -> None:
    assert_like_torch(shapes, torch_fn, fn, **options)


def test_prod_with_zeros() -> None:
    x = np.array([[1, 2, 3], [0, 2, 3], [0, 0, 3]], np.float32)
    assert_like_torch([x], lambda t: t.prod(1))


def test_max_ties_share() -> None:
    x = Tensor([1.0, 3.0, 3.0])
    x.max().backward()
    assert x.grad.tolist() == [0.0, 0.5, 0.5]
    half = Tensor.ones(70000, dtype=dtypes.half)
    total = half.max().gradient(half)[0].float().sum().item()
    assert abs(total - 1) < 0.01


def test_reductions_of_nothing() -> None:
    x = Tensor.zeros(0, 3)
    assert x.sum(0).tolist() == [0.0, 0.0, 0.0]
    assert x.prod(0).tolist() == [1.0, 1.0, 1.0]
    assert x.max(0).tolist() == [-math.inf] * 3
    assert math.isnan(x.mean().item())
    assert Tensor.zeros(0, dtype="int32").min().item() == 2**31 - 1


def test_nan_in_reductions() -> None:
    x = Tensor([3.0, math.nan, 1.0, 5.0])
    assert math.isnan(x.max().item())
    assert math.isnan(x.min().item())
    assert x.argmax().item() == 1
    assert x.argmin().item() == 1
    assert x.isnan().any().item() is True


def test_accumulators() -> None:
    assert Tensor.full((70000,), 10.0, dtype=dtypes.half).mean().item() == 10.0
    assert Tensor([200, 100], dtype="uint8").sum().item() == 300
    assert Tensor([200, 100], dtype="uint8").sum().dtype == dtypes.uint32
    assert Tensor([True, True]).sum().item() == 2
    assert Tensor.full((3000,), 30.0, dtype=dtypes.half).sum().dtype == dtypes.half
    assert Tensor([1, 2]).mean().item() == 1.5
    assert (Tensor.arange(256).cast(dtypes.int8) < 0).sum().item() == 128


def test_logsumexp_of_infinities() -> None:
    x = Tensor([[-math.inf, -math.inf], [math.inf, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(x.logsumexp(1).numpy(), [-math.inf, math.inf, math.log(1 + math.e)], rtol=1e-6)
    x.logsumexp(1).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


# ---- creation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [(5,), (2, 8), (0, 10, 3), (10, 0, -3), (5, 2), (0, 1, 0.1), (1.5,), (-3, 3, 2), (2**31, 2**31 + 3)]
)
def test_arange(args: tuple) -> None:
    expected = np.arange(*args)
    got = Tensor.arange(*args)
    assert got.dtype == (
        dtypes.float32 if expected.dtype.kind == "f" else dtypes.int64 if args[0] == 2**31 else dtypes.int32
    )
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_creation() -> None:
    np.testing.assert_allclose(Tensor.linspace(-1, 2, 11).numpy(), np.linspace(-1, 2, 11), rtol=1e-6, atol=1e-7)
    assert Tensor.linspace(0, 0.7, 4).numpy()[-1] == np.float32(0.7)
    assert Tensor.linspace(5, 9, 1).tolist() == [5.0]
    np.testing.assert_equal(Tensor.eye(3, 5).numpy(), np.eye(3, 5))
    np.testing.assert_equal(Tensor.full((2, 3), 7).numpy(), np.full((2, 3), 7))
    assert Tensor.full((2, 3), 7).dtype == dtypes.int32
    assert Tensor.zeros(2, 3).tolist() == [[0.0] * 3] * 2
    assert Tensor.ones((2,), dtype="int8").dtype == dtypes.int8
    assert Tensor([1, 2]).zeros_like().tolist() == [0, 0]
    assert Tensor([1, 2]).ones_like(dtype="float32").tolist() == [1.0, 1.0]
    assert Tensor([1.0]).full_like(3).tolist() == [3.0]
    assert Tensor.empty(3, 4).shape == (3, 4)
    assert Tensor.full((2,), 1.0, buffer=False).device is None
    assert Tensor.arange(3).device is None


def test_creation_errors() -> None:
    with pytest.raises(ValueError, match="negative size"):
        Tensor.zeros(-1)
    with pytest.raises(ZeroDivisionError):
        Tensor.arange(0, 3, 0)
    with pytest.raises(OverflowError, match="do not fit"):
        Tensor.arange(300, dtype="int8")
    with pytest.raises(ValueError, match="steps"):
        Tensor.linspace(0, 1, -1)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
