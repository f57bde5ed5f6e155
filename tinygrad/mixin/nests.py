"""Kernels made of loop nests that run one after the other, on scratch memory that they share.

In:   sizes of the scratch memory, and nests: stores in loops of their own.
Out:  the effect of all of them, to be closed by the loops around.
Why:  an algorithm that goes through its data block by block (attention, a scan) is written as plain loops; each nest is
      optimised like a kernel of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import AddrSpace, DType
from tinygrad.helpers import ceildiv, prod
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


class Nests:
    """A kernel that is being written.

    Args:
        groups: Iterations of the outermost loop; they run in parallel, each with scratch memory of its own.
    """

    def __init__(self, groups: int) -> None:
        self._numbers = itertools.count()
        self._scratch: dict[str, UOp] = {}
        self.group = self.loop(groups, AxisType.GLOBAL)
        self._after: tuple[UOp, ...] = (self.group,)

    def loop(self, size: Any, kind: AxisType = AxisType.LOOP) -> UOp:
        """Return a new loop."""
        from tinygrad.uop.ops import UOp

        return UOp.range(size, next(self._numbers), kind)

    def keep(self, name: str, size: int, dtype: DType) -> None:
        """Declare scratch memory."""
        from tinygrad.uop.ops import UOp

        self._scratch[name] = UOp.placeholder((size,), dtype, len(self._scratch), AddrSpace.REG)

    def at(self, name: str, place: UOp) -> UOp:
        """Return an element of scratch memory as it is after the last nest."""
        return self._scratch[name].after(*self._after).index(place)

    def memory(self, x: UOp) -> UOp:
        """Return an argument of the kernel that is read and written, as it is after the last nest."""
        return x.after(*self._after)

    def run(self, effect: UOp, *loops: UOp) -> None:
        """Add a nest: stores, and the loops that they are in."""
        marks = {u: u.src[0] for u in effect.toposort() if u.op is Ops.DETACH}  # a kernel has no gradient
        self._after = (effect.substitute(marks).nest(*loops) if marks else effect.nest(*loops),)

    def enter(self, loop: UOp) -> None:
        """Start the body of a loop."""
        self._after = (*self._after, loop)

    def leave(self, loop: UOp) -> None:
        """End it."""
        self._after = (self._after[0].end(loop),)

    def finish(self, name: str, *sizes: int) -> UOp:
        """Return the kernel."""
        from tinygrad.uop.ops import KernelInfo

        info = KernelInfo(name="_".join(map(str, (name, *sizes))))
        return self._after[0].end(self.group).sink(arg=info)


def kernel_result(x: UOp, dtype: DType, kernel: Callable[..., UOp]) -> UOp:
    """Return what a kernel writes: the shape of x."""
    from tinygrad.device import canonicalize_device
    from tinygrad.uop.ops import UOp

    device = canonicalize_device(x.device)
    assert isinstance(device, str)
    out = UOp.new_buffer(device, prod(x.max_shape), dtype).reshape(x.shape)
    return UOp.custom_kernel(out, x.contiguous(), fxn=kernel)[0]


def has_fast_scratch(device: Any) -> bool:
    """Return whether scratch memory of one iteration of the parallel loop is a cache: on a grid it is not."""
    from tinygrad.device import Device

    if not isinstance(device, str):
        return False
    return not Device.described(device).renderer.has_local


def equal_blocks(size: int, most: int, multiple: int) -> int:
    """Return the length of the equal blocks, at most about ``most`` and a multiple of ``multiple``, of a loop."""
    each = ceildiv(size, int(ceildiv(size, most)))
    return int(ceildiv(each, multiple)) * multiple


def inside(at: UOp, size: int, block: int) -> UOp | None:
    """Return the condition that a place in a block is inside of the tensor; None if all are."""
    return None if size % block == 0 else at < size
