"""Reading an index expression: what ``x[...]`` selects, before any node is built.

In:   the shape of x and index items: ints, slices, None, Ellipsis, symbolic ints, index arrays, bool masks.
Out:  ``Selection``: one strided range per dim, index arrays by dim, and where the new dims go (numpy's rules).
Why:  reads and writes share one reading of the rules, and every mistake is found before a node exists.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.mixin.hooks import distance, exceeds, known_size, ssimplify
from tinygrad.mixin.index_literals import holds_bools, is_array, is_nested_mask, read_literal
from tinygrad.record import field, record


@record(frozen=True)
class Range:
    """Positions start, start + step, ... of one dim: ``count`` of them.

    Start and count may be symbolic. If one is, and the step is not 1, ``span`` is the distance from start to stop.
    """

    start: Any
    count: Any
    step: int = 1
    span: Any = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is selected."""
        return isinstance(self.count, int) and self.count == 0


@record
class Selection:
    """What an index expression selects.

    Args:
        ranges: One per dim of x; dims with an index array are whole.
        dims: For each dim of x the dim of the view that it becomes, None where an int drops it.
        shape: Of the view: for each index item a size (1 for None), ints left out, arrays' dims whole.
        arrays: (dim of the view, index array) of each index array.
        place: Position in the result where the broadcast dims of the arrays go.
    """

    ranges: list[Range] = field(default_factory=list)
    dims: list[int | None] = field(default_factory=list)
    shape: list[Any] = field(default_factory=list)
    arrays: list[tuple[int, Any]] = field(default_factory=list)
    place: int = 0


def is_symbolic(item: Any) -> bool:
    """Return whether an index item is a symbolic int (a node without device and dims)."""
    return hasattr(item, "vmin") and hasattr(item, "src") and item._shape == () and item.device is None


def _is_int(item: Any) -> bool:
    return not isinstance(item, bool) and (
        isinstance(item, int) or (hasattr(item, "__index__") and not hasattr(item, "_uop"))
    )


def _is_mask(item: Any) -> bool:
    from tinygrad.dtype import dtypes

    return hasattr(item, "_uop") and item.dtype == dtypes.bool


def is_scalar_mask(item: Any) -> bool:
    """Return whether an index item is a bool tensor or numpy array (or scalar) of no dims."""
    from tinygrad.dtype import dtypes

    if getattr(item, "ndim", None) != 0 or not hasattr(item, "dtype") or is_symbolic(item):
        return False
    return bool(item.dtype == dtypes.bool if hasattr(item, "_uop") else holds_bools(item))


def scalar_masks_as_rows(x: Any, indices: Any) -> tuple[Any, Any]:
    """Give x a dim of size 1 where a mask of 0 dims stands, and the mask that dim: numpy's reading of such a mask.

    So ``x[Tensor(True)]`` has x as its one row, ``x[Tensor(False)]`` has no row.
    """
    items = list(indices) if isinstance(indices, tuple) else [indices]
    for number, item in enumerate(items):
        if not is_scalar_mask(item):
            continue
        before, behind = items[:number], items[number + 1 :]
        is_from_end = any(i is Ellipsis for i in before)
        used = sum(_dims_used(i) for i in (behind if is_from_end else before))
        at = x.ndim - used if is_from_end else used
        if not 0 <= at <= x.ndim:
            break  # too many items: ``select`` says so
        x = x.reshape((*x.shape[:at], 1, *x.shape[at:]))
        items[number] = item.reshape(1) if hasattr(item, "_uop") else [0] if item else []
    return x, tuple(items) if isinstance(indices, tuple) else items[0]


