"""Exceptions of the package, and the one builder of their messages.

In:   what went wrong: the operation, its operands, the rule that they break.
Out:  exception classes that subclass the builtin ones, and message text with the user's own source line.
Why:  a message that names operation, operands, rule and line can be acted on; built in one place, all look alike.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any


class ShapeError(ValueError, IndexError):
    """Shapes or dimensions do not fit. A ValueError and an IndexError at once, so that handlers of either work."""


class NoSuchDimsError(ShapeError, AttributeError):
    """A property of tensors of more dims. A ShapeError and an AttributeError at once: ``hasattr`` is False then."""


class ZeroStepError(ZeroDivisionError, ValueError):
    """A range has a step of 0. A ZeroDivisionError, as in numpy, and a ValueError, as of ``range``, at once."""


class DTypeError(RuntimeError, TypeError):
    """A dtype is not allowed here. A RuntimeError and a TypeError at once."""


class ArgumentError(TypeError, AttributeError, RuntimeError):
    """An argument has the wrong type. A TypeError, AttributeError and RuntimeError, so that handlers of any work."""


class PlainKeyError(KeyError):
    """A KeyError whose message prints as it is, not in quotes with its line breaks escaped."""

    __str__ = Exception.__str__


class BindError(ShapeError, RuntimeError):
    """One Variable has two values. A ShapeError and a RuntimeError at once."""


class GradientError(RuntimeError, AssertionError):
    """An operation cannot be differentiated. A RuntimeError and an AssertionError at once."""


class DeviceError(RuntimeError):
    """A device does not exist, does not open, or does not fit the operands."""


_MOST_ITEMS = 16
_LONGEST = 100

PACKAGE = str(Path(__file__).parent) + os.sep
_STDLIB = str(Path(os.__file__).parent) + os.sep


def comes_from_user(filename: str) -> bool:
    """Return whether a source file is neither this package's nor the standard library's."""
    if filename.startswith((PACKAGE, "<frozen ")):
        return False
    # contextlib and functools sit between a decorated function of ours and the user's call; installed packages, which
    # live below the standard library's folder, are users too.
    return not filename.startswith(_STDLIB) or "site-packages" in filename or "dist-packages" in filename


def user_frame() -> FrameType | None:
    """Return the innermost frame outside this package and the standard library, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not comes_from_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_line() -> str:
    """Return where the user's code is, such as ``train.py:41   logits = hidden @ w``; empty if there is none.

    Walks the stack and reads a source file: call it only when an error is raised.
    """
    import linecache

    frame = user_frame()
    if frame is None:
        return ""
    filename, number = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(filename, number, frame.f_globals).strip()
    return f"{_short_path(filename)}:{number}   {source}".rstrip()


def _short_path(filename: str) -> str:
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename


def error_text(
    op: str, summary: str, operands: Mapping[str, Any] | None = None, rule: str | None = None, hint: str | None = None
) -> str:
    """Build the message of an error: operation, operands, rule, the user's line, and what would have been valid.

    Args:
        op: Name of the operation as the user wrote it, such as ``matmul``.
        summary: What is wrong, in one line, with the numbers.
        operands: Name of each operand -> a tensor or node (its shape, dtype and device are shown), or any other value.
        rule: The condition that does not hold.
        hint: What the user could write instead.

    Example:
        >>> error_text("permute", "order has 3 entries, the tensor 2 dims", rule="len(order) == ndim").splitlines()[1]
        '  rule  len(order) == ndim'
    """
    rows = [(name, _describe(value)) for name, value in (operands or {}).items()]
    rows += [("rule", rule)] if rule else []
    line = user_line()
    rows += [("line", line)] if line else []
    rows += [("hint", hint)] if hint else []
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([f"{op}: {summary}", *(f"  {name:<{width}}  {text}" for name, text in rows)])


def _describe(value: Any) -> str:
    return value if isinstance(value, str) else _attributes(value) or shown(value)


def _attributes(value: Any) -> str:
    parts = []
    for attribute in ("shape", "dtype", "device"):
        try:
            found = getattr(value, attribute)
        except Exception:  # noqa: BLE001  a half-built operand must not hide the error that is being reported
            continue
        if found is not None:
            parts.append(shown(found) if attribute == "shape" else str(getattr(found, "full_name", found)))
    return "   ".join(parts)


def shown(value: Any) -> str:
    """Return a size, a shape or another argument as messages show it: symbolic sizes by name, nothing very long.

    Example:
        >>> shown((2, 3))
        '(2, 3)'
    """
    if type(value) in {tuple, list}:
        inside = ", ".join(map(shown, value[:_MOST_ITEMS])) + (", ..." if len(value) > _MOST_ITEMS else "")
        if type(value) is list:
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if hasattr(value, "size_text"):
        return str(value.size_text())
    try:
        if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
            return f"{type(value).__name__} {_attributes(value)}"
        text = repr(value)
    except Exception:  # noqa: BLE001  an argument that cannot be printed must not hide the error that is being reported
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
