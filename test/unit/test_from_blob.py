"""Tensors over memory that somebody else owns."""

from __future__ import annotations

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.device import Device


@pytest.mark.parametrize("device", ["CPU", "PYTHON", "CPU:1"])
def test_the_memory_is_shared(device: str) -> None:
    array = np.arange(6, dtype=np.float32)
    t = Tensor.from_blob(array.ctypes.data, (2, 3), dtype=dtypes.float32, device=device)
    assert t.device == Device.canonicalize(device)
    array[0] = 42
    assert t.tolist() == [[42.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert (t[1:] + 1).tolist() == [[4.0, 5.0, 6.0]]
    t.assign(t + 1).realize()
    assert array.tolist() == [43.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if d not in (dtypes.bfloat16, *dtypes.fp8s)], ids=str)
def test_dtypes(dtype) -> None:
    array = np.array([0, 1, 1, 0], dtype=dtype.fmt)
    assert Tensor.from_blob(array.ctypes.data, (2, 2), dtype=dtype).tolist() == array.reshape(2, 2).tolist()


def test_shapes() -> None:
    array = np.arange(4, dtype=np.float32)
    assert Tensor.from_blob(array.ctypes.data, (), dtype="float32").item() == 0.0
    assert Tensor.from_blob(array.ctypes.data, (np.int64(2), 2)).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert Tensor.from_blob(0, (0, 3)).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, (3,)), ValueError, "there is no memory of 12 bytes at address 0"),
        ((-8, (3,)), ValueError, "there is no memory of 12 bytes at address -8"),
        ((2**64 - 8, (3,)), ValueError, "there is no memory of 12 bytes"),
        ((2**70, (3,)), ValueError, "there is no memory of 12 bytes"),
        ((4097, (3,)), ValueError, "address 0x1001 is no multiple of 4, the size of dtypes.float"),
        ((4096, (-1,)), ValueError, r"shape is \(-1,\), expected sizes >= 0"),
        ((4096, (2**62, 8)), ValueError, "more than there can be"),
        ((4096, 3), TypeError, r"shape is 3 of type int, expected tuple\[int, ...\]"),
        ((1.5, (3,)), TypeError, "ptr is 1.5 of type float, expected int"),
        ((None, (3,)), TypeError, "ptr is None, expected int"),
        ((4096, (3,), dtypes.weakint), TypeError, "has no size in memory; give a concrete dtype"),
        ((4096, (3,), dtypes.void), TypeError, "has no size in memory"),
        ((4096, (3,), None, "NULL"), RuntimeError, "NULL cannot use memory of this process; wrap it on CPU"),
        ((4096, (3,), None, "NPY"), RuntimeError, "NPY cannot use memory of this process"),
        ((4096, (3,), None, "DISK:/tmp/absent"), RuntimeError, "DISK:/tmp/absent cannot use memory of this process"),
        ((4096, (4,), None, ("CPU:0", "CPU:1")), AssertionError, "one device expected"),
    ],
)
def test_what_can_be_no_such_memory_is_never_touched(arguments: tuple, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        Tensor.from_blob(*arguments)
