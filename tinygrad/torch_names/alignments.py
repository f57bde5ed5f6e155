"""Connectionist temporal classification: the loss over all alignments of a label sequence with the steps of an output.

In:   log-probabilities (T, N, C), label ids, and the lengths of both.
Out:  ``AlignmentNames.ctc_loss``.
Why:  see ``torch_names``. The forward variables are a recursion over the steps, in logarithms. Each step is stored,
      since the next one reads it three times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.mixin.loss import known_values, nan_unless, require_classes
from tinygrad.torch_names.checks import require_int, require_number, require_shape
from tinygrad.torch_names.losses import LossNames

if TYPE_CHECKING:
    from typing import Self

    Lengths = Any  # a tensor of ints, or a sequence of them


class AlignmentNames(LossNames):
    """The loss over alignments."""

    __slots__ = ()

    def ctc_loss(
        self, targets: Self, input_lengths: Lengths, target_lengths: Lengths, blank: int = 0, reduction: Any = "mean",
        zero_infinity: bool = False,
    ) -> Self:  # fmt: skip
        """Minus the log-probability of all alignments of ``targets``, (N, S) or one after the other, with (T, N, C).

        Source: Graves et al., "Connectionist Temporal Classification", 2006, doi.org/10.1145/1143844.1143891.
        """
        require_shape(self.ndim in {2, 3}, "ctc_loss", f"{self.ndim} dims", {"log_probs": self}, "(T, N, C) or (T, C)")
        log_probs = self if self.ndim == 3 else self.unsqueeze(1)
        steps, batch, classes = log_probs.shape
        require_int("ctc_loss", "blank", blank, 0)
        require_number(blank < classes, "ctc_loss", "blank", blank, f"a class of {classes}")
        require_shape(targets.ndim != 2 or targets.shape[0] == batch, "ctc_loss", f"{targets.shape[0]} rows of targets",
                      {"log_probs": self, "targets": targets}, f"one row for each of {batch} sequences")  # fmt: skip
        in_lengths = self._lengths("input_lengths", input_lengths, batch, steps)
        out_lengths = self._lengths("target_lengths", target_lengths, batch, targets.shape[-1])
        self._check_known_targets(targets, _known_lengths(target_lengths), classes)
        padded = self._padded_labels(targets, out_lengths, batch)
        is_padding = type(self).arange(padded.shape[1]) >= out_lengths.unsqueeze(1)
        labels = is_padding.where(0, padded)  # what stands behind the labels of a sequence may be no class
        self._check_bounds("ctc_loss", labels, 0, classes)
        loss = log_probs._alignment_loss(labels, in_lengths, out_lengths, blank)
        made_nan: Self = nan_unless(log_probs._are_valid(labels, in_lengths, out_lengths))
        loss = loss + made_nan
        if zero_infinity:
            loss = loss.isinf().where(0.0, loss)
        if reduction == "mean":
            return (loss / out_lengths.maximum(1)).mean()
        return (loss if self.ndim == 3 else loss.squeeze(0))._do_reduction(reduction)

    def _lengths(self, name: str, lengths: Lengths, batch: int, longest: int) -> Self:
        tensor: Any = type(self)
        given = tensor(lengths, device=self.device) if isinstance(lengths, (int, Sequence)) else lengths
        require_shape(given.numel() == batch, "ctc_loss", f"{given.numel()} lengths", {"log_probs": self},
                      f"one length for each of {batch} sequences")  # fmt: skip
        for length in _known_lengths(lengths) or ():
            require_number(0 <= length <= longest, "ctc_loss", name, length, f"lengths from 0 to {longest}")
        found: Self = given.reshape(batch).cast(dtypes.int32)
        return found

    def _check_known_targets(self, targets: Self, lengths: list[int] | None, classes: int) -> None:
        """Raise if ids and lengths are few and in memory and an id is no class; what stands behind a length may be."""
        known, size = known_values(targets), targets.shape[-1]
        if known is None or lengths is None:
            return
        if len(lengths) * size == len(known):
            labels = [label for row, n in enumerate(lengths) for label in known[row * size : row * size + n]]
        else:
            labels = known[: sum(lengths)]
        operands = {"log_probs": self, "targets": targets}
        require_classes("ctc_loss", labels, classes, operands, f"0 <= label < {classes}")

    def _are_valid(self, labels: Self, in_lengths: Self, out_lengths: Self) -> Self:
        """Return for each sequence whether its labels are classes and its lengths within the bounds."""
        steps, _, classes = self.shape
        wide = labels.cast(least_upper_dtype(labels.dtype, dtypes.int32))
        are_classes = ((wide >= 0) & (wide < classes)).all(1)
        steps_fit = (in_lengths >= 0) & (in_lengths <= steps)
        found: Self = are_classes & steps_fit & (out_lengths >= 0) & (out_lengths <= labels.shape[1])
        return found

    def _padded_labels(self, targets: Self, lengths: Self, batch: int) -> Self:
        """Return label ids as (N, S)."""
        if targets.ndim == 2 or batch == 1:
            return targets.reshape(batch, -1)
        # One after the other: the size of the longest one decides the shape, so it is read.
        read = lengths.tolist()
        require_number(sum(read) <= targets.shape[0], "ctc_loss", "sum of target_lengths", sum(read),
                       f"at most {targets.shape[0]}, the number of ids in targets")  # fmt: skip
        longest = max(0, *read)
        starts = (lengths.cumsum(0) - lengths).unsqueeze(1)
        places = (starts + type(self).arange(longest)).minimum(max(targets.shape[0] - 1, 0))
        return targets[places]

    def _alignment_loss(self, labels: Self, in_lengths: Self, out_lengths: Self, blank: int) -> Self:
        """Return the loss of each sequence; self is (T, N, C), the labels are (N, S)."""
        steps, batch, _ = self.shape
        size = 2 * labels.shape[1] + 1
        place = type(self).arange(size)
        # A blank before, between and behind the labels.
        blanks = labels.const_like(blank).unsqueeze(-1)
        states = blanks.stack(labels.unsqueeze(-1), dim=2).flatten(1).pad((0, 1), value=blank)
        scores = self.gather(2, states.unsqueeze(0).expand(steps, batch, size)).contiguous()
        # From two states before, past a blank, unless that would merge two equal labels.
        before = states.pad((2, 0), value=blank).shrink_to(batch, size)
        may_skip = states.ne(blank) & states.ne(before) & (place >= 2)
        # Before the first step only the empty sequence has been told.
        is_running = (in_lengths > 0).unsqueeze(1)
        alpha = is_running.where((place < 2).where(scores[0], -math.inf), place.eq(0).where(0.0, -math.inf))
        for step in range(1, steps):
            one, two = (alpha.pad((n, 0), value=-math.inf).shrink_to(batch, size) for n in (1, 2))
            ways = alpha.stack(one, may_skip.where(two, -math.inf)).logsumexp(0)
            is_running = (in_lengths > step).unsqueeze(1)
            alpha = is_running.where(ways + scores[step], alpha).contiguous()
        last = 2 * out_lengths.unsqueeze(1)
        is_end = place.eq(last) | (place.eq(last - 1) & (last > 0))
        return -is_end.where(alpha, -math.inf).logsumexp(1)


def _known_lengths(lengths: Lengths) -> list[int] | None:
    """Return lengths that are given as numbers, or as a tensor of few values in memory; None for others."""
    if isinstance(lengths, int):
        return [lengths]
    return list(lengths) if isinstance(lengths, Sequence) else known_values(lengths)
