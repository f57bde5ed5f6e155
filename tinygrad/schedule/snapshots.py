"""Keep values that in-place writes would spoil, by storing them before the writes begin.

In:   a prepared graph, and which STOREs or states of storage are in danger.
Out:  the graph with CONTIGUOUS nodes that are stored even where they show storage as it is.
Why:  ``x[1:] = x[:-1]`` reads what it overwrites, and a kernel that reads a storage before and after a write cannot run
      on either side of it. Programs mean what they would mean if every statement ran at once.
"""

from __future__ import annotations

from tinygrad.schedule.prepare import is_stored
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.views import is_own_copy, own_copy


class Snapshots:
    """A rewrite of a graph that stores operands of STOREs, and states of storage, before they are overwritten.

    Args:
        stores: STOREs that read, at other positions, what they overwrite.
        states: BUFFERs and AFTERs that are read by kernels that have to run after a later write.
    """

    def __init__(self, stores: set[UOp], states: set[UOp]) -> None:
        self.stores, self.states = stores, states
        # Whoever else reads a computed value reads it from where it is stored; a view of storage is copied for the
        # STORE.
        operands = {s.src[1] for s in stores}
        self.values = {v for v in operands if v.op not in GroupOp.Movement and not is_stored(v)}
        self.new: dict[UOp, UOp] = {}  # how a node is read
        self.kept: dict[UOp, UOp] = {}  # what is written on: never a snapshot

    def apply(self, sink: UOp) -> UOp:
        """Return the rewritten graph."""
        for u in sink.toposort(enter_calls=False):
            made = self.kept[u] = self._rebuilt(u)
            self.new[u] = _snapshot(made) if u in self.values or u in self.states else made
        return self.new[sink]

    def _rebuilt(self, u: UOp) -> UOp:
        match u.op:
            case Ops.AFTER:
                src = (self.kept[u.src[0]], *(self.new[s] for s in u.src[1:]))
            case Ops.STORE:
                return self._store(u)
            case Ops.CALL:
                src = (u.src[0], *(self._target(s) for s in u.src[1:]))
            case Ops.FUNCTION:
                src = (u.src[0], *(self.new[s] for s in u.src[1:]))
            case _:
                src = tuple([self.new[s] for s in u.src])
        return u if src == u.src else u.replace(src=src)

    def _store(self, u: UOp) -> UOp:
        target, value = u.src
        new_value = self.new[value]
        if target.op is Ops.INDEX:
            where = [self.new[s] for s in target.src[1:]]
            if u in self.stores:
                storage = target.src[0].without_after
                where = [
                    _snapshot(p) if storage in old.toposort() else p
                    for old, p in zip(target.src[1:], where, strict=True)
                ]
            new_target = target.replace(src=(self.kept[target.src[0]], *where))
        else:
            new_target = self._target(target)
        if u in self.stores:
            new_value = _snapshot(new_value)
        return u if (new_target, new_value) == u.src else u.replace(src=(new_target, new_value))

    def _target(self, view: UOp) -> UOp:
        """Return the view on the storage itself."""
        chain: list[UOp] = []
        while view.op in GroupOp.Movement or view.op is Ops.BITCAST:
            chain.append(view)
            view = view.src[0]
        made = self.kept[view]
        for node in reversed(chain):
            src = (made, *(self.new[s] for s in node.src[1:]))
            made = node if src == node.src else node.replace(src=src)
        return made


def _snapshot(u: UOp) -> UOp:
    return u if is_own_copy(u) else own_copy(u)
