"""Renderers: the text of hand-built linear programs, what a target declares, and estimates of work. Nothing is run."""

from __future__ import annotations

import re

import pytest

from test.helpers_linear import at, const, end, load, loop, param, program, store, variable
from tinygrad.device import CompileError
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.renderer import Estimates, Renderer, kernel_arguments
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.renderer.llvmir import LLVMRenderer, function_attributes
from tinygrad.runtime.support.cpu_arch import parse_arch
from tinygrad.runtime.support.cpu_native import native_source
from tinygrad.target import Target
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.records import ParamArg

AVX512 = Target("CPU", "LLVM", "x86_64,x86-64-v4,+fma")


def dot_product(n: int = 64, width: int = 16) -> list[UOp]:
    """out[0] = sum of a * b, with a vector of partial sums in a register."""
    acc = UOp(Ops.BUFFER, dtypes.float32, (), ParamArg(0, dtypes.float32, (width,), addrspace=AddrSpace.REG))
    zero = UOp(Ops.STACK, dtypes.float32, (const(0.0, dtypes.float32),) * width)
    begin = store(acc, zero)
    k = loop(n // width, 0, AxisType.REDUCE)
    index = UOp(Ops.MUL, dtypes.int64, (k, const(width)))
    a, b = (load(param(i, dtypes.float32, n), index, width) for i in (1, 2))
    so_far = UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.AFTER, dtypes.float32, (acc, begin, k)),))
    done = end(store(acc, UOp(Ops.MULACC, dtypes.float32, (a, b, so_far))), k)
    total = UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.AFTER, dtypes.float32, (acc, done)),))
    total = UOp(Ops.REDUCE, dtypes.float32, (total,), (Ops.ADD, (0,)))
    return program(begin, done, store(at(param(0, dtypes.float32, 1), const(0)), total), name="dot")


DOT_IR = """\
define void @dot(ptr %bufs, ptr %vals, i64 %begin, i64 %end) #0 {
entry:
  %p0 = getelementptr ptr, ptr %bufs, i64 0
  %buf0 = load ptr, ptr %p0, align 8
  %p1 = getelementptr ptr, ptr %bufs, i64 1
  %buf1 = load ptr, ptr %p1, align 8
  %p2 = getelementptr ptr, ptr %bufs, i64 2
  %buf2 = load ptr, ptr %p2, align 8
  br label %b1
b1:
  %v2 = phi i64 [ 0, %entry ], [ %v10, %b1 ]
  %v3 = phi <4 x float> [ splat (float 0x0000000000000000), %entry ], [ %v9, %b1 ]
  %v4 = mul i64 %v2, 4
  %v5 = getelementptr float, ptr %buf1, i64 %v4
  %v6 = load <4 x float>, ptr %v5, align 4
  %v7 = getelementptr float, ptr %buf2, i64 %v4
  %v8 = load <4 x float>, ptr %v7, align 4
  %v9 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v6, <4 x float> %v8, <4 x float> %v3)
  %v10 = add nsw i64 %v2, 1
  %v11 = icmp slt i64 %v10, 16
  br i1 %v11, label %b1, label %b1x
b1x:
  %v12 = shufflevector <4 x float> %v9, <4 x float> %v9, <2 x i32> <i32 0, i32 1>
  %v13 = shufflevector <4 x float> %v9, <4 x float> %v9, <2 x i32> <i32 2, i32 3>
  %v14 = fadd <2 x float> %v12, %v13
  %v15 = extractelement <2 x float> %v14, i64 0
  %v16 = extractelement <2 x float> %v14, i64 1
  %v17 = fadd float %v15, %v16
  %v18 = getelementptr float, ptr %buf0, i64 0
  store float %v17, ptr %v18, align 4
  ret void
}
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
attributes #0 = { ATTRIBUTES }
"""


def test_registers_are_phi_nodes() -> None:
    assert LLVMRenderer(AVX512).render(dot_product(64, 4)) == DOT_IR.replace(
        "ATTRIBUTES", function_attributes("x86_64")
    )


