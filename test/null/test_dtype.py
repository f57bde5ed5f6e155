"""Data types: names, limits, promotion, and the values that each of them holds."""

from __future__ import annotations

import copy
import math
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinygrad import constants
from tinygrad.dtype import (
    DTYPES_DICT,
    INVERSE_DTYPES_DICT,
    AddrSpace,
    ConstFloat,
    DType,
    Invalid,
    InvalidType,
    _from_np_dtype,
    _from_torch_dtype,
    _to_np_dtype,
    _to_torch_dtype,
    bitcast,
    can_lossless_cast,
    dtypes,
    float_to_bf16,
    float_to_fp8,
    fp8_to_float,
    from_storage_scalar,
    least_upper_dtype,
    least_upper_float,
    storage_fmt_for_dtype,
    strong_dtype,
    sum_acc_dtype,
    to_dtype,
    to_storage_scalar,
    truncate,
    weak_dtype,
)
from tinygrad.helpers import Context
from tinygrad.rounding import from_storage_array, to_storage_array, truncate_array

# The promotion table of the interface, symmetric. A signed integer with uint64 stands as "wf" there; the project
# promotes it to float64 as numpy does.
PROMOTION = """
. b1 wi i8 u8 i16 u16 i32 u32 i64 u64 wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
b1 b1 wi i8 u8 i16 u16 i32 u32 i64 u64 wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
wi wi wi i8 u8 i16 u16 i32 u32 i64 u64 wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
i8 i8 i8 i8 i16 i16 i32 i32 i64 i64 wf wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
u8 u8 u8 i16 u8 i16 u16 i32 u32 i64 u64 wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
i16 i16 i16 i16 i16 i16 i32 i32 i64 i64 wf wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
u16 u16 u16 i32 u16 i32 u16 i32 u32 i64 u64 wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
i32 i32 i32 i32 i32 i32 i32 i32 i64 i64 wf wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
u32 u32 u32 i64 u32 i64 u32 i64 u32 i64 u64 wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 wf wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
u64 u64 u64 wf u64 wf u64 wf u64 wf u64 wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
wf wf wf wf wf wf wf wf wf wf wf wf e4m3 e5m2 e4fz e5fz f16 bf16 f32 f64
e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 f16 f16 f16 f16 bf16 f32 f64
e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 f16 e5m2 f16 f16 f16 bf16 f32 f64
e4fz e4fz e4fz e4fz e4fz e4fz e4fz e4fz e4fz e4fz e4fz e4fz f16 f16 e4fz f16 f16 bf16 f32 f64
e5fz e5fz e5fz e5fz e5fz e5fz e5fz e5fz e5fz e5fz e5fz e5fz f16 f16 f16 e5fz f16 bf16 f32 f64
f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f32 f64
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""

SHORT_NAMES = {
    "b1": "bool", "wi": "weakint", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32",
    "u32": "uint32", "i64": "int64", "u64": "uint64", "wf": "weakfloat", "e4m3": "fp8e4m3", "e5m2": "fp8e5m2",
    "e4fz": "fp8e4m3fnuz", "e5fz": "fp8e5m2fnuz", "f16": "float16", "bf16": "bfloat16", "f32": "float32",
    "f64": "float64",
}  # fmt: skip

floats64 = st.floats(width=64)
floats32 = st.floats(width=32)
STORED_FLOATS = [*dtypes.fp8s, dtypes.float16, dtypes.bfloat16, dtypes.float32]


def same(a: float, b: float) -> bool:
    """Equal values with equal signs; NaN equals NaN."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1.0, a) == math.copysign(1.0, b))


