"""Choose which values get memory, and write one kernel of plain loops for each of them.

In:   the prepared tensor graph.
Out:  a list of Kernels. In their graphs no movement op survives: every read is INDEX(storage, expression over RANGEs).
How:  from the outputs backwards, every node collects its contexts: the (kernel, index expressions) under which
      consumers read it. A movement op rewrites the expressions; an elementwise op passes them on; a REDUCE adds ranges of
      its own. A node becomes a kernel when it must, or when the cost model says that storing beats recomputing. Then
      the kernels' expressions are built bottom-up from the same index expressions.
"""

from __future__ import annotations

import itertools
from typing import Any

from tinygrad.dtype import dtypes, strong_dtype
from tinygrad.helpers import prod
from tinygrad.schedule.fusion import (
    Cost,
    fits_as_row,
    node_cost,
    reduce_terms,
    too_big,
    worth_storing,
    worth_storing_operand,
)
from tinygrad.schedule.gather import Gather, match_gather
from tinygrad.schedule.indexing import Idxs, apply_movement_op, both, flatten_index, pad_valid, zero
from tinygrad.schedule.kernel import Kernel, Leaf, StoreNest
from tinygrad.schedule.prepare import is_stored, numel, runs_kernels
from tinygrad.schedule.snapshots import is_snapshot
from tinygrad.schedule.split import contraction_operands, is_contraction
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.ops import ParamArg, UOp, identity_element

# A request: the value of a node at index expressions, needed only where the gate holds.
Request = tuple[UOp, Idxs, "UOp | None"]
SMALL_NESTED = 65536  # elements below which a reduction may run inside the loop of another one


class KernelContext:
    """The loops of one kernel while contexts are collected."""

    def __init__(self, root: UOp, ranges: Idxs) -> None:
        self.root = root
        self.ranges = tuple(r for r in ranges if r.op is Ops.RANGE)
        self.idxs = ranges
        self.elements = prod(tuple(r.src[0].vmax for r in self.ranges))
        self.row_reduces = 0
        self.contractions = 0
        self.nested = False  # whether a reduction runs inside the loop of another one


