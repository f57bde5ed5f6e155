"""The gradient of attention, over blocks of queries and of keys like attention itself.

In:   queries (..., L, d), keys (..., S, d), values (..., S, dv), a mask, what attention returned, and the gradient of
      its result (..., L, dv).
Out:  the gradients of queries, keys, values and mask.
How:  scores are computed again as they were the first time, and divided by the sums that were noted then. A head is one
      iteration of the parallel loop, which adds to the gradients of its keys and values block by block.
Why:  memory grows with L + S instead of L * S here, too. Second derivatives, the gradient of a mask, and heads that are
      fewer than the threads take the formulas with all scores.

Source: Dao, Fu, Ermon, Rudra and Re, "FlashAttention", 2022, arXiv:2205.14135, section B.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv, prod
from tinygrad.mixin.attention_blocks import Blocks, block_sizes
from tinygrad.mixin.gradient import compute_gradient
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


@record(frozen=True)
class AttentionGradient:
    """Gradient function of attention.

    Args:
        causal: Whether query i sees only keys 0 to i.
    """

    causal: bool

    def __call__(self, grad: UOp, _: UOp, call: UOp) -> tuple[UOp | None, ...]:
        """Return the gradients of queries, keys, values and mask."""
        args = call.src[1:]
        out, stats = call.gettuple(0), call.gettuple(1)
        by_scores = _by_scores(grad, *args, causal=self.causal)
        if prod(out.max_shape[:-2]) < _threads(out.device):
            return by_scores
        found = _by_blocks(grad, out, stats, *args, causal=self.causal)
        whole = [_summed_to(x, arg) for x, arg in zip(found, args[:3], strict=True)]
        return (*whole, *by_scores[3:])


def _threads(device: Any) -> int:
    from tinygrad.device import Device

    return Device.described(device).renderer.threads


# ---- with all scores -------------------------------------------------------------------------------------------------


def _by_scores(grad: UOp, q: UOp, k: UOp, v: UOp, *masks: UOp, causal: bool) -> tuple[UOp | None, ...]:
    """Return the gradients of queries, keys, values and masks; the weights are computed again, from all scores."""
    scale = 1.0 / math.sqrt(q.max_shape[-1])
    scores = q.matmul(k.transpose(-2, -1)) * scale
    hidden: Any = None
    if causal:
        hidden = scores.const_like(True, dtypes.bool).tril()
    for mask in masks:
        if mask.dtype == dtypes.bool:
            hidden = mask
        else:
            scores = scores + mask
    weights = _weights(scores if hidden is None else hidden.where(scores, -math.inf))
    direct = grad.matmul(v.transpose(-2, -1))
    slope = weights * (direct - (weights * direct).sum(axis=-1, keepdim=True))
    gradients: list[UOp | None] = [
        _summed_to(slope.matmul(k) * scale, q),
        _summed_to(slope.transpose(-2, -1).matmul(q) * scale, k),
        _summed_to(weights.transpose(-2, -1).matmul(grad), v),
    ]
    return (*gradients, *(None if m.dtype == dtypes.bool else _summed_to(slope, m) for m in masks))


def _weights(scores: UOp) -> UOp:
    """Return the softmax of each row, zeros for a row that is -inf throughout."""
    largest = scores.max(axis=-1, keepdim=True).detach()
    powers = (scores - (largest > -math.inf).where(largest, 0.0)).exp()
    total = powers.sum(axis=-1, keepdim=True)
    return powers / (total > 0).where(total, 1.0)


def _summed_to(grad: UOp, like: UOp) -> UOp:
    """Sum a gradient over the dims along which ``like`` was broadcast."""
    shape = (1,) * (grad.ndim - like.ndim) + tuple(like.max_shape)
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and grad.max_shape[i] != 1)
    return (grad.sum(axis=axes, keepdim=True) if axes else grad).reshape(like.shape)


# ---- by blocks -------------------------------------------------------------------------------------------------------


def _by_blocks(grad: UOp, out: UOp, stats: UOp, *args: UOp, causal: bool) -> list[UOp]:
    """Return the gradients of queries, keys and values, with the leading dims of the result."""
    from tinygrad.uop.ops import UOp

    given = (grad, out, stats, *args)
    params = [x.param_like(slot) for slot, x in enumerate(given)]
    body = UOp.maketuple(*_body(*params, causal=causal))
    call = body.call(*given, grad_fxn=_SecondDerivative(causal), name="attention_gradient")
    return [call.gettuple(i) for i in range(3)]


def _body(
    grad: UOp, out: UOp, stats: UOp, q: UOp, k: UOp, v: UOp, mask: UOp | None = None, *, causal: bool
) -> list[UOp]:
    from tinygrad.device import canonicalize_device
    from tinygrad.uop.ops import UOp

    device = canonicalize_device(q.device)
    assert isinstance(device, str)
    lead = out.max_shape[:-2]
    # What the sum of a row of weights loses by a change of one of its scores.
    loss = (grad * out).sum(axis=-1).reshape((prod(lead), out.max_shape[-2]))
    inputs = [loss, stats, *(x.contiguous() for x in (grad, q, k, v))]
    if mask is not None:
        inputs.append(mask.transpose(-2, -1).contiguous())
    shapes = [(*lead, *x.max_shape[-2:]) for x in (q, k, v)]
    outs = [UOp.new_buffer(device, prod(shape), q.dtype).reshape(shape) for shape in shapes]
    return UOp.custom_kernel(*outs, *inputs, fxn=_Kernel(causal))[:3]


@record(frozen=True)
class _SecondDerivative:
    """Gradient function of the gradients: that of the formulas with all scores.

    Args:
        causal: As for attention.
    """

    causal: bool

    def __call__(self, *grads: UOp, call: UOp) -> tuple[UOp | None, ...]:
        """Return the gradients of the arguments of ``_body``; ``out`` and ``stats`` stand for what q, k and v make."""
        given = call.src[1:]
        # Arguments may depend on each other: what is behind them is not part of this.
        grad, _, _, *args = params = [x.param_like(slot) for slot, x in enumerate(given)]
        results = _by_scores(grad, *args, causal=self.causal)[:3]
        total = _sum([(x * g.detach()).sum() for x, g in zip(results, grads, strict=True) if x is not None])
        found = compute_gradient(total, total.const_like(1), [p for p in params if dtypes.is_float(p.dtype)])
        values = dict(zip(params, given, strict=True))
        return tuple(found[p].substitute(values) if p in found else None for p in params)


def _sum(terms: Sequence[UOp]) -> UOp:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@record(frozen=True)
class _Kernel:
    """Maker of the kernel: one loop over heads, in parallel; inside, loops over blocks of queries and of keys.

    Args:
        causal: As for attention.
    """

    causal: bool

    def __call__(
        self, q_grad: UOp, k_grad: UOp, v_grad: UOp, loss: UOp, stats: UOp, grad: UOp, q: UOp, k: UOp, v: UOp,
        mask: UOp | None = None,
    ) -> UOp:  # fmt: skip
        """Return the kernel.

        Args:
            q_grad: (..., L, d), with all leading dims.
            k_grad: (..., S, d), with all leading dims.
            v_grad: (..., S, dv), with all leading dims.
            loss: (heads, L).
            stats: (heads, 2, L).
            grad: (..., L, dv).
            q: (..., L, d).
            k: (..., S, d).
            v: (..., S, dv).
            mask: (..., S, L) or with sizes of 1.
        """
        block = _Backward(q_grad, v, q, k)
        block.clear_rows(k_grad)
        block.clear_rows(v_grad)
        rows = block.loop(ceildiv(block.length, block.queries))
        block.enter(rows)
        block.first = rows * block.queries
        block.start(q, grad, loss, stats)
        number = block.loop(block.blocks_of_keys(self.causal))
        block.enter(number)
        block.score(k, mask, number, self.causal)
        block.weigh()
        block.add_rows(v_grad, "scores", grad, number)
        block.slope(v, number)
        block.add_rows(k_grad, "slopes", q, number, scale=1.0 / math.sqrt(block.depth))
        block.add_queries(k, number)
        block.leave(number)
        block.store(q_grad)
        block.leave(rows)
        return block.finish("attention_gradient", *block.lead, block.length, block.count, block.depth)


class _Backward(Blocks):
    """What is done for one head: nests of loops, one after the other.

    Args:
        q_grad: The gradient of the queries, with all leading dims.
        v: Values.
        q: Queries.
        k: Keys.
    """

    def __init__(self, q_grad: UOp, v: UOp, q: UOp, k: UOp) -> None:
        lead, self.width = q_grad.max_shape[:-2], v.max_shape[-1]
        super().__init__(prod(lead), lead, q, k, q.dtype, block_sizes(q.max_shape[-2], k.max_shape[-2]))
        self.head = self.group
        self.keep_rows(queries=self.depth, grads=self.width, scores=self.keys, slopes=self.keys, sums=self.depth)
        self.keep_rows(loss=1, shift=1, factor=1)

    def clear_rows(self, x: UOp) -> None:
        """Set what belongs to the head in (..., S, n) to 0."""
        j, c = self.loop(self.count), self.loop(x.max_shape[-1])
        self.run(self.memory(x).index(*self.heads(x), j, c).store(0.0), j, c)

    def start(self, q: UOp, grad: UOp, loss: UOp, stats: UOp) -> None:
        """Copy what is known of a block of queries; clear the sums."""
        self.transpose_queries(q)
        self.transpose("grads", grad)
        i = self.loop(self.queries)
        query, is_query = self.query(i)
        shift, factor = (stats.index(self.head, self.head * 0 + n, query, gate=is_query) for n in range(2))
        values = {"loss": loss.index(self.head, query, gate=is_query), "shift": shift, "factor": factor}
        stores = [self.of(name, i).store(value) for name, value in values.items()]
        self.run(stores[0].group(*stores[1:]), i)
        self.clear("sums", self.depth)

    def weigh(self) -> None:
        """Turn scores into weights."""
        j, i = self.loop(self.keys), self.loop(self.queries)
        score = self.of("scores", i, j)
        self.run(score.store((score - self.of("shift", i)).exp2() * self.of("factor", i)), j, i)

    def slope(self, v: UOp, number: UOp) -> None:
        """Store the gradients of a block of scores."""
        j, i, d = self.loop(self.keys), self.loop(self.queries), self.loop(self.width, AxisType.REDUCE)
        key, _ = self.key(number, j)
        product = self.of("grads", i, d) * v.index(*self.heads(v), key, d)
        direct = product.reduce(d, arg=Ops.ADD)
        slope = self.of("scores", i, j) * (direct - self.of("loss", i))
        self.run(self.of("slopes", i, j).store(slope), j, i)

    def add_rows(self, out: UOp, name: str, x: UOp, number: UOp, scale: float = 1.0) -> None:
        """Add to rows of a block of keys in (..., S, n) the rows of (..., L, n), weighted by scratch memory."""
        j, c, i = self.loop(self.keys), self.loop(x.max_shape[-1]), self.loop(self.queries, AxisType.REDUCE)
        (key, is_new), (query, is_query) = self.key(number, j), self.query(i)
        product = self.of(name, i, j) * x.index(*self.heads(x), query, c, gate=is_query)
        place = self.memory(out).index(*self.heads(out), key, c, gate=is_new)
        total = product.reduce(i, arg=Ops.ADD)
        self.run(place.store(place + (total if scale == 1.0 else total * scale)), j, c)

    def add_queries(self, k: UOp, number: UOp) -> None:
        """Add the keys of a block, weighted by the slopes, to the sums."""
        c, i, j = self.loop(self.depth), self.loop(self.queries), self.loop(self.keys, AxisType.REDUCE)
        key, is_new = self.key(number, j)
        product = self.of("slopes", i, j) * k.index(*self.heads(k), key, c, gate=is_new)
        sums = self.of("sums", i, c)
        self.run(sums.store(sums + product.reduce(j, arg=Ops.ADD)), c, i)

    def store(self, q_grad: UOp) -> None:
        """Store the gradients of a block of queries."""
        i, c = self.loop(self.queries), self.loop(self.depth)
        query, is_query = self.query(i)
        place = self.memory(q_grad).index(*self.heads(q_grad), query, c, gate=is_query)
        self.run(place.store(self.of("sums", i, c) * (1.0 / math.sqrt(self.depth))), i, c)
