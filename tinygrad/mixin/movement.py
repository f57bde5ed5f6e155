"""Pieces, repetition, diagonals and windows: methods on shapes that are made of the views of ``views.py``.

In:   the methods of ``ViewMixin``.
Out:  the same six nodes, several of them for each method; ``MovementMixin`` has the views too.
Why:  none of these needs an operation of its own: a diagonal is a column of rows that are one longer, a window is a
      repetition that is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.errors import error_text, shown
from tinygrad.helpers import ceildiv
from tinygrad.mixin.hooks import check_parts, exceeds, hint_to_pad, shape_args, smax, smin
from tinygrad.mixin.padding import pad_constant
from tinygrad.mixin.views import ViewMixin

if TYPE_CHECKING:
    from typing import Self


class MovementMixin(ViewMixin):
    """Everything that only changes how coordinates read: the views, and what is made of them."""

    __slots__ = ()

    # ---- pieces and repetition -------------------------------------------------------------------------------------

    def split(self, sizes: int | Sequence[int], dim: int = 0, *, axis: int | None = None) -> tuple[Self, ...]:
        """Cut along ``dim`` into pieces of size ``sizes`` (the last may be smaller), or of the listed sizes.

        Raises:
            AssertionError: The sizes do not sum to the dim, or it is symbolic.
            ShapeError: There is no dim.

        Example:
            >>> [t.tolist() for t in Tensor([1, 2, 3, 4, 5]).split(2)]
            [[1, 2], [3, 4], [5]]
            >>> [t.tolist() for t in Tensor([1, 2, 3, 4, 5]).split([1, 4])]
            [[1], [2, 3, 4, 5]]
        """
        if self.ndim == 0:
            raise self._movement_error("split", "0 dims", "at least 1 dim")
        dim = self._resolve_dim(dim if axis is None else axis, op="split")
        total = self._static_size("split", dim)
        if isinstance(sizes, int):
            check_parts("split", total // max(sizes, 1), self)
            sizes = [min(sizes, total - start) for start in range(0, max(total, 1), max(sizes, 1))]
        if sum(sizes) != total:
            raise AssertionError(error_text("split", f"sizes {tuple(sizes)} sum to {sum(sizes)}", {"tensor": self},
                                            f"they sum to {shown(total)}, the size of dim {dim}"))  # fmt: skip
        pieces, start = [], 0
        for size in sizes:
            pieces.append(self._slice_dim(dim, start, start + size))
            start += size
        return tuple(pieces)

    def _static_size(self, op: str, dim: int) -> int:
        """Return the size of a dim that is cut into pieces.

        Raises:
            AssertionError: It is symbolic.
        """
        size = self.shape[dim]
        if not isinstance(size, int):
            raise AssertionError(error_text(op, f"dim {dim} is symbolic: it has no fixed number of pieces",
                                            {"tensor": self}, hint=hint_to_pad(self.shape)))  # fmt: skip
        return size

    def chunk(self, chunks: int, dim: int = 0, *, axis: int | None = None) -> list[Self]:
        """Cut along ``dim`` into at most ``chunks`` pieces of equal size (the last may be smaller).

        Raises:
            AssertionError: ``chunks`` is not positive, or the dim is symbolic.

        Example:
            >>> [t.tolist() for t in Tensor([1, 2, 3, 4, 5]).chunk(2)]
            [[1, 2, 3], [4, 5]]
        """
        if self.ndim == 0:
            raise self._movement_error("chunk", "0 dims", "at least 1 dim")
        dim = self._resolve_dim(dim if axis is None else axis, op="chunk")
        if chunks <= 0:
            raise AssertionError(error_text("chunk", f"{chunks} chunks of dim {dim}", {"tensor": self},
                                            "a positive number of chunks"))  # fmt: skip
        size = self._static_size("chunk", dim)
        check_parts("chunk", 0 if size else chunks, self)
        return list(self.split(ceildiv(size, chunks) if size else [0] * chunks, dim=dim))

    def meshgrid(self, *args: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Return one grid per operand (self and ``args``, at most 1-d), each with one dim per operand.

        Raises:
            RuntimeError: ``indexing`` is neither ``ij`` nor ``xy``.

        Example:
            >>> [t.tolist() for t in Tensor([1, 2]).meshgrid(Tensor([3, 4]))]
            [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
        """
        if indexing not in {"ij", "xy"}:
            raise RuntimeError(f"meshgrid: indexing {indexing!r}; expected 'ij' or 'xy'")
        operands = (self, *args)
        if len(operands) == 1:
            return operands
        order = list(range(len(operands)))
        if indexing == "xy":
            order[0], order[1] = 1, 0
        shape = [1] * len(operands)
        for operand, axis in zip(operands, order, strict=True):
            shape[axis] = operand.flatten().shape[0] if operand.ndim else 1
        grids = []
        for operand, axis in zip(operands, order, strict=True):
            along = [shape[axis] if i == axis else 1 for i in range(len(shape))]
            grids.append(operand.reshape(along).expand(shape))
        return tuple(grids)

    def repeat(self, repeats: Any, *args: Any) -> Self:
        """Tile the tensor ``repeats[i]`` times along dim i; more repeats than dims add leading dims.

        Raises:
            ShapeError: Fewer repeats than dims, or a negative one.

        Example:
            >>> Tensor([[1, 2]]).repeat(2, 2).tolist()
            [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        counts = shape_args(repeats, args, "repeat")
        if len(counts) < self.ndim:
            raise self._movement_error("repeat", f"{len(counts)} repeats for {self.ndim} dims", "at least one per dim")
        if any(type(n) is int and n < 0 for n in counts):
            raise self._movement_error("repeat", f"repeats {shown(counts)} hold a negative number", "repeats >= 0")
        return self._tiled(counts)

    def _tiled(self, counts: tuple[Any, ...]) -> Self:
        """Return the view that ``repeat`` makes a value of its own of."""
        shape = (1,) * (len(counts) - self.ndim) + self.shape
        paired = [x for s in shape for x in (1, s)]
        expanded = [x for r, s in zip(counts, shape, strict=True) for x in (r, s)]
        split = self._uop.axis
        is_tiled = split is not None and counts[split + len(counts) - self.ndim] != 1
        tile = self._wrap_uop(self._uop.gathered()) if is_tiled else self  # the tiles are no pieces of the result
        return tile.reshape(paired).expand(expanded).reshape([r * s for r, s in zip(counts, shape, strict=True)])

    def repeat_interleave(self, repeats: int, dim: int | None = None, *, axis: int | None = None) -> Self:
        """Repeat every element ``repeats`` times along ``dim``, or ``axis`` (of the flattened tensor if None).

        Example:
            >>> Tensor([1, 2]).repeat_interleave(2).tolist()
            [1, 1, 2, 2]
        """
        dim = dim if axis is None else axis
        if repeats < 0:
            raise self._movement_error("repeat_interleave", f"{repeats} repeats", "repeats >= 0")
        x, dim = (self.flatten(), 0) if dim is None else (self, self._resolve_dim(dim, op="repeat_interleave"))
        shape = x.shape
        wide = x.reshape((*shape[: dim + 1], 1, *shape[dim + 1 :])).expand((
            *shape[: dim + 1],
            repeats,
            *shape[dim + 1 :],
        ))
        return wide.reshape((*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]))

    def roll(
        self,
        shifts: int | Sequence[int],
        dims: int | Sequence[int] | None = None,
        *,
        axis: int | Sequence[int] | None = None,
    ) -> Self:
        """Shift along ``dims`` (of the flattened tensor if None); what leaves at the end enters at the start.

        Raises:
            RuntimeError: The numbers of shifts and dims differ.

        Example:
            >>> Tensor([1, 2, 3]).roll(1).tolist()
            [3, 1, 2]
        """
        dims = dims if axis is None else axis
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        pairs = list(zip(*((x,) if isinstance(x, int) else tuple(x) for x in (shifts, dims)), strict=False))
        counts = [1 if isinstance(x, int) else len(x) for x in (shifts, dims)]
        if counts[0] != counts[1]:
            raise RuntimeError(error_text("roll", f"{counts[0]} shifts for {counts[1]} dims", {"tensor": self}))
        result = self
        for shift, dim in pairs:
            axis = self._resolve_dim(dim, op="roll")
            size = self.shape[axis] if self.ndim else 0
            if not isinstance(size, int) or (size and shift % size):
                twice = result.repeat([2 if i == axis else 1 for i in range(self.ndim)])
                result = twice._slice_dim(axis, -shift % size, -shift % size + size)
        return result

    # ---- diagonals and windows -------------------------------------------------------------------------------------

    def diag(self, diagonal: int = 0) -> Self:
        """Return the square matrix with this 1-d tensor on its diagonal and 0 elsewhere.

        Args:
            diagonal: Places right of the main diagonal, where the values go; left of it if negative.

        Raises:
            ShapeError: Not 1-d.

        Example:
            >>> Tensor([1, 2]).diag().tolist()
            [[1, 0], [0, 2]]
            >>> Tensor([1]).diag(-1).tolist()
            [[0, 0], [1, 0]]
        """
        if self.ndim != 1:
            raise self._movement_error(
                "diag", f"{self.ndim} dims", "1 dim", "diagonal() reads the diagonal of a matrix"
            )
        n = self.shape[0]
        # Rows of length n + 1 whose first element is the value: cut into rows of n, each value moves one to the right.
        square = self.unsqueeze(-1).pad((None, (0, n))).flatten().shrink_to(n * n).reshape(n, n)
        right, down = max(diagonal, 0), max(-diagonal, 0)
        return square.pad(((down, right), (right, down))) if diagonal else square

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return the diagonal of dims ``dim1`` and ``dim2`` as the last dim, ``offset`` places right of the main one.

        Raises:
            RuntimeError: Both dims are the same.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
            [1, 4]
        """
        rows, cols = self._resolve_dim(dim1, op="diagonal"), self._resolve_dim(dim2, op="diagonal")
        if rows == cols:
            raise RuntimeError(
                error_text("diagonal", f"dim1 and dim2 are both {rows}", {"tensor": self}, "two different dims")
            )
        others = [i for i in range(self.ndim) if i not in (rows, cols)]
        x = self.permute([*others, rows, cols])
        n, m = x.shape[-2], x.shape[-1]
        row, col = max(-offset, 0), max(offset, 0)
        length = smax(smin(n - row, m - col), 0)
        batch = x.shape[:-2]
        if isinstance(length, int) and length == 0:
            return x.shrink([*[None] * len(batch), (0, 0), (0, 0)]).reshape((*batch, 0))
        wide = x.shrink([*[None] * len(batch), (row, row + length), (col, m)]).reshape((*batch, length * (m - col)))
        # Element (i, i) of rows of length w lies at i * (w + 1): the first column once the rows are one longer.
        rows_longer = pad_constant(wide, (*((0, 0),) * len(batch), (0, length)), 0)
        rows_longer = rows_longer.reshape((*batch, length, m - col + 1))
        return rows_longer._slice_dim(len(batch) + 1, 0, 1).squeeze(-1)

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Return windows of ``size`` every ``step`` along ``dim``; the window is the new last dim.

        Raises:
            RuntimeError: ``size`` is negative or larger than the dim, or ``step`` is not positive.

        Example:
            >>> Tensor([1, 2, 3, 4]).unfold(0, 2, 1).tolist()
            [[1, 2], [2, 3], [3, 4]]
        """
        dim = self._resolve_dim(dim, op="unfold")
        total = self.shape[dim] if self.ndim else 1
        if size < 0 or step <= 0 or exceeds(size, total):
            raise RuntimeError(error_text("unfold", f"size {size}, step {step} for dim {dim} of size {shown(total)}",
                                          {"tensor": self}, f"0 <= size <= {shown(total)} and step > 0"))  # fmt: skip
        if self.ndim == 0:
            return self.reshape(1)._slice_dim(0, 0, size)  # a number is one window, which has no place
        if size == 0:
            count = total // step + 1
            shape = [*(count if i == dim else s for i, s in enumerate(self.shape)), 0]
            nothing = self._slice_dim(dim, 0, 0)
            return nothing.reshape((*self.shape[:dim], 0, *self.shape[dim + 1 :], 1)).reshape(shape)
        order = [i for i in range(self.ndim) if i != dim]
        windows = self.permute([*order, dim])._pool((size,), step)  # (..., windows, size)
        last = self.ndim - 1
        return windows.permute([*range(dim), last, *range(dim, last), last + 1])

    def _pool(
        self, kernel: tuple[int, ...], stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1
    ) -> Self:
        """Return all windows over the last dims: (..., spatial) becomes (..., windows, kernel)."""
        from tinygrad.mixin.windows import pool_windows

        return pool_windows(self, kernel, stride, dilation)
