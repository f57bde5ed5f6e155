"""Attention in blocks: results, gradients and memory, at sizes that fill their blocks and at sizes that do not."""

import math

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.engine.realize import get_call_outs_ins
from tinygrad.helpers import Context, prod
from tinygrad.mixin import attention_gradient
from tinygrad.uop import Ops

F = torch.nn.functional
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def expected(q, k, v, mask=None, causal=False):
    """Attention in float64; a row without keys is 0."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if causal:
        mask = np.tri(*scores.shape[-2:], dtype=bool)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


def is_blocked(x: Tensor) -> bool:
    """Whether the kernel of this file's subject takes part."""
    return any(u.op is Ops.FUNCTION and u.arg.name == "attention" for u in x.uop.toposort())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("lead", "length", "count", "depth", "width"),
    [
        ((2, 3), 128, 128, 64, 64),
        ((2,), 16, 1024, 8, 8),
        ((1, 1), 1024, 17, 80, 80),
        ((), 513, 513, 64, 7),
        ((2,), 129, 200, 1, 1),
        ((3,), 17, 1031, 7, 80),
        ((1,), 20000, 1, 8, 8),
    ],
)
def test_sizes(lead, length, count, depth, width, causal):
    q, k, v = numbers(*lead, length, depth), numbers(*lead, count, depth), numbers(*lead, count, width)
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=causal)
    assert is_blocked(out)
    np.testing.assert_allclose(out.numpy(), expected(q, k, v, causal=causal), rtol=2e-5, atol=2e-6)


MASKS = [(130, 150), (1, 150), (130, 1), (3, 130, 150), (2, 1, 1, 150), (2, 3, 130, 150), (1, 1, 130, 1)]


@pytest.mark.parametrize(
    ("shape", "is_bool"), [(shape, True) for shape in MASKS] + [(shape, False) for shape in MASKS[:3]], ids=str
)
def test_masks(shape, is_bool):
    q, k, v = numbers(2, 3, 130, 16), numbers(2, 3, 150, 16), numbers(2, 3, 150, 16)
    mask = numbers(*shape) > 0.3 if is_bool else numbers(*shape) * 4
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(mask))
    assert is_blocked(out)
    np.testing.assert_allclose(out.numpy(), expected(q, k, v, mask), rtol=2e-5, atol=2e-6)


def test_rows_without_keys_are_zero_and_pass_no_gradient_on():
    q, k, v = numbers(2, 130, 16), numbers(2, 150, 16), numbers(2, 150, 16)
    seen = RNG.random((130, 150)) > 0.5
    seen[[0, 63, 64, 129]] = False
    for mask in (seen, np.where(seen, 0.0, -np.inf).astype(np.float32)):
        x, y, z = Tensor(q), Tensor(k), Tensor(v)
        out = x.scaled_dot_product_attention(y, z, Tensor(mask))
        assert is_blocked(out)
        np.testing.assert_allclose(out.numpy(), expected(q, k, v, mask), rtol=2e-5, atol=2e-6)
        gradients = [g.numpy() for g in out.square().sum().gradient(x, y, z)]
        assert all(np.isfinite(g).all() for g in gradients)
        assert not gradients[0][:, [0, 63, 64, 129]].any()


def test_scores_far_apart():
    q, k, v = numbers(130, 16) * 100, numbers(150, 16) * 100, numbers(150, 16)
    q[3], k[70] = -q[3], 0
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
    np.testing.assert_allclose(out.numpy(), expected(q, k, v), rtol=1e-3, atol=1e-3)


def test_nan_and_infinity_stay_in_their_rows():
    q, k, v = numbers(130, 16), numbers(150, 16), numbers(150, 16)
    q[5, 3], q[70, 1] = np.nan, np.inf
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)).numpy()
    assert np.isnan(out[[5, 70]]).all()
    others = np.delete(np.arange(130), [5, 70])
    np.testing.assert_allclose(out[others], expected(q[others], k, v), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("keys", "values"), [(2, 3), (3, 1), (1, 6)])
