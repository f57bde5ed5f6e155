"""Progress bars on stderr, on top of the tqdm package.

In:   an iterable, or counts given to ``update``.
Out:  the same items; a bar as a side effect. Without the tqdm package the items pass silently.
Why:  programs ask for a bar without caring whether the package is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

__all__ = [
    "tqdm",
    "trange",
]

T = TypeVar("T")


class tqdm(Generic[T]):  # noqa: N801  public name
    """Progress bar around an iterable, or moved by hand with ``update``.

    Args:
        iterable: What to iterate over; may be left out.
        desc: Text before the bar.
        disable: True shows nothing; None shows nothing unless stderr is a terminal.
        unit: Name of one item.
        unit_scale: Print counts as 1.2k, 3.4M.
        total: Number of items, where the iterable has no length.
        rate: Redraws per second at most.
    """

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str = "",
        disable: bool | None = False,
        unit: str = "it",
        unit_scale: bool = False,
        total: int | None = None,
        rate: int = 100,
    ) -> None:
        self.iterable = iterable
        self._bar: Any = None
        self._n = 0
        length: Callable[[], int] | None = getattr(iterable, "__len__", None)
        self.total = length() if total is None and length is not None else total
        if disable is True or (disable is None and not sys.stderr.isatty()):
            return
        try:
            from tqdm import tqdm as package_bar
        except ImportError:
            return
        self._bar = package_bar(
            total=self.total,
            # The package writes the colon itself.
            desc=desc.removesuffix(": ") or None,
            unit=unit,
            unit_scale=unit_scale,
            mininterval=1 / rate,
            file=sys.stderr,
            dynamic_ncols=True,
        )

    @property
    def n(self) -> int:
        """Items so far."""
        return self._n

    def __iter__(self) -> Iterator[T]:
        if self.iterable is None:
            raise AssertionError("tqdm: nothing to iterate over; pass an iterable, or call update()")
        try:
            for item in self.iterable:
                yield item
                self.update(1)
        finally:
            self.close()

    def __enter__(self) -> tqdm[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_description(self, desc: str) -> None:
        """Change the text before the bar."""
        if self._bar is not None:
            self._bar.set_description(desc.removesuffix(": "))

    def update(self, n: int = 0, close: bool = False) -> None:
        """Add ``n`` items; ``close`` ends the bar."""
        self._n += n
        if self._bar is not None:
            self._bar.update(n)
        if close:
            self.close()

    def close(self) -> None:
        """Draw the bar a last time and leave its line."""
        if self._bar is not None:
            self._bar.close()

    @staticmethod
    def write(s: str) -> None:
        """Print a line above running bars."""
        try:
            from tqdm import tqdm as package_bar
        except ImportError:
            sys.stderr.write(s + "\n")
            return
        package_bar.write(s, file=sys.stderr)


class trange(tqdm[int]):  # noqa: N801  public name
    """Progress bar over ``range(n)``; takes the keywords of ``tqdm``."""

    def __init__(self, n: int, **kw: Any) -> None:
        super().__init__(iterable=range(n), total=n, **kw)
