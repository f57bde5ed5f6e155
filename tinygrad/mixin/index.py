"""Indexing: ``x[...]``, gather, scatter.

In:   a tensor and index expressions (ints, slices, None, Ellipsis, lists, integer tensors, bool masks).
Out:  views for ints and slices; one indexed load for all index arrays together; indexed stores for writes. Entries
      of index tensors that are out of bounds read as 0 and write nothing; ints and lists are checked when built.
Why:  reading costs memory traffic only for what is selected, and out-of-bounds positions cannot touch memory.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, Self

from tinygrad.dtype import dtypes
from tinygrad.dtype_lattice import least_upper_dtype, require_fit, strong_dtype
from tinygrad.errors import DTypeError, ShapeError, error_text, shown
from tinygrad.helpers import CHECK_BOUNDS, prod
from tinygrad.mixin.composite import CompositeShapeError, RankError
from tinygrad.mixin.gather import (
    as_index,
    gather_along,
    gather_rows,
    position_dtype,
    positions_along,
    store_at,
    stores_are_dear,
    zeros,
)
from tinygrad.mixin.hooks import exceeds, most_of, running_capture, ssimplify
from tinygrad.mixin.index_literals import IndexLiteral, is_array, is_several_items, read_literal
from tinygrad.mixin.mask import MaskMixin
from tinygrad.mixin.padding import pad_constant
from tinygrad.mixin.selection import Range, Selection, is_symbolic, scalar_masks_as_rows, select
from tinygrad.settings import ALLOW_DEVICE_USAGE
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tinygrad.dtype import DType
    from tinygrad.uop.ops import UOp

# A list of at most this many arbitrary ints becomes index arithmetic; a longer one becomes a buffer.
LITERAL_LIMIT = 16


class IndexMixin(MaskMixin):
    """Indexing methods of Tensor and UOp."""

    __slots__ = ()

    # ---- reading ---------------------------------------------------------------------------------------------------

    def __getitem__(self, indices: Any) -> Self:
        """Select by numpy's rules.

        Args:
            indices: One item or a tuple of items: int, symbolic int, slice with any step but 0, None, Ellipsis, list,
                range or another sequence, integer tensor, bool mask (which is realized, since its count is a size).

        Raises:
            ShapeError: Too many items, an int or list entry out of bounds, index arrays that do not broadcast.
            IndexError: An item of another type.
            RuntimeError: An index tensor is on another device.

        Example:
            >>> Tensor.arange(6).reshape(2, 3)[1, ::-1].tolist()
            [5, 4, 3]
        """
        x, items = scalar_masks_as_rows(self, indices)
        selected: Self = x._select(x._selection(items))
        return selected

    def __setitem__(self, indices: Any, v: Any) -> None:
        """Write ``v``, broadcast to the selection, in place; the last write to a place wins.

        Views of the same storage see the change, and gradients flow to ``v`` and to what was not overwritten.

        Args:
            indices: As for reading.
            v: Number, list, array, or tensor of a dtype that arithmetic with this one would turn into this one: an
                int tensor may be written to a float tensor, a float tensor needs a ``cast`` to go to an int tensor.

        Raises:
            RuntimeError: ``v`` is a tensor of another dtype than these, the dtype of this tensor is weak, or a
                computation that has not run yet reads this tensor.
            TypeError: ``v`` is None.
            OverflowError: ``v`` is an int (or infinite) that the integer dtype does not hold.
            ValueError: ``v`` is nan, and the dtype an integer one.
            ShapeError: ``v`` does not broadcast; and as for reading.

        Example:
            >>> t = Tensor.zeros(3)
            >>> t[[0, 2]] = 5
            >>> t.tolist()
            [5.0, 0.0, 5.0]
        """
        from tinygrad.mixin.setitem import write_selection

        write_selection(self, indices, v)

    def _selection(self, indices: Any) -> Selection:
        items = tuple(indices) if isinstance(indices, tuple) else (indices,)
        if is_several_items(indices):
            items = tuple(indices)  # a list of lists is taken as a tuple of index lists
        literals: dict[int, list[int]] = {}
        tensors = [self._index_item(item, literals) for item in items]
        found = select(self, tensors, lambda mask: mask._nonzero_columns())
        for dim, array in found.arrays:
            size = found.shape[dim]
            most = size if isinstance(size, int) else int(size.vmax)
            needed = [v + 1 if v >= 0 else -v for v in literals.get(id(array), ())]
            if exceeds(max(needed, default=0), size):
                most = most_of(size)
                wrong = [v for v in literals[id(array)] if not -most <= v < most]
                raise ShapeError(
                    error_text(
                        "getitem",
                        f"index {wrong[0]} is out of bounds for a dim of size {shown(size)}",
                        {"tensor": self},
                        rule=f"{-most} <= index < {most}",
                    )
                )
            self._check_bounds("getitem", array, -size if isinstance(size, int) else 0, size)
        return found

    def _check_bounds(self, name: str, index: Any, lowest: int, size: Any) -> None:
        """With CHECK_BOUNDS=1, look at an index tensor now; in a JIT capture, let each replay look.

        Raises:
            ShapeError: An entry is below ``lowest`` or not below ``size``.
        """
        if not CHECK_BOUNDS or not hasattr(index, "tolist") or not ALLOW_DEVICE_USAGE:
            return
        widest = dtypes.uint64 if dtypes.is_unsigned(index.dtype) else dtypes.int64
        wrong = (index < lowest) | (index.cast(widest) >= size)

        def text(found: str) -> str:
            most = shown(size)
            summary, rule = f"{found} is out of bounds for a dim of size {most}", f"{lowest} <= index < {most}"
            return error_text(name, summary, {"tensor": self, "index": index}, rule=rule)

        capture = running_capture()
        if capture is not None:
            note = getattr(capture, "note_check", None)
            if note is not None and 0 not in index.shape:
                note(wrong.any(), (index < lowest).any().where(index.min(), index.max()), text)
            return
        if not wrong.any().item():
            return
        place = tuple(wrong.nonzero().tolist()[0])
        value = index.flatten().masked_select(wrong.flatten()).tolist()[0]
        raise ShapeError(text(f"index {value} at position {place}"))

    def _index_item(self, item: Any, literals: dict[int, list[int]]) -> Any:
        """Return lists and arrays as index tensors (their ints noted in ``literals``), and everything else checked."""
        if isinstance(item, bool):
            raise RuntimeError(
                error_text(
                    "getitem",
                    f"the Python bool {item} is no index",
                    {"tensor": self},
                    rule="an int, or a mask: a bool tensor, array or list",
                    hint=f"Tensor({item}) is a mask of 0 dims, int({item}) a position",
                )
            )
        listed = read_literal(item)
        if listed is not None:
            return self._index_literal(listed, literals)
        if is_array(item):
            return item.item()
        if hasattr(item, "_uop") and not is_symbolic(item):
            if dtypes.is_float(item.dtype):
                raise IndexError(
                    error_text(
                        "getitem",
                        f"index tensor of dtype {item.dtype}",
                        {"index": item},
                        rule="index tensors are integer or bool",
                        hint=".cast(dtypes.int32)",
                    )
                )
            self._check_same_device("getitem", item)
        return item

    def _check_same_device(self, name: str, other: Any) -> None:
        if None not in (self.device, other.device) and self.device != other.device:
            raise RuntimeError(
                error_text(
                    name,
                    f"tensors are on different devices: {self.device} and {other.device}",
                    {"tensor": self, "other": other},
                    hint=f"other.to({self.device!r})",
                )
            )

    def _index_literal(self, listed: IndexLiteral, literals: dict[int, list[int]]) -> Self:
        """Return listed ints or bools as an index tensor."""
        # What int64 does not hold is beyond every size: it is an error of the bounds, which ``literals`` is for.
        numbers = [min(max(v, dtypes.int64.min), dtypes.int64.max) for v in listed.numbers]
        made = self._constants(numbers, position_dtype(max(map(abs, numbers), default=0))).reshape(listed.shape)
        if listed.is_mask:
            return made.cast(dtypes.bool)
        literals[id(made)] = listed.numbers
        return made

    def _constants(self, values: Sequence[int], dtype: DType) -> Self:
        """Return known ints as a 1-d tensor: index arithmetic if they are few or evenly spaced, else a buffer."""
        n = len(values)
        step = values[1] - values[0] if n > 1 else 0
        at = type(self).arange(n, dtype=dtype)
        if all(b - a == step for a, b in itertools.pairwise(values)):
            return at * step + (values[0] if n else 0)
        if n > LITERAL_LIMIT:
            from tinygrad.uop.ops import UOp

            return self._wrap_uop(UOp._frompy(list(values), dtype, self.device))
        made = at * 0 + values[0]
        for i, value in enumerate(values[1:], 1):
            made = at.eq(i).where(value, made).cast(dtype)
        return made

    def _select(self, found: Selection) -> Self:
        view = self._strided(found.ranges).reshape(tuple(found.shape))
        if not found.arrays:
            return view
        dims = [dim for dim, _ in found.arrays]
        index, _ = self._linear_index(found)
        rest = [i for i in range(view.ndim) if i not in dims]
        rows = view.permute((*dims, *rest))
        table = rows.reshape(prod(rows.shape[: len(dims)]), *rows.shape[len(dims) :])
        picked = self._wrap_uop(gather_rows(table._uop, index))
        # (*places, *rest) -> rest[:place], places, rest[place:]
        places, place = index.ndim, found.place
        order = (*range(places, places + place), *range(places), *range(places + place, picked.ndim))
        return picked.permute(order)

    def _strided(self, ranges: Sequence[Range]) -> Self:
        """Return the view of start, start + step, ... along every dim."""
        flipped = tuple(i for i, r in enumerate(ranges) if r.step < 0)
        x = self.flip(flipped) if flipped else self
        bounds: list[tuple[Any, Any]] = []
        pads: list[tuple[Any, Any]] = []
        phases: list[int] = []
        for r, size in zip(ranges, self.shape, strict=True):
            start, step = (size - 1 - r.start, -r.step) if r.step < 0 else (r.start, r.step)
            if r.is_empty or step == 1:
                starts = isinstance(start, int) and start == 0
                bounds.append((0, 0) if r.is_empty else (start, r.count if starts else start + r.count))
                pads.append((0, 0))
                phases.append(0)
                continue
            if r.span is not None:
                # Which end of a symbolic dim is nearer is not known: whole steps from the start, the last one padded.
                bounds.append((start, start + r.span))
                pads.append((0, ssimplify(r.count * step - r.span)))
                phases.append(0)
                continue
            # A box of whole steps that holds all picks; it may begin before the first one, so that it lies inside.
            begin = max(min(start, size - r.count * step), 0)
            end = min(begin + r.count * step, size)
            bounds.append((begin, end))
            pads.append((0, begin + r.count * step - end))
            phases.append(start - begin)
        x = pad_constant(x.shrink(bounds), tuple(pads), 0)
        steps = [1 if r.is_empty else abs(r.step) for r in ranges]
        if all(step == 1 for step in steps):
            return x
        cut = x.reshape(tuple(v for r, step in zip(ranges, steps, strict=True) for v in (r.count, step)))
        picks = cut.shrink([v for phase in phases for v in (None, (phase, phase + 1))])
        return picks.reshape(tuple(r.count for r in ranges))

    def _linear_index(self, found: Selection) -> tuple[UOp, tuple[Any, ...]]:
        """Return the row number in the flattened indexed dims (-1 where an entry is out of bounds), and their sizes."""
        sizes = tuple(found.shape[dim] for dim, _ in found.arrays)
        indices = [as_index(array._uop, size) for (_, array), size in zip(found.arrays, sizes, strict=True)]
        if len(indices) == 1:
            return indices[0], sizes
        shape = _broadcast_indices(self, [array for _, array in found.arrays])
        kind = position_dtype(prod(sizes))
        rows: Any = None
        inside: Any = None
        for index, size in zip(indices, sizes, strict=True):
            valid = (index > -1) & (index < size)
            rows = index.cast(kind) if rows is None else rows * size + index.cast(kind)
            inside = valid if inside is None else inside & valid
        return inside.where(rows, -1)._broadcast_to(shape), sizes

    def _take(self, index: Self, dim: int) -> Self:
        """Return the entries ``index`` (1-d, not negative) along ``dim``."""
        order = (dim, *(i for i in range(self.ndim) if i != dim))
        rows = self._wrap_uop(gather_rows(self.permute(order)._uop, index._uop))
        return rows.permute(tuple(order.index(i) for i in range(self.ndim)))

    # ---- gather and scatter ----------------------------------------------------------------------------------------

    def _check_index(self, name: str, dim: int, index: Self) -> int:
        if index.ndim != self.ndim:
            raise RankError(
                error_text(
                    name,
                    f"index has {index.ndim} dims, the tensor {self.ndim}",
                    {"tensor": self, "index": index},
                    rule="index.ndim == self.ndim",
                )
            ) from None
        if not dtypes.is_int(index.dtype):
            raise DTypeError(
                error_text(name, f"index has dtype {index.dtype}", {"index": index}, rule="indices are integers")
            )
        self._check_same_device(name, index)
        axis = self._resolve_dim(dim, op=name)
        if any(exceeds(n, m) for i, (n, m) in enumerate(zip(index.shape, self.shape, strict=True)) if i != axis):
            raise CompositeShapeError(
                error_text(
                    name,
                    f"index of shape {shown(index.shape)} is larger than {shown(self.shape)} outside dim {axis}",
                    {"tensor": self, "index": index},
                    rule="index.shape[i] <= self.shape[i] for i != dim",
                )
            )
        self._check_bounds(name, index, 0, self.shape[axis] if self.ndim else 1)
        return axis

    def gather(self, dim: int, index: Self) -> Self:
        """Return ``self[i][index[i][j]][k]`` (for dim 1 of 3; as torch): entries picked along one dim.

        Args:
            dim: The dim that is indexed.
            index: Integers, as many dims as ``self``, not larger in the other dims; entries out of bounds read 0.

        Raises:
            ShapeError: Ranks or sizes do not fit.
            RuntimeError: The index is no integer tensor, or on another device.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]])).tolist()
            [[2], [3]]
        """
        axis = self._check_index("gather", dim, index)
        if self.ndim == 0:
            return self.reshape(1).gather(0, index.reshape(1)).reshape(())
        x = self.shrink([None if i == axis else (0, n) for i, n in enumerate(index.shape)])
        order, back = _to_last(self.ndim, axis)
        at = index._uop.permute(order)
        at = at.cast(dtypes.int64 if at.dtype.itemsize == 8 or at.dtype == dtypes.uint32 else dtypes.int32)
        return self._wrap_uop(gather_along(x._uop.permute(order), at).permute(back))

    def scatter(self, dim: int, index: Self, src: Any, reduce: Literal["multiply", "add"] | None = None) -> Self:
        """Return a copy with ``src`` written along ``dim`` at ``index`` (as torch); the last of equal indices wins.

        Args:
            dim: The dim that is indexed.
            index: Integers, as many dims as ``self``; entries out of bounds write nothing.
            src: Tensor at least as large as the index, or a number.
            reduce: ``add`` or ``multiply`` combines a number with what is there.

        Raises:
            TypeError: Another ``reduce``, or a tensor together with ``reduce``.
            RuntimeError: Dtypes or devices differ.
            ShapeError: Ranks or sizes do not fit.

        Example:
            >>> Tensor.zeros(3).scatter(0, Tensor([2]), 5.0).tolist()
            [0.0, 0.0, 5.0]
        """
        if reduce not in {None, "add", "multiply"}:
            raise TypeError(f"scatter: reduce={reduce!r}; expected None, 'add' or 'multiply'")
        if reduce is not None and hasattr(src, "_uop"):
            raise TypeError("scatter: reduce takes a number as src; scatter_reduce takes tensors")
        x = self._strong_beside(src)
        axis = x._check_index("scatter", dim, index)
        values = x._scatter_source("scatter", axis, index, src)
        kind: str = {"multiply": "prod", "add": "sum"}.get(str(reduce), "last")
        if isinstance(x.device, tuple):
            return x._scatter_compare(axis, index, values, kind, True)
        return x._scatter_store(axis, index, values, kind, True)

    def _strong_beside(self, src: Any) -> Self:
        """Return a tensor that may be written to: one of a weak dtype gets the dtype of arithmetic with ``src``."""
        if self.dtype not in dtypes.weaks:
            return self
        return self.cast(strong_dtype(least_upper_dtype(self.dtype, src.dtype) if hasattr(src, "_uop") else self.dtype))

    def _scatter_store(self, axis: int, index: Self, values: Self, reduce: str, include_self: bool) -> Self:
        """Scatter by one store in program order, so in time linear in the size of the index."""
        if reduce == "amin":
            mirrored = self._mirrored()._scatter_store(axis, index, values._mirrored(), "amax", include_self)
            return mirrored._mirrored()
        order, back = _to_last(self.ndim, axis)
        base = self._uop.permute(order)
        at = index._uop.permute(order).cast(dtypes.int64 if index.dtype.itemsize == 8 else dtypes.int32)
        positions = _pad_batch(at, base.shape[:-1])
        value = values._uop.permute(order)
        value = value.pad(tuple((0, n - m) for n, m in zip(positions.shape, value.shape, strict=True)))
        flat, start = positions_along(positions, base.shape[-1]), base.flatten()
        one = flat.const_like(1, dtypes.int32)
        count = store_at(zeros(start.shape[0], dtypes.int32), flat, one, Ops.ADD, self.device or values.device)
        if not include_self:
            neutral = {"prod": 1, "amax": self.dtype.min}.get(reduce, 0)
            start = (count > 0).where(neutral, start).cast(self.dtype)
        done = store_at(start, flat, value, _COMBINE[reduce])
        if reduce == "mean":
            number = (count + 1 if include_self else count).maximum(1)
            done = done.div(number, rounding_mode=None if dtypes.is_float(self.dtype) else "floor").cast(self.dtype)
        return self._wrap_uop(done.reshape(base.shape).permute(back))

    def _scatter_source(self, name: str, axis: int, index: Self, src: Any) -> Self:
        if not hasattr(src, "_uop"):
            require_fit(name, src, self.dtype)
            return index.const_like(src, self.dtype)
        self._check_same_device(name, src)
        if src.dtype != self.dtype and src.dtype not in dtypes.weaks:
            raise DTypeError(
                error_text(
                    name,
                    f"src is {src.dtype}, the tensor {self.dtype}",
                    {"tensor": self, "src": src},
                    rule="equal dtypes",
                    hint=f"src.cast({self.dtype})",
                )
            )
        if src.ndim != index.ndim or any(map(exceeds, index.shape, src.shape)):
            raise CompositeShapeError(
                error_text(
                    name,
                    f"index of shape {shown(index.shape)} is larger than src of shape {shown(src.shape)}",
                    {"index": index, "src": src},
                    rule="index.shape[i] <= src.shape[i]",
                )
            )
        source: Self = src.cast(self.dtype).shrink_to(index.shape)
        return source

    def scatter_reduce(
        self,
        dim: int,
        index: Self,
        src: Self,
        reduce: Literal["sum", "prod", "mean", "amax", "amin"],
        include_self: bool = True,
    ) -> Self:
        """Combine along ``dim`` all ``src`` values that go to one place (as torch).

        Args:
            dim: The dim that is indexed.
            index: Integers, as many dims as ``self``.
            src: At least as large as the index.
            reduce: ``sum``, ``prod``, ``mean``, ``amax`` or ``amin``.
            include_self: Whether the present value takes part.

        Raises:
            RuntimeError: Another ``reduce``; dtypes or devices differ.
            ShapeError: Ranks or sizes do not fit.

        Example:
            >>> Tensor([1, 1, 1]).scatter_reduce(0, Tensor([0, 0, 2]), Tensor([2, 3, 4]), "sum").tolist()
            [6, 1, 5]
        """
        if reduce not in {"sum", "prod", "mean", "amax", "amin"}:
            raise RuntimeError(f"scatter_reduce: reduce={reduce!r}; expected sum, prod, mean, amax or amin")
        x = self._strong_beside(src)
        axis = x._check_index("scatter_reduce", dim, index)
        values = x._scatter_source("scatter_reduce", axis, index, src)
        if reduce == "mean" and dtypes.is_float(x.dtype) and x.dtype.itemsize < 4:
            wide = x.float().scatter_reduce(axis, index, values.float(), reduce, include_self)
            return wide.cast(x.dtype)  # a sum may overflow where the mean does not
        # A comparison of few places, or on several devices. A maximum of bools is no arithmetic.
        if stores_are_dear(x._uop, x.shape[axis], index.shape[axis]) or x.dtype is dtypes.bool:
            return x._scatter_compare(axis, index, values, reduce, include_self)
        return x._scatter_store(axis, index, values, reduce, include_self)

    def _scatter_compare(self, axis: int, index: Self, values: Self, reduce: str, include_self: bool) -> Self:
        """Scatter by comparing every place with every index; for few elements, and for what is no plain store."""
        order, back = _to_last(self.ndim, axis)
        x = self.permute(order)
        pads = tuple((0, n - m) for n, m in zip(x.shape[:-1], index.permute(order).shape[:-1], strict=True))
        n, m = x.shape[-1], index.shape[axis]
        at = index.permute(order).cast(dtypes.int64 if index.dtype.itemsize == 8 else dtypes.int32)
        at = at.pad((*pads, (0, 0)), value=-1).unsqueeze(-2)
        value = values.permute(order).pad((*pads, (0, 0))).unsqueeze(-2)
        hit = at.eq(type(self).arange(n, dtype=at.dtype).reshape(n, 1))  # (..., n, m)
        count = hit.sum(axis=-1)
        if reduce == "last":
            order_of = type(self).arange(m, dtype=dtypes.int32)
            last = hit.where(order_of, -1).max(axis=-1, keepdim=True)
            chosen = order_of.eq(last).where(value, 0).sum(axis=-1)
            result = (count > 0).where(chosen.cast(self.dtype), x)
        elif reduce in {"sum", "mean"}:
            total = hit.where(value, 0).sum(axis=-1).cast(self.dtype)
            base = x if include_self else (count > 0).where(0, x)
            result = total + base
            if reduce == "mean":
                number = (count + 1 if include_self else count).maximum(1)
                result = result.div(number, rounding_mode=None if dtypes.is_float(self.dtype) else "floor")
        elif reduce == "prod":
            base = x if include_self else (count > 0).where(1, x)
            result = hit.where(value, 1).prod(axis=-1) * base
        else:
            fill = self.dtype.min if reduce == "amax" else self.dtype.max
            found = hit.where(value, fill).cast(self.dtype)
            if include_self:  # one more candidate, so that equal ones share the gradient equally
                found = found.cat(x.unsqueeze(-1), dim=-1)
            best = found.max(axis=-1) if reduce == "amax" else found.min(axis=-1)
            result = (count > 0).where(best, x)
        return result.cast(self.dtype).permute(back)


_COMBINE: dict[str, Ops | None] = {"last": None, "sum": Ops.ADD, "mean": Ops.ADD, "prod": Ops.MUL, "amax": Ops.MAX}


def _to_last(ndim: int, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the order that moves ``axis`` to the end, and its inverse."""
    order = (*(i for i in range(ndim) if i != axis), axis)
    return order, tuple(order.index(i) for i in range(ndim))


def _pad_batch(index: UOp, batch: tuple[Any, ...]) -> UOp:
    """Grow the leading dims of an index to ``batch`` with entries that write nothing."""
    pads = (*((0, n - m) for n, m in zip(batch, index.shape[:-1], strict=True)), (0, 0))
    return index.pad(pads, value=-1)


def _broadcast_indices(x: Any, arrays: Sequence[Any]) -> tuple[Any, ...]:
    from tinygrad.uop.infer import broadcast_shape

    try:
        return broadcast_shape(*(tuple(a.shape) for a in arrays))
    except ShapeError:
        raise ShapeError(
            error_text(
                "getitem",
                "index arrays of shapes " + ", ".join(str(a.shape) for a in arrays) + " do not broadcast",
                {"tensor": x},
                rule="sizes of index arrays are equal or 1",
            )
        ) from None
