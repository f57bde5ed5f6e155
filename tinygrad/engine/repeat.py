"""Replays with few checks: what a call needs whose arguments look as usual.

In:   a replay that has just run, and the arguments of the next call.
Out:  ``Repeat``: runs the launches again and returns new tensors; ``NOT_REPEATED`` where the call needs more than this.
Why:  a network of tiny kernels runs for a few microseconds; looking at every argument and making storage for every
      result in Python takes longer. Arguments that are the same nodes as before need no look at all, other plain
      tensors a short one; launch lists point at the right memory already, and get the values of Variables; a result
      that nobody has kept gives its storage to the next. Whatever is unusual, errors included, is left to the long way
      (engine/replay.py).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tinygrad.engine.arguments import (
    Arguments,
    InputInfo,
    check_slices,
    is_plain_value,
    leaves,
    same_value,
    unbound,
)
from tinygrad.engine.report import wants_report
from tinygrad.engine.results import INPUT, Leaf, ResultStorage, Slot
from tinygrad.helpers import GlobalCounters
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers, sint

if TYPE_CHECKING:
    from tinygrad.device import Buffer
    from tinygrad.engine.graph import NativeGraph

# Results that are kept for the next calls: small ones always, and large ones of all functions up to a sum.
SMALL_BYTES: Final = 1 << 20
MOST_BYTES: Final = 1 << 27
# Two, because the result of the call before is still held in ``result = function(x)``.
MOST_RESULTS: Final = 2
NOT_REPEATED: Final = object()
_NO_VALUES: Final[Mapping[str, int]] = {}

# (arguments that are tensors, nodes of results, values of the Variables of this call) -> what the call returns
_Maker: TypeAlias = Callable[[Sequence[Any], list[UOp], Mapping[str, int]], Any]


class _Results:
    """Storage of the results of one call, and who holds it.

    Args:
        storage: BUFFERs of the results, allocated.
        shown: The nodes of the returned tensors that show them.
        slots: (number, PARAM) of the results that launches use.
    """

    __slots__ = ("__weakref__", "_alone", "_held", "_memory", "nbytes", "shown", "slots")

    def __init__(self, storage: list[UOp], shown: list[UOp], slots: Sequence[tuple[int, Slot]]) -> None:
        parts = [slot.part(storage[slot.index]) for _, slot in slots]
        owners = [node.buffer for node in (*storage, *parts)]
        self.shown = shown
        self.nbytes: int = sum(node.buffer.nbytes for node in storage)
        self.slots = [
            (number, buffer.ensure_allocated()._buf)
            for (number, _), buffer in zip(slots, owners[len(storage) :], strict=True)
        ]
        self._memory = [(buffer, buffer._buf) for buffer in dict.fromkeys(owners)]
        self._held: list[Any] = list({id(x): x for x in (*shown, *storage, *parts, *owners)}.values())
        self._alone: list[int] = []

    def close(self) -> None:
        """Count who holds the results, at a moment when nobody else does."""
        self._alone = self._holders()
        if self.nbytes > SMALL_BYTES:
            _large_results.add(self)

    def may_be_kept(self) -> bool:
        """Whether they are small, or large ones that were kept leave room for them."""
        kept: int = sum(r.nbytes for r in list(_large_results))
        return self.nbytes <= SMALL_BYTES or kept + self.nbytes <= MOST_BYTES

    def is_free(self) -> bool:
        """Whether nobody else holds the results, and their memory is where it was."""
        if self._holders() != self._alone:
            return False
        for buffer, memory in self._memory:  # noqa: SIM110  a loop is faster than all(...)
            if buffer._buf is not memory:
                return False
        return True

    def _holders(self) -> list[int]:
        return list(map(sys.getrefcount, self._held))


_large_results: weakref.WeakSet[_Results] = weakref.WeakSet()


class _Input:
    """One input: what it must look like, and the one of the last call.

    Args:
        info: What it looked like in the capture.
        slots: Numbers of the PARAMs that stand for it.

    Attributes:
        values: Of the Variables in its views.
    """

    __slots__ = ("_is_plain", "buffer", "info", "memory", "node", "slots", "uop", "values")

    def __init__(self, info: InputInfo, slots: list[int]) -> None:
        self.info, self.slots = info, slots
        self._is_plain = all(isinstance(size, int) for size in info.view)
        self.memory: Any = None
        self.values: Mapping[str, int] = {}
        # The arguments must not be kept alive.
        self.uop: Callable[[], UOp | None] = _nothing
        self.node: Callable[[], UOp | None] = _nothing
        self.buffer: Callable[[], Buffer | None] = _nothing

    def take(self, uop: UOp, written: set[int]) -> bool:
        """Take another node if it is memory of the right form that no launch writes as its state."""
        info = self.info
        node, values = self._below_views(uop)
        if (
            values is None or node.op is not Ops.BUFFER or uop.dtype is not info.dtype
            or node.arg.shape[0] != info.size or node.arg.device != info.device
        ):  # fmt: skip
            return False
        buffer = buffers.get(node)
        if buffer is None or buffer._buf is None or id(buffer.base) in written:
            return False
        self.memory, self.values = buffer._buf, values
        self.uop, self.node, self.buffer = weakref.ref(uop), weakref.ref(node), weakref.ref(buffer)
        return True

    def _below_views(self, uop: UOp) -> tuple[UOp, Mapping[str, int] | None]:
        """Return the node under the views, and the values of the Variables in them; None if these views differ."""
        node = uop
        if self._is_plain:
            while node.op is Ops.RESHAPE and len(node.src) == 1:
                node = node.src[0]
            return node, {} if uop.shape == self.info.view else None
        values: dict[str, int] = {}
        for op, arg, sizes in self.info.view:
            if node.op is not op or node.arg != arg or len(node.src) != 1 + len(sizes):
                return node, None
            for size, expected in zip(node.src[1:], sizes, strict=True):
                plain, bound = unbound(size)
                if plain is not expected or any(values.setdefault(name, n) != n for name, n in bound.items()):
                    return node, None
            node = node.src[0]
        return node, values


def _nothing() -> None:
    return None


class Repeat:
    """Replays whose arguments look as usual.

    Args:
        graph: The launch list of the whole capture.
        arguments: Of a call; they are simple (``is_simple``).
        slots: What the PARAMs stand for.
        results: Storage that a call makes.
        structure: What a call returns.
        written: Storages (ids of Buffers) that the launches write as their state.
        var_vals: Values of Variables in the captured call.
        slices: (start, end, size) of slices of the function, to be checked for every call.
    """

    __slots__ = (
        "_checked", "_constants", "_graph", "_input_slots", "_inputs", "_is_flat", "_kept", "_names", "_positions",
        "_result_slots", "_results", "_returned", "_shown_leaves", "_slices", "_symbolic_inputs", "_var_vals",
        "_variables", "_work", "_written",
    )  # fmt: skip

    def __init__(
        self, graph: NativeGraph, arguments: Arguments, slots: Sequence[Slot], results: Sequence[ResultStorage],
        structure: Any, written: set[int], var_vals: Mapping[str, int], slices: Sequence[tuple[sint, sint, sint]],
    ) -> None:  # fmt: skip
        self._graph, self._results, self._written = graph, results, written
        self._var_vals, self._slices = var_vals, slices
        self._checked: Mapping[str, int] | None = None  # the values that were last found to be possible
        self._names = arguments.all_names
        self._is_flat = self._names == list(range(len(self._names)))
        self._variables = [(at, value.src[0], value.expr) for at, value in arguments.constants if _is_bound(value)]
        self._constants = [(at, value) for at, value in arguments.constants if not _is_bound(value)]
        others = {at for at, _ in arguments.constants}
        self._positions = [at for at in range(len(self._names)) if at not in others]
        of_input: list[list[int]] = [[] for _ in arguments.infos]
        self._result_slots: list[tuple[int, Slot]] = []
        for number, slot in enumerate(slots):
            if number not in graph.places:
                continue
            if slot.kind == INPUT:
                of_input[slot.index].append(number)
            else:
                self._result_slots.append((number, slot))
        self._inputs = [_Input(info, of) for info, of in zip(arguments.infos, of_input, strict=True)]
        self._input_slots = [(slot, expected) for expected in self._inputs for slot in expected.slots]
        self._work = len(graph), *graph.work
        self._symbolic_inputs = [expected for expected in self._inputs if expected.info.variables]
        self._shown_leaves: list[Leaf] = []
        self._returned = self._maker(structure)
        self._kept: list[_Results] = []

    @staticmethod
    def is_simple(arguments: Arguments, slots: Sequence[Slot]) -> bool:
        """Whether calls with such arguments can be repeated.

        They have inputs on one device each and as wholes, and values that compare.
        """
        return (
            len(arguments.nodes) == len(arguments.storages)
            and all(is_plain_value(value) or _is_bound(value) for _, value in arguments.constants)
            and all(slot.whole for slot in slots if slot.kind == INPUT)
        )

    def _leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return everything among the arguments that is no container; None if it stands elsewhere than it did."""
        if self._is_flat and not kwargs:
            return args if len(args) == len(self._names) else None
        found = list(leaves(args, kwargs))
        return [value for _, value in found] if [name for name, _ in found] == self._names else None

    def _values(self, given: Sequence[Any]) -> Mapping[str, int] | None:
        """Return the values that this call gives to Variables, by arguments and by the sizes of inputs.

        None if an argument is not the Variable that it was, or two disagree.
        """
        if not self._variables and not self._symbolic_inputs:
            return _NO_VALUES
        found: dict[str, int] = {}
        for at, variable, name in self._variables:
            bound = given[at]
            if not _is_bound(bound) or bound.src[0] is not variable:
                return None
            value = bound.unbind()[1]
            if found.setdefault(name, value) != value:
                return None
        for expected in self._symbolic_inputs:
            for name, value in expected.values.items():
                if found.setdefault(name, value) != value:
                    return None
        return found

    def _point_at(self, tensors: Sequence[Any]) -> bool:
        """Note the inputs if they are as they have to be."""
        changed = False
        for given, expected in zip(tensors, self._inputs, strict=True):
            if type(given) is not Tensor:
                return False
            uop = given.uop
            # The node of the last call, in the same memory.
            if expected.uop() is uop and getattr(expected.buffer(), "_buf", None) is expected.memory:
                continue
            changed = True
            if not expected.take(uop, self._written):
                return False
        if changed and len({i.node() for i in self._inputs}) < len(self._inputs):
            for i in self._inputs:
                i.uop = _nothing  # the next call looks again
            return False
        return True

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the launches on the arguments and return the results as new tensors, or NOT_REPEATED."""
        given = self._leaves(args, kwargs)
        if given is None or wants_report():
            return NOT_REPEATED
        if self._constants and not all(same_value(given[at], value) for at, value in self._constants):
            return NOT_REPEATED
        tensors = given if len(self._positions) == len(given) else [given[at] for at in self._positions]
        if not self._point_at(tensors):
            return NOT_REPEATED
        values = self._values(given)
        if values is None:
            return NOT_REPEATED
        graph = self._graph
        self._set_values({**self._var_vals, **values} if values else self._var_vals)
        for slot, expected in self._input_slots:
            if graph.memory.get(slot) is not expected.memory:
                graph.set_memory(slot, expected.memory)
        shown = self._storage()
        graph.batch.run()
        kernels, operations, nbytes = self._work
        GlobalCounters.kernel_count += kernels
        GlobalCounters.global_ops += operations
        GlobalCounters.global_mem += nbytes
        return self._returned(tensors, shown, values)

    def _set_values(self, values: Mapping[str, int]) -> None:
        """Let the launches run with these values of the Variables."""
        if values is not self._checked and values != self._checked:
            check_slices(self._slices, values)
            self._checked = values
        self._graph.set_values(values)

    def _storage(self) -> list[UOp]:
        """Point the launches at storage for the results; returns the nodes to show."""
        if not self._results:
            return []
        found = None
        for kept in self._kept:
            if kept.is_free():
                found = kept
                break
        if found is None:
            found = self._new_storage()
        graph = self._graph
        for slot, memory in found.slots:
            if graph.memory.get(slot) is not memory:
                graph.set_memory(slot, memory)
        return found.shown

    def _new_storage(self) -> _Results:
        storage = [UOp.new_buffer(r.device, r.size, r.dtype) for r in self._results]
        for node in storage:
            node.buffer.ensure_allocated()
        shown = [leaf.base([], storage) for leaf in self._shown_leaves]
        for number, leaf in enumerate(self._shown_leaves):
            if not leaf.is_symbolic:
                shown[number] = leaf.viewed(shown[number], {})
        made = _Results(storage, shown, self._result_slots)
        if made.may_be_kept():
            del node, storage, shown  # from here on nobody but ``made`` holds them
            made.close()
            self._kept = [*self._kept, made][-MOST_RESULTS:]
        return made

    def _maker(self, structure: Any) -> _Maker:
        """Return how to make what a call returns of its inputs and of the nodes that show results."""
        if isinstance(structure, Leaf):
            return self._leaf_maker(structure)
        if isinstance(structure, dict):
            named = {key: self._maker(value) for key, value in structure.items()}
            return lambda tensors, shown, values: {key: make(tensors, shown, values) for key, make in named.items()}
        if not isinstance(structure, (list, tuple)):
            return lambda *call: structure
        kind, makers = type(structure), [self._maker(value) for value in structure]
        if hasattr(structure, "_fields"):
            return lambda tensors, shown, values: kind(*[make(tensors, shown, values) for make in makers])
        return lambda tensors, shown, values: kind([make(tensors, shown, values) for make in makers])

    def _leaf_maker(self, leaf: Leaf) -> _Maker:
        index, is_param = leaf.index, leaf.is_param
        if leaf.kind == "same":
            return lambda tensors, shown, values: leaf.tensor
        if leaf.kind == "argument":
            return lambda tensors, shown, values: tensors[index]
        if leaf.kind == INPUT:
            given = self._inputs[index]
            return lambda tensors, shown, values: _tensor(leaf.viewed(_present(given.node()), values), is_param)
        number = len(self._shown_leaves)
        self._shown_leaves.append(leaf)
        if leaf.is_symbolic:
            return lambda tensors, shown, values: _tensor(leaf.viewed(shown[number], values), is_param)
        return lambda tensors, shown, values: _tensor(shown[number], is_param)


def _is_bound(value: Any) -> bool:
    """Whether an argument is a Variable with a value."""
    return isinstance(value, UOp) and value.is_bound_var


def _tensor(node: UOp, is_param: bool) -> Tensor:
    made = Tensor._wrap_uop(node)
    if not is_param:
        made.is_param = False
    return made


def _present(node: UOp | None) -> UOp:
    assert node is not None, "an input is gone while the call has it"
    return node


__all__ = ["NOT_REPEATED", "Repeat"]
