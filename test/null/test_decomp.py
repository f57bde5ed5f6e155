"""Lowering of operations: accuracy, special values, integer division by brute force, narrow floats."""

import itertools
import math

import numpy as np
import pytest

from test.helpers_alu import NUMPY, evaluate, leaf, ulps
from tinygrad.codegen.decomp import decompose, integer, power, support_of, transcendental, trigonometry
from tinygrad.codegen.decomp.dtypes import NARROW, decode, encode, round_to, to_f32_sticky
from tinygrad.device import Device
from tinygrad.dtype import DType, dtypes, from_storage_scalar, to_storage_scalar, truncate
from tinygrad.errors import DTypeError
from tinygrad.helpers import Context, floordiv, floormod
from tinygrad.mixin import approx
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp

F32, F64, I32 = dtypes.float32, dtypes.float64, dtypes.int32
X, Y = leaf(F32), leaf(F32, 1)
XD = leaf(F64)
INF, NAN, TINY = math.inf, math.nan, 2.0**-149


def lowered(u: UOp, arch: str = "") -> UOp:
    """The node in terms of what the PYTHON renderer declares."""
    with Context(DEV=f"PYTHON::{arch}"):
        return decompose(UOp(Ops.SINK, dtypes.void, (u,), KernelInfo()), Device["PYTHON"].renderer).src[0]


def times(x: UOp, c: float) -> UOp:
    return UOp(Ops.MUL, x.dtype, (x, UOp(Ops.CONST, x.dtype, (), c)))


def plus(x: UOp, c: float) -> UOp:
    return UOp(Ops.ADD, x.dtype, (x, UOp(Ops.CONST, x.dtype, (), c)))


def unary(op: Ops, x: UOp) -> UOp:
    return UOp(op, x.dtype, (x,))


@pytest.fixture(autouse=True)
def quiet_numpy():
    """Infinities, NaN and overflow are what these tests are about."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(scope="module")
def every_exponent() -> np.ndarray:
    """Float32 numbers of every sign and exponent, subnormals, infinities and NaN included, and of the usual ranges."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
    edges = np.arange(0, 1 << 32, 1 << 23, dtype=np.uint64)
    near_edges = np.concatenate([edges, edges + 1, edges[1:] - 1]).astype(np.uint32)
    usual = [rng.uniform(-size, size, 50_000) for size in (1, 4, 40, 130, 1e3, 1e5)]
    with np.errstate(invalid="ignore"):
        return np.concatenate([bits.view(np.float32), near_edges.view(np.float32), *usual]).astype(np.float32)


def worst(result: np.ndarray, exact: np.ndarray) -> float:
    return float(ulps(result, exact).max())


# ---- accuracy


def test_exp2(every_exponent: np.ndarray) -> None:
    exact = np.exp2(every_exponent.astype(np.float64))
    assert worst(evaluate(transcendental.exp2(X), {X: every_exponent}), exact) <= 0.9


@pytest.mark.parametrize("c", [1 / math.log(2), float(np.float32(1 / math.log(2)))], ids=["exact", "rounded"])
def test_exponential_of_a_product(every_exponent: np.ndarray, c: float) -> None:
    exact = np.exp(every_exponent.astype(np.float64))
    assert worst(evaluate(transcendental.exp2(times(X, c)), {X: every_exponent}), exact) <= 0.9
    assert worst(evaluate(transcendental.exp2(times(X, -c)), {X: -every_exponent}), exact) <= 0.9


@pytest.mark.parametrize("c", [math.log2(10), -0.3, 100.0, 1e-4])
def test_power_of_another_base(every_exponent: np.ndarray, c: float) -> None:
    exact = np.exp2(every_exponent.astype(np.longdouble) * np.longdouble(c)).astype(np.float64)
    assert worst(evaluate(transcendental.exp2(times(X, c)), {X: every_exponent}), exact) <= 1.2


def test_factor_too_large_for_the_table_is_a_plain_product() -> None:
    assert (
        worst(evaluate(transcendental.exp2(times(X, 2.0**20)), {X: np.array([2.0**-19], np.float32)}), np.array([4.0]))
        == 0
    )


