"""The fuzzers of ``test/external`` on a few fixed seeds, and that they find what they are there to find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.helpers_ast import run_program
from test.helpers_expressions import ExpressionGenerator, MismatchError, assert_close, compare
from test.helpers_schedules import compare_seed
from tinygrad.codegen.opt import OptOps


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


def test_a_difference_is_found() -> None:
    want = np.array([1.0, 2.0], np.float32)
    assert_close("x", want.copy(), want, exact=True)
    for got in (np.array([1.0, 2.0000002], np.float32), want.astype(np.float64), want[:1]):
        with pytest.raises(MismatchError, match=r"^x: "):
            assert_close("x", got, want, exact=True)
    with pytest.raises(MismatchError, match="1 of 2 wrong"):
        assert_close("x", np.array([1.0, np.nan], np.float32), want, exact=False)
