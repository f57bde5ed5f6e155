"""Views, indexing and writes against numpy on random cases: whatever is written down means what it means in numpy."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from test.helpers_programs import Generator, assert_like_numpy
from test.helpers_writes import WriteGenerator
from tinygrad import Context, Tensor

RANDOMS = st.randoms(use_true_random=False)
SETTINGS = settings(max_examples=80)
Array = np.ndarray[Any, Any]

# ---- chains of movement --------------------------------------------------------------------------------------------


def moved(r: random.Random, a: Array, t: Tensor) -> tuple[Array, Tensor, str]:
    """Apply one random operation to both."""
    n = a.ndim
    kind = r.choice(["reshape", "permute", "expand", "pad", "shrink", "flip", "step", "sum", "max", "math", "stored"])
    if kind == "reshape" and a.size:
        rest, shape = a.size, []
        while rest > 1 and len(shape) < 4:
            shape.append(r.choice([d for d in range(1, rest + 1) if rest % d == 0]))
            rest //= shape[-1]
        shape.append(rest)
        return a.reshape(shape), t.reshape(shape), f"reshape {shape}"
    if kind == "permute" and n:
        order = r.sample(range(n), n)
        return a.transpose(order), t.permute(order), f"permute {order}"
    if kind == "expand" and a.size < 300:
        shape = [*([r.randint(1, 3)] if r.random() < 0.3 else []), *(r.randint(1, 4) if s == 1 else s for s in a.shape)]
        return np.broadcast_to(a, shape), t.expand(shape), f"expand {shape}"
    if kind == "pad" and n and a.size < 300:
        pads, value = [(r.randint(0, 2), r.choice([0, 0, 1])) for _ in range(n)], r.choice([0, 0, 3])
        return np.pad(a, pads, constant_values=value), t.pad(pads, value=value), f"pad {pads} with {value}"
    if kind == "shrink" and n:
        cuts = [(lo := r.randint(0, max(s - 1, 0)), r.randint(min(lo + 1, s), s)) for s in a.shape]
        return a[tuple(slice(*c) for c in cuts)], t.shrink(cuts), f"shrink {cuts}"
    if kind == "flip" and n:
        axes = tuple(i for i in range(n) if r.random() < 0.5) or (0,)
        return np.flip(a, axes), t.flip(axes), f"flip {axes}"
    if kind == "step" and n:
        items = tuple(slice(None, None, r.choice([1, 2, 3, -1, -2])) for _ in range(n))
        return a[items], t[items], f"steps {[i.step for i in items]}"
    if kind in ("sum", "max") and n and a.size:
        axes, keep = tuple(i for i in range(n) if r.random() < 0.5) or (0,), r.random() < 0.6
        if kind == "sum":
            return a.sum(axes, np.int32, keepdims=keep), t.sum(axes, keepdim=keep), f"sum {axes} {keep}"
        return a.max(axes, keepdims=keep), t.max(axes, keepdim=keep), f"max {axes} {keep}"
    if kind == "math":
        c = r.randint(-3, 5)
        return np.where(a > c, a * 3 + c, -a), (t > c).where(t * 3 + c, -t), f"math {c}"
    return a, t.contiguous() if kind == "stored" else t + 0, "contiguous"


@SETTINGS
@given(RANDOMS)
def test_chains_of_movement(r: random.Random) -> None:
    shape = [r.randint(1, 5) for _ in range(r.randint(1, 4))]
    a = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape) - 7
    t, log, earlier = Tensor(a.copy()), [f"shape {shape}"], []
    with np.errstate(all="ignore"):
        for _ in range(r.randint(2, 10)):
            a, t, step = moved(r, a, t)
            log.append(step)
            for b, u in earlier:
                if np.prod(np.broadcast_shapes(a.shape, b.shape) if fits(a, b) else 9999) < 2000:
                    a, t = a + b, t + u
                    log.append("+ earlier")
            if r.random() < 0.2:
                earlier = [(a, t)]
    assert t.shape == a.shape, log
    np.testing.assert_array_equal(t.numpy(), a, err_msg=str(log))


def fits(a: Array, b: Array) -> bool:
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return True


# ---- indices -------------------------------------------------------------------------------------------------------

DTYPES = ["float32", "int32", "uint8", "int64", "bool", "float64", "int8"]


def indices(r: random.Random, shape: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Return index items for numpy and for us: ints, slices, None, Ellipsis, lists, arrays, masks of any rank."""
    theirs: list[Any] = []
    ours: list[Any] = []

    def add(item: Any, own: Any = None) -> None:
        theirs.append(item)
        ours.append(item if own is None else own)

    length, advanced, dim = r.randint(1, 3), r.random() < 0.6, 0
    masked = False
    while dim < len(shape):
        n, kind = shape[dim], r.random()
        if r.random() < 0.12:
            add(None)
        if (
            kind < 0.07
            and not any(i is Ellipsis for i in theirs)
            and not any(isinstance(i, np.ndarray) for i in theirs)
        ):
            add(Ellipsis)
            dim += r.randint(0, len(shape) - dim)
        elif kind < 0.2:
            add(r.randrange(-n, n))
            dim += 1
        elif kind < 0.5 or not advanced:
            start, stop = (None if r.random() < 0.4 else r.randint(-n - 1, n + 1) for _ in range(2))
            add(slice(start, stop, r.choice([None, 1, 2, 3, -1, -2])))
            dim += 1
        elif kind < 0.6 and not masked:
            rank = r.randint(1, len(shape) - dim)
            mask = np.zeros(shape[dim : dim + rank], bool)
            places = r.sample(range(mask.size), min(length, mask.size))
            mask.flat[places] = True
            if len(places) not in (1, length):
                continue
            add(mask, r.choice([mask, Tensor(mask), mask.tolist() if rank == 1 else Tensor(mask)]))
            masked = True
            dim += rank
        else:
            size = (length,) if masked else r.choice([(length,), (1,), (2, length), (2, 1)])
            array = np.array([r.randrange(-n, n) for _ in range(int(np.prod(size)))]).reshape(size)
            add(
                array,
                r.choice([
                    array,
                    Tensor(array),
                    Tensor(array.astype(np.int8)),
                    array.tolist() if array.ndim == 1 else Tensor(array),
                ]),
            )
            dim += 1
    if masked:  # arrays before a mask have its length, so that they go together
        for k, item in enumerate(theirs):
            if isinstance(item, np.ndarray) and item.dtype != bool and item.ndim > 1:
                theirs[k] = ours[k] = item[0]
    return theirs, ours


