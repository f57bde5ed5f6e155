"""The policy of kernels with reductions that are not contractions, and of those without: lanes where they save most.

In:   a Schedule and the facts about its kernel.
Out:  the Schedule with steps applied.
Why:  softmax, layernorm and batch statistics have several loops in one kernel; every loop gets the lanes that fit it,
      and a value never depends on two of them. A kernel without reductions is the case of one loop nest.
"""

from __future__ import annotations

from tinygrad.codegen.late.affine import NEAR
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.loops import (
    LINE,
    block_long_sums,
    copy_small_outputs,
    tile_transposes,
    unroll_small,
    use_threads,
    vectorize_output,
    vectorize_reduce,
)
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

MAX_FIRST = 16  # ranges from which the choice of lanes is tried to start
CHAINS = 4  # vectors in flight per loop: hides the latency of an addition or a load
SHORT_EXPRESSION = 6  # instructions per element that a whole cache line of copies leaves short enough
LONG_EXPRESSION = 24  # instructions per element from which one vector at a time keeps the machine busy


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
    if renderer.vector_bytes:
        own = {r: u for u in kernel.reduces for r in u.src[1:]}
        for r in choose_lanes(schedule, kernel):
            lanes = kernel.lanes(r, renderer.vector_bytes)
            is_far = False
            instructions = _instructions(kernel, r)
            is_long = instructions >= LONG_EXPRESSION
            blocks = 1 if is_long else CHAINS
            if r in own:
                vectorize_reduce(schedule, r, lanes, blocks)
                continue
            apart = max((abs(a.step(r) or 0) for a in kernel.accesses if a.is_store and r in a.ranges), default=1)
            if 2 <= apart <= 4:
                copy_small_outputs(schedule, kernel, r)
                blocks = 1
            if any(abs(a.step(r) or 0) > NEAR for a in kernel.accesses if r in a.ranges):
                blocks, is_far = 1, True
            vectorize_output(schedule, r, lanes, blocks, whole=1 if is_far else 2 if is_long else 4)
            if not kernel.reduces:
                tile_transposes(schedule, kernel, r, LINE if instructions <= SHORT_EXPRESSION else 4)
    unroll_small(schedule)
    block_long_sums(schedule, kernel)
    use_threads(schedule, kernel)


def _instructions(kernel: Kernel, r: UOp) -> int:
    """Return the instructions in the body of the loop over ``r``."""
    return sum(kernel.cost(u) for u in kernel.inside[r])
