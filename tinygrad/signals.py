"""Signals that wait: while storage is overwritten, no handler written in Python runs, and so none raises.

In:   a block of code.
Out:  ``DeferredSignals``: signals that come in the block are noted, and their handlers are called at its end, or where
      the block says that it may be cut off.
Why:  Ctrl-C raises between any two instructions of Python, most likely right after the native call of a long kernel.
      Whoever catches it then cannot tell whether that kernel has run, and ``w += 1`` must not run twice.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self

# Those whose handlers may raise by custom: Ctrl-C, timeouts, requests to end.
_NAMES: Final = ("SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGBREAK", "SIGUSR1", "SIGUSR2")
_NUMBERS: Final = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class DeferredSignals:
    """A block in which signals wait. Handlers run in the main thread alone: in others this does nothing."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, FrameType | None]] = []  # as their handlers will be told of them
        self._seen = 0
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        try:
            for number in _NUMBERS:
                handler = signal.getsignal(number)
                if callable(handler):  # else the system's default, or code that is not Python
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        except BaseException:  # a signal that came before it could be made to wait
            self._restore(dict(self._handlers))
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._restore(dict(self._handlers))
        self.deliver()

    def are_new(self) -> bool:
        """Return whether more signals wait than when this was last asked."""
        seen, self._seen = self._seen, len(self._waiting)
        return self._seen > seen

    def deliver(self) -> None:
        """Call the handlers of the signals that wait; they may raise."""
        while self._waiting:
            number, frame = self._waiting.pop(0)
            self._handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((number, frame))

    def _restore(self, left: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
        # A handler that is back may raise at once: then the rest is restored all the same.
        try:
            while left:
                number = next(iter(left))
                signal.signal(number, left[number])
                del left[number]
        finally:
            if left:
                left.pop(next(iter(left)))
                self._restore(left)
