"""Steps that every policy takes: lanes on an axis of any size, blocks of vectors, threads on the outermost loops.

In:   a Schedule, the facts about its kernel, and original RANGEs.
Out:  the Schedule with steps applied.
Why:  sizes that no vector length divides, and loops too short for threads, come up in every kind of kernel.
"""

from __future__ import annotations

import itertools
import math

from tinygrad.codegen.late.affine import NEAR
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.schedule import MAX_COPIES, Schedule
from tinygrad.codegen.opt.scratch import Axis
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

# Vector instructions (a microsecond) below which telling other threads costs more than it saves. No more, for between
# kernels of one thread and of several, what was written moves through the caches, which costs the more the longer the
# kernels are.
THREAD_WORK = 1 << 12
THREAD_PIECES = 64  # iterations of the parallel loop that leave nobody waiting for long
LINE = 16  # float32 elements of a cache line
MAX_ROWS = 512  # far apart from each other that are read side by side: a quarter of the pages that a TLB holds
# Elements between two lanes of a store that are all stored at once: always, and if they are all that lies there.
FEW_BETWEEN, MAX_BETWEEN = 4, 36
SHORT_PER_ACCESS = 6  # instructions for each access up to which memory takes the time
MAX_CHAIN = 128  # float additions in one chain before blocks are summed on their own


def position(schedule: Schedule, r: UOp, kinds: frozenset[AxisType]) -> int | None:
    """Return the place of the first axis that stands for the original range ``r`` and has one of the kinds.

    Loops around nests that fill scratch memory stay as they are, and do not count.
    """
    for i, axis in enumerate(schedule.axes):
        if axis.kind in kinds and r in schedule.origins[axis.range] and not schedule.is_around_copies(axis):
            return i
    return None


LOOPS = frozenset({AxisType.LOOP, AxisType.WEAK, AxisType.GLOBAL, AxisType.THREAD})
REDUCES = frozenset({AxisType.REDUCE})


def _lanes_on(schedule: Schedule, r: UOp, kinds: frozenset[AxisType], lanes: int) -> tuple[int, int, int] | None:
    """Return (place, size, lanes that fit) of the axis for ``r``; None if there is none of a constant size."""
    at = position(schedule, r, kinds)
    size = None if at is None else schedule.axes[at].size
    if at is None or not isinstance(size, int):
        return None
    while lanes > 2 and lanes // 2 >= size:
        lanes //= 2
    return at, size, lanes


def vectorize_output(
    schedule: Schedule,
    r: UOp,
    lanes: int,
    blocks: int,
    whole: int = 1,
    *,
    exact: bool = False,
    masked: bool = False,
) -> None:
    """Make the last iterations of an output loop lanes, and ``blocks`` vectors of them copies, or about so many.

    A loop that is left with at most ``whole`` vectors becomes copies: its masks and starts are constants then.

    Args:
        schedule: Of the kernel.
        r: The original range.
        lanes: Of a vector.
        blocks: Vectors to take at once.
        whole: See above.
        exact: Take just ``blocks``, whatever is computed twice at the end.
        masked: Loads along ``r`` have masks. That makes copies worth it for a loop over blocks, too.
    """
    found = _lanes_on(schedule, r, LOOPS, lanes)
    if found is None:
        return
    at, size, lanes = found
    if not exact or size < lanes * blocks:
        blocks = blocks_over(size, lanes, blocks)
    if size < lanes or (size % (lanes * blocks) and schedule.reads_outputs()):
        schedule.apply(Opt(OptOps.PADTO, at, lanes * blocks))
    elif size % (lanes * blocks):
        schedule.apply(Opt(OptOps.OVERLAP, at, lanes * blocks))
        at += 1
    schedule.apply(Opt(OptOps.VECTOR, at, lanes))
    if blocks > 1 and schedule.axes[at].kind in LOOPS:
        schedule.apply(Opt(OptOps.UPCAST, at, blocks))
    rest = position(schedule, r, LOOPS)
    if rest is not None and (blocks == 1 or masked) and 1 < schedule.axes[rest].size <= whole // blocks:
        schedule.apply(Opt(OptOps.UPCAST, rest, 0))