def case(r: random.Random) -> tuple[Array, tuple[Any, ...], Any]:
    """Return an array and index items for numpy and for us."""
    while True:
        shape = tuple(r.randint(1, 5) for _ in range(r.randint(1, 4)))
        a = (np.arange(int(np.prod(shape))).reshape(shape) % 100).astype(r.choice(DTYPES))
        theirs, ours = indices(r, shape)
        try:
            a[tuple(theirs)]
        except IndexError:
            continue  # lengths of masks and arrays that do not go together
        return a, tuple(theirs), tuple(ours) if len(ours) != 1 or isinstance(ours[0], list) else ours[0]


def target(r: random.Random, a: Array) -> tuple[Tensor, Tensor | None]:
    """Return a tensor of these values: stored, pending or a view of a base."""
    kind = r.choice(["stored", "written", "computed", "numpy", "view"])
    if kind == "stored":
        return Tensor(a.copy()).clone().realize(), None
    if kind == "written":
        return Tensor(a.copy()).clone(), None
    if kind == "computed":
        return (Tensor(a.copy()) | False if a.dtype == bool else Tensor(a.copy()) + 0), None
    if kind == "numpy":
        return Tensor(a.copy()), None
    outer = np.stack([np.zeros_like(a), a[::-1], np.zeros_like(a)], -1).swapaxes(0, -1).copy()
    base = Tensor(outer).clone().realize()
    return base.transpose(0, -1)[::-1][..., 1], base


@SETTINGS
@given(RANDOMS)
def test_reads(r: random.Random) -> None:
    a, theirs, ours = case(r)
    x, _ = target(r, a)
    expected = a[theirs]
    got = x[ours]
    assert got.shape == expected.shape, (a.shape, theirs)
    np.testing.assert_array_equal(got.numpy(), expected, err_msg=f"{a.dtype} {a.shape} [{theirs}]")


@SETTINGS
@given(RANDOMS)
def test_writes(r: random.Random) -> None:
    a, theirs, ours = case(r)
    x, base = target(r, a)
    part = a[theirs]
    shape = [1 if r.random() < 0.2 else s for s in part.shape][r.randint(0, part.ndim) if r.random() < 0.2 else 0 :]
    if shape and part.size == 0:
        shape = list(part.shape)
    value = (np.arange(int(np.prod(shape))).reshape(shape) + 101).astype(a.dtype)
    expected = a.copy()
    expected[theirs] = value
    before = x[0] if base is None and r.random() < 0.3 else None  # a view that was there before the write
    x[ours] = value.item() if value.ndim == 0 else r.choice([Tensor(value), value])
    message = f"{a.dtype} {a.shape} [{theirs}] = {value.shape}"
    if before is not None and x.uop.base is before.uop.base:
        np.testing.assert_array_equal(before.numpy(), expected[0], err_msg=message)
    np.testing.assert_array_equal(x.numpy(), expected, err_msg=message)
    if base is not None:
        wanted = np.stack([np.zeros_like(a), expected[::-1], np.zeros_like(a)], -1).swapaxes(0, -1)
        np.testing.assert_array_equal(base.numpy(), wanted, err_msg=message)


