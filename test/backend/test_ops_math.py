"""Math that test_ops.py leaves out: two operands, edges of functions, activations, reductions, scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from test.helpers_cases import (
    BOOLS,
    BYTES,
    EMPTY,
    FLOATS,
    INF,
    INTS,
    NAN,
    POSITIVE,
    ROW,
    Case,
    assert_case,
    f32,
    i32,
    section,
    t,
    with_int_indices,
)
from tinygrad import Tensor, dtypes

# ---- 5. two operands -------------------------------------------------------------------------------------------------

SPECIAL = f32([0, 1, INF, -INF, NAN, 1 + 1e-6])
OTHERS = f32([1e-9, 1, INF, INF, NAN, 1])


def _limits(kind: str) -> Tensor:
    """Return the smallest and the largest integer of a dtype, twice."""
    limits = np.iinfo(kind)
    return Tensor(np.array([limits.min, limits.max] * 2, kind))


PAIRS = {"ints": (INTS, POSITIVE), "negative": (INTS, -POSITIVE), "floats": (FLOATS, ROW)}
BITS = {"int": (INTS, POSITIVE), "bool": (BOOLS, BOOLS[::-1].copy()), "uint8": (BYTES, POSITIVE.astype(np.uint8))}

BINARY: list[Case] = [
    *(
        (f"mod {n}", lambda a=a, b=b: Tensor(a).mod(Tensor(b)), lambda a=a, b=b: np.mod(a, b))
        for n, (a, b) in PAIRS.items()
    ),
    *(
        (f"fmod {n}", lambda a=a, b=b: Tensor(a).fmod(Tensor(b)), lambda a=a, b=b: np.fmod(a, b))
        for n, (a, b) in PAIRS.items()
    ),
    *((f"// {n}", lambda a=a, b=b: Tensor(a) // Tensor(b), lambda a=a, b=b: a // b) for n, (a, b) in PAIRS.items()),
    *(
        (
            f"div trunc {n}",
            lambda a=a, b=b: Tensor(a).div(Tensor(b), rounding_mode="trunc"),
            lambda a=a, b=b: np.trunc(a / b).astype(a.dtype),
        )
        for n, (a, b) in PAIRS.items()
    ),
    *(
        (f"{op} {n}", lambda a=a, b=b, op=op: getattr(Tensor(a), op)(Tensor(b)), lambda a=a, b=b, f=f: f(a, b))
        for op, f in (("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or), ("bitwise_xor", np.bitwise_xor))
        for n, (a, b) in BITS.items()
    ),
    *((f"bitwise_not {n}", lambda a=a: Tensor(a).bitwise_not(), lambda a=a: ~a) for n, (a, _) in BITS.items()),
    *(
        (f"logical_not {n}", lambda a=a: Tensor(a).logical_not(), lambda a=a: np.logical_not(a))
        for n, (a, _) in BITS.items()
    ),
    *(
        (f"{op} {n}", lambda a=a, b=b, op=op: getattr(Tensor(a), op)(Tensor(b)), lambda a=a, b=b, f=f: f(a, b))
        for op, f in (("eq", np.equal), ("ne", np.not_equal), ("__lt__", np.less), ("__ge__", np.greater_equal))
        for n, (a, b) in BITS.items()
    ),
    ("mul int and float", lambda: Tensor(INTS).mul(Tensor(ROW)), lambda: f32(INTS * ROW)),
    ("div of ints", lambda: Tensor(INTS).div(Tensor(POSITIVE)), lambda: f32(INTS / POSITIVE)),
    ("div reversed", lambda: Tensor(POSITIVE).div(3, reverse=True), lambda: f32(3 / POSITIVE)),
    ("mod reversed", lambda: Tensor(POSITIVE).mod(7, reverse=True), lambda: 7 % POSITIVE),
    ("bitwise_or reversed", lambda: 5 | Tensor(INTS), lambda: 5 | INTS),
    ("pow reversed", lambda: Tensor(POSITIVE).pow(2, reverse=True), lambda: 2**POSITIVE),
    ("pow of ints", lambda: Tensor(INTS).pow(Tensor(POSITIVE)), lambda: INTS**POSITIVE),
    ("pow int to half", lambda: Tensor([4, 9]).pow(0.5), f32([2, 3])),
    ("pow of negative", lambda: Tensor([-8.0]).pow(1 / 3), f32([NAN])),
    ("0 ** 0", lambda: Tensor([0.0, 0.0]).pow(Tensor([0.0, 2.0])), f32([1, 0])),
    *(
        (f"pow {k}", lambda k=k: Tensor([2.0, -3.0]).pow(k), lambda k=k: f32([2, -3]) ** np.float32(k))
        for k in (-2, 3, 0, -1.5)
    ),
    ("lshift", lambda: Tensor(POSITIVE).lshift(3), lambda: POSITIVE << 3),
    ("lshift reversed", lambda: Tensor(POSITIVE).lshift(1, reverse=True), lambda: 1 << POSITIVE),
    ("rshift", lambda: Tensor(INTS).rshift(1), lambda: INTS >> 1),
    ("rshift uint8", lambda: Tensor(BYTES).rshift(1), lambda: BYTES >> 1),
    ("rshift by tensor", lambda: Tensor(INTS).rshift(Tensor(POSITIVE)), lambda: INTS >> POSITIVE),
    ("isclose", lambda: Tensor(SPECIAL).isclose(Tensor(OTHERS)), lambda: np.isclose(SPECIAL, OTHERS)),
    (
        "isclose nan",
        lambda: Tensor(SPECIAL).isclose(Tensor(OTHERS), equal_nan=True),
        lambda: np.isclose(SPECIAL, OTHERS, equal_nan=True),
    ),
    ("isclose int", lambda: Tensor(INTS).isclose(Tensor(INTS)), np.ones((3, 4), bool)),
    *(
        (
            f"isclose limits of {kind}",
            lambda kind=kind: _limits(kind).isclose(_limits(kind)[[0, 1, 1, 0]], atol=2),
            np.array([True, True, False, False]),
        )
        for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    ),
    ("allclose", lambda: Tensor(FLOATS).allclose(Tensor(FLOATS + 1e-7)), np.array(True)),
    ("allclose not", lambda: Tensor(FLOATS).allclose(Tensor(FLOATS + 1)), np.array(False)),
    ("allclose empty", lambda: Tensor([]).allclose(Tensor([])), np.array(True)),
    (
        "copysign",
        lambda: Tensor(FLOATS).copysign(Tensor([1.0, -1.0, 0.0, -0.0])),
        lambda: np.copysign(FLOATS, f32([1, -1, 0, -0.0])),
    ),
    ("copysign int", lambda: Tensor(INTS).copysign(-1), lambda: -np.abs(INTS)),
    (
        "logaddexp",
        lambda: Tensor([-INF, 1e4, 0.0]).logaddexp(Tensor([-INF, 1e4, INF])),
        f32([-INF, 1e4 + math.log(2), INF]),
    ),
    ("lerp", lambda: Tensor(FLOATS).lerp(Tensor(ROW), 0.3), lambda: torch.lerp(t(FLOATS), t(ROW).expand(3, 4), 0.3)),
    (
        "lerp by tensor",
        lambda: Tensor(FLOATS).lerp(Tensor(ROW), Tensor(FLOATS)),
        lambda: torch.lerp(t(FLOATS), t(ROW).expand(3, 4), t(FLOATS)),
    ),
    ("clamp int", lambda: Tensor(INTS).clamp(-2, 3), lambda: np.clip(INTS, -2, 3)),
    ("clamp below", lambda: Tensor(FLOATS).clamp(min_=0.1), lambda: np.clip(FLOATS, 0.1, None)),
    ("clamp crossed", lambda: Tensor(FLOATS).clamp(1, -1), lambda: t(FLOATS).clamp(1, -1)),
    ("clamp nan", lambda: Tensor(SPECIAL).clamp(0, 1), lambda: np.clip(SPECIAL, 0, 1)),
    (
        "clip to tensors",
        lambda: Tensor(FLOATS).clip(Tensor(-np.abs(ROW)), Tensor(np.abs(ROW))),
        lambda: np.clip(FLOATS, -np.abs(ROW), np.abs(ROW)),
    ),
    ("where", lambda: Tensor(BOOLS).where(Tensor(ROW), Tensor(FLOATS)), lambda: np.where(BOOLS, ROW, FLOATS)),
    ("where scalar", lambda: Tensor(BOOLS).where(1, Tensor(INTS)), lambda: np.where(BOOLS, 1, INTS)),
    (
        "masked_fill",
        lambda: Tensor(FLOATS).masked_fill(Tensor(BOOLS[:, :1]), -INF),
        lambda: np.where(BOOLS[:, :1], f32(-INF), FLOATS),
    ),
    (
        "masked_fill int",
        lambda: Tensor(INTS).masked_fill(Tensor(BOOLS), Tensor(5)),
        lambda: i32(np.where(BOOLS, 5, INTS)),
    ),
    ("usum", lambda: Tensor(INTS).usum(Tensor(POSITIVE), Tensor(INTS)), lambda: INTS + POSITIVE + INTS),
    ("usum bool", lambda: Tensor(BOOLS).usum(~Tensor(BOOLS)), np.ones((3, 4), bool)),
    ("uprod", lambda: Tensor(INTS).uprod(Tensor(POSITIVE), 2), lambda: INTS * POSITIVE * 2),
    ("ufix", lambda: Tensor(FLOATS).ufix(2) + Tensor(FLOATS), lambda: FLOATS + 2),
]


@section(BINARY)
def test_two_operands(case: Case) -> None:
    assert_case(case)


def test_threefry_block() -> None:
    # Known answer of Threefry-2x32 with 20 rounds: counter and key of ones (Salmon et al., 2011).
    ones = Tensor.full((1,), 2**64 - 1, dtype=dtypes.uint64)
    zeros = Tensor.full((1,), 0, dtype=dtypes.uint64)
    assert ones.threefry(ones).item() == 0x1CB996FC | 0xBB002BE7 << 32
    assert zeros.threefry(zeros).item() == 0x6B200159 | 0x99BA4EFE << 32


# ---- 6. one operand --------------------------------------------------------------------------------------------------

EDGES = f32([0, -0.0, 1, -1, 0.5, -0.5, INF, -INF, NAN, 1e-6, 3e38, 88, -104, 1e-40])
NUMPY_NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "neg": "negative",
}
UNARY = [
    "neg",
    "abs",
    "sign",
    "square",
    "sqrt",
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "trunc",
    "ceil",
    "floor",
    "round",
    "isnan",
    "isinf",
    "isfinite",
    "reciprocal",
]


@pytest.mark.parametrize("name", UNARY)
def test_edges_of_math(name: str) -> None:
    assert_case(
        (name, lambda: getattr(Tensor(EDGES), name)(), lambda: getattr(np, NUMPY_NAMES.get(name, name))(EDGES)), 2e-6
    )


MATH: list[Case] = [
    ("rsqrt", lambda: Tensor(EDGES).rsqrt(), lambda: f32(1 / np.sqrt(EDGES))),
    ("erf", lambda: Tensor(EDGES).erf(), lambda: torch.erf(t(EDGES))),
    ("isinf positive", lambda: Tensor(EDGES).isinf(True, False), lambda: EDGES == INF),
    ("isinf negative", lambda: Tensor(EDGES).isinf(False, True), lambda: EDGES == -INF),
    ("isinf none", lambda: Tensor(EDGES).isinf(False, False), np.zeros(EDGES.shape, bool)),
]


@section(MATH)
def test_math(case: Case) -> None:
    assert_case(case)


# ---- 7. activations --------------------------------------------------------------------------------------------------

SATURATED = f32([0, -0.0, 1, -1, 0.5, -0.5, 3, -3, 6, -6, 30, -30, 300, -300])
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "silu": F.silu,
    "swish": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name: str) -> None:
    expected = ACTIVATIONS[name]
    assert_case((name, lambda: getattr(Tensor(SATURATED), name)(), lambda: expected(t(SATURATED))), 2e-5)
    assert_case((name, lambda: getattr(Tensor(INTS), name)().float(), lambda: expected(t(INTS).float())), 2e-5)


PARAMETERS: list[Case] = [
    ("gelu none", lambda: Tensor(SATURATED).gelu("none"), lambda: F.gelu(t(SATURATED))),
    ("leaky_relu", lambda: Tensor(FLOATS).leaky_relu(neg_slope=0.2), lambda: F.leaky_relu(t(FLOATS), 0.2)),
    ("elu", lambda: Tensor(FLOATS).elu(2.0), lambda: F.elu(t(FLOATS), 2.0)),
    ("celu", lambda: Tensor(FLOATS).celu(2.0), lambda: F.celu(t(FLOATS), 2.0)),
    ("hardtanh", lambda: Tensor(FLOATS).hardtanh(-0.5, 0.2), lambda: F.hardtanh(t(FLOATS), -0.5, 0.2)),
    ("softplus", lambda: Tensor(FLOATS).softplus(3.0), lambda: F.softplus(t(FLOATS), beta=3.0)),
    *(
        (
            f"{n} axis {axis}",
            lambda n=n, axis=axis: getattr(Tensor(FLOATS), n)(axis),
            lambda n=n, axis=axis: getattr(F, n)(t(FLOATS), dim=axis),
        )
        for n in ("softmax", "log_softmax", "softmin")
        for axis in (0, -1)
    ),
    *(
        (f"{n} int", lambda n=n: getattr(Tensor(INTS), n)(), lambda n=n: getattr(F, n)(t(INTS).float(), dim=-1))
        for n in ("softmax", "log_softmax", "softmin")
    ),
    *(
        (f"{n} scalar", lambda n=n: getattr(Tensor(3.0), n)(), lambda n=n: getattr(F, n)(t(3.0), dim=0))
        for n in ("softmax", "log_softmax", "softmin")
    ),
    ("softmax empty", lambda: Tensor(EMPTY).softmax(), EMPTY),
    (
        "softmax dtype",
        lambda: Tensor(FLOATS).half().softmax(dtype="float32"),
        lambda: F.softmax(t(FLOATS).half(), dim=-1, dtype=torch.float32),
    ),
]


@section(PARAMETERS)
def test_activation_parameters(case: Case) -> None:
    assert_case(case)


# ---- 8. reductions, scans, order -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)], ids=str)
@pytest.mark.parametrize("array", [INTS, BOOLS], ids=["int", "bool"])
def test_reductions_of_other_dtypes(array: np.ndarray, axis: Any, keepdim: bool) -> None:
    x, kwargs = Tensor(array), {"axis": axis, "keepdims": keepdim}
    for name in ("sum", "prod", "max", "min", "mean", "any", "all"):
        wanted = getattr(np, name)(array, **kwargs)
        if name == "prod" and array is BOOLS:
            wanted = wanted.astype(bool)
        assert_case((name, lambda name=name: getattr(x, name)(axis=axis, keepdim=keepdim), wanted))
    if not isinstance(axis, tuple):
        for name in ("argmax", "argmin"):
            assert_case((
                name,
                lambda name=name: getattr(x, name)(axis=axis, keepdim=keepdim),
                getattr(np, name)(array, **kwargs),
            ))


REDUCTIONS: list[Case] = [
    *(
        (
            f"empty {n} {axis}",
            lambda n=n, axis=axis: getattr(Tensor(EMPTY), n)(axis=axis),
            lambda n=n, axis=axis: getattr(np, n)(EMPTY, axis=axis),
        )
        for n in ("sum", "prod", "mean", "any", "all")
        for axis in (None, 0, 1)
    ),
    ("empty max", lambda: Tensor(EMPTY).max(0), f32([-INF] * 3)),
    ("empty min of ints", lambda: Tensor(EMPTY).int().min(0), i32([2**31 - 1] * 3)),
    *(
        (f"var {c}", lambda c=c: Tensor(FLOATS).var(1, correction=c), lambda c=c: np.var(FLOATS, axis=1, ddof=c))
        for c in (0, 1)
    ),
    ("var of one", lambda: Tensor([3.0]).var(), f32(NAN)),
    ("var_mean", lambda: Tensor(FLOATS).var_mean(1), lambda: torch.var_mean(t(FLOATS), 1)),
    (
        "std_mean",
        lambda: Tensor(FLOATS).std_mean(axis=0, keepdim=True),
        lambda: torch.std_mean(t(FLOATS), 0, keepdim=True),
    ),
    ("sum dtype", lambda: Tensor(FLOATS).sum(dtype="float64"), lambda: FLOATS.sum(dtype=np.float64)),
    ("sum uint8", lambda: Tensor(np.full(300, 200, np.uint8)).sum(), np.array(60000, np.uint32)),
    ("sum scalar", lambda: Tensor(3).sum(0), i32(3)),
    ("max scalar", lambda: Tensor(3.5).max(-1), f32(3.5)),
    ("argmax scalar", lambda: Tensor(3.5).argmax(), i32(0)),
    (
        "logsumexp",
        lambda: Tensor(FLOATS).logsumexp(1, keepdim=True),
        lambda: torch.logsumexp(t(FLOATS), 1, keepdim=True),
    ),
    ("logsumexp of -inf", lambda: Tensor([-INF, -INF]).logsumexp(), f32(-INF)),
    *(
        (f"normalize {p}", lambda p=p: Tensor(FLOATS).normalize(p=p), lambda p=p: F.normalize(t(FLOATS), p=p))
        for p in (1, 2, 3, 0, INF, -INF)
    ),
    ("normalize -inf with a zero", lambda: Tensor([[0.0, -2.0, 0.5]]).normalize(-INF, eps=0.25), f32([[0, -8, 2]])),
    ("normalize zeros", lambda: Tensor.zeros(2, 3).normalize(), f32(np.zeros((2, 3)))),
]


@section(REDUCTIONS)
def test_reductions(case: Case) -> None:
    assert_case(case)


SCANS: list[Case] = [
    *(
        (
            f"{n} {axis}",
            lambda n=n, axis=axis: getattr(Tensor(FLOATS), n)(axis),
            lambda n=n, axis=axis: with_int_indices(getattr(torch, n)(t(FLOATS), axis)),
        )
        for n in ("cummax", "cummin")
        for axis in (0, 1)
    ),
    *(
        (
            f"logcumsumexp {axis}",
            lambda axis=axis: Tensor(FLOATS).logcumsumexp(axis),
            lambda axis=axis: torch.logcumsumexp(t(FLOATS), axis),
        )
        for axis in (0, -1)
    ),
    ("logcumsumexp of -inf", lambda: Tensor([-INF, 0.0, -INF]).logcumsumexp(), f32([-INF, 0, 0])),
    ("cumprod int", lambda: Tensor(INTS).cumprod(1), lambda: np.cumprod(INTS, axis=1, dtype=np.int32)),
    ("cumsum bool", lambda: Tensor(BOOLS).cumsum(1), lambda: i32(BOOLS.cumsum(1))),
    ("cumsum empty", lambda: Tensor(EMPTY).cumsum(0), EMPTY),
    ("cumsum scalar", lambda: Tensor(3.0).cumsum(), f32(3)),
    ("cumprod scalar", lambda: Tensor(3).cumprod(0), i32(3)),
    ("cummax of ties", lambda: Tensor([1, 3, 3, 2, 3]).cummax()[1], i32([0, 1, 1, 1, 1])),
    ("cummin int", lambda: Tensor([3, 1, 2]).cummin()[0], i32([3, 1, 1])),
    ("cummax scalar", lambda: Tensor(3).cummax(), [i32(3), i32(0)]),
    ("sort", lambda: Tensor(INTS).sort(1), lambda: [np.sort(INTS, 1), i32(np.argsort(INTS, 1, kind="stable"))]),
    (
        "sort descending",
        lambda: Tensor(FLOATS).sort(0, descending=True),
        lambda: [-np.sort(-FLOATS, 0), i32(np.argsort(-FLOATS, 0, kind="stable"))],
    ),
    ("sort bool", lambda: Tensor(BOOLS).sort()[0], lambda: np.sort(BOOLS)),
    ("sort scalar", lambda: Tensor(3).sort(), [i32(3), i32(0)]),
    ("sort empty", lambda: Tensor(EMPTY).sort(0)[0], EMPTY),
    ("sort of one", lambda: Tensor([5.0]).sort()[1], i32([0])),
    ("argsort", lambda: Tensor(POSITIVE).argsort(), lambda: i32(np.argsort(POSITIVE, kind="stable"))),
    (
        "topk smallest",
        lambda: Tensor(FLOATS).topk(2, dim=0, largest=False),
        lambda: with_int_indices(torch.topk(t(FLOATS), 2, dim=0, largest=False)),
    ),
    ("topk 0", lambda: Tensor(FLOATS).topk(0)[0], f32(np.zeros((3, 0)))),
]


@section(SCANS)
def test_scans_and_order(case: Case) -> None:
    assert_case(case)


# At 1/2 and -1/2 a power is the square root and its reciprocal, as in torch.
@pytest.mark.parametrize("exponent", [-3.5, -2.5, -1.0, 1.0, 1.5, 2.0, 3.5, 17.5])
def test_powers_at_zero_and_infinity(exponent: float) -> None:
    base = np.array([-np.inf, -3.5, -1.0, -0.0, 0.0, 0.5, 2.0, np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        want = np.power(base, np.float32(exponent))
    for got in (Tensor(base) ** exponent, Tensor(base) ** Tensor(exponent)):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 6.5e4), ("bfloat16", 3e38), ("float32", 3e38)])
@pytest.mark.parametrize("decimals", [1, 3, 5, 20, 38, 39, 100, 400, -1, -3, -38, -39, -400])
def test_rounding_to_decimals_of_values_near_the_limits(dtype: str, largest: float, decimals: int) -> None:
    x = Tensor([largest, -largest, 7000.0, 123.456, -0.0625, -0.0, INF, -INF, NAN]).cast(dtype).clone().realize()
    values = x.float().tolist()
    exact = [round(v, decimals) if math.isfinite(v) else v for v in values]
    got, want = x.round(decimals), Tensor(exact).cast(dtype)
    assert got.dtype is x.dtype
    np.testing.assert_allclose(got.float().numpy(), want.float().numpy(), rtol=3e-7)
    assert np.signbit(got.float().numpy()[:-1]).tolist() == np.signbit(want.float().numpy()[:-1]).tolist()
    assert x.round(decimals).sum().gradient(x)[0].tolist() == [0.0] * len(values)
