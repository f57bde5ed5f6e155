"""Windows that overlap as one node whose gradient is stated: each tap sends its share back to where it was read.

In:   a node (..., *spatial), the sizes of the window, strides and dilations.
Out:  its windows (..., *out, *kernel), as ``windows.pool_windows`` views them.
Why:  derived from the view, which repeats the input, the gradient would sum over the repetitions: every place would go
      through divisions for each of them. Stated, it is one sum of shifted images.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.mixin.composite import composite
from tinygrad.record import record

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

MAX_TAPS = 49  # of a window: each is a term of the gradient, which takes time to compile


def overlapping_windows(x: UOp, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> UOp:
    """Return all windows over the last dims: (..., *spatial) becomes (..., *out, *kernel)."""
    are_apart = all((k <= s and d == 1) or k == 1 for k, s, d in zip(kernel, stride, dilation, strict=True))
    if are_apart or prod(kernel) > MAX_TAPS or not dtypes.is_float(x.dtype):
        return x._pool(kernel, stride, dilation)
    gradient = WindowsGradient(kernel, stride, dilation, x.shape[x.ndim - len(kernel) :])
    return composite(lambda a: a._pool(kernel, stride, dilation), (x,), gradient, "windows")


@record(frozen=True)
class WindowsGradient:
    """Gradient function of ``overlapping_windows``; ``size`` is that of the input's last dims."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    size: tuple[Any, ...]

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp]:
        """Return the gradient of the input: the sum over the taps of what each read, at the places where it did."""
        terms = [self._tap(grad, tap) for tap in itertools.product(*map(range, self.kernel))]
        return (sum(terms[1:], terms[0]),)

    def _tap(self, grad: UOp, tap: tuple[int, ...]) -> UOp:
        dims = len(self.kernel)
        lead, out = grad.shape[: grad.ndim - 2 * dims], grad.shape[grad.ndim - 2 * dims : grad.ndim - dims]
        whole, none = (None,) * len(lead), ((0, 0),) * len(lead)
        share = grad.shrink((*whole, *(None for _ in out), *((t, t + 1) for t in tap)))
        # Stride - 1 zeros behind each element but the last: (..., out) -> (..., out, stride) -> (..., reach)
        share = share.reshape((*lead, *(part for n in out for part in (n, 1))))
        share = share.pad((*none, *(gap for s in self.stride for gap in ((0, 0), (0, s - 1)))))
        share = share.reshape((*lead, *(n * s for n, s in zip(out, self.stride, strict=True))))
        reaches = [n * s - s + 1 for n, s in zip(out, self.stride, strict=True)]
        share = share.shrink((*whole, *((0, reach) for reach in reaches)))
        starts = [t * d for t, d in zip(tap, self.dilation, strict=True)]
        ends = [n - start - reach for n, start, reach in zip(self.size, starts, reaches, strict=True)]
        return share.pad((*none, *zip(starts, ends, strict=True)))
