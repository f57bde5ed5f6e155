"""Text for people: ANSI colors, times, sizes, identifiers.

In:   strings and numbers.
Out:  strings. Colors vanish with NO_COLOR.
Why:  output of DEBUG levels looks the same wherever it is printed.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from tinygrad.settings import NO_COLOR

__all__ = [
    "ansilen",
    "ansipad",
    "ansistrip",
    "colored",
    "colorize_float",
    "pad_bytes",
    "pluralize",
    "size_to_str",
    "stderr_log",
    "strip_parens",
    "time_to_str",
    "to_function_name",
    "word_wrap",
]

_COLORS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ANSI: Final = re.compile(r"\x1b\[(?:K|.*?m)")


def colored(st: str, color: str | None, background: bool = False) -> str:
    """Return ``st`` with ANSI color codes; an upper-case color is bright, None is plain.

    Raises:
        ValueError: The color has no code.
    """
    if color is None:
        return st
    if color.lower() not in _COLORS:
        raise ValueError(f"colored: no color {color!r}; expected one of {', '.join(_COLORS)}, in upper case for bright")
    if NO_COLOR.get():
        return st
    code = (40 if background else 30) + (60 if color.isupper() else 0) + _COLORS.index(color.lower())
    return f"\x1b[{code}m{st}\x1b[0m"


def ansistrip(s: str) -> str:
    """Remove ANSI codes."""
    return _ANSI.sub("", s)


def ansilen(s: str) -> int:
    """Return the length as shown, without ANSI codes."""
    return len(ansistrip(s))


def ansipad(s: str, w: int) -> str:
    """Pad with spaces on the right to a shown width of ``w``."""
    return s + " " * max(w - ansilen(s), 0)


def word_wrap(x: str, wrap: int = 80) -> str:
    """Break lines that are shown wider than ``wrap``; ANSI codes take no width."""
    return "\n".join(_wrap_line(line, wrap) for line in x.split("\n"))


def _wrap_line(line: str, wrap: int) -> str:
    pieces: list[str] = []
    width = 0
    for part in re.split(r"(\x1b\[(?:K|.*?m))", line):
        if _ANSI.fullmatch(part):
            pieces.append(part)
            continue
        for char in part:
            if width == wrap:
                pieces.append("\n")
                width = 0
            pieces.append(char)
            width += 1
    return "".join(pieces)


def colorize_float(x: float) -> str:
    """Return a ratio such as ``0.93x``: green if clearly below 1, red if clearly above, else yellow."""
    return colored(f"{x:7.2f}x", "green" if x < 0.75 else "red" if x > 1.15 else "yellow")


def time_to_str(t: float, w: int = 8) -> str:
    """Return seconds as text of fixed width: s above 10 s, ms above 10 ms, else us."""
    for unit, scale in (("s ", 1.0), ("ms", 1e3)):
        if t * scale > 10:
            return f"{t * scale:{w}.2f}{unit}"
    return f"{t * 1e6:{w}.2f}us"


def size_to_str(n: float) -> str:
    """Return a number of bytes as text in B, KB, MB or GB (powers of 1000)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n >= scale:
            return f"{n / scale:.2f} {unit}"
    return f"{n:.0f} B"


def strip_parens(s: str) -> str:
    """Remove one pair of parentheses that encloses all of ``s``."""
    if not (s.startswith("(") and s.endswith(")")):
        return s
    depth = 0
    for position, char in enumerate(s):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return s[1:-1] if position == len(s) - 1 else s
    return s


def to_function_name(s: str) -> str:
    """Return a C identifier: characters other than ASCII letters, digits and _ become their hex code."""
    return "".join(
        char if char.isascii() and (char.isalnum() or char == "_") else f"{ord(char):02X}" for char in ansistrip(s)
    )


def pluralize(st: str, cnt: int) -> str:
    """Return a count and its noun, such as ``1 kernel`` or ``2 kernels``."""
    return f"{cnt} {st}" if cnt == 1 else f"{cnt} {st}s"


def pad_bytes(b: bytes, align: int) -> bytes:
    """Append zero bytes up to a multiple of ``align``."""
    return b + bytes(-len(b) % align)


def stderr_log(msg: str) -> None:
    """Write to stderr at once, without a newline of its own."""
    sys.stderr.write(msg)
    sys.stderr.flush()
