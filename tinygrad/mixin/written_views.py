"""Views of storage that are written through: which elements they show, and what a value is under them.

In:   the movement nodes between storage and a view of it.
Out:  nodes of the shape of the view, or back in that of the storage.
Why:  a write through a view and the gradient of one both go from the view back to the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.helpers import argsort
from tinygrad.mixin.hooks import same_size
from tinygrad.uop import GroupOp, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


def view_chain(view: UOp, base: UOp) -> list[UOp] | None:
    """Return the movement nodes from storage to a view of it, in this order; None if other nodes lie between."""
    chain: list[UOp] = []
    while view is not base and view.op in GroupOp.Movement:
        chain.append(view)
        view = view.src[0]
    return chain[::-1] if view.without_after is base.without_after else None


def apply_chain(chain: Iterable[UOp], x: UOp) -> UOp:
    """Return the view of another value through the same movement nodes."""
    for node in chain:
        x = x._mop(node.op, node.marg)
    return x


def is_whole(chain: Sequence[UOp]) -> bool:
    """Whether a view shows all elements."""
    return all(node.op in {Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP} for node in chain)


def undo_chain(chain: Sequence[UOp], value: UOp, expanded: Callable[[UOp, tuple[Any, ...]], UOp]) -> UOp:
    """Return a value of the shape of the storage whose elements under a view are those of ``value``, the others 0.

    Args:
        chain: The movement nodes from the storage to the view.
        value: A value of the view's shape.
        expanded: Joins the copies that an EXPAND made: takes them and the shape before it.
    """
    for node in reversed(chain):
        shape = node.src[0].shape
        match node.op:
            case Ops.RESHAPE:
                value = value.reshape(shape)
            case Ops.PERMUTE:
                value = value.permute(argsort(node.marg))
            case Ops.FLIP:
                value = value._mop(Ops.FLIP, node.marg)
            case Ops.SHRINK:
                value = value.pad(tuple((b, s - e) for (b, e), s in zip(node.marg, shape, strict=True)))
            case Ops.PAD:
                value = value.shrink([(b, b + s) for (b, _), s in zip(node.marg, shape, strict=True)])
            case _:
                value = expanded(value, shape)
    return value


def written_mask(chain: Sequence[UOp], base: UOp) -> UOp:
    """Return a bool node of the shape of ``base`` that is True at the elements that a view shows."""
    return undo_chain(chain, (chain[-1] if chain else base).const_like(True, dtypes.bool), _any_copy)


def without_chain(chain: Sequence[UOp], value: UOp) -> UOp:
    """Return what ``value`` is in the storage if it is written through a view, which shows no element twice."""
    return undo_chain(chain, value, _no_copies)


def _no_copies(value: UOp, shape: tuple[Any, ...]) -> UOp:
    raise AssertionError("a view that shows elements several times is not written through")


def _any_copy(mask: UOp, shape: tuple[Any, ...]) -> UOp:
    """Undo a broadcast of a bool node: True where any of the copies is True."""
    extra = mask.ndim - len(shape)
    axes = [*range(extra), *(i + extra for i, s in enumerate(shape) if not same_size(s, mask.shape[i + extra]))]
    return mask._rop(Ops.MAX, tuple(axes)).reshape(shape)
