"""A deep learning stack in pure Python: tensors, autograd, scheduler, code generator and devices.

In:   ``from tinygrad import Tensor``, and the other public names.
Out:  the objects from the files that define them, imported on first use.
Why:  ``import tinygrad`` costs next to nothing, and a program pays only for the parts that it uses.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinygrad import middleware as middleware, nn as nn
    from tinygrad.device import Device as Device
    from tinygrad.dtype import dtypes as dtypes
    from tinygrad.engine.jit import TinyJit as TinyJit
    from tinygrad.function import function as function
    from tinygrad.helpers import Context as Context, GlobalCounters as GlobalCounters, fetch as fetch, getenv as getenv
    from tinygrad.tensor import Tensor as Tensor
    from tinygrad.uop.ops import UOp as UOp

    Variable = UOp.variable

__version__ = "0.14.0"

_HOMES = {
    "Tensor": "tinygrad.tensor",
    "TinyJit": "tinygrad.engine.jit",
    "function": "tinygrad.function",
    "UOp": "tinygrad.uop.ops",
    "dtypes": "tinygrad.dtype",
    "GlobalCounters": "tinygrad.helpers",
    "fetch": "tinygrad.helpers",
    "Context": "tinygrad.helpers",
    "getenv": "tinygrad.helpers",
    "Device": "tinygrad.device",
}
_MODULES = frozenset({"nn", "middleware"})
# What programs reach as ``tinygrad.helpers`` or ``tinygrad.engine.jit`` after ``import tinygrad`` alone.
_PARTS = frozenset({
    "codegen", "device", "dtype", "engine", "helpers", "mixin", "renderer", "runtime", "schedule", "tensor", "uop",
})  # fmt: skip

__all__ = [
    "Context", "Device", "GlobalCounters", "Tensor", "TinyJit", "UOp", "Variable", "dtypes", "fetch", "function",
    "getenv", "middleware", "nn",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tinygrad.{name}")
    if name in _PARTS:
        for home in _HOMES.values():
            importlib.import_module(home)
        return importlib.import_module(f"tinygrad.{name}")
    if name == "Variable":
        from tinygrad.uop.ops import UOp

        value: Any = UOp.variable
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        from tinygrad.name_hints import MissingNameError

        raise MissingNameError(__name__, name)
    globals()[name] = value
    return value


class _Package(types.ModuleType):
    """The package itself. Importing the module ``tinygrad.function`` must not hide the decorator of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "function" and isinstance(value, types.ModuleType):
            value = value.function
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
