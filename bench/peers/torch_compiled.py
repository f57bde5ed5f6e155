"""torch.compile, with its default backend.

In:   arrays and functions of workloads, as every adapter gets them.
Out:  ``Adapter``: arrays on this library's side, and the step to measure.
Why:  what PyTorch can do when it may compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench.peers import torch_eager


class Adapter(torch_eager.Adapter):
    """As eager, with the step compiled; a step that holds a model and an optimizer is compiled as it is."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.about = self.about.replace("eager", "torch.compile")

    def prepare(self, function: Callable[..., Any], arguments: list[Any], make: bool) -> Callable[[], Any]:
        """Return the step to measure, without arguments."""
        # The compiler gives up on a code object after eight specialisations, and all workloads share the one below.
        torch.compiler.reset()
        if make:
            return torch.compile(function(torch, *arguments))
        compiled = torch.compile(lambda *xs: function(torch, *xs))
        return lambda: compiled(*arguments)
