"""What is left after something went wrong: tensors that can be computed, threads that were not disturbed, no locks."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, Variable, nn
from tinygrad.device import BufferSpec, LRUAllocator
from tinygrad.engine.jit import JitError
from tinygrad.helpers import TRAINING

THREADS = 6
W = np.arange(64, dtype=np.float32).reshape(8, 8) / 64


def program(k: int, offset: float = 0.0) -> Tensor:
    x = Tensor(np.arange(8 * k, dtype=np.float32).reshape(k, 8) / 10)
    return ((x @ Tensor(W) + offset).relu().softmax(-1) * x).sum(0)


def reference(k: int, offset: float = 0.0) -> np.ndarray[Any, Any]:
    x = np.arange(8 * k, dtype=np.float32).reshape(k, 8) / 10
    a = np.maximum(x @ W + offset, 0)
    e = np.exp(a - a.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) * x).sum(0)


def assert_right(t: Tensor, k: int, offset: float = 0.0) -> None:
    np.testing.assert_allclose(t.numpy(), reference(k, offset), rtol=1e-4, atol=1e-5)


# ---- a realize that fails -------------------------------------------------------------------------------------------


def test_a_failed_compile_leaves_tensors_computable(monkeypatch: pytest.MonkeyPatch) -> None:
    import tinygrad.engine.realize as engine

    def broken(*args: Any) -> Any:
        raise RuntimeError("no compiler today")

    x = Tensor([1.0, 2.0, 3.0]).realize()
    y = x * 3 + 1234.5
    z = y.sum()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "start_launch", broken)
        with pytest.raises(RuntimeError, match="no compiler today"):
            z.realize(y)
    assert y.tolist() == [1237.5, 1240.5, 1243.5]
    assert z.item() == 3721.5


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_a_run_that_stops_half_way_can_be_repeated(
    at: int, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinygrad.engine.launch import KernelLaunch

    launch, count = KernelLaunch.launch, [0]

    def stops(self: KernelLaunch, *args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] == at:
            raise kind
        return launch(self, *args, **kwargs)

    w = Tensor([1.0, 2.0, 3.0]).clone().realize()
    before = (w.sum() * 2).contiguous()
    w.assign(w + 1)
    after = (w * 5).contiguous()
    both = (after.sum() + before).contiguous()
    with monkeypatch.context() as patch:
        patch.setattr(KernelLaunch, "launch", stops)
        try:
            Tensor.realize(after, both, w, before)
        except kind:
            pass
        else:
            assert count[0] < at, "the run was not stopped"
    # A write that was carried out is not carried out again, whatever came after it.
    assert w.tolist() == [2.0, 3.0, 4.0]
    assert after.tolist() == [10.0, 15.0, 20.0]
    assert both.item() == 57.0
    assert before.item() == 12.0


@pytest.mark.parametrize("at", range(1, 17))
def test_writes_before_an_interruption_are_not_repeated(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygrad.engine.launch import KernelLaunch

    launch, count = KernelLaunch.launch, [0]

    def stops(self: KernelLaunch, *args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] == at:
            raise KeyboardInterrupt
        return launch(self, *args, **kwargs)

    w = Tensor([1.0, 2.0, 3.0]).clone().realize()
    view, sums = w[1:], []
    for _ in range(5):
        sums.append(w.sum() * 2)
        w.assign(w.flip(0) + 1)
    w[Tensor([0, 2])] = Tensor([5.0, 6.0])
    view *= 10
    with monkeypatch.context() as patch:
        patch.setattr(KernelLaunch, "launch", stops)
        with pytest.raises(KeyboardInterrupt):
            Tensor.realize(w, *sums)
    assert w.tolist() == [5.0, 70.0, 60.0]
    assert view.tolist() == [70.0, 60.0]
    assert [s.item() for s in sums] == [12.0, 18.0, 24.0, 30.0, 36.0]


# What reads storage before a write of the same run, by way of a value that is stored in between.
BEFORE_A_WRITE: dict[str, Callable[[Tensor], Tensor]] = {
    "a sum of it": lambda w: (w * 2).contiguous().sum() + 1,
    "reversed": lambda w: (w.flip(0) * 3).contiguous().softmax(),
    "a table of it": lambda w: (w.reshape(3, 1) * w).contiguous().sum(0),
    "two in a row": lambda w: ((w + 1).contiguous().sum() * 3).contiguous().exp(),
}


@pytest.mark.parametrize("name", BEFORE_A_WRITE)
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ZeroDivisionError])
def test_values_are_right_or_an_error_wherever_a_run_stops(
    error: type[BaseException], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tinygrad.engine.launch import KernelLaunch

    launch, lost, stopped = KernelLaunch.launch, 0, 0
    values = np.array([1.0, 2.0, 4.0], dtype=np.float32)
    wanted = BEFORE_A_WRITE[name](Tensor(values)).numpy()
    for at in range(1, 9):
        count = [0]

        def stops(
            self: KernelLaunch, *args: Any, count: list[int] = count, at: int = at, **kwargs: Any
        ) -> float | None:
            count[0] += 1
            if count[0] == at:
                raise error
            return launch(self, *args, **kwargs)

        w = Tensor(values).clone().realize()
        before = BEFORE_A_WRITE[name](w)
        w.assign(w * 10)
        after = w + before.sum()
        with monkeypatch.context() as patch:
            patch.setattr(KernelLaunch, "launch", stops)
            try:
                w.realize(after)
            except error:
                stopped += 1
        for tensor, value in ((before, wanted), (after, values * 10 + wanted.sum())):
            try:
                np.testing.assert_allclose(tensor.numpy(), value, rtol=1e-5)
            except RuntimeError as found:
                assert f"cut off by {error.__name__}" in str(found)  # noqa: PT017 - one of the two must hold
                lost += 1
        np.testing.assert_array_equal(w.numpy(), values * 10)
    assert stopped >= 2
    assert lost > 0, "no run stopped where something is lost, so this shows nothing"


def test_a_pending_write_is_lost_with_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygrad.engine.launch import KernelLaunch

    launch, count = KernelLaunch.launch, [0]

    def stops(self: KernelLaunch, *args: Any, **kwargs: Any) -> float | None:
        count[0] += 1
        if count[0] == 3:
            raise MemoryError("full")
        return launch(self, *args, **kwargs)

    a, b = Tensor([1.0, 2.0]).clone().realize(), Tensor([3.0, 4.0, 4.0]).clone().realize()
    step = (a.sum() * b.sum() * 2 / 3).contiguous()  # as of a loss, computed from both
    a.assign(a - step)
    b.assign(b - step)
    with monkeypatch.context() as patch:
        patch.setattr(KernelLaunch, "launch", stops)
        with pytest.raises(MemoryError, match="full"):
            a.realize(b)
    outcomes = set()
    for tensor, value in ((a, [-21.0, -20.0]), (b, [-19.0, -18.0, -18.0])):
        try:
            assert tensor.tolist() == value
            outcomes.add("right")
        except RuntimeError as error:
            assert "cut off by MemoryError" in str(error)  # noqa: PT017 - one of the two must hold
            outcomes.add("lost")
    assert "right" in outcomes
    # New tensors in their place work.
    fresh = Tensor([1.0, 1.0]).clone()
    assert (fresh + 1).tolist() == [2.0, 2.0]


def test_an_error_in_the_schedule_leaves_tensors_computable() -> None:
    n = Variable("n", 1, 3)
    x = Tensor([1.0, 2.0, 3.0]).realize()
    y, z = x + 1, x[:n].sum()
    with pytest.raises(RuntimeError, match="unbound Variable"):
        y.realize(z)
    assert y.tolist() == [2.0, 3.0, 4.0]


# ---- threads ---------------------------------------------------------------------------------------------------------


def run_in_threads(work: Callable[[int], None]) -> None:
    """Run ``work(number)`` in several threads at once and raise the first error of one of them."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001  raised again by the thread that started this one
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


