"""The schedule language: what each step makes of a kernel's ranges, and what it refuses."""

from __future__ import annotations

import re

import pytest

from test.helpers_ast import at, kernel, loop, param, red, store
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.loops import blocks_over
from tinygrad.codegen.opt.policy import optimize_kernel
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.simplify import merge_ranges, simplify_kernel
from tinygrad.dtype import dtypes
from tinygrad.renderer import Renderer
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp


class Vectors(Renderer):
    """A CPU with vectors of 64 bytes and 32 registers."""

    device = "CPU"
    has_local = False
    has_threads = True
    global_max = None
    vector_bytes = 64
    vector_registers = 32
    index_dtype = dtypes.int64


class Scalars(Vectors):
    """The same without vectors."""

    vector_bytes = 0


def matmul(m: int, n: int, k: int, opts: tuple[Opt, ...] | None = None) -> UOp:
    """Return C[i, j] = sum over k of A[i, k] * B[k, j]."""
    i, j, r = loop(m, 0), loop(n, 1), red(k, 2)
    a, b, c = param(1, m * k), param(2, k * n), param(0, m * n)
    product = at(a, i * k + r) * at(b, r * n + j)
    return kernel(store(c, i * n + j, product.reduce(r, arg=Ops.ADD), i, j), opts=opts)


def sizes(sink: UOp) -> dict[AxisType, list[int]]:
    """Return the sizes of the ranges by type."""
    found: dict[AxisType, list[int]] = {}
    for r in sorted((u for u in sink.toposort() if u.op is Ops.RANGE), key=lambda r: r.arg[0]):
        found.setdefault(r.arg[-1], []).append(r.src[0].arg)
    return found


def test_upcast_splits_an_output_loop() -> None:
    made = optimize_kernel(matmul(12, 8, 6, (Opt(OptOps.UPCAST, 0, 4),)), Vectors())
    assert sizes(made) == {AxisType.LOOP: [8, 3], AxisType.REDUCE: [6], AxisType.UPCAST: [4]}
    assert made.arg.applied_opts == (Opt(OptOps.UPCAST, 0, 4),)
    end = made.src[0]
    assert [r.src[0].arg for r in end.src[1:]] == [3, 8, 4]


def test_unroll_counts_reduce_axes() -> None:
    made = optimize_kernel(matmul(12, 8, 6, (Opt(OptOps.UNROLL, 0, 0),)), Vectors())
    assert sizes(made) == {AxisType.LOOP: [12, 8], AxisType.UNROLL: [6]}


def test_padto_gates_loads_and_stores() -> None:
    made = optimize_kernel(matmul(12, 10, 6, (Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 16))), Vectors())
    gated = {u.src[0].arg.slot for u in made.toposort() if u.op is Ops.INDEX and len(u.src) == 3}
    assert gated == {0, 2}, "the store and the load that depend on j are masked, the other load is not"


def test_padded_reduce_adds_the_identity() -> None:
    k = red(6, 0)
    body = (at(param(1, 6), k) + 1.0).reduce(k, arg=Ops.ADD)
    sink = kernel(store(param(0, 1), UOp.const(0, dtypes.weakint), body), opts=(Opt(OptOps.PADTO, 0, 8),))
    made = optimize_kernel(sink, Vectors())
    reduce = next(u for u in made.toposort() if u.op is Ops.REDUCE)
    assert reduce.src[0].op is Ops.WHERE
    assert reduce.src[0].src[2].arg == 0.0


def test_overlap_keeps_every_index_inside() -> None:
    i = loop(10, 0)
    sink = kernel(store(param(0, 10), i, at(param(1, 10), i), i), opts=(Opt(OptOps.OVERLAP, 0, 4),))
    made = optimize_kernel(sink, Vectors())
    assert sizes(made) == {AxisType.LOOP: [3, 4]}
    for u in made.toposort():
        if u.op is Ops.INDEX:
            assert len(u.src) == 2
            assert (u.src[1].vmin, u.src[1].vmax) == (0, 9)


def test_overlap_refuses_to_run_twice_what_reads_its_own_result() -> None:
    i, p = loop(10, 0), param(0, 10)
    schedule = Schedule(kernel(store(p, i, at(p, i) + 1.0, i)), Vectors())
    with pytest.raises(KernelOptError, match="reads what it writes"):
        schedule.apply(Opt(OptOps.OVERLAP, 0, 4))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Opt(OptOps.TC, 0, (-1, 0, 1)), "no tensor core available"),
        (Opt(OptOps.UPCAST, 0, 5), "does not divide the axis of size 12"),
        (Opt(OptOps.UPCAST, 2, 2), "only an output loop can be upcast"),
        (Opt(OptOps.UPCAST, 7, 2), "the kernel has 3 axes"),
        (Opt(OptOps.UNROLL, 1, 2), "the kernel has 1 reduce axes"),
        (Opt(OptOps.VECTOR, 1, 3), "does not divide"),
        (Opt(OptOps.VECTOR, 0, 12), "a power of two"),
        (Opt(OptOps.LOCAL, 0, 2), "no work-groups"),
        (Opt(OptOps.GROUP, 0, 2), "no work-groups"),
        (Opt(OptOps.PADTO, 0, 64), "more than four times"),
        (Opt(OptOps.SWAP, 0, 2), "only two output loops"),
        (Opt(OptOps.MERGE, 0, 0), "only two output loops"),
        (Opt(OptOps.THREAD, 2, 0), "only an output loop can be run by threads"),
    ],
    ids=str,
)
def test_steps_that_do_not_fit_raise(step: Opt, message: str) -> None:
    schedule = Schedule(matmul(12, 8, 6), Vectors())
    with pytest.raises(KernelOptError, match=re.escape(message)):
        schedule.apply(step)


