"""Dtype methods."""

from __future__ import annotations


class DTypeMixin:
    """Dtype methods of Tensor and UOp."""

    __slots__ = ()
