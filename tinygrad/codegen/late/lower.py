"""Lower one optimised kernel: copies, lanes, loads and stores, accumulators; everything but the order.

In:   a kernel SINK of scalar nodes whose RANGEs are typed (LOOP, REDUCE, UPCAST, UNROLL, VECTOR, ...).
Out:  a SINK of ENDs over loops, scalars and vectors with concrete dtypes (api of a linear program), still unordered, plus
      the nodes whose order matters for registers, in the order wanted.
Ops:  UPCAST and UNROLL ranges disappear: a node exists once per combination of those that it depends on. VECTOR ranges
      become lanes. REDUCE becomes register BUFFERs (reduce.py). weakint becomes the renderer's index dtype.
Why:  one pass that builds each final node once; nothing is exploded and found again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tinygrad.codegen.late.affine import affine, is_sum
from tinygrad.codegen.late.values import Values
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import ParamArg, UOp

COPY_TYPES = frozenset({AxisType.UPCAST, AxisType.UNROLL})
GRID_TYPES = frozenset({AxisType.GLOBAL, AxisType.LOCAL, AxisType.GROUP_REDUCE, AxisType.WARP})
Combo = tuple[int, ...]
EFFECTS = frozenset({Ops.STORE, Ops.END, Ops.BARRIER})
MANY_SINGLES = 64  # lanes that are stored one by one before they go through scratch memory


def is_memory(u: UOp) -> bool:
    """Whether ``u`` is storage (possibly ordered after something)."""
    base = u.without_after
    return base.op is Ops.BUFFER or (base.op is Ops.PARAM and base.arg.addrspace is not AddrSpace.ALU)


@dataclass(frozen=True)
class _Target:
    """One copy of a store: where its lanes go and what they hold."""

    memory: UOp
    value: UOp
    gate: UOp | None
    scalars: list[tuple[int, UOp]]
    const: int
    step: int
    vectors: list[tuple[int, UOp]]
    lanes: int

    @property
    def is_strided(self) -> bool:
        """Whether the lanes lie apart at a constant distance."""
        return self.lanes > 1 and self.step not in (0, 1) and not self.vectors


def _up_to_reduces(root: UOp) -> list[UOp]:
    """Return the nodes below ``root``, not looking below REDUCEs."""
    found: dict[UOp, None] = {}
    stack = [root]
    while stack:
        u = stack.pop()
        if u not in found:
            found[u] = None
            if u.op is not Ops.REDUCE:
                stack.extend(u.src)
    return list(found)


class Lowering:
    """State of lowering one kernel.

    Args:
        sink: The optimised kernel.
        index_dtype: Dtype of index arithmetic.
        fuse: Whether products that are summed become MULACC.
        has_max: Whether the target has MAX.
    """

    def __init__(self, sink: UOp, index_dtype: Any, fuse: bool = False, has_max: bool = True) -> None:
        self.sink = sink
        self.fuse = fuse
        self.values = Values(index_dtype, has_max)
        self.nodes = list(sink.toposort())
        self.order: list[UOp] = []  # roots in program order: the linearizer numbers nodes along them
        self.vals: dict[UOp, dict[Combo, UOp]] = {}
        self.ranges = sorted((u for u in self.nodes if u.op is Ops.RANGE), key=lambda r: r.arg[:-1])
        self.bit = {r: i for i, r in enumerate(self.ranges)}
        self.sizes = [r.src[0].arg if r.arg[-1] in COPY_TYPES or r.arg[-1] is AxisType.VECTOR else 0 for r in self.ranges]
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
        self.slots = itertools.count(1 + max((u.arg.slot for u in self.nodes if u.op in (Ops.BUFFER, Ops.PARAM)), default=0))
        self.loop_ids = itertools.count(1 + max((r.arg[0] for r in self.ranges), default=0))

    # ---- structure

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
            found = self._bits[mask] = tuple(i for i in range(len(self.ranges)) if mask >> i & 1)
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
                        raise RuntimeError(f"lower: loop {r.arg} would have to run inside itself; its stores do not nest")
                    parent[r] = above
                    depth[r] = 1 + (depth.get(above, 0) if above is not None else 0)
                above = r

        for u in self.nodes:
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

    # ---- the pass

    def run(self) -> UOp:
        """Lower everything; returns the new SINK."""
        from tinygrad.codegen.late.reduce import lower_reduces

        level: dict[UOp, int] = {}
        effects: dict[tuple[Any, ...], list[UOp]] = {}
        for position, u in enumerate(self.nodes):
            below = max((level[s] for s in u.src), default=0)
            if u.op is Ops.REDUCE:
                # REDUCEs over the same ranges share a loop, unless one depends on the other.
                effects.setdefault((below, 0, u.src[1:], self._outer_loops(u)), []).append(u)
            elif u.op in EFFECTS:
                effects[below, 1, position] = [u]
            level[u] = below + (u.op is Ops.REDUCE or u.op in EFFECTS)
        for key in sorted(effects, key=lambda k: k[:2]):
            group = effects[key]
            if group[0].op is Ops.REDUCE:
                lower_reduces(self, group)
            else:
                self.evaluate(group[0])
        ends = []
        for root in self.sink.src:
            self.evaluate(root)
            ends.extend(dict.fromkeys(self.vals[root].values()))
        return UOp(Ops.SINK, dtypes.void, tuple(ends), self.sink.arg)

    def forget(self, ranges: tuple[UOp, ...]) -> None:
        """Drop what was lowered inside the loops ``ranges``: they will be lowered again, elsewhere."""
        bits = sum(1 << self.bit[r] for r in ranges)
        for u in [u for u in self.vals if u in self.mask and self.mask[u] & bits]:
            del self.vals[u]

    def kids(self, u: UOp) -> tuple[UOp, ...]:
        """Return what must be lowered before ``u``: sums are taken apart into their terms."""
        if u.op is Ops.INDEX and is_memory(u.src[0]):
            parts = tuple(u.src[2].split_uop(Ops.AND)) if len(u.src) > 2 else ()
            return (u.src[0], *(t for t, _ in self.affine(u.src[1])[0]), *parts)
        if is_sum(u):
            return tuple(t for t, _ in self.affine(u)[0])
        if u.op is Ops.CMPLT and u.src[0].dtype is dtypes.weakint:
            return (*(k for s in u.src if is_sum(s) for k in self.kids(s)), *u.src)
        if u.op is Ops.STORE and u.src[0].op is Ops.INDEX:
            return () if self._strided_lane(u) is not None else self._store_kids(u)
        if u.op is Ops.LOAD and u.src[0].op is Ops.INDEX:
            return (*self.kids(u.src[0]), *u.src[1:])
        if u.op is Ops.RANGE:
            above = self.parent.get(u)
            return u.src if above is None else (*u.src, above)
        return u.src

    def _store_kids(self, u: UOp) -> tuple[UOp, ...]:
        return (*self.kids(u.src[0]), *u.src[1:])

    def affine(self, u: UOp) -> tuple[list[tuple[UOp, int]], int]:
        """Return the terms of an index expression, outer loops first, and its constant."""
        found = self._affine.get(u)
        if found is None:
            terms, const = affine(u)
            ordered = sorted(terms.items(), key=lambda tf: self.node_depth(tf[0]))
            found = self._affine[u] = (ordered, const)
        return found

    def evaluate(self, root: UOp) -> dict[Combo, UOp]:
        """Lower ``root`` and what it needs; REDUCEs below it must have been lowered."""
        vals = self.vals
        if root in vals:
            return vals[root]
        stack = [root]
        while stack:
            u = stack[-1]
            if u in vals:
                stack.pop()
                continue
            missing = [k for k in self.kids(u) if k not in vals]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._build(u)
        return vals[root]

    def _build(self, u: UOp) -> None:
        op = u.op
        if op is Ops.RANGE:
            self.vals[u] = self._range(u)
        elif op is Ops.END:
            self.vals[u] = self._end(u)
        elif op is Ops.PARAM or op is Ops.BUFFER:
            self.vals[u] = {(): self._storage(u)}
        elif op is Ops.STORE:
            self.vals[u] = self._stores(u)
        elif op is Ops.REDUCE:
            raise RuntimeError("lower: REDUCE was not lowered before its users")
        else:
            cps = self.copies(u)
            make = self._maker(u)
            self.vals[u] = {combo: make(u, cps, combo) for combo in self.combos(cps)}

    def _maker(self, u: UOp) -> Any:
        if u.op is Ops.INDEX and is_memory(u.src[0]):
            return self._load
        if u.op is Ops.LOAD:
            return lambda _, cps, combo: self._load(u.src[0], cps, combo) if u.src[0].op is Ops.INDEX else self._plain(u, cps, combo)
        if is_sum(u):
            return self._sum
        if u.op is Ops.CONST:
            return lambda c, *_: self.values.const(c.arg, self.values.concrete(c.dtype))
        if u.op is Ops.CAST:
            return self._cast
        if u.op is Ops.CMPLT and u.src[0].dtype is dtypes.weakint and self.lanes(u) > 1:
            return self._compare
        if u.op in EFFECTS or u.op in (Ops.AFTER, Ops.GROUP, Ops.NOOP, Ops.SINK):
            return self._effect
        return self._plain

    def _plain(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        src = tuple(self.fetch(s, cps, combo) for s in u.src)
        return self.values.alu(u.op, self.values.concrete(u.dtype), src, u.arg)

    def _compare(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        """Compare indices. A bound on a lane is a bound on the lane's number: a constant vector against one scalar."""
        for side, other in ((0, 1), (1, 0)):
            lanes, bound = u.src[side], self.fetch(u.src[other], cps, combo)
            if bound in self.values.width or not (is_sum(lanes) or lanes in self.lane_ranges):
                continue
            scalars, const, step, vectors = self._terms(lanes, cps, combo)
            small = all(-(1 << 30) < s.vmin and s.vmax < 1 << 30 for s in u.src)
            if step and not vectors and scalars and small:
                room = self.values.alu(Ops.SUB, bound.dtype, (bound, self._base(scalars, 0)))
                if room.dtype is not dtypes.int32:
                    room = self.values.alu(Ops.CAST, dtypes.int32, (room,), dtypes.int32)
                numbers = self.values.iota(self.lanes(u), step, const, dtypes.int32)
                return self.values.alu(u.op, dtypes.bool, (numbers, room) if side == 0 else (room, numbers))
        return self._plain(u, cps, combo)

    def _cast(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        value, dtype = self.fetch(u.src[0], cps, combo), self.values.concrete(u.dtype)
        return value if value.dtype is dtype else self.values.alu(Ops.CAST, dtype, (value,), dtype)

    def _effect(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        src: list[UOp] = []
        for s in u.src:
            if self.copies(s) and not set(self.copies(s)) <= set(cps):
                src.extend(self.vals[s].values())
            else:
                src.append(self.fetch(s, cps, combo))
        return UOp(u.op, src[0].dtype if u.op is Ops.AFTER else dtypes.void, tuple(src), u.arg)

    def _range(self, u: UOp) -> dict[Combo, UOp]:
        kind = u.arg[-1]
        if kind in COPY_TYPES:
            return {(i,): self.values.index(i) for i in range(u.src[0].arg)}
        if kind is AxisType.VECTOR:
            return {(): self.values.iota(u.src[0].arg, 1, 0)}
        end = self.vals[u.src[0]][()]
        if kind in GRID_TYPES:
            return {(): UOp(Ops.SPECIAL, self.values.index_dtype, (end,), u.arg[1])}
        above = self.parent.get(u)
        deps = tuple(self.vals[s][()] for s in u.src[1:]) + ((self.vals[above][()],) if above is not None else ())
        return {(): UOp(Ops.RANGE, self.values.index_dtype, (end, *deps), (u.arg[0], kind))}

    def _storage(self, u: UOp) -> UOp:
        arg = u.arg
        if arg.addrspace is AddrSpace.ALU:
            return UOp(Ops.PARAM, self.values.concrete(u.dtype), (), replace(arg, dtype=self.values.concrete(arg.dtype)))
        if arg.addrspace is AddrSpace.REG:
            # One element is a register; several are indexed, which registers are not.
            size = arg.shape[0] if arg.shape else 1
            arg = replace(arg, shape=()) if size == 1 else replace(arg, addrspace=AddrSpace.LOCAL)
            return UOp(Ops.BUFFER, u.dtype, (), arg)
        return u

    def _end(self, u: UOp) -> dict[Combo, UOp]:
        body = tuple(dict.fromkeys(self.vals[u.src[0]].values()))
        if self.copies(u):
            raise RuntimeError(f"lower: END leaves copies of ranges {self.copies(u)} open")
        closed = UOp.group(*body)
        for r in sorted(u.src[1:], key=lambda r: -self.depth.get(r, 0)):  # innermost first
            if self.is_loop(r):
                self.evaluate(r)
                closed = UOp(Ops.END, dtypes.void, (closed, self.vals[r][()]))
        return {(): closed}

    # ---- index arithmetic and memory

    def _terms(self, u: UOp, cps: Combo, combo: Combo) -> tuple[list[tuple[int, UOp]], int, int, list[tuple[int, UOp]]]:
        """Return scalar terms, constant, step per lane and vector terms of an index expression, for one combination."""
        terms, const = self.affine(u)
        step = 0
        scalars: list[tuple[int, UOp]] = []
        vectors: list[tuple[int, UOp]] = []
        width = self.values.width
        for term, factor in terms:
            if term in self.lane_ranges:
                step += factor
                continue
            value = self.fetch(term, cps, combo)
            if value.op is Ops.CONST:
                const += factor * value.arg
            elif value in width:
                vectors.append((factor, value))
            else:
                scalars.append((factor, value))
        return scalars, const, step, vectors

    def _base(self, scalars: list[tuple[int, UOp]], const: int) -> UOp:
        """Return the scalar sum: loop-invariant parts first so that they hoist, the constant last so that it folds."""
        key = tuple(scalars)
        total = self._bases.get(key)
        if total is None and scalars:
            total = self.values.scaled(scalars[0][1], scalars[0][0])
            for factor, value in scalars[1:]:
                total = self.values.add(total, self.values.scaled(value, factor))
            self._bases[key] = total
        if total is None:
            return self.values.index(const)
        return self.values.add(total, self.values.index(const)) if const else total

    def _sum(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        scalars, const, step, vectors = self._terms(u, cps, combo)
        if not step and not vectors:
            return self._base(scalars, const)
        return self._vector_sum(scalars, const, step, vectors, self.lanes(u))

    def _vector_sum(self, scalars: Any, const: int, step: int, vectors: Any, n: int) -> UOp:
        total = self.values.iota(n, step, const)
        for factor, value in vectors:
            total = self.values.add(total, self.values.scaled(value, factor))
        return self.values.add(self._base(scalars, 0), total) if scalars else total

    def _gate(self, index: UOp, cps: Combo, combo: Combo) -> UOp | None:
        if len(index.src) < 3:
            return None
        # Conditions on scalars are joined before they meet those on lanes: a mask is made once.
        scalar: UOp | None = None
        vector: UOp | None = None
        values = self.values
        for part in index.src[2].split_uop(Ops.AND):
            value = self.fetch(part, cps, combo)
            if value in values.width:
                vector = value if vector is None else values.alu(Ops.AND, dtypes.bool, (vector, value))
            else:
                scalar = value if scalar is None else values.alu(Ops.AND, dtypes.bool, (scalar, value))
        gate = scalar if vector is None else vector if scalar is None else values.alu(Ops.AND, dtypes.bool, (vector, scalar))
        if gate is None or (gate.op is Ops.CONST and gate.arg):
            return None
        lanes = values.const_lanes(gate)
        return None if lanes is not None and all(lanes) else gate

    def _load(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        memory = self.fetch(u.src[0], cps, combo)
        if memory.without_after.arg.addrspace is AddrSpace.REG:
            return UOp(Ops.LOAD, memory.dtype, (memory,))
        gate = self._gate(u, cps, combo)
        scalars, const, step, vectors = self._terms(u.src[1], cps, combo)
        values, width = self.values, self.values.width
        vector_gate = gate is not None and gate in width
        if not step and not vectors and not vector_gate:
            return self._access(memory, self._base(scalars, const), gate, 1)
        n = self.lanes(u)
        offsets = self._offsets(step, vectors, n)
        if step == 1 and not vectors:
            return self._access(memory, self._base(scalars, const), gate, n)
        if offsets is not None and (not vector_gate or values.const_lanes(gate) is not None):
            collected = self._collect(u, memory, scalars, [const + o for o in offsets], gate, n)
            if collected is not None:
                return collected
        if vectors or vector_gate:
            return self._access(memory, values.splat(self._vector_sum(scalars, const, step, vectors, n), n), gate, n)
        return values.stack(tuple(self._access(memory, self._base(scalars, const + step * i), gate, 1) for i in range(n)))

    def _offsets(self, step: int, vectors: list[tuple[int, UOp]], n: int) -> list[int] | None:
        """Return the distance of each lane from the first scalar term, if constants decide it."""
        offsets = [step * i for i in range(n)]
        for factor, vector in vectors:
            lanes = self.values.const_lanes(vector)
            if lanes is None:
                return None
            offsets = [o + factor * lane for o, lane in zip(offsets, lanes, strict=True)]
        return offsets

    def _window(self, u: UOp, scalars: list[tuple[int, UOp]], n: int) -> tuple[int, int]:
        """Return the first and last place that the copies of a load with these scalar terms touch, from the terms' sum."""
        found = self._windows.get(u)
        if found is None:
            found = self._windows[u] = {}
            cps = self.copies(u)
            for combo in self.combos(cps):
                terms, const, step, vectors = self._terms(u.src[1], cps, combo)
                gate = self._gate(u, cps, combo)
                active = self._active(gate, n)
                offsets = [o for o, on in zip(self._offsets(step, vectors, n) or [], active, strict=False) if on]
                if offsets:
                    key = tuple(terms)
                    low, high = found.get(key, (const + offsets[0], const + offsets[0]))
                    found[key] = min(low, const + min(offsets)), max(high, const + max(offsets))
        return found.get(tuple(scalars), (0, 0))

    def _active(self, gate: UOp | None, n: int) -> tuple[Any, ...]:
        lanes = None if gate is None else self.values.const_lanes(gate)
        return lanes or (True,) * n

    def _collect(
        self, u: UOp, memory: UOp, scalars: list[tuple[int, UOp]], places: list[int], gate: UOp | None, n: int
    ) -> UOp | None:
        """Load lanes that lie near each other in whole vectors, and pick them out; None if they lie too far apart.

        What lies between two elements that are read may be read too; the copies of a load share the vectors.
        """
        values = self.values
        active = self._active(gate, n)
        low, high = self._window(u, scalars, n)
        span = high - low + 1
        if span > 4 * n or n < 4 or not any(active):
            return None
        scalar_gate = gate if gate is not None and values.const_lanes(gate) is None else None
        if span < n:
            mask = values.stack(tuple(values.const(i < span, dtypes.bool) for i in range(n)))
            wide_gate: UOp | None = mask if scalar_gate is None else values.alu(Ops.AND, dtypes.bool, (mask, scalar_gate))
            starts = [low]
        else:
            wide_gate = scalar_gate
            starts = [min(low + k * n, high + 1 - n) for k in range(-(-span // n))]
        parts: dict[int, UOp] = {}
        lanes = []
        for place, on in zip(places, active, strict=True):
            start = next(s for s in starts if s <= place < s + n) if on else starts[0]
            if start not in parts:
                parts[start] = self._access(memory, self._base(scalars, start), wide_gate, n)
            lanes.append(values.lane(parts[start], place - start if on else 0))
        vector = values.stack(tuple(lanes))
        if all(active):
            return vector
        mask = values.stack(tuple(values.const(on, dtypes.bool) for on in active))
        return values.alu(Ops.WHERE, memory.dtype, (mask, vector, values.const(0, memory.dtype)))

    def _access(self, memory: UOp, idx: UOp, gate: UOp | None, n: int) -> UOp:
        """Return a load of ``n`` elements from consecutive (scalar idx) or given (vector idx) places."""
        values = self.values
        gather = idx in values.width
        src: tuple[UOp, ...] = (UOp(Ops.INDEX, memory.dtype, (memory, idx)),)
        if gate is not None:
            src += (values.splat(values.const(0, memory.dtype), n), values.splat(gate, n) if gather else gate)
        made = UOp(Ops.LOAD, memory.dtype, src, n if n > 1 and not gather else None)
        if n > 1:
            values.width[made] = n
        return made

    def _stores(self, u: UOp) -> dict[Combo, UOp]:
        """Lower all copies of a STORE."""
        cps = self.copies(u)
        if u.src[0].op is not Ops.INDEX:
            return {combo: self._store_register(u, cps, combo) for combo in self.combos(cps)}
        lane = self._strided_lane(u)
        if lane is None:
            targets = {combo: self._target(u, cps, combo) for combo in self.combos(cps)}
            woven = self._interleave(list(targets.values()))
            return dict.fromkeys(targets, woven) if woven is not None else {c: self._store(t) for c, t in targets.items()}
        return dict.fromkeys(self.combos(cps), self._staged(u, lane))

    def _interleave(self, targets: list[_Target]) -> UOp | None:
        """Store copies that fill the gaps between each other's lanes as whole vectors; None if they do not."""
        step, n, values, gate = targets[0].step, targets[0].lanes, self.values, targets[0].gate
        active = self._active(gate, n)
        if gate is not None and values.const_lanes(gate) is None:
            return None
        groups: dict[tuple[Any, ...], list[_Target]] = {}
        for t in targets:
            if t.step != step or t.vectors or t.gate is not targets[0].gate or not 2 <= step <= 4 or t.lanes != n or n < 4:
                return None
            groups.setdefault((t.memory, *t.scalars, t.const // step), []).append(t)
        stores = []
        for group in groups.values():
            group.sort(key=lambda t: t.const)
            if [t.const - group[0].const for t in group] != list(range(step)):
                return None
            vectors = [values.splat(t.value, n) for t in group]
            for k in range(step):
                lanes = tuple(values.lane(vectors[e % step], e // step) for e in range(k * n, k * n + n))
                on = [active[e // step] for e in range(k * n, k * n + n)]
                mask = None if all(on) else values.stack(tuple(values.const(x, dtypes.bool) for x in on))
                place = self._base(group[0].scalars, group[0].const + k * n)
                if any(on):
                    stores.append(self._put(group[0].memory, place, values.stack(lanes), mask))
        return UOp.group(*stores)

    def _strided_lane(self, u: UOp) -> UOp | None:
        """Return the lane range of a STORE of accumulated vectors whose many lanes lie apart in memory, or None."""
        lane = next((self.ranges[i] for i in self.bits_of(self.mask[u] & self.lane_bits)), None)
        if lane is None or not u.src[1].op_in_backward_slice_with_self(Ops.REDUCE):
            return None
        steps, _ = self.affine(u.src[0].src[1])
        apart = all(factor != 1 for term, factor in steps if self.mask[term] >> self.bit[lane] & 1)
        many = math.prod(self.sizes[i] for i in self.copies(u)) * self.lanes(u) >= MANY_SINGLES
        return lane if apart and many else None

    def _staged(self, u: UOp, lane: UOp) -> UOp:
        """Store vectors whose lanes lie apart: the accumulators go to scratch memory, the rest runs in a loop over the lanes.

        Loading and storing lane by lane in line would make most of the kernel's code, and of the time to compile it.
        """
        values, n, bit = self.values, self.lanes(u), 1 << self.bit[lane]
        reduces = [s for s in _up_to_reduces(u) if s.op is Ops.REDUCE and self.mask[s] & bit]
        outer = [self.evaluate(r)[()] for r in self._loops_around(u)]
        written: list[UOp] = []
        places: list[tuple[UOp, UOp]] = []
        for s in reduces:
            arg = ParamArg(next(self.slots), s.dtype, (len(self.vals[s]) * n,), addrspace=AddrSpace.LOCAL)
            scratch = UOp(Ops.BUFFER, s.dtype, (), arg)
            for i, value in enumerate(self.vals[s].values()):
                written.append(self._put(scratch.after(*outer), values.index(i * n), values.splat(value, n), None))
            places.append((s, scratch))
        loop = UOp(Ops.RANGE, values.index_dtype, (values.index(n), *outer[-1:]), (next(self.loop_ids), AxisType.LOOP))
        saved = self.vals, self.lane_bits, self.loop_bits, self._affine, self.depth
        # From here on the lane range is an innermost loop, and what depends on it is lowered anew.
        self.vals = {s: v for s, v in self.vals.items() if not self.mask[s] & bit}
        self.vals[lane] = {(): loop}
        self.lane_bits, self.loop_bits = self.lane_bits & ~bit, self.loop_bits | bit
        self._affine, self.depth = {}, {**self.depth, lane: len(self.ranges) + 1}
        self.lane_ranges.discard(lane)
        ready = UOp.group(*written)
        for s, scratch in places:
            self.vals[s] = {
                combo: UOp(Ops.LOAD, s.dtype, (UOp(Ops.INDEX, s.dtype, (scratch.after(ready, loop), self._base([(1, loop)], i * n))),))
                for i, combo in enumerate(saved[0][s])
            }
        for k in self._store_kids(u):
            self.evaluate(k)
        cps = self.copies(u)
        stores = [self._store(self._target(u, cps, combo)) for combo in self.combos(cps)]
        self.vals, self.lane_bits, self.loop_bits, self._affine, self.depth = saved
        self.lane_ranges.add(lane)
        return UOp(Ops.END, dtypes.void, (UOp.group(*stores), loop))

    def _loops_around(self, u: UOp) -> list[UOp]:
        """Return the loops that ``u`` runs in, outermost first."""
        loops = [self.ranges[i] for i in self.bits_of(self.mask[u] & self.loop_bits)]
        return sorted(loops, key=lambda r: self.depth[r])

    def _store_register(self, u: UOp, cps: Combo, combo: Combo) -> UOp:
        return self._made_store(
            UOp(Ops.STORE, dtypes.void, (self.fetch(u.src[0], cps, combo), self.fetch(u.src[1], cps, combo)))
        )

    def _target(self, u: UOp, cps: Combo, combo: Combo) -> _Target:
        target, value = u.src[0], self.fetch(u.src[1], cps, combo)
        memory = self.fetch(target.src[0], cps, combo)
        gate = self._gate(target, cps, combo)
        if len(u.src) > 2:
            extra = self.fetch(u.src[2], cps, combo)
            gate = extra if gate is None else self.values.alu(Ops.AND, dtypes.bool, (gate, extra))
        width = self.values.width
        lanes = max(width.get(value, 1), width.get(gate, 1) if gate is not None else 1, self.lanes(target))
        return _Target(memory, value, gate, *self._terms(target.src[1], cps, combo), lanes)

    def _store(self, t: _Target) -> UOp:
        values, n = self.values, t.lanes
        if t.memory.without_after.arg.addrspace is AddrSpace.REG:
            return self._made_store(UOp(Ops.STORE, dtypes.void, (t.memory, t.value)))
        if n == 1:
            return self._put(t.memory, self._base(t.scalars, t.const), t.value, t.gate)
        value, gate = values.splat(t.value, n), None if t.gate is None else values.splat(t.gate, n)
        if t.step == 1 and not t.vectors:
            return self._put(t.memory, self._base(t.scalars, t.const), value, gate)
        if not t.is_strided:
            places = values.splat(self._vector_sum(t.scalars, t.const, t.step, t.vectors, n), n)
            return self._put(t.memory, places, value, gate)
        singles = []
        for i in range(n):
            lane_gate = None if gate is None else values.lane(gate, i)
            if lane_gate is not None and lane_gate.op is Ops.CONST:
                if not lane_gate.arg:
                    continue
                lane_gate = None
            singles.append(self._put(t.memory, self._base(t.scalars, t.const + t.step * i), values.lane(value, i), lane_gate))
        return UOp.group(*singles)

    def _put(self, memory: UOp, idx: UOp, value: UOp, gate: UOp | None) -> UOp:
        src = (UOp(Ops.INDEX, memory.dtype, (memory, idx)), value)
        return self._made_store(UOp(Ops.STORE, dtypes.void, src if gate is None else (*src, gate)))

    def _made_store(self, store: UOp) -> UOp:
        self.order.append(store)
        return store
