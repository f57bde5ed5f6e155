"""Arithmetic on nodes for lowering rules: each operator makes exactly one node, with constants of the node's own dtype.

In:   nodes and Python numbers.
Out:  ``Value`` objects; ``.u`` is the node.
Why:  the operators of UOp promote, broadcast and fold as a user wants; a lowering rule wants the operation that it
      names.
"""

from __future__ import annotations

from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Value:
    """A node with plain operators: ``a + b`` is ADD of two values of one dtype, and nothing else happens."""

    __slots__ = ("u",)

    def __init__(self, u: UOp) -> None:
        self.u = u

    @property
    def dtype(self) -> DType:
        """Dtype of the node."""
        return self.u.dtype

    def of(self, x: Value | UOp | float) -> UOp:
        """Return an operand as a node; numbers become constants of this value's dtype."""
        if isinstance(x, Value):
            return x.u
        return x if isinstance(x, UOp) else UOp(Ops.CONST, self.dtype, (), x)

    def _binary(self, op: Ops, x: Value | UOp | float) -> Value:
        return Value(UOp(op, self.dtype, (self.u, self.of(x))))

    def _compare(self, op: Ops, a: UOp, b: UOp) -> Value:
        return Value(UOp(op, dtypes.bool, (a, b)))

    def __add__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.ADD, x)

    def __sub__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.SUB, x)

    def __mul__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.MUL, x)

    def __and__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.AND, x)

    def __or__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.OR, x)

    def __xor__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.XOR, x)

    def __lshift__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.SHL, x)

    def __rshift__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.SHR, x)

    def __truediv__(self, x: Value | UOp | float) -> Value:
        return self._binary(Ops.FDIV, x)

    def cdiv(self, x: Value | UOp | float) -> Value:
        """Quotient toward zero."""
        return self._binary(Ops.CDIV, x)

    def cmod(self, x: Value | UOp | float) -> Value:
        """Remainder of ``cdiv``."""
        return self._binary(Ops.CMOD, x)

    def __lt__(self, x: Value | UOp | float) -> Value:
        return self._compare(Ops.CMPLT, self.u, self.of(x))

    def __gt__(self, x: Value | UOp | float) -> Value:
        return self._compare(Ops.CMPLT, self.of(x), self.u)

    def ne(self, x: Value | UOp | float) -> Value:
        """Whether different (or NaN)."""
        return self._compare(Ops.CMPNE, self.u, self.of(x))

    def eq(self, x: Value | UOp | float) -> Value:
        """Whether equal."""
        return self._compare(Ops.CMPEQ, self.u, self.of(x))

    def where(self, x: Value | UOp | float, y: Value | UOp | float) -> Value:
        """Select ``x`` where this (a bool) holds, else ``y``; one of them must be a value, which gives the dtype."""
        like = x if isinstance(x, Value) else y if isinstance(y, Value) else None
        assert like is not None
        return Value(UOp(Ops.WHERE, like.dtype, (self.u, like.of(x), like.of(y))))

    def unary(self, op: Ops) -> Value:
        """Return ``op`` of this value."""
        return Value(UOp(op, self.dtype, (self.u,)))

    def trunc(self) -> Value:
        """Round toward zero."""
        return self.unary(Ops.TRUNC)

    def cast(self, dtype: DType) -> Value:
        """Convert."""
        return self if dtype is self.dtype else Value(UOp(Ops.CAST, dtype, (self.u,), dtype))

    def bits(self, dtype: DType) -> Value:
        """Reinterpret as ``dtype`` of the same size."""
        return self if dtype is self.dtype else Value(UOp(Ops.BITCAST, dtype, (self.u,), dtype))

    def const(self, x: Any) -> Value:
        """Return a constant of this value's dtype."""
        return Value(self.of(x))


def polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    """Return c0 + x * (c1 + x * (c2 + ...)) by Horner's rule."""
    value = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        value = (value + coefficient) * x
    return value + coefficients[0]
