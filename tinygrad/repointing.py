"""Re-pointing tensors when storage changes hands: a write into storage, and a realize that gave nodes storage.

In:   a view and the value written to it; or a map from nodes to the storage that they now have.
Out:  every live tensor that shows the storage, or the value, points at the new node.
Why:  a Tensor is only a pointer to a node, and nodes do not change. Who shows the same elements is known from the
      storage, and before there is any from the family (``families``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tinygrad.families import (
    bring_together,
    follow,
    has_relatives,
    relatives,
    set_apart,
    value_apart_from,
    written_node,
)
from tinygrad.gradient_marks import follow as follow_marks
from tinygrad.live import (
    aliases_of,
    is_stored,
    is_view_node,
    live_tensors,
    point,
    rebase,
    storage_under,
    unsettled_over,
)
from tinygrad.origins import follow as follow_origins, forget_readers
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sharding import placed_buffer
from tinygrad.uop.views import own_value

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor


def write_view(view: Tensor, value: UOp) -> None:
    """Store ``value`` into the storage that ``view`` shows, and re-point every live tensor that shows it.

    A value without storage gets some first. ``value`` has the shape and dtype of ``view``.
    """
    shown, base, buffer = stored_view(view)
    target = rebase_plain(shown, base)
    if base.axis is not None and target.axis is None:
        value, target = _written_whole(target, base, value), base
    show_written(buffer, base.after(UOp(Ops.STORE, None, (target, value))))


_guards: ContextVar[tuple[Callable[[UOp], None], ...]] = ContextVar("guards", default=())


@contextmanager
def guarded_writes(guard: Callable[[UOp], None]) -> Iterator[None]:
    """Let a function look at the BUFFER of each write of this thread first; it raises if that must not be written."""
    token = _guards.set((*_guards.get(), guard))
    try:
        yield
    finally:
        _guards.reset(token)


_preparing: list[Callable[[Tensor], None]] = []


def before_writes(prepare: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    """Let a function see each tensor that is written to before it gets storage for the write; returns the function."""
    _preparing.append(prepare)
    return prepare


def prepare_write(tensor: Tensor) -> None:
    """Do what has to be done before a tensor is written to, see ``before_writes``; it may show another node then."""
    for prepare in _preparing:
        prepare(tensor)


def show_written(buffer: UOp, written: UOp) -> None:
    """Point every live tensor that shows ``buffer`` at its state after a write."""
    for guard in _guards.get():
        guard(buffer)
    forget_readers(lambda u: u is buffer, is_pending=True)
    for tensor in aliases_of(buffer):
        point(tensor, rebase(tensor.uop, storage_under(tensor.uop), written))


def _written_whole(view: UOp, base: UOp, value: UOp) -> UOp:
    """Return what split storage holds after a write to a view across its pieces: each device masks its own."""
    from tinygrad.mixin.written_views import view_chain, without_chain, written_mask

    chain = view_chain(view, base) or []
    return written_mask(chain, base).where(without_chain(chain, value), base)


def stored_view(view: Tensor) -> tuple[UOp, UOp, UOp]:
    """Return (node of view, storage with all writes so far, BUFFER); a value without storage gets some for its family.

    Others that show an equal expression, or have computed with it, keep the value.
    """
    give_storage(view)
    base = storage_under(view.uop)
    return view.uop, base, base.without_after


def give_storage(tensor: Tensor) -> None:
    """Give what a write to a tensor would write to storage, if it has none: its value, for all views, or its own."""
    prepare_write(tensor)
    value = value_apart_from(tensor)
    if value is None:
        value = written_node(tensor.uop)
        if is_stored(value) and value is storage_under(value):
            return
    fresh = new_storage(value, tensor.device)
    for relative in relatives(tensor, value):
        point(relative, rebase(relative.uop, value, fresh))
    bring_together(tensor._family, value, fresh)


def rebase_plain(view: UOp, base: UOp) -> UOp:
    """Return ``view`` without DETACH nodes: the target of a store is plain movement over storage."""
    chain: list[UOp] = []
    u = view
    while u is not base:
        if u.op is not Ops.DETACH:
            chain.append(u)
        u = u.src[0]
    for node in reversed(chain):
        u = u._mop(node.op, node.marg)
    return u


def new_storage(value: UOp, device: Any = None) -> UOp:
    """Return fresh storage that holds ``value``, in its shape; on its device, or the given one, or the default.

    On several devices it is split as the value is.
    """
    from tinygrad.device import canonicalize_device
    from tinygrad.dtype import strong_dtype

    value = value.cast(strong_dtype(value.dtype))
    where = device if device is not None else value.device
    shown = placed_buffer(canonicalize_device(where), value.shape, value.dtype, value.axis)
    storage = storage_under(shown)
    written = storage.after(UOp(Ops.STORE, None, (shown, value)))
    return rebase(shown, storage, written)


def apply_map_to_tensors(
    becomes: dict[UOp, UOp],
    name: str = "",
    asked: Sequence[Tensor] = (),
    stays: Callable[[Tensor], bool] | None = None,
) -> None:
    """Re-point every live tensor whose graph holds a key of the map.

    Args:
        becomes: Node -> node on the storage that it now has.
        name: What the change is called in traces.
        asked: Tensors that get the storage itself where others have the same expression.
        stays: Says which tensors keep their nodes.
    """
    if becomes:
        follow_origins(becomes)
        follow_marks(becomes)
        _Change(becomes).apply(asked, stays)


def show_computed(tensor: Tensor, shown: UOp) -> None:
    """Point a tensor at the storage that its node has become, and with it every live tensor whose graph has the node.

    Args:
        tensor: A tensor that was asked for.
        shown: A view of fresh storage with the shape of its node.
    """
    root = tensor.uop
    is_alone = tensor._family is None and not is_view_node(root)
    if is_alone and not any(True for _ in unsettled_over([root], but=tensor)):
        # In a loop of small expressions nothing else waits to be computed, and all that follows is known.
        follow_origins({root: shown})
        follow_marks({root: shown})
        point(tensor, shown)
        return
    apply_map_to_tensors({root: shown}, "realize", [tensor])


class _Change:
    """Nodes have become others: which tensors show what next.

    New storage goes to the first family that shows it, those of tensors that were asked for before others. If others
    showed it too, a write to one would change the other: they show a value of their own.
    """

    def __init__(self, becomes: dict[UOp, UOp]) -> None:
        self.becomes = becomes
        self.owners: dict[UOp, object] = {}  # BUFFER -> family, or tensor without one
        self.moved: dict[UOp, UOp] = {}  # value without storage -> what it is now
        self.apart: list[tuple[Tensor, UOp, UOp]] = []  # tensor, the view that it was, the BUFFER that it is now

    def apply(self, asked: Sequence[Tensor] = (), stays: Callable[[Tensor], bool] | None = None) -> None:
        """Re-point the tensors that do not stay as they are, those that were asked for first."""
        becomes, mask = self.becomes, 0
        for node in becomes:
            mask |= node.footprint_bit
        affected: list[Tensor] = []
        # A user's own map may move storage; a realize maps what has been computed, and storage after writes.
        moves_storage = any(storage_under(node).op is Ops.BUFFER for node in becomes)
        holders = live_tensors() if moves_storage else unsettled_over(becomes)
        for tensor in itertools.chain(asked, holders):
            uop = tensor.uop
            is_root = uop in becomes
            if not is_root and (not uop.footprint & mask or uop.op is Ops.BUFFER):
                continue
            if stays is not None and stays(tensor):
                continue
            if is_root:
                self._point(tensor, becomes[uop])
            else:
                affected.append(tensor)
        if affected:
            self._substitute_all(affected)
        for tensor, view, buffer in self.apart:
            set_apart(tensor, view, buffer, self.moved)

    def _substitute_all(self, tensors: Sequence[Tensor]) -> None:
        before = [tensor.uop for tensor in tensors]
        after = UOp.sink(*before).substitute(self.becomes, walk=True).src
        follow_marks(dict(zip(before, after, strict=True)))
        for tensor, old, new in zip(tensors, before, after, strict=True):
            if new is not old and tensor.uop is old:
                self._point(tensor, new)

    def _point(self, tensor: Tensor, new: UOp) -> None:
        """Point a tensor at what its node has become, if it does not have to be a value of its own."""
        old, base, family = tensor.uop, storage_under(tensor.uop), tensor._family
        if is_stored(base):
            point(tensor, new)
            return
        if not is_stored(new):
            now = self.moved[base] = storage_under(new)
            follow(family, base, now)
            point(tensor, new)
            return
        stored = self.becomes.get(base, new)
        owner = family or tensor
        is_owner = self.owners.setdefault(storage_under(stored).without_after, owner) is owner
        if base in self.becomes:
            stored = stored if is_owner else own_value(stored)
            bring_together(family, base, stored)
            point(tensor, rebase(old, base, stored))
        elif not has_relatives(tensor):
            point(tensor, new if is_owner else own_value(new))
        elif is_owner:
            point(tensor, new)
            self.apart.append((tensor, old, storage_under(new).without_after))
        # else it stays a view of the value of its own family
