"""Memory of the MNIST training step: how much is needed at most, and whether it grows over many steps.

In:   ``python -m bench.memory [--steps 60] [--peers torch]``; Linux only.
Out:  a table: per peer the peak above what the inputs take, and the memory after each part of the steps. Exit status 1
      if ours grows.
Why:  a leak of a few bytes per step ends long trainings.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.peers import OURS, Peer, choose
from bench.peers.environments import PeerUnavailableError, python_of
from bench.peers.process import PeerProcess
from bench.run import parser
from bench.table import render

_WORKLOAD: Final = "MNIST training step 512"
_MARKS: Final = 6
# What an allocator may keep back between two marks without being a leak.
_SLACK: Final = 4 << 20


def grows(series: Sequence[int], slack: int = _SLACK) -> int:
    """Return how many bytes memory grew over the second half of a series; 0 if that is within ``slack``.

    The first half may still fill caches; from the middle on each step should find everything that it needs.
    """
    grown = series[-1] - series[len(series) // 2 - 1]
    return grown if grown > slack else 0


def _megabytes(nbytes: float) -> str:
    return f"{nbytes / 1e6:.0f} MB"


def memory_table(answers: dict[str, dict[str, Any]]) -> str:
    """Return the table; ``answers`` are the workers', by name."""
    marks = max((len(a["series"]) for a in answers.values() if "series" in a), default=0)
    header = ["", "peak", *(f"after {i}/{marks}" for i in range(1, marks + 1)), "grows"]
    body = []
    for name, answer in answers.items():
        if "series" not in answer:
            body.append([name, answer.get("failure", "-"), *[""] * marks, ""])
            continue
        grown = grows(answer["series"])
        body.append([
            name, _megabytes(answer["peak"]), *map(_megabytes, answer["series"]), _megabytes(grown) if grown else "no",
        ])  # fmt: skip
    return render(header, body)


def _ask(peer: Peer, python: Path, threads: int, steps: int, extra: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        process = PeerProcess(peer, python, threads, Path(folder), extra)
        try:
            return process.ask(do="memory", workload=_WORKLOAD, steps=steps, marks=_MARKS, timeout=1800)
        finally:
            process.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    options = parser("Measure the memory of the MNIST training step.")
    options.add_argument("--steps", type=int, default=60, help="training steps")
    options.set_defaults(peers="torch")
    arguments = options.parse_args(argv)
    if arguments.steps < _MARKS:
        options.error(f"--steps must be at least {_MARKS}, got {arguments.steps}")
    pythons = dict(entry.partition("=")[::2] for entry in arguments.python)
    runs: list[tuple[str, Peer, dict[str, str]]] = [("ours", OURS, {}), ("ours, JIT=0", OURS, {"JIT": "0"})]
    runs += [(peer.name, peer, {}) for peer in choose(arguments.peers)]
    answers: dict[str, dict[str, Any]] = {}
    for name, peer, extra in runs:
        print(f"{name}: {arguments.steps} steps", file=sys.stderr, flush=True)
        try:
            answers[name] = _ask(peer, python_of(peer, pythons), arguments.threads, arguments.steps, extra)
        except PeerUnavailableError as failure:
            answers[name] = {"failure": str(failure)}
    print(f"{_WORKLOAD}, {arguments.steps} steps; memory above what the process held with its inputs loaded.\n")
    print(memory_table(answers))
    ours = [answer for name, answer in answers.items() if name.startswith("ours")]
    return int(any("series" not in answer or grows(answer["series"]) for answer in ours))


if __name__ == "__main__":
    sys.exit(main())
