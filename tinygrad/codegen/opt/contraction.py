"""The policy of contractions: matmul, convolution and their gradients, sum over k of A(i, k) * B(j, k).

In:   a Schedule and the facts about its kernel.
Out:  the Schedule with steps applied, or untouched if the kernel is no contraction with work on both sides.
Why:  speed is a register tile: lanes and a few vectors along j, copies along i, so that every loaded element is used
      many times. The tile is searched over the real sizes, because one that fits (x = 20: 10 and 10) beats a good one
      that leaves a rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Access, Kernel
from tinygrad.codegen.opt.blocking import needs_no_copies, optimize_blocked, run_blocks_in_parallel
from tinygrad.codegen.opt.loops import (
    LOOPS,
    MAX_CHAIN,
    block_long_sums,
    position,
    use_threads,
    vectorize_output,
    vectorize_reduce,
)
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.opt.slabs import copy_slabs
from tinygrad.codegen.opt.strips import optimize_strips
from tinygrad.codegen.opt.tile_blocks import optimize_tiled
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

FMA_LATENCY = 4  # cycles until a result can be added to again; two pipes make 8 chains the least
CHAIN = 64  # iterations of one float sum at most, before blocks are summed on their own
# Operations of single elements in the time of one: multiply and add are one instruction, and two start per cycle.
TILE_SHARES = 4
# Iterations of the parallel loop per thread. One is long and all take the same time, so that joining loops for more of
# them costs more (what inner loops share is computed in each) than waiting for the last one.
SHARE_PIECES = 8
STREAMS, STREAM_VECTORS = 4, 2  # rows of matrix x vector at once, and vectors of each
MANY_ROWS = 64  # with fewer rows of matrix x vector, too little would be left for threads
LOAD_COST = 0.05  # cycles of a load that multiply-adds hide: it competes with them for what decodes and retires
PIECE = 4  # copies beside each other that are worth storing as pieces of rows
TRANSPOSED, STAGED = 0.5, 2.5  # cycles to store one element of lanes that lie apart, as pieces of rows and alone
UNEVEN_STEP = 0.5  # cycles lost per step, whatever its length: what arrives late, and the loop
LONGEST_UNROLLED = 8  # iterations of a reduce loop that are copies of its body
LARGE = optimize_tiled, optimize_strips, optimize_blocked  # policies of large products, the best first
NEAR_SHARE = 2  # what is read again and again stays in this part of the memory near a core
# Rows and columns of sums whose terms are lanes: as many as are fastest, at most, and what a tile must gain over it for
# each one more or less.
DOT_SIDE, DOT_MOST, DOT_OTHER = 4, 8, 0.02
BODY = 128  # fused multiply-adds in a loop body: long enough to hide the loop, short enough for the decoder


@record
class Sides:
    """A product under a sum: the accesses of both factors, and the output ranges that only one of them depends on."""

    reduce: UOp
    loads: tuple[list[Access], list[Access]]
    ranges: tuple[list[UOp], list[UOp]]
    contracted: list[UOp]


def _strip_casts(u: UOp) -> UOp:
    while u.op is Ops.CAST:
        u = u.src[0]
    return u


def find_contraction(kernel: Kernel) -> Sides | None:
    """Return the kernel's contraction, or None."""
    if len(kernel.reduces) != 1:
        return None
    node = kernel.reduces[0]
    product = _strip_casts(node.src[0])
    if node.arg[0] is not Ops.ADD or product.op is not Ops.MUL:
        return None
    below = [set(s.toposort()) for s in product.src]
    loads = tuple([a for a in kernel.accesses if not a.is_store and a.node in b] for b in below)
    opens = [kernel.open(s) for s in product.src]
    output = kernel.open(node)
    constant = {r for r in kernel.ranges if r.src[0].op is Ops.CONST}
    sides = tuple([r for r in kernel.ranges if r in output and r in mine and r not in other and r in constant]
                  for mine, other in (opens, opens[::-1]))  # fmt: skip
    return Sides(node, (loads[0], loads[1]), (sides[0], sides[1]), list(node.src[1:]))


