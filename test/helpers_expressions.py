"""Random programs over the public operations and dtypes, run by numpy statement by statement and by this package.

In:   a seed.
Out:  a program as lines of Python that mean the same for both: arithmetic, reductions, views, scans, contractions,
      in-place writes of storage, and jitted functions that are called several times.
Why:  nobody writes down the combination of operations, dtypes and shapes that goes wrong; values show it.

Each value is *exact* (small integers in any dtype, which every order of operations computes without rounding, so it is
compared bit by bit and may be rounded, compared and used as an index) or *inexact* (compared with a tolerance).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tinygrad import Tensor, TinyJit
from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.engine.jit import JitError

Shape = tuple[int, ...]
FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64", "uint8", "int8", "int16", "uint32", "uint16")
DTYPES = (*FLOATS, "float32", "float32", *INTS, "int32", "bool")
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 130)
TOLERANCE = {"float32": 2e-4, "float64": 2e-4, "float16": 2e-2}
LARGEST = {"float16": 200, "int8": 100, "uint8": 200}  # exact values stay below, in size
CALLS = 4


def promoted(*arrays: Any) -> list[np.ndarray]:
    """Cast numpy arrays to the dtype that this package computes in."""
    names = [str(np.asarray(a).dtype) for a in arrays]
    to = least_upper_dtype(*(getattr(dtypes, n) for n in names))
    return [np.asarray(a).astype(_numpy_name(to)) for a in arrays]


def _numpy_name(dtype: Any) -> str:
    return next(n for n in (*DTYPES, "uint64") if getattr(dtypes, n) is dtype)


def binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(*promoted(a, b))


def _sum_dtype(a: np.ndarray) -> Any:
    if a.dtype == bool or (a.dtype.kind == "i" and a.dtype.itemsize < 8):
        return np.int32
    if a.dtype.kind == "u" and a.dtype.itemsize < 8:
        return np.uint32
    return a.dtype


def _wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) if a.dtype.kind == "f" else a


def _summed(a: np.ndarray, axis: Any, keepdim: bool = False) -> np.ndarray:
    total = _wide(a).sum(axis, keepdims=keepdim, dtype=None if a.dtype.kind == "f" else _sum_dtype(a))
    return np.asarray(total).astype(_sum_dtype(a))


def _running_sums(a: np.ndarray, axis: int) -> np.ndarray:
    return _wide(a).cumsum(axis, dtype=None if a.dtype.kind == "f" else _sum_dtype(a)).astype(_sum_dtype(a))


def _mean(a: np.ndarray, axis: Any, keepdim: bool) -> np.ndarray:
    return np.asarray(_wide(a).mean(axis, keepdims=keepdim)).astype(a.dtype)


def _clip(a: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.clip(a, np.asarray(low, a.dtype), np.asarray(high, a.dtype))


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = promoted(a, b)
    return a / (np.abs(b) + np.asarray(1, b.dtype))


def _matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = promoted(a, b)
    return (_wide(a) @ _wide(b)).astype(a.dtype)


def _as_torch(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    # In float64, so that the reference is the more exact one.
    def call(*operands: Any) -> np.ndarray:
        wide = [torch.tensor(a.astype(np.float64)) if isinstance(a, np.ndarray) else a for a in operands]
        return function(*wide).numpy().astype(operands[0].dtype)

    return call


F = torch.nn.functional

# Name -> (this package, numpy).
OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    # any dtype, exact
    "add": (lambda a, b: a + b, binary(np.add)),
    "sub": (lambda a, b: a - b, binary(np.subtract)),
    "mul": (lambda a, b: a * b, binary(np.multiply)),
    "maximum": (lambda a, b: a.maximum(b), binary(np.maximum)),
    "minimum": (lambda a, b: a.minimum(b), binary(np.minimum)),
    "less": (lambda a, b: a < b, binary(np.less)),
    "at_least": (lambda a, b: a >= b, binary(np.greater_equal)),
    "equal": (lambda a, b: a == b, binary(np.equal)),
    "where": (lambda c, a, b: c.where(a, b), lambda c, a, b: np.where(c, *promoted(a, b))),
    "sum": (lambda a, axis, keepdim: a.sum(axis, keepdim=keepdim), _summed),
    "max": (lambda a, axis, keepdim: a.max(axis, keepdim=keepdim), lambda a, axis, keep: a.max(axis, keepdims=keep)),
    "min": (lambda a, axis, keepdim: a.min(axis, keepdim=keepdim), lambda a, axis, keep: a.min(axis, keepdims=keep)),
    "argmax": (lambda a, axis: a.argmax(axis), lambda a, axis: a.argmax(axis).astype(np.int32)),
    "argmin": (lambda a, axis: a.argmin(axis), lambda a, axis: a.argmin(axis).astype(np.int32)),
    "any": (lambda a, axis: a.any(axis), lambda a, axis: a.any(axis)),
    "all": (lambda a, axis: a.all(axis), lambda a, axis: a.all(axis)),
    "cumsum": (lambda a, axis: a.cumsum(axis), _running_sums),
    "cummax": (lambda a, axis: a.cummax(axis)[0], lambda a, axis: np.maximum.accumulate(a, axis)),
    "sort": (lambda a, axis: a.sort(axis)[0], lambda a, axis: np.sort(a, axis)),
    "argsort": (lambda a, axis: a.argsort(axis), lambda a, axis: np.argsort(a, axis, kind="stable").astype(np.int32)),
    "matmul": (lambda a, b: a @ b, _matmul),
    "cast": (lambda a, to: a.cast(to), lambda a, to: a.astype(to)),
    "gather": (lambda a, i: a[i], lambda a, i: a[i]),
    "take": (lambda a, axis, i: a.gather(axis, i), lambda a, axis, i: np.take_along_axis(a, i, axis)),
    # movement
    "reshape": (lambda a, shape: a.reshape(shape), lambda a, shape: a.reshape(shape)),
    "permute": (lambda a, order: a.permute(order), lambda a, order: a.transpose(order)),
    "flip": (lambda a, axis: a.flip(axis), lambda a, axis: np.flip(a, axis)),
    "pad": (lambda a, n, value: a.pad(n, value=value), lambda a, n, value: np.pad(a, n, constant_values=value)),
    "cat": (lambda a, b, axis: a.cat(b, dim=axis), lambda a, b, axis: np.concatenate(promoted(a, b), axis)),
    "stack": (lambda a, b, axis: Tensor.stack(a, b, dim=axis), lambda a, b, axis: np.stack(promoted(a, b), axis)),
    "repeat": (lambda a, n: a.repeat(n), lambda a, n: np.tile(a, n)),
    "roll": (lambda a, n, axis: a.roll(n, axis), lambda a, n, axis: np.roll(a, n, axis)),
    "expand": (lambda a, shape: a.expand(shape), lambda a, shape: np.broadcast_to(a, shape)),
    "tril": (lambda a, k: a.tril(k), lambda a, k: np.tril(a, k)),
    "triu": (lambda a, k: a.triu(k), lambda a, k: np.triu(a, k)),
    "contiguous": (lambda a: a.contiguous(), lambda a: a),
    "clone": (lambda a: a.clone(), lambda a: a.copy()),
    # exact: not for bool
    "neg": (lambda a: -a, lambda a: -a),
    "abs": (lambda a: a.abs(), np.abs),
    "relu": (lambda a: a.relu(), lambda a: np.maximum(a, np.asarray(0, a.dtype))),
    "square": (lambda a: a.square(), lambda a: a * a),
    "sign": (lambda a: a.sign(), np.sign),
    "floordiv": (lambda a, n: a // n, lambda a, n: a // np.asarray(n, a.dtype)),
    "mod": (lambda a, n: a % n, lambda a, n: a % np.asarray(n, a.dtype)),
    "plus": (lambda a, n: a + n, lambda a, n: a + np.asarray(n, a.dtype)),
    "times": (lambda a, n: a * n, lambda a, n: a * np.asarray(n, a.dtype)),
    "clip": (lambda a, low, high: a.clamp(low, high), _clip),
    # integers and bools
    "and": (lambda a, b: a & b, binary(np.bitwise_and)),
    "or": (lambda a, b: a | b, binary(np.bitwise_or)),
    "xor": (lambda a, b: a ^ b, binary(np.bitwise_xor)),
    "shifted": (lambda a, n: a >> n, lambda a, n: a >> np.asarray(n, a.dtype)),
    # floats, rounding exact ones
    "halved": (lambda a: (a / 2).floor(), lambda a: np.floor(a / np.asarray(2, a.dtype))),
    "rounded": (lambda a: (a * 0.5).round(), lambda a: np.round(a * np.asarray(0.5, a.dtype))),
    "truncated": (lambda a: (a * 0.25).trunc(), lambda a: np.trunc(a * np.asarray(0.25, a.dtype))),
    # floats, inexact
    "exp": (lambda a: (a * 0.1).clamp(-4, 4).exp(), lambda a: np.exp(np.clip(a * np.asarray(0.1, a.dtype), -4, 4))),
    "log": (lambda a: (a.abs() + 1).log(), lambda a: np.log(np.abs(a) + np.asarray(1, a.dtype))),
    "sqrt": (lambda a: (a.abs() + 1).sqrt(), lambda a: np.sqrt(np.abs(a) + np.asarray(1, a.dtype))),
    "sin": (lambda a: (a * 0.1).sin(), lambda a: np.sin(a * np.asarray(0.1, a.dtype))),
    "tanh": (lambda a: (a * 0.1).tanh(), lambda a: np.tanh(a * np.asarray(0.1, a.dtype))),
    "sigmoid": (lambda a: a.sigmoid(), lambda a: (1 / (1 + np.exp(-a.astype(np.float64)))).astype(a.dtype)),
    "gelu": (lambda a: a.gelu(), _as_torch(lambda a: F.gelu(a, approximate="tanh"))),
    "softplus": (lambda a: a.softplus(), _as_torch(F.softplus)),
    "silu": (lambda a: a.silu(), _as_torch(F.silu)),
    "divide": (lambda a, b: a / (b.abs() + 1), _divided),
    "mean": (lambda a, axis, keepdim: a.mean(axis, keepdim=keepdim), _mean),
    "var": (lambda a, axis: a.var(axis, correction=0), lambda a, axis: np.asarray(_wide(a).var(axis)).astype(a.dtype)),
    "softmax": (lambda a, axis: a.softmax(axis), _as_torch(lambda a, axis: a.softmax(axis))),
    "logsumexp": (lambda a, axis: a.logsumexp(axis), _as_torch(lambda a, axis: a.logsumexp(axis))),
    "conv": (
        lambda a, w, pads, step: a.conv2d(w, padding=pads, stride=step),
        _as_torch(lambda a, w, pads, step: F.conv2d(a, w, None, step, pads)),
    ),
    "maxpool": (lambda a: a.max_pool2d((2, 2)), _as_torch(lambda a: F.max_pool2d(a, (2, 2)))),
    "avgpool": (lambda a: a.avg_pool2d((2, 2)), _as_torch(lambda a: F.avg_pool2d(a, (2, 2)))),
}  # fmt: skip

# Operations whose result is a view of their operand, or may be for some sizes.
MAY_SHOW = (
    "reshape", "permute", "flip", "pad", "cat", "stack", "repeat", "roll", "expand", "tril", "triu", "contiguous",
    "cast", "sum", "max", "min", "mean", "any", "all", "cumsum", "cummax", "sort",
)  # fmt: skip
SAME = ("neg", "abs", "relu", "square", "sign")
EXACT_FLOAT = ("halved", "rounded", "truncated")
INEXACT = ("exp", "log", "sqrt", "sin", "tanh", "sigmoid", "gelu", "softplus", "silu")


class NumpyWorld:
    """The reference: what the statements of a program mean to numpy."""

    def op(self, name: str, *args: Any, **options: Any) -> np.ndarray:
        return np.array(OPS[name][1](*args, **options))

    def new(self, numbers: Sequence[Any], shape: Shape, dtype: str) -> np.ndarray:
        return np.array(numbers).astype(dtype).reshape(shape)

    def real(self, *values: Any) -> None:
        """Arrays are computed already."""

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def part(self, a: np.ndarray, items: Any) -> np.ndarray:
        return a[items].copy()


class TensorWorld:
    """What they mean here, on one device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def op(self, name: str, *args: Any, **options: Any) -> Tensor:
        return OPS[name][0](*args, **options)

    def new(self, numbers: Sequence[Any], shape: Shape, dtype: str) -> Tensor:
        array = np.array(numbers).astype(dtype).reshape(shape)
        return Tensor(array, device=self.device).clone(self.device)

    def real(self, *values: Tensor) -> None:
        values[0].realize(*values[1:])

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        jitted = TinyJit(function)

        def run(*args: Tensor) -> Any:
            try:
                return jitted(*args)
            except JitError as error:
                if "didn't JIT anything" not in str(error):
                    raise
                return function(*args)  # a random function may compute nothing, which is no mistake of the JIT

        return run

    def part(self, a: Tensor, items: Any) -> Tensor:
        return a[items]


