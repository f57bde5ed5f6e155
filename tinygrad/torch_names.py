"""Names that PyTorch and numpy have for what Tensor does in other words.

In:   the methods of Tensor.
Out:  ``TorchNames``: aliases, and compositions of a line or two.
Why:  programs are written from memory. A name that has a plain meaning here works; ``in_place`` has those that end in
      an underscore, ``name_hints`` those that have no counterpart.

The first line of a docstring is the whole documentation: the call in the names of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.calls import CallMixin
from tinygrad.dtype import DTypeLike, dtypes, strong_dtype
from tinygrad.errors import ShapeError, error_text
from tinygrad.mixin.hooks import dim_args

if TYPE_CHECKING:
    from typing import Self


class TorchNames(CallMixin):
    """Methods of Tensor under the names of other packages. Arguments are those of torch."""

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
        """``t.transpose(-2, -1)``."""
        return self.transpose(-2, -1)

    mH = H = mT  # noqa: N815  there are no complex numbers

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
        start = start + self.shape[axis] if start < 0 else start
        return self._slice_dim(axis, start, start + length)

    def select(self, dim: int, index: int) -> Self:
        """``t[..., index, ...]`` along ``dim``."""
        return self[(slice(None),) * self._resolve_dim(dim, op="select") + (index,)]

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """``tuple(t.select(dim, i) for i in range(t.shape[dim]))``."""
        return tuple(self.select(dim, i) for i in range(self.shape[self._resolve_dim(dim, op="unbind")]))

    def tile(self, *dims: Any) -> Self:
        """``t.repeat(*dims)``, with ones in front where there are fewer numbers than dims."""
        repeats = dim_args(dims[0], dims[1:], "tile") if dims else ()
        return self.repeat((1,) * (self.ndim - len(repeats)) + repeats)

    def fliplr(self) -> Self:
        """``t.flip(1)``."""
        return self.flip(1)

    def flipud(self) -> Self:
        """``t.flip(0)``."""
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """``t.transpose(*dims).flip(dims[0])``, ``k`` times."""
        turned = self
        for _ in range(k % 4):
            turned = turned.transpose(*dims).flip(dims[0])
        return turned

    def tensor_split(self, indices_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """``t.split(sizes, dim)``: so many parts as equal as possible, or cuts at these indices."""
        axis = self._resolve_dim(dim, op="tensor_split")
        n, cuts = self.shape[axis], indices_or_sections
        if isinstance(cuts, int):
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

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """``t.tensor_split(indices_or_sections, dim=2)``."""
        return self.tensor_split(indices_or_sections, 2)

    def concat(self, *args: Self, dim: int = 0) -> Self:
        """``t.cat(*args, dim=dim)``."""
        return self.cat(*args, dim=dim)

    concatenate = concat

    def hstack(self, *args: Self) -> Self:
        """``t.cat(*args, dim=1)``; dim 0 for vectors."""
        first, *rest = (x.reshape(1) if x.ndim == 0 else x for x in (self, *args))
        return first.cat(*rest, dim=0 if first.ndim == 1 else 1)

    def vstack(self, *args: Self) -> Self:
        """``t.cat(*args, dim=0)``, vectors as rows."""
        first, *rest = (x.reshape(1, -1) if x.ndim < 2 else x for x in (self, *args))
        return first.cat(*rest, dim=0)

    # ---- arithmetic --------------------------------------------------------------------------------------------------

    absolute, negative = CallMixin.abs, CallMixin.neg
    subtract, multiply, fix, sgn = CallMixin.sub, CallMixin.mul, CallMixin.trunc, CallMixin.sign
    arcsin, arccos, arctan, arcsinh = CallMixin.asin, CallMixin.acos, CallMixin.atan, CallMixin.asinh
    arccosh, arctanh, expit = CallMixin.acosh, CallMixin.atanh, CallMixin.sigmoid
    amax, amin, not_equal, argwhere = CallMixin.max, CallMixin.min, CallMixin.ne, CallMixin.nonzero
    bitwise_left_shift, bitwise_right_shift, remainder = CallMixin.lshift, CallMixin.rshift, CallMixin.mod

    def divide(self, other: Any, rounding_mode: Any = None) -> Self:
        """``t.div(other, rounding_mode=rounding_mode)``."""
        return self.div(other, rounding_mode=rounding_mode)

    def true_divide(self, other: Any) -> Self:
        """``t / other``."""
        return self.div(other)

    def floor_divide(self, other: Any) -> Self:
        """``t // other``."""
        return self.div(other, rounding_mode="floor")

    def rsub(self, other: Any, alpha: float = 1) -> Self:
        """``other - alpha * t``."""
        return self._scaled(alpha).sub(other, reverse=True)

    def _scaled(self, factor: float) -> Self:
        return self if factor == 1 else self * factor

    def clamp_min(self, min: Any) -> Self:  # noqa: A002  as torch
        """``t.clamp(min, None)``."""
        return self.clamp(min, None)

    def clamp_max(self, max: Any) -> Self:  # noqa: A002  as torch
        """``t.clamp(None, max)``."""
        return self.clamp(None, max)

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """``t.isnan().where(nan, t)``, infinities as the largest and the smallest finite number."""
        if not dtypes.is_float(self.dtype):
            return self
        exponent, mantissa = dtypes.finfo(strong_dtype(self.dtype))
        most = (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)
        high, low = (most if posinf is None else posinf), (-most if neginf is None else neginf)
        value = self.isnan().where(nan, self.isinf(True, False).where(high, self.isinf(False, True).where(low, self)))
        return value.cast(self.dtype)

    def frac(self) -> Self:
        """``t - t.trunc()``."""
        return self - self.trunc()

    def deg2rad(self) -> Self:
        """``t * (math.pi / 180)``."""
        return self * 0.017453292519943295

    def rad2deg(self) -> Self:
        """``t * (180 / math.pi)``."""
        return self * 57.29577951308232

    def logit(self) -> Self:
        """``(t / (1 - t)).log()``."""
        return (self / (1 - self)).log()

    def signbit(self) -> Self:
        """``t < 0``, True for -0.0 too."""
        return self._signbit()

    def xlogy(self, other: Any) -> Self:
        """``t * other.log()``, 0 where t is 0 and ``other`` is not NaN."""
        y = self.ufix(other)
        return y.isnan().where(y, self.eq(0).where(0.0, self * y.log()))

    def addcmul(self, tensor1: Self, tensor2: Self, *, value: float = 1) -> Self:
        """``t + value * tensor1 * tensor2``."""
        return self + (tensor1 * tensor2)._scaled(value)

    def addcdiv(self, tensor1: Self, tensor2: Self, *, value: float = 1) -> Self:
        """``t + value * tensor1 / tensor2``."""
        return self + (tensor1 / tensor2)._scaled(value)

    def float_power(self, exponent: Any) -> Self:
        """``t.double() ** exponent``."""
        return self.double().pow(exponent)

    # ---- comparisons -------------------------------------------------------------------------------------------------

    def gt(self, other: Any) -> Self:
        """``t > other``."""
        result: Self = self > other
        return result

    def lt(self, other: Any) -> Self:
        """``t < other``."""
        result: Self = self < other
        return result

    def ge(self, other: Any) -> Self:
        """``t >= other``."""
        result: Self = self >= other
        return result

    def le(self, other: Any) -> Self:
        """``t <= other``."""
        result: Self = self <= other
        return result

    greater, less, greater_equal, less_equal = gt, lt, ge, le

    def equal(self, other: Self) -> bool:
        """``t.shape == other.shape and (t == other).all().item()``."""
        return self.shape == other.shape and self.eq(other).all().item()

    def logical_and(self, other: Any) -> Self:
        """``t.bool() & other.bool()``."""
        return self.bool() & self.ufix(other).bool()

    def logical_or(self, other: Any) -> Self:
        """``t.bool() | other.bool()``."""
        return self.bool() | self.ufix(other).bool()

    def logical_xor(self, other: Any) -> Self:
        """``t.bool() ^ other.bool()``."""
        return self.bool() ^ self.ufix(other).bool()

    def isposinf(self) -> Self:
        """``t.isinf(detect_negative=False)``."""
        return self.isinf(True, False)

    def isneginf(self) -> Self:
        """``t.isinf(detect_positive=False)``."""
        return self.isinf(False, True)

    # ---- reductions --------------------------------------------------------------------------------------------------

    def norm(self, p: float = 2, dim: Any = None, keepdim: bool = False) -> Self:
        """``(t.abs() ** p).sum(dim, keepdim) ** (1 / p)``; the largest element for p = inf."""
        size = self.abs()
        if p == float("inf"):
            return size.max(dim, keepdim)
        if p == 0:
            return self.ne(0).cast(self.dtype).sum(dim, keepdim)
        if p in {1, 2}:
            return size.sum(dim, keepdim) if p == 1 else self.square().sum(dim, keepdim).sqrt()
        return size.pow(p).sum(dim, keepdim).pow(1 / p)

    def aminmax(self, dim: Any = None, keepdim: bool = False) -> tuple[Self, Self]:
        """``t.min(dim, keepdim), t.max(dim, keepdim)``."""
        return self.min(dim, keepdim), self.max(dim, keepdim)

    def count_nonzero(self, dim: Any = None) -> Self:
        """``(t != 0).sum(dim)``."""
        return self.ne(0).sum(dim)

    def nansum(self, dim: Any = None, keepdim: bool = False) -> Self:
        """``t.isnan().where(0, t).sum(dim, keepdim)``."""
        return self.isnan().where(0, self).sum(dim, keepdim)

    def nanmean(self, dim: Any = None, keepdim: bool = False) -> Self:
        """``t.nansum(dim, keepdim) / (~t.isnan()).sum(dim, keepdim)``."""
        return self.nansum(dim, keepdim) / self.isnan().logical_not().sum(dim, keepdim)

    def diff(self, n: int = 1, dim: int = -1) -> Self:
        """``t[1:] - t[:-1]`` along ``dim``, ``n`` times."""
        axis, value = self._resolve_dim(dim, op="diff"), self
        for _ in range(n):
            size = value.shape[axis]
            value = value._slice_dim(axis, min(1, size), size) - value._slice_dim(axis, 0, max(size - 1, 0))
        return value

    def trace(self) -> Self:
        """``t.diagonal().sum()``."""
        return self.diagonal().sum()

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

    def tensordot(self, other: Self, dims: Any = 2) -> Self:
        """``Tensor.einsum``: sums over the last ``dims`` of t and the first of ``other``, or over two lists of dims."""
        if isinstance(dims, int):
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
        return self[(slice(None),) * self._resolve_dim(dim, op="index_select") + (index,)]

    def take(self, index: Self) -> Self:
        """``t.flatten()[index]``."""
        return self.flatten()[index]

    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """``t.gather(dim, indices)``; of ``t.flatten()`` without ``dim``."""
        return self.flatten().gather(0, indices.flatten()) if dim is None else self.gather(dim, indices)

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
        return self.scatter(*self._like_source("index_fill", dim, index, value))

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """``t.scatter_reduce(dim, index, src, "sum")``."""
        return self.scatter_reduce(dim, index, src, "sum")

    def bernoulli(self) -> Self:
        """``(Tensor.rand(*t.shape) < t).cast(t.dtype)``."""
        return (self.rand_like() < self).cast(self.dtype)
