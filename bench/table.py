"""Tables as text, which is Markdown too, and the part of README.md that holds the last one.

In:   rows of cells; measured rows.
Out:  text.
Why:  the table in the README is the one that was measured, not one that somebody typed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.measure import Measurement, Peak, Row, share_of_peak

_MARK: Final = "<!-- {name}: {end} -->"


def format_seconds(seconds: float) -> str:
    """Return three significant digits with a unit.

    Example:
        >>> format_seconds(0.00123456)
        '1.23 ms'
    """
    if math.isnan(seconds):
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 0.9995 or unit == "us":
            value = seconds * factor
            digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
            return f"{value:.{min(digits, 2)}f} {unit}"
    raise AssertionError("unreachable")


def format_ratio(ratio: float) -> str:
    """Return two decimals, or a dash."""
    return "-" if math.isnan(ratio) else f"{ratio:.2f}"


def render(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table in Markdown; the first column is text, the others are numbers.

    Raises:
        ValueError: A row has another number of cells than the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} cells, the header {len(header)}: {row}")
    widths = [max(len(cells[i]) for cells in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def time_cell(row: Row, measurement: Measurement) -> str:
    """Return the time that counts, or why there is none."""
    if measurement.failure:
        return "FAILED"
    return "-" if measurement.absent else format_seconds(row.seconds(measurement))


def _goal_cell(row: Row) -> str:
    reached = row.reaches_goal
    return f"{row.workload.goal:g} {'' if reached is None else 'yes' if reached else 'NO'}".strip()


def main_table(rows: Sequence[Row], peers: Sequence[str], peak: Peak) -> str:
    """Return the table of workloads: our time, each peer's time and ratio, the goal, our share of the peak."""
    header = [
        "workload",
        "ours",
        *(c for p in peers for c in (p, "ratio")),
        "goal",
        "of peak",
        "",
        "first call",
        "spread",
    ]
    body = []
    for row in rows:
        cells = [row.workload.name, time_cell(row, row.ours)]
        for peer in peers:
            cells += [time_cell(row, row.peers[peer]), format_ratio(row.ratio(peer))]
        seconds = row.seconds(row.ours)
        share, unit = share_of_peak(row.workload, seconds, peak) if not math.isnan(seconds) else (math.nan, "")
        cells += [_goal_cell(row), "-" if math.isnan(share) else f"{share:.0%}", unit, format_seconds(row.ours.first)]
        cells.append("-" if math.isnan(row.ours.spread) else f"{row.ours.spread:.0%}")
        body.append(cells)
    return render(header, body)


def write_between_marks(path: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of a table in a file.

    Args:
        path: The file.
        name: Of the marks.
        text: The table and what is said about it.

    Raises:
        ValueError: The file lacks the marks.
    """
    old = path.read_text(encoding="utf-8")
    first, last = (_MARK.format(name=name, end=end) for end in ("begin", "end"))
    before, begin, rest = old.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{path} lacks the lines {first} and {last}")
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