@SETTINGS
@given(RANDOMS)
def test_bounds(r: random.Random) -> None:
    shape = tuple(r.randint(1, 4) for _ in range(r.randint(1, 3)))
    x = Tensor.zeros(*shape).realize()
    dim = r.randrange(len(shape))
    n = shape[dim]
    wrong = r.choice([n, n + r.randint(1, 9), -n - 1, -n - r.randint(2, 9)])
    items: list[Any] = [r.choice([slice(None), r.randrange(-s, s)]) for s in shape]
    items[dim] = r.choice([wrong, [0, wrong], np.array([wrong])])
    with pytest.raises(IndexError, match="out of bounds"):
        x[tuple(items)]
    with pytest.raises(IndexError, match="out of bounds"):
        x[tuple(items)] = 1.0
    items[dim] = Tensor([wrong])
    # An index tensor is known only when it is computed: reads give 0, writes do nothing.
    ones = Tensor.ones(*shape).clone()
    assert not ones[tuple(items)].numpy().any()
    ones[tuple(items)] = 7.0
    assert (ones.numpy() == 1).all()
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexError, match="out of bounds"):
        ones[tuple(items)].realize()


# ---- programs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 60, 5))
def test_programs(first: int) -> None:
    for seed in range(first, first + 5):
        with np.errstate(all="ignore"):
            program = Generator(seed).program(25)
        assert_like_numpy(program)


@pytest.mark.parametrize("first", range(0, 40, 4))
def test_programs_that_write_through_views(first: int) -> None:
    for seed in range(first, first + 4):
        with np.errstate(all="ignore"):
            program = WriteGenerator(seed).program(20)
        assert_like_numpy(program)


