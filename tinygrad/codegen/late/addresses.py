"""Addresses of a kernel's accesses: scalar terms, a constant, a step per lane, the gate; and the access itself.

In:   INDEX nodes of an optimised kernel, whose terms were lowered; one combination of their copies at a time.
Out:  sums of index terms as scalars or vectors, gates, LOAD and STORE nodes at given places.
Why:  what kind of access fits is a question about these parts (memory.py); how each part becomes nodes is not.
"""

from __future__ import annotations

from typing import Any

from tinygrad.codegen.late.structure import Combo, Structure
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Addresses(Structure):
    """Places and gates of one kernel."""

    def evaluate(self, root: UOp) -> dict[Combo, UOp]:
        """Lower ``root`` and what it needs."""
        raise NotImplementedError

    def kids(self, u: UOp) -> tuple[UOp, ...]:
        """Return what must be lowered before ``u``."""
        raise NotImplementedError

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
        gate = (
            scalar
            if vector is None
            else vector
            if scalar is None
            else values.alu(Ops.AND, dtypes.bool, (vector, scalar))
        )
        if gate is None or (gate.op is Ops.CONST and gate.arg):
            return None
        lanes = values.const_lanes(gate)
        return None if lanes is not None and all(lanes) else gate

    def _offsets(self, step: int, vectors: list[tuple[int, UOp]], n: int) -> list[int] | None:
        """Return the distance of each lane from the first scalar term, if constants decide it."""
        offsets = [step * i for i in range(n)]
        for factor, vector in vectors:
            lanes = self.values.const_lanes(vector)
            if lanes is None:
                return None
            offsets = [o + factor * lane for o, lane in zip(offsets, lanes, strict=True)]
        return offsets

    def _active(self, gate: UOp | None, n: int) -> tuple[Any, ...]:
        lanes = None if gate is None else self.values.const_lanes(gate)
        return lanes or (True,) * n

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

    def _put(self, memory: UOp, idx: UOp, value: UOp, gate: UOp | None) -> UOp:
        src = (UOp(Ops.INDEX, memory.dtype, (memory, idx)), value)
        return self._made_store(UOp(Ops.STORE, dtypes.void, src if gate is None else (*src, gate)))

    def _made_store(self, store: UOp) -> UOp:
        self.order.append(store)
        return store
