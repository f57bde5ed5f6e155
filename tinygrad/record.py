"""Records: classes of named fields, as ``dataclasses`` makes them, that take a sixth of the time to define.

In:   a class whose annotations are its fields, and the keywords of ``dataclasses.dataclass``.
Out:  ``record``, ``field``, ``fields`` and ``replace``, which mean what their namesakes in ``dataclasses`` mean. The
      classes are dataclasses for whoever asks: ``dataclasses.fields``, ``replace`` and ``is_dataclass`` take them.
Why:  a program that starts defines a hundred of them. ``dataclasses`` compiles the text of six methods for each, which
      was a quarter of the time of ``import tinygrad``. Here only ``__init__`` is text; the others are shared.

There are no slots, keyword-only fields, ``InitVar`` or ``__post_init__``: nobody here needs them. Type checkers read
``record`` as ``dataclass``.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["field", "fields", "record", "replace"]

_C = TypeVar("_C", bound=type)
_R = TypeVar("_R")


class _Missing:
    """Stands for a default that is not there, and in signatures for one that is made anew for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


_MISSING: Final = _Missing()
_set = object.__setattr__


class Field:
    """One field of a record: its name, its default, and where it takes part."""

    __slots__ = ("annotation", "compare", "default", "factory", "init", "name", "repr")

    def __init__(self, default: Any, factory: Any, init: bool, repr: bool, compare: bool) -> None:  # noqa: A002
        self.name, self.annotation = "", ""
        self.default, self.factory, self.init, self.repr, self.compare = default, factory, init, repr, compare


def _field(
    *, default: Any = _MISSING, default_factory: Any = _MISSING, init: bool = True, repr: bool = True,  # noqa: A002
    compare: bool = True,
) -> Any:  # fmt: skip
    """Say more about a field than its annotation.

    Args:
        default: Its value if none is given.
        default_factory: A function that makes it.
        init: Whether ``__init__`` takes it.
        repr: Whether it is printed.
        compare: Whether it counts for equality, order and hash.
    """
    return Field(default, default_factory, init, repr, compare)


def _record(
    cls: Any = None, /, *, init: bool = True, repr: bool = True, eq: bool = True,  # noqa: A002
    order: bool = False, frozen: bool = False,
) -> Any:  # fmt: skip
    """Give a class the methods that follow from its fields; those that it defines itself stay.

    Args:
        cls: The class.
        init: Add ``__init__``.
        repr: Add ``__repr__``.
        eq: Compare the fields of instances of the same class; without ``frozen`` they have no hash then.
        order: Add comparisons, field by field.
        frozen: Refuse assignments, and hash the fields.
    """

    def make(cls: _C) -> _C:
        found = _collect(cls)
        names = tuple(name for name, f in found.items() if f.init)
        methods: dict[str, Any] = {"__match_args__": names}
        if init:
            methods["__init__"] = _init(cls, list(found.values()), frozen)
        if repr:
            methods["__repr__"] = _repr(tuple(name for name, f in found.items() if f.repr))
        compared = _values_of([name for name, f in found.items() if f.compare])
        if eq:
            methods["__eq__"] = _eq(compared)
            methods["__hash__"] = _hash(compared) if frozen else None
        if order:
            methods |= _comparisons(compared)
        for name, method in methods.items():
            if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
                setattr(cls, name, method)
        type.__setattr__(cls, "__record_fields__", found)
        if frozen:
            _freeze(cls, frozenset(found))
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(cls, name, _OfDataclass(cls, name, frozen, eq, order))
        return cls

    return make if cls is None else make(cls)


def _collect(cls: type) -> dict[str, Field]:
    """Return the fields of a class by name, inherited ones first; their defaults stay on the class."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= base.__dict__.get("__record_fields__", {})
    for name, annotation in cls.__annotations__.items():
        if annotation.startswith(("ClassVar", "typing.ClassVar")):
            continue
        default = cls.__dict__.get(name, _MISSING)
        f = default if isinstance(default, Field) else Field(default, _MISSING, init=True, repr=True, compare=True)
        f.name, f.annotation = name, annotation
        found[name] = f
        if f is default:
            if f.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, f.default)
    return found


def _init(cls: type, found: list[Field], frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"__name__": cls.__module__, "__set": _set, "__missing": _MISSING}
    parameters, lines = ["self"], ["pass"]
    for i, f in enumerate(found):
        value = f.name
        if f.factory is not _MISSING:
            names[f"__make{i}"] = f.factory
            value = f"__make{i}()" + (f" if {f.name} is __missing else {f.name}" if f.init else "")
            default = "=__missing"
        else:
            names[f"__default{i}"] = f.default
            default = "" if f.default is _MISSING else f"=__default{i}"
        if f.init:
            parameters.append(f.name + default)
        if f.init or f.factory is not _MISSING:
            lines.append(f"__set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), names)
    init: Any = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {f.name: f.annotation for f in found if f.init} | {"return": None}
    made: Callable[..., None] = init
    return made


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    """Return a function of an instance that gives the values of fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807  a method of the classes
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return __repr__


def _eq(values: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _comparisons(values: Callable[[Any], Any]) -> dict[str, Callable[[Any, Any], Any]]:
    def comparison(name: str) -> Callable[[Any, Any], Any]:
        def compare(self: Any, other: Any) -> Any:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return getattr(values(self), name)(values(other))

        compare.__name__ = name
        return compare

    return {name: comparison(name) for name in ("__lt__", "__le__", "__gt__", "__ge__")}


def _freeze(cls: Any, names: frozenset[str]) -> None:
    def refused(self: Any, name: str) -> bool:
        return type(self) is cls or name in names

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if refused(self, name):
            raise _frozen_error("assign to", name)
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if refused(self, name):
            raise _frozen_error("delete", name)
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


def _frozen_error(action: str, name: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(f"cannot {action} field {name!r}")


class _OfDataclass:
    """What ``dataclasses`` looks for on a class, made when it does: by a dataclass with the same fields."""

    def __init__(self, cls: Any, name: str, frozen: bool, eq: bool, order: bool) -> None:
        self.cls, self.name, self.frozen, self.eq, self.order = cls, name, frozen, eq, order

    def __get__(self, instance: Any, owner: type) -> Any:
        import dataclasses

        def described(f: Field) -> Any:
            given = {"default": f.default, "default_factory": f.factory}
            given = {name: value for name, value in given.items() if value is not _MISSING}
            return dataclasses.field(init=f.init, repr=f.repr, compare=f.compare, **given)

        made: Any = dataclasses.make_dataclass(
            self.cls.__name__,
            [(f.name, f.annotation, described(f)) for f in self.cls.__record_fields__.values()],
            frozen=self.frozen, eq=self.eq, order=self.order,
        )  # fmt: skip
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(self.cls, name, getattr(made, name))
        return getattr(self.cls, self.name)


def _fields(of: Any) -> tuple[Field, ...]:
    """Return the fields of a record, or of its class."""
    return tuple(of.__record_fields__.values())


def _replace(instance: _R, /, **changes: Any) -> _R:
    """Return a record with some values changed.

    Raises:
        TypeError: It has no such field.
    """
    given = {f.name: getattr(instance, f.name) for f in _fields(instance) if f.init}
    return type(instance)(**given | changes)


if TYPE_CHECKING:
    from dataclasses import dataclass as record, field as field, fields as fields, replace as replace
else:
    record, field, fields, replace = _record, _field, _fields, _replace
