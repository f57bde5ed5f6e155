"""Composite operations: matmul, joining tensors, triangles, softmax; and the class that gathers all of them.

In:   the methods of the elementwise, reduce and movement mixins.
Out:  ``OpMixin``. There is no matmul node: a product is a broadcast multiply and a sum over the shared axis.
Why:  the scheduler recognises a contraction by its form, so convolutions and einsum get fast by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from tinygrad.dtype import DType, DTypeLike, dtypes, least_upper_dtype, to_dtype
from tinygrad.errors import ArgumentError, ShapeError, error_text, shown
from tinygrad.mixin.composite import (
    CompositeShapeError,
    ContractionError,
    contract,
    contraction_dtypes,
    sizes_differ,
)
from tinygrad.mixin.conv import ConvMixin
from tinygrad.mixin.gradient import GradientMixin
from tinygrad.mixin.hashing import HashMixin
from tinygrad.mixin.hooks import check_same_device
from tinygrad.mixin.index import IndexMixin
from tinygrad.mixin.join import join
from tinygrad.mixin.linalg import LinalgMixin
from tinygrad.mixin.loss import LossMixin
from tinygrad.mixin.norm import NormMixin
from tinygrad.mixin.pool import PoolMixin
from tinygrad.mixin.scan import ScanMixin


class OpMixin(ConvMixin, PoolMixin, NormMixin, LossMixin, ScanMixin, IndexMixin, LinalgMixin, HashMixin, GradientMixin):
    """Composite operations of Tensor and UOp."""

    __slots__ = ()

    # ---- products --------------------------------------------------------------------------------------------------

    def dot(self, w: Self, dtype: DTypeLike | None = None) -> Self:
        """Return the matrix product by numpy's rules: 1-d operands are vectors, leading dims are broadcast.

        Args:
            w: Shape (..., K, N) or (K,), where ``self`` has K as its last size.
            dtype: Of accumulator and result; default: the common dtype, with float32 sums for half precision.

        Raises:
            ShapeError: An operand is 0-d, the inner sizes differ, or the leading dims do not broadcast.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).dot(Tensor([10, 1])).tolist()
            [12, 34]
        """
        w = self.ufix(w)
        _check_dot(self, w)
        accumulator, result = contraction_dtypes(
            least_upper_dtype(self.dtype, w.dtype), None if dtype is None else to_dtype(dtype)
        )
        left = self._uop if self.ndim > 1 else self._uop.unsqueeze(0)
        right = w._uop if w.ndim > 1 else w._uop.unsqueeze(1)
        # (..., M, 1, K) * (..., 1, N, K) summed over K
        product = contract(left.unsqueeze(-2), right.transpose(-1, -2).unsqueeze(-3), 1, accumulator)
        if w.ndim == 1:
            product = product.squeeze(-1)
        if self.ndim == 1:
            product = product.squeeze(-1 if w.ndim == 1 else -2)
        return self._wrap_uop(product.cast(result))

    def matmul(self, x: Self, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
        """Return ``self.dot(x)``, or ``x.dot(self)`` with ``reverse``; also written ``@``.

        Example:
            >>> (Tensor([[1, 2], [3, 4]]) @ Tensor([1, 1])).tolist()
            [3, 7]
        """
        return self.ufix(x).dot(self, dtype=dtype) if reverse else self.dot(x, dtype=dtype)

    def image_dot(self, w: Self, dtype: DTypeLike | None = None) -> Self:
        """Return ``dot``; there is one layout.

        Example:
            >>> Tensor([[1.0, 2.0]]).image_dot(Tensor([[3.0], [4.0]])).tolist()
            [[11.0]]
        """
        return self.dot(w, dtype=dtype)

    def linear(self, weight: Self, bias: Self | None = None, dtype: DTypeLike | None = None) -> Self:
        """Return ``self.dot(weight) + bias``; a 1-d weight multiplies element by element.

        Args:
            weight: Shape (in, out), or (in,).
            bias: Broadcast to the result, or None.
            dtype: Operands are cast to it first.

        Example:
            >>> weight = Tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
            >>> Tensor([[1.0, 2.0]]).linear(weight, Tensor([10.0, 20.0, 30.0])).tolist()
            [[11.0, 22.0, 33.0]]
        """
        if dtype is not None:
            lowered = to_dtype(dtype)
            return self.cast(lowered).linear(weight.cast(lowered), bias if bias is None else bias.cast(lowered))
        x = self.mul(weight) if weight.ndim == 1 else self.dot(weight)
        return x if bias is None else x.add(bias)

    @classmethod
    def einsum(cls, formula: str, *operands: Any, dtype: DTypeLike | None = None) -> Self:
        """Sum products over named axes, as numpy's einsum.

        Args:
            formula: Such as ``"ij,jk->ik"``. A letter that is repeated within an operand takes its diagonal, ``...``
                stands for broadcast dims; without ``->`` the letters that occur once are kept, in alphabetical order.
            *operands: One tensor per subscript, or one list of them.
            dtype: Of accumulator and result.

        Raises:
            ValueError: The number of operands is not that of the subscripts.
            ShapeError: Sizes of one letter conflict, a rank is wrong, or an output letter is unknown.

        Example:
            >>> Tensor.einsum("ij,j->i", Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
            [3, 7]
        """
        from tinygrad.mixin.einsum import einsum

        tensors = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
        if not tensors or not all(hasattr(t, "_uop") for t in tensors) or not isinstance(formula, str):
            raise ArgumentError(error_text("einsum", f"formula {shown(formula)}, operands {shown(list(tensors))}",
                                           rule="a string, then one tensor per subscript"))  # fmt: skip
        result = einsum(formula, [t._uop for t in tensors], None if dtype is None else to_dtype(dtype))
        wrapped: Self = tensors[0]._wrap_uop(result)
        return wrapped

    def sequential(self, ll: Sequence[Callable[[Self], Self]]) -> Self:
        """Apply the callables of the list one after the other.

        Example:
            >>> Tensor([-1.0, 2.0]).sequential([Tensor.relu, lambda x: x * 10]).tolist()
            [0.0, 20.0]
        """
        value = self
        for function in ll:
            value = function(value)
        return value

    # ---- joining ---------------------------------------------------------------------------------------------------

    def cat(self, *args: Self, dim: int = 0, axis: int | None = None) -> Self:
        """Concatenate along an existing dim, ``dim`` or ``axis``; dtypes are promoted to their common one.

        Raises:
            ShapeError: Another dim differs, or ``dim`` is out of range.

        Example:
            >>> Tensor([1, 2]).cat(Tensor([3])).tolist()
            [1, 2, 3]
        """
        if isinstance(self, (list, tuple)):
            raise ArgumentError(
                error_text("cat", f"the tensors are in a {type(self).__name__}", hint="Tensor.cat(*tensors)")
            )
        parts = [self, *args]
        dim = self._resolve_dim(dim if axis is None else axis, op="cat")
        for part in args:
            if part.ndim != self.ndim or any(
                sizes_differ(a, b) for i, (a, b) in enumerate(zip(self.shape, part.shape, strict=True)) if i != dim
            ):
                raise CompositeShapeError(
                    error_text(
                        "cat",
                        f"shapes {shown(self.shape)} and {shown(part.shape)} differ outside dim {dim}",
                        {"first": self, "other": part},
                        rule=f"all sizes but that of dim {dim} are equal",
                    )
                )
        if self.ndim == 0:
            raise CompositeShapeError(
                error_text("cat", "0-d tensors have no dim to join", {"first": self}, hint="use stack")
            )
        common = least_upper_dtype(*(part.dtype for part in parts))
        return self._wrap_uop(join([part._uop.cast(common) for part in parts], dim))

    def stack(self, *args: Self, dim: int = 0, axis: int | None = None) -> Self:
        """Join tensors of one shape along a new dim, ``dim`` or ``axis``; also ``Tensor.stack([a, b])``.

        Raises:
            ShapeError: Shapes differ, or ``dim`` is out of range.

        Example:
            >>> Tensor([1, 2]).stack(Tensor([3, 4]), dim=1).tolist()
            [[1, 3], [2, 4]]
        """
        first: Any = self  # ``Tensor.stack([a, b])`` gives a list
        parts: list[Self] = [*first, *args] if isinstance(first, (list, tuple)) else [first, *args]
        if not parts:
            raise CompositeShapeError(error_text("stack", "the list of tensors is empty", rule="at least one tensor"))
        for part in parts[1:]:
            if part.ndim != parts[0].ndim or any(map(sizes_differ, parts[0].shape, part.shape)):
                raise CompositeShapeError(
                    error_text(
                        "stack",
                        f"shapes {shown(parts[0].shape)} and {shown(part.shape)} differ",
                        {"first": parts[0], "other": part},
                        rule="all shapes are equal",
                    )
                )
        place = parts[0]._resolve_dim(dim if axis is None else axis, extra=True, op="stack")
        return parts[0].unsqueeze(place).cat(*(part.unsqueeze(place) for part in parts[1:]), dim=place)

    # ---- triangles -------------------------------------------------------------------------------------------------

    def _column_below(self, name: str, limit: Any) -> Self:
        if self.ndim < 2:
            raise ShapeError(error_text(name, f"{self.ndim} dims", {"tensor": self}, rule="at least 2 dims"))
        if isinstance(limit, float):
            found = f"diagonal of type {type(limit).__name__}"
            raise TypeError(error_text(name, found, {"tensor": self}, rule="an int"))
        rows, cols = self.shape[-2:]
        last: Self = type(self).arange(rows).reshape(rows, 1) + limit
        return type(self).arange(cols) < last

    def triu(self, diagonal: Any = 0) -> Self:
        """Return the upper triangle, from ``diagonal`` places right of the main diagonal on; 0 elsewhere.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
            [[1, 2], [0, 4]]
        """
        return self._column_below("triu", diagonal).where(0, self).cast(self.dtype)

    def tril(self, diagonal: Any = 0) -> Self:
        """Return the lower triangle, up to ``diagonal`` places right of the main diagonal; 0 elsewhere.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).tril(-1).tolist()
            [[0, 0], [3, 0]]
        """
        return self._column_below("tril", diagonal + 1).where(self, 0).cast(self.dtype)

    # ---- softmax ---------------------------------------------------------------------------------------------------

    def _shifted(self, axis: int, dtype: DTypeLike | None) -> tuple[Self, DType]:
        """Return self minus its maximum along the axis, and the dtype of what is made of it.

        The maximum is a constant to the gradient. The difference is float32 or wider: a sum of exponentials would
        leave the range of half precision where there are many, and each step would round.
        """
        axis = self._resolve_dim(axis, op="softmax")
        x = self if dtype is None else self.cast(dtype)
        own = x.dtype if dtypes.is_float(x.dtype) and x.dtype not in dtypes.weaks else dtypes.default_float
        x = x.cast(own).cast(least_upper_dtype(own, dtypes.float32))
        return (x - x.max(axis=axis, keepdim=True).detach() if self.ndim else x - x.detach()), own

    def softmax(self, axis: int = -1, dtype: DTypeLike | None = None, *, dim: int | None = None) -> Self:
        """Return exp(x) / sum(exp(x)) along an axis, from x minus its maximum; narrow floats are rounded at the end.

        Args:
            axis: The axis that sums to 1.
            dtype: Of the result; x is cast to it first.
            dim: Another name of ``axis``.

        Example:
            >>> Tensor([1.0, 1.0]).softmax().tolist()
            [0.5, 0.5]
        """
        axis = axis if dim is None else dim
        shifted, own = self._shifted(axis, dtype)
        e = shifted.exp()
        share: Self = e / (e.sum(axis=axis, keepdim=True) if self.ndim else e)
        return share.cast(own)

    def log_softmax(self, axis: int = -1, dtype: DTypeLike | None = None, *, dim: int | None = None) -> Self:
        """Return the logarithm of ``softmax``, computed directly.

        Example:
            >>> Tensor([0.0, 0.0, 1000.0]).log_softmax().tolist()
            [-1000.0, -1000.0, 0.0]
        """
        axis = axis if dim is None else dim
        shifted, own = self._shifted(axis, dtype)
        e = shifted.exp()
        logarithm: Self = shifted - (e.sum(axis=axis, keepdim=True) if self.ndim else e).log()
        return logarithm.cast(own)

    def softmin(self, axis: int = -1, dtype: DTypeLike | None = None, *, dim: int | None = None) -> Self:
        """Return ``softmax(-x)``.

        Example:
            >>> Tensor([0.0, 1.0]).softmin().numpy()
            array([0.7310586 , 0.26894143], dtype=float32)
        """
        x = self if dtypes.is_float(self.dtype) else self.cast(dtypes.default_float)  # unsigned integers have no sign
        return x.neg().softmax(axis if dim is None else dim, dtype)


def _check_dot(x: Any, w: Any) -> None:
    operands = {"left": x, "right": w}
    check_same_device("matmul", x, w)
    if x.ndim == 0 or w.ndim == 0:
        raise ContractionError(
            error_text("matmul", "cannot dot a 0-d operand", operands, rule="at least 1 dim", hint="use *")
        )
    inner = w.shape[-2] if w.ndim > 1 else w.shape[0]
    if sizes_differ(x.shape[-1], inner):
        turned = w.ndim > 1 and not sizes_differ(x.shape[-1], w.shape[-1])
        raise ContractionError(
            error_text(
                "matmul",
                f"cannot dot: inner sizes differ, {shown(x.shape[-1])} and {inner}",
                operands,
                rule="left.shape[-1] == right.shape[-2]",
                hint="right.transpose(-1, -2) fits" if turned else None,
            )
        )
    for a, b in zip(reversed(x.shape[:-2]), reversed(w.shape[:-2]), strict=False):
        if sizes_differ(a, b) and not (isinstance(a, int) and a == 1) and not (isinstance(b, int) and b == 1):
            raise ShapeError(
                error_text(
                    "matmul",
                    f"leading dims {shown(x.shape[:-2])} and {shown(w.shape[:-2])} do not broadcast",
                    operands,
                    rule="leading sizes are equal or 1",
                )
            )
