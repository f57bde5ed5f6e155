"""A finished schedule as data: what a second run of the same program needs, in memory and on disk.

In:   a normalised graph.
Out:  its Plan, if this process or an earlier one made it.
Why:  keys are structural (a digest of the graph), so a second run of a program schedules nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from tinygrad.dtype import dtypes
from tinygrad.profiling import Metadata
from tinygrad.record import field, record
from tinygrad.schedule.memory import lifetimes, plan_arenas
from tinygrad.schedule.normalize import LOCAL
from tinygrad.schedule.prepare import runs_kernels
from tinygrad.uop import Ops
from tinygrad.uop.ops import CallInfo, UOp
from tinygrad.uop.pickling import Saved, _unpickle_graph, save_graph

JOINED: Final = "joined"  # tag of storage over several devices that is made of storages of single ones


@record(frozen=True)
class PlannedCall:
    """One call of a schedule: its body, the storages that it is given, and the methods that asked for it."""

    body: UOp
    args: tuple[UOp, ...]
    info: Any = field(default_factory=CallInfo)
    metadata: tuple[Metadata, ...] = ()


@record(frozen=True)
class Plan:
    """A schedule without its buffers.

    Args:
        calls: The calls in order.
        storages: Storages to make, in an order in which views come after what they view.
        results: For each root of the graph the node that shows its value, over storages; None if it has none.
        places: For storages that share an arena, (device, offset in bytes).
        arenas: Bytes of each device's arena.
        written: The AFTER nodes whose writes the calls carry out, by position in dependency order of the graph, with
            the number of the first call that writes, counted from 1, and after how many calls all is written. (Those
            that only unused arguments or results of functions lead to are not among them.)
    """

    calls: tuple[PlannedCall, ...]
    storages: tuple[UOp, ...]
    results: tuple[UOp | None, ...]
    places: dict[UOp, tuple[str, int]] = field(default_factory=dict)
    arenas: dict[str, int] = field(default_factory=dict)
    written: tuple[tuple[int, int, int], ...] = ()


def joined_from(storage: UOp) -> tuple[UOp, ...]:
    """Return the storages of single devices that storage over several consists of; none if it is something else."""
    tag = storage.tag
    return tag[1:] if isinstance(tag, tuple) and tag[0] == JOINED else ()


def place_intermediates(calls: Sequence[PlannedCall], kept: Collection[UOp]) -> tuple[dict[UOp, Any], dict[str, int]]:
    """Let storages of disjoint lifetimes share an arena.

    Args:
        calls: The calls in order.
        kept: Storages whose contents are needed afterwards; they get memory of their own.
    """
    from tinygrad.helpers import NO_MEMORY_PLANNER

    if NO_MEMORY_PLANNER:
        return {}, {}

    def owner(storage: UOp) -> UOp:
        while isinstance(storage.tag, tuple):
            storage = storage.tag[1]
        return storage

    def is_movable(storage: UOp) -> bool:
        in_memory = storage.arg.name in ("stored", LOCAL) and runs_kernels(storage.arg.device)  # not part of a file
        return in_memory and storage not in held

    held = {owner(k) for k in kept}
    uses = [{o for a in call.args if is_movable(o := owner(a))} for call in calls]
    blocks = lifetimes(uses, lambda s: max(s.arg.shape[0] * s.dtype.itemsize, 1))
    return plan_arenas(blocks, lambda s: s.arg.device)


def _key(sink: UOp, switches: tuple[int, ...]) -> str:
    from tinygrad.fingerprint import source_fingerprint
    from tinygrad.helpers import getenv
    from tinygrad.middleware import cache_token

    return f"{source_fingerprint()}-{sink.key.hex()}-{cache_token()}-{getenv('SPLIT_REDUCEOP', 1)}-{switches}"


def _on_disk(sink: UOp) -> bool:
    from tinygrad.helpers import CACHELEVEL, SCACHE

    # A middleware or a custom kernel may hold Python objects: such schedules stay in memory.
    from tinygrad.middleware import cache_token

    return bool(SCACHE) and CACHELEVEL >= 1 and not cache_token() and not sink.op_in_backward_slice_with_self(Ops.CALL)


def save_plan(sink: UOp, switches: tuple[int, ...], plan: Plan) -> None:
    """Keep a plan on disk, under the values of the switches that it was made with."""
    from tinygrad.helpers import diskcache_put

    if not _on_disk(sink):
        return
    nodes: list[UOp] = [*plan.storages]
    for call in plan.calls:
        nodes += [call.body, *call.args]
    nodes += [r for r in plan.results if r is not None]
    shape = (
        len(plan.storages),
        [len(c.args) for c in plan.calls],
        [r is not None for r in plan.results],
        [plan.places.get(s) for s in plan.storages],
        plan.arenas,
        plan.written,
        [c.metadata for c in plan.calls],
        [c.body.key for c in plan.calls],
    )
    # A tagged storage refers to the one below it by node: written as one graph, all of them stay the same nodes.
    diskcache_put("schedule", _key(sink, switches), (shape, save_graph(UOp(Ops.SINK, dtypes.void, tuple(nodes)))))


def load_plan(sink: UOp, switches: tuple[int, ...]) -> Plan | None:
    """Return a plan that was kept on disk, or None."""
    from tinygrad.helpers import diskcache_get

    if not _on_disk(sink):
        return None
    found = diskcache_get("schedule", _key(sink, switches))
    try:
        return None if found is None else _plan_of(*found)
    except Exception:  # noqa: BLE001  nothing that save_plan wrote, so it may fail in any way: it is a miss
        return None


def _plan_of(shape: Any, graph: Saved) -> Plan:
    n_storages, arg_counts, has_result, places, arenas, written, metadata, keys = shape
    nodes = iter(_unpickle_graph(graph).src)
    storages = tuple(next(nodes) for _ in range(n_storages))
    calls = tuple(
        PlannedCall(next(nodes), tuple(next(nodes) for _ in range(n)), metadata=names)
        for n, names in zip(arg_counts, metadata, strict=True)
    )
    for call, key in zip(calls, keys, strict=True):
        call.body._key = key  # under which its program is kept: to work it out again takes longer than to load it
    results = tuple(next(nodes) if has else None for has in has_result)
    placed = {s: place for s, place in zip(storages, places, strict=True) if place is not None}
    return Plan(calls, storages, results, placed, arenas, written)
