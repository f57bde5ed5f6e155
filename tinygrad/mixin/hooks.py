"""What the mixins need from the class that they are mixed into (UOp and Tensor). Nothing else may be relied on.

In:   nothing.
Out:  ``Hooks``, the root of every mixin: typed declarations, and the helpers that need nothing but them.
Why:  whoever implements the hooks gets all methods; type checkers see where a mixin asks for more.
"""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from tinygrad.errors import ArgumentError, DeviceError, ShapeError, error_text, shown
from tinygrad.settings import ALLOW_DEVICE_USAGE

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.dtype import DType, DTypeLike
    from tinygrad.uop import Ops
    from tinygrad.uop.ops import UOp

Sint: TypeAlias = "int | UOp"


def running_capture() -> Any:
    """Return the recorder of the JIT capture that this thread is in, None if it is in none."""
    capturing = getattr(sys.modules.get("tinygrad.engine.capturing"), "capturing", None)
    return capturing[-1] if capturing else None


def only_builds_graph() -> bool:
    """Whether no values may be looked at: in a traced function, and in a JIT capture, where nothing has run yet."""
    return not ALLOW_DEVICE_USAGE or running_capture() is not None


class Hooks:
    """The methods that a class with mixins implements itself."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[Any, ...]: ...  # noqa: D102
        @property
        def dtype(self) -> DType: ...  # noqa: D102
        @property
        def device(self) -> str | tuple[str, ...] | None: ...  # noqa: D102
        @property
        def ndim(self) -> int: ...  # noqa: D102
        @property
        def _uop(self) -> UOp: ...

        def cast(self, dtype: DTypeLike) -> Self: ...  # noqa: D102
        def bitcast(self, dtype: DTypeLike) -> Self: ...  # noqa: D102
        @classmethod
        def _wrap_uop(cls, uop: UOp) -> Self: ...
        @classmethod
        def const(cls, value: Any, dtype: DTypeLike | None = None) -> Self: ...  # noqa: D102
        def const_like(self, b: Any, dtype: DTypeLike | None = None) -> Self: ...  # noqa: D102
        def ufix(self, x: Any) -> Self: ...  # noqa: D102
        def contiguous(self) -> Self: ...  # noqa: D102
        def detach(self) -> Self: ...  # noqa: D102

    def alu(self, op: Ops, *src: Self) -> Self:
        """Apply one graph operation to self and ``src``: the one entry that all elementwise methods end in."""
        raise NotImplementedError(f"{type(self).__name__} does not implement alu")

    def _mop(self, op: Ops, marg: tuple[Any, ...]) -> Self:
        """Apply a movement operation: the entry that all methods on shapes end in."""
        raise NotImplementedError(f"{type(self).__name__} does not implement _mop")

    def _rop(self, op: Ops, axes: tuple[int, ...]) -> Self:
        """Reduce ``axes``, which stay with size 1: the entry that all reductions end in."""
        raise NotImplementedError(f"{type(self).__name__} does not implement _rop")

    def _resolve_dim(self, dim: int, *, extra: bool = False, op: str = "dim") -> int:
        """Return ``dim`` counted from the front; ``extra`` allows one position past the last dim (for new dims).

        Raises:
            ShapeError: ``dim`` is out of range.
        """
        total = max(1, self.ndim + int(extra))
        if type(dim) is not int:
            dim = self._dim_number(dim, op)
        if not -total <= dim < total:
            raise ShapeError(
                error_text(
                    op,
                    f"dim {dim} is out of range for {self.ndim} dims",
                    {"tensor": self},
                    f"{-total} <= dim < {total}",
                )
            )
        return dim + total if dim < 0 else dim

    def _dim_number(self, dim: Any, op: str) -> int:
        """Return a dim given as a numpy or bool scalar as an int.

        Raises:
            TypeError: It is no integer.
        """
        if hasattr(dim, "__index__") and not hasattr(dim, "_uop"):
            try:
                return operator.index(dim)
            except TypeError:
                pass  # an array or a class
        raise TypeError(
            error_text(op, f"dim {shown(dim)} is a {type(dim).__name__}", {"tensor": self}, "a dim is an int")
        )


def check_same_device(op: str, lhs: Any, rhs: Any) -> None:
    """Refuse operands on two devices. What lives nowhere, such as a constant, goes with everything.

    Raises:
        DeviceError: The devices differ.
    """
    a, b = lhs.device, rhs.device
    if a != b and a is not None and b is not None:
        raise DeviceError(
            error_text(op, f"all buffers must be on the same device, got {a} and {b}", {"left": lhs, "right": rhs},
                       hint=f"right.to({a!r}) copies it")
        )  # fmt: skip


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be equal. ``!=`` on symbolic sizes builds a node, so it is not used for that."""
    if a is b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    for number, size in ((a, b), (b, a)):
        if isinstance(number, int) and (size.is_variable or size.is_bound_var):
            return bool(size.vmin == number == size.vmax)  # a Variable alone: nothing to simplify
    difference = ssimplify(a - b)
    return isinstance(difference, int) and difference == 0


