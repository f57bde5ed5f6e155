"""What the policy of loops does: lanes, copies and streams by the structure of a kernel, and values that stay right."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from test.helpers_ast import run_program
from test.helpers_schedules import compare_policy, kernel_of
from tinygrad import Context, Device, Tensor, dtypes
from tinygrad.codegen.opt import OptOps
from tinygrad.codegen.opt.policy import automatic
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.dtype import DType
from tinygrad.uop import AxisType

F32, SIZES = dtypes.float32, (1, 2, 3, 7, 13, 15, 16, 17, 31, 33, 47, 65)


def empty(*shape: int, dtype: DType = F32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


def schedule_of(out: Tensor) -> Schedule:
    """Return the schedule that the policies choose for the one kernel of a tensor."""
    sink = kernel_of(out)
    assert sink is not None
    with Context(NUM_CPU_THREADS=2):
        return automatic(simplify_kernel(sink), Device["CPU"].renderer)


def total(schedule: Schedule, kind: AxisType) -> int:
    return int(np.prod([a.size for a in schedule.axes if a.kind is kind], dtype=int))


needs_wide_vectors = pytest.mark.skipif(Device["CPU"].renderer.vector_registers < 32, reason="few vector registers")


@pytest.mark.parametrize("seed", range(0, 120, 5))
def test_policies_keep_the_values(seed: int) -> None:
    compare_policy(seed, run_program)


# ---- windows ---------------------------------------------------------------------------------------------------------

WINDOWS: dict[str, Callable[[], Tensor]] = {
    "depthwise": lambda: empty(2, 32, 56, 56).conv2d(empty(32, 1, 3, 3), groups=32, padding=1),
    "depthwise 5x5": lambda: empty(2, 32, 60, 60).conv2d(empty(32, 1, 5, 5), groups=32),
    "depthwise, stride 2": lambda: empty(2, 32, 57, 57).conv2d(empty(32, 1, 3, 3), groups=32, padding=1, stride=2),
    "average": lambda: empty(2, 32, 58, 58)._pool((3, 3), 1, 1).sum((-1, -2)),
    "maximum": lambda: empty(2, 32, 56, 56).max_pool2d((3, 3), stride=1, padding=1),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_rows_that_share_are_copies(name: str) -> None:
    schedule = schedule_of(WINDOWS[name]())
    rows = [i for i, a in enumerate(schedule.axes) if a.kind is AxisType.UPCAST]
    sizes = [schedule.axes[i].size for i in rows]
    assert 2 <= total(schedule, AxisType.UPCAST) <= 8, sizes
    # Lanes lie in the last range; some copies are of another one, and the rows of its windows are in the body.
    lane = next(schedule.origins[a.range] for a in schedule.axes if a.kind is AxisType.VECTOR)
    assert any(not schedule.origins[schedule.axes[i].range] & lane for i in rows)
    assert total(schedule, AxisType.UNROLL) >= 3


@pytest.mark.parametrize("size", [2, 3])
def test_windows_that_do_not_overlap_are_no_copies(size: int) -> None:
    schedule = schedule_of(empty(2, 32, 56 * size, 64 * size).max_pool2d((size, size)))
    lane = next(schedule.origins[a.range] for a in schedule.axes if a.kind is AxisType.VECTOR)
    copies = [a for a in schedule.axes if a.kind is AxisType.UPCAST]
    assert all(schedule.origins[a.range] & lane for a in copies)


def test_neighbours_that_read_one_element_are_copies() -> None:
    """As in the gradient of pooling: rows 2 y and 2 y + 1 read row y of the windows."""
    windows = empty(8, 10, 10, 2, 2).permute(0, 1, 3, 2, 4).reshape(8, 20, 20)
    schedule = schedule_of(windows * empty(8, 20, 20))
    lane = next(schedule.origins[a.range] for a in schedule.axes if a.kind is AxisType.VECTOR)
    rows = [a for a in schedule.axes if a.kind is AxisType.UPCAST and not schedule.origins[a.range] & lane]
    assert [a.size for a in rows] == [2]


def windows_of(x: np.ndarray, k: int, padding: int, step: int, fill: float) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (k, k), (2, 3))[:, :, ::step, ::step]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("k", "padding", "step"), [(3, 1, 1), (3, 0, 2), (5, 2, 1), (2, 1, 1)])
def test_windows_of_any_size(size: int, k: int, padding: int, step: int) -> None:
    height, width = max(size, k), max(SIZES[-1 - SIZES.index(size)], k)
    rng = np.random.default_rng(size)
    x = rng.integers(-4, 5, (2, 3, height, width)).astype(np.float32)
    w = rng.integers(-4, 5, (3, 1, k, k)).astype(np.float32)
    x_dev, w_dev = Tensor(x).realize(), Tensor(w).realize()
    got = x_dev.conv2d(w_dev, groups=3, padding=padding, stride=step).numpy()
    want = np.einsum("nchwij,cij->nchw", windows_of(x, k, padding, step, 0), w[:, 0])
    np.testing.assert_array_equal(got, want)
    got = x_dev.max_pool2d((k, k), stride=step, padding=padding).numpy()
    np.testing.assert_array_equal(got, windows_of(x, k, padding, step, -np.inf).max((-1, -2)))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int32", "int64"])
def test_windows_of_any_dtype(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (2, 3, 19, 37)).astype(dtype)
    w = np.random.default_rng(1).integers(0, 2, (3, 1, 3, 3)).astype(dtype)
    got = Tensor(x).realize().conv2d(Tensor(w).realize(), groups=3, padding=1).numpy()
    want = np.einsum("nchwij,cij->nchw", windows_of(x, 3, 1, 1, 0), w[:, 0])
    np.testing.assert_array_equal(got, want)
    got = Tensor(x).realize().max_pool2d((3, 3), stride=1).numpy()
    np.testing.assert_array_equal(got, windows_of(x, 3, 0, 1, 0).max((-1, -2)))


# ---- long expressions ------------------------------------------------------------------------------------------------


@needs_wide_vectors
@pytest.mark.parametrize(
    ("out", "lanes"),
    [
        (lambda: empty(4096).gelu(), 64),
        (lambda: empty(4096, dtype=dtypes.bfloat16).silu(), 64),
        (lambda: empty(4096, dtype=dtypes.float64).exp(), 32),
        (lambda: empty(4096) + 1, 16),
        (lambda: empty(40).gelu(), 16),  # more would be beyond the end
        (lambda: empty(64, 48).pad(((0, 0), (1, 1))).sin(), 16),  # masks
    ],
    ids=["gelu", "bfloat16", "float64", "short", "few", "masks"],
)
def test_lanes_of_expressions(out: Callable[[], Tensor], lanes: int) -> None:
    assert total(schedule_of(out()), AxisType.VECTOR) == lanes


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 63, 64, 65, 100, 127, 129, 1000])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.float64])
def test_long_expressions_of_any_size(size: int, dtype: DType) -> None:
    x = np.linspace(-6, 6, size)
    tensor = Tensor(x, dtype=dtype).realize()
    tolerance = {8: 1e-6, 4: 1e-6, 2: 2e-3}[dtype.itemsize]  # of the results; float16 rounds what goes in, too
    x = tensor.numpy().astype(np.float64)
    np.testing.assert_allclose(tensor.silu().numpy(), x / (1 + np.exp(-x)), rtol=tolerance, atol=tolerance)
    exps = np.exp(x - x.max())
    np.testing.assert_allclose(tensor.softmax().numpy(), exps / exps.sum(), rtol=tolerance, atol=tolerance)


def test_in_place_updates_with_long_expressions() -> None:
    """What reads its own result is computed once per element: lanes beyond the end are masked."""
    for size in (1, 63, 64, 65, 100):
        x = np.linspace(0, 1, size, dtype=np.float32)
        tensor = Tensor(x.copy()).realize()
        tensor.assign(tensor + tensor.exp()).realize()
        np.testing.assert_allclose(tensor.numpy(), x + np.exp(x), rtol=1e-6)


# ---- sums ------------------------------------------------------------------------------------------------------------


@needs_wide_vectors
def test_sums_of_rows_read_a_kilobyte_of_each() -> None:
    schedule = schedule_of(empty(512, 4096).sum(0))
    assert total(schedule, AxisType.VECTOR) * total(schedule, AxisType.UPCAST) * 4 >= 1024


def test_long_sums_are_read_in_several_places() -> None:
    schedule = schedule_of(empty(256, 1 << 16).sum(1))
    after = schedule.applied[max(i for i, o in enumerate(schedule.applied) if o.op is OptOps.BLOCK) + 1]
    assert (after.op, after.arg) == (OptOps.UNROLL, 8)


@pytest.mark.parametrize("size", [1 << 14, (1 << 14) + 1, 99_991, 1 << 20])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int32])
def test_long_sums_of_any_size(size: int, dtype: DType) -> None:
    with Context(SPLIT_REDUCEOP=0):
        got = (Tensor.ones(size, dtype=dtype).contiguous().realize() * Tensor(2, dtype=dtype)).sum(dtype=F32).item()
    assert got == 2 * size


def test_long_float_sums_of_one_value_round_little() -> None:
    size = 1 << 22
    with Context(SPLIT_REDUCEOP=0):
        got = Tensor.full((size,), 0.1).contiguous().realize().sum().item()
    assert abs(got / (float(np.float32(0.1)) * size) - 1) < 2e-6


# ---- rows times a vector ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize("rows", [64, 100, 1000])
def test_rows_shorter_than_a_vector(rows: int, columns: int) -> None:
    matrix = np.random.default_rng(rows).integers(-9, 9, (rows, columns)).astype(np.float32)
    vector = np.arange(columns, dtype=np.float32)
    np.testing.assert_array_equal((Tensor(matrix).realize() @ Tensor(vector).realize()).numpy(), matrix @ vector)


@pytest.mark.parametrize("out", [lambda: empty(1000, 3) @ empty(3), lambda: empty(2, 4, 1000).conv2d(
    empty(4, 1, 3), groups=4)], ids=["rows", "windows"])  # fmt: skip
def test_lanes_run_over_rows_that_are_short_or_overlap(out: Callable[[], Tensor]) -> None:
    schedule = schedule_of(out())
    lane = next(a for a in schedule.axes if a.kind is AxisType.VECTOR)
    assert not lane.reduce


# ---- what lies between the lanes of a store --------------------------------------------------------------------------

BETWEEN: dict[str, tuple[Callable[[], Tensor], int]] = {
    "windows of a pool": (lambda: _normalized(64, 64, 6, 6).max_pool2d(2), 9),
    "gradient of a pool": (lambda: _gradient_of_a_pool(_normalized(64, 64, 6, 6)), 36),
    "stack": (lambda: Tensor.stack(*[empty(1 << 17) for _ in range(20)], dim=-1), 20),
    "long expression": (lambda: empty(3, 3, 4096).gelu().permute(2, 0, 1).contiguous(), 1),
}


def _normalized(*shape: int) -> Tensor:
    """Return images normalized with three numbers per channel, over which lanes run then."""
    mean, scale, bias = (empty(1, shape[1], 1, 1) for _ in range(3))
    return (empty(*shape) - mean) * scale + bias


def _gradient_of_a_pool(x: Tensor) -> Tensor:
    """Return what the gradient of a maximum over 2x2 windows is like: each element held against its window's."""
    windows = x.reshape(64, 64, 3, 2, 3, 2).permute(0, 1, 2, 4, 3, 5)
    largest = empty(64, 64, 3, 3, 1, 1)
    return (windows.eq(largest) * largest).contiguous()


