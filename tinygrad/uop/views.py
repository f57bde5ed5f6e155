"""Views of storage: which part of a BUFFER a chain of movement nodes shows.

In:   a movement chain over a BUFFER or PARAM.
Out:  its offset when the view is contiguous, the flat index of an element, the device Buffer behind it.
Why:  a contiguous view needs no kernel: it is the same memory at an offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tinygrad.helpers import prod
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.sint import bounds, sint, sint_simplify

if TYPE_CHECKING:
    from tinygrad.device import Buffer, MultiBuffer
    from tinygrad.uop.ops import UOp


_OWN = "own"


def contiguous_view(u: UOp) -> tuple[UOp, int] | None:
    """Return (storage node, element offset) of a contiguous view, None if the view has gaps or another order.

    A BITCAST is looked through: the offset counts elements of the dtype of ``u``.
    """
    chain: list[UOp] = []
    while u.op in GroupOp.Movement or u.op in (Ops.DETACH, Ops.BITCAST, Ops.AFTER):
        chain.append(u)
        u = u.src[0]
    if u.op is not Ops.BUFFER and u.op is not Ops.PARAM:
        return None
    offset = 0
    for node in reversed(chain):
        src = node.src[0]
        if node.op in (Ops.DETACH, Ops.RESHAPE, Ops.AFTER) or (node.op is Ops.EXPAND and node.shape == src.shape):
            continue
        if node.op is Ops.BITCAST:
            nbytes = offset * src.dtype.itemsize
            if nbytes % node.dtype.itemsize:
                return None
            offset = nbytes // node.dtype.itemsize
            continue
        if node.op is Ops.PERMUTE:
            # Moving axes of size 1 keeps the order of the elements.
            if [a for a in node.arg if src.shape[a] != 1] == sorted(a for a in node.arg if src.shape[a] != 1):
                continue
            return None
        if node.op is Ops.SHRINK and u.axis is None:
            step = _shrink_offset(node)
            if step is None:
                return None
            offset += step
            continue
        return None
    return u, offset


def own_copy(u: UOp) -> UOp:
    """Return a value that is stored in a place of its own, even if it is contiguous storage already."""
    return u.replace(op=Ops.CONTIGUOUS, src=(u,), arg=_OWN, tag=None)


def own_value(u: UOp) -> UOp:
    """Return the same value, which is no view of what ``u`` shows: later writes there do not change it.

    It costs nothing where it is read: a copy is made only if it is asked for itself, or before such a write.
    """
    return u.replace(op=Ops.NOOP, src=(u,), arg=None, tag=None)


def own_constant(u: UOp) -> UOp:
    """Return the same constant expression as a variable of its own: equal ones are other nodes, with other gradients.

    Its number is for gradients alone: graphs to be computed are compared without it.
    """
    from tinygrad.uop.storage import unique_slots

    return u.replace(op=Ops.NOOP, src=(u,), arg=None, tag=next(unique_slots))


def is_own_constant(u: UOp) -> bool:
    """Return whether a node is made by ``own_constant``."""
    return u.op is Ops.NOOP and u.tag is not None


def is_own_value(u: UOp) -> bool:
    """Return whether a node has the value of its first source, but not its storage."""
    return u.op in (Ops.NOOP, Ops.CONTIGUOUS_BACKWARD) or (u.op is Ops.DETACH and len(u.src) > 1)


def is_own_copy(u: UOp) -> bool:
    """Return whether a node is made by ``own_copy``."""
    return u.op is Ops.CONTIGUOUS and u.arg == _OWN


def _shrink_offset(node: UOp) -> int | None:
    # Contiguous when, after the first axis that is cut, everything is kept, and before it all sizes are 1.
    shape, cuts = node.src[0].shape, node.marg
    sizes = [s for s in shape if isinstance(s, int)]
    if len(sizes) < len(shape) or not all(isinstance(x, int) for pair in cuts for x in pair):
        return None
    offset, stride, whole = 0, 1, True
    for size, (start, stop) in zip(reversed(sizes), reversed(cuts), strict=True):
        if not whole and stop - start != 1:
            return None
        offset += start * stride
        stride *= size
        whole = whole and start == 0 and stop == size
    return offset


def kernel_index(u: UOp, idx: tuple[UOp, ...], gate: UOp | None) -> UOp:
    """Return the INDEX of element ``idx`` of kernel storage that is seen through movement nodes and AFTERs.

    The flat index is written at once: a kernel has no movement nodes. A reshaped view leaves its shape in the tag, so
    that ``set`` can return the storage in that shape.

    Raises:
        ShapeError: The number of indices is not that of the dims.
    """
    from tinygrad.errors import ShapeError
    from tinygrad.uop.movement import apply_movement_op, flatten_index

    shape = u.shape
    if len(idx) != len(shape):
        raise ShapeError(f"index: {len(idx)} indices for kernel storage of shape {shape}; expected one per dim")
    deps: list[UOp] = []
    plain = True
    while u.op in GroupOp.Movement or u.op is Ops.AFTER:
        if u.op is Ops.AFTER:
            deps.extend(u.src[1:])
        else:
            idx = apply_movement_op(u.op, u.src[0].shape, u.marg, idx)
            plain = plain and u.op is Ops.RESHAPE
        u = u.src[0]
    storage = u.after(*dict.fromkeys(deps))
    made = storage.index(flatten_index(u.shape, idx), gate=gate)
    return made.rtag(shape) if plain and shape != u.shape else made


def buffer_of(u: UOp) -> Any:
    """Return the device Buffer behind a BUFFER node (made on first use) or a contiguous view of one.

    Raises:
        AssertionError: ``u`` views no BUFFER.
        RuntimeError: The view is not contiguous.
    """
    from tinygrad.uop.storage import buffer_lock, buffers

    if u.op is Ops.BUFFER:
        found = buffers.get(u)
        if found is None:
            with buffer_lock:
                found = buffers.get(u)
                if found is None:
                    found = buffers[u] = _made_buffer(u)
        return found
    base = u
    while base.op in GroupOp.Movement or base.op in (Ops.DETACH, Ops.BITCAST, Ops.AFTER):
        base = base.src[0]
    if base.op is not Ops.BUFFER:
        raise AssertionError(f"must be BUFFER or a view of one, got {base.op}")
    view = contiguous_view(u)
    if view is None:
        raise RuntimeError(
            f"non-contiguous view is not supported here: shape {u.shape} of {base.arg.device} storage; "
            "use .contiguous()"
        )
    storage, offset = view
    size = prod(u.max_shape)
    whole = buffer_of(storage)
    if offset == 0 and size == whole.size and u.dtype == whole.dtype:
        return whole
    return whole.view(size, u.dtype, offset * u.dtype.itemsize)


def _made_buffer(u: UOp) -> Buffer | MultiBuffer:
    from tinygrad.device import Buffer, MultiBuffer
    from tinygrad.uop.sharding import part_of
    from tinygrad.uop.storage import buffers

    if isinstance(u.arg.device, str):
        return Buffer(u.arg.device, u.arg.shape[0], u.dtype)
    parts = [part_of(u, i) for i in range(len(u.arg.device))]
    # A graph that came from a file may bring the parts first, with their data.
    bufs: list[Buffer] = [buffers.get(part) or Buffer(part.arg.device, part.arg.shape[0], u.dtype) for part in parts]
    return MultiBuffer.of(bufs)


def unproved_slices(sink: UOp) -> Iterator[tuple[sint, sint, sint]]:
    """Yield (start, end, size) of slices that some values of the Variables in them put out of bounds."""
    for u in sink.toposort(enter_calls=False):
        if u.op is not Ops.SHRINK:
            continue
        for (start, end), size in zip(u.marg, u.src[0].shape, strict=True):
            if not all(isinstance(x, int) for x in (start, end, size)):
                yield from unproved_slice(start, end, size)


def unproved_slice(start: sint, end: sint, size: sint) -> Iterator[tuple[sint, sint, sint]]:
    """Yield a slice, over free Variables, if some values of them put it out of bounds."""
    a, b, n = (x if isinstance(x, int) else x.unbind_all()[0] for x in (start, end, size))
    if bounds(a)[0] < 0 or bounds(sint_simplify(n - b))[0] < 0 or bounds(sint_simplify(b - a))[0] < 0:
        yield a, b, n
