"""Losses of class ids: weights, ignored ids and smoothing as in torch; an id that is no class is not taken silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit

torch = pytest.importorskip("torch")
F = torch.nn.functional

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(size=(6, 5)).astype(np.float32)
IMAGES = RNG.normal(size=(2, 5, 3)).astype(np.float32)
LABELS = np.array([0, 4, 2, 2, 1, 3])
IMAGE_LABELS = np.array([[0, 4, 2], [2, 1, 3]])
WEIGHT = np.array([0.5, 2.0, 1.0, 0.25, 3.0], np.float32)
SHARES = RNG.dirichlet(np.ones(5), size=6).astype(np.float32)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"ignore_index": 2}, {"label_smoothing": 0.3}], ids=str)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(("logits", "labels"), [(LOGITS, LABELS), (IMAGES, IMAGE_LABELS), (LOGITS, SHARES)],
                         ids=["rows", "images", "probabilities"])  # fmt: skip
def test_cross_entropy(logits: Any, labels: Any, weight: Any, options: dict[str, Any], reduction: Any) -> None:
    if labels is SHARES and "ignore_index" in options:
        with pytest.raises(ValueError, match="cross_entropy: ignore_index=2 with probabilities"):
            Tensor(logits).cross_entropy(Tensor(labels), **options)
        return
    x, y = Tensor(logits).clone(), torch.tensor(logits, requires_grad=True)
    ours = x.cross_entropy(Tensor(labels), reduction, weight=None if weight is None else Tensor(weight), **options)
    theirs = F.cross_entropy(
        y, torch.tensor(labels), None if weight is None else torch.tensor(weight), reduction=reduction, **options
    )
    ours.square().sum().backward()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
    theirs.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": Tensor.cross_entropy,
    "nll_loss": Tensor.nll_loss,
    "sparse_categorical_crossentropy": Tensor.sparse_categorical_crossentropy,
    "multi_margin_loss": Tensor.multi_margin_loss,
}


@pytest.mark.parametrize("wrong", [5, 99, -2])
@pytest.mark.parametrize("name", LOSSES)
def test_an_id_that_is_no_class(name: str, wrong: int) -> None:
    x, ids = Tensor(LOGITS), [0, 1, wrong, 2, 3, 4]
    for labels in (Tensor(ids), Tensor(np.array(ids)), Tensor(ids).realize()):
        with pytest.raises(IndexError, match=f"{name}: label {wrong} is no class of 5"):
            LOSSES[name](x, labels)
    pending = Tensor([i - 1 for i in ids]) + 1
    assert np.isnan(LOSSES[name](x, pending).item())
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexError, match=f"{name}: index {wrong}"):
        LOSSES[name](x, Tensor([i - 1 for i in ids]) + 1)


def test_ids_are_looked_at_without_computing_them() -> None:
    labels = Tensor([0, 1, 2, 3, 4, 4]) * 1
    Tensor(LOGITS).cross_entropy(labels)
    assert not labels.uop.is_realized


def test_labels_inside_of_a_captured_function() -> None:
    @TinyJit
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return x.cross_entropy(y).realize()

    x = Tensor(LOGITS).realize()
    for shift in range(4):
        labels = (LABELS + shift) % 5
        expected = F.cross_entropy(torch.tensor(LOGITS), torch.tensor(labels)).item()
        assert loss(x, Tensor(labels).realize()).item() == pytest.approx(expected, rel=1e-6)


def test_weights_must_be_one_per_class() -> None:
    with pytest.raises(ValueError, match=r"cross_entropy: weights have shape \(4,\), there are 5 classes"):
        Tensor(LOGITS).cross_entropy(Tensor(LABELS), weight=Tensor(WEIGHT[:4]))


# ---- several labels for each example ---------------------------------------------------------------------------------

SCORES = RNG.normal(size=(6, 2, 5)).astype(np.float32)
LOG_PROBS = np.log(np.exp(SCORES) / np.exp(SCORES).sum(-1, keepdims=True))


def ctc(ids: Any, input_lengths: Any = (6, 4), target_lengths: Any = (3, 1), reduction: str = "none") -> Tensor:
    found: Tensor = Tensor(LOG_PROBS).ctc_loss(ids, input_lengths, target_lengths, reduction=reduction)
    return found


def pending(values: Any) -> Tensor:
    """Return a tensor that is not computed yet."""
    return Tensor(np.array(values) - 1).realize() + 1


@pytest.mark.parametrize("wrong", [5, 99, -2])
def test_a_label_of_multilabel_margin_loss_that_is_no_class(wrong: int) -> None:
    scores, ids = Tensor(LOGITS[:2]), [[1, 3, -1, 0, 0], [2, wrong, -1, 0, 0]]
    for labels in (Tensor(ids), Tensor(np.array(ids))):
        with pytest.raises(ValueError, match=f"multilabel_margin_loss: label {wrong} is no class of 5"):
            scores.multilabel_margin_loss(labels)
    found = scores.multilabel_margin_loss(pending(ids), reduction="none").numpy()
    assert np.isnan(found).tolist() == [False, True]
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexError, match=f"multilabel_margin_loss: index {wrong}"):
        scores.multilabel_margin_loss(pending(ids))
    right = torch.tensor([[1, 3, -1, 0, 0]])
    expected = F.multilabel_margin_loss(torch.tensor(LOGITS[:1]), right).item()
    assert found[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("wrong", [5, 99, -2])
def test_a_label_of_ctc_loss_that_is_no_class(wrong: int) -> None:
    for ids in ([[1, 2, 3], [wrong, 0, 0]], [1, 2, 3, wrong]):
        for labels in (Tensor(ids), Tensor(np.array(ids))):
            with pytest.raises(ValueError, match=f"ctc_loss: label {wrong} is no class of 5"):
                ctc(labels)
        assert np.isnan(ctc(pending(ids)).numpy()).tolist() == [False, True]
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexError, match=f"ctc_loss: index {wrong}"):
        ctc(pending([[1, 2, 3], [wrong, 0, 0]]))


def test_what_stands_behind_the_labels_of_ctc_loss_is_not_looked_at() -> None:
    found = ctc(Tensor([[1, 2, 3], [4, -1, 99]])).numpy()
    expected = F.ctc_loss(torch.tensor(LOG_PROBS), torch.tensor([1, 2, 3, 4]), (6, 4), (3, 1), reduction="none")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("lengths", "name"),
    [({"input_lengths": (6, 7)}, "input_lengths=7"), ({"input_lengths": (6, -1)}, "input_lengths=-1"),
     ({"target_lengths": (3, 4)}, "target_lengths=4"), ({"target_lengths": (3, -1)}, "target_lengths=-1")],
    ids=str,
)  # fmt: skip
def test_lengths_of_ctc_loss_that_do_not_fit(lengths: dict[str, Any], name: str) -> None:
    labels = Tensor([[1, 2, 3], [4, 0, 0]])
    in_memory = {key: Tensor(list(value)) for key, value in lengths.items()}
    for given in (lengths, in_memory):
        with pytest.raises(ValueError, match=f"ctc_loss: {name}"):
            ctc(labels, **given)
    found = ctc(labels, **{key: pending(value) for key, value in lengths.items()})
    assert np.isnan(found.numpy()).tolist() == [False, True]
    if "target_lengths" in lengths:
        with pytest.raises(ValueError, match="ctc_loss"):
            ctc(Tensor([1, 2, 3]), **lengths)


def test_targets_of_ctc_loss_have_one_row_for_each_sequence() -> None:
    with pytest.raises(ValueError, match="ctc_loss: 3 rows of targets"):
        ctc(Tensor([[1, 2], [3, 4], [1, 2]]))
