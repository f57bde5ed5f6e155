"""From tensors to Python and numpy: the methods that need values.

In:   a tensor, computed first if it is pending.
Out:  numpy arrays, memoryviews, nested lists, scalars; all of their own memory.
Why:  reading is where a lazy graph ends; what has to be computed, copied and checked for it is in one place.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from tinygrad.buffer import Buffer
from tinygrad.device import StorageOnlyError
from tinygrad.dtype import DType, _to_np_dtype, dtypes, strong_dtype
from tinygrad.errors import error_text, shown
from tinygrad.helpers import all_int
from tinygrad.mixin.hooks import hint_to_pad, only_builds_graph
from tinygrad.mixin.rand import RandMixin
from tinygrad.rounding import from_storage_array
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self

    import numpy as np

    from tinygrad.tensor import Tensor

_HAS_NO_NUMPY_DTYPE = frozenset({dtypes.bfloat16, *dtypes.fp8s})
_HOSTS = frozenset({"CPU", "PYTHON", "NPY"})  # devices whose memory is read without a copy
_FEW = 1024  # values that are read in less time than a kernel takes to start
_PYTHON_HAS_HALF = sys.version_info >= (3, 12)


class ReadMixin(RandMixin):
    """Readers of a Tensor."""

    __slots__ = ()

    if TYPE_CHECKING:

        def realize(self, *lst: Self, do_update_stats: bool = True) -> Self: ...  # noqa: D102
        def clone(self, device: Any = None) -> Self: ...  # noqa: D102
        def _is_pending(self) -> bool: ...
        def numel(self) -> Any: ...  # noqa: D102

    def _read(self) -> Buffer:
        """Return a buffer that holds exactly the elements, in order."""
        if not all_int(self.shape):
            raise AssertionError(error_text("read", "the shape is symbolic", {"tensor": self},
                                            hint=hint_to_pad(self.shape)))  # fmt: skip
        from tinygrad.engine.capturing import before_data_access

        before_data_access("the values of a tensor")
        source = self.cast(strong_dtype(self.dtype))
        if isinstance(source.device, tuple):
            source = source._wrap_uop(source._uop.copy_to_device(source.device[0]))
        if source.device is None:
            source = source.clone()
        is_view = source._uop.contiguous_view() is None
        if is_view and str(source.device).startswith("DISK") and source._uop.base.op is Ops.BUFFER:
            raise StorageOnlyError(error_text("read", "a non-contiguous view is not supported in a file",
                                              {"tensor": self}, hint="copy it first, .to(None)"))  # fmt: skip
        if source._is_pending():
            from tinygrad.realizing import compute

            compute([cast("Tensor", source)], update_stats=True, is_read=True)
        if source._uop.contiguous_view() is None:
            source = source.contiguous().realize()
        buffer: Buffer = source._uop.buffer
        return buffer.ensure_allocated()  # nobody has opened a file yet

    def data(self) -> memoryview:
        """Return the values as a memoryview with the format of the dtype and this shape.

        Raises:
            AssertionError: Symbolic shape, or a dtype that Python has no format for (bfloat16, fp8).
            JitError: A JIT is capturing.

        Example:
            >>> Tensor([1, 2, 3]).data().tolist()
            [1, 2, 3]
        """
        dtype = strong_dtype(self.dtype)
        if dtype.fmt is None or (dtype is dtypes.float16 and not _PYTHON_HAS_HALF):
            raise AssertionError(error_text("data", f"Python has no memory format for {dtype}", {"tensor": self},
                                            hint=".float() or .bitcast(dtypes.uint16) first"))  # fmt: skip
        buffer = self._read()
        fmt: Any = dtype.fmt
        if 0 in self.shape:
            return memoryview(b"").cast(fmt)
        return buffer.as_memoryview().cast("B").cast(fmt, list(self.shape))

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the values as a numpy array of its own memory; bfloat16 and fp8 come as float32.

        Raises:
            AssertionError: Symbolic shape.
            JitError: A JIT is capturing.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).numpy()
            array([[1, 2],
                   [3, 4]], dtype=int32)
        """
        dtype = strong_dtype(self.dtype)
        source = self.float() if dtype in _HAS_NO_NUMPY_DTYPE else self
        return as_numpy(source._read(), strong_dtype(source.dtype), self.shape)

    def tolist(self) -> Any:
        """Return the values as nested lists, or a scalar for 0-d.

        Raises:
            AssertionError: Symbolic shape.
            JitError: A JIT is capturing.

        Example:
            >>> (Tensor([[1, 2], [3, 4]]) * 2).tolist()
            [[2, 4], [6, 8]]
        """
        if 0 in self.shape:
            return _empty_lists(self.shape)
        values: memoryview[Any]
        if self.dtype is dtypes.float16:
            values = _decoded_halves(self._read(), self.shape)
        else:
            values = (self.float() if self.dtype in _HAS_NO_NUMPY_DTYPE else self).data()
        return values[()] if self.ndim == 0 else values.tolist()

    def item(self) -> Any:
        """Return the only element as a Python scalar.

        Raises:
            AssertionError: There is not exactly one element, or the shape is symbolic.
            JitError: A JIT is capturing.

        Example:
            >>> Tensor([1.5, 2.5]).sum().item()
            4.0
        """
        if not all_int(self.shape) or self.numel() != 1:
            raise AssertionError(error_text("item", f"must have one element, has {shown(self.numel())}",
                                            {"tensor": self}, hint="use tolist() or numpy()"))  # fmt: skip
        value = self.tolist()
        for _ in range(self.ndim):
            value = value[0]
        return value

    def _values_in_memory(self) -> str | None:
        """Return the values as numpy prints them if they are in memory already; never computes."""
        device = str(self.device).partition(":")[0]
        if isinstance(self.device, tuple):
            return None  # they are in several places
        if not self._uop.is_realized or not all_int(self.shape) or device in {"DISK", "NULL"}:
            return None
        if self._uop.contiguous_view() is None:
            return None
        return str(as_numpy(self._uop.buffer, self.dtype, self.shape))

    def _few_values_in_memory(self) -> list[Any] | None:
        """Return the values as a flat list if they are few and in the memory of the host already; never computes.

        While only graph is built nothing is known: memory may be written to before what is built runs.
        """
        if only_builds_graph():
            return None
        source = self._uop.src[0] if self._uop.op is Ops.COPY else self._uop  # not there yet: look where it comes from
        count = source.numel()
        if source.device not in _HOSTS or not source.is_realized or not isinstance(count, int) or count > _FEW:
            return None
        if source.contiguous_view() is None:
            return None
        values: list[Any] = as_numpy(source.buffer, source.dtype, (count,)).tolist()
        return values


def as_numpy(buffer: Buffer, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the content of a buffer as a numpy array of its own memory; bfloat16 and fp8 come as float32."""
    import numpy as np

    raw = _to_np_dtype(dtype)
    if dtype in _HAS_NO_NUMPY_DTYPE:
        raw = np.uint16 if dtype is dtypes.bfloat16 else np.uint8
    storage = np.empty(0, raw) if 0 in shape else np.frombuffer(buffer.as_memoryview(), dtype=raw)
    return from_storage_array(storage, dtype).reshape(shape)


def _decoded_halves(buffer: Buffer, shape: tuple[int, ...]) -> memoryview[float]:
    """Return half floats as doubles, which memoryviews of every version of Python can read."""
    import array
    import struct

    numbers = array.array("d", struct.unpack(f"={buffer.size}e", buffer.as_memoryview()))
    return memoryview(numbers).cast("B").cast("d", list(shape))


def _empty_lists(shape: tuple[int, ...]) -> list[Any]:
    return [] if shape[0] == 0 else [_empty_lists(shape[1:]) for _ in range(shape[0])]
