"""Training mode and the flags that say which tensors take part in it, as this interface and older programs have them.

In:   ``TRAINING``, and the words ``training``, ``train``, ``no_grad``, ``requires_grad``.
Out:  ``TensorType``, the metaclass of Tensor, and ``TrainingFlags``.
Why:  only ``backward`` differentiates and only ``is_param`` tells optimizers what to update, so most of these words
      have nothing to switch; programs that use them run all the same.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.in_place import InPlaceNames
from tinygrad.name_hints import existing
from tinygrad.repointing import new_storage
from tinygrad.settings import TRAINING, Context

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.uop.ops import UOp


class TensorType(type):
    """Gives the class itself the properties ``training`` and ``_seed``, and a ``dir`` without mere hints."""

    def __dir__(cls) -> list[str]:
        return existing(cls, super().__dir__())

    @property
    def training(cls) -> bool:
        """The context variable TRAINING: dropout and batch statistics are on."""
        return bool(TRAINING.value)

    @training.setter
    def training(cls, value: bool) -> None:
        TRAINING.value = int(value)

    @property
    def _seed(cls) -> int:
        """The seed of ``manual_seed``, or the start time."""
        return cls._current_seed()  # type: ignore[attr-defined,no-any-return]  # of Tensor, whose type this is

    @_seed.setter
    def _seed(cls, seed: int) -> None:
        cls.manual_seed(seed)  # type: ignore[attr-defined]


class NoGrad(contextlib.ContextDecorator):
    """Accepted for older programs. Only ``backward`` differentiates, so there is nothing to switch off."""

    def __enter__(self) -> NoGrad:
        return self

    def __exit__(self, *_: object) -> None: ...


class TrainingFlags(InPlaceNames):
    """``is_param``, and what older programs call it."""

    if not TYPE_CHECKING:
        __slots__ = ()  # the attributes below are slots of Tensor; type checkers would ask for them here

    _wants_grad = True  # False on tensors for which requires_grad=False was said

    uop: UOp
    grad: Self | None
    is_param: bool

    def _set_param_flag(self, requires_grad: bool | None) -> Self:
        if requires_grad is not None:
            self.requires_grad = requires_grad
        return self

    def _with_flags(self, other: Self) -> Self:
        """Take over what another tensor says about training; returns self."""
        if not other._wants_grad:
            self.requires_grad = False
        return self.is_param_(other.is_param) if not other.is_param else self

    @property
    def requires_grad(self) -> bool:
        """Whether optimizers update this tensor, for older programs; with False, ``backward`` does not fill ``grad``.

        Setting it to True gives a float constant storage on the default device, without which it has no gradient.

        Example:
            >>> Tensor([1.0], requires_grad=False).requires_grad
            False
        """
        return self.is_param

    @requires_grad.setter
    def requires_grad(self, value: bool | None) -> None:
        self.is_param = bool(value)
        if bool(value) is not self._wants_grad:
            self._wants_grad = bool(value)
        if value:
            self._give_storage()

    def _give_storage(self) -> None:
        """Give a float constant storage: all constants of one value are one node, and a parameter is not the others."""
        if self.uop.is_virtual and dtypes.is_float(self.uop.dtype):
            self.uop = new_storage(self.uop)

    def is_param_(self, is_param: bool = True) -> Self:
        """Set whether optimizers update this tensor; returns self.

        Example:
            >>> Tensor([1.0]).is_param_(False).is_param
            False
        """
        self.is_param = bool(is_param)
        if is_param and not self._wants_grad:
            self._wants_grad = True
        return self

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """Set ``requires_grad``; returns self.

        Example:
            >>> Tensor([1.0]).requires_grad_(False).is_param
            False
        """
        self.requires_grad = requires_grad
        return self

    @staticmethod
    def train(mode: bool = True) -> Context:
        """Return a context (or decorator) in which TRAINING is on.

        Example:
            >>> with Tensor.train():
            ...     print(Tensor.training)
            True
        """
        return Context(TRAINING=int(mode))

    @staticmethod
    def no_grad() -> NoGrad:
        """Return a context (or decorator) for code that needs no gradients. Nothing has to be switched off here.

        Example:
            >>> with Tensor.no_grad():
            ...     print((Tensor([2.0]) * 3).tolist())
            [6.0]
        """
        return NoGrad()
