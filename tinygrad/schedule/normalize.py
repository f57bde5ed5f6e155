"""Give a tensor graph a form that does not depend on which buffers it reads.

In:   a SINK over tensor nodes with real BUFFERs and bound Variables.
Out:  the same graph with BUFFERs numbered in order of appearance and Variables without their values, and both lists;
      constants are without what tells one from another for gradients.
Why:  two steps of a training loop build the same normalised node, so the second finds the first one's schedule.
"""

from __future__ import annotations

import itertools
from typing import Final

from tinygrad.record import record
from tinygrad.uop import Ops
from tinygrad.uop.ops import ParamArg, UOp
from tinygrad.uop.views import is_own_constant

LOCAL: Final = "local"
_SPREADING: Final = frozenset({Ops.MSTACK, Ops.ALLREDUCE})  # besides copies, what puts values on several devices


@record
class Normalized:
    """A graph without its buffers.

    Args:
        sink: The normalised SINK.
        buffers: The real BUFFER of each number.
        var_vals: Values of the bound Variables.
        nodes: Normalised node of every original node.
        spread: Whether there may be values over several devices.
    """

    sink: UOp
    buffers: list[UOp]
    var_vals: dict[str, int]
    nodes: dict[UOp, UOp]
    spread: bool = False


def normalize(sink: UOp) -> Normalized:
    """Return the normalised form of ``sink``.

    Raises:
        RuntimeError: One Variable is bound to two values.
    """
    new: dict[UOp, UOp] = {}
    found: list[UOp] = []
    var_vals: dict[str, int] = {}
    outside = sink.toposort(enter_calls=False)
    locals_ = itertools.count()
    spread = False
    for u in sink.toposort():
        if u.op is Ops.BUFFER and u.arg.device is not None:  # scratch memory of kernels has no device
            # What only the body of a FUNCTION knows is storage of this one run, like any intermediate result.
            name, slot = ("given", len(found)) if u in outside else (LOCAL, next(locals_))
            arg = ParamArg(slot, u.dtype, u.arg.shape, u.arg.device, name=name, axis=u.arg.axis)
            new[u] = UOp(Ops.BUFFER, u.dtype, (), arg)
            spread = spread or isinstance(arg.device, tuple)
            if name != LOCAL:
                found.append(u)
            continue
        spread = spread or u.op in _SPREADING or (u.op is Ops.COPY and not isinstance(u.arg, str))
        src = tuple([new[s] for s in u.src])
        if u.op is Ops.AFTER and u.is_bound_var:
            var, value = u.unbind()
            if var_vals.setdefault(var.expr, value) != value:
                raise RuntimeError(
                    f"bind mismatch on {var.expr}: bound to {var_vals[var.expr]} and {value} in one schedule"
                )
            new[u] = src[0]
            continue
        if is_own_constant(u):
            new[u] = src[0]
            continue
        new[u] = u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
    return Normalized(new[sink], found, var_vals, new, spread)
