"""The arguments of a jitted call: its inputs, the Variables that it binds, and what else it depends on.

In:   positional and keyword arguments of any nesting (lists, tuples, dicts, dataclasses).
Out:  ``Arguments``: inputs by name, values of Variables, and a key of all other Python values.
Why:  a capture may be replayed exactly when the key is the same and every input looks as it did.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

from tinygrad.dtype import DType
from tinygrad.errors import ShapeError, error_text
from tinygrad.helpers import ById, prod
from tinygrad.live import is_view_node
from tinygrad.record import record
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint, sym_infer
from tinygrad.uop.sharding import storages_of

Name = int | str

_VALUES: Final = (bool, int, float, complex, str, bytes, type(None), enum.Enum, DType)


class JitError(Exception):
    """A function cannot be captured, or a capture cannot be replayed with these arguments."""


@record(frozen=True)
class InputInfo:
    """What must be the same in every call of a capture.

    Attributes:
        view: The movement nodes between storage and tensor, without values of Variables; or the plain shape.
        variables: Names of the Variables in them.
        size: Elements of the storage.
        dtype: Dtype of the tensor.
        device: Where it is.
    """

    view: tuple[Any, ...]
    variables: tuple[str, ...]
    size: int
    dtype: DType
    device: Any

    def __str__(self) -> str:
        shape = self.view if all(isinstance(s, int) for s in self.view) else f"view with {', '.join(self.variables)}"
        return f"{shape} {self.dtype.name} {self.device}"


class Arguments:
    """The arguments of one call.

    Attributes:
        names: Of the inputs: an int for a positional tensor, a str for a keyword or a tensor inside a container.
        tensors: The inputs.
        storages: The BUFFER under each, after ``resolve``.
        nodes: The BUFFERs of single devices that these consist of.
        infos: What they look like, after ``resolve``.
        var_vals: Values of Variables, from arguments and from shapes of inputs.
        key: Everything else that the call depends on.
        all_names: Of everything that is no container.
        constants: (position in ``all_names``, value) of what is no tensor.
        copied: BUFFER (the storage of an input, and what it consists of) -> name of the input, if it is a copy.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.names: list[Name] = []
        self.tensors: list[Tensor] = []
        self.storages: list[UOp] = []
        self.nodes: list[UOp] = []
        self.infos: list[InputInfo] = []
        self.var_vals: dict[str, int] = {}
        self.all_names: list[Name] = []
        self.constants: list[tuple[int, Any]] = []
        self.copied: dict[UOp, Name] = {}
        key: list[Hashable] = []
        for name, value in leaves(args, kwargs):
            self.all_names.append(name)
            if not isinstance(value, Tensor):
                self.constants.append((len(self.all_names) - 1, value))
            if isinstance(value, Tensor):
                self.names.append(name)
                self.tensors.append(value)
            elif isinstance(value, UOp) and value.is_bound_var:
                key.append((name, value.src[0]))
                variable, number = value.unbind()
                self._take_value(variable.expr, number)
            else:
                key.append((name, _key_of(value)))
        self.key = tuple(key)

    def _take_value(self, name: str, value: int) -> None:
        if self.var_vals.setdefault(name, value) != value:
            raise JitError(f"bind mismatch on {name} in the arguments: {self.var_vals[name]} and {value}")

    def realize(self) -> None:
        """Compute the inputs that are not computed yet. Those that were pending become storage of their own."""
        pending = [t for t in self.tensors if t._is_pending()]
        if not pending:
            return
        Tensor.realize(*pending)
        views = [t for t in pending if _is_plain_view(t.uop)]
        for t in views:
            t.uop = t.contiguous().uop
        if views:
            Tensor.realize(*views)

    def resolve(self, copy_views: bool = False) -> None:
        """Find the storage of every input.

        Args:
            copy_views: Copy views and constants instead of refusing them.

        Raises:
            JitError: An input is a view or a constant, or two inputs share storage.
        """
        seen: dict[UOp, Name] = {}
        for i, (name, tensor) in enumerate(zip(self.names, self.tensors, strict=True)):
            uop = tensor.uop
            fault = _not_real(uop)
            if fault and not copy_views:
                raise JitError(
                    f"JIT inputs must be real buffers; use .clone()\n  {label(name)} is {fault}: shape "
                    f"{_shape(uop)}, dtype {uop.dtype.name}, device {uop.device}\n  hint  pass "
                    f"{label(name)}.clone(), or use TinyJit(f, recapture=True), which copies it"
                )
            if fault:
                self.tensors[i] = tensor = tensor.clone().realize()
                uop = tensor.uop
            node, info = self._describe(uop)
            if node in seen:
                raise JitError(
                    f"duplicate inputs to JIT: {label(seen[node])} and {label(name)} are the same buffer\n"
                    f"  hint  pass one of them as .clone()"
                )
            seen[node] = name
            if fault:
                self.copied |= dict.fromkeys((node, *storages_of(node)), name)
            self.storages.append(node)
            self.nodes += storages_of(node)
            self.infos.append(info)

    def check_write(self, buffer: UOp) -> None:
        """Refuse a write of the function to an input that was copied: the caller's tensor would not show it.

        Raises:
            JitError: It is such a write.
        """
        if buffer in self.copied:
            name = label(self.copied[buffer])
            raise JitError(
                f"{name} is a view or a constant, of which a capture uses a copy, and the function writes to it\n"
                f"  rule  what is written to comes with storage of its own\n"
                f"  hint  pass the whole tensor, and take the view of it in the function; or {name}.clone()"
            )

    def _describe(self, uop: UOp) -> tuple[UOp, InputInfo]:
        base = uop
        chain: list[UOp] = []
        symbolic = False
        while base.op is not Ops.BUFFER:
            chain.append(base)
            symbolic = symbolic or len(base.src) > 1
            base = base.src[0]
        size, device = prod(base.arg.shape), base.arg.device
        if base.axis is not None:
            device = f"{device} split along axis {uop.axis}"
        if not symbolic:
            return base, InputInfo(uop.shape, (), size, uop.dtype, device)
        view: list[Any] = []
        names: dict[str, None] = {}
        for node in chain:
            plain = []
            for symbolic_size in node.src[1:]:
                unbound_size, values = unbound(symbolic_size)
                names |= dict.fromkeys(values)
                for name, value in values.items():
                    self._take_value(name, value)
                plain.append(unbound_size)
            view.append((node.op, node.arg, tuple(plain)))
        return base, InputInfo(tuple(view), tuple(names), size, uop.dtype, device)


