"""The state behind random numbers: one key and one counter for each device of each thread.

In:   a seed, and calls that take so many words from a device.
Out:  for each call a key of its own, in memory of the device.
Why:  the counter is memory, advanced by a store in every call; so the replay of a JIT, which only repeats kernels,
      draws new numbers. A call reads the counter through a copy of its own. Threads have states of their own: what one
      has drawn and not computed yet is no matter of another's realize.

A new seed starts new states, except for those whose memory the kernels of a JIT use: these are written anew, before the
next call draws from them or the next replay starts. So replays and other calls go on drawing from one sequence. A state
that starts during a capture is written while the capture looks away: a replay goes on from where the last one ended.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
import weakref
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.forking import renew_in_child
from tinygrad.helpers import Context
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor
    from tinygrad.uop.ops import UOp

__all__ = [
    "captured_states", "current_seed", "is_random_state", "random_state", "set_seed", "settle_before_capture",
    "settle_before_replay", "state_of",
]  # fmt: skip


class _DeviceState:
    """Key and counter of one device, and the copy of the counter that the last call made."""

    def __init__(self, device: str, generator: _Generator, number: int) -> None:
        from tinygrad.tensor import Tensor

        self.device, self.generator = device, generator
        self.is_captured = False  # whether kernels of a JIT use this memory
        self.first_draw = 0  # the place of the first draw since a capture or seed began, among those from all states
        self.key: Tensor = Tensor.empty(1, dtype=dtypes.uint64, device=device).assign(self._key(number))
        self.counter: Tensor = Tensor.full((1,), 0, dtype=dtypes.uint64, device=device)
        self.last: Tensor | None = None
        _storage.add(self.counter.uop.buf_uop)
        _storage.add(self.key.uop.buf_uop)

    def _key(self, number: int) -> Tensor:
        """Return the key of the state with this number; its words are a hash of the number, and the seed."""
        from tinygrad.tensor import Tensor

        digest = int.from_bytes(hashlib.sha256(number.to_bytes(4, "big")).digest(), "big")
        # The key is data, not a constant of the graph: a later run of a program without a seed finds its schedules.
        words = (digest & 0xFFFFFFFF) | (self.generator.seed & 0xFFFFFFFF) << 32
        key = Tensor([words], dtype=dtypes.uint64, device=self.device)
        _storage.update(node for node in key.uop.toposort() if node.op is Ops.BUFFER)
        return key

    def restart(self, generator: _Generator, number: int) -> None:
        """Start from the seed of another generator, in the same memory."""
        self.generator, self.first_draw = generator, 0
        self.key.assign(self._key(number))
        self.counter.assign(0)

    def draw(self, words: int) -> Tensor:
        """Advance the counter by ``words`` and return the key (one uint64) for the numbers of this call."""
        from tinygrad.tensor import Tensor

        self.first_draw = self.first_draw or next(_draws)
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

    Args:
        seed: The seed.
        former: For each thread the devices that it drew from under the last seed, with the states that are used again.
    """

    def __init__(self, seed: int, former: dict[int, dict[str, _DeviceState | None]] | None = None) -> None:
        self.seed = seed
        self._threads: dict[int, dict[str, _DeviceState]] = {}
        self._former = former or {}
        self._count = 0
        self.is_of_capture = False  # whether the running capture set the seed, so that every replay does
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    def successor(self, seed: int) -> _Generator:
        """Return a generator with another seed."""
        alive = {thread.ident for thread in threading.enumerate()}
        former: dict[int, dict[str, _DeviceState | None]] = {}
        for ident in alive & (self._threads.keys() | self._former.keys()):
            assert ident is not None
            states = {**self._former.get(ident, {}), **self._threads.get(ident, {})}
            former[ident] = {device: s if s is not None and s.is_captured else None for device, s in states.items()}
        return _Generator(seed, former)

    def states(self) -> dict[str, _DeviceState]:
        """Return the states of the running thread: device -> state."""
        return self._threads.setdefault(threading.get_ident(), {})

    def state(self, device: str) -> _DeviceState:
        """Return the state of the running thread for a device."""
        states = self.states()
        if device not in states:
            former = self._former.get(threading.get_ident(), {}).get(device)
            made = _DeviceState(device, self, self._next_number()) if former is None else self.renewed(former)
            states[device] = made
            if not self.is_of_capture:
                _settle_before_draws(made)
        return states[device]

    def renewed(self, state: _DeviceState) -> _DeviceState:
        """Return a state after it was started from this seed, if that was not done yet."""
        if state.generator is not self:
            state.restart(self, self._next_number())
        return state

    def all_states(self) -> list[_DeviceState]:
        """Return the states of all threads."""
        return [state for states in list(self._threads.values()) for state in list(states.values())]

    def _next_number(self) -> int:
        with self._lock:
            number, self._count = self._count, self._count + 1
        return number


_generator = _Generator(int(time.time()))
_draws = itertools.count(1)
# Storage of counters and of their copies, as long as somebody reads it.
_storage: weakref.WeakSet[UOp] = weakref.WeakSet()


def is_random_state(buffer: UOp) -> bool:
    """Return whether a BUFFER holds random state: shared by everybody, it is nobody's argument."""
    return buffer in _storage


def random_state() -> list[Tensor]:
    """Return the tensors that hold the random state of this thread: counters, and the copies of them by the last calls.

    A traced function may read them.
    """
    return _tensors_of(_generator.states().values())


def _tensors_of(states: Iterable[_DeviceState]) -> list[Tensor]:
    return [t for state in states for t in (state.key, state.last, state.counter) if t is not None]


def settle_before_capture() -> None:
    """Bring the random state of this thread to memory: no replay repeats draws made before, nor the start of a seed."""
    _generator.is_of_capture = False
    for state in _generator.all_states():
        state.first_draw = 0
    _settle(random_state())


def _settle_before_draws(state: _DeviceState) -> None:
    """Bring a state that starts during a capture to memory: each replay goes on with it."""
    from tinygrad.engine.capturing import capturing, looking_away

    if capturing:
        with looking_away(), Context(ALLOW_DEVICE_USAGE=1):  # a function may be traced in the capture
            _settle(_tensors_of([state]))


def captured_states(storage: Container[UOp]) -> list[_DeviceState]:
    """Return the states whose counters are among the BUFFERs that a capture uses; they stay in their memory.

    They are in the order of their first draws: a new seed numbers them as it would without the capture.
    """
    found = [state for state in _generator.all_states() if state.counter.uop.buf_uop in storage]
    for state in found:
        state.is_captured = True
    return sorted(found, key=lambda state: state.first_draw)


def settle_before_replay(states: Iterable[_DeviceState]) -> None:
    """Bring the states of a capture to memory: what was drawn before comes first, and a new seed counts."""
    _settle(_tensors_of([_generator.renewed(state) for state in states]))


def _settle(state: Iterable[Tensor]) -> None:
    pending = [t for t in state if t._is_pending()]
    if pending:
        pending[0].realize(*pending[1:])


def set_seed(seed: int) -> None:
    """Set the seed and forget all states, except for the memory of those that captures use."""
    from tinygrad.engine.capturing import capturing

    global _generator
    _generator = _generator.successor(seed)
    _generator.is_of_capture = bool(capturing)


def current_seed() -> int:
    """Return the seed."""
    return _generator.seed


def state_of(device: str) -> _DeviceState:
    """Return the state of the running thread for a device."""
    return _generator.state(device)
