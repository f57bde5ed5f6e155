"""Products of narrow numbers in the blocks of tile instructions: sums of one block and of several, words in memory."""

from __future__ import annotations

import numpy as np
import pytest

from test.helpers_ast import at, kernel, loop, param, red, run_program, store
from test.unit.test_contractions import (
    DOTS,
    NATIVE_UNITS,
    PAIRS,
    TILES,
    narrow_matmul,
    narrow_operands,
    run_on,
    small_blocks,  # noqa: F401  a fixture
    sums_of,
)
from tinygrad import Tensor, dtypes
from tinygrad.codegen import do_to_program
from tinygrad.codegen.opt import OptOps, tile_blocks, tiles
from tinygrad.codegen.opt.tc import BFLOAT16_TILES, BYTE_TILES
from tinygrad.dtype import DType
from tinygrad.renderer import Renderer, kernel_arguments
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

needs_tiles = pytest.mark.skipif("tiles" not in NATIVE_UNITS, reason="this processor has no tiles")


def steps(program: UOp) -> set[OptOps]:
    return {o.op for o in program.src[0].arg.applied_opts}


def check(m: int, n: int, k: int, layout: str, pair: str, renderer: Renderer, device: str = "CPU") -> UOp:
    """Run a product of narrow numbers and compare it; returns the program."""
    left, right = (getattr(dtypes, name) for name in pair.split())
    out = sums_of(left, right)
    arrays, want = narrow_operands(m, n, k, layout, left, right, m + n + k)
    program = do_to_program(narrow_matmul(m, n, k, layout, left, right, out), renderer)
    got = run_program(program, device, arrays)[0]
    atol = 1e-4 if out is dtypes.float32 else 0
    np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=f"{pair} {layout} {m}x{n}x{k}")
    return program


# ---- blocks of the reduction


@needs_tiles
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("pair", ["int8 int8", "bfloat16 bfloat16"])
def test_sums_of_one_block_and_of_several(pair: str, layout: str) -> None:
    # The sizes lie around tiles (16), groups of them (32), blocks of outputs (48, 64 and 96) and of terms.
    depth = BYTE_TILES.packed if pair[0] == "i" else BFLOAT16_TILES.packed
    sizes = [(31, 33), (64, 96), (97, 95), (100, 200), (193, 40)]
    terms = [17 * depth, 48 * depth - 1, 48 * depth, 48 * depth + 1, 97 * depth]
    for (m, n), k in zip(2 * sizes, terms + terms[2:] + terms[:2], strict=True):
        made = steps(check(m, n, k, layout, pair, NATIVE_UNITS["tiles"]))
        assert OptOps.TC in made
        assert (OptOps.CACHE in made) == (k > 48 * depth), (m, n, k)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("pair", PAIRS)
def test_a_sum_of_one_block_on_the_interpreter(pair: str) -> None:
    # That of several is in test_contractions.
    program = check(17, 34, 64 if pair[0] == "b" else 128, "nn", pair, TILES, "PYTHON")
    assert OptOps.TC in steps(program)
    assert OptOps.CACHE not in steps(program)


@needs_tiles
@pytest.mark.usefixtures("small_blocks")
def test_long_sums_of_floats_add_up_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Numbers of one sign: the error of one chain grows with its length.
    arrays, want = narrow_operands(32, 32, 2048, "nn", dtypes.bfloat16, dtypes.bfloat16, 5)
    arrays = {slot: x & 0x7FFF if x.dtype == np.uint16 else x for slot, x in arrays.items()}
    a, b = ((arrays[slot].astype(np.uint32) << 16).view(np.float32).astype(np.float64) for slot in (1, 2))
    want = (a.reshape(32, 2048) @ b.reshape(2048, 32)).ravel()
    errors = {}
    for longest in (64, 63):
        monkeypatch.setattr(tiles, "LONGEST_CHAIN", longest)
        sink = narrow_matmul(32, 32, 2048, "nn", dtypes.bfloat16, dtypes.bfloat16, dtypes.float32)
        program = do_to_program(sink, NATIVE_UNITS["tiles"])
        # A chain that goes on starts with a tile from memory; adding up takes vectors.
        adds = sum(u.op is Ops.ADD and u.dtype is dtypes.float32 for u in program.src[1].src)
        assert bool(adds) == (longest == 63)
        got, _ = run_on(NATIVE_UNITS["tiles"], sink, dict(arrays))
        errors[longest] = np.abs(got / want - 1).max()
    assert errors[63] < errors[64] < 1e-6


def test_blocks_of_tiles_fit_the_caches() -> None:
    for cache in (1 << 20, 2 << 20):
        for words in (16, 100, 256, 512):
            rows, columns = tile_blocks.longest_sides(words, cache)
            assert rows >= 512
            assert columns * words * 4 <= cache // 2
    assert tile_blocks.longest_sides(513, 2 << 20) == (tile_blocks.ROWS, tile_blocks.COLUMNS)
    for terms in (64, 1024, 1025, 2048, 4096):
        for core in (BFLOAT16_TILES, BYTE_TILES):
            block = tile_blocks.terms_per_block(terms, core)
            assert block % core.dims[2] == 0
            assert block // core.packed <= tile_blocks.ONE_BLOCK
            assert block >= terms or block // core.packed <= tile_blocks.WORDS


# ---- words in memory


def word_views(program: UOp) -> list[int]:
    """Return the slots of buffers that a program reads as words."""
    linear = next(s for s in program.src if s.op is Ops.LINEAR)
    return sorted(u.arg.slot for u in linear.src if u.op is Ops.PARAM and u.dtype is dtypes.uint32)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", list(NATIVE_UNITS))
