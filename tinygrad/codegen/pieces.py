"""Which bytes of its buffers each iteration of a kernel's THREAD loop touches.

In:   the SINK of an optimised kernel, its ranges still symbolic.
Out:  ``pieces(sink, buffers)``: for each buffer the bytes that every iteration has for itself, or 0.
Why:  where two kernels cut a buffer alike, an iteration of the second needs only the same iteration of the first: a
      thread goes on to the next kernel without waiting for the others (engine/joining.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tinygrad.codegen.late.affine import affine
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp


@record(frozen=True)
class _Cut:
    """Iteration t touches elements ``t * step`` to ``(t + 1) * step - 1``.

    Args:
        step: Elements.
        overlaps: The last iteration may begin up to ``step`` elements sooner.
    """

    step: int
    overlaps: bool


def _start(term: UOp, factor: int, thread: UOp) -> _Cut | None:
    """Return how ``factor * term``, which depends on the THREAD range alone, grows with it.

    Two forms are known: a multiple of the range, and one that OVERLAP has limited for the last iteration, which is
    written ``max(t * -5, -123) * -128``.
    """
    if term is thread:
        return _Cut(factor, overlaps=False)
    if term.op is not Ops.MAX or term.src[1].op is not Ops.CONST:
        return None
    inner, const = affine(term.src[0])
    if const or list(inner) != [thread]:
        return None
    slope, limit, last = inner[thread], term.src[1].arg, thread.vmax
    is_limited_once = slope * (last - 1) >= limit > slope * last
    return _Cut(factor * slope, overlaps=True) if is_limited_once else None


def _limits(gate: UOp) -> Iterator[tuple[dict[UOp, int], int]]:
    """Return sums and their largest value, for each part ``a*i + b*j < c`` of the condition of an access."""
    for part in gate.split_uop(Ops.AND):
        if part.op is Ops.CMPLT and part.src[1].op is Ops.CONST:
            terms, const = affine(part.src[0])
            yield terms, part.src[1].arg - 1 - const


def _loop_limits(loop: UOp) -> Iterator[tuple[dict[UOp, int], int]]:
    """Return sums and their largest value for a loop that is shorter in the last of its blocks (``opt/trim.py``).

    Its end is the least of some sums, written ``~max(~a, ~b)``: in each, the loop stays below.
    """
    end = loop.src[0].simplify()
    if not _is_inverse(end) or end.src[0].op is not Ops.MAX:
        return
    for part in sorted(end.src[0].src, key=lambda u: u.op is Ops.CONST):  # what depends on the block first
        terms, const = affine(part.src[0] if _is_inverse(part) else part)
        if not _is_inverse(part):  # ~x is -x - 1
            terms, const = {term: -factor for term, factor in terms.items()}, -const - 1
        yield {**{term: -factor for term, factor in terms.items()}, loop: 1}, const - 1


def _is_inverse(u: UOp) -> bool:
    return u.op is Ops.XOR and u.src[1].op is Ops.CONST and u.src[1].arg == -1


def _most(terms: dict[UOp, int], gate: UOp | None) -> int:
    """Return the largest value that a sum has where the condition holds."""
    most: int = 0
    left = dict(terms)
    loops = (limit for term in terms if term.op is Ops.RANGE for limit in _loop_limits(term))
    for sum_, largest in itertools.chain(_limits(gate) if gate is not None else (), loops):
        factors = {left.get(term, 0) / factor for term, factor in sum_.items()}
        factor = factors.pop() if len(factors) == 1 else 0
        if factor == int(factor) > 0:
            most += int(factor) * largest
            left = {term: f for term, f in left.items() if term not in sum_}
    for term, factor in left.items():
        most += max(factor * term.vmin, factor * term.vmax)
    return most


def _cut(access: UOp, thread: UOp) -> _Cut | None:
    """Return which elements an INDEX touches in each iteration; None if it is not known to be a cut."""
    terms, const = affine(access.src[1])
    own = {term: factor for term, factor in terms.items() if thread not in term.backward_slice_with_self}
    starts = [_start(term, factor, thread) for term, factor in terms.items() if term not in own]
    known = [start for start in starts if start is not None and start.step > 0]
    if len(known) < len(starts):
        return None
    step = sum(start.step for start in known)
    least = const + sum(min(factor * term.vmin, factor * term.vmax) for term, factor in own.items())
    most = const + _most(own, access.src[2] if len(access.src) > 2 else None)
    if least < 0 or most >= step:
        return None
    return _Cut(step, any(start.overlaps for start in known))


def pieces(sink: UOp, buffers: Sequence[UOp]) -> tuple[tuple[int, ...], bool]:
    """Return which bytes the iterations of the THREAD loop have for themselves.

    Args:
        sink: An optimised kernel.
        buffers: One PARAM of each buffer.

    Returns:
        For each buffer the number n for which iteration t touches no bytes but those from ``t * n`` to
        ``t * n + n - 1``, and 0 where there is none (all of it may be touched by all); and whether the last iteration
        may also touch bytes of the one before. Empty for a kernel without a THREAD loop of fixed length, and for one
        with matrix units, which touch more than the elements that they index.
    """
    nodes = list(sink.toposort())
    threads = [u for u in nodes if u.op is Ops.RANGE and u.arg[-1] is AxisType.THREAD]
    if len(threads) != 1 or threads[0].src[0].op is not Ops.CONST or any(u.op is Ops.WMMA for u in nodes):
        return (), False
    cuts: dict[int, set[tuple[int, bool]]] = {buffer.arg.slot: set() for buffer in buffers}
    for node in nodes:
        for position, source in enumerate(node.src):
            if source.op is not Ops.PARAM or source.arg.slot not in cuts:
                continue
            cut = _cut(node, threads[0]) if node.op is Ops.INDEX and position == 0 else None
            nbytes = 0 if cut is None else cut.step * source.dtype.itemsize
            cuts[source.arg.slot].add((nbytes, cut is not None and cut.overlaps))
    found = [cuts[buffer.arg.slot] for buffer in buffers]
    sizes = [{nbytes for nbytes, _ in cut} for cut in found]
    own = tuple(size.pop() if len(size) == 1 else 0 for size in sizes)
    return own, any(n > 0 and overlaps for n, cut in zip(own, found, strict=True) for _, overlaps in cut)
