"""Hold what a search of schedules finds (BEAM=N) against the policies' schedules: every workload, in turns.

In:   ``python -m bench.beam [--widths 2,4] [--only TEXT] [--keep FOLDER] [--write] ...``
Out:  a table of times, gains and seconds of search per width; a table of the kernels that gained; exit status 1 if a
      result is wrong or something failed.
Why:  a kernel that gains names what the policies should learn, and a search must never end slower than it began.

A search takes minutes for large networks. With ``--keep`` the folder holds what was found and measured, so that a
command that was stopped goes on where it was, and several commands fill one table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench import machine
from bench.measure import Row
from bench.peers import OURS
from bench.peers.process import PeerProcess
from bench.run import README, Bench, parser
from bench.table import format_ratio, format_seconds, render, write_between_marks
from bench.workloads import WORKLOADS, Workload

_GAINED: Final = 1.1  # times faster: a kernel that is listed
_LISTED: Final = 20  # of those, the ones that saved most
_SLOWER: Final = 0.97  # below which a ratio says that a search ended with something slower, and not the noise
_PATIENCE: Final = 1800.0  # seconds for the first call, which searches


class Searches(Bench):
    """One process of ours without a search, and one for each width of it, which writes down its searches.

    Args:
        widths: Values of BEAM; each has a log, in which notes say whose searches follow.
        threads: Threads, and processors, of each.
        scratch: Folder for results, caches and outcomes of searches.
    """

    patience = _PATIENCE

    def __init__(self, widths: Sequence[int], threads: int, scratch: Path) -> None:
        super().__init__((), threads, scratch, {})
        for width in (0, *widths):
            own = scratch / f"beam-{width}"
            own.mkdir(exist_ok=True)
            variables = {"BEAM": str(width), "BEAM_LOG": str(self._log(width))}
            name = OURS.name if width == 0 else str(width)
            self.processes[name] = PeerProcess(OURS, Path(sys.executable), threads, own, variables)

    def _log(self, width: int | str) -> Path:
        return self.scratch / f"searches-{width}.jsonl"

    def begin(self, workload: str) -> None:
        """Note in the logs that the searches that follow are those of a workload.

        One that was stopped and is measured again finds on disk what it had searched for, so that all that follows
        any of its notes is its own.
        """
        for width in self.names:
            with self._log(width).open("a", encoding="utf-8") as log:
                log.write(json.dumps({"workload": workload}) + "\n")

    def searches(self, width: str, workload: str) -> list[dict[str, Any]]:
        """Return what the searches of one width found for a workload, in the order in which they ended."""
        log, current, found = self._log(width), "", []
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            entry = json.loads(line)
            current = entry.get("workload", current)
            if current == workload and "workload" not in entry:
                found.append(entry)
        return found


@dataclass(frozen=True)
class Width:
    """One workload with one width of search.

    Attributes:
        seconds: Of a call.
        spread: How far its turns lie apart, in shares of the median.
        searches: What each search found.
    """

    seconds: float
    spread: float
    searches: list[dict[str, Any]]

    @property
    def changed(self) -> int:
        """Return of how many kernels the search changed the steps: without any, a gain is noise between processes."""
        return sum(s["found"] != s["policy"] for s in self.searches)


@dataclass(frozen=True)
class Result:
    """One line of the table: without a search, and per width; ``failures`` are those of all of them."""

    workload: str
    seconds: float
    spread: float
    widths: dict[str, Width]
    failures: list[str]

    def gain(self, width: str) -> float:
        """Return the time without a search / the time with one."""
        return self.seconds / self.widths[width].seconds

    def is_slower(self, width: str) -> bool:
        """Whether other kernels are slower than those of the policies, by more than the turns lie apart."""
        noise = max(self.spread, self.widths[width].spread, 1 - _SLOWER)
        return self.widths[width].changed > 0 and self.gain(width) < 1 - noise


def measured(made: Searches, workload: Workload, options: argparse.Namespace) -> Result:
    """Search for and measure one workload."""
    made.begin(workload.name)
    row: Row = made.row(workload, options)
    widths = {
        name: Width(row.seconds(m), m.spread, made.searches(name, workload.name)) for name, m in row.peers.items()
    }
    return Result(workload.name, row.seconds(row.ours), row.ours.spread, widths, row.failures)


def table(results: Sequence[Result]) -> str:
    """Return the table of workloads."""
    names = list(results[0].widths)
    header = ["workload", "no search", *(c for n in names for c in (f"BEAM={n}", "gain", "search", "changed"))]
    body = []
    for result in results:
        cells = [result.workload, format_seconds(result.seconds)]
        for name in names:
            width = result.widths[name]
            gain = format_ratio(result.gain(name)) + (" SLOWER" if result.is_slower(name) else "")
            took = sum(s["took"] for s in width.searches)
            cells += [format_seconds(width.seconds), gain, format_seconds(took)]
            cells.append(f"{width.changed} of {len(width.searches)}")
        body.append(cells)
    return render(header, body)


def changes(policy: str, found: str) -> str:
    """Return the steps that only the policy has, and those that only the search has.

    Example:
        >>> changes("VECTOR:1:16 UPCAST:1:4 THREAD:0:0", "VECTOR:1:16 UPCAST:1:2 THREAD:0:0 UPCAST:3:0")
        '-UPCAST:1:4 +UPCAST:1:2 +UPCAST:3:0'
    """
    old, new = policy.split(), found.split()
    return " ".join([*(f"-{s}" for s in old if s not in new), *(f"+{s}" for s in new if s not in old)])


def kernel_table(results: Sequence[Result]) -> str:
    """Return the kernels that gained, the largest gain of time first, with the steps that differ."""
    rows = []
    for result in results:
        for name, width in result.widths.items():
            for s in width.searches:
                gain = s["policy_seconds"] / s["seconds"]
                if gain >= _GAINED:
                    saved = s["policy_seconds"] - s["seconds"]
                    cells = [result.workload, name, f"`{s['kernel']}`", format_seconds(s["policy_seconds"])]
                    steps = f"`{changes(s['policy'], s['found'])}`"
                    rows.append((saved, [*cells, format_seconds(s["seconds"]), format_ratio(gain), steps]))
    if not rows:
        return f"No kernel gained {_GAINED - 1:.0%}."
    rows.sort(key=lambda entry: -entry[0])
    header = ["workload", "BEAM", "loops of the kernel", "policy", "found", "gain", "steps"]
    lines = render(header, [cells for _, cells in rows[:_LISTED]])
    return f"{lines}\n\n{len(rows)} kernels gained {_GAINED - 1:.0%} or more; those that saved most are listed."


def summary(results: Sequence[Result]) -> str:
    """Return lines on candidates and on what ended slower."""
    lines = []
    for name in results[0].widths:
        searches = [s for r in results for s in r.widths[name].searches]
        slower = [r.workload for r in results if r.is_slower(name)]
        lines.append(
            f"BEAM={name}: {len(searches)} kernels, {sum(s['tried'] for s in searches)} candidates of which "
            f"{sum(s['failed'] for s in searches)} failed, {sum(s['took'] for s in searches):.0f} s of search. Slower "
            f"than the policies' schedules by more than the turns lie apart: {', '.join(slower) or 'none'}."
        )
    return "\n\n".join(lines)


@contextlib.contextmanager
def _folder(keep: str) -> Iterator[Path]:
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
        yield Path(keep).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        yield Path(made)


def _kept(path: Path) -> dict[str, Result]:
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: Result(**{**r, "widths": {n: Width(**w) for n, w in r["widths"].items()}}) for name, r in found.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Search, measure and print; returns the exit status."""
    options = parser("Hold what a search of schedules finds against the policies' schedules.")
    options.add_argument("--widths", default="2,4", help="comma list of values of BEAM")
    options.add_argument("--only", default="", help="workloads whose name contains one of these texts, comma list")
    options.add_argument("--keep", default="", metavar="FOLDER", help="keep caches and results there, and go on")
    options.add_argument("--write", action="store_true", help="write the tables into bench/README.md too")
    arguments = options.parse_args(argv)
    texts = [text for text in arguments.only.split(",") if text]
    chosen = [w for w in WORKLOADS if not texts or any(text in w.name for text in texts)]
    if not chosen:
        options.error(f"no workload has a name like {arguments.only!r}")
    with _folder(arguments.keep) as folder:
        made = Searches([int(n) for n in arguments.widths.split(",")], arguments.threads, folder)
        path = folder / "results.json"
        results = _kept(path)
        try:
            for workload in chosen:
                if workload.name in results:
                    continue
                print(workload.name, file=sys.stderr, flush=True)
                results[workload.name] = measured(made, workload, arguments)
                path.write_text(json.dumps({name: asdict(r) for name, r in results.items()}), encoding="utf-8")
        finally:
            made.stop()
    ordered = [results[w.name] for w in WORKLOADS if w.name in results]
    failures = [line for r in ordered for line in r.failures]
    about = f"{machine.processor()}, {arguments.threads} threads. Times are medians of calls, in turns."
    text = "\n\n".join([about, table(ordered), summary(ordered), kernel_table(ordered), *failures])
    print(text)
    if arguments.write:
        write_between_marks(README, "beam", text)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
