"""Sums of products of any size, layout and dtype, against numpy: every step of the blocked policy, on small blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from test.helpers_ast import at, kernel, loop, param, red, run_program, store
from test.helpers_contractions import check_masks_and_an_epilogue, expected, matmul, operands, results_by_threads, run
from tinygrad import Tensor, dtypes
from tinygrad.codegen import do_to_program
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps, blocking, contraction, tile_blocks
from tinygrad.codegen.opt.analysis import Kernel
from tinygrad.codegen.opt.contraction import Tile, dot_copies, find_contraction, unroll_contracted
from tinygrad.codegen.opt.policy import automatic
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.opt.tc import BFLOAT16, BFLOAT16_TILES, BYTE_TILES, BYTES
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.device import Device
from tinygrad.dtype import DType
from tinygrad.helpers import Context, Target
from tinygrad.renderer import Renderer
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.renderer.python import PythonRenderer
from tinygrad.schedule import split
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks so small that tiny kernels have several of each kind."""
    for name, value in {"TERMS": (8, 16), "ONE_BLOCK": 16, "STACK_BYTES": 4 * (48 * 48 + 2 * 16 * 48)}.items():
        monkeypatch.setattr(blocking, name, value)
    for name, value in {"WORDS": 32, "ROWS": 48, "COLUMNS": 64, "ONE_BLOCK": 48}.items():
        monkeypatch.setattr(tile_blocks, name, value)
    for name in ("ONE_BLOCK_ROWS", "ONE_BLOCK_COLUMNS"):
        monkeypatch.setattr(tile_blocks, name, 96)
    for name, least in {"BLOCK_WORK": 0, "MIN_SIDE": 1, "MIN_TERMS": 1}.items():
        monkeypatch.setattr(split, name, least)
    monkeypatch.setattr(contraction, "optimize_strips", lambda *_: False)


