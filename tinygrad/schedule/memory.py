"""Let intermediates with disjoint lifetimes share memory.

In:   LINEAR of calls whose BUFFERs have no memory yet, and the BUFFERs whose contents must survive.
Out:  the same LINEAR; the storage behind its intermediates is now a view of one arena per device.
How:  greedy by size: the largest block first, each at the lowest offset that no block alive at the same time covers.
Why:  the memory that a step takes is that of what is alive at once, not of all that it computes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tinygrad.helpers import DEBUG, NO_MEMORY_PLANNER, round_up
from tinygrad.record import record
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers

ALIGN_BYTES: Final = 256
# Greedy placement compares all pairs of blocks; longer lists are placed in the order of time.
_MOST_GREEDY: Final = 1000


@record(frozen=True)
class Block:
    """Memory that is needed for a while.

    Attributes:
        first: Position of the first call that uses it.
        last: Position of the last one.
        nbytes: Size.
    """

    first: int
    last: int
    nbytes: int


def assign_offsets(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Place blocks in one arena; blocks that live at the same time do not overlap.

    Returns:
        The offset of each block, a multiple of 256, and the size of the arena.

    Example:
        >>> assign_offsets([Block(0, 1, 512), Block(1, 2, 256), Block(2, 3, 512)])
        ([0, 512, 0], 768)
    """
    return _greedy_by_size(blocks) if len(blocks) <= _MOST_GREEDY else _in_order_of_time(blocks)


def _greedy_by_size(blocks: Sequence[Block]) -> tuple[list[int], int]:
    offsets, total = [0] * len(blocks), 0
    placed: list[tuple[int, int, Block]] = []  # (offset, end, block) by offset
    for i in sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].first)):
        block = blocks[i]
        size, offset = round_up(block.nbytes, ALIGN_BYTES), 0
        for begin, end, other in placed:
            if other.last < block.first or block.last < other.first:
                continue
            if begin - offset >= size:
                break
            offset = max(offset, end)
        offsets[i] = offset
        bisect.insort(placed, (offset, offset + size, block), key=lambda p: p[0])
        total = max(total, offset + size)
    return offsets, total


