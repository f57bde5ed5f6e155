"""Training over several devices: the same parameters as on one, schedules that are alike, replays."""

from __future__ import annotations

import functools
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Device, GlobalCounters, Tensor, TinyJit, dtypes, nn
from tinygrad.dtype import DType
from tinygrad.engine.realize import launches_of
from tinygrad.schedule import schedule_cache
from tinygrad.uop.ops import Ops, UOp

TWO, FOUR = ("CPU", "CPU:1"), ("CPU", "CPU:1", "CPU:2", "CPU:3")
NULLS = tuple(f"NULL:{i}" for i in range(1, 5))


class Net:
    """A small network with all that is special in training: convolution, batch statistics, a linear layer."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm(4)
        self.hidden = nn.Linear(4 * 9, 16)
        self.out = nn.Linear(16, 5)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x).relu()).max_pool2d(2)
        return self.out(self.hidden(x.flatten(1)).layernorm().relu())


def batches() -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(1)
    for _ in range(4):
        yield rng.standard_normal((8, 1, 8, 8)).astype(np.float32), rng.integers(0, 5, 8).astype(np.int32)


def trained(optimizer: Callable[[list[Tensor]], nn.optim.Optimizer], devices: Any, jit: bool = False) -> dict[str, Any]:
    Tensor.manual_seed(7)
    net = Net()
    if devices:
        for t in nn.state.get_state_dict(net).values():
            t.shard_(devices)
    opt = optimizer(nn.state.get_parameters(net))

    def step(x: Tensor, y: Tensor) -> Tensor:
        with Context(TRAINING=1):
            opt.zero_grad()
            loss = net(x).cross_entropy(y).backward()
            opt.step()
            return loss.realize()

    run = TinyJit(step) if jit else step
    losses = []
    for x, y in batches():
        pair = Tensor(x), Tensor(y)
        if devices:
            pair = pair[0].shard(devices, 0), pair[1].shard(devices, 0)
        losses.append(run(pair[0].realize(), pair[1].realize()).item())
    return {"loss": np.array(losses)} | {k: t.numpy() for k, t in nn.state.get_state_dict(net).items()}


OPTIMIZERS: dict[str, Callable[[list[Tensor]], nn.optim.Optimizer]] = {
    "SGD": lambda p: nn.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: nn.optim.Adam(p, lr=0.01),
    "fused AdamW": lambda p: nn.optim.AdamW(p, lr=0.01, fused=True),
    "LAMB": lambda p: nn.optim.LAMB(p, lr=0.01),
}


@functools.cache
def trained_alone(name: str) -> dict[str, Any]:
    return trained(OPTIMIZERS[name], None)


# How many devices exchange gradients and what a replay does with an optimizer do not depend on which one it is.
@pytest.mark.parametrize(
    ("name", "devices", "jit"),
    [*((name, TWO, False) for name in OPTIMIZERS), ("Adam", TWO, True), ("SGD", FOUR, False), ("Adam", FOUR, True)],
    ids=lambda x: str(len(x)) if isinstance(x, tuple) else str(x),
)
def test_data_parallel_training_is_training(name: str, devices: tuple[str, ...], jit: bool) -> None:
    alone, spread = trained_alone(name), trained(OPTIMIZERS[name], devices, jit)
    assert alone.keys() == spread.keys()
    for key in alone:
        np.testing.assert_allclose(spread[key], alone[key], rtol=2e-3, atol=2e-4, err_msg=key)


def test_parameters_stay_the_same_on_all_devices() -> None:
    Tensor.manual_seed(1)
    layer = nn.Linear(6, 3)
    for t in nn.state.get_parameters(layer):
        t.shard_(FOUR)
    opt = nn.optim.Adam(nn.state.get_parameters(layer), lr=0.1)
    with Context(TRAINING=1):
        for i in range(3):
            opt.zero_grad()
            layer(Tensor(np.full((8, 6), i + 1, np.float32)).shard(FOUR, 0)).square().mean().backward()
            opt.step()
    for t in nn.state.get_parameters(layer):
        first, *others = (b.numpy() for b in t.uop.base.buffer.bufs)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_tensor_parallel_layers() -> None:
    """The first layer is split by columns, the second by rows: one combination per pass."""
    rng = np.random.default_rng(2)
    w1, w2, x = (rng.standard_normal(s).astype(np.float32) for s in ((6, 16), (16, 4), (8, 6)))

    def losses(place: Callable[[Tensor, int | None], Tensor]) -> list[np.ndarray[Any, Any]]:
        a, b, inputs = place(Tensor(w1), 1), place(Tensor(w2), 0), place(Tensor(x), None)
        opt = nn.optim.Adam([a, b], lr=0.05)
        with Context(TRAINING=1):
            for _ in range(3):
                opt.zero_grad()
                loss = ((inputs @ a).relu() @ b).square().mean().backward()
                opt.step()
        for state, param in zip(opt.m, (a, b), strict=True):
            assert state.uop.axis == param.uop.axis, "the state of the optimizer is split as its parameter is"
        return [loss.numpy(), a.numpy(), b.numpy()]

    alone = losses(lambda t, axis: t)
    for got, expected in zip(losses(lambda t, axis: t.shard(TWO, axis)), alone, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_batch_statistics_are_those_of_the_whole_batch_unless_kept_apart() -> None:
    x = np.random.default_rng(3).standard_normal((8, 3, 4, 4)).astype(np.float32)
    x[4:] += 5  # the halves differ
    norm = nn.BatchNorm(3)
    for t in nn.state.get_state_dict(norm).values():
        t.shard_(TWO)
    with Context(TRAINING=1):
        together = norm(Tensor(x).shard(TWO, 0)).numpy()
    expected = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(together, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * x.mean((0, 2, 3)), rtol=1e-4)
    # One device's half at a time: a reshape that splits the axis keeps every half where it is, so nothing is exchanged.
    halves = Tensor(x).shard(TWO, 0).realize().reshape(2, 4, 3, 4, 4)

    def normalized() -> Tensor:
        centred = halves - halves.mean((1, 3, 4), keepdim=True)
        return centred * (centred.square().mean((1, 3, 4), keepdim=True) + 1e-5).rsqrt()

    assert not copies(normalized().schedule_linear())
    y = x.reshape(2, 4, 3, 4, 4)
    expected = (y - y.mean((1, 3, 4), keepdims=True)) / np.sqrt(y.var((1, 3, 4), keepdims=True) + 1e-5)
    np.testing.assert_allclose(normalized().numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("stats_axis", [None, 0])
def test_running_statistics_stay_where_they_are(axis: int | None, stats_axis: int | None) -> None:
    x = np.random.default_rng(4).standard_normal((6, 4, 3)).astype(np.float32)
    alone, norm = nn.BatchNorm(4), nn.BatchNorm(4)
    for t in nn.state.get_state_dict(norm).values():
        t.shard_(TWO, stats_axis if t.ndim else None)
    with Context(TRAINING=1):
        expected, found = alone(Tensor(x)), norm(Tensor(x).shard(TWO, axis))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    for name in ("running_mean", "running_var"):
        kept = getattr(norm, name)
        assert kept.uop.axis == stats_axis
        np.testing.assert_allclose(kept.numpy(), getattr(alone, name).numpy(), rtol=1e-4, atol=1e-6)


def test_state_dicts() -> None:
    Tensor.manual_seed(5)
    alone, spread = nn.Linear(8, 4), nn.Linear(8, 4)
    spread.weight.shard_(TWO, 1)
    spread.bias.shard_(TWO)
    nn.state.load_state_dict(spread, nn.state.get_state_dict(alone), verbose=False)
    assert (spread.weight.device, spread.weight.uop.axis, spread.bias.uop.axis) == (TWO, 1, None)
    np.testing.assert_array_equal(spread.weight.numpy(), alone.weight.numpy())
    nn.state.load_state_dict(alone, nn.state.get_state_dict(spread), verbose=False)
    assert alone.weight.device == Device.DEFAULT
    x = np.ones((2, 8), np.float32)
    np.testing.assert_allclose(spread(Tensor(x).to(TWO)).numpy(), alone(Tensor(x)).numpy(), rtol=1e-5)


def test_safe_save_of_split_tensors(tmp_path: Any) -> None:
    t = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3)).shard(TWO, 0)
    nn.state.safe_save({"t": t}, str(tmp_path / "t.safetensors"))
    assert nn.state.safe_load(str(tmp_path / "t.safetensors"))["t"].tolist() == t.tolist()


def test_pickle_of_split_tensors() -> None:
    t = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3)).shard(TWO, 0).realize()
    back = pickle.loads(pickle.dumps(t))
    assert (back.device, back.uop.axis, back.tolist()) == (TWO, 0, t.tolist())
    back.assign(back + 1).realize()
    assert back.tolist() == (t + 1).tolist()
    assert t[0, 0].item() == 0


# ---- replays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_replays(axis: int | None) -> None:
    w = Tensor(np.arange(24, dtype=np.float32).reshape(4, 6)).shard(TWO, axis).realize()
    count = Tensor.zeros(1).shard(TWO).realize()

    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count.assign(count + 1)
        return (x * w).sum(0), (x + w).contiguous(), count

    kept = []
    for i in range(5):
        x = Tensor(np.full((4, 6), i, np.float32)).shard(TWO, axis).realize()
        total, both, counted = step(x)
        assert (both.device, both.uop.axis) == (TWO, axis)
        np.testing.assert_allclose(total.numpy(), i * w.numpy().sum(0))
        assert counted.item() == i + 1
        kept.append(both)
    for i, both in enumerate(kept):
        np.testing.assert_array_equal(both.numpy(), w.numpy() + i)
    assert step.captured is not None
    assert {call.src[1].device for call in step.captured.linear.src} == set(TWO)


def test_a_result_can_be_the_next_input() -> None:
    step = TinyJit(lambda x: (x * 2 + 1).realize())
    x, expected = Tensor(np.ones((4, 2), np.float32)).shard(TWO, 0).realize(), np.ones((4, 2), np.float32)
    for _ in range(6):
        x, expected = step(x), expected * 2 + 1
    np.testing.assert_array_equal(x.numpy(), expected)


def test_another_split_is_another_input() -> None:
    step = TinyJit(lambda x: (x + 1).realize())
    for _ in range(3):
        step(Tensor.ones(4, 2).shard(TWO, 0).realize())
    with pytest.raises(Exception, match="split along axis 0 in the capture and is"):
        step(Tensor.ones(4, 2).shard(TWO, 1).realize())
    with pytest.raises(Exception, match="args mismatch"):
        step(Tensor.ones(4, 2).realize())


# ---- schedules -----------------------------------------------------------------------------------------------------


def copies(linear: UOp) -> list[UOp]:
    return [call for call in linear.src if call.src[0].op is Ops.COPY]


def scheduled(t: Tensor) -> tuple[int, int]:
    """Return how many kernels and copies compute a tensor."""
    linear = t.schedule_linear()
    return len(linear.src) - len(copies(linear)), len(copies(linear))


def stored(*shape: int, devices: tuple[str, ...] = NULLS, axis: int | None = 0) -> Tensor:
    return Tensor.empty(*shape, device=devices[0]).shard(devices, axis).empty_like().realize()


def test_the_kernel_of_every_device_is_the_same_program() -> None:
    x, w = stored(8, 16, devices=FOUR), stored(16, 4, devices=FOUR, axis=None)
    linear = (x @ w).relu().schedule_linear()
    assert len(linear.src) == 4
    assert len({call.src[0] for call in linear.src}) == 1
    assert [call.src[1].device for call in linear.src] == list(FOUR)
    assert len({launch.program for launch in launches_of(linear)}) == 1


def test_equal_graphs_are_scheduled_once() -> None:
    for i in range(3):
        before = len(schedule_cache)
        (stored(8, 16) * 2 + stored(8, 16)).sum(0).realize()
        assert i == 0 or len(schedule_cache) == before


@pytest.mark.parametrize(("ring", "all2all", "expected"), [(0, 0, 12), (1, 0, 12), (2, 0, 24), (1, 2, 24)])
def test_copies_of_a_combination(ring: int, all2all: int, expected: int) -> None:
    """Each of n devices sends all of its value to n - 1 others, or a chunk of it in each of 2 (n - 1) steps."""
    x = stored(4, 1000)
    with Context(RING=ring, ALL2ALL=all2all):
        linear = x.sum(0).schedule_linear()
    sent = [call.src[1].arg.shape[0] for call in copies(linear)]
    assert len(sent) == expected
    assert sum(sent) == (12_000 if expected == 12 else 24 * 250)


def test_a_large_combination_takes_the_ring() -> None:
    assert scheduled(stored(4, 255_999).sum(0))[1] == 12
    assert scheduled(stored(4, 256_000).sum(0))[1] == 24
    assert scheduled(stored(2, 256_000, devices=NULLS[:2]).sum(0))[1] == 2, "two devices need no ring"


@pytest.mark.parametrize("switches", [{"RING": 2}, {"ALL2ALL": 2}, {"RING": 0}], ids=str)
@pytest.mark.parametrize("size", [4, 5, 7, 1000])
def test_all_ways_to_combine_agree(switches: dict[str, int], size: int) -> None:
    x = np.random.default_rng(size).standard_normal((8, size)).astype(np.float32)
    with Context(**switches):
        for devices in (TWO, FOUR):
            t = Tensor(x).shard(devices, 0)
            total = t.sum(0).realize()
            np.testing.assert_allclose(total.numpy(), x.sum(0), rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(t.max(0).numpy(), x.max(0))
            first, *others = (b.numpy() for b in total.uop.base.buffer.bufs)
            for other in others:
                np.testing.assert_array_equal(first, other)


HALF_SUMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, w: x.sum(1),
    "sum whose terms overflow": lambda x, w: (x.abs() * (Tensor.arange(64) < 32).where(6, -6)).sum(1),
    "mean": lambda x, w: x.mean(1),
    "var": lambda x, w: (x * 0.01).var(1),
    "std": lambda x, w: x.std(1),
    "norm": lambda x, w: x.norm(2, 1),
    "prod": lambda x, w: (x * 0.001).prod(1),
    "max": lambda x, w: x.max(1),
    "softmax": lambda x, w: (x * 0.001).softmax(1),
    "logsumexp": lambda x, w: (x * 0.001).logsumexp(1),
    "layernorm": lambda x, w: x.layernorm(),
    "matmul": lambda x, w: x @ w,
    "gradient": lambda x, w: ((x * 0.001) @ w).square().mean().gradient(w)[0],
}


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", HALF_SUMS)
def test_half_precision_over_devices_is_that_of_one(name: str, dtype: DType) -> None:
    """Partial sums are added up in float32: only the order differs, which a rounding to half hardly ever shows."""
    rng = np.random.default_rng(0)
    x = Tensor((rng.standard_normal((8, 64)) * 1000).astype(np.float32)).cast(dtype).realize()
    w = Tensor(rng.standard_normal((64, 8)).astype(np.float32)).cast(dtype).realize()
    whole = HALF_SUMS[name](x, w)
    over_devices = HALF_SUMS[name](x.shard(FOUR, 1).realize(), w.shard(FOUR, 0).realize())
    assert over_devices.dtype is whole.dtype
    expected = whole.float().numpy()
    ulp = 2.0**-7 if dtype is dtypes.bfloat16 else 2.0**-10
    np.testing.assert_allclose(over_devices.float().numpy(), expected, rtol=ulp, atol=1e-30)
    assert np.isfinite(expected).all()


def test_what_is_sent_is_as_narrow_as_the_result_if_asked_for() -> None:
    x = stored(4, 1000).half()

    def widths() -> Counter[int]:
        return Counter(call.src[1].dtype.itemsize for call in copies(x.sum(0).half().schedule_linear()))

    assert widths() == {4: 12}
    array = np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float16)
    with Context(ALLREDUCE_CAST=1):
        assert widths() == {2: 12}
        got = Tensor(array).shard(TWO, 0).sum(0).half().numpy()
    np.testing.assert_allclose(got, array.astype(np.float32).sum(0), rtol=4e-3, atol=4e-3)


def test_what_moves_nothing_copies_nothing() -> None:
    x, w = stored(8, 16), stored(16, 4, axis=None)
    for t in (x + 1, x * x.sum(1, keepdim=True), x @ w, x.softmax(), x.reshape(4, 2, 16).sum(1), x.T, x[:, 3:7] + 1,
              x + Tensor.arange(16), w * 2):  # fmt: skip
        assert scheduled(t.contiguous())[1] == 0
    assert scheduled(x[2:4].contiguous())[1] == 3, "one piece is sent to the three devices that lack it"
    assert scheduled(x.to(NULLS[0]))[1] == 3


def test_sharding_sends_every_piece_once() -> None:
    x = Tensor.empty(8, 16, device="NULL").realize()
    linear = x.shard(NULLS, 0).schedule_linear()
    assert [call.src[1].arg.shape[0] for call in linear.src] == [32] * 4
    assert len(copies(linear)) == 4
    assert [call.src[1].arg.shape[0] for call in x.to(NULLS).schedule_linear().src] == [128] * 4


def test_a_step_over_devices_has_the_kernels_of_one_device_each() -> None:
    """A training step on n devices has n times the kernels of one, and the combination of each gradient."""

    def step(devices: tuple[str, ...]) -> tuple[int, int]:
        x = stored(8, 16, devices=devices) if len(devices) > 1 else Tensor.empty(8, 16, device=devices[0])
        w = Tensor.empty(16, 4, device=devices[0])
        w = w.shard(devices) if len(devices) > 1 else w
        w.realize()
        (grad,) = (x @ w).relu().square().sum().gradient(w)
        return scheduled(grad.contiguous())

    (kernels, none), (two_kernels, sent) = step(NULLS[:1]), step(NULLS[:2])
    assert none == 0
    assert sent == 2
    assert two_kernels == 2 * (kernels + 1), "and one kernel each to add what was sent"


def test_counters_count_all_devices() -> None:
    x = Tensor.ones(8, 16).shard(TWO, 0).realize()
    GlobalCounters.reset()
    (x + 1).realize()
    assert GlobalCounters.kernel_count == 2
    assert dtypes.float32.itemsize * 8 * 16 * 2 == GlobalCounters.global_mem
