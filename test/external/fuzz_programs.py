"""Run random programs for a while: all public operations, dtypes and shapes, in-place writes, replays, threads.

    python test/external/fuzz_programs.py --seconds 600 --seed 0

Each batch of seeds runs in a process of its own, so that a crash is caught with its seed. In the process, every block
of CPU memory ends at a page that nobody may touch, and holds rubbish where nothing was written. ``--only SEED`` runs
one program in this process and prints the smallest part of it that fails.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import mmap
import os
import random
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

if str(ROOT / "test") not in getattr(sys.modules.get("test"), "__path__", ()):
    # Python has a package ``test`` of its own, which would be found instead of this folder.
    sys.modules["test"] = package = types.ModuleType("test")
    package.__path__ = [str(ROOT / "test")]

from helpers_expressions import ExpressionGenerator, compare, smallest  # noqa: E402 - found through the path above

from test import helpers_programs, helpers_writes  # noqa: E402

RUBBISH = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class GuardedBlock:
    """Memory that ends at a page without access: what replaces the blocks of the CPU's allocator."""

    def __init__(self, nbytes: int) -> None:
        self.used = -(-nbytes // 64) * 64
        size = -(-self.used // mmap.PAGESIZE) * mmap.PAGESIZE
        self._map = mmap.mmap(-1, size + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        _libc.mprotect(start + size, mmap.PAGESIZE, 0)
        self.address = start + size - self.used
        self._end, self._canary = self.address + nbytes, self.used - nbytes
        ctypes.memset(self.address, RUBBISH, self.used)

    def __del__(self) -> None:
        if ctypes.string_at(self._end, self._canary) != bytes([RUBBISH]) * self._canary:
            print("OVERRUN: a kernel wrote behind the end of a block", flush=True)
            os.abort()


def guard_memory() -> None:
    from tinygrad.runtime import ops_cpu

    ops_cpu._Block = GuardedBlock  # type: ignore[misc,assignment]


# ---- one seed ------------------------------------------------------------------------------------------------------


def write_program(seed: int) -> tuple[list[str], dict[str, bool]]:
    large = seed % 7 == 0
    generator = ExpressionGenerator(seed, largest=200_000 if large else 4000)
    return generator.program(random.Random(seed).randint(4, 24)), dict(generator.exact)


def run_seed(seed: int, devices: tuple[str, ...]) -> None:
    """Run what a seed stands for; raises where it differs from numpy."""
    if seed % 5 == 4:
        generator = helpers_writes.WriteGenerator if seed % 2 else helpers_programs.Generator
        with np.errstate(all="ignore"):
            helpers_programs.execute(generator(seed).program(30))
        return
    lines, exact = write_program(seed)
    for device in devices:
        if device == "CPU" or (seed % 3 == 0 and seed % 7):
            with np.errstate(all="ignore"):
                compare(lines, exact, device, order=seed + 1)


def run_in_threads(seeds: list[int], devices: tuple[str, ...]) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            run_seed(seed, devices)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def show_smallest(seed: int, devices: tuple[str, ...]) -> None:
    lines, exact = write_program(seed)

    def fails(part: list[str]) -> bool:
        try:
            for device in devices:
                compare(part, exact, device, order=seed + 1)
        except (NameError, KeyError, UnboundLocalError):
            return False
        except Exception as error:  # noqa: BLE001 - whatever the program fails with
            return type(error) is kind
        return False

    try:
        for device in devices:
            compare(lines, exact, device, order=seed + 1)
    except Exception as error:
        kind = type(error)
        print(f"{kind.__name__}: {error}")
        print("\n".join(smallest(lines, fails)))
        raise
    print("\n".join(lines))
    print("no difference")


def work_through(first: int, count: int, devices: tuple[str, ...]) -> int:
    """Run seeds in this process; returns how many failed."""
    failed = 0
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        try:
            if seed % 11 == 10:
                run_in_threads([seed - 1, seed - 2, seed - 3], devices)
            else:
                run_seed(seed, devices)
        except Exception as error:  # noqa: BLE001 - reported with its seed
            failed += 1
            print(f"FAIL {seed} {type(error).__name__}: {str(error)[:300]}".replace("\n", " | "), flush=True)
    return failed


# ---- many seeds ----------------------------------------------------------------------------------------------------


def run_batches(seconds: float, seed: int, batch: int, devices: str) -> int:
    end, failed = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        command = [sys.executable, __file__, "--worker", str(seed), "--batch", str(batch), "--devices", devices]
        env: dict[str, Any] = dict(os.environ, MALLOC_PERTURB_="165")
        if seed // batch % 3 == 1:
            env["NO_MEMORY_PLANNER"] = "1"
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env, check=False)
            output, code = done.stdout, done.returncode
            errors = done.stderr
        except subprocess.TimeoutExpired as error:
            output, code, errors = str(error.stdout), -1, "took too long"
        for line in output.splitlines():
            if line.startswith(("FAIL", "OVERRUN")):
                print(line, flush=True)
                failed += 1
        if code not in (0, 1):
            last = [line for line in output.splitlines() if line.startswith("seed")][-1:]
            print(f"CRASH {code} at {last}: {errors[-2500:]}", flush=True)
            failed += 1
        seed += batch
    print(f"next seed {seed}, {failed} failures")
    return int(failed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--devices", default="CPU,PYTHON")
    parser.add_argument("--worker", type=int)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    devices = tuple(arguments.devices.split(","))
    faulthandler.enable()
    if arguments.only is not None:
        show_smallest(arguments.only, devices)
        return 0
    if arguments.worker is not None:
        guard_memory()
        return int(work_through(arguments.worker, arguments.batch, devices) > 0)
    return run_batches(arguments.seconds, arguments.seed, arguments.batch, arguments.devices)


if __name__ == "__main__":
    sys.exit(main())
