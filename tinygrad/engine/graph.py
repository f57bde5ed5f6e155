"""Device graphs: a list of launches that runs as one.

In:   a compiled LINEAR of calls; arguments that change from run to run are PARAMs.
Out:  ``graph(input_uops, var_vals)``.
Why:  between two kernels of a replay no Python runs. On the CPU one native call walks the launch list; other devices
      bring a class of their own as ``Device[name].graph``.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from tinygrad.device import Buffer, Device
from tinygrad.engine.joining import Access, join_launches
from tinygrad.engine.launch import KernelLaunch
from tinygrad.engine.realize import call_buffers, launches_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers, sym_infer


class GraphException(Exception):  # noqa: N818  name of the interface
    """A device cannot run these calls as a graph; they are launched one by one instead."""


class GraphRunner:
    """Runs the calls of one device as one launch.

    Args:
        linear: LINEAR of calls, bodies compiled.
        input_uops: What the PARAMs stand for in the first run.

    Attributes:
        work: (operations, bytes) of a run, without kernels whose work depends on Variables.
    """

    def __init__(self, linear: UOp, input_uops: Sequence[UOp] = ()) -> None:
        self.linear = linear
        launches = launches_of(linear)
        self.launches: list[KernelLaunch] = [launch for launch in launches if isinstance(launch, KernelLaunch)]
        if len(self.launches) != len(launches):
            raise GraphException(f"{type(self).__name__}: only kernels can be in this graph")
        fixed = [launch.fixed_work or (0, 0) for launch in self.launches]
        self.work = (sum(ops for ops, _ in fixed), sum(nbytes for _, nbytes in fixed))
        # For each PARAM, the (call, argument) places where it stands.
        self.places: dict[int, list[tuple[int, int]]] = {}
        for i, call in enumerate(linear.src):
            for position, arg in enumerate(call.src[1:]):
                if arg.op is Ops.PARAM:
                    self.places.setdefault(arg.arg.slot, []).append((i, position))

    def __len__(self) -> int:
        return len(self.launches)

    @classmethod
    def supports_uop(cls, devices: Sequence[str], call: UOp) -> bool:
        """Whether a call can be in a graph of this class.

        Args:
            devices: Devices of the calls that are in the graph so far.
            call: The call that would be added.
        """
        return call.src[0].op in (Ops.SINK, Ops.PROGRAM) and len({*devices, call.src[1].device}) == 1

    def __call__(self, input_uops: Sequence[UOp], var_vals: Mapping[str, int], wait: bool = False) -> float | None:
        """Run the calls; seconds if ``wait``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement __call__")


class MultiGraphRunner(GraphRunner):
    """A graph whose calls may be on several devices of one kind."""

    @classmethod
    def supports_uop(cls, devices: Sequence[str], call: UOp) -> bool:
        """Whether a call can be in a graph of this class."""
        kinds = {str(device).partition(":")[0] for device in (*devices, call.src[1].device)}
        return call.src[0].op in (Ops.SINK, Ops.PROGRAM, Ops.COPY) and len(kinds) == 1


