"""Transposed accesses: copies beside each other and lanes apart change places in registers, for all widths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from test.helpers_ast import at, evaluate, kernel, loop, param, run_program, store
from tinygrad import Tensor
from tinygrad.codegen import to_program
from tinygrad.codegen.late.transpose import columns_of, pieces_of, runs
from tinygrad.codegen.late.values import Values
from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.pipeline import lower_to_source
from tinygrad.device import Device
from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import Context, Target
from tinygrad.renderer import Renderer
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.renderer.python import PythonRenderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

KINDS = {
    dtypes.int8: "i1", dtypes.bool: "?", dtypes.float16: "f2", dtypes.int16: "i2", dtypes.float32: "f4",
    dtypes.int32: "i4", dtypes.float64: "f8", dtypes.int64: "i8",
}  # fmt: skip
WIDTHS = {"x86-64": 16, "x86-64-v3": 32, "x86-64-v4": 64}
NETWORKS = [(n, p, b) for n, p, b in itertools.product((2, 4, 8, 16, 32), repeat=3) if p <= b <= n]


def lanes_of(vector: UOp) -> tuple[object, ...]:
    """Return what the lanes of a vector of shuffles are in the end."""
    if vector.op is not Ops.STACK:
        return tuple((vector.arg, i) for i in range(vector.src[0].arg))
    every = [lane for s in vector.src for lane in lanes_of(s)]
    return tuple(every[i] for i in vector.arg)


def vectors(values: Values, number: int, lanes: int) -> list[UOp]:
    """Return vectors that are told apart by their numbers."""
    size = UOp.const(lanes, dtypes.weakint)
    made = [UOp(Ops.CUSTOM, dtypes.float32, (size,), i) for i in range(number)]
    values.width.update(dict.fromkeys(made, lanes))
    return made


@pytest.mark.parametrize(("rows", "columns", "block"), NETWORKS)
def test_columns_of_pieces(rows: int, columns: int, block: int) -> None:
    values = Values(dtypes.int64)
    found = columns_of(values, vectors(values, rows, columns), columns, block)
    assert [lanes_of(v) for v in found] == [tuple((r, c) for r in range(rows)) for c in range(columns)]


@pytest.mark.parametrize(("rows", "columns", "block"), NETWORKS)
def test_pieces_of_columns(rows: int, columns: int, block: int) -> None:
    values = Values(dtypes.int64)
    found = pieces_of(values, vectors(values, columns, rows), block)
    assert [lanes_of(v) for v in found] == [tuple((c, r) for c in range(columns)) for r in range(rows)]


def test_runs_are_powers_of_two_of_neighbours() -> None:
    assert runs([0, 1, 2, 3, 4, 5, 6], 4) == [(0, 4), (4, 2), (6, 1)]
    assert runs([0, 2, 3, 9], 8) == [(0, 1), (1, 2), (3, 1)]
    assert runs([], 8) == []


def numbers(size: int, dtype: DType) -> np.ndarray:
    """Return distinct small numbers, as far as the dtype has them."""
    return np.arange(size).astype(KINDS[dtype]) if dtype is not dtypes.bool else np.arange(size) % 3 == 0


def transposing(rows: int, columns: int, dtype: DType, masked: str, is_store: bool) -> UOp:
    """Return out[c, r] = x[r, c], lanes along r and copies along c; stores are transposed if ``is_store``."""
    r, c = loop(rows, 1), loop(columns, 0)
    far, near = r * (columns + 3) + c, c * rows + r
    gate = {
        "": None,
        "lanes": r < rows - 1,
        "copies": c < columns - 1,
        "both": (r < rows - 2) & (c < columns - 1),
        "corner": r + c < rows + columns - 4,
    }[masked]
    size = rows * (columns + 3)
    if is_store:
        return at(param(0, size, dtype), far, gate).store(at(param(1, rows * columns, dtype), near)).end(c, r)
    return store(param(0, rows * columns, dtype), near, at(param(1, size, dtype), far, gate), c, r)


def renderers() -> dict[str, Renderer]:
    """Return targets that run here: the narrowest, the widest, and this processor's."""
    found: dict[str, Renderer] = {
        f"PYTHON vec{n}": PythonRenderer(Target(device="PYTHON", arch=f"vec{n}")) for n in (16, 32, 64)
    }
    return {**found, "CPU": Device["CPU"].renderer}


RENDERERS = renderers()


