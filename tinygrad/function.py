"""``@function``: a Python function of tensors becomes one node of the graph.

In:   a function, and a call of it.
Out:  GETTUPLE(FUNCTION(TUPLE(results), inputs...)): the body refers to input i by PARAM slot i.
Why:  TinyJit replays work; this abstracts it. The body runs on every call, with devices switched off, and only builds
      graph; the scheduler may inline it or compile it as a unit, and its gradient is a call again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar

from tinygrad.boundary import explain_methods
from tinygrad.dtype import DType, dtypes
from tinygrad.errors import error_text, shown
from tinygrad.helpers import Context, slots_of
from tinygrad.mixin.random_state import is_random_state
from tinygrad.repointing import guarded_writes
from tinygrad.tensor import Tensor, all_tensors
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, graph_rewrite

P = ParamSpec("P")
R = TypeVar("R")


class _Trace:
    """What one run of the body has found: its inputs, in the order of their slots."""

    def __init__(self, inputs: list[UOp], first_new_slot: int) -> None:
        self.inputs = inputs
        self.slots = {node: slot for slot, node in enumerate(inputs)}
        self.explicit = len(inputs)
        self.first_new_slot = first_new_slot

    def param(self, node: UOp) -> UOp:
        """Return the placeholder of an input, a new slot if it is not known yet."""
        if node not in self.slots:
            self.slots[node] = len(self.inputs)
            self.inputs.append(node)
        return node.param_like(self.slots[node])

    def is_implicit(self, buffer: UOp) -> bool:
        """Return whether storage comes from outside: it existed before the body ran, and is not the random state.

        Storage that already holds numbers comes from outside too: those of a list or an array in the body.
        """
        return (self.is_older(buffer) or buffer.is_realized) and not is_random_state(buffer)

    def is_older(self, buffer: UOp) -> bool:
        """Return whether storage existed before the body ran."""
        return bool(buffer.arg.slot < self.first_new_slot)


def _capture_buffer(ctx: _Trace, x: UOp) -> UOp | None:
    return ctx.param(x) if ctx.is_implicit(x) else None


pm_ctx = PatternMatcher([
    # storage that the body reaches by itself (weights in a closure) becomes an argument
    (UPat(Ops.BUFFER, name="x"), _capture_buffer),
])


_LEAVES = (int, float, str, bytes, type(None), DType)


def tensors_in(root: Any) -> list[Tensor | UOp]:
    """Return the tensors and nodes inside of nested lists, tuples, dicts and objects, each once, in order."""
    found: list[Tensor | UOp] = []
    seen: set[int] = set()
    stack = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, (Tensor, UOp)):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            stack.extend(reversed(list(item.values())))
        elif not isinstance(item, (type, *_LEAVES)):
            stack.extend(reversed(list(getattr(item, "__dict__", {}).values())))
            if not type(item).__module__.startswith("tinygrad."):  # a TinyJit, say, holds graphs of its own
                stack.extend(reversed([getattr(item, name) for name in slots_of(type(item)) if hasattr(item, name)]))
    return found


def _body_of(result: Any) -> UOp:
    if isinstance(result, Tensor):
        return UOp.maketuple(result.uop)
    if isinstance(result, tuple) and result and all(isinstance(t, Tensor) for t in result):
        return UOp.maketuple(*(t.uop for t in result))
    inside = ", ".join(type(t).__name__ for t in result) if isinstance(result, tuple) else ""
    kinds = f"tuple of ({inside})" if isinstance(result, tuple) else type(result).__name__
    raise RuntimeError(f"function return type must be a Tensor or a tuple of Tensors, got {kinds}")


def _used_inputs(body: UOp, inputs: list[UOp]) -> list[UOp]:
    """Return the inputs that the body reads: what it does not read need not be computed for the call."""
    known = set(inputs)
    inside = body.toposort(gate=lambda u: u not in known, enter_calls=False)
    read = {source for u in inside for source in u.src}
    return [u for u in inputs if u in read]


def _views_of_storage(body: UOp, trace: _Trace) -> dict[UOp, UOp]:
    """Return placeholders for storage from outside in the shape in which a live tensor holds it.

    The gradient of such a tensor is looked up by its own node, so that node has to be the argument.
    """
    inside = body.toposort(enter_calls=False)
    held: Iterable[UOp] = (t.uop for ref in list(all_tensors) if (t := ref()) is not None)
    views = dict.fromkeys(u for u in held if u in inside and u.op is Ops.RESHAPE and u.has_buffer_identity())
    return {u: trace.param(u) for u in views if trace.is_implicit(u.base)}


def _written_states(body: UOp, trace: _Trace) -> list[UOp]:
    """Return the states that the body has brought storage from outside into.

    Everybody who shows that storage shows them too, so they are arguments: the writes stand outside of the call, where
    one run carries them out for the call and for all others.
    """
    inside = body.toposort(gate=lambda u: u not in trace.slots, enter_calls=False)
    return [
        u
        for u in inside
        if u.op is Ops.AFTER and u.without_after.op is Ops.BUFFER and trace.is_implicit(u.without_after)
        if u not in trace.slots
    ]


def _random_keys(body: UOp) -> list[UOp]:
    """Return the keys of the random numbers in the body: nodes that a run replaces by storage, as all others see it.

    They are arguments: a run that computes the call draws from the state, and its gradient, or another of its results,
    may be computed by another run. Inside of the call each would draw numbers of its own.
    """
    inside = body.toposort(gate=lambda u: not _is_random_key(u), enter_calls=False)
    return list(dict.fromkeys(source for u in inside for source in u.src if _is_random_key(source)))


def _is_random_key(u: UOp) -> bool:
    return u.op is Ops.AFTER and is_random_state(u.without_after)


class _function(Generic[P, R]):  # noqa: N801  name of the interface
    """A function whose calls are single nodes; see ``function``."""

    def __init__(
        self,
        fxn: Callable[P, R],
        precompile: bool = False,
        precompile_backward: bool = False,
        allow_implicit: bool = False,
        grad_fxn: Callable[..., Any] | None = None,
    ) -> None:
        self.fxn, self.grad_fxn = fxn, grad_fxn
        self.precompile, self.precompile_backward, self.allow_implicit = precompile, precompile_backward, allow_implicit
        functools.update_wrapper(self, fxn)

    def __get__(self, obj: Any, objtype: Any = None) -> Any:
        return self if obj is None else functools.partial(self.__call__, obj)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Trace the function on these arguments and return its result as the result of one call node.

        Raises:
            AssertionError: The body asks for values (``numpy``, ``item``, ``realize``): devices are switched off in it.
            RuntimeError: The body uses storage that is no argument, or returns something else than tensors.
        """
        nodes = (x.uop if isinstance(x, Tensor) else x for x in tensors_in((args, kwargs)))
        given = list(dict.fromkeys(u for u in nodes if u.device is not None and not u.is_virtual))
        marker = UOp.new_buffer("NULL", 1, dtypes.uint8).arg.slot
        with Context(ALLOW_DEVICE_USAGE=0), guarded_writes(self._write_guard(given, marker)):
            result = self.fxn(*args, **kwargs)
        body = _body_of(result)
        # A gradient that is given answers for all inputs, in order.
        inputs = _used_inputs(body, given) if self.grad_fxn is None else given
        trace = _Trace(inputs, marker)
        replaced = {u: u.param_like(slot) for slot, u in enumerate(inputs)}
        replaced |= {u: trace.param(u) for u in _written_states(body, trace)}
        body = body.substitute(replaced, name="function inputs")
        views = _views_of_storage(body, trace)
        body = graph_rewrite(body.substitute(views) if views else body, pm_ctx, ctx=trace, name="implicit inputs")
        self._check_implicit(trace, given)
        keys = {u: trace.param(u) for u in _random_keys(body)}
        body = body.substitute(keys, name="random keys") if keys else body
        call = body.call(
            *trace.inputs,
            grad_fxn=self.grad_fxn,
            name=self._name,
            precompile=self.precompile,
            precompile_backward=self.precompile_backward,
        )
        results = tuple(Tensor(call.gettuple(i)) for i in range(len(body.src)))
        traced: Any = results if isinstance(result, tuple) else results[0]
        same_form: R = traced
        return same_form

    @property
    def _name(self) -> str:
        return getattr(self.fxn, "__qualname__", type(self.fxn).__name__)

    def _write_guard(self, given: list[UOp], first_new_slot: int) -> Callable[[UOp], None]:
        """Return a function that refuses writes to storage that is no argument, whether or not the result reads it."""
        known = {u.base.without_after for u in given}

        def check(buffer: UOp) -> None:
            is_older = buffer.arg.slot < first_new_slot
            if is_older and buffer not in known and not self.allow_implicit and not is_random_state(buffer):
                raise self._implicit([buffer])

        return check

    def _check_implicit(self, trace: _Trace, given: list[UOp]) -> None:
        known = {u.base.without_after for u in given}
        added = trace.inputs[trace.explicit :]
        implicit = [u for u in added if u.without_after not in known and trace.is_older(u.base.without_after)]
        if implicit and not self.allow_implicit:
            raise self._implicit(implicit)

    def _implicit(self, buffers: list[UOp]) -> RuntimeError:
        return RuntimeError(
            error_text(
                f"function {self._name}",
                f"{len(buffers)} implicit buffer(s) used in the body",
                {f"buffer {i}": u for i, u in enumerate(buffers)},
                rule="a function reads and writes its arguments only",
                hint="pass the tensors (or the object that holds them), or use @function(allow_implicit=True)",
            )
        )


