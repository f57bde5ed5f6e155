"""Order kernels so that every read sees the state of storage that it was written against.

In:   kernels and what their stand-ins stand for.
Out:  the kernels in a runnable order. Writers come before readers of what they wrote (read after write), readers of a
      state before kernels that overwrite it (write after read). Kernels that read a state that no order can preserve
      read a copy of it.
Why:  in-place writes have no meaning of their own in a graph: the states of storage and this order give them one.
"""

from __future__ import annotations

import heapq

from tinygrad.dtype import dtypes
from tinygrad.schedule.kernel import Kernel, Leaf
from tinygrad.schedule.prepare import is_stored
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Edges = dict[int, set[int]]


def stores_of(state: UOp) -> set[UOp]:
    """Return the writes that a state of storage includes."""
    found: set[UOp] = set()
    while state.op is Ops.AFTER:
        found.update(_effects(state.src[1:]))
        state = state.src[0]
    return found


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


class _EdgeBuilder:
    """Collects who reads and who writes each storage, and the edges that follow from it."""

    def __init__(self, kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> None:
        self.leaves = leaves
        self.edges: Edges = {i: set() for i in range(len(kernels))}
        self.writer = {u: i for i, kernel in enumerate(kernels) for u in kernel.writes}
        # For each storage: (kernel, writes that it has to see), and (kernel, write).
        self.readers: dict[UOp, list[tuple[int, set[UOp]]]] = {}
        self.writers: dict[UOp, list[tuple[int, UOp]]] = {}

    def add_after(self, i: int, writes: set[UOp]) -> None:
        """Kernel ``i`` comes after the kernels of these writes."""
        for u in writes:
            before = self.writer.get(u)
            if before is not None and before != i:
                self.edges[before].add(i)

    def add_reads(self, i: int, kernel: Kernel) -> None:
        """Put a kernel after those that write what it loads."""
        # An accumulating store reads the state that it is written on: it comes after the writes of that state.
        accumulated = {nest.target for nest in kernel.nests if nest.accumulate}
        for stand_in in kernel.loads():
            if stand_in in accumulated:
                continue
            leaf = self.leaves[_below(stand_in)]
            seen = stores_of(leaf.state)
            self.add_after(i, seen | {leaf.state})
            self.readers.setdefault(leaf.storage, []).append((i, seen))

    def add_writes(self, i: int, kernel: Kernel) -> None:
        """Put a kernel after the earlier writes of the storage that it writes."""
        for u in kernel.writes:
            if u.op is Ops.STORE:
                self.add_after(i, stores_of(_stored_state(u.src[0])))
                self.writers.setdefault(_written_storage(kernel, u, self.leaves), []).append((i, u))
            elif u.op is Ops.CALL:
                for arg, stand_in in zip(u.src[1:], kernel.args, strict=True):
                    self.writers.setdefault(root_storage(stand_in, self.leaves), []).append((i, u))
                    self.add_after(i, stores_of(arg.base))

    def add_overwrites(self) -> None:
        """Put writers after the kernels that read the storage as it was before."""
        for storage, written in self.writers.items():
            for i, store in written:
                for reader, seen in self.readers.get(storage, ()):
                    if store not in seen and reader != i and i not in self.edges[reader]:
                        self.edges[reader].add(i)


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


def _stored_state(view: UOp) -> UOp:
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
    for root in kernel.roots():
        for u in root.toposort():
            if u.op is not Ops.INDEX or u.src[0].dtype is dtypes.void:
                continue
            written = targets.get(root_storage(u.src[0], leaves))
            if written is not None and (u.src[1] is not written.index or written.serial or u.src[0].tag is not None):
                return True
    return False
