"""Members that test_ops.py leaves out: creation, dtypes, movement, indexing, random, casts."""

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
    INDEX,
    INTS,
    NAN,
    ROW,
    Case,
    assert_case,
    f32,
    i32,
    section,
    t,
)
from tinygrad import Tensor, Variable, dtypes

# ---- 1. creation -----------------------------------------------------------------------------------------------------

CREATION: list[Case] = [
    ("full_like casts", lambda: Tensor(INTS).full_like(2.7), np.full((3, 4), 2, np.int32)),
    ("full_like dtype", lambda: Tensor(INTS).full_like(2.5, dtype="float32"), f32(np.full((3, 4), 2.5))),
    ("ones_like bool", lambda: Tensor(BOOLS).ones_like(), np.ones((3, 4), bool)),
    ("zeros_like scalar", lambda: Tensor(3.0).zeros_like(dtype="float32"), f32(0)),
    ("full of a variable", lambda: Tensor.full((2,), Variable("v", 0, 9).bind(4)), i32([4, 4])),
    ("arange down", lambda: Tensor.arange(5, 0, -2), i32([5, 3, 1])),
    ("arange empty", lambda: Tensor.arange(5, 0), i32([])),
    ("arange float", lambda: Tensor.arange(0, 1, 0.3), f32(np.arange(0, 1, 0.3))),
    ("arange uint8", lambda: Tensor.arange(3, dtype="uint8"), np.arange(3, dtype=np.uint8)),
    ("linspace of one", lambda: Tensor.linspace(3, 9, 1), f32([3])),
    ("linspace of none", lambda: Tensor.linspace(3, 9, 0), f32([])),
    ("linspace int", lambda: Tensor.linspace(0, 10, 5, dtype="int32"), i32([0, 2, 5, 7, 10])),
    ("eye wide", lambda: Tensor.eye(2, 4, dtype="int32"), np.eye(2, 4, dtype=np.int32)),
    ("eye empty", lambda: Tensor.eye(0), f32(np.eye(0))),
]


@section(CREATION)
def test_creation(case: Case) -> None:
    assert_case(case)


def test_uninitialised() -> None:
    x = Tensor(FLOATS).empty_like()
    assert (x.shape, x.dtype, x.device) == ((3, 4), dtypes.float32, Tensor(FLOATS).device)
    assert Tensor(3).empty_like().dtype is dtypes.default_int
    scratch = Tensor.invalids(2, 3)
    assert (scratch.shape, scratch.dtype) == ((2, 3), dtypes.bool)
    scratch.assign(True)
    assert scratch.tolist() == [[True] * 3] * 2


def test_sizes() -> None:
    x = Tensor(FLOATS)
    assert (x.numel(), x.element_size(), x.nbytes(), x.size(), x.size(-1)) == (12, 4, 48, (3, 4), 4)
    symbolic = x[: Variable("n", 1, 3).bind(2)]
    assert (symbolic.max_shape, symbolic.max_numel()) == ((3, 4), 12)
    assert [Tensor(v).is_floating_point() for v in (1, 1.0, True)] == [False, True, False]
    with pytest.raises(RuntimeError, match="weak"):
        Tensor(1).element_size()


# ---- result dtypes ---------------------------------------------------------------------------------------------------

WEAK = dtypes.weakfloat
SAME = object()
RESULT_DTYPES = [  # members, from int32 and uint8, from bool
    ("neg abs sign square trunc sort cummax prod max min", SAME, dtypes.bool),
    ("relu hardtanh ceil floor relu6", SAME, dtypes.weakint),
    (
        "sqrt rsqrt exp exp2 log log2 log10 sin cos tan sinh cosh atanh erf reciprocal elu selu softsign mean var std "
        "softmax log_softmax logsumexp",
        dtypes.float32,
        dtypes.float32,
    ),
    ("atan asinh acosh", dtypes.float32, WEAK),
    (
        "asin acos tanh sigmoid hardswish hardsigmoid leaky_relu quick_gelu gelu swish silu celu softplus mish "
        "logsigmoid round",
        WEAK,
        WEAK,
    ),
    ("logical_not isnan isinf isfinite any all", dtypes.bool, dtypes.bool),
    ("argmax argmin argsort", dtypes.int32, dtypes.int32),
]


