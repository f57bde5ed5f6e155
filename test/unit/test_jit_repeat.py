"""Replays with the same arguments as before reuse storage only where nobody can tell."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, Variable
from tinygrad.engine import repeat
from tinygrad.engine.jit import JitError
from tinygrad.errors import ShapeError
from tinygrad.helpers import Context, GlobalCounters
from tinygrad.uop.ops import UOp


def warm(function: TinyJit, *args: Tensor) -> TinyJit:
    """Call until replays can be repeated."""
    for _ in range(5):
        function(*args)
    assert function.captured is not None
    assert function.captured._repeat is not None
    return function


@pytest.fixture
def x() -> Tensor:
    return Tensor([[1.0, 2.0], [3.0, 4.0]]).contiguous().realize()


def double(t: Tensor) -> Tensor:
    return (t * 2).realize()


def test_results_follow_the_contents_of_the_argument(x: Tensor) -> None:
    f = warm(TinyJit(double), x)
    for i in range(4):
        x.assign(Tensor.full((2, 2), float(i))).realize()
        assert f(x).tolist() == [[2.0 * i] * 2] * 2


def test_storage_is_reused_when_nobody_holds_the_result(x: Tensor) -> None:
    f = warm(TinyJit(double), x)
    assert len({f(x).uop.base.buffer._buf.address for _ in range(5)}) == 1
    result = f(x)
    places = []
    for _ in range(6):
        result = f(x)  # the result before is held until this one is there
        places.append(result.uop.base.buffer._buf.address)
    assert len(set(places)) == 2


def places_of_results(f: TinyJit, x: Tensor) -> int:
    """Return at how many places the results of some calls lie, each of which is dropped before the next call."""
    found = set()
    for _ in range(6):
        found.add(id(f(x).uop.base.buffer))
    return len(found)


def test_large_results_are_kept_up_to_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # what other tests have left
    x = Tensor.ones(1 << 19).contiguous().realize()
    monkeypatch.setattr(repeat, "MOST_BYTES", sum(r.nbytes for r in repeat._large_results) + 3 * x.nbytes())
    functions = [warm(TinyJit(double), x) for _ in range(3)]
    held = [f(x) for f in functions for _ in range(3)]
    gc.collect()
    assert sum(r.nbytes for r in repeat._large_results) <= repeat.MOST_BYTES
    x.assign(x * 2).realize()
    assert all(kept[:2].tolist() == [2, 2] for kept in held)
    assert [f(x)[-2:].tolist() for f in functions] == [[4, 4]] * 3
    del held, functions
    gc.collect()
    assert places_of_results(warm(TinyJit(double), x), x) == 1


def test_a_function_that_is_gone_keeps_no_large_results() -> None:
    gc.collect()
    before = GlobalCounters.mem_used
    x = Tensor.ones(1 << 19).contiguous().realize()
    f = warm(TinyJit(double), x)
    f(x)
    del x, f
    gc.collect()
    assert GlobalCounters.mem_used <= before


def test_results_that_are_kept_keep_their_values(x: Tensor) -> None:
    f = warm(TinyJit(double), x)
    kept = []
    for i in range(4):
        x.assign(Tensor.full((2, 2), float(i))).realize()
        kept.append(f(x))
    assert [k.tolist()[0][0] for k in kept] == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize("keep", [
    lambda r: r[1],
    lambda r: r.reshape(4)[1:3],
    lambda r: r + 1,
    lambda r: r.T,
    lambda r: r.uop,
    lambda r: r.uop.base,
    lambda r: r.uop.base.buffer,
    lambda r: r.uop.base.buffer.view(2, r.dtype, 4),
])  # fmt: skip
def test_what_is_made_of_a_result_keeps_it(x: Tensor, keep: object) -> None:
    f = warm(TinyJit(double), x)
    kept = keep(f(x))  # type: ignore[operator]
    x.assign(Tensor.full((2, 2), 100.0)).realize()
    f(x)
    buffer = kept if hasattr(kept, "as_memoryview") or hasattr(kept, "copyout") else None
    if isinstance(kept, Tensor):
        assert max(np.ravel(kept.numpy())) < 100
    elif buffer is not None:
        assert max(buffer.numpy()) < 100
    else:
        assert max(np.ravel(kept.buffer.numpy() if kept.op.name == "BUFFER" else kept.base.buffer.numpy())) < 100


def test_another_argument_and_back(x: Tensor) -> None:
    f = warm(TinyJit(double), x)
    y = (x + 10).realize()
    assert f(y).tolist() == [[22.0, 24.0], [26.0, 28.0]]
    assert f(x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert f(y).tolist() == [[22.0, 24.0], [26.0, 28.0]]


def test_a_result_as_the_next_argument(x: Tensor) -> None:
    f = warm(TinyJit(double), x)
    y = x
    for _ in range(8):
        y = f(y)
    assert y.tolist() == [[256.0, 512.0], [768.0, 1024.0]]
    assert f(x).tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_memory_that_moved(x: Tensor) -> None:
    f = warm(TinyJit(double), x)
    buffer = x.uop.base.buffer
    buffer.deallocate()
    other = Tensor([9.0, 9.0, 9.0, 9.0]).realize()  # takes the memory
    buffer.allocate().copyin(memoryview(np.full(4, 5.0, np.float32)).cast("B"))
    assert f(x).tolist() == [[10.0, 10.0], [10.0, 10.0]]
    assert other.tolist() == [9.0] * 4


def test_arguments_are_not_kept_alive(x: Tensor) -> None:
    f = warm(TinyJit(double), x)
    big = Tensor.zeros(2, 2).contiguous().realize()
    for _ in range(4):
        f(big)
    gc.collect()  # what other tests have left
    before = GlobalCounters.mem_used
    del big
    gc.collect()
    assert GlobalCounters.mem_used == before - 16


def test_state_and_counters(x: Tensor) -> None:
    total = Tensor.zeros(2, 2).contiguous().realize()

    @TinyJit
    def add(t: Tensor) -> Tensor:
        total.assign(total + t)
        return (total * 1.0).realize()

    for i in range(8):
        GlobalCounters.reset()
        assert add(x).tolist()[0][0] == i + 1.0
        kernels = GlobalCounters.kernel_count
    assert kernels == len(add.captured.linear.src)
    assert total.tolist() == [[8.0, 16.0], [24.0, 32.0]]
    assert add.cnt == 8


def test_python_values_and_switches_matter(x: Tensor) -> None:
    scaled = TinyJit(lambda t, n: (t * n).realize())
    for _ in range(5):
        assert scaled(x, 2).tolist()[0] == [2.0, 4.0]
        assert scaled(x, 3).tolist()[0] == [3.0, 6.0]
    f = warm(TinyJit(double), x)
    with Context(JIT=0):
        assert f(x).tolist()[0] == [2.0, 4.0]
    f.reset()
    assert f(x).tolist()[0] == [2.0, 4.0]


def pair(a: Tensor, b: Tensor) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    total = (a + b).realize()
    return total[1], {"product": (a * b).realize()}, b, a.reshape(4)


def test_nested_results_and_results_that_are_arguments(x: Tensor) -> None:
    y = Tensor([[10.0, 20.0], [30.0, 40.0]]).realize()
    f = warm(TinyJit(pair), x, y)
    kept = []
    for i in range(4):
        x.assign(Tensor.full((2, 2), float(i))).realize()
        kept.append(f(x, y))
    for i, (total, named, same, view) in enumerate(kept):
        assert total.tolist() == [30.0 + i, 40.0 + i]
        assert named["product"].tolist() == [[10.0 * i, 20.0 * i], [30.0 * i, 40.0 * i]]
        assert same is y
        assert view.tolist() == [3.0] * 4  # of the argument, which has changed since


def test_arguments_in_containers_keywords_and_values(x: Tensor) -> None:
    def mixed(n: int, tensors: list[Tensor], *, scale: dict[str, Tensor], offset: float) -> Tensor:
        return (tensors[0] * n + tensors[1] * scale["by"] + offset).realize()

    f = TinyJit(mixed)
    y = (x * 10).realize()
    by = Tensor([2.0]).realize()
    for _ in range(6):
        for n, offset in ((1, 0.5), (3, 0.0), (3, -0.0)):
            found = f(n, [x, y], scale={"by": by}, offset=offset)
            assert found.tolist() == (x * n + y * 2 + offset).tolist()
            again = f(n, [y, x], scale={"by": by}, offset=offset)
            assert again.tolist() == (y * n + x * 2 + offset).tolist()
    assert all(entry.captured._repeat is not None for entry in f._entries.values())


@pytest.mark.parametrize("nested", [False, True])
def test_values_of_variables(nested: bool, x: Tensor) -> None:
    n, m = Variable("n", 1, 100), Variable("m", 0, 9)

    def linear(t: Tensor, a: UOp | list[UOp], b: UOp) -> Tensor:
        return (t * (a[0] if isinstance(a, list) else a) + b).realize()

    f = TinyJit(linear)
    for i in range(1, 12):
        a, b = n.bind(i), m.bind(i % 3)
        assert f(x, [a] if nested else a, b).tolist() == [[i + i % 3, 2 * i + i % 3], [3 * i + i % 3, 4 * i + i % 3]]
    assert f.captured is not None
    assert f.captured._repeat is not None
    assert len(f._entries) == 1


def test_a_variable_that_bounds_loops_and_slices() -> None:
    data = np.arange(4096, dtype=np.float32)
    cache, n = Tensor(data).realize(), Variable("n", 0, 8192)

    def doubled_sum(t: Tensor, length: UOp) -> Tensor:
        return (cache[:length] * t).sum().realize()

    f, two = TinyJit(doubled_sum), Tensor([2.0]).realize()
    for length in (4, 5, 4096, 1, 0, 3000, 4095, 2, 4096):
        assert f(two, n.bind(length)).item() == 2 * data[:length].sum(dtype=np.float64)
    assert f.captured is not None
    assert f.captured._repeat is not None
    for _ in range(2):
        with pytest.raises(ShapeError, match="0 to 4097 of 4096 for n=4097"):
            f(two, n.bind(4097))
        assert f(two, n.bind(3)).item() == 6.0


def test_a_variable_says_where_state_is_written() -> None:
    cache, start = Tensor.zeros(8).contiguous().realize(), Variable("start", 0, 7)

    def put(t: Tensor, at: UOp) -> Tensor:
        cache[at : at + 1].assign(t).realize()
        return cache.sum().realize()

    f, expected = TinyJit(put), np.zeros(8, dtype=np.float32)
    for i in (0, 1, 2, 3, 7, 5, 4, 6, 0, 3):
        expected[i] = i + 1
        assert f(Tensor([i + 1.0]).realize(), start.bind(i)).item() == expected.sum()
        assert cache.tolist() == expected.tolist()


def test_unusual_variables_after_usual_ones(x: Tensor) -> None:
    n, m = Variable("n", 1, 10), Variable("m", 1, 10)
    f = TinyJit(lambda t, a, b: (t * a + b).realize())
    for i in range(1, 6):
        f(x, n.bind(i), n.bind(i))
    for _ in range(4):
        with pytest.raises(JitError, match="bind mismatch on n"):
            f(x, n.bind(1), n.bind(2))
        assert f(x, n.bind(1), m.bind(3)).tolist() == [[4.0, 5.0], [6.0, 7.0]]  # a capture of its own
        assert f(x, 2, n.bind(3)).tolist() == [[5.0, 7.0], [9.0, 11.0]]
        assert f(x, n.bind(4), n.bind(4)).tolist() == [[8.0, 12.0], [16.0, 20.0]]
    assert len(f._entries) == 3


def test_nothing_is_returned(x: Tensor) -> None:
    total = Tensor.zeros(2, 2).contiguous().realize()

    def add(t: Tensor) -> None:
        total.assign(total + t).realize()

    f = warm(TinyJit(add), x)
    assert f(x) is None
    assert total.tolist() == [[6.0, 12.0], [18.0, 24.0]]


def test_unusual_arguments_after_usual_ones(x: Tensor) -> None:
    y = (x + 1).realize()
    f = warm(TinyJit(lambda a, b: (a + b).realize()), x, y)
    for bad, message in (
        ((x, x), "duplicate inputs"), ((y, x.T), "views?"), ((x, y[0:1]), "real buffers"),
        ((x, Tensor([1.0, 2.0]).realize()), "args mismatch"), ((x,), "args mismatch"),
        ((x, (y > 0).realize()), "args mismatch"), ((x, Tensor(1.0)), "a constant"),
    ):  # fmt: skip
        for _ in range(2):
            with pytest.raises(JitError, match=message):
                f(*bad)
            assert f(x, y).tolist() == [[3.0, 5.0], [7.0, 9.0]]
    assert f(x + 10, y).tolist() == [[13.0, 15.0], [17.0, 19.0]]
    assert f((x + 10).realize(), y).tolist() == [[13.0, 15.0], [17.0, 19.0]]


def test_an_argument_that_is_the_state(x: Tensor) -> None:
    state = Tensor.zeros(2, 2).contiguous().realize()

    def step(t: Tensor) -> Tensor:
        before = (t + 1).realize()
        state.assign(state + before).realize()
        return (before + t).realize()

    f = warm(TinyJit(step), x)
    now = np.array(state.numpy())
    assert (f(state).numpy() == now * 2 + 1).all()
    assert (state.numpy() == now * 2 + 1).all()
    assert f(x).tolist() == [[3.0, 5.0], [7.0, 9.0]]


def test_results_beyond_the_sum_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "MOST_BYTES", 1 << 20)
    x = Tensor.zeros(1 << 19).contiguous().realize()
    f = TinyJit(double)
    for _ in range(5):
        result = f(x)
    assert f.captured._repeat._kept == []
    before = GlobalCounters.mem_used
    del result
    assert GlobalCounters.mem_used == before - (4 << 19)
