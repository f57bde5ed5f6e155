"""From what a function ran while it was captured to a list that can be replayed.

In:   the schedules that were recorded, the inputs, and what the function returned.
Out:  ``CapturedJit``: one LINEAR whose inputs and results are PARAMs, planned and compiled.
How:  storages are told apart by who uses them: inputs come with each call, results are made anew in each call, what a
      live tensor holds (weights, gradients, counters) stays where it is, and all else is an intermediate.
Why:  a call that is replayed does no work in Python, so all that can differ between calls has to be found beforehand.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tinygrad.device import Buffer
from tinygrad.dtype import DType, dtypes
from tinygrad.engine.arguments import Arguments, JitError, map_structure
from tinygrad.engine.realize import call_buffers, compile_linear, get_call_outs_ins, launches_of
from tinygrad.engine.replay import CHECKED, CapturedJit
from tinygrad.engine.results import INPUT, RESULT, Leaf, ResultStorage, Slot
from tinygrad.helpers import getenv
from tinygrad.live import aliases_of, is_stored, is_view_node, live_tensors, storage_under, writes_through
from tinygrad.record import replace
from tinygrad.schedule import Becomes
from tinygrad.schedule.memory import memory_plan_rewrite
from tinygrad.settings import BEAM, DEBUG
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import CallInfo, ParamArg, UOp, buffers, sint
from tinygrad.uop.sharding import storages_of
from tinygrad.uop.storage import unique_slots
from tinygrad.uop.views import unproved_slice


class Recorder:
    """Receives the schedules of a function that is being captured."""

    def __init__(self) -> None:
        self.linears: list[tuple[UOp, dict[str, int]]] = []
        self.slices: dict[tuple[sint, sint, sint], None] = {}
        self._outside: dict[int, tuple[weakref.ref[Tensor], UOp]] = {}  # with the node that the caller has left there
        self.pending_writes: Sequence[UOp] = ()  # storage after writes that the caller has left pending
        # Whether values of the caller got storage meanwhile: an equal expression of the function is the same node, and
        # shows that storage too, so replays would not compute it.
        self.is_provisional = False
        self.inlined: dict[int, tuple[weakref.ref[Tensor], UOp]] = {}  # tensors of the caller, as the graphs read them
        self.checked: list[tuple[Tensor, Tensor]] = []  # whether an index is out of bounds, and which
        self.checks: list[str] = []  # what to say of it
        self._written: dict[UOp, None] = {}  # BUFFERs that the function has written to, in this order

    def note_outside(self, tensors: Iterable[Tensor]) -> None:
        """Remember what the caller has when the function is called, and what is pending or no plain view of storage."""
        given = [t for t in tensors if not _is_plain(t)]
        self._outside = {id(t): (weakref.ref(t), t.uop) for t in given}
        after = [u for t in given if (u := storage_under(t.uop)).op is Ops.AFTER]
        self.pending_writes = tuple(dict.fromkeys(after))

    def is_outside(self, tensor: Tensor) -> bool:
        """Return whether a tensor still shows what the caller has left there: something pending, or no plain view."""
        known = self._outside.get(id(tensor))
        return known is not None and known[0]() is tensor and known[1] is tensor.uop

    def note_read(self, sink: UOp) -> None:
        """Remember the tensors of the caller whose expressions are part of a graph: replays compute these anew.

        Constants may be anywhere, and be part of other constants.
        """
        nodes = sink.toposort() if self._outside else {}
        for key, (ref, uop) in self._outside.items():
            if uop.is_virtual or (uop if is_stored(uop) else storage_under(uop)) in nodes:
                self.inlined.setdefault(key, (ref, uop))

    def note_write(self, buffer: UOp) -> None:
        """Remember a BUFFER that the function writes to."""
        self._written[buffer] = None

    @contextmanager
    def following(self) -> Iterator[Becomes]:
        """Within, the caller's tensors change: they stay the caller's. What its nodes become goes into the map."""
        # No references to tensors: gradients that nobody else refers to are told by that.
        before = [ref for ref, uop in self._outside.values() if getattr(ref(), "uop", None) is uop]
        becomes = Becomes()
        try:
            yield becomes
        finally:
            # Others are the function's now, even if they come to show a node that the caller has left there.
            alive = [(ref, t) for ref in before if (t := ref()) is not None]
            self._outside = {id(t): (ref, t.uop) for ref, t in alive if not _is_plain(t)}
            # A write that has been computed is forgotten: the same one of the function is the same node from then on.
            left = [u for u in self.pending_writes if u not in becomes]
            self.pending_writes = UOp.sink(*left).substitute(becomes, walk=True).src if left else ()

    def unfinished(self) -> list[Tensor]:
        """Return a tensor for each storage with writes of the function that are still pending."""
        shown = [aliases_of(buffer) for buffer in self._written]
        return [aliases[0] for aliases in shown if aliases and aliases[0]._is_pending()]

    def note_slices(self, slices: Iterable[tuple[sint, sint, sint]]) -> None:
        """Remember slices (start, end, size) that may be out of bounds for other values of their Variables."""
        self.slices |= dict.fromkeys(slices)

    def note_fit(self, needed: sint, size: sint) -> None:
        """Remember that the function was built for a size that is at least ``needed``."""
        self.note_slices(unproved_slice(0, needed, size))

    def note_check(self, is_wrong: Tensor, value: Tensor, text: Callable[[str], str]) -> None:
        """Remember what is to be looked at after each replay.

        It is computed here and now: pending, it would be a reader of what the function may write next.

        Args:
            is_wrong: Whether an index is out of bounds.
            value: The index.
            text: Returns the message of the error for what is said of the index.
        """
        self.checked.append((is_wrong.realize(), value.realize()))
        self.checks.append(text(CHECKED))

    def add_linear(self, linear: UOp, var_vals: Mapping[str, int]) -> None:
        """Note a schedule."""
        self.linears.append((linear, dict(var_vals)))

    def on_data_access(self, what: str) -> None:
        """Refuse to read values: nothing has been computed."""
        raise JitError(
            f"cannot access tensor data during JIT capture ({what}); return the tensor and read it after the call"
        )

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


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor shows storage, through which writes to it go, without pending writes."""
    return not tensor._is_pending() and is_stored(tensor.uop) and writes_through(tensor.uop)


