"""What a search says while it works, and what it does about candidates that fail.

In:   rounds, times and errors of a search.
Out:  lines on standard output: one per search with DEBUG=2, one per round with DEBUG=3 or BEAM_DEBUG=1, one per
      candidate with BEAM_DEBUG=2; a line of JSON per search in the file that BEAM_LOG names; an exception if a
      candidate failed and BEAM_STRICT_MODE is set.
Why:  searches run in this process and beside it; what is told about them is decided in one place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tinygrad.codegen.opt import Opt
from tinygrad.helpers import DEBUG, getenv
from tinygrad.record import record

Steps = tuple[Opt, ...]


@record(frozen=True)
class Outcome:
    """What one search found.

    Attributes:
        kernel: Sizes of its loops, the outermost first, behind r if some are reductions, else E.
        policy: Steps of the policy, as text.
        found: The steps that remain.
        policy_seconds: Of a launch with the policy's steps.
        seconds: Of a launch with those that remain.
        tried: Candidates, the policy's included.
        failed: Those that did not compile or run.
        took: Seconds of the search.
    """

    kernel: str
    policy: str
    found: str
    policy_seconds: float
    seconds: float
    tried: int
    failed: int
    took: float


class Report:
    """The words of one search."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.detail = getenv("BEAM_DEBUG", 0)
        self.strict = bool(getenv("BEAM_STRICT_MODE", 0))
        self.failures = 0

    def begin(self) -> None:
        """Count the seconds from here: before, this search may have waited for another one's."""
        self.began = time.perf_counter()

    def note(self, text: str) -> None:
        """Say what is worth knowing of every search."""
        if DEBUG >= 1:
            _print(text)

    def end(self, kernel: str, tried: int, times: tuple[float, float], steps: tuple[Steps, Steps]) -> None:
        """Say what was found.

        Args:
            kernel: What to call it.
            tried: Candidates.
            times: Seconds with the policy's steps, and with those that were found.
            steps: Those of the policy, and those that were found.
        """
        policy, found = map(steps_text, steps)
        took = time.perf_counter() - self.began
        outcome = Outcome(kernel, policy, found, *times, tried, self.failures, took)
        if DEBUG >= 2 or self.detail:
            failed = f" ({self.failures} failed)" if self.failures else ""
            _print(f"{tried} candidates{failed} in {took:.2f} s, {_time(times[0])} -> {_time(times[1])}: {found}")
        if log := getenv("BEAM_LOG", ""):
            with Path(log).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")

    def round(self, number: int, tried: int, seconds: float, steps: Steps) -> None:
        """Say what is best after a round."""
        if DEBUG >= 3 or self.detail:
            _print(f"round {number}, {tried} candidates, best {_time(seconds)}: {steps_text(steps)}")

    def timed(self, steps: Steps, seconds: float) -> None:
        """Say how long a candidate takes."""
        if self.detail >= 2:
            _print(f"{_time(seconds):>12} {steps_text(steps)}")

    def beyond(self, steps: Steps, limit: str) -> None:
        """Say that a candidate is not tried, because it exceeds a limit."""
        if self.detail >= 2 or getenv("BEAM_LOG_SURPASS_MAX", 0):
            _print(f"{limit}: {steps_text(steps)}")

    def failed(self, steps: Steps, error: Exception) -> None:
        """Count a candidate that failed.

        Raises:
            Exception: The error, with BEAM_STRICT_MODE.
        """
        self.failures += 1
        if DEBUG >= 4 or self.detail:
            _print(f"{steps_text(steps)} failed: {type(error).__name__}: {error}")
        if self.strict:
            raise error


def _print(text: str) -> None:
    print(f"BEAM {text}", flush=True)  # noqa: T201


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def steps_text(steps: Sequence[Opt]) -> str:
    """Return steps in a line: kind, axis and parameter of each."""
    return " ".join(f"{s.op.name}:{s.axis}:{s.arg}" for s in steps) or "no steps"
