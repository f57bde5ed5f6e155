"""Buffers: the memory on a device that tensors and kernels share.

In:   a device name, a number of elements and a dtype.
Out:  ``Buffer`` (lazily allocated memory, or a view into another buffer), freed when its last reference dies.
Why:  buffers know devices only by name and look them up when they allocate, so that this file needs no device.

Allocation is safe from several threads. ``Buffer.__del__`` may run inside any statement of any thread (the garbage
collector decides), so freeing takes no lock that the interrupted code could hold.
"""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar

from tinygrad.allocator import Allocator, BufferSpec, LRUAllocator
from tinygrad.dtype import DType, _to_np_dtype, dtypes
from tinygrad.forking import renew_in_child
from tinygrad.helpers import GlobalCounters
from tinygrad.record import replace
from tinygrad.settings import DEBUG, MAX_BUFFER_SIZE

if TYPE_CHECKING:
    import numpy as np

    from tinygrad.device import _Device

__all__ = [
    "Allocator",
    "Buffer",
    "BufferSpec",
    "LRUAllocator",
    "MultiBuffer",
    "register_device_lookup",
]

_device_lookup: _Device


def register_device_lookup(lookup: _Device) -> None:
    """Tell buffers where to find devices by name; called once by ``tinygrad.device``."""
    global _device_lookup
    _device_lookup = lookup


_allocation_lock = threading.RLock()
_counter_lock = threading.RLock()
renew_in_child(sys.modules[__name__], "_allocation_lock", "_counter_lock")


def _count_memory(device: str, nbytes: int) -> None:
    with _counter_lock:
        GlobalCounters.mem_used += nbytes
        GlobalCounters.mem_used_per_device[device] += nbytes