class TestDType:
    @pytest.mark.parametrize(
        ("name", "alias", "itemsize", "fmt", "priority"),
        [
            ("bool", "bool", 1, "?", 0), ("int8", "char", 1, "b", 1), ("uint8", "uchar", 1, "B", 2),
            ("int16", "short", 2, "h", 3), ("uint16", "ushort", 2, "H", 4), ("int32", "int", 4, "i", 5),
            ("uint32", "uint", 4, "I", 6), ("int64", "long", 8, "q", 7), ("uint64", "ulong", 8, "Q", 8),
            ("fp8e4m3", "fp8e4m3", 1, None, 10), ("fp8e5m2", "fp8e5m2", 1, None, 11),
            ("fp8e4m3fnuz", "fp8e4m3fnuz", 1, None, 10), ("fp8e5m2fnuz", "fp8e5m2fnuz", 1, None, 11),
            ("float16", "half", 2, "e", 12), ("bfloat16", "bfloat16", 2, None, 13), ("float32", "float", 4, "f", 14),
            ("float64", "double", 8, "d", 15), ("weakint", "weakint", 100, None, 0),
            ("weakfloat", "weakfloat", 100, None, 9), ("void", "void", 0, None, -1),
        ],
    )  # fmt: skip
    def test_fields(self, name: str, alias: str, itemsize: int, fmt: str | None, priority: int) -> None:
        dtype = getattr(dtypes, name)
        assert dtype is getattr(dtypes, alias) is DTYPES_DICT[name] is DTYPES_DICT[alias]
        assert (dtype.itemsize, dtype.fmt, dtype.priority) == (itemsize, fmt, priority)
        assert repr(dtype) == f"dtypes.{alias}"
        assert INVERSE_DTYPES_DICT[dtype.name] == alias
        assert dtype.full_name == name

    @pytest.mark.parametrize("dtype", list(dtypes.ints))
    def test_integer_limits_are_those_of_numpy(self, dtype: DType) -> None:
        info = np.iinfo(_to_np_dtype(dtype))
        assert (dtype.min, dtype.max) == (info.min, info.max)

    def test_other_limits(self) -> None:
        assert dtypes.bool.min is False
        assert dtypes.bool.max is True
        assert all((d.min, d.max) == (-math.inf, math.inf) for d in (*dtypes.floats, dtypes.weakfloat))
        assert dtypes.weakint.min < dtypes.int64.min
        assert dtypes.weakint.max > dtypes.uint64.max

    def test_instances_are_unique(self) -> None:
        for dtype in dict.fromkeys(DTYPES_DICT.values()):
            assert pickle.loads(pickle.dumps(dtype)) is dtype
            assert copy.deepcopy(dtype) is copy.copy(dtype) is dtype
        assert len(set(DTYPES_DICT.values())) == 20

    def test_order(self) -> None:
        assert sorted([dtypes.float32, dtypes.bool, dtypes.int8, dtypes.float64, dtypes.uint8]) == [
            dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.float32, dtypes.float64,
        ]  # fmt: skip
        assert max(dtypes.half, dtypes.bfloat16) is dtypes.bfloat16
        assert dtypes.fp8e4m3 != dtypes.fp8e4m3fnuz
        assert (dtypes.fp8e4m3 < dtypes.fp8e4m3fnuz) != (dtypes.fp8e4m3fnuz < dtypes.fp8e4m3)

    def test_to_dtype(self) -> None:
        assert to_dtype("FLOAT32") is to_dtype("float") is to_dtype(dtypes.float) is dtypes.float32
        with pytest.raises(AttributeError, match="float33"):
            to_dtype("float33")
        with pytest.raises(AttributeError, match="not a dtype"):
            to_dtype(3)  # type: ignore[arg-type]

    def test_groups(self) -> None:
        assert set(dtypes.all) == set(DTYPES_DICT.values()) - {*dtypes.weaks, dtypes.void}
        assert [d for d in dtypes.all if dtypes.is_int(d)] == list(dtypes.ints)
        assert [d for d in dtypes.all if dtypes.is_float(d)] == list(dtypes.floats)
        assert [d for d in dtypes.all if dtypes.is_unsigned(d)] == list(dtypes.uints)
        assert [d for d in dtypes.all if dtypes.is_bool(d)] == [dtypes.bool]
        assert dtypes.is_int(dtypes.weakint)
        assert dtypes.is_float(dtypes.weakfloat)

    def test_finfo(self) -> None:
        assert dtypes.finfo(dtypes.float16) == (5, 10)
        assert dtypes.finfo(dtypes.fp8e5m2fnuz) == (5, 2)
        for dtype in (dtypes.float16, dtypes.float32, dtypes.float64):
            info = np.finfo(_to_np_dtype(dtype))
            assert dtypes.finfo(dtype) == (info.nexp, info.nmant)
        with pytest.raises(ValueError, match="not a floating point"):
            dtypes.finfo(dtypes.int32)
        with pytest.raises(KeyError):
            dtypes.finfo(dtypes.weakfloat)

    def test_defaults(self) -> None:
        with Context(DEFAULT_FLOAT="float32", DEFAULT_INT="int32"):
            assert (dtypes.default_float, dtypes.default_int) == (dtypes.float32, dtypes.int32)
            with Context(DEFAULT_FLOAT="HALF", DEFAULT_INT=dtypes.int64):
                assert (dtypes.default_float, dtypes.default_int) == (dtypes.half, dtypes.int64)
                assert dtypes.from_py([1.0]) is dtypes.half
            for name in ("default_float", "default_int"):
                with pytest.raises(AttributeError):
                    setattr(dtypes, name, dtypes.half)

    @pytest.mark.parametrize(
        ("variable", "name"), [("DEFAULT_INT", "float32"), ("DEFAULT_INT", "bool"), ("DEFAULT_FLOAT", "int32"),
                               ("DEFAULT_FLOAT", "weakfloat"), ("DEFAULT_INT", "void")],
    )  # fmt: skip
    def test_a_default_of_another_kind_is_refused(self, variable: str, name: str) -> None:
        message = f"{variable}: {name} is none of .*(long|double)"
        with Context(**{variable: name}), pytest.raises(ValueError, match=message):
            getattr(dtypes, variable.lower())


