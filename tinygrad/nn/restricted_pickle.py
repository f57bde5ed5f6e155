"""Unpickling that can run nothing.

In:   a binary file with a pickle at its position, what is to be made of its persistent ids, and more names that are
      allowed.
Out:  the object, built of plain Python values and what the caller's functions return. A class of a package that is not
      allowed becomes a placeholder, which keeps its arguments and state.
Why:  a pickle is a program: it names functions and calls them. No name is ever imported here. Names on a list of
      allowed ones stand for harmless functions, and everything else either stands for an inert class or, where the name
      belongs to Python's own library, is refused. What is allowed can be called but not changed, since the program may
      also set attributes.

Every pickle is read through once before it is run: that finds where it ends, and refuses numbers in it that would ask
for much memory.
"""

from __future__ import annotations

import _compat_pickle
import collections
import io
import pickle
import pickletools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, NoReturn

__all__ = ["Allowed", "Placeholder", "restricted_load"]


class Placeholder:
    """An object whose class was not loaded.

    What its pickle stores as attributes are its attributes. Arguments of its constructor are in ``placeholder_args``,
    items of a list or dict in ``placeholder_items``, and a state that is no dict in ``placeholder_state``.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Placeholder:
        """Keep the arguments."""
        self = object.__new__(cls)
        if args:
            self.__dict__["placeholder_args"] = args
        if kwargs:
            self.__dict__["placeholder_kwargs"] = kwargs
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        dicts = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        if all(part is None or isinstance(part, dict) for part in dicts):
            for part in dicts:
                self.__dict__.update(part or {})
        else:
            self.__dict__["placeholder_state"] = state

    def append(self, item: Any) -> None:
        """Keep an item of what was a list."""
        self.__dict__.setdefault("placeholder_items", []).append(item)

    def extend(self, items: Any) -> None:
        """Keep items of what was a list."""
        self.__dict__.setdefault("placeholder_items", []).extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__.setdefault("placeholder_items", {})[key] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__dict__.get("placeholder_items", ()))

    def __repr__(self) -> str:
        return f"<placeholder of {type(self).__module__}.{type(self).__qualname__}>"


class Allowed:
    """A function under the name that pickles know it by: it can be called and not be changed."""

    __slots__ = ("_call", "_name")

    _call: Callable[..., Any]
    _name: str

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self._call(*args)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"the pickle tries to change {self._name}")

    def __setstate__(self, state: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"the pickle tries to change {self._name}")

    def __repr__(self) -> str:
        return f"<{self._name}>"


# ---- names of Python's library ----


def _bytes(*args: Any) -> bytes:
    if args and not isinstance(args[0], (bytes, bytearray)):
        raise pickle.UnpicklingError(f"bytes() of a {type(args[0]).__name__}; expected bytes")
    return bytes(*args[:1])


def _str(*args: Any) -> str:
    # Not of any object: the text of a list that holds itself many times over can be longer than memory.
    if args and not isinstance(args[0], str):
        raise pickle.UnpicklingError(f"str() of a {type(args[0]).__name__}; expected a string")
    return str(*args[:1])


def _bytearray(*args: Any) -> bytearray:
    if args and isinstance(args[0], str):
        return bytearray(_encode(*args))
    return bytearray(_bytes(*args))


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise pickle.UnpicklingError(f"encoding of a {type(text).__name__} to {encoding!r}; expected text and latin1")
    return text.encode("latin1")


def _reconstruct(cls: Any, base: Any = None, state: Any = None) -> Any:
    if not (isinstance(cls, type) and issubclass(cls, Placeholder)):
        raise pickle.UnpicklingError(f"copyreg._reconstructor of {cls!r}; expected a class that is not loaded")
    return cls() if state is None or base is object else cls(state)


# Built-in types cannot be changed, so they need no wrapper: a pickle may also store them, as in defaultdict(list).
_PYTHON: Final[dict[tuple[str, str], Any]] = {
    **{("builtins", kind.__name__): kind for kind in (set, frozenset, list, dict, tuple, int, float, bool)},
    **{("builtins", kind.__name__): kind for kind in (complex, slice, object)},
    ("builtins", "str"): Allowed("str", _str),
    ("builtins", "bytes"): Allowed("bytes", _bytes),
    ("builtins", "bytearray"): Allowed("bytearray", _bytearray),
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "Counter"): Allowed("collections.Counter", collections.Counter),
    ("_codecs", "encode"): Allowed("_codecs.encode", _encode),
    ("copyreg", "_reconstructor"): Allowed("copyreg._reconstructor", _reconstruct),
}

# Modules of Python's library whose classes only hold data: they become placeholders. All others are refused.
_DATA_MODULES: Final = frozenset({
    "argparse", "collections", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "logging",
    "pathlib", "random", "types", "typing", "uuid", "zoneinfo",
})  # fmt: skip
_REFUSED: Final = frozenset(sys.stdlib_module_names | {"commands", "popen2", "__builtin__"}) - _DATA_MODULES


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: io.BytesIO, allowed: Mapping[tuple[str, str], Any], persistent_load: Callable[[Any], Any]
    ) -> None:
        super().__init__(file, encoding="latin1")  # pickles of Python 2 hold bytes where text is meant
        self._allowed, self._persistent = allowed, persistent_load
        self._placeholders: dict[tuple[str, str], type[Placeholder]] = {}

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)

    def find_class(self, module: str, name: str) -> Any:
        # Names of Python 2, as pickle itself translates them.
        module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
        module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        key = module, name
        for names in (self._allowed, _PYTHON):
            if key in names:
                return names[key]
        if module.split(".")[0] in _REFUSED:
            raise pickle.UnpicklingError(
                f"the pickle names {module}.{name}, which is not allowed: it was refused, nothing has been run"
            )
        if key not in self._placeholders:
            self._placeholders[key] = type(name, (Placeholder,), {"__module__": module, "__qualname__": name})
        return self._placeholders[key]


# ---- reading ----

_MEMO_OPCODES: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_EXTENSION_OPCODES: Final = frozenset({"EXT1", "EXT2", "EXT4"})
# What a truncated or senseless pickle makes Python's own reader raise.
_FAULTS: Final = (
    AttributeError, EOFError, ImportError, IndexError, MemoryError, OverflowError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip


def restricted_load(
    file: BinaryIO | io.RawIOBase,
    *,
    allowed: Mapping[tuple[str, str], Any],
    persistent_load: Callable[[Any], Any],
    origin: str,
) -> Any:
    """Read one pickle and leave the file at its end.

    Args:
        file: With the pickle at its position.
        allowed: (module, name) -> what the name stands for: an ``Allowed`` function, or a value that cannot be changed.
        persistent_load: Gives the value of a persistent id.
        origin: Name of the file for messages.

    Returns:
        The object.

    Raises:
        pickle.UnpicklingError: The pickle is truncated or damaged, or asks for what is not allowed. Whatever
            ``persistent_load`` and the allowed functions raise on purpose (KeyError, NotImplementedError) passes.
    """
    program = _read_program(file, origin)
    try:
        return _Unpickler(io.BytesIO(program), allowed, persistent_load).load()
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(f"torch_load: {origin}: {error}") from error
    except _FAULTS as error:
        raise pickle.UnpicklingError(f"torch_load: {origin}: the pickle is damaged: {error}") from error


def _read_program(file: Any, origin: str) -> bytes:
    """Return the bytes of the pickle at the position of the file; the position moves behind them."""
    start = file.tell()
    count = 0
    try:
        for opcode, arg, _ in pickletools.genops(file):
            count += 1
            # The memo is an array: one far index alone would allocate everything before it.
            if opcode.name in _MEMO_OPCODES and int(arg or 0) > count + 1024:
                raise pickle.UnpicklingError(f"memo index {arg} at operation {count}")
            if opcode.name in _EXTENSION_OPCODES:
                raise pickle.UnpicklingError("extension codes, which name functions, are not allowed")
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(f"torch_load: {origin}: {error}") from error
    except (*_FAULTS, UnicodeError) as error:
        raise pickle.UnpicklingError(
            f"torch_load: {origin}: there is no complete pickle at byte {start}, the file is truncated or of another "
            f"format: {error}"
        ) from error
    end = file.tell()
    file.seek(start)
    return bytes(file.read(end - start))