def environment(world: NumpyWorld | TensorWorld) -> dict[str, Any]:
    """Return the names that programs use."""
    return {"op": world.op, "new": world.new, "real": world.real, "jit": world.jit, "part": world.part, "s": np.s_}


class ExpressionGenerator:
    """Writes a program, running it in numpy so that it knows shapes and values.

    Args:
        seed: The same seed writes the same program.
        largest: Elements of the largest value.
    """

    def __init__(self, seed: int, largest: int = 4000) -> None:
        self.random = random.Random(seed)
        self.largest = largest
        self.env = environment(NumpyWorld())
        self.exact: dict[str, bool] = {}  # the variables
        self.stored: set[str] = set()  # those that may be written
        self.lines: list[str] = []
        self.count = 0
        self.inside = False  # of a jitted function
        self.outside: dict[str, bool] = {}
        self.shows: dict[str, set[str]] = {}  # the storage that a variable may show, so that writes of it change it

    def program(self, length: int) -> list[str]:
        """Return a program of about ``length`` statements."""
        for _ in range(self.random.randint(2, 4)):
            self.make()
        if self.random.random() < 0.4:
            self.jitted(length)
            return self.lines
        for _ in range(length):
            self.statement()
        return self.lines

    # ---- pieces

    def run(self, line: str) -> None:
        with np.errstate(all="ignore"):
            exec(line, self.env)
        self.lines.append(line)

    def bind(self, expression: str, exact: bool) -> str | None:
        """Add ``name = expression`` if its value is good to go on with."""
        with np.errstate(all="ignore"):
            try:
                value = eval(expression, self.env)
            except (ValueError, TypeError, StopIteration, RuntimeError):
                return None
        limit = LARGEST.get(str(value.dtype), 2**11 if exact else 1e3)
        if not value.size or value.size > self.largest or value.ndim > 5:
            return None
        if value.dtype.kind not in "fiub" or not np.isfinite(value).all() or np.abs(value.astype(float)).max() > limit:
            return None
        self.count += 1
        name = f"v{self.count}"
        self.run(f"{name} = {expression}")
        self.exact[name] = exact
        self.shows[name] = {name}
        if re.match("op.'(" + "|".join(MAY_SHOW) + ")'|part", expression):
            self.shows[name] |= set().union(*(self.shows.get(n, ()) for n in re.findall(r"\bv\d+\b", expression)))
        return name

    def make(self) -> str:
        """Add a stored array of small integers, in any dtype."""
        r = self.random
        shape: Shape = ()
        for _ in range(r.choice((0, 1, 1, 2, 2, 2, 3, 4))):
            n = r.choice(SIZES)
            if int(np.prod((*shape, n))) <= 600:
                shape = (*shape, n)
        dtype = r.choice(DTYPES)
        low = 0 if dtype[0] in "ub" else -9
        numbers = [r.randint(low, 1 if dtype == "bool" else 9) for _ in range(int(np.prod(shape)))]
        name = self.bind(f"new({numbers}, {shape}, {dtype!r})", exact=True)
        assert name is not None
        self.stored.add(name)
        return name

    def value(self, name: str) -> np.ndarray:
        return self.env[name]

    def pick(self, wanted: Callable[[str], bool] = lambda _: True) -> str | None:
        found = [n for n in self.exact if wanted(n)]
        return self.random.choice(found[-8:] if self.random.random() < 0.7 else found) if found else None

    def kind(self, name: str) -> str:
        return self.value(name).dtype.kind

    def partner(self, name: str) -> str | None:
        """Return a variable that broadcasts with ``name``."""
        a = self.value(name)

        def fits(other: str) -> bool:
            b = self.value(other)
            try:
                shape = np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                return False
            mixed = {str(a.dtype), str(b.dtype)}
            return int(np.prod(shape)) <= self.largest and not ("int64" in mixed and "uint64" in mixed)

        return self.pick(fits)

    def items(self, shape: Shape) -> str:
        """Return index items: ints, slices, None, an ellipsis, arrays of one length."""
        r, items = self.random, []
        arrays = r.random() < 0.25
        length = r.randint(1, 4)
        for n in shape:
            kind = r.random()
            if arrays and kind < 0.5:
                items.append(repr([r.randrange(-n, n) for _ in range(length)]))
            elif kind < 0.2:
                items.append(str(r.randrange(-n, n)))
            elif kind < 0.75:
                start, stop = r.choice(["", str(r.randrange(-n, n))]), r.choice(["", str(r.randrange(-n, n + 1))])
                items.append(f"{start}:{stop}:{r.choice(('', '', '2', '-1', '-2', '3'))}")
            else:
                items.append(":")
        return ", ".join([*items, "..."])

    # ---- statements

    def statement(self) -> None:
        """Add one statement, or none."""
        r, kind = self.random, self.random.random()
        if kind < 0.06:
            self.make()
        elif kind < 0.14:
            self.run(f"real({', '.join(r.sample(list(self.exact), min(2, len(self.exact))))})")
        elif kind < 0.26:
            self.write()
        else:
            r.choice((self.elementwise, self.elementwise, self.binary, self.binary, self.reduce, self.move, self.move,
                      self.scan, self.contract, self.look_up, self.image))()  # fmt: skip

    def elementwise(self) -> None:
        name = self.pick(lambda n: self.kind(n) != "b")
        if name is None:
            return
        r, exact, kind = self.random, self.exact[name], self.kind(name)
        choice = r.random()
        if choice < 0.25:
            self.bind(f"op({r.choice(SAME if kind != 'u' else ('relu', 'square'))!r}, {name})", exact)
        elif choice < 0.4:
            n = r.randint(1, 5)
            table = [("plus", exact), ("times", exact)]
            table += [("floordiv", True), ("mod", True)] if exact else []
            which, stays = r.choice(table)
            self.bind(f"op({which!r}, {name}, {n})", stays)
        elif choice < 0.5:
            self.bind(f"op('clip', {name}, {r.randint(0, 2)}, {r.randint(3, 7)})", exact)
        elif choice < 0.65 and exact:
            to = r.choice(DTYPES)
            if self.value(name).min() >= 0 or to[0] != "u" or kind != "f":
                self.bind(f"op('cast', {name}, {to!r})", exact=True)
        elif kind == "f" and exact and choice < 0.75:
            self.bind(f"op({r.choice(EXACT_FLOAT)!r}, {name})", exact=True)
        elif kind == "f":
            self.bind(f"op({r.choice(INEXACT)!r}, {name})", exact=False)

    def binary(self) -> None:
        r, x = self.random, self.pick()
        y = self.partner(x) if x else None
        if x is None or y is None:
            return
        exact, kinds = self.exact[x] and self.exact[y], {self.kind(x), self.kind(y)}
        names = ["maximum", "minimum"]
        if kinds != {"b"}:
            names += ["add", "mul", "add"] + (["sub"] if "b" not in kinds and "u" not in kinds else [])
        if exact:
            names += ["less", "at_least", "equal"]
        if kinds <= {"i", "b", "u"}:
            names += ["and", "or", "xor"]
        if "f" in kinds and r.random() < 0.3:
            self.bind(f"op('divide', {x}, {y})", exact=False)
            return
        condition = self.pick(lambda n: self.kind(n) == "b" and self.fits_all(n, x, y))
        if condition is not None and r.random() < 0.5:
            self.bind(f"op('where', {condition}, {x}, {y})", exact)
            return
        self.bind(f"op({r.choice(names)!r}, {x}, {y})", exact)

    def fits_all(self, *names: str) -> bool:
        try:
            np.broadcast_shapes(*(self.value(n).shape for n in names))
        except ValueError:
            return False
        return True

    def reduce(self) -> None:
        r, x = self.random, self.pick(lambda n: self.value(n).ndim > 0)
        if x is None:
            return
        a, exact = self.value(x), self.exact[x]
        axis: Any = r.randrange(a.ndim)
        single = axis
        if r.random() < 0.3:
            axis = tuple(sorted(r.sample(range(a.ndim), r.randint(1, a.ndim))))
        keep = r.random() < 0.4
        kind = r.random()
        if kind < 0.45:
            self.bind(f"op('sum', {x}, {axis}, {keep})", exact)
        elif kind < 0.65:
            self.bind(f"op({r.choice(('max', 'min'))!r}, {x}, {axis}, {keep})", exact)
        elif kind < 0.75 and exact:
            self.bind(f"op({r.choice(('argmax', 'argmin'))!r}, {x}, {single})", exact=True)
        elif kind < 0.8 and exact:
            self.bind(f"op({r.choice(('any', 'all'))!r}, {x}, {axis})", exact=True)
        elif a.dtype.kind == "f" and kind < 0.9:
            self.bind(f"op('mean', {x}, {axis}, {keep})", exact=False)
        elif a.dtype.kind == "f":
            self.bind(f"op({r.choice(('var', 'logsumexp'))!r}, {x}, {single})", exact=False)

    def scan(self) -> None:
        r, x = self.random, self.pick(lambda n: self.value(n).ndim > 0)
        if x is None:
            return
        axis, exact = r.randrange(self.value(x).ndim), self.exact[x]
        if self.kind(x) == "f" and r.random() < 0.3:
            self.bind(f"op('softmax', {x}, {axis})", exact=False)
        elif exact and r.random() < 0.4 and self.value(x).size < 300:
            self.bind(f"op({r.choice(('sort', 'argsort'))!r}, {x}, {axis})", exact=True)
        else:
            self.bind(f"op({r.choice(('cumsum', 'cummax'))!r}, {x}, {axis})", exact)

    def move(self) -> None:
        x = self.pick()
        if x is None:
            return
        r, a, exact = self.random, self.value(x), self.exact[x]
        axis = r.randrange(a.ndim) if a.ndim else 0
        if not a.ndim:
            self.bind(f"op('clone', {x})", exact)
            return
        if r.random() < 0.1:
            other = self.pick(lambda n: self.joins(n, x, axis)) or x
            self.bind(f"op('cat', {x}, {other}, {axis})", exact and self.exact[other])
            return
        wider = (r.randint(1, 4), *(r.randint(2, 9) if n == 1 else n for n in a.shape))
        moves = [
            f"op({r.choice(('contiguous', 'clone'))!r}, {x})",
            f"op('reshape', {x}, {self.factors(a.size)})",
            f"op('permute', {x}, {tuple(r.sample(range(a.ndim), a.ndim))})",
            f"op('flip', {x}, {axis})",
            f"op('pad', {x}, {tuple((r.randint(0, 3), r.randint(0, 3)) for _ in a.shape)}, {r.choice((0, 0, 1))})",
            f"op('stack', {x}, {x}, {axis})",
            f"op('repeat', {x}, {tuple(r.randint(1, 3) for _ in a.shape)})",
            f"op('roll', {x}, {r.randint(-5, 5)}, {axis})",
            f"op('expand', {x}, {wider})",
            f"part({x}, s[{self.items(a.shape)}])",
            f"part({x}, s[{self.items(a.shape)}])",
        ]
        if a.ndim > 1:
            moves.append(f"op({r.choice(('tril', 'triu'))!r}, {x}, {r.randint(-2, 2)})")
        self.bind(r.choice(moves), exact)

    def joins(self, other: str, name: str, axis: int) -> bool:
        a, b = self.value(name).shape, self.value(other).shape
        return len(a) == len(b) and a[:axis] + a[axis + 1 :] == b[:axis] + b[axis + 1 :]

    def factors(self, n: int) -> Shape:
        r, found = self.random, []
        while n > 1 and len(found) < 3:
            found.append(r.choice([d for d in range(1, n + 1) if n % d == 0]))
            n //= found[-1]
        return (*found, n)

    def contract(self) -> None:
        x = self.pick(lambda n: self.value(n).ndim >= 1 and self.kind(n) != "b")
        if x is None:
            return
        a = self.value(x)
        y = self.pick(lambda n: self.contracts(n, a) and self.kind(n) != "b")
        if y is not None:
            self.bind(f"op('matmul', {x}, {y})", self.exact[x] and self.exact[y])
        elif a.ndim >= 2:
            order = (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2)
            self.bind(f"op('matmul', {x}, op('permute', {x}, {order}))", self.exact[x])

    def contracts(self, other: str, a: np.ndarray) -> bool:
        b = self.value(other)
        if b.ndim < 1 or a.shape[-1] != b.shape[max(0, b.ndim - 2)] or {str(a.dtype), str(b.dtype)} >= {"uint64"}:
            return False
        try:
            np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            return False
        return True

    def look_up(self) -> None:
        x = self.pick(lambda n: self.value(n).ndim > 0)
        if x is None:
            return
        a = self.value(x)
        index = self.pick(
            lambda n: self.exact[n] and self.kind(n) == "i" and 0 <= self.value(n).min() <= self.value(n).max() < len(a)
        )
        if index is not None and not self.inside:  # other arguments give other indices
            self.bind(f"op('gather', {x}, {index})", self.exact[x])
        else:
            axis = self.random.randrange(a.ndim)
            self.bind(f"op('take', {x}, {axis}, op('argsort', {x}, {axis}))", self.exact[x] and self.exact[x])

    def image(self) -> None:
        r = self.random
        x = self.pick(lambda n: self.kind(n) == "f" and self.value(n).ndim == 4 and min(self.value(n).shape[2:]) >= 2)
        if x is None:
            base = self.pick(lambda n: self.kind(n) == "f" and self.value(n).size >= 16)
            if base is not None:
                n = self.value(base).size
                sides = [d for d in (2, 3, 4, 5, 7, 8) if n % d == 0]
                if sides:
                    d = r.choice(sides)
                    self.bind(f"op('reshape', {base}, {(1, 1, n // d, d)})", self.exact[base])
            return
        kind = r.random()
        if kind < 0.3:
            self.bind(f"op({r.choice(('maxpool', 'avgpool'))!r}, {x})", exact=False)
            return
        c, dtype = self.value(x).shape[1], str(self.value(x).dtype)
        k, o, p = r.choice((1, 2, 3)), r.randint(1, 5), r.randint(0, 1)
        numbers = [r.randint(-2, 2) for _ in range(o * c * k * k)]
        self.bind(f"op('conv', {x}, new({numbers}, {(o, c, k, k)}, {dtype!r}), {p}, {r.randint(1, 2)})", self.exact[x])

    def write(self) -> None:
        """Write a part of stored memory."""
        r = self.random
        if not self.stored:
            return
        name = r.choice(sorted(self.stored))
        a = self.value(name)
        items = self.items(a.shape)
        part = eval(f"{name}[{items}]", self.env)
        if not part.size:
            return

        def fits(other: str) -> bool:
            b = self.value(other)
            if b.dtype != a.dtype or b.ndim > part.ndim or self.exact[other] != self.exact[name]:
                return False
            try:
                return np.broadcast_shapes(b.shape, part.shape) == part.shape
            except ValueError:
                return False

        views = [n for n in self.exact if n != name and name in self.shows[n]]
        if self.inside and any(n in self.outside for n in views):
            return
        for (
            n
        ) in views:  # numpy has a copy where this package may have a view; programs with views have a file of their own
            del self.exact[n]
            self.run(f"del {n}")
        value = self.pick(fits) if r.random() < 0.8 else None
        if value is None and a.dtype.kind == "b":
            return
        if self.inside:  # a write is refused while a pending computation reads the storage
            self.run(f"real({', '.join(self.exact)})")
        self.run(f"{name}[{items}] = {value or r.randint(0, 9)}")

    # ---- functions

    def jitted(self, length: int) -> None:
        """Add a jitted function of the variables so far, and calls of it with new arguments."""
        r, outside = self.random, dict(self.exact)
        self.outside = outside
        arguments = [n for n in outside if self.value(n).ndim and r.random() < 0.7]
        if not arguments:
            arguments = [self.make()]
            outside = dict(self.exact)
        state = sorted(set(self.stored) - set(arguments))
        before = {n: self.value(n).copy() for n in outside}
        start, self.stored, self.inside = len(self.lines), set(state), True
        for _ in range(length):
            self.statement()
        made = [n for n in self.exact if n not in outside]
        results = [n for n in made if r.random() < 0.4] or made[-1:]
        if not results:
            return
        body, self.lines = self.lines[start:], self.lines[:start]
        results = results[:3]
        body += [f"real({', '.join([*results, *state])})", f"return {', '.join(results)},"]
        text = "\n    ".join([f"def f({', '.join(arguments)}):", *body])
        for n, value in before.items():
            self.env[n] = value
        self.lines += [text, "g = jit(f)"]
        for call in range(CALLS):
            given = []
            for n in arguments:
                a = before[n]
                again = f"{n}_{call}"
                low = 0 if a.dtype.kind in "ub" else -9
                numbers = [r.randint(low, 1 if a.dtype.kind == "b" else 9) for _ in range(a.size)]
                self.lines.append(f"{again} = new({numbers}, {a.shape}, {str(a.dtype)!r})")
                given.append(again)
            self.lines.append(f"real({', '.join(given)})")
            names = [f"{n}_{call}" for n in results]
            self.lines.append(f"{', '.join(names)}, = g({', '.join(given)})")
        self.exact = {**outside, **{f"{n}_{call}": self.exact[n] for n in results for call in range(CALLS)}}


