"""Work that grows with the size of a program and not with its square: nodes and steps are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinygrad import Context, Tensor, repointing
from tinygrad.schedule import ordering

Program = Callable[[int], list[Tensor]]


def steps_of(function: Any, run: Callable[[], Any]) -> int:
    """Return how many lines of one function run."""
    import sys

    count = 0

    def in_frame(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return in_frame

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        return in_frame if frame.f_code is function.__code__ else None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def draws(n: int) -> list[Tensor]:
    return [Tensor.rand(4) for _ in range(n)]


def writes(n: int) -> list[Tensor]:
    t = Tensor.zeros(64).contiguous().realize()
    for i in range(n):
        t[i % 64] = float(i)
    return [t]


def updates(n: int) -> list[Tensor]:
    t = Tensor.zeros(64).contiguous().realize()
    for i in range(n):
        t[i % 64 : i % 64 + 1] += float(i)
    return [t]


def assigns(n: int) -> list[Tensor]:
    t = Tensor([1.0, 2.0]).clone().realize()
    for _ in range(n):
        t.assign(t + 1)
    return [t]


@pytest.mark.parametrize("program", [draws, writes, updates, assigns])
def test_writes_are_ordered_in_a_walk_along_the_states(program: Program) -> None:
    counts = []
    for n in (12, 12, 24, 48):  # the first one also pays for what earlier tests left pending
        tensors = program(n)
        with Context(SCACHE=0):
            counts.append(
                steps_of(ordering._effects, lambda t=tensors: t[0].schedule_linear(*t[1:]))  # type: ignore[misc]
            )
    counts = counts[1:]
    assert counts[0], "nothing was counted"
    assert counts[2] - counts[1] <= 2.5 * (counts[1] - counts[0]), counts


def test_a_realize_does_not_look_at_tensors_that_are_computed() -> None:
    def realize_one() -> None:
        (Tensor([1.0, 2.0]) + 1).realize()

    realize_one()
    kept, counts = [], []
    for _ in range(3):
        counts.append(steps_of(repointing._Change.apply, realize_one))
        kept += [(Tensor([1.0, 2.0]) + 1).realize() for _ in range(50)]
    assert counts[0], "nothing was counted"
    assert counts[2] <= counts[0] + 10, counts
