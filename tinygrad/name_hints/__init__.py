"""What to write instead of names of PyTorch that have no counterpart here.

In:   a class, or a module that was asked for a name.
Out:  an AttributeError that says what does the job, or why there is nothing to do; ``dir`` lists none of these names.
Why:  "no attribute" leaves the reader to search. A descriptor that raises costs the other attributes nothing, which
      ``__getattr__`` would: with it, no attribute access of the class is specialised by the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, NoReturn


class _Absent:
    """An attribute that is not there: ``hasattr`` is False, and the error says what to write."""

    def __init__(self, name: str, instead: str) -> None:
        self.name, self.instead = name, instead

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__} has no attribute {self.name!r}: {self.instead}", name=self.name, obj=instance
        )


def existing(owner: Any, names: Iterable[str]) -> list[str]:
    """Return the names that are attributes of a class or an instance, without those that are only hints."""
    from inspect import getattr_static

    return [name for name in names if not isinstance(getattr_static(owner, name, None), _Absent)]


def add_hints(cls: type) -> None:
    """Let a class answer names that it does not have with a hint."""
    from tinygrad.name_hints import meaningless, methods

    hints = {name: why for why, names in meaningless.METHODS for name in names.split()} | methods.METHODS
    for name, instead in hints.items():
        if not hasattr(cls, name):
            setattr(cls, name, _Absent(name, instead))


class MissingNameError(AttributeError):
    """A name that a module lacks. What to write instead is looked up when the message is read, which is rare.

    A module is asked for names all the time: every import of a part of a package asks the package first.
    """

    def __init__(self, module: str, name: str) -> None:
        super().__init__(f"module {module!r} has no attribute {name!r}", name=name)
        self.module, self.asked = module, name

    def __str__(self) -> str:
        instead = _instead(self.module, self.asked)
        return f"{self.args[0]}: {instead}" if instead else str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.module, self.asked)


def _instead(module: str, name: str) -> str | None:
    from tinygrad.name_hints import meaningless, modules

    match module:
        case "tinygrad.nn":
            return _find(name, modules.LAYERS)
        case "tinygrad.nn.optim":
            return _find(name, modules.OPTIMIZERS)
    return _method(name) or _find(name, modules.PACKAGE) or _find(name, meaningless.PACKAGE) or _dtype(name)


def _find(name: str, table: Iterable[tuple[str, str]]) -> str | None:
    """Return what the first row says that has the name, or a pattern of it."""
    return next((text for text, names in table if any(fnmatchcase(name, n) for n in names.split())), None)


def _method(name: str) -> str | None:
    """Return what the method of Tensor with this name says; None for names that Tensor does not know."""
    from tinygrad.tensor import Tensor

    if name.startswith("_"):
        return None
    try:
        getattr(Tensor, name)
    except AttributeError as error:
        _, known, instead = str(error).partition(f"{name!r}: ")
        return instead if known else None
    return f"write Tensor.{name}, or t.{name} of a tensor t"


def _dtype(name: str) -> str | None:
    from tinygrad.dtype import dtypes

    return f"write dtypes.{name}" if name != "void" and hasattr(dtypes, name) else None
