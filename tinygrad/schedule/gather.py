"""Recognise data-dependent lookups that are written as a masked sum.

In:   REDUCE(ADD, WHERE(index == arange(n), table, 0)) over the axis of the arange.
Out:  the index, the table and the axis, so that the sum over n becomes one load at ``table[index]``.
Why:  gather, embedding and cross-entropy are written with arithmetic only (so that they differentiate); reading all n
      rows to keep one would make them n times slower.
"""

from __future__ import annotations

from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.record import record
from tinygrad.schedule.indexing import Idxs, apply_movement_op, zero
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.ops import UOp, resolve


@record(frozen=True)
class Gather:
    """A lookup ``table[..., index, ...]``.

    Args:
        index: Integer node that says where.
        views: Movement nodes between the comparison and ``index``, outermost first.
        side_shape: Shape of the compared side above the views.
        table: Node that is read.
        axis: Axis of the looked-up position.
        size: Length of that axis.
        shape: Shape of the masked value.
        casts: Conversions between table and sum, innermost first.
    """

    index: UOp
    views: tuple[UOp, ...]
    side_shape: tuple[Any, ...]
    table: UOp
    axis: int
    size: int
    shape: tuple[Any, ...]
    casts: tuple[Any, ...]

    def index_idxs(self, idxs: Idxs) -> Idxs:
        """Return the indices of ``index`` for a result at ``idxs``."""
        at = _align(self.side_shape, self.shape, _with(idxs, self.axis, zero()))
        for view in self.views:
            at = apply_movement_op(view.op, view.src[0].shape, view.marg, at)
        return at

    def table_idxs(self, idxs: Idxs, position: UOp) -> Idxs:
        """Return the indices of ``table`` for a result at ``idxs``, looked up at ``position``."""
        return _align(self.table.shape, self.shape, _with(idxs, self.axis, position))

    def position(self, value: UOp) -> tuple[UOp, UOp]:
        """Return the position as an index, and whether it lies inside the table."""
        if value.dtype is dtypes.uint64:
            value = value.cast(dtypes.int64)  # a half that no index holds becomes negative: it is no position either
        at = value.cast(dtypes.weakint)
        inside = (at < 0).logical_not() & (at < self.size)
        return at, inside.simplify()

    def result(self, index_value: UOp, table_value: UOp) -> UOp:
        """Return the looked-up value, 0 where the position lies outside."""
        if table_value.op is not Ops.INDEX:
            inside = self.position(index_value)[1]
            table_value = UOp(Ops.WHERE, table_value.dtype, (inside, table_value, UOp.const(0, table_value.dtype)))
        for dtype in self.casts:
            table_value = table_value.cast(dtype)
        return table_value


def _with(idxs: Idxs, axis: int, value: UOp) -> Idxs:
    return (*idxs[:axis], value, *idxs[axis + 1 :])


def _align(own: tuple[Any, ...], shape: tuple[Any, ...], idxs: Idxs) -> Idxs:
    inner = idxs[len(shape) - len(own) :]
    return tuple(zero() if isinstance(s, int) and s == 1 else i for s, i in zip(own, inner, strict=True))


def _iota_value(u: UOp, idxs: Idxs, depth: int = 12) -> UOp | None:
    """Return the value of arange-like arithmetic at given indices, None for anything else."""
    if depth == 0:
        return None
    if u.op in GroupOp.Movement and u.op is not Ops.PAD:
        return _iota_value(u.src[0], apply_movement_op(u.op, u.src[0].shape, u.marg, idxs), depth - 1)
    if u.op is Ops.SPECIAL:
        return idxs[0]
    if u.op is Ops.CONST and isinstance(u.arg, int):
        return UOp.const(int(u.arg), dtypes.weakint)
    if u.op is Ops.CAST and dtypes.is_int(u.dtype):
        return _unwrapped(_iota_value(u.src[0], idxs, depth - 1), u.dtype)
    if u.op in (Ops.ADD, Ops.MUL):
        parts = [_iota_value(s, _align(s.shape, u.shape, idxs), depth - 1) for s in u.src]
        if parts[0] is not None and parts[1] is not None:
            return _unwrapped(UOp(u.op, dtypes.weakint, (parts[0], parts[1])).simplify(), u.dtype)
    return None


def _unwrapped(value: UOp | None, dtype: DType) -> UOp | None:
    """Return a number if its dtype holds it whatever the indices are: a narrow one shows some numbers several times."""
    if value is None or dtype is dtypes.weakint:
        return value
    return value if dtype.min <= value.vmin and value.vmax <= dtype.max else None


def _views_to_index(u: UOp, idxs: Idxs, axis_range: UOp) -> tuple[UOp, tuple[UOp, ...]] | None:
    """Walk down views until the position along the summed axis no longer matters."""
    views: list[UOp] = []
    while any(axis_range in i.ranges for i in idxs):
        if u.op not in GroupOp.Movement or u.op is Ops.PAD:
            return None
        views.append(u)
        idxs = apply_movement_op(u.op, u.src[0].shape, u.marg, idxs)
        u = u.src[0]
    return u, tuple(views)


def match_gather(reduce: UOp) -> Gather | None:
    """Return the lookup that a REDUCE spells out, or None."""
    if reduce.arg[0] is not Ops.ADD:
        return None
    x, casts = reduce.src[0], []
    while x.op is Ops.CAST:
        casts.append(x.dtype)
        x = x.src[0]
    axes = [a for a in reduce.arg[1] if resolve(x.shape[a] != 1)]
    if x.op is not Ops.WHERE or len(axes) != 1 or not isinstance(x.shape[axes[0]], int):
        return None
    cond, table, other = x.src
    if cond.op is not Ops.CMPEQ or other.base.op is not Ops.CONST or other.base.arg != 0:
        return None
    axis, shape = axes[0], x.shape
    ranges = tuple(UOp.range(s, i, AxisType.LOOP) for i, s in enumerate(shape))
    at = _align(cond.shape, shape, ranges)
    for iota, side in (cond.src, cond.src[::-1]):
        value = _iota_value(iota, _align(iota.shape, cond.shape, at))
        if value is None or value is not ranges[axis]:
            continue
        found = _views_to_index(side, _align(side.shape, cond.shape, at), ranges[axis])
        if found is not None and not dtypes.is_float(found[0].dtype):
            return Gather(found[0], found[1], side.shape, table, axis, shape[axis], shape, tuple(reversed(casts)))
    return None
