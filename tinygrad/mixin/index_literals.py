"""Index items that are lists, sequences or arrays of other libraries: their shape and numbers, by numpy's rules.

In:   an index item: nested lists and tuples, ranges and other sequences, numpy arrays, anything with ``tolist``.
Out:  ``IndexLiteral``: the shape, the numbers in row-major order, and whether they are a mask.
Why:  an array without elements still has a shape and a dtype that its nested lists no longer show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import flatten
from tinygrad.record import record


@record(frozen=True)
class IndexLiteral:
    """Known ints or bools of a shape.

    Args:
        shape: Sizes of the dims.
        numbers: Row-major, of any size; a mask has 0 and 1.
        is_mask: Whether they are bools.
    """

    shape: tuple[int, ...]
    numbers: list[int]
    is_mask: bool


def is_array(item: Any) -> bool:
    """Return whether an index item is an array of another library, such as numpy's, of any number of dims."""
    return hasattr(item, "tolist") and hasattr(item, "ndim") and not hasattr(item, "_uop")


def holds_bools(array: Any) -> bool:
    """Return whether an array, of any library, is one of bools."""
    return str(array.dtype).rpartition(".")[2] == "bool"


def is_several_items(indices: Any) -> bool:
    """Return whether a list stands for a tuple of index items: one that holds lists, arrays, slices or None.

    A nested list of bools is one mask instead.
    """
    if type(indices) is not list:
        return False
    if not any(i is None or isinstance(i, slice) or _has_entries(i) for i in indices):
        return False
    return not is_nested_mask(indices)


def is_nested_mask(item: Any) -> bool:
    """Return whether an index item is a list of lists, of one length each, that hold nothing but bools."""
    if not isinstance(item, (list, tuple)) or not item or not all(map(_is_plain_sequence, item)):
        return False
    try:
        found = read_literal(item)
    except (ShapeError, IndexError):
        return False
    return found is not None and found.is_mask


def read_literal(item: Any) -> IndexLiteral | None:
    """Read an index item that lists its entries.

    Returns:
        None for items of another kind: ints, slices, tensors, numpy scalars.

    Raises:
        ShapeError: Rows of different lengths.
        IndexError: Entries that are neither ints nor bools.
    """
    if not _has_entries(item) or hasattr(item, "_uop"):
        return None
    if is_array(item) and 0 in item.shape:
        return _read_empty(item)
    shape: list[int] = []
    level = [item]
    while level and all(map(_has_entries, level)):
        rows = [row.tolist() if is_array(row) else list(row) for row in level]
        if len(set(map(len, rows))) != 1:
            raise ShapeError(error_text("getitem", f"index list {shown(item)} is ragged", rule="rows of one length"))
        shape.append(len(rows[0]))
        level = flatten(rows)
    entries = [v.item() if is_array(v) and v.ndim == 0 else v for v in level]
    if any(not isinstance(v, int) and not hasattr(v, "__index__") for v in entries):
        tensors = any(hasattr(v, "_uop") for v in entries)
        raise IndexError(
            error_text(
                "getitem",
                f"index list {shown(item)}",
                rule="lists hold ints or bools only",
                hint="Tensor.stack(*tensors) is one index tensor" if tensors else None,
            )
        )
    is_mask = bool(entries) and all(isinstance(v, bool) for v in entries)
    return IndexLiteral(tuple(shape), [int(v) for v in entries], is_mask)


def _read_empty(array: Any) -> IndexLiteral:
    is_mask = holds_bools(array)
    if not is_mask and "int" not in str(array.dtype):
        raise IndexError(
            error_text("getitem", f"index array of dtype {array.dtype}", rule="index arrays are integer or bool")
        )
    return IndexLiteral(tuple(array.shape), [], is_mask)


def _is_plain_sequence(item: Any) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, (str, bytes))


def _has_entries(item: Any) -> bool:
    """Return whether an item has entries to list: a sequence that is no text, or an array or tensor with dims."""
    return _is_plain_sequence(item) or bool(hasattr(item, "tolist") and getattr(item, "ndim", 0))
