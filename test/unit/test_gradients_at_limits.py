"""Gradients where a formula is 0 * inf or 0 / 0, against torch: certain probabilities, zero norms, logarithms of 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from tinygrad import Tensor, dtypes

INF = math.inf
PROBABILITIES = [0.0, 1.0, 0.0, 1.0, 0.5, 1e-30, 1e-20, 1 - 6e-8]
TARGETS = [0.0, 1.0, 1.0, 0.0, 0.3, 1.0, 0.0, 0.0]
LOGITS = [[-INF, 0.0, 1.0], [0.0, 300.0, -300.0]]
ZEROS = [[0.0, 0.0], [0.0, 1.0], [3.0, 4.0]]
LINE = [math.nan, -INF, -3.0, -1.0, -0.5, -0.0, 0.0, 1.0, 2.0, 6.0, 7.0, INF]
# Every number of the line with every other; and with a third one, which is a number: at NaN limits count for nothing.
PAIRS = [[x for x in LINE for _ in LINE], [y for _ in LINE for y in LINE]]
NUMBERS = [x for x in LINE if x == x]
TRIPLES = [
    [x for x in NUMBERS for _ in range(16)],
    [y for _ in NUMBERS for y in (-1.0, 0.0, 1.0, 2.0) for _ in range(4)],
    [z for _ in range(4 * len(NUMBERS)) for z in (-1.0, 0.0, 1.0, 2.0)],
]
BASES = [math.nan, -INF, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, INF]
EXPONENTS = [math.nan, -INF, -3.0, -2.5, -2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF]
# name: (function, the same of torch, operands, which operands to differentiate for)
Case = tuple[Callable[..., Any], Callable[..., Any], list[Any], tuple[int, ...]]
CASES: dict[str, Case] = {
    **{f"binary cross-entropy, {r}": (lambda p, y, r=r: p.binary_crossentropy(y, reduction=r),
                                      lambda p, y, r=r: F.binary_cross_entropy(p, y, reduction=r),
                                      [PROBABILITIES, TARGETS], (0,)) for r in ("mean", "sum", "none")},
    "binary cross-entropy of saturated sigmoids": (
        lambda x, y: x.sigmoid().binary_crossentropy(y), lambda x, y: F.binary_cross_entropy(x.sigmoid(), y),
        [[-200.0, 200.0, 0.5, -1000.0], [0.0, 1.0, 1.0, 1.0]], (0,)),
    "binary cross-entropy of logits": (
        lambda x, y: x.binary_crossentropy_logits(y), lambda x, y: F.binary_cross_entropy_with_logits(x, y),
        [[-200.0, 200.0, 0.5, -1000.0], [0.0, 1.0, 1.0, 1.0]], (0, 1)),
    "binary cross-entropy, one target for all": (
        lambda p, y: p.binary_crossentropy(y), lambda p, y: F.binary_cross_entropy(p, y.expand(3)),
        [[0.0, 0.25, 1.0], [0.5]], (0,)),
    "nll of log_softmax": (lambda x: x.log_softmax().nll_loss(Tensor([2, 1])),
                           lambda x: F.nll_loss(x.log_softmax(-1), torch.tensor([2, 1])), [LOGITS], (0,)),
    "cross-entropy": (lambda x: x.cross_entropy(Tensor([2, 1])),
                      lambda x: F.cross_entropy(x, torch.tensor([2, 1])), [LOGITS], (0,)),
    "kl_div": (lambda x, y: x.kl_div(y, reduction="sum"), lambda x, y: F.kl_div(x, y, reduction="sum"),
               [[-1.0, -2.0, 0.0, -INF], [0.0, 0.5, 1.0, 0.0]], (0, 1)),
    "poisson_nll": (lambda x, y: x.poisson_nll_loss(y, log_input=False),
                    lambda x, y: F.poisson_nll_loss(x, y, log_input=False), [[0.0, 0.0, 2.0], [0.0, 1.0, 5.0]], (0,)),
    "gaussian_nll": (lambda x, y, v: x.gaussian_nll_loss(y, v), lambda x, y, v: F.gaussian_nll_loss(x, y, v),
                     [[0.0, 1.0, 2.0], [0.0, 1.0, 3.0], [0.0, 1.0, 1e-9]], (0, 2)),
    **{name: (lambda x, y, name=name: getattr(x, name)(y), lambda x, y, name=name: getattr(F, name)(x, y),
              [[INF, -INF, 1e30, 1.0, 2.0, -0.5], [0.0, 1.0, 0.0, 0.0, 2.0, -INF]], (0, 1))
       for name in ("huber_loss", "smooth_l1_loss", "l1_loss")},
    "logaddexp2": (lambda x, y: x.logaddexp2(y), torch.logaddexp2,
                   [[INF, 1.0, -INF, 1.0, 1e30, 3.0], [0.0, INF, 1.0, -INF, 1.0, 3.0]], (0, 1)),
    "xlogy": (lambda x, y: x.xlogy(y), torch.xlogy,
              [[0.0, 0.0, 1.0, 1.0, 2.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0, -1.0, -1.0, INF]], (0, 1)),
    "xlogy of one tensor": (lambda x: x.xlogy(x) , lambda x: torch.xlogy(x, x), [[0.5, 1.0, 2.0]], (0,)),
    "logaddexp": (lambda x, y: x.logaddexp(y), torch.logaddexp,
                  [[0.0, 300.0, -300.0, INF, -INF], [0.0, -300.0, 300.0, 1.0, 1.0]], (0, 1)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), lambda x: x.logcumsumexp(0), [[0.0, 300.0, -300.0, 1.0]], (0,)),
    **{f"norm, p = {p}": (lambda x, p=p: x.norm(p, -1), lambda x, p=p: x.norm(p, -1), [ZEROS], (0,))
       for p in (2, 1, 3, 1.5, 0.5, -1, 0, INF, -INF)},
    "std": (lambda x: x.std(-1), lambda x: x.std(-1), [[[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]]], (0,)),
    "atan2": (lambda x, y: x.atan2(y), torch.atan2, [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], (0, 1)),
    "hypot": (lambda x, y: x.hypot(y), torch.hypot, [[0.0, 3.0, 0.0], [0.0, 4.0, 1.0]], (0, 1)),
    "pow": (lambda x, y: x.pow(y), torch.pow,
            [[x for x in BASES for _ in EXPONENTS], [y for _ in BASES for y in EXPONENTS]], (0, 1)),
    **{f"pow, exponent {y}": (lambda x, y=y: x**y, lambda x, y=y: x**y, [BASES], (0,)) for y in EXPONENTS},
    **{f"pow, base {x}": (lambda y, x=x: x**y, lambda y, x=x: x**y, [EXPONENTS], (0,)) for x in BASES},
    "cdist": (lambda x, y: x.cdist(y), torch.cdist, [ZEROS, ZEROS], (0, 1)),
    "pairwise_distance": (lambda x, y: x.pairwise_distance(y), F.pairwise_distance, [ZEROS, ZEROS], (0, 1)),
    "cosine_similarity": (lambda x, y: x.cosine_similarity(y, dim=-1),
                          lambda x, y: F.cosine_similarity(x, y, dim=-1), [ZEROS, ZEROS], (0, 1)),
    "normalize": (lambda x: x.normalize(dim=-1), lambda x: F.normalize(x, dim=-1), [ZEROS], (0,)),
    "logit": (lambda x: x.logit(), torch.logit, [[0.0, 0.25, 1.0, 2.0, -1.0]], (0,)),
    "logit with eps": (lambda x: x.logit(1e-3), lambda x: x.logit(1e-3), [[0.0, 0.25, 1.0]], (0,)),
    **{f"clamp to {low}, {high}": (lambda x, a=low, b=high: x.clamp(a, b), lambda x, a=low, b=high: x.clamp(a, b),
                                   [LINE], (0,))
       for low, high in ((-1, 1), (-1.0, None), (None, 2.0), (2, -1), (-INF, INF), (0, 0), (math.nan, 1.0))},
    "clamp to tensors": (lambda x, a, b: x.clamp(a, b), lambda x, a, b: x.clamp(a, b), TRIPLES, (0, 1, 2)),
    "clamp to a tensor": (lambda x, a: x.clamp(a), lambda x, a: x.clamp(a), PAIRS, (0, 1)),
    "clamp to an upper tensor": (lambda x, b: x.clamp(None, b), lambda x, b: x.clamp(None, b), PAIRS, (0, 1)),
    "clamp to a tensor and a number": (lambda x, a: x.clamp(a, 1.0), lambda x, a: x.clamp(a, torch.tensor(1.0)),
                                       PAIRS, (0, 1)),
    "relu": (lambda x: x.relu(), F.relu, [LINE], (0,)),
    "relu6": (lambda x: x.relu6(), F.relu6, [LINE], (0,)),
    **{name: (lambda x, f=name: getattr(x, f)(), getattr(F, name), [LINE], (0,))
       for name in ("hardsigmoid", "leaky_relu", "softplus")},
    **{name: (lambda x, f=name: getattr(x, f)(), getattr(F, name), [NUMBERS], (0,))  # torch has several answers at NaN
       for name in ("elu", "celu", "selu", "softshrink", "hardshrink")},
    "hardswish": (lambda x: x.hardswish(), F.hardswish, [[x for x in LINE if x != -INF]], (0,)),
    "threshold": (lambda x: x.threshold(1.0, -3.0), lambda x: F.threshold(x, 1.0, -3.0), [LINE], (0,)),
    **{name: (lambda x, f=name: getattr(x, f)(), getattr(torch, name), [NUMBERS], (0,)) for name in ("abs", "sign")},
    "copysign": (lambda x, y: x.copysign(y), torch.copysign,
                 [[x for x in LINE[2:-1] for _ in LINE], [y for _ in LINE[2:-1] for y in LINE]], (0, 1)),
    "hardtanh": (lambda x: x.hardtanh(-1.0, 2.0), lambda x: F.hardtanh(x, -1.0, 2.0), [LINE], (0,)),
    **{name: (lambda x, y, f=name: getattr(x, f)(y), getattr(torch, name), PAIRS, (0, 1))
       for name in ("maximum", "minimum", "fmax", "fmin")},
    "where": (lambda x, y: (x > y).where(x, y), lambda x, y: torch.where(x > y, x, y), PAIRS, (0, 1)),
    **{f"{name} with NaN": (lambda x, f=name: getattr(x, f)(), lambda x, f=name: getattr(x, f)(),
                            [[1.0, math.nan, 2.0, math.nan]], (0,)) for name in ("max", "min")},
    "prod": (lambda x: x.prod(-1), lambda x: x.prod(-1), [[[0.0, 0.0, 2.0], [0.0, 1.0, 2.0]]], (0,)),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "operands", "wanted"), CASES.values(), ids=CASES)
def test_as_in_torch(
    ours: Callable[..., Any], theirs: Callable[..., Any], operands: list[Any], wanted: tuple[int, ...]
) -> None:
    given = [Tensor(x) for x in operands]
    found = ours(*given)
    gradients = found.sum().gradient(*[given[i] for i in wanted])
    expected_operands = [torch.tensor(x, requires_grad=i in wanted) for i, x in enumerate(operands)]
    expected = theirs(*expected_operands)
    expected.sum().backward()
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    for i, grad in zip(wanted, gradients, strict=True):
        there = expected_operands[i].grad
        shape = np.shape(operands[i])
        np.testing.assert_allclose(
            grad.numpy(), np.zeros(shape) if there is None else there.numpy(), rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16, dtypes.float64])
def test_binary_crossentropy_in_other_dtypes(dtype: Any) -> None:
    x = Tensor([0.0, 1.0, 0.25], dtype=dtype)
    loss = x.binary_crossentropy(Tensor([0.0, 1.0, 1.0], dtype=dtype), reduction="sum")
    assert loss.dtype is dtype
    assert loss.gradient(x)[0].tolist() == pytest.approx([0.0, 0.0, -4.0], rel=1e-2)


def test_binary_crossentropy_of_integers_and_targets() -> None:
    assert Tensor([0, 1]).binary_crossentropy(Tensor([0, 1])).item() == 0.0
    x = Tensor([1.0, 0.0])
    assert Tensor([0.5, 0.5]).binary_crossentropy(x, reduction="sum").gradient(x)[0].tolist() == [0.0, 0.0]


def test_sinc_near_0() -> None:
    # The formula of the slope cancels to nothing there, and is 0 / 0 for the smallest numbers.
    x = np.array([0.0, 1e-45, 1e-38, 1e-20, 1e-8, 1e-4, 0.01, 0.1, 0.3, 0.35, 1.5], np.float32)
    wide = x.astype(np.float64) * np.pi
    safe = np.where(wide == 0, 1, wide)
    expected = np.where(wide < 1e-3, -wide / 3, (np.cos(wide) - np.sin(safe) / safe) / safe) * np.pi
    t = Tensor(x)
    np.testing.assert_allclose(t.sinc().sum().gradient(t)[0].numpy(), expected, rtol=1e-6, atol=3e-45)
