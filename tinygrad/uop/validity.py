"""Conditions on indices: comparisons in normal form, conjunctions, and what an expression is where one holds.

In:   weakint comparisons, AND of them, an expression.
Out:  equal conditions with less work in them; an expression that is equal wherever the condition is True.
Why:  padding and masked tails put conditions on every access; most follow from the loops' bounds or from each other.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.affine import Terms, add_into, build, const, interval, linear, order, without_symbolic_loops
from tinygrad.uop.ops import UOp

_WORTH_IT = sum(1 << op for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.WHERE, Ops.MAX))


def truth(value: bool) -> UOp:
    """Return a bool constant."""
    return UOp(Ops.CONST, dtypes.bool, (), value)


def logical_not(x: UOp) -> UOp:
    """Return the negation of a bool."""
    return UOp(Ops.CMPNE, dtypes.bool, (x, truth(True)))


def _difference(x: UOp, y: UOp) -> tuple[Terms, int]:
    terms, constant = linear(x)
    more, extra = linear(y, -1)
    add_into(terms, more)
    return terms, constant + extra


def less_than(terms: Terms, limit: int) -> UOp:
    """Return the normal form of ``sum < limit``: positive terms on the left, the rest on the right."""
    while True:
        low, high = interval(terms, 0)
        if high < limit:
            return truth(True)
        if low >= limit:
            return truth(False)
        bound = without_symbolic_loops(terms)
        if bound is not None and interval(*bound)[1] < limit:
            return truth(True)
        g = math.gcd(*terms.values())
        if g > 1:  # g*x < k  is  x < ceil(k / g)
            terms, limit = {t: c // g for t, c in terms.items()}, -(-limit // g)
        step = _without_division(terms, limit) or _without_remainder(terms, limit)
        if step is None:
            break
        terms, limit = step
    positive = {t: c for t, c in terms.items() if c > 0}
    negative = {t: -c for t, c in terms.items() if c < 0}
    left, right = (build(positive, 0), build(negative, limit)) if positive else (const(-limit), build(negative, 0))
    return UOp(Ops.CMPLT, dtypes.bool, (left, right))


def _without_division(terms: Terms, limit: int) -> tuple[Terms, int] | None:
    """``x//n < k`` is ``x < k*n``; ``-(x//n) < k`` is ``-x < (k-1)*n + 1``."""
    if len(terms) != 1:
        return None
    t, c = next(iter(terms.items()))
    if t.op is not Ops.FLOORDIV or t.src[1].op is not Ops.CONST or t.src[1].arg <= 0 or abs(c) != 1:
        return None
    n = t.src[1].arg
    more, extra = linear(t.src[0], c)
    return more, (limit * n if c > 0 else (limit - 1) * n + 1) - extra


