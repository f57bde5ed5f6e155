"""Properties that a node derives from its sources and keeps: shape, device, bounds, what is below, its key and more.

In:   a node. ``derive`` gives its sources the property first, without recursion.
Out:  ``DerivedProperties``, which UOp inherits. The rules of shape and device are in ``infer``, those of bounds in
      ``bounds``.
Why:  nodes never change, so whatever follows from a node and its sources is worked out once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tinygrad.helpers import prod
from tinygrad.mixin.hooks import Hooks
from tinygrad.uop import Ops
from tinygrad.uop.bounds import vmin_vmax
from tinygrad.uop.infer import device_from_uop, shape_from_uop
from tinygrad.uop.sharding import axis_from_uop
from tinygrad.uop.sint import sint, to_max_shape

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Derived = TypeVar("Derived")


def derive(u: UOp, slot: str, rule: Callable[[UOp], Derived]) -> Derived:
    """Compute a cached property of ``u`` and of every source that lacks it, sources first, without recursion."""
    for s in u.src:
        if not hasattr(s, slot):
            break
    else:  # nearly always: nodes are asked soon after they are made
        found = rule(u)
        setattr(u, slot, found)
        return found
    # A node waits, its sources above it on the stack, until the None below them comes up.
    stack: list[UOp | None] = [u]
    waiting: list[UOp] = []
    while stack:
        node = stack.pop()
        if node is None:
            ready = waiting.pop()
            setattr(ready, slot, rule(ready))
        elif not hasattr(node, slot):
            waiting.append(node)
            stack.append(None)
            stack.extend(node.src)
    derived: Derived = getattr(u, slot)
    return derived


def _footprint(u: UOp) -> int:
    """Return a bit set of the nodes of a graph, each hashed to one bit."""
    bits = u.footprint_bit
    for s in u.src:
        bits |= s._footprint
    return bits


def _ops_below(u: UOp) -> int:
    """Return a bit set of the ops of a graph."""
    bits = 1 << u.op
    for s in u.src:
        bits |= s._ops_below
    return bits


_NO_RANGES: dict[UOp, None] = {}


def _open_ranges(u: UOp) -> dict[UOp, None]:
    """Return the RANGEs that are open at a node; shared with its sources where it is the same set."""
    if u.op is Ops.RANGE:
        found = {u: None}
        for s in u.src[1:]:
            found |= s._ranges
        return found
    src = u.src
    if not src:
        return _NO_RANGES
    merged = src[0]._ranges
    owned = False
    for s in src[1:]:
        if s._ranges is merged or not s._ranges:
            continue
        if not merged:
            merged = s._ranges
        elif any(r not in merged for r in s._ranges):
            merged = merged | s._ranges
            owned = True
    ended = u.ended_ranges
    if ended:
        merged = {r: None for r in merged if r not in ended}
    elif owned:
        merged = dict(merged)
    return merged


def _structural_key(u: UOp) -> bytes:
    """Return a digest that is the same in every process."""
    h = hashlib.sha256(f"{u.op.name}|{u.dtype.name}|{u.arg!r}|".encode())
    for s in u.src:
        h.update(s._key)
    return h.digest()


def _derive_states(u: UOp) -> tuple[UOp, int]:
    """Derive ``states`` along a chain of AFTER nodes alone: other nodes are their own storage."""
    chain: list[UOp] = []
    while u.op is Ops.AFTER and not hasattr(u, "_states"):
        chain.append(u)
        u = u.src[0]
    found = u._states if u.op is Ops.AFTER else (u, 0)
    for state in reversed(chain):
        state._states = found = (found[0], found[1] + 1)
    return found


class DerivedProperties(Hooks):
    """Properties of UOp that are worked out on first use and kept on the node: until then the slots are missing."""

    __slots__ = ()
    _axis_: int | None
    _bounds: tuple[Any, Any]
    _device_: str | tuple[str, ...] | None
    _footprint: int
    _key: bytes
    _ops_below: int
    _ranges: dict[UOp, None]
    _shape_: tuple[sint, ...] | None
    _states: tuple[UOp, int]

    @property
    def _shape(self) -> tuple[sint, ...] | None:
        try:
            return self._shape_
        except AttributeError:
            return derive(self._uop, "_shape_", shape_from_uop)

    @property
    def shape(self) -> tuple[sint, ...]:
        """Sizes of the value.

        Raises:
            RuntimeError: The node has no value (SINK, STORE lists, ...).
        """
        shape = self._shape
        if shape is None:
            raise RuntimeError(f"{self._uop.op} has no shape")
        return shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def numel(self) -> sint:
        """Number of elements; symbolic where the shape is."""
        count: sint = prod(self.shape)
        return count

    @property
    def max_shape(self) -> tuple[int, ...]:
        """Shape with symbolic sizes replaced by their maximum."""
        return to_max_shape(self.shape)

    @property
    def device(self) -> str | tuple[str, ...] | None:
        """Where the value lives; None for constants and index arithmetic."""
        return self._device

    @property
    def _device(self) -> str | tuple[str, ...] | None:
        try:
            return self._device_
        except AttributeError:
            return derive(self._uop, "_device_", device_from_uop)

    @property
    def _axis(self) -> int | None:
        try:
            return self._axis_
        except AttributeError:
            spreads = type(self._device) is tuple  # on one device no source has to be asked
            return derive(self._uop, "_axis_", axis_from_uop) if spreads else None

    @property
    def ops_below(self) -> int:
        """Bit set (bit number = op value) of the ops that occur in this graph, itself included."""
        try:
            return self._ops_below
        except AttributeError:
            return derive(self._uop, "_ops_below", _ops_below)

    @property
    def states(self) -> tuple[UOp, int]:
        """The storage under a chain of AFTER nodes, and how many there are: the number of states before this one."""
        try:
            return self._states
        except AttributeError:
            return _derive_states(self._uop)

    @property
    def footprint(self) -> int:
        """Bit set of the nodes of this graph, each hashed to one bit: a node whose bit is missing is not in it."""
        try:
            return self._footprint
        except AttributeError:
            return derive(self._uop, "_footprint", _footprint)

    @property
    def footprint_bit(self) -> int:
        """The bit that stands for this node in the footprint of graphs."""
        return 1 << (hash(self) & 2047)

    @property
    def ranges(self) -> dict[UOp, None]:
        """RANGEs that are still open at this node, in a stable order."""
        try:
            return self._ranges
        except AttributeError:
            return derive(self._uop, "_ranges", _open_ranges)

    @property
    def ended_ranges(self) -> tuple[UOp, ...]:
        """RANGEs that this node closes."""
        u = self._uop
        return u.src[1:] if u.op is Ops.END or (u.op is Ops.REDUCE and len(u.src) > 1) else ()

    @property
    def key(self) -> bytes:
        """SHA-256 of op, dtype, arg and sources (not tag), the same in every process."""
        try:
            return self._key
        except AttributeError:
            return derive(self._uop, "_key", _structural_key)

    @property
    def vmin(self) -> Any:
        """Lower bound of the value."""
        try:
            return self._bounds[0]
        except AttributeError:
            return vmin_vmax(self._uop)[0]

    @property
    def vmax(self) -> Any:
        """Upper bound of the value."""
        try:
            return self._bounds[1]
        except AttributeError:
            return vmin_vmax(self._uop)[1]
