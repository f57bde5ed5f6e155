"""Replaying a capture: what the PARAMs of its LINEAR stand for, the launches, and the tensors that come back.

In:   a compiled, planned LINEAR whose inputs and results are PARAMs; the arguments of a call.
Out:  new result tensors.
Why:  a result gets memory of its own in every replay, so that it keeps its value for as long as somebody holds it; all
      else that the function wrote (weights, gradients, counters) is written in place, as the function did.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.engine.arguments import Arguments, InputInfo, JitError, Name, check_slices, map_structure
from tinygrad.engine.graph import GraphException, GraphRunner, NativeGraph, graph_class
from tinygrad.engine.graph_events import graph_event
from tinygrad.engine.launch import Launch
from tinygrad.engine.realize import call_buffers, get_call_outs_ins, launches_of
from tinygrad.engine.repeat import NOT_REPEATED, Repeat
from tinygrad.engine.report import run_reported, wants_report
from tinygrad.engine.results import INPUT, RESULT, Leaf, ResultStorage, Slot
from tinygrad.engine.settling import Settling
from tinygrad.errors import ShapeError
from tinygrad.forking import renew_in_child
from tinygrad.helpers import GlobalCounters
from tinygrad.mixin.random_state import captured_states, settle_before_replay
from tinygrad.profiling import ProfileRangeEvent, cpu_events
from tinygrad.record import record
from tinygrad.settings import DEBUG, GRAPH
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers, sint


def _how_to_fit(got: InputInfo, expected: InputInfo) -> str:
    """Return what to do with an input, to make it look as in the capture."""
    if got.device != expected.device:
        return f"move it to {expected.device}"
    if got.dtype != expected.dtype:
        return f"cast it to {expected.dtype}"
    return "pad it to the captured shape, bind its size to a Variable"


@record
class _Step:
    """A graph of several calls, or one call."""

    graph: GraphRunner | None
    calls: tuple[UOp, ...]
    launches: list[Launch]


CHECKED = "index {value}"  # of a message: the index that a replay has found


class CapturedJit:
    """A captured function.

    Attributes:
        linear: LINEAR of compiled calls. A PARAM is a part of an input or of a result (``slots``), a BUFFER is state
            of the function or an intermediate.
        expected_names: Names of the inputs.
        expected_input_info: What they look like.
        var_vals: Values of Variables in the captured call.
        is_provisional: The next call has to capture again.
        inlined: Tensors that the launches compute for themselves, each with the node that it showed then.
        checks: Messages for indices out of bounds, if the function was captured with CHECK_BOUNDS=1. Then ``structure``
            is what the function returns and, for each message, whether there is one and which.
    """

    __slots__ = (
        "__weakref__", "_lock", "_random_states", "_repeat", "_repeat_tried", "_settling", "_steps", "_written",
        "checks", "expected_input_info", "expected_names", "inlined", "inner", "input_vars", "is_provisional", "linear",
        "results", "slices", "slots", "structure", "var_vals",
    )  # fmt: skip

    def __init__(
        self, linear: UOp, slots: list[Slot], results: list[ResultStorage], structure: Any, names: list[Name],
        infos: list[InputInfo], var_vals: dict[str, int], input_vars: frozenset[str], inner: Sequence[UOp] = (),
        slices: Sequence[tuple[sint, sint, sint]] = (), inlined: Sequence[tuple[weakref.ref[Tensor], UOp]] = (),
        checks: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.linear, self.slots, self.results, self.structure = linear, slots, results, structure
        self.expected_names, self.expected_input_info = names, infos
        self.var_vals, self.input_vars = var_vals, input_vars
        self.is_provisional, self.checks = False, tuple(checks)
        self.inner, self.slices, self.inlined = tuple(inner), tuple(slices), inlined
        self._steps: list[_Step] | None = None
        self._written: set[int] | None = None
        self._settling: Settling | None = None
        self._repeat: Repeat | None = None
        self._repeat_tried = False
        # One that was unpickled has a random state of its own.
        self._random_states = captured_states({arg for call in linear.src for arg in call.src[1:]})
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")

    def __reduce__(self) -> tuple[Any, ...]:
        return CapturedJit, (
            self.linear, self.slots, self.results, self.structure, self.expected_names, self.expected_input_info,
            self.var_vals, self.input_vars, (), self.slices, (), self.checks,
        )  # fmt: skip

    def check(self, arguments: Arguments) -> None:
        """Raise JitError unless the arguments look as they did in the capture."""
        if arguments.names == self.expected_names and arguments.infos == self.expected_input_info:
            return
        if arguments.names != self.expected_names:
            raise JitError(
                f"args mismatch in JIT: captured with tensors {self.expected_names}, called with {arguments.names}\n"
                "  hint  pass the same tensors in the same places, or use TinyJit(f, recapture=True)"
            )
        for name, got, expected in zip(arguments.names, arguments.infos, self.expected_input_info, strict=True):
            if got != expected:
                raise JitError(
                    f"args mismatch in JIT: argument {name} was {expected} in the capture and is {got} now\n"
                    f"  hint  {_how_to_fit(got, expected)}, or use TinyJit(f, recapture=True)"
                )

    def outdated(self) -> list[Tensor]:
        """Return the tensors that show something else than the expressions which the launches compute for them.

        A tensor that was not computed when a function read it is part of the capture as an expression. Somebody has
        written to it since then, or to what it is computed from, or has computed it.
        """
        return [t for ref, uop in self.inlined if (t := ref()) is not None and t.uop is not uop]

    def again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Replay if a call before was like this one (see engine/repeat.py); else NOT_REPEATED."""
        with self._lock:
            repeat = self._repeat
            if repeat is None:
                return NOT_REPEATED
            self.settle(args, kwargs)
            if self.inlined and self.outdated():
                return NOT_REPEATED
            result = repeat.run(args, kwargs)
        return result if result is NOT_REPEATED else self.checked(result)

    def __call__(self, arguments: Arguments) -> Any:
        """Replay on new inputs and return new result tensors."""
        self.check(arguments)
        if arguments.copied:
            for i in self._written_inputs():
                arguments.check_write(arguments.nodes[i])
        with self._lock:
            var_vals = {**self.var_vals, **arguments.var_vals} if arguments.var_vals else self.var_vals
            check_slices(self.slices, var_vals)
            self.settle(arguments.tensors, {})
            inputs = self._without_aliases(arguments.nodes)
            results = [UOp.new_buffer(r.device, r.size, r.dtype) for r in self.results]
            stands_for = {INPUT: inputs, RESULT: results}
            self.run([s.part(stands_for[s.kind][s.index]) for s in self.slots], var_vals)
            if not self._repeat_tried:
                self._repeat, self._repeat_tried = self._repeatable(arguments), True
        return self.checked(self._returned(arguments, results))

    def checked(self, result: Any) -> Any:
        """Return what the function returns; ``result`` is that, and what there is to check.

        Raises:
            ShapeError: An index was out of bounds.
        """
        if not self.checks:
            return result
        result, found = result
        for (is_wrong, value), text in zip(found, self.checks, strict=True):
            if is_wrong.item():
                raise ShapeError(text.replace(CHECKED, f"index {value.item()}"))
        return result

    def settle(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compute what has to come before the next replay, which gets these arguments."""
        if self._random_states:
            settle_before_replay(self._random_states)
        if self._settling is None:
            self._settling = Settling(*self._state_storages(), bool(self._written_inputs()))
        self._settling.settle(args, kwargs)

    def _repeatable(self, arguments: Arguments) -> Repeat | None:
        """Return how to repeat calls with such arguments; None if they are not simple enough."""
        steps = self._steps or []
        graph = steps[0].graph if len(steps) == 1 else None
        if not isinstance(graph, NativeGraph):
            return None
        if not Repeat.is_simple(arguments, self.slots):
            return None
        assert self._written is not None
        return Repeat(
            graph, arguments, self.slots, self.results, self.structure, self._written, self.var_vals, self.slices
        )

    def _without_aliases(self, nodes: Sequence[UOp]) -> Sequence[UOp]:
        """Return the inputs, with copies of those that lie in storage that a replay writes."""
        written = self._written
        if written is None:
            written = self._written = self._state_storages()[1]
        if not any(id(node.buffer.base) in written for node in nodes):
            return nodes
        out = list(nodes)
        for i, node in enumerate(nodes):
            if id(node.buffer.base) in written:
                out[i] = UOp.new_buffer(node.arg.device, node.arg.shape[0], node.dtype)
                out[i].buffer.allocate().copy_from(node.buffer)
        return out

    def _state_storages(self) -> tuple[set[int], set[int]]:
        """Return the storages, beside inputs and results, that the launches use, and those that they write."""
        used: set[int] = set()
        written: set[int] = set()
        for call in self.linear.src:
            outs = get_call_outs_ins(call)[0]
            for position, arg in enumerate(call.src[1:]):
                if arg.op is Ops.BUFFER:
                    used.add(id(arg.buffer.base))
                    if position in outs:
                        written.add(id(arg.buffer.base))
        return used, written

    def _written_inputs(self) -> list[int]:
        """Return the numbers of the inputs that the launches write to."""
        calls = self.linear.src
        written = [call.src[1 + position] for call in calls for position in get_call_outs_ins(call)[0]]
        slots = [self.slots[arg.arg.slot] for arg in written if arg.op is Ops.PARAM]
        return [slot.index for slot in slots if slot.kind == INPUT]

    def run(self, input_uops: Sequence[UOp], var_vals: Mapping[str, int]) -> None:
        """Launch everything, with the PARAMs standing for ``input_uops``."""
        steps = self._steps
        if steps is None:
            steps = self._steps = self._make_steps(input_uops)
        reported = wants_report()
        for step in steps:
            if step.graph is not None and not reported:
                step.graph(input_uops, var_vals)
                GlobalCounters.kernel_count += len(step.calls)
                GlobalCounters.global_ops += step.graph.work[0]
                GlobalCounters.global_mem += step.graph.work[1]
                continue
            events: list[ProfileRangeEvent] = []
            for call, launch in zip(step.calls, step.launches, strict=True):
                arguments = call_buffers(call, input_uops)
                if reported:
                    run_reported(call, launch, arguments, var_vals, jit=True, events=events)
                else:
                    launch.launch(arguments, var_vals)
                work = launch.work(arguments, var_vals)
                GlobalCounters.kernel_count += 1
                GlobalCounters.global_ops += work[0]
                GlobalCounters.global_mem += work[1]
            if events and step.graph is not None:
                cpu_events.append(graph_event(step.calls, events, input_uops))

    def _make_steps(self, input_uops: Sequence[UOp]) -> list[_Step]:
        """Group neighbouring calls into device graphs."""
        launches = launches_of(self.linear)
        groups: list[list[int]] = []
        current: type[GraphRunner] | None = None
        classes: list[type[GraphRunner] | None] = []
        for i, call in enumerate(self.linear.src):
            made = graph_class(launches[i].device) if GRAPH.get() else None
            devices = [launches[j].device for j in groups[-1]] if groups and current is made else []
            if made is not None and not made.supports_uop(devices, call):
                made = made if devices and made.supports_uop([], call) else None
                devices = []
            if made is not None and made is current and devices:
                groups[-1].append(i)
            else:
                groups.append([i])
                classes.append(made)
            current = made
        steps = []
        for members, made in zip(groups, classes, strict=True):
            calls = tuple(self.linear.src[i] for i in members)
            graph = None
            if made is not None:
                try:
                    graph = made(UOp(Ops.LINEAR, dtypes.void, calls), input_uops)
                except GraphException as error:
                    if DEBUG.get() >= 1:
                        print(f"JIT: no graph for {len(calls)} calls: {error}")  # noqa: T201
            if isinstance(graph, NativeGraph):
                graph.join([self._storage(slot) for slot in self.slots])
            steps.append(_Step(graph, calls, [launches[i] for i in members]))
        return steps

    @staticmethod
    def _storage(slot: Slot) -> tuple[Hashable, int | None]:
        """Return which storage a PARAM is a part of, and its first byte there. Inputs may share theirs in any way."""
        return ((RESULT, slot.index), slot.offset) if slot.kind == RESULT else (INPUT, None)

    def _shown(self, leaf: Leaf, arguments: Arguments, results: list[UOp]) -> UOp:
        """Return the node that a returned tensor shows."""
        return leaf.viewed(leaf.base(arguments.storages, results), arguments.var_vals)

    def _returned(self, arguments: Arguments, results: list[UOp]) -> Any:
        def make(leaf: Any) -> Any:
            if not isinstance(leaf, Leaf):
                return leaf
            if leaf.kind == "same":
                return leaf.tensor
            if leaf.kind == "argument":
                return arguments.tensors[leaf.index]
            tensor = Tensor(self._shown(leaf, arguments, results))
            tensor.is_param = leaf.is_param
            return tensor

        return map_structure(self.structure, make)

    def free_intermediates(self) -> None:
        """Free the memory of intermediates; the next replay allocates it again."""
        with self._lock:
            self._steps = self._written = self._settling = self._repeat = None
            self._repeat_tried = False
            fresh: dict[int, Buffer] = {}
            for node in self.inner:
                old = node.buffer
                base = fresh.setdefault(id(old.base), Buffer(old.device, old.base.size, old.base.dtype))
                buffers[node] = base if old.base is old else base.view(old.size, old.dtype, old.offset)


__all__ = ["CHECKED", "CapturedJit"]
