"""From a tensor graph to a list of kernel calls.

In:   a SINK over the tensor nodes to compute.
Out:  LINEAR(CALL(body, buffers...), ...), the values of its Variables, and where each computed node now lives.
How:  normalise (buffers become numbers), look the schedule up; otherwise spread over devices, prepare, rangeify, merge,
      pack, order, emit.
Why:  graphs of equal programs differ in their buffers alone, so a second run pays for the lookup and nothing else.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.forking import renew_in_child
from tinygrad.schedule import collectives
from tinygrad.schedule.emit import kernel_ast, storage_of
from tinygrad.schedule.kernel import Kernel
from tinygrad.schedule.labels import KernelLabels
from tinygrad.schedule.multi import JOINED, spread_devices
from tinygrad.schedule.normalize import LOCAL, Normalized, normalize
from tinygrad.schedule.ordering import in_place_hazard, order_kernels, overwritten_states, own_stores
from tinygrad.schedule.packing import pack_operands
from tinygrad.schedule.plan import Plan, PlannedCall, load_plan, place_intermediates, save_plan
from tinygrad.schedule.prepare import inline_functions, is_stored, on_wanted_devices, prepare
from tinygrad.schedule.rangeify import Rangeify
from tinygrad.schedule.siblings import merge_siblings
from tinygrad.schedule.snapshots import Snapshots
from tinygrad.schedule.stand_ins import resizes
from tinygrad.settings import DEBUG
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, buffers
from tinygrad.uop.sharding import part_of, storages_of
from tinygrad.uop.storage import unique_slots

schedule_cache: dict[Any, Plan] = {}
_cache_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_cache_lock")
CACHE_SIZE = 4096


def _result(root: UOp, builder: Rangeify) -> UOp | None:
    """Return the view over storage that a root has become."""
    chain: list[UOp] = []
    u = root
    while u not in builder.stored and (
        u.op in GroupOp.Movement or u.op in (Ops.CONTIGUOUS, Ops.DETACH) or (u.op is Ops.BITCAST and not resizes(u))
    ):
        chain.append(u)
        u = u.src[0]
    stand_ins = builder.stand_ins
    if u in stand_ins.made or u in builder.stored or u.op is Ops.COPY:
        made = stand_ins.leaves[stand_ins.of(u)].storage
    elif is_stored(u):
        made = u.without_after
    elif resizes(u):
        made = storage_of(stand_ins.of(u), stand_ins.leaves)
    else:
        return None
    made = made._mop(Ops.RESHAPE, u.shape) if made.shape != u.shape else made
    for node in reversed(chain):
        if node.op in GroupOp.Movement:
            made = made._mop(node.op, node.marg)
        elif node.op is Ops.BITCAST:
            made = UOp(Ops.BITCAST, node.dtype, (made,), node.dtype)
    return made


def build_kernels(sink: UOp, states: dict[Any, UOp]) -> tuple[Rangeify, list[Kernel]]:
    """Return the kernels of a prepared graph, unordered; values that in-place writes would spoil are stored first.

    Args:
        sink: The graph.
        states: Storage after writes, as the nodes that it is in the graph (the values); kept up to date.
    """
    while True:
        builder = Rangeify(sink)
        kernels, leaves = builder.build(), builder.stand_ins.leaves
        stores = {
            k.writes[0]
            for k in kernels
            if k.kind == "compute" and k.writes[0].op is Ops.STORE and in_place_hazard(k, leaves)
        }
        spoiled = overwritten_states(kernels, leaves)
        if not stores and not spoiled:
            return builder, kernels
        snapshots = Snapshots(stores, spoiled)
        changed = snapshots.apply(sink)
        if changed is sink:
            return builder, kernels
        sink = changed
        for state, node in states.items():
            states[state] = snapshots.kept.get(node, node)


def _is_written(u: UOp) -> bool:
    return u.op is Ops.AFTER and not u.without_after.is_variable


def make_plan(sink: UOp, spreads: bool = False) -> Plan:
    """Return the schedule of a normalised graph.

    Args:
        sink: The graph.
        spreads: Whether there may be values over several devices.
    """
    from tinygrad.middleware import cache_token, run_stage

    states: dict[Any, UOp] = {u: u for u in sink.toposort(enter_calls=False) if _is_written(u)}
    graph, spread = run_stage("function", sink), None
    if spreads:
        spread = spread_devices(on_wanted_devices(graph, inline_functions(graph, states)), states)
        graph = spread.sink
    graph = run_stage("schedule", graph, passes=lambda g: prepare(g, states))
    builder, kernels = build_kernels(graph, states)
    leaves = builder.stand_ins.leaves
    kernels = merge_siblings(kernels, leaves)
    kernels = pack_operands(kernels, leaves, builder.stand_ins.slots)
    kernels = order_kernels(kernels, leaves)
    calls: list[PlannedCall] = []
    names = KernelLabels(builder)
    for kernel in kernels:
        if kernel.kind == "compute":
            ast, args = kernel_ast(kernel, leaves, builder.stand_ins.slots)
            calls.append(PlannedCall(ast, tuple(args), metadata=names.of(kernel)))
        elif kernel.kind == "copy":
            args = [storage_of(a, leaves) for a in kernel.args]
            source = UOp.param(1, args[1].dtype, args[1].arg.shape, args[1].arg.device)
            copy = UOp(Ops.COPY, source.dtype, (source,), kernel.device)
            calls.append(PlannedCall(copy, tuple(args), metadata=names.of(kernel)))
        else:
            assert kernel.body is not None
            args = [storage_of(a, leaves) for a in kernel.args]
            calls.append(PlannedCall(kernel.body, tuple(args), kernel.writes[0].arg, names.of(kernel)))
    results = tuple(_result(root, builder) for root in builder.sink.src)
    if spread is not None:
        results = spread.results(results, lambda: next(builder.stand_ins.slots))
    reached = set(builder.order)
    # Rules of the user's own may have made other nodes of them: then everything counts as carried out.
    followed = not cache_token()
    writer = {u: i for i, kernel in enumerate(kernels, 1) for u in kernel.writes}
    carried: dict[UOp, bool] = {}  # over several devices: if all of them carry it out
    calls_before: dict[UOp, int] = {}
    for key, node in states.items():
        u = key[0] if isinstance(key, tuple) else key
        carried[u] = carried.get(u, True) and (node in reached or not followed)
        needed = max((writer.get(store, 0) for store in own_stores(node)), default=0) if followed else len(kernels)
        calls_before[u] = max(needed, *(calls_before.get(state, 0) for state in (u, u.src[0])))
    written = tuple((i, calls_before[u]) for i, u in enumerate(sink.toposort()) if carried.get(u, False))
    kept = {
        s for r in results if r is not None for u in r.toposort() if u.op is Ops.BUFFER for s in (u, *joined_from(u))
    }
    return Plan(tuple(calls), _storages(calls, results), results, *place_intermediates(calls, kept), written)


def _storages(calls: list[PlannedCall], results: tuple[UOp | None, ...]) -> tuple[UOp, ...]:
    found: dict[UOp, None] = {}

    def add(storage: UOp) -> None:
        for below in joined_from(storage) or (storage.tag[1:2] if isinstance(storage.tag, tuple) else ()):
            add(below)
        if storage.arg.name in ("stored", LOCAL):
            found[storage] = None

    for call in calls:
        for arg in call.args:
            add(arg)
    for result in results:
        if result is not None:
            for u in result.toposort():
                if u.op is Ops.BUFFER:
                    add(u)
    return tuple(found)


def lookup_plan(given: Normalized) -> Plan:
    """Return the schedule of a normalised graph from the cache, or make it."""
    from tinygrad.helpers import SCACHE
    from tinygrad.middleware import cache_token

    sink, switches = given.sink, collectives.switches() if given.spread else ()
    key = (sink, cache_token(), switches)
    plan = schedule_cache.get(key) if SCACHE else None
    if plan is None:
        plan = load_plan(sink, switches)
        if plan is None:
            for u, normal in given.nodes.items():
                if normal._made_by is None:
                    normal._made_by = u._made_by
            plan = make_plan(sink, given.spread)
            save_plan(sink, switches, plan)
        with _cache_lock:
            if len(schedule_cache) >= CACHE_SIZE:
                schedule_cache.clear()
            schedule_cache[key] = plan
    return plan


def joined_from(storage: UOp) -> tuple[UOp, ...]:
    """Return the storages of single devices that storage over several consists of; none if it is something else."""
    tag = storage.tag
    return tag[1:] if isinstance(tag, tuple) and tag[0] == JOINED else ()


def _fill_in_parts(real: dict[UOp, UOp], normal: UOp, storage: UOp) -> None:
    if isinstance(storage.arg.device, tuple):
        real.update((part_of(normal, i), node) for i, node in enumerate(storages_of(storage)))


def _instantiate(plan: Plan, given: Normalized) -> tuple[UOp, dict[UOp, UOp]]:
    """Return the plan's LINEAR on real buffers, and the real buffer of each storage."""
    from tinygrad.device import Buffer

    real: dict[UOp, UOp] = {given.nodes[b]: b for b in given.buffers}
    for b in given.buffers if given.spread else ():
        _fill_in_parts(real, given.nodes[b], b)
    joined = [storage for storage in plan.storages if joined_from(storage)]
    for storage in joined:
        node = storage.replace(arg=replace(storage.arg, slot=next(unique_slots), name=None), tag=None)
        real[storage] = node
        real.update(zip(joined_from(storage), storages_of(node), strict=True))
    arenas = {device: Buffer(device, nbytes, dtypes.uint8) for device, nbytes in plan.arenas.items()}
    for storage in plan.storages:
        if storage in real:
            continue
        arg = storage.arg
        node = UOp.new_buffer(arg.device, arg.shape[0], storage.dtype)
        real[storage] = node
        place = plan.places.get(storage)
        if place is not None:
            buffers[node] = arenas[place[0]].view(arg.shape[0], storage.dtype, place[1])
        if isinstance(storage.tag, tuple):
            kind, below = storage.tag[:2]
            offset = storage.tag[2] * storage.dtype.itemsize if kind == "view" else 0
            buffers[node] = real[below].buffer.view(arg.shape[0], storage.dtype, offset)
    calls = [UOp(Ops.CALL, dtypes.void, (c.body, *(real[a] for a in c.args)), c.info) for c in plan.calls]
    for call, planned in zip(calls, plan.calls, strict=True):
        call._made_by = planned.metadata or None
    return UOp(Ops.LINEAR, dtypes.void, tuple(calls)), real


