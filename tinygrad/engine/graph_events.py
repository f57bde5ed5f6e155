"""What a profile says about a captured graph: its launches, which of them wait for which, and when they ran.

In:   the calls of a graph, and the events of one replay.
Out:  a ``ProfileGraphEvent``.
Why:  a replay is one call for the user; the order that the buffers ask for tells which launches could overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinygrad.engine.realize import call_buffers, get_call_outs_ins
from tinygrad.profiling import ProfileGraphEntry, ProfileGraphEvent, ProfileRangeEvent

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


def graph_event(
    calls: Sequence[UOp], events: Sequence[ProfileRangeEvent], input_uops: Sequence[UOp]
) -> ProfileGraphEvent:
    """Return the event of one replay; ``events`` has the times of the calls, in their order."""
    times = [t for event in events for t in (event.st, event.en or event.st)]
    entries = [
        ProfileGraphEntry(event.device, event.name, 2 * i, 2 * i + 1, event.profile_key)
        for i, event in enumerate(events)
    ]
    return ProfileGraphEvent(entries, dependencies(calls, input_uops), times)


def dependencies(calls: Sequence[UOp], input_uops: Sequence[UOp]) -> list[list[int]]:
    """Return for each call the earlier ones that have to be done before it: their memory is read or written again."""
    # Per block of memory (intermediates share one): (first byte, end, call, whether it writes), newest last.
    uses: dict[int, list[tuple[int, int, int, bool]]] = {}
    found: list[list[int]] = []
    for i, call in enumerate(calls):
        buffers = call_buffers(call, input_uops)
        outs, ins = get_call_outs_ins(call)
        waits: set[int] = set()
        for position in sorted({*ins, *outs}):
            buffer, writes = buffers[position], position in outs
            start, end = buffer.offset, buffer.offset + buffer.nbytes
            before = uses.setdefault(id(buffer.base), [])
            waits.update(j for b, e, j, wrote in before if b < end and start < e and (writes or wrote))
            if writes:  # who comes later waits for this call, and with it for those before
                before[:] = [use for use in before if not (start <= use[0] and use[1] <= end)]
            before.append((start, end, i, writes))
        found.append(sorted(waits - {i}))
    return found