@needs_wide_vectors
@pytest.mark.parametrize("name", BETWEEN)
def test_what_lies_between_lanes_is_stored_at_once(name: str) -> None:
    out, copies = BETWEEN[name]
    assert total(schedule_of(out()), AxisType.UPCAST) == copies


@pytest.mark.parametrize(("count", "dtype"), [(5, F32), (9, dtypes.int8), (20, dtypes.float16), (33, F32), (36, F32)])
def test_stacks_of_any_size(count: int, dtype: DType) -> None:
    for size in (1, 7, 16, 33, 100):
        parts = [np.arange(i, i + size, dtype=np.float32) % 100 for i in range(count)]
        out = Tensor.stack(*[Tensor(part).cast(dtype).realize() for part in parts], dim=-1)
        np.testing.assert_array_equal(out.float().numpy(), np.stack(parts, -1))


@pytest.mark.parametrize(("side", "k"), [(4, 2), (6, 2), (6, 3), (9, 3), (10, 5)])
def test_gradients_of_pools_of_any_size(side: int, k: int) -> None:
    values = np.random.default_rng(side).permutation(3 * 20 * side * side).astype(np.float32)
    x = Tensor(values.reshape(3, 20, side, side))
    y = x.max_pool2d(k)
    cut = values.reshape(3, 20, side // k, k, side // k, k)
    largest = cut.max((3, 5), keepdims=True)
    np.testing.assert_array_equal(y.numpy(), largest[:, :, :, 0, :, 0])
    want = (cut == largest) * 2 * largest
    np.testing.assert_array_equal(y.square().sum().gradient(x)[0].numpy().reshape(cut.shape), want)


# ---- sums of short rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "copies"), [(6, 4), (12, 4), (24, 4), (40, 6)])
def test_sums_of_short_rows_take_several_at_once(row: int, copies: int) -> None:
    """A row that is one vector or two has too few sums in flight: the next rows' are."""
    renderer = Device["CPU"].renderer
    if renderer.vector_bytes != 64:
        pytest.skip("the numbers are those of vectors of 16")
    assert total(schedule_of(empty(128, 64, row).sum((0, 2))), AxisType.UNROLL) == copies


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 128, 1001])
@pytest.mark.parametrize("row", [5, 6, 12, 24, 36, 40])
def test_sums_of_short_rows_of_any_size(rows: int, row: int) -> None:
    values = np.random.default_rng(row).integers(-9, 9, (rows, 3, row)).astype(np.float32)
    np.testing.assert_array_equal(Tensor(values).sum((0, 2)).numpy(), values.sum((0, 2)))


# ---- products whose terms are cut into blocks ------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [65, 67, 86, 97, 127, 129, 131, 257, 263])
def test_blocks_of_terms_need_little_padding(terms: int) -> None:
    # 129 terms, unrolled by 3, are two blocks of 22, not two of 42: half of the products would be with zeros.
    schedule = schedule_of(empty(37, terms) @ empty(terms, 37))
    run = math.prod(total(schedule, kind) for kind in (AxisType.REDUCE, AxisType.UNROLL))
    assert terms <= run <= terms + 8


@pytest.mark.parametrize("terms", [67, 86, 129, 131, 257])
def test_products_of_blocks_of_terms(terms: int) -> None:
    rng = np.random.default_rng(terms)
    a, b = rng.integers(-9, 9, (5, terms)).astype(np.float32), rng.integers(-9, 9, (terms, 37)).astype(np.float32)
    np.testing.assert_array_equal((Tensor(a) @ Tensor(b)).numpy(), a @ b)
