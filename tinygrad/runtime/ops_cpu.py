"""The CPU as a device.

In:   object code of kernels with the signature ``void f(void** bufs, int64* vals, int64 begin, int64 end)``.
Out:  ``CPUDevice`` with its allocator (memory that numpy can look at without a copy) and program.
Why:  kernels run in the calling thread and in worker threads (support/cpu_threads.py); a launch returns when it is
      done, so there is nothing to wait for afterwards.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tinygrad.device import BufferSpec, Compiled, LRUAllocator, Program, TinyELF
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.runtime.support.cpu_ahead import native_ahead
from tinygrad.runtime.support.cpu_arch import allow_tiles, missing_features
from tinygrad.runtime.support.cpu_native import native
from tinygrad.runtime.support.cpu_threads import pool_address
from tinygrad.runtime.support.elf import LoadedObject
from tinygrad.system import mv_address
from tinygrad.target import Target

if TYPE_CHECKING:
    from tinygrad.device import Buffer

_PAGE_BYTES: Final = 4096
_HUGE_PAGE_BYTES: Final = 2 << 20
_MADV_HUGEPAGE: Final = 14
_SMALL_ALIGN: Final = 64  # a cache line, and the widest vector
_LARGE_BYTES: Final = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]
_libc.free.restype = None
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class _Block:
    """Memory of the C library, freed with the last reference to it."""

    __slots__ = ("_free", "address")

    def __init__(self, nbytes: int) -> None:
        self.address = 0
        self._free = _libc.free
        align = (
            _SMALL_ALIGN if nbytes < _PAGE_BYTES else _PAGE_BYTES if nbytes < 2 * _HUGE_PAGE_BYTES else _HUGE_PAGE_BYTES
        )
        pointer = ctypes.c_void_p()
        if _libc.posix_memalign(ctypes.byref(pointer), align, nbytes) or not pointer.value:
            raise MemoryError(f"the system has no {nbytes} bytes left")
        self.address = pointer.value
        if align == _HUGE_PAGE_BYTES:
            # Fewer page faults and address translations; where the kernel does not know it, nothing happens.
            _libc.madvise(self.address, nbytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES, _MADV_HUGEPAGE)

    def __del__(self) -> None:
        if self.address:
            self._free(self.address)


class CPUMemory:
    """A piece of host memory: what the CPU's allocator and programs pass around.

    Args:
        address: Of the first byte.
        nbytes: Size.
        owner: Whatever keeps the memory alive.
    """

    __slots__ = ("address", "nbytes", "owner")

    def __init__(self, address: int, nbytes: int, owner: Any = None) -> None:
        self.address, self.nbytes, self.owner = address, nbytes, owner

    def view(self) -> memoryview:
        """Return the memory itself as writable bytes."""
        array = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        array._owner = self.owner  # type: ignore[attr-defined]  # ctypes objects take attributes
        return memoryview(array).cast("B")


def _block_size(size: int) -> int:
    """Return the size of the block for so many bytes: up to an eighth more, so that blocks serve many small sizes."""
    if size >= _LARGE_BYTES:
        return size
    step = max(_SMALL_ALIGN, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


class CPUAllocator(LRUAllocator[CPUMemory]):
    """Host memory, aligned to cache lines, pages or huge pages by size.

    A program whose sizes are ever new, but small, gets the blocks that it has freed, not ever new ones.

    What is in use is held here too. The garbage collector finalises all that it finds in a cycle: a buffer in one would
    give its block back for reuse, and the block, which only the cycle holds, would free its memory all the same.
    """

    wraps_memory = True

    def __init__(self, dev: Any, **options: Any) -> None:
        super().__init__(dev, **options)
        self._used: dict[int, _Block] = {}

    def alloc(self, size: int, options: BufferSpec | None = None) -> CPUMemory:
        """Allocate ``size`` bytes, in a freed block if there is one."""
        if options is not None and options.external_ptr is not None:
            return super().alloc(size, options)
        block = super().alloc(_block_size(size), options)
        self._used[block.address] = block.owner
        return block if block.nbytes == size else CPUMemory(block.address, size, block.owner)

    def free(self, opaque: CPUMemory, size: int, options: BufferSpec | None = None) -> None:
        """Keep the block for reuse, or release it."""
        is_foreign = options is not None and options.external_ptr is not None
        if not is_foreign:
            self._used.pop(opaque.address, None)
        super().free(opaque, size if is_foreign else _block_size(size), options)

    def _alloc(self, size: int, options: BufferSpec) -> CPUMemory:
        if options.external_ptr is not None:
            return CPUMemory(options.external_ptr, size)
        block = _Block(size)
        if options.zero:
            ctypes.memset(block.address, 0, size)
        return CPUMemory(block.address, size, block)

    def _free(self, opaque: CPUMemory, options: BufferSpec) -> None:
        """Nothing to do: the block is freed with the last view of it."""

    def _as_buffer(self, buf: CPUMemory) -> memoryview:
        return buf.view()

    def _copyin(self, dest: CPUMemory, src: memoryview) -> None:
        ctypes.memmove(dest.address, mv_address(src), src.nbytes)

    def _copyout(self, dest: memoryview, src: CPUMemory) -> None:
        ctypes.memmove(mv_address(dest), src.address, dest.nbytes)

    def _transfer(self, dest: CPUMemory, src: CPUMemory, size: int, **devices: Any) -> None:
        ctypes.memmove(dest.address, src.address, size)

    def _offset(self, buf: CPUMemory, size: int, offset: int) -> CPUMemory:
        return CPUMemory(buf.address + offset, size, buf.owner)

    def _map(self, buf: Buffer) -> CPUMemory:
        """Return another device's memory, if the host can address it."""
        show = getattr(buf.allocator, "_as_buffer", None)
        if show is None:
            raise NotImplementedError(f"CPU: the memory of {buf.device} cannot be addressed by the host")
        view = show(buf.get_buf())
        return CPUMemory(mv_address(view), view.nbytes, view)


