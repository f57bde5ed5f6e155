"""Matmuls as kernels, their operands as small integers, and their results by numpy."""

from __future__ import annotations

import numpy as np

from test.helpers_ast import at, kernel, loop, param, red, run_program, store
from tinygrad import dtypes
from tinygrad.codegen import do_to_program
from tinygrad.device import Device
from tinygrad.dtype import DType
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def matmul(m: int, n: int, k: int, layout: str = "nn", batch: int = 1, dtype: DType = dtypes.float32) -> UOp:
    """Return the kernel c[b, i, j] = sum over k of a * b; layout tells which operands are transposed."""
    b, i, j, t = loop(batch, 0), loop(m, 1), loop(n, 2), red(k, 3)
    left = at(param(1, batch * m * k, dtype), b * (m * k) + (i * k + t if layout[0] == "n" else t * m + i))
    right = at(param(2, batch * n * k, dtype), b * (n * k) + (t * n + j if layout[1] == "n" else j * k + t))
    total = UOp(Ops.REDUCE, dtype, (left * right, t), (Ops.ADD, ()))
    return kernel(store(param(0, batch * m * n, dtype), b * (m * n) + i * n + j, total, b, i, j))


def operands(m: int, n: int, k: int, layout: str, batch: int = 1, dtype: type = np.float32) -> dict[int, np.ndarray]:
    """Return operands and a result full of something else, by slot."""
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    sides = [rng.integers(-4, 5, (batch, *shape)).astype(dtype) for shape in ((m, k), (k, n))]
    flat = [s if x == "n" else s.transpose(0, 2, 1) for s, x in zip(sides, layout, strict=True)]
    result = np.full(batch * m * n, 77, dtype)
    return {0: result, **{i + 1: np.ascontiguousarray(x).ravel() for i, x in enumerate(flat)}}


def expected(m: int, n: int, k: int, layout: str, batch: int, arrays: dict[int, np.ndarray]) -> np.ndarray:
    """Return the result by numpy."""
    shapes = [(m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)]
    left, right = (arrays[i + 1].reshape(batch, *s) for i, s in enumerate(shapes))
    left = left if layout[0] == "n" else left.transpose(0, 2, 1)
    right = right if layout[1] == "n" else right.transpose(0, 2, 1)
    return (left @ right).ravel()


def run(sink: UOp, arrays: dict[int, np.ndarray], device: str = "CPU") -> tuple[np.ndarray, UOp]:
    """Compile without caches and run; returns buffer 0 and the program."""
    program = do_to_program(sink, Device[device].renderer)
    return run_program(program, device, arrays)[0], program
