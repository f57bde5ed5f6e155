"""Scheduling of tensors: what is asked for, what has to run with it, and who shows the results.

In:   pending tensors.
Out:  LINEAR and Variables, to be run; the live tensors already show the storage that the values will have.
Why:  pending tensors that read what is about to be overwritten have to run before it, though nobody asked for them.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tinygrad.errors import error_text
from tinygrad.families import has_relatives, relatives, value_apart_from, written_node
from tinygrad.forking import renew_in_child
from tinygrad.helpers import disable_gc
from tinygrad.interrupted import Progress, check_nothing_is_lost, is_anything_lost
from tinygrad.live import buffer_under, is_stored, is_view_node, point, rebase, storage_under
from tinygrad.mixin.random_state import random_state
from tinygrad.origins import has_origin, known_origins, remember_origins
from tinygrad.pending import possible_readers, stale_readers
from tinygrad.profiling import labelled
from tinygrad.repointing import apply_map_to_tensors, before_writes, show_computed
from tinygrad.settings import ALLOW_DEVICE_USAGE
from tinygrad.signals import DeferredSignals
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.views import own_copy, unproved_slices

if TYPE_CHECKING:
    from tinygrad.engine.eager import Form
    from tinygrad.schedule import Becomes
    from tinygrad.tensor import Tensor


_writing = threading.RLock()
renew_in_child(sys.modules[__name__], "_writing")


@functools.cache
def _eager() -> Any:
    """Return a module that ``import tinygrad`` leaves out; importing it for each small graph would take longer."""
    from tinygrad.engine import eager

    return eager


def compute(tensors: list[Tensor], update_stats: bool, is_read: bool = False) -> Mapping[UOp, UOp]:
    """Schedule and run tensors, and what has to run with them; every live tensor then shows the storage that it got.

    Args:
        tensors: Pending tensors.
        update_stats: False leaves GlobalCounters untouched.
        is_read: Whether the values are wanted in Python: then their graphs are kept for gradients, see ``origins``.

    Returns:
        Node -> node on the storage that it now has.

    Where something fails, tensors that were not computed keep their graphs: asked for again, they are computed again.
    """
    eager = _eager()
    capturing = eager.capturing
    with labelled(None):  # what the stages make is no longer what the user asked for, node by node
        if capturing:
            tensors = _of_the_function(tensors)
            if not tensors:
                return {}
        # A replay overwrites storage without telling anybody, so what a capture computes has no origin.
        known = [(weakref.ref(t), t.uop) for t in tensors if has_origin(t, is_read)] if not capturing else []
        becomes: Becomes | None = None
        form = eager.form_of(tensors[0].uop) if len(tensors) == 1 and not is_anything_lost() else None
        root = tensors[0].uop
        is_write = form is None and any(t.uop.op_in_backward_slice_with_self(Ops.AFTER) for t in tensors)
        if is_write and not capturing:
            # What reads storage is computed before that is overwritten, though nobody asked for it.
            known += [(weakref.ref(t), t.uop) for t in possible_readers(tensors) if has_origin(t, is_read=True)]
        former = known_origins() if known else {}
        if form is not None:
            becomes = _compute_one(tensors[0], form, update_stats)
        elif not is_write:
            becomes = _compute(tensors, update_stats)[1]
        else:
            # Pending writes happen once, though several threads may ask for values behind them.
            with _writing:
                pending = [t for t in tensors if t._is_pending()]
                if pending:
                    becomes = _compute(pending, update_stats)[1]
        computed = [(before, t.uop) for ref, before in known if (t := ref()) is not None and t.uop is not before]
        if computed:
            remember_origins(computed, becomes or {}, former, is_read)
    return {root: tensors[0].uop} if becomes is None else becomes


def _compute_one(tensor: Tensor, form: Form, update_stats: bool) -> Becomes | None:
    """Compute a tensor; by the kernels that computed an equal graph before if there were any, and then returns None."""
    eager, root = _eager(), tensor.uop
    shown = eager.run_known(form, update_stats)
    if shown is not None:
        show_computed(tensor, shown)
        return None
    linear, becomes = _compute([tensor], update_stats)
    eager.remember(form, linear, becomes.get(root))
    return becomes


def _compute(tensors: list[Tensor], update_stats: bool) -> tuple[UOp, Becomes]:
    """Schedule and run tensors; returns the schedule, and what their nodes have become."""
    from tinygrad.engine.realize import run_linear

    _open_device(tensors[0])
    linear, var_vals, becomes = _planned(tensors, needs_values=True)
    if not becomes.calls_before:
        # Nothing is overwritten: what an interrupt cuts off is simply computed again.
        _run(tensors, linear, becomes, lambda: run_linear(linear, var_vals, update_stats=update_stats))
        return linear, becomes
    with DeferredSignals() as signals:

        def between(calls_done: int) -> None:
            # Where stopping would lose values, what has been begun is finished first.
            if signals.are_new() and not Progress(becomes, linear, calls_done).lost_readers():
                signals.deliver()

        _run(tensors, linear, becomes, lambda: run_linear(linear, var_vals, update_stats=update_stats, between=between))
    return linear, becomes


def _open_device(tensor: Tensor) -> None:
    """Open the device of a tensor before anything is scheduled: what it prepares in a thread goes on meanwhile."""
    from tinygrad.device import Device

    device = tensor.device
    if device is not None:
        Device[device if isinstance(device, str) else device[0]]


def _run(tensors: list[Tensor], linear: UOp, becomes: Becomes, run: Callable[[], object]) -> None:
    """Run a schedule; every live tensor then shows what it has reached, wherever it ended."""
    try:
        run()
    except BaseException as error:
        progress = Progress(becomes, linear, error.__dict__.get("calls_done", 0))
        progress.lose(progress.lost_readers(), type(error).__name__)
        apply_map_to_tensors(progress.reached, "realize", tensors)
        raise
    # What a capture records is not computed yet: the caller's tensors, which may be computed before, do not read it.
    apply_map_to_tensors(becomes, "realize", tensors, _recorder_method("is_outside"))


def _check_bound(sink: UOp) -> None:
    if not sink.op_in_backward_slice_with_self(Ops.PARAM):
        return
    nodes = sink.toposort()
    bound = {u.expr for u in nodes if u.is_bound_var}
    unbound = sorted({u.expr for u in nodes if u.is_variable} - bound)
    if unbound:
        raise RuntimeError(error_text("realize", f"unbound Variable {', '.join(unbound)}", rule="Variables have values",
                                      hint=f"{unbound[0]}.bind(value) gives a Variable a value"))  # fmt: skip


def _note_slices(sink: UOp) -> None:
    """Tell a running capture which slices its replays have to check: no Python runs there that would."""
    from tinygrad.engine.capturing import capturing

    if capturing and sink.op_in_backward_slice_with_self(Ops.PARAM):
        note = getattr(capturing[-1], "note_slices", None)
        if note is not None:
            note(unproved_slices(sink))


def schedule(tensors: list[Tensor]) -> tuple[UOp, dict[str, int]]:
    """Schedule tensors, and what has to run with them; every live tensor then shows the storage that it gets.

    Returns:
        The LINEAR node of kernel calls, and the values of Variables by name.
    """
    with labelled(None):
        linear, var_vals, becomes = _planned(tensors)
    apply_map_to_tensors(becomes, "realize", tensors)
    return linear, var_vals


@disable_gc()  # planning makes thousands of nodes and no cycles: looking for them would be an eighth of the time
def _planned(tensors: list[Tensor], needs_values: bool = False) -> tuple[UOp, dict[str, int], Becomes]:
    from tinygrad.schedule import create_linear_with_vars

    sink = UOp.sink(*_roots(tensors))
    check_nothing_is_lost(sink)
    sink = UOp.sink(*sink.src, *_random_states_with(sink))
    if needs_values:
        _check_bound(sink)
        _note_slices(sink)
    with_them: list[Tensor] = []
    while readers := stale_readers(sink):
        # What is computed along with a write may contain later writes, and these may have readers again.
        own, is_changed = _own_readers(readers)
        if not own and not is_changed:
            break
        with_them += own
        if is_changed:
            sink = UOp.sink(*_roots([t for t in tensors if t._is_pending()]))
            sink = UOp.sink(*sink.src, *_random_states_with(sink), *(t.uop for t in with_them))
        else:
            sink = UOp.sink(*sink.src, *(t.uop for t in own))
    note = _recorder_method("note_read")
    if note is not None:
        note(sink)
    return create_linear_with_vars(sink)


def _roots(tensors: list[Tensor]) -> list[UOp]:
    """Return the nodes to compute.

    Of two unrelated tensors, one of which is equal to the other or looks like a view of it, the second is a copy.
    """
    whole = [t for t in tensors if storage_under(t.uop) is t.uop]
    owners: dict[UOp, object] = {}
    for t in dict.fromkeys((*whole, *tensors)):
        base, owner = storage_under(t.uop), t._family or t
        while not is_stored(base) and any(owners.get(u, owner) is not owner for u in (base, t.uop)):
            copied = base if has_relatives(t) else t.uop
            for relative in relatives(t, copied):
                point(relative, rebase(relative.uop, copied, own_copy(copied)))
            base = storage_under(t.uop)
        owners[t.uop] = owner
        if isinstance(t.device, tuple) and not is_stored(base) and has_relatives(t):
            owners[base] = owner  # what is split cannot be set apart, see ``families``
    return list(dict.fromkeys((*(t.uop for t in tensors), *owners)))


def _random_states_with(sink: UOp) -> list[UOp]:
    """Return the pending states of the random generators that the graph uses.

    Every draw stands on the one before. Advancing the state to the end at once keeps the graphs of later draws short.
    """
    pending = [t.uop for t in random_state() if t._is_pending() and t.uop not in sink.src]
    if not pending or not sink.op_in_backward_slice_with_self(Ops.AFTER):
        return []
    used = {u.src[0] for u in sink.toposort() if u.op is Ops.AFTER}
    states = [t.uop for t in random_state() if t._is_pending()]
    return [u for u in states if u in pending] if any(buffer_under(u) in used for u in states) else []


def _recorder_method(name: str) -> Any:
    """Return a method of what captures this thread's schedules, or None."""
    from tinygrad.engine.capturing import capturing

    return getattr(capturing[-1], name, None) if capturing else None


