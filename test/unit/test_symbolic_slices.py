"""Slices with any step of dims whose size is a bound Variable, or that a bound Variable bounds: as in numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, UOp, Variable
from tinygrad.errors import ShapeError

ROWS, COLUMNS = 10, 6
A = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
V, WIDE = Variable("v", 1, ROWS), Variable("wide", 1, 2 * ROWS)
VALUES = (1, 2, 3, 5, 9, ROWS)

# The same text of tensors and arrays: v is a bound Variable or the int.
SLICES: dict[str, Callable[[Any, Any], Any]] = {
    "x[:v:2]": lambda x, v: x[:v:2],
    "x[v-1::2]": lambda x, v: x[v - 1 :: 2],
    "x[v-1::-1]": lambda x, v: x[v - 1 :: -1],
    "x[v-1::-2]": lambda x, v: x[v - 1 :: -2],
    "x[:v-1:-1]": lambda x, v: x[: v - 1 : -1],
    "x[:v][::1]": lambda x, v: x[:v][::1],
    "x[:v][::2]": lambda x, v: x[:v][::2],
    "x[:v][1::2]": lambda x, v: x[:v][1::2],
    "x[:v][:-1:3]": lambda x, v: x[:v][:-1:3],
    "x[:v][::-1]": lambda x, v: x[:v][::-1],
    "x[:v][::-2]": lambda x, v: x[:v][::-2],
    "x[:v][::-3]": lambda x, v: x[:v][::-3],
    "x[:v][-1::-2]": lambda x, v: x[:v][-1::-2],
    "x[:v][::2][::2]": lambda x, v: x[:v][::2][::2],
    "x[:v][::-2][::3]": lambda x, v: x[:v][::-2][::3],
    "x[::2][:(v+1)//2]": lambda x, v: x[::2][: (v + 1) // 2],
    "x[:v:4, ::-2]": lambda x, v: x[:v:4, ::-2],
    "x[:v:2, None, 1]": lambda x, v: x[:v:2, None, 1],
    "x[v-1::-2, v//2]": lambda x, v: x[v - 1 :: -2, v // 2],
    "x.T[::2, :v:2]": lambda x, v: x.T[::2, :v:2],
    "x[:v:2].T": lambda x, v: x[:v:2].T,
    # what is negative for all values of its Variables counts from the end
    "x[-v:]": lambda x, v: x[-v:],
    "x[:-v]": lambda x, v: x[:-v],
    "x[-v::2]": lambda x, v: x[-v::2],
    "x[-v::-1]": lambda x, v: x[-v::-1],
    "x[:-v-1:-2]": lambda x, v: x[: -v - 1 : -2],
    "x[v-11]": lambda x, v: x[v - 11],
    "x[-v, 1:]": lambda x, v: x[-v, 1:],
    "x[:v][-v:]": lambda x, v: x[:v][-v:],
    "x[:v][-v]": lambda x, v: x[:v][-v],
    "x[:, -v//2]": lambda x, v: x[:, -v // 2],
}
Program = Callable[[Tensor, UOp], Tensor]
PROGRAMS: dict[str, tuple[Program, Callable[[Any, int], Any]]] = {
    "computed with": (lambda x, v: x[:v][::2] * 2 + 1, lambda a, k: a[:k][::2] * 2 + 1),
    "added": (lambda x, v: x[:v][::2] + x[:v][::-2], lambda a, k: a[:k][::2] + a[:k][::-2]),
    "broadcast": (lambda x, v: x[:v][::-2] * x[:v:2, :1] + x[0], lambda a, k: a[:k][::-2] * a[:k:2, :1] + a[0]),
    "beside a range": (lambda x, v: x[:v:2, 0] + Tensor.arange((v + 1) // 2), lambda a, k: (
        a[:k:2, 0] + np.arange((k + 1) // 2))),
    "both halves": (lambda x, v: x[:v:2].sum(0) + x[:v][1::2].sum(0), lambda a, k: a[:k].sum(0)),
    "mean": (lambda x, v: x[:v:2].mean(0), lambda a, k: a[:k:2].mean(0)),
    "largest": (lambda x, v: x[:v][::-3].max(0), lambda a, k: a[:k][::-3].max(0)),
    "softmax": (lambda x, v: x[v - 1 :: -3].softmax(0), lambda a, k: (
        np.exp(a[k - 1 :: -3]) / np.exp(a[k - 1 :: -3]).sum(0))),
    "outer matmul": (lambda x, v: x[:v:2] @ x[:v][::-2].T, lambda a, k: a[:k:2] @ a[:k][::-2].T),
    "inner matmul": (lambda x, v: x[:v:2].T @ x[:v][::-2], lambda a, k: a[:k:2].T @ a[:k][::-2]),
    "padded": (lambda x, v: x[v - 1 :: -3].pad((1, 1, 2, 1)), lambda a, k: (
        np.pad(a[k - 1 :: -3], ((2, 1), (1, 1))))),
    "joined": (lambda x, v: x[:v:3].cat(x[:v][::-2]), lambda a, k: np.concatenate([a[:k:3], a[:k][::-2]])),
    "split": (lambda x, v: x[:v:2].reshape(-1, 2, 3).sum(2), lambda a, k: a[:k:2].reshape(-1, 2, 3).sum(2)),
    "merged": (lambda x, v: x[:v:2].flatten()[::-4] + 1, lambda a, k: a[:k:2].ravel()[::-4] + 1),
    "expanded": (lambda x, v: x[:v:2, :1].expand((v + 1) // 2, 3) + 1, lambda a, k: np.repeat(a[:k:2, :1], 3, 1) + 1),
    "flipped": (lambda x, v: x[:v].flip(0)[::2] * 1.5, lambda a, k: a[:k][::-1][::2] * 1.5),
    "running sum": (lambda x, v: x[:v][::-2].cumsum(0), lambda a, k: a[:k][::-2].cumsum(0)),
    "sorted": (lambda x, v: x[:v][::-2].sort(0)[0], lambda a, k: np.sort(a[:k][::-2], 0)),
}  # fmt: skip


def read(t: Tensor) -> np.ndarray[Any, Any]:
    shape = tuple(s if isinstance(s, int) else s.bound_value() for s in t.shape)
    return t.pad_to(t.max_shape).numpy()[tuple(slice(0, s) for s in shape)]


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("name", SLICES)
def test_values_and_gradients(name: str, device: str) -> None:
    cut = SLICES[name]
    for k in VALUES:
        x, wanted = Tensor(A, device=device), cut(A, k)
        part = cut(x, V.bind(k))
        np.testing.assert_array_equal(read(part), wanted, err_msg=f"{name} at {k}")
        part.square().sum().backward()
        slope = np.zeros(A.size, np.float32)
        slope[cut(np.arange(A.size).reshape(A.shape), k).ravel()] = 2 * wanted.ravel()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), slope.reshape(A.shape), rtol=1e-6, err_msg=f"{name} at {k}")


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, jit: bool) -> None:
    program, reference = PROGRAMS[name]
    x, runs = Tensor(A).realize(), []

    def step(v: UOp) -> Tensor:
        runs.append(1)
        return program(x, v).realize()

    run = TinyJit(step) if jit else step
    for k in (*VALUES, 1, 4):
        np.testing.assert_allclose(read(run(V.bind(k))), reference(A, k), rtol=1e-5, atol=1e-5, err_msg=f"at {k}")
    assert len(runs) == (2 if jit else len(VALUES) + 2)


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3])
def test_writes(step: int) -> None:
    table, wanted = Tensor.zeros(ROWS, 3).contiguous().realize(), np.zeros((ROWS, 3), np.float32)
    for k in VALUES:
        v, part = V.bind(k), slice(None, None, step)
        table[:v][part] = k + 2.0
        wanted[:k][part] = k + 2
        np.testing.assert_array_equal(table.numpy(), wanted)
        at: Any = slice(None, v, step) if step > 0 else slice(v - 1, None, step)
        where = slice(None, k, step) if step > 0 else slice(k - 1, None, step)
        table[at] = table[at] * 2
        table[at] += 1
        wanted[where] = wanted[where] * 2 + 1
        np.testing.assert_array_equal(table.numpy(), wanted)
        count = (v + abs(step) - 1) // abs(step)
        table[at] = Tensor.arange(count).reshape(-1, 1).expand(-1, 3).float()
        wanted[where] = np.arange(len(wanted[where]))[:, None]
        np.testing.assert_array_equal(table.numpy(), wanted)


def test_writes_from_the_end() -> None:
    table, wanted = Tensor.zeros(ROWS, 3).contiguous().realize(), np.zeros((ROWS, 3), np.float32)

    @TinyJit
    def write(v: UOp, x: Tensor) -> None:
        table[-v:] += x
        table[-v, 1] = 7.0
        table.realize()

    for k in (*VALUES, 4):
        write(V.bind(k), Tensor([float(k)]).realize())
        wanted[-k:] += k
        wanted[-k, 1] = 7
        np.testing.assert_array_equal(table.numpy(), wanted)


def test_no_rows() -> None:
    none = Tensor(A)[: Variable("n", 0, ROWS).bind(0)]
    for part in (none[::2], none[::-1], none[::-3]):
        assert part.sum(0).tolist() == [0.0] * COLUMNS


def test_a_slice_from_the_start_needs_no_gate(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor(A).realize()
    with Context(DEBUG=4, CACHELEVEL=0):
        (x[: V.bind(7) : 2] * 3.25).realize()
        (x[: V.bind(7)][::-3] * 3.25).realize()
    source = capsys.readouterr().out
    assert source.count("fmul") == 2
    assert "select" not in source


@pytest.mark.parametrize(
    ("cut", "bad", "text"),
    [
        (lambda x, v: x[:v:2], 11, "0 to 11 of 10 for wide=11"),
        (lambda x, v: x[v - 1 :: -2], 11, "-1 to 10 of 10 for wide=11"),
        (lambda x, v: x[2:v:2], 1, "2 to 1 of 10 for wide=1"),
    ],
)
def test_bounds_are_checked_when_built_and_in_replays(cut: Callable[[Any, Any], Any], bad: int, text: str) -> None:
    x = Tensor(np.arange(10, dtype=np.float32)).realize()
    with pytest.raises(ShapeError, match=r"shrink: bounds .* are outside the shape"):
        cut(x, WIDE.bind(bad))
    f = TinyJit(lambda v: cut(x, v).sum().realize())
    for k in (3, 5, 7, 10):
        assert f(WIDE.bind(k)).item() == cut(np.arange(10), k).sum()
    with pytest.raises(IndexError, match=f"TinyJit: a slice of .* is {text}"):
        f(WIDE.bind(bad))


BOUNDS = (None, -12, -10, -4, -1, 0, 1, 4, 9, 10, 12)


@pytest.mark.parametrize("rows", [1, 2, 5, ROWS])
@pytest.mark.parametrize("step", [None, 1, 2, -1, -3])
def test_ints_are_clamped_to_the_rows_that_there_are(rows: int, step: int | None) -> None:
    x = Tensor(A).realize()
    for start, stop in itertools.product(BOUNDS, repeat=2):
        got = x[: V.bind(rows)][start:stop:step]
        wanted = A[:rows][start:stop:step]
        count = got.shape[0] if isinstance(got.shape[0], int) else got.shape[0].bound_value()
        assert count == len(wanted), (start, stop)
        if start in {-4, 4} or stop == 1:
            np.testing.assert_allclose(got.sum(0).numpy(), wanted.sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cut", [
    lambda x: x[:4], lambda x: x[4:], lambda x: x[-4:], lambda x: x[:-4], lambda x: x[6:1:-1], lambda x: x[-3:2],
    lambda x: x[::-1][:4], lambda x: x[1:7:2],
])  # fmt: skip
@pytest.mark.parametrize("captured", [2, 7])
def test_replays_are_clamped_or_refused(cut: Callable[[Any], Any], captured: int) -> None:
    """A capture keeps the clamping of its call; where that is another one, the replay is an error."""
    x = Tensor(A).realize()
    f = TinyJit(lambda rows: (cut(rows) * 2).sum().realize())
    replayed = 0
    for rows in (captured, captured, captured, *range(1, ROWS + 1)):
        try:
            got = f(x[: V.bind(rows)]).item()
        except ShapeError as error:
            assert "TinyJit: a slice" in str(error)  # noqa: PT017  either is right, but it is never another value
            continue
        np.testing.assert_allclose(got, 2 * cut(A[:rows]).sum(), rtol=1e-5, atol=1e-6)
        replayed += 1
    assert replayed > 3


def test_a_write_to_clamped_rows_writes_those_that_there_are() -> None:
    for rows in (1, 3, 6):
        x, wanted = Tensor(A).clone(), A.copy()
        x[: V.bind(rows)][2:5].assign(Tensor.full(wanted[:rows][2:5].shape, 7.0))
        wanted[:rows][2:5] = 7
        np.testing.assert_array_equal(x.numpy(), wanted)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (lambda x: x[1:4], "1 to 4 of 3 for v=3"),
        (lambda x: x[3], "3 to 4 of 3 for v=3"),
        (lambda x: (x * 2)[:4], "0 to 4 of 3 for v=3"),
        (lambda x: x.T[:, 1:4], "1 to 4 of 3 for v=3"),
        (lambda x: x.shrink(((0, 4), None)), "0 to 4 of 3 for v=3"),
        (lambda x: x.topk(4, 0)[0], "0 to 4 of 3 for v=3"),
        (lambda x: x.gather(1, Tensor([[0], [1], [0], [1]])), "0 to 4 of 3 for v=3"),
    ],
)
def test_fixed_bounds_are_checked_where_the_size_is_a_variable(program: Callable[[Any], Any], text: str) -> None:
    x = Tensor(A).realize()
    f = TinyJit(lambda rows: program(rows).sum().realize())
    for k in (4, 6, 5, ROWS):
        np.testing.assert_allclose(f(x[: V.bind(k)]).item(), program(x[:k]).sum().item(), rtol=1e-5)
    try:
        wanted = program(x[:3]).sum().item()
    except ShapeError:
        with pytest.raises(ShapeError, match="v=3"):
            program(x[: V.bind(3)])
    else:
        np.testing.assert_allclose(program(x[: V.bind(3)]).sum().item(), wanted, rtol=1e-5)
    with pytest.raises(IndexError, match=f"TinyJit: a slice of .* is {text}"):
        f(x[: V.bind(3)])


IMAGE = np.arange(2 * ROWS * COLUMNS, dtype=np.float32).reshape(1, 2, ROWS, COLUMNS)
FOUR = Tensor([[0], [1], [0], [1]])
# What needs some of the rows, and how many of them.
NEEDS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "unfold": (lambda x: x[0, 0].unfold(0, 3, 1), 3),
    "unfold, far apart": (lambda x: x[0, 0].unfold(0, 3, 4), 3),
    "max_pool2d": (lambda x: x.max_pool2d(3, 1), 3),
    "max_pool2d, disjoint": (lambda x: x.max_pool2d(2), 2),
    "avg_pool2d, padded": (lambda x: x.avg_pool2d(5, padding=1), 3),
    "conv2d": (lambda x: x.conv2d(Tensor.ones(3, 2, 3, 1)), 3),
    "conv2d, padded": (lambda x: x.conv2d(Tensor.ones(3, 2, 5, 3), dilation=(1, 2), padding=1), 3),
    "scatter": (lambda x: x[0, 0].scatter(1, FOUR, Tensor.ones(4, 1)), 4),
    "scatter_reduce": (lambda x: x[0, 0].scatter_reduce(1, FOUR, Tensor.ones(4, 1), "sum"), 4),
    "gather": (lambda x: x[0, 0].gather(1, FOUR), 4),
    "gather of a source": (lambda x: Tensor.zeros(ROWS, 2).scatter(1, Tensor.zeros(3, 1, dtype="int"), x[0, 0]), 3),
    "multinomial": (lambda x: x[0, 0, :, 1].multinomial(3, replacement=False).clip(0, 0), 3),
    "list": (lambda x: x[0, 0][[0, 3, -1]], 4),
    "list from the end": (lambda x: x[0, 0][[0, -3]], 3),
    "write to a list": (lambda x: _with_a_write(x[0, 0]), 4),
}


def _with_a_write(x: Tensor) -> Tensor:
    copy = x.clone()
    copy[[0, 3]] = 5.0
    return copy


@pytest.mark.parametrize(("program", "needed"), NEEDS.values(), ids=NEEDS)
def test_replays_refuse_sizes_that_building_refuses(program: Callable[[Any], Any], needed: int) -> None:
    x = Tensor(IMAGE).realize()
    f = TinyJit(lambda rows: program(rows).sum().realize())
    for k in (6, 5, 7, needed, ROWS):
        rows = x[:, :, : V.bind(k)]
        np.testing.assert_allclose(f(rows).item(), program(x[:, :, :k]).sum().item(), rtol=1e-5)
    for rows in (x[:, :, : needed - 1], x[:, :, : V.bind(needed - 1)]):
        with pytest.raises((ShapeError, RuntimeError, AssertionError), match=r"^[a-z_0-9]+: "):
            program(rows)
    with pytest.raises(ShapeError, match=rf"TinyJit: .* 0 to (\d+) of (?!\1)\d+ for v={needed - 1}"):
        f(x[:, :, : V.bind(needed - 1)])
    np.testing.assert_allclose(f(x[:, :, : V.bind(8)]).item(), program(x[:, :, :8]).sum().item(), rtol=1e-5)


def test_sizes_that_always_fit_are_not_checked() -> None:
    many = Variable("many", 4, ROWS)
    f = TinyJit(lambda rows: rows.max_pool2d(3, 1).realize())
    for k in (5, 6, 4, 7):
        f(Tensor(IMAGE)[:, :, : many.bind(k)].contiguous().realize())
    assert f.captured is not None
    assert not [found for found in f.captured.slices if found[1] == 3]


@pytest.mark.parametrize(
    ("program", "kind", "text"),
    [
        (lambda x, v: x[:v:0], ValueError, "slice step is 0"),
        (lambda x, v: x[:v][::0], ValueError, "slice step is 0"),
        (lambda x, v: x[:v:1.5], TypeError, "slice with step 1.5"),
        (lambda x, v: x[:v:v], TypeError, "slice with step v=3"),
        (lambda x, v: x[::v], TypeError, "slice with step v=3"),
        (lambda x, v: x[: v.maximum(1.5) : 2], TypeError, "slice"),
        (lambda x, v: x[v - 4], ShapeError, "index .* is out of bounds(.|\n)*hint .* all of its values are negative"),
        (lambda x, v: x[-v - 8], ShapeError, r"index .* is out of bounds(.|\n)*-10 <= index < 10"),
        (lambda x, v: x[-v - 8 :], ShapeError, "are outside the shape"),
    ],
)
def test_errors(program: Callable[[Any, Any], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        program(Tensor(A), V.bind(3))


GROUPS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "reshape with a quotient": (lambda x, n: x.reshape(n // 2, 2, COLUMNS), 2),
    "reshape": (lambda x, n: x.reshape(n // 2, 2 * COLUMNS) * 2 + 1, 2),
    "reshape that infers": (lambda x, _: x.reshape(-1, 4), 2),
    "reshape of what is computed": (lambda x, _: (x * 2).exp().reshape(-1, 2, COLUMNS).sum(1), 2),
    "two reshapes": (lambda x, n: x.reshape(n // 2, 2, COLUMNS).permute(1, 0, 2).reshape(n, COLUMNS), 2),
    "unflatten": (lambda x, _: x.unflatten(0, (-1, 3)), 3),
    "unflatten, few rows": (lambda x, _: x.unflatten(0, (3, -1)), 3),
    "rearrange": (lambda x, _: x.rearrange("(a b) c -> c b a", b=3), 3),
    "rearrange, few rows": (lambda x, _: x.rearrange("(a b) c -> b (a c)", a=2), 2),
    "softmax of groups": (lambda x, _: x.reshape(-1, 3, COLUMNS).softmax(1), 3),
    "product": (lambda x, n: x.reshape(n // 2, 2 * COLUMNS) @ Tensor(np.tile(A, (2, 1))[: 2 * COLUMNS]), 2),
}


@pytest.mark.parametrize(("program", "divisor"), GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("most", [ROWS, ROWS - 1])
def test_rows_are_put_into_groups_if_their_number_divides(
    program: Callable[[Any, Any], Any], divisor: int, most: int
) -> None:
    v, x = Variable("v", 1, most), Tensor(A).realize()
    weights = Tensor.arange(2 * ROWS * COLUMNS).float().realize()

    def weighed(rows: Tensor, n: Any) -> Tensor:
        flat = program(rows, n).flatten()
        return (flat * weights[: flat.shape[0]]).sum().realize()

    f = TinyJit(weighed)
    fitting = [n for n in range(1, most + 1) if n % divisor == 0]
    for n in [*fitting, *fitting]:
        wanted = weighed(x[:n], n).item()
        bound = v.bind(n)
        np.testing.assert_allclose(weighed(x[:bound], bound).item(), wanted, rtol=1e-4)
        np.testing.assert_allclose(f(x[:bound], bound).item(), wanted, rtol=1e-4)
    bound = v.bind(divisor + 1)
    with pytest.raises((ShapeError, AssertionError), match=r"does not divide|the number of elements stays the same"):
        program(x[:bound], bound)
    with pytest.raises(ShapeError, match="TinyJit: a slice"):
        f(x[:bound], bound)


def test_gradients_reach_rows_in_groups() -> None:
    for rows in (2, 4, ROWS):
        x = Tensor(A).realize()
        loss = (x[: V.bind(rows)].reshape(-1, 2, COLUMNS).sum(1) ** 2).sum()
        wanted = np.zeros_like(A)
        wanted[:rows] = 2 * np.repeat(A[:rows].reshape(-1, 2, COLUMNS).sum(1), 2, axis=0)
        np.testing.assert_allclose(loss.gradient(x)[0].numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_number_of_elements_that_varies_is_no_plain_size() -> None:
    with pytest.raises(ShapeError, match=r"reshape: .* elements"):
        Tensor(A)[: V.bind(4)].reshape(4 * COLUMNS)
