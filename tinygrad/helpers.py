"""Small functions that every stage uses: sequences, shapes, control flow.

In:   plain Python values.
Out:  plain Python values. Nothing here knows of tensors, nodes or devices.
Why:  they have no better home, and every stage may import them.

The settings, counters, timers, the disk cache, downloads, arithmetic on integers and text live in files of their own
(``settings``, ``profiling``, ``diskcache``, ``fetching``, ``integers``, ``text``); their public names can be imported
from here too.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import operator
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, overload

from tinygrad.diskcache import *  # noqa: F403  re-exported
from tinygrad.fetching import *  # noqa: F403  re-exported
from tinygrad.integers import *  # noqa: F403  re-exported
from tinygrad.profiling import *  # noqa: F403  re-exported
from tinygrad.progress import *  # noqa: F403  re-exported
from tinygrad.settings import *  # noqa: F403  re-exported
from tinygrad.system import *  # noqa: F403  re-exported
from tinygrad.target import Target as Target
from tinygrad.text import *  # noqa: F403  re-exported

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")

OSX: Final = sys.platform == "darwin"
WIN: Final = sys.platform == "win32"
BASEDIR: Final = Path(__file__).parent
START_TIME: Final = time.perf_counter()
CHUNK_SIZE: Final = 1 << 20

count = itertools.count

# ---- sequences -----------------------------------------------------------------------------------------------------


@overload
def prod(x: Iterable[int]) -> int: ...
@overload
def prod(x: Iterable[Any]) -> Any: ...
def prod(x: Iterable[Any]) -> Any:
    """Return the product of ``x``; 1 if it is empty."""
    return functools.reduce(operator.mul, x, 1)


def flatten(x: Iterable[Iterable[T]]) -> list[T]:
    """Join the inner iterables into one list."""
    return list(itertools.chain.from_iterable(x))


def fully_flatten(x: Any) -> list[Any]:
    """Return the items of nested lists and tuples in order, as one list; anything else is an item."""
    if not isinstance(x, (list, tuple)):
        return [x]
    flat: list[Any] = []
    pending = [iter(x)]
    while pending:
        for item in pending[-1]:
            if isinstance(item, (list, tuple)):
                pending.append(iter(item))
                break
            flat.append(item)
        else:
            pending.pop()
    return flat


def get_shape(x: Any) -> tuple[int, ...]:
    """Return the shape of nested lists and tuples; () for anything else.

    Raises:
        ValueError: Siblings have different lengths.
    """
    shape: list[int] = []
    level: Sequence[Any] = [x]
    while level and isinstance(level[0], (list, tuple)):
        size = len(level[0])
        if not all(isinstance(item, (list, tuple)) and len(item) == size for item in level):
            raise _ragged(shape)
        shape.append(size)
        level = level[0] if len(level) == 1 else list(itertools.chain.from_iterable(level))
    if any(isinstance(item, (list, tuple)) for item in level):
        raise _ragged(shape)
    return tuple(shape)


def _ragged(shape: list[int]) -> ValueError:
    return ValueError(
        f"nested lists are ragged: items below the leading dims {tuple(shape)} have different lengths; "
        "pad them to one length"
    )


def dedup(x: Iterable[T]) -> list[T]:
    """Return the distinct items in order of first appearance."""
    return list(dict.fromkeys(x))


def argsort(x: Sequence[Any]) -> Any:
    """Return the indices that sort ``x``, in a container of its type."""
    container: Callable[[Iterable[int]], Any] = type(x)
    return container(sorted(range(len(x)), key=x.__getitem__))


def all_same(items: Iterable[Any]) -> bool:
    """Whether all items are equal (true for none)."""
    iterator = iter(items)
    first = next(iterator, None)
    return all(item == first for item in iterator)


def all_int(t: Sequence[Any]) -> bool:
    """Whether all items are Python ints."""
    return all(isinstance(item, int) for item in t)


def partition(items: Iterable[T], fn: Callable[[T], Any]) -> tuple[list[T], list[T]]:
    """Split into the items for which ``fn`` holds and the others, both in order."""
    chosen: list[T] = []
    others: list[T] = []
    for item in items:
        (chosen if fn(item) else others).append(item)
    return chosen, others


def merge_dicts(ds: Iterable[Mapping[K, V]]) -> dict[K, V]:
    """Join dictionaries.

    Raises:
        RuntimeError: One key has two different values.
    """
    merged: dict[K, V] = {}
    for one in ds:
        for key, value in one.items():
            if key in merged and merged[key] != value:
                raise RuntimeError(f"merge_dicts: {key!r} has two values, {merged[key]!r} and {value!r}")
            merged[key] = value
    return merged


def slots_of(kind: type) -> list[str]:
    """Return the attributes that instances of a class have outside their ``__dict__``, those of base classes first."""
    names = []
    for base in reversed(kind.__mro__):
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if is_private else name)
    return [name for name in names if name not in {"__dict__", "__weakref__"}]


def argfix(*x: Any) -> tuple[Any, ...]:
    """Return the arguments as a tuple, whether they were given one by one or as one list or tuple.

    Raises:
        ValueError: A list or tuple came with further arguments.
    """
    if x and isinstance(x[0], (list, tuple)):
        if len(x) != 1:
            raise ValueError(f"argfix: expected one sequence or separate values, got a mixture: {x}")
        return tuple(x[0])
    return x


def make_tuple(x: int | Sequence[int], n: int) -> tuple[int, ...]:
    """Repeat a number ``n`` times; a sequence is taken as it is."""
    return tuple(x) if isinstance(x, Sequence) else (x,) * n


def to_tuple(x: Any) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple, and any other value as a tuple of one."""
    return tuple(x) if isinstance(x, (list, tuple)) else (x,)


