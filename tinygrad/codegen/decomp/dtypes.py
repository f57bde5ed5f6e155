"""Narrow floats on targets without them: bits in memory, float32 in between, every operation rounded.

In:   a kernel graph that uses float dtypes of at most 16 bits which the target lacks.
Out:  the same graph on uint16 or uint8 memory and float32 values. Each result is what one correctly rounded
      operation in the narrow type gives: float32 has more than twice the bits, so rounding twice gives the same number.
Why:  bfloat16 and fp8 exist nowhere in full; this way all devices agree bit for bit.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from tinygrad.codegen.decomp.value import Value
from tinygrad.dtype import DType, dtypes, truncate
from tinygrad.record import record, replace
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

_SIGN: Final = 0x80000000
_INFINITY: Final = 0x7F800000
_NAN: Final = 0x7FC00000


@record(frozen=True)
class Narrow:
    """Layout of a narrow float dtype."""

    dtype: DType
    storage: DType
    bias: int
    mantissa: int
    largest: float

    @property
    def dropped(self) -> int:
        """Mantissa bits that float32 has and this dtype lacks."""
        return 23 - self.mantissa

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def step(self) -> float:
        """The distance of subnormal numbers."""
        return 2.0 ** (1 - self.bias - self.mantissa)

    @property
    def is_fnuz(self) -> bool:
        """Whether there is one NaN (the sign bit alone), no infinity and no negative zero."""
        return self.dtype in dtypes.fp8_fnuz

    @property
    def has_infinity(self) -> bool:
        """Whether infinities exist."""
        return self.dtype in {dtypes.float16, dtypes.bfloat16, dtypes.fp8e5m2}


NARROW: Final[dict[DType, Narrow]] = {
    dtypes.float16: Narrow(dtypes.float16, dtypes.uint16, 15, 10, 65504.0),
    dtypes.bfloat16: Narrow(dtypes.bfloat16, dtypes.uint16, 127, 7, float.fromhex("0x1.fep127")),
    dtypes.fp8e4m3: Narrow(dtypes.fp8e4m3, dtypes.uint8, 7, 3, 448.0),
    dtypes.fp8e5m2: Narrow(dtypes.fp8e5m2, dtypes.uint8, 15, 2, 57344.0),
    dtypes.fp8e4m3fnuz: Narrow(dtypes.fp8e4m3fnuz, dtypes.uint8, 8, 3, 240.0),
    dtypes.fp8e5m2fnuz: Narrow(dtypes.fp8e5m2fnuz, dtypes.uint8, 16, 2, 57344.0),
}


# ---- one value -----------------------------------------------------------------------------------------------------


def decode(bits: UOp, layout: Narrow) -> UOp:
    """Return the float32 value of stored bits."""
    u32, f32 = dtypes.uint32, dtypes.float32
    wide = Value(bits).cast(u32)
    if layout.dtype is dtypes.bfloat16:
        return (wide << 16).bits(f32).u
    sign_bit = 1 << (layout.dtype.bitsize - 1)
    size = wide & (sign_bit - 1)
    normal = ((size << layout.dropped) + ((127 - layout.bias) << 23)).bits(f32)
    # Through an integer and not through float32 subnormals, which some targets flush to zero.
    small = size.cast(dtypes.int32).cast(f32) * layout.step
    value = (size < (1 << layout.mantissa)).where(small, normal)
    exponent_ones = (sign_bit - 1) >> layout.mantissa << layout.mantissa
    if layout.has_infinity:
        value = (size < exponent_ones).where(value, size.eq(exponent_ones).where(math.inf, value.const(math.nan)))
    elif not layout.is_fnuz:
        value = size.eq(sign_bit - 1).where(math.nan, value)
    signed = (value.bits(u32) | ((wide & sign_bit) << (32 - layout.dtype.bitsize))).bits(f32)
    return (wide.eq(sign_bit).where(math.nan, signed) if layout.is_fnuz else signed).u


def encode(value: UOp, layout: Narrow) -> UOp:
    """Return the bits of a float32 value that the dtype can represent."""
    u32 = dtypes.uint32
    bits = Value(value).bits(u32)
    if layout.dtype is dtypes.bfloat16:
        return (bits >> 16).cast(layout.storage).u
    size = bits & (_SIGN - 1)
    sign = (bits >> 31) << (layout.dtype.bitsize - 1)
    normal = (size >> layout.dropped) - ((127 - layout.bias) << layout.mantissa)
    small = (size.bits(dtypes.float32) * (1.0 / layout.step)).cast(dtypes.int32).cast(u32)
    smallest_bits = (128 - layout.bias) << 23
    result = (size < smallest_bits).where(small, normal)
    all_ones = (1 << (layout.dtype.bitsize - 1)) - 1
    if layout.has_infinity:
        infinity = all_ones >> layout.mantissa << layout.mantissa
        nan = 0x7E00 if layout.dtype is dtypes.float16 else all_ones
        result = (size < _INFINITY).where(result, size.eq(_INFINITY).where(result.const(infinity), nan))
        return (result | sign).cast(layout.storage).u
    if layout.is_fnuz:
        signed = size.eq(0).where(result.const(0), result | sign)
        return (size < _INFINITY).where(signed, 0x80).cast(layout.storage).u
    result = (size < _INFINITY).where(result, all_ones)
    return (result | sign).cast(layout.storage).u


def round_to(value: UOp, layout: Narrow) -> UOp:
    """Round a float32 value to the narrow dtype: nearest even, its own rule for what is too large."""
    u32, f32 = dtypes.uint32, dtypes.float32
    bits = Value(value).bits(u32)
    size, sign = bits & (_SIGN - 1), bits & _SIGN
    low = (1 << layout.dropped) - 1
    rounded = (size + (low >> 1) + ((size >> layout.dropped) & 1)) & (~low & 0xFFFFFFFF)
    if layout.dtype is not dtypes.bfloat16:  # whose subnormals are those of float32
        # Adding this number and taking it away again leaves a multiple of the step, rounded to nearest even.
        magic = layout.step * 2.0**23
        small = ((size.bits(f32) + magic) - magic).bits(u32)
        rounded = (size < (128 - layout.bias) << 23).where(small, rounded)
    rounded = _too_large(size, rounded, layout)
    if layout.is_fnuz:
        sign = rounded.eq(0).where(sign.const(0), sign)
    return (rounded | sign).bits(f32).u


def _bits_of(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def _too_large(size: Value, rounded: Value, layout: Narrow) -> Value:
    limit = _bits_of(layout.largest)
    if layout.dtype in {dtypes.float16, dtypes.bfloat16}:
        if layout.dtype is dtypes.float16:
            rounded = (rounded > limit).where(rounded.const(_INFINITY), rounded)
        return (size > _INFINITY).where(rounded.const(_NAN), rounded)
    # fp8 saturates finite numbers.
    rounded = (rounded > limit).where(rounded.const(limit), rounded)
    beyond = size.eq(_INFINITY).where(size.const(_INFINITY), _NAN) if layout.has_infinity else size.const(_NAN)
    return (size < _INFINITY).where(rounded, beyond)


def to_f32_sticky(x: UOp) -> UOp:
    """Convert float64 to float32 so that a second rounding is right: round to odd (Boldo and Melquiond, 2008)."""
    value = Value(x)
    near = value.cast(dtypes.float32)
    back = near.cast(dtypes.float64)
    bits = near.bits(dtypes.int32)
    # An inexact result whose last bit is even moves one step toward the exact value, where the last bit is odd.
    # What became infinite is moved back to the largest number: a dtype that saturates must see that it was finite.
    inexact = back.ne(value) & (bits & 1).eq(0) & value.eq(value)
    rises = (back < value).ne(bits < 0)
    moved = bits + rises.where(bits.const(1), -1)
    # From zero the step is to the smallest number of the sign of the value.
    from_zero = (value < 0.0).where(bits.const(-0x7FFFFFFF), 1)
    moved = near.eq(0.0).where(from_zero, moved)
    return inexact.where(moved, bits).bits(dtypes.float32).u


# ---- a graph -------------------------------------------------------------------------------------------------------


class Emulation:
    """Rewrites a kernel graph so that the given narrow dtypes do not occur in it."""

    def __init__(self, missing: frozenset[DType], has_double: bool) -> None:
        self.missing, self.has_double = missing, has_double
        self.values: dict[UOp, UOp] = {}
        self.addresses: dict[UOp, UOp] = {}

    def run(self, sink: UOp) -> UOp:
        """Return the rewritten graph."""
        for u in sink.toposort():
            self.values[u] = self.convert(u)
        return self.values[sink]

    def convert(self, u: UOp) -> UOp:
        """Return what stands for a node whose sources are converted: for a narrow float, its float32 value."""
        src = tuple(self.values[s] for s in u.src)
        narrow = u.dtype if u.dtype in self.missing else None
        match u.op:
            case Ops.PARAM | Ops.BUFFER if narrow is not None and u.arg.dtype is narrow:
                storage = NARROW[narrow].storage
                return UOp(u.op, storage, src, replace(u.arg, dtype=storage), u.tag)
            case Ops.INDEX | Ops.LOAD if narrow is not None and self.is_in_memory(u):
                address = UOp(u.op, NARROW[narrow].storage, self.memory_sources(u), u.arg, u.tag)
                self.addresses[u] = address
                return decode(address, NARROW[narrow])
            case Ops.STORE if u.src[0].dtype in self.missing:
                target = self.addresses.get(u.src[0], src[0])
                value = encode(src[1], NARROW[u.src[0].dtype]) if self.is_in_memory(u.src[0]) else src[1]
                return UOp(Ops.STORE, dtypes.void, (target, value, *src[2:]), u.arg, u.tag)
            case Ops.CAST:
                return self.cast(u, src[0])
            case Ops.BITCAST:
                return self.bitcast(u, src[0])
            case Ops.CONST if narrow is not None:
                return UOp(Ops.CONST, dtypes.float32, (), truncate[narrow](u.arg))
        if narrow is None:
            return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
        made = UOp(u.op, dtypes.float32, src, u.arg, u.tag)
        # Selections and maxima give one of their operands, which is rounded already.
        exact = u.op in {Ops.WHERE, Ops.MAX} or u.op not in GroupOp.ALU | {Ops.REDUCE}
        return made if exact else round_to(made, NARROW[narrow])

    def is_in_memory(self, u: UOp) -> bool:
        """Whether an INDEX or LOAD reads a buffer (and not a lane of a vector, or a register)."""
        while u.op in {Ops.INDEX, Ops.LOAD, Ops.AFTER}:
            u = u.src[0]
        return u.op in {Ops.PARAM, Ops.BUFFER}

    def memory_sources(self, u: UOp) -> tuple[UOp, ...]:
        """Return the converted sources of an access; a source that is an address stays one."""
        return tuple(self.addresses.get(s, self.values[s]) for s in u.src)

    def cast(self, u: UOp, x: UOp) -> UOp:
        """Return the conversion ``u`` of the converted source ``x``."""
        source, target = u.src[0].dtype, u.dtype
        if target not in self.missing:
            return x if x.dtype is target else UOp(Ops.CAST, target, (x,), target)
        if source in self.missing:
            return round_to(x, NARROW[target])
        # A wide integer is exact (or nearly so) in float64, and the rest is one rounding.
        if self.has_double and dtypes.is_int(source) and source.bitsize >= 32:
            x = UOp(Ops.CAST, dtypes.float64, (x,), dtypes.float64)
        if x.dtype is dtypes.float64:
            x = to_f32_sticky(x)
        elif x.dtype is not dtypes.float32:
            x = UOp(Ops.CAST, dtypes.float32, (x,), dtypes.float32)
        return round_to(x, NARROW[target])

    def bitcast(self, u: UOp, x: UOp) -> UOp:
        """Return the reinterpretation ``u`` of the converted source ``x``."""
        source, target = u.src[0].dtype, u.dtype
        if source in self.missing:
            x = encode(x, NARROW[source])
        storage = NARROW[target].storage if target in self.missing else target
        bits = x if x.dtype is storage else UOp(Ops.BITCAST, storage, (x,), storage)
        return decode(bits, NARROW[target]) if target in self.missing else bits
