"""Loops whose counter is read divided are split, and mean the same."""

import numpy as np
import pytest

from test.helpers_ast import at, evaluate, kernel, loop, param, red, store
from tinygrad.codegen.opt.divided import split_divided_ranges
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def _sizes(sink: UOp) -> list[int]:
    return sorted(u.src[0].arg for u in sink.toposort() if u.op is Ops.RANGE)


def _divisions(sink: UOp) -> int:
    return sum(u.op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD) for u in sink.toposort())


def _assert_same(before: UOp, after: UOp, sizes: dict[int, int]) -> None:
    arrays = {slot: np.arange(size, dtype=np.float32) * 3 % 17 for slot, size in sizes.items()}
    expected, found = evaluate(before, arrays), evaluate(after, arrays)
    for slot in arrays:
        np.testing.assert_array_equal(found[slot], expected[slot])


def test_groups_and_groups_of_groups() -> None:
    out, data, scales = param(0, 256), param(1, 128), param(2, 8)
    r = loop(256, 0)
    value = at(data, r // 64 * 32 + r % 32) * at(scales, r // 32)
    sink = kernel(store(out, r, value, r))
    split = split_divided_ranges(sink)
    assert _sizes(split) == [8, 32]
    assert _divisions(split) == 1, "only the outer loop, over 8 groups, is still divided"
    _assert_same(sink, split, {0: 256, 1: 128, 2: 8})


def test_reductions_and_factors() -> None:
    out, data = param(0, 3), param(1, 24)
    i, r = loop(3, 0), red(128, 1)
    value = at(data, i * 8 + (r * 2 + i % 2) // 32)  # 2r divided by 32: groups of 16
    sink = kernel(store(out, i, UOp(Ops.REDUCE, dtypes.float32, (value, r), (Ops.ADD, ())), i))
    split = split_divided_ranges(sink)
    assert _sizes(split) == [3, 8, 16]
    _assert_same(sink, split, {0: 3, 1: 24})


@pytest.mark.parametrize(
    ("size", "divisors"),
    [
        (256, (4,)),  # too small for vectors
        (250, (32,)),  # a part of a group is left over
        (192, (32, 48)),  # the larger group is not made of smaller ones
        (32, (32,)),  # one group
        (64, ()),
    ],
)
def test_loops_that_stay_whole(size: int, divisors: tuple[int, ...]) -> None:
    r, index = loop(size, 0), UOp(Ops.CONST, dtypes.weakint, (), 0)
    for d in divisors:
        index = index + UOp(Ops.FLOORDIV, dtypes.weakint, (r, UOp(Ops.CONST, dtypes.weakint, (), d)))
    sink = kernel(store(param(0, size), r, at(param(1, size), index), r))
    assert split_divided_ranges(sink) is sink


def test_a_loop_that_two_stores_share() -> None:
    first, second, data = param(0, 64), param(1, 64), param(2, 4)
    r = loop(64, 0)
    value = at(data, r // 16)
    sink = kernel(store(first, r, value, r), store(second, r, value + value, r))
    split = split_divided_ranges(sink)
    assert _sizes(split) == [4, 16], "it is still one loop"
    _assert_same(sink, split, {0: 64, 1: 64, 2: 4})