@pytest.mark.parametrize(
    ("name", "of_int", "of_bool"), [(n, a, b) for names, a, b in RESULT_DTYPES for n in names.split()]
)
def test_result_dtype(name: str, of_int: Any, of_bool: Any) -> None:
    for x, wanted in ((Tensor(INTS[0]), of_int), (Tensor(BYTES[0]), of_int), (Tensor(BOOLS[0]), of_bool)):
        result = getattr(x, name)()
        result = result[0] if isinstance(result, tuple) else result
        assert result.dtype is (x.dtype if wanted is SAME else wanted), f"{name} of {x.dtype} gives {result.dtype}"
        assert result.numpy().shape == result.shape


def test_sum_dtypes() -> None:
    for x, wanted in (
        (INTS, dtypes.int32),
        (BYTES, dtypes.uint32),
        (BOOLS, dtypes.int32),
        (INTS.astype(np.int64), dtypes.int64),
    ):
        assert Tensor(x).sum().dtype is wanted
        assert Tensor(x).cumsum().dtype is wanted


# ---- 4. movement -----------------------------------------------------------------------------------------------------

MOVES: list[tuple[str, Callable[[Tensor], Any], Callable[[np.ndarray], Any]]] = [
    ("shrink_to", lambda x: x.shrink_to(2, None), lambda x: x[:2]),
    ("pad_to", lambda x: x.pad_to(5, None, value=1), lambda x: np.pad(x, ((0, 2), (0, 0)), constant_values=1)),
    ("unflatten", lambda x: x.unflatten(1, (2, -1)), lambda x: x.reshape(3, 2, 2)),
    ("reshape None", lambda x: x.reshape(None, 2, 2), lambda x: x.reshape(3, 2, 2)),
    ("expand", lambda x: x.unsqueeze(0).expand(2, None, -1), lambda x: np.broadcast_to(x, (2, 3, 4))),
    ("tril", lambda x: x.tril(-1), lambda x: np.tril(x, -1)),
    ("triu", lambda x: x.triu(2), lambda x: np.triu(x, 2)),
    ("flip", lambda x: x.flip(-1), lambda x: x[:, ::-1]),
    ("repeat", lambda x: x.repeat((2, 1, 2)), lambda x: np.tile(x, (2, 1, 2))),
    ("repeat 0", lambda x: x.repeat(0, 1), lambda x: np.tile(x, (0, 1))),
    ("repeat_interleave", lambda x: x.repeat_interleave(2), lambda x: np.repeat(x, 2)),
    ("roll", lambda x: x.roll((1, -5), (0, 1)), lambda x: np.roll(x, (1, -5), (0, 1))),
    ("pad and crop", lambda x: x.pad(((1, -1), None)), lambda x: np.pad(x, ((1, 0), (0, 0)))[:-1]),
    ("chunk", lambda x: x.chunk(3, dim=1), lambda x: [x[:, 0:2], x[:, 2:4]]),
    ("split", lambda x: x.split([1, 3], dim=1), lambda x: [x[:, :1], x[:, 1:]]),
    ("stack", lambda x: x.stack(x, dim=-1), lambda x: np.stack([x, x], -1)),
    ("cat", lambda x: x.cat(x, dim=-1), lambda x: np.concatenate([x, x], -1)),
    ("unfold", lambda x: x.unfold(1, 2, 2), lambda x: x.reshape(3, 2, 2)),
    ("diag", lambda x: x[0].diag(), lambda x: np.diag(x[0])),
]


@pytest.mark.parametrize("array", [INTS, BOOLS, BYTES], ids=["int", "bool", "uint8"])
@pytest.mark.parametrize(("ours", "expected"), [row[1:] for row in MOVES], ids=[row[0] for row in MOVES])
def test_movement_of_other_dtypes(ours: Any, expected: Any, array: np.ndarray) -> None:
    assert_case(("", lambda: ours(Tensor(array)), lambda: expected(array)))


