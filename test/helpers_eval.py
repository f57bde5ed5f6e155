"""A numpy interpreter of tensor graphs: what a graph means, without scheduler and code generator.

In:   a node of a tensor graph, or a tensor.
Out:  its value as a numpy array (bfloat16 and fp8 as float32). Floats are computed in float64 and rounded to their
      dtype after every node, so results are at least as accurate as those of a device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad.dtype import DType, _to_np_dtype, dtypes, strong_dtype
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def np_dtype(dtype: DType) -> Any:
    return _to_np_dtype(strong_dtype(dtype))


def evaluate(x: Any, params: dict[int, Any] | None = None) -> np.ndarray:
    """Return the value of a tensor or node. ``params`` gives values for PARAM slots."""
    root = x.uop if hasattr(x, "uop") else x
    with np.errstate(all="ignore"):
        return _walk(root, params or {})


def _walk(root: UOp, params: dict[int, Any]) -> Any:
    values: dict[UOp, Any] = {}
    for u in root.toposort(enter_calls=False):
        values[u] = _value(u, values, params)
    return values[root]


def _size(x: Any) -> int:
    return int(x) if isinstance(x, int) else int(_walk(x, {}))


def _marg(u: UOp) -> tuple:
    def fill(x: Any) -> Any:
        return tuple(fill(y) for y in x) if isinstance(x, tuple) else x if isinstance(x, bool) else _size(x)

    return tuple(fill(x) for x in u.marg)


def _value(u: UOp, values: dict[UOp, Any], params: dict[int, Any]) -> Any:  # noqa: C901  one case per op
    src = [values.get(s) for s in u.src]
    match u.op:
        case Ops.CONST:
            return np.array(u.arg, np_dtype(u.dtype))
        case Ops.BUFFER:
            return buffer_value(u)
        case Ops.PARAM if u.is_variable:
            raise RuntimeError(f"unbound Variable {u.expr}")
        case Ops.PARAM:
            return params[u.arg.slot]
        case Ops.SPECIAL:
            return np.arange(_size(u.src[0]), dtype=np_dtype(u.dtype))
        case Ops.CAST:
            return cast(src[0], u.src[0].dtype, u.dtype)
        case Ops.BITCAST:
            return np.ascontiguousarray(src[0]).view(np_dtype(u.dtype))
        case Ops.STORE:
            return src[1]
        case Ops.AFTER:
            return _after(u, values)
        case Ops.REDUCE:
            return _reduce(u, src[0])
        case Ops.COPY | Ops.CONTIGUOUS | Ops.CONTIGUOUS_BACKWARD | Ops.DETACH | Ops.NOOP:
            return src[0]
        case Ops.TUPLE:
            return src
        case Ops.FUNCTION:
            return _walk(u.src[0], {i: values[a] for i, a in enumerate(u.src[1:])})
        case Ops.GETTUPLE:
            return values[u.src[0]][u.arg]
        case Ops.STACK:
            return np.stack(src)
        case Ops.SINK:
            return src
    if u.op in GroupOp.Movement:
        return _move(u, src[0])
    if u.op in GroupOp.ALU:
        return _alu(u, src, values)
    raise NotImplementedError(f"evaluate: {u.op}")


def buffer_value(u: UOp) -> np.ndarray:
    buffer = u.buffer
    if not buffer.is_allocated():
        return np.zeros(u.arg.shape, np_dtype(u.dtype))
    return np.frombuffer(bytes(buffer.as_memoryview()), np_dtype(u.dtype)).copy()


def cast(x: np.ndarray, source: DType, target: DType) -> np.ndarray:
    if dtypes.is_int(target) and dtypes.is_float(source) and target not in dtypes.weaks:
        flat = [target.const(float(v)) for v in np.asarray(x, np.float64).reshape(-1)]
        return np.array(flat, np_dtype(target)).reshape(np.shape(x))
    return np.asarray(x).astype(np_dtype(target))


def _after(u: UOp, values: dict[UOp, Any]) -> Any:
    if u.src[0].op is Ops.PARAM:  # a bound Variable
        return np.array(u.src[1].src[1].arg)
    base = np.array(values[u.src[0]])
    numbers = np.arange(base.size).reshape(base.shape)
    for effect in u.src[1:]:
        if effect.op is not Ops.STORE:
            raise NotImplementedError(f"evaluate: AFTER {effect.op}")
        where = numbers
        chain, view = [], effect.src[0]
        while view is not u.src[0]:
            chain.append(view)
            view = view.src[0]
        for node in reversed(chain):
            where = _move(node, where)
        base.reshape(-1)[where.reshape(-1)] = np.broadcast_to(values[effect], where.shape).reshape(-1)
    return base


def _move(u: UOp, x: np.ndarray) -> np.ndarray:
    marg = _marg(u)
    match u.op:
        case Ops.RESHAPE:
            return np.reshape(x, marg)
        case Ops.EXPAND:
            return np.broadcast_to(x, marg)
        case Ops.PERMUTE:
            return np.transpose(x, marg)
        case Ops.PAD:
            return np.pad(x, marg)
        case Ops.SHRINK:
            return x[tuple(slice(b, e) for b, e in marg)]
        case Ops.FLIP:
            return np.flip(x, [i for i, f in enumerate(marg) if f])
    raise NotImplementedError(u.op)


def _reduce(u: UOp, x: np.ndarray) -> np.ndarray:
    op, axes = u.arg
    wide = x.astype(np.float64) if dtypes.is_float(u.dtype) else x
    if op is Ops.MAX:
        least = u.dtype.min if not dtypes.is_float(u.dtype) else -math.inf
        result = np.max(wide, axes, keepdims=True, initial=least)
    else:
        result = (np.sum if op is Ops.ADD else np.prod)(wide, axis=axes, keepdims=True, dtype=wide.dtype)
    return result.astype(np_dtype(u.dtype))


def _round(x: Any, dtype: DType) -> np.ndarray:
    return np.asarray(x).astype(np_dtype(dtype))


_FLOAT_FUNCTIONS = {
    Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin, Ops.SQRT: np.sqrt, Ops.RECIPROCAL: lambda a: 1.0 / a,
    Ops.NEG: np.negative, Ops.TRUNC: np.trunc, Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply,
    Ops.FDIV: np.divide, Ops.POW: np.power, Ops.MAX: np.maximum, Ops.MULACC: lambda a, b, c: a * b + c,
}  # fmt: skip
_INT_FUNCTIONS = {
    Ops.NEG: np.negative, Ops.TRUNC: lambda a: a, Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply,
    Ops.MAX: np.maximum, Ops.FLOORDIV: np.floor_divide, Ops.FLOORMOD: np.mod, Ops.CMOD: np.fmod,
    Ops.CDIV: lambda a, b: np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b)).astype(a.dtype)),
    Ops.XOR: np.bitwise_xor, Ops.OR: np.bitwise_or, Ops.AND: np.bitwise_and, Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift, Ops.MULACC: lambda a, b, c: a * b + c, Ops.POW: np.power,
}  # fmt: skip
_COMPARISONS = {Ops.CMPLT: np.less, Ops.CMPNE: np.not_equal, Ops.CMPEQ: np.equal}


def _alu(u: UOp, src: list[Any], values: dict[UOp, Any]) -> np.ndarray:
    if u.op in _COMPARISONS:
        return _COMPARISONS[u.op](*src)
    if u.op is Ops.WHERE:
        return _round(np.where(*src), u.dtype)
    if u.op is Ops.THREEFRY:
        return threefry(*src)
    if u.op is Ops.SIN and u.src[0].op is Ops.ADD and u.src[0].src[1].op is Ops.CONST:
        # sin(x + pi/2) is how the cosine is written: the sum is not rounded.
        return _round(np.sin(sum(np.asarray(values[s], np.float64) for s in u.src[0].src)), u.dtype)
    if dtypes.is_float(u.dtype):
        return _round(_FLOAT_FUNCTIONS[u.op](*(np.asarray(s, np.float64) for s in src)), u.dtype)
    return _round(_INT_FUNCTIONS[u.op](*src), u.dtype)


def threefry(x: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Threefry-2x32-20 on uint64 lanes, the low word first."""
    x, key = np.asarray(x, np.uint64), np.asarray(key, np.uint64)
    low = np.uint64(0xFFFFFFFF)

    def word(v: Any) -> np.ndarray:
        return np.asarray(v, np.uint64) & low

    x0, x1 = word(x), word(x >> np.uint64(32))
    k0, k1 = word(key), word(key >> np.uint64(32))
    keys = [k0, k1, word(k0 ^ k1 ^ np.uint64(0x1BD11BDA))]
    x0, x1 = word(x0 + keys[0]), word(x1 + keys[1])
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = word(x0 + x1)
            x1 = word((x1 << np.uint64(r)) | (x1 >> np.uint64(32 - r))) ^ x0
        x0 = word(x0 + keys[(i + 1) % 3])
        x1 = word(x1 + keys[(i + 2) % 3] + np.uint64(i + 1))
    return x0 | (x1 << np.uint64(32))
