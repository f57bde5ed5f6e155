"""Methods of nodes that ask about integers: factors, exact quotients, constant parts.

In:   index arithmetic (weakint scalars; other nodes get the careful answer).
Out:  numbers and nodes; None where nothing is known for sure.
Why:  alignment, tiling and bounds checks are decided by divisibility.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes
from tinygrad.mixin.hooks import Hooks
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


class IntegerMethods(Hooks):
    """Integer methods of UOp."""

    __slots__ = ()

    def overflows(self, dtype: DType) -> bool:
        """Whether the bounds exceed those of ``dtype``."""
        u = self._uop
        return bool(u.vmin < dtype.min or u.vmax > dtype.max)

    def const_factor(self) -> int:
        """Return the largest integer that is known to divide every value; 0 for the constant 0.

        Example:
            >>> from tinygrad.uop.ops import UOp
            >>> (UOp.variable("a", 0, 9) * 6 + 4).const_factor()
            2
        """
        from tinygrad.uop.affine import linear

        u = self._uop
        if not dtypes.is_int(u.dtype):
            return 1
        if u.op is Ops.CONST:
            return abs(int(u.arg))
        terms, constant = linear(u)
        return math.gcd(constant, *(c * _multiple(t) for t, c in terms.items()))

    def divides(self, v: int) -> UOp | None:
        """Return the exact quotient by ``v``, or None if v is not known to divide every value."""
        from tinygrad.uop.affine import build, linear

        u = self._uop
        if v == 1:
            return u
        if u.dtype is not dtypes.weakint or v == 0:
            return None
        terms, constant = linear(u)
        if constant % v or any(c % v for c in terms.values()):
            return None
        return build({t: c // v for t, c in terms.items()}, constant // v)

    def divide_exact(self, v: int | UOp) -> UOp | None:
        """Return the exact quotient by a number or node, or None if it is not known to divide every value."""
        from tinygrad.uop.affine import build
        from tinygrad.uop.divmod import split_by

        u = self._uop
        if isinstance(v, int) or v.op is Ops.CONST:
            return u.divides(v if isinstance(v, int) else v.arg)
        if u is v:
            return u.const_like(1)
        if u.dtype is not dtypes.weakint or v.dtype is not dtypes.weakint:
            return None
        quotient, number, rest, constant = split_by(u, v)
        return None if rest or constant else build(quotient, number)

    @staticmethod
    def gcd(*uops: UOp) -> UOp:
        """Return a node that divides all of ``uops``: their common constant factor."""
        return uops[0].const_like(math.gcd(*(u.const_factor() for u in uops)))

    def pop_const(self, op: Ops = Ops.ADD) -> tuple[UOp, Any]:
        """Return (node without its constant, constant) of ``x op constant``; the neutral value if there is none."""
        from tinygrad.uop.alu import identity_element

        u = self._uop
        if u.op is op and u.src[1].op is Ops.CONST:
            return u.src[0], u.src[1].arg
        return u, identity_element(op, u.dtype)

    def vconst_like(self, v: Any) -> UOp:
        """Return a constant of this node's dtype and shape."""
        return self._uop.const_like(v)

    @property
    def tuplize(self) -> tuple[Any, ...]:
        """A tuple by which nodes can be sorted, the same in every process."""
        u = self._uop
        return int(u.op), u.dtype._order, u.key

    def pyrender(self) -> str:
        """Return Python statements that rebuild the graph, the root as ``ast``."""
        from tinygrad.uop.render import pyrender

        return pyrender(self._uop)

    def argstr(self) -> str:
        """Return the argument as short text."""
        from tinygrad.uop.render import argstr

        return argstr(self._uop)

    def tagstr(self) -> str:
        """Return the tag as text; empty if there is none."""
        return "" if self._uop.tag is None else repr(self._uop.tag)


def _multiple(t: UOp) -> int:
    if t.op is Ops.PARAM:
        return int(t.arg.multiple_of or 1)
    return math.prod(s.const_factor() for s in t.src) if t.op is Ops.MUL else 1
