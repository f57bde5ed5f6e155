"""Running linear programs on the CPU, and comparing what they write bit by bit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tinygrad.device import TinyELF
from tinygrad.renderer import Renderer
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.runtime.ops_cpu import CPUDevice, CPUMemory, CPUProgram
from tinygrad.runtime.support.compiler_clang import ClangCompiler
from tinygrad.uop.ops import UOp

DEVICE = CPUDevice("CPU")


def clang_renderer() -> ClangRenderer:
    renderer = ClangRenderer()
    command = shutil.which("clang") or shutil.which("gcc")
    if command is None:
        pytest.skip("no C compiler here")
    renderer.compiler = ClangCompiler(renderer.arch, command)
    return renderer


def build(uops: Sequence[UOp], renderer: Renderer | None = None) -> CPUProgram:
    renderer = renderer or LLVMRenderer()
    name = uops[-1].arg.name
    return CPUProgram(DEVICE, TinyELF(renderer.compiler.compile_cached(renderer.render(uops)), name))


def memory(array: np.ndarray) -> CPUMemory:
    return CPUMemory(array.ctypes.data, array.nbytes, array)


def run(
    uops: Sequence[UOp], *arrays: np.ndarray, renderer: Renderer | None = None, n: int = 1, vals: Sequence[int] = ()
) -> None:
    build(uops, renderer)(*map(memory, arrays), global_size=(n, 1, 1), vals=vals)


def assert_same(got: np.ndarray, want: np.ndarray, operands: Sequence[Any]) -> None:
    """Compare bit by bit, except that every NaN equals every other."""
    both_nan = (got != got) & (want != want)
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[got.itemsize]
    wrong = np.flatnonzero((got.view(bits) != want.view(bits)) & ~both_nan)
    assert not len(wrong), (
        f"{len(wrong)} wrong, first: {[x[wrong[0]] for x in operands]} gives {got[wrong[0]]}, not {want[wrong[0]]}"
    )
