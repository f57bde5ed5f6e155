"""Lowering: from a kernel to its linear program, without running it."""

from __future__ import annotations

import pytest

from test.helpers_ast import at, kernel, loop, param, red, store
from test.null.test_opt import Vectors, matmul
from tinygrad.codegen.late.affine import affine, from_affine
from tinygrad.codegen.late.linearizer import _Blocks, linearize
from tinygrad.codegen.late.lower import Lowering
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.policy import optimize_kernel
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import ParamArg, UOp


def lowered(sink: UOp, fuse: bool = True) -> list[UOp]:
    """Return the linear program of a kernel after its own steps."""
    lowering = Lowering(optimize_kernel(sink, Vectors()), dtypes.int64, fuse)
    return linearize(lowering.run(), lowering.order)


def count(linear: list[UOp], op: Ops) -> int:
    """Return how many instructions of a kind a program has."""
    return sum(u.op is op for u in linear)


def assert_well_formed(linear: list[UOp]) -> None:
    """Check that sources come first, nothing comes twice, and loops close in order."""
    seen: set[UOp] = set()
    open_loops: list[UOp] = []
    for u in linear:
        assert u not in seen, f"{u.op} comes twice"
        assert all(s in seen or s.op is Ops.NOOP for s in u.src), f"a source of {u.op} comes later"
        assert u.op not in (Ops.AFTER, Ops.GROUP)
        assert u.dtype not in dtypes.weaks
        seen.add(u)
        if u.op is Ops.RANGE:
            open_loops.append(u)
        elif u.op is Ops.END:
            assert open_loops.pop() is u.src[1]
    assert not open_loops
    assert linear[-1].op is Ops.SINK


def test_affine_round_trip() -> None:
    i, j = loop(4, 0), loop(5, 1)
    terms, const = affine((i * 3 + j) * 2 + 7 + i * -1)
    assert (terms, const) == ({i: 5, j: 2}, 7)
    assert affine(from_affine(terms, const)) == (terms, const)
    product = i * j
    assert affine(product + 1) == ({product: 1}, 1)


def test_loops_and_accumulator() -> None:
    linear = lowered(matmul(3, 4, 5, ()))
    assert_well_formed(linear)
    assert [u.arg[-1] for u in linear if u.op is Ops.RANGE] == [AxisType.LOOP, AxisType.LOOP, AxisType.REDUCE]
    registers = [u for u in linear if u.op is Ops.BUFFER]
    assert len(registers) == 1
    assert registers[0].arg.addrspace is AddrSpace.REG
    assert count(linear, Ops.MULACC) == 1


def test_loop_invariants_stand_in_front_of_the_loop() -> None:
    linear = lowered(matmul(3, 4, 5, ()))
    inner = max(i for i, u in enumerate(linear) if u.op is Ops.RANGE)
    row = next(i for i, u in enumerate(linear) if u.op is Ops.MUL and u.src[0].op is Ops.RANGE and u.src[1].arg == 5)
    assert row < inner


def test_tile_loads_each_element_once() -> None:
    opts = (Opt(OptOps.UPCAST, 0, 4), Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.UPCAST, 1, 2), Opt(OptOps.UNROLL, 0, 4))
    linear = lowered(matmul(8, 64, 32, opts))
    assert_well_formed(linear)
    loads = [u for u in linear if u.op is Ops.LOAD and u.src[0].op is Ops.INDEX]
    assert len([u for u in loads if u.arg is None]) == 4 * 4
    assert len([u for u in loads if u.arg == 16]) == 2 * 4
    assert count(linear, Ops.MULACC) == 4 * 2 * 4


def test_no_fused_multiply_add_outside_of_reductions() -> None:
    i = loop(8, 0)
    a, b = at(param(1, 8), i), at(param(2, 8), i)
    linear = lowered(kernel(store(param(0, 8), i, a * b + a, i), opts=()))
    assert count(linear, Ops.MULACC) == 0


def test_several_accumulators_for_a_plain_sum() -> None:
    k = red(1024, 0)
    body = at(param(1, 1024), k).reduce(k, arg=Ops.ADD)
    linear = lowered(kernel(store(param(0, 1), UOp.const(0, dtypes.weakint), body)))
    assert_well_formed(linear)
    assert count(linear, Ops.BUFFER) == 4
    assert count(linear, Ops.REDUCE) == 1


