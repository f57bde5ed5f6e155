"""Statistics, tables, inputs and the protocol of the benchmark; nothing is measured."""

import io
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import ceiling, launches, measure, memory, table, workloads
from bench.inputs import Inputs
from bench.measure import Measurement, Peak, Row
from bench.peers import OURS, PEERS, choose, environments, worker
from bench.peers.process import PeerProcess, worker_environment
from bench.profiler import REST, STAGES, Profiler, resolve_stages
from tinygrad import Context

WORKLOAD = workloads.Workload("w", 2.0, 4e9, 1e9, lambda r: [], {"numpy": abs})


def row(ours: Measurement, **peers: Measurement) -> Row:
    return Row(WORKLOAD, ours, peers)


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_a_disturbed_round_counts_once() -> None:
    measured = Measurement([[1.0, 1.2, 1.1], [9.0] * 100, [1.3, 1.2]])
    assert measured.median == 1.25
    assert measured.best == 1.0
    assert measured.spread == pytest.approx((9.0 - 1.1) / 1.25)


def test_what_failed_has_no_time() -> None:
    for measured in (Measurement([[1.0]], failure="it broke"), Measurement(), Measurement(absent=True)):
        assert math.isnan(measured.median)
        assert math.isnan(measured.spread)
        assert math.isnan(measured.best)


def test_ratio_is_their_time_over_ours() -> None:
    found = row(Measurement([[1.0, 2.0, 3.0]]), torch=Measurement([[6.0, 5.0, 1.0]]))
    assert found.ratio("torch") == 2.5
    assert found.reaches_goal is True
    assert math.isnan(found.ratio("numpy"))
    found.statistic = "best"
    assert found.ratio("torch") == 1.0
    assert found.reaches_goal is False


def test_goal_needs_torch_and_our_own_success() -> None:
    assert row(Measurement([[1.0]]), numpy=Measurement([[9.0]])).reaches_goal is None
    assert row(Measurement(failure="x"), torch=Measurement([[9.0]])).reaches_goal is False


@pytest.mark.parametrize(
    ("seconds", "peak", "expected"),
    [(1.0, Peak(8e9, 8e9), (0.5, "GFLOP/s")), (0.5, Peak(80e9, 4e9), (0.5, "GB/s"))],
)
def test_share_of_the_binding_peak(seconds: float, peak: Peak, expected: tuple[float, str]) -> None:
    assert measure.share_of_peak(WORKLOAD, seconds, peak) == expected


def test_geometric_mean() -> None:
    assert measure.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert math.isnan(measure.geometric_mean([]))


def test_growth_exponent() -> None:
    assert measure.growth_exponent([2, 8, 32], [3 * n**1.5 for n in (2, 8, 32)]) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="two different sizes"):
        measure.growth_exponent([4, 4], [1.0, 2.0])


def test_summary_counts_goals_and_ignores_missing_ratios() -> None:
    rows = [
        row(Measurement([[1.0]]), torch=Measurement([[2.0]])),
        row(Measurement([[1.0]]), torch=Measurement([[8.0]]), numpy=Measurement(absent=True)),
        row(Measurement(failure="x"), torch=Measurement([[1.0]])),
    ]
    assert measure.summary(rows, ["torch", "numpy"]) == [
        "2 of 3 workloads reach their goal against torch.",
        "Geometric mean of the ratios to torch: 4.00 (2 workloads).",
    ]


def test_difference() -> None:
    good = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert measure.difference([good + np.float32(1e-6)], [good], 1e-4, 0.0) == ""
    wrong = good.copy()
    wrong[1, 0] = np.nan
    assert "wrong in 1 of 4 places, first at (1, 0): nan, expected 3.0" in measure.difference([wrong], [good], 1.0, 1.0)
    assert "not finite" in measure.difference([good], [wrong], 1.0, 1.0)
    assert "shape (4,), expected (2, 2)" in measure.difference([good.ravel()], [good], 1.0, 1.0)
    assert "1 results, expected 2" in measure.difference([good], [good, good], 1.0, 1.0)


def test_memory_grows_only_in_the_second_half() -> None:
    assert memory.grows([1, 100 << 20, 100 << 20, 101 << 20]) == 0
    assert memory.grows([100 << 20, 110 << 20, 120 << 20, 130 << 20]) == 20 << 20


# ---- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.345, "12.3 s"), (1.0, "1.00 s"), (0.9999, "1.00 s"), (0.0456, "45.6 ms"), (0.000123, "123 us"),
        (4e-7, "0.40 us"), (0.0, "0 us"), (math.nan, "-"),
    ],
)  # fmt: skip
def test_seconds(seconds: float, text: str) -> None:
    assert table.format_seconds(seconds) == text


