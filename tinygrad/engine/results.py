"""What the PARAMs of a captured LINEAR stand for, and how returned tensors are made.

In:   what a function returned while it was captured.
Out:  records of storage and views, without any memory.
Why:  capturing writes them down, and both ways to replay (all checks, or those that a usual call needs) read them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from tinygrad.device import MultiBuffer
from tinygrad.dtype import DType
from tinygrad.record import record, replace
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import ParamArg, UOp, buffers
from tinygrad.uop.storage import unique_slots

INPUT: Final = "input"
RESULT: Final = "result"


@record(frozen=True)
class Slot:
    """What a PARAM of the captured LINEAR stands for: part of an input, or of a result.

    Attributes:
        kind: "input" or "result".
        index: Its number.
        offset: In bytes, from the beginning of the storage.
        size: Elements.
        dtype: Of the elements.
        whole: It is the storage itself.
    """

    kind: str
    index: int
    offset: int
    size: int
    dtype: DType
    whole: bool

    def part(self, node: UOp) -> UOp:
        """Return the node of the part of the storage ``node``."""
        if self.whole:
            return node
        return UOp.from_buffer(node.buffer.view(self.size, self.dtype, self.offset))


@record(frozen=True)
class ResultStorage:
    """Storage that every replay makes anew."""

    device: str
    size: int
    dtype: DType


@record(frozen=True)
class Leaf:
    """How a returned tensor is made again: views, applied to an input or to the storage of a result.

    Attributes:
        kind: "input", "result", "argument" (the input tensor itself) or "same" (a tensor that no replay changes).
        index: Number of the input.
        sections: For a result: (number, offset, size, dtype) of the part of the storage that is shown; over several
            devices one for each.
        chain: Movement nodes as (op, dtype, arg, symbolic sources), the innermost first.
        is_param: The tensor's flag.
        tensor: For "same".
        storage: For a result: the record of its BUFFER, from which one over several devices is made again.
    """

    kind: str
    index: int = -1
    sections: tuple[tuple[int, int, int, DType], ...] = ()
    chain: tuple[tuple[Ops, DType, Any, tuple[UOp, ...]], ...] = ()
    is_param: bool = True
    tensor: Tensor | None = None
    storage: ParamArg | None = None

    @property
    def is_symbolic(self) -> bool:
        """Whether the views depend on Variables."""
        return any(sizes for _, _, _, sizes in self.chain)

    def viewed(self, node: UOp, values: Mapping[str, int]) -> UOp:
        """Return the views of this leaf applied to a node, where the Variables have these values."""
        given = tuple(values.items())
        for op, dtype, arg, sizes in self.chain:
            node = UOp(op, dtype, (node, *[_rebound(size, given) for size in sizes]), arg)
        return node

    def base(self, inputs: list[UOp], results: list[UOp]) -> UOp:
        """Return the node under the views, given the BUFFERs of inputs and results."""
        if self.kind == INPUT:
            return inputs[self.index]
        assert self.storage is not None
        shown = [_section(results[number], offset, size, dtype) for number, offset, size, dtype in self.sections]
        if isinstance(self.storage.device, str):
            return shown[0]
        joined = UOp(Ops.BUFFER, self.storage.dtype, (), replace(self.storage, slot=next(unique_slots)))
        buffers[joined] = MultiBuffer.of([part.buffer for part in shown])
        return joined


@functools.lru_cache(maxsize=1024)
def _rebound(size: UOp, given: tuple[tuple[str, int], ...]) -> UOp:
    """Return a size whose Variables have the given (name, value); without one they keep that of the capture.

    It is kept, because a loop uses the same sizes again and again.
    """
    values = dict(given)
    bound = [u for u in size.toposort() if u.is_bound_var and u.expr in values]
    return size.substitute({u: u.src[0].bind(values[u.expr]) for u in bound}) if bound else size


def _section(node: UOp, offset: int, size: int, dtype: DType) -> UOp:
    whole = node.buffer
    if offset == 0 and size == whole.size and dtype is whole.dtype:
        return node
    return UOp.from_buffer(whole.view(size, dtype, offset))


__all__ = ["INPUT", "RESULT", "Leaf", "ResultStorage", "Slot"]
