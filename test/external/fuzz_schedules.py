"""Run random contractions with random forced steps against the PYTHON device for a while.

    python test/external/fuzz_schedules.py --seconds 600 --seed 0

Each batch of seeds runs in a process of its own, in which CPU memory ends at pages that nobody may touch.
"""

from __future__ import annotations

import argparse
import faulthandler
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test"), str(ROOT / "test/external")]

from fuzz_programs import guard_memory  # noqa: E402 - found through the path above
from helpers_ast import run_program  # noqa: E402
from helpers_schedules import compare_seed  # noqa: E402


def work_through(first: int, count: int) -> int:
    failed = 0
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        try:
            compare_seed(seed, run_program, on_python=seed % 4 == 0)
        except Exception as error:  # noqa: BLE001 - reported with its seed
            failed += 1
            print(f"FAIL {seed} {type(error).__name__}: {str(error)[:600]}".replace("\n", " | "), flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--worker", type=int)
    arguments = parser.parse_args()
    faulthandler.enable()
    if arguments.worker is not None:
        guard_memory()
        return int(work_through(arguments.worker, arguments.batch) > 0)
    end, seed, failed = time.monotonic() + arguments.seconds, arguments.seed, 0
    while time.monotonic() < end:
        command = [sys.executable, __file__, "--worker", str(seed), "--batch", str(arguments.batch)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        for line in lines:
            if line.startswith(("FAIL", "OVERRUN")):
                print(line, flush=True)
                failed += 1
        if done.returncode not in (0, 1):
            print(f"CRASH {done.returncode} at {lines[-1:]}: {done.stderr[-2500:]}", flush=True)
            failed += 1
        seed += arguments.batch
    print(f"next seed {seed}, {failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
