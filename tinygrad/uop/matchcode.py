"""From rewrite rules to Python source: one function per op that tries all rules for this op.

In:   rules (pattern, function, names of its parameters) and an op.
Out:  a function (node, ctx) -> replacement or None, written as text and compiled. The tests of a rule are in the order
      of their cost: ops of the sources, numbers of sources, dtypes, arguments, repeated names.
Why:  walking pattern objects for every node would cost more than all rewriting.
"""

from __future__ import annotations

import itertools
import math
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tinygrad.dtype import ConstFloat
from tinygrad.record import field, record
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.upat import ANY, PREFIX, REPEAT, UNORDERED, UPat, permutations

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

RewriteFn: TypeAlias = "Callable[[UOp, Any], UOp | None]"

# Flags of code objects, as ``inspect`` calls them: *args, **kwargs.
_TAKES_ANY_NUMBER, TAKES_ANY_NAME = 0x04, 0x08
# Above this number of orders and alternatives a pattern is matched by interpretation instead of by generated code.
_MOST_ALTERNATIVES = 512
_ARITY = {
    **dict.fromkeys(GroupOp.Unary, 1),
    **dict.fromkeys(GroupOp.Binary, 2),
    **dict.fromkeys(GroupOp.Ternary, 3),
    Ops.CAST: 1,
    Ops.BITCAST: 1,
    Ops.CONST: 0,
}


@record(eq=False)
class Rule:
    """One row of a table: a pattern, a function of the captured nodes, and where it is written."""

    pattern: UPat
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    location: tuple[str, int]
    tries: int = 0
    hits: int = 0
    seconds: float = 0.0
    compiled: dict[Ops, RewriteFn] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.location[0]}:{self.location[1]}"

    def __str__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{name} ({self.where}) for {self.pattern!r}"

    def function_for(self, op: Ops) -> RewriteFn:
        """Return a function that tries this rule alone on nodes with ``op``."""
        if op not in self.compiled:
            self.compiled[op] = compile_rules([self], op)
        return self.compiled[op]


# ---- from a pattern to plain conjunctions ----------------------------------------------------------------------------


@record
class _Shape:
    """A pattern without choices: any-order sources and alternatives have been picked."""

    pattern: UPat
    names: tuple[str, ...]
    children: tuple[_Shape, ...] | None = None
    at_least: bool = False
    all_same: bool = False


class _NeedsInterpreter(Exception):  # noqa: N818  control flow inside this file
    """A pattern that generated code does not cover."""


def _expand(pattern: UPat) -> list[_Shape]:
    names = () if pattern.name is None else (pattern.name,)
    if pattern.is_any:
        shapes = [shape for p in pattern.sources or () for shape in _expand(p)]
        for shape in shapes:
            shape.names += names
        return shapes
    if pattern.sources is None or pattern.mode == ANY:
        return [_Shape(pattern, names)]
    if pattern.mode == REPEAT:
        if pattern.sources[0].name is not None:  # one name, so all sources are one node
            return [_Shape(pattern, names, (s,), all_same=True) for s in _expand(pattern.sources[0])]
        if pattern.sources[0].names():
            raise _NeedsInterpreter
        return [_Shape(pattern, names)]
    rows = permutations(pattern.sources) if pattern.mode == UNORDERED else [pattern.sources]
    expanded = {p: _expand(p) for p in dict.fromkeys(pattern.sources)}
    out = [
        _Shape(pattern, names, tuple(_copy(s) for s in choice), at_least=pattern.mode == PREFIX)
        for row in rows
        for choice in itertools.product(*(expanded[p] for p in row))
    ]
    if len(out) > _MOST_ALTERNATIVES:
        raise _NeedsInterpreter
    return out


def _copy(shape: _Shape) -> _Shape:
    children = None if shape.children is None else tuple(map(_copy, shape.children))
    return _Shape(shape.pattern, shape.names, children, shape.at_least, shape.all_same)


# ---- from conjunctions to source text --------------------------------------------------------------------------------


