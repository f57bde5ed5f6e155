"""The same call again: what a replay needs not do when nothing but the contents of its inputs has changed.

In:   a replay that has just run, with its arguments and results.
Out:  ``Repeat``: runs the launches once more and returns the result as a new tensor; None where that is not right.
Why:  a network of tiny kernels runs for a few microseconds, and finding storage for arguments and results in Python
      takes longer. Launch lists point at the right memory already if the arguments are the same nodes and nobody has
      kept the result of an earlier call: its storage then takes the new result.
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

MOST_BYTES: Final = 1 << 20  # results that are kept for the next calls
MOST_RESULTS: Final = 2


class Result:
    """Storage of one result, and who holds it.

    Args:
        storage: BUFFERs of the results.
        shown: The node of the returned tensor.
        slots: For each PARAM of the launches, the memory that it stands for.
    """

    __slots__ = ("alone", "held", "memory", "shown", "slots")

    def __init__(self, storage: Sequence[UOp], shown: UOp, slots: dict[int, Any]) -> None:
        self.shown, self.slots = shown, list(slots.items())
        buffers = [node.buffer for node in storage]
        self.memory = [(buffer, buffer._buf) for buffer in buffers]
        self.held: list[Any] = [shown, *storage, *buffers]
        self.alone: list[int] = []

    def close(self) -> None:
        """Count who holds the result, at a moment when nobody else does."""
        self.alone = self._holders()

    def is_free(self) -> bool:
        """Whether nobody else holds the result, and its memory is where it was."""
        if self._holders() != self.alone:
            return False
        return all(buffer._buf is memory for buffer, memory in self.memory)

    def _holders(self) -> list[int]:
        return list(map(sys.getrefcount, self.held))


class Repeat:
    """Replays with the same arguments.

    Args:
        graph: The launch list.
        arguments: The arguments, and the BUFFERs under them.
        is_param: The flag of the returned tensor.
    """

    __slots__ = ("arguments", "graph", "is_param", "results")

    def __init__(self, graph: NativeGraph, arguments: Sequence[tuple[Tensor, UOp]], is_param: bool) -> None:
        self.graph, self.is_param = graph, is_param
        # The arguments must not be kept alive.
        self.arguments = [(weakref.ref(t.uop), weakref.ref(node.buffer), node.buffer._buf) for t, node in arguments]
        # Two, because the result of the call before is still held in ``result = function(x)``.
        self.results: list[Result] = []

    def has_arguments(self, args: Sequence[Any]) -> bool:
        """Whether these are the same arguments, in the same memory."""
        if len(args) != len(self.arguments):
            return False
        for given, (node, buffer, memory) in zip(args, self.arguments, strict=True):
            if type(given) is not Tensor or given.uop is not node() or getattr(buffer(), "_buf", None) is not memory:
                return False
        return True

    def run(self) -> Tensor | None:
        """Run the launches into storage that nobody needs any more, and return the result; None if there is none."""
        if wants_report():
            return None
        found = next((result for result in self.results if result.is_free()), None)
        if found is None:
            return None
        graph = self.graph
        known = graph.memory
        for slot, memory in found.slots:
            if known.get(slot) is not memory:
                known[slot] = memory
                graph.batch.set_buffers(graph.places[slot], memory)
        graph.batch.run()
        GlobalCounters.kernel_count += len(graph)
        GlobalCounters.global_ops += graph.work[0]
        GlobalCounters.global_mem += graph.work[1]
        return self.tensor(found)

    def tensor(self, result: Result) -> Tensor:
        """Return a tensor that shows a result."""
        made = Tensor(result.shown)
        if not self.is_param:
            made.is_param = False
        return made


__all__ = ["MOST_BYTES", "MOST_RESULTS", "Repeat", "Result"]
