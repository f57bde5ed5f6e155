"""Decide which values of a graph get storage.

In:   the prepared graph; later, for one node after the other, the contexts (kernel, index expressions) that read it.
Out:  ``must``: what is stored whatever it costs. ``decide``: whether a node is stored or computed where it is used.
Why:  what has to be memory (results, arguments of calls, the two sides of a copy) is known before any kernel is; the
      rest depends on who reads it, and the cost model of ``fusion`` says which of the two is cheaper.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.fusion import (
    Cost,
    fits_as_row,
    node_cost,
    reduce_terms,
    rounds_by_order,
    too_big,
    with_shared_nodes,
    worth_storing,
    worth_storing_operand,
)
from tinygrad.schedule.gather import Gather, match_gather
from tinygrad.schedule.indexing import Idxs, apply_movement_op, steps, zero
from tinygrad.schedule.prepare import is_stored, numel, runs_kernels
from tinygrad.schedule.split import contraction_operands, is_contraction, widens_late
from tinygrad.schedule.stand_ins import StandIns, resizes
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.views import is_own_copy

SMALL_NESTED = 65536  # elements below which a reduction may run inside the loop of another one
# Contractions for which slabs of a padded image are copied: multiply-adds, filters that pass over it, places where they
# are applied, taps of a window along one axis at most, and bytes of the rows that one window reads at most.
MIN_WORK, MIN_FILTERS, MIN_PLACES, MAX_TAPS, SLAB_BYTES = 1 << 18, 32, 64, 16, 512 << 10
CHEAP_INDEX = 4  # operations of a lookup's index that are not worth storing it


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


Context: TypeAlias = tuple[KernelContext, Idxs, "UOp | None"]  # a kernel reads at these indices where the gate holds


def fills(u: UOp) -> bool:
    """Return whether a COPY gives a value without a device (constants, arange) a place: a kernel computes it there."""
    return u.op is Ops.COPY and u.src[0].device is None


def stored_operands(u: UOp) -> tuple[UOp, ...]:
    """Return the nodes that have to be one array in memory for ``u`` (itself, where its own value has to be)."""
    match u.op:
        case Ops.CONTIGUOUS:
            return (u,)
        case Ops.COPY:
            return (u,) if fills(u) else (u.src[0],)
        case Ops.BITCAST if resizes(u):
            return (u.src[0],)
        case Ops.CALL:
            return u.src[1:]
        case Ops.STORE if not runs_kernels(u.src[0].device):
            return (u.src[1],)
        case _:
            return ()


def _places_read(reduce: UOp, factor: UOp, pad: UOp) -> Idxs | None:
    """Return where a contraction reads what a PAD of its factor makes, in loops; None if sizes are not known."""
    if factor.ndim != reduce.src[0].ndim or not all(isinstance(s, int) for s in factor.shape):
        return None
    kinds = [AxisType.REDUCE if n in reduce.arg[1] else AxisType.LOOP for n in range(factor.ndim)]
    idxs: Idxs = tuple(
        UOp.range(s, n, kind) if s > 1 else zero() for n, (s, kind) in enumerate(zip(factor.shape, kinds, strict=True))
    )
    u = factor
    while u is not pad:
        idxs = apply_movement_op(u.op, u.src[0].shape, u.marg, idxs)
        u = u.src[0]
    return idxs


def pads_unread(reduce: UOp, factor: UOp, pad: UOp) -> bool:
    """Return whether a contraction reads nothing of what a PAD of its factor adds.

    So it is with windows whose steps are longer than they are, where the last step leaves the image.
    """
    idxs, src = _places_read(reduce, factor, pad), pad.src[0]
    if idxs is None or not all(isinstance(s, int) for s in src.shape):
        return False
    read = [i.simplify() for i in idxs]
    places = zip(read, src.shape, pad.marg, strict=True)
    return all(before <= i.vmin and i.vmax < before + size for i, size, (before, _) in places)


def _padded_ranges(reduce: UOp, factor: UOp, pad: UOp) -> list[tuple[dict[UOp, int], UOp, UOp]] | None:
    """Return for each axis that a PAD of a contraction's factor makes longer how an output loop and one over taps move.

    Each is (steps, output loop, loop over taps); None if an axis is read in another way.
    """
    axes = [n for n, amounts in enumerate(pad.marg) if amounts != (0, 0)]
    idxs = _places_read(reduce, factor, pad)
    if idxs is None:
        return None
    found = []
    for axis in axes:
        terms = steps(idxs[axis]) or {}
        taps = [r for r in terms if r.arg[-1] is AxisType.REDUCE]
        rest = [r for r in terms if r.arg[-1] is not AxisType.REDUCE]
        if len(taps) != 1 or len(rest) != 1 or terms[taps[0]] < 1 or taps[0].vmax > rest[0].vmax:
            return None
        found.append((terms, rest[0], taps[0]))
    return found


def pads_taps(reduce: UOp, factor: UOp, pad: UOp) -> bool:
    """Return whether only some of a window's taps read what a PAD of a contraction's factor adds.

    The kernel leaves such taps out: the loop over the taps of a window runs over those inside. That takes an output
    loop around it that stays a loop, which the one over the last axis does not.
    """
    return pad.marg[-1] == (0, 0) and bool(_padded_ranges(reduce, factor, pad))


def pads_windows(reduce: UOp, factor: UOp, pad: UOp) -> bool:
    """Return whether the kernel of a contraction adds the zeros of a PAD where it copies slabs of its factor.

    That is so for windows that move by one and have few taps, over which so many filters pass that copying takes no
    time, if the rows of a window fit a slab (``codegen/opt/slabs.py``).
    """
    whole, mine = reduce.src[0].shape, factor.shape
    if len(whole) != len(mine) or not all(isinstance(n, int) for n in whole) or pad.marg[-1] == (0, 0):
        return False
    filters = prod(tuple([n for n, m in zip(whole, mine, strict=True) if m == 1]))
    places = prod(tuple([m for n, m in enumerate(mine) if n not in reduce.arg[1]]))
    if (
        filters < MIN_FILTERS
        or places < MIN_PLACES
        or prod(whole) < MIN_WORK
        or _first_pad(factor) is not pad
        or pad.base.op is Ops.CONST
    ):
        return False
    found = _padded_ranges(reduce, factor, pad)
    if not found or any(terms[rows] != 1 or taps.vmax >= MAX_TAPS for terms, rows, taps in found):
        return False
    _, columns, taps = found[-1]
    others = prod(tuple([mine[n] for n in reduce.arg[1]])) // (taps.vmax + 1)
    width = columns.vmax + taps.vmax + 1
    return bool(others * width * pad.dtype.itemsize <= SLAB_BYTES)


def _first_pad(factor: UOp) -> UOp:
    while factor.op is not Ops.PAD:
        factor = factor.src[0]
    return factor


def pads_in_kernel(reduce: UOp, factor: UOp, pad: UOp) -> bool:
    """Return whether the kernel of a contraction needs no memory for what a PAD of a factor adds."""
    found = pads_unread, pads_taps, pads_windows
    return any(is_free(reduce, factor, pad) for is_free in found)


class Bufferizer:
    """The decisions on one graph.

    Args:
        sink: The prepared graph.
        order: Its nodes, sources first.
        stand_ins: Knows which nodes have storage already.
    """

    def __init__(self, sink: UOp, order: list[UOp], stand_ins: StandIns) -> None:
        self.sink, self.order, self.stand_ins = sink, order, stand_ins
        kept_on = {u._device for u in order if u.op in (Ops.BUFFER, Ops.COPY)}
        self.is_alone = sum(runs_kernels(device) for device in kept_on) < 2
        self.must: dict[UOp, None] = {}
        self.gathers: dict[UOp, Gather] = {}
        self.costs: dict[UOp, Cost] = {}  # of computing a node itself
        self.seen_costs: dict[UOp, Cost] = {}  # as its users see it: a node that will likely be stored is one load
        self.count_costs()
        self.mark_must()
        self.count_costs()  # now with what must be stored as plain loads

    def needs_storage(self, u: UOp) -> UOp | None:
        """Return the node that has to be stored so that ``u`` is one array; None if it is (a view of) storage."""
        while u.op is Ops.RESHAPE:
            u = u.src[0]
        if is_own_copy(u):
            return u
        if u.op is Ops.CONTIGUOUS and u.src[0].op not in GroupOp.Movement and u.src[0].base.op is not Ops.CONST:
            u = u.src[0]
        if fills(u):
            return u
        is_view = is_stored(u) or u.op is Ops.COPY or resizes(u) or u.contiguous_view() is not None
        return None if is_view else u

    def mark_must(self) -> None:
        """Mark what has to be stored whatever it costs."""
        for root in self.sink.src:
            if root.dtype is not dtypes.void and not root.is_virtual:
                if is_stored(root.base) and root.op is not Ops.CONTIGUOUS:
                    continue  # a view of storage, contiguous or not, is as good as realized
                self.add_must(self.needs_storage(root))
        for u in self.order:
            if u.op is Ops.REDUCE:
                self.mark_read_by_reduce(u)
            else:
                for operand in stored_operands(u):
                    self.add_must(self.needs_storage(operand))

    def mark_read_by_reduce(self, u: UOp) -> None:
        """Mark what a lookup or a contraction would compute anew for every use."""
        gather = match_gather(u)
        if gather is not None:
            self.gathers[u] = gather
            # One that has no device cannot be stored in one place for kernels on several.
            readable = self.is_alone or gather.index.device is not None
            if self.costs[gather.index].ops > CHEAP_INDEX and readable:
                self.add_must(self.needs_storage(gather.index))
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
            while u.op in GroupOp.Movement and (u.op is not Ops.PAD or pads_in_kernel(reduce, factor, u)):
                u = u.src[0]
            if is_stored(u) or u.op in (Ops.CONST, Ops.SPECIAL, Ops.COPY, Ops.CONTIGUOUS) or u.device is None:
                continue
            if u.op is Ops.REDUCE and not self.is_tiny(u):
                continue  # it is decided elsewhere; a tiny one, such as a 2x2 pooling, is elementwise code
            if widens_late(reduce, u):
                continue
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
            if is_stored(u) or u.op in (Ops.COPY, Ops.CONTIGUOUS, Ops.INDEX) or self.stand_ins.is_slice(u):
                self.costs[u] = seen[u] = Cost(frozenset({u}))
                continue
            if u.op in (Ops.CONST, Ops.SPECIAL, Ops.STORE):
                self.costs[u] = seen[u] = Cost()
                continue
            cost = self.costs[u] = seen[u] = with_shared_nodes(u, node_cost(u, seen), seen)
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

    def fuses(self, reduce: UOp, context: Context) -> bool:
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

    def decide(self, u: UOp, found: Collection[Context]) -> bool:
        """Return whether a value node that is read in the contexts ``found`` is stored."""
        if u in self.must:
            return True
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
        # Two loops may add in different orders. A value is one value: its maximum has to be equal to one element.
        return rounds_by_order(u) or self.ends_reduce(u) or worth_storing(u, self.costs[u], len(found))