def test_log2(every_exponent: np.ndarray) -> None:
    near_one = np.random.default_rng(1).uniform(0.5, 2, 200_000).astype(np.float32)
    for values in (every_exponent, near_one):
        exact = np.log2(values.astype(np.float64))
        assert worst(evaluate(transcendental.log2(X), {X: values}), exact) <= 1.0


@pytest.mark.parametrize("c", [math.log(2), float(np.float32(math.log(2)))], ids=["exact", "rounded"])
def test_natural_logarithm_is_one_function(every_exponent: np.ndarray, c: float) -> None:
    """The product with log(2) is a part of it, so that the logarithm is not rounded twice; natively it is not."""
    product = times(unary(Ops.LOG2, X), c)
    near_one = np.random.default_rng(1).uniform(0.5, 2, 200_000).astype(np.float32)
    for values in (every_exponent, near_one):
        assert worst(evaluate(transcendental.natural_log(X), {X: values}), np.log(values.astype(np.float64))) <= 1.2
        np.testing.assert_array_equal(
            evaluate(lowered(product), {X: values}), evaluate(transcendental.natural_log(X), {X: values})
        )
    assert lowered(product, "native").op is Ops.MUL
    assert lowered(times(unary(Ops.LOG2, X), 0.7)).op is Ops.MUL
    assert lowered(times(unary(Ops.LOG2, XD), c)).op is Ops.MUL


def _sine_exactly(values: np.ndarray, cosine: bool) -> np.ndarray:
    """Sines from an exact reduction: numpy's own is trusted below 2**30 alone."""
    import mpmath

    with mpmath.workprec(400):
        function, plain = (mpmath.cos, np.cos) if cosine else (mpmath.sin, np.sin)
        exact = plain(values.astype(np.float64))
        for i in np.flatnonzero(np.isfinite(values) & (np.abs(values) > 2.0**30)):
            exact[i] = float(function(mpmath.mpf(float(values[i]))))
    return exact


@pytest.mark.parametrize("has_double", [True, False], ids=["float64", "integers"])
@pytest.mark.parametrize("cosine", [False, True], ids=["sin", "cos"])
def test_sine_of_every_float(every_exponent: np.ndarray, has_double: bool, cosine: bool) -> None:
    pytest.importorskip("mpmath")
    values = np.concatenate([every_exponent[::40], every_exponent[-300_000::10]])
    # Numbers next to multiples of pi/2, where all digits of pi count; the last one is the closest of all float32.
    multiples = np.random.default_rng(3).integers(0, 2**40, 20_000).astype(np.longdouble) * (np.longdouble(np.pi) / 2)
    values = np.concatenate([values, multiples.astype(np.float32), np.array([16367173 * 2.0**72], np.float32)])
    node = trigonometry.sin(plus(X, math.pi / 2) if cosine else X, has_double)
    assert worst(evaluate(node, {X: values}), _sine_exactly(values, cosine)) <= 1.5


def test_known_sines() -> None:
    cosine, sine = trigonometry.sin(plus(X, math.pi / 2), True), trigonometry.sin(X, True)
    values = np.array([1e6, 1e7, 1e8], np.float32)
    cosines, sines = evaluate(cosine, {X: values}), evaluate(sine, {X: values})
    assert cosines[:2] == pytest.approx([0.93675, -0.90727], abs=1e-5)
    assert sines[2] / cosines[2] == pytest.approx(-2.5638, abs=1e-4)


def test_cosine_of_the_complement() -> None:
    node = trigonometry.sin(plus(times(X, -1.0), float(np.float32(math.pi / 2))), True)
    values = np.array([0.5, 1e5, -3.0], np.float32)
    assert evaluate(node, {X: values}) == pytest.approx(np.cos(values.astype(np.float64)), rel=2e-7)


