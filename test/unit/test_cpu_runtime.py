"""The CPU's runtime: threads, launches, memory, loading and compiling."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from test.helpers_cpu import DEVICE, build, clang_renderer, memory, run
from test.helpers_linear import (
    add,
    at,
    const,
    end,
    load,
    loop,
    mul,
    param,
    program,
    read,
    reduction,
    register,
    store,
    variable,
)
from tinygrad.device import BufferSpec, CompileError, Device, TinyELF
from tinygrad.dtype import dtypes
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.runtime.ops_cpu import CPUAllocator, CPUProgram
from tinygrad.runtime.support.cpu_native import COPY_BLOCK_BYTES, native
from tinygrad.runtime.support.cpu_threads import NativeBatch, ThreadPool, pool_address
from tinygrad.runtime.support.elf import ElfError, LoadedObject
from tinygrad.settings import NUM_CPU_THREADS, Context
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

# ---- threads and launches


def slow_rows(rows: int, cols: int) -> list[UOp]:
    """out[r] = sum of x[r, :]."""
    r, k = loop(rows, 0, AxisType.THREAD), loop(cols, 1, AxisType.REDUCE)
    acc = register(0, dtypes.float32)
    begin = store(acc, const(0.0, dtypes.float32))
    step = store(
        acc, add(read(acc, begin, k), load(param(1, dtypes.float32, rows * cols), add(mul(r, const(cols)), k)))
    )
    done = end(step, k)
    out = store(at(param(0, dtypes.float32, rows), r), read(acc, done))
    return program(r, begin, done, out, end(out, r), name="rows")


ROWS, COLS = 64, 1000


@pytest.fixture(scope="module")
def rows_program() -> CPUProgram:
    return build(slow_rows(ROWS, COLS))


@pytest.fixture(scope="module")
def rows_input() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(ROWS, COLS)).astype(np.float32)


def sequential(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x, axis=1, dtype=np.float32)[:, -1]


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("count", [2, 3, 33, 43, 64, 1000, 2**31 + 5, 2**33 + 1])
def test_shares_of_the_threads_differ_by_one_iteration(count: int, threads: int) -> None:
    calls: list[tuple[int, int]] = []
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        lambda bufs, vals, begin, end: calls.append((begin, end))
    )
    with Context(NUM_CPU_THREADS=threads):
        native().run_one(ctypes.cast(kernel, ctypes.c_void_p).value, None, None, count, pool_address())
    calls.sort()
    assert [0, *[end for _, end in calls]] == [*[begin for begin, _ in calls], count]  # each iteration once
    if count < 2**31:  # so many are dealt out several at once
        shares = [i * (count // threads) + min(i, count % threads) for i in range(threads)]
        assert {first for first in shares if first < count} <= {begin for begin, _ in calls}


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_results_do_not_depend_on_threads(threads: int, rows_program: CPUProgram, rows_input: np.ndarray) -> None:
    with Context(NUM_CPU_THREADS=threads):
        assert (pool_address() is None) == (threads == 1)
        for iterations in (1, 2, 3, 7, ROWS):
            got = np.zeros(ROWS, np.float32)
            for _ in range(20):
                rows_program(memory(got), memory(rows_input), global_size=(iterations, 1, 1))
            np.testing.assert_array_equal(got[:iterations], sequential(rows_input)[:iterations])
            assert (got[iterations:] == 0).all()


def test_workers_do_part_of_the_work(rows_input: np.ndarray) -> None:
    """A kernel that waits until another thread has begun it ends only if there is another thread."""
    source = """
define void @meet(ptr %bufs, ptr %vals, i64 %begin, i64 %end) nounwind {
entry:
  %counter = load ptr, ptr %bufs
  %old = atomicrmw add ptr %counter, i64 1 seq_cst
  br label %wait
wait:
  %now = load atomic i64, ptr %counter seq_cst, align 8
  %met = icmp sge i64 %now, 2
  br i1 %met, label %exit, label %wait
exit:
  ret void
}
"""
    code = CPUProgram(DEVICE, TinyELF(LLVMRenderer().compiler.compile(source), "meet"))
    counter = np.zeros(1, np.int64)
    with Context(NUM_CPU_THREADS=2):
        code(memory(counter), global_size=(2, 1, 1))
    assert counter[0] >= 2


def test_sleeping_workers_wake_up(rows_program: CPUProgram, rows_input: np.ndarray) -> None:
    with Context(NUM_CPU_THREADS=2):
        for _ in range(5):
            time.sleep(0.002)  # longer than workers spin
            got = np.zeros(ROWS, np.float32)
            rows_program(memory(got), memory(rows_input), global_size=(ROWS, 1, 1))
            np.testing.assert_array_equal(got, sequential(rows_input))


def test_idle_workers_sleep() -> None:
    done = run_script("""
