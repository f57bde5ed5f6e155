"""NULL: compiles kernels and never runs them, for schedules, compile times and tests of other targets' code.

In:   anything that a device gets.
Out:  the device ``NULL``. Its memory takes no space; reading it is an error unless NULL_ALLOW_COPYOUT is set.
Why:  what happens before a kernel runs can be tested and timed without the hardware.

``DEV=NULL:CUDA:sm_90`` renders for another device: every renderer of the package is known here. A compiler that needs
tools of the target is replaced by one that keeps the text.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from tinygrad.device import Allocator, BufferSpec, Compiled, Compiler, Program
from tinygrad.renderer import Renderer
from tinygrad.renderer.python import PythonRenderer
from tinygrad.settings import NULL_ALLOW_COPYOUT
from tinygrad.target import Target


class NullRenderer(PythonRenderer):
    """Renders Python text for a machine without limits of its own; ``local``, ``threads``, ``vecN`` as for PYTHON."""


class NullAllocator(Allocator[str]):
    """Memory that takes no space; the handle is the text ``null``."""

    def _alloc(self, size: int, options: BufferSpec) -> str:
        return "null"

    def _copyin(self, dest: str, src: memoryview) -> None:
        pass

    def _copyout(self, dest: memoryview, src: str) -> None:
        if not NULL_ALLOW_COPYOUT:
            raise RuntimeError(
                "NULL: there is nothing to read, kernels never ran; set NULL_ALLOW_COPYOUT=1 to get arbitrary bytes"
            )

    def _offset(self, buf: str, size: int, offset: int) -> str:
        return "null"

    def _transfer(self, dest: str, src: str, size: int, src_dev: Any, dest_dev: Any) -> None:
        pass

    def copy_from_disk(self, dest: str, src: Any, size: int) -> None:
        """Copy nothing: reading the file would take time that NULL is not to measure."""


class NullProgram(Program):
    """A kernel that does nothing."""

    def __call__(
        self,
        *bufs: Any,
        global_size: tuple[int, ...] = (1, 1, 1),
        local_size: tuple[int, ...] | None = (1, 1, 1),
        vals: Sequence[int] = (),
        wait: bool = False,
        timeout: float | None = None,
    ) -> float | None:
        """Do nothing, in a millisecond by its own account."""
        return 1e-3 if wait else None


def _all_renderers() -> dict[str, type[Renderer]]:
    """Every renderer class of the package by the name that ``DEV`` gives it."""
    import tinygrad.renderer

    found: dict[str, type[Renderer]] = {}
    for module in pkgutil.iter_modules(tinygrad.renderer.__path__):
        try:
            contents = vars(importlib.import_module(f"tinygrad.renderer.{module.name}"))
        except ImportError:
            continue  # a renderer whose package is not installed
        for name, value in contents.items():
            if (
                isinstance(value, type)
                and issubclass(value, Renderer)
                and name.endswith("Renderer")
                and name != "Renderer"
            ):
                found.setdefault(name.upper().removesuffix("RENDERER"), value)
    return found


class NullDevice(Compiled):
    """The device ``NULL``."""

    has_clock = False

    def __init__(self, device: str = "NULL") -> None:
        super().__init__(device, NullAllocator(self), [NullRenderer], functools.partial(NullProgram, self))

    def _make_renderer(self, target: Target) -> Renderer:
        others = {} if target.renderer == "NULL" else _all_renderers()
        self.renderers = (NullRenderer, *others.values())
        # An unknown name is reported with all names that are known.
        renderer = super()._make_renderer(target)
        if getattr(renderer, "compiler", None) is None:
            renderer.compiler = Compiler()
        return renderer
