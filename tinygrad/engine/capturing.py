"""The hook by which a JIT capture receives schedules instead of the devices.

In:   an object with ``add_linear(linear, var_vals)``, placed in ``capturing`` for a while.
Out:  ``run_linear`` hands every schedule of this thread to it and runs nothing.
Why:  a capture in one thread must not swallow what another thread realizes, so every thread sees a list of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, overload


class _Capturing(threading.local):
    """A list with contents per thread."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def append(self, item: Any) -> None:
        """Start to give this thread's schedules to ``item``."""
        self._items.append(item)

    def pop(self, index: int = -1) -> Any:
        """Stop giving schedules to the item; returns it."""
        return self._items.pop(index)

    def clear(self) -> None:
        """Stop all captures of this thread."""
        self._items.clear()

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


capturing = _Capturing()


@contextmanager
def looking_away() -> Iterator[None]:
    """Hand schedules to the devices within, as if the running capture of this thread were none."""
    recorder = capturing.pop()
    try:
        yield
    finally:
        capturing.append(recorder)


def before_data_access(what: str) -> None:
    """Called before a tensor's values are read; raises what the running capture says about it.

    Args:
        what: What the user called, such as ``item``.

    Raises:
        JitError: A TinyJit is capturing: nothing has been computed that could be read.
    """
    if capturing:
        refuse = getattr(capturing[-1], "on_data_access", None)
        if refuse is not None:
            refuse(what)


__all__ = ["before_data_access", "capturing", "looking_away"]
