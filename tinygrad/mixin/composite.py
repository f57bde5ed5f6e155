"""What the composite operations share: checked errors, and bodies that become one FUNCTION node with its own gradient.

In:   nodes, a function from nodes to a node, and a gradient function.
Out:  ``GETTUPLE(FUNCTION(TUPLE(body), *args))``; the scheduler inlines the body, the gradient calls the function.
Why:  the derivative of a convolution, a gather or a scan is better stated than derived; stated here, the backward pass
      gets kernels in the form that the optimiser likes (plain contractions, indexed loads and stores).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes, strong_dtype, sum_acc_dtype
from tinygrad.errors import ShapeError
from tinygrad.helpers import prod
from tinygrad.mixin.hooks import known_size
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


class ContractionError(ShapeError, RuntimeError):
    """Operands of a contraction do not fit; a RuntimeError too, for programs that handle that."""


class CompositeShapeError(ShapeError, AssertionError):
    """Shapes do not fit a composite operation; an AssertionError too, for programs that handle that."""


class RankError(CompositeShapeError, RuntimeError):
    """Ranks of index and tensor differ; a RuntimeError too, for programs that handle that."""


def sizes_differ(a: Any, b: Any) -> bool:
    """Return whether two sizes are certainly different (a symbolic size may turn out equal)."""
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    from tinygrad.uop.sint import resolve

    if a is b:
        return False
    values = known_size(a), known_size(b)
    if None not in values and values[0] != values[1]:
        return True
    return resolve(a != b if not isinstance(a, int) else b != a, default=False)


def composite(body: Callable[..., UOp], args: tuple[UOp, ...], grad_fxn: Callable[..., Any] | None, name: str) -> UOp:
    """Apply ``body`` to ``args`` as one FUNCTION node.

    Args:
        body: From placeholders (same shape, dtype and device as the arguments) to the result.
        args: Argument nodes of concrete dtypes.
        grad_fxn: ``grad_fxn(grad, call)`` returning one gradient (or None) per argument. Give an object that compares
            by value (a frozen dataclass), so that equal calls are the same node.
        name: Shown in traces.
    """
    if any(not isinstance(size, int) for arg in args for size in arg.shape):
        # A body is cached by its shapes; symbolic ones stay in the open graph and are differentiated rule by rule.
        return body(*args)
    params = (arg.param_like(slot) for slot, arg in enumerate(args))
    return body(*params).call(*args, grad_fxn=grad_fxn, name=name).gettuple(0)


def materialized(x: UOp) -> UOp:
    """Return a value that is computed once and stored, also if it is one of constants and ranges only."""
    if x.device is not None:
        return x.contiguous()
    from tinygrad.device import canonicalize_device
    from tinygrad.uop.ops import UOp

    # Of a symbolic size the largest is allocated.
    storage = UOp.new_buffer(canonicalize_device(None), prod(x.max_shape), strong_dtype(x.dtype))
    count = (prod(x.shape),)
    filled = storage.after(storage.shrink_to(count).store(x.cast(storage.dtype).flatten()))
    return filled.shrink_to(count).reshape(x.shape)


def contract(x: UOp, w: UOp, axes: int, accumulator: DType) -> UOp:
    """Multiply two broadcastable values and sum over the last ``axes`` dims, in ``accumulator``; they disappear."""
    # Cast before the product: the rounding of a half precision product would be larger than that of the sum.
    product = x.cast(accumulator) * w.cast(accumulator)
    kept = product.shape[: product.ndim - axes]
    return product._rop(Ops.ADD, tuple(range(len(kept), product.ndim))).reshape(kept)


def contraction_dtypes(common: DType, dtype: DType | None) -> tuple[DType, DType]:
    """Return (accumulator, result) of a contraction of operands whose common dtype is ``common``."""
    if dtype is not None:
        return dtype, dtype
    accumulator = sum_acc_dtype(common)
    return accumulator, (strong_dtype(accumulator) if common in dtypes.weaks else common)