def test_float64() -> None:
    rng = np.random.default_rng(2)
    wide = np.longdouble
    values = rng.uniform(-1000, 1000, 50_000)
    assert worst(evaluate(transcendental.exp2(XD), {XD: values}), np.exp2(values.astype(wide))) <= 1
    values *= 0.7
    node = transcendental.exp2(times(XD, 1 / math.log(2)))
    assert worst(evaluate(node, {XD: values}), np.exp(values.astype(wide))) <= 1
    values = np.concatenate([np.exp(rng.uniform(-700, 700, 50_000)), rng.uniform(0.5, 2, 50_000), [5e-324]])
    assert worst(evaluate(transcendental.log2(XD), {XD: values}), np.log2(values.astype(wide))) <= 3


def ulps_of(result: np.ndarray, exact) -> float:
    """Largest distance from values in mpmath, in units in the last place of the nearest float64."""
    import mpmath

    return max(
        float(abs(mpmath.mpf(got) - value) / math.ulp(float(value)))
        for got, value in zip(result.tolist(), exact, strict=True)
    )


@pytest.mark.parametrize("cosine", [False, True], ids=["sin", "cos"])
def test_sine_of_every_double(cosine: bool) -> None:
    """All exponents, and numbers next to multiples of pi/2, of which 6381956970095103 * 2**797 is the nearest."""
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 0x7FF << 52, 3000, dtype=np.uint64) | (rng.integers(0, 2, 3000, dtype=np.uint64) << 63)
    multiples = rng.integers(1, 2**40, 1000).astype(np.longdouble) * (np.longdouble(np.pi) / 2)
    values = np.concatenate([
        bits.view(np.float64),
        rng.uniform(-10, 10, 2000),
        multiples.astype(np.float64),
        np.ldexp(1.0, np.arange(-3, 1024)),
        [6381956970095103 * 2.0**797, 1.7976931348623157e308, 0.78515625, 1e22],
    ])
    node = trigonometry.sin(plus(XD, math.pi / 2) if cosine else XD, True)
    function = mpmath.cos if cosine else mpmath.sin
    with mpmath.workprec(1300):
        exact = [function(mpmath.mpf(x)) for x in values.tolist()]
        assert ulps_of(evaluate(node, {XD: values}), exact) <= 1.1
    result = evaluate(node, {XD: np.array([INF, -INF, NAN, -0.0, 5e-324])})
    np.testing.assert_array_equal(result, [NAN, NAN, NAN, 1, 1] if cosine else [NAN, NAN, NAN, -0.0, 5e-324])
    assert cosine or np.signbit(result[3])


def test_power_of_doubles() -> None:
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(6)
    near_one = 1 + rng.uniform(-1, 1, 1500) * 10.0 ** rng.uniform(-12, -1, 1500)
    bases = np.concatenate([np.exp(rng.uniform(-700, 700, 1500)), near_one, [5e-324, 1e-310, 1.7e308]])
    exponents = rng.uniform(-1, 1, len(bases)) * 1020 / np.abs(np.log2(bases))
    yd = leaf(F64, 1)
    result = evaluate(lowered(UOp(Ops.POW, F64, (XD, yd))), {XD: bases, yd: exponents})
    with mpmath.workprec(150):
        exact = [mpmath.power(x, mpmath.mpf(y)) for x, y in zip(bases.tolist(), exponents.tolist(), strict=True)]
        assert ulps_of(result, exact) <= 1.2


def test_power_without_float64() -> None:
    rng = np.random.default_rng(6)
    bases = np.concatenate([np.exp(rng.uniform(-80, 80, 50_000)), rng.uniform(0.9, 1.1, 50_000)]).astype(np.float32)
    exponents = (rng.uniform(-1, 1, 100_000) * 150 / np.maximum(np.abs(np.log2(bases)), 1e-6)).astype(np.float32)
    exact = np.power(bases.astype(np.longdouble), exponents.astype(np.longdouble)).astype(np.float64)
    assert worst(evaluate(power.power(X, Y, False), {X: bases, Y: exponents}), exact) <= 1.2


