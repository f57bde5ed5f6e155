"""Choose the optimisation steps of a kernel: those that it asks for, else the policy that fits its kind.

In:   a simplified kernel SINK and the renderer.
Out:  the same kernel with ranges split and typed; KernelInfo lists the steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer


def optimize_kernel(sink: UOp, renderer: Renderer) -> UOp:
    """Return the kernel with its ranges split and typed.

    Raises:
        KernelOptError: A step of ``KernelInfo.opts_to_apply`` does not fit.
    """
    info = sink.arg
    schedule = Schedule(sink, renderer)
    if info.opts_to_apply is not None:
        for opt in info.opts_to_apply:
            schedule.apply(opt)
    if not schedule.applied:
        return sink
    made = schedule.result()
    kinds = tuple(a.kind for a in schedule.axes)
    return made.replace(arg=replace(info, applied_opts=tuple(schedule.applied), axis_types=kinds))
