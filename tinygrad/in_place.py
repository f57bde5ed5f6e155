"""Methods that end in an underscore: the same in place, as torch has them.

In:   the methods of Tensor.
Out:  ``InPlaceNames``, and ``add_in_place_forms``, which derives ``name_`` from ``name``.
Why:  two kinds are enough: one writes the new value into the storage, the other is another view of the same storage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tinygrad.dtype import dtypes
from tinygrad.torch_names import TorchNames

if TYPE_CHECKING:
    from typing import Self


class InPlaceNames(TorchNames):
    """In-place methods of Tensor that have no counterpart without the underscore."""

    __slots__ = ()

    if TYPE_CHECKING:

        def assign(self, x: Any) -> Self: ...  # noqa: D102

    def fill_(self, value: Any) -> Self:
        """``t.assign(value)``."""
        return self.assign(value)

    def zero_(self) -> Self:
        """``t.assign(0)``."""
        return self.assign(0)

    def copy_(self, src: Self) -> Self:
        """``t.assign(src.cast(t.dtype).to(t.device))``."""
        return self.assign(src.cast(self.dtype).to(self.device))

    def uniform_(self, low: float = 0.0, high: float = 1.0) -> Self:
        """``t.assign(Tensor.uniform(*t.shape, low=low, high=high))``."""
        return self.assign(type(self).uniform(*self.shape, low=low, high=high, dtype=self.dtype, device=self.device))

    def normal_(self, mean: float = 0.0, std: float = 1.0) -> Self:
        """``t.assign(Tensor.normal(*t.shape, mean=mean, std=std))``."""
        return self.assign(type(self).normal(*self.shape, mean=mean, std=std, dtype=self.dtype, device=self.device))


# name_ is t.assign(t.name(...)).
ASSIGNED: Final = (
    "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "arccos",
    "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan", "atan2", "atanh",
    "baddbmm", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "ceil", "celu", "clamp", "clamp_max", "clamp_min", "clip", "copysign", "cos", "cosh", "cumprod",
    "cumsum", "deg2rad", "div", "divide", "elu", "eq", "erf", "exp", "exp2", "expm1", "fix", "floor",
    "floor_divide", "fmod", "frac", "gcd", "ge", "greater", "greater_equal", "gt", "hardtanh", "heaviside",
    "hypot", "index_add", "index_copy", "index_fill", "lcm", "ldexp", "le", "leaky_relu", "lerp", "less",
    "less_equal", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logit", "lt", "masked_fill", "mul", "multiply", "nan_to_num", "ne", "neg", "negative", "nextafter",
    "not_equal", "pow", "rad2deg", "reciprocal", "relu", "remainder", "renorm", "round", "rsqrt", "scatter",
    "scatter_add", "scatter_reduce", "selu", "sgn", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt", "square",
    "sub", "subtract", "tan", "tanh", "tril", "triu", "true_divide", "trunc", "xlogy",
)  # fmt: skip
# name_ makes t show t.name(...), another view of the same values.
REPLACED: Final = ("detach", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")


def add_in_place_forms(cls: type) -> None:
    """Give a class the methods ``name_`` for the names above."""
    for name in ASSIGNED:
        setattr(cls, f"{name}_", _assigned(getattr(cls, name), name))
    for name in REPLACED:
        setattr(cls, f"{name}_", _replaced(getattr(cls, name), name))


def _assigned(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = method(self, *args, **kwargs)
        return self.assign(value.cast(self.dtype) if value.dtype is dtypes.bool else value)  # comparisons

    return _named(run, method, name, f"``t.assign(t.{name}(...))``.")


def _replaced(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.uop = method(self, *args, **kwargs).uop
        return self

    return _named(run, method, name, f"``t = t.{name}(...)``.")


def _named(run: Callable[..., Any], method: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """Return a form with the signature of its method, whose annotations tell what errors say that is expected."""
    functools.update_wrapper(run, method)
    run.__name__, run.__qualname__, run.__doc__ = f"{name}_", f"Tensor.{name}_", doc
    return run
