"""Write a graph with values over several devices as one in which every node is on one device.

In:   a tensor graph without FUNCTIONs. Nodes on a tuple of devices have the shape of the whole value; how it is split
      follows from ``UOp.axis``.
Out:  the graph of what each device computes, with COPYs where values move, and how the results are put together.
How:  sources first, every node becomes ``Parts``: a node per device. One rule per family of operations says how the
      axis goes through it and where devices have to communicate (``collectives``).
Why:  after this pass nothing in the scheduler, the code generator or the engine knows of several devices. The devices'
      graphs are alike, so their kernels are the same nodes, compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.errors import DeviceError, error_text
from tinygrad.helpers import prod
from tinygrad.record import record, replace
from tinygrad.schedule.collectives import (
    Parts,
    combined,
    cut,
    narrow_use,
    on_device,
    replicated,
    section,
    split,
)
from tinygrad.schedule.normalize import LOCAL
from tinygrad.schedule.plan import JOINED
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import Placement, UOp
from tinygrad.uop.sharding import numbered, part_of, piece_shape
from tinygrad.uop.views import own_copy

Value: TypeAlias = "UOp | Parts"
Rule: TypeAlias = Callable[["_Spreader", UOp, list[Value]], Value]


@record(frozen=True)
class Root:
    """What has become of a root of the graph.

    Args:
        node: The root.
        base: For a value over several devices: the node under its movement nodes.
        at: Positions of its nodes among the new roots, one for each device. None for what shows storage that exists.
    """

    node: UOp
    base: UOp | None = None
    at: tuple[int, ...] | None = None


@record(frozen=True)
class Spread:
    """A graph over single devices.

    Args:
        sink: The graph.
        roots: What has become of each root of the original.
    """

    sink: UOp
    roots: tuple[Root, ...]

    def results(self, found: tuple[UOp | None, ...], slot: Callable[[], int]) -> tuple[UOp | None, ...]:
        """Return the results of the original roots.

        Args:
            found: For each root of ``sink`` the view over storage that it has become.
            slot: Gives numbers to further storage.
        """
        made: dict[UOp, UOp] = {}
        return tuple(_result(root, found, made, slot) for root in self.roots)


def _result(root: Root, found: tuple[UOp | None, ...], made: dict[UOp, UOp], slot: Callable[[], int]) -> UOp | None:
    base = root.base
    if base is None:
        return None if root.at is None else found[root.at[0]]
    if root.at is None:
        shown = base.without_after
    else:
        if base not in made:
            made[base] = _joined_storage(base, [found[i] for i in root.at], slot())
        shown = made[base]
    chain: list[UOp] = []
    u = root.node
    while u is not base:
        chain.append(u)
        u = u.src[0]
    for node in reversed(chain):
        shown = shown._mop(node.op, node.marg) if node.op in GroupOp.Movement else shown
    return shown


def _joined_storage(base: UOp, results: list[UOp | None], slot: int) -> UOp:
    """Return the storage over several devices that consists of the storages in which the parts ended up."""
    storages = tuple(r.base for r in results if r is not None)
    assert len(storages) == len(results), f"a part of {base.op} has no storage; this is a bug of the scheduler"
    axis = base.axis
    shape = base.shape if axis is not None else (prod(base.max_shape),)
    arg = replace(storages[0].arg, slot=slot, shape=shape, device=base.device, axis=axis, name="stored", part=None)
    storage = UOp(Ops.BUFFER, storages[0].dtype, (), arg, (JOINED, *storages))
    return storage if shape == base.shape else storage._mop(Ops.RESHAPE, base.shape)


def spread_devices(sink: UOp, states: dict[Any, UOp]) -> Spread:
    """Return the graph of what each device computes.

    Args:
        sink: The graph.
        states: Map whose values are nodes of the graph; they are replaced by what has become of them. One with several
            nodes gets a key (key, device number) for each.
    """
    return _Spreader(sink).run(states)


class _Spreader:
    """One walk over a graph."""

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.new: dict[UOp, Value] = {}
        self.users: dict[UOp, list[UOp]] = {}

    def run(self, states: dict[Any, UOp]) -> Spread:
        order = list(self.sink.toposort(enter_calls=False))
        for u in order:
            for source in u.src:
                self.users.setdefault(source, []).append(u)
        for u in order:
            if u is not self.sink:
                self.new[u] = self.rewritten(u)
        spread = self.roots()
        for key, node in list(states.items()):
            made = self.new.get(node)
            if isinstance(made, Parts):
                del states[key]
                states.update({(key, i): part for i, part in enumerate(made.nodes)})
            elif made is not None:
                states[key] = made
        return spread

    def rewritten(self, u: UOp) -> Value:
        """Return what becomes of a node whose sources are done."""
        enters_call = u.op in (Ops.CALL, Ops.FUNCTION)
        src: list[Value] = [u.src[0] if enters_call and i == 0 else self.new[s] for i, s in enumerate(u.src)]
        if isinstance(u._device, tuple) or any(isinstance(s, Parts) for s in src):
            rule = _RULES.get(u.op)
            if rule is None:
                raise DeviceError(error_text(u.op.name, "not possible over several devices", {"value": u}))
            return rule(self, u, src)
        made = tuple(s for s in src if isinstance(s, UOp))
        return u if made == u.src else u.replace(src=made)

    def parts(self, u: UOp, x: Value, axis: int | None) -> Parts:
        """Return the value of a node on the devices of a result: split along ``axis``, or whole."""
        assert isinstance(x, Parts)
        return replicated(x) if axis is None else split(x, axis, u.shape)

    def operand(self, devices: tuple[str, ...], u: UOp, x: Value, axis: int | None) -> list[UOp]:
        """Return one operand of an operation for each device. Constants and ranges are cut to each device's piece."""
        if isinstance(x, Parts):
            if x.devices != devices:
                raise _mixed(u, devices, x.devices)
            return list(self.parts(u, x, axis).nodes)
        if x._device is not None:
            raise _mixed(u, devices, x._device)
        if axis is None:
            return [x] * len(devices)
        size = piece_shape(u.shape, axis, len(devices))[axis]
        return [cut(x, axis, i * size, (i + 1) * size) for i in range(len(devices))]

    # ---- roots

    def roots(self) -> Spread:
        """Return the new SINK: values over several devices as a root for each, which get storage that is theirs."""
        nodes: list[UOp] = []
        roots: list[Root] = []
        placed: dict[UOp, tuple[int, ...]] = {}

        def add(*found: UOp) -> tuple[int, ...]:
            nodes.extend(found)
            return tuple(range(len(nodes) - len(found), len(nodes)))

        for u in self.sink.src:
            value = self.new[u]
            if isinstance(value, UOp):
                # A part shown as such would share memory with the value that it is a part of.
                owned = u is value or u.dtype is dtypes.void or not _is_part(value)
                roots.append(Root(u, None, add(value if owned else own_copy(value))))
            elif u.dtype is dtypes.void:
                add(*value.nodes)
                roots.append(Root(u))
            else:
                base = self._base(u)
                if base.op in (Ops.BUFFER, Ops.AFTER, Ops.PARAM):
                    below = self.new[base]
                    assert isinstance(below, Parts)
                    at = add(*below.nodes)
                    # Storage that only a function knows is made by this schedule, like any value.
                    roots.append(Root(u, base, at if base.without_after.arg.name == LOCAL else None))
                    continue
                if base not in placed:
                    placed[base] = add(*self._stored(base, nodes))
                roots.append(Root(u, base, placed[base]))
        return Spread(self.sink.replace(src=tuple(nodes)), tuple(roots))

    def _base(self, u: UOp) -> UOp:
        """Return the node under a view if it has storage, or gets it as a root of its own; else the node itself."""
        base, crosses = u, False
        while base.op in GroupOp.Movement or (base.op is Ops.DETACH and len(base.src) == 1):
            crosses = crosses or (base.axis is None and base.src[0].axis is not None)
            base = base.src[0]
        has_storage = base.op in (Ops.BUFFER, Ops.AFTER, Ops.PARAM, Ops.COPY, Ops.CONTIGUOUS) or base in self.sink.src
        return base if has_storage and not crosses else u

    def _stored(self, base: UOp, taken: list[UOp]) -> list[UOp]:
        """Return the parts of a value as nodes that each get storage of their own."""
        value = self.new[base]
        assert isinstance(value, Parts)
        found: list[UOp] = []
        for node, device in zip(value.nodes, value.devices, strict=True):
            placed = node if node.device is not None else UOp(Ops.COPY, node.dtype, (node,), device)
            below = placed
            while below.op is Ops.RESHAPE or below.op is Ops.CONTIGUOUS:
                below = below.src[0]
            stored = below.op in (Ops.BUFFER, Ops.AFTER, Ops.PARAM)
            plain = placed.contiguous()
            found.append(own_copy(placed) if stored or plain in taken or placed in taken else plain)
        return found


