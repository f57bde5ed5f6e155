"""A TinyJit that is pickled goes on as the original would, or says that it has to be called once more before."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tinygrad import Tensor, TinyJit

Step = Callable[[Tensor, Tensor], Tensor]


def read_and_write(state: Tensor, x: Tensor) -> Tensor:
    before = (state * 1).realize()
    state.assign(state * 0.5 + x)
    return before + x


def write(state: Tensor, x: Tensor) -> Tensor:
    state.assign(state * 0.5 + x)
    return state + x


def write_parts(state: Tensor, x: Tensor) -> Tensor:
    before = (state * 1).realize()
    state[0] = x[0] + state[1]
    return before + x


STATES: dict[str, Callable[[], Tensor]] = {
    "expression": lambda: Tensor([1.0, 2.0, 3.0]).realize() * 2,
    "constant": lambda: Tensor.full((3,), 2.0),
    "stored": lambda: Tensor([1.0, 2.0, 3.0]).realize(),
}


def inputs(i: int) -> Tensor:
    return Tensor([float(i)] * 3).realize()


@pytest.mark.parametrize("calls", [2, 3, 4])
@pytest.mark.parametrize("step", [read_and_write, write, write_parts], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", STATES)
def test_a_pickled_capture_goes_on_as_the_original_or_refuses(name: str, step: Step, calls: int) -> None:
    state = STATES[name]()
    run = TinyJit(lambda x: step(state, x))
    for i in range(calls):
        run(inputs(i))
    if name == "expression" and step is not write_parts and calls == 2:
        with pytest.raises(AssertionError, match="call it once more first"):
            pickle.dumps(run)
        run(inputs(calls))
    loaded: Any = pickle.loads(pickle.dumps(run))
    for i in range(5, 9):
        assert loaded(inputs(i)).tolist() == run(inputs(i)).tolist()


def test_a_capture_that_the_next_call_would_make_anew_is_not_pickled() -> None:
    scale = Tensor([2.0, 2.0, 2.0]).realize() * 3
    scaled = TinyJit(lambda x: x * scale)
    scaled(inputs(1))
    scaled(inputs(1))
    pickle.dumps(scaled)
    scale.assign(scale + 1).realize()
    with pytest.raises(AssertionError, match="call it once more first"):
        pickle.dumps(scaled)
    scaled(inputs(1))
    assert pickle.loads(pickle.dumps(scaled))(inputs(1)).tolist() == [7.0] * 3
