"""Make the schedule of a graph that neither this process nor an earlier one has scheduled.

In:   a normalised graph.
Out:  its Plan: kernels in order, their storages, and where each result is.
How:  spread over devices, prepare, rangeify, merge, pack, order, emit.
"""

from __future__ import annotations

from typing import Any

from tinygrad.schedule.emit import kernel_ast, storage_of
from tinygrad.schedule.kernel import Kernel
from tinygrad.schedule.labels import KernelLabels
from tinygrad.schedule.multi import spread_devices
from tinygrad.schedule.normalize import LOCAL
from tinygrad.schedule.ordering import (
    histories_error,
    in_place_hazard,
    order_kernels,
    overwritten_states,
    own_stores,
    stored_state,
)
from tinygrad.schedule.packing import pack_operands
from tinygrad.schedule.plan import Plan, PlannedCall, joined_from, place_intermediates
from tinygrad.schedule.prepare import inline_functions, is_stored, on_wanted_devices, prepare
from tinygrad.schedule.rangeify import Rangeify
from tinygrad.schedule.siblings import merge_siblings
from tinygrad.schedule.snapshots import Snapshots
from tinygrad.schedule.stand_ins import resizes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


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

    Raises:
        RuntimeError: What was stored would have to be stored again, so that this would never end.
    """
    copied: set[UOp] = set()  # states, and STOREs' operands, that have been stored, as the nodes that they are now
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
        if copied >= stores | spoiled:
            raise histories_error(spoiled or {stored_state(store.src[0]) for store in stores})
        copied = {snapshots.kept[u] for u in copied | stores | spoiled}
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
    from tinygrad.middleware import run_stage

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
    written = _written(sink, states, kernels, set(builder.order))
    kept = {
        s for r in results if r is not None for u in r.toposort() if u.op is Ops.BUFFER for s in (u, *joined_from(u))
    }
    return Plan(tuple(calls), _storages(calls, results), results, *place_intermediates(calls, kept), written)


def _written(
    sink: UOp, states: dict[Any, UOp], kernels: list[Kernel], reached: set[UOp]
) -> tuple[tuple[int, int, int], ...]:
    """Return ``Plan.written`` for kernels in order."""
    from tinygrad.middleware import cache_token

    # Rules of the user's own may have made other nodes of them: then everything counts as carried out at the end.
    followed = not cache_token()
    writer = {u: i for i, kernel in enumerate(kernels, 1) for u in kernel.writes}
    carried: dict[UOp, bool] = {}  # over several devices: if all of them carry it out
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for key, node in states.items():
        u = key[0] if isinstance(key, tuple) else key
        carried[u] = carried.get(u, True) and (node in reached or not followed)
        writers = [writer[store] for store in own_stores(node) if store in writer] if followed else [len(kernels)]
        first[u] = min((*writers, first.get(u, len(kernels))))
        last[u] = max((*writers, *(last.get(state, 0) for state in (u, u.src[0]))))
    return tuple((i, first[u], last[u]) for i, u in enumerate(sink.toposort()) if carried.get(u, False))


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
