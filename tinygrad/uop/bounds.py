"""Inclusive bounds of integer and boolean values.

In:   a node.
Out:  ``vmin_vmax(node)``: two Python values between which every value of the node lies, given the bounds that Variables
      and RANGEs declare. Exact for sums, products, divisions and comparisons of independent operands; the limits of the
      dtype where nothing better is known. A float has no bounds (it may be NaN) unless it is a constant or made from an
      integer.
Why:  gates, divisions and index dtypes fold away when the bounds decide them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, Invalid
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.alu import cdiv, cmod

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Interval = tuple[Any, Any]


def _corners(function: Callable[[Any, Any], Any], x: Interval, y: Interval) -> Interval:
    """Bounds of a function that is monotone in each operand."""
    values = [function(a, b) for a in x for b in y]
    return min(values), max(values)


def _add(x: Interval, y: Interval, dtype: DType) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def _sub(x: Interval, y: Interval, dtype: DType) -> Interval:
    return x[0] - y[1], x[1] - y[0]


def _mul(x: Interval, y: Interval, dtype: DType) -> Interval:
    if y[0] == y[1]:  # the common case: a constant factor
        c = y[0]
        return (x[0] * c, x[1] * c) if c >= 0 else (x[1] * c, x[0] * c)
    return _corners(lambda a, b: a * b, x, y)


def _max(x: Interval, y: Interval, dtype: DType) -> Interval:
    return max(x[0], y[0]), max(x[1], y[1])


def _floordiv(x: Interval, y: Interval, dtype: DType) -> Interval:
    if y[0] > 0 or y[1] < 0:
        return _corners(lambda a, b: a // b, x, y)
    size = max(abs(x[0]), abs(x[1]))
    return -size, size


def _floormod(x: Interval, y: Interval, dtype: DType) -> Interval:
    low, high = y
    if low == high and low != 0 and x[0] // low == x[1] // low:
        return x[0] % low, x[1] % low
    if low > 0:
        return 0, min(high - 1, x[1]) if x[0] >= 0 else high - 1
    if high < 0:
        return max(low + 1, x[0]) if x[1] <= 0 else low + 1, 0
    return min(x[0], 0, low + 1), max(x[1], 0, high - 1)  # x % 0 is x


def _cdiv(x: Interval, y: Interval, dtype: DType) -> Interval:
    if y[0] > 0 or y[1] < 0:
        return _corners(cdiv, (x[0], x[1]), y) if x[0] >= 0 or x[1] <= 0 else _corners(cdiv, x, y)
    size = max(abs(x[0]), abs(x[1]))
    return -size, size


def _cmod(x: Interval, y: Interval, dtype: DType) -> Interval:
    size = max(abs(y[0]), abs(y[1]))
    if y[0] == y[1] and size and (x[0] >= 0 or x[1] <= 0) and cdiv(x[0], y[0]) == cdiv(x[1], y[0]):
        return cmod(x[0], y[0]), cmod(x[1], y[0])
    if y[0] <= 0 <= y[1]:
        return min(x[0], 0), max(x[1], 0)  # x % 0 is x
    return 0 if x[0] >= 0 else max(x[0], 1 - size), 0 if x[1] <= 0 else min(x[1], size - 1)


def _shl(x: Interval, y: Interval, dtype: DType) -> Interval:
    if y[0] < 0 or y[1] >= min(dtype.bitsize, 128):
        return dtype.min, dtype.max
    return _corners(lambda a, b: a << b, x, y)


def _shr(x: Interval, y: Interval, dtype: DType) -> Interval:
    if y[0] < 0 or y[1] >= dtype.bitsize:
        return dtype.min, dtype.max
    return _corners(lambda a, b: a >> b, x, y)


def _and(x: Interval, y: Interval, dtype: DType) -> Interval:
    if dtype.kind == "bool":
        return x[0] and y[0], x[1] and y[1]
    highs = [i[1] for i in (x, y) if i[0] >= 0]
    return (0, min(highs)) if highs else (dtype.min, dtype.max)


def _or(x: Interval, y: Interval, dtype: DType) -> Interval:
    if dtype.kind == "bool":
        return x[0] or y[0], x[1] or y[1]
    if x[0] < 0 or y[0] < 0:
        return dtype.min, dtype.max
    return max(x[0], y[0]), (1 << max(x[1], y[1]).bit_length()) - 1


def _xor(x: Interval, y: Interval, dtype: DType) -> Interval:
    if dtype.kind == "bool":
        return _differ(x, y, dtype)
    ones = -1 if dtype.min < 0 else dtype.max
    for a, b in ((x, y), (y, x)):
        if a == (ones, ones):  # not b, as in the smaller of two integers
            return ones - b[1], ones - b[0]
    if x[0] < 0 or y[0] < 0:
        return dtype.min, dtype.max
    return 0, (1 << max(x[1], y[1]).bit_length()) - 1


def _less(x: Interval, y: Interval, dtype: DType) -> Interval:
    return x[1] < y[0], x[0] < y[1]


def _differ(x: Interval, y: Interval, dtype: DType) -> Interval:
    apart = x[1] < y[0] or y[1] < x[0]
    return apart, not x[0] == x[1] == y[0] == y[1]


def _same(x: Interval, y: Interval, dtype: DType) -> Interval:
    low, high = _differ(x, y, dtype)
    return not high, not low


_BINARY: dict[Ops, Callable[[Interval, Interval, DType], Interval]] = {
    Ops.ADD: _add,
    Ops.SUB: _sub,
    Ops.MUL: _mul,
    Ops.MAX: _max,
    Ops.FLOORDIV: _floordiv,
    Ops.FLOORMOD: _floormod,
    Ops.CDIV: _cdiv,
    Ops.CMOD: _cmod,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.AND: _and,
    Ops.OR: _or,
    Ops.XOR: _xor,
    Ops.CMPLT: _less,
    Ops.CMPNE: _differ,
    Ops.CMPEQ: _same,
}
_SAME_VALUES = frozenset({
    Ops.AFTER, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.COPY, Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE,
    Ops.SHRINK, Ops.FLIP, Ops.NOOP,
})  # fmt: skip
_FROM_SOURCES = frozenset({
    *_BINARY,
    *_SAME_VALUES,
    Ops.WHERE,
    Ops.CAST,
    Ops.STACK,
    Ops.PAD,
    Ops.RANGE,
    Ops.SPECIAL,
    Ops.NEG,
})


def _limits(dtype: DType) -> Interval:
    return (dtype.min, dtype.max) if dtype.kind != "void" else (0, 0)


def _needed_sources(u: UOp) -> tuple[UOp, ...]:
    """The sources whose bounds decide those of ``u``."""
    op = u.op
    if op not in _FROM_SOURCES or (u.dtype.kind == "float" and op is not Ops.CAST):
        # A lane of a vector has the vector's bounds.
        return u.src[:1] if op is Ops.INDEX and u.src[0].op is Ops.STACK else ()
    if op in _SAME_VALUES or op is Ops.PAD or op is Ops.RANGE:
        return u.src[:1]
    return u.src[1:] if op is Ops.WHERE else u.src


def _leaf(u: UOp) -> Interval:
    if u.op is Ops.CONST and u.arg is not Invalid and not isinstance(u.arg, tuple) and u.arg == u.arg:
        return (u.arg, u.arg) if not (isinstance(u.arg, float) and math.isnan(u.arg)) else _limits(u.dtype)
    if u.op is Ops.PARAM and u.arg.vmin_vmax is not None:
        low, high = u.arg.vmin_vmax
        return (low if isinstance(low, (int, float)) else low.vmin), (
            high if isinstance(high, (int, float)) else high.vmax
        )
    return _limits(u.dtype)


def _cast(x: Interval, source: DType, target: DType) -> Interval:
    if target.kind == "float":
        # Rounding is monotone; a narrow float may round to infinity, which is a bound as good as another.
        if source.kind == "float" or max(abs(x[0]), abs(x[1])) > 1 << 24:
            return _limits(target)
        return _limits(target) if target.bitsize < 32 else (float(x[0]), float(x[1]))
    if source.kind == "float":
        return _limits(target)
    if target.kind == "bool":
        return x[0] > 0 or x[1] < 0, not x[0] == x[1] == 0
    low, high = int(x[0]), int(x[1])
    return (low, high) if target.min <= low and high <= target.max else _limits(target)


def _bounds(u: UOp) -> Interval:
    sources = _needed_sources(u)
    if not sources:
        return _leaf(u)
    op, dtype = u.op, u.dtype
    known = [s._bounds for s in sources]
    if op is Ops.RANGE or op is Ops.SPECIAL:
        return 0, max(known[0][1] - 1, 0)
    if op is Ops.CAST:
        return _cast(known[0], u.src[0].dtype, dtype)
    if op is Ops.WHERE or op is Ops.STACK:
        # An undefined branch adds no value.
        defined = [
            k for k, s in zip(known, sources, strict=True) if s.op is not Ops.CONST or s.arg is not Invalid
        ] or known
        return min(k[0] for k in defined), max(k[1] for k in defined)
    if op is Ops.PAD:
        return min(known[0][0], 0), max(known[0][1], 0)
    if op in _SAME_VALUES or op is Ops.INDEX:
        return known[0]
    if op is Ops.NEG:
        low, high = -known[0][1], -known[0][0]
    else:
        if dtype.kind == "bool" and op not in GroupOp.Comparison:
            # On bools, + and MAX are OR, * is AND.
            op = {Ops.ADD: Ops.OR, Ops.MAX: Ops.OR, Ops.MUL: Ops.AND}.get(op, op)
            if op not in (Ops.OR, Ops.AND, Ops.XOR):
                return False, True
        low, high = _BINARY[op](known[0], known[1], dtype)
    # A result that leaves the dtype wraps around: anything is possible.
    return (low, high) if dtype.min <= low and high <= dtype.max else _limits(dtype)


def vmin_vmax(u: UOp) -> Interval:
    """Return the inclusive bounds of a node's values; computed once per node, without recursion."""
    try:
        return u._bounds
    except AttributeError:
        pass
    stack = [u]
    while stack:
        node = stack[-1]
        if hasattr(node, "_bounds"):
            stack.pop()
            continue
        missing = [s for s in _needed_sources(node) if not hasattr(s, "_bounds")]
        if missing:
            stack.extend(missing)
        else:
            node._bounds = _bounds(node)
            stack.pop()
    return u._bounds