import time
check()
time.sleep(0.05)  # longer than workers spin
before = time.process_time()  # of all threads
time.sleep(0.5)
print("slept" if time.process_time() - before < 0.1 else "worked")
""")
    assert done.stdout == "slept\n", done.stderr


def test_launches_from_several_threads(rows_program: CPUProgram, rows_input: np.ndarray) -> None:
    want, wrong = sequential(rows_input), []

    def work() -> None:
        with Context(NUM_CPU_THREADS=2):
            for _ in range(100):
                got = np.zeros(ROWS, np.float32)
                rows_program(memory(got), memory(rows_input), global_size=(ROWS, 1, 1))
                if not np.array_equal(got, want):
                    wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_pool_stops_and_still_computes(rows_program: CPUProgram, rows_input: np.ndarray) -> None:
    pool = ThreadPool(3)
    pool.stop()
    assert not any(worker.is_alive() for worker in pool._workers)
    got = np.zeros(ROWS, np.float32)
    words = (ctypes.c_int64 * 2)(got.ctypes.data, rows_input.ctypes.data)
    native().run_one(rows_program.address, ctypes.addressof(words), None, ROWS, pool.address)
    np.testing.assert_array_equal(got, sequential(rows_input))


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_every_iteration_runs_once(threads: int) -> None:
    """Lists of kernels of any length, from two threads at once, with workers that sleep in between."""
    source = """
define void @count(ptr %bufs, ptr %vals, i64 %begin, i64 %end) nounwind {
entry:
  %counts = load ptr, ptr %bufs
  br label %body
body:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %place = getelementptr i64, ptr %counts, i64 %i
  %old = load i64, ptr %place
  %new = add i64 %old, 1
  store i64 %new, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %body, label %exit
exit:
  ret void
}
"""
    code = CPUProgram(DEVICE, TinyELF(LLVMRenderer().compiler.compile(source), "count"))
    wrong: list[np.ndarray] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        lengths = [int(n) for n in rng.choice([*range(1, 40), 63, 64, 65, 127, 1000], 200)]
        counts = np.zeros((len(lengths), 1000), np.int64)
        with Context(NUM_CPU_THREADS=threads):
            batch = NativeBatch([(code, (memory(row),), (), n) for row, n in zip(counts, lengths, strict=True)])
            for runs in range(1, 31):
                batch.run()
                want = np.arange(1000) < np.array(lengths)[:, None]
                if not np.array_equal(counts, want * runs):
                    wrong.append(counts)
                if runs % 10 == 0:
                    time.sleep(0.002)

    makers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert not wrong
    assert not any(maker.is_alive() for maker in makers)


SCRIPT = """
import os, sys
import numpy as np
from tinygrad.device import TinyELF
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.runtime.ops_cpu import CPUDevice, CPUMemory, CPUProgram
from tinygrad.settings import Context

IR = '''
define void @fill(ptr %bufs, ptr %vals, i64 %begin, i64 %end) nounwind {
entry:
  %p = load ptr, ptr %bufs
  br label %b
b:
  %i = phi i64 [ %begin, %entry ], [ %n, %b ]
  %q = getelementptr i64, ptr %p, i64 %i
  store i64 %i, ptr %q
  %n = add i64 %i, 1
  %c = icmp slt i64 %n, %end
  br i1 %c, label %b, label %x
x:
  ret void
}
'''
code = CPUProgram(CPUDevice(), TinyELF(LLVMRenderer().compiler.compile(IR), "fill"))

def check():
    got = np.zeros(1000, np.int64)
    with Context(NUM_CPU_THREADS=3):
        for _ in range(50):
            code(CPUMemory(got.ctypes.data, got.nbytes), global_size=(1000, 1, 1))
    assert (got == np.arange(1000)).all()
"""


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", SCRIPT + body],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_children_make_their_own_threads() -> None:
    done = run_script("""
check()
child = os.fork()
if child == 0:
    check()
    os._exit(7)
_, status = os.waitpid(child, 0)
check()
print("child", os.waitstatus_to_exitcode(status))
""")
    assert done.stdout == "child 7\n", done.stderr


def test_interpreter_exits_while_workers_sleep_or_spin() -> None:
    start = time.monotonic()
    done = run_script("check(); print('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert time.monotonic() - start < 30


def test_exceptions_leave_the_pool_usable() -> None:
    done = run_script("""
