"""Operators and comparisons: everything between two values, element by element, but division (``division``).

In:   ``alu(op, *src)``, ``cast`` and ``ufix``.
Out:  elementwise nodes whose operands have one dtype. Shapes broadcast by numpy's rule, checked when the node is built.
Why:  a mistake in shapes or dtypes shows at the line that makes it, not when the graph runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.dtype_lattice import require_fit
from tinygrad.errors import BindError, DTypeError, ShapeError, error_text, shown
from tinygrad.mixin.creation import CreationMixin
from tinygrad.mixin.hooks import check_same_device
from tinygrad.mixin.python_operators import PythonOperators
from tinygrad.uop import Ops
from tinygrad.uop.infer import broadcast_shape

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.dtype import DType

# On bool, sum and product are the logical operations (numpy does the same).
_BOOL_OPS = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}
NARROW_FLOATS = frozenset({dtypes.float16, dtypes.bfloat16, *dtypes.fp8s})  # computed in float32, rounded at the end
_PLAIN_NUMBERS = frozenset({bool, int, float})
_SMALL = 1 << 31  # integers below take the dtype of an integer operand; larger ones may widen it
# A number that wraps to the dtype gives the same as the wrapped result of the number itself.
_WRAPPING = frozenset({Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR, "sub", "pow"})
_MAX_CHAIN = 16  # largest integer exponent that is multiplied out; beyond it the rounding errors add up


class OperatorMixin(PythonOperators, CreationMixin):
    """Arithmetic, bitwise operators, comparisons, selection."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def sqrt(self) -> Self: ...  # noqa: D102
        def reciprocal(self) -> Self: ...  # noqa: D102
        def logical_not(self) -> Self: ...  # noqa: D102
        def _with_gradient(self, *pairs: Self) -> Self: ...

    # ---- the two entries all binary operators go through -----------------------------------------------------------

    def _binop(self, op: Ops, x: Any, reverse: bool = False) -> Self:
        """Apply ``op`` to self and ``x`` (a scalar, an array or one of us), promoted to one dtype."""
        lhs, rhs = self._operands(x, reverse, op)
        if lhs.dtype is dtypes.bool:
            op = _BOOL_OPS.get(op, op)
        return lhs.alu(op, rhs)

    def _operands(self, x: Any, reverse: bool = False, op: Ops | str = "operator") -> tuple[Self, Self]:
        """Return both operands in their common dtype, in order.

        Raises:
            ShapeError: The shapes do not broadcast.
            OverflowError: The integer dtype does not hold the int ``x``, and the operation needs its value.
        """
        kind = type(x)
        if kind in _PLAIN_NUMBERS and (
            self.dtype.kind == "float" or (kind is int and self.dtype.kind != "bool" and _takes(self.dtype, x, op))
        ):
            # The common case, in one step: the number takes this dtype.
            number = self._wrap_uop(self._uop.const(x, self.dtype))
            return (number, self) if reverse else (self, number)
        lhs, rhs = self, self.ufix(x)
        if lhs.dtype is not rhs.dtype:
            common = least_upper_dtype(lhs.dtype, rhs.dtype)
            lhs, rhs = lhs.cast(common), rhs.cast(common)
        if lhs.shape != rhs.shape:
            _check_broadcast(op, lhs, rhs)
        if lhs.device != rhs.device:
            check_same_device(_op_name(op), lhs, rhs)
        return (rhs, lhs) if reverse else (lhs, rhs)

    def _comparison(self, op: Ops, x: Any, reverse: bool = False) -> Self:
        """Compare with ``x``. Python ints are compared as they are, also those that the dtype does not hold."""
        side = side_of_range(self.dtype, x) if type(x) is int else 0
        if side:
            is_true = op is Ops.CMPNE or (op is Ops.CMPLT and (side < 0) is reverse)
            return self.alu(Ops.CMPEQ if is_true else Ops.CMPNE, self)
        return self._binop(op, x, reverse)

    # ---- arithmetic ------------------------------------------------------------------------------------------------

    def add(self, x: Any, reverse: bool = False, *, alpha: float = 1) -> Self:
        """Sum; also ``+``. With ``alpha``: self + alpha * x.

        Example:
            >>> Tensor([1, 2]).add(10).tolist()
            [11, 12]
        """
        if alpha != 1:
            return self.add(self.ufix(x) * alpha, reverse)
        return self._binop(Ops.ADD, x, reverse)

    def sub(self, x: Any, reverse: bool = False, *, alpha: float = 1) -> Self:
        """Difference; also ``-``. With ``alpha``: self - alpha * x.

        Example:
            >>> Tensor([1, 2]).sub(10).tolist()
            [-9, -8]
            >>> (10 - Tensor([1, 2])).tolist()
            [9, 8]
        """
        if alpha != 1:
            return self.sub(self.ufix(x) * alpha, reverse)
        if isinstance(x, (int, float)) and not reverse and not _may_widen(self.dtype, x):
            # An int has no -0, and -0.0 - 0 is -0.0.
            is_zero = isinstance(x, int) and not x and dtypes.is_float(self.dtype)
            return self.add(-0.0 if is_zero else -x)
        # Of a large int, -x may have another dtype than x: uint32 holds 2**31, not its negative.
        lhs, rhs = self._operands(x, reverse, "sub")
        return lhs + rhs * -1

    def mul(self, x: Any, reverse: bool = False) -> Self:
        """Product; also ``*``.

        Example:
            >>> Tensor([1, 2]).mul(Tensor([3, 4])).tolist()
            [3, 8]
        """
        return self._binop(Ops.MUL, x, reverse)

    def pow(self, x: Any, reverse: bool = False) -> Self:
        """Power; also ``**``. An integer base stays integer with a non-negative integer exponent; 0**0 is 1.

        Constant exponents up to 16 that are integers or halves are multiplied out: the error is at most
        abs(exponent) + 1 ulp. Others have 0.6 ulp in float32, 1.2 ulp in float64. Where an
        exponent that is multiplied out is negative, a result below the smallest normal number may be 0, as in torch:
        in float32 1e20**-2 is 1 / inf.

        Negative exponents in an integer tensor are no error, as in torch: the power is rounded toward 0, so it is 0
        unless the base is 1 or -1.

        Raises:
            RuntimeError: An integer base with a negative integer constant as exponent.

        Example:
            >>> Tensor([2, 3]).pow(2).tolist()
            [4, 9]
            >>> (2 ** Tensor([3.0, -1.0])).tolist()
            [8.0, 0.5]
        """
        if isinstance(x, (int, float)) and not reverse:
            return self._pow_const(x)
        base, exponent = self._operands(x, reverse, "pow")
        if dtypes.is_float(base.dtype):
            return base.alu(Ops.POW, exponent)
        return base._integer_pow(exponent)

    def _pow_const(self, exponent: int | float) -> Self:
        if not dtypes.is_float(self.dtype):
            if isinstance(exponent, float):
                return self.cast(least_upper_dtype(self.dtype, dtypes.weakfloat))._pow_const(exponent)
            if exponent < 0:
                raise RuntimeError(error_text("pow", f"base needs to be float for the negative exponent {exponent}",
                                              {"base": self}, hint="cast the base: x.float() ** exponent"))  # fmt: skip
        if self.dtype in NARROW_FLOATS:
            return self.cast(dtypes.float32)._pow_const(exponent).cast(self.dtype)
        whole = float(exponent).is_integer()
        if whole and (abs(exponent) <= _MAX_CHAIN or not dtypes.is_float(self.dtype)):
            power = self._repeated_product(int(abs(exponent)))
        elif float(2 * exponent).is_integer() and abs(exponent) < _MAX_CHAIN:
            # n + 1/2: exact products and one square root.
            power = self.sqrt()
            if abs(exponent) > 1:
                power = self._repeated_product(int(abs(exponent) - 0.5)) * power
                # The root is -0 at -0 and NaN at -inf, where these powers are 0 and inf.
                power = self.eq(-math.inf).where(math.inf, self.eq(0).where(0.0, power))
        else:
            return self.alu(Ops.POW, self.ufix(exponent).cast(self.dtype))
        # The gradients of the steps are 0 * inf at 0 and at infinity, where that of the whole is not.
        if exponent < 0:
            inverse = power.reciprocal()
            if whole:
                return inverse._with_gradient(self, exponent * inverse * self.reciprocal())
            # The power below is positive at -0 and 0 at -inf, whatever the root above is there.
            slope = exponent * (inverse * self.reciprocal()).abs()
            return inverse._with_gradient(self, self.eq(-math.inf).where(-0.0, slope))
        if not whole and exponent > 1:
            return power._with_gradient(self, exponent * self._pow_const(exponent - 1))
        return power

    def _repeated_product(self, exponent: int) -> Self:
        """Return the integer power by squaring."""
        if exponent == 0:
            one = self.const_like(1)
            return one._with_gradient(self, self.const_like(0)) if dtypes.is_float(self.dtype) else one
        result, square = None, self
        while True:
            if exponent & 1:
                result = square if result is None else result * square
            exponent >>= 1
            if not exponent:
                return result if result is not None else self
            square = square * square

    def _integer_pow(self, exponent: Self) -> Self:
        # Squaring, one bit of the exponent at a time. A negative exponent leaves only the powers of 1 and -1.
        wide = self.cast(least_upper_dtype(self.dtype, dtypes.weakint))
        exponent = exponent.cast(wide.dtype)
        bits = 31 if wide.dtype in dtypes.weaks else wide.dtype.bitsize - (0 if dtypes.is_unsigned(wide.dtype) else 1)
        result, square = wide.ufix(1).cast(wide.dtype), wide
        for bit in range(min(bits, 32)):
            result = (exponent & (1 << bit)).ne(0).where(result * square, result)
            square = square * square
        if dtypes.is_unsigned(wide.dtype):
            return result
        sign = (exponent & 1).ne(0).where(wide, wide * wide)
        return (exponent < 0).where((wide * wide).eq(1).where(sign, 0), result)

    def maximum(self, x: Any) -> Self:
        """Larger of the two; NaN if one is NaN. The gradient of ties is split in halves.

        Example:
            >>> Tensor([1, 5]).maximum(3).tolist()
            [3, 5]
        """
        return self._binop(Ops.MAX, _within(self.dtype, x, is_lower=True))

    def minimum(self, x: Any) -> Self:
        """Smaller of the two; NaN if one is NaN. The gradient of ties is split in halves.

        Example:
            >>> Tensor([1, 5]).minimum(3).tolist()
            [1, 3]
        """
        lhs, rhs = self._operands(_within(self.dtype, x, is_lower=False), op="minimum")
        return lhs._mirrored().maximum(rhs._mirrored())._mirrored()

    def _mirrored(self) -> Self:
        """Return an order-reversing image, its own inverse: exact for every value, the smallest integer included."""
        return self * -1 if dtypes.is_float(self.dtype) else self.bitwise_not()

    # ---- bits ------------------------------------------------------------------------------------------------------

    def _bitop(self, op: Ops, x: Any, reverse: bool) -> Self:
        lhs, rhs = self._operands(x, reverse, op)
        if dtypes.is_float(lhs.dtype):
            raise DTypeError(error_text(f"bitwise_{op.name.lower()}", f"operands must be int or bool, got {lhs.dtype}",
                                        {"left": self, "right": self.ufix(x)}))  # fmt: skip
        return lhs.alu(op, rhs)

    def bitwise_and(self, x: Any, reverse: bool = False) -> Self:
        """Bits set in both (logical and for bool); also ``&``.

        Example:
            >>> Tensor([12, 10]).bitwise_and(6).tolist()
            [4, 2]
        """
        return self._bitop(Ops.AND, x, reverse)

    def bitwise_or(self, x: Any, reverse: bool = False) -> Self:
        """Bits set in one of the two (logical or for bool); also ``|``.

        Example:
            >>> Tensor([12, 10]).bitwise_or(6).tolist()
            [14, 14]
        """
        return self._bitop(Ops.OR, x, reverse)

    def bitwise_xor(self, x: Any, reverse: bool = False) -> Self:
        """Bits set in exactly one of the two; also ``^``.

        Example:
            >>> Tensor([12, 10]).bitwise_xor(6).tolist()
            [10, 12]
        """
        return self._bitop(Ops.XOR, x, reverse)

    def bitwise_not(self) -> Self:
        """All bits inverted (logical not for bool); also ``~``.

        Example:
            >>> Tensor([0, 5]).bitwise_not().tolist()
            [-1, -6]
        """
        if dtypes.is_float(self.dtype):
            raise DTypeError(
                error_text("bitwise_not", f"the operand must be int or bool, got {self.dtype}", {"tensor": self})
            )
        return self.logical_not() if self.dtype is dtypes.bool else self ^ -1

    def _shift(self, op: Ops, x: Any, reverse: bool) -> Self:
        if type(x) is int and not reverse and self.dtype.bitsize <= 64 and not 0 <= x < self.dtype.bitsize:
            x = self.dtype.bitsize  # a count that the dtype may not hold
        if type(x) is int and reverse and op is Ops.SHR:  # a number that wraps may be moved up, but not down
            _takes(self.dtype, x, "rshift")
        other = self.ufix(x)
        value, count = (other, self) if reverse else (self, other)
        if not dtypes.is_int(value.dtype) or not dtypes.is_int(count.dtype):
            name, found = "lshift" if op is Ops.SHL else "rshift", f"{value.dtype} and {count.dtype}"
            operands = {"left": value, "right": count}
            raise DTypeError(error_text(name, f"shift operands must be int, got {found}", operands))
        if value.dtype is dtypes.weakint:
            value = value.cast(count.dtype)
        count = count.cast(value.dtype)
        if value.shape != count.shape:
            _check_broadcast("shift", value, count)
        return value.alu(op, count)

    def lshift(self, x: Any, reverse: bool = False) -> Self:
        """Bits moved up; also ``<<``. By the width or more, nothing is left; a negative count is a large one.

        Raises:
            DTypeError: An operand is not an int.

        Example:
            >>> Tensor([1, 3]).lshift(2).tolist()
            [4, 12]
        """
        return self._shift(Ops.SHL, x, reverse)

    def rshift(self, x: Any, reverse: bool = False) -> Self:
        """Bits moved down, the sign kept; also ``>>``. By the width or more, 0 or -1, the sign, is left.

        Raises:
            DTypeError: An operand is not an int.
            OverflowError: An int is moved by a tensor whose dtype does not hold it.

        Example:
            >>> Tensor([8, -8]).rshift(2).tolist()
            [2, -2]
        """
        return self._shift(Ops.SHR, x, reverse)

    # ---- comparisons: IEEE, so an ordered comparison with NaN is False ---------------------------------------------

    def eq(self, x: Any) -> Self:
        """Whether equal, as bool.

        Example:
            >>> Tensor([1, 2]).eq(Tensor([1, 3])).tolist()
            [True, False]
        """
        return self._comparison(Ops.CMPEQ, x)

    def ne(self, x: Any) -> Self:
        """Whether different, as bool.

        Example:
            >>> Tensor([1, 2]).ne(Tensor([1, 3])).tolist()
            [False, True]
        """
        return self._comparison(Ops.CMPNE, x)

    def _less_or_equal(self, x: Any, reverse: bool) -> Self:
        if type(x) is int and side_of_range(self.dtype, x):
            return self._comparison(Ops.CMPLT, x, reverse)
        lhs, rhs = self._operands(x, reverse, "<=")
        if not dtypes.is_float(lhs.dtype):
            return rhs.alu(Ops.CMPLT, lhs).logical_not()
        return lhs.alu(Ops.CMPLT, rhs).alu(Ops.OR, lhs.alu(Ops.CMPEQ, rhs))

    # ---- selection and the like ------------------------------------------------------------------------------------

    def where(self, x: Any, y: Any) -> Self:
        """Return x where self (a bool condition) is True, else y; x and y are promoted together.

        Raises:
            DTypeError: The condition is not bool.
            OverflowError: One is an int that the integer dtype of the other does not hold.

        Example:
            >>> Tensor([True, False]).where(1, Tensor([8, 9])).tolist()
            [1, 9]
        """
        if self.dtype is not dtypes.bool:
            raise DTypeError(error_text("where", f"the condition must be bool, got {self.dtype}", {"condition": self},
                                        hint="compare first, such as (t != 0).where(x, y)"))  # fmt: skip
        if type(x) in _PLAIN_NUMBERS:
            yes, no = self.ufix(y)._operands(x, True, "where")
        else:
            yes, no = self.ufix(x)._operands(y, op="where")
        for value in (yes, no):
            if value.shape != self.shape:
                _check_broadcast("where", self, value)
            check_same_device("where", self, value)
        return self.alu(Ops.WHERE, yes, no)

    def clamp(self, min_: Any = None, max_: Any = None, *, min: Any = None, max: Any = None) -> Self:  # noqa: A002  as torch
        """Limit the values to [min_, max_]; scalars or tensors. The gradient is 1 inside and on the bounds, 0 at NaN.

        Elsewhere it goes to the limit that is the result, if this is a tensor: to ``max_`` where both are crossed, and
        to none of two equal ones. A limit of NaN gives NaN, without a gradient.

        Raises:
            RuntimeError: Neither limit is given.
            OverflowError: The integer dtype does not hold a limit that all values are beyond.

        Example:
            >>> Tensor([-2, 0, 5]).clamp(-1, 3).tolist()
            [-1, 0, 3]
        """
        low, high = (min_ if min_ is not None else min), (max_ if max_ is not None else max)
        if low is None and high is None:
            raise RuntimeError("clamp: at least one of min_ and max_ must be given")
        if low is not None and high is not None and not isinstance(low, (int, float)):
            low = self.ufix(low)
            low = low._without_slope(low.eq(high)) if dtypes.is_float(low.dtype) else low
        x = self._without_slope(self.ne(self)) if dtypes.is_float(self.dtype) else self
        return x._kept_within(low, high)

    def _kept_within(self, low: Any, high: Any) -> Self:
        """Return ``clamp`` whose gradient at NaN is 1, for functions that clamp on their way: NaN stays NaN in both."""
        limited = self if low is None else self._limited_by(low, is_lower=True)
        return limited if high is None else limited._limited_by(high, is_lower=False)

    def _without_slope(self, condition: Self) -> Self:
        """Return self, which has no gradient where the condition holds. It costs nothing: both choices are equal."""
        return condition.where(self.detach(), self)

    def _limited_by(self, limit: Any, is_lower: bool) -> Self:
        """Return ``limit`` where self is beyond it, self elsewhere; NaN if one is NaN."""
        x, bound = self._operands(_within(self.dtype, limit, is_lower), op="clamp")
        # Selection, not maximum: NaN stays, and a value on the bound keeps its whole gradient.
        chosen = ((x < bound) if is_lower else (bound < x)).where(bound, x)
        is_number = isinstance(limit, (int, float)) and not math.isnan(limit)
        if is_number or not dtypes.is_float(bound.dtype):
            return chosen
        return (x.ne(x) | bound.ne(bound)).where(math.nan, chosen)

    def clip(self, min_: Any = None, max_: Any = None, **kwargs: Any) -> Self:
        """Alias of ``clamp``.

        Example:
            >>> Tensor([-2, 0, 5]).clip(max_=3).tolist()
            [-2, 0, 3]
        """
        return self.clamp(min_, max_, **kwargs)


