"""Worker threads of CPU kernels, and lists of launches that run as one native call.

In:   the number of threads (``NUM_CPU_THREADS``); launches: (program, buffers, values, iterations).
Out:  ``pool_address()`` for single launches, ``NativeBatch`` for lists.
Why:  workers are ordinary daemon Python threads that enter a native loop and stay there (ctypes releases the
      interpreter lock): no C extension, no OpenMP. They spin briefly between kernels and then sleep.

A forked child starts with no pools and makes its own. Several Python threads may launch at once: the pool serves one
kernel at a time, and whoever finds it busy runs its kernel alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tinygrad.forking import renew_in_child
from tinygrad.runtime.support import cpu_native as layout
from tinygrad.runtime.support.cpu_native import can_sleep, libc_addresses, native
from tinygrad.settings import NUM_CPU_THREADS

if TYPE_CHECKING:
    from tinygrad.runtime.ops_cpu import CPUMemory, CPUProgram

# About what a late start costs: a sleeping worker joins a kernel 50 us (a bare machine) to 300 us (a virtual one) late.
_SPIN_SECONDS: Final = 300e-6
# Kernels keep their scratch memory on the stack.
_WORKER_STACK_BYTES: Final = 16 << 20


class ThreadPool:
    """Worker threads that share the iterations of one kernel at a time with the thread that launches it.

    Args:
        threads: Number of threads that work on a kernel, the launching one included; at least 2.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._memory = (ctypes.c_uint8 * (layout.LANES + layout.LANE_BYTES * threads + 64))()
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        # Where there is one core, a spinning worker only keeps the launching thread from running.
        spins = int(_SPIN_SECONDS / _pause_seconds()) if _available_cores() > 1 else 0
        self._write(layout.SETUP, 0, spins, threads, *libc_addresses())
        self._workers = self._start()

    def _write(self, offset: int, *words: int) -> None:
        struct.pack_into(
            f"<{len(words)}q", self._memory, self.address - ctypes.addressof(self._memory) + offset, *words
        )

    def _start(self) -> list[threading.Thread]:
        before = threading.stack_size(_WORKER_STACK_BYTES)
        try:
            workers = [
                threading.Thread(target=native().worker, args=(self.address, i), name=f"tinygrad-cpu-{i}", daemon=True)
                for i in range(1, self.threads)
            ]
            for worker in workers:
                worker.start()
        finally:
            threading.stack_size(before)
        return workers

    def stop(self, timeout: float = 1.0) -> None:
        """Let the workers return; kernels that are launched meanwhile still finish."""
        deadline = time.monotonic() + timeout
        for worker in self._workers:
            # A launch at the same moment may undo the change of the kernel's number that wakes a worker: try again.
            while worker.is_alive() and time.monotonic() < deadline:
                native().stop(self.address)
                worker.join(0.001)


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pause_seconds() -> float:
    """Measure one pause instruction: 40 cycles on some processors, 140 on others."""
    best = 1.0
    for _ in range(3):
        start = time.perf_counter()
        native().spin(2000)
        best = min(best, time.perf_counter() - start)
    return max(best / 2000, 1e-9)


_pools: dict[int, ThreadPool] = {}
_refused: set[int] = set()
_pools_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_pools_lock")
_stopped = False


def pool_address() -> int | None:
    """Return the pool for ``NUM_CPU_THREADS`` threads, started on first use; None for one thread."""
    threads = NUM_CPU_THREADS.get()
    pool = _pools.get(threads)
    if pool is not None:
        return pool.address
    return _new_pool(threads)


def _new_pool(threads: int) -> int | None:
    if threads <= 1 or _stopped or not can_sleep():
        return None
    with _pools_lock:
        if threads in _pools:
            return _pools[threads].address
        if threads in _refused:
            return None
        try:
            _pools[threads] = ThreadPool(threads)
        except RuntimeError:  # no more threads for this process, or the interpreter is shutting down
            _refused.add(threads)
            return None
        return _pools[threads].address