@pytest.mark.parametrize(
    ("function", "inputs", "outputs"),
    [
        (transcendental.exp2, [0.0, INF, -INF, NAN, -149, -151, 128], [1, INF, 0, NAN, TINY, 0, INF]),
        (transcendental.log2, [0.0, -0.0, -1, INF, -INF, NAN, TINY], [-INF, -INF, NAN, INF, NAN, NAN, -149]),
        (transcendental.natural_log, [0.0, -0.0, -1, INF, -INF, NAN, 1], [-INF, -INF, NAN, INF, NAN, NAN, 0]),
        (lambda x: trigonometry.sin(x, True), [INF, -INF, NAN, -0.0, TINY], [NAN, NAN, NAN, -0.0, TINY]),
        (lambda x: trigonometry.sin(x, False), [INF, -INF, NAN, -0.0, TINY], [NAN, NAN, NAN, -0.0, TINY]),
        (transcendental.sqrt, [0.0, -0.0, -1, INF, NAN, 4.0], [0, -0.0, NAN, INF, NAN, 2]),
    ],
    ids=["exp2", "log2", "log", "sin", "sin-integers", "sqrt"],
)  # fmt: skip
def test_special_values(function, inputs: list, outputs: list) -> None:
    np.testing.assert_array_equal(
        evaluate(function(X), {X: np.array(inputs, np.float32)}), np.array(outputs, np.float32)
    )
    zeros = [i for i, value in enumerate(inputs) if value == 0]
    result = evaluate(function(X), {X: np.array(inputs, np.float32)})[zeros]
    np.testing.assert_array_equal(np.signbit(result), np.signbit(np.array(outputs, np.float32)[zeros]))


def test_square_root(every_exponent: np.ndarray) -> None:
    values = np.abs(every_exponent)
    assert worst(evaluate(transcendental.sqrt(X), {X: values}), np.sqrt(values.astype(np.float64))) <= 1
    # Where the target has it, it stays.
    assert lowered(unary(Ops.SQRT, X)).op is Ops.SQRT
    assert lowered(unary(Ops.SQRT, X), "minimal").op is not Ops.SQRT


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.full_name)
def test_special_powers(dtype) -> None:
    x, y = leaf(dtype), leaf(dtype, 1)
    special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, INF, -INF, NAN, 1e-40, -1e-40, 3e38]
    pairs = np.array(list(itertools.product(special, special)), NUMPY[dtype])
    for has_double in (True, False):
        result = evaluate(lowered(power.power(x, y, has_double)), {x: pairs[:, 0].copy(), y: pairs[:, 1].copy()})
        expected = np.power(pairs[:, 0], pairs[:, 1])
        np.testing.assert_allclose(result, expected, rtol=1e-6)
        defined = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result[defined]), np.signbit(expected[defined]))


def test_power() -> None:
    rng = np.random.default_rng(5)
    node = lowered(UOp(Ops.POW, F32, (X, Y)))
    bases, exponents = np.exp(rng.uniform(-20, 20, 50_000)), rng.uniform(-4, 4, 50_000)
    arrays = {X: bases.astype(np.float32), Y: exponents.astype(np.float32)}
    exact = np.power(arrays[X].astype(np.longdouble), arrays[Y].astype(np.longdouble)).astype(np.float64)
    assert worst(evaluate(node, arrays), exact) <= 0.6


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint8])
def test_integer_power(dtype) -> None:
    x, y = leaf(dtype), leaf(dtype, 1)
    node = lowered(UOp(Ops.POW, dtype, (x, y)))
    bases = np.array(
        [0, 1, 2, 3, 7, 10, 255 if dtype is dtypes.uint8 else -3, 1 if dtype is dtypes.uint8 else -1], NUMPY[dtype]
    )
    pairs = np.array([(b, e) for b in bases for e in (0, 1, 2, 5, 31, 100)], NUMPY[dtype])
    result = evaluate(node, {x: pairs[:, 0].copy(), y: pairs[:, 1].copy()})
    expected = [truncate[dtype](pow(int(b), int(e))) for b, e in pairs]
    assert result.tolist() == expected
    if dtype is dtypes.int32:
        negative = {x: np.array([1, -1, -1, 2, 0], np.int32), y: np.array([-3, -3, -4, -1, -1], np.int32)}
        assert evaluate(node, negative).tolist() == [1, -1, 1, 0, 0]


