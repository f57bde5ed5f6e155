"""TinyJit: run once, capture once, then replay without Python.

In:   a function of tensors.
Out:  the same function. Its first call runs as usual, the second is captured (its kernels are joined into one list,
      planned, compiled and grouped into device graphs), later calls only swap inputs and replay.
Why:  a training step is hundreds of kernels of a few microseconds each: building its graph again would take longer than
      running it.
"""

from __future__ import annotations

import copy
import functools
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from tinygrad.boundary import explain_methods
from tinygrad.engine.arguments import Arguments, JitError, Name, label, map_structure
from tinygrad.engine.capture import CapturedJit, Recorder, build_capture
from tinygrad.engine.capturing import capturing
from tinygrad.engine.graph import GraphException, GraphRunner, MultiGraphRunner
from tinygrad.engine.realize import run_linear
from tinygrad.engine.repeat import NOT_REPEATED
from tinygrad.errors import shown
from tinygrad.forking import renew_in_child
from tinygrad.helpers import getenv
from tinygrad.live import live_tensors
from tinygrad.mixin.random_state import random_state, settle_before_capture
from tinygrad.repointing import guarded_writes
from tinygrad.settings import BEAM, JIT, Context
from tinygrad.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

MOST_CAPTURES: Final = 64


class _Entry:
    """How far the calls with one key have come."""

    __slots__ = ("calls", "captured")

    def __init__(self, calls: int = 0, captured: CapturedJit | None = None) -> None:
        self.calls, self.captured = calls, captured

    def __reduce__(self) -> tuple[Any, ...]:
        return _Entry, (self.calls, self.captured)


