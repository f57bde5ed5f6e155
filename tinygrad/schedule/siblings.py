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


def merge_siblings(kernels: list[Kernel], leaves: dict[UOp, Leaf]) -> list[Kernel]:
    """Return the kernels with siblings merged. The graph of dependencies must have no cycle."""
    n = len(kernels)
    reach = _reach(build_edges(kernels, leaves), n)
    groups: dict[tuple[object, ...], list[int]] = {}
    gone: set[int] = set()
    for i, kernel in enumerate(kernels):
        signature = _signature(kernel)
        if signature is None:
            continue
        mates = groups.setdefault(signature, [])
        partner = next((j for j in mates if _can_merge(kernels, reach, leaves, j, i)), None)
        if partner is None:
            mates.append(i)
            continue
        _merge_into(kernels, reach, partner, i)
        gone.add(i)
    return [k for i, k in enumerate(kernels) if i not in gone]


def _can_merge(kernels: list[Kernel], reach: list[int], leaves: dict[UOp, Leaf], j: int, i: int) -> bool:
    if reach[j] >> i & 1 or reach[i] >> j & 1:
        return False
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


def _merge_into(kernels: list[Kernel], reach: list[int], j: int, i: int) -> None:
    a, b = kernels[j], kernels[i]
    a.nests.extend([merge_nests(a.nests, n) for n in b.nests])
    a.writes.extend(b.writes)
    # What led to either now leads to both, and to all that both lead to.
    joint = reach[j] | reach[i] | 1 << i | 1 << j
    for k in range(len(kernels)):
        if (reach[k] >> i | reach[k] >> j) & 1:
            reach[k] |= joint
    reach[j] |= reach[i]
    reach[i] = reach[j]
