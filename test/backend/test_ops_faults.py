"""Contractions, pooling and losses of other kinds; and the errors of wrong calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch.nn import functional as F  # noqa: N812

from test.helpers_cases import (
    BOOLS,
    FLOATS,
    IMAGES,
    INDEX,
    INTS,
    RNG,
    ROW,
    Case,
    assert_case,
    f32,
    section,
    t,
    with_int_indices,
)
from tinygrad import Tensor, dtypes

# ---- 9. matmul, convolution, pooling, normalisation ------------------------------------------------------------------

TRANSPOSE_WEIGHT = RNG.normal(size=(3, 2, 3, 3)).astype(np.float32)
TRANSPOSE_BIAS = RNG.normal(size=(2,)).astype(np.float32)
POOLED = Tensor(IMAGES).max_pool2d(return_indices=True)

CONTRACTIONS: list[Case] = [
    (
        "dot uint8 wraps",
        lambda: Tensor([200, 100], dtype="uint8").dot(Tensor([1, 1], dtype="uint8")),
        np.array(44, np.uint8),
    ),
    ("dot bool", lambda: Tensor(BOOLS).dot(Tensor(BOOLS.T.copy())), lambda: BOOLS @ BOOLS.T),
    ("dot int", lambda: Tensor(INTS).dot(Tensor(INTS.T.copy())), lambda: INTS @ INTS.T),
    (
        "dot dtype",
        lambda: Tensor(FLOATS).half().dot(Tensor(FLOATS.T.copy()).half(), dtype="float32"),
        lambda: f32(FLOATS.astype(np.float16)) @ f32(FLOATS.astype(np.float16)).T,
    ),
    (
        "matmul reversed",
        lambda: Tensor(FLOATS.T.copy()).matmul(Tensor(FLOATS), reverse=True),
        lambda: FLOATS @ FLOATS.T,
    ),
    ("matmul empty", lambda: Tensor.zeros(4, 0) @ Tensor.zeros(0, 4), f32(np.zeros((4, 4)))),
    ("image_dot", lambda: Tensor(FLOATS).image_dot(Tensor(FLOATS.T.copy())), lambda: FLOATS @ FLOATS.T),
    ("linear 1-d", lambda: Tensor(FLOATS).linear(Tensor(ROW), Tensor(ROW)), lambda: FLOATS * ROW + ROW),
    (
        "linear",
        lambda: Tensor(FLOATS).linear(Tensor(FLOATS.T.copy()), Tensor([1.0, 2, 3])),
        lambda: FLOATS @ FLOATS.T + f32([1, 2, 3]),
    ),
    (
        "sequential",
        lambda: Tensor(FLOATS).sequential([lambda x: x + 1, Tensor.relu]),
        lambda: np.maximum(FLOATS + 1, 0),
    ),
    *(
        (
            f"einsum {formula}",
            lambda formula=formula, ops=ops: Tensor.einsum(formula, *map(Tensor, ops)),
            lambda formula=formula, ops=ops: np.asarray(np.einsum(formula, *ops)),
        )
        for formula, ops in (
            ("ij->", (FLOATS,)),
            ("ij,j", (FLOATS, ROW)),
            ("...ij->...ji", (IMAGES,)),
            ("...i,...i->...", (IMAGES, IMAGES)),
            ("abcd,abed->bce", (IMAGES, IMAGES)),
            ("ii", (FLOATS[:, :3],)),
        )
    ),
    (
        "image_conv2d",
        lambda: Tensor(IMAGES).image_conv2d(Tensor(TRANSPOSE_WEIGHT[:, :1].repeat(3, 1)), stride=2, padding=1),
        lambda: F.conv2d(t(IMAGES), t(TRANSPOSE_WEIGHT[:, :1].repeat(3, 1)), stride=2, padding=1),
    ),
    *(
        (
            f"conv_transpose2d {k}",
            lambda k=k: Tensor(IMAGES).conv_transpose2d(Tensor(TRANSPOSE_WEIGHT), Tensor(TRANSPOSE_BIAS), **k),
            lambda k=k: F.conv_transpose2d(t(IMAGES), t(TRANSPOSE_WEIGHT), t(TRANSPOSE_BIAS), **k),
        )
        for k in ({"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2, "padding": (1, 2)})
    ),
    (
        "conv_transpose2d groups",
        lambda: Tensor(IMAGES).conv_transpose2d(Tensor(TRANSPOSE_WEIGHT), groups=3),
        lambda: F.conv_transpose2d(t(IMAGES), t(TRANSPOSE_WEIGHT), groups=3),
    ),
    (
        "batchnorm",
        lambda: Tensor(IMAGES).batchnorm(
            Tensor([1.0, 2, 3]), Tensor([0.0, 1, 2]), Tensor([0.1, 0.2, 0.3]), Tensor([1.0, 2, 0.5]).rsqrt()
        ),
        lambda: F.batch_norm(t(IMAGES), t([0.1, 0.2, 0.3]), t([1.0, 2, 0.5]), t([1.0, 2, 3]), t([0.0, 1, 2]), eps=0),
    ),
    (
        "batchnorm plain",
        lambda: Tensor(FLOATS).batchnorm(None, None, Tensor(ROW), Tensor.ones(4)),
        lambda: FLOATS - ROW,
    ),
    ("layernorm", lambda: Tensor(IMAGES).layernorm((-2, -1)), lambda: F.layer_norm(t(IMAGES), (7, 8))),
]


@section(CONTRACTIONS)
def test_contractions(case: Case) -> None:
    assert_case(case, 1e-4)


POOLING: list[Case] = [
    *(
        (
            f"avg_pool2d {k}",
            lambda k=k: Tensor(IMAGES).avg_pool2d(*k),
            lambda k=k: F.avg_pool2d(t(IMAGES), k[0], k[1], *k[3:]),
        )
        for k in (
            ((3, 2), (2, 1), 1, 1, False, True),
            ((3, 3), 2, 1, 1, True, False),
            ((3, 3), 3, 1, (1, 0), True, True),
        )
    ),
    *(
        (
            f"max_pool2d {k}",
            lambda k=k: Tensor(IMAGES).max_pool2d(*k, return_indices=True),
            lambda k=k: with_int_indices(F.max_pool2d(t(IMAGES), k[0], k[1], k[3], k[2], k[4], return_indices=True)),
        )
        for k in (((3, 2), (2, 1), 1, 1, False), ((2, 2), 2, 2, 0, False), ((3, 3), 3, 1, (1, 0), True))
    ),
    ("avg_pool 1-d", lambda: Tensor(IMAGES[0]).avg_pool2d((3,)), lambda: F.avg_pool1d(t(IMAGES[0]), 3)),
    ("max_pool 3-d", lambda: Tensor(IMAGES).max_pool2d((1, 2, 2)), lambda: F.max_pool3d(t(IMAGES), (1, 2, 2))),
    (
        "max_pool of ints",
        lambda: Tensor((IMAGES * 10).astype(np.int32)).max_pool2d(padding=1),
        lambda: F.max_pool2d(t((IMAGES * 10).astype(np.int32)).double(), 2, padding=1).int(),
    ),
    (
        "max_unpool2d",
        lambda: POOLED[0].max_unpool2d(POOLED[1], output_size=(7, 8)),
        lambda: F.max_unpool2d(*F.max_pool2d(t(IMAGES), 2, return_indices=True), 2, output_size=(7, 8)),
    ),
    (
        "max_unpool2d default",
        lambda: POOLED[0].max_unpool2d(POOLED[1] * 0 + Tensor([[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19]])),
        lambda: F.max_unpool2d(
            t(POOLED[0].numpy()), t([[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19]]).expand(2, 3, 3, 4), 2
        ),
    ),
    *(
        (
            f"interpolate {size} {mode}",
            lambda size=size, mode=mode: Tensor(IMAGES).interpolate(size, mode=mode),
            lambda size=size, mode=mode: F.interpolate(t(IMAGES), size, mode="bilinear" if mode == "linear" else mode),
        )
        for size in ((14, 16), (21, 32), (3, 5), (1, 9))
        for mode in ("linear", "nearest", "nearest-exact")
    ),
    *(
        (
            f"interpolate {size} aligned",
            lambda size=size: Tensor(IMAGES).interpolate(size, align_corners=True),
            lambda size=size: F.interpolate(t(IMAGES), size, mode="bilinear", align_corners=True),
        )
        for size in ((3, 5), (1, 1))
    ),
    (
        "interpolate 1-d",
        lambda: Tensor(IMAGES[0]).interpolate((5,)),
        lambda: F.interpolate(t(IMAGES[0]), 5, mode="linear"),
    ),
    (
        "interpolate bytes",
        lambda: Tensor((IMAGES * 50).astype(np.uint8)).interpolate((3, 3), mode="nearest"),
        lambda: F.interpolate(t((IMAGES * 50).astype(np.uint8)), (3, 3), mode="nearest"),
    ),
]


@section(POOLING)
def test_pooling_and_interpolation(case: Case) -> None:
    assert_case(case)


# ---- 15. losses ------------------------------------------------------------------------------------------------------

LOGITS = RNG.normal(size=(6, 4)).astype(np.float32)
LABELS, IGNORED = np.array([0, 3, 2, 1, 0, 2]), np.array([0, 3, 2, 1, -1, 2])
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
CHANCES = f32(1 / (1 + np.exp(-LOGITS)))
TARGETS = RNG.random((6, 4)).astype(np.float32)
WEIGHTS = f32([1, 2, 0.5, 3])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction: Any) -> None:
    r = reduction
    rows: list[Case] = [
        (
            "shares",
            lambda: Tensor(LOGITS).cross_entropy(Tensor(SHARES), r, 0.2),
            lambda: F.cross_entropy(t(LOGITS), t(SHARES), reduction=r, label_smoothing=0.2),
        ),
        (
            "sparse",
            lambda: Tensor(LOGITS).sparse_categorical_crossentropy(Tensor(IGNORED), label_smoothing=0.2, reduction=r),
            lambda: F.cross_entropy(t(LOGITS), t(IGNORED), ignore_index=-1, reduction=r, label_smoothing=0.2),
        ),
        (
            "nll",
            lambda: Tensor(np.log(SHARES)).nll_loss(Tensor(LABELS), reduction=r),
            lambda: F.nll_loss(t(np.log(SHARES)), t(LABELS), reduction=r),
        ),
        (
            "nll weighted",
            lambda: Tensor(np.log(SHARES)).nll_loss(Tensor(IGNORED), Tensor(WEIGHTS), ignore_index=-1, reduction=r),
            lambda: F.nll_loss(t(np.log(SHARES)), t(IGNORED), t(WEIGHTS), ignore_index=-1, reduction=r),
        ),
        (
            "binary",
            lambda: Tensor(CHANCES).binary_crossentropy(Tensor(TARGETS), r),
            lambda: F.binary_cross_entropy(t(CHANCES), t(TARGETS), reduction=r),
        ),
        (
            "binary logits",
            lambda: Tensor(LOGITS).binary_crossentropy_logits(Tensor(TARGETS), r, Tensor(WEIGHTS)),
            lambda: F.binary_cross_entropy_with_logits(t(LOGITS), t(TARGETS), reduction=r, pos_weight=t(WEIGHTS)),
        ),
    ]
    for row in rows:
        assert_case(row)


def test_losses_of_other_ranks() -> None:
    assert_case(("", lambda: Tensor(LOGITS[0]).cross_entropy(Tensor(2)), lambda: F.cross_entropy(t(LOGITS[0]), t(2))))
    labels = np.full((2, 3, 7), 5)
    expected = F.cross_entropy(t(IMAGES).permute(0, 3, 1, 2), t(labels))
    assert_case(("", lambda: Tensor(IMAGES).sparse_categorical_crossentropy(Tensor(labels)), expected))
    assert Tensor([0.0, 1.0]).binary_crossentropy(Tensor([0.0, 1.0])).item() == 0


# ---- errors ----------------------------------------------------------------------------------------------------------

Fault = tuple[str, Callable[[], Any], type[BaseException], str]
X, V, N, IMG = Tensor(FLOATS), Tensor(ROW), Tensor(INTS), Tensor(IMAGES)
FAULTS: list[Fault] = [
    ("bitcast size", lambda: Tensor.zeros(2, 3).bitcast("float64"), RuntimeError, "divide"),
    ("bitcast weak", lambda: Tensor(3).bitcast("float32"), RuntimeError, "weak"),
    ("cast name", lambda: X.cast("nope"), AttributeError, "nope"),
    ("div mode", lambda: X.div(2, rounding_mode="x"), RuntimeError, "rounding_mode"),
    ("pow", lambda: N**-1, RuntimeError, "base needs to be float"),
    ("shift", lambda: X << 1, RuntimeError, "shift operands must be int"),
    ("clamp", lambda: X.clamp(), RuntimeError, "clamp"),
    ("where", lambda: X.where(1, 2), RuntimeError, "bool"),
    ("gelu", lambda: X.gelu("x"), RuntimeError, "approximate"),
    ("sum axis", lambda: X.sum(3), IndexError, "out of range"),
    ("sum twice", lambda: X.sum((0, 0)), RuntimeError, "multiple times"),
    ("reshape two -1", lambda: X.reshape(-1, -1), RuntimeError, "-1"),
    ("reshape", lambda: X.reshape(5), ValueError, "reshape"),
    ("expand", lambda: X.expand(3, 5), ValueError, "expand"),
    ("permute", lambda: X.permute(0, 0), RuntimeError, "permutation"),
    ("permute range", lambda: X.permute(0, 5), IndexError, "out of range"),
    ("flip twice", lambda: X.flip(0, 0), RuntimeError, "flip"),
    ("flip bool", lambda: X.flip(True), AssertionError, "flip"),
    ("shrink", lambda: X.shrink(((0, 9), None)), ValueError, "shrink"),
    ("shrink length", lambda: X.shrink(((0, 1),)), ValueError, "shrink"),
    ("pad odd", lambda: X.pad((1,)), ValueError, "pad"),
    ("pad mode", lambda: X.pad((1, 1), mode="x"), NotImplementedError, "x"),
    ("pad reflect", lambda: IMG.pad((9, 0), mode="reflect"), ValueError, "reflect"),
    ("pad circular", lambda: IMG.pad((9, 0), mode="circular"), ValueError, "circular"),
    ("pad_to", lambda: X.pad_to(2, 4), ValueError, "pad_to"),
    ("split", lambda: X.split([1, 1]), AssertionError, "split"),
    ("chunk", lambda: X.chunk(0), AssertionError, "chunk"),
    ("stack", lambda: X.stack(V), AssertionError, "stack"),
    ("stack dim", lambda: X.stack(X, dim=7), IndexError, "out of range"),
    ("cat", lambda: X.cat(X.T), AssertionError, "cat"),
    ("meshgrid", lambda: V.meshgrid(V, indexing="x"), RuntimeError, "indexing"),
    ("repeat", lambda: X.repeat(2), ValueError, "repeat"),
    ("roll", lambda: X.roll((1, 2), 0), RuntimeError, "roll"),
    ("diag", lambda: X.diag(), ValueError, "diag"),
    ("diagonal", lambda: X.diagonal(0, 1, 1), RuntimeError, "diagonal"),
    ("unfold", lambda: X.unfold(0, 9, 1), RuntimeError, "unfold"),
    ("triu", lambda: V.triu(), IndexError, "triu"),
    ("T", lambda: V.T, IndexError, "out of range"),
    ("topk", lambda: V.topk(9), ValueError, "topk"),
    ("topk unsorted", lambda: V.topk(1, sorted_=False), NotImplementedError, "sorted"),
    ("dot", lambda: X @ X, RuntimeError, "cannot dot"),
    ("dot scalar", lambda: X @ Tensor(2.0), RuntimeError, "cannot dot"),
    ("dot batch", lambda: Tensor.zeros(2, 3, 4) @ Tensor.zeros(3, 4, 5), IndexError, "broadcast"),
    ("einsum count", lambda: Tensor.einsum("ij,jk", X), ValueError, "einsum"),
    ("einsum size", lambda: Tensor.einsum("ij,jk", X, X), RuntimeError, "einsum"),
    ("einsum letter", lambda: Tensor.einsum("ij->k", X), IndexError, "einsum"),
    ("conv channels", lambda: IMG.conv2d(Tensor.zeros(2, 5, 3, 3)), AssertionError, "channels"),
    ("conv kernel", lambda: IMG.conv2d(Tensor.zeros(2, 3, 30, 3)), AssertionError, "kernel"),
    ("conv padding", lambda: IMG.conv2d(Tensor.zeros(2, 3, 3, 3), padding=(1, 1, 1)), ValueError, "padding"),
    ("pool kernel", lambda: IMG.max_pool2d((30, 30)), AssertionError, "kernel"),
    ("interpolate", lambda: IMG.interpolate((2, 2), mode="x"), AssertionError, "mode"),
    ("dropout", lambda: X.dropout(2), ValueError, "dropout"),
    (
        "attention",
        lambda: IMG.scaled_dot_product_attention(IMG, IMG, attn_mask=IMG, is_causal=True),
        RuntimeError,
        "is_causal",
    ),
    ("reduction", lambda: Tensor(LOGITS).cross_entropy(Tensor(LABELS), "x"), ValueError, "reduction"),
    ("float labels", lambda: Tensor(LOGITS).cross_entropy(Tensor.zeros(6)), RuntimeError, "cross_entropy"),
    (
        "smoothing",
        lambda: Tensor(LOGITS).cross_entropy(Tensor(LABELS), label_smoothing=2),
        AssertionError,
        "label_smoothing",
    ),
    ("gather rank", lambda: X.gather(0, Tensor([0])), RuntimeError, "dims"),
    ("gather dtype", lambda: V.gather(0, Tensor([0.0])), RuntimeError, "integers"),
    ("scatter reduce", lambda: X.scatter(0, Tensor(INDEX), Tensor(FLOATS[:2]), reduce="add"), TypeError, "reduce"),
    ("scatter_reduce", lambda: X.scatter_reduce(0, Tensor(INDEX), Tensor(FLOATS[:2]), "x"), RuntimeError, "reduce"),  # type: ignore[arg-type]
    ("masked_select", lambda: X.masked_select(N), RuntimeError, "bool"),
    ("one_hot", lambda: X.one_hot(3), RuntimeError, "int"),
    ("one_hot negative", lambda: N.one_hot(-1), ValueError, "one_hot"),
    ("broadcast", lambda: X + Tensor([1.0, 2]), IndexError, "broadcast"),
    ("operand str", lambda: X + "a", RuntimeError, "Could not infer dtype"),
    ("operand None", lambda: X + None, RuntimeError, "Could not infer dtype"),
    ("operand list", lambda: X + [1], TypeError, "list"),  # noqa: RUF005
    ("empty", lambda: Tensor.empty(-1), ValueError, "negative"),
    ("linspace", lambda: Tensor.linspace(0, 1, -1), ValueError, "linspace"),
    ("eye", lambda: Tensor.eye(-1), ValueError, "negative"),
    ("arange", lambda: Tensor.arange(300, dtype="uint8"), OverflowError, "uint8"),
    ("replace", lambda: X.replace(V), AssertionError, "replace"),
    ("rand", lambda: Tensor.rand(2, dtype="int32"), ValueError, "float"),
    ("randint", lambda: Tensor.randint(2, low=5, high=5), ValueError, "below"),
    ("normal", lambda: Tensor.normal(2, std=-1), ValueError, "std"),
    ("multinomial", lambda: Tensor([1.0, 2]).multinomial(3), AssertionError, "multinomial"),
    ("from a str", lambda: Tensor("x"), RuntimeError, "infer"),
    ("ragged", lambda: Tensor([[1], [1, 2]]), ValueError, "ragged"),
]


@pytest.mark.parametrize(("call", "error", "match"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_faults(call: Callable[[], Any], error: type[BaseException], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_scatters_to_a_weak_dtype_have_the_dtype_of_arithmetic() -> None:
    weak = Tensor([[1, 2, 3], [4, 5, 6]]) * 1.0
    at, rows = Tensor([[0, 1, 0]]), Tensor([1])
    assert weak.dtype is dtypes.weakfloat
    for src, dtype in (
        (9.0, dtypes.float32),
        (weak * 0 + 9, dtypes.float32),
        (Tensor([[9.0] * 3]).half(), dtypes.float16),
    ):
        found = weak.scatter(0, at, src)
        assert found.dtype is dtype
        assert found.tolist() == [[9.0, 2.0, 9.0], [4.0, 9.0, 6.0]]
    assert weak.scatter_add(0, at, Tensor([[1.0] * 3])).tolist() == [[2.0, 2.0, 4.0], [4.0, 6.0, 6.0]]
    assert weak.scatter_reduce(0, at, weak, "amax").tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert weak.index_fill(0, rows, 3.0).tolist() == [[1.0, 2.0, 3.0], [3.0, 3.0, 3.0]]
    assert weak.index_copy(0, rows, Tensor([[7.0] * 3])).tolist() == [[1.0, 2.0, 3.0], [7.0, 7.0, 7.0]]
    assert (Tensor([True, False]) + 1).scatter(0, rows, 7).tolist() == [2, 7]
    with pytest.raises(RuntimeError, match=r"scatter: src is dtypes\.int, the tensor dtypes\.float"):
        weak.scatter(0, at, Tensor([[1, 2, 3]]))
