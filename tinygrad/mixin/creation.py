"""Creation methods."""

from __future__ import annotations

from tinygrad.mixin.dtype import DTypeMixin
from tinygrad.mixin.movement import MovementMixin


class CreationMixin(MovementMixin, DTypeMixin):
    """Creation methods of Tensor and UOp."""

    __slots__ = ()
