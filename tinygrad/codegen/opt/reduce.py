"""The policy of kernels with reductions that are not contractions, and of those without: lanes where they save most.

In:   a Schedule and the facts about its kernel.
Out:  the Schedule with steps applied.
Why:  softmax, layernorm and batch statistics have several loops in one kernel; every loop gets the lanes that fit it,
      and a value never depends on two of them. A kernel without reductions is the case of one loop nest.
"""

from __future__ import annotations

import math

from tinygrad.codegen.late.affine import NEAR
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.loops import (
    LINE,
    MAX_CHAIN,
    REDUCES,
    block_long_sums,
    block_loops,
    copy_small_outputs,
    most_between,
    position,
    tile_transposes,
    unroll_small,
    use_threads,
    vectorize_output,
    vectorize_reduce,
)
from tinygrad.codegen.opt.schedule import MAX_LANES, Schedule
from tinygrad.codegen.opt.windows import Sharing, copy_sharing_rows, find_sharing
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

MAX_FIRST = 16  # ranges from which the choice of lanes is tried to start
SHARING_VECTORS = 2  # of a row, where rows share loads: more rows share more
CHAINS = 4  # vectors in flight per loop: hides the latency of an addition or a load
SHORT_EXPRESSION = 6  # instructions per element that a whole cache line of copies leaves short enough
LONG_EXPRESSION = 24  # instructions per element from which one vector at a time keeps the machine busy
# Instructions per element from which lanes are several vectors wide: the compiler then interleaves their chains, which
# are longer than what the machine looks ahead, as it would have to with copies. Of the longest ones fewer fit.
WIDE_EXPRESSION, WIDEST_EXPRESSION = 16, 64
WIDE, FEW_REGISTERS = 4, 16
STREAMS = 8  # blocks of a long sum that are read side by side
LONG_SUM = 1 << 14  # elements of one sum from which on that is worth it
MAX_WASTE = 0.1  # of the iterations, beyond the end of an axis or done twice


def choose_lanes(schedule: Schedule, kernel: Kernel) -> list[UOp]:
    """Return the ranges to vectorise: no two meet in a value, and together they save most."""
    saves: dict[UOp, float] = {}
    for r in kernel.ranges:
        if r.src[0].op is Ops.CONST and r.src[0].arg > 1:
            saved = kernel.benefit(r, schedule.renderer.vector_bytes)
            if saved > 0:
                saves[r] = saved
    ordered = sorted(saves, key=lambda r: -saves[r])
    meets = schedule.meets
    best: list[UOp] = []
    best_total = 0.0
    for first in ordered[:MAX_FIRST]:
        chosen, taken = [first], meets[schedule.original[first]]
        for r in ordered:
            if r is not first and not taken >> schedule.original[r] & 1:
                chosen.append(r)
                taken |= meets[schedule.original[r]]
        total = sum(saves[r] for r in chosen)
        if total > best_total:
            best, best_total = chosen, total
    return best


def optimize_loops(schedule: Schedule, kernel: Kernel) -> None:
    """Apply lanes, blocks and threads to a kernel."""
    renderer = schedule.renderer
    shared: list[Sharing] = []
    if renderer.vector_bytes:
        own = {r: u for u in kernel.reduces for r in u.src[1:]}
        for r in choose_lanes(schedule, kernel):
            lanes = kernel.lanes(r, renderer.vector_bytes)
            is_far = False
            instructions = _instructions(kernel, r)
            wide = wide_lanes(schedule, kernel, r, lanes, instructions)
            is_long = instructions >= LONG_EXPRESSION or wide > lanes
            blocks = 1 if is_long else CHAINS if r in own else _blocks(schedule, kernel, r, lanes)
            if r in own:
                vectorize_reduce(schedule, r, wide, blocks, _around(own[r], r))
                continue
            sharing = find_sharing(kernel, r)
            if sharing is not None:
                shared.append(sharing)
                blocks = min(blocks, SHARING_VECTORS)
            apart = max((abs(a.step(r) or 0) for a in kernel.accesses if a.is_store and r in a.ranges), default=1)
            most = most_between(schedule, kernel, instructions)
            if 2 <= apart <= most:
                copy_small_outputs(schedule, kernel, r, most)
                blocks = 1
            if any(abs(a.step(r) or 0) > NEAR for a in kernel.accesses if r in a.ranges):
                blocks, is_far = 1, True
            whole, masked = 1 if is_far else 2 if is_long else 4, bool(sharing) and _is_masked(kernel, r)
            vectorize_output(schedule, r, wide, blocks, whole, masked=masked)
            if not kernel.reduces:
                tile_transposes(schedule, kernel, r, LINE if instructions <= SHORT_EXPRESSION else 4)
    unroll_small(schedule)
    for sharing in shared:
        copy_sharing_rows(schedule, kernel, sharing)
    stream_long_sums(schedule, kernel)
    block_long_sums(schedule, kernel)
    use_threads(schedule, kernel)


