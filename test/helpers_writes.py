"""Random programs of writes through views: the harder half of ``helpers_programs``.

In:   a seed.
Out:  a program as lines of Python that mean the same for numpy and for this package: writes through chains of views,
      through masks and index arrays with repeated positions, into other dtypes; the same in jitted functions and in
      ``@function`` bodies.
Why:  what a write changes depends on how its target was made. Here the target is an expression as often as a variable.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from test.helpers_programs import NUMPY, OURS, SHAPES, Generator, Shape
from tinygrad import TinyJit, function

DTYPES = ("int8", "int16", "int64")
CALLS = 4  # of a jitted function: run, capture, and replays


def _sum(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    return a.sum(axis=axis, keepdims=keepdims, dtype=_sum_dtype(a))


def _sum_dtype(a: Any) -> Any:
    return np.int64 if a.dtype == np.int64 else np.int32


NUMPY |= {
    "cast": lambda a, dtype: a.astype(dtype), "jit": lambda f: f, "function": lambda f: f,
    "total": _sum, "sum_": lambda a, axis: _sum(a, axis, keepdims=True),
    "cumsum": lambda a, axis: a.cumsum(axis, _sum_dtype(a)),
}  # fmt: skip
OURS |= {"cast": lambda a, dtype: a.cast(dtype), "jit": TinyJit, "function": function}


class WriteGenerator(Generator):
    """Writes programs whose targets are views of views, masks and index arrays, and functions that write."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.made: dict[str, str] = {}  # variable -> the expression that it is of
        self.wrapper = ""  # what the function is wrapped in whose body this writes

    # ---- views

    def view(self, name: str) -> str:
        """Return an expression that shows a part of a variable, through one to three views."""
        found = super().view(name)
        for _ in range(self.random.choice([0, 0, 1, 2])):
            found = self.viewed_again(found)
        return found

    def viewed_again(self, view: str) -> str:
        r, a = self.random, self.value(view)
        if a.ndim == 0 or not a.size:
            return view
        kind = r.random()
        if kind < 0.3:
            part = f"{view}[{self.index(a.shape)}]"
            return part if self.value(part).size else view
        if kind < 0.45:
            return f"flip({view}, {r.randrange(a.ndim)})"
        if kind < 0.65:
            return f"permute({view}, {tuple(r.sample(range(a.ndim), a.ndim))})"
        if kind < 0.75:
            return f"{view}[{r.choice(['None', '..., None', ':, None'])}]" if a.ndim < 3 else view
        reshaped = f"reshape({view}, {self.factors(a.size)})"
        return reshaped if np.shares_memory(self.value(reshaped), a) else view

    # ---- statements

    def statement(self) -> None:
        """Add one statement."""
        r, kind = self.random, self.random.random()
        if len(self.names) < 2 or kind < 0.55:
            super().statement()
        elif kind < 0.6:
            self.store_narrow(r.choice(SHAPES))
        elif kind < 0.75:
            self.masked(r.choice(self.names))
        elif kind < 0.95:
            self.through_views(r.choice(self.names))
        else:
            self.called(r.choice(["jit", "function"]))

    def run(self, line: str) -> None:
        """Add a line; written values are brought to the dtype of their target."""
        if line.startswith("assign("):
            call = ast.parse(line, mode="eval").body
            assert isinstance(call, ast.Call)
            target, value = (ast.unparse(argument) for argument in call.args)
            super().run(f"assign({target}, {self.converted(value, target, exactly=True)})")
            return
        target, sign, value = line.partition("= ")
        target, sign = (target[:-1], target[-1] + sign) if target[-1:] in set("+-*") else (target, sign)
        if not line.startswith("def ") and sign and (target.strip()[-1] == "]" or sign != "= "):
            line = f"{target}{sign}{self.converted(value, target)}"
        super().run(line)

    def bind(self, expression: str) -> None:
        """Add a variable."""
        super().bind(expression)
        self.made[self.names[-1]] = expression

    def converted(self, value: str, target: str, exactly: bool = False) -> str:
        """Return an expression in the dtype of a target; sometimes of a narrower one, unless ``exactly``."""
        if self.is_number(value):
            return value
        given, wanted = (np.asarray(self.value(x.strip())).dtype for x in (value, target))
        if given == wanted or (
            not exactly and target.strip()[-1] == "]" and np.can_cast(given, wanted) and self.random.random() < 0.5
        ):
            return value
        return f"cast({value}, {wanted.name!r})"

    def store_narrow(self, shape: Shape) -> None:
        r = self.random
        numbers = [r.randint(-9, 9) for _ in range(int(np.prod(shape)))]
        self.bind(f"stored(np.array({numbers}, np.{r.choice(DTYPES)}).reshape({shape}))")

    def masked(self, name: str) -> None:
        """Add a write to the elements that a mask selects, which may be made of what is written."""
        r, shape = self.random, self.value(name).shape
        if not shape:
            return
        tested = self.expression(shape, r.randint(0, 1))
        tested = name if self.is_number(tested) or self.value(tested).shape != shape else tested
        mask = f"({tested} > {r.randint(-2, 4)})"
        if len(shape) > 1 and r.random() < 0.3:
            mask += "[" + ", ".join([":"] * (len(shape) - 1) + ["0"]) + "]"
        part = self.value(f"{name}[{mask}]")
        value = r.choice([str(r.randint(-3, 9)), f"total({name})", f"{name}[{mask}] * 2"])
        if not part.size:
            value = str(r.randint(-3, 9))
        self.run(f"{name}[{mask}] {r.choice(['', '', '+', '-'])}= {value}")

    def through_views(self, name: str) -> None:
        """Add a write whose target is an expression."""
        r = self.random
        target = self.view(name)
        shape = self.value(target).shape
        items = self.index(shape, arrays=bool(shape) and r.random() < 0.4)
        part = self.value(f"{target}[{items}]").shape
        if 0 not in part:
            self.run(f"{target}[{items}] {r.choice(['', '', '+', '-', '*'])}= {self.expression(part, r.randint(0, 2))}")

    # ---- functions

    def called(self, wrapper: str) -> None:
        """Add a function that writes to its arguments, and calls of it."""
        r = self.random
        own = [n for n in self.names if self.made[n].startswith(("stored(", "new("))]  # no views of anything
        if len(own) < 2:
            return
        args = r.sample(own, min(len(own), r.randint(1, 3)))
        self.count += 1
        name = f"f{self.count}"
        body = self.body(args, wrapper)
        text = f"def {name}({', '.join(args)}):\n" + "".join(f"    {line}\n" for line in body)
        self.run(text)
        self.run(f"{name} = {wrapper}({name})")
        self.run(f"real({', '.join(args)})")
        for _ in range(CALLS if wrapper == "jit" else r.randint(1, 2)):
            self.bind(f"{name}({', '.join(args)})")
            if r.random() < 0.4:
                self.through_views(r.choice(args))
                self.run(f"real({', '.join(args)})")

    def body(self, args: list[str], wrapper: str) -> list[str]:
        """Return the lines of a function of some variables."""
        inner = WriteGenerator(self.random.randrange(1 << 30))
        inner.wrapper = wrapper
        inner.count = self.count * 100
        inner.names = list(args)
        inner.env.update({n: self.value(n).copy() for n in args})
        made = 0
        while made < self.random.randint(2, 6):
            lines = len(inner.lines)
            inner.inside_statement()
            made += len(inner.lines) > lines
        result = inner.expression(inner.value(args[0]).shape, 2)
        result = f"new({args[0] if inner.is_number(result) else result})"
        kept = ", ".join(args)
        last = [f"real({kept}, result)"] if wrapper == "jit" else []
        return [*inner.lines, f"result = {result}", *last, "return result"]

    def inside_statement(self) -> None:
        """Add one statement of a function's body: no masks of unknown size, nothing computed in between."""
        r = self.random
        name = r.choice(self.names)
        shape, kind = self.value(name).shape, r.random()
        if kind < 0.15:
            self.bind(self.view(name))
        elif kind < 0.3:
            made = self.expression(shape, 2)
            self.bind(f"new({name if self.is_number(made) else made})")
        elif kind < 0.5 or self.wrapper == "function":
            target = self.view(name) if r.random() < 0.5 else name
            self.run(f"assign({target}, {self.expression(self.value(target).shape, 2)})")
        else:
            self.run(f"real({', '.join(self.names)})")  # else items of what they read could not be written
            if kind < 0.7:
                self.write(name, shape, 0.6 + 0.32 * r.random())
            else:
                self.through_views(name)
