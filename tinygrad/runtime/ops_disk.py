"""DISK: files as buffers. Views, slices and bit casts of a file cost nothing; bytes are read when they are copied.

In:   the device name: ``disk:PATH``, or ``disk:shm:NAME`` for POSIX shared memory.
Out:  the device ``DISK:PATH``. Reading maps the file and never changes it. Only a copy into the buffer (``assign``)
      writes; it creates or extends the file as needed.
Why:  a checkpoint larger than memory can be opened, and only the tensors in use are read.
"""

from __future__ import annotations

import importlib
import mmap
import os
import threading
from pathlib import Path
from typing import Any

from tinygrad.device import Allocator, BufferSpec, Compiled
from tinygrad.forking import renew_in_child

_READ_CHUNK = 1 << 30  # Linux transfers at most 2 GiB per call


class _File:
    """One file as one buffer sees it: opened and mapped on first use, closed when nobody views it any more."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        self._fd = -1
        self._writable = False
        self._map: memoryview | None = None
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    def _open(self, flags: int) -> int:
        if self.path.startswith("shm:"):
            return _open_shared_memory(self.path[4:], flags)
        return os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)

    def reading(self) -> int:
        """Return a file descriptor that can be read."""
        with self._lock:
            if self._fd < 0:
                try:
                    self._fd = self._open(os.O_RDONLY)
                except FileNotFoundError as error:
                    raise FileNotFoundError(
                        error.errno,
                        "DISK: there is no such file; it is created when a tensor is assigned to it",
                        self.path,
                    ) from None
            return self._fd

    def writing(self) -> int:
        """Return a file descriptor that can be written, of a file of at least the buffer's size."""
        with self._lock:
            if not self._writable:
                fd = self._open(os.O_RDWR | os.O_CREAT)
                if self._fd >= 0:
                    if not os.path.samestat(os.fstat(fd), os.fstat(self._fd)):
                        self._map = (
                            None  # the file was replaced since it was mapped; views that were given out stay valid
                        )
                    os.close(self._fd)
                self._fd, self._writable = fd, True
            if os.fstat(self._fd).st_size < self.size:
                os.ftruncate(self._fd, self.size)
            return self._fd

    def mapped(self, end: int) -> memoryview:
        """Return the bytes of the file, read-only, at least ``end`` of them.

        Raises:
            ValueError: The file is shorter.
        """
        fd = self.reading()
        with self._lock:
            if self._map is None or len(self._map) < end:
                length = os.fstat(fd).st_size
                self.check_length(length, end)
                self._map = memoryview(mmap.mmap(fd, length, access=mmap.ACCESS_READ)) if length else memoryview(b"")
            return self._map

    def check_length(self, length: int, end: int) -> None:
        """Raise ValueError if bytes up to ``end`` are wanted of a file of ``length``."""
        if length < end:
            raise ValueError(
                f"DISK: {self.path} has {length} bytes, bytes up to {end} are wanted; the file is cut short"
            )

    def __del__(self) -> None:
        # A memory map keeps working after its file descriptor is closed.
        if self._fd >= 0:
            os.close(self._fd)


def _open_shared_memory(name: str, flags: int) -> int:
    bare = name.lstrip("/")
    if Path("/dev/shm").is_dir():
        return os.open(f"/dev/shm/{bare}", flags | os.O_CLOEXEC, 0o600)
    shm_open = importlib.import_module("_posixshmem").shm_open  # macOS shows no files for shared memory
    return int(shm_open(f"/{bare}", flags, 0o600))


class DiskBuffer:
    """A range of bytes of a file."""

    __slots__ = ("file", "offset", "size")

    def __init__(self, file: _File, size: int, offset: int = 0) -> None:
        self.file, self.size, self.offset = file, size, offset

    def memory(self) -> memoryview:
        """Return the bytes, mapped and read-only."""
        end = self.offset + self.size
        return self.file.mapped(end)[self.offset : end]

    def read_into(self, dest: memoryview) -> None:
        """Fill ``dest``, which has at most the size of the range. Faster than copying from the mapped bytes."""
        fd, done = self.file.reading(), 0
        while done < len(dest):
            count = os.preadv(fd, [dest[done : done + _READ_CHUNK]], self.offset + done)
            if not count:
                self.file.check_length(self.offset + done, self.offset + len(dest))
            done += count

    def write(self, src: memoryview) -> None:
        """Write ``src`` to the beginning of the range."""
        # Through the file and not through a writable map: a full disk is then an OSError and not a crash.
        fd, done = self.file.writing(), 0
        while done < len(src):
            done += os.pwrite(fd, src[done : done + _READ_CHUNK], self.offset + done)

    def __repr__(self) -> str:
        return f"<DiskBuffer {self.file.path} bytes {self.offset}..{self.offset + self.size}>"


class DiskAllocator(Allocator[DiskBuffer]):
    """Every buffer has the file to itself from offset 0; parts of a file are views."""

    dev: DiskDevice

    def _alloc(self, size: int, options: BufferSpec) -> DiskBuffer:
        return DiskBuffer(_File(self.dev.path, size), size)

    def _as_buffer(self, buf: DiskBuffer) -> memoryview:
        return buf.memory()

    def _copyin(self, dest: DiskBuffer, src: memoryview) -> None:
        dest.write(src)

    def _copyout(self, dest: memoryview, src: DiskBuffer) -> None:
        src.read_into(dest)

    def _offset(self, buf: DiskBuffer, size: int, offset: int) -> DiskBuffer:
        return DiskBuffer(buf.file, size, buf.offset + offset)


class DiskDevice(Compiled):
    """The device ``DISK:PATH``: memory only, it runs no kernels."""

    def __init__(self, device: str) -> None:
        self.path = device.partition(":")[2]
        super().__init__(device, DiskAllocator(self))

    def __repr__(self) -> str:
        return f"<DiskDevice {self.path}>"

    def count(self) -> Any:
        """Return 1: a path is one device."""
        return 1