class Becomes(dict[UOp, UOp]):
    """What nodes of a graph become when its schedule has run.

    Attributes:
        calls_before: For storage after in-place writes, after how many calls of the schedule it is in that state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls_before: dict[UOp, int] = {}


def create_linear_with_vars(sink: UOp) -> tuple[UOp, dict[str, int], Becomes]:
    """Schedule a graph.

    Args:
        sink: SINK over the tensor nodes to compute.

    Returns:
        The LINEAR of calls, the values of Variables by name, and for every node of ``sink`` that now has storage
        (roots, and storage after in-place writes) the node that shows it.
    """
    start = time.perf_counter()
    given = normalize(sink)
    plan = lookup_plan(given)
    linear, real = _instantiate(plan, given)
    if DEBUG >= 1 and len(linear.src) > 1:
        spent = (time.perf_counter() - start) * 1e3
        print(f"scheduled {len(linear.src)} kernels and copies in {spent:.2f} ms, {given.sink.key.hex()[:12]}")  # noqa: T201
    if given.var_vals:  # results keep the values of their sizes
        real |= {new: u for u, new in given.nodes.items() if u.is_bound_var}
    given_storage = {given.nodes[b] for b in given.buffers}
    becomes = Becomes()
    for root, result in zip(sink.src, plan.results, strict=True):
        if result is not None:
            shown = result.substitute(real, walk=True)
            if shown is not root:
                becomes[root] = shown
    order = list(given.sink.toposort())
    written = {order[i]: calls for i, calls in plan.written}
    for u, normal in given.nodes.items():
        if normal in written and given.nodes[u.without_after] in given_storage:
            becomes[u] = u.without_after
            becomes.calls_before[u] = written[normal]
    return linear, given.var_vals, becomes
