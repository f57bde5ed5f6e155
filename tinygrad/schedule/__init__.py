"""From a tensor graph to a list of kernel calls.

In:   a SINK over the tensor nodes to compute.
Out:  LINEAR(CALL(body, buffers...), ...), the values of its Variables, and where each computed node now lives.
How:  normalise (buffers become numbers), look the schedule up; ``planning`` makes one that is in no cache.
Why:  graphs of equal programs differ in their buffers alone, so a second run pays for the lookup and nothing else; it
      does not even import the stages.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.forking import renew_in_child
from tinygrad.recent import Recent
from tinygrad.record import replace
from tinygrad.schedule.normalize import Normalized, normalize
from tinygrad.schedule.plan import Plan, joined_from, load_plan, save_plan
from tinygrad.settings import DEBUG
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers
from tinygrad.uop.sharding import part_of, storages_of
from tinygrad.uop.storage import unique_slots

schedule_cache: Recent[Any, Plan] = Recent(most=1024)  # some 15 KiB each, for a graph of three kernels
_cache_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_cache_lock")


def lookup_plan(given: Normalized) -> Plan:
    """Return the schedule of a normalised graph from the cache, or make it."""
    from tinygrad.helpers import SCACHE
    from tinygrad.middleware import cache_token

    sink, switches = given.sink, _collective_switches() if given.spread else ()
    key = (sink, cache_token(), switches)
    plan = schedule_cache.get(key) if SCACHE else None
    if plan is None:
        plan = load_plan(sink, switches)
        if plan is None:
            from tinygrad.schedule.planning import make_plan

            for u, normal in given.nodes.items():
                if normal._made_by is None:
                    normal._made_by = u._made_by
            plan = make_plan(sink, given.spread)
            save_plan(sink, switches, plan)
        with _cache_lock:
            schedule_cache[key] = plan
    return plan


def _collective_switches() -> tuple[int, ...]:
    from tinygrad.schedule.collectives import switches

    return switches()


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
        first_call: The number, from 1, of the call that first writes something of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls_before: dict[UOp, int] = {}
        self.first_call: dict[UOp, int] = {}


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
    written = {order[i]: (first, last) for i, first, last in plan.written}
    for u, normal in given.nodes.items():
        if normal in written and given.nodes[u.without_after] in given_storage:
            becomes[u] = u.without_after
            becomes.first_call[u], becomes.calls_before[u] = written[normal]
    return linear, given.var_vals, becomes
