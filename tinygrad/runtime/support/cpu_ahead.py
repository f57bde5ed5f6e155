"""Compile the native code of the CPU runtime while the first kernel is being scheduled.

In:   nothing; the CPU has just been opened.
Out:  a thread that fills the disk cache and loads the code, where the cache does not have it.
Why:  a first program waits for this code longer than for its own kernel, and LLVM does not hold the interpreter lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final

from tinygrad.runtime.support.cpu_native import compiler_and_source, is_loaded, native

__all__ = ["native_ahead"]

_threads: Final[list[threading.Thread]] = []


def native_ahead() -> None:
    """Let a thread compile the native functions, unless they are loaded or in the disk cache."""
    if _threads or is_loaded():
        return
    compiler, source = compiler_and_source()
    if compiler.find(source) is not None:
        return
    thread = threading.Thread(target=_load, name="native code of the CPU")
    thread.start()
    _threads.append(thread)


def _load() -> None:
    # An error comes again, where the functions are needed.
    with contextlib.suppress(Exception):
        native()


def _finish() -> None:
    """Wait for the thread: in a child that is forked meanwhile, locks inside of LLVM would stay taken for ever."""
    while _threads:
        _threads.pop().join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish)
