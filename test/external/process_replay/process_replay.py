"""Compare the kernels that this revision generates with those of another one.

In:   records in the cache database, made with CAPTURE_PROCESS_REPLAY=1 (``tinygrad/codegen/kernel_record.py``).
Out:  a diff of the source of every kernel that comes out differently, and a line of counts.
Why:  a refactoring that claims to change nothing can prove it.

Commands (see README.md in this folder):
    process_replay.py record -- COMMAND...        run a command and keep the kernels that it generates
    process_replay.py compare                     generate them again with the present code
    process_replay.py against REVISION -- COMMAND...   record at a git revision, compare with the present code
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
MARK = "[pr]"


@dataclass(frozen=True)
class Outcome:
    """What became of one record: ``kind`` is same, changed, failed or unreadable."""

    kind: str
    name: str
    text: str = ""


def records() -> Iterator[dict[str, Any] | None]:
    """Yield the rows that were recorded, oldest first; None for one that this revision cannot read."""
    import sqlite3

    from tinygrad import diskcache
    from tinygrad.codegen.kernel_record import TABLE

    table = diskcache._table_name(TABLE)
    query = f'SELECT key, val FROM "{table}" ORDER BY stamp'
    try:
        rows = diskcache.db_connection().execute(query).fetchall()
    except sqlite3.OperationalError:
        return
    for key, blob in rows:
        yield diskcache._decode(blob, diskcache._place(table, {"key": key}))


def clear() -> None:
    """Forget all records."""
    import contextlib
    import sqlite3

    from tinygrad import diskcache
    from tinygrad.codegen.kernel_record import TABLE

    with contextlib.suppress(sqlite3.OperationalError):
        diskcache.db_connection().execute(f'DROP TABLE "{diskcache._table_name(TABLE)}"')


def regenerate(record: dict[str, Any]) -> str:
    """Return the source that the present code generates for a record."""
    from tinygrad.codegen import do_to_program
    from tinygrad.device import Compiler
    from tinygrad.settings import Context, ContextVar

    module, _, name = record["renderer"].rpartition(".")
    renderer = getattr(importlib.import_module(module), name)(record["target"])
    renderer.compiler = Compiler()  # only the text is wanted
    ast = record["ast"]
    if record["switches"].get("BEAM"):  # a search does not come out the same twice: take what it found then
        ast = ast.replace(arg=replace(ast.arg, opts_to_apply=record["options"], beam=0))
    switches = {key: value for key, value in record["switches"].items() if key in ContextVar.registry}
    with Context(**{**switches, "BEAM": 0}):
        return str(do_to_program(ast, renderer).src[2].arg)


def replay(record: dict[str, Any] | None) -> Outcome:
    """Generate one kernel again and compare."""
    if record is None:
        return Outcome("unreadable", "?", "the record was made by a revision whose graphs this one cannot read\n")
    name = record["name"]
    try:
        source = regenerate(record)
    except Exception as error:  # noqa: BLE001  whatever a changed compiler raises is the result of the comparison
        return Outcome("failed", name, f"{type(error).__name__}: {error}\n")
    if source == record["source"]:
        return Outcome("same", name)
    lines = difflib.unified_diff(
        record["source"].splitlines(keepends=True),
        source.splitlines(keepends=True),
        f"recorded {name}",
        f"present {name}",
    )
    return Outcome("changed", name, "".join(lines))


def compare(limit: int, strict: bool) -> int:
    """Compare all records, print what differs, and return the exit status."""
    outcomes = [replay(record) for record in records()]
    counts = {kind: sum(o.kind == kind for o in outcomes) for kind in ("same", "changed", "failed", "unreadable")}
    for outcome in [o for o in outcomes if o.kind != "same"][:limit]:
        print(f"\n{outcome.kind}: {outcome.name}\n{outcome.text}", end="")
    if len(outcomes) - counts["same"] > limit:
        print(f"\n... and {len(outcomes) - counts['same'] - limit} more; --limit shows more")
    print(f"process replay: {len(outcomes)} kernels, " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    if not outcomes:
        print("nothing was recorded; run the program with CAPTURE_PROCESS_REPLAY=1 and the same CACHEDB first")
        return 1
    return int(strict and counts["same"] != len(outcomes))


def claims_no_change() -> bool:
    """Whether the subject of the present commit says that generated kernels stay the same."""
    done = subprocess.run(["git", "log", "-1", "--format=%s"], cwd=ROOT, capture_output=True, text=True, check=False)
    return MARK in done.stdout


def run_recorded(command: Sequence[str], cwd: Path, **environment: str) -> int:
    """Run a command that records its kernels."""
    env = {**os.environ, "CAPTURE_PROCESS_REPLAY": "1", **environment}
    return subprocess.run(command, cwd=cwd, env=env, check=False).returncode


def against(revision: str, command: Sequence[str], limit: int, strict: bool) -> int:
    """Record a command at a git revision, in a work tree of its own, and compare with the present code."""
    with tempfile.TemporaryDirectory() as folder:
        tree, database = Path(folder) / "tree", str(Path(folder) / "replay.db")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, revision], cwd=ROOT, check=True)
        try:
            status = run_recorded(command, tree, PYTHONPATH=str(tree), CACHEDB=database)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
        if status:
            print(f"process replay: the command failed at {revision} with status {status}")
            return status
        arguments = ["compare", "--limit", str(limit), *(["--strict"] if strict else [])]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "CACHEDB": database}
        return subprocess.run([sys.executable, __file__, *arguments], env=env, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="compare generated kernels between revisions")
    parser.add_argument("--limit", type=int, default=20, help="print this many differences (20)")
    parser.add_argument(
        "--strict", action="store_true", help=f"fail on differences; else only if HEAD's subject has {MARK}"
    )
    commands = parser.add_subparsers(dest="action", required=True)
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--limit", type=int)
    common.add_argument("--strict", action="store_true")
    record = commands.add_parser("record", parents=[common], help="run a command and keep its kernels")
    record.add_argument("command", nargs="+")
    commands.add_parser("compare", parents=[common], help="generate the recorded kernels with the present code")
    other = commands.add_parser("against", parents=[common], help="record at a revision, compare with the present code")
    other.add_argument("revision")
    other.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    strict = given.strict or claims_no_change()
    if given.action == "record":
        clear()
        return run_recorded(given.command, Path.cwd())
    if given.action == "against":
        return against(given.revision, given.command, given.limit, strict)
    return compare(given.limit, strict)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
