"""Values over several devices: how they are split, and the parts that the devices hold.

In:   nodes whose device is a tuple of names. Their shape is that of the whole value.
Out:  ``axis`` (the axis along which the devices hold equal pieces, None if each holds everything), the shape of a
      piece, the storage of one device; and constructors of the nodes that move values between the two worlds.
Why:  a graph says what is computed, not where: how a value is split follows from its sources, node by node, and the
      scheduler takes it from there (``schedule/multi.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tinygrad.dtype import dtypes
from tinygrad.dtype_lattice import strong_dtype
from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import prod
from tinygrad.mixin.hooks import Hooks, same_size
from tinygrad.record import replace
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.records import Placement
from tinygrad.uop.sint import sint, sint_simplify, to_max_shape

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Devices = tuple[str, ...]


# ---- the axis of a node ----------------------------------------------------------------------------------------------


def axis_from_uop(u: UOp) -> int | None:
    """Derive along which axis a value is split from how its sources are.

    Where a view moves elements from one device to another, each device gets the whole value: the axis is None.
    """
    if not isinstance(u._device, tuple):
        return None
    rule = _AXES.get(u.op)
    return rule(u) if rule is not None else (u.src[0]._axis if u.src else None)


def _axis_of_operands(u: UOp) -> int | None:
    """Return the axis of the largest operand that is split; the others are brought to it."""
    best, most = None, -1
    for s in u.src:
        axis = s._axis
        if axis is not None and (size := prod(s.max_shape)) > most:
            best, most = axis + u.ndim - s.ndim, size
    return best


def _reshaped_axis(u: UOp) -> int | None:
    """Return the new axis that begins where the split one did, if the devices divide it."""
    x, axis = u.src[0], u.src[0]._axis
    if axis is None:
        return None
    new, count = u.shape, len(x._device or ())
    before = prod(x.shape[:axis])
    for i, size in enumerate(new):
        if divides(count, size) and same_size(prod(new[:i]), before):
            return i
    return None  # elements move between devices


def _moved_axis(u: UOp) -> int | None:
    """Return the axis after a movement other than RESHAPE."""
    axis = u.src[0]._axis
    if axis is None:
        return None
    marg = u.marg
    match u.op:
        case Ops.PERMUTE:
            position: int = marg.index(axis)
            return position
        case Ops.EXPAND:
            return axis + len(marg) - u.src[0].ndim
        case Ops.FLIP:
            return None if marg[axis] else axis
        case Ops.PAD:
            return axis if all(same_size(n, 0) for n in marg[axis]) else None
        case _:
            begin, end = marg[axis]
            return axis if same_size(begin, 0) and same_size(end, u.src[0].shape[axis]) else None


def _reduced_axis(u: UOp) -> int | None:
    axis = u.src[0]._axis
    return None if axis is None or axis in u.arg[1] else axis


def _axis_of_result(u: UOp) -> int | None:
    call, position = u.src[0], u.arg
    body = call.src[0] if call.op is Ops.FUNCTION else call
    axis: int | None = body.src[position]._axis
    return axis


def _axis_of_argument(u: UOp) -> int | None:
    axis: int | None = getattr(u.arg, "axis", None)
    return axis


_AXES: Final[dict[Ops, Callable[[Any], int | None]]] = {
    **dict.fromkeys((Ops.BUFFER, Ops.PARAM, Ops.COPY), _axis_of_argument),
    **dict.fromkeys((Ops.MSTACK, Ops.MSELECT, Ops.ALLREDUCE, Ops.SINK, Ops.TUPLE), lambda u: None),
    **dict.fromkeys((*GroupOp.ALU, Ops.STACK), _axis_of_operands),
    **dict.fromkeys(GroupOp.Movement, _moved_axis),
    Ops.RESHAPE: _reshaped_axis,
    Ops.REDUCE: _reduced_axis,
    Ops.UNSHARD: lambda u: u.arg,
    Ops.GETTUPLE: _axis_of_result,
}


def divides(count: int, size: sint) -> bool:
    """Return whether ``count`` devices divide a size without rest."""
    rest = sint_simplify(size % count)
    return isinstance(rest, int) and rest == 0


def piece_shape(shape: tuple[sint, ...], axis: int | None, count: int) -> tuple[Any, ...]:
    """Return the shape of what one of ``count`` devices holds of a value of this shape."""
    return tuple(sint_simplify(s // count) if i == axis else s for i, s in enumerate(shape))


def check_split(shape: tuple[sint, ...], axis: int, count: int) -> int:
    """Return ``axis`` counted from the front.

    Raises:
        ShapeError: There is no such axis.
        RuntimeError: The devices do not divide it.
    """
    if not -len(shape) <= axis < len(shape):
        raise ShapeError(error_text("shard", f"axis {axis} is out of range for shape {shown(shape)}"))
    axis %= len(shape)
    if not divides(count, shape[axis]):
        raise RuntimeError(
            error_text(
                "shard",
                f"multi axis uneven: {count} devices do not divide axis {axis} of shape {shown(shape)}",
                hint=f"pad the axis to a multiple of {count}",
            )
        )
    return axis


# ---- storage ---------------------------------------------------------------------------------------------------------


def part_of(storage: UOp, i: int) -> UOp:
    """Return the flat storage that device number ``i`` holds of a BUFFER or PARAM over several devices."""
    arg = storage.arg
    size = prod(to_max_shape(piece_shape(arg.shape, arg.axis, len(arg.device))))
    own = replace(arg, shape=(size,), device=arg.device[i], axis=None, part=i)
    return graph.UOp(storage.op, storage.dtype, (), own)


def real_part(storage: UOp, i: int) -> UOp:
    """Return ``part_of`` storage in a tensor graph, with the memory of that device behind it."""
    node = part_of(storage, i)
    buffers.setdefault(node, storage.buffer.bufs[i])
    return node


def storages_of(storage: UOp) -> tuple[UOp, ...]:
    """Return the BUFFERs of single devices that a BUFFER consists of: itself, or the parts on its devices."""
    device = storage.arg.device
    return tuple(real_part(storage, i) for i in range(len(device))) if isinstance(device, tuple) else (storage,)


def placed_buffer(
    device: str | Devices, shape: tuple[Any, ...], dtype: Any, axis: int | None = None, fill: UOp | None = None
) -> UOp:
    """Return fresh storage for a value of ``shape`` (sizes may be symbolic: their maximum is allocated), in that shape.

    Args:
        device: Where.
        shape: Of the whole value.
        dtype: Of the elements.
        axis: The axis along which several devices hold equal pieces; None where each holds everything.
        fill: A value of shape () that it holds; undefined content if None.
    """
    largest = to_max_shape(shape)
    if axis is None or not isinstance(device, tuple):
        storage = graph.UOp.new_buffer(device, prod(largest), dtype)
    else:
        flat = graph.UOp.new_buffer(device, 0, dtype)
        storage = flat.replace(arg=replace(flat.arg, shape=largest, axis=axis))
    view = storage if fill is None else storage.after(storage.store(fill._broadcast_to(storage.shape)))
    view = view._mop(Ops.RESHAPE, largest) if largest != view.shape else view
    return view if largest == shape else view._mop(Ops.SHRINK, tuple((0, s) for s in shape))


def place_like(x: UOp, like: UOp) -> UOp:
    """Return a value where another one is: on its device or devices, split as it is. What lives nowhere stays so."""
    device, axis = like.device, like.axis
    if device is None or x.device is None or (x.device == device and x.axis == axis):
        return x
    return x.copy_to_device(Placement(device, axis) if axis is not None and isinstance(device, tuple) else device)


# ---- methods ---------------------------------------------------------------------------------------------------------


class ShardMethods(Hooks):
    """Methods of UOp for values over several devices."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def _axis(self) -> int | None: ...

    @property
    def axis(self) -> int | None:
        """The axis along which the devices hold equal pieces; None if each holds everything, and on one device."""
        return self._axis

    @property
    def _device_count(self) -> int:
        device = self.device
        return len(device) if isinstance(device, tuple) else 1

    @property
    def bounds(self) -> tuple[tuple[sint, sint], ...]:
        """For each device (start, end) of its piece along ``axis``.

        Raises:
            RuntimeError: The value is not split.
        """
        axis = self.axis
        if axis is None:
            raise RuntimeError(error_text("bounds", "the value is not split along an axis", {"node": self}))
        size = self.shape[axis] // self._device_count
        return tuple((sint_simplify(size * i), sint_simplify(size * (i + 1))) for i in range(self._device_count))

    @property
    def sharding(self) -> tuple[tuple[int, UOp], ...]:
        """Pairs of (axis, RANGE over the devices): one if the value is split, none otherwise."""
        axis = self.axis
        if axis is None:
            return ()
        return ((axis, device_range(self._device_count)),)

    @property
    def shard_shape(self) -> tuple[sint, ...]:
        """Shape of what one device holds."""
        return piece_shape(self.shape, self.axis, self._device_count)

    @property
    def max_shard_shape(self) -> tuple[int, ...]:
        """``shard_shape`` with symbolic sizes replaced by their maximum."""
        return to_max_shape(self.shard_shape)

    @property
    def unsharded_base(self) -> UOp:
        """The node under movement, DETACH and UNSHARD nodes."""
        u = self._uop.base
        while u.op is Ops.UNSHARD:
            u = u.src[0].base
        return u

    def shard(self, devices: str | Devices, axis: int | None = None) -> UOp:
        """Return this value on several devices, split along ``axis``; None gives each device everything.

        Raises:
            RuntimeError: The dtype is weak, the value is on several devices already, or they do not divide the axis.
            ShapeError: There is no such axis.
        """
        u = self._uop
        if u.device is None:
            return u
        if isinstance(u.device, tuple):
            raise RuntimeError(error_text("shard", f"already on several devices {u.device}", {"node": u},
                                          hint=f".to({u.device[0]!r}) gathers it on one device"))  # fmt: skip
        if isinstance(devices, str) or axis is None:
            return u.copy_to_device(devices)
        return u.copy_to_device(Placement(devices, check_split(u.shape, axis, len(devices))))

    def gathered(self) -> UOp:
        """Return the value with all of it on each of its devices."""
        u = self._uop
        if u.axis is None or u.device is None:
            return u
        return u.cast(strong_dtype(u.dtype)).copy_to_device(u.device).cast(u.dtype)  # a weak dtype is in no memory

    def place_like(self, like: UOp) -> UOp:
        """Return this value where another one is: on its device or devices, split as it is."""
        return place_like(self._uop, like)

    @staticmethod
    def placed_buffer(
        device: str | Devices, shape: tuple[Any, ...], dtype: Any, axis: int | None = None, fill: UOp | None = None
    ) -> UOp:
        """Return fresh storage for a value of ``shape``; see ``sharding.placed_buffer``."""
        return placed_buffer(device, shape, dtype, axis, fill)

    def unshard(self, axis: int, device_range: UOp | None = None) -> UOp:
        """Return the value whose pieces along ``axis`` are what the devices hold of this one, in their order.

        Args:
            axis: Where the pieces are joined.
            device_range: Accepted for the interface; the pieces are always in the order of the devices.
        """
        u = self._uop
        if not isinstance(u.device, tuple) or u.axis is not None or not -u.ndim <= axis < u.ndim:
            raise RuntimeError(error_text("unshard", f"axis {axis} of a value on {u.device}", {"node": u},
                                          rule="a value on several devices that is not split yet"))  # fmt: skip
        return graph.UOp(Ops.UNSHARD, u.dtype, (u,), axis % u.ndim)

    def mselect(self, i: int) -> UOp:
        """Return what device number ``i`` holds, as a value on that device.

        Raises:
            RuntimeError: The value is on one device.
            ShapeError: There is no such device.
        """
        u = self._uop
        if not isinstance(u.device, tuple):
            raise RuntimeError(
                error_text("mselect", f"a value on {u.device}", {"node": u}, "a value on several devices")
            )
        if not 0 <= i < len(u.device):
            raise ShapeError(error_text("mselect", f"device number {i} of {len(u.device)}", {"node": u}))
        return graph.UOp(Ops.MSELECT, u.dtype, (u,), i)

    def mstack(self, *srcs: UOp) -> UOp:
        """Return values of one shape on single devices as what the devices of one value hold.

        Raises:
            RuntimeError: Shapes or dtypes differ, or two are on one device.
        """
        nodes = (self._uop, *srcs)
        devices = {u.device for u in nodes}
        same = all(u.shape == nodes[0].shape and u.dtype is nodes[0].dtype for u in nodes)
        if not same or len(devices) < len(nodes) or not all(isinstance(d, str) for d in devices):
            operands = {f"value {i}": u for i, u in enumerate(nodes)}
            rule = "one shape and dtype, a device of its own for each"
            raise RuntimeError(error_text("mstack", "the values do not go together", operands, rule))
        return graph.UOp(Ops.MSTACK, nodes[0].dtype, nodes)

    def allreduce(self, op: Ops, device: str | Devices) -> UOp:
        """Return what the devices hold combined by ``op`` (ADD, MUL or MAX), on ``device``.

        Raises:
            RuntimeError: The value is on one device.
        """
        u = self._uop
        if not isinstance(u.device, tuple) or op not in GroupOp.Reduce:
            raise RuntimeError(error_text("allreduce", f"{op} of a value on {u.device}", {"node": u},
                                          "ADD, MUL or MAX of a value on several devices"))  # fmt: skip
        return graph.UOp(Ops.ALLREDUCE, u.dtype, (u,), (op, device))


def device_range(count: int) -> UOp:
    """Return the RANGE that stands for the number of a device among ``count``."""
    return graph.UOp.range(count, -1, AxisType.DEVICE)


def numbered(body: UOp, i: int) -> UOp:
    """Return a kernel with the number of the device filled in for its DEVICE ranges."""
    ranges = [u for u in body.toposort() if u.op is Ops.RANGE and u.arg[-1] is AxisType.DEVICE]
    return body.substitute({r: graph.UOp.const(i, dtypes.weakint) for r in ranges}) if ranges else body


from tinygrad.uop import ops as graph  # noqa: E402  in a circle: only methods use it, once they run
from tinygrad.uop.storage import buffers  # noqa: E402
