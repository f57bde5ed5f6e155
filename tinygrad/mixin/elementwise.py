"""Elementwise methods."""

from __future__ import annotations

from tinygrad.mixin.creation import CreationMixin


class ElementwiseMixin(CreationMixin):
    """Elementwise methods of Tensor and UOp."""

    __slots__ = ()
