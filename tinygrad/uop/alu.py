"""The arithmetic of one element, in Python: what every operation means.

In:   an operation, the dtype of its result, Python values.
Out:  the value, rounded or wrapped to the dtype.
Why:  constant folding and the PYTHON device share it, so a folded expression never differs from a computed one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from tinygrad.dtype import ConstFloat, DType, Invalid, dtypes, truncate
from tinygrad.uop import Ops


def _exp2(x: float) -> float:
    try:
        return math.exp2(x)
    except OverflowError:
        return math.inf


def _log2(x: float) -> float:
    if x > 0:
        return math.log2(x) if x != math.inf else math.inf
    return -math.inf if x == 0 else math.nan


def _sin(x: float) -> float:
    return math.sin(x) if math.isfinite(x) else math.nan


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _reciprocal(x: float) -> float:
    return 1 / x if x != 0 else math.copysign(math.inf, x)


def _trunc(x: Any) -> Any:
    if not isinstance(x, float):
        return x
    return math.copysign(float(math.trunc(x)), x) if math.isfinite(x) else x


def _fdiv(x: float, y: float) -> float:
    if y != 0:
        return x / y
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _max(x: Any, y: Any) -> Any:
    if x != x:
        return x
    if y != y:
        return y
    if x == y and isinstance(x, float):
        return y if math.copysign(1.0, x) < 0 else x  # 0.0 is larger than -0.0
    return x if x > y else y


def cdiv(x: int, y: int) -> int:
    """Integer quotient rounded toward zero; 0 for y == 0."""
    if y == 0:
        return 0
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def cmod(x: Any, y: Any) -> Any:
    """Remainder with the sign of x, exact; for y == 0 x if they are integers, NaN if they are floats."""
    if isinstance(x, float):
        return math.fmod(x, y) if math.isfinite(x) and y != 0 else math.nan
    return x - cdiv(x, y) * y


def _floordiv(x: Any, y: Any) -> Any:
    if not isinstance(x, float):
        return x // y if y != 0 else 0
    quotient = _fdiv(x, y)
    return float(math.floor(quotient)) if math.isfinite(quotient) else quotient


def _floormod(x: Any, y: Any) -> Any:
    if not isinstance(x, float):
        return x % y if y != 0 else x
    if y == 0 or not math.isfinite(x):
        return math.nan
    return x % y


def _shl(x: int, y: int) -> int:
    # No dtype keeps a bit that was shifted by 64 or more, and Python would build a huge number.
    return x << y if 0 <= y < 1024 else 0


def _shr(x: int, y: int) -> int:
    return x >> y if y >= 0 else -1 if x < 0 else 0  # a negative count is a large one


def _pow(x: Any, y: Any) -> Any:
    if isinstance(x, float) or isinstance(y, float):
        return _float_pow(float(x), float(y))
    if y >= 0:
        return x**y if y < 4096 else pow(x, y, 1 << 64)
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


def _float_pow(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        # 0 ** negative is an infinity, a negative number to a fraction is not a number
        if x == 0:
            return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
        return math.nan


def threefry(x: int, key: int) -> int:
    """Threefry-2x32 with 20 rounds on the two 32-bit words of ``x``, keyed by those of ``key`` (low word first)."""
    mask = 0xFFFFFFFF
    k0, k1 = key & mask, (key >> 32) & mask
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = (x + k0) & mask, ((x >> 32) + k1) & mask
    for block in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x0 = (x0 + x1) & mask
            x1 = (((x1 << rotation) | (x1 >> (32 - rotation))) & mask) ^ x0
        x0 = (x0 + keys[(block + 1) % 3]) & mask
        x1 = (x1 + keys[(block + 2) % 3] + block + 1) & mask
    return x0 | (x1 << 32)


python_alu: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.EXP2: _exp2,
    Ops.LOG2: _log2,
    Ops.SIN: _sin,
    Ops.SQRT: _sqrt,
    Ops.RECIPROCAL: _reciprocal,
    Ops.NEG: lambda x: not x if isinstance(x, bool) else -x,
    Ops.TRUNC: _trunc,
    Ops.ADD: lambda x, y: x + y,
    Ops.SUB: lambda x, y: x - y,
    Ops.MUL: lambda x, y: x * y,
    Ops.FDIV: _fdiv,
    Ops.MAX: _max,
    Ops.CDIV: cdiv,
    Ops.CMOD: cmod,
    Ops.FLOORDIV: _floordiv,
    Ops.FLOORMOD: _floormod,
    Ops.POW: _pow,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.XOR: lambda x, y: x ^ y,
    Ops.OR: lambda x, y: x | y,
    Ops.AND: lambda x, y: x & y,
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPNE: lambda x, y: x != y,
    Ops.CMPEQ: lambda x, y: x == y,
    Ops.WHERE: lambda condition, x, y: x if condition else y,
    Ops.MULACC: lambda x, y, z: x * y + z,
    Ops.THREEFRY: threefry,
}


def exec_alu(op: Ops, dtype: DType, operands: Sequence[Any], truncate_output: bool = True) -> Any:
    """Compute one operation on Python values.

    Args:
        op: A member of ``GroupOp.ALU``.
        dtype: Dtype of the result.
        operands: One value per source; a tuple means a vector, and then scalars are repeated. An Invalid operand makes
            the result Invalid, except the branch of a WHERE that is not taken.
        truncate_output: Wrap or round the result to ``dtype``.

    Returns:
        A bool, int or float; a tuple if an operand is one.

    Example:
        >>> exec_alu(Ops.ADD, dtypes.uint8, (250, 10))
        4
    """
    if any(isinstance(x, tuple) for x in operands):
        width = max(len(x) for x in operands if isinstance(x, tuple))
        lanes = [x if isinstance(x, tuple) else (x,) * width for x in operands]
        return tuple(exec_alu(op, dtype, lane, truncate_output) for lane in zip(*lanes, strict=True))
    if any(x is Invalid for x in operands):
        if op is not Ops.WHERE or operands[0] is Invalid:
            return Invalid
        chosen = operands[1] if operands[0] else operands[2]
        return truncate[dtype](chosen) if truncate_output and chosen is not Invalid else chosen
    # ConstFloat has an equality of its own (NaN equals NaN); arithmetic wants that of float.
    value = python_alu[op](*(float(x) if type(x) is ConstFloat else x for x in operands))
    return truncate[dtype](value) if truncate_output and dtype is not dtypes.void else value


def identity_element(op: Ops, dtype: DType) -> Any:
    """Return the neutral value of a reduction: 0, 1 or the smallest value of the dtype."""
    if op is Ops.MAX and dtype in dtypes.fp8s:
        return dtype.const(truncate[dtype](-1e30))  # three of the four kinds have no infinity
    return dtype.const({Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtype.min}[op])
