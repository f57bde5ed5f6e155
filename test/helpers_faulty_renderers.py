"""Renderers whose code has a fault wherever a kernel uses threads: what a search must survive.

In:   linear programs of kernels.
Out:  their LLVM IR, right for kernels without a THREAD loop.
Why:  candidates of a search are code that nobody has run before; here it is known which of them are bad, and how.

Worker processes import this file by its bare name, so the folder has to be on their path.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from tinygrad.codegen.opt import OptOps
from tinygrad.device import CompileError
from tinygrad.renderer.llvmir import LLVMRenderer
from tinygrad.uop.ops import UOp


class FaultyRenderer(LLVMRenderer):
    """Spoils the code of kernels with threads."""

    def render(self, uops: Sequence[UOp]) -> str:
        """Return the source of a kernel."""
        source = super().render(uops)
        return self.spoil(source) if any(s.op is OptOps.THREAD for s in uops[-1].arg.applied_opts) else source

    def spoil(self, source: str) -> str:
        """Return the source with a fault."""
        raise NotImplementedError


class RefusedByTheCompiler(FaultyRenderer):
    """The IR does not parse."""

    def spoil(self, source: str) -> str:
        """Return no IR at all."""
        return "no IR: " + source


class RaisesInTheRenderer(FaultyRenderer):
    """Rendering raises."""

    def spoil(self, source: str) -> str:
        """Raise CompileError."""
        raise CompileError("this renderer has a bad day")


class CrashesInTheCompiler(FaultyRenderer):
    """The compiler takes the process with it."""

    def spoil(self, source: str) -> str:
        """Do what a fault in a compiler's library does."""
        os.kill(os.getpid(), signal.SIGSEGV)
        return source


class CompilesForEver(FaultyRenderer):
    """The compiler never ends."""

    def spoil(self, source: str) -> str:
        """Sleep."""
        time.sleep(1000)
        return source


class CrashesWhenRun(FaultyRenderer):
    """The kernel writes where there is no memory."""

    def spoil(self, source: str) -> str:
        """Write to address 0 at the end."""
        return source.replace("ret void", "store volatile i32 0, ptr null\n  ret void", 1)


class RunsForEver(FaultyRenderer):
    """The kernel never ends."""

    def spoil(self, source: str) -> str:
        """Loop at the end."""
        return source.replace("ret void", "br label %forever\nforever:\n  br label %forever", 1)


class ComputesSomethingElse(FaultyRenderer):
    """The kernel adds where it should multiply."""

    def spoil(self, source: str) -> str:
        """Change the operation."""
        return source.replace("= fmul", "= fadd")
