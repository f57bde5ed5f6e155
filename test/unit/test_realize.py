"""Running schedules: launches, counters, the printed lines, errors, threads and processes."""

import itertools
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tinygrad import Context, Device, GlobalCounters, Tensor, Variable
from tinygrad.codegen import program_cache
from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.engine import realize
from tinygrad.engine.realize import (
    capturing,
    compile_linear,
    estimate_uop,
    get_call_name,
    get_call_outs_ins,
    get_runtime,
    run_linear,
    time_call,
)
from tinygrad.runtime.support.cpu_peak import cpu_peak
from tinygrad.uop import Ops
from tinygrad.uop.ops import CallInfo, KernelInfo, UOp

N = 64


def add_kernel(value: float, n: int = N) -> UOp:
    out, x = UOp.param(0, dtypes.float, (n,)), UOp.param(1, dtypes.float, (n,))
    r = UOp.range(n, 0)
    return UOp.sink(out.index(r).store(x.index(r) + UOp.const(value, dtypes.float)).end(r), arg=KernelInfo())


def unseen_number() -> float:
    """Return a number whose kernels no earlier run has left on disk."""
    return 1e5 + int.from_bytes(os.urandom(3), "little") / 256


def call(body: UOp, *args: UOp) -> UOp:
    return UOp(Ops.CALL, dtypes.void, (body, *args), CallInfo())


def schedule(*calls: UOp) -> UOp:
    return UOp(Ops.LINEAR, dtypes.void, calls)


def filled(values: np.ndarray, device: str = "CPU") -> UOp:
    node = UOp.new_buffer(device, values.size, dtypes.float)
    node.buffer.allocate().copyin(memoryview(values.astype(np.float32)))
    return node


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_kernels_and_copies(device):
    x = filled(np.arange(N), device)
    y, z = UOp.new_buffer(device, N, dtypes.float), UOp.new_buffer("CPU", N, dtypes.float)
    copy = UOp(Ops.COPY, dtypes.float, (UOp.param(1, dtypes.float, (N,), device),), "CPU")
    linear = schedule(call(add_kernel(1.0), y, x), call(copy, z, y), call(add_kernel(2.0), z, z))
    GlobalCounters.reset()
    assert run_linear(linear) is None
    np.testing.assert_array_equal(z.buffer.numpy(), np.arange(N) + 3)
    assert GlobalCounters.kernel_count == 3
    assert GlobalCounters.global_ops == 2 * N
    assert GlobalCounters.global_mem >= 4 * N * 4
    run_linear(linear, update_stats=False)
    assert GlobalCounters.kernel_count == 3
    assert run_linear(linear, wait=True) > 0


def test_params_stand_for_input_uops():
    body = add_kernel(1.0)
    linear = schedule(call(body, UOp.param(1, dtypes.float, (N,), "CPU"), UOp.param(0, dtypes.float, (N,), "CPU")))
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    run_linear(linear, input_uops=(x, y))
    np.testing.assert_array_equal(y.buffer.numpy(), np.arange(N) + 1)
    with pytest.raises(RuntimeError, match="argument 1, but 1 are given"):
        run_linear(linear, input_uops=(x,))


def test_compile_linear_gives_programs():
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    linear = schedule(call(add_kernel(1.0), y, x))
    compiled = compile_linear(linear)
    body = compiled.src[0].src[0]
    assert body.op is Ops.PROGRAM
    assert [u.op for u in body.src] == [Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.BINARY]
    assert compile_linear(compiled) is compiled
    run_linear(compiled)
    np.testing.assert_array_equal(y.buffer.numpy(), np.arange(N) + 1)
    assert get_runtime("CPU", body) is get_runtime("CPU", body)
    assert get_runtime("CPU", body, cache=False) is not get_runtime("CPU", body)
    assert get_call_outs_ins(linear.src[0]) == get_call_outs_ins(compiled.src[0]) == ((0,), (1,))
    assert get_call_name(compiled.src[0]) == body.arg.name
    assert estimate_uop(linear.src[0]).ops == N


def test_a_cached_schedule_is_found_by_identity(monkeypatch):
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    linear = schedule(*(call(add_kernel(1.0), y, x) for _ in range(3)))
    run_linear(linear)
    monkeypatch.setattr(realize, "start_launch", lambda *key: pytest.fail("compiled again"))
    run_linear(linear)
    with Context(NOOPT=1), pytest.raises(BaseException, match="compiled again"):
        run_linear(linear)


