"""Matmuls in strips of columns: sizes that fit no tile, every layout, epilogues, threads, and what they are not for."""

from __future__ import annotations

import numpy as np
import pytest

from test.helpers_contractions import check_masks_and_an_epilogue, expected, matmul, operands, results_by_threads, run
from tinygrad import Tensor, dtypes
from tinygrad.codegen.opt import Opt, OptOps, strips
from tinygrad.codegen.opt.policy import automatic
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.device import Device
from tinygrad.helpers import Context
from tinygrad.schedule import split
from tinygrad.uop.ops import UOp


@pytest.fixture
def small_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tiny kernels take strips, with several blocks of terms each."""
    for name, least in {"BLOCK_WORK": 0, "MIN_SIDE": 1, "MIN_TERMS": 1}.items():
        monkeypatch.setattr(split, name, least)
    for name, value in {
        "BLOCK_TERMS": (2, 16),
        "ONE_BLOCK": 16,
        "UNROLLED": range(2, 5),
        "MIN_ROWS": 1,
        "MAX_TERMS": 64,
    }.items():
        monkeypatch.setattr(strips, name, value)


def steps_of(program: UOp) -> tuple[Opt, ...]:
    return program.src[0].arg.applied_opts


def takes_strips(steps: tuple[Opt, ...]) -> bool:
    """Only the wide operand is copied, and no sums are kept in memory."""
    return [o.op for o in steps if o.op in (OptOps.STAGE, OptOps.CACHE)] == [OptOps.STAGE]


# One, primes, and one less and one more than the tiles of all targets.
AWKWARD = [(1, 2), (7, 33), (12, 32), (13, 31), (24, 64), (25, 65), (47, 97), (50, 16), (29, 191), (5, 48)]


@pytest.mark.usefixtures("small_strips")
@pytest.mark.parametrize("k", [2, 3, 4, 16, 18, 36, 37])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_awkward_sizes(k: int, layout: str) -> None:
    taken = 0
    for m, n in AWKWARD:
        arrays = operands(m, n, k, layout)
        got, program = run(matmul(m, n, k, layout), arrays)
        np.testing.assert_array_equal(got, expected(m, n, k, layout, 1, arrays), err_msg=f"{m}x{n}x{k} {layout}")
        taken += takes_strips(steps_of(program))
    # 37 has no divisor, and rows whose terms lie apart are copied.
    assert taken >= 6 if layout != "tn" and k != 37 else taken == 0


@pytest.mark.usefixtures("small_strips")
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64"])
def test_other_dtypes_and_batches(dtype: str) -> None:
    for layout in ("nn", "nt"):
        arrays = operands(30, 70, 40, layout, 3, np.dtype(dtype).type)
        got, program = run(matmul(30, 70, 40, layout, 3, getattr(dtypes, dtype)), arrays)
        np.testing.assert_array_equal(got, expected(30, 70, 40, layout, 3, arrays))
        assert takes_strips(steps_of(program)) or dtype == "float16"


@pytest.mark.usefixtures("small_strips")
@pytest.mark.parametrize("arch", ["x86_64,znver3", "x86_64,nehalem"])
def test_narrower_vectors(arch: str) -> None:
    with Context(DEV=f"CPU:LLVM:{arch}"):
        for m, n, k in ((26, 50, 36), (101, 17, 24)):
            a, b = (np.random.default_rng(n).integers(-4, 5, s).astype(np.float32) for s in ((m, k), (k, n)))
            np.testing.assert_array_equal((Tensor(a) @ Tensor(b)).numpy(), a @ b)


@pytest.mark.usefixtures("small_strips")
def test_on_the_interpreter() -> None:
    for k, layout in ((9, "nn"), (36, "nt")):
        arrays = operands(13, 40, k, layout)
        steps = automatic(simplify_kernel(matmul(13, 40, k, layout)), Device["CPU"].renderer).applied
        assert takes_strips(tuple(steps))
        sink = matmul(13, 40, k, layout)
        asked = type(sink.arg)(opts_to_apply=tuple(o for o in steps if o.op is not OptOps.THREAD))
        got, _ = run(sink.replace(arg=asked), arrays, "PYTHON")
        np.testing.assert_array_equal(got, expected(13, 40, k, layout, 1, arrays))


@pytest.mark.usefixtures("small_strips")
def test_epilogue_and_masks() -> None:
    assert takes_strips(steps_of(check_masks_and_an_epilogue(26, 50, 36, 30)))


@pytest.mark.usefixtures("small_strips")
def test_what_is_read_where_it_lies_has_no_masks_and_is_not_computed() -> None:
    # A padded or computed narrow operand would be masked or computed again for every strip.
    a, b = np.arange(40 * 30, dtype=np.float32).reshape(40, 30) % 7, np.ones((36, 50), np.float32)
    padded = (Tensor(a).pad(((0, 0), (2, 4))) @ Tensor(b)).numpy()
    np.testing.assert_array_equal(padded, np.pad(a, ((0, 0), (2, 4))) @ b)
    computed = ((Tensor(a) * 2).relu() @ Tensor(b)[:30]).numpy()
    np.testing.assert_array_equal(computed, (a * 2) @ b[:30])


@pytest.mark.usefixtures("small_strips")
def test_results_do_not_depend_on_threads() -> None:
    assert len(set(results_by_threads(50, 90, 72))) == 1


@pytest.mark.usefixtures("small_strips")
def test_what_adds_to_its_result_computes_no_row_twice() -> None:
    c = Tensor(np.ones((25, 40), np.float32)).realize()
    a, b = (np.random.default_rng(n).integers(-4, 5, s).astype(np.float32) for n, s in enumerate(((25, 36), (36, 40))))
    c += Tensor(a) @ Tensor(b)
    np.testing.assert_array_equal(c.numpy(), 1 + a @ b)


@pytest.mark.parametrize(("m", "n", "k"), [(257, 263, 520), (1024, 513, 1024), (4096, 64, 512), (300, 700, 2048)])
def test_real_sizes(m: int, n: int, k: int) -> None:
    for layout in ("nn", "nt"):
        arrays = operands(m, n, k, layout)
        got, program = run(matmul(m, n, k, layout), arrays)
        np.testing.assert_array_equal(got, expected(m, n, k, layout, 1, arrays))
        assert takes_strips(steps_of(program))


def test_terms_are_split_evenly() -> None:
    for terms in range(1, 5000):
        found = strips.split_terms(terms)
        if found is None:
            continue
        block, copies = found
        assert terms % block == 0
        assert block % copies == 0
        assert block <= strips.BLOCK_TERMS[1]
    assert strips.split_terms(1024) == (512, 4)
    assert strips.split_terms(1001) == (91, 7)
    assert strips.split_terms(1009) is None  # a prime: its chain of additions would be too long


@pytest.mark.skipif(not Device[Device.DEFAULT].renderer.vector_bytes, reason="the policy of vectors")
@pytest.mark.parametrize(
    ("m", "n", "k", "layout", "copied"),
    [
        (384, 384, 384, "nn", 1),  # a sum of fewer terms than stay in registers otherwise
        (2048, 256, 256, "nn", 1),
        (512, 1024, 128, "nn", 1),
        (256, 256, 256, "nn", 0),  # so small that all of it is near
        (256, 256, 256, "nt", 1),  # its columns lie apart
        (64, 512, 512, "nn", 0),
    ],
)
def test_what_is_copied_of_small_products(m: int, n: int, k: int, layout: str, copied: int) -> None:
    steps = automatic(simplify_kernel(matmul(m, n, k, layout)), Device[Device.DEFAULT].renderer).applied
    assert [o.op for o in steps].count(OptOps.STAGE) == copied
