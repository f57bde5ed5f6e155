"""Copies of output rows that read the same elements: windows that overlap, and rows of which several read one.

In:   a Schedule with lanes, the facts about its kernel, and the range that has the lanes.
Out:  the Schedule with a few iterations of one output loop as copies, so that what they share is loaded once.
Why:  neighbouring outputs of a window of three rows share two of them, and every element of a pooled image is read by
      two rows of the gradient of its input. The contraction policy does the same where a sum is worth a register tile.
"""

from __future__ import annotations

import math

from tinygrad.codegen.late.affine import NEAR, affine
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Access, Kernel
from tinygrad.codegen.opt.loops import LOOPS, REDUCES, blocks_over, position
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.record import record
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.ops import UOp

MAX_COPIES = 8  # of an expression, other copies included: what they share must stay in registers
MAX_ROWS = 4  # copies of a row: windows share most with few, and each needs its rows in registers
MAX_WINDOW = 8  # iterations of a reduce loop that become copies for the sake of what rows share


@record(frozen=True)
class Sharing:
    """An output loop along which neighbours share loads, how many should be copies, and the windows that overlap."""

    rows: UOp
    copies: int
    windows: tuple[UOp, ...]


def find_sharing(kernel: Kernel, lane: UOp) -> Sharing | None:
    """Return the output loop along which copies would save most loads of the nest with lanes along ``lane``."""
    loads = [a for a in kernel.accesses if not a.is_store and lane in a.ranges]
    outputs = {r for u in kernel.ends for r in u.src[1:]} - {lane}
    saves = {r: sum(_saved(kernel, a, r) for a in loads) for r in kernel.ranges if r in outputs}
    best = max(saves, key=lambda r: saves[r], default=None)
    if best is None or saves[best] == 0:
        return None
    windows = tuple(dict.fromkeys(w for a in loads if (w := _window(kernel, a, best)) is not None))
    copies = MAX_ROWS if windows else min(MAX_ROWS, max(_divisor(kernel, a, best) for a in loads))
    return Sharing(best, copies, windows)


def copy_sharing_rows(schedule: Schedule, kernel: Kernel, sharing: Sharing) -> None:
    """Copy iterations of an output loop; its windows are unrolled.

    Args:
        schedule: Of the kernel, with lanes and with short reduce loops unrolled.
        kernel: Its facts.
        sharing: What copies share.
    """
    at, size = position(schedule, sharing.rows, LOOPS), kernel.size(sharing.rows)
    if at is None:
        return
    whole = schedule.axes[at].size
    if not isinstance(whole, int) or whole != size:
        return
    copies = blocks_over(size, 1, min(sharing.copies, MAX_COPIES // _copies(schedule)))
    if copies < 2 or (size % copies and schedule.reads_outputs()):
        return
    for window in sharing.windows:
        _unroll(schedule, window)
    if size % copies:
        schedule.apply(Opt(OptOps.OVERLAP, at, copies))
        at += 1
    schedule.apply(Opt(OptOps.UPCAST, at, copies))


def _copies(schedule: Schedule) -> int:
    return math.prod(a.size for a in schedule.axes if a.kind is AxisType.UPCAST and isinstance(a.size, int))


def _saved(kernel: Kernel, a: Access, r: UOp) -> float:
    """Return how many loads copies along ``r`` save."""
    window, iterations = _window(kernel, a, r), kernel.iterations(a.node)
    if window is not None:
        return iterations * (1 - _rows_per_step(a, r, window) / kernel.size(window))
    return iterations * (1 - 1 / _divisor(kernel, a, r))


def _rows_per_step(a: Access, r: UOp, window: UOp) -> int:
    """Return how far the window moves per iteration of ``r``, in iterations of the window; 0 if that is no number."""
    along, within = a.step(r), a.step(window)
    return abs(along // within) if along and within and along % within == 0 else 0


def _window(kernel: Kernel, a: Access, r: UOp) -> UOp | None:
    """Return the reduce range over which the windows of neighbours along ``r`` overlap."""
    reduced = [k for u in kernel.reduces for k in u.src[1:] if k in a.ranges]
    overlap = [k for k in reduced if 0 < _rows_per_step(a, r, k) < kernel.size(k) <= MAX_WINDOW]
    return overlap[0] if overlap else None


def _divisor(kernel: Kernel, a: Access, r: UOp) -> int:
    """Return how many neighbours along ``r`` read one element, or elements of one vector; 1 if each reads its own.

    Their places depend on r // n; what is left of r moves within a few elements.
    """
    terms, _ = affine(a.node.src[1])
    of_row = {t: factor for t, factor in terms.items() if r in kernel.open(t)}
    divided = [t for t in of_row if t.op is Ops.FLOORDIV]
    if len(divided) != 1:
        return 1
    by = divided[0].src[1]
    is_near = all(
        t.src[0] is r and t.src[1] is by and (t in divided or (t.op is Ops.FLOORMOD and abs(factor) <= NEAR))
        for t, factor in of_row.items()
        if t.op in GroupOp.Binary
    )
    return by.arg if is_near and r not in of_row and by.op is Ops.CONST else 1


def _unroll(schedule: Schedule, window: UOp) -> None:
    at = position(schedule, window, REDUCES)
    if at is not None:
        schedule.apply(Opt(OptOps.UNROLL, schedule.reduce_axes().index(at), 0))
