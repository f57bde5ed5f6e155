"""Clean up a tensor graph before kernels are cut from it.

In:   a SINK over tensor nodes, possibly with FUNCTIONs, DETACH and other marks of the frontend.
Out:  the same values without FUNCTION, GETTUPLE, DETACH, CONTIGUOUS_BACKWARD, NOOP; chains of RESHAPE merged; copies
      moved below views where the source device runs no kernels; very long reductions split in two.
Why:  what follows meets only nodes that compute, move or store something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.split import split_reduce
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import Placement, UOp
from tinygrad.uop.rewrite import substitute
from tinygrad.uop.views import is_own_copy, is_own_value, own_copy

# Devices that hold bytes but run no kernels.
STORAGE_DEVICES = ("NPY", "DISK", "TINYFS")
# What goes to them passes through the memory of the host anyway.
HOST = "CPU"


def runs_kernels(device: str | tuple[str, ...] | None) -> bool:
    """Return whether kernels can be compiled for a device name."""
    return not (isinstance(device, str) and device.split(":")[0] in STORAGE_DEVICES)


def inline_functions(sink: UOp, follow: dict[Any, UOp] | None = None) -> UOp:
    """Replace every result of a FUNCTION by the body's value, with PARAMs replaced by the arguments.

    What of the graph's results would then be no more than a view of something else is stored apart.
    """
    while sink.op_in_backward_slice_with_self(Ops.FUNCTION):
        bodies: dict[UOp, UOp] = {}

        def inline(u: UOp, src: tuple[UOp, ...], bodies: dict[UOp, UOp] = bodies) -> UOp:
            if u.op is Ops.GETTUPLE and src[0].op is Ops.FUNCTION:
                call = src[0]
                if call not in bodies:
                    params = [p for p in call.src[0].toposort(enter_calls=False) if _is_argument(p)]
                    bodies[call] = substitute(call.src[0], {p: call.src[1 + p.arg.slot] for p in params})
                position: int = u.arg
                value = bodies[call].src[position]
                # A body compiled as a unit of its own ends in storage, so that nothing is fused across its border.
                return value.contiguous() if call.arg.precompile else value
            return u if src == u.src else u.replace(src=src)

        inlined = rebuild(sink, inline, follow)
        if inlined is sink:
            break  # what is left is not used as a value
        sink = inlined
    return _store_own_values(sink, follow)


def _store_own_values(sink: UOp, follow: dict[Any, UOp] | None) -> UOp:
    """Give results that are values of their own, but computed by views alone, storage of their own."""
    apart: set[UOp] = set()
    for u in sink.src:
        while u.op in GroupOp.Movement:
            u = u.src[0]
        x = u
        while x.op in GroupOp.Movement or x.op is Ops.DETACH or is_own_value(x):
            x = x.src[0]
        if is_own_value(u) and (is_stored(x) or x in sink.src):
            apart.add(u)
    if not apart:
        return sink

    def store(u: UOp, src: tuple[UOp, ...]) -> UOp:
        return own_copy(src[0]) if u in apart else u if src == u.src else u.replace(src=src)

    return rebuild(sink, store, follow)


def _is_argument(u: UOp) -> bool:
    return u.op is Ops.PARAM and not u.is_variable


Rule = Callable[[UOp, tuple[UOp, ...]], UOp]


def rebuild(root: UOp, rule: Rule, follow: dict[Any, UOp] | None = None) -> UOp:
    """Rebuild a graph bottom-up: ``rule(node, new sources)`` gives each node's replacement. Call bodies are kept.

    Args:
        root: The graph.
        rule: The replacement of one node.
        follow: Map whose values are nodes of the graph; they are replaced by what has become of them.
    """
    new: dict[UOp, UOp] = {}
    for u in root.toposort(enter_calls=False):
        if u.op is Ops.CALL or u.op is Ops.FUNCTION:
            src = (u.src[0], *(new[s] for s in u.src[1:]))
        else:
            src = tuple([new[s] for s in u.src])
        new[u] = rule(u, src)
    if follow is not None:
        follow.update({original: new[now] for original, now in follow.items() if now in new})
    return new[root]


def _copy_below_views(copy: UOp, src: tuple[UOp, ...]) -> UOp:
    # A storage device cannot run the kernel that would gather a view: copy what lies under it, then view.
    x = src[0]
    if runs_kernels(x.device) or x.op not in GroupOp.Movement or x.contiguous_view() is not None:
        return copy if src == copy.src else copy.replace(src=src)
    inner = _copy_below_views(UOp(Ops.COPY, copy.dtype, (x.src[0],), copy.arg), (x.src[0],))
    return x.replace(src=(inner, *x.src[1:]))


def _computable(value: UOp, target: Any) -> UOp:
    """Return a value that goes to a device, computed by the host where neither end of the way can."""
    given = value.device is not None and (runs_kernels(value.device) or value.contiguous_view() is not None)
    if given or runs_kernels(target):
        return value
    copy = UOp(Ops.COPY, value.dtype, (value,), HOST)
    return copy if value.device is None else _copy_below_views(copy, (value,))


def _relu_of(where: UOp) -> UOp | None:
    # WHERE(m == 0, m, x) with m = MAX(x, 0) is m: relu is written so that its gradient is 0 at 0 and 1 at NaN.
    cond, m, x = where.src
    if m.op is Ops.MAX and cond.op is Ops.CMPEQ and cond.src[0] is m and x in m.src:
        other = m.src[1] if m.src[0] is x else m.src[0]
        if all(limit.base.op is Ops.CONST and limit.base.arg == 0 for limit in (cond.src[1], other)):
            return m
    return None


def clean(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return the tidied form of one node whose sources are tidy."""
    if _shows_its_source(u, src):
        return src[0]
    if u.op is Ops.RESHAPE:
        x = src[0].src[0] if src[0].op is Ops.RESHAPE else src[0]
        return x if x.shape == u.shape else x._mop(Ops.RESHAPE, u.marg)
    if u.op is Ops.COPY:
        return _copy_below_views(u, (_computable(src[0], u.arg),))
    if u.op is Ops.STORE and len(src) > 1:
        src = (src[0], _computable(src[1], src[0].device), *src[2:])
    made = u if src == u.src else u.replace(src=src)
    if u.op is Ops.REDUCE and len(src) == 1:
        return split_reduce(made)
    if u.op is Ops.WHERE:
        relu = _relu_of(made)
        return made if relu is None else relu
    return made


