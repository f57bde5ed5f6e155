"""Index arithmetic as sums: ``4*i + j + 7`` is {i: 4, j: 1} and 7.

In:   an index expression (dtype weakint).
Out:  its terms with constant factors and its constant part. What is not a sum stays whole, as a term.
Why:  the step of an address per lane, per copy and per loop is what vectorising, unrolling and hoisting decide on.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

NEAR = 4  # elements from one lane to the next up to which lanes share vectors

_SUM_OPS = frozenset({Ops.ADD, Ops.SUB, Ops.NEG})


def is_sum(u: UOp) -> bool:
    """Whether ``affine`` looks inside this node."""
    if u.dtype is not dtypes.weakint:
        return False
    if u.op in _SUM_OPS:
        return True
    if u.op is Ops.MUL:
        return u.src[1].op is Ops.CONST or u.src[0].op is Ops.CONST
    return u.op is Ops.SHL and u.src[1].op is Ops.CONST


def affine(u: UOp) -> tuple[dict[UOp, int], int]:
    """Return the terms of an index expression as {node: factor}, and its constant part."""
    terms: dict[UOp, int] = {}
    const = 0
    stack = [(u, 1)]
    while stack:
        node, factor = stack.pop()
        op = node.op
        if op is Ops.CONST:
            const += factor * node.arg
        elif node.dtype is not dtypes.weakint:
            terms[node] = terms.get(node, 0) + factor
        elif op is Ops.ADD:
            stack.append((node.src[1], factor))
            stack.append((node.src[0], factor))
        elif op is Ops.MUL and node.src[1].op is Ops.CONST:
            stack.append((node.src[0], factor * node.src[1].arg))
        elif op is Ops.MUL and node.src[0].op is Ops.CONST:
            stack.append((node.src[1], factor * node.src[0].arg))
        elif op is Ops.SHL and node.src[1].op is Ops.CONST:
            stack.append((node.src[0], factor << node.src[1].arg))
        elif op is Ops.SUB:
            stack.append((node.src[1], -factor))
            stack.append((node.src[0], factor))
        elif op is Ops.NEG:
            stack.append((node.src[0], -factor))
        else:
            terms[node] = terms.get(node, 0) + factor
    return {t: f for t, f in terms.items() if f}, const


def from_affine(terms: dict[UOp, int], const: int) -> UOp:
    """Build the expression back."""
    total: UOp | None = None
    for term, factor in terms.items():
        scaled = (
            term if factor == 1 else UOp(Ops.MUL, dtypes.weakint, (term, UOp(Ops.CONST, dtypes.weakint, (), factor)))
        )
        total = scaled if total is None else UOp(Ops.ADD, dtypes.weakint, (total, scaled))
    if total is None or const:
        constant = UOp(Ops.CONST, dtypes.weakint, (), const)
        total = constant if total is None else UOp(Ops.ADD, dtypes.weakint, (total, constant))
    return total
