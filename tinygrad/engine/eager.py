"""Small graphs that this process has computed before: the same kernels on other buffers, without scheduling.

In:   a node to compute, whose graph only reads storage and makes new storage.
Out:  the node that shows its value, after the kernels ran; None where the graph is new, or needs more than this.
Why:  in a loop that computes expression after expression, the scheduler's part is to find out that it knows the graph:
      it makes the graph anew without its buffers, and calls with other ones. What kernels the graph takes follows from
      the ops, dtypes, arguments and places of its nodes, and reading those once takes a fraction of the time.

What can make two equal graphs differ takes the long way: writes, Variables, calls of functions, several devices, and
somebody who watches (a capture, a report of each launch, rules of the user).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tinygrad.buffer import Buffer
from tinygrad.dtype import DType
from tinygrad.engine.capturing import capturing
from tinygrad.engine.launch import KernelLaunch
from tinygrad.engine.realize import code_switches, launches_of
from tinygrad.engine.report import wants_report
from tinygrad.helpers import SCACHE, GlobalCounters
from tinygrad.middleware import cache_token
from tinygrad.recent import Recent
from tinygrad.record import record
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, buffers

_MOST_NODES: Final = 256  # of a larger graph reading the nodes takes long too

# Values of storage on one device. The rest of the ops writes, binds, calls, copies or spreads.
_PLAIN: Final = (
    *GroupOp.Elementwise, *GroupOp.Movement, Ops.BUFFER, Ops.CONST, Ops.STACK, Ops.REDUCE, Ops.CONTIGUOUS,
    Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.NOOP,
)  # fmt: skip
_OTHERS: Final = ~sum(1 << op for op in _PLAIN)


@record(frozen=True)
class Form:
    """A graph without its buffers.

    Args:
        key: Equal for two graphs that differ in their buffers only, under the same switches.
        given: The BUFFERs in order of appearance.
    """

    key: tuple[Any, ...]
    given: list[UOp]


@record(frozen=True)
class _Storage:
    """Memory that a run makes: of its own, or part of memory at another position."""

    device: str
    size: int
    dtype: DType
    whole: int = -1
    offset: int = 0

    def make(self, memory: Sequence[Buffer]) -> Buffer:
        if self.whole < 0:
            return Buffer(self.device, self.size, self.dtype)
        return memory[self.whole].view(self.size, self.dtype, self.offset)


@record(frozen=True)
class _Known:
    """What computes a graph. Memory is known by its position: given buffers first, then what the run makes.

    Args:
        launches: Kernels in order, each with the positions of its arguments.
        work: Operations and bytes of all of them.
        made: What the run makes, parts after what they are part of.
        result: Position of the value.
        steps: The views that show it, innermost first.
    """

    launches: tuple[tuple[KernelLaunch, tuple[int, ...]], ...]
    work: tuple[int, int]
    made: tuple[_Storage, ...]
    result: int
    steps: tuple[tuple[Ops, DType, Any, Any], ...]


_known: Recent[tuple[Any, ...], _Known] = Recent(most=1024)


def form_of(root: UOp) -> Form | None:
    """Return the form of a graph; None if it must go through the scheduler."""
    if root.ops_below & _OTHERS or capturing or not SCACHE.get() or cache_token() or wants_report():
        return None
    number: dict[UOp, int] = {}
    given: list[UOp] = []
    # Each node before its sources; where it is met again, its number stands for it and for all below it.
    key: list[Any] = [code_switches()]
    stack = [root]
    while stack:
        u = stack.pop()
        seen = number.get(u)
        if seen is not None:
            key.append(seen)
            continue
        number[u] = len(number)
        if len(number) > _MOST_NODES:
            return None
        if u.op is Ops.BUFFER:
            place = u.arg
            if type(place.device) is not str:  # several devices, or scratch memory of a kernel
                return None
            given.append(u)
            key.append((u.dtype, place.shape, place.device))
        else:
            tag = None if u.op is Ops.NOOP else u.tag  # that of a constant is for gradients alone
            key.append((u.op, u.dtype, u.arg, tag, len(u.src)))
            stack += u.src
    return Form(tuple(key), given)


def run_known(form: Form, update_stats: bool) -> UOp | None:
    """Compute a graph if it is known, and return the node that shows its value.

    Raises:
        MemoryError: A device has no memory left; the message names the kernel.
    """
    known = _known.get(form.key)
    if known is None:
        return None
    memory: list[Buffer] = [buffers.get(node) or node.buffer for node in form.given]
    for storage in known.made:
        memory.append(storage.make(memory))
    for launch, positions in known.launches:
        launch.launch([memory[i] for i in positions], {})
    if update_stats:
        GlobalCounters.kernel_count += len(known.launches)
        GlobalCounters.global_ops += known.work[0]
        GlobalCounters.global_mem += known.work[1]
    result = memory[known.result]
    node = UOp.new_buffer(result.device, result.size, result.dtype)
    buffers[node] = result
    for op, dtype, arg, tag in known.steps:
        node = UOp(op, dtype, (node,), arg, tag)
    return node


def remember(form: Form, linear: UOp, shown: UOp | None) -> None:
    """Remember what computed a graph.

    Args:
        form: The graph.
        linear: Its schedule, which has run.
        shown: The node that shows the value.
    """
    known = None if shown is None else _known_from(form, linear, shown)
    if known is not None:
        _known[form.key] = known


def _known_from(form: Form, linear: UOp, shown: UOp) -> _Known | None:
    """Return the record of a schedule; None if it does more than run kernels on given and on new memory."""
    nodes = list(dict.fromkeys(arg for call in linear.src for arg in call.src[1:]))
    if any(node.op is not Ops.BUFFER or type(node.arg.device) is not str for node in nodes):
        return None
    placed = _positions(form.given, [node for node in nodes if node not in form.given])
    if placed is None:
        return None
    at, made = placed
    steps: list[tuple[Ops, DType, Any, Any]] = []
    base = shown
    while base.op in GroupOp.Movement and len(base.src) == 1:
        steps.append((base.op, base.dtype, base.arg, base.tag))
        base = base.src[0]
    if base in form.given or base not in nodes or base.buffer.base is not base.buffer:
        return None
    launches = []
    work = [0, 0]
    for call, launch in zip(linear.src, launches_of(linear), strict=True):
        if not isinstance(launch, KernelLaunch) or not launch.is_static or launch.fixed_work is None:
            return None
        launches.append((launch, tuple(at[arg] for arg in call.src[1:])))
        work = [a + b for a, b in zip(work, launch.fixed_work, strict=True)]
    return _Known(tuple(launches), (work[0], work[1]), tuple(made), at[base], tuple(reversed(steps)))


def _positions(given: Sequence[UOp], made: Sequence[UOp]) -> tuple[dict[UOp, int], list[_Storage]] | None:
    """Return the position of each BUFFER, and what has to be made; None if what is part of what is unclear.

    Args:
        given: BUFFERs of the graph.
        made: BUFFERs of its schedule: with memory of their own, parts of others, or of memory that they share.
    """
    wholes: list[Buffer] = [node.buffer for node in given]
    is_part = {node: node.buffer.base is not node.buffer for node in made}
    at = {node: i for i, node in enumerate((*given, *(node for node in made if not is_part[node])))}
    wholes += [node.buffer for node in made if not is_part[node]]
    parts = [node for node in made if is_part[node]]
    bases = {id(whole.base) for whole in wholes}
    wholes += {id(base): base for node in parts if id(base := node.buffer.base) not in bases}.values()
    storages = [_Storage(whole.device, whole.size, whole.dtype) for whole in wholes[len(given) :]]
    for node in parts:
        buffer = node.buffer
        first, *others = [i for i, whole in enumerate(wholes) if whole.base is buffer.base]
        offset = buffer.offset - wholes[first].offset
        if others or offset < 0:
            return None
        at[node] = len(given) + len(storages)
        storages.append(_Storage(buffer.device, buffer.size, buffer.dtype, first, offset))
    return at, storages


__all__ = ["Form", "form_of", "remember", "run_known"]