def _around(reduce: UOp, r: UOp) -> UOp | None:
    """Return the next loop of a sum around its loop over ``r``."""
    ranges = reduce.src[1:]
    at = ranges.index(r)
    return ranges[at - 1] if at > 0 else None


def _blocks(schedule: Schedule, kernel: Kernel, r: UOp, lanes: int) -> int:
    """Return how many vectors of an output loop to take at once: of sums over rows, as many as registers hold.

    Less than a kilobyte of a row is too short for the processor to fetch ahead before the next row comes.
    """
    reduced = {k for u in kernel.reduces for k in u.src[1:]}
    rows = [a for a in kernel.accesses if a.step(r) == 1 and not a.ranges.isdisjoint(reduced)]
    if not rows or any(abs(a.step(k) or LINE) <= NEAR for a in rows for k in reduced & a.ranges):
        return CHAINS
    share = kernel.size(r) // lanes // schedule.renderer.threads
    return max(CHAINS, min(schedule.renderer.vector_registers // 2, share))


def stream_long_sums(schedule: Schedule, kernel: Kernel) -> None:
    """Read several blocks of one long sum side by side: memory answers more of them than one after the other."""
    in_lanes = {r for a in schedule.axes if a.kind is AxisType.VECTOR for r in schedule.origins[a.range]}
    for u in kernel.reduces:
        r, at = u.src[-1], position(schedule, u.src[-1], REDUCES)
        if u.arg[0] is not Ops.ADD or len(u.src) != 2 or at is None or r not in in_lanes or kernel.size(r) < LONG_SUM:
            continue
        block_loops(schedule, [schedule.axes[at]], MAX_CHAIN // STREAMS)
        loops = [schedule.axes[i] for i in schedule.reduce_axes()]
        blocks = [i for i, a in enumerate(loops) if r in schedule.origins[a.range] and a.range in schedule.block_outer]
        if blocks and isinstance(size := loops[blocks[-1]].size, int):
            schedule.apply(Opt(OptOps.UNROLL, blocks[-1], math.gcd(size, STREAMS)))


def wide_lanes(schedule: Schedule, kernel: Kernel, r: UOp, lanes: int, instructions: int) -> int:
    """Return the lanes of a loop over ``r``: ``lanes``, or several vectors of them where the expression is long.

    Args:
        schedule: Of the kernel.
        kernel: Its facts.
        r: The range.
        lanes: A vector of the widest value.
        instructions: Of one element.
    """
    is_plain = all(a.step(r) in (0, 1) and r not in a.gate_ranges for a in kernel.accesses if r in a.ranges)
    if instructions < WIDE_EXPRESSION or not is_plain:
        return lanes
    renderer = schedule.renderer
    vectors = WIDE // 2 if instructions > WIDEST_EXPRESSION or renderer.vector_registers <= FEW_REGISTERS else WIDE
    wanted = min(MAX_LANES, vectors * renderer.vector_bytes // _main_width(kernel, r))
    needed = -(-kernel.size(r) // lanes)
    while wanted > lanes and -(-kernel.size(r) // wanted) * (wanted // lanes) - needed > MAX_WASTE * needed:
        wanted //= 2
    return max(lanes, wanted)


def _main_width(kernel: Kernel, r: UOp) -> int:
    """Return the bytes of the values that most instructions of the loop over ``r`` compute."""
    work: dict[int, int] = {}
    for u in kernel.inside[r]:
        width = 4 if u.op is Ops.THREEFRY else u.dtype.itemsize  # it is computed in halves of its 64 bits
        work[width] = work.get(width, 0) + kernel.cost(u)
    return max(work, key=lambda width: work[width])


def _is_masked(kernel: Kernel, r: UOp) -> bool:
    return any(r in a.gate_ranges for a in kernel.accesses)


def _instructions(kernel: Kernel, r: UOp) -> int:
    """Return the instructions in the body of the loop over ``r``."""
    return sum(kernel.cost(u) for u in kernel.inside[r])