# ---- making a capture ------------------------------------------------------------------------------------------------


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
            if u.op is Ops.BUFFER and buffers.get(u) is not None:
                held.update(id(storage.buffer.base) for storage in storages_of(u))
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
        if u in self.arguments.storages:
            return Leaf(INPUT, self.arguments.storages.index(u), (), order, tensor.is_param)
        shown = [storage.buffer for storage in storages_of(u)]
        if any(id(buffer.base) not in self.written_first for buffer in shown):
            return same
        if any(id(buffer.base) in held for buffer in shown):
            shown = self._copied(tensor, u)
        parts = tuple((self._result(b.base), b.offset, b.size, b.dtype) for b in shown)
        return Leaf(RESULT, -1, parts, order, tensor.is_param, storage=u.arg)

    def _result(self, base: Buffer) -> int:
        if id(base) not in self.result_of:
            self.result_of[id(base)] = len(self.results)
            self.results.append(ResultStorage(base.device, base.size, base.dtype))
        return self.result_of[id(base)]

    def _copied(self, tensor: Tensor, node: UOp) -> list[Buffer]:
        # Somebody else holds the storage too and expects replays to write there: the result is a copy.
        twin = node.replace(arg=replace(node.arg, slot=next(unique_slots)))
        for copy, original in zip(storages_of(twin), storages_of(node), strict=True):
            buffer = original.buffer
            source = UOp.param(1, buffer.dtype, (buffer.size,), buffer.device)
            body = UOp(Ops.COPY, buffer.dtype, (source,), buffer.device)
            self.extra_calls.append(UOp(Ops.CALL, dtypes.void, (body, copy, original), CallInfo()))
        tensor.uop = tensor.uop.substitute({node: twin})
        return [storage.buffer for storage in storages_of(twin)]

    def parametrize(self) -> UOp:
        """Return the LINEAR with inputs and results replaced by PARAMs."""
        calls = (*self.linear.src, *self.extra_calls)
        new: dict[UOp, UOp] = {}
        for call in calls:
            for arg in call.src[1:]:
                if arg not in new:
                    new[arg] = self._param_for(arg)
        return UOp(
            Ops.LINEAR,
            dtypes.void,
            tuple(call.replace(src=(call.src[0], *(new[a] for a in call.src[1:]))) for call in calls),
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
            if whole.base is buffer.base and offset >= 0 and offset + buffer.nbytes <= whole.nbytes:
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


def build_capture(
    recorder: Recorder, arguments: Arguments, returned: Any, prune: bool, explicit: Mapping[str, int]
) -> CapturedJit:
    """Return the capture of a function whose schedules were recorded, and run it once.

    Args:
        recorder: The schedules.
        arguments: Of the captured call.
        returned: What the function returned, all tensors realized; with what the recorder has to check, if anything.
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
        frozenset(explicit), inner, tuple(recorder.slices), tuple(recorder.inlined.values()),
        recorder.checks,
    )  # fmt: skip
    if DEBUG.get() >= 1:
        print(f"JIT captured {len(linear.src)} kernels with {len(arguments.names)} inputs")  # noqa: T201
    captured.run(builder.first_run, var_vals)
    return captured


def _run_once(linear: UOp, var_vals: Mapping[str, int]) -> None:
    for call, launch in zip(linear.src, launches_of(linear), strict=True):
        launch.launch(call_buffers(call), var_vals)


__all__ = ["CapturedJit", "Recorder", "build_capture", "split_constant_calls"]
