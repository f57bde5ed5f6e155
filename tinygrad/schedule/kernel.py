"""What a schedule is made of while it is being built: kernels, copies, calls, and the storage that they share.

In:   nothing.
Out:  plain records. A kernel's graph refers to storage by BUFFER stand-ins; ``Leaf`` says what each stands for.
Why:  steps between rangeify and emit reorder, merge and rewrite kernels without looking into graphs for it.
"""

from __future__ import annotations

from tinygrad.record import field, record
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


@record(frozen=True)
class Leaf:
    """What a BUFFER stand-in in a kernel's graph stands for.

    Args:
        storage: The BUFFER that holds the data.
        state: The node whose value is read: the storage itself (as it was before), an AFTER (as it is after writes),
            or the computed node that a kernel of this schedule stores there.
    """

    storage: UOp
    state: UOp


@record
class StoreNest:
    """One store and the loops around it."""

    target: UOp  # stand-in that is written
    index: UOp
    gate: UOp | None
    value: UOp
    ranges: tuple[UOp, ...]
    serial: bool = False  # data-dependent targets: program order decides which write wins
    accumulate: Ops | None = None  # combines what is there with the value: ADD, MUL or MAX
    _walked: tuple[tuple[UOp, ...], tuple[UOp, ...]] = field(default=((), ()), init=False, repr=False, compare=False)

    def roots(self) -> tuple[UOp, ...]:
        """Return the expressions of the nest."""
        return (self.index, self.value) if self.gate is None else (self.index, self.value, self.gate)

    def accesses(self) -> tuple[UOp, ...]:
        """Return the INDEX nodes of the expressions: walked once, though steps ask for them a dozen times."""
        roots = self.roots()
        if self._walked[0] != roots:
            found = dict.fromkeys(u for root in roots for u in root.toposort() if u.op is Ops.INDEX)
            self._walked = (roots, tuple(found))
        return self._walked[1]


@record
class Kernel:
    """A unit of work of the schedule.

    Args:
        kind: "compute" (nests hold its loops), "copy" (first storage written from the second) or "call" (custom body).
        nests: Loop nests, in program order.
        writes: Nodes whose values this kernel stores (values and STORE nodes).
        args: For copies and calls, the stand-ins passed, outputs first.
        body: For calls, the body node.
    """

    kind: str
    device: str
    nests: list[StoreNest] = field(default_factory=list)
    writes: list[UOp] = field(default_factory=list)
    args: list[UOp] = field(default_factory=list)
    body: UOp | None = None
    order: int = 0

    def loads(self) -> dict[UOp, None]:
        """Return the stand-ins that the kernel reads."""
        found = dict.fromkeys(u.src[0] for nest in self.nests for u in nest.accesses())
        for nest in self.nests:
            if nest.accumulate:
                found[nest.target] = None
        if self.kind != "compute":
            found.update(dict.fromkeys(self.args))
        return found