class TestFromPy:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (True, "bool"), (1, "weakint"), (1.0, "weakfloat"), (-(2**31), "weakint"), (2**31, "int64"),
            (2**40, "int64"), (2**63, "uint64"), ([], "float32"), ([True], "bool"), ([True, 2], "int32"),
            ([1, 2.0], "float32"), ([1, 2**40], "int64"), ([2**64 - 1, 0], "uint64"), ([[1], [2.5]], "float32"),
            ((True, False), "bool"), ([2**70, 1.0], "float32"), (Invalid, "bool"), (np.int8(3), "int8"),
            (np.float64(3), "float64"), ([np.float32(1)], "float32"), ([np.float64(1)], "float64"),
        ],
    )  # fmt: skip
    def test_dtype(self, value: object, expected: str) -> None:
        assert dtypes.from_py(value) is to_dtype(expected)

    @pytest.mark.parametrize("value", [2**64, -(2**63) - 1, [2**63, -1]])
    def test_too_large(self, value: object) -> None:
        with pytest.raises(OverflowError, match="fit neither"):
            dtypes.from_py(value)

    @pytest.mark.parametrize("value", ["a", None, {}, [None], 1j])
    def test_other_types(self, value: object) -> None:
        with pytest.raises(RuntimeError, match="from_py"):
            dtypes.from_py(value)


