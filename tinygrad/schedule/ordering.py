"""Order kernels so that every read sees the state of storage that it was written against.

In:   kernels and what their stand-ins stand for.
Out:  the kernels in a runnable order. Writers come before readers of what they wrote (read after write), readers of a
      state before kernels that overwrite it (write after read). Kernels that read a state that no order can preserve
      read a copy of it.
Why:  in-place writes have no meaning of their own in a graph: the states of storage and this order give them one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from tinygrad.dtype import dtypes
from tinygrad.errors import shown
from tinygrad.schedule.kernel import Kernel, Leaf
from tinygrad.schedule.prepare import is_stored
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Edges = dict[int, set[int]]


def includes(state: UOp, write: UOp) -> bool:
    """Return whether a state of storage includes a write."""
    if write.op is not Ops.STORE:
        return state is write or write in stores_of(state)
    # A state that includes a STORE stands on the one that it is written on: there are no others to look at.
    oldest = stored_state(write.src[0]).states[1]
    while state.op is Ops.AFTER and state.states[1] > oldest:
        if write in _effects(state.src[1:]):
            return True
        state = state.src[0]
    return False


def stores_of(state: UOp) -> set[UOp]:
    """Return the writes that a state of storage includes."""
    found: set[UOp] = set()
    while state.op is Ops.AFTER:
        found.update(_effects(state.src[1:]))
        state = state.src[0]
    return found


def own_stores(state: UOp) -> set[UOp]:
    """Return the writes that a state of storage includes and the state before it does not."""
    return _effects(state.src[1:])


def _effects(deps: tuple[UOp, ...]) -> set[UOp]:
    # What an AFTER waits for: stores and calls, seen through END and GROUP.
    found: set[UOp] = set()
    stack = list(deps)
    while stack:
        u = stack.pop()
        if u.op in (Ops.END, Ops.GROUP):
            stack.extend(u.src)
        elif u.op is Ops.AFTER:
            stack.extend(u.src[1:])
        else:
            found.add(u)
    return found


def _below(stand_in: UOp) -> UOp:
    # A view of storage reads what the storage under it holds.
    while isinstance(stand_in.tag, tuple):
        stand_in = stand_in.tag[1]
    return stand_in


def root_storage(stand_in: UOp, leaves: dict[UOp, Leaf]) -> UOp:
    """Return the storage that a stand-in reads, below views."""
    below = _below(stand_in)
    return leaves[below].storage if below in leaves else below


class _States:
    """The states of storage, of which a state includes the one that it stands on.

    Only the states that kernels at hand write matter. The one at or below a state is its *anchor* (None: storage as it
    was before all of them), and all that follows from a state follows from its anchor. So each of a chain of writes is
    looked at once, however long the chain is.

    Args:
        writer: The kernel of each write, by position.
    """

    def __init__(self, writer: dict[UOp, int]) -> None:
        self.writer = writer
        self._anchors: dict[UOp, UOp | None] = {}
        self._before: dict[UOp | None, frozenset[int]] = {None: frozenset()}
        # For each storage and anchor: the kernels that write on such states, and their writes.
        self._written_on: dict[tuple[UOp, UOp | None], list[tuple[int, UOp]]] = {}
        self._beside: dict[tuple[UOp, UOp | None], frozenset[int]] = {}

    def anchor(self, state: UOp) -> UOp | None:
        """Return the state at or below this one that a kernel writes, None if there is none."""
        passed: list[UOp] = []
        found: UOp | None = None
        while state.op is Ops.AFTER:
            if state in self._anchors:
                found = self._anchors[state]
                break
            passed.append(state)
            if any(u in self.writer for u in _effects(state.src[1:])):
                found = state
                break
            state = state.src[0]
        self._anchors.update(dict.fromkeys(passed, found))
        return found

    def kernels_before(self, state: UOp) -> frozenset[int]:
        """Return kernels that have to run before this state is there; what they wait for has run then, too."""
        anchor = first = self.anchor(state)
        passed: list[UOp] = []
        while anchor is not None and anchor not in self._before:
            passed.append(anchor)
            anchor = None if self._waits_for_the_rest(anchor) else self.anchor(anchor.src[0])
        found = self._before[anchor]
        for state in reversed(passed):
            found = self._before[state] = self._kernels_of(state) | found
        return self._before[first]

    def _kernels_of(self, anchor: UOp) -> frozenset[int]:
        return frozenset(self.writer[u] for u in _effects(anchor.src[1:]) if u in self.writer)

    def _waits_for_the_rest(self, anchor: UOp) -> bool:
        """Return whether the kernels that write this state wait for all that it stands on."""
        below = anchor.src[0]
        for u in _effects(anchor.src[1:]):
            if u not in self.writer:
                continue
            if u.op is Ops.STORE and stored_state(u.src[0]) is not below:
                return False
            if u.op is not Ops.STORE and all(arg.base is not below for arg in u.src[1:]):
                return False
        return True

    def add_write(self, storage: UOp, state: UOp, i: int, write: UOp) -> None:
        """Note that a kernel writes storage that is in a state."""
        self._written_on.setdefault((storage, self.anchor(state)), []).append((i, write))

    def kernels_after(self, storage: UOp, state: UOp) -> Iterator[int]:
        """Yield kernels that may only run when nobody needs this state any more; those that wait for them may, too."""
        anchor = self.anchor(state)
        for i, _ in self._written_on.get((storage, anchor), ()):
            yield i
        yield from self._kernels_beside(storage, anchor)

    def _kernels_beside(self, storage: UOp, anchor: UOp | None) -> frozenset[int]:
        """Return kernels that write on a state that this one stands on, but that this one does not include."""
        passed: list[UOp] = []
        while anchor is not None and (storage, anchor) not in self._beside:
            passed.append(anchor)
            anchor = self.anchor(anchor.src[0])
        found = frozenset() if anchor is None else self._beside[storage, anchor]
        for state in reversed(passed):
            included = _effects(state.src[1:])
            beside = {i for i, u in self._written_on.get((storage, anchor), ()) if u not in included}
            found = found | beside if beside else found
            self._beside[storage, state] = found
            anchor = state
        return found


class _EdgeBuilder:
    """Collects who reads and who writes each storage, and the edges that follow from it.

    An edge may stand for others: of a chain of writes each kernel waits for the one before, and who reads a state
    goes before the next write alone.
    """

    def __init__(self, kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> None:
        self.leaves = leaves
        self.edges: Edges = {i: set() for i in range(len(kernels))}
        self.writer = {u: i for i, kernel in enumerate(kernels) for u in kernel.writes}
        self.states = _States(self.writer)
        self.reads: list[tuple[int, UOp, UOp]] = []  # kernel, storage, the state that it has to see

    def add_after(self, i: int, state: UOp) -> None:
        """Kernel ``i`` comes after the kernels that bring storage into a state."""
        for before in self.states.kernels_before(state):
            if before != i:
                self.edges[before].add(i)

    def add_reads(self, i: int, kernel: Kernel) -> None:
        """Put a kernel after those that write what it loads."""
        # An accumulating store reads the state that it is written on: it comes after the writes of that state.
        accumulated = {nest.target for nest in kernel.nests if nest.accumulate}
        for stand_in in kernel.loads():
            if stand_in in accumulated:
                continue
            leaf = self.leaves[_below(stand_in)]
            self.add_after(i, leaf.state)
            computed_by = self.writer.get(leaf.state, i)
            if computed_by != i:
                self.edges[computed_by].add(i)
            self.reads.append((i, leaf.storage, leaf.state))

    def add_writes(self, i: int, kernel: Kernel) -> None:
        """Put a kernel after the earlier writes of the storage that it writes."""
        for u in kernel.writes:
            if u.op is Ops.STORE:
                state = stored_state(u.src[0])
                self.add_after(i, state)
                self.states.add_write(_written_storage(kernel, u, self.leaves), state, i, u)
            elif u.op is Ops.CALL:
                written = written_arguments(u.src[0], len(kernel.args))
                for slot, (arg, stand_in) in enumerate(zip(u.src[1:], kernel.args, strict=True)):
                    self.add_after(i, arg.base)
                    if slot in written:
                        self.states.add_write(root_storage(stand_in, self.leaves), arg.base, i, u)

    def add_overwrites(self) -> None:
        """Put writers after the kernels that read the storage as it was before."""
        for reader, storage, state in self.reads:
            self.edges[reader].update(i for i in self.states.kernels_after(storage, state) if i != reader)


def written_arguments(body: UOp, count: int) -> set[int]:
    """Return which of its ``count`` arguments a custom kernel may write: all, if that cannot be seen from its graph."""
    nodes = body.toposort() if body.op is Ops.SINK else {}
    if not nodes or any(u.op in (Ops.CUSTOM, Ops.CUSTOMI, Ops.INS) for u in nodes):
        return set(range(count))
    targets = (u.src[0].buf_uop for u in nodes if u.op is Ops.STORE)
    return {u.arg.slot for u in targets if u.op is Ops.PARAM}


def build_edges(kernels: list[Kernel], leaves: dict[UOp, Leaf], only_values: bool = False) -> Edges:
    """Return for each kernel (by position) the kernels that must run after it.

    Args:
        kernels: All kernels of the schedule.
        leaves: What their stand-ins stand for.
        only_values: Leave out the edges from readers to those that overwrite what they read.
    """
    builder = _EdgeBuilder(kernels, leaves)
    for i, kernel in enumerate(kernels):
        builder.add_reads(i, kernel)
        builder.add_writes(i, kernel)
    if not only_values:
        builder.add_overwrites()
    return builder.edges


def stored_state(view: UOp) -> UOp:
    """Return the state of storage on which a STORE to this view is written."""
    base = view.src[0] if view.op is Ops.INDEX else view.base
    while base.op is Ops.BITCAST:
        base = base.src[0].base
    return base


def _written_storage(kernel: Kernel, store: UOp, leaves: dict[UOp, Leaf]) -> UOp:
    if kernel.kind != "compute":
        target = kernel.args[0]
    elif len(kernel.nests) == len(kernel.writes):  # merged kernels write several, each by the nest at its position
        target = kernel.nests[kernel.writes.index(store)].target
    else:
        target = kernel.nests[0].target
    return root_storage(target, leaves)


def topological_order(kernels: list[Kernel], edges: Edges) -> list[int]:
    """Return positions in a valid order, the original order wherever free; those on and behind a cycle are missing."""
    waits = [0] * len(kernels)
    for followers in edges.values():
        for i in followers:
            waits[i] += 1
    ready = [i for i, n in enumerate(waits) if n == 0]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        done.append(i)
        for after in edges[i]:
            waits[after] -= 1
            if waits[after] == 0:
                heapq.heappush(ready, after)
    return done


def overwritten_states(kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> set[UOp]:
    """Return states of storage that kernels read which have to run after a later write; empty if there is an order.

    Raises:
        RuntimeError: Custom kernels wait for each other in a circle.
    """
    edges = build_edges(kernels, leaves)
    done = topological_order(kernels, edges)
    if len(done) == len(kernels):
        return set()
    stuck = set(range(len(kernels))) - set(done)
    written: dict[UOp, set[UOp]] = {}
    for i in stuck:
        for u in kernels[i].writes:
            if u.op is Ops.STORE:
                written.setdefault(_written_storage(kernels[i], u, leaves), set()).add(u)
    found: set[UOp] = set()
    for i in stuck:
        for stand_in in kernels[i].loads():
            leaf = leaves[_below(stand_in)]
            later = written.get(leaf.storage, set()) - stores_of(leaf.state) - set(kernels[i].writes)
            if later and is_stored(leaf.state):
                found.add(leaf.state)
    if not found:
        raise _cycle_error()
    return found


def _cycle_error() -> RuntimeError:
    return RuntimeError(
        "cycle detected in assign graph: an in-place write needs a value that itself needs the written storage as "
        "it was before; make the old value independent with .contiguous() or .clone() before assigning"
    )


def histories_error(states: Iterable[UOp]) -> RuntimeError:
    """Return the error for states of storage that no order and no copies can bring about."""
    storages = sorted({
        f"{shown(u.arg.shape)} {u.dtype.full_name} on {u.arg.device}" for u in (state.without_after for state in states)
    })
    return RuntimeError(
        f"two histories of one storage, {', '.join(storages)}: it was written twice in the same state, so that both "
        "results would have to be in it at once; write to a .clone() of it, or on the result of the first write"
    )


def order_kernels(kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> list[Kernel]:
    """Return the kernels in a runnable order.

    Raises:
        RuntimeError: In-place writes wait for each other in a circle.
    """
    order = topological_order(kernels, build_edges(kernels, leaves))
    if len(order) < len(kernels):
        raise _cycle_error()
    return [kernels[i] for i in order]


def in_place_hazard(kernel: Kernel, leaves: dict[UOp, Leaf]) -> bool:
    """Return whether the order of iterations would show.

    It would if a kernel reads, at other positions than it writes, the storage that it writes, or writes one twice.
    """
    targets = {nest.target: nest for nest in kernel.nests}
    if len(targets) < len(kernel.nests):
        return True
    for u in (access for nest in kernel.nests for access in nest.accesses()):
        if u.src[0].dtype is dtypes.void:
            continue
        written = targets.get(root_storage(u.src[0], leaves))
        if written is not None and (u.src[1] is not written.index or written.serial or u.src[0].tag is not None):
            return True
    return False
