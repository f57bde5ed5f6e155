"""TinyJit: the life cycle of a capture, what it keeps, what it refuses."""

import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.engine.jit import GraphException, GraphRunner, JitError, MultiGraphRunner
from tinygrad.engine.realize import capturing

CALLS = 5


def real(*values) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def call_often(f, *args, times: int = 3):
    for _ in range(times):
        result = f(*args)
    return result


# ---- life cycle ------------------------------------------------------------------------------------------------------


def test_python_runs_twice_and_then_never_again():
    runs = []

    @TinyJit
    def f(x):
        runs.append(1)
        return x + 1

    for i in range(CALLS):
        assert f(real(i)).tolist() == [i + 1]
    assert len(runs) == 2
    assert f.cnt == CALLS
    assert f.captured is not None
    f.reset()
    assert f.cnt == 0
    assert f.captured is None
    f(real(1.0))
    assert len(runs) == 3


def test_results_keep_their_values():
    f = TinyJit(lambda x: x.sum().realize())
    results = [f(real(i, i)) for i in range(1, 6)]
    assert [r.item() for r in results] == [2, 4, 6, 8, 10]


def test_results_of_different_inputs_differ():
    f = TinyJit(lambda x: x * 2)
    call_often(f, real(0.0))
    assert not (f(real(1.0)) == f(real(2.0))).item()


def test_memory_of_dropped_results_is_used_again():
    f = TinyJit(lambda x: x + 1)
    x = real(*range(1000))
    call_often(f, x, times=4)
    before = GlobalCounters.mem_used
    for _ in range(20):
        result = f(x)
    assert result.tolist()[:2] == [1, 2]
    assert GlobalCounters.mem_used <= before + 2 * x.nbytes()


def test_decorator_with_arguments_and_jit_off():
    @TinyJit(prune=True)
    def f(x):
        return x + 1

    with Context(JIT=0):
        call_often(f, real(1.0))
    assert f.captured is None
    assert call_often(f, real(1.0)).tolist() == [2]
    assert f.captured is not None


@pytest.mark.parametrize(("jit", "graph"), [(1, 1), (2, 1), (1, 0)])
def test_with_and_without_graphs(jit, graph):
    with Context(JIT=jit, GRAPH=graph):
        f = TinyJit(lambda x: ((x + 1).contiguous() * 2).sum())
        for i in range(4):
            assert f(real(i, i)).item() == 4 * (i + 1)


def test_debug_lists_every_kernel_of_a_replay(capsys):
    f = TinyJit(lambda x: (x + 1).contiguous().sum())
    call_often(f, real(1.0, 2.0), times=2)
    count = len(f.captured.linear.src)
    capsys.readouterr()
    with Context(DEBUG=2):
        f(real(1.0, 2.0))
    lines = [line for line in capsys.readouterr().out.splitlines() if "***" in line]
    assert len(lines) >= count


# ---- inputs ----------------------------------------------------------------------------------------------------------


def test_tensors_in_containers_are_inputs():
    @dataclass
    class Pair:
        a: Tensor
        rest: dict

    f = TinyJit(lambda p, xs, k=None: p.a + p.rest["b"][0] + xs[0] + k)
    for i in range(4):
        got = f(Pair(real(i), {"b": (real(10 * i),)}), [real(100 * i)], k=real(1000 * i))
        assert got.tolist() == [1111 * i]
    assert f.captured.expected_names == ["0.a", "0.rest['b'][0]", "1[0]", "k"]


def test_order_of_keywords_does_not_matter():
    f = TinyJit(lambda a, b: a - b)
    f(a=real(3.0), b=real(1.0))
    f(b=real(1.0), a=real(3.0))
    assert f(b=real(2.0), a=real(5.0)).tolist() == [3]


def test_pending_inputs_are_realized_first():
    f = TinyJit(lambda x: x + 1)
    for i in range(4):
        assert f((real(i, i + 1) * 2)[1:]).tolist() == [2 * i + 3]


def test_outputs_can_be_inputs():
    f = TinyJit(lambda x: x * 2)
    x = real(1.0)
    seen = []
    for _ in range(6):
        x = f(x)
        seen.append(x)
    assert [t.item() for t in seen] == [2, 4, 8, 16, 32, 64]


