"""The same call again: what a replay needs not do when nothing but the contents of its inputs has changed.

In:   a replay that has just run, with its arguments and results.
Out:  ``Repeat``: runs the launches once more and returns the result as a new tensor; None where that is not right.
Why:  a network of tiny kernels runs for a few microseconds, and finding storage for arguments and results in Python
      takes longer. Launch lists point at the right memory already if the arguments are the same nodes and nobody has
      kept the result of the call before: its storage then takes the new result.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tinygrad.engine.report import wants_report
from tinygrad.helpers import GlobalCounters
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.engine.graph import NativeGraph

MOST_BYTES: Final = 1 << 20  # results that are kept for the next call


class Repeat:
    """One replay that may be repeated.

    Args:
        graph: The launch list, as the replay left it.
        arguments: The arguments, and the BUFFERs under them.
        storage: BUFFERs of the results.
        shown: The node of the returned tensor.
        is_param: Its flag.
    """

    __slots__ = ("alone", "arguments", "graph", "held", "is_param", "memory", "shown")

    def __init__(
        self,
        graph: NativeGraph,
        arguments: Sequence[tuple[Tensor, UOp]],
        storage: Sequence[UOp],
        shown: UOp,
        is_param: bool,
    ) -> None:
        self.graph, self.shown, self.is_param = graph, shown, is_param
        # The arguments must not be kept alive.
        self.arguments = [(weakref.ref(t.uop), weakref.ref(node.buffer), node.buffer._buf) for t, node in arguments]
        buffers = [node.buffer for node in storage]
        self.memory = [(buffer, buffer._buf) for buffer in buffers]
        self.held: list[Any] = [shown, *storage, *buffers]
        self.alone: list[int] = []

    def close(self) -> Repeat:
        """Count who holds the result, at a moment when nobody else does."""
        self.alone = self._holders()
        return self

    def _holders(self) -> list[int]:
        return list(map(sys.getrefcount, self.held))

    def fits(self, args: tuple[Any, ...]) -> bool:
        """Whether a call with these arguments is the same, and the result of the last one is nobody's any more."""
        arguments = self.arguments
        if len(args) != len(arguments):
            return False
        for given, (node, buffer, memory) in zip(args, arguments, strict=True):
            if type(given) is not Tensor or given.uop is not node() or getattr(buffer(), "_buf", None) is not memory:
                return False
        if any(buffer._buf is not memory for buffer, memory in self.memory):
            return False
        return self._holders() == self.alone and not wants_report()

    def run(self) -> Tensor:
        """Run the launches and return the result."""
        graph = self.graph
        graph.batch.run()
        GlobalCounters.kernel_count += len(graph)
        GlobalCounters.global_ops += graph.work[0]
        GlobalCounters.global_mem += graph.work[1]
        return self.result()

    def result(self) -> Tensor:
        """Return a tensor that shows the result."""
        tensor = Tensor(self.shown)
        if not self.is_param:
            tensor.is_param = False
        return tensor


__all__ = ["MOST_BYTES", "Repeat"]
