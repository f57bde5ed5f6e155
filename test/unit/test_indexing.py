"""Indexing against numpy: reading, writing, masks, views, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.helpers_timing import processor_seconds
from tinygrad import Context, Tensor, dtypes

I1, I2, I3 = np.array([0, 2, 1, -1, 2]), np.array([[0], [1]]), np.array([1, 0])
S = slice

# (shape, index items)
READS: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    ((5, 6), (2,)), ((5, 6), (-1, -2)), ((5, 6), (S(1, 4),)), ((5, 6), (S(None, None, 2), S(None, None, -1))),
    ((5, 6), (S(4, 0, -2), S(5, 1, -3))), ((5, 6), (S(None, None, 3), None, -1)), ((5, 6), (..., None, 0)),
    ((5, 6, 3), (1, ..., S(2))), ((7,), (S(1, None, 3),)), ((7,), (S(6, None, -4),)), ((7,), (S(3, 3),)),
    ((7,), (S(5, 2),)), ((7,), (S(-3, 100),)), ((4, 0), (S(None),)), ((), (None, ...)),
    ((3, 6), (I1,)), ((5, 6), (S(None), I1)), ((3, 3, 4), (I1, I1)), ((3, 4, 3), (I1, S(None), I1)),
    ((2, 3, 4, 2), (S(None), I1[:2], S(None), I3)), ((3, 4, 3), (0, S(None), I1)), ((3, 4, 3), (S(None), 0, I1)),
    ((3, 4, 3), (I1, 0)), ((3, 4, 5), (I2, I3)), ((3, 4, 5), (None, I2, None, I3)),
    ((3, 4, 5), (S(1, None), I3, None, S(None, None, -2))), ((30, 4), (np.arange(25) % 7,)), ((30, 4), (np.array(3),)),
    ((4, 5, 6), (I3, S(None, None, 2), np.array([4, 5]))), ((30, 40), (np.arange(25) % 7, np.arange(25) % 3 + I2)),
    ((4, 5), (np.zeros((0,), int),)), ((4, 5, 6), ([0, 2], [1, 1])), ((4, 5, 6), ([0, 3, 1, 1],)),
    ((40,), ([(i * 7) % 40 for i in range(40)],)), ((50,), ([5, 3, 49, 1, 0, 7, 7, 2] * 4,)),
]  # fmt: skip


def ours(items: tuple[Any, ...]) -> Any:
    """Return index items with arrays as tensors; a single item stands alone, as in x[i]."""
    made = tuple(Tensor(i) if isinstance(i, np.ndarray) and i.ndim else i for i in items)
    return made if len(made) != 1 else made[0]


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("shape", "items"), READS, ids=str)
def test_read_and_gradient(shape: tuple[int, ...], items: tuple[Any, ...]) -> None:
    data = numbers(shape)
    x = Tensor(data)
    expected = data[items]
    result = x[ours(items)]
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.numpy(), expected)
    if not expected.size or x.device is None:
        return
    weight = numbers(expected.shape, 1)
    (x[ours(items)] * Tensor(weight)).sum().backward()
    gradient = np.zeros_like(data)
    np.add.at(gradient, items, weight)
    np.testing.assert_allclose(x.grad.numpy(), gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["storage", "computed", "view"])
@pytest.mark.parametrize(("shape", "items"), READS[::2], ids=str)
def test_write_and_gradient(shape: tuple[int, ...], items: tuple[Any, ...], kind: str) -> None:
    data = numbers(shape)
    value = numbers(data[items].shape, 1)
    base, leaf = None, None
    if kind == "storage":
        x = Tensor(data).clone()
    elif kind == "computed":
        leaf = Tensor(data)
        x = leaf * 1.0
    else:
        base = Tensor(np.stack([data, data + 1]).swapaxes(0, -1).copy())
        x = base.transpose(0, -1)[0]
    v = Tensor(value)
    x[ours(items)] = v
    data_after = data.copy()
    data_after[items] = value
    weight = numbers(shape, 2)
    wanted = [v] if leaf is None else [v, leaf]
    gradients = (x * Tensor(weight)).sum().gradient(*wanted)
    np.testing.assert_array_equal(x.numpy(), data_after)
    if base is not None:
        np.testing.assert_array_equal(base.transpose(0, -1).numpy(), np.stack([data_after, data + 1]))
    writer = np.full(shape, -1)
    writer[items] = np.arange(value.size).reshape(value.shape)
    expected = np.zeros(value.size, np.float32)
    expected[writer[writer >= 0]] = weight[writer >= 0]
    np.testing.assert_allclose(gradients[0].numpy(), expected.reshape(value.shape))
    if leaf is not None:
        np.testing.assert_allclose(gradients[1].numpy(), np.where(writer >= 0, 0, weight))


def random_case(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 4)))
    length, advanced, items = int(rng.integers(1, 4)), rng.random() < 0.6, []
    for n in shape:
        kind = rng.random()
        if rng.random() < 0.15:
            items.append(None)
        if kind < 0.2:
            items.append(int(rng.integers(-n, n)))
        elif kind < 0.5 or not advanced:
            start, stop = (None if rng.random() < 0.4 else int(rng.integers(-n - 1, n + 2)) for _ in range(2))
            items.append(slice(start, stop, int(rng.integers(1, 4)) * int(rng.choice([1, -1]))))
        else:
            size = [(length,), (1,), (2, length), (2, 1)][int(rng.integers(0, 4))]
            items.append(rng.integers(-n, n, size=size))
    return shape, tuple(items)


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions(seed: int) -> None:
    shape, items = random_case(np.random.default_rng(seed))
    test_read_and_gradient(shape, items)
    test_write_and_gradient(shape, items, ["storage", "computed", "view"][seed % 3])


@pytest.mark.parametrize(
    ("items", "error", "match"),
    [((5,), IndexError, "index 5 is out of bounds for dim 0 of size 3"), ((0, 0, 0), IndexError, "too many indices"),
     ((..., ...), IndexError, "single ellipsis"), ((1.5,), IndexError, "type float"), (("a",), IndexError, "type str"),
     (([9],), IndexError, "index 9 is out of bounds"), ((S(None, None, 0),), ValueError, "zero"),
     ((S("a", None),), TypeError, "slice"), ((True,), RuntimeError, "bool"),
     ((np.array([0, 1]), np.array([0, 1, 2])), IndexError, "do not broadcast"),
     ((np.array([0.5]),), IndexError, "integer or bool"), ((np.array([True, False]),), IndexError, "mask of shape")],
    ids=str,
)  # fmt: skip
def test_errors(items: tuple[Any, ...], error: type[Exception], match: str) -> None:
    x = Tensor.zeros(3, 4)
    with pytest.raises(error, match=match):
        x[ours(items)]


def test_index_tensor_out_of_bounds_reads_zero_and_writes_nothing() -> None:
    x = Tensor([1.0, 2.0, 3.0]).clone()
    assert x[Tensor([0, 3, -1, -4])].tolist() == [1.0, 0.0, 3.0, 0.0]
    x[Tensor([1, 7])] = Tensor([5.0, 6.0])
    assert x.tolist() == [1.0, 5.0, 3.0]


def test_check_bounds_names_the_position() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    with Context(CHECK_BOUNDS=1):
        assert x[Tensor([1, -2])].tolist() == [[3.0, 4.0], [1.0, 2.0]]
        with pytest.raises(IndexError, match=r"index 7 at position \(2,\) is out of bounds for a dim of size 2"):
            x[Tensor([0, 1, 7])]
        with pytest.raises(IndexError, match=r"index -1 at position \(0, 1\)"):
            x.gather(1, Tensor([[0, -1]]))
        with pytest.raises(IndexError, match="out of bounds"):
            x[Tensor([2])] = 0.0


def test_index_dtypes() -> None:
    x = Tensor([1, 2, 3])
    for dtype in (dtypes.uint8, dtypes.int8, dtypes.uint32, dtypes.int64):
        assert x[Tensor([2, 0], dtype=dtype)].tolist() == [3, 1]
    assert x[np.int64(1)].item() == 2
    assert x[np.array([1, 2])].tolist() == [2, 3]
    assert Tensor([True, False, True])[Tensor([2, 1])].tolist() == [True, False]


# ---- masks ---------------------------------------------------------------------------------------------------------


def test_masks_read() -> None:
    data = numbers((4, 3))
    x, mask = Tensor(data), data > 0
    np.testing.assert_array_equal(x[Tensor(mask)].numpy(), data[mask])
    rows = np.array([True, False, True, True])
    np.testing.assert_array_equal(x[Tensor(rows)].numpy(), data[rows])
    np.testing.assert_array_equal(x[Tensor(rows), 1].numpy(), data[rows, 1])
    np.testing.assert_array_equal(x[[False, True, False, True]].numpy(), data[[1, 3]])
    np.testing.assert_array_equal(x[:, Tensor(rows[:3])].numpy(), data[:, rows[:3]])
    assert Tensor([1, 2, 3])[Tensor([False, False, False])].shape == (0,)
    assert Tensor([1, 2, 3, 4, 5])[Tensor([False, True, True, False, True])].tolist() == [2, 3, 5]


def test_masks_write() -> None:
    x = Tensor([1, 2, 3, 4, 5])
    mask = Tensor([False, True, True, False, True])
    x[mask] = 0
    assert x.tolist() == [1, 0, 0, 4, 0]
    x[mask] = Tensor([7, 8, 9])
    assert x.tolist() == [1, 7, 8, 4, 9]
    y = Tensor(numbers((2, 3)))
    y[Tensor([False, True])] = Tensor([1.0, 2.0, 3.0])
    assert y[1].tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="does not broadcast"):
        x[mask] = Tensor([1, 2])


def test_masked_select_and_nonzero() -> None:
    data = numbers((5, 7))
    mask = data > 0
    x = Tensor(data)
    np.testing.assert_array_equal(x.masked_select(x > 0).numpy(), data[mask])
    np.testing.assert_array_equal(x.masked_select(x > 0, size=4).numpy(), data[mask][:4])
    padded = x.masked_select(x > 0, size=40, fill_value=9).numpy()
    np.testing.assert_array_equal(padded, np.concatenate([data[mask], np.full(40 - mask.sum(), 9, np.float32)]))
    np.testing.assert_array_equal((x > 0).nonzero().numpy(), np.argwhere(mask))
    assert Tensor([0, 3, 0, 4]).nonzero(size=3, fill_value=-1).tolist() == [[1], [3], [-1]]
    with pytest.raises(RuntimeError, match="mask is"):
        x.masked_select(x)
    x.masked_select(Tensor(mask), size=int(mask.sum())).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), mask)


def test_one_hot() -> None:
    assert Tensor([1, 0, 5]).one_hot(3).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    with pytest.raises(RuntimeError, match="integers"):
        Tensor([1.0]).one_hot(3)
    with pytest.raises(ValueError, match="negative"):
        Tensor([1]).one_hot(-1)


# ---- writing -------------------------------------------------------------------------------------------------------


def test_last_write_wins() -> None:
    a = Tensor([[1, 2], [3, 4]])
    a[[0, 0], [0, 0]] = Tensor([2, 0])
    assert a.tolist() == [[0, 2], [3, 4]]


def test_separated_index_arrays() -> None:
    t = Tensor.zeros(2, 3, 4).contiguous()
    t[Tensor([0, 1]), :, Tensor([1, 2])] = Tensor.arange(6).reshape(2, 3)
    assert t[0, :, 1].tolist() == [0.0, 1.0, 2.0]
    assert t[1, :, 2].tolist() == [3.0, 4.0, 5.0]


def test_write_that_reads_its_own_rows() -> None:
    y, i = Tensor([[1.0, 2.0]]), Tensor([[0, 0]])
    y[i] = y[i] + y[i]
    assert y.tolist() == [[2.0, 4.0]]


def test_value_forms() -> None:
    t = Tensor.zeros(2, 3)
    t[0] = [1, 2, 3]
    t[1, :2] = np.array([4.0, 5.0])
    t[:, 2] = 7
    assert t.tolist() == [[1.0, 2.0, 7.0], [4.0, 5.0, 7.0]]
    t[:] = t * 2
    assert t.tolist() == [[2.0, 4.0, 14.0], [8.0, 10.0, 14.0]]
    t[::-1] = t + 0
    assert t.tolist() == [[8.0, 10.0, 14.0], [2.0, 4.0, 14.0]]
    t[0] += 1
    assert t[0].tolist() == [9.0, 11.0, 15.0]


def test_views_see_writes_and_write_through() -> None:
    t = Tensor.zeros(3, 4).realize()
    column, turned = t[:, 1], t.transpose()
    column[Tensor([0, 2])] = Tensor([5.0, 6.0])
    turned[0, 0] = 9
    assert t.tolist() == [[9.0, 5.0, 0.0, 0.0], [0.0] * 4, [0.0, 6.0, 0.0, 0.0]]


def test_refusals() -> None:
    t = Tensor.zeros(3).realize()
    other = t + 1
    with pytest.raises(RuntimeError, match="can't setitem on a tensor with other uses"):
        t[0] = 5
    other.realize()
    t[0] = 5
    assert (t.tolist(), other.tolist()) == ([5.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    with pytest.raises(RuntimeError, match="setitem dtype mismatch"):
        Tensor.zeros(3, dtype=dtypes.int32).realize()[0] = Tensor([1.5])
    with pytest.raises(ValueError, match="does not broadcast"):
        t[:2] = Tensor([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="weak dtype"):
        Tensor(1)[...] = 2
    with pytest.raises(IndexError, match="out of bounds"):
        t[3] = 1
    with pytest.raises(TypeError, match="immutable"):
        t.uop[0] = 1


def test_strided_assign_has_gradient() -> None:
    v = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    t = Tensor.zeros(2, 5).contiguous()
    t[:, ::2].assign(v * 3)
    (t * Tensor.arange(10).reshape(2, 5)).sum().backward()
    assert v.grad.tolist() == [[0.0, 6.0, 12.0], [15.0, 21.0, 27.0]]


# ---- cost ----------------------------------------------------------------------------------------------------------


def test_linear_in_rows() -> None:
    n = 400_000
    t, index, ones = Tensor.zeros(n + 9).realize(), Tensor.arange(n).clone().realize(), Tensor.ones(n).realize()

    def run() -> None:
        t[index] = ones
        assert t.numpy().sum() == n

    assert processor_seconds(run) < 5.0  # comparing all pairs would take minutes


def test_embedding_gradient_is_linear_in_rows() -> None:
    table = Tensor(numbers((20_000, 16)))
    index = np.random.default_rng(0).integers(0, 20_000, 512)

    def run() -> None:
        (table[Tensor(index)] * 2).sum().backward()
        table.grad.realize()

    assert processor_seconds(run) < 5.0
    expected = np.zeros((20_000, 16), np.float32)
    np.add.at(expected, index, 2)
    np.testing.assert_array_equal(table.grad.numpy(), expected)


def test_masked_select_of_a_range() -> None:
    x = Tensor.arange(500_000)
    picked = x.masked_select(x % 3 == 0).numpy()
    np.testing.assert_array_equal(picked, np.arange(0, 500_000, 3))


def test_masks_and_indices_made_of_what_is_written() -> None:
    data = np.array([[3.0, 1.0, 4.0], [1.0, -5.0, 9.0]], np.float32)

    def write(x: Any) -> None:
        x[x > 2] *= 3
        x[x < 2] = x[x < 2] + 1
        x[x[:, 0] > 5] -= 1
        mask = x > 10
        x[mask] += x[mask]
        x[x > 1000] += 1  # selects nothing

    x = Tensor(data).clone().realize()
    write(x)
    expected = data.copy()
    write(expected)
    np.testing.assert_array_equal(x.numpy(), expected)


SCALAR_MASK_INDICES: list[Callable[[Any], Any]] = [
    lambda m: m,
    lambda m: (0, m),
    lambda m: (slice(None), m),
    lambda m: (..., m, 1),
    lambda m: (None, m, slice(1, 2), slice(3)),
    lambda m: (m, ..., 2),
    lambda m: (m, [1], m),
    lambda m: (1, 2, 3, m),
]


@pytest.mark.parametrize("index", SCALAR_MASK_INDICES)
@pytest.mark.parametrize("mask", [Tensor, np.array, np.bool_])
@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("stored", [True, False])
def test_masks_of_no_dims_as_numpy(index: Callable[[Any], Any], mask: Any, value: bool, stored: bool) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    t = Tensor(array).clone().realize() if stored else Tensor(array) + 0
    theirs, mine = index(np.array(value)), index(mask(value))
    np.testing.assert_array_equal(t[mine].numpy(), array[theirs], strict=True)
    for written in (-7, -np.arange(array[theirs].size).reshape(array[theirs].shape)):
        array[theirs] = written
        t[mine] = written
        np.testing.assert_array_equal(t.numpy(), array)


@pytest.mark.parametrize("mask", [Tensor, np.array])
@pytest.mark.parametrize("value", [True, False])
def test_a_mask_of_no_dims_on_a_number(mask: Any, value: bool) -> None:
    t = Tensor(3, dtype="int32")
    assert t[mask(value)].tolist() == [3] * value
    t[mask(value)] = 5
    assert t.item() == (5 if value else 3)


@pytest.mark.parametrize("value", [True, False])
def test_a_python_bool_as_index_is_told_what_to_write(value: bool) -> None:
    with pytest.raises(RuntimeError, match=rf"Tensor\({value}\) is a mask"):
        Tensor([1, 2])[value]


@pytest.mark.parametrize(
    "index",
    [
        (slice(1, 1), [0, 1]), ([0, 2], slice(0, 0)), (slice(3, None), [True, False]), ([], slice(None)),
        (slice(0, 0), None, [1]), (..., slice(2, 2)),
    ],
)  # fmt: skip
def test_gradients_of_nothing_are_zeros(index: tuple[Any, ...]) -> None:
    table = Tensor.ones(3, 2).clone().realize()
    taken = table[tuple(Tensor(i) if isinstance(i, list) and i else i for i in index)]
    assert taken.numel() == 0
    (found,) = taken.sum().gradient(table)
    assert found.tolist() == [[0.0, 0.0]] * 3