class CPUProgram(Program):
    """A kernel in executable memory.

    Attributes:
        address: Of its function.

    Raises:
        RuntimeError: It is for a processor with features that this one lacks, or defines another function.
    """

    def __init__(self, dev: CPUDevice, elf: TinyELF) -> None:
        super().__init__(dev, elf)
        self._code = LoadedObject(elf.lib)
        arch = (elf.target if isinstance(elf.target, Target) else Target.parse(elf.target)).arch
        if missing := missing_features(arch):
            raise RuntimeError(
                f"CPU: {elf.name} was compiled for {arch}, and this processor has no {', '.join(missing)}; choose "
                f"another with DEV, or compile without running: DEV=NULL:LLVM:{arch}"
            )
        if elf.name not in self._code.functions:
            raise RuntimeError(f"CPU: the object code of {elf.name} defines {', '.join(self._code.functions)} instead")
        self.address = self._code.functions[elf.name]
        self._buffers = sum(1 for _, _, _, shape in elf.signature if shape)
        self._values = len(elf.signature) - self._buffers
        self._words: Any = ctypes.c_int64 * len(elf.signature)
        self._run = native().run_one

    def check(self, buffers: int, values: int) -> None:
        """Raise RuntimeError if the numbers of arguments are not those of the kernel."""
        if self.elf.signature and (buffers != self._buffers or values != self._values):
            raise RuntimeError(
                f"CPU: kernel {self.name} takes {self._buffers} buffers and {self._values} values, "
                f"got {buffers} and {values}"
            )

    def __call__(
        self,
        *bufs: CPUMemory,
        global_size: tuple[int, ...] = (1, 1, 1),
        local_size: tuple[int, ...] | None = (1, 1, 1),
        vals: Sequence[int] = (),
        wait: bool = False,
        timeout: float | None = None,
    ) -> float | None:
        """Run the kernel; ``global_size[0]`` is the number of iterations of its THREAD loop."""
        count = len(bufs)
        if count + len(vals) != self._words._length_:
            self.check(count, len(vals))
            self._words = ctypes.c_int64 * (count + len(vals))
        words = self._words(*[buf.address for buf in bufs], *vals)
        address, iterations = ctypes.addressof(words), global_size[0]
        pool = pool_address() if iterations > 1 else None
        if not wait:
            self._run(self.address, address, address + 8 * count, iterations, pool)
            return None
        start = time.perf_counter()
        self._run(self.address, address, address + 8 * count, iterations, pool)
        return time.perf_counter() - start


class CPUDevice(Compiled):
    """The processor that runs Python."""

    def __init__(self, device: str = "CPU") -> None:
        allow_tiles()  # a target that names a processor may use them, whatever this one is
        super().__init__(device, CPUAllocator(self), [LLVMRenderer, ClangRenderer], lambda elf: CPUProgram(self, elf))
        native_ahead()

    @classmethod
    def probe(cls) -> bool:
        """The CPU is always there."""
        return True