def _shows_its_source(u: UOp, src: tuple[UOp, ...]) -> bool:
    """Return whether a node has the value of its first source, in the same place."""
    match u.op:
        case Ops.DETACH | Ops.CONTIGUOUS_BACKWARD | Ops.NOOP:
            return True
        case Ops.CONTIGUOUS:
            if is_own_copy(u):
                return False
            x = src[0]
            has_storage = x.op in (Ops.CONTIGUOUS, Ops.COPY) or x.has_buffer_identity(after_ok=True)
            return has_storage or x.device is None
        case Ops.EXPAND:
            return src[0].shape == u.shape
        case Ops.PAD | Ops.SHRINK:
            return src[0].shape == u.shape and all(before == 0 for before, _ in u.marg)
        case Ops.PERMUTE:
            return bool(u.arg == tuple(range(len(u.arg))))
        case Ops.COPY:
            return bool(src[0].device == u.arg)
        case _:
            return False


def prepare(sink: UOp, follow: dict[Any, UOp] | None = None) -> UOp:
    """Return the graph ready for kernels to be cut from it.

    Args:
        sink: The tensor graph.
        follow: Map whose values are nodes of the graph; they are replaced by what has become of them.
    """
    return on_wanted_devices(sink, rebuild(inline_functions(sink, follow), clean, follow))


def on_wanted_devices(before: UOp, after: UOp) -> UOp:
    """Return a rewritten SINK with its results where they were: one that turned out to be constant is wanted there."""
    return after.replace(src=tuple(_placed(old, new) for old, new in zip(before.src, after.src, strict=True)))


def _placed(old: UOp, new: UOp) -> UOp:
    device, axis = old.device, old.axis
    if device is None or new.device is not None:
        return new
    target = Placement(device, axis) if axis is not None and isinstance(device, tuple) else device
    return UOp(Ops.COPY, new.dtype, (_computable(new, target),), target)


def numel(u: UOp) -> int:
    """Return the number of elements, with symbolic sizes at their maximum."""
    return prod(u.max_shape)


def is_stored(u: UOp) -> bool:
    """Return whether a node is storage (or the state of storage after writes)."""
    return u.op in (Ops.BUFFER, Ops.AFTER, Ops.PARAM) and u.dtype is not dtypes.void
