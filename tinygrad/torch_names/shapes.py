"""Dtypes, new tensors, shapes and joins under the names of other packages.

In:   the methods of Tensor.
Out:  ``ShapeNames``. Nothing here computes, but for joins.
Why:  see ``torch_names``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.calls import CallMixin
from tinygrad.dtype import DTypeLike, dtypes
from tinygrad.errors import DTypeError, NoSuchDimsError, ShapeError, error_text
from tinygrad.mixin.hooks import check_parts, dim_args, known_size
from tinygrad.torch_names.checks import require_int, require_number, require_shape

if TYPE_CHECKING:
    from typing import Self


class ShapeNames(CallMixin):
    """Dtypes, new tensors, shapes and joins."""

    __slots__ = ()

    if TYPE_CHECKING:

        def to(self, device: Any) -> Self: ...  # noqa: D102

    # ---- dtypes and devices ------------------------------------------------------------------------------------------

    def type(self, dtype: DTypeLike | None = None) -> Any:
        """``t.dtype`` without an argument, ``t.cast(dtype)`` with one."""
        return self.dtype if dtype is None else self.cast(dtype)

    def astype(self, dtype: DTypeLike) -> Self:
        """``t.cast(dtype)``."""
        return self.cast(dtype)

    def type_as(self, other: Self) -> Self:
        """``t.cast(other.dtype)``."""
        return self.cast(other.dtype)

    def char(self) -> Self:
        """``t.cast(dtypes.int8)``."""
        return self.cast(dtypes.int8)

    def byte(self) -> Self:
        """``t.cast(dtypes.uint8)``."""
        return self.cast(dtypes.uint8)

    def cpu(self) -> Self:
        """``t.to("CPU")``."""
        return self.to("CPU")

    def cuda(self) -> Self:
        """``t.to("CUDA")``."""
        return self.to("CUDA")

    def is_signed(self) -> bool:
        """``not dtypes.is_unsigned(t.dtype) and t.dtype != dtypes.bool``."""
        return not dtypes.is_unsigned(self.dtype) and self.dtype is not dtypes.bool

    # ---- new tensors beside this one ---------------------------------------------------------------------------------

    def _beside(self, dtype: DTypeLike | None, device: Any) -> dict[str, Any]:
        return {"dtype": self.dtype if dtype is None else dtype, "device": self.device if device is None else device}

    def new_zeros(self, *shape: Any, dtype: DTypeLike | None = None, device: Any = None) -> Self:
        """``Tensor.zeros(*shape, dtype=t.dtype, device=t.device)``."""
        return type(self).zeros(*shape, **self._beside(dtype, device))

    def new_ones(self, *shape: Any, dtype: DTypeLike | None = None, device: Any = None) -> Self:
        """``Tensor.ones(*shape, dtype=t.dtype, device=t.device)``."""
        return type(self).ones(*shape, **self._beside(dtype, device))

    def new_empty(self, *shape: Any, dtype: DTypeLike | None = None, device: Any = None) -> Self:
        """``Tensor.empty(*shape, dtype=t.dtype, device=t.device)``."""
        return type(self).empty(*shape, **self._beside(dtype, device))

    def new_full(self, shape: Any, fill_value: Any, dtype: DTypeLike | None = None, device: Any = None) -> Self:
        """``Tensor.full(shape, fill_value, dtype=t.dtype, device=t.device)``."""
        return type(self).full(shape, fill_value, **self._beside(dtype, device))

    # ---- shapes ------------------------------------------------------------------------------------------------------

    def dim(self) -> int:
        """``t.ndim``."""
        return self.ndim

    ndimension = dim

    def nelement(self) -> Any:
        """``t.numel()``."""
        return self.numel()

    def view_as(self, other: Self) -> Self:
        """``t.reshape(other.shape)``."""
        return self.reshape(other.shape)

    reshape_as = view_as

    def expand_as(self, other: Self) -> Self:
        """``t.expand(other.shape)``."""
        return self.expand(other.shape)

    def broadcast_to(self, *shape: Any) -> Self:
        """``t.expand(shape)``."""
        return self.expand(*shape)

    def ravel(self) -> Self:
        """``t.flatten()``."""
        return self.flatten()

    def t(self) -> Self:
        """``t.transpose(0, 1)`` of a matrix; a vector stays."""
        if self.ndim > 2:
            raise ShapeError(error_text("t", f"{self.ndim} dims", {"tensor": self}, "at most 2 dims", "t.mT"))
        return self.transpose(0, 1) if self.ndim == 2 else self

    @property
    def mT(self) -> Self:  # noqa: N802  as torch
        """``t.transpose(-2, -1)``; a single number stays."""
        if self.ndim == 1:
            raise NoSuchDimsError(error_text("mT", "1 dim", {"tensor": self}, "matrices", "t.unsqueeze(0) is a row"))
        return self.transpose(-2, -1) if self.ndim else self

    mH = H = mT  # noqa: N815  there are no complex numbers

    def adjoint(self) -> Self:
        """``t.transpose(-2, -1)``."""
        return self.mT

    def swapaxes(self, axis0: int, axis1: int) -> Self:
        """``t.transpose(axis0, axis1)``."""
        return self.transpose(axis0, axis1)

    swapdims = swapaxes

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """``t.permute(order)``, with dims ``source`` at ``destination`` and the others in their order."""
        given = [(x,) if isinstance(x, int) else tuple(x) for x in (source, destination)]
        sources, places = ([self._resolve_dim(d, op="movedim") for d in dims] for dims in given)
        if len(set(sources)) != len(set(places)) or len(sources) != len(places) or len(set(sources)) != len(sources):
            raise ShapeError(error_text("movedim", f"source {source}, destination {destination}", {"tensor": self},
                                        "as many different dims in both"))  # fmt: skip
        rest = iter(d for d in range(self.ndim) if d not in sources)
        at = dict(zip(places, sources, strict=True))
        return self.permute([at[d] if d in at else next(rest) for d in range(self.ndim)])

    moveaxis = movedim

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """``t[..., start:start + length, ...]`` along ``dim``."""
        axis = self._resolve_dim(dim, op="narrow")
        size = self.shape[axis]
        total, first, count = (known_size(n) for n in (size, start, length))
        if total is not None and first is not None and count is not None:  # else one of them is a Variable
            begin = first + total if first < 0 else first
            fault = f"start {first}, length {count} for dim {axis} of size {total}"
            require_shape(0 <= begin <= begin + count <= total, "narrow", fault, {"tensor": self},
                          "0 <= start <= start + length <= size")  # fmt: skip
            start = start + size if first < 0 else start
        return self._slice_dim(axis, start, start + length)

    def select(self, dim: int, index: int) -> Self:
        """``t[..., index, ...]`` along ``dim``."""
        return self[(slice(None),) * self._resolve_dim(dim, op="select") + (index,)]

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """``tuple(t.select(dim, i) for i in range(t.shape[dim]))``."""
        axis = self._resolve_dim(dim, op="unbind")
        count = self._static_size("unbind", axis)
        check_parts("unbind", count, self)
        return tuple(self.select(axis, i) for i in range(count))

    def tile(self, *dims: Any) -> Self:
        """``t.repeat(*dims)``, with ones in front where there are fewer numbers than dims."""
        repeats = dim_args(dims[0], dims[1:], "tile") if dims else ()
        require_number(all(n >= 0 for n in repeats), "tile", "dims", repeats, "no negative number")
        return self.repeat((1,) * (self.ndim - len(repeats)) + repeats)

    def fliplr(self) -> Self:
        """``t.flip(1)``."""
        return self.flip(1)

    def flipud(self) -> Self:
        """``t.flip(0)``."""
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """``t.transpose(*dims).flip(dims[0])``, ``k`` times."""
        plane = {self._resolve_dim(d, op="rot90") for d in dims}
        require_shape(len(dims) == len(plane) == 2, "rot90", f"dims {tuple(dims)}", {"tensor": self},
                      "two different dims")  # fmt: skip
        turned = self
        for _ in range(k % 4):
            turned = turned.transpose(*dims).flip(dims[0])
        return turned

    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """``t.split(split_sizes, dim)``."""
        return self.split(split_sizes, dim)

    def tensor_split(self, indices_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """``t.split(sizes, dim)``: so many parts as equal as possible, or cuts at these indices."""
        axis = self._resolve_dim(dim, op="tensor_split")
        n, cuts = self._static_size("tensor_split", axis), indices_or_sections
        if isinstance(cuts, int):
            require_int("tensor_split", "sections", cuts, 1)
            check_parts("tensor_split", cuts, self)
            small, larger = divmod(n, cuts)
            cuts = [i * small + min(i, larger) for i in range(1, cuts)]
        ends = [*(min(max(c + n if c < 0 else c, 0), n) for c in cuts), n]
        return tuple(self._slice_dim(axis, min(a, b), b) for a, b in zip([0, *ends[:-1]], ends, strict=True))

    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """``t.tensor_split(indices_or_sections, dim=1)``; dim 0 of a vector."""
        return self.tensor_split(indices_or_sections, 0 if self.ndim == 1 else 1)

    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """``t.tensor_split(indices_or_sections, dim=0)``."""
        return self.tensor_split(indices_or_sections, 0)

    def diagflat(self, offset: int = 0) -> Self:
        """``t.flatten().diag(offset)``."""
        return self.flatten().diag(offset)

    def unravel_index(self, shape: Sequence[int]) -> tuple[Self, ...]:
        """``t // 1 % n`` for each size n of ``shape``, in steps of the sizes behind it: places as coordinates."""
        require_number(all(n > 0 for n in shape), "unravel_index", "shape", tuple(shape), "sizes are positive")
        if not dtypes.is_int(self.dtype):
            fault = f"places are integers, got {self.dtype}"
            raise DTypeError(error_text("unravel_index", fault, {"tensor": self}, hint="t.cast(dtypes.int64)"))
        rest, found = self, []
        for size in reversed(shape):
            found.append(rest % size)
            rest = rest // size
        return tuple(reversed(found))

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """``t.tensor_split(indices_or_sections, dim=2)``."""
        return self.tensor_split(indices_or_sections, 2)

    def concat(self, *args: Self, dim: int = 0) -> Self:
        """``t.cat(*args, dim=dim)``."""
        return self.cat(*args, dim=dim)

    concatenate = concat

    def column_stack(self, *args: Self) -> Self:
        """``t.cat(*args, dim=1)``, vectors as columns."""
        first, *rest = (x.reshape(-1, 1) if x.ndim < 2 else x for x in (self, *args))
        return first.cat(*rest, dim=1)

    def block_diag(self, *args: Self) -> Self:
        """``t.pad(...).cat(...)``: the matrices along the diagonal, zeros elsewhere."""
        blocks = [x.reshape(1, -1) if x.ndim < 2 else x for x in (self, *args)]
        width, before, rows = sum(x.shape[1] for x in blocks), 0, []
        for x in blocks:
            rows.append(x.pad(((0, 0), (before, width - before - x.shape[1]))))
            before += x.shape[1]
        return rows[0].cat(*rows[1:], dim=0)

    def atleast_1d(self) -> Self:
        """``t.reshape(1)`` of a scalar."""
        return self.reshape(1) if self.ndim == 0 else self

    def atleast_2d(self) -> Self:
        """``t.unsqueeze(0)`` of a vector."""
        return self.atleast_1d().unsqueeze(0) if self.ndim < 2 else self

    def atleast_3d(self) -> Self:
        """``t.unsqueeze(-1)`` of a matrix."""
        return self.atleast_2d().unsqueeze(-1) if self.ndim < 3 else self

    def dstack(self, *args: Self) -> Self:
        """``t.cat(*args, dim=2)``, with at least 3 dims."""
        first, *rest = (x.atleast_3d() for x in (self, *args))
        return first.cat(*rest, dim=2)

    def hstack(self, *args: Self) -> Self:
        """``t.cat(*args, dim=1)``; dim 0 for vectors."""
        first, *rest = (x.reshape(1) if x.ndim == 0 else x for x in (self, *args))
        return first.cat(*rest, dim=0 if first.ndim == 1 else 1)

    def vstack(self, *args: Self) -> Self:
        """``t.cat(*args, dim=0)``, vectors as rows."""
        first, *rest = (x.reshape(1, -1) if x.ndim < 2 else x for x in (self, *args))
        return first.cat(*rest, dim=0)

    row_stack = vstack
