"""Let kernels that run over the same loops share one kernel.

In:   kernels with one nest each.
Out:  fewer kernels: independent ones with equal loops (and, if they reduce, equal reductions) become one kernel with
      several stores. An optimiser's updates of a parameter and its moments, mean and variance, the gradients that
      share a mask: each operand is then read once.
Why:  such kernels are bound by memory, and each launch costs time. Products of matrices and convolutions are not bound
      by it, and stay apart: tiles of one hold its sums in registers, which two would have to share.
"""

from __future__ import annotations

from tinygrad.helpers import prod
from tinygrad.record import replace
from tinygrad.schedule.kernel import Kernel, Leaf, StoreNest
from tinygrad.schedule.ordering import Edges, build_edges, in_place_hazard, includes, order_kernels
from tinygrad.schedule.split import contraction_operands
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import substitute

MAX_STORES = 8
MAX_BUFFERS = 24
WINDOW = 256  # kernels that are compared with each other
MAX_MATES = 16  # kernels with equal loops that are looked at
SMALL = 4096  # kernels of so few elements merge even without a common operand: launching costs more than running
MIN_USES = 2  # of each value that a contraction loads: with fewer, it is bound by memory as other sums are


def _reductions(nest: StoreNest) -> tuple[UOp, ...]:
    if not nest.value.op_in_backward_slice_with_self(Ops.REDUCE):
        return ()
    return tuple(u for u in nest.value.toposort() if u.op is Ops.REDUCE)


def _is_contraction(nest: StoreNest) -> bool:
    """Return whether a nest sums products of factors of which neither runs along all of its loops."""
    for reduce in _reductions(nest):
        factors = contraction_operands(reduce.src[0]) if reduce.arg[0] is Ops.ADD else None
        loops = {*nest.ranges, *reduce.src[1:]}
        if factors and all(prod(tuple(r.src[0].vmax for r in loops - set(f.ranges))) >= MIN_USES for f in factors):
            return True
    return False


def _loops(nest: StoreNest) -> tuple[UOp, ...]:
    return tuple(r.src[0] for r in nest.ranges)


def _signature(kernel: Kernel) -> tuple[object, ...] | None:
    """Return what must be equal for two kernels to merge; None for kernels that stay alone."""
    if kernel.kind != "compute" or any(n.serial or n.gate is not None for n in kernel.nests):
        return None
    nest = kernel.nests[0]
    reductions = _reductions(nest)
    if len(reductions) > 1:
        return None
    reduced = tuple(r.src[0] for r in reductions[0].src[1:]) if reductions else ()
    return (kernel.device, _loops(nest), reduced)


def _reach(edges: Edges, n: int) -> list[int]:
    """Return, as bit sets, the kernels that each kernel leads to."""
    reach = [0] * n
    done = [False] * n
    for start in range(n):
        stack = [start]
        while stack:
            i = stack[-1]
            if done[i]:
                stack.pop()
                continue
            waiting = [j for j in edges[i] if not done[j]]
            if waiting:
                stack.extend(waiting)
                continue
            for j in edges[i]:
                reach[i] |= reach[j] | 1 << j
            done[i] = True
            stack.pop()
    return reach


def merge_nests(first: list[StoreNest], other: StoreNest) -> StoreNest:
    """Return ``other`` rewritten onto the loops of ``first``, its reduction onto the first's."""
    swap = dict(zip(other.ranges, first[0].ranges, strict=True))
    mine, theirs = _reductions(first[0]), _reductions(other)
    if mine and theirs:
        swap.update(zip(theirs[0].src[1:], mine[0].src[1:], strict=True))
    return StoreNest(other.target, substitute(other.index, swap), None, substitute(other.value, swap), first[0].ranges)


def _loaded(kernel: Kernel, leaves: dict[UOp, Leaf]) -> set[UOp]:
    return {leaves[s].storage for s in kernel.loads() if s in leaves}


