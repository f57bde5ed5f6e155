"""A cache on disk that several processes and threads share: tables of key -> value in one sqlite file.

In:   a table name, a key (str, int, or a dict of columns), a value.
Out:  the value that was stored, or None. A cache may forget: a file that cannot be written, a damaged row or a full
      disk is a miss, never an error. A damaged file is replaced by an empty one. A file that another process keeps
      locked delays the work once, by a moment: reading it is a miss, and what is stored is written later.
Why:  schedules and compiled kernels of one run serve all later ones.

bytes are stored as they are. Other values are pickled, and loaded with an unpickler that knows only plain containers
and types of this package, so that a manipulated row cannot call anything else. Every row begins with a checksum of its
table, its key and its bytes: one that has changed since (machine code that would run, a shape that would be believed),
or that belongs to another key (pages of a file that was copied while it was written), is a miss too.
"""

from __future__ import annotations

import atexit
import collections
import errno
import functools
import io
import os
import pickle
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

from tinygrad.fetching import cache_home
from tinygrad.settings import CACHELEVEL, getenv

if TYPE_CHECKING:
    import sqlite3

__all__ = [
    "VERSION",
    "db_connection",
    "diskcache",
    "diskcache_clear",
    "diskcache_get",
    "diskcache_get_many",
    "diskcache_put",
    "diskcache_puts_together",
]

P = ParamSpec("P")
R = TypeVar("R")
Key: TypeAlias = str | int | Mapping[str, Any]

# Part of every table's name: a new number forgets what older versions stored.
VERSION: Final = 3
CACHEDB: str = getenv("CACHEDB", "") or str(cache_home() / "cache.db")
MAX_BYTES: int = getenv("CACHEDB_MAX_BYTES", 1 << 30)

_PATIENCE: Final = 0.1  # seconds that a locked file may delay the work; transactions take some milliseconds
_IMPATIENT_SECONDS: Final = 30.0  # that a file counts as locked for long afterwards: it is tried, but not waited for
_CLEAR_PATIENCE: Final = 10.0  # who asks for an empty cache wants it to be empty
# The size is looked at again after this many bytes were stored by this process.
_CHECK_EVERY: Final = 16 << 20
_LEAST_BYTES: Final = 1 << 18  # free on the disk: 32 KiB for the file that processes share, some pages, a log
_RAW, _PICKLED = b"B", b"P"
_CHECKSUM_BYTES: Final = 4
_MOST_DELAYED: Final = 256  # entries that an end of the process may lose
_MOST_KEYS: Final = 500  # of one query; sqlite may have been built with a limit of 999
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_CORRUPT, _SQLITE_NOTADB = 5, 6, 11, 26


