"""Labels of nodes: which method of the user made a node, and its number in traces.

In:   nodes, whose slot ``_made_by`` was filled when they were created (see ``boundary.explained``).
Out:  ``LabelMethods``, which UOp inherits, and ``AllMetadata``, all labels as a mapping.
Why:  a label is for people who look at a graph. It is kept on the node, so that recording one costs little,
      and it is no part of what the node is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING

from tinygrad.mixin.hooks import Hooks
from tinygrad.profiling import Metadata
from tinygrad.uop.tracing import trace_number

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


class LabelMethods(Hooks):
    """Methods of UOp for those who look at graphs."""

    __slots__ = ()

    @property
    def metadata(self) -> tuple[Metadata, ...] | None:
        """The methods that made the node, the first one if several made equal nodes; None where that is not known.

        Recorded with TRACEMETA. A CALL of a schedule has the methods of all nodes that its kernel computes.
        """
        label = self._uop._made_by
        return (label,) if isinstance(label, Metadata) else label

    @property
    def trace_num(self) -> int:
        """The number under which traces refer to this node; its fields are then in ``uop_fields``."""
        return trace_number(self._uop)


class AllMetadata(MutableMapping["UOp", "tuple[Metadata, ...]"]):
    """The labels of all live nodes, as a mapping.

    Args:
        nodes: Returns the live nodes.
    """

    def __init__(self, nodes: Callable[[], Iterable[UOp]]) -> None:
        self._nodes = nodes

    def __getitem__(self, u: UOp) -> tuple[Metadata, ...]:
        found = u.metadata
        if found is None:
            raise KeyError(u)
        return found

    def __setitem__(self, u: UOp, metadata: tuple[Metadata, ...]) -> None:
        u._made_by = tuple(metadata)

    def __delitem__(self, u: UOp) -> None:
        if u._made_by is None:
            raise KeyError(u)
        u._made_by = None

    def __iter__(self) -> Iterator[UOp]:
        return iter([u for u in self._nodes() if u._made_by is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)
