"""Which Python and numpy values are index items, what each selects, and what refused ones raise: as in numpy."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, Variable, dtypes
from tinygrad.dtype import DType
from tinygrad.errors import ShapeError

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
NOTHING = slice(None)


def as_ours(items: Any) -> Any:
    """Return index items with arrays of bools as tensors."""
    if isinstance(items, tuple):
        return tuple(map(as_ours, items))
    return Tensor(items) if isinstance(items, np.ndarray) and items.dtype == bool else items


def assert_as_numpy(items: Any, mine: Any = None) -> None:
    """Assert that reading and writing select what numpy selects, or that both refuse."""
    mine = items if mine is None else mine
    written, t = A.copy(), Tensor(A.copy()).clone().realize()
    try:
        expected = A[items]
    except IndexError:
        with pytest.raises(IndexError):
            t[mine]
        with pytest.raises(IndexError):
            t[mine] = 0
        return
    np.testing.assert_array_equal(t[mine].numpy(), expected, strict=True)
    value = -np.arange(expected.size, dtype=np.float32).reshape(expected.shape) - 1
    written[items] = value
    t[mine] = value
    np.testing.assert_array_equal(t.numpy(), written)


SEQUENCES: list[Any] = [
    range(2), range(0), range(-1, 1), range(5), (range(2), range(1, 3)), (NOTHING, range(2, -1, -1)), deque([1, 0]),
    array("i", [0, 1]), bytearray(b"\0\1"), memoryview(np.array([0, 1])), "a", b"\0", {0: 1}, {0, 1},
    ([range(2), range(2)],), ([np.array([0, 1]), (1, 0)],), [np.int64(1), np.array(0)], [np.uint64(1)],
    np.array([1, 0], np.uint64), np.array([-1], np.int8), np.array([5], np.uint64), np.array([-(2**63)]),
    np.uint64(1), np.int8(-3), np.array([], np.int8), np.array([]), np.zeros((0, 3), np.int64), ([], 0), ([[], []],),
    [np.bool_(True), np.bool_(False)], [True, 0], [[True, False, True], [False, True, True]],
    [[np.True_, False, True], [False] * 3], [[True] * 2] * 3, [[[True] * 4] * 3] * 2, (1, [[True] * 4] * 3),
    (np.array(True), [[True, False, True], [False, True, True]], 1),
]  # fmt: skip


@pytest.mark.parametrize("items", SEQUENCES, ids=[f"{i}-{type(s).__name__}" for i, s in enumerate(SEQUENCES)])
def test_sequences_and_arrays(items: Any) -> None:
    assert_as_numpy(items)


@pytest.mark.parametrize("given", ["tensor", "array"])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 0), (5, 0), (0, 5), (0,), (0, 3), (2, 3, 0), (2, 5, 0), (0, 0, 0), (2, 0, 4), (2, 0, 9), (0, 3, 4), (3, 0),
        (5,), (0, 0, 0, 0),
    ],
)  # fmt: skip
def test_masks_without_elements(shape: tuple[int, ...], given: str) -> None:
    mask = np.zeros(shape, bool)
    for items in (mask, (NOTHING, mask), (mask, 0), (0, mask)):
        assert_as_numpy(items, as_ours(items) if given == "tensor" else None)


@pytest.mark.parametrize("number", [3, -4, 2**31, -(2**40), 2**63, 2**64 - 1, -(2**63) - 1, 2**70, -(2**70)])
@pytest.mark.parametrize("make", [lambda n: n, lambda n: [n], lambda n: (0, [0, n]), lambda n: ([[n, 0]], NOTHING)])
def test_ints_of_any_size_are_checked_against_the_bounds(number: int, make: Any) -> None:
    t = Tensor(A.copy()).clone().realize()
    with pytest.raises(ShapeError, match=f"index {number} is out of bounds"):
        t[make(number)]
    with pytest.raises(ShapeError, match=f"index {number} is out of bounds"):
        t[make(number)] = 0


def test_lists_are_checked_against_a_symbolic_size() -> None:
    part = Tensor(A.copy().reshape(6, 4))[: Variable("v", 1, 5).bind(3)]
    assert part[[0, 2]].tolist() == A.reshape(6, 4)[[0, 2]].tolist()
    with pytest.raises(ShapeError, match="index 5 is out of bounds for a dim of size"):
        part[[0, 5]]
    with pytest.raises(ShapeError, match=rf"index {2**70} is out of bounds"):
        part[[2**70]]


def test_a_list_of_tensors_is_told_what_to_write() -> None:
    with pytest.raises(IndexError, match=r"Tensor\.stack"):
        Tensor(A)[[Tensor(0), Tensor(1)]]
    first, second = Tensor([0, 1]), Tensor([1, 0])
    np.testing.assert_array_equal(Tensor(A)[[first, second]].numpy(), A[[0, 1], [1, 0]])


DTYPES = [
    dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.int64,
    dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.fp8e4m3, dtypes.fp8e5m2,
]  # fmt: skip


@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_a_written_tensor_has_a_dtype_that_promotes_to_the_targets(target: DType) -> None:
    # Writing an int tensor to a float tensor is a listed program; what would lose its kind of number is refused.
    for given in DTYPES:
        t, value = Tensor.zeros(3, dtype=target).clone().realize(), Tensor([1, 1]).cast(given)
        for items in (slice(1, 3), [0, 2], Tensor([True, False, True])):
            if (Tensor.zeros(1, dtype=target) + value).dtype == target:
                t[items] = value
                assert t[items].tolist() == [1, 1], (given, items)
            else:
                with pytest.raises(RuntimeError, match=f"setitem dtype mismatch: {target} and {given}"):
                    t[items] = value
