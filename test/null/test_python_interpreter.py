"""The PYTHON device as the definition of linear programs: arithmetic, memory, control flow, work-groups, errors."""

import math
import struct

import pytest

from tinygrad.device import Buffer, CompileError, Device, TinyELF
from tinygrad.dtype import AddrSpace, DType, dtypes, storage_fmt_for_dtype, to_storage_scalar
from tinygrad.helpers import Context
from tinygrad.runtime.support.python_numbers import NAMESPACE, round_int_to_f32
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp

F32, I32 = dtypes.float32, dtypes.int32


class Builder:
    """Collects a linear program."""

    def __init__(self) -> None:
        self.uops: list[UOp] = []

    def add(self, op: Ops, dtype: DType = dtypes.void, src: tuple = (), arg=None) -> UOp:
        u = UOp(op, dtype, src, arg)
        if u not in self.uops:
            self.uops.append(u)
        return u

    def param(self, slot: int, dtype: DType, size: int) -> UOp:
        return self.add(Ops.PARAM, dtype, (), ParamArg(slot, dtype, (size,)))

    def variable(self, name: str) -> UOp:
        return self.add(
            Ops.PARAM, I32, (), ParamArg(-1, I32, (), name=name, vmin_vmax=(0, 100), addrspace=AddrSpace.ALU)
        )

    def const(self, value, dtype: DType = I32) -> UOp:
        return self.add(Ops.CONST, dtype, (), value)

    def at(self, memory: UOp, index: UOp | int) -> UOp:
        index = self.const(index) if isinstance(index, int) else index
        return self.add(Ops.INDEX, memory.dtype, (memory, index))

    def load(self, memory: UOp, index: UOp | int, lanes: int | None = None, *gate: UOp) -> UOp:
        return self.add(Ops.LOAD, memory.dtype, (self.at(memory, index), *gate), lanes)

    def store(self, memory: UOp, index: UOp | int, value: UOp, *gate: UOp) -> UOp:
        return self.add(Ops.STORE, dtypes.void, (self.at(memory, index), value, *gate))

    def loop(self, end: UOp | int, number: int = 0, kind: AxisType = AxisType.LOOP) -> UOp:
        end = self.const(end) if isinstance(end, int) else end
        return self.add(Ops.RANGE, I32, (end,), (number, kind))

    def end(self, loop: UOp) -> UOp:
        return self.add(Ops.END, dtypes.void, (self.uops[-1], loop))

    def run(self, *buffers: tuple[DType, list], vals=(), arch: str = "", **sizes) -> list[list]:
        program = [*self.uops, UOp(Ops.SINK, dtypes.void, (self.uops[-1],), KernelInfo("kernel"))]
        with Context(DEV=f"PYTHON::{arch}"):
            device = Device["PYTHON"]
            source = device.renderer.render(program)
            compiled = device.compiler.compile(source)
        handles = [
            Buffer("PYTHON", len(values), dtype, initial_value=_pack(values, dtype)) for dtype, values in buffers
        ]
        device.runtime(TinyELF(compiled, "kernel"))(*(h.get_buf() for h in handles), vals=vals, **sizes)
        return [h.numpy().tolist() for h in handles]


def _pack(values: list, dtype: DType) -> bytes:
    code = storage_fmt_for_dtype(dtype)
    return struct.pack(f"<{len(values)}{code}", *(to_storage_scalar(v, dtype) for v in values))


def _apply(op: Ops, dtype: DType, *operands, result: DType | None = None):
    """One operation on constants."""
    b = Builder()
    out = b.param(0, result or dtype, 1)
    values = tuple(b.const(x, dtypes.bool if op is Ops.WHERE and i == 0 else dtype) for i, x in enumerate(operands))
    b.store(out, 0, b.add(op, result or dtype, values))
    return b.run((result or dtype, [0]))[0][0]


# ---- arithmetic


