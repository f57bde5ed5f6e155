"""Grid indices of hand-written kernels, brought to what the target has.

In:   a kernel SINK whose author used GLOBAL and LOCAL ranges, or SPECIAL hardware indices.
Out:  the same kernel: with a grid, ranges carry their hardware names; on a target without one, all of them are loops.
Why:  a kernel written for a GPU should run on a CPU too, where a grid is nothing but loops around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.codegen.simplify import rebuild
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer

_NAMES = {AxisType.GLOBAL: "gidx", AxisType.LOCAL: "lidx", AxisType.WARP: "lidx", AxisType.GROUP_REDUCE: "lidx"}


def _grid_ranges(sink: UOp) -> list[UOp]:
    found = (u for u in sink.toposort() if u.op is Ops.RANGE and u.arg[-1] in _NAMES and isinstance(u.arg[1], AxisType))
    return sorted(found, key=lambda r: r.arg[:-1])


def _outermost(sink: UOp, ranges: list[UOp]) -> UOp | None:
    """Return the GLOBAL range around everything that the kernel does, if there is one: its iterations are threads."""
    closing = [u for u in sink.src if u.op is Ops.END]
    last = closing[0].src[1] if len(closing) == len(sink.src) == 1 else None
    return last if last in ranges and last.arg[-1] is AxisType.GLOBAL else None


def place_grid(sink: UOp, renderer: Renderer) -> UOp:
    """Name the grid's ranges, or turn the grid into loops.

    Raises:
        RuntimeError: The kernel synchronises a work-group, and the target has none.
    """
    ranges = _grid_ranges(sink)
    if renderer.has_local:
        used: dict[str, int] = {}
        named: dict[UOp, UOp] = {}
        for r in ranges:
            stem = _NAMES[r.arg[-1]]
            used[stem] = used.get(stem, 0) + 1
            named[r] = r.replace(arg=(r.arg[0], f"{stem}{used[stem] - 1}", r.arg[-1]))
        return rebuild(sink, named) if named else sink
    specials = [u for u in sink.toposort() if u.op is Ops.SPECIAL]
    if not ranges and not specials:
        return sink
    if any(u.op is Ops.BARRIER for u in sink.toposort()):
        raise RuntimeError(f"kernel {sink.arg.name}: it has a barrier, and {renderer.target.device} has no work-groups")
    first = 1 + max((u.arg[0] for u in sink.toposort() if u.op is Ops.RANGE), default=-1)
    loops = {
        u: UOp.range(u.src[0], first + i, dtype=u.dtype) for i, u in enumerate(sorted(specials, key=lambda u: u.arg))
    }
    threads = _outermost(sink, ranges) if renderer.has_threads else None
    loops |= {r: r.replace(arg=(r.arg[0], AxisType.THREAD if r is threads else AxisType.LOOP)) for r in ranges}
    made = rebuild(sink, loops)
    # Nobody closes a grid: what runs once per work item is closed here, as one body, so that it stays in order.
    around = tuple(r for r in loops.values() if r in made.ranges)
    return made.replace(src=(UOp.group(*made.src).end(*around),)) if around else made