def called_twice(body: Callable[[Tensor], Any]) -> None:
    jitted = TinyJit(body)
    for _ in range(2):  # the second call captures
        jitted(Tensor([1.0]).realize())


def reads_while_captured(x: Tensor) -> Tensor:
    y = (x + 1).realize()
    y.item()
    return y


def test_errors_of_one_thread_disturb_no_other() -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: Tensor([1.0, 2.0]) + Tensor([1.0, 2.0, 3.0]),
        lambda: Tensor([1.0, 2.0])[: Variable("n", 1, 2)].sum().item(),
        lambda: Tensor([1.0]).to("NOSUCH"),
        lambda: nn.Linear(3, 4)(Tensor.ones(2, 5)),
        lambda: Tensor([1.0, 2.0]).reshape(3),
    ]

    def work(number: int) -> None:
        for k in range(1, 12):
            if number % 2:
                with pytest.raises((ValueError, RuntimeError, ModuleNotFoundError)):
                    wrong[k % len(wrong)]()
            else:
                assert_right(program(k, number), k, number)

    run_in_threads(work)
    assert_right(program(3), 3)


def test_captures_of_threads_do_not_mix() -> None:
    weights = Tensor(W).realize()

    def work(number: int) -> None:
        if number % 2:
            with pytest.raises(JitError, match="non-Tensor value"):
                called_twice(lambda x: 3)
            with pytest.raises(JitError, match="cannot access tensor data"):
                called_twice(reads_while_captured)
            return
        jitted = TinyJit(lambda x: (x @ weights + number).sum(0).realize())
        for k in range(6):
            x = np.full((3, 8), k, np.float32)
            np.testing.assert_allclose(jitted(Tensor(x).realize()).numpy(), (x @ W + number).sum(0), rtol=1e-5)

    run_in_threads(work)


