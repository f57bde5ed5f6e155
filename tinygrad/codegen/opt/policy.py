"""Choose the optimisation steps of a kernel: those that it asks for, else the policy that fits its kind.

In:   a simplified kernel SINK and the renderer.
Out:  the same kernel with ranges split and typed; KernelInfo lists the steps.
Why:  one place says which kernels are left alone, which are searched for and which go to which policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.contraction import optimize_contraction
from tinygrad.codegen.opt.divided import split_divided_ranges
from tinygrad.codegen.opt.gpu import optimize_grid, use_grid
from tinygrad.codegen.opt.nests import optimize_nests
from tinygrad.codegen.opt.reduce import optimize_loops
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.opt.trim import trim_sums
from tinygrad.codegen.simplify import merge_ranges
from tinygrad.helpers import BEAM
from tinygrad.record import replace
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer


def is_written_by_hand(sink: UOp) -> bool:
    """Whether the kernel has memory, order or loop types of its own, which only its author understands.

    So has a store whose places depend on data: two of its iterations may write to one place, the last one wins.
    """
    return any(
        (u.op is Ops.STORE and u.arg == "serial")
        or u.op in (Ops.AFTER, Ops.BUFFER, Ops.BARRIER, Ops.CUSTOM, Ops.CUSTOMI, Ops.LOAD, Ops.SPECIAL)
        or (u.op is Ops.RANGE and u.arg[-1] not in (AxisType.LOOP, AxisType.REDUCE, AxisType.WEAK))
        for u in sink.toposort()
    )


def optimize_kernel(sink: UOp, renderer: Renderer) -> UOp:
    """Return the kernel with its ranges split and typed.

    Raises:
        KernelOptError: A step of ``KernelInfo.opts_to_apply`` does not fit.
    """
    info = sink.arg
    if info.opts_to_apply is not None:
        schedule = Schedule(sink, renderer)
        for opt in info.opts_to_apply:
            schedule.apply(opt)
        if renderer.has_local and info.opts_to_apply:
            use_grid(schedule)
    elif is_written_by_hand(sink):
        return optimize_nests(sink, renderer, automatic)
    else:
        schedule = automatic(sink, renderer)
        width = info.beam or BEAM.value
        if width >= 1:
            schedule = searched(schedule, renderer, width)
    if not schedule.replaced and not schedule.applied:
        return schedule.sink
    made = trim_sums(schedule.result())
    kinds = tuple(a.kind for a in schedule.axes)
    return made.replace(arg=replace(info, applied_opts=tuple(schedule.applied), axis_types=kinds))


def automatic(sink: UOp, renderer: Renderer) -> Schedule:
    """Return the schedule that the policies choose."""
    schedule = Schedule(merge_ranges(sink), renderer)
    kernel = Kernel(schedule.sink, schedule.mask, schedule.original)
    if renderer.has_local:
        optimize_grid(schedule, kernel)
        return schedule
    if not optimize_contraction(schedule, kernel):
        split = split_divided_ranges(schedule.sink)
        if split is not schedule.sink:
            schedule = Schedule(split, renderer)
            kernel = Kernel(schedule.sink, schedule.mask, schedule.original)
        optimize_loops(schedule, kernel)
    return schedule


def searched(schedule: Schedule, renderer: Renderer, width: int) -> Schedule:
    """Return the schedule that a search finds from the policy's; the policy's where nothing can be measured."""
    # Here, because it needs numpy, whose import takes longer than compiling a small kernel.
    from tinygrad.codegen.opt.search import can_search, search_steps

    if not can_search(renderer):
        return schedule
    best = Schedule(schedule.sink, renderer)
    for step in search_steps(schedule.sink, renderer, tuple(schedule.applied), width):
        best.apply(step)
    if renderer.has_local:
        use_grid(best)
    return best
