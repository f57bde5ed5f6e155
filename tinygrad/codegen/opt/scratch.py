"""Steps that keep sums and operands in scratch memory: CACHE, STAGE and TC.

In:   the loops and the graph of a Schedule.
Out:  what these steps decided, for ``rebuild.py``: ``cached``, ``staged`` and ``dot``.
Why:  this is how a kernel uses the caches: what a block of loops reads again and again is copied once, in the order in
      which it is read, and what it adds to again and again stays near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.rebuild import Cached, Dot, Staged, Window, narrow_factors
from tinygrad.codegen.opt.tiles import TileDot, find_tile
from tinygrad.record import record, replace
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer


@record
class Axis:
    """One current range of the kernel. ``reduce`` tells whether it belongs to a REDUCE."""

    range: UOp
    kind: AxisType
    reduce: bool

    @property
    def size(self) -> int | UOp:
        """Number of iterations."""
        end = self.range.src[0]
        return end.arg if end.op is Ops.CONST else end


class ScratchSteps:
    """The part of a Schedule that deals with scratch memory."""

    nodes: list[UOp]
    axes: list[Axis]
    renderer: Renderer
    mask: dict[UOp, int]
    original: dict[UOp, int]
    origins: dict[UOp, frozenset[UOp]]
    block_outer: set[UOp]

    def __init__(self) -> None:
        self.cached: Cached | None = None
        self.staged: dict[UOp, Staged] = {}
        self.dot: Dot | None = None
        self.around_copies: set[UOp] = set()  # loops around nests that fill scratch memory: they must stay loops
        self.over_copies: set[UOp] = set()  # loops of these nests

    def reduce_axes(self) -> list[int]:
        """Return the positions of the reduce loops."""
        raise NotImplementedError

    def reads_outputs(self) -> bool:
        """Whether a buffer is both stored to and loaded."""
        raise NotImplementedError

    def _axis(self, opt: Opt) -> int:
        raise NotImplementedError

    def split_inner(self, position: int, factor: int, kind: AxisType) -> UOp:
        """Split off the last ``factor`` iterations as a new axis of ``kind``; returns its range."""
        raise NotImplementedError

    def _stays_loop(self, opt: Opt, axis: Axis) -> None:
        if axis.range in self.around_copies:
            raise KernelOptError(f"{opt}: scratch memory is filled inside this axis, so it must stay a loop")

    def _keeps_iterations(self, opt: Opt, axis: Axis) -> None:
        if not self.may_pad(axis, opt.op is OptOps.OVERLAP):
            raise KernelOptError(f"{opt}: scratch memory is filled over this axis, so it keeps its iterations")

    def is_around_copies(self, axis: Axis) -> bool:
        """Whether scratch memory is filled inside an axis, each time anew."""
        return axis.range in self.around_copies and axis.range not in self.over_copies

    def may_pad(self, axis: Axis, overlap: bool = False) -> bool:
        """Whether an axis may get more iterations, or repeat some (``overlap``), with what is in scratch memory."""
        if not self.cached and not self.staged:
            return True
        if self.is_around_copies(axis):
            return True
        if self.cached or self.dot:
            return False
        # What only reads copies may run twice, and beyond the end of a loop that they do not depend on.
        return overlap or not any(self.depends(f, axis.range) for f in self.staged)

    def _cache(self, opt: Opt) -> None:
        position = self._axis(opt)
        outputs = [a for a in self.axes[position:] if not a.reduce]
        blocks = [a.range for a in self.axes if a.range in self.block_outer]
        reduces = [u for u in self.nodes if u.op is Ops.REDUCE]
        if len(reduces) != 1 or sum(u.op is Ops.END for u in self.nodes) != 1 or self.cached or self.staged:
            raise KernelOptError(f"{opt}: only the sums of a kernel with one store and one reduction can be kept, once")
        if not blocks or self.reads_outputs():
            raise KernelOptError(f"{opt}: the reduction must be cut by BLOCK before, and outputs must not be read")
        if any(not isinstance(a.size, int) or a.kind is not AxisType.LOOP for a in outputs):
            raise KernelOptError(f"{opt}: an axis behind is no loop of known size")
        if any(not self.depends(reduces[0], a.range) for a in outputs):
            raise KernelOptError(f"{opt}: the reduction does not depend on an axis behind")
        self.cached = Cached(tuple(a.range for a in outputs), tuple(blocks))
        self.around_copies.update(blocks, (a.range for a in self.axes[:position] if not a.reduce))

    def depends(self, u: UOp, r: UOp) -> bool:
        """Whether a node depends on what the axis ``r`` stands for."""
        return any(self.mask[u] >> self.original[o] & 1 for o in self.origins[r])

    def _stage(self, opt: Opt) -> None:
        factors = self.factors()
        if not isinstance(opt.arg, tuple) or len(opt.arg) not in (2, 3) or opt.arg[0] not in range(len(factors)):
            raise KernelOptError(
                f"{opt}: arg is (operand, is it a panel, its windows if there are any), the kernel has {len(factors)} "
                "operands"
            )
        self._copy_operand(opt, factors[opt.arg[0]], bool(opt.arg[1]), self._windows(opt))

    def _windows(self, opt: Opt) -> tuple[Window, ...]:
        """Return the windows of a STAGE step: (output axis, reduce axis, step), as UNROLL counts the latter."""
        loops, found = self.reduce_axes(), []
        for rows, taps, step in opt.arg[2] if len(opt.arg) > 2 else ():
            if not 0 <= rows < len(self.axes) or not 0 <= taps < len(loops) or step < 1:
                raise KernelOptError(f"{opt}: a window is (output axis, reduce axis, step of at least 1)")
            found.append(Window(self.axes[rows].range, self.axes[loops[taps]].range, step))
        return tuple(found)

    def _tensor_core(self, opt: Opt) -> None:
        cores, factors = self.renderer.tensor_cores, self.factors()
        if not cores:
            raise KernelOptError(f"{opt}: no tensor core available")
        if not isinstance(opt.arg, tuple) or len(opt.arg) != 3 or opt.arg[0] not in range(len(cores)):
            raise KernelOptError(f"{opt}: arg is (unit, operand with lanes, is the other one a panel), the target has "
                                 f"{len(cores)} units")  # fmt: skip
        core, wide = cores[opt.arg[0]], opt.arg[1]
        narrow = narrow_factors(factors, core)
        if narrow is None or self.dot or self.staged or wide not in (0, 1):
            raise KernelOptError(f"{opt}: the kernel sums no products of {core.dtype_in} in {core.dtype_out}")
        for f in factors:
            self._copied(opt, f, True)
        if core.is_tile:
            self.dot = dot = find_tile(self, opt, core, narrow)
            for f in factors:
                self._copy_operand(replace(opt, axis=self._inside_own(opt, dot, f)), f, True)
            return
        blocks = self.cached.blocks if self.cached else ()
        loops = [i for i in self.reduce_axes() if self.axes[i].range not in blocks]
        if not loops or not isinstance(self.axes[loops[-1]].size, int) or self.axes[loops[-1]].size % core.packed:
            raise KernelOptError(f"{opt}: the innermost reduce axis is no multiple of {core.packed}; use PADTO before")
        if self.axes[loops[-1]].size == core.packed or any(
            not self.depends(f, self.axes[loops[-1]].range) for f in factors
        ):
            raise KernelOptError(f"{opt}: the innermost reduce axis is too short, or an operand does not depend on it")
        self.dot = Dot(self.split_inner(loops[-1], core.packed, AxisType.UNROLL), core, narrow, wide)
        for i in (1 - wide, wide):
            self._copy_operand(opt, factors[i], i == wide or bool(opt.arg[2]))

    def _inside_own(self, opt: Opt, dot: TileDot, operand: UOp) -> int:
        """Return the first axis at or behind that of ``opt`` that an operand is used again along."""
        position, tile = self._axis(opt), {*dot.copies, dot.rows, dot.columns}
        while self.axes[position].range not in tile and self.depends(operand, self.axes[position].range):
            position += 1
        return position

    def _copy_operand(self, opt: Opt, operand: UOp, panel: bool, windows: tuple[Window, ...] = ()) -> None:
        staged = self._copied(opt, operand, panel)
        if not all(w.rows in staged.outputs and w.taps in staged.reduces for w in windows):
            raise KernelOptError(f"{opt}: the operand is not copied over a range of a window")
        self.staged[operand] = replace(staged, windows=windows)
        self.around_copies.update(a.range for a in self.axes[: self._axis(opt)] if not a.reduce)
        self.over_copies.update(a.range for a in self.axes[self._axis(opt) :])

    def _copied(self, opt: Opt, operand: UOp, panel: bool) -> Staged:
        """Return which loops a copy of an operand is made over."""
        position = self._axis(opt)
        blocks = self.cached.blocks if self.cached else ()
        if self.dot is not None:
            blocks = (*blocks, self.dot.range)
        inside = [a for a in self.axes[position:] if not a.reduce]
        outputs = tuple(a.range for a in inside if self.depends(operand, a.range))
        reduces = [a for a in self.axes if a.reduce and a.range not in blocks and self.depends(operand, a.range)]
        if not outputs or not reduces or operand in self.staged:
            raise KernelOptError(f"{opt}: the operand is not used again behind this axis, or is a copy already")
        kinds = {a.kind for a in (*inside, *reduces)}
        if not kinds <= {AxisType.LOOP, AxisType.REDUCE} or any(not isinstance(a.size, int) for a in inside + reduces):
            raise KernelOptError(f"{opt}: an axis behind is no loop of known size")
        if any(a.kind in (AxisType.UPCAST, AxisType.VECTOR) for a in self.axes[:position]):
            raise KernelOptError(f"{opt}: scratch memory is filled inside the axes in front, so they must be loops")
        if operand.op_in_backward_slice_with_self(Ops.REDUCE):
            raise KernelOptError(f"{opt}: the operand contains a reduction")
        return Staged(tuple(a.range for a in inside), outputs, tuple(a.range for a in reduces), panel)

    def factors(self) -> tuple[UOp, ...]:
        """Return the factors of the product that the kernel's only reduction sums, seen through casts."""
        reduces = [u for u in self.nodes if u.op is Ops.REDUCE]
        product = reduces[0].src[0] if len(reduces) == 1 else None
        while product is not None and product.op is Ops.CAST:
            product = product.src[0]
        return product.src if product is not None and product.op is Ops.MUL else ()
