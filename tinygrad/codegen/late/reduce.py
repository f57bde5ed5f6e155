"""Lower REDUCEs to accumulators in registers.

In:   REDUCEs that share their RANGEs and do not depend on each other.
Out:  one loop nest that updates all their accumulators; each REDUCE's value is read after it.
Why:  the number of accumulators and the order of the updates decide speed (latency is hidden by independent chains) and
      accuracy (several partial sums); both are fixed here, by sizes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.codegen.opt.tc import is_tile_arg
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import ParamArg, UOp, identity_element

if TYPE_CHECKING:
    from tinygrad.codegen.late.lower import Lowering
    from tinygrad.codegen.late.structure import Combo

MIN_CHAINS = 8  # independent accumulator chains that hide the latency of an addition


class _Accumulated:
    """One REDUCE on its way: which copies it has and how its value enters."""

    def __init__(self, low: Lowering, node: UOp, unroll: Combo) -> None:
        self.node = node
        self.op: Ops = node.arg[0]
        value = node.src[0]
        self.fused = (
            low.fuse
            and self.op is Ops.ADD
            and value.op is Ops.MUL
            and dtypes.is_float(value.dtype)
            and value not in low.vals
        )
        # The last source of a WMMA is where its sum starts; in its place the sum so far comes.
        self.is_dot = self.op is Ops.ADD and value.op is Ops.WMMA and value not in low.vals
        self.inputs = value.src[:2] if self.is_dot else value.src if self.fused else (value,)
        self.start = value.src[2] if self.is_dot else None
        for s in (*self.inputs, *((self.start,) if self.start is not None else ())):
            low.evaluate(s)
        self.copies = low.bits_of(low.mask[node] & low.copy_bits)
        self.cps = tuple(sorted((*self.copies, *unroll)))
        outputs = sum(1 for _ in low.combos(self.copies))
        copies = sum(1 for _ in low.combos(unroll))
        self.chains = min(copies, max(1, MIN_CHAINS // outputs))
        self.lanes = next((low.sizes[low.bit[r]] for r in node.src[1:] if r.arg[-1] is AxisType.VECTOR), 1)
        self.state: dict[tuple[Combo, int], UOp] = {}
        self.home: dict[tuple[Combo, int], UOp] = {}

    def update(self, low: Lowering, key: tuple[Combo, int], env: dict[int, int]) -> None:
        """Add one copy of the value to a chain."""
        values = low.values
        inputs = tuple(low.vals[s][tuple(env[i] for i in low.copies(s))] for s in self.inputs)
        inputs = tuple(values.splat(s, self.lanes) for s in inputs) if self.lanes > 1 else inputs
        before = self.state.get(key)
        dtype = self.node.dtype
        if self.is_dot:
            start = self.first(low, env) if before is None else before
            new = values.alu(Ops.WMMA, dtype, (*inputs, start), self.node.src[0].arg)
        elif before is None:
            new = values.alu(Ops.MUL, dtype, inputs) if self.fused else inputs[0]
        else:
            new = values.alu(
                Ops.MULACC if self.fused else self.op, dtype, (*inputs, before) if self.fused else (before, *inputs)
            )
        self.state[key] = new
        low.order.append(new)

    def load_ahead(self, low: Lowering) -> None:
        """Load the operands of all copies of a tile product first: what is late is waited for once, not for each."""
        if self.is_dot and is_tile_arg(self.node.src[0].arg):
            low.order.extend(operand for s in self.inputs for operand in low.vals[s].values())

    def first(self, low: Lowering, env: dict[int, int]) -> UOp:
        """Return what the accumulator of one copy starts with."""
        if self.start is None:
            value = low.values.const(identity_element(self.op, self.node.dtype), self.node.dtype)
        else:
            value = low.vals[self.start][tuple(env[i] for i in low.copies(self.start))]
        return low.values.splat(value, self.width(low))

    def width(self, low: Lowering) -> int:
        """Return the lanes of the accumulators."""
        widths = [low.values.width.get(v, 1) for s in self.inputs for v in low.vals[s].values()]
        return max(self.lanes, *widths)


def _open_accumulators(low: Lowering, acc: _Accumulated, outer: tuple[UOp, ...], loops: list[UOp]) -> None:
    """Make a register per copy and chain, set to where its sum starts in front of the loop, and read it inside."""
    values, dtype, width = low.values, acc.node.dtype, acc.width(low)
    for combo in low.combos(acc.copies):
        start = acc.first(low, dict(zip(acc.copies, combo, strict=True)))
        for chain in range(acc.chains):
            shape = () if width == 1 else (width,)
            register = UOp(Ops.BUFFER, dtype, (), ParamArg(next(low.slots), dtype, shape, addrspace=AddrSpace.REG))
            before = register.after(*outer)
            started = UOp(Ops.STORE, dtypes.void, (before, start))
            acc.home[combo, chain] = register
            inside = UOp(Ops.LOAD, dtype, (register.after(started, *loops),))
            if width > 1:
                values.width[inside] = width
            acc.state[combo, chain] = inside


def _close_accumulators(low: Lowering, group: list[_Accumulated], loops: list[UOp]) -> None:
    """Write the registers back at the end of the loop body, close the loops, and read the results."""
    stores = []
    for acc in group:
        for key, register in acc.home.items():
            stores.append(UOp(Ops.STORE, dtypes.void, (register, acc.state[key])))
    low.order.extend(stores)
    end = UOp.group(*stores)
    for r in reversed(loops):
        end = UOp(Ops.END, dtypes.void, (end, r))
    for acc in group:
        for key, register in acc.home.items():
            result = UOp(Ops.LOAD, register.dtype, (register.after(end),))
            if acc.state[key] in low.values.width:
                low.values.width[result] = low.values.width[acc.state[key]]
            acc.state[key] = result


def _combine(low: Lowering, acc: _Accumulated, combo: Combo) -> UOp:
    """Join the chains of one copy pairwise, then the lanes."""
    parts = [acc.state[combo, c] for c in range(acc.chains)]
    dtype = acc.node.dtype
    while len(parts) > 1:
        joined = [low.values.alu(acc.op, dtype, (a, b)) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[len(parts) & ~1 :]
    total = parts[0]
    if acc.lanes > 1:
        total = UOp(Ops.REDUCE, dtype, (total,), (acc.op, "lanes"))
    return total


def _share(low: Lowering, group: list[_Accumulated], r: UOp, outer_bits: int) -> None:
    """Combine the results of a work-group: every work-item writes its own to local memory, and all add them up."""
    values, size = low.values, r.src[0].arg
    item = low.evaluate(r)[()]
    outer = tuple(low.evaluate(low.ranges[i])[()] for i in low.bits_of(outer_bits & low.loop_bits))
    parts: list[tuple[_Accumulated, Combo, UOp]] = []
    written = []
    for acc in group:
        for combo, value in low.vals[acc.node].items():
            arg = ParamArg(next(low.slots), value.dtype, (size,), addrspace=AddrSpace.LOCAL)
            scratch = UOp(Ops.BUFFER, value.dtype, (), arg)
            place = UOp(Ops.INDEX, value.dtype, (scratch.after(*outer), item))
            written.append(UOp(Ops.STORE, dtypes.void, (place, value)))
            parts.append((acc, combo, scratch))
    ready = UOp(Ops.BARRIER, dtypes.void, tuple(written))
    end = values.index(size)
    loop = UOp(Ops.RANGE, values.index_dtype, (end, *outer[-1:]), (next(low.loop_ids), AxisType.REDUCE))
    registers, updates = [], []
    for acc, _, scratch in parts:
        dtype = acc.node.dtype
        register = UOp(Ops.BUFFER, dtype, (), ParamArg(next(low.slots), dtype, (), addrspace=AddrSpace.REG))
        identity = values.const(identity_element(acc.op, dtype), dtype)
        start = UOp(Ops.STORE, dtypes.void, (register.after(*outer), identity))
        place = UOp(Ops.INDEX, dtype, (scratch.after(ready, loop), loop))
        before = UOp(Ops.LOAD, dtype, (register.after(start, loop),))
        added = values.alu(acc.op, dtype, (before, UOp(Ops.LOAD, dtype, (place,))))
        updates.append(UOp(Ops.STORE, dtypes.void, (register, added)))
        registers.append(register)
    # The second barrier keeps a fast work-item from overwriting what a slow one still reads.
    done = UOp(Ops.BARRIER, dtypes.void, (UOp(Ops.END, dtypes.void, (UOp.group(*updates), loop)),))
    for (acc, combo, _), register in zip(parts, registers, strict=True):
        low.vals[acc.node][combo] = UOp(Ops.LOAD, register.dtype, (register.after(done),))


def lower_reduces(low: Lowering, nodes: list[UOp]) -> None:
    """Lower REDUCEs over the same ranges into one loop nest."""
    ranges = nodes[0].src[1:]
    outer_bits = _outer_bits(low, nodes)
    loops, elsewhere = _loops(low, ranges, outer_bits)
    unroll = low.bits_of(sum(1 << low.bit[r] for r in ranges) & low.copy_bits)
    group = [_Accumulated(low, node, unroll) for node in nodes]
    if loops:
        outer = tuple(low.evaluate(low.ranges[i])[()] for i in low.bits_of(outer_bits))
        for acc in group:
            _open_accumulators(low, acc, outer, loops)
    for acc in group:
        acc.load_ahead(low)
    for turn, copy in enumerate(low.combos(unroll)):
        for acc in group:
            env: dict[int, Any] = dict(zip(unroll, copy, strict=True))
            for combo in low.combos(acc.copies):
                env.update(zip(acc.copies, combo, strict=True))
                acc.update(low, (combo, turn % acc.chains), env)
    if loops:
        _close_accumulators(low, group, loops)
    for acc in group:
        low.vals[acc.node] = {combo: _combine(low, acc, combo) for combo in low.combos(acc.copies)}
    for r in ranges:
        if r.arg[-1] is AxisType.GROUP_REDUCE:
            _share(low, group, r, outer_bits)
    if elsewhere:
        low.forget(ranges)


def _loops(low: Lowering, ranges: tuple[UOp, ...], outer_bits: int) -> tuple[list[UOp], bool]:
    """Return the lowered loops of a group, and whether they are loops of its own.

    REDUCEs over the same ranges that sit at different depths cannot share loops: the later ones get loops of their own.
    """
    own = sorted((r for r in ranges if low.is_loop(r)), key=lambda r: low.depth.get(r, 0))
    around = [low.ranges[i] for i in low.bits_of(outer_bits)]
    above = max(around, key=lambda r: low.depth.get(r, 0), default=None)
    if not own or low.parent.get(own[0]) is above:
        return [low.evaluate(r)[()] for r in own], False
    low.forget(ranges)
    place = None if above is None else low.evaluate(above)[()]
    made: list[UOp] = []
    for r in own:
        end = low.evaluate(r.src[0])[()]
        src = (end,) if place is None else (end, place)
        place = UOp(Ops.RANGE, low.values.index_dtype, src, (next(low.loop_ids), r.arg[-1]))
        low.vals[r] = {(): place}
        made.append(place)
    return made, True


def _outer_bits(low: Lowering, nodes: list[UOp]) -> int:
    bits = 0
    for node in nodes:
        bits |= low.mask[node] & low.loop_bits
    return bits
