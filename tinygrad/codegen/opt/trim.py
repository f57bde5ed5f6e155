"""Cut a loop of a reduction to the iterations that add something.

In:   an optimised kernel SINK.
Out:  the same kernel; the loop over the taps of a window begins and ends at the taps that lie inside of the input, the
      last block of a long sum ends with its last term, and the loads that loops were cut for have lost their gates.
Ops:  reads REDUCE, INDEX, RANGE. A RANGE may now end at an expression of outer RANGEs.
Why:  at the border of an input with zeros around it a part of the taps adds zero times a weight. Left out, they cost
      nothing, the zeros need not be in memory, and no load needs a gate. Only for windows, whose taps inside differ
      from output to output, is zero times a weight taken for 0 whatever the weight is (docs/developer/numerics.md).

      What is beyond the last block has one gate on all factors, so that it is 0 whatever they are. Such gates had
      halved the speed of sums over 257 terms.

    sum(k < 5; x[y + k - 4] if 4 <= y + k < 24 else 0)  =  sum(max(0, 4 - y) <= k < min(5, 24 - y); x[y + k - 4])
    sum(b < 5; sum(k < 52; x[52 * b + k] if 52 * b + k < 257 else 0))  =
    sum(b < 5; sum(k < min(52, 257 - 52 * b); x[52 * b + k]))
"""

from __future__ import annotations

from collections.abc import Container

from tinygrad.codegen.late.affine import affine, from_affine
from tinygrad.codegen.late.structure import is_memory
from tinygrad.codegen.simplify import rebuild
from tinygrad.dtype import dtypes
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

_OUTER = frozenset({AxisType.LOOP, AxisType.THREAD, AxisType.GLOBAL, AxisType.WEAK})


@record(frozen=True)
class _Bound:
    """A condition on a loop: ``k < place``, or ``k >= place`` if it is a lower one."""

    loop: UOp
    place: UOp
    is_lower: bool


def _bound(condition: UOp, loops: set[UOp], around: set[UOp]) -> _Bound | None:
    """Return what a condition says about one of the loops of a reduction, or None if it says something else.

    ``around`` are the loops of sums over blocks, inside of which these run.
    """
    is_lower = False
    if condition.op is Ops.CMPNE and condition.src[1].op is Ops.CONST and condition.src[1].arg is True:
        condition, is_lower = condition.src[0], True
    if condition.op is not Ops.CMPLT or condition.src[0].dtype is not dtypes.weakint:
        return None
    # left < right holds where the terms, all on one side, are below the constant.
    terms, const = affine(condition.src[0] - condition.src[1])
    mine = [r for r in terms if r in loops]
    others = [r for t in terms if t not in loops for r in t.toposort() if r.op is Ops.RANGE]
    if len(mine) != 1 or not others or any(r.arg[-1] not in _OUTER and r not in around for r in others):
        return None
    if any(u.op not in (Ops.RANGE, Ops.CONST) and u.dtype is not dtypes.weakint for t in terms for u in t.toposort()):
        return None
    step = terms.pop(mine[0])
    if abs(step) != 1:
        return None
    if step == 1:  # k + rest < 0: k < -rest
        return _Bound(mine[0], from_affine({t: -f for t, f in terms.items()}, -const), is_lower)
    # rest - k < 0: k >= rest + 1
    return _Bound(mine[0], from_affine(terms, const + 1), not is_lower)


def _around(reduce: UOp, reduces: list[UOp]) -> set[UOp]:
    """Return the loops of the sums over blocks, and over blocks of blocks, of a sum."""
    found: set[UOp] = set()
    outer: UOp | None = reduce
    while (outer := next((u for u in reduces if u.src[0] is outer), None)) is not None:
        found |= {r for r in outer.src[1:] if r.arg[-1] is AxisType.REDUCE}
    return found


