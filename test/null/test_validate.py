"""Proofs of accesses with z3."""

from __future__ import annotations

import pytest

from tinygrad.dtype import dtypes
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import UOp

z3 = pytest.importorskip("z3")

from tinygrad.uop.validate import uops_to_z3, validate_index, validate_kernel  # noqa: E402


def access(idx: UOp, gate: UOp | None = None, size: int = 16) -> UOp:
    buf = UOp.placeholder((size,), dtypes.float32, 0)
    return UOp(Ops.INDEX, None, (buf, idx) if gate is None else (buf, idx, gate))


r = UOp.range(8, 0, AxisType.LOOP)
s = UOp.range(4, 1, AxisType.LOOP)


def test_inside_and_outside() -> None:
    assert validate_index(access(r * 2)) is None
    assert "leaves [0, 16)" in str(validate_index(access(r * 2 + s)))
    assert validate_index(access(r * 2 + s, r * 2 + s < 16)) is None
    assert validate_index(access(r - 1, UOp.const(0) < r)) is None
    assert validate_index(access(r - 1)) is not None


def test_divisions_round_as_in_python() -> None:
    v = UOp.variable("v", -7, 7)
    assert validate_index(access(v // 3 + 3, size=6)) is None
    assert validate_index(access(v % 3, size=3)) is None
    assert validate_index(access(UOp(Ops.CMOD, None, (v, UOp.const(3))) + 2, size=5)) is None
    assert validate_index(access(UOp(Ops.CDIV, None, (v, UOp.const(3))) + 2, size=5)) is None


def test_loaded_values_are_unknown_within_their_dtype() -> None:
    table = UOp.placeholder((8,), dtypes.uint8, 1)
    loaded = UOp(Ops.CAST, None, (UOp(Ops.INDEX, None, (table, r)),), dtypes.weakint)
    assert validate_index(access(loaded, size=256)) is None
    assert validate_index(access(loaded, size=255)) is not None


def test_kernel() -> None:
    with pytest.raises(RuntimeError, match="access out of bounds"):
        validate_kernel(UOp.sink(access(r * 3)))
    solver = z3.Solver()
    assert len(uops_to_z3(solver, r, r + 1)) == 2
