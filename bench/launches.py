"""What it costs to start a kernel: within a list, from a jitted function, and from a lazy expression.

In:   ``python -m bench.launches [--threads 2]``
Out:  a table on standard output: per way to start kernels the time of one, with one thread and with several.
Why:  small networks spend more time between their kernels than in them.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench.table import format_seconds, render
from tinygrad import Tensor, TinyJit, Variable
from tinygrad.runtime.support.cpu_native import launch_record, native
from tinygrad.runtime.support.cpu_threads import pool_address
from tinygrad.settings import Context

_LIST: Final = 1000  # kernels in a list
_ROUNDS: Final = 9


def _best(run: Callable[[], object], calls: int) -> float:
    """Return the seconds of one call: the fastest of several rounds."""
    for _ in range(4):
        run()
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def native_launch(threads: int) -> float:
    """Return the seconds per kernel of a list whose kernels do nothing, each with one iteration per thread."""
    empty = native().code.functions["spin"]  # pauses once
    words = launch_record(empty, 0, 0, threads) * _LIST
    records = (ctypes.c_int64 * len(words))(*words)
    table = ctypes.addressof(records)
    return _best(lambda: native().run_list(table, _LIST, pool_address()), 3) / _LIST


def chain(length: int, size: int) -> Callable[[], object]:
    """Return the replay of a jitted chain of products."""
    x, w = (Tensor.ones(size, size).contiguous().realize() for _ in range(2))

    def run(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(length):
            x = x @ w
        return x.realize()

    captured = TinyJit(run)
    return lambda: captured(x, w)


def rows() -> list[tuple[str, float]]:
    """Return (what, seconds) of everything but ``native_launch``, with the present number of threads."""
    a, b = (Tensor([1.0, 2.0, 3.0, 4.0]).realize() for _ in range(2))
    add = TinyJit(lambda x: (x + 1).realize())
    length = Variable("n", 1, 64)
    values = itertools.cycle([length.bind(n) for n in range(1, 65)])
    scale = TinyJit(lambda x, n: (x * n).realize())
    part = TinyJit(lambda x, n: (x[:n] + 1).realize())
    line = Tensor.ones(64).contiguous().realize()
    short, long = _best(chain(20, 4), 200), _best(chain(120, 4), 200)
    return [
        ("one more 4x4 matmul in a jitted function", (long - short) / 100),
        ("jitted x + 1 of 4 floats", _best(lambda: add(a), 500)),
        ("jitted x * n of 4 floats, n another value each time", _best(lambda: scale(a, next(values)), 500)),
        ("jitted x[:n] + 1, n another value each time", _best(lambda: part(line, next(values)), 500)),
        ("(a + b).realize() of 4 floats", _best(lambda: (a + b).realize(), 200)),
        ("a + b of 4 floats, not computed", _best(lambda: a + b, 500)),
        ("item() of a computed float", _best(a.sum().realize().item, 500)),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description="Measure what it costs to start a kernel.")
    options.add_argument("--threads", type=int, default=2, help="threads, held against one")
    threads = options.parse_args(argv).threads
    columns = []
    for count in (1, threads):
        with Context(NUM_CPU_THREADS=count):
            columns.append([("empty kernel in a list, all threads take part", native_launch(count)), *rows()])
    body = [
        [what, format_seconds(one), format_seconds(several)] for (what, one), (_, several) in zip(*columns, strict=True)
    ]
    print(render(["one of these", "1 thread", f"{threads} threads"], body))


if __name__ == "__main__":
    main()
