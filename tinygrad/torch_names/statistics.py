"""Statistics, sorted values and integrals under the names of other packages.

In:   the methods of Tensor.
Out:  ``StatisticsNames``.
Why:  see ``torch_names``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from tinygrad.dtype import dtypes
from tinygrad.mixin.composite import composite
from tinygrad.record import record
from tinygrad.torch_names.checks import require_int, require_number, require_shape
from tinygrad.torch_names.numbers import NumberNames

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.uop.ops import UOp

Interpolation = Literal["linear", "lower", "higher", "nearest", "midpoint"]
_INTERPOLATIONS = get_args(Interpolation)


@record(frozen=True)
class _EqualSharesGradient:
    """Gradient function of a value that was found among others: those that equal it share the gradient evenly.

    Source: the gradient of torch.median.
    """

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, None]:
        """Return the gradient of the others."""
        x, found = call.src[1:]
        equal = x.eq(found) | (x.isnan() & found.isnan())
        return equal.where(grad / equal.sum().cast(grad.dtype), 0), None


def _shared_by_equals(x: UOp, found: UOp) -> UOp:
    """Return ``found``, of shape () and an element of ``x``, with a gradient that all elements equal to it share."""
    if x.dtype in dtypes.weaks:
        return found
    return composite(lambda _, value: value, (x, found), _EqualSharesGradient(), "median")


class StatisticsNames(NumberNames):
    """Statistics, sorted values and integrals."""

    __slots__ = ()

    # ---- statistics --------------------------------------------------------------------------------------------------

    def cov(self, *, correction: int = 1) -> Self:
        """``d @ d.T / (n - correction)``, d = t - t.mean(1, keepdim=True): rows are variables, columns observations."""
        if self.ndim > 2:
            raise ValueError(f"cov: shape {self.shape}; expected rows of observations, at most 2 dims")
        rows = self.reshape(1, -1) if self.ndim < 2 else self
        centred = rows - rows.mean(1, keepdim=True)
        found: Self = centred @ centred.transpose(0, 1) / (rows.shape[1] - correction)
        return found.reshape(()) if self.ndim < 2 else found

    def corrcoef(self) -> Self:
        """``t.cov()`` divided by the standard deviations of its row and column, within [-1, 1]."""
        found = self.cov()
        if found.ndim == 0:
            return found / found
        scale = found.diagonal().sqrt()
        return (found / scale.unsqueeze(1) / scale.unsqueeze(0)).clamp(-1, 1)

    def isin(self, test_elements: Any, *, invert: bool = False) -> Self:
        """``(t.unsqueeze(-1) == test_elements.flatten()).any(-1)``."""
        found = self.unsqueeze(-1).eq(self.ufix(test_elements).flatten()).any(-1)
        return found.logical_not() if invert else found

    def dist(self, other: Any, p: float = 2) -> Self:
        """``(t - other).norm(p)``."""
        apart: Self = self - other
        return apart.norm(p)

    def cdist(self, x2: Self, p: float = 2.0) -> Self:
        """``(t.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)``; the gradient of a distance of 0 is 0."""
        operands = {"left": self, "right": x2}
        require_number(p >= 0, "cdist", "p", p, "p >= 0")
        require_shape(self.ndim > 1 and x2.ndim > 1, "cdist", f"operands have {self.ndim} and {x2.ndim} dims", operands,
                      "rows of points: at least 2 dims")  # fmt: skip
        require_shape(self.shape[-1] == x2.shape[-1], "cdist", f"points of {self.shape[-1]} and {x2.shape[-1]} numbers",
                      operands, "left.shape[-1] == right.shape[-1]")  # fmt: skip
        apart = self.unsqueeze(-2) - x2.unsqueeze(-3)
        is_same = apart.eq(0).all(-1, keepdim=True)
        return is_same.squeeze(-1).where(0.0, is_same.where(1.0, apart).norm(p, -1))

    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """``t * (maxnorm / norms).clamp(max_=1)``: slices along ``dim`` get a p-norm of at most ``maxnorm``."""
        require_number(p > 0, "renorm", "p", p, "p > 0")
        require_number(maxnorm >= 0, "renorm", "maxnorm", maxnorm, "maxnorm >= 0")
        axis = self._resolve_dim(dim, op="renorm")
        norms = self.norm(p, tuple(i for i in range(self.ndim) if i != axis), keepdim=True)
        return (norms > maxnorm).where(self * (maxnorm / (norms + 1e-7)), self)

    # ---- sorted values -----------------------------------------------------------------------------------------------

    def msort(self) -> Self:
        """``t.sort(0)[0]``."""
        return self.sort(0)[0]

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """``(values, indices)`` of the k-th smallest along ``dim``, as of ``t.sort(dim)``; k counts from 1."""
        axis = self._resolve_dim(dim, op="kthvalue")
        require_int("kthvalue", "k", k, 1)
        size = self.shape[axis] if self.ndim else 1
        require_shape(k <= size, "kthvalue", f"k={k} for dim {axis} of size {size}", {"tensor": self},
                      "1 <= k <= size")  # fmt: skip
        values, indices = (x._slice_dim(axis, k - 1, k) for x in self.topk(k, axis, largest=False))
        return (values, indices) if keepdim else (values.squeeze(axis), indices.squeeze(axis))

    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """``t.kthvalue((n + 1) // 2, dim)``, but NaN if any is NaN; only the value without ``dim``.

        Along ``dim`` the gradient goes to the element at the index; without, all elements that equal it share it.
        """
        if dim is None and self.numel() == 0 and dtypes.is_float(self.dtype):
            return type(self).full((), float("nan"), dtype=self.dtype, device=self.device)
        if dim is None:
            x = self.flatten()
            found = x.detach().median(0)[0]
            return self._wrap_uop(_shared_by_equals(x._uop, found._uop)) if dtypes.is_float(self.dtype) else found
        axis = self._resolve_dim(dim, op="median")
        is_empty = self.ndim > 0 and self.shape[axis] == 0
        require_shape(not is_empty, "median", f"dim {axis} has no elements", {"tensor": self}, "at least one element")
        middle = (self.shape[axis] - 1) // 2
        values, indices = self.sort(axis)  # NaN come last
        at = values._slice_dim(axis, self.shape[axis] - 1, self.shape[axis]).isnan()
        first_nan = values.isnan().argmax(axis, keepdim=True)
        place = at.where(first_nan, middle)
        found = values.gather(axis, place), indices.gather(axis, place)
        return found if keepdim else tuple(x.squeeze(axis) for x in found)

    def quantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: Interpolation = "linear"
    ) -> Self:
        """Between the two sorted values beside place q * (n - 1) along ``dim``, in proportion; NaN if any is."""
        self._check_float("quantile")
        if interpolation not in _INTERPOLATIONS:
            raise ValueError(f"quantile: interpolation {interpolation!r}; expected {', '.join(_INTERPOLATIONS)}")
        x, axis = (self.flatten(), 0) if dim is None else (self, self._resolve_dim(dim, op="quantile"))
        count = x.shape[axis] if x.ndim else 1
        require_shape(count != 0, "quantile", f"dim {axis} has no elements", {"tensor": self}, "at least one element")
        asked = self._asked_quantiles(q)
        require_shape(asked.ndim <= 1, "quantile", f"q has {asked.ndim} dims", {"tensor": self, "q": asked},
                      "a number or one dim")  # fmt: skip
        ordered = x.sort(axis)[0]
        place = (asked.flatten() * (count - 1)).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        place = place.expand([asked.numel() if i == axis else s for i, s in enumerate(x.shape)])
        if interpolation in {"nearest", "lower", "higher"}:
            place = {"nearest": place.round, "lower": place.floor, "higher": place.ceil}[interpolation]()
        below, above = place.floor().detach(), place.ceil().detach()
        low, high = (ordered.gather(axis, at.cast("int32")) for at in (below, above))
        is_whole = below.eq(above)
        # The mean of whole places is that of a value with itself.
        share = is_whole.where(0.0, 0.5).cast(self.dtype) if interpolation == "midpoint" else place - below
        # A difference from an infinite value, or a share of 0 of one, would be NaN: such values are added in parts.
        part = is_whole.where(0.5, share)
        between = (low.isinf() | high.isinf()).where(low * (1 - part) + high * part, low.lerp(high, share))
        found = x.isnan().any(axis, keepdim=True).where(float("nan"), between)
        found = found.movedim(axis, 0)  # the asked quantiles come first
        if keepdim:
            shape = (1,) * self.ndim
            found = found.unsqueeze(axis + 1) if dim is not None else found.reshape(found.shape[0], *shape)
        return found.squeeze(0) if asked.ndim == 0 else found

    def _asked_quantiles(self, q: Any) -> Self:
        """Return a number, a sequence of numbers or a tensor as a tensor; values outside of [0, 1] are errors."""
        if isinstance(q, Sequence):
            tensor: Any = type(self)
            q = tensor(list(q), device=self.device)
        asked = self.ufix(q).cast(self.dtype)
        known = [q] if isinstance(q, (int, float)) else q._few_values_in_memory() or []
        for value in known:
            require_number(0 <= value <= 1, "quantile", "q", value, "numbers from 0 to 1")
        return asked

    # ---- integrals ---------------------------------------------------------------------------------------------------

    def _trapezoids(self, x: Any, dx: float, dim: int, name: str) -> tuple[int, Self]:
        axis = self._resolve_dim(dim, op=name)
        require_shape(self.ndim > 0, name, "one number has no samples", {"samples": self}, "at least 1 dim")
        size, t = self.shape[axis], self._float()  # sums of small integers would wrap
        mean = (t._slice_dim(axis, min(1, size), size) + t._slice_dim(axis, 0, max(size - 1, 0))) * 0.5
        if x is None:
            return axis, mean * dx
        x = self.ufix(x)._float()
        if x.ndim > 1:  # aligned at the right, as operands are
            x = x.reshape((*(1,) * (self.ndim - x.ndim), *x.shape))
        require_shape(x.ndim <= self.ndim, name, f"places of {x.ndim} dims for samples of {self.ndim}",
                      {"samples": self, "places": x}, "places along one dim, or of shapes that broadcast")  # fmt: skip
        places = x.shape[0 if x.ndim == 1 else axis] if x.ndim else 1
        require_shape(places == size, name, f"{places} places for {size} samples", {"samples": self, "places": x},
                      "one place per sample")  # fmt: skip
        along = [-1 if i == axis else 1 for i in range(self.ndim)]
        return axis, mean * (x.diff().reshape(along) if x.ndim == 1 else x.diff(dim=axis))

    def trapezoid(self, x: Any = None, *, dx: float = 1, dim: int = -1) -> Self:
        """The integral of samples t at places x: ``((t[1:] + t[:-1]) / 2 * x.diff()).sum()`` along ``dim``."""
        axis, areas = self._trapezoids(x, dx, dim, "trapezoid")
        return areas.sum(axis)

    trapz = trapezoid

    def cumulative_trapezoid(self, x: Any = None, *, dx: float = 1, dim: int = -1) -> Self:
        """``((t[1:] + t[:-1]) / 2 * x.diff()).cumsum()`` along ``dim``."""
        axis, areas = self._trapezoids(x, dx, dim, "cumulative_trapezoid")
        return areas.cumsum(axis)