class _Holder:
    """Closes a thread's connection when the thread ends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class _State:
    """The connections of this process; sqlite objects must not cross threads or forks."""

    def __init__(self) -> None:
        self.local = threading.local()
        self.lock = threading.Lock()
        self.generation = 0  # counts replacements of a damaged file
        self.rebuilt: set[str] = set()
        self.impatient_until = 0.0
        self.stored_bytes = _CHECK_EVERY
        # Rows that a locked file did not take; the newest are kept.
        self.postponed: collections.deque[_Row] = collections.deque(maxlen=_MOST_DELAYED)
        self.inherited: list[Any] = []

    def forget_after_fork(self) -> None:
        # Closing a connection of the parent in the child would drop the parent's file locks: keep it, unused.
        self.inherited.append(vars(self.local).copy())
        self.local = threading.local()
        self.lock = threading.Lock()
        self.postponed.clear()  # the parent writes them


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _state.forget_after_fork())


def db_connection(patience: float | None = None) -> sqlite3.Connection:
    """Return this thread's connection to the cache database, opened on first use.

    Args:
        patience: Seconds that it waits for a locked file; default: a moment, none where the file was locked just now.

    Raises:
        sqlite3.Error: The file can be neither opened nor created.
        OSError: Its folder cannot be created.
    """
    local = _state.local
    wanted = (CACHEDB, _state.generation)
    holder: _Holder | None = getattr(local, "holder", None)
    if patience is None:
        patience = _PATIENCE if time.monotonic() >= _state.impatient_until else 0.0
    if holder is None or local.opened != wanted:
        local.holder = holder = None  # closes the old file
        local.holder = holder = _Holder(_open(CACHEDB, patience))
        local.opened, local.tables, local.patience = wanted, set(), patience
    elif local.patience != patience:
        holder.connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        local.patience = patience
    return holder.connection


def _open(path: str, patience: float) -> sqlite3.Connection:
    import sqlite3

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    _require_space(path)
    connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # Readers do not wait for a writer, a commit does not wait for the disk; a crash loses the last entries alone.
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_CHECK_EVERY}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if _is_locked(error):
            connection.close()
            raise
        # Otherwise a read-only file: reading may still work.
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _require_space(path: str) -> None:
    """Raise OSError on a full disk: sqlite would try for ten seconds to make the file that processes share."""
    if hasattr(os, "statvfs") and not Path(path + "-shm").exists():
        disk = os.statvfs(Path(path).parent)
        if disk.f_bavail * disk.f_frsize < _LEAST_BYTES:
            raise OSError(errno.ENOSPC, "no space left for the cache", path)


def _code(error: sqlite3.Error) -> int:
    # Extended codes keep the primary code in the low byte.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in {_SQLITE_CORRUPT, _SQLITE_NOTADB}


def _is_locked(error: sqlite3.Error) -> bool:
    return _code(error) in {_SQLITE_BUSY, _SQLITE_LOCKED}


def _replace_damaged_file() -> bool:
    """Remove a damaged database, once per process and file. Returns whether another try makes sense."""
    with _state.lock:
        if CACHEDB in _state.rebuilt:
            return False
        _state.rebuilt.add(CACHEDB)
        _state.generation += 1
        for suffix in ("", "-wal", "-shm", "-journal"):
            try:
                Path(CACHEDB + suffix).unlink(missing_ok=True)
            except OSError:
                return False
        return True


def _attempt(
    action: Callable[[sqlite3.Connection], R], otherwise: R, locked: R | None = None, patience: float | None = None
) -> R:
    """Run ``action`` on the connection; what goes wrong with the file counts as ``otherwise``, a lock as ``locked``."""
    import sqlite3

    for _ in range(2):
        try:
            return action(db_connection(patience))
        except sqlite3.DatabaseError as error:
            if _is_locked(error):
                # Somebody holds the file for long: do not wait for it again on every entry.
                _state.impatient_until = time.monotonic() + _IMPATIENT_SECONDS
                return otherwise if locked is None else locked
            if not (_is_damage(error) and _replace_damaged_file()):
                return otherwise
        except (sqlite3.Error, OSError):
            return otherwise
    return otherwise


# ---- tables --------------------------------------------------------------------------------------------------------


def _columns(key: Key) -> dict[str, Any]:
    columns = dict(key) if isinstance(key, Mapping) else {"key": key}
    for name in columns:
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name.lower() in {"val", "stamp", "rowid"}:
            raise ValueError(f"diskcache: {name!r} cannot be a column of a key; use letters, digits and _")
    return columns


def _table_name(table: str) -> str:
    if not re.fullmatch(r"\w+", table):
        raise ValueError(f"diskcache: {table!r} cannot be the name of a table; use letters, digits and _")
    return f"{table}_{VERSION}"


def diskcache_get(table: str, key: Key) -> Any:
    """Return the value stored under ``key``, or None: absent, damaged, or CACHELEVEL below 1."""
    if CACHELEVEL.get() < 1:
        return None
    name, columns = _table_name(table), _columns(key)
    condition = " AND ".join(f'"{column}" = ?' for column in columns)
    query = f'SELECT val FROM "{name}" WHERE {condition}'

    def read(connection: sqlite3.Connection) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = connection.execute(query, tuple(columns.values())).fetchone()
        return row

    row = _attempt(read, None)
    return None if row is None else _decode(row[0], _place(name, columns))


def diskcache_get_many(table: str, keys: Iterable[str]) -> dict[str, Any]:
    """Return the values of all ``keys`` that are stored; one query takes a tenth of the time of one for each key."""
    wanted = list(dict.fromkeys(keys))
    if CACHELEVEL.get() < 1:
        return {}
    name = _table_name(table)

    def read(connection: sqlite3.Connection) -> list[tuple[str, Any]]:
        rows: list[tuple[str, Any]] = []
        for first in range(0, len(wanted), _MOST_KEYS):
            some = wanted[first : first + _MOST_KEYS]
            holes = ", ".join("?" * len(some))
            rows += connection.execute(f'SELECT key, val FROM "{name}" WHERE key IN ({holes})', some).fetchall()
        return rows

    none: list[tuple[str, Any]] = []
    decoded = [(key, _decode(blob, _place(name, {"key": key}))) for key, blob in _attempt(read, none)]
    return {key: value for key, value in decoded if value is not None}


def diskcache_put(table: str, key: Key, val: Any, prepickled: bool = False) -> Any:
    """Store ``val`` under ``key`` and return it.

    Args:
        table: Name of the table; made on first use.
        key: str, int, or a dict of columns (always the same names in one table).
        val: The value; bytes are stored as they are.
        prepickled: ``val`` is a pickle already; the value that it holds is what ``diskcache_get`` returns.
    """
    if CACHELEVEL.get() < 1:
        return val
    name, columns = _table_name(table), _columns(key)
    place = _place(name, columns)
    row = _Row(name, columns, _sealed(_PICKLED + val, place) if prepickled else _encode(val, place))
    delayed = _delayed.get()
    if delayed is None:
        _write([row])
    else:
        delayed.add(row)
    return val


class _Row(NamedTuple):
    """One entry: name of the table, columns of the key, the encoded value."""

    table: str
    columns: dict[str, Any]
    blob: bytes


class _Delayed:
    """Rows that wait for each other, to be written in one transaction."""

    def __init__(self) -> None:
        self._rows: collections.deque[_Row] = collections.deque()  # threads append and pop without a lock

    def add(self, row: _Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= _MOST_DELAYED:
            self.write()

    def write(self) -> None:
        rows = _taken(self._rows)
        if rows:
            _write(rows)


def _taken(rows: collections.deque[_Row]) -> list[_Row]:
    """Return the rows, in order, and leave none; what other threads append meanwhile may be among them."""
    taken = []
    with suppress(IndexError):
        while True:
            taken.append(rows.popleft())
    return taken


_delayed: ContextVar[_Delayed | None] = ContextVar("_delayed", default=None)


@contextmanager
def diskcache_puts_together() -> Iterator[None]:
    """Write what is stored inside this block, by threads that run in its context too, in few transactions.

    Writing gives up the interpreter lock, and among threads that compute it takes milliseconds to get it back.
    Entries may be missing from the cache until the block ends.
    """
    delayed = _Delayed()
    token = _delayed.set(delayed)
    try:
        yield
    finally:
        _delayed.reset(token)
        delayed.write()


class _Outcome(Enum):
    """What became of rows."""

    WRITTEN, LOST, LOCKED = range(3)


def _write(rows: Sequence[_Row]) -> None:
    """Write rows, after those that wait for a locked file; where it is locked, all of them wait."""

    def write(connection: sqlite3.Connection) -> _Outcome:
        if len(rows) == 1:
            _insert(connection, rows[0])
            return _Outcome.WRITTEN
        connection.execute("BEGIN IMMEDIATE")
        try:
            for row in rows:
                _insert(connection, row)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return _Outcome.WRITTEN

    rows = [*_taken(_state.postponed), *rows]
    outcome = _attempt(write, _Outcome.LOST, locked=_Outcome.LOCKED)
    if outcome is _Outcome.LOCKED:
        _state.postponed.extend(rows)
    elif outcome is _Outcome.WRITTEN:
        _state.impatient_until = 0.0
        _state.stored_bytes += sum(len(row.blob) for row in rows)
        if _state.stored_bytes >= _CHECK_EVERY:
            _state.stored_bytes = 0
            _attempt(_shrink, None)


@atexit.register
def _write_postponed() -> None:
    if _state.postponed:
        _write([])


def _insert(connection: sqlite3.Connection, row: _Row) -> None:
    import sqlite3

    names = ", ".join(f'"{column}"' for column in row.columns)
    create = f'CREATE TABLE IF NOT EXISTS "{row.table}" ({names}, val BLOB, stamp INTEGER, PRIMARY KEY ({names}))'
    insert = f'REPLACE INTO "{row.table}" ({names}, val, stamp) VALUES ({"?, " * len(row.columns)}?, ?)'
    known: set[str] = _state.local.tables
    # Another process may clear the cache at any time, so a failed insert makes the table and tries again.
    for is_last in (row.table not in known, True):
        if is_last:
            connection.execute(create)
            known.add(row.table)
        try:
            connection.execute(insert, (*row.columns.values(), row.blob, time.time_ns()))
            return
        except sqlite3.OperationalError as error:
            if is_last or "no such table" not in str(error):
                raise


def diskcache_clear() -> None:
    """Remove all tables."""

    def clear(connection: sqlite3.Connection) -> None:
        for table in _all_tables(connection):
            connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        _state.local.tables.clear()
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    _state.postponed.clear()
    _attempt(clear, None, patience=_CLEAR_PATIENCE)


def _all_tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [row[0] for row in rows]


def _shrink(connection: sqlite3.Connection) -> None:
    """Bring the file below MAX_BYTES: tables of other versions go first, then the oldest rows, to three quarters."""

    def size() -> int:
        pragma = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")}
        return int(
            connection.execute("PRAGMA page_size").fetchone()[0] * (pragma["page_count"] - pragma["freelist_count"])
        )

    if (used := size()) <= MAX_BYTES:
        return
    tables = _all_tables(connection)
    for table in [table for table in tables if not table.endswith(f"_{VERSION}")]:
        connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        tables.remove(table)
    used, goal = size(), MAX_BYTES * 3 // 4
    ages: list[tuple[int, int, str, int]] = []
    if used > goal:
        for table in tables:
            rows = connection.execute(f'SELECT stamp, length(val), rowid FROM "{table}"')
            ages += [(stamp, length, table, rowid) for stamp, length, rowid in rows]
    connection.execute("BEGIN IMMEDIATE")
    for _, length, table, rowid in sorted(ages):
        if used <= goal:
            break
        connection.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (rowid,))
        used -= length
    connection.execute("COMMIT")
    connection.execute("PRAGMA incremental_vacuum").fetchall()


# ---- values --------------------------------------------------------------------------------------------------------


def _place(table: str, columns: Mapping[str, Any]) -> int:
    """Return a number for the place of a row, with which its checksum begins."""
    return zlib.crc32(repr((table, sorted(columns.items()))).encode(errors="surrogatepass"))


def _sealed(content: bytes, place: int) -> bytes:
    return zlib.crc32(content, place).to_bytes(_CHECKSUM_BYTES, "little") + content


def _encode(val: Any, place: int) -> bytes:
    return _sealed(_RAW + val if type(val) is bytes else _PICKLED + pickle.dumps(val, protocol=5), place)


def _decode(blob: Any, place: int) -> Any:
    if not isinstance(blob, bytes):
        return None
    content = memoryview(blob)[_CHECKSUM_BYTES:]
    if zlib.crc32(content, place).to_bytes(_CHECKSUM_BYTES, "little") != blob[:_CHECKSUM_BYTES]:
        return None
    kind = content[:1]
    if kind == _RAW:
        return bytes(content[1:])
    try:
        return _PlainUnpickler(io.BytesIO(content[1:])).load() if kind == _PICKLED else None
    except Exception:  # noqa: BLE001  a damaged row, or one of an older layout, may fail in any way: it is a miss
        return None


class _PlainUnpickler(pickle.Unpickler):
    """Loads builtin containers, a few value types of the standard library, and types that this package defines."""

    _ALLOWED: Final = frozenset({
        *(
            ("builtins", name)
            for name in ("complex", "set", "frozenset", "bytearray", "range", "slice", "tuple", "list")
        ),
        *(("builtins", name) for name in ("dict", "int", "float", "bool", "str", "bytes")),
        *(("collections", name) for name in ("OrderedDict", "defaultdict", "deque")),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
    })

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._ALLOWED:
            return super().find_class(module, name)
        if module.split(".")[0] == "tinygrad":
            found = super().find_class(module, name)
            owner = found if isinstance(found, type) else type(found)
            # Modules here import os, subprocess and others: what counts is where the class itself was defined.
            # Functions are refused, except those that exist to rebuild a pickled object.
            if owner.__module__.split(".")[0] == "tinygrad":
                return found
            if getattr(found, "__module__", None) == module and name.startswith("_unpickle"):
                return found
        raise pickle.UnpicklingError(f"diskcache: {module}.{name} is not allowed in the cache")


def diskcache(func: Callable[P, R]) -> Callable[P, R]:
    """Keep the results of a function on disk, by its arguments (which must pickle)."""
    table = "cache_" + re.sub(r"\W", "_", func.__qualname__)

    @functools.wraps(func)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        import hashlib

        key = hashlib.sha256(pickle.dumps((args, sorted(kwargs.items())))).hexdigest()
        stored = diskcache_get(table, key)
        # The result is kept in a tuple, so that None can be one.
        if isinstance(stored, tuple) and len(stored) == 1:
            kept: R = stored[0]
            return kept
        result = func(*args, **kwargs)
        diskcache_put(table, key, (result,))
        return result

    return run
