"""Random numbers."""

from __future__ import annotations

from tinygrad.mixin.op import OpMixin


class RandMixin(OpMixin):
    """Random creation; last class of the mixin chain."""

    __slots__ = ()
