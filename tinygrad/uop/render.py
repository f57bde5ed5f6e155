"""Nodes as text: infix for index arithmetic, a tree for ``repr``, a table for programs, Python that rebuilds a graph.

In:   a node, or a list of nodes in program order.
Out:  text. Nothing here recurses over the depth of a graph.
Why:  whoever debugs a stage reads its graph; each form shows what matters at that stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import ConstFloat, Invalid, dtypes
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.matcher import PatternMatcher
    from tinygrad.uop.ops import UOp

# Operator and how tightly it binds; a call binds as tightly as a name.
_OPERATORS: dict[Ops, tuple[str, int]] = {
    Ops.OR: ("|", 2),
    Ops.XOR: ("^", 3),
    Ops.AND: ("&", 4),
    Ops.CMPLT: ("<", 1),
    Ops.CMPNE: ("!=", 1),
    Ops.CMPEQ: ("==", 1),
    Ops.SHL: ("<<", 5),
    Ops.SHR: (">>", 5),
    Ops.ADD: ("+", 6),
    Ops.SUB: ("-", 6),
    Ops.MUL: ("*", 7),
    Ops.FDIV: ("/", 7),
    Ops.FLOORDIV: ("//", 7),
    Ops.FLOORMOD: ("%", 7),
    Ops.POW: ("**", 9),
}
_ATOM = 10
_CALLS = {Ops.MAX: "max", Ops.CDIV: "cdiv", Ops.CMOD: "cmod", Ops.RECIPROCAL: "reciprocal"}
# Longer texts are cut: a shared sub-expression is written out at every use, which can grow without bound.
_LONGEST = 20_000
_MOST_LINES = 10_000


def range_str(u: UOp) -> str:
    """Return the name of a RANGE, such as ``r0`` or ``r0_1``."""
    numbers = [x for x in u.arg if not isinstance(x, AxisType)] if isinstance(u.arg, tuple) else [u.arg]
    return "r" + "_".join(str(x) for x in numbers).replace("-", "m")


def multirange_str(ranges: Iterable[UOp]) -> str:
    """Return the names of several RANGEs, separated by commas."""
    return ",".join(range_str(r) for r in sorted(ranges, key=lambda r: str(r.arg)))


def _parenthesised(text: str, binds: int, at_least: int) -> str:
    return text if binds >= at_least else f"({text})"


def _leaf_text(u: UOp) -> str | None:
    match u.op:
        case Ops.CONST:
            return str(u.arg)
        case Ops.RANGE:
            return range_str(u)
        case Ops.SPECIAL:
            return str(u.arg)
        case Ops.PARAM | Ops.BUFFER:
            return u.arg.name or f"{'p' if u.op is Ops.PARAM else 'buf'}{u.arg.slot}"
    return None


def _infix(u: UOp, parts: list[tuple[str, int]]) -> tuple[str, int]:
    """Return the text of a node, given text and binding of its sources, and how tightly it binds."""
    if (leaf := _leaf_text(u)) is not None:
        return leaf, _ATOM if not leaf.startswith("-") else 8
    texts = [text for text, _ in parts]
    if u.op in _OPERATORS:
        symbol, binds = _OPERATORS[u.op]
        # a-b-c groups to the left; the right side of -, /, // and % needs its parentheses
        right = binds if u.op in (Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR) and u.src[1].op is u.op else binds + 1
        left_text = _parenthesised(*parts[0], at_least=binds)
        return f"{left_text}{symbol}{_parenthesised(*parts[1], at_least=right)}", binds
    match u.op:
        case Ops.WHERE:
            return f"{_parenthesised(*parts[1], 1)} if {texts[0]} else {_parenthesised(*parts[2], 1)}", 0
        case Ops.NEG:
            return f"-{_parenthesised(*parts[0], 8)}", 8
        case Ops.AFTER | Ops.DETACH | Ops.CONTIGUOUS:
            return parts[0]
        case Ops.LOAD if len(parts) == 1:
            return parts[0]
        case Ops.INDEX:
            return f"{_parenthesised(*parts[0], _ATOM)}[{', '.join(texts[1:])}]", _ATOM
        case Ops.CAST | Ops.BITCAST:
            return f"{'' if u.op is Ops.CAST else 'bits_'}{u.dtype.full_name}({texts[0]})", _ATOM
    return f"{_CALLS.get(u.op, u.op.name.lower())}({', '.join(texts)})", _ATOM


def render(u: UOp, pm: PatternMatcher | None = None) -> str:
    """Return the infix text of an expression, such as ``(a*2+2)``.

    Args:
        u: The node.
        pm: Rules that return the text of a node themselves; ``ctx`` is the map of its sources' texts.
    """
    done: dict[UOp, tuple[str, int]] = {}
    for node in u.toposort():
        if pm is not None and (own := pm.rewrite(node, {s: done[s][0] for s in node.src})) is not None:
            done[node] = str(own), _ATOM
            continue
        text, binds = _infix(node, [done[s] for s in node.src])
        done[node] = (text, binds) if len(text) <= _LONGEST else (text[:_LONGEST] + "...", _ATOM)
    text, binds = done[u]
    return text if binds == _ATOM or not u.src else f"({text})"


def argstr(u: UOp) -> str:
    """Return a node's argument as short text."""
    return repr(u.arg) if not isinstance(u.arg, (str, bytes)) or len(u.arg) < 80 else f"{u.arg[:77]!r}..."


