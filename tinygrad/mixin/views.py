"""Views: methods that only change how coordinates read.

In:   ``_mop(op, marg)`` and ``shape``.
Out:  RESHAPE, PERMUTE, EXPAND, PAD, SHRINK and FLIP nodes. Nothing here computes a value, except padding with one.
Why:  views cost nothing at run time: the scheduler turns all of them into index arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.errors import NoSuchDimsError, ShapeError, error_text, shown
from tinygrad.helpers import prod
from tinygrad.mixin.hooks import (
    Hooks,
    Sint,
    dim_args,
    exceeds,
    known_size,
    same_shape,
    same_size,
    shape_args,
    ssimplify,
)
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from typing import Self


class ViewMixin(Hooks):
    """Reshaping, broadcasting, permuting, slicing and padding."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def where(self, x: Any, y: Any) -> Self: ...  # noqa: D102
        def cat(self, *args: Self, dim: int = 0) -> Self: ...  # noqa: D102

    def _movement_error(self, op: str, summary: str, rule: str | None = None, hint: str | None = None) -> ShapeError:
        return ShapeError(error_text(op, summary, {"tensor": self}, rule, hint))

    # ---- the six primitives ----------------------------------------------------------------------------------------

    def reshape(self, shape: Any, *args: Any) -> Self:
        """Return the same elements in another shape.

        Args:
            shape: Sizes, as one tuple or separately. One -1 is inferred; None keeps the size of its position.
            *args: Further sizes.

        Raises:
            RuntimeError: More than one -1.
            ShapeError: The number of elements differs, or a size is negative.

        Example:
            >>> Tensor.arange(6).reshape(2, -1).shape
            (2, 3)
        """
        wanted = shape_args(shape, args, "reshape")
        new = tuple(self.shape[i] if s is None else s for i, s in enumerate(wanted))
        if any(type(s) is int and s == -1 for s in new):
            new = self._infer_size(new)
        if same_shape(new, self.shape):
            return self
        if any(isinstance(s, int) and s < 0 for s in new) or not _holds_the_same(prod(new), prod(self.shape)):
            sizes = f"{shown(self.shape)} has {shown(prod(self.shape))} elements, {shown(new)} {shown(prod(new))}"
            known = [known_size(n) for n in self.shape]
            is_fixed = known != list(self.shape) and None not in known and same_size(prod(known), prod(new))
            hint = (
                f"t.shrink_to{shown(tuple(known))} has the sizes of now; or sizes made of the Variables"
                if is_fixed
                else None
            )
            raise self._movement_error("reshape", sizes, "the number of elements stays the same", hint)
        return self._mop(Ops.RESHAPE, new)

    def _infer_size(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        holes = [i for i, s in enumerate(shape) if type(s) is int and s == -1]
        if len(holes) > 1:
            raise RuntimeError(
                error_text("reshape", f"only one size can be inferred, {shown(shape)} has {len(holes)} of -1")
            )
        given, present = _without_common([s for i, s in enumerate(shape) if i != holes[0]], list(self.shape))
        known, total = prod(given), prod(present)
        if isinstance(known, int) and isinstance(total, int):
            if known <= 0 or total % known != 0:
                raise self._movement_error("reshape", f"cannot infer -1 in {shown(shape)}: {shown(total)} elements",
                                           f"a multiple of {known} elements")  # fmt: skip
            size: Any = total // known
        else:
            size = ssimplify(total // known)
        return tuple(size if i == holes[0] else s for i, s in enumerate(shape))

    def view(self, shape: Any, *args: Any) -> Self:
        """Alias of ``reshape``.

        Example:
            >>> Tensor.arange(6).view(2, 3).tolist()
            [[0, 1, 2], [3, 4, 5]]
        """
        return self.reshape(shape, *args)

    def expand(self, shape: Any, *args: Any) -> Self:
        """Broadcast dims of size 1 (and new leading dims) to the given sizes; -1 or None keeps a size.

        Raises:
            ShapeError: The shape cannot be broadcast to that.

        Example:
            >>> Tensor([[1], [2]]).expand(2, 3).tolist()
            [[1, 1, 1], [2, 2, 2]]
        """
        wanted = shape_args(shape, args, "expand")
        extra = len(wanted) - self.ndim
        if extra < 0:
            raise self._movement_error(
                "expand", f"cannot broadcast {shown(self.shape)} to {shown(wanted)}", "at least as many dims"
            )
        if any(type(s) is int and s < -1 for s in wanted):
            raise self._movement_error("expand", f"negative sizes in {shown(wanted)}", "sizes, or -1 to keep one")
        kept = (1,) * extra + self.shape
        new = tuple(
            old if s is None or (type(s) is int and s == -1) else s for old, s in zip(kept, wanted, strict=True)
        )
        return self._broadcast_to(new)

    def _broadcast_to(self, shape: tuple[Any, ...]) -> Self:
        if same_shape(self.shape, shape):
            return self
        extra = len(shape) - self.ndim
        fits = extra >= 0 and all(
            (type(s) is int and s == 1) or same_size(s, n)
            for s, n in zip(self.shape, shape[max(extra, 0) :], strict=True)
        )
        if not fits:
            raise self._movement_error(
                "expand", f"cannot broadcast {shown(self.shape)} to {shown(shape)}", "sizes are equal or 1"
            )
        return self._mop(Ops.EXPAND, tuple(shape))

    def permute(self, order: Any, *args: Any) -> Self:
        """Reorder the dims: result dim i is dim ``order[i]``.

        Raises:
            RuntimeError: ``order`` is not a permutation of the dims.
            ShapeError: A dim is out of range.

        Example:
            >>> Tensor.empty(2, 3, 4).permute(2, 0, 1).shape
            (4, 2, 3)
        """
        axes = tuple(self._resolve_dim(x, op="permute") for x in dim_args(order, args, "permute"))
        if sorted(axes) != list(range(self.ndim)):
            raise RuntimeError(
                error_text("permute", f"order {axes} is not a permutation of {self.ndim} dims", {"tensor": self})
            )
        return self if axes == tuple(range(self.ndim)) else self._mop(Ops.PERMUTE, axes)

    def flip(self, axis: Any = None, *args: Any, dims: Any = None) -> Self:
        """Reverse the given axes (named ``dims`` in torch).

        Raises:
            AssertionError: An axis is a bool.
            RuntimeError: An axis is given twice.
            ShapeError: An axis is out of range.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).flip(1).tolist()
            [[2, 1], [4, 3]]
        """
        given = dim_args(axis if dims is None else dims, args, "flip")
        if any(isinstance(x, bool) for x in given):
            raise AssertionError(error_text("flip", f"axes must be ints, got {given}"))
        axes = tuple(self._resolve_dim(x, op="flip") for x in given)
        if len(set(axes)) != len(axes):
            raise RuntimeError(error_text("flip", f"dim appears multiple times in {given}", {"tensor": self}))
        mask = tuple(i in axes for i in range(self.ndim))
        return self._mop(Ops.FLIP, mask) if any(mask) else self

    def shrink(self, arg: Sequence[tuple[Sint, Sint] | None]) -> Self:
        """Keep [start, end) of every axis; None keeps all of it. Bounds are not clamped.

        Raises:
            ShapeError: The number of pairs is not ndim, or bounds lie outside the shape.

        Example:
            >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink(((0, 1), (1, 3))).tolist()
            [[2, 3]]
        """
        if len(arg) != self.ndim:
            raise self._movement_error("shrink", f"{len(arg)} pairs for {self.ndim} dims", "one pair (or None) per dim")
        pairs = tuple((0, s) if p is None else (p[0], p[1]) for p, s in zip(arg, self.shape, strict=True))
        for (start, end), size in zip(pairs, self.shape, strict=True):
            first, last, most = known_size(start), known_size(end), known_size(size)
            if first is None or last is None:
                continue  # Variables without values: nothing is known yet
            if not 0 <= first <= last or (most is not None and last > most):
                raise self._movement_error(
                    "shrink", f"bounds {shown(pairs)} are outside the shape", "0 <= start <= end <= size"
                )
        if all(same_size(b, 0) and same_size(e, s) for (b, e), s in zip(pairs, self.shape, strict=True)):
            return self
        return self._mop(Ops.SHRINK, pairs)

    def shrink_to(self, shape: Any, *args: Any) -> Self:
        """Keep [0, n) of every axis; None keeps all of it.

        Example:
            >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink_to(None, 2).tolist()
            [[1, 2], [4, 5]]
        """
        return self.shrink([None if n is None else (0, n) for n in shape_args(shape, args, "shrink_to")])

    # ---- padding ----------------------------------------------------------------------------------------------------

    def pad(self, padding: Sequence[Any], mode: str = "constant", value: Any = 0.0) -> Self:
        """Pad (or, with negative amounts, crop) the borders.

        Args:
            padding: Flat amounts, last dim first, before and after (as torch); or one (before, after) or None per dim.
            mode: ``constant``, ``reflect``, ``replicate`` or ``circular``.
            value: Fill value of mode ``constant``.

        Raises:
            ShapeError: The number of amounts does not fit, or an amount is too large for the mode.
            NotImplementedError: Another mode.

        Example:
            >>> Tensor([1, 2]).pad((1, 0), value=9).tolist()
            [9, 1, 2]
        """
        from tinygrad.mixin.padding import pad

        return pad(self, padding, mode, value)

    def _slice_dim(self, dim: int, start: Sint, end: Sint) -> Self:
        return self.shrink([(start, end) if i == dim else None for i in range(self.ndim)])

    def pad_to(self, shape: Any, *args: Any, value: Any = 0) -> Self:
        """Pad at the end up to the given sizes; None keeps a size.

        Raises:
            ShapeError: Wrong number of sizes, or a size that is smaller than the present one.

        Example:
            >>> Tensor([[1, 2]]).pad_to(2, 3).tolist()
            [[1, 2, 0], [0, 0, 0]]
        """
        from tinygrad.mixin.padding import pad_constant

        sizes = shape_args(shape, args, "pad_to")
        if len(sizes) != self.ndim:
            raise self._movement_error(
                "pad_to", f"{len(sizes)} sizes for {self.ndim} dims", "one size (or None) per dim"
            )
        pads = tuple((0, 0 if n is None else ssimplify(n - s)) for n, s in zip(sizes, self.shape, strict=True))
        if any(isinstance(e, int) and e < 0 for _, e in pads):
            raise self._movement_error(
                "pad_to", f"cannot pad {shown(self.shape)} to the smaller {shown(sizes)}", "new size >= size"
            )
        return pad_constant(self, pads, value)

    # ---- dims ------------------------------------------------------------------------------------------------------

    @property
    def T(self) -> Self:  # noqa: N802  as numpy and torch
        """The tensor with its dims 0 and 1 swapped.

        Raises:
            IndexError: There are fewer dims; it is an AttributeError, too.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).T.tolist()
            [[1, 3], [2, 4]]
        """
        if self.ndim < 2:
            fault = f"dim 1 is out of range for {self.ndim} dims"
            raise NoSuchDimsError(error_text("transpose", fault, {"tensor": self}, "at least 2 dims"))
        return self.transpose()

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Swap two dims.

        Example:
            >>> Tensor.empty(2, 3, 4).transpose(0, 2).shape
            (4, 3, 2)
        """
        dim0, dim1 = self._resolve_dim(dim0, op="transpose"), self._resolve_dim(dim1, op="transpose")
        order = list(range(self.ndim))
        if not order:
            return self
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return self.permute(order)

    def squeeze(self, dim: int | Sequence[int] | None = None, *, axis: int | Sequence[int] | None = None) -> Self:
        """Drop dims of size 1: all, or the given ones if their size is 1. ``axis`` is another name of ``dim``.

        Example:
            >>> Tensor.empty(1, 3, 1).squeeze().shape, Tensor.empty(1, 3, 1).squeeze(0).shape
            ((3,), (3, 1))
        """
        dim = dim if axis is None else axis
        if dim is None:
            return self.reshape(tuple(s for s in self.shape if not same_size(s, 1)))
        given = (dim,) if isinstance(dim, int) else dim
        dims = {self._resolve_dim(d, op="squeeze") for d in given}
        if self.ndim == 0:
            return self
        return self.reshape(tuple(s for i, s in enumerate(self.shape) if i not in dims or not same_size(s, 1)))

    def unsqueeze(self, dim: int = 0, *, axis: int | None = None) -> Self:
        """Insert a dim of size 1. ``axis`` is another name of ``dim``.

        Example:
            >>> Tensor.empty(3, 4).unsqueeze(1).shape
            (3, 1, 4)
        """
        dim = self._resolve_dim(dim if axis is None else axis, extra=True, op="unsqueeze")
        return self.reshape((*self.shape[:dim], 1, *self.shape[dim:]))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Merge dims ``start_dim`` to ``end_dim``, both included.

        Raises:
            ShapeError: A dim does not exist, or ``end_dim`` comes before ``start_dim``.

        Example:
            >>> Tensor.empty(2, 3, 4).flatten(1).shape
            (2, 12)
        """
        start, end = self._resolve_dim(start_dim, op="flatten"), self._resolve_dim(end_dim, op="flatten")
        if start > end and self.ndim:
            raise ShapeError(error_text("flatten", f"dim {end_dim} comes before dim {start_dim}", {"self": self}))
        return self.reshape((*self.shape[:start], prod(self.shape[start : end + 1]), *self.shape[end + 1 :]))

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """Split one dim into ``sizes``; one of them may be -1.

        Raises:
            ShapeError: ``sizes`` do not multiply to the size of the dim, or several are negative.

        Example:
            >>> Tensor.empty(2, 12).unflatten(1, (3, -1)).shape
            (2, 3, 4)
        """
        dim = self._resolve_dim(dim, op="unflatten")
        inferred = tuple(sizes)
        negative = [s for s in inferred if type(s) is int and s < 0]
        if len(negative) > 1 or any(s != -1 for s in negative):
            fault = f"dim {dim} cannot be split into {shown(inferred)}"
            raise ShapeError(error_text("unflatten", fault, {"self": self}, "sizes >= 0, one of which may be -1"))
        if negative:
            known = prod(s for s in inferred if not (type(s) is int and s == -1))
            inferred = tuple(self.shape[dim] // known if known and type(s) is int and s == -1 else s for s in inferred)
        return self.reshape((*self.shape[:dim], *inferred, *self.shape[dim + 1 :]))

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Reorder, split and merge dims by an einops pattern such as ``"b (h w) c -> b c h w"``.

        Args:
            formula: Names, parentheses, ``1`` and ``...`` on both sides of ``->``.
            **sizes: Sizes of names inside parentheses; one per parenthesis may be left out.

        Raises:
            AssertionError: The pattern is malformed, or names or sizes do not fit.

        Example:
            >>> Tensor.empty(2, 12, 3).rearrange("b (h w) c -> b c h w", h=4).shape
            (2, 3, 4, 3)
        """
        from tinygrad.mixin.rearrange import rearrange

        return rearrange(self, formula, sizes)


def _holds_the_same(a: Any, b: Any) -> bool:
    """Whether two numbers of elements are equal: for all values of their Variables, or symbolic ones for those of now.

    So rows can be put into groups if their number divides; replays of a capture check that it does.
    """
    if same_size(a, b):
        return True
    if isinstance(a, int) or isinstance(b, int) or known_size(a) is None or known_size(b) is None:
        return False
    return not exceeds(a, b) and not exceeds(b, a)


def _without_common(a: list[Any], b: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return two lists of sizes without the symbolic ones that both have: those may be 0, no divisors."""
    left = []
    for size in a:
        same = None if isinstance(size, int) else next((i for i, other in enumerate(b) if other is size), None)
        if same is None:
            left.append(size)
        else:
            b = b[:same] + b[same + 1 :]
    return left, b