def _takes(dtype: DType, x: int, op: Ops | str) -> bool:
    """Whether a number takes an integer dtype; not if it is so large that it may widen the other operand.

    Raises:
        OverflowError: It does not fit, and is no number of a sum, product or bitwise operation, which wrap like it.
    """
    if dtype.bitsize > 64:
        return -_SMALL < x < _SMALL
    if dtype.min <= x <= dtype.max:
        return True
    if not -_SMALL < x < _SMALL:
        return False
    if op not in _WRAPPING:
        require_fit(_op_name(op), x, dtype, "cast the tensor to a wider dtype first")
    return True


def _may_widen(dtype: DType, x: float) -> bool:
    """Whether a number is an int whose size decides the dtype of its sum with integers (``_takes``)."""
    return type(x) is int and not -_SMALL < x < _SMALL and not dtypes.is_float(dtype)


def side_of_range(dtype: DType, x: int) -> int:
    """Return -1 or 1 for a number below or above all values of a strong integer dtype, else 0."""
    if dtype.kind not in ("int", "uint") or dtype.bitsize > 64:
        return 0
    if x > dtype.max:
        return 1
    return -1 if x < dtype.min else 0


def _within(dtype: DType, limit: Any, is_lower: bool) -> Any:
    """Return a limit that all values of a dtype keep to as the last one of them; other limits as they are."""
    if type(limit) is int and side_of_range(dtype, limit) == (-1 if is_lower else 1):
        return dtype.min if is_lower else dtype.max
    return limit


_NAMES = {Ops.MAX: "maximum", Ops.CMPEQ: "eq", Ops.CMPNE: "ne", Ops.CMPLT: "comparison"}


def _op_name(op: Ops | str) -> str:
    """Return what users call an operation."""
    return op if isinstance(op, str) else _NAMES.get(op, op.name.lower())


def _check_broadcast(op: Ops | str, lhs: Any, rhs: Any) -> None:
    if not lhs.shape or not rhs.shape:
        return
    try:
        broadcast_shape(lhs.shape, rhs.shape)
    except ShapeError as error:
        name = _op_name(op)
        mismatch = f"{str(error).partition(';')[0]}; " if isinstance(error, BindError) else ""
        raise type(error)(
            error_text(
                name,
                f"{mismatch}shapes {shown(lhs.shape)} and {shown(rhs.shape)} do not broadcast",
                {"left": lhs, "right": rhs},
                "aligned at the right, sizes are equal or 1",
            )
        ) from None