@pytest.mark.parametrize("masked", ["", "lanes", "copies", "both", "corner"])
@pytest.mark.parametrize("is_store", [False, True], ids=["load", "store"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("target", RENDERERS)
def test_values(target: str, dtype: DType, is_store: bool, masked: str) -> None:
    renderer = RENDERERS[target]
    for lanes, copies in ((2, 4), (8, 3), (8, 16), (renderer.vector_bytes // dtype.itemsize, 7)):
        rows = 2 * lanes
        steps = Opt(OptOps.VECTOR, 1, lanes), Opt(OptOps.UPCAST, 0, 0)
        sink = transposing(rows, copies, dtype, masked, is_store)
        size = rows * (copies + 3)
        out, x = (size, rows * copies) if is_store else (rows * copies, size)
        arrays = {0: np.zeros_like(numbers(out, dtype)), 1: numbers(x, dtype)}
        wanted = evaluate(kernel(sink), arrays)[0]
        got = run_program(to_program(kernel(sink, opts=steps), renderer), target.split()[0], arrays)[0]
        np.testing.assert_array_equal(got, wanted, err_msg=f"{lanes} lanes, {copies} copies")


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("is_store", [False, True], ids=["load", "store"])
@pytest.mark.parametrize("level", WIDTHS)
def test_rows_are_accessed_as_vectors(level: str, is_store: bool, dtype: DType) -> None:
    renderer = LLVMRenderer(Target.parse(f"CPU:LLVM:x86_64,{level}"))
    lanes = max(4, WIDTHS[level] // dtype.itemsize)
    steps = Opt(OptOps.VECTOR, 1, lanes), Opt(OptOps.UPCAST, 0, 16)
    sink = kernel(transposing(lanes, 16, dtype, "", is_store), opts=steps)
    text = lower_to_source(sink, renderer).src[-1].arg
    assert len(renderer.compiler.compile(text)) > 0
    kind, piece = {2: "half", 4: "float", 8: "double"}[dtype.itemsize], 16 // dtype.itemsize
    accesses = text.count("store " if is_store else "= load ") - (0 if is_store else 2)  # two pointers of arguments
    assert accesses == text.count(f"{'store' if is_store else 'load'} <{piece} x {kind}>") == 16 * lanes // piece
    assert "insertelement" not in text
    assert "extractelement" not in text


SIZES = [(1, 7), (7, 1), (3, 64), (65, 5), (13, 31), (16, 16), (33, 12)]


@pytest.mark.parametrize("dev", ["CPU", "PYTHON::vec32", "PYTHON::vec64"])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.bool, dtypes.float16, dtypes.float32, dtypes.int64], ids=str)
def test_tensors(dev: str, dtype: DType) -> None:
    with Context(DEV=dev):
        for rows, columns in SIZES:
            a = numbers(rows * columns, dtype).reshape(rows, columns)
            b = np.ascontiguousarray(a.T)[::-1].copy()
            x, y = Tensor(a), Tensor(b)
            for got, wanted in (
                (x.T, a.T),
                (x.flip((0, 1)).T, a[::-1, ::-1].T),
                (x.pad(((1, 2), (0, 3))).T, np.pad(a, ((1, 2), (0, 3))).T),
                (x.T.eq(y), b == a.T),
                (x.T | y if dtype is dtypes.bool else x.T + y, a.T | b if dtype is dtypes.bool else a.T + b),
            ):
                np.testing.assert_array_equal(got.contiguous().numpy(), wanted, err_msg=f"{rows}x{columns}")


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 17, 4, 4), (1, 16, 9, 2), (2, 64, 7, 7), (5, 1, 33, 1)])
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1)])
def test_orders_of_four_axes(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(Tensor(a).permute(order).contiguous().numpy(), a.transpose(order))


@pytest.mark.parametrize("shape", [(1024, 40), (1030, 33), (2051, 17), (1536, 5)])
def test_many_rows_are_walked_in_blocks(shape: tuple[int, int]) -> None:
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = Tensor(a).realize()
    np.testing.assert_array_equal(x.T.contiguous().numpy(), a.T)
    # A kernel that reads what it writes runs no iteration twice.
    y = Tensor(np.ascontiguousarray(a.T)).realize()
    y.assign(y + x.T).realize()
    np.testing.assert_array_equal(y.numpy(), 2 * a.T)


def test_copies_under_gates_read_no_further() -> None:
    """One copy's gate excludes an element before the buffer; PYTHON checks that no vector reaches it."""
    array = np.random.default_rng(0).standard_normal((2, 2, 4, 3)).astype(np.float32)
    u, s, v = Tensor(array, device="PYTHON").svd(full_matrices=False)
    np.testing.assert_allclose(((u * s.unsqueeze(-2)) @ v).numpy(), array, rtol=1e-4, atol=1e-4)
