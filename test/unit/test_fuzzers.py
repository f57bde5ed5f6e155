"""The fuzzers of ``test/external`` on a few fixed seeds, and that they find what they are there to find."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.helpers_ast import run_program
from test.helpers_expressions import ExpressionGenerator, MismatchError, assert_close, compare
from test.helpers_schedules import compare_seed
from tinygrad.codegen.opt import OptOps

EXTERNAL = Path(__file__).parents[1] / "external"


@pytest.mark.parametrize("seed", [*range(0, 48, 4), 6109])
def test_random_steps_keep_the_values_of_contractions(seed: int) -> None:
    compare_seed(seed, run_program, on_python=True)


def test_random_steps_are_of_many_kinds() -> None:
    from test import helpers_schedules as schedules

    used: set[Any] = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sink = schedules.kernel_of(schedules.contraction(rng))
        if sink is not None:
            used |= {o.op for o in schedules.random_steps(sink, rng, 13)}
    expected = {OptOps.SPLIT, OptOps.UPCAST, OptOps.VECTOR, OptOps.UNROLL, OptOps.BLOCK, OptOps.CACHE, OptOps.STAGE}
    assert expected | {OptOps.SWAP, OptOps.PADTO, OptOps.THREAD} <= used


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_what_numpy_makes_of_them(seed: int) -> None:
    generator = ExpressionGenerator(seed)
    lines = generator.program(12)
    with np.errstate(all="ignore"):
        for device in ("CPU", "PYTHON"):
            compare(lines, generator.exact, device)


def test_a_function_that_computes_nothing_is_no_failure() -> None:
    made = "x = new([3, 4], (2,), 'int32')"
    calls = [line for i in range(3) for line in ("real(x)", f"y_{i}, = g(x)")]
    compare([made, "def f(x):\n    y = x\n    real(y)\n    return y,", "g = jit(f)", *calls], {"y_2": True}, "CPU")


def test_a_program_that_hangs_is_named_and_the_next_one_runs(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        f"import sys, time\nsys.path[:0] = [{str(EXTERNAL)!r}]\nimport fuzz_schedules\n"
        "fuzz_schedules.compare_seed = lambda seed, *_, **__: time.sleep(60 * (seed == 1))\n"
        "sys.exit(fuzz_schedules.work_through(int(sys.argv[2]), int(sys.argv[4]), limit=1.0))\n"
    )
    sys.path.insert(0, str(EXTERNAL))
    try:
        import fuzz_schedules
    finally:
        sys.path.remove(str(EXTERNAL))
    lines, tried = fuzz_schedules.run_batch([sys.executable, str(script)], 0, 4)
    assert [line.split(":")[0] for line in lines] == ["TIMEOUT 1"]
    assert tried == 2
    assert fuzz_schedules.run_batch([sys.executable, str(script)], 2, 2) == ([], 2)


def test_a_difference_is_found() -> None:
    want = np.array([1.0, 2.0], np.float32)
    assert_close("x", want.copy(), want, exact=True)
    for got in (np.array([1.0, 2.0000002], np.float32), want.astype(np.float64), want[:1]):
        with pytest.raises(MismatchError, match=r"^x: "):
            assert_close("x", got, want, exact=True)
    with pytest.raises(MismatchError, match="1 of 2 wrong"):
        assert_close("x", np.array([1.0, np.nan], np.float32), want, exact=False)
