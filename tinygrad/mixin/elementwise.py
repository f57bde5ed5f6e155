"""All that works element by element, on any number of values.

In:   operators, math functions and activations (``operators``, ``unary``, ``activation``), which this class gathers.
Out:  ``ElementwiseMixin``, with the functions of several values that need them. Everything ends in ``alu(op, *src)``.
Why:  those functions combine the three groups, which do not need each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_float
from tinygrad.errors import DTypeError, error_text
from tinygrad.mixin.activation import ActivationMixin
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self


class ElementwiseMixin(ActivationMixin):
    """Functions of several values, element by element."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def all(self) -> Self: ...  # noqa: D102

    def isclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Self:
        """Whether abs(self - other) <= atol + rtol * abs(other); equal infinities are close, NaN by ``equal_nan``.

        Example:
            >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0000001, 2.1])).tolist()
            [True, False]
        """
        lhs, rhs = self._operands(other, op="isclose")
        distance, magnitude = lhs._distance(rhs), rhs.abs()
        if dtypes.is_int(rhs.dtype) and rhs.dtype not in dtypes.weaks:
            magnitude = magnitude.cast(distance.dtype)  # that of the smallest integer has a place only there
        close = distance <= magnitude * rtol + atol
        finite = lhs.isfinite() & rhs.isfinite()
        nan = lhs.isnan() & rhs.isnan() & equal_nan
        return finite.where(close, lhs.eq(rhs)) | nan

    def _distance(self, other: Self) -> Self:
        """Return abs(self - other) of values of one dtype; that of integers is unsigned, where no distance wraps."""
        if not dtypes.is_int(self.dtype) or self.dtype in dtypes.weaks:
            return (self - other).abs()
        unsigned = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[self.dtype.itemsize]
        return (self.maximum(other) - self.minimum(other)).cast(unsigned)

    def allclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Self:
        """0-d bool: whether all elements are close (see ``isclose``).

        Example:
            >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0000001, 2.0])).item()
            True
        """
        return self.isclose(other, rtol, atol, equal_nan).all()

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """Return ``value`` where ``mask`` is True, else self.

        Example:
            >>> Tensor([1, 2, 3]).masked_fill(Tensor([True, False, True]), 0).tolist()
            [0, 2, 0]
        """
        return mask.where(value, self)

    def copysign(self, other: Any) -> Self:
        """Return the magnitude of self with the sign of ``other`` (that of -0.0 is negative).

        Example:
            >>> Tensor([1.0, -2.0]).copysign(-1.0).tolist()
            [-1.0, -2.0]
        """
        magnitude, source = self._operands(other, op="copysign")
        magnitude = magnitude.abs()
        return source._signbit().where(magnitude * -1, magnitude)

    def _signbit(self) -> Self:
        same_width = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
        if dtypes.is_float(self.dtype) and self.dtype not in dtypes.weaks:
            return self.bitcast(same_width[self.dtype.itemsize]) < 0
        if dtypes.is_float(self.dtype):
            return (self < 0) | (self.eq(0) & (self.reciprocal() < 0))
        return self < 0

    def logaddexp(self, other: Any) -> Self:
        """Return log(exp(self) + exp(other)) without overflow. Error: 4 ulp of the largest of the three numbers.

        Example:
            >>> Tensor([0.0, 1000.0]).logaddexp(0.0).numpy()
            array([6.931472e-01, 1.000000e+03], dtype=float32)
        """
        from tinygrad.mixin import approx

        x, y = self._operands(other, op="logaddexp")
        if not dtypes.is_float(x.dtype):
            floating = least_upper_float(x.dtype)
            x, y = x.cast(floating), y.cast(floating)
        same = x.eq(y) & x.isinf()  # the difference of equal infinities is NaN
        distance = same.where(0.0, x - y)
        value = x.maximum(y).detach() + approx.log1p_of_share((distance.abs() * -1).exp())
        return value._with_gradient(x, distance.sigmoid(), y, (distance * -1).sigmoid())

    def lerp(self, end: Any, weight: Any) -> Self:
        """Return self + (end - self) * weight; uint8 with a tensor as weight is computed in 7-bit fixed point.

        Example:
            >>> Tensor([0.0, 10.0]).lerp(Tensor([8.0, 20.0]), 0.25).tolist()
            [2.0, 12.5]
        """
        target = self.ufix(end)
        if self.dtype is dtypes.uint8 and hasattr(weight, "dtype"):
            w = self.ufix(weight * 128 + 0.5).cast(dtypes.int32)
            mixed = self.cast(dtypes.int32) * (w * -1 + 128) + target.cast(dtypes.int32) * w
            return self.ufix((mixed + 64) >> 7).cast(dtypes.uint8)
        step: Self = (target - self) * weight
        return self + step

    def threefry(self, seed: Self) -> Self:
        """Return the Threefry-2x32-20 block of this uint64 (low word first) keyed by ``seed``.

        Raises:
            RuntimeError: ``self`` or ``seed`` is not uint64.

        Example:
            >>> Tensor([0], dtype="uint64").threefry(Tensor([0], dtype="uint64")).tolist()
            [11077253088097075545]
        """
        if self.dtype is not dtypes.uint64 or seed.dtype is not dtypes.uint64:
            raise DTypeError(error_text("threefry", f"blocks are {self.dtype}, the key {seed.dtype}",
                                        {"self": self, "seed": seed}, "both are uint64"))  # fmt: skip
        return self.alu(Ops.THREEFRY, seed)

    def usum(self, *uops: Self) -> Self:
        """Return the sum (logical or for bool) of self and others.

        Example:
            >>> Tensor([1, 2]).usum(Tensor([10, 20]), Tensor([100, 200])).tolist()
            [111, 222]
        """
        total = self
        for x in uops:
            total = total + x
        return total

    def uprod(self, *uops: Self) -> Self:
        """Return the product (logical and for bool) of self and others.

        Example:
            >>> Tensor([1, 2]).uprod(Tensor([3, 4]), Tensor([5, 6])).tolist()
            [15, 48]
        """
        product = self
        for x in uops:
            product = product * x
        return product
