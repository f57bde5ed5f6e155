"""Kernel ASTs for tests: an evaluator that follows the definition, and runners for compiled kernels.

In:   a kernel SINK and numpy arrays by PARAM slot.
Out:  the arrays as the kernel leaves them.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tinygrad.codegen.late.lower import is_memory
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
        self.order: dict[UOp, list[UOp]] = {}
        self.env: dict[UOp, int] = {}

    def value(self, root: UOp) -> Any:
        if root not in self.order:
            self.order[root] = list(root.toposort(gate=lambda u: u is root or u.op is not Ops.REDUCE or True))
        return self._eval(root)

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
        op, accumulator = u.arg[0], identity_element(u.arg[0], u.dtype)
        # float sums are computed in double: the kernels under test may add in any order
        dtype = dtypes.float64 if u.dtype in (dtypes.float32, dtypes.float16) else u.dtype
        for point in itertools.product(*(range(int(self._eval(r.src[0]))) for r in u.src[1:])):
            self.env.update(zip(u.src[1:], point, strict=True))
            accumulator = exec_alu(op, dtype, [accumulator, self._eval(u.src[0])])
        return truncate[u.dtype](accumulator)

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


def evaluate(sink: UOp, arrays: dict[int, np.ndarray], variables: dict[str, int] | None = None) -> dict[int, np.ndarray]:
    """Run a kernel AST by its definition, one element at a time; returns copies of the arrays."""
    out = {slot: a.copy() for slot, a in arrays.items()}
    for end in sink.src:
        _Evaluator(out, variables or {}).run(end)
    return out


def run_program(
    program: UOp, device: str, arrays: dict[int, np.ndarray], variables: dict[str, int] | None = None
) -> dict[int, np.ndarray]:
    """Run a compiled PROGRAM on a device; returns copies of the arrays."""
    from tinygrad.device import Device, TinyELF

    info = program.arg
    out = {slot: a.copy() for slot, a in arrays.items()}
    params = {u.arg.slot: u for u in program.src[1].src if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.GLOBAL}
    signature = [(f"data{s}", s, params[s].dtype, params[s].arg.shape) for s in info.globals]
    signature += [(v.arg.name, i, v.dtype, ()) for i, v in enumerate(info.vars)]
    run = Device[device].runtime(TinyELF(program.src[3].arg, info.function_name, info.target, signature))
    allocator = Device[device].allocator
    from tinygrad.device import BufferSpec

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
