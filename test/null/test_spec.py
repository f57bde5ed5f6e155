"""What each border accepts and rejects, and what the error says."""

from __future__ import annotations

import pytest

from tinygrad.dtype import AddrSpace, Invalid, dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp
from tinygrad.uop.render import pyrender
from tinygrad.uop.spec import (
    eval_pyrender,
    spec_full,
    spec_kernel,
    spec_optimized,
    spec_program,
    spec_tensor,
    type_verify,
)


def node(op: Ops, *src: UOp, arg=None, dtype=None) -> UOp:
    return UOp(op, dtype, src, arg)


def kernel(value=None, size: int = 16, gate: UOp | None = None) -> UOp:
    out, x = (UOp.placeholder((16,), dtypes.float32, i) for i in range(2))
    r = UOp.range(size, 0, AxisType.LOOP)
    loaded = node(Ops.INDEX, x, r) if gate is None else node(Ops.INDEX, x, r, gate)
    value = node(Ops.EXP2, loaded) if value is None else value
    store = node(Ops.STORE, node(Ops.INDEX, out, r), value, dtype=dtypes.void)
    return UOp.sink(node(Ops.END, store, r, dtype=dtypes.void), arg=KernelInfo())


def program() -> list[UOp]:
    out, x = (UOp.placeholder((16,), dtypes.float32, i) for i in range(2))
    zero = UOp.const(0, dtypes.int32)
    at_x, at_out = node(Ops.INDEX, x, zero), node(Ops.INDEX, out, zero)
    vector = node(Ops.LOAD, at_x, arg=4)
    half = UOp.const(0.5, dtypes.float32)
    splat = node(Ops.STACK, half, half, half, half)
    scaled = node(Ops.MUL, vector, splat)
    total = node(Ops.REDUCE, scaled, arg=(Ops.ADD, (0,)))
    store = node(Ops.STORE, at_out, total, dtype=dtypes.void)
    return [out, x, zero, at_x, at_out, vector, half, splat, scaled, total, store, UOp.sink(store, arg=KernelInfo())]


def assert_rejected(graph, spec, why: str) -> None:
    with pytest.raises(RuntimeError, match=f"(?s)UOp verification failed.*{why}"):
        type_verify(graph, spec)


def test_legal_graphs_pass() -> None:
    type_verify(kernel(), spec_kernel)
    type_verify(kernel(), spec_optimized)
    type_verify(program(), spec_program)
    x = UOp.new_buffer("NULL", 12, dtypes.float32)._mop(Ops.RESHAPE, (3, 4))
    y = node(Ops.MUL, x, x)._rop(Ops.ADD, (1,))._mop(Ops.EXPAND, (3, 5))._mop(Ops.PAD, ((0, 1), (2, 2)))
    type_verify(UOp.sink(y), spec_tensor)
    type_verify(UOp.sink(y), spec_full)


def test_message_names_border_node_and_sources() -> None:
    bad = UOp(Ops.ADD, dtypes.float32, (UOp.const(1.0, dtypes.float32), UOp.const(1, dtypes.int32)))
    with pytest.raises(RuntimeError) as error:
        type_verify(UOp.sink(bad), spec_tensor)
    message = str(error.value)
    for part in (
        "UOp verification failed (tensor graph)",
        "ADD",
        "src[0]",
        "src[1]",
        "Operands have one dtype",
        "spec.py",
    ):
        assert part in message


@pytest.mark.parametrize(
    "bad",
    [
        UOp(Ops.CMPLT, dtypes.int32, (UOp.const(1, dtypes.int32),) * 2),
        UOp(Ops.WHERE, dtypes.int32, (UOp.const(1, dtypes.int32),) * 3),
        UOp(Ops.EXP2, dtypes.int32, (UOp.const(1, dtypes.int32),)),
        UOp(Ops.AND, dtypes.float32, (UOp.const(1.0, dtypes.float32),) * 2),
        UOp(Ops.SHL, dtypes.float32, (UOp.const(1.0, dtypes.float32), UOp.const(1, dtypes.int32))),
        UOp(Ops.THREEFRY, dtypes.uint32, (UOp.const(1, dtypes.uint32),) * 2),
        UOp(Ops.CAST, dtypes.int32, (UOp.const(1.0, dtypes.float32),), dtypes.int64),
        UOp(Ops.NEG, dtypes.float32, (UOp.const(1.0, dtypes.float32),) * 2),
    ],
    ids=lambda u: u.op.name,
)
def test_ill_typed_operations(bad: UOp) -> None:
    for spec in (spec_tensor, spec_kernel, spec_full):
        assert_rejected(UOp.sink(bad, arg=KernelInfo()), spec, bad.op.name)


