"""``x[...] = v``: writes in place.

In:   a tensor, an index expression, a value.
Out:  AFTER(storage, STORE(view, value)) for ints and slices, AFTER(storage, STORE(INDEX(storage, positions), value))
      for index arrays; every tensor that shows the storage is re-pointed at it.
Why:  a write is refused while a computation that has not run yet reads the storage: it would see the new value if it
      ran later. A value without storage is no hazard, whoever has read it has the node of the old value.
"""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.dtype_lattice import require_fit
from tinygrad.errors import DTypeError, ShapeError, error_text, shown
from tinygrad.helpers import fully_flatten, prod
from tinygrad.mixin.gather import (
    as_index,
    gather_rows,
    indexed_store,
    position_dtype,
    settled,
    settled_positions,
    store_at,
)
from tinygrad.mixin.selection import Selection, is_scalar_mask, scalar_masks_as_rows

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor
    from tinygrad.uop.ops import UOp


def write_selection(x: Any, indices: Any, v: Any) -> None:
    """Write ``v`` to what ``indices`` select of ``x``; see ``IndexMixin.__setitem__``."""
    if not hasattr(x, "assign"):
        raise TypeError("setitem: a node is immutable; write to a Tensor")
    if x.dtype in dtypes.weaks:
        raise DTypeError(
            error_text(
                "setitem",
                f"cannot setitem on a weak dtype, {x.dtype}, it has no storage",
                {"tensor": x},
                hint="cast to a concrete dtype first",
            )
        )
    _check_numbers(x, v)
    if _is_plain_mask(x, indices) and _fills_mask(x, indices, v):
        value = _value(x, v, None)
        _refuse_other_uses(x, v, value, indices)
        kept = indices.reshape((*indices.shape, *(1,) * (x.ndim - indices.ndim)))
        x.assign(kept.where(value, x))
        return
    from tinygrad.repointing import give_storage, write_view

    if any(map(is_scalar_mask, _items(indices))):
        _refuse_other_uses(x, v, *_items(indices))
        if not str(x.device).startswith("DISK"):
            give_storage(x)
        rows, items = scalar_masks_as_rows(x, indices)
        write_selection(rows, items, v)
        return
    found = x._selection(indices)
    shape = _result_shape(x, found)
    value = _value(x, v, shape)
    if str(x.device).startswith("DISK"):
        if found.arrays:
            raise RuntimeError(
                error_text(
                    "setitem",
                    "advanced indexing on DISK is not supported",
                    {"tensor": x},
                    hint="write slices, or load the file with .to(None)",
                )
            )
        x._select(found).assign(value)
        return
    if 0 in shape:
        return
    _refuse_other_uses(x, v, value, *_items(indices), *(array for _, array in found.arrays))
    give_storage(x)
    if found.arrays:
        _write_positions(x, flat_positions(x, found, shape), value.uop)
    else:
        view = x._select(found)
        # ``x[i] += 1`` has written through the view already, and assigns the view to itself
        if value.uop is not view.uop:
            write_view(view, value.uop)


def _check_numbers(x: Any, v: Any) -> None:
    """Refuse Python values that x's dtype cannot show, as numpy does."""
    if v is None:
        raise TypeError(
            error_text("setitem", "the value is None", {"tensor": x}, rule="a tensor, number, list or array is written")
        )
    require_fit("setitem", v, x.dtype)
    if not dtypes.is_int(x.dtype):
        return
    for number in fully_flatten(v) if isinstance(v, (list, tuple)) else (v,):
        if isinstance(number, float) and not math.isfinite(number):
            kind = ValueError if math.isnan(number) else OverflowError
            raise kind(
                error_text("setitem", f"{number} is no integer", {"tensor": x}, hint="write to a tensor of floats")
            )


def _is_plain_mask(x: Any, indices: Any) -> bool:
    return hasattr(indices, "_uop") and indices.dtype == dtypes.bool and indices.shape == x.shape[: indices.ndim]


def _fills_mask(x: Any, mask: Any, v: Any) -> bool:
    """Return whether all selected rows get the same value, so that it does not matter how many they are."""
    shape = v.shape if hasattr(v, "shape") else (len(v),) if isinstance(v, (list, tuple)) else ()
    return len(shape) <= x.ndim - mask.ndim and not isinstance(v, (list, tuple))


def _value(x: Tensor, v: Any, shape: tuple[Any, ...] | None) -> Tensor:
    """Return the value in x's dtype, on its device (any for files), broadcast to ``shape``; no lossy dtypes."""
    in_file = str(x.device).startswith("DISK")  # takes values from anywhere: they are computed where they are
    given: Any = v if hasattr(v, "_uop") else type(x)(v, dtype=x.dtype, device=None if in_file else x.device)
    value: Tensor = given if hasattr(given, "assign") else x._wrap_uop(given)
    if value.dtype != x.dtype:
        loses = least_upper_dtype(x.dtype, value.dtype) is not x.dtype
        if loses and hasattr(v, "_uop"):
            raise DTypeError(
                error_text(
                    "setitem",
                    f"setitem dtype mismatch: {x.dtype} and {value.dtype}",
                    {"tensor": x, "value": value},
                    hint=f"value.cast({x.dtype})",
                )
            )
        value = value.cast(x.dtype)
    if not in_file:
        x._check_same_device("setitem", value)
    if shape is None:
        return value
    # Leading dims of size 1 are dropped, as numpy does.
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value.reshape(value.shape[1:])
    try:
        return value._broadcast_to(shape)
    except ShapeError:
        raise ShapeError(
            error_text(
                "setitem",
                f"value of shape {shown(value.shape)} does not broadcast to the selection {shown(shape)}",
                {"tensor": x, "value": value},
            )
        ) from None