class TestPromotion:
    def test_whole_table(self) -> None:
        header, *rows = [line.split() for line in PROMOTION.strip().splitlines()]
        assert len(rows) == 19
        for row in rows:
            for column, expected in zip(header[1:], row[1:], strict=True):
                a, b, want = (to_dtype(SHORT_NAMES[name]) for name in (row[0], column, expected))
                if want is dtypes.weakfloat and dtypes.weakfloat not in (a, b):
                    assert dtypes.uint64 in (a, b)
                    want = dtypes.float64
                assert least_upper_dtype(a, b) is want, (a, b)

    @pytest.mark.parametrize("a", [dtypes.bool, *dtypes.ints])
    @pytest.mark.parametrize("b", [dtypes.bool, *dtypes.ints])
    def test_integers_promote_as_numpy(self, a: DType, b: DType) -> None:
        assert _to_np_dtype(least_upper_dtype(a, b)) is np.promote_types(_to_np_dtype(a), _to_np_dtype(b)).type

    def test_several(self) -> None:
        assert least_upper_dtype(dtypes.int8) is dtypes.int8
        assert least_upper_dtype(dtypes.int8, dtypes.uint8, dtypes.uint16) is dtypes.int32
        assert least_upper_dtype(dtypes.int64, dtypes.uint64, dtypes.half) is dtypes.half
        with pytest.raises(KeyError):
            least_upper_dtype(dtypes.void, dtypes.int8)

    def test_derived(self) -> None:
        assert least_upper_float(dtypes.half) is dtypes.half
        assert least_upper_float(dtypes.weakint) is dtypes.weakfloat
        assert least_upper_float(dtypes.int64) is dtypes.float32
        assert strong_dtype(dtypes.weakint) is dtypes.int32
        assert strong_dtype(dtypes.weakfloat) is dtypes.float32
        assert strong_dtype(dtypes.half) is dtypes.half
        assert [weak_dtype(d) for d in (dtypes.bool, dtypes.int8, dtypes.half)] == [
            dtypes.bool, dtypes.weakint, dtypes.weakfloat,
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("dtype", "expected"),
        [("bool", "int32"), ("uint8", "uint32"), ("int16", "int32"), ("int64", "int64"), ("uint64", "uint64"),
         ("half", "float32"), ("bfloat16", "float32"), ("double", "double"), ("fp8e4m3", "float32")],
    )  # fmt: skip
    def test_sum_acc_dtype(self, dtype: str, expected: str) -> None:
        assert sum_acc_dtype(to_dtype(dtype)) is to_dtype(expected)

    def test_lossless_casts_keep_the_limits(self) -> None:
        for source in dtypes.ints:
            for target in dtypes.all:
                if can_lossless_cast(source, target):
                    for value in (source.min, source.max, source.max - 1):
                        assert truncate[target](value) == value, (source, target)
        assert can_lossless_cast(dtypes.int64, dtypes.weakint)
        assert not can_lossless_cast(dtypes.int64, dtypes.float64)
        assert not can_lossless_cast(dtypes.int32, dtypes.float32)
        assert not can_lossless_cast(dtypes.half, dtypes.bfloat16)
        assert can_lossless_cast(dtypes.fp8e5m2, dtypes.half)
        assert all(can_lossless_cast(d, dtypes.float64) for d in dtypes.floats)
        assert all(can_lossless_cast(dtypes.bool, d) for d in dtypes.all)


