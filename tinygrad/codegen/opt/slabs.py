"""Slabs of images for convolutions: zeros around an image are made where it is copied, not in memory.

In:   a Schedule of a contraction, one factor of which is read through windows, with gates where they leave the image.
Out:  the Schedule with that factor copied to scratch memory (STAGE), and the contraction as the policy sees it then.
How:  slabs of rows (parallel); each copies what its rows read, zeros included, channel by channel, which then is in the
      second cache while all filters pass over it. The loops behind read it without gates.
Why:  padding an image in a kernel of its own writes and reads all of it once more: a twelfth of a convolution with 64
      filters. Gates in the innermost loop cost more than that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.codegen.late.affine import affine
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Access, Kernel
from tinygrad.codegen.opt.blocking import STACK_BYTES, UNEVEN, axis_of, move_to_the_end
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.record import record, replace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.codegen.opt.contraction import Sides

CACHE_SHARE = 2  # a slab takes this part of the memory near a core at most
COPY_CYCLES = 3.0  # of copying one element: rows come from beyond the second cache, with a test for each
MOST_SLABS = 64  # of one image: with more, rows that two slabs share are too large a part


@record(frozen=True)
class Sliding:
    """A dimension of an image: it is read at ``rows + step * taps``, original ranges of the output and of the sum."""

    rows: UOp
    taps: UOp
    step: int


@record(frozen=True)
class Slab:
    """Slabs that a kernel copies.

    Args:
        side: Which factor is copied.
        first: The axis in front of which a slab is copied; those before it are the loop over slabs.
        sides: The contraction, with the factor read from the copy, and without the loop over slabs.
    """

    side: int
    first: int
    sides: Sides


def find_windows(kernel: Kernel, sides: Sides, side: int) -> tuple[Sliding, ...]:
    """Return the windows through which a factor is read, the one along memory rows last.

    Empty if its gates are not all explained by windows. If there is none along memory rows, loops over taps are cut
    instead (``trim.py``), which saves work besides.
    """
    if len(sides.loads[side]) != 1 or not sides.loads[side][0].gate_ranges:
        return ()
    load, found = sides.loads[side][0], []
    for r in sides.ranges[side]:
        step = load.step(r) or 0
        taps = [k for k in sides.contracted if 0 < step <= (load.step(k) or 0) and load.steps[k] % step == 0]
        k = min(taps, key=lambda k: load.steps[k], default=None)
        if k is None or not _move_together(load, r, k, load.steps[k] // step):
            continue
        by = load.steps[k] // step
        if r in load.gate_ranges or by * (kernel.size(k) - 1) < kernel.size(r):
            found.append(Sliding(r, k, by))
    found.sort(key=lambda w: -load.steps[w.rows])
    ranges = {r for w in found for r in (w.rows, w.taps)}
    if len(ranges) < 2 * len(found) or not load.gate_ranges <= ranges:
        return ()
    return tuple(found) if found[-1].rows in load.gate_ranges else ()


def _move_together(load: Access, r: UOp, k: UOp, by: int) -> bool:
    """Whether all conditions on a load depend on ``r + by * k`` or on neither."""
    for condition in load.node.src[2].split_uop(Ops.AND):
        inner = condition.src[0] if condition.op is Ops.CMPNE else condition
        if inner.op is not Ops.CMPLT:
            return False
        terms, _ = affine(inner.src[0] - inner.src[1])
        if terms.get(k, 0) != by * terms.get(r, 0) or any({r, k} & t.ranges.keys() for t in terms if t not in (r, k)):
            return False
    return True


def copy_slabs(schedule: Schedule, kernel: Kernel, sides: Sides) -> Slab | None:
    """Copy the factor that is read through windows with gates to scratch memory; None if there is none, or no room."""
    if schedule.reads_outputs() or len(kernel.ends) != 1 or len(schedule.factors()) != 2:
        return None
    side, windows = next(((n, found) for n in (0, 1) if (found := find_windows(kernel, sides, n))), (0, ()))
    outputs = [a.range for a in schedule.axes if not a.reduce]
    if not windows or any(r.src[0].op is not Ops.CONST for r in outputs):
        return None
    load = sides.loads[side][0]
    own, inside = [w.rows for w in windows], [r for r in outputs if r in sides.ranges[1 - side]]
    outside = [r for r in outputs if r not in own and r not in inside]
    image = _Image(kernel, load, windows, [k for k in sides.contracted if k in load.ranges])
    count = image.rows_of_slab(schedule, inside, outside)
    if count == 0:
        return None
    if count < kernel.size(own[0]):
        at = axis_of(schedule, own[0])
        schedule.apply(Opt(OptOps.OVERLAP, at, count))
        outside.append(schedule.axes[at].range)
        own[0] = schedule.axes[at + 1].range
    inside += own
    first = move_to_the_end(schedule, [*outside, *inside], inside)
    loops = [schedule.axes[at].range for at in schedule.reduce_axes()]
    places = tuple([(axis_of(schedule, r), loops.index(w.taps), w.step) for r, w in zip(own, windows, strict=True)])
    schedule.apply(Opt(OptOps.STAGE, first, (side, True, places)))
    copied = replace(load, steps=image.steps(), nonlinear=frozenset(), gate_ranges=frozenset())
    loads, ranges = list(sides.loads), list(sides.ranges)
    loads[side], ranges[side] = [copied], [w.rows for w in windows]
    return Slab(side, first, replace(sides, loads=(loads[0], loads[1]), ranges=(ranges[0], ranges[1])))


class _Image:
    """The factor that is read through windows: how large slabs of it are.

    Args:
        kernel: Facts about the kernel.
        load: The read of it.
        windows: Its dimensions that have windows, those of slabs first, those of memory rows last.
        terms: Loops of the reduction that it depends on.
    """

    def __init__(self, kernel: Kernel, load: Access, windows: tuple[Sliding, ...], terms: list[UOp]) -> None:
        self.kernel, self.windows = kernel, windows
        taps = {w.taps for w in windows}
        self.channels = [k for k in terms if k not in taps]
        self.itemsize = load.node.dtype.itemsize
        self.sizes = [kernel.size(w.rows) + w.step * (kernel.size(w.taps) - 1) for w in windows]

    def steps(self) -> dict[UOp, int]:
        """Return about how far apart iterations of each range lie in a slab: rows, channels, then what is in a row."""
        steps: dict[UOp, int] = {}
        step = 1
        for w, size in zip(self.windows[:0:-1], self.sizes[:0:-1], strict=True):
            steps |= {w.rows: step, w.taps: w.step * step}
            step *= size
        for k in reversed(self.channels):
            steps[k] = step
            step *= self.kernel.size(k)
        first = self.windows[0]
        return {**steps, first.rows: step, first.taps: first.step * step}

    def rows_of_slab(self, schedule: Schedule, inside: list[UOp], outside: list[UOp]) -> int:
        """Return the rows of outputs per slab with the least estimated time; 0 if there is no room for one.

        Args:
            schedule: Of the kernel.
            inside: Output loops that run over one slab again and again.
            outside: Output loops around all slabs.
        """
        kernel, renderer = self.kernel, schedule.renderer
        lanes = max(1, renderer.vector_bytes // self.itemsize)
        rows, more = kernel.size(self.windows[0].rows), self.sizes[0] - kernel.size(self.windows[0].rows)
        # The last dimension of a slab is copied in whole vectors.
        across = [*self.sizes[1:-1], *(-(-n // lanes) * lanes for n in self.sizes[1:][-1:])]
        row_bytes = math.prod([*across, *map(kernel.size, self.channels)]) * self.itemsize
        longest = min(renderer.cache_bytes // CACHE_SHARE, STACK_BYTES) // row_bytes - more
        if longest < 1:
            longest = int((1 + more) * row_bytes <= STACK_BYTES)
        if longest < 1 or not inside:
            return 0
        around, threads = math.prod(map(kernel.size, outside)), renderer.threads
        work = math.prod(map(kernel.size, (*inside, *(w.taps for w in self.windows)))) / (2 * lanes)
        fewest = -(-rows // longest)

        def cycles(size: int) -> float:
            slabs = -(-rows // size) * around
            waiting = (-(-slabs // threads) + UNEVEN) * threads / slabs
            return size * slabs * (work + COPY_CYCLES * (size + more) / size) * waiting

        counts = range(fewest, min(rows, max(MOST_SLABS, fewest)) + 1)
        return min((-(-rows // n) for n in counts), key=cycles)
