"""Storage on nodes: buffers, parameters, placeholders, and which storage a node shows.

In:   nodes; for constructors a device or memory space, a size and a dtype.
Out:  ``StorageMethods``, which UOp inherits; ``buffers``, the device memory behind each BUFFER node.
Why:  a node is immutable and says only which storage it means. The memory itself is made when it is first asked for.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import AddrSpace, DType, dtypes, strong_dtype
from tinygrad.forking import renew_in_child
from tinygrad.helpers import prod
from tinygrad.mixin.hooks import Hooks
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.records import ParamArg, Placement
from tinygrad.uop.sint import sint

if TYPE_CHECKING:
    from tinygrad.device import Buffer
    from tinygrad.uop.ops import UOp

buffers: weakref.WeakKeyDictionary[UOp, Any] = weakref.WeakKeyDictionary()
buffer_lock = threading.RLock()
renew_in_child(sys.modules[__name__], "buffer_lock")
unique_slots = itertools.count()


class StorageMethods(Hooks):
    """Methods of UOp that make storage or find it."""

    __slots__ = ()

    @property
    def addrspace(self) -> AddrSpace | None:
        """Memory space of a BUFFER, PARAM or what indexes it."""
        base = self.buf_uop_or_none
        return None if base is None else base.arg.addrspace

    @property
    def buf_uop_or_none(self) -> UOp | None:
        """The BUFFER or PARAM that this node reads or views, if it is a view of one."""
        u = self._uop
        while u.op in GroupOp.Movement or u.op in (Ops.AFTER, Ops.INDEX, Ops.DETACH, Ops.BITCAST, Ops.LOAD):
            u = u.src[0]
        return u if u.op is Ops.BUFFER or u.op is Ops.PARAM else None

    @property
    def buf_uop(self) -> UOp:
        """The BUFFER or PARAM under this node.

        Raises:
            AssertionError: There is none.
        """
        found = self.buf_uop_or_none
        if found is None:
            raise AssertionError(f"must be BUFFER or a view of one, got {self._uop.op}")
        return found

    def has_buffer_identity(self, after_ok: bool = False) -> bool:
        """Return whether this is a BUFFER or PARAM seen through RESHAPEs only."""
        u = self._uop
        while u.op is Ops.RESHAPE or (after_ok and u.op is Ops.AFTER):
            u = u.src[0]
        return u.op is Ops.BUFFER or u.op is Ops.PARAM

    @property
    def buffer(self) -> Any:
        """The storage behind a BUFFER (made, not yet allocated, on first use) or behind a contiguous view of one.

        A ``Buffer``; a ``MultiBuffer`` for a BUFFER over several devices.

        Raises:
            AssertionError: The node is no view of a BUFFER.
            RuntimeError: The view is not contiguous.
        """
        from tinygrad.uop.views import buffer_of

        return buffer_of(self._uop)

    @property
    def realized(self) -> Any:
        """The storage if it exists and is allocated, else None."""
        u = self._uop
        base = u.base
        found = buffers.get(base) if base.op is Ops.BUFFER else None
        if found is None or not found.is_allocated():
            return None
        return found if base is u else u.buffer

    @property
    def is_realized(self) -> bool:
        """Whether the base of this view has allocated storage."""
        found = buffers.get(self._uop.base)
        return found is not None and found.is_allocated()

    @property
    def is_virtual(self) -> bool:
        """Whether the value can never own storage: no device, or a weak dtype."""
        return self.device is None or self.dtype in dtypes.weaks

    def contiguous_view(self) -> tuple[UOp, int] | None:
        """Return (storage node, element offset) if this is a contiguous view of storage."""
        from tinygrad.uop.views import contiguous_view

        return contiguous_view(self._uop)

    def contiguous_view_offset(self) -> int | None:
        """Return the element offset of a contiguous view, or None."""
        found = self.contiguous_view()
        return None if found is None else found[1]

    @staticmethod
    def param(
        slot: int,
        dtype: DType,
        shape: tuple[sint, ...] | None = None,
        device: str | tuple[str, ...] | None = None,
        vmin_vmax: tuple[Any, Any] | None = None,
        multiple_of: int = 1,
        name: str | None = None,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
        axis: int | None = None,
        volatile: bool = False,
    ) -> UOp:
        """Return argument ``slot`` of a call body or kernel."""
        if dtype in dtypes.weaks and addrspace is not AddrSpace.ALU:
            raise RuntimeError(f"param: weak dtype {dtype} cannot be stored; cast to a concrete dtype")
        arg = ParamArg(slot, dtype, shape or (), device, name, vmin_vmax, multiple_of, addrspace, axis, volatile)
        return graph.UOp(Ops.PARAM, dtype, (), arg)

    def param_like(self, slot: int) -> UOp:
        """Return a PARAM that stands for this value in a call body."""
        return self.param(slot, strong_dtype(self.dtype), self.shape, self.device, axis=self._uop.axis)

    @staticmethod
    def placeholder(
        shape: tuple[int, ...],
        dtype: DType,
        slot: int | None = None,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
        volatile: bool = False,
        **kwargs: Any,
    ) -> UOp:
        """Return a kernel buffer of the given shape: a PARAM for GLOBAL memory, a BUFFER for LOCAL and REG."""
        slot = next(unique_slots) if slot is None else slot
        op = Ops.PARAM if addrspace is AddrSpace.GLOBAL else Ops.BUFFER
        arg = ParamArg(slot, strong_dtype(dtype), (prod(shape),), addrspace=addrspace, volatile=volatile)
        flat = graph.UOp(op, arg.dtype, (), arg)
        return flat if len(shape) == 1 else flat._mop(Ops.RESHAPE, tuple(shape))

    def placeholder_like(self, slot: int, addrspace: AddrSpace = AddrSpace.GLOBAL) -> UOp:
        """Return a kernel buffer with the dtype of this value and the shape of what one device holds of it."""
        sizes = tuple(s for s in self._uop.shard_shape if isinstance(s, int))
        if len(sizes) < self.ndim:
            raise AssertionError(f"placeholder_like: shape {self.shape} is symbolic")
        return self.placeholder(sizes, self.dtype, slot, addrspace)

    @staticmethod
    def new_buffer(device: str | tuple[str, ...], size: int, dtype: DType, num: int | None = None) -> UOp:
        """Return fresh storage for ``size`` elements, on each device if there are several.

        Raises:
            RuntimeError: ``dtype`` is weak.
        """
        if dtype in dtypes.weaks:
            raise RuntimeError(f"buffer: weak dtype {dtype} cannot be stored; cast to a concrete dtype")
        slot = next(unique_slots) if num is None else num
        return graph.UOp(Ops.BUFFER, dtype, (), ParamArg(slot, dtype, (size,), device))

    @staticmethod
    def from_buffer(buffer: Buffer, device: str | None = None) -> UOp:
        """Return a node for an existing Buffer."""
        node = StorageMethods.new_buffer(device or buffer.device, buffer.size, buffer.dtype)
        buffers[node] = buffer
        return node

    def copy_to_device(self, device: str | tuple[str, ...] | Placement, arg: Any = None) -> UOp:
        """Return this value on another device; on each of several, or split over them.

        Raises:
            RuntimeError: The dtype is weak.
        """
        u = self._uop
        if u.dtype in dtypes.weaks:
            raise RuntimeError(f"copy to {device}: weak dtype {u.dtype} has no storage; cast to a concrete dtype")
        return graph.UOp(Ops.COPY, u.dtype, (u,), device)

    def contiguous(self, **kwargs: Any) -> UOp:
        """Return a node whose value gets storage of its own."""
        u = self._uop
        if u.op is Ops.CONTIGUOUS or u.device is None or u.has_buffer_identity():
            return u
        return graph.UOp(Ops.CONTIGUOUS, u.dtype, (u,))

    def contiguous_backward(self) -> UOp:
        """Return the same value; its gradient gets storage of its own."""
        u = self._uop
        return graph.UOp(Ops.CONTIGUOUS_BACKWARD, u.dtype, (u,))

    def detach(self) -> UOp:
        """Return the same value, cut off from gradients."""
        u = self._uop
        return graph.UOp(Ops.DETACH, u.dtype, (u,))


from tinygrad.uop import ops as graph  # noqa: E402  in a circle: only methods use it, once they run
