"""What a search says while it works, and what it does about candidates that fail.

In:   rounds, times and errors of a search.
Out:  lines on standard output: one per search with DEBUG=2, one per round with DEBUG=3 or BEAM_DEBUG=1, one per
      candidate with BEAM_DEBUG=2; an exception if a candidate failed and BEAM_STRICT_MODE is set.
Why:  searches run in this process and beside it; what is told about them is decided in one place.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tinygrad.codegen.opt import Opt
from tinygrad.helpers import DEBUG, getenv

Steps = tuple[Opt, ...]


class Report:
    """The words of one search."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.detail = getenv("BEAM_DEBUG", 0)
        self.strict = bool(getenv("BEAM_STRICT_MODE", 0))
        self.failures = 0

    def note(self, text: str) -> None:
        """Say what is worth knowing of every search."""
        if DEBUG >= 1:
            _print(text)

    def end(self, tried: int, policy: float, seconds: float, steps: Steps) -> None:
        """Say what was found."""
        if DEBUG >= 2 or self.detail:
            took = time.perf_counter() - self.began
            failed = f" ({self.failures} failed)" if self.failures else ""
            times = f"{_time(policy)} -> {_time(seconds)}"
            _print(f"{tried} candidates{failed} in {took:.2f} s, {times}: {_text(steps)}")

    def round(self, number: int, tried: int, seconds: float, steps: Steps) -> None:
        """Say what is best after a round."""
        if DEBUG >= 3 or self.detail:
            _print(f"round {number}, {tried} candidates, best {_time(seconds)}: {_text(steps)}")

    def timed(self, steps: Steps, seconds: float) -> None:
        """Say how long a candidate takes."""
        if self.detail >= 2:
            _print(f"{_time(seconds):>12} {_text(steps)}")

    def beyond(self, steps: Steps, limit: str) -> None:
        """Say that a candidate is not tried, because it exceeds a limit."""
        if self.detail >= 2 or getenv("BEAM_LOG_SURPASS_MAX", 0):
            _print(f"{limit}: {_text(steps)}")

    def failed(self, steps: Steps, error: Exception) -> None:
        """Count a candidate that failed.

        Raises:
            Exception: The error, with BEAM_STRICT_MODE.
        """
        self.failures += 1
        if DEBUG >= 4 or self.detail:
            _print(f"{_text(steps)} failed: {type(error).__name__}: {error}")
        if self.strict:
            raise error


def _print(text: str) -> None:
    print(f"BEAM {text}", flush=True)  # noqa: T201


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def _text(steps: Sequence[Opt]) -> str:
    return " ".join(f"{s.op.name}:{s.axis}:{s.arg}" for s in steps) or "no steps"
