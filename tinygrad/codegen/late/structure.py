"""The structure of a kernel that is being lowered: which ranges each node depends on, and how the loops nest.

In:   an optimised kernel SINK.
Out:  ``Structure``: per node its copies (UPCAST and UNROLL ranges), lanes (VECTOR ranges) and loops; the loop tree; the
      terms of index expressions, outer loops first; the table of lowered values.
Why:  lowering asks these questions for every node; they are answered once, before the first node is lowered.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tinygrad.codegen.late.affine import affine
from tinygrad.codegen.late.values import Values
from tinygrad.dtype import AddrSpace
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

COPY_TYPES = frozenset({AxisType.UPCAST, AxisType.UNROLL})
GRID_TYPES = frozenset({AxisType.GLOBAL, AxisType.LOCAL, AxisType.GROUP_REDUCE, AxisType.WARP})
Combo = tuple[int, ...]


def is_memory(u: UOp) -> bool:
    """Whether ``u`` is storage (possibly ordered after something)."""
    base = u.without_after
    return base.op is Ops.BUFFER or (base.op is Ops.PARAM and base.arg.addrspace is not AddrSpace.ALU)


def is_load(u: UOp) -> bool:
    """Whether ``u`` reads an element of storage: a LOAD, or an INDEX that is used as a value."""
    index = u.src[0] if u.op is Ops.LOAD else u
    return index.op is Ops.INDEX and is_memory(index.src[0])


def set_bits(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class Structure:
    """Ranges, loops and lowered values of one kernel.

    Args:
        sink: The optimised kernel.
        index_dtype: Dtype of index arithmetic.
        has_max: Whether the target has MAX.
    """

    def __init__(self, sink: UOp, index_dtype: Any, has_max: bool = True) -> None:
        self.sink = sink
        self.values = Values(index_dtype, has_max)
        self.nodes = list(sink.toposort())
        # Roots in program order: the linearizer numbers nodes along them.
        self.order: list[UOp] = []
        self.vals: dict[UOp, dict[Combo, UOp]] = {}
        self.ranges = sorted((u for u in self.nodes if u.op is Ops.RANGE), key=lambda r: r.arg[:-1])
        self.bit = {r: i for i, r in enumerate(self.ranges)}
        self.sizes = [
            r.src[0].arg if r.arg[-1] in COPY_TYPES or r.arg[-1] is AxisType.VECTOR else 0 for r in self.ranges
        ]
        self.mask = self._open_ranges()
        kinds = [r.arg[-1] for r in self.ranges]
        self.copy_bits = sum(1 << i for i, k in enumerate(kinds) if k in COPY_TYPES)
        self.lane_bits = sum(1 << i for i, k in enumerate(kinds) if k is AxisType.VECTOR)
        self.grid_bits = sum(1 << i for i, k in enumerate(kinds) if k in GRID_TYPES)
        self.loop_bits = ~(self.copy_bits | self.lane_bits | self.grid_bits) & ((1 << len(kinds)) - 1)
        self.lane_ranges = {r for r, k in zip(self.ranges, kinds, strict=True) if k is AxisType.VECTOR}
        self._bits: dict[int, Combo] = {}
        self._picks: dict[tuple[Combo, Combo], Combo] = {}
        self._affine: dict[UOp, tuple[list[tuple[UOp, int]], int]] = {}
        self._bases: dict[tuple[Any, ...], UOp] = {}
        self._windows: dict[UOp, dict[tuple[Any, ...], tuple[int, int]]] = {}
        self.parent, self.depth = self._loop_tree()
        self.slots = itertools.count(
            1 + max((u.arg.slot for u in self.nodes if u.op in (Ops.BUFFER, Ops.PARAM)), default=0)
        )
        self.loop_ids = itertools.count(1 + max((r.arg[0] for r in self.ranges), default=0))

    def _open_ranges(self) -> dict[UOp, int]:
        mask: dict[UOp, int] = {}
        for u in self.nodes:
            bits = 0
            for s in u.src:
                bits |= mask[s]
            if u.op is Ops.RANGE:
                bits |= 1 << self.bit[u]
            else:
                for r in u.ended_ranges:
                    bits &= ~(1 << self.bit[r])
            mask[u] = bits
        return mask

    def bits_of(self, mask: int) -> Combo:
        """Return the positions of the set bits."""
        found = self._bits.get(mask)
        if found is None:
            found = self._bits[mask] = tuple(set_bits(mask))
        return found

    def copies(self, u: UOp) -> Combo:
        """Return the ranges (as positions) of which ``u`` exists in copies."""
        return self.bits_of(self.mask[u] & self.copy_bits)

    def lanes(self, u: UOp) -> int:
        """Return how many lanes ``u`` has."""
        bits = self.mask[u] & self.lane_bits
        if not bits:
            return 1
        if bits & (bits - 1):
            raise RuntimeError(f"lower: a {u.op.name} depends on two VECTOR ranges; at most one is possible")
        return self.sizes[bits.bit_length() - 1]

    def combos(self, cps: Combo) -> Iterator[Combo]:
        """Yield all values of the given copy ranges, the last one fastest."""
        return itertools.product(*(range(self.sizes[i]) for i in cps))

    def pick(self, cps: Combo, sub: Combo) -> Combo:
        """Return where the entries of ``sub`` stand in ``cps``."""
        found = self._picks.get((cps, sub))
        if found is None:
            found = self._picks[cps, sub] = tuple(cps.index(i) for i in sub)
        return found

    def fetch(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        """Return the lowered ``u`` for the copies ``combo`` of the ranges ``cps``."""
        sub = self.bits_of(self.mask[u] & self.copy_bits)
        if sub == cps:
            return self.vals[u][combo]
        return self.vals[u][tuple(combo[i] for i in self.pick(cps, sub))]

    def _loop_tree(self) -> tuple[dict[UOp, UOp | None], dict[UOp, int]]:
        """Find which loop each loop sits in: ENDs nest in their order, REDUCEs sit as deep as what they depend on."""
        parent: dict[UOp, UOp | None] = {}
        depth: dict[UOp, int] = {}

        def nest(loops: list[UOp], outer: int) -> None:
            above = max((self.ranges[i] for i in self.bits_of(outer)), key=lambda r: depth.get(r, 0), default=None)
            for r in loops:
                if r not in parent:
                    around = above
                    while around is not None and around is not r:
                        around = parent.get(around)
                    if around is r:
                        raise RuntimeError(
                            f"lower: loop {r.arg} would have to run inside itself; its stores do not nest"
                        )
                    parent[r] = above
                    depth[r] = 1 + (depth.get(above, 0) if above is not None else 0)
                above = r

        for u in reversed(self.nodes):  # a nest inside another one needs that one's loops first
            if u.op is Ops.END:
                nest([r for r in u.src[1:] if self.is_loop(r)], self.mask[u] & self.loop_bits)
        for u in reversed(self.nodes):  # a REDUCE inside another one needs that one's loops first
            if u.op is Ops.REDUCE:
                nest([r for r in u.src[1:] if self.is_loop(r)], self._outer_loops(u))
        return parent, depth

    def _outer_loops(self, u: UOp) -> int:
        return self.mask[u] & self.loop_bits

    def is_loop(self, r: UOp) -> bool:
        """Whether a RANGE stays a loop."""
        return bool(self.loop_bits >> self.bit[r] & 1)

    def node_depth(self, u: UOp) -> int:
        """Return how deep in the loops ``u`` sits."""
        return max((self.depth.get(self.ranges[i], 0) for i in self.bits_of(self.mask[u] & self.loop_bits)), default=0)

    def affine(self, u: UOp) -> tuple[list[tuple[UOp, int]], int]:
        """Return the terms of an index expression, outer loops first, and its constant."""
        found = self._affine.get(u)
        if found is None:
            terms, const = affine(u)
            ordered = sorted(terms.items(), key=lambda tf: self.node_depth(tf[0]))
            found = self._affine[u] = (ordered, const)
        return found
