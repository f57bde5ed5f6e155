"""TRACEMETA: which method made a node, and which methods a kernel computes."""

import subprocess
import sys

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.engine.realize import compile_linear
from tinygrad.profiling import _METADATA, Metadata
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, all_metadata, graph_rewrite


def fresh(*shape: int) -> Tensor:
    """Return a tensor whose graphs no other test has made: its numbers of elements are its own."""
    return Tensor(np.random.default_rng(0).random(shape).astype(np.float32)).clone().realize()


def names(u: UOp) -> list[str]:
    return [str(label) for label in u.metadata or ()]


def kernel_names(*tensors: Tensor) -> list[list[str]]:
    return [names(call) for call in tensors[0].schedule_linear(*tensors[1:]).src if call.src[0].op is not Ops.COPY]


def test_a_node_has_the_name_of_the_method_that_made_it() -> None:
    x = fresh(3, 61)
    assert names(x.relu().uop) == ["relu"]
    assert names((x + 17).uop) == ["add"]
    assert names((17 - x).uop) == ["rsub"]
    assert names(x[1:, 3:].uop) == ["getitem"]
    assert names(x.sum(1).uop) == ["sum"]


def test_the_outermost_method_counts() -> None:
    x = fresh(3, 62)
    inner = {u for u in x.softmax(1).uop.toposort() if u.device is not None and u not in x.uop.toposort()}
    assert inner
    assert {tuple(names(u)) for u in inner} == {("softmax",)}
    layer = nn.LayerNorm(62)
    assert names(layer(x).uop) == ["LayerNorm"]


def test_an_error_inside_leaves_no_label_behind() -> None:
    x = fresh(3, 63)
    with pytest.raises(ValueError, match="broadcast"):
        x + fresh(4, 64)
    assert _METADATA.get() is None


def test_switched_off() -> None:
    x = fresh(3, 65)
    with Context(TRACEMETA=0):
        y = x.exp().sum(0)
        assert y.uop.metadata is None
        assert kernel_names(y) == [[]]


def test_kernels_name_what_is_fused_into_them() -> None:
    x = fresh(7, 66)
    assert kernel_names((x * 3).tanh().sum(1)) == [["mul", "tanh", "sum"]]


def test_a_schedule_from_the_cache_names_its_kernels_too() -> None:
    x, y = fresh(7, 67), fresh(7, 67)
    for t in (x, y):
        assert kernel_names(t.sqrt().max(1)) == [["sqrt", "max"]]


def test_a_schedule_from_the_disk_names_its_kernels_too() -> None:
    code = """
import sys
from tinygrad import Tensor
if {second}:
    sys.modules["tinygrad.schedule.planning"] = None  # scheduling anew would fail
linear = (Tensor.empty(5, 69).log2() * 3).sum(1).schedule_linear()
print([[str(m) for m in call.metadata] for call in linear.src])
"""
    for second in (False, True):
        run = [sys.executable, "-c", code.format(second=second)]
        assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "[['log2', 'mul', 'sum']]\n"


def test_nodes_of_a_gradient_have_the_name_of_what_they_differentiate() -> None:
    x = fresh(7, 68)
    (found,) = x.sin().sum().gradient(x)
    assert "sin bw" in [name for u in found.uop.toposort() for name in names(u)]
    assert any("sin bw" in kernel for kernel in kernel_names(found))


def test_a_label_is_no_part_of_a_node() -> None:
    x = fresh(3, 70)
    made, again = (x * 2).uop, x.mul(2).uop
    assert made is again
    with Context(TRACEMETA=0):
        assert (x * 2).uop is made
    assert Metadata("relu") in (x.relu().uop.metadata or ())


def test_rewriting_keeps_labels() -> None:
    x = fresh(3, 71)
    u = (x.exp() * 2).uop
    double = PatternMatcher([(UPat(Ops.MUL, src=(UPat.var("y"), UPat.cvar())), lambda y: y + y)])
    changed = graph_rewrite(u, double)
    assert changed.op is Ops.ADD
    assert names(changed) == ["mul"]
    assert names(u.replace(tag=5)) == ["mul"]
    moved = u.substitute({x.uop: fresh(3, 71).uop})
    assert moved is not u
    assert names(moved) == ["mul"]


def test_captured_kernels_keep_their_labels() -> None:
    jitted = TinyJit(lambda x: (x.exp() + 1).realize())
    for _ in range(3):
        jitted(fresh(7, 72))
    assert [names(call) for call in jitted.captured.linear.src] == [["exp", "add"]]


def test_compiled_schedules_keep_their_labels() -> None:
    linear = (fresh(7, 73) * 5).schedule_linear()
    assert [names(call) for call in compile_linear(linear).src] == [["mul"]]


def test_lines_of_debug_2_name_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    x = fresh(7, 74)
    with Context(DEBUG=2):
        (x.relu() + 3).realize()
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("***"))
    assert line.endswith("relu, add")


def test_all_metadata_is_a_view_of_the_labels() -> None:
    u = fresh(3, 75).abs().uop
    assert all_metadata[u] == (Metadata("abs"),)
    assert u in all_metadata
    assert u in set(all_metadata)
    all_metadata[u] = (Metadata("mine"), Metadata("yours", backward=True))
    assert names(u) == ["mine", "yours bw"]
    del all_metadata[u]
    assert u not in all_metadata
    assert u.metadata is None
    with pytest.raises(KeyError):
        all_metadata[u]


def test_a_label_of_the_user() -> None:
    x = fresh(3, 76)
    token = _METADATA.set(Metadata("my layer"))
    try:
        y = x.exp() + 1
    finally:
        _METADATA.reset(token)
    assert kernel_names(y) == [["my layer"]]
