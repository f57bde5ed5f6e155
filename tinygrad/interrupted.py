"""Runs that are cut off after storage has been overwritten: what can no longer be computed, and who is told so.

In:   what the nodes of a schedule become, and how many of its calls have run.
Out:  the part of that which is there already; ``lost_readers``, live tensors that would read what is gone; and
      ``lose``, after which computing them is an error.
Why:  ``total = w.sum() * 2; w += 1``, computed together, may stop after w was written and before total was. From the
      new w, total would come out wrong, and nobody would see it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tinygrad.errors import error_text
from tinygrad.live import point
from tinygrad.pending import readers_of
from tinygrad.record import replace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sharding import storages_of
from tinygrad.uop.storage import unique_slots

if TYPE_CHECKING:
    from tinygrad.schedule import Becomes
    from tinygrad.tensor import Tensor

# Stand-ins for storage in a state that is gone, and what ended the run.
_lost: Final[weakref.WeakKeyDictionary[UOp, str]] = weakref.WeakKeyDictionary()


class Progress:
    """What a schedule has reached after its first calls.

    Args:
        becomes: What the nodes of the schedule become.
        linear: The schedule.
        calls_done: How many of its calls have run.

    Attributes:
        reached: The part of ``becomes`` that is there.
        newest: For each BUFFER that has been overwritten the last state of it that is complete, if that is what it
            holds; None if a write is not complete.
    """

    def __init__(self, becomes: Becomes, linear: UOp, calls_done: int) -> None:
        self.reached = _reached(becomes, linear, calls_done)
        self.newest: dict[UOp, UOp | None] = {}
        self._states = becomes.calls_before
        for state, first in sorted(becomes.first_call.items(), key=lambda item: item[0].states[1]):
            if becomes.calls_before[state] <= calls_done:
                self.newest[state.without_after] = state
            elif first <= calls_done:
                self.newest[state.without_after] = None

    def lost_readers(self) -> list[Tensor]:
        """Return live tensors that are not computed and need a state of storage that is gone."""
        stale = dict.fromkeys((u for u in self.reached if u not in self._states), False)
        stale |= dict.fromkeys((state for state in self.newest.values() if state is not None), False)
        return readers_of(self.newest, stale) if self.newest else []

    def lose(self, tensors: Iterable[Tensor], reason: str) -> None:
        """Make computing some tensors an error, since what they read is gone."""
        gone = {buffer: _stand_in(buffer, reason) for buffer in self.newest}
        earlier = {u: gone[u.without_after] for u in self._states if u.without_after in gone}
        complete = {state for state in self.newest.values() if state is not None}
        moved = {u: new for u, new in self.reached.items() if u not in self._states or u in complete}
        for tensor in tensors:
            point(tensor, tensor.uop.substitute({**gone, **earlier, **moved}, walk=True))


def _reached(becomes: Becomes, linear: UOp, calls_done: int) -> dict[UOp, UOp]:
    """Return the part of ``becomes`` whose storage is complete after the first calls of the schedule."""
    from tinygrad.engine.realize import get_call_outs_ins

    missing: set[int] = set()
    for call in linear.src[calls_done:]:
        missing |= {id(call.src[1 + position].buffer.base) for position in get_call_outs_ins(call)[0]}

    def is_complete(shown: UOp) -> bool:
        return all(id(part.buffer.base) not in missing for part in storages_of(shown.base))

    # Storage that further calls would write is in the state after the writes so far, which must not be repeated.
    calls = becomes.calls_before
    return {
        old: new for old, new in becomes.items() if (calls[old] <= calls_done if old in calls else is_complete(new))
    }


def _stand_in(buffer: UOp, reason: str) -> UOp:
    made = buffer.replace(arg=replace(buffer.arg, slot=next(unique_slots)))
    _lost[made] = reason
    return made


def is_anything_lost() -> bool:
    """Whether a run was cut off in this process that some live tensor still misses."""
    return bool(_lost)


def check_nothing_is_lost(sink: UOp) -> None:
    """Raise if a graph reads storage in a state that is gone.

    Raises:
        RuntimeError: It does.
    """
    if not _lost:
        return
    for u in sink.toposort():
        if u.op is Ops.BUFFER and u in _lost:
            raise RuntimeError(
                error_text(
                    "realize",
                    f"what this is computed from was overwritten before it was computed: the run that computed both "
                    f"was cut off by {_lost[u]}",
                    {"storage": u},
                    hint="make the tensor anew; what was written in place is partly the state before the run and "
                    "partly the one after it",
                )
            )
