"""The tables of ``python -m bench.beam``, and the lines of BEAM_LOG that they are made of."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench import beam
from bench.beam import Result, Width
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.search_report import Outcome, Report

VECTOR, UPCAST = Opt(OptOps.VECTOR, 1, 16), Opt(OptOps.UPCAST, 0, 2)


def search(policy: float, found: float, steps: str = "VECTOR:1:16 UPCAST:0:2", failed: int = 0) -> dict[str, Any]:
    return asdict(Outcome("r_4_8", "VECTOR:1:16", steps, policy, found, 9, failed, 0.5))


def result(seconds: float, *searches: dict[str, Any], spread: float = 0.02) -> Result:
    """Return a workload that took a second without a search."""
    return Result("w", 1.0, 0.01, {"2": Width(seconds, spread, list(searches))}, [])


@pytest.mark.parametrize(
    ("seconds", "spread", "steps", "is_slower"),
    [
        (0.5, 0.02, "UPCAST:0:2", False),
        (1.02, 0.0, "UPCAST:0:2", False),  # noise that turns do not show
        (1.1, 0.02, "UPCAST:0:2", True),
        (1.1, 0.3, "UPCAST:0:2", False),  # they show it
        (1.1, 0.02, "VECTOR:1:16", False),  # all kernels are the same
    ],
)
def test_what_is_slower(seconds: float, spread: float, steps: str, is_slower: bool) -> None:
    found = result(seconds, search(1e-3, 1e-3, steps), spread=spread)
    assert found.is_slower("2") is is_slower
    assert ("SLOWER" in beam.table([found])) is is_slower
    assert beam.summary([found]).endswith(": w." if is_slower else ": none.")


def test_tables() -> None:
    rows = [result(0.5, search(4e-3, 1e-3, failed=2), search(1e-3, 1e-3, "VECTOR:1:16"))]
    cells = [cell.strip() for cell in beam.table(rows).splitlines()[2].split("|")[1:-1]]
    assert cells == ["w", "1.00 s", "500 ms", "2.00", "1.00 s", "1 of 2"]
    cells = [cell.strip() for cell in beam.kernel_table(rows).splitlines()[2].split("|")[1:-1]]
    assert cells == ["w", "2", "`r_4_8`", "4.00 ms", "1.00 ms", "4.00", "`+UPCAST:0:2`"]
    assert beam.kernel_table([result(1.0)]) == "No kernel gained 10%."
    assert beam.summary(rows).startswith("BEAM=2: 2 kernels, 18 candidates of which 2 failed, 1 s of search.")


def test_steps_that_differ() -> None:
    assert beam.changes("A:0:1 B:1:2", "A:0:1 C:0:0") == "-B:1:2 +C:0:0"
    assert beam.changes("A:0:1", "A:0:1") == ""


def test_kept_results_are_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "20 x matmul 16^3"
    kept = {name: asdict(result(0.5, search(4e-3, 1e-3))) | {"workload": name}}
    (tmp_path / "results.json").write_text(json.dumps(kept), encoding="utf-8")
    assert beam.main(["--only", name, "--keep", str(tmp_path), "--widths", "2"]) == 0
    printed = capsys.readouterr()
    assert "| 20 x matmul 16^3 |" in printed.out
    assert not printed.err


def test_searches_of_a_stopped_workload_are_its_own(tmp_path: Path) -> None:
    """A command that was stopped in the middle of one, and goes on with it or with another one."""

    def searched(policy: float) -> None:
        with (tmp_path / "searches-2.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(search(policy, policy)) + "\n")

    stopped, other = "20 x matmul 16^3", "20 x matmul 64^3"
    made = beam.Searches([2], 1, tmp_path)
    made.begin(stopped)
    searched(1.0)
    made = beam.Searches([2], 1, tmp_path)
    made.begin(other)
    searched(2.0)
    made.begin(stopped)
    searched(3.0)
    assert [s["seconds"] for s in made.searches("2", stopped)] == [1.0, 3.0]
    assert [s["seconds"] for s in made.searches("2", other)] == [2.0]
    assert not made.searches("2", "matmul 512^3")


def test_searches_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygrad.helpers import getenv

    log = tmp_path / "log.jsonl"
    monkeypatch.setenv("BEAM_LOG", str(log))
    getenv.cache_clear()
    try:
        for _ in range(2):
            Report().end("r_4_8", 9, (4e-3, 1e-3), ((VECTOR,), (VECTOR, UPCAST)))
    finally:
        monkeypatch.undo()
        getenv.cache_clear()
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 2
    expected = search(4e-3, 1e-3)
    assert all(line | {"took": 0.5} == expected for line in lines)
