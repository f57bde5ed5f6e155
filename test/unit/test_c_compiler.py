"""Kernels as C: a part of the conformance suite, compiled by the C compiler of the system.

The whole suite for it is one command: ``CC=gcc DEV=CPU:CLANG python -m pytest -q test/backend``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("clang") or shutil.which("gcc")
SELECTION = {
    "the smallest programs and every operation": ["test/test_tiny.py", "test/test_uops.py"],
    "reductions of every dtype": ["test/backend/test_dtypes.py", "-k", "test_reductions"],
    "softmax and losses": ["test/backend/test_ops_nn.py", "-k", "softmax or cross_entropy"],
}


@pytest.mark.skipif(COMPILER is None, reason="neither clang nor gcc is installed")
@pytest.mark.parametrize("part", SELECTION)
def test_programs_compiled_from_c(part: str) -> None:
    env = {**os.environ, "DEV": "CPU:CLANG", "CC": str(COMPILER)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTION[part]]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
