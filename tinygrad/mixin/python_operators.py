"""Python's operators, each of which is a method with a name.

In:   the methods that carry them out.
Out:  ``PythonOperators``: ``a + b`` is ``a.add(b)``, and ``2 - a`` is ``a.sub(2, reverse=True)``.
Why:  whoever replaces a method, as the wrappers that explain errors do, has replaced the operator with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.mixin.hooks import Hooks
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.dtype import DTypeLike


class PythonOperators(Hooks):
    """Operators of Tensor and UOp."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def add(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def sub(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def mul(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def mod(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def pow(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def bitwise_and(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def bitwise_or(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def bitwise_xor(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def lshift(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def rshift(self, x: Any, reverse: bool = False) -> Self: ...  # noqa: D102
        def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self: ...  # noqa: D102
        def matmul(self, x: Any, reverse: bool = False, dtype: DTypeLike | None = None) -> Self: ...  # noqa: D102
        def neg(self) -> Self: ...  # noqa: D102
        def abs(self) -> Self: ...  # noqa: D102
        def bitwise_not(self) -> Self: ...  # noqa: D102
        def ne(self, x: Any) -> Self: ...  # noqa: D102
        def _comparison(self, op: Ops, x: Any, reverse: bool = False) -> Self: ...
        def _less_or_equal(self, x: Any, reverse: bool) -> Self: ...

    def __neg__(self) -> Self:
        return self.neg()

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __abs__(self) -> Self:
        return self.abs()

    def __add__(self, x: Any) -> Self:
        return self.add(x)

    def __radd__(self, x: Any) -> Self:
        return self.add(x, True)

    def __sub__(self, x: Any) -> Self:
        return self.sub(x)

    def __rsub__(self, x: Any) -> Self:
        return self.sub(x, True)

    def __mul__(self, x: Any) -> Self:
        return self.mul(x)

    def __rmul__(self, x: Any) -> Self:
        return self.mul(x, True)

    def __truediv__(self, x: Any) -> Self:
        return self.div(x)

    def __rtruediv__(self, x: Any) -> Self:
        return self.div(x, True)

    def __floordiv__(self, x: Any) -> Self:
        return self.div(x, rounding_mode="floor")

    def __rfloordiv__(self, x: Any) -> Self:
        return self.div(x, True, rounding_mode="floor")

    def __mod__(self, x: Any) -> Self:
        return self.mod(x)

    def __rmod__(self, x: Any) -> Self:
        return self.mod(x, True)

    def __pow__(self, x: Any) -> Self:
        return self.pow(x)

    def __rpow__(self, x: Any) -> Self:
        return self.pow(x, True)

    def __matmul__(self, x: Any) -> Self:
        return self.matmul(x)

    def __rmatmul__(self, x: Any) -> Self:
        return self.matmul(x, True)

    def __and__(self, x: Any) -> Self:
        return self.bitwise_and(x)

    def __rand__(self, x: Any) -> Self:
        return self.bitwise_and(x, True)

    def __or__(self, x: Any) -> Self:
        return self.bitwise_or(x)

    def __ror__(self, x: Any) -> Self:
        return self.bitwise_or(x, True)

    def __xor__(self, x: Any) -> Self:
        return self.bitwise_xor(x)

    def __rxor__(self, x: Any) -> Self:
        return self.bitwise_xor(x, True)

    def __lshift__(self, x: Any) -> Self:
        return self.lshift(x)

    def __rlshift__(self, x: Any) -> Self:
        return self.lshift(x, True)

    def __rshift__(self, x: Any) -> Self:
        return self.rshift(x)

    def __rrshift__(self, x: Any) -> Self:
        return self.rshift(x, True)

    def __lt__(self, x: Any) -> Self:
        return self._comparison(Ops.CMPLT, x)

    def __gt__(self, x: Any) -> Self:
        return self._comparison(Ops.CMPLT, x, True)

    def __le__(self, x: Any) -> Self:
        return self._less_or_equal(x, False)

    def __ge__(self, x: Any) -> Self:
        return self._less_or_equal(x, True)

    def __ne__(self, x: Any) -> Self:  # type: ignore[override]  # elementwise, not a bool
        return self.ne(x)
