"""The native code of the CPU runtime: launching kernels, sharing their iterations with worker threads, copying.

In:   nothing.
Out:  ``native()``: addresses of ``run_one``, ``run_list``, ``worker``, ``stop``, ``spin`` and ``copy_blocks``,
      compiled by the project's own LLVM compiler once and then taken from the disk cache.
Why:  a replayed list of kernels must cost well under a microsecond per kernel, so no Python runs between two of them.

One pool at a time runs one kernel. ``state`` holds the number of the kernel (upper half) and how many of its pieces
nobody has taken yet (lower half). Whoever takes a piece does so by a compare-and-swap on both together, so a thread
that wakes up late can never take a piece of one kernel with the arguments of another: the arguments change only when
all pieces are done. A worker that finds nothing for a while sleeps on a futex at the kernel's number.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import threading
from dataclasses import dataclass
from typing import Any, Final

from tinygrad.runtime.support.cpu_arch import parse_arch
from tinygrad.runtime.support.elf import LoadedObject, external_symbol

# Byte offsets in a pool. Words that different threads write lie on cache lines of their own.
STATE, DONE, BUSY, JOB, SLEEPERS, SETUP = 0, 64, 128, 192, 256, 320
POOL_BYTES: Final = 384
# JOB: function, bufs, vals, iterations, iterations per piece, pieces.
# SETUP: stop, spins before sleeping, threads, addresses of syscall and sched_yield.
COPY_BLOCK_BYTES: Final = 1 << 18
# One launch of run_list: function, bufs, vals, iterations.
RECORD_WORDS: Final = 4
_FUTEX_CALL: Final = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_PAUSE: Final = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32 immarg)", "call void @llvm.aarch64.hint(i32 1)"),
}

_SOURCE: Final = r"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
@PAUSE_DECLARATION@

; Runs one piece of the current kernel: taken when @left pieces were left.
define internal void @run_piece(ptr %pool, i32 %left) nounwind {
  %job = getelementptr i8, ptr %pool, i64 192
  %p1 = getelementptr i8, ptr %pool, i64 200
  %p2 = getelementptr i8, ptr %pool, i64 208
  %p3 = getelementptr i8, ptr %pool, i64 216
  %p4 = getelementptr i8, ptr %pool, i64 224
  %p5 = getelementptr i8, ptr %pool, i64 232
  %function = load ptr, ptr %job
  %bufs = load ptr, ptr %p1
  %vals = load ptr, ptr %p2
  %n = load i64, ptr %p3
  %chunk = load i64, ptr %p4
  %pieces = load i64, ptr %p5
  %wide = zext i32 %left to i64
  %piece = sub i64 %pieces, %wide
  %begin = mul i64 %piece, %chunk
  %next = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %next, i64 %n)
  call void %function(ptr %bufs, ptr %vals, i64 %begin, i64 %end)
  %done = getelementptr i8, ptr %pool, i64 64
  %old = atomicrmw add ptr %done, i64 1 acq_rel
  ret void
}

; Takes a piece if there is one; returns the state in which there was none (lower half 0), or 1 after running a piece.
define internal i64 @take_piece(ptr %pool) nounwind {
entry:
  br label %again
again:
  %state = load atomic i64, ptr %pool seq_cst, align 8
  %left = trunc i64 %state to i32
  %none = icmp eq i32 %left, 0
  br i1 %none, label %nothing, label %take
take:
  %less = sub i64 %state, 1
  %pair = cmpxchg ptr %pool, i64 %state, i64 %less seq_cst seq_cst
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %run, label %again
run:
  call void @run_piece(ptr %pool, i32 %left)
  ret i64 1
nothing:
  ret i64 %state
}

; The life of a worker thread: returns when the pool is stopped.
define void @worker(ptr %pool) nounwind {
entry:
  %number = getelementptr i8, ptr %pool, i64 4
  %sleepers = getelementptr i8, ptr %pool, i64 256
  %stop = getelementptr i8, ptr %pool, i64 320
  %limit.p = getelementptr i8, ptr %pool, i64 328
  %limit = load i64, ptr %limit.p
  %syscall.p = getelementptr i8, ptr %pool, i64 344
  %syscall = load ptr, ptr %syscall.p
  br label %look
look:
  %spins = phi i64 [ 0, %entry ], [ 0, %look ], [ %spins.next, %wait ], [ 0, %sleep ]
  %state = call i64 @take_piece(ptr %pool)
  %worked = icmp eq i64 %state, 1
  br i1 %worked, label %look, label %idle
idle:
  %stopped = load atomic i64, ptr %stop seq_cst, align 8
  %go = icmp eq i64 %stopped, 0
  br i1 %go, label %wait, label %exit
wait:
  @PAUSE@
  %spins.next = add i64 %spins, 1
  %tired = icmp sgt i64 %spins.next, %limit
  br i1 %tired, label %sleep, label %look
sleep:
  %upper = lshr i64 %state, 32
  %seen = trunc i64 %upper to i32
  %up = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %woken = call i64 (i64, ...) %syscall(i64 @FUTEX@, ptr %number, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  %down = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %look
exit:
  ret void
}

; Wakes all sleeping workers, if there are any.
define internal void @wake(ptr %pool) nounwind {
entry:
  %sleepers = getelementptr i8, ptr %pool, i64 256
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp sgt i64 %asleep, 0
  br i1 %any, label %call, label %exit
call:
  %number = getelementptr i8, ptr %pool, i64 4
  %syscall.p = getelementptr i8, ptr %pool, i64 344
  %syscall = load ptr, ptr %syscall.p
  %woken = call i64 (i64, ...) %syscall(i64 @FUTEX@, ptr %number, i64 129, i32 2147483647, ptr null, ptr null, i64 0)
  br label %exit
exit:
  ret void
}

; Tells the workers to return: raises the flag, changes the kernel's number and wakes them.
define void @stop(ptr %pool) nounwind {
  %flag = getelementptr i8, ptr %pool, i64 320
  store atomic i64 1, ptr %flag seq_cst, align 8
  %old = atomicrmw add ptr %pool, i64 4294967296 seq_cst
  call void @wake(ptr %pool)
  ret void
}

; Runs iterations 0..n-1 of a kernel: shared with the workers of the pool, or alone if there is none or it is busy.
define void @run_one(ptr %function, ptr %bufs, ptr %vals, i64 %n, ptr %pool) nounwind {
entry:
  %one = icmp sle i64 %n, 1
  %nopool = icmp eq ptr %pool, null
  %single = or i1 %one, %nopool
  br i1 %single, label %alone, label %enter
alone:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %whole, label %exit
whole:
  call void %function(ptr %bufs, ptr %vals, i64 0, i64 %n)
  br label %exit
exit:
  ret void
enter:
  %busy = getelementptr i8, ptr %pool, i64 128
  %was = atomicrmw xchg ptr %busy, i64 1 seq_cst
  %free = icmp eq i64 %was, 0
  br i1 %free, label %post, label %alone
post:
  %threads.p = getelementptr i8, ptr %pool, i64 336
  %threads = load i64, ptr %threads.p
  %wanted = mul i64 %threads, @PIECES@
  %few = mul i64 %wanted, 2
  %each = icmp sle i64 %n, %few
  %at.most = select i1 %each, i64 %n, i64 %wanted
  %chunk0 = add i64 %n, %at.most
  %chunk1 = sub i64 %chunk0, 1
  %chunk = sdiv i64 %chunk1, %at.most
  %pieces0 = add i64 %n, %chunk
  %pieces1 = sub i64 %pieces0, 1
  %pieces = sdiv i64 %pieces1, %chunk
  %job = getelementptr i8, ptr %pool, i64 192
  %p1 = getelementptr i8, ptr %pool, i64 200
  %p2 = getelementptr i8, ptr %pool, i64 208
  %p3 = getelementptr i8, ptr %pool, i64 216
  %p4 = getelementptr i8, ptr %pool, i64 224
  %p5 = getelementptr i8, ptr %pool, i64 232
  %done = getelementptr i8, ptr %pool, i64 64
  store ptr %function, ptr %job
  store ptr %bufs, ptr %p1
  store ptr %vals, ptr %p2
  store i64 %n, ptr %p3
  store i64 %chunk, ptr %p4
  store i64 %pieces, ptr %p5
  store atomic i64 0, ptr %done seq_cst, align 8
  %before = load atomic i64, ptr %pool seq_cst, align 8
  %upper = lshr i64 %before, 32
  %number = add i64 %upper, 1
  %shifted = shl i64 %number, 32
  %state = or i64 %shifted, %pieces
  store atomic i64 %state, ptr %pool seq_cst, align 8
  call void @wake(ptr %pool)
  br label %help
help:
  %left = call i64 @take_piece(ptr %pool)
  %worked = icmp eq i64 %left, 1
  br i1 %worked, label %help, label %wait
wait:
  %spins = phi i64 [ 0, %help ], [ %spins.next, %pause ], [ 0, %yield ]
  %finished = load atomic i64, ptr %done seq_cst, align 8
  %all = icmp eq i64 %finished, %pieces
  br i1 %all, label %leave, label %pause
pause:
  @PAUSE@
  %spins.next = add i64 %spins, 1
  %long = icmp sgt i64 %spins.next, 2000
  br i1 %long, label %yield, label %wait
yield:
  %yield.p = getelementptr i8, ptr %pool, i64 352
  %sched = load ptr, ptr %yield.p
  %result = call i32 %sched()
  br label %wait
leave:
  store atomic i64 0, ptr %busy seq_cst, align 8
  ret void
}

; Runs a list of launches in order.
define void @run_list(ptr %records, i64 %count, ptr %pool) nounwind {
entry:
  %none = icmp sle i64 %count, 0
  br i1 %none, label %exit, label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %r0 = getelementptr [4 x i64], ptr %records, i64 %i
  %r1 = getelementptr i8, ptr %r0, i64 8
  %r2 = getelementptr i8, ptr %r0, i64 16
  %r3 = getelementptr i8, ptr %r0, i64 24
  %function = load ptr, ptr %r0
  %bufs = load ptr, ptr %r1
  %vals = load ptr, ptr %r2
  %n = load i64, ptr %r3
  call void @run_one(ptr %function, ptr %bufs, ptr %vals, i64 %n, ptr %pool)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %body, label %exit
exit:
  ret void
}

; A kernel: copies bufs[1] to bufs[0], vals[0] bytes, in blocks of 256 KiB.
define void @copy_blocks(ptr %bufs, ptr %vals, i64 %begin, i64 %end) nounwind {
  %p1 = getelementptr i8, ptr %bufs, i64 8
  %to = load ptr, ptr %bufs
  %from = load ptr, ptr %p1
  %nbytes = load i64, ptr %vals
  %first = shl i64 %begin, 18
  %last = shl i64 %end, 18
  %stop = call i64 @llvm.smin.i64(i64 %last, i64 %nbytes)
  %count = sub i64 %stop, %first
  %a = getelementptr i8, ptr %to, i64 %first
  %b = getelementptr i8, ptr %from, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 %count, i1 false)
  ret void
}

; Pauses n times, to measure how long a pause takes.
define void @spin(i64 %n) nounwind {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  @PAUSE@
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %exit
exit:
  ret void
}
"""
# More pieces than threads even out their sizes and cores of different speed; each costs a tenth of a microsecond. Up to
# twice as many iterations are pieces of their own.
_PIECES_PER_THREAD: Final = 8


