"""NPY: numpy arrays as buffers, without a copy in either direction.

In:   a contiguous numpy array as the ``opaque`` of a ``Buffer``.
Out:  the device ``NPY``; the buffer keeps the array alive, and later changes of the array show in it.
Why:  a tensor of a numpy array costs no copy until a kernel needs it elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.device import Allocator, BufferSpec, Compiled

if TYPE_CHECKING:
    import numpy as np


class NpyAllocator(Allocator[Any]):
    """Memory is a contiguous numpy array of any dtype; views are arrays of bytes over the same memory."""

    def _alloc(self, size: int, options: BufferSpec) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.empty(size, np.uint8)

    def _as_buffer(self, buf: np.ndarray[Any, Any]) -> memoryview:
        return memoryview(self._bytes(buf).data)

    def _bytes(self, buf: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        import numpy as np

        if not buf.flags.c_contiguous:
            raise RuntimeError(
                f"NPY: an array of shape {buf.shape} and strides {buf.strides} is not contiguous; "
                "pass numpy.ascontiguousarray(x)"
            )
        return buf.reshape(-1).view(np.uint8)

    def _copyin(self, dest: np.ndarray[Any, Any], src: memoryview) -> None:
        if not dest.flags.writeable:
            raise RuntimeError("NPY: the numpy array is read-only; copy the tensor to a device before writing to it")
        self._as_buffer(dest)[:] = src

    def _copyout(self, dest: memoryview, src: np.ndarray[Any, Any]) -> None:
        dest[:] = self._as_buffer(src)

    def _offset(self, buf: np.ndarray[Any, Any], size: int, offset: int) -> np.ndarray[Any, Any]:
        return self._bytes(buf)[offset : offset + size]


class NpyDevice(Compiled):
    """The device ``NPY``: memory only, it runs no kernels."""

    def __init__(self, device: str = "NPY") -> None:
        super().__init__(device, NpyAllocator(self))
