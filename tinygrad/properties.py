"""What a tensor says about itself, and Python's protocols.

In:   the node of a tensor.
Out:  ``PropertyMethods``: shape, dtype, device and sizes; ``len``, ``repr`` and iteration, and clear errors for the
      protocols that would need a value which is not computed yet.
Why:  all of it is read from the node. Nothing here computes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
