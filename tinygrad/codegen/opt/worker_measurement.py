"""Time variants of a kernel in worker processes: several compile at once, and one that crashes or hangs is replaced.

In:   a kernel SINK, its renderer, and steps.
Out:  seconds of a launch, as from ``Measurement``; inf for a variant that took its worker with it.
Why:  compiling is most of a search's time, so every core should compile; and what a variant does must not matter here.

The first worker also takes the times, while the others wait.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tinygrad import settings
from tinygrad.codegen.opt.measure import NO_MEASUREMENT, Variant, no_turns
from tinygrad.codegen.opt.worker_pool import QUIET, START_SECONDS, WorkerLost, WorkerProcess, pool
from tinygrad.helpers import getenv
from tinygrad.record import record
from tinygrad.settings import ENVIRONMENT, PARALLEL

if TYPE_CHECKING:
    from tinygrad.codegen.opt.neighbours import Steps
    from tinygrad.codegen.opt.search_report import Report
    from tinygrad.renderer import Renderer
    from tinygrad.uop.ops import UOp

_RUN_SECONDS: Final = 2.0  # for making buffers and loading a variant, beside the time that its runs may take
_RUNS: Final = 8  # times the time to beat that one measurement may take: slow variants are run once, good ones thrice
_POLICY_SECONDS: Final = 60.0  # for the kernel of the policy, which is no experiment


class KernelRefusedError(Exception):
    """A worker could not read the kernel: it is made of classes that only this process knows."""


@record
class _Task:
    """A variant that a worker compiles, and until when."""

    worker: WorkerProcess
    steps: Steps
    deadline: float


class WorkerMeasurement:
    """Times variants of one kernel in worker processes; see ``Measure``.

    Args:
        sink: The kernel.
        renderer: Its target.
        start: The policy's steps, to which no limit applies.
        report: Called with the steps and the error of every candidate that fails.

    Raises:
        Exception: The kernel or the renderer cannot be pickled.
    """

    def __init__(self, sink: UOp, renderer: Renderer, start: Steps, report: Report) -> None:
        own = [var for var in vars(settings).values() if isinstance(var, settings.ContextVar)]
        values = {var.key: var.value for var in own if var.key not in QUIET}
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ and name not in QUIET}
        self._kernel = (list(sys.path), pickle.dumps((sink, renderer)), values, environment)
        self.start, self.report = start, report
        self._variants: dict[Steps, Variant | None] = {}
        self._start_is_deadly = False

    def __enter__(self) -> WorkerMeasurement:
        pool.lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                pool.close()  # answers may be on their way
                return
            for worker in pool.asked_about(self):
                with contextlib.suppress(WorkerLost):
                    worker.send("forget")
                    worker.answer(_RUN_SECONDS)
        finally:
            pool.lock.release()

    def can_run(self) -> bool:
        """Whether the policy's kernel compiles in a worker, or does worse there than raise an error.

        One for a device that only this process knows does neither.
        """
        self.prepare([self.start])
        return self._variants[self.start] is not None or self._start_is_deadly

    def _introduce(self, worker: WorkerProcess) -> None:
        if worker.kernel is not self:
            worker.kernel = None
            worker.send("kernel", *self._kernel)
            outcome, value = worker.answer(START_SECONDS)
            if outcome != "done":
                raise KernelRefusedError(value)
            worker.kernel = self

    # ---- compiling

    def prepare(self, variants: Sequence[Steps]) -> None:
        """Compile variants, as many at a time as there are workers."""
        from multiprocessing.connection import wait

        waiting = collections.deque(v for v in dict.fromkeys(variants) if v not in self._variants)
        busy: list[_Task] = []
        while waiting or busy:
            self._give_work(waiting, busy)
            if not busy:
                continue
            soonest = min(task.deadline for task in busy) - time.monotonic()
            answered = wait([task.worker.connection for task in busy], max(0.0, soonest))
            for task in list(busy):
                if task.worker.connection in answered or task.deadline <= time.monotonic():
                    busy.remove(task)
                    self._variants[task.steps] = self._value(task.steps, task.worker, 0.0)

    def _give_work(self, waiting: collections.deque[Steps], busy: list[_Task]) -> None:
        count = min(max(1, PARALLEL.get()), len(waiting) + len(busy))
        try:
            workers = pool.workers(count, [task.worker for task in busy])
        except WorkerLost as error:
            self._give_up(waiting, error)
            return
        for worker in workers:
            if waiting and all(task.worker is not worker for task in busy):
                is_new = worker.tasks == 0
                try:
                    self._introduce(worker)
                    busy.append(self._task(worker, waiting[0]))
                    waiting.popleft()
                except WorkerLost as error:
                    if is_new:  # else it ended by itself just now, and the next turn finds another
                        pool.refuse(str(error))
                        self._give_up(waiting, error)
                except KernelRefusedError as error:
                    self._give_up(waiting, error)

    def _task(self, worker: WorkerProcess, steps: Steps) -> _Task:
        is_start = steps == self.start
        worker.send("compile", steps, not is_start)
        worker.tasks += 1
        seconds = getenv("BEAM_TIMEOUT_SEC", 10) * (10 if is_start else 1)
        return _Task(worker, steps, time.monotonic() + seconds)

    def _give_up(self, waiting: collections.deque[Steps], error: WorkerLost | KernelRefusedError) -> None:
        """Measure no more: no worker can be started, or none can read the kernel."""
        self._variants.update(dict.fromkeys(waiting))
        waiting.clear()
        self.report.note(f"cannot use worker processes: {error}")

    def _value(self, steps: Steps, worker: WorkerProcess, timeout: float | None) -> Any:
        """Return what a worker answers; None if the variant failed or took the worker with it."""
        try:
            outcome, value = worker.answer(timeout)
        except WorkerLost as error:
            self._start_is_deadly |= steps == self.start
            self.report.failed(steps, error)
            return None
        if outcome == "done":
            return value
        if outcome == "limit":
            self.report.beyond(steps, value)
        else:
            self.report.failed(steps, RuntimeError(value))
        return None

    # ---- timing

    def __call__(self, steps: Steps, limit: float) -> float:
        """Return the seconds of a launch with these steps."""
        self.prepare([steps])
        variant = self._variants[steps]
        if variant is None:
            return NO_MEASUREMENT
        seconds = _POLICY_SECONDS if limit == NO_MEASUREMENT else _RUN_SECONDS + _RUNS * limit
        took = self._timed(steps, seconds, "time", steps, variant, limit, self.report.strict)
        if took is None:
            self._variants[steps] = None
            return NO_MEASUREMENT
        return float(took)

    def turns(self, variants: Sequence[Steps], count: int) -> list[list[float]]:
        """Return the seconds of each variant in each of ``count`` turns."""
        known = {steps: variant for steps in variants if (variant := self._variants[steps]) is not None}
        if len(known) < len(variants):
            return no_turns(variants, count)
        seconds = _POLICY_SECONDS * count
        turns: list[list[float]] | None = self._timed(variants[-1], seconds, "turns", known, count, self.report.strict)
        return no_turns(variants, count) if turns is None else turns

    def _timed(self, steps: Steps, seconds: float, *request: Any) -> Any:
        """Return the first worker's answer to a request; None if that failed, which is told of ``steps``."""
        try:
            worker = pool.workers(1)[0]
            self._introduce(worker)
            worker.send(*request)
        except (WorkerLost, KernelRefusedError) as error:
            self.report.failed(steps, error)
            return None
        return self._value(steps, worker, seconds if getenv("BEAM_DEV_TIMEOUT", 1) else None)
