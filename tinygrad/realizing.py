"""Scheduling of tensors: what is asked for, what has to run with it, and who shows the results.

In:   pending tensors.
Out:  LINEAR and Variables, to be run; the live tensors already show the storage that the values will have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.live import apply_map_to_tensors, buffer_under
from tinygrad.mixin.rand import random_state
from tinygrad.pending import stale_readers
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor


def schedule(tensors: list[Tensor]) -> tuple[UOp, dict[str, int]]:
    """Schedule tensors, and what has to run with them; every live tensor then shows the storage that it gets.

    Returns:
        The LINEAR node of kernel calls, and the values of Variables by name.
    """
    from tinygrad.schedule import create_linear_with_vars

    sink = UOp.sink(*dict.fromkeys(t.uop for t in tensors))
    sink = UOp.sink(*sink.src, *_random_states_with(sink))
    readers = stale_readers(sink)
    if readers:
        sink = UOp.sink(*sink.src, *_own_schedule(readers))
    linear, var_vals, becomes = create_linear_with_vars(sink)
    apply_map_to_tensors(becomes, "realize")
    return linear, var_vals


def _random_states_with(sink: UOp) -> list[UOp]:
    """Return the pending states of the random generators that the graph uses.

    Every draw stands on the one before. Advancing the state to the end at once keeps the graphs of later draws short.
    """
    pending = [t.uop for t in random_state() if t._is_pending() and t.uop not in sink.src]
    if not pending or not sink.op_in_backward_slice_with_self(Ops.AFTER):
        return []
    used = {u.without_after for u in sink.toposort() if u.op is Ops.AFTER}
    states = [t.uop for t in random_state() if t._is_pending()]
    return [u for u in states if u in pending] if any(buffer_under(u) in used for u in states) else []


def _own_schedule(readers: list[Tensor]) -> list[UOp]:
    """Return the nodes to compute along with a write, after computing those that a running capture must not record."""
    from tinygrad.engine.capturing import capturing

    if capturing:
        # A replay computes what belongs to the function; what the caller left pending is computed here and now.
        is_outside = getattr(capturing[-1], "is_outside", lambda _: False)
        theirs = [t for t in readers if is_outside(t)]
        if theirs:
            recorder = capturing.pop()
            try:
                theirs[0].realize(*theirs[1:])
            finally:
                capturing.append(recorder)
            readers = [t for t in readers if not is_outside(t)]
    return list(dict.fromkeys(t.uop for t in readers))
