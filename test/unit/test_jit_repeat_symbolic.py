"""Jitted calls whose arguments or results have sizes that a Variable gives take the short way, and are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, Variable
from tinygrad.engine import jit
from tinygrad.engine.jit import JitError
from tinygrad.uop.ops import UOp

ROWS = 12
DATA = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
SIZES = (5, 1, ROWS, 2, 7, 7, 3)


@pytest.fixture
def cache() -> Tensor:
    return Tensor(DATA).realize()


@pytest.fixture
def n() -> UOp:
    return Variable("n", 1, ROWS)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which jitted calls that need the long way fail."""

    def long_way(*args: object) -> None:
        raise AssertionError("this call looks at all of its arguments again")

    @contextmanager
    def context() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(jit, "Arguments", long_way)
            yield

    return context


def warm(f: TinyJit[..., Any], call: Callable[[int], Any]) -> None:
    """Call until replays can be repeated."""
    for size in (2, 3, 4):
        call(size)
    assert f.captured is not None
    assert f.captured._repeat is not None


def rows(t: Tensor, size: int) -> np.ndarray[Any, Any]:
    """Return the values of a tensor with this many rows now."""
    assert [s if isinstance(s, int) else s.bound_value() for s in t.shape] == [size, 3]
    return t[:size].contiguous().reshape(size, 3).numpy()


