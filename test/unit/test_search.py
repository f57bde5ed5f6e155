"""BEAM: what the search tries, measures, keeps on disk and survives."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygrad.codegen.opt.search as search_module
from test.helpers_ast import at, kernel, loop, param, red, run_program, store
from tinygrad import Tensor, TinyJit, Variable, diskcache, nn
from tinygrad.codegen import do_to_program, to_program, to_program_cache
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.measure import Stopwatch
from tinygrad.codegen.opt.neighbours import limit_exceeded, move, neighbours, replay, structure
from tinygrad.codegen.opt.policy import automatic
from tinygrad.codegen.opt.search import beam_search, search_steps
from tinygrad.codegen.opt.search_report import Report
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.device import Device
from tinygrad.helpers import Context, getenv
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


class Clock:
    """Stands for measurements on a device: gives times by a rule."""

    def __init__(self, rule: Callable[[tuple[Opt, ...]], float]) -> None:
        self.rule = rule
        self.prepared: list[tuple[Opt, ...]] = []
        self.times: dict[tuple[Opt, ...], list[float]] = {}

    def prepare(self, variants: Any) -> None:
        self.prepared += variants

    def __call__(self, steps: tuple[Opt, ...], limit: float) -> float:
        self.times.setdefault(steps, []).append(self.rule(steps))
        return self.times[steps][-1]

    def turns(self, variants: Sequence[tuple[Opt, ...]], count: int) -> list[list[float]]:
        return [[self(steps, math.inf) for steps in variants] for _ in range(count)]


def start_of(sink: UOp) -> tuple[UOp, tuple[Opt, ...]]:
    """Return a kernel as a search gets it, and the steps of its policy."""
    policy = automatic(simplify_kernel(sink), Device["CPU"].renderer)
    return policy.sink, tuple(policy.applied)


def searched(sink: UOp, clock: Clock, width: int = 2) -> tuple[Opt, ...]:
    sink, start = start_of(sink)
    with Context(CACHELEVEL=0):
        return beam_search(sink, Device["CPU"].renderer, start, width, clock, Report())


def test_search_finds_the_fastest_and_measures_it_again() -> None:
    # A clock that favours copies and refuses lanes.
    def rule(steps: tuple[Opt, ...]) -> float:
        has_lanes = any(s.op is OptOps.VECTOR for s in steps) and steps != start
        return math.inf if has_lanes else 1.0 / (1 + min(sum(s.op is OptOps.UPCAST for s in steps), 2))

    start = start_of(matmul_sink(32))[1]
    clock = Clock(rule)
    best = searched(matmul_sink(32), clock)
    assert clock.times[best][0] == min(times[0] for times in clock.times.values())
    # A kernel of a second is long: the policy's is measured twice before anything is compared with it.
    again = {steps for steps, times in clock.times.items() if len(times) > 2}
    faster = {steps for steps, times in clock.times.items() if times[0] < clock.times[start][0]}
    assert again == ({start, *again & faster} if faster else set())
    assert best in again or not faster
    assert len(again) <= 1 + search_module.FINALISTS
    assert set(clock.prepared) == set(clock.times) - {start}
    assert len(clock.prepared) == len(set(clock.prepared)), "nothing is tried twice"


@pytest.mark.parametrize("start_is_slow", [False, True])
def test_search_is_not_led_astray_by_a_lucky_measurement(start_is_slow: bool) -> None:
    """Whatever a candidate took at first, the policy's steps stay unless it is faster beside them."""
    start = start_of(matmul_sink(32))[1]

    def rule(steps: tuple[Opt, ...]) -> float:
        lucky = steps not in clock.times and steps != start
        return 0.5 if lucky else 2.0 if steps == start and start_is_slow else 1.0

    clock = Clock(rule)
    assert (searched(matmul_sink(32), clock) != start) == start_is_slow


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "PAUSE_SECONDS", 0.0)


