"""Moving values between the devices that hold their pieces: gathering, splitting anew, combining.

In:   ``Parts``: what each of several devices holds of one value.
Out:  nodes on single devices: slices, COPYs, and the operations that join or combine what was copied.
Why:  all communication is written here as ordinary graph, so that the scheduler orders it, lets copies and kernels
      share memory, and a device needs nothing but a way to copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, TypeAlias

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import ceildiv, getenv, prod
from tinygrad.mixin.join import joined
from tinygrad.record import record
from tinygrad.settings import ALL2ALL, ALLREDUCE_CAST, RING
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint_simplify
from tinygrad.uop.sharding import piece_shape

Devices: TypeAlias = tuple[str, ...]
Nodes: TypeAlias = tuple[UOp, ...]


@record(frozen=True)
class Parts:
    """What each of several devices holds of a value.

    Args:
        devices: Their names.
        nodes: For each a node of what it holds.
        axis: The axis along which these are equal pieces of the value; None if each is all of it.
    """

    devices: Devices
    nodes: Nodes
    axis: int | None = None


def switches() -> tuple[int, ...]:
    """Return the values of the switches that decide how values are combined."""
    return (RING.value, ALL2ALL.value, ALLREDUCE_CAST.value, getenv("RING_ALLREDUCE_THRESHOLD", 256_000))


def on_device(x: UOp, device: str) -> UOp:
    """Return a value on a device, copied if it is on another one."""
    return x if x.device is None or x.device == device else UOp(Ops.COPY, x.dtype, (x,), device)


def cut(x: UOp, axis: int, begin: Any, end: Any) -> UOp:
    """Return elements ``begin`` to ``end`` along an axis. Of an expanded value what is expanded is cut."""
    if isinstance(begin, int) and begin == 0 and end == x.shape[axis]:
        return x
    shape = tuple(sint_simplify(end - begin) if i == axis else s for i, s in enumerate(x.shape))
    if x.op is Ops.EXPAND:
        inner = axis - x.ndim + x.src[0].ndim
        if inner < 0 or (x.src[0].shape[inner] is not x.shape[axis] and x.src[0].shape[inner] != x.shape[axis]):
            return x.src[0]._mop(Ops.EXPAND, shape)
        return cut(x.src[0], inner, begin, end)._mop(Ops.EXPAND, shape)
    return x._mop(Ops.SHRINK, tuple((begin, end) if i == axis else (0, s) for i, s in enumerate(x.shape)))


# ---- slices and splits -----------------------------------------------------------------------------------------------


def section(x: Parts, device: str, axis: int | None = None, begin: Any = 0, end: Any = None) -> UOp:
    """Return a value, or its elements ``begin`` to ``end`` along ``axis``, on one device; only these are copied."""
    if x.axis is None:
        at = x.devices.index(device) if device in x.devices else 0
        return on_device(x.nodes[at] if axis is None else cut(x.nodes[at], axis, begin, end), device)
    if axis is None:
        pieces = list(x.nodes)
    elif axis != x.axis:
        pieces = [cut(piece, axis, begin, end) for piece in x.nodes]
    else:
        size = x.nodes[0].shape[axis]
        if not all(isinstance(n, int) for n in (begin, end, size)):
            return cut(section(x, device), axis, begin, end)
        pieces = [
            cut(piece, axis, max(begin - i * size, 0), min(end - i * size, size))
            for i, piece in enumerate(x.nodes)
            if max(begin, i * size) < min(end, (i + 1) * size)
        ] or [cut(x.nodes[0], axis, 0, 0)]
    return joined([on_device(piece, device) for piece in pieces], x.axis)


def replicated(x: Parts, devices: Devices | None = None) -> Parts:
    """Return the whole value on each of its devices, or on other ones."""
    if devices is None or devices == x.devices:
        return x if x.axis is None else Parts(x.devices, tuple(section(x, device) for device in x.devices))
    return Parts(devices, tuple(section(x, device) for device in devices))


def split(x: Parts, axis: int, shape: tuple[Any, ...], devices: Devices | None = None) -> Parts:
    """Return a value of ``shape`` split along ``axis`` over its devices, or over other ones."""
    devices = x.devices if devices is None else devices
    if devices == x.devices and axis == x.axis:
        return x
    size = piece_shape(shape, axis, len(devices))[axis]
    return Parts(
        devices, tuple(section(x, device, axis, i * size, (i + 1) * size) for i, device in enumerate(devices)), axis
    )


# ---- combining -------------------------------------------------------------------------------------------------------


def combined(x: Parts, op: Ops, devices: Devices | None = None, narrow: DType | None = None) -> Parts:
    """Return the combination of what the devices hold, on each of them, or on other devices.

    Every device gets the same bits: each element is combined in one order, wherever that happens.

    Args:
        x: The terms.
        op: ADD, MUL or MAX.
        devices: Where the result is wanted; the devices of the terms if None.
        narrow: A dtype in which terms are sent; they are combined in their own.
    """
    devices = x.devices if devices is None else devices
    sent = x.nodes if narrow is None else tuple(node.cast(narrow) for node in x.nodes)
    sent = tuple(node.contiguous() for node in sent)
    combine = _Combine(op, x.nodes[0].dtype)
    size = prod(sent[0].shape)
    large = len(sent) > 2 and isinstance(size, int) and size >= getenv("RING_ALLREDUCE_THRESHOLD", 256_000)
    ways = devices == x.devices and len(sent) > 1 and isinstance(size, int) and size >= len(sent)
    if ways and ALL2ALL.value >= (1 if large else 2):
        results = _all_to_all(sent, devices, combine)
    elif ways and RING.value >= (1 if large else 2):
        results = _ring(sent, devices, combine)
    else:
        results = tuple(combine(*(on_device(node, device) for node in sent)) for device in devices)
    return Parts(devices, tuple(node.cast(combine.dtype) for node in results))


def narrow_use(reduce: UOp, users: Mapping[UOp, Sequence[UOp]]) -> DType | None:
    """Return the narrower float that everybody casts a combination to, so that its terms may be sent in it.

    Args:
        reduce: The node.
        users: The nodes that read each node of the graph.
    """
    u = reduce
    while len(found := users.get(u, ())) == 1 and found[0].op in (Ops.RESHAPE, Ops.PERMUTE):
        u = found[0]
    kinds = {user.dtype if user.op is Ops.CAST else u.dtype for user in found}
    if not ALLREDUCE_CAST.value or len(kinds) != 1 or not dtypes.is_float(u.dtype):
        return None
    (kind,) = kinds
    is_narrower = dtypes.is_float(kind) and kind not in dtypes.weaks and kind.itemsize < u.dtype.itemsize
    return kind if is_narrower else None


@record(frozen=True)
class _Combine:
    """Combines values by an operation in one dtype; the result has the dtype of the first value."""

    op: Ops
    dtype: DType

    def __call__(self, *values: UOp) -> UOp:
        return reduce(lambda a, b: a.alu(self.op, b), (v.cast(self.dtype) for v in values)).cast(values[0].dtype)


def _chunks(sent: Nodes) -> list[list[UOp]]:
    """Return for each device's value its chunks, as many as there are devices, in order."""
    size, n = prod(sent[0].shape), len(sent)
    bounds = [min(i * ceildiv(size, n), size) for i in range(n + 1)]
    return [[cut(node.reshape((size,)), 0, a, b) for a, b in pairwise(bounds)] for node in sent]


