"""Imports point one way: from a stage to itself or to an earlier one. Imports inside of functions count."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The stages in order. A longer prefix wins: "tinygrad.uop" itself only holds the names of the operations.
ORDER = [
    (
        "helpers",
        "enums record forking signals text progress errors keywords boundary target settings system fetching "
        "fingerprint diskcache profiling integers recent helpers",
    ),
    ("dtype", "constants scalars rounding dtype_lattice dtype"),
    ("device", "allocator buffer executable device"),
    ("op names", "uop"),
    ("mixin", "mixin.*"),
    ("uop", "uop.*"),
    ("frontend storage", "construct live retracing gradient_marks origins families repointing pending copying"),
    ("middleware", "middleware"),
    ("schedule", "schedule.*"),
    ("codegen", "codegen.*"),
    ("renderer", "renderer.*"),
    ("runtime", "runtime.*"),
    ("engine", "engine.*"),
    (
        "tensor",
        "interrupted realizing reading calls torch_names torch_names.* in_place own_values name_hints name_hints.* "
        "training_flags properties placement writing backward tensor function",
    ),
    ("nn", "nn.* llm.* apps.*"),
    ("viz", "viz.*"),
]
# Upward edges that are meant: (importing module, imported module) -> reason. A trailing * stands for any ending.
ALLOWED: dict[tuple[str, str], str] = {
    # Inherent.
    ("tinygrad.mixin.gradient", "tinygrad.uop.*"): "the table of gradients is frontend, written with the matcher",
    ("tinygrad.mixin.*", "tinygrad.uop.ops"): "UOp inherits from the mixins, so they can name it only when they run",
    ("tinygrad.mixin.*", "tinygrad.uop.infer"): "shape and dtype rules, which need neither UOp nor the mixins",
    ("tinygrad.mixin.composite", "tinygrad.uop.sint"): "symbolic sizes are nodes",
    ("tinygrad.engine.*", "tinygrad.tensor"): "TinyJit takes and returns Tensors",
    ("tinygrad.device", "tinygrad.runtime"): "devices are plug-ins: an unknown name is answered with the files there",
    # To be removed.
    ("tinygrad.codegen.pipeline", "tinygrad.renderer"): "Estimates and kernel_arguments belong to the linear program",
    ("tinygrad.renderer.*", "tinygrad.runtime.support.*"): "a device should give its renderer the compiler",
    ("tinygrad.uop.spec", "tinygrad.codegen.opt"): "Opt belongs to the records of uop/",
    ("tinygrad.mixin.random_state", "tinygrad.tensor"): "the counters of random numbers belong beside Tensor",
    ("tinygrad.mixin.random_state", "tinygrad.engine.capturing"): "the same",
    ("tinygrad.mixin.creation", "tinygrad.construct"): "values from Python belong to the frontend",
    ("tinygrad.mixin.setitem", "tinygrad.live"): "writes in place re-point Tensors, so they belong beside Tensor",
    ("tinygrad.mixin.setitem", "tinygrad.repointing"): "the same",
}


def modules() -> dict[str, Path]:
    """Return the modules of the package by name."""
    found = {}
    for path in sorted((ROOT / "tinygrad").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def stage_of(module: str) -> int | None:
    """Return the position of a module's stage; None for the package itself and for modules that have no place yet."""
    name = module.removeprefix("tinygrad").removeprefix(".")
    if not name:
        return None
    best: tuple[int, int] | None = None
    for position, (_, members) in enumerate(ORDER):
        for member in members.split():
            stem = member.removesuffix(".*")
            if name == stem or (member.endswith(".*") and name.startswith(stem + ".")):
                # uop.* covers uop.ops; the exact name "uop" is more specific than the pattern for the package alone.
                weight = len(member) + (100 if name == member else 0)
                if best is None or weight > best[0]:
                    best = (weight, position)
    return None if best is None else best[1]


def imports_of(module: str, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (imported module, line) of every import that runs, wherever it stands."""
    for node in _running(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if MODULES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
                parts = package.split(".")
                base = ".".join(parts[: len(parts) - node.level + 1] + ([base] if base else []))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield (full if full in MODULES else base), node.lineno


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without what only type checkers see."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            stack.extend(node.orelse)
            continue
        yield node
        stack.extend(ast.iter_child_nodes(node))


@functools.cache
@functools.cache
def upward_edges() -> dict[tuple[str, str], int]:
    """Return the edges that point to a later stage, with the line of the first."""
    found: dict[tuple[str, str], int] = {}
    for module, path in MODULES.items():
        here = stage_of(module)
        for imported, line in imports_of(module, ast.parse(path.read_text(encoding="utf-8"))):
            if imported.partition(".")[0] != "tinygrad" or imported not in MODULES:
                continue
            there = stage_of(imported)
            if here is not None and there is not None and there > here:
                found.setdefault((module, imported), line)
    return found


def allowed_by(edge: tuple[str, str]) -> tuple[str, str] | None:
    """Return the entry of ALLOWED that permits an edge."""
    for entry in ALLOWED:
        if all(name == wanted or (wanted.endswith("*") and name.startswith(wanted[:-1]))
               for name, wanted in zip(edge, entry, strict=True)):  # fmt: skip
            return entry
    return None


def test_every_module_has_a_place() -> None:
    homeless = [module for module in MODULES if module != "tinygrad" and stage_of(module) is None]
    assert not homeless, f"give these a place in ORDER: {homeless}"


def test_imports_point_one_way() -> None:
    wrong = [
        f"{MODULES[importer].relative_to(ROOT)}:{line} imports {imported} "
        f"({ORDER[stage_of(importer)][0]} -> {ORDER[stage_of(imported)][0]})"
        for (importer, imported), line in upward_edges().items()
        if allowed_by((importer, imported)) is None
    ]
    assert not wrong, "a stage imports a later one; move the type, or pass what is needed:\n" + "\n".join(wrong)


@pytest.mark.parametrize("entry", ALLOWED, ids=" -> ".join)
def test_every_exception_is_used(entry: tuple[str, str]) -> None:
    assert entry in {allowed_by(edge) for edge in upward_edges()}, f"remove it: {ALLOWED[entry]}"


def test_an_upward_edge_is_found() -> None:
    text = "if TYPE_CHECKING:\n    import tinygrad.nn\ndef f():\n    from tinygrad.nn import optim"
    found = list(imports_of("tinygrad.uop.ops", ast.parse(text)))
    assert [name for name, _ in found if name.startswith("tinygrad")] == ["tinygrad.nn.optim"]
    assert stage_of("tinygrad.nn.optim") > stage_of("tinygrad.uop.ops") > stage_of("tinygrad.uop")