explain_methods(_function, ("__call__",), labels=False, counts=False)


def function(
    fxn: Callable[..., Any] | None = None,
    *,
    precompile: bool = False,
    precompile_backward: bool = False,
    allow_implicit: bool = False,
    grad_fxn: Callable[..., Any] | None = None,
) -> Any:
    """Turn a function of tensors into one whose calls are single nodes of the graph; with or without arguments.

    Writes in the body to its arguments (or, if that is allowed, to other storage) happen once for each call, in the
    order of the program, whether or not the result is asked for or shows them. Where other storage is not allowed, the
    write is refused, and so is reading it.

    Args:
        fxn: Function or method that returns a Tensor or a tuple of Tensors. All tensors with a device inside of its
            arguments (lists, dicts, objects) are its inputs.
        precompile: Compile the body as a unit of its own.
        precompile_backward: The same for its gradient.
        allow_implicit: Whether storage that is no argument, such as weights in a closure, may be read and written.
        grad_fxn: ``grad_fxn(grad[, ...], call=node)`` returning one gradient (or None) per input, instead of the
            derivative of the body.

    Example:
        >>> @function
        ... def double(x: Tensor) -> Tensor:
        ...     return x * 2
        >>> double(Tensor([1, 2])).tolist()
        [2, 4]
    """
    for called in (fxn, grad_fxn):
        if called is not None and not callable(called):
            raise TypeError(f"function: {shown(called)} of type {type(called).__name__} is not callable")

    def make(wrapped: Callable[P, R]) -> _function[P, R]:
        return _function(wrapped, precompile, precompile_backward, allow_implicit, grad_fxn)

    return make if fxn is None else make(fxn)
