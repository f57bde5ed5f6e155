"""Gradients of layers, attention and losses: by differences in float64, beside torch, and twice for smooth ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from test.helpers_gradcheck import gradcheck, once, row, spread, table
from tinygrad import Context, Tensor, dtypes, nn

F = torch.nn.functional


# ---- normalisation, attention, layers ------------------------------------------------------------------------------

SEEN = np.array([[True, False, True], [True, True, False], [False, False, False]])


def attention(**options: Any) -> Callable[..., Any]:
    return lambda q, k, v, *mask: q.scaled_dot_product_attention(k, v, *mask, **options)


def torch_attention(**options: Any) -> Callable[..., Any]:
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **options)


@table(
    row("layernorm", lambda x: x.layernorm(), (3, 5), like=lambda x: F.layer_norm(x, (5,))),
    once("layernorm-axes", lambda x: x.layernorm((1, 2), eps=1e-3), (2, 2, 3),
         like=lambda x: F.layer_norm(x, (2, 3), eps=1e-3)),
    row("batchnorm", lambda x, w, b, m, s: x.batchnorm(w, b, m, s), (2, 3, 2), (3,), (3,), (3,), ((3,), 0.5, 2),
        like=lambda x, w, b, m, s: (x - m[:, None]) * s[:, None] * w[:, None] + b[:, None]),
    row("attention", attention(), (2, 3, 4), (2, 5, 4), (2, 5, 3), like=torch_attention()),
    once("attention-causal", attention(is_causal=True), (1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 4, 3),
         like=torch_attention(is_causal=True)),
    once("attention-bool-mask", attention(), (2, 3, 4), (2, 3, 4), (2, 3, 4), SEEN[:2].repeat(2, 0)[:3],
         like=torch_attention()),
    row("attention-float-mask", attention(), (2, 3, 4), (2, 3, 4), (2, 3, 4), (3, 3), like=torch_attention()),
    once("attention-groups", attention(enable_gqa=True), (1, 4, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2),
         like=torch_attention(enable_gqa=True)),
    once("attention-groups-causal", attention(enable_gqa=True, is_causal=True), (4, 3, 2), (2, 3, 2), (2, 3, 2),
         like=torch_attention(enable_gqa=True, is_causal=True)),
    once("attention-hidden-row", attention(), (2, 3, 4), (2, 3, 4), (2, 3, 4), SEEN, like=None),
    once("dropout-off", lambda x: x.dropout(0.5), (3,), like=lambda x: x * 1),
)  # fmt: skip
def test_normalisation_and_attention(fn: Any, inputs: Any, options: Any) -> None:
    gradcheck(fn, *inputs, **options)


def test_hidden_row_of_attention_has_no_gradient() -> None:
    q, k, v = (Tensor(spread((1, 3, 4), seed=i)) for i in range(3))
    out = q.scaled_dot_product_attention(k, v, Tensor(SEEN))
    grads = [g.numpy() for g in (out * out).sum().gradient(q, k, v)]
    assert out.numpy()[0, 2].tolist() == [0.0] * 4
    assert grads[0][0, 2].tolist() == [0.0] * 4
    assert all(np.isfinite(g).all() for g in grads)


def test_dropout_gradient_is_its_mask() -> None:
    x = Tensor(spread((64,)))
    with Context(TRAINING=1):
        y = x.dropout(0.25)
    (gradient,) = y.sum().gradient(x)
    Tensor.realize(y, gradient)
    np.testing.assert_allclose(gradient.numpy() * x.numpy(), y.numpy(), rtol=1e-6)
    assert set(np.round(gradient.numpy(), 6)) == {0.0, np.round(1 / 0.75, 6)}


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, 3, padding="same", dilation=(2, 1)), (1, 2, 5, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (1, 2, 3, 2)),
    "BatchNorm": (lambda: nn.BatchNorm(3), (4, 3, 2)), "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "InstanceNorm": (lambda: nn.InstanceNorm(3), (2, 3, 4)), "LayerNorm": (lambda: nn.LayerNorm((3, 2)), (2, 3, 2)),
    "LayerNorm2d": (lambda: nn.LayerNorm2d(3), (2, 3, 2, 2)), "LSTMCell": (lambda: nn.LSTMCell(3, 4), (2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [0, 1])
def test_layers(name: str, training: int) -> None:
    if training and name != "BatchNorm":
        pytest.skip("the layer does the same")
    layer = LAYERS[name][0]()
    weights = {k: t for k, t in nn.state.get_state_dict(layer).items() if t.is_param and dtypes.is_float(t.dtype)}
    values = [spread(t.shape, seed=i) for i, t in enumerate(weights.values())]

    def call(x: Tensor, *params: Tensor) -> Any:
        for tensor, value in zip(weights.values(), params, strict=True):
            tensor.replace(value)
        with Context(TRAINING=training):
            return layer(x)

    # Layers start with float32 buffers; their running values enter in evaluation.
    for k, t in nn.state.get_state_dict(layer).items():
        if dtypes.is_float(t.dtype) and k not in weights:
            t.replace(t.double())
    gradcheck(call, spread(LAYERS[name][1], seed=9), *values, like=None, second=name in ("Linear", "LSTMCell"))


def test_embedding_and_rmsnorm() -> None:
    table = nn.Embedding(5, 3)
    gradcheck(lambda w, i: (setattr(table, "weight", w), table(i))[1], (5, 3), np.array([[0, 4, 4], [1, 0, 4]]),
              like=lambda w, i: F.embedding(i, w), second=False)  # fmt: skip
    norm = nn.RMSNorm(4)
    x = Tensor(spread((2, 4)).astype(np.float32))
    (norm(x) * Tensor(spread((2, 4), seed=1).astype(np.float32))).sum().backward()
    t = torch.tensor(spread((2, 4)), dtype=torch.float32, requires_grad=True)
    (F.rms_norm(t, (4,), eps=1e-6) * torch.tensor(spread((2, 4), seed=1), dtype=torch.float32)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-4, atol=1e-6)


# ---- losses --------------------------------------------------------------------------------------------------------

CLASSES, SPATIAL = np.array([2, 0, 3, 1, 2]), np.array([[1, 0], [2, 1], [0, 2]])
REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses(reduction: str) -> None:
    r: Any = reduction
    smooth = reduction == "mean"
    for s in (0.0, 0.2):
        gradcheck(lambda x, y, s=s: x.cross_entropy(y, r, s), (5, 4), CLASSES, second=smooth,
                  like=lambda x, y, s=s: F.cross_entropy(x, y, reduction=r, label_smoothing=s))  # fmt: skip
        gradcheck(lambda x, y, s=s: x.cross_entropy(y, r, s), (3, 3, 2), SPATIAL, second=False,
                  like=lambda x, y, s=s: F.cross_entropy(x, y, reduction=r, label_smoothing=s))  # fmt: skip
        for ignored in (-1, 2):
            gradcheck(lambda x, y, s=s, i=ignored: x.sparse_categorical_crossentropy(y, i, s, r),
                (5, 4), CLASSES, second=False,
                      like=lambda x, y, s=s, i=ignored: F.cross_entropy(x, y, ignore_index=i, reduction=r,
                      label_smoothing=s))  # fmt: skip
    gradcheck(lambda x, y: x.cross_entropy(y.softmax(1), r), (5, 4), (5, 4), second=smooth,
              like=lambda x, y: F.cross_entropy(x, y.softmax(1), reduction=r))  # fmt: skip
    gradcheck(lambda x, w, y: x.log_softmax(1).nll_loss(y, w, reduction=r), (5, 4),
        ((4,), 0.5, 2), CLASSES, second=False,
              like=lambda x, w, y: weighted_nll(x, w, y, r))  # fmt: skip
    gradcheck(lambda x, y: x.nll_loss(y, ignore_index=2, reduction=r), (5, 4), CLASSES, second=False,
              like=lambda x, y: F.nll_loss(x, y, ignore_index=2, reduction=r))  # fmt: skip
    gradcheck(lambda x, y: x.sigmoid().binary_crossentropy(y.sigmoid(), r), (3, 4), (3, 4), second=smooth,
              like=lambda x, y: bce(x.sigmoid(), y.sigmoid(), r))  # fmt: skip
    gradcheck(lambda x, y: x.binary_crossentropy_logits(y.sigmoid(), r), (3, 4), (3, 4), second=smooth,
              like=lambda x, y: bce(x.sigmoid(), y.sigmoid(), r))  # fmt: skip
    gradcheck(lambda x, y, w: x.binary_crossentropy_logits(y.sigmoid(), r, w), (3, 4), (3, 4),
        ((4,), 0.5, 2), second=False,
              like=lambda x, y, w: bce(x.sigmoid(), y.sigmoid(), r, w))  # fmt: skip


def reduced(loss: Any, reduction: str) -> Any:
    return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()


def weighted_nll(x: Any, w: Any, y: Any, reduction: str) -> Any:
    """As torch, which has no gradient of the class weights."""
    loss = -x.log_softmax(1)[torch.arange(len(y)), y] * w[y]
    return loss.sum() / w[y].sum() if reduction == "mean" else reduced(loss, reduction)


def bce(p: Any, y: Any, reduction: str, weight: Any = 1.0) -> Any:
    return reduced(-weight * y * p.log() - (1 - y) * (1 - p).log(), reduction)
