"""Kernels written by hand as nodes of the tensor graph.

In:   tensor nodes, and a function from placeholders (kernel storage of their shapes) to a kernel: a SINK with
      KernelInfo, or a PROGRAM.
Out:  the same nodes as they are after the kernel: AFTER(storage, CALL(kernel, nodes...)), seen through the same views.
Why:  the scheduler orders such kernels by what they read and write, as it does its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.device import canonicalize_device
from tinygrad.dtype import strong_dtype
from tinygrad.errors import DeviceError, error_text
from tinygrad.helpers import all_int, prod
from tinygrad.uop import GroupOp, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


def custom_kernel(
    nodes: Sequence[UOp], fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None
) -> list[UOp]:
    """Call a kernel on nodes; see ``Tensor.custom_kernel``.

    Raises:
        AssertionError: A shape is symbolic, or a loop of the kernel is not closed.
        RuntimeError: ``fxn`` returned something else than a kernel.
        DeviceError: The arguments are on different devices.
    """
    for u in nodes:
        if not all_int(u.shape):
            raise AssertionError(
                error_text(
                    "custom_kernel", "a shape is symbolic", {"argument": u}, hint="shrink or pad to a static shape"
                )
            )
    device = next((u.device for u in nodes if u.device is not None), None)
    for u in nodes:
        if u.device not in (None, device):
            fault = f"the arguments are on different devices, {device} and {u.device}"
            raise DeviceError(
                error_text("custom_kernel", fault, {"argument": u}, hint=f"argument.to({device!r}) copies it")
            )
    stored = [_stored(u, device) for u in nodes]
    kernel = fxn(*_placeholders(stored))
    if getattr(kernel, "op", None) not in (Ops.SINK, Ops.PROGRAM):
        found = getattr(kernel, "op", type(kernel).__name__)
        raise RuntimeError(
            error_text(
                "custom_kernel",
                f"fxn returned {found}",
                rule="a SINK (with KernelInfo) or a PROGRAM",
                hint="end the kernel with .sink(arg=KernelInfo(name=...))",
            )
        )
    call = kernel.call(*stored, grad_fxn=grad_fxn)
    return [view_after(u, call) for u in stored]


def _placeholders(stored: Sequence[UOp]) -> list[UOp]:
    """Return a placeholder per argument, of what one device holds of it.

    Arguments in the same storage share one, so that the compiler knows of it.
    """
    first: dict[UOp, UOp] = {}
    made: list[UOp] = []
    for slot, u in enumerate(stored):
        placeholder = first.setdefault(u.base, u.placeholder_like(slot))
        own = u.shard_shape
        made.append(placeholder if placeholder.shape == own else placeholder.reshape(own))
    return made


def _stored(u: UOp, device: Any) -> UOp:
    """Return the node with storage of its own: a kernel is given addresses."""
    from tinygrad.uop.ops import UOp

    if not u.is_virtual:
        return u if u.has_buffer_identity(after_ok=True) else u.contiguous()
    value = u.cast(strong_dtype(u.dtype))
    storage = UOp.new_buffer(canonicalize_device(device), prod(u.shape), value.dtype)
    return storage.after(storage.store(value.reshape((prod(u.shape),)))).reshape(u.shape)


def view_after(u: UOp, effect: UOp) -> UOp:
    """Return a view of storage as the same view of the storage after an effect."""
    chain: list[UOp] = []
    while u.op in GroupOp.Movement:
        chain.append(u)
        u = u.src[0]
    made = u.after(effect)
    for node in reversed(chain):
        made = made._mop(node.op, node.marg)
    return made
