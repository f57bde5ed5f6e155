"""The registry of live tensors: who shows which storage.

In:   every Tensor, at birth.
Out:  ``all_tensors``, the tensors that alias a buffer, and those that show something to be computed; views told apart
      from values (``repointing`` is what changes them).
Why:  a Tensor is only a pointer to a node. A write makes a new node (the storage after the write), so everybody who
      shows the storage has to point at it. Finding them must not cost a walk over all tensors for each write.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from tinygrad.forking import renew_in_child
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor


class _TensorRef(weakref.ref["Tensor"]):
    """The one reference by which a tensor is registered. A type of its own, to be told from references of users."""

    __slots__ = ()


Slot: TypeAlias = int
_NOT_STORED: Slot = -1

# Reference -> number of the BUFFER that the tensor shows, _NOT_STORED if it shows none, None if nobody has looked yet.
# Tensors that were born or re-pointed since the last look are at the end.
all_tensors: dict[_TensorRef, Slot | None] = {}
# Those of them that showed something else than plain storage when they were last looked at. The rest, usually most,
# has nothing to do with what is still to be computed. Each has a number, the newest and those that were re-pointed last
# have the highest and are at the end.
_unsettled: dict[_TensorRef, int] = {}
_numbers = itertools.count(1)
_showing: dict[Slot, list[_TensorRef]] = {}
_filing = threading.RLock()
renew_in_child(sys.modules[__name__], "_filing")


def _forget(
    ref: _TensorRef,
    tensors: dict[_TensorRef, Slot | None] = all_tensors,
    unsettled: dict[_TensorRef, int] = _unsettled,
) -> None:
    # The tables are arguments because at exit the names of this module may be gone before the last tensor is.
    tensors.pop(ref, None)
    unsettled.pop(ref, None)


def register(tensor: Tensor) -> None:
    """Note a new tensor."""
    ref = _TensorRef(tensor, _forget)
    all_tensors[ref], _unsettled[ref] = None, next(_numbers)


def point(tensor: Tensor, uop: UOp) -> None:
    """Make a tensor show another node."""
    _set_uop(tensor, uop)
    noticed(tensor)


def noticed(tensor: Tensor) -> None:
    """Put a tensor whose node has changed among those to look at."""
    for ref in weakref.getweakrefs(tensor):
        if type(ref) is _TensorRef:
            with _filing:
                all_tensors.pop(ref, None)
                _unsettled.pop(ref, None)
                all_tensors[ref], _unsettled[ref] = None, next(_numbers)


def _set_uop(tensor: Tensor, uop: UOp) -> None:
    object.__setattr__(tensor, "uop", uop)


def live_tensors() -> Iterator[Tensor]:
    """Yield the tensors that are alive now."""
    for ref in list(all_tensors):
        tensor = ref()
        if tensor is not None:
            yield tensor


def unsettled_tensors() -> Iterator[Tensor]:
    """Yield the live tensors that show anything but plain storage: values to be computed, storage after writes."""
    for ref in list(_unsettled):
        tensor = _if_unsettled(ref)
        if tensor is not None:
            yield tensor


def unsettled_over(nodes: Iterable[UOp], but: Tensor | None = None) -> Iterator[Tensor]:
    """Yield the unsettled tensors, but for one, whose graphs may hold one of the nodes.

    Most have nothing to do with them, which takes one look at the footprint of each.
    """
    mask = 0
    for node in nodes:
        mask |= node.footprint_bit
    for ref in list(_unsettled):
        tensor = ref()
        if tensor is None or tensor is but:
            continue
        uop = tensor.uop
        is_close = uop.footprint & mask
        # Those that may have settled are looked at in any case: they leave the table.
        if (is_close or uop.op is Ops.BUFFER or is_view_node(uop)) and _if_unsettled(ref) is not None and is_close:
            yield tensor


def unsettled_since(last: int) -> tuple[list[Tensor], int]:
    """Return the unsettled tensors that are new, or show another node, since ``last``; and what to pass next time.

    Args:
        last: What the last call has returned; 0 for all.
    """
    refs: list[_TensorRef] = []
    newest = last
    try:
        for ref, number in reversed(_unsettled.items()):
            if number <= last:
                break
            newest = max(newest, number)
            refs.append(ref)
    except RuntimeError:  # another thread has added some meanwhile
        refs = list(_unsettled)
    found = [tensor for ref in refs if (tensor := _if_unsettled(ref)) is not None]
    return found, newest


def _if_unsettled(ref: _TensorRef) -> Tensor | None:
    """Return a tensor if it is alive and unsettled; one that has settled leaves the table."""
    tensor = ref()
    if tensor is None:
        return None
    uop = tensor.uop
    if storage_under(uop).op is not Ops.BUFFER:
        return tensor
    _unsettled.pop(ref, None)
    if tensor.uop is not uop:  # another thread has just re-pointed it
        _unsettled[ref] = next(_numbers)
    return None


# ---- storage and views ---------------------------------------------------------------------------------------------


def is_view_node(u: UOp) -> bool:
    """Whether a node shows its source's storage: movement, and DETACH unless it states a gradient."""
    return u.op in GroupOp.Movement or (u.op is Ops.DETACH and len(u.src) == 1)


