"""Methods that compute: their result is a value of its own, even where it happens to look like a part of an argument.

In:   the methods of Tensor.
Out:  ``add_own_values``, which makes the results of the methods below values of their own.
Why:  whether ``x.roll(n)`` shows later writes to x must not depend on n. As in torch, three kinds of methods are told
      apart. Views, such as ``reshape`` or ``x[2:]``, show the elements of their tensor. Conversions, such as ``to``,
      ``cast`` or ``contiguous``, return the tensor itself where there is nothing to convert. All others compute. Most
      of these make a node that says so. Those below may end in movement nodes alone, or in nothing at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from tinygrad.boundary import unbound
from tinygrad.live import is_stored, is_view_node, storage_under
from tinygrad.uop import Ops
from tinygrad.uop.views import own_copy, own_value

if TYPE_CHECKING:
    from tinygrad.tensor import Tensor

COMPUTING: Final = (
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "cat", "diag", "diff", "einsum", "pad",
    "pad_to", "pow", "repeat", "repeat_interleave", "roll", "sort", "stack", "topk", "uprod", "usum",
    # of a single number
    "amax", "cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "max", "min", "prod", "sum",
)  # fmt: skip


def add_own_values(cls: type) -> None:
    """Make the results of the methods above values of their own."""
    for name in COMPUTING:
        method = unbound(cls, name)
        is_static = isinstance(method, (classmethod, staticmethod))
        setattr(cls, name, type(method)(_computing(method.__func__)) if is_static else _computing(method))


def _computing(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        made = method(*args, **kwargs)
        return tuple(_apart(t, args) for t in made) if isinstance(made, tuple) else _apart(made, args)

    return run


def _apart(made: Tensor, args: Iterable[Any]) -> Tensor:
    """Return a result that is no view of an argument: of another family, and another node where that shows data."""
    uop, base = made.uop, storage_under(made.uop)
    is_argument = any(t.uop is uop for t in _tensors(args))
    is_view = is_view_node(uop) and (is_stored(base) or any(storage_under(t.uop) is base for t in _tensors(args)))
    if uop.device is not None and (is_view or (is_argument and is_stored(uop))):
        return made._wrap_uop(own_value(uop))
    if is_argument and uop.op is Ops.COPY:  # data on its way: it would be one variable with its copy
        return made._wrap_uop(own_copy(uop))
    if is_argument:
        return made._variable(uop)
    return made._wrap_uop(uop) if made._family is not None else made


def _tensors(args: Iterable[Any]) -> Iterable[Tensor]:
    for x in args:
        if hasattr(x, "uop") and not isinstance(x, type):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from (t for t in x if hasattr(t, "uop"))
