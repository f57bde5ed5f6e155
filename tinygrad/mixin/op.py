"""Composite operations: matmul, convolution, pooling, softmax, losses, sorting."""

from __future__ import annotations

from tinygrad.mixin.elementwise import ElementwiseMixin
from tinygrad.mixin.gradient import GradientMixin
from tinygrad.mixin.index import IndexMixin
from tinygrad.mixin.reduce import ReduceMixin


class OpMixin(ElementwiseMixin, ReduceMixin, IndexMixin, GradientMixin):
    """Composite operations of Tensor and UOp."""

    __slots__ = ()
