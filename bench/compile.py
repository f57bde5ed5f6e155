"""Compile time: where the seconds of the MNIST step go, how long a user waits at first, and how that grows.

In:   ``python -m bench.compile [--only start,profile,rules,growth,labels]``
Out:  tables. Every figure comes from a process of its own, with an empty cache unless it says warm.
Why:  for small programs compiling is most of what a user waits for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.measure import growth_exponent
from bench.peers import OURS
from bench.peers.process import worker_environment
from bench.table import format_seconds, render

_LAYERS: Final = (2, 8, 32)
_SHOWN_RULES: Final = 15
_IMPORTS: Final = 5
_LABEL_TURNS: Final = 61  # the first one does not count


# ---- in the child ----------------------------------------------------------------------------------------------------


def _timed(clock: Callable[[], float], run: Callable[[], object]) -> float:
    start = clock()
    run()
    return clock() - start


def child_import() -> dict[str, Any]:
    """Time the import, and the first small result."""
    clock = time.perf_counter
    start = clock()
    from tinygrad import Tensor

    imported = clock()
    result = (Tensor([1, 2, 3]) + 1).tolist()
    end = clock()
    if result != [2, 3, 4]:
        raise AssertionError(f"(Tensor([1, 2, 3]) + 1).tolist() gave {result}")
    return {"import": imported - start, "hello": end - imported}


def child_step(seeded: bool = False) -> dict[str, Any]:
    """Time the first steps of training on MNIST; the import is not part of it; unseeded, each run draws others."""
    import tinygrad
    from bench.networks import mnist_program

    if seeded:
        tinygrad.Tensor.manual_seed(1)
    clock = time.perf_counter
    start = clock()
    step = mnist_program(tinygrad)
    found = {"data and model": clock() - start}
    for name in ("step 1", "step 2 (capture)", "step 3 (replay)"):
        found[name] = _timed(clock, lambda: step().item())
    return found


def child_profile(rules: bool = False) -> dict[str, Any]:
    """Return the cost of each stage of the first two steps; with ``rules`` also counts per rule."""
    import tinygrad
    from bench.networks import mnist_program
    from bench.profiler import Profiler

    profiler = Profiler()
    profiler.install()
    if rules:
        profiler.watch_rules()
    step = mnist_program(tinygrad)
    profiler.settle()
    for cost in profiler.totals.values():
        cost.seconds = cost.calls = cost.nodes = cost.tries = cost.hits = 0
    step().item()
    step().item()
    profiler.settle()
    most = sorted(profiler.rules.values(), key=lambda rule: -rule.seconds)[:_SHOWN_RULES]
    return {
        "stages": {name: vars(cost) for name, cost in profiler.totals.items()},
        "rules": [[rule.where, rule.tries, rule.hits, rule.seconds] for rule in most],
    }


def child_growth(layers: int) -> dict[str, Any]:
    """Time forward and backward of a transformer: building its graph, scheduling and compiling and running it."""
    import tinygrad
    from bench.networks import transformer_gradients, transformer_inputs
    from tinygrad.codegen import to_program_cache

    clock = time.perf_counter
    inputs = transformer_inputs(tinygrad, layers)
    compiled, launched = len(to_program_cache), tinygrad.GlobalCounters.kernel_count
    start = clock()
    gradients = transformer_gradients(*inputs)
    built = clock()
    gradients[0].realize(*gradients[1:])
    seconds = {"build": built - start, "realize": clock() - built}
    launched = tinygrad.GlobalCounters.kernel_count - launched
    return {"seconds": seconds, "kernels": launched, "compiled": len(to_program_cache) - compiled}


def child_labels() -> dict[str, Any]:
    """Time the making of graphs without labels on their nodes and with them; the best of many turns."""
    import tinygrad
    from bench.networks import transformer_gradients, transformer_inputs

    inputs = transformer_inputs(tinygrad, 2)
    a, b = tinygrad.Tensor.empty(4), tinygrad.Tensor.empty(4)
    graphs: dict[str, Callable[[], object]] = {
        "transformer of 2 layers, forward and backward": lambda: transformer_gradients(*inputs),
        "1000 additions": lambda: [a + b for _ in range(1000)],
    }
    found = {}
    for name, build in graphs.items():
        best = {0: float("inf"), 1: float("inf")}
        for turn in range(_LABEL_TURNS):
            for labels in (0, 1) if turn % 2 else (1, 0):
                with tinygrad.Context(TRACEMETA=labels):
                    spent = _timed(time.perf_counter, build)
                if turn:
                    best[labels] = min(best[labels], spent)
        found[name] = [best[0], best[1]]
    return {"graphs": found}


_CHILDREN: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "import": child_import,
    "step": child_step,
    "seeded": lambda: child_step(seeded=True),
    "profile": child_profile,
    "rules": lambda: child_profile(rules=True),
    "growth": lambda layers: child_growth(int(layers)),
    "labels": child_labels,
}


# ---- in the parent ---------------------------------------------------------------------------------------------------


def run_child(name: str, scratch: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    """Run one measurement in a process of its own; ``scratch`` holds the cache that it finds.

    Raises:
        RuntimeError: It failed; the message ends with its traceback.
    """
    environment = worker_environment(OURS, os.cpu_count() or 1, scratch) | variables
    command = [sys.executable, "-m", "bench.compile", "--child", name, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise RuntimeError(f"bench.compile --child {name} failed:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _fresh(name: str, *arguments: str, **variables: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return run_child(name, Path(folder), *arguments, **variables)


def _cold_and_warm(name: str) -> list[dict[str, Any]]:
    """Return the answers of two processes that share a cache which is empty at first.

    Raises:
        RuntimeError: The package's sources changed in between, so that the second one found nothing, twice in a row.
    """
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            answers = [run_child(name, Path(folder)) for _ in range(2)]
        if len({answer.pop("sources") for answer in answers}) == 1:
            return answers
    raise RuntimeError("the sources of the package change while they are measured; leave them alone for a minute")


def show_start() -> str:
    """What a user waits for: import, first result, first steps; empty caches and warm ones."""
    pairs = [_cold_and_warm("import") for _ in range(_IMPORTS)]
    rows = [
        [label, *(format_seconds(median(pair[i][key] for pair in pairs)) for i in range(2)), ""]
        for label, key in (("import tinygrad", "import"), ("(Tensor([1, 2, 3]) + 1).tolist()", "hello"))
    ]
    answers = [*_cold_and_warm("step"), _cold_and_warm("seeded")[1]]
    rows += [[f"MNIST: {key}", *(format_seconds(answer[key]) for answer in answers)] for key in answers[0]]
    return render(["", "empty caches", "warm caches", "warm, seeded"], rows)


def show_profile() -> str:
    """Seconds and visited nodes per stage of the first two MNIST steps, one compiling thread, empty caches."""
    stages = _fresh("profile", PARALLEL="1")["stages"]
    ordered = sorted(stages.items(), key=lambda item: -item[1]["seconds"])
    total = sum(cost["seconds"] for cost in stages.values())
    rows = [
        [
            name,
            format_seconds(cost["seconds"]),
            f"{cost['seconds'] / total:.0%}",
            str(cost["calls"]),
            str(cost["nodes"]),
        ]
        for name, cost in ordered
    ]
    nodes = sum(cost["nodes"] for cost in stages.values())
    rows.append(["all", format_seconds(total), "100%", "", str(nodes)])
    return render(["stage", "time", "share", "calls", "nodes visited"], rows)


def show_rules() -> str:
    """Rules tried and hit per stage, and those that take longest; counting turns the memory of rewrites off."""
    answer = _fresh("rules", PARALLEL="1", TRACK_MATCH_STATS="1")
    stages = sorted(answer["stages"].items(), key=lambda item: -item[1]["tries"])
    rows = [[name, str(cost["tries"]), str(cost["hits"])] for name, cost in stages if cost["tries"]]
    rows.append(["all", *(str(sum(cost[key] for _, cost in stages)) for key in ("tries", "hits"))])
    per_rule = [
        [where, str(tries), str(hits), format_seconds(seconds)] for where, tries, hits, seconds in answer["rules"]
    ]
    return (
        render(["stage", "rules tried", "rules hit"], rows)
        + "\n\n"
        + render(["rule", "tried", "hit", "time"], per_rule)
    )


def show_growth() -> str:
    """Forward and backward of a transformer of 2, 8 and 32 layers: neither time per layer nor compiled kernels grow."""
    found = {layers: _fresh("growth", str(layers)) for layers in _LAYERS}
    totals = {layers: sum(answer["seconds"].values()) for layers, answer in found.items()}
    rows = [
        [
            f"{layers} layers",
            *map(format_seconds, answer["seconds"].values()),
            format_seconds(totals[layers] / layers),
            str(answer["kernels"]),
            str(answer["compiled"]),
        ]
        for layers, answer in found.items()
    ]
    slope = growth_exponent(_LAYERS, list(totals.values()))
    table = render(["", *found[_LAYERS[0]]["seconds"], "in all, per layer", "kernels", "compiled"], rows)
    *_, some, many = _LAYERS
    return (
        f"{table}\n\nTime grows as layers^{slope:.2f}. From {some} to {many} layers it grows "
        f"{totals[many] / totals[some]:.1f} times; in proportion would be {many / some:g} times."
    )


def show_labels() -> str:
    """What it costs that nodes know which method made them (TRACEMETA): at most 5 % of making graphs."""
    rows = [
        [name, format_seconds(without), format_seconds(labelled), f"{labelled / without - 1:+.1%}"]
        for name, (without, labelled) in _fresh("labels")["graphs"].items()
    ]
    return render(["graph", "no labels", "labels", "cost"], rows)


_SECTIONS: Final[dict[str, Callable[[], str]]] = {
    "start": show_start,
    "profile": show_profile,
    "rules": show_rules,
    "growth": show_growth,
    "labels": show_labels,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    options = argparse.ArgumentParser(description="Measure compile time.")
    options.add_argument("--only", default=",".join(_SECTIONS), help=f"comma list of {', '.join(_SECTIONS)}")
    options.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = options.parse_args(argv)
    if arguments.child:
        name, *rest = arguments.child
        answer = _CHILDREN[name](*rest)
        from tinygrad.fingerprint import source_fingerprint

        print(json.dumps(answer | {"sources": source_fingerprint()}))
        return 0
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in _SECTIONS]:
        options.error(f"unknown parts {', '.join(unknown)}; there are {', '.join(_SECTIONS)}")
    for name in names:
        section = _SECTIONS[name]
        print(f"## {name}\n\n{section.__doc__}\n\n{section()}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