@dataclass(frozen=True)
class Native:
    """The compiled functions: ctypes callables (which release the interpreter lock) and one address."""

    run_one: Any
    run_list: Any
    worker: Any
    stop: Any
    spin: Any
    copy_blocks: int
    code: LoadedObject


def native_source(machine: str) -> str:
    """Return the IR of the module."""
    declaration, pause = _PAUSE[machine]
    return (
        _SOURCE
        .replace("@PAUSE_DECLARATION@", declaration)
        .replace("@PAUSE@", pause)
        .replace("@PIECES@", str(_PIECES_PER_THREAD))
        .replace("@FUTEX@", str(_FUTEX_CALL[machine]))
    )


_native_lock = threading.Lock()


def native() -> Native:
    """Return the native functions, compiling them if the disk cache does not have them."""
    # functools.cache alone lets two threads load the code; the memory of one of them would be freed while in use.
    with _native_lock:
        return _load_native()


@functools.cache
def _load_native() -> Native:
    from tinygrad.runtime.support.compiler_llvm import LLVMCompiler

    arch = parse_arch()
    code = LoadedObject(LLVMCompiler(arch).compile_cached(native_source(arch.machine)))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64

    def function(name: str, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(None, *arguments)(code.functions[name])

    return Native(
        run_one=function("run_one", pointer, pointer, pointer, integer, pointer),
        run_list=function("run_list", pointer, integer, pointer),
        worker=function("worker", pointer),
        stop=function("stop", pointer),
        spin=function("spin", integer),
        copy_blocks=code.functions["copy_blocks"],
        code=code,
    )


def can_sleep() -> bool:
    """Whether worker threads can sleep here: futexes are Linux's."""
    return sys.platform == "linux" and platform.machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")


def libc_addresses() -> tuple[int, int]:
    """Return the addresses of ``syscall`` and ``sched_yield``."""
    return external_symbol("syscall"), external_symbol("sched_yield")
