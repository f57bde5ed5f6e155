"""Search for a faster schedule of one kernel by running candidates (BEAM=N).

In:   a prepared kernel SINK, the steps of its policy, and what measures lists of steps on the device.
Out:  the fastest list of steps that was found. The policy's stay unless another list is clearly faster in most of
      several turns, in which they are measured beside each other.
Why:  the policies estimate; a search measures. What it tries are the neighbours of the best lists so far.

The fastest of many measurements may only have been lucky. A processor that other guests share changes its speed by half
for a tenth of a second at a time, so that the shortest of several times only tells which list met a fast moment. Times
of one turn lie milliseconds apart: they share its state, and a turn counts once, however far it lies from the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

from tinygrad.codegen.opt import KernelOptError, Opt
from tinygrad.codegen.opt.measure import LONG_SECONDS, NO_MEASUREMENT, Measure, Measurement
from tinygrad.codegen.opt.neighbours import Steps, limit_exceeded, move, neighbours, replay, structure
from tinygrad.codegen.opt.search_report import Report
from tinygrad.fingerprint import source_fingerprint
from tinygrad.helpers import EMULATED_DTYPES, IGNORE_BEAM_CACHE, PARALLEL, diskcache_get, diskcache_put, getenv
from tinygrad.middleware import cache_token
from tinygrad.uop import Ops
from tinygrad.uop.ops import KernelInfo, UOp

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tinygrad.renderer import Renderer

MAX_ROUNDS = 8
MAX_SECONDS = 1.0  # for each list that is kept: no further list is changed after that
MIN_GAIN = 0.97  # a round, or a search, that gains less than 3 % is not worth more
FINALISTS = 3  # the fastest lists, which are measured again beside the policy's: the very fastest may have been lucky
TURNS, TURNS_AT_ONCE = 9, 3
PAUSE_SECONDS = 0.1  # between some turns and the next ones: what disturbs the first ones may be over
WINS = 7  # turns in which a list must gain so much: a list that is not faster gains in fewer than half of them
LAUNCH_SECONDS = 4e-6  # a kernel that takes no longer is left alone: starting it costs as much
# A search must not take longer than what it is for: a kernel of 20 us is worth few tries, one of 1 ms a whole round.
TRIES_PER_SECOND = 200_000
FEWEST_TRIES, MOST_TRIES = 8, 28  # new candidates of one list in one round
MUCH_SLOWER = 1.3  # times slower: a move that made one list so is not tried on those that follow from it
TABLE = "beam"
_LIMITS = ("BEAM_UPCAST_MAX", "BEAM_LOCAL_MAX", "BEAM_UOPS_MAX", "BEAM_PADTO")


def search_key(sink: UOp, renderer: Renderer, start: Steps, width: int) -> str:
    """Return under which key a search is kept: the kernel without its name, target, settings, and this version."""
    kernel = sink.replace(arg=KernelInfo(dont_use_locals=sink.arg.dont_use_locals)).key.hex()
    target = f"{type(renderer).__name__}-{renderer.target}-{renderer.vector_bytes}-{renderer.threads}"
    limits = [EMULATED_DTYPES.value, *(getenv(name, "") for name in _LIMITS)]
    return f"{source_fingerprint()}-{kernel}-{target}-{width}-{limits}-{start}"


def known_steps(key: str, sink: UOp, renderer: Renderer) -> Steps | None:
    """Return the steps that an earlier search found, if they are there and fit."""
    if IGNORE_BEAM_CACHE or cache_token():
        return None
    found = diskcache_get(TABLE, key)
    if not isinstance(found, tuple) or not all(isinstance(step, Opt) for step in found):
        return None
    try:
        replay(sink, renderer, found)
    except KernelOptError:
        return None
    return found


def can_search(renderer: Renderer) -> bool:
    """Whether the target's device tells by its times what is fast: an interpreter, or one that runs nothing, cannot."""
    from tinygrad.device import Device

    return Device.get_class(renderer.target.device).has_clock


def search_steps(sink: UOp, renderer: Renderer, start: Steps, width: int) -> Steps:
    """Return the fastest steps that this search or an earlier one found.

    Args:
        sink: The kernel that the steps apply to.
        renderer: The target.
        start: Steps of the policy.
        width: How many lists are kept from round to round.
    """
    known = known_steps(search_key(sink, renderer, start, width), sink, renderer)
    if known is not None:
        return known
    report = Report()
    if not cache_token() and PARALLEL.get() > 0:  # inserted rules may be any Python object, which cannot be sent
        best = _search_beside(sink, renderer, start, width, report)
        if best is not None:
            return best
    return beam_search(sink, renderer, start, width, Measurement(sink, renderer, start, report), report)


def _search_beside(sink: UOp, renderer: Renderer, start: Steps, width: int, report: Report) -> Steps | None:
    """Search in worker processes; None if there are none, or the kernel cannot be sent to them or run there."""
    from tinygrad.codegen.opt.worker_measurement import WorkerMeasurement
    from tinygrad.codegen.opt.worker_pool import pool

    problem, measure = pool.available(), None
    if problem is None:
        try:
            measure = WorkerMeasurement(sink, renderer, start, report)
        except Exception as error:  # noqa: BLE001  objects of users may fail in any way when they are pickled
            problem = f"the kernel cannot be sent to another: {error}"
    if measure is None:
        report.note(f"runs candidates in this process, where a crash would be the end of it: {problem}")
        return None
    with measure:
        return beam_search(sink, renderer, start, width, measure, report) if measure.can_run() else None


