"""Bool masks: one-hot vectors, selection by mask, coordinates of non-zero elements.

In:   class ids, or a mask and what it selects from.
Out:  tensors whose size is the number of True elements, which is counted (and so realized) unless it is given.
Why:  the k-th selected element goes to place k, which is a running count of the mask: one scan and one indexed store.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import dtypes, strong_dtype
from tinygrad.errors import ArgumentError, DTypeError, error_text, shown
from tinygrad.mixin.gather import store_at, stores_are_dear
from tinygrad.mixin.reduce import ReduceMixin


class MaskMixin(ReduceMixin):
    """Masks of Tensor and UOp."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def cumsum(self, axis: int = 0) -> Self: ...  # noqa: D102
        def stack(self, *args: Self, dim: int = 0) -> Self: ...  # noqa: D102
        def _index_item(self, item: Any, literals: dict[int, list[int]]) -> Any: ...

    def one_hot(self, num_classes: int) -> Self:
        """Return a new last dim that holds 1 at the class id and 0 elsewhere (weakint).

        Raises:
            RuntimeError: ``self`` is no integer tensor.
            ValueError: ``num_classes`` is negative.

        Example:
            >>> Tensor([1]).one_hot(3).tolist()
            [[0, 1, 0]]
        """
        if not dtypes.is_int(self.dtype):
            raise DTypeError(
                error_text("one_hot", f"class ids are {self.dtype}", {"ids": self}, rule="ids are integers")
            )
        num_classes = _checked_size("one_hot", "num_classes", num_classes)
        hit = self.unsqueeze(-1).eq(type(self).arange(num_classes, dtype=dtypes.int32))
        return hit.where(1, 0)

    def _count_true(self, name: str) -> int:
        if not hasattr(self, "item"):
            raise RuntimeError(f"{name}: the number of True elements of a node is not known; give size=")
        return int(self.cast(dtypes.int32).sum().item())

    def _true_places(self) -> Self:
        """Return for each element of a 1-d mask its number among the True ones, -1 where it is False."""
        return self.where(self.cast(dtypes.int32).cumsum(0) - 1, -1).cast(dtypes.int32)

    def _compress(self, mask: Self, size: int, fill_value: Any) -> Self:
        """Return the elements of 1-d self where the 1-d mask is True, cut or filled to ``size``."""
        places = mask._true_places()
        inside = (places < size).where(places, -1).cast(dtypes.int32)
        if stores_are_dear(inside._uop, size, self.shape[0]):
            hit = inside.unsqueeze(-1).eq(type(self).arange(size, dtype=dtypes.int32))
            picked = hit.where(self.unsqueeze(-1), 0).sum(axis=0).cast(self.dtype)
            return hit.any(axis=0).where(picked, fill_value).cast(self.dtype)
        x = self._uop.cast(strong_dtype(self.dtype))
        base = x.const(fill_value, x.dtype)._broadcast_to((size,))
        return self._wrap_uop(store_at(base, inside._uop, x))

    def masked_select(self, mask: Any, size: int | None = None, fill_value: Any = 0) -> Self:
        """Return the elements where ``mask`` (broadcast to ``self``) is True, as a 1-d tensor.

        Args:
            mask: Bool tensor.
            size: Length of the result; None counts the True elements, which realizes the mask.
            fill_value: Fills a result that is longer than the count.

        Raises:
            RuntimeError: ``mask`` is not bool.
            ValueError: ``size`` is negative.

        Example:
            >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
            [1, 3]
        """
        chosen = mask if hasattr(mask, "_uop") else self._index_item(mask, {})
        if not hasattr(chosen, "_uop"):
            raise ArgumentError(
                error_text("masked_select", f"mask is {shown(mask)}", {"tensor": self}, rule="a mask is a bool tensor")
            )
        if chosen.dtype != dtypes.bool:
            raise DTypeError(
                error_text("masked_select", f"mask is {chosen.dtype}", {"mask": chosen}, rule="a mask is bool")
            )
        flat = chosen._broadcast_to(self.shape).flatten()
        count = flat._count_true("masked_select") if size is None else _checked_size("masked_select", "size", size)
        return self.flatten()._compress(flat, count, fill_value)

    def nonzero(self, size: int | None = None, fill_value: Any = 0, *, as_tuple: bool = False) -> Any:
        """Return the coordinates of the non-zero elements, int32 of shape (count, ndim).

        Args:
            size: Number of rows; None counts, which realizes the tensor.
            fill_value: Fills rows beyond the count.
            as_tuple: Whether to return one tensor of shape (count,) per dim, as an index takes them.

        Raises:
            ValueError: ``size`` is negative.

        Example:
            >>> Tensor([[0, 1], [2, 0]]).nonzero().tolist()
            [[0, 1], [1, 0]]
        """
        if as_tuple:
            return tuple((self if self.ndim else self.reshape(1))._nonzero_columns(size, fill_value))
        if self.ndim == 0:
            return self.reshape(1).nonzero(size, fill_value).shrink([None, (0, 0)])
        columns = self._nonzero_columns(size, fill_value)
        return columns[0].stack(*columns[1:], dim=1)

    def _nonzero_columns(self, size: int | None = None, fill_value: Any = 0) -> list[Self]:
        mask = (self if self.dtype == dtypes.bool else self.ne(0)).flatten()
        count = mask._count_true("nonzero") if size is None else _checked_size("nonzero", "size", size)
        at = type(self).arange(mask.shape[0], dtype=dtypes.int32)
        columns, step = [], 1
        for n in reversed(self.shape):
            at_least_one = max(n, 1) if isinstance(n, int) else n.maximum(1)
            columns.append(((at // step) % at_least_one)._compress(mask, count, fill_value))
            step *= n
        return columns[::-1]


def _checked_size(op: str, name: str, size: Any) -> Any:
    """Return a size that a caller gave, an int or a symbolic int; raise for others and for negative ones."""
    if hasattr(size, "size_text"):
        return size
    if not hasattr(size, "__index__"):
        raise ArgumentError(error_text(op, f"{name} is {shown(size)}", rule=f"{name} is an int, at least 0"))
    count = operator.index(size)
    if count < 0:
        raise ValueError(error_text(op, f"{name}={count} is negative", rule=f"{name} >= 0"))
    return count
