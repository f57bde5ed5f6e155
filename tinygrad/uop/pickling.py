"""Graphs to plain data and back, without recursion over their depth.

In:   a node.
Out:  a flat list of records, sources before users; loading interns every node again. Storage that holds data travels
      with it (as bytes) and gets a number of its own in the loading process. Parts of one piece of memory stay parts of
      one: the kernels of a capture hand values on through them.
Why:  kernels are compiled in other processes and kept on disk, and a deep graph would overflow Python's own pickling.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tinygrad.buffer import Buffer, MultiBuffer
from tinygrad.dtype import DType, dtypes
from tinygrad.record import replace
from tinygrad.uop import Ops


class Saved(NamedTuple):
    """A graph as plain data."""

    records: list[tuple[Any, ...]]  # (op, dtype, source positions, arg, tag, parts of its storage or None)
    memory: list[tuple[str, int, DType, bytes | None]]  # (device, size, dtype, content; None if a file keeps it)


def save_graph(root: Any) -> Saved:
    """Return the graph of ``root``. A part of storage is (position in ``memory``, offset in bytes, size)."""
    from tinygrad.uop.ops import buffers

    position: dict[Any, int] = {}
    saved = Saved([], [])
    places: dict[int, int] = {}

    def part(buffer: Any) -> tuple[int, int, int]:
        base = buffer.base
        if id(base) not in places:
            places[id(base)] = len(saved.memory)
            content = None if base.device.startswith("DISK") else bytes(base.as_memoryview())
            saved.memory.append((base.device, base.size, base.dtype, content))
        return places[id(base)], buffer.offset, buffer.size

    for u in root.toposort():
        parts = None
        if u.op is Ops.BUFFER:
            found = buffers.get(u)
            if found is not None and found.is_allocated():
                parts = tuple(part(buffer) for buffer in getattr(found, "bufs", (found,)))
        position[u] = len(saved.records)
        saved.records.append((int(u.op), u.dtype, tuple(position[s] for s in u.src), u.arg, u.tag, parts))
    return saved


def _unpickle_graph(saved: Saved) -> Any:
    """Return the root of a graph that ``save_graph`` wrote."""
    from tinygrad.uop.ops import UOp, buffers
    from tinygrad.uop.storage import unique_slots

    nodes: list[UOp] = []
    slots: dict[int, int] = {}
    memory = [Buffer(device, size, dtype, initial_value=content) for device, size, dtype, content in saved.memory]
    for op, dtype, src, arg, tag, parts in saved.records:
        if op == Ops.BUFFER and arg.name is None:  # named ones are numbers within a schedule, not storage
            # The parts of storage over several devices have its number.
            arg = replace(arg, slot=slots.setdefault(arg.slot, next(unique_slots)))
        elif op == Ops.NOOP and tag is not None:  # so do constants that are told from equal ones
            tag = slots.setdefault(tag, next(unique_slots))
        node = UOp(Ops(op), dtype, tuple(nodes[i] for i in src), arg, tag)
        if parts is not None:
            stored = [_part(memory[i], offset, size, dtype) for i, offset, size in parts]
            buffers[node] = MultiBuffer.of(stored) if isinstance(arg.device, tuple) else stored[0]
        nodes.append(node)
    return nodes[-1] if nodes else UOp(Ops.NOOP, dtypes.void)


def _part(whole: Buffer, offset: int, size: int, dtype: DType) -> Buffer:
    if offset == 0 and size == whole.size and dtype is whole.dtype:
        return whole
    return whole.view(size, dtype, offset).ensure_allocated()
