"""Allocators: memory of one device, and a bounded cache of freed memory.

In:   sizes in bytes and ``BufferSpec`` options.
Out:  whatever the device calls a piece of memory. A device file subclasses ``Allocator`` or ``LRUAllocator``.
Why:  asking the driver for memory is slow, and a training step wants the same sizes again and again.

Freeing may be caused by the garbage collector inside any statement of any thread, so it takes no lock that the
interrupted code could hold.
"""

from __future__ import annotations

import collections
import gc
import itertools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tinygrad.forking import renew_in_child
from tinygrad.helpers import GlobalCounters
from tinygrad.record import record
from tinygrad.settings import LRU, getenv

if TYPE_CHECKING:
    from tinygrad.buffer import Buffer

Opaque = TypeVar("Opaque")


# ---- allocators ----------------------------------------------------------------------------------------------------


@record(frozen=True, eq=True)
class BufferSpec:
    """Options of an allocation.

    Attributes:
        uncached: Memory that caches do not hold.
        cpu_access: The host can read and write it.
        host: Lies in host memory.
        nolru: Give it back to the system at once when it is freed.
        zero: Filled with zeros.
        external_ptr: Address of foreign memory to wrap instead of allocating.
    """

    uncached: bool = False
    cpu_access: bool = False
    host: bool = False
    nolru: bool = False
    zero: bool = False
    external_ptr: int | None = None


class Allocator(Generic[Opaque]):
    """Memory of one device. ``Opaque`` is whatever the device calls a piece of memory.

    A device implements ``_alloc``, ``_free``, ``_copyin``, ``_copyout`` and ``_offset``; all else is optional.

    Args:
        dev: The opened device.
        supports_copy_from_disk: ``copy_from_disk`` may be used.
        supports_transfer: ``_transfer`` may be used.
    """

    default_buffer_spec: ClassVar[BufferSpec] = BufferSpec()
    # Whether ``_alloc`` wraps the memory at ``external_ptr``.
    wraps_memory: ClassVar[bool] = False

    def __init__(self, dev: Any, supports_copy_from_disk: bool = True, supports_transfer: bool = True) -> None:
        self.dev = dev
        self.supports_copy_from_disk = supports_copy_from_disk
        self.supports_transfer = supports_transfer

    def alloc(self, size: int, options: BufferSpec | None = None) -> Opaque:
        """Allocate ``size`` bytes.

        Raises:
            AssertionError: ``size`` is not positive.
            MemoryError: The device has no such memory left; the message says how much is in use.
        """
        assert size > 0, f"alloc: size must be positive, got {size} bytes"
        try:
            if size > sys.maxsize:  # a C library would take it modulo 2 ** 64
                raise MemoryError(f"no address space has {size} bytes")
            return self._alloc(size, options or self.default_buffer_spec)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, NotImplementedError):
                raise
            raise MemoryError(self._usage(size, error)) from error

    def _usage(self, size: int, error: Exception) -> str:
        name = getattr(self.dev, "device", type(self).__name__)
        used = GlobalCounters.mem_used_per_device[name]
        reason = f" ({error})" if str(error) else ""  # Python's own MemoryError says nothing
        return (
            f"{name}: allocation of {size / 1e6:.2f} MB failed with {used / 1e6:.2f} MB of this device in use"
            f"{reason}; free tensors, or use smaller batches"
        )

    def free(self, opaque: Opaque, size: int, options: BufferSpec | None = None) -> None:
        """Give memory back."""
        self._free(opaque, options or self.default_buffer_spec)

    def _alloc(self, size: int, options: BufferSpec) -> Opaque:
        raise NotImplementedError(f"{type(self).__name__} does not implement _alloc")

    def _free(self, opaque: Opaque, options: BufferSpec) -> None:
        """Release memory; nothing to do where Python's reference counting does it."""

    def _copyin(self, dest: Opaque, src: memoryview) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not implement _copyin")

    def _copyout(self, dest: memoryview, src: Opaque) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not implement _copyout")

    def _offset(self, buf: Opaque, size: int, offset: int) -> Opaque:
        raise NotImplementedError(f"{type(self).__name__} does not implement _offset: it has no views of buffers")

    def _map(self, buf: Buffer) -> Opaque:
        raise NotImplementedError(
            f"{type(self).__name__} does not implement _map: it cannot use another device's memory"
        )

    # Optional, found with hasattr: _as_buffer(buf) -> memoryview; _transfer(dest, src, size, src_dev, dest_dev);
    # copy_from_disk(dest, src, size).