def test_siblings_share_a_loop() -> None:
    i, k = loop(4, 0), red(8, 1)
    x = at(param(2, 32), i * 8 + k)
    total, largest = x.reduce(k, arg=Ops.ADD), x.reduce(k, arg=Ops.MAX)
    linear = lowered(kernel(store(param(0, 4), i, total, i), store(param(1, 4), i, largest, i), opts=()))
    assert_well_formed(linear)
    assert count(linear, Ops.RANGE) == 2
    assert count(linear, Ops.LOAD) == 1 + 2 * 2  # x, and each accumulator inside and after the loop


def test_dependent_reductions_run_one_after_the_other() -> None:
    r, k1, k2 = loop(3, 0), red(7, 1), red(7, 2)
    x = param(1, 21)
    largest = at(x, r * 7 + k1).reduce(k1, arg=Ops.MAX)
    total = (at(x, r * 7 + k2) + largest * -1.0).reduce(k2, arg=Ops.ADD)
    linear = lowered(kernel(store(param(0, 3), r, total, r), opts=()))
    assert_well_formed(linear)
    ends = [i for i, u in enumerate(linear) if u.op is Ops.END]
    second = [i for i, u in enumerate(linear) if u.op is Ops.RANGE][2]
    assert ends[0] < second < ends[1]


def test_a_step_of_two_loads_whole_vectors() -> None:
    i = loop(16, 0)
    linear = lowered(kernel(store(param(0, 16), i, at(param(1, 32), i * 2), i), opts=(Opt(OptOps.VECTOR, 0, 16),)))
    assert_well_formed(linear)
    loads = [u for u in linear if u.op is Ops.LOAD]
    assert [u.arg for u in loads] == [16, 16]
    # The last element that is asked for is 30: the second vector must end there, not behind the buffer.
    assert sorted(u.src[0].src[1].arg for u in loads) == [0, 15]


def test_masks_that_hold_everywhere_vanish() -> None:
    i = loop(10, 0)
    opts = (Opt(OptOps.PADTO, 0, 16), Opt(OptOps.VECTOR, 0, 4), Opt(OptOps.UPCAST, 0, 0))
    linear = lowered(kernel(store(param(0, 10), i, at(param(1, 10), i), i), opts=opts))
    stores = [u for u in linear if u.op is Ops.STORE]
    assert [len(u.src) for u in stores] == [2, 2, 3, 3]


def test_variables_are_arguments() -> None:
    n = UOp.variable("n", 1, 16)
    i = loop(n, 0)
    linear = lowered(kernel(store(param(0, 16), i, at(param(1, 16), i), i)))
    assert_well_formed(linear)
    variable = next(u for u in linear if u.op is Ops.PARAM and u.arg.name == "n")
    assert variable.dtype is dtypes.int64
    assert next(u for u in linear if u.op is Ops.RANGE).src[0] is variable


def test_accumulators_written_by_hand() -> None:
    acc = UOp(Ops.BUFFER, dtypes.float32, (), ParamArg(9, dtypes.float32, (1,), addrspace=AddrSpace.REG))
    zero = UOp.const(0, dtypes.weakint)
    i, k = loop(4, 0), red(8, 1)
    start = acc.after(i).index(zero).store(UOp.const(0.0, dtypes.float32))
    now = acc.after(start, k)
    added = now.index(zero).store(now.index(zero) + at(param(1, 32), i * 8 + k)).end(k)
    linear = lowered(kernel(store(param(0, 4), i, acc.after(added).index(zero), i)))
    assert_well_formed(linear)
    assert count(linear, Ops.RANGE) == 2


def test_a_loop_cannot_be_read_from_outside() -> None:
    a, b = loop(4, 0), loop(4, 1)
    crossing = UOp.sink(
        at(param(0, 4), a).store(at(param(1, 4), b)).end(a),
        at(param(2, 4), b).store(at(param(1, 4), a)).end(b),
    )
    with pytest.raises(RuntimeError, match="do not nest"):
        Lowering(crossing, dtypes.int64)


def test_items_in_the_order_of_their_keys_are_those_that_a_queue_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    by_keys, by_need = _Blocks.ordered, _Blocks._ordered_by_need
    found = []

    def both(blocks: _Blocks, block: UOp | None) -> list[UOp]:
        with monkeypatch.context() as patch:
            patch.setattr(_Blocks, "_ordered_by_need", lambda *args: pytest.fail("the order of the keys was not taken"))
            found.append(by_keys(blocks, block))
        assert found[-1] == by_need(blocks, blocks.items[block])
        return found[-1]

    monkeypatch.setattr(_Blocks, "ordered", both)
    assert_well_formed(lowered(matmul(8, 8, 8, (Opt(OptOps.UPCAST, 0, 2), Opt(OptOps.UNROLL, 0, 2)))))
    assert sum(map(len, found)) > 5