def test_compiled_loop_has_no_moves_through_memory() -> None:
    renderer = LLVMRenderer(AVX512)
    text = renderer.compiler.assembly(renderer.render(dot_product()))
    body = text[text.index("\ndot:") :]
    assert "(%rsp" not in body
    assert "(%rbp" not in body
    assert len(re.findall(r"vfmadd231ps\s+\(%\w+,%\w+.*\), %zmm\d+, %zmm\d+", body)) == 1


def test_vectors_that_do_not_fit_the_registers_lie_in_one_cache_line_each() -> None:
    """40 sums in a loop: a vector of 64 bytes at a multiple of 16 would be two accesses."""
    vector, sums = "<16 x float>", range(40)
    phis = "\n".join(f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in sums)
    adds = "\n".join(
        f"  %p{i} = getelementptr {vector}, ptr %row, i64 {i}\n  %x{i} = load {vector}, ptr %p{i}, align 4\n"
        f"  %b{i} = fadd {vector} %a{i}, %x{i}"
        for i in sums
    )
    stores = "\n".join(f"  store {vector} %b{i}, ptr %p{i}, align 4" for i in sums)
    text = f"""define void @sums(ptr %data) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
  %row = getelementptr float, ptr %data, i64 %i
{adds}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 64
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
attributes #0 = {{ {function_attributes("x86_64")} }}
"""
    kept = re.findall(
        r"(vmov\w+|vadd\w+)\s[^\n]*\(%rsp\)[^\n]*zmm|(vmov\w+)\s+%zmm[^\n]*\(%rsp\)",
        LLVMRenderer(AVX512).compiler.assembly(text),
    )
    assert kept
    assert not any("movu" in name for names in kept for name in names)


def test_invariant_instructions_leave_the_loop_once() -> None:
    a, i, j = param(0, dtypes.float32, 64), loop(8, 0), loop(8, 1)
    factor = load(param(1, dtypes.float32, 8), i)
    wide = UOp(Ops.STACK, dtypes.float32, (factor,) * 8)
    row = UOp(Ops.MUL, dtypes.int64, (i, const(8)))
    total = UOp(Ops.ADD, dtypes.float32, (load(a, row, 8), wide))
    doubled = UOp(Ops.MUL, dtypes.float32, (wide, wide))
    inner = store(at(a, UOp(Ops.ADD, dtypes.int64, (row, const(0)))), UOp(Ops.ADD, dtypes.float32, (total, doubled)))
    # The program asks for the splat inside the inner loop only.
    text = LLVMRenderer(AVX512).render(program(i, factor, row, j, inner, end(inner, j), end(end(inner, j), i)))
    inner_label = re.findall(r"^(b\d+):", text, re.M)[1]
    before, inside = text.split(f"{inner_label}:", 1)
    assert before.count("insertelement") == before.count("shufflevector") == before.count("fmul") == 1
    assert "insertelement" not in inside
    assert "fmul" not in inside


@pytest.mark.parametrize("op", [Ops.CDIV, Ops.CMOD])
def test_what_a_loop_knows_is_not_used_behind_it(op: Ops) -> None:
    """Two loops divide by one number: what is asked about it stands in front of both, or once in each."""
    a, n = param(0, dtypes.int64, 64), variable("n")
    statements, last = [], None
    for axis in (0, 1):
        i = loop(8, axis) if last is None else UOp(Ops.RANGE, dtypes.int64, (const(8), last), (axis, AxisType.LOOP))
        body = store(at(a, i), UOp(op, dtypes.int64, (load(a, i), n)))
        last = end(body, i)
        statements += [body, last]
    text = LLVMRenderer(AVX512).render(program(*statements))
    assert text.count("icmp eq i64 %var0") == 2
    assert text.index("icmp eq i64 %var0, -1") < text.index("phi")
    LLVMRenderer(AVX512).compiler.compile(text)  # LLVM verifies that values are known where they are used


