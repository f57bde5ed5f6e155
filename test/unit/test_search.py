"""BEAM: what the search tries, measures, keeps on disk and survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygrad.codegen.opt.policy as policy_module
import tinygrad.codegen.opt.search as search_module
from test.helpers_ast import at, kernel, loop, param, red, run_program, store
from tinygrad import Tensor, TinyJit, Variable, diskcache, nn
from tinygrad.codegen import to_program, to_program_cache
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.measure import Measurement
from tinygrad.codegen.opt.policy import automatic
from tinygrad.codegen.opt.search import beam_search
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.device import Device
from tinygrad.helpers import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def normal(*shape: int) -> np.ndarray:
    """Return reproducible noise."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def matmul_sink(n: int) -> UOp:
    """Return an n by n matmul."""
    i, j, r = loop(n, 0), loop(n, 1), red(n, 2)
    product = at(param(1, n * n), i * n + r) * at(param(2, n * n), r * n + j)
    return kernel(store(param(0, n * n), i * n + j, product.reduce(r, arg=Ops.ADD), i, j))


def test_search_finds_the_fastest_and_measures_it_again() -> None:
    sink, renderer = matmul_sink(32), Device["CPU"].renderer
    policy = automatic(simplify_kernel(sink), renderer)
    timed: dict[tuple[Opt, ...], list[float]] = {}

    def measure(steps: tuple[Opt, ...], limit: float) -> float:
        # A clock that favours copies and refuses lanes.
        upcasts = sum(s.op is OptOps.UPCAST for s in steps)
        time = float("inf") if any(s.op is OptOps.VECTOR for s in steps) else 1.0 / (1 + min(upcasts, 2))
        timed.setdefault(steps, []).append(time)
        return time

    start = tuple(policy.applied)
    with Context(IGNORE_BEAM_CACHE=1, CACHELEVEL=0):
        best = beam_search(policy.sink, renderer, start, 2, measure)
    assert timed[best][0] == min(times[0] for times in timed.values()) == 1 / 3
    assert {steps for steps, times in timed.items() if len(times) > 1} == {best, start}


@pytest.mark.parametrize("start_is_slow", [False, True])
def test_search_is_not_led_astray_by_a_lucky_measurement(start_is_slow: bool) -> None:
    """Whatever a candidate took at first, the policy's steps stay unless it is faster beside them."""
    sink, renderer = matmul_sink(32), Device["CPU"].renderer
    policy = automatic(simplify_kernel(sink), renderer)
    start, seen = tuple(policy.applied), set()

    def measure(steps: tuple[Opt, ...], limit: float) -> float:
        lucky = steps not in seen and steps != start
        seen.add(steps)
        return 0.5 if lucky else 2.0 if steps == start and start_is_slow else 1.0

    with Context(IGNORE_BEAM_CACHE=1, CACHELEVEL=0):
        best = beam_search(policy.sink, renderer, start, 2, measure)
    assert (best != start) == start_is_slow


