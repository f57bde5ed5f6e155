"""Code for processors with fewer features than this one: a part of the fuzzers' programs, run as they would run there.

The whole conformance suite for such a processor is one command:
``DEV=CPU:LLVM:x86_64,haswell python -m pytest -q test/backend test/unit/test_contractions.py``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "external"
LEVELS = {"x86-64": 16, "haswell": 32}  # bytes of a vector


def has(feature: str) -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and feature in cpuinfo.read_text().split()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64") or not has("avx2"), reason="needs an x86 with AVX2")
@pytest.mark.parametrize("script", ["fuzz_programs.py", "fuzz_schedules.py"])
@pytest.mark.parametrize("level", LEVELS)
def test_programs_for_processors_with_fewer_features(level: str, script: str) -> None:
    env = {**os.environ, "DEV": f"CPU:LLVM:x86_64,{level}"}
    command = [sys.executable, str(FOLDER / script), "--worker", "0", "--batch", "8"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 7" in done.stdout


@pytest.mark.parametrize("level", LEVELS)
def test_vectors_have_the_width_of_the_processor(level: str) -> None:
    code = "from tinygrad import Device; print(Device['CPU'].renderer.vector_bytes)"
    env = {**os.environ, "DEV": f"CPU:LLVM:x86_64,{level}"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
    assert int(shown) == LEVELS[level]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86")
@pytest.mark.parametrize("device", ["CPU", "NULL"])
def test_code_for_a_processor_with_more_features_is_compiled_and_not_run(device: str) -> None:
    """Running it would end the process: illegal instruction."""
    if has("amx_tile"):
        pytest.skip("this processor has them all")
    code = "from tinygrad import Tensor; (Tensor.empty(64, 64) @ Tensor.empty(64, 64)).realize()"
    env = {**os.environ, "DEV": f"{device}:LLVM:x86_64,sapphirerapids"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    if device == "NULL":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1
        assert "was compiled for x86_64,sapphirerapids, and this processor has no amx-bf16" in done.stderr


NAMES = [
    ("x86_64,haswel", "no processor 'haswel' of x86_64; did you mean 'haswell'?"),
    ("x86_64,nosuch", "no processor 'nosuch' of x86_64"),
    ("x86_64,cortex-a72", "no processor 'cortex-a72' of x86_64"),
    ("x86_64,native,-avx5", "no feature 'avx5' of x86_64"),
    ("x86_64,x86-64,+avx-2", "no feature 'avx-2' of x86_64; did you mean 'avx2'?"),
    ("aarch64,haswel", "no processor 'haswel' of aarch64"),
    ("x86_64,ivybridge,-avx", ""),
    ("aarch64,cortex-a72", ""),
]


@pytest.mark.parametrize(("arch", "message"), NAMES)
def test_names_that_llvm_does_not_know(arch: str, message: str) -> None:
    """LLVM itself ignores them, or ends the process where the code needs what the processor would have had."""
    code = "from tinygrad import Tensor; (Tensor.empty(8) * 2).realize()"
    env = {**os.environ, "DEV": f"NULL:LLVM:{arch}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == bool(message), done.stderr
    assert message in done.stderr
    assert "not a recognized" not in done.stderr
