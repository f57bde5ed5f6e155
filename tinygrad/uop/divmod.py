"""Quotients and remainders of index arithmetic (rounding down, Python's // and %).

In:   sums in the normal form of ``uop/affine.py`` and a positive divisor.
Out:  an equal expression with fewer or smaller divisions; plain sums wherever the bounds allow.
Why:  reshapes become divisions, which are the slowest integer operations; nearly all of them cancel.

Every step is an identity of the integers: with x = n*q + r, x // n = q + r // n and x % n = r % n.
"""

from __future__ import annotations

import math

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.affine import Terms, add_into, build, const, interval, linear, product, surely_below, weighted_sum
from tinygrad.uop.alu import cmod
from tinygrad.uop.ops import UOp


def _node(op: Ops, x: UOp, n: int) -> UOp:
    return UOp(op, dtypes.weakint, (x, const(n)))


def _group(rest: Terms, k: int, n: int) -> tuple[int, Terms, int, Terms, int] | None:
    """Split ``rest + k`` into g * high + low with g a divisor of n and 0 <= low < g.

    Returns (g, terms of high, constant of high, terms of low, constant of low).
    """
    for g in sorted({math.gcd(c, n) for c in rest.values()} - {1, n}, reverse=True):
        high = {t: c // g for t, c in rest.items() if c % g == 0}
        low = {t: c for t, c in rest.items() if c % g}
        smallest, largest = interval(low, k % g)
        block = smallest // g
        if block == largest // g:
            return g, high, k // g + block, low, k % g - block * g
    return None


def floordiv(x: UOp, n: int) -> UOp:
    """Return ``x // n`` for n > 0."""
    if n == 1:
        return x
    terms, constant = linear(x)
    # the part that n divides leaves the division; signs stay, so that -r remains -r
    rest = {t: r for t, c in terms.items() if (r := cmod(c, n))}
    quotient = {t: (c - cmod(c, n)) // n for t, c in terms.items() if c - cmod(c, n)}
    inner = _divide_rest(rest, constant % n, n)
    more, extra = linear(inner)
    add_into(quotient, more)
    return build(quotient, constant // n + extra)


def _divide_rest(rest: Terms, k: int, n: int) -> UOp:
    """Return ``(rest + k) // n`` where no coefficient reaches n."""
    low, high = interval(rest, k)
    if low // n == high // n:
        return const(low // n)
    g = math.gcd(n, *rest.values())
    if g > 1:  # (g*x + k) // (g*m) = (x + k//g) // m
        return floordiv(build({t: c // g for t, c in rest.items()}, k // g), n // g)
    if len(rest) == 1 and 1 in rest.values():
        (t,) = rest
        divisor = t.src[1].arg if t.op in (Ops.FLOORDIV, Ops.FLOORMOD) and t.src[1].op is Ops.CONST else 0
        if t.op is Ops.FLOORDIV and divisor > 0:  # (x//a + k) // n = (x + a*k) // (a*n)
            return floordiv(weighted_sum((t.src[0], 1), constant=divisor * k), divisor * n)
        if t.op is Ops.FLOORMOD and divisor > 0 and k == 0 and divisor % n == 0:  # (x % (n*m)) // n = (x // n) % m
            return floormod(floordiv(t.src[0], n), divisor // n)
    if (found := _group(rest, k, n)) is not None:  # (g*a + b) // (g*m) = a // m   for 0 <= b < g
        g, terms, constant, _, _ = found
        return floordiv(build(terms, constant), n // g)
    return _node(Ops.FLOORDIV, build(rest, k), n)


def floormod(x: UOp, n: int) -> UOp:
    """Return ``x % n`` for n > 0."""
    if n == 1:
        return const(0)
    rest, constant = _without_inner_mods(*linear(x), n)
    k = constant % n
    for residue in (cmod, _positive_residue, _nearest_residue):
        # any representative of a coefficient modulo n may be the one whose bounds fit into one block
        chosen = {t: r for t, c in rest.items() if (r := residue(c, n))}
        low, high = interval(chosen, k)
        if low // n == high // n:
            return build(chosen, k - low // n * n)
    rest = {t: r for t, c in rest.items() if (r := cmod(c, n))}
    g = math.gcd(n, *rest.values())
    if g > 1:  # (g*x + k) % (g*m) = g * ((x + k//g) % m) + k%g
        return weighted_sum((floormod(build({t: c // g for t, c in rest.items()}, k // g), n // g), g), constant=k % g)
    if (found := _group(rest, k, n)) is not None:  # (g*a + b) % (g*m) = g * (a % m) + b   for 0 <= b < g
        g, multiples, k_high, others, k_low = found
        return weighted_sum((floormod(build(multiples, k_high), n // g), g), (build(others, k_low), 1))
    return _node(Ops.FLOORMOD, build(rest, k), n)


def _positive_residue(c: int, n: int) -> int:
    return c % n


def _nearest_residue(c: int, n: int) -> int:
    return (c + n // 2) % n - n // 2


def _without_inner_mods(terms: Terms, constant: int, n: int) -> tuple[Terms, int]:
    """Replace c * (x % m) by c * x where n divides c * m: they are equal modulo n."""
    while True:
        inner = [
            t
            for t, c in terms.items()
            if t.op is Ops.FLOORMOD and t.src[1].op is Ops.CONST and t.src[1].arg > 0 and c * t.src[1].arg % n == 0
        ]
        if not inner:
            return terms, constant
        terms = dict(terms)
        for t in inner:
            c = terms.pop(t)
            more, extra = linear(t.src[0], c)
            add_into(terms, more)
            constant += extra


def recombine(terms: Terms, constant: int) -> tuple[Terms, int]:
    """Join quotients and remainders: ``x//n*n + x%n = x`` and ``(x//n)%m*n + x%n = x % (n*m)``."""
    changed = True
    while changed:
        changed = False
        mods = [t for t in terms if t.op is Ops.FLOORMOD and t.src[1].op is Ops.CONST and t.src[1].arg > 0]
        for t in mods:
            joined = _join(t, terms, mods)
            if joined is not None:
                terms, extra = joined
                constant += extra
                changed = True
                break
    return terms, constant


def _join(mod: UOp, terms: Terms, mods: list[UOp]) -> tuple[Terms, int] | None:
    """Return the terms and what the constant grows by once ``mod`` has met its other half; None if it is not there."""
    x, n, c = mod.src[0], mod.src[1].arg, terms[mod]
    quotient = floordiv(x, n)
    parts, extra = linear(quotient, c * n)
    if parts and all(terms.get(t) == p for t, p in parts.items()):
        out = {t: v for t, v in terms.items() if t is not mod and t not in parts}
        whole, offset = linear(x, c)
        add_into(out, whole)
        return out, offset - extra
    for other in mods:
        m = other.src[1].arg
        if other is mod or terms[other] != c * n or floormod(quotient, m) is not other:
            continue
        out = {t: v for t, v in terms.items() if t is not mod and t is not other}
        whole, offset = linear(floormod(x, n * m), c)
        if sum(t.op is Ops.FLOORMOD for t in whole) < 2:
            add_into(out, whole)
            return out, offset
    return None


# ---- symbolic divisors -----------------------------------------------------------------------------------------------


def split_by(x: UOp, d: UOp) -> tuple[Terms, int, Terms, int]:
    """Write x = quotient * d + rest, as far as d is a visible factor; returns both sums."""
    (divisor, unit), terms = linear(d), linear(x)
    quotient: Terms = {}
    number = 0
    rest: Terms = {}
    if len(divisor) != 1 or unit:
        whole = terms[0].get(d, 0)
        return {}, whole, {t: c for t, c in terms[0].items() if t is not d}, terms[1]
    factor, scale = next(iter(divisor.items()))
    wanted = list(factor.split_uop(Ops.MUL))
    for t, c in terms[0].items():
        have = list(t.split_uop(Ops.MUL))
        fits = c % scale == 0
        for f in wanted:
            if f in have:
                have.remove(f)
            else:
                fits = False
        if not fits:
            rest[t] = c
        elif not have:
            number += c // scale
        else:
            left = have[0]
            for f in have[1:]:
                left = product(left, f)
            add_into(quotient, {left: c // scale})
    return quotient, number, rest, terms[1]


def _symbolic(u: UOp, d: UOp) -> UOp | None:
    if d.vmin <= 0:
        return None
    quotient, number, rest, constant = split_by(u.src[0], d)
    below = surely_below(rest, constant, d)
    if u.op is Ops.FLOORMOD:
        return build(rest, constant) if below else UOp(u.op, u.dtype, (build(rest, constant), d))
    if below:
        return build(quotient, number)
    return weighted_sum((build(quotient, number), 1), (UOp(u.op, u.dtype, (build(rest, constant), d)), 1))


def simplify_divmod(u: UOp) -> UOp | None:
    """Simplify FLOORDIV and FLOORMOD of index arithmetic.

    Raises:
        ZeroDivisionError: The divisor is the constant 0.
    """
    if u._shape != ():
        return None
    x, d = u.src
    if d.op is not Ops.CONST:
        return _symbolic(u, d)
    n = d.arg
    if not isinstance(n, int):
        return None
    if n == 0:
        raise ZeroDivisionError(f"{u.op.name.lower()} of an index by 0: {u.render(simplify=False)}")
    if n > 0:
        return floordiv(x, n) if u.op is Ops.FLOORDIV else floormod(x, n)
    # x // -n = (-x) // n   and   x % -n = -((-x) % n)
    negated = weighted_sum((x, -1))
    return floordiv(negated, -n) if u.op is Ops.FLOORDIV else weighted_sum((floormod(negated, -n), -1))
