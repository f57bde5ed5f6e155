"""Recording generated kernels and generating them again: test/external/process_replay."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad import Context, Tensor, dtypes
from tinygrad.codegen import do_to_program, to_program
from tinygrad.codegen.kernel_record import code_switches
from tinygrad.device import Device
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import KernelInfo, UOp

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "test" / "external" / "process_replay" / "process_replay.py"
PROGRAM = "from tinygrad import Tensor; x = Tensor([1.0, 2.0, 3.0]); print((x.exp() + x.sum()).tolist())"


@pytest.fixture(scope="module")
def replay() -> object:
    spec = importlib.util.spec_from_file_location("process_replay", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def kernel(scale: float) -> UOp:
    a, b = UOp.param(0, dtypes.float32, (64,), "CPU"), UOp.param(1, dtypes.float32, (64,), "CPU")
    i = UOp.range(64, 0, AxisType.LOOP)
    return UOp.sink(a.index(i).store(b.index(i) * scale).end(i), arg=KernelInfo(name="scale"))


def record_of(ast: UOp) -> dict:
    renderer = Device["CPU"].renderer
    source = do_to_program(ast, renderer).src[2].arg
    name = f"{type(renderer).__module__}.{type(renderer).__qualname__}"
    return {
        "name": "scale", "ast": ast, "options": (), "renderer": name, "target": renderer.target,
        "switches": code_switches(), "source": source,
    }  # fmt: skip


def test_the_same_code_generates_the_same_source(replay: object) -> None:
    assert replay.replay(record_of(kernel(3.0))).kind == "same"


def test_a_change_is_shown_as_a_diff(replay: object) -> None:
    record = record_of(kernel(3.0))
    outcome = replay.replay({**record, "source": record["source"].replace("scale", "scaled")})
    assert outcome.kind == "changed"
    assert "\n-" in outcome.text
    assert "\n+" in outcome.text
    assert "scaled" in outcome.text


def test_switches_are_part_of_a_record(replay: object) -> None:
    with Context(NOOPT=1):
        record = record_of(kernel(5.0))
    assert replay.replay(record).kind == "same"
    assert record["source"] != record_of(kernel(5.0))["source"]


def test_errors_are_outcomes(replay: object) -> None:
    assert replay.replay({**record_of(kernel(3.0)), "ast": UOp(Ops.NOOP)}).kind == "failed"
    assert replay.replay(None).kind == "unreadable"


def run(*arguments: object, database: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CACHEDB": str(database), **environment}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_record_and_compare(tmp_path: Path) -> None:
    database = tmp_path / "cache.db"
    recorded = run(SCRIPT, "record", "--", sys.executable, "-c", PROGRAM, database=database)
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout.startswith("[8.71")
    same = run(SCRIPT, "compare", "--strict", database=database)
    assert same.returncode == 0, same.stdout + same.stderr
    assert ", 0 changed, 0 failed, 0 unreadable" in same.stdout
    assert int(same.stdout.split("process replay: ")[1].split()[0]) >= 1
    # A record of another revision, as it were: its source says something else.
    change = (
        "from tinygrad.codegen.kernel_record import TABLE\n"
        "from tinygrad import diskcache\n"
        "table = diskcache._table_name(TABLE)\n"
        "key, blob = diskcache.db_connection().execute(f'SELECT key, val FROM \"{table}\"').fetchone()\n"
        "row = diskcache._decode(blob, diskcache._place(table, {'key': key}))\n"
        "diskcache.diskcache_put(TABLE, key, {**row, 'source': row['source'] + '; another line\\n'})"
    )
    assert run("-c", change, database=database).returncode == 0
    differs = run(SCRIPT, "compare", "--strict", database=database)
    assert differs.returncode == 1, differs.stdout
    assert "-; another line" in differs.stdout
    assert ", 1 changed, 0 failed" in differs.stdout


def test_nothing_recorded(tmp_path: Path) -> None:
    done = run(SCRIPT, "compare", database=tmp_path / "empty.db")
    assert done.returncode == 1
    assert "nothing was recorded" in done.stdout


def test_recording_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    import tinygrad.codegen.kernel_record as kernel_record

    rows = []
    monkeypatch.setattr(kernel_record, "diskcache_get", lambda *_: None)
    monkeypatch.setattr(kernel_record, "diskcache_put", lambda _, key, row: rows.append((key, row)))
    renderer = Device["CPU"].renderer
    to_program(kernel(11.0), renderer)
    assert rows == []
    with Context(CAPTURE_PROCESS_REPLAY=1):
        to_program(kernel(13.0), renderer)
        Tensor([1.0]).realize()
    ((key, row),) = [(key, row) for key, row in rows if row["name"] == "scale"]
    assert row["ast"].key.hex() in key
    assert "13" in row["source"] or "0x" in row["source"]