def _stop_all() -> None:
    global _stopped
    _stopped = True
    pools = list(_pools.values())
    _pools.clear()
    for pool in pools:
        pool.stop()
    # A thread that still runs kernels may have read a pool's address just before: the memory stays.
    _retired.extend(pools)


def _forget_in_child() -> None:
    # The workers did not survive the fork. Their pools' memory may be in any state; children never look at it again.
    _retired.extend(_pools.values())
    _pools.clear()


_retired: list[ThreadPool] = []
atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


class NativeBatch:
    """A list of kernel launches that runs as one native call; pointers and values are changed in place between runs.

    Args:
        calls: (program, buffers in the program's order, values of its variables, iterations of its THREAD loop).

    Example:
        batch = NativeBatch([(program, (out, x), (), 64)])
        batch.run()
        batch.set_buffer(0, 1, other_x)
        batch.run()
    """

    def __init__(self, calls: Sequence[tuple[CPUProgram, Sequence[CPUMemory], Sequence[int], int]]) -> None:
        self._programs = [program for program, _, _, _ in calls]
        self._buffers = [list(buffers) for _, buffers, _, _ in calls]
        words: list[int] = [0] * (layout.RECORD_WORDS * len(calls))
        self._first: list[int] = []  # position of the first buffer of each call
        for i, (program, buffers, vals, iterations) in enumerate(calls):
            program.check(len(buffers), len(vals))
            self._first.append(len(words))
            words += [buffer.address for buffer in buffers]
            words += vals
            start = i * layout.RECORD_WORDS
            words[start : start + layout.RECORD_WORDS] = layout.launch_record(program.address, 0, 0, iterations)
        self._table = (ctypes.c_int64 * len(words))(*words)
        base = self._base = ctypes.addressof(self._table)
        for i, first in enumerate(self._first):
            self._table[i * layout.RECORD_WORDS + 1] = base + 8 * first
            self._table[i * layout.RECORD_WORDS + 2] = base + 8 * (first + len(self._buffers[i]))
        self._count = len(calls)
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._run_list = native().run_list

    def __len__(self) -> int:
        return self._count

    def set_buffer(self, call: int, position: int, buffer: CPUMemory) -> None:
        """Replace one buffer of one launch."""
        self._buffers[call][position] = buffer
        self._table[self._first[call] + position] = buffer.address

    def set_buffers(self, places: Iterable[tuple[int, int]], buffer: CPUMemory) -> None:
        """Replace the buffer at every (call, position)."""
        for call, position in places:
            self.set_buffer(call, position, buffer)

    def join(self, first: int, length: int, overlaps: bool) -> None:
        """Let each iteration go through ``length`` launches from ``first`` on before the next one begins.

        Args:
            first: Number of the first launch.
            length: Number of launches. They have as many iterations, and what one of them needs of another has been
                computed by the same iteration.
            overlaps: The last two iterations may touch the same bytes, so one thread has to run both.
        """
        self._table[first * layout.RECORD_WORDS + 4] = length
        self._table[first * layout.RECORD_WORDS + 5] = int(overlaps)

    def set_value(self, call: int, position: int, value: int) -> None:
        """Replace one variable's value of one launch."""
        self._table[self._first[call] + len(self._buffers[call]) + position] = value

    def set_iterations(self, call: int, iterations: int) -> None:
        """Replace the number of iterations of the THREAD loop of one launch."""
        self._table[call * layout.RECORD_WORDS + 3] = iterations

    def run(self, wait: bool = False) -> float | None:
        """Run all launches in order.

        Returns:
            Seconds if ``wait``, else None. The launches are done in either case.
        """
        if not wait:
            self._run_list(self._base, self._count, pool_address())
            return None
        start = time.perf_counter()
        self._run_list(self._base, self._count, pool_address())
        return time.perf_counter() - start

    def __reduce__(self) -> Any:
        raise TypeError("NativeBatch holds addresses of this process; build a new one instead of pickling it")