def test_settings_of_a_thread_are_its_own_after_an_error() -> None:
    def work(number: int) -> None:
        for k in range(20):
            with pytest.raises(ValueError, match="reshape"), Context(TRAINING=1 + number):
                Tensor([k]).reshape(4 + TRAINING.value)
            assert TRAINING.value == 0
            with Context(TRAINING=1 + number):
                assert TRAINING.value == 1 + number

    run_in_threads(work)


def test_one_graph_realized_by_many_threads() -> None:
    shared = program(7) * 2
    sums = [shared.sum() + i for i in range(THREADS)]

    def work(number: int) -> None:
        np.testing.assert_allclose(sums[number].item(), reference(7).sum() * 2 + number, rtol=1e-4)
        np.testing.assert_allclose(shared.numpy(), reference(7) * 2, rtol=1e-4)

    run_in_threads(work)


# ---- interrupts ------------------------------------------------------------------------------------------------------


@pytest.fixture
def interrupting() -> Iterator[Callable[[float], None]]:
    """A function that lets a KeyboardInterrupt come after so many seconds, as Ctrl-C does; 0 calls it off."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt may hit a destructor
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals on this system")
def test_interrupts_leave_the_process_usable(interrupting: Callable[[float], None]) -> None:
    rng, count = random.Random(0), 0
    weights = Tensor(W).realize()
    jitted = TinyJit(lambda a: (a * 2 + weights.sum()).realize())
    start = time.monotonic()
    while (spent := time.monotonic() - start) < 4 or (count < 10 and spent < 60):  # a busy machine needs longer
        k, t = rng.randint(1, 40), None
        x = Tensor(np.full(4, k, np.float32)).realize()
        try:
            interrupting(rng.uniform(0.0005, 0.02))
            t = program(k, float(k))
            t.realize((t * 3).contiguous())
            jitted(x)
            Tensor.rand(k).realize()
            interrupting(0)
        except KeyboardInterrupt:
            count += 1
        interrupting(0)
        if t is not None:
            assert_right(t, k, float(k))
        assert_right(program(k), k)
        np.testing.assert_allclose(jitted(x).numpy(), np.full(4, 2 * k + W.sum()), rtol=1e-5)
        assert 0 <= Tensor.rand(3).max().item() < 1
    assert count >= 10, "hardly any interrupt came, so this shows nothing"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_write_happens_once(interrupting: Callable[[float], None]) -> None:
    w, rng, interrupts = Tensor.zeros(1 << 20).clone().realize(), np.random.default_rng(1), 0
    for expected in range(1, 61):
        total = w.max() + w[0]
        w.assign(w + 1)
        try:
            interrupting(rng.uniform(0.0001, 0.006))
            w.realize(total)
            interrupting(0)
        except KeyboardInterrupt:
            interrupts += 1
        try:
            interrupting(0)
        except KeyboardInterrupt:
            interrupts += 1
        assert (w[0].item(), w[-1].item()) == (expected, expected)
        assert total.item() == 2 * (expected - 1)
    assert interrupts >= 5, "hardly any interrupt came, so this shows nothing"


def test_signals_wait_and_all_handlers_are_back() -> None:
    from tinygrad.signals import DeferredSignals

    heard: list[int] = []
    before = {n: signal.signal(n, lambda number, _: heard.append(number)) for n in (signal.SIGUSR1, signal.SIGALRM)}
    # A shell may have started this process in the background, where Ctrl-C is ignored.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    handlers = {n: signal.getsignal(n) for n in before}

    def work() -> None:
        with DeferredSignals() as signals:
            signal.raise_signal(signal.SIGUSR1)
            assert signals.are_new()
            assert not signals.are_new()
            signals.deliver()
            assert heard == [signal.SIGUSR1]
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGALRM)
            assert heard == [signal.SIGUSR1]

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert {n: signal.getsignal(n) for n in handlers} == handlers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_signals_do_not_wait_in_other_threads() -> None:
    from tinygrad.signals import DeferredSignals

    handler, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with DeferredSignals() as signals:
            seen.append((signal.getsignal(signal.SIGINT), signals.are_new()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(handler, False)]


@pytest.mark.parametrize(
    "program",
    [
        "threading.Thread(target=work).start()",
        "atexit.register(work)",
        "t = threading.Thread(target=lambda: (time.sleep(0.5), work())); t.start()",
    ],
)
def test_work_after_the_end_of_the_main_thread(program: str) -> None:
    text = f"""