class _Merger:
    """Merges kernels pairwise while it keeps track of what depends on what."""

    def __init__(self, kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> None:
        self.kernels, self.leaves = kernels, leaves
        self.edges = build_edges(kernels, leaves)
        self.needs_value = build_edges(kernels, leaves, only_values=True)
        self.reach = _reach(self.edges, len(kernels))
        self.before: list[set[int]] = [set() for _ in kernels]  # the other direction of ``edges``
        for a, after in self.edges.items():
            for b in after:
                self.before[b].add(a)
        self.gone: set[int] = set()
        self.signatures = [_signature(k) for k in kernels]
        self.loaded = [
            set() if signature is None else _loaded(k, leaves)
            for k, signature in zip(kernels, self.signatures, strict=True)
        ]

    def independent(self, j: int, i: int) -> bool:
        """Return whether neither kernel waits for the other.

        One that only overwrites what the other reads does not count: in a shared iteration loads come before stores.
        """
        for a, b in ((j, i), (i, j)):
            if not self.reach[a] >> b & 1:
                continue
            if b in self.needs_value[a] or any(k != b and self.reach[k] >> b & 1 for k in self.edges[a]):
                return False
        return True

    def chained(self, j: int, i: int) -> bool:
        """Return whether kernel ``i`` uses what ``j`` stores, and no other kernel stands between them."""
        return i in self.needs_value[j] and not any(k != i and self.reach[k] >> i & 1 for k in self.edges[j])

    def merge(self, j: int, i: int, nests: list[StoreNest]) -> None:
        """Move kernel ``i``, its ``nests`` rewritten onto the loops of ``j``, into kernel ``j``."""
        a, b = self.kernels[j], self.kernels[i]
        a.nests.extend(nests)
        a.writes.extend(b.writes)
        self.loaded[j] |= self.loaded[i]
        self.gone.add(i)
        for edges in (self.edges, self.needs_value):
            edges[j] = (edges[j] | edges[i]) - {i, j}
            edges[i] = set()
            for k in self.before[i]:
                if i in edges[k]:
                    edges[k].discard(i)
                    if k != j:
                        edges[k].add(j)
        self.before[j] = (self.before[j] | self.before[i]) - {i, j}
        for k in self.edges[j]:
            self.before[k].discard(i)
            self.before[k].add(j)
        # What led to either now leads to both, and to all that both lead to.
        joint = self.reach[j] | self.reach[i]
        self.reach[j] = joint & ~(1 << j | 1 << i)
        for k, there in enumerate(self.reach):
            if (there >> i | there >> j) & 1:
                self.reach[k] = there | joint | 1 << j


def forward_nests(first: Kernel, then: Kernel, leaves: dict[UOp, Leaf]) -> list[StoreNest] | None:
    """Return the nests of ``then`` on the loops of ``first``, which use the values that ``first`` stores, unloaded.

    None if ``then`` reads them at other positions than those of the same iteration.
    """
    stored: dict[UOp, StoreNest] = {}
    for nest, state in zip(first.nests, first.writes, strict=True):
        stored[state] = nest
    made = [merge_nests(first.nests, n) for n in then.nests]
    loads = {u for n in made for u in n.accesses()}
    values: dict[UOp, UOp] = {}
    for load in loads:
        leaf = leaves.get(load.src[0])
        if leaf is None:
            return None
        writes = [s for s in stored if s is leaf.state or includes(leaf.state, s)]
        if not writes:
            if any(leaf.storage is n.target for n in first.nests):
                return None  # the state before: what the iteration overwrites is gone for the others
            continue
        nest = stored[writes[0]]
        if len(writes) > 1 or load.src[0].tag is not None or load.src[1] is not nest.index or len(load.src) != 2:
            return None
        if writes[0].op is Ops.STORE and prod(tuple(r.src[0].vmax for r in nest.ranges)) != prod(nest.target.arg.shape):
            return None
        values[load] = nest.value
    return [replace(n, value=substitute(n.value, values), index=substitute(n.index, values)) for n in made]


def _forward_chains(merger: _Merger) -> None:
    """Merge kernels that use, in the same iteration, what another one stores."""
    for i, kernel in enumerate(merger.kernels):
        signature = merger.signatures[i]
        if i in merger.gone or signature is None or signature[2]:
            continue
        for j in sorted(merger.before[i]):
            if merger.signatures[j] != signature or not merger.chained(j, i) or not _fits(merger, j, i):
                continue
            first = merger.kernels[j]
            nests = forward_nests(first, kernel, merger.leaves)
            if nests is None:
                continue
            if in_place_hazard(Kernel("compute", first.device, [*first.nests, *nests]), merger.leaves):
                continue
            merger.merge(j, i, nests)
            break


def _fits(merger: _Merger, j: int, i: int) -> bool:
    a, b = merger.kernels[j], merger.kernels[i]
    stores = len(a.nests) + len(b.nests)
    return stores <= MAX_STORES and len(merger.loaded[j] | merger.loaded[i]) + stores <= MAX_BUFFERS


def _accesses(nests: list[StoreNest]) -> set[UOp]:
    return {u for nest in nests for u in nest.accesses()}


def _sibling_nests(merger: _Merger, j: int, i: int) -> list[StoreNest] | None:
    """Return the nests of kernel ``i`` on the loops of ``j`` if they may share a kernel and gain by it, else None."""
    if not merger.independent(j, i) or not _fits(merger, j, i):
        return None
    a, b, leaves = merger.kernels[j], merger.kernels[i], merger.leaves
    nests = [merge_nests(a.nests, n) for n in b.nests]
    common = merger.loaded[j] & merger.loaded[i]
    if _reductions(a.nests[0]):
        if any(_is_contraction(n) for n in (*a.nests, *b.nests)):
            return None
        # Rows of a matrix and its columns are not read together: only loads at the same positions save anything.
        loads = _accesses(a.nests) & _accesses(nests)
        common = {leaves[u.src[0]].storage for u in loads if u.src[0] in leaves}
        if not common:
            return None
    size = prod(tuple(r.src[0].vmax for r in a.nests[0].ranges))
    if size > SMALL and not any(prod(s.arg.shape) * 2 > size for s in common):
        return None
    trial = Kernel("compute", a.device, [*a.nests, *nests])
    return None if in_place_hazard(trial, leaves) else nests


def merge_siblings(kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> list[Kernel]:
    """Return the kernels with siblings and chains merged. The graph of dependencies must have no cycle."""
    if len(kernels) <= WINDOW:
        return _merge_window(kernels, leaves)
    # Between two kernels of a stretch of a runnable order stand only kernels of that stretch, so each is merged alone.
    ordered = order_kernels(kernels, leaves)
    starts = range(0, len(ordered), WINDOW)
    return [k for start in starts for k in _merge_window(ordered[start : start + WINDOW], leaves)]


def _merge_window(kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> list[Kernel]:
    merger = _Merger(kernels, leaves)
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, signature in enumerate(merger.signatures):
        if signature is None:
            continue
        mates = groups.setdefault(signature, [])
        # Kernels of many equal layers are far apart: only the nearest can be siblings.
        for j in mates[-MAX_MATES:]:
            nests = _sibling_nests(merger, j, i)
            if nests is not None:
                merger.merge(j, i, nests)
                break
        else:
            mates.append(i)
    _forward_chains(merger)
    return [k for i, k in enumerate(kernels) if i not in merger.gone]
