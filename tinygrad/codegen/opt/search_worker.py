"""A worker process of a search: compiles variants of kernels and times them, whatever becomes of it.

In:   requests from the process that searches, over one connection.
Out:  an answer to each: ("done", value), ("limit", text) or ("failed", text). A variant that crashes ends the process.
Why:  generated code that was never run before may write anywhere, fault, or never return. Here that costs a process
      which holds nothing but copies.

The process never runs the user's program: it is started with a command of its own. It ends with the other end of the
connection, however that ends, and when nobody has asked anything for a while.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from tinygrad.codegen.opt.measure import LimitError, Stopwatch, Variant, compile_variant
from tinygrad.settings import ENVIRONMENT, ContextVar, getenv

if TYPE_CHECKING:
    from tinygrad.codegen.opt.neighbours import Steps
    from tinygrad.renderer import Renderer
    from tinygrad.uop.ops import UOp

IDLE_SECONDS = 60.0


class Worker:
    """The kernel that is searched for at present, and what was made for it."""

    def __init__(self) -> None:
        self.sink: UOp
        self.renderer: Renderer
        self.watch: Stopwatch | None = None
        self.variants: dict[Steps, Variant] = {}

    def kernel(self, path: list[str], kernel: bytes, settings: dict[str, Any], environment: dict[str, str]) -> None:
        """Take another kernel, with what it is compiled under.

        Args:
            path: Where modules are looked for.
            kernel: A pickle of the SINK and its renderer.
            settings: Values of context variables.
            environment: Those of environment variables; others of this package are unset.
        """
        sys.path[:] = path
        self.sink, self.renderer = pickle.loads(kernel)
        for name, value in settings.items():
            ContextVar.registry[name].value = value
        for name in ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(environment)
        getenv.cache_clear()
        self.forget()

    def forget(self) -> None:
        """Give back the memory of a kernel."""
        self.watch, self.variants = None, {}

    def compile(self, steps: Steps, limited: bool) -> Variant:
        """Compile a variant; see ``compile_variant``."""
        return compile_variant(self.sink, self.renderer, steps, limited)

    def time(self, steps: Steps, variant: Variant, limit: float, checked: bool) -> float:
        """Time a variant; see ``Stopwatch``."""
        return self._watch(checked).seconds(self.variants.setdefault(steps, variant), limit)

    def turns(self, variants: dict[Steps, Variant], count: int, checked: bool) -> list[list[float]]:
        """Time variants in turns; see ``Stopwatch``."""
        known = [self.variants.setdefault(steps, variant) for steps, variant in variants.items()]
        return self._watch(checked).turns(known, count)

    def _watch(self, checked: bool) -> Stopwatch:
        if self.watch is None:
            self.watch = Stopwatch(self.sink, self.renderer, checked)
        return self.watch


def _answer(worker: Worker, request: bytes) -> tuple[str, Any]:
    try:
        verb, *arguments = pickle.loads(request)
        return "done", getattr(worker, verb)(*arguments)
    except LimitError as limit:
        return "limit", str(limit)
    except Exception as error:  # noqa: BLE001  the process that searches decides what an error means
        return "failed", f"{type(error).__name__}: {error}"


def main(descriptor: int) -> None:
    """Answer requests until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the process that searches, too
    _no_core_files()
    connection = Connection(descriptor)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive() -> None:
        # A thread of its own sees the end of the other process even while a kernel runs for ever.
        try:
            while True:
                requests.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    connection.send_bytes(pickle.dumps(("done", os.getpid())))
    worker = Worker()
    while True:
        try:
            request = requests.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            os._exit(0)
        connection.send_bytes(pickle.dumps(_answer(worker, request)))


def _no_core_files() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):  # nothing depends on it
        return
