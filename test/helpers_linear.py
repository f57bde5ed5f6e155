"""Linear programs written by hand: one short word for each kind of node."""

from __future__ import annotations

from typing import Any

from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.records import KernelInfo, ParamArg


def param(slot: int, dtype: DType, size: int) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, dtype, (size,)))


def variable(name: str, dtype: DType = dtypes.int64) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(-1, dtype, (), name=name, vmin_vmax=(0, 100), addrspace=AddrSpace.ALU))


def const(value: Any, dtype: DType = dtypes.int64) -> UOp:
    return UOp(Ops.CONST, dtype, (), value)


def splat(x: UOp, n: int) -> UOp:
    return UOp(Ops.STACK, x.dtype, (x,) * n) if n > 1 else x


def iota(n: int) -> UOp:
    return UOp(Ops.STACK, dtypes.int64, tuple(const(i) for i in range(n)))


def loop(end: int | UOp, axis: int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp(Ops.RANGE, dtypes.int64, (const(end) if isinstance(end, int) else end,), (axis, kind))


def register(slot: int, dtype: DType, n: int = 1) -> UOp:
    return UOp(Ops.BUFFER, dtype, (), ParamArg(slot, dtype, (n,) if n > 1 else (), addrspace=AddrSpace.REG))


def at(buffer: UOp, index: UOp) -> UOp:
    return UOp(Ops.INDEX, buffer.dtype, (buffer, index))


def load(buffer: UOp, index: UOp, n: int | None = None, other: UOp | None = None, gate: UOp | None = None) -> UOp:
    return UOp(Ops.LOAD, buffer.dtype, (at(buffer, index),) if gate is None else (at(buffer, index), other, gate), n)


def store(target: UOp, value: UOp, gate: UOp | None = None) -> UOp:
    return UOp(Ops.STORE, dtypes.void, (target, value) if gate is None else (target, value, gate))


def read(reg: UOp, *after: UOp) -> UOp:
    return UOp(Ops.LOAD, reg.dtype, (UOp(Ops.AFTER, reg.dtype, (reg, *after)),))


def end(last: UOp, rng: UOp) -> UOp:
    return UOp(Ops.END, dtypes.void, (last, rng))


def add(x: UOp, y: UOp) -> UOp:
    return UOp(Ops.ADD, x.dtype, (x, y))


def mul(x: UOp, y: UOp) -> UOp:
    return UOp(Ops.MUL, x.dtype, (x, y))


def less(x: UOp, y: UOp) -> UOp:
    return UOp(Ops.CMPLT, dtypes.bool, (x, y))


def program(*statements: UOp, name: str = "kernel") -> list[UOp]:
    """Put statements, each behind what it needs, into a list."""
    order: dict[UOp, None] = {}
    for statement in statements:
        for node in statement.toposort(gate=lambda u: u not in order):
            order.setdefault(node)
    return [*order, UOp(Ops.SINK, dtypes.void, (statements[-1],), KernelInfo(name=name))]


def reduction(op: Ops, dtype: DType, n: int | UOp, size: int, start: Any, width: int = 1) -> list[UOp]:
    acc = register(0, dtype, width)
    begin = store(acc, splat(const(start, dtype), width))
    k = loop(n, 0, AxisType.REDUCE)
    value = load(param(1, dtype, size), mul(k, const(width)), width if width > 1 else None)
    step = store(acc, UOp(op, dtype, (read(acc, begin, k), value)))
    done = end(step, k)
    total = read(acc, done)
    if width > 1:
        total = UOp(Ops.REDUCE, dtype, (total,), (op, (0,)))
    return program(begin, done, store(at(param(0, dtype, 1), const(0)), total))
