"""Graphs in which storage of known origin is what it was computed from.

In:   nodes to differentiate, and the origins of BUFFERs.
Out:  nodes of the same values, in which gradients go on from storage to what its content was computed from.
Why:  a gradient is found by walking a graph, and storage ends it.

An expression takes the place of its BUFFER, and computes the value again where a gradient needs it. Where the content
is a copy, or was written in parts, the value is read from storage, and only the gradient goes through the expression.
So it is with pending writes: they are done once, as they are, and the gradient goes through what they will leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tinygrad.dtype import dtypes
from tinygrad.live import buffer_under, is_view_node
from tinygrad.mixin.written_views import is_whole, view_chain, without_chain, written_mask
from tinygrad.record import replace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.storage import unique_slots
from tinygrad.uop.views import is_own_constant

_COPIES: Final = frozenset({Ops.COPY, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP})
_SUMS: Final = frozenset({Ops.ADD, Ops.SUB, Ops.NEG})


class Traced:
    """What the content of storage was computed from.

    Args:
        value: The expression.
        is_stored: Whether only gradients go through it, and the value is read from storage.
        is_exact: Whether the expression has the value, too; the one that is computed again has.
    """

    __slots__ = ("_nodes", "is_exact", "is_stored", "value")

    def __init__(self, value: UOp, is_stored: bool = False, is_exact: bool | None = None) -> None:
        self.value, self.is_stored = value, is_stored
        self.is_exact = not is_stored if is_exact is None else is_exact
        self._nodes: frozenset[UOp] | None = None

    @property
    def nodes(self) -> frozenset[UOp]:
        """The nodes of the expression, which are looked up when they are first asked for."""
        if self._nodes is None:
            self._nodes = frozenset(self.value.toposort(enter_calls=False))
        return self._nodes

    @property
    def reads(self) -> list[UOp]:
        """The BUFFERs that the expression reads."""
        return [u for u in self.nodes if u.op is Ops.BUFFER]

    def with_moved(self, becomes: Mapping[UOp, UOp]) -> Traced:
        """Return the same with nodes in place of others."""
        return Traced(self.value.substitute(dict(becomes), walk=True), self.is_stored, self.is_exact)


def contents_after(state: UOp, before: UOp, stored: Callable[[UOp], UOp]) -> UOp:
    """Return what storage holds after writes as an expression.

    Args:
        state: The AFTER.
        before: What the storage held in the state before, in its shape.
        stored: Returns what to put for what is stored, and for other operands of writes.
    """
    contents = before
    for effect in state.src[1:]:
        is_plain = effect.op is Ops.STORE and effect.arg is None and len(effect.src) == 2
        chain = view_chain(effect.src[0], state.src[0]) if is_plain else None
        if chain is None:
            return _written_elsewhere(state, before, stored)
        written = without_chain(chain, stored(effect.src[1]))
        contents = written if is_whole(chain) else written_mask(chain, state.src[0]).where(written, contents)
    return contents


def _written_elsewhere(state: UOp, before: UOp, stored: Callable[[UOp], UOp]) -> UOp:
    """Return fresh storage after the same writes, of indexed elements or by kernels: only gradients ask for it."""
    storage = state.without_after
    fresh = storage.replace(arg=replace(storage.arg, slot=next(unique_slots)))
    fresh = fresh.after(UOp(Ops.STORE, None, (fresh, before)))

    def moved(u: UOp) -> UOp:
        """Return an operand of a write: a place in the fresh storage, or a value."""
        if u.op is Ops.INDEX:
            return u.replace(src=(moved(u.src[0]), *map(stored, u.src[1:])))
        return u.substitute({state.src[0]: fresh}, walk=True) if buffer_under(u) is storage else stored(u)

    def moved_effect(u: UOp) -> UOp:
        kept = 1 if u.op is Ops.CALL else 0  # the body
        return u.replace(src=(*u.src[:kept], *map(moved, u.src[kept:])))

    return fresh.after(*map(moved_effect, state.src[1:]))


def fills(state: UOp) -> bool:
    """Return whether a store fills storage as a whole."""
    stores = (effect for effect in state.src[1:] if effect.op is Ops.STORE and effect.src[0].op is not Ops.INDEX)
    chains = (view_chain(effect.src[0], state.src[0]) for effect in stores)
    return any(chain is not None and is_whole(chain) for chain in chains)


def is_linear(value: UOp, part: UOp) -> bool:
    """Return whether elements of ``part`` are only moved, added and multiplied by numbers.

    Then no gradient depends on what they are.
    """
    above: set[UOp] = set()
    for u in value.toposort(lambda u: u is not part and bool(u.footprint & part.footprint_bit), enter_calls=False):
        on_the_way = [i for i, s in enumerate(u.src) if s is part or s in above]
        if on_the_way:
            above.add(u)
            if not _keeps_linear(u, on_the_way):
                return False
    return True


def _keeps_linear(u: UOp, on_the_way: Sequence[int]) -> bool:
    """Return whether a node is linear in the sources of those numbers."""
    if is_view_node(u) or u.op in _COPIES or u.op in _SUMS or u.op is Ops.GETTUPLE:
        return True
    if u.op is Ops.FUNCTION:
        return all(_is_only_stored(u.src[0], i - 1) for i in on_the_way)
    if u.op is Ops.WHERE:
        return 0 not in on_the_way
    if u.op is Ops.REDUCE:
        return u.arg[0] is Ops.ADD
    if u.op is Ops.CAST:
        return dtypes.is_float(u.dtype) and dtypes.is_float(u.src[0].dtype)
    # FDIV is linear in what is divided, MUL in either factor.
    is_factor = u.op is Ops.MUL or (u.op is Ops.FDIV and 0 in on_the_way)
    return is_factor and len(on_the_way) == 1 and _is_number(u.src[1 - on_the_way[0]])


def _is_only_stored(body: UOp, slot: int) -> bool:
    """Return whether the body of a function only writes an argument somewhere, as that of scatter does."""
    readers = [u for u in body.toposort() if any(s.op is Ops.PARAM and s.arg.slot == slot for s in u.src)]
    return all(u.op is Ops.STORE and u.arg in {None, Ops.ADD} and u.src[0].op is not Ops.PARAM for u in readers)


def _is_number(u: UOp) -> bool:
    while is_view_node(u) or u.op is Ops.CAST:
        u = u.src[0]
    return u.op is Ops.CONST


class Retraced:
    """The nodes of graphs in which storage is what it was computed from.

    Args:
        origin_of: Returns what the content of a BUFFER was computed from, or None.

    Attributes:
        nodes: Node -> what it is there. Those below expressions are here too.
    """

    def __init__(self, origin_of: Callable[[UOp], Traced | None]) -> None:
        self.nodes: dict[UOp, UOp] = {}
        self._origin_of = origin_of
        self._origins: dict[UOp, Traced] = {}
        self._contents: dict[UOp, UOp] = {}  # AFTER -> what it leaves in storage

    def add(self, root: UOp) -> UOp:
        """Return what a graph is with its origins."""
        opened: set[UOp] = set()
        stack = [root]
        while stack:
            u = stack[-1]
            if u in self.nodes:
                stack.pop()
            elif u in opened:
                self.nodes[stack.pop()] = self._made(u)
            else:
                opened.add(u)
                stack.extend(s for s in self._sources(u) if s not in self.nodes and s not in opened)
        return self.nodes[root]

    def is_changed(self, u: UOp) -> bool:
        """Return whether a node that was added is another one."""
        return self.nodes.get(u, u) is not u

    def follow(self, u: UOp) -> UOp:
        """Return what a node is in the graphs that were added; the same if it is in none and shows no storage there."""
        storage = buffer_under(u)
        if u in self.nodes or (storage is not None and self.is_changed(storage)):
            return self.add(u)
        return u

    def _sources(self, u: UOp) -> Iterable[UOp]:
        if u.op is Ops.BUFFER:
            origin = self._origin_of(u)
            if origin is None:
                return ()
            self._origins[u] = origin
            return (origin.value,)
        return u.src[1:] if u.op in {Ops.CALL, Ops.FUNCTION} else u.src

    def _made(self, u: UOp) -> UOp:
        origin = self._origins.get(u)
        if origin is not None:
            value = self.nodes[origin.value].reshape(u.shape)
            return _with_gradient_of(u, value) if origin.is_stored else value
        src = tuple([self.nodes.get(s, s) for s in u.src])
        if src == u.src:
            return u
        if u.op is not Ops.AFTER:
            return u.replace(src=src)
        self._contents[u] = contents = self._contents_after(u)
        return _with_gradient_of(u, contents)

    def _contents_after(self, state: UOp) -> UOp:
        before, origin = state.src[0], self._origins.get(state.src[0])
        known = self._contents.get(before, before) if origin is None else self.nodes[origin.value].reshape(before.shape)
        return contents_after(state, known, self.nodes.__getitem__)


def _with_gradient_of(u: UOp, value: UOp) -> UOp:
    """Return the value of ``u``; gradients go through an equal one."""
    return u.alu(Ops.DETACH, value, u.const_like(1.0))


def data_under(u: UOp) -> list[UOp] | None:
    """Return the nodes of which a copy of data, in whatever place and shape, is one; None if something is computed."""
    chain = [u]
    while not is_own_constant(u) and (is_view_node(u) or u.op in _COPIES):
        u = u.src[0]
        chain.append(u)
    return chain if u.op in {Ops.BUFFER, Ops.CONST} or is_own_constant(u) else None


def undetached(root: UOp) -> set[UOp]:
    """Return the nodes of a graph, but for bodies of calls and what is only below a DETACH that states no gradient."""
    seen = {root}
    stack = [root]
    while stack:
        node = stack.pop()
        stated = node.src[1::2] if node.op is Ops.DETACH else node.src
        for source in stated[1:] if node.op in {Ops.CALL, Ops.FUNCTION} else stated:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return seen