JOINS: list[Case] = [
    ("pad keeps int", lambda: Tensor(INTS).pad((1, 0), value=2.7), lambda: F.pad(t(INTS), (1, 0), value=2.7)),
    ("triu 3-d", lambda: Tensor.ones(2, 3, 3).triu(1), lambda: np.triu(f32(np.ones((2, 3, 3))), 1)),
    ("cat promotes", lambda: Tensor(INTS).cat(Tensor(FLOATS)), lambda: f32(np.concatenate([INTS, FLOATS]))),
    ("stack of scalars", lambda: Tensor.stack([Tensor(1), Tensor(2)]), i32([1, 2])),
    ("meshgrid of a scalar", lambda: Tensor(1).meshgrid(Tensor([2, 3])), [i32([[1, 1]]), i32([[2, 3]])]),
    (
        "meshgrid of three",
        lambda: Tensor([1, 2]).meshgrid(Tensor([3]), Tensor([4, 5]), indexing="xy"),
        lambda: np.meshgrid(i32([1, 2]), i32([3]), i32([4, 5]), indexing="xy"),
    ),
]


@section(JOINS)
def test_joining(case: Case) -> None:
    assert_case(case)


# ---- 10. indexing ----------------------------------------------------------------------------------------------------


INDEXING: list[Case] = [
    ("gather out of range", lambda: Tensor(ROW).gather(0, Tensor([9, 1])), lambda: f32([0, ROW[1]])),
    *(
        (
            f"scatter_reduce {r} {inc}",
            lambda r=r, inc=inc: Tensor(FLOATS).scatter_reduce(0, Tensor(INDEX), Tensor(FLOATS[:2] * 2), r, inc),
            lambda r=r, inc=inc: t(FLOATS).scatter_reduce(0, t(INDEX), t(FLOATS[:2] * 2), r, include_self=inc),
        )
        for r in ("sum", "prod", "mean", "amax", "amin")
        for inc in (True, False)
    ),
    (
        "scatter scalar",
        lambda: Tensor(FLOATS).scatter(1, Tensor([[1], [2]]), 9.0),
        lambda: t(FLOATS).scatter(1, t([[1], [2]]), 9.0),
    ),
    *(
        (
            f"scatter {r}",
            lambda r=r: Tensor(FLOATS).scatter(0, Tensor(INDEX), 2.0, reduce=r),
            lambda r=r: t(FLOATS).scatter(0, t(INDEX), 2.0, reduce=r),
        )
        for r in ("add", "multiply")
    ),
    (
        "masked_select padded",
        lambda: Tensor(INTS).masked_select(Tensor(BOOLS), size=15, fill_value=-7),
        lambda: np.concatenate([INTS[BOOLS], np.full(15 - BOOLS.sum(), -7, np.int32)]),
    ),
    ("masked_select nothing", lambda: Tensor(FLOATS).masked_select(Tensor(np.zeros_like(BOOLS))), f32([])),
    ("nonzero", lambda: Tensor(INTS).nonzero(), lambda: i32(np.argwhere(INTS))),
    ("nonzero padded", lambda: Tensor([0, 3, 0, 4]).nonzero(size=3, fill_value=9), i32([[1], [3], [9]])),
    ("nonzero scalar", lambda: Tensor(3).nonzero(), i32(np.zeros((1, 0)))),
    ("nonzero empty", lambda: Tensor(EMPTY).nonzero(), i32(np.zeros((0, 2)))),
    ("one_hot", lambda: Tensor([0, 2, 5, -1]).one_hot(3), i32([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])),
    ("one_hot of none", lambda: Tensor([0]).one_hot(0), i32(np.zeros((1, 0)))),
]


@section(INDEXING)
def test_indexing(case: Case) -> None:
    assert_case(case)


# ---- 11. random: distributions ---------------------------------------------------------------------------------------


