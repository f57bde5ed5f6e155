"""Variables: symbolic scalars with bounds, whose values are given when a kernel runs.

In:   names, bounds and values.
Out:  ``VariableMethods``, which UOp inherits: making and binding Variables, and the numbers that symbolic values are.
Why:  one compiled kernel serves all sizes within the bounds; a bound Variable carries its value along in the graph.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from tinygrad.dtype import AddrSpace, DType, Invalid, dtypes
from tinygrad.errors import ArgumentError, error_text, shown
from tinygrad.mixin.hooks import Hooks
from tinygrad.uop import Ops
from tinygrad.uop.records import ParamArg
from tinygrad.uop.sint import bound_value, sint, size_text, ssimplify, sym_infer

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_HINT_UNBOUND: Final = "a symbolic size has a value only when a kernel runs; make the program independent of it"
_HINT_BOUND: Final = (
    "a bound Variable stands for all of its values, so that one kernel serves them; where a number is needed, pad to "
    "the largest size, t.pad_to(t.max_shape), and mask; or take the value that the Variable has now: .unbind()[1], of "
    "an expression .unbind_all()[1]"
)


class VariableMethods(Hooks):
    """Methods of UOp on Variables and their values."""

    __slots__ = ()

    def _number(self, kind: DType) -> Any:
        u = self._uop
        if dtypes.is_float(u.dtype) != dtypes.is_float(kind) or (kind == dtypes.bool) != (u.dtype == dtypes.bool):
            raise AssertionError(
                f"a node of dtype {u.dtype.full_name} is no {kind.name.removeprefix('weak')}: {u.size_text()}"
            )
        simple = u.simplify()
        if simple.op is Ops.CONST:
            return simple.arg
        if simple.vmin == simple.vmax:
            return simple.vmin
        raise ValueError(
            error_text(
                "int" if kind is not dtypes.bool else "bool",
                f"eval failed to be a single number, range is {simple.vmin} to {simple.vmax} in {u.render()}",
                hint=_HINT_BOUND if any(v.is_bound_var for v in u.toposort()) else _HINT_UNBOUND,
            )
        )

    @property
    def val(self) -> Any:
        """The Python value of a constant."""
        u = self._uop
        if u.op is not Ops.CONST:
            raise AssertionError(f"val: expected a CONST, got {u.op}")
        return u.arg

    @staticmethod
    def invalid(dtype: DType = dtypes.weakint) -> UOp:
        """Return the constant that marks an undefined value."""
        return graph.UOp(Ops.CONST, dtype, (), Invalid)

    @staticmethod
    def variable(
        name: str,
        min_val: Any = None,
        max_val: Any = None,
        dtype: DType = dtypes.weakint,
        multiple_of: int = 1,
        param: bool = False,
    ) -> UOp:
        """Return a symbolic scalar with inclusive bounds; without bounds it is a wildcard of patterns.

        Equal arguments give the identical object.

        Raises:
            TypeError: The name is no string, or a bound no number.
            ValueError: The bounds make no interval, or ``multiple_of`` is not positive.
        """
        if not isinstance(name, str):
            raise TypeError(
                error_text("Variable", f"name is {shown(name)} of type {type(name).__name__}, expected str")
            )
        if multiple_of < 1:
            raise ValueError(error_text("Variable", f"multiple_of is {multiple_of} of {name!r}, expected >= 1"))
        plain = (int, float, graph.UOp)
        if any(b is not None and not isinstance(b, plain) and not hasattr(b, "__index__") for b in (min_val, max_val)):
            raise TypeError(
                error_text("Variable", f"bounds {shown(min_val)} to {shown(max_val)} of {name!r} are no ints")
            )
        if dtypes.is_int(dtype) and any(isinstance(b, float) and not b.is_integer() for b in (min_val, max_val)):
            found = f"bounds {min_val} to {max_val} of {name!r} are no ints"
            raise TypeError(error_text("Variable", found, hint="dtype=dtypes.float32 makes a Variable of floats"))
        if (min_val is None) != (max_val is None) or (min_val is not None and min_val > max_val):
            raise ValueError(
                error_text("Variable", f"bounds {min_val} to {max_val} of {name!r} make no interval", rule="min <= max")
            )
        # Integers of numpy have a width, at which what is computed with bounds would wrap.
        low, high = (b if b is None or isinstance(b, plain) else operator.index(b) for b in (min_val, max_val))
        limits = None if low is None else (low, high)
        arg = ParamArg(-1, dtype, (), None, name, limits, multiple_of, AddrSpace.ALU)
        return graph.UOp(Ops.PARAM, dtype, (), arg)

    @property
    def expr(self) -> str:
        """Name of a Variable."""
        u = self._uop.without_after
        if not u.is_variable:
            raise AssertionError(f"expr: expected a Variable, got {u.op}")
        name: str = u.arg.name
        return name

    def bind(self, value: int) -> UOp:
        """Return this Variable with a value.

        Raises:
            AssertionError: The value is out of bounds, not a multiple, or the Variable has a value already.
        """
        u = self._uop
        if u.is_bound_var:
            name, bound = u.expr, u.unbind()[1]
            raise AssertionError(error_text("bind", f"Variable {name} is already bound, to {bound}",
                                            hint="keep the unbound Variable and bind that"))  # fmt: skip
        if not u.is_variable:
            raise AssertionError(error_text("bind", f"expected an unbound Variable, got {u.size_text()}"))
        given: Any = value  # programs without types pass anything
        if not hasattr(given, "__index__") or isinstance(given, (graph.UOp, type)):
            raise ArgumentError(error_text("bind", f"{shown(value)} of type {type(value).__name__} is no int",
                                           {"Variable": u.expr}))  # fmt: skip
        value = operator.index(value)
        low, high = u.arg.vmin_vmax
        if not low <= value <= high:
            raise AssertionError(error_text("bind", f"{value} is out of range for Variable {u.expr}",
                                            rule=f"{low} <= value <= {high}"))  # fmt: skip
        if value % u.arg.multiple_of:
            raise AssertionError(error_text("bind", f"{value} does not fit Variable {u.expr}",
                                            rule=f"value is a multiple of {u.arg.multiple_of}"))  # fmt: skip
        return graph.UOp(
            Ops.AFTER, u.dtype, (u, graph.UOp(Ops.STORE, dtypes.void, (u, graph.UOp.const(value, u.dtype))))
        )

    def unbind(self) -> tuple[UOp, int]:
        """Return (Variable, value) of a bound Variable."""
        u = self._uop
        if not u.is_bound_var:
            raise AssertionError(error_text("unbind", f"expected a bound Variable, got {u.size_text()}",
                                            hint="bind it first: v.bind(3)"))  # fmt: skip
        return u.src[0], u.src[1].src[1].arg

    def unbind_all(self) -> tuple[UOp, dict[UOp, int]]:
        """Return the graph with bound Variables replaced by plain ones, and their values."""
        whole = self._uop
        bound = [u for u in whole.toposort() if u.is_bound_var]
        values: dict[UOp, int] = {}
        for u in bound:
            var, value = u.unbind()
            if values.setdefault(var, value) != value:
                raise RuntimeError(f"bind mismatch on {var.expr}: {values[var]} and {value} in one graph")
        return whole.substitute({u: u.src[0] for u in bound}), values

    def variables(self) -> list[UOp]:
        """Return the Variables of the graph, sorted by name."""
        return sorted({u for u in self._uop.toposort() if u.is_variable}, key=lambda v: v.expr)

    def bound_value(self) -> int | None:
        """Return the value that this symbolic int has now; None if one of its Variables has no value."""
        return bound_value(self._uop)

    def size_text(self) -> str:
        """Return a symbolic int as messages show it, such as ``i=3``; of another value its shape and dtype."""
        u = self._uop
        if u._shape == () and u.device is None and dtypes.is_int(u.dtype):
            return size_text(u)
        return f"a node {u.op.name} of shape {shown(u._shape)} and dtype {u.dtype.full_name}"

    @property
    def as_shape(self) -> tuple[sint, ...]:
        """The shape that a node of sizes stands for, such as ``UOp.const((2, 3))``: ints where they are known.

        Raises:
            RuntimeError: This is neither a STACK of numbers nor a number.
        """
        u = self._uop
        sizes = u.src if u.op is Ops.STACK else (u,)
        if any(s._shape != () or not dtypes.is_int(s.dtype) for s in sizes):
            raise RuntimeError(f"as_shape: {u.op} of dtype {u.dtype} is no list of sizes")
        return tuple(ssimplify(s) for s in sizes)

    def sym_infer(self, var_vals: dict[str, int]) -> int:
        """Evaluate with the given values of Variables."""
        return sym_infer(self._uop, var_vals)


from tinygrad.uop import ops as graph  # noqa: E402  in a circle: only methods use it, once they run