def blocks_over(size: int, lanes: int, wanted: int) -> int:
    """Return how many vectors of ``size`` elements to take at once: near ``wanted``, and such that few are left over.

    The last block of an odd size overlaps the one before it, so that what it computes twice counts.
    """
    fit, needed = size // lanes, -(-size // lanes)
    if wanted == 1 or needed <= 1 or (needed <= wanted and fit == needed):
        return max(1, min(fit, wanted))

    def more(blocks: int) -> int:
        return -(-size // (lanes * blocks)) * blocks - needed

    exact = [b for b in range(min(2 * wanted, fit), wanted // 2, -1) if more(b) == 0]
    if exact:
        return min(exact, key=lambda b: (abs(b - wanted), b))
    return next((b for b in range(min(wanted, fit), 0, -1) if more(b) <= 0.1 * needed), 1)


def vectorize_reduce(schedule: Schedule, r: UOp, lanes: int, blocks: int, around: UOp | None = None) -> None:
    """Make the last iterations of a reduce loop lanes, ``blocks`` vectors of them copies; what is beyond is masked.

    Args:
        schedule: Of the kernel.
        r: The original range.
        lanes: Of a vector.
        blocks: Vectors in flight, each with a sum of its own.
        around: The next loop of the same sum, some of whose iterations become copies where ``r`` has too few vectors.
    """
    found = _lanes_on(schedule, r, REDUCES, lanes)
    if found is None:
        return
    at, size, lanes = found
    wanted, blocks = blocks, blocks_over(-(-size // lanes), 1, blocks)
    if size % (lanes * blocks):
        if not schedule.may_pad(schedule.axes[at]):
            return
        schedule.apply(Opt(OptOps.PADTO, at, lanes * blocks))
    schedule.apply(Opt(OptOps.VECTOR, at, lanes))
    if blocks > 1 and schedule.axes[at].kind is AxisType.REDUCE:
        schedule.apply(Opt(OptOps.UNROLL, schedule.reduce_axes().index(at), blocks))
    outer = (
        None if around is None or position(schedule, r, REDUCES) is not None else position(schedule, around, REDUCES)
    )
    if outer is not None and isinstance(length := schedule.axes[outer].size, int):
        enough = [n for n in range(2, 2 * wanted + 1) if length % n == 0 and wanted <= n * blocks <= 2 * wanted]
        if enough and blocks < wanted:
            schedule.apply(Opt(OptOps.UNROLL, schedule.reduce_axes().index(outer), enough[0]))


def unroll_small(schedule: Schedule) -> None:
    """Unroll reduce loops of a few iterations (pooling windows): no loop, and their loads share vectors."""
    copies = 1
    for axis in list(schedule.axes):
        if axis.kind is AxisType.REDUCE and isinstance(axis.size, int) and axis.size <= 4 and copies * axis.size <= 16:
            copies *= axis.size
            schedule.apply(Opt(OptOps.UNROLL, schedule.reduce_axes().index(schedule.axes.index(axis)), 0))


def copy_small_outputs(schedule: Schedule, kernel: Kernel, lane: UOp, most: int) -> None:
    """Copy short output loops that lie between the lanes of the stores: together they fill whole vectors.

    Where such loops are all that lies between two lanes, be it a window of six by six, what is stored at once has no
    gaps. Else those that fit four copies share vectors.

    Args:
        schedule: Of the kernel.
        kernel: Its facts.
        lane: The range that gets the lanes.
        most: Copies, at most; see ``most_between``.
    """
    steps = [abs(a.step(lane) or 0) for a in kernel.accesses if a.is_store]
    between = [
        r for r in kernel.ranges
        if r is not lane and any(0 < abs(a.step(r) or 0) < s for a, s in zip(
            (a for a in kernel.accesses if a.is_store), steps, strict=True))
    ]  # fmt: skip
    whole = math.prod(kernel.size(r) for r in between)
    if set(steps) != {whole} or whole > most or any(kernel.size(r) > MAX_COPIES for r in between):
        most = FEW_BETWEEN if max(steps) <= FEW_BETWEEN else 1
    copies = 1
    for r in between:
        at = position(schedule, r, LOOPS)
        size = kernel.size(r)
        if at is not None and schedule.axes[at].size == size and copies * size <= most:
            copies *= size
            schedule.apply(Opt(OptOps.UPCAST, at, 0))


def most_between(schedule: Schedule, kernel: Kernel, instructions: int) -> int:
    """Return how many elements between two lanes of a store may become copies: sums of all of them need registers.

    Args:
        schedule: Of the kernel.
        kernel: Its facts.
        instructions: Of one element. Where they are many, they and not the stores take the time, and the compiler's.
    """
    if instructions > SHORT_PER_ACCESS * len(kernel.accesses):
        return FEW_BETWEEN
    return max(FEW_BETWEEN, schedule.renderer.vector_registers // 2) if kernel.reduces else MAX_BETWEEN


def tile_transposes(schedule: Schedule, kernel: Kernel, lane: UOp, copies: int) -> None:
    """Where lanes lie apart in a buffer, copy the loop along which it is contiguous: rows of it are loaded then.

    A transpose uses all of every cache line that it touches, on both sides, before the line is lost.

    Args:
        schedule: Of the kernel, with lanes.
        kernel: Its facts.
        lane: The range that has the lanes.
        copies: How many to make at most; what they leave of a cache line is walked in the innermost loop.
    """
    apart = [a for a in kernel.accesses if lane in a.ranges and abs(a.step(lane) or LINE) > NEAR]
    is_strided = any(a.step(lane) is not None for a in apart)
    for r in kernel.ranges:
        at = position(schedule, r, LOOPS)
        if r is lane or at is None or not any(a.step(r) in (1, -1) for a in apart):
            continue
        size = schedule.axes[at].size
        if not isinstance(size, int) or size < 2:
            continue
        if size > LINE:
            if size % LINE and schedule.reads_outputs():
                return
            schedule.apply(Opt(OptOps.OVERLAP if size % LINE else OptOps.SPLIT, at, LINE))
            at, size = at + 1, LINE
        if is_strided:
            schedule.apply(Opt(OptOps.UPCAST, at, size if size <= copies else math.gcd(size, copies)))
        if schedule.axes[at].kind in LOOPS:
            _move_inside(schedule, at)
        if is_strided:
            _walk_in_blocks(schedule, r, lane)
        return


def _move_inside(schedule: Schedule, at: int) -> None:
    """Make an output loop the innermost one."""
    outputs = [i for i, a in enumerate(schedule.axes) if a.kind in LOOPS]
    for a, b in itertools.pairwise(outputs[outputs.index(at) :]):
        schedule.apply(Opt(OptOps.SWAP, a, b))


def _walk_in_blocks(schedule: Schedule, r: UOp, lane: UOp) -> None:
    """Cut a long loop over rows into blocks, and walk all along the rows of a block, before the next one.

    Each row is on a page of its own, and so many at most are found without a walk through the page table.
    """
    at, along = position(schedule, lane, LOOPS), position(schedule, r, LOOPS)
    if at is None or along is None or along > at:
        return
    vectors = schedule.axes[at].size
    lanes = next(a.size for a in schedule.axes if a.kind is AxisType.VECTOR and lane in schedule.origins[a.range])
    if not isinstance(vectors, int) or vectors * lanes < 2 * MAX_ROWS:
        return
    rows = -(-vectors // (vectors * lanes // MAX_ROWS))
    if vectors % rows and schedule.reads_outputs():
        return
    schedule.apply(Opt(OptOps.OVERLAP if vectors % rows else OptOps.SPLIT, at, rows))
    between = [i for i, a in enumerate(schedule.axes) if a.kind in LOOPS and along <= i <= at]
    for a, b in reversed(list(itertools.pairwise(between))):
        schedule.apply(Opt(OptOps.SWAP, a, b))


def block_long_sums(schedule: Schedule, kernel: Kernel, longest: int = MAX_CHAIN) -> None:
    """Sum long reductions in blocks, so that no chain of additions is much longer than ``longest``."""
    for u in kernel.reduces:
        if u.arg[0] is not Ops.ADD or u.dtype.kind != "float":
            continue
        loops = [a for a in schedule.axes if a.kind is AxisType.REDUCE and schedule.origins[a.range] & set(u.src[1:])]
        sizes = [a.size for a in loops if isinstance(a.size, int) and a.range not in schedule.block_outer]
        if len(sizes) == len(loops) and math.prod(sizes) > longest:
            block_loops(schedule, loops, longest)


def block_loops(schedule: Schedule, loops: list[Axis], longest: int) -> None:
    """Cut the loops of one sum into blocks that are summed on their own, and blocks of those if they are many."""
    inner = 1
    for a in reversed(loops):
        at, size = schedule.reduce_axes().index(schedule.axes.index(a)), int(a.size)
        if inner * size <= longest:
            inner *= size
            continue
        wanted = max(1, longest // inner)
        best = max((f for f in range(1, wanted + 1) if size % f == 0), default=1)
        if best * 8 < wanted and schedule.may_pad(a):
            # Blocks as long as each other need less padding than the longest ones: 43 terms are 2 * 22, not 2 * 42.
            best = -(-size // -(-size // wanted))
            schedule.apply(Opt(OptOps.PADTO, schedule.axes.index(a), best))
        if best < int(a.size):
            schedule.apply(Opt(OptOps.BLOCK, at, best))
            # A block of one iteration sums what is inside of it, and its copies; between blocks there are none.
            longest = longest if best > 1 else MAX_CHAIN
            if int(a.size) > longest:
                block_loops(schedule, [a], longest)
        return


def use_threads(schedule: Schedule, kernel: Kernel, shared: int = 1, pieces: int = THREAD_PIECES) -> None:
    """Make the outermost output loop the parallel one if there is enough work, joining loops until it is long.

    Args:
        schedule: Of the kernel.
        kernel: Its facts.
        shared: How many operations of single elements one instruction stands for, apart from vectors.
        pieces: Iterations that are enough.
    """
    lanes = max(4, schedule.renderer.vector_bytes // 4)
    if not schedule.renderer.has_threads or kernel.work() < THREAD_WORK * lanes * shared or not kernel.ends:
        return
    common = [r for r in kernel.ends[0].src[1:] if all(r in e.src[1:] for e in kernel.ends)]
    while True:
        outer = [
            i
            for i, a in enumerate(schedule.axes)
            if a.kind is AxisType.LOOP and schedule.origins[a.range] & set(common)
        ]
        if not outer or not isinstance(schedule.axes[outer[0]].size, int):
            return
        long_enough = schedule.axes[outer[0]].size >= min(pieces, THREAD_PIECES)
        if long_enough or len(outer) < 2 or not _may_merge(schedule, kernel, *outer[:2]):
            break
        schedule.apply(Opt(OptOps.MERGE, *outer[:2]))
    if schedule.axes[outer[0]].size > 1:
        schedule.apply(Opt(OptOps.THREAD, outer[0], 0))


def _may_merge(schedule: Schedule, kernel: Kernel, a: int, b: int) -> bool:
    """Whether no REDUCE that needs only one of two loops would be recomputed in both."""
    if not isinstance(schedule.axes[b].size, int):
        return False
    first, second = (schedule.origins[schedule.axes[i].range] for i in (a, b))
    return all(bool(kernel.open(u) & first) == bool(kernel.open(u) & second) for u in kernel.reduces)
