"""The border between the user's code and the package: what an error says when it leaves, and whose nodes are whose.

In:   a public function or method, and an exception that its call raises.
Out:  an exception of the same type whose message names the call, its arguments and the user's line. With TRACEMETA,
      the nodes that the outermost call makes carry its name (see ``UOp.metadata``).
Why:  checks that foresee every wrong argument cannot be written. Where one is missing, Python complains about an
      operation deep inside. The call that the user wrote is known here, and what its arguments should be is in the
      annotations. All of this is looked at only once something has gone wrong: a call that succeeds pays one frame.
"""

from __future__ import annotations

import functools
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from tinygrad.errors import PACKAGE, ArgumentError, PlainKeyError, comes_from_user, error_text, shown
from tinygrad.keywords import NOT_GIVEN, SYNONYMS, instead_of
from tinygrad.profiling import _METADATA, Metadata
from tinygrad.settings import TRACEMETA

if TYPE_CHECKING:
    import inspect

_F = TypeVar("_F", bound=Callable[..., Any])

BINARY_OPERATORS: Final = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul",
)  # fmt: skip
# Python's protocols that users reach through operators; what is not listed is an error that Python words itself.
OPERATORS: Final = frozenset(
    f"__{kind}{name}__" for name in BINARY_OPERATORS for kind in ("", "r", "i")
) | {"__getitem__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}  # fmt: skip

# By these names users call what is explained; and what is not, but begins messages of its own.
_called: set[str] = {"Device", "DType.const", "dtypes.from_py", "read"}

# What annotations mean that are only imported for type checkers; ``describe_types`` adds the package's own.
_NAMES: dict[str, Any] = {"Any": Any, "Callable": Callable, "Iterable": Iterable, "Mapping": Mapping,
                          "Sequence": Sequence, "Literal": Literal}  # fmt: skip


# Arguments of these types are passed on as they are, without a further look; classes in ``describe_types`` join them.
_ORDINARY: set[type] = {int, bool, float, str, types.NoneType}


def describe_types(**names: Any) -> None:
    """Say what names in annotations stand for, such as ``Self``."""
    _NAMES.update(names)
    for kind in names.values():
        if isinstance(kind, type):
            _ORDINARY.update((kind, type(kind)))


def explained(function: _F, name: str | None = None, labels: bool = True, counts: bool = True) -> _F:
    """Return the function; errors that its call raises name it, its arguments and the user's line, new nodes its name.

    Args:
        function: A public function or method.
        name: What users call it; its own name if None.
        labels: False for calls that run code of the user, whose own calls give the labels, and for what every call
            goes through.
        counts: Whether integers of numpy among the arguments are sizes, dims or numbers, so that the function gets
            Python's in their place; False where their dtype matters.
    """
    called = name or function.__name__
    called = called.strip("_") if called.startswith("_") else called  # ``add`` for ``__add__``; ``add_`` as it is
    _called.add(called)
    label, traced = Metadata(called) if labels else None, TRACEMETA.get
    current, enter, leave = _METADATA.get, _METADATA.set, _METADATA.reset
    spellings, is_ordinary = _second_spellings(function), _ORDINARY.issuperset

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        token = enter(label) if label is not None and current() is None and traced() else None
        try:
            if counts and (kwargs or not is_ordinary(map(type, args))):
                args, kwargs = _plain_numbers(args, kwargs)
            try:
                if kwargs and spellings:
                    _check_said_once(called, spellings, args, kwargs)
                return function(*args, **kwargs)
            except Exception as error:  # whatever went wrong, it goes on from here
                own = _own_names(function, error, kwargs)
                if own is None:
                    better: Any = _at_the_border(error, function, called, args, kwargs)
                    if better is error:
                        raise
                    raise better from None
            return _called_again(function, called, spellings, args, own)
        finally:
            better = None  # the traceback holds this frame: as a cycle they would keep the tensors of all frames
            if token is not None:
                leave(token)

    @functools.wraps(function)
    def operator(self: Any, x: Any) -> Any:  # the same for the arguments that operators have, which is faster
        token = enter(label) if label is not None and current() is None and traced() else None
        try:
            return function(self, x)
        except Exception as error:
            better: Any = _at_the_border(error, function, called, (self, x), {})
            if better is error:
                raise
            raise better from None
        finally:
            better = None
            if token is not None:
                leave(token)

    code = getattr(function, "__code__", None)
    is_operator = code is not None and code.co_argcount == 2 and function.__name__ in OPERATORS
    return typing.cast("_F", operator if is_operator else call)


def _called_again(
    function: Callable[..., Any],
    called: str,
    spellings: Iterable[_Spelling],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function by its own names of arguments, where those that the user gave were others."""
    try:
        _check_said_once(called, spellings, args, kwargs)
        return function(*args, **kwargs)
    except Exception as error:
        better: Any = _at_the_border(error, function, called, args, kwargs, frames=3)
        if better is error:
            raise
        raise better from None
    finally:
        better = None


def unbound(cls: type, name: str) -> Any:
    """Return what a class or a base of it defines under a name, as it stands there; None if none does."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def explain_methods(cls: type, names: Iterable[str], labels: bool = True, counts: bool = True) -> None:
    """Make methods of a class, inherited ones too, ``explained``. Names of other things are passed over."""
    for name in names:
        raw = unbound(cls, name)
        called = cls.__name__ if name in {"__init__", "__call__"} else name
        if isinstance(raw, types.FunctionType):
            setattr(cls, name, explained(raw, called, labels, counts))
        elif isinstance(raw, (classmethod, staticmethod)):
            setattr(cls, name, type(raw)(explained(raw.__func__, called, labels, counts)))


class _Spelling(NamedTuple):
    """A second name of an argument that a function takes, as ``dim`` for ``axis``."""

    name: str
    first: str
    position: int  # of the argument under its first name; beyond all where that is a keyword only


def _second_spellings(function: Callable[..., Any]) -> tuple[_Spelling, ...]:
    """Return the keywords of a function that mean the same as another argument of it; both are in its signature."""
    function = _innermost(function)
    code = getattr(function, "__code__", None)  # read as it is: signatures of a thousand methods take their time
    if code is None or not code.co_kwonlyargcount:
        return ()
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    position = {name: i if i < code.co_argcount else sys.maxsize for i, name in enumerate(own)}
    return tuple(
        _Spelling(name, first, position[first])
        for name, default in (function.__kwdefaults__ or {}).items()
        for first in SYNONYMS.get(name, ())
        if default is None and first in position
    )


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a function wraps at last."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _check_said_once(call: str, spellings: Iterable[_Spelling], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse an argument that is given under two names, with two values: one of them would be passed over.

    Raises:
        TypeError: It is.
    """
    for name, first, position in spellings:
        second = kwargs.get(name)
        given = args[position] if position < len(args) else kwargs.get(first)
        if second is not None and given is not None and not _is_same(given, second):
            fault = f"{first} is {shown(given)} and {name}, another name of it, is {shown(second)}"
            raise TypeError(error_text(call, fault, hint=f"say {first} or {name}"))


def _is_same(x: Any, y: Any) -> bool:
    return x is y or (type(x) is type(y) and not hasattr(x, "dtype") and bool(x == y))


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    import inspect  # slow to import, and needed only once something has gone wrong

    return inspect.signature(function).parameters


def _own_names(function: Callable[..., Any], error: Exception, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return keywords under the names that the function has for them; None if they have these, or it has none.

    A keyword that a function does not have is a TypeError before anything of it has run, so it may be called again.
    """
    if not kwargs or not isinstance(error, TypeError):
        return None
    parameters = _parameters(function)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    named = {name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_POSITIONAL}
    own = {}
    for name, value in kwargs.items():
        if value is None and name in NOT_GIVEN and name not in parameters:
            continue
        same = name if name in parameters else next((s for s in SYNONYMS.get(name, ()) if s in named), name)
        if same in own or (same != name and same in kwargs):
            return None  # said twice: an error
        own[same] = value
    return own if own.keys() != kwargs.keys() else None  # with other names, or with fewer


def _plain_numbers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with integers of Python in place of numpy's."""
    if not _ORDINARY.issuperset(map(type, args)):
        args = tuple([_plain_number(x) for x in args])
    if not _ORDINARY.issuperset(map(type, kwargs.values())):
        kwargs = {name: _plain_number(x) for name, x in kwargs.items()}
    return args, kwargs


def _plain_number(x: Any) -> Any:
    """Return an argument with integers of Python in place of numpy's, in tuples and lists too.

    Sizes and dims are computed by numpy too, whose integers have a width: sums of them wrap, and so does what is
    computed with them: ``-np.uint8(3)`` is 253.
    """
    kind = type(x)
    if kind is tuple or kind is list:
        return x if _ORDINARY.issuperset(map(type, x)) else kind([_plain_number(item) for item in x])
    is_integer = kind.__module__ == "numpy" and getattr(getattr(x, "dtype", None), "kind", "") in {"i", "u"}
    return x.item() if is_integer and not hasattr(kind, "__len__") else x  # arrays are values, scalars are numbers


# ---- the message -----------------------------------------------------------------------------------------------------


def _at_the_border(error: Exception, *call: Any, frames: int = 2) -> Exception:
    """Return the error with a complete message if the user's code made the call, so many frames up; else as it is."""
    if sys._getframe(frames).f_code.co_filename.startswith(PACKAGE):
        return error  # the user called something that calls this
    error.__traceback__ = _without_wrappers(error.__traceback__)
    try:
        return _explain(error, *call)
    except Exception:  # noqa: BLE001  odd arguments may fail to print: the error itself must come through
        return error


def _without_wrappers(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback without the frames of this file between the methods: they tell the reader nothing."""
    if traceback is None:
        return None
    kept, rest = [], traceback.tb_next  # the first one is the call at the border: bare ``raise`` needs it
    while rest is not None:
        if rest.tb_frame.f_code.co_filename != __file__:
            kept.append(rest)
        rest = rest.tb_next
    for entry in reversed(kept):
        rest = types.TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return types.TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


def _explain(
    error: Exception, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Exception:
    """Return the error with a complete message: itself where that can be changed, or another of its type."""
    text = str(error).replace(f"{_innermost(function).__qualname__}()", f"{name}()")
    if _raised_by_user(error):
        return error
    text = _in_the_callers_terms(text, name, kwargs)
    inner, rest = _inner_call(text, name)
    if inner[:1].isupper() and args and hasattr(type(args[0]), function.__name__) and name not in {inner, "Tensor"}:
        inner, name = "", f"{inner}.{name}"  # a method that names its class, as in SGD.step
    if "\n  line " in text:  # a check has said all; where it is that of another method, say which one led there
        is_operator = function.__name__ in OPERATORS  # its method, such as "add", is known by that name too
        return (
            error if text.startswith(f"{name}: ") or is_operator else _with_message(error, _led_to(name, inner, rest))
        )
    arguments = _arguments(function, args, kwargs)
    wrong = _misfit(function, arguments)
    if isinstance(error, KeyError) and len(error.args) == 1:
        inner, rest = _inner_call(str(error.args[0]), name)
    summary, more = rest.partition("\n")[::2] if rest else (f"failed with {type(error).__name__}", "")
    rows = {key: _shown(value) for key, value in arguments.items() if not _is_default(function, key, value)}
    if wrong is not None:
        key, expected = wrong
        rows = {name: value for name, value in rows.items() if name != key} | {"cause": summary}
        summary = f"{key} is {_kind(arguments[key])}, expected {expected}"
    if inner:
        rows |= {"in": inner}
    hint = _about_keywords(function, name, kwargs) if isinstance(error, TypeError) else None
    return _with_message(error, error_text(name, f"{summary}\n{more}" if more else summary, rows, hint=hint))


def _inner_call(text: str, name: str) -> tuple[str, str]:
    """Split a message into the name of the call that it begins with, empty for ``name`` itself or none, and the rest.

    What Python says of a call, as in ``f() takes 1 positional argument``, begins with a name too.
    """
    begins = re.match(r"(?:([\w.]+): |(\w+)\(\) )", text)
    found = (begins[1] or begins[2]) if begins else ""
    if not begins or found not in {name, *_called}:
        return "", text
    return ("" if found == name else found), text[begins.end() :]


def _led_to(name: str, inner: str, rest: str) -> str:
    """Return the complete message of an inner call in the name of the one that led to it; a row says which it was."""
    line = re.search(r"\n  line *", rest)
    if not inner or line is None:
        return f"{name}: {rest}"
    width = len(line[0]) - len("\n  ")
    return f"{name}: {rest[: line.start()]}\n  {'in':<{width}}{inner}{rest[line.start() :]}"


def _in_the_callers_terms(text: str, name: str, kwargs: Mapping[str, Any]) -> str:
    """Return what Python says about a call: of what was called, not of the function that got its keywords."""
    unknown = re.match(r"[\w.]+(\(\) got an unexpected keyword argument '(\w+)'.*)", text)
    if unknown and unknown[2] in kwargs:
        return name + unknown[1]
    return text.replace("missing 1 required positional argument: 'self'", "got no tensor; it takes at least one")


def _about_keywords(function: Callable[..., Any], name: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return what to write instead of a keyword that the function does not have; None if it has all of them."""
    parameters = _parameters(function)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    unknown = next((key for key in kwargs if key not in parameters), None)
    if unknown is None:
        return None
    own = ", ".join(key for key in parameters if key not in {"self", "cls"})
    return instead_of(name, unknown) or (f"{name} has the arguments {own}" if own else f"{name} has no arguments")


def _with_message(error: Exception, message: str) -> Exception:
    kind: Any = type(error)
    if kind is AttributeError:
        return ArgumentError(message).with_traceback(error.__traceback__)
    if kind is KeyError:
        return PlainKeyError(message).with_traceback(error.__traceback__)
    if kind.__module__.startswith("numpy"):
        plain = next(base for base in kind.__mro__ if base.__module__ == "builtins")
        return typing.cast("Exception", plain(message)).with_traceback(error.__traceback__)
    if isinstance(error, ImportError):
        error.msg = message
    elif len(error.args) <= 1 and not isinstance(error, (OSError, UnicodeError)):
        error.args = (message,)
    else:
        error.add_note(message)
    return error


def _raised_by_user(error: Exception) -> bool:
    """Return whether the error comes from a function of the user that the package called."""
    traceback = error.__traceback__
    traceback = None if traceback is None else traceback.tb_next  # the frame of ``call`` itself
    while traceback is not None:
        frame = traceback.tb_frame
        if comes_from_user(frame.f_code.co_filename) and not frame.f_globals.get("__name__", "").startswith("numpy"):
            return True
        traceback = traceback.tb_next
    return False


def _shown(value: Any) -> Any:
    return value if hasattr(value, "shape") and hasattr(value, "dtype") else shown(value)


def _arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    import inspect

    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    found = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(parameter.name, {})
    found.pop("cls", None)
    if "self" in found and not hasattr(found["self"], "shape") and not _is_misused(function, found["self"]):
        del found["self"]
    return found


def _is_misused(method: Callable[..., Any], owner: Any) -> bool:
    """Return whether a method of Tensor was called as a function of something else, as in ``Tensor.stack(1)``."""
    tensor = _NAMES.get("Tensor", object)
    named = method.__qualname__.rpartition(".")[0] in {base.__name__ for base in tensor.__mro__}
    return named and not isinstance(owner, tensor)


def _is_default(function: Callable[..., Any], name: str, value: Any) -> bool:
    parameter = _parameters(function).get(name)
    return parameter is not None and parameter.default is value


# ---- what an argument should be --------------------------------------------------------------------------------------


def _misfit(function: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (name, what it should be) of the first argument that is not what its annotation says."""
    parameters = _parameters(function)
    for name, value in arguments.items():
        if name == "self" and not hasattr(value, "shape"):
            return name, "Tensor"
        parameter = parameters.get(name)
        if parameter is None or parameter.annotation is parameter.empty or value is parameter.default:
            continue
        hint = _evaluated(parameter.annotation, function)
        values = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        if hint is not None and not all(_fits(v, hint) for v in values):
            return name, _hint_text(hint)
    return None


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, {**getattr(_innermost(function), "__globals__", {}), **_NAMES})
    except Exception:  # noqa: BLE001  a name that only type checkers know: then nothing is said about this argument
        return None


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is what an annotation says; True where that cannot be told."""
    if hint is Any:
        return True
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return any(type(value) is type(allowed) and value == allowed for allowed in inner)
    if origin is tuple:
        return isinstance(value, (tuple, list))
    if origin is Sequence or hint is Sequence:
        items = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        return items and all(_fits(v, inner[0]) for v in value) if inner else items
    kind = origin or hint
    if kind is float:
        return isinstance(value, (int, float)) or hasattr(value, "__float__")
    if kind is int:
        return isinstance(value, int) or (hasattr(value, "__index__") and not hasattr(value, "size_text"))
    if kind is None or kind is type(None):
        return value is None
    if kind is bool:
        return isinstance(value, (bool, int)) or type(value).__name__ in {"bool_", "bool"}
    return not isinstance(kind, type) or isinstance(value, kind)


def _hint_text(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    for prefix in ("typing.", "collections.abc.", "tinygrad.tensor.", "tinygrad.dtype_lattice.", "tinygrad.dtype."):
        text = text.replace(prefix, "")
    return text.replace(" | ", " or ")


def _kind(value: Any) -> str:
    if value is None or (hasattr(value, "shape") and hasattr(value, "dtype")):
        return shown(value)
    return f"{shown(value)} of type {type(value).__name__}"