def test_a_divisor_that_is_positive_needs_no_guard() -> None:
    a, i = param(0, dtypes.int64, 64), loop(8, 0)
    n = UOp(
        Ops.PARAM, dtypes.int64, (), ParamArg(-1, dtypes.int64, (), name="n", vmin_vmax=(1, 9), addrspace=AddrSpace.ALU)
    )
    body = store(at(a, i), UOp(Ops.CDIV, dtypes.int64, (load(a, i), n)))
    text = LLVMRenderer(AVX512).render(program(body, end(body, i)))
    assert "sdiv" in text
    assert "select" not in text


def test_constant_offsets_stay_outside_the_index() -> None:
    x, i = param(1, dtypes.float32, 100), loop(10, 0)
    row = UOp(Ops.MUL, dtypes.int64, (i, const(10)))
    parts = [load(x, UOp(Ops.ADD, dtypes.int64, (row, const(c)))) for c in (1, 2, 3)]
    total = UOp(Ops.ADD, dtypes.float32, (UOp(Ops.ADD, dtypes.float32, (parts[0], parts[1])), parts[2]))
    body = store(at(param(0, dtypes.float32, 10), i), total)
    text = LLVMRenderer(AVX512).render(program(body, end(body, i)))
    base = re.search(r"(%v\d+) = getelementptr float, ptr %buf1, i64 %v\d+", text)
    assert base is not None
    for offset in (1, 2, 3):
        assert f"getelementptr float, ptr {base[1]}, i64 {offset}" in text


def test_arguments_are_ordered_by_slot_and_name() -> None:
    b, a = (
        UOp(
            Ops.PARAM,
            dtypes.int32,
            (),
            ParamArg(-1, dtypes.int32, (), name=n, vmin_vmax=(0, 9), addrspace=AddrSpace.ALU),
        )
        for n in "ba"
    )
    loaded = load(param(7, dtypes.int32, 1), const(0))
    total = UOp(Ops.ADD, dtypes.int32, (UOp(Ops.ADD, dtypes.int32, (b, a)), loaded))
    uops = program(b, loaded, store(at(param(0, dtypes.int32, 1), const(0)), total))
    buffers, variables = kernel_arguments(uops)
    assert [u.arg.slot for u in buffers] == [0, 7]
    assert [u.arg.name for u in variables] == ["a", "b"]
    text = ClangRenderer().render(uops)
    assert "int* data7 = (int*)bufs[1];" in text
    assert "int b = vals[1];" in text


def test_c_text_of_a_reduction() -> None:
    text = ClangRenderer().render(dot_product(64, 1 << 1))
    body = text[text.index("void dot(") :]
    assert "for (long i" in body
    assert body.count("__builtin_fmaf(") == 2
    assert "void dot(void** bufs, long* vals, long begin, long end) {" in body


def test_thread_loop_takes_its_bounds_from_the_caller() -> None:
    i = loop(100, 0, AxisType.THREAD)
    body = store(at(param(0, dtypes.float32, 100), i), const(1.0, dtypes.float32))
    uops = program(body, end(body, i))
    llvm, c = LLVMRenderer(AVX512).render(uops), ClangRenderer().render(uops)
    assert re.search(r"phi i64 \[ %begin, %entry \]", llvm)
    assert re.search(r"icmp slt i64 %v\d+, %end", llvm)
    assert re.search(r"for \(long (i\d+) = begin; \1 < end; \1\+\+\)", c)


def test_what_cannot_be_rendered_says_so() -> None:
    x = load(param(0, dtypes.float32, 1), const(0))
    for renderer in (LLVMRenderer(AVX512), ClangRenderer()):
        with pytest.raises(CompileError, match=r"Ops\.SIN on dtypes\.float.* must be lowered"):
            renderer.render(
                program(store(at(param(1, dtypes.float32, 1), const(0)), UOp(Ops.SIN, dtypes.float32, (x,))))
            )
    with pytest.raises(CompileError, match=r"bfloat16.*emulated"):
        LLVMRenderer(AVX512).render(program(load(param(0, dtypes.bfloat16, 1), const(0))))
    scratch = UOp(Ops.BUFFER, dtypes.float32, (), ParamArg(0, dtypes.float32, (1 << 22,), addrspace=AddrSpace.LOCAL))
    with pytest.raises(CompileError, match="16777216 bytes of scratch memory"):
        LLVMRenderer(AVX512).render(program(store(at(scratch, const(0)), x)))
    with pytest.raises(CompileError, match="never closed"):
        LLVMRenderer(AVX512).render(program(loop(3, 0)))