@pytest.mark.parametrize(
    ("op", "dtype", "operands", "expected"),
    [
        (Ops.ADD, dtypes.int32, (2**31 - 1, 1), -(2**31)),
        (Ops.ADD, dtypes.uint8, (250, 10), 4),
        (Ops.MUL, dtypes.int64, (2**62, 2), -(2**63)),
        (Ops.SUB, dtypes.uint16, (3, 5), 65534),
        (Ops.NEG, dtypes.int8, (-128,), -128),
        (Ops.CDIV, dtypes.int32, (-7, 3), -2),
        (Ops.CDIV, dtypes.int32, (7, -3), -2),
        (Ops.CDIV, dtypes.int32, (7, 0), 0),
        (Ops.CDIV, dtypes.int32, (-(2**31), -1), -(2**31)),
        (Ops.CMOD, dtypes.int32, (-7, 3), -1),
        (Ops.CMOD, dtypes.int32, (7, -3), 1),
        (Ops.CMOD, dtypes.int32, (-7, 0), -7),
        (Ops.CMOD, dtypes.float32, (-7.5, 2.0), -1.5),
        (Ops.CMOD, dtypes.float64, (1e300, 3.0), math.fmod(1e300, 3.0)),
        (Ops.SHL, dtypes.int32, (3, 31), -(2**31)),
        (Ops.SHL, dtypes.uint32, (1, 31), 2**31),
        (Ops.SHR, dtypes.int32, (-8, 1), -4),
        (Ops.SHR, dtypes.uint32, (2**32 - 8, 1), 2**31 - 4),
        (Ops.XOR, dtypes.int8, (-1, 85), -86),
        (Ops.MAX, dtypes.int32, (-4, 3), 3),
        (Ops.ADD, dtypes.float32, (1.0, 2.0**-24), 1.0),
        (Ops.ADD, dtypes.float32, (1.0, 1.5 * 2.0**-23), 1.0 + 2.0**-22),
        (Ops.MUL, dtypes.float32, (3e38, 10.0), math.inf),
        (Ops.MUL, dtypes.float16, (300.0, 300.0), math.inf),
        (Ops.ADD, dtypes.bfloat16, (1.0, 2.0**-8), 1.0),
        (Ops.MUL, dtypes.fp8e4m3, (30.0, 30.0), 448.0),
        (Ops.RECIPROCAL, dtypes.float32, (-0.0,), -math.inf),
        (Ops.FDIV, dtypes.float32, (1.0, 3.0), struct.unpack("f", struct.pack("f", 1 / 3))[0]),
        (Ops.SQRT, dtypes.float32, (2.0,), struct.unpack("f", struct.pack("f", math.sqrt(2)))[0]),
        (Ops.TRUNC, dtypes.float32, (-1.75,), -1.0),
        (Ops.TRUNC, dtypes.float32, (1e12,), 999999995904.0),
        (Ops.MAX, dtypes.float32, (-1.0, math.inf), math.inf),
        (Ops.WHERE, dtypes.float32, (True, 1.5, 2.5), 1.5),
        (Ops.ADD, dtypes.bool, (True, True), True),
        (Ops.MUL, dtypes.bool, (True, False), False),
    ],
)
def test_operation(op: Ops, dtype: DType, operands: tuple, expected) -> None:
    assert _apply(op, dtype, *operands) == expected


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        (Ops.MAX, (1.0, math.nan)),
        (Ops.MAX, (math.nan, 1.0)),
        (Ops.SUB, (math.inf, math.inf)),
        (Ops.FDIV, (0.0, 0.0)),
        (Ops.SQRT, (-1.0,)),
        (Ops.MUL, (math.inf, 0.0)),
    ],
)
def test_nan(op: Ops, operands: tuple) -> None:
    assert math.isnan(_apply(op, F32, *operands))


@pytest.mark.parametrize(("op", "expected"), [(Ops.CMPLT, False), (Ops.CMPNE, True), (Ops.CMPEQ, False)])
def test_comparison_with_nan(op: Ops, expected: bool) -> None:
    assert _apply(op, F32, math.nan, math.nan, result=dtypes.bool) is expected