@pytest.fixture
def beam_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that this test makes are kept in a file of its own."""
    monkeypatch.setattr(diskcache, "CACHEDB", str(tmp_path / "cache.db"))


@pytest.mark.usefixtures("beam_cache")
@pytest.mark.parametrize("kept", [None, 5, ("a",), [], (Opt(OptOps.UPCAST, 99, 3),), (Opt(OptOps.THREAD, None, 0),)])
def test_what_does_not_fit_is_searched_for_again(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, renderer = matmul_sink(16), Device["CPU"].renderer
    policy = automatic(simplify_kernel(sink), renderer)
    asked: list[tuple[Opt, ...]] = []

    def measure(steps: tuple[Opt, ...], limit: float) -> float:
        asked.append(steps)
        return 1.0 + len(steps)

    def search() -> tuple[Opt, ...]:
        return beam_search(policy.sink, renderer, tuple(policy.applied), 1, measure)

    best = search()
    count = len(asked)
    assert search() == best
    assert len(asked) == count, "the second search is read from the disk"
    with Context(NUM_CPU_THREADS=5):
        search()
    assert len(asked) > count, "another machine, another search"
    count = len(asked)
    with monkeypatch.context() as patch:
        patch.setattr(search_module, "diskcache_get", lambda table, key: kept)
        assert search() == best
    assert len(asked) > count


@pytest.mark.usefixtures("beam_cache")
@pytest.mark.parametrize("kind", [MemoryError, AssertionError, ValueError, RecursionError])
def test_the_policy_remains_when_nothing_can_be_measured(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise kind("not today")

    a = normal(24, 24)
    with Context(BEAM=2), monkeypatch.context() as patch:
        patch.setattr(Measurement, "_memory", broken)
        np.testing.assert_allclose((Tensor(a) @ Tensor(a)).numpy(), a @ a, rtol=1e-4, atol=1e-4)
    tables = diskcache.db_connection().execute("SELECT name FROM sqlite_master WHERE name LIKE 'beam%'").fetchall()
    assert not tables, "nothing that failed is kept"


@pytest.mark.usefixtures("beam_cache")
def test_searching_again_passes_over_kept_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    original = beam_search

    def counted(*args: Any) -> Any:
        searches.append(1)
        return original(*args)

    monkeypatch.setattr(policy_module, "beam_search", counted)
    for ignored, expected in ((0, 1), (0, 1), (1, 2)):
        to_program_cache.clear()  # as a new process begins
        with Context(BEAM=1, IGNORE_BEAM_CACHE=ignored):
            to_program(matmul_sink(8), Device["CPU"].renderer)
        assert len(searches) == expected


def test_searched_kernels_of_every_kind_are_right() -> None:
    a, b, q = normal(9, 13), normal(13, 7), normal(2, 9, 8)
    half = [x.astype(np.float16) for x in (a, b)]
    whole = [(x * 5).astype(np.int32) for x in (a, b)]
    n = Variable("n", 1, 9).bind(5)
    made: list[Callable[[], Tensor]] = [
        lambda: Tensor(a) @ Tensor(b),
        lambda: Tensor(half[0]) @ Tensor(half[1]),
        lambda: Tensor(whole[0]) @ Tensor(whole[1]),
        lambda: Tensor(a).realize()[:n].sum(0),
        lambda: Tensor(a).cumsum(1),
        lambda: Tensor(a).max(0),
        lambda: Tensor(q).scaled_dot_product_attention(Tensor(q), Tensor(q), is_causal=True),
        lambda: (Tensor(q).shard(("CPU:0", "CPU:1"), axis=0) * 2).sum(1),
    ]
    for f in made:
        with Context(BEAM=0):
            want = f().numpy()
        for beam in ({"BEAM": 1}, {"BEAM": 2, "NOOPT": 1}):
            with Context(IGNORE_BEAM_CACHE=1, CACHELEVEL=0, **beam):
                np.testing.assert_allclose(f().numpy(), want, rtol=2e-3, atol=2e-3)


def test_a_searched_step_trains_as_the_plain_one() -> None:
    def losses(beam: int) -> list[float]:
        Tensor.manual_seed(1)
        with Context(BEAM=beam, IGNORE_BEAM_CACHE=1, CACHELEVEL=0):
            net = nn.Linear(6, 3)
            optimizer = nn.optim.SGD(nn.state.get_parameters(net), lr=0.1)

            @TinyJit
            def step(x: Tensor, y: Tensor) -> Tensor:
                with Tensor.train():
                    optimizer.zero_grad()
                    loss = (net(x).relu() - y).square().mean()
                    loss.backward()
                    optimizer.step()
                return loss.realize()

            x, y = Tensor(normal(8, 6)).realize(), Tensor(normal(8, 3)).realize()
            return [step(x, y).item() for _ in range(5)]

    np.testing.assert_allclose(losses(1), losses(0), rtol=1e-4)


def test_search_runs_candidates_and_gives_a_right_kernel() -> None:
    with Context(BEAM=1, IGNORE_BEAM_CACHE=1, CACHELEVEL=0):
        program = to_program(matmul_sink(8), Device["CPU"].renderer)
    a, b = normal(8, 8), normal(8, 8) * 2
    arrays = {0: np.zeros(64, np.float32), 1: a.reshape(-1), 2: b.reshape(-1)}
    np.testing.assert_allclose(run_program(program, "CPU", arrays)[0].reshape(8, 8), a @ b, rtol=1e-4, atol=1e-5)
