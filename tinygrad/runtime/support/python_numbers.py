"""Arithmetic of every dtype on Python numbers: the functions that the PYTHON device's generated code calls.

In:   Python numbers that are values of a dtype already (ints in range, floats that the dtype can hold, bools).
Out:  ``NAMESPACE``: name -> function, each returning a value of its dtype, rounded or wrapped as IEEE 754 and C say.
Why:  this file is the executable definition of the IR's arithmetic; a device that disagrees with it is wrong.

A float32 operation is computed in double precision and rounded once: for +, -, *, / and sqrt that gives the correctly
rounded float32 result, since 53 >= 2 * 24 + 2 (Figueroa, "When is double rounding innocuous?", 1995). float16, bfloat16
and fp8 are narrower still.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from tinygrad.dtype import DType, bitcast, dtypes, float_to_fp8, fp8_to_float, truncate

_F32, _F16, _U32 = struct.Struct("<f"), struct.Struct("<e"), struct.Struct("<I")


# ---- rounding ------------------------------------------------------------------------------------------------------


def round_f32(x: float, _c_float: Any = ctypes.c_float) -> float:
    """Round to float32 as C does: nearest even, overflow to infinity. The fastest way that Python has."""
    rounded: float = _c_float(x).value
    return rounded


def round_f16(x: float) -> float:
    """Round to float16."""
    try:
        rounded: float = _F16.unpack(_F16.pack(x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)
    return rounded


# The truncation functions of the dtype module are exact but general; the frequent ones have a fast version above.
ROUND: Final[dict[DType, Callable[[float], float]]] = {
    dtypes.float64: float,
    dtypes.float32: round_f32,
    dtypes.float16: round_f16,
    **{dtype: truncate[dtype] for dtype in (dtypes.bfloat16, *dtypes.fp8s)},
}


def round_int_to_f32(x: int) -> float:
    """Round an integer to float32 once; through a double it could be rounded twice."""
    size = abs(x)
    if size >> 53:
        # Keep 53 bits and make the last one sticky: a double holds all that decides the rounding to 24 bits.
        shift = size.bit_length() - 53
        kept, lost = size >> shift, size & ((1 << shift) - 1)
        size = (kept | (lost != 0)) << shift
    return math.copysign(round_f32(float(size)), x)


def _float_to_int(low: int, high: int, bits: int, signed: bool) -> Callable[[float], int]:
    mask, half = (1 << bits) - 1, (1 << (bits - 1)) if signed else 0

    def convert(x: float) -> int:
        try:
            whole = int(x)
        except (ValueError, OverflowError):  # NaN, infinities
            whole = low
        if not low <= whole <= high:
            whole = low
        return ((whole + half) & mask) - half

    return convert


def float_to_int(dtype: DType) -> Callable[[float], int]:
    """Return the conversion from floats by the rule of ``tinygrad.dtype``: truncate, then wrap."""
    if dtype is dtypes.uint64:
        return _float_to_int(-(1 << 63), (1 << 64) - 1, 64, False)
    wide = 64 if dtype.bitsize > 32 or dtype is dtypes.uint32 else 32
    return _float_to_int(-(1 << (wide - 1)), (1 << (wide - 1)) - 1, dtype.bitsize, dtype.kind == "int")


# ---- arithmetic where Python raises instead of giving a value ------------------------------------------------------


def divide(a: float, b: float) -> float:
    """IEEE quotient."""
    try:
        return a / b
    except ZeroDivisionError:
        if a == 0.0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)


def square_root(x: float) -> float:
    """IEEE square root: NaN below zero, -0.0 for -0.0."""
    return math.sqrt(x) if x >= 0.0 else x if x == 0.0 else math.nan


def trunc(x: float) -> float:
    """Round toward zero, keeping the sign of zero, infinities and NaN."""
    return math.copysign(float(int(x)), x) if -9.1e18 < x < 9.1e18 else x


def exp2(x: float) -> float:
    """2 ** x."""
    try:
        return math.pow(2.0, x)
    except OverflowError:
        return math.inf


def log2(x: float) -> float:
    """Logarithm; -inf at zero, NaN below."""
    return math.log2(x) if x > 0.0 else -math.inf if x == 0.0 else math.nan


def sin(x: float) -> float:
    """Sine; NaN at infinities."""
    return math.sin(x) if math.isfinite(x) else math.nan


def cdiv(a: int, b: int) -> int:
    """Integer quotient toward zero; 0 for a divisor of 0."""
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def cmod(a: int, b: int) -> int:
    """Remainder with the sign of the dividend; the dividend for a divisor of 0."""
    if b == 0:
        return a
    return -(-a % abs(b)) if a < 0 else a % abs(b)


def float_mod(a: float, b: float) -> float:
    """Remainder of floats with the sign of the dividend. Rounding it to their dtype can only drop the sign of 0."""
    return math.fmod(a, b) if math.isfinite(a) and b != 0 else math.nan


def fused_multiply_add(dtype: DType) -> Callable[[float, float, float], float]:
    """Return a * b + c rounded once to ``dtype``."""
    rounding = ROUND[dtype]

    def fma(a: float, b: float, c: float) -> float:
        product = a * b
        total = product + c
        if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
            return rounding(total)
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact == 0:
            return rounding(total)  # IEEE decides the sign of zero
        return _round_fraction(exact, dtype)

    return fma


def _round_fraction(exact: Fraction, dtype: DType) -> float:
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, 2 - (1 << (exponent_bits - 1))) - mantissa_bits)
    rounded = round(size / unit) * unit  # Python's round goes to the even neighbour
    limit = (2 - Fraction(1, 1 << mantissa_bits)) * Fraction(2) ** ((1 << (exponent_bits - 1)) - 1)
    return math.copysign(math.inf if rounded > limit else float(rounded), exact)


# ---- storage -------------------------------------------------------------------------------------------------------


def encode_f16(x: float) -> int:
    """Return the 16 bits of a float16 value."""
    return int.from_bytes(_F16.pack(x), "little")


def encode_bf16(x: float) -> int:
    """Return the 16 bits of a bfloat16 value."""
    return int.from_bytes(_F32.pack(x), "little") >> 16


@functools.cache
def decode_table(dtype: DType) -> tuple[float, ...]:
    """Return the value of every bit pattern of a dtype of at most 16 bits that memory views cannot read."""
    if dtype is dtypes.float16:
        return struct.unpack("<65536e", struct.pack("<65536H", *range(65536)))
    if dtype is dtypes.bfloat16:
        return struct.unpack("<65536f", struct.pack("<65536I", *(bits << 16 for bits in range(65536))))
    return tuple(fp8_to_float(byte, dtype) for byte in range(256))


ENCODE: Final[dict[DType, Callable[[float], int]]] = {
    dtypes.float16: encode_f16,
    dtypes.bfloat16: encode_bf16,
    **{dtype: functools.partial(float_to_fp8, dtype=dtype) for dtype in dtypes.fp8s},
}


def _bitcast(source: DType, target: DType) -> Callable[[Any], Any]:
    if source.fmt is not None and target.fmt is not None:
        pack, unpack = struct.Struct("<" + source.fmt).pack, struct.Struct("<" + target.fmt).unpack
        return lambda x: unpack(pack(x))[0]
    return lambda x: bitcast(x, source, target)


def _lane_bitcast(source: DType, target: DType) -> Callable[[list[Any]], list[Any]]:
    """Return the reinterpretation of a vector as one of wider or narrower lanes, the lowest bits first."""

    def convert(lanes: list[Any]) -> list[Any]:
        packed = struct.pack(f"<{len(lanes)}{source.fmt}", *lanes)
        return list(struct.unpack(f"<{len(packed) // target.itemsize}{target.fmt}", packed))

    return convert


def dot_bfloat16(a: int, b: int, total: float) -> float:
    """Return ``total`` + the products of two pairs of packed bfloat16, the second pair first, as vdpbf16ps does."""
    fma = fused_multiply_add(dtypes.float32)
    for shift in (16, 0):
        x, y = (_normal(_F32.unpack(_U32.pack((word >> shift & 0xFFFF) << 16))[0]) for word in (a, b))
        total = _normal(fma(x, y, _normal(total)))
    return total


def _normal(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def dot_uint8(a: int, b: int, total: int) -> int:
    """Return ``total`` + the products of four packed unsigned and four packed signed bytes, wrapped to 32 bits."""
    for shift in (0, 8, 16, 24):
        total += (a >> shift & 0xFF) * (((b >> shift & 0xFF) ^ 0x80) - 0x80)
    return (total + (1 << 31) & 0xFFFFFFFF) - (1 << 31)


_TILE = 16  # rows, columns and words of a tile


def tile_bfloat16_bfloat16(a: list[int], b: list[int], total: list[float]) -> list[float]:
    """Return ``total`` + the product of two tiles of packed pairs of bfloat16, as tdpbf16ps does."""
    fma, add = fused_multiply_add(dtypes.float32), ROUND[dtypes.float32]
    left, right = ([[_half(w, shift) for w in tile] for shift in (0, 16)] for tile in (a, b))
    sums = []
    for i, j in itertools.product(range(_TILE), repeat=2):
        chains = [0.0, 0.0]
        for k in range(_TILE):
            for n in (0, 1):
                chains[n] = _normal(fma(left[n][i * _TILE + k], right[n][k * _TILE + j], chains[n]))
        product = _normal(add(chains[0] + chains[1]))
        sums.append(_normal(add(_normal(total[i * _TILE + j]) + product)))
    return sums


def _half(word: int, shift: int) -> float:
    return _normal(_F32.unpack(_U32.pack((word >> shift & 0xFFFF) << 16))[0])


def _tile_of_bytes(first: DType, second: DType) -> Callable[[list[int], list[int], list[int]], list[int]]:
    """Return the function of the tile instruction for bytes with these signs; sums wrap to 32 bits."""
    signs = [0x80 if dtype is dtypes.int8 else 0 for dtype in (first, second)]

    def tile(a: list[int], b: list[int], total: list[int]) -> list[int]:
        left, right = (
            [[((w >> shift & 0xFF) ^ sign) - sign for shift in (0, 8, 16, 24)] for w in words]
            for words, sign in zip((a, b), signs, strict=True)
        )
        sums = []
        for i, j in itertools.product(range(_TILE), repeat=2):
            found = total[i * _TILE + j]
            for k in range(_TILE):
                pairs = zip(left[i * _TILE + k], right[k * _TILE + j], strict=True)
                found += sum(x * y for x, y in pairs)
            sums.append((found + (1 << 31) & 0xFFFFFFFF) - (1 << 31))
        return sums

    return tile


_BYTES: Final = (dtypes.int8, dtypes.uint8)


def out_of_bounds(access: str, buffer: str, index: int, size: int) -> Any:
    """Raise the IndexError of an access outside a buffer."""
    raise IndexError(f"{access} of {buffer}[{index}] is out of range: {buffer} has {size} elements")


class _Lazy(dict[str, Any]):
    """Names of generated code; decode tables and bit casts are made when first used."""

    def __missing__(self, name: str) -> Any:
        kind, _, rest = name.partition("_")
        names = [getattr(dtypes, part) for part in rest.split("_") if part]
        match kind:
            case "table":
                value: Any = decode_table(*names)
            case "bits":
                value = _bitcast(*names)
            case "lanes":
                value = _lane_bitcast(*names)
            case _:
                raise KeyError(name)
        self[name] = value
        return value


NAMESPACE: Final[dict[str, Any]] = {
    "inf": math.inf,
    "nan": math.nan,
    "divide": divide,
    "square_root": square_root,
    "trunc": trunc,
    "exp2": exp2,
    "log2": log2,
    "sin": sin,
    "cdiv": cdiv,
    "cmod": cmod,
    "float_mod": float_mod,
    "int_to_float32": round_int_to_f32,
    "out_of_bounds": out_of_bounds,
    "dot_bfloat16": dot_bfloat16,
    "dot_uint8": dot_uint8,
    "tile_bfloat16_bfloat16": tile_bfloat16_bfloat16,
    **{f"tile_{a.full_name}_{b.full_name}": _tile_of_bytes(a, b) for a in _BYTES for b in _BYTES},
    **{f"round_{dtype.full_name}": function for dtype, function in ROUND.items()},
    **{f"fma_{dtype.full_name}": fused_multiply_add(dtype) for dtype in ROUND},
    **{f"encode_{dtype.full_name}": function for dtype, function in ENCODE.items()},
    **{f"to_{dtype.full_name}": float_to_int(dtype) for dtype in dtypes.ints},
}


def namespace_for(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the globals of a generated function that uses ``names`` (those of this module and Python's builtins)."""
    lazy = _Lazy(NAMESPACE)
    return {name: lazy[name] for name in names if name in NAMESPACE or name.startswith(("table_", "bits_", "lanes_"))}