def _dims_used(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    if is_nested_mask(item):
        return 1 if (found := read_literal(item)) is None else len(found.shape)
    is_mask = hasattr(item, "dtype") and (_is_mask(item) or (is_array(item) and holds_bools(item)))
    return item.ndim if is_mask else 1


def select(x: Any, items: Sequence[Any], nonzero: Callable[[Any], Sequence[Any]]) -> Selection:
    """Resolve index items against the shape of x.

    Args:
        x: Anything with a shape.
        items: Index items; lists and numpy arrays have become index arrays already.
        nonzero: Turns a bool mask into one index array per dim of the mask.

    Raises:
        ShapeError: Too many items, an int out of bounds, several Ellipsis, a mask of another shape.
        IndexError: An item of another type.
        TypeError: A slice bound is not an int.
        ValueError: A slice step is 0.
    """
    full = _expand_ellipsis(x, list(items))
    found = Selection()
    advanced = any(hasattr(i, "_uop") and not is_symbolic(i) for i in full)
    positions: list[int] = []  # of ints and arrays among the items, to see whether they are neighbours
    dim = 0
    for number, item in enumerate(full):
        if item is None:
            found.shape.append(1)
            continue
        if item is Ellipsis:
            continue
        if _is_mask(item):
            arrays = _mask_arrays(x, item, dim, nonzero)
            _note_place(found, positions, number)
            dim = _add_arrays(x, found, arrays, dim)
            continue
        size = x.shape[dim]
        if isinstance(item, slice):
            part = _slice_range(x, dim, item)
            found.ranges.append(part)
            found.dims.append(len(found.shape))
            found.shape.append(part.count)
        elif is_symbolic(item) or _is_int(item):
            found.ranges.append(Range(_int_position(x, dim, item), 1))
            found.dims.append(None)
            if advanced:
                _note_place(found, positions, number)
        elif hasattr(item, "_uop"):
            _note_place(found, positions, number)
            dim = _add_arrays(x, found, [item], dim)
            continue
        else:
            raise IndexError(_bad_item(item, size))
        dim += 1
    if positions and positions[-1] - positions[0] + 1 != len(positions):
        found.place = 0
    return found


def _note_place(found: Selection, positions: list[int], number: int) -> None:
    if not positions:
        found.place = len(found.shape)
    positions.append(number)


def _add_arrays(x: Any, found: Selection, arrays: Sequence[Any], dim: int) -> int:
    for array in arrays:
        found.arrays.append((len(found.shape), array))
        found.ranges.append(Range(0, x.shape[dim]))
        found.dims.append(len(found.shape))
        found.shape.append(x.shape[dim])
        dim += 1
    return dim


def _mask_arrays(x: Any, mask: Any, dim: int, nonzero: Callable[[Any], Sequence[Any]]) -> Sequence[Any]:
    covered = tuple(x.shape[dim : dim + mask.ndim])
    # A mask without elements selects nothing wherever it stands: numpy lets its dims of size 0 cover any size.
    if any(size not in (0, over) for size, over in zip(mask.shape, covered, strict=True)):
        raise ShapeError(
            error_text(
                "getitem",
                f"mask of shape {shown(mask.shape)} for dims of shape {shown(covered)}",
                {"tensor": x, "mask": mask},
                rule="a mask has the shape of the dims that it covers",
            )
        )
    return nonzero(mask)


def _expand_ellipsis(x: Any, items: list[Any]) -> list[Any]:
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise ShapeError(error_text("getitem", "an index can only have a single ellipsis ('...')", {"tensor": x}))
    used = sum(item.ndim if _is_mask(item) else 1 for item in items if item is not None and item is not Ellipsis)
    if used > x.ndim:
        raise ShapeError(
            error_text(
                "getitem",
                f"too many indices: {used} for {x.ndim} dims",
                {"tensor": x},
                rule="at most one index per dim",
            )
        )
    at = ellipses[0] if ellipses else len(items)
    # One that stands for no dims is kept: it separates index arrays, as in numpy.
    expanded: list[Any] = [slice(None)] * (x.ndim - used) or ([Ellipsis] if ellipses else [])
    return [*items[:at], *expanded, *items[at + 1 :]]


def _int_position(x: Any, dim: int, item: Any) -> Any:
    size = x.shape[dim]
    place = item if is_symbolic(item) else operator.index(item)
    known, most = known_size(place), known_size(size)
    if most is None:
        most = int(size.vmax)
    least = -most if not is_symbolic(item) or _is_negative(item) else 0
    if known is not None and not least <= known < most:
        is_unsure = least == 0 and -most <= known < 0
        raise ShapeError(
            error_text(
                "getitem",
                f"index {shown(place)} is out of bounds for dim {dim} of size {shown(size)}",
                {"tensor": x},
                rule=f"{least} <= index < {most}",
                hint="a node counts from the end where all of its values are negative" if is_unsure else None,
            )
        )
    return place + size if _is_negative(place) else place


def _is_negative(place: Any) -> bool:
    """Return whether a position counts from the end: a negative int, or a node that is negative for all its values.

    That is known of the Variable, not of the value of now, so that replays of a capture count from the same end.
    """
    return bool((place.vmax if hasattr(place, "vmax") else place) < 0)


def _slice_range(x: Any, dim: int, item: slice) -> Range:
    size = x.shape[dim]
    bounds = (item.start, item.stop, item.step)
    if isinstance(size, int) and not any(hasattr(b, "vmin") for b in bounds):
        if any(hasattr(b, "_uop") for b in bounds):
            raise TypeError(
                error_text("getitem", "slice bounds are tensors", {"tensor": x}, "slice bounds must be ints",
                           hint="read them with .item(), or use a bound Variable")
            )  # fmt: skip
        start, stop, step = item.indices(size)
        count = len(range(start, stop, step))
        return Range(start if count else 0, count, step)
    return _symbolic_range(x, dim, item)


def _symbolic_range(x: Any, dim: int, item: slice) -> Range:
    """Return the range of a slice whose bounds or dim are symbolic: ceil(length / step) positions.

    Symbolic bounds are not clamped: one beyond the dim, such as a cache that is full, is an error.
    """
    size = x.shape[dim]
    step = _symbolic_step(x, item)
    first, end = (0, size) if step > 0 else (size - 1, -1)
    start = first if item.start is None else _slice_bound(x, item.start, size, step)
    stop = end if item.stop is None else _slice_bound(x, item.stop, size, step)
    below, above = (start, stop) if step > 0 else (stop, start)
    length = distance(below, above)
    if not (is_symbolic(item.start) or is_symbolic(item.stop)) and (known_size(length) or 0) < 0:
        exceeds(above, below)  # found to be empty; replays of a capture check that it is
        return Range(0, 0, step)
    if step == 1:
        return Range(start, length)
    return Range(ssimplify(start), ssimplify((length + abs(step) - 1) // abs(step)), step, length)


def _symbolic_step(x: Any, item: slice) -> int:
    if item.step is None:
        return 1
    if hasattr(item.step, "_uop") or not hasattr(item.step, "__index__"):
        raise TypeError(
            error_text(
                "getitem",
                f"slice with step {shown(item.step)}",
                {"tensor": x},
                rule="a step is an int: the number of positions would not be known otherwise",
            )
        )
    step = operator.index(item.step)
    if step == 0:
        raise ValueError(error_text("getitem", "slice step is 0", {"tensor": x}, rule="a step is an int other than 0"))
    return step


def _slice_bound(x: Any, bound: Any, size: Any, step: int) -> Any:
    """Return a bound of a slice, negative ones counted from the end, and ints clamped if the size has a value now.

    Which is smaller is taken for granted, not a node, so that ``x[:4]`` has 4 rows; replays of a capture check it.
    """
    from tinygrad.dtype import dtypes

    if is_symbolic(bound) and dtypes.is_int(bound.dtype):
        return bound + size if _is_negative(bound) else bound
    if hasattr(bound, "_uop") or not hasattr(bound, "__index__"):
        raise TypeError(
            error_text("getitem", f"slice bound {shown(bound)}", {"tensor": x}, "slice bounds are ints",
                       "read a tensor with .item(), or use a bound Variable")
        )  # fmt: skip
    place = operator.index(bound)
    most = known_size(size)
    lowest, last = (0, size) if step > 0 else (-1, size - 1)
    if most is not None and place < 0 and place + most < lowest:
        exceeds(size, lowest - place)
        return lowest
    if most is not None and place > (most if step > 0 else most - 1):
        exceeds(last, place)
        return last
    return place + size if place < 0 else place


def _bad_item(item: Any, size: Any) -> str:
    return error_text(
        "getitem",
        f"index {item!r} of type {type(item).__name__} for a dim of size {size}",
        rule="an index is an int, slice, None, Ellipsis, list of ints, integer tensor or bool mask",
    )
