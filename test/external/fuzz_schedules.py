"""Run random contractions with random forced steps against the PYTHON device for a while.

    python test/external/fuzz_schedules.py --seconds 600 --seed 0

Each batch of seeds runs in a process of its own, in which CPU memory ends at pages that nobody may touch. A program
that takes too long is reported, and the next batch starts behind it.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test"), str(ROOT / "test/external")]

from fuzz_programs import guard_memory  # noqa: E402 - found through the path above
from helpers_ast import run_program  # noqa: E402
from helpers_schedules import compare_seed  # noqa: E402


def work_through(first: int, count: int, limit: float) -> int:
    """Run seeds in this process; returns how many failed. One that takes longer than ``limit`` seconds ends it."""
    faulthandler.register(signal.SIGALRM, chain=True)  # shows where, and then the signal does what it does: it ends us
    failed = 0
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            compare_seed(seed, run_program, on_python=seed % 4 == 0)
        except Exception as error:  # noqa: BLE001 - reported with its seed
            failed += 1
            print(f"FAIL {seed} {type(error).__name__}: {str(error)[:600]}".replace("\n", " | "), flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return failed


def run_batch(worker: list[str], first: int, count: int) -> tuple[list[str], int]:
    """Run seeds in a process of their own; returns what went wrong, and how many seeds were tried."""
    command = [*worker, "--worker", str(first), "--batch", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if line.startswith(("FAIL", "OVERRUN"))]
    if done.returncode in (0, 1):
        return wrong, count
    last = max([first, *(int(line.split()[1]) for line in lines if line.startswith("seed "))])
    kind = "TIMEOUT" if done.returncode == -signal.SIGALRM else f"CRASH {done.returncode} at"
    return [*wrong, f"{kind} {last}: {done.stderr[-2500:]}"], last + 1 - first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--limit", type=float, default=120, help="seconds of one program")
    parser.add_argument("--worker", type=int)
    arguments = parser.parse_args()
    faulthandler.enable()
    if arguments.worker is not None:
        guard_memory()
        return int(work_through(arguments.worker, arguments.batch, arguments.limit) > 0)
    end, seed, failed = time.monotonic() + arguments.seconds, arguments.seed, 0
    worker = [sys.executable, __file__, "--limit", str(arguments.limit)]
    while time.monotonic() < end:
        wrong, tried = run_batch(worker, seed, arguments.batch)
        for line in wrong:
            print(line, flush=True)
        failed += len(wrong)
        seed += tried
    print(f"next seed {seed}, {failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
