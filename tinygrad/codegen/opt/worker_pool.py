"""The worker processes of a search: how they are started, asked, and replaced.

In:   requests for ``search_worker.py``, and how long an answer may take.
Out:  its answers; ``WorkerLost`` where a worker crashed or went silent.
Why:  a search runs code that nobody has run before, and what it does to its process must not matter.

A worker is an interpreter of its own with a command of its own, so neither the threads of this process nor what its
``__main__`` does matter to it. Where none can be started, ``Pool.available`` says why.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import signal
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tinygrad.forking import renew_in_child
from tinygrad.helpers import getenv

if TYPE_CHECKING:
    import subprocess
    from multiprocessing.connection import Connection

_COMMAND: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from tinygrad.codegen.opt.search_worker import main; main(int(sys.argv[1]))"
)
START_SECONDS: Final = 60.0
# What a worker must not inherit: it neither searches nor traces nor prints.
QUIET: Final = dict.fromkeys(("BEAM", "JITBEAM", "DEBUG", "VIZ", "PROFILE", "TRACK_MATCH_STATS"), "0")


class WorkerLost(Exception):  # noqa: N818  what happened, not whose fault it was
    """A worker crashed, or did not answer in time."""


class WorkerProcess:
    """One worker process as this process sees it."""

    def __init__(self) -> None:
        import socket
        import subprocess
        from multiprocessing.connection import Connection

        ours, theirs = socket.socketpair()
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if getenv("BEAM_DEBUG", 0) >= 2 else subprocess.DEVNULL,
                env={**os.environ, **QUIET},
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.connection: Connection = Connection(ours.detach())
        self.has_started = False
        self.kernel: object = None  # the search whose kernel it knows
        self.tasks = 0

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def send(self, *request: Any) -> None:
        """Ask something.

        Raises:
            WorkerLost: It has ended.
        """
        if not self.has_started:
            self.has_started = True
            self.answer(START_SECONDS)
        try:
            self.connection.send_bytes(pickle.dumps(request))
        except OSError:
            raise WorkerLost(self._last_words()) from None

    def answer(self, timeout: float | None) -> Any:
        """Return the answer to the oldest request.

        Raises:
            WorkerLost: It has ended, or there is no answer after ``timeout`` seconds, and it is stopped.
        """
        try:
            if not self.connection.poll(timeout):
                self.stop()
                raise WorkerLost("it gave no answer in time")
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError, pickle.UnpicklingError):
            raise WorkerLost(self._last_words()) from None

    def _last_words(self) -> str:
        import subprocess

        try:
            status = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.stop()
            return "it closed its connection"
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"it ended with {name}"

    def stop(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """Forget a process that belongs to the parent of this one."""
        self.connection.close()
        self.process.returncode = 0


class Pool:
    """The worker processes of this process; one search uses them at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._workers: list[WorkerProcess] = []
        self._problem: str | None = None
        renew_in_child(self, "lock")

    def available(self) -> str | None:
        """Return why no worker process can be started, or None."""
        if self._problem is None:
            name = Path(sys.executable or "").name.lower()
            if os.name != "posix":
                self._problem = "they need POSIX"
            elif getattr(sys, "frozen", False) or not name.startswith(("python", "pypy")):
                self._problem = f"{sys.executable or 'this program'} is no Python interpreter"
        return self._problem

    def workers(self, count: int, busy: Collection[WorkerProcess] = ()) -> list[WorkerProcess]:
        """Return ``count`` running workers, or fewer if the system gives no more processes.

        Args:
            count: How many.
            busy: Workers whose answers are awaited: they are left alone, whatever state they are in.

        Raises:
            WorkerLost: There is none.
        """
        most = getenv("BEAM_MAX_TASKS_PER_CHILD", 0)
        for worker in [worker for worker in self._workers if worker not in busy]:
            if (most and worker.tasks >= most) or not worker.is_alive():
                worker.stop()
                self._workers.remove(worker)
        while len(self._workers) < count:
            try:
                self._workers.append(WorkerProcess())
            except OSError as error:
                if not self._workers:
                    self._problem = str(error)
                    raise WorkerLost(self._problem) from None
                break
        return self._workers[:count]

    def asked_about(self, kernel: object) -> list[WorkerProcess]:
        """Return the workers that know a kernel."""
        return [worker for worker in self._workers if worker.kernel is kernel]

    def close(self) -> None:
        """End all workers."""
        while self._workers:
            self._workers.pop().stop()

    def leave(self) -> None:
        """Forget the workers of the parent process, in a forked child."""
        while self._workers:
            self._workers.pop().leave()

    def refuse(self, problem: str) -> None:
        """Start no worker any more: the first one could not even start."""
        self._problem = problem
        self.close()


pool = Pool()
atexit.register(pool.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: pool.leave())
