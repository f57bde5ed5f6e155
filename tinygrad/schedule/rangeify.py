"""Write one kernel of plain loops for each value that gets memory.

In:   the prepared tensor graph.
Out:  a list of Kernels. In their graphs no movement op survives: every read is INDEX(storage, expression over RANGEs).
How:  from the outputs backwards, every node collects its contexts: the (kernel, index expressions) under which
      consumers read it. A movement op rewrites the expressions; an elementwise op passes them on; a REDUCE adds ranges
      of its own. A node that ``bufferize`` stores becomes a kernel. Then the kernels' expressions are built bottom-up
      from the same index expressions.
Why:  fusion and views need no rules of their own: what is not stored is simply computed where it is indexed.
"""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.bufferize import Bufferizer, Context, KernelContext, fills
from tinygrad.schedule.indexing import Idxs, apply_movement_op, both, flatten_index, pad_valid, zero
from tinygrad.schedule.kernel import Kernel, StoreNest
from tinygrad.schedule.prepare import is_stored, runs_kernels
from tinygrad.schedule.stand_ins import StandIns, resizes
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.ops import UOp, identity_element

# A request: the value of a node at index expressions, needed only where the gate holds.
Request: TypeAlias = tuple[UOp, Idxs, "UOp | None"]


class Rangeify:
    """Builds the kernels of one prepared graph."""

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.axis_ids = itertools.count()
        self.order = list(sink.toposort(enter_calls=False))
        self.stored: dict[UOp, KernelContext] = {}
        self.stand_ins = StandIns(self.order, self.stored)
        self.choice = Bufferizer(sink, self.order, self.stand_ins)
        self.gathers = self.choice.gathers
        self.contexts: dict[UOp, dict[Context, None]] = {}
        self.reduce_ranges: dict[Request, tuple[UOp, ...]] = {}
        self.requests: dict[Request, list[Request]] = {}
        self.values: dict[Request, UOp] = {}

    # ---- contexts

    def collect_contexts(self) -> None:
        """Walk from the outputs backwards, deciding what is stored and handing index expressions down."""
        for u in reversed(self.order):
            if u.op is Ops.STORE and not u.src[0].is_variable and runs_kernels(u.src[0].device):
                self.open_kernel(u, u.src[1].shape)
            elif not self.is_computed(u):
                continue
            elif self.choice.decide(u, self.contexts.get(u, ())):
                self.open_kernel(u, u.shape)
            else:
                for kernel, idxs, gate in self.contexts.get(u, ()):
                    self.hand_down(kernel, (u, idxs, gate))

    def is_computed(self, u: UOp) -> bool:
        """Return whether a kernel has to compute the node: it is a value, and neither given nor copied."""
        if u._shape is None or is_stored(u) or u.op in (Ops.CONST, Ops.SPECIAL):
            return False
        return fills(u) if u.op is Ops.COPY else not self.stand_ins.is_slice(u)

    def open_kernel(self, u: UOp, shape: tuple[Any, ...]) -> None:
        """Start a kernel that stores ``u``."""
        ranges = tuple(self.new_range(size, AxisType.LOOP) for size in shape)
        kernel = KernelContext(u, ranges)
        self.stored[u] = kernel
        self.contexts[u] = {}
        if any(isinstance(size, int) and size == 0 for size in shape):
            return  # nothing is read for no elements
        if u.op is not Ops.STORE:
            self.hand_down(kernel, (u, ranges, None))
            return
        self.add_context(kernel, (u.src[1], ranges, None))
        if u.src[0].op is Ops.INDEX:
            for s in u.src[0].src[1:]:
                self.add_context(kernel, (s, aligned(s, u.src[1].shape, ranges), None))

    def hand_down(self, kernel: KernelContext, request: Request) -> None:
        """Pass a node's context on to its sources."""
        u, idxs, gate = request
        if u in self.gathers:
            gather = self.gathers[u]
            self.add_context(kernel, (gather.index, gather.index_idxs(idxs), gate))
            # Where the table is read depends on data: a symbol of its own stands for that position.
            unknown = UOp.variable(f"gathered{next(self.axis_ids)}", 0, gather.size - 1)
            self.add_context(kernel, (gather.table, gather.table_idxs(idxs, unknown), gate))
            return
        for below in self.requests_below(request):
            self.add_context(kernel, below)

    def add_context(self, kernel: KernelContext, request: Request) -> None:
        """Record that a kernel reads a node under these indices."""
        u, idxs, gate = request
        self.contexts.setdefault(u, {})[(kernel, idxs, gate)] = None

    def new_range(self, size: Any, kind: AxisType) -> UOp:
        """Return a fresh loop variable; index 0 for a loop of one iteration."""
        if isinstance(size, int) and size == 1:
            return zero()
        return UOp.range(size, next(self.axis_ids), kind)

    def requests_below(self, request: Request) -> list[Request]:
        """Return what a node at given indices asks of its sources."""
        found = self.requests.get(request)
        if found is None:
            found = self.requests[request] = self._requests_below(request)
        return found

    def _requests_below(self, request: Request) -> list[Request]:
        u, idxs, gate = request
        if u.op in GroupOp.Movement:
            src, marg = u.src[0], u.marg
            inner = apply_movement_op(u.op, src.shape, marg, idxs)
            if u.op is Ops.PAD:
                gate = both(gate, pad_valid(src.shape, marg, idxs))
            return [(src, inner, gate)]
        if u.op is Ops.REDUCE:
            axes, shape = u.arg[1], u.src[0].shape
            fresh = tuple(self.new_range(shape[a], AxisType.REDUCE) for a in axes)
            self.reduce_ranges[request] = tuple(r for r in fresh if r.op is Ops.RANGE)
            at = dict(zip(axes, fresh, strict=True))
            return [(u.src[0], tuple(at.get(i, x) for i, x in enumerate(idxs)), gate)]
        if u.op in GroupOp.Elementwise or u.op is Ops.CONTIGUOUS or u.op is Ops.COPY:
            return [(s, aligned(s, u.shape, idxs), gate) for s in u.src]
        raise RuntimeError(f"schedule: {u.op} cannot be part of a kernel; this is a bug of the scheduler\n{u}")

    # ---- expressions

    def value(self, request: Request) -> UOp:
        """Return the scalar expression of a node at given indices."""
        values = self.values
        stack = [request]
        while stack:
            top = stack[-1]
            if top in values:
                stack.pop()
                continue
            if self.is_leaf(top[0]):
                values[top] = self.leaf_value(top)
                continue
            wanted = self.wanted(top)
            missing = [r for r in wanted if r not in values]
            if missing:
                stack.extend(missing)
                continue
            values[top] = self.combine(top, [values[r] for r in wanted])
            stack.pop()
        return values[request]

    def wanted(self, request: Request) -> list[Request]:
        """Return the values that a node's expression is made of, as far as they are known now."""
        return self.gather_requests(request) if request[0] in self.gathers else self.requests_below(request)

    def computed(self, request: Request) -> UOp:
        """Return the expression that computes a stored node (whose plain ``value`` is a load)."""
        while missing := [r for r in self.wanted(request) if r not in self.values]:
            for below in missing:
                self.value(below)
        return self.combine(request, [self.values[r] for r in self.wanted(request)])

    def is_leaf(self, u: UOp) -> bool:
        """Return whether a node is read from memory or is a constant or variable."""
        if u.op is Ops.CONTIGUOUS and u not in self.stored:
            return self.stand_ins.node_with_storage(u) is not None
        if u.op in (Ops.CONST, Ops.SPECIAL, Ops.COPY) or u in self.stored or is_stored(u):
            return True
        return resizes(u) or self.stand_ins.is_slice(u)

    def leaf_value(self, request: Request) -> UOp:
        """Return the load, constant or variable that a leaf is."""
        u, idxs, gate = request
        if u.op is Ops.CONST or (u.op is Ops.PARAM and u.is_variable) or u.is_bound_var:
            return u.src[0] if u.is_bound_var else u
        if u.op is Ops.SPECIAL:
            return idxs[0]
        stand_in = self.stand_ins.of(u)
        at = (stand_in, flatten_index(u.shape, idxs)) + (() if gate is None else (gate,))
        return UOp(Ops.INDEX, stand_in.dtype, at).cast(u.dtype)  # a weak value is stored in its default dtype

    def gather_requests(self, request: Request) -> list[Request]:
        """Return what a gather asks: its index, and once that is known, the table there."""
        u, idxs, gate = request
        gather = self.gathers[u]
        first = (gather.index, gather.index_idxs(idxs), gate)
        if first not in self.values:
            return [first]
        at, exists = gather.position(self.values[first])
        return [first, (gather.table, gather.table_idxs(idxs, at), both(gate, exists))]

    def combine(self, request: Request, srcs: list[UOp]) -> UOp:
        """Return a node's expression from those of its sources."""
        u, idxs, _ = request
        if u in self.gathers:
            return self.gathers[u].result(srcs[0], srcs[1])
        if u.op is Ops.PAD:
            valid = pad_valid(u.src[0].shape, u.marg, idxs)
            if valid is None:
                return srcs[0]
            # A gated load is 0 by itself; anything computed has to be masked.
            if srcs[0].op is Ops.INDEX:
                return srcs[0]
            return UOp(Ops.WHERE, u.dtype, (valid, srcs[0], UOp.const(0, u.dtype)))
        if u.op in GroupOp.Movement or u.op is Ops.CONTIGUOUS or u.op is Ops.COPY:
            return srcs[0]
        if u.op is Ops.REDUCE:
            ranges = self.reduce_ranges[request]
            if any(isinstance(s, int) and s == 0 for s in u.src[0].shape):
                return UOp.const(identity_element(u.arg[0], u.dtype), u.dtype)
            return UOp(Ops.REDUCE, u.dtype, (srcs[0], *ranges), (u.arg[0], ())) if ranges else srcs[0]
        return UOp(u.op, u.dtype, tuple(srcs), u.arg)

    # ---- kernels

    def build(self) -> list[Kernel]:
        """Return the kernels in the order in which their values appear in the graph."""
        self.collect_contexts()
        kernels: list[Kernel] = []
        for u in self.order:
            made: Kernel | None = None
            if u.op is Ops.COPY and not fills(u):
                made = Kernel("copy", u.arg, args=[self.stand_ins.of(u), self.stand_ins.of_view(u.src[0])], writes=[u])
            elif u.op is Ops.CALL:
                args = [self.stand_ins.of_view(s) for s in u.src[1:]]
                made = Kernel("call", next(a.arg.device for a in args), args=args, writes=[u], body=u.src[0])
            elif u.op is Ops.STORE and not u.src[0].is_variable and not runs_kernels(u.src[0].device):
                pair = [self.stand_ins.of_view(u.src[0]), self.stand_ins.of_view(u.src[1])]
                made = Kernel("copy", pair[0].arg.device, args=pair, writes=[u])
            elif u in self.stored and prod(u.src[1].max_shape if u.op is Ops.STORE else u.max_shape):
                made = Kernel("compute", "", nests=[self.nest(u)], writes=[u])
                made.device = made.nests[0].target.arg.device
            if made is not None:
                made.order = len(kernels)
                kernels.append(made)
        return kernels

    def nest(self, u: UOp) -> StoreNest:
        """Return the loop nest that stores ``u``."""
        kernel = self.stored[u]
        idxs = kernel.idxs
        if u.op is not Ops.STORE:
            value = self.computed((u, idxs, None))
            target = self.stand_ins.of(u)
            return StoreNest(target, flatten_index(u.shape, idxs), None, value.cast(target.dtype), kernel.ranges)
        value = self.value((u.src[1], idxs, None))
        view = u.src[0]
        if view.op is Ops.INDEX:
            at, *gates = [self.value((s, aligned(s, u.src[1].shape, idxs), None)) for s in view.src[1:]]
            target = self.stand_ins.of_target(view.src[0])
            gate = gates[0] if gates else None
            at = at.cast(dtypes.weakint)
            return StoreNest(target, at, gate, value, kernel.ranges, serial=True, accumulate=u.arg)
        index, gate = idxs, None
        while view.op in GroupOp.Movement or view.op is Ops.DETACH:
            if view.op in GroupOp.Movement:
                index = apply_movement_op(view.op, view.src[0].shape, view.marg, index)
            view = view.src[0]
        return StoreNest(self.stand_ins.of_target(view), flatten_index(view.shape, index), gate, value, kernel.ranges)


def aligned(s: UOp, shape: tuple[Any, ...], idxs: Idxs) -> Idxs:
    """Return the indices of an operand that is broadcast to ``shape``."""
    own = s.shape
    if own == shape:
        return idxs
    inner = idxs[len(shape) - len(own) :]
    return tuple(zero() if isinstance(size, int) and size == 1 else i for size, i in zip(own, inner, strict=True))