@pytest.mark.parametrize(
    ("name", "bound"),
    [("expm1", 1.8), ("log1p", 1.9), ("atan", 1.8), ("asin", 2.8), ("acos", 2.0), ("tanh", 3.7), ("erf", 3.8)],
)
def test_composite_functions(every_exponent: np.ndarray, name: str, bound: float) -> None:
    rng = np.random.default_rng(9)
    tiny = 10.0 ** rng.uniform(-30, 0, 50_000) * rng.choice([-1, 1], 50_000)
    values = np.concatenate([every_exponent, tiny.astype(np.float32), np.array([0.0, -0.0, 1, -1], np.float32)])
    exact = {
        "expm1": np.expm1,
        "log1p": np.log1p,
        "atan": np.arctan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "tanh": np.tanh,
        "erf": np.vectorize(math.erf, otypes=[np.float64]),
    }[name](values.astype(np.float64))
    result = evaluate(lowered(getattr(approx, name)(X)), {X: values})
    assert worst(result, exact) <= bound
    np.testing.assert_array_equal(np.signbit(result[-4:-2]), [False, name != "acos"])


def test_logarithm_of_one_plus_a_share() -> None:
    shares = np.concatenate([np.linspace(0, 1, 200_001), 10.0 ** np.linspace(-44, 0, 10_000)]).astype(np.float32)
    assert worst(evaluate(lowered(approx.log1p_of_share(X)), {X: shares}), np.log1p(shares.astype(np.float64))) <= 1.5


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.full_name)
def test_absolute_value_clears_the_sign(dtype: DType) -> None:
    x = leaf(dtype)
    zero = UOp(Ops.CONST, dtype, (), 0.0)
    below, above = UOp(Ops.CMPLT, dtypes.bool, (x, zero)), UOp(Ops.CMPLT, dtypes.bool, (zero, x))
    inner = UOp(Ops.WHERE, dtype, (below, times(x, -1.0), UOp(Ops.MUL, dtype, (x, x))))
    node = lowered(UOp(Ops.WHERE, dtype, (above, x, inner)))
    assert {u.op for u in node.toposort() if u.op in GroupOp.ALU} == {Ops.AND}
    values = np.array([0.0, -0.0, 1.5, -1.5, INF, -INF, NAN, TINY, -TINY], NUMPY[dtype])
    result = evaluate(node, {x: values})
    np.testing.assert_array_equal(result, np.abs(values))
    assert not np.signbit(result[~np.isnan(result)]).any()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_saturating_functions_stay_within_one(name: str) -> None:
    far = np.linspace(2, 12, 400_001).astype(np.float32)
    result = evaluate(lowered(getattr(approx, name)(X)), {X: far})
    assert result.max() == 1.0
    assert (result[far > 9.3] == 1.0).all()
    np.testing.assert_array_equal(evaluate(lowered(getattr(approx, name)(X)), {X: -far}), -result)


@pytest.mark.parametrize("name", ["expm1", "log1p", "atan", "asin", "acos", "tanh", "erf"])
def test_composite_functions_in_float64(name: str) -> None:
    values = np.concatenate([np.linspace(-1, 1, 4001), 10.0 ** np.linspace(-20, 0, 1000)])
    known = {"expm1": np.expm1, "log1p": np.log1p, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos}
    exact = (known | {"tanh": np.tanh}).get(name, np.vectorize(math.erf))(values)
    assert worst(evaluate(lowered(getattr(approx, name)(XD)), {XD: values}), exact) <= 5


# ---- integers


@pytest.mark.parametrize("bounds", [(-9, 9), (0, 9), (-9, -1), (1, 9)], ids=str)
@pytest.mark.parametrize("divisors", [(-4, 4), (0, 4), (1, 4), (-4, -1), (-1, 4)], ids=str)
def test_floor_division_by_brute_force(bounds: tuple[int, int], divisors: tuple[int, int]) -> None:
    x, y = leaf(I32, 0, bounds), leaf(I32, 1, divisors)
    pairs = [(a, b) for a in range(bounds[0], bounds[1] + 1) for b in range(divisors[0], divisors[1] + 1)]
    arrays = {x: np.array([a for a, _ in pairs], np.int32), y: np.array([b for _, b in pairs], np.int32)}
    for op, definition in ((Ops.FLOORDIV, floordiv), (Ops.FLOORMOD, floormod)):
        result = evaluate(lowered(UOp(op, I32, (x, y))), arrays)
        assert result.tolist() == [definition(a, b) for a, b in pairs]