@functools.lru_cache(maxsize=1024)
def unbound(size: UOp) -> tuple[UOp, Mapping[str, int]]:
    """Return a symbolic size without the values of its Variables, and these values; callers do not change them.

    It is kept, because a loop passes the same sizes again and again.
    """
    plain, values = size.unbind_all()
    return plain, {variable.expr: value for variable, value in values.items()}


def label(name: Name) -> str:
    """Return how messages call an input."""
    return f"argument {name}"


def _shape(uop: UOp) -> Any:
    return tuple(s if isinstance(s, int) else s.render() for s in uop._shape or ())


def _not_real(uop: UOp) -> str | None:
    """Return why a node is no real buffer, or None if it is one. A view whose size is symbolic is one."""
    if uop.is_virtual:
        return "a constant"
    if _is_plain_view(uop):
        return "a view"
    base = uop
    while is_view_node(base):
        base = base.src[0]
    return None if base.op is Ops.BUFFER else "not computed"


def _is_plain_view(uop: UOp) -> bool:
    """Whether a node shows part of its storage, or another order of it, and this does not depend on a Variable."""
    moved = symbolic = False
    while is_view_node(uop):
        moved = moved or uop.op not in (Ops.RESHAPE, Ops.DETACH)
        symbolic = symbolic or len(uop.src) > 1
        uop = uop.src[0]
    return moved and not symbolic


_LONGEST_NAME: Final = 10_000


def leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Name, Any]]:
    """Yield (name, value) of everything that is no container, in an order that does not depend on that of keywords."""
    stack: list[tuple[Name, Any]] = [*enumerate(args), *sorted(kwargs.items())]
    stack.reverse()
    while stack:
        name, value = stack.pop()
        if isinstance(name, str) and len(name) > _LONGEST_NAME:
            raise JitError(f"{label(name[:50])}... is nested too deeply, or holds itself")
        if isinstance(value, (list, tuple)):
            stack += [(f"{name}[{i}]", item) for i, item in reversed(list(enumerate(value)))]
        elif isinstance(value, dict):
            stack += [(f"{name}[{k!r}]", value[k]) for k in reversed(list(value))]
        elif hasattr(type(value), "__dataclass_fields__") and not isinstance(value, (Tensor, UOp, DType)):
            import dataclasses  # it is there: somebody has made a class with it

            fields = [field.name for field in dataclasses.fields(value)]
            stack += [(f"{name}.{field}", getattr(value, field)) for field in reversed(fields)]
        else:
            yield name, value


def _key_of(value: Any) -> Hashable:
    if isinstance(value, _VALUES):
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0; nan is not equal to itself.
        return type(value).__name__, repr(value) if isinstance(value, (float, complex)) else value
    if hasattr(value, "__array_interface__"):
        import numpy as np

        array = np.asarray(value)
        return "array", array.shape, array.dtype.str, hashlib.sha256(array.tobytes()).digest()
    return value if isinstance(value, UOp) else ById(value)


def is_plain_value(value: Any) -> bool:
    """Whether a value of an argument is a number, a text or the like, which ``same_value`` can compare."""
    return isinstance(value, _VALUES)


def same_value(given: Any, before: Any) -> bool:
    """Whether an argument has the value (a plain one) that it had before; 1, 1.0 and True are three values."""
    if type(given) is not type(before):
        return False
    return bool(given is before or _key_of(given) == _key_of(before))


def check_slices(slices: Sequence[tuple[sint, sint, sint]], var_vals: Mapping[str, int]) -> None:
    """Raise ShapeError if a slice or a window (start, end, size) of a capture is impossible for these values."""
    for start, end, size in slices:
        first, last, most = (sym_infer(x, var_vals) for x in (start, end, size))
        if not 0 <= first <= last <= most:
            values = ", ".join(f"{name}={value}" for name, value in sorted(var_vals.items()))
            fault = f"a slice of the captured function, or its window, is {first} to {last} of {most} for {values}"
            raise ShapeError(error_text("TinyJit", fault, rule="0 <= start <= end <= size"))


def map_structure(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return nested lists, tuples and dicts with ``leaf`` applied to everything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_structure(v, leaf) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_structure(v, leaf) for v in value)
    if isinstance(value, dict):
        return {k: map_structure(v, leaf) for k, v in value.items()}
    return leaf(value)


__all__ = [
    "Arguments", "InputInfo", "JitError", "Name", "check_slices", "is_plain_value", "label", "leaves", "map_structure",
    "same_value", "unbound",
]  # fmt: skip
