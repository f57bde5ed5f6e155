"""Public methods with arguments of the wrong kind: whatever the error is, it names the call and the user's line.

Each call below is right. Every argument in turn is replaced by every odd value; calls that work with it are fine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, Variable, dtypes, nn
from tinygrad.errors import ShapeError

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def floats(*shape: int) -> Tensor:
    return Tensor(np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape) / 7)


def ints(*shape: int) -> Tensor:
    return Tensor(np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape) % 3)


M, N, IMAGE = floats(2, 3), ints(2, 3), floats(1, 2, 5, 5)
ODD: dict[str, Any] = {
    "None": None, "text": "a", "huge": 2**70, "-5": -5, "1.5": 1.5, "nan": math.nan, "empty": [],
    "ragged": [[1], [2, 3]], "dict": {}, "object": object(), "class": int, "array": np.zeros((2, 2), np.float32),
    "texts": np.array(["a"]), "vector": floats(7), "elsewhere": Tensor([1.0], device="PYTHON"), "complex": 1j,
    "slice": slice(0, 1), "dots": ..., "dtype": dtypes.float, "variable": Variable("u", 1, 3),
    "tuple of None": (None,), "tuple of float": (1.5,),
}  # fmt: skip


def method(name: str, *args: Any, of: Tensor = M, **kwargs: Any) -> Call:
    return (lambda *a, **k: getattr(of, name)(*a, **k)), args, kwargs


BINARY = [
    "add", "sub", "mul", "div", "mod", "pow", "maximum", "eq", "ne", "isclose", "copysign", "logaddexp", "__add__",
    "__lt__", "__floordiv__", "__rsub__",
]  # fmt: skip
UNARY = [
    "sum", "prod", "max", "mean", "var", "any", "argmax", "cumsum", "sort", "softmax", "log_softmax", "logsumexp",
    "squeeze", "unsqueeze", "flip",
]  # fmt: skip
CALLS: dict[str, Call] = {
    "Tensor": (Tensor, ([1, 2],), {"device": None, "dtype": None}),
    "full": (Tensor.full, ((2, 3), 1.0), {"dtype": None, "device": None}),
    "zeros": (Tensor.zeros, (2, 3), {}),
    "arange": (Tensor.arange, (0, 5, 1), {"dtype": None}),
    "linspace": (Tensor.linspace, (0, 1, 5), {}),
    "eye": (Tensor.eye, (2, 3), {}),
    "rand": (Tensor.rand, (2, 3), {}),
    "randint": (Tensor.randint, (2, 3), {"low": 0, "high": 5}),
    "uniform": (Tensor.uniform, (2, 3), {"low": 0.0, "high": 1.0}),
    "normal": (Tensor.normal, (2, 3), {"mean": 0.0, "std": 1.0}),
    "einsum": (Tensor.einsum, ("ij,jk->ik", M, floats(3, 4)), {}),
    **{name: method(name, M) for name in BINARY},
    **{name: method(name, 0) for name in UNARY},
    "bitwise_and": method("bitwise_and", N, of=N),
    "lshift": method("lshift", N, of=N),
    "reshape": method("reshape", 3, 2),
    "expand": method("expand", 4, 2, 3),
    "permute": method("permute", 1, 0),
    "shrink": method("shrink", ((0, 1), (0, 2))),
    "pad": method("pad", (1, 1), mode="constant", value=0.0),
    "pad_to": method("pad_to", 4, 4),
    "flatten": method("flatten", 0, 1),
    "unflatten": method("unflatten", 1, (3, 1)),
    "rearrange": method("rearrange", "a b -> b a"),
    "split": method("split", 1, 0),
    "chunk": method("chunk", 2, 0),
    "cat": method("cat", M, dim=0),
    "stack": method("stack", M, dim=0),
    "repeat": method("repeat", 1, 2),
    "roll": method("roll", 1, 0),
    "unfold": method("unfold", 1, 2, 1),
    "triu": method("triu", 0),
    "clamp": method("clamp", 0.0, 1.0),
    "lerp": method("lerp", M, 0.5),
    "where": method("where", M, 0.0, of=M > 1),
    "masked_fill": method("masked_fill", M > 1, 1.0),
    "topk": method("topk", 2, 1),
    "dot": method("dot", floats(3, 4)),
    "linear": method("linear", floats(3, 4), floats(4)),
    "conv2d": method("conv2d", floats(4, 2, 3, 3), None, of=IMAGE, groups=1, stride=1, dilation=1, padding=0),
    "max_pool2d": method("max_pool2d", (2, 2), of=IMAGE, stride=1, dilation=1, padding=0),
    "avg_pool2d": method("avg_pool2d", (2, 2), of=IMAGE, stride=1, dilation=1, padding=0),
    "interpolate": method("interpolate", (3, 3), of=IMAGE, mode="linear"),
    "scaled_dot_product_attention": method("scaled_dot_product_attention", IMAGE, IMAGE, of=IMAGE, dropout_p=0.0),
    "layernorm": method("layernorm", -1, 1e-5),
    "dropout": method("dropout", 0.5),
    "getitem": method("__getitem__", 0),
    "gather": method("gather", 1, N),
    "scatter": method("scatter", 1, N, M),
    "scatter_reduce": method("scatter_reduce", 1, N, M, "sum"),
    "masked_select": method("masked_select", M > 1),
    "one_hot": method("one_hot", 5, of=N),
    "cast": method("cast", dtypes.int),
    "bitcast": method("bitcast", dtypes.int),
    "to": method("to", None),
    "replace": method("replace", M, of=floats(2, 3)),
    "cross_entropy": method("cross_entropy", ints(2), "mean", 0.0),
    "nll_loss": method("nll_loss", ints(2), None, None, "mean"),
    "binary_crossentropy": method("binary_crossentropy", M, "mean"),
    "backward": method("backward", M, of=M * 2),
    "Linear": (nn.Linear, (3, 4), {}),
    "Conv2d": (nn.Conv2d, (2, 4, 3), {"stride": 1, "padding": 0, "groups": 1}),
    "LayerNorm": (nn.LayerNorm, (3,), {}),
    "GroupNorm": (nn.GroupNorm, (1, 3), {}),
    "Embedding": (nn.Embedding, (5, 3), {}),
    "Adam": (nn.optim.Adam, ([floats(2)],), {"lr": 0.1, "b1": 0.9}),
    "SGD": (nn.optim.SGD, ([floats(2)],), {"lr": 0.1, "momentum": 0.9}),
}
CALLED = {"__lt__": ("comparison", "lt"), "__floordiv__": ("div",)}


def error_of(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    try:
        call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  what is raised is what is tested
        return error
    return None


@pytest.mark.filterwarnings("ignore")  # numpy warns of some of the values
@pytest.mark.parametrize("name", CALLS)
def test_errors_name_the_call_and_the_line(name: str) -> None:
    call, args, kwargs = CALLS[name]
    call(*args, **kwargs)
    changed = [((*args[:i], odd, *args[i + 1 :]), kwargs) for i in range(len(args)) for odd in ODD.values()]
    changed += [(args, {**kwargs, key: odd}) for key in kwargs for odd in ODD.values()]
    found = [(a, k, error) for a, k in changed if (error := error_of(call, a, k)) is not None]
    assert found
    for new_args, new_kwargs, error in found:
        text = str(error)
        told = f"{name}{new_args}{new_kwargs} raises {type(error).__name__}: {text}"
        lines = [row for row in text.splitlines() if row.strip().startswith("line ")]
        assert any("test_odd_arguments.py" in row for row in lines), f"no line of the user in {told}"
        names = CALLED.get(name, (name.strip("_").removeprefix("r"),))
        assert any(n in text.splitlines()[0] for n in names), f"not named in {told}"


def _set(t: Tensor, index: Any, value: Any) -> Tensor:
    t[index] = value
    return t


UNFIT_INTEGERS: list[Callable[[int, str], Tensor]] = [
    lambda value, dtype: Tensor(value, dtype=dtype),
    lambda value, dtype: Tensor.full((2,), value, dtype=dtype),
    lambda value, dtype: Tensor.full((2,), value, dtype=dtype, buffer=False),
    lambda value, dtype: Tensor([1, 2], dtype=dtype).full_like(value),
    lambda value, dtype: Tensor.zeros(2).full_like(value, dtype=dtype),
    lambda value, dtype: Tensor.linspace(0, value, 3, dtype=dtype),
    lambda value, dtype: Tensor.linspace(float(value), 1, 3, dtype=dtype),
    lambda value, dtype: _set(Tensor([1, 2], dtype=dtype), 0, value),
    lambda value, dtype: _set(Tensor([1, 2], dtype=dtype), Tensor([True, False]), value),
]


@pytest.mark.parametrize("make", UNFIT_INTEGERS)
@pytest.mark.parametrize(("value", "dtype"), [(2**40, "int32"), (300, "uint8"), (-1, "uint8"), (2**64, "int64")])
def test_an_integer_that_does_not_fit_is_refused(make: Callable[[int, str], Tensor], value: int, dtype: str) -> None:
    with pytest.raises(OverflowError, match="does not fit"):
        make(value, dtype)


@pytest.mark.parametrize(("value", "dtype"), [(2**40, "int32"), (256, "uint8"), (-(2**16), "int16"), (2**64, "int64")])
def test_an_integer_in_a_list_wraps_but_never_to_zero(value: int, dtype: str) -> None:
    with pytest.raises(OverflowError, match="does not fit"):
        Tensor([1, value], dtype=dtype)
    assert Tensor([0, value + 1], dtype=dtype).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, TypeError),
        (math.nan, ValueError),
        ([1.0, math.nan], ValueError),
        (math.inf, OverflowError),
        (Tensor(1.5), RuntimeError),
        (Tensor([1, 2]) * 0.5, RuntimeError),
    ],
)
def test_setitem_refuses_what_integers_cannot_show(value: Any, error: type[Exception]) -> None:
    t = Tensor([1, 2])
    with pytest.raises(error, match="setitem"):
        t[:] = value
    assert t.tolist() == [1, 2]


@pytest.mark.parametrize("count", [2**21, 2**40, 2**70])
@pytest.mark.parametrize(("name", "call"), [
    ("vsplit", lambda n: Tensor.ones(3, 4).vsplit(n)),
    ("hsplit", lambda n: Tensor.ones(3, 4).hsplit(n)),
    ("tensor_split", lambda n: Tensor.ones(3, 4).tensor_split(n, dim=1)),
    ("chunk", lambda n: Tensor.ones(0, 4).chunk(n)),
    ("split", lambda n: Tensor.empty(min(n, 2**40)).split(1)),
    ("unbind", lambda n: Tensor.empty(min(n, 2**40)).unbind()),
    ("adaptive_avg_pool2d", lambda n: Tensor.ones(1, 3, 4).adaptive_avg_pool2d(n)),
    ("adaptive_max_pool1d", lambda n: Tensor.ones(1, 4).adaptive_max_pool1d(n, return_indices=True)),
    ("vander", lambda n: Tensor.ones(3).vander(n)),
])  # fmt: skip
def test_an_absurd_number_of_parts_is_an_error_at_once(name: str, call: Any, count: int) -> None:
    with pytest.raises(ShapeError, match=rf"^{name}: .*\d+ tensors in one call"):
        call(count)


def test_parts_of_few_elements_may_be_many() -> None:
    assert len(Tensor.ones(3, 4).chunk(2**70)) == 3
    assert len(Tensor.ones(3, 4).split(2**70)) == 1
    assert len(Tensor.ones(3, 4).vsplit(2**10)) == 2**10
