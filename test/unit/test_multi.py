"""Tensors over several devices: every operation gives what it gives on one device, with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from test.helpers_methods import CALLS, tensors
from tinygrad import GlobalCounters, Tensor, UOp, Variable, dtypes, function
from tinygrad.dtype import _to_np_dtype
from tinygrad.uop.ops import AxisType, KernelInfo, Ops

TWO, THREE = ("CPU", "CPU:1"), ("CPU", "CPU:1", "CPU:2")
FOUR = (*THREE, "CPU:3")
PLACES = [(TWO, None), (TWO, 0), (TWO, 1), (FOUR, 0)]
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}
HALF = {"rtol": 2e-2, "atol": 2e-2}  # terms of a sum in bfloat16 are sent in it

Operation = Callable[..., Tensor]

# Of one tensor of shape (8, 12), which may be split along either axis.
UNARY: dict[str, Operation] = {
    "relu": lambda x: x.relu(),
    "exp": lambda x: x.exp(),
    "tanh": lambda x: x.tanh(),
    "arithmetic": lambda x: (x * 2 + 1) / (x * x + 3) - x,
    "where": lambda x: (x > 0).where(x, x * 0.5),
    "cast": lambda x: x.cast(dtypes.float64).sin().cast(dtypes.float32),
    "with a range": lambda x: x * Tensor.arange(12) + Tensor.arange(8).reshape(8, 1),
    "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0),
    "sum 1": lambda x: x.sum(1, keepdim=True),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(1),
    "std 0": lambda x: x.std(0),
    "max": lambda x: x.max(),
    "max 0": lambda x: x.max(0),
    "min 1": lambda x: x.min(1),
    "prod": lambda x: (x * 0.1 + 1).prod(0),
    "softmax": lambda x: x.softmax(),
    "softmax 0": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(),
    "logsumexp": lambda x: x.logsumexp(0),
    "layernorm": lambda x: x.layernorm(),
    "transpose": lambda x: x.T * 2,
    "permute": lambda x: x.reshape(8, 12, 1).permute(2, 1, 0) + 1,
    "reshape that splits": lambda x: x.reshape(4, 2, 4, 3).exp(),
    "reshape that moves": lambda x: x.reshape(3, 32) * 2,
    "flatten": lambda x: x.flatten().exp(),
    "reshape with ones": lambda x: x.reshape(1, 8, 1, 12).exp(),
    "expand": lambda x: x.reshape(1, 8, 12).expand(3, 8, 12) * 1.5,
    "expand inside": lambda x: (x.reshape(8, 1, 12).expand(8, 5, 12) * 2).sum(1),
    "pad": lambda x: x.pad(((1, 2), (0, 0))).exp(),
    "pad 1": lambda x: x.pad(((0, 0), (2, 1))).exp(),
    "pad ends": lambda x: x.pad(((2, 2), (2, 2)), value=3.0),
    "shrink": lambda x: x.shrink(((0, 4), (0, 12))) * 2,
    "shrink 1": lambda x: x.shrink(((0, 8), (3, 9))).exp(),
    "row": lambda x: x[3] * 2,
    "rows": lambda x: x[2:7],
    "column": lambda x: x[:, 5].exp(),
    "steps": lambda x: x[1::3, ::-2],
    "flip": lambda x: x.flip(0) * x,
    "flip both": lambda x: x.flip((0, 1)),
    "split": lambda x: x.split(4, 0)[1] + x.split(4, 0)[0],
    "chunk": lambda x: x.chunk(3, 1)[2],
    "cat": lambda x: x.cat(x * 2, x + 1, dim=0),
    "cat 1": lambda x: x.cat(x * 2, dim=1),
    "stack": lambda x: x.stack(x * 2),
    "repeat": lambda x: x.repeat(2, 1),
    "roll": lambda x: x.roll(1, 0),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum 1": lambda x: x.cumsum(1),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "gather rows": lambda x: x[Tensor([0, 5, 2], device=x.device)],
    "gather columns": lambda x: x[:, Tensor([[0, 11], [3, 3]], device=x.device)],
    "sort": lambda x: x.sort(1)[0],
    "sort 0": lambda x: x.sort(0)[0],
    "topk": lambda x: x.topk(3, 1)[0],
    "contiguous": lambda x: (x + 1).contiguous() * 2,
    "contiguous_backward": lambda x: (x * 3).contiguous_backward() * 2,
    "detach": lambda x: x * x.detach(),
    "clone": lambda x: x.clone() * 2,
    "maximum": lambda x: x.maximum(0.1),
    "pow": lambda x: (x.abs() + 0.5) ** 1.7,
    "rms": lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(),
    "masked_fill": lambda x: x.masked_fill(x > 0.3, 0.0),
    "one operand reduced": lambda x: x / (x.sum(0, keepdim=True).abs() + 5),
    "both reduced": lambda x: x.sum(0).reshape(1, 12) * x.sum(1).reshape(8, 1),
    "dot with itself": lambda x: x @ x.T,
    "dot transposed": lambda x: x.T @ x,
    "einsum": lambda x: Tensor.einsum("ij,kj->ik", x, x),
    "avg_pool2d": lambda x: x.reshape(8, 1, 4, 3).avg_pool2d(2, 1),
    "max_pool2d": lambda x: x.reshape(8, 1, 4, 3).max_pool2d(2, 1),
    "half": lambda x: (x.half() * 2).sum(0).float(),
    "half sum": lambda x: x.cast(dtypes.bfloat16).sum().float(),
}  # fmt: skip


def values(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def assert_same(
    fxn: Operation, arrays: list[np.ndarray[Any, Any]], places: list[tuple[Any, int | None]], is_half: bool = False
) -> None:
    """Assert that values and gradients of sharded operands are those of operands on one device."""
    alone = [Tensor(a) for a in arrays]
    spread = [Tensor(a).shard(devices, axis).realize() for a, (devices, axis) in zip(arrays, places, strict=True)]
    expected, got = fxn(*alone), fxn(*spread)
    assert got.device == places[0][0] or got.device is None
    assert got.shape == expected.shape
    tolerance = HALF if is_half else TOLERANCE
    np.testing.assert_allclose(got.numpy(), expected.numpy(), **tolerance)
    weights = values(*expected.shape, seed=3)
    wanted = (fxn(*alone) * Tensor(weights)).sum().gradient(*alone)
    sharded = Tensor(weights).shard_like(fxn(*spread))
    found = (fxn(*spread) * sharded).sum().gradient(*spread)
    for x, a, b in zip(spread, found, wanted, strict=True):
        assert a.device in (x.device, None)
        assert a.uop.axis == x.uop.axis or a.device is None, "a gradient lies where its tensor lies"
        np.testing.assert_allclose(a.numpy(), b.numpy(), **tolerance)


@pytest.mark.parametrize("place", [(TWO, 0), (TWO, 1), (THREE, 0), (THREE, 1)], ids=str)
def test_every_method(place: tuple[Any, int]) -> None:
    """Each public method, and first where values are split: nothing that one device has computed is there yet."""
    array = np.sin(np.arange(36, dtype=np.float32)).reshape(6, 6)
    for name in sorted(CALLS.keys() - {"bernoulli", "multinomial"}):
        got, want = (tensors(CALLS[name](x)) for x in (Tensor(array).shard(*place), Tensor(array)))
        assert len(got) == len(want), name
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), **TOLERANCE, err_msg=f"{name} {place}")


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_operation(name: str, place: tuple[Any, int | None]) -> None:
    assert_same(UNARY[name], [values(8, 12)], [place], is_half=name.startswith("half"))


# ---- several operands --------------------------------------------------------------------------------------------

BINARY: dict[str, Operation] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "where": lambda x, y: (x < y).where(x, y * 2),
    "row": lambda x, y: x + y.sum(0, keepdim=True),
    "column": lambda x, y: x * y.mean(1, keepdim=True),
    "matmul": lambda x, y: x @ y.T,
    "matmul transposed": lambda x, y: x.T @ y,
    "cat": lambda x, y: x.cat(y, dim=0),
    "attention": lambda x, y: (x @ y.T / 3).softmax() @ y,
    "sum of both": lambda x, y: (x.sum(0) * y.sum(0)).sum(),
}


@pytest.mark.parametrize("axes", [(a, b) for a in (None, 0, 1) for b in (None, 0, 1)], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_operands_split_alike_and_differently(name: str, axes: tuple[int | None, int | None]) -> None:
    assert_same(BINARY[name], [values(8, 12), values(8, 12, seed=1)], [(TWO, axis) for axis in axes])


@pytest.mark.parametrize("axes", [(0, None), (None, 1), (1, 0), (0, 1), (None, 0), (0, 0), (1, 1)], ids=str)
def test_matmul_by_rows_and_columns(axes: tuple[int | None, int | None]) -> None:
    assert_same(lambda x, w: (x @ w).relu(), [values(8, 16), values(16, 12)], [(FOUR, axis) for axis in axes])


def test_what_stays_local_stays_local() -> None:
    x, w = Tensor.empty(8, 16).shard(TWO, 0), Tensor.empty(16, 12).shard(TWO, None)
    assert (x @ w).uop.axis == 0
    assert (x.shard_like(Tensor.empty(8, 16).shard(TWO, 1)) @ w.shard_like(x)).uop.axis is None
    assert (w.T @ x.T).uop.axis == 1
    assert x.reshape(2, 4, 16).uop.axis == 0
    assert x.reshape(8, 4, 4).permute(2, 0, 1).uop.axis == 1


@pytest.mark.parametrize("place", [(TWO, None), (TWO, 0), (FOUR, 0)], ids=str)
def test_convolution_of_a_split_batch(place: tuple[Any, int | None]) -> None:
    whole = (place[0], None)
    arrays = [values(4, 3, 8, 8), values(6, 3, 3, 3), values(6)]
    assert_same(lambda x, w, b: x.conv2d(w, b, padding=1).relu(), arrays, [place, whole, whole])
    assert_same(lambda x, w, b: x.conv2d(w, b, stride=2), arrays, [place, whole, whole])


def test_convolution_of_split_channels() -> None:
    arrays = [values(4, 4, 8, 8), values(6, 4, 3, 3)]
    assert_same(lambda x, w: x.conv2d(w, padding=1), arrays, [(TWO, None), (TWO, 0)])
    assert_same(lambda x, w: x.conv2d(w, padding=1), arrays, [(TWO, 1), (TWO, 1)])


@pytest.mark.parametrize("axis", [None, 0])
def test_losses(axis: int | None) -> None:
    classes = np.random.default_rng(5).integers(0, 12, 8).astype(np.int32)

    def labels(like: Tensor) -> Tensor:
        return Tensor(classes).shard(like.device, axis) if isinstance(like.device, tuple) else Tensor(classes)

    place = [(TWO, axis)]
    assert_same(lambda x: x.cross_entropy(labels(x)), [values(8, 12)], place)
    assert_same(lambda x: x.sparse_categorical_crossentropy(labels(x), label_smoothing=0.1), [values(8, 12)], place)
    assert_same(lambda x: x.binary_crossentropy_logits((x.detach() > 0).float()), [values(8, 12)], place)
    assert_same(lambda x: x.log_softmax().nll_loss(labels(x)), [values(8, 12)], place)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_embedding(axis: int | None) -> None:
    places = np.random.default_rng(6).integers(0, 20, (4, 6)).astype(np.int32)

    def lookup(table: Tensor) -> Tensor:
        at = Tensor(places).shard(TWO, 0) if isinstance(table.device, tuple) else Tensor(places)
        return table[at]

    assert_same(lookup, [values(20, 8)], [(TWO, axis)])


@pytest.mark.parametrize("axis", [None, 0, 2])
def test_scaled_dot_product_attention(axis: int | None) -> None:
    arrays = [values(4, 2, 6, 8, seed=i) for i in range(3)]
    assert_same(lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True), arrays, [(TWO, axis)] * 3)


# ---- storage -------------------------------------------------------------------------------------------------------


def parts(t: Tensor) -> list[np.ndarray[Any, Any]]:
    """Return what each device holds of a realized tensor, flat."""
    return [buffer.numpy() for buffer in t.uop.base.buffer.bufs]


def test_every_device_holds_its_piece_only() -> None:
    GlobalCounters.reset()
    before = dict(GlobalCounters.mem_used_per_device)
    data = Tensor.empty(1024, 256, device="PYTHON")  # not one of the devices: nothing of it lies on them
    t = data.shard(TWO, 0).realize()
    used = {d: GlobalCounters.mem_used_per_device[d] - before.get(d, 0) for d in TWO}
    assert used == dict.fromkeys(TWO, 512 * 256 * 4)
    assert [(b.device, b.size) for b in t.uop.base.buffer.bufs] == [(d, 512 * 256) for d in TWO]
    more = (t + 1).realize()
    assert [b.size for b in more.uop.base.buffer.bufs] == [512 * 256] * 2


@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_are_in_the_order_of_the_devices(axis: int) -> None:
    array = values(4, 6)
    t = Tensor(array).shard(TWO[::-1], axis).realize()
    assert [b.device for b in t.uop.base.buffer.bufs] == list(TWO[::-1])
    for mine, piece in zip(parts(t), np.split(array, 2, axis), strict=True):
        np.testing.assert_array_equal(mine, piece.ravel())
    np.testing.assert_array_equal(t.numpy(), array)


def test_devices_hold_the_same_bits_of_a_whole_value() -> None:
    x = Tensor(values(4096, 8)).shard(FOUR, 0)
    first, *others = parts(x.sum(0).realize())
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_moving_to_and_from() -> None:
    array = values(4, 6)
    t = Tensor(array).to(TWO)
    assert (t.device, t.uop.axis) == (TWO, None)
    assert Tensor(array, device=TWO).uop.axis is None
    s = Tensor(array).shard(TWO, 1)
    assert s.shard_like(Tensor.empty(4, 6).shard(TWO, 0)).uop.axis == 0
    for moved in (s.to("CPU:1"), s.to("PYTHON:1"), t.to("CPU:1"), s.shard_like(t), t.shard_like(s), s.to(FOUR)):
        np.testing.assert_array_equal(moved.numpy(), array)
    assert s.to(TWO) is s
    assert s.to_("CPU:1").device == "CPU:1"
    flat = Tensor(array).shard_(TWO, axis=-1)
    assert flat.uop.axis == 1
    assert flat.tolist() == array.tolist()
    assert Tensor([5.0]).shard(TWO).item() == 5.0
    assert Tensor(array).shard("CPU:1", 0).device == "CPU:1"
    assert Tensor(array).shard(("CPU:1",), 0).device == "CPU:1"
    assert Tensor.arange(4).shard(TWO, 0).device is None, "what has no device stays without"


@pytest.mark.parametrize(("axis", "dtype"), [(None, dtypes.int32), (0, dtypes.bool), (1, dtypes.uint8)])
def test_other_dtypes(axis: int | None, dtype: Any) -> None:
    array = np.random.default_rng(0).integers(0, 2, (4, 6)).astype(_to_np_dtype(dtype))
    t = Tensor(array).shard(TWO, axis)
    np.testing.assert_array_equal((t == 1).numpy(), array == 1)
    np.testing.assert_array_equal(t.sum(0).numpy(), array.sum(0))
    np.testing.assert_array_equal(t.any(1).numpy(), array.any(1))


@pytest.mark.parametrize("devices", [("PYTHON", "PYTHON:1"), ("CPU:1", "PYTHON:1")], ids=str)
def test_other_devices(devices: tuple[str, ...]) -> None:
    assert_same(lambda x, w: (x @ w).softmax(), [values(4, 6), values(6, 3)], [(devices, 0), (devices, None)])


# ---- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_writes(axis: int | None) -> None:
    array = values(4, 6)
    t = Tensor(array).shard(TWO, axis).realize()

    def write(what: Callable[[Any], None]) -> None:
        what(t)
        what(array)
        assert t.uop.axis == axis
        np.testing.assert_allclose(t.numpy(), array, rtol=1e-6)

    def item(x: Any) -> None:
        x[1, 2] = 5

    def row(x: Any) -> None:
        x[2] = 6

    def column(x: Any) -> None:
        x[:, 4] = 7

    def box(x: Any) -> None:
        x[1:3, 2:5] = x[0:2, 1:4] * 2 if isinstance(x, np.ndarray) else Tensor(array_before[0:2, 1:4] * 2).to(x.device)

    def steps(x: Any) -> None:
        x[::2, ::-3] = 8

    def flat(x: Any) -> None:
        x.reshape(24)[5:16] = 4

    def everything(x: Any) -> None:
        x[:] = 9

    for fill in (item, row, column, box, steps, flat, everything):
        array_before = array.copy()
        write(fill)
    t += 1
    t *= 2
    np.testing.assert_allclose(t.numpy(), (array + 1) * 2, rtol=1e-6)
    t.assign(t.flip(0) + t)
    t.assign(Tensor(array).shard_like(t)).realize()
    np.testing.assert_array_equal(t.numpy(), array)
    t.assign([[1] * 6] * 4)
    assert t.tolist() == [[1] * 6] * 4


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_writes_at_positions(axis: int | None) -> None:
    array = values(4, 6)
    t = Tensor(array).shard(TWO, axis).realize()
    t[Tensor([3, 0]).to(TWO)] = Tensor([[1.0] * 6, [2.0] * 6]).to(TWO)
    array[[3, 0]] = [[1.0], [2.0]]
    np.testing.assert_array_equal(t.numpy(), array)
    t[[1, 2], [5, 0]] = 3.0
    array[[1, 2], [5, 0]] = 3.0
    np.testing.assert_array_equal(t.numpy(), array)
    assert t.uop.axis == axis


def test_a_write_leaves_what_was_read_before() -> None:
    t = Tensor(values(4, 6)).shard(TWO, 0).realize()
    before, pending = t.numpy(), t * 2
    t.assign(t + 1).realize()
    np.testing.assert_array_equal(pending.numpy(), before * 2)
    view = t[:, 1]
    t[:, 1] = 0
    np.testing.assert_array_equal(view.numpy(), np.zeros(4, np.float32))


def test_equal_results_do_not_share_storage() -> None:
    x = Tensor(values(4, 6)).shard(TWO, 0).realize()
    a, b, c = x + 1, x + 1, (x + 1).contiguous()
    Tensor.realize(a, b, c)
    a.assign(a * 0).realize()
    np.testing.assert_array_equal(b.numpy(), values(4, 6) + 1)
    np.testing.assert_array_equal(c.numpy(), values(4, 6) + 1)
    one = x.to("CPU")
    y = Tensor(values(4, 6)).to(TWO).realize()
    two = y.to("CPU").realize()
    two.assign(two + 1).realize()
    np.testing.assert_array_equal(y.numpy(), values(4, 6))
    np.testing.assert_array_equal(one.numpy(), values(4, 6))


# ---- creation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_like(axis: int | None) -> None:
    t = Tensor(values(4, 6)).shard(TWO, axis)
    for made, content in ((t.zeros_like(), 0), (t.ones_like(), 1), (t.full_like(3), 3)):
        assert (made.device, made.uop.axis, made.dtype) == (TWO, axis, t.dtype)
        assert made.tolist() == [[content] * 6] * 4
    assert t.empty_like().realize().uop.axis == axis
    assert t.clone().realize().uop.axis == axis
    assert Tensor.zeros(4, 6, device=TWO).tolist() == [[0] * 6] * 4


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_random_numbers_do_not_depend_on_the_split(axis: int | None) -> None:
    for name in ("rand_like", "randn_like"):
        Tensor.manual_seed(3)
        alone = getattr(Tensor.empty(4, 6), name)().numpy()
        Tensor.manual_seed(3)
        spread = getattr(Tensor.empty(4, 6).shard(TWO, axis), name)()
        assert (spread.device, spread.uop.axis) == (TWO, axis)
        np.testing.assert_array_equal(spread.numpy(), alone)
    with Tensor.train():
        dropped = Tensor.ones(64, 6).shard(TWO, axis).dropout(0.5).numpy()
    assert 0.2 < (dropped == 0).mean() < 0.8


# ---- errors --------------------------------------------------------------------------------------------------------


def test_errors_of_shard() -> None:
    t = Tensor(values(4, 6))
    with pytest.raises(RuntimeError, match="multi axis uneven: 4 devices do not divide axis 1"):
        t.shard(FOUR, 1)
    with pytest.raises(IndexError, match="dim 2 is out of range"):
        t.shard(TWO, 2)
    with pytest.raises(RuntimeError, match="already on several devices"):
        t.shard(TWO, 0).shard(TWO, 0)
    with pytest.raises(RuntimeError, match="weak dtype"):
        (t.cast(dtypes.weakfloat)).shard(TWO, 0)
    with pytest.raises(ModuleNotFoundError, match="no device 'NOSUCH'"):
        t.shard(("CPU", "NOSUCH:1"), 0)
    with pytest.raises(RuntimeError, match="twice"):
        t.shard(("CPU", "CPU:0"), 0)


def test_errors_of_operations() -> None:
    t, s = Tensor(values(4, 6)), Tensor(values(4, 6)).shard(TWO, 0)
    with pytest.raises(RuntimeError, match="same device"):
        t + s
    with pytest.raises(RuntimeError, match="same device"):
        s @ Tensor(values(6, 4)).shard(FOUR)
    with pytest.raises(RuntimeError, match="assign multi axis mismatch, 0 and 1"):
        s.assign(Tensor(values(4, 6)).shard(TWO, 1))
    with pytest.raises(RuntimeError, match="assign device mismatch"):
        s.assign(t)
    with pytest.raises(RuntimeError, match="several devices"):
        s.full_like(1, device="CPU")
    with pytest.raises(RuntimeError, match="several devices"):
        s.rand_like(device="CPU")
    with pytest.raises(ValueError, match="one device"):
        Tensor.rand(4, device=TWO)


# ---- nodes ---------------------------------------------------------------------------------------------------------


def test_methods_of_nodes() -> None:
    u = Tensor.empty(8, 6).shard(TWO, 0).uop
    assert (u.axis, u.shape, u.shard_shape, u.max_shard_shape) == (0, (8, 6), (4, 6), (4, 6))
    assert u.bounds == ((0, 4), (4, 8))
    assert [axis for axis, _ in u.sharding] == [0]
    assert u.sharding[0][1].vmax == 1
    whole = Tensor.empty(8, 6).to(TWO).uop
    assert (whole.axis, whole.sharding, whole.shard_shape) == (None, (), (8, 6))
    with pytest.raises(RuntimeError, match="not split"):
        _ = whole.bounds
    assert whole.unshard(1).shape == (8, 12)
    assert whole.unshard(1).axis == 1
    with pytest.raises(RuntimeError, match="not split yet"):
        u.unshard(1)
    with pytest.raises(RuntimeError, match="several devices"):
        Tensor.empty(2).uop.mselect(0)
    with pytest.raises(IndexError, match="device number 2"):
        u.mselect(2)
    with pytest.raises(RuntimeError, match="do not go together"):
        u.mselect(0).mstack(u.mselect(0))


def test_pieces_as_values_of_their_own() -> None:
    array = values(4, 6)
    u = Tensor(array).shard(TWO, 0).realize().uop
    pieces = [Tensor(u.mselect(i)) for i in range(2)]
    assert [p.device for p in pieces] == list(TWO)
    for piece, expected in zip(pieces, np.split(array, 2), strict=True):
        np.testing.assert_array_equal((piece + 1).numpy(), expected + 1)
    joined = Tensor(pieces[0].uop.mstack(pieces[1].uop).unshard(0))
    np.testing.assert_array_equal(joined.numpy(), array)
    np.testing.assert_allclose(Tensor(u.allreduce(Ops.ADD, TWO)).numpy(), array[:2] + array[2:], rtol=1e-6)
    np.testing.assert_allclose(Tensor(u.allreduce(Ops.MAX, "CPU:1")).numpy(), np.maximum(array[:2], array[2:]))


def test_a_kernel_by_hand_sees_the_piece_of_its_device() -> None:
    def kernel(out: UOp, x: UOp) -> UOp:
        assert x.shape == (2, 6)
        i, j = UOp.range(2, 0), UOp.range(6, 1)
        number = UOp.range(2, -1, AxisType.DEVICE)
        return out[i, j].store(x[i, j] * 2 + number.cast(dtypes.float32)).end(i, j).sink(arg=KernelInfo(name="double"))

    array = values(4, 6)
    x = Tensor(array).shard(TWO, 0)
    out = x.empty_like().custom_kernel(x, fxn=kernel)[0]
    assert out.uop.axis == 0
    np.testing.assert_allclose(out.numpy(), array * 2 + np.array([[0], [0], [1], [1]]), rtol=1e-6)


# ---- random programs -----------------------------------------------------------------------------------------------


def reduced(x: Any, name: str, axis: int) -> Any:
    return getattr(x, name)(axis, **{"keepdim" if isinstance(x, Tensor) else "keepdims": True})


STEPS: list[tuple[str, Callable[[Any, int], Any]]] = [
    ("scale", lambda x, n: x * (n + 1) * 0.25),
    ("shift", lambda x, n: x + n),
    ("transpose", lambda x, n: x.T),
    ("rows", lambda x, n: x[n % 3 :]),
    ("columns", lambda x, n: x[:, : max(1, x.shape[1] - n % 3)]),
    ("backwards", lambda x, n: x[::-1]),
    ("sum", lambda x, n: reduced(x, "sum", n % 2)),
    ("centre", lambda x, n: x - reduced(x, "mean", n % 2)),
    ("grow", lambda x, n: x + reduced(x, "max", n % 2)),
    ("gram", lambda x, n: (x @ x.T) * 0.1),
    ("twice", lambda x, n: x.cat(x, dim=n % 2) if isinstance(x, Tensor) else np.concatenate([x, x], n % 2)),
    ("realize", lambda x, n: x.realize() if isinstance(x, Tensor) else x),
    ("relu", lambda x, n: x.relu() if isinstance(x, Tensor) else np.maximum(x, 0)),
]  # fmt: skip


@given(
    seed=st.integers(0, 99), place=st.sampled_from(PLACES),
    program=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), min_size=1, max_size=6),
)  # fmt: skip
@settings(max_examples=40)
def test_random_programs(seed: int, place: tuple[Any, int | None], program: list[Any]) -> None:
    array = np.random.default_rng(seed).standard_normal((8, 12)).astype(np.float32)
    t, a = Tensor(array).shard(*place), array.astype(np.float64)
    for (_, step), n in program:
        if a.size > 4096 or 0 in a.shape:
            break
        t, a = step(t, n), step(a, n)
    assert t.shape == a.shape
    np.testing.assert_allclose(t.numpy(), a, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(a).max(initial=0)))


# ---- what is made of many operations, or of kernels by hand --------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_decompositions(axis: int | None) -> None:
    array = values(4, 2, 3, 3)
    t = Tensor(array).shard(TWO, axis)
    q, r = t.qr()
    np.testing.assert_allclose((q @ r).numpy(), array, **TOLERANCE)
    np.testing.assert_allclose(t.svd()[1].numpy(), np.linalg.svd(array)[1], **TOLERANCE)
    np.testing.assert_allclose((t.inverse() @ t).numpy(), np.broadcast_to(np.eye(3), array.shape), atol=1e-3)
    if axis == 0:
        assert (q.uop.axis, r.uop.axis) == (0, 0)


@pytest.mark.parametrize("axis", [None, 0])
def test_what_asks_for_values(axis: int | None) -> None:
    array = values(4, 6)
    t = Tensor(array).shard(TWO, axis)
    np.testing.assert_array_equal(t[t > 0].numpy(), array[array > 0])
    np.testing.assert_array_equal((t > 0).nonzero().numpy(), np.argwhere(array > 0))
    assert t.argmax().item() == array.argmax()
    np.testing.assert_array_equal(t.argmin(0).numpy(), array.argmin(0))
    assert set(t.abs().multinomial(2).numpy().ravel()) <= set(range(6))
    picture = array.reshape(4, 1, 2, 3)
    np.testing.assert_allclose(Tensor(picture).shard(TWO, axis).interpolate((4, 6)).numpy(),
                               Tensor(picture).interpolate((4, 6)).numpy(), **TOLERANCE)  # fmt: skip


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_functions(axis: int | None) -> None:
    @function
    def inner(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).relu()

    @function(precompile=True, precompile_backward=True)
    def outer(x: Tensor, w: Tensor) -> Tensor:
        return inner(x, w) * 2

    assert_same(outer, [values(4, 6), values(6, 3)], [(TWO, axis), (TWO, None)])


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sizes_that_are_variables(axis: int | None) -> None:
    array = values(4, 6)
    t = Tensor(array).shard(TWO, axis)
    for n in (1, 3):
        rows, columns = Variable("rows", 1, 4).bind(n), Variable("columns", 1, 6).bind(n)
        np.testing.assert_allclose(t[:rows].sum(0).numpy(), array[:n].sum(0), **TOLERANCE)
        np.testing.assert_allclose(t[:, :columns].sum(1).numpy(), array[:, :n].sum(1), **TOLERANCE)
        np.testing.assert_allclose((t[rows] * 2).numpy(), array[n] * 2, **TOLERANCE)


@pytest.mark.parametrize("axis", [None, 0])
def test_a_result_that_turns_out_constant_is_where_it_was_wanted(axis: int | None) -> None:
    @function
    def first(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y

    x, y = Tensor(values(4, 6)).shard(TWO, axis), Tensor(values(4, 6)).shard(TWO, axis)
    gradient = first(x, y).sum().gradient(y)[0].realize()
    assert gradient.tolist() == [[1.0] * 6] * 4


@pytest.mark.parametrize("devices", [TWO, ("CPU", "CPU:1", "CPU:2")], ids=len)
@pytest.mark.parametrize("size", [66, 96, 288, 6000])
def test_scans_along_the_split_axis(devices: tuple[str, ...], size: int) -> None:
    values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    x = Tensor(values).shard(devices, 0).realize()
    np.testing.assert_allclose(x.cumsum().numpy(), values.astype(np.float64).cumsum(), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(x.cummax()[0].numpy(), np.maximum.accumulate(values))
    lse = np.logaddexp.accumulate(values.astype(np.float64))
    np.testing.assert_allclose(x.logcumsumexp().numpy(), lse, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(x.masked_select(x > 0).numpy(), values[values > 0])
    np.testing.assert_array_equal((x > 1).nonzero().numpy(), np.argwhere(values > 1))


PADDED: list[Operation] = [
    lambda x: x.pad((0, 0, 1, 1))[5], lambda x: x.pad((0, 0, 0, 1))[4], lambda x: x.pad((0, 0, 1, 1))[[5, 5]],
    lambda x: x.pad((2, 1, 1, 1))[[1, 6], 2], lambda x: x.pad((0, 0, 0, 5))[10], lambda x: x.pad((0, 0, 9, 2))[0],
    lambda x: x.pad((0, 0, 0, 1))[6] + x.pad((0, 0, 1, 0))[0],
]  # fmt: skip


@pytest.mark.parametrize("select", PADDED)
def test_one_row_of_what_is_padded_along_the_split_axis(select: Operation) -> None:
    whole = Tensor(np.arange(6, dtype=np.float32).reshape(6, 1))
    wanted = select(whole).numpy()
    for spread in (whole.shard(TWO, 0).clone(), whole.shard(TWO, 0).realize()):
        np.testing.assert_array_equal(select(spread).numpy(), wanted)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_repetitions_of_a_weak_dtype(axis: int | None) -> None:
    array = np.arange(8, dtype=np.int32).reshape(2, 4)
    weak = Tensor(array).shard(TWO, axis) * 1.5
    assert weak.dtype is dtypes.weakfloat
    np.testing.assert_array_equal(weak.repeat(2, 3).numpy(), np.tile(array * np.float32(1.5), (2, 3)))
    np.testing.assert_array_equal(weak.roll(1, 0).repeat(1, 2).numpy(), np.tile(array[::-1] * np.float32(1.5), (1, 2)))
