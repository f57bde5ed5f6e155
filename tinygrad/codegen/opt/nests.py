"""Optimise the marked loop nests of a kernel that is written by hand, each as if it were a kernel of its own.

In:   a kernel with memory and order of its own, in which some ENDs have the arg NEST.
Out:  the same kernel; the ranges inside of each of those are split and typed by the policies.
Ops:  below a marked END are plain loops: scalar stores, loads, REDUCEs. What it sits in (outer loops, the storage that
      it reads and writes, as it is after other nests) becomes variables and parameters for the time being.
Why:  an algorithm of several dependent steps per block (attention, a scan) is written as plain loops, and its matrix
      products and row operations get the same lanes and register tiles as kernels that the scheduler makes.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING

from tinygrad.codegen.late.structure import is_memory
from tinygrad.codegen.simplify import rebuild, simplify_kernel
from tinygrad.dtype import dtypes
from tinygrad.record import replace
from tinygrad.uop import Ops
from tinygrad.uop.kernels import NEST
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tinygrad.codegen.opt.schedule import Schedule
    from tinygrad.renderer import Renderer

    Policy = Callable[[UOp, Renderer], Schedule]

_STAND_INS = 1 << 20  # slots of stand-ins: no argument of a kernel has such a number


def optimize_nests(sink: UOp, renderer: Renderer, policy: Policy) -> UOp:
    """Return the kernel with the loops of its marked nests split and typed.

    Args:
        sink: The kernel.
        renderer: The target.
        policy: Chooses the schedule of one nest.
    """
    nodes = list(sink.toposort())
    if renderer.has_local or not any(_is_nest(u) for u in nodes):
        return sink
    serial = copy.copy(renderer)
    serial.has_threads = False  # threads run the loops around the nests
    ids = itertools.count(1 + max(u.arg[0] for u in nodes if u.op is Ops.RANGE))
    slots = itertools.count(1 + max(u.arg.slot for u in nodes if u.op in (Ops.BUFFER, Ops.PARAM)))
    steps: list[object] = []
    new: dict[UOp, UOp] = {}
    for u in nodes:
        if _is_nest(u):
            nest = _Nest(u)
            schedule = policy(nest.kernel, serial)
            steps += schedule.applied
            new[u] = nest.put_back(schedule.result(), new, ids, slots)
        else:
            src = tuple([new[s] for s in u.src])
            new[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return new[sink].replace(arg=replace(sink.arg, applied_opts=tuple(steps)))


def _is_nest(u: UOp) -> bool:
    return u.op is Ops.END and u.arg == NEST


class _Nest:
    """One nest as a kernel of its own.

    Args:
        end: The marked END.

    Raises:
        RuntimeError: The nest reads or writes one storage in two states.
    """

    def __init__(self, end: UOp) -> None:
        inside = self._inside(end)
        own = {r for u in inside for r in u.ended_ranges}
        self.outer: dict[UOp, UOp] = {}  # stand-in -> what it stands for
        stand_ins: dict[UOp, UOp] = {}
        states: dict[UOp, UOp] = {}
        for u in inside:
            if u.op is Ops.RANGE and u not in own:
                stand_ins[u] = UOp.variable(f"outer{u.arg[0]}", 0, u.vmax)
            elif u.op is Ops.AFTER and is_memory(u):
                if states.setdefault(u.without_after, u) is not u:
                    raise RuntimeError(f"nest: it sees {u.without_after.arg} in two states; give all uses one AFTER")
                arg = u.without_after.arg
                stand_in = ParamArg(_STAND_INS + len(stand_ins), arg.dtype, arg.shape)
                stand_ins[u] = UOp(Ops.PARAM, u.dtype, (), stand_in)
        self.outer = {stand_in: u for u, stand_in in stand_ins.items()}
        plain = rebuild(end.replace(arg=None), stand_ins)
        self.kernel = simplify_kernel(UOp(Ops.SINK, dtypes.void, (plain,), KernelInfo(name="nest")))

    @staticmethod
    def _inside(end: UOp) -> list[UOp]:
        """Return the nodes of the nest; what makes its storage and its outer loops is not part of it."""
        found: dict[UOp, None] = {}
        stack = [end]
        while stack:
            u = stack.pop()
            if u not in found:
                found[u] = None
                if not (u.op is Ops.RANGE or (u.op is Ops.AFTER and is_memory(u))):
                    stack.extend(u.src)
        return list(found)

    def put_back(self, sink: UOp, new: dict[UOp, UOp], ids: Iterator[int], slots: Iterator[int]) -> UOp:
        """Return the optimised nest in its place: with the outer loops and storage, and numbers that are its own."""
        replaced = {stand_in: new[u] for stand_in, u in self.outer.items()}
        for u in sink.toposort():
            if u.op is Ops.RANGE:
                replaced[u] = u.replace(src=tuple([replaced.get(s, s) for s in u.src]), arg=(next(ids), *u.arg[1:]))
            elif u.op is Ops.BUFFER:
                replaced[u] = u.replace(arg=replace(u.arg, slot=next(slots)))
        return UOp.group(*rebuild(sink, replaced).src)
