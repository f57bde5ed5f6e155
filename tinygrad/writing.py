"""Writes into tensors as a whole: ``assign``, and the operators that end in it.

In:   a tensor and the value that it shall have.
Out:  the tensor shows that value, and so do all others that show the same storage.
Why:  a write makes a new node, the storage after the write, and every tensor that shows the storage has to point at it
      (``live``). Writes to a selection, ``x[...] = v``, are in ``mixin/setitem.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_dtype, strong_dtype
from tinygrad.errors import ArgumentError, DeviceError, DTypeError, error_text
from tinygrad.families import shares_elements
from tinygrad.live import buffer_under, is_view_node, storage_under, writes_through
from tinygrad.origins import is_step, note_written
from tinygrad.repointing import new_storage, prepare_write, write_view
from tinygrad.uop.ops import UOp
from tinygrad.uop.views import own_value

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor


def assign(tensor: Tensor, x: Any) -> None:
    """Write ``x`` into a tensor; see ``Tensor.assign``."""
    value = written_value(tensor, x, "assign")
    if value.uop is tensor.uop:
        return
    if str(tensor.device).startswith("DISK"):
        value = value if value.uop.contiguous_view() is not None else value.to(None)
        tensor.uop.buffer.ensure_allocated().copyin(value._read().as_memoryview())
        return
    prepare_write(tensor)
    view, node = tensor.uop, value.uop
    is_stepped = is_step(tensor, node)
    if is_stepped:
        node = node.detach()  # a parameter stays one: no gradient goes through what updated it
    is_stored = writes_through(view) and buffer_under(view) is not None
    if is_stored or shares_elements(tensor):
        write_view(tensor, node)
    elif is_stepped or node.device is None or buffer_under(node) is not None or node.dtype in dtypes.weaks:
        tensor.uop = new_storage(node, tensor.device)
    else:
        # No storage yet, and nobody else shows its elements: it is simply another value from now on.
        tensor.uop = own_value(node) if is_view_node(node) else node
    note_written(storage_under(tensor.uop), node, is_stepped)


def written_value(tensor: Tensor, x: Any, op: str) -> Tensor:
    """Return ``x`` as a tensor with the shape, dtype and placement of ``tensor`` (on any device for files)."""
    from tinygrad.tensor import Tensor

    if x is None:  # of which the constructor makes a 0
        raise ArgumentError(error_text(op, "x is None", {"self": tensor}, "x is a Tensor, number, list or array"))
    own, on_disk = strong_dtype(tensor.dtype), str(tensor.device).startswith("DISK")
    if not isinstance(x, (Tensor, UOp)):
        x = Tensor(x, dtype=own, device=None if on_disk else tensor.device)
        x = x.shard_like(tensor) if x.shape == tensor.shape and isinstance(tensor.device, tuple) else x
    value = x if isinstance(x, Tensor) else tensor._wrap_uop(x)
    if value.dtype is not own:
        if value.dtype not in dtypes.weaks or least_upper_dtype(own, value.dtype) is not own:
            raise DTypeError(error_text(op, f"{op} dtype mismatch, {own} and {value.dtype}",
                                        {"self": tensor, "x": value},
                                        hint=f"x.cast({own!r})"))  # fmt: skip
        value = value.cast(own)
    # A file takes values from anywhere: they are computed where they are and then written.
    if None not in (tensor.device, value.device) and tensor.device != value.device and not on_disk:
        raise DeviceError(error_text(op, f"{op} device mismatch, {tensor.device} and {value.device}",
                                     {"self": tensor, "x": value}, hint=f"x.to({tensor.device!r})"))  # fmt: skip
    value = value._broadcast_to(tensor.shape)
    if value.device is not None and value.uop.axis != tensor.uop.axis:
        raise DeviceError(error_text(op, f"{op} multi axis mismatch, {tensor.uop.axis} and {value.uop.axis}",
                                     {"self": tensor, "x": value}, hint="x.shard_like(self)"))  # fmt: skip
    return value


def in_place(operator: Callable[[Tensor, Any], Tensor], name: str) -> Callable[[Tensor, Any], Tensor]:
    """Return the method ``__i<name>__`` for the method ``__<name>__``."""

    def run(self: Tensor, x: Any) -> Tensor:
        return self.assign(operator(self, x))

    run.__name__, run.__qualname__ = f"__i{name}__", f"Tensor.__i{name}__"
    run.__doc__ = f"``assign`` of ``__{name}__``."
    return run