import atexit, threading, time
from tinygrad import Tensor
def work():
    print((Tensor.rand(20, 20) @ Tensor.rand(20, 20)).shape, (Tensor([1.0, 2.0]) * 3).tolist())
{program}
"""
    run = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, "CACHELEVEL": "0"}
    )
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "(20, 20) [3.0, 6.0]", "")


# ---- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t.reshape(7, 7),
        lambda t: t + Tensor.ones(7),
        lambda t: t[2000],
        lambda t: t.item(),
        lambda t: nn.Linear(3, 4)(t),
        lambda t: TinyJit(lambda x: x.reshape(7, 7).realize())(t),
        lambda t: (t.reshape(-1, 1) * Tensor.ones(1 << 62)).contiguous().realize(),
    ],
)  # fmt: skip
def test_an_error_keeps_no_tensor_alive(wrong: Callable[[Tensor], Any]) -> None:
    def attempt() -> None:
        t = Tensor.ones(1000, 100).contiguous().realize()
        with contextlib.suppress(Exception):
            wrong(t)
            pytest.fail("this should be an error")

    attempt()  # what is made once and kept
    gc.collect()
    gc.disable()  # no cycle: the memory is free at once, not whenever the garbage collector comes
    try:
        before = GlobalCounters.mem_used
        attempt()
        assert GlobalCounters.mem_used - before < 1000
    finally:
        gc.enable()


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("size", [1 << 45, 1 << 62, (1 << 62) + 4, 1 << 70])
def test_sizes_beyond_any_memory_are_refused(device: str, size: int) -> None:
    before = GlobalCounters.mem_used
    with pytest.raises(MemoryError, match=rf"(?s)out of memory: kernel .* {device} .*{size} x float.*line  "):
        Tensor.full((size,), 3.0, device=device).contiguous().realize()
    assert GlobalCounters.mem_used == before
    assert (Tensor([1.0, 2.0], device=device) + 1).tolist() == [2.0, 3.0]


def test_garbage_in_cycles_is_collected_before_memory_is_refused() -> None:
    class Tight(LRUAllocator[bytearray]):
        def _alloc(self, size: int, options: BufferSpec) -> bytearray:
            if held:
                raise MemoryError("full")
            return bytearray(size)

    class Holder:
        def __init__(self) -> None:
            self.me = self
            held.append(1)

        def __del__(self) -> None:
            held.clear()

    held: list[int] = []
    Holder()
    assert len(Tight(None).alloc(16)) == 16


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
def test_out_of_memory_leaves_the_process_usable() -> None:
    program = """
