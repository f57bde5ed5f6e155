"""Split loops whose counter is read divided: packed data, of which each block, group and byte is found by division.

In:   a simplified kernel SINK.
Out:  the same kernel; where indices read ``r // 32`` and ``r % 32``, and 32 divides the iterations, r is r0 * 32 + r1.
Why:  lanes along r1 lie next to each other in memory, and what depends on r0 alone, such as the scale of a block of
      quantised weights, is computed once per group.
"""

from __future__ import annotations

import math

from tinygrad.codegen.late.affine import affine
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, graph_rewrite
from tinygrad.uop.symbolic import sym

MIN_GROUP = 16  # iterations of the inner loop: it should fill vectors

_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD})


def split_divided_ranges(sink: UOp) -> UOp:
    """Return the kernel with each such loop split in two, and its indices simplified."""
    groups = {r: size for r, sizes in _group_sizes(sink).items() if (size := _choose(r, sizes)) is not None}
    if not groups:
        return sink
    next_id = 1 + max(u.arg[0] for u in sink.toposort() if u.op is Ops.RANGE)
    pairs: dict[UOp, tuple[UOp, UOp]] = {}
    for number, (r, size) in enumerate(groups.items()):
        outer = UOp.range(r.src[0].arg // size, *r.arg)
        pairs[r] = outer, UOp.range(size, next_id + number, *r.arg[1:])
    sums = {r: outer * groups[r] + inner for r, (outer, inner) in pairs.items()}
    new: dict[UOp, UOp] = {}
    for u in sink.toposort():
        if u in sums:
            new[u] = sums[u]
        elif u.op is Ops.END or u.op is Ops.REDUCE:
            ranges = tuple(part for r in u.src[1:] for part in pairs.get(r, (new[r],)))
            new[u] = UOp(u.op, u.dtype, (new[u.src[0]], *ranges), u.arg, u.tag)
        else:
            src = tuple([new[s] for s in u.src])
            new[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return graph_rewrite(new[sink], sym, name="split divided loops")


def _group_sizes(sink: UOp) -> dict[UOp, set[int]]:
    """Return for each RANGE the group sizes by which it would have to be split for its divisions to disappear."""
    sizes: dict[UOp, set[int]] = {}
    for u in sink.toposort():
        if u.op not in _DIVISIONS or u.dtype is not dtypes.weakint or u.src[1].op is not Ops.CONST or u.src[1].arg <= 0:
            continue
        for term, factor in affine(u.src[0])[0].items():
            if term.op is Ops.RANGE and term.src[0].op is Ops.CONST:
                sizes.setdefault(term, set()).add(u.src[1].arg // math.gcd(u.src[1].arg, factor))
    return sizes


def _choose(r: UOp, sizes: set[int]) -> int | None:
    """Return the smallest group that fills vectors, if it divides the loop and the larger ones are made of it."""
    iterations = r.src[0].arg
    large = sorted(size for size in sizes if MIN_GROUP <= size < iterations)
    if not large or iterations % large[0] or any(size % large[0] for size in large):
        return None
    return large[0]
