"""Indexed writes as functions.

In:   a tensor, an index and a value.
Out:  a new tensor that was written to.
Why:  tables of calls are made of expressions, and ``x[i] = v`` is a statement.
"""

from __future__ import annotations

from typing import Any

from tinygrad import Tensor


def overwritten(x: Tensor, items: Any, value: Any) -> Tensor:
    """Return a copy of ``x`` in which what an index selects has another value."""
    y = x * 1
    y[items] = value
    return y
