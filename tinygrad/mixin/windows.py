"""Windows over the last dims of a tensor, for pooling and convolution.

In:   a tensor (..., spatial), the sizes of the window, strides and dilations.
Out:  a view (..., windows, kernel): element (y, k) of a dim reads y * stride + k * dilation.
Why:  built from repeat, shrink and reshape alone, so the scheduler sees nothing but index arithmetic, which it
      simplifies to that sum; and where windows do not overlap, from one reshape, so that the gradient is one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tinygrad.errors import error_text
from tinygrad.helpers import ceildiv
from tinygrad.mixin.hooks import exceeds, smax, ssimplify
from tinygrad.mixin.padding import pad_constant

if TYPE_CHECKING:
    from tinygrad.mixin.movement import MovementMixin

X = TypeVar("X", bound="MovementMixin")


def pool_windows(
    x: X, kernel: tuple[int, ...], stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1
) -> X:
    """Return all windows over the last dims: (..., spatial) becomes (..., windows, kernel).

    Raises:
        AssertionError: The kernel is larger than the input.
    """
    count = len(kernel)
    strides, dilations = (
        (v,) * count if isinstance(v, int) else tuple(v) for v in (stride, dilation)
    )  # fmt: skip
    if len(strides) != count or len(dilations) != count or x.ndim < count:
        raise AssertionError(error_text("pool", f"stride {strides}, dilation {dilations} for kernel {kernel}",
                                        {"input": x}, f"{count} numbers each"))  # fmt: skip
    batch, spatial = x.shape[: x.ndim - count], x.shape[x.ndim - count :]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(map(exceeds, spans, spatial)):
        raise AssertionError(error_text("pool", f"kernel {kernel}, dilation {dilations}: larger than the input",
                                        {"input": x}))  # fmt: skip
    # Not ceildiv: a symbolic size is better divided by a positive number.
    out = [ssimplify((n - span) // s + 1) for n, span, s in zip(spatial, spans, strides, strict=True)]
    if all((k <= s and d == 1) or k == 1 for k, s, d in zip(kernel, strides, dilations, strict=True)):
        made = _disjoint(x, kernel, strides, out)
    else:
        made = _overlapping(x, kernel, strides, dilations, out)
    lead = len(batch)
    # (..., w0, k0, w1, k1, ...) -> (..., w0, w1, ..., k0, k1, ...)
    return made.permute([
        *range(lead),
        *(lead + 2 * i for i in range(count)),
        *(lead + 2 * i + 1 for i in range(count)),
    ])


def _disjoint(x: X, kernel: tuple[int, ...], strides: tuple[int, ...], out: list[int]) -> X:
    lead = x.ndim - len(kernel)
    spatial, keep = x.shape[lead:], [None] * lead
    covered = [o * s for o, s in zip(out, strides, strict=True)]
    missing = ((0, smax(c - n, 0)) for c, n in zip(covered, spatial, strict=True))
    x = pad_constant(x, (*((0, 0),) * lead, *missing), 0)
    x = x.shrink([*keep, *((0, c) for c in covered)])
    x = x.reshape((*x.shape[:lead], *(v for o, s in zip(out, strides, strict=True) for v in (o, s))))
    return x.shrink([*keep, *(v for k in kernel for v in (None, (0, k)))])


def _overlapping(
    x: X, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], out: list[int]
) -> X:
    lead = x.ndim - len(kernel)
    batch, spatial, keep = x.shape[:lead], x.shape[lead:], [None] * lead
    per_dim = list(zip(kernel, strides, dilations, spatial, out, strict=True))
    # Row k of the repeated input, cut into rows of f * n + d, starts at position k * d of the input (modulo n).
    # f is 1 unless the stride is so large that out * stride would not fit in one row.
    factors = [_most_rows(o * s - d, s - d, n) for _, s, d, n, o in per_dim]
    rows = [f * n + d for f, (_, _, d, n, _) in zip(factors, per_dim, strict=True)]
    repeats = [k * f + ceildiv(k * d, _smallest(n)) for f, (k, _, d, n, _) in zip(factors, per_dim, strict=True)]
    x = x._tiled((*[1] * lead, *repeats))
    x = x.shrink([*keep, *((0, k * r) for k, r in zip(kernel, rows, strict=True))])
    x = x.reshape((*batch, *(v for k, r in zip(kernel, rows, strict=True) for v in (k, r))))
    x = x.shrink([*keep, *(v for k, s, _, _, o in per_dim for v in ((0, k), (0, o * s)))])
    x = x.reshape((*batch, *(v for k, s, _, _, o in per_dim for v in (k, o, s))))
    x = x.shrink([*keep, *(v for k, _, _, _, o in per_dim for v in ((0, k), (0, o), (0, 1)))])
    x = x.reshape((*batch, *(v for k, _, _, _, o in per_dim for v in (k, o))))
    return x.permute([*range(lead), *(lead + 2 * i + j for i in range(len(kernel)) for j in (1, 0))])


def _smallest(size: Any) -> int:
    return max(size if isinstance(size, int) else int(size.vmin), 1)


def _most_rows(needed: Any, beyond: int, size: Any) -> int:
    """Return how many times ``size`` covers ``needed``, which is at most ``size + beyond`` where it is symbolic."""
    if isinstance(size, int):
        return int(ceildiv(max(needed, size), size))
    return int(1 + ceildiv(max(beyond, 0), _smallest(size)))