class SharedMachine(Clock):
    """A processor that other guests share: fast for some measurements, slow for many, and now and then disturbed.

    Lists are named by numbers, and ``costs`` says what each really takes.
    """

    def __init__(self, costs: dict[Any, float], seed: int) -> None:
        self.numbers, self.speed = random.Random(seed), 1.0
        super().__init__(lambda steps: costs[steps] * self.noise())

    def noise(self) -> float:
        if self.numbers.random() < (0.3 if self.speed < 1 else 0.1):
            self.speed = 1.6 - self.speed
        return self.speed * self.numbers.uniform(1, 1.05) * (2.0 if self.numbers.random() < 0.1 else 1.0)


@pytest.mark.parametrize(("least", "is_faster"), [(1.0, False), (1.1, False), (0.7, True)])
def test_search_does_not_end_slower_on_a_noisy_machine(
    least: float, is_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What remains costs no more than the policy's where nothing is faster, and less where something is."""
    name_lists(monkeypatch, {0: range(1, 13), **{n: range(12 * n + 1, 12 * n + 5) for n in range(1, 13)}})
    costs, slower = [], 0
    for seed in range(300):
        numbers = random.Random(seed)
        cost = {n: 1e-3 * numbers.uniform(least, 1.4) for n in range(200)} | {0: 1e-3}
        search = search_module._Search(matmul_sink(4), Device["CPU"].renderer, SharedMachine(cost, seed), Report())
        found: Any = search.run(0, 2)  # type: ignore[arg-type]
        costs.append(cost[found] / cost[0])
        slower += cost[found] > 1.02 * cost[0]
    assert slower <= 3
    assert np.mean(costs) <= (0.85 if is_faster else 1.001)


def name_lists(monkeypatch: pytest.MonkeyPatch, neighbours_of: dict[int, Sequence[int]]) -> None:
    """Let numbers stand for lists of steps, and say which are neighbours."""
    monkeypatch.setattr(search_module, "replay", lambda sink, renderer, steps: steps)
    monkeypatch.setattr(search_module, "structure", lambda steps: steps)
    monkeypatch.setattr(search_module, "limit_exceeded", lambda steps: None)
    monkeypatch.setattr(search_module, "move", lambda before, after: (before, after))
    monkeypatch.setattr(
        search_module, "neighbours", lambda sink, renderer, steps: ((n, n) for n in neighbours_of.get(steps, ()))
    )


def test_what_disturbs_for_a_while_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 60 ms, something slows the policy's schedule down and not the other one, which is the slower one else."""
    now = 0.0

    def rule(steps: Any) -> float:
        nonlocal now
        took = 1.5e-3 if steps == 1 else 3e-3 if now < 0.06 else 1e-3
        now += took
        return took

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    name_lists(monkeypatch, {0: [1]})
    monkeypatch.setattr(search_module, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(search_module.time, "sleep", sleep)
    search = search_module._Search(matmul_sink(4), Device["CPU"].renderer, Clock(rule), Report())
    assert search.run(0, 2) == 0  # type: ignore[arg-type, comparison-overlap]
    assert now > 0.06, "the disturbance would have decided else"


def test_threads_are_not_taken_away() -> None:
    """Whether they gain depends on what else runs while a search measures."""
    sink, start = start_of(matmul_sink(256))
    assert any(step.op is OptOps.THREAD for step in start)
    for steps, _ in neighbours(sink, Device["CPU"].renderer, start):
        assert any(step.op is OptOps.THREAD for step in steps)


@pytest.mark.parametrize("seconds", [1e-6, 1e-5, 1e-4, 1.0])
def test_short_kernels_are_worth_few_tries(seconds: float) -> None:
    """A search must not take longer than what it is for; a kernel that takes as long as its launch is left alone."""
    clock = Clock(lambda steps: seconds)
    best = searched(matmul_sink(64), clock, width=1)
    most = 0 if seconds < search_module.LAUNCH_SECONDS else seconds * search_module.TRIES_PER_SECOND
    most = min(max(most, search_module.FEWEST_TRIES), search_module.MOST_TRIES) if most else 0
    assert len(clock.prepared) <= most
    assert (not clock.prepared) == (seconds == 1e-6)
    assert best == start_of(matmul_sink(64))[1]


@pytest.mark.parametrize("n", [16, 48, 100])
def test_neighbours_fit_and_are_few(n: int) -> None:
    """All can be compiled; those of one structure have the same operations."""
    renderer = Device["CPU"].renderer
    sink, start = start_of(matmul_sink(n))
    kernels: dict[Any, set[tuple[str, ...]]] = {}
    for _, schedule in list(neighbours(sink, renderer, start))[:60]:
        if schedule.cached or schedule.staged:
            continue
        ast = sink.replace(arg=replace(sink.arg, opts_to_apply=tuple(schedule.applied)))
        linear = do_to_program(ast, renderer).src[1].src
        kernels.setdefault(structure(schedule), set()).add(tuple(sorted(str(u.op) for u in linear)))
    assert len(kernels) > 5
    assert all(len(sources) == 1 for sources in kernels.values())


def test_moves_between_lists() -> None:
    a, b, c = Opt(OptOps.UPCAST, 0, 4), Opt(OptOps.VECTOR, 1, 8), Opt(OptOps.UPCAST, 0, 2)
    assert move((a, b), (c, b)) == (a, c)
    assert move((a,), (a, b)) == (None, b)
    assert move((a, b), (a,)) == (b, None)
    assert move((a, b), (b,)) == (a, None)


def test_moves_that_were_bad_are_not_tried_again() -> None:
    """Threads make every list slow here: only the first list is tried with them."""
    clock = Clock(lambda steps: (10.0 if any(s.op is OptOps.THREAD for s in steps) else 1.0) / (1 + len(steps)))
    searched(matmul_sink(32), clock, width=1)
    threads = [steps for steps in clock.prepared if any(s.op is OptOps.THREAD for s in steps)]
    assert len(clock.prepared) > 3 * len(threads)
    added = [move(steps[:-1], steps)[1] for steps in threads if steps[-1].op is OptOps.THREAD]
    assert len(added) == len(set(added))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["UPCAST:0:4", "VECTOR:1:8"], ["VECTOR:1:8", "UPCAST:0:4"], True),
        (["UPCAST:0:4", "UNROLL:0:2", "UPCAST:1:2"], ["UPCAST:1:2", "UPCAST:0:4", "UNROLL:0:2"], True),
        (["UPCAST:0:4", "UPCAST:0:2"], ["UPCAST:0:2", "UPCAST:0:4"], False),
        (["UPCAST:0:8"], ["UPCAST:0:4", "UPCAST:0:2"], False),
        (["SWAP:0:1"], [], False),
        (["THREAD:0:0"], [], False),
        (["BLOCK:0:8"], ["SPLIT:2:8"], False),
        (["PADTO:0:5", "UPCAST:0:5"], ["UPCAST:0:4"], False),
        (["PADTO:0:5", "PADTO:1:5"], ["PADTO:1:5", "PADTO:0:5"], True),
    ],
    ids=str,
)  # fmt: skip
def test_steps_that_commute_have_one_structure(one: list[str], other: list[str], same: bool) -> None:
    sink, _ = start_of(matmul_sink(32))
    found = []
    for words in (one, other):
        steps = [word.split(":") for word in words]
        opts = tuple(Opt(OptOps[op], int(axis), int(arg)) for op, axis, arg in steps)
        found.append(structure(replay(sink, Device["CPU"].renderer, opts)))
    assert (found[0] == found[1]) == same


