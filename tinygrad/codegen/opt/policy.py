"""Choose the optimisation steps of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer
    from tinygrad.uop.ops import UOp


def optimize_kernel(sink: UOp, renderer: Renderer) -> UOp:
    """Return the kernel with its ranges split and typed."""
    return sink
