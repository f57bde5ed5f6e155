"""Lookups, on both devices: positions that no table has read 0 and write nothing, however wide their dtype is.

A lookup is written as the comparison of an index with an ``arange``, and folded to one load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.helpers_indexed_writes import overwritten
from tinygrad import Context, Tensor
from tinygrad.errors import ShapeError

on_both_devices = pytest.mark.parametrize("device", ["CPU", "PYTHON"])
BEYOND = [
    ("int64", 2**32), ("int64", 2**32 + 1), ("int64", -(2**32)), ("int64", -(2**63)), ("int64", 2**63 - 1),
    ("uint32", 2**31), ("uint32", 2**32 - 1), ("uint64", 2**32), ("uint64", 2**63), ("uint64", 2**64 - 1),
]  # fmt: skip


def stored(values: Any, dtype: str, device: str) -> Tensor:
    """Return numbers that are in memory, so that nothing is known about them while kernels are made."""
    return Tensor(np.array(values, dtype=dtype), device=device).clone().realize()


def written(x: Tensor, index: Any) -> Tensor:
    y = x.clone()
    y[index] = 5.0
    return y


CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "scatter": lambda x, i: x.scatter(0, i.reshape(-1, 1), 5.0),
    "scatter along the last dim": lambda x, i: x.scatter(1, i.reshape(1, -1), 5.0),
    "scatter add": lambda x, i: x.scatter(0, i.reshape(-1, 1), 5.0, reduce="add"),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i.reshape(-1, 1), x[: i.shape[0], :1], "sum"),
    "index_add": lambda x, i: x.index_add(0, i, x[: i.shape[0]]),
    "index_fill": lambda x, i: x.index_fill(0, i, 5.0),
    "index_copy": lambda x, i: x.index_copy(0, i, x[1 : 1 + i.shape[0]]),
    "setitem of rows": lambda x, i: written(x, i),
    "setitem of columns": lambda x, i: written(x, (slice(None), i)),
}


@on_both_devices
@pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_written_at_positions_beyond(name: str, few: bool, device: str) -> None:
    rows = 4 if few else 40
    x = stored(np.arange(rows * rows).reshape(rows, rows) + 1, "float32", device)
    for dtype, number in BEYOND:
        index = stored([number] * (1 if few else 20), dtype, device)
        np.testing.assert_array_equal(CALLS[name](x, index).numpy(), x.numpy(), err_msg=f"{dtype} {number}")


@on_both_devices
@pytest.mark.parametrize("rows", [4, 40])
def test_gradients_of_positions_beyond(rows: int, device: str) -> None:
    x = stored(np.ones((rows, rows)), "float32", device)
    for dtype, number in BEYOND:
        index = stored([number] * (rows // 2), dtype, device)
        for read in (x[index], x[:, index], x.gather(0, index.reshape(-1, 1)), x.gather(1, index.reshape(1, -1))):
            (gradient,) = read.sum().gradient(x)
            assert read.abs().sum().item() == gradient.abs().sum().item() == 0, f"{dtype} {number}"


@on_both_devices
def test_unpooling_leaves_out_positions_beyond(device: str) -> None:
    values = stored([[[[1.0]]]], "float32", device)
    for dtype, number in BEYOND:
        assert values.max_unpool2d(stored([[[[number]]]], dtype, device)).sum().item() == 0, f"{dtype} {number}"


@on_both_devices
@pytest.mark.parametrize("table", ["a number", "arithmetic", "stored", "computed"])
def test_comparisons_with_positions_beyond(table: str, device: str) -> None:
    stored_table = stored([10, 20, 30, 40, 50], "int32", device)
    tables = {"a number": 1, "arithmetic": Tensor.arange(5) + 1, "stored": stored_table, "computed": stored_table * 2}
    for dtype, number in BEYOND:
        hit = stored([number, 1], dtype, device).reshape(-1, 1) == Tensor.arange(5, dtype=dtype)
        found = hit.where(tables[table], 0).sum(1).tolist()
        expected = np.broadcast_to(np.asarray(getattr(tables[table], "numpy", lambda: 1)()), 5)[1]
        assert found == [0, expected], f"{dtype} {number}"


@on_both_devices
def test_no_class_is_beyond(device: str) -> None:
    for dtype, number in BEYOND:
        assert stored([number, 1], dtype, device).one_hot(3).sum(1).tolist() == [0, 1], f"{dtype} {number}"


@on_both_devices
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_an_arange_that_wraps_is_no_row_number(dtype: str, device: str) -> None:
    """``arange(300)`` as int8 holds 43 twice, so the sum has two terms."""
    rows = np.arange(300)
    wrapped = {
        "cast": (lambda n: n.arange(300).cast(dtype), rows.astype(dtype)),
        "cast and back": (lambda n: n.arange(300).cast(dtype).cast("int64"), rows.astype(dtype).astype("int64")),
        "sum": (
            lambda n: n.arange(300).cast(dtype) + n.full((1,), 100, dtype=dtype, buffer=False),
            (rows + 100).astype(dtype),
        ),
    }
    table = stored(rows + 1, "int32", device)
    for name, (ours, theirs) in wrapped.items():
        index = stored([43, 1, -2], "int64", device).cast(ours(Tensor).dtype).realize()
        hit = index.numpy().reshape(-1, 1) == theirs
        found = (index.reshape(-1, 1) == ours(Tensor)).where(table, 0).sum(1)
        np.testing.assert_array_equal(found.numpy(), (hit * (rows + 1)).sum(1), err_msg=name)


@pytest.mark.parametrize(("dtype", "number"), [*BEYOND, ("uint8", 200), ("int8", -128), ("uint64", 4)])
def test_checked_bounds_of_any_dtype(dtype: str, number: int) -> None:
    x, index = stored(np.ones((4, 3)), "float32", "CPU"), stored([1, number], dtype, "CPU")
    with Context(CHECK_BOUNDS=1):
        for call in (lambda: x[index], lambda: x.gather(0, index.reshape(-1, 1)), lambda: written(x, index)):
            with pytest.raises(ShapeError, match=rf"index {number} at position \(1,"):
                call()


TWO = ("CPU", "CPU:1")
ROWS = Tensor.arange(20)
PLACES = ROWS.reshape(20, 1).expand(20, 2)


ON_DEVICES: dict[str, Callable[[Tensor], Tensor]] = {
    "list": lambda x: overwritten(x, [0, 2], 7.0),
    "column": lambda x: overwritten(x, (slice(None), [0]), x[:, [1]] * 3),
    "pairs": lambda x: overwritten(x, ([0, 2, 0], [1, 0, 1]), x[3:6, 0]),
    "range": lambda x: overwritten(x, ROWS, x[20:] * 2),
    "scatter": lambda x: x.scatter(0, PLACES, x[20:]),
    "scatter a number": lambda x: x.scatter(0, PLACES, 2.0),
    **{
        f"scatter_reduce {how} {whether}": lambda x, how=how, whether=whether: x.scatter_reduce(
            0, PLACES, x[20:], how, include_self=whether
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for whether in (True, False)
    },
}


@pytest.mark.parametrize("device", ["PYTHON", TWO], ids=str)
@pytest.mark.parametrize("name", ON_DEVICES)
def test_positions_that_are_nowhere(name: str, device: Any) -> None:
    """Lists and ranges have no device: what counts where they lead is where the tensor is."""
    data = np.cos(np.arange(80, dtype=np.float32)).reshape(40, 2)
    found = []
    for where in ("CPU", device):
        x = Tensor(data, device="CPU").shard(where, 0) if where == TWO else Tensor(data, device=where).clone()
        y = ON_DEVICES[name](x.realize())
        gradient = y.square().sum().gradient(x)[0].numpy()  # before y is read: its graph is not kept on two devices
        found.append([y.numpy(), gradient])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
