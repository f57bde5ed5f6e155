"""Padded convolutions that copy slabs of their image: every shape, what they are not for, and the step behind them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from test.helpers_ast import at, kernel, loop, param, red, store
from tinygrad import Device, Tensor
from tinygrad.codegen import full_rewrite_to_sink
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.helpers import Context
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.target import Target
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

needs_vectors = pytest.mark.skipif(not Device[Device.DEFAULT].renderer.vector_bytes, reason="the policy of vectors")


def convolved(x: np.ndarray, w: np.ndarray, padding: tuple[int, ...], dilation: int, groups: int = 1) -> np.ndarray:
    """Return the convolution of x (N, C, *size) with w, computed tap by tap in float64."""
    sizes, taps = x.shape[2:], w.shape[2:]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((p, p) for p in padding)))
    out = [n + 2 * p - dilation * (k - 1) for n, p, k in zip(sizes, padding, taps, strict=True)]
    result = np.zeros((len(x), groups, len(w) // groups, *out))
    weights = w.reshape(groups, -1, *w.shape[1:])
    for tap in np.ndindex(*taps):
        places = tuple(slice(dilation * t, dilation * t + n) for t, n in zip(tap, out, strict=True))
        part = padded[(slice(None), slice(None), *places)].reshape(len(x), groups, w.shape[1], *out)
        result += np.einsum("ngc...,goc->ngo...", part, weights[(..., *tap)])
    return result.reshape(len(x), len(w), *out)


def steps_of(y: Tensor) -> list[Opt]:
    """Return the steps of the kernel that sums."""
    renderer = Device[Device.DEFAULT].renderer
    kernels = [call.src[0] for call in y.schedule_linear().src if call.src[0].op is Ops.SINK]
    made = [full_rewrite_to_sink(k, renderer) for k in kernels]
    (found,) = [k for k in made if k.op_in_backward_slice_with_self(Ops.REDUCE)]
    return list(found.arg.applied_opts)


CASES = [
    # images, channels, filters, size, taps, padding, dilation, groups
    (2, 8, 64, (14, 20), (3, 3), (1, 1), 1, 1),
    (1, 5, 33, (19, 23), (3, 3), (1, 1), 1, 1),  # filters that fill no vectors
    (2, 6, 32, (15, 17), (5, 5), (2, 2), 1, 1),
    (1, 37, 40, (30, 30), (3, 3), (2, 2), 2, 1),  # a prime number of channels, taps that lie apart
    (2, 3, 64, (40, 41), (7, 7), (3, 3), 1, 1),
    (1, 1, 64, (33, 31), (3, 3), (1, 1), 1, 1),  # no loop over channels
    (2, 8, 32, (30, 30), (1, 5), (0, 2), 1, 1),  # windows along rows only
    (1, 4, 32, (30, 30), (3, 3), (0, 1), 1, 1),  # zeros beside rows only
    (3, 7, 64, (200,), (3,), (1,), 1, 1),
    (1, 3, 32, (10, 11, 12), (3, 3, 3), (1, 1, 1), 1, 1),
    (2, 7, 48, (32, 32), (3, 3), (1, 1), 1, 2),
    (1, 4, 96, (32, 7), (3, 3), (1, 2), 1, 1),  # rows shorter than a tile
]


@pytest.mark.parametrize(("images", "channels", "filters", "size", "taps", "padding", "dilation", "groups"), CASES)
def test_padded_convolutions(
    images: int,
    channels: int,
    filters: int,
    size: tuple[int, ...],
    taps: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: int,
    groups: int,
) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((images, groups * channels, *size), dtype=np.float32)
    w = rng.standard_normal((groups * filters, channels, *taps), dtype=np.float32)
    around = [amount for p in reversed(padding) for amount in (p, p)]
    y = Tensor(x).realize().conv2d(Tensor(w).realize(), padding=around, dilation=dilation, groups=groups)
    np.testing.assert_allclose(y.numpy(), convolved(x, w, padding, dilation, groups), rtol=1e-4, atol=1e-4)


@needs_vectors
@pytest.mark.parametrize(
    ("channels", "filters", "size", "taps", "padding", "stride", "takes"),
    [
        (16, 64, 56, 3, 1, 1, True),
        (16, 64, 56, 5, 2, 1, True),
        (16, 8, 56, 3, 1, 1, False),  # few filters: copying would take as long as multiplying
        (16, 64, 56, 3, 0, 1, False),  # no zeros
        (16, 64, 57, 3, 1, 2, False),  # windows that move by two
        (16, 64, 6, 3, 2, 1, False),  # so many zeros above and below that loops over taps are cut instead
    ],
)
def test_which_images_are_copied_in_slabs(
    channels: int, filters: int, size: int, taps: int, padding: int, stride: int, takes: bool
) -> None:
    y = Tensor.empty(8, channels, size, size).conv2d(
        Tensor.empty(filters, channels, taps, taps), padding=padding, stride=stride
    )
    assert [o.op for o in steps_of(y)].count(OptOps.STAGE) == takes


@needs_vectors
def test_a_padded_image_is_not_in_memory() -> None:
    y = Tensor.empty(8, 16, 56, 56).conv2d(Tensor.empty(64, 16, 3, 3), padding=1)
    stored = [
        u.arg.shape[0] for call in y.schedule_linear().src for u in call.src[1:] if u.op is Ops.BUFFER and u.arg.shape
    ]
    assert 8 * 16 * 58 * 58 not in stored


@needs_vectors
def test_one_image_is_cut_into_slabs_that_threads_share() -> None:
    steps = steps_of(Tensor.empty(1, 16, 56, 56).conv2d(Tensor.empty(64, 16, 3, 3), padding=1))
    ops = [o.op for o in steps]
    assert OptOps.OVERLAP in ops[: ops.index(OptOps.STAGE)]
    assert ops[-1] is OptOps.THREAD


@needs_vectors
def test_the_number_of_threads_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    x, w = (Tensor(rng.standard_normal(s, dtype=np.float32)).realize() for s in ((3, 19, 37, 29), (64, 19, 3, 3)))
    results = []
    for threads in (1, 2, 5):
        with Context(NUM_CPU_THREADS=threads):
            results.append(x.conv2d(w, padding=1).numpy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def schedule_of_windows() -> Schedule:
    """Return sum over c, k of x[c, y + k - 1] * w[c, k, o] into out[o, y], with zeros around."""
    o, y, c, k = loop(32, 0), loop(20, 1), red(4, 2), red(3, 3)
    inside = (y + k >= 1) & (y + k < 21)
    image = UOp(Ops.INDEX, param(1, 80).dtype, (param(1, 80), c * 20 + y + k - 1, inside))
    weight = at(param(2, 384), (c * 3 + k) * 32 + o)
    total = (image * weight).reduce(c, k, arg=Ops.ADD)
    sink = kernel(store(param(0, 640), o * 20 + y, total, o, y))
    return Schedule(sink, LLVMRenderer(Target.parse("CPU:LLVM:x86_64,sapphirerapids")))


def test_the_copy_has_one_place_per_place_of_a_window() -> None:
    schedule = schedule_of_windows()
    schedule.apply(Opt(OptOps.STAGE, 0, (0, True, ((1, 1, 1),))))
    made = schedule.result()
    (scratch,) = {u for u in made.toposort() if u.op is Ops.BUFFER}
    assert scratch.arg.shape == (4 * 32 + 16,)  # channels of 22 places in whole vectors, an odd number of cache lines
    (product,) = {u for u in made.toposort() if u.op is Ops.REDUCE}
    gated = [u for u in product.src[0].src if u.op is Ops.INDEX and len(u.src) > 2]
    assert not gated


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Opt(OptOps.STAGE, 0, (0, True, ((1, 2, 1),))), "a window is (output axis, reduce axis, step of at least 1)"),
        (Opt(OptOps.STAGE, 0, (0, True, ((1, 1, 0),))), "a window is (output axis, reduce axis, step of at least 1)"),
        (Opt(OptOps.STAGE, 0, (0, True, ((0, 1, 1),))), "the operand is not copied over a range of a window"),
        (Opt(OptOps.STAGE, 0, (0,)), "arg is (operand, is it a panel, its windows if there are any)"),
    ],
    ids=str,
)
def test_windows_that_do_not_fit_raise(step: Opt, message: str) -> None:
    with pytest.raises(KernelOptError, match=re.escape(message)):
        schedule_of_windows().apply(step)


def test_a_copied_loop_may_repeat_iterations_but_gets_no_more() -> None:
    schedule = schedule_of_windows()
    schedule.apply(Opt(OptOps.STAGE, 0, (0, True, ((1, 1, 1),))))
    schedule.apply(Opt(OptOps.OVERLAP, 1, 7))
    schedule.apply(Opt(OptOps.PADTO, 0, 48))  # the operand does not depend on filters
    with pytest.raises(KernelOptError, match="keeps its iterations"):
        schedule.apply(Opt(OptOps.PADTO, 3, 5))
    kinds = [u.arg[-1] for u in schedule.result().toposort() if u.op is Ops.RANGE]
    assert AxisType.REDUCE in kinds