def test_sign_of_zero() -> None:
    assert math.copysign(1, _apply(Ops.TRUNC, F32, -0.5)) == -1
    assert math.copysign(1, _apply(Ops.SQRT, F32, -0.0)) == -1
    assert math.copysign(1, _apply(Ops.ADD, F32, -0.0, -0.0)) == -1


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (dtypes.float32, dtypes.int32, -1.9, -1),
        (dtypes.float32, dtypes.int8, 300.7, 44),
        (dtypes.float32, dtypes.uint8, -1.0, 255),
        (dtypes.float32, dtypes.int32, 3e9, -(2**31)),
        (dtypes.float32, dtypes.int32, math.nan, -(2**31)),
        (dtypes.float32, dtypes.int16, math.inf, 0),
        (dtypes.float64, dtypes.uint64, 1.5 * 2**63, 3 * 2**62),
        (dtypes.int32, dtypes.int8, 200, -56),
        (dtypes.int32, dtypes.uint64, -1, 2**64 - 1),
        (dtypes.int32, dtypes.bool, 2, True),
        (dtypes.float32, dtypes.bool, math.nan, True),
        (dtypes.bool, dtypes.float32, True, 1.0),
        (dtypes.int64, dtypes.float32, 2**24 + 1, 2.0**24),
        (dtypes.int64, dtypes.float32, (1 << 54) + (1 << 30) + 1, float((1 << 54) + (1 << 31))),
        (dtypes.float32, dtypes.float16, 1e-8, 0.0),
        (dtypes.float32, dtypes.bfloat16, 1.0 + 2.0**-8 + 2.0**-20, 1.0 + 2.0**-7),
        (dtypes.float64, dtypes.fp8e5m2, 1e9, 57344.0),
    ],
)
def test_cast(source: DType, target: DType, value, expected) -> None:
    b = Builder()
    data, out = b.param(1, source, 1), b.param(0, target, 1)
    b.store(out, 0, b.add(Ops.CAST, target, (b.load(data, 0),), target))
    assert b.run((target, [0]), (source, [value]))[0] == [expected]


def test_integer_to_float32_is_rounded_once() -> None:
    # Through a double this number, just above the middle of two float32 numbers, would be rounded down twice.
    middle = (1 << 60) + (1 << 36)
    assert round_int_to_f32(middle + 1) == float((1 << 60) + (1 << 37))
    assert round_int_to_f32(middle) == float(1 << 60)
    assert round_int_to_f32(-middle - 1) == -float((1 << 60) + (1 << 37))


def test_fused_multiply_add_is_rounded_once() -> None:
    fma = NAMESPACE["fma_float32"]
    x = 1 + 2.0**-12
    assert fma(x, x, -(1 + 2.0**-11)) == 2.0**-24
    # The sum lies just beside the middle of two numbers: rounding through a double would lose the side.
    assert fma(1.0, 1 + 2.0**-23, 2.0**-24) == 1 + 2.0**-22
    assert fma(2.0**-60, -(2.0**-60), 1 + 2.0**-23) == 1 + 2.0**-23
    assert math.isnan(fma(math.inf, 0.0, 1.0))
    assert fma(1e38, 1e38, 0.0) == math.inf


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (dtypes.float32, dtypes.uint32, 1.0, 0x3F800000),
        (dtypes.int32, dtypes.float32, 0x40490FDB, struct.unpack("f", struct.pack("I", 0x40490FDB))[0]),
        (dtypes.bfloat16, dtypes.uint16, -2.0, 0xC000),
        (dtypes.uint16, dtypes.float16, 0x3E00, 1.5),
        (dtypes.uint8, dtypes.fp8e4m3, 0x38, 1.0),
        (dtypes.uint32, dtypes.int32, 2**32 - 1, -1),
    ],
)
def test_bitcast(source: DType, target: DType, value, expected) -> None:
    b = Builder()
    data, out = b.param(1, source, 1), b.param(0, target, 1)
    b.store(out, 0, b.add(Ops.BITCAST, target, (b.load(data, 0),), target))
    assert b.run((target, [0]), (source, [value]))[0] == [expected]


# ---- vectors


def test_vector_loads_arithmetic_and_stores() -> None:
    b = Builder()
    out, data = b.param(0, F32, 8), b.param(1, F32, 8)
    vector = b.load(data, 1, 4)
    splat = b.add(Ops.STACK, F32, (b.const(10.0, F32),) * 4)
    b.store(out, 3, b.add(Ops.MUL, F32, (vector, splat)))
    assert b.run((F32, [0.0] * 8), (F32, list(range(8))))[0] == [0, 0, 0, 10, 20, 30, 40, 0]


def test_gather_and_scatter() -> None:
    b = Builder()
    out, data = b.param(0, I32, 4), b.param(1, I32, 4)
    indices = b.add(Ops.STACK, I32, tuple(b.const(i) for i in (3, 1, 1, 0)))
    gathered = b.load(data, indices)
    target = b.add(Ops.STACK, I32, tuple(b.const(i) for i in (0, 2, 2, 3)))
    b.store(out, target, gathered)
    assert b.run((I32, [0] * 4), (I32, [5, 6, 7, 8]))[0] == [8, 0, 6, 5]


def test_scatter_keeps_the_last_lane() -> None:
    b = Builder()
    out, data = b.param(0, I32, 1), b.param(1, I32, 4)
    b.store(out, b.add(Ops.STACK, I32, (b.const(0),) * 4), b.load(data, 0, 4))
    assert b.run((I32, [0]), (I32, [5, 6, 7, 8]))[0] == [8]