AWKWARD = [(1, 2), (7, 33), (12, 32), (13, 31), (24, 64), (25, 65), (47, 97), (50, 16)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("k", [2, 3, 16, 17, 37])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_blocks_of_awkward_sizes(k: int, layout: str) -> None:
    blocked = 0
    for m, n in AWKWARD:
        arrays = operands(m, n, k, layout)
        got, program = run(matmul(m, n, k, layout), arrays)
        np.testing.assert_array_equal(got, expected(m, n, k, layout, 1, arrays), err_msg=f"{m}x{n}x{k} {layout}")
        blocked += any(o.op is OptOps.STAGE for o in program.src[0].arg.applied_opts)
    assert blocked >= 4


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8", "uint8"])
def test_blocks_of_other_dtypes(dtype: str) -> None:
    for layout in ("nn", "nt"):
        arrays = operands(30, 70, 40, layout, 2, np.dtype(dtype).type)
        got, program = run(matmul(30, 70, 40, layout, 2, getattr(dtypes, dtype)), arrays)
        np.testing.assert_array_equal(got, expected(30, 70, 40, layout, 2, arrays))
        assert any(o.op is OptOps.STAGE for o in program.src[0].arg.applied_opts)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_on_the_interpreter() -> None:
    renderer = Device["CPU"].renderer
    for k, layout in ((9, "nn"), (37, "tn")):
        arrays = operands(13, 40, k, layout)
        steps = tuple(automatic(simplify_kernel(matmul(13, 40, k, layout)), renderer).applied)
        steps = tuple(o for o in steps if o.op is not OptOps.THREAD)
        sink = matmul(13, 40, k, layout)
        got, _ = run(sink.replace(arg=type(sink.arg)(opts_to_apply=steps)), arrays, "PYTHON")
        np.testing.assert_array_equal(got, expected(13, 40, k, layout, 1, arrays))


@pytest.mark.usefixtures("small_blocks")
def test_the_epilogue_and_masks_of_blocks() -> None:
    program = check_masks_and_an_epilogue(26, 50, 35, 30)
    assert any(o.op is OptOps.CACHE for o in program.src[0].arg.applied_opts)


@pytest.mark.usefixtures("small_blocks")
def test_what_lies_beyond_the_end_is_not_multiplied() -> None:
    # Padding to whole blocks must not turn infinities into NaN.
    m, n, k = 13, 33, 19
    arrays = operands(m, n, k, "nn")
    arrays[1][:] = np.inf
    arrays[2][:] = 1
    assert np.isposinf(run(matmul(m, n, k), arrays)[0]).all()


def random_steps(schedule: Schedule, rng: np.random.Generator) -> tuple[Opt, ...]:
    """Apply random steps around BLOCK, CACHE and STAGE; those that do not fit are left out."""
    for op in ("split", "split", "block", "cache", "stage", "stage", "copy", "copy", "vector", "unroll", "thread"):
        outputs = [p for p, a in enumerate(schedule.axes) if not a.reduce]
        at_axis = int(rng.choice(outputs))
        factor = int(rng.choice([2, 3, 4, 8]))
        step = {
            "split": Opt(OptOps.SPLIT, at_axis, factor),
            "block": Opt(OptOps.BLOCK, 0, factor),
            "cache": Opt(OptOps.CACHE, at_axis),
            "stage": Opt(OptOps.STAGE, at_axis, (int(rng.integers(2)), bool(rng.integers(2)))),
            "copy": Opt(OptOps.UPCAST, at_axis, factor),
            "vector": Opt(OptOps.VECTOR, at_axis, factor),
            "unroll": Opt(OptOps.UNROLL, 0, factor),
            "thread": Opt(OptOps.THREAD, outputs[0], 0),
        }[op]
        try:
            schedule.apply(step)
        except KernelOptError:
            continue
    return tuple(schedule.applied)


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize(("copies", "lanes"), [(16, 16), (12, 16), (4, 8), (8, 4), (7, 16), (3, 4)])
def test_stores_across_the_lanes(device: str, copies: int, lanes: int) -> None:
    # out[i, j, c] = in[i, c, j]: lanes along j, copies along c, which is the innermost in memory; some j are masked.
    n, m = 3, 2 * lanes
    for size in (m, m - 3):
        i, j, c = loop(n, 0), loop(size, 1), loop(copies, 2)
        value = at(param(1, n * size * copies), i * (size * copies) + c * size + j)
        steps = (Opt(OptOps.PADTO, 1, m), Opt(OptOps.VECTOR, 1, lanes), Opt(OptOps.UPCAST, 2, 0))
        sink = kernel(
            store(param(0, n * size * copies), i * (size * copies) + j * copies + c, value, i, j, c), opts=steps
        )
        source = np.arange(n * size * copies, dtype=np.float32)
        got, _ = run(sink, {0: np.full_like(source, -1), 1: source}, device)
        np.testing.assert_array_equal(got, source.reshape(n, copies, size).transpose(0, 2, 1).ravel())


def convolution(size: int, taps: int, inputs: int, filters: int, stride: int = 1) -> tuple[UOp, int]:
    """Return the kernel of a convolution whose weights are packed as [terms][filters], and the sides of its output."""
    out = (size - taps) // stride + 1
    c, y, x = loop(filters, 0), loop(out, 1), loop(out, 2)
    ic, ky, kx = red(inputs, 3), red(taps, 4), red(taps, 5)
    image = at(param(1, inputs * size * size), ic * (size * size) + (y * stride + ky) * size + x * stride + kx)
    weight = at(param(2, inputs * taps * taps * filters), ((ic * taps + ky) * taps + kx) * filters + c)
    total = UOp(Ops.REDUCE, dtypes.float32, (image * weight, ic, ky, kx), (Ops.ADD, ()))
    target = c * (out * out) + y * out + x
    return kernel(store(param(0, filters * out * out), target, total.maximum(0), c, y, x)), out


@pytest.mark.parametrize("out", range(4, 17))
def test_sums_are_stored_across_the_lanes(out: int) -> None:
    # Copies along x lie beside each other, lanes along the filters do not: whatever the number of copies.
    size, taps, inputs, filters = out + 2, 3, 4, 32
    sink, _ = convolution(size, taps, inputs, filters)
    steps = (Opt(OptOps.UPCAST, 2, 0), Opt(OptOps.VECTOR, 0, 16), Opt(OptOps.UNROLL, 2, 3))
    rng = np.random.default_rng(out)
    image = rng.integers(-4, 5, (inputs, size, size)).astype(np.float32)
    weight = rng.integers(-4, 5, (inputs, taps, taps, filters)).astype(np.float32)
    arrays = {0: np.full(filters * out * out, 77, np.float32), 1: image.ravel(), 2: weight.ravel()}
    got, _ = run(sink.replace(arg=type(sink.arg)(opts_to_apply=steps)), arrays)
    windows = np.lib.stride_tricks.sliding_window_view(image, (taps, taps), axis=(1, 2))
    want = np.maximum(np.einsum("iyxab,iabc->cyx", windows, weight), 0)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("out", "taps"), [(10, 5), (12, 5), (14, 3), (8, 3)])