@pytest.mark.parametrize(
    ("name", "value", "opt"),
    [("BEAM_UPCAST_MAX", 4, Opt(OptOps.UPCAST, 0, 8)), ("BEAM_UPCAST_MAX", 3, Opt(OptOps.UNROLL, 0, 4))],
)
def test_limits_of_a_schedule(name: str, value: int, opt: Opt, environment: Callable[..., None]) -> None:
    sink, _ = start_of(matmul_sink(32))
    schedule = replay(sink, Device["CPU"].renderer, (opt,))
    assert limit_exceeded(schedule) is None
    environment(**{name: value})
    assert limit_exceeded(schedule) == f"{opt.arg} is more than {name}={value}"


def test_more_sums_than_registers_are_not_tried() -> None:
    sink, _ = start_of(matmul_sink(64))
    steps = (Opt(OptOps.UPCAST, 0, 16), Opt(OptOps.UPCAST, 1, 8), Opt(OptOps.VECTOR, 1, 8))
    assert "registers" in str(limit_exceeded(replay(sink, Device["CPU"].renderer, steps)))


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets environment variables that are read with getenv, which remembers what it read."""

    def change(**variables: Any) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        getenv.cache_clear()

    yield change
    monkeypatch.undo()
    getenv.cache_clear()


@pytest.fixture
def beam_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that this test makes are kept in a file of its own."""
    monkeypatch.setattr(diskcache, "CACHEDB", str(tmp_path / "cache.db"))


