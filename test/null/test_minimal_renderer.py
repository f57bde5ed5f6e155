"""A target with the fewest operations gets no others, whatever the kernel: what docs/adding-a-backend.md promises."""

from collections.abc import Callable

import pytest

from tinygrad import Tensor
from tinygrad.codegen import full_rewrite_to_sink, lower_to_list
from tinygrad.renderer.python import PythonRenderer
from tinygrad.target import Target
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

X = Tensor.empty(6, 8, device="PYTHON")
INTS = Tensor.empty(6, 8, device="PYTHON", dtype="int32")


def kernels(tensor: Tensor) -> list[UOp]:
    return [call.src[0] for call in tensor.schedule_linear().src if call.src[0].op is Ops.SINK]


@pytest.mark.parametrize("arch", ["minimal", "minimal,vec0", "minimal,local", "minimal,threads"])
@pytest.mark.parametrize(
    "build",
    [
        lambda: X.max(axis=1),
        lambda: INTS.max(),
        lambda: (X > 0).any(axis=0),
        lambda: X.softmax(),
        lambda: X.argmax(axis=1),
        lambda: X.maximum(0.5).minimum(INTS),
        lambda: X.sin() + X.log() + X.sqrt() - X.exp(),
        lambda: INTS // 3 + INTS % 5 - INTS.div(7, rounding_mode="trunc"),
        lambda: X @ X.T,
        lambda: Tensor.rand(8, device="PYTHON"),
    ],
    ids=["max", "max of ints", "any", "softmax", "argmax", "maximum", "functions", "division", "matmul", "rand"],
)
def test_only_declared_operations(build: Callable[[], Tensor], arch: str) -> None:
    renderer = PythonRenderer(Target.parse(f"PYTHON::{arch}"))
    found = kernels(build())
    assert found
    for kernel in found:
        program = lower_to_list(full_rewrite_to_sink(kernel, renderer), renderer)
        assert {u.op for u in program if u.op in GroupOp.ALU} <= PythonRenderer.MINIMAL