def get_child(obj: Any, key: str) -> Any:
    """Follow a dotted path of attributes, dictionary keys and indices, such as ``layers.0.weight``."""
    for name in key.split("."):
        if isinstance(obj, Mapping):
            obj = obj[name]
        elif name.lstrip("-").isdigit():
            obj = obj[int(name)]
        else:
            obj = getattr(obj, name)
    return obj


def get_single_element(x: Iterable[T]) -> T:
    """Return the only item.

    Raises:
        AssertionError: There is none, or more than one.
    """
    items = list(x)
    if len(items) != 1:
        raise AssertionError(f"get_single_element: expected one element, got {len(items)}: {items[:4]}")
    return items[0]


def unwrap(x: T | None) -> T:
    """Return ``x``, which cannot be None here.

    Raises:
        AssertionError: It is.
    """
    if x is None:
        raise AssertionError("unwrap: value is None")
    return x


def fromimport(module: str, name: str) -> Any:
    """Return attribute ``name`` of a module, imported now."""
    import importlib

    return getattr(importlib.import_module(module), name)


# ---- shapes --------------------------------------------------------------------------------------------------------


def flat_to_grouped(padding: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """Turn flat padding (last dim first, before and after) into one (before, after) pair per dim, first dim first."""
    return tuple(zip(padding[-2::-2], padding[::-2], strict=True))


def resolve_pool_pads(padding: int | Sequence[int], dims: int) -> Sequence[int]:
    """Return flat padding (last dim first, before and after) from a number, one number per dim, or flat padding.

    Raises:
        ValueError: The length fits neither ``dims`` nor ``2 * dims``.
    """
    if isinstance(padding, int):
        return [padding] * (2 * dims)
    if len(padding) == 2 * dims:
        return padding
    if len(padding) == dims:
        return [amount for amount in reversed(padding) for _ in range(2)]
    raise ValueError(
        f"padding {tuple(padding)} has {len(padding)} numbers; expected one number, {dims} (one per spatial dim) or "
        f"{2 * dims} (before and after, last dim first)"
    )


def strides_for_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return the row-major strides of ``shape`` in elements; dims of size 1 get stride 0."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return canonicalize_strides(shape, strides[::-1])


def canonicalize_strides(shape: Sequence[Any], strides: Sequence[Any]) -> tuple[Any, ...]:
    """Return the strides with 0 for dims of size 1."""
    # The type test comes first: comparing a symbolic size with == is identity, which is right, but costs more.
    return tuple(
        0 if isinstance(size, int) and size == 1 else stride for size, stride in zip(shape, strides, strict=True)
    )


# ---- control -------------------------------------------------------------------------------------------------------


class ById:
    """Stands for an object in keys: equal only to itself, and keeps it alive so that its id is not reused."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (f"object {id(self.held)}",)  # it does not travel: nothing in another process is equal to it


def select_by_name(
    candidates: Sequence[T], key: Callable[[T], str], name: str, err: Callable[[list[str]], str] | str
) -> list[T]:
    """Return the candidates whose key is ``name`` (case ignored), or all of them if ``name`` is empty.

    Raises:
        RuntimeError: None has that name; the message is ``err`` and the closest name.
    """
    if not name:
        return list(candidates)
    chosen = [item for item in candidates if key(item).upper() == name.upper()]
    if chosen:
        return chosen
    import difflib

    names = [key(item) for item in candidates]
    close = difflib.get_close_matches(name.upper(), [text.upper() for text in names], n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]}?" if close else f"; available: {', '.join(names) or 'none'}"
    raise RuntimeError((err if isinstance(err, str) else err(names)) + hint)


def select_first_inited(
    candidates: Sequence[Callable[..., T] | Sequence[Callable[..., Any]]],
    err_msg: str,
    cache: dict[Any, Any] | None = None,
) -> Any:
    """Call the candidates in order and return the first result that does not raise.

    A candidate is a callable or a sequence of callables (whose results come as a tuple). ``cache`` keeps what was made,
    the exceptions too.

    Raises:
        RuntimeError: There is no candidate, or the only one failed.
        ExceptionGroup: All of several candidates failed; it holds their exceptions.
    """
    failures: list[Exception] = []
    for candidate in candidates:
        key = tuple(candidate) if isinstance(candidate, Sequence) else candidate
        known = None if cache is None else cache.get(key)
        try:
            if known is None:
                known = tuple(make() for make in candidate) if isinstance(candidate, Sequence) else candidate()
        except Exception as error:  # noqa: BLE001  whatever a driver raises means "not this one"
            known = error
        if cache is not None:
            cache[key] = known
        if not isinstance(known, Exception):
            return known
        failures.append(known)
    if len(failures) > 1:
        raise ExceptionGroup(err_msg, failures)
    raise RuntimeError(err_msg) from (failures[0] if failures else None)


def suppress_finalizing(func: Callable[P, T]) -> Callable[P, T | None]:
    """Let a ``__del__`` fail in silence while the interpreter shuts down, when modules are half gone."""

    @functools.wraps(func)
    def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return func(*args, **kwargs)
        except Exception:
            if sys.is_finalizing():
                return None
            raise

    return run


_switched_off: set[int] = set()  # the blocks that switched the collector off and will switch it on again


class disable_gc(contextlib.ContextDecorator):  # noqa: N801  used like a function; a class, because that is quick
    """Keep the cyclic garbage collector off inside the block (or decorated function)."""

    def __enter__(self) -> None:
        if gc.isenabled():
            gc.disable()
            _switched_off.add(id(self))

    def __exit__(self, *_: object) -> None:
        if id(self) in _switched_off:
            _switched_off.discard(id(self))
            gc.enable()

    def _recreate_cm(self) -> disable_gc:
        return disable_gc()  # every call of a decorated function is a block of its own


def _enable_gc_in_child() -> None:
    # The thread that would have switched it on again does not exist in a forked child.
    if _switched_off:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enable_gc_in_child)


def panic(exc: type[BaseException] | BaseException | None = None, *args: Any) -> NoReturn:
    """Raise an exception from an expression; RuntimeError("PANIC!") if none is given."""
    if exc is None:
        raise RuntimeError("PANIC!")
    raise exc(*args) if isinstance(exc, type) else exc


def wait_cond(cb: Callable[..., T], *args: Any, value: Any = True, timeout_ms: int = 10000, msg: str = "") -> T:
    """Call ``cb(*args)`` until it returns ``value``.

    Raises:
        TimeoutError: It did not within ``timeout_ms`` milliseconds.
    """
    deadline = time.perf_counter() + timeout_ms / 1000
    while True:
        found = cb(*args)
        if found == value:
            return found
        if time.perf_counter() > deadline:
            raise TimeoutError(
                f"{msg or 'wait_cond'}: timed out after {timeout_ms} ms, last value {found!r}, not {value!r}"
            )
        time.sleep(0)
