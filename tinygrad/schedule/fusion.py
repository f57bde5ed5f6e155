"""The cost model: which values get memory of their own, and which are computed where they are used.

In:   what a value costs to compute (bytes loaded, operations) and how often it would be computed.
Out:  a yes or no for each question that ``rangeify`` asks. Nothing here knows about graphs being rewritten.
Why:  one readable place. Everything is counted in bytes of memory traffic per element of the value.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.record import field, record, replace
from tinygrad.schedule.split import is_contraction
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# Time of one simple vector operation per element, in bytes of memory traffic: the machine's balance.
# (About 10 bytes and 40 simple operations per nanosecond and core.)
BYTES_PER_OP = 0.25
OP_COST = {
    Ops.EXP2: 8, Ops.LOG2: 10, Ops.SIN: 20, Ops.POW: 30, Ops.SQRT: 3, Ops.RECIPROCAL: 3, Ops.FDIV: 3, Ops.CDIV: 10,
    Ops.CMOD: 10, Ops.FLOORDIV: 10, Ops.FLOORMOD: 10, Ops.THREEFRY: 80, Ops.CAST: 0.5, Ops.PAD: 2,
}  # fmt: skip
TINY_REDUCE = 16  # a reduction of so few terms is as good as elementwise code
SMALL_KERNEL = 16384  # elements: below this a kernel runs on one core anyway
ROW_BYTES = 256 * 1024  # a row that is reduced and then used again should stay in the cache
MIN_ROWS = 16  # rows that keep the cores busy when a reduction is fused into what uses it
MAX_LEAVES = 24  # arrays that one kernel reads
MAX_OPS = 400  # different operations in one kernel body before it is cut
REUSE = 8  # an operand read this many times by a contraction is worth storing in final form


@record
class Cost:
    """What computing one element of a value takes, down to the nearest stored values or reductions."""

    leaves: frozenset[UOp] = field(default_factory=frozenset)
    ops: float = 0.0
    nodes: int = 0
    reduces: frozenset[UOp] = field(default_factory=frozenset)
    has_tiny: bool = False  # whether a tiny reduction is part of it

    def load_bytes(self, numel: int) -> float:
        """Bytes read per element when ``numel`` elements are computed; small operands stay in the cache."""
        return sum(leaf.dtype.itemsize * min(1.0, prod(leaf.max_shape) / max(numel, 1)) for leaf in self.leaves)


def reduce_terms(u: UOp) -> int:
    """Return how many terms one result of a REDUCE combines."""
    shape = u.src[0].max_shape
    axes: tuple[int, ...] = u.arg[1]
    return prod(tuple(shape[a] for a in axes))


def is_tiny(u: UOp, below: Cost) -> bool:
    """Return whether a REDUCE combines so few terms that it counts as elementwise.

    One tiny reduction inside another would be computed once per term of the outer one, so it does not count.
    """
    return reduce_terms(u) <= TINY_REDUCE and not below.has_tiny and not is_contraction(u)


def rounds_by_order(u: UOp) -> bool:
    """Return whether a node is a reduction whose bits depend on the order of its terms and on fused products."""
    return u.op is Ops.REDUCE and u.arg[0] in (Ops.ADD, Ops.MUL) and dtypes.is_float(u.dtype) and reduce_terms(u) > 1


def node_cost(u: UOp, costs: dict[UOp, Cost]) -> Cost:
    """Return the cost of one element of ``u`` from the costs of its sources."""
    if u.op in GroupOp.Movement:
        below = costs[u.src[0]]
        if u.op is Ops.PAD:
            return replace(below, ops=below.ops + OP_COST[Ops.PAD], nodes=below.nodes + 1)
        return below
    terms = 1
    if u.op is Ops.REDUCE:
        if not is_tiny(u, costs[u.src[0]]):
            return Cost(frozenset({u}), reduces=frozenset({u}))
        terms = reduce_terms(u)
    leaves: frozenset[UOp] = frozenset()
    reduces: frozenset[UOp] = frozenset()
    ops, nodes, has_tiny = OP_COST.get(u.op, 1.0), 1, u.op is Ops.REDUCE
    for s in u.src:
        below = costs[s]
        leaves |= below.leaves
        reduces |= below.reduces
        ops += below.ops
        nodes += below.nodes
        has_tiny |= below.has_tiny
    return Cost(leaves, ops * terms, nodes, reduces, has_tiny)


def with_shared_nodes(u: UOp, cost: Cost, costs: dict[UOp, Cost]) -> Cost:
    """Return a cost that is too big with every node of the body counted once, however many others use it.

    The sums of ``node_cost`` count a shared node once for each use, and what it is made of, too. What is read through
    a view counts as it was: through another view it is another computation.
    """
    if cost.nodes <= MAX_OPS:
        return cost
    found, stack, nodes = {u}, [u], 0
    while stack and nodes <= MAX_OPS:
        nodes += 1
        for s in stack.pop().src:
            if s in found:
                continue
            found.add(s)
            if s.op in GroupOp.Movement or s.op is Ops.REDUCE:
                nodes += costs[s].nodes
            elif costs[s].nodes:
                stack.append(s)
    return replace(cost, nodes=nodes)


def too_big(cost: Cost) -> bool:
    """Return whether a kernel body should end here."""
    return cost.nodes > MAX_OPS or len(cost.leaves) > MAX_LEAVES


def worth_storing(u: UOp, cost: Cost, uses: int) -> bool:
    """Return whether a value that is needed in ``uses`` places is cheaper to store than to compute in each."""
    numel = prod(u.max_shape)
    size = u.dtype.itemsize
    once = cost.load_bytes(numel) + cost.ops * BYTES_PER_OP
    return uses * once > size + uses * size + once


def worth_storing_operand(cost: Cost, reuse: float) -> bool:
    """Return whether an operand that a contraction reads ``reuse`` times per element should be stored first."""
    return reuse >= REUSE and cost.ops * reuse * BYTES_PER_OP > 6


def fits_as_row(u: UOp, rows: int, total: int) -> bool:
    """Return whether a reduction should run inside the loop of what uses it again along the reduced axes.

    Args:
        u: The REDUCE.
        rows: Results of the reduction, each computed once per iteration of the outer loops.
        total: Elements of the kernel that uses it.
    """
    if total <= SMALL_KERNEL:
        return True
    return rows >= MIN_ROWS and reduce_terms(u) * u.dtype.itemsize <= ROW_BYTES
