"""Walks over graphs: their order, what gates leave out, and properties of deep graphs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import CallInfo, UOp


def graph(seed: int, size: int = 60) -> UOp:
    """Return a random graph whose nodes have many users and between none and three sources."""
    rng = random.Random(seed)
    nodes = [UOp.variable(f"v{i}", 0, 9) for i in range(3)]
    for i in range(size):
        count = rng.choice((1, 2, 2, 3))
        src = tuple(rng.choices(nodes[-8:], k=count))
        nodes.append(UOp(Ops.CUSTOMI, dtypes.weakint, src, f"f{i}"))
    return UOp.sink(*nodes[-3:], nodes[0])


def in_order(u: UOp, gate: Callable[[UOp], bool], enter_calls: bool, found: dict[UOp, None]) -> dict[UOp, None]:
    """Return what ``toposort`` promises, by its definition: sources from left to right, then the node."""
    if u not in found and gate(u):
        skipped = 1 if u.op is Ops.CALL and not enter_calls else 0
        for s in u.src[skipped:]:
            in_order(s, gate, enter_calls, found)
        found[u] = None
    return found


@pytest.mark.parametrize("seed", range(8))
def test_order(seed: int) -> None:
    root = graph(seed)
    assert list(root.toposort()) == list(in_order(root, lambda u: True, True, {}))


@pytest.mark.parametrize("seed", range(8))
def test_gate(seed: int) -> None:
    root = graph(seed)

    def gate(u: UOp) -> bool:
        return u.op is not Ops.CUSTOMI or int(u.arg[1:]) % 4 != 0

    assert list(root.toposort(gate)) == list(in_order(root, gate, True, {}))
    assert not root.toposort(lambda u: False)


@pytest.mark.parametrize("enter_calls", [False, True])
def test_bodies_of_calls(enter_calls: bool) -> None:
    body = UOp.sink(UOp.variable("inside", 0, 9) + 1)
    call = UOp(Ops.CALL, dtypes.void, (body, UOp.variable("given", 0, 9)), CallInfo())
    walked = UOp.sink(call).toposort(enter_calls=enter_calls)
    assert list(walked) == list(in_order(UOp.sink(call), lambda u: True, enter_calls, {}))
    assert (body in walked) is enter_calls


def test_properties_of_deep_graphs() -> None:
    x = deep = UOp.new_buffer("CPU", 4, dtypes.float32)
    for i in range(5000):
        deep = UOp(Ops.NEG if i % 2 else Ops.SIN, dtypes.float32, (deep,))
    root = deep.alu(Ops.MUL, x)
    assert root.shape == (4,)
    assert root.device == "CPU"
    assert root.op_in_backward_slice_with_self(Ops.EXP2, Ops.SIN)
    assert not root.op_in_backward_slice_with_self(Ops.EXP2, Ops.ADD)
    assert not root.op_in_backward_slice_with_self()
    assert root.footprint & x.footprint_bit
    assert len(root.toposort()) == 5002


def test_an_error_in_a_deep_graph_leaves_it_usable() -> None:
    x, y = (UOp.new_buffer("CPU", size, dtypes.float32) for size in (4, 5))
    good = UOp(Ops.NEG, dtypes.float32, (UOp(Ops.NEG, dtypes.float32, (x,)),))
    bad = UOp(Ops.NEG, dtypes.float32, (UOp(Ops.ADD, dtypes.float32, (good, y)),))
    for _ in range(2):
        with pytest.raises(ValueError, match="broadcast"):
            _ = bad.shape
    assert good.shape == (4,)
