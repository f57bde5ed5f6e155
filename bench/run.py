"""Print the table: every workload, our time, each peer's, the ratios, our share of the machine's peak.

In:   ``python -m bench.run [--peers torch,numpy] [--only TEXT] [--rounds N] [--seconds S] [--threads N] [--write]``
Out:  the table on standard output; exit status 1 if a result is wrong or something of ours failed.
Why:  one process per peer, measured in turns, so that the noise of the machine hits all of them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import machine
from bench.inputs import Array
from bench.measure import Measurement, Peak, Row, difference, summary
from bench.peers import OURS, PEERS, Peer, choose
from bench.peers.environments import PeerUnavailableError, python_of
from bench.peers.process import PeerProcess
from bench.table import main_table, write_between_marks
from bench.workloads import WORKLOADS, Workload

README: Final = Path(__file__).with_name("README.md")
# Seconds of a call from which one call makes a turn, and a peer takes part in the first turns only.
_SLOW_CALL: Final = 0.5
_SLOW_TURNS: Final = 3
# Worker threads of a library may spin for some milliseconds after its last call; they must not run in the next turn.
_PAUSE: Final = 0.02
# Workloads between two measurements of the machine's peak.
_PEAK_EVERY: Final = 5


def _load(path: Path) -> list[Array]:
    with np.load(path) as stored:
        return [stored[name] for name in stored.files]


class Bench:
    """The processes of all peers, ours first.

    Args:
        peers: Who else takes part.
        threads: Threads, and processors, of each.
        scratch: Folder for results and caches.
        pythons: Interpreters given by the user: name of a peer -> path.
    """

    patience = 300.0  # seconds that a first call may take

    def __init__(self, peers: Sequence[Peer], threads: int, scratch: Path, pythons: dict[str, str]) -> None:
        self.scratch, self.threads = scratch, threads
        self.processes: dict[str, PeerProcess] = {}
        self.left_out: dict[str, str] = {}
        for peer in (OURS, *peers):
            try:
                python = python_of(peer, pythons)
                self.processes[peer.name] = PeerProcess(peer, python, peer.threads or threads, scratch)
            except PeerUnavailableError as failure:
                self.left_out[peer.name] = str(failure)

    @property
    def names(self) -> list[str]:
        """The peers that are measured, without ours."""
        return [name for name in self.processes if name != OURS.name]

    def row(self, workload: Workload, options: argparse.Namespace) -> Row:
        """Measure one workload with everybody; ``options`` are those of ``parser``."""
        found = {name: self._prepare(name, workload) for name in self.processes}
        self._check(workload, found)
        ready = [name for name, m in found.items() if not m.failure and not m.absent]
        slow = {name for name in ready if found[name].rounds.pop()[0] > _SLOW_CALL}
        for turn in range(options.rounds):
            for name in ready if turn % 2 == 0 else reversed(ready):
                if not found[name].failure and not (name in slow and turn >= _SLOW_TURNS):
                    self._time(name, found[name], options.seconds, 1 if slow else 3)
        for name in ready:
            self.processes[name].ask(do="drop")
        ours = found.pop(OURS.name)
        return Row(workload, ours, found, "best" if options.best else "median")

    def _prepare(self, name: str, workload: Workload) -> Measurement:
        path = str(self._results(name))
        answer = self.processes[name].ask(self.patience, do="prepare", workload=workload.name, path=path)
        if "failure" in answer:
            if "trace" in answer:
                print(answer["trace"], file=sys.stderr)
            return Measurement(failure=answer["failure"])
        if not answer:
            return Measurement(absent=True)
        return Measurement([[answer["rest"]]], answer["first"])

    def _time(self, name: str, measurement: Measurement, seconds: float, calls: int) -> None:
        time.sleep(_PAUSE)
        answer = self.processes[name].ask(do="time", seconds=seconds, calls=calls)
        if "failure" in answer:
            measurement.failure = answer["failure"]
        else:
            measurement.rounds.append(answer["times"])

    def _results(self, name: str) -> Path:
        return self.scratch / f"results-{name}.npz"

    def _check(self, workload: Workload, found: dict[str, Measurement]) -> None:
        """Hold our results against each peer's."""
        ours = found[OURS.name]
        if ours.failure or ours.absent:
            return
        mine = _load(self._results(OURS.name))
        for name, measurement in found.items():
            if name != OURS.name and not measurement.failure and not measurement.absent:
                wrong = difference(mine, _load(self._results(name)), workload.rtol, workload.atol)
                if wrong:
                    ours.failure = f"WRONG, held against {name}: {wrong}"
                    return

    def notes(self) -> list[str]:
        """Return what each peer is."""
        found = [f"- {name}: {process.about}" for name, process in self.processes.items()]
        return found + [f"- {name}: left out, {why}" for name, why in self.left_out.items()]

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.stop()