@pytest.mark.parametrize("length", [3, 130])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_keys_and_values_with_different_numbers_of_heads(keys, values, length, scale):
    q, k, v = numbers(2, 6, length, 16), numbers(2, keys, 150, 16), numbers(2, values, 150, 16)
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), enable_gqa=True, scale=scale)
    k, v = np.repeat(k, 6 // keys, axis=1), np.repeat(v, 6 // values, axis=1)
    right = expected(q * (scale or 1 / 4) * 4, k, v)
    np.testing.assert_allclose(out.numpy(), right, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("scale", [None, 2.0])
@pytest.mark.parametrize("causal", [False, True])
def test_vectors_of_nothing_weigh_all_keys_alike(scale, causal):
    q, k, v = torch.ones(2, 3, 0), torch.ones(2, 3, 0), torch.randn(2, 3, 5)
    mine = [Tensor(x.numpy()) for x in (q, k, v)]
    out = mine[0].scaled_dot_product_attention(*mine[1:], is_causal=causal, scale=scale)
    right = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale or 1.0)
    np.testing.assert_allclose(out.numpy(), right.numpy(), rtol=1e-5, atol=1e-6)


def test_no_heads():
    q, k, v = Tensor.ones(2, 0, 3, 4), Tensor.ones(2, 0, 5, 4), Tensor.ones(2, 0, 5, 7)
    assert q.scaled_dot_product_attention(k, v, enable_gqa=True).numpy().shape == (2, 0, 3, 7)
    with pytest.raises(IndexError, match=r"4 query heads for \(0,\) key or value heads"):
        Tensor.ones(2, 4, 3, 4).scaled_dot_product_attention(k, v, enable_gqa=True)


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_grouped_heads(heads):
    q, k, v = numbers(2, 6, 130, 16), numbers(2, heads, 150, 16), numbers(2, heads, 150, 16)
    for shape in ((130, 150), (2, 1, 130, 150), (2, 6, 1, 150)):
        mask = numbers(*shape) > 0
        out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(mask), enable_gqa=True)
        assert is_blocked(out)
        repeated = (np.repeat(x, 6 // heads, axis=1) for x in (k, v))
        np.testing.assert_allclose(out.numpy(), expected(q, *repeated, mask), rtol=2e-5, atol=2e-6)


def test_leading_dims_broadcast():
    q, k, v = numbers(2, 1, 130, 16), numbers(3, 150, 16), numbers(1, 150, 16)
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
    assert is_blocked(out)
    np.testing.assert_allclose(out.numpy(), expected(q, k, v), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("half", 2e-3), ("bfloat16", 1.6e-2), ("double", 1e-12)])
def test_dtypes(dtype, tolerance):
    q, k, v = (Tensor(numbers(2, 200, 16)).cast(getattr(dtypes, dtype)).realize() for _ in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    assert out.dtype == getattr(dtypes, dtype)
    assert is_blocked(out)
    exact = expected(*(x.double().numpy() for x in (q, k, v)), causal=True)
    np.testing.assert_allclose(out.double().numpy(), exact, rtol=tolerance, atol=tolerance)


def test_views_as_arguments():
    x = numbers(2, 130, 3, 4, 16)
    q, k, v = (Tensor(x)[:, :, i].transpose(1, 2) for i in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    assert is_blocked(out)
    arrays = (np.swapaxes(x[:, :, i], 1, 2) for i in range(3))
    np.testing.assert_allclose(out.numpy(), expected(*arrays, causal=True), rtol=2e-5, atol=2e-6)


def test_replay():
    step = TinyJit(lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True).realize())
    for _ in range(4):
        q, k, v = (numbers(2, 150, 16) for _ in range(3))
        np.testing.assert_allclose(
            step(*(Tensor(x).realize() for x in (q, k, v))).numpy(),
            expected(q, k, v, causal=True),
            rtol=2e-5,
            atol=2e-6,
        )


@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "added", "grouped"])
def test_gradients_match_torch(kind):
    shapes = [(2, 4, 130, 16), (2, 2 if kind == "grouped" else 4, 150, 16), (2, 2 if kind == "grouped" else 4, 150, 24)]
    arrays = [numbers(*shape) for shape in shapes]
    options = {"is_causal": kind == "causal", "enable_gqa": kind == "grouped"}
    mask = {"bool": RNG.random((130, 150)) > 0.4, "added": numbers(4, 130, 150)}.get(kind)
    weight = numbers(2, 4, 130, 24)
    ours, theirs = [Tensor(x) for x in arrays], [torch.tensor(x, requires_grad=True) for x in arrays]
    masks = [] if mask is None else [Tensor(mask)], [] if mask is None else [torch.tensor(mask)]
    if kind == "added":
        masks[1][0].requires_grad_()
        ours, theirs = ours + masks[0], theirs + masks[1]
    out = ours[0].scaled_dot_product_attention(ours[1], ours[2], *masks[0], **options)
    assert is_blocked(out)
    gradients = (out * Tensor(weight)).sum().gradient(*ours)
    out = F.scaled_dot_product_attention(theirs[0], theirs[1], theirs[2], *masks[1], **options)
    for mine, other in zip(gradients, torch.autograd.grad((out * torch.tensor(weight)).sum(), theirs), strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-4, atol=2e-5)


