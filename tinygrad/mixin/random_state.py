"""The state behind random numbers: one key and one counter for each device of each thread.

In:   a seed, and calls that take so many words from a device.
Out:  for each call a key of its own, in memory of the device.
Why:  the counter is memory, advanced by a store in every call; so the replay of a JIT, which only repeats kernels,
      draws new numbers. A call reads the counter through a copy of its own. Threads have states of their own: what one
      has drawn and not computed yet is no matter of another's realize.
"""

from __future__ import annotations

import hashlib
import threading
import time
import weakref
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.forking import renew_in_child
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor
    from tinygrad.uop.ops import UOp

__all__ = ["current_seed", "is_random_state", "random_state", "set_seed", "state_of"]


class _DeviceState:
    """Key and counter of one device, and the copy of the counter that the last call made."""

    def __init__(self, device: str, seed: int, number: int) -> None:
        from tinygrad.tensor import Tensor

        digest = int.from_bytes(hashlib.sha256(number.to_bytes(4, "big")).digest(), "big")
        # The key is data, not a constant of the graph: a later run of a program without a seed finds its schedules.
        key = Tensor([(digest & 0xFFFFFFFF) | (seed & 0xFFFFFFFF) << 32], dtype=dtypes.uint64, device=device)
        self.key: Tensor = Tensor.empty(1, dtype=dtypes.uint64, device=device).assign(key)
        self.counter: Tensor = Tensor.full((1,), 0, dtype=dtypes.uint64, device=device)
        self.last: Tensor | None = None
        self.device = device
        _storage.add(self.counter.uop.buf_uop)
        for node in self.key.uop.toposort():
            if node.op is Ops.BUFFER:
                _storage.add(node)

    def draw(self, words: int) -> Tensor:
        """Advance the counter by ``words`` and return the key (one uint64) for the numbers of this call."""
        from tinygrad.tensor import Tensor

        copy = Tensor.empty(2, dtype=dtypes.uint64, device=self.device)
        _storage.add(copy.uop.buf_uop)
        now = self.counter._broadcast_to((2,))
        drawn = now._wrap_uop(now.uop.threefry(self.key.uop._broadcast_to((2,))))
        copy.assign(Tensor.arange(2).eq(0).where(now, drawn))
        # What is advanced is the copy: so no later call can advance the counter before this copy is made.
        self.counter.assign(copy.shrink([(0, 1)]) + words)
        self.last = copy
        return copy.shrink([(1, 2)])


class _Generator:
    """The seed, and the states of every thread that drew numbers since it was set: one for each of its devices.

    States are numbered in the order of their first draws, whichever thread makes it: a program of one thread draws the
    same numbers in any thread.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._threads: dict[int, dict[str, _DeviceState]] = {}
        self._count = 0
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    def states(self) -> dict[str, _DeviceState]:
        """Return the states of the running thread: device -> state."""
        return self._threads.setdefault(threading.get_ident(), {})

    def state(self, device: str) -> _DeviceState:
        """Return the state of the running thread for a device."""
        states = self.states()
        if device not in states:
            with self._lock:
                number, self._count = self._count, self._count + 1
            states[device] = _DeviceState(device, self.seed, number)
        return states[device]


_generator = _Generator(int(time.time()))
# Storage of counters and of their copies, as long as somebody reads it.
_storage: weakref.WeakSet[UOp] = weakref.WeakSet()


def is_random_state(buffer: UOp) -> bool:
    """Return whether a BUFFER holds random state: shared by everybody, it is nobody's argument."""
    return buffer in _storage


def random_state() -> list[Tensor]:
    """Return the tensors that hold the random state of this thread: counters, and the copies of them by the last calls.

    A JIT realizes them before it captures, so that its kernels start from memory; a traced function may read them.
    """
    states = _generator.states().values()
    return [t for state in states for t in (state.key, state.last, state.counter) if t is not None]


def set_seed(seed: int) -> None:
    """Set the seed and forget all states."""
    global _generator
    _generator = _Generator(seed)


def current_seed() -> int:
    """Return the seed."""
    return _generator.seed


def state_of(device: str) -> _DeviceState:
    """Return the state of the running thread for a device."""
    return _generator.state(device)
