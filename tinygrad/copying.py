"""``copy.copy`` and ``copy.deepcopy`` of tensors.

In:   a tensor; for a deep copy the memo of objects that were copied before it.
Out:  a shallow copy, which shows the same elements; or a deep copy, a value of its own.
Why:  Python's own copies would take over the node, and with it the storage: a later step of an optimizer would show in
      the snapshot of a model. What is in storage is copied at once: the replay of a JIT overwrites storage without a
      look at who has yet to read it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tinygrad.device import canonicalize_device
from tinygrad.dtype import dtypes
from tinygrad.families import has_relatives, written_node
from tinygrad.live import is_stored, rebase, storage_under
from tinygrad.repointing import new_storage
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor


def deep_copy(tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
    """Return a copy that shares nothing with the tensor; see ``Tensor.__deepcopy__``."""
    if tensor.uop.is_virtual:  # a constant, which no write changes
        is_float = tensor.dtype in dtypes.floats
        made = tensor._variable(tensor.uop.detach()) if is_float else tensor._wrap_uop(tensor.uop)
    elif str(tensor.device).startswith("DISK"):
        # A file has no place for a second copy, as in ``clone``; and a view may be a small part of a large file.
        made = tensor._wrap_uop(_stored(tensor.uop.copy_to_device(canonicalize_device(None))))
    else:
        made = _copy_of_value(tensor, memo)
    memo[id(tensor)] = made  # before the attributes, which may refer to the tensor
    made._with_flags(tensor)
    made.grad = copy.deepcopy(tensor.grad, memo)
    for name, value in tensor.__dict__.items():
        setattr(made, name, copy.deepcopy(value, memo))
    return made


def _copy_of_value(tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
    """Return the tensor on a copy of what it is a view of; views of the same become views of one copy."""
    uop = tensor.uop
    # Equal expressions are one node: without storage, only relatives are views of the same.
    owner: Any
    if is_stored(uop):
        shown, owner = storage_under(uop), None
    elif has_relatives(tensor):
        shown, owner = written_node(uop), tensor._family
    else:
        shown, owner = uop, tensor
    key = "value", id(shown), id(owner)
    if key not in memo:
        whole = tensor._wrap_uop(_stored(shown))
        memo[key] = whole.realize() if owner is None else whole, shown, owner  # the last two keep their ids taken
    return tensor._wrap_uop(rebase(uop, shown, memo[key][0].uop))


def _stored(value: UOp) -> UOp:
    """Return fresh storage that holds a value. It is a leaf, like a copy in torch: no gradients pass through."""
    return new_storage(value.detach())
