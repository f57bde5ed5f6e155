"""Products and indices under the names of other packages.

In:   the methods of Tensor.
Out:  ``ProductNames``.
Why:  see ``torch_names``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype_lattice import require_fit
from tinygrad.errors import ArgumentError, ShapeError, error_text, shown
from tinygrad.mixin.hooks import check_parts
from tinygrad.torch_names.checks import require_int, require_shape
from tinygrad.torch_names.statistics import StatisticsNames
from tinygrad.uop.infer import broadcast_shape

if TYPE_CHECKING:
    from typing import Self


class ProductNames(StatisticsNames):
    """Products and indices."""

    __slots__ = ()

    # ---- products ----------------------------------------------------------------------------------------------------

    def _product(self, other: Self, name: str, dims: tuple[int, int]) -> Self:
        """Return the matmul of operands that must have so many dims."""
        if (self.ndim, other.ndim) != dims:
            raise ShapeError(error_text(name, f"operands have {self.ndim} and {other.ndim} dims",
                                        {"left": self, "right": other}, f"{dims[0]} and {dims[1]}",
                                        "matmul takes any number"))  # fmt: skip
        return self.matmul(other)

    def mm(self, mat2: Self) -> Self:
        """``t @ mat2``, both with 2 dims."""
        return self._product(mat2, "mm", (2, 2))

    def bmm(self, mat2: Self) -> Self:
        """``t @ mat2``, both with 3 dims."""
        return self._product(mat2, "bmm", (3, 3))

    def mv(self, vec: Self) -> Self:
        """``t @ vec``, a matrix and a vector."""
        return self._product(vec, "mv", (2, 1))

    def inner(self, other: Self) -> Self:
        """``(t.unsqueeze(-2) * other).sum(-1)`` of vectors: their sum of products."""
        if self.ndim == 0 or other.ndim == 0:
            return self * other
        return self.tensordot(other, ([-1], [-1]))

    def outer(self, vec2: Self) -> Self:
        """``t.unsqueeze(1) * vec2``, both vectors."""
        if (self.ndim, vec2.ndim) != (1, 1):
            raise ShapeError(error_text("outer", f"operands have {self.ndim} and {vec2.ndim} dims",
                                        {"left": self, "right": vec2}, "two vectors"))  # fmt: skip
        return self.unsqueeze(1) * vec2

    ger = outer

    def addmm(self, mat1: Self, mat2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """``beta * t + alpha * (mat1 @ mat2)``."""
        return self._scaled(beta) + mat1.mm(mat2)._scaled(alpha)

    def addmv(self, mat: Self, vec: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """``beta * t + alpha * (mat @ vec)``."""
        return self._scaled(beta) + mat.mv(vec)._scaled(alpha)

    def addr(self, vec1: Self, vec2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """``beta * t + alpha * vec1.outer(vec2)``."""
        return self._scaled(beta) + vec1.outer(vec2)._scaled(alpha)

    def baddbmm(self, batch1: Self, batch2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """``beta * t + alpha * (batch1 @ batch2)``."""
        return self._scaled(beta) + batch1.bmm(batch2)._scaled(alpha)

    def addbmm(self, batch1: Self, batch2: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """``beta * t + alpha * (batch1 @ batch2).sum(0)``."""
        return self._scaled(beta) + batch1.bmm(batch2).sum(0)._scaled(alpha)

    def vdot(self, other: Self) -> Self:
        """``(t * other).sum()`` of vectors."""
        return self._product(other, "vdot", (1, 1))

    def chain_matmul(self, *matrices: Self) -> Self:
        """``t @ m1 @ m2 ...``, from left to right."""
        result = self
        for matrix in matrices:
            result = result.mm(matrix)
        return result

    def matrix_power(self, n: int) -> Self:
        """``t @ t @ ...``, n times; of ``t.inverse()`` for n < 0."""
        if not isinstance(n, int):
            raise ArgumentError(error_text("matrix_power", f"n is {n!r}", {"matrix": self}, "n is an int"))
        if self.ndim < 2 or self.shape[-1] != self.shape[-2]:
            raise ShapeError(error_text("matrix_power", f"shape {shown(self.shape)}", {"matrix": self},
                                        "square matrices: the last two sizes are equal"))  # fmt: skip
        if n < 0:
            return self.inverse().matrix_power(-n)
        size = self.shape[-1]
        result, square = type(self).eye(size, dtype=self.dtype, device=self.device).expand(self.shape), self
        while n:
            result = result @ square if n & 1 else result
            square, n = square @ square, n >> 1
        return result

    def kron(self, other: Self) -> Self:
        """The product of each element of t with ``other`` as one block, of at most ``t.ndim`` dims."""
        left, right = self, other
        dims = max(left.ndim, right.ndim)
        left, right = (x.reshape((1,) * (dims - x.ndim) + x.shape) for x in (left, right))
        pairs = [n for a, b in zip(left.shape, right.shape, strict=True) for n in (a, b)]
        apart = left.reshape([n if i % 2 == 0 else 1 for i, n in enumerate(pairs)])
        tiled = right.reshape([n if i % 2 else 1 for i, n in enumerate(pairs)])
        return (apart * tiled).reshape([a * b for a, b in zip(left.shape, right.shape, strict=True)])

    def cross(self, other: Self, dim: int = -1) -> Self:
        """``t.roll(-1) * other.roll(-2) - t.roll(-2) * other.roll(-1)`` along ``dim``, of size 3."""
        shape = broadcast_shape(self.shape, other.shape)
        left, right = self._broadcast_to(shape), other._broadcast_to(shape)
        axis = left._resolve_dim(dim, op="cross")
        if shape[axis] != 3:
            raise ShapeError(error_text("cross", f"{shape[axis]} elements along dim {dim}",
                                        {"left": self, "right": other}, "vectors of 3 elements"))  # fmt: skip
        return left.roll(-1, axis) * right.roll(-2, axis) - left.roll(-2, axis) * right.roll(-1, axis)

    def vander(self, N: int | None = None, increasing: bool = False) -> Self:
        """``t.unsqueeze(1) ** k`` for k from N - 1 to 0, or from 0 to N - 1 if ``increasing``."""
        require_shape(self.ndim == 1, "vander", f"{self.ndim} dims", {"tensor": self}, "a vector")
        count = self.shape[0] if N is None else N
        require_int("vander", "N", count, 0)
        check_parts("vander", count, self)
        if count == 0:
            return self.unsqueeze(1).shrink_to(self.shape[0], 0)
        factors = self.unsqueeze(1).expand(self.shape[0], count - 1).pad(((0, 0), (1, 0)), value=1)
        powers = factors.cumprod(1)
        return powers if increasing else powers.flip(1)

    def cartesian_prod(self, *args: Self) -> Self:
        """``t.meshgrid(*args)`` as rows: every choice of one element of each vector."""
        if not args:
            return self
        grids = self.meshgrid(*args)
        return grids[0].flatten().stack(*(g.flatten() for g in grids[1:]), dim=1)

    def tensordot(self, other: Self, dims: Any = 2) -> Self:
        """``Tensor.einsum``: sums over the last ``dims`` of t and the first of ``other``, or over two lists of dims."""
        if isinstance(dims, int):
            most = min(self.ndim, other.ndim)
            require_shape(0 <= dims <= most, "tensordot", f"{dims} dims", {"left": self, "right": other},
                          f"from 0 to {most}")  # fmt: skip
            dims = (range(self.ndim - dims, self.ndim), range(dims))
        left = [self._resolve_dim(d, op="tensordot") for d in dims[0]]
        right = [other._resolve_dim(d, op="tensordot") for d in dims[1]]
        names = [chr(ord("a") + i) for i in range(self.ndim)]
        others = [chr(ord("A") + i) for i in range(other.ndim)]
        for i, j in zip(left, right, strict=True):
            others[j] = names[i]
        kept = [n for i, n in enumerate(names) if i not in left] + [n for j, n in enumerate(others) if j not in right]
        return type(self).einsum(f"{''.join(names)},{''.join(others)}->{''.join(kept)}", self, other)

    # ---- indices -----------------------------------------------------------------------------------------------------

    def index_select(self, dim: int, index: Self) -> Self:
        """``t[..., index, ...]`` along ``dim``."""
        require_shape(index.ndim < 2, "index_select", f"index of {index.ndim} dims", {"tensor": self, "index": index},
                      "a vector of positions")  # fmt: skip
        index = index if index.ndim else index.reshape(1)
        return self[(slice(None),) * self._resolve_dim(dim, op="index_select") + (index,)]

    def take(self, index: Self) -> Self:
        """``t.flatten()[index]``."""
        return self.flatten()[index]

    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """``t.gather(dim, indices)``, the other dims broadcast; of ``t.flatten()`` without ``dim``."""
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        require_shape(indices.ndim == self.ndim, "take_along_dim", f"indices of {indices.ndim} dims",
                      {"input": self, "indices": indices}, "as many dims as the input")  # fmt: skip
        axis = self._resolve_dim(dim, op="take_along_dim")
        own, chosen = ((*x.shape[:axis], 1, *x.shape[axis + 1 :]) for x in (self, indices))
        rest = broadcast_shape(own, chosen)
        values, places = (x.expand((*rest[:axis], x.shape[axis], *rest[axis + 1 :])) for x in (self, indices))
        return values.gather(axis, places)

    def _like_source(self, name: str, dim: int, index: Self, source: Any) -> tuple[int, Self, Self]:
        """Return the dim, and an index and values of the shape that ``scatter`` takes."""
        axis = self._resolve_dim(dim, op=name)
        shape = (*self.shape[:axis], index.shape[0], *self.shape[axis + 1 :])
        at = index.reshape([-1 if i == axis else 1 for i in range(self.ndim)]).expand(shape)
        return axis, at, self.ufix(source).cast(self.dtype).expand(shape)

    def index_add(self, dim: int, index: Self, source: Self, *, alpha: float = 1) -> Self:
        """``t.scatter_reduce(dim, index, alpha * source, "sum")``, for whole rows."""
        axis, at, values = self._like_source("index_add", dim, index, source)
        return self.scatter_reduce(axis, at, values._scaled(alpha), "sum")

    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """``t.scatter(dim, index, source)``, for whole rows."""
        return self.scatter(*self._like_source("index_copy", dim, index, source))

    def index_fill(self, dim: int, index: Self, value: Any) -> Self:
        """``t.scatter(dim, index, value)``, for whole rows."""
        require_fit("index_fill", value, self.dtype)
        return self.scatter(*self._like_source("index_fill", dim, index, value))

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """``t.scatter_reduce(dim, index, src, "sum")``."""
        return self.scatter_reduce(dim, index, src, "sum")

    def bernoulli(self) -> Self:
        """``(Tensor.rand(*t.shape) < t).cast(t.dtype)``."""
        return (self.rand_like() < self).cast(self.dtype)
