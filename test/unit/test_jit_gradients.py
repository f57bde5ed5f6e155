"""Gradients that add up in captured functions, over calls whose states are still pending when the capture begins."""

from collections.abc import Callable

import pytest

from tinygrad import Tensor, TinyJit

STATES: dict[str, Callable[[], Tensor]] = {
    "constant": lambda: Tensor.full((4,), 3.0),
    "expression": lambda: Tensor([1.0, 2.0, 3.0, 4.0]).realize() * 2,
    "stored": lambda: Tensor([1.0, 2.0, 3.0, 4.0]).realize(),
}


@pytest.mark.parametrize("is_given", [False, True], ids=["", "gradient"])
@pytest.mark.parametrize("name", STATES)
def test_a_gradient_of_the_first_call_that_reads_a_state_which_is_written_later(name: str, is_given: bool) -> None:
    """The capture computes what was added up before; the graph that it differentiates has to be the one after that."""

    def run(is_jitted: bool) -> list[list[float]]:
        state, w = STATES[name](), Tensor([1.0, 2.0, 3.0, 4.0]).realize()

        def step(x: Tensor) -> Tensor:
            scaled = w * state.detach()
            if is_given:
                scaled.backward(state.detach() + 1)
            else:
                scaled.sum().backward()
            state[1:4].assign(state[1:4] * 0.5 + 1)
            return x * 2

        call = TinyJit(step) if is_jitted else step
        results = [call(Tensor([float(i)]).realize()) for i in range(5)]
        assert w.grad is not None
        return [r.tolist() for r in (*results, state, w.grad)]

    assert run(is_jitted=True) == run(is_jitted=False)
