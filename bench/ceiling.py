"""What a second processor can bring at most: one process of one thread on each, all at work at the same moment.

In:   a workload, and how many processors.
Out:  ``Ceiling.measure``: how many times as much they do together as one of them does alone.
Why:  processors share caches, memory and clocks, and a virtual one may be half of a core, or busy for another guest.
      Processes have nothing to hand to each other and nobody to wait for: threads bring less, or as much.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

from bench.peers import ALONE
from bench.peers.process import PeerProcess
from bench.workloads import Workload

_PAUSE: Final = 0.02


def speed_up(alone: Sequence[float], together: Sequence[float]) -> float:
    """Return how much more is done together, given the seconds of a call of each process.

    Example:
        >>> speed_up([1.0, 1.0], [1.0, 2.0])
        1.5
    """
    return sum(1 / t for t in together) / (sum(1 / t for t in alone) / len(alone))


class Ceiling:
    """The processes.

    Args:
        processors: How many, and on how many processors.
        scratch: Folder for results and caches.
    """

    def __init__(self, processors: int, scratch: Path) -> None:
        self._scratch = scratch
        self._processes = [
            PeerProcess(ALONE, Path(sys.executable), 1, scratch, first_processor=n) for n in range(processors)
        ]

    def measure(self, workload: Workload, turns: int, seconds: float) -> float:
        """Return the median speed-up over turns, in each of which they work alone and together; NaN if one fails."""
        with ThreadPoolExecutor(len(self._processes)) as pool:

            def ask(processes: Sequence[PeerProcess]) -> list[float]:
                time.sleep(_PAUSE)
                answers = list(pool.map(lambda p: p.ask(do="time", seconds=seconds, calls=1), processes))
                return [median(answer["times"]) if "times" in answer else math.nan for answer in answers]

            for process in self._processes:
                process.ask(do="prepare", workload=workload.name, path=str(self._scratch / "results-ceiling.npz"))
            found = []
            for _ in range(turns):
                alone = [t for process in self._processes for t in ask([process])]
                found.append(speed_up(alone, ask(self._processes)))
            for process in self._processes:
                process.ask(do="drop")
        return math.nan if any(map(math.isnan, found)) else median(found)

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.stop()
