"""Graphs to plain data and back, without recursion over their depth.

In:   a node.
Out:  a flat list of records, sources before users; loading interns every node again. Storage that holds data travels
      with it (as bytes) and gets a number of its own in the loading process.
Why:  kernels are compiled in other processes and kept on disk, and a deep graph would overflow Python's own pickling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops


def save_graph(root: Any) -> list[tuple[Any, ...]]:
    """Return the graph of ``root`` as records (op, dtype, source positions, arg, tag, data of storage or None)."""
    from tinygrad.uop.ops import buffers

    position: dict[Any, int] = {}
    records: list[tuple[Any, ...]] = []
    for u in root.toposort():
        data = None
        if u.op is Ops.BUFFER:
            found = buffers.get(u)
            if found is not None and found.is_allocated():
                data = tuple(bytes(part.as_memoryview()) for part in getattr(found, "bufs", (found,)))
        position[u] = len(records)
        records.append((int(u.op), u.dtype, tuple(position[s] for s in u.src), u.arg, u.tag, data))
    return records


def _unpickle_graph(records: list[tuple[Any, ...]]) -> Any:
    """Return the root of a graph that ``save_graph`` wrote."""
    from tinygrad.uop.ops import UOp
    from tinygrad.uop.storage import unique_slots

    nodes: list[UOp] = []
    slots: dict[int, int] = {}
    for op, dtype, src, arg, tag, data in records:
        if op == Ops.BUFFER and arg.name is None:  # named ones are numbers within a schedule, not storage
            # The parts of storage over several devices have its number.
            arg = replace(arg, slot=slots.setdefault(arg.slot, next(unique_slots)))
        node = UOp(Ops(op), dtype, tuple(nodes[i] for i in src), arg, tag)
        if data is not None:
            stored = node.buffer.ensure_allocated()
            for part, content in zip(getattr(stored, "bufs", (stored,)), data, strict=True):
                part.copyin(memoryview(bytearray(content)))
        nodes.append(node)
    return nodes[-1] if nodes else UOp(Ops.NOOP, dtypes.void)
