"""Division: quotients, rounded quotients and remainders.

In:   two values, and the operations FDIV, CDIV, FLOORDIV, CMOD, FLOORMOD.
Out:  nodes. A remainder of floats is exact, whatever the size of the quotient; a quotient is rounded once.
Why:  what is rounded down and what has which sign is a rule of its own, the same as that of numpy and Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_float
from tinygrad.mixin.operators import NARROW_FLOATS, side_of_range
from tinygrad.mixin.rounding import RoundingMixin
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self


class DivisionMixin(RoundingMixin):
    """Division, and the remainder of it."""

    __slots__ = ()

    def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """Quotient; also ``/``. Integers give the default float.

        Args:
            x: The other operand.
            reverse: Divide ``x`` by self.
            rounding_mode: None, ``trunc`` (toward zero, as C) or ``floor`` (down, as Python); both keep integers. Of
                floats, ``floor`` rounds the exact quotient, so it agrees with ``%``; ``trunc`` rounds ``self / x``.

        Raises:
            RuntimeError: Another rounding mode.
            OverflowError: Integers are kept, and their dtype does not hold the int ``x``.

        Example:
            >>> Tensor([7, -7]).div(2).tolist()
            [3.5, -3.5]
            >>> Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
            [3, -3]
            >>> (Tensor([7, -7]) // 2).tolist()
            [3, -4]
        """
        if rounding_mode not in {None, "trunc", "floor"}:
            raise RuntimeError(f"div: rounding_mode {rounding_mode!r}; expected None, 'trunc' or 'floor'")
        if rounding_mode is None and type(x) is int and side_of_range(self.dtype, x):
            # The quotient is a float, so the number need not fit the integers.
            return self.cast(least_upper_float(self.dtype)).div(x, reverse)
        lhs, rhs = self._operands(x, reverse, "div")
        if rounding_mode is not None and not dtypes.is_float(lhs.dtype):
            lhs, rhs = lhs._integer(), rhs._integer()
            return lhs.alu(Ops.CDIV if rounding_mode == "trunc" else Ops.FLOORDIV, rhs)
        if rounding_mode == "floor":
            return lhs._floor_quotient(rhs)
        floating = least_upper_float(lhs.dtype)
        quotient = lhs.cast(floating).alu(Ops.FDIV, rhs.cast(floating))
        return quotient.trunc() if rounding_mode == "trunc" else quotient

    def mod(self, x: Any, reverse: bool = False) -> Self:
        """Remainder with the sign of the divisor, as Python; also ``%``.

        Of floats it is exact, but for the one rounding where a remainder of the other sign is moved by the divisor;
        NaN for an infinite dividend or a divisor of 0.

        Example:
            >>> Tensor([7, -7]).mod(3).tolist()
            [1, 2]
            >>> (Tensor([2.0**100, -0.25]) % 3).tolist()
            [1.0, 2.75]
        """
        lhs, rhs = self._operands(x, reverse, "mod")
        if not dtypes.is_float(lhs.dtype):
            return lhs._integer().alu(Ops.FLOORMOD, rhs._integer())
        rest = lhs.alu(Ops.CMOD, rhs)
        signed_zero = (rhs < 0).where(-0.0, 0.0)
        result = rest.eq(0).where(signed_zero, rest._signs_differ(rhs).where(rest + rhs, rest))
        return result._with_gradient(lhs, result.const_like(1), rhs, lhs._floor_quotient(rhs) * -1)

    def fmod(self, x: Any) -> Self:
        """Remainder with the sign of the dividend, as C. Of floats it is exact; NaN as in ``mod``.

        Example:
            >>> Tensor([7, -7]).fmod(3).tolist()
            [1, -1]
        """
        lhs, rhs = self._operands(x, op="fmod")
        return lhs._integer().alu(Ops.CMOD, rhs._integer())

    def _floor_quotient(self, divisor: Self) -> Self:
        """Return the exact quotient of floats rounded down, then to the dtype; it has no gradient."""
        wide = dtypes.float32 if self.dtype in NARROW_FLOATS else self.dtype
        x, y = self.cast(wide), divisor.cast(wide)
        rest, quotient = x.alu(Ops.CMOD, y), x.alu(Ops.FDIV, y)
        # Without the remainder an integer is left, but for rounding: the nearest one is meant.
        whole = (x - rest).alu(Ops.FDIV, y)
        whole = rest._signs_differ(y).where(whole - 1, whole)
        below = whole.floor()
        nearest = (whole - below > 0.5).where(below + 1, below)
        signed = nearest.eq(0).where(quotient * 0, nearest)
        return y.eq(0).where(quotient, signed).cast(self.dtype).detach()

    def _signs_differ(self, divisor: Self) -> Self:
        """Whether a remainder is on the other side of 0 than the divisor."""
        return self.ne(0) & (self < 0).ne(divisor < 0)

    def _integer(self) -> Self:
        """Return a bool as an integer: division and remainder are no logical operations."""
        return self.cast(dtypes.weakint) if self.dtype is dtypes.bool else self
