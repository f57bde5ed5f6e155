"""The process of one peer: takes requests as JSON lines, answers each with one line.

In:   ``worker.py NAME THREADS PROCESSOR`` in the peer's environment (the first of as many processors as threads);
      requests on standard input.
Out:  answers on standard output; results of workloads as .npz files.
Why:  a peer has its own process, so that no library's threads, allocator or caches help or hurt another.

Started as a script: the repository is not on the path, or ``import tinygrad`` would find this project everywhere.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.workloads import Workload

_BENCH = Path(__file__).resolve().parents[1]
_WARM_UP = 3
# Seconds of a call from which the second one is warm enough.
_SLOW_CALL = 0.5
_MOST_CALLS = 5000


def _make_bench_importable() -> None:
    """Make ``bench`` a package without putting the folder that holds it on the path."""
    spec = importlib.util.spec_from_file_location(
        "bench", _BENCH / "__init__.py", submodule_search_locations=[str(_BENCH)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench"] = module
    spec.loader.exec_module(module)
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _BENCH / "peers"]


def measure(run: Callable[[], object], seconds: float, calls: int) -> list[float]:
    """Return the seconds of each call: at least ``calls``, and for at least ``seconds``; one call before is not timed.

    The call before brings back into the caches what other peers have displaced.
    """
    times: list[float] = []
    clock = time.perf_counter
    run()
    end = clock() + seconds
    while (len(times) < calls or clock() < end) and len(times) < _MOST_CALLS:
        start = clock()
        run()
        times.append(clock() - start)
    return times


def _status_bytes(key: str) -> int:
    """Return a figure of this process in bytes, as Linux counts it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}; memory is measured on Linux only")


class Worker:
    """Answers the requests."""

    def __init__(self, name: str, threads: int) -> None:
        from bench.peers import OURS, PEERS

        self.peer = OURS if name == OURS.name else PEERS[name]
        module = importlib.import_module(f"bench.peers.{self.peer.adapter}")
        self.adapter = module.Adapter(threads)
        self._check_origin()
        self.run: Callable[[], Any] | None = None

    def _check_origin(self) -> None:
        """The same import name must not bring the wrong package.

        Raises:
            ImportError: It did.
        """
        if self.peer.library == "tinygrad":
            here = _BENCH.parent / "tinygrad" in Path(self.adapter.lib.__file__).resolve().parents
            if here != (not self.peer.environment):
                raise ImportError(f"{self.peer.name}: import tinygrad found {self.adapter.lib.__file__}")

    def about(self) -> dict[str, Any]:
        """Say what was imported."""
        return {"about": self.adapter.about}

    def _load(self, workload: str) -> tuple[Workload, list[Any]] | None:
        """Return a workload and its inputs on the library's side, or None if the peer takes no part."""
        import numpy as np

        from bench.inputs import Inputs
        from bench.workloads import find

        self.run = None  # the memory of the workload before
        found = find(workload)
        if found.function(self.peer.library) is None:
            return None
        dtype = found.dtypes.get(self.peer.library, "")
        # Positions and labels stay int32.
        load = self.adapter.load
        return found, [load(x, dtype if x.dtype != np.int32 else "") for x in found.inputs(Inputs())]

    def prepare(self, workload: str, path: str) -> dict[str, Any]:
        """Make the inputs, call the workload until it is warm, and save its results.

        Returns:
            "first": seconds of the first call; "rest": seconds of the last. Empty if the peer takes no part.
        """
        import numpy as np

        loaded = self._load(workload)
        if loaded is None:
            return {}
        found, arguments = loaded
        self.run = self.adapter.prepare(found.function(self.peer.library), arguments, found.make)
        times: list[float] = []
        results: list[Any] = []
        for _ in range(1 + _WARM_UP):
            start = time.perf_counter()
            result = self.run()
            times.append(time.perf_counter() - start)
            # A step with state gives another result each time, and each is compared; else the last, of a replay.
            results = [*(results if found.make else ()), *(result if isinstance(result, tuple) else (result,))]
            if not found.make and len(times) > 1 and times[-1] > _SLOW_CALL:
                break
            if found.make:
                results = [self.adapter.array(r) if not isinstance(r, np.ndarray) else r for r in results]
        np.savez(path, *[r if isinstance(r, np.ndarray) else self.adapter.array(r) for r in results])
        return {"first": times[0], "rest": times[-1]}

    def time(self, seconds: float, calls: int) -> dict[str, Any]:
        """Measure the prepared workload."""
        if self.run is None:
            raise RuntimeError("nothing is prepared")
        return {"times": measure(self.run, seconds, calls)}

    def memory(self, workload: str, steps: int, marks: int) -> dict[str, Any]:
        """Run a workload many times in a row and watch the memory of the process.

        Returns:
            Bytes: "base" with the inputs loaded, "peak" above it, "series" above it after each ``steps / marks`` calls.
            Empty if the peer takes no part.
        """
        loaded = self._load(workload)
        if loaded is None:
            return {}
        found, arguments = loaded
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts from here
        base = _status_bytes("VmRSS")
        self.run = self.adapter.prepare(found.function(self.peer.library), arguments, found.make)
        series = []
        for _ in range(marks):
            for _ in range(steps // marks):
                self.run()
            series.append(_status_bytes("VmRSS") - base)
        return {"base": base, "peak": _status_bytes("VmHWM") - base, "series": series}

    def drop(self) -> dict[str, Any]:
        """Free what the prepared workload holds."""
        self.run = None
        return {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request; errors are answers too."""
        try:
            result: dict[str, Any] = getattr(self, request.pop("do"))(**request)
        except Exception as error:  # noqa: BLE001  whatever a library raises is a line of the table
            failure = {"failure": _one_line(error)}
            return failure if self.peer.opaque else failure | {"trace": traceback.format_exc()}
        return result


def serve(name: str, threads: int, requests: IO[str], answers: IO[str]) -> None:
    """Answer until the requests end; a library that cannot be used answers the first one with why."""

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        worker = Worker(name, threads)
    except Exception as error:  # noqa: BLE001  an import may raise anything
        say({"failure": _one_line(error)})
        return
    for line in requests:
        say(worker.answer(json.loads(line)))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def main() -> None:
    """Take part in a measurement."""
    name, threads, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first : first + threads])
    _make_bench_importable()
    serve(name, threads, sys.stdin, answers)


if __name__ == "__main__":
    main()
