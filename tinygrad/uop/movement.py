"""Movement ops as index arithmetic: which element of the source does element ``idxs`` of the result show?

In:   a movement op, its argument, the shape of its source, index expressions of the result (one per axis).
Out:  index expressions of the source, and for PAD the condition under which the element exists at all.
Why:  kernels have no views; this is where the scheduler and hand-written kernels lose theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.affine import weighted_sum
from tinygrad.uop.ops import UOp, sint, sint_to_uop

Idxs = tuple[UOp, ...]


def zero() -> UOp:
    """Return index 0."""
    return UOp.const(0, dtypes.weakint)


def strides_of(shape: Sequence[sint]) -> tuple[sint, ...]:
    """Return row-major strides in elements."""
    strides: list[sint] = []
    step: sint = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def flatten_index(shape: Sequence[sint], idxs: Sequence[UOp]) -> UOp:
    """Return the row-major element number of ``idxs``."""
    parts = [
        (i, stride)
        for i, stride, size in zip(idxs, strides_of(shape), shape, strict=True)
        if not (isinstance(size, int) and size == 1)
    ]
    fixed = [(i, stride) for i, stride in parts if isinstance(stride, int) and _is_index(i)]
    if len(fixed) == len(parts):
        total = weighted_sum(*fixed)
        # Of loops alone the normal form of a sum has nothing left to simplify.
        return total if all(i.op is Ops.RANGE for i, _ in parts) else total.simplify()
    flat: UOp | None = None
    for i, stride in parts:
        term = i if isinstance(stride, int) and stride == 1 else i * stride
        flat = term if flat is None else flat + term
    return zero() if flat is None else flat.simplify()


def _is_index(i: UOp) -> bool:
    return i.dtype is dtypes.weakint and i._shape == ()


def _moved(i: UOp, by: sint) -> UOp:
    """Return the index that is ``by`` further on."""
    if type(by) is int and _is_index(i):
        return weighted_sum((i, 1), constant=by).simplify()
    return (i + by).simplify()


def steps(index: UOp) -> dict[UOp, int] | None:
    """Return the step of each range in an affine index, or None if it is not affine."""
    found: dict[UOp, int] = {}
    for term in index.split_uop(Ops.ADD):
        step = 1
        if term.op is Ops.MUL and term.src[1].op is Ops.CONST:
            term, step = term.src[0], term.src[1].arg
        if term.op is Ops.RANGE:
            found[term] = found.get(term, 0) + step
        elif term.ranges:
            return None
    return found


@lru_cache(maxsize=4096)
def _reshape_groups(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Pair the axes of two shapes into the smallest groups with equal products; axes of size 1 belong to none."""
    old_axes = [i for i, s in enumerate(old) if not (isinstance(s, int) and s == 1)]
    new_axes = [i for i, s in enumerate(new) if not (isinstance(s, int) and s == 1)]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    a = b = 0
    while a < len(old_axes) or b < len(new_axes):
        left: list[int] = []
        right: list[int] = []
        lsize: Any = 1
        rsize: Any = 1
        if a < len(old_axes):
            left.append(old_axes[a])
            lsize, a = old[old_axes[a]], a + 1
        if b < len(new_axes):
            right.append(new_axes[b])
            rsize, b = new[new_axes[b]], b + 1
        while lsize is not rsize and not (isinstance(lsize, int) and isinstance(rsize, int) and lsize == rsize):
            known = isinstance(lsize, int) and isinstance(rsize, int)
            grow_left = lsize < rsize if known else a < len(old_axes)
            if grow_left and a < len(old_axes):
                left.append(old_axes[a])
                lsize, a = lsize * old[old_axes[a]], a + 1
            elif b < len(new_axes):
                right.append(new_axes[b])
                rsize, b = rsize * new[new_axes[b]], b + 1
            elif a < len(old_axes):
                left.append(old_axes[a])
                lsize, a = lsize * old[old_axes[a]], a + 1
            else:
                break
        groups.append((tuple(left), tuple(right)))
    return tuple(groups)


def _reshape(in_shape: tuple[sint, ...], out_shape: tuple[sint, ...], idxs: Idxs) -> Idxs:
    result = [zero()] * len(in_shape)
    if 0 in in_shape:
        return tuple(result)  # no element: only the gate of a padding asks for one, in vain
    for left, right in _reshape_groups(in_shape, out_shape):
        if len(left) == 1 and len(right) == 1:
            result[left[0]] = idxs[right[0]]
            continue
        flat = flatten_index([out_shape[i] for i in right], [idxs[i] for i in right])
        sizes = [in_shape[i] for i in left]
        for axis, stride, size in zip(left, strides_of(sizes), sizes, strict=True):
            part = flat if isinstance(stride, int) and stride == 1 else flat // stride
            # The leading part needs no modulo: the flat index is below the product of the sizes.
            part = part if axis == left[0] else part % size
            result[axis] = part.simplify()
    return tuple(result)


def apply_movement_op(op: Ops, in_shape: tuple[sint, ...], arg: Any, idxs: Idxs) -> Idxs:
    """Return the source's index expressions. For PAD they may lie outside the source: see ``pad_valid``."""
    match op:
        case Ops.RESHAPE:
            return _reshape(in_shape, arg, idxs)
        case Ops.PERMUTE:
            inverse = [0] * len(arg)
            for position, axis in enumerate(arg):
                inverse[axis] = position
            return tuple(idxs[p] for p in inverse)
        case Ops.EXPAND:
            inner = idxs[len(arg) - len(in_shape) :]
            return tuple(zero() if isinstance(s, int) and s == 1 else i for s, i in zip(in_shape, inner, strict=True))
        case Ops.SHRINK:
            return tuple(
                i if isinstance(start, int) and start == 0 else _moved(i, start)
                for i, (start, _) in zip(idxs, arg, strict=True)
            )
        case Ops.PAD:
            return tuple(
                i if isinstance(before, int) and before == 0 else _moved(i, -before)
                for i, (before, _) in zip(idxs, arg, strict=True)
            )
        case Ops.FLIP:
            return tuple(
                ((s - 1) - i if isinstance(s, int) else sint_to_uop(s) - 1 - i).simplify() if flipped else i
                for i, s, flipped in zip(idxs, in_shape, arg, strict=True)
            )
        case _:
            raise AssertionError(f"{op} is no movement op")


def pad_valid(in_shape: tuple[sint, ...], arg: Any, idxs: Idxs) -> UOp | None:
    """Return the condition that element ``idxs`` of a PAD shows its source; None when it always does."""
    cond: UOp | None = None
    for i, size, (before, after) in zip(idxs, in_shape, arg, strict=True):
        checks = []
        if not (isinstance(before, int) and before == 0):
            checks.append((i < before).logical_not())
        if not (isinstance(after, int) and after == 0):
            checks.append(i < (before + size))
        for check in checks:
            simple = check.simplify()
            if simple.op is Ops.CONST and simple.arg is True:
                continue
            cond = simple if cond is None else cond & simple
    return cond


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """Return the conjunction of two optional conditions."""
    if a is None or b is None:
        return a if b is None else b
    return a if a is b else (a & b).simplify()