class Source:
    """Writes the function for one op; keeps the objects that the text refers to."""

    def __init__(self, op: Ops) -> None:
        self.op = op
        self.arity = _ARITY.get(op)
        self.namespace: dict[str, Any] = {"ConstFloat": ConstFloat, "copysign": math.copysign}
        self.lines: list[str] = []
        self.group: str | None = None
        self.known: dict[int, str] = {}

    def constant(self, value: Any, prefix: str) -> str:
        """Return the name under which the generated function finds ``value``."""
        if isinstance(value, Ops):
            name = f"OP_{value.name}"
            self.namespace[name] = value
            return name
        if id(value) not in self.known:
            self.known[id(value)] = f"{prefix}{len(self.namespace)}"
            self.namespace[self.known[id(value)]] = value
        return self.known[id(value)]

    def add(self, rule: Rule) -> None:
        """Append the code that tries ``rule``."""
        try:
            shapes = [s for s in _expand(rule.pattern) if s.pattern.op is None or self.op in s.pattern.op]
        except _NeedsInterpreter:
            self.emit([], f"{self.constant(_interpreter(rule), 'interpret')}(u, ctx)")
            return
        if len(shapes) > _MOST_ALTERNATIVES:
            self.emit([], f"{self.constant(_interpreter(rule), 'interpret')}(u, ctx)")
            return
        function = self.constant(rule.function, "rule")
        seen: set[str] = set()
        for shape in shapes:
            conditions, captures = self.conditions(shape)
            if conditions is None:
                continue
            call = f"{function}({', '.join(self.arguments(rule, captures))})"
            text = " and ".join([*conditions, call])
            if text not in seen:
                seen.add(text)
                self.emit(conditions, call)

    def arguments(self, rule: Rule, captures: dict[str, str]) -> list[str]:
        """Return the text of the call's arguments."""
        out = []
        simple = _takes_exactly(rule.function, rule.parameters)
        for name in rule.parameters:
            value = "ctx" if name == "ctx" else captures.get(name, "None")
            out.append(value if simple else f"{name}={value}")
        return out

    def conditions(self, root: _Shape) -> tuple[list[str] | None, dict[str, str]]:
        """Return the tests of one shape in the order of their cost, and the text of each captured node.

        None instead of the tests means that no node can match.
        """
        out: list[str] = []
        captures: dict[str, str] = dict.fromkeys(root.names, "u")
        level: list[tuple[_Shape, str, str]] = [(root, "u", "")]  # shape, text, path
        while level:
            below: list[tuple[_Shape, str, str]] = []
            stages: list[list[str]] = [[], [], [], [], []]
            for shape, text, path in level:
                if not self.node_tests(shape, text, path, stages):
                    return None, {}
                if path:
                    self.capture(shape, text, captures, stages[4])
                below += self.below(shape, text, path)
            out += [test for stage in stages for test in stage]
            level = below
        return out, captures

    def node_tests(self, shape: _Shape, node: str, path: str, stages: list[list[str]]) -> bool:
        """Add the tests of one node but for names; False if they cannot hold."""
        p = shape.pattern
        fixed = self.arity if not path else None
        if path and p.op is not None:
            text = f"o{path[1:]}" if self.arity is not None and "_" not in path[1:] else f"{node}.op"
            names = [self.constant(op, "OP") for op in sorted(p.op)]
            stages[0].append(f"{text} is {names[0]}" if len(names) == 1 else f"{text} in {self.constant(p.op, 'ops')}")
            arities = {_ARITY.get(op) for op in p.op}
            fixed = arities.pop() if len(arities) == 1 else None
        if shape.children is not None:
            if not self.count_tests(shape, node, path, fixed, stages[1]):
                return False
        elif p.mode == REPEAT and p.sources is not None:
            stages[1].append(f"all(map({self.constant(_predicate(p.sources[0]), 'every')}, {node}.src))")
        if p.custom_early_reject is not None:
            stages[1].append(f"{self.constant(p.custom_early_reject, 'ops')} <= {{s.op for s in {node}.src}}")
        if p.dtype is not None:
            names = [self.constant(d, "dtype") for d in p.dtype]
            text = f"{node}.dtype"
            stages[2].append(
                f"{text} is {names[0]}" if len(names) == 1 else f"{text} in {self.constant(p.dtype, 'dtypes')}"
            )
        if p.value is not None:
            stages[3].append(_const_test(p.value.value, p.value.strict, f"{node}.arg", self))
        if p.arg is not None:
            stages[3].append(f"{node}.arg == {self.constant(p.arg, 'arg')}")
        if p.tag is not None:
            stages[3].append(f"{node}.tag in {self.constant(p.tag, 'tags')}")
        return True

    def count_tests(self, shape: _Shape, node: str, path: str, fixed: int | None, stage: list[str]) -> bool:
        """Add the test of the number of sources where the op does not fix it; False if it cannot hold."""
        count = len(shape.children or ())
        if shape.all_same:
            sources = node + ".src" if path else "us" if self.arity is None else "u.src"
            stage.append(f"len(set({sources})) == 1")
            return fixed != 0
        if fixed is not None:
            return fixed >= count if shape.at_least else fixed == count
        if shape.at_least and count == 0:
            return True
        length = f"len({node}.src)" if path else "n"
        stage.append(f"{length} {'>=' if shape.at_least else '=='} {count}")
        return True

    def below(self, shape: _Shape, node: str, path: str) -> list[tuple[_Shape, str, str]]:
        """Return the node's children with the text that reaches them."""
        out = []
        for i, child in enumerate(shape.children or ()):
            at_root = f"us[{i}]" if self.arity is None else f"u{i}"
            text = f"{node}.src[{i}]" if path else at_root
            out.append((child, text, f"{path}_{i}"))
        return out

    def capture(self, shape: _Shape, node: str, captures: dict[str, str], stage: list[str]) -> None:
        """Name the node, or test that it is the node that has the name already."""
        for name in shape.names:
            if name in captures:
                if captures[name] != node:
                    stage.append(f"{node} is {captures[name]}")
            else:
                captures[name] = node

    def emit(self, conditions: list[str], call: str) -> None:
        """Write one guarded call. Neighbours that share their first test share the ``if``."""
        indent = "    "
        if len(conditions) > 1:
            if self.group != conditions[0]:
                self.lines.append(f"{indent}if {conditions[0]}:")
                self.group = conditions[0]
            indent, conditions = "        ", conditions[1:]
        else:
            self.group = None
        if conditions:
            self.lines.append(f"{indent}if {' and '.join(conditions)}:")
            indent += "    "
        self.lines += [f"{indent}r = {call}", f"{indent}if r is not None and r is not u:", f"{indent}    return r"]

    def text(self) -> str:
        """Return the whole function."""
        head = ["def rewrite(u, ctx):"]
        body = "\n".join(self.lines)
        if self.arity is None:
            head += ["    us = u.src", "    n = len(us)"]
        elif self.arity > 0:
            head.append(f"    {', '.join(f'u{i}' for i in range(self.arity))}, = u.src")
            head += [f"    o{i} = u{i}.op" for i in range(self.arity) if f"o{i} " in body]
        return "\n".join([*head, body, "    return None"])


