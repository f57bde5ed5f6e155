"""Proof that a kernel's accesses stay inside their storage, with the z3 solver (an optional package).

In:   a kernel's graph.
Out:  nothing, or a RuntimeError with an access that leaves its storage and the loop values at which it does.
Why:  bounds arithmetic cannot decide every index, and an access out of bounds corrupts memory silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


def _trunc_div(z3: Any, x: Any, y: Any) -> Any:
    # z3's integer division rounds so that the remainder is not negative
    size = z3.If(x < 0, -x, x) / z3.If(y < 0, -y, y)
    return z3.If((x < 0) == (y < 0), size, -size)


def _floor_div(z3: Any, x: Any, y: Any) -> Any:
    return z3.If(y > 0, x / y, (-x) / (-y))


def _operations(z3: Any) -> dict[Ops, Callable[..., Any]]:
    return {
        Ops.ADD: lambda x, y: x + y,
        Ops.SUB: lambda x, y: x - y,
        Ops.MUL: lambda x, y: z3.And(x, y) if z3.is_bool(x) else x * y,
        Ops.NEG: lambda x: -x,
        Ops.MAX: lambda x, y: z3.If(x > y, x, y),
        Ops.FLOORDIV: lambda x, y: _floor_div(z3, x, y),
        Ops.FLOORMOD: lambda x, y: x - _floor_div(z3, x, y) * y,
        Ops.CDIV: lambda x, y: _trunc_div(z3, x, y),
        Ops.CMOD: lambda x, y: x - _trunc_div(z3, x, y) * y,
        Ops.CMPLT: lambda x, y: x < y,
        Ops.CMPNE: lambda x, y: x != y,
        Ops.CMPEQ: lambda x, y: x == y,
        Ops.WHERE: z3.If,
        Ops.AND: z3.And,
        Ops.OR: z3.Or,
        Ops.XOR: z3.Xor,
    }


def uops_to_z3(solver: Any, *uops: UOp) -> list[Any]:
    """Return z3 expressions of integer and bool nodes; bounds of what they depend on are added to ``solver``.

    An operation that z3 cannot follow (a loaded value, bits, floats) becomes an unknown within the node's bounds.
    """
    import z3

    operations = _operations(z3)
    done: dict[UOp, Any] = {}
    for root in uops:
        for u in root.toposort(gate=lambda n: n not in done and n.op not in (Ops.INDEX, Ops.LOAD)):
            done[u] = _expression(z3, solver, u, done, operations)
        if root not in done:
            done[root] = _unknown(z3, solver, root, len(done))
    return [done[u] for u in uops]


def _expression(z3: Any, solver: Any, u: UOp, done: dict[UOp, Any], operations: dict[Ops, Any]) -> Any:
    if u.op is Ops.CONST and isinstance(u.arg, int):
        return z3.BoolVal(u.arg) if u.dtype is dtypes.bool else z3.IntVal(u.arg)
    if u.op in (Ops.RANGE, Ops.SPECIAL):
        unknown = z3.Int(f"{u.op.name.lower()}_{u.arg}_{len(done)}")
        solver.add(unknown >= 0, unknown < done[u.src[0]])
        return unknown
    operands = [done.get(s) for s in u.src]
    if u.op is Ops.CAST and operands[0] is not None and dtypes.is_int(u.dtype) and _fits(u):
        return z3.If(operands[0], 1, 0) if u.src[0].dtype is dtypes.bool else operands[0]
    bits = u.op in (Ops.AND, Ops.OR, Ops.XOR) and u.dtype is not dtypes.bool
    if u.op in operations and all(x is not None for x in operands) and not bits and not dtypes.is_float(u.dtype):
        return operations[u.op](*operands)
    return _unknown(z3, solver, u, len(done))


def _fits(u: UOp) -> bool:
    # a conversion that may wrap is an unknown value
    x = u.src[0]
    return x.dtype is dtypes.bool or bool(u.dtype.min <= x.vmin and x.vmax <= u.dtype.max)


def _unknown(z3: Any, solver: Any, u: UOp, number: int) -> Any:
    if dtypes.is_float(u.dtype) or u.dtype is dtypes.void:
        return None
    if u.dtype is dtypes.bool:
        return z3.Bool(f"unknown_{number}")
    name = u.arg.name if u.op is Ops.PARAM and u.arg.name else f"unknown_{number}"
    unknown = z3.Int(name)
    solver.add(unknown >= int(u.vmin), unknown <= int(u.vmax))
    return unknown


def validate_index(u: UOp, milliseconds: int = 5000) -> str | None:
    """Return how an INDEX can leave its storage, or None if it cannot (or z3 does not decide in time)."""
    import z3

    base = u.src[0]
    while base.op is Ops.AFTER:
        base = base.src[0]
    size = base.arg.shape[0] if base.op in (Ops.PARAM, Ops.BUFFER) and base.arg.shape else None
    if not isinstance(size, int):
        return None
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    index, *gate = uops_to_z3(solver, *u.src[1:])
    solver.add(z3.Or(index < 0, index >= size), *gate)
    if solver.check() != z3.sat:
        return None
    return f"{u.src[1].render(simplify=False)} leaves [0, {size}) at {solver.model()}"


def validate_kernel(sink: UOp) -> None:
    """Check every access of a kernel.

    Raises:
        RuntimeError: An access can leave its storage.
    """
    for u in sink.toposort(enter_calls=False):
        if u.op is Ops.INDEX and u.src[0].op is not Ops.STACK and (fault := validate_index(u)) is not None:
            raise RuntimeError(f"UOp verification failed: access out of bounds: {fault}")