@pytest.mark.parametrize("divisor", [1, 2, 8, 3, 7, -1, -2, -5, 0])
@pytest.mark.parametrize("bounds", [(-40, 40), (0, 40)], ids=str)
def test_division_by_constants(divisor: int, bounds: tuple[int, int]) -> None:
    x = leaf(I32, 0, bounds)
    values = np.arange(bounds[0], bounds[1] + 1, dtype=np.int32)
    constant = UOp(Ops.CONST, I32, (), divisor)
    for op, definition in ((Ops.FLOORDIV, floordiv), (Ops.FLOORMOD, floormod)):
        for fast in (0, 1):
            with Context(DISABLE_FAST_IDIV=1 - fast):
                result = lowered(UOp(op, I32, (x, constant)))
            result = np.broadcast_to(evaluate(result, {x: values}), values.shape)
            assert result.tolist() == [definition(int(a), divisor) for a in values]


def test_powers_of_two_need_no_division() -> None:
    x = leaf(I32, 0, (-40, 40))
    eight = UOp(Ops.CONST, I32, (), 8)
    assert lowered(UOp(Ops.FLOORDIV, I32, (x, eight))).op is Ops.SHR
    assert lowered(UOp(Ops.FLOORMOD, I32, (x, eight))).op is Ops.AND
    positive = leaf(I32, 0, (0, 40))
    assert lowered(UOp(Ops.CDIV, I32, (positive, eight))).op is Ops.SHR
    assert lowered(UOp(Ops.CMOD, I32, (positive, eight))).op is Ops.AND


def test_bounded_operands_need_no_correction() -> None:
    x, y = leaf(I32, 0, (0, 40)), leaf(I32, 1, (1, 7))
    node = lowered(UOp(Ops.FLOORDIV, I32, (x, y)))
    assert (node.op, node.src) == (Ops.CDIV, (x, y))


def test_divisions_that_stop_a_processor_are_avoided() -> None:
    x, y = leaf(I32), leaf(I32, 1)
    for op in (Ops.CDIV, Ops.CMOD):
        node = lowered(UOp(op, I32, (x, y)))
        arrays = {x: np.array([-(2**31), -(2**31), 7, 7], np.int32), y: np.array([-1, 0, 0, 2], np.int32)}
        (division,) = [u for u in node.toposort() if u.op is op]
        divisors = evaluate(division.src[1], arrays)
        assert set(divisors.tolist()) <= {1, 2}
        expected = [-(2**31), 0, 0, 3] if op is Ops.CDIV else [0, -(2**31), 7, 1]
        assert evaluate(node, arrays).tolist() == expected


