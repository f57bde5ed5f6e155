"""Lower index arithmetic, loads and stores: the right kind of access for every step that lanes take through memory.

In:   INDEX and STORE nodes of an optimised kernel, whose terms were lowered.
Out:  scalar, contiguous, gathered, collected or transposed LOADs; contiguous, woven, scattered, transposed or staged
      STOREs.
Why:  lanes that lie near each other are loaded as whole vectors and picked apart in registers, which costs a fraction
      of a gather. Lanes that lie far apart are transposed in registers where the copies of an access lie beside each
      other; else they are stored by a loop over scratch memory, which keeps kernels short.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from tinygrad.codegen.late.addresses import Addresses
from tinygrad.codegen.late.affine import NEAR
from tinygrad.codegen.late.structure import Combo
from tinygrad.codegen.late.transpose import block_lanes, columns_of, pieces_of, runs
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import ParamArg, UOp

MANY_SINGLES = 64  # lanes that are stored one by one before they go through scratch memory


@record(frozen=True)
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


class Memory(Addresses):
    """Accesses of one kernel."""

    def _store_kids(self, u: UOp) -> tuple[UOp, ...]:
        return (*self.kids(u.src[0]), *u.src[1:])

    def _loads(self, u: UOp) -> dict[Combo, UOp]:
        """Lower all copies of a load."""
        index = u.src[0] if u.op is Ops.LOAD else u
        cps = self.copies(u)
        made = self._transposed_loads(index, cps)
        return {c: made[c] if c in made else self._load(index, cps, c) for c in self.combos(cps)}

    def _transposed_loads(self, u: UOp, cps: Combo) -> dict[Combo, UOp]:
        """Load copies that lie beside each other, each with its lanes far apart, as pieces of rows; {} otherwise."""
        n, values = self.lanes(u), self.values
        if not cps or n < 2 or all(abs(f) <= NEAR for t, f in self.affine(u.src[1])[0] if t in self.lane_ranges):
            return {}
        groups: dict[tuple[Any, ...], dict[int, list[Combo]]] = {}
        for combo in self.combos(cps):
            scalars, const, step, vectors = self._terms(u.src[1], cps, combo)
            if vectors:
                return {}
            key = self.fetch(u.src[0], cps, combo), self._gate(u, cps, combo), step, *scalars
            groups.setdefault(key, {}).setdefault(const, []).append(combo)
        found: dict[Combo, UOp] = {}
        block = block_lanes(u.dtype, n)
        for (memory, gate, step, *scalars), combos in groups.items():
            places = sorted(combos)
            for start, count in runs(places, block):
                if count == 1:
                    continue
                pieces = []
                for lane in range(n):
                    own = None if gate is None else values.lane(gate, lane)
                    pieces.append(self._piece(memory, self._base(scalars, places[start] + step * lane), own, count))
                columns = columns_of(values, pieces, count, block)
                for place, column in zip(places[start : start + count], columns, strict=True):
                    found.update(dict.fromkeys(combos[place], column))
        return found

    def _piece(self, memory: UOp, place: UOp, gate: UOp | None, count: int) -> UOp:
        """Return a load of consecutive elements under a scalar gate, which may be constant."""
        if gate is None or gate.op is not Ops.CONST:
            return self._access(memory, place, gate, count)
        zeros = self.values.splat(self.values.const(0, memory.dtype), count)
        return self._access(memory, place, None, count) if gate.arg else zeros

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
        if offsets is not None:
            collected = self._collect(u, memory, scalars, [const + o for o in offsets], gate, n)
            if collected is not None:
                return collected
        if vectors or vector_gate:
            return self._access(memory, values.splat(self._vector_sum(scalars, const, step, vectors, n), n), gate, n)
        return values.stack(
            tuple(self._access(memory, self._base(scalars, const + step * i), gate, 1) for i in range(n))
        )

    def _window(self, u: UOp, scalars: list[tuple[int, UOp]], n: int) -> tuple[int, int]:
        """Return the first and last place that the copies of a load with these scalar terms touch, from their sum."""
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

    def _collect(
        self, u: UOp, memory: UOp, scalars: list[tuple[int, UOp]], places: list[int], gate: UOp | None, n: int
    ) -> UOp | None:
        """Load lanes that lie near each other in whole vectors, and pick them out; None if they lie too far apart.

        What lies between two elements that are read may be read too; the copies of a load share the vectors. Under
        gates they do not: what one copy may read says nothing about another one.
        """
        values = self.values
        active = self._active(gate, n)
        if n < 4 or not any(active):
            return None
        own = [place for place, on in zip(places, active, strict=True) if on]
        near = min(own), max(own)
        low, high = near if len(u.src) > 2 else self._window(u, scalars, n)
        span = high - low + 1
        if near[1] - near[0] >= 4 * n:
            return None
        open_gate = gate if gate is not None and values.const_lanes(gate) is None else None
        lane_gate = open_gate if open_gate in values.width else None
        if lane_gate is not None and len(set(places)) < n:
            return None
        scalar_gate = open_gate if lane_gate is None else None
        if span < n:
            mask = values.stack(tuple(values.const(i < span, dtypes.bool) for i in range(n)))
            wide_gate: UOp | None = (
                mask if scalar_gate is None else values.alu(Ops.AND, dtypes.bool, (mask, scalar_gate))
            )
            starts = [low]
        else:
            wide_gate = scalar_gate
            starts = [min(low + k * n, high + 1 - n) for k in range(-(-span // n))]
        parts: dict[int, UOp] = {}
        lanes = []
        for place, on in zip(places, active, strict=True):
            start = next(s for s in starts if s <= place < s + n) if on else starts[0]
            if start not in parts:
                read = wide_gate if lane_gate is None else self._wide_mask(lane_gate, [p - start for p in places])
                parts[start] = self._access(memory, self._base(scalars, start), read, n)
            lanes.append(values.lane(parts[start], place - start if on else 0))
        vector = values.stack(tuple(lanes))
        if all(active):
            return vector
        mask = values.stack(tuple(values.const(on, dtypes.bool) for on in active))
        return values.alu(Ops.WHERE, memory.dtype, (mask, vector, values.const(0, memory.dtype)))

    def _wide_mask(self, gate: UOp, places: list[int]) -> UOp:
        """Return the mask of a vector of which the lanes of a gate read the elements at ``places``, if it has them."""
        values, n = self.values, len(places)
        readers = dict(zip(places, range(n), strict=True))
        is_read = values.stack(tuple(values.const(i in readers, dtypes.bool) for i in range(n)))
        picked = values.stack(tuple(values.lane(gate, readers.get(i, 0)) for i in range(n)))
        return values.alu(Ops.AND, dtypes.bool, (picked, is_read))

    def _stores(self, u: UOp) -> dict[Combo, UOp]:
        """Lower all copies of a STORE."""
        cps = self.copies(u)
        if u.src[0].op is not Ops.INDEX:
            return {combo: self._store_register(u, cps, combo) for combo in self.combos(cps)}
        lane = self._strided_lane(u)
        if lane is None:
            targets = {combo: self._target(u, cps, combo) for combo in self.combos(cps)}
            woven = self._interleave(list(targets.values()))
            woven = self._transposed(list(targets.values())) if woven is None else woven
            return (
                dict.fromkeys(targets, woven) if woven is not None else {c: self._store(t) for c, t in targets.items()}
            )
        return dict.fromkeys(self.combos(cps), self._staged(u, lane))

    def _interleave(self, targets: list[_Target]) -> UOp | None:
        """Store copies that fill the gaps between each other's lanes as whole vectors; None if they do not."""
        step, n, values, gate = targets[0].step, targets[0].lanes, self.values, targets[0].gate
        active = self._active(gate, n)
        if gate is not None and values.const_lanes(gate) is None:
            return None
        groups: dict[tuple[Any, ...], list[_Target]] = {}
        for t in targets:
            if (
                t.step != step
                or t.vectors
                or t.gate is not targets[0].gate
                or not 2 <= step <= 4
                or t.lanes != n
                or n < 4
            ):
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

    def _transposed(self, targets: list[_Target]) -> UOp | None:
        """Store copies that lie beside each other, each with its lanes far apart, as whole vectors; None otherwise."""
        first = targets[0]
        if not first.is_strided or not self._transposable([t.const for t in targets], first.lanes):
            return None
        groups: dict[tuple[Any, ...], list[_Target]] = {}
        for t in targets:
            if (t.step, t.lanes, t.gate, t.vectors) != (first.step, first.lanes, first.gate, []):
                return None
            groups.setdefault((t.memory, *t.scalars), []).append(t)
        stores: list[UOp] = []
        for group in groups.values():
            group.sort(key=lambda t: t.const)
            block = block_lanes(group[0].value.dtype, first.lanes)
            for start, count in runs([t.const for t in group], block):
                stores += self._transposed_run(group[start : start + count], block)
        return UOp.group(*stores)

    def _transposable(self, places: list[int], lanes: int) -> bool:
        """Whether places, in any order, are mostly runs of at least four."""
        found = runs(sorted(places), lanes)
        return lanes >= 4 and sum(count for _, count in found if count >= 4) >= 0.6 * len(places)

    def _transposed_run(self, run: list[_Target], block: int) -> list[UOp]:
        """Store copies that lie beside each other; their number is a power of two."""
        values, n = self.values, run[0].lanes
        if len(run) < 2:
            return [self._store(t) for t in run]
        stores = []
        for lane, piece in enumerate(pieces_of(values, [values.splat(t.value, n) for t in run], block)):
            gate = None if run[0].gate is None else values.lane(values.splat(run[0].gate, n), lane)
            if gate is not None and gate.op is Ops.CONST:
                if not gate.arg:
                    continue
                gate = None
            place = self._base(run[0].scalars, run[0].const + run[0].step * lane)
            stores.append(self._put(run[0].memory, place, piece, gate))
        return stores

    def _strided_lane(self, u: UOp) -> UOp | None:
        """Return the lane range of a STORE of accumulated vectors that are best stored by a loop over lanes, or None.

        These are many lanes that lie apart in memory, unless the copies lie beside each other.
        """
        lane = next((self.ranges[i] for i in self.bits_of(self.mask[u] & self.lane_bits)), None)
        if lane is None or not u.src[1].op_in_backward_slice_with_self(Ops.REDUCE):
            return None
        steps, _ = self.affine(u.src[0].src[1])
        apart = all(factor != 1 for term, factor in steps if self.mask[term] >> self.bit[lane] & 1)
        many = math.prod(self.sizes[i] for i in self.copies(u)) * self.lanes(u) >= MANY_SINGLES
        return lane if apart and many and not self._is_tile(u, lane) else None

    def _is_tile(self, u: UOp, lane: UOp) -> bool:
        """Whether the copies of a STORE, with lanes that lie apart, make whole vectors when they change places."""
        index, copies = u.src[0], self.copies(u)
        steps, _ = self.affine(index.src[1])
        if len(u.src) > 2 or len(index.src) > 2:
            return False
        walk = dict(steps)
        inside = {self.ranges[i] for i in copies} | {lane}
        bits = sum(1 << self.bit[r] for r in inside)
        if any(self.mask[t] & bits and t not in inside for t in walk):
            return False
        offsets = [[i * walk.get(self.ranges[c], 0) for i in range(self.sizes[c])] for c in copies]
        return self._transposable([sum(places) for places in itertools.product(*offsets)], self.lanes(u))

    def _staged(self, u: UOp, lane: UOp) -> UOp:
        """Store vectors whose lanes lie apart.

        The accumulators go to scratch memory, and what is left runs in a loop over the lanes. Loading and storing lane
        by lane in line would make most of the kernel's code, and of the time to compile it.
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
                combo: UOp(
                    Ops.LOAD,
                    s.dtype,
                    (UOp(Ops.INDEX, s.dtype, (scratch.after(ready, loop), self._base([(1, loop)], i * n))),),
                )
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
            singles.append(
                self._put(t.memory, self._base(t.scalars, t.const + t.step * i), values.lane(value, i), lane_gate)
            )
        return UOp.group(*singles)