def _ring(sent: Nodes, devices: Devices, combine: _Combine) -> Nodes:
    """Combine on the way round a ring, once per chunk, and send the results on: 2 (n - 1) / n of the value per link."""
    n, chunks, shape = len(sent), _chunks(sent), sent[0].shape
    whole: list[list[UOp]] = [[] for _ in devices]
    for c in range(n):
        value = chunks[c][c]
        for step in range(1, n):
            at = (c + step) % n
            value = combine(on_device(value, devices[at]), chunks[at][c])
        value = value.contiguous()
        last = (c + n - 1) % n
        held = {last: value}
        for step in range(1, n):
            at = (last + step) % n
            value = held[at] = on_device(value, devices[at])
        for at, result in held.items():
            whole[at].append(result)
    return tuple(joined(results, 0).reshape(shape) for results in whole)


def _all_to_all(sent: Nodes, devices: Devices, combine: _Combine) -> Nodes:
    """Combine chunk i on device i, and send the results to all: two steps, every device to every other."""
    chunks, shape = _chunks(sent), sent[0].shape
    results = [
        combine(*(on_device(mine[c], device) for mine in chunks)).contiguous() for c, device in enumerate(devices)
    ]
    return tuple(joined([on_device(r, device) for r in results], 0).reshape(shape) for device in devices)