# ---- targets


@pytest.mark.parametrize(
    ("arch", "vector_bytes", "registers", "fma"),
    [
        ("x86_64,x86-64", 16, 16, False),
        ("x86_64,znver2", 32, 16, True),
        ("x86_64,znver2,avx2,-avx512f", 32, 16, True),
        ("x86_64,znver5", 64, 32, True),
        ("x86_64,znver5,-avx512f", 32, 16, True),
        ("x86_64,skylake-avx512,-avx2", 16, 16, True),
        ("x86_64,x86-64-v4,-fma", 64, 32, False),
        ("arm64", 16, 32, True),
    ],
)
def test_architecture(arch: str, vector_bytes: int, registers: int, fma: bool) -> None:
    renderer = LLVMRenderer(Target("CPU", "LLVM", arch))
    assert (renderer.vector_bytes, renderer.vector_registers) == (vector_bytes, registers)
    assert (Ops.MULACC in renderer.code_for_op) is fma


def test_architecture_of_this_machine() -> None:
    assert parse_arch("") == parse_arch("native")
    assert parse_arch("").cpu == ""
    assert parse_arch("").host
    assert parse_arch("").key != parse_arch("x86_64,znver2").key


def test_unknown_architecture() -> None:
    with pytest.raises(RuntimeError, match="unknown architecture 'riscv99'"):
        LLVMRenderer(Target("CPU", "LLVM", "riscv99,foo"))


def test_aarch64_compiles() -> None:
    renderer = LLVMRenderer(Target("CPU", "LLVM", "aarch64"))
    text = renderer.compiler.assembly(renderer.render(dot_product(64, 4)))
    assert re.search(r"fmla\s+v\d+\.4s", text)
    assert "svc" not in renderer.compiler.assembly(native_source("aarch64"))
    assert renderer.compiler.compile(native_source("aarch64"))[18] == 183  # the ELF number of AArch64


def test_cpu_renderers_declare_their_limits() -> None:
    for renderer in (LLVMRenderer(), ClangRenderer()):
        assert renderer.index_dtype is dtypes.int64
        assert renderer.has_threads
        assert not renderer.has_local
        assert dtypes.bfloat16 not in renderer.supported_dtypes()
        assert {Ops.ADD, Ops.MUL, Ops.CMPLT, Ops.WHERE, Ops.CDIV, Ops.MAX, Ops.SQRT} <= set(renderer.code_for_op)
        assert not {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.THREEFRY, Ops.POW} & set(renderer.code_for_op)
    assert Renderer.index_dtype is dtypes.int32


# ---- estimates


def test_estimates_count_loops_lanes_and_bytes() -> None:
    estimates = Estimates.from_uops(dot_product(64, 16))
    # 64 fused operations count two each, the horizontal sum 15, the index 4 multiplications.
    assert estimates.ops == 128 + 15 + 4
    assert Estimates.from_uops(dot_product(64, 16), ignore_indexing=True).ops == 128 + 15
    assert estimates.lds == 2 * 64 * 4 + 4
    assert estimates.mem == 2 * 64 * 4 + 4
    assert (estimates + estimates).mem == 2 * estimates.mem


def test_estimates_of_repeated_loads() -> None:
    i, j = loop(10, 0), loop(5, 1)
    body = store(at(param(0, dtypes.float32, 10), i), load(param(1, dtypes.float32, 5), j))
    inner = end(body, j)
    estimates = Estimates.from_uops(program(i, inner, end(inner, i)))
    assert estimates.lds == 50 * 8
    assert estimates.mem == 15 * 4
    assert estimates.ops == 0
