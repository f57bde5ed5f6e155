"""Movement methods."""

from __future__ import annotations


class MovementMixin:
    """Movement methods of Tensor and UOp."""

    __slots__ = ()
