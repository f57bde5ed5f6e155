"""Tables of rewrite rules.

In:   rows of (pattern, function), see ``uop/upat.py``; a plain node is a pattern too.
Out:  ``PatternMatcher.rewrite(node, ctx)``: the replacement of one node, or None.
Why:  rewriting is most of the compile time. On the first node with a given op a matcher writes one Python function that
      holds every rule for this op (``uop/matchcode.py``), and no pattern object is looked at again.
"""

from __future__ import annotations

import importlib
import itertools
import marshal
import time
import types
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tinygrad.settings import TRACK_MATCH_STATS
from tinygrad.uop import Ops, tracing
from tinygrad.uop.matchcode import TAKES_ANY_NAME, RewriteFn, Rule, Source, compile_rules
from tinygrad.uop.upat import UPat, pattern_from_template

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


class RuleStats(NamedTuple):
    """Counts of one rule: how often it was tried and how often it replaced a node, and the time that it took."""

    location: str
    pattern: str
    tries: int
    hits: int
    seconds: float


def _rule_parameters(pattern: UPat, function: Callable[..., Any], where: tuple[str, int]) -> tuple[str, ...]:
    """Return the names that the function is called with, in the order of its parameters.

    Raises:
        TypeError: The parameters are not the names that the pattern captures.
    """
    captured = pattern.names()
    declared = _declared(function)
    if declared is None:
        return tuple(sorted(captured))
    names, required, takes_all = declared
    missing = captured - set(names) if not takes_all else set()
    unknown = required - captured - {"ctx"}
    if missing or unknown:
        raise TypeError(
            f"PatternMatcher: the parameters of a rule must be the names that its pattern captures (and ctx)\n"
            f"  rule     {getattr(function, '__name__', function)} at {where[0]}:{where[1]}\n"
            f"  pattern  {pattern!r}\n"
            f"  captures {sorted(captured)}\n  parameters {names}\n"
            f"  hint     "
            + (f"add {sorted(missing)} to the parameters" if missing else f"the pattern captures no {sorted(unknown)}")
        )
    wanted = [name for name in names if name in captured or name == "ctx"]
    return tuple(wanted + sorted(captured - set(names)))


def _declared(function: Callable[..., Any]) -> tuple[list[str], set[str], bool] | None:
    """Return the parameters that may be named, those without a default, and whether it takes any name; None if unknown.

    Nearly all are plain functions, whose code says it. ``inspect`` takes long, and longer to import.
    """
    if isinstance(function, types.FunctionType) and not vars(function) and not function.__code__.co_posonlyargcount:
        code, optional = function.__code__, len(function.__defaults__ or ())
        positional = code.co_varnames[: code.co_argcount]
        by_keyword = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        required = {*positional[: code.co_argcount - optional], *by_keyword} - (function.__kwdefaults__ or {}).keys()
        return [*positional, *by_keyword], required, bool(code.co_flags & TAKES_ANY_NAME)
    import inspect

    try:
        declared = list(inspect.signature(function).parameters.values())
    except ValueError:  # a builtin without a signature
        return None
    names = [p.name for p in declared if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = {p.name for p in declared if p.name in names and p.default is p.empty}
    return names, required, any(p.kind is p.VAR_KEYWORD for p in declared)


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


def upat_compile(pattern: UPat, fxn: Callable[..., Any]) -> RewriteFn:
    """Return ``f(node, ctx)`` that tries one rule."""
    rule = _make_rule((pattern, fxn))

    def rewrite(u: UOp, ctx: Any = None) -> UOp | None:
        return rule.function_for(u.op)(u, ctx) if u.op in root_ops(rule.pattern) else None

    return rewrite


def _get_code(pattern: UPat, op: Ops | None = None) -> str:
    """Return the text of the function that a rule with this pattern becomes (for reading, not for running)."""
    chosen = op if op is not None else min(root_ops(pattern))
    source = Source(chosen)
    source.add(Rule(pattern, lambda **kw: None, tuple(sorted(pattern.names())), pattern.location))
    return source.text()


# ---- tables ----------------------------------------------------------------------------------------------------------

_serial = itertools.count()


class PatternMatcher:
    """An ordered table of rewrite rules.

    Args:
        patterns: Rows (pattern, function). The pattern is a ``UPat``, or a plain ``UOp`` in which ``UOp.variable("a")``
            without bounds stands for any node, named ``a``. The function's parameters are the captured names, and
            ``ctx`` if it wants the context. It returns the replacement; None or the same node means that the rule does
            not apply. Rules are tried in order, the first that replaces wins.
        compiled: Accepted for compatibility; matchers are always compiled.
        trace: Count tries, hits and time per rule; see ``stats``. TRACK_MATCH_STATS=1 does it for all matchers.
        pure: Whether the result depends on the node alone, so that ``graph_rewrite`` may remember it on the node. Found
        by
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


# ---- pickling: Python functions travel by name, and lambdas by their code --------------------------------------------


def _function_state(function: Callable[..., Any]) -> Any:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not isinstance(function, types.FunctionType) or ("<" not in name and _find(module, name) is function):
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
