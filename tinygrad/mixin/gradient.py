"""Gradient methods."""

from __future__ import annotations


class GradientMixin:
    """Gradient methods of Tensor and UOp."""

    __slots__ = ()