def test_many_kernels_compile_in_parallel(monkeypatch):
    names, lowering = set(), set()
    start = realize.start_launch

    def watched(body, device):
        lowering.add(threading.current_thread())
        finish = start(body, device)

        def compiling():
            names.add(threading.current_thread().name)
            return finish()

        return compiling

    monkeypatch.setattr(realize, "start_launch", watched)
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    first = unseen_number()
    linear = schedule(*(call(add_kernel(first + i), y, x) for i in range(6)))
    with Context(PARALLEL=3):
        run_linear(linear)
    np.testing.assert_array_equal(y.buffer.numpy(), np.arange(N, dtype=np.float32) + np.float32(first + 5))
    assert lowering == {threading.current_thread()}
    # The thread that lowers compiles too, once nothing is left to lower.
    assert any(name.startswith("tinygrad-compile") for name in names)
    assert all(name.startswith("tinygrad-compile") for name in names - {threading.current_thread().name})


def test_threads_that_compile_neither_load_nor_store(monkeypatch):
    compiling, loading, storing = set(), set(), set()

    def noting(owner, name, threads):
        function = getattr(owner, name)

        def noted(*args):
            threads.add(threading.current_thread())
            return function(*args)

        monkeypatch.setattr(owner, name, noted)

    noting(Device["CPU"].renderer.compiler, "compile", compiling)
    noting(realize, "KernelLaunch", loading)
    noting(program_cache, "diskcache_put", storing)
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    first = unseen_number()
    linear = schedule(*(call(add_kernel(first + i), y, x) for i in range(12)))
    with Context(PARALLEL=3, CCACHE=1, CACHELEVEL=2):
        run_linear(linear)
    np.testing.assert_array_equal(y.buffer.numpy(), np.arange(N, dtype=np.float32) + np.float32(first + 11))
    assert compiling - {threading.current_thread()}
    assert loading == storing == {threading.current_thread()}
    assert not any(t.name.startswith("tinygrad-compile") for t in threading.enumerate())


def test_variables():
    v = Variable("v", 1, N)
    out, x = UOp.param(0, dtypes.float, (N,)), UOp.param(1, dtypes.float, (N,))
    r = UOp.range(v, 0)
    body = UOp.sink(out.index(r).store(x.index(r)).end(r), arg=KernelInfo())
    a, b = filled(np.ones(N)), filled(np.zeros(N))
    linear = schedule(call(body, b, a))
    run_linear(linear, {"v": 10})
    assert b.buffer.numpy().sum() == 10
    with pytest.raises(RuntimeError, match="unbound Variable v"):
        run_linear(linear)


def test_capturing_receives_schedules_of_its_thread_only():
    class Recorder:
        def __init__(self):
            self.seen = []

        def add_linear(self, linear, var_vals):
            self.seen.append((linear, var_vals))

    recorder = Recorder()
    other: list = []
    capturing.append(recorder)
    try:
        result = (Tensor([1.0, 2.0]) + 1).realize()
        thread = threading.Thread(target=lambda: other.append((Tensor([1.0]) + 1).item()))
        thread.start()
        thread.join()
        with Context(CAPTURING=0):
            assert (Tensor([1.0, 5.0]) * 3).tolist() == [3, 15]
    finally:
        capturing.pop()
    assert other == [2]
    assert len(recorder.seen) == 1
    run_linear(*recorder.seen[0])
    assert result.tolist() == [2, 3]


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_buffers_on_two_devices():
    x, y = filled(np.arange(N)), UOp.new_buffer("PYTHON", N, dtypes.float)
    with pytest.raises(RuntimeError, match="all buffers must be on the same device"):
        run_linear(schedule(call(add_kernel(1.0), y, x)))


def test_unknown_bodies():
    x = filled(np.arange(N))
    with pytest.raises(RuntimeError, match="NOOP cannot be run"):
        run_linear(schedule(call(UOp(Ops.NOOP, dtypes.void), x)))


def test_out_of_memory_names_the_kernel_and_leaves_the_process_usable(monkeypatch):
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    linear = schedule(call(add_kernel(1.0), y, x))
    name = compile_linear(linear).src[0].src[0].arg.name

    def fails(size, options=None):
        raise MemoryError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr(Device["CPU"].allocator, "alloc", fails)
        with pytest.raises(
            MemoryError, match=rf"kernel {name} on CPU needs .* MB for argument 0 \(its arguments: 64 x float"
        ):
            run_linear(linear)
    run_linear(linear)
    np.testing.assert_array_equal(y.buffer.numpy(), np.arange(N) + 1)


def test_a_realize_that_fails_can_be_repeated(monkeypatch):
    x = Tensor(np.arange(7, dtype=np.float32)).realize()
    with monkeypatch.context() as patch:
        patch.setattr(realize, "start_launch", lambda *key: (_ for _ in ()).throw(RuntimeError("compiler is gone")))
        with pytest.raises(RuntimeError, match="compiler is gone"):
            (x * 1234.5).realize()
    assert (x * 1234.5).tolist()[1] == 1234.5


