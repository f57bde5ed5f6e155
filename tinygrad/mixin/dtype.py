"""Shorthand casts.

In:   the ``cast`` hook.
Out:  one method per common dtype.
Why:  programs written for torch use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.mixin.hooks import Hooks

if TYPE_CHECKING:
    import builtins
    from typing import Self


class DTypeMixin(Hooks):
    """Methods named after dtypes, as in torch."""

    __slots__ = ()

    def is_floating_point(self) -> builtins.bool:
        """Whether the dtype is a float, weakfloat included.

        Example:
            >>> Tensor([1.5]).is_floating_point(), Tensor([1]).is_floating_point()
            (True, False)
        """
        return dtypes.is_float(self.dtype)

    def element_size(self) -> builtins.int:
        """Bytes per element.

        Raises:
            RuntimeError: The dtype is weak, so it has no storage.

        Example:
            >>> Tensor([1.5]).element_size()
            4
        """
        if self.dtype in dtypes.weaks:
            raise RuntimeError(f"element_size: {self.dtype} has no storage; cast to a concrete dtype first")
        return self.dtype.itemsize

    def float(self) -> Self:
        """Cast to float32.

        Example:
            >>> Tensor([1, 2]).float().tolist()
            [1.0, 2.0]
        """
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """Cast to float16.

        Example:
            >>> Tensor([0.1]).half().dtype
            dtypes.half
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16.

        Example:
            >>> Tensor([0.1]).bfloat16().dtype
            dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """Cast to float64.

        Example:
            >>> Tensor([0.1]).double().dtype
            dtypes.double
        """
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        """Cast to int32.

        Example:
            >>> Tensor([1.7, -1.7]).int().tolist()
            [1, -1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Cast to int64.

        Example:
            >>> Tensor([1.7]).long().dtype
            dtypes.long
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """Cast to int16.

        Example:
            >>> Tensor([70000]).short().tolist()
            [4464]
        """
        return self.cast(dtypes.int16)

    def bool(self) -> Self:
        """Cast to bool: non-zero is True.

        Example:
            >>> Tensor([0.0, 0.5]).bool().tolist()
            [False, True]
        """
        return self.cast(dtypes.bool)
