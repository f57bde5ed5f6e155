"""Loops of sums that run over what is there only: taps inside of an input, terms of the last block."""

from __future__ import annotations

import numpy as np
import pytest

from test.helpers_contractions import expected, matmul, operands, run
from tinygrad import Device, Tensor
from tinygrad.codegen import full_rewrite_to_sink
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.trim import trim_sums
from tinygrad.dtype import dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp


def windows(x: np.ndarray, kernel: tuple[int, int], padding: tuple[int, ...], dilation: int = 1) -> np.ndarray:
    """Return x (N, C, H, W) with zeros around, cut into (N, C, OH, OW, KH, KW)."""
    left, right, top, bottom = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = [dilation * (k - 1) + 1 for k in kernel]
    cut = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    return cut[..., ::dilation, ::dilation]


def sums_of(y: Tensor) -> list[UOp]:
    """Return the optimised kernels of a tensor's schedule that sum."""
    renderer = Device[Device.DEFAULT].renderer
    kernels = [call.src[0] for call in y.schedule_linear().src if call.src[0].op is Ops.SINK]
    made = [full_rewrite_to_sink(k, renderer) for k in kernels]
    return [k for k in made if k.op_in_backward_slice_with_self(Ops.REDUCE)]


def cut_loops(kernel: UOp) -> list[UOp]:
    """Return the loops whose length depends on loops around them."""
    loops = [u for u in kernel.toposort() if u.op is Ops.RANGE]
    return [r for r in loops if r.src[0].op_in_backward_slice_with_self(Ops.RANGE)]


CASES = [
    # size, kernel, (left, right, top, bottom), dilation
    ((6, 6), (3, 3), (2, 2, 2, 2), 1),
    ((20, 20), (5, 5), (4, 4, 4, 4), 1),
    ((4, 17), (3, 2), (0, 1, 2, 2), 1),
    ((5, 16), (3, 3), (1, 1, 0, 2), 1),
    ((5, 16), (4, 3), (0, 0, 3, 0), 1),
    ((1, 16), (5, 1), (0, 0, 4, 4), 1),
    ((3, 16), (2, 1), (0, 0, 6, 5), 1),  # some outputs have no tap inside
    ((7, 16), (3, 3), (2, 2, 4, 4), 2),
]


@pytest.mark.parametrize(("size", "kernel", "padding", "dilation"), CASES)
def test_padded_convolutions(
    size: tuple[int, int], kernel: tuple[int, int], padding: tuple[int, ...], dilation: int
) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, 32, *size), dtype=np.float32)
    w = rng.standard_normal((32, 32, *kernel), dtype=np.float32)
    y = Tensor(x).realize().conv2d(Tensor(w).realize(), padding=padding, dilation=dilation)
    wanted = np.einsum("nchwij,ocij->nohw", windows(x, kernel, padding, dilation), w, optimize=True)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not Device[Device.DEFAULT].renderer.vector_bytes, reason="the policy of vectors")
@pytest.mark.parametrize(("size", "kernel", "padding"), [((6, 6), (3, 3), 2), ((20, 20), (5, 5), 4)])
def test_taps_outside_are_left_out(size: tuple[int, int], kernel: tuple[int, int], padding: int) -> None:
    x, w = Tensor.empty(64, 32, *size), Tensor.empty(32, 32, *kernel)
    (made,) = sums_of(x.conv2d(w, padding=padding))
    assert len(cut_loops(made)) == 1
    assert all(len(u.src) == 2 for u in made.toposort() if u.op is Ops.INDEX), "a load kept its gate"


@pytest.mark.skipif(not Device[Device.DEFAULT].renderer.vector_bytes, reason="the policy of vectors")
def test_few_taps_outside_are_kept() -> None:
    (made,) = sums_of(Tensor.empty(4, 32, 56, 56).conv2d(Tensor.empty(32, 32, 3, 3), padding=1))
    assert not cut_loops(made)


def test_input_gradient_with_stride() -> None:
    rng = np.random.default_rng(4)
    x = Tensor(rng.standard_normal((4, 16, 12, 12), dtype=np.float32))
    w = Tensor(rng.standard_normal((32, 16, 3, 3), dtype=np.float32))
    grad = rng.standard_normal((4, 32, 5, 5), dtype=np.float32)
    mine = x.conv2d(w, stride=2).mul(Tensor(grad)).sum().gradient(x)[0].numpy()
    spread = np.zeros((4, 32, 9, 9), dtype=np.float32)
    spread[:, :, ::2, ::2] = grad
    flipped = w.numpy()[:, :, ::-1, ::-1]
    wanted = np.einsum("nohwij,ocij->nchw", windows(spread, (3, 3), (2, 3, 2, 3)), flipped, optimize=True)
    np.testing.assert_allclose(mine, wanted[:, :, :12, :12], rtol=1e-4, atol=1e-4)


def _kernel(gate: str, kind: AxisType = AxisType.LOOP) -> UOp:
    """Return sum over k < 5 of x[y + k - 4] * w[k] into out[y] for y < 24, with a gate on the load of x."""
    out, x, w = (UOp.param(n, dtypes.float32, size) for n, size in enumerate(((24,), (20,), (5,))))
    y, k = UOp.range(24, 0, kind), UOp.range(5, 1, AxisType.REDUCE)
    at = y + k
    gates = {"both": (at >= 4) & (at < 24), "lower": at >= 4, "other": (at >= 4) & (at < 24) & (y < 30 * k + 7)}
    load = UOp(Ops.INDEX, dtypes.float32, (x, at - 4, gates[gate]))
    product = load * UOp(Ops.INDEX, dtypes.float32, (w, k))
    total = UOp(Ops.REDUCE, dtypes.float32, (product, k), (Ops.ADD, ()))
    store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, dtypes.float32, (out, y)), total))
    return UOp.sink(UOp(Ops.END, dtypes.void, (store, y)))


