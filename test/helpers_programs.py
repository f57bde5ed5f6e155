"""Random programs of in-place writes, run by numpy statement by statement and by this package lazily.

In:   a seed.
Out:  a program as lines of Python that mean the same for both, and the smallest part of a wrong one.
Why:  an order of kernels that shows a write too early or too late is found by comparing values, whatever the cause.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinygrad import Tensor

Shape = tuple[int, ...]
SHAPES: list[Shape] = [(4,), (3, 4), (6,), (2, 3, 2), (4, 4), (3, 1), (8,)]
STEPS = ("", "", "2", "-1", "-2")


def _put(a: Any, b: Any) -> None:
    a[...] = b


NUMPY: dict[str, Callable[..., Any]] = {
    "stored": lambda a: a.copy(), "new": np.array, "real": lambda *_: None, "assign": _put, "idx": np.array,
    "sum_": lambda a, axis: a.sum(axis=axis, keepdims=True, dtype=np.int32), "where": np.where, "maximum": np.maximum,
    "max_": lambda a, axis: a.max(axis=axis, keepdims=True), "total": lambda a: a.sum(dtype=np.int32), "flip": np.flip,
    "pad": np.pad, "permute": np.transpose, "reshape": np.reshape, "cumsum": lambda a, axis: a.cumsum(axis, np.int32),
    "check": lambda *_: None, "roll": np.roll, "repeat": lambda a, n: np.tile(a, [n] * a.ndim), "power": np.power,
    "cat": lambda *parts: np.concatenate(parts), "sort": lambda a, axis: np.sort(a, axis),
}  # fmt: skip
OURS: dict[str, Callable[..., Any]] = {
    "stored": lambda a: Tensor(a).clone(), "new": lambda a: a + 0, "real": lambda a, *b: a.realize(*b),
    "assign": lambda a, b: a.assign(b), "idx": Tensor, "sum_": lambda a, axis: a.sum(axis=axis, keepdim=True),
    "where": lambda c, a, b: c.where(a, b), "maximum": lambda a, b: a.maximum(b),
    "max_": lambda a, axis: a.max(axis=axis, keepdim=True), "total": lambda a: a.sum(),
    "flip": lambda a, axis: a.flip(axis), "pad": lambda a, p: a.pad(p), "permute": lambda a, order: a.permute(order),
    "reshape": lambda a, shape: a.reshape(shape), "cumsum": lambda a, axis: a.cumsum(axis),
    "roll": lambda a, n, axis: a.roll(n, axis), "repeat": lambda a, n: a.repeat([n] * a.ndim), "power": pow,
    "cat": lambda *parts: Tensor.cat(*parts), "sort": lambda a, axis: a.sort(axis)[0],
}  # fmt: skip


class Generator:
    """Writes a program line by line, running it in numpy so that it knows the shapes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.env: dict[str, Any] = {"np": np, **NUMPY}
        self.names: list[str] = []
        self.count = 0
        self.lines: list[str] = []

    def program(self, length: int) -> list[str]:
        """Return a program of about ``length`` statements."""
        for _ in range(length):
            if len(self.names) > 8:
                self.forget()
            self.statement()
        return self.lines

    # ---- pieces

    def run(self, line: str) -> None:
        exec(line, self.env)
        self.lines.append(line)

    def bind(self, expression: str) -> None:
        self.count += 1
        name = f"v{self.count}"
        self.run(f"{name} = {expression}")
        self.names.append(name)

    def forget(self) -> None:
        name = self.random.choice(self.names)
        self.names.remove(name)
        self.run(f"del {name}")

    def value(self, expression: str) -> Any:
        return eval(expression, self.env)

    def is_number(self, expression: str) -> bool:
        return isinstance(self.value(expression), int)

    def index(self, shape: Shape, arrays: bool = False) -> str:
        """Return index items for a shape: ints, slices, and index arrays of one length if wanted."""
        r, items = self.random, []
        length = r.randint(1, 3)
        for n in shape:
            kind = r.random()
            if arrays and kind < 0.45:
                numbers = [r.randrange(-n, n) for _ in range(length)]
                items.append(repr(numbers) if r.random() < 0.3 else f"idx({numbers})")
            elif kind < 0.2:
                items.append(str(r.randrange(-n, n)))
            elif kind < 0.75:
                start, stop = r.choice(["", str(r.randrange(-n, n))]), r.choice(["", str(r.randrange(-n, n + 1))])
                items.append(f"{start}:{stop}:{r.choice(STEPS)}")
            else:
                items.append(":")
        if not items or not arrays:
            items.append("...")  # numpy returns a number instead of a view for ints alone
        return ", ".join(items)

    def view(self, name: str) -> str:
        """Return an expression that shows a part of a variable."""
        r, a = self.random, self.value(name)
        kind = r.random()
        if kind < 0.6 or a.ndim == 0:
            for _ in range(10):
                part = f"{name}[{self.index(a.shape)}]"
                if self.value(part).size:
                    return part
            return f"{name}[...]"
        if kind < 0.7:
            return f"flip({name}, {r.randrange(a.ndim)})"
        if kind < 0.85 and a.ndim > 1:
            return f"permute({name}, {tuple(r.sample(range(a.ndim), a.ndim))})"
        return f"reshape({name}, {self.factors(a.size)})" if a.flags.c_contiguous else f"{name}[...]"

    def factors(self, n: int) -> Shape:
        r, found = self.random, []
        while n > 1 and len(found) < 3:
            found.append(r.choice([d for d in range(1, n + 1) if n % d == 0]))
            n //= found[-1]
        found.append(n)
        r.shuffle(found)
        return tuple(found)

    def fits(self, expression: str, shape: Shape) -> bool:
        try:
            return np.broadcast_shapes(self.value(expression).shape, shape) == tuple(shape)
        except ValueError:
            return False

    def operand(self, shape: Shape) -> str:
        """Return a variable, a view, or a number that broadcasts to a shape."""
        r = self.random
        whole = [n for n in self.names if self.fits(n, shape)]
        if whole and r.random() < 0.8:
            return r.choice(whole)
        for _ in range(8):
            part = self.view(r.choice(self.names))
            if self.fits(part, shape):
                return part
        return str(r.randint(-3, 9))

    def expression(self, shape: Shape, depth: int) -> str:
        """Return an expression that broadcasts to a shape."""
        r = self.random
        if depth == 0 or r.random() < 0.25:
            return self.operand(shape)
        x, y, kind = self.expression(shape, depth - 1), self.expression(shape, depth - 1), r.random()
        if kind < 0.6 or self.is_number(x):
            return f"({x} {'+*-'[int(kind * 5) % 3]} {y})"
        if kind < 0.65:
            return f"maximum({x}, {y})"
        if kind < 0.7 and not self.is_number(y):
            return f"where({x} > {self.expression(shape, 0)}, {x}, {y})"
        a = self.value(x)
        if not a.ndim or kind > 0.95:
            return f"({x} + total({x}))"
        axis = r.randrange(a.ndim)
        if kind < 0.8:
            return f"(sum_({x}, {axis}) + {y})"
        if kind < 0.85:
            return f"max_({x}, {axis})"
        if kind < 0.88 or a.shape[axis] == 1:
            return f"cumsum({x}, {axis})"
        pads, cut = ["(0, 0)"] * a.ndim, [":"] * a.ndim
        pads[axis], cut[axis] = "(1, 0)", ":-1"
        return f"pad({x}, ({', '.join(pads)},))[{', '.join(cut)}]"

    # ---- statements

    def statement(self) -> None:
        """Add one statement."""
        r, kind = self.random, self.random.random()
        if len(self.names) < 2 or kind < 0.07:
            shape = r.choice(SHAPES)
            numbers = [r.randint(-9, 9) for _ in range(int(np.prod(shape)))]
            self.bind(f"stored(np.array({numbers}, np.int32).reshape({shape}))")
            return
        name = r.choice(self.names)
        shape = self.value(name).shape
        if kind < 0.2:
            self.bind(self.view(name))
        elif kind < 0.25 and shape:
            self.bind(self.rearranged(name, len(shape)))
        elif kind < 0.4:
            made = self.expression(shape, 2)
            self.bind(f"new({name if self.is_number(made) else made})")
        elif kind < 0.48:
            chosen = [n for n in self.names if r.random() < 0.5] or [name]
            self.run(f"real({', '.join(chosen)})")
        elif kind < 0.6:
            self.run(f"assign({name}, {self.expression(shape, 2)})")
        elif kind < 0.92:
            self.write(name, shape, kind)
        elif kind < 0.96 and len(self.names) > 3:
            self.forget()
        else:
            self.run(f"check({name}, {name!r})")

    def rearranged(self, name: str, ndim: int) -> str:
        """Return a value of its own that is made by moving elements, now and then not moving any."""
        r = self.random
        axis = r.randrange(ndim)
        pads = ", ".join("(0, 0)" if i != axis else f"(0, {r.choice([0, 0, 1])})" for i in range(ndim))
        return r.choice([
            f"roll({name}, {r.choice([0, 0, 1, 2])}, {axis})", f"repeat({name}, {r.choice([1, 1, 2])})",
            f"pad({name}, ({pads},))", f"cat({', '.join([name] * r.choice([1, 1, 2]))})", f"power({name}, 1)",
            f"sort({name}, {axis})", f"sum_({name}, {axis})",
        ])  # fmt: skip

    def write(self, name: str, shape: Shape, kind: float) -> None:
        r = self.random
        if kind < 0.8:
            items = self.index(shape, arrays=r.random() < 0.3)
            part = self.value(f"{name}[{items}]").shape
            if 0 not in part:
                self.run(f"{name}[{items}] = {self.expression(part, r.randint(0, 2))}")
        elif kind < 0.85:
            if shape and shape[0] > 1:
                overlap = (
                    "{n}[1:] = {n}[:-1]|{n}[:-1] = {n}[1:]|{n}[:] = {n}[::-1]|{n}[1:] += {n}[:-1]|{n}[::2] += {n}[:1]"
                )
                self.run(r.choice(overlap.split("|")).format(n=name))
        elif r.random() < 0.5:
            self.run(f"{name} {r.choice('+-*')}= {self.expression(shape, 1)}")
        else:
            items = self.index(shape)
            part = self.value(f"{name}[{items}]").shape
            if part and 0 not in part:
                self.run(f"{name}[{items}] {r.choice('+-*')}= {self.expression(part, 1)}")


