"""Which kernels the scheduler makes: the counts, and the reason for each. No device is opened."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tinygrad.mixin.gradient import compute_gradient
from tinygrad.schedule import create_linear_with_vars
from tinygrad.schedule.indexing import apply_movement_op
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, dtypes


def storage(*shape: int, dtype=dtypes.float32) -> UOp:
    size = 1
    for s in shape:
        size *= s
    return UOp.new_buffer("CPU", size, dtype).reshape(shape)


def kernels(*roots: UOp) -> list[UOp]:
    linear, _, _ = create_linear_with_vars(UOp.sink(*roots))
    return [c for c in linear.src if c.src[0].op is Ops.SINK]


def assert_no_movement(calls: list[UOp]) -> None:
    for call in calls:
        for u in call.src[0].toposort():
            assert u.op not in GroupOp.Movement, f"{u.op} survived scheduling"


def test_matmul_written_as_broadcast_is_one_kernel() -> None:
    a, b = storage(64, 64), storage(64, 64)
    product = (a.reshape(64, 1, 64) * b.permute(1, 0).reshape(1, 64, 64)).sum(axis=2)
    calls = kernels(product)
    assert len(calls) == 1
    assert_no_movement(calls)


def test_epilogue_joins_the_matmul() -> None:
    a, b, bias = storage(64, 64), storage(64, 64), storage(64)
    assert len(kernels((a.dot(b) + bias).relu())) == 1


def test_softmax_is_one_kernel_with_three_loops() -> None:
    calls = kernels(storage(64, 128).softmax())
    assert len(calls) == 1
    reduces = [u for u in calls[0].src[0].toposort() if u.op is Ops.REDUCE]
    assert {u.arg[0] for u in reduces} == {Ops.MAX, Ops.ADD}


def test_layernorm_is_one_kernel() -> None:
    assert len(kernels(storage(64, 128).layernorm())) == 1


def test_long_sum_splits_in_two() -> None:
    # One number from 2**20: partial sums in parallel, then their sum.
    assert len(kernels(storage(1024, 1024).sum())) == 2


@pytest.mark.parametrize(("images", "counted"), [(32, 1), (512, 2)])
def test_gradients_of_weights_split_where_caches_do_not_hold_the_operands(images: int, counted: int) -> None:
    # Every tile of results walks all of both operands, 13 MB of 512 images: partial sums of fewer images, then theirs.
    x, w = storage(images, 64, 8, 8), storage(64, 64, 3, 3)
    grad = compute_gradient(x.conv2d(w), storage(images, 64, 6, 6), [w])[w]
    assert sum(any(u.op is Ops.REDUCE for u in c.src[0].toposort()) for c in kernels(grad)) == counted


def test_shared_elementwise_is_computed_twice_not_stored() -> None:
    x = storage(1024)
    y = x + 1
    assert len(kernels((y * 2).reshape(32, 32).sum(axis=1), y.reshape(32, 32).permute(1, 0).contiguous())) == 2


def test_pooling_that_feeds_a_convolution_is_stored() -> None:
    x, w = storage(1, 8, 16, 16), storage(16, 8, 3, 3)
    pooled = (x * 2 + 1).max_pool2d((2, 2))
    calls = kernels(pooled.conv2d(w))
    reduces = [sum(u.op is Ops.REDUCE for u in c.src[0].toposort()) for c in calls]
    assert max(reduces) == 1, "pooled anew for each tap"


def test_siblings_share_a_kernel() -> None:
    p, g, m = storage(1000), storage(1000), storage(1000)
    new_m = m * 0.9 + g
    new_p = p - new_m * 0.1
    write_m = m.base.after(m.store(new_m))
    write_p = p.base.after(p.store(new_p))
    calls = kernels(write_m, write_p)
    assert len(calls) == 1, "an optimiser step of one parameter is one kernel with two stores"
    assert len(calls[0].src[0].src) == 2


def _transposed_gradient() -> list[UOp]:
    # Of a linear layer with as many inputs as outputs: the results and the gradient of x have the same loops.
    x, w, g = storage(32, 64), storage(64, 64), storage(32, 64)
    return [x.dot(w.permute(1, 0)).contiguous(), g.dot(w).contiguous()]


def _queries_and_keys() -> list[UOp]:
    x = storage(32, 64)
    return [x.dot(storage(64, 64)).contiguous() for _ in range(2)]


def _convolution_and_gradient() -> list[UOp]:
    x, w, g = storage(2, 8, 6, 6), storage(8, 8, 3, 3), storage(2, 8, 6, 6)
    flipped = w.flip(2, 3).permute(1, 0, 2, 3)
    return [x.conv2d(w, padding=1).contiguous(), g.conv2d(flipped, padding=1).contiguous()]


def _few_rows() -> list[UOp]:
    x = storage(2, 64)
    return [x.dot(storage(64, 64)).contiguous() for _ in range(2)]


@pytest.mark.parametrize("make", [_transposed_gradient, _queries_and_keys, _convolution_and_gradient, _few_rows])
def test_contractions_do_not_share_a_kernel(make: Callable[[], list[UOp]]) -> None:
    # Together they took up to twenty times as long: no tile of sums fits the registers twice.
    reduces = [sum(u.op is Ops.REDUCE for u in c.src[0].toposort()) for c in kernels(*make())]
    assert [n for n in reduces if n] == [1, 1]


def test_sums_that_are_bound_by_memory_share_a_kernel() -> None:
    # The gradients of a norm: one factor runs along all loops, so the kernel is as slow as memory.
    g, x, w = storage(32, 64), storage(32, 64), storage(64)
    scaled = g * w.reshape(1, 64)
    assert len(kernels(scaled.sum(axis=1), (scaled * x).sum(axis=1))) == 1


def test_sums_along_rows_and_columns_of_a_matrix_stay_apart() -> None:
    w, x, g = storage(64, 64), storage(64), storage(64)
    assert len(kernels((w * x).sum(axis=1), (w.permute(1, 0) * g).sum(axis=1))) == 2


def test_moments_of_the_same_rows_share_a_kernel() -> None:
    x = storage(256, 512)
    assert len(kernels(x.sum(axis=1), (x * x).sum(axis=1))) == 1


def test_products_of_the_same_input_stay_alone() -> None:
    # Queries, keys and values: each product has its tiles, three in one kernel would have none.
    x, weights = storage(512, 256), [storage(256, 256) for _ in range(3)]
    calls = kernels(*[x.dot(w) for w in weights])
    assert [sum(u.op is Ops.REDUCE for u in c.src[0].toposort()) for c in calls] == [1, 1, 1]


def test_a_convolution_and_the_gradient_of_its_input_stay_alone() -> None:
    # With as many channels in as out they have equal loops, and share the weights.
    x, w, grad = storage(8, 256, 14, 14), storage(256, 256, 3, 3), storage(8, 256, 14, 14)
    out = x.conv2d(w, padding=1)
    calls = kernels(out, compute_gradient(out, grad, [x])[x])
    assert max(sum(u.op is Ops.REDUCE for u in c.src[0].toposort()) for c in calls) == 1


@pytest.mark.parametrize("copied", ["left", "right"])
def test_rows_of_heads_are_copied_for_a_large_product(copied: str) -> None:
    # The terms, or the columns, are (head, place in the head), which lie apart: in a copy they are one loop.
    heads, weights, grad = storage(4, 8, 256, 32), storage(256, 256), storage(4, 256, 256)
    rows = heads.permute(0, 2, 1, 3).reshape(4, 256, 256)
    product = rows.dot(weights) if copied == "left" else grad.reshape(1024, 256).T.dot(rows.reshape(1024, 256))
    calls = kernels(product)
    matmul = next(c.src[0] for c in calls if c.src[0].op_in_backward_slice_with_self(Ops.REDUCE))
    assert len(calls) == 2
    assert not [u for u in matmul.toposort() if u.op in {Ops.CDIV, Ops.CMOD, Ops.FLOORDIV, Ops.FLOORMOD}]


def test_rows_of_heads_of_a_small_product_are_read_where_they_lie() -> None:
    rows = storage(2, 8, 16, 32).permute(0, 2, 1, 3).reshape(2, 16, 256)
    assert len(kernels(rows.dot(storage(256, 64)))) == 1


def test_shifted_in_place_write_goes_through_a_copy() -> None:
    x = storage(16)
    write = x.base.after(x.store(x.flip(0)))
    assert len(kernels(write)) == 2


def test_same_place_write_is_one_kernel() -> None:
    x = storage(16)
    assert len(kernels(x.base.after(x.store(x + 1)))) == 1


def test_old_value_is_read_before_it_is_overwritten() -> None:
    x = storage(16)
    old = (x * 2).contiguous()
    write = x.base.after(x.store(x + 1))
    linear, _, _ = create_linear_with_vars(UOp.sink(write, old))
    writes_x = [c.src[1] is x.base for c in linear.src]
    assert writes_x[-1] or len(linear.src) == 1, "the reader of the old value runs first or in the same kernel"


def test_equal_layers_are_the_same_kernel() -> None:
    x, w1, w2 = storage(64, 64), storage(64, 64), storage(64, 64)
    calls = kernels(x.dot(w1).contiguous().dot(w2))
    assert len(calls) == 2
    assert calls[0].src[0] is calls[1].src[0]


def test_second_schedule_of_the_same_graph_is_the_same_plan() -> None:
    bodies = []
    for _ in range(2):
        x = storage(32, 32)
        bodies.append([c.src[0] for c in kernels(x.sum(axis=1))])
    assert bodies[0][0] is bodies[1][0]


def test_gather_reads_one_row() -> None:
    table, index = storage(1000, 8), storage(4, dtype=dtypes.int32)
    rows = UOp.iota(1000).cast(dtypes.int32).reshape(1, 1000, 1)
    picked = index.reshape(4, 1, 1).eq(rows).where(table.reshape(1, 1000, 8), 0.0).sum(axis=1)
    calls = kernels(picked)
    assert len(calls) == 1
    assert not any(u.op is Ops.REDUCE for u in calls[0].src[0].toposort())


@pytest.mark.parametrize(
    ("out_shape", "in_shape"),
    [((6, 4), (24,)), ((24,), (6, 4)), ((2, 3, 4), (6, 4)), ((1, 6, 1, 4), (6, 4)), ((8, 3), (4, 6))],
)
def test_reshape_indices(out_shape: tuple[int, ...], in_shape: tuple[int, ...]) -> None:
    import numpy as np

    x = np.arange(24).reshape(in_shape)
    for position in np.ndindex(*out_shape):
        idxs = tuple(UOp.const(int(i), dtypes.weakint) for i in position)
        inner = apply_movement_op(Ops.RESHAPE, in_shape, out_shape, idxs)
        assert x[tuple(int(i) for i in inner)] == x.reshape(out_shape)[position]


def test_convolution_windows_become_sums_of_loops() -> None:
    x, w = storage(2, 3, 8, 8), storage(4, 3, 3, 3)
    (call,) = kernels(x.conv2d(w))
    for u in call.src[0].toposort():
        if u.op is Ops.INDEX:
            assert not any(v.op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD) for v in u.src[1].toposort())


def test_chained_products_are_not_nested_in_one_another() -> None:
    # Each product inside the loop of the next would run 8 times as often as it: 8 ** 20 times in all.
    w, x = storage(8, 8), storage(8)
    for _ in range(20):
        x = x.dot(w).relu()
    calls = kernels(x)
    assert len(calls) >= 10
    assert len({c.src[0] for c in calls}) <= 4, "equal layers compile once"


def test_rows_read_one_by_one_run_the_same_kernel() -> None:
    rows = storage(10, 16)
    bodies = [kernels(rows[i] + 1)[0].src[0] for i in range(10)]
    assert len(set(bodies)) == 1


def test_a_reduction_with_several_users_is_stored_before_softmax() -> None:
    assert len(kernels((storage(64, 64).dot(storage(64, 64))).softmax())) == 2


def stores(*roots: UOp) -> int:
    return sum(u.op is Ops.STORE for call in kernels(*roots) for u in call.src[0].toposort())


def test_operations_that_others_share_count_once_in_a_body() -> None:
    """A body is cut where it holds too many operations, not where its formula written out would be long."""
    assert stores(storage(64).tanh()) == 1
    assert stores(storage(64).asinh()) == 1
    x = storage(64)
    for _ in range(40):
        x = x * x + x
    assert stores(x) == 1
    for _ in range(400):
        x = x * x + x
    assert stores(x) > 1


def test_what_is_read_through_different_views_is_computed_for_each() -> None:
    x = storage(64)
    for _ in range(12):
        x = x + x.flip(0)
    assert stores(x) > 1
