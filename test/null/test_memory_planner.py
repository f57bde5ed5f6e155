"""The memory planner: blocks that live at the same time never overlap, and others share."""

import random

import pytest

from tinygrad.dtype import dtypes
from tinygrad.helpers import Context
from tinygrad.schedule import memory
from tinygrad.schedule.memory import ALIGN_BYTES, Block, assign_offsets, lifetimes, memory_plan_rewrite
from tinygrad.uop import Ops
from tinygrad.uop.ops import CallInfo, KernelInfo, UOp


def assert_no_overlap(blocks: list[Block], offsets: list[int], total: int) -> None:
    for i, (a, begin) in enumerate(zip(blocks, offsets, strict=True)):
        assert begin % ALIGN_BYTES == 0
        assert begin + a.nbytes <= total
        for b, other in zip(blocks[:i], offsets[:i], strict=True):
            apart = a.last < b.first or b.last < a.first
            assert apart or begin + a.nbytes <= other or other + b.nbytes <= begin, (a, begin, b, other)


@pytest.mark.parametrize("place", [memory._greedy_by_size, memory._in_order_of_time])
@pytest.mark.parametrize("seed", range(8))
def test_random_blocks_never_overlap(place, seed):
    rng = random.Random(seed)
    blocks = []
    for _ in range(60):
        first = rng.randrange(40)
        blocks.append(Block(first, first + rng.randrange(8), rng.randrange(1, 5000)))
    offsets, total = place(blocks)
    assert_no_overlap(blocks, offsets, total)
    peak = max(sum(b.nbytes for b in blocks if b.first <= t <= b.last) for t in range(48))
    assert peak <= total < 2 * peak + 60 * ALIGN_BYTES


def test_a_chain_needs_two_blocks():
    blocks = [Block(i, i + 1, 1024) for i in range(100)]
    assert assign_offsets(blocks)[1] == 2048
    assert memory._in_order_of_time(blocks)[1] == 2048


def test_long_lists_take_no_quadratic_time():
    blocks = [Block(i, i + 1, 256 * (1 + i % 3)) for i in range(20_000)]
    offsets, total = assign_offsets(blocks)
    assert total <= 256 * 3 * 3
    assert_no_overlap(blocks[:200], offsets[:200], total)


def test_lifetimes_span_first_to_last_use():
    found = lifetimes([["a"], ["a", "b"], [], ["b"]], {"a": 4, "b": 8}.__getitem__)
    assert found == {"a": Block(0, 1, 4), "b": Block(1, 3, 8)}


def _add_one(n: int) -> UOp:
    out, x = UOp.param(0, dtypes.float, (n,)), UOp.param(1, dtypes.float, (n,))
    r = UOp.range(n, 0)
    return UOp.sink(out.index(r).store(x.index(r) + UOp.const(1.0, dtypes.float)).end(r), arg=KernelInfo())


def chain(length: int, n: int = 64, device: str = "NULL") -> tuple[UOp, list[UOp]]:
    """A schedule in which each kernel reads what the one before wrote, and its buffers."""
    bufs = [UOp.new_buffer(device, n, dtypes.float) for _ in range(length + 1)]
    body = _add_one(n)
    calls = [UOp(Ops.CALL, dtypes.void, (body, bufs[i + 1], bufs[i]), CallInfo()) for i in range(length)]
    return UOp(Ops.LINEAR, dtypes.void, tuple(calls)), bufs


def test_intermediates_of_a_schedule_share_an_arena():
    linear, bufs = chain(6)
    bufs[0].buffer.ensure_allocated()
    assert memory_plan_rewrite(linear, {bufs[-1]}) is linear
    inner = [b.buffer for b in bufs[1:-1]]
    assert len({id(b.base) for b in inner}) == 1
    assert inner[0].base.nbytes == 512
    assert inner[0].offset != inner[1].offset
    assert inner[0].offset == inner[2].offset
    assert all(b.size == 64 and b.dtype is dtypes.float for b in inner)
    assert bufs[0].buffer.base is bufs[0].buffer
    assert bufs[-1].buffer.base is bufs[-1].buffer


def test_without_a_list_the_last_results_are_held():
    linear, bufs = chain(3)
    memory_plan_rewrite(linear)
    assert bufs[-1].buffer.base is bufs[-1].buffer
    assert bufs[1].buffer.base is not bufs[1].buffer


def test_what_is_read_first_is_an_input_and_stays():
    linear, bufs = chain(3)
    memory_plan_rewrite(linear, set())
    assert bufs[0].buffer.base is bufs[0].buffer


def test_views_of_an_intermediate_move_with_it():
    linear, bufs = chain(2)
    whole = bufs[1].buffer
    part = UOp.new_buffer("NULL", 32, dtypes.float)
    from tinygrad.uop.ops import buffers

    buffers[part] = whole.view(32, dtypes.float, 128)
    out = UOp.new_buffer("NULL", 32, dtypes.float)
    call = UOp(Ops.CALL, dtypes.void, (_add_one(32), out, part), CallInfo())
    linear = linear.replace(src=(*linear.src, call))
    memory_plan_rewrite(linear, {out, bufs[2]})
    assert part.buffer.base is bufs[1].buffer.base is not whole
    assert part.buffer.offset == bufs[1].buffer.offset + 128


def test_planner_can_be_switched_off():
    linear, bufs = chain(4)
    with Context(NO_MEMORY_PLANNER=1):
        memory_plan_rewrite(linear, {bufs[-1]})
    assert all(b.buffer.base is b.buffer for b in bufs)