def _default_cache_limit() -> int:
    megabytes = getenv("LRU_LIMIT_MB", 0)
    if megabytes:
        return int(megabytes) << 20
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        physical = 8 << 30
    return max(256 << 20, physical // 8)


class LRUAllocator(Allocator[Opaque]):
    """Keeps freed blocks for the next allocation of the same size and options, up to a limit; the oldest go first."""

    def __init__(
        self,
        dev: Any,
        supports_copy_from_disk: bool = True,
        supports_transfer: bool = True,
        cache_limit: int | None = None,
    ) -> None:
        super().__init__(dev, supports_copy_from_disk, supports_transfer)
        self.cache_limit = _default_cache_limit() if cache_limit is None else cache_limit
        self._filed_bytes = 0
        self._cache: dict[tuple[int, BufferSpec], collections.deque[tuple[int, Opaque]]] = {}
        # (number, key) in the order of freeing; entries whose block was taken meanwhile are skipped.
        self._order: collections.deque[tuple[int, tuple[int, BufferSpec]]] = collections.deque()
        self._numbers = itertools.count()
        # ``free`` may interrupt any code, this class's too: it only appends here, and the next allocation files it.
        self._freed: collections.deque[tuple[int, BufferSpec, Opaque]] = collections.deque()
        self._unfiled_bytes = 0  # may be wrong by what several threads free at once; filing sets it right
        self._live = 0  # blocks in the cache
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    @property
    def cached_bytes(self) -> int:
        """Bytes of freed blocks that are kept."""
        return self._filed_bytes + sum(size for size, _, _ in list(self._freed))

    def alloc(self, size: int, options: BufferSpec | None = None) -> Opaque:
        """Allocate ``size`` bytes, from the cache if a freed block fits exactly."""
        options = options or self.default_buffer_spec
        block = self._take((size, options))
        if block is not None:
            return block[0]
        try:
            return super().alloc(size, options)
        except MemoryError:
            gc.collect()  # Python counts objects, not their bytes: a few that are garbage may hold all the memory
            self.free_cache()
            return super().alloc(size, options)

    def _take(self, key: tuple[int, BufferSpec]) -> tuple[Opaque] | None:
        with self._lock:
            # In a loop of equal steps, the block that was freed last is nearly always the one that fits.
            if self._freed:
                size, options, opaque = self._freed.pop()
                if (size, options) == key:
                    self._unfiled_bytes -= size
                    return (opaque,)
                self._freed.append((size, options, opaque))
            self._file_freed()
            blocks = self._cache.get(key)
            if not blocks:
                return None
            # The block that was freed last is the one that is still in the processor's caches.
            _, opaque = blocks.pop()
            self._filed_bytes -= key[0]
            self._live -= 1
            return (opaque,)

    def free(self, opaque: Opaque, size: int, options: BufferSpec | None = None) -> None:
        """Keep the block for reuse, or release it (``LRU=0``, ``nolru``, foreign memory, zeroed memory)."""
        options = options or self.default_buffer_spec
        if not LRU.get() or options.nolru or options.zero or options.external_ptr is not None:
            super().free(opaque, size, options)
            return
        self._freed.append((size, options, opaque))
        self._unfiled_bytes += size
        # Seldom, since a KeyboardInterrupt between these two lines would leave the lock taken for ever.
        if self._filed_bytes + self._unfiled_bytes > self.cache_limit and self._lock.acquire(blocking=False):
            try:
                self._file_freed()
            finally:
                self._lock.release()

    def _file_freed(self) -> None:
        """Move freed blocks into the cache and evict the oldest beyond the limit. The caller holds the lock."""
        self._unfiled_bytes = 0
        while self._freed:
            size, options, opaque = self._freed.popleft()
            number, key = next(self._numbers), (size, options)
            self._cache.setdefault(key, collections.deque()).append((number, opaque))
            self._order.append((number, key))
            self._filed_bytes += size
            self._live += 1
        while self._order and (self._filed_bytes > self.cache_limit or len(self._order) > 100_000):
            number, key = self._order.popleft()
            blocks = self._cache[key]
            if blocks and blocks[0][0] == number:
                self._filed_bytes -= key[0]
                self._live -= 1
                self._free(blocks.popleft()[1], key[1])
        self._drop_stale_order()

    def _drop_stale_order(self) -> None:
        # Blocks are taken from the end, so most entries of ``_order`` may be stale: rebuild it when it has grown too
        # long.
        if len(self._order) > 1024 and len(self._order) > 4 * self._live:
            entries = sorted((number, key) for key, blocks in self._cache.items() for number, _ in blocks)
            self._order = collections.deque(entries)

    def free_cache(self) -> None:
        """Release every cached block."""
        with self._lock:
            self._file_freed()
            for (_, options), blocks in self._cache.items():
                for _, opaque in blocks:
                    self._free(opaque, options)
            self._cache.clear()
            self._order.clear()
            self._filed_bytes = self._live = 0