@pytest.mark.parametrize("pair", ["int8 int8", "uint8 int8", "bfloat16 bfloat16"])
def test_numbers_that_lie_beside_each_other_are_read_as_words(pair: str, unit: str) -> None:
    packed = 2 if pair[0] == "b" else 4
    for k in (160, 162, 164, 161):
        # Rows of the first operand in nn, those and columns of the second one in nt, none of either in tn.
        for layout, slots in (("nn", [1]), ("nt", [1, 2]), ("tn", [])):
            views = word_views(check(48, 70, k, layout, pair, NATIVE_UNITS[unit]))
            assert views == (slots if unit != "none" and k % packed == 0 else []), (layout, k)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("renderer", "size"), [(DOTS, (26, 40, 24)), (TILES, (17, 20, 72))])
@pytest.mark.parametrize("pair", ["int8 int8", "bfloat16 bfloat16"])
def test_words_on_the_interpreter(pair: str, renderer: Renderer, size: tuple[int, int, int]) -> None:
    assert word_views(check(*size, "nt", pair, renderer, "PYTHON")) == [1, 2]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", list(NATIVE_UNITS))
@pytest.mark.parametrize("start", [0, 1, 2, 4])
@pytest.mark.parametrize("inner", [140, 141, 142])
def test_words_at_an_offset_and_beyond_the_end(inner: int, start: int, unit: str) -> None:
    # c = a[:, start : start + k] @ b, where b has fewer rows than k, and a is 0 from `inner` on.
    m, n, k, width = 48, 50, 144, 152
    i, j, t = loop(m, 1), loop(n, 2), red(k, 3)
    left = at(param(1, m * width, dtypes.int8), i * width + t + start, t < inner).cast(dtypes.int32)
    right = at(param(2, k * n, dtypes.int8), t * n + j).cast(dtypes.int32)
    total = UOp(Ops.REDUCE, dtypes.int32, (left * right, t), (Ops.ADD, ()))
    sink = kernel(store(param(0, m * n, dtypes.int32), i * n + j, total, i, j))
    rng = np.random.default_rng(inner + start)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, width), (k, n)))
    used = a[:, start : start + k].astype(np.int32)
    used[:, inner:] = 0
    program = do_to_program(sink, NATIVE_UNITS[unit])
    arrays = {0: np.zeros(m * n, np.int32), 1: a.ravel(), 2: b.ravel()}
    np.testing.assert_array_equal(run_program(program, "CPU", arrays)[0], (used @ b.astype(np.int32)).ravel())
    assert word_views(program) == ([1] if unit != "none" and inner % 4 == start % 4 == 0 else [])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("renderer", "device"), [(TILES, "PYTHON"), *((r, "CPU") for r in NATIVE_UNITS.values())])
@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.bfloat16])
def test_one_buffer_as_numbers_and_as_words(dtype: DType, layout: str, renderer: Renderer, device: str) -> None:
    # x @ x reads rows of x as words and columns as numbers; x @ x.T reads both as words.
    n = 40 if device == "PYTHON" else 72
    x = np.random.default_rng(1).integers(0, 9, (n, n))
    out = dtypes.float32 if dtype is dtypes.bfloat16 else dtypes.int32
    i, j, t = loop(n, 1), loop(n, 2), red(n, 3)
    memory = param(1, n * n, dtype)
    factors = at(memory, i * n + t).cast(out) * at(memory, t * n + j if layout == "nn" else j * n + t).cast(out)
    total = UOp(Ops.REDUCE, out, (factors, t), (Ops.ADD, ()))
    sink = kernel(store(param(0, n * n, out), i * n + j, total, i, j))
    stored = (
        x.astype(np.int8) if out is dtypes.int32 else (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    )
    program = do_to_program(sink, renderer)
    got = run_program(program, device, {0: np.zeros(n * n, out.full_name), 1: stored.ravel()})[0]
    np.testing.assert_array_equal(got, (x @ (x if layout == "nn" else x.T)).ravel())
    assert program.arg.globals == (0, 1)
    assert (program.arg.outs, program.arg.ins) == ((0,), (1,))


def test_arguments_of_several_dtypes_are_passed_once() -> None:
    numbers, words = param(1, 8, dtypes.uint8), param(1, 2, dtypes.uint32)
    assert kernel_arguments([param(0, 4), numbers, words, words])[0] == [param(0, 4), numbers]


# ---- sizes of real blocks, through tensors


@needs_tiles
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.bfloat16])
@pytest.mark.parametrize(("m", "n", "k"), [(520, 530, 1030), (1030, 70, 520), (70, 1040, 2050), (64, 520, 4200)])
def test_matmuls_around_the_sizes_of_blocks(m: int, n: int, k: int, dtype: DType) -> None:
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-8, 9, s) for s in ((m, k), (k, n)))
    left, right = (Tensor(x.astype(np.int32)).cast(dtype).contiguous().realize() for x in (a, b))
    out = dtypes.float32 if dtype is dtypes.bfloat16 else dtypes.int32
    np.testing.assert_array_equal(left.matmul(right, dtype=out).numpy(), a @ b)
    other = right.T.contiguous().realize()
    np.testing.assert_array_equal(left.matmul(other.T, dtype=out).numpy(), a @ b)


@needs_tiles
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.bfloat16])
def test_batches_through_tiles(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, s) for s in ((3, 200, 260), (3, 260, 130)))
    left, right = (Tensor(x.astype(np.int32)).cast(dtype).contiguous().realize() for x in (a, b))
    out = dtypes.float32 if dtype is dtypes.bfloat16 else dtypes.int32
    np.testing.assert_array_equal(left.matmul(right, dtype=out).numpy(), a @ b)
