"""Arguments without a meaning are refused where they are given, with an error that names them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from extra.lr_scheduler import CosineAnnealingLR, CosineAnnealingLRWithWarmup, MultiStepLR, OneCycleLR
from tinygrad import Context, Device, Tensor, Variable, dtypes, nn


def sgd(**kwargs: Any) -> nn.optim.Optimizer:
    return nn.optim.SGD([Tensor([1.0])], **{"lr": 0.1, **kwargs})


NAN = math.nan
ints = Tensor([[1, 2], [3, 4]])
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "cosine of no steps": (lambda: CosineAnnealingLR(sgd(), 0), ValueError, "T_max is 0"),
    "cosine of negative steps": (lambda: CosineAnnealingLR(sgd(), -3), ValueError, "T_max is -3"),
    "warm-up without decay": (
        lambda: CosineAnnealingLRWithWarmup(sgd(), 0.1, 0.01, 0, 0), ValueError, "decay_steps 0"),
    "negative warm-up": (
        lambda: CosineAnnealingLRWithWarmup(sgd(), 0.1, 0.01, -1, 5), ValueError, "warmup_steps -1"),
    "share of a cycle": (lambda: OneCycleLR(sgd(), 1.0, total_steps=5, pct_start=2.0), ValueError, "pct_start 2.0"),
    "factor of a cycle": (lambda: OneCycleLR(sgd(), 1.0, div_factor=0.0, total_steps=5), ValueError, "div_factor 0.0"),
    "schedule of None": (lambda: MultiStepLR(None, [1]), TypeError, "expected an Optimizer"),  # type: ignore[arg-type]
    "schedule of a list": (lambda: CosineAnnealingLR([sgd()], 3), TypeError, "list"),  # type: ignore[arg-type]
    "split of 0 dims": (lambda: Tensor(1.0).split(1), ValueError, "at least 1 dim"),
    "chunk of 0 dims": (lambda: Tensor(1.0).chunk(1), ValueError, "at least 1 dim"),
    "LSTM size": (lambda: nn.LSTMCell(0, -1), ValueError, "hidden_size=-1"),
    "BatchNorm size": (lambda: nn.BatchNorm(-2), ValueError, "sz=-2"),
    "kernel of 0": (lambda: nn.Conv2d(3, 2, 0), ValueError, "kernel_size=0"),
    "kernel with a 0": (lambda: nn.Conv2d(3, 2, (3, 0)), ValueError, "kernel_size"),
    "transposed kernel of 0": (lambda: nn.ConvTranspose2d(3, 2, 0), ValueError, "kernel_size=0"),
    **{f"resizing nothing, {mode}": (
        lambda mode=mode: Tensor.zeros(1, 1, 0, 4).interpolate((2, 2), mode=mode), ValueError, "no elements")
       for mode in ("nearest", "bilinear", "bicubic")},
    "padding as text": (lambda: ints.pad("1"), TypeError, "padding is the str '1'"),
    "padding ints with NaN": (lambda: ints.pad((1, 1), value=NAN), ValueError, "nan is no integer"),
    "padding ints with inf": (lambda: ints.pad((1, 1), value=math.inf), OverflowError, "inf is no integer"),
    "attention mask of ints": (
        lambda: Tensor.ones(1, 2, 2).scaled_dot_product_attention(
            Tensor.ones(1, 2, 2), Tensor.ones(1, 2, 2), attn_mask=ints), RuntimeError, "attn_mask != 0"),
    "rate of NaN": (lambda: sgd(lr=NAN), ValueError, "learning rate"),
    "negative rate": (lambda: sgd(lr=-1.0), ValueError, "learning rate"),
    "momentum of NaN": (lambda: sgd(momentum=NAN), ValueError, "momentum"),
    "negative momentum": (lambda: sgd(momentum=-0.5), ValueError, "momentum"),
    "negative decay": (lambda: sgd(weight_decay=-0.5), ValueError, "weight_decay"),
    "beta of 1": (lambda: nn.optim.Adam([Tensor([1.0])], b1=1.0), ValueError, "b1"),
    "beta of NaN": (lambda: nn.optim.AdamW([Tensor([1.0])], b2=NAN), ValueError, "b2"),
    "eps of NaN": (lambda: nn.optim.Adam([Tensor([1.0])], eps=NAN), ValueError, "eps"),
    "parameter of ints": (lambda: nn.optim.SGD([Tensor([1, 2])]), RuntimeError, "dtype int"),
    "Variable between fractions": (lambda: Variable("a", 1.5, 2), TypeError, "are no ints"),
    "tril at a fraction": (lambda: ints.tril(0.5), TypeError, "diagonal"),
    "triu at a fraction": (lambda: ints.triu(1.0), TypeError, "diagonal"),
    "quantiles of two dims": (lambda: Tensor([1.0, 2.0]).quantile([[0.5]]), ValueError, "q has 2 dims"),
    **{f"device {name}": (lambda name=name: Tensor([1.0], device=name), ValueError, "is no number")
       for name in ("CPU:x", "CPU:", "CPU:-1", "PYTHON:zz", "CPU:1.5", "CPU:1:2")},
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED.values(), ids=REFUSED)
def test_refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)


def test_what_stays_possible() -> None:
    assert ints.pad((1, 0), value=7.0).tolist() == [[7, 1, 2], [7, 3, 4]]
    assert ints.tril(-1).tolist() == [[0, 0], [3, 0]]
    assert Tensor([1.0], device="CPU:3").device == "CPU:3"
    assert Device.canonicalize("disk:/a:b") == "DISK:/a:b"
    assert Variable("a", 1.0, 2.0).vmin == 1
    assert nn.optim.SGD([Tensor([1.0]), Tensor([1]).is_param_(False)]).buffers[0].dtype is dtypes.int32
    assert Tensor([1.0, 2.0, 3.0]).quantile([0.5]).tolist() == [2.0]


def test_negative_exponents_in_integer_tensors_round_toward_0() -> None:
    torch = pytest.importorskip("torch")
    base, exponent = [1, -1, -1, 2, -2, 3, 2], [-3, -3, -2, -1, -3, 2, 0]
    expected = torch.tensor(base) ** torch.tensor(exponent)
    assert (Tensor(base) ** Tensor(exponent)).tolist() == expected.tolist()
    assert (2 ** Tensor([0, -3, 10])).tolist() == [1, 0, 1024]


def test_unpooling_checks_positions_where_asked() -> None:
    values, where = Tensor([[[[5.0]]]]), Tensor([[[[9]]]])
    assert values.max_unpool2d(where).tolist() == [[[[0.0, 0.0], [0.0, 0.0]]]]
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexError, match="max_unpool2d"):
        values.max_unpool2d(where)


def test_a_momentum_of_none_weighs_all_batches_the_same() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = nn.BatchNorm(2, momentum=None), torch.nn.BatchNorm1d(2, momentum=None)
    with Context(TRAINING=1):
        for i in range(4):
            batch = [[float(i), 2.0 * i * i], [3.0, i - 5.0], [float(-i), 1.0]]
            ours(Tensor(batch)).realize()
            theirs(torch.tensor(batch))
    assert ours.running_mean.tolist() == pytest.approx(theirs.running_mean.tolist(), rel=1e-5)
    assert ours.running_var.tolist() == pytest.approx(theirs.running_var.tolist(), rel=1e-5)
    assert ours.num_batches_tracked.item() == 4
