"""Elementwise nodes evaluated on numpy arrays, and the distance of results in units in the last place.

In:   a node of ALU, CAST, BITCAST and CONST over leaves, with an array for each leaf.
Out:  the array that the node stands for, every step in the node's dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.dtype import dtypes, float_to_int, truncate
from tinygrad.helpers import cdiv, cmod
from tinygrad.uop import Ops
from tinygrad.uop.ops import ParamArg, UOp

NUMPY = {dtype: np.dtype(dtype.fmt).type for dtype in dtypes.all if dtype.fmt}

_FUNCTIONS: dict[Ops, Any] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.NEG: np.negative,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.WHERE: np.where,
    Ops.TRUNC: np.trunc,
    Ops.SQRT: np.sqrt,
    Ops.RECIPROCAL: np.reciprocal,
    Ops.CDIV: np.frompyfunc(cdiv, 2, 1),
    Ops.CMOD: np.frompyfunc(cmod, 2, 1),
}


def leaf(dtype, slot: int = 0, bounds: tuple[int, int] | None = None) -> UOp:
    """Return a scalar that stands for an array."""
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, dtype, (), vmin_vmax=bounds))


def evaluate(root: UOp, arrays: dict[UOp, np.ndarray]) -> np.ndarray:
    """Return the values of ``root``."""
    values: dict[UOp, np.ndarray] = dict(arrays)
    with np.errstate(all="ignore"):
        for u in root.toposort(gate=lambda u: u not in arrays):
            if u not in values:
                values[u] = _step(u, [values[s] for s in u.src])
    return values[root]


def _step(u: UOp, sources: list[np.ndarray]) -> np.ndarray:
    kind = NUMPY[u.dtype]
    match u.op:
        case Ops.CONST:
            result = np.asarray(truncate[u.dtype](u.arg), kind)
        case Ops.BITCAST:
            result = sources[0].view(kind)
        case Ops.CAST if dtypes.is_int(u.dtype) and dtypes.is_float(u.src[0].dtype):
            values = [float_to_int(float(x), u.dtype) for x in sources[0].ravel()]
            result = np.array(values, kind).reshape(sources[0].shape)
        case Ops.CAST:
            result = sources[0].astype(kind)
        case Ops.DETACH:
            result = sources[0]
        case _:
            result = np.asarray(_FUNCTIONS[u.op](*sources))
            result = result.astype(kind) if result.dtype == object else result
    assert result.dtype == kind, f"{u.op} gave {result.dtype} for {u.dtype} from {[s.dtype for s in u.src]}"
    return result


def ulps(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance of each result from the exact value (in a wider dtype), in units in the last place of the result."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(result.dtype)
        unit = np.spacing(np.abs(nearest)).astype(exact.dtype)
        distance = np.abs(result.astype(exact.dtype) - exact) / unit
    special = ~np.isfinite(nearest)
    same = (result == nearest) | (np.isnan(result) & np.isnan(nearest))
    return np.where(same, np.where(special, 0.0, np.nan_to_num(distance)), np.where(special, np.inf, distance))