def test_second_derivative_matches_torch():
    arrays = [numbers(2, 130, 8), numbers(2, 130, 8), numbers(2, 130, 8)]
    ours = [Tensor(x) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    first = ours[0].scaled_dot_product_attention(ours[1], ours[2], is_causal=True).square().sum().gradient(*ours)
    second = sum((g.square().sum() for g in first), Tensor(0.0)).gradient(*ours)
    out = F.scaled_dot_product_attention(*theirs, is_causal=True)
    first = torch.autograd.grad(out.square().sum(), theirs, create_graph=True)
    others = torch.autograd.grad(sum(g.square().sum() for g in first), theirs)
    for mine, other in zip(second, others, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-3, atol=2e-3)


def test_dropout_keeps_the_expected_sum():
    q, k, v = Tensor(numbers(2, 200, 16)), Tensor(numbers(2, 200, 16)), Tensor.ones(2, 200, 4)
    with Context(TRAINING=1):
        out = q.scaled_dot_product_attention(k, v, dropout_p=0.5).numpy()
    assert out.std() > 0.01
    np.testing.assert_allclose(out.mean(), 1, rtol=0.05)


def test_memory_is_linear_in_the_length():
    length = 8192
    q, k, v = (Tensor.empty(1, 8, length, 64) for _ in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    buffers = {u for call in out.schedule_linear().src for u in call.src[1:]}
    # Arguments, the result, and two numbers of each row.
    assert sum(u.arg.shape[0] for u in buffers) <= 4 * 8 * length * 64 + 2 * 8 * length


def test_long_keys_take_little_scratch_memory():
    q, k, v = Tensor.empty(64, 64), Tensor.empty(1 << 17, 64), Tensor.empty(1 << 17, 64)
    kernel = next(
        call.src[0] for call in q.scaled_dot_product_attention(k, v).schedule_linear().src if call.src[0].op is Ops.SINK
    )
    scratch = [u for u in kernel.toposort() if u.op is Ops.BUFFER]
    assert scratch
    assert sum(u.arg.shape[0] * 4 for u in scratch) <= 64 * 1024


def kernel_of(length, count, lead=()):
    """The kernel of attention, of 32 numbers each."""
    q, k, v = (Tensor.empty(*lead, n, 32) for n in (length, count, count))
    (call,) = q.scaled_dot_product_attention(k, v).schedule_linear().src
    return call.src[0]


@pytest.mark.parametrize("count", [37, 64, 197, 1000])
def test_keys_are_read_without_a_test_for_each(count):
    """A gate per element had halved the speed of lengths that are no multiple of a block."""
    reads = [u for u in kernel_of(512, count).toposort() if u.op is Ops.INDEX and u.src[0].op is Ops.PARAM]
    keys = [u for u in reads if u.src[0].arg.slot == 3]
    assert keys
    assert all(u.src[-1].dtype is not dtypes.bool for u in keys)


@pytest.mark.parametrize(("lead", "length", "least"), [((), 64, 2), ((), 128, 4), ((3,), 64, 6), ((), 16, 1)])
def test_few_queries_are_enough_blocks_for_threads(lead, length, least):
    (blocks,) = [u.vmax + 1 for u in kernel_of(length, 256, lead).toposort() if u.op is Ops.RANGE and u.arg[0] == 0]
    assert blocks == least


@pytest.mark.parametrize("count", [65, 100, 197])
def test_keys_that_two_blocks_read_count_once(count):
    """Infinite values stay infinite, in the result and in gradients: no block multiplies them by a weight of 0."""
    q, k, v = numbers(4, 70, 16), numbers(4, count, 16), numbers(4, count, 16)
    v[:, ::9, 0] = np.inf
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)).numpy()
    assert (out[..., 0] == np.inf).all()
    grad = numbers(4, 70, 16)
    grad[:, 5, 3] = np.inf
    values = Tensor(v)
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), values)
    (found,) = out.gradient(values, gradient=Tensor(grad))
    assert (found.numpy()[..., 3] == np.inf).all()


def test_scratch_memory_is_no_argument():
    q, k, v = (Tensor.empty(2, 128, 16) for _ in range(3))
    (call,) = q.scaled_dot_product_attention(k, v).schedule_linear().src
    assert get_call_outs_ins(call) == ((0, 1), (2, 3, 4))


