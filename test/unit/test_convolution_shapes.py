"""Windows that do not fit, parts of pools and where their maxima are, padding modes of layers: as torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from tinygrad import GlobalCounters, Tensor, nn
from tinygrad.errors import ShapeError

# What is wrong, our message, and the call with the ``ones`` and the functions of either package.
Call = Callable[[Callable[..., Any], Any], Any]
IMPOSSIBLE: list[tuple[str, Call]] = [
    (r"conv_transpose2d: an output of size \(-1, -1\)",
     lambda ones, f: f.conv_transpose2d(ones(1, 1, 1, 1), ones(1, 1, 1, 1), padding=1)),
    (r"conv_transpose2d: an output of size \(0, 0\)",
     lambda ones, f: f.conv_transpose2d(ones(1, 1, 1, 1), ones(1, 1, 2, 2), padding=1)),
    (r"conv_transpose2d: an output of size \(3, 0\)",
     lambda ones, f: f.conv_transpose2d(ones(1, 1, 3, 2), ones(1, 1, 1, 1), padding=(0, 1))),
    (r"conv_transpose2d: a kernel of size \(0, 2\)",
     lambda ones, f: f.conv_transpose2d(ones(1, 1, 3, 3), ones(1, 1, 0, 2))),
    (r"conv2d: a kernel of size \(0, 2\)", lambda ones, f: f.conv2d(ones(1, 1, 3, 3), ones(1, 1, 0, 2))),
    ("conv2d: kernel spans 5, the padded input 3", lambda ones, f: f.conv2d(ones(1, 1, 3, 3), ones(1, 1, 5, 5))),
    ("conv2d: kernel spans 7, the padded input 5",
     lambda ones, f: f.conv2d(ones(1, 1, 3, 3), ones(1, 1, 7, 7), padding=1)),
    ("conv2d: kernel spans 5, the padded input 3",
     lambda ones, f: f.conv2d(ones(1, 1, 3, 3), ones(1, 1, 2, 2), dilation=4)),
    ("conv2d: kernel spans 1, the padded input 0", lambda ones, f: f.conv2d(ones(1, 1, 0, 3), ones(1, 1, 1, 1))),
    ("max_pool2d: kernel spans 5, the padded input 3", lambda ones, f: f.max_pool2d(ones(1, 1, 3, 3), 5)),
    ("max_pool2d: kernel spans 4, the padded input 3", lambda ones, f: f.max_pool2d(ones(1, 1, 3, 3), 2, dilation=3)),
    ("max_pool2d: padding 2 is more than half", lambda ones, f: f.max_pool2d(ones(1, 1, 3, 3), 2, padding=2)),
    ("avg_pool2d: padding 2 is more than half",
     lambda ones, f: f.avg_pool2d(ones(1, 1, 1, 3), 3, padding=2, count_include_pad=False)),
    (r"avg_pool2d: padding \(1, 0\) is more than half",
     lambda ones, f: f.avg_pool2d(ones(1, 1, 1, 3), 1, padding=(1, 0), ceil_mode=True, count_include_pad=False)),
    ("avg_pool2d: a dim of size 0", lambda ones, f: f.avg_pool2d(ones(1, 1, 0, 3), 2, padding=1)),
    ("max_pool2d: a dim of size 0", lambda ones, f: f.max_pool2d(ones(1, 1, 3, 0), 2, padding=1, ceil_mode=True)),
    (r"conv_transpose2d: an output of size \(-1, 2\)",
     lambda ones, f: f.conv_transpose2d(ones(0, 2, 1, 2), ones(2, 3, 1, 1), padding=(1, 0))),
    ("avg_pool2d: kernel spans 5, the padded input 3", lambda ones, f: f.avg_pool2d(ones(1, 1, 3, 3), 5)),
    ("avg_pool2d: kernel_size .* below 1", lambda ones, f: f.avg_pool2d(ones(1, 1, 3, 3), 0)),
    ("max_pool2d: stride .* below 1", lambda ones, f: f.max_pool2d(ones(1, 1, 3, 3), 2, stride=0)),
    ("unfold: size 5, step 1 for dim 0 of size 3", lambda ones, _: ones(3).unfold(0, 5, 1)),
    ("unfold: size 2, step 0 for dim 0 of size 3", lambda ones, _: ones(3).unfold(0, 2, 0)),
    ("unfold: size -1, step 1 for dim 0 of size 3", lambda ones, _: ones(3).unfold(0, -1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("message", "call"), IMPOSSIBLE, ids=[m[:40] for m, _ in IMPOSSIBLE])
def test_windows_that_do_not_fit_are_errors_of_both(message: str, call: Call) -> None:
    with pytest.raises((ShapeError, RuntimeError), match=message):
        call(Tensor.ones, Tensor)
    with pytest.raises(RuntimeError, match=r"."):
        call(torch.ones, F)


EMPTY = [
    ((0, 2, 0, 2), (2, 3, 1, 1), {}), ((0, 2, 1, 2), (2, 3, 2, 1), {"padding": (1, 0), "stride": (3, 1)}),
    ((0, 4, 2, 2), (4, 3, 1, 1), {"padding": (2, 0), "output_padding": (1, 0), "stride": (2, 1), "groups": 2}),
    ((0, 2, 3), (2, 3, 3), {"padding": 2, "stride": 1, "dilation": 1}), ((0, 2, 3, 3), (2, 3, 3, 3), {}),
]  # fmt: skip


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("shape", "weight", "options"), EMPTY, ids=str)
def test_transposed_convolutions_of_no_images(
    shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any], has_bias: bool
) -> None:
    bias = weight[1] * options.get("groups", 1)
    theirs = [torch.ones(shape), torch.ones(weight), torch.ones(bias) if has_bias else None]
    wanted = (F.conv_transpose1d if len(shape) == 3 else F.conv_transpose2d)(*theirs, **options)
    x, w = Tensor.ones(*shape), Tensor.ones(*weight)
    got = x.conv_transpose2d(w, Tensor.ones(bias) if has_bias else None, **options)
    assert got.numpy().shape == got.shape == tuple(wanted.shape)
    assert [g.numpy().sum() for g in got.sum().gradient(x, w)] == [0, 0]


# Input, weight, and options of a transposed convolution: kernels longer and shorter than the stride, and not multiples
# of it, other steps per dim, groups, padding of more than a kernel, output_padding.
STEPS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5), (3, 4, 4), {"stride": 2}),
    ((1, 4, 3, 5), (4, 2, 5, 3), {"stride": (3, 2), "padding": (2, 0), "output_padding": (2, 1), "groups": 2}),
    ((2, 2, 4, 4), (2, 3, 2, 2), {"stride": 2}),
    ((2, 2, 6, 3), (2, 3, 3, 1), {"stride": (2, 1), "padding": (4, 0), "output_padding": (1, 0)}),
    ((1, 2, 2, 3, 2), (2, 2, 2, 3, 4), {"stride": (1, 2, 3), "padding": (0, 1, 2)}),
    ((2, 2, 3, 3), (2, 3, 2, 2), {"stride": 3, "output_padding": 2}),
]


@pytest.mark.parametrize(("shape", "weight", "options"), STEPS, ids=str)
def test_transposed_convolutions_with_steps(
    shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (shape, weight)]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    ours = [Tensor(a) for a in arrays]
    expected = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[len(shape) - 2](*theirs, **options)
    found = ours[0].conv_transpose2d(ours[1], **options)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    # Of a square, so that the gradients are convolutions of values that differ; and once more, through them.
    wanted = torch.autograd.grad(expected.square().sum(), theirs, create_graph=True)
    grads = found.square().sum().gradient(*ours)
    again = torch.autograd.grad(wanted[0].square().sum(), theirs)
    for mine, other in zip((*grads, *grads[0].square().sum().gradient(*ours)), (*wanted, *again), strict=True):
        np.testing.assert_allclose(
            mine.numpy(), other.detach().numpy(), rtol=1e-3, atol=1e-3 * other.abs().max().item()
        )


@pytest.mark.parametrize("kernel", [2, 4])
def test_zeros_between_spread_values_are_not_multiplied(kernel: int) -> None:
    x, w = Tensor.empty(1, 8, 16, 16), Tensor.empty(8, 4, kernel, kernel)
    GlobalCounters.reset()
    x.conv_transpose2d(w, stride=2, padding=kernel // 2 - 1).realize()
    # Each input meets each tap of each filter once: a product and a sum; the borders and indices are the rest.
    assert GlobalCounters.global_ops < 1.6 * 2 * x.numel() * 4 * kernel**2


def test_padding_that_counts_may_be_larger_than_the_kernel() -> None:
    found = Tensor.ones(1, 1, 2, 2).avg_pool2d(2, 1, padding=2)
    assert found.numpy()[0, 0].tolist() == np.outer([0, 0.5, 1, 0.5, 0], [0, 0.5, 1, 0.5, 0]).tolist()


def test_a_mean_needs_values_of_the_input() -> None:
    x = Tensor.ones(1, 1, 1, 1)
    assert x.avg_pool2d(2, 1, dilation=2, padding=1).numpy().ravel().tolist() == [0.0]
    with pytest.raises(ShapeError, match=r"avg_pool2d: a window over a dim of size 1 has elements of the padding only"):
        x.avg_pool2d(2, 1, dilation=2, padding=1, count_include_pad=False)


PARTS = [
    ((2, 3, 7), (3,)), ((2, 3, 8), (4,)), ((3, 5), (5,)), ((2, 3, 5, 7), (2, 3)), ((2, 3, 6, 7), (None, 3)),
    ((1, 2, 6, 4), (3, 2)), ((3, 5, 7), (4, None)), ((1, 2, 5, 4, 3), (2, 3, 2)), ((1, 1, 5, 4), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "sizes"), PARTS, ids=str)
@pytest.mark.parametrize("has_ties", [False, True])
def test_adaptive_maxima_and_where_they_are(shape: tuple[int, ...], sizes: tuple[Any, ...], has_ties: bool) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = np.round(x) if has_ties else x
    name = f"adaptive_max_pool{len(sizes)}d"
    values, places = getattr(Tensor(x), name)(sizes, return_indices=True)
    wanted, at = getattr(F, name)(torch.tensor(x), sizes, return_indices=True)
    np.testing.assert_array_equal(values.numpy(), wanted.numpy())
    np.testing.assert_array_equal(places.numpy(), at.numpy())
    np.testing.assert_array_equal(getattr(Tensor(x), name)(sizes).numpy(), wanted.numpy())


def test_adaptive_maxima_of_no_parts() -> None:
    values, places = Tensor.ones(2, 3, 4).adaptive_max_pool1d(0, return_indices=True)
    assert values.shape == places.shape == (2, 3, 0)


# Windows whose elements are all in the padding: the index that PyTorch gives is no index of theirs.
OUTSIDE = [
    ((1, 1, 1, 1), 2, 1, 2, 1), ((1, 1, 1, 4), (2, 1), 3, (2, 1), (1, 0)), ((1, 1, 2, 5), (2, 3), 1, (3, 1), 1),
    ((2, 5, 1), (2, 2), 1, 2, 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "kernel", "stride", "dilation", "padding"), OUTSIDE, ids=str)
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_a_window_of_padding_has_no_index(
    shape: tuple[int, ...], kernel: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool
) -> None:
    x, options = np.ones(shape, np.float32), (kernel, stride, padding, dilation, ceil_mode)
    values = F.max_pool2d(torch.tensor(x), *options)
    assert (values == -np.inf).any()
    mine = Tensor(x).max_pool2d(kernel, stride, dilation, padding, ceil_mode)
    np.testing.assert_array_equal(mine.numpy(), values.numpy())
    with pytest.raises(
        ShapeError, match=r"max_pool2d: a window over a dim of size \d has elements of the padding only"
    ):
        Tensor(x).max_pool2d(kernel, stride, dilation, padding, ceil_mode, return_indices=True)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_indices_of_maxima_are_those_of_torch_or_refused(size: int) -> None:
    """Over windows with dilation and padding: refused exactly where PyTorch gives an index outside of the input."""
    x = np.random.default_rng(size).standard_normal((1, size)).astype(np.float32)
    compared = 0
    for kernel, stride, dilation, padding in itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 4), (0, 1, 2)):
        try:
            wanted = F.max_pool1d(torch.tensor(x), kernel, stride, padding, dilation, return_indices=True)
        except RuntimeError:
            continue
        if (wanted[1] >= size).any():
            with pytest.raises(ShapeError, match="elements of the padding only"):
                Tensor(x).max_pool2d((kernel,), stride, dilation, padding, return_indices=True)
            continue
        ours = Tensor(x).max_pool2d((kernel,), stride, dilation, padding, return_indices=True)
        for mine, other in zip(ours, wanted, strict=True):
            np.testing.assert_array_equal(mine.numpy(), other.numpy())
        compared += 1
    assert compared > 2


LAYERS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("Conv1d", (2, 4, 9), {"kernel_size": 3, "padding": 2}),
    ("Conv2d", (2, 4, 6, 7), {"kernel_size": 3, "padding": 1}),
    ("Conv2d", (2, 4, 6, 7), {"kernel_size": (3, 2), "padding": (2, 1), "stride": (2, 1), "dilation": (1, 2)}),
    ("Conv2d", (2, 4, 6, 7), {"kernel_size": (3, 5), "padding": "same", "groups": 2}),
    ("Conv2d", (2, 4, 6, 7), {"kernel_size": 2, "padding": "valid", "bias": False}),
    ("Conv3d", (1, 4, 4, 5, 6), {"kernel_size": (3, 2, 3), "padding": (1, 0, 2)}),
]


@pytest.mark.parametrize(("name", "shape", "options"), LAYERS, ids=str)
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_padding_modes_of_layers(name: str, shape: tuple[int, ...], options: dict[str, Any], mode: str) -> None:
    theirs = getattr(torch.nn, name)(4, 6, padding_mode=mode, **options)
    layer: Any = nn.Conv1d if name == "Conv1d" else nn.Conv2d  # whose kernel says how many dims there are
    ours = layer(4, 6, padding_mode=mode, **options)
    ours.weight = Tensor(theirs.weight.detach().numpy())
    if ours.bias is not None:
        ours.bias = Tensor(theirs.bias.detach().numpy())
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, x_torch = Tensor(array), torch.tensor(array, requires_grad=True)
    got, wanted = ours(x), theirs(x_torch)
    got.square().sum().backward()
    wanted.square().sum().backward()
    np.testing.assert_allclose(got.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    for mine, other in ((x, x_torch), (ours.weight, theirs.weight)):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_padding_modes_that_there_are_not() -> None:
    with pytest.raises(
        ValueError, match=r"padding_mode='mirror'; expected 'zeros', 'reflect', 'replicate', 'circular'"
    ):
        nn.Conv2d(1, 1, 3, padding_mode="mirror")
    with pytest.raises(ValueError, match=r"padding_mode='reflect'; expected 'zeros'"):
        nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect")
    with pytest.raises(ShapeError, match=r"padding \(3, 3\) of dim 2 is too large for mode reflect"):
        nn.Conv2d(1, 1, 3, padding=3, padding_mode="reflect")(Tensor.ones(1, 1, 3, 9))


def came_round(x: np.ndarray, dim: int, before: int, after: int) -> np.ndarray:
    """Return what is left of a dim after cropping, going on round and round on both sides."""
    left = np.arange(x.shape[dim])[max(-before, 0) : x.shape[dim] - max(-after, 0)]
    places = left[np.arange(-max(before, 0), len(left) + max(after, 0)) % len(left)]
    return np.take(x, places, dim)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_circular_padding_wraps_what_cropping_leaves(size: int) -> None:
    x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    compared = 0
    for before, after in itertools.product(range(-size - 1, size + 1), repeat=2):
        if before >= 0 and after >= 0:
            np.testing.assert_array_equal(
                Tensor(x).pad((before, after), mode="circular").numpy(),
                F.pad(torch.tensor(x), (before, after), mode="circular").numpy(),
            )
        elif size + min(before, 0) + min(after, 0) > 0:
            got = Tensor(x).pad((before, after), mode="circular").numpy()
            np.testing.assert_array_equal(got, came_round(x, 1, before, after))
            compared += before > 0 or after > 0
        elif size + before + after:  # PyTorch gives memory that nothing was written to
            with pytest.raises(ShapeError, match=r"pad: .* cropped of dim 1, which has"):
                Tensor(x).pad((before, after), mode="circular")
    assert compared or size == 1


@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        ((1, 2, 2, 1), (-1, 0, -1, 2)), ((1, 2, 2, 1), (-1, 0, -2, 2)), ((1, 2, 2, 3), (-3, 0, 1, 2)),
        ((1, 2, 1), (-2, 1)), ((1, 2, 5, 4), (-1, 2, 1, -2)), ((2, 3, 4), (-2, 0)),
    ],
)  # fmt: skip
def test_circular_padding_that_crops_is_that_of_torch(shape: tuple[int, ...], padding: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    wanted = F.pad(torch.tensor(x), padding, mode="circular")
    got = Tensor(x).pad(padding, mode="circular")
    assert got.shape == tuple(wanted.shape)
    np.testing.assert_array_equal(got.numpy(), wanted.numpy())
