"""64-bit integers of two words, seen in programs: none is left, and only declared operations are used."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Tensor, Variable, dtypes
from tinygrad.codegen import full_rewrite_to_sink, lower_to_list, start_program, to_program
from tinygrad.codegen.decomp import emulated_dtypes
from tinygrad.codegen.decomp.narrow_indices import narrow_indices
from tinygrad.codegen.opt.search import search_key
from tinygrad.device import Device
from tinygrad.dtype import DType
from tinygrad.errors import DTypeError
from tinygrad.helpers import Context
from tinygrad.renderer import Renderer
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.renderer.python import PythonRenderer
from tinygrad.target import Target
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp

NAMES = ["long", "int64", "uint64", "ulong", "int64,uint64", "half,long"]


class ShortWords(PythonRenderer):
    """A target such as WebGPU: 32-bit integers and floats."""

    def supported_dtypes(self) -> tuple[DType, ...]:
        """Return the dtypes that kernels may use."""
        return (dtypes.bool, dtypes.int32, dtypes.uint32, dtypes.float32)


class NoSignedWords(PythonRenderer):
    """A target that lacks one of the two."""

    def supported_dtypes(self) -> tuple[DType, ...]:
        """Return the dtypes that kernels may use."""
        return tuple(dtype for dtype in dtypes.all if dtype is not dtypes.int64)


def longs(*shape: int, dtype: DType = dtypes.int64) -> Tensor:
    return Tensor.empty(*shape, device="PYTHON", dtype=dtype)


def kernels(tensor: Tensor) -> list[UOp]:
    return [call.src[0] for call in tensor.schedule_linear().src if call.src[0].op is Ops.SINK]


def program(kernel: UOp, renderer: Renderer) -> list[UOp]:
    return lower_to_list(full_rewrite_to_sink(kernel, renderer), renderer)


def assert_no_wide(uops: list[UOp]) -> None:
    left = [u for u in uops if u.dtype in dtypes.int64s]
    assert not left, left[:5]


BUILDS: dict[str, Callable[[], Tensor]] = {
    "arithmetic": lambda: longs(6, 8) * 3 + longs(6, 8) - (-longs(6, 8)),
    "division": lambda: longs(40) // longs(40) + longs(40) % longs(40) + longs(40).div(7, rounding_mode="trunc"),
    "bits": lambda: (longs(9) & 5) | (longs(9) ^ ~longs(9)) | (longs(9) << longs(9)) | (longs(9) >> 40),
    "selection": lambda: (longs(33) < longs(33)).where(longs(33).maximum(5), longs(33).minimum(-(2**40))),
    "sum": lambda: longs(70, 30).sum(axis=1),
    "sum of all": lambda: longs(4096).sum(),
    "product": lambda: longs(7, 30).prod(axis=0),
    "maximum": lambda: longs(70, 30, dtype=dtypes.uint64).max(),
    "matmul": lambda: longs(16, 16) @ longs(16, 16),
    "transpose": lambda: longs(12, 20).T.contiguous() + 1,
    "sort": lambda: longs(9).sort()[0],
    "argmax": lambda: longs(50).argmax(),
    "cumsum": lambda: longs(50).cumsum(),
    "index": lambda: Tensor.empty(20, 5, device="PYTHON")[longs(7)],
    "scatter": lambda: Tensor.empty(20, 5, device="PYTHON").scatter(0, longs(3, 5), 1.0),
    "to floats": lambda: longs(17).float() + longs(17).half() + longs(17).bfloat16(),
    "from floats": lambda: Tensor.empty(17, device="PYTHON").cast(dtypes.int64) + 1,
    "double": lambda: Tensor.empty(17, device="PYTHON", dtype=dtypes.float64).exp2().bitcast(dtypes.int64) + 1,
    "power": lambda: longs(5) ** longs(5),
    "rand": lambda: Tensor.rand(8, device="PYTHON"),
}


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("arch", ["minimal", "minimal,vec0", "gpu", "vec64,mulacc", "threads", "CPU"])
def test_no_wide_integer_is_left(name: str, arch: str) -> None:
    renderer: Renderer = Device["CPU"].renderer if arch == "CPU" else PythonRenderer(Target.parse(f"PYTHON::{arch}"))
    with Context(EMULATED_DTYPES="int64,uint64"):
        for kernel in kernels(BUILDS[name]()):
            uops = program(kernel, renderer)
            assert_no_wide(uops)
            assert {u.op for u in uops if u.op in GroupOp.ALU} <= set(renderer.code_for_op)


@pytest.mark.parametrize("names", NAMES)
def test_either_name_means_both_dtypes(names: str) -> None:
    (kernel,) = kernels(longs(8).cast(dtypes.uint64) // longs(8, dtype=dtypes.uint64))
    renderer = PythonRenderer(Target.parse("PYTHON"))
    assert any(u.dtype is dtypes.uint64 for u in program(kernel, renderer)), "the kernel would prove nothing"
    with Context(EMULATED_DTYPES=names):
        assert_no_wide(program(kernel, renderer))


@pytest.mark.parametrize("kind", [ShortWords, NoSignedWords])
@pytest.mark.parametrize("name", ["arithmetic", "division", "sum", "index", "from floats", "rand", "argmax"])
def test_a_target_that_lacks_them_needs_no_setting(kind: type[PythonRenderer], name: str) -> None:
    renderer = kind(Target.parse("PYTHON::minimal"))
    for kernel in kernels(BUILDS[name]()):
        uops = program(kernel, renderer)
        assert_no_wide(uops)
        assert {u.dtype for u in uops} <= {*renderer.supported_dtypes(), dtypes.void}


def test_memory_keeps_its_layout() -> None:
    (kernel,) = kernels(longs(8) + 1)
    with Context(EMULATED_DTYPES="long"):
        uops = program(kernel, PythonRenderer(Target.parse("PYTHON::vec0")))
    assert {(u.dtype, u.arg.shape) for u in uops if u.op is Ops.PARAM} == {(dtypes.uint32, (16,))}
    assert not any(u.op is Ops.STACK for u in uops), "a device without vectors needs none"
    with Context(EMULATED_DTYPES="long"):
        uops = program(kernel, PythonRenderer(Target.parse("PYTHON::vec16")))
    assert {u.arg for u in uops if u.op is Ops.LOAD} == {4}, "both words of two elements are one load"


def test_a_known_divisor_costs_less() -> None:
    renderer = PythonRenderer(Target.parse("PYTHON::vec0"))

    def count(tensor: Tensor) -> int:
        with Context(EMULATED_DTYPES="long"):
            return sum(u.op is Ops.CDIV for u in program(kernels(tensor)[0], renderer))

    positive = Tensor.empty(8, device="PYTHON", dtype=dtypes.uint32).cast(dtypes.int64)
    assert count(longs(8).div(longs(8), rounding_mode="trunc")) == 3
    assert count(positive.div(1000, rounding_mode="trunc")) == 1, "a quotient of words is one division"
    assert count(positive.div(1024, rounding_mode="trunc")) == 0


def test_fast_division_needs_native_products() -> None:
    (kernel,) = kernels(Tensor.empty(8, device="PYTHON", dtype=dtypes.uint32) // 10)
    renderer = PythonRenderer(Target.parse("PYTHON"))
    with Context(DISABLE_FAST_IDIV=0):
        assert any(u.dtype is dtypes.uint64 for u in program(kernel, renderer))
        with Context(EMULATED_DTYPES="long"):
            uops = program(kernel, renderer)
            assert_no_wide(uops)
            assert any(u.op is Ops.CDIV for u in uops)


# ---- indices ---------------------------------------------------------------------------------------------------------


def index_node(dtype: DType = dtypes.int64) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(3, dtype, ())).cast(dtypes.weakint)


def test_sums_and_products_of_indices_may_wrap() -> None:
    index = index_node() * 5 + UOp.range(4, 0)
    sink = UOp(Ops.SINK, dtypes.void, (index,), KernelInfo())
    assert narrow_indices(sink) is sink


def test_what_asks_for_the_whole_index_is_wide() -> None:
    inside = index_node() < 20
    (found,) = narrow_indices(UOp(Ops.SINK, dtypes.void, (inside,), KernelInfo())).src
    assert found.op is Ops.CMPLT
    assert [s.dtype for s in found.src] == [dtypes.int64] * 2
    (found,) = narrow_indices(UOp(Ops.SINK, dtypes.void, (index_node() // 7 + 1,), KernelInfo())).src
    assert found.dtype is dtypes.weakint
    assert any(u.op in (Ops.FLOORDIV, Ops.CDIV) and u.dtype is dtypes.int64 for u in found.toposort())


def test_small_indices_stay() -> None:
    i = UOp.range(100, 0)
    sink = UOp(Ops.SINK, dtypes.void, (i // 7 < 3, i % 5), KernelInfo())
    assert narrow_indices(sink) is sink


@pytest.mark.parametrize(("dtype", "most"), [(dtypes.int64, 2**30), (dtypes.float32, 2**31)])
def test_a_buffer_that_indices_do_not_reach_is_an_error(dtype: DType, most: int) -> None:
    def sink(size: int) -> UOp:
        i = UOp.range(8, 0)
        out, x = (UOp(Ops.PARAM, dtype, (), ParamArg(slot, dtype, (n,))) for slot, n in ((0, 8), (1, size)))
        return out.index(i).store(x.index(i + (size - 8))).end(i).sink(arg=KernelInfo(name="last"))

    renderer = PythonRenderer(Target.parse("PYTHON"))
    with Context(EMULATED_DTYPES="long"):
        assert_no_wide(program(sink(most), renderer))
        with pytest.raises(DTypeError, match=rf"buffer 1 has {most + 1} elements of .*more than the {most} that"):
            program(sink(most + 1), renderer)
    program(sink(most + 1), renderer)


def test_variables() -> None:
    renderer = PythonRenderer(Target.parse("PYTHON"))

    def sink(largest: int) -> UOp:
        x = UOp(Ops.PARAM, dtypes.int64, (), ParamArg(0, dtypes.int64, (8,)))
        return x.index(UOp.const(0)).store(Variable("n", 0, largest).cast(dtypes.int64)).sink(arg=KernelInfo(name="n"))

    with Context(EMULATED_DTYPES="long"):
        assert_no_wide(program(sink(100), renderer))
        with pytest.raises(DTypeError, match=r"no 64-bit integers, and a loop or Variable goes up to 1099511627776"):
            program(sink(2**40), renderer)


def test_order_may_hang_on_a_value() -> None:
    x, y = (UOp(Ops.PARAM, dtypes.int64, (), ParamArg(slot, dtypes.int64, (8,))) for slot in range(2))
    read = x.index(UOp.const(0)).load()
    first = x.after(read).index(UOp.const(0)).store(UOp.const(5, dtypes.int64))
    sink = UOp.sink(first, y.index(UOp.const(0)).store(read), arg=KernelInfo(name="order"))
    renderer = PythonRenderer(Target.parse("PYTHON"))
    native = [u.op for u in program(sink, renderer) if u.op in (Ops.LOAD, Ops.STORE)]
    with Context(EMULATED_DTYPES="long"):
        uops = program(sink, renderer)
    assert_no_wide(uops)
    assert native[0] is Ops.LOAD
    assert [u.op for u in uops if u.op in (Ops.LOAD, Ops.STORE)] == [op for op in native for _ in range(2)]


def test_text_of_the_target_is_refused() -> None:
    x = UOp(Ops.PARAM, dtypes.int64, (), ParamArg(0, dtypes.int64, (8,)))
    made = UOp(Ops.CUSTOMI, dtypes.int64, (x.index(UOp.const(1)).load(),), "f({0})")
    sink = x.index(UOp.const(0)).store(made).sink(arg=KernelInfo(name="text"))
    with Context(EMULATED_DTYPES="long"), pytest.raises(DTypeError, match=r"CUSTOMI of dtypes.long cannot be made of"):
        program(sink, PythonRenderer(Target.parse("PYTHON")))


# ---- caches and output -----------------------------------------------------------------------------------------------


def test_programs_and_searches_are_kept_apart() -> None:
    renderer = LLVMRenderer(Target("CPU", "LLVM"))
    (kernel,) = kernels(Tensor.empty(8, dtype=dtypes.int64, device="CPU") * 3)
    sources, keys = [], []
    for names in ("", "long", ""):
        with Context(EMULATED_DTYPES=names):
            sources.append(to_program(kernel, renderer).src[-2].arg)
            keys.append(search_key(kernel, renderer, (), 2))
    assert sources[0] == sources[2] != sources[1]
    assert keys[0] == keys[2] != keys[1]


def test_debug_shows_what_is_emulated(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = LLVMRenderer(Target("CPU", "LLVM"))
    (kernel,) = kernels(Tensor.empty(11, dtype=dtypes.int64, device="CPU") * 5)
    (other,) = kernels(Tensor.empty(11, dtype=dtypes.int32, device="CPU") * 5)
    with Context(EMULATED_DTYPES="long", DEBUG=2):
        start_program(kernel, renderer)
        start_program(other, renderer)
        assert emulated_dtypes(kernel, renderer) == [dtypes.int64]
    lines = [line for line in capsys.readouterr().out.splitlines() if "emulated" in line]
    assert len(lines) == 1, "one kernel uses them"
    assert re.fullmatch(r"emulated dtypes of E_\w+ on CPU:LLVM: dtypes.long", lines[0])
    with Context(DEBUG=2):
        start_program(kernel, renderer)
    assert "emulated" not in capsys.readouterr().out


def test_numpy_is_the_layout() -> None:
    assert np.array([1 << 32 | 2], np.int64).view(np.uint32).tolist() == [2, 1], "low word first"
