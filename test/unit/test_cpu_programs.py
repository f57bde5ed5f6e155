"""The CPU's renderers on linear programs written by hand: values against the Python arithmetic of constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from test.helpers_cpu import assert_same, build, clang_renderer, memory, run
from test.helpers_linear import (
    add,
    at,
    const,
    end,
    iota,
    less,
    load,
    loop,
    mul,
    param,
    program,
    read,
    reduction,
    register,
    splat,
    store,
    variable,
)
from tinygrad.dtype import AddrSpace, DType, dtypes, truncate
from tinygrad.renderer import Renderer
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.runtime.ops_cpu import CPUMemory
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.alu import exec_alu
from tinygrad.uop.ops import UOp
from tinygrad.uop.records import ParamArg

_SAME_NAMES = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
NUMPY = {dtypes.bool: np.bool_, **{getattr(dtypes, name): getattr(np, name) for name in _SAME_NAMES.split()}}
INTS = [d for d in NUMPY if dtypes.is_int(d)]
FLOATS = [dtypes.float16, dtypes.float32, dtypes.float64]


@pytest.fixture(params=["llvm", "clang"])
def renderer(request: pytest.FixtureRequest) -> Renderer:
    return LLVMRenderer() if request.param == "llvm" else clang_renderer()


# ---- values of every operation


def samples(dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(1)
    kind = NUMPY[dtype]
    if dtype is dtypes.bool:
        values: list[Any] = [False, True]
    elif dtypes.is_int(dtype):
        values = [0, 1, 2, 3, 7, dtype.max, dtype.max - 1, dtype.min, dtype.min + 1, 100]
        values += [int(v) % (dtype.max + 1) for v in rng.integers(0, 2**40, 10)] + ([-1, -2, -7] if dtype.min else [])
    else:
        values = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, math.inf, -math.inf, math.nan, 1e-7, 6e4, 1e-5, 0.1, 3.0, -1e3]
        values += list(rng.normal(size=8)) + ([1e30, -1e-40] if dtype is not dtypes.float16 else [])
    with np.errstate(all="ignore"):
        return np.array(values).astype(kind)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    base = samples(dtype)
    n = len(base)
    x, y = np.repeat(base, n), np.tile(base, n)
    size = -(-len(x) // 16) * 16  # np.resize repeats from the start
    return np.resize(x, size), np.resize(y, size)


BINARY = [
    *(
        (op, d)
        for op in (Ops.ADD, Ops.MUL, Ops.SUB, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
        for d in [*INTS, *FLOATS]
    ),
    *((op, d) for op in (Ops.XOR, Ops.OR, Ops.AND) for d in [*INTS, dtypes.bool]),
    *((op, d) for op in (Ops.CDIV, Ops.CMOD, Ops.SHL, Ops.SHR) for d in INTS),
    *((op, dtypes.bool) for op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.MAX, Ops.ADD, Ops.MUL)),
    *((op, d) for op in (Ops.FDIV, Ops.CMOD) for d in FLOATS),
]


def elementwise(op: Ops, out: DType, sources: Sequence[DType], size: int, lanes: int) -> list[UOp]:
    i = loop(size // lanes, 0)
    index = mul(i, const(lanes))
    values = [load(param(k + 1, d, size), index, lanes if lanes > 1 else None) for k, d in enumerate(sources)]
    arg = out if op in (Ops.CAST, Ops.BITCAST) else None
    body = store(at(param(0, out, size), index), UOp(op, out, tuple(values), arg))
    return program(body, end(body, i))


def zero_sign_free(op: Ops, x: np.ndarray) -> np.ndarray:
    """Which of two zeros a maximum gives is not defined."""
    return x + 0.0 if op is Ops.MAX and x.dtype.kind == "f" else x


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("op", "dtype"), BINARY, ids=lambda v: getattr(v, "full_name", getattr(v, "name", v)))
def test_binary_operation(op: Ops, dtype: DType, lanes: int) -> None:
    x, y = pairs(dtype)
    if op in (Ops.SHL, Ops.SHR):
        keep = y >= 0
        x, y = x[keep][: keep.sum() // 16 * 16], y[keep][: keep.sum() // 16 * 16]
    out = dtypes.bool if op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ) else dtype
    want = np.array([exec_alu(op, out, pair) for pair in zip(x.tolist(), y.tolist(), strict=True)], NUMPY[out])
    got = np.zeros_like(want)
    run(elementwise(op, out, (dtype, dtype), len(x), lanes), got, x, y)
    assert_same(zero_sign_free(op, got), zero_sign_free(op, want), (x, y))


UNARY = [
    *((op, d) for op in (Ops.NEG, Ops.TRUNC, Ops.SQRT, Ops.RECIPROCAL) for d in FLOATS),
    *((Ops.NEG, d) for d in INTS),
]


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("op", "dtype"), UNARY, ids=lambda v: getattr(v, "full_name", getattr(v, "name", v)))
def test_unary_operation(op: Ops, dtype: DType, lanes: int) -> None:
    x, _ = pairs(dtype)
    want = np.array([exec_alu(op, dtype, (value,)) for value in x.tolist()], NUMPY[dtype])
    got = np.zeros_like(want)
    run(elementwise(op, dtype, (dtype,), len(x), lanes), got, x)
    assert_same(got, want, (x,))


def cast_samples(source: DType) -> np.ndarray:
    x = pairs(source)[0]
    if source in (dtypes.float32, dtypes.float64):
        edges = [2.0**k + s for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (-1, 0, 1)]
        halves = [
            1.0009765625,
            1.00048828125,
            1.000488281250001,
            65519.99999999,
            65520.0,
            2.0**-25,
            2.0**-25 * 1.0000001,
        ]
        extra = np.array([s * e for e in edges for s in (1, -1)] + halves).astype(NUMPY[source])
        x = np.concatenate([x, extra])
        x = np.resize(x, -(-len(x) // 16) * 16)
    return x


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("source", [*NUMPY], ids=lambda d: d.full_name)
def test_casts_to_all_dtypes(source: DType, lanes: int) -> None:
    x = cast_samples(source)
    for dtype, kind in NUMPY.items():
        want = np.array([truncate[dtype](float(v) if dtypes.is_float(dtype) else v) for v in x.tolist()], kind)
        got = np.zeros_like(want)
        run(elementwise(Ops.CAST, dtype, (source,), len(x), lanes), got, x)
        assert_same(got, want, (x,))


def test_c_renderer_agrees_with_llvm() -> None:
    clang = clang_renderer()
    integer = [(Ops.ADD, dtypes.int8), (Ops.CDIV, dtypes.int32), (Ops.CMOD, dtypes.uint64), (Ops.SHL, dtypes.int16)]
    floating = [(Ops.MAX, dtypes.float32), (Ops.MUL, dtypes.float16), (Ops.CMPLT, dtypes.float64)]
    for op, dtype in [*integer, (Ops.SHR, dtypes.int64), *floating]:
        x, y = pairs(dtype)
        y = np.abs(y) if op in (Ops.SHL, Ops.SHR) else y
        out = dtypes.bool if op is Ops.CMPLT else dtype
        results = []
        for renderer in (clang, LLVMRenderer()):
            results.append(np.zeros(len(x), NUMPY[out]))
            run(elementwise(op, out, (dtype, dtype), len(x), 4), results[-1], x, y, renderer=renderer)
        assert_same(results[0], results[1], (x, y))


def test_c_renderer_casts() -> None:
    clang = clang_renderer()
    for source in (dtypes.float64, dtypes.float16, dtypes.int32, dtypes.bool):
        x = cast_samples(source)
        for dtype in (dtypes.int8, dtypes.int32, dtypes.uint32, dtypes.uint64, dtypes.float16, dtypes.bool):
            want = np.array(
                [truncate[dtype](float(v) if dtypes.is_float(dtype) else v) for v in x.tolist()], NUMPY[dtype]
            )
            got = np.zeros_like(want)
            run(elementwise(Ops.CAST, dtype, (source,), len(x), 1), got, x, renderer=clang)
            assert_same(got, want, (x,))


def test_multiply_add_is_fused() -> None:
    x = np.array([1 + 2.0**-12], np.float32)
    got = np.zeros(1, np.float32)
    value = load(param(1, dtypes.float32, 1), const(0))
    fused = UOp(Ops.MULACC, dtypes.float32, (value, value, const(-(1 + 2.0**-11), dtypes.float32)))
    run(program(store(at(param(0, dtypes.float32, 1), const(0)), fused)), got, x)
    assert got[0] == np.float32(2.0**-24)  # the product alone rounds to 1 + 2**-11


def test_elementwise_code_is_not_contracted(renderer: Renderer) -> None:
    x = np.array([1 + 2.0**-12], np.float32)
    got = np.ones(1, np.float32)
    value = load(param(1, dtypes.float32, 1), const(0))
    difference = add(mul(value, value), const(-(1 + 2.0**-11), dtypes.float32))
    run(program(store(at(param(0, dtypes.float32, 1), const(0)), difference)), got, x, renderer=renderer)
    assert got[0] == 0.0


def test_bitcasts(renderer: Renderer) -> None:
    x = samples(dtypes.float32)
    for dtype in (dtypes.int32, dtypes.uint32):
        got = np.zeros(len(x), NUMPY[dtype])
        run(elementwise(Ops.BITCAST, dtype, (dtypes.float32,), len(x), 1), got, x, renderer=renderer)
        np.testing.assert_array_equal(got, x.view(NUMPY[dtype]))
    flags = np.array([True, False, True])
    got = np.zeros(3, np.uint8)
    run(elementwise(Ops.BITCAST, dtypes.uint8, (dtypes.bool,), 3, 1), got, flags, renderer=renderer)
    assert got.tolist() == [1, 0, 1]


# ---- memory


def test_masked_tail(renderer: Renderer) -> None:
    for dtype in (dtypes.float32, dtypes.bool, dtypes.int8, dtypes.float16, dtypes.float64):
        n, width = 37, 16
        i = loop(3, 0)
        index = mul(i, const(width))
        gate = less(add(splat(index, width), iota(width)), splat(const(n), width))
        value = load(param(1, dtype, n), index, width, splat(const(0, dtype), width), gate)
        body = store(at(param(0, dtype, n), index), value, gate)
        x = (np.arange(n) % 3).astype(NUMPY[dtype])
        guarded = np.full(n + 16, 1, NUMPY[dtype])
        run(program(body, end(body, i)), guarded, x, renderer=renderer)
        np.testing.assert_array_equal(guarded[:n], x)
        assert (guarded[n:] == 1).all()


def unmapped_address() -> int:
    return 64  # the first page is never mapped: touching it ends the process


def test_false_gates_touch_no_memory(renderer: Renderer) -> None:
    code = build(gated_copy(width=1), renderer)
    out = np.zeros(16, np.float32)
    nowhere = CPUMemory(unmapped_address(), 64)
    code(memory(out), nowhere, vals=(0,))
    assert (out == 7.0).all()
    source = np.arange(16, dtype=np.float32)
    code(memory(out), memory(source), vals=(1,))
    np.testing.assert_array_equal(out, source)
    wide = build(gated_copy(width=16), renderer)
    wide(memory(out), nowhere, vals=(0,))
    assert (out == 7.0).all()


def gated_copy(width: int) -> list[UOp]:
    flag = variable("flag")
    gate = less(const(0), flag)
    i = loop(16 // width, 0)
    index = mul(i, const(width))
    other = splat(const(7.0, dtypes.float32), width)
    value = load(param(1, dtypes.float32, 16), index, width if width > 1 else None, other, gate)
    body = store(at(param(0, dtypes.float32, 16), index), value)
    return program(body, end(body, i))


def test_gated_store(renderer: Renderer) -> None:
    i = loop(10, 0)
    gate = UOp(Ops.CMPNE, dtypes.bool, (UOp(Ops.CMOD, dtypes.int64, (i, const(3))), const(0)))
    body = store(at(param(0, dtypes.int32, 10), i), UOp(Ops.CAST, dtypes.int32, (i,), dtypes.int32), gate)
    got = np.full(10, -1, np.int32)
    run(program(body, end(body, i)), got, renderer=renderer)
    assert got.tolist() == [k if k % 3 else -1 for k in range(10)]


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.float16, dtypes.int64, dtypes.uint8, dtypes.bool], ids=lambda d: d.full_name
)
def test_gather_and_scatter(dtype: DType, renderer: Renderer) -> None:
    order = np.array([3, 0, 7, 7, 1, 2, 5, 4], np.int64)
    lanes = load(param(2, dtypes.int64, 8), const(0), 8)
    gate = UOp(Ops.CMPNE, dtypes.bool, (lanes, splat(const(5), 8)))
    value = load(param(1, dtype, 8), lanes, None, splat(const(0, dtype), 8), gate)
    gathered = store(at(param(0, dtype, 16), const(0)), value)
    scattered = store(at(param(0, dtype, 16), add(lanes, splat(const(8), 8))), value, gate)
    x = np.array([1, 0, 1, 1, 0, 1, 0, 1] if dtype is dtypes.bool else np.arange(1, 9)).astype(NUMPY[dtype])
    got = np.zeros(16, NUMPY[dtype])
    run(program(gathered, scattered), got, x, order, renderer=renderer)
    want = np.where(order != 5, x[order], 0).astype(NUMPY[dtype])
    np.testing.assert_array_equal(got[:8], want)
    scatter = np.zeros(8, NUMPY[dtype])
    for lane, place in enumerate(order):
        if place != 5:
            scatter[place] = want[lane]
    np.testing.assert_array_equal(got[8:], scatter)


def test_ungated_gather(renderer: Renderer) -> None:
    lanes = mul(iota(16), splat(const(3), 16))
    body = store(at(param(0, dtypes.float32, 16), const(0)), load(param(1, dtypes.float32, 48), lanes))
    x, got = np.arange(48, dtype=np.float32), np.zeros(16, np.float32)
    run(program(body), got, x, renderer=renderer)
    np.testing.assert_array_equal(got, x[::3])


def test_scratch_memory(renderer: Renderer) -> None:
    scratch = UOp(Ops.BUFFER, dtypes.int32, (), ParamArg(0, dtypes.int32, (8,), addrspace=AddrSpace.LOCAL))
    i, j = loop(8, 0), loop(8, 1)
    fill = end(store(at(scratch, i), load(param(1, dtypes.int32, 8), i)), i)
    backwards = add(const(7), mul(j, const(-1)))
    copy = end(
        store(at(param(0, dtypes.int32, 8), j), load(UOp(Ops.AFTER, dtypes.int32, (scratch, fill)), backwards)), j
    )
    x, got = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    run(program(fill, copy), got, x, renderer=renderer)
    np.testing.assert_array_equal(got, x[::-1])


def test_shuffles(renderer: Renderer) -> None:
    a, b = (load(param(k, dtypes.float32, 4), const(0), 4) for k in (1, 2))
    take = lambda v, i: UOp(Ops.INDEX, dtypes.float32, (v, const(i)))  # noqa: E731
    interleaved = UOp(Ops.STACK, dtypes.float32, tuple(take(v, i) for i in range(4) for v in (a, b)))
    mixed = UOp(Ops.STACK, dtypes.float32, (take(a, 3), const(9.0, dtypes.float32), take(b, 0), take(a, 3)))
    same = UOp(Ops.STACK, dtypes.float32, tuple(take(a, i) for i in range(4)))
    out = param(0, dtypes.float32, 16)
    x, y, got = np.arange(4, dtype=np.float32), np.arange(10, 14, dtype=np.float32), np.zeros(16, np.float32)
    stores = [store(at(out, const(i)), value) for i, value in ((0, interleaved), (8, mixed), (12, same))]
    run(program(*stores), got, x, y, renderer=renderer)  # fmt: skip
    assert got.tolist() == [0, 10, 1, 11, 2, 12, 3, 13, 3, 9, 10, 3, 0, 1, 2, 3]


def test_transpose_of_four_vectors(renderer: Renderer) -> None:
    rows = [load(param(1, dtypes.float32, 16), const(4 * r), 4) for r in range(4)]
    columns = [
        UOp(Ops.STACK, dtypes.float32, tuple(UOp(Ops.INDEX, dtypes.float32, (r, const(c))) for r in rows))
        for c in range(4)
    ]
    out = param(0, dtypes.float32, 16)
    x, got = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    run(program(*(store(at(out, const(4 * c)), column) for c, column in enumerate(columns))), got, x, renderer=renderer)
    np.testing.assert_array_equal(got.reshape(4, 4), x.reshape(4, 4).T)


# ---- loops and registers


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize(
    ("op", "start", "function"), [(Ops.ADD, 0, np.sum), (Ops.MUL, 1, np.prod), (Ops.MAX, -100, np.max)]
)
def test_reduction(op: Ops, start: Any, function: Any, width: int, renderer: Renderer) -> None:
    for dtype in (dtypes.int32, dtypes.float32):
        x = np.array([1, -2, 3, 1, 2, -1, 1, 2] * 3, NUMPY[dtype])
        got = np.zeros(1, NUMPY[dtype])
        run(reduction(op, dtype, len(x) // width, len(x), start, width), got, x, renderer=renderer)
        assert got[0] == function(x)


@pytest.mark.parametrize("position", [0, 5, 23])
def test_maximum_keeps_nan(position: int, renderer: Renderer) -> None:
    x = np.arange(24, dtype=np.float32)
    x[position] = np.nan
    for width in (1, 8):
        got = np.zeros(1, np.float32)
        run(reduction(Ops.MAX, dtypes.float32, 24 // width, 24, -math.inf, width), got, x, renderer=renderer)
        assert np.isnan(got[0])


def test_loop_of_a_variable_may_run_zero_times(renderer: Renderer) -> None:
    code = build(reduction(Ops.ADD, dtypes.int32, variable("n"), 24, 5), renderer)
    x, got = np.arange(24, dtype=np.int32), np.zeros(1, np.int32)
    for n in (0, 1, 24):
        code(memory(got), memory(x), vals=(n,))
        assert got[0] == 5 + x[:n].sum()


def test_nested_loops_and_epilogue(renderer: Renderer) -> None:
    """Softmax's shape: per row a maximum, then a sum that needs it, then the result."""
    rows, cols = 3, 8
    x_param, out = param(1, dtypes.float32, rows * cols), param(0, dtypes.float32, rows * cols)
    r, j, k, m = loop(rows, 0, AxisType.THREAD), loop(cols, 1), loop(cols, 2), loop(cols, 3)
    base = mul(r, const(cols))
    top, total = register(0, dtypes.float32), register(1, dtypes.float32)
    s1 = store(top, const(-math.inf, dtypes.float32))
    s2 = store(top, UOp(Ops.MAX, dtypes.float32, (read(top, s1, j), load(x_param, add(base, j)))))
    e1 = end(s2, j)
    biggest = read(top, e1)
    s3 = store(total, const(0.0, dtypes.float32))
    centred = UOp(Ops.SUB, dtypes.float32, (load(x_param, add(base, k)), biggest))
    s4 = store(total, add(read(total, s3, k), mul(centred, centred)))
    e2 = end(s4, k)
    s5 = store(at(out, add(base, m)), UOp(Ops.FDIV, dtypes.float32, (load(x_param, add(base, m)), read(total, e2))))
    e3 = end(s5, m)
    uops = program(r, base, s1, e1, s3, e2, e3, end(e3, r))
    x = np.random.default_rng(0).normal(size=(rows, cols)).astype(np.float32)
    want = x / ((x - x.max(1, keepdims=True)) ** 2).sum(1, keepdims=True)
    got = np.zeros_like(x)
    run(uops, got, x, renderer=renderer, n=rows)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_registers_across_a_branch(renderer: Renderer) -> None:
    count = register(0, dtypes.int32)
    s0 = store(count, const(0, dtypes.int32))
    i = loop(10, 0)
    value = load(param(1, dtypes.int32, 10), i)
    branch = UOp(Ops.IF, dtypes.void, (less(const(4, dtypes.int32), value),))
    s1 = store(count, add(read(count, s0, i, branch), const(1, dtypes.int32)))
    close = UOp(Ops.ENDIF, dtypes.void, (branch, s1))
    done = end(close, i)
    uops = program(
        s0, i, value, branch, s1, close, done, store(at(param(0, dtypes.int32, 1), const(0)), read(count, done))
    )
    x, got = np.arange(10, dtype=np.int32), np.zeros(1, np.int32)
    run(uops, got, x, renderer=renderer)
    assert got[0] == 5


def test_register_array(renderer: Renderer) -> None:
    array = UOp(Ops.BUFFER, dtypes.int32, (), ParamArg(0, dtypes.int32, (4,), addrspace=AddrSpace.REG))
    i, j = loop(4, 0), loop(4, 1)
    fill = end(store(at(array, i), UOp(Ops.CAST, dtypes.int32, (mul(i, i),), dtypes.int32)), i)
    copy = end(store(at(param(0, dtypes.int32, 4), j), load(UOp(Ops.AFTER, dtypes.int32, (array, fill)), j)), j)
    got = np.zeros(4, np.int32)
    run(program(fill, copy), got, renderer=renderer)
    assert got.tolist() == [0, 1, 4, 9]
