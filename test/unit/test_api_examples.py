"""The examples in the docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.helpers_docs import load_script
from tinygrad import Context, Device, Tensor, UOp, Variable, dtypes, nn

ROOT = Path(__file__).parents[2]


make_api = load_script("make_api")


class CloseEnough(doctest.OutputChecker):
    """Numbers with a fraction may differ in their last digits: devices round differently. All else must be equal."""

    NUMBER = re.compile(r"-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)")

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        wanted, found = ([float(x) for x in self.NUMBER.findall(text)] for text in (want, got))
        same_text = "".join(self.NUMBER.sub("#", want).split()) == "".join(self.NUMBER.sub("#", got).split())
        return same_text and np.allclose(wanted, found, rtol=1e-5, atol=1e-7)


def test_checker_sees_differences() -> None:
    checker = CloseEnough()
    assert checker.check_output("array([1.5, 2.00000001])\n", "array([1.5 ,  2.])\n", 0)
    for got in ("array([1.5, 2.01])\n", "array([1.5, 2.0, 3.0])\n", "list([1.5, 2.0])\n", "[1.5, 2]\n"):
        assert not checker.check_output("array([1.5, 2.0])\n", got, 0)
    assert not checker.check_output("[1, 2]\n", "[1, 3]\n", 0)


@pytest.mark.parametrize("page", make_api.PAGES, ids=lambda page: page.file)
def test_examples(page: Any) -> None:
    parser, tried = doctest.DocTestParser(), 0
    for name, function, _ in make_api.members(page):
        text = inspect.getdoc(function) or ""
        if "import torch" in text and importlib.util.find_spec("torch") is None:
            continue
        names = {"Context": Context, "Device": Device, "Tensor": Tensor, "UOp": UOp, "Variable": Variable}
        names |= {"dtypes": dtypes, "math": math, "nn": nn, "np": np, "__name__": "example"}
        example = parser.get_doctest(text, names, name, f"docstring of {name}", 0)
        report: list[str] = []
        outcome = doctest.DocTestRunner(CloseEnough(), verbose=False).run(example, out=report.append)
        assert not outcome.failed, "".join(report)
        tried += outcome.attempted
    assert tried >= len(page.names.split()) - 1
