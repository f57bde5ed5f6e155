"""Tables of rewrite rules, compiled to Python functions.

In:   rows of (pattern, function), see ``uop/upat.py``; a plain node is a pattern too.
Out:  ``PatternMatcher.rewrite(node, ctx)``: the replacement of one node, or None.
Why:  rewriting is most of the compile time. On the first node with a given op a matcher writes one Python function that
      holds every rule for this op, each a chain of tests with the cheap ones first (ops of the sources, then their
      dtypes, then arguments), and no pattern object is looked at again.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import marshal
import math
import time
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tinygrad.dtype import ConstFloat, dtypes
from tinygrad.settings import TRACK_MATCH_STATS
from tinygrad.uop import GroupOp, Ops, tracing
from tinygrad.uop.upat import ANY, PREFIX, REPEAT, UNORDERED, UPat, pattern_from_template, permutations

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

RewriteFn = Callable[["UOp", Any], "UOp | None"]

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


class RuleStats(NamedTuple):
    """Counts of one rule: how often it was tried and how often it replaced a node, and the time that it took."""

    location: str
    pattern: str
    tries: int
    hits: int
    seconds: float


@dataclass(eq=False)
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


def _rule_parameters(pattern: UPat, function: Callable[..., Any], where: tuple[str, int]) -> tuple[str, ...]:
    """Return the names that the function is called with, in the order of its parameters.

    Raises:
        TypeError: The parameters are not the names that the pattern captures.
    """
    captured = pattern.names()
    try:
        declared = list(inspect.signature(function).parameters.values())
    except ValueError:  # a builtin without a signature
        return tuple(sorted(captured))
    names = [p.name for p in declared if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = {p.name for p in declared if p.name in names and p.default is p.empty}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in declared)
    missing = captured - set(names) if not takes_all else set()
    unknown = required - captured - {"ctx"}
    if missing or unknown:
        raise TypeError(
            f"PatternMatcher: the parameters of a rule must be the names that its pattern captures (and ctx if wanted)\n"
            f"  rule     {getattr(function, '__name__', function)} at {where[0]}:{where[1]}\n"
            f"  pattern  {pattern!r}\n"
            f"  captures {sorted(captured)}\n  parameters {names}\n"
            f"  hint     " + (f"add {sorted(missing)} to the parameters" if missing else f"the pattern captures no {sorted(unknown)}")
        )
    wanted = [name for name in names if name in captured or name == "ctx"]
    return tuple(wanted + sorted(captured - set(names)))


def _make_rule(row: Any) -> Rule:
    if not isinstance(row, (tuple, list)) or len(row) != 2 or not callable(row[1]):
        raise TypeError(f"PatternMatcher: a rule is a pair (pattern, function), got {row!r}")
    pattern, function = row
    code = getattr(function, "__code__", None)
    if not isinstance(pattern, UPat):
        if not hasattr(pattern, "op"):
            raise TypeError(f"PatternMatcher: the left side of a rule is a UPat or a UOp, got {type(pattern).__name__}")
        pattern = pattern_from_template(pattern)
        location = (code.co_filename, code.co_firstlineno) if code is not None else pattern.location
    else:
        location = pattern.location
    if not root_ops(pattern):
        raise AssertionError(
            f"PatternMatcher: the top of a pattern must name its op, at {location[0]}:{location[1]}: {pattern!r}"
        )
    return Rule(pattern, function, _rule_parameters(pattern, function, location), location)


def root_ops(pattern: UPat) -> frozenset[Ops]:
    """Return the ops that a matching node may have; empty if it may have any."""
    if not pattern.is_any:
        return pattern.op or frozenset()
    parts = [root_ops(p) for p in pattern.sources or ()]
    return frozenset().union(*parts) if all(parts) else frozenset()


# ---- from a pattern to plain conjunctions ------------------------------------------------------------------------------


@dataclass(slots=True)
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


# ---- from conjunctions to source text ----------------------------------------------------------------------------------


class _Source:
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
        code = getattr(rule.function, "__code__", None)
        simple = code is not None and code.co_kwonlyargcount == 0 and not code.co_flags & 0x0C
        simple = simple and inspect.isfunction(rule.function) and rule.parameters == code.co_varnames[: code.co_argcount]
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
            stages[2].append(f"{text} is {names[0]}" if len(names) == 1 else f"{text} in {self.constant(p.dtype, 'dtypes')}")
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
            if path:
                text = f"{node}.src[{i}]"
            else:
                text = f"us[{i}]" if self.arity is None else f"u{i}"
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


def _const_test(value: Any, strict: bool, arg: str, source: _Source) -> str:
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


def _predicate(pattern: UPat) -> Callable[[UOp], bool]:
    """Return a test of single nodes for a pattern that captures nothing."""
    if pattern.sources is None and not pattern.is_any and pattern.arg is pattern.value is pattern.tag is None:
        ops, found = pattern.op, pattern.dtype
        return lambda u: (ops is None or u.op in ops) and (found is None or u.dtype in found)
    return lambda u: bool(pattern.match(u, {}))


def compile_rules(rules: Sequence[Rule], op: Ops) -> RewriteFn:
    """Return one function that tries ``rules`` in order on nodes with ``op``."""
    source = _Source(op)
    for rule in rules:
        source.add(rule)
    if not source.lines:
        return lambda u, ctx: None
    exec(compile(source.text(), f"<rules for {op.name}>", "exec"), source.namespace)
    return source.namespace["rewrite"]  # type: ignore[no-any-return]


def upat_compile(pattern: UPat, fxn: Callable[..., Any]) -> RewriteFn:
    """Return ``f(node, ctx)`` that tries one rule."""
    rule = _make_rule((pattern, fxn))
    return lambda u, ctx=None: rule.function_for(u.op)(u, ctx) if u.op in root_ops(rule.pattern) else None


def _get_code(pattern: UPat, op: Ops | None = None) -> str:
    """Return the text of the function that a rule with this pattern becomes (for reading, not for running)."""
    chosen = op if op is not None else min(root_ops(pattern))
    source = _Source(chosen)
    source.add(Rule(pattern, lambda **kw: None, tuple(sorted(pattern.names())), pattern.location))
    return source.text()


# ---- tables ------------------------------------------------------------------------------------------------------------

_serial = itertools.count()


class PatternMatcher:
    """An ordered table of rewrite rules.

    Args:
        patterns: Rows (pattern, function). The pattern is a ``UPat``, or a plain ``UOp`` in which ``UOp.variable("a")``
            without bounds stands for any node, named ``a``. The function's parameters are the captured names, and ``ctx``
            if it wants the context. It returns the replacement; None or the same node means that the rule does not apply.
            Rules are tried in order, the first that replaces wins.
        compiled: Accepted for compatibility; matchers are always compiled.
        trace: Count tries, hits and time per rule; see ``stats``. TRACK_MATCH_STATS=1 does it for all matchers.
        pure: Whether the result depends on the node alone, so that ``graph_rewrite`` may remember it on the node. Found by
            itself: a matcher is pure if no rule takes ``ctx`` or is a closure.

    Raises:
        TypeError: A row is not a rule, or its parameters are not the captured names.
        AssertionError: The top of a pattern does not name its op.

    Example:
        >>> from tinygrad.uop.ops import UOp
        >>> pm = PatternMatcher([(UPat.var("x") * 1, lambda x: x)])
        >>> pm.rewrite(UOp.variable("a", 0, 9) * 1) is UOp.variable("a", 0, 9)
        True
    """

    def __init__(
        self, patterns: Iterable[Any], compiled: bool = True, trace: bool = False, pure: bool | None = None
    ) -> None:
        self._setup([_make_rule(row) for row in patterns], trace, pure)

    def _setup(self, rules: list[Rule], trace: bool, pure: bool | None) -> None:
        self.rules = rules
        self.trace = trace
        self.serial = next(_serial)
        self.by_op: dict[Ops, list[Rule]] = {}
        for rule in rules:
            for op in root_ops(rule.pattern):
                self.by_op.setdefault(op, []).append(rule)
        self.root_mask = sum(1 << op for op in self.by_op)
        self.functions: dict[Ops, RewriteFn] = {}
        self._traced_functions: dict[Ops, RewriteFn] = {}
        self._sums: weakref.WeakKeyDictionary[PatternMatcher, PatternMatcher] = weakref.WeakKeyDictionary()
        self.pure = all(_is_pure(rule) for rule in rules) if pure is None else pure

    @property
    def patterns(self) -> list[tuple[UPat, Callable[..., Any]]]:
        """The rows of the table."""
        return [(rule.pattern, rule.function) for rule in self.rules]

    def function_for(self, op: Ops) -> RewriteFn:
        """Return the compiled function for nodes with ``op``."""
        function = self.functions.get(op)
        if function is None:
            function = self.functions[op] = compile_rules(self.by_op.get(op, ()), op)
        return function

    def traced_function_for(self, op: Ops) -> RewriteFn:
        """Return the function for nodes with ``op`` that counts, and records where a recorder is on."""
        if op not in self._traced_functions:
            self._traced_functions[op] = _traced(self.by_op.get(op, []), op)
        return self._traced_functions[op]

    @property
    def is_traced(self) -> bool:
        """Whether rules are counted now."""
        return self.trace or bool(TRACK_MATCH_STATS.get())

    def rewrite(self, uop: UOp, ctx: Any = None) -> UOp | None:
        """Return the replacement of one node, or None."""
        if self.is_traced:
            return self.traced_function_for(uop.op)(uop, ctx)
        return (self.functions.get(uop.op) or self.function_for(uop.op))(uop, ctx)

    def explain(self, uop: UOp, ctx: Any = None) -> Rule | None:
        """Return the rule that replaces ``uop``, or None."""
        for rule in self.by_op.get(uop.op, ()):
            if rule.function_for(uop.op)(uop, ctx) is not None:
                return rule
        return None

    def stats(self) -> list[RuleStats]:
        """Return tries, hits and seconds of every rule, in the order of the table."""
        return [RuleStats(r.where, repr(r.pattern), r.tries, r.hits, r.seconds) for r in self.rules]

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        if not isinstance(other, PatternMatcher):
            return NotImplemented
        if (found := self._sums.get(other)) is None:
            found = object.__new__(type(self))
            found._setup([*self.rules, *other.rules], self.trace or other.trace, self.pure and other.pure)
            self._sums[other] = found
        return found

    def __repr__(self) -> str:
        return f"<PatternMatcher of {len(self.rules)} rules>"

    def __reduce__(self) -> tuple[Any, ...]:
        rows = [(r.pattern, _function_state(r.function), r.parameters, r.location) for r in self.rules]
        return _rebuild, (rows, self.trace, self.pure)


class TrackedPatternMatcher(PatternMatcher):
    """A PatternMatcher whose rules are always counted."""

    def __init__(self, patterns: Iterable[Any], compiled: bool = True) -> None:
        super().__init__(patterns, compiled, trace=True)


def _is_pure(rule: Rule) -> bool:
    return "ctx" not in rule.parameters and getattr(rule.function, "__closure__", None) is None


def _traced(rules: list[Rule], op: Ops) -> RewriteFn:
    """Return a function that tries the rules one by one and keeps their counts."""
    functions = [(rule, rule.function_for(op)) for rule in rules]
    clock = time.perf_counter

    def rewrite(u: UOp, ctx: Any) -> UOp | None:
        for rule, function in functions:
            rule.tries += 1
            start = clock()
            result = function(u, ctx)
            seconds = clock() - start
            rule.seconds += seconds
            if result is not None:
                rule.hits += 1
                tracing.on_match(rule, u, result, seconds)
                return result
        return None

    return rewrite


# ---- pickling: Python functions travel by name, and lambdas by their code ------------------------------------------------


def _function_state(function: Callable[..., Any]) -> Any:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or ("<" not in name and _find(module, name) is function):
        return function
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    return marshal.dumps(function.__code__), module, function.__defaults__, cells


def _find(module: str | None, name: str) -> Any:
    found: Any = importlib.import_module(module) if module else None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _rebuild(rows: list[Any], trace: bool, pure: bool) -> PatternMatcher:
    rules = []
    for pattern, state, parameters, location in rows:
        function = state
        if isinstance(state, tuple):
            code, module, defaults, cells = state
            namespace = vars(importlib.import_module(module)) if module else {}
            closure = tuple(types.CellType(value) for value in cells)
            function = types.FunctionType(marshal.loads(code), namespace, None, defaults, closure or None)
        rules.append(Rule(pattern, function, parameters, location))
    matcher = object.__new__(PatternMatcher)
    matcher._setup(rules, trace, pure)
    return matcher