def _load_cost(loads: list[Access], r: UOp, lanes: int) -> float:
    """Return what one vector of a factor costs with lanes along ``r``, in contiguous loads."""
    total = 0.0
    for a in loads:
        step = a.step(r)
        total += 0.5 if step == 0 else 1 if step == 1 else 2 if step == -1 else lanes * (1 if step is not None else 2)
        total += 1 if r in a.gate_ranges else 0
    return total


@record
class Tile:
    """A candidate: lanes along ``lane`` times ``vectors``, copies along other ranges."""

    lane: UOp
    lanes: int
    vectors: int
    copies: tuple[tuple[UOp, int], ...]
    cycles: float


def _copy_choices(kernel: Kernel, ranges: list[UOp], limit: int) -> Iterator[tuple[tuple[UOp, int], ...]]:
    """Yield ways to spread up to ``limit`` copies over one or two ranges."""
    yield ()
    for r in ranges:
        for f in range(2, min(limit, kernel.size(r)) + 1):
            yield ((r, f),)
    for a, b in itertools.combinations(ranges, 2):
        for f in range(2, min(limit // 2, kernel.size(a)) + 1):
            for g in range(2, min(limit // f, kernel.size(b)) + 1):
                yield ((a, f), (b, g))


def search_tile(
    kernel: Kernel,
    sides: Sides,
    vector_bytes: int,
    registers: int,
    whole: bool = False,
    lanes_on: tuple[int, ...] = (0, 1),
) -> Tile | None:
    """Return the register tile with the least estimated time, or None if neither factor can be vectorised well.

    ``whole``: the last copies cannot overlap those before them, and masks would cost more than a better tile saves.
    ``lanes_on``: which factors may have lanes.
    """
    best: Tile | None = None
    for j in lanes_on:
        wide, narrow = sides.loads[j], sides.loads[1 - j]
        for lane in sides.ranges[j]:
            lanes = kernel.lanes(lane, vector_bytes)
            load = _load_cost(wide, lane, lanes)
            size = kernel.size(lane)
            while lanes > 2 and lanes // 2 >= size:
                lanes //= 2
            for vectors in range(1, min(4, max(1, size // lanes)) + 1):
                limit = (registers - 1) // vectors - 1
                for copies in _copy_choices(kernel, sides.ranges[1 - j], max(1, limit)):
                    if whole and any(kernel.size(r) % f for r, f in copies):
                        continue
                    scalars = len(narrow) * _shared_loads(kernel, sides.contracted, narrow, copies, vectors, registers)
                    stores = _store_cost(kernel, lane, lanes, copies)
                    cycles = _cycles(kernel, sides, (lane, lanes, vectors), copies, load, scalars, stores)
                    cycles *= 1 + _far(narrow, copies)
                    if best is None or cycles < best.cycles:
                        best = Tile(lane, lanes, vectors, copies, cycles)
    return best


def _store_cost(kernel: Kernel, lane: UOp, lanes: int, copies: tuple[tuple[UOp, int], ...]) -> float:
    """Return what storing one vector costs beyond a store: lanes that lie apart are stored one by one.

    Where copies lie beside each other, both change places in registers, and pieces of rows are stored.
    """
    apart = [a for a in kernel.accesses if a.is_store and a.step(lane) != 1]
    rows = [a for a in apart if any(a.step(r) == 1 and f >= PIECE for r, f in copies)]
    return lanes * (TRANSPOSED * len(rows) + STAGED * (len(apart) - len(rows)))


def _shared_loads(
    kernel: Kernel,
    contracted: list[UOp],
    loads: list[Access],
    copies: tuple[tuple[UOp, int], ...],
    vectors: int,
    registers: int,
) -> float:
    """Return the loads of a factor per copy and term: less than 1 where copies share what a sliding window reads."""
    count = math.prod(f for _, f in copies)
    if count * vectors + vectors + count > registers:
        return 1.0
    longest = min(LONGEST_UNROLLED, BODY // (count * vectors))
    windows = [kernel.size(k) for k in contracted if not any(k in a.gate_ranges for a in loads)
               and 1 < kernel.size(k) <= longest and _slides(loads, copies, k, kernel.size(k))]  # fmt: skip
    # Iterations of the window move by one copy each.
    return min((((count + n - 1) / (count * n)) for n in windows), default=1.0)


def _cycles(
    kernel: Kernel,
    sides: Sides,
    lane: tuple[UOp, int, int],
    copies: tuple[tuple[UOp, int], ...],
    vector_load: float,
    scalar_loads: float,
    store: float,
) -> float:
    """Estimate the time of all tiles along the tiled ranges.

    ``vector_load`` is what a vector of the wide operand costs, ``scalar_loads`` are those of the narrow one per copy.
    """
    r, lanes, vectors = lane
    count = math.prod(f for _, f in copies)
    accumulators = count * vectors
    depth = math.prod(kernel.size(k) for k in sides.contracted)
    loads = vectors * vector_load + count * scalar_loads
    step = max(accumulators / 2, loads / 2, FMA_LATENCY) + UNEVEN_STEP + LOAD_COST * loads
    tiles = -(-kernel.size(r) // (lanes * vectors))
    for s, f in copies:
        tiles *= -(-kernel.size(s) // f)
    # Copies along ranges that are not tiled at all repeat the whole: compare per output element.
    elements = kernel.size(r) * math.prod(kernel.size(s) for s, _ in copies)
    return tiles * (step * depth + accumulators * (1 + store)) / elements


def dot_product_form(kernel: Kernel, sides: Sides) -> UOp | None:
    """Return the contracted range along which both factors are contiguous, or None."""
    for k in sides.contracted:
        if (
            k.src[0].op is Ops.CONST
            and all(a.step(k) == 1 for loads in sides.loads for a in loads)
            and all(sides.loads)
        ):
            return k
    return None


def _far(loads: list[Access], copies: tuple[tuple[UOp, int], ...]) -> float:
    """Return what copies cost beyond their loads: those that lie far apart touch a cache line or a page each.

    Copies with gates of their own take branches, and no loop over taps can be cut to those inside for all of them.
    """
    total = 0.0
    for r, _ in copies:
        for a in loads:
            total += 1.0 if r in a.gate_ranges else 0.0
            step = a.step(r)
            total += 1.0 if step is None else 0.0 if abs(step) < 16 else 0.02 if abs(step) < 1024 else 0.1
    return total


def _order_loops(schedule: Schedule, sides: Sides) -> None:
    """Run loops that both factors depend on outermost: inside them little memory is touched again and again."""
    single = {r for ranges in sides.ranges for r in ranges}
    outer = [i for i, a in enumerate(schedule.axes) if a.kind in LOOPS]
    for done, at in enumerate([i for i in outer if not schedule.origins[schedule.axes[i].range] & single]):
        first = outer.index(at)
        for a, b in zip(outer[first - 1 :: -1] if first > done else (), outer[first:done:-1], strict=False):
            schedule.apply(Opt(OptOps.SWAP, a, b))


def _read_less_again(schedule: Schedule, kernel: Kernel, sides: Sides) -> None:
    """Move the innermost loop outwards where less of the operands comes from beyond the memory near a core.

    Loops over images, rows of pixels and panels of filters: 512 filters of 512 channels are more than the second cache
    holds, and would be read anew for each row. All images are read for each panel then, but stay, or are less.
    So would all columns of a product of a few rows, for each tile of them.
    """
    near = schedule.renderer.cache_bytes // NEAR_SHARE
    loops = [at for at, a in enumerate(schedule.axes) if a.kind in LOOPS]
    for before, at in zip(loops[-2::-1], loops[:0:-1], strict=True):
        outer, inner = schedule.axes[before], schedule.axes[at]
        side = next((n for n in (0, 1) if schedule.origins[outer.range] <= set(sides.ranges[n])), None)
        if side is None or not schedule.origins[inner.range] <= set(sides.ranges[1 - side]):
            return
        if not isinstance(outer.size, int) or not isinstance(inner.size, int):
            return
        mine = _bytes_read(schedule, kernel, sides.loads[side], before)
        other = _bytes_read(schedule, kernel, sides.loads[1 - side], at)
        if other <= near or 2 * mine * (inner.size if mine > near else 1) > other * outer.size:
            return
        schedule.apply(Opt(OptOps.SWAP, before, at))


def _bytes_read(schedule: Schedule, kernel: Kernel, loads: list[Access], first: int) -> int:
    """Return how much of an operand the output loops from ``first`` on, and all that is inside of them, read."""
    inside = [a for at, a in enumerate(schedule.axes) if at >= first or a.kind not in LOOPS]
    total = 0
    for load in loads:
        extents: dict[int, int] = {}  # of windows and their rows, which have one step, together
        for r in kernel.ranges:
            step = load.step(r)
            if step:
                times = math.prod(a.size for a in inside if r in schedule.origins[a.range] and isinstance(a.size, int))
                extents[abs(step)] = extents.get(abs(step), 1) + min(times, kernel.size(r)) - 1
        total += math.prod(extents.values()) * load.node.dtype.itemsize
    return total


def _copy_output(schedule: Schedule, r: UOp, factor: int) -> None:
    """Make ``factor`` iterations of an output loop copies, whatever its size."""
    at = position(schedule, r, LOOPS)
    if at is None:
        return
    size = schedule.axes[at].size
    # Of a loop that is cut into slabs, less is left than was when the tile was chosen.
    factor = min(factor, size) if isinstance(size, int) else factor
    if factor < 2:
        return
    if size % factor and schedule.reads_outputs():
        schedule.apply(Opt(OptOps.PADTO, at, factor))
    elif size % factor:
        schedule.apply(Opt(OptOps.OVERLAP, at, factor))
        at += 1
    schedule.apply(Opt(OptOps.UPCAST, at, factor))


def _slides(loads: list[Access], copies: tuple[tuple[UOp, int], ...], k: UOp, iterations: int) -> bool:
    """Whether some iterations of ``k`` read for one copy what others read for another: a window of a convolution."""
    for a in loads:
        step = a.step(k)
        for r, factor in copies:
            apart = a.step(r)
            if not step or not apart:
                continue
            shared = math.gcd(step, apart)
            if abs(step // shared) < factor and abs(apart // shared) < iterations:
                return True
    return False


def unroll_contracted(schedule: Schedule, sides: Sides, tile: Tile) -> None:
    """Unroll inner reduce loops: small ones whole, a long one by a divisor, while the body stays short.

    Iterations of a sliding window share elements, which then stay in registers. Where the tile leaves no room for them
    such a loop stays a loop, since the accumulators would go to memory instead. One that a gate cuts stays one too.
    Loops around one that stays are not unrolled beside those inside of it: their iterations lie far apart.
    """
    count = math.prod(f for _, f in tile.copies)
    accumulators = tile.vectors * count
    is_full = accumulators + tile.vectors + count > schedule.renderer.vector_registers
    narrow = sides.loads[0 if tile.lane in sides.ranges[1] else 1]
    room = max(1, BODY // max(1, accumulators))
    is_unrolled = False
    for axis in [schedule.axes[at] for at in reversed(schedule.reduce_axes())]:
        if not isinstance(axis.size, int) or room < 2:
            return
        is_cut = any(schedule.origins[axis.range] & a.gate_ranges for loads in sides.loads for a in loads)
        if is_cut or (
            is_full and any(_slides(narrow, tile.copies, k, axis.size) for k in schedule.origins[axis.range])
        ):
            if is_unrolled:
                return
            continue
        size, wanted = axis.size, min(room, LONGEST_UNROLLED)
        factor = size if size <= wanted else max(f for f in range(1, wanted + 1) if size % f == 0)
        if factor > 1:
            at = schedule.axes.index(axis)
            schedule.apply(Opt(OptOps.UNROLL, schedule.reduce_axes().index(at), factor))
            room //= factor
            is_unrolled = True
        if factor != size:
            return


def _chain(schedule: Schedule) -> int:
    """Return the iterations of one float sum, each of which adds as many terms as are unrolled."""
    terms = math.prod(a.size for a in schedule.axes if a.kind is AxisType.UNROLL and isinstance(a.size, int))
    return max(1, min(CHAIN, MAX_CHAIN // terms))


def optimize_contraction(schedule: Schedule, kernel: Kernel) -> bool:
    """Apply the contraction policy; False if the kernel is not one."""
    renderer = schedule.renderer
    sides = find_contraction(kernel)
    if sides is None or not renderer.vector_bytes or not all(sides.loads):
        return False
    if not all(sides.ranges):
        return _optimize_matvec(schedule, kernel, sides)
    large = (optimize_tiled,) if needs_no_copies(schedule, kernel, sides) else LARGE
    if any(policy(schedule, kernel, sides) for policy in large):
        return True
    slab = copy_slabs(schedule, kernel, sides)
    sides, lanes_on = (sides, (0, 1)) if slab is None else (slab.sides, (1 - slab.side,))
    is_whole = schedule.reads_outputs()
    tile = search_tile(kernel, sides, renderer.vector_bytes, renderer.vector_registers, is_whole, lanes_on)
    dot = dot_product_form(kernel, sides)
    contiguous = tile is not None and any(
        all(a.step(tile.lane) == 1 for a in loads) and tile.lane in ranges
        for loads, ranges in zip(sides.loads, sides.ranges, strict=True)
    )
    if tile is None or (dot is not None and not contiguous):
        if dot is None:
            return False
        _dot_tile(schedule, kernel, sides, dot)
    else:
        for r, f in tile.copies:
            _copy_output(schedule, r, f)
        vectorize_output(schedule, tile.lane, tile.lanes, tile.vectors, exact=True)
        unroll_contracted(schedule, sides, tile)
    if slab is not None:
        block_long_sums(schedule, kernel, _chain(schedule))
        run_blocks_in_parallel(schedule, slab.first)
        return True
    _order_loops(schedule, sides)
    _read_less_again(schedule, kernel, sides)
    block_long_sums(schedule, kernel, _chain(schedule))
    use_threads(schedule, kernel, TILE_SHARES, SHARE_PIECES * max(1, renderer.threads))
    return True


def _optimize_matvec(schedule: Schedule, kernel: Kernel, sides: Sides) -> bool:
    """Apply the policy of matrix x vector; False if rows are few, not contiguous, or windows that overlap.

    Memory is the limit: rows beside each other are so many streams, and share what is loaded of the vector.
    """
    k, rows = dot_product_form(kernel, sides), [*sides.ranges[0], *sides.ranges[1]]
    if k is None or len(sides.contracted) != 1 or not rows:
        return False
    i = max(rows, key=kernel.size)
    if kernel.size(i) < MANY_ROWS or schedule.reads_outputs():
        return False
    if any(_slides(loads, ((i, kernel.size(i)),), k, kernel.size(k)) for loads in sides.loads):
        return False
    lanes = kernel.lanes(k, schedule.renderer.vector_bytes)
    if kernel.size(k) < lanes and all(a.step(i) == 1 for a in kernel.accesses if a.is_store):
        # Rows shorter than a vector: lanes run over the rows, which costs no sums of lanes.
        vectorize_output(schedule, i, lanes, 1)
        schedule.apply(Opt(OptOps.UNROLL, 0, 0))
        use_threads(schedule, kernel)
        return True
    _copy_output(schedule, i, STREAMS)
    vectorize_reduce(schedule, k, lanes, STREAM_VECTORS)
    block_long_sums(schedule, kernel)
    use_threads(schedule, kernel)
    return True


def dot_copies(rows: int, columns: int, registers: int) -> tuple[int, int]:
    """Return the rows and columns whose sums run at once: near a square of 4, such that few are computed twice."""
    choices = [
        (a, b)
        for a in range(1, min(rows, DOT_MOST) + 1)
        for b in range(1, min(columns, DOT_MOST) + 1)
        if a * b + min(a, b) < registers
    ]

    def cycles(choice: tuple[int, int]) -> float:
        a, b = choice
        step = max(a * b / 2, FMA_LATENCY) + UNEVEN_STEP + LOAD_COST * (a + b)
        return -(-rows // a) * -(-columns // b) * step * (1 + DOT_OTHER * (abs(a - DOT_SIDE) + abs(b - DOT_SIDE)))

    return min(choices, key=cycles, default=(1, 1))


def _dot_tile(schedule: Schedule, kernel: Kernel, sides: Sides, k: UOp) -> None:
    """Tile with lanes along the contracted range: copies on both sides share the vectors that they load."""
    main = [max(ranges, key=kernel.size) for ranges in sides.ranges]
    sizes = kernel.size(main[0]), kernel.size(main[1])
    for r, factor in zip(main, dot_copies(*sizes, schedule.renderer.vector_registers), strict=True):
        _copy_output(schedule, r, factor)
    lanes = kernel.lanes(k, schedule.renderer.vector_bytes)
    vectorize_reduce(schedule, k, lanes, 1)