class Buffer:
    """A one-dimensional piece of memory on one device, allocated when first needed; or a view into another buffer.

    Args:
        device: Name of the device.
        size: Number of elements.
        dtype: Their dtype.
        opaque: Memory that exists already, in the form of the device's allocator; the buffer then does not free it.
        options: Options of the allocation.
        initial_value: Bytes to fill it with; allocates at once.
        uop_refcount: Number of graph nodes that use it.
        base: The buffer that this one is a view of.
        offset: Where the view begins, in bytes.
        preallocate: Allocate at once.
    """

    _trace_numbers: ClassVar[itertools.count[int]] = itertools.count()

    def __init__(
        self,
        device: str,
        size: int,
        dtype: DType,
        opaque: Any = None,
        options: BufferSpec | None = None,
        initial_value: bytes | bytearray | memoryview | None = None,
        uop_refcount: int = 0,
        base: Buffer | None = None,
        offset: int = 0,
        preallocate: bool = False,
    ) -> None:
        assert isinstance(dtype, DType), f"Buffer: dtype must be a DType, got {dtype!r}"
        assert dtype not in dtypes.weaks, f"Buffer: {dtype} cannot be stored"
        self.device, self.size, self.dtype, self.options, self.offset = device, size, dtype, options, offset
        self.nbytes = size * dtype.itemsize
        self._base, self._uop_refcount, self._owned, self._allocated_views = base, uop_refcount, False, 0
        self._buf: Any = None
        self._trace_num: int | None = None
        if base is None:
            assert offset == 0, f"Buffer: a buffer that is no view has offset 0, got {offset}"
            if opaque is not None:
                self.allocate(opaque)
            if initial_value is not None:
                self.allocate()
                if self.nbytes:
                    self.copyin(memoryview(initial_value))
        else:
            assert base._base is None, "Buffer: the base of a view must not be a view itself"
            assert base.device == device, f"Buffer: a view on {device} of memory on {base.device}"
        if preallocate:
            self.ensure_allocated()

    # -- identity

    @property
    def base(self) -> Buffer:
        """The buffer that owns the memory: itself, unless it is a view."""
        return self if self._base is None else self._base

    @property
    def uop_refcount(self) -> int:
        """Number of graph nodes that use the memory."""
        return self.base._uop_refcount

    def ref(self, n: int) -> Buffer:
        """Change the number of graph nodes that use the memory by ``n``; returns self."""
        self.base._uop_refcount += n
        return self

    @property
    def trace_num(self) -> int:
        """A number that identifies the memory in traces."""
        base = self.base
        if base._trace_num is None:
            base._trace_num = next(Buffer._trace_numbers)
        return base._trace_num

    @property
    def allocator(self) -> Allocator[Any]:
        """The allocator of its device."""
        return _device_lookup[self.device].allocator

    # -- memory

    def is_allocated(self) -> bool:
        """Whether the memory exists (that of the base, for a view)."""
        return self.base._buf is not None

    def is_initialized(self) -> bool:
        """Whether the memory exists and this buffer has its own handle of it."""
        return self._buf is not None and self.is_allocated()

    def ensure_allocated(self) -> Buffer:
        """Allocate the memory unless it exists; returns self."""
        if self._buf is None:
            with _allocation_lock:
                if self._buf is None:
                    self.allocate()
        return self

    def allocate(self, opaque: Any = None, external_ptr: int | None = None) -> Buffer:
        """Allocate the memory, or adopt memory that exists.

        Args:
            opaque: Memory in the form of the device's allocator. It is not freed by this buffer.
            external_ptr: Address of foreign memory; the caller keeps it alive.

        Raises:
            AssertionError: It is allocated already.
            RuntimeError: It is larger than MAX_BUFFER_SIZE.
            MemoryError: The device has no such memory left.
        """
        assert self._buf is None, "Buffer.allocate: this buffer is allocated already"
        limit = MAX_BUFFER_SIZE.get()
        if limit and self.size > limit and not self.device.startswith("DISK"):
            raise RuntimeError(f"buffer of size {self.size} is too large; MAX_BUFFER_SIZE is {limit}")
        if external_ptr is not None:
            self.options = replace(self.options or BufferSpec(), external_ptr=external_ptr)
        if self._base is not None:
            self._base.ensure_allocated()
            offset, end = self.offset, self.offset + self.nbytes
            assert end <= self._base.nbytes, f"Buffer: view of bytes {offset}..{end} of {self._base.nbytes}"
            self._buf = self.allocator._offset(self._base._buf, self.nbytes, self.offset)
            self._base._allocated_views += 1
        elif opaque is not None:
            self._buf = opaque
        else:
            # Empty tensors own one element, so that kernels and copies need no case of their own.
            self._buf = self.allocator.alloc(self.nbytes or self.dtype.itemsize, self.options)
            self._owned = True
            if not self.device.startswith("DISK") and (self.options is None or self.options.external_ptr is None):
                _count_memory(self.device, self.nbytes)
        if DEBUG.get() >= 7:
            print(f"buffer: allocate {self.nbytes} bytes on {self.device}")  # noqa: T201
        return self

    def deallocate(self) -> None:
        """Free the memory; a later ``ensure_allocated`` allocates anew.

        Raises:
            AssertionError: It is not allocated, or views of it are.
        """
        assert self._buf is not None, "Buffer.deallocate: this buffer is not allocated"
        assert not self._allocated_views, f"Buffer.deallocate: {self._allocated_views} views of this buffer are in use"
        self._release()

    def _release(self) -> None:
        buf, self._buf = self._buf, None
        if self._base is not None:
            self._base._allocated_views -= 1
            return
        if DEBUG.get() >= 7:
            print(f"buffer: deallocate {self.nbytes} bytes on {self.device}")  # noqa: T201
        if not self._owned:
            return
        self._owned = False
        if not self.device.startswith("DISK") and (self.options is None or self.options.external_ptr is None):
            _count_memory(self.device, -self.nbytes)
        opened = _device_lookup._opened.get(self.device)
        if opened is not None:
            opened.allocator.free(buf, self.nbytes or self.dtype.itemsize, self.options)

    def __del__(self) -> None:
        # At interpreter shutdown the modules that this needs, contextlib too, may be gone already.
        try:
            if self._buf is not None:
                self._release()
        except (AttributeError, TypeError):
            pass

    def view(self, size: int, dtype: DType, byte_offset: int) -> Buffer:
        """Return a view of ``size`` elements that begins ``byte_offset`` bytes into this buffer.

        Raises:
            AssertionError: The view begins beyond the end.
        """
        assert 0 <= byte_offset <= self.nbytes, f"Buffer.view: offset {byte_offset} is beyond the end {self.nbytes}"
        assert byte_offset + size * dtype.itemsize <= self.nbytes, (
            f"Buffer.view: bytes {byte_offset}..{byte_offset + size * dtype.itemsize} are beyond the end {self.nbytes}"
        )
        return Buffer(self.device, size, dtype, base=self.base, offset=self.offset + byte_offset)

    def get_buf(self, device: str | None = None) -> Any:
        """Return the memory in the form of the allocator of ``device`` (default: its own device)."""
        self.ensure_allocated()
        if device is None or device == self.device:
            return self._buf
        return _device_lookup[device].allocator._map(self)

    # -- contents

    def copyin(self, mv: memoryview) -> Buffer:
        """Fill the buffer from host memory of the same size; returns self."""
        mv = _flat(mv)
        assert len(mv) == self.nbytes, f"Buffer.copyin: {len(mv)} bytes into a buffer of {self.nbytes}"
        assert self.is_allocated(), "Buffer.copyin: the buffer is not allocated"
        if self.nbytes:
            self.allocator._copyin(self.get_buf(), mv)
        return self

    def copyout(self, mv: memoryview) -> memoryview:
        """Fill host memory of the same size from the buffer; returns it."""
        flat = _flat(mv)
        assert len(flat) == self.nbytes, f"Buffer.copyout: a buffer of {self.nbytes} bytes into {len(flat)}"
        assert self.is_allocated(), "Buffer.copyout: the buffer is not allocated"
        if self.nbytes:
            self.allocator._copyout(flat, self.get_buf())
        return mv

    def copy_from(self, src: Buffer) -> Buffer:
        """Copy the contents of ``src``, which may be on another device, in the cheapest way; returns self.

        Raises:
            AssertionError: The sizes differ, or ``src`` is not allocated.
        """
        assert self.nbytes == src.nbytes, f"Buffer.copy_from: {src.nbytes} bytes into a buffer of {self.nbytes}"
        assert src.is_allocated(), "Buffer.copy_from: the source is not allocated"
        dest_buf, src_buf = self.get_buf(), src.get_buf()
        dest, source = self.allocator, src.allocator
        if not self.nbytes:
            return self
        from_disk, to_disk = src.device.startswith("DISK"), self.device.startswith("DISK")
        same_kind = self.device.partition(":")[0] == src.device.partition(":")[0]
        if same_kind and dest.supports_transfer and hasattr(dest, "_transfer"):
            dest._transfer(dest_buf, src_buf, self.nbytes, src_dev=source.dev, dest_dev=dest.dev)
        elif from_disk and dest.supports_copy_from_disk and hasattr(dest, "copy_from_disk"):
            dest.copy_from_disk(dest_buf, src_buf, self.nbytes)
        elif hasattr(source, "_as_buffer") and (to_disk or not from_disk or not hasattr(dest, "_as_buffer")):
            _device_lookup[src.device].synchronize()
            dest._copyin(dest_buf, _flat(source._as_buffer(src_buf)))
        elif hasattr(dest, "_as_buffer") and not to_disk:
            # Files are read straight into memory here: faster than touching the pages of a mapped file.
            _device_lookup[self.device].synchronize()
            source._copyout(_flat(dest._as_buffer(dest_buf)), src_buf)
        else:
            staged = memoryview(bytearray(self.nbytes))
            source._copyout(staged, src_buf)
            dest._copyin(dest_buf, staged)
        return self

    def as_memoryview(
        self, allow_zero_copy: bool = False, force_zero_copy: bool = False, no_sync: bool = False
    ) -> memoryview:
        """Return the contents as bytes.

        Args:
            allow_zero_copy: The result may be the memory itself where the device can show it.
            force_zero_copy: It must be.
            no_sync: Do not wait for the device; whoever reads later must.
        """
        if allow_zero_copy or force_zero_copy:
            show = getattr(self.allocator, "_as_buffer", None)
            if show is not None and self.nbytes:
                buf = self.get_buf()
                if not no_sync:
                    _device_lookup[self.device].synchronize()
                return _flat(show(buf))
            assert not force_zero_copy or not self.nbytes, f"{self.device}: memory cannot be seen without copying it"
        return self.copyout(memoryview(bytearray(self.nbytes)))

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the contents as a numpy array; bfloat16 and fp8 become float32."""
        import numpy as np

        raw = self.as_memoryview()
        if self.dtype is dtypes.bfloat16:
            return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        if self.dtype in dtypes.fp8s:
            from tinygrad.dtype import fp8_to_float

            table = np.array([fp8_to_float(byte, self.dtype) for byte in range(256)], np.float32)
            return table[np.frombuffer(raw, np.uint8)]
        return np.frombuffer(raw, _to_np_dtype(self.dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._base is not None:
            return _rebuild_view, (self._base, self.size, self.dtype, self.offset)
        options = None if self.options is None else replace(self.options, external_ptr=None)
        # A file keeps its contents by itself; its buffer is reopened by name.
        value = bytes(self.as_memoryview()) if self.is_allocated() and not self.device.startswith("DISK") else None
        return Buffer, (self.device, self.size, self.dtype, None, options, value)

    def __repr__(self) -> str:
        state = "" if self.is_allocated() else " unallocated"
        view = f" offset:{self.offset}" if self._base is not None else ""
        return f"<buf{state} device:{self.device} size:{self.size} dtype:{self.dtype}{view}>"


def _rebuild_view(base: Buffer, size: int, dtype: DType, offset: int) -> Buffer:
    return Buffer(base.device, size, dtype, base=base, offset=offset)


def _flat(mv: memoryview) -> memoryview:
    """Return a memory view as plain bytes."""
    if mv.format == "B" and mv.ndim == 1:
        return mv
    return mv.cast("B") if mv.nbytes else memoryview(b"")


class MultiBuffer:
    """One buffer of the same size on each of several devices."""

    def __init__(self, devices: tuple[str, ...], size: int, dtype: DType) -> None:
        self.bufs = [Buffer(device, size, dtype) for device in devices]

    @classmethod
    def of(cls, bufs: list[Buffer]) -> MultiBuffer:
        """Return one made of buffers that exist already, in this order."""
        made = object.__new__(cls)
        made.bufs = list(bufs)
        return made

    @property
    def size(self) -> int:
        """Number of elements on each device."""
        return self.bufs[0].size

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.bufs[0].dtype

    def is_allocated(self) -> bool:
        """Whether every part is allocated."""
        return all(buffer.is_allocated() for buffer in self.bufs)

    def ensure_allocated(self) -> MultiBuffer:
        """Allocate every part that is not; returns self."""
        for buffer in self.bufs:
            buffer.ensure_allocated()
        return self

    def ref(self, n: int) -> MultiBuffer:
        """Change the reference count of every part by ``n``; returns self."""
        for buffer in self.bufs:
            buffer.ref(n)
        return self

    def __repr__(self) -> str:
        return f"<multibuf devices:{tuple(buffer.device for buffer in self.bufs)} size:{self.size} dtype:{self.dtype}>"
