"""BEAM's worker processes: what candidates may do to them, and what they must not do to the user's program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygrad.codegen.opt.search as search_module
import tinygrad.codegen.opt.worker_measurement as measurement_module
from test.helpers_ast import at, kernel, loop, param, run_program, store
from tinygrad import Tensor, TinyJit, middleware
from tinygrad.codegen import to_program, to_program_cache
from tinygrad.codegen.opt import OptOps
from tinygrad.codegen.opt.worker_pool import WorkerProcess, pool
from tinygrad.device import Device
from tinygrad.helpers import Context, getenv
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.target import Target
from tinygrad.uop.ops import PatternMatcher, UOp

TESTS = Path(__file__).parents[1]
FAULTS = [
    "RefusedByTheCompiler", "RaisesInTheRenderer", "CrashesInTheCompiler", "CompilesForEver", "CrashesWhenRun",
    "RunsForEver",
]  # fmt: skip
ROWS, COLUMNS = 24, 8


def product() -> UOp:
    """Return a kernel that is too small for threads, so that only candidates have some: out = a * b."""
    i, j = loop(ROWS, 0), loop(COLUMNS, 1)
    place = i * COLUMNS + j
    value = at(param(1, ROWS * COLUMNS), place) * at(param(2, ROWS * COLUMNS), place)
    return kernel(store(param(0, ROWS * COLUMNS), place, value, i, j))


def assert_multiplies(program: UOp) -> None:
    """Run the program and compare."""
    a, b = np.random.default_rng(3).normal(size=(2, ROWS * COLUMNS)).astype(np.float32)
    made = run_program(program, "CPU", {0: np.zeros(ROWS * COLUMNS, np.float32), 1: a, 2: b})[0]
    np.testing.assert_allclose(made, a * b, rtol=1e-6)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets environment variables that are read with getenv, which remembers what it read."""

    def change(**variables: Any) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        getenv.cache_clear()

    yield change
    monkeypatch.undo()
    getenv.cache_clear()


@pytest.fixture(autouse=True)
def search_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every kernel is searched for, small ones too, with two workers and no cache."""
    monkeypatch.setattr(search_module, "LAUNCH_SECONDS", 0.0)
    monkeypatch.syspath_prepend(str(TESTS))
    to_program_cache.clear()
    with Context(BEAM=1, IGNORE_BEAM_CACHE=1, CACHELEVEL=0, PARALLEL=2):
        yield
    to_program_cache.clear()


@pytest.fixture
def no_search_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates run in workers, or the test fails."""

    def refuse(*args: Any) -> Any:
        raise AssertionError("a candidate was to run in this process")

    monkeypatch.setattr(search_module, "Measurement", refuse)


def renderer_of(name: str) -> LLVMRenderer:
    """Return a renderer of ``helpers_faulty_renderers``, imported as workers import it."""
    import importlib

    made: LLVMRenderer = getattr(importlib.import_module("helpers_faulty_renderers"), name)(Target("CPU", "LLVM"))
    return made


