"""Which methods of the user a kernel computes, for the lines of DEBUG=2 and for profiles.

In:   the kernels of a graph, and the contexts under which its nodes are computed.
Out:  the labels of all nodes that a kernel computes, in the order of computation.
Why:  a kernel is fused from many calls, and its name says only how its loops look. Labels are no part of any key: of
      equal graphs that different methods made, the first one names the kernels.
"""

from __future__ import annotations

from tinygrad.profiling import Metadata
from tinygrad.schedule.kernel import Kernel
from tinygrad.schedule.prepare import is_stored
from tinygrad.schedule.rangeify import Rangeify
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def _is_view_of_storage(u: UOp) -> bool:
    return is_stored(u) or (u.op in GroupOp.Movement and u.op is not Ops.PAD and is_stored(u.base))


class KernelLabels:
    """The labels of the nodes that each stored node is computed from."""

    def __init__(self, builder: Rangeify) -> None:
        self.found: dict[UOp, dict[Metadata, None]] = {}
        for u in builder.order:
            if u._device is None or _is_view_of_storage(u):
                continue  # constants and ranges are the same nodes for everybody, and storage was made before
            for label in u.metadata or ():
                self.found.setdefault(u, {})[label] = None
                for kernel, _, _ in builder.contexts.get(u, ()):
                    self.found.setdefault(kernel.root, {})[label] = None

    def of(self, kernel: Kernel) -> tuple[Metadata, ...]:
        """Return the labels of a kernel."""
        return tuple(dict.fromkeys(label for u in kernel.writes for label in self.found.get(u, ())))