# ---- output and checks -----------------------------------------------------------------------------------------------


def test_line_of_a_kernel(capsys):
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    copy = UOp(Ops.COPY, dtypes.float, (UOp.param(1, dtypes.float, (N,), "CPU"),), "CPU")
    GlobalCounters.reset()
    with Context(DEBUG=2, NO_COLOR=1):
        run_linear(schedule(call(add_kernel(1.0), y, x), call(copy, x, y)))
    first, second = [line for line in capsys.readouterr().out.splitlines() if line.startswith("***")]
    for part in ("*** CPU        1 E_", "arg  2 mem", "GB tm", "us/", "GFLOPS", "GB/s"):
        assert part in first
    assert "copy" in second
    assert "CPU <- CPU" in second
    assert re.search(r"GFLOPS +\d+% +[\d.]+ GB/s +\d+%\)", first)
    assert GlobalCounters.time_sum_s > 0


def test_peak_of_the_machine_is_plausible():
    ops, nbytes = cpu_peak()
    assert 1e9 < ops < 1e14
    assert 1e8 < nbytes < 1e13


def test_time_call_repeats():
    x, y = filled(np.arange(N)), UOp.new_buffer("CPU", N, dtypes.float)
    seconds = list(itertools.islice(time_call(call(add_kernel(1.0), y, x), clear_l2=True), 3))
    assert all(0 < s < 10 for s in seconds)


def test_validate_with_cpu_catches_a_wrong_kernel(monkeypatch):
    x, y = filled(np.arange(N), "PYTHON"), UOp.new_buffer("PYTHON", N, dtypes.float)
    linear = schedule(call(add_kernel(1.0), y, x))
    with Context(VALIDATE_WITH_CPU=1):
        run_linear(linear)
        launch = realize.launches_of(linear)[0]
        run = launch.run

        def wrong(*bufs, **kwargs):
            seconds = run(*bufs, **kwargs)
            bufs[0].cast("f")[5] = 77.0
            return seconds

        monkeypatch.setattr(launch, "run", wrong)
        with pytest.raises(
            RuntimeError, match=r"(?s)VALIDATE_WITH_CPU: kernel .* on PYTHON differs .* in argument 0.*77"
        ):
            run_linear(linear)


# ---- threads and processes -------------------------------------------------------------------------------------------


def test_threads_realize_at_once():
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 5, 16, 16), np.float32), rng.random((4, 5, 16, 16), np.float32)
    wrong: list = []

    def work(t: int) -> None:
        try:
            for i in range(5):
                got = (Tensor(a[t, i]) @ Tensor(b[t, i]) + t).numpy()
                np.testing.assert_allclose(got, a[t, i] @ b[t, i] + t, rtol=1e-5)
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (Tensor([1.0]) + 1).item() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes_a_new_kernel():
    big = Tensor(np.ones((64, 64), np.float32))
    (big @ big).realize()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            value = (Tensor(np.full((64, 48), 2.0, np.float32)).T @ big + 0.25).numpy()
            os.write(writer, str(float(value[3, 3])).encode())
        finally:
            os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    assert os.read(reader, 100) == b"128.25"
    os.close(reader)
    assert status == 0
    assert (big @ big).numpy()[0, 0] == 64


def test_buffers_of_numpy_arrays_are_copied_when_moved():
    values = np.arange(8, dtype=np.float32)
    moved = Tensor(values).realize()
    values[0] = 100
    assert moved.tolist()[0] == 0
    assert isinstance(moved.uop.buffer, Buffer)


def test_what_is_asked_for_gets_the_storage():
    x = Tensor([1.0, 2.0]).realize()
    other, asked = x * 5, x * 5
    GlobalCounters.reset()
    asked.realize()
    assert asked.uop.is_realized
    assert asked.tolist() == [5.0, 10.0]
    assert GlobalCounters.kernel_count == 1
    asked.assign([0.0, 0.0]).realize()
    assert other.tolist() == [5.0, 10.0]


def test_a_pending_write_happens_once_though_threads_ask_for_what_is_behind_it():
    for _ in range(10):
        state = Tensor.zeros(3).contiguous().realize()
        asked = []
        for i in range(6):
            state.assign(state * 2 + i)
            asked.append(state.clone())
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(Tensor.tolist, asked))
        assert found == [[float(v)] * 3 for v in (0, 1, 4, 11, 26, 57)]
        assert state.tolist() == [57.0] * 3
