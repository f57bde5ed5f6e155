"""How time grows with size, and what the second thread brings.

In:   ``python -m bench.scaling [--family matmul,stream,network] [--peers torch] ...``
Out:  a table per family: per size our time, rate, share of the peak and ratio to each peer; then one thread against
      several, and the most that the machine gives (``ceiling.py``). Exit status 1 if a result is wrong.
Why:  one size hides overhead that is constant and algorithms that grow too fast. One thread takes turns with several,
      in a process of its own, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from bench import machine
from bench.ceiling import Ceiling
from bench.measure import Peak, Row, growth_exponent, share_of_peak
from bench.peers import ALONE
from bench.run import README, Bench, bench, parser
from bench.table import format_ratio, render, time_cell, write_between_marks
from bench.workloads import FAMILIES


def _rate(row: Row, unit: str) -> str:
    amount = row.workload.flops if unit == "GFLOP/s" else row.workload.nbytes
    return f"{amount / row.seconds(row.ours) / 1e9:.1f} {unit}"


def family_table(rows: Sequence[Row], ceilings: Sequence[float], peers: Sequence[str], peak: Peak) -> str:
    """Return the table of one family.

    Args:
        rows: Measured with all threads; ``ALONE`` among the peers with one.
        ceilings: Of each row, the speed-up of processes that share nothing.
        peers: Names of the other peers.
        peak: Of all threads.
    """
    header = ["workload", "ours", "rate", "of peak", *(c for p in peers for c in (p, "ratio"))]
    header += ["1 thread", "speed-up", "ceiling"]
    body = []
    for row, ceiling in zip(rows, ceilings, strict=True):
        seconds = row.seconds(row.ours)
        share, unit = share_of_peak(row.workload, seconds, peak) if not math.isnan(seconds) else (math.nan, "")
        cells = [row.workload.name, time_cell(row, row.ours)]
        cells += ["-", "-"] if math.isnan(share) else [_rate(row, unit), f"{share:.0%}"]
        for peer in (*peers, ALONE.name):
            cells += [time_cell(row, row.peers[peer]), format_ratio(row.ratio(peer))]
        body.append([*cells, format_ratio(ceiling)])
    return render(header, body)


def growth(rows: Sequence[Row]) -> str:
    """Return a line on how our time grows with the work: 1 is in proportion."""
    measured = [(max(row.workload.flops, row.workload.nbytes), row.seconds(row.ours)) for row in rows]
    measured = [(work, seconds) for work, seconds in measured if not math.isnan(seconds)]
    if len(measured) < 2:
        return "Too few sizes ran to say how the time grows."
    exponent = growth_exponent([work for work, _ in measured], [seconds for _, seconds in measured])
    return f"Our time grows as work^{exponent:.2f}."


def measure_family(
    made: Bench, ceiling: Ceiling, family: str, options: argparse.Namespace
) -> tuple[list[Row], list[float]]:
    """Measure every size of a family; returns the rows and their ceilings."""
    rows, ceilings = [], []
    for workload in FAMILIES[family]:
        print(workload.name, file=sys.stderr, flush=True)
        rows.append(made.row(workload, options))
        ceilings.append(ceiling.measure(workload, options.rounds, options.seconds))
    return rows, ceilings


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    options = parser("Measure series of sizes, with one thread and with several.")
    options.add_argument("--family", default=",".join(FAMILIES), help=f"comma list of {', '.join(FAMILIES)}")
    options.add_argument("--write", action="store_true", help="write the tables into bench/README.md too")
    options.set_defaults(peers="torch", rounds=5)
    arguments = options.parse_args(argv)
    names = arguments.family.split(",")
    if unknown := [name for name in names if name not in FAMILIES]:
        options.error(f"unknown families {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    arguments.peers = f"{arguments.peers},{ALONE.name}"
    before = machine.load_average()
    with bench(arguments) as made:
        peak = machine.highest([machine.measure_peak(arguments.threads, made.scratch) for _ in range(2)])
        ceiling = Ceiling(arguments.threads, made.scratch)
        try:
            measured = {name: measure_family(made, ceiling, name, arguments) for name in names}
        finally:
            ceiling.stop()
        peers = [name for name in made.names if name != ALONE.name]
    parts = [f"{machine.describe(arguments.threads, peak)} Load average {before:.1f}."]
    for name, (rows, ceilings) in measured.items():
        parts += [f"### {name}", family_table(rows, ceilings, peers, peak), growth(rows)]
    parts += [line for rows, _ in measured.values() for row in rows for line in row.failures]
    text = "\n\n".join(parts)
    print(text)
    if arguments.write:
        write_between_marks(README, "scaling", text)
    return int(any(row.ours.failure for rows, _ in measured.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