class MismatchError(Exception):
    """A value differs from the reference."""


def assert_close(name: str, got: np.ndarray, want: np.ndarray, exact: bool) -> None:
    """Compare one variable.

    Raises:
        MismatchError: It differs.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise MismatchError(f"{name}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}")
    if exact:
        wrong = ~((got == want) | ((got != got) & (want != want)))
    else:
        tolerance = TOLERANCE.get(str(want.dtype), 2e-2)
        scale = max(1.0, float(np.abs(want.astype(np.float64)).max(initial=0)))
        wrong = ~(np.abs(got.astype(np.float64) - want.astype(np.float64)) <= tolerance * scale)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise MismatchError(f"{name}: {int(wrong.sum())} of {wrong.size} wrong, at {at}: {got[at]}, not {want[at]}")


def reference(lines: Sequence[str]) -> dict[str, Any]:
    """Return the variables of a program as numpy computes them."""
    env = environment(NumpyWorld())
    with np.errstate(all="ignore"):
        for line in lines:
            exec(line, env)
    return env


def compare(lines: Sequence[str], exact: dict[str, bool], device: str, order: int = 7919) -> None:
    """Run a program on a device and compare every variable with numpy's.

    A write that is refused because a pending computation reads the storage is repeated after all is computed.

    Args:
        lines: The program.
        exact: The variables to compare, and which of them are exact.
        device: Where to run it.
        order: A number from which the order of reading follows.

    Raises:
        MismatchError: A variable differs.
    """
    env, theirs = environment(TensorWorld(device)), reference(lines)
    for line in lines:
        try:
            exec(line, env)
        except RuntimeError as error:
            if "other uses" not in str(error):
                raise
            pending = [v for v in env.values() if isinstance(v, Tensor)]
            pending[0].realize(*pending[1:])
            del pending
            exec(line, env)
    names = [n for n in exact if n in theirs]
    for name in sorted(names, key=lambda n: hash_of(n) * order % 101):
        got = env[name].cast(str(theirs[name].dtype)) if env[name].dtype in dtypes.weaks else env[name]
        assert_close(name, got.numpy(), theirs[name], exact[name])


def hash_of(name: str) -> int:
    return sum(ord(c) * 31**i for i, c in enumerate(name))


def smallest(lines: Sequence[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Return the lines without those that a failure does not need."""
    left, changed = list(lines), True
    while changed:
        changed = False
        for i in reversed(range(len(left))):
            part = left[:i] + left[i + 1 :]
            if fails(part):
                left, changed = part, True
    return left