def test_lane_and_horizontal_reduce() -> None:
    b = Builder()
    out, data = b.param(0, F32, 3), b.param(1, F32, 4)
    vector = b.load(data, 0, 4)
    b.store(out, 0, b.add(Ops.INDEX, F32, (vector, b.const(2))))
    b.store(out, 1, b.add(Ops.REDUCE, F32, (vector,), (Ops.ADD, (0,))))
    b.store(out, 2, b.add(Ops.REDUCE, F32, (vector,), (Ops.MAX, (0,))))
    # (1e8 + 0.5) + (-1e8 + 0.5): the order of halving shows
    assert b.run((F32, [0.0] * 3), (F32, [1e8, -1e8, 0.5, 0.5]))[0] == [0.5, 0.0, 1e8]


def test_gated_lanes_touch_no_memory() -> None:
    b = Builder()
    out, data = b.param(0, I32, 4), b.param(1, I32, 2)
    gate = b.add(Ops.STACK, dtypes.bool, tuple(b.const(x, dtypes.bool) for x in (True, True, False, False)))
    other = b.add(Ops.STACK, I32, (b.const(-1),) * 4)
    value = b.load(data, 0, 4, other, gate)
    b.store(out, 2, value, gate)
    assert b.run((I32, [0] * 4), (I32, [5, 6]))[0] == [0, 0, 5, 6]


def test_mixed_lanes_are_refused() -> None:
    b = Builder()
    data = b.param(0, I32, 4)
    scalar, vector = b.load(data, 0), b.load(data, 0, 4)
    b.uops.append(UOp(Ops.ADD, I32, (vector, scalar)))
    with pytest.raises(CompileError, match=r"Ops.ADD mixes lanes \[4, 0\]"):
        b.run((I32, [0] * 4))


# ---- memory


@pytest.mark.parametrize("index", [-1, 4])
def test_load_out_of_range(index: int) -> None:
    b = Builder()
    out, data = b.param(0, I32, 1), b.param(1, I32, 4)
    b.store(out, 0, b.load(data, index))
    with pytest.raises(IndexError, match=rf"load of data1\[{index}\] is out of range: data1 has 4 elements"):
        b.run((I32, [0]), (I32, [1, 2, 3, 4]))


def test_store_out_of_range() -> None:
    b = Builder()
    out = b.param(0, F32, 4)
    b.store(out, 2, b.add(Ops.STACK, F32, (b.const(1.0, F32),) * 4))
    with pytest.raises(IndexError, match=r"store of data0\[4\] is out of range: data0 has 4 elements"):
        b.run((F32, [0.0] * 4))


def test_buffer_smaller_than_the_kernel_says() -> None:
    b = Builder()
    b.store(b.param(0, F32, 4), 0, b.const(1.0, F32))
    with pytest.raises(IndexError, match="buffer 0 has 8 bytes, the kernel's has 16"):
        b.run((F32, [0.0] * 2))


# ---- control flow


def test_loops_and_registers() -> None:
    b = Builder()
    out, data, n = b.param(0, F32, 3), b.param(1, F32, 6), b.variable("n")
    row = b.loop(3)
    total = b.add(Ops.BUFFER, F32, (), ParamArg(0, F32, (), addrspace=AddrSpace.REG))
    b.add(Ops.STORE, dtypes.void, (total, b.const(0.0, F32)))
    column = b.loop(n, 1)
    index = b.add(Ops.ADD, I32, (b.add(Ops.MUL, I32, (row, b.const(2))), column))
    b.uops.append(UOp(Ops.LOAD, F32, (total,)))
    before = b.uops[-1]
    b.add(Ops.STORE, dtypes.void, (total, b.add(Ops.ADD, F32, (before, b.load(data, index)))))
    b.end(column)
    after = UOp(Ops.LOAD, F32, (total,), tag="after the loop")
    b.uops.append(after)
    b.store(out, row, after)
    b.end(row)
    data = (F32, [1.0, 2, 3, 4, 5, 6])
    assert b.run((F32, [9.0] * 3), data, vals=(2,))[0] == [3, 7, 11]
    assert b.run((F32, [9.0] * 3), data, vals=(0,))[0] == [0, 0, 0], "a loop may have no iterations"