@pytest.mark.parametrize(
    ("arguments", "function", "expected"),
    [
        (lambda c, i: [c[:i]], lambda x: (x * 2).sum(0).realize(), lambda k: (DATA[:k] * 2).sum(0)),
        (lambda c, i: [c[ROWS - i :]], lambda x: x.max(0).realize(), lambda k: DATA[ROWS - k :].max(0)),
        (lambda c, i: [c, i], lambda x, i: (x[:i] + 1).realize(), lambda k: DATA[:k] + 1),
        (lambda c, i: [c[:i]], lambda x: (x + 1).realize(), lambda k: DATA[:k] + 1),
        (lambda c, i: [c[:i]], lambda x: x.clone().realize(), lambda k: DATA[:k]),
        (lambda c, i: [c, i], lambda x, i: (x[: (i + 1) // 2] - 1).realize(), lambda k: DATA[: (k + 1) // 2] - 1),
    ],
    ids=["argument", "end as argument", "result", "argument and result", "copy", "expression"],
)
def test_sizes_that_change(arguments: Any, function: Any, expected: Any, cache: Tensor, n: UOp, short: Any) -> None:
    f = TinyJit(function)

    def call(size: int) -> Tensor:
        result: Tensor = f(*arguments(cache, n.bind(size)))
        return result

    warm(f, call)
    for size in SIZES:
        with short():
            result = call(size)
        wanted = expected(size)
        got = result.numpy() if wanted.ndim == 1 else rows(result, len(wanted))
        np.testing.assert_array_equal(got, wanted)


def test_results_that_are_kept_keep_values_and_sizes(cache: Tensor, n: UOp, short: Any) -> None:
    f = TinyJit(lambda x, i: (x[:i] * i).realize())
    warm(f, lambda size: f(cache, n.bind(size)))
    with short():
        kept = {size: f(cache, n.bind(size)) for size in SIZES}
    for size, result in kept.items():
        np.testing.assert_array_equal(rows(result, size), DATA[:size] * size)


def test_storage_of_results_that_nobody_holds_is_used_again(cache: Tensor, n: UOp) -> None:
    f = TinyJit(lambda x, i: (x[:i] * 2).realize())
    warm(f, lambda size: f(cache, n.bind(size)))
    assert len({f(cache, n.bind(size)).uop.base.buffer._buf.address for size in SIZES}) == 1


def test_other_storage_of_the_same_form(cache: Tensor, n: UOp, short: Any) -> None:
    f = TinyJit(lambda x: x.sum(0).realize())
    warm(f, lambda size: f(cache[: n.bind(size)]))
    others = [Tensor(DATA * k).realize() for k in range(3)]
    for k, other in enumerate(others):
        for size in SIZES[:3]:
            with short():
                result = f(other[: n.bind(size)])
            np.testing.assert_array_equal(result.numpy(), (DATA * k)[:size].sum(0))


def test_an_argument_comes_back(cache: Tensor, n: UOp, short: Any) -> None:
    f = TinyJit(lambda x: ((x + 0).sum().realize(), x))
    warm(f, lambda size: f(cache[: n.bind(size)]))
    for size in SIZES:
        given = cache[: n.bind(size)]
        with short():
            total, same = f(given)
        assert same is given
        assert total.item() == DATA[:size].sum()


def test_state_is_written_where_the_variable_says(n: UOp, short: Any) -> None:
    start, state, expected = Variable("start", 0, ROWS - 1), Tensor.zeros(ROWS, 3).contiguous().realize(), DATA * 0

    def put(row: Tensor, at: UOp) -> Tensor:
        state[at : at + 1].assign(row).realize()
        return (state[: at + 1] * 2).realize()

    f, row = TinyJit(put), Tensor.ones(1, 3).contiguous().realize()
    warm(f, lambda at: f(row, start.bind(at)))
    expected[2:5] = 1
    for at in (5, 0, ROWS - 1, 6):
        row.assign(Tensor.full((1, 3), float(at))).realize()
        with short():
            result = f(row, start.bind(at))
        expected[at] = at
        np.testing.assert_array_equal(rows(result, at + 1), expected[: at + 1] * 2)
        np.testing.assert_array_equal(state.numpy(), expected)


def test_two_sizes_that_disagree(cache: Tensor, n: UOp) -> None:
    other = Tensor(DATA).realize()
    f = TinyJit(lambda x, y: (x * y).sum(0).realize())
    warm(f, lambda size: f(cache[: n.bind(size)], other[: n.bind(size)]))
    for _ in range(2):
        with pytest.raises(JitError, match=r"bind mismatch on n in the arguments: 2 and 3"):
            f(cache[: n.bind(2)], other[: n.bind(3)])
        np.testing.assert_array_equal(f(cache[: n.bind(2)], other[: n.bind(2)]).numpy(), (DATA * DATA)[:2].sum(0))


def test_a_size_and_a_value_that_disagree(cache: Tensor, n: UOp) -> None:
    f = TinyJit(lambda x, i: (x * i).sum(0).realize())
    warm(f, lambda size: f(cache[: n.bind(size)], n.bind(size)))
    for _ in range(2):
        with pytest.raises(JitError, match="bind mismatch on n in the arguments"):
            f(cache[: n.bind(2)], n.bind(3))
        np.testing.assert_array_equal(f(cache[: n.bind(4)], n.bind(4)).numpy(), (DATA[:4] * 4).sum(0))


@pytest.mark.parametrize(
    "other",
    [
        lambda c, n: c[ROWS - n.bind(3) :],
        lambda c, n: c[: n.bind(3), :2],
        lambda c, n: c.cast("int")[: n.bind(3)],
        lambda c, n: c[: Variable("m", 1, ROWS).bind(3)],
        lambda c, n: c[: n.bind(3) + 1],
        lambda c, n: c,
    ],
    ids=["other end", "fewer columns", "dtype", "Variable", "expression", "no Variable"],
)
def test_arguments_of_another_form(other: Any, cache: Tensor, n: UOp) -> None:
    f = TinyJit(lambda x: x.sum(0).realize())
    warm(f, lambda size: f(cache[: n.bind(size)]))
    for _ in range(2):
        with pytest.raises(JitError, match="args mismatch in JIT: argument 0"):
            f(other(cache, n))
        np.testing.assert_array_equal(f(cache[: n.bind(5)]).numpy(), DATA[:5].sum(0))


def test_no_value_is_left_out_of_range(cache: Tensor, n: UOp) -> None:
    f = TinyJit(lambda x, i: (x[:i] + 1).realize())
    warm(f, lambda size: f(cache, n.bind(size)))
    with pytest.raises(AssertionError, match="13 is out of range for Variable n"):
        f(cache, n.bind(ROWS + 1))
