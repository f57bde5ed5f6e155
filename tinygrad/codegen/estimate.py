"""Count the work of a kernel from its graph, before anything is split or unrolled.

In:   a simplified kernel SINK.
Out:  arithmetic operations (index arithmetic left out), bytes moved, bytes of the buffers touched.
Why:  the graph is small and the loops are whole, so counting takes next to no time and does not depend on the schedule.
"""

from __future__ import annotations

from typing import Any

from tinygrad.codegen.late.structure import is_memory
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import bounds, ssimplify


def _times(ranges: dict[UOp, None]) -> Any:
    """Return how often a node inside these loops runs."""
    total: Any = 1
    for r in ranges:
        end = r.src[0]
        total = total * (end.arg if end.op is Ops.CONST else end)
    return total


def estimate_kernel(sink: UOp) -> tuple[Any, Any, int]:
    """Return the operations of one launch, the bytes that it moves, and the bytes of memory that it touches."""
    ops: Any = 0
    lds: Any = 0
    touched: dict[UOp, Any] = {}
    addresses = _index_nodes(sink)
    for u in sink.toposort():
        if u.op is Ops.REDUCE:
            ops = ops + _times(u.src[0].ranges | dict.fromkeys(u.src[1:]))
        elif u.op in GroupOp.ALU and u not in addresses:
            ops = ops + _times(u.ranges) * (2 if u.op is Ops.MULACC else 1)
        elif u.op is Ops.INDEX and is_memory(u.src[0]):
            buffer = u.src[0].without_after
            if buffer.arg.addrspace is AddrSpace.GLOBAL:
                count = _times(u.ranges)
                lds = lds + count * buffer.dtype.itemsize
                touched[buffer] = touched.get(buffer, 0) + count
    mem = sum(min(int(b.arg.shape[0]), bounds(count)[1]) * b.dtype.itemsize for b, count in touched.items())
    return ssimplify(ops), ssimplify(lds), mem


def _index_nodes(sink: UOp) -> set[UOp]:
    """Return the nodes that only compute addresses and gates."""
    found: set[UOp] = set()
    stack = [s for u in sink.toposort() if u.op is Ops.INDEX for s in u.src[1:]]
    stack += [u for u in sink.toposort() if u.dtype is dtypes.weakint]
    while stack:
        u = stack.pop()
        if u not in found:
            found.add(u)
            # What an index was loaded from is memory of its own right.
            stack.extend(() if u.op is Ops.INDEX else u.src)
    return found
