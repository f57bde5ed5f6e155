"""The cache on disk: values, several threads and processes, damage, limits."""

from __future__ import annotations

import decimal
import os
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tinygrad import diskcache as cache
from tinygrad.diskcache import (
    VERSION,
    db_connection,
    diskcache,
    diskcache_clear,
    diskcache_get,
    diskcache_get_many,
    diskcache_put,
    diskcache_puts_together,
)
from tinygrad.dtype import ConstFloat, Invalid, dtypes
from tinygrad.helpers import Context, Target
from tinygrad.settings import in_current_context

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "folder" / "cache.db"
    monkeypatch.setattr(cache, "CACHEDB", str(path))
    with Context(CACHELEVEL=2):
        yield path
        cache._state.local.holder = None  # closes the file, so that nothing outlives the test


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [b"", b"\x80binary", "text", 0, None, False, 1.5, [1, {"a": (2, {3})}], decimal.Decimal("1.1"), dtypes.half,
         Invalid, ConstFloat(-0.0), Target("CPU", "LLVM")],
    )  # fmt: skip
    def test_round_trip(self, value: object) -> None:
        assert diskcache_put("values", "key", value) is value
        found = diskcache_get("values", "key")
        assert found == value
        assert type(found) is type(value)

    def test_keys(self) -> None:
        diskcache_put("keys", "1", "str")
        diskcache_put("keys", 1, "int")
        diskcache_put("columns", {"ast": "a", "beam": 2}, "first")
        diskcache_put("columns", {"ast": "a", "beam": 3}, "second")
        diskcache_put("columns", {"ast": "a", "beam": 2}, "third")
        assert [diskcache_get("keys", key) for key in ("1", 1, "2")] == ["str", "int", None]
        assert diskcache_get("columns", {"ast": "a", "beam": 2}) == "third"
        assert diskcache_get("columns", {"ast": "a", "beam": 3}) == "second"
        assert diskcache_get("columns", {"ast": "b", "beam": 3}) is None
        with pytest.raises(ValueError, match="cannot be a column"):
            diskcache_put("columns", {"x; DROP": 1}, 2)
        with pytest.raises(ValueError, match="cannot be the name of a table"):
            diskcache_get("a-b", 1)

    def test_prepickled(self) -> None:
        diskcache_put("values", "key", pickle.dumps([1, 2]), prepickled=True)
        assert diskcache_get("values", "key") == [1, 2]

    def test_many_at_once(self) -> None:
        assert diskcache_get_many("values", ["a", "b"]) == {}
        for i in range(1200):
            diskcache_put("values", f"key {i}", i.to_bytes(2, "big") if i % 2 else [i])
        wanted = [f"key {i}" for i in range(-5, 1205)]
        found = diskcache_get_many("values", wanted + wanted[:7])
        assert found == {f"key {i}": i.to_bytes(2, "big") if i % 2 else [i] for i in range(1200)}
        assert diskcache_get_many("values", []) == {}
        with Context(CACHELEVEL=0):
            assert diskcache_get_many("values", wanted) == {}

    def test_function(self) -> None:
        calls = []

        @diskcache
        def square(x: int, plus: int | None = 0) -> int | None:
            calls.append(x)
            return None if plus is None else x * x + plus

        assert [square(3), square(3), square(3, plus=1), square(4)] == [9, 9, 10, 16]
        assert square(3, plus=None) is square(3, plus=None) is None
        assert calls == [3, 3, 4, 3]

    def test_level_and_clear(self, database: Path) -> None:
        with Context(CACHELEVEL=0):
            diskcache_put("values", "key", 1)
            assert not database.exists()
        diskcache_put("values", "key", 1)
        with Context(CACHELEVEL=0):
            assert diskcache_get("values", "key") is None
        diskcache_clear()
        assert diskcache_get("values", "key") is None
        diskcache_put("values", "key", 2)
        assert diskcache_get("values", "key") == 2

    def test_table_names_carry_the_version(self) -> None:
        diskcache_put("values", "key", 1)
        tables = [row[0] for row in db_connection().execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert tables == [f"values_{VERSION}"]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("/nonexistent/evil",)


class TestDamage:
    @pytest.mark.parametrize(
        "blob",
        [
            b"", b"X", b"P", b"Pnot a pickle", "text", 7,
            b"P" + pickle.dumps(Evil()),
            b"P" + pickle.dumps(os.system),
            b"Pcos\nsystem\n(S'true'\ntR.",
            # The module of helpers imports subprocess, gc and others: what it imports is not what it defines.
            b"Pctinygrad.helpers\ngc\n.",
            b"Pctinygrad.system\nsystem\n(S'true'\ntR.",
            b"\x80\x05",
            b"P\x80\x04\x8c\x10tinygrad.helpers\x8c\x0agc.collect\x93)R.",
        ],
    )  # fmt: skip
    def test_damaged_or_foreign_rows_are_misses(self, blob: object) -> None:
        diskcache_put("values", "key", [1])
        # With a checksum that fits too: whoever manipulates a row can write that as well.
        place = cache._place(f"values_{VERSION}", {"key": "key"})
        for written in (blob, cache._sealed(blob, place)) if isinstance(blob, bytes) else (blob,):
            assert db_connection().execute(f"UPDATE values_{VERSION} SET val = ?", (written,)).rowcount == 1
            assert diskcache_get("values", "key") is None
            assert diskcache_get_many("values", ["key"]) == {}
        diskcache_put("values", "key", [2])
        assert diskcache_get("values", "key") == [2]

    @pytest.mark.parametrize("value", [bytes(range(40)), [1, 2.5, "text", None], ""])
    def test_a_changed_or_shorter_row_is_a_miss(self, value: object) -> None:
        diskcache_put("values", "key", value)
        (blob,) = db_connection().execute(f"SELECT val FROM values_{VERSION}").fetchone()
        flipped = [blob[:i] + bytes([blob[i] ^ 1 << i % 8]) + blob[i + 1 :] for i in range(len(blob))]
        for damaged in (*flipped, *(blob[:n] for n in range(len(blob))), blob + b"\0"):
            db_connection().execute(f"UPDATE values_{VERSION} SET val = ?", (damaged,))
            assert diskcache_get("values", "key") is None
        db_connection().execute(f"UPDATE values_{VERSION} SET val = ?", (blob,))
        assert diskcache_get("values", "key") == value

    def test_a_row_of_another_key_is_a_miss(self) -> None:
        keys = ["a", "b", 1, {"ast": "a", "beam": 1}, {"ast": "a", "beam": 2}]
        for i, key in enumerate(keys):
            diskcache_put("columns" if isinstance(key, dict) else "values", key, i)
        for table in cache._all_tables(db_connection()):
            rows = db_connection().execute(f'SELECT rowid, val FROM "{table}"').fetchall()
            for (row, _), (_, blob) in zip(rows, rows[1:] + rows[:1], strict=True):
                db_connection().execute(f'UPDATE "{table}" SET val = ? WHERE rowid = ?', (blob, row))
        for key in keys:
            assert diskcache_get("columns" if isinstance(key, dict) else "values", key) is None
        assert diskcache_get_many("values", ["a", "b"]) == {}

    def test_a_row_of_another_table_is_a_miss(self) -> None:
        diskcache_put("one", "key", b"machine code")
        diskcache_put("other", "key", b"of another table")
        (blob,) = db_connection().execute(f"SELECT val FROM one_{VERSION}").fetchone()
        db_connection().execute(f"UPDATE other_{VERSION} SET val = ?", (blob,))
        assert diskcache_get("other", "key") is None

    @pytest.mark.parametrize("value", [5, [], {}, "text", (1, 2), (None,) * 4, ("a",) * 4, ([1] * 7, [(1,)])])
    def test_nothing_relies_on_the_types_of_rows(self, database: Path, value: object) -> None:
        program = (
            "from tinygrad import Tensor\n"
            "from tinygrad.runtime.support.cpu_peak import cpu_peak\n"
            "print((Tensor([[1., 2.], [3., 4.]]) @ Tensor([[1.], [1.]])).tolist(), cpu_peak()[0] > 0)\n"
        )

        def run() -> str:
            environment = {**os.environ, "CACHEDB": str(database), "CACHELEVEL": "2", "CCACHE": "1", "SCACHE": "1"}
            environment.pop("DEBUG", None)
            command = [sys.executable, "-c", program]
            return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

        expected = run()
        tables = cache._all_tables(db_connection())
        assert {name.split("_")[0] for name in tables} == {"schedule", "program", "compile", "cpu"}
        for table in tables:
            for (key,) in db_connection().execute(f'SELECT key FROM "{table}"').fetchall():
                blob = cache._encode(value, cache._place(table, {"key": key}))
                db_connection().execute(f'UPDATE "{table}" SET val = ? WHERE key = ?', (blob, key))
        assert run() == expected

    def test_a_file_that_is_no_database_is_replaced(self, database: Path) -> None:
        database.parent.mkdir()
        database.write_bytes(b"this is not a database at all, whatever its name says" * 100)
        assert diskcache_get("values", "key") is None
        diskcache_put("values", "key", [1])
        assert diskcache_get("values", "key") == [1]

    def test_a_file_damaged_later_is_replaced(self, database: Path) -> None:
        for key in range(50):
            diskcache_put("values", key, bytes(1000))
        cache._state.local.holder = None
        content = bytearray(database.read_bytes())
        content[100:] = b"\xff" * (len(content) - 100)
        database.write_bytes(content)
        assert diskcache_get("values", 3) is None
        diskcache_put("values", 3, "new")
        assert diskcache_get("values", 3) == "new"

    def test_no_place_to_write_is_silent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setattr(cache, "CACHEDB", str(tmp_path / "file" / "cache.db"))
        assert diskcache_put("values", "key", 1) == 1
        assert diskcache_get("values", "key") is None

    def test_read_only_database_still_reads(self, database: Path) -> None:
        diskcache_put("values", "key", 1)
        db_connection().execute("PRAGMA query_only = ON")
        assert diskcache_put("values", "other", 2) == 2
        assert diskcache_get("values", "key") == 1
        assert diskcache_get("values", "other") is None

    def test_full_disk_is_silent(self) -> None:
        diskcache_put("values", "key", 1)
        pages = db_connection().execute("PRAGMA page_count").fetchone()[0]
        db_connection().execute(f"PRAGMA max_page_count = {pages}")
        assert diskcache_put("values", "large", bytes(1 << 20)) == bytes(1 << 20)
        assert diskcache_get("values", "large") is None
        assert diskcache_get("values", "key") == 1


@pytest.fixture
def holder(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else, as another process has one; the file holds "key" -> 1."""
    diskcache_put("values", "key", 1)
    other = sqlite3.connect(database, isolation_level=None)
    yield other
    other.close()
    cache._state.impatient_until = 0.0
    cache._state.postponed.clear()


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# Statements after which a file stays locked: by a writer; by one that keeps readers out too.
LOCKS = {
    "writing": ["BEGIN IMMEDIATE"],
    "exclusive": ["PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "CREATE TABLE mine (a)"],
}


class TestLock:
    @pytest.mark.parametrize("lock", LOCKS)
    def test_it_is_waited_for_once(self, lock: str, holder: sqlite3.Connection) -> None:
        if lock == "exclusive":
            cache._state.local.holder = None  # nobody else may have the file open then
        for statement in LOCKS[lock]:
            holder.execute(statement).fetchall()

        def work() -> None:
            for key in range(20):
                diskcache_put("values", key, key)
                diskcache_get("values", key)
                diskcache_get_many("values", ["key", "other"])

        assert _seconds(work) < 2 * cache._PATIENCE + 1.0
        assert diskcache_get("values", "key") == (1 if lock == "writing" else None)
        assert len(cache._state.postponed) == 20

    def test_what_was_stored_meanwhile_is_written_with_the_next_entry(self, holder: sqlite3.Connection) -> None:
        holder.execute("BEGIN IMMEDIATE")
        for value in range(2, 5):
            diskcache_put("values", "key", value)
        diskcache_put("values", "other", 5)
        holder.execute("ROLLBACK")
        assert diskcache_get("values", "key") == 1
        diskcache_put("values", "last", 6)
        assert [diskcache_get("values", key) for key in ("key", "other", "last")] == [4, 5, 6]
        assert not cache._state.postponed

    def test_who_waits_forgets_the_oldest(self, holder: sqlite3.Connection) -> None:
        holder.execute("BEGIN IMMEDIATE")
        for key in range(cache._MOST_DELAYED + 10):
            diskcache_put("values", key, key)
        assert [row.columns["key"] for row in cache._state.postponed][:1] == [10]

    def test_a_short_lock_is_waited_for(self, holder: sqlite3.Connection) -> None:
        holder.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            stored = pool.submit(diskcache_put, "values", "key", 2)
            time.sleep(cache._PATIENCE / 5)
            holder.execute("ROLLBACK")
            stored.result()
        assert diskcache_get("values", "key") == 2
        assert not cache._state.postponed

    def test_another_process_that_keeps_the_file(self, database: Path, tmp_path: Path) -> None:
        code = """
import sys, time
from tinygrad import Tensor
(Tensor([1, 2, 3]) + 1).tolist()
start = time.perf_counter()
for i in range(2, 7):
    assert (Tensor([1, 2, 3]) * i).tolist() == [i, 2 * i, 3 * i]
print(time.perf_counter() - start)
"""
        hold = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("PRAGMA locking_mode = EXCLUSIVE")
held.execute("PRAGMA journal_mode = WAL")
held.execute("CREATE TABLE mine (a)")
held.execute("BEGIN EXCLUSIVE")
held.execute("INSERT INTO mine VALUES (1)")
print("held", flush=True)
sys.stdin.read()
"""
        database.parent.mkdir()
        environment = {**os.environ, "CACHEDB": str(database), "CACHELEVEL": "2"}
        with subprocess.Popen(
            [sys.executable, "-c", hold, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
            )
            holder.communicate(b"")
        # Waiting for ten seconds took so long, for each of several statements of each kernel.
        assert float(done.stdout) < 5.0

    def test_the_end_of_a_process_writes_what_waits(self, database: Path, holder: sqlite3.Connection) -> None:
        code = """
import sqlite3, sys
from tinygrad.diskcache import diskcache_put
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
diskcache_put("values", "key", 7)
held.execute("ROLLBACK")
"""
        environment = {**os.environ, "CACHEDB": str(database), "CACHELEVEL": "2"}
        subprocess.run([sys.executable, "-c", code, str(database)], cwd=ROOT, env=environment, check=True)
        assert diskcache_get("values", "key") == 7


class TestSize:
    def test_oldest_rows_go_first(self, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache, "MAX_BYTES", 1_000_000)
        monkeypatch.setattr(cache, "_CHECK_EVERY", 100_000)
        db_connection().execute("CREATE TABLE old_0 (key PRIMARY KEY, val BLOB, stamp INTEGER)")
        for key in range(40):
            diskcache_put("values", key, bytes(50_000))
        present = [key for key in range(40) if diskcache_get("values", key) is not None]
        assert 10 <= len(present) < 25
        assert present == list(range(40 - len(present), 40))
        tables = [row[0] for row in db_connection().execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert tables == [f"values_{VERSION}"]
        cache._state.local.holder = None
        assert database.stat().st_size < 1_200_000


class TestSharing:
    def test_threads(self) -> None:
        def work(number: int) -> bool:
            for key in range(20):
                diskcache_put("shared", key, [number, key])
                found = diskcache_get("shared", key)
                if found is None or found[1] != key:
                    return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))

    def test_clear_by_another_thread(self) -> None:
        diskcache_put("values", "key", 1)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(diskcache_clear).result()
        diskcache_put("values", "key", 2)
        assert diskcache_get("values", "key") == 2

    def test_processes(self, database: Path) -> None:
        code = (
            "import sys\n"
            "from tinygrad.diskcache import diskcache_put\n"
            "for key in range(50): diskcache_put('shared', int(sys.argv[1]) * 100 + key, bytes(100))\n"
        )
        environment = {**os.environ, "CACHEDB": str(database), "CACHELEVEL": "2"}
        workers = [
            subprocess.Popen([sys.executable, "-c", code, str(number)], cwd=ROOT, env=environment)
            for number in range(3)
        ]
        assert [worker.wait(60) for worker in workers] == [0, 0, 0]
        assert all(
            diskcache_get("shared", number * 100 + key) == bytes(100) for number in range(3) for key in range(50)
        )

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_fork(self) -> None:
        diskcache_put("values", "parent", 1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                diskcache_put("values", "child", 2)
                status = 0 if diskcache_get("values", "parent") == 1 else 3
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert diskcache_get("values", "child") == 2
        assert diskcache_put("values", "parent", 3) == diskcache_get("values", "parent") == 3


def _statements(run: Callable[[], object]) -> list[str]:
    """Return the first words of the statements that change the file."""
    found: list[str] = []
    connection = db_connection()
    connection.set_trace_callback(lambda text: found.append(text.split()[0]))
    try:
        run()
    finally:
        connection.set_trace_callback(None)
    return [word for word in found if word in {"BEGIN", "COMMIT", "REPLACE", "ROLLBACK"}]


class TestPutsTogether:
    def test_one_transaction_for_all_threads(self) -> None:
        diskcache_put("together", "first", 0)

        def fill() -> None:
            with diskcache_puts_together(), ThreadPoolExecutor(3) as pool:
                list(pool.map(in_current_context(lambda i: diskcache_put("together", i, i * i)), range(20)))

        assert _statements(fill) == ["BEGIN", *["REPLACE"] * 20, "COMMIT"]
        assert [diskcache_get("together", i) for i in range(20)] == [i * i for i in range(20)]

    def test_what_was_stored_before_an_error_is_kept(self) -> None:
        @diskcache_puts_together()
        def interrupted() -> None:
            diskcache_put("together", "a", 1)
            diskcache_put("others", "b", 2)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert (diskcache_get("together", "a"), diskcache_get("others", "b")) == (1, 2)

    def test_many_entries_do_not_wait_for_the_end(self) -> None:
        with diskcache_puts_together():
            for i in range(cache._MOST_DELAYED + 1):
                diskcache_put("together", i, i)
            assert diskcache_get("together", 0) == 0
            assert diskcache_get("together", cache._MOST_DELAYED) is None
        assert diskcache_get("together", cache._MOST_DELAYED) == cache._MOST_DELAYED

    def test_nothing_to_write(self, database: Path) -> None:
        with diskcache_puts_together():
            pass
        assert not database.exists()

    def test_a_table_that_another_process_drops(self) -> None:
        diskcache_put("together", "a", 1)
        with sqlite3.connect(cache.CACHEDB) as other:
            other.execute(f"DROP TABLE together_{VERSION}")
        other.close()
        with diskcache_puts_together():
            for key in "abc":
                diskcache_put("together", key, key)
        assert [diskcache_get("together", key) for key in "abc"] == list("abc")

    def test_a_failure_in_the_middle_leaves_the_connection_usable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        diskcache_put("together", "a", 1)
        insert, calls = cache._insert, []

        def failing(connection: sqlite3.Connection, row: object) -> None:
            calls.append(row)
            if len(calls) == 2:
                raise sqlite3.OperationalError("disk is full")
            insert(connection, row)  # type: ignore[arg-type]

        monkeypatch.setattr(cache, "_insert", failing)
        with diskcache_puts_together():
            for key in "bcd":
                diskcache_put("together", key, 2)
        assert diskcache_get("together", "b") is None
        diskcache_put("together", "e", 3)
        assert diskcache_get("together", "e") == 3
