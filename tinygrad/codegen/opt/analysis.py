"""What the policies know of a kernel: which ranges each node depends on, and how each access moves through memory.

In:   a simplified kernel SINK.
Out:  ``Kernel``: accesses with their step per range, iteration counts, what vectorising each range would save.
Why:  policies choose by what an access costs, and the same facts serve all of them.
"""

from __future__ import annotations

import math

from tinygrad.codegen.late.affine import NEAR, affine
from tinygrad.codegen.late.structure import is_memory, set_bits
from tinygrad.dtype import dtypes
from tinygrad.record import field, record
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# Instructions of one scalar element.
_SLOW = {
    Ops.EXP2: 20,
    Ops.LOG2: 20,
    Ops.SIN: 80,
    Ops.POW: 60,
    Ops.RECIPROCAL: 4,
    Ops.FDIV: 4,
    Ops.SQRT: 5,
    Ops.THREEFRY: 100,
}
_INT_SLOW = frozenset({Ops.CDIV, Ops.CMOD, Ops.FLOORDIV, Ops.FLOORMOD})
_SYMBOLIC_SIZE = 64  # a guess for loops whose length is not known


@record
class Access:
    """One load or store: its step per range (None where it does not move linearly)."""

    node: UOp
    is_store: bool
    steps: dict[UOp, int]
    nonlinear: frozenset[UOp]
    gate_ranges: frozenset[UOp]
    ranges: frozenset[UOp] = field(default_factory=frozenset)

    @property
    def buffer(self) -> UOp:
        """The storage that is accessed."""
        return self.node.src[0].without_after

    def step(self, r: UOp) -> int | None:
        """Return the step along ``r``; None if it is not constant."""
        return None if r in self.nonlinear else self.steps.get(r, 0)


class Kernel:
    """Facts about one kernel.

    Args:
        sink: The kernel.
        mask: Open ranges of each node as bits over ``ranges`` (as in ``Schedule.mask``).
        ranges: Bit position of each RANGE.
    """

    def __init__(self, sink: UOp, mask: dict[UOp, int], ranges: dict[UOp, int]) -> None:
        self.sink, self.mask, self.bit = sink, mask, ranges
        self.ranges = list(ranges)
        self.nodes = list(mask)
        self.reduces = [u for u in self.nodes if u.op is Ops.REDUCE]
        self.ends = [u for u in self.nodes if u.op is Ops.END]
        self._sets: dict[int, frozenset[UOp]] = {}
        targets = {u.src[0] for u in self.nodes if u.op is Ops.STORE}
        # Kernels may have hundreds of loops side by side: what is asked per range must not look at all nodes.
        self.inside: dict[UOp, list[UOp]] = {r: [] for r in ranges}
        for u in self.nodes:
            for r in self.open(u):
                self.inside[r].append(u)
        self.accesses = [self._access(u, u in targets) for u in self.nodes if u.op is Ops.INDEX and is_memory(u.src[0])]

    def open(self, u: UOp) -> frozenset[UOp]:
        """Return the ranges that ``u`` depends on."""
        bits = self.mask[u]
        found = self._sets.get(bits)
        if found is None:
            found = self._sets[bits] = frozenset(self.ranges[i] for i in set_bits(bits))
        return found

    def _access(self, u: UOp, is_store: bool) -> Access:
        terms, _ = affine(u.src[1])
        steps = {t: f for t, f in terms.items() if t.op is Ops.RANGE}
        nonlinear = frozenset(r for t in terms if t.op is not Ops.RANGE for r in self.open(t))
        gates = self.open(u.src[2]) if len(u.src) > 2 else frozenset()
        return Access(u, is_store, steps, nonlinear, gates, self.open(u))

    def size(self, r: UOp) -> int:
        """Return the iterations of a range, a guess if they are not known."""
        end = r.src[0]
        return end.arg if end.op is Ops.CONST else _SYMBOLIC_SIZE

    def iterations(self, u: UOp) -> int:
        """Return how often ``u`` is computed."""
        return math.prod(self.size(r) for r in self.open(u))

    def cost(self, u: UOp) -> int:
        """Return the instructions of one scalar element of an arithmetic node; 0 for index arithmetic."""
        if u.op not in GroupOp.Elementwise or u.dtype is dtypes.weakint or (u.src and u.src[0].dtype is dtypes.weakint):
            return 0
        return 10 if u.op in _INT_SLOW else _SLOW.get(u.op, 1)

    def work(self) -> int:
        """Return the instructions of the whole kernel, run one element at a time."""
        total = 0
        for u in self.nodes:
            c = self.cost(u) + (u.op is Ops.REDUCE)
            if c:
                total += c * self.iterations(u.src[0] if u.op is Ops.REDUCE else u)
        return total + sum(self.iterations(a.node) for a in self.accesses)

    def lanes(self, r: UOp, vector_bytes: int) -> int:
        """Return the natural lane count along ``r``: a full vector of the widest value that depends on it."""
        widest = 1
        for u in self.inside[r]:
            if u.dtype.itemsize > widest and u.dtype not in dtypes.weaks and u.op is not Ops.PARAM:
                widest = u.dtype.itemsize
        return max(2, min(64, vector_bytes // widest))

    def _lane_cost(self, a: Access, r: UOp, per_lane: float) -> float:
        """Return the instructions per element of an access with lanes along ``r``."""
        step = a.step(r)
        if a.is_store and step != 1:
            return 2.0
        if step is None:
            return 3 * per_lane if self._is_pattern(a, r) else 2.5
        if step in (0, 1):
            return per_lane
        return 2 * per_lane if -NEAR <= step <= NEAR else 1.3

    def _is_pattern(self, a: Access, r: UOp) -> bool:
        """Whether lanes along ``r`` lie near each other: r is divided by small numbers, and its multiples are small."""
        terms, _ = affine(a.node.src[1])
        for t, factor in terms.items():
            if r not in self.open(t) or t is r:
                continue
            divides = t.op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD) and t.src[1].op is Ops.CONST
            if not divides or not 0 < t.src[1].arg <= 16 or abs(factor) > 16 or affine(t.src[0])[0].get(r) != 1:
                return False
        return True

    def benefit(self, r: UOp, vector_bytes: int) -> float:
        """Return how many scalar instructions lanes along ``r`` would save."""
        size = self.size(r)
        lanes = self.lanes(r, vector_bytes)
        per_lane = -(-size // lanes) / size  # vectors per element, partly filled ones included
        saved = 0.0
        for u in self.inside[r]:
            c = self.cost(u)
            if c:
                saved += c * (1 - per_lane) * self.iterations(u)
            if u.op is Ops.REDUCE:
                saved += self.iterations(u.src[0]) * (1 - per_lane)
        for u in self.reduces:
            if r in u.src[1:]:
                outer = self.iterations(u)
                inner = self.iterations(u.src[0]) if r in self.open(u.src[0]) else outer * size
                saved += inner * (1 - per_lane) - outer * 2 * lanes.bit_length()
        for a in self.accesses:
            if r not in a.ranges:
                continue
            cost = self._lane_cost(a, r, per_lane)
            step = a.step(r)
            if r in a.gate_ranges:
                cost += 0.5 * per_lane if step == 1 else 1
            saved += (1 - cost) * self.iterations(a.node)
        return saved
