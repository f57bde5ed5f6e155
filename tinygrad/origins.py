"""Origins: the graphs of values that were read before anybody asked for their gradient.

In:   a float tensor of one element that gets its value, such as a loss whose ``item()`` is printed, or one of any size
      that is read, such as predictions that are compared with labels in numpy.
Out:  ``with_origins``, graphs in which the storage of such values is the expression that it was computed from.
Why:  storage does not know how its content was computed, but printing a value must not change what ``backward`` does.

A graph is kept as long as somebody shows the value, none of the storage that it reads was overwritten, and neither too
many others nor too much storage were kept since. Values that are realized without being read have none, unless they are
single numbers, parts of graphs that are kept already, or copies that such a value stands on: what a program stores on
purpose is often large, and keeping what it was computed from would double its memory. For the same reason a chain of
values, each computed from the one before, is kept in part only. A copy of data alone (``clone``, ``contiguous``) has a
graph as long as a tensor shows the data.

Storage that was written in place has one if what it held before is known, or if what was written is linear in that: no
gradient depends on it then. A parameter that was updated by its own gradient is a parameter, and has none.

Where a graph could not be kept, a gradient that would have to go through it is missing; that is a warning.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import sys
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from tinygrad.dtype import dtypes
from tinygrad.errors import error_text, shown
from tinygrad.forking import renew_in_child
from tinygrad.gradient_marks import gradients_in, is_marked, mark_storage
from tinygrad.live import aliases_of, buffer_under, rebase, storage_under, unsettled_tensors
from tinygrad.mixin.written_views import view_chain, without_chain
from tinygrad.retracing import Retraced, Traced, contents_after, data_under, fills, is_linear, undetached
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.views import is_own_constant, own_constant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set

    from tinygrad.tensor import Tensor

_MOST: Final = 32  # graphs that are kept
# Bytes of storage that may stay alive for them, beside the newest ones: a loop that evaluates a model and keeps losses
# must not keep all inputs. It is looked at when so many numbers were added.
_MOST_BYTES: Final = 1 << 28
_LOOK_EVERY: Final = 8
_LARGE: Final = 1 << 20  # bytes of a value after which it is looked at each time
_LARGEST: Final = 1000  # nodes of a graph to which further parts of storage are added
_LARGEST_UPDATED: Final = 256  # nodes of a graph to which an update of all elements is added
_CALLED: Final = frozenset({Ops.FUNCTION, Ops.GETTUPLE})
_MOST_LOST: Final = 64  # values whose lost graphs are remembered, for the warning


_added = itertools.count(1)
# BUFFER -> what its elements were computed from; the newest last.
_origins: weakref.WeakKeyDictionary[UOp, Traced] = weakref.WeakKeyDictionary()
# BUFFER -> what its elements were computed from, where that graph is not kept any more; the newest last. What was
# overwritten since is in the second set: a gradient of what it holds now misses nothing, if it goes another way.
_lost: weakref.WeakKeyDictionary[UOp, tuple[weakref.WeakSet[UOp], weakref.WeakSet[UOp]]] = weakref.WeakKeyDictionary()
# Writes of parameters, computed from their own gradients: a parameter that was updated is a parameter.
_steps: weakref.WeakSet[UOp] = weakref.WeakSet()
atexit.register(_origins.clear)  # nodes must not outlive the modules that their removal needs
atexit.register(_lost.clear)
atexit.register(_steps.clear)


_P = ParamSpec("_P")
_R = TypeVar("_R")
_lock = threading.RLock()
renew_in_child(sys.modules[__name__], "_lock")


def _one_at_a_time(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let one thread at a time look at what is kept, and change it."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _lock:
            return function(*args, **kwargs)

    return call


def has_origin(tensor: Tensor, is_read: bool) -> bool:
    """Return whether the graph of a tensor that gets its value is kept: floats of one device, a number or read."""
    u = tensor.uop
    if not dtypes.is_float(u.dtype) or not isinstance(u.device, str):
        return False
    return all(type(n) is int and (is_read or n == 1) for n in u.shape)


@_one_at_a_time
def known_origins() -> dict[UOp, Traced]:
    """Return what is known now: of storage that is about to be written, what it held before."""
    return dict(_origins.items())


@_one_at_a_time
def remember_origins(
    computed: Iterable[tuple[UOp, UOp]], becomes: Mapping[UOp, UOp], former: Mapping[UOp, Traced], is_read: bool
) -> None:
    """Note what values were computed from.

    Args:
        computed: The nodes that were computed, and those that show their values.
        becomes: What nodes of the schedule have become.
        former: What was known before it ran.
        is_read: Whether the values are wanted in Python.
    """
    done = _Done(becomes, former, is_read)
    for before, now in computed:
        _remember(before, now, becomes, done)


class _Done:
    """What a schedule has written, and how nodes are said by storage as it is now.

    Args:
        becomes: What nodes have become.
        former: What the content of storage was computed from before.
        is_read: Whether the values are wanted in Python.
    """

    def __init__(self, becomes: Mapping[UOp, UOp], former: Mapping[UOp, Traced], is_read: bool) -> None:
        self.written = [u for u in becomes if u.op is Ops.AFTER]
        earlier = {u.src[0] for u in self.written}
        # Each storage after its last write, which is what it holds now.
        self.last = {u: becomes[u] for u in self.written if u not in earlier}
        self.storages = {u.without_after for u in self.written}
        self.former, self.is_read = former, is_read
        self.noted: set[UOp] = set()  # AFTERs of which it was noted what they left

    def said(self, root: UOp) -> tuple[UOp | None, set[UOp]]:
        """Return an expression by storage as it is now, or None if there is none; and what it read before."""
        nodes = root.toposort(lambda u: u not in self.last, enter_calls=False)
        reads = {u for u in nodes if u.op is Ops.BUFFER}
        replaced = {u: now for u, now in self.last.items() if root.footprint & u.footprint_bit}
        is_known = not any(u.op is Ops.AFTER for u in nodes)  # a state between two writes is gone
        for storage in reads & self.storages:
            before = self.former.get(storage)
            if before is None or not before.is_exact or not self.storages.isdisjoint(before.nodes):
                is_known = False
            else:
                replaced[storage] = before.value.reshape(storage.shape)
        if not is_known:
            return None, reads
        return root.substitute(replaced, walk=True) if replaced else root, reads


def _remember(before: UOp, now: UOp, becomes: Mapping[UOp, UOp], done: _Done) -> None:
    buffer = buffer_under(now)
    if buffer is None:
        return
    part: list[UOp] = []  # movement nodes between the storage and what was stored
    if buffer.numel() != 1 and not _is_whole(now):
        found = _under_views(before, now, buffer, becomes)
        if found is None:
            return
        before, part = found
    value, reads = done.said(before)
    if value is None:
        _note_lost(buffer, undetached(before), reads & done.storages)
        return
    if done.last:
        nodes = before.toposort(enter_calls=False)  # the kernels of a FUNCTION write storage of their own
        # A parameter, say, that was updated in place is a parameter.
        updated = buffer if not done.is_read and _is_update(storage_under(before)) else None
        for write in nodes:
            if write in done.last and write not in done.noted and dtypes.is_float(write.dtype):
                done.noted.add(write)
                if write.without_after is not updated:
                    _note_content(write, done)
    if part:
        _keep(buffer, Traced(without_chain(part, value), is_stored=True))  # nobody shows the rest
    elif buffer_under(value) is not buffer:  # else it is storage, whose content was noted
        data = data_under(value)
        _keep_unless_data(buffer, Traced(value), None if data is None else data[1:])


def _under_views(before: UOp, now: UOp, buffer: UOp, becomes: Mapping[UOp, UOp]) -> tuple[UOp, list[UOp]] | None:
    """Return what was stored of a value that is shown through views, and the views that are left; None if unknown.

    What was stored is the value under the views; a DETACH among them holds for this tensor only.
    """
    base = storage_under(before)
    stored = becomes.get(base)
    if stored is None and base.op in _CALLED and base.shape == (buffer.numel(),):
        stored = buffer  # storage of a FUNCTION is no node outside of it
    if stored is not None and _is_whole(stored) and rebase(before, base, stored) is now:
        return base, []
    part = view_chain(now, buffer) if base.op in _CALLED else None
    if part is None or any(node.op in {Ops.EXPAND, Ops.PAD} for node in part):
        return None
    return before, part


def _keep_unless_data(buffer: UOp, origin: Traced, data: list[UOp] | None) -> None:
    """Note what storage was computed from; if it is a copy of data, only if somebody shows what it is a copy of.

    Args:
        buffer: The BUFFER.
        origin: What it was computed from.
        data: The nodes of which it is a copy, None if it was computed.
    """
    if data is None:
        _keep(buffer, origin)
    elif _is_shown({*data}):
        _keep(buffer, Traced(origin.value, is_stored=True))


def _is_shown(nodes: set[UOp]) -> bool:
    """Return whether a live tensor shows one of the nodes, or there is more to know of them."""
    if any(u.op is Ops.BUFFER and (u in _origins or aliases_of(u)) for u in nodes):
        return True
    return any(storage_under(t.uop) in nodes for t in unsettled_tensors())


def _is_variable(u: UOp) -> bool:
    """Return whether a node may be what a gradient is asked for, and is no result of others."""
    return dtypes.is_float(u.dtype) and (u.op is Ops.BUFFER or is_own_constant(u))


def _note_content(write: UOp, done: _Done) -> None:
    """Note what the content of storage was computed from, after the last write to it.

    Args:
        write: The AFTER.
        done: What was written.
    """
    storage, content = write.without_after, _contents(write)
    if not _steps.isdisjoint(_states(write)):
        if storage in done.former:  # no parameter at first
            _note_lost(storage, done.former[storage].nodes, ())
        return
    if content is not None:
        value = done.said(content.src[0])[0]
        if value is None:
            return  # an update of a parameter, say: what it was computed from is overwritten, too
        origin, data = Traced(content.replace(src=(value,))), data_under(value)
        if data is not None or any(map(_is_variable, origin.nodes)):
            _keep_unless_data(storage, origin, data)
        return
    left = _left_in(write, done)
    if left is not None:
        if storage in done.former or any(map(_is_variable, left.nodes)):
            _keep(storage, left, is_part=True)
        return
    nodes = write.toposort(lambda u: u not in done.last or u is write, enter_calls=False)
    read = {u for u in nodes if u.op is Ops.BUFFER and u is not storage}
    below = undetached(write) - {storage}
    if storage in done.former:
        below |= done.former[storage].nodes - {storage}
    is_step = not done.storages.isdisjoint(read)  # it reads what was updated beside it, as a step does
    if is_step:
        below &= {u.without_after for u in done.written if u in _steps}
    if any(map(_is_variable, below)):
        _note_lost(storage, below, below if is_step else ())


def _left_in(write: UOp, done: _Done) -> Traced | None:
    """Return what storage holds after writes to parts of it; None if that cannot be said.

    What it held before, where that is not known, is a constant: then no gradient may depend on it.
    """
    storage, states = write.without_after, _states(write)
    before, most = done.former.get(storage), _LARGEST_UPDATED if any(map(_is_update, states)) else _LARGEST
    if before is not None and (len(before.nodes) > most or not done.storages.isdisjoint(before.nodes)):
        return None
    if any(e.op is not Ops.STORE or e.arg not in {None, Ops.ADD} for state in states for e in state.src[1:]):
        return None
    known = storage.const_like(0) if before is None else before.value.reshape(storage.shape)
    is_exact = before is not None and before.is_exact
    is_said = True

    def stored(value: UOp) -> UOp:
        nonlocal is_said, is_exact
        place, earlier = own_constant(state.src[0].const_like(0)), state.src[0]
        if is_exact or is_linear(value, earlier):
            value = value.substitute({earlier: place}, walk=True)
        said = done.said(value)[0]
        is_said = is_said and said is not None
        return value if said is None else said.substitute({place: known}, walk=True)

    for state in reversed(states):
        known = contents_after(state, known, stored)
        is_exact = is_exact or _contents(state) is not None
    return Traced(known, is_stored=True, is_exact=is_exact) if is_said else None


def _keep(buffer: UOp, origin: Traced, is_part: bool = False) -> None:
    if not is_part:
        _lost.pop(buffer, None)
    _origins.pop(buffer, None)
    _origins[buffer] = origin
    if next(_added) % _LOOK_EVERY == 0 or buffer.numel() * buffer.dtype.itemsize >= _LARGE:
        _bound_storage()
    while len(_origins) > _MOST:
        _lose(next(iter(_origins.keys())))


def _contents(write: UOp) -> UOp | None:
    """Return what a write leaves in storage that it fills as a whole, without reading it; None for other writes."""
    base, *effects = write.src
    if len(effects) != 1 or effects[0].op is not Ops.STORE:
        return None
    storage, (target, value) = write.without_after, effects[0].src[:2]
    while target.op is Ops.RESHAPE:
        target = target.src[0]
    is_whole = storage.op is Ops.BUFFER and target in (base, storage)
    if not is_whole or any(u.without_after is storage for u in value.toposort(enter_calls=False)):
        return None
    # A copy is a variable of its own: another copy of the same value has another gradient.
    return UOp(Ops.CONTIGUOUS, value.dtype, (value.reshape(storage.shape),), tag=storage.arg.slot)


def _states(write: UOp) -> list[UOp]:
    """Return storage after a write, and its states before that, the last first."""
    states = [write]
    while states[-1].src[0].op is Ops.AFTER:
        states.append(states[-1].src[0])
    return states


def _is_update(u: UOp) -> bool:
    """Return whether a node is storage of which a write replaced all elements by what it computed from them."""
    return u.op is Ops.AFTER and _contents(u) is None and fills(u)


def _is_whole(u: UOp) -> bool:
    """Return whether a node is the elements of a BUFFER, all of them and in order."""
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u.op is Ops.BUFFER


def _lose(buffer: UOp, overwritten: Container[UOp] = ()) -> None:
    """Forget a graph, but for what it was computed from; some BUFFERs of it may be overwritten."""
    origin = _origins.pop(buffer, None)
    if origin is not None:
        _note_lost(buffer, origin.nodes, overwritten)


def _read_before(buffer: UOp, overwritten: Set[UOp]) -> None:
    """Say a graph that reads storage which is overwritten by what that was computed from; forget it if that is unknown.

    Args:
        buffer: The BUFFER of which the graph is.
        overwritten: The BUFFERs that are overwritten.
    """
    origin = _origins[buffer]
    held = {u: _origins.get(u) for u in origin.reads if u in overwritten}
    known = {u: o.value.reshape(u.shape) for u, o in held.items() if o is not None and o.is_exact}
    if len(known) == len(held) and len(origin.nodes) <= _LARGEST:
        said = origin.with_moved(known)
        if len(said.nodes) <= _LARGEST and overwritten.isdisjoint(said.reads):
            _origins[buffer] = said
            return
    _lose(buffer, overwritten)


def _note_lost(buffer: UOp, nodes: Collection[UOp], overwritten: Container[UOp]) -> None:
    """Note that the graph of a value is not kept: of its nodes, only what gradients may be asked for later."""
    below, stack = set(nodes), [u for u in nodes if u in _origins]
    while stack:
        more = _origins[stack.pop()].nodes - below
        below |= more
        stack.extend(u for u in more if u in _origins)
    shown = {u for t in unsettled_tensors() for u in (t.uop, storage_under(t.uop)) if u in below}
    asked = {u for u in shown.union(filter(_is_variable, below)) if not is_marked(u)}
    gone = {u for u in asked if u in overwritten}
    _lost[buffer] = weakref.WeakSet(asked - gone), weakref.WeakSet(gone)
    while len(_lost) > _MOST_LOST:
        _lost.pop(next(iter(_lost.keys())), None)


def _bound_storage() -> None:
    """Forget the older graphs where all of them together keep too much storage alive."""
    kept: set[UOp] = set()
    nbytes = 0
    for count, (buffer, origin) in enumerate(reversed(list(_origins.items()))):
        more = set(origin.reads) - kept
        kept |= more
        nbytes += sum(int(u.numel()) * u.dtype.itemsize for u in more)
        if nbytes > _MOST_BYTES and (count or buffer.numel() > 1):
            _lose(buffer)


@_one_at_a_time
def is_step(tensor: Tensor, value: UOp) -> bool:
    """Return whether what a parameter becomes was computed from the gradient of the parameter.

    What else was computed from it, as all that reads a parameter which had a step, is none. A tensor that is the result
    of others is no parameter, unless the gradient is its ``grad``.
    """
    if tensor.grad is not None and _reads(value, tensor.grad.uop):
        return True
    buffer = buffer_under(tensor.uop)
    targets = [t for ref in gradients_in(value, _steps) if (t := ref()) is not None]
    is_own = any(t is tensor or (buffer is not None and buffer_under(t.uop) is buffer) for t in targets)
    return is_own and _is_parameter(tensor.uop)


def _reads(value: UOp, gradient: UOp) -> bool:
    bit = gradient.footprint_bit

    def is_entered(u: UOp) -> bool:
        return u is not gradient and bool(u.footprint & bit) and u not in _steps

    return value is gradient or any(gradient in u.src for u in value.toposort(is_entered, enter_calls=False))


def _is_parameter(u: UOp) -> bool:
    """Return whether a node shows data, also after steps, and is no result of others."""
    base = storage_under(u)
    if base in _steps:
        return True
    own = {base, base.without_after}
    others = base.toposort(enter_calls=False).keys() - own
    return own.isdisjoint(_origins) and not any(map(_is_variable, others))


@_one_at_a_time
def note_written(write: UOp, value: UOp, is_step: bool) -> None:
    """Note that storage was written with a value, and whether that was the step of a parameter."""
    if is_step:
        _steps.add(write)
    mark_storage(write.without_after, () if is_step else gradients_in(value, _steps))


@_one_at_a_time
def forget_readers(is_overwritten: Callable[[UOp], bool], is_pending: bool = False) -> None:
    """Forget the graphs that read, or led to, BUFFERs that are about to be overwritten.

    Args:
        is_overwritten: Whether a BUFFER is.
        is_pending: Whether the writes are part of graphs, in which the BUFFERs stand for what they hold until then.
    """
    if not _origins and not _lost:
        return  # walking through weak dictionaries takes its time, even if they are empty
    for buffer, origin in list(_origins.items()):
        if not is_overwritten(buffer) and (gone := {u for u in origin.reads if is_overwritten(u)}):
            _read_before(buffer, gone)
    for known in () if is_pending else (_origins, _lost):
        for buffer in [b for b in list(known.keys()) if is_overwritten(b)]:
            known.pop(buffer)
    for current, earlier in list(_lost.values()):
        for u in [u for u in current if u.op is Ops.BUFFER and is_overwritten(u)]:
            current.remove(u)  # what was lost read a state of it that no tensor shows any more
            earlier.add(u)


@_one_at_a_time
def follow(becomes: Mapping[UOp, UOp]) -> None:
    """Say the kept graphs by what nodes have become; forget those of what was overwritten."""
    if not _origins and not _lost:
        return
    written = {u.without_after for u in becomes if u.op is Ops.AFTER}
    for buffer in [b for b, o in _origins.items() if b not in written and not written.isdisjoint(o.reads)]:
        _read_before(buffer, written)
    for storage in written:
        _origins.pop(storage, None)
    for state in becomes:
        if state.op is Ops.AFTER and fills(state) and not _is_update(state):
            _lost.pop(state.without_after, None)
    moved = {u: now for u, now in becomes.items() if u.op not in {Ops.AFTER, Ops.BUFFER} and now is not u}
    mask = 0
    for node in moved:
        mask |= node.footprint_bit
    stored: dict[UOp, UOp] = {}
    for buffer, origin in list(_origins.items()):
        if origin.value.footprint & mask and not moved.keys().isdisjoint(origin.nodes):
            here = {u: moved[u] for u in moved.keys() & origin.nodes if data_under(u) or _is_whole(moved[u])}
            _origins[buffer] = origin.with_moved(here)
            stored |= here
    for node, now in stored.items():
        # Its graph is kept already, as a part of another: only now it is that of storage.
        base = buffer_under(now)
        if base is not None and base not in _origins and _is_whole(now) and dtypes.is_float(node.dtype):
            data = data_under(node)
            origin = Traced(node.substitute({u: v for u, v in stored.items() if u is not node}, walk=True))
            _keep_unless_data(base, origin, None if data is None else data[1:])


@_one_at_a_time
def with_origins(root: Tensor, *others: Tensor) -> list[UOp]:
    """Return the nodes of tensors; in the graph of ``root``, storage of known origin is what it was computed from.

    Warns:
        RuntimeWarning: The origin of a value is forgotten, and one of the others was in it and is not in the graph; or
            it was written to a part of storage in the graph.
    """
    nodes = [t.uop for t in (root, *others)]
    if _origins and any(u.op is Ops.BUFFER and u in _origins for u in nodes[0].toposort(enter_calls=False)):
        retraced = Retraced(_origins.get)
        nodes = [retraced.add(nodes[0]), *map(retraced.follow, nodes[1:])]
    if _lost:
        _warn_of_lost(nodes, others)
    return nodes


def _warn_of_lost(nodes: Sequence[UOp], others: Sequence[Tensor]) -> None:
    graph = undetached(nodes[0])
    # What is read from storage, while gradients go through the expression that is known of it, is of the graph, too.
    graph |= {u.src[0].without_after for u in graph if u.op is Ops.DETACH and len(u.src) > 1}
    for buffer in [b for b in list(_lost.keys()) if b in graph]:
        current, gone = _lost.pop(buffer)  # one warning is enough
        starved = [
            t
            for t, u in zip(others, nodes[1:], strict=True)
            for base in (storage_under(u).without_after,)
            if not current.isdisjoint((u, base)) or (u not in graph and not gone.isdisjoint((u, base)))
        ]
        if starved:
            what = f"a value of {buffer.numel()} elements was read before, and its graph is not kept any more, so "
            shapes = ", ".join(sorted({shown(t.shape) for t in starved})[:4])
            hint = "read it after backward, before what it was computed from is overwritten; or use its detach()"
            text = error_text("backward", f"{what}tensors of shape {shapes} get no gradient through it", hint=hint)
            warnings.warn(text, RuntimeWarning, stacklevel=2)