def test_rolling_buffer():
    size = 1 << 12
    f = TinyJit(lambda buf, new: buf[size // 2 :].cat(new).realize())
    rng = np.random.default_rng(0)
    buffer, expected = Tensor(np.zeros(size, np.float32)).realize(), np.zeros(size, np.float32)
    for _ in range(12):
        new = rng.random(size // 2, np.float32)
        buffer = f(buffer, Tensor(new))
        expected = np.concatenate([expected[size // 2 :], new])
    np.testing.assert_array_equal(buffer.numpy(), expected)


def test_assigning_to_an_input_writes_the_callers_tensor():
    f = TinyJit(lambda x: x.assign(x + 1).realize())
    for i in range(4):
        x = real(i)
        f(x)
        assert x.tolist() == [i + 1]


def test_state_passed_as_input_is_not_overwritten_while_it_is_read():
    state = real(1.0, 2.0)

    @TinyJit
    def f(x):
        state.assign(state + 10)
        return x.flip(0) + state

    f(real(0.0, 0.0))
    f(real(0.0, 0.0))
    assert f(state).tolist() == [22 + 31, 21 + 32]


def test_python_values_select_the_capture():
    f = TinyJit(lambda x, k: x * k)
    x = real(10.0)
    for _ in range(3):
        assert [f(x, k).item() for k in (1, 2, 3, 4)] == [10, 20, 30, 40]
    assert [f(x, 2).item(), f(x, 2.5).item(), f(x, True).item()] == [20, 25, 10]


def test_too_many_python_values():
    f = TinyJit(lambda x, k: x * k)
    for k in range(64):
        assert f(real(1.0), k).item() == k
    with pytest.raises(JitError, match="64 different Python values"):
        f(real(1.0), 64)


def test_methods_have_captures_of_their_own():
    class Scale:
        def __init__(self, k):
            self.k = k

        @TinyJit
        def apply(self, x):
            return x * self.k

    two, three = Scale(2), Scale(3)
    for _ in range(4):
        assert two.apply(real(5.0)).item() == 10
        assert three.apply(real(5.0)).item() == 15
    assert two.apply is two.apply is not three.apply
    assert nn.state.get_state_dict(two) == {}
    alive = weakref.ref(two)
    del two
    gc.collect()
    assert alive() is None


def test_bound_variables():
    i = Variable("i", 1, 10)
    f = TinyJit(lambda x: x * 2)
    shapes = []
    for k in (1, 2, 3, 4):
        result = f(Tensor.ones(10)[: i.bind(k)])
        shapes.append(result.shape[0].unbind()[1])
        assert result.sum().item() == 2 * k
    assert shapes == [1, 2, 3, 4]


def test_variable_as_argument():
    v = Variable("v", 0, 8)
    f = TinyJit(lambda x, start: x[start : start + 2] + 1)
    x = Tensor(np.arange(10, dtype=np.float32)).realize()
    for k in range(5):
        assert f(x, v.bind(k)).tolist() == [k + 1, k + 2]


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: real(1.0, 2.0, 3.0)[1:], lambda: real(1.0, 2.0).reshape(2, 1).T.flip(1)])
def test_views_are_refused(make):
    f = TinyJit(lambda x: x + 1)
    with pytest.raises(JitError, match=r"JIT inputs must be real buffers; use \.clone\(\)\n.*argument 0 is a view"):
        call_often(f, make())
    assert call_often(TinyJit(lambda x: x + 1), make().clone()).numpy().size == make().numpy().size


def test_constants_are_refused():
    with pytest.raises(JitError, match=r"JIT inputs must be real buffers; use \.clone\(\)"):
        call_often(TinyJit(lambda x: x + 1), Tensor(3.0))


def test_duplicates_are_refused():
    x = real(1.0)
    with pytest.raises(JitError, match="duplicate inputs to JIT"):
        call_often(TinyJit(lambda x, y: x + y), x, x)


def test_nesting_is_refused_and_leaves_no_trace():
    inner = TinyJit(lambda x: x + 1)
    outer = TinyJit(lambda x: inner(x) * 2)
    with pytest.raises(RuntimeError, match="having TinyJit inside another TinyJit is not supported"):
        call_often(outer, real(1.0))
    assert not capturing
    assert (real(1.0) + 1).item() == 2


@pytest.mark.parametrize(
    "other", [lambda f: f(real(1.0, 2.0)), lambda f: f(x=real(1.0)), lambda f: f(real(1.0).int().realize())]
)
def test_mismatch(other):
    f = TinyJit(lambda x: x + 1)
    call_often(f, real(1.0))
    with pytest.raises(JitError, match="args mismatch in JIT"):
        other(f)
    assert f(real(4.0)).item() == 5


def test_nothing_to_capture():
    with pytest.raises(JitError, match="didn't JIT anything!"):
        call_often(TinyJit(lambda x: None), real(1.0))


@pytest.mark.parametrize("value", [1, 2.0, "text", object()])
def test_other_return_values(value):
    with pytest.raises(JitError, match="non-Tensor value"):
        call_often(TinyJit(lambda x: ((x + 1).realize(), value)), real(1.0))


def test_reading_during_capture():
    f = TinyJit(lambda x: x + x.sum().item())
    with pytest.raises(JitError, match="cannot access tensor data during JIT capture"):
        call_often(f, real(1.0))
    assert not capturing


def test_a_failed_capture_leaves_state_as_the_plain_call_would():
    state = real(1.0)

    @TinyJit
    def f(x):
        state.assign(state + x).realize()
        raise_now()
        return x

    calls = []

    def raise_now():
        calls.append(1)
        if len(calls) == 2:
            raise ZeroDivisionError

    f(real(1.0))
    with pytest.raises(ZeroDivisionError):
        f(real(1.0))
    assert state.item() == 3
    assert (state * 2).item() == 6


def test_classes_of_errors_and_graphs():
    assert issubclass(JitError, Exception)
    assert issubclass(GraphException, Exception)
    assert issubclass(MultiGraphRunner, GraphRunner)
    f = TinyJit(lambda x: x + 1)
    call_often(f, real(1.0))
    assert GraphRunner.supports_uop([], f.captured.linear.src[0])


# ---- structure of results --------------------------------------------------------------------------------------------


def test_nested_results():
    f = TinyJit(lambda x: {"a": (x + 1, [x * 2, None]), "t": (x + 1).reshape(1, 1).expand(1, 3)})
    for i in range(4):
        result = f(real(i))
        assert result["a"][0].tolist() == [i + 1]
        assert result["a"][1][0].tolist() == [2 * i]
        assert result["a"][1][1] is None
        assert result["t"].tolist() == [[i + 1] * 3]


def test_returning_inputs_and_untouched_tensors():
    constant = real(7.0)
    f = TinyJit(lambda x: (x, constant, x.reshape(1, 1), x + 1))
    for i in range(4):
        x = real(i)
        same, other, view, more = f(x)
        assert same is x
        assert other is constant
        assert (view.tolist(), more.tolist()) == ([[i]], [i + 1])


def test_a_result_that_somebody_keeps_is_still_written():
    class Model:
        last = None

        @TinyJit
        def step(self, x):
            self.last = (x + 1).realize()
            return self.last.reshape(1, 1)

    model = Model()
    results = [model.step(real(i)) for i in range(5)]
    assert [r.tolist() for r in results] == [[[1]], [[2]], [[3]], [[4]], [[5]]]
    assert model.last.item() == 5


# ---- random numbers --------------------------------------------------------------------------------------------------


def draws(jit: bool) -> list[np.ndarray]:
    Tensor.manual_seed(1)
    fxn = lambda x: x + Tensor.rand(100)  # noqa: E731
    f = TinyJit(fxn) if jit else fxn
    drawn = [f(Tensor(np.zeros(100, np.float32))).numpy() for _ in range(8)]
    return [*drawn, Tensor.rand(3).numpy()]


def test_random_numbers_go_on_and_are_those_of_a_plain_run():
    plain, jitted = draws(jit=False), draws(jit=True)
    assert len({d.tobytes() for d in jitted}) == 9
    for a, b in zip(plain, jitted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_random_tensors_made_outside_do_not_freeze_the_numbers():
    Tensor.rand(4)  # never computed
    f = TinyJit(lambda x: x + Tensor.rand(4))
    seen = {f(real(0, 0, 0, 0)).numpy().tobytes() for _ in range(5)}
    assert len(seen) == 5


# ---- training --------------------------------------------------------------------------------------------------------


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(16, 32), nn.Linear(32, 4)

    def __call__(self, x):
        return self.l2(self.l1(x).relu())


def losses(jit: bool) -> list[float]:
    Tensor.manual_seed(3)
    net = Net()
    optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    f = TinyJit(step) if jit else step
    with Context(TRAINING=1):
        return [f(Tensor.rand(8, 16), Tensor([i % 4] * 8)).item() for i in range(6)]


def test_training_is_the_same_with_and_without():
    np.testing.assert_allclose(losses(jit=True), losses(jit=False), rtol=1e-5)


def test_train_step_that_returns_the_loss_of_backward():
    net = Net()

    @TinyJit
    def train_step(x, target):
        loss = net(x).sparse_categorical_crossentropy(target)
        return loss.backward()

    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.random((8, 16), np.float32)
        got = train_step(Tensor(x), Tensor([1] * 8)).item()
        assert got == pytest.approx(net(Tensor(x)).sparse_categorical_crossentropy(Tensor([1] * 8)).item(), rel=1e-5)


def test_two_micro_batches_add_up():
    w = real(2.0, 3.0)

    @TinyJit
    def step(a, b):
        w.grad = None
        for x in (a, b):
            (w * x).sum().backward()
        return w.grad.realize()

    for i in range(4):
        assert step(real(i, 1), real(10, 20)).tolist() == [i + 10, 21]


# ---- more modes ------------------------------------------------------------------------------------------------------


def test_recapture_keeps_a_capture_per_shape_and_copies_views():
    runs = []

    @TinyJit(recapture=True)
    def f(x):
        runs.append(x.shape)
        return x + 1

    data = real(*range(6))
    for n in (2, 3, 2, 3, 2, 3, 3):
        assert f(data[1 : 1 + n]).tolist() == [2, 3, 4][:n]
    assert f(Tensor(1.0)).item() == 2
    assert len(runs) == 5


def test_recapture_refuses_writes_to_a_copied_view():
    f = TinyJit(lambda x: x.assign(x + 1).sum(), recapture=True)
    base = real(1.0, 2.0, 3.0, 4.0)
    assert f(base[1:3]).item() == 7
    for _ in range(2):
        with pytest.raises(JitError, match="argument 0 is a view or a constant"):
            f(base[1:3])
    assert base.tolist() == [1, 3, 4, 4]
    whole = real(0.0, 0.0)
    assert [f(whole).item() for _ in range(4)] == [2, 4, 6, 8]
    with pytest.raises(JitError, match="argument 0 is a view or a constant"):
        f(base[1:3])  # there is a capture for this shape, which writes to what it is given
    assert [base.tolist(), whole.tolist()] == [[1, 3, 4, 4], [4, 4]]


def test_prune_runs_constant_kernels_once():
    w = real(1.0, 2.0)
    f = TinyJit(lambda x: x + (w * 2).contiguous(), prune=True)
    for i in range(4):
        assert f(real(i, i)).tolist() == [i + 2, i + 4]
    assert len(f.captured.linear.src) == 1


def test_prune_keeps_state():
    count = real(0.0)

    @TinyJit(prune=True)
    def f(x):
        count.assign(count + 1)
        return x + count

    assert [f(real(0.0)).item() for _ in range(5)] == [1, 2, 3, 4, 5]


def test_free_intermediates():
    f = TinyJit(lambda x: ((x + 1).contiguous() * 2).contiguous().sum())
    x = real(*range(1000))
    expected = call_often(f, x).item()
    before = GlobalCounters.mem_used
    f.captured.free_intermediates()
    gc.collect()
    assert GlobalCounters.mem_used <= before
    assert f(x).item() == expected


def test_pickle():
    w = real(1.0, 2.0)
    f = TinyJit(lambda x: (x * w).sum() + 1)
    with pytest.raises(AssertionError, match="can't pickle an uncaptured JIT"):
        pickle.dumps(f)
    call_often(f, real(1.0, 1.0))
    loaded = pickle.loads(pickle.dumps(f))
    assert loaded.cnt == 2
    assert loaded.fxn is None
    assert loaded(real(3.0, 4.0)).item() == 12
    with pytest.raises(AssertionError, match="can't reset without function"):
        loaded.reset()


def test_two_values_of_one_variable():
    v = Variable("n", 1, 8)
    x = real(*range(8))

    @TinyJit
    def f(a):
        return (a[: v.bind(2)].sum().realize() + a[: v.bind(3)].sum().realize()).realize()

    f(x)
    with pytest.raises(RuntimeError, match="bind mismatch on n"):
        f(x)


# ---- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_threads(shared):
    rng = np.random.default_rng(0)
    weights = rng.random((32, 32), np.float32)
    weight = Tensor(weights).realize()
    make = lambda: TinyJit(lambda x: (x @ weight).relu().sum(1))  # noqa: E731
    one = make()
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        f = one if shared else make()
        mine = np.random.default_rng(seed)
        try:
            for _ in range(8):
                x = mine.random((4, 32), np.float32)
                np.testing.assert_allclose(f(Tensor(x)).numpy(), (x @ weights).sum(1), rtol=1e-4)
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_replay_in_a_forked_child():
    f = TinyJit(lambda x: (x @ x).sum(1) + 0.5)
    x = Tensor(np.ones((64, 64), np.float32)).realize()
    call_often(f, x)
    child = os.fork()
    if child == 0:
        try:
            good = f(Tensor(np.full((64, 64), 2.0, np.float32))).tolist() == [64 * 64 * 4 + 0.5] * 64
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_gradient_that_the_argument_has_too():
    def gradient_of_a_clone(x: Tensor) -> Tensor:
        y = x.clone()
        (y * y).sum().backward()
        return y.grad

    jitted = TinyJit(gradient_of_a_clone)
    assert [jitted(real(float(n))).tolist() for n in range(1, 6)] == [[2.0 * n] for n in range(1, 6)]


def test_a_result_that_a_live_tensor_computes_too():
    kept = []

    def both(x: Tensor) -> Tensor:
        kept.append(x * 7)
        return x * 7

    jitted = TinyJit(both)
    assert [jitted(real(float(n))).tolist() for n in range(1, 6)] == [[7.0 * n] for n in range(1, 6)]


@pytest.mark.parametrize("other", [3, "name", [1]], ids=str)
def test_what_cannot_be_called(other):
    with pytest.raises(TypeError, match=r"TinyJit: .* is not callable"):
        TinyJit(other)


def test_an_argument_that_holds_itself():
    values = [real(1.0)]
    values.append(values)
    with pytest.raises(JitError, match=r"argument 0\[1\].* is nested too deeply, or holds itself"):
        TinyJit(lambda values: values[0] + 1)(values)
    values.clear()  # leaves no cycle behind


NO_TENSORS: dict[str, tuple[Any, str]] = {
    "array": (np.ones(3, np.float32), r"numpy\.ndarray"),
    "list": ([[1.0, 2.0], [3.0, 4.0]], "list"),
    "None": (None, "NoneType"),
    "int": (3, "int"),
    "object": (object(), "object"),
}


@pytest.mark.parametrize(("value", "kind"), NO_TENSORS.values(), ids=NO_TENSORS.keys())
@pytest.mark.parametrize("recapture", [False, True])
def test_what_is_no_tensor_in_the_place_of_one(value: Any, kind: str, recapture: bool) -> None:
    @TinyJit(recapture=recapture)
    def double(x: Tensor) -> Tensor:
        return x.mul(2).realize()

    for _ in range(3):
        double(Tensor.ones(3).contiguous().realize())
    with pytest.raises(TypeError, match=rf"argument 0 is of type {kind}, and was a Tensor(?s:.)*hint  pass a Tensor"):
        double(value)
    assert double(Tensor.ones(3).contiguous().realize()).tolist() == [2.0] * 3


def test_arrays_in_the_place_of_tensors_where_the_function_takes_both() -> None:
    @TinyJit
    def double(x: Any) -> Tensor:
        return ((x if isinstance(x, Tensor) else Tensor(x)) * 2).realize()

    for _ in range(3):
        assert double(Tensor.ones(3).contiguous().realize()).tolist() == [2.0] * 3
    for number in (1.0, 3.0, 3.0, 3.0, 5.0, 3.0):
        assert double(np.full(3, number, np.float32)).tolist() == [2 * number] * 3


def test_errors_of_the_function_itself_stay() -> None:
    @TinyJit
    def double(x: Tensor, mode: str) -> Tensor:
        if mode != "plain":
            raise TypeError("no such mode")
        return (x * 2).realize()

    x = Tensor.ones(3).contiguous().realize()
    for _ in range(3):
        double(x, "plain")
    with pytest.raises(TypeError, match=r"^no such mode$"):
        double(x, "fancy")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda: Tensor.ones(4), "pad it to the captured shape, bind its size to a Variable"),
        (lambda: Tensor.ones(3, dtype=dtypes.int32), r"cast it to dtypes\.float"),
        (lambda: Tensor.ones(3, device="PYTHON"), "move it to CPU"),
    ],
)
def test_hints_for_an_input_that_looks_different(change: Callable[[], Tensor], hint: str) -> None:
    @TinyJit
    def double(x: Tensor) -> Tensor:
        return (x * 2).realize()

    for _ in range(3):
        double(Tensor.ones(3, device="CPU").contiguous().realize())
    with pytest.raises(JitError, match=rf"argument 0 was .* in the capture(?s:.)*hint  {hint}, or use TinyJit"):
        double(change().contiguous().realize())
