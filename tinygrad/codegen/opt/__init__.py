"""The words of the schedule language: what one step of an optimised kernel is called.

In:   nothing.
Out:  ``OptOps`` (kinds of steps), ``Opt`` (one step), ``KernelOptError`` (a step that does not fit the kernel).
Why:  imports next to nothing, so that kernels written by users (``KernelInfo(opts_to_apply=...)``) may import it.
"""

from __future__ import annotations

from enum import auto
from typing import Any

from tinygrad.enums import FastEnum, with_plain_members
from tinygrad.record import record


class KernelOptError(Exception):
    """An optimisation step does not fit the kernel."""


@with_plain_members
class OptOps(FastEnum):
    """Kinds of steps. ``axis`` counts the kernel's axes, or the reduce axes for UNROLL, GROUP and GROUPTOP."""

    # The last iterations of the innermost reduce axis are one instruction of a matrix unit; operands are copied over
    # the axis and those behind it, as by STAGE, and packed. arg: (unit, operand with lanes, is the other one a panel),
    # for a unit of tiles (unit, operand with columns, how many axes in front of rows and columns are copies of tiles)
    TC = auto()
    UPCAST = auto()  # the last arg iterations of an output axis become copies in registers
    UNROLL = auto()  # the last arg iterations of a reduce axis become copies in the loop body
    VECTOR = auto()  # the last arg iterations of an axis become the lanes of vectors
    LOCAL = auto()  # ... threads of a work-group
    GROUP = auto()  # the last arg iterations of a reduce axis are shared by a work-group
    GROUPTOP = auto()  # the first arg iterations of a reduce axis are shared by a work-group
    THREAD = auto()  # arg pieces of the axis become the parallel loop
    NOLOCALS = auto()  # no work-groups
    PADTO = auto()  # the axis grows to a multiple of arg; what is beyond its end is masked
    SWAP = auto()  # exchange two axes; arg is the other one
    SPLIT = auto()  # cut an axis into blocks of arg iterations: two loops
    OVERLAP = auto()  # as SPLIT; if arg does not divide, the last block starts earlier and repeats a few iterations
    BLOCK = auto()  # cut a reduce axis into blocks of arg iterations that are summed on their own
    CACHE = auto()  # the axis and those behind it run inside the blocks of the reduction; sums stay in scratch memory
    STAGE = auto()  # copy an operand over the axis and those behind it to scratch memory; arg: (operand, is it a panel)
    MERGE = auto()  # two axes become one; arg is the inner one


@record(frozen=True, order=True)
class Opt:
    """One step: what to do, to which axis, with which parameter (0 means the whole axis)."""

    op: OptOps
    axis: int | None = None
    arg: Any = None

    def __repr__(self) -> str:
        return f"Opt(op={self.op}, axis={self.axis}, arg={self.arg})"


__all__ = ["KernelOptError", "Opt", "OptOps"]