def test_condition() -> None:
    b = Builder()
    out = b.param(0, I32, 4)
    i = b.loop(4)
    condition = b.add(Ops.IF, dtypes.void, (b.add(Ops.CMPLT, dtypes.bool, (i, b.const(2))),))
    b.store(out, i, b.const(7))
    b.add(Ops.ENDIF, dtypes.void, (condition,))
    b.end(i)
    assert b.run((I32, [0] * 4))[0] == [7, 7, 0, 0]


def test_thread_loop_runs_over_the_global_size() -> None:
    b = Builder()
    out = b.param(0, I32, 5)
    i = b.loop(5, 0, AxisType.THREAD)
    b.store(out, i, i)
    b.end(i)
    assert b.run((I32, [9] * 5), global_size=(5, 1, 1), local_size=None)[0] == [0, 1, 2, 3, 4]


def test_variables_come_in_the_order_of_their_names() -> None:
    b = Builder()
    out, z, a = b.param(0, I32, 1), b.variable("z"), b.variable("a")
    b.store(out, 0, b.add(Ops.SUB, I32, (z, a)))
    assert b.run((I32, [0]), vals=(1, 30))[0] == [29]


# ---- work-groups


def _reversal(barrier: bool) -> Builder:
    """Every group of 4 reverses its part of the data through local memory."""
    b = Builder()
    out, data = b.param(0, I32, 8), b.param(1, I32, 8)
    shared = b.add(Ops.BUFFER, I32, (), ParamArg(0, I32, (4,), addrspace=AddrSpace.LOCAL))
    group = b.add(Ops.SPECIAL, I32, (b.const(2),), "gidx0")
    item = b.add(Ops.SPECIAL, I32, (b.const(4),), "lidx0")
    start = b.add(Ops.MUL, I32, (group, b.const(4)))
    position = b.add(Ops.ADD, I32, (start, item))
    stored = b.store(shared, item, b.load(data, position))
    if barrier:
        b.add(Ops.BARRIER, dtypes.void, (stored,))
    b.store(out, position, b.load(shared, b.add(Ops.SUB, I32, (b.const(3), item))))
    return b


def test_barrier() -> None:
    sizes = {"global_size": (2, 1, 1), "local_size": (4, 1, 1)}
    buffers = (I32, [0] * 8), (I32, list(range(8)))
    assert _reversal(True).run(*buffers, **sizes)[0] == [3, 2, 1, 0, 7, 6, 5, 4]
    without = _reversal(False).run(*buffers, **sizes)[0]
    assert without[:2] == [0x55, 0x55], (
        "local memory is not shared between groups or zeroed, so a missing barrier shows"
    )


def test_barrier_that_not_all_reach() -> None:
    b = Builder()
    out = b.param(0, I32, 2)
    item = b.add(Ops.SPECIAL, I32, (b.const(2),), "lidx0")
    condition = b.add(Ops.IF, dtypes.void, (b.add(Ops.CMPLT, dtypes.bool, (item, b.const(1))),))
    b.add(Ops.BARRIER)
    b.add(Ops.ENDIF, dtypes.void, (condition,))
    b.store(out, item, item)
    with pytest.raises(RuntimeError, match="1 of 2 work-items wait at a barrier"):
        b.run((I32, [0] * 2), local_size=(2, 1, 1))


def test_grid_order_and_dimensions() -> None:
    b = Builder()
    out = b.param(0, I32, 6)
    x, y = b.add(Ops.SPECIAL, I32, (b.const(3),), "gidx0"), b.add(Ops.SPECIAL, I32, (b.const(2),), "gidx1")
    b.store(out, b.add(Ops.ADD, I32, (b.add(Ops.MUL, I32, (y, b.const(3))), x)), x)
    assert b.run((I32, [9] * 6), global_size=(3, 2, 1))[0] == [0, 1, 2, 0, 1, 2]


# ---- what it refuses


def test_operation_that_should_have_been_lowered() -> None:
    b = Builder()
    b.store(b.param(0, I32, 1), 0, b.add(Ops.FLOORDIV, I32, (b.const(7), b.const(2))))
    with pytest.raises(CompileError, match="FLOORDIV is not an operation of linear programs"):
        b.run((I32, [0]))


def test_generated_text_sees_no_other_names() -> None:
    device = Device["PYTHON"]
    facts = "# barrier = False\n# threads = False\n# buffers = []\n# shared = []\n"
    text = facts + "def f(b, v, g, l, s, e, m):\n    open('x')\n"
    with pytest.raises(NameError, match="open"):
        device.runtime(TinyELF(text.encode(), "f"))()
