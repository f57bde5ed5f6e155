"""Kernels through the whole code generator, on the PYTHON interpreter and the CPU, against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from test.helpers_ast import RandomKernel, at, evaluate, kernel, loop, param, red, run_program, store
from tinygrad.codegen import do_to_program, to_program
from tinygrad.codegen.estimate import estimate_kernel
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.helpers import Target
from tinygrad.renderer.python import PythonRenderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

MANY = 100_000  # operations or bytes that the evaluator should not be asked for
STEPS = [
    OptOps.UPCAST, OptOps.UNROLL, OptOps.VECTOR, OptOps.VECTOR, OptOps.PADTO, OptOps.SPLIT, OptOps.OVERLAP, OptOps.SWAP,
    OptOps.MERGE, OptOps.THREAD, OptOps.BLOCK,
]  # fmt: skip


def assert_follows_definition(sink: UOp, device: str, arrays: dict[int, np.ndarray], note: str = "") -> None:
    """Compile and run a kernel, and compare every buffer with the evaluator's."""
    want = evaluate(sink, arrays)
    got = run_program(to_program(sink, Device[device].renderer), device, arrays)
    for slot, array in want.items():
        np.testing.assert_allclose(got[slot], array, rtol=2e-4, atol=2e-4, err_msg=f"buffer {slot} {note}")


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
@pytest.mark.parametrize("block", range(8))
def test_random_kernels_with_random_steps(device: str, block: int) -> None:
    for seed in range(block * 6, block * 6 + 6):
        made = RandomKernel(seed)
        if max(estimate_kernel(kernel(*made.ends))) > MANY:
            continue
        schedule = Schedule(simplify_kernel(kernel(*made.ends)), Device[device].renderer)
        steps = made.steps(schedule, STEPS, Opt, KernelOptError)
        assert_follows_definition(kernel(*made.ends, opts=steps), device, made.arrays, f"seed {seed} steps {steps}")


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
@pytest.mark.parametrize("block", range(8))
def test_random_kernels_with_the_policies(device: str, block: int) -> None:
    for seed in range(1000 + block * 6, 1006 + block * 6):
        made = RandomKernel(seed)
        if max(estimate_kernel(kernel(*made.ends))) > MANY:
            continue
        assert_follows_definition(kernel(*made.ends), device, made.arrays, f"seed {seed}")


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
@pytest.mark.parametrize("step", [2, 3, 4, -1, -2])
@pytest.mark.parametrize("size", [1, 30, 61, 64])
def test_lanes_apart_are_read_up_to_an_end(size: int, step: int, device: str) -> None:
    # out[i] = x[step * i] where that exists: whole vectors are loaded with a mask that ends where the lanes' does.
    n, dtype = 48, dtypes.int32
    i, renderer = loop(n, 0), Device[device].renderer
    place = i * step if step > 0 else i * step + (size - 1)
    inside = place < size if step > 0 else UOp.const(-1, dtypes.weakint) < place
    sink = store(param(0, n, dtype), i, at(param(1, size, dtype), place, inside), i)
    lanes = max(4, renderer.vector_bytes // 4)
    arrays = {0: np.full(n, 77, np.int32), 1: np.arange(1, size + 1, dtype=np.int32)}
    steps = (Opt(OptOps.VECTOR, 0, lanes),)
    assert_follows_definition(kernel(sink, opts=steps), device, arrays, f"{size} {step}")
    if device == "CPU":
        program = to_program(kernel(sink, opts=steps), renderer)
        source = next(u.arg for u in program.toposort() if u.op is Ops.SOURCE)
        assert "gather" not in source


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
@pytest.mark.parametrize("row", [20, 24, 100])
def test_windows_over_several_rows_share_vectors(row: int, device: str) -> None:
    # out[a, b, i] = x[row * a + b + 2 * i]: windows of two rows, which lie far apart, of two neighbours each.
    a, b, i = loop(2, 0), loop(2, 1), loop(8, 2)
    sink = store(param(0, 32), a * 16 + b * 8 + i, at(param(1, row + 18), a * row + b + i * 2), a, b, i)
    steps = Opt(OptOps.VECTOR, 2, 8), Opt(OptOps.UPCAST, 0, 0), Opt(OptOps.UPCAST, 1, 0)
    arrays = {0: np.zeros(32, np.float32), 1: np.arange(row + 18, dtype=np.float32)}
    assert_follows_definition(kernel(sink, opts=steps), device, arrays, f"{row}")
    if device == "CPU":
        program = to_program(kernel(sink, opts=steps), Device[device].renderer)
        source = next(u.arg for u in program.toposort() if u.op is Ops.SOURCE)
        assert "= load float," not in source
        assert source.count("load <8 x float>") <= 6


def run_cpu(sink: UOp, arrays: dict[int, np.ndarray]) -> np.ndarray:
    """Run on the CPU; returns buffer 0."""
    return run_program(to_program(sink, Device["CPU"].renderer), "CPU", arrays)[0]


def normal(*shape: int) -> np.ndarray:
    """Return reproducible noise."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 64), (50, 51, 30), (33, 10, 57), (7, 100, 1), (1, 64, 64), (130, 20, 9)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(m: int, n: int, k: int, transposed: bool) -> None:
    i, j, r = loop(m, 0), loop(n, 1), red(k, 2)
    a, b = normal(m, k), normal(k, n)
    right = at(param(2, k * n), j * k + r) if transposed else at(param(2, k * n), r * n + j)
    sink = kernel(
        store(param(0, m * n), i * n + j, (at(param(1, m * k), i * k + r) * right).reduce(r, arg=Ops.ADD), i, j)
    )
    flat = np.ascontiguousarray(b.T if transposed else b).reshape(-1)
    got = run_cpu(sink, {0: np.zeros(m * n, np.float32), 1: a.reshape(-1), 2: flat})
    np.testing.assert_allclose(got.reshape(m, n), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "channels", "kernel_size"), [(10, 20, 3), (8, 33, 5), (9, 4, 1)])
def test_convolution_with_packed_weights(size: int, channels: int, kernel_size: int) -> None:
    images, inputs, out = 2, 3, size - kernel_size + 1
    n, oc, y, x = (loop(s, q) for q, s in enumerate((images, channels, out, out)))
    ic, ky, kx = (red(s, 4 + q) for q, s in enumerate((inputs, kernel_size, kernel_size)))
    image, weight = normal(images, inputs, size, size), normal(inputs, kernel_size, kernel_size, channels)
    left = at(param(1, image.size), ((n * inputs + ic) * size + y + ky) * size + x + kx)
    right = at(param(2, weight.size), ((ic * kernel_size + ky) * kernel_size + kx) * channels + oc)
    body = (left * right).reduce(ic, ky, kx, arg=Ops.ADD)
    sink = kernel(
        store(param(0, images * channels * out * out), ((n * channels + oc) * out + y) * out + x, body, n, oc, y, x)
    )
    got = run_cpu(
        sink, {0: np.zeros(images * channels * out * out, np.float32), 1: image.reshape(-1), 2: weight.reshape(-1)}
    )
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(2, 3))
    want = np.einsum("niyxab,iabo->noyx", windows, weight)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-4)


def test_long_float_sums_are_accurate() -> None:
    size = 1 << 20
    k = red(size, 0)
    sink = kernel(store(param(0, 1), UOp.const(0, dtypes.weakint), at(param(1, size), k).reduce(k, arg=Ops.ADD)))
    data = np.full(size, 0.1, np.float32)
    got = run_cpu(sink, {0: np.zeros(1, np.float32), 1: data})
    assert abs(got[0] / (np.float64(data[0]) * size) - 1) < 2e-6


def test_half_sums_accumulate_in_float() -> None:
    size = 70_000
    k = red(size, 0)
    value = UOp(Ops.CAST, dtypes.float32, (at(param(1, size, dtypes.float16), k),), dtypes.float32)
    sink = kernel(store(param(0, 1), UOp.const(0, dtypes.weakint), value.reduce(k, arg=Ops.ADD)))
    got = run_cpu(sink, {0: np.zeros(1, np.float32), 1: np.ones(size, np.float16)})
    assert got[0] == size


def test_softmax_in_one_kernel() -> None:
    rows, columns = 5, 37
    r, k1, k2, j = loop(rows, 0), red(columns, 1), red(columns, 2), loop(columns, 3)
    x = param(1, rows * columns)
    largest = at(x, r * columns + k1).reduce(k1, arg=Ops.MAX)

    def power(k: UOp) -> UOp:
        return UOp(Ops.EXP2, dtypes.float32, ((at(x, r * columns + k) + largest * -1.0) * 1.4426950408889634,))

    total = power(k2).reduce(k2, arg=Ops.ADD)
    sink = kernel(store(param(0, rows * columns), r * columns + j, power(j) * total.reciprocal(), r, j))
    data = normal(rows, columns)
    got = run_cpu(sink, {0: np.zeros(rows * columns, np.float32), 1: data.reshape(-1)}).reshape(rows, columns)
    want = np.exp(data - data.max(1, keepdims=True))
    np.testing.assert_allclose(got, want / want.sum(1, keepdims=True), rtol=1e-5)


def test_pooling_windows() -> None:
    n, y, x, ky, kx = loop(3, 0), loop(10, 1), loop(10, 2), red(2, 3), red(2, 4)
    data = normal(3, 20, 20)
    body = at(param(1, data.size), n * 400 + (y * 2 + ky) * 20 + x * 2 + kx).reduce(ky, kx, arg=Ops.MAX)
    got = run_cpu(
        kernel(store(param(0, 300), n * 100 + y * 10 + x, body, n, y, x)),
        {0: np.zeros(300, np.float32), 1: data.reshape(-1)},
    )
    np.testing.assert_array_equal(got.reshape(3, 10, 10), data.reshape(3, 10, 2, 10, 2).max((2, 4)))


def test_in_place_update_of_any_size() -> None:
    size = 1003
    i, p = loop(size, 0), param(0, size)
    data = normal(size)
    got = run_cpu(kernel(store(p, i, at(p, i) + 1.0, i)), {0: data})
    np.testing.assert_array_equal(got, data + np.float32(1))


def test_results_do_not_depend_on_the_number_of_pieces() -> None:
    m = n = k = 96
    i, j, r = loop(m, 0), loop(n, 1), red(k, 2)
    product = at(param(1, m * k), i * k + r) * at(param(2, k * n), r * n + j)
    end = store(param(0, m * n), i * n + j, product.reduce(r, arg=Ops.ADD), i, j)
    arrays = {0: np.zeros(m * n, np.float32), 1: normal(m, k).reshape(-1), 2: normal(k, n).reshape(-1)}
    tile = (Opt(OptOps.UPCAST, 0, 4), Opt(OptOps.VECTOR, 1, 8), Opt(OptOps.UNROLL, 0, 4))
    whole = run_cpu(kernel(end, opts=tile), arrays)
    for pieces in (2, 12, 24):
        parts = run_cpu(kernel(end, opts=(*tile, Opt(OptOps.THREAD, 0, pieces))), arrays)
        np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
def test_reductions_over_the_same_range_at_different_depths(device: str) -> None:
    i, k = loop(6, 0), red(9, 1)
    rows = at(param(1, 54), i * 9 + k).reduce(k, arg=Ops.ADD)
    once = at(param(2, 9), k).reduce(k, arg=Ops.MAX)
    sink = kernel(store(param(0, 6), i, rows + once, i), opts=())
    arrays = {0: np.zeros(6, np.float32), 1: normal(6, 9).reshape(-1), 2: normal(9)}
    assert_follows_definition(sink, device, arrays)


GRID_STEPS = [
    OptOps.UPCAST, OptOps.UNROLL, OptOps.LOCAL, OptOps.LOCAL, OptOps.GROUP, OptOps.GROUPTOP, OptOps.PADTO, OptOps.SWAP,
    OptOps.MERGE, OptOps.NOLOCALS,
]  # fmt: skip


def grid_renderer() -> PythonRenderer:
    """Return a renderer of the PYTHON device that has work-groups."""
    return PythonRenderer(Target("PYTHON", arch="local"))


@pytest.mark.parametrize("block", range(8))
def test_random_kernels_on_a_grid(block: int) -> None:
    renderer = grid_renderer()
    for seed in range(2000 + block * 6, 2006 + block * 6):
        made = RandomKernel(seed)
        if max(estimate_kernel(kernel(*made.ends))) > MANY:
            continue
        steps: tuple[Opt, ...] | None = None
        if seed % 2:
            steps = made.steps(Schedule(simplify_kernel(kernel(*made.ends)), renderer), GRID_STEPS, Opt, KernelOptError)
        sink = kernel(*made.ends, opts=steps)
        want, got = evaluate(sink, made.arrays), run_program(to_program(sink, renderer), "PYTHON", made.arrays)
        for slot, array in want.items():
            np.testing.assert_allclose(got[slot], array, rtol=2e-4, atol=2e-4, err_msg=f"seed {seed} steps {steps}")


def test_few_outputs_share_their_reduction_in_work_groups() -> None:
    k = red(4096, 0)
    sink = kernel(store(param(0, 1), UOp.const(0, dtypes.weakint), at(param(1, 4096), k).reduce(k, arg=Ops.ADD)))
    program = do_to_program(sink, grid_renderer())
    assert program.arg.local_size == (256, 1, 1)
    assert sum(u.op is Ops.BARRIER for u in program.src[1].src) == 2
    data = normal(4096)
    got = run_program(program, "PYTHON", {0: np.zeros(1, np.float32), 1: data})[0]
    np.testing.assert_allclose(got[0], data.astype(np.float64).sum(), rtol=1e-5)


def test_a_tile_and_work_groups_for_matmul_on_a_grid() -> None:
    i, j, r = loop(512, 0), loop(512, 1), red(64, 2)
    product = at(param(1, 512 * 64), i * 64 + r) * at(param(2, 64 * 512), r * 512 + j)
    sink = kernel(store(param(0, 512 * 512), i * 512 + j, product.reduce(r, arg=Ops.ADD), i, j))
    info = to_program(sink, grid_renderer()).arg
    assert info.local_size == (32, 4, 1)
    assert np.prod(info.global_size) * np.prod(info.local_size) * 16 == 512 * 512