def test_initialisers() -> None:
    Tensor.manual_seed(1)
    bounds = {
        "scaled_uniform": (64 * 32) ** -0.5,
        "glorot_uniform": math.sqrt(6 / (64 + 32)),
        "kaiming_uniform": math.sqrt(6 / ((1 + 0.01**2) * 32)),
    }
    for name, bound in bounds.items():
        x = getattr(Tensor, name)(64, 32).numpy()
        assert np.abs(x).max() <= bound
        assert abs(x.std() - bound / math.sqrt(3)) < 0.05 * bound
        assert abs(x.mean()) < 0.05 * bound
    x = Tensor.kaiming_normal(64, 32, a=0.0).numpy()
    assert abs(x.std() - math.sqrt(2 / 32)) < 0.02
    like = Tensor(FLOATS).half().randn_like()
    assert (like.shape, like.dtype) == ((3, 4), dtypes.half)


def test_random_bits_are_a_function_of_key_and_counter() -> None:
    key, counter = Tensor([1, 2], dtype="uint32"), Tensor([3, 0], dtype="uint32")
    first, again = Tensor.random_bits(key, counter, 5), Tensor.random_bits(key, counter, 5)
    assert first.dtype is dtypes.uint32
    assert first.tolist() == again.tolist()
    assert first.tolist() != Tensor.random_bits(key, Tensor([4, 0], dtype="uint32"), 5).tolist()


# ---- 13, 14. devices, casts ------------------------------------------------------------------------------------------


def test_placement() -> None:
    x = Tensor(FLOATS).is_param_(False)
    moved = x.to("PYTHON")
    assert (moved.device, moved.is_param) == ("PYTHON", False)
    y = Tensor(FLOATS).to_("PYTHON")
    assert y.device == "PYTHON"
    np.testing.assert_array_equal(y.numpy(), FLOATS)
    assert Tensor(FLOATS).shard(("PYTHON",)).device == "PYTHON"
    assert Tensor(FLOATS).shard_(("PYTHON",), axis=0).device == "PYTHON"
    assert Tensor(FLOATS).shard_like(y).device == "PYTHON"
    constant = Tensor(3)
    assert constant.to("PYTHON") is constant


CASTS: list[Case] = [
    ("bool of nan", lambda: Tensor([0.0, -0.0, 0.5, NAN]).bool(), np.array([False, False, True, True])),
    ("short", lambda: Tensor([-1.9, 1.9, 300.5]).short(), np.array([-1, 1, 300], np.int16)),
    ("long", lambda: Tensor([-1.9, 1.9, 3e9]).long(), np.array([-1, 1, 3000000000])),
    ("int8 wraps", lambda: Tensor([300, -300, 127]).cast("int8"), np.array([44, -44, 127], np.int8)),
    ("half", lambda: Tensor([1e5, 1e-8, 1 / 3]).half(), lambda: f32([1e5, 1e-8, 1 / 3]).astype(np.float16)),
    ("bfloat16", lambda: Tensor([1 / 3, 1e39]).bfloat16(), lambda: t([1 / 3, 1e39]).bfloat16().float()),
    ("bitcast", lambda: Tensor(FLOATS).bitcast("int32"), lambda: FLOATS.view(np.int32)),
    ("bitcast to bytes", lambda: Tensor(FLOATS).bitcast("uint8"), lambda: FLOATS.view(np.uint8)),
    (
        "bitcast of a filled tensor",
        lambda: Tensor.full((2,), 258).bitcast("uint8"),
        np.array([2, 1, 0, 0] * 2, np.uint8),
    ),
    ("bitcast permuted", lambda: Tensor(FLOATS).T.bitcast("int16"), lambda: FLOATS.T.copy().view(np.int16)),
]


@section(CASTS)
def test_casts(case: Case) -> None:
    assert_case(case)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("amounts", [(-1, 2), (2, -1), (-2, -1), (3, 0), (-3, 3)])
def test_padding_that_crops_the_other_side(mode: str, amounts: tuple[int, int]) -> None:
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 8)
    want = F.pad(torch.tensor(x), amounts, mode=mode)
    np.testing.assert_array_equal(Tensor(x).pad(amounts, mode=mode).numpy(), want.numpy())