@pytest.mark.parametrize("divisor", [3, 7, 10, 641, 65535, 1_000_003])
def test_division_by_multiplication(divisor: int) -> None:
    x = leaf(dtypes.uint32)
    quotient = integer.multiply_shift(x, divisor)
    edges = [k * divisor + d for k in (0, 1, 2, 2**32 // divisor - 1) for d in (-1, 0, 1)]
    values = np.array([v for v in [*edges, 2**32 - 1, 2**31] if 0 <= v < 2**32], np.uint32)
    if quotient is None:  # the factor has 33 bits
        assert divisor in {7, 1_000_003}
        quotient = integer.multiply_shift(leaf(dtypes.uint32, 0, (0, 2**31)), divisor)
        values = values[values <= 2**31]
        x = next(u for u in quotient.toposort() if u.op is Ops.PARAM)
    assert evaluate(quotient, {x: values}).tolist() == [int(v) // divisor for v in values]


# ---- random numbers


def test_threefry_vectors_of_the_authors() -> None:
    counter, key = leaf(dtypes.uint64), leaf(dtypes.uint64, 1)
    node = lowered(UOp(Ops.THREEFRY, dtypes.uint64, (counter, key)))
    ones = 2**64 - 1
    arrays = {
        counter: np.array([0, ones, 0x85A308D3_243F6A88], np.uint64),
        key: np.array([0, ones, 0x03707344_13198A2E], np.uint64),
    }
    assert [f"{x:016x}" for x in evaluate(node, arrays).tolist()] == [
        "99ba4efe6b200159",
        "bb002be71cb996fc",
        "483df7a0c4923a9c",
    ]


# ---- narrow floats


def _critical_values(dtype) -> np.ndarray:
    """All values of a dtype, the middles between them, their neighbours, and what lies beyond."""
    bits = np.arange(1 << dtype.bitsize)
    own = np.array([from_storage_scalar(int(b), dtype) if dtype.fmt is None else 0 for b in bits], np.float32)
    if dtype is dtypes.float16:
        own = bits.astype(np.uint16).view(np.float16).astype(np.float32)
    finite = np.unique(own[np.isfinite(own)])
    middles = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)
    beyond = finite[-1] * np.array([1.001, 1.03, 1.0625, 1.2, 2], np.float32)
    around = [np.nextafter(middles, np.float32(s)) for s in (np.inf, -np.inf)]
    return np.concatenate([own, middles, *around, beyond, -beyond, [np.inf, -np.inf, np.nan, 0.0, -0.0]]).astype(
        np.float32
    )


@pytest.mark.parametrize("dtype", list(NARROW), ids=lambda d: d.full_name)
def test_rounding_to_a_narrow_dtype(dtype) -> None:
    values = _critical_values(dtype)
    if len(values) > 60_000:
        values = values[::7]
    result = evaluate(round_to(X, NARROW[dtype]), {X: values})
    expected = np.array([truncate[dtype](float(v)) for v in values], np.float32)
    np.testing.assert_array_equal(result, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[number]), np.signbit(expected[number]))
    bits = evaluate(encode(X, NARROW[dtype]), {X: result[number]})
    raw = [to_storage_scalar(float(v), dtype) for v in result[number]]
    raw = np.array(raw, np.float16).view(np.uint16).tolist() if dtype is dtypes.float16 else raw
    assert bits.tolist() == raw


@pytest.mark.parametrize("dtype", list(NARROW), ids=lambda d: d.full_name)
def test_every_bit_pattern_survives(dtype) -> None:
    layout = NARROW[dtype]
    stored = leaf(layout.storage)
    bits = np.arange(1 << dtype.bitsize, dtype=NUMPY[layout.storage])
    values = evaluate(decode(stored, layout), {stored: bits})
    if dtype is dtypes.float16:
        expected = bits.view(np.float16).astype(np.float32)
    else:
        expected = np.array([from_storage_scalar(int(b), dtype) for b in bits], np.float32)
    np.testing.assert_array_equal(values, expected)
    number = ~np.isnan(values)
    again = evaluate(encode(X, layout), {X: values[number]})
    np.testing.assert_array_equal(again, bits[number])
    nan_bits = evaluate(encode(X, layout), {X: np.array([np.nan], np.float32)})
    assert np.isnan(evaluate(decode(stored, layout), {stored: nan_bits})).all()


def test_double_to_half_is_rounded_once() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (halves[:-1] + halves[1:]) / 2
    values = np.concatenate([
        middles,
        middles * (1 + 2.0**-40),
        middles * (1 - 2.0**-40),
        [0.0, 1e-60, -1e-60, 1e300, np.inf],
    ])
    values = np.concatenate([values, -values])
    twice, once = values.astype(np.float32).astype(np.float16), values.astype(np.float16)
    assert (twice != once).sum() > 10_000, "the values would not show a second rounding"
    result = evaluate(to_f32_sticky(XD), {XD: values}).astype(np.float16)
    np.testing.assert_array_equal(result, once)
    assert np.isnan(evaluate(to_f32_sticky(XD), {XD: np.array([np.nan])})).all()


def test_kernel_on_emulated_memory() -> None:
    """bfloat16 buffers become uint16 buffers, and each operation is rounded."""
    bf16 = dtypes.bfloat16
    out, data = (UOp(Ops.PARAM, bf16, (), ParamArg(slot, bf16, (4,))) for slot in range(2))
    i = UOp.range(4, 0)
    value = UOp(Ops.MUL, bf16, (UOp(Ops.INDEX, bf16, (data, i)), UOp(Ops.CONST, bf16, (), 1.7)))
    store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, bf16, (out, i)), value))
    sink = UOp(Ops.SINK, dtypes.void, (UOp(Ops.END, dtypes.void, (store, i)),), KernelInfo())
    with Context(EMULATED_DTYPES="bfloat16"):
        result = decompose(sink, Device["PYTHON"].renderer)
    assert bf16 not in {u.dtype for u in result.toposort()}
    (stored,) = [u for u in result.toposort() if u.op is Ops.STORE]
    assert stored.src[0].dtype is dtypes.uint16
    (read,) = [u for u in stored.src[1].toposort() if u.op is Ops.INDEX]
    raw = np.array([to_storage_scalar(v, bf16) for v in (1.0, -3.0, 1e38, 0.1)], np.uint16)
    bits = evaluate(stored.src[1], {read: raw})
    factor = truncate[bf16](1.7)
    assert bits.tolist() == [to_storage_scalar(truncate[bf16](v) * factor, bf16) for v in (1.0, -3.0, 1e38, 0.1)]