def is_kept_by_replays(tensor: Tensor) -> bool:
    """Return whether a capture is running in which a write to the tensor goes to storage that lasts between calls."""
    is_outside = _recorder_method("is_outside")
    return is_outside is not None and (is_stored(tensor.uop) or is_outside(tensor))


def compute_for_capture(tensors: list[Tensor]) -> bool:
    """Compute those of the tensors that the caller of a running capture has left pending, before any equal is made.

    Returns:
        Whether there were any: then live tensors show other nodes, and a graph that was held meanwhile is of the past.
    """
    from tinygrad.engine.capturing import capturing

    is_outside = _recorder_method("is_outside")
    if is_outside is None:
        return False
    was_provisional = capturing[-1].is_provisional
    is_changed = _compute_outside([t for t in tensors if is_outside(t)])
    capturing[-1].is_provisional = was_provisional
    return is_changed


def _of_the_function(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors that a running capture has to compute, after computing what it must not record for them.

    Those that the caller has left pending have one value, and so does what it has written: only what the function makes
    of them is part of every replay.
    """
    is_outside = _recorder_method("is_outside")
    if is_outside is not None:
        _compute_outside([t for t in tensors if is_outside(t)])
        _finish_writes_of_the_caller([t for t in tensors if t._is_pending()])
    return [t for t in tensors if t._is_pending()]


def _finish_writes_of_the_caller(tensors: list[Tensor]) -> bool:
    """Compute pending writes of the caller that ``tensors`` stand on, or share nodes with; returns whether any did.

    Where they share nodes, these would become storage that nothing is written to before the first replay.
    """
    from tinygrad.engine.capturing import capturing

    writes = getattr(capturing[-1], "pending_writes", ())
    if not writes or not tensors:
        return False
    shared = dict.fromkeys(u for t in tensors for u in t.uop.toposort() if u.op is not Ops.CONST)
    is_apart: dict[UOp, bool] = {}
    return _compute_outside([tensors[0]._wrap_uop(u) for u in writes if not _is_apart(u, shared, is_apart)])


def _is_apart(root: UOp, nodes: Mapping[UOp, None], known: dict[UOp, bool]) -> bool:
    """Return whether a graph has none of the nodes; ``known`` is completed."""
    for u in root.toposort(gate=lambda node: node not in known):
        known[u] = u not in nodes and all(known[s] for s in u.src)
    return known[root]


def _compute_outside(tensors: list[Tensor]) -> bool:
    """Compute tensors of the caller while the running capture looks away; returns whether there were any."""
    from tinygrad.engine.capturing import capturing, looking_away

    if not tensors:
        return False
    recorder = capturing[-1]
    with looking_away():
        # What the function has made of the caller's readers is its own: it reads their values from now on.
        readers = stale_readers(UOp.sink(*[t.uop for t in tensors]))
        for some in ([t for t in readers if recorder.is_outside(t)], tensors):
            pending = [t for t in some if t._is_pending()]
            if pending:
                recorder.is_provisional |= not all(is_stored(t.uop) for t in pending)
                with recorder.following() as becomes:
                    becomes |= compute(pending, update_stats=True)
    return True


@before_writes
def stored_for_capture(tensor: Tensor) -> None:
    """Give what a captured function is about to write to storage, if it belongs to the caller and has none.

    What is only written down for it would be part of every replay, and each would start from the same value: the write
    has to go to memory that a replay finds as the last one left it. What the function has read of it before was
    elsewhere, so the next call captures again.
    """
    from tinygrad.engine.capturing import capturing

    is_outside = _recorder_method("is_outside") if ALLOW_DEVICE_USAGE else None
    if is_outside is None:
        return
    value = value_apart_from(tensor)
    if value is None:
        value = written_node(tensor.uop)
    if is_stored(value) and value is storage_under(value):
        return
    outside = [t for t in relatives(tensor, value) if is_outside(t)]
    if not outside:
        return
    capturing[-1].is_provisional = True
    if is_view_node(value):
        return  # elements repeated, or padding: the write makes a copy, which the next capture finds
    # The caller's pending writes may read the tensor: they come before those of the function.
    _compute_outside([*outside, *map(tensor._wrap_uop, capturing[-1].pending_writes)])


def _own_readers(readers: list[Tensor]) -> tuple[list[Tensor], bool]:
    """Return the tensors to compute along with a write; a running capture must not record those of the caller.

    These are computed at once. The second value says whether any were, so that nodes may have changed.
    """
    is_outside = _recorder_method("is_outside")
    if is_outside is None:
        return readers, False
    # A replay computes what belongs to the function; what the caller left pending is computed here and now.
    is_changed = _compute_outside([t for t in readers if is_outside(t)])
    own = [t for t in readers if not is_outside(t) and t._is_pending()]
    return own, _finish_writes_of_the_caller(own) or is_changed