@pytest.mark.usefixtures("beam_cache")
@pytest.mark.parametrize("kept", [None, 5, ("a",), [], (Opt(OptOps.UPCAST, 99, 3),), (Opt(OptOps.THREAD, None, 0),)])
def test_what_does_not_fit_is_searched_for_again(
    kept: Any, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., None]
) -> None:
    renderer = Device["CPU"].renderer
    sink, start = start_of(matmul_sink(16))
    searches: list[Clock] = []

    def clock(*args: Any) -> Clock:
        searches.append(Clock(lambda steps: 1.0 + len(steps)))
        return searches[-1]

    monkeypatch.setattr(search_module, "Measurement", clock)

    def search(kernel: UOp = sink) -> tuple[Opt, ...]:
        with Context(PARALLEL=0):
            return search_steps(kernel, renderer, start, 1)

    best = search()
    assert search() == best
    assert len(searches) == 1, "the second search is read from the disk"
    assert search(sink.replace(arg=replace(sink.arg, name="another"))) == best
    assert len(searches) == 1, "a kernel's name does not matter"
    with Context(NUM_CPU_THREADS=5):
        search()
    assert len(searches) == 2, "another machine, another search"
    environment(BEAM_UPCAST_MAX=100)
    search()
    assert len(searches) == 3, "other limits, another search"
    with monkeypatch.context() as patch:
        patch.setattr(search_module, "diskcache_get", lambda table, key: kept)
        assert search() == best
    assert len(searches) == 4


@pytest.mark.usefixtures("beam_cache")
@pytest.mark.parametrize("kind", [MemoryError, AssertionError, ValueError, RecursionError])
def test_the_policy_remains_when_nothing_can_be_measured(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise kind("not today")

    a = normal(24, 24)
    with Context(BEAM=2, PARALLEL=0), monkeypatch.context() as patch:
        patch.setattr(Stopwatch, "_handle", broken)
        np.testing.assert_allclose((Tensor(a) @ Tensor(a)).numpy(), a @ a, rtol=1e-4, atol=1e-4)
    tables = diskcache.db_connection().execute("SELECT name FROM sqlite_master WHERE name LIKE 'beam%'").fetchall()
    assert not tables, "nothing that failed is kept"


@pytest.mark.usefixtures("beam_cache")
def test_searching_again_passes_over_kept_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []

    def counted(*args: Any) -> tuple[Opt, ...]:
        searches.append(1)
        return args[2]

    monkeypatch.setattr(search_module, "search_steps", counted)
    for ignored, expected in ((0, 1), (0, 1), (1, 2)):
        to_program_cache.clear()  # as a new process begins
        with Context(BEAM=1, IGNORE_BEAM_CACHE=ignored):
            to_program(matmul_sink(8), Device["CPU"].renderer)
        assert len(searches) == expected


def test_searched_kernels_of_every_kind_are_right(
    monkeypatch: pytest.MonkeyPatch, environment: Callable[..., None]
) -> None:
    """Every candidate is, in strict mode, which raises an error for the first one that fails."""
    monkeypatch.setattr(search_module, "LAUNCH_SECONDS", 0.0)
    environment(BEAM_STRICT_MODE=1)
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
