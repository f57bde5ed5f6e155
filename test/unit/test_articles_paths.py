"""Files, folders and names that the public articles point at exist under exactly these paths."""

import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = """
tinygrad/tensor.py tinygrad/function.py tinygrad/mixin/elementwise.py tinygrad/mixin/movement.py tinygrad/mixin/op.py
tinygrad/mixin/gradient.py tinygrad/uop/ops.py tinygrad/uop/__init__.py tinygrad/codegen tinygrad/codegen/simplify.py
tinygrad/codegen/opt tinygrad/codegen/decomp tinygrad/codegen/late tinygrad/schedule tinygrad/renderer
tinygrad/runtime tinygrad/runtime/ops_cpu.py tinygrad/runtime/ops_python.py tinygrad/engine/jit.py tinygrad/nn
tinygrad/nn/optim.py examples/beautiful_mnist.py test/backend/test_ops.py test/null/test_pattern_matcher.py
test/test_uops.py test/external/process_replay docs/quickstart.md docs/runtime.md docs/env_vars.md
docs/developer/developer.md test/test_tiny.py
""".split()  # noqa: SIM905  easier to read and to move about
# Named by the articles and still to be written; a path that has arrived moves up.
PLANNED = """
tinygrad/viz test/models/efficientnet extra/models extra/datasets tinygrad/runtime/ops_nv.py
tinygrad/runtime/ops_amd.py tinygrad/runtime/ops_cuda.py tinygrad/runtime/ops_metal.py tinygrad/runtime/ops_cl.py
tinygrad/runtime/ops_webgpu.py tinygrad/runtime/ops_qcom.py
""".split()  # noqa: SIM905  easier to read and to move about
NAMES = """
tinygrad.Tensor tinygrad.TinyJit tinygrad.Context tinygrad.Device tinygrad.dtypes tinygrad.function tinygrad.nn
tinygrad.tensor.Tensor.__slots__ tinygrad.tensor.Tensor.__init__ tinygrad.tensor.all_tensors tinygrad.tensor._fromnp
tinygrad.tensor._apply_map_to_tensors tinygrad.tensor.Tensor._apply_uop tinygrad.tensor.Tensor.alu
tinygrad.tensor.Tensor._mop tinygrad.tensor.Tensor._rop tinygrad.tensor.Tensor.backward tinygrad.tensor.Tensor.from_blob
tinygrad.tensor.Tensor.kaiming_uniform tinygrad.tensor.Tensor.randint tinygrad.tensor.Tensor.training
tinygrad.tensor.Tensor.requires_grad tinygrad.mixin.elementwise.ElementwiseMixin.alu
tinygrad.mixin.elementwise.ElementwiseMixin._binop tinygrad.mixin.movement.MovementMixin tinygrad.mixin.op.OpMixin.dot
tinygrad.mixin.op.OpMixin.gradient tinygrad.mixin.gradient.pm_gradient tinygrad.mixin.gradient.reduce_gradient
tinygrad.mixin.gradient.compute_gradient tinygrad.mixin.gradient._deepwalk tinygrad.mixin.gradient.call_gradient
tinygrad.function._function tinygrad.function._function.__call__ tinygrad.function.pm_ctx
tinygrad.nn.optim.Optimizer.schedule_step tinygrad.nn.optim.Adam tinygrad.engine.jit.TinyJit tinygrad.helpers.Timing
tinygrad.uop.ops.PatternMatcher tinygrad.uop.ops.UOp.variable tinygrad.uop.ops.UOp.const tinygrad.uop.ops.UOp._frompy
tinygrad.uop.ops.UOp.call tinygrad.uop.ops.UOp.copy_to_device tinygrad.uop.ops.UPat tinygrad.uop.ops.graph_rewrite
tinygrad.uop.GroupOp.Movement tinygrad.uop.GroupOp.ALU
""".split()  # noqa: SIM905  easier to read and to move about


def resolve(path: str) -> object:
    """Return what ``package.module.name.attribute`` stands for."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"there is no module in {path}")


@pytest.mark.parametrize("path", FILES)
def test_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", PLANNED)
def test_planned_paths_move_up_when_they_arrive(path: str) -> None:
    assert not (ROOT / path).exists(), f"{path} is here: move it from PLANNED to FILES, which keeps it here"


@pytest.mark.parametrize("path", NAMES)
def test_name_exists(path: str) -> None:
    assert resolve(path) is not None


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("tinygrad.uop.ops.UOp", "tinygrad/uop/ops.py"),
        ("tinygrad.tensor.Tensor", "tinygrad/tensor.py"),
        ("tinygrad.engine.jit.TinyJit", "tinygrad/engine/jit.py"),
        ("tinygrad.mixin.gradient.compute_gradient", "tinygrad/mixin/gradient.py"),
        ("tinygrad.mixin.elementwise.ElementwiseMixin", "tinygrad/mixin/elementwise.py"),
        ("tinygrad.mixin.op.OpMixin.dot", "tinygrad/mixin/op.py"),
        ("tinygrad.nn.optim.Optimizer", "tinygrad/nn/optim.py"),
        ("tinygrad.nn.datasets.mnist", "tinygrad/nn/datasets.py"),
    ],
)
def test_names_are_defined_where_the_articles_look_for_them(path: str, file: str) -> None:
    found = resolve(path)
    defined = found if inspect.isclass(found) else inspect.unwrap(found)
    assert Path(inspect.getsourcefile(defined)) == ROOT / file


def test_the_testing_extra() -> None:
    assert "\ntesting = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