@pytest.mark.usefixtures("no_search_in_this_process")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_search_survives_its_candidates(
    fault: str, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a candidate does, the search goes on, and the kernel that it ends with is right."""
    monkeypatch.setattr(measurement_module, "_RUN_SECONDS", 1.0)
    environment(BEAM_DEBUG=1, BEAM_TIMEOUT_SEC=2)
    program = to_program(product(), renderer_of(fault))
    assert all(step.op is not OptOps.THREAD for step in program.src[0].arg.applied_opts)
    assert_multiplies(program)
    output = capsys.readouterr().out
    what = {
        "RefusedByTheCompiler": "CompileError: LLVM IR does not parse",
        "RaisesInTheRenderer": "CompileError: this renderer has a bad day",
        "CrashesInTheCompiler": "WorkerLost: it ended with SIGSEGV",
        "CrashesWhenRun": "WorkerLost: it ended with SIGSEGV",
    }.get(fault, "WorkerLost: it gave no answer in time")
    assert what in output
    assert "failed)" in output.splitlines()[-1]


@pytest.mark.usefixtures("no_search_in_this_process")
@pytest.mark.parametrize("fault", ["RefusedByTheCompiler", "CrashesWhenRun", "ComputesSomethingElse"])
def test_strict_mode_raises(fault: str, environment: Callable[..., None]) -> None:
    """BEAM_STRICT_MODE=1 shows faults of the compiler instead of passing over them; wrong results count."""
    environment(BEAM_STRICT_MODE=1)
    said = {
        "RefusedByTheCompiler": "does not parse",
        "CrashesWhenRun": "SIGSEGV",
        "ComputesSomethingElse": r"computes other values in buffer 0: .* 19[12] of 192 elements differ",
    }
    with pytest.raises(Exception, match=said[fault]):
        to_program(product(), renderer_of(fault))
    environment(BEAM_STRICT_MODE=0)
    assert_multiplies(to_program(product(), Device["CPU"].renderer))


@pytest.mark.usefixtures("no_search_in_this_process")
@pytest.mark.parametrize(("name", "value"), [("BEAM_UOPS_MAX", 1), ("BEAM_UPCAST_MAX", 0)])
def test_what_exceeds_a_limit_is_not_tried(
    name: str, value: int, environment: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    environment(**{name: value, "BEAM_LOG_SURPASS_MAX": 1, "BEAM_STRICT_MODE": 1})
    program = to_program(product(), Device["CPU"].renderer)
    with Context(BEAM=0):
        to_program_cache.clear()
        plain = to_program(product(), Device["CPU"].renderer)
    assert program.src[0].arg.applied_opts == plain.src[0].arg.applied_opts
    assert f"{name}={value}" in capsys.readouterr().out


def test_without_workers_the_search_goes_on_in_this_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool.close()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(pool, "_problem", None)
    with Context(DEBUG=2), monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        assert_multiplies(to_program(product(), Device["CPU"].renderer))
    output = capsys.readouterr().out
    assert "BEAM cannot use worker processes: no more processes" in output
    assert " candidates in " in output


@pytest.mark.parametrize("executable", ["", "/usr/bin/app", None])
def test_what_is_no_interpreter_is_not_started(
    executable: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A frozen program, or one that embeds Python, would start itself again."""
    pool.close()
    monkeypatch.setattr(pool, "_problem", None)
    monkeypatch.setattr(sys, "executable", executable)
    with Context(DEBUG=1):
        assert_multiplies(to_program(product(), Device["CPU"].renderer))
    assert "BEAM runs candidates in this process" in capsys.readouterr().out
    assert not pool.asked_about(None)


@pytest.mark.parametrize("how", ["PARALLEL=0", "a renderer of this process", "middleware"])
def test_what_cannot_be_sent_is_searched_for_here(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    original = search_module.Measurement

    def counted(*args: Any) -> Any:
        searches.append(1)
        return original(*args)

    class LocalRenderer(LLVMRenderer):
        pass

    monkeypatch.setattr(search_module, "Measurement", counted)
    renderer: LLVMRenderer = Device["CPU"].renderer  # type: ignore[assignment]
    if how == "PARALLEL=0":
        with Context(PARALLEL=0):
            program = to_program(product(), renderer)
    elif how == "middleware":
        with middleware.insert("simplify", PatternMatcher([]), name="nothing"):
            program = to_program(product(), renderer)
    else:
        program = to_program(product(), LocalRenderer(Target("CPU", "LLVM")))
    assert_multiplies(program)
    assert searches == [1]


@pytest.mark.usefixtures("no_search_in_this_process")
def test_a_worker_that_ended_by_itself_is_replaced() -> None:
    assert_multiplies(to_program(product(), Device["CPU"].renderer))
    for worker in pool.workers(2):
        worker.process.kill()
        worker.process.wait()
    to_program_cache.clear()
    assert_multiplies(to_program(product(), Device["CPU"].renderer))


@pytest.mark.usefixtures("no_search_in_this_process")
def test_workers_are_replaced_after_some_tasks(environment: Callable[..., None]) -> None:
    assert_multiplies(to_program(product(), Device["CPU"].renderer))
    before = pool.workers(2)
    assert pool.workers(2) == before
    environment(BEAM_MAX_TASKS_PER_CHILD=max(worker.tasks for worker in before))
    after = pool.workers(2)
    assert [a is b for a, b in zip(before, after, strict=True)].count(False) >= 1
    assert max(worker.tasks for worker in after) < max(worker.tasks for worker in before)


def test_a_kernel_gives_its_memory_back() -> None:
    """Between searches, workers hold no buffers."""
    assert_multiplies(to_program(product(), Device["CPU"].renderer))
    for worker in pool.workers(2):
        if worker.tasks:
            worker.send("time", (), None, 1.0, False)
            assert worker.answer(10.0)[0] == "failed", "it has forgotten the kernel"


@pytest.mark.usefixtures("no_search_in_this_process")
def test_several_threads_search() -> None:
    results: dict[int, np.ndarray] = {}

    def work(n: int) -> None:
        with Context(BEAM=1, IGNORE_BEAM_CACHE=1, CACHELEVEL=0):
            results[n] = (Tensor(np.full((n, n), 2, np.float32)) @ Tensor(np.full((n, n), 3, np.float32))).numpy()

    threads = [threading.Thread(target=work, args=(n,)) for n in (5, 6, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: float(made[0, 0]) for n, made in results.items()} == {n: 6.0 * n for n in (5, 6, 7)}


@pytest.mark.parametrize("dev", ["PYTHON", "NULL"])
def test_devices_without_a_clock_are_not_searched(dev: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter's times say nothing about code, and where nothing runs there are none."""

    def refuse(*args: Any) -> Any:
        raise AssertionError(f"a search on {dev}")

    monkeypatch.setattr(search_module, "search_steps", refuse)
    with Context(DEV=dev, NULL_ALLOW_COPYOUT=1):
        made = (Tensor.ones(6, 6).contiguous() @ Tensor.ones(6, 6).contiguous()).numpy()
    assert dev == "NULL" or made[0, 0] == 6


def test_a_jit_searches_while_it_captures(capsys: pytest.CaptureFixture[str]) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x @ x).relu().realize()

    x = Tensor(np.eye(24, dtype=np.float32) * 3).realize()
    Tensor.rand(1).realize()  # a capture computes draws that are pending
    with Context(DEBUG=2):
        made = [step(x).numpy() for _ in range(4)]
    assert all(np.array_equal(m, np.eye(24) * 9) for m in made)
    assert len(re.findall(r"^BEAM \d+ candidates", capsys.readouterr().out, re.MULTILINE)) == 1


# ---- whole programs ------------------------------------------------------------------------------------------------

PROGRAM = """
    from tinygrad import Tensor, Context
    print("main")
    with Context(BEAM=1, IGNORE_BEAM_CACHE=1, PARALLEL=2):
        print((Tensor.ones(64, 64).contiguous() @ Tensor.ones(64, 64).contiguous()).sum().item())
"""


def run(*arguments: str, text: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python on a program that searches."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), "DEBUG": "1", **variables}
    return subprocess.run(
        [sys.executable, *arguments], input=text, env=environment, capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip


def assert_searched_beside(output: str) -> None:
    """Check what PROGRAM printed: once, with the right value, and searched in workers."""
    assert output.count("main\n") == 1, "workers do not run the user's program"
    assert "262144.0" in output
    assert "in this process" not in output
    assert "cannot use worker" not in output


@pytest.mark.parametrize("where", ["file", "stdin", "command", "thread"])
def test_programs_of_every_kind_search(where: str, tmp_path: Path) -> None:
    """No ``if __name__ == "__main__"`` is needed, and no file."""
    program = textwrap.dedent(PROGRAM)
    if where == "thread":
        body = textwrap.indent(program, "    ")
        program = f"import threading\ndef work():\n{body}\nt = threading.Thread(target=work)\nt.start()\nt.join()\n"
    path = tmp_path / "program.py"
    path.write_text(program)
    arguments = {"stdin": ("-",), "command": ("-c", program)}.get(where, (str(path),))
    made = run(*arguments, text=program if where == "stdin" else None)
    assert_searched_beside(made.stdout)
    assert not made.stderr


def test_a_read_only_cache_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    made = run("-c", textwrap.dedent(PROGRAM), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert_searched_beside(made.stdout)


def test_the_second_process_finds_what_the_first_one_found(tmp_path: Path) -> None:
    """Two processes that search at once do not disturb each other either."""
    text = textwrap.dedent(PROGRAM).replace("IGNORE_BEAM_CACHE=1, ", "")
    variables = {"CACHEDB": str(tmp_path / "cache.db"), "DEBUG": "2"}
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), **variables}
    both = [
        subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert all("262144.0" in output for output in outputs)
    assert any("BEAM " in output for output in outputs)
    third = run("-c", text, **variables).stdout
    assert "BEAM " not in third
    assert "262144.0" in third


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("end", ["exit", "kill", "hangs"])
def test_workers_end_with_their_parent(end: str, tmp_path: Path) -> None:
    """Also if it is killed, and if a worker is in a kernel that never ends."""
    program = textwrap.dedent(PROGRAM) + textwrap.dedent("""
        import os, signal, sys
        from tinygrad.codegen.opt.worker_pool import pool
        workers = pool.workers(2)
        print("pids", *[worker.process.pid for worker in workers], flush=True)
    """)
    if end == "hangs":
        program += textwrap.dedent("""
            sys.path.insert(0, sys.argv[1])
            from helpers_faulty_renderers import CompilesForEver
            from tinygrad.target import Target
            from tinygrad.codegen.opt import Opt, OptOps
            from tinygrad.codegen.opt.search_report import Report
            from tinygrad.codegen.opt.worker_measurement import WorkerMeasurement
            from tinygrad.uop.ops import UOp, KernelInfo, ParamArg
            from tinygrad.uop import Ops
            from tinygrad.dtype import dtypes
            out = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, dtypes.float32, (16,)))
            i = UOp.range(16, 0)
            one = UOp.const(1.0, dtypes.float32)
            end = UOp(Ops.INDEX, dtypes.float32, (out, i)).store(one).end(i)
            sink = UOp(Ops.SINK, dtypes.void, (end,), KernelInfo())
            measure = WorkerMeasurement(sink, CompilesForEver(Target("CPU", "LLVM")), (), Report())
            measure._introduce(workers[0])
            workers[0].send("compile", (Opt(OptOps.THREAD, 0, 0),), False)
            assert not workers[0].connection.poll(1.0)
        """)
    if end != "exit":
        program += "os.kill(os.getpid(), signal.SIGKILL)\n"
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    made = subprocess.run(
        [sys.executable, "-c", program, str(TESTS)], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert made.returncode == (0 if end == "exit" else -signal.SIGKILL), made.stderr
    pids = [int(word) for word in made.stdout.split("pids ")[1].split()]
    deadline = time.monotonic() + 20
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2
    assert not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_workers_of_its_own() -> None:
    program = textwrap.dedent(PROGRAM) + textwrap.dedent("""
        import os
        from tinygrad.codegen.opt.worker_pool import pool
        before = {worker.process.pid for worker in pool.workers(2)}
        child = os.fork()
        if child == 0:
            with Context(BEAM=1, IGNORE_BEAM_CACHE=1, PARALLEL=2):
                value = (Tensor.ones(72, 72).contiguous() @ Tensor.ones(72, 72).contiguous()).sum().item()
            after = {worker.process.pid for worker in pool.workers(2)}
            os._exit(0 if value == 72.0**3 and after and not after & before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert all(worker.is_alive() for worker in pool.workers(2))
        assert before == {worker.process.pid for worker in pool.workers(2)}
    """)
    assert_searched_beside(run("-W", "error::ResourceWarning", "-c", program).stdout)


def test_an_interrupted_search_leaves_no_answers_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C, the next search gets answers to its own questions."""
    original = WorkerProcess.answer
    asked: list[int] = []

    def interrupted(self: WorkerProcess, timeout: float | None) -> Any:
        asked.append(1)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return original(self, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            to_program(product(), Device["CPU"].renderer)
    assert_multiplies(to_program(product(), Device["CPU"].renderer))
