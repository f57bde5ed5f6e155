"""Families: a tensor and its views, while the elements that they show have no storage.

In:   tensors, as views of others are made; and values that get storage.
Out:  ``relatives``, the tensors that show the elements of one value, and where they are when it gets storage.
Why:  storage says by itself who shows it, an expression does not. Equal expressions are one node, but after
      ``a = x + 1; b = x + 1`` nobody expects to find in b what was written to a; in ``a[0]`` everybody does.

A view may be computed while its value is not: of ``a[0].item()`` the rest of a is not asked for. It then is set apart,
on storage of its own, and the family remembers what it shows. When the value itself gets storage, which a write to
either of them asks for, it is brought back. So nothing is computed or stored for the sake of writes that never come.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tinygrad.live import (
    aliases_of,
    buffer_under,
    is_view_node,
    point,
    rebase,
    storage_under,
    unsettled_tensors,
    writes_through,
)
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor


class Apart(NamedTuple):
    """A view that has storage of its own, though the value does not have any yet."""

    storage: weakref.ref[UOp]  # its BUFFER
    base: weakref.ref[UOp]  # the value
    steps: tuple[tuple[Ops, Any], ...]  # how it shows the value, innermost first


class Family:
    """What a tensor and its views have in common; a new one for every value."""

    __slots__ = ("apart",)

    def __init__(self) -> None:
        self.apart: list[Apart] = []


_ALONE: Final = 3  # references to the family of a tensor without views: its own, a local name, and a call's


def has_relatives(tensor: Tensor) -> bool:
    """Return whether other live tensors may be of the family."""
    family = tensor._family
    return family is not None and sys.getrefcount(family) > _ALONE


def shares_elements(tensor: Tensor) -> bool:
    """Return whether other live tensors show elements of the value, as yet without storage, that ``tensor`` shows."""
    family, value = tensor._family, written_node(tensor.uop)
    if family is None or not has_relatives(tensor):
        return False
    is_shown_apart = any(a.base() is value and a.storage() is not None for a in family.apart)
    return is_shown_apart or len(relatives(tensor, value)) > 1


def written_node(u: UOp) -> UOp:
    """Return the node that gets storage when a view is written to.

    It is the one under the views; where elements are repeated on the way, what repeats them; or else the view itself.
    """
    if writes_through(u):
        return storage_under(u)
    node = u
    while is_view_node(node):
        if node.op is Ops.EXPAND and node.shape != node.src[0].shape:
            return node
        node = node.src[0]
    return u


def relatives(tensor: Tensor, value: UOp) -> list[Tensor]:
    """Return the live tensors of the family that show ``value``, which is about to get storage, or a view of it."""
    if not has_relatives(tensor):
        return [tensor]
    buffer, family = buffer_under(value), tensor._family
    candidates = unsettled_tensors() if buffer is None else aliases_of(buffer)
    return [t for t in candidates if t._family is family and _is_view_of(t.uop, value)]


def _is_view_of(u: UOp, value: UOp) -> bool:
    while u is not value and is_view_node(u):
        u = u.src[0]
    return u is value


def set_apart(tensor: Tensor, view: UOp, buffer: UOp, moved: Mapping[UOp, UOp]) -> None:
    """Note that a tensor, a view of a value without storage before, shows ``buffer``, which holds its elements alone.

    Args:
        tensor: The tensor.
        view: The node that it was.
        buffer: Its storage now.
        moved: What has become of values at the same time.
    """
    family = tensor._family
    if family is None or any(a.storage() is buffer for a in family.apart):
        return
    steps: list[tuple[Ops, Any]] = []
    while is_view_node(view):
        steps.append((view.op, None if view.op is Ops.DETACH else view.marg))
        view = view.src[0]
    family.apart = [a for a in family.apart if a.storage() is not None and a.base() is not None]
    family.apart.append(Apart(weakref.ref(buffer), weakref.ref(moved.get(view, view)), tuple(reversed(steps))))


def follow(family: Family | None, base: UOp, now: UOp) -> None:
    """Note that a value without storage is another node now."""
    if family is not None and family.apart:
        family.apart = [a._replace(base=weakref.ref(now)) if a.base() is base else a for a in family.apart]


def value_apart_from(tensor: Tensor) -> UOp | None:
    """Return the value that a tensor with storage of its own is a view of, if that has no storage yet.

    A view that repeats elements is not written through: it keeps its storage, and is no view any more. Nor is one of a
    value that no live tensor shows, though its node may be alive (``origins.py``).
    """
    family = tensor._family
    if family is None or not family.apart or not has_relatives(tensor):
        return None
    buffer = storage_under(tensor.uop).without_after
    for entry in list(family.apart):
        base = entry.base()
        if entry.storage() is buffer and base is not None and relatives(tensor, base):
            if writes_through(_shown_by(entry, base)):
                return base
            family.apart.remove(entry)
    return None


def _shown_by(entry: Apart, stored: UOp) -> UOp:
    """Return the view of its value that an entry stands for."""
    for op, marg in entry.steps:
        stored = stored.detach() if op is Ops.DETACH else stored._mop(op, marg)
    return stored


def bring_together(family: Family | None, base: UOp, stored: UOp) -> None:
    """Make the views of ``base`` that were set apart show it where it is stored now."""
    if family is None:
        return
    for entry in list(family.apart):
        buffer = entry.storage()
        if buffer is None or entry.base() is not base:
            continue
        family.apart.remove(entry)
        flat = _shown_by(entry, stored).reshape(buffer.shape)
        for tensor in aliases_of(buffer):
            point(tensor, rebase(tensor.uop, storage_under(tensor.uop), flat))
