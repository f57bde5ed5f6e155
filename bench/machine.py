"""What the measurements ran on: the processor, its measured peaks, how busy it was.

In:   nothing.
Out:  lines of text, ``Peak``.
Why:  a time means nothing without the machine, and nothing on a busy one.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.measure import Peak
from bench.peers import OURS
from bench.peers.process import worker_environment

_MEASURE: Final = (
    "import json, os, sys\n"
    "hasattr(os, 'sched_setaffinity') and os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[1])])\n"
    "from tinygrad.runtime.support.cpu_peak import cpu_peak\n"
    "print(json.dumps(cpu_peak()))\n"
)


def measure_peak(threads: int, scratch: Path) -> Peak:
    """Measure the peaks now, with ``threads`` threads, in a process without a cache.

    A busy machine gives less than it could, so the caller measures several times and takes the most.
    """
    variables = worker_environment(OURS, threads, scratch)
    variables["CACHELEVEL"] = "0"
    command = [sys.executable, "-c", _MEASURE, str(threads)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=120)
    flops, nbytes = json.loads(done.stdout)
    return Peak(flops, nbytes)


def highest(peaks: list[Peak]) -> Peak:
    """Return the most of each."""
    return Peak(max(p.flops for p in peaks), max(p.nbytes for p in peaks))


def load_average() -> float:
    """Return how many processes wanted to run in the last minute; NaN where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def processor() -> str:
    """Return the model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def describe(threads: int, peak: Peak) -> str:
    """Return one paragraph on the machine."""
    return (
        f"{processor()}, {os.cpu_count()} processors of which {threads} are used, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}. Measured peak: {peak.flops / 1e9:.0f} GFLOP/s in "
        f"float32, {peak.nbytes / 1e9:.1f} GB/s copying."
    )
