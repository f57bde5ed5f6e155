"""Reading and writing at computed positions, on nodes.

In:   a table, integer positions (int32 or int64), values.
Out:  reads: one REDUCE(ADD, WHERE(position == iota, table, 0)), which the scheduler folds to an indexed load.
      writes: AFTER(storage, STORE(INDEX(storage, positions, inside), values)), executed in row-major order of the
      positions, so the last write wins; with arg ADD, MUL or MAX the store combines what is there with the value.
Why:  each is the other's gradient, so both are FUNCTION nodes that say so. A derived gradient of the read would be a
      contraction over all positions times all rows; the store is linear in the number of positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.helpers import prod
from tinygrad.mixin.composite import composite, materialized
from tinygrad.record import record
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# Below this many rows or positions, comparing all pairs in a vectorised kernel beats a store in program order.
FEW = 16


def position_dtype(count: Any) -> DType:
    """Return the dtype of positions below ``count``, whatever value a symbolic one has."""
    most = count if isinstance(count, int) else count.vmax
    return dtypes.int64 if most > dtypes.int32.max else dtypes.int32


def as_index(index: UOp, size: Any) -> UOp:
    """Return an index as int32 or int64, negative entries counted from the end of ``size``."""
    signed = not dtypes.is_unsigned(index.dtype)
    kind = least_upper_dtype(dtypes.int32, position_dtype(size))
    if index.dtype in (dtypes.int64, dtypes.uint32, dtypes.uint64):
        kind = dtypes.int64
    wide = index.cast(kind)
    return (wide < 0).where(wide + size, wide) if signed else wide


def _iota(count: Any, dtype: DType) -> UOp:
    from tinygrad.uop.ops import UOp

    return UOp.arange(count, dtype=dtype)


def _select(hit: UOp, table: UOp, axis: int) -> UOp:
    """Return the sum over ``axis`` of the table where ``hit``; the axis disappears."""
    # A sum of bools has no meaning in hardware; at most one entry is hit, so a byte holds it.
    stored = table.cast(dtypes.uint8) if table.dtype == dtypes.bool else table
    picked = hit.where(stored, stored.const_like(0))
    total = picked._rop(Ops.ADD, (axis,))
    return total.reshape((*total.shape[:axis], *total.shape[axis + 1 :])).cast(table.dtype)


# ---- rows: the leading dim of a table ------------------------------------------------------------------------------


def _gather_rows_body(table: UOp, index: UOp) -> UOp:
    rest, places = table.shape[1:], index.shape
    at = index.reshape((*places, 1, *(1,) * len(rest)))
    rows = _iota(table.shape[0], index.dtype).reshape(table.shape[0], *(1,) * len(rest))
    return _select(at.eq(rows), table, len(places))


def gather_rows(table: UOp, index: UOp) -> UOp:
    """Return table[index] of shape (*index.shape, *table.shape[1:]); 0 where the index is no row.

    Args:
        table: Shape (rows, ...).
        index: int32 or int64, any shape, not negative where it means a row.
    """
    if not dtypes.is_float(table.dtype) or table.dtype in dtypes.weaks:
        return _gather_rows_body(table, index)
    return composite(_gather_rows_body, (table, index), GatherRowsGradient(), "gather")


@record(frozen=True)
class GatherRowsGradient:
    """Gradient function of ``gather_rows``: rows of the gradient are added up where they were read."""

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None]:
        """Return the gradient of the table."""
        table, index = call.src[1:]
        rows, rest, places = table.shape[0], table.shape[1:], index.shape
        if 0 in rest:
            return table.const_like(0), None
        if stores_are_dear(grad, rows, prod(places)):
            flat = index.reshape(-1, *(1,) * (1 + len(rest)))
            at = _iota(rows, index.dtype).reshape(rows, *(1,) * len(rest))
            return _select(flat.eq(at), grad.reshape(-1, 1, *rest), 0), None
        width = prod(rest)
        row = index.reshape((*places, *(1,) * len(rest)))
        start = row.cast(position_dtype(rows * width))
        column = _iota(width, start.dtype).reshape(rest)
        positions = _is_row(row, rows).where(start * width + column, -1)
        return store_at(zeros(rows * width, grad.dtype), positions, grad, Ops.ADD).reshape(table.shape), None


def stores_are_dear(like: UOp, rows: Any, places: Any) -> bool:
    """Return whether an indexed store is impossible (several devices, symbolic sizes) or not worth it."""
    if isinstance(like.device, tuple) or not isinstance(rows, int) or not isinstance(places, int):
        return True
    return min(rows, places) <= FEW


def zeros(count: Any, dtype: DType) -> UOp:
    """Return a constant 1-d node."""
    from tinygrad.uop.ops import UOp

    return UOp.const(0, dtype).reshape(1).expand(count)


# ---- along one dim, the others side by side ------------------------------------------------------------------------


def _gather_along_body(x: UOp, index: UOp) -> UOp:
    n = x.shape[-1]
    hit = index.unsqueeze(-1).eq(_iota(n, index.dtype))
    return _select(hit, x.unsqueeze(-2), index.ndim)


def gather_along(x: UOp, index: UOp) -> UOp:
    """Return x[..., index] for x (*batch, n), index (*batch, m): shape (*batch, m); 0 where the index is no column."""
    if not dtypes.is_float(x.dtype) or x.dtype in dtypes.weaks:
        return _gather_along_body(x, index)
    return composite(_gather_along_body, (x, index), GatherAlongGradient(), "gather")


@record(frozen=True)
class GatherAlongGradient:
    """Gradient function of ``gather_along``."""

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None]:
        """Return the gradient of x."""
        x, index = call.src[1:]
        n, m, total = x.shape[-1], index.shape[-1], prod(x.shape)
        if stores_are_dear(grad, n, m):
            hit = index.unsqueeze(-1).eq(_iota(n, index.dtype))
            return _select(hit, grad.unsqueeze(-1), index.ndim - 1), None
        return store_at(zeros(total, grad.dtype), positions_along(index, n), grad, Ops.ADD).reshape(x.shape), None


def positions_along(index: UOp, n: Any) -> UOp:
    """Return positions in the flat (*batch, n) of an index (*batch, m) into the last dim; -1 where it is no column."""
    batch = index.shape[:-1]
    at = index.cast(position_dtype(prod(batch) * n))
    row = _iota(prod(batch), at.dtype).reshape((*batch, 1))
    return _is_row(index, n).where(row * n + at, -1)


def _is_row(index: UOp, rows: Any) -> UOp:
    """Return where an index is that of a row; to be asked before the cast to a dtype that positions fit."""
    inside: UOp = (index > -1) & (index < rows)
    return inside


# ---- indexed stores ------------------------------------------------------------------------------------------------


def indexed_store(storage: UOp, positions: UOp, values: UOp, combine: Ops | None = None) -> UOp:
    """Return ``storage`` (1-d BUFFER or AFTER) after writing ``values`` at ``positions``, where they are not negative.

    Args:
        storage: What is written to.
        positions: int32 or int64, the shape of ``values``.
        values: Of the storage's dtype.
        combine: ADD, MUL or MAX: what is written is this of the old content and the value.
    """
    from tinygrad.uop.ops import UOp

    target = UOp(Ops.INDEX, storage.dtype, (storage, positions, positions > -1))
    store = UOp(Ops.STORE, dtypes.void, (target, values._broadcast_to(positions.shape)), combine)
    return storage.after(store)


def settled(x: UOp) -> UOp:
    """Return a value that costs a few operations: the kernel of an indexed store runs in order, without vectors."""
    below = x.base
    if below.op in (Ops.CONST, Ops.BUFFER, Ops.PARAM, Ops.SPECIAL) or below.has_buffer_identity(after_ok=True):
        return x
    if x.device is None and not x.op_in_backward_slice_with_self(Ops.REDUCE, Ops.FUNCTION):
        return x  # arithmetic on ranges
    return materialized(x)


def settled_positions(x: UOp) -> UOp:
    """Return positions that cost a few operations; arithmetic on index tensors is cheaper than to store it."""
    return settled(x) if x.op_in_backward_slice_with_self(Ops.REDUCE, Ops.FUNCTION) else x


def _store_body(base: UOp, positions: UOp, values: UOp, storage: UOp, combine: Ops | None) -> UOp:
    filled = storage.after(storage.shrink_to(base.shape).store(base))
    return indexed_store(filled, positions, values, combine).shrink_to(base.shape)


def store_at(base: UOp, positions: UOp, values: UOp, combine: Ops | None = None, device: Any = None) -> UOp:
    """Return a copy of ``base`` (1-d) with ``values`` written at ``positions``; the last one wins.

    Args:
        base: Shape (size,); of a symbolic size the largest is allocated.
        positions: Any shape; negative positions write nothing.
        values: Broadcast to the shape of the positions.
        combine: ADD, MUL or MAX combines all values of a position with what is there instead; sums and products of
            floats in at least float32.
        device: Where the copy is if none of the operands is anywhere, as numbers and ranges are not.
    """
    from tinygrad.device import canonicalize_device
    from tinygrad.uop.ops import UOp

    values = values._broadcast_to(positions.shape)
    kind = base.dtype
    if combine in {Ops.ADD, Ops.MUL} and dtypes.is_float(kind):
        kind = least_upper_dtype(kind, dtypes.float32)
    device = next((x.device for x in (values, positions, base) if x.device is not None), device)
    # Storage of its own for every call: two calls with equal operands must not write to the same place.
    storage = UOp.new_buffer(canonicalize_device(device), base.max_shape[0], kind)
    written = composite(
        lambda b, p, v: _store_body(b, p, v, storage, combine),
        (base.cast(kind), settled_positions(positions), settled(values.cast(kind))),
        _STORE_GRADIENTS[combine],
        "scatter",
    )
    return written.cast(base.dtype)


@record(frozen=True)
class StoreGradient:
    """Gradient function of ``store_at`` that overwrites: what was overwritten has no gradient."""

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None, UOp]:
        """Return the gradients of base and values."""
        _, positions, values = call.src[1:]
        return overwritten_gradient(grad, positions), None, stored_gradient(grad, positions).cast(values.dtype)


@record(frozen=True)
class AddedGradient:
    """Gradient function of ``store_at`` that adds."""

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None, UOp]:
        """Return the gradients of base and values."""
        _, positions, values = call.src[1:]
        return grad, None, gather_rows(grad, positions).cast(values.dtype)


@record(frozen=True)
class MaxGradient:
    """Gradient function of ``store_at`` with the maximum: all that reach it share the gradient equally."""

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None, UOp]:
        """Return the gradients of base and values."""
        base, positions, values = call.src[1:]
        best = store_at(base, positions, values, Ops.MAX).detach()
        top = _reaches(base, best)
        hit = _reaches(values, gather_rows(best, positions)) & (positions > -1)
        share = grad / store_at(top.cast(grad.dtype), positions, hit.cast(grad.dtype), Ops.ADD)
        return top.where(share, 0), None, hit.where(gather_rows(share, positions), 0).cast(values.dtype)


def _reaches(x: UOp, best: UOp) -> UOp:
    return x.eq(best) | (x.isnan() & best.isnan())


@record(frozen=True)
class ProductGradient:
    """Gradient function of ``store_at`` with the product: for each factor the product of the others, zeros among them.

    Where there is one zero, that is the product without it, and 0 for the other factors; with more zeros it is 0.
    """

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None, UOp]:
        """Return the gradients of base and values."""
        base, positions, values = call.src[1:]
        product = store_at(_without_zero(base), positions, _without_zero(values), Ops.MUL)
        zeros_there = store_at(base.eq(0).cast(dtypes.int32), positions, values.eq(0).cast(dtypes.int32), Ops.ADD)
        of_base = grad * _product_of_others(base, product, zeros_there)
        there, count = gather_rows(product, positions), gather_rows(zeros_there, positions)
        of_values = gather_rows(grad, positions) * _product_of_others(values, there, count)
        return of_base, None, of_values.cast(values.dtype)


def _without_zero(x: UOp) -> UOp:
    return x.eq(0).where(1, x)


def _product_of_others(x: UOp, product: UOp, zeros_there: UOp) -> UOp:
    """Return the product of all factors but x, given that of the factors that are not 0 and the number of zeros."""
    alone = zeros_there.eq(1).where(product, 0)
    return x.eq(0).where(alone, zeros_there.eq(0).where(product / _without_zero(x), 0))


_STORE_GRADIENTS: dict[Ops | None, Any] = {
    None: StoreGradient(),
    Ops.ADD: AddedGradient(),
    Ops.MAX: MaxGradient(),
    Ops.MUL: ProductGradient(),
}


def overwritten_gradient(grad: UOp, positions: UOp) -> UOp:
    """Return the gradient of what was there before a store: 0 at the written positions."""
    from tinygrad.uop.ops import UOp

    return store_at(grad, positions, UOp.const(0, grad.dtype))


def stored_gradient(grad: UOp, positions: UOp) -> UOp:
    """Return the gradient of the stored values: what is read back at their positions, if they were not overwritten."""
    back = gather_rows(grad, positions)
    size, count = grad.shape[0], prod(positions.shape)
    order = _iota(count, dtypes.int32).reshape(positions.shape)
    last = store_at(zeros(size, dtypes.int32), positions, order, device=grad.device)
    return gather_rows(last, positions).eq(order).where(back, back.const_like(0))
