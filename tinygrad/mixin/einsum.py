"""einsum: a formula over named axes, as broadcast products and sums.

In:   a formula and nodes.
Out:  one node. Operands are combined from left to right; a letter is summed as soon as nothing later needs it.
Why:  summing early keeps intermediate products small.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, least_upper_dtype
from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.mixin.composite import ContractionError, contract, contraction_dtypes, sizes_differ
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Labels = tuple[str, ...]


def einsum(formula: str, operands: Sequence[UOp], dtype: DType | None) -> UOp:
    """Evaluate the formula; see ``OpMixin.einsum``."""
    inputs, output = _parse(formula, operands)
    accumulator, result = contraction_dtypes(least_upper_dtype(*(x.dtype for x in operands)), dtype)
    terms = [_diagonals(x, labels) for x, labels in zip(operands, inputs, strict=True)]
    sizes = _sizes(formula, terms)
    unknown = [label for label in output if label not in sizes]
    if unknown:
        raise ShapeError(error_text("einsum", f"output letters {unknown} of {formula!r} occur in no operand"))
    x, labels = terms[0][0].cast(accumulator), terms[0][1]
    for i, (y, y_labels) in enumerate(terms[1:], 1):
        later = set(output).union(*(other for _, other in terms[i + 1 :]))
        merged = tuple(dict.fromkeys(labels + y_labels))
        kept = tuple(label for label in merged if label in later)
        summed = tuple(label for label in merged if label not in later)
        order = kept + summed
        x = contract(_aligned(x, labels, order), _aligned(y, y_labels, order), len(summed), accumulator)
        labels = kept
    extra = tuple(i for i, label in enumerate(labels) if label not in output)
    x = x._rop(Ops.ADD, extra).reshape(tuple(s for i, s in enumerate(x.shape) if i not in extra))
    labels = tuple(label for label in labels if label in output)
    return x.permute(tuple(labels.index(label) for label in output)).cast(result)


def _parse(formula: str, operands: Sequence[UOp]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand's axes and of the output's; an ellipsis becomes labels of its own."""
    left, arrow, right = formula.replace(" ", "").partition("->")
    subscripts = left.split(",")
    if len(subscripts) != len(operands):
        raise ValueError(f"einsum: {formula!r} has {len(subscripts)} subscripts for {len(operands)} operands")
    letters = set(string.ascii_letters)
    for part in (*subscripts, right):
        if set(part.replace("...", "", 1)) - letters:
            raise ValueError(f"einsum: {part!r} in {formula!r}: expected letters and at most one ellipsis")
    free = [x.ndim - len(part.replace("...", "")) for part, x in zip(subscripts, operands, strict=True)]
    for part, x, extra in zip(subscripts, operands, free, strict=True):
        if extra < 0 or (extra > 0 and "..." not in part):
            raise ContractionError(
                error_text(
                    "einsum",
                    f"subscript {part!r} names {len(part.replace('...', ''))} axes, the operand has {x.ndim}",
                    {"operand": x},
                    rule="one letter per axis, or an ellipsis",
                )
            )
    widest = max((extra for part, extra in zip(subscripts, free, strict=True) if "..." in part), default=0)
    broadcast = tuple(f"...{i}" for i in range(widest))
    inputs = [_labels(part, broadcast[widest - extra :]) for part, extra in zip(subscripts, free, strict=True)]
    if not arrow:
        counts = "".join(subscripts).replace(".", "")
        return inputs, (*broadcast, *sorted(c for c in set(counts) if counts.count(c) == 1))
    if len(set(right.replace("...", ""))) != len(right.replace("...", "")):
        raise ShapeError(error_text("einsum", f"output {right!r} of {formula!r} names a letter twice"))
    return inputs, _labels(right, broadcast)


def _labels(part: str, broadcast: Labels) -> Labels:
    before, dots, after = part.partition("...")
    return (*before, *(broadcast if dots else ()), *after)


def _diagonals(x: UOp, labels: Labels) -> tuple[UOp, Labels]:
    """Take the diagonal of every label that occurs more than once."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if sizes_differ(x.shape[first], x.shape[second]):
                raise ContractionError(
                    error_text(
                        "einsum",
                        f"letter {label!r} has sizes {shown(x.shape[first])} and {shown(x.shape[second])}",
                        {"operand": x},
                        rule="one size per letter",
                    )
                )
            x = x.diagonal(dim1=first, dim2=second)
            labels = (*(name for i, name in enumerate(labels) if i not in (first, second)), label)
    return x, labels


def _sizes(formula: str, terms: list[tuple[UOp, Labels]]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for x, labels in terms:
        for label, size in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(label, size)
            if isinstance(known, int) and known == 1:
                sizes[label] = size
            elif sizes_differ(known, size) and not (isinstance(size, int) and size == 1):
                raise ContractionError(
                    error_text(
                        "einsum",
                        f"letter {label!r} of {formula!r} has sizes {shown(known)} and {shown(size)}",
                        {f"operand {i}": y for i, (y, _) in enumerate(terms)},
                        rule="one size per letter",
                    )
                )
    return sizes


def _aligned(x: UOp, labels: Labels, order: Labels) -> UOp:
    """Return x with one axis per label of ``order``, of size 1 where x has none."""
    present = [label for label in order if label in labels]
    turned = x.permute(tuple(labels.index(label) for label in present))
    sizes = dict(zip(present, turned.shape, strict=True))
    return turned.reshape(tuple(sizes.get(label, 1) for label in order))
