"""The native code of the CPU runtime: launching kernels, sharing their iterations with worker threads, copying.

In:   nothing.
Out:  ``native()``: the functions ``run_one``, ``run_list``, ``worker``, ``stop``, ``spin`` and ``copy_blocks``,
      compiled by the project's own LLVM compiler once and then taken from the disk cache.
Why:  a replayed list of kernels must cost well under a microsecond per kernel, so no Python runs between two of them.

A pool runs one kernel at a time. Its iterations are cut into pieces, and every thread has a lane with its share of
them, the same share whenever a kernel has as many: what a thread has written in one kernel it then reads in the next,
from its own cache. Who has emptied his lane helps to empty the others, so nobody waits for a thread that is asleep or
has been interrupted. A lane's first word holds the number of the kernel (upper half) and how many pieces nobody has
taken yet (lower half); whoever takes some does so by a compare-and-swap on both together. So a thread that comes late
can never take a piece of one kernel with the arguments of another: a lane is filled anew only when all pieces are done.

Workers spin for a while when they find nothing, longer while a list runs, and then sleep on a futex. A sleeping worker
may be overlooked by the launch that comes at the same moment; the launching thread looks again before each piece.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from typing import Any, Final

from tinygrad.executable import Compiler
from tinygrad.forking import renew_in_child
from tinygrad.record import record
from tinygrad.runtime.support.cpu_arch import parse_arch
from tinygrad.runtime.support.elf import LoadedObject, external_symbol
from tinygrad.system import host_machine

# Byte offsets in a pool. Words that different threads write lie on cache lines of their own.
DONE, BUSY, SLEEPERS, SETUP, LANES = 0, 64, 128, 192, 256
LANE_BYTES: Final = 64
# BUSY: taken, number of the last kernel. SLEEPERS: number of wakes (the futex), sleepers, lists that are running.
# SETUP: stop, spins before sleeping, threads, addresses of syscall and sched_yield.
# A lane: number and pieces left, end of its pieces, function, bufs, vals, iterations, iterations per piece, pieces that
# are taken at once at least.
COPY_BLOCK_BYTES: Final = 1 << 18
# One launch of run_list: function, bufs, vals, iterations; and for the first of a group whose iterations go through all
# its launches, their number (otherwise 1) and how many iterations the last two are counted as less than two (0 or 1).
RECORD_WORDS: Final = 6


def launch_record(function: int, bufs: int, vals: int, iterations: int) -> list[int]:
    """Return the words of a launch that is in no group: addresses, and the iterations of its THREAD loop."""
    return [function, bufs, vals, iterations, 1, 0]


_FUTEX_CALL: Final = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_PAUSE: Final = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32 immarg)", "call void @llvm.aarch64.hint(i32 1)"),
}

_SOURCE: Final = r"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
@PAUSE_DECLARATION@

; Takes a quarter of the pieces that are left in a lane, or as few as are worth a call, and runs them; returns how many
; these were.
define internal i64 @run_some(ptr %lane) nounwind {
entry:
  br label %again
again:
  %state = load atomic i64, ptr %lane acquire, align 8
  %left = and i64 %state, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %nothing, label %take
take:
  %more = add i64 %left, 3
  %quarter = lshr i64 %more, 2
  %p7 = getelementptr i8, ptr %lane, i64 56
  %fewest = load atomic i64, ptr %p7 monotonic, align 8
  %enough = call i64 @llvm.smax.i64(i64 %quarter, i64 %fewest)
  %some = call i64 @llvm.smin.i64(i64 %enough, i64 %left)
  %less = sub i64 %state, %some
  %pair = cmpxchg ptr %lane, i64 %state, i64 %less acq_rel acquire
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %run, label %again
run:
  %p1 = getelementptr i8, ptr %lane, i64 8
  %p2 = getelementptr i8, ptr %lane, i64 16
  %p3 = getelementptr i8, ptr %lane, i64 24
  %p4 = getelementptr i8, ptr %lane, i64 32
  %p5 = getelementptr i8, ptr %lane, i64 40
  %p6 = getelementptr i8, ptr %lane, i64 48
  %last = load i64, ptr %p1
  %function = load ptr, ptr %p2
  %bufs = load ptr, ptr %p3
  %vals = load ptr, ptr %p4
  %n = load i64, ptr %p5
  %chunk = load i64, ptr %p6
  %piece = sub i64 %last, %left
  %past = add i64 %piece, %some
  %begin = mul i64 %piece, %chunk
  %stop = mul i64 %past, %chunk
  %end = call i64 @llvm.smin.i64(i64 %stop, i64 %n)
  call void %function(ptr %bufs, ptr %vals, i64 %begin, i64 %end)
  ret i64 %some
nothing:
  ret i64 0
}

; Wakes all sleeping workers, if there are any.
define internal void @wake(ptr %pool) nounwind {
entry:
  %sleepers = getelementptr i8, ptr %pool, i64 136
  %asleep = load atomic i64, ptr %sleepers monotonic, align 8
  %any = icmp ne i64 %asleep, 0
  br i1 %any, label %call, label %exit
call:
  store atomic i64 0, ptr %sleepers seq_cst, align 8
  %number = getelementptr i8, ptr %pool, i64 128
  %old = atomicrmw add ptr %number, i32 1 seq_cst
  %syscall.p = getelementptr i8, ptr %pool, i64 216
  %syscall = load ptr, ptr %syscall.p
  %woken = call i64 (i64, ...) %syscall(i64 @FUTEX@, ptr %number, i64 129, i32 2147483647, ptr null, ptr null, i64 0)
  br label %exit
exit:
  ret void
}

; Empties the thread's own lane, then the others; returns how many pieces it ran. The launching thread (0) looks for
; sleepers before each take.
define internal i64 @empty_lanes(ptr %pool, i64 %me) nounwind {
entry:
  %threads.p = getelementptr i8, ptr %pool, i64 208
  %threads = load i64, ptr %threads.p
  %lanes = getelementptr i8, ptr %pool, i64 256
  %launching = icmp eq i64 %me, 0
  br label %lane
lane:
  %number = phi i64 [ %me, %entry ], [ %following, %empty ]
  %visited = phi i64 [ 0, %entry ], [ %visited.next, %empty ]
  %before = phi i64 [ 0, %entry ], [ %count, %empty ]
  %address = getelementptr [64 x i8], ptr %lanes, i64 %number
  br label %look
look:
  %count = phi i64 [ %before, %lane ], [ %count.next, %take ]
  br i1 %launching, label %rouse, label %take
rouse:
  call void @wake(ptr %pool)
  br label %take
take:
  %some = call i64 @run_some(ptr %address)
  %count.next = add i64 %count, %some
  %worked = icmp ne i64 %some, 0
  br i1 %worked, label %look, label %empty
empty:
  %visited.next = add i64 %visited, 1
  %up = add i64 %number, 1
  %wraps = icmp eq i64 %up, %threads
  %following = select i1 %wraps, i64 0, i64 %up
  %all = icmp eq i64 %visited.next, %threads
  br i1 %all, label %exit, label %lane
exit:
  ret i64 %count
}

; The life of worker thread @me (1, 2 ...): returns when the pool is stopped.
define void @worker(ptr %pool, i64 %me) nounwind {
entry:
  %lanes = getelementptr i8, ptr %pool, i64 256
  %own = getelementptr [64 x i8], ptr %lanes, i64 %me
  %wakes = getelementptr i8, ptr %pool, i64 128
  %sleepers = getelementptr i8, ptr %pool, i64 136
  %lists = getelementptr i8, ptr %pool, i64 144
  %stop = getelementptr i8, ptr %pool, i64 192
  %limit.p = getelementptr i8, ptr %pool, i64 200
  %limit = load i64, ptr %limit.p
  %patience = shl i64 %limit, 6
  %syscall.p = getelementptr i8, ptr %pool, i64 216
  %syscall = load ptr, ptr %syscall.p
  br label %look
look:
  %seen = phi i64 [ 0, %entry ], [ %number, %work ], [ %number, %report ], [ %seen, %wait ],
                  [ %seen, %tired ], [ %seen, %doze ], [ %seen, %sleep ]
  %spins = phi i64 [ 0, %entry ], [ 0, %work ], [ 0, %report ], [ %spins.next, %wait ],
                   [ %spins.next, %tired ], [ 0, %doze ], [ 0, %sleep ]
  %state = load atomic i64, ptr %own acquire, align 8
  %number = lshr i64 %state, 32
  %same = icmp eq i64 %number, %seen
  br i1 %same, label %idle, label %work
work:
  %count = call i64 @empty_lanes(ptr %pool, i64 %me)
  %worked = icmp ne i64 %count, 0
  br i1 %worked, label %report, label %look
report:
  %old = atomicrmw add ptr %pool, i64 %count acq_rel
  br label %look
idle:
  %stopped = load atomic i64, ptr %stop seq_cst, align 8
  %go = icmp eq i64 %stopped, 0
  br i1 %go, label %wait, label %exit
wait:
  @PAUSE@
  %spins.next = add i64 %spins, 1
  %long = icmp sgt i64 %spins.next, %limit
  br i1 %long, label %tired, label %look
tired:
  %running = load atomic i64, ptr %lists monotonic, align 8
  %quiet = icmp eq i64 %running, 0
  %longer = icmp sgt i64 %spins.next, %patience
  %enough = or i1 %quiet, %longer
  br i1 %enough, label %doze, label %look
doze:
  %wakes.seen = load atomic i32, ptr %wakes seq_cst, align 4
  %up = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %again = load atomic i64, ptr %own seq_cst, align 8
  %still = icmp eq i64 %again, %state
  %stopping = load atomic i64, ptr %stop seq_cst, align 8
  %staying = icmp eq i64 %stopping, 0
  %nothing = and i1 %still, %staying
  br i1 %nothing, label %sleep, label %look
sleep:
  %woken = call i64 (i64, ...) %syscall(i64 @FUTEX@, ptr %wakes, i64 128, i32 %wakes.seen, ptr null, ptr null, i64 0)
  br label %look
exit:
  ret void
}

; Tells the workers to return: raises the flag and wakes them.
define void @stop(ptr %pool) nounwind {
  %flag = getelementptr i8, ptr %pool, i64 192
  store atomic i64 1, ptr %flag seq_cst, align 8
  %sleepers = getelementptr i8, ptr %pool, i64 136
  %up = atomicrmw add ptr %sleepers, i64 1 seq_cst
  call void @wake(ptr %pool)
  ret void
}

; Gives every thread its share of iterations 0..n-1 of a kernel.
define internal i64 @fill_lanes(ptr %function, ptr %bufs, ptr %vals, i64 %n, ptr %pool) nounwind {
entry:
  %threads.p = getelementptr i8, ptr %pool, i64 208
  %threads = load i64, ptr %threads.p
  ; A lane counts pieces in 32 bits, so a piece is more than one iteration only where there are 2^31 and more.
  %half.words = lshr i64 %n, 31
  %chunk = add i64 %half.words, 1
  %pieces0 = add i64 %n, %half.words
  %pieces = udiv i64 %pieces0, %chunk
  %takes = mul i64 %threads, @TAKES@
  %each = udiv i64 %pieces, %takes
  %fewest = call i64 @llvm.smax.i64(i64 %each, i64 1)
  %pieces32 = trunc i64 %pieces to i32
  %threads32 = trunc i64 %threads to i32
  %share32 = udiv i32 %pieces32, %threads32
  %extra32 = urem i32 %pieces32, %threads32
  %share = zext i32 %share32 to i64
  %extra = zext i32 %extra32 to i64
  %last.p = getelementptr i8, ptr %pool, i64 72
  %last = load i64, ptr %last.p
  %kernel0 = add i64 %last, 1
  %kernel = and i64 %kernel0, 4294967295
  store i64 %kernel, ptr %last.p
  %upper = shl i64 %kernel, 32
  %lanes = getelementptr i8, ptr %pool, i64 256
  store atomic i64 0, ptr %pool monotonic, align 8
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fill ]
  %begin = phi i64 [ 0, %entry ], [ %end, %fill ]
  %one.more = icmp ult i64 %i, %extra
  %plus = zext i1 %one.more to i64
  %count = add i64 %share, %plus
  %end = add i64 %begin, %count
  %state = or i64 %upper, %count
  %lane = getelementptr [64 x i8], ptr %lanes, i64 %i
  %p1 = getelementptr i8, ptr %lane, i64 8
  %p2 = getelementptr i8, ptr %lane, i64 16
  %p3 = getelementptr i8, ptr %lane, i64 24
  %p4 = getelementptr i8, ptr %lane, i64 32
  %p5 = getelementptr i8, ptr %lane, i64 40
  %p6 = getelementptr i8, ptr %lane, i64 48
  %p7 = getelementptr i8, ptr %lane, i64 56
  store i64 %end, ptr %p1
  store ptr %function, ptr %p2
  store ptr %bufs, ptr %p3
  store ptr %vals, ptr %p4
  store i64 %n, ptr %p5
  store i64 %chunk, ptr %p6
  store atomic i64 %fewest, ptr %p7 monotonic, align 8
  store atomic i64 %state, ptr %lane release, align 8
  %i.next = add i64 %i, 1
  %rest = icmp ult i64 %end, %pieces
  br i1 %rest, label %fill, label %exit
exit:
  ret i64 %pieces
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
  %busy = getelementptr i8, ptr %pool, i64 64
  %was = atomicrmw xchg ptr %busy, i64 1 acquire
  %free = icmp eq i64 %was, 0
  br i1 %free, label %share, label %alone
share:
  %pieces = call i64 @fill_lanes(ptr %function, ptr %bufs, ptr %vals, i64 %n, ptr %pool)
  %mine = call i64 @empty_lanes(ptr %pool, i64 0)
  %theirs = sub i64 %pieces, %mine
  br label %wait
wait:
  %spins = phi i64 [ 0, %share ], [ %spins.next, %pause ], [ 0, %yield ]
  %finished = load atomic i64, ptr %pool acquire, align 8
  %all = icmp eq i64 %finished, %theirs
  br i1 %all, label %leave, label %pause
pause:
  @PAUSE@
  %spins.next = add i64 %spins, 1
  %long = icmp sgt i64 %spins.next, 2000
  br i1 %long, label %yield, label %wait
yield:
  %yield.p = getelementptr i8, ptr %pool, i64 224
  %sched = load ptr, ptr %yield.p
  %result = call i32 %sched()
  br label %wait
leave:
  store atomic i64 0, ptr %busy release, align 8
  ret void
}

; A kernel: iterations of a group of launches, each through all of them. @record is the first launch.
define internal void @run_group(ptr %record, ptr %vals, i64 %begin, i64 %end) nounwind {
entry:
  %r3 = getelementptr i8, ptr %record, i64 24
  %r4 = getelementptr i8, ptr %record, i64 32
  %r5 = getelementptr i8, ptr %record, i64 40
  %n = load i64, ptr %r3
  %length = load i64, ptr %r4
  %less = load i64, ptr %r5
  %counted = sub i64 %n, %less
  %last = icmp eq i64 %end, %counted
  %until = select i1 %last, i64 %n, i64 %end
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %q0 = getelementptr [6 x i64], ptr %record, i64 %i
  %q1 = getelementptr i8, ptr %q0, i64 8
  %q2 = getelementptr i8, ptr %q0, i64 16
  %function = load ptr, ptr %q0
  %bufs = load ptr, ptr %q1
  %values = load ptr, ptr %q2
  call void %function(ptr %bufs, ptr %values, i64 %begin, i64 %until)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %length
  br i1 %more, label %body, label %exit
exit:
  ret void
}

; Runs a list of launches in order. Kernels of one iteration are called right here.
define void @run_list(ptr %records, i64 %count, ptr %pool) nounwind {
entry:
  %lists = getelementptr i8, ptr %pool, i64 144
  %none = icmp sle i64 %count, 0
  %nopool = icmp eq ptr %pool, null
  br i1 %none, label %exit, label %start
start:
  br i1 %nopool, label %body, label %open
open:
  %up = atomicrmw add ptr %lists, i64 1 monotonic
  br label %body
body:
  %i = phi i64 [ 0, %start ], [ 0, %open ], [ %next, %done ]
  %r0 = getelementptr [6 x i64], ptr %records, i64 %i
  %r1 = getelementptr i8, ptr %r0, i64 8
  %r2 = getelementptr i8, ptr %r0, i64 16
  %r3 = getelementptr i8, ptr %r0, i64 24
  %r4 = getelementptr i8, ptr %r0, i64 32
  %r5 = getelementptr i8, ptr %r0, i64 40
  %function = load ptr, ptr %r0
  %bufs = load ptr, ptr %r1
  %vals = load ptr, ptr %r2
  %n = load i64, ptr %r3
  %length = load i64, ptr %r4
  %joined = icmp sgt i64 %length, 1
  br i1 %joined, label %group, label %single
group:
  %less = load i64, ptr %r5
  %counted = sub i64 %n, %less
  call void @run_one(ptr @run_group, ptr %r0, ptr null, i64 %counted, ptr %pool)
  br label %done
single:
  %one = icmp eq i64 %n, 1
  br i1 %one, label %here, label %shared
here:
  call void %function(ptr %bufs, ptr %vals, i64 0, i64 1)
  br label %done
shared:
  call void @run_one(ptr %function, ptr %bufs, ptr %vals, i64 %n, ptr %pool)
  br label %done
done:
  %next = add i64 %i, %length
  %more = icmp slt i64 %next, %count
  br i1 %more, label %body, label %end
end:
  br i1 %nopool, label %exit, label %close
close:
  %down = atomicrmw sub ptr %lists, i64 1 monotonic
  br label %exit
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
# Many small takes even out pieces of different cost and cores of different speed; each costs a call.
_TAKES_PER_THREAD: Final = 16


@record(frozen=True)
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
        .replace("@TAKES@", str(_TAKES_PER_THREAD))
        .replace("@FUTEX@", str(_FUTEX_CALL[machine]))
    )


_native_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_native_lock")


def is_loaded() -> bool:
    """Whether the native functions are there."""
    return _load_native.cache_info().currsize > 0


def native() -> Native:
    """Return the native functions, compiling them if the disk cache does not have them."""
    # functools.cache alone lets two threads load the code; the memory of one of them would be freed while in use.
    with _native_lock:
        return _load_native()


def compiler_and_source() -> tuple[Compiler, str]:
    """Return the compiler of the native functions, and their IR."""
    from tinygrad.runtime.support.compiler_llvm import LLVMCompiler

    arch = parse_arch()
    return LLVMCompiler(arch), native_source(arch.machine)


@functools.cache
def _load_native() -> Native:
    compiler, source = compiler_and_source()
    code = LoadedObject(compiler.compile_cached(source))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64

    def function(name: str, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(None, *arguments)(code.functions[name])

    return Native(
        run_one=function("run_one", pointer, pointer, pointer, integer, pointer),
        run_list=function("run_list", pointer, integer, pointer),
        worker=function("worker", pointer, integer),
        stop=function("stop", pointer),
        spin=function("spin", integer),
        copy_blocks=code.functions["copy_blocks"],
        code=code,
    )


def can_sleep() -> bool:
    """Whether worker threads can sleep here: futexes are Linux's."""
    return sys.platform == "linux" and host_machine() in ("x86_64", "amd64", "aarch64", "arm64")


def libc_addresses() -> tuple[int, int]:
    """Return the addresses of ``syscall`` and ``sched_yield``."""
    return external_symbol("syscall"), external_symbol("sched_yield")
