"""Enums whose members are read as fast as the attributes of other classes.

In:   a finished enum.
Out:  the same class; in Python 3.11 with another metaclass, and members that are pickled by value.
Why:  Python 3.11's metaclass of enums has a ``__getattr__``, which makes each ``Ops.ADD`` five times as slow as in
      other classes, found or not. Code that walks graphs reads members by the million: a fifth of all lowering was
      that. Later versions of Python have no such method, and there nothing is changed. The first releases of 3.11
      pickle a member as a call of ``getattr``, which the cache on disk refuses to make.
"""

from __future__ import annotations

from enum import Enum, EnumType, IntEnum
from typing import Any, Final, NoReturn, TypeVar

E = TypeVar("E", bound=type[Enum])


class _Plain(type):
    """The metaclass of finished enums: all that ``EnumType`` offers for them but ``__getattr__``."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> NoReturn:
        raise TypeError(f"{name} cannot extend an enum that has members")

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._refuse_member(name)
        super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        cls._refuse_member(name)
        super().__delattr__(name)

    def _refuse_member(cls, name: str) -> None:
        if name in cls.__members__:
            raise AttributeError(f"{cls.__name__}: the member {name} is fixed")

    __members__: Any


_SHARED: Final = (
    "__bool__", "__call__", "__contains__", "__dir__", "__getitem__", "__iter__", "__len__", "__members__", "__repr__",
    "__reversed__",
)  # fmt: skip
for _name in _SHARED:
    setattr(_Plain, _name, vars(EnumType)[_name])


def with_plain_members(enum: E) -> E:
    """Decorate an enum whose members are read in code that has to be fast."""
    if "__getattr__" in vars(EnumType):
        enum.__class__ = _Plain  # type: ignore[assignment]  # a metaclass of its own, with the same methods
        enum.__reduce_ex__ = _by_value  # type: ignore[method-assign, assignment]
    return enum


def _by_value(member: Enum, protocol: Any) -> tuple[type[Enum], tuple[Any]]:
    return type(member), (member.value,)


class FastEnum(IntEnum):
    """An int enum that prints as ``Class.NAME`` and hashes as fast as an int."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __repr__ = __str__


__all__ = ["FastEnum", "with_plain_members"]
