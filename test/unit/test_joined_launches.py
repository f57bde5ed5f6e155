"""Kernels that a thread runs one after the other without waiting: which bytes iterations touch, groups, values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinygrad.codegen.pipeline as pipeline
import tinygrad.engine.graph as graph
from tinygrad import Context, Device, Tensor, TinyJit, dtypes
from tinygrad.engine.joining import Access, join_launches
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

needs_threads = pytest.mark.skipif(Device.DEFAULT != "CPU", reason="launch lists with worker threads are the CPU's")

# ---- which bytes an iteration touches ----


def touched(index: UOp, ranges: list[UOp]) -> np.ndarray:
    """Return the least and largest element that an access touches in each iteration of the first range."""
    names = {r.render(): i for i, r in enumerate(ranges)}
    values: dict[str, Any] = {"max": np.maximum}
    for r in ranges:
        shape = [1] * len(ranges)
        shape[names[r.render()]] = -1
        values[r.render()] = np.arange(r.vmax + 1).reshape(shape)
    grid = [r.vmax + 1 for r in ranges]
    at = np.broadcast_to(eval(index.src[1].render(), values), grid)
    # Loops that are shorter in the last of their blocks end where others say.
    ends = [eval(r.render(), values) < eval(r.src[0].render(), values) for r in ranges if r.src[0].op is not Ops.CONST]
    for condition in (*(eval(gate.render(), values) for gate in index.src[2:]), *ends):
        allowed = np.broadcast_to(condition, grid)
        at = np.ma.masked_array(at, np.ma.getmaskarray(at) | ~allowed)
    at = at.reshape(grid[0], -1)
    return np.stack([at.min(1), at.max(1)], 1)


def kernels_of(make: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch) -> list[tuple[UOp, tuple[int, ...], bool]]:
    """Return the optimised kernels of an expression that have a THREAD loop, and what is said of their buffers."""
    found = []
    original = pipeline.pieces

    def watch(sink: UOp, buffers: list[UOp]) -> tuple[tuple[int, ...], bool]:
        said = original(sink, buffers)
        found.append((sink, *said))
        return said

    monkeypatch.setattr(pipeline, "pieces", watch)
    with Context(NUM_CPU_THREADS=2, CACHELEVEL=0):
        for call in make().schedule_linear().src:
            if call.src[0].op is Ops.SINK:
                pipeline.lower_to_source(call.src[0], Device["CPU"].renderer)
    return [kernel for kernel in found if kernel[1]]


def empty(*shape: int, dtype: Any = dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


EXPRESSIONS: dict[str, Callable[[], Tensor]] = {
    "product": lambda: empty(128, 96) @ empty(96, 80),
    "square product": lambda: empty(128, 128) @ empty(128, 128),
    "square product of odd size": lambda: empty(131, 131) @ empty(131, 131),
    "product of odd sizes": lambda: empty(131, 67) @ empty(67, 129),
    "transposed factor": lambda: empty(128, 128).T @ empty(128, 128),
    "transposed result": lambda: (empty(128, 128) @ empty(128, 128)).T.contiguous(),
    "elementwise": lambda: (empty(300, 400) * 2 + 1).relu(),
    "bytes": lambda: empty(300, 4000, dtype=dtypes.uint8) + 1,
    "padded": lambda: empty(200, 301).pad(((1, 2), (3, 0))).contiguous(),
    "shifted": lambda: empty(100_000)[1:] - empty(100_000)[:-1],
    "row sums": lambda: empty(400, 700).sum(1),
    "column sums": lambda: empty(700, 400).sum(0),
    "softmax": lambda: empty(400, 300).softmax(),
    "bytes with bytes": lambda: (empty(128, 256, dtype=dtypes.uint8) @ empty(256, 128, dtype=dtypes.int8)).cast(
        "int32"
    ),
    "halves": lambda: empty(128, 256, dtype=dtypes.bfloat16) @ empty(256, 128, dtype=dtypes.bfloat16),
    "gathered": lambda: empty(300, 400)[empty(200, dtype=dtypes.int32)],
    "flipped": lambda: empty(300, 400).flip(0).contiguous(),
    "convolution": lambda: empty(8, 16, 20, 20).conv2d(empty(16, 16, 3, 3), padding=1),
    "batched product": lambda: empty(16, 32, 24) @ empty(16, 24, 40),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_iterations_touch_only_what_is_theirs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for sink, sizes, overlaps in kernels_of(EXPRESSIONS[name], monkeypatch):
        nodes = sink.toposort()
        thread = next(u for u in nodes if u.op is Ops.RANGE and u.arg[-1] is AxisType.THREAD)
        for index in (u for u in nodes if u.op is Ops.INDEX and u.src[0].op is Ops.PARAM):
            buffer = index.src[0]
            size = (
                sizes[buffer.arg.slot] // buffer.dtype.itemsize
            )  # words of a buffer of smaller numbers are a PARAM, too
            if not size:
                continue
            others = [u for u in index.src[1].toposort() if u.op is Ops.RANGE and u is not thread]
            elements = touched(index, [thread, *others])
            first = np.arange(len(elements)) * size
            assert (elements[:, 1] < first + size).all()
            assert (elements[:-1, 0] >= first[:-1]).all()
            assert elements[-1, 0] >= first[-1] - size * overlaps


def test_pieces_of_known_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(name: str) -> list[tuple[tuple[int, ...], bool]]:
        return [kernel[1:] for kernel in kernels_of(EXPRESSIONS[name], monkeypatch)]

    for name in ("square product", "square product of odd size"):
        [(sizes, _)] = said(name)
        assert sizes[0] == sizes[1] > 0  # as many rows of the left factor as of the result
        assert sizes[2] == 0
    assert all(size == sizes[0] > 0 for sizes, _ in said("elementwise") for size in sizes)
    assert all(sizes[1] == 0 for sizes, _ in said("flipped"))
    for sizes, _ in said("gathered"):
        assert sum(size == 0 for size in sizes) >= 1


# ---- groups ----

X, Y, Z, W = "xyzw"


def access(storage: str, piece: int, written: bool = False, offset: int | None = 0, nbytes: int = 4096) -> Access:
    return Access(storage, offset, nbytes, written, piece)


def product(out: str, x: str, n: int = 8, piece: int = 512) -> tuple[int, list[Access]]:
    return n, [access(out, piece, written=True), access(x, piece), access(W, 0)]


GROUPS: dict[str, tuple[list[tuple[int | None, list[Access]]], list[int]]] = {
    "none": ([], []),
    "one": ([product(Y, X)], [1]),
    "chain": ([product(Y, X), product(Z, Y), product(X, Z)], [3]),
    "storage used again": ([product(Y, X), product(Z, Y), product(Y, Z), product(Z, Y)], [4]),
    "independent": ([product(Y, X), product(Z, X)], [2]),
    "other numbers of iterations": ([product(Y, X), product(Z, Y, n=4, piece=1024)], [1, 1]),
    "other pieces": ([product(Y, X), product(Z, Y, piece=256)], [1, 1]),
    "unknown iterations": ([(None, product(Y, X)[1]), (None, product(Z, Y)[1])], [1, 1]),
    "one iteration": ([product(Y, X, n=1), product(Z, Y, n=1)], [1, 1]),
    "all of the result is read": ([product(Y, X), (8, [access(Z, 512, True), access(Y, 0)])], [1, 1]),
    "all of the operand is written": ([product(Y, X), (8, [access(X, 0, True)])], [1, 1]),
    "what all read is written": ([product(Y, X), (8, [access(W, 512, True)])], [1, 1]),
    "an earlier launch conflicts": ([product(Y, X), product(Z, X), (8, [access(X, 0, True)])], [2, 1]),
    "shifted storage": ([product(Y, X), (8, [access(Y, 512, True, offset=64)])], [1, 1]),
    "unknown place": ([product(Y, X), (8, [access(Y, 512, True, offset=None)])], [1, 1]),
    "unknown places that are read": (
        [product(Y, X), (8, [access(X, 512, offset=None), access(W, 0, offset=None)])],
        [2],
    ),
    "other parts of a storage": (
        [product(Y, X), (8, [access(Y, 256, True, offset=4096)]), (8, [access(Y, 0, False, offset=8192)])],
        [3],
    ),
    "what only reads is passed": ([product(Y, X), (8, [access(Y, 0)]), product(Z, Y), product(X, Z)], [1, 3]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name: str) -> None:
    launches, want = GROUPS[name]
    assert join_launches(launches, most_shared=1 << 20) == want


def test_groups_share_no_more_than_the_cache_holds() -> None:
    launches = [(8, [access(a, 512, True), access(b, 512), access(f"w{a}", 0)]) for a, b in ("yx", "zy", "xz", "yx")]
    assert join_launches(launches, most_shared=2 * 4096) == [2, 2]
    assert join_launches(launches, most_shared=3 * 4096) == [4]  # the last one reads what the first one reads
    assert join_launches(launches, most_shared=0) == [1, 1, 1, 1]


# ---- values ----

STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda x, w: x @ w,
    "product and relu": lambda x, w: (x @ w).relu(),
    "transposed product": lambda x, w: (x @ w).T,
    "product of the transpose": lambda x, w: x.T @ w,
    "left product": lambda x, w: w @ x,
    "elementwise": lambda x, w: (x * 2 + w).contiguous(),
    "shifted": lambda x, w: (x.pad(((1, 0), None))[:-1] + x).contiguous(),
    "softmax": lambda x, w: x.softmax().contiguous(),
    "row sums": lambda x, w: (x + x.sum(1, keepdim=True)).contiguous(),
    "column sums": lambda x, w: (x - x.sum(0)).contiguous(),
}


def groups_of(function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []

    def watch(*args: Any) -> list[int]:
        found.extend(join_launches(*args))
        return join_launches(*args)

    with monkeypatch.context() as patch:
        patch.setattr(graph, "join_launches", watch)
        function()
    return found


@needs_threads
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_replays_have_the_same_bits(seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.choice([64, 96, 128, 131]))
    names = [str(name) for name in rng.choice([*STEPS, *["product"] * len(STEPS)], 12)]
    x = Tensor(rng.standard_normal((n, n), dtype=np.float32)).realize()
    w = Tensor(rng.standard_normal((n, n), dtype=np.float32) / n).realize()

    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        halfway = x
        for i, name in enumerate(names):
            x = STEPS[name](x, w).contiguous()
            halfway = x if i == 5 else halfway
        return [x.realize(), halfway.realize()]

    with Context(NUM_CPU_THREADS=threads):
        with Context(GRAPH=0):
            alone = TinyJit(program)
            want = [[t.numpy() for t in alone(x, w)] for _ in range(3)][-1]
        joined = TinyJit(program)
        for _ in range(25):
            for got, expected in zip(joined(x, w), want, strict=True):
                np.testing.assert_array_equal(got.numpy(), expected, err_msg=str(names))


@needs_threads
@pytest.mark.parametrize("n", [128, 131])
def test_a_chain_of_products_is_one_group(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    b = np.random.default_rng(1).standard_normal((n, n), dtype=np.float32) / n

    def chain(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(10):
            x = x @ w
        return x.realize()

    function = TinyJit(chain)
    x, w = Tensor(a).realize(), Tensor(b).realize()
    with Context(NUM_CPU_THREADS=2):
        assert groups_of(lambda: [function(x, w) for _ in range(3)], monkeypatch) == [10]
        want = a.astype(np.float64) @ np.linalg.matrix_power(b.astype(np.float64), 10)
        for _ in range(50):
            np.testing.assert_allclose(function(x, w).numpy(), want, atol=1e-5 * abs(want).max())


@needs_threads
def test_written_inputs_are_never_taken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two inputs may be the same memory in a later call, so what writes one waits for what reads the other."""

    def step(x: Tensor, y: Tensor, w: Tensor) -> None:
        z = (y @ w).contiguous()
        x.assign(z + 1).realize()

    function = TinyJit(step)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((128, 128), dtype=np.float32)
    with Context(NUM_CPU_THREADS=2):
        for _ in range(8):
            a = rng.standard_normal((128, 128), dtype=np.float32)
            x, y = Tensor.zeros(128, 128).contiguous().realize(), Tensor(a).realize()
            function(x, y, Tensor(w).realize())
            np.testing.assert_allclose(x.numpy(), a @ w + 1, atol=1e-4)
