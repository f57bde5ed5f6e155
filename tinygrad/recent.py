"""A mapping that forgets what has not been used for longest, for the caches of a process.

In:   keys and values; the number of entries that may be kept.
Out:  ``Recent``: a mapping of the latest entries, at least half as many as may be kept.
Why:  a program whose shapes or constants change with every step computes new kernels for ever, while the kernels that
      it comes back to have to stay. Clearing a full cache would forget those too, and make them anew.

Entries are in two generations. New and used ones are in the younger; once that is full it becomes the older one, and
what the older one still held is gone. To use an entry of the younger one is one lookup in a dict; a list in the order
of use would take several steps. Threads may share a mapping: each step is a single operation of a dict, and the worst
that two threads can do to each other is that one forgets what the other has just added.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final, TypeVar

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")
_MISSING: Final[Any] = object()


class Recent(MutableMapping[K, V]):
    """A mapping of at most ``most`` entries; the latest half of them, by their last use, is always kept.

    Example:
        >>> kept = Recent(4)
        >>> for number in range(9):
        ...     kept[number], kept[0] = number * number, 0
        >>> sorted(kept)
        [0, 7, 8]
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        found: V = self._young.get(key, _MISSING)
        if found is _MISSING:
            found = self._old[key]
            self[key] = found
        return found

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or ``default``; a miss raises nothing, which would take longer."""
        found = self._young.get(key, _MISSING)
        if found is not _MISSING:
            return found
        found = self._old.get(key, _MISSING)
        if found is _MISSING:
            return default
        self[key] = found
        return found

    def __setitem__(self, key: K, value: V) -> None:
        if len(self._young) >= max(self.most // 2, 1) and key not in self._young:
            self._old, self._young = self._young, {}
        self._old.pop(key, None)
        self._young[key] = value

    def __delitem__(self, key: K) -> None:
        if self._young.pop(key, _MISSING) is _MISSING:
            del self._old[key]

    def __contains__(self, key: object) -> bool:
        return key in self._young or key in self._old

    def __iter__(self) -> Iterator[K]:
        return iter([*self._old, *self._young])

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def clear(self) -> None:
        """Forget all entries."""
        self._young, self._old = {}, {}