def test_table_is_aligned() -> None:
    assert table.render(["name", "ms"], [["a", "1"], ["longer", "123"]]).splitlines() == [
        "| name   |  ms |",
        "|--------|----:|",
        "| a      |   1 |",
        "| longer | 123 |",
    ]
    with pytest.raises(ValueError, match="1 cells, the header 2"):
        table.render(["a", "b"], [["c"]])


def test_main_table() -> None:
    rows = [
        row(Measurement([[0.5]], first=1.5), torch=Measurement([[2.0]]), numpy=Measurement(absent=True)),
        row(Measurement(failure="WRONG"), torch=Measurement([[2.0]]), numpy=Measurement(failure="it broke")),
    ]
    lines = table.main_table(rows, ["torch", "numpy"], Peak(16e9, 16e9)).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[2] == [
        "w", "500 ms", "2.00 s", "4.00", "-", "-", "2 yes", "50%", "GFLOP/s", "1.50 s", "0%",
    ]  # fmt: skip
    assert cells[3] == ["w", "FAILED", "2.00 s", "-", "FAILED", "-", "2 NO", "-", "", "-", "-"]
    assert rows[1].failures == ["w: ours: WRONG", "w: numpy: it broke"]


def test_last_table_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- table: begin -->\nold\n<!-- table: end -->\nb\n", encoding="utf-8")
    for _ in range(2):
        table.write_between_marks(page, "table", "new")
    assert page.read_text(encoding="utf-8") == "a\n<!-- table: begin -->\n\nnew\n\n<!-- table: end -->\nb\n"
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match="lacks the lines"):
        table.write_between_marks(page, "table", "new")


# ---- workloads and inputs --------------------------------------------------------------------------------------------


def test_workloads_have_names_of_their_own_and_both_sides() -> None:
    everything = [*workloads.WORKLOADS, *(w for family in workloads.FAMILIES.values() for w in family)]
    by_name = {w.name: w for w in workloads.WORKLOADS}
    assert len(by_name) == len(workloads.WORKLOADS)
    for workload in everything:
        assert workload.function("tinygrad")
        assert workload.function("torch")
        assert workload.flops > 0 or workload.nbytes > 0
        assert workload.goal > 0
    assert workloads.find("matmul 512^3") is by_name["matmul 512^3"]
    with pytest.raises(KeyError, match="there is no workload 'x'"):
        workloads.find("x")


def test_jax_takes_numpys_function_and_numpy_takes_none() -> None:
    assert WORKLOAD.function("jax") is abs
    assert workloads.conv(1, 4, 8).function("numpy") is None


def split_mix(x: int) -> float:
    """The same mixing with Python's integers, so that numpy's overflow rules cannot change it unnoticed."""
    x = x * 0x9E3779B97F4A7C15 % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return (x >> 40) / 2**24


def test_inputs_are_the_same_everywhere_and_never_repeat() -> None:
    first, again = Inputs(), Inputs()
    a, b = first.uniform(1000), first.uniform(1000)
    assert (again.uniform(2, 500).ravel() == a).all()
    assert not (a == b).any()
    assert a[:9].tolist() == [split_mix((1 << 40) + i) for i in range(9)]
    many = Inputs(2).floats(1 << 16, scale=3.0)
    assert abs(float(many.mean())) < 0.05
    assert float(many.std()) == pytest.approx(3.0, rel=0.02)
    drawn = Inputs(3).integers(-8, 8, 4096, dtype=np.int8)
    assert drawn.dtype == np.int8
    assert set(drawn.tolist()) == set(range(-8, 8))


# ---- peers -----------------------------------------------------------------------------------------------------------


def test_choose() -> None:
    assert choose("numpy, torch,numpy") == [PEERS["numpy"], PEERS["torch"]]
    assert choose("") == []
    with pytest.raises(ValueError, match=r"unknown peers pytorch; there are torch, .*jax"):
        choose("pytorch")


def test_only_ours_sees_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    theirs, ours = (worker_environment(peer, 3, tmp_path) for peer in (PEERS["tinygrad"], OURS))
    assert "PYTHONPATH" not in theirs
    assert (Path(ours["PYTHONPATH"]) / "tinygrad").is_dir()
    assert theirs["OMP_NUM_THREADS"] == theirs["NUM_CPU_THREADS"] == "3"
    assert theirs["CACHEDB"] != ours["CACHEDB"]


def test_an_environment_is_made_once_and_failures_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(environments, "_run", lambda command, peer: commands.append(command))
    peer = PEERS["numpy"]
    (tmp_path / "numpy").mkdir()
    python = environments.python_of(peer)
    assert python == tmp_path / "numpy" / "bin" / "python"
    assert commands[0][1:3] == ["-m", "venv"]
    assert commands[1][-len(peer.requirements) :] == list(peer.requirements)
    assert environments.python_of(peer) == python
    assert len(commands) == 2
    assert environments.python_of(peer, {"numpy": "/other"}) == Path("/other")
    monkeypatch.undo()
    with pytest.raises(environments.PeerUnavailableError, match="numpy: no way"):
        environments._run([sys.executable, "-c", "raise SystemExit('no way')"], peer)


