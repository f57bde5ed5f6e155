"""What a tensor says about itself, and Python's protocols.

In:   the node of a tensor.
Out:  ``PropertyMethods``: shape, dtype, device and sizes; ``len``, ``repr`` and iteration, and clear errors for the
      protocols that would need a value which is not computed yet.
Why:  all of it is read from the node. Nothing here computes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import prod
from tinygrad.training_flags import TrainingFlags

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    import numpy as np

    from tinygrad.dtype import DType


class PropertyMethods(TrainingFlags):
    """Properties of Tensor, and Python's protocols."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes: ints, or symbolic ints.

        Example:
            >>> Tensor([[1, 2, 3]]).shape
            (1, 3)
        """
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """Element type.

        Example:
            >>> Tensor([1.5]).dtype
            dtypes.float
        """
        return self.uop.dtype

    @property
    def device(self) -> str | tuple[str, ...] | None:
        """Device name, or a tuple of names; None for constants and ranges, which live nowhere.

        Example:
            >>> Tensor([1.5]).device == Device.DEFAULT, Tensor(1.5).device
            (True, None)
        """
        return self.uop.device

    @property
    def ndim(self) -> int:
        """Number of dims.

        Example:
            >>> Tensor([[1, 2, 3]]).ndim
            2
        """
        return len(self.uop.shape)

    @property
    def max_shape(self) -> tuple[int, ...]:
        """Shape with symbolic sizes replaced by their maximum.

        Example:
            >>> n = Variable("n", 1, 10).bind(3)
            >>> Tensor.empty(10, 2)[:n].max_shape
            (10, 2)
        """
        return self.uop.max_shape

    def max_numel(self) -> int:
        """Product of ``max_shape``.

        Example:
            >>> n = Variable("n", 1, 10).bind(3)
            >>> Tensor.empty(10, 2)[:n].max_numel()
            20
        """
        return int(prod(self.max_shape))

    def numel(self) -> Any:
        """Number of elements.

        Example:
            >>> Tensor.empty(2, 3).numel()
            6
        """
        return prod(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of one dim.

        Example:
            >>> Tensor.empty(2, 3).size(), Tensor.empty(2, 3).size(-1)
            ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[self._resolve_dim(dim, op="size")]

    def nbytes(self) -> Any:
        """Number of elements times bytes per element; symbolic where the shape is.

        Raises:
            RuntimeError: The dtype is weak.

        Example:
            >>> Tensor.empty(2, 3, dtype="float16").nbytes()
            12
        """
        return self.numel() * self.element_size()

    # ---- Python's protocols ----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        grad = "" if self.grad is None else " with grad"
        head = f"Tensor shape={shown(self.shape)} dtype={self.dtype.full_name} device={self.device}{grad}"
        try:
            values = self._values_in_memory()
        except Exception:  # noqa: BLE001  printing must not fail, whatever state the device is in
            values = None
        return f"<{head}>" if values is None else f"<{head}\n{values}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        if not isinstance(self.shape[0], int):
            raise ShapeError(error_text("len", f"dim 0 is symbolic: {shown(self.shape[0])}", {"tensor": self},
                                        hint="t.shape[0] is the symbolic size"))  # fmt: skip
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TypeError("__bool__ on Tensor is not defined: its value is not computed yet; use .item() or where()")

    def __contains__(self, x: object) -> bool:
        raise TypeError("`in` on Tensor is not defined; use (t == x).any().item()")

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            return
        for i in range(len(self)):
            yield self[i]

    def __delitem__(self, indices: Any) -> None:
        raise TypeError("Tensor does not support deleting items; build a new tensor, such as t[:i].cat(t[i + 1:])")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        """Answer numpy: an operator with an array on its left is a tensor, other functions take the values.

        So ``array + t`` is lazy as ``t + array`` is, and ``np.exp(t)`` is an array as ``np.exp(t.numpy())`` is.
        """
        name = _OPERATORS.get(function.__name__)
        if name is not None and method == "__call__" and out is None and not kwargs:
            left, right = inputs
            is_ours = isinstance(left, PropertyMethods)
            answer = getattr(left, f"__{name}__")(right) if is_ours else getattr(right, _mirrored(name))(left)
            if answer is not NotImplemented:
                return answer
        values = [x.numpy() if isinstance(x, PropertyMethods) else x for x in inputs]
        return getattr(function, method)(*values, **kwargs, **({} if out is None else {"out": out}))


# numpy's functions behind Python's operators -> the name of the operator.
_OPERATORS: Final = {
    "add": "add", "subtract": "sub", "multiply": "mul", "true_divide": "truediv", "divide": "truediv",
    "floor_divide": "floordiv", "remainder": "mod", "power": "pow", "matmul": "matmul", "bitwise_and": "and",
    "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "lshift", "right_shift": "rshift", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
_MIRRORED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _mirrored(name: str) -> str:
    """Return the method that answers an operator for the operand on its right."""
    return f"__{_MIRRORED[name]}__" if name in _MIRRORED else f"__r{name}__"
