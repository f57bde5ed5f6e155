"""Kernel ASTs for tests: an evaluator that follows the definition, and runners for compiled kernels.

In:   a kernel SINK and numpy arrays by PARAM slot.
Out:  the arrays as the kernel leaves them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad.codegen.late.structure import is_memory
from tinygrad.dtype import AddrSpace, DType, dtypes, truncate
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp, exec_alu, identity_element


def param(slot: int, size: int, dtype: DType = dtypes.float32) -> UOp:
    """Return a kernel buffer."""
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, dtype, (size,)))


def loop(n: int | UOp, axis: int, kind: AxisType = AxisType.LOOP) -> UOp:
    """Return a RANGE."""
    return UOp.range(n, axis, kind)


def red(n: int | UOp, axis: int) -> UOp:
    """Return a reduce RANGE."""
    return UOp.range(n, axis, AxisType.REDUCE)


def at(buf: UOp, idx: UOp, gate: UOp | None = None) -> UOp:
    """Return INDEX(buf, idx[, gate])."""
    return UOp(Ops.INDEX, buf.dtype, (buf, idx) if gate is None else (buf, idx, gate))


def store(buf: UOp, idx: UOp, value: UOp, *ranges: UOp, gate: UOp | None = None) -> UOp:
    """Return END(STORE(INDEX(buf, idx[, gate]), value), *ranges)."""
    return at(buf, idx, gate).store(value).end(*ranges)


def kernel(*ends: UOp, opts: tuple[Any, ...] | None = None) -> UOp:
    """Return the SINK of a kernel."""
    return UOp(Ops.SINK, dtypes.void, ends, KernelInfo(opts_to_apply=opts))


class _Evaluator:
    def __init__(self, arrays: dict[int, np.ndarray], variables: dict[str, int]) -> None:
        self.arrays, self.variables = arrays, variables
        self.env: dict[UOp, int] = {}
        self.reduced: dict[tuple[Any, ...], Any] = {}

    def _eval(self, u: UOp) -> Any:
        match u.op:
            case Ops.CONST:
                return u.arg
            case Ops.RANGE:
                return self.env[u]
            case Ops.PARAM:
                return self.variables[u.arg.name]
            case Ops.INDEX if is_memory(u.src[0]):
                if len(u.src) > 2 and not self._eval(u.src[2]):
                    return u.dtype.const(0)
                idx = int(self._eval(u.src[1]))
                array = self.arrays[u.src[0].arg.slot]
                assert 0 <= idx < len(array), f"index {idx} of {len(array)}"
                return array[idx].item()
            case Ops.CAST:
                return _cast(self._eval(u.src[0]), u.dtype)
            case Ops.REDUCE:
                return self._reduce(u)
            case Ops.WHERE:
                return self._eval(u.src[1]) if self._eval(u.src[0]) else self._eval(u.src[2])
            case _:
                return exec_alu(u.op, u.dtype, [self._eval(s) for s in u.src])

    def _reduce(self, u: UOp) -> Any:
        key = (u, *(self.env[r] for r in u.ranges))
        if key in self.reduced:
            return self.reduced[key]
        op, accumulator = u.arg[0], identity_element(u.arg[0], u.dtype)
        # float sums are computed in double: the kernels under test may add in any order
        dtype = dtypes.float64 if u.dtype in (dtypes.float32, dtypes.float16) else u.dtype
        for point in itertools.product(*(range(int(self._eval(r.src[0]))) for r in u.src[1:])):
            self.env.update(zip(u.src[1:], point, strict=True))
            accumulator = exec_alu(op, dtype, [accumulator, self._eval(u.src[0])])
        self.reduced[key] = truncate[u.dtype](accumulator)
        return self.reduced[key]

    def run(self, end: UOp) -> None:
        ranges = end.src[1:] if end.op is Ops.END else ()
        stores = [s for s in (end.src[0] if end.op is Ops.END else end).toposort() if s.op is Ops.STORE]
        for point in itertools.product(*(range(int(self._eval(r.src[0]))) for r in ranges)):
            self.env.update(zip(ranges, point, strict=True))
            for s in stores:
                target = s.src[0]
                if len(target.src) < 3 or self._eval(target.src[2]):
                    idx = int(self._eval(target.src[1]))
                    array = self.arrays[target.src[0].arg.slot]
                    assert 0 <= idx < len(array), f"store at {idx} of {len(array)}"
                    array[idx] = self._eval(s.src[1])


def _cast(value: Any, dtype: DType) -> Any:
    if dtypes.is_int(dtype) and isinstance(value, float):
        return dtype.const(int(value)) if np.isfinite(value) else 0
    return truncate[dtype](dtype.const(value)) if dtype not in dtypes.weaks else dtype.const(value)


def evaluate(
    sink: UOp, arrays: dict[int, np.ndarray], variables: dict[str, int] | None = None
) -> dict[int, np.ndarray]:
    """Run a kernel AST by its definition, one element at a time; returns copies of the arrays."""
    out = {slot: a.copy() for slot, a in arrays.items()}
    for end in sink.src:
        _Evaluator(out, variables or {}).run(end)
    return out


def run_program(
    program: UOp, device: str, arrays: dict[int, np.ndarray], variables: dict[str, int] | None = None
) -> dict[int, np.ndarray]:
    """Run a compiled PROGRAM on a device; returns copies of the arrays."""
    from tinygrad.device import BufferSpec, Device, TinyELF

    info = program.arg
    out = {slot: a.copy() for slot, a in arrays.items()}
    params = {
        u.arg.slot: u for u in program.src[0].toposort() if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.GLOBAL
    }
    signature = [(f"data{s}", s, params[s].dtype, params[s].arg.shape) for s in info.globals]
    signature += [(v.arg.name, i, v.dtype, ()) for i, v in enumerate(info.vars)]
    run = Device[device].runtime(TinyELF(program.src[3].arg, info.function_name, info.target, signature))
    allocator = Device[device].allocator
    opaques = []
    for slot in info.globals:
        opaque = allocator._alloc(out[slot].nbytes, BufferSpec())
        allocator._copyin(opaque, memoryview(out[slot]).cast("B"))
        opaques.append(opaque)
    sizes, local = info.launch_dims(variables or {})
    run(*opaques, global_size=sizes, local_size=local, vals=info.vals(variables or {}), wait=True)
    for slot, opaque in zip(info.globals, opaques, strict=True):
        allocator._copyout(memoryview(out[slot]).cast("B"), opaque)
    return out


# ---- random kernels

_SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 16, 17)
_REDUCE_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 20)


def _index(value: int) -> UOp:
    return UOp.const(value, dtypes.weakint)


class RandomKernel:
    """Random kernel: loops; permuted, strided, reversed, divided and gated indices; nested reductions; several stores.

    Args:
        seed: The same seed gives the same kernel and the same input.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.arrays: dict[int, np.ndarray] = {}
        self.axis = itertools.count()
        self.slot = itertools.count(1)
        outs = [loop(self.rng.choice(_SIZES), next(self.axis)) for _ in range(self.rng.randint(0, 3))]
        self.ends = [self._end(outs)]
        if self.rng.random() < 0.3:
            own = [loop(self.rng.choice((1, 3, 4, 8)), next(self.axis)) for _ in range(self.rng.randint(1, 2))]
            self.ends.append(self._end(outs if self.rng.random() < 0.5 else own))

    def _buffer(self, size: int, dtype: DType = dtypes.float32) -> UOp:
        slot, size = next(self.slot), max(size, 1)
        if dtype is dtypes.float32:
            self.arrays[slot] = self.data.normal(size=size).astype(np.float32)
        else:
            self.arrays[slot] = self.data.integers(-5, 5, size=size).astype(np.int32)
        return param(slot, size, dtype)

    def _load(self, ranges: list[UOp], dtype: DType = dtypes.float32) -> UOp:
        rng = self.rng
        used = [r for r in ranges if rng.random() < 0.8]
        rng.shuffle(used)
        mode = rng.random()
        idx, size = _index(0), 1
        for r in reversed(used):
            n = r.src[0].arg
            walk = _index(n - 1) + r * -1 if rng.random() < 0.15 else r
            step = rng.choice((1, 1, 1, 2)) if mode < 0.3 else 1
            idx, size = idx + walk * (size * step), size * n * step
        if mode > 0.85 and used:
            idx = UOp(rng.choice((Ops.FLOORDIV, Ops.FLOORMOD)), None, (idx, _index(rng.choice((2, 3, 4)))))
        gate = None
        if used and rng.random() < 0.3:
            idx = idx + _index(-rng.randint(1, 3))
            gate = _index(-1) < idx
            if rng.random() < 0.5:
                gate = UOp(Ops.AND, None, (gate, used[0] < _index(max(1, used[0].src[0].arg - 1))))
        return at(self._buffer(size, dtype), idx, gate)

    def _value(self, ranges: list[UOp], depth: int) -> UOp:
        rng, f32 = self.rng, dtypes.float32
        kind = rng.random()
        if depth == 0 or kind < 0.25:
            return self._load(ranges)
        if kind < 0.35:
            return UOp(Ops.CAST, f32, (self._load(ranges, dtypes.int32),), f32)
        if kind < 0.42 and ranges:
            return UOp(Ops.CAST, f32, (rng.choice(ranges) * 2 + 1,), f32)
        if kind < 0.5:
            test = UOp(Ops.CMPLT, None, (self._value(ranges, depth - 1), UOp.const(0.1, f32)))
            return UOp(Ops.WHERE, f32, (test, self._value(ranges, depth - 1), self._value(ranges, depth - 1)))
        if kind < 0.75:
            operands = self._value(ranges, depth - 1), self._value(ranges, depth - 1)
            return UOp(rng.choice((Ops.ADD, Ops.MUL, Ops.MAX)), f32, operands)
        own = [red(rng.choice(_REDUCE_SIZES), next(self.axis)) for _ in range(rng.randint(1, 2))]
        outer = ranges if rng.random() < 0.7 else ranges[: len(ranges) // 2]
        inner = outer + own
        product = UOp(Ops.MUL, f32, (self._load(inner), self._load(inner)))
        value = self._value(inner, depth - 1) if rng.random() < 0.5 else product
        return value.reduce(*own, arg=rng.choice((Ops.ADD, Ops.ADD, Ops.MAX)))

    def _end(self, ranges: list[UOp]) -> UOp:
        order = list(ranges)
        if self.rng.random() < 0.4:
            self.rng.shuffle(order)
        idx, size = _index(0), 1
        for r in reversed(order):
            idx, size = idx + r * size, size * r.src[0].arg
        return store(self._buffer(size), idx, self._value(list(ranges), self.rng.randint(0, 3)), *ranges)

    def steps(self, schedule: Any, kinds: Sequence[Any], opt: Any, error: type[Exception]) -> tuple[Any, ...]:
        """Return random optimisation steps that fit the kernel."""
        done = []
        for _ in range(self.rng.randint(0, 6)):
            axes = max(0, len(schedule.axes) - 1)
            kind, axis, arg = self.rng.choice(kinds), self.rng.randint(0, axes), self.rng.choice((0, 2, 3, 4, 8))
            step = opt(kind, axis, self.rng.randint(0, axes) if kind.name in ("SWAP", "MERGE") else arg)
            try:
                schedule.apply(step)
            except error:
                continue
            done.append(step)
        return tuple(done)