class NativeGraph(GraphRunner):
    """The CPU's graph: one native call that walks a launch list and wakes the worker threads."""

    def __init__(self, linear: UOp, input_uops: Sequence[UOp] = ()) -> None:
        from tinygrad.runtime.support.cpu_threads import NativeBatch

        super().__init__(linear, input_uops)
        # Where a call's argument stands in the pointer list of its program: a program need not use all arguments.
        self.memory: dict[int, Any] = {}
        self._values: Mapping[str, int] | None = None
        # Where the value of each Variable stands, and the iterations that depend on Variables.
        self._value_places: dict[str, list[tuple[int, int]]] = {}
        self._iterations: list[tuple[int, UOp]] = []
        calls = []
        for i, (call, launch) in enumerate(zip(linear.src, self.launches, strict=True)):
            arguments = call_buffers(call, input_uops)
            opaque = [_opaque(launch, arguments, slot) for slot in launch.slots]
            iterations, vals = 1, (0,) * len(launch.info.vars)
            if launch.is_static:
                iterations = launch.sizes[0][0]
            else:
                for position, variable in enumerate(launch.info.vars):
                    self._value_places.setdefault(variable.expr, []).append((i, position))
                size = launch.sizes[0][0]
                if isinstance(size, UOp):
                    self._iterations.append((i, size))
                else:
                    iterations = size
            calls.append((launch.run, opaque, vals, iterations))
        for slot, places in self.places.items():
            positions = [
                (i, self.launches[i].slots.index(position))
                for i, position in places
                if position in self.launches[i].slots
            ]
            self.places[slot] = positions
        self.batch = NativeBatch(calls)

    def join(self, storages: Sequence[tuple[Hashable, int | None]]) -> None:
        """Let threads go from kernel to kernel without waiting where that is possible (engine/joining.py).

        Args:
            storages: For each PARAM the storage that it is a part of, and its first byte there; None if that is not
                known.
        """
        launches = [
            (launch.sizes[0][0] if launch.is_static and launch.info.pieces else None, self._accesses(i, storages))
            for i, launch in enumerate(self.launches)
        ]
        first = 0
        for length in join_launches(launches, Device[self.launches[0].device].renderer.cache_bytes // 2):
            if length > 1:
                overlaps = any(launch.info.overlaps for launch in self.launches[first : first + length])
                self.batch.join(first, length, overlaps)
            first += length

    def _accesses(self, call: int, storages: Sequence[tuple[Hashable, int | None]]) -> list[Access]:
        launch, arguments = self.launches[call], self.linear.src[call].src[1:]
        pieces = launch.info.pieces or (0,) * len(launch.slots)
        found = []
        for slot, piece in zip(launch.slots, pieces, strict=True):
            argument, is_written = arguments[slot], slot in launch.info.outs
            if argument.op is not Ops.PARAM:
                buffer = argument.buffer
                found.append(Access(id(buffer.base), buffer.offset, buffer.nbytes, is_written, piece))
                continue
            storage, offset = storages[argument.arg.slot]
            nbytes = argument.arg.shape[0] * argument.dtype.itemsize
            found.append(Access(storage, offset, nbytes, is_written, piece))
        return found

    @classmethod
    def supports_uop(cls, devices: Sequence[str], call: UOp) -> bool:
        """Whether a call can be in this graph: any kernel of the CPU, whichever of the CPU's devices it is for."""
        kinds = {str(device).partition(":")[0] for device in (*devices, call.src[1].device)}
        return call.src[0].op in (Ops.SINK, Ops.PROGRAM) and kinds == {"CPU"}

    def __call__(self, input_uops: Sequence[UOp], var_vals: Mapping[str, int], wait: bool = False) -> float | None:
        """Run the calls; seconds if ``wait``."""
        start = time.perf_counter() if wait else 0.0
        for slot in self.places:
            found = buffers.get(input_uops[slot])
            buffer = found if found is not None else input_uops[slot].buffer
            memory = buffer._buf if buffer._buf is not None else buffer.ensure_allocated()._buf
            if self.memory.get(slot) is not memory:
                self.set_memory(slot, memory)
        self.set_values(var_vals)
        self.batch.run()
        return time.perf_counter() - start if wait else None

    def set_memory(self, slot: int, memory: Any) -> None:
        """Let a PARAM stand for other memory in the runs to come."""
        # Forgotten first: an exception between the two leaves a place that the next run sets again.
        self.memory.pop(slot, None)
        self.batch.set_buffers(self.places[slot], memory)
        self.memory[slot] = memory

    def set_values(self, var_vals: Mapping[str, int]) -> None:
        """Give the Variables these values in the runs to come.

        Raises:
            RuntimeError: A Variable of a kernel has no value.
        """
        if self._values == var_vals or not (self._value_places or self._iterations):
            return
        self._values = None  # an exception below leaves values that the next run sets again
        if not self._value_places.keys() <= var_vals.keys():
            for launch in self.launches:
                launch.info.vals(dict(var_vals))
        for name, places in self._value_places.items():
            for call, position in places:
                self.batch.set_value(call, position, var_vals[name])
        sizes = {size: sym_infer(size, var_vals) for _, size in self._iterations}
        for call, size in self._iterations:
            self.batch.set_iterations(call, sizes[size])
        self._values = dict(var_vals)


def _opaque(launch: KernelLaunch, arguments: Sequence[Buffer], slot: int) -> Any:
    memory = arguments[slot]._buf
    return memory if memory is not None else launch._allocate(arguments, slot)


def graph_class(device: str) -> type[GraphRunner] | None:
    """Return the graph class of a device, or None if it has none."""
    found: type[GraphRunner] | None = Device[device].graph
    if found is None and device.partition(":")[0] == "CPU":
        return NativeGraph
    return found


__all__ = ["GraphException", "GraphRunner", "MultiGraphRunner", "NativeGraph", "graph_class"]
