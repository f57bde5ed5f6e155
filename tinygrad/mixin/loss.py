"""Losses.

In:   predictions and targets.
Out:  one value per example, their mean or their sum.
Why:  class ids select by comparing them with a range (a one-hot mask that never exists in memory), so that an id which
      is to be ignored selects nothing, and the gradient is elementwise. To look at ids is to compute them: so an id
      that is no class makes the loss NaN, and is an error right away only where ids are few and in memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

from tinygrad.dtype import dtypes, least_upper_dtype, sum_acc_dtype
from tinygrad.errors import DTypeError, ShapeError, error_text, shown
from tinygrad.mixin.composite import ContractionError, sizes_differ
from tinygrad.mixin.hooks import same_shape
from tinygrad.mixin.reduce import ReduceMixin

if TYPE_CHECKING:
    from collections.abc import Iterable

    ReductionStr = Literal["mean", "sum", "none"]

_REDUCTIONS = ("mean", "sum", "none")


class LossMixin(ReduceMixin):
    """Losses of Tensor and UOp."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def log_softmax(self, axis: int = -1) -> Self: ...  # noqa: D102
        def _check_bounds(self, name: str, index: Any, lowest: int, size: Any) -> None: ...

    def _do_reduction(self, reduction: ReductionStr = "mean") -> Self:
        _check_arguments("", reduction)
        return self if reduction == "none" else self.mean() if reduction == "mean" else self.sum()

    def _check_labels(self, name: str, Y: Self, axis: int, ignore: int | None) -> None:
        if not dtypes.is_int(Y.dtype):
            raise DTypeError(error_text(name, f"labels are {Y.dtype}", {"labels": Y}, "class ids are integers",
                                        "labels.cast(dtypes.int32)"))  # fmt: skip
        expected = (*self.shape[:axis], *self.shape[axis + 1 :])
        if not same_shape(Y.shape, expected):
            message = f"labels have shape {shown(Y.shape)}, expected {shown(expected)}"
            raise ContractionError(
                error_text(name, message, {"logits": self, "labels": Y}, rule="one label per example")
            )
        count, known = self.shape[axis], known_values(Y)
        if known is not None and isinstance(count, int):
            labels = [label for label in known if label != ignore]
            rule = f"0 <= label < {count}, or ignore_index, which is {ignore}"
            require_classes(name, labels, count, {"logits": self, "labels": Y}, rule)
        self._check_bounds(name, Y if ignore is None else Y.eq(ignore).where(0, Y), 0, count)

    def _along(self, axis: int) -> tuple[int, ...]:
        """Return the shape of one number per class that broadcasts to self."""
        return (1,) * axis + (self.shape[axis],) + (1,) * (self.ndim - axis - 1)

    def _pick_class(self, Y: Self, axis: int) -> Self:
        """Return self[..., Y, ...] along the class axis; NaN for ids that are no class."""
        count = self.shape[axis]
        classes = type(self).arange(count, dtype=dtypes.int32).reshape(self._along(axis))
        picked = Y.unsqueeze(axis).eq(classes).where(self, 0).sum(axis=axis)
        wide = Y.cast(least_upper_dtype(Y.dtype, dtypes.int32))
        # Added, since the backward pass of a ``where`` would read the mask again.
        found: Self = picked + nan_unless((wide >= 0) & (wide < count))
        return found

    def _labelled_loss(
        self, Y: Self, axis: int, reduction: ReductionStr, ignore: int | None, label_smoothing: float = 0.0,
        weight: Self | None = None,
    ) -> Self:  # fmt: skip
        """Return the loss of log-probabilities with respect to class ids."""
        loss, scale = -self._pick_class(Y, axis), None
        spread = self
        if weight is not None:
            per_class = weight.reshape(self._along(axis))
            scale = per_class._broadcast_to(self.shape)._pick_class(Y, axis)
            loss, spread = loss * scale, self * per_class
        if label_smoothing:
            loss = loss * (1 - label_smoothing) - spread.mean(axis=axis) * label_smoothing
        if ignore is not None:
            kept = Y.ne(ignore)
            loss = kept.where(loss, 0)
            scale = kept.cast(loss.dtype) if scale is None else kept.where(scale, 0)
        if reduction == "mean" and scale is not None:
            return loss._quotient_of_sum(scale.sum(dtype=sum_acc_dtype(scale.dtype)))
        return loss._do_reduction(reduction)

    def _check_class_weights(self, name: str, weight: Self | None, axis: int) -> None:
        if weight is not None and (weight.ndim != 1 or sizes_differ(weight.shape[0], self.shape[axis])):
            raise ContractionError(
                error_text(
                    name,
                    f"weights have shape {shown(weight.shape)}, there are {shown(self.shape[axis])} classes",
                    {"logits": self, "weight": weight},
                    rule="one weight per class",
                )
            )

    def cross_entropy(
        self,
        Y: Self,
        reduction: ReductionStr = "mean",
        label_smoothing: float = 0.0,
        *,
        weight: Self | None = None,
        ignore_index: int | None = None,
    ) -> Self:
        """Return the cross-entropy of logits (as torch).

        Args:
            Y: Class ids of the shape of ``self`` without its class dim (dim 1; dim 0 if 1-d), or probabilities of the
                same shape as ``self``. An id that is no class makes the loss NaN.
            reduction: ``mean``, ``sum`` or ``none``.
            label_smoothing: Share of the probability that is spread evenly over the classes, in [0, 1].
            weight: One weight per class, or None; with class ids, ``mean`` divides by the sum of those that count.
            ignore_index: Examples with this id count in neither numerator nor divisor. None ignores none, where torch
                ignores -100.

        Raises:
            ShapeError: Shapes do not fit, or an id is no class. Ids are looked at where they are few and in memory, and
                always with CHECK_BOUNDS=1.
            RuntimeError: Class ids are not integers.
            ValueError: ``ignore_index`` with probabilities.
            AssertionError: ``label_smoothing`` is outside [0, 1].

        Example:
            >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
            0.6931
        """
        _check_arguments("cross_entropy", reduction, label_smoothing)
        axis = 0 if self.ndim == 1 else 1
        self._check_class_weights("cross_entropy", weight, axis)
        if Y.ndim < self.ndim:
            self._check_labels("cross_entropy", Y, axis, ignore_index)
            return self.log_softmax(axis)._labelled_loss(Y, axis, reduction, ignore_index, label_smoothing, weight)
        if not same_shape(Y.shape, self.shape):
            raise ContractionError(
                error_text(
                    "cross_entropy",
                    f"logits have shape {shown(self.shape)}, targets {shown(Y.shape)}",
                    {"logits": self, "targets": Y},
                    rule="equal shapes, or class ids",
                )
            )
        if ignore_index is not None:
            fault = f"ignore_index={ignore_index} with probabilities as targets"
            raise ValueError(error_text("cross_entropy", fault, {"logits": self, "targets": Y}, "class ids"))
        target = Y.cast(self.dtype) if not dtypes.is_float(Y.dtype) else Y
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / self.shape[axis]
        if weight is not None:
            target = target * weight.reshape(self._along(axis))
        per_example = -(self.log_softmax(axis) * target).sum(axis=axis)
        return per_example._do_reduction(reduction)

    def sparse_categorical_crossentropy(
        self, Y: Self, ignore_index: int = -1, label_smoothing: float = 0.0, reduction: ReductionStr = "mean"
    ) -> Self:
        """Return the cross-entropy of logits whose classes are the LAST dim.

        Args:
            Y: Class ids of shape ``self.shape[:-1]``; another one than a class or ``ignore_index`` makes the loss NaN.
            ignore_index: Examples with this id count in neither numerator nor divisor.
            label_smoothing: Share of the probability that is spread evenly over the classes, in [0, 1].
            reduction: ``mean`` (over the examples that count), ``sum`` or ``none``.

        Raises:
            RuntimeError: Devices differ, or class ids are not integers.
            ShapeError: Shapes do not fit, or an id is no class, as for ``cross_entropy``.
            AssertionError: ``label_smoothing`` is outside [0, 1].

        Example:
            >>> round(Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item(), 4)
            0.6931
        """
        name = "sparse_categorical_crossentropy"
        _check_arguments(name, reduction, label_smoothing)
        if self.device is not None and Y.device is not None and self.device != Y.device:
            fault = "logits and labels are on different devices"
            raise RuntimeError(error_text(name, fault, {"logits": self, "labels": Y}))
        axis = self.ndim - 1
        self._check_labels(name, Y, axis, ignore_index)
        return self.log_softmax(axis)._labelled_loss(Y, axis, reduction, ignore_index, label_smoothing)

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: ReductionStr = "mean",
    ) -> Self:
        """Return the negative log-likelihood of log-probabilities (as torch).

        Args:
            Y: Class ids of the shape of ``self`` without its class dim (dim 1; dim 0 if 1-d). An id that is no class
                makes the loss NaN.
            weight: One weight per class, or None; ``mean`` divides by the sum of the weights that count.
            ignore_index: Examples with this id do not count; None ignores none, where torch ignores -100.
            reduction: ``mean``, ``sum`` or ``none``.

        Raises:
            ShapeError: Shapes do not fit, or an id is no class, as for ``cross_entropy``.
            RuntimeError: Class ids are not integers.

        Example:
            >>> Tensor([[0.5, 0.5], [0.25, 0.75]]).log().nll_loss(Tensor([0, 1])).numpy()
            array(0.49041462, dtype=float32)
        """
        _check_arguments("nll_loss", reduction)
        axis = 0 if self.ndim == 1 else 1
        self._check_labels("nll_loss", Y, axis, ignore_index)
        self._check_class_weights("nll_loss", weight, axis)
        floats = self if dtypes.is_float(self.dtype) else self.cast(dtypes.default_float)
        return floats._labelled_loss(Y, axis, reduction, ignore_index, weight=weight)

    def binary_crossentropy(self, Y: Self, reduction: ReductionStr = "mean") -> Self:
        """Return the binary cross-entropy of probabilities; each logarithm is at least -100, as in torch.

        The gradient for a probability p is (p - Y) / (p * (1 - p)), with a divisor of at least 1e-12: 0 where p is Y.

        Example:
            >>> Tensor([0.5, 0.75]).binary_crossentropy(Tensor([1.0, 1.0])).numpy()
            array(0.49041462, dtype=float32)
        """
        probability = self if dtypes.is_float(self.dtype) else self.cast(dtypes.default_float)
        Y = Y if dtypes.is_float(Y.dtype) else Y.cast(probability.dtype)
        p, target = probability._operands(Y, op="binary_crossentropy")
        log_p, log_q = p.log().maximum(-100.0), (1 - p).log().maximum(-100.0)
        value = -target * log_p - (1 - target) * log_q
        # The least divisor has no place in half precision.
        wide_p, wide_target = (x.cast(least_upper_dtype(x.dtype, dtypes.float32)) for x in (p, target))
        slope = (wide_p - wide_target) / (wide_p * (1 - wide_p)).maximum(1e-12)
        value = value._with_gradient(p, slope.cast(value.dtype), target, log_q - log_p)
        return value._do_reduction(reduction)

    def binary_crossentropy_logits(
        self, Y: Self, reduction: ReductionStr = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Return the binary cross-entropy of logits, stable for large ones.

        Args:
            Y: Targets in [0, 1], same shape as ``self``.
            reduction: ``mean``, ``sum`` or ``none``.
            pos_weight: Factor of the positive term, broadcast to ``self``, or None.

        Example:
            >>> Tensor([0.0, 100.0]).binary_crossentropy_logits(Tensor([1.0, 1.0])).numpy()
            array(0.3465736, dtype=float32)
        """
        Y = Y if dtypes.is_float(Y.dtype) else Y.cast(self.dtype)
        positive, negative = self.logsigmoid(), (-self).logsigmoid()
        weighted = Y * positive if pos_weight is None else pos_weight * Y * positive
        return (-weighted - (1 - Y) * negative)._do_reduction(reduction)


def known_values(x: Any) -> list[Any] | None:
    """Return the values of a tensor if they are few and in memory; None if they are not, and for nodes."""
    values: list[Any] | None = x._few_values_in_memory() if hasattr(x, "_few_values_in_memory") else None
    return values


def require_classes(name: str, labels: Iterable[int], count: int, operands: dict[str, Any], rule: str) -> None:
    """Raise a ShapeError unless all labels are classes of ``count``."""
    for label in labels:
        if not 0 <= label < count:
            raise ShapeError(error_text(name, f"label {label} is no class of {count}", operands, rule))


def nan_unless(holds: Any) -> Any:
    """Return what makes a loss NaN where a condition on its targets does not hold, once it is added."""
    return holds.where(0.0, math.nan)


def _check_arguments(name: str, reduction: Any, label_smoothing: float = 0.0) -> None:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction {reduction!r}; expected one of {', '.join(map(repr, _REDUCTIONS))}")
    if not 0.0 <= label_smoothing <= 1.0:
        raise AssertionError(f"{name}: label_smoothing must be in [0.0, 1.0], got {label_smoothing}")
