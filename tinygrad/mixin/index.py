"""Indexing, gather and scatter."""

from __future__ import annotations


class IndexMixin:
    """Indexing methods of Tensor and UOp."""

    __slots__ = ()