@pytest.mark.parametrize("heads", [(), (4,)])
@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_where_scores_are_huge(causal: bool, size: float, heads: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    arrays = [(rng.standard_normal((*heads, 70, 64)) * s).astype(np.float32) for s in (size, size, 1.0)]
    direction = rng.standard_normal((*heads, 70, 64)).astype(np.float32)
    ours = [Tensor(a) for a in arrays]
    theirs = [torch.tensor(a).double().requires_grad_() for a in arrays]
    result = ours[0].scaled_dot_product_attention(ours[1], ours[2], is_causal=causal)
    want = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=causal)
    (want * torch.tensor(direction)).sum().backward()
    for got, leaf in zip((result * Tensor(direction)).sum().gradient(*ours), theirs, strict=True):
        assert leaf.grad is not None
        scale = max(1.0, size) * max(1.0, leaf.grad.abs().max().item())
        np.testing.assert_allclose(got.numpy() / scale, leaf.grad.numpy() / scale, rtol=0, atol=2e-5)


def test_memory_of_gradients_is_linear_in_the_length():
    length = 8192
    q, k, v, direction = (Tensor.empty(1, 8, length, 64) for _ in range(4))
    gradients = (q.scaled_dot_product_attention(k, v, is_causal=True) * direction).sum().gradient(q, k, v)
    calls = gradients[0].schedule_linear(*gradients[1:]).src
    buffers = {u for call in calls for u in call.src[1:]}
    # Arguments, results, what flows in, and some numbers of each row.
    assert sum(u.arg.shape[0] for u in buffers) <= 10 * 8 * length * 64


def gradients_of(arrays, mask, causal):
    """Return the gradients of queries, keys, values and, if it has numbers, of the mask."""
    q, k, v = tensors = [Tensor(x) for x in arrays]
    masks = [] if mask is None else [Tensor(mask)]
    tensors += [m for m in masks if m.dtype != dtypes.bool]
    out = q.scaled_dot_product_attention(k, v, *masks, is_causal=causal)
    direction = Tensor(np.random.default_rng(1).standard_normal(out.shape).astype(out.numpy().dtype))
    return [x.numpy() for x in (out * direction).sum().gradient(*tensors)]


SHAPES = {
    "blocks": [(3, 128, 16), (3, 128, 16), (3, 128, 16)],
    "odd": [(3, 131, 17), (3, 77, 17), (3, 77, 9)],
    "long keys": [(2, 17, 8), (2, 1000, 8), (2, 1000, 8)],
    "broadcast heads": [(2, 3, 100, 8), (3, 90, 8), (2, 1, 90, 8)],
    "one query head": [(1, 100, 8), (4, 90, 8), (4, 90, 8)],
}


KINDS = ["none", "causal", "bool", "row", "column", "added", "hidden rows"]


@pytest.mark.parametrize(
    ("name", "kind", "dtype"),
    [
        *((name, kind, np.float32) for name in ("odd", "broadcast heads") for kind in KINDS),
        *((name, "causal", np.float32) for name in SHAPES),
        *(("odd", kind, np.float64) for kind in ("causal", "added")),
    ],
)
def test_gradients_by_blocks_are_those_by_scores(name, kind, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES[name]]
    size = SHAPES[name][0][-2], SHAPES[name][1][-2]
    mask = {
        "bool": rng.random(size) > 0.3,
        "row": rng.random((1, size[1])) > 0.3,
        "column": rng.standard_normal((size[0], 1)).astype(dtype),
        "added": rng.standard_normal((SHAPES[name][0][0], *size)).astype(dtype) if len(SHAPES[name][0]) == 3 else None,
        "hidden rows": np.broadcast_to(np.arange(size[0])[:, None] % 3 > 0, size).copy(),
    }.get(kind)
    assert prod(SHAPES[name][1][:-2]) >= 2
    blocked = gradients_of(arrays, mask, kind == "causal")
    monkeypatch.setattr(attention_gradient, "_threads", lambda device: 1000)
    whole = gradients_of(arrays, mask, kind == "causal")
    for mine, other in zip(blocked, whole, strict=True):
        tolerance = (1e-12 if dtype is np.float64 else 2e-5) * max(1, abs(other).max())
        np.testing.assert_allclose(mine, other, rtol=0, atol=tolerance)


def test_second_derivatives_by_blocks_of_arguments_that_depend_on_each_other():
    arrays = [numbers(3, 130, 8), numbers(3, 130, 8)]
    ours, theirs = [Tensor(x) for x in arrays], [torch.tensor(x, requires_grad=True) for x in arrays]

    def value(x, y, attend):
        return attend(x, x * y, y + x).sin().sum()

    first = value(*ours, lambda *a: a[0].scaled_dot_product_attention(*a[1:])).gradient(*ours)
    second = sum((g.square().sum() for g in first), Tensor(0.0)).gradient(*ours)
    others = torch.autograd.grad(value(*theirs, F.scaled_dot_product_attention), theirs, create_graph=True)
    for mine, other in zip(second, torch.autograd.grad(sum(g.square().sum() for g in others), theirs), strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-3, atol=2e-3)
