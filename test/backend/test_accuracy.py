"""Math functions and activations: the error that their docstrings state, in ulp, over the whole range of every float.

float32 is sampled by bit patterns, float64 against mpmath, half and bfloat16 completely. A few large kernels compute
the results of all functions.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from test.helpers_alu import ulps
from tinygrad import Device, Tensor, dtypes
from tinygrad.dtype import DType

Array = np.ndarray
INTERPRETED = Device.DEFAULT == "PYTHON"


@pytest.fixture(autouse=True)
def quiet_numpy():
    """Infinities, NaN and overflow are what these tests are about."""
    with np.errstate(all="ignore"):
        yield


def _finite_only(f: Callable[[float], float]) -> Callable[[Array], Array]:
    return np.vectorize(lambda x: f(x) if math.isfinite(x) else math.nan, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x > 0, 1 / (1 + e), e / (1 + e))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _bounded(x: Array) -> Array:
    """Below, these activations are 0; an infinity times that 0 would be NaN."""
    return np.maximum(x, -1e4)


def _mish(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    negative, positive = (e * e + 2 * e) / (e * e + 2 * e + 2), (1 + 2 * e) / (1 + 2 * e + 2 * e * e)
    return _bounded(x) * np.where(x > 0, positive, negative)


def _gelu_tanh(x: Array) -> Array:
    return _bounded(x) * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def _gelu(x: Array) -> Array:
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    return _bounded(x) * 0.5 * erfc(-x * math.sqrt(0.5))


# name -> (the function in float64, largest error in float32, in float64), in ulp
EXACT: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "exp": (np.exp, 0.9, 0.9),
    "exp2": (np.exp2, 0.9, 0.9),
    "expm1": (np.expm1, 1.8, 1.8),
    "log": (np.log, 1.5, 2.8),
    "log2": (np.log2, 1.0, 2.5),
    "log10": (np.log10, 2.2, 2.8),
    "log1p": (np.log1p, 2.0, 3.0),
    "sin": (_finite_only(math.sin), 1.1, 1.1),
    "cos": (_finite_only(math.cos), 1.1, 1.1),
    "tan": (_finite_only(math.tan), 2.7, 2.7),
    "asin": (np.arcsin, 2.8, 2.8),
    "acos": (np.arccos, 2.2, 2.2),
    "atan": (np.arctan, 1.9, 1.9),
    "sinh": (np.sinh, 3.0, 3.0),
    "cosh": (np.cosh, 2.5, 2.5),
    "tanh": (np.tanh, 4.0, 4.0),
    "asinh": (np.arcsinh, 2.8, 3.5),
    "acosh": (np.arccosh, 3.1, 3.1),
    "atanh": (np.arctanh, 2.9, 4.0),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 4.0, 4.5),
    "sqrt": (np.sqrt, 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5, 1.5),
    "reciprocal": (lambda x: 1 / x, 0.5, 0.5),
    "square": (lambda x: x * x, 0.5, 0.5),
    "sigmoid": (_sigmoid, 2.4, 2.4),
    "softplus": (_softplus, 2.6, 4.2),
    "logsigmoid": (lambda x: -_softplus(-x), 2.6, 4.2),
    "mish": (_mish, 4.3, 4.3),
    "swish": (lambda x: _bounded(x) * _sigmoid(x), 3.0, 3.0),
    "gelu_erf": (_gelu, 6.0, 6.0),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(x)), 1.8, 1.8),
    "celu": (lambda x: np.where(x > 0, x, np.expm1(x)), 1.8, 1.8),
    "selu": (lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * np.expm1(x)), 4.1, 4.1),
    "softsign": (lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))), 1.5, 1.5),
    "hardswish": (lambda x: np.maximum(x, -3) * np.clip(x + 3, 0, 6) / 6, 2.6, 2.6),
    "hardsigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), 1.5, 1.5),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), 1.0, 1.0),
    # The argument of the exponential is rounded, so the error grows with it: see ``allowance``.
    "quick_gelu": (lambda x: _bounded(x) * _sigmoid(1.702 * x), 3.0, 3.0),
    "gelu": (_gelu_tanh, 4.0, 4.0),
}
GROWTH = {"quick_gelu": lambda x: 2 * np.abs(x), "gelu": lambda x: 2 * x * x}
METHOD = {"gelu_erf": lambda x: x.gelu("none")}


def apply(name: str, x: Any) -> Any:
    return METHOD[name](x) if name in METHOD else getattr(x, name)()


def compute_all(values: Array, dtype: DType | None = None) -> dict[str, Array]:
    x = Tensor(values) if dtype is None else Tensor(values).cast(dtype)
    x = x.contiguous().realize()
    results = {name: apply(name, x) for name in EXACT}
    Tensor.realize(*results.values())
    return {name: result.numpy() for name, result in results.items()}


# ---- float32 -------------------------------------------------------------------------------------------------------


@functools.cache
def float32_samples() -> Array:
    """Every sign and exponent with its neighbours, random bit patterns, and the ranges where functions are curved."""
    rng = np.random.default_rng(17)
    count = 500 if INTERPRETED else 120_000
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
    edges = np.arange(0, 1 << 32, 1 << 23, dtype=np.uint64)[:: 16 if INTERPRETED else 1]
    patterns = np.concatenate([bits, edges, edges + 1, edges[1:] - 1]).astype(np.uint32)
    usual = [rng.uniform(-size, size, count // 6) for size in (1, 4, 20, 130, 1e5)]
    near_one = 1 + rng.uniform(-1, 1, count // 6) * 10.0 ** rng.uniform(-7, 0, count // 6)
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 0.5, -0.5]
    return np.concatenate([patterns.view(np.float32), *usual, near_one, -near_one, special]).astype(np.float32)


@functools.cache
def float32_results() -> dict[str, Array]:
    return compute_all(float32_samples())


def assert_signs_of_zeros(result: Array, expected: Array) -> None:
    zeros = (result == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("name", list(EXACT))
def test_float32(name: str) -> None:
    function, bound, _ = EXACT[name]
    values, result = float32_samples(), float32_results()[name]
    expected = function(values.astype(np.float64))
    error = ulps(result, expected)
    if name in GROWTH:
        error = error - np.where(np.isfinite(values), GROWTH[name](values.astype(np.float64)), 0)
    at = int(np.argmax(error))
    assert error[at] <= bound, f"{name}({values[at]!r}) = {result[at]!r}, exactly {expected[at]!r}"
    assert_signs_of_zeros(result, expected)


@pytest.mark.parametrize("name", list(EXACT))
def test_docstring_states_the_error(name: str) -> None:
    function = getattr(Tensor, "gelu" if name == "gelu_erf" else name)
    if name == "square":
        return
    _, single, double = EXACT[name]
    stated = re.findall(r"(?:Error:|in float64|exactly,) ([0-9.]+)(?: \+ [^u]*)? ulp", function.__doc__)
    numbers = [float(x) for x in stated]
    assert {single, double} <= set(numbers), f"{name} states {stated}"


# ---- float64 -------------------------------------------------------------------------------------------------------


def double_references() -> dict[str, Callable[[Any], Any]]:
    """The functions in mpmath; a complex or undefined result is NaN."""
    import mpmath
    from mpmath import mpf

    def wide(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            with mpmath.workprec(1300):
                return f(x) if mpmath.isfinite(x) else mpf("nan")

        return run

    def between(low: float, high: float, f: Callable[[Any], Any], above: Any = "nan") -> Callable[[Any], Any]:
        """Return 0 below, the identity (or NaN) above, f between."""
        return lambda x: f(x) if low <= x <= high else mpf(0) if x < low else x if above == "x" else mpf(above)

    def logistic(x: Any) -> Any:
        return 1 / (1 + mpmath.exp(-x))

    root = mpmath.sqrt(2 / mpmath.pi)
    return {
        "exp": mpmath.exp,
        "exp2": lambda x: mpf(2) ** x,
        "expm1": mpmath.expm1,
        "log": mpmath.log,
        "log2": lambda x: mpmath.log(x) / mpmath.log(2),
        "log10": lambda x: mpmath.log(x) / mpmath.log(10),
        "log1p": mpmath.log1p,
        "sin": wide(mpmath.sin),
        "cos": wide(mpmath.cos),
        "tan": wide(mpmath.tan),
        "asin": mpmath.asin,
        "acos": mpmath.acos,
        "atan": mpmath.atan,
        "sinh": mpmath.sinh,
        "cosh": mpmath.cosh,
        "tanh": mpmath.tanh,
        "asinh": lambda x: mpmath.sign(x) * mpmath.asinh(abs(x)),
        "acosh": mpmath.acosh,
        "atanh": mpmath.atanh,
        "erf": mpmath.erf,
        "sqrt": mpmath.sqrt,
        "rsqrt": lambda x: 1 / mpmath.sqrt(x),
        "sigmoid": between(-800, 800, logistic, "1"),
        "softplus": between(-800, 800, lambda x: mpmath.log1p(mpmath.exp(x)), "x"),
        "logsigmoid": lambda x: -between(-800, 800, lambda y: mpmath.log1p(mpmath.exp(y)), "x")(-x),
        "mish": between(-800, 800, lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))), "x"),
        "swish": between(-800, 800, lambda x: x * logistic(x), "x"),
        "gelu_erf": between(-100, 100, lambda x: x * mpmath.ncdf(x), "x"),
        "gelu": between(-100, 100, lambda x: x * logistic(2 * root * (x + mpf(0.044715) * x**3)), "x"),
        "elu": lambda x: x if x > 0 else mpmath.expm1(x),
        "softsign": lambda x: x / (1 + abs(x)),
    }


@functools.cache
def float64_samples() -> Array:
    rng = np.random.default_rng(19)
    count = 20 if INTERPRETED else 120
    patterns = rng.integers(0, 1 << 64, 2 * count, dtype=np.uint64).view(np.float64)
    usual = [rng.uniform(-size, size, count) for size in (1, 4, 20, 130, 1e3, 1e9)]
    near = [rng.choice([-1, 1], count) + rng.uniform(-1, 1, count) * 10.0 ** rng.uniform(-15, 0, count)]
    tiny = rng.choice([-1, 1], count) * 10.0 ** rng.uniform(-30, 2, count)
    special = [5e-324, -5e-324, 1e-310, 1.0, -1.0, 0.5, -0.5, 1.7e308, -1.7e308, 1e22]
    values = np.concatenate([patterns, *usual, *near, tiny, special])
    return values[np.isfinite(values)]


@functools.cache
def float64_results() -> dict[str, Array]:
    return compute_all(float64_samples())


SIMPLE = {"reciprocal", "square", "celu", "selu", "hardswish", "hardsigmoid", "leaky_relu", "quick_gelu"}


@pytest.mark.parametrize("name", [name for name in EXACT if name not in SIMPLE])
def test_float64(name: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    result, worst = float64_results()[name], (0.0, 0.0, 0.0)
    function, bound = double_references()[name], EXACT[name][2]
    with mpmath.workprec(140):
        for x, got in zip(float64_samples().tolist(), result.tolist(), strict=True):
            try:
                exact = function(mpmath.mpf(x))
                nearest = math.nan if isinstance(exact, mpmath.mpc) else float(exact)
            except OverflowError:  # larger than every float64
                nearest = math.copysign(math.inf, exact)
            except ZeroDivisionError:
                nearest = math.inf
            if math.isfinite(nearest) and math.isfinite(got):
                error = float(abs(mpmath.mpf(got) - exact) / math.ulp(nearest))
                error -= float(GROWTH[name](x)) if name in GROWTH else 0.0
            else:
                error = 0.0 if got == nearest or (got != got and nearest != nearest) else math.inf
            worst = max(worst, (error, x, got))
    assert worst[0] <= bound, f"{name}({worst[1]!r}) = {worst[2]!r}: {worst[0]} ulp"


def test_float64_special_values() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0])
    for name, result in compute_all(values).items():
        expected = EXACT[name][0](values)
        np.testing.assert_allclose(result, expected, rtol=1e-15, atol=1e-16, err_msg=name)
        assert_signs_of_zeros(result, expected)


# ---- narrow floats: every value ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.full_name)
def test_narrow_floats_are_rounded_once_more(dtype: DType) -> None:
    """float32 has so many more bits that the result is almost always the nearest one, and never off by a unit."""
    bits = np.arange(0, 1 << 16, 257 if INTERPRETED else 1).astype(np.uint16)
    mantissa = 10 if dtype is dtypes.float16 else 7
    values = bits.view(np.float16).astype(np.float32) if dtype is dtypes.float16 else _from_bfloat16(bits)
    for name, result in compute_all(values, dtype).items():
        exact = EXACT[name][0](values.astype(np.float64))
        if name in GROWTH:  # at the far end float32 itself is off by more than the rest of this test allows
            exact = np.where(np.abs(values) < 4, exact, result)
        nearest = Tensor(exact).cast(dtype).float().numpy()
        result = result.astype(np.float32)
        exponent = np.maximum(np.frexp(nearest)[1] - 1, -14 if dtype is dtypes.float16 else -126)
        unit = np.where(np.isfinite(nearest), 2.0 ** (exponent - mantissa), 1.0)
        close = np.abs(result.astype(np.float64) - exact) <= unit * 0.51
        same = (result == nearest) | (np.isnan(result) & np.isnan(nearest))
        wrong = ~(close | same)
        assert not wrong.any(), f"{name}({values[wrong][:3]}) = {result[wrong][:3]}, exactly {exact[wrong][:3]}"


def _from_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


# ---- two operands --------------------------------------------------------------------------------------------------


def test_power_of_variables() -> None:
    rng = np.random.default_rng(23)
    count = 300 if INTERPRETED else 60_000
    special = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, np.inf, -np.inf, np.nan, 1e-40, 3e38])
    grid = [x.ravel() for x in np.meshgrid(special, special)]
    bases = np.concatenate([np.exp(rng.uniform(-80, 80, count)), rng.uniform(-3, 3, count), grid[0]]).astype(np.float32)
    exponents = np.concatenate([rng.uniform(-2, 2, count), rng.integers(-40, 40, count), grid[1]]).astype(np.float32)
    result = Tensor(bases).pow(Tensor(exponents)).numpy()
    exact = np.power(bases.astype(np.float64), exponents.astype(np.float64))
    assert ulps(result, exact).max() <= 0.6
    assert_signs_of_zeros(result, exact)


@pytest.mark.parametrize("exponent", [2, 3, -1, -2, 0.5, -0.5, 1.5, 7, 16, 100, 2.3, -7.7, 0, 1e10])
def test_power_of_a_constant(exponent: float) -> None:
    """Small integers and halves are multiplied out; the rest is one function."""
    exponent = float(np.float32(exponent))
    x = np.random.default_rng(29).uniform(0.3, 3, 200 if INTERPRETED else 20_000).astype(np.float32)
    exact = np.power(x.astype(np.float64), exponent)
    bound = abs(exponent) + 1 if abs(exponent) <= 16 and (2 * exponent).is_integer() else 0.6
    assert ulps((Tensor(x) ** exponent).numpy(), exact).max() <= bound
    exact = np.power(exponent, x.astype(np.float64))
    bound = 1.4 if exponent > 0 else 0.6
    assert ulps((exponent ** Tensor(x)).numpy(), exact).max() <= bound


def test_logaddexp_and_quotients() -> None:
    rng = np.random.default_rng(31)
    count = 300 if INTERPRETED else 60_000
    x, y = (rng.normal(size=count) * 10.0 ** rng.uniform(-3, 2.5, count) for _ in range(2))
    x, y = x.astype(np.float32), y.astype(np.float32)
    sum_, quotient = Tensor(x).logaddexp(Tensor(y)), Tensor(x) / Tensor(y)
    Tensor.realize(sum_, quotient)
    exact = np.logaddexp(x.astype(np.float64), y.astype(np.float64))
    # Where the terms cancel, the error is relative to the larger one.
    scale = np.spacing(np.maximum(np.abs(exact), np.maximum(np.abs(x), np.abs(y))).astype(np.float32))
    assert (np.abs(sum_.numpy() - exact) / scale).max() <= 4
    assert ulps(quotient.numpy(), x.astype(np.float64) / y).max() <= 0.5


# ---- gradients far out ---------------------------------------------------------------------------------------------

FAR = np.array([-np.inf, -1e30, -300, -100, -20, 20, 100, 300, 1e30, np.inf], np.float32)
# Derivatives at the infinities, where they are not 0 and 1 or torch gives NaN: (at -inf, at inf)
LIMITS = {
    "relu": (0, 1), "relu6": (0, 0), "hardtanh": (0, 0), "hardswish": (0, 1), "hardsigmoid": (0, 0),
    "leaky_relu": (0.01, 1), "sigmoid": (0, 0), "tanh": (0, 0), "elu": (0, 1), "celu": (0, 1), "softplus": (0, 1),
    "logsigmoid": (1, 0), "mish": (0, 1), "swish": (0, 1), "gelu": (0, 1), "gelu_erf": (0, 1), "softsign": (0, 0),
    "erf": (0, 0), "atan": (0, 0), "asinh": (0, 0), "exp": (0, np.inf), "exp2": (0, np.inf), "expm1": (0, np.inf),
    "abs": (-1, 1), "quick_gelu": (0, 1),
}  # fmt: skip
TORCH: dict[str, Callable[[Any], Any]] = {
    name: getattr(torch.nn.functional, name, None) or getattr(torch, name, None)
    for name in LIMITS if name not in {"swish", "gelu", "gelu_erf", "leaky_relu", "quick_gelu"}
}  # fmt: skip
TORCH |= {
    "swish": torch.nn.functional.silu,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_erf": torch.nn.functional.gelu,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


def test_gradients_far_out() -> None:
    """Finite and right at +-300 and at the infinities. torch in float64 tells the rest."""
    x = Tensor(FAR).realize()
    slopes = {name: apply(name, x).sum().gradient(x)[0] for name in LIMITS}
    Tensor.realize(*slopes.values())
    for name, (low, high) in LIMITS.items():
        y = torch.tensor(FAR[1:-1].astype(np.float64), requires_grad=True)
        TORCH[name](y).sum().backward()
        middle = y.grad.numpy().astype(np.float32)
        if name in {"mish", "swish", "gelu", "gelu_erf", "quick_gelu", "softsign"}:
            middle = np.where(FAR[1:-1] < -1e20, 0, middle)  # torch multiplies an infinity with 0
        expected = np.array([low, *middle, high], np.float32)
        np.testing.assert_allclose(slopes[name].numpy(), expected, rtol=2e-5, atol=2e-7, err_msg=name)