@contextlib.contextmanager
def bench(arguments: argparse.Namespace) -> Iterator[Bench]:
    """Yield a ``Bench`` as the command line says; ends its processes."""
    pythons = dict(entry.partition("=")[::2] for entry in arguments.python)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        made = Bench(choose(arguments.peers), arguments.threads, Path(folder), pythons)
        try:
            yield made
        finally:
            made.stop()


def parser(description: str) -> argparse.ArgumentParser:
    """Return the options that all commands share."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--peers", default="torch,numpy", help=f"comma list of {', '.join(PEERS)}")
    made.add_argument("--rounds", type=int, default=7, help="turns of each peer per workload")
    made.add_argument("--seconds", type=float, default=0.1, help="length of a turn")
    made.add_argument("--threads", type=int, default=2, help="threads and processors of each peer")
    made.add_argument("--best", action="store_true", help="compare fastest calls, not medians: for a busy machine")
    made.add_argument(
        "--python", action="append", default=[], metavar="PEER=PATH", help="use this interpreter for a peer"
    )
    return made


def report(rows: Sequence[Row], made: Bench, peak: Peak, loads: tuple[float, float]) -> str:
    """Return the table and everything that is said about it."""
    failures = [f"- {line}" for row in rows for line in row.failures]
    parts = [
        machine.describe(made.threads, peak)
        + f" Times are {'those of the fastest call' if rows[0].statistic == 'best' else 'medians'}."
        + f" Load average {loads[0]:.1f} before, {loads[1]:.1f} after.",
        main_table(rows, made.names, peak),
        "\n".join(summary(rows, made.names)),
        "\n".join(made.notes()),
    ]
    if failures:
        parts.append("Failures:\n\n" + "\n".join(failures))
    return "\n\n".join(filter(None, parts))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    options = parser("Measure every workload side by side with other libraries.")
    options.add_argument("--only", default="", help="workloads whose name contains one of these texts, comma list")
    options.add_argument(
        "--write", nargs="?", const="table", metavar="NAME", help="write the table between marks of bench/README.md too"
    )
    arguments = options.parse_args(argv)
    texts = [text for text in arguments.only.split(",") if text]
    chosen = [w for w in WORKLOADS if not texts or any(text in w.name for text in texts)]
    if not chosen:
        options.error(f"no workload has a name like {arguments.only!r}; there are: {_names(WORKLOADS)}")
    before = machine.load_average()
    with bench(arguments) as made:
        peaks = []
        rows = []
        for number, workload in enumerate(chosen, 1):
            if number % _PEAK_EVERY == 1:
                peaks.append(machine.measure_peak(arguments.threads, made.scratch))
            print(f"{number}/{len(chosen)} {workload.name}", file=sys.stderr, flush=True)
            rows.append(made.row(workload, arguments))
        peaks.append(machine.measure_peak(arguments.threads, made.scratch))
        text = report(rows, made, machine.highest(peaks), (before, machine.load_average()))
    print(text)
    if arguments.write:
        write_between_marks(README, arguments.write, text)
    return int(any(row.ours.failure for row in rows))


def _names(workloads: Sequence[Any]) -> str:
    return ", ".join(w.name for w in workloads)


if __name__ == "__main__":
    sys.exit(main())