class Rangeify:
    """Builds the kernels of one prepared graph."""

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.axis_ids = itertools.count()
        self.order = list(sink.toposort(enter_calls=False))
        self.must: dict[UOp, None] = {}
        self.stored: dict[UOp, KernelContext] = {}
        self.contexts: dict[UOp, dict[tuple[KernelContext, Idxs, UOp | None], None]] = {}
        self.gathers: dict[UOp, Gather] = {}
        self.costs: dict[UOp, Cost] = {}  # of computing a node itself
        self.seen_costs: dict[UOp, Cost] = {}  # as its users see it: a node that will likely be stored is one load
        self.reduce_ranges: dict[Request, tuple[UOp, ...]] = {}
        self.requests: dict[Request, list[Request]] = {}
        self.values: dict[Request, UOp] = {}
        self.stand_ins: dict[UOp, UOp] = {}
        self.leaves: dict[UOp, Leaf] = {}
        self.storage_slots = itertools.count()
        self.slices: dict[UOp, bool] = {}
        self.written = {u.without_after for u in self.order if u.op is Ops.AFTER}

    # ---- which nodes are stored

    def needs_storage(self, u: UOp) -> UOp | None:
        """Return the node that has to be stored so that ``u`` is one array; None if it is (a view of) storage."""
        while u.op is Ops.RESHAPE:
            u = u.src[0]
        if is_snapshot(u):
            return u
        if u.op is Ops.CONTIGUOUS and u.src[0].op not in GroupOp.Movement and u.src[0].base.op is not Ops.CONST:
            u = u.src[0]
        if fills(u):
            return u
        is_view = is_stored(u) or u.op is Ops.COPY or self.resizes(u) or u.contiguous_view() is not None
        return None if is_view else u

    def mark_must(self) -> None:
        """Mark what has to be stored whatever it costs."""
        for root in self.sink.src:
            if root.dtype is not dtypes.void and not root.is_virtual:
                on_storage = root.base
                if is_stored(on_storage) and root.op is not Ops.CONTIGUOUS:
                    continue  # a view of storage, contiguous or not, is as good as realized
                self.add_must(self.needs_storage(root))
        for u in self.order:
            match u.op:
                case Ops.CONTIGUOUS:
                    self.add_must(self.needs_storage(u))
                case Ops.COPY:
                    self.add_must(u if fills(u) else self.needs_storage(u.src[0]))
                case Ops.BITCAST if u.src[0].dtype.itemsize != u.dtype.itemsize:
                    self.add_must(self.needs_storage(u.src[0]))
                case Ops.CALL:
                    for arg in u.src[1:]:
                        self.add_must(self.needs_storage(arg))
                case Ops.STORE if not runs_kernels(u.src[0].device):
                    self.add_must(self.needs_storage(u.src[1]))
                case Ops.REDUCE:
                    gather = match_gather(u)
                    if gather is not None:
                        self.gathers[u] = gather
                        self.add_must(None if self.costs[gather.index].ops <= 4 else self.needs_storage(gather.index))
                    elif is_contraction(u):
                        self.mark_operands(u)

    def add_must(self, u: UOp | None) -> None:
        """Mark a node unless it is None."""
        if u is not None:
            self.must[u] = None

    def mark_operands(self, reduce: UOp) -> None:
        """Mark operands of a contraction that would be computed anew for every use."""
        full = numel(reduce.src[0])
        for factor in contraction_operands(reduce.src[0]) or ():
            u = factor
            while u.op in GroupOp.Movement and u.op is not Ops.PAD:
                u = u.src[0]
            if is_stored(u) or u.op in (Ops.CONST, Ops.SPECIAL, Ops.COPY, Ops.CONTIGUOUS) or u.device is None:
                continue
            if u.op is Ops.REDUCE and not self.is_tiny(u):
                continue  # it is decided elsewhere; a tiny one, such as a 2x2 pooling, is elementwise code
            size = numel(u)
            if size and size * 4 <= full and worth_storing_operand(self.costs[u], full / size):
                self.must[u] = None

    def count_costs(self) -> None:
        """Fill in costs bottom-up, cutting bodies that grow too big."""
        users = self.count_users()
        seen = self.seen_costs
        for u in self.order:
            if u._shape is None:
                continue
            if is_stored(u) or u.op in (Ops.COPY, Ops.CONTIGUOUS, Ops.INDEX) or self.is_slice(u):
                self.costs[u] = seen[u] = Cost(frozenset({u}))
                continue
            if u.op in (Ops.CONST, Ops.SPECIAL, Ops.STORE):
                self.costs[u] = seen[u] = Cost()
                continue
            cost = self.costs[u] = seen[u] = node_cost(u, seen)
            if u in self.must:
                seen[u] = Cost(frozenset({u}))
            if u.op in GroupOp.Movement or u.device is None:
                continue
            if too_big(cost):
                self.must[u] = None
                self.costs[u] = seen[u] = Cost(frozenset({u}))
            elif users.get(u, 0) > 1 and ((u.op is Ops.REDUCE and not self.is_tiny(u)) or self.ends_reduce(u)):
                seen[u] = Cost(frozenset({u}))

    def is_tiny(self, reduce: UOp) -> bool:
        """Return whether a REDUCE counts as elementwise code."""
        return reduce not in self.costs[reduce].reduces

    def count_users(self) -> dict[UOp, int]:
        """Return how many nodes that compute something read each node, seen through views."""
        users: dict[UOp, int] = {}
        for u in reversed(self.order):
            weight = users.get(u, 1) if u.op in GroupOp.Movement else 1
            for s in dict.fromkeys(u.src):
                users[s] = users.get(s, 0) + weight
        return users

    def ends_reduce(self, u: UOp) -> bool:
        """Return whether a node is the end of a reduction of its own size, so that storing it is the obvious cut."""
        size = numel(u)
        return any(numel(r) == size and r.device is not None for r in self.costs[u].reduces if r is not u)

    def fuses(self, reduce: UOp, context: tuple[KernelContext, Idxs, UOp | None]) -> bool:
        """Return whether a REDUCE that one kernel reads under one set of indices runs inside that kernel."""
        kernel, idxs, gate = context
        if gate is not None or not all(i.op in (Ops.RANGE, Ops.CONST) for i in idxs):
            return False
        used = {i for i in idxs if i.op is Ops.RANGE}
        rows = prod(tuple(r.src[0].vmax for r in used))
        if rows > numel(reduce) or rows * reduce_terms(reduce) == 0:
            return False
        contraction = is_contraction(reduce)
        if kernel.contractions or (contraction and kernel.row_reduces):
            return False
        if any(r not in kernel.ranges for r in used):
            # Inside the loop of another reduction it runs once per iteration of everything around that one too.
            once = kernel.elements == 1 and not kernel.nested
            if contraction or not once or rows * reduce_terms(reduce) > SMALL_NESTED:
                return False
            kernel.nested = True
            return True
        if all(r in used for r in kernel.ranges):
            return True
        return not contraction and fits_as_row(reduce, rows, kernel.elements)

    def decide(self, u: UOp) -> bool:
        """Return whether a value node is stored."""
        if u in self.must:
            return True
        found = self.contexts.get(u)
        if not found or u.op in GroupOp.Movement or u.device is None or u in self.gathers:
            return False
        if u.op is Ops.REDUCE and not self.is_tiny(u):
            if len(found) > 1:
                return True
            context = next(iter(found))
            if not self.fuses(u, context):
                return True
            context[0].contractions += is_contraction(u)
            context[0].row_reduces += 1
            return False
        if len(found) == 1:
            return False
        return self.ends_reduce(u) or worth_storing(u, self.costs[u], len(found))

    def collect_contexts(self) -> None:
        """Walk from the outputs backwards, deciding what is stored and handing index expressions down."""
        for u in reversed(self.order):
            if u.op is Ops.STORE and not u.src[0].is_variable and runs_kernels(u.src[0].device):
                self.open_kernel(u, u.src[1].shape)
            elif u._shape is None or is_stored(u) or u.op in (Ops.CONST, Ops.SPECIAL) or (u.op is Ops.COPY and not fills(u)):
                continue
            elif self.is_slice(u):
                continue
            elif self.decide(u):
                self.open_kernel(u, u.shape)
            else:
                for kernel, idxs, gate in self.contexts.get(u, ()):
                    self.hand_down(kernel, (u, idxs, gate))

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
            u, idxs, gate = top
            if self.is_leaf(u):
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
            return self.storage_node(u) is not None
        if u.op in (Ops.CONST, Ops.SPECIAL, Ops.COPY) or u in self.stored or is_stored(u):
            return True
        return self.resizes(u) or self.is_slice(u)

    @staticmethod
    def resizes(u: UOp) -> bool:
        """Return whether a BITCAST changes the item size, so that it is a view of memory."""
        return u.op is Ops.BITCAST and u.src[0].dtype.itemsize != u.dtype.itemsize

    def is_slice(self, u: UOp) -> bool:
        """Return whether a SHRINK is a contiguous piece of given storage, so that kernels can be handed just the piece.

        The rows that a loop reads one by one then run the same kernel, whatever their offsets. Storage that this
        schedule writes is left whole: reads and writes of it are compared by position.
        """
        if u.op is not Ops.SHRINK:
            return False
        found = self.slices.get(u)
        if found is None:
            base = u.base
            found = (
                is_stored(base)
                and base.device is not None
                and len(u.src) == 1
                and base.without_after not in self.written
                and all(isinstance(s, int) and s > 0 for s in u.shape)
                and 2 * numel(u) <= numel(base)
                and u.contiguous_view() is not None
            )
            self.slices[u] = found
        return found

    def leaf_value(self, request: Request) -> UOp:
        u, idxs, gate = request
        if u.op is Ops.CONST or (u.op is Ops.PARAM and u.is_variable) or u.is_bound_var:
            return u.src[0] if u.is_bound_var else u
        if u.op is Ops.SPECIAL:
            return idxs[0]
        stand_in = self.stand_in(u)
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
        u, idxs, gate = request
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

    # ---- storage

    def storage_node(self, u: UOp) -> UOp | None:
        """Return the node whose storage holds ``u`` unchanged (seen through RESHAPE and CONTIGUOUS), or None."""
        while u.op in (Ops.RESHAPE, Ops.CONTIGUOUS) and u not in self.stored:
            u = u.src[0]
        found = u in self.stored or is_stored(u) or u.op is Ops.COPY or self.resizes(u) or self.is_slice(u)
        return u if found else None

    def new_storage(self, u: UOp, device: Any) -> UOp:
        """Return a BUFFER for the value of ``u``, known by number within this schedule."""
        if device is None:  # a value of constants and ranges: it lives where the kernels run
            results_first = (n._device for n in reversed(self.order))
            device = next((d for d in results_first if isinstance(d, str) and runs_kernels(d)), None)
        dtype = strong_dtype(u.dtype)
        return UOp(Ops.BUFFER, dtype, (), ParamArg(next(self.storage_slots), dtype, (numel(u),), device, name="stored"))

    def stand_in(self, u: UOp) -> UOp:
        """Return the BUFFER that stands for a stored value (or state of storage) in kernels."""
        node = self.storage_node(u)
        assert node is not None, f"{u.op} has no storage"
        found = self.stand_ins.get(node)
        if found is not None:
            return found
        if self.is_slice(node):
            return self.view_stand_in(node)
        if node.op is Ops.BUFFER or node.op is Ops.PARAM:
            made, leaf = node, Leaf(node, node)
        elif node.op is Ops.AFTER:
            storage = self.leaves[self.stand_in(node.without_after)].storage
            arg = ParamArg(next(self.storage_slots), storage.dtype, storage.arg.shape, storage.arg.device, name="state")
            made, leaf = UOp(Ops.BUFFER, storage.dtype, (), arg), Leaf(storage, node)
        elif self.resizes(node):
            below = self.view_stand_in(node.src[0])
            made = self.new_storage(node, node.device).replace(tag=("bitcast", below))
            leaf = Leaf(made, node)
        else:
            made = self.new_storage(node, node.device)
            leaf = Leaf(made, node)
        self.stand_ins[node] = made
        self.leaves[made] = leaf
        return made

    def view_stand_in(self, u: UOp) -> UOp:
        """Return a BUFFER for a contiguous view: the whole storage, or a part of it known by offset."""
        node = self.storage_node(u)
        if node is not None and not self.is_slice(node):
            is_whole = not is_stored(node) or numel(u) == numel(node.without_after)
            if is_whole:
                return self.stand_in(u)
        view = u.contiguous_view()
        if view is None:
            raise RuntimeError(f"non-contiguous view is not supported here: shape {u.shape} on {u.device}; use .contiguous()")
        base = u
        while base.op in GroupOp.Movement or base.op in (Ops.DETACH, Ops.BITCAST, Ops.CONTIGUOUS):
            base = base.src[0]
        key = UOp(Ops.NOOP, u.dtype, (base,), ("view", view[1], numel(u)))
        if key not in self.stand_ins:
            below = self.stand_in(base)
            made = self.new_storage(u, u.device).replace(tag=("view", below, view[1]))
            self.stand_ins[key] = made
            self.leaves[made] = Leaf(made, base)
        return self.stand_ins[key]

    # ---- kernels

    def build(self) -> list[Kernel]:
        """Return the kernels in the order in which their values appear in the graph."""
        self.count_costs()
        self.mark_must()
        self.count_costs()  # now with what must be stored as plain loads
        self.collect_contexts()
        kernels: list[Kernel] = []
        for u in self.order:
            made: Kernel | None = None
            if u.op is Ops.COPY and not fills(u):
                made = Kernel("copy", u.arg, args=[self.stand_in(u), self.view_stand_in(u.src[0])], writes=[u])
            elif u.op is Ops.CALL:
                args = [self.view_stand_in(s) for s in u.src[1:]]
                made = Kernel("call", next(a.arg.device for a in args), args=args, writes=[u], body=u.src[0])
            elif u.op is Ops.STORE and not u.src[0].is_variable and not runs_kernels(u.src[0].device):
                pair = [self.view_stand_in(u.src[0]), self.view_stand_in(u.src[1])]
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
            target = self.stand_in(u)
            return StoreNest(target, flatten_index(u.shape, idxs), None, value.cast(target.dtype), kernel.ranges)
        value = self.value((u.src[1], idxs, None))
        view = u.src[0]
        if view.op is Ops.INDEX:
            at, *gates = [self.value((s, aligned(s, u.src[1].shape, idxs), None)) for s in view.src[1:]]
            target = self.target_stand_in(view.src[0])
            gate = gates[0] if gates else None
            at = at.cast(dtypes.weakint)
            return StoreNest(target, at, gate, value, kernel.ranges, serial=True, accumulate=u.arg is Ops.ADD)
        index, gate = idxs, None
        while view.op in GroupOp.Movement or view.op is Ops.DETACH:
            if view.op in GroupOp.Movement:
                index = apply_movement_op(view.op, view.src[0].shape, view.marg, index)
            view = view.src[0]
        return StoreNest(self.target_stand_in(view), flatten_index(view.shape, index), gate, value, kernel.ranges)

    def target_stand_in(self, base: UOp) -> UOp:
        """Return the storage that a STORE writes."""
        if not is_stored(base):
            raise RuntimeError(f"store: the target must be storage or a view of it, got {base.op}; call .contiguous() first")
        return self.leaves[self.stand_in(base.without_after)].storage


def fills(u: UOp) -> bool:
    """Return whether a COPY gives a value without a device (constants, arange) a place: a kernel computes it there."""
    return u.op is Ops.COPY and u.src[0].device is None


def aligned(s: UOp, shape: tuple[Any, ...], idxs: Idxs) -> Idxs:
    """Return the indices of an operand that is broadcast to ``shape``."""
    own = s.shape
    if own == shape:
        return idxs
    inner = idxs[len(shape) - len(own) :]
    return tuple(
        zero() if isinstance(size, int) and size == 1 else i for size, i in zip(own, inner, strict=True)
    )
