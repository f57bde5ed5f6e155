"""The schedule language: steps that split, type and order the ranges of one kernel.

In:   a kernel SINK whose ranges are LOOP (output) and REDUCE.
Out:  the same kernel with ranges split and typed; what a split adds beyond an axis' end is masked.
Why:  a policy, a search and a user all write kernels in the same few words; each word checks that it is legal.

Steps only record what each range becomes. ``result`` rewrites the graph once, whatever the number of steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tinygrad.codegen.late.structure import set_bits
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.rebuild import Rebuild
from tinygrad.codegen.opt.scratch import Axis, ScratchSteps
from tinygrad.codegen.opt.tiles import TileDot, TileRebuild
from tinygrad.dtype import dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer

MAX_COPIES = 32
MAX_LANES = 64
_OUTPUT_KINDS = frozenset({AxisType.LOOP, AxisType.WEAK, AxisType.GLOBAL, AxisType.LOCAL, AxisType.THREAD})
_REDUCE_KINDS = frozenset({AxisType.REDUCE, AxisType.GROUP_REDUCE})
_LOOP_KINDS = frozenset({AxisType.LOOP, AxisType.WEAK, AxisType.GLOBAL, AxisType.REDUCE})


def _index(value: int) -> UOp:
    return UOp(Ops.CONST, dtypes.weakint, (), value)


def _alu(op: Ops, a: UOp, b: UOp) -> UOp:
    return UOp(op, dtypes.bool if op is Ops.CMPLT else a.dtype, (a, b))


class Schedule(ScratchSteps):
    """A kernel under optimisation.

    Args:
        sink: The kernel.
        renderer: The target, whose limits the steps must keep.
    """

    def __init__(self, sink: UOp, renderer: Renderer) -> None:
        super().__init__()
        self.sink, self.renderer = sink, renderer
        self.nodes = list(sink.toposort())
        self.applied: list[Opt] = []
        self.axes: list[Axis] = []
        ranges = [u for u in self.nodes if u.op is Ops.RANGE]
        self.original = {r: i for i, r in enumerate(ranges)}
        outputs = dict.fromkeys(r for u in self.nodes if u.op is Ops.END for r in u.src[1:])
        reduces = dict.fromkeys(r for u in self.nodes if u.op is Ops.REDUCE for r in u.src[1:])
        self.axes = [Axis(r, r.arg[-1], False) for r in outputs] + [
            Axis(r, r.arg[-1], True) for r in reduces if r not in outputs
        ]
        self.next_id = 1 + max((r.arg[0] for r in ranges), default=-1)
        # What became of a range: its value in terms of newer ranges, and which newer ranges stand in its place.
        self.replaced: dict[UOp, UOp] = {}
        self.children: dict[UOp, tuple[UOp, ...]] = {}
        self.conditions: list[tuple[UOp, UOp]] = []
        self.origins: dict[UOp, frozenset[UOp]] = {r: frozenset({r}) for r in ranges}
        self.block_outer: set[UOp] = set()
        self.mask = self._masks()
        # What depends on what: the values, and loop bodies with the ranges that run them.
        self.bodies = set(self.mask.values())
        for u in self.nodes:
            if u.ended_ranges:
                self.bodies.add(self.mask[u.src[0]] | sum(1 << self.original[r] for r in u.ended_ranges))
        # For each original range, the ranges that some value depends on together with it.
        self.meets = [0] * len(ranges)
        for body in self.bodies:
            for i in set_bits(body):
                self.meets[i] |= body
        self._reads_outputs: bool | None = None
        self.dont_use_locals = sink.arg.dont_use_locals

    def _masks(self) -> dict[UOp, int]:
        mask: dict[UOp, int] = {}
        for u in self.nodes:
            bits = 1 << self.original[u] if u.op is Ops.RANGE else 0
            for s in u.src:
                bits |= mask[s]
            for r in u.ended_ranges:
                bits &= ~(1 << self.original[r])
            mask[u] = bits
        return mask

    # ---- steps

    def reduce_axes(self) -> list[int]:
        """Return the positions of the reduce loops: what UNROLL, GROUP and BLOCK count."""
        return [i for i, a in enumerate(self.axes) if a.kind is AxisType.REDUCE]

    def apply(self, opt: Opt) -> None:
        """Apply one step.

        Raises:
            KernelOptError: It does not fit this kernel or this target.
        """
        step = _STEPS.get(opt.op)
        if step is None:
            raise KernelOptError(f"{opt}: unknown step")
        step(self, opt)
        self.applied.append(opt)

    def _axis(self, opt: Opt) -> int:
        position = opt.axis
        if opt.op in _REDUCE_STEPS:
            loops = self.reduce_axes()
            if not isinstance(position, int) or not 0 <= position < len(loops):
                raise KernelOptError(f"{opt}: the kernel has {len(loops)} reduce axes")
            return loops[position]
        if not isinstance(position, int) or not 0 <= position < len(self.axes):
            raise KernelOptError(f"{opt}: the kernel has {len(self.axes)} axes")
        return position

    def _size(self, opt: Opt, axis: Axis) -> int:
        if not isinstance(axis.size, int):
            raise KernelOptError(f"{opt}: the size of the axis is symbolic, {axis.size.render()}")
        return axis.size

    def _factor(self, opt: Opt, axis: Axis) -> int:
        """Return the number of iterations to split off; it must divide the axis."""
        size = self._size(opt, axis)
        factor = opt.arg or size
        if not isinstance(factor, int) or factor < 1 or size % factor:
            raise KernelOptError(f"{opt}: {opt.arg} does not divide the axis of size {size}; use PADTO before")
        return factor

    def new_range(self, size: int | UOp, kind: AxisType, origins: frozenset[UOp]) -> UOp:
        """Make a RANGE that stands for part of the original ranges ``origins``."""
        made = UOp.range(size, self.next_id, kind)
        self.next_id += 1
        self.origins[made] = origins
        return made

    def _become(self, old: UOp, value: UOp, children: tuple[UOp, ...]) -> None:
        self.replaced[old] = value
        self.children[old] = children
        if old in self.around_copies:
            self.around_copies.update(children)
        if old in self.over_copies:
            self.over_copies.update(children)

    def split_inner(self, position: int, factor: int, kind: AxisType) -> UOp:
        """Split off the last ``factor`` iterations as a new axis of ``kind``; returns its range."""
        axis = self.axes[position]
        old, origins = axis.range, self.origins[axis.range]
        inner = self.new_range(factor, kind, origins)
        if axis.size == factor:
            self._become(old, inner, (inner,))
            self.axes[position] = Axis(inner, kind, axis.reduce)
            return inner
        outer = self.new_range(axis.size // factor, axis.kind, origins)
        self._become(old, _alu(Ops.ADD, _alu(Ops.MUL, outer, _index(factor)), inner), (outer, inner))
        axis.range = outer
        if old in self.block_outer:
            self.block_outer.add(outer)
        self.axes.append(Axis(inner, kind, axis.reduce))
        return inner

    def _upcast(self, opt: Opt) -> None:
        position = self._axis(opt)
        axis = self.axes[position]
        self._stays_loop(opt, axis)
        if axis.reduce or axis.kind not in _OUTPUT_KINDS:
            raise KernelOptError(f"{opt}: only an output loop can be upcast, this axis is {axis.kind.name}")
        factor = self._factor(opt, axis)
        if factor > MAX_COPIES:
            raise KernelOptError(f"{opt}: {factor} copies are more than {MAX_COPIES}")
        self.split_inner(position, factor, AxisType.UPCAST)

    def _unroll(self, opt: Opt) -> None:
        position = self._axis(opt)
        self._stays_loop(opt, self.axes[position])
        factor = self._factor(opt, self.axes[position])
        if factor > MAX_COPIES:
            raise KernelOptError(f"{opt}: {factor} copies are more than {MAX_COPIES}")
        self.split_inner(position, factor, AxisType.UNROLL)

    def _vector(self, opt: Opt) -> None:
        position = self._axis(opt)
        axis = self.axes[position]
        if not self.renderer.vector_bytes:
            raise KernelOptError(f"{opt}: the target has no vectors")
        self._stays_loop(opt, axis)
        if axis.kind not in _OUTPUT_KINDS | _REDUCE_KINDS:
            raise KernelOptError(f"{opt}: the axis is {axis.kind.name} already")
        lanes = self._factor(opt, axis)
        if lanes > MAX_LANES or lanes & (lanes - 1) or lanes < 2:
            raise KernelOptError(f"{opt}: {lanes} lanes; a power of two up to {MAX_LANES} is possible")
        for other in self.axes:
            if other.kind is AxisType.VECTOR and self.meet(axis.range, other.range):
                raise KernelOptError(f"{opt}: values would depend on two VECTOR axes")
        self.split_inner(position, lanes, AxisType.VECTOR)

    def meet(self, a: UOp, b: UOp) -> bool:
        """Whether some value depends on both ranges, or is computed over one while it depends on the other."""
        bits = sum(1 << self.original[r] for r in self.origins[b])
        return any(self.meets[self.original[r]] & bits for r in self.origins[a])

    def _split(self, opt: Opt) -> None:
        position = self._axis(opt)
        axis = self.axes[position]
        factor = self._factor(opt, axis)
        if axis.kind not in _LOOP_KINDS:
            raise KernelOptError(f"{opt}: a {axis.kind.name} axis cannot become two")
        if factor != axis.size:
            self.split_inner(position, factor, axis.kind)
            self.axes.insert(position + 1, self.axes.pop())

    def _overlap(self, opt: Opt) -> None:
        position = self._axis(opt)
        axis = self.axes[position]
        size, factor = self._size(opt, axis), opt.arg
        if axis.reduce or axis.kind not in _LOOP_KINDS:
            raise KernelOptError(f"{opt}: only an output loop may repeat iterations")
        if not isinstance(factor, int) or not 1 <= factor <= size:
            raise KernelOptError(f"{opt}: blocks of {factor} do not fit the axis of size {size}")
        if self.reads_outputs():
            raise KernelOptError(f"{opt}: the kernel reads what it writes, so no iteration may run twice")
        self._keeps_iterations(opt, axis)
        if size % factor == 0:
            self._split(opt)
            return
        old, origins = axis.range, self.origins[axis.range]
        outer = self.new_range(-(-size // factor), axis.kind, origins)
        inner = self.new_range(factor, axis.kind, origins)
        # min(outer * factor, size - factor), written so that its bounds and the step that all starts share can be seen
        shared = math.gcd(factor, size - factor)
        start = _alu(Ops.MAX, _alu(Ops.MUL, outer, _index(-factor // shared)), _index((factor - size) // shared))
        self._become(old, _alu(Ops.ADD, _alu(Ops.MUL, start, _index(-shared)), inner), (outer, inner))
        axis.range = outer
        self.axes.insert(position + 1, Axis(inner, axis.kind, False))

    def reads_outputs(self) -> bool:
        """Whether a buffer is both stored to and loaded."""
        if self._reads_outputs is None:
            self._reads_outputs = self._find_reads_of_outputs()
        return self._reads_outputs

    def _find_reads_of_outputs(self) -> bool:
        targets = {u.src[0] for u in self.nodes if u.op is Ops.STORE}
        written = {t.src[0].without_after for t in targets if t.op is Ops.INDEX}
        # One INDEX node may be the target of a store and a value in it at once: what counts is how it is used.
        values = {s for u in self.nodes for s in (u.src[1:] if u.op is Ops.STORE else u.src) if s.op is Ops.INDEX}
        return any(s.src[0].without_after in written for s in values)

    def _padto(self, opt: Opt) -> None:
        position = self._axis(opt)
        axis = self.axes[position]
        size, multiple = self._size(opt, axis), opt.arg
        if axis.kind not in (_OUTPUT_KINDS | _REDUCE_KINDS) - {AxisType.THREAD}:
            raise KernelOptError(f"{opt}: cannot pad a {axis.kind.name} axis")
        if not isinstance(multiple, int) or multiple < 1:
            raise KernelOptError(f"{opt}: the size must become a multiple of a positive number")
        padded = -(-size // multiple) * multiple
        if padded > 4 * size:
            raise KernelOptError(f"{opt}: padding {size} to {padded} is more than four times the work")
        if padded == size:
            return
        self._keeps_iterations(opt, axis)
        old = axis.range
        new = self.new_range(padded, axis.kind, self.origins[old])
        self._become(old, new, (new,))
        if old in self.block_outer:
            self.block_outer.add(new)
        self.conditions.append((old, _alu(Ops.CMPLT, new, _index(size))))
        axis.range = new

    def _swap(self, opt: Opt) -> None:
        a, b = self._axis(opt), self._axis(Opt(OptOps.SWAP, opt.arg))
        if self.axes[a].reduce or self.axes[b].reduce or self.axes[a].kind is not self.axes[b].kind:
            raise KernelOptError(f"{opt}: only two output loops of one kind can be exchanged")
        if (self.axes[a].range in self.around_copies) != (self.axes[b].range in self.around_copies):
            raise KernelOptError(f"{opt}: scratch memory is filled inside of one and over the other")
        self.axes[a], self.axes[b] = self.axes[b], self.axes[a]

    def _merge(self, opt: Opt) -> None:
        a, b = self._axis(opt), self._axis(Opt(OptOps.MERGE, opt.arg))
        outer, inner = self.axes[a], self.axes[b]
        sizes = self._size(opt, outer), self._size(opt, inner)
        if a == b or outer.reduce or inner.reduce or outer.kind is not inner.kind or outer.kind not in _LOOP_KINDS:
            raise KernelOptError(f"{opt}: only two output loops of one kind can become one")
        ends = [u for u in self.nodes if u.op is Ops.END]
        wanted = self.origins[outer.range], self.origins[inner.range]
        if any(bool(wanted[0] & set(u.src[1:])) != bool(wanted[1] & set(u.src[1:])) for u in ends):
            raise KernelOptError(f"{opt}: a store sits in only one of the two loops")
        self._keeps_iterations(opt, outer)
        self._keeps_iterations(opt, inner)
        both = self.new_range(sizes[0] * sizes[1], outer.kind, wanted[0] | wanted[1])
        self._become(outer.range, _alu(Ops.FLOORDIV, both, _index(sizes[1])), (both,))
        self._become(inner.range, _alu(Ops.FLOORMOD, both, _index(sizes[1])), ())
        outer.range = both
        del self.axes[b]

    def _thread(self, opt: Opt) -> None:
        position = self._axis(opt)
        axis = self.axes[position]
        if not self.renderer.has_threads:
            raise KernelOptError(f"{opt}: the target has no threads")
        if axis.reduce or axis.kind not in (AxisType.LOOP, AxisType.WEAK):
            raise KernelOptError(f"{opt}: only an output loop can be run by threads, this axis is {axis.kind.name}")
        if any(a.kind is AxisType.THREAD for a in self.axes):
            raise KernelOptError(f"{opt}: there is a THREAD axis already")
        limit = self.renderer.global_max
        size = self._size(opt, axis)
        pieces = opt.arg or size
        if size % pieces or (limit is not None and pieces > limit[0]):
            raise KernelOptError(f"{opt}: the axis of size {size} cannot be cut into {pieces} pieces")
        if any(not self.origins[axis.range] & set(u.src[1:]) for u in self.nodes if u.op is Ops.END):
            raise KernelOptError(f"{opt}: a store is outside of the axis")
        if pieces != size:
            self.split_inner(position, size // pieces, axis.kind)
            self.axes.insert(position + 1, self.axes.pop())
        self.retype(position, AxisType.THREAD)
        self.axes.insert(0, self.axes.pop(position))

    def retype(self, position: int, kind: AxisType) -> UOp:
        """Give an axis another type; returns its new range."""
        axis = self.axes[position]
        made = self.new_range(axis.size, kind, self.origins[axis.range])
        self._become(axis.range, made, (made,))
        self.axes[position] = Axis(made, kind, axis.reduce)
        return made

    def _block(self, opt: Opt) -> None:
        position = self._axis(opt)
        axis = self.axes[position]
        factor = self._factor(opt, axis)
        if factor == axis.size:
            return
        if factor == 1:  # the loops inside of this axis are the block
            self.block_outer.add(axis.range)
            return
        was_outer = axis.range in self.block_outer
        inner = self.split_inner(position, factor, AxisType.REDUCE)
        self.axes.insert(position + 1, self.axes.pop())
        self.block_outer.add(self.axes[position].range)
        if was_outer:
            self.block_outer.add(inner)

    def _nolocals(self, opt: Opt) -> None:
        if any(a.kind in (AxisType.LOCAL, AxisType.GROUP_REDUCE) for a in self.axes):
            raise KernelOptError(f"{opt}: the kernel has local axes already")
        self.dont_use_locals = True

    def _needs_locals(self, opt: Opt) -> None:
        if not self.renderer.has_local or self.dont_use_locals:
            raise KernelOptError(f"{opt}: the target or the kernel has no work-groups")

    def _local(self, opt: Opt) -> None:
        self._needs_locals(opt)
        position = self._axis(opt)
        axis = self.axes[position]
        if axis.reduce or axis.kind not in (AxisType.GLOBAL, AxisType.LOCAL, AxisType.WEAK, AxisType.LOOP):
            raise KernelOptError(f"{opt}: a {axis.kind.name} axis cannot be local")
        if any(a.kind is AxisType.GROUP_REDUCE for a in self.axes):
            raise KernelOptError(f"{opt}: the work-group shares a reduction already")
        self.split_inner(position, self._factor(opt, axis), AxisType.LOCAL)

    def _group(self, opt: Opt) -> None:
        self._needs_locals(opt)
        position = self._axis(opt)
        axis = self.axes[position]
        factor = self._factor(opt, axis)
        if any(a.kind is AxisType.LOCAL for a in self.axes):
            raise KernelOptError(f"{opt}: the work-group is used by outputs already")
        if sum(u.op is Ops.REDUCE for u in self.nodes) != 1:
            raise KernelOptError(f"{opt}: only a kernel with one reduction can share it in a work-group")
        if any(a.kind is AxisType.GROUP_REDUCE for a in self.axes):
            raise KernelOptError(f"{opt}: there is a GROUP_REDUCE axis already")
        if opt.op is OptOps.GROUP or factor == axis.size:
            self.split_inner(position, factor, AxisType.GROUP_REDUCE)
            return
        size = self._size(opt, axis)
        self.split_inner(position, size // factor, AxisType.REDUCE)
        self.axes.insert(position + 1, self.axes.pop())
        self.retype(position, AxisType.GROUP_REDUCE)

    def result(self) -> UOp:
        """Return the kernel with all steps applied."""
        return (TileRebuild if isinstance(self.dot, TileDot) else Rebuild)(self).run()


_REDUCE_STEPS = frozenset({OptOps.UNROLL, OptOps.GROUP, OptOps.GROUPTOP, OptOps.BLOCK})
_STEPS = {
    OptOps.UPCAST: Schedule._upcast,
    OptOps.UNROLL: Schedule._unroll,
    OptOps.VECTOR: Schedule._vector,
    OptOps.SPLIT: Schedule._split,
    OptOps.OVERLAP: Schedule._overlap,
    OptOps.PADTO: Schedule._padto,
    OptOps.SWAP: Schedule._swap,
    OptOps.MERGE: Schedule._merge,
    OptOps.THREAD: Schedule._thread,
    OptOps.BLOCK: Schedule._block,
    OptOps.NOLOCALS: Schedule._nolocals,
    OptOps.LOCAL: Schedule._local,
    OptOps.GROUP: Schedule._group,
    OptOps.GROUPTOP: Schedule._group,
    OptOps.CACHE: Schedule._cache,
    OptOps.STAGE: Schedule._stage,
    OptOps.TC: Schedule._tensor_core,
}
