"""The policy of targets with a grid: every output its own work-item, tiles in registers, shared reductions.

In:   a Schedule and the facts about its kernel.
Out:  the Schedule with steps applied; output loops that all stores share are on the grid.
Why:  simple rules that fill a GPU: a few copies per work-item where loads are shared, work-groups along the contiguous
      axis, and a work-group per output where there are few outputs and much to reduce.
"""

from __future__ import annotations

import math

from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.contraction import find_contraction
from tinygrad.codegen.opt.loops import LOOPS, position
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.uop import AxisType, Ops

GRID_DIMS = 3
FEW_OUTPUTS = 2048  # below this many work-items a reduction is shared by work-groups
MANY_OUTPUTS = 1 << 14  # from this many on, work-items may compute several outputs
GROUP_SIZES = (256, 128, 64, 32, 16)
LOCAL_SIZE = 128


def _outputs(schedule: Schedule) -> list[int]:
    """Return the positions of the output loops that all stores share."""
    ends = [set(u.ended_ranges) for u in schedule.nodes if u.op is Ops.END]
    common = set.intersection(*ends) if ends else set()
    return [i for i, a in enumerate(schedule.axes) if a.kind in LOOPS and schedule.origins[a.range] <= common]


def _try(schedule: Schedule, opt: Opt) -> bool:
    try:
        schedule.apply(opt)
    except KernelOptError:
        return False
    return True


def _sizes(schedule: Schedule) -> list[int]:
    sizes = (schedule.axes[i].size for i in _outputs(schedule))
    return [s for s in sizes if isinstance(s, int)]


def _share_reduction(schedule: Schedule) -> bool:
    """Give each output a work-group if there are few outputs."""
    loops = schedule.reduce_axes()
    if math.prod(_sizes(schedule)) >= FEW_OUTPUTS or not loops:
        return False
    size = schedule.axes[loops[0]].size
    return isinstance(size, int) and any(
        size % n == 0 and size >= 2 * n and _try(schedule, Opt(OptOps.GROUP, 0, n)) for n in GROUP_SIZES
    )


def _tile(schedule: Schedule, kernel: Kernel) -> None:
    """Let work-items of a contraction compute 4 by 4 outputs."""
    sides = find_contraction(kernel)
    if sides is None or not all(sides.ranges) or math.prod(_sizes(schedule)) < MANY_OUTPUTS:
        return
    for ranges in sides.ranges:
        at = position(schedule, max(ranges, key=kernel.size), LOOPS)
        if at is not None:
            _try(schedule, Opt(OptOps.UPCAST, at, 4))


def _unroll(schedule: Schedule) -> None:
    loops = schedule.reduce_axes()
    if loops:
        size = schedule.axes[loops[-1]].size
        if isinstance(size, int):
            _try(schedule, Opt(OptOps.UNROLL, len(loops) - 1, 0 if size <= 8 else 4))


def _make_groups(schedule: Schedule) -> None:
    """Cut work-groups out of the innermost output loops."""
    room = LOCAL_SIZE
    for at in reversed(_outputs(schedule)):
        size = schedule.axes[at].size
        if isinstance(size, int) and room > 1:
            best = next(n for n in (32, 16, 8, 4, 3, 2, 1) if size % n == 0 and n <= room)
            if best > 1 and _try(schedule, Opt(OptOps.LOCAL, at, best)):
                room //= best


def use_grid(schedule: Schedule) -> None:
    """Put the output loops that all stores share on the grid, joined to at most three dimensions."""
    while True:
        loops = [i for i in _outputs(schedule) if schedule.axes[i].kind is not AxisType.GLOBAL]
        grid = sum(a.kind is AxisType.GLOBAL for a in schedule.axes)
        if len(loops) + grid <= GRID_DIMS or len(loops) < 2 or not _try(schedule, Opt(OptOps.MERGE, *loops[:2])):
            break
    for i in loops[: GRID_DIMS - grid]:
        schedule.retype(i, AxisType.GLOBAL)


def optimize_grid(schedule: Schedule, kernel: Kernel) -> None:
    """Apply the policy of targets with a grid."""
    shared = _share_reduction(schedule)
    if not shared:
        _tile(schedule, kernel)
    _unroll(schedule)
    if not shared:
        _make_groups(schedule)
    use_grid(schedule)
