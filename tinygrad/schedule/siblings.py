"""Let kernels that run over the same loops share one kernel.

In:   kernels with one nest each.
Out:  fewer kernels: independent ones with equal loops (and, if they reduce, equal reductions) become one kernel with
      several stores. An optimiser's updates of a parameter and its moments, mean and variance, the gradients that
      share a mask: each operand is then read once.
"""

from __future__ import annotations

from tinygrad.helpers import prod
from tinygrad.schedule.kernel import Kernel, Leaf, StoreNest
from tinygrad.schedule.ordering import Edges, build_edges, in_place_hazard
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.rewrite import substitute

MAX_STORES = 8
MAX_BUFFERS = 24
SMALL = 4096  # kernels of so few elements merge even without a common operand: launching costs more than running


def _reductions(nest: StoreNest) -> tuple[UOp, ...]:
    return tuple(u for u in nest.value.toposort() if u.op is Ops.REDUCE)


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

    def merge(self, j: int, i: int) -> None:
        """Move the nests of kernel ``i`` into kernel ``j``."""
        a, b = self.kernels[j], self.kernels[i]
        a.nests.extend([merge_nests(a.nests, n) for n in b.nests])
        a.writes.extend(b.writes)
        for edges in (self.edges, self.needs_value):
            edges[j] = (edges[j] | edges.pop(i)) - {i, j}
            for after in edges.values():
                if i in after:
                    after.discard(i)
                    after.add(j)
            edges[j].discard(j)
            edges[i] = set()
        self.reach = _reach(self.edges, len(self.kernels))


def merge_siblings(kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> list[Kernel]:
    """Return the kernels with siblings merged. The graph of dependencies must have no cycle."""
    merger = _Merger(kernels, leaves)
    groups: dict[tuple[object, ...], list[int]] = {}
    gone: set[int] = set()
    for i, kernel in enumerate(kernels):
        signature = _signature(kernel)
        if signature is None:
            continue
        mates = groups.setdefault(signature, [])
        partner = next((j for j in mates if merger.independent(j, i) and _can_merge(kernels, leaves, j, i)), None)
        if partner is None:
            mates.append(i)
            continue
        merger.merge(partner, i)
        gone.add(i)
    return [k for i, k in enumerate(kernels) if i not in gone]


def _can_merge(kernels: list[Kernel], leaves: dict[UOp, Leaf], j: int, i: int) -> bool:
    a, b = kernels[j], kernels[i]
    if len(a.nests) + len(b.nests) > MAX_STORES:
        return False
    mine, theirs = _loaded(a, leaves), _loaded(b, leaves)
    if len(mine | theirs) + len(a.nests) + len(b.nests) > MAX_BUFFERS:
        return False
    size = prod(tuple(r.src[0].vmax for r in a.nests[0].ranges))
    if size > SMALL and not any(prod(s.arg.shape) * 2 > size for s in mine & theirs):
        return False
    if _reductions(a.nests[0]) and not mine & theirs:
        return False
    trial = Kernel("compute", a.device, [*a.nests, *(merge_nests(a.nests, n) for n in b.nests)])
    return not in_place_hazard(trial, leaves)

