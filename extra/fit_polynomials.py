"""Fit the polynomials of codegen/decomp and mixin/approx.py, with coefficients rounded to the dtype.

In:   a function, an interval, a degree and a weight, in mpmath's arithmetic.
Out:  printed coefficients, to be compared with the tables in the source: ``python extra/fit_polynomials.py``.
Why:  the tables in the source can be checked and made again.

The fit is weighted least squares at Chebyshev nodes, which is close to minimax. Coefficients are rounded one after the
other from the lowest degree up, and the remaining ones are fitted again, so that the rounding of the early ones, which
matter most, is made good by the later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mpmath as mp
import numpy as np

mp.mp.dps = 50


def weighted_fit(f: Callable, a: mp.mpf, b: mp.mpf, powers: list[int], weight: Callable, nodes: int = 120) -> list:
    """Return the coefficients of ``powers`` that minimise the squares of weight(x) * (f(x) - p(x)) at Chebyshev nodes.

    At these nodes the least-squares fit is within a small factor of the minimax polynomial.
    """
    xs = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / nodes) for k in range(nodes)]
    rows = [[weight(x) * x**power for power in powers] for x in xs]
    right = [weight(x) * f(x) for x in xs]
    n = len(powers)
    normal = mp.matrix(n, n)
    vector = mp.matrix(n, 1)
    for i in range(n):
        vector[i] = mp.fsum(row[i] * value for row, value in zip(rows, right, strict=True))
        for j in range(n):
            normal[i, j] = mp.fsum(row[i] * row[j] for row in rows)
    return list(mp.lu_solve(normal, vector))


def fit(name: str, f: Callable, a: float, b: float, powers: list[int], weight: Callable, rounding: Callable) -> None:
    """Print rounded coefficients and the largest weighted error as a power of two."""
    fixed: list = []
    for k in range(len(powers)):

        def rest(x: float) -> float:
            return f(x) - sum(mp.mpf(c) * x**p for c, p in zip(fixed, powers, strict=False))

        fixed.append(rounding(float(weighted_fit(rest, mp.mpf(a), mp.mpf(b), powers[k:], weight)[0])))
    xs = [mp.mpf(a) + (mp.mpf(b) - mp.mpf(a)) * k / 1000 for k in range(1001)]
    values = [sum(mp.mpf(c) * x**power for c, power in zip(fixed, powers, strict=True)) for x in xs]
    worst = max(abs(weight(x) * (f(x) - value)) for x, value in zip(xs, values, strict=True))
    print(f"# {name}: largest error 2**{float(mp.log(worst, 2)):.1f}")  # noqa: T201
    print(f"{name} = ({', '.join(c.hex() for c in fixed)})")  # noqa: T201


def fit_quotient(
    name: str, f: Callable, a: float, b: float, size: tuple[int, int], weight: Callable, first: tuple[float, float]
) -> None:
    """Print the float32 coefficients of p and q in f(x) = p(x*x) / q(x*x).

    The squares of weight(x) * (q(x*x) * f(x) - p(x*x)) / q(x*x) are minimised, with the q of the last round as the
    divisor. Nodes are those of x, so that they are dense where x*x is small.

    Args:
        name: Of the table.
        f: The function of x.
        a: Lower end.
        b: Upper end.
        size: How many coefficients p and q have.
        weight: Of the relative error.
        first: The lowest coefficients.
    """
    nodes = 70
    middle, half = (mp.mpf(b) + mp.mpf(a)) / 2, (mp.mpf(b) - mp.mpf(a)) / 2
    xs = [middle + half * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / nodes) for k in range(nodes)]
    values, weights = [f(x) for x in xs], [weight(x) for x in xs]
    fixed = {(0, 0): mp.mpf(first[0]), (1, 0): mp.mpf(first[1])}  # (part, power of x*x) -> coefficient

    def side(part: int, x: mp.mpf, power: int, value: mp.mpf) -> mp.mpf:
        return x ** (2 * power) * (1 if part == 0 else -value)

    def solve() -> dict:
        free = [(part, power) for power in range(max(size)) for part in (1, 0) if power < size[part]]
        free = [key for key in free if key not in fixed]
        divisors, result = [fixed[1, 0]] * nodes, dict(fixed)
        for _ in range(5):
            rows, right = [], []
            for x, value, scale, divisor in zip(xs, values, weights, divisors, strict=True):
                rows.append([side(part, x, power, value) * scale / divisor for part, power in free])
                known = mp.fsum(side(part, x, power, value) * c for (part, power), c in fixed.items())
                right.append(-known * scale / divisor)
            columns = list(zip(*rows, strict=True))
            normal = mp.matrix([[mp.fdot(u, v) for v in columns] for u in columns])
            solution = mp.lu_solve(normal, mp.matrix([mp.fdot(u, right) for u in columns]))
            result.update(zip(free, solution, strict=True))
            divisors = [mp.fsum(result[1, k] * x ** (2 * k) for k in range(size[1])) for x in xs]
        return result

    while len(fixed) < sum(size):
        found = solve()
        key = next(key for key in found if key not in fixed)
        fixed[key] = mp.mpf(f32(float(found[key])))
    for part, count in enumerate(size):
        digits = ", ".join(float(fixed[part, k]).hex() for k in range(count))
        print(f"{name}[{part}] = ({digits})")  # noqa: T201


def f32(x: float) -> float:
    """Round to float32."""
    return float(np.float32(x))


def main() -> None:
    """Print every table."""
    ln2 = mp.log(2)

    def at0(f: Callable, limit: mp.mpf) -> Callable:
        return lambda x: limit if abs(x) < mp.mpf(2) ** -60 else f(x)

    # 2**r = 1 + r * p(r)
    exp2_tail = at0(lambda r: mp.expm1(r * ln2) / r, ln2)
    fit("EXP2_F32", exp2_tail, -0.5, 0.5, list(range(6)), lambda r: abs(r) + mp.mpf(2) ** -10, f32)
    fit("EXP2_F64", exp2_tail, -0.5, 0.5, list(range(12)), lambda r: abs(r) + mp.mpf(2) ** -10, float)

    # log2(1+f) = f * log2(e) + f*f * p(f)
    def log2_tail(f):
        if abs(f) < mp.mpf(2) ** -20:
            return (-mp.mpf(1) / 2 + f / 3 - f * f / 4 + f**3 / 5) / ln2
        return (mp.log1p(f) - f) / (f * f) / ln2

    third = mp.mpf(1) / 3
    fit("LOG2_F32", log2_tail, -third, third, list(range(10)), lambda f: abs(f) + mp.mpf(2) ** -10, f32)
    # log(1+f) = f + f*f * p(f)
    fit(
        "LOG_F32", lambda f: log2_tail(f) * ln2, -third, third, list(range(8)), lambda f: abs(f) + mp.mpf(2) ** -10, f32
    )
    # atanh: log(m) = 2s + 2s^3 p(s*s), s = (m-1)/(m+1), scaled by log2(e)
    z_hi = (3 - 2 * mp.sqrt(2)) ** 2

    def atanh_tail(z):
        if z < mp.mpf(2) ** -40:
            return 2 / ln2 / 3
        s = mp.sqrt(z)
        return (2 * mp.atanh(s) - 2 * s) / (s * z) / ln2

    fit("LOG2_F64", atanh_tail, 0, z_hi, list(range(8)), lambda z: z + mp.mpf(2) ** -10, float)
    # sin(r) = r + r*z*p(z), cos(r) = 1 - z/2 + z*z*p(z), z = r*r
    q = (mp.pi / 4 + mp.mpf(2) ** -12) ** 2

    def sin_tail(z):
        if z < mp.mpf(2) ** -30:
            return -mp.mpf(1) / 6 + z / 120
        r = mp.sqrt(z)
        return (mp.sin(r) - r) / (r * z)

    def cos_tail(z):
        if z < mp.mpf(2) ** -24:
            return mp.mpf(1) / 24 - z / 720
        return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / (z * z)

    def weight(z: mp.mpf) -> mp.mpf:
        return z + mp.mpf(2) ** -10

    fit("SIN_F32", sin_tail, 0, q, list(range(3)), weight, f32)
    fit("COS_F32", cos_tail, 0, q, list(range(3)), lambda z: z * z + mp.mpf(2) ** -10, f32)
    fit("SIN_F64", sin_tail, 0, q, list(range(6)), weight, float)
    fit("COS_F64", cos_tail, 0, q, list(range(6)), lambda z: z * z + mp.mpf(2) ** -10, float)
    fit_power()
    fit_composite_functions()


def fit_power() -> None:
    """The tables of codegen/decomp/power.py: log2(m) = s * (a + z * (b + z * p(z)))."""
    ln2 = mp.log(2)
    a, b = 2 / ln2, 2 / ln2 / 3

    def tail(z):
        if z < mp.mpf(2) ** -24:
            return a / 5 + a * z / 7 + a * z * z / 9
        s = mp.sqrt(z)
        return (2 * mp.atanh(s) / ln2 - a * s - b * s * z) / (s * z * z)

    for name, count, rounding in (("F32", 4, f32), ("F64", 9, float)):
        for letter, exact in (("A", a), ("B", b)):
            high = rounding(float(exact))
            print(f"{letter}_{name} = ({high.hex()}, {rounding(float(exact - mp.mpf(high))).hex()})")  # noqa: T201
        z_hi = (3 - 2 * mp.sqrt(2)) ** 2
        fit(f"POWER_{name}", tail, 0, z_hi, list(range(count)), lambda z: z * z + mp.mpf(2) ** -20, rounding)


def fit_composite_functions() -> None:
    """The tables of mixin/approx.py."""
    small = mp.mpf(2) ** -10

    def expm1_tail(x):  # expm1(x) = x * (1 + x * p(x)), |x| <= 1
        return mp.mpf(1) / 2 + x / 6 if abs(x) < mp.mpf(2) ** -40 else (mp.expm1(x) / x - 1) / x

    def log1p_share(u):  # log1p(x) = x * p(x - 1/2), 0 <= x <= 1
        x = u + mp.mpf(1) / 2
        return mp.log1p(x) / x if x > mp.mpf(2) ** -60 else 1 - x / 2

    def atan_tail(z):  # atan(t) = t * (1 + z * p(z)), z = t*t <= 1
        return -mp.mpf(1) / 3 + z / 5 if z < mp.mpf(2) ** -60 else (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

    def asin_tail(z):  # asin(t) = t * (1 + z * p(z)), z = t*t <= 1/4
        return mp.mpf(1) / 6 + 3 * z / 40 if z < mp.mpf(2) ** -60 else (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

    def erf_head(z):  # erf(x) = x * p(z), z = x*x <= 1
        return 2 / mp.sqrt(mp.pi) if z < mp.mpf(2) ** -120 else mp.erf(mp.sqrt(z)) / mp.sqrt(z)

    def _tail_weight(shift, floor, t):
        return mp.erfc(t + shift) + floor

    def erf_tail(shift, t):  # 1 - erf(x) = 2 ** p(x - shift)
        return mp.log(mp.erfc(t + shift), 2)

    def normal_tail(c, u):  # the normal distribution function of -a is exp(-a*a/2) * t * p(t - 1/2), t = 1 / (1 + c*a)
        t = u + mp.mpf(1) / 2
        a = (1 / t - 1) / c
        return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2) / t

    def normal_weight(c, u):
        return 1 / normal_tail(c, u)

    for name, bits, rounding in (("F32", 24, f32), ("F64", 53, float)):
        wide = bits == 53
        c, end = (mp.mpf("0.1875"), 40) if wide else (mp.mpf("0.375"), 15)
        low, degrees = 1 / (1 + c * end) - mp.mpf(1) / 2, list(range(24 if wide else 11))
        fit(f"NORMAL_{name}", partial(normal_tail, c), low, 0.5, degrees, partial(normal_weight, c), rounding)
        fit(f"EXPM1_{name}", expm1_tail, -1, 1, list(range(15 if wide else 8)), lambda x: abs(x) + small, rounding)
        fit(f"ATAN_{name}", atan_tail, 0, 1, list(range(21 if wide else 10)), lambda z: z + small, rounding)
        fit(f"ASIN_{name}", asin_tail, 0, 0.25, list(range(13 if wide else 6)), lambda z: z + small, rounding)
    fit("LOG1P_F32", log1p_share, -0.5, 0.5, list(range(10)), lambda u: 1 / log1p_share(u), f32)
    fit("ERF_HEAD_F64", erf_head, 0, 1, list(range(13)), lambda z: mp.mpf(1), float)
    end = mp.mpf(6)
    shift = (end + 1) / 2
    tail_weight = partial(_tail_weight, shift, mp.mpf(2) ** -35)
    fit("ERF_TAIL_F64", partial(erf_tail, shift), 1 - shift, end - shift, list(range(20)), tail_weight, float)
    fit_quotients()


def fit_quotients() -> None:
    """The tables of ``_from_half``: x * p(x*x) / q(x*x) is the t whose 2t / (1 + t*t) is tanh(x) or erf(x).

    The lowest coefficients are such that what is multiplied near 0 is just below a power of two, where rounding costs
    least, and that their quotient is exact (tanh) or nearly so (erf).
    """

    def half_tanh(x):
        return mp.tanh(x / 2) / x

    def half_erf(x):
        rest = mp.erfc(x)
        return (1 - rest) / (1 + mp.sqrt(rest * (2 - rest))) / x

    def weight(f, x):  # how much of the relative error of t the result has
        t = f(x) * x
        return ((1 - t * t) / (1 + t * t) + mp.mpf(2) ** -12) / f(x)

    fit_quotient("TANH_F32", half_tanh, 0, 9.2, (3, 4), partial(weight, half_tanh), (0.875, 1.75))
    divisor = float.fromhex("0x1.b841c0p+0")
    fit_quotient(
        "ERF_F32", half_erf, 0, 3.95, (4, 5), partial(weight, half_erf), (f32(divisor / float(mp.sqrt(mp.pi))), divisor)
    )


if __name__ == "__main__":
    main()
