"""Losses and distances of torch.nn.functional.

In:   predictions, targets, and ``reduction``: mean, sum or none.
Out:  ``LossNames``.
Why:  see ``torch_names``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_dtype, sum_acc_dtype
from tinygrad.mixin.hooks import same_shape
from tinygrad.mixin.loss import known_values, nan_unless, require_classes
from tinygrad.torch_names.checks import require_number, require_same_shape
from tinygrad.torch_names.layers import LayerNames
from tinygrad.uop.infer import broadcast_shape

if TYPE_CHECKING:
    from typing import Self


class LossNames(LayerNames):
    """Losses and distances."""

    __slots__ = ()

    def _weighted(self, weight: Self | None, reduction: Any) -> Self:
        """Reduce terms with weights of the same shape; the mean divides by the sum of the weights."""
        if weight is None:
            return self._do_reduction(reduction)
        terms = self * weight
        if reduction == "mean":
            return terms._quotient_of_sum(weight.sum(dtype=sum_acc_dtype(weight.dtype)))
        return terms._do_reduction(reduction)

    def mse_loss(self, target: Self, reduction: Any = "mean", weight: Self | None = None) -> Self:
        """``(t - target).square().mean()``, or the mean with ``weight``."""
        return (self - target).square()._weighted(weight, reduction)

    def l1_loss(self, target: Self, reduction: Any = "mean", weight: Self | None = None) -> Self:
        """``(t - target).abs().mean()``, or the mean with ``weight``."""
        return (self - target).abs()._weighted(weight, reduction)

    def huber_loss(self, target: Self, reduction: Any = "mean", delta: float = 1.0, weight: Self | None = None) -> Self:
        """``(d < delta).where(0.5 * d * d, delta * (d - 0.5 * delta)).mean()`` with d = (t - target).abs()."""
        require_number(delta > 0, "huber_loss", "delta", delta, "delta > 0")
        d = (self - target).abs()
        is_small = d < delta
        small = is_small.where(d, 0.0)  # the slope of an infinite square times 0 would be NaN
        loss = is_small.where(small * small * 0.5, delta * (d - 0.5 * delta))
        return (loss if weight is None else loss * weight)._do_reduction(reduction)

    def smooth_l1_loss(self, target: Self, reduction: Any = "mean", beta: float = 1.0) -> Self:
        """``t.huber_loss(target, delta=beta) / beta``; ``t.l1_loss(target)`` for beta = 0."""
        require_number(beta >= 0, "smooth_l1_loss", "beta", beta, "beta >= 0")
        return self.huber_loss(target, reduction, beta) / beta if beta else self.l1_loss(target, reduction)

    def kl_div(self, target: Self, reduction: Any = "mean", log_target: bool = False) -> Self:
        """``(target * (target.log() - t)).mean()``, t and (``log_target``) target as logarithms; also ``batchmean``."""
        loss = target.exp() * (target - self) if log_target else target.xlogy(target) - target * self
        return loss._quotient_of_sum(self.shape[0]) if reduction == "batchmean" else loss._do_reduction(reduction)

    def binary_cross_entropy(self, target: Self, weight: Self | None = None, reduction: Any = "mean") -> Self:
        """``t.binary_crossentropy(target)``, each term times ``weight``."""
        require_same_shape("binary_cross_entropy", input=self, target=target)
        loss = self.binary_crossentropy(target, "none")
        return (loss if weight is None else loss * weight)._do_reduction(reduction)

    def binary_cross_entropy_with_logits(
        self, target: Self, weight: Self | None = None, reduction: Any = "mean", pos_weight: Self | None = None
    ) -> Self:
        """``t.binary_crossentropy_logits(target)``, each term times ``weight``."""
        require_same_shape("binary_cross_entropy_with_logits", input=self, target=target)
        loss = self.binary_crossentropy_logits(target, "none", pos_weight)
        return (loss if weight is None else loss * weight)._do_reduction(reduction)

    def soft_margin_loss(self, target: Self, reduction: Any = "mean") -> Self:
        """``(target * t).logsigmoid().neg().mean()``, targets -1 or 1."""
        return (-(target * self).logsigmoid())._do_reduction(reduction)

    def multilabel_soft_margin_loss(self, target: Self, weight: Self | None = None, reduction: Any = "mean") -> Self:
        """``t.binary_cross_entropy_with_logits(target, weight, "none").mean(-1).mean()``."""
        return self.binary_cross_entropy_with_logits(target, weight, "none").mean(-1)._do_reduction(reduction)

    def hinge_embedding_loss(self, target: Self, margin: float = 1.0, reduction: Any = "mean") -> Self:
        """``(target == 1).where(t, (margin - t).clamp_min(0)).mean()``, targets -1 or 1."""
        return target.eq(1).where(self, (margin - self).clamp_min(0))._do_reduction(reduction)

    def margin_ranking_loss(self, input2: Self, target: Self, margin: float = 0.0, reduction: Any = "mean") -> Self:
        """``(margin - target * (t - input2)).clamp_min(0).mean()``, targets -1 or 1."""
        return (margin - target * (self - input2)).clamp_min(0)._do_reduction(reduction)

    def triplet_margin_loss(
        self, positive: Self, negative: Self, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
        reduction: Any = "mean",
    ) -> Self:  # fmt: skip
        """``(margin + t.pairwise_distance(positive) - t.pairwise_distance(negative)).clamp_min(0).mean()``."""
        require_number(margin > 0, "triplet_margin_loss", "margin", margin, "margin > 0")
        near, far = self.pairwise_distance(positive, p, eps), self.pairwise_distance(negative, p, eps)
        if swap:
            far = far.minimum(positive.pairwise_distance(negative, p, eps))
        return (margin + near - far).clamp_min(0)._do_reduction(reduction)

    def cosine_embedding_loss(self, input2: Self, target: Self, margin: float = 0.0, reduction: Any = "mean") -> Self:
        """``(target == 1).where(1 - c, (c - margin).clamp_min(0)).mean()`` with c = t.cosine_similarity(input2, -1)."""
        cosine = self.cosine_similarity(input2, -1)
        return target.eq(1).where(1 - cosine, (cosine - margin).clamp_min(0))._do_reduction(reduction)

    def poisson_nll_loss(
        self, target: Self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: Any = "mean"
    ) -> Self:
        """``(t.exp() - target * t).mean()``, or ``t - target * t.log()``; ``full`` adds Stirling's term."""
        loss = self.exp() - target * self if log_input else self - target * (self + eps).log()
        if full:
            is_large = target > 1
            n = is_large.where(target, 1.0)
            loss = loss + is_large.where(n * n.log() - n + 0.5 * (2 * math.pi * n).log(), 0.0)
        return loss._do_reduction(reduction)

    def gaussian_nll_loss(
        self, target: Self, var: Any, full: bool = False, eps: float = 1e-6, reduction: Any = "mean"
    ) -> Self:
        """``0.5 * (var.log() + (t - target).square() / var).mean()``; ``full`` adds log(2 pi) / 2.

        ``var`` has the shape of t, or that without its last dim: one for each row.
        """
        if isinstance(var, (int, float)):
            require_number(var >= 0, "gaussian_nll_loss", "var", var, "var >= 0")
        given: Self = self.ufix(var)
        if self.ndim and given.ndim and same_shape(given.shape, self.shape[:-1]):
            given = given.unsqueeze(-1)  # one variance for each row
        variance = given + (given.clamp(eps, None) - given).detach()  # the gradient of what is below eps still flows
        loss = (variance.log() + (self - target).square() / variance) * 0.5
        return (loss + 0.5 * math.log(2 * math.pi) if full else loss)._do_reduction(reduction)

    def multi_margin_loss(
        self, target: Self, p: int = 1, margin: float = 1.0, weight: Self | None = None, reduction: Any = "mean"
    ) -> Self:
        """``(margin - t of the class + t).clamp_min(0) ** p`` of the other classes, over their number; class ids."""
        require_number(p in {1, 2}, "multi_margin_loss", "p", p, "1 or 2")
        rows, ids = (self, target) if self.ndim > 1 else (self.unsqueeze(0), target.reshape(1))
        axis = rows.ndim - 1
        rows._check_labels("multi_margin_loss", ids, axis, None)
        rows._check_class_weights("multi_margin_loss", weight, axis)
        own = rows._pick_class(ids, axis).unsqueeze(-1)
        terms = (margin - own + rows).clamp_min(0)
        terms = terms if p == 1 else terms.square()
        if weight is not None:
            terms = terms * weight._broadcast_to(rows.shape)._pick_class(ids, axis).unsqueeze(-1)
        is_other = ids.unsqueeze(-1).ne(type(self).arange(rows.shape[-1]))
        loss: Self = is_other.where(terms, 0.0).sum(-1) / rows.shape[-1]
        return (loss if self.ndim > 1 else loss.squeeze(0))._do_reduction(reduction)

    def multilabel_margin_loss(self, target: Self, reduction: Any = "mean") -> Self:
        """``(1 - t of a label + t of no label).clamp_min(0)``, all pairs over the classes; ids up to the first -1."""
        require_same_shape("multilabel_margin_loss", input=self, target=target)
        classes, known = self.shape[-1], known_values(target)
        if known is not None:
            labels = [label for label in known if label != -1]
            rule = f"0 <= label < {classes}, or -1, which ends the labels of a row"
            require_classes("multilabel_margin_loss", labels, classes, {"input": self, "target": target}, rule)
        self._check_bounds("multilabel_margin_loss", target, -1, classes)
        wide = target.cast(least_upper_dtype(target.dtype, dtypes.int32))
        valid = ((wide >= -1) & (wide < classes)).all(-1)
        is_label = target.lt(0).cumsum(-1).eq(0)
        ids = is_label.where(target, 0)
        has_label = (is_label.unsqueeze(-1) & ids.unsqueeze(-1).eq(type(self).arange(classes))).any(-2)
        pairs = (1 - self.gather(-1, ids).unsqueeze(-1) + self.unsqueeze(-2)).clamp_min(0)
        counts = is_label.unsqueeze(-1) & has_label.logical_not().unsqueeze(-2)
        loss: Self = counts.where(pairs, 0.0).sum((-2, -1)) / classes + nan_unless(valid)
        return loss._do_reduction(reduction)

    # ---- distances ---------------------------------------------------------------------------------------------------

    def cosine_similarity(self, x2: Self, dim: int = 1, eps: float = 1e-8) -> Self:
        """``(t.normalize(dim=dim) * x2.normalize(dim=dim)).sum(dim)``."""
        shape = broadcast_shape(self.shape, x2.shape)
        left, right = (x._broadcast_to(shape).normalize(2.0, dim, eps) for x in (self, x2))
        return (left * right).sum(dim)

    def pairwise_distance(self, x2: Self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Self:
        """``(t - x2 + eps).norm(p, -1)``."""
        return (self - x2 + eps).norm(p, -1, keepdim)