def test_vectors_need_a_target_that_has_them() -> None:
    with pytest.raises(KernelOptError, match="no vectors"):
        Schedule(matmul(12, 8, 6), Scalars()).apply(Opt(OptOps.VECTOR, 1, 8))


def test_no_value_has_lanes_of_two_ranges() -> None:
    schedule = Schedule(matmul(16, 8, 8), Vectors())
    schedule.apply(Opt(OptOps.VECTOR, 1, 8))
    for axis in (0, 2):
        with pytest.raises(KernelOptError, match="two VECTOR axes"):
            schedule.apply(Opt(OptOps.VECTOR, axis, 8))


def test_threads_run_the_outermost_loop() -> None:
    made = optimize_kernel(matmul(12, 8, 6, (Opt(OptOps.THREAD, 1, 4),)), Vectors())
    ranges = made.src[0].src[1:]
    assert [(r.arg[-1], r.src[0].arg) for r in ranges] == [
        (AxisType.THREAD, 4),
        (AxisType.LOOP, 12),
        (AxisType.LOOP, 2),
    ]
    with pytest.raises(KernelOptError, match="THREAD axis already"):
        optimize_kernel(matmul(12, 8, 6, (Opt(OptOps.THREAD, 1, 4), Opt(OptOps.THREAD, 1, 0))), Vectors())


def test_block_nests_a_sum() -> None:
    made = optimize_kernel(matmul(4, 4, 64, (Opt(OptOps.BLOCK, 0, 16),)), Vectors())
    reduces = [u for u in made.toposort() if u.op is Ops.REDUCE]
    assert [[r.src[0].arg for r in u.src[1:]] for u in reduces] == [[16], [4]]


def test_merge_of_contiguous_loops_leaves_no_division() -> None:
    i, j = loop(6, 0), loop(7, 1)
    made = merge_ranges(kernel(store(param(0, 42), i * 7 + j, at(param(1, 42), i * 7 + j), i, j)))
    assert sizes(made) == {AxisType.LOOP: [42]}
    assert not {Ops.FLOORDIV, Ops.FLOORMOD} & {u.op for u in made.toposort()}


def test_merge_leaves_loops_that_differ() -> None:
    i, j = loop(6, 0), loop(7, 1)
    sink = kernel(store(param(0, 42), i * 7 + j, at(param(1, 42), j * 6 + i), i, j))
    assert merge_ranges(sink) is sink


def test_ranges_of_one_iteration_disappear() -> None:
    i, j = loop(1, 0), loop(7, 1)
    made = simplify_kernel(kernel(store(param(0, 7), i * 7 + j, at(param(1, 7), j), i, j)))
    assert sizes(made) == {AxisType.LOOP: [7]}


def test_matmul_gets_a_register_tile() -> None:
    made = optimize_kernel(matmul(120, 128, 64), Vectors())
    found = sizes(made)
    assert found[AxisType.VECTOR] == [16]
    tile = 1
    for n in found[AxisType.UPCAST]:
        tile *= n
    assert 20 <= tile <= 30, f"{tile} accumulators do not use 32 registers well"
    assert AxisType.UNROLL in found


def test_row_sums_run_along_the_row() -> None:
    i, k = loop(64, 0), red(1024, 1)
    sink = kernel(store(param(0, 64), i, at(param(1, 64 * 1024), i * 1024 + k).reduce(k, arg=Ops.ADD), i))
    found = sizes(optimize_kernel(sink, Vectors()))
    assert found[AxisType.VECTOR] == [16]
    assert found[AxisType.UNROLL] == [4]
    column = kernel(store(param(0, 64), i, at(param(1, 64 * 1024), k * 64 + i).reduce(k, arg=Ops.ADD), i))
    assert sizes(optimize_kernel(column, Vectors()))[AxisType.UPCAST] == [4]


def test_small_kernels_stay_on_one_thread() -> None:
    i = loop(256, 0)
    small = optimize_kernel(kernel(store(param(0, 256), i, at(param(1, 256), i), i)), Vectors())
    assert AxisType.THREAD not in sizes(small)
    n = loop(1 << 20, 0)
    large = optimize_kernel(kernel(store(param(0, 1 << 20), n, at(param(1, 1 << 20), n), n)), Vectors())
    assert sizes(large)[AxisType.THREAD] == [(1 << 20) // 64]


def test_opts_to_apply_empty_changes_nothing() -> None:
    sink = matmul(12, 8, 6, ())
    assert optimize_kernel(sink, Vectors()) is sink


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("wanted", [1, 2, 4])
def test_vectors_taken_at_once_compute_little_twice(lanes: int, wanted: int) -> None:
    for size in range(1, 600):
        blocks = blocks_over(size, lanes, wanted)
        assert 1 <= blocks <= max(1, min(size // lanes, 2 * wanted))
        needed = -(-size // lanes)
        computed = -(-size // (lanes * blocks)) * blocks
        assert computed <= max(needed * 1.34, needed + 1), (size, blocks)