import resource, threading
import numpy as np
from tinygrad import Tensor, TinyJit

w = np.arange(64, dtype=np.float32).reshape(8, 8)
step = TinyJit(lambda x: (x.reshape(-1, 1) * x + 1).contiguous().sum(0).realize())
step(Tensor.ones(8).realize())
# The threads of the last part start while there is memory for their stacks.
begin = threading.Event()
threads = [threading.Thread(target=lambda n=n: begin.wait() and attempt(asked[n]), daemon=True) for n in range(3)]
[t.start() for t in threads]
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def keep() -> None:
    held = [Tensor.full((1 << 23,), i).contiguous().realize() for i in range(100)]

asked = [
    lambda: Tensor.zeros(1 << 28).contiguous().realize(),
    lambda: Tensor.rand(1 << 28).realize(),
    lambda: (Tensor.ones(20000, 2).contiguous() @ Tensor.ones(2, 20000).contiguous()).realize(),
    lambda: Tensor.ones(20000, 20000).numpy(),
    lambda: TinyJit(lambda x: (x.reshape(-1, 1) * x + 1).contiguous().sum(0).realize())(Tensor.ones(20000).realize()),
    keep,
]
def attempt(work) -> None:
    try:
        work()
    except MemoryError as error:
        assert " MB" in str(error) and "kernel" in str(error), error
        assert np.array_equal((Tensor(w) @ Tensor(w)).numpy(), w @ w)
        assert step(Tensor.ones(8).realize()).tolist() == [16.0] * 8
        print("refused")

for work in asked:
    attempt(work)
begin.set()
[t.join() for t in threads]
"""
    # Nothing comes from the disk cache, so that the compiler is loaded before there is a limit.
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "CACHELEVEL": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused") == 9, done.stderr


def test_kernels_of_ever_new_constants_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    import tinygrad.codegen as codegen
    import tinygrad.engine.eager as eager
    import tinygrad.engine.launch as launch
    import tinygrad.engine.realize as engine
    import tinygrad.schedule as schedule

    caches = (codegen.to_program_cache, launch._runtimes, schedule.schedule_cache, eager._known)
    for kept in caches:
        kept.clear()
        monkeypatch.setattr(kept, "most", 4)
    monkeypatch.setattr(engine, "_tables", {})
    monkeypatch.setattr(engine, "_MOST_LAUNCHES", 4)
    x = Tensor([1.0, 2.0]).realize()
    step = TinyJit(lambda t: (t * 3).realize())
    for i in range(20):
        assert (x * (i + 0.25) + i).tolist() == [i + 0.25 + i, 2 * (i + 0.25) + i]
        assert step(x).tolist() == [3.0, 6.0], "a capture holds its kernels"
    for kept in (*caches, engine._table()):
        assert 2 <= len(kept) <= 4


def test_a_graph_of_more_kernels_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import tinygrad.engine.realize as engine

    monkeypatch.setattr(engine, "_tables", {})
    monkeypatch.setattr(engine, "_MOST_LAUNCHES", 4)
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(2):
        parts = [x * float(i) + 0.375 for i in range(12)]
        parts[0].realize(*parts[1:])
        assert [p.tolist() for p in parts] == [[i + 0.375, 2 * i + 0.375] for i in range(12)]


def test_memory_that_intermediates_share_is_refused_in_the_name_of_the_largest() -> None:
    # Each of these 2 TB fits no machine; the first call that needs memory is a copy of the seed, of 16 bytes or so.
    n = 1 << 19
    for program in (
        lambda: (Tensor.rand(n, n) @ Tensor.rand(n, 1)).realize(),
        lambda: (Tensor.rand(n, n).contiguous() + 1).sum().item(),
    ):
        with pytest.raises(MemoryError) as caught:
            program()
        text = str(caught.value)
        found = re.search(r"out of memory: kernel \w+ on CPU needs (\d+)\.\d\d MB for argument 0", text)
        assert found is not None, text
        assert int(found[1]) >= 4 * n * n // 10**6, text
        assert f"{n * n} x " in text or f"{n * n // 2} x " in text, text
