"""Statistics of interleaved rounds, and the comparison of results.

In:   per peer the seconds of every call, round by round; arrays.
Out:  medians, ratios, shares of the machine's peak; a sentence where results differ.
Why:  rounds that alternate between the peers see the same disturbances, so ratios hold where times do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import numpy as np

from bench.inputs import Array
from bench.workloads import Workload


@dataclass(frozen=True)
class Peak:
    """What the machine reaches at most.

    Attributes:
        flops: float32 operations per second.
        nbytes: Bytes read and written per second.
    """

    flops: float
    nbytes: float


@dataclass
class Measurement:
    """One peer on one workload.

    Attributes:
        rounds: Seconds of the calls of each round.
        first: Seconds of the first call, which compiles.
        failure: Why there is no time; empty if all went well.
        absent: The peer takes no part in this workload.
    """

    rounds: list[list[float]] = field(default_factory=list)
    first: float = math.nan
    failure: str = ""
    absent: bool = False

    @property
    def median(self) -> float:
        """Median over the rounds of each round's median: a round that was disturbed counts once. NaN without times."""
        return median(median(r) for r in self.rounds) if self.rounds and not self.failure else math.nan

    @property
    def best(self) -> float:
        """Fastest call of all; NaN without times."""
        return min(map(min, self.rounds)) if self.rounds and not self.failure else math.nan

    @property
    def spread(self) -> float:
        """How far the rounds lie apart: (slowest - fastest) / median of the rounds' medians."""
        middles = [median(r) for r in self.rounds]
        return (max(middles) - min(middles)) / self.median if middles and not self.failure else math.nan


@dataclass
class Row:
    """One workload: ours and the peers'.

    Attributes:
        workload: What was measured.
        ours: Our measurement.
        peers: Name -> the peer's.
        statistic: "median", or "best" for a machine that is busy with other work.
    """

    workload: Workload
    ours: Measurement
    peers: dict[str, Measurement]
    statistic: Literal["median", "best"] = "median"

    def seconds(self, measurement: Measurement) -> float:
        """Return the time that counts."""
        return measurement.best if self.statistic == "best" else measurement.median

    def ratio(self, peer: str) -> float:
        """Return the peer's time / ours: 1.0 is as fast, more is faster. NaN where one is missing."""
        return self.seconds(self.peers[peer]) / self.seconds(self.ours) if peer in self.peers else math.nan

    @property
    def failures(self) -> list[str]:
        """What went wrong, a line each."""
        found = [("ours", self.ours), *self.peers.items()]
        return [f"{self.workload.name}: {name}: {m.failure}" for name, m in found if m.failure]

    @property
    def reaches_goal(self) -> bool | None:
        """Whether the ratio to torch reaches the goal; None where torch was not measured."""
        if self.ours.failure:
            return False
        ratio = self.ratio("torch")
        return None if math.isnan(ratio) else ratio >= self.workload.goal


def share_of_peak(workload: Workload, seconds: float, peak: Peak) -> tuple[float, str]:
    """Return which part of the machine's peak was reached, and in which unit it is bound.

    A workload is bound by whichever takes longer at the peak: its operations or its bytes.
    """
    of_flops, of_bytes = workload.flops / peak.flops / seconds, workload.nbytes / peak.nbytes / seconds
    return (of_flops, "GFLOP/s") if of_flops >= of_bytes else (of_bytes, "GB/s")


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean, the right one for ratios; NaN of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return p of the least-squares fit seconds ~ size^p: 1 is linear.

    Raises:
        ValueError: Fewer than two different sizes.
    """
    xs, ys = [math.log(s) for s in sizes], [math.log(s) for s in seconds]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    square = sum((x - middle_x) ** 2 for x in xs)
    if square == 0:
        raise ValueError(f"growth_exponent: needs two different sizes, got {list(sizes)}")
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / square


def difference(ours: Sequence[Array], theirs: Sequence[Array], rtol: float, atol: float) -> str:
    """Return what is wrong with our results, held against a peer's; empty if they agree."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, expected {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape:
            return f"result {i} has shape {a.shape}, expected {b.shape}"
        if not np.isfinite(b).all():
            return f"result {i} of the peer is not finite, so it checks nothing"
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        error = np.abs(wide_a - wide_b)
        wrong = ~(error <= atol + rtol * np.abs(wide_b))  # not >: NaN is wrong
        if wrong.any():
            where = tuple(int(n) for n in np.unravel_index(int(np.argmax(wrong)), a.shape))
            return (
                f"result {i} is wrong in {int(wrong.sum())} of {a.size} places, "
                f"first at {where}: {_at(a, where)}, expected {_at(b, where)}"
            )
    return ""


def _at(array: Array, where: tuple[int, ...]) -> Any:
    return float(array[where])


def summary(rows: Sequence[Row], peers: Sequence[str]) -> list[str]:
    """Return the lines below the table: goals reached, mean ratio per peer."""
    judged = [row.reaches_goal for row in rows if row.reaches_goal is not None]
    lines = [f"{sum(judged)} of {len(judged)} workloads reach their goal against torch."] if judged else []
    for name in peers:
        ratios = [r for r in (row.ratio(name) for row in rows) if not math.isnan(r)]
        if ratios:
            lines.append(
                f"Geometric mean of the ratios to {name}: {geometric_mean(ratios):.2f} ({len(ratios)} workloads)."
            )
    return lines
