"""What a capture records, and how it is replayed.

In:   the schedules that ran while a function was captured, its inputs, and what it returned.
Out:  ``CapturedJit``: one LINEAR whose inputs and results are PARAMs, planned, compiled and grouped into device graphs.
Why:  a result gets memory of its own in every replay, so that it keeps its value for as long as somebody holds it; all else
      that the function wrote (weights, gradients, counters) is written in place, as the function did.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tinygrad.device import Buffer
from tinygrad.dtype import DType, dtypes
from tinygrad.engine.arguments import Arguments, InputInfo, JitError, Name, map_structure
from tinygrad.engine.graph import GraphException, GraphRunner, graph_class
from tinygrad.engine.launch import Launch
from tinygrad.engine.realize import call_buffers, compile_linear, get_call_outs_ins, launches_of
from tinygrad.engine.report import run_reported, wants_report
from tinygrad.helpers import GlobalCounters, getenv
from tinygrad.live import is_view_node, live_tensors
from tinygrad.schedule.memory import memory_plan_rewrite
from tinygrad.settings import BEAM, DEBUG, GRAPH
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import CallInfo, ParamArg, UOp, buffers

INPUT: Final = "input"
RESULT: Final = "result"


class Recorder:
    """Receives the schedules of a function that is being captured."""

    def __init__(self) -> None:
        self.linears: list[tuple[UOp, dict[str, int]]] = []

    def add_linear(self, linear: UOp, var_vals: Mapping[str, int]) -> None:
        """Note a schedule."""
        self.linears.append((linear, dict(var_vals)))

    def on_data_access(self, what: str) -> None:
        """Refuse to read values: nothing has been computed."""
        raise JitError(f"cannot access tensor data during JIT capture ({what}); return the tensor and read it after the call")

    def joined(self) -> tuple[UOp, dict[str, int]]:
        """Return one LINEAR of all calls, and the values of all Variables.

        Raises:
            RuntimeError: A Variable has two values.
        """
        values: dict[str, int] = {}
        for _, var_vals in self.linears:
            for name, value in var_vals.items():
                if values.setdefault(name, value) != value:
                    raise RuntimeError(f"bind mismatch on {name}: bound to {values[name]} and {value} in one capture")
        return UOp(Ops.LINEAR, dtypes.void, tuple(call for linear, _ in self.linears for call in linear.src)), values


@dataclass(frozen=True)
class Slot:
    """What a PARAM of the captured LINEAR stands for: part of an input, or of a result.

    Attributes:
        kind: "input" or "result".
        index: Its number.
        offset: In bytes, from the beginning of the storage.
        size: Elements.
        dtype: Of the elements.
        whole: It is the storage itself.
    """

    kind: str
    index: int
    offset: int
    size: int
    dtype: DType
    whole: bool


@dataclass(frozen=True)
class ResultStorage:
    """Storage that every replay makes anew."""

    device: str
    size: int
    dtype: DType


@dataclass(frozen=True)
class Leaf:
    """How a returned tensor is made again: views, applied to an input or to the storage of a result.

    Attributes:
        kind: "input", "result", "argument" (the input tensor itself) or "same" (a tensor that no replay changes).
        index: Number of the input or result.
        part: For a result: (offset, size, dtype) of the part of the storage that is shown.
        chain: Movement nodes as (op, dtype, arg, symbolic sources), the innermost first.
        is_param: The tensor's flag.
        tensor: For "same".
    """

    kind: str
    index: int = -1
    part: tuple[int, int, DType] | None = None
    chain: tuple[tuple[Ops, DType, Any, tuple[UOp, ...]], ...] = ()
    is_param: bool = True
    tensor: Tensor | None = None


# ---- making a capture ------------------------------------------------------------------------------------------------------


class _Builder:
    """Turns recorded calls into a CapturedJit."""

    def __init__(self, linear: UOp, arguments: Arguments, returned: Any) -> None:
        self.linear, self.arguments, self.returned = linear, arguments, returned
        self.input_of = {id(node.buffer): i for i, node in enumerate(arguments.nodes)}
        self.input_bases = {id(node.buffer.base) for node in arguments.nodes}
        self.slots: dict[Slot, int] = {}
        self.results: list[ResultStorage] = []
        self.result_of: dict[int, int] = {}  # id of the base Buffer -> number of the result
        self.first_run: list[UOp] = []  # nodes that the PARAMs stand for in the run that follows the capture
        self.extra_calls: list[UOp] = []
        self.written_first = self._written_first()
        self.leaves: list[Leaf] = []

    def _written_first(self) -> set[int]:
        """Return the storages (ids of Buffers) that the calls make: the first use writes them."""
        from tinygrad.schedule.memory import _first_use_reads

        made: set[int] = set()
        seen: set[int] = set()
        for call in self.linear.src:
            for position, arg in enumerate(call.src[1:]):
                base = arg.buffer.base
                if id(base) not in seen and not base.is_allocated() and not _first_use_reads(call, position):
                    made.add(id(base))
                seen.add(id(base))
        return made - self.input_bases

    def held_elsewhere(self) -> set[int]:
        """Return the storages that live tensors other than the returned ones show or read."""
        returned: set[int] = set()
        map_structure(self.returned, lambda leaf: returned.add(id(leaf)))
        roots = [t.uop for t in live_tensors() if id(t) not in returned]
        held: set[int] = set()
        for u in UOp.sink(*dict.fromkeys(roots)).toposort():
            if u.op is Ops.BUFFER and (found := buffers.get(u)) is not None:
                held.add(id(found.base))
        return held

    def find_results(self, held: set[int]) -> Any:
        """Decide which storages are results; returns the structure of what replays return."""
        return map_structure(self.returned, lambda tensor: self._leaf(tensor, held))

    def _leaf(self, tensor: Any, held: set[int]) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        for i, argument in enumerate(self.arguments.tensors):
            if argument is tensor:
                return Leaf("argument", i)
        chain: list[tuple[Ops, DType, Any, tuple[UOp, ...]]] = []
        u = tensor.uop
        while is_view_node(u):
            chain.append((u.op, u.dtype, u.arg, u.src[1:]))
            u = u.src[0]
        same = Leaf("same", tensor=tensor)
        if u.op is not Ops.BUFFER:
            return same
        order = tuple(reversed(chain))
        if u in self.arguments.nodes:
            return Leaf(INPUT, self.arguments.nodes.index(u), None, order, tensor.is_param)
        buffer = u.buffer
        if id(buffer.base) not in self.written_first:
            return same
        if id(buffer.base) in held:
            return self._copied(tensor, u, order)
        index = self._result(buffer.base)
        return Leaf(RESULT, index, (buffer.offset, buffer.size, buffer.dtype), order, tensor.is_param)

    def _result(self, base: Buffer) -> int:
        if id(base) not in self.result_of:
            self.result_of[id(base)] = len(self.results)
            self.results.append(ResultStorage(base.device, base.size, base.dtype))
        return self.result_of[id(base)]

    def _copied(self, tensor: Tensor, node: UOp, order: tuple[Any, ...]) -> Leaf:
        # Somebody else holds the storage too and expects replays to write there: the result is a copy.
        buffer = node.buffer
        twin = UOp.new_buffer(buffer.device, buffer.size, buffer.dtype)
        source = UOp.param(1, buffer.dtype, (buffer.size,), buffer.device)
        body = UOp(Ops.COPY, buffer.dtype, (source,), buffer.device)
        self.extra_calls.append(UOp(Ops.CALL, dtypes.void, (body, twin, node), CallInfo()))
        tensor.uop = tensor.uop.substitute({node: twin})
        index = self._result(twin.buffer)
        return Leaf(RESULT, index, (0, buffer.size, buffer.dtype), order, tensor.is_param)

    def parametrize(self) -> UOp:
        """Return the LINEAR with inputs and results replaced by PARAMs."""
        calls = (*self.linear.src, *self.extra_calls)
        new: dict[UOp, UOp] = {}
        for call in calls:
            for arg in call.src[1:]:
                if arg not in new:
                    new[arg] = self._param_for(arg)
        return UOp(
            Ops.LINEAR, dtypes.void, tuple(call.replace(src=(call.src[0], *(new[a] for a in call.src[1:]))) for call in calls)
        )

    def _param_for(self, arg: UOp) -> UOp:
        buffer = arg.buffer
        base = buffer.base
        if id(base) in self.result_of:
            slot = Slot(RESULT, self.result_of[id(base)], buffer.offset, buffer.size, buffer.dtype, buffer is base)
        elif id(base) in self.input_bases:
            found = self._input_part(buffer)
            if found is None:
                return arg
            slot = found
        else:
            return arg
        if slot not in self.slots:
            self.slots[slot] = len(self.slots)
            self.first_run.append(arg)
        where = ParamArg(self.slots[slot], buffer.dtype, (buffer.size,), buffer.device)
        return UOp(Ops.PARAM, buffer.dtype, (), where)

    def _input_part(self, buffer: Buffer) -> Slot | None:
        for i, node in enumerate(self.arguments.nodes):
            whole = node.buffer
            offset = buffer.offset - whole.offset
            if whole.base is buffer.base and 0 <= offset and offset + buffer.nbytes <= whole.nbytes:
                same = buffer is whole or (offset == 0 and buffer.size == whole.size and buffer.dtype is whole.dtype)
                return Slot(INPUT, i, offset, buffer.size, buffer.dtype, same)
        return None


def _reads_own_writes(linear: UOp) -> set[UOp]:
    """Return the arguments that the schedule reads before it writes them, and then writes: state that runs carry on."""
    read_first: set[UOp] = set()
    written: set[UOp] = set()
    carried: set[UOp] = set()
    for call in linear.src:
        outs, ins = get_call_outs_ins(call)
        for position in ins:
            if call.src[1 + position] not in written:
                read_first.add(call.src[1 + position])
        for position in outs:
            written.add(call.src[1 + position])
            if call.src[1 + position] in read_first:
                carried.add(call.src[1 + position])
    return carried


def split_constant_calls(linear: UOp, input_vars: frozenset[str]) -> tuple[UOp, UOp]:
    """Return (calls whose results no input, Variable or carried state changes; the other calls).

    Writes to one storage stay on one side: a call is constant only if no other kind of call writes what it writes.
    """
    changing: set[UOp] = _reads_own_writes(linear) | {
        arg for call in linear.src for arg in call.src[1:] if arg.op is Ops.PARAM
    }
    varying: list[bool] = [False] * len(linear.src)
    changed = True
    while changed:
        changed = False
        for i, call in enumerate(linear.src):
            args = call.src[1:]
            uses_var = any(v.expr in input_vars for v in getattr(call.src[0].arg, "vars", ()))
            if not varying[i] and (uses_var or any(arg in changing for arg in args)):
                varying[i] = changed = True
                changing.update(args[position] for position in get_call_outs_ins(call)[0])
    constant = tuple(call for call, varies in zip(linear.src, varying, strict=True) if not varies)
    rest = tuple(call for call, varies in zip(linear.src, varying, strict=True) if varies)
    return linear.replace(src=constant), linear.replace(src=rest)


def build_capture(recorder: Recorder, arguments: Arguments, returned: Any, prune: bool, explicit: Mapping[str, int]) -> CapturedJit:
    """Return the capture of a function whose schedules were recorded, and run it once.

    Args:
        recorder: The schedules.
        arguments: Of the captured call.
        returned: What the function returned, all tensors realized.
        prune: Run calls that no input changes only once.
        explicit: Values of Variables that came with the arguments.
    """
    linear, var_vals = recorder.joined()
    builder = _Builder(linear, arguments, returned)
    held = builder.held_elsewhere()
    structure = builder.find_results(held)
    linear = builder.parametrize()
    beam = getenv("JITBEAM", BEAM.get())
    linear = compile_linear(linear, beam=beam)
    if prune:
        constant, linear = split_constant_calls(linear, frozenset(explicit))
        _run_once(constant, var_vals)
        held |= {id(a.buffer.base) for call in constant.src for a in call.src[1:]}
    stored = dict.fromkeys(a for call in linear.src for a in call.src[1:] if a.op is Ops.BUFFER)
    inner = [a for a in stored if id(a.buffer.base) in builder.written_first - held]
    linear = memory_plan_rewrite(linear, stored.keys() - set(inner))
    captured = CapturedJit(
        linear, list(builder.slots), builder.results, structure, arguments.names, arguments.infos, var_vals,
        frozenset(explicit), inner,
    )  # fmt: skip
    if DEBUG.get() >= 1:
        print(f"JIT captured {len(linear.src)} kernels with {len(arguments.names)} inputs")  # noqa: T201
    captured.run(builder.first_run, var_vals)
    return captured


def _run_once(linear: UOp, var_vals: Mapping[str, int]) -> None:
    for call, launch in zip(linear.src, launches_of(linear), strict=True):
        launch.launch(call_buffers(call), var_vals)


# ---- replaying ---------------------------------------------------------------------------------------------------------------


@dataclass
class _Step:
    """A graph of several calls, or one call."""

    graph: GraphRunner | None
    calls: tuple[UOp, ...]
    launches: list[Launch]


class CapturedJit:
    """A captured function.

    Attributes:
        linear: LINEAR of compiled calls. A PARAM is a part of an input or of a result (``slots``), a BUFFER is state of the
            function or an intermediate.
        expected_names: Names of the inputs.
        expected_input_info: What they look like.
        var_vals: Values of Variables in the captured call.
    """

    __slots__ = (
        "_lock", "_steps", "_written", "expected_input_info", "expected_names", "inner", "input_vars", "linear", "results",
        "slots", "structure", "var_vals",
    )  # fmt: skip

    def __init__(
        self, linear: UOp, slots: list[Slot], results: list[ResultStorage], structure: Any, names: list[Name],
        infos: list[InputInfo], var_vals: dict[str, int], input_vars: frozenset[str], inner: Sequence[UOp] = (),
    ) -> None:  # fmt: skip
        self.linear, self.slots, self.results, self.structure = linear, slots, results, structure
        self.expected_names, self.expected_input_info = names, infos
        self.var_vals, self.input_vars = var_vals, input_vars
        self.inner = tuple(inner)
        self._steps: list[_Step] | None = None
        self._written: set[int] | None = None
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return CapturedJit, (
            self.linear, self.slots, self.results, self.structure, self.expected_names, self.expected_input_info,
            self.var_vals, self.input_vars,
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
                    "  hint  pad it to the captured shape, bind its size to a Variable, or use TinyJit(f, recapture=True)"
                )

    def __call__(self, arguments: Arguments) -> Any:
        """Replay on new inputs and return new result tensors."""
        self.check(arguments)
        with self._lock:
            var_vals = {**self.var_vals, **arguments.var_vals} if arguments.var_vals else self.var_vals
            inputs = self._without_aliases(arguments.nodes)
            results = [UOp.new_buffer(r.device, r.size, r.dtype) for r in self.results]
            stands_for = {INPUT: inputs, RESULT: results}
            self.run([_part(stands_for[s.kind][s.index], s) for s in self.slots], var_vals)
        return self._returned(arguments, results)

    def _without_aliases(self, nodes: Sequence[UOp]) -> Sequence[UOp]:
        """Return the inputs, with copies of those that lie in storage that a replay writes."""
        written = self._written
        if written is None:
            written = self._written = self._written_storages()
        out = list(nodes)
        for i, node in enumerate(nodes):
            if id(node.buffer.base) in written:
                out[i] = UOp.new_buffer(node.arg.device, node.arg.shape[0], node.dtype)
                out[i].buffer.allocate().copy_from(node.buffer)
        return out

    def _written_storages(self) -> set[int]:
        found: set[int] = set()
        for call in self.linear.src:
            for position in get_call_outs_ins(call)[0]:
                arg = call.src[1 + position]
                if arg.op is Ops.BUFFER:
                    found.add(id(arg.buffer.base))
        return found

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
            for call, launch in zip(step.calls, step.launches, strict=True):
                arguments = call_buffers(call, input_uops)
                if reported:
                    run_reported(call, launch, arguments, var_vals, jit=True)
                else:
                    launch.launch(arguments, var_vals)
                work = launch.work(arguments, var_vals)
                GlobalCounters.kernel_count += 1
                GlobalCounters.global_ops += work[0]
                GlobalCounters.global_mem += work[1]

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
            steps.append(_Step(graph, calls, [launches[i] for i in members]))
        return steps

    def _returned(self, arguments: Arguments, results: Sequence[UOp]) -> Any:
        values = arguments.var_vals

        def rebound(u: UOp) -> UOp:
            bound = {b: b.src[0].bind(values[b.expr]) for b in u.toposort() if b.is_bound_var and b.expr in values}
            return u.substitute(bound) if bound else u

        def make(leaf: Any) -> Any:
            if not isinstance(leaf, Leaf):
                return leaf
            if leaf.kind == "same":
                return leaf.tensor
            if leaf.kind == "argument":
                return arguments.tensors[leaf.index]
            if leaf.kind == INPUT:
                u = arguments.nodes[leaf.index]
            else:
                assert leaf.part is not None
                u = _part_of(results[leaf.index], *leaf.part)
            for op, dtype, arg, extra in leaf.chain:
                u = UOp(op, dtype, (u, *map(rebound, extra)), arg)
            tensor = Tensor(u)
            tensor.is_param = leaf.is_param
            return tensor

        return map_structure(self.structure, make)

    def free_intermediates(self) -> None:
        """Free the memory of intermediates; the next replay allocates it again."""
        with self._lock:
            self._steps = self._written = None
            fresh: dict[int, Buffer] = {}
            for node in self.inner:
                old = node.buffer
                base = fresh.setdefault(id(old.base), Buffer(old.device, old.base.size, old.base.dtype))
                buffers[node] = base if old.base is old else base.view(old.size, old.dtype, old.offset)


def _part(node: UOp, slot: Slot) -> UOp:
    if slot.whole:
        return node
    return UOp.from_buffer(node.buffer.view(slot.size, slot.dtype, slot.offset))


def _part_of(node: UOp, offset: int, size: int, dtype: DType) -> UOp:
    whole = node.buffer
    if offset == 0 and size == whole.size and dtype is whole.dtype:
        return node
    return UOp.from_buffer(whole.view(size, dtype, offset))


__all__ = ["CapturedJit", "Recorder", "build_capture", "split_constant_calls"]