def test_both_bounds_cut_the_loop() -> None:
    made = trim_sums(_kernel("both"))
    (loop,) = cut_loops(made)
    y = next(u for u in made.toposort() if u.op is Ops.RANGE and u.src[0].op is Ops.CONST)
    lengths = [loop.src[0].substitute({y: y.const_like(n)}).simplify().arg for n in range(24)]
    assert lengths == [min(5, 24 - n) - max(0, 4 - n) for n in range(24)]
    assert not any(u.op is Ops.CMPLT for u in made.toposort())


def test_what_is_no_bound_stays_a_gate() -> None:
    made = trim_sums(_kernel("other"))
    assert len(cut_loops(made)) == 1
    assert sum(u.op is Ops.CMPLT for u in made.toposort()) == 1


def test_lanes_and_copies_have_no_loop_of_their_own() -> None:
    kernel = _kernel("both", AxisType.UPCAST)
    assert trim_sums(kernel) is kernel


def test_other_products_with_zeros_are_computed() -> None:
    x, w = Tensor.ones(100, 30).contiguous().realize(), Tensor.full((40,), float("inf")).contiguous().realize()
    padded = x.pad(((0, 0), (4, 6)))
    assert np.isnan((padded * w).sum(1).numpy()).all()


@pytest.mark.skipif(not Device[Device.DEFAULT].renderer.vector_bytes, reason="the policy of vectors")
@pytest.mark.parametrize(("rows", "terms", "columns"), [(129, 129, 129), (65, 257, 65), (7, 4001, 8)])
def test_no_load_of_a_long_sum_has_a_gate(rows: int, terms: int, columns: int) -> None:
    """Blocks of a sum that have no divisor in common with it end where it does."""
    (made,) = sums_of(Tensor.empty(rows, terms) @ Tensor.empty(terms, columns))
    assert any(step.op is OptOps.BLOCK for step in made.arg.applied_opts)
    assert any(step.op is OptOps.PADTO for step in made.arg.applied_opts)
    assert len(cut_loops(made)) == 1
    loads = [u for u in made.toposort() if u.op is Ops.INDEX and u.src[0].arg.slot > 0]
    assert all(len(u.src) == 2 for u in loads)


@pytest.mark.parametrize(
    ("terms", "steps"),
    [
        (37, (Opt(OptOps.PADTO, 2, 40), Opt(OptOps.BLOCK, 0, 8))),
        (9, (Opt(OptOps.PADTO, 2, 24), Opt(OptOps.BLOCK, 0, 4))),  # the last blocks have no terms
        (37, (Opt(OptOps.PADTO, 2, 64), Opt(OptOps.BLOCK, 0, 16), Opt(OptOps.BLOCK, 1, 4))),  # blocks of blocks
        (37, (Opt(OptOps.PADTO, 2, 48), Opt(OptOps.BLOCK, 0, 8), Opt(OptOps.UNROLL, 1, 2))),
    ],
)
@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_padded_sums_in_blocks(terms: int, steps: tuple[Opt, ...], device: str) -> None:
    arrays = operands(5, 19, terms, "nn")
    sink = matmul(5, 19, terms, "nn")
    got, _ = run(sink.replace(arg=type(sink.arg)(opts_to_apply=steps)), arrays, device)
    np.testing.assert_array_equal(got, expected(5, 19, terms, "nn", 1, arrays))


@pytest.mark.parametrize("both", [False, True])
def test_zeros_in_blocks_of_terms_are_multiplied(both: bool) -> None:
    """A gate of one factor alone does not end a sum: 0 times infinity is NaN."""
    out, x, w = (UOp.param(n, dtypes.float32, size) for n, size in enumerate(((3,), (3 * 37,), (40,))))
    i, b, k = UOp.range(3, 0), UOp.range(5, 1, AxisType.REDUCE), UOp.range(8, 2, AxisType.REDUCE)
    at = b * 8 + k
    gated = UOp(Ops.INDEX, dtypes.float32, (x, i * 37 + at, at < 37))
    other = UOp(Ops.INDEX, dtypes.float32, (w, at, at < 37) if both else (w, at))
    inner = UOp(Ops.REDUCE, dtypes.float32, (gated * other, k), (Ops.ADD, ()))
    total = UOp(Ops.REDUCE, dtypes.float32, (inner, b), (Ops.ADD, ()))
    store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, dtypes.float32, (out, i)), total))
    kernel = UOp.sink(UOp(Ops.END, dtypes.void, (store, i)))
    made = trim_sums(kernel)
    assert (made is not kernel) == both
    assert len(cut_loops(made)) == both


@pytest.mark.skipif(not Device[Device.DEFAULT].renderer.vector_bytes, reason="the policy of vectors")
@pytest.mark.parametrize(("channels", "size", "taps", "padding"), [(32, 8, 3, 2), (64, 8, 3, 2), (32, 20, 5, 4)])
def test_loops_around_rows_that_are_cut_are_not_unrolled(channels: int, size: int, taps: int, padding: int) -> None:
    """Several channels beside the columns of a window lie far apart, while its rows stay a loop between them."""
    x, w = Tensor.empty(4, channels, size, size), Tensor.empty(32, channels, taps, taps)
    (kernel,) = [k for k in sums_of(x.conv2d(w, padding=padding)) if cut_loops(k)]
    unrolled = [step.arg for step in kernel.arg.applied_opts if step.op is OptOps.UNROLL]
    assert unrolled == [taps]