def tree(u: UOp) -> str:
    """Return the graph as an indented tree; nodes that are used twice are named xN at their first use."""
    uses: dict[UOp, int] = {}
    for reader in u.toposort():
        for s in reader.src:
            uses[s] = uses.get(s, 0) + 1
    names: dict[UOp, str] = {}
    lines: list[str] = []
    node: UOp | str
    stack: list[tuple[UOp | str, int]] = [(u, 0)]
    while stack:
        if len(lines) > _MOST_LINES:
            lines.append("...")
            break
        node, depth = stack.pop()
        indent = " " * min(2 * depth, 80)
        if isinstance(node, str):
            lines[-1] += node
            continue
        if node in names:
            lines.append(f"{indent}{names[node]},")
            continue
        label = ""
        if uses.get(node, 0) > 1:
            names[node] = f"x{len(names)}"
            label = f"{names[node]}:="
        tag = "" if node.tag is None else f", tag={node.tag!r}"
        head = f"{indent}{label}UOp({node.op}, {node.dtype}, arg={argstr(node)}{tag}, src=("
        if not node.src:
            lines.append(head + ("))" if depth == 0 else ")),"))
            continue
        lines.append(head)
        stack.append((")" + ("" if depth == 0 else "),"), depth) if depth else ("))", depth))
        stack.extend((s, depth + 1) for s in reversed(node.src))
    return "\n".join(lines)


def print_uops(uops: Iterable[UOp]) -> None:
    """Print a linear program, one node a line: number, op, dtype, numbers of the sources, argument."""
    print(uops_text(uops))  # noqa: T201


def uops_text(uops: Iterable[UOp]) -> str:
    """Return what ``print_uops`` prints."""
    number: dict[UOp, int] = {}
    lines = []
    for i, u in enumerate(uops):
        number[u] = i
        sources = [str(number[s]) if s in number else f"{s.op.name}?" for s in u.src]
        dtype = "" if u.dtype is dtypes.void else u.dtype.full_name
        sizes = "".join(f"x{size if isinstance(size, int) else size.render()}" for size in u._shape or ())
        arg = "" if u.arg is None else argstr(u)
        listed = f"[{', '.join(sources)}]"
        lines.append(f"{i:4d} {u.op.name:<10s} {dtype + sizes:<15s} {listed:<9s} {arg}".rstrip())
    return "\n".join(lines)


def _value_text(value: Any) -> str:
    if isinstance(value, ConstFloat) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return "Invalid" if value is Invalid else repr(value)


def pyrender(u: UOp) -> str:
    """Return Python statements that rebuild the graph, the root as ``ast``; ``spec.eval_pyrender`` runs them.

    Raises:
        NotImplementedError: The graph holds a call, whose gradient function is no text.
    """
    names: dict[UOp, str] = {}
    lines: list[str] = []
    for node in u.toposort():
        if node.op in (Ops.CALL, Ops.FUNCTION):
            raise NotImplementedError(f"pyrender: {node.op} cannot be written as text; render its body instead")
        names[node] = "ast" if node is u else f"c{len(lines)}"
        lines.append(f"{names[node]} = {_statement(node, names.__getitem__)}")
    return "\n".join(lines)


def _statement(node: UOp, name: Callable[[UOp], str]) -> str:
    if node.op is Ops.CONST and node.tag is None:
        return f"UOp.const({_value_text(node.arg)}, {node.dtype})"
    sources = ", ".join(name(s) for s in node.src)
    parts = [str(node.op), str(node.dtype), f"({sources}{',' if len(node.src) == 1 else ''})"]
    if node.arg is not None:
        parts.append(f"arg={_value_text(node.arg)}")
    if node.tag is not None:
        parts.append(f"tag={node.tag!r}")
    return f"UOp({', '.join(parts)})"
