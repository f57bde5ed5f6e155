"""Which neighbouring kernels of a launch list a thread may run one after the other without waiting for the others.

In:   the launches of a list, and where in memory their buffers lie.
Out:  ``join_launches``: the lengths of the groups that the list falls into.
Why:  after each kernel the faster thread waits for the slower one. It need not where both cut their buffers alike: rows
      0 to 4 of ``(x @ w) @ v`` need rows 0 to 4 of ``x @ w``, whoever computes the others (codegen/pieces.py). Such a
      group runs as if it were one kernel, one iteration through all of its kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tinygrad.record import record


@record(frozen=True)
class Access:
    """A buffer of a launch.

    Args:
        storage: Memory that it lies in: different storages have no byte in common, unless nobody writes them.
        offset: Its first byte there, None if that is not known.
        nbytes: Its size.
        is_written: Whether the kernel writes it.
        piece: Bytes that each iteration has for itself, or 0.
    """

    storage: Hashable
    offset: int | None
    nbytes: int
    is_written: bool
    piece: int

    def conflicts(self, other: Access) -> bool:
        """Whether an iteration of one kernel may touch bytes that another iteration of the other one writes."""
        if self.storage != other.storage or not (self.is_written or other.is_written):
            return False
        if self.offset is None or other.offset is None:
            return True
        if self.offset >= other.offset + other.nbytes or other.offset >= self.offset + self.nbytes:
            return False
        return self.offset != other.offset or self.piece != other.piece or not self.piece


class _Group:
    """Launches that follow each other without waiting."""

    def __init__(self, iterations: int) -> None:
        self.iterations, self.length = iterations, 0
        self._accesses: dict[Hashable, list[Access]] = {}
        self._shared: dict[tuple[Hashable, int | None], int] = {}  # bytes that all iterations read

    def takes(self, accesses: Sequence[Access], most_shared: int) -> bool:
        """Whether a launch with these buffers, and as many iterations, can be added."""
        for access in accesses:
            if any(access.conflicts(other) for other in self._accesses.get(access.storage, ())):
                return False
        shared = self._shared | _shared_bytes(accesses)
        return sum(shared.values()) <= most_shared

    def add(self, accesses: Sequence[Access]) -> None:
        self.length += 1
        for access in accesses:
            self._accesses.setdefault(access.storage, []).append(access)
        self._shared |= _shared_bytes(accesses)


def _shared_bytes(accesses: Sequence[Access]) -> dict[tuple[Hashable, int | None], int]:
    return {(access.storage, access.offset): access.nbytes for access in accesses if not access.piece}


def join_launches(
    launches: Sequence[tuple[int | None, Sequence[Access]]],
    most_shared: int,
) -> list[int]:
    """Return the lengths of the groups that a list of launches falls into, in order; 1 for a launch on its own.

    Args:
        launches: For each launch the iterations of its THREAD loop (None where they are not known or there is no such
            loop) and its buffers.
        most_shared: Bytes of buffers that every iteration reads, all of a group together. An iteration goes through
            all kernels of the group, so these should stay in the cache near a core.
    """
    groups: list[_Group] = []
    for iterations, accesses in launches:
        group = groups[-1] if groups else None
        may_join = group is not None and iterations is not None and group.iterations == iterations > 1
        if group is None or not may_join or not group.takes(accesses, most_shared):
            group = _Group(iterations or 0)
            groups.append(group)
        group.add(accesses)
    return [group.length for group in groups]


__all__ = ["Access", "join_launches"]
