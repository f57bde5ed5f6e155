"""Search for a faster schedule of one kernel by running candidates (BEAM=N).

In:   a prepared kernel SINK, the steps of its policy, and a function that measures a list of steps on the device.
Out:  the fastest list of steps that was found. The policy's stay if they are as fast when both are measured again, in
      turn: the fastest of many measurements may only have been lucky.
Why:  the policies estimate; a search measures. What it tries is one more step after the best lists so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.fingerprint import source_fingerprint
from tinygrad.helpers import DEBUG, IGNORE_BEAM_CACHE, diskcache_get, diskcache_put
from tinygrad.uop import AxisType
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer

Steps = tuple[Opt, ...]
MAX_COPIES = 256  # copies of a loop body in one candidate: more make compiling slow and running no faster
MAX_DEPTH = 8
MIN_GAIN = 0.99  # a round that gains less than 1 % is the last one
CONFIRMATIONS = 3  # times that the winner and the policy's steps are measured again
TABLE = "beam"


def candidates(schedule: Schedule) -> Iterator[Opt]:
    """Yield steps that may follow; some do not fit and are refused when they are applied."""
    reduces = schedule.reduce_axes()
    for i, axis in enumerate(schedule.axes):
        if axis.kind in (AxisType.LOOP, AxisType.GLOBAL, AxisType.LOCAL):
            yield from (Opt(OptOps.UPCAST, i, n) for n in (0, 2, 3, 4, 5, 7))
            yield from (Opt(OptOps.LOCAL, i, n) for n in (2, 4, 8, 16, 32))
            yield Opt(OptOps.THREAD, i, 0)
            yield from (Opt(OptOps.SWAP, i, j) for j in range(i + 1, len(schedule.axes)))
        if axis.kind in (AxisType.LOOP, AxisType.GLOBAL, AxisType.REDUCE):
            yield from (Opt(OptOps.VECTOR, i, n) for n in (4, 8, 16))
        if i in reduces:
            yield from (Opt(OptOps.UNROLL, reduces.index(i), n) for n in (0, 2, 4, 5))
            yield from (Opt(OptOps.GROUPTOP, reduces.index(i), n) for n in (16, 64, 256))
    yield Opt(OptOps.NOLOCALS)


def _replay(sink: UOp, renderer: Renderer, steps: Steps) -> Schedule:
    schedule = Schedule(sink, renderer)
    for step in steps:
        schedule.apply(step)
    return schedule


def _copies(schedule: Schedule) -> int:
    kinds = (AxisType.UPCAST, AxisType.UNROLL)
    return math.prod(a.size for a in schedule.axes if a.kind in kinds and isinstance(a.size, int))


def _following(sink: UOp, renderer: Renderer, steps: Steps) -> Iterator[Steps]:
    for step in candidates(_replay(sink, renderer, steps)):
        try:
            schedule = _replay(sink, renderer, (*steps, step))
        except KernelOptError:
            continue
        if _copies(schedule) <= MAX_COPIES:
            yield tuple(schedule.applied)


def _known(key: str, sink: UOp, renderer: Renderer) -> Steps | None:
    """Return the steps that an earlier search found, if they are there and fit."""
    found = diskcache_get(TABLE, key)
    if not isinstance(found, tuple) or not all(isinstance(step, Opt) for step in found):
        return None
    try:
        _replay(sink, renderer, found)
    except KernelOptError:
        return None
    return found


def _is_faster(steps: Steps, start: Steps, measure: Callable[[Steps, float], float]) -> bool:
    """Whether steps are faster than the policy's, both measured anew, in turn and each at its best."""
    times = [(measure(steps, math.inf), measure(start, math.inf)) for _ in range(CONFIRMATIONS)]
    return min(t for t, _ in times) < min(t for _, t in times) * MIN_GAIN


def beam_search(
    sink: UOp, renderer: Renderer, start: Steps, width: int, measure: Callable[[Steps, float], float]
) -> Steps:
    """Return the fastest steps found.

    Args:
        sink: The kernel that the steps apply to.
        renderer: The target.
        start: Steps of the policy.
        width: How many lists are kept from round to round.
        measure: Seconds of one launch with the given steps; inf if it cannot be compiled or run. The second argument
            is the time from which on it need not be exact.
    """
    target = f"{renderer.target}-{renderer.vector_bytes}-{renderer.threads}"
    key = f"{source_fingerprint()}-{sink.key.hex()}-{target}-{width}-{start}"
    if not IGNORE_BEAM_CACHE and (known := _known(key, sink, renderer)) is not None:
        return known
    began = time.perf_counter()
    seconds, best, tried = _search(sink, renderer, start, width, measure)
    if best != start and not _is_faster(best, start, measure):
        best = start
    if DEBUG >= 2:
        _report(f"{tried} candidates in {time.perf_counter() - began:.2f} s", seconds, best)
    if seconds < math.inf:  # else nothing could be measured, for want of memory perhaps: the next time may be better
        diskcache_put(TABLE, key, best)
    return best


def _search(
    sink: UOp, renderer: Renderer, start: Steps, width: int, measure: Callable[[Steps, float], float]
) -> tuple[float, Steps, int]:
    """Return the least time, its steps, and how many candidates were tried."""
    seen = dict.fromkeys((start, ()))
    beam = sorted(((measure(steps, math.inf), steps) for steps in seen), key=lambda entry: entry[0])
    for depth in range(MAX_DEPTH):
        found = list(beam)
        for _, steps in beam:
            for longer in _following(sink, renderer, steps):
                if longer not in seen:
                    seen[longer] = None
                    found.append((measure(longer, beam[0][0]), longer))
        found.sort(key=lambda entry: entry[0])
        gained = found[0][0] < beam[0][0] * MIN_GAIN
        beam = found[:width]
        if DEBUG >= 3:
            _report(f"round {depth + 1}, {len(seen)} candidates", *beam[0])
        if not gained:
            break
    return *beam[0], len(seen)


def _report(text: str, seconds: float, steps: Steps) -> None:
    print(f"BEAM {text}, best {seconds * 1e6:.1f} us: {steps}")  # noqa: T201
