"""Checks of arguments that several functions share.

In:   a condition that must hold, and what to say where it does not.
Out:  nothing, or an error that names the operation and its operands.
Why:  a composition of other methods fails inside of one of them, in words about reshapes that nobody wrote; or it does
      not fail, and gives numbers for a question without an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.errors import ArgumentError, ShapeError, error_text, shown


def require_shape(holds: bool, op: str, fault: str, operands: dict[str, Any], rule: str) -> None:
    """Raise a ShapeError unless a condition on sizes holds."""
    if not holds:
        raise ShapeError(error_text(op, fault, operands, rule))


def require_number(holds: bool, op: str, name: str, value: Any, rule: str) -> None:
    """Raise a ValueError unless a condition on an argument holds."""
    if not holds:
        raise ValueError(error_text(op, f"{name}={shown(value)}", rule=rule))


def require_int(op: str, name: str, value: Any, least: int) -> None:
    """Raise unless an argument is an int that is not below ``least``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentError(error_text(op, f"{name} is {shown(value)}", rule=f"{name} is an int, at least {least}"))
    require_number(value >= least, op, name, value, f"{name} >= {least}")


def require_same_shape(op: str, **operands: Any) -> None:
    """Raise a ShapeError unless all operands have one shape. None stands for an operand that is not given."""
    given = {name: x for name, x in operands.items() if x is not None}
    shapes = {tuple(x.shape) for x in given.values()}
    require_shape(len(shapes) <= 1, op, "shapes differ", given, "equal shapes: nothing is broadcast here")


def require_last_dims(op: str, x: Any, sizes: Sequence[int], **weights: Any) -> None:
    """Raise a ShapeError unless the last dims of x have these sizes, and weights of theirs too."""
    fits = 0 < len(sizes) <= x.ndim and tuple(x.shape[x.ndim - len(sizes) :]) == tuple(sizes)
    fits = fits and all(w is None or tuple(w.shape) == tuple(sizes) for w in weights.values())
    given = {"input": x, **{name: w for name, w in weights.items() if w is not None}}
    require_shape(fits, op, f"normalized_shape {shown(tuple(sizes))}", given, "the sizes of the last dims")