def beam_search(sink: UOp, renderer: Renderer, start: Steps, width: int, measure: Measure, report: Report) -> Steps:
    """Return the fastest steps found, and keep them on disk.

    Args:
        sink: The kernel that the steps apply to.
        renderer: The target.
        start: Steps of the policy.
        width: How many lists are kept from round to round.
        measure: Times lists of steps.
        report: Tells about the search.
    """
    search = _Search(sink, renderer, measure, report)
    report.begin()
    best = search.run(start, width)
    report.end(_loops(sink), search.tried, (search.policy_seconds, search.seconds), (start, best))
    if search.seconds < NO_MEASUREMENT and not cache_token():  # else the next time may be better: no memory, perhaps
        diskcache_put(TABLE, search_key(sink, renderer, start, width), best)
    return best


def _loops(sink: UOp) -> str:
    """Return the sizes of a kernel's loops, as a name."""
    nodes = sink.toposort()
    sizes = [u.src[0].render() for u in nodes if u.op is Ops.RANGE]
    return "_".join(["r" if any(u.op is Ops.REDUCE for u in nodes) else "E", *sizes])


class _Search:
    """The state of one search."""

    def __init__(self, sink: UOp, renderer: Renderer, measure: Measure, report: Report) -> None:
        self.sink, self.renderer, self.measure, self.report = sink, renderer, measure, report
        self.seen: set[Hashable] = set()
        self.bad_moves: set[tuple[Opt | None, Opt | None]] = set()
        self.tried = 1
        self.times: dict[Steps, float] = {}
        self.policy_seconds = self.seconds = math.inf

    def run(self, start: Steps, width: int) -> Steps:
        """Return the best steps."""
        self.policy_seconds = self.seconds = self.measure(start, NO_MEASUREMENT)
        if self.seconds == NO_MEASUREMENT or self.seconds <= LAUNCH_SECONDS:
            return start
        if self.seconds > LONG_SECONDS:  # measured as its candidates will be
            self.seconds = self.measure(start, self.seconds)
        self.seen.add(structure(replay(self.sink, self.renderer, start)))
        slower = self.seconds  # than which candidates must be faster
        self._rounds([(slower, start)], width)
        faster = [steps for steps, seconds in self.times.items() if seconds < slower]
        self.seconds = self.policy_seconds
        return self._best_in_turns(sorted(faster, key=lambda steps: self.times[steps])[:FINALISTS], start)

    def _rounds(self, beam: list[tuple[float, Steps]], width: int) -> None:
        most = int(min(max(self.policy_seconds * TRIES_PER_SECOND, FEWEST_TRIES), MOST_TRIES))
        expanded: set[Steps] = set()
        deadline = time.monotonic() + MAX_SECONDS * width
        for number in range(1, MAX_ROUNDS + 1):
            before, found = beam[0][0], list(beam)
            for seconds, steps in beam:
                if steps not in expanded and (not expanded or time.monotonic() < deadline):
                    expanded.add(steps)
                    timed = self._timed(list(self._new(steps, most)), min(found)[0])
                    self.bad_moves.update(move(steps, other) for t, other in timed if t > MUCH_SLOWER * seconds)
                    found += timed
            beam = sorted(found, key=lambda entry: entry[0])[:width]
            self.seconds = beam[0][0]
            self.report.round(number, self.tried, *beam[0])
            if self.seconds > before * MIN_GAIN or before - self.seconds < getenv("BEAM_MIN_PROGRESS", 0.01) * 1e-6:
                break

    def _new(self, steps: Steps, most: int) -> Iterator[Steps]:
        """Yield neighbours that give loops which no candidate had yet."""
        for changed, schedule in neighbours(self.sink, self.renderer, steps):
            loops = structure(schedule)
            if loops in self.seen or move(steps, changed) in self.bad_moves:
                continue
            self.seen.add(loops)
            if limit := limit_exceeded(schedule):
                self.report.beyond(changed, limit)
                continue
            yield changed
            most -= 1
            if most == 0:
                return

    def _timed(self, candidates: list[Steps], limit: float) -> list[tuple[float, Steps]]:
        self.measure.prepare(candidates)
        timed = []
        for steps in candidates:
            seconds = self.measure(steps, limit)
            self.report.timed(steps, seconds)
            self.times[steps] = seconds
            timed.append((seconds, steps))
            limit = min(limit, seconds)
        self.tried += len(candidates)
        return timed

    def _best_in_turns(self, rivals: list[Steps], start: Steps) -> Steps:
        """Return which of several lists gains most over the policy's, all measured anew; the policy's if none does."""
        turns: dict[Steps, list[tuple[float, float]]] = {steps: [] for steps in rivals}
        for turn in range(0, TURNS, TURNS_AT_ONCE):
            if not rivals:
                return start
            if turn > 0:
                time.sleep(PAUSE_SECONDS)
            for first, *others in self.measure.turns([start, *rivals], TURNS_AT_ONCE):
                for steps, seconds in zip(rivals, others, strict=True):
                    turns[steps].append((first, seconds))
            rivals = [steps for steps in rivals if _losses(turns[steps]) <= TURNS - WINS]
        if not rivals:
            return start
        best = min(rivals, key=lambda steps: median(seconds / first for first, seconds in turns[steps]))
        self.policy_seconds, self.seconds = (median(each) for each in zip(*turns[best], strict=True))
        return best


def _losses(turns: list[tuple[float, float]]) -> int:
    """Return in how many turns the second time is not clearly shorter than the first."""
    return sum(not seconds < first * MIN_GAIN for first, seconds in turns)