def known_size(size: Any) -> int | None:
    """Return a size as a number, with the values that its Variables have now; None if one has no value."""
    if isinstance(size, int):
        return size
    if not hasattr(size, "bound_value"):
        raise TypeError(f"{shown(size)} is no size or position; these are ints, or made of Variables")
    known: int | None = size.bound_value()
    return known


def most_of(size: Any) -> int:
    """Return a size as a number: with the values that its Variables have now, or the largest that they may have."""
    known = known_size(size)
    return int(size.vmax) if known is None else known


def exceeds(needed: Any, size: Any) -> bool:
    """Whether more is needed than a size has: with the values that Variables have now, or with any that they may have.

    A JIT capture that runs is told what was found to fit, because no Python looks at the sizes of its replays.
    """
    if isinstance(needed, int) and isinstance(size, int):
        return needed > size
    first = known_size(needed)
    if (int(needed.vmin) if first is None else first) > most_of(size):
        return True
    capturing = getattr(sys.modules.get("tinygrad.engine.capturing"), "capturing", None)
    note = getattr(capturing[-1], "note_fit", None) if capturing else None
    if note is not None:
        note(needed, size)
    return False


def same_shape(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(x is y or same_size(x, y) for x, y in zip(a, b, strict=True))


def distance(start: Any, stop: Any) -> Any:
    """Return the size of [start, stop). From 0 it is stop, without a node for the difference."""
    return ssimplify(stop if isinstance(start, int) and start == 0 else stop - start)


def smin(*sizes: Any) -> Any:
    """Return the smallest of sizes: a node where that is not known before the kernel runs."""
    from tinygrad.uop.ops import smin as smallest

    return smallest(*sizes)


def smax(*sizes: Any) -> Any:
    """Return the largest of sizes: a node where that is not known before the kernel runs."""
    from tinygrad.uop.ops import smax as largest

    return largest(*sizes)


def largest_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Return a shape with symbolic sizes replaced by their maximum."""
    return tuple(s if isinstance(s, int) else int(s.vmax) for s in shape)


MOST_PARTS = 2**20


def check_parts(op: str, count: int, tensor: Any) -> None:
    """Refuse to make more tensors in one call than a program can use: Python would make them one by one, for hours.

    Raises:
        ShapeError: There are more than ``MOST_PARTS``.
    """
    if count > MOST_PARTS:
        raise ShapeError(error_text(op, f"{count} tensors in one call", {"tensor": tensor}, f"at most {MOST_PARTS}"))


def hint_to_pad(shape: tuple[Any, ...]) -> str | None:
    """Return the hint of errors about sizes that have to be numbers; None if they are."""
    largest = largest_shape(shape)
    return None if largest == tuple(shape) else f"t.pad_to{shown(largest)} has static sizes; mask what that adds"


def ssimplify(size: Any) -> Any:
    """Return a size with symbolic parts simplified, an int where it is constant."""
    return size if isinstance(size, int) else size.ssimplify()


def dim_args(first: Any, args: tuple[Any, ...], op: str) -> tuple[Any, ...]:
    """Return numbers given separately or as one tuple or list.

    Raises:
        ShapeError: A tuple and further arguments are mixed.
    """
    if isinstance(first, (tuple, list)):
        if args:
            raise ShapeError(error_text(op, f"a {type(first).__name__} and {len(args)} more arguments",
                                        rule="either separate numbers or one tuple"))  # fmt: skip
        return tuple(first)
    return (first, *args)


def shape_args(shape: Any, args: tuple[Any, ...], op: str) -> tuple[Any, ...]:
    """Return sizes given as separate numbers or as one tuple or list.

    Raises:
        ShapeError: A tuple and further arguments are mixed.
        ArgumentError: An entry is neither an int, a symbolic int nor None.
    """
    given = dim_args(shape, args, op)
    return given if all(type(s) is int for s in given) else tuple([size_arg(s, given, op) for s in given])


def size_arg(size: Any, given: tuple[Any, ...], op: str) -> Any:
    """Return one of the sizes of a shape as an int, a symbolic int or None.

    Symbolic ones are simplified: shapes are compared node by node, so equal sizes have to be one node.

    Raises:
        ArgumentError: It is something else.
    """
    if size is None or type(size) is int:
        return size
    if hasattr(size, "size_text") and size.device is None:
        return ssimplify(size)
    if hasattr(size, "__index__") and not hasattr(size, "_uop"):
        try:
            return operator.index(size)
        except TypeError:
            pass  # an array or a class
    hint = "read a tensor with .item() first" if hasattr(size, "_uop") else None
    raise ArgumentError(error_text(op, f"shape must be ints, got {shown(size)} of type {type(size).__name__}",
                                   {"shape": shown(given)}, hint=hint))  # fmt: skip
