"""Symbolic integers: sizes and offsets that are an int or a UOp.

In:   ints and index UOps over Variables and ranges.
Out:  decisions (``resolve``), extremes, evaluation with given values (``sym_infer``), text.
Why:  code on shapes is written once, for ints and for sizes that are known only at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from tinygrad.dtype import dtypes
from tinygrad.helpers import strip_parens
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

sint: TypeAlias = Union[int, "UOp"]


def resolve(cond: bool | UOp, default: bool = True) -> bool:
    """Return the truth of a condition if its bounds decide it, else ``default``.

    Raises:
        AssertionError: ``cond`` is not a bool.
    """
    if isinstance(cond, bool):
        return cond
    if not hasattr(cond, "vmin") or cond.dtype != dtypes.bool:
        raise AssertionError(f"resolve: expected a bool condition, got {cond!r}")
    simple = cond.simplify()
    return bool(simple.vmin) if simple.vmin == simple.vmax else default


def _extreme(values: Sequence[sint], largest: bool) -> sint:
    best = values[0]
    for v in values[1:]:
        if isinstance(best, int) and isinstance(v, int):
            best = max(best, v) if largest else min(best, v)
            continue
        a, b = (best, v) if largest else (v, best)
        a_min, a_max = bounds(a)
        b_min, b_max = bounds(b)
        if a_min >= b_max:
            best = a if largest else b
        elif b_min >= a_max:
            best = b if largest else a
        else:
            x, y = sint_to_uop(best), sint_to_uop(v)
            best = x.maximum(y) if largest else x.minimum(y)
    return best


def smax(*values: Any) -> sint:
    """Return the largest of ints and symbolic ints (given one by one or as one sequence)."""
    return _extreme(_flat(values), largest=True)


def smin(*values: Any) -> sint:
    """Return the smallest of ints and symbolic ints (given one by one or as one sequence)."""
    return _extreme(_flat(values), largest=False)


def _flat(values: tuple[Any, ...]) -> Sequence[sint]:
    return values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values


def bounds(x: sint) -> tuple[int, int]:
    """Return the inclusive bounds of a symbolic int."""
    return (x, x) if isinstance(x, int) else (x.vmin, x.vmax)


def sint_to_uop(x: sint, dtype: Any = dtypes.weakint) -> UOp:
    """Return ``x`` as a node."""
    from tinygrad.uop.ops import UOp

    return UOp.const(x, dtype) if isinstance(x, int) else x


def ssimplify(x: Any) -> Any:
    """Simplify a symbolic int; a Python number when it is constant."""
    return x.ssimplify() if hasattr(x, "ssimplify") else x


def sint_simplify(x: sint) -> sint:
    """Like ``ssimplify``, skipping the common case of a plain int."""
    return x if isinstance(x, int) else x.ssimplify()


def to_max_shape(shape: Sequence[sint]) -> tuple[int, ...]:
    """Replace symbolic sizes by their maximum."""
    return tuple(bounds(s)[1] for s in shape)


def sym_infer(x: sint, var_vals: Mapping[str, int]) -> int:
    """Evaluate a symbolic int with the given values of its Variables.

    Raises:
        TypeError: A Variable of ``x`` has no value.
    """
    if isinstance(x, int):
        return x
    from tinygrad.uop.alu import exec_alu

    values: dict[UOp, Any] = {}
    for u in x.toposort():
        if u.op is Ops.CONST:
            values[u] = u.arg
        elif u.is_variable:
            if u.expr not in var_vals:
                raise TypeError(f"no value for Variable {u.expr}; given {sorted(var_vals)}")
            values[u] = var_vals[u.expr]
        elif u.op is Ops.AFTER:
            values[u] = values[u.src[0]]
        elif u.op is Ops.STORE:
            values[u] = values[u.src[1]]
        elif u.op is Ops.CAST:
            values[u] = u.dtype.const(values[u.src[0]])
        else:
            values[u] = exec_alu(u.op, u.dtype, tuple(values[s] for s in u.src))
    return int(values[x])


def bound_value(x: sint) -> int | None:
    """Return the value that a symbolic int has now; None if one of its Variables has no value."""
    if isinstance(x, int):
        return x
    if not x.op_in_backward_slice_with_self(Ops.PARAM):
        return int(x.vmin) if x.vmin == x.vmax else None
    values: dict[str, int] = {}
    free: set[str] = set()
    for u in x.toposort():
        if u.is_bound_var:
            var, value = u.unbind()
            values[var.expr] = value
        elif u.is_variable:
            free.add(u.expr)
        elif u.op in (Ops.RANGE, Ops.SPECIAL, Ops.INDEX, Ops.LOAD):
            return None
    return None if free - values.keys() else sym_infer(x, values)


def bind_mismatch(*shapes: Sequence[Any]) -> str | None:
    """Return what is wrong if one Variable has two values in these shapes, else None."""
    seen: dict[str, int] = {}
    for size in (s for shape in shapes for s in shape if not isinstance(s, int)):
        for u in size.toposort():
            if u.is_bound_var:
                var, value = u.unbind()
                if seen.setdefault(var.expr, value) != value:
                    return f"bind mismatch on {var.expr}: bound to {seen[var.expr]} and {value}"
    return None


def size_text(x: sint) -> str:
    """Return a symbolic int as messages show it: ``i`` or, where its Variables have values, ``i=3``."""
    if isinstance(x, int):
        return str(x)
    known, text = bound_value(x), strip_parens(x.render())
    return text if known is None else f"{text}={known}"


def srender(x: sint) -> str:
    """Return a symbolic int as text."""
    return str(x) if isinstance(x, int) else x.render()
