"""Losses.

In:   predictions and targets.
Out:  one value per example, their mean or their sum.
Why:  class ids select by comparing them with a range (a one-hot mask that never exists in memory), so that an id which
      is to be ignored selects nothing, and the gradient is elementwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from tinygrad.dtype import dtypes
from tinygrad.errors import DTypeError, error_text, shown
from tinygrad.mixin.composite import ContractionError
from tinygrad.mixin.reduce import ReduceMixin

if TYPE_CHECKING:
    ReductionStr = Literal["mean", "sum", "none"]

_REDUCTIONS = ("mean", "sum", "none")


class LossMixin(ReduceMixin):
    """Losses of Tensor and UOp."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def log_softmax(self, axis: int = -1) -> Self: ...  # noqa: D102

    def _do_reduction(self, reduction: ReductionStr = "mean") -> Self:
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction {reduction!r}; expected one of {', '.join(map(repr, _REDUCTIONS))}")
        return self if reduction == "none" else self.mean() if reduction == "mean" else self.sum()

    def _check_labels(self, name: str, Y: Self, axis: int) -> None:
        if not dtypes.is_int(Y.dtype):
            raise DTypeError(
                error_text(
                    name,
                    f"labels are {Y.dtype}",
                    {"labels": Y},
                    rule="class ids are integers",
                    hint="labels.cast(dtypes.int32)",
                )
            )
        expected = (*self.shape[:axis], *self.shape[axis + 1 :])
        if tuple(Y.shape) != tuple(expected):
            raise ContractionError(
                error_text(
                    name,
                    f"labels have shape {shown(Y.shape)}, expected {expected}",
                    {"logits": self, "labels": Y},
                    rule="one label per example",
                )
            )

    def _pick_class(self, Y: Self, axis: int) -> Self:
        """Return self[..., Y, ...] along the class axis; 0 for ids that are no class."""
        count = self.shape[axis]
        along = (1,) * axis + (count,) + (1,) * (self.ndim - axis - 1)
        classes = type(self).arange(count, dtype=dtypes.int32).reshape(along)
        return Y.unsqueeze(axis).eq(classes).where(self, 0).sum(axis=axis)

    def _labelled_loss(
        self, Y: Self, axis: int, ignore: int | None, label_smoothing: float, reduction: ReductionStr
    ) -> Self:
        """Return the loss of log-probabilities with respect to class ids."""
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction {reduction!r}; expected one of {', '.join(map(repr, _REDUCTIONS))}")
        loss = -self._pick_class(Y, axis)
        if label_smoothing:
            loss = loss * (1 - label_smoothing) - self.mean(axis=axis) * label_smoothing
        if ignore is None:
            return loss._do_reduction(reduction)
        kept = Y.ne(ignore)
        loss = kept.where(loss, 0)
        if reduction == "mean":
            return loss.sum() / kept.cast(loss.dtype).sum()
        return loss._do_reduction(reduction)

    def cross_entropy(self, Y: Self, reduction: ReductionStr = "mean", label_smoothing: float = 0.0) -> Self:
        """Return the cross-entropy of logits (as torch).

        Args:
            Y: Class ids of the shape of ``self`` without its class dim (dim 1; dim 0 if 1-d), or probabilities of the
                same shape as ``self``.
            reduction: ``mean``, ``sum`` or ``none``.
            label_smoothing: Share of the probability that is spread evenly over the classes, in [0, 1].

        Raises:
            ShapeError: Shapes do not fit.
            RuntimeError: Class ids are not integers.
            AssertionError: ``label_smoothing`` is outside [0, 1].

        Example:
            >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
            0.6931
        """
        _check_smoothing("cross_entropy", label_smoothing)
        axis = 0 if self.ndim == 1 else 1
        if Y.ndim < self.ndim:
            self._check_labels("cross_entropy", Y, axis)
            return self.log_softmax(axis)._labelled_loss(Y, axis, None, label_smoothing, reduction)
        if tuple(Y.shape) != tuple(self.shape):
            raise ContractionError(
                error_text(
                    "cross_entropy",
                    f"logits have shape {shown(self.shape)}, targets {shown(Y.shape)}",
                    {"logits": self, "targets": Y},
                    rule="equal shapes, or class ids",
                )
            )
        target = Y.cast(self.dtype) if not dtypes.is_float(Y.dtype) else Y
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / self.shape[axis]
        per_example = -(self.log_softmax(axis) * target).sum(axis=axis)
        return per_example._do_reduction(reduction)

    def sparse_categorical_crossentropy(
        self, Y: Self, ignore_index: int = -1, label_smoothing: float = 0.0, reduction: ReductionStr = "mean"
    ) -> Self:
        """Return the cross-entropy of logits whose classes are the LAST dim.

        Args:
            Y: Class ids of shape ``self.shape[:-1]``.
            ignore_index: Examples with this id count in neither numerator nor divisor.
            label_smoothing: Share of the probability that is spread evenly over the classes, in [0, 1].
            reduction: ``mean`` (over the examples that count), ``sum`` or ``none``.

        Raises:
            RuntimeError: Devices differ, or class ids are not integers.
            AssertionError: ``label_smoothing`` is outside [0, 1].

        Example:
            >>> round(Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item(), 4)
            0.6931
        """
        _check_smoothing("sparse_categorical_crossentropy", label_smoothing)
        if self.device is not None and Y.device is not None and self.device != Y.device:
            raise RuntimeError(
                error_text(
                    "sparse_categorical_crossentropy",
                    "logits and labels are on different devices",
                    {"logits": self, "labels": Y},
                )
            )
        axis = self.ndim - 1
        self._check_labels("sparse_categorical_crossentropy", Y, axis)
        return self.log_softmax(axis)._labelled_loss(Y, axis, ignore_index, label_smoothing, reduction)

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: ReductionStr = "mean",
    ) -> Self:
        """Return the negative log-likelihood of log-probabilities (as torch).

        Args:
            Y: Class ids of the shape of ``self`` without its class dim (dim 1; dim 0 if 1-d).
            weight: One weight per class, or None; ``mean`` divides by the sum of the weights that count.
            ignore_index: Examples with this id do not count.
            reduction: ``mean``, ``sum`` or ``none``.

        Example:
            >>> Tensor([[0.5, 0.5], [0.25, 0.75]]).log().nll_loss(Tensor([0, 1])).numpy()
            array(0.49041462, dtype=float32)
        """
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction {reduction!r}; expected one of {', '.join(map(repr, _REDUCTIONS))}")
        axis = 0 if self.ndim == 1 else 1
        self._check_labels("nll_loss", Y, axis)
        loss = -self._pick_class(Y, axis)
        along = (1,) * axis + (self.shape[axis],) + (1,) * (self.ndim - axis - 1)
        per_class = self.const_like(1) if weight is None else weight.reshape(along).expand(self.shape)
        scale = per_class._pick_class(Y, axis)
        if ignore_index is not None:
            scale = Y.ne(ignore_index).where(scale, 0)
        weighted = loss * scale
        return weighted.sum() / scale.sum() if reduction == "mean" else weighted._do_reduction(reduction)

    def binary_crossentropy(self, Y: Self, reduction: ReductionStr = "mean") -> Self:
        """Return the binary cross-entropy of probabilities; each logarithm is at least -100, as in torch.

        Example:
            >>> Tensor([0.5, 0.75]).binary_crossentropy(Tensor([1.0, 1.0])).numpy()
            array(0.49041462, dtype=float32)
        """
        Y = Y if dtypes.is_float(Y.dtype) else Y.cast(self.dtype)
        log_p, log_q = self.log().maximum(-100.0), (1 - self).log().maximum(-100.0)
        return (-Y * log_p - (1 - Y) * log_q)._do_reduction(reduction)

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


def _check_smoothing(name: str, value: Any) -> None:
    if not 0.0 <= value <= 1.0:
        raise AssertionError(f"{name}: label_smoothing must be in [0.0, 1.0], got {value}")
