"""Pending tensors around the calls of a jitted function: every value is the one that it has without a JIT."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, nn

READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda w: w.clone(),
    "expression": lambda w: w * 2 + 1,
    "part": lambda w: w[1:] - w[:-1],
    "sum": lambda w: w.sum(),
    "of a view": lambda w: w.flip(0).reshape(2, 2).permute(1, 0) * 3,
    "twice removed": lambda w: (w * 2).sum() + w,
}


def add(w: Tensor) -> None:
    w += 3


def set_item(w: Tensor) -> None:
    w[1] = 7


WRITERS: dict[str, Callable[[Tensor], object]] = {
    "assign": lambda w: w.assign(w * 2),
    "add": add,
    "set item": set_item,
    "flip": lambda w: w.assign(w.flip(0)),
}


def stored() -> Tensor:
    return Tensor([1.0, 2.0, 3.0, 4.0]).contiguous().realize()


class Program:
    """Some weights, and functions that write and read them."""

    def __init__(self) -> None:
        self.w, self.other = stored(), stored()
        self.step = TinyJit(self._step)
        self.look = TinyJit(self._look)
        self.write_to = TinyJit(self._write_to)

    def _step(self, x: Tensor) -> Tensor:
        return self.w.assign(self.w + x).sum().realize()

    def _look(self, x: Tensor) -> Tensor:
        return (self.w * x).realize()

    def _write_to(self, x: Tensor, y: Tensor) -> None:
        x.assign(x * 2 + y).realize()


def both(program: Callable[[], list[object]]) -> None:
    """Hold a program with a JIT against the same without."""
    with Context(JIT=0):
        expected = program()
    assert program() == expected


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_what_was_written_down_before_a_step_reads_the_state_before_it(reader: Callable[[Tensor], Tensor]) -> None:
    def program() -> list[object]:
        p, x, seen = Program(), stored(), []
        for _ in range(6):
            seen.append(reader(p.w))
            p.step(x)
        return [t.tolist() for t in [*seen, p.w]]

    both(program)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_readers_of_an_argument_that_is_written(reader: Callable[[Tensor], Tensor]) -> None:
    def program() -> list[object]:
        p, x, y, seen = Program(), stored(), stored(), []
        for i in range(7):
            given = x if i % 3 else p.other
            seen += [reader(given), reader(x)]
            p.write_to(given, y)
        return [t.tolist() for t in [*seen, x, p.other]]

    both(program)


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("call", ["step", "look"])
def test_writes_before_a_call_come_first(call: str, writer: Callable[[Tensor], object]) -> None:
    def program() -> list[object]:
        p, x, seen = Program(), stored(), []
        for _ in range(6):
            writer(p.w)
            seen.append(getattr(p, call)(x).tolist())
        return [*seen, p.w.tolist()]

    both(program)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    # setitem refuses where others are yet to read.
    readers, writers = list(READERS.values()), [writer for writer in WRITERS.values() if writer is not set_item]

    def program() -> list[object]:
        rng = np.random.default_rng(seed)
        p, x, seen = Program(), stored(), []
        for _ in range(24):
            kind = rng.integers(5)
            tensor = (p.w, p.other, x)[rng.integers(3)]
            if kind == 0:
                seen.append(readers[rng.integers(len(readers))](tensor))
            elif kind == 1:
                writers[rng.integers(len(writers))](tensor)
            elif kind == 2:
                seen.append(p.step(x))
            elif kind == 3:
                seen.append(p.look(x))
            else:
                p.write_to(p.other, x)
            p.w.assign(p.w % 97)
        return [t.tolist() for t in [*seen, p.w, p.other, x]]

    both(program)


def test_a_copy_of_weights_before_a_training_step() -> None:
    def program() -> list[object]:
        Tensor.manual_seed(1)
        layer = nn.Linear(3, 2)
        optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.5)

        @TinyJit
        def step(x: Tensor) -> Tensor:
            with Context(TRAINING=1):
                optimizer.zero_grad()
                loss = layer(x).square().mean().backward()
                return loss.realize(*optimizer.schedule_step())

        x, averages = Tensor.ones(4, 3).contiguous().realize(), [layer.weight.clone()]
        for _ in range(5):
            averages.append(averages[-1] * 0.5 + layer.weight.detach() * 0.5)
            step(x)
        return [np.round(t.numpy(), 5).tolist() for t in averages]

    both(program)


def test_what_no_call_touches_stays_pending() -> None:
    p, x = Program(), stored()
    for _ in range(4):
        p.step(x)
    lazy = p.other * 2
    p.step(x)
    assert lazy.uop.op.name == "MUL"
    assert lazy.tolist() == [2.0, 4.0, 6.0, 8.0]


class Counting:
    """Functions that write to a tensor which nothing that they return depends on."""

    def __init__(self) -> None:
        self.w = stored()

    def returns_other(self, x: Tensor) -> Tensor:
        self.w.assign(self.w + x)
        return x * 2

    def returns_what_it_read(self, x: Tensor) -> Tensor:
        loss = (self.w * x).sum()
        self.w.assign(self.w * 0.5 + x)
        return loss

    def returns_its_argument(self, x: Tensor) -> Tensor:
        self.w += x
        return x

    def returns_nothing(self, x: Tensor) -> None:
        self.w += x

    def writes_parts(self, x: Tensor) -> Tensor:
        self.w[1:3].assign(self.w[1:3] + x[:2])
        self.w[:1].assign(self.w[1:2])
        return x.sum()

    def writes_its_argument(self, x: Tensor) -> Tensor:
        x.assign(x + self.w)
        return self.w * 2


@pytest.mark.parametrize("name", [name for name in vars(Counting) if not name.startswith("_")])
def test_writes_that_no_result_depends_on_are_done_by_every_call(name: str) -> None:
    def program() -> list[object]:
        p, seen = Counting(), []
        step, x = TinyJit(getattr(p, name)), stored()
        for i in range(6):
            if i == 3:
                p.w.assign(p.w * 10)  # left pending by the caller
            result = step(x)
            seen += [None if result is None else result.tolist(), p.w.tolist(), x.tolist()]
        return seen

    both(program)


def test_statistics_go_on_in_a_jitted_forward_pass() -> None:
    def program() -> list[object]:
        norm = nn.BatchNorm(2)
        forward = TinyJit(norm.__call__)
        with Context(TRAINING=1):
            for i in range(5):
                forward(Tensor([[1.0, 2.0], [3.0, i]]).contiguous().realize())
        return [t.tolist() for t in (norm.running_mean, norm.running_var, norm.num_batches_tracked)]

    both(program)


def test_a_pending_write_of_another_thread_is_not_captured() -> None:
    w, other = stored(), stored()
    calls: list[int] = []

    def step(x: Tensor) -> Tensor:
        calls.append(1)
        w.assign(w + x)
        if len(calls) == 2:
            thread = threading.Thread(target=lambda: other.assign(other + 1))
            thread.start()
            thread.join()
        return x * 2

    jitted, x = TinyJit(step), stored()
    for _ in range(5):
        jitted(x)
    assert len(calls) == 2
    assert [w.tolist(), other.tolist()] == [[6, 12, 18, 24], [2, 3, 4, 5]]


def test_labels_that_the_function_writes_are_not_judged_by_what_was_there_before() -> None:
    labels, scores = Tensor([9, 9]).contiguous().realize(), Tensor.zeros(2, 4).contiguous().realize()

    @TinyJit
    def loss(x: Tensor) -> Tensor:
        labels.assign(Tensor([0, 1])).realize()
        found = scores.sparse_categorical_crossentropy(labels) + x.sum() * 0
        labels.assign(labels + 9).realize()
        return found

    np.testing.assert_allclose([loss(stored()).item() for _ in range(4)], np.log(4), rtol=1e-6)


STATES: dict[str, Callable[[], Tensor]] = {
    "stored": stored,
    "constant": lambda: Tensor.full((4,), 0.5),
    "literal": lambda: Tensor([1.0, 2.0, 3.0, 4.0]),
    "expression": lambda: stored() * 0.5 + 1,
    "rate": lambda: nn.optim.SGD([stored()], lr=0.5).lr,
}


@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
def test_a_state_that_has_not_been_computed_goes_on(state: Callable[[], Tensor], order: int, is_read: bool) -> None:
    def program() -> list[object]:
        rate, total, seen = state(), stored(), []

        @TinyJit
        def step(x: Tensor) -> Tensor:
            if order:
                total.assign(total + rate)
            rate.assign(rate * 0.5)
            if not order:
                total.assign(total + rate)
            return x * 1

        for _ in range(5):
            step(stored())
            if is_read:
                seen.append(total.tolist())
        return [*seen, total.tolist(), rate.tolist()]

    both(program)


def test_writes_through_views_to_a_state_that_has_not_been_computed() -> None:
    def program() -> list[object]:
        state, kept = stored() * 0.5 + 1, []

        @TinyJit
        def step(x: Tensor) -> Tensor:
            state.assign(state * 1.5)
            state[1:2].assign(x[:1])
            return state[1:3]

        for _ in range(5):
            kept.append(step(stored()))
        return [state.tolist(), kept[-1].tolist()]

    both(program)


class Box:
    """Holds a state that the caller exchanges between the first call and the second, which is captured."""

    def __init__(self, state: Callable[[], Tensor]) -> None:
        self.former, self.make = stored(), state

    def __getitem__(self, call: int) -> Tensor:
        if call == 1:
            self.former = self.make()
        return self.former


def add_to_item(s: Tensor, x: Tensor) -> None:
    s[1] = s[1] + x[0]


def add_to_slice(s: Tensor, x: Tensor) -> None:
    s[1:3] += x[:2]


def add_at_positions(s: Tensor, x: Tensor) -> None:
    at = Tensor([3, 1])
    s[at] = s[at] + x[:2]


def fill_mask(s: Tensor, x: Tensor) -> None:
    s[s > 2] = s.sum() % 7 + x[0]


def write_if(s: Tensor, x: Tensor) -> None:
    s[x[0] > 0] = s * 0.5 + 1


def add_to_view(s: Tensor, x: Tensor) -> None:
    view = s[1:]
    view[0] = view[1] + x[0]
    s += view.sum()


ITEM_WRITERS = [add_to_item, add_to_slice, add_at_positions, fill_mask, write_if, add_to_view]


@pytest.mark.parametrize("write", ITEM_WRITERS)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
def test_items_of_a_state_that_was_never_computed_go_on(
    state: Callable[[], Tensor], write: Callable[[Tensor, Tensor], None]
) -> None:
    def program() -> list[object]:
        box = Box(lambda: state().expand(4).contiguous() if state is STATES["rate"] else state())
        step = TinyJit(lambda x: (write(box.former, x), x * 2)[1])
        for call in range(5):
            box[call]
            step(stored())
        return [box.former.tolist()]

    both(program)


@pytest.mark.parametrize("axis", [0, None])
def test_items_of_a_split_state_that_was_never_computed_go_on(axis: int | None) -> None:
    def program() -> list[object]:
        box = Box(lambda: stored().shard(("CPU:0", "CPU:1"), axis) * 2)
        box.former = box.make().realize()

        @TinyJit
        def step(x: Tensor) -> Tensor:
            box.former[0] = box.former[3] + 1
            box.former[1:3] += 1
            return x * 2

        for call in range(5):
            box[call]
            step(stored())
        return [box.former.tolist()]

    both(program)


def part_computed_by_itself(wholes: list[Tensor]) -> Tensor:
    wholes.append(stored() * 2)
    return wholes[-1][1:].realize()


@pytest.mark.parametrize("is_set", [False, True], ids=["assign", "set item"])
@pytest.mark.parametrize("is_part", [False, True], ids=["repeats elements", "computed by itself"])
def test_writes_to_a_view_that_gets_other_storage_by_them(is_set: bool, is_part: bool) -> None:
    def program() -> list[object]:
        wholes: list[Tensor] = []
        box = Box(lambda: part_computed_by_itself(wholes) if is_part else stored()[:1].expand(4))
        seen = []

        @TinyJit
        def step(x: Tensor) -> Tensor:
            s = box.former
            if is_set:
                s[1] = s[0] + s[1] + x[0]
                s[0] = s[1] * 0.5
            else:
                s.assign(s * 0.5 + x.sum())
            return x * 2

        for call in range(6):
            box[call]
            step(stored())
            if call > 3:
                seen.append(box.former.tolist())
        return [*seen, [w.tolist() for w in wholes]]

    both(program)


def test_a_result_is_a_view_of_a_state_that_has_not_been_computed() -> None:
    def program() -> list[object]:
        state, results = stored() * 2, []

        @TinyJit
        def step(x: Tensor) -> Tensor:
            state.assign(state * 0.5 + x)
            return state[1:3]

        for _ in range(5):
            results.append(step(stored()))
        return [state.tolist(), results[-1].tolist()]

    both(program)


def test_a_state_is_read_before_the_write_that_gives_it_storage() -> None:
    def program() -> list[object]:
        state, seen = stored() * 1, []

        @TinyJit
        def step(x: Tensor) -> Tensor:
            double = (state * 2).realize()
            state.assign(state * 0.5 + x)
            return double

        for _ in range(5):
            seen.append(step(stored()).tolist())
        return [*seen, state.tolist()]

    both(program)


class Interleaved:
    """Steps that compute something in the middle, while writes of theirs or of the caller are pending."""

    def __init__(self) -> None:
        self.a, self.b, self.kept = stored(), stored(), [stored()]

    def reads_before_it_writes(self, x: Tensor) -> Tensor:
        total = (self.a * 2).sum()
        self.a.assign(self.a * 1.5)
        total.realize()
        return x

    def two_writes(self, x: Tensor) -> Tensor:
        total = (self.a * 2).sum()
        self.a.assign(self.a * 1.5)
        total.realize()
        self.b.assign(self.b + self.a)
        return x

    def reads_one_after_another(self, x: Tensor) -> Tensor:
        (self.a * 2).sum().realize()
        (self.b * 1).sum().realize()
        return x

    def keeps_what_it_read(self, x: Tensor) -> Tensor:
        self.kept[0] = self.a * self.b + x
        self.a.assign(self.a + 1).realize()
        return x * 1

    def computes_what_the_caller_left_too(self, x: Tensor) -> Tensor:
        double = (self.a * 2).contiguous().realize()
        self.b.assign(self.b + 1).realize()
        self.a.assign(self.a * 3 + x)
        return double + x


@pytest.mark.parametrize("name", [name for name in vars(Interleaved) if not name.startswith("_")])
@pytest.mark.parametrize("left", ["nothing", "writes", "reads", "a write once"])
def test_what_is_computed_in_the_middle_of_a_step(name: str, left: str) -> None:
    def program() -> list[object]:
        p, seen = Interleaved(), []
        step = TinyJit(getattr(p, name))
        for i in range(5):
            if left == "writes":
                p.a.assign(p.a * 1.5)
                p.b.assign((p.a * 2).contiguous() + p.b)
            if left == "reads":
                seen.append((p.a * 2).contiguous() + p.b)
            if left == "a write once" and i == 1:
                p.b.assign(p.b * 3)
            step(Tensor([i, 1.0, 2.0, 3.0]).contiguous().realize())
        return [t.tolist() for t in (p.a, p.b, *seen)]

    both(program)


def test_what_a_step_makes_of_a_value_of_the_caller_is_its_own() -> None:
    def program() -> list[object]:
        s, results = stored(), []
        box = Box(lambda: s * 2)

        @TinyJit
        def step(x: Tensor) -> list[Tensor]:
            first, second = box.former + x, s * x
            return [second.realize(), first]

        for i in range(5):
            box[i]
            if i == 1:
                s.assign(s + 1)
            results.append([t.tolist() for t in step(Tensor([i, 1.0, 2.0, 3.0]).contiguous().realize())])
        return results

    both(program)


@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
def test_gradients_add_up_over_the_calls(is_read: bool) -> None:
    def program() -> list[object]:
        w, seen = stored(), []

        @TinyJit
        def step(x: Tensor) -> Tensor:
            loss = (w * x).sum()
            loss.backward()
            return loss

        for i in range(5):
            step(Tensor([i, 1.0, 2.0, 3.0]).contiguous().realize())
            assert w.grad is not None
            if is_read:
                seen.append(w.grad.tolist())
        return [*seen, w.grad.tolist()]

    both(program)


LAZY: dict[str, Callable[[], Tensor]] = {
    **STATES,
    "number": lambda: Tensor(2.0),
    "expanded": lambda: Tensor([2.0]).contiguous().realize().expand(4),
}


@pytest.mark.parametrize("first", [0, 2], ids=["from the first call on", "from the third call on"])
@pytest.mark.parametrize("is_set", [False, True], ids=["assign", "set item"])
@pytest.mark.parametrize("state", LAZY.values(), ids=LAZY.keys())
def test_a_state_that_has_not_been_computed_is_written_between_calls(
    state: Callable[[], Tensor], is_set: bool, first: int
) -> None:
    if is_set and state is LAZY["number"]:
        pytest.skip("it has no items")

    def program() -> list[object]:
        rate, total = state(), stored()
        step = TinyJit(lambda x: (total.assign(total + rate * 2), x * 1)[1])
        for i in range(6):
            step(stored())
            if i >= first and is_set:
                total.realize()
                rate[:1] = i
            elif i >= first:
                rate.assign(rate * 0.5)
        return [total.tolist(), rate.tolist()]

    both(program)


@pytest.mark.parametrize("by_jit", [False, True], ids=["by the caller", "by a capture"])
def test_what_an_expression_was_computed_from_is_written_between_calls(by_jit: bool) -> None:
    def program() -> list[object]:
        w, total = stored(), stored()
        grow = TinyJit(lambda x: (w.assign(w + x), x * 1)[1])
        for _ in range(3):
            grow(stored())
        double = w * 2
        step = TinyJit(lambda x: (total.assign(total + double), x * 1)[1])
        for i in range(6):
            step(stored())
            if i >= 2 and by_jit:
                grow(stored())
            elif i >= 2:
                w.assign(w + 1).realize()
        return [total.tolist(), double.tolist(), w.tolist()]

    both(program)


def test_two_captures_that_write_to_what_the_other_reads() -> None:
    def program() -> list[object]:
        s, t = stored() * 1, stored() * 1
        first = TinyJit(lambda x: (s.assign(s * 2 + t), x * 1)[1])
        second = TinyJit(lambda x: (t.assign(t + s), x * 1)[1])
        for i in range(9):
            (second if i % 3 else first)(stored())
        return [s.tolist(), t.tolist()]

    both(program)


def test_a_state_is_captured_anew_once() -> None:
    rate, calls = stored() * 1, []

    @TinyJit
    def step(x: Tensor) -> Tensor:
        calls.append(1)
        return x * rate

    for _ in range(8):
        step(stored())
        rate.assign(rate * 0.5)
    assert len(calls) == 3


class Equal:
    """Functions that compute an expression which the caller has left pending too: both are one node."""

    def __init__(self) -> None:
        self.w, self.state = stored(), stored()
        self.state = self.w * 2

    def adds_it_to_the_state(self, x: Tensor) -> Tensor:
        self.state.assign(self.state + self.w * 2)
        return x * 1

    def returns_it(self, x: Tensor) -> Tensor:
        result = self.w * 2
        self.w.assign(self.w + x).realize()
        return result

    def accumulates_gradients(self, x: Tensor) -> Tensor:
        (self.w * self.state.detach()).sum().backward()
        self.w.square().sum().backward()
        self.state.assign(self.state + self.w.grad)
        return x * 1


@pytest.mark.parametrize("name", [name for name in vars(Equal) if not name.startswith("_")])
def test_an_expression_that_the_caller_has_left_pending_too(name: str) -> None:
    def program() -> list[object]:
        p, seen = Equal(), []
        step = TinyJit(getattr(p, name))
        for i in range(6):
            if name == "returns_it":
                seen.append(p.w * 2)
            seen.append(step(stored()))
            if i == 3:
                p.w.assign(p.w * 3).realize()
        return [t.tolist() for t in (*seen, p.w, p.state)]

    both(program)


@pytest.mark.parametrize("how", ["assign", "replace"])
def test_an_old_tensor_that_is_another_value_now_is_computed_before_the_replay_that_overwrites_what_it_reads(
    how: str,
) -> None:
    """It stood among the tensors that the replays before had looked at already."""
    state, other = Tensor([1.0, 2.0]).realize(), Tensor([5.0, 5.0]).realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return x * 2

    held = other * 3
    for _ in range(4):
        step(Tensor([1.0, 1.0]).realize())
    getattr(held, how)(state * 10)
    for _ in range(2):
        step(Tensor([1.0, 1.0]).realize())
    assert held.tolist() == [50.0, 60.0]