# ---- what remains


@pytest.mark.parametrize("arch", ["", "minimal", "native"])
def test_only_declared_operations_remain(arch: str) -> None:
    x, i, j = X, leaf(I32), leaf(I32, 1)
    nodes = [
        *(unary(op, x) for op in (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.NEG)),
        *(UOp(op, F32, (x, Y)) for op in (Ops.POW, Ops.MAX, Ops.SUB, Ops.FDIV)),
        *(UOp(op, I32, (i, j)) for op in (Ops.POW, Ops.MAX, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD, Ops.SUB)),
        UOp(Ops.CMPEQ, dtypes.bool, (i, j)),
        unary(Ops.SIN, leaf(dtypes.float16)),
    ]
    with Context(DEV=f"PYTHON::{arch}"):
        renderer = Device["PYTHON"].renderer
        result = decompose(UOp(Ops.SINK, dtypes.void, tuple(nodes), KernelInfo()), renderer)
    remaining = {u.op for u in result.toposort() if u.op in GroupOp.ALU}
    assert remaining <= set(renderer.code_for_op)
    if arch == "native":
        assert Ops.SIN in remaining


def test_software_functions_can_be_forced() -> None:
    with Context(TRANSCENDENTAL=2, DEV="PYTHON::native"):
        assert Ops.SIN not in support_of(Device["PYTHON"].renderer).ops


def test_quotients_are_rounded_once() -> None:
    quotient = UOp(Ops.MUL, F32, (X, UOp(Ops.RECIPROCAL, F32, (Y,))))
    values = {X: np.arange(1, 200, dtype=np.float32), Y: np.arange(1, 200, dtype=np.float32) * 3}
    assert evaluate(lowered(quotient), values).tolist() == (values[X] / values[Y]).tolist()
    assert lowered(quotient, "minimal").op is Ops.MUL


def test_maximum_without_an_instruction() -> None:
    node = lowered(UOp(Ops.MAX, F32, (X, Y)), "minimal")
    pairs = np.array([(1, 2), (2, 1), (np.nan, 1), (1, np.nan), (np.inf, -np.inf)], np.float32)
    result = evaluate(node, {X: pairs[:, 0].copy(), Y: pairs[:, 1].copy()})
    np.testing.assert_array_equal(result, np.maximum(pairs[:, 0], pairs[:, 1]))


@pytest.mark.parametrize(
    ("missing", "instead"), [(F64, dtypes.float32), (F32, dtypes.float64), (I32, dtypes.int64)], ids=str
)
def test_missing_dtype_is_an_error_with_a_way_out(missing: DType, instead: DType) -> None:
    with (
        Context(EMULATED_DTYPES=missing.full_name),
        pytest.raises(DTypeError, match=rf"no {missing} .*cast the tensor .*such as {instead}$"),
    ):
        lowered(UOp(Ops.ADD, missing, (leaf(missing), leaf(missing, 1))))
