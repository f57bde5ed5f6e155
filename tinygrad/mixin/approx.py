"""Special functions as polynomials: expm1, log1p, tanh, atan, asin, acos, erf.

In:   a float Tensor or UOp (float32 or float64; narrower floats belong in float32).
Out:  the value, accurate near zero too, built from operators alone, so it fuses with whatever surrounds it.
Why:  formulas such as exp(x) - 1 lose all digits near zero; these keep them at the price of a few multiplications.

Largest errors in units in the last place, float32 (tested); float64 is within 4.5:

    expm1 1.8    log1p 1.9    atan 1.8    asin 2.8    acos 2.0
    tanh 3.6    erf 3.8    times_normal 6

The coefficients are the output of ``extra/fit_polynomials.py``. Infinities and NaN follow C's functions; the sign of
zero is kept. A derivative is to be stated by the caller: that of the polynomial would be less accurate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.mixin.unary import UnaryMixin

T = TypeVar("T", bound="UnaryMixin")


def _table(*digits: str) -> tuple[float, ...]:
    return tuple(float.fromhex(text) for text in digits)


_EXPM1_F32: Final = _table(
    "0x1.0p-1", "0x1.555556p-3", "0x1.55557cp-5", "0x1.1110ecp-7", "0x1.6bfdeap-10", "0x1.a01adp-13", "0x1.a9bc54p-16",
    "0x1.76ac86p-19",
)  # fmt: skip
_LOG1P_F32: Final = _table(
    "0x1.9f323ep-1", "-0x1.2773a4p-2", "0x1.0f9618p-3", "-0x1.1541c2p-4", "0x1.2bf076p-5", "-0x1.50921ap-6",
    "0x1.7f2a52p-7",
    "-0x1.c3e8p-8", "0x1.4a8ec8p-8", "-0x1.878636p-9",
)  # fmt: skip
_ATAN_F32: Final = _table(
    "-0x1.55555p-2", "0x1.9997ap-3", "-0x1.24707ep-3", "0x1.c4ce16p-4", "-0x1.68692p-4", "0x1.131292p-4",
    "-0x1.6b3b0ap-5",
    "0x1.6c9586p-6", "-0x1.d6fd2ap-8", "0x1.1d4516p-10",
)  # fmt: skip
_ASIN_F32: Final = _table(
    "0x1.55554cp-3", "0x1.33389ap-4", "0x1.6cabap-5", "0x1.04a60cp-5", "0x1.d82adcp-7", "0x1.339b94p-5",
)  # fmt: skip
# numerator and denominator of x times a function of x*x; see ``_from_half``
_TANH_F32: Final = (
    _table("0x1.c0p-1", "0x1.aa5ea8p-6", "0x1.a0ae76p-14"),
    _table("0x1.c0p+0", "0x1.95424cp-3", "0x1.13f762p-9", "0x1.1d0dp-19"),
)
_ERF_F32: Final = (
    _table("0x1.f0c6d2p-1", "0x1.06b1ecp-2", "0x1.c7d986p-6", "0x1.209438p-9"),
    _table("0x1.b841c0p+0", "0x1.ec12a0p-2", "0x1.55e476p-4", "0x1.5696e4p-7", "0x1.68d9bep-13"),
)
_EXPM1_F64: Final = _table(
    "0x1.0p-1", "0x1.5555555555556p-3", "0x1.5555555555555p-5", "0x1.1111111111040p-7", "0x1.6c16c16c16c88p-10",
    "0x1.a01a01a0318c4p-13", "0x1.a01a01a0144fdp-16", "0x1.71de3a40584dcp-19", "0x1.27e4fb78245b3p-22",
    "0x1.ae646b4b3af96p-26", "0x1.1eed91be10c58p-29", "0x1.6118e0748b4e8p-33", "0x1.93915bf9ab1d2p-37",
    "0x1.b52e64ea67322p-41", "0x1.b34e20baa0578p-45",
)  # fmt: skip
_ATAN_F64: Final = _table(
    "-0x1.555555555554ep-2", "0x1.9999999998d59p-3", "-0x1.249249245a2efp-3", "0x1.c71c71b6daac2p-4",
    "-0x1.745d15db1a95cp-4", "0x1.3b139c42c1bc9p-4", "-0x1.111035db8d6f7p-4", "0x1.e1d4adee3b3e3p-5",
    "-0x1.aedaf812835d5p-5", "0x1.84b675274a2abp-5", "-0x1.5f29af6136964p-5", "0x1.390fa2ad624bep-5",
    "-0x1.0ca6440b3d7a2p-5", "0x1.aca65a756f82cp-6", "-0x1.3127a4d676c77p-6", "0x1.73220b929acf6p-7",
    "-0x1.702257edd245dp-8", "0x1.1a48e01cdd348p-9", "-0x1.3729c256c7f52p-11", "0x1.b41f2414668b3p-14",
    "-0x1.22af0e198c9d8p-17",
)  # fmt: skip
_ASIN_F64: Final = _table(
    "0x1.555555555556cp-3", "0x1.333333332f405p-4", "0x1.6db6db7151905p-5", "0x1.f1c71ad558026p-6",
    "0x1.6e8bd86ac8cb7p-6",
    "0x1.1c4a5bbc33f6cp-6", "0x1.ca16246a54824p-7", "0x1.75ce325fad86bp-7", "0x1.5fb9ad6ea3fe5p-7",
    "0x1.fbc42b2170096p-9",
    "0x1.5d3f9e8bddd3cp-6", "-0x1.4f51f1231667ep-6", "0x1.08a859bba5bcdp-5",
)  # fmt: skip
_ERF_HEAD_F64: Final = _table(
    "0x1.20dd750429b6dp+0", "-0x1.812746b0379c9p-2", "0x1.ce2f21a041d26p-4", "-0x1.b82ce312528bdp-6",
    "0x1.565bcd076c353p-8",
    "-0x1.c02db2e0d9dd2p-11", "0x1.f9a30892a8ee5p-14", "-0x1.f4d02bdd2a786p-17", "0x1.b9caef445a0c6p-20",
    "-0x1.5e7ff2475facap-23", "0x1.f176765578612p-27", "-0x1.267201653e738p-30", "0x1.aef17b442dac3p-35",
)  # fmt: skip
_ERF_TAIL_F64: Final = _table(
    "-0x1.45c25411758f9p+4", "-0x1.4f72d15a413e6p+3", "-0x1.650d03bfb11fap+0", "-0x1.ee13f4b2ac1d2p-8",
    "0x1.4a6c3d91efc4ap-10", "-0x1.bda9da641f248p-13", "0x1.271bbe9941000p-15", "-0x1.78795e5a47ea9p-18",
    "0x1.c80ad45e17a1dp-21", "-0x1.e5cf33feb0092p-24", "0x1.dbe0508f9cb7ep-27", "-0x1.4d41d1a4be985p-29",
    "-0x1.b58b2ce1fcae7p-31", "0x1.b8263e59a50d6p-38", "0x1.0634ddb021458p-33", "0x1.f805f8112fe0dp-35",
    "0x1.ecc398f3bb71fp-40", "-0x1.1105b28f9af9bp-38", "-0x1.47dc932892fefp-40", "-0x1.e24e08bd18f4cp-44",
)  # fmt: skip


_NORMAL_F32: Final = _table(
    "0x1.129e6p-2", "0x1.626a2ap-2", "0x1.fd5a6ap-3", "0x1.677c94p-6", "-0x1.a45044p-4", "-0x1.41effap-6",
    "0x1.092936p-4", "-0x1.a1c01ep-10", "-0x1.5f9876p-5", "0x1.05329p-6", "0x1.30d2b2p-7",
)  # fmt: skip
_NORMAL_F64: Final = _table(
    "0x1.2897222860a86p-3", "0x1.04c47b8643a74p-2", "0x1.91abf19ca21a0p-2", "0x1.0cc75ae57aad3p-1",
    "0x1.33f33b09ec41ap-1", "0x1.263cb8fa67f8ap-1", "0x1.bd7695dd5f47dp-2", "0x1.d68d4114514d3p-3",
    "0x1.6a7ef5981a8dap-5", "-0x1.a5688373a2cddp-5", "-0x1.9cb60e03b249ep-5", "-0x1.9aaff6f05da01p-8",
    "0x1.461f719456173p-6", "0x1.72a7a01881f18p-7", "-0x1.94c9cf69461adp-8", "-0x1.00835a7781e72p-7",
    "0x1.b26216484e1d2p-10", "0x1.3b6488bf5ad5bp-8", "-0x1.d78a6e851ba01p-12", "-0x1.7982e4b3e20a7p-9",
    "0x1.316b524ed8361p-12", "0x1.77e1e4f3c906ep-10", "-0x1.16f44dae822d4p-12", "-0x1.3bded28e077e6p-12",
)  # fmt: skip


def _pick(x: T, single: tuple[float, ...], double: tuple[float, ...]) -> tuple[float, ...]:
    return double if x.dtype is dtypes.float64 else single


def _horner(x: T, coefficients: tuple[float, ...]) -> T:
    value = x * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        value = value * x + coefficient
    return value


def expm1(x: T) -> T:
    """Return exp(x) - 1: x * (1 + x * p(x)) for |x| < 1, the difference elsewhere. Error: 1.8 ulp."""
    near = x * (x * _horner(x, _pick(x, _EXPM1_F32, _EXPM1_F64)) + 1.0)
    far = (x * math.log2(math.e)).alu(Ops.EXP2) - 1.0
    return (x.abs() < 1.0).where(near, far)


def log1p(x: T) -> T:
    """Return log(1 + x): the logarithm of the rounded sum, corrected by what the rounding lost. Error: 1.9 ulp.

    Source: Kahan, as told by Goldberg, "What Every Computer Scientist Should Know About Floating-Point Arithmetic",
    1991.
    """
    total = x + 1.0
    lost = (x - (total - 1.0)) / total
    # Of infinities there is no difference, and at -1 the sum is zero.
    has_correction = (x > -1.0) & (x < math.inf)
    value = total.alu(Ops.LOG2) * math.log(2.0) + has_correction.where(lost, 0.0)
    return (x.abs() < 2.0**-60).where(x, value)


def log1p_of_share(x: T) -> T:
    """Return log(1 + x) for 0 <= x <= 1, in float32 as x * p(x - 1/2), without a division. Error: 1.5 ulp."""
    return x * _horner(x - 0.5, _LOG1P_F32) if x.dtype is dtypes.float32 else x.log1p()


def atan(x: T) -> T:
    """Return the inverse tangent: t * (1 + t*t * p(t*t)) for t = x or 1/x. Error: 1.8 ulp."""
    is_large = x.abs() > 1.0
    t = is_large.where(x.reciprocal(), x)
    z = t * t
    small = t * (z * _horner(z, _pick(x, _ATAN_F32, _ATAN_F64)) + 1.0)
    large = _from_right_angle(is_large.where((x < 0.0).where(small * -1.0, small), 0.0))
    return is_large.where((x < 0.0).where(large * -1.0, large), small)


def _from_right_angle(x: T) -> T:
    """Return pi/2 - x; what the rounding of pi/2 loses is added."""
    return (math.pi / 2 - x) + _right_angle_rest(x)


def _right_angle_rest(x: T) -> float:
    """Return what the rounding of pi/2 to the dtype of x loses."""
    return 6.123233995736766e-17 if x.dtype is dtypes.float64 else -4.371139000186243e-08


def asin(x: T) -> T:
    """Return the inverse sine; beyond 1/2 by the half angle. NaN outside [-1, 1]. Error: 2.8 ulp."""
    is_large, small = _asin_near(x)
    large = _from_right_angle(small * 2.0)
    return is_large.where((x < 0.0).where(large * -1.0, large), small)


def acos(x: T) -> T:
    """Return the inverse cosine; beyond 1/2 by the half angle. NaN outside [-1, 1]. Error: 2.2 ulp."""
    is_large, small = _asin_near(x)
    double = small * 2.0
    # acos(x) is pi/2 - asin(x), and pi - acos(-x).
    large = (x < 0.0).where((math.pi - double) + 2.0 * _right_angle_rest(x), double)
    return is_large.where(large, _from_right_angle(small))


def _asin_near(x: T) -> tuple[T, T]:
    """Return whether |x| > 1/2, and asin(x) if not; else asin(sqrt((1 - |x|) / 2)), which is acos(|x|) / 2."""
    size = x.abs()
    is_large = size > 0.5
    half = (1.0 - size) * 0.5
    t = is_large.where(half.sqrt(), x)
    z = is_large.where(half, x * x)
    return is_large, t * (z * _horner(z, _pick(x, _ASIN_F32, _ASIN_F64)) + 1.0)


def tanh(x: T) -> T:
    """Return the hyperbolic tangent. Error: 4 ulp."""
    if x.dtype is not dtypes.float64:
        return _from_half(x, *_TANH_F32, 9.2)
    # From 20 on the result is 1; the bound keeps expm1 finite.
    minus_one = expm1((x > 20).where(20.0, x) * 2)
    return minus_one / (minus_one + 2)


def erf(x: T) -> T:
    """Return the error function. Error: 4 ulp, in float64 4.5 ulp.

    In float64: x * p(x*x) for |x| < 1, else 1 - 2**q(|x|).
    """
    if x.dtype is not dtypes.float64:
        return _from_half(x, *_ERF_F32, 3.95)
    end = 6.0
    size = x.abs()
    near = x * _horner(x * x, _ERF_HEAD_F64)
    # From ``end`` on the result is 1. NaN passes the test.
    bounded = (size > end).where(end, size)
    tail = 1.0 - _horner(bounded - (end + 1.0) / 2.0, _ERF_TAIL_F64).alu(Ops.EXP2)
    return (size < 1.0).where(near, (x < 0.0).where(tail * -1.0, tail))


def _from_half(x: T, numerator: tuple[float, ...], denominator: tuple[float, ...], end: float) -> T:
    """Return 2t / (1 + t*t) for t = n / d = x * p(x*x) / q(x*x): tanh from that of half the argument, and its like.

    Where the result is near 1 it hardly depends on t, so neither do errors of t matter there, and one short quotient
    holds for the whole range. From ``end`` on the result is 1. NaN passes the tests.
    """
    bounded = (x < -end).where(-end, (x > end).where(end, x))
    z = bounded * bounded
    n, d = bounded * _horner(z, numerator), _horner(z, denominator)
    value = (n + n) * d / (n * n + d * d)
    # The sum may be rounded down.
    return (value < -1.0).where(-1.0, (value > 1.0).where(1.0, value))


def times_normal(x: T) -> T:
    """Return x times the normal distribution function of x. Error: 6 ulp.

    That function is exp(-x*x/2) * t * p(t - 1/2) below 0, t = 1 / (1 + c |x|), and its complement above. The square is
    taken in two parts, since the exponential makes its rounding error large.
    """
    wide = x.dtype is dtypes.float64
    bits, mask, end = (dtypes.int64, -1 << 27, 40.0) if wide else (dtypes.int32, -1 << 12, 15.0)
    size = x.abs()
    size = (size > end).where(end, size)  # where the tail is 0; NaN passes
    t = (size * (0.1875 if wide else 0.375) + 1.0).reciprocal()
    ratio = t * _horner(t - 0.5, _pick(x, _NORMAL_F32, _NORMAL_F64))
    upper = (size.bitcast(bits) & mask).bitcast(x.dtype)
    rest = (size - upper) * (size + upper) * 0.5
    # exp(-rest) by its series: rest is at most 1/8 in float32.
    small = 1.0 - rest * (1.0 - rest * (0.5 - rest * (1 / 6 - rest * (1 / 24 - rest * (1 / 120)))))
    power = (upper * upper * (-0.5 * math.log2(math.e))).alu(Ops.EXP2)
    tail = ratio * small
    # The power comes last: it may be a subnormal number.
    bounded = (x < -end).where(-end, x)
    return (x < 0.0).where(bounded * tail * power, x * (1.0 - tail * power))
