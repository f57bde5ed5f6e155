"""Matmuls as kernels, their operands as small integers, and their results by numpy."""

from __future__ import annotations

import numpy as np

from test.helpers_ast import at, kernel, loop, param, red, run_program, store
from tinygrad import dtypes
from tinygrad.codegen import do_to_program
from tinygrad.device import Device
from tinygrad.dtype import DType
from tinygrad.helpers import Context
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


def results_by_threads(m: int, n: int, k: int) -> list[bytes]:
    """Return the bytes of a product of random numbers, computed by one, two and three threads."""
    rng = np.random.default_rng(2)
    a, b = rng.random((m, k), dtype=np.float32), rng.random((k, n), dtype=np.float32)
    results = []
    for threads in (1, 2, 3):
        with Context(NUM_CPU_THREADS=threads):
            arrays = {0: np.zeros(m * n, np.float32), 1: a.ravel(), 2: b.ravel()}
            results.append(run(matmul(m, n, k), arrays)[0].tobytes())
    return results


def check_masks_and_an_epilogue(m: int, n: int, k: int, inner: int) -> UOp:
    """Check relu(a @ pad(b) + bias), where the load of b is masked and the bias broadcast; returns the program."""
    i, j, t = loop(m, 0), loop(n, 1), red(k, 2)
    product = at(param(1, m * k), i * k + t) * at(param(2, inner * n), t * n + j, t < inner)
    total = UOp(Ops.REDUCE, dtypes.float32, (product, t), (Ops.ADD, ()))
    value = (total + at(param(3, n), j)).maximum(0)
    rng = np.random.default_rng(3)
    arrays = {s: rng.integers(-3, 4, size).astype(np.float32) for s, size in enumerate((m * n, m * k, inner * n, n))}
    got, program = run(kernel(store(param(0, m * n), i * n + j, value, i, j)), arrays)
    left, right = arrays[1].reshape(m, k)[:, :inner], arrays[2].reshape(inner, n)
    np.testing.assert_array_equal(got.reshape(m, n), np.maximum(left @ right + arrays[3], 0))
    return program
