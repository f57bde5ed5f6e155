"""Put a lowered kernel into program order.

In:   a SINK over ENDs, STOREs and AFTERs; every node knows through its sources in which loops it must run.
Out:  the list of instructions; AFTER and GROUP are gone, every loop is closed by one END, SINK comes last.
Why:  every node is placed in the outermost loop where its sources are available, which is loop-invariant code motion
      for free; inside a loop body nodes stand near their first use, which keeps few values alive.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class _Loops:
    """The loops of a kernel: which open at which node, and how they nest."""

    def __init__(self, nodes: list[UOp]) -> None:
        self.ranges = [u for u in nodes if u.op is Ops.RANGE]
        self.bit = {r: 1 << i for i, r in enumerate(self.ranges)}
        self.mask: dict[UOp, int] = {}
        self.above = dict.fromkeys(self.ranges, 0)
        for u in nodes:
            bits = 0
            for s in u.src:
                bits |= self.mask[s]
            if u.op is Ops.RANGE:
                self.above[u] = bits
                bits |= self.bit[u]
            elif u.op is Ops.END:
                own = 0
                for r in u.src[1:]:
                    own |= self.bit[r]
                bits &= ~own
                enclosing = bits
                for r in u.src[1:]:
                    self.above[r] |= enclosing
                    enclosing |= self.bit[r]
            self.mask[u] = bits
        self._close()
        self._deepest: dict[int, UOp | None] = {0: None}

    def _inside(self, bits: int) -> list[UOp]:
        """Return the loops of a bit set."""
        found = []
        while bits:
            low = bits & -bits
            found.append(self.ranges[low.bit_length() - 1])
            bits ^= low
        return found

    def _close(self) -> None:
        changed = True
        while changed:
            changed = False
            for r in self.ranges:
                total = self.above[r]
                for other in self._inside(total):
                    total |= self.above[other]
                if total & self.bit[r]:
                    raise RuntimeError(f"linearize: loop {r.arg} would have to run inside itself")
                if total != self.above[r]:
                    self.above[r] = total
                    changed = True

    def deepest(self, u: UOp) -> UOp | None:
        """Return the innermost loop that ``u`` runs in."""
        bits = self.mask[u]
        if bits in self._deepest:
            return self._deepest[bits]
        inside = self._inside(bits)
        inner = max(inside, key=lambda r: self.above[r].bit_count())
        if bits & ~(self.above[inner] | self.bit[inner]):
            raise RuntimeError(f"linearize: {u.op} is inside loops that do not nest: {[r.arg for r in inside]}")
        self._deepest[bits] = inner
        return inner

    def parent(self, r: UOp) -> UOp | None:
        """Return the loop right around ``r``."""
        return max(self._inside(self.above[r]), key=lambda other: self.above[other].bit_count(), default=None)


def _numbers(sink: UOp, order: Iterable[UOp], nodes: list[UOp]) -> dict[UOp, int]:
    """Number the nodes in the order of a walk along ``order``: sources right before their first user."""
    alive = set(nodes)
    number: dict[UOp, int] = {}
    for root in (*order, sink):
        if root not in alive or root in number:
            continue
        # A node waits, its sources above it on the stack, until the None below them comes up.
        stack: list[UOp | None] = [root]
        waiting: list[UOp] = []
        while stack:
            node = stack.pop()
            if node is None:
                u = waiting.pop()
                number[u] = len(number)
            elif node not in number:
                waiting.append(node)
                stack.append(None)
                stack.extend(node.src[::-1])
    return number


_FIRST = {Ops.PARAM: 0, Ops.BUFFER: 1, Ops.SPECIAL: 2}


def _key(u: UOp, number: dict[UOp, int]) -> tuple[int, int, int]:
    rank = _FIRST.get(u.op)
    return (3, number[u], 0) if rank is None else (rank, u.arg.slot if rank < 2 else 0, number[u])


class _Blocks:
    """Loop bodies: their items (nodes and inner loops) and what must come before what."""

    def __init__(self, nodes: list[UOp], number: dict[UOp, int]) -> None:
        self.loops = loops = _Loops(nodes)
        self.number = number
        self.parent = {r: loops.parent(r) for r in loops.ranges}
        self.items: dict[UOp | None, list[UOp]] = {None: [], **{r: [] for r in loops.ranges}}
        self.before: dict[UOp, set[UOp]] = {}
        ends: dict[UOp, int] = {}
        # For every node: the item that stands for it, and the body that this item is in. Its loop stands for an END.
        item: dict[UOp, UOp] = {}
        place: dict[UOp, UOp | None] = {}
        for u in nodes:
            op = u.op
            if op is Ops.RANGE:
                item[u], place[u] = u, self.parent[u]
                self.items[self.parent[u]].append(u)
            elif op is Ops.END:
                loop = min(u.src[1:], key=lambda r: loops.above[r].bit_count())
                item[u], place[u] = loop, self.parent[loop]
                for r in u.src[1:]:
                    ends[r] = max(ends.get(r, -1), number[u])
            elif op is Ops.SINK:
                continue
            else:
                item[u], place[u] = u, loops.deepest(u)
                self.items[place[u]].append(u)
            self._edges(u, item, place)
        self._loads_before_stores(nodes, place)
        self.keys = {u: _key(u, number) if u.op is not Ops.RANGE else (3, ends.get(u, number[u]), 0) for u in item}

    def _edges(self, u: UOp, item: dict[UOp, UOp], place: dict[UOp, UOp | None]) -> None:
        mine, home = item[u], place[u]
        same: set[UOp] = set()  # what must come before ``mine``, in the same body
        for s in u.src:
            if s.op is Ops.RANGE:
                continue  # who reads a loop variable is inside the loop, or closes it
            first, block = item[s], place[s]
            if block is home:
                if first is not mine:
                    same.add(first)
                continue
            second, at = mine, home
            while at is not block and at is not None:
                second, at = at, self.parent[at]
            if at is block:
                if first is not second:
                    self.before.setdefault(second, set()).add(first)
            elif u.op is not Ops.END:
                raise RuntimeError(f"linearize: {s.op} is read outside of the loop that computes it, by {u.op}")
        if same:
            there = self.before.setdefault(mine, same)
            if there is not same:
                there |= same

    def _loads_before_stores(self, nodes: list[UOp], place: dict[UOp, UOp | None]) -> None:
        """A read sees its storage without the writes that it does not stand on: they come after it in its loop body."""
        stores: dict[UOp, list[UOp]] = {}
        for u in nodes:
            if u.op is Ops.STORE:
                stores.setdefault(u.src[0].buf_uop, []).append(u)
        loads = [u for u in nodes if u.op is Ops.LOAD and u.src[0].buf_uop in stores]
        if not loads:
            return
        bit = {store: 1 << i for i, store in enumerate(u for same in stores.values() for u in same)}
        below = _marked_below(nodes, bit)  # the stores that a node depends on
        inside: dict[UOp | None, int] = dict.fromkeys(self.items, 0)
        for store, bits in bit.items():
            at = place[store]
            while at is not None:
                inside[at] |= bits
                at = self.parent[at]
        for load in loads:
            for store in stores[load.src[0].buf_uop]:
                if below[load] & bit[store]:
                    continue
                second, at = store, place[store]
                while at is not place[load] and at is not None:
                    second, at = at, self.parent[at]
                if at is place[load] and not (second is not store and below[load] & inside[second]):
                    self.before.setdefault(second, set()).add(load)

    def ordered(self, block: UOp | None) -> list[UOp]:
        """Return the items of a loop body in program order."""
        items = self.items[block]
        keys, before = self.keys, self.before
        out = sorted(items, key=keys.__getitem__)
        position = {item: i for i, item in enumerate(out)}
        if all(position[first] < i for i, item in enumerate(out) if item in before for first in before[item]):
            return out  # nearly always
        return self._ordered_by_need(items)

    def _ordered_by_need(self, items: list[UOp]) -> list[UOp]:
        """Return the items in the order of their keys, but each after all that it needs."""
        missing = {item: len(self.before.get(item, ())) for item in items}
        users: dict[UOp, list[UOp]] = {}
        for item in items:
            for first in self.before.get(item, ()):
                users.setdefault(first, []).append(item)
        ready = [(self.keys[item], i, item) for i, item in enumerate(items) if not missing[item]]
        heapq.heapify(ready)
        out = []
        while ready:
            _, i, item = heapq.heappop(ready)
            out.append(item)
            for user in users.get(item, ()):
                missing[user] -= 1
                if not missing[user]:
                    heapq.heappush(ready, (self.keys[user], i, user))
        if len(out) != len(items):
            raise RuntimeError(f"linearize: {len(items) - len(out)} nodes wait for each other in a cycle")
        return out


class _Emitter:
    """Writes the final nodes: AFTERs dissolved, loops closed."""

    def __init__(self, blocks: _Blocks) -> None:
        self.blocks = blocks
        self.new: dict[UOp, UOp] = {}
        self.emitted: set[UOp] = set()
        self.out: list[UOp] = []

    def emit(self, u: UOp) -> None:
        """Append the final form of ``u``."""
        op, new = u.op, self.new
        if op is Ops.GROUP:
            return
        if op is Ops.AFTER:
            new[u] = new[u.src[0]]
            return
        src = u.src[:1] if op is Ops.RANGE else () if op is Ops.BARRIER else u.src
        final = tuple([new[s] for s in src])
        made = u if final == u.src else UOp(op, u.dtype, final, u.arg, u.tag)
        if made in self.emitted:
            # The same read or write at another moment is another instruction.
            made = made.rtag(len(self.out))
        self.emitted.add(made)
        new[u] = made
        self.out.append(made)

    def block(self, block: UOp | None) -> None:
        """Append a loop body."""
        for item in self.blocks.ordered(block):
            if item.op is not Ops.RANGE:
                self.emit(item)
                continue
            self.emit(item)
            start = len(self.out)
            self.block(item)
            last = self.out[-1] if len(self.out) > start else UOp(Ops.NOOP, dtypes.void)
            self.out.append(UOp(Ops.END, dtypes.void, (last, self.new[item])))


def linearize(sink: UOp, order: Iterable[UOp] = ()) -> list[UOp]:
    """Return the instructions of a lowered kernel.

    Args:
        sink: The lowered kernel.
        order: Nodes in the order in which they should come where dependencies leave a choice.

    Raises:
        RuntimeError: Loops do not nest, or nodes depend on each other in a circle.
    """
    nodes = list(sink.toposort())
    blocks = _Blocks(nodes, _numbers(sink, order, nodes))
    emitter = _Emitter(blocks)
    emitter.block(None)
    statements = tuple(dict.fromkeys(u for u in emitter.out if u.op is Ops.STORE or u.op is Ops.END))
    return [*emitter.out, UOp(Ops.SINK, dtypes.void, statements[-1:], sink.arg)]


def _marked_below(nodes: list[UOp], bit: dict[UOp, int]) -> dict[UOp, int]:
    """Return for each node the bits of the marked nodes that it depends on, itself included; sources come first."""
    below: dict[UOp, int] = {}
    for u in nodes:
        bits = bit.get(u, 0)
        for s in u.src:
            bits |= below[s]
        below[u] = bits
    return below