def test_constants() -> None:
    type_verify(UOp.sink(UOp(Ops.CONST, dtypes.int32, (), Invalid)), spec_tensor)
    # constants coerce their argument when they are built, so a wrong one is made by hand
    bad = object.__new__(UOp)
    bad.op, bad.dtype, bad.src, bad.arg, bad.tag = Ops.CONST, dtypes.int32, (), 1.5, None
    assert_rejected(bad, spec_tensor, "CONST")


def test_tensor_graph_rejects_kernel_nodes_and_bad_movement() -> None:
    x = UOp.new_buffer("NULL", 12, dtypes.float32)
    assert_rejected(UOp(Ops.END, dtypes.void, (x, UOp.range(3, 0))), spec_tensor, "END is not allowed here")
    assert_rejected(UOp(Ops.RESHAPE, x.dtype, (x,), (5, 5)), spec_tensor, "RESHAPE")
    assert_rejected(UOp(Ops.PERMUTE, x.dtype, (x,), (1,)), spec_tensor, "PERMUTE")
    assert_rejected(UOp(Ops.EXPAND, x.dtype, (x,), (13,)), spec_tensor, "EXPAND")
    assert_rejected(UOp(Ops.REDUCE, x.dtype, (x,), (Ops.ADD, (3,))), spec_tensor, "REDUCE")
    assert_rejected(UOp(Ops.STORE, dtypes.void, (x, UOp.new_buffer("NULL", 3, x.dtype))), spec_tensor, "STORE")
    assert_rejected(UOp(Ops.BUFFER, x.dtype, (), ParamArg(0, dtypes.int32, (12,), "NULL")), spec_tensor, "BUFFER")


def test_kernel_rejects_movement_and_accesses_outside() -> None:
    x = UOp.placeholder((16,), dtypes.float32, 1)
    assert_rejected(
        kernel(value=node(Ops.INDEX, x, UOp.const(0))._mop(Ops.RESHAPE, (1,))), spec_kernel, "RESHAPE is not allowed"
    )
    assert_rejected(kernel(size=17), spec_kernel, "INDEX")
    gate = node(Ops.CMPLT, UOp.range(16, 0, AxisType.LOOP), UOp.const(4))
    type_verify(kernel(gate=gate), spec_kernel)
    assert_rejected(kernel(gate=UOp.const(1)), spec_kernel, "INDEX")
    assert_rejected(kernel(value=UOp.const(1, dtypes.int32)), spec_kernel, "STORE")
    assert_rejected(UOp.sink(), spec_kernel, "SINK")


def test_program_is_concrete_ordered_and_ends_with_sink() -> None:
    good = program()
    assert_rejected(good[:-1], spec_program, "last node must be SINK")
    assert_rejected([good[3], *good], spec_program, "used before it is computed")
    weak = UOp.const(1)
    assert_rejected([weak, UOp.sink(weak)], spec_program, "CONST")
    a, b = good[6], good[7]
    mixed = node(Ops.MUL, a, b)
    assert_rejected([a, b, mixed, UOp.sink(mixed)], spec_program, "repeated implicitly")
    three = node(Ops.STACK, a, a, a)
    assert_rejected([a, three, UOp.sink(three)], spec_program, "2, 4, 8")


def test_program_lanes_and_registers() -> None:
    register = UOp(Ops.BUFFER, dtypes.float32, (), ParamArg(9, dtypes.float32, (4,), addrspace=AddrSpace.REG))
    half, at = UOp.const(0.5, dtypes.float32), UOp.const(2, dtypes.int32)
    splat = node(Ops.STACK, half, half, half, half)
    store = node(Ops.STORE, register, splat, dtype=dtypes.void)
    lane = node(Ops.INDEX, splat, at)
    type_verify([register, half, at, splat, store, lane, UOp.sink(store)], spec_program)
    scalar = node(Ops.STORE, register, half, dtype=dtypes.void)
    assert_rejected([register, half, scalar, UOp.sink(scalar)], spec_program, "STORE")
    outside = UOp.const(4, dtypes.int32)
    bad = node(Ops.INDEX, splat, outside)
    assert_rejected([half, splat, outside, bad, UOp.sink(bad)], spec_program, "lane of a vector")


def test_pyrender_rebuilds_the_kernel() -> None:
    ast = kernel(value=node(Ops.MUL, UOp.const(float("nan"), dtypes.float32), UOp.const(-0.0, dtypes.float32)))
    assert eval_pyrender(pyrender(ast)) is ast
    call = UOp(Ops.CALL, dtypes.void, (ast,))
    with pytest.raises(NotImplementedError, match="CALL"):
        pyrender(UOp.sink(call))
