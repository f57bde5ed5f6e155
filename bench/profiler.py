"""Where compile time goes: seconds, visited nodes and rule counts per stage, each counted for the innermost stage.

In:   a table of functions, each with the name of its stage; the functions are wrapped in place.
Out:  ``Profiler.totals``: stage -> ``Cost``. What runs in no stage counts for ``REST``.
Why:  a sampling or tracing profiler slows Python down by half and cannot say for which stage the rewriter works.
"""

from __future__ import annotations

import functools
import gc
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

REST: Final = "building graphs, other Python"

# Stage, module, name in it ("Class.method" for a method).
STAGES: Final = (
    ("gradient", "tinygrad.mixin.gradient", "compute_gradient"),
    ("schedule: normalise", "tinygrad.schedule.normalize", "normalize"),
    ("schedule: prepare", "tinygrad.schedule.prepare", "prepare"),
    ("schedule: ranges, fusion", "tinygrad.schedule.planning", "build_kernels"),
    ("schedule: merge siblings", "tinygrad.schedule.siblings", "merge_siblings"),
    ("schedule: pack operands", "tinygrad.schedule.packing", "pack_operands"),
    ("schedule: order", "tinygrad.schedule.ordering", "order_kernels"),
    ("schedule: emit kernels", "tinygrad.schedule.emit", "kernel_ast"),
    ("schedule: plan memory", "tinygrad.schedule.plan", "place_intermediates"),
    ("caches on disk", "tinygrad.schedule.plan", "load_plan"),
    ("caches on disk", "tinygrad.schedule.plan", "save_plan"),
    ("caches on disk", "tinygrad.codegen.program_cache", "load_program"),
    ("caches on disk", "tinygrad.codegen.program_cache", "save_program"),
    ("kernel: simplify", "tinygrad.codegen.simplify", "simplify_kernel"),
    ("kernel: optimise", "tinygrad.codegen.opt.policy", "optimize_kernel"),
    ("kernel: decompose", "tinygrad.codegen.decomp", "decompose"),
    ("kernel: lower", "tinygrad.codegen.pipeline", "lower_to_list"),
    ("kernel: linearise", "tinygrad.codegen.late.linearizer", "linearize"),
    ("kernel: render", "tinygrad.renderer.llvmir", "LLVMRenderer.render"),
    ("kernel: LLVM", "tinygrad.runtime.support.compiler_llvm", "LLVMCompiler.compile"),
    ("load code", "tinygrad.engine.launch", "get_runtime"),
    ("run kernels", "tinygrad.engine.launch", "KernelLaunch.launch"),
)


@dataclass
class Cost:
    """What one stage took."""

    seconds: float = 0.0
    calls: int = 0
    nodes: int = 0
    tries: int = 0
    hits: int = 0


class Profiler:
    """Counts for the innermost running stage; one thread only (PARALLEL=1)."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.totals: dict[str, Cost] = {REST: Cost()}
        self.clock = clock
        self.running = [self.totals[REST]]
        self.rules: dict[int, Any] = {}
        self._since, self._tries, self._hits = clock(), 0, 0

    def settle(self) -> None:
        """Give what was spent since the last change of stage to the running stage."""
        now, cost = self.clock(), self.running[-1]
        cost.seconds += now - self._since
        if self.rules:
            rules = list(self.rules.values())
            tries, hits = sum(r.tries for r in rules), sum(r.hits for r in rules)
            cost.tries += tries - self._tries
            cost.hits += hits - self._hits
            self._tries, self._hits = tries, hits
        self._since = self.clock()  # counting itself is nobody's time

    def wrap(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, counted as part of a stage."""
        cost = self.totals.setdefault(stage, Cost())

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.settle()
            self.running.append(cost)
            cost.calls += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.settle()
                self.running.pop()

        return counted

    def install(self) -> None:
        """Wrap the functions of ``STAGES`` and the rewriter, wherever they were imported to."""
        for stage, owner, name, function in resolve_stages():
            _replace(owner, name, function, self.wrap(stage, function))
        self._count_nodes()

    def _count_nodes(self) -> None:
        from tinygrad.uop import rewrite

        run = rewrite._Rewrite.run

        def counted(rewriting: Any, root: Any) -> Any:
            try:
                return run(rewriting, root)
            finally:
                self.running[-1].nodes += len(rewriting.replaced)

        rewrite._Rewrite.run = counted  # type: ignore[assignment,method-assign]

    def watch_rules(self) -> None:
        """Count tries and hits; needs TRACK_MATCH_STATS=1. Tables made later are watched too."""
        from tinygrad.uop.matcher import PatternMatcher

        for found in gc.get_objects():
            if isinstance(found, PatternMatcher):
                self.rules |= {id(rule): rule for rule in found.rules}
        setup = PatternMatcher._setup

        def watched(matcher: Any, rules: Any, *args: Any) -> None:
            self.rules |= {id(rule): rule for rule in rules}
            setup(matcher, rules, *args)

        PatternMatcher._setup = watched  # type: ignore[assignment,method-assign]


def resolve_stages() -> Iterator[tuple[str, Any, str, Callable[..., Any]]]:
    """Yield stage, owner (a module or class), name and function of every row of ``STAGES``.

    Raises:
        AttributeError: A function was renamed or moved: the table must follow.
    """
    for stage, module, path in STAGES:
        owner: Any = importlib.import_module(module)
        *parts, name = path.split(".")
        for part in parts:
            owner = getattr(owner, part)
        yield stage, owner, name, getattr(owner, name)


def _replace(owner: Any, name: str, function: Callable[..., Any], by: Callable[..., Any]) -> None:
    setattr(owner, name, by)
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "tinygrad":
            for other, value in list(vars(module).items()):
                if value is function:
                    setattr(module, other, by)
