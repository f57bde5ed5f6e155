"""Functions of torch.nn.functional give what they give there: activations, windows, images, tables, losses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes, nn

torch = pytest.importorskip("torch")

from test.helpers_torch_calls import (  # noqa: E402  it needs torch
    LAYER_GROUPS,
    assert_call,
    assert_gradient,
    public_names,
    rows,
)

# ``name: call`` is the same text in both packages; ``name: call ~ call in torch`` where they differ.
CALLS = r"""
log_sigmoid: a.log_sigmoid() ~ F.logsigmoid(a)
glu: (c.glu(), c.glu(2)) ~ (F.glu(c), F.glu(c, 2))
prelu: (a.prelu(v), v.prelu(v[:1]), c.prelu(v)) ~ (F.prelu(a, v), F.prelu(v, v[:1]), F.prelu(c, v))
threshold: (a.threshold(0.5, 7), n.threshold(0.5, 7)) ~ (F.threshold(a, 0.5, 7), F.threshold(n, 0.5, 7))
hardshrink: (a.hardshrink(), n.hardshrink()) ~ (F.hardshrink(a), F.hardshrink(n))
softshrink: (a.softshrink(), n.softshrink()) ~ (F.softshrink(a), F.softshrink(n))
tanhshrink: a.tanhshrink() ~ F.tanhshrink(a)
conv1d: c.conv1d(c[:, :, :2], v[:2], 2, 1) ~ F.conv1d(c, c[:, :, :2], v[:2], 2, 1)
conv3d: c[None, None].conv3d(c[None, None, :1, :2, :3], padding=1) ~ F.conv3d(c[None, None], c[None, None, :1, :2, :3], padding=1)
conv_transpose1d: c.conv_transpose1d(c[0, :, None, :3], stride=2) ~ F.conv_transpose1d(c, c[0, :, None, :3], stride=2)
conv_transpose3d: c[None, None].conv_transpose3d(c[None, None, :1, :2, :3]) ~ F.conv_transpose3d(c[None, None], c[None, None, :1, :2, :3])
max_pool1d: c.max_pool1d(2) ~ F.max_pool1d(c, 2)
max_pool3d: c[None, None].max_pool3d(2) ~ F.max_pool3d(c[None, None], 2)
avg_pool1d: (c.avg_pool1d(2), c.avg_pool1d(3, 1, 1, False, False)) ~ (F.avg_pool1d(c, 2), F.avg_pool1d(c, 3, 1, 1, False, False))
avg_pool3d: c[None, None].avg_pool3d(2, 1) ~ F.avg_pool3d(c[None, None], 2, 1)
adaptive_avg_pool1d: (c.adaptive_avg_pool1d(0), c.adaptive_avg_pool1d(2), c.adaptive_avg_pool1d(3)) ~ (c[:, :, :0] * 1, F.adaptive_avg_pool1d(c, 2), F.adaptive_avg_pool1d(c, 3))
adaptive_avg_pool2d: (c.adaptive_avg_pool2d(1), c.adaptive_avg_pool2d((2, None))) ~ (F.adaptive_avg_pool2d(c, 1), F.adaptive_avg_pool2d(c, (2, None)))
adaptive_avg_pool3d: c[None].adaptive_avg_pool3d((1, 2, 3)) ~ F.adaptive_avg_pool3d(c[None], (1, 2, 3))
adaptive_max_pool1d: (c.adaptive_max_pool1d(3), c.adaptive_max_pool1d(3)[:0].adaptive_max_pool1d(2)) ~ (F.adaptive_max_pool1d(c, 3), c[:0, :, :2] * 1)
adaptive_max_pool2d: c.adaptive_max_pool2d((2, 2)) ~ F.adaptive_max_pool2d(c, (2, 2))
adaptive_max_pool3d: c[None].adaptive_max_pool3d((1, 2, 3)) ~ F.adaptive_max_pool3d(c[None], (1, 2, 3))
pixel_shuffle: c.reshape(1, 12, 1, 2).pixel_shuffle(2) ~ F.pixel_shuffle(c.reshape(1, 12, 1, 2), 2)
pixel_unshuffle: c.reshape(1, 2, 2, 6).pixel_unshuffle(2) ~ F.pixel_unshuffle(c.reshape(1, 2, 2, 6), 2)
channel_shuffle: c.reshape(1, 6, 2, 2).channel_shuffle(2) ~ F.channel_shuffle(c.reshape(1, 6, 2, 2), 2)
layer_norm: (a.layer_norm((3,), v, v), c.layer_norm((3, 4))) ~ (F.layer_norm(a, (3,), v, v), F.layer_norm(c, (3, 4)))
rms_norm: (a.rms_norm((3,), v, 1e-5), c.rms_norm((3, 4))) ~ (F.rms_norm(a, (3,), v, 1e-5), F.rms_norm(c, (3, 4)))
group_norm: (c[:0].group_norm(3), c.group_norm(3, v, v), a.group_norm(1)) ~ (c[:0] * 1, F.group_norm(c, 3, v, v), F.group_norm(a, 1))
embedding: (j.embedding(a), j.embedding(a, padding_idx=2)) ~ (F.embedding(j, a), F.embedding(j, a, padding_idx=2))
mse_loss: (a.mse_loss(a * 2, weight=p), a.mse_loss(a * 2), a.mse_loss(a * 2, reduction="none")) ~ (F.mse_loss(a, a * 2, weight=p), F.mse_loss(a, a * 2), F.mse_loss(a, a * 2, reduction="none"))
l1_loss: (a.l1_loss(a * 2, reduction="sum"), a.l1_loss(a * 2, weight=p)) ~ (F.l1_loss(a, a * 2, reduction="sum"), F.l1_loss(a, a * 2, weight=p))
huber_loss: (a.huber_loss(a * 2, weight=p), a.huber_loss(a * 2), a.huber_loss(a * 2, delta=0.6)) ~ (F.huber_loss(a, a * 2, weight=p), F.huber_loss(a, a * 2), F.huber_loss(a, a * 2, delta=0.6))
smooth_l1_loss: (a.smooth_l1_loss(a * 2), a.smooth_l1_loss(a * 2, beta=0.0), a.smooth_l1_loss(a * 2, beta=3.0)) ~ (F.smooth_l1_loss(a, a * 2), F.smooth_l1_loss(a, a * 2, beta=0.0), F.smooth_l1_loss(a, a * 2, beta=3.0))
kl_div: (a.kl_div(a.abs(), "none"), a.kl_div(a, "batchmean", True), a.kl_div(a.relu(), "sum")) ~ (F.kl_div(a, a.abs(), reduction="none"), F.kl_div(a, a, None, None, "batchmean", True), F.kl_div(a, a.relu(), reduction="sum"))
binary_cross_entropy: p.binary_cross_entropy(p * p, w) ~ F.binary_cross_entropy(p, p * p, w)
binary_cross_entropy_with_logits: a.binary_cross_entropy_with_logits(p, w, "sum", w) ~ F.binary_cross_entropy_with_logits(a, p, w, None, None, "sum", w)
soft_margin_loss: a.soft_margin_loss(a.detach().sign()) ~ F.soft_margin_loss(a, a.detach().sign())
multilabel_soft_margin_loss: a.multilabel_soft_margin_loss(p) ~ F.multilabel_soft_margin_loss(a, p)
hinge_embedding_loss: a.hinge_embedding_loss(a.sign() * -1) ~ F.hinge_embedding_loss(a, a.sign() * -1)
margin_ranking_loss: v.margin_ranking_loss(v * 2, v.sign(), 0.3) ~ F.margin_ranking_loss(v, v * 2, v.sign(), 0.3)
triplet_margin_loss: (a.triplet_margin_loss(a * 2, a * 3), a.triplet_margin_loss(a * 2, a * 2.5, 2.0, swap=True)) ~ (F.triplet_margin_loss(a, a * 2, a * 3), F.triplet_margin_loss(a, a * 2, a * 2.5, 2.0, swap=True))
cosine_embedding_loss: a.cosine_embedding_loss(a * a, a[:, 0].sign(), 0.1) ~ F.cosine_embedding_loss(a, a * a, a[:, 0].sign(), 0.1)
poisson_nll_loss: (a.poisson_nll_loss(a.abs(), full=True), a.abs().poisson_nll_loss(a.abs() * 2, False)) ~ (F.poisson_nll_loss(a, a.abs(), full=True), F.poisson_nll_loss(a.abs(), a.abs() * 2, False))
gaussian_nll_loss: (a.gaussian_nll_loss(a * 2, a.abs()), a.gaussian_nll_loss(a * 2, a.abs(), True, 1.0), a.gaussian_nll_loss(a * 2, a[:, 0].abs())) ~ (F.gaussian_nll_loss(a, a * 2, a.abs()), F.gaussian_nll_loss(a, a * 2, a.abs(), True, 1.0), F.gaussian_nll_loss(a, a * 2, a[:, 0].abs()))
cosine_similarity: (a.cosine_similarity(a * a), a.cosine_similarity(v, 0)) ~ (F.cosine_similarity(a, a * a), F.cosine_similarity(a, v, 0))
pairwise_distance: (a.pairwise_distance(a * 2), a.pairwise_distance(v, 1.0, keepdim=True)) ~ (F.pairwise_distance(a, a * 2), F.pairwise_distance(a, v, 1.0, keepdim=True))
fold: (a.reshape(1, 4, 3).fold((2, 4), 2), (c.reshape(2, 4, 3) * 2).fold((5, 2), (2, 2), 1, (1, 0), (2, 1)), a.flatten().reshape(4, 3).fold((2, 4), (2, 2))) ~ (F.fold(a.reshape(1, 4, 3), (2, 4), 2), F.fold(c.reshape(2, 4, 3) * 2, (5, 2), (2, 2), 1, (1, 0), (2, 1)), F.fold(a.flatten().reshape(4, 3), (2, 4), (2, 2)))
im2col: (c.unsqueeze(0).im2col(2), c.reshape(1, 1, 4, 6).im2col((2, 3), (1, 2), (1, 0), (2, 1)), (c * 2).reshape(2, 3, 4).im2col((3, 1), padding=1)) ~ (F.unfold(c.unsqueeze(0), 2), F.unfold(c.reshape(1, 1, 4, 6), (2, 3), (1, 2), (1, 0), (2, 1)), F.unfold((c * 2).reshape(2, 3, 4), (3, 1), padding=1))
affine_grid: (a[:2].unsqueeze(0).affine_grid((1, 1, 3, 4)), c[:, :2, :3].affine_grid((2, 3, 2, 4), True), c[:1].affine_grid((1, 1, 2, 3, 2)), c.affine_grid([2, 1, 2, 3, 2], align_corners=True)) ~ (F.affine_grid(a[:2].unsqueeze(0), (1, 1, 3, 4), False), F.affine_grid(c[:, :2, :3], (2, 3, 2, 4), True), F.affine_grid(c[:1], (1, 1, 2, 3, 2), False), F.affine_grid(c, [2, 1, 2, 3, 2], align_corners=True))
grid_sample: [c.unsqueeze(0).grid_sample((a * 0.37).reshape(1, 2, 3, 2), *how) for how in SAMPLING] + [(c.reshape(1, 1, 2, 3, 4) * 2).grid_sample((a * 0.37).reshape(1, 2, 2, 1, 3), *how) for how in SAMPLING if how[0] != "bicubic"] ~ [F.grid_sample(c.unsqueeze(0), (a * 0.37).reshape(1, 2, 3, 2), *how) for how in SAMPLING] + [F.grid_sample(c.reshape(1, 1, 2, 3, 4) * 2, (a * 0.37).reshape(1, 2, 2, 1, 3), *how) for how in SAMPLING if how[0] != "bicubic"]
embedding_bag: [(k % 4).embedding_bag(a, mode=m, padding_idx=p) for m in ("sum", "mean", "max") for p in (None, -2)] + [(k.flatten() % 4).embedding_bag(a, offsets, m, include_last_offset=last) for m in ("sum", "mean", "max") for last in (False, True)] + [(k % 4).embedding_bag(a, mode="sum", per_sample_weights=p)] ~ [F.embedding_bag(k % 4, a, mode=m, padding_idx=p) for m in ("sum", "mean", "max") for p in (None, -2)] + [F.embedding_bag(k.flatten() % 4, a, offsets, mode=m, include_last_offset=last) for m in ("sum", "mean", "max") for last in (False, True)] + [F.embedding_bag(k % 4, a, mode="sum", per_sample_weights=p)]
multi_margin_loss: (a.multi_margin_loss(k[:, 0] % 3), a.multi_margin_loss(k[:, 0] % 3, 2, 0.5, w, "none"), v.multi_margin_loss(j[0])) ~ (F.multi_margin_loss(a, k[:, 0] % 3), F.multi_margin_loss(a, k[:, 0] % 3, 2, 0.5, w, reduction="none"), F.multi_margin_loss(v, j[0]))
multilabel_margin_loss: (a.multilabel_margin_loss(labels), a.multilabel_margin_loss(labels, "none"), v.multilabel_margin_loss(labels[0])) ~ (F.multilabel_margin_loss(a, labels), F.multilabel_margin_loss(a, labels, reduction="none"), F.multilabel_margin_loss(v, labels[0]))
ctc_loss: [c.flatten().repeat(2).reshape(6, 2, 4).log_softmax(-1).ctc_loss(ids, (6, 5), (2, 3), reduction=r) for r in ("mean", "sum", "none")] + [c.flatten().repeat(2).reshape(6, 2, 4).log_softmax(-1).ctc_loss(ids.flatten()[1:], (6, 4), (2, 3), 2), c.flatten().repeat(2).reshape(6, 2, 4)[:, 0].log_softmax(-1).ctc_loss(ids[0, :2], (6,), (2,)), c.flatten().repeat(2).reshape(6, 2, 4)[:2].log_softmax(-1).ctc_loss(ids, (2, 2), (1, 3), zero_infinity=True), c.flatten().repeat(2).reshape(6, 2, 4).log_softmax(-1).ctc_loss(ids, (6, 5), (0, 1))] ~ [F.ctc_loss(c.flatten().repeat(2).reshape(6, 2, 4).log_softmax(-1), ids, (6, 5), (2, 3), reduction=r) for r in ("mean", "sum", "none")] + [F.ctc_loss(c.flatten().repeat(2).reshape(6, 2, 4).log_softmax(-1), ids.flatten()[1:], (6, 4), (2, 3), 2), F.ctc_loss(c.flatten().repeat(2).reshape(6, 2, 4)[:, 0].log_softmax(-1), ids[0, :2], (6,), (2,)), F.ctc_loss(c.flatten().repeat(2).reshape(6, 2, 4)[:2].log_softmax(-1), ids, (2, 2), (1, 3), zero_infinity=True), F.ctc_loss(c.flatten().repeat(2).reshape(6, 2, 4).log_softmax(-1), ids, (6, 5), (0, 1))]
"""  # noqa: E501


def test_every_name_has_a_row() -> None:
    listed = [name for name, _, _ in rows(CALLS)]
    assert len(listed) == len({*listed})
    assert {*listed} == public_names(*LAYER_GROUPS)


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(CALLS), ids=lambda text: "")
def test_call(name: str, ours: str, theirs: str) -> None:
    assert re.search(rf"\.{name}\b", ours)
    assert_call(ours, theirs)


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(CALLS), ids=lambda text: "")
def test_gradient(name: str, ours: str, theirs: str) -> None:
    assert_gradient(ours, theirs)


def test_places_of_affine_grid_are_as_exact_as_theta() -> None:
    theta = np.array([[[0.9, 0.1, 0.3], [-0.2, 1.1, 0.7]]])
    grid = Tensor(theta).affine_grid((1, 1, 3, 7))
    assert grid.dtype == dtypes.float64
    exact = torch.nn.functional.affine_grid(torch.tensor(theta), [1, 1, 3, 7], align_corners=False).numpy()
    np.testing.assert_allclose(grid.numpy(), exact, rtol=1e-14, atol=1e-14)


IMAGE, GRID = Tensor.ones(1, 3, 6, 6), Tensor.zeros(1, 2, 2, 2)
M, IDS = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), Tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: IMAGE.pixel_shuffle(0), "pixel_shuffle: upscale_factor=0"),
        (lambda: IMAGE.pixel_shuffle(2), "pixel_shuffle: factor 2"),
        (lambda: IMAGE.pixel_unshuffle(4), "pixel_unshuffle: factor 4"),
        (lambda: IMAGE.pixel_unshuffle(-1), "pixel_unshuffle: downscale_factor=-1"),
        (lambda: IMAGE.channel_shuffle(2), "channel_shuffle: 2 groups"),
        (lambda: IMAGE.fold((2, 2), 2), "fold: windows of"),
        (lambda: IMAGE.grid_sample(GRID, "area"), "grid_sample: mode='area'"),
        (lambda: IMAGE.grid_sample(GRID, padding_mode="circular"), "grid_sample: padding_mode='circular'"),
        (lambda: IMAGE.grid_sample(GRID[:, 0]), "grid_sample: mode 'bilinear'"),
        (lambda: M.affine_grid((1, 1, 2, 2)), "affine_grid: size"),
        (lambda: M.unsqueeze(0).affine_grid((1, 1, 0, 2)), "affine_grid: size=0"),
        (lambda: IMAGE.conv1d(IMAGE, stride=0), r"conv1d: stride \(0, 0\) has a number below 1"),
        (lambda: IMAGE.max_pool3d(-1), r"max_pool3d: kernel_size \(-1, -1, -1\) has a number below 1"),
        (lambda: M.glu(), "glu: dim -1 has 3 elements"),
        (lambda: M.prelu(M[0, :2]), "prelu: weights do not fit"),
        (lambda: M.softshrink(-1), "softshrink: lambd=-1"),
        (lambda: M.celu(0), "celu: alpha=0"),
        (lambda: M.hardtanh(2, 1), "hardtanh: min_val=2"),
        (lambda: M.layer_norm((2,)), "layer_norm: normalized_shape"),
        (lambda: M.layer_norm((3,), M[0, :2]), "layer_norm: normalized_shape"),
        (lambda: M.rms_norm((2, 2)), "rms_norm: normalized_shape"),
        (lambda: IMAGE.group_norm(0), "group_norm: num_groups=0"),
        (lambda: IMAGE.group_norm(2), "group_norm: 2 groups"),
        (lambda: M.adaptive_avg_pool2d(1), r"adaptive_avg_pool2d: adaptive pool to \(1, 1\): 2 dims"),
        (lambda: IMAGE.adaptive_max_pool2d(-1), "adaptive_max_pool2d: adaptive pool to"),
        (lambda: IDS.embedding(M, padding_idx=2), "embedding: padding_idx=2"),
        (lambda: IDS.embedding_bag(M, mode="min"), "embedding_bag: mode='min'"),
        (lambda: IDS.embedding_bag(M, per_sample_weights=M), "embedding_bag: mode='mean'"),
        (lambda: IDS[0].embedding_bag(M), "embedding_bag: ids of 1 dims"),
        (lambda: M.huber_loss(M, delta=0), "huber_loss: delta=0"),
        (lambda: M.smooth_l1_loss(M, beta=-1), "smooth_l1_loss: beta=-1"),
        (lambda: M.triplet_margin_loss(M, M, margin=0), "triplet_margin_loss: margin=0"),
        (lambda: M.gaussian_nll_loss(M, -1.0), "gaussian_nll_loss: var=-1.0"),
        (lambda: M.binary_cross_entropy(M[0]), "binary_cross_entropy: shapes differ"),
        (lambda: M.binary_cross_entropy_with_logits(M[0]), "binary_cross_entropy_with_logits: shapes differ"),
        (lambda: M.multi_margin_loss(IDS[0], p=3), "multi_margin_loss: p=3"),
        (lambda: M.multilabel_margin_loss(IDS), "multilabel_margin_loss: shapes differ"),
        (lambda: M.ctc_loss(IDS, (2, 2), (1, 1)), "ctc_loss: 2 lengths"),
        (lambda: M.unsqueeze(1).ctc_loss(IDS[:1], (2,), (1,), blank=3), "ctc_loss: blank=3"),
        (lambda: IMAGE.avg_pool2d(2, divisor_override=0), "avg_pool2d: divisor_override=0"),
    ],
)
def test_errors(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.parametrize("how", [{"size": 3}, {"size": 7}, {"size": 12}, {"scale_factor": 0.5}, {"scale_factor": 1.3}])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_interpolate_to_means_of_areas(dims: int, how: dict[str, Any]) -> None:
    values = np.random.default_rng(dims).standard_normal((2, 3, 5, 7, 6)[: 2 + dims]).astype(np.float32)
    given = {key: (value,) * dims for key, value in how.items()}
    ours, theirs = Tensor(values), torch.from_numpy(values).requires_grad_()
    found = ours.interpolate(mode="area", **given)
    expected = torch.nn.functional.interpolate(theirs, mode="area", **given)
    weights = np.random.default_rng(9).standard_normal(found.shape).astype(np.float32)
    (expected * torch.from_numpy(weights)).sum().backward()
    gradient = (found * Tensor(weights)).sum().gradient(ours)[0]
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d])
@pytest.mark.parametrize("name", ["valid", "VALID"])
def test_layers_take_valid_as_no_padding(make: Any, name: str) -> None:
    named, numbered = make(2, 3, 3, padding=name), make(2, 3, 3)
    named.weight, named.bias = numbered.weight, numbered.bias
    x = Tensor.rand(1, 2, *(6,) * (numbered.weight.ndim - 2))
    np.testing.assert_array_equal(named(x).numpy(), numbered(x).numpy())
