"""Write docs/developer/layout.md: every file of the package in processing order, with what its docstring says.

In:   the files of tinygrad/.
Out:  the page on standard output; ``--write`` changes the file.
Why:  a page that is made from the sources cannot be out of date without a test failing.
"""

from __future__ import annotations

# ruff: noqa: E501  the page has long lines
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "developer" / "layout.md"

HEAD = """# Layout

<!-- Made by docs/developer/make_layout.py from the docstrings of the files: run it with --write after adding a file. -->

Folders are stages, listed in the order in which a program passes through them. Imports point one way, from a stage to itself
or to an earlier one in the list of `test/null/test_import_order.py`. The docstring of each file says what comes in, what
goes out and why; this page has their first sentences.

"""
TAIL = """
## Around the package

| path | holds |
| --- | --- |
| `examples/` | programs that run with one command; `beautiful_mnist.py` first |
| `docs/` | [quickstart](../quickstart.md), [runtime](../runtime.md), [switches](../env_vars.md), [backends](../adding-a-backend.md), and this folder |
| `test/null/` | tests of graphs, rules and schedules: no device |
| `test/unit/` | tests on the CPU, those of the pages in `docs/` among them |
| `test/backend/` | the conformance tests: the same files run on every device |
| `test/models/` | whole networks, small |
| `test/external/` | what needs the network, large data or much time; [process replay](../../test/external/process_replay/README.md) |
| `bench/` | ratios to other frameworks, measured in one run |
| `extra/` | what is useful but not core |
"""

