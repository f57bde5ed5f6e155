"""Reduce methods."""

from __future__ import annotations


class ReduceMixin:
    """Reduce methods of Tensor and UOp."""

    __slots__ = ()
