"""Patterns of nodes: what a rewrite rule looks for.

In:   names, ops, dtypes, arguments and patterns of the sources.
Out:  ``UPat``, which is combined with the operators of nodes and either compiled (``uop/matcher.py``) or matched
      directly.
Why:  a rule's left side reads like the expression that it matches.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from tinygrad.dtype import ConstFloat, DType
from tinygrad.uop import GroupOp, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Location = tuple[str, int]
Captures: TypeAlias = "dict[str, UOp]"

# How the patterns in ``sources`` relate to the sources of a node.
ANY, EXACT, PREFIX, UNORDERED, REPEAT = "any", "exact", "prefix", "unordered", "repeat"


def caller_location(depth: int = 1) -> Location:
    """Return file and line of the nearest frame outside the modules that build patterns."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__") in _BUILDERS:
        frame = frame.f_back
    return ("?", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


_BUILDERS = frozenset({"tinygrad.uop.upat", "tinygrad.uop.matcher"})


def _as_set(value: Any) -> frozenset[Any] | None:
    if value is None:
        return None
    return frozenset(value) if isinstance(value, (tuple, list, set, frozenset)) else frozenset((value,))


class ConstValue:
    """The value that a constant pattern asks for: numbers by value, kinds (bool, int, float) kept apart.

    Args:
        value: A Python bool, int, float or Invalid.
        strict: An int matches integer constants only; otherwise float constants of that value too. A bool matches bools
            and a float floats in either case. Zeros match by sign, NaN matches NaN.
    """

    __slots__ = ("strict", "value")

    def __init__(self, value: Any, strict: bool) -> None:
        self.value = ConstFloat(value) if isinstance(value, float) else value
        self.strict = strict

    def matches(self, arg: Any) -> bool:
        """Whether a node's ``arg`` is this value."""
        value = self.value
        if isinstance(value, bool):
            return arg is value
        if isinstance(value, float):
            return isinstance(arg, float) and value == ConstFloat(arg)
        if isinstance(arg, bool) or (isinstance(arg, float) and (self.strict or str(arg) == "-0.0")):
            return False
        return bool(arg == value)

    def __repr__(self) -> str:
        return repr(self.value)


class UPat:
    """A pattern that a node may match.

    Args:
        op: One op, or a tuple or set of them; None matches every op.
        dtype: One dtype, or a tuple or set of them; None matches every dtype.
        src: Patterns of the sources: a tuple (these, in this order), a list (these, in any order), one pattern (every
            source matches it, however many), or None (any sources).
        arg: The node's argument must be equal; None matches every argument.
        name: Keyword under which the matching node is given to the rule's function. The same name twice asks for the
            same node.
        allow_any_len: With a tuple: the node may have more sources.
        custom_early_reject: Ops that must be among the sources' ops.
        location: File and line to report; found by itself.
        is_any: ``src`` holds alternatives of this very node.
        tag: The node's tag, or a tuple or set of allowed tags.

    Raises:
        AssertionError: The name is ``ctx``, which is reserved.

    Example:
        >>> UPat.var("x") + UPat.cvar("c")
        UPat(Ops.ADD, src=[UPat.var('x'), UPat.cvar('c')])
    """

    __slots__ = (
        "allow_any_len", "arg", "custom_early_reject", "dtype", "is_any", "location", "mode", "name", "op", "sources",
        "tag", "value",
    )  # fmt: skip

    def __init__(
        self,
        op: Ops | Iterable[Ops] | None = None,
        dtype: DType | Iterable[DType] | None = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
        custom_early_reject: set[Ops] | None = None,
        location: Location | None = None,
        is_any: bool = False,
        tag: Any = None,
        value: ConstValue | None = None,
    ) -> None:
        if name == "ctx":
            raise AssertionError("UPat: the name 'ctx' is reserved for the context of the rewrite; choose another name")
        self.op, self.dtype, self.arg, self.name = _as_set(op), _as_set(dtype), arg, name
        self.tag, self.is_any, self.value, self.allow_any_len = _as_set(tag), is_any, value, allow_any_len
        self.custom_early_reject = _as_set(custom_early_reject)
        self.location = location or caller_location(2)
        self.sources: tuple[UPat, ...] | None
        if src is None:
            self.sources, self.mode = None, ANY
        elif isinstance(src, UPat):
            self.sources, self.mode = (src,), REPEAT
        else:
            self.sources = tuple(_as_pattern(s) for s in src)
            self.mode = UNORDERED if isinstance(src, list) else PREFIX if allow_any_len else EXACT

    # ---- construction ----------------------------------------------------------------------------------------------

    @staticmethod
    def var(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Match any node (of that dtype)."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DType | Iterable[DType] | None = None, arg: Any = None) -> UPat:
        """Match any constant (of that dtype, of that value)."""
        return UPat(Ops.CONST, dtype, (), name=name, value=None if arg is None else ConstValue(arg, strict=False))

    @staticmethod
    def const(v: Any, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Match the constant ``v``: an int stands for integers and floats of that value, a float for floats only."""
        return UPat(Ops.CONST, dtype, (), value=ConstValue(v, strict=False))

    @staticmethod
    def any(*pats: UPat | tuple[UPat, ...]) -> UPat:
        """Match what any of the patterns matches; they are tried in order."""
        flat = [each for given in pats for each in (given if isinstance(given, tuple) else (given,))]
        return UPat(src=tuple(flat), is_any=True)

    def replace(self, **changes: Any) -> UPat:
        """Return a copy with some fields changed."""
        copy = UPat.__new__(UPat)
        for field in UPat.__slots__:
            setattr(copy, field, changes.get(field, getattr(self, field)))
        return copy

    def named(self, name: str) -> UPat:
        """Return this pattern, its node captured as ``name``."""
        if name == "ctx":
            raise AssertionError("UPat: the name 'ctx' is reserved for the context of the rewrite; choose another name")
        return self.replace(name=name)

    def or_casted(self, name: str | None = None) -> UPat:
        """Match this, or a CAST of it."""
        return UPat.any(self if name is None else self.named(name), UPat(Ops.CAST, name=name, src=(self,)))

    def or_after(self, name: str | None = None) -> UPat:
        """Match this, or an AFTER of it."""
        after = UPat(Ops.AFTER, name=name, src=(self,), allow_any_len=True)
        return UPat.any(self if name is None else self.named(name), after)

    def f(self, op: Ops, **kwargs: Any) -> UPat:
        """Wrap this pattern in ``op``."""
        return UPat(op, src=(self,), **kwargs)

    def alu(self, op: Ops, *src: Any) -> UPat:
        """Match ``op`` of this and the other sources; either order if the operation commutes."""
        sources = (self, *(_as_pattern(s) for s in src))
        return UPat(op, src=list(sources) if op in GroupOp.Commutative else sources)

    def cast(self, dtype: DType | Iterable[DType] | None = None, **kwargs: Any) -> UPat:
        """Match a CAST of this (to that dtype)."""
        return UPat(Ops.CAST, dtype, (self,), **kwargs)

    def bitcast(self, dtype: DType | Iterable[DType] | None = None, **kwargs: Any) -> UPat:
        """Match a BITCAST of this (to that dtype)."""
        return UPat(Ops.BITCAST, dtype, (self,), **kwargs)

    def load(self, *src: UPat, **kwargs: Any) -> UPat:
        """Match a LOAD of this address."""
        return UPat(Ops.LOAD, src=(self, *src), **kwargs)

    def store(self, *src: UPat, **kwargs: Any) -> UPat:
        """Match a STORE to this address."""
        return UPat(Ops.STORE, src=(self, *src), **kwargs)

    def index(self, *src: UPat, **kwargs: Any) -> UPat:
        """Match an INDEX of this."""
        return UPat(Ops.INDEX, src=(self, *src), **kwargs)

    def reduce(self, *src: UPat, **kwargs: Any) -> UPat:
        """Match a REDUCE of this over the given ranges."""
        return UPat(Ops.REDUCE, src=(self, *src), **kwargs)

    def after(self, *src: UPat, **kwargs: Any) -> UPat:
        """Match an AFTER of this."""
        return UPat(Ops.AFTER, src=(self, *src), **kwargs)

    def end(self, *src: UPat, **kwargs: Any) -> UPat:
        """Match an END of this."""
        return UPat(Ops.END, src=(self, *src), **kwargs)

    def sink(self, *src: UPat, **kwargs: Any) -> UPat:
        """Match a SINK that starts with this."""
        return UPat(Ops.SINK, src=(self, *src), **kwargs)

    def broadcast(self, **kwargs: Any) -> UPat:
        """Match a STACK whose lanes all match this."""
        return UPat(Ops.STACK, src=self, **kwargs)

    def where(self, x: Any, y: Any) -> UPat:
        """Match a WHERE with this condition."""
        return self.alu(Ops.WHERE, x, y)

    # ---- operators -------------------------------------------------------------------------------------------------

    def __add__(self, x: Any) -> UPat:
        return self.alu(Ops.ADD, x)

    def __radd__(self, x: Any) -> UPat:
        return _as_pattern(x).alu(Ops.ADD, self)

    def __mul__(self, x: Any) -> UPat:
        return self.alu(Ops.MUL, x)

    def __rmul__(self, x: Any) -> UPat:
        return _as_pattern(x).alu(Ops.MUL, self)

    def __neg__(self) -> UPat:
        return self.alu(Ops.MUL, -1)

    def __sub__(self, x: Any) -> UPat:
        return self.alu(Ops.ADD, -x)

    def __rsub__(self, x: Any) -> UPat:
        return _as_pattern(x).alu(Ops.ADD, -self)

    def __truediv__(self, x: Any) -> UPat:
        return self.alu(Ops.MUL, _as_pattern(x).alu(Ops.RECIPROCAL))

    def __rtruediv__(self, x: Any) -> UPat:
        return _as_pattern(x).alu(Ops.MUL, self.alu(Ops.RECIPROCAL))

    def __floordiv__(self, x: Any) -> UPat:
        return self.alu(Ops.FLOORDIV, x)

    def __mod__(self, x: Any) -> UPat:
        return self.alu(Ops.FLOORMOD, x)

    def __and__(self, x: Any) -> UPat:
        return self.alu(Ops.AND, x)

    def __rand__(self, x: Any) -> UPat:
        return _as_pattern(x).alu(Ops.AND, self)

    def __or__(self, x: Any) -> UPat:
        return self.alu(Ops.OR, x)

    def __ror__(self, x: Any) -> UPat:
        return _as_pattern(x).alu(Ops.OR, self)

    def __xor__(self, x: Any) -> UPat:
        return self.alu(Ops.XOR, x)

    def __lshift__(self, x: Any) -> UPat:
        return self.alu(Ops.SHL, x)

    def __rshift__(self, x: Any) -> UPat:
        return self.alu(Ops.SHR, x)

    def __pow__(self, x: Any) -> UPat:
        return self.alu(Ops.POW, x)

    def __lt__(self, x: Any) -> UPat:
        return self.alu(Ops.CMPLT, x)

    def __gt__(self, x: Any) -> UPat:
        return _as_pattern(x).alu(Ops.CMPLT, self)

    def __ne__(self, x: object) -> UPat:  # type: ignore[override]  # a pattern, not a bool
        return self.alu(Ops.CMPNE, x)

    def __eq__(self, x: object) -> bool:
        return self is x

    __hash__ = object.__hash__

    def ne(self, x: Any) -> UPat:
        """Match CMPNE."""
        return self.alu(Ops.CMPNE, x)

    def eq(self, x: Any) -> UPat:
        """Match CMPEQ."""
        return self.alu(Ops.CMPEQ, x)

    def logical_not(self) -> UPat:
        """Match the negation of a bool, written ``x != True``."""
        return self.alu(Ops.CMPNE, True)

    def maximum(self, x: Any) -> UPat:
        """Match MAX."""
        return self.alu(Ops.MAX, x)

    def cdiv(self, x: Any) -> UPat:
        """Match CDIV."""
        return self.alu(Ops.CDIV, x)

    def cmod(self, x: Any) -> UPat:
        """Match CMOD."""
        return self.alu(Ops.CMOD, x)

    def exp2(self) -> UPat:
        """Match EXP2."""
        return self.alu(Ops.EXP2)

    def log2(self) -> UPat:
        """Match LOG2."""
        return self.alu(Ops.LOG2)

    def sin(self) -> UPat:
        """Match SIN."""
        return self.alu(Ops.SIN)

    def sqrt(self) -> UPat:
        """Match SQRT."""
        return self.alu(Ops.SQRT)

    def reciprocal(self) -> UPat:
        """Match RECIPROCAL."""
        return self.alu(Ops.RECIPROCAL)

    def trunc(self) -> UPat:
        """Match TRUNC."""
        return self.alu(Ops.TRUNC)

    # ---- matching --------------------------------------------------------------------------------------------------

    def names(self) -> set[str]:
        """Return every name that this pattern may capture."""
        own = {self.name} if self.name is not None else set()
        return own.union(*(s.names() for s in self.sources or ()))

    def match(self, uop: UOp, store: Captures) -> list[Captures]:
        """Return every way in which ``uop`` matches, as extensions of the captures in ``store``."""
        if self.is_any:
            found = [m for pattern in self.sources or () for m in pattern.match(uop, store)]
            return found if self.name is None else [m | {self.name: uop} for m in found if m.get(self.name, uop) is uop]
        if not self._node_fits(uop) or (self.name is not None and store.get(self.name, uop) is not uop):
            return []
        if self.name is not None:
            store = store | {self.name: uop}
        return [m for row in self._source_rows(len(uop.src)) for m in _match_row(row, uop.src, store)]

    def _node_fits(self, uop: UOp) -> bool:
        """Everything but name and sources."""
        return (
            (self.op is None or uop.op in self.op)
            and (self.dtype is None or uop.dtype in self.dtype)
            and (self.arg is None or self.arg == uop.arg)
            and (self.value is None or self.value.matches(uop.arg))
            and (self.tag is None or uop.tag in self.tag)
            and (self.custom_early_reject is None or self.custom_early_reject <= {s.op for s in uop.src})
        )

    def _source_rows(self, count: int) -> Iterator[tuple[UPat, ...]]:
        """Yield the rows of patterns, one per leading source, that may describe ``count`` sources."""
        if self.sources is None:
            yield ()
        elif self.mode == REPEAT:
            yield self.sources * count
        elif len(self.sources) == count or (self.mode == PREFIX and len(self.sources) <= count):
            if self.mode == UNORDERED:
                yield from permutations(self.sources)
            else:
                yield self.sources

    def __repr__(self) -> str:
        if self.is_any:
            text = f"UPat.any({', '.join(map(repr, self.sources or ()))})"
            return text if self.name is None else f"{text}.named({self.name!r})"
        if self.value is not None:
            return (
                f"UPat.const({self.value!r})" if self.name is None else f"UPat.cvar({self.name!r}, arg={self.value!r})"
            )
        label = "" if self.name is None else repr(self.name)
        if self.op is None and self.sources is None and self.arg is None:
            return f"UPat.var({label})"
        if self.op == frozenset({Ops.CONST}):
            return f"UPat.cvar({label})"
        ops = sorted(self.op or ())
        parts = [str(ops[0]) if len(ops) == 1 else f"({', '.join(map(str, ops))})" if ops else "None"]
        if self.dtype is not None:
            parts.append(f"dtype={sorted(self.dtype)!r}")
        if self.sources is not None:
            text = ", ".join(map(repr, self.sources))
            if self.mode == REPEAT:
                parts.append(f"src={text}")
            else:
                parts.append(f"src=[{text}]" if self.mode == UNORDERED else f"src=({text})")
        parts += [f"{k}={v!r}" for k, v in (("arg", self.arg), ("name", self.name)) if v is not None]
        return f"UPat({', '.join(parts)})"


def permutations(patterns: tuple[UPat, ...]) -> list[tuple[UPat, ...]]:
    """Return the distinct orders of ``patterns``, the given one first."""
    return list(dict.fromkeys(itertools.permutations(patterns)))


def _match_row(row: tuple[UPat, ...], sources: tuple[UOp, ...], store: Captures) -> list[Captures]:
    found = [store]
    for pattern, source in zip(row, sources, strict=False):
        found = [m for partial in found for m in pattern.match(source, partial)]
        if not found:
            break
    return found


def _as_pattern(x: Any) -> UPat:
    if isinstance(x, UPat):
        return x
    return UPat.const(x) if not hasattr(x, "op") else pattern_from_template(x)


def pattern_from_template(template: UOp) -> UPat:
    """Turn a plain node into a pattern: the left side of a rule, written in the language of the graph.

    ``UOp.variable("a")`` without bounds matches anything and captures it as ``a``. A CONST matches that value in any
    dtype of its kind. Operations that commute match both orders. Dtypes are not compared; arguments are, unless None.
    """
    if template.op is Ops.CONST:
        return UPat(Ops.CONST, src=(), value=ConstValue(template.arg, strict=True))
    if template.op in GroupOp.Defines and getattr(template.arg, "name", None) and template.arg.vmin_vmax is None:
        return UPat.var(template.arg.name)
    sources = tuple(pattern_from_template(s) for s in template.src)
    unordered = template.op in GroupOp.Commutative and len(sources) == 2
    return UPat(template.op, src=list(sources) if unordered else sources, arg=template.arg)


def __getattr__(name: str) -> Any:
    # The tables live in a module that imports this one; users find both here.
    if name in {"PatternMatcher", "TrackedPatternMatcher", "upat_compile", "_get_code"}:
        from tinygrad.uop import matcher

        return getattr(matcher, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