class TinyJit(Generic[P, R]):
    """Replay a function of tensors from its third call on.

    Call 1 runs the function, call 2 captures what it runs, calls 3 and later replay that on their inputs. Tensors
    among the arguments (inside of lists, tuples, dicts and dataclasses too) are inputs; they must look the same in
    every call. Python values among the arguments select the capture: another value is captured again. Tensors that the
    function reaches in other ways are used where they are, and each call writes to them what the function writes,
    whether or not it returns something that depends on it. A returned tensor keeps its value when the function is
    called again.

    Of a tensor that was not computed before the capture, replays compute the expression. Where the function writes to
    it, call 3 captures again, with the tensor in memory; so does a later call that finds it written to, or computed.

    Args:
        fxn: Function, lambda or method (every object gets captures of its own). It returns None, a tensor, or lists,
            tuples and dicts of them.
        prune: Run kernels that no input changes only once, at the capture.
        recapture: Keep one capture per shape and dtype of the inputs, and copy views and constants (which the function
            must not write to then), instead of raising.

    Attributes:
        fxn: The function.
        cnt: Number of calls.
        prune: As given.
        captured: The capture that was used last, or None.

    Raises:
        JitError: (by calls) An input is a view or a constant, two inputs share storage, an input looks different from
            the capture, one that was copied is written to, values are read during the capture, nothing was computed,
            or something else than tensors is returned.
        RuntimeError: (by calls) One TinyJit runs while another captures.

    Example:
        >>> @TinyJit
        ... def double(x):
        ...     return (x + x).realize()
        >>> [double(Tensor([float(i)])).item() for i in range(4)]
        [0.0, 2.0, 4.0, 6.0]
    """

    # No __dict__: a model that keeps a TinyJit as an attribute must not show captured tensors as its state.
    __slots__ = (
        "__name__", "__qualname__", "__weakref__", "__wrapped__", "_bound", "_entries", "_last", "_lock", "captured",
        "cnt", "fxn", "prune", "recapture",
    )  # fmt: skip

    @overload
    def __new__(cls, fxn: Callable[P, R], *, prune: bool = ..., recapture: bool = ...) -> TinyJit[P, R]: ...
    @overload
    def __new__(cls, fxn: None = None, *, prune: bool = ..., recapture: bool = ...) -> Any: ...
    def __new__(cls, fxn: Callable[P, R] | None = None, *, prune: bool = False, recapture: bool = False) -> Any:
        """Return the jitted function, or a decorator if there is no function yet."""
        if fxn is None:
            return functools.partial(cls, prune=prune, recapture=recapture)
        if not callable(fxn):
            raise TypeError(f"TinyJit: {shown(fxn)} of type {type(fxn).__name__} is not callable")
        return object.__new__(cls)

    def __init__(self, fxn: Callable[P, R], *, prune: bool = False, recapture: bool = False) -> None:
        self.fxn: Callable[P, R] | None = fxn
        self.prune, self.recapture = prune, recapture
        self._setup(0, {}, None)

    def _setup(self, cnt: int, entries: dict[Any, _Entry], captured: CapturedJit | None) -> None:
        self.cnt, self._entries, self.captured = cnt, entries, captured
        self._last: _Entry | None = None  # the one of the last replay
        self._bound: weakref.WeakKeyDictionary[Any, TinyJit[..., R]] = weakref.WeakKeyDictionary()
        self.__wrapped__ = self.fxn
        self.__name__ = getattr(self.fxn, "__name__", type(self.fxn).__name__)
        self.__qualname__ = getattr(self.fxn, "__qualname__", self.__name__)
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        """Return the jitted method of one object; it has captures of its own."""
        if obj is None:
            return self
        with self._lock:
            found = self._bound.get(obj)
            if found is None:
                # The object must not be kept alive by the entry that its own death removes.
                method = _WeakMethod(self.fxn, obj)
                found = self._bound[obj] = TinyJit(method, prune=self.prune, recapture=self.recapture)
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call, capture or replay the function; see the class."""
        if capturing:
            raise RuntimeError(
                f"having TinyJit inside another TinyJit is not supported: {self.__name__} was called while another "
                "function is being captured; call the plain function there (.fxn), or jit only the outer one"
            )
        with self._lock:
            result: R = self._call(args, kwargs)
            return result

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not JIT.get() and self.fxn is not None:
            return _realized(self.fxn(*args, **kwargs))
        if self.captured is not None and self._last is not None:
            again = self.captured.again(args, kwargs)
            if again is not NOT_REPEATED:
                self._last.calls += 1
                self.cnt += 1
                return again
        arguments = Arguments(args, kwargs)
        arguments.realize()
        entry = self._entry(arguments)
        if entry.captured is not None and self._is_replayable(entry.captured, arguments):
            if not arguments.nodes:
                arguments.resolve(self.recapture)
            result = entry.captured(arguments)
            self.captured, self._last = entry.captured, entry
        elif self.fxn is None:
            raise JitError(
                "args mismatch in JIT: this TinyJit was loaded without its function, and has no capture for these "
                "values"
            )
        elif entry.calls == 0:
            result = self._first_call(args, kwargs)
        else:
            result = self._capture(entry, arguments, args, kwargs)
        entry.calls += 1
        self.cnt += 1
        return result

    def _is_replayable(self, captured: CapturedJit, arguments: Arguments) -> bool:
        """Return whether a capture computes what the function would; else what it was wrong about is computed.

        So the next capture finds it in memory, and is right whatever is written there later.
        """
        if not captured.inlined and not captured.is_provisional:
            return True
        captured.settle(arguments.tensors, {})
        outdated = captured.outdated()
        pending = [t for t in outdated if t._is_pending()]
        if pending:
            Tensor.realize(*pending)
        return not outdated and not captured.is_provisional

    def _entry(self, arguments: Arguments) -> _Entry:
        key: Any = arguments.key
        if self.recapture:
            arguments.resolve(copy_views=True)
            key = key, tuple(arguments.names), tuple(arguments.infos)
        found = self._entries.get(key)
        if found is None:
            if len(self._entries) >= MOST_CAPTURES:
                what = "shapes or Python values" if self.recapture else "Python values"
                raise JitError(
                    f"{self.__name__} has been called with {MOST_CAPTURES} different {what} among its arguments, and "
                    "each needs a capture of its own\n  hint  pass numbers that change as Tensors or as bound Variables"
                )
            found = self._entries[key] = _Entry()
        return found

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function. Where it fails on something that was a tensor in a capture, the error says so.

        Raises:
            TypeError: Such a failure, where Python complains about the type of something.
        """
        assert self.fxn is not None
        try:
            with Context(BEAM=0 if getenv("IGNORE_JIT_FIRST_BEAM", 0) else BEAM.get()):
                return _realized(self.fxn(*args, **kwargs))
        except (AttributeError, TypeError) as error:
            captured = [entry.captured for entry in self._entries.values() if entry.captured is not None]
            given: dict[Name, Any] = dict([*enumerate(args), *kwargs.items()])
            tensors = [name for capture in captured for name in capture.expected_names if name in given]
            wrong = next((name for name in tensors if not isinstance(given[name], Tensor)), None)
            if wrong is None:
                raise
            kind = type(given[wrong])
            named = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
            raise TypeError(
                f"{label(wrong)} is of type {named}, and was a Tensor in the capture; {self.__name__} was called with "
                f"it, and failed: {error}\n  hint  pass a Tensor: Tensor(values), made and realized outside"
            ) from error

    def _capture(self, entry: _Entry, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not arguments.nodes:
            arguments.resolve(self.recapture)
        settle_before_capture()
        recorder = Recorder()
        explicit = dict(arguments.var_vals)
        assert self.fxn is not None
        try:
            result = self._record(recorder, arguments, args, kwargs)
            if not any(linear.src for linear, _ in recorder.linears):
                raise JitError(
                    f"didn't JIT anything! {self.__name__} computed nothing; return tensors that depend on the "
                    "arguments, or realize inside"
                )
        except BaseException:
            # What the function has realized is taken for computed by every tensor, so it has to be.
            for linear, var_vals in recorder.linears:
                run_linear(linear, var_vals)
            raise
        is_first = entry.captured is None
        returned = (result, recorder.checked) if recorder.checked else result
        captured = build_capture(recorder, arguments, returned, self.prune, explicit)
        entry.captured = self.captured = captured
        captured.is_provisional = is_first and recorder.is_provisional
        return captured.checked(returned)

    def _record(self, recorder: Recorder, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function with its schedules going to the recorder."""
        assert self.fxn is not None
        recorder.note_outside(live_tensors())
        capturing.append(recorder)
        try:
            with guarded_writes(arguments.check_write), guarded_writes(recorder.note_write):
                result = self._call_on_copies(arguments, args, kwargs)
            map_structure(result, self._check_leaf)
            # Without a JIT a write that no result depends on is computed when its storage is read: each call counts.
            _realized(result, recorder.unfinished())
            pending = [t for t in random_state() if t._is_pending()]
            if pending:
                Tensor.realize(*pending)  # a draw counts in every replay, whether or not its numbers were used
        finally:
            capturing.pop()
        return result

    def _call_on_copies(self, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Views were copied: while the function is captured, the user's tensors show the copies.
        assert self.fxn is not None
        if not self.recapture:
            return self.fxn(*args, **kwargs)
        given = Arguments(args, kwargs).tensors
        before = [t.uop for t in given]
        try:
            for mine, copy in zip(given, arguments.tensors, strict=True):
                if mine is not copy:
                    mine.uop = copy.uop
            return self.fxn(*args, **kwargs)
        finally:
            for mine, copy, uop in zip(given, arguments.tensors, before, strict=True):
                if mine is not copy:
                    mine.uop = uop

    def _check_leaf(self, leaf: Any) -> Any:
        if leaf is not None and not isinstance(leaf, Tensor):
            raise JitError(
                f"{self.__name__} returned a non-Tensor value of type {type(leaf).__name__}: {leaf!r}\n"
                "  rule  a jitted function returns None, a Tensor, or lists, tuples and dicts of Tensors\n"
                "  hint  a replay does not run Python, so numbers would not change: return the Tensor and read it "
                "outside"
            )
        return leaf

    def reset(self) -> None:
        """Forget all captures.

        Raises:
            AssertionError: There is no function (the object was unpickled), so nothing could be captured again.
        """
        if self.fxn is None:
            raise AssertionError("can't reset without function: this TinyJit was unpickled and only replays")
        self.cnt, self.captured = 0, None
        self._entries.clear()

    def __getstate__(self) -> tuple[Any, ...]:
        captured = [entry.captured for entry in self._entries.values() if entry.captured is not None]
        if not captured:
            raise AssertionError("can't pickle an uncaptured JIT: call it twice first")
        if any(capture.is_provisional or capture.outdated() for capture in captured):
            # Without the function nothing could be captured again.
            raise AssertionError(
                "can't pickle a JIT of which the next call captures again, because what was pending in the last "
                "capture has been computed or written to since: call it once more first"
            )
        return self.prune, self.recapture, self._entries, self.captured, self.__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, self.__getstate__()

    def __deepcopy__(self, memo: dict[int, Any]) -> TinyJit[P, R]:
        """Return a TinyJit of the copied function, without captures: their kernels write to storage of the original.

        One that was unpickled is its captures; a copy of it is what pickling gives.
        """
        if self.fxn is None:
            made: TinyJit[P, R] = pickle.loads(pickle.dumps(self))
        else:
            made = TinyJit(copy.deepcopy(self.fxn, memo), prune=self.prune, recapture=self.recapture)
        memo[id(self)] = made
        return made

    def __repr__(self) -> str:
        return f"<TinyJit {self.__name__} cnt={self.cnt} {'captured' if self.captured is not None else 'not captured'}>"


class _WeakMethod(Generic[R]):
    """A function bound to an object that it does not keep alive."""

    def __init__(self, fxn: Callable[..., R] | None, obj: Any) -> None:
        assert fxn is not None
        self.function, self.object = fxn, weakref.ref(obj)
        self.__name__, self.__qualname__ = fxn.__name__, fxn.__qualname__

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        obj = self.object()
        if obj is None:
            raise ReferenceError(f"{self.__qualname__}: the object of this jitted method is gone")
        return self.function(obj, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _WeakMethod[R]:
        # Where the object is copied too, the copy has the method of the copy.
        obj = self.object()
        return _WeakMethod(self.function, memo.get(id(obj), obj))


def _load(
    prune: bool, recapture: bool, entries: dict[Any, _Entry], captured: CapturedJit, name: str
) -> TinyJit[..., Any]:
    made: TinyJit[..., Any] = object.__new__(TinyJit)
    made.fxn, made.prune, made.recapture = None, prune, recapture
    made._setup(2, entries, captured)
    made.__name__ = made.__qualname__ = name
    return made


def _realized(result: R, others: Iterable[Tensor] = ()) -> R:
    """Realize every tensor of a returned structure, and others with them; returns the structure."""
    tensors: list[Tensor] = []
    map_structure(result, lambda leaf: tensors.append(leaf) if isinstance(leaf, Tensor) else None)
    tensors += others
    if tensors:
        Tensor.realize(*tensors)
    return result


explain_methods(TinyJit, ("__call__",), labels=False, counts=False)

__all__ = ["CapturedJit", "GraphException", "GraphRunner", "JitError", "MultiGraphRunner", "TinyJit"]