def _without_remainder(terms: Terms, limit: int) -> tuple[Terms, int] | None:
    """``g*a + b < k`` is ``a < ceil(k / g)`` where 0 <= b < g and b cannot decide."""
    for g in sorted({abs(c) for c in terms.values()} - {1}, reverse=True):
        low_terms = {t: c for t, c in terms.items() if c % g}
        if not low_terms or len(low_terms) == len(terms):
            continue
        low, high = interval(low_terms, 0)
        block = low // g
        if block != high // g:
            continue
        low, high, k = low - block * g, high - block * g, limit - block * g
        # g*a + b < k with k = g*q + s: true for a < q, false for a > q, and a == q asks b < s
        q, s = divmod(k, g)
        if high < s or low >= s:
            return {t: c // g for t, c in terms.items() if c % g == 0}, q + (high < s)
    return None


def compare_less(u: UOp) -> UOp | None:
    """Bring ``x < y`` of indices into normal form."""
    if u._shape != ():
        return None
    terms, constant = _difference(*u.src)
    return less_than(terms, -constant)


def compare_equal(u: UOp) -> UOp | None:
    """Bring ``x == y`` and ``x != y`` of indices into normal form: positive terms on the left, the rest right."""
    if u._shape != ():
        return None
    terms, constant = _difference(*u.src)
    low, high = interval(terms, constant)
    g = math.gcd(*terms.values()) or 1
    if low > 0 or high < 0 or constant % g:
        return truth(u.op is Ops.CMPNE)
    if not terms:
        return truth((constant == 0) == (u.op is Ops.CMPEQ))
    if terms[min(terms, key=order)] < 0:
        g = -g
    terms, constant = {t: c // g for t, c in terms.items()}, constant // g
    negative = {t: -c for t, c in terms.items() if c < 0}
    positive = {t: c for t, c in terms.items() if c > 0}
    return UOp(u.op, dtypes.bool, (build(positive, 0), build(negative, -constant)))


# ---- conjunctions ----------------------------------------------------------------------------------------------------

Key: TypeAlias = "frozenset[tuple[UOp, int]]"


def parse_bound(clause: UOp) -> tuple[Key, int | None, int | None] | None:
    """Read a clause as ``low <= sum <= high`` (either may be None); None if it is no comparison of indices."""
    if clause.op not in (Ops.CMPLT, Ops.CMPEQ) or clause.src[0].dtype is not dtypes.weakint or clause._shape != ():
        return None
    terms, constant = _difference(*clause.src)
    if not terms:
        return None
    low: int | None = None
    high: int | None = -constant if clause.op is Ops.CMPEQ else -constant - 1
    if clause.op is Ops.CMPEQ:
        low = high
    if terms[min(terms, key=order)] < 0:
        terms = {t: -c for t, c in terms.items()}
        low, high = None if high is None else -high, None if low is None else -low
    return frozenset(terms.items()), low, high


def _bounds_of(clauses: list[UOp]) -> tuple[dict[Key, tuple[int | None, int | None]], list[UOp]]:
    """Return the tightest bounds per sum, and the clauses that are no bounds."""
    bounds: dict[Key, tuple[int | None, int | None]] = {}
    others: list[UOp] = []
    for clause in clauses:
        parsed = parse_bound(clause)
        if parsed is None:
            others.append(clause)
            continue
        key, low, high = parsed
        old_low, old_high = bounds.get(key, (None, None))
        low = old_low if low is None else low if old_low is None else max(low, old_low)
        high = old_high if high is None else high if old_high is None else min(high, old_high)
        bounds[key] = low, high
    return bounds, others


def conjunction(clauses: list[UOp]) -> UOp:
    """Return the AND of the clauses, from left to right."""
    result: UOp | None = None
    for clause in dict.fromkeys(clauses):
        result = clause if result is None else UOp(Ops.AND, dtypes.bool, (result, clause))
    return truth(True) if result is None else result


def merge_bounds(u: UOp) -> UOp | None:
    """Simplify an AND: every clause once, one upper and one lower bound per sum, False if they contradict."""
    clauses = list(dict.fromkeys(u.split_uop(Ops.AND)))
    if any(logical_not_of(c) in clauses for c in clauses if c.op is Ops.CMPNE):
        return truth(False) if u._shape == () else None
    bounds, others = _bounds_of(clauses)
    if len(bounds) + len(others) == len(clauses):
        return conjunction(clauses)
    merged: list[UOp] = []
    for key, (low, high) in bounds.items():
        terms = dict(key)
        if low is not None and high is not None:
            if low > high:
                return truth(False)
            if low == high:
                merged.append(_equals(terms, low))
                continue
        if low is not None:
            merged.append(less_than({t: -c for t, c in terms.items()}, 1 - low))
        if high is not None:
            merged.append(less_than(terms, high + 1))
    return conjunction([c for c in merged if not (c.op is Ops.CONST and c.arg is True)] + others)


def _equals(terms: Terms, value: int) -> UOp:
    node = UOp(Ops.CMPEQ, dtypes.bool, (build(terms, 0), const(value)))
    normal = compare_equal(node)
    return node if normal is None else normal


def logical_not_of(clause: UOp) -> UOp | None:
    """Return x if the clause is ``x != True``."""
    if clause.op is Ops.CMPNE and clause.src[1].op is Ops.CONST and clause.src[1].arg is True:
        return clause.src[0]
    return None


# ---- what holds where a condition is True ----------------------------------------------------------------------------


def _weight(u: UOp) -> int:
    """How much work an expression is; divisions count most."""
    heavy = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD)
    return sum(
        10 if n.op in heavy else 1 for n in u.toposort(gate=lambda n: n.op is not Ops.INDEX and n.op is not Ops.LOAD)
    )


def uop_given_valid(valid: UOp, uop: UOp) -> UOp:
    """Return an expression that equals ``uop`` wherever ``valid`` is True.

    Each bound on a sum is used by solving the sum for one of its terms: the term is replaced by a variable with the
    bounds of the sum (minus the other terms), the result is simplified, and the sum is put back.
    """
    if not uop.ops_below & _WORTH_IT:
        return uop
    bounds, others = _bounds_of(list(dict.fromkeys(valid.split_uop(Ops.AND))))
    if others and uop.dtype is dtypes.bool:
        uop = _simplify(uop.substitute({clause: truth(True) for clause in others}))
    for key, (low, high) in bounds.items():
        terms = dict(key)
        declared = interval(terms, 0)
        low = declared[0] if low is None else max(low, declared[0])
        high = declared[1] if high is None else min(high, declared[1])
        if low > high or (low, high) == declared:
            continue
        found = _with_bound(uop, terms, low, high)
        if found is not None:
            uop = found
            if not uop.ops_below & _WORTH_IT:
                break
    return uop


def _with_bound(uop: UOp, terms: Terms, low: int, high: int) -> UOp | None:
    """Simplify ``uop`` with ``low <= sum <= high``; None if that does not make it smaller."""
    best: UOp | None = None
    present = uop.toposort()
    for term, c in terms.items():
        if abs(c) != 1 or term not in present:
            continue
        stand_in = UOp.variable("_sum_within_its_bounds", low, high)
        # sum = c*term + others, so term = c*sum - c*others
        solved = {t: -c * k for t, k in terms.items() if t is not term}
        solved[stand_in] = c
        inside = _simplify(uop.substitute({term: build(solved, 0)}, walk=True))
        back = _simplify(inside.substitute({stand_in: build(terms, 0)}, walk=True))
        if back is not uop and _weight(back) < _weight(best if best is not None else uop):
            best = back
    return best


def _simplify(u: UOp) -> UOp:
    from tinygrad.uop.rewrite import graph_rewrite
    from tinygrad.uop.symbolic import symbolic

    return graph_rewrite(u, symbolic, name="simplify under a condition")


def simplified_gate(valid: UOp) -> UOp:
    """Return ``simplify_valid`` of a condition, or the condition itself if nothing changes."""
    found = simplify_valid(valid)
    return valid if found is None else found


def simplify_valid(valid: UOp) -> UOp | None:
    """Simplify each clause of an AND where the others hold; None if nothing changes."""
    clauses = list(dict.fromkeys(valid.split_uop(Ops.AND)))
    if len(clauses) < 2:
        return None
    kept = list(clauses)
    # the heaviest clauses first: they are the ones that others may make unnecessary
    for clause in sorted(clauses, key=_weight, reverse=True):
        i = kept.index(clause)
        others = kept[:i] + kept[i + 1 :]
        if not others:
            break
        new = uop_given_valid(conjunction(others), clause)
        if new.op is Ops.CONST:
            if new.arg is False:
                return truth(False)
            kept = others
        elif new is not clause:
            kept[i] = new
    result = conjunction(kept)
    return None if kept == clauses else result