def storage_under(u: UOp) -> UOp:
    """Return the node under the views."""
    while is_view_node(u):
        u = u.src[0]
    return u


def buffer_under(u: UOp) -> UOp | None:
    """Return the BUFFER that ``u`` is a view of, whatever was written to it; None if it is a view of none."""
    u = storage_under(u).without_after
    return u if u.op is Ops.BUFFER else None


def writes_through(u: UOp) -> bool:
    """Whether a write to ``u`` is a write to what it is a view of.

    Not if the view shows an element several times (EXPAND) or elements of its own (PAD), or if it shows a constant:
    there, a tensor that is written to gets storage of its own.
    """
    base, pads = u, False
    while is_view_node(base):
        if base.op is Ops.EXPAND and base.shape != base.src[0].shape:
            return False
        pads = pads or base.op is Ops.PAD
        base = base.src[0]
    return base.device is not None and not (pads and _shows_padding(u))


def _shows_padding(u: UOp) -> bool:
    """Whether a view shows elements that a PAD has added; slices with a step pad, and cut the padding off again."""
    from tinygrad.uop.movement import apply_movement_op, pad_valid

    idxs = tuple(UOp.range(n, i) for i, n in enumerate(u.shape))
    while is_view_node(u):
        if u.op in GroupOp.Movement:
            shape, marg = u.src[0].shape, u.marg
            idxs = apply_movement_op(u.op, shape, marg, idxs)
            if u.op is Ops.PAD and pad_valid(shape, marg, idxs) is not None:
                return True
        u = u.src[0]
    return False


def is_stored(u: UOp) -> bool:
    """Whether a tensor that shows ``u`` shows storage, which others may show too."""
    return storage_under(u).op in (Ops.BUFFER, Ops.AFTER)


def rebase(u: UOp, old: UOp, new: UOp) -> UOp:
    """Return the view ``u`` of ``old`` as a view of ``new``."""
    chain: list[UOp] = []
    while u is not old:
        chain.append(u)
        u = u.src[0]
    for node in reversed(chain):
        new = new.detach() if node.op is Ops.DETACH else new._mop(node.op, node.marg)
    return new


def _look() -> None:
    """File the tensors at the end of the registry under the buffer that they show.

    The oldest is filed first: whatever happens meanwhile, those that are not filed yet are at the end.
    """
    for ref in reversed(_not_filed()):
        tensor = ref()
        with _filing:
            if tensor is None or ref not in all_tensors:
                continue  # dead, or another thread is about to put it at the end
            uop = tensor.uop
            buffer = buffer_under(uop)
            all_tensors[ref] = _NOT_STORED if buffer is None else buffer.arg.slot
            if buffer is not None:
                _showing.setdefault(buffer.arg.slot, []).append(ref)
        if tensor.uop is not uop:  # another thread has just re-pointed it
            noticed(tensor)


def _not_filed() -> list[_TensorRef]:
    """Return the references at the end of the registry that nobody has looked at, the newest first."""
    while True:
        found: list[_TensorRef] = []
        try:
            for ref in reversed(all_tensors):
                if all_tensors[ref] is not None:
                    break
                found.append(ref)
        except (RuntimeError, KeyError):
            continue  # a tensor was born or died during the loop
        return found


def aliases_of(buffer: UOp) -> list[Tensor]:
    """Return the live tensors that show ``buffer``."""
    _look()
    refs = _showing.get(buffer.arg.slot, [])
    found: dict[int, Tensor] = {}
    kept: list[_TensorRef] = []
    for ref in refs:
        tensor = ref()
        if tensor is not None and id(tensor) not in found and buffer_under(tensor.uop) is buffer:
            found[id(tensor)] = tensor
            kept.append(ref)
    _showing[buffer.arg.slot] = kept
    if len(_showing) > 2 * len(all_tensors) + 1024:
        _drop_dead()
    return list(found.values())


def _drop_dead() -> None:
    for slot in [slot for slot, refs in list(_showing.items()) if not any(ref() is not None for ref in refs)]:
        _showing.pop(slot, None)
