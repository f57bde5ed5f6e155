"""What this machine can do at most: float32 operations and bytes moved per second, measured once and kept on disk.

In:   nothing; the threads of ``NUM_CPU_THREADS`` take part.
Out:  ``cpu_peak()``: (operations per second, bytes per second).
Why:  a kernel's time says little without knowing how fast it could be; DEBUG=2 prints both shares.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Final

from tinygrad.diskcache import diskcache_get, diskcache_put
from tinygrad.runtime.support.compiler_llvm import LLVMCompiler
from tinygrad.runtime.support.cpu_arch import CPUArch, parse_arch
from tinygrad.runtime.support.cpu_native import COPY_BLOCK_BYTES, native
from tinygrad.runtime.support.cpu_threads import pool_address
from tinygrad.runtime.support.elf import LoadedObject
from tinygrad.settings import NUM_CPU_THREADS

_CHAINS: Final = 10  # independent sums: enough to hide the latency of a multiply-add
_ROUNDS: Final = 200_000
_COPY_BYTES: Final = 64 << 20
_TRIES: Final = 3


def _vector_floats(arch: CPUArch) -> int:
    for feature, floats in (("avx512f", 16), ("avx", 8)):
        if feature in arch.enabled:
            return floats
    return 4


def peak_source(floats: int) -> str:
    """Return a kernel that does ``_ROUNDS`` rounds of independent multiply-adds in every iteration."""
    vector = f"<{floats} x float>"
    chains = range(_CHAINS)
    start = "\n".join(f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in chains)
    body = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.v{floats}f32({vector} %x, {vector} %x, {vector} %a{i})" for i in chains
    )
    sums = "\n".join(f"  %s{i} = fadd {vector} {f'%s{i - 1}' if i else '%x'}, %b{i}" for i in chains)
    return f"""
declare {vector} @llvm.fma.v{floats}f32({vector}, {vector}, {vector})
define void @peak(ptr %bufs, ptr %vals, i64 %begin, i64 %end) {{
entry:
  %out = load ptr, ptr %bufs
  %x = load {vector}, ptr %out, align 4
  %count = sub i64 %end, %begin
  %total = mul i64 %count, {_ROUNDS}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{start}
{body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %total
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{_CHAINS - 1}, ptr %out, align 4
  ret void
}}
"""


def _best(run: Callable[[], object]) -> float:
    run()
    seconds = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _measure() -> tuple[float, float]:
    arch, threads = parse_arch(), NUM_CPU_THREADS.get()
    floats = _vector_floats(arch)
    code = LoadedObject(LLVMCompiler(arch).compile_cached(peak_source(floats)))
    scratch = (ctypes.c_float * 64)()
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(scratch), 0)
    launch, pool = native().run_one, pool_address()
    seconds = _best(lambda: launch(code.functions["peak"], pointers, None, threads, pool))
    operations = 2 * floats * _CHAINS * _ROUNDS * threads / seconds
    memory = [(ctypes.c_uint8 * _COPY_BYTES)() for _ in range(2)]
    places = (ctypes.c_void_p * 2)(*[ctypes.addressof(m) for m in memory])
    nbytes = (ctypes.c_int64 * 1)(_COPY_BYTES)
    seconds = _best(lambda: launch(native().copy_blocks, places, nbytes, _COPY_BYTES // COPY_BLOCK_BYTES, pool))
    return operations, 2 * _COPY_BYTES / seconds


@functools.cache
def cpu_peak() -> tuple[float, float]:
    """Return (float32 operations per second, bytes per second) that this machine reaches."""
    arch = parse_arch()
    key = f"{arch.machine}-{arch.host}-{','.join(sorted(arch.enabled))}-{NUM_CPU_THREADS.get()}"
    match diskcache_get("cpu_peak", key):
        case (float() as operations, float() as nbytes):
            return operations, nbytes
    measured = _measure()
    diskcache_put("cpu_peak", key, measured)
    return measured