# ---- comparing -----------------------------------------------------------------------------------------------------


class MismatchError(Exception):
    """A value differs from that of numpy."""


def execute(lines: Sequence[str]) -> None:
    """Run a program in both, and compare where it says ``check`` and at the end.

    A write that is refused because a pending computation reads the storage is repeated after all is computed.

    Raises:
        MismatchError: A variable differs.
    """
    theirs: dict[str, Any] = {"np": np, **NUMPY}
    ours: dict[str, Any] = {"np": np, **OURS}

    def check(value: Tensor, name: str) -> None:
        got, want = value.numpy(), theirs[name]
        if got.shape != want.shape or not (got == want).all():
            raise MismatchError(f"{name}: got {got.tolist()}, numpy has {want.tolist()}")

    ours["check"] = check
    for line in lines:
        exec(line, theirs)
        try:
            exec(line, ours)
            continue
        except RuntimeError as error:
            if "other uses" not in str(error):
                raise
        gc.collect()
        tensors = [v for v in ours.values() if isinstance(v, Tensor)]
        tensors[0].realize(*tensors[1:])
        del tensors
        exec(line, ours)
    names = [n for n in theirs if n[0] == "v" and n[1:].isdigit()]
    for name in sorted(names, key=lambda n: int(n[1:]) * 7919 % 31):  # in an order of its own
        check(ours[name], name)


def smallest(lines: Sequence[str], error: Exception) -> list[str]:
    """Return the lines without those that are not needed for the error."""

    def fails(part: list[str]) -> bool:
        try:
            execute(part)
        except NameError:
            return False
        except Exception as found:  # noqa: BLE001 - whatever the program fails with
            return type(found) is type(error)
        return False

    left, changed = list(lines), True
    while changed:
        changed = False
        for i in reversed(range(len(left))):
            part = left[:i] + left[i + 1 :]
            if fails(part):
                left, changed = part, True
    return left


def assert_like_numpy(lines: Sequence[str]) -> None:
    """Run a program in both; where it differs, show its smallest part that does."""
    try:
        with np.errstate(all="ignore"):
            execute(lines)
    except Exception as error:
        with np.errstate(all="ignore"):
            part = smallest(lines, error)
        raise AssertionError(f"{type(error).__name__}: {error}\n" + "\n".join(part)) from error