def _factors(reduce: UOp) -> list[UOp]:
    """Return the factors of the value of a sum: loads, and what is computed in another way."""
    found: list[UOp] = []
    stack = [reduce.src[0]]
    while stack:
        u = stack.pop()
        if u.op is Ops.MUL:
            stack.extend(u.src)
        elif u.op in (Ops.CAST, Ops.NEG):
            stack.append(u.src[0])
        else:
            found.append(u)
    return found


def _conditions(factor: UOp) -> list[UOp]:
    """Return the conditions under which a factor is read; it is 0 where one of them is not met."""
    is_gated = factor.op is Ops.INDEX and is_memory(factor.src[0]) and len(factor.src) > 2
    return list(factor.src[2].split_uop(Ops.AND)) if is_gated else []


def trim_sums(sink: UOp) -> UOp:
    """Return the kernel with the loops of its sums cut to where gated factors of products are on."""
    reduces = [u for u in sink.toposort() if u.op is Ops.REDUCE]
    for reduce in reduces:
        if reduce.arg[0] is not Ops.ADD:
            continue
        loops = {
            r for r in reduce.src[1:]
            if r.arg[-1] is AxisType.REDUCE and r.src[0].op is Ops.CONST and sum(r in u.src[1:] for u in reduces) == 1
        }  # fmt: skip
        factors = [_conditions(u) for u in _factors(reduce)]
        shared = {c for c in factors[0] if all(c in other for other in factors)}
        around = _around(reduce, reduces) if shared else set()
        for conditions in factors:
            bounds = {c: b for c in conditions if (b := _bound(c, loops, around if c in shared else set()))}
            trimmed = _trimmed(sink, bounds)
            if trimmed is not None:
                return trim_sums(trimmed)
    return sink


def _trimmed(sink: UOp, bounds: dict[UOp, _Bound]) -> UOp | None:
    """Return the kernel with loops cut by conditions, which no load has any more; None if there are no bounds."""
    lower: dict[UOp, UOp] = {}
    upper: dict[UOp, UOp] = {}
    for bound in bounds.values():
        side = lower if bound.is_lower else upper
        before = side.get(bound.loop)
        join = UOp.maximum if bound.is_lower else UOp.minimum
        side[bound.loop] = bound.place if before is None else join(before, bound.place)
    replaced: dict[UOp, UOp] = {}
    for r in {**lower, **upper}:
        first = lower[r].maximum(0) if r in lower else r.const_like(0)
        end = upper[r].minimum(r.src[0]) if r in upper else r.src[0]
        replaced[r] = first + UOp(Ops.RANGE, r.dtype, (end - first,), r.arg)
    if not replaced:
        return None
    cut = {u: _without(u, bounds) for u in sink.toposort() if any(c in bounds for c in _conditions(u))}
    sink = rebuild(sink, cut)
    return _with_loops(sink, replaced)


def _without(load: UOp, met: Container[UOp]) -> UOp:
    """Return a gated load without the conditions that are met."""
    gate: UOp | None = None
    for condition in _conditions(load):
        if condition not in met:
            gate = condition if gate is None else UOp(Ops.AND, dtypes.bool, (gate, condition))
    return UOp(Ops.INDEX, load.dtype, load.src[:2] if gate is None else (*load.src[:2], gate))


def _with_loops(sink: UOp, replaced: dict[UOp, UOp]) -> UOp:
    """Return the kernel with loops replaced: by their new RANGE where they are closed, by its value elsewhere."""
    ranges = {r: next(u for u in value.toposort() if u.op is Ops.RANGE and u.arg == r.arg)
              for r, value in replaced.items()}  # fmt: skip
    new: dict[UOp, UOp] = {}
    for u in sink.toposort():
        if u in replaced:
            new[u] = replaced[u]
        elif u.op is Ops.REDUCE:
            new[u] = UOp(
                Ops.REDUCE, u.dtype, (new[u.src[0]], *(ranges.get(r, new[r]) for r in u.src[1:])), u.arg, u.tag
            )
        else:
            src = tuple([new[s] for s in u.src])
            new[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return new[sink]
