"""Attention whose scores are never in memory as a whole: softmax(q k^T + mask) v over blocks of queries and of keys.

In:   queries (..., L, d), keys (..., S, d), values (..., S, dv) and a mask (..., L, S), whose leading dims broadcast.
Out:  a FUNCTION of one kernel (attention_blocks.py) with a gradient of its own (attention_gradient.py): the result
      (..., L, dv).
Why:  memory grows with L + S instead of L * S, and blocks of keys that a causal mask hides are never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.helpers import all_int, prod
from tinygrad.mixin.attention_blocks import AttentionKernel
from tinygrad.mixin.attention_gradient import AttentionGradient
from tinygrad.mixin.nests import has_fast_scratch

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# Below these sizes the scores stay in the caches anyway.
MIN_QUERIES, MIN_SCORES = 16, 1 << 12
MAX_DEPTH = 512  # of keys and values: blocks of them are in scratch memory


def is_worth_blocks(q: UOp, k: UOp, v: UOp, mask: UOp | None = None) -> bool:
    """Return whether ``attention`` takes these arguments, and is better than products with all scores."""
    args = (q, k, v) if mask is None else (q, k, v, mask)
    if any(x.ndim < 2 or not all_int(x.shape) or 0 in x.shape for x in args):
        return False
    length, count, depth, width = q.max_shape[-2], *k.max_shape[-2:], v.max_shape[-1]
    lead = _broadcast([x.max_shape[:-2] for x in args])
    fits = q.max_shape[-1] == depth and v.max_shape[-2] == count and lead is not None
    if mask is not None:
        fits = fits and all(n in (1, size) for n, size in zip(mask.max_shape[-2:], (length, count), strict=True))
    is_large = length >= MIN_QUERIES and length * count >= MIN_SCORES and max(depth, width) <= MAX_DEPTH
    return fits and is_large and has_fast_scratch(q.device)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape to which all broadcast, or None."""
    longest = max(map(len, shapes))
    dims = zip(*((1,) * (longest - len(shape)) + shape for shape in shapes), strict=True)
    sizes = [set(dim) - {1} for dim in dims]
    return None if any(len(s) > 1 for s in sizes) else tuple(max(s, default=1) for s in sizes)


def share_heads(q: UOp, *others: UOp) -> list[UOp]:
    """Give each head of keys and values (dim -3) its group of query heads: a dim more, along which they broadcast."""
    groups = others[0].shape[-3]
    found = []
    for x in (q, *others):
        if x.ndim > 2:
            split = (1, 1) if x.shape[-3] == 1 else (groups, x.shape[-3] // groups)
            x = x.reshape((*x.shape[:-3], *split, *x.shape[-2:]))
        found.append(x)
    return found


def attention(q: UOp, k: UOp, v: UOp, mask: UOp | None = None, *, causal: bool = False) -> UOp:
    """Return softmax(q @ k.T / sqrt(d) + mask) @ v in the dtype of the arguments; rows without keys are 0.

    Args:
        q: (..., L, d), float32 or float64.
        k: (..., S, d), same dtype; leading dims broadcast with those of q.
        v: (..., S, dv), same dtype.
        mask: (..., L, S) or broadcast to it: bool, True where a key counts, or numbers that are added.
        causal: Whether query i sees only keys 0 to i.
    """
    from tinygrad.uop.ops import UOp

    args = (q, k, v) if mask is None else (q, k, v, mask)
    body = _body(*(arg.param_like(slot) for slot, arg in enumerate(args)), causal=causal)
    return UOp.maketuple(*body).call(*args, grad_fxn=AttentionGradient(causal), name="attention").gettuple(0)


def _body(q: UOp, k: UOp, v: UOp, mask: UOp | None = None, *, causal: bool) -> list[UOp]:
    """Return the result and, for the gradient, (heads, 2, L) numbers of the rows of scores."""
    from tinygrad.device import canonicalize_device
    from tinygrad.uop.ops import UOp

    args = [q.contiguous(), k.contiguous(), v.contiguous()]
    lead = _broadcast([x.max_shape[:-2] for x in (*args, *(() if mask is None else (mask,)))])
    assert lead is not None
    if mask is not None:
        # The queries of a block lie beside each other in the scores, so they should in the mask.
        args.append(mask.transpose(-2, -1).contiguous())
    device = canonicalize_device(q.device)
    assert isinstance(device, str)
    length = q.max_shape[-2]
    shapes = ((*lead, length, v.max_shape[-1]), (prod(lead), 2, length))
    outs = [UOp.new_buffer(device, prod(shape), q.dtype).reshape(shape) for shape in shapes]
    return UOp.custom_kernel(*outs, *args, fxn=AttentionKernel(causal))[:2]
