"""Where the vectors of a contraction end up in memory: partial sums, and copies that lie beside each other."""

from __future__ import annotations

import numpy as np
import pytest

from test.helpers_ast import at, kernel, loop, param, red, store
from tinygrad import Tensor
from tinygrad.codegen.late.affine import affine
from tinygrad.codegen.opt import contraction
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.contraction import find_contraction, search_tile
from tinygrad.codegen.opt.loops import LOOPS
from tinygrad.codegen.opt.policy import automatic
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import Target
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.schedule import split
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make small contractions sums of parts."""
    for name, value in {"MIN_REDUCE": 8, "MIN_PRODUCTS": 4, "CACHE_BYTES": 512, "LARGE_BYTES": 64}.items():
        monkeypatch.setattr(split, name, value)


def weight_gradient(x: np.ndarray, grad: np.ndarray, kernel: tuple[int, ...], groups: int) -> np.ndarray:
    """Return the gradient of a convolution's weights, in float64."""
    n, channels, *_ = x.shape
    out = grad.shape[1]
    found = np.zeros((out, channels // groups, *kernel))
    for tap in np.ndindex(*kernel):
        window = x[(slice(None), slice(None), *(slice(t, t + g) for t, g in zip(tap, grad.shape[2:], strict=True)))]
        left = window.reshape(n, groups, channels // groups, -1)
        right = grad.reshape(n, groups, out // groups, -1)
        total = np.einsum("ngcs,ngos->goc", left, right)
        found[(slice(None), slice(None), *tap)] = total.reshape(out, channels // groups)
    return found


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("out", [1, 2, 5, 16, 17, 32])
@pytest.mark.parametrize(
    ("channels", "size", "taps"),
    [(1, (6,), (3,)), (3, (5, 7), (3, 3)), (16, (6, 6), (1, 1)), (2, (7, 5), (5, 1)), (2, (3, 4, 3), (2, 2, 2))],
)
def test_gradients_of_weights_in_parts(out: int, channels: int, size: tuple[int, ...], taps: tuple[int, ...]) -> None:
    rng = np.random.default_rng(out)
    x = rng.integers(-3, 4, (8, channels, *size)).astype(np.float32)
    grad = rng.integers(-3, 4, (8, out, *(s - t + 1 for s, t in zip(size, taps, strict=True)))).astype(np.float32)
    w = Tensor(np.zeros((out, channels, *taps), np.float32))
    (found,) = Tensor(x).conv2d(w).gradient(w, gradient=Tensor(grad))
    np.testing.assert_array_equal(found.numpy(), weight_gradient(x, grad, taps, 1))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("groups", [2, 4])
def test_gradients_of_weights_of_groups_in_parts(groups: int) -> None:
    rng = np.random.default_rng(groups)
    x = rng.integers(-3, 4, (8, 8, 6, 5)).astype(np.float32)
    grad = rng.integers(-3, 4, (8, 64, 4, 3)).astype(np.float32)
    w = Tensor(np.zeros((64, 8 // groups, 3, 3), np.float32))
    (found,) = Tensor(x).conv2d(w, groups=groups).gradient(w, gradient=Tensor(grad))
    np.testing.assert_array_equal(found.numpy(), weight_gradient(x, grad, (3, 3), groups))


def product(*shapes: tuple[int, ...]) -> UOp:
    """Return a product of arrays whose axes of size 1 are repeated."""
    left, right = (Tensor.empty(*shape).uop for shape in shapes)
    return left.alu(Ops.MUL, right)


@pytest.mark.parametrize(
    ("left", "right", "last"),
    [
        ((1, 8, 5, 5, 9, 7), (32, 1, 1, 1, 9, 7), 0),  # gradient of 5x5 weights: the output channels
        ((1, 32, 5, 5, 9, 7), (3, 1, 1, 1, 9, 7), 1),  # few output channels: the input channels
        ((64, 1, 9, 7), (1, 64, 9, 7), 1),  # a matmul: as it is
        ((16, 1, 9, 7), (1, 640, 9, 7), 1),
        ((64, 1, 9, 7), (1, 5, 9, 7), 0),  # few columns: along the rows
        ((4, 5, 9, 7), (4, 5, 9, 7), 1),  # both have every axis: as it is
    ],
)
def test_partial_sums_are_stored_along_vectors(left: tuple[int, ...], right: tuple[int, ...], last: int) -> None:
    shape = (*(max(a, b) for a, b in zip(left[:-2], right[:-2], strict=True)), 1, 1)
    order = split.storage_order(product(left, right), shape)
    assert sorted(order) == list(range(len(shape)))
    results = [i for i in order if shape[i] > 1]
    assert results[-1] == last


def test_a_factor_with_fewer_axes() -> None:
    numbers = Tensor(np.arange(1 << 16, dtype=np.int32).reshape(2, -1) % 8).realize()
    assert (numbers * Tensor(2)).sum().item() == 7 << 16
    weights = Tensor.ones(1 << 15, dtype=dtypes.int32).contiguous().realize()
    assert (numbers * weights).sum(1).tolist() == [7 << 14] * 2
    shape = (2, 16, 1)
    assert split.storage_order(product((2, 16, 9), (9,)), shape) == (0, 1, 2)


@pytest.mark.parametrize("axes", ["yx", "xy"])
def test_copies_run_along_rows_where_lanes_lie_apart(axes: str) -> None:
    """A convolution with lanes along channels: copies along x or y cost the same, but x is stored in pieces of rows."""
    sizes = {"y": 8, "x": 8}
    loops = {name: loop(sizes[name], i + 2) for i, name in enumerate(axes)}
    n, o, y, x = loop(16, 0), loop(64, 1), loops["y"], loops["x"]
    c, dy, dx = red(32, 4), red(3, 5), red(3, 6)
    image = at(param(1, 16 * 32 * 100), ((n * 32 + c) * 10 + y + dy) * 10 + x + dx)
    weight = at(param(2, 32 * 9 * 64), ((c * 3 + dy) * 3 + dx) * 64 + o)
    total = UOp(Ops.REDUCE, dtypes.float32, (image * weight, c, dy, dx), (Ops.ADD, ()))
    sink = kernel(store(param(0, 16 * 64 * 64), (n * 64 + o) * 64 + y * 8 + x, total, n, o, y, x))
    schedule = Schedule(sink, LLVMRenderer(Target.parse("CPU:LLVM:x86_64,sapphirerapids")))
    facts = Kernel(schedule.sink, schedule.mask, schedule.original)
    sides = find_contraction(facts)
    assert sides is not None
    tile = search_tile(facts, sides, 64, 32)
    assert tile is not None
    stored = next(a for a in facts.accesses if a.is_store)
    assert stored.step(tile.lane) == 64
    assert [stored.step(r) for r, _ in tile.copies][:1] == [1]


@pytest.mark.parametrize(
    ("images", "channels", "out", "taps", "size"),
    [(63, 1, 3, 2, 7), (63, 2, 3, 2, 7), (250, 2, 3, 2, 7), (997, 2, 3, 2, 7), (146, 2, 16, 4, 7), (237, 7, 5, 5, 12)],
)
def test_gradients_of_weights_over_any_number_of_images(
    images: int, channels: int, out: int, taps: int, size: int
) -> None:
    """Sums whose inner loops are copies, so that no iteration more fits a chain of additions."""
    rng = np.random.default_rng(images)
    x = rng.integers(-3, 4, (images, channels, size, size)).astype(np.float32)
    grad = rng.integers(-3, 4, (images, out, size - taps + 1, size - taps + 1)).astype(np.float32)
    w = Tensor(np.zeros((out, channels, taps, taps), np.float32))
    (found,) = Tensor(x).conv2d(w).gradient(w, gradient=Tensor(grad))
    np.testing.assert_array_equal(found.numpy(), weight_gradient(x, grad, (taps, taps), 1))


@pytest.mark.parametrize(("filters", "apart"), [(32, 32), (48, 48), (64, 32), (80, 80), (96, 32), (144, 48), (256, 32)])
def test_packed_weights_are_consecutive_per_panel(filters: int, apart: int) -> None:
    """From one term to the next there are as many weights as a register tile reads, not as there are filters."""
    y = Tensor.empty(4, 10, 22, 22).conv2d(Tensor.empty(filters, 10, 3, 3))
    (call,) = [c for c in y.schedule_linear().src if c.src[0].op_in_backward_slice_with_self(Ops.REDUCE)]
    total = next(u for u in call.src[0].toposort() if u.op is Ops.REDUCE)
    (weights,) = [u for u in total.src[0].src if not any(r.src[0].arg in (4, 20) for r in u.ranges)]
    terms, _ = affine(weights.src[1])
    assert min(step for r, step in terms.items() if r.arg[-1] is AxisType.REDUCE) == apart


@pytest.mark.parametrize("filters", [64, 96, 144])
def test_convolutions_with_panels_of_weights(filters: int) -> None:
    rng = np.random.default_rng(filters)
    x, w = (rng.integers(-4, 5, size).astype(np.float32) for size in ((2, 5, 17, 19), (filters, 5, 3, 3)))
    taps = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", taps, w, optimize=True)
    np.testing.assert_array_equal(Tensor(x).realize().conv2d(Tensor(w).realize()).numpy(), wanted)


def read_pixels(y: Tensor) -> dict[int, int]:
    """Return the steps in memory, by size, of the output loops of the image that a convolution of 384 filters reads."""
    (call,) = [c for c in y.schedule_linear().src if c.src[0].op_in_backward_slice_with_self(Ops.REDUCE)]
    total = next(u for u in call.src[0].toposort() if u.op is Ops.REDUCE)
    (image,) = [u for u in total.src[0].src if not any(r.src[0].arg in (384, 12) for r in u.ranges)]
    terms, _ = affine(image.src[1])
    return {r.src[0].arg: step for r, step in terms.items() if r.arg[-1] is not AxisType.REDUCE}


def test_pixels_that_steps_skip_are_read_as_one_loop() -> None:
    """Rows and columns of the image, which steps and crops keep apart, lie together in a copy: it is a matmul then."""
    weights = Tensor.empty(384, 128, 1, 1)
    assert read_pixels(Tensor.empty(1, 128, 39, 41).conv2d(weights, stride=2)) == {20: 21, 21: 1}
    assert read_pixels(Tensor.empty(1, 128, 22, 23)[:, :, 1:-1, 1:-1].conv2d(weights)) == {20: 21, 21: 1}
    # Too little work for a matmul that copies blocks.
    assert read_pixels(Tensor.empty(1, 16, 39, 41).conv2d(Tensor.empty(384, 16, 1, 1), stride=2)) == {20: 82, 21: 2}


@pytest.mark.parametrize(("stride", "size"), [(2, (39, 41)), ((1, 3), (20, 63)), ((3, 2), (60, 41))])
def test_large_convolutions_of_single_pixels_with_steps(stride: int | tuple[int, int], size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((2, 128, *size), (384, 128, 1, 1)))
    down, across = (stride, stride) if isinstance(stride, int) else stride
    wanted = np.einsum("nchw,oc->nohw", x[:, :, ::down, ::across], w[:, :, 0, 0], optimize=True)
    found = Tensor(x).realize().conv2d(Tensor(w).realize(), Tensor(w[:, 0, 0, 0]), stride=stride).relu()
    np.testing.assert_array_equal(found.numpy(), np.maximum(wanted + w[None, :, 0], 0))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int32], ids=str)
@pytest.mark.parametrize(("batch", "length", "heads", "width"), [(2, 131, 7, 43), (3, 86, 4, 64)])
def test_products_of_heads(batch: int, length: int, heads: int, width: int, dtype: DType) -> None:
    """Large products whose rows, terms or columns are heads that lie apart."""
    rng = np.random.default_rng(width)
    size = heads * width
    parts = rng.integers(-3, 4, (batch, heads, length, width))
    weights, other = rng.integers(-3, 4, (size, 250)), rng.integers(-3, 4, (batch * length, 250))
    rows = np.swapaxes(parts, 1, 2).reshape(batch * length, size)
    x, w, g = (Tensor(a.astype(np.float32)).cast(dtype).contiguous().realize() for a in (parts, weights, other))
    shown = x.transpose(1, 2).reshape(batch, length, size)
    forward = shown.matmul(w, dtype=dtypes.float32)
    backward = shown.reshape(batch * length, size).T.matmul(g, dtype=dtypes.float32)
    np.testing.assert_array_equal(forward.numpy().reshape(-1, 250), rows @ weights)
    np.testing.assert_array_equal(backward.numpy(), rows.T @ other)


def loops_of(y: Tensor) -> list[int]:
    """Return the sizes of the loops of the kernel that multiplies, as they are on a processor of 2 MiB a core."""
    renderer = LLVMRenderer(Target.parse("CPU:LLVM:x86_64,sapphirerapids"))
    products = [
        c.src[0]
        for c in y.schedule_linear().src
        if c.src[0].op is Ops.SINK and any(u.op is Ops.MUL and u.dtype is dtypes.float32 for u in c.src[0].toposort())
    ]
    return [a.size for a in automatic(products[0], renderer).axes if a.kind in LOOPS]


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "expected"),
    [
        (31, 1023, 1021, [16, 8]),  # 4.2 MB of columns, 0.1 MB of rows: columns outside are read once
        (31, 100, 1021, [128]),  # 0.4 MB of columns stay near: both loops are joined for the threads
    ],
)
def test_columns_that_do_not_stay_near_are_read_once(rows: int, terms: int, columns: int, expected: list[int]) -> None:
    """A product with too few rows to copy blocks."""
    assert loops_of(Tensor.empty(rows, terms) @ Tensor.empty(terms, columns)) == expected


@pytest.mark.parametrize(
    ("images", "channels", "expected"),
    [
        (8, 512, [64, 8, 7]),  # parts of the sum with panels, images, rows: 2.3 MB of weights, 0.3 MB of images
        (64, 512, [64, 64, 7]),  # 2.7 MB of images, read for each panel: less than the weights for each image
    ],
)
def test_filters_that_do_not_stay_near_are_read_once(images: int, channels: int, expected: list[int]) -> None:
    x, w = Tensor.empty(images, channels, 7, 7), Tensor.empty(channels, channels, 3, 3)
    assert loops_of(x.conv2d(w, padding=1)) == expected


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("filters", [64, 70, 96])
def test_convolutions_with_loops_over_filters_outside(filters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "NEAR_SHARE", 1 << 10)
    rng = np.random.default_rng(filters)
    x = rng.integers(-3, 4, (3, 22, 7, 7)).astype(np.float32)
    w = rng.integers(-3, 4, (filters, 22, 3, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("ncyxij,ocij->noyx", windows, w)
    np.testing.assert_array_equal(Tensor(x).conv2d(Tensor(w), padding=1).numpy(), expected)