def test_windows_are_unrolled_only_where_registers_hold_them(out: int, taps: int, stride: int) -> None:
    sink, _ = convolution((out - 1) * stride + taps, taps, 32, 32, stride)
    schedule = Schedule(simplify_kernel(sink), LLVMRenderer(Target.parse("CPU:LLVM:x86_64,sapphirerapids")))
    facts = Kernel(schedule.sink, schedule.mask, schedule.original)
    sides = find_contraction(facts)
    assert sides is not None
    c, _, x = (a.range for a in schedule.axes if not a.reduce)
    for step in (Opt(OptOps.UPCAST, 2, 0), Opt(OptOps.VECTOR, 0, 16), Opt(OptOps.UPCAST, 0, 0)):
        schedule.apply(step)
    unroll_contracted(schedule, sides, Tile(c, 16, 2, ((x, out),), 0.0))
    # Loops are ic, ky, kx; the next iterations of kx read what other copies have read.
    held = 2 * out + 2 + out <= schedule.renderer.vector_registers
    assert schedule.applied[3] == Opt(OptOps.UNROLL, 2 if held else 1, taps)


@pytest.mark.parametrize("block", range(4))
def test_random_steps_with_caches_and_copies(block: int) -> None:
    used = {OptOps.CACHE: 0, OptOps.STAGE: 0}
    for seed in range(block * 10, block * 10 + 10):
        rng = np.random.default_rng(seed)
        m, n, k = (int(x) for x in rng.choice([4, 6, 8, 12, 16, 24], 3))
        layout = str(rng.choice(["nn", "nt", "tn", "tt"]))
        sink = matmul(m, n, k, layout, 2)
        steps = random_steps(Schedule(simplify_kernel(sink), Device["CPU"].renderer), rng)
        for op in used:
            used[op] += any(o.op is op for o in steps)
        arrays = operands(m, n, k, layout, 2)
        is_parallel = any(o.op is OptOps.THREAD for o in steps)
        for device in ("CPU", "PYTHON") if seed % 5 == 0 and not is_parallel else ("CPU",):
            got, _ = run(sink.replace(arg=type(sink.arg)(opts_to_apply=steps)), arrays, device)
            want = expected(m, n, k, layout, 2, arrays)
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed} {m}x{n}x{k} {layout} {device}: {steps}")
    assert min(used.values()) >= 2


@pytest.mark.parametrize(("rows", "columns", "wanted"), [
    (4, 512, (4, 4)), (1000, 1000, (4, 4)), (5, 512, (5, 4)), (6, 512, (6, 4)), (9, 512, (3, 4)), (2, 3, (2, 3)),
])  # fmt: skip
def test_rows_of_a_small_batch_are_computed_once(rows: int, columns: int, wanted: tuple[int, int]) -> None:
    """Five rows in tiles of four were eight, and read all weights twice."""
    assert dot_copies(rows, columns, 32) == wanted
    a, b = dot_copies(rows, columns, 16)
    assert a * b + min(a, b) < 16


@pytest.mark.parametrize("rows", range(2, 12))
def test_small_batches(rows: int) -> None:
    arrays = operands(rows, 70, 160, "nt")
    got, _ = run(matmul(rows, 70, 160, "nt"), arrays)
    np.testing.assert_array_equal(got, expected(rows, 70, 160, "nt", 1, arrays))


# ---- dot-product instructions

DOTS = PythonRenderer(Target(device="PYTHON", arch="dots,vec64"))
TILES = PythonRenderer(Target(device="PYTHON", arch="tiles,vec64"))


def native_units() -> dict[str, LLVMRenderer]:
    """Return renderers of this processor that differ in the units that they use."""
    host = Device["CPU"].renderer.arch
    found = {}
    if host.machine == "x86_64":
        found["none"] = LLVMRenderer(Target(device="CPU", arch="-amx-tile,-avx512vnni,-avx512bf16"))
    if host.enabled >= {"avx512vnni", "avx512bf16"}:
        # The features of a processor whose dot products of bfloat16 are fast.
        found["dots"] = LLVMRenderer(Target(device="CPU", arch="x86_64,cooperlake"))
    if host.enabled >= {"amx-bf16", "amx-int8"}:
        found["tiles"] = LLVMRenderer(Target(device="CPU", arch=""))
    return found


NATIVE_UNITS = native_units()


def narrow_matmul(m: int, n: int, k: int, layout: str, left: DType, right: DType, out: DType) -> UOp:
    """Return c = a @ b with the factors cast to the dtype of the sum."""
    i, j, t = loop(m, 1), loop(n, 2), red(k, 3)
    a = at(param(1, m * k, left), i * k + t if layout[0] == "n" else t * m + i).cast(out)
    b = at(param(2, n * k, right), t * n + j if layout[1] == "n" else j * k + t).cast(out)
    total = UOp(Ops.REDUCE, out, (a * b, t), (Ops.ADD, ()))
    return kernel(store(param(0, m * n, out), i * n + j, total, i, j))


