"""Numbers that users tripped over, one named test for each: identities, NaN, zeros, saturation, long sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes, nn

INF, NAN = math.inf, math.nan


def listed(x: Tensor) -> list[Any]:
    return x.tolist()


def assert_values(result: Tensor, expected: list[float]) -> None:
    """Equal values, NaN at the same places, zeros of the same sign."""
    got = np.asarray(result.numpy(), np.float64)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(np.asarray(expected, np.float64))[got == 0])


def gradient_of(function: Callable[[Tensor], Tensor], values: list[float], dtype: Any = dtypes.float32) -> np.ndarray:
    x = Tensor(values, dtype=dtype)
    function(x).sum().backward()
    return x.grad.float().numpy()


# ---- integers ------------------------------------------------------------------------------------------------------


def test_division_rounds_down() -> None:
    x, y = Tensor([-7, 7, -7, 7, 110]), Tensor([3, -3, -3, 3, 55])
    assert listed(x // y) == [-3, -3, 2, 2, 2]
    assert listed(x % y) == [2, -2, -1, 1, 0]
    assert listed(x.div(y, rounding_mode="trunc")) == [-2, -2, 2, 2, 2]
    assert listed(x.fmod(y)) == [-1, 1, -1, 1, 0]


def test_division_by_zero_and_overflow_do_not_stop_the_process() -> None:
    smallest = -(2**31)
    x, y = Tensor([7, -7, 0, smallest]), Tensor([0, 0, 0, -1])
    assert listed(x // y) == [0, 0, 0, smallest]
    assert listed(x % y) == [7, -7, 0, 0]
    assert listed(x // 0) == [0, 0, 0, 0]
    assert listed(x / 0) == [INF, -INF, pytest.approx(NAN, nan_ok=True), -INF]


def test_minimum_of_unsigned_and_of_the_smallest_integer() -> None:
    assert Tensor([3, 0, 200], dtype=dtypes.uint8).min().item() == 0
    assert Tensor([5, -(2**31), 7]).argmin().item() == 1
    assert Tensor([5, -(2**31), 7]).min().item() == -(2**31)
    assert Tensor([-(2**63), 3]).min().item() == -(2**63)
    assert Tensor([2**64 - 1, 3]).min().item() == 3


def test_narrowing_wraps() -> None:
    assert (Tensor.arange(256).cast(dtypes.int8) < 0).sum().item() == 128
    assert listed(Tensor([300, -1, 128]).cast(dtypes.int8)) == [44, -1, -128]
    assert Tensor(300).cast(dtypes.uint8).item() == 44
    assert (Tensor([100], dtype=dtypes.int8) + Tensor([100], dtype=dtypes.int8)).item() == -56


def test_integers_beyond_32_bits() -> None:
    assert Tensor([2**40]).item() == 2**40
    assert (Tensor([1], dtype=dtypes.uint32) << 31).item() == 2**31
    assert Tensor([2**53 + 1]).item() == 2**53 + 1
    assert (Tensor([2**62 + 1]) - Tensor([2**62])).item() == 1
    with pytest.raises(OverflowError):
        Tensor([2**64])


def test_int64_with_uint64_is_float64() -> None:
    mixed = Tensor([-1], dtype=dtypes.int64) + Tensor([2**63], dtype=dtypes.uint64)
    assert mixed.dtype is dtypes.float64
    assert mixed.item() == 2.0**63


def test_remainders_of_floats() -> None:
    x, y = (
        Tensor([5.5, -5.5, 5.5, -5.5, 1.0, -1.0, 5.0, INF, 1.0]),
        Tensor([2.0, 2.0, -2.0, -2.0, INF, INF, -INF, 3.0, 0.0]),
    )
    assert_values(x % y, [1.5, 0.5, -0.5, -1.5, 1.0, INF, -INF, NAN, NAN])
    assert_values(x.fmod(y), [1.5, -1.5, 1.5, -1.5, 1.0, -1.0, 5.0, NAN, NAN])


# ---- NaN -----------------------------------------------------------------------------------------------------------


def test_float_identities_are_not_folded() -> None:
    x = Tensor([INF, NAN, 1.0]).realize()
    assert_values(x * 0, [NAN, NAN, 0.0])
    assert_values(x - x, [NAN, NAN, 0.0])
    assert_values(x / x, [NAN, NAN, 1.0])
    assert_values(0 / Tensor([0.0, 1.0, NAN]), [NAN, 0.0, NAN])
    zero = Tensor([-0.0, 0.0]).realize()
    assert_values(zero + 0, [0.0, 0.0])
    assert_values(zero + -0.0, [-0.0, 0.0])
    assert_values(zero - 0.0, [-0.0, 0.0])
    assert_values(zero * 1, [-0.0, 0.0])
    assert_values(zero * -1, [0.0, -0.0])
    assert_values(zero / 1, [-0.0, 0.0])
    computed = Tensor([INF, 0.0]).exp2().realize()
    assert_values(computed - computed, [NAN, 0.0])


def test_nan_in_maximum_and_comparisons() -> None:
    one, nan = Tensor([1.0]), Tensor([NAN])
    assert_values(one.maximum(nan).cat(nan.maximum(one), one.minimum(nan), nan.minimum(one)), [NAN] * 4)
    both = [(one, nan), (nan, one), (nan, nan)]
    for x, y in both:
        assert [listed(c) for c in (x < y, x <= y, x > y, x >= y, x == y, x != y)] == [[False]] * 5 + [[True]]
    assert listed(nan >= 1) == listed(nan <= 1) == [False]
    assert_values(nan.relu().cat(nan.relu6(), nan.clamp(0, 1), nan.hardtanh(), nan.sign(), nan.abs()), [NAN] * 6)


def test_nan_in_reductions_and_order() -> None:
    x = Tensor([3, NAN, 1, 5.0])
    assert x.argmax().item() == x.argmin().item() == 1
    assert_values(Tensor.stack(x.max(), x.min(), x.sum(), x.mean()), [NAN] * 4)
    assert Tensor([1.0, NAN, NAN]).argmax().item() == 1
    assert_values(Tensor([2, NAN, 1.0]).sort()[0], [1, 2, NAN])
    assert_values(Tensor([2, NAN, 1.0]).sort(descending=True)[0], [NAN, 2, 1])
    assert listed(Tensor([2, NAN, 1.0]).argsort()) == [2, 0, 1]
    assert_values(Tensor([1, 3, NAN, 5, 4.0]).cummax(0)[0], [1, 3, NAN, NAN, NAN])
    assert_values(Tensor([1, 3, NAN, 5, 4.0]).cummin(0)[0], [1, 1, NAN, NAN, NAN])
    assert_values(Tensor([1, NAN, 4.0, 2.0]).topk(2)[0], [NAN, 4])


# ---- zeros and rounding --------------------------------------------------------------------------------------------


def test_negative_zero() -> None:
    assert Tensor(1.0).copysign(Tensor(-0.0)).item() == -1
    assert Tensor([1.0]).copysign(-0.0).item() == -1
    assert (1 / Tensor(-0.0)).item() == -INF
    assert (1 / Tensor([-0.0])).item() == -INF
    assert_values(Tensor([-0.0, 0.0]).trunc(), [-0.0, 0.0])
    assert_values(Tensor([-0.3, 0.3]).ceil(), [-0.0, 1.0])
    assert_values(Tensor([-0.0, -0.4]).floor(), [-0.0, -1.0])
    assert_values(Tensor.stack(Tensor(-0.0), Tensor(0.0)), [-0.0, 0.0])
    assert_values(Tensor.full((2,), -0.0), [-0.0, -0.0])
    assert_values(Tensor([-0.0, -3.0]).max(keepdim=True), [-0.0])


def test_round_half_to_even() -> None:
    assert_values(Tensor([0.5, 1.5, 2.5, -0.5, -1.5, 8388609.0]).round(), [0, 2, 2, -0.0, -2, 8388609])
    assert Tensor([1e12]).trunc().item() == np.float32(1e12)
    assert_values(Tensor([INF, -INF, NAN]).round(), [INF, -INF, NAN])


def test_products_are_rounded_before_they_are_added() -> None:
    x = Tensor(np.random.default_rng(0).normal(size=1000).astype(np.float32)).realize()
    assert not (x * x - x.contiguous() * x).numpy().any()
    exact = x.numpy().astype(np.float32)
    np.testing.assert_array_equal((x * 3 + x).numpy(), exact * np.float32(3) + exact)


# ---- functions -----------------------------------------------------------------------------------------------------


def test_trigonometry_of_large_and_small_numbers() -> None:
    cosines = Tensor([1e6, 1e7]).cos().numpy()
    np.testing.assert_allclose(cosines, [0.93675, -0.90727], atol=1e-5)
    assert Tensor([1e8]).tan().item() == pytest.approx(-2.5638, abs=1e-4)
    assert Tensor([-5000.0]).asinh().item() == pytest.approx(-9.2103, abs=1e-4)
    small = np.array([1e-4, -1e-8, 1e-30], np.float32)
    for name in ("atan", "tanh", "sinh", "asinh", "sin", "tan", "asin", "atanh", "expm1", "log1p"):
        np.testing.assert_allclose(getattr(Tensor(small), name)().numpy(), small, rtol=1e-4, err_msg=name)
    assert Tensor([1e300, 1e22], dtype=dtypes.float64).sin().tolist() == pytest.approx(
        [math.sin(1e300), math.sin(1e22)], rel=1e-15
    )


def test_softplus_far_out() -> None:
    assert Tensor([-20.0]).softplus().item() == pytest.approx(2.0611537e-09, rel=1e-6)
    assert listed(Tensor([-300.0, 300.0, INF, -INF]).softplus()) == [0, 300, INF, 0]


@pytest.mark.parametrize("beta", [1.0, 3.0, 0.01, -2.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "half", "bfloat16"])
def test_softplus_where_its_argument_overflows(beta: float, dtype: str) -> None:
    largest = {"float32": 3e38, "float64": 1e308, "half": 65504.0, "bfloat16": 3e38}[dtype]
    x = Tensor([largest, -largest, 0.0], dtype=dtype)
    expected = [x[0].item(), 0.0] if beta > 0 else [0.0, x[1].item()]
    assert listed(x.softplus(beta)[:2]) == expected
    assert x.softplus(beta)[2].item() == pytest.approx(math.log(2) / beta, rel=1e-2)


def test_logsumexp_of_infinities() -> None:
    assert Tensor([-INF, -INF]).logsumexp().item() == -INF
    assert Tensor([INF, 1.0]).logsumexp().item() == INF
    assert Tensor([-INF, 1.0]).logsumexp().item() == 1
    assert Tensor([1000.0, 1000.0]).logsumexp().item() == pytest.approx(1000 + math.log(2))
    assert gradient_of(lambda x: x.logsumexp(), [-INF, 1.0]).tolist() == [0, 1]
    assert gradient_of(lambda x: x.logsumexp(), [300.0, -300.0]).tolist() == [1, 0]
    assert np.isfinite(gradient_of(lambda x: x.logsumexp(), [-INF, -INF])).all()


def test_logaddexp_of_infinities() -> None:
    x = Tensor([-INF, INF, -INF, 300.0, -300.0])
    assert_values(x.logaddexp(Tensor([-INF, INF, 1.0, -300.0, -INF])), [-INF, INF, 1, 300, -300])
    slopes = gradient_of(lambda x: x.logaddexp(Tensor([1.0, 1.0, 300.0])), [300.0, -300.0, 300.0])
    assert slopes.tolist() == [1, 0, 0.5]


@pytest.mark.parametrize(("name", "slope"), [("elu", 1.0), ("celu", 1.0), ("selu", 1.0507), ("softplus", 1.0)])
def test_gradients_at_saturation(name: str, slope: float) -> None:
    far = gradient_of(lambda x: getattr(x, name)(), [100.0, 300.0, INF, -300.0, -INF])
    np.testing.assert_allclose(far, [slope, slope, slope, 0, 0], rtol=1e-6)


SLOPES_THAT_VANISH = {
    "elu": (lambda x: x.elu(2.0), lambda x: torch.nn.functional.elu(x, 2.0)),
    "celu": (lambda x: x.celu(0.5), lambda x: torch.nn.functional.celu(x, 0.5)),
    "celu, wide": (lambda x: x.celu(2.0), lambda x: torch.nn.functional.celu(x, 2.0)),
    "selu": (lambda x: x.selu(1.6732632423543772, 1.0507009873554805), torch.nn.functional.selu),
    "expm1": (lambda x: x.expm1(), lambda x: x.exp()),  # its own slope is that of exp
    "softplus": (lambda x: x.softplus(3.0), lambda x: torch.nn.functional.softplus(x, 3.0)),
    "exp": (lambda x: x.exp(), torch.exp),
}


@pytest.mark.parametrize("name", SLOPES_THAT_VANISH)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_keep_their_digits_where_they_vanish(name: str, dtype: str) -> None:
    # To the right of 0 and far to the left of it: nothing may be left over from 1 - 1.
    ours, theirs = SLOPES_THAT_VANISH[name]
    values = [-0.1, -1.0, -6.0, -20.0, -27.5, 0.5]
    x, y = Tensor(values, dtype=dtype), torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=True)
    theirs(y).sum().backward()
    found = ours(x).sum().gradient(x)[0].numpy()
    np.testing.assert_allclose(found, y.grad.numpy(), rtol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("name", ["relu6", "hardswish", "hardtanh", "hardsigmoid", "relu", "leaky_relu"])
def test_gradients_at_corners_as_torch(name: str) -> None:
    corners = [-3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 6.0, 7.0, -7.0]
    y = torch.tensor(corners, requires_grad=True)
    getattr(torch.nn.functional, name)(y).sum().backward()
    np.testing.assert_allclose(gradient_of(lambda x: getattr(x, name)(), corners), y.grad.numpy(), rtol=1e-6)


# ---- reductions ----------------------------------------------------------------------------------------------------


def test_broadcast_product_reduced() -> None:
    x = Tensor.ones(3, 4, 6, 1, 1, 1, 1, 1) * Tensor.ones(3, 4, 6, 3, 3, 3, 3, 3)
    assert x.sum(axis=2).log().sum().item() == pytest.approx(5224.77, abs=0.01)
    stored = Tensor.ones(3, 4, 6, 1, 1, 1, 1, 1).contiguous() * Tensor.ones(3, 4, 6, 3, 3, 3, 3, 3).contiguous()
    assert stored.sum(axis=2).log().sum().item() == pytest.approx(5224.77, abs=0.01)


def relative(result: Tensor, exact: Any) -> float:
    return float(np.max(np.abs(result.double().numpy() - exact) / np.abs(exact)))


def test_long_sums_have_the_error_of_pairwise_ones() -> None:
    """2**24 numbers: one running sum would be off by a part in a thousand."""
    values = np.random.default_rng(1).random(1 << 24, np.float32)
    x, exact = Tensor(values).realize(), values.astype(np.float64)
    total, mean, variance, norm = x.sum(), x.mean(), x.var(), x.logsumexp()
    Tensor.realize(total, mean, variance, norm)
    assert relative(total, exact.sum()) < 2e-7
    assert relative(mean, exact.mean()) < 2e-7
    assert relative(variance, exact.var(ddof=1)) < 1e-6
    assert relative(norm, np.log(np.exp(exact).sum())) < 2e-7
    share = x.softmax().sum()
    assert abs(share.item() - 1) < 1e-6
    columns = values.reshape(-1, 64)
    assert relative(Tensor(columns).sum(0), columns.astype(np.float64).sum(0)) < 5e-7
    factors = np.exp(np.random.default_rng(2).normal(size=1 << 20) / 300).astype(np.float32)
    # Every order of a product rounds as often as there are factors.
    assert relative(Tensor(factors).prod(), np.prod(factors.astype(np.float64))) < 1e-4


def test_variance_far_from_zero() -> None:
    values = (np.random.default_rng(3).random(100_000) + 1000).astype(np.float32)
    assert relative(Tensor(values).var(), values.astype(np.float64).var(ddof=1)) < 1e-5


def test_standard_deviation_of_equal_numbers() -> None:
    assert Tensor([3.0, 3.0, 3.0]).std().item() == 0
    assert gradient_of(lambda x: x.std(), [3.0, 3.0, 3.0]).tolist() == [0, 0, 0]
    assert gradient_of(lambda x: x.std(), [1.0, 3.0]).tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])


def test_long_sums_of_halfs() -> None:
    """70,000 tens are more than a half can hold, and their running sum would stop growing at 2**15."""
    for dtype in (dtypes.half, dtypes.bfloat16):
        x = Tensor.full((70_000,), 10, dtype=dtype).contiguous().realize()
        assert x.mean().item() == 10
        assert x.sum(dtype=dtypes.float32).item() == 700_000
        assert x.std().item() == 0
        assert (x * 0 + 1).sum(dtype=dtypes.float32).item() == 70_000
    rows = np.random.default_rng(4).random((4, 50_000)).astype(np.float16)
    product = Tensor(rows) @ Tensor(rows).T
    assert relative(product, rows.astype(np.float64) @ rows.astype(np.float64).T) < 2**-11


def test_maximum_of_equal_halfs_shares_its_gradient() -> None:
    shares = gradient_of(lambda x: x.max(), [1.0] * 70_000, dtypes.half)
    assert shares.astype(np.float64).sum() == pytest.approx(1, abs=0.01)
    assert gradient_of(lambda x: x.max(), [1.0, 3.0, 3.0]).tolist() == [0, 0.5, 0.5]


def test_scalars_of_narrow_dtypes() -> None:
    for dtype in (dtypes.half, dtypes.bfloat16, *dtypes.fp8s):
        assert Tensor([1.5], dtype=dtype).item() == 1.5
        assert Tensor(1.5, dtype=dtype).item() == 1.5
        assert listed(Tensor([1.5, -2.0], dtype=dtype)) == [1.5, -2.0]


def test_matmul_is_as_exact_as_numpy() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.random((64, 4096)).astype(np.float32), rng.random((4096, 64)).astype(np.float32)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    error = np.abs((Tensor(x) @ Tensor(y)).numpy() - exact).max()
    assert error <= 3 * np.abs(x @ y - exact).max()


def test_running_sums() -> None:
    values = np.random.default_rng(6).random(1 << 18).astype(np.float32)
    assert relative(Tensor(values).cumsum(), np.cumsum(values.astype(np.float64))) < 2e-6


# ---- losses and attention ------------------------------------------------------------------------------------------


def test_fully_masked_attention_row() -> None:
    rng = np.random.default_rng(7)
    q, k, v = (Tensor(rng.normal(size=(1, 3, 4)).astype(np.float32)) for _ in range(3))
    mask = Tensor([[True, False, True], [False, False, False], [True, True, True]])
    out = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    out.sum().backward()
    assert out.numpy()[0, 1].tolist() == [0] * 4
    assert q.grad.numpy()[0, 1].tolist() == [0] * 4
    for tensor in (out, q.grad, k.grad, v.grad):
        assert np.isfinite(tensor.numpy()).all()


def test_cross_entropy_ignores_rows_with_label_smoothing() -> None:
    rng = np.random.default_rng(8)
    logits, labels = rng.normal(size=(6, 5)).astype(np.float32), np.array([0, -1, 4, 2, -1, 3])
    y = torch.tensor(logits, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(y, torch.tensor(labels), ignore_index=-1, label_smoothing=0.2)
    loss.backward()
    x = Tensor(logits)
    ours = x.sparse_categorical_crossentropy(Tensor(labels), ignore_index=-1, label_smoothing=0.2)
    ours.backward()
    assert ours.item() == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_einsum_like_numpy() -> None:
    x = np.arange(16).reshape(2, 2, 4)
    assert listed(Tensor.einsum("iij->i", Tensor(x))) == [6, 54]
    y = np.arange(4)
    for formula, operands in (("iij,j->ij", (x, y)), ("...j,j", (x, y)), ("ijk,lk", (x, x[0])), ("iij", (x,))):
        got = Tensor.einsum(formula, *(Tensor(o) for o in operands)).numpy()
        np.testing.assert_array_equal(got, np.einsum(formula, *operands), err_msg=formula)


def test_interpolate_to_one_and_same_padding_with_dilation() -> None:
    rng = np.random.default_rng(9)
    image = rng.normal(size=(1, 2, 5, 6)).astype(np.float32)
    got = Tensor(image).interpolate((1, 1), align_corners=True).numpy()
    expected = torch.nn.functional.interpolate(torch.tensor(image), size=(1, 1), mode="bilinear", align_corners=True)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-6)
    layer = nn.Conv2d(2, 3, 3, dilation=(2, 3), padding="same", bias=False)
    weight = torch.tensor(layer.weight.numpy())
    expected = torch.nn.functional.conv2d(torch.tensor(image), weight, dilation=(2, 3), padding="same")
    np.testing.assert_allclose(layer(Tensor(image)).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
