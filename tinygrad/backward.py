"""``backward``: the gradients of one tensor, left on the tensors that it was computed from.

In:   a float tensor, and the gradient that flows into it.
Out:  ``grad`` of every live float tensor in its graph is filled or added to, unless it says ``requires_grad=False``.
Why:  which tensors those are is known only here: ``mixin/gradient.py`` differentiates nodes, and a node does not know
      who shows it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tinygrad.dtype import dtypes
from tinygrad.errors import DTypeError, error_text
from tinygrad.gradient_marks import mark_gradient
from tinygrad.helpers import disable_gc
from tinygrad.live import is_stored, live_tensors, unsettled_tensors
from tinygrad.mixin.gradient import compute_gradient, root_gradient
from tinygrad.origins import with_origins
from tinygrad.realizing import compute_for_capture, is_kept_by_replays
from tinygrad.retracing import undetached
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tinygrad.tensor import Tensor


@disable_gc()  # see realizing.py
def fill_gradients(root: Tensor, gradient: Tensor | None) -> None:
    """Differentiate ``root``; see ``Tensor.backward``."""
    if not dtypes.is_float(root.dtype):
        raise DTypeError(
            error_text("backward", f"only float Tensors have gradient, this one is {root.dtype}", {"tensor": root})
        )
    root_grad = root_gradient(root, gradient)
    differentiated, wanted = _reached_tensors(root)
    if compute_for_capture([t.grad for t, _ in wanted if t.grad is not None]):
        root_grad = root_gradient(root, gradient)  # tensors show other nodes now
        differentiated, wanted = _reached_tensors(root)
    found = compute_gradient(differentiated, root_grad, dict.fromkeys(node for _, node in wanted))
    for t, node in wanted:
        grad = found[node] if node in found else node.const_like(0)
        mark_gradient(grad, t)
        _add_gradient(t, t._wrap_uop(grad))


def _reached_tensors(root: Tensor) -> tuple[UOp, list[tuple[Tensor, UOp]]]:
    """Return the node to differentiate, and the live tensors that gradients reach, each with its node."""
    floats = [t for t in live_tensors() if dtypes.is_float(t.dtype) and not t.uop.is_virtual and t._wants_grad]
    differentiated, *nodes = nodes_to_differentiate(root, *floats)
    reached = undetached(differentiated)
    return differentiated, [(t, node) for t, node in zip(floats, nodes, strict=True) if node in reached]


def nodes_to_differentiate(root: Tensor, *others: Tensor) -> list[UOp]:
    """Return the nodes of tensors, in which numbers that were read before are what they were computed from.

    In a capture such numbers are inputs: its replays read what their storage holds by then.
    """
    from tinygrad.engine.capturing import capturing

    return [t.uop for t in (root, *others)] if capturing else with_origins(root, *others)


def warn_of_equal(targets: Sequence[Tensor]) -> None:
    """Warn of a target that shows one expression with another live tensor, though nobody said that they are one.

    Views of one tensor are one, and so is a tensor with that by which it was replaced.

    Warns:
        RuntimeWarning: There is such a target: it gets what flows to both.
    """
    computed = {target.uop: i for i, target in reversed(list(enumerate(targets))) if not is_stored(target.uop)}
    if not computed:
        return
    for j, other in enumerate((*targets, *(t for t in unsettled_tensors() if t.uop in computed))):
        i = computed.get(other.uop, j)
        target = targets[i]
        is_same = other is target or (other._family is not None and other._family is target._family)
        is_meant = other._is_replaced or target._is_replaced
        if not is_same and not is_meant:
            others = f"targets {i} and {j}" if j < len(targets) else f"target {i} and another tensor"
            fault = f"{others} are equal expressions, which are one: the gradient is that of both"
            text = error_text("gradient", fault, {f"target {i}": target}, hint="its clone() is a value of its own")
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return


def _add_gradient(tensor: Tensor, grad: Tensor) -> None:
    if tensor.grad is None:
        tensor.grad = grad
    elif tensor.grad.uop.is_realized or is_kept_by_replays(tensor.grad):
        tensor.grad.assign(tensor.grad + grad)  # a replay finds the sum where the last one left it
    else:
        tensor.grad = tensor.grad + grad