def narrow_operands(
    m: int, n: int, k: int, layout: str, left: DType, right: DType, seed: int
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Return operands over the whole range of their dtypes by slot, and the exact product."""
    rng = np.random.default_rng(seed)
    sides, flat = [], []
    for dtype, shape, form in ((left, (m, k), layout[0]), (right, (k, n), layout[1])):
        if dtype is dtypes.bfloat16:
            bits = rng.standard_normal(shape).astype(np.float32).view(np.uint32) & 0xFFFF0000
            sides.append(bits.view(np.float32).astype(np.float64))
            stored = (bits >> 16).astype(np.uint16)
        else:
            stored = rng.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.full_name)
            sides.append(stored.astype(np.int64))
        flat.append(np.ascontiguousarray(stored if form == "n" else stored.T).ravel())
    result = np.zeros(m * n, sums_of(left, right).full_name)
    return {0: result, 1: flat[0], 2: flat[1]}, (sides[0] @ sides[1]).ravel()


def used_unit(program: UOp, renderer: Renderer) -> str:
    """Return what kind of unit a program was made with."""
    steps = [o for o in program.src[0].arg.applied_opts if o.op is OptOps.TC]
    return "none" if not steps else "tiles" if renderer.tensor_cores[steps[0].arg[0]].is_tile else "dots"


def sums_of(left: DType, right: DType) -> DType:
    """Return the dtype of sums: uint32 where no factor is signed."""
    return (
        dtypes.float32 if left is dtypes.bfloat16 else dtypes.int32 if dtypes.int8 in (left, right) else dtypes.uint32
    )


def run_on(renderer: Renderer, sink: UOp, arrays: dict[int, np.ndarray], device: str = "CPU") -> tuple[np.ndarray, str]:
    """Compile for one renderer and run; returns buffer 0 and the kind of unit that was used."""
    program = do_to_program(sink, renderer)
    return run_program(program, device, arrays)[0], used_unit(program, renderer)


PAIRS = ["int8 int8", "uint8 int8", "int8 uint8", "uint8 uint8", "bfloat16 bfloat16"]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", list(NATIVE_UNITS))
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("pair", PAIRS)
def test_products_of_narrow_numbers(pair: str, layout: str, unit: str) -> None:
    left, right = (getattr(dtypes, name) for name in pair.split())
    out = sums_of(left, right)
    found = []
    for seed, (m, n, k) in enumerate(((24, 64, 64), (35, 70, 131))):
        arrays, want = narrow_operands(m, n, k, layout, left, right, seed)
        got, used = run_on(NATIVE_UNITS[unit], narrow_matmul(m, n, k, layout, left, right, out), arrays)
        note = f"{pair} {layout} {m}x{n}x{k}"
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 if out is dtypes.float32 else 0, err_msg=note)
        found.append(used)
    assert unit in found or (unit == "dots" and pair == "uint8 uint8")
    assert unit == "tiles" or set(found) <= {unit, "none"}  # what is too small for tiles may take dot products


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", ["dots", "tiles"])
@pytest.mark.parametrize("pair", PAIRS)
def test_products_of_narrow_numbers_on_the_interpreter(pair: str, unit: str) -> None:
    left, right = (getattr(dtypes, name) for name in pair.split())
    if unit == "dots" and pair == "uint8 uint8":
        pytest.skip("no dot product has two unsigned factors")
    out = sums_of(left, right)
    m, n, k = (26, 40, 22) if unit == "dots" else (17, 20, 210)
    sink = narrow_matmul(m, n, k, "nn", left, right, out)
    arrays, want = narrow_operands(m, n, k, "nn", left, right, 3)
    got, used = run_on(DOTS if unit == "dots" else TILES, sink, arrays, "PYTHON")
    assert used == unit
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 if out is dtypes.float32 else 0)
    if unit in NATIVE_UNITS:
        np.testing.assert_array_equal(got, run_on(NATIVE_UNITS[unit], sink, arrays)[0])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", ["dots", "tiles"])
def test_rounding_of_units_is_the_interpreters(unit: str) -> None:
    # Sums that cancel, tiny and subnormal products, infinities and NaN: every bit counts.
    if unit not in NATIVE_UNITS:
        pytest.skip(f"this processor has no {unit}")
    rng = np.random.default_rng(7)
    m, n, k = 8, 70, 64
    sink = narrow_matmul(m, n, k, "nn", dtypes.bfloat16, dtypes.bfloat16, dtypes.float32)
    for low, high in ((0x3F00, 0x4100), (0x0000, 0x2400), (0x1000, 0x2080), (0x7000, 0x7F80), (0x7F00, 0x7FC1)):
        numbers = [(rng.integers(low, high, s) | rng.integers(0, 2, s) << 15).astype(np.uint16) for s in (m * k, k * n)]
        arrays = {0: np.zeros(m * n, np.float32), 1: numbers[0], 2: numbers[1]}
        want, used = run_on(DOTS if unit == "dots" else TILES, sink, arrays, "PYTHON")
        got, native = run_on(NATIVE_UNITS[unit], sink, arrays)
        assert used == native == unit
        is_nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), is_nan)
        np.testing.assert_array_equal(got.view(np.uint32)[~is_nan], want.view(np.uint32)[~is_nan], err_msg=f"{low:x}")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", list(NATIVE_UNITS))
def test_products_of_bytes_at_their_extremes(unit: str) -> None:
    m, n, k = 33, 48, 130
    for left, right in itertools.product((dtypes.int8, dtypes.uint8), repeat=2):
        for x, y in itertools.product((left.min, left.max), (right.min, right.max)):
            a, b = np.full(m * k, x, left.full_name), np.full(k * n, y, right.full_name)
            out = sums_of(left, right)
            arrays = {0: np.zeros(m * n, out.full_name), 1: a, 2: b}
            got, _ = run_on(NATIVE_UNITS[unit], narrow_matmul(m, n, k, "nn", left, right, out), arrays)
            assert (got == int(x) * int(y) * k).all(), (left, right, x, y)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", list(NATIVE_UNITS))
def test_epilogues_batches_and_masks_of_narrow_products(unit: str) -> None:
    # c[b] = relu(a[b] @ pad(w) + bias) as bfloat16, with terms beyond the end of w.
    batch, m, n, k, inner = 2, 35, 50, 150, 141
    b, i, j, t = loop(batch, 0), loop(m, 1), loop(n, 2), red(k, 3)
    half = dtypes.bfloat16
    left = at(param(1, batch * m * k, half), b * (m * k) + i * k + t).cast(dtypes.float32)
    right = at(param(2, inner * n, half), t * n + j, t < inner).cast(dtypes.float32)
    total = UOp(Ops.REDUCE, dtypes.float32, (left * right, t), (Ops.ADD, ()))
    value = (total + at(param(3, n), j)).maximum(0).cast(half)
    sink = kernel(store(param(0, batch * m * n, half), b * (m * n) + i * n + j, value, b, i, j))
    rng = np.random.default_rng(3)
    a, w, bias = (rng.integers(-4, 5, s).astype(np.float32) for s in ((batch, m, k), (inner, n), (n,)))
    halves = [(x.view(np.uint32) >> 16).astype(np.uint16).ravel() for x in (a, w)]
    arrays = {0: np.zeros(batch * m * n, np.uint16), 1: halves[0], 2: halves[1], 3: bias}
    got, used = run_on(NATIVE_UNITS[unit], sink, arrays)
    want = np.maximum(a[:, :, :inner] @ w + bias, 0)
    stored = (got.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(stored, want.ravel(), rtol=2.0**-8)
    assert used == unit


@pytest.mark.usefixtures("small_blocks")
def test_factors_that_are_not_zero_beyond_the_end() -> None:
    # (a + 1) @ b with padded terms: what is packed beyond the end must not count.
    m, n, k = 35, 40, 75
    i, j, t = loop(m, 1), loop(n, 2), red(k, 3)
    one = UOp(Ops.CONST, dtypes.int8, (), 1)
    left = (at(param(1, m * k, dtypes.int8), i * k + t) + one).cast(dtypes.int32)
    right = (at(param(2, n * k, dtypes.int8), t * n + j) + one).cast(dtypes.int32)
    total = UOp(Ops.REDUCE, dtypes.int32, (left * right, t), (Ops.ADD, ()))
    sink = kernel(store(param(0, m * n, dtypes.int32), i * n + j, total, i, j))
    rng = np.random.default_rng(11)
    a, b = rng.integers(-100, 100, (m, k)).astype(np.int8), rng.integers(-100, 100, (k, n)).astype(np.int8)
    want = ((a + np.int8(1)).astype(np.int32) @ (b + np.int8(1)).astype(np.int32)).ravel()
    for unit, renderer in NATIVE_UNITS.items():
        arrays = {0: np.zeros(m * n, np.int32), 1: a.ravel(), 2: b.ravel()}
        got, used = run_on(renderer, sink, arrays)
        assert used == unit
        np.testing.assert_array_equal(got, want, err_msg=unit)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", list(NATIVE_UNITS))
def test_narrow_products_do_not_depend_on_threads(unit: str) -> None:
    arrays, _ = narrow_operands(70, 90, 150, "nt", dtypes.bfloat16, dtypes.bfloat16, 6)
    sink = narrow_matmul(70, 90, 150, "nt", dtypes.bfloat16, dtypes.bfloat16, dtypes.float32)
    results = []
    for threads in (1, 2, 3):
        with Context(NUM_CPU_THREADS=threads):
            results.append(run_on(NATIVE_UNITS[unit], sink, arrays)[0].tobytes())
    assert results[0] == results[1] == results[2]


def test_units_of_processors() -> None:
    units = {
        "x86_64,znver3": [],
        "x86_64,cascadelake": [BYTES],
        "x86_64,znver4": [BFLOAT16, BYTES],
        "x86_64,sapphirerapids": [BFLOAT16_TILES, BYTE_TILES, BYTES],
        "x86_64,sapphirerapids,-amx-tile": [BYTES],
        "x86_64,sapphirerapids,-amx-bf16": [BYTE_TILES, BYTES],
        "x86_64,sapphirerapids,-avx512f": [],
    }
    for arch, want in units.items():
        assert list(LLVMRenderer(Target(device="CPU", arch=arch)).tensor_cores) == want, arch


def test_tensors_of_narrow_numbers() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-128, 128, (260, 270), np.int8), rng.integers(-128, 128, (270, 250), np.int8)
    got = Tensor(a).matmul(Tensor(b), dtype=dtypes.int32).numpy()
    np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))
    x, y = (Tensor(v.astype(np.float32)).cast(dtypes.bfloat16).realize() for v in (a, b))
    wide = x.matmul(y, dtype=dtypes.float32).numpy()
    np.testing.assert_allclose(wide, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=0.5)


def test_special_values_in_dot_products() -> None:
    a, b = np.ones((128, 128), np.float32), np.ones((128, 1100), np.float32)
    a[1, 3], a[2, 5], a[3, 7], b[9, 4] = np.inf, np.nan, -np.inf, np.inf
    got = Tensor(a).bfloat16().realize().matmul(Tensor(b).bfloat16().realize(), dtype=dtypes.float32).numpy()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, a @ b)


def test_units_that_do_not_fit() -> None:
    sink = narrow_matmul(8, 16, 8, "nn", dtypes.int8, dtypes.int8, dtypes.int32)
    for step, text in (
        (Opt(OptOps.TC, 0, (2, 1, False)), "2 units"),
        (Opt(OptOps.TC, 0, None), "arg is"),
        (Opt(OptOps.TC, 0, (0, 1, False)), "no products of"),
    ):
        with pytest.raises(KernelOptError, match=text):
            Schedule(simplify_kernel(sink), DOTS).apply(step)
    schedule = Schedule(simplify_kernel(narrow_matmul(8, 16, 6, "nn", *[dtypes.int8] * 2, dtypes.int32)), DOTS)
    with pytest.raises(KernelOptError, match="multiple of 4"):
        schedule.apply(Opt(OptOps.TC, 0, (1, 1, False)))
    with pytest.raises(KernelOptError, match="no tensor core available"):
        Schedule(simplify_kernel(sink), PythonRenderer(Target(device="PYTHON"))).apply(Opt(OptOps.TC, 0, (0, 1, False)))


def test_tiles_that_do_not_fit() -> None:
    def schedule(m: int = 32, n: int = 32, k: int = 128, layout: str = "nn") -> Schedule:
        sink = narrow_matmul(m, n, k, layout, dtypes.int8, dtypes.int8, dtypes.int32)
        return Schedule(simplify_kernel(sink), TILES)

    tile = Opt(OptOps.TC, 0, (1, 1, 0))
    for made, step, text in (
        (schedule(16, 16), Opt(OptOps.TC, 0, (1, 1, None)), "axes of copies"),
        (schedule(16, 16), Opt(OptOps.TC, 0, (1, 1, 1)), "axes of copies"),
        (schedule(), tile, "no tile of 16 x 16"),
        (schedule(16, 16, 100), tile, "multiple of 64"),
        (schedule(16, 16, 64), tile, "too short"),
        (schedule(16, 16), Opt(OptOps.TC, 0, (1, 0, 0)), "rows belong to one operand"),
    ):
        with pytest.raises(KernelOptError, match=text):
            made.apply(step)
        assert not made.applied
        assert made.dot is None
    many = schedule(64, 48)
    for axis in (0, 2):
        many.apply(Opt(OptOps.SPLIT, axis, 16))
    many.apply(Opt(OptOps.SWAP, 1, 2))
    with pytest.raises(KernelOptError, match="more than 8 tiles"):
        many.apply(Opt(OptOps.TC, 0, (1, 1, 2)))
    many.apply(Opt(OptOps.TC, 0, (1, 1, 1)))


def test_steps_that_do_not_fit() -> None:
    schedule = Schedule(simplify_kernel(matmul(8, 16, 8)), Device["CPU"].renderer)
    for step, text in (
        (Opt(OptOps.CACHE, 0), "BLOCK before"),
        (Opt(OptOps.STAGE, 0, (2, True)), "2 operands"),
        (Opt(OptOps.STAGE, 0, None), "arg is"),
        (Opt(OptOps.STAGE, 1, (0, True)), "not used again"),
    ):
        with pytest.raises(KernelOptError, match=text):
            schedule.apply(step)
    schedule.apply(Opt(OptOps.VECTOR, 1, 16))
    with pytest.raises(KernelOptError, match="no loop"):
        schedule.apply(Opt(OptOps.STAGE, 0, (1, True)))


def test_large_matmul_takes_blocks_and_is_as_accurate_as_numpy() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.random((n, m), dtype=np.float32) for n, m in ((830, 1024), (1024, 900)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    ours = np.abs((Tensor(a) @ Tensor(b)).numpy() - exact).max()
    assert ours <= 3 * np.abs(a @ b - exact).max()
    for layout, wanted in (("nn", {OptOps.BLOCK}), ("tn", {OptOps.CACHE})):
        steps = automatic(simplify_kernel(matmul(830, 900, 1024, layout)), Device["CPU"].renderer).applied
        assert {OptOps.STAGE, OptOps.THREAD} | wanted <= {o.op for o in steps}


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(257, 263, 269), (256, 256, 257), (271, 1024, 96), (1031, 48, 512), (48, 1031, 513), (521, 97, 1021)],
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_sizes_from_which_blocks_are_taken(m: int, n: int, k: int, layout: str) -> None:
    arrays = operands(m, n, k, layout)
    wanted = expected(m, n, k, layout, 1, arrays)  # of integers, so every order of the sums gives the same
    got, program = run(matmul(m, n, k, layout), arrays)
    np.testing.assert_array_equal(got, wanted)
    # Strips of columns copy one operand, blocks of rows and columns both; small ones only what vectors cannot read.
    copies = any(o.op is OptOps.STAGE for o in program.src[0].arg.applied_opts)
    is_near = layout != "nt" and split.stays_near(m, n, k, 4, Device["CPU"].renderer.cache_bytes)
    assert copies == (split.takes_blocks(m, n, k) and not is_near)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 67, 130])
@pytest.mark.parametrize("k", [2, 7, 16, 33, 64, 4099])
@pytest.mark.parametrize("side", ["matrix x vector", "vector x matrix"])
def test_matrix_x_vector(rows: int, k: int, side: str) -> None:
    m, n, layout = (rows, 1, "nn") if side == "matrix x vector" else (1, rows, "nt")
    arrays = operands(m, n, k, layout)
    wanted = expected(m, n, k, layout, 1, arrays)
    got, program = run(matmul(m, n, k, layout), arrays)
    np.testing.assert_array_equal(got, wanted)
    # Rows beside each other are taken before lanes, which lie along them if they fill a vector.
    steps = [o for o in program.src[0].arg.applied_opts if o.op in (OptOps.UPCAST, OptOps.VECTOR)]
    copied = bool(steps) and steps[0].op is OptOps.UPCAST and steps[0].arg == 4
    assert copied == (rows >= 64 and k * 4 >= Device["CPU"].renderer.vector_bytes)


def test_matrix_x_vector_with_masks_and_an_epilogue() -> None:
    rng = np.random.default_rng(3)
    a, x, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((70, 90), (100,), (70,)))
    padded = Tensor(a).pad(((0, 0), (3, 7)))
    got = ((padded @ Tensor(x)) + Tensor(b)).relu().numpy()
    wanted = np.maximum(np.pad(a, ((0, 0), (3, 7))) @ x + b, 0)
    np.testing.assert_array_equal(got, wanted)


def test_the_block_of_each_processor_fits_its_cache() -> None:
    for cache_bytes in (256 << 10, 512 << 10, 1 << 20, 2 << 20, 16 << 20):
        for itemsize in (2, 4, 8):
            rows, columns = blocking.longest_sides(cache_bytes, itemsize)
            terms = blocking.TERMS[1] * 4 // max(4, itemsize)
            nbytes = max(4, itemsize)
            assert 0 < rows * terms * nbytes <= cache_bytes / 2
            assert 0 < columns * terms * nbytes <= cache_bytes
            assert (rows * terms + columns * terms + rows * columns) * nbytes <= 3.75 * (1 << 20)  # of the stack


def test_long_sums_are_as_accurate_as_numpy() -> None:
    rng = np.random.default_rng(1)
    for m, k, n in ((64, 4096, 64), (64, 10007, 32), (3, 8192, 40), (1, 4096, 256)):
        a, b = rng.random((m, k), dtype=np.float32), rng.random((k, n), dtype=np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        error = np.abs((Tensor(a) @ Tensor(b)).numpy() - exact).max()
        assert error <= 3 * max(np.abs(a @ b - exact).max(), np.spacing(np.float32(exact.max()))), (m, k, n)


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("terms", [160, 320, 480, 500, 512])
def test_sums_of_some_hundred_terms_have_several_parts(columns: int, terms: int) -> None:
    # Of numbers of one sign: a single chain of additions would be off by about six times as much as numpy.
    rng = np.random.default_rng(terms + columns)
    a, b = rng.random((641, terms), dtype=np.float32), rng.random((terms, columns), dtype=np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    ours, theirs = (np.sqrt(np.mean((x - exact) ** 2)) for x in ((Tensor(a) @ Tensor(b)).numpy(), a @ b))
    assert ours <= 3 * max(theirs, np.spacing(np.float32(terms / 4)) / 4)


@pytest.mark.usefixtures("small_blocks")
def test_results_do_not_depend_on_threads() -> None:
    assert len(set(results_by_threads(50, 90, 70))) == 1


@pytest.mark.parametrize(("narrow", "wide"), list(itertools.product([48, 100, 777, 2048], [64, 513, 4096])))
def test_chosen_blocks_cover_the_output_with_little_padding(narrow: int, wide: int) -> None:
    for registers, lanes, threads in itertools.product((32, 16), (16, 8, 4), (1, 2, 64)):
        longest = blocking.longest_sides(512 << 10, 4)
        b = blocking.choose_blocks(narrow, wide, blocking.Machine(registers, lanes, threads, longest), 1, (0.25, 0.25))
        rows = b.rows * b.narrow_tiles * b.narrow_blocks
        columns = b.vectors * lanes * b.wide_tiles * b.wide_blocks
        assert rows >= narrow
        assert columns >= wide
        assert b.rows * b.vectors + b.vectors + 1 < registers
        assert rows * columns <= 1.35 * narrow * wide
        assert b.rows * b.narrow_tiles <= longest[0]
        assert b.vectors * lanes * b.wide_tiles <= longest[1]
        assert b.narrow_blocks * b.wide_blocks >= min(threads, narrow * wide // 20000)


def test_terms_per_block() -> None:
    for terms in (1, 5, 96, 256, 300, 511, 513, 1001, 2048, 4099):
        size = blocking.terms_per_block(terms, 320)
        count = -(-terms // size)
        assert size % blocking.UNROLL == 0
        assert size <= (320 if terms > blocking.ONE_BLOCK else blocking.ONE_BLOCK)
        assert count * size - terms <= max(blocking.UNROLL * count, terms // 50)


def test_axis_types_are_kept_in_the_record() -> None:
    steps = (Opt(OptOps.SPLIT, 0, 4), Opt(OptOps.BLOCK, 0, 4), Opt(OptOps.CACHE, 1), Opt(OptOps.STAGE, 1, (1, True)))
    sink = matmul(8, 16, 8)
    program = do_to_program(sink.replace(arg=type(sink.arg)(opts_to_apply=steps)), Device["CPU"].renderer)
    info = program.src[0].arg
    assert info.applied_opts == steps
    assert AxisType.REDUCE in info.axis_types


@pytest.mark.parametrize("rows", [8, 20, 64, 96])
def test_what_adds_to_its_result_takes_whole_tiles(rows: int) -> None:
    i, j, t = loop(rows, 0), loop(32, 1), red(48, 2)
    product = at(param(1, rows * 48), i * 48 + t) * at(param(2, 48 * 32), t * 32 + j)
    total = UOp(Ops.REDUCE, dtypes.float32, (product, t), (Ops.ADD, ()))
    result, place = param(0, rows * 32), i * 32 + j
    arrays = operands(rows, 32, 48, "nn")
    wanted = arrays[0].reshape(-1) + expected(rows, 32, 48, "nn", 1, arrays).reshape(-1)
    got, program = run(kernel(store(result, place, at(result, place) + total, i, j)), arrays)
    np.testing.assert_array_equal(got, wanted)
    steps = program.src[0].arg.applied_opts
    assert any(o.op is OptOps.UPCAST for o in steps)
    assert not any(o.op in (OptOps.PADTO, OptOps.OVERLAP) for o in steps)
