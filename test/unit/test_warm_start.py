"""A second process compiles nothing, and one that finds a damaged, locked or full cache computes the same."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad import Context, diskcache

ROOT = Path(__file__).parents[2]
# Prints how many kernels it lowered, how many programs it asked the cache for one by one, and its results.
PROGRAM = """
import sys
LIMIT = int(sys.argv[1]) if len(sys.argv) > 1 else 0
if LIMIT:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
from tinygrad import Tensor, codegen
from tinygrad.codegen import pipeline
lowered, single = [], []
def counted(function, into):
    def call(*args):
        into.append(args)
        return function(*args)
    return call
pipeline.lower_to_source = counted(pipeline.lower_to_source, lowered)
codegen.load_program = counted(codegen.load_program, single)
x = Tensor([[1.0, 2.0], [3.0, 4.0]])
results = [(x @ x).relu().sum(0), (x - 2.5).softmax(), x.sort()[0], (x.exp().cumsum(0) * 0.1).sin()]
Tensor.realize(*results)
print(len(lowered), len(single), [r.tolist() for r in results])
"""


def run(database: Path | str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CACHEDB": str(database), "CACHELEVEL": "2", **environment}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> tuple[int, int, str]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert errors == ""
    lowered, single, values = output.split(maxsplit=2)
    return int(lowered), int(single), values


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A filled cache, the number of kernels, and the results."""
    database = tmp_path_factory.mktemp("cache") / "cache.db"
    lowered, _, values = outcome(run(database))
    assert lowered >= 4
    return database, lowered, values


def copy_of(database: Path, folder: Path) -> Path:
    with sqlite3.connect(database) as source, sqlite3.connect(folder / "cache.db") as copy:
        source.backup(copy)
    return folder / "cache.db"


def test_a_second_process_lowers_nothing_and_asks_once(expected: tuple[Path, int, str]) -> None:
    database, _, values = expected
    assert outcome(run(database)) == (0, 0, values)


@pytest.mark.parametrize("table", ["schedule", "program"])
@pytest.mark.parametrize("at", ["checksum", "first byte", "last byte", "everything"])
def test_damaged_rows_are_made_again(table: str, at: str, expected: tuple[Path, int, str], tmp_path: Path) -> None:
    database, kernels, values = copy_of(expected[0], tmp_path), *expected[1:]
    connection = sqlite3.connect(database, isolation_level=None)
    (name,) = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE ?", (table + "_%",)).fetchone()
    place = {"checksum": 0, "first byte": 4, "last byte": -1}
    for rowid, blob in connection.execute(f"SELECT rowid, val FROM {name}").fetchall():
        damaged = bytearray(blob)
        if at == "everything":
            damaged = bytearray(len(blob))
        else:
            damaged[place[at]] ^= 0x55
        connection.execute(f"UPDATE {name} SET val = ? WHERE rowid = ?", (bytes(damaged), rowid))
    connection.close()
    assert outcome(run(database))[::2] == (kernels if table == "program" else 0, values)
    assert outcome(run(database)) == (0, 0, values)


def test_a_program_that_is_missing_is_made_again(expected: tuple[Path, int, str], tmp_path: Path) -> None:
    database, values = copy_of(expected[0], tmp_path), expected[2]
    connection = sqlite3.connect(database, isolation_level=None)
    (name,) = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'program_%'").fetchone()
    connection.execute(f"DELETE FROM {name} WHERE rowid = (SELECT max(rowid) FROM {name})")
    connection.close()
    assert outcome(run(database)) == (1, 1, values)
    assert outcome(run(database)) == (0, 0, values)


def test_two_cold_starts_at_once(expected: tuple[Path, int, str], tmp_path: Path) -> None:
    database, values = tmp_path / "cache.db", expected[2]
    first, second = run(database), run(database)
    assert outcome(first)[2] == outcome(second)[2] == values
    assert outcome(run(database)) == (0, 0, values)


@pytest.mark.parametrize("limit", [1, 40000, 100000])
def test_a_full_disk(limit: int, expected: tuple[Path, int, str], tmp_path: Path) -> None:
    pytest.importorskip("resource")
    database, values = tmp_path / "cache.db", expected[2]
    for _ in range(2):
        assert outcome(run(database, str(limit), PYTHONDONTWRITEBYTECODE="1"))[2] == values
    assert outcome(run(database))[2] == values


def test_a_disk_that_is_full_from_the_start_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "statvfs"):
        pytest.skip("the system does not say how much space is left")
    real = os.statvfs(tmp_path)
    full = os.statvfs_result([*real[:4], 3, *real[5:]])
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    monkeypatch.setattr(diskcache, "CACHEDB", str(tmp_path / "cache.db"))
    with Context(CACHELEVEL=2):
        assert diskcache.diskcache_put("values", "key", 1) == 1
        assert diskcache.diskcache_get("values", "key") is None
        assert not (tmp_path / "cache.db").exists()
        monkeypatch.undo()
        monkeypatch.setattr(diskcache, "CACHEDB", str(tmp_path / "cache.db"))
        diskcache.diskcache_put("values", "key", 2)
        assert diskcache.diskcache_get("values", "key") == 2


@pytest.mark.parametrize("place", ["/dev/null/cache.db", "/dev/full", "/proc/cache.db"])
def test_no_place_for_a_cache(place: str, expected: tuple[Path, int, str]) -> None:
    assert outcome(run(place))[1:] == (expected[1], expected[2])


def test_a_cache_that_cannot_be_written(expected: tuple[Path, int, str], tmp_path: Path) -> None:
    database = copy_of(expected[0], tmp_path)
    for path in (database, tmp_path):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert outcome(run(database)) == (0, 0, expected[2])
    finally:
        tmp_path.chmod(0o755)
