"""The kernels of the linear algebra: one loop nest per matrix, written by hand.

In:   placeholders of a batch of matrices, stored by columns, that the kernels work on in place.
Out:  SINKs of kernels: Householder reflections, Jacobi rotations, Gauss-Jordan elimination.
Why:  these algorithms are loops of dependent steps. As tensor operations every step would be several kernels; here the
      steps are a loop inside of one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

MOST_SWEEPS = 30


def _ranges() -> Callable[..., UOp]:
    """Return a maker of fresh loops: ``loop(size)``, ``loop(size, AxisType.REDUCE)``."""
    from tinygrad.uop.ops import UOp

    numbers = itertools.count()
    return lambda size, kind=AxisType.LOOP: UOp.range(size, next(numbers), kind)


def _sum(term: Callable[[UOp], UOp], over: UOp) -> UOp:
    return term(over).reduce(over, arg=Ops.ADD)


def _kernel(sink: UOp, name: str, *sizes: int) -> UOp:
    from tinygrad.uop.ops import KernelInfo

    return sink.sink(arg=KernelInfo(name="_".join(map(str, (name, *sizes))), opts_to_apply=()))


def _absolute(x: UOp) -> UOp:
    return (x < 0).where(x * -1, x)


def _smallest_normal(dtype: DType) -> float:
    exponent_bits, _ = dtypes.finfo(dtype)
    return float(2.0 ** (2 - (1 << (exponent_bits - 1))))


def householder(q: UOp, r: UOp, reflectors: UOp, factors: UOp) -> UOp:
    """Return the kernel of the QR decomposition.

    Step k reflects the columns so that column k is 0 below the diagonal: H = 1 - factor * v v^T. Then the reflections
    are applied to the columns of ``q`` in reverse order.

    Args:
        q: (batch, columns, m), the leading columns of the identity; becomes those of Q.
        r: (batch, n, m), the columns of the matrix; becomes those of R (with rounding errors below the diagonal).
        reflectors: (batch, steps, m) scratch, v of each step.
        factors: (batch, steps) scratch.
    """
    from tinygrad.uop.ops import UOp

    loop = _ranges()
    batch, columns, m = q.max_shape
    n, steps = r.max_shape[1], reflectors.max_shape[1]
    b, k = loop(batch, AxisType.GLOBAL), loop(steps)
    now = r.after(k)

    # v is the column below the diagonal, its first entry moved away from 0 by the norm:
    # |v|^2 / 2 = norm * (norm + |head|). It is measured in units of its largest entry, as columns that are rounding
    # errors have squares that underflow. Subnormal numbers, of which there may be no reciprocal, count as 0.
    i = loop(m, AxisType.REDUCE)
    size = (i < k).where(0, _absolute(now[b, k, i])).reduce(i, arg=Ops.MAX)
    unit = (size < _smallest_normal(r.dtype)).where(0, size.reciprocal())
    norm = _sum(lambda i: (i < k).where(0, (now[b, k, i] * unit) * (now[b, k, i] * unit)), loop(m, AxisType.REDUCE))
    norm = norm.sqrt()
    head = now[b, k, k] * unit
    half_square = norm * (norm + _absolute(head))
    factor = (half_square > 0).where(half_square.reciprocal(), 0)
    first = head + (head < 0).where(norm * -1, norm)
    i = loop(m)
    v = reflectors[b, k, i].set((i < k).where(0, i.eq(k).where(first, now[b, k, i] * unit)), end=i)

    j = loop(n)
    along = _sum(lambda i: v[b, k, i] * now[b, j, i], loop(m, AxisType.REDUCE)) * factor
    i = loop(m)
    update = now[b, j, i].store(now[b, j, i] - along * v[b, k, i]).end(i).end(j)
    reflected = UOp.group(update, factors[b, k].store(factor)).end(k)

    k = loop(steps)
    step = (steps - 1) - k
    v, factors, now = reflectors.after(reflected), factors.after(reflected), q.after(k)
    j = loop(columns)
    along = _sum(lambda i: v[b, step, i] * now[b, j, i], loop(m, AxisType.REDUCE)) * factors[b, step]
    i = loop(m)
    update = now[b, j, i].store(now[b, j, i] - along * v[b, step, i]).end(i).end(j).end(k)
    return _kernel(update.end(b), "qr", batch, n, m, columns)


def jacobi(w: UOp, v: UOp) -> UOp:
    """Return the kernel of the one-sided Jacobi method: columns are rotated in pairs until all are orthogonal.

    Every rotation leaves the longer column first, so that the columns end up sorted. The sweeps stop when one rotates
    nothing.

    Args:
        w: (batch, n, m), the columns of a matrix scaled to about 1; becomes those of U S.
        v: (batch, n, n), the identity; becomes the columns of V.
    """
    from tinygrad.uop.ops import UOp

    loop = _ranges()
    batch, n, m = w.max_shape
    dtype = w.dtype
    b = loop(batch, AxisType.GLOBAL)
    active = UOp.placeholder((1,), dtypes.int32, 0, AddrSpace.REG)
    active = active.after(b)[0].set(1)
    sweep = loop(MOST_SWEEPS)
    working = active.after(sweep)[0]
    idle = active.after(sweep)[0].set(working * 0)
    p = loop((working.ne(0)).where(UOp.const(n - 1, dtypes.weakint), 0))
    d = loop(n - 1 - p)
    q = p + 1 + d
    now, turned = w.after(p, d), v.after(p, d)

    i = loop(m, AxisType.REDUCE)
    square_p = (now[b, p, i] * now[b, p, i]).reduce(i, arg=Ops.ADD)
    square_q = (now[b, q, i] * now[b, q, i]).reduce(i, arg=Ops.ADD)
    product = (now[b, p, i] * now[b, q, i]).reduce(i, arg=Ops.ADD)
    turn = _Rotation(square_p, square_q, product, dtype)
    effects = []
    for columns, length in ((now, m), (turned, n)):
        i = loop(length)
        x, y = turn.apply(columns[b, p, i], columns[b, q, i])
        effects.append(UOp.group(columns[b, p, i].store(x), columns[b, q, i].store(y)).end(i))
    seen = idle.after(p, d)[0]
    note = idle.after(p, d)[0].store(turn.moves.where(seen.const_like(1), seen))
    return _kernel(UOp.group(*effects, note).end(d).end(p).end(sweep).end(b), "jacobi", batch, n, m)


class _Rotation:
    """The rotation that makes two columns orthogonal, and leaves the longer one first.

    Args:
        square_p: Square of the length of the first column.
        square_q: That of the second.
        product: Their scalar product.
        dtype: Of the columns.
    """

    def __init__(self, square_p: UOp, square_q: UOp, product: UOp, dtype: DType) -> None:
        tiny = 2.0 ** -(52 if dtype is dtypes.float64 else 23)
        # Columns shorter than ``tiny`` are rounding errors of the longest one: they would never come to rest.
        bound = (square_p.sqrt().maximum(tiny) * square_q.sqrt().maximum(tiny)) * (4 * tiny)
        needed = bound < _absolute(product)
        zeta = (square_q - square_p) / (needed.where(product, 1) * 2)
        tangent = (zeta < 0).where(-1.0, 1.0) / (_absolute(zeta) + (zeta * zeta + 1).sqrt())
        tangent = needed.where(tangent.cast(dtype), 0)
        cosine = (tangent * tangent + 1).sqrt().reciprocal()
        self.sine = cosine * tangent
        self.half_tangent = self.sine / (cosine + 1)
        # Exchanging counts only where it is more than rounding, or equal columns would never come to rest.
        longer, shorter = square_q + tangent * product, square_p - tangent * product
        self.exchange = shorter * (1 + 16 * tiny) + tiny * tiny < longer
        self.moves = needed | self.exchange

    def apply(self, x: UOp, y: UOp) -> tuple[UOp, UOp]:
        """Return one element of each column after the rotation."""
        # As corrections of x and y: small angles then cost no accuracy.
        first = x - self.sine * (y + self.half_tangent * x)
        second = y + self.sine * (x - self.half_tangent * y)
        return self.exchange.where(second, first), self.exchange.where(first * -1, second)


def gauss_jordan(a: UOp) -> UOp:
    """Return the kernel that turns rows [matrix | identity] into [identity | inverse], with row pivoting.

    Args:
        a: (batch, n, 2 * n).
    """
    from tinygrad.uop.ops import UOp

    loop = _ranges()
    batch, n, width = a.max_shape
    b, k = loop(batch, AxisType.GLOBAL), loop(n)
    now = a.after(k)

    best = UOp.placeholder((1,), a.dtype, 0, AddrSpace.REG).after(b, k)[0].set(-1.0)
    place = UOp.placeholder((1,), dtypes.int32, 1, AddrSpace.REG).after(b, k)[0].set(k.cast(dtypes.int32))
    d = loop(n - k)
    size = _absolute(now[b, k + d, k])
    largest, where = best.after(d)[0], place.after(d)[0]
    better = largest < size
    found = UOp.group(
        largest.store(better.where(size, largest)), where.store(better.where((k + d).cast(dtypes.int32), where))
    ).end(d)
    pivot = place.after(found)[0].cast(dtypes.weakint)

    j = loop(width)
    upper, lower = now[b, k, j], now[b, pivot, j]
    exchanged = now.after(UOp.group(upper.store(lower), lower.store(upper)).end(j))
    scale = exchanged[b, k, k].reciprocal()
    j = loop(width)
    scaled = exchanged[b, k, j].set(exchanged[b, k, j] * scale, end=j)
    i = loop(n)
    factor = i.eq(k).where(0, scaled[b, i, k])
    j = loop(width)
    cleared = scaled[b, i, j].store(scaled[b, i, j] - factor * scaled[b, k, j]).end(j).end(i)
    return _kernel(cleared.end(k).end(b), "inverse", batch, n)