def test_measure_calls_at_least_so_often() -> None:
    calls = []
    times = worker.measure(lambda: calls.append(1), seconds=0.0, calls=4)
    assert len(times) == 4
    assert len(calls) == 5  # one that is not timed
    assert all(t >= 0 for t in times)


def test_a_peer_that_cannot_be_imported_answers_with_why(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = io.StringIO()

    def broken(name: str, threads: int) -> None:
        raise ImportError(f"{name} is not here\nand more")

    monkeypatch.setattr(worker, "Worker", broken)
    worker.serve("jax", 2, io.StringIO('{"do": "about"}\n'), answers)
    assert json.loads(answers.getvalue()) == {"failure": "ImportError: jax is not here"}


@pytest.mark.parametrize("peer", ["numpy", "ours"])
def test_worker_process(peer: str, tmp_path: Path) -> None:
    process = PeerProcess(OURS if peer == "ours" else PEERS[peer], Path(sys.executable), 2, tmp_path)
    try:
        path = tmp_path / "results.npz"
        answer = process.ask(do="prepare", workload="20 x matmul 16^3", path=str(path))
        assert answer.keys() == {"first", "rest"}, answer
        assert len(process.ask(do="time", seconds=0.0, calls=2)["times"]) == 2
        r = Inputs()
        x, w = workloads.find("20 x matmul 16^3").inputs(r)
        with np.load(path) as stored:
            expected = x.astype(np.float64) @ np.linalg.matrix_power(w.astype(np.float64), 20)
            assert measure.difference([stored["arr_0"]], [expected], 1e-4, 1e-4) == ""
        assert process.ask(do="drop") == {}
        assert process.ask(do="time", seconds=0.0, calls=1)["failure"] == "RuntimeError: nothing is prepared"
        assert "no workload 'x'" in process.ask(do="prepare", workload="x", path="")["failure"]
    finally:
        process.stop()


def test_speed_up_adds_the_rates_of_processes() -> None:
    assert ceiling.speed_up([2.0, 2.0], [2.0, 4.0]) == 1.5
    assert math.isnan(ceiling.speed_up([1.0, math.nan], [1.0, 1.0]))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_the_processes_of_a_ceiling_have_a_processor_each(tmp_path: Path) -> None:
    made = ceiling.Ceiling(2, tmp_path)
    try:
        assert made.measure(workloads.find("20 x matmul 16^3"), turns=1, seconds=0.0) > 0
        running = [p.process for p in made._processes if p.process is not None]
        assert [os.sched_getaffinity(p.pid) for p in running] == [{n} for n in sorted(os.sched_getaffinity(0))[:2]]
    finally:
        made.stop()


def test_a_dead_process_is_a_failure_and_is_started_again(tmp_path: Path) -> None:
    process = PeerProcess(PEERS["numpy"], Path(sys.executable), 2, tmp_path)
    try:
        assert process.ask(do="drop") == {}
        assert process.process is not None
        process.process.kill()
        process.process.wait()
        assert process.ask(do="drop") == {}
        assert process.about.startswith("numpy")
    finally:
        process.stop()
    missing = PeerProcess(PEERS["jax"], Path(sys.executable), 2, tmp_path)
    try:
        assert "jax" in missing.ask(do="drop")["failure"]
    finally:
        missing.stop()


# ---- the profiler ----------------------------------------------------------------------------------------------------


def test_profiler_counts_for_the_innermost_stage() -> None:
    now = 0.0

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    profiler = Profiler(clock=lambda: now)
    inner = profiler.wrap("inner", lambda: spend(2.0))

    def outer() -> None:
        spend(1.0)
        inner()
        inner()
        spend(4.0)

    spend(0.5)
    profiler.wrap("outer", outer)()
    profiler.settle()
    seconds = {name: cost.seconds for name, cost in profiler.totals.items()}
    assert seconds == {REST: 0.5, "inner": 4.0, "outer": 5.0}
    assert profiler.totals["inner"].calls == 2


def test_every_stage_of_the_profiler_exists() -> None:
    """A function that was renamed or moved must be followed in the table, or its time is nobody's."""
    assert [name for name, *_ in resolve_stages()] == [name for name, *_ in STAGES]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_list_of_empty_kernels_runs(threads: int) -> None:
    with Context(NUM_CPU_THREADS=threads):
        assert 0 < launches.native_launch(threads) < 1
