"""Composite operations against torch, values and gradients: products, convolutions, pooling, normalisation, attention,
losses, joining, scans, sorting, gather and scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.helpers import prod
from tinygrad.uop import Ops

F = torch.nn.functional
RNG = np.random.default_rng(11)


def row(name: str, shapes: list[Any], fn: Callable[..., Any], torch_fn: Callable[..., Any], **options: Any) -> Any:
    return pytest.param(shapes, fn, torch_fn, options, id=name)


def same(name: str, shapes: list[Any], fn: Callable[..., Any], **options: Any) -> Any:
    return row(name, shapes, fn, fn, **options)


def table(*rows: Any) -> Any:
    return pytest.mark.parametrize(("shapes", "fn", "torch_fn", "options"), list(rows))


def assert_like_torch(
    shapes: list[Any], fn: Callable[..., Any], torch_fn: Callable[..., Any], *, grad: bool = True, tol: float = 2e-5
) -> None:
    """Compare values, and the gradients of a weighted sum, with torch. A shape stands for normal numbers."""
    arrays = [RNG.standard_normal(s).astype(np.float32) if isinstance(s, tuple) else np.asarray(s) for s in shapes]
    theirs = [torch.tensor(a, requires_grad=grad and a.dtype == np.float32) for a in arrays]
    ours = [Tensor(a) for a in arrays]
    expected = torch_fn(*theirs)
    result = fn(*ours)
    assert result.shape == tuple(expected.shape)
    np.testing.assert_allclose(result.numpy(), expected.detach().numpy(), rtol=tol, atol=tol, err_msg="values")
    if not grad:
        return
    weight = RNG.standard_normal(tuple(expected.shape)).astype(np.float32)
    (fn(*ours) * Tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for number, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
        if wanted.requires_grad and wanted.grad is not None:
            assert mine.grad is not None, f"no gradient {number}"
            np.testing.assert_allclose(
                mine.grad.numpy(), wanted.grad.numpy(), rtol=5 * tol, atol=5 * tol, err_msg=f"gradient {number}"
            )


# ---- products ------------------------------------------------------------------------------------------------------


@table(
    same("matrices", [(3, 4), (4, 5)], lambda a, b: a @ b),
    same("batches", [(2, 1, 3, 4), (5, 4, 5)], lambda a, b: a @ b),
    same("matrix-vector", [(2, 3, 4), (4,)], lambda a, b: a @ b),
    same("vector-matrix", [(4,), (2, 4, 3)], lambda a, b: a @ b),
    same("vectors", [(4,), (4,)], lambda a, b: a @ b),
    same("no-inner", [(4, 0), (0, 4)], lambda a, b: a @ b),
    row("linear", [(3, 4), (4, 5), (5,)], lambda x, w, b: x.linear(w, b), lambda x, w, b: x @ w + b),
    row("linear-vector", [(3, 4), (4,)], lambda x, w: x.linear(w), lambda x, w: x * w),
)
def test_products(shapes: list[Any], fn: Any, torch_fn: Any, options: Any) -> None:
    assert_like_torch(shapes, fn, torch_fn, **options)


EINSUM = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("iij->i", [(3, 3, 4)]),
    ("iij,j->ij", [(3, 3, 4), (4,)]), ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]), ("i,j,k->kij", [(2,), (3,), (4,)]),
    ("ij,ij->", [(3, 4), (3, 4)]), ("bij,bjk,kl->bil", [(2, 3, 4), (2, 4, 5), (5, 6)]), ("ii", [(3, 3)]),
    ("ij->ji", [(2, 3)]), ("ij->j", [(2, 3)]), ("ii->i", [(3, 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("formula", "shapes"), EINSUM, ids=[f for f, _ in EINSUM])
def test_einsum(formula: str, shapes: list[Any]) -> None:
    assert_like_torch(shapes, lambda *x: Tensor.einsum(formula, *x), lambda *x: torch.einsum(formula, *x))


def test_einsum_of_a_list_and_integers() -> None:
    x = Tensor.arange(16).reshape(2, 2, 4)
    assert Tensor.einsum("iij->i", [x]).tolist() == [6, 54]


@pytest.mark.parametrize(
    ("formula", "shapes", "error"),
    [("ij,jk->ik", [(2, 3)], ValueError), ("ij,jk->ik", [(2, 3), (4, 5)], RuntimeError),
     ("ij->i", [(2,)], RuntimeError), ("ij->z", [(2, 3)], IndexError)],
)  # fmt: skip
def test_einsum_errors(formula: str, shapes: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="einsum"):
        Tensor.einsum(formula, *(Tensor.zeros(*s) for s in shapes))


def test_product_of_integers_and_halves() -> None:
    a, b = RNG.integers(-5, 5, (3, 4)), RNG.integers(-5, 5, (4, 2))
    for dtype in (np.int8, np.int32, np.int64):
        result = Tensor(a.astype(dtype)) @ Tensor(b.astype(dtype))
        assert result.dtype == Tensor(a.astype(dtype)).dtype
        np.testing.assert_array_equal(result.numpy(), a.astype(dtype) @ b.astype(dtype))
    ones = Tensor.ones(2, 4096, dtype=dtypes.half)
    assert (ones @ ones.transpose()).dtype == dtypes.half
    assert (ones * 0.25 @ ones.transpose()).tolist() == [[1024.0] * 2] * 2  # a half precision sum stops growing earlier
    assert ones.matmul(ones.transpose(), dtype=dtypes.float32).dtype == dtypes.float32


def test_product_error_is_of_all_kinds_and_names_the_shapes() -> None:
    for error in (RuntimeError, ValueError, IndexError):
        with pytest.raises(error, match=r"cannot dot: inner sizes differ, 3 and 1"):
            Tensor.zeros(2, 3) @ Tensor.zeros(1, 4)
    with pytest.raises(RuntimeError, match="0-d"):
        Tensor(1.0) @ Tensor([1.0])
    with pytest.raises(IndexError, match="broadcast"):
        Tensor.zeros(2, 3, 4) @ Tensor.zeros(3, 4, 5)


# ---- convolutions --------------------------------------------------------------------------------------------------

CONV = [
    {}, {"stride": 2}, {"padding": 1}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2},
    {"groups": 2, "stride": (2, 1), "dilation": (1, 2), "padding": (1, 2)}, {"stride": 3, "padding": 4},
]  # fmt: skip


@pytest.mark.parametrize("options", CONV, ids=str)
def test_conv2d(options: dict[str, Any]) -> None:
    groups = options.get("groups", 1)
    assert_like_torch([(2, 4, 7, 8), (6, 4 // groups, 3, 2), (6,)], lambda x, w, b: x.conv2d(w, b, **options),
                      lambda x, w, b: F.conv2d(x, w, b, **options), tol=1e-4)  # fmt: skip


@pytest.mark.parametrize("options", [*CONV, {"stride": 2, "padding": 1, "output_padding": 1}], ids=str)
def test_conv_transpose2d(options: dict[str, Any]) -> None:
    groups = options.get("groups", 1)
    assert_like_torch([(2, 4, 6, 7), (4, 6 // groups, 3, 2), (6,)], lambda x, w, b: x.conv_transpose2d(w, b, **options),
                      lambda x, w, b: F.conv_transpose2d(x, w, b, **options), tol=1e-4)  # fmt: skip


@table(
    row("1d", [(2, 4, 7), (6, 4, 3)], lambda x, w: x.conv2d(w, padding=1), lambda x, w: F.conv1d(x, w, padding=1)),
    row("3d", [(2, 2, 5, 5, 5), (3, 2, 2, 3, 1)], lambda x, w: x.conv2d(w, stride=2),
        lambda x, w: F.conv3d(x, w, stride=2)),
    row("1x1", [(2, 3, 5, 5), (4, 3, 1, 1)], lambda x, w: x.conv2d(w), F.conv2d),
    row("depthwise", [(2, 4, 6, 6), (4, 1, 3, 3)], lambda x, w: x.conv2d(w, groups=4, padding=1),
        lambda x, w: F.conv2d(x, w, groups=4, padding=1)),
    row("channels-equal-sizes", [(1, 5, 5, 5), (5, 5, 3, 3)], lambda x, w: x.conv2d(w, padding=1),
        lambda x, w: F.conv2d(x, w, padding=1)),
    row("flat-padding", [(1, 2, 5, 6), (3, 2, 3, 3)], lambda x, w: x.conv2d(w, padding=(1, 2, 0, 3)),
        lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 3)), w)),
    row("cropping", [(1, 2, 7, 7), (3, 2, 3, 3)], lambda x, w: x.conv2d(w, padding=-1),
        lambda x, w: F.conv2d(x[:, :, 1:-1, 1:-1], w)),
)  # fmt: skip
def test_other_convolutions(shapes: list[Any], fn: Any, torch_fn: Any, options: Any) -> None:
    assert_like_torch(shapes, fn, torch_fn, tol=1e-4, **options)


def test_gradient_of_the_gradient_of_a_convolution() -> None:
    def ours(x: Tensor, w: Tensor) -> Tensor:
        gx, gw = (x.conv2d(w, stride=2, padding=1) ** 3).sum().gradient(x, w)
        return (gx * gx).sum() + (gw * gw).sum()

    def theirs(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (F.conv2d(x, w, stride=2, padding=1) ** 3).sum()
        gx, gw = torch.autograd.grad(y, (x, w), create_graph=True)
        return (gx * gx).sum() + (gw * gw).sum()

    assert_like_torch([(1, 2, 5, 5), (3, 2, 3, 3)], ours, theirs, tol=1e-3)


def test_convolution_of_halves_sums_in_float32() -> None:
    x, w = Tensor.ones(1, 4096, 1, 1, dtype=dtypes.half), Tensor.full((1, 4096, 1, 1), 0.25, dtype=dtypes.half)
    y = x.conv2d(w)
    assert y.dtype == dtypes.half
    assert y.item() == 1024.0 if hasattr(memoryview, "__class_getitem__") else y.float().item() == 1024.0
    assert x.conv2d(w, dtype=dtypes.float32).dtype == dtypes.float32


def test_convolution_of_integers() -> None:
    x, w = Tensor([[[1, 2, 3, 4]]]), Tensor([[[1, 10]]])
    y = x.conv2d(w)
    assert (y.dtype, y.tolist()) == (dtypes.int32, [[[21, 32, 43]]])


@pytest.mark.parametrize(
    ("weight", "options", "match"),
    [((4, 5, 3, 3), {}, "input has 2 channels, the weight expects 5"), ((4, 2, 3), {}, "input has 4 dims, weight 3"),
     ((4, 2, 9, 3), {}, "kernel spans 9"), ((4, 2, 3, 3), {"stride": (1, 1, 1)}, "stride")],
)  # fmt: skip
def test_conv2d_errors(weight: tuple[int, ...], options: dict[str, Any], match: str) -> None:
    for error in (AssertionError, ValueError):
        with pytest.raises(error, match=match):
            Tensor.zeros(1, 2, 8, 8).conv2d(Tensor.zeros(*weight), **options)
    with pytest.raises(ValueError, match="padding"):
        Tensor.zeros(1, 2, 8, 8).conv2d(Tensor.zeros(4, 2, 3, 3), padding=(1, 1, 1))


# ---- pooling -------------------------------------------------------------------------------------------------------

POOL = [
    {"kernel_size": 2}, {"kernel_size": 3}, {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": 2, "ceil_mode": True}, {"kernel_size": 2, "dilation": 2},
    {"kernel_size": 3, "stride": 3, "padding": 1, "ceil_mode": True},
]  # fmt: skip


@pytest.mark.parametrize("options", POOL, ids=str)
def test_max_pool2d(options: dict[str, Any]) -> None:
    shape = (2, 3, 8, 9)
    assert_like_torch([shape], lambda x: x.max_pool2d(**options), lambda x: F.max_pool2d(x, **options))
    assert_like_torch([shape], lambda x: x.max_pool2d(**options, return_indices=True)[1],
                      lambda x: F.max_pool2d(x, **options, return_indices=True)[1], grad=False)  # fmt: skip


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("options", [o for o in POOL if "dilation" not in o], ids=str)
def test_avg_pool2d(options: dict[str, Any], count_include_pad: bool) -> None:
    options = {**options, "count_include_pad": count_include_pad}
    assert_like_torch([(2, 3, 8, 9)], lambda x: x.avg_pool2d(**options), lambda x: F.avg_pool2d(x, **options))


def test_max_pool2d_of_integers_pads_with_the_smallest() -> None:
    x = Tensor([[[[-5, -7], [-9, -8]]]], dtype=dtypes.int8)
    assert x.max_pool2d(2, stride=2, padding=1).tolist() == [[[[-5, -7], [-9, -8]]]]


def test_max_unpool2d() -> None:
    def ours(x: Tensor) -> Tensor:
        values, indices = x.max_pool2d(return_indices=True)
        return values.max_unpool2d(indices)

    assert_like_torch([(2, 2, 6, 6)], ours, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2))


@pytest.mark.parametrize("size", [(4, 9), (7, 3), (1, 1)])
@pytest.mark.parametrize(
    ("mode", "torch_mode", "corners"),
    [("linear", "bilinear", False), ("linear", "bilinear", True), ("nearest", "nearest", None),
     ("nearest-exact", "nearest-exact", None)],
)  # fmt: skip
def test_interpolate(mode: str, torch_mode: str, corners: bool | None, size: tuple[int, int]) -> None:
    assert_like_torch([(1, 2, 5, 6)], lambda x: x.interpolate(size, mode, bool(corners)),
                      lambda x: F.interpolate(x, size, mode=torch_mode, align_corners=corners))  # fmt: skip


# ---- normalisation, attention --------------------------------------------------------------------------------------

MASK = RNG.random((4, 6)) > 0.4
MASK[1] = False


@table(
    same("softmax", [(3, 5)], lambda x: x.softmax(-1)),
    same("softmax-first", [(3, 5)], lambda x: x.softmax(0)),
    same("log_softmax", [(3, 5)], lambda x: (x * 100).log_softmax(-1), tol=1e-3),
    row("softmin", [(3, 5)], lambda x: x.softmin(), lambda x: F.softmin(x, -1)),
    row("layernorm", [(3, 5)], lambda x: x.layernorm(), lambda x: F.layer_norm(x, (5,))),
    row("layernorm-axes", [(3, 4, 5)], lambda x: x.layernorm((-1, -2)), lambda x: F.layer_norm(x, (4, 5))),
    row("batchnorm", [(2, 3, 4, 5), (3,), (3,), (3,), (3,)], lambda x, w, b, m, v: x.batchnorm(w, b, m, v),
        lambda x, w, b, m, v: (x - m[:, None, None]) * v[:, None, None] * w[:, None, None] + b[:, None, None]),
    row("attention", [(2, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 3)], lambda q, k, v: q.scaled_dot_product_attention(k, v),
        F.scaled_dot_product_attention),
    row("causal", [(2, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 3)],
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    row("shared-heads", [(2, 4, 4, 8), (2, 2, 6, 8), (2, 2, 6, 3)],
        lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)),
    row("mask-with-an-empty-row", [(2, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 3), MASK],
        lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m), F.scaled_dot_product_attention),
    row("added-mask", [(2, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 3), (4, 6)],
        lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m), F.scaled_dot_product_attention),
)  # fmt: skip
def test_normalisation(shapes: list[Any], fn: Any, torch_fn: Any, options: Any) -> None:
    assert_like_torch(shapes, fn, torch_fn, **options)


def test_masked_attention_row_is_zero_with_zero_gradient() -> None:
    q, k, v = (Tensor(RNG.standard_normal((2, 3)).astype(np.float32)) for _ in range(3))
    keep = Tensor([[False, False], [True, False]])
    out = q.scaled_dot_product_attention(k, v, keep)
    np.testing.assert_allclose(out.numpy(), np.stack([np.zeros(3), v.numpy()[0]]), atol=1e-6)
    q.scaled_dot_product_attention(k, v, keep).sum().backward()
    for t in (q, k, v):
        assert np.isfinite(t.grad.numpy()).all()
    assert not q.grad.numpy()[0].any()


def test_attention_masks_exclude_each_other() -> None:
    x = Tensor.zeros(2, 3)
    with pytest.raises(RuntimeError, match="is_causal and attn_mask"):
        x.scaled_dot_product_attention(x, x, Tensor.zeros(2, 2), is_causal=True)


def test_dropout_only_in_training() -> None:
    x = Tensor.ones(10_000)
    assert x.dropout(0.3) is x
    with Tensor.train():
        kept = x.dropout(0.3).numpy()
        assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.7)}
        assert abs((kept > 0).mean() - 0.7) < 0.03
        assert not Tensor([float("inf"), 1.0]).dropout(1.0).numpy().any()
        with pytest.raises(ValueError, match="probability"):
            x.dropout(1.5)


# ---- losses --------------------------------------------------------------------------------------------------------

LABELS, SOME = np.array([1, 0, 3, 1, 2]), np.array([1, 0, 3, -1, 2])
WEIGHT = np.abs(RNG.standard_normal(4)).astype(np.float64)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@table(
    row("cross_entropy", [(5, 4), LABELS], lambda x, y, r: x.cross_entropy(y, r),
        lambda x, y, r: F.cross_entropy(x, y, reduction=r)),
    row("cross_entropy-smooth", [(5, 4), LABELS], lambda x, y, r: x.cross_entropy(y, r, 0.1),
        lambda x, y, r: F.cross_entropy(x, y, reduction=r, label_smoothing=0.1)),
    row("cross_entropy-probabilities", [(5, 4, 3), (5, 4, 3)], lambda x, y, r: x.cross_entropy(y.softmax(1), r),
        lambda x, y, r: F.cross_entropy(x, y.softmax(1), reduction=r)),
    row("cross_entropy-dims", [(2, 4, 3), np.array([[0, 1, 2], [3, 2, 1]])], lambda x, y, r: x.cross_entropy(y, r),
        lambda x, y, r: F.cross_entropy(x, y, reduction=r)),
    row("sparse-ignored-smooth", [(5, 4), SOME],
        lambda x, y, r: x.sparse_categorical_crossentropy(y, label_smoothing=0.2, reduction=r),
        lambda x, y, r: F.cross_entropy(x, y, reduction=r, label_smoothing=0.2, ignore_index=-1)),
    row("nll", [(5, 4), SOME, WEIGHT], lambda x, y, w, r: x.log_softmax(1).nll_loss(y, w.float(), -1, r),
        lambda x, y, w, r: F.nll_loss(x.log_softmax(1), y, w.float(), ignore_index=-1, reduction=r)),
    row("binary", [(5, 4), (5, 4)], lambda x, y, r: x.sigmoid().binary_crossentropy(y.sigmoid(), r),
        lambda x, y, r: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=r)),
    row("binary-logits", [(5, 4), (5, 4), WEIGHT],
        lambda x, y, w, r: (x * 50).binary_crossentropy_logits(y.sigmoid(), r, w.float()),
        lambda x, y, w, r: F.binary_cross_entropy_with_logits(x * 50, y.sigmoid(), reduction=r, pos_weight=w.float()),
        tol=1e-4),
)  # fmt: skip
def test_losses(shapes: list[Any], fn: Any, torch_fn: Any, options: Any, reduction: str) -> None:
    assert_like_torch(shapes, lambda *x: fn(*x, reduction), lambda *x: torch_fn(*x, reduction), **options)


def test_loss_errors() -> None:
    x = Tensor.zeros(5, 4)
    with pytest.raises(RuntimeError, match="class ids are integers"):
        x.cross_entropy(Tensor.zeros(5))
    with pytest.raises(RuntimeError, match="expected \\(5,\\)"):
        x.cross_entropy(Tensor([1, 2]))
    with pytest.raises(AssertionError, match="label_smoothing"):
        x.cross_entropy(Tensor([0] * 5), label_smoothing=1.5)
    with pytest.raises(ValueError, match="reduction"):
        x.cross_entropy(Tensor([0] * 5), reduction="avg")


# ---- joining, triangles --------------------------------------------------------------------------------------------


@table(
    row("cat", [(2, 3), (2, 1), (2, 4)], lambda a, b, c: a.cat(b, c, dim=1), lambda *x: torch.cat(x, 1)),
    row("cat-many", [(2, 3)], lambda a: a.cat(*(a * i for i in range(70))),
        lambda a: torch.cat([a, *(a * i for i in range(70))])),
    row("stack", [(2, 3), (2, 3)], lambda a, b: a.stack(b, dim=-1), lambda *x: torch.stack(x, -1)),
    row("stack-list", [(2, 3), (2, 3)], lambda *x: Tensor.stack(list(x)), lambda *x: torch.stack(x)),
    *(row(f"tril{d}", [(2, 4, 3)], lambda a, d=d: a.tril(d), lambda a, d=d: a.tril(d)) for d in (-2, 0, 1)),
    *(row(f"triu{d}", [(2, 4, 3)], lambda a, d=d: a.triu(d), lambda a, d=d: a.triu(d)) for d in (-2, 0, 1)),
)  # fmt: skip
def test_joining(shapes: list[Any], fn: Any, torch_fn: Any, options: Any) -> None:
    assert_like_torch(shapes, fn, torch_fn, **options)


def test_cat_keeps_signed_zeros_and_promotes() -> None:
    joined = Tensor([-0.0, 1.0]).cat(Tensor([-0.0])).numpy()
    assert np.signbit(joined).tolist() == [True, False, True]
    assert Tensor([True]).cat(Tensor([2.5])).tolist() == [1.0, 2.5]
    assert Tensor([True, False]).cat(Tensor([True])).dtype == dtypes.bool
    with pytest.raises(AssertionError, match="outside dim 0"):
        Tensor.zeros(2, 3).cat(Tensor.zeros(2, 4))
    with pytest.raises(IndexError, match="out of range"):
        Tensor.zeros(2).cat(Tensor.zeros(2), dim=1)


# ---- scans, order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 65, 300])
@table(
    same("cumsum", [], lambda a: a.cumsum(1)),
    same("cumprod", [], lambda a: (a * 0.1 + 1).cumprod(1)),
    same("logcumsumexp", [], lambda a: (a * 20).logcumsumexp(1), tol=2e-4),
    same("cummax", [], lambda a: a.cummax(1)[0]),
    same("cummin-index", [], lambda a: a.cummin(1)[1], grad=False),
    same("sort", [], lambda a: a.sort(1)[0]),
    row("argsort-down", [], lambda a: a.round().argsort(1, descending=True),
        lambda a: a.round().sort(dim=1, descending=True, stable=True)[1], grad=False),
)  # fmt: skip
def test_scans(shapes: list[Any], fn: Any, torch_fn: Any, options: Any, n: int) -> None:
    assert_like_torch([(2, n)], fn, torch_fn, **{"tol": 1e-4, **options})


def test_long_sort_is_stable() -> None:
    x = RNG.integers(-50, 50, (2, 3001)).astype(np.int16)
    values, index = Tensor(x).sort(1)
    np.testing.assert_array_equal(values.numpy(), np.sort(x, 1))
    np.testing.assert_array_equal(index.numpy(), np.argsort(x, 1, kind="stable"))
    down = Tensor(x).argsort(1, descending=True).numpy()
    np.testing.assert_array_equal(down, np.argsort(-x.astype(np.int32), 1, kind="stable"))


def test_order_of_special_values() -> None:
    x = np.array([2, np.nan, 1, -np.inf, np.inf, np.nan, -0.0, 0.0], np.float32)
    for descending in (False, True):
        values, index = Tensor(x).sort(descending=descending)
        expected = torch.tensor(x).sort(descending=descending, stable=True)
        np.testing.assert_array_equal(values.numpy(), expected.values.numpy())
        np.testing.assert_array_equal(index.numpy(), expected.indices.numpy())
    assert str(Tensor([1.0, 3.0, float("nan"), 5.0, 4.0]).cummax()[0].tolist()) == "[1.0, 3.0, nan, nan, nan]"
    assert Tensor([5, -(2**31), 7], dtype=dtypes.int32).sort()[0].tolist() == [-(2**31), 5, 7]
    assert Tensor([True, False, True]).sort()[1].tolist() == [1, 0, 2]


def test_topk() -> None:
    x = Tensor([3.0, 1.0, 4.0, 1.0, 5.0])
    assert [t.tolist() for t in x.topk(2)] == [[5.0, 4.0], [4, 2]]
    assert [t.tolist() for t in x.topk(2, largest=False)] == [[1.0, 1.0], [1, 3]]
    with pytest.raises(ValueError, match="k=6"):
        x.topk(6)
    with pytest.raises(NotImplementedError, match="sorted"):
        x.topk(2, sorted_=False)


# Sizes on either side of those that are cut into blocks, once and twice; the last block is not full.
@pytest.mark.parametrize(("n", "k"), [(31, 2), (32, 2), (33, 2), (65, 1), (129, 8), (700, 6), (701, 80)])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_is_the_beginning_of_a_sort(n: int, k: int, largest: bool) -> None:
    places = np.arange(2 * n).reshape(2, n)
    few = (places * 37 % 101 % 5).astype(np.float32)
    for values in (
        (places * 7919 % 10007).astype(np.float32),
        few,
        np.where(few == 0, np.nan, np.where(few == 1, np.inf, -few)),
        (few % 2 * 255).astype(np.uint8),  # the largest key is that of the padding
        few > 2,
    ):
        x = Tensor(values)
        found, index = x.topk(k, 1, largest)
        ordered, order = x.sort(1, descending=largest)
        np.testing.assert_array_equal(index.numpy(), order.numpy()[:, :k])
        np.testing.assert_array_equal(found.numpy(), ordered.numpy()[:, :k])


def test_topk_does_not_sort_what_it_leaves() -> None:
    # A sort of this axis compares all pairs; a pair of blocks of 16 * 64 keys stays far below.
    x = Tensor.empty(2048)
    reduces = [u for u in x.topk(4)[1]._uop.toposort() if u.op is Ops.REDUCE]
    assert max(prod(u.src[0].max_shape) for u in reduces) < 1 << 18


def test_scan_dtypes_and_errors() -> None:
    assert Tensor([1, 2], dtype=dtypes.int8).cumsum().dtype == dtypes.int32
    assert Tensor([True, True]).cumsum().tolist() == [1, 2]
    assert Tensor.zeros(0).cumsum().shape == (0,)
    with pytest.raises(IndexError, match="out of range"):
        Tensor([1]).cumsum(1)
    with pytest.raises(TypeError, match="axis"):
        Tensor([1]).cumprod()


# ---- gather, scatter -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(3, 4), (30, 40)])
def test_gather_and_scatter(n: int, m: int) -> None:
    index = RNG.integers(0, n, (m, 4))
    unique = np.stack([RNG.permutation(n)[: min(n, m)] for _ in range(4)], 1)
    assert_like_torch([(n, 5), index], lambda x, i: x.gather(0, i), lambda x, i: x.gather(0, i))
    assert_like_torch([(n, 5), unique, unique.shape], *[lambda x, i, s: x.scatter(0, i, s)] * 2)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for inside in (True, False):
            assert_like_torch(
                [(n, 5), index, (m, 4)], lambda x, i, s, r=reduce, b=inside: x.scatter_reduce(0, i, s, r, b),
                lambda x, i, s, r=reduce, b=inside: x.scatter_reduce(0, i, s, r, include_self=b),
            )  # fmt: skip
    for reduce in ("add", "multiply"):
        assert_like_torch([(n, 5), index], lambda x, i, r=reduce: x.scatter(0, i, 2.0, r),
                          lambda x, i, r=reduce: x.scatter(0, i, 2.0, reduce=r), grad=False)  # fmt: skip


@pytest.mark.parametrize("n", [3, 40])  # compared, stored
@pytest.mark.parametrize(("reduce", "wanted"), [
    # Places: (1, 2, 2), (0, 3, 4), (0, 5, 0). The first of each is what was there.
    ("amax", ([0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 10.0, 100.0, 0.0])),
    ("amin", ([1.0, 10.0, 50.0], [0.0, 0.0, 0.0, 0.0, 0.0, 50.0])),
    ("prod", ([4.0, 120.0, 0.0], [2.0, 2.0, 0.0, 0.0, 0.0, 0.0])),
])  # fmt: skip
def test_gradient_of_scatter_reduce_with_ties_and_zeros(
    n: int, reduce: Any, wanted: tuple[list[float], list[float]]
) -> None:
    base = Tensor([1.0, 0.0, 0.0] + [7.0] * (n - 3))
    src = Tensor([2.0, 2.0, 3.0, 4.0, 5.0, 0.0] + [1.0] * 20)
    index = Tensor([0, 0, 1, 1, 2, 2] + [n] * 20)  # out of bounds: writes nothing
    weight = Tensor([1.0, 10.0, 100.0] + [1.0] * (n - 3))
    of_base, of_src = (base.scatter_reduce(0, index, src, reduce) * weight).sum().gradient(base, src)
    assert of_base.tolist() == wanted[0] + [1.0] * (n - 3)
    assert of_src.tolist() == wanted[1] + [0.0] * 20


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce_is_linear_in_the_index(reduce: Any) -> None:
    base, index = Tensor.zeros(1000).realize(), Tensor(RNG.integers(0, 1000, 4000).astype(np.int32)).clone().realize()
    src = Tensor.ones(4000).realize()
    GlobalCounters.reset()
    base.scatter_reduce(0, index, src, reduce).realize()
    assert GlobalCounters.global_ops < 40 * 4000  # comparing all pairs takes 1000 * 4000


def test_scatter_keeps_the_last_of_equal_places() -> None:
    index = Tensor([1, 0, 1, 1])
    src = Tensor([1.0, 2.0, 3.0, 4.0])
    base = Tensor.zeros(20)
    assert base.scatter(0, index, src).tolist()[:3] == [2.0, 4.0, 0.0]
    (base.scatter(0, index, src) * 10).sum().backward()
    assert src.grad.tolist() == [0.0, 10.0, 0.0, 10.0]
    assert base.grad.tolist() == [0.0, 0.0] + [10.0] * 18


def test_gather_of_infinity_and_out_of_bounds() -> None:
    x = Tensor([float("inf"), 1.0, 2.0])
    assert x.gather(0, Tensor([1, 0, 2])).tolist() == [1.0, float("inf"), 2.0]
    assert x.gather(0, Tensor([3, -1, 1])).tolist() == [0.0, 0.0, 1.0]


def test_gather_and_scatter_errors() -> None:
    x = Tensor.zeros(3, 4)
    with pytest.raises(RuntimeError, match="indices are integers"):
        x.gather(0, Tensor.zeros(3, 4))
    with pytest.raises(ValueError, match="index has 1 dims"):
        x.gather(0, Tensor([1]))
    with pytest.raises(AssertionError, match="larger"):
        x.gather(0, Tensor([[0] * 5]))
    with pytest.raises(TypeError, match="reduce"):
        x.scatter(0, Tensor([[0] * 4]), 1.0, "max")
    with pytest.raises(RuntimeError, match="equal dtypes"):
        x.scatter(0, Tensor([[0] * 4]), Tensor([[1] * 4]))
