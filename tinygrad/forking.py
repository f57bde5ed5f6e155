"""Locks in forked children.

In:   objects and modules, with the names of the locks that they hold.
Out:  in every child that ``os.fork`` makes, new locks under the same names.
Why:  a fork copies a lock as it is, but not the thread that would release it: a child that needs a lock which another
      thread held at that moment would wait for ever. What a lock protects may be half changed in the child; everything
      here is changed by single operations of dicts and lists, or is a cache that can be made anew.

A renewed lock is another object, so code takes it by its name in the holder (``storage.buffer_lock``), never by a copy.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final

__all__ = ["renew_in_child"]

_RLOCK: Final = type(threading.RLock())
_holders: Final[weakref.WeakKeyDictionary[object, tuple[str, ...]]] = weakref.WeakKeyDictionary()


def renew_in_child(holder: object, *names: str) -> None:
    """Replace the locks ``holder.name`` in every forked child.

    Args:
        holder: An object or module, which is remembered weakly.
        *names: Attributes that are a ``threading.Lock`` or ``threading.RLock``.
    """
    _holders[holder] = names


def _renew() -> None:
    for holder, names in list(_holders.items()):
        for name in names:
            reentrant = isinstance(getattr(holder, name), _RLOCK)
            setattr(holder, name, threading.RLock() if reentrant else threading.Lock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
