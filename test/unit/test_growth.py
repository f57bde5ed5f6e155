"""Work that grows with the size of a program and not with its square: nodes and steps are counted, not seconds."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tinygrad
from bench.networks import transformer_gradients, transformer_inputs
from tinygrad import Context, Tensor, TinyJit, Variable, middleware, nn, pending, realizing, repointing
from tinygrad.codegen import to_program_cache
from tinygrad.engine import realize
from tinygrad.live import all_tensors
from tinygrad.schedule import ordering
from tinygrad.uop import rewrite
from tinygrad.uop.ops import UOp, _interned

Program = Callable[[int], list[Tensor]]


def steps_of(function: Any, run: Callable[[], Any]) -> int:
    """Return how many lines of one function run."""
    import sys

    count = 0

    def in_frame(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return in_frame

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        return in_frame if frame.f_code is function.__code__ else None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def draws(n: int) -> list[Tensor]:
    return [Tensor.rand(4) for _ in range(n)]


def writes(n: int) -> list[Tensor]:
    t = Tensor.zeros(64).contiguous().realize()
    for i in range(n):
        t[i % 64] = float(i)
    return [t]


def updates(n: int) -> list[Tensor]:
    t = Tensor.zeros(64).contiguous().realize()
    for i in range(n):
        t[i % 64 : i % 64 + 1] += float(i)
    return [t]


def assigns(n: int) -> list[Tensor]:
    t = Tensor([1.0, 2.0]).clone().realize()
    for _ in range(n):
        t.assign(t + 1)
    return [t]


@pytest.mark.parametrize("program", [draws, writes, updates, assigns])
def test_writes_are_ordered_in_a_walk_along_the_states(program: Program) -> None:
    counts = []
    for n in (12, 12, 24, 48):  # the first one also pays for what earlier tests left pending
        tensors = program(n)
        with Context(SCACHE=0):
            counts.append(
                steps_of(ordering._effects, lambda t=tensors: t[0].schedule_linear(*t[1:]))  # type: ignore[misc]
            )
    counts = counts[1:]
    assert counts[0], "nothing was counted"
    assert counts[2] - counts[1] <= 2.5 * (counts[1] - counts[0]), counts


def test_a_realize_does_not_look_at_tensors_that_are_computed() -> None:
    def realize_one() -> None:
        (Tensor([1.0, 2.0]) + 1).realize()

    realize_one()
    kept, counts = [], []
    for _ in range(3):
        counts.append(steps_of(repointing._Change.apply, realize_one))
        kept += [(Tensor([1.0, 2.0]) + 1).realize() for _ in range(50)]
    assert counts[0], "nothing was counted"
    assert counts[2] <= counts[0] + 10, counts


def test_a_write_walks_no_tensor_that_does_not_read_what_it_overwrites(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal looked_at
            looked_at += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(pending, "_is_stale", counted(pending._is_stale))
    monkeypatch.setattr(realizing, "has_origin", counted(realizing.has_origin))
    state, other = (Tensor([1.0, 2.0, 3.0]).realize() for _ in range(2))
    reader, counts = state * 2, []
    unrelated: list[Tensor] = []
    for _ in range(2):
        looked_at = 0
        state.assign(state + 1).realize()
        counts.append(looked_at)
        reader = state * 2
        unrelated += [(other + i) * 2 for i in range(100)]
    assert counts[0], "nothing was counted"
    assert counts[1] <= counts[0] + 30, counts  # footprints of few nodes share a bit now and then
    assert reader.tolist() == [6.0, 8.0, 10.0]


@pytest.fixture(scope="module")
def deeper_and_deeper() -> list[tuple[int, int, int]]:
    """Calls, different kernels and nodes visited by rewrites, of the gradients of 2, 4 and 8 layers."""
    found = []
    run = rewrite._Rewrite.run
    for layers in (2, 4, 8):
        gradients = transformer_gradients(*transformer_inputs(tinygrad, layers, width=16, length=8), heads=2)
        visited = 0

        def counted(rewriting: Any, root: Any) -> Any:
            nonlocal visited
            try:
                return run(rewriting, root)
            finally:
                visited += len(rewriting.replaced)

        with pytest.MonkeyPatch.context() as patch, Context(SCACHE=0):
            patch.setattr(rewrite._Rewrite, "run", counted)
            linear = gradients[0].schedule_linear(*gradients[1:])
        found.append((len(linear.src), len({call.src[0] for call in linear.src}), visited))
    return found


def test_repeated_layers_cost_one_compile(deeper_and_deeper: list[tuple[int, int, int]]) -> None:
    few, more, most = deeper_and_deeper
    assert most[1] == more[1], "kernels of a layer in the middle are those of every other one"
    assert more[1] <= few[1] + 4, "with two layers there is none in the middle"


@pytest.mark.parametrize("what", [0, 2], ids=["calls", "nodes visited"])
def test_scheduling_grows_in_proportion_to_the_layers(what: int, deeper_and_deeper: list[tuple[int, int, int]]) -> None:
    few, more, most = (counts[what] for counts in deeper_and_deeper)
    assert 0 < most - more <= 2.2 * (more - few)


def training() -> Callable[[], Any]:
    layer = nn.Linear(8, 4)
    optimizer = nn.optim.Adam(nn.state.get_parameters(layer))
    x, y = Tensor.rand(16, 8).realize(), Tensor.randint(16, high=4).realize()

    def step() -> Tensor:
        with Context(TRAINING=1):
            optimizer.zero_grad()
            loss = layer(x).sparse_categorical_crossentropy(y).backward()
            return loss.realize(*optimizer.schedule_step())

    return step


def jitted_training() -> Callable[[], Any]:
    return TinyJit(training())


def new_sizes(n: int) -> None:
    (Tensor.empty(3, 300 + n).softmax() * 2).sum(0).realize()


def new_constants(n: int) -> None:
    (Tensor.empty(7, 19) * (n + 0.125)).exp().sum(1).realize()


def new_gradients(n: int) -> None:
    x = Tensor.empty(5, 40 + n)
    x.gelu().sum().backward()
    assert x.grad is not None
    x.grad.realize()


@pytest.mark.parametrize("program", [new_sizes, new_constants, new_gradients])
def test_a_compiled_kernel_is_kept_without_the_nodes_of_its_program(program: Callable[[int], None]) -> None:
    with Context(CACHELEVEL=0, SCACHE=0):
        program(0)
        gc.collect()
        nodes, kernels = len(_interned), len(to_program_cache)
        for n in range(1, 7):
            program(n)
        gc.collect()
    made = len(to_program_cache) - kernels
    assert made >= 6
    assert len(_interned) - nodes < 80 * made, "a kernel is some 40 nodes, its program hundreds"


def test_launches_of_middleware_that_is_gone_are_let_go() -> None:
    for _ in range(2 * realize._MOST_TABLES):
        with middleware.insert("kernel", lambda graph: graph, name="nothing"):
            realize._table()
    assert len(realize._tables) <= realize._MOST_TABLES


def expressions() -> Callable[[], Any]:
    kept = [Tensor([1.0, 2.0, 3.0]).realize()]

    def step() -> float:
        kept[0] = (kept[0] * 0.5 + 1).realize()
        return float((kept[0] * kept[0]).sum().item())

    return step


def decoding() -> Callable[[], Any]:
    cache, start = Tensor.zeros(64, 8).contiguous().realize(), Variable("start", 0, 62)
    positions, token = itertools.cycle(range(63)), Tensor.rand(1, 8).realize()

    @TinyJit
    def decode(x: Tensor, at: UOp) -> Tensor:
        cache[at : at + 1].assign(x).realize()
        return (cache[: at + 1] * x).realize()

    return lambda: decode(token, start.bind(next(positions)))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("program", "steps"), [(jitted_training, 10_000), (expressions, 10_000), (decoding, 10_000), (training, 600)]
)
def test_memory_does_not_grow_with_the_steps(program: Callable[[], Callable[[], Any]], steps: int) -> None:
    def held() -> tuple[int, int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
        return pages << 12, len(_interned), len(all_tensors)

    step = program()
    for _ in range(steps // 5):
        step()
    before = held()
    for _ in range(steps - steps // 5):
        step()
    after = held()
    assert after[0] - before[0] < 8 << 20  # less than a KiB a step; the allocator of Python keeps some MiB or not
    assert after[1] - before[1] < 100
    assert after[2] - before[2] < 20