class TestConstants:
    @pytest.mark.parametrize("value", [math.nan, 0.0, -0.0, 1.5, math.inf])
    def test_const_float_needs_no_module(self, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Python empties modules at exit, and looks nodes up that die after that."""
        same, other, number = ConstFloat(value), ConstFloat(3.0), hash(ConstFloat(value))
        for name in [name for name in vars(constants) if not name.startswith("__")]:
            monkeypatch.setattr(constants, name, None)
        assert hash(same) == number
        assert {same: 1}[type(same)(value)] == 1
        assert same != other

    def test_const_float(self) -> None:
        assert ConstFloat(math.nan) == ConstFloat(math.nan)
        assert ConstFloat(math.nan) == math.nan
        assert hash(ConstFloat(math.nan)) == hash(ConstFloat(float("nan")))
        assert ConstFloat(0.0) != ConstFloat(-0.0)
        assert hash(ConstFloat(0.0)) != hash(ConstFloat(-0.0))
        assert len({ConstFloat(x) for x in (0.0, -0.0, math.nan, math.nan, 1.0, 1.0)}) == 4
        assert ConstFloat(-0.0) == 0
        assert ConstFloat(1.5) == 1.5
        assert ConstFloat(1.5) != 2
        assert ConstFloat(1.5) != "1.5"
        assert repr(ConstFloat(-0.0)) == "-0.0"
        copied = pickle.loads(pickle.dumps(ConstFloat(-0.0)))
        assert type(copied) is ConstFloat
        assert copied.is_negative_zero()

    def test_invalid(self) -> None:
        assert pickle.loads(pickle.dumps(Invalid)) is copy.deepcopy(Invalid) is InvalidType() is Invalid
        assert Invalid != 0
        assert repr(Invalid) == "Invalid"

    def test_const(self) -> None:
        assert dtypes.int8.const(300) == 44
        assert dtypes.uint8.const(-1) == 255
        assert dtypes.uint64.const(-1) == 2**64 - 1
        assert dtypes.int32.const(3.9) == 3
        assert type(dtypes.float32.const(1)) is ConstFloat
        assert dtypes.bool.const(7) is True
        assert dtypes.weakint.const(2**70) == 2**70
        assert dtypes.float32.const((1, Invalid)) == (1.0, Invalid)
        with pytest.raises(TypeError, match="void"):
            dtypes.void.const(0)

    def test_addr_space(self) -> None:
        assert sorted(AddrSpace) == [AddrSpace.GLOBAL, AddrSpace.LOCAL, AddrSpace.REG, AddrSpace.ALU]
        assert AddrSpace.GLOBAL != 1
        assert pickle.loads(pickle.dumps(AddrSpace.REG)) is AddrSpace.REG


class TestTruncate:
    @pytest.mark.parametrize("dtype", dtypes.ints)
    @given(value=st.integers(-(2**70), 2**70))
    def test_integers_wrap(self, dtype: DType, value: int) -> None:
        wrapped = truncate[dtype](value)
        assert dtype.min <= wrapped <= dtype.max
        assert (wrapped - value) % 2**dtype.bitsize == 0

    @pytest.mark.parametrize("dtype", dtypes.ints)
    @given(value=st.integers(-(2**63), 2**63 - 1))
    def test_integers_wrap_as_numpy(self, dtype: DType, value: int) -> None:
        assert truncate[dtype](value) == np.int64(value).astype(_to_np_dtype(dtype))

    @given(value=floats64)
    def test_half_and_float32_round_as_numpy(self, value: float) -> None:
        with np.errstate(over="ignore"):
            assert same(truncate[dtypes.float32](value), float(np.float32(value)))
            assert same(truncate[dtypes.float16](value), float(np.float16(value)))

    @pytest.mark.parametrize(
        ("dtype", "value", "expected"),
        [
            ("float16", 65519.9, 65504.0), ("float16", 65520.0, math.inf), ("float16", -1e9, -math.inf),
            ("float32", 3.4028235677973366e38, math.inf), ("float32", 3.4028235677973362e38, 3.4028234663852886e38),
            ("bfloat16", 3.39e38, 3.3895313892515355e38), ("bfloat16", 3.4e38, math.inf), ("bfloat16", 1.00390625, 1.0),
            ("fp8e4m3", 1e9, 448.0), ("fp8e4m3", math.inf, math.nan), ("fp8e5m2", 1e9, 57344.0),
            ("fp8e5m2", -math.inf, -math.inf), ("fp8e4m3fnuz", 1e9, 240.0), ("fp8e5m2fnuz", -1e9, -57344.0),
            ("fp8e4m3fnuz", -0.0, 0.0), ("fp8e4m3", -0.0, -0.0), ("fp8e5m2fnuz", math.inf, math.nan),
            ("int8", 300.7, 44), ("int8", -1.5, -1), ("uint8", -1.0, 255), ("int32", 3e9, -(2**31)), ("int8", 3e9, 0),
            ("int32", math.nan, -(2**31)), ("uint32", 3e9, 3_000_000_000), ("uint32", -1.0, 2**32 - 1),
            ("int64", 1e30, -(2**63)), ("uint64", 1e19, 10**19), ("uint64", -1.0, 2**64 - 1), ("uint64", 1e30, 2**63),
            ("bool", 0.5, True), ("bool", math.nan, True),
        ],
    )  # fmt: skip
    def test_examples(self, dtype: str, value: float, expected: float) -> None:
        assert same(truncate[to_dtype(dtype)](value), expected)

    @given(value=st.integers(-(2**63), 2**63 - 1))
    def test_large_integers_round_once(self, value: int) -> None:
        assert truncate[dtypes.float32](value) == np.int64(value).astype(np.float32)
        assert truncate[dtypes.float64](value) == np.int64(value).astype(np.float64)

    def test_integers_beyond_every_float(self) -> None:
        for dtype in (dtypes.float16, dtypes.float32, dtypes.bfloat16):
            assert truncate[dtype](10**400) == math.inf
            assert truncate[dtype](-(10**400)) == -math.inf

    @given(value=floats32)
    def test_bfloat16_as_torch(self, value: float) -> None:
        torch = pytest.importorskip("torch")
        assert same(float_to_bf16(value), torch.tensor(value, dtype=torch.float32).bfloat16().item())

    @pytest.mark.parametrize("dtype", STORED_FLOATS)
    @given(value=floats64)
    def test_result_is_the_nearest_value(self, dtype: DType, value: float) -> None:
        rounded = truncate[dtype](value)
        assert same(truncate[dtype](rounded), rounded) or (math.isnan(rounded))
        if math.isfinite(value) and math.isfinite(rounded) and dtype in dtypes.fp8s:
            values = [x for x in (fp8_to_float(b, dtype) for b in range(256)) if math.isfinite(x)]
            assert abs(rounded - value) == min(abs(x - value) for x in values)


class TestFp8:
    @pytest.mark.parametrize("dtype", dtypes.fp8s)
    def test_every_byte_round_trips(self, dtype: DType) -> None:
        for byte in range(256):
            value = fp8_to_float(byte, dtype)
            if not math.isnan(value):
                assert float_to_fp8(value, dtype) == byte
            else:
                assert math.isnan(fp8_to_float(float_to_fp8(value, dtype), dtype))
                assert (float_to_fp8(value, dtype) ^ byte) < 0x80  # a NaN keeps its sign

    @pytest.mark.parametrize(
        ("dtype", "name"),
        [(dtypes.fp8e4m3, "float8_e4m3fn"), (dtypes.fp8e5m2, "float8_e5m2"), (dtypes.fp8e4m3fnuz, "float8_e4m3fnuz"),
         (dtypes.fp8e5m2fnuz, "float8_e5m2fnuz")],
    )  # fmt: skip
    def test_as_torch(self, dtype: DType, name: str) -> None:
        torch = pytest.importorskip("torch")
        kind = getattr(torch, name)
        decoded = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(kind).to(torch.float32).tolist()
        assert all(same(fp8_to_float(byte, dtype), value) for byte, value in enumerate(decoded))
        # Values between the largest number and infinity are left out: torch makes NaN of them, here they saturate.
        largest = max(x for x in decoded if math.isfinite(x))
        values = np.random.default_rng(0).uniform(-largest, largest, 2000).astype(np.float32)
        values = np.concatenate([values, values / 4096, values / 2**20, [0.0, 1.0, largest, -largest]])
        values = values.astype(np.float32)
        expected = torch.tensor(values).to(kind).view(torch.uint8).tolist()
        assert [float_to_fp8(float(x), dtype) for x in values] == expected

    def test_special_bytes(self) -> None:
        assert [float_to_fp8(x, dtypes.fp8e4m3) for x in (math.inf, -math.inf, 448.0, -1e9)] == [0x7F, 0xFF, 0x7E, 0xFE]
        assert [float_to_fp8(x, dtypes.fp8e5m2) for x in (math.inf, -math.inf, 1e9)] == [0x7C, 0xFC, 0x7B]
        for dtype in dtypes.fp8_fnuz:
            assert [float_to_fp8(x, dtype) for x in (math.inf, math.nan, -0.0)] == [0x80, 0x80, 0]

    def test_other_dtypes_are_refused(self) -> None:
        with pytest.raises(AssertionError, match="not an fp8"):
            float_to_fp8(1.0, dtypes.half)
        with pytest.raises(AssertionError, match="not an fp8"):
            fp8_to_float(1, dtypes.int8)


class TestStorage:
    @pytest.mark.parametrize("dtype", STORED_FLOATS)
    @given(value=floats64)
    def test_scalar_round_trip(self, dtype: DType, value: float) -> None:
        stored = to_storage_scalar(value, dtype)
        assert same(from_storage_scalar(stored, dtype), truncate[dtype](value))

    def test_formats(self) -> None:
        assert storage_fmt_for_dtype(dtypes.bfloat16) == "H"
        assert storage_fmt_for_dtype(dtypes.fp8e5m2) == "B"
        assert storage_fmt_for_dtype(dtypes.float32) == "f"
        assert storage_fmt_for_dtype(dtypes.weakint) is None

    def test_bitcast(self) -> None:
        assert bitcast(1.0, dtypes.float32, dtypes.int32) == 0x3F800000
        assert bitcast(-1, dtypes.int32, dtypes.uint32) == 2**32 - 1
        assert bitcast(1.0, dtypes.bfloat16, dtypes.uint16) == 0x3F80
        assert bitcast(0x3C, dtypes.uint8, dtypes.fp8e5m2) == 1.0
        assert bitcast(0x7C00, dtypes.uint16, dtypes.half) == math.inf
        with pytest.raises(AssertionError, match="must have one size"):
            bitcast(1.0, dtypes.float32, dtypes.int64)

    @pytest.mark.parametrize("dtype", dtypes.all)
    def test_arrays_agree_with_scalars(self, dtype: DType) -> None:
        rng = np.random.default_rng(1)
        values = np.concatenate(
            [
                rng.normal(0, 10.0**exponent, 40)
                for exponent in (-46, -40, -20, -8, -5, -3, 0, 2, 4, 9, 10, 19, 20, 38, 40)
            ]
            + [[0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**31, 2.0**63, -(2.0**63), 2.0**64, 255.5, 464.0, 65520.0]]
        )
        with np.errstate(over="ignore", under="ignore"):
            narrow = values.astype(np.float32)
        for array in (values, narrow):
            got = truncate_array(array, dtype)
            assert got.dtype == _to_np_dtype(dtype)
            for x, y in zip(array.tolist(), got.tolist(), strict=True):
                assert same(truncate[dtype](x), y), (x, y)
        integers = np.array([0, 1, -1, 127, 128, 255, 256, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63)])
        for x, y in zip(integers.tolist(), truncate_array(integers, dtype).tolist(), strict=True):
            assert truncate[dtype](x) == y, (x, y)

    @given(st.lists(floats32, min_size=1, max_size=20))
    def test_bfloat16_array(self, values: list[float]) -> None:
        stored = to_storage_array(np.array(values, dtype=np.float32), dtypes.bfloat16)
        assert stored.dtype == np.uint16
        got = from_storage_array(stored, dtypes.bfloat16).tolist()
        assert all(same(float_to_bf16(x), y) for x, y in zip(values, got, strict=True))


class TestOtherPackages:
    @pytest.mark.parametrize("dtype", [d for d in dtypes.all if d.fmt])
    def test_numpy(self, dtype: DType) -> None:
        assert _from_np_dtype(np.dtype(_to_np_dtype(dtype))) is dtype

    def test_numpy_without_counterpart(self) -> None:
        assert _to_np_dtype(dtypes.bfloat16) is np.float32
        assert _to_np_dtype(dtypes.fp8e4m3) is np.float32
        assert _to_np_dtype(dtypes.weakint) is None
        with pytest.raises(KeyError):
            _from_np_dtype(np.dtype(np.complex64))

    def test_torch(self) -> None:
        torch = pytest.importorskip("torch")
        for dtype in dtypes.all:
            if dtype in dtypes.fp8s:
                assert _to_torch_dtype(dtype) is torch.uint8
            else:
                assert _from_torch_dtype(_to_torch_dtype(dtype)) is dtype
        assert _to_torch_dtype(dtypes.weakfloat) is torch.float32
        assert _from_torch_dtype(torch.float8_e4m3fn) is dtypes.fp8e4m3
        with pytest.raises(KeyError):
            _from_torch_dtype(torch.complex64)


def test_interning_is_safe_across_threads() -> None:
    made: list[DType] = []
    threads = [threading.Thread(target=lambda: made.append(DType(99, 7, "probe", None))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(map(id, made))) == 1
