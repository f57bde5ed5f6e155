"""Pending tensors that read storage which is about to be overwritten.

In:   the nodes that a realize will compute.
Out:  the live tensors whose values would change silently if they were computed only afterwards.
      Gradients of intermediate results, which nobody but ``grad`` refers to, are forgotten instead.
Why:  ``y = w * 10; w.assign(w + 1).realize(); y.tolist()`` must show ten times the old w: what was written down before
      a write reads the state before it. Such tensors are computed together with the write; the scheduler orders them.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tinygrad.live import storage_under, unsettled_over, unsettled_tensors
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor


def final_states(sink: UOp) -> dict[UOp, UOp]:
    """Return for each BUFFER that the graph writes the state of it after all writes of the graph."""
    final: dict[UOp, UOp] = {}
    if not sink.op_in_backward_slice_with_self(Ops.STORE):
        return final
    storage: dict[UOp, UOp] = {}
    for u in sink.toposort(enter_calls=False):
        # Later states stand on earlier ones, so in dependency order the last one of a chain comes last.
        if u.op is Ops.AFTER and not u.is_bound_var:
            storage[u] = storage.get(u.src[0], u.src[0])
            final[storage[u]] = u
    return final


def stale_readers(sink: UOp) -> list[Tensor]:
    """Return live, pending tensors that read an earlier state of storage which ``sink`` writes."""
    final = final_states(sink)
    if not final:
        return []
    planned = set(sink.src)
    stale = dict.fromkeys(final.values(), False)
    return without_forgotten_gradients([t for t in readers_of(final, stale) if t.uop not in planned])


def possible_readers(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the live, pending tensors that may have to be computed with others: they show storage that these write.

    What is computed along may contain further writes, which have readers of their own.
    """
    seen = {id(t) for t in tensors}
    found: list[Tensor] = []
    new, storages = list(tensors), set[UOp]()
    while new:
        storages |= final_states(UOp.sink(*[t.uop for t in new])).keys()
        new = [t for t in unsettled_over(storages) if id(t) not in seen]
        seen |= {id(t) for t in new}
        found += new
    return found


def readers_of(overwritten: Collection[UOp], stale: dict[UOp, bool]) -> list[Tensor]:
    """Return live, pending tensors that read storage in a state that is not known as good.

    Args:
        overwritten: The BUFFERs.
        stale: What is known of nodes, completed here: whether they read such a state.
    """
    return [t for t in unsettled_over(overwritten) if not t.uop.is_virtual and _is_stale(t.uop, overwritten, stale)]


def without_forgotten_gradients(found: list[Tensor]) -> list[Tensor]:
    """Drop gradients of tensors that own no storage: computing them would cost a backward pass that nobody asked for.

    ``backward`` fills ``grad`` of everything that is alive, the batch and the output of the model too. After the
    parameters have changed these gradients could not be computed any more, so they are set to None, unless somebody
    else refers to them.
    """
    if not found:
        return found
    holders = {
        id(t.grad): t
        for t in unsettled_tensors()
        if t.grad is not None and storage_under(t.uop).without_after.op is not Ops.BUFFER
    }
    alone = 4  # the list, the loop, the call, and ``grad`` itself
    forgotten = {id(t) for t in found if id(t) in holders and sys.getrefcount(t) <= alone}
    for key in forgotten:
        holders[key].grad = None
    return [t for t in found if id(t) not in forgotten]


def _is_stale(root: UOp, overwritten: Collection[UOp], stale: dict[UOp, bool]) -> bool:
    for u in root.toposort(gate=lambda node: node not in stale, enter_calls=False):
        if u.op is Ops.BUFFER:
            stale[u] = u in overwritten
        elif u.op is Ops.STORE:
            # The storage under a target is not read: what counts is the value written into it, and where.
            where = u.src[0].src[1:] if u.src[0].op is Ops.INDEX else ()
            stale[u] = any(stale.get(s, False) for s in (*where, *u.src[1:]))
        else:
            stale[u] = any(stale.get(s, False) for s in u.src)
    return stale[root]
