"""Walks over graphs, and what is read off them: slices, terms, consumers, text.

In:   a node; everything that it depends on is its graph.
Out:  ``WalkMethods``, which UOp inherits. Nothing here recurses: graphs can be 100,000 nodes deep.
Why:  every stage walks graphs, and explicit stacks have to be written only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tinygrad.mixin.hooks import Hooks
from tinygrad.uop import Ops
from tinygrad.uop.records import KernelInfo

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


class WalkMethods(Hooks):
    """Methods of UOp on the graph below a node."""

    __slots__ = ()

    def topovisit(self, visitor: Callable[[UOp], Any], cache: dict[UOp, Any]) -> Any:
        """Visit bottom-up with a memo; returns the visitor's result for this node."""
        root = self._uop
        for node in root.toposort(gate=lambda u: u not in cache):
            cache[node] = visitor(node)
        return cache[root]

    @property
    def backward_slice(self) -> dict[UOp, None]:
        """Every node that this one depends on."""
        u = self._uop
        found = u.toposort()
        found.pop(u)
        return found

    @property
    def backward_slice_with_self(self) -> dict[UOp, None]:
        """Every node that this one depends on, and itself."""
        return self._uop.toposort()

    def substitute(self, dvars: dict[UOp, UOp], name: str | None = None, **kwargs: Any) -> UOp:
        """Return the graph with nodes replaced by the map."""
        from tinygrad.uop.rewrite import substitute

        return substitute(self._uop, dvars, **kwargs)

    def ssimplify(self) -> Any:
        """Simplify; a Python number when the value is constant."""
        simple = self._uop.simplify()
        return simple.arg if simple.op is Ops.CONST else simple

    def render(self, simplify: bool = True, pm: Any = None) -> str:
        """Return infix text such as ``(a*2+2)``."""
        from tinygrad.uop.render import render

        u = self._uop
        return render(u.simplify() if simplify else u, pm)

    def split_uop(self, op: Ops) -> Iterator[UOp]:
        """Yield the terms of a chain of ``op`` from left to right."""
        stack = [self._uop]
        while stack:
            u = stack.pop()
            if u.op is op:
                stack.extend(reversed(u.src))
            else:
                yield u


def consumer_map_from_toposort(nodes: Iterable[UOp]) -> dict[UOp, dict[UOp, None]]:
    """Return for every node the nodes that read it."""
    found: dict[UOp, dict[UOp, None]] = {}
    for u in nodes:
        found.setdefault(u, {})
        for s in u.src:
            found.setdefault(s, {})[u] = None
    return found


def gate_kernel_sink(u: UOp) -> bool:
    """Return False for the root of a kernel: as the gate of ``toposort``, it leaves the bodies of kernels out."""
    return not (u.op is Ops.SINK and isinstance(u.arg, KernelInfo))
