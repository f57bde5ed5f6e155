"""Programs that users tripped over: indexing, assignment, autograd, layers; each with others of its kind."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes, nn
from tinygrad.helpers import GlobalCounters

INF = math.inf
RNG = np.random.default_rng(0)
X = RNG.integers(-9, 9, (5, 6)).astype(np.int32)


def stored(values: Any) -> Tensor:
    return Tensor(values).clone().realize()


# ---- indexing and assignment ---------------------------------------------------------------------------------------

LAST_WRITE_WINS: dict[str, tuple[Any, Any]] = {
    "one place twice": (([0, 0], [0, 0]), [2, 0]),
    "rows twice": (([1, 1, 3, 1],), [[1], [2], [3], [4]]),
    "negative and positive names of one row": (([0, -5, 4, -1],), [[1], [2], [3], [4]]),
    "beside a slice": ((slice(1, None, 2), [2, 2, 0]), [7, 8, 9]),
    "many": (([0] * 50 + [2] * 50, [1] * 100), list(range(100))),
}


@pytest.mark.parametrize("name", LAST_WRITE_WINS)
@pytest.mark.parametrize("as_tensor", [False, True], ids=["lists", "tensors"])
def test_the_last_write_to_one_place_wins(name: str, as_tensor: bool) -> None:
    where, values = LAST_WRITE_WINS[name]
    expected = X.copy()
    expected[where] = np.array(values)
    t = stored(X)
    ours = tuple(Tensor(w) if as_tensor and isinstance(w, list) else w for w in where)
    t[ours] = Tensor(values)
    np.testing.assert_array_equal(t.numpy(), expected)


SEPARATED: dict[str, tuple[tuple[int, ...], Any, tuple[int, ...]]] = {
    "around a slice": ((2, 3, 4), ([0, 1], slice(None), [1, 2]), (2, 3)),
    "around two slices": ((2, 3, 4, 5), ([0, 1], slice(None), slice(1, 3), [1, 2]), (2, 3, 2)),
    "int and list around a slice": ((2, 3, 4), (1, slice(None), [0, 3]), (2, 3)),
    "column of rows": ((4, 3, 4), ([[0], [3]], slice(None), [1, 2]), (2, 2, 3)),
    "side by side": ((3, 4, 4), (slice(None), [0, 1], [1, 2]), (3, 2)),
}


@pytest.mark.parametrize("name", SEPARATED)
def test_assigning_through_separated_indices(name: str) -> None:
    shape, where, part = SEPARATED[name]
    expected = np.zeros(shape, np.float32)
    values = np.arange(np.prod(part)).reshape(part)
    expected[where] = values
    t = Tensor.zeros(*shape).contiguous()
    ours = tuple(Tensor(w) if isinstance(w, list) else w for w in where)
    t[ours] = Tensor(values.astype(np.int32))
    np.testing.assert_array_equal(t.numpy(), expected)
    np.testing.assert_array_equal(t[ours].numpy(), values)


MASKS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x % 2 == 0,
    "rows": lambda x: x[:, 0] > 0,
    "nothing": lambda x: x > 100,
    "everything": lambda x: x > -100,
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_on_both_sides(name: str) -> None:
    mask = MASKS[name]
    np.testing.assert_array_equal(stored(X)[mask(stored(X))].numpy(), X[mask(X)])
    expected, t = X.copy(), stored(X)
    expected[mask(expected)] = 7
    t[mask(t)] = 7
    np.testing.assert_array_equal(t.numpy(), expected)
    expected[mask(X)] = -X[mask(X)]
    t[mask(stored(X))] = -Tensor(X[mask(X)])
    np.testing.assert_array_equal(t.numpy(), expected)


def test_a_mask_of_five() -> None:
    t, mask = stored([1, 2, 3, 4, 5]), Tensor([False, True, True, False, True])
    assert t[mask].tolist() == [2, 3, 5]
    t[mask] = Tensor([7, 8, 9])
    assert t.tolist() == [1, 7, 8, 4, 9]


VIEWS: dict[str, Callable[[Any], Any]] = {
    "every other column": lambda x: x[:, ::2],
    "a row": lambda x: x[1],
    "backwards": lambda x: x[::-1, ::-2],
    "the lower right": lambda x: x[1:, -2:],
    "one place": lambda x: x[1:, 2:3],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("by_item", [False, True], ids=["assign", "item"])
def test_gradients_through_assigned_views(name: str, by_item: bool) -> None:
    view = VIEWS[name]
    start = RNG.normal(size=(2, 5)).astype(np.float32)
    weight = np.arange(10, dtype=np.float32).reshape(2, 5)
    values = RNG.normal(size=view(start).shape).astype(np.float32)
    v, w = torch.tensor(values, requires_grad=True), torch.tensor(start, requires_grad=True)
    places = torch.tensor(view(np.arange(10).reshape(2, 5)).copy())
    flat = (w * 2).reshape(-1).index_put((places.reshape(-1),), (v * 3).reshape(-1))
    (flat.reshape(2, 5) * torch.tensor(weight)).sum().backward()
    ours, base = Tensor(values), Tensor(start)
    t = (base * 2).contiguous()
    if by_item:
        items = {"every other column": np.s_[:, ::2], "a row": 1, "backwards": np.s_[::-1, ::-2],
                 "the lower right": np.s_[1:, -2:], "one place": np.s_[1:, 2:3]}  # fmt: skip
        t[items[name]] = ours * 3
    else:
        view(t).assign(ours * 3)
    (t * Tensor(weight)).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), v.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(base.grad.numpy(), w.grad.numpy(), rtol=1e-6)


def test_gradient_of_every_other_column() -> None:
    t, v = Tensor.zeros(2, 5).contiguous(), Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    t[:, ::2].assign(v * 3)
    (t * Tensor.arange(10).reshape(2, 5)).sum().backward()
    assert v.grad.tolist() == [[0, 6, 12], [15, 21, 27]]


@pytest.mark.parametrize("special", [INF, -INF, math.nan])
def test_special_numbers_stay_where_they_are(special: float) -> None:
    """A lookup by multiplication with a one-hot row would spread them."""
    t = Tensor([special, 1.0, 2.0])
    expected = np.array([1.0, special, 2.0], np.float32)
    order = Tensor([1, 0, 2])
    np.testing.assert_array_equal(t.gather(0, order).numpy(), expected)
    np.testing.assert_array_equal(t[order].numpy(), expected)
    np.testing.assert_array_equal(t[[1, 0, 2]].numpy(), expected)
    rows = nn.Embedding(3, 2)
    rows.weight.assign(Tensor([[special, 0.0], [1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(rows(Tensor([[1, 2]])).numpy(), [[[1, 2], [3, 4]]])
    written = Tensor.zeros(3).contiguous()
    written[Tensor([2])] = Tensor([special])
    np.testing.assert_array_equal(written.numpy(), [0, 0, special])
    np.testing.assert_array_equal(Tensor.zeros(3).scatter(0, Tensor([1]), t[:1]).numpy(), [0, special, 0])


INDEX_SHAPES: dict[str, Any] = {
    "(1, 2)": [[0, 0]],
    "(2,)": [0, 0],
    "(2, 1)": [[0], [0]],
    "(2, 2)": [[0, 1], [1, 0]],
    "()": 0,
}


@pytest.mark.parametrize("name", INDEX_SHAPES)
def test_updates_through_an_index_read_before_they_write(name: str) -> None:
    index = np.array(INDEX_SHAPES[name])
    expected = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    y, i = stored(expected), Tensor(index.astype(np.int32))
    expected[index] = expected[index] + expected[index]
    y[i] = y[i] + y[i]
    np.testing.assert_array_equal(y.numpy(), expected)
    expected[index] *= 3
    y[i] *= 3
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize("rows", [9_000, 72_000])
def test_writing_rows_by_index_is_work_for_each_row_alone(rows: int) -> None:
    t = Tensor.zeros(100_000).contiguous().realize()
    index, values = Tensor.arange(rows).clone().realize(), Tensor.ones(rows).contiguous().realize()
    GlobalCounters.reset()
    t[index] = values
    t.realize()
    assert GlobalCounters.global_ops <= 40 * 100_000
    np.testing.assert_array_equal(t.numpy(), (np.arange(100_000) < rows).astype(np.float32))


# ---- autograd ------------------------------------------------------------------------------------------------------

HIGHER: dict[str, tuple[Callable[[Tensor], Tensor], int, Callable[[float], float]]] = {
    "exp(3x) twice": (lambda x: (x * 3).exp(), 2, lambda x: 9 * math.exp(3 * x)),
    "exp(3x) three times": (lambda x: (x * 3).exp(), 3, lambda x: 27 * math.exp(3 * x)),
    "x**4 three times": (lambda x: x**4, 3, lambda x: 24 * x),
    "sin four times": (lambda x: x.sin(), 4, math.sin),
    "1/x twice": (lambda x: 1 / x, 2, lambda x: 2 / x**3),
    "sigmoid twice": (
        lambda x: x.sigmoid(), 2, lambda x: (lambda s: s * (1 - s) * (1 - 2 * s))(1 / (1 + math.exp(-x)))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HIGHER)
def test_derivatives_of_derivatives(name: str) -> None:
    function, times, expected = HIGHER[name]
    x = Tensor([2.0])
    y = function(x).sum()
    for _ in range(times):
        (y,) = y.gradient(x)
        y = y.sum()
    assert y.item() == pytest.approx(expected(2.0), rel=1e-4)


@pytest.mark.parametrize(
    ("left", "right"), [((4, 0), (0, 4)), ((0, 3), (3, 4)), ((2, 4, 0), (0, 3)), ((3, 4), (4, 0)), ((0, 0), (0, 0))]
)
def test_matmul_over_nothing(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = Tensor.ones(*left).contiguous(), Tensor.ones(*right).contiguous()
    product = a @ b
    expected = np.ones(left) @ np.ones(right)
    product.sum().backward()
    np.testing.assert_array_equal(product.numpy(), expected)
    for t in (a, b):
        assert t.grad.shape == t.shape
        assert not t.grad.numpy().any()


@pytest.mark.parametrize("times", [2, 3])
def test_gradients_add_up_without_zeroing(times: int) -> None:
    x = Tensor([1.0, 2.0])
    loss = (x * x).sum()
    for _ in range(times):
        loss.backward()
    assert x.grad.tolist() == [2.0 * times, 4.0 * times]


def test_gradient_of_an_unrolled_lstm() -> None:
    cell = nn.LSTMCell(32, 32)
    rows = RNG.normal(size=(100, 4, 32)).astype(np.float32)
    theirs = torch.nn.LSTMCell(32, 32)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(theirs, name).data = torch.tensor(getattr(cell, name).numpy())
    state: Any = None
    expected: Any = None
    for row in rows:
        state = cell(Tensor(row), state)
        expected = theirs(torch.tensor(row), expected)
    (state[0] * state[0]).sum().backward()
    (expected[0] * expected[0]).sum().backward()
    np.testing.assert_allclose(cell.weight_hh.grad.numpy(), theirs.weight_hh.grad.numpy(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(cell.bias_ih.grad.numpy(), theirs.bias_ih.grad.numpy(), rtol=1e-3, atol=1e-5)


# ---- layers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 4, 7])
def test_convolution_of_equal_sizes(n: int) -> None:
    """Channels, height and width of one size could be mistaken for each other."""
    x, w = RNG.normal(size=(2, n, n, n)).astype(np.float32), RNG.normal(size=(n, n, 3, 3)).astype(np.float32)
    ours, theirs = (Tensor(x), Tensor(w)), (torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True))
    got = ours[0].conv2d(ours[1], padding=1)
    expected = torch.nn.functional.conv2d(*theirs, padding=1)
    (got * got).sum().backward()
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    (expected * expected).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dilation", [(2, 3), (3, 2), 2, (1, 4)])
@pytest.mark.parametrize("kernel", [3, (2, 5), (4, 1)])
def test_same_padding_with_dilation(dilation: Any, kernel: Any) -> None:
    layer = nn.Conv2d(2, 3, kernel, dilation=dilation, padding="same")
    image = RNG.normal(size=(1, 2, 9, 8)).astype(np.float32)
    weight, bias = torch.tensor(layer.weight.numpy()), torch.tensor(layer.bias.numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = torch.nn.functional.conv2d(torch.tensor(image), weight, bias, dilation=dilation, padding="same")
    np.testing.assert_allclose(layer(Tensor(image)).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [4, 5, 6, 7])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 1), (3, 2, 1), (2, 3, 1), (3, 3, 0), (3, 1, 1)])
def test_pooling_windows_never_start_in_the_padding(size: int, kernel: int, stride: int, padding: int) -> None:
    image = RNG.normal(size=(1, 2, size, size + 1)).astype(np.float32) - 3
    options: dict[str, Any] = {"stride": stride, "padding": padding, "ceil_mode": True}
    for ours, theirs in (
        (Tensor(image).max_pool2d(kernel, **options), torch.nn.functional.max_pool2d),
        (Tensor(image).avg_pool2d(kernel, **options), torch.nn.functional.avg_pool2d),
    ):
        expected = theirs(torch.tensor(image), kernel, **options)
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.int16])
def test_max_pooling_of_integers_pads_with_the_smallest(dtype: Any) -> None:
    low = int(dtype.min)
    image = Tensor([[low, low + 1], [low + 2, low]], dtype=dtype).reshape(1, 1, 2, 2)
    pooled = image.max_pool2d(2, stride=2, padding=1)
    assert pooled.dtype is dtype
    assert pooled.tolist() == [[[[low, low + 1], [low + 2, low]]]]


FORMULAS = ["iij->i", "iij,j->ij", "iij->j", "iij", "iji->ij", "ijj,j", "...ii->...i", "iij,kj->ik"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_einsum_with_repeated_letters(formula: str) -> None:
    shapes = {"iij": (2, 2, 4), "j": (4,), "iji": (2, 4, 2), "ijj": (2, 4, 4), "...ii": (3, 2, 2), "kj": (3, 4)}
    inputs = formula.split("->")[0].split(",")
    arrays = [np.arange(np.prod(shapes[i])).reshape(shapes[i]) for i in inputs]
    np.testing.assert_array_equal(Tensor.einsum(formula, *map(Tensor, arrays)).numpy(), np.einsum(formula, *arrays))


@pytest.mark.parametrize(("left", "right"), [((2, 3), (1, 4)), ((3,), (4,)), ((2, 3), (2,)), ((5, 2, 3), (4, 3, 2))])
def test_matmul_of_other_sizes_raises(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"matmul|dot"):
        Tensor.ones(*left) @ Tensor.ones(*right)


@pytest.mark.parametrize("ignored", [-1, 0, 2, -100])
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_ignored_rows(ignored: int, smoothing: float, reduction: Any) -> None:
    logits, labels = RNG.normal(size=(6, 5)).astype(np.float32), np.array([0, 2, 4, 2, 1, 3])
    labels[[1, 4]] = ignored
    y = torch.tensor(logits, requires_grad=True)
    options: dict[str, Any] = {"ignore_index": ignored, "label_smoothing": smoothing, "reduction": reduction}
    expected = torch.nn.functional.cross_entropy(y, torch.tensor(labels), **options)
    x = Tensor(logits)
    got = x.sparse_categorical_crossentropy(Tensor(labels), **options)
    got.sum().backward()
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    expected.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "added", "all rows"])
def test_attention_rows_without_keys_are_zeros(kind: str) -> None:
    q, k, v = (Tensor(RNG.normal(size=(2, 3, 4)).astype(np.float32)) for _ in range(3))
    kept = np.array([[True, False, True], [False, False, False], [True, True, True]])
    if kind == "all rows":
        kept = np.zeros((3, 3), bool)
    mask = Tensor(kept) if kind != "added" else Tensor(np.where(kept, 0, -np.inf).astype(np.float32))
    out = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    out.sum().backward()
    empty = ~kept.any(1)
    assert not out.numpy()[:, empty].any()
    assert not q.grad.numpy()[:, empty].any()
    for t in (out, q.grad, k.grad, v.grad):
        assert np.isfinite(t.numpy()).all()


def test_layers_that_live_in_a_closure_are_found() -> None:
    inner, table = nn.Linear(2, 3), {"norm": nn.LayerNorm(3)}

    def model(x: Tensor) -> Tensor:
        return table["norm"](inner(x))

    class Holder:
        def __init__(self) -> None:
            self.run = lambda x: inner(x)
            self.layers = [nn.Linear(3, 2), model]

    for owner in (model, Holder(), {"f": model}, [lambda x: model(x)]):
        found = nn.state.get_state_dict(owner)
        assert any(t is inner.weight for t in found.values()), owner
