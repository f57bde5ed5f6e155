"""Gradients are known as such: which nodes and which storage were computed from the gradients of which tensors.

In:   gradients as they are found, and what tensors are written with.
Out:  ``gradients_in``, the tensors from whose gradients a value was computed.
Why:  a parameter that was updated by its own gradient is a parameter, however the update is spelled: through ``grad``
      or the result of ``gradient``, through momentum that was read or stored in between, or scaled by a norm of all.

A mark is looked for near the root of a value only: an update is a short expression over gradients, and values that are
written elsewhere may be whole networks.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final

from tinygrad.live import buffer_under
from tinygrad.retracing import data_under
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor

_MOST_NODES: Final = 128  # of a value, those nearest to its root
_MOST_TARGETS: Final = 16  # of one node, such as the parts of a sum; it is the gradient of no others then

Targets = tuple["weakref.ref[Tensor]", ...]

# Nodes of gradients, and BUFFERs that hold what was computed from gradients -> the tensors whose gradients these are.
_marks: weakref.WeakKeyDictionary[UOp, Targets] = weakref.WeakKeyDictionary()


def mark_gradient(gradient: UOp, target: Tensor) -> None:
    """Note that a node is the gradient of a tensor; numbers and data, which others may show too, get no mark."""
    if data_under(gradient) is not None:
        return
    known = tuple(ref for ref in _marks.get(gradient, ()) if ref() is not None)
    if len(known) < _MOST_TARGETS and all(ref() is not target for ref in known):
        _marks[gradient] = (*known, weakref.ref(target))


def mark_storage(storage: UOp, targets: Targets) -> None:
    """Note that storage holds what was computed from gradients, as momentum is; ``()`` if that is not so any more."""
    if targets:
        _marks[storage] = targets
    elif _marks:
        _marks.pop(storage, None)


def is_marked(u: UOp) -> bool:
    """Return whether a node is a gradient, or storage that holds what was computed from gradients."""
    return u in _marks


def gradients_in(value: UOp, ends: Container[UOp]) -> Targets:
    """Return the tensors from whose gradients a value was computed.

    Args:
        value: The root of its graph.
        ends: Nodes below which nothing is looked for.
    """
    if not _marks:
        return ()
    found: dict[int, weakref.ref[Tensor]] = {}
    seen, queue = {value}, deque([value])
    while queue and len(seen) < _MOST_NODES:
        u = queue.popleft()
        marks = _marks.get(u.without_after if u.op is Ops.AFTER else u)
        if marks is not None:
            found |= {id(ref): ref for ref in marks if ref() is not None}
        elif u not in ends:
            more = [s for s in u.src if s not in seen]
            seen.update(more)
            queue.extend(more)
    return tuple(found.values())


def follow(becomes: Mapping[UOp, UOp]) -> None:
    """Mark the storage that gradients have got, and the nodes that have taken the place of theirs."""
    if not _marks:
        return
    for node in [u for u in becomes if u in _marks]:
        now = becomes[node]
        storage = buffer_under(now)
        _marks[now if storage is None else storage] = _marks[node]
