"""What numpy and torch have, where it meets tensors: numpy's functions of tensors, their dtypes, tensors of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.engine.jit import JitError

A = np.array([[1.0, 2.0, -3.5], [4.0, 0.5, 6.0]], np.float32)
B = np.array([[2.0, 3.0, 1.0], [1.0, 2.0, 4.0]], np.float32)

REDUCTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, options) for name in ("sum", "mean", "max", "min", "prod", "std", "var", "any", "all")
      for options in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)})),
    ("std", {"ddof": 1, "axis": 0}), ("var", {"ddof": 1}), ("sum", {"dtype": np.float64}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), REDUCTIONS)
def test_reductions_of_numpy_are_those_of_the_tensor(name: str, options: dict[str, Any]) -> None:
    function = getattr(np, name)
    found = function(Tensor(A), **options)  # numpy passes on its own ddof of 0
    assert isinstance(found, Tensor), "it is as lazy as the method is"
    np.testing.assert_allclose(found.numpy(), function(A, **options), rtol=1e-6)


OPERATORS = [
    "add", "subtract", "multiply", "true_divide", "floor_divide", "remainder", "power", "less", "less_equal", "greater",
    "greater_equal", "equal", "not_equal",
]  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("left", [A, np.float32(2), np.int64(3)], ids=["array", "float32", "int64"])
def test_operators_with_numpy_on_either_side_are_tensors(name: str, left: Any) -> None:
    function = getattr(np, name)
    for first, second in ((left, Tensor(B)), (Tensor(B), left), (Tensor(A), Tensor(B))):
        found = function(first, second)
        assert isinstance(found, Tensor)
        values = [x.numpy() if isinstance(x, Tensor) else x for x in (first, second)]
        np.testing.assert_allclose(found.numpy(), function(*values), rtol=1e-5)


def test_bits_and_matrices_with_numpy_on_the_left() -> None:
    n, m = np.array([1, 6, 12], np.int32), np.array([3, 2, 1], np.int32)
    for found, expected in (
        (n & Tensor(m), n & m), (n | Tensor(m), n | m), (n ^ Tensor(m), n ^ m), (n << Tensor(m), n << m),
        (n >> Tensor(m), n >> m), (A @ Tensor(B.T.copy()), A @ B.T),
    ):  # fmt: skip
        assert isinstance(found, Tensor)
        np.testing.assert_array_equal(found.numpy(), expected)


FUNCTIONS = [
    "exp", "sqrt", "abs", "sin", "floor", "isnan", "negative", "sign", "maximum", "minimum", "arctan2", "hypot",
    "logaddexp", "copysign", "fmod",
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_functions_of_numpy_take_the_values(name: str) -> None:
    function = getattr(np, name)
    ours, theirs = ([Tensor(B), A], [B, A]) if function.nin == 2 else ([Tensor(B)], [B])
    found = function(*ours)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, function(*theirs))


def test_functions_of_numpy_that_reduce_or_write() -> None:
    np.testing.assert_array_equal(np.add.reduce(Tensor(A)), np.add.reduce(A))
    np.testing.assert_array_equal(np.multiply.outer(A, Tensor(B)), np.multiply.outer(A, B))
    np.testing.assert_array_equal(np.where(Tensor(A) > 0, A, 0), np.where(A > 0, A, 0))
    target = A.copy()
    target += Tensor(B)
    np.testing.assert_array_equal(target, A + B)
    with pytest.raises(ValueError, match=r"add: shapes .* do not broadcast"):
        A + Tensor([1.0, 2.0])


def test_values_are_not_read_in_a_capture() -> None:
    run = TinyJit(lambda t: Tensor(np.exp(t)).realize())
    run(Tensor(A).clone().realize())
    with pytest.raises(JitError, match="values of a tensor"):
        run(Tensor(A).clone().realize())


DTYPES: list[tuple[Any, str]] = [
    (np.float32, "float32"), (np.float16, "float16"), (np.double, "float64"), (np.int64, "int64"), (np.uint8, "uint8"),
    (np.bool_, "bool"), (bool, "bool"), (np.dtype("int8"), "int8"), (np.dtype("<u2"), "uint16"), (A.dtype, "float32"),
    (torch.float32, "float32"), (torch.bfloat16, "bfloat16"), (torch.int64, "int64"), (torch.bool, "bool"),
    (torch.float8_e4m3fn, "fp8e4m3"), (torch.float8_e5m2, "fp8e5m2"), ("float32", "float32"), ("HALF", "float16"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "name"), DTYPES, ids=str)
def test_dtypes_of_numpy_and_torch(given: Any, name: str) -> None:
    wanted = getattr(dtypes, name)
    made = [
        Tensor([1, 0], dtype=given),
        Tensor(A).cast(given),
        Tensor.zeros(2, dtype=given),
        Tensor(A).sum(dtype=given),
    ]
    assert {t.dtype for t in [*made, Tensor([1.0]).full_like(1, dtype=given), Tensor.eye(2, dtype=given)]} == {wanted}
    if wanted.itemsize == 4:
        assert Tensor(A).bitcast(given).dtype is wanted


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (int, "expected dtypes.int32 or dtypes.int64"), (float, "expected dtypes.float32 or dtypes.float64"),
        (complex, "is not a dtype"), (np.complex64, "is not a dtype"), (torch.complex64, "is not a dtype"),
        (np.dtype("datetime64[s]"), "is not a dtype"), (str, "is not a dtype"), (3, "is not a dtype"),
        ("complex64", "known names"),
    ],
)  # fmt: skip
def test_what_is_no_dtype_here_is_told_so(given: Any, part: str) -> None:
    # int and float are 64 bits in numpy and torch, and 32 in a tensor of Python numbers: neither is meant for sure.
    for program in (
        lambda: Tensor([1], dtype=given),
        lambda: Tensor([1]).cast(given),
        lambda: Tensor.ones(2, dtype=given),
    ):
        with pytest.raises(AttributeError, match=part):
            program()


@pytest.mark.parametrize("void", ["void", dtypes.void])
def test_no_values_are_cast_to_void(void: Any) -> None:
    t = Tensor([1.0, 2.0])
    for name, program in {
        "cast": lambda: t.cast(void), "bitcast": lambda: t.bitcast(void), "sum": lambda: t.sum(dtype=void),
        "arange": lambda: Tensor.arange(3, dtype=void), "Tensor": lambda: Tensor([1], dtype=void),
        "zeros": lambda: Tensor.zeros(2, dtype=void),
    }.items():  # fmt: skip
        with pytest.raises((RuntimeError, TypeError), match=rf"^{name}: .*void"):
            program()


def test_tensors_of_torch_are_told_the_way_through_numpy() -> None:
    x, t = torch.ones(2, 2), Tensor([[1.0, 2.0], [3.0, 4.0]]).clone().realize()
    for program in (
        lambda: Tensor(x), lambda: Tensor([x, x]), lambda: t + x, lambda: x + t, lambda: t.maximum(x), lambda: t @ x,
        lambda: t.assign(x), lambda: t.__setitem__(0, x[0]),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"write Tensor\(x\.detach\(\)\.cpu\(\)\.numpy\(\)\)"):
            program()
    assert (t + torch.tensor(1.0)).tolist() == [[2.0, 3.0], [4.0, 5.0]]


# A call that fails with a number of numpy, or with another name of an argument, is made again with what it stands for.
AGAIN = [
    ("t.scatter_add(0, 0, two)", "scatter_add: index is 0 of type int, expected Tensor"),
    ("t.softmin(two - 2, t)", "softmin: dtype is Tensor .*, expected DType or str or None"),
    ("t.meshgrid(two)", r"meshgrid: args is \(2,\) of type tuple, expected Tensor"),
    ("t.tan(two, True)", "tan: takes 1 positional argument but 3 were given"),
    ("t.gather(axis=0, index=3)", "gather: index is 3 of type int, expected Tensor"),
    ("t.gather(axis=two - 2, index=3)", "gather: index is 3 of type int, expected Tensor"),
    (
        "t.softmax(dim='a')",
        "softmax: dim 'a' is a str",
    ),
]


@pytest.mark.parametrize(("call", "text"), AGAIN)
def test_errors_of_calls_that_are_made_again_name_the_call_and_the_line(call: str, text: str) -> None:
    with pytest.raises(Exception, match=f"^({text})") as caught:
        eval(call, {"t": Tensor([1.0, 2.0]), "two": np.int64(2)})
    assert "\n  line " in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