def _const_test(value: Any, strict: bool, arg: str, source: Source) -> str:
    if isinstance(value, bool):
        return f"{arg} is {value}"
    if not isinstance(value, (int, float)):
        return f"{arg} is {source.constant(value, 'value')}"
    as_float = f"type({arg}) is ConstFloat and "
    if isinstance(value, float) and math.isnan(value):
        as_float += f"float({arg}) != float({arg})"
    else:
        as_float += f"float({arg}) == {source.constant(float(value), 'number')}"
    if value == 0:
        as_float += f" and copysign(1.0, {arg}) {'<' if math.copysign(1.0, value) < 0 else '>'} 0"
    if isinstance(value, float):
        return f"({as_float})"
    as_int = f"type({arg}) is int and {arg} == {value}"
    return f"({as_int})" if strict else f"({as_int} or {as_float})"


def _interpreter(rule: Rule) -> RewriteFn:
    """Return a function that tries ``rule`` by walking its pattern."""

    def rewrite(u: UOp, ctx: Any) -> UOp | None:
        for captures in rule.pattern.match(u, {}):
            values = {name: ctx if name == "ctx" else captures.get(name) for name in rule.parameters}
            result: UOp | None = rule.function(**values)
            if result is not None and result is not u:
                return result
        return None

    return rewrite


def _takes_exactly(function: Callable[..., Any], parameters: tuple[str, ...]) -> bool:
    """Return whether a plain Python function takes just these parameters, so that they can be given by position."""
    if not isinstance(function, types.FunctionType):
        return False
    code = function.__code__
    takes_more = code.co_kwonlyargcount > 0 or code.co_flags & (_TAKES_ANY_NUMBER | TAKES_ANY_NAME)
    return not takes_more and parameters == code.co_varnames[: code.co_argcount]


def _predicate(pattern: UPat) -> Callable[[UOp], bool]:
    """Return a test of single nodes for a pattern that captures nothing."""
    any_field = pattern.arg is None and pattern.value is None and pattern.tag is None
    if pattern.sources is None and not pattern.is_any and any_field:
        ops, found = pattern.op, pattern.dtype
        return lambda u: (ops is None or u.op in ops) and (found is None or u.dtype in found)
    return lambda u: bool(pattern.match(u, {}))


def compile_rules(rules: Sequence[Rule], op: Ops) -> RewriteFn:
    """Return one function that tries ``rules`` in order on nodes with ``op``."""
    source = Source(op)
    for rule in rules:
        source.add(rule)
    if not source.lines:
        return lambda u, ctx: None
    exec(compile(source.text(), f"<rules for {op.name}>", "exec"), source.namespace)
    compiled: RewriteFn = source.namespace["rewrite"]
    return compiled