def _in_order_of_time(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Best fit in a list of gaps, taking and freeing blocks as the calls would."""
    offsets, total = [0] * len(blocks), 0
    gaps: list[tuple[int, int]] = []  # (begin, end), sorted, never touching
    ends: dict[int, list[int]] = {}
    for i in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        for last in sorted(k for k in ends if k < blocks[i].first):
            for j in ends.pop(last):
                _free(gaps, offsets[j], offsets[j] + round_up(blocks[j].nbytes, ALIGN_BYTES))
        size = round_up(blocks[i].nbytes, ALIGN_BYTES)
        best = min((g for g in gaps if g[1] - g[0] >= size), key=lambda g: g[1] - g[0], default=None)
        if best is not None:
            gaps.remove(best)
            if best[1] - best[0] > size:
                bisect.insort(gaps, (best[0] + size, best[1]))
            offsets[i] = best[0]
        else:
            # A gap at the end grows instead of staying unused below the new block.
            last_gap = gaps.pop() if gaps and gaps[-1][1] == total else (total, total)
            offsets[i] = last_gap[0]
            total = last_gap[0] + size
        ends.setdefault(blocks[i].last, []).append(i)
    return offsets, total


def _free(gaps: list[tuple[int, int]], begin: int, end: int) -> None:
    i = bisect.bisect(gaps, (begin, end))
    if i < len(gaps) and gaps[i][0] == end:
        end = gaps.pop(i)[1]
    if i > 0 and gaps[i - 1][1] == begin:
        begin = gaps.pop(i - 1)[0]
        i -= 1
    gaps.insert(i, (begin, end))


def lifetimes(uses: Iterable[Iterable[Any]], nbytes: Callable[[Any], int]) -> dict[Any, Block]:
    """Return the block of everything that is used: ``uses[i]`` are the keys that call ``i`` touches."""
    spans: dict[Any, tuple[int, int]] = {}
    for i, keys in enumerate(uses):
        for key in keys:
            spans[key] = (spans[key][0] if key in spans else i, i)
    return {key: Block(first, last, nbytes(key)) for key, (first, last) in spans.items()}


def plan_arenas(
    blocks: Mapping[Any, Block], device_of: Callable[[Any], str]
) -> tuple[dict[Any, tuple[str, int]], dict[str, int]]:
    """Place blocks in one arena per device.

    Returns:
        (device, offset) of each key, and the size of each device's arena.
    """
    by_device: dict[str, list[Any]] = {}
    for key in blocks:
        by_device.setdefault(device_of(key), []).append(key)
    places: dict[Any, tuple[str, int]] = {}
    sizes: dict[str, int] = {}
    for device, keys in by_device.items():
        offsets, sizes[device] = assign_offsets([blocks[key] for key in keys])
        places.update((key, (device, offset)) for key, offset in zip(keys, offsets, strict=True))
    return places, sizes


# ---- on a LINEAR with real buffers -----------------------------------------------------------------------------------


def _first_use_reads(call: UOp, position: int) -> bool:
    """Whether a call may read the argument at ``position`` before writing it."""
    body = call.src[0]
    if body.op is Ops.COPY:
        return position != 0
    if body.op is Ops.PROGRAM:
        return position not in body.arg.outs or position in body.arg.ins
    if body.op is not Ops.SINK:
        return True
    reads, writes = False, False
    for u in body.toposort():
        if u.op is Ops.STORE:
            target = u.src[0].buf_uop_or_none
            writes = writes or (target is not None and target.arg.slot == position and target.op is Ops.PARAM)
            reads = reads or (u.arg is not None and target is not None and target.arg.slot == position)
        stored = u.src[1:] if u.op is Ops.STORE else u.src
        for s in stored:
            if s.op is Ops.INDEX and s.src[0].op is Ops.PARAM and s.src[0].arg.slot == position:
                reads = True
    return reads or not writes


def plannable(linear: UOp, held_bufs: Collection[UOp] | None = None) -> dict[int, list[UOp]]:
    """Return the storages that may be moved: id of the owning Buffer -> BUFFER nodes that show it.

    A storage may be moved if it is not allocated, none of its nodes is held, and its first use writes it. Without
    ``held_bufs``, whatever is not read after it was written counts as a result and is held.
    """
    nodes: dict[int, dict[UOp, None]] = {}
    fixed: set[int] = set()
    last_is_write: dict[int, bool] = {}
    for call in linear.src:
        for position, arg in enumerate(call.src[1:]):
            if arg.op is not Ops.BUFFER:
                continue
            base = arg.buffer.base
            key = id(base)
            reads = _first_use_reads(call, position)
            if key not in nodes and (reads or base.is_allocated() or base.device.startswith("DISK")):
                fixed.add(key)
            nodes.setdefault(key, {})[arg] = None
            last_is_write[key] = not reads
            if held_bufs is not None and arg in held_bufs:
                fixed.add(key)
    if held_bufs is None:
        fixed.update(key for key, written in last_is_write.items() if written)
    return {key: list(found) for key, found in nodes.items() if key not in fixed}


def memory_plan_rewrite(linear: UOp, held_bufs: Collection[UOp] | None = None) -> UOp:
    """Give the intermediates of a schedule shared memory; returns the same LINEAR.

    Args:
        linear: LINEAR of calls on BUFFERs.
        held_bufs: BUFFERs whose contents are needed after the schedule has run. Without it, what no later call reads.
    """
    from tinygrad.device import Buffer
    from tinygrad.dtype import dtypes

    if NO_MEMORY_PLANNER:
        return linear
    movable = plannable(linear, held_bufs)
    bases = {key: shown[0].buffer.base for key, shown in movable.items()}
    uses = [{id(a.buffer.base) for a in call.src[1:] if a.op is Ops.BUFFER} & movable.keys() for call in linear.src]
    blocks = lifetimes(uses, lambda key: max(bases[key].nbytes, 1))
    places, sizes = plan_arenas(blocks, lambda key: bases[key].device)
    arenas = {device: Buffer(device, nbytes, dtypes.uint8) for device, nbytes in sizes.items()}
    for key, (device, offset) in places.items():
        for node in movable[key]:
            old = node.buffer
            buffers[node] = arenas[device].view(old.size, old.dtype, offset + old.offset)
    if DEBUG >= 1 and blocks:
        before = sum(b.nbytes for b in blocks.values())
        after = sum(sizes.values())
        print(f"memory planner: {len(blocks)} intermediates, {before / 1e6:.2f} MB -> {after / 1e6:.2f} MB")  # noqa: T201
    return linear


__all__ = ["Block", "assign_offsets", "lifetimes", "memory_plan_rewrite", "plan_arenas"]