def _is_part(u: UOp) -> bool:
    """Return whether a node shows storage that is a part of storage over several devices."""
    while u.op in GroupOp.Movement or u.op in (Ops.AFTER, Ops.DETACH, Ops.BITCAST, Ops.CONTIGUOUS):
        u = u.src[0]
    return u.op is Ops.BUFFER and u.arg.part is not None


def _mixed(u: UOp, devices: object, other: object) -> DeviceError:
    fault = f"all buffers must be on the same device, got {devices} and {other}"
    return DeviceError(error_text(u.op.name, fault, {"value": u}, hint="move one with .to() or .shard_like()"))


# ---- rules -----------------------------------------------------------------------------------------------------------


def _each(x: Parts, make: Callable[[int, UOp], UOp], axis: int | None) -> Parts:
    return Parts(x.devices, tuple(make(i, node) for i, node in enumerate(x.nodes)), axis)


def _storage(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # storage = its part on each device
    devices = u.arg.device
    shape = piece_shape(u.arg.shape, u.arg.axis, len(devices))
    parts = (part_of(u, i) for i in range(len(devices)))
    return Parts(devices, tuple(p if p.shape == shape else p._mop(Ops.RESHAPE, shape) for p in parts), u.arg.axis)


def _elementwise(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # f(x, y) split along an axis = f of the pieces; operands that are split otherwise are split anew
    devices, axis = u._device, u.axis
    assert isinstance(devices, tuple)
    operands: list[list[UOp]] = []
    for node, x in zip(u.src, src, strict=True):
        own = None if axis is None else axis - u.ndim + node.ndim
        if own is not None and (own < 0 or (isinstance(node.shape[own], int) and node.shape[own] == 1)):
            own = None  # broadcast along the axis
        operands.append(s.operand(devices, node, x, own))
    nodes = (UOp(u.op, u.dtype, tuple(pair), u.arg, u.tag) for pair in zip(*operands, strict=True))
    return Parts(devices, tuple(nodes), axis)


def _first(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # marks of the frontend: the value of the first source
    return src[0]


def _kept(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # CONTIGUOUS(x) = CONTIGUOUS of the pieces
    x = src[0]
    assert isinstance(x, Parts)
    return _each(x, lambda i, node: u.replace(src=(node,)), x.axis)


def _movement(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # a view of the pieces where the axis stays; otherwise the view of the gathered value
    x = src[0]
    assert isinstance(x, Parts)
    axis, marg, n = u.axis, u.marg, len(x.devices)
    if x.axis is not None and axis is None:
        return _across(u, x)
    if axis is not None and u.op in (Ops.RESHAPE, Ops.EXPAND):
        marg = piece_shape(marg, axis, n)
    elif axis is not None and u.op is Ops.SHRINK:
        marg = tuple((0, x.nodes[0].shape[axis]) if i == axis else pair for i, pair in enumerate(marg))
    return _each(x, lambda i, node: node._mop(u.op, marg), axis)


def _across(u: UOp, x: Parts) -> Parts:
    """Return a view that moves elements along the split axis: every device gets the elements that it shows."""
    assert x.axis is not None
    if u.op is not Ops.SHRINK:
        return _each(replicated(x), lambda i, node: node._mop(u.op, u.marg), None)
    begin, end = u.marg[x.axis]
    rest = tuple((0, end - begin) if i == x.axis else pair for i, pair in enumerate(u.marg))
    nodes = (section(x, device, x.axis, begin, end)._mop(Ops.SHRINK, rest) for device in x.devices)
    return Parts(x.devices, tuple(nodes))


def _reduce(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # reduce over the split axis = combination of what the devices get for their pieces
    x = src[0]
    assert isinstance(x, Parts)
    reduced = _each(x, lambda i, node: u.replace(src=(node,)), u.axis)
    if x.axis is None or x.axis not in u.arg[1]:
        return reduced
    return combined(reduced, u.arg[0], narrow=narrow_use(u, s.users))


def _copy(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # to one device: gathered there. To several: whole, or each its piece, of which nothing else is copied
    x, target = src[0], u.arg
    if isinstance(x, UOp):
        x = Parts((str(x.device),), (x,)) if x.device is not None else x
    if isinstance(target, str):
        assert isinstance(x, Parts)
        return section(x, target)
    if isinstance(target, Placement):
        if isinstance(x, Parts):
            return split(x, target.axis, u.shape, target.devices)
        pieces = s.operand(target.devices, u, x, target.axis)
        return Parts(
            target.devices, tuple(_fill(p, d) for p, d in zip(pieces, target.devices, strict=True)), target.axis
        )
    if isinstance(x, Parts):
        return replicated(x, target)
    return Parts(target, tuple(_fill(x, device) for device in target))


def _fill(x: UOp, device: str) -> UOp:
    return UOp(Ops.COPY, x.dtype, (x,), device)


def _effect(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # AFTER, END, GROUP: on each device after its own part of every effect
    devices = next(x.devices for x in src if isinstance(x, Parts))
    first = src[0]
    columns = [x.nodes if isinstance(x, Parts) else (x,) * len(devices) for x in src]
    nodes = (u.replace(src=tuple(column)) for column in zip(*columns, strict=True))
    return Parts(devices, tuple(nodes), first.axis if isinstance(first, Parts) else None)


def _store(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # STORE(view of storage, x) = STORE(view of the part, piece of x)
    target = src[0]
    assert isinstance(target, Parts)
    view = u.src[0]
    if view.op is not Ops.INDEX and view.axis is None and view.base.axis is not None:
        raise DeviceError(error_text("store", "a view across the pieces of a split value", {"target": view},
                                     hint="write the whole value"))  # fmt: skip
    values = s.operand(target.devices, u.src[1], src[1], target.axis)
    nodes = (u.replace(src=(t, v)) for t, v in zip(target.nodes, values, strict=True))
    return Parts(target.devices, tuple(nodes))


def _index(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # elements of storage that every device holds, at positions that every device knows
    storage = src[0]
    assert isinstance(storage, Parts)
    if storage.axis is not None:
        raise DeviceError(error_text("index", "cannot shard index", {"storage": u.src[0]}))
    columns = [
        storage.nodes,
        *(s.operand(storage.devices, n, x, None) for n, x in zip(u.src[1:], src[1:], strict=True)),
    ]
    return Parts(storage.devices, tuple(u.replace(src=tuple(column)) for column in zip(*columns, strict=True)))


def _call(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # a kernel written by hand runs on each device, on its parts
    devices = next(x.devices for x in src if isinstance(x, Parts))
    columns = [s.operand(devices, n, x, n.axis) for n, x in zip(u.src[1:], src[1:], strict=True)]
    nodes = (u.replace(src=(numbered(u.src[0], i), *args)) for i, args in enumerate(zip(*columns, strict=True)))
    return Parts(devices, tuple(nodes))


def _select(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # MSELECT(x, i) = what device i holds
    x = src[0]
    assert isinstance(x, Parts)
    return on_device(x.nodes[u.arg], x.devices[u.arg])


def _stack(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # MSTACK(x, y) is held by their devices
    devices = u._device
    assert isinstance(devices, tuple)
    return Parts(devices, tuple(x for x in src if isinstance(x, UOp)))


def _unshard(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # UNSHARD(x, axis): what the devices hold are pieces of a larger value
    x = src[0]
    assert isinstance(x, Parts)
    return replace(x, axis=u.arg)


def _allreduce(s: _Spreader, u: UOp, src: list[Value]) -> Value:
    # ALLREDUCE(x) = combination of what the devices hold
    x = src[0]
    assert isinstance(x, Parts)
    op, device = u.arg
    return combined(x, op, device) if isinstance(device, tuple) else combined(x, op, (device,)).nodes[0]


_RULES: Final[dict[Ops, Rule]] = {
    **dict.fromkeys((Ops.BUFFER, Ops.PARAM), _storage),
    **dict.fromkeys((*GroupOp.Elementwise, Ops.STACK), _elementwise),
    **dict.fromkeys((Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP), _first),
    Ops.CONTIGUOUS: _kept,
    **dict.fromkeys(GroupOp.Movement, _movement),
    Ops.REDUCE: _reduce,
    Ops.COPY: _copy,
    **dict.fromkeys((Ops.AFTER, Ops.END, Ops.GROUP), _effect),
    Ops.STORE: _store,
    Ops.INDEX: _index,
    Ops.CALL: _call,
    Ops.MSELECT: _select,
    Ops.MSTACK: _stack,
    Ops.UNSHARD: _unshard,
    Ops.ALLREDUCE: _allreduce,
}
