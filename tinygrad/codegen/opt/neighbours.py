"""Schedules that differ from a given one by one step: what a search tries next.

In:   a prepared kernel SINK, the renderer, and a list of steps that fits.
Out:  lists in which one step has another size, one is added at the end, or one is left out; all of them fit the kernel.
Why:  the policy's list is long and nearly right. What it got wrong is a size in its middle as often as a step that is
      missing at its end, so a search that could only add would not find it.

Two lists may describe the same loops (steps that commute): ``structure`` tells, without building the kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.simplify import rebuild
from tinygrad.helpers import getenv
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tinygrad.renderer import Renderer

Steps = tuple[Opt, ...]
_FIRST_NUMBER = 1 << 20  # of the ranges in ``structure``: no range of a kernel has such a number
_COPIES = frozenset({AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR})
_TILE_SIZES = frozenset({OptOps.UPCAST, OptOps.UNROLL, OptOps.SPLIT, OptOps.OVERLAP, OptOps.BLOCK})
_POWERS_OF_TWO = frozenset({OptOps.VECTOR, OptOps.LOCAL, OptOps.GROUP, OptOps.GROUPTOP})


def replay(sink: UOp, renderer: Renderer, steps: Steps) -> Schedule:
    """Return the schedule of a kernel with some steps.

    Raises:
        KernelOptError: One of them does not fit.
    """
    schedule = Schedule(sink, renderer)
    for step in steps:
        schedule.apply(step)
    return schedule


def neighbours(sink: UOp, renderer: Renderer, steps: Steps) -> Iterator[tuple[Steps, Schedule]]:
    """Yield the lists that differ from ``steps`` by one step, with their schedules."""
    schedule = Schedule(sink, renderer)
    resized: list[Steps] = []
    unpadded: int | UOp | None = None
    for i, step in enumerate(steps):
        if step.op is OptOps.PADTO:
            unpadded = schedule.axes[step.axis or 0].size
        else:
            resized += _resized(steps, i, unpadded, renderer.threads)
            unpadded = None
        schedule.apply(step)
    # In turn, so that those who take only the first ones get some of each kind.
    kinds = itertools.zip_longest(resized, _longer(schedule), _shorter(steps))
    for changed in (c for each in kinds for c in each if c is not None):
        try:
            made = replay(sink, renderer, changed)
        except KernelOptError:
            continue
        yield changed, made


def _resized(steps: Steps, i: int, unpadded: int | UOp | None, threads: int) -> Iterator[Steps]:
    """Yield lists in which a step has another size.

    Later steps that named the same size may take the new one too, and padding in front of the step fits it again.

    Args:
        steps: The list.
        i: Position of the step.
        unpadded: Size of the axis that the step before it padded, if it did.
        threads: That run a THREAD loop.
    """
    step, before = steps[i], steps[:i]
    is_padded = i > 0 and steps[i - 1].axis == step.axis and step.op in _TILE_SIZES
    for size in _other_sizes(step, threads):
        changed = Opt(step.op, step.axis, size)
        if is_padded and isinstance(unpadded, int):
            padded = Opt(OptOps.PADTO, step.axis, -(-unpadded // size) * size)
            before = (*steps[: i - 1], padded)
        yield (*before, changed, *steps[i + 1 :])
        if step.op in _TILE_SIZES:
            later = [_with_size(s, step.arg, size) for s in steps[i + 1 :]]
            if later != list(steps[i + 1 :]):
                yield (*before, changed, *later)


def _with_size(step: Opt, old: int, new: int) -> Opt:
    return Opt(step.op, step.axis, new) if step.op in _TILE_SIZES and step.arg == old else step


def _other_sizes(step: Opt, threads: int) -> list[int]:
    """Return sizes near the one of a step."""
    size = step.arg
    if step.op is OptOps.THREAD:
        return [n for n in (0, threads, 4 * threads, 16 * threads) if n != size]
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return []
    if step.op in _POWERS_OF_TWO:
        return [n for n in (size // 2, 2 * size) if n > 1]
    if step.op in _TILE_SIZES:
        near = (size // 2, 2 * size, size - 1, size + 1, size - 2, size + 2) if size <= 32 else (size // 2, 2 * size)
        return [n for n in dict.fromkeys(near) if n > 1]
    return []


def _longer(schedule: Schedule) -> Iterator[Steps]:
    """Yield the list with one step more; some do not fit."""
    steps, reduces, pads = tuple(schedule.applied), schedule.reduce_axes(), bool(getenv("BEAM_PADTO", 0))
    for i, axis in enumerate(schedule.axes):
        added: list[Opt] = []
        if axis.kind in (AxisType.LOOP, AxisType.GLOBAL, AxisType.LOCAL):
            added += [Opt(OptOps.UPCAST, i, n) for n in _copies_of(axis.size)]
            added += [Opt(OptOps.LOCAL, i, n) for n in (2, 4, 8, 16, 32)]
            added += [Opt(OptOps.THREAD, i, 0)]
            added += [Opt(OptOps.SWAP, i, j) for j in range(i + 1, len(schedule.axes))]
        if axis.kind in (AxisType.LOOP, AxisType.GLOBAL, AxisType.REDUCE):
            added += [Opt(OptOps.VECTOR, i, n) for n in (4, 8, 16)]
            added += [Opt(OptOps.PADTO, i, n) for n in (4, 8, 16, 32)] if pads else []
        if i in reduces:
            added += [Opt(OptOps.UNROLL, reduces.index(i), n) for n in _copies_of(axis.size)]
            added += [Opt(OptOps.GROUPTOP, reduces.index(i), n) for n in (16, 64, 256)]
        yield from ((*steps, step) for step in added)
    if schedule.renderer.has_local and not schedule.dont_use_locals:
        yield (*steps, Opt(OptOps.NOLOCALS))


def _copies_of(size: int | UOp) -> list[int]:
    """Return how many iterations of a loop to try as copies: all, and two small numbers of them."""
    if not isinstance(size, int):
        return []
    return [0, *[n for n in (2, 4, 3, 5, 7, 8) if size % n == 0 and n < size][:2]]


def _shorter(steps: Steps) -> Iterator[Steps]:
    """Yield the lists with one step less.

    Threads stay: without them a kernel is as fast as with them while other processes have the other cores, which says
    nothing of the time when they are free.
    """
    for i, step in enumerate(steps):
        if step.op is not OptOps.THREAD:
            yield (*steps[:i], *steps[i + 1 :])


def move(before: Steps, after: Steps) -> tuple[Opt | None, Opt | None]:
    """Return the step that was taken out, and the one that was put in, to get from a list to its neighbour."""
    i = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    longer = len(after) - len(before)
    return before[i] if longer <= 0 else None, after[i] if longer >= 0 else None


def limit_exceeded(schedule: Schedule) -> str | None:
    """Return which limit of a search a schedule exceeds, in words, or None."""
    for name, default, kinds in (
        ("BEAM_UPCAST_MAX", 256, (AxisType.UPCAST, AxisType.UNROLL)),
        ("BEAM_LOCAL_MAX", 1024, (AxisType.LOCAL, AxisType.GROUP_REDUCE)),
    ):
        size = _product(schedule, kinds)
        if size > getenv(name, default):
            return f"{size} is more than {name}={getenv(name, default)}"
    renderer = schedule.renderer
    if renderer.vector_bytes and schedule.reduce_axes():
        sums, room = _sums(schedule), 2 * renderer.vector_registers
        if sums > room:
            return f"{sums} vectors of sums do not fit {renderer.vector_registers} registers by far"
    return None


def _product(schedule: Schedule, kinds: tuple[AxisType, ...]) -> int:
    return math.prod(a.size for a in schedule.axes if a.kind in kinds and isinstance(a.size, int))


def _sums(schedule: Schedule) -> int:
    """Return how many vectors the sums inside of the reduce loops are, at least."""
    lanes = [a.size for a in schedule.axes if a.kind is AxisType.VECTOR and isinstance(a.size, int)]
    widths = [u.dtype.itemsize for u in schedule.nodes if u.op is Ops.REDUCE]
    vectors = -(-max(lanes, default=1) * min(widths, default=1) // schedule.renderer.vector_bytes)
    return _product(schedule, (AxisType.UPCAST,)) * vectors


def structure(schedule: Schedule) -> Hashable:
    """Return what two schedules of one kernel share if they give the same loops over the same elements.

    That is what each original range became, and the order of the loops. The order of copies and lanes is left out: it
    only tells in which order steps were taken.
    """
    final: dict[UOp, UOp] = {}
    for old, value in reversed(schedule.replaced.items()):
        final[old] = rebuild(value, final)
    places = [final.get(r, r) for r in schedule.original]
    # Ranges are numbered in the order in which they were made; here, by where they stand in the original ones.
    kinds = {a.range: a.kind for a in schedule.axes}
    named: dict[UOp, UOp] = {}
    for u in dict.fromkeys(u for place in places for u in place.toposort()):
        if u in kinds:
            named[u] = UOp.range(u.src[0], _FIRST_NUMBER + len(named), kinds[u])
    loops = tuple(named[a.range] for a in schedule.axes if a.kind not in _COPIES)
    blocks = frozenset(rebuild(final.get(r, r), named) for r in schedule.block_outer)
    masks = frozenset(rebuild(condition, {**final, **named}) for _, condition in schedule.conditions)
    # What is copied to scratch memory depends on when that was decided.
    copies = tuple(schedule.applied) if schedule.cached or schedule.staged or schedule.dot else ()
    return loops, tuple(rebuild(p, named) for p in places), blocks, masks, copies, schedule.dont_use_locals
