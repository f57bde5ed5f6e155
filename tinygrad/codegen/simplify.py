"""Bring a kernel into the form that the optimiser works on.

In:   a kernel SINK as scheduled or written by a user.
Out:  the same kernel: ``valid`` index pairs are gates, RANGEs of one iteration are 0, every range has one place in one
      loop nest, sibling REDUCEs of equal size share their ranges.
Ops:  reads RANGE, REDUCE, INDEX, END. Adds none.
Why:  the optimiser then meets one form of each loop nest, whoever wrote the kernel.
"""

from __future__ import annotations

import itertools

from tinygrad.codegen.late.affine import affine, from_affine, is_sum
from tinygrad.codegen.late.structure import is_memory
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def rebuild(sink: UOp, replaced: dict[UOp, UOp]) -> UOp:
    """Replace nodes by the map, everywhere, in one walk (replacements are final)."""
    new: dict[UOp, UOp] = {}
    for u in sink.toposort():
        if u in replaced:
            new[u] = replaced[u]
            continue
        src = tuple([new[s] for s in u.src])
        new[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return new[sink]


def gate_invalid_indices(sink: UOp) -> UOp:
    """INDEX(p, WHERE(cond, i, Invalid)) = INDEX(p, i, cond)."""
    replaced: dict[UOp, UOp] = {}
    for u in sink.toposort():
        if u.op is not Ops.INDEX or not is_memory(u.src[0]):
            continue
        valid = u.src[1].get_valid()
        if valid.op is Ops.CONST:
            continue
        gate = valid if len(u.src) < 3 else UOp(Ops.AND, dtypes.bool, (u.src[2], valid))
        replaced[u] = UOp(Ops.INDEX, u.dtype, (u.src[0], u.src[1].get_idx(), gate))
    return rebuild(sink, replaced) if replaced else sink


def drop_single_iterations(sink: UOp) -> UOp:
    """A RANGE of one iteration is 0; a REDUCE or END without ranges is its value."""
    single = {u for u in sink.toposort() if u.op is Ops.RANGE and u.src[0].op is Ops.CONST and u.src[0].arg == 1}
    if not single:
        return sink
    zero = UOp(Ops.CONST, dtypes.weakint, (), 0)
    new: dict[UOp, UOp] = {}
    for u in sink.toposort():
        if u in single:
            new[u] = zero
        elif u.op is Ops.REDUCE or u.op is Ops.END:
            ranges = tuple(new[r] for r in u.src[1:] if r not in single)
            body = new[u.src[0]]
            new[u] = UOp(u.op, u.dtype, (body, *ranges), u.arg, u.tag) if ranges else body
        else:
            src = tuple([new[s] for s in u.src])
            new[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return new[sink]


def simplify_kernel(sink: UOp) -> UOp:
    """Run all passes of this file."""
    return drop_single_iterations(gate_invalid_indices(sink))


# ---- merging loops


def _index_uses(sink: UOp) -> dict[UOp, tuple[dict[UOp, int], int]]:
    """Return every whole index expression (not a part of a larger sum) with its terms and constant."""
    uses: dict[UOp, tuple[dict[UOp, int], int]] = {}
    for u in sink.toposort():
        if is_sum(u):
            continue
        sources = u.src[:1] if u.op in (Ops.END, Ops.REDUCE, Ops.RANGE) else u.src
        for s in sources:
            if s.dtype is dtypes.weakint and s not in uses and (s.op is Ops.RANGE or is_sum(s)):
                uses[s] = affine(s)
    return uses


def _pairs(sink: UOp) -> list[tuple[UOp, UOp]]:
    """Return (outer, inner) candidates: neighbours in every END, or any two ranges of the same REDUCEs."""
    ends = [u.src[1:] for u in sink.toposort() if u.op is Ops.END]
    reduces = [u.src[1:] for u in sink.toposort() if u.op is Ops.REDUCE]
    pairs: dict[tuple[UOp, UOp], None] = {}
    for ranges in ends:
        for a, b in itertools.pairwise(ranges):
            if all(
                (a in other) == (b in other) and (a not in other or other.index(a) + 1 == other.index(b))
                for other in ends
            ):
                pairs[a, b] = None
    for ranges in reduces:
        for a, b in itertools.permutations(ranges, 2):
            if all((a in other) == (b in other) for other in reduces):
                pairs[a, b] = None
    return [(a, b) for a, b in pairs if a.arg[-1] is b.arg[-1] and a.src[0].op is b.src[0].op is Ops.CONST]


def merge_ranges(sink: UOp) -> UOp:
    """Two loops are one where every index goes through them as through one: i*n + j with j < n.

    Long loops over consecutive memory are what vectorising and threading want.
    """
    pairs = _pairs(sink)
    if not pairs:
        return sink
    uses = _index_uses(sink)
    merged: dict[UOp, tuple[UOp, ...]] = {}
    while True:
        found = next((p for p in pairs if _is_one_loop(*p, uses)), None)
        if found is None:
            break
        a, b = found
        both = UOp.range(a.src[0].arg * b.src[0].arg, *a.arg)
        merged[a], merged[b] = (both,), ()
        for terms, _ in uses.values():
            terms.pop(a, None)
            if b in terms:
                terms[both] = terms.pop(b)
        renamed = {a: both, b: both}
        pairs = [(renamed.get(x, x), renamed.get(y, y)) for x, y in pairs if (x, y) not in ((a, b), (b, a))]
    return _rebuild_merged(sink, uses, merged) if merged else sink


def _is_one_loop(a: UOp, b: UOp, uses: dict[UOp, tuple[dict[UOp, int], int]]) -> bool:
    inner = b.src[0].arg
    return a is not b and all(terms.get(a, 0) == terms.get(b, 0) * inner for terms, _ in uses.values())


def _rebuild_merged(sink: UOp, uses: dict[UOp, tuple[dict[UOp, int], int]], merged: dict[UOp, tuple[UOp, ...]]) -> UOp:
    def final(ranges: tuple[UOp, ...]) -> tuple[UOp, ...]:
        while any(r in merged for r in ranges):
            ranges = tuple(new for r in ranges for new in merged.get(r, (r,)))
        return ranges

    new: dict[UOp, UOp] = {}
    for u in sink.toposort():
        if u in uses:
            terms, const = uses[u]
            new[u] = from_affine({new.get(t, t): f for t, f in terms.items()}, const)
        elif u.op is Ops.RANGE and u in merged:
            new[u] = u  # read by sums only, and those are rebuilt from their terms
        elif u.op is Ops.END or u.op is Ops.REDUCE:
            new[u] = UOp(u.op, u.dtype, (new[u.src[0]], *final(u.src[1:])), u.arg, u.tag)
        else:
            src = tuple([new[s] for s in u.src])
            new[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return new[sink]
