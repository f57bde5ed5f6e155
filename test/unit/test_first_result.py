"""What a first small program waits for: no module that it does not need, native code that is compiled meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HELLO = "from tinygrad import Tensor\nassert (Tensor([1, 2, 3]) + 1).tolist() == [2, 3, 4]\n"


def run(code: str, cache: Path, **variables: str) -> str:
    """Return what a new process prints whose disk cache is in ``cache``."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "CACHEDB": str(cache / "cache.db"), "DEV": "CPU"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("device", ["CPU", ""], ids=["DEV=CPU", "a device that is looked for"])
def test_modules_that_take_long_to_import_stay_out(device: str, tmp_path: Path) -> None:
    loaded = set(run(HELLO + "import sys; print(*sys.modules)", tmp_path, DEV=device).split())
    searching = {f"tinygrad.codegen.opt.{name}" for name in ("search", "measure", "samples")}
    assert not loaded & {"numpy", "difflib", "multiprocessing", "asyncio", *searching}
    assert not loaded & {"dataclasses", "inspect", "ast", "platform", "subprocess"}


@pytest.mark.parametrize("cache", ["CACHELEVEL=0", "cold", "warm"])
def test_native_code_is_there_whatever_the_cache_holds(cache: str, tmp_path: Path) -> None:
    if cache == "warm":
        run(HELLO, tmp_path)
    run(HELLO * 2, tmp_path, CACHELEVEL="0" if cache == "CACHELEVEL=0" else "2")


def test_only_a_cold_cache_takes_a_thread(tmp_path: Path) -> None:
    code = """
import threading
started, start = [], threading.Thread.start
threading.Thread.start = lambda thread: (started.append(thread.name), start(thread))
from tinygrad import Device
Device["CPU"], Device["CPU:1"]
print(started)
"""
    assert [run(code, tmp_path).strip() for _ in range(2)] == ["['native code of the CPU']", "[]"]


@pytest.mark.parametrize("device", ["CPU", ""], ids=["DEV=CPU", "a device that is looked for"])
def test_the_thread_works_while_the_first_kernel_is_scheduled(device: str, tmp_path: Path) -> None:
    code = f"""
import threading
from tinygrad import Tensor, schedule
started, start, plan = [], threading.Thread.start, schedule.create_linear_with_vars
threading.Thread.start = lambda thread: (started.append(thread.name), start(thread))
schedule.create_linear_with_vars = lambda sink: (print(started), plan(sink))[1]
{HELLO}"""
    assert run(code, tmp_path, DEV=device).strip() == "['native code of the CPU']"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_that_is_forked_while_native_code_is_compiled(tmp_path: Path) -> None:
    code = f"""
import os
from tinygrad import Device
Device["CPU"]
child = os.fork()
{HELLO}
if child == 0:
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run(code, tmp_path).strip() == "7"


def test_without_a_compiler_the_error_comes_from_the_kernel(tmp_path: Path) -> None:
    code = """
from tinygrad.runtime.support import compiler_llvm
compiler_llvm._library_path = lambda: None
from tinygrad import Device, Tensor
Device["CPU"]
try:
    (Tensor([1, 2, 3]) + 1).tolist()
except Exception as error:
    print("llvmlite is not installed" in str(error))
"""
    assert run(code, tmp_path).strip() == "True"
