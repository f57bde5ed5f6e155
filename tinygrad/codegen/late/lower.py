"""Lower one optimised kernel: copies, lanes, loads and stores, accumulators; everything but the order.

In:   a kernel SINK of scalar nodes whose RANGEs are typed (LOOP, REDUCE, UPCAST, UNROLL, VECTOR, ...).
Out:  a SINK of ENDs over loops, scalars and vectors with concrete dtypes (api of a linear program), still unordered,
      plus the nodes whose order matters for registers, in the order wanted.
Ops:  UPCAST and UNROLL ranges disappear: a node exists once per combination of those that it depends on. VECTOR ranges
      become lanes. REDUCE becomes register BUFFERs (reduce.py). weakint becomes the renderer's index dtype.
Why:  one pass that builds each final node once; nothing is exploded and found again.
"""

from __future__ import annotations

from typing import Any

from tinygrad.codegen.late.affine import is_sum
from tinygrad.codegen.late.memory import Memory
from tinygrad.codegen.late.reduce import lower_reduces
from tinygrad.codegen.late.structure import COPY_TYPES, GRID_TYPES, Combo, is_load, is_memory
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.record import replace
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

EFFECTS = frozenset({Ops.STORE, Ops.END, Ops.BARRIER})


class Lowering(Memory):
    """State of lowering one kernel.

    Args:
        sink: The optimised kernel.
        index_dtype: Dtype of index arithmetic.
        fuse: Whether products that are summed become MULACC.
        has_max: Whether the target has MAX.
    """

    def __init__(self, sink: UOp, index_dtype: Any, fuse: bool = False, has_max: bool = True) -> None:
        super().__init__(sink, index_dtype, has_max)
        self.fuse = fuse

    def run(self) -> UOp:
        """Lower everything; returns the new SINK."""
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
        ends: list[UOp] = []
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
        elif is_load(u):
            self.vals[u] = self._loads(u)
        elif op is Ops.REDUCE:
            raise RuntimeError("lower: REDUCE was not lowered before its users")
        else:
            cps = self.copies(u)
            make = self._maker(u)
            self.vals[u] = {combo: make(u, cps, combo) for combo in self.combos(cps)}

    def _maker(self, u: UOp) -> Any:
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
            small = all(s.vmin > -(1 << 30) and s.vmax < 1 << 30 for s in u.src)
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
            return UOp(
                Ops.PARAM, self.values.concrete(u.dtype), (), replace(arg, dtype=self.values.concrete(arg.dtype))
            )
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