# (title, sentence, files and folders in order); a folder stands for its files that no other section names.
SECTIONS: list[tuple[str, str, list[str]]] = [
    (
        "Values and settings",
        "What everything else stands on.",
        [
            "settings.py", "forking.py", "target.py", "errors.py", "keywords.py", "boundary.py", "text.py", "helpers.py", "system.py", "progress.py", "fetching.py",
            "diskcache.py", "fingerprint.py", "profiling.py", "constants.py", "scalars.py", "dtype_lattice.py", "dtype.py",
            "rounding.py",
        ],
    ),
    (
        "Graph and rewriting: `uop/`",
        "The one data structure, the engine that rewrites it, and the algebra of indices.",
        [
            "uop/__init__.py", "uop/ops.py", "uop/derived.py", "uop/storage.py", "uop/labels.py", "uop/finished.py", "uop/variables.py", "uop/kernels.py",
            "uop/walking.py", "uop/records.py", "uop/infer.py", "uop/alu.py", "uop/upat.py",
            "uop/matcher.py", "uop/matchcode.py", "uop/rewrite.py", "uop/tracing.py", "uop/symbolic.py", "uop/divmod.py",
            "uop/validity.py", "uop/bounds.py", "uop/spec.py", "uop",
        ],
    ),
    (
        "Operators: `mixin/`",
        "Methods that Tensor and UOp share; nothing here computes.",
        [
            "mixin/__init__.py", "mixin/hooks.py", "mixin/views.py", "mixin/movement.py", "mixin/padding.py", "mixin/windows.py", "mixin/creation.py", "mixin/elementwise.py",
            "mixin/operators.py", "mixin/python_operators.py", "mixin/rounding.py", "mixin/division.py", "mixin/unary.py", "mixin/trigonometry.py", "mixin/activation.py", "mixin/reduce.py", "mixin/op.py", "mixin/rand.py",
            "mixin/gradient.py", "mixin/gradient_sums.py", "mixin/written_views.py", "mixin/products.py", "mixin",
        ],
    ),
    (
        "Frontend",
        "What a user holds.",
        [
            "tensor.py", "training_flags.py", "properties.py", "placement.py", "construct.py", "reading.py", "writing.py", "backward.py", "calls.py", "live.py", "realizing.py",
            "pending.py", "torch_names", "in_place.py", "name_hints", "function.py", "middleware.py",
        ],
    ),
    (
        "Scheduler: `schedule/`",
        "From a tensor graph to a list of kernels.",
        [
            "schedule/__init__.py", "schedule/normalize.py", "schedule/plan.py", "schedule/planning.py",
            "schedule/prepare.py", "schedule/gather.py",
            "schedule/fusion.py", "schedule/stand_ins.py", "schedule/bufferize.py", "schedule/rangeify.py",
            "schedule/indexing.py", "schedule/split.py",
            "schedule/siblings.py", "schedule/packing.py", "schedule/ordering.py", "schedule/kernel.py", "schedule/labels.py", "schedule/emit.py",
            "schedule/memory.py", "schedule",
        ],
    ),
    (
        "Code generator: `codegen/`",
        "From one kernel to instructions in order: simplify, optimise (`opt/`), decompose (`decomp/`), lower (`late/`).",
        [
            "codegen/__init__.py", "codegen/program_cache.py", "codegen/kernel_record.py", "codegen/pipeline.py",
            "codegen/simplify.py",
            "codegen/opt/__init__.py", "codegen/opt/policy.py", "codegen/opt/analysis.py", "codegen/opt/contraction.py",
            "codegen/opt/reduce.py", "codegen/opt/loops.py", "codegen/opt/schedule.py", "codegen/opt",
            "codegen/decomp/__init__.py", "codegen/decomp", "codegen/late/__init__.py", "codegen/late/lower.py",
            "codegen/late/reduce.py", "codegen/late/linearizer.py", "codegen/late", "codegen",
        ],
    ),
    ("Renderers: `renderer/`", "From instructions to text.", ["renderer/__init__.py", "renderer"]),
    (
        "Devices: `runtime/`",
        "Memory, and programs that run.",
        ["device.py", "buffer.py", "allocator.py", "runtime/__init__.py", "runtime"],
    ),
    (
        "Engine: `engine/`",
        "Running schedules, and replaying them.",
        [
            "engine/__init__.py", "engine/realize.py", "engine/launch.py", "engine/report.py", "engine/capturing.py",
            "engine/jit.py", "engine/arguments.py", "engine/capture.py", "engine/replay.py", "engine/graph.py", "engine/graph_events.py", "engine",
        ],
    ),
    ("Layers and training: `nn/`", "On top of Tensor.", ["nn/__init__.py", "nn/optim.py", "nn/state.py", "nn"]),
    ("Language models: `llm/`", "", ["llm/__init__.py", "llm"]),
    ("Viewer: `viz/`", "", ["viz/__init__.py", "viz"]),
    ("The rest", "", ["."]),
]  # fmt: skip


def first_sentence(path: Path) -> str:
    """Return the first sentence of a file's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split()).rstrip(".").replace("|", "\\|").replace("``", "`")


def files_in_order() -> Iterator[tuple[str, str, list[Path]]]:
    """Yield (title, sentence, files) of every section that has files."""
    package = ROOT / "tinygrad"
    left = dict.fromkeys(sorted(package.rglob("*.py")))
    named = {package / entry for _, _, entries in SECTIONS for entry in entries if entry.endswith(".py")}
    for title, sentence, entries in SECTIONS:
        files: list[Path] = []
        for entry in entries:
            path = package / entry
            found = [path] if path.is_file() else [f for f in left if path in f.parents and f not in named]
            for file in found:
                if file in left:
                    files.append(file)
                    del left[file]
        if files:
            yield title, sentence, files


def page() -> str:
    """Return the page."""
    text = HEAD
    for title, sentence, files in files_in_order():
        text += f"## {title}\n\n" + (f"{sentence}\n\n" if sentence else "") + "| file | does |\n| --- | --- |\n"
        text += "".join(f"| `{file.relative_to(ROOT)}` | {first_sentence(file)} |\n" for file in files) + "\n"
    return text.rstrip("\n") + "\n" + TAIL


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