def _array_shape(x: Any, found: Selection) -> tuple[Any, ...]:
    from tinygrad.mixin.index import _broadcast_indices

    return _broadcast_indices(x, [array for _, array in found.arrays]) if found.arrays else ()


def _result_shape(x: Any, found: Selection) -> tuple[Any, ...]:
    taken = {dim for dim, _ in found.arrays}
    rest = [size for dim, size in enumerate(found.shape) if dim not in taken]
    return (*rest[: found.place], *_array_shape(x, found), *rest[found.place :])


def flat_positions(x: Any, found: Selection, shape: tuple[Any, ...]) -> UOp:
    """Return the row-major positions in x of every element of the selection; -1 where an index is out of bounds."""
    from tinygrad.uop.ops import UOp

    arrays = dict(found.arrays)
    places = len(_array_shape(x, found))
    rest = [dim for dim in range(len(found.shape)) if dim not in arrays]
    kind = position_dtype(prod(x.shape))
    total: UOp = UOp.const(0, kind)
    inside: UOp | None = None
    step = 1
    for r, dim, size in reversed(list(zip(found.ranges, found.dims, x.shape, strict=True))):
        if dim in arrays:
            at = as_index(arrays[dim]._uop, size)
            valid = (at > -1) & (at < size)
            behind = (1,) * (len(shape) - found.place - places)
            at, valid = (y.reshape((*y.shape, *behind)) for y in (at, valid))
            inside = valid if inside is None else inside & valid
            total = total + at.cast(kind) * step
        elif dim is None:
            total = total + r.start * step
        else:
            number = rest.index(dim)
            axis = number if number < found.place else number + places
            along = UOp.arange(r.count, dtype=kind) * (r.step * step) + r.start * step
            total = total + along.reshape((r.count, *(1,) * (len(shape) - axis - 1)))
        step = step * size
    return (total if inside is None else inside.where(total, -1))._broadcast_to(shape)


def _write_positions(x: Tensor, positions: UOp, value: UOp) -> None:
    from tinygrad.live import rebase
    from tinygrad.repointing import show_written, stored_view

    if isinstance(x.device, tuple):
        _write_positions_everywhere(x, positions, value)
        return
    view, base, buffer = stored_view(x)
    if not view.has_buffer_identity(after_ok=True):
        # Number the elements of the storage, look at the numbers through the view, and pick those that are written.
        numbers = type(base).arange(base.shape[0], dtype=position_dtype(base.shape[0]))
        seen = rebase(view, base, numbers).flatten()
        positions = (positions > -1).where(gather_rows(seen, positions), -1)
    show_written(buffer, indexed_store(base, settled_positions(positions), settled(value)))


def _write_positions_everywhere(x: Tensor, positions: UOp, value: UOp) -> None:
    """Write over several devices: each makes the whole new value, and keeps its piece of it."""
    from tinygrad.repointing import write_view

    written = store_at(x.uop.gathered().flatten(), positions.gathered(), value.gathered()).reshape(x.shape)
    write_view(x, written.place_like(x.uop))


def _items(indices: Any) -> tuple[Any, ...]:
    return indices if isinstance(indices, tuple) else (indices,)


def _refuse_other_uses(x: Tensor, *written: Any) -> None:
    """Raise if a live tensor besides x, the written value and the indices reads the storage of x."""
    from tinygrad.live import buffer_under, writes_through

    if buffer_under(x.uop) is None or not writes_through(x.uop):
        return
    values = {v.uop for v in written if hasattr(v, "uop")}
    if _other_use(x, values) is None:
        return
    gc.collect()  # what an exception has left in a circle of references is nobody's any more
    other = _other_use(x, values)
    if other is not None:
        raise RuntimeError(
            error_text(
                "setitem",
                "can't setitem on a tensor with other uses: another tensor that is not computed yet reads it",
                {"tensor": x, "other": other},
                hint="realize the other tensor first, or write to a .clone()",
            )
        )


def _other_use(x: Tensor, values: set[UOp]) -> Tensor | None:
    """Return a live tensor that reads the storage of x, besides x and tensors that show one of ``values``."""
    from tinygrad.live import buffer_under, storage_under, unsettled_over

    buffer, base = buffer_under(x.uop), storage_under(x.uop)
    seen: set[UOp] = set()
    for other in unsettled_over([base]):
        u = other.uop
        if other is x or u in values or buffer_under(u) is buffer or not u.ops_below >> base.op & 1:
            continue
        stack = [u]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node is base:
                return other
            stack.extend(node.src)
    return None
