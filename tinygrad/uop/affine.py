"""Sums of index arithmetic in one normal form.

In:   weakint scalars (exact integers: index arithmetic does not wrap).
Out:  ``sum of coefficient * term + constant``: every term once, in a fixed order, the constant last. A term is whatever
      is no sum and no product with a constant: a RANGE, a Variable, a quotient, a product of such.
Why:  the rules for division, remainder and comparison look at coefficients; two ways to write an index become one node.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from tinygrad.dtype import Invalid, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Terms: TypeAlias = "dict[UOp, int]"
_NEUTRAL: Final = (0, 1, Invalid)


def const(value: int) -> UOp:
    """Return an index constant."""
    return UOp(Ops.CONST, dtypes.weakint, (), value)


class _ByKey:
    """A node that sorts by its digest, which is only computed where all that comes before it in a sort key is equal."""

    __slots__ = ("node",)

    def __init__(self, node: UOp) -> None:
        self.node = node

    def __lt__(self, other: _ByKey) -> bool:
        return self.node.key < other.node.key


def order(u: UOp) -> tuple[Any, ...]:
    """Return a sort key of terms that is the same in every process.

    Quotients and the like are sorted by their loops and constants, so that a kernel whose loops had other numbers when
    it was built ends up with the same sums.
    """
    op = u.op
    if op is Ops.RANGE and len(u.src) == 1:  # most terms are loops
        return int(op), _number(u), _ByKey(u)
    if op is Ops.PARAM:
        return int(op), u.arg.name or "", _ByKey(u)
    loops = ",".join(sorted(_number(r) for r in u.ranges))
    return int(op), loops + "".join(f"|{s.arg}" for s in u.src[1:] if s.op is Ops.CONST), _ByKey(u)


def _number(loop: UOp) -> str:
    return str(loop.arg[0]).zfill(6)


def linear(u: UOp, scale: int = 1) -> tuple[Terms, int]:
    """Return the terms with their coefficients, and the constant, of ``scale * u``."""
    terms: Terms = {}
    constant = 0
    stack = [(u, scale)]
    while stack:
        node, factor = stack.pop()
        op = node.op
        if op is Ops.ADD:
            stack += ((node.src[1], factor), (node.src[0], factor))
        elif op is Ops.CONST and node.arg is not Invalid:
            constant += factor * node.arg
        elif op is Ops.MUL and node.src[1].op is Ops.CONST and node.src[1].arg is not Invalid:
            stack.append((node.src[0], factor * node.src[1].arg))
        elif op is Ops.MUL and node.src[0].op is Ops.CONST and node.src[0].arg is not Invalid:
            stack.append((node.src[1], factor * node.src[0].arg))
        elif node.vmin == node.vmax and node.op is not Ops.WHERE:
            constant += factor * node.vmin  # a loop of one iteration, a Variable with one value
        else:
            terms[node] = terms.get(node, 0) + factor
    return {t: c for t, c in terms.items() if c}, constant


def add_into(terms: Terms, more: Terms, scale: int = 1) -> None:
    """Add ``scale * more`` to ``terms``; terms that cancel disappear."""
    for t, c in more.items():
        total = terms.get(t, 0) + c * scale
        if total:
            terms[t] = total
        else:
            terms.pop(t, None)


def build(terms: Terms, constant: int) -> UOp:
    """Return the normal form of a sum."""
    result: UOp | None = None
    ordered = sorted(terms, key=order) if len(terms) > 1 else terms
    for t in ordered:
        c = terms[t]
        node = t if c == 1 else UOp(Ops.MUL, dtypes.weakint, (t, const(c)))
        result = node if result is None else UOp(Ops.ADD, dtypes.weakint, (result, node))
    if result is None:
        return const(constant)
    return result if constant == 0 else UOp(Ops.ADD, dtypes.weakint, (result, const(constant)))


def weighted_sum(*parts: tuple[UOp, int], constant: int = 0) -> UOp:
    """Return the normal form of a constant and a sum of scaled nodes."""
    terms: Terms = {}
    for node, scale in parts:
        more, extra = linear(node, scale)
        add_into(terms, more)
        constant += extra
    return build(terms, constant)


def interval(terms: Terms, constant: int) -> tuple[int, int]:
    """Return inclusive bounds of a sum."""
    low = high = constant
    for t, c in terms.items():
        if c > 0:
            low, high = low + c * t.vmin, high + c * t.vmax
        else:
            low, high = low + c * t.vmax, high + c * t.vmin
    return low, high


def product(x: UOp, y: UOp) -> UOp:
    """Return the product of two terms, factors in order."""
    factors = sorted([*x.split_uop(Ops.MUL), *y.split_uop(Ops.MUL)], key=order)
    result = factors[0]
    for f in factors[1:]:
        result = UOp(Ops.MUL, dtypes.weakint, (result, f))
    return result


def times(x: UOp, y: UOp) -> UOp:
    """Return the normal form of a product; a sum is multiplied out if the other factor is a single term."""
    (terms, constant), (other, other_constant) = linear(x), linear(y)
    if not other:
        return build(
            {t: c * other_constant for t, c in terms.items()} if other_constant else {}, constant * other_constant
        )
    if not terms or (len(other) + (other_constant != 0) > 1):
        terms, constant, other, other_constant = other, other_constant, terms, constant
    if not other:
        return times(build(terms, constant), const(other_constant))
    if len(other) == 1 and not other_constant:
        factor, scale = next(iter(other.items()))
        out: dict[UOp, int] = {}
        for t, c in terms.items():
            add_into(out, {product(t, factor): c * scale})
        if constant:
            add_into(out, {factor: constant * scale})
        return build(out, 0)
    return product(build(terms, constant), build(other, other_constant))


def normalize_sum(u: UOp) -> UOp | None:
    """Bring a sum into normal form; put quotients and remainders of one value together again."""
    if u._shape != () or hasattr(u, "_is_normal_sum"):
        return None
    terms, constant = linear(u)
    if any(t.op is Ops.FLOORMOD for t in terms):
        from tinygrad.uop.divmod import recombine

        terms, constant = recombine(terms, constant)
    result = build(terms, constant)
    # The rewriter comes by again: at the result, and before at each of the shorter sums that it begins with.
    part = result
    while part.op is Ops.ADD:
        part._is_normal_sum = True
        part = part.src[0]
    return result


def normalize_product(u: UOp) -> UOp | None:
    """Bring a product into normal form."""
    if u._shape != ():
        return None
    term, factor = u.src
    if term.op is Ops.RANGE and factor.op is Ops.CONST and factor.arg not in _NEUTRAL and term.vmin != term.vmax:
        return None  # nearly all products of index arithmetic
    return times(term, factor)


def largest(u: UOp) -> UOp:
    """Return an upper bound of a term that may depend on Variables (the last index of a loop over one)."""
    if u.op is Ops.RANGE:
        terms, constant = linear(u.src[0])
        return build(terms, constant - 1)
    if u.op is Ops.FLOORMOD and u.src[1].vmin > 0:
        terms, constant = linear(u.src[1])
        return build(terms, constant - 1)
    if u.op is Ops.MUL and u.src[0].vmin >= 0 and u.src[1].vmin >= 0:
        return times(largest(u.src[0]), largest(u.src[1]))
    # A Variable bounds itself, which is what lets it cancel.
    return u if u.op is Ops.PARAM or u.op is Ops.AFTER else const(u.vmax)


def without_symbolic_loops(terms: Terms) -> tuple[Terms, int] | None:
    """Return a sum that ``terms`` never exceed, with loops over symbolic sizes at their last index; None without such.

    A size may be rounded: ``c * (x // n)`` is at most ``c / n * x``, so ``2*r < v`` follows from ``r < (v + 1) // 2``.
    """
    loops = [t for t, c in terms.items() if c > 0 and t.op is Ops.RANGE and t.src[0].op is not Ops.CONST]
    if not loops:
        return None
    bound = {t: c for t, c in terms.items() if t not in loops}
    constant = 0
    for loop in loops:
        sizes, extra = linear(loop.src[0], terms[loop])
        constant += extra - terms[loop]
        for size, c in sizes.items():
            n = size.src[1].arg if size.op is Ops.FLOORDIV and size.src[1].op is Ops.CONST else 0
            more, extra = linear(size.src[0], c // n) if n > 0 and c > 0 and c % n == 0 else ({size: c}, 0)
            add_into(bound, more)
            constant += extra
    return bound, constant


def surely_below(terms: Terms, constant: int, limit: UOp) -> bool:
    """Whether ``0 <= sum < limit`` follows from the bounds, also where ``limit`` is symbolic."""
    low, high = interval(terms, constant)
    if low < 0:
        return False
    if high < limit.vmin:
        return True
    gap, rest = linear(limit)
    for t, c in terms.items():
        more, extra = linear(largest(t), c) if c > 0 else ({}, c * t.vmin)
        add_into(gap, more, -1)
        rest -= extra
    return interval(gap, rest - constant)[0] >= 1
