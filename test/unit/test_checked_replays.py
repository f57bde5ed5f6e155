"""With CHECK_BOUNDS=1 the replays of a captured function look at indices, as every call of a plain one does."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tinygrad import Context, Tensor, TinyJit, Variable

ROW = Tensor([1.0, 2.0, 3.0]).realize()

LOOKUPS: dict[str, Callable[[Tensor], Tensor]] = {
    "getitem": lambda i: ROW[i] * 2,
    "gather": lambda i: ROW.gather(0, i),
    "scatter": lambda i: ROW.scatter(0, i, 5.0),
    "cross_entropy": lambda i: ROW.expand(2, 3).cross_entropy(i),
    "nll_loss": lambda i: ROW.expand(2, 3).nll_loss(i),
}


def indices(*numbers: int) -> Tensor:
    return Tensor(list(numbers)).realize()


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_replay_raises_what_a_call_raises(name: str) -> None:
    captured = TinyJit(LOOKUPS[name])
    with Context(CHECK_BOUNDS=1):
        expected = LOOKUPS[name](indices(2, 1)).tolist()
        for _ in range(4):
            assert captured(indices(2, 1)).tolist() == expected
        with pytest.raises(IndexError, match=r"index 7 is out of bounds for a dim of size 3") as error:
            captured(indices(1, 7))
        assert f"in      {name}" in str(error.value)
        assert captured(indices(2, 1)).tolist() == expected


def test_the_captured_call_itself_raises() -> None:
    captured = TinyJit(LOOKUPS["getitem"])
    with Context(CHECK_BOUNDS=1):
        captured(indices(0, 1))
        with pytest.raises(IndexError, match="index -4 is out of bounds"):
            captured(indices(0, -4))
        assert captured(indices(0, 1)).tolist() == [2.0, 4.0]


def test_a_capture_keeps_its_checks_when_it_is_pickled() -> None:
    captured = TinyJit(LOOKUPS["getitem"])
    with Context(CHECK_BOUNDS=1):
        for _ in range(2):
            captured(indices(0, 1))
    loaded: Any = pickle.loads(pickle.dumps(captured))
    assert loaded(indices(2, 1)).tolist() == [6.0, 4.0]
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        loaded(indices(3, 1))


def test_a_size_that_changes_is_that_of_the_replay() -> None:
    row, size = Tensor.arange(10).realize(), Variable("size", 1, 10)

    @TinyJit
    def lookup(i: Tensor, n: Any) -> Tensor:
        return row[:n][i].sum()

    with Context(CHECK_BOUNDS=1):
        for n in (6, 5, 7, 9):
            assert lookup(indices(3, 4), size.bind(n)).item() == 7
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            lookup(indices(3, 4), size.bind(4))


def test_a_check_is_no_other_use_of_what_is_written() -> None:
    """Pending, it would be a reader of the indices, which a write to them refuses."""
    places = Tensor([0, 1, 2]).realize()

    @TinyJit
    def write(x: Tensor) -> Tensor:
        places[places] = x
        return places + 0

    with Context(CHECK_BOUNDS=1):
        found = [write(indices(2, 1, 0)).tolist() for _ in range(4)]
    assert found == [[2, 1, 0], [0, 1, 2]] * 2


def test_without_the_check_a_replay_reads_nothing() -> None:
    captured = TinyJit(LOOKUPS["getitem"])
    assert [captured(indices(7, 1)).tolist() for _ in range(3)] == [[0.0, 4.0]] * 3
    assert captured.captured is not None
    assert captured.captured.checks == ()