S8, S44 = "stored(np.arange(8, dtype=np.int32))", "stored(np.arange(16, dtype=np.int32).reshape(4, 4))"
# Programs that came out wrong once, with what was wrong.
FOUND = {
    "a value that sums what it overwrites is no other use": [f"v1 = {S8}", "v1[1:] = total(v1) + v1[0]"],
    "a scan written over its input": [f"v1 = {S44}", "v1[:, :] = cumsum(v1, 1)"],
    "a storage reversed into itself": [f"v1 = {S8}", "v1[::-1] = v1"],
    "overlap forwards": [f"v1 = {S8}", "v1[1:] = v1[:-1]"], "overlap backwards": [f"v1 = {S8}", "v1[:-1] = v1[1:]"],
    "overlap with a step": [f"v1 = {S8}", "v1[::2] += v1[:1]", "v1[1:] += v1[:-1]"],
    "the transpose subtracted": [f"v1 = {S44}", "v2 = permute(v1, (1, 0))", "v1 -= v2"],
    "a pending storage reads another one that is overwritten": [
        f"v1 = {S8}", "v2 = new(v1 + v1)", "v2[::2] = v1[:4]", "v1[1:] -= v1[0] + total(v1[1])", "check(v1, 'v1')",
    ],
    "what runs along with a write contains a later write": [
        f"v1 = {S44}", "v2 = permute(v1, (1, 0))", "v3 = new(v2 + 1)", "assign(v2, v3 * 2)", "v4 = new(v2[:, 1] + 1)",
        "v5 = new(v1 * v1)", "assign(v2, v2 + v3)", "check(v5, 'v5')",
    ],
    "one kernel that needs a storage before and after a write": [
        f"v1 = {S44}", "v2 = new(v1 + v1)", "v3 = v1[:, :1]", "assign(v3, v3 + max_(v3, 0))",
        "v2[:, 1] = v2[0, 3] + v3[1, 0]",
    ],
    "two writes to one storage in different orders": [
        f"v1 = {S44}", "v1[::-1, :, ...] = pad(v1, ((1, 0), (0, 0)))[:-1, :]", "assign(v1, v1[0, :1])",
    ],
    "the last of several writes to one place": [
        f"v1 = {S8}", "v2 = new(v1 + v1)", "v1[5, ...] = 0", "v3 = new(v2 + v1)", "v3[:] = v1", "v3 += v1 + v2",
            "v3[:] = v1",
        "assign(v2, v1)", "real(v2, v3)",
    ],
    "equal expressions, one of them written": [
        f"v1 = {S8}", "v2 = new(v1 + v1)", "v3 = new(v1 + v1)", "real(v2, v3)", "v2 += 1",
    ],
    "a value assigned to another tensor": [f"v1 = {S8}", "v2 = new(v1 * 3)", "v3 = new(v1 * 2)", "assign(v2, v3)",
        "v2[0] = 7"],
    "slices of equal expressions": [f"v1 = {S8}", "v2 = new(v1 + v1)", "v3 = new(v1 + v1)", "v2[3:, ...] -= 5"],
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_wrong(name: str) -> None:
    assert_like_numpy(FOUND[name])


def test_positions_that_are_overwritten_before_they_are_used() -> None:
    where, x = Tensor([3, 1, 0]).clone().realize(), Tensor.zeros(5).clone().realize()
    x[where] = Tensor([1.0, 2.0, 3.0])
    where.assign(where * 0 + 4).realize()
    assert x.tolist() == [3.0, 2.0, 0.0, 1.0, 0.0]


def test_a_broadcast_view_gets_storage_of_its_own() -> None:
    row = Tensor([1.0, 2.0]).clone().realize()
    table = row.expand(3, 2)
    table[0] = 5.0
    assert table.tolist() == [[5.0, 5.0], [1.0, 2.0], [1.0, 2.0]]
    assert row.tolist() == [1.0, 2.0]
    for write in (
        lambda t: t.assign(t + 1), lambda t: t.__setitem__((0, 0), 9.0), lambda t: t.__setitem__(Tensor([0]), 9.0),
        lambda t: t.__setitem__(t > 0, 9.0), lambda t: t[1].assign(t[1] * 2), lambda t: t.T.add_(1),
    ):  # fmt: skip
        table = row.expand(3, 2)
        write(table)
        assert row.tolist() == [1.0, 2.0]
        row += 1  # the result shows writes to the row until it is written itself
        assert row.expand(3, 2)[2].tolist() == [2.0, 3.0]
        row -= 1
    padded = row.pad((1, 0))
    padded += 1
    assert (padded.tolist(), row.tolist()) == ([1.0, 2.0, 3.0], [1.0, 2.0])
    one, other = Tensor(0.0).reshape(1), Tensor(0.0).reshape(1)
    one.assign([4.0])
    assert (one.tolist(), other.tolist()) == ([4.0], [0.0])


# ---- an ellipsis over no dims --------------------------------------------------------------------------------------

NO_DIMS = [
    ((2, 2, 3), np.s_[:0, [-1], ..., [-1]]),
    ((5, 2), np.s_[None, 4, ..., [-1, 1]]),
    ((5, 2), np.s_[[1, 2], ..., [0, 1]]),
    ((5, 2), np.s_[..., [1, 2], [0, 1]]),
    ((5, 2), np.s_[[1, 2], [0, 1], ...]),
    ((3, 5, 2), np.s_[:, [1, 2], ..., [0, 1]]),
    ((3, 5, 2), np.s_[:, [1, 2], ..., 0]),
    ((3, 5, 2), np.s_[:, 1, ..., [0, 1]]),
    ((3, 5, 2), np.s_[1:, [1, 2], [0, 1], ...]),
    ((3, 5, 2), np.s_[1:, ..., [1, 2], [0, 1]]),
    ((3, 5, 2), np.s_[:, [[1], [2]], None, ..., [0, 1]]),
    ((3, 5, 2), np.s_[:, [1, 2], ..., None, [0, 1]]),
    ((3, 2, 2), np.s_[:, [[True, False], [True, True]], ...]),
    ((2, 2, 3), np.s_[[[True, False], [True, True]], ..., [0, 1, 2]]),
    ((3, 5, 2), np.s_[0, ..., 1, 1]),
    ((4,), np.s_[..., 1]),
    ((), np.s_[...]),
]


@pytest.mark.parametrize(("shape", "index"), NO_DIMS, ids=str)
def test_an_ellipsis_over_no_dims_separates_index_arrays(shape: tuple[int, ...], index: Any) -> None:
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    tensor = Tensor(array.copy())
    expected = array[index]
    found = tensor[index]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)
    value = np.arange(expected.size, dtype=np.float32).reshape(expected.shape) + 100
    array[index] = value
    written = tensor.clone()
    written[index] = Tensor(value)
    np.testing.assert_array_equal(written.numpy(), array)