try:
    check()
    raise KeyboardInterrupt
except KeyboardInterrupt:
    check()
    print("fine")
raise SystemExit(3)
""")
    assert (done.returncode, done.stdout) == (3, "fine\n"), done.stderr


def test_batch_updates_buffers_and_values(rows_program: CPUProgram, rows_input: np.ndarray) -> None:
    outs = [np.zeros(ROWS, np.float32) for _ in range(3)]
    scaled = build(reduction(Ops.ADD, dtypes.float32, variable("n"), ROWS, 0.0))
    total = np.zeros(1, np.float32)
    batch = NativeBatch([
        (rows_program, (memory(outs[0]), memory(rows_input)), (), ROWS),
        (scaled, (memory(total), memory(outs[0])), (ROWS,), 1),
    ])  # fmt: skip
    assert batch.run() is None
    want = sequential(rows_input)
    np.testing.assert_array_equal(outs[0], want)
    assert total[0] == np.cumsum(want, dtype=np.float32)[-1]
    batch.set_buffers([(0, 0), (1, 1)], memory(outs[1]))
    batch.set_value(1, 0, 3)
    seconds = batch.run(wait=True)
    assert seconds is not None
    assert 0 < seconds < 1
    np.testing.assert_array_equal(outs[1], want)
    assert total[0] == np.cumsum(want, dtype=np.float32)[2]
    batch.set_iterations(0, 4)
    batch.set_buffer(0, 0, memory(outs[2]))
    batch.run()
    np.testing.assert_array_equal(outs[2], np.where(np.arange(ROWS) < 4, want, 0))


def test_native_copy() -> None:
    nbytes = 2 * COPY_BLOCK_BYTES + 77
    source = np.random.default_rng(0).integers(0, 255, nbytes, np.uint8)
    dest = np.zeros(nbytes + 8, np.uint8)
    words = (ctypes.c_int64 * 3)(dest.ctypes.data, source.ctypes.data, nbytes)
    address = ctypes.addressof(words)
    native().run_one(native().copy_blocks, address, address + 16, 3, pool_address())
    np.testing.assert_array_equal(dest[:nbytes], source)
    assert (dest[nbytes:] == 0).all()


def test_program_checks_its_arguments(rows_program: CPUProgram) -> None:
    elf = rows_program.elf
    signature = (("data0", 0, dtypes.float32, (ROWS,)), ("data1", 1, dtypes.float32, (ROWS * COLS,)))
    checked = CPUProgram(DEVICE, TinyELF(elf.lib, elf.name, "", signature))
    with pytest.raises(RuntimeError, match="takes 2 buffers and 0 values, got 1 and 0"):
        checked(memory(np.zeros(ROWS, np.float32)))
    with pytest.raises(RuntimeError, match="defines rows instead"):
        CPUProgram(DEVICE, TinyELF(elf.lib, "other"))
    assert checked(memory(np.zeros(ROWS, np.float32)), memory(np.zeros(ROWS * COLS, np.float32)), wait=True) > 0


# ---- memory of the device, loading, compiling


@pytest.mark.parametrize("nbytes", [1, 100, 5000, 5 << 20])
def test_allocator(nbytes: int) -> None:
    allocator = DEVICE.allocator
    block = allocator.alloc(nbytes)
    assert block.address % (64 if nbytes < 4096 else 4096) == 0
    source = np.random.default_rng(0).integers(0, 255, nbytes, np.uint8)
    allocator._copyin(block, memoryview(source.tobytes()))
    out = bytearray(nbytes)
    allocator._copyout(memoryview(out), block)
    assert bytes(out) == source.tobytes()
    view = allocator._as_buffer(allocator._offset(block, nbytes - nbytes // 2, nbytes // 2))
    view[0] = 3
    assert allocator._as_buffer(block)[nbytes // 2] == 3
    allocator.free(block, nbytes)
    zeros = allocator.alloc(nbytes, BufferSpec(zero=True))
    assert not any(allocator._as_buffer(zeros))


def test_external_memory() -> None:
    array = np.arange(4, dtype=np.int32)
    block = DEVICE.allocator.alloc(16, BufferSpec(external_ptr=array.ctypes.data))
    assert bytes(DEVICE.allocator._as_buffer(block)) == array.tobytes()


def test_loader_refuses_what_it_cannot_load() -> None:
    with pytest.raises(ElfError, match="not a 64-bit little-endian ELF object"):
        LoadedObject(b"MZ" + bytes(100))
    code = LLVMRenderer().compiler.compile(
        "define void @f() {\n call void @no_such_function()\n ret void\n}\ndeclare void @no_such_function()"
    )
    with pytest.raises(ElfError, match="calls no_such_function"):
        LoadedObject(code)


def test_calls_into_the_c_library() -> None:
    ir = """define double @f(double %x) {
 %y = call double @fmod(double %x, double 3.0)
 ret double %y
}
declare double @fmod(double, double)"""
    code = LoadedObject(LLVMRenderer().compiler.compile(ir))
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.functions["f"])(10.0) == 1.0


def test_malformed_source_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="does not parse"):
        LLVMRenderer().compiler.compile("define void @f( {")
    with pytest.raises(CompileError, match="dominate"):
        LLVMRenderer().compiler.compile(
            "define float @f(float %x) {\n %b = fadd float %a, %x\n br label %c\nc:\n %a = fadd float %x, %x\n "
            "ret float %a\n}"
        )
    with pytest.raises(CompileError, match="error"):
        clang_renderer().compiler.compile("void f( {")


def test_compiling_in_two_threads_at_once() -> None:
    renderer = LLVMRenderer()
    sources = [renderer.render(reduction(Ops.ADD, dtypes.float32, n, 64, 0.0)) for n in range(2, 18)]
    want = [renderer.compiler.compile(source) for source in sources]
    got: dict[int, bytes] = {}

    def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            got[number] = renderer.compiler.compile(sources[number])

    threads = [threading.Thread(target=work, args=(range(k, 16, 2),)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [got[i] for i in range(16)] == want


def test_number_of_threads_follows_the_switch() -> None:
    assert NUM_CPU_THREADS.value >= 1
    with Context(NUM_CPU_THREADS=1):
        assert pool_address() is None


def test_struct_layout_of_float_constants() -> None:
    """A constant that overflows float32 is an infinity, and a NaN stays one."""
    out = param(0, dtypes.float32, 4)
    values = [1e300, -1e300, math.nan, 0.1]
    got = np.zeros(4, np.float32)
    run(program(*(store(at(out, const(i)), const(v, dtypes.float32)) for i, v in enumerate(values))), got)
    assert got[:2].tolist() == [math.inf, -math.inf]
    assert np.isnan(got[2])
    assert struct.pack("<f", got[3]) == struct.pack("<f", 0.1)


@pytest.mark.parametrize(
    "size", [1, 63, 64, 65, 100, 1000, 4095, 4096, 4097, 100_001, (1 << 20) - 1, 1 << 20, 3_000_001]
)
def test_blocks_are_little_larger_than_what_is_asked_for(size: int) -> None:
    allocator = CPUAllocator(DEVICE)
    block = allocator.alloc(size)
    assert block.nbytes == size
    assert block.view().nbytes == size
    block.view()[:] = bytes(size)
    allocator.free(block, size)
    assert size <= allocator.cached_bytes <= max(64, size * 9 // 8 + 64)
    assert allocator.alloc(size).address == block.address
    assert allocator.cached_bytes == 0


def test_small_blocks_serve_ever_new_sizes() -> None:
    allocator = CPUAllocator(DEVICE)
    rng = np.random.default_rng(0)
    for size in rng.permutation(1 << 18)[:5000].tolist():
        block = allocator.alloc(size + 1)
        assert block.nbytes == size + 1
        allocator.free(block, size + 1)
    assert allocator.cached_bytes <= 16 << 20


def test_memory_that_the_garbage_collector_finds_is_freed_once() -> None:
    """A buffer in a cycle gives its block to the allocator, which must not hand out what was freed."""
    from tinygrad.buffer import Buffer
    from tinygrad.runtime import ops_cpu

    freed: list[int] = []

    class Watched(ops_cpu._Block):
        def __del__(self) -> None:
            freed.append(self.address)
            super().__del__()

    nbytes = 3 * 1_234_567
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops_cpu, "_Block", Watched)
        buffer = Buffer("CPU", nbytes, dtypes.uint8).allocate()
    address = buffer._buf.address
    cycle: list[object] = [buffer]
    cycle.append(cycle)
    del buffer, cycle
    gc.collect()
    assert not freed, "the allocator keeps it"
    again = Buffer("CPU", nbytes, dtypes.uint8).allocate()
    assert again._buf.address == address
    del again
    Device["CPU"].allocator.free_cache()
    gc.collect()
    assert freed == [address]
