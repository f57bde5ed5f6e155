"""Random numbers: the fixed sequence, independence of the order of evaluation, ranges, JIT."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, dtypes

CHECK_VALUES: list[tuple[str, Callable[[], Tensor], Any]] = [
    ("rand", lambda: Tensor.rand(3), [0.53342068, 0.67015517, 0.76307893]),
    ("randn", lambda: Tensor.randn(3), [-0.36704475, 1.1842942, 0.73243183]),
    ("half", lambda: Tensor.rand(3, dtype=dtypes.float16), [0.17480469, 0.75488281, 0.37304688]),
    ("double", lambda: Tensor.rand(3, dtype=dtypes.float64), [0.00977549338, 0.11769953908, 0.37211034437]),
    ("randint", lambda: Tensor.randint(5), [3, 0, 1, 1, 5]),
    ("randperm", lambda: Tensor.randperm(6), [1, 2, 3, 5, 0, 4]),
]


@pytest.mark.parametrize(("make", "expected"), [row[1:] for row in CHECK_VALUES], ids=[row[0] for row in CHECK_VALUES])
def test_check_values(make: Callable[[], Tensor], expected: list[float]) -> None:
    Tensor.manual_seed(42)
    np.testing.assert_allclose(make().numpy().astype(np.float64), expected, rtol=2e-7)


def test_check_values_go_on() -> None:
    Tensor.manual_seed(42)
    Tensor.rand(3)
    np.testing.assert_allclose(Tensor.rand(3).numpy(), [0.85464787, 0.16020608, 0.77031136], rtol=1e-7)
    Tensor.manual_seed(0)
    expected = [[0.82807267, 0.62285089], [0.55728984, 0.58737242]]
    np.testing.assert_allclose(Tensor.rand(2, 2).numpy(), expected, rtol=1e-7)


def test_numbers_do_not_depend_on_the_order_of_evaluation() -> None:
    Tensor.manual_seed(3)
    forwards = [Tensor.rand(4).numpy() for _ in range(6)]
    for order in ([5, 4, 3, 2, 1, 0], [2, 5, 0, 1, 4, 3]):
        Tensor.manual_seed(3)
        made = [Tensor.rand(4) for _ in range(6)]
        read = {i: made[i].numpy() for i in order}
        for i, expected in enumerate(forwards):
            np.testing.assert_array_equal(read[i], expected)
    assert len({x.tobytes() for x in forwards}) == 6


def test_unused_numbers_are_skipped() -> None:
    Tensor.manual_seed(3)
    Tensor.rand(4), Tensor.rand(4)
    third = Tensor.rand(4).numpy()
    Tensor.manual_seed(3)
    expected = [Tensor.rand(4).numpy() for _ in range(3)][2]
    np.testing.assert_array_equal(third, expected)


def test_fresh_key_per_device_number() -> None:
    Tensor.manual_seed(7)
    first = Tensor.rand(3, device="CPU").numpy()
    second = Tensor.rand(3, device="PYTHON").numpy()
    Tensor.manual_seed(7)
    np.testing.assert_array_equal(Tensor.rand(3, device="PYTHON").numpy(), first)
    assert not np.array_equal(first, second)


FLOATS = [dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64, *dtypes.fp8s]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_is_in_the_half_open_interval(dtype: Any) -> None:
    Tensor.manual_seed(1)
    x = Tensor.rand(200_000, dtype=dtype).float().numpy()
    assert x.min() >= 0
    assert x.max() < 1
    steps = 2.0 ** -dtypes.finfo(dtype)[1]
    assert abs(x.mean() - (0.5 - steps / 2)) < 0.01


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16], ids=str)
def test_normal_is_finite(dtype: Any) -> None:
    Tensor.manual_seed(2)
    x = Tensor.randn(200_000, dtype=dtype).float().numpy()
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01


def test_distributions() -> None:
    Tensor.manual_seed(5)
    x = Tensor.randint(10_000, low=-3, high=4).numpy()
    assert sorted(set(x.tolist())) == [-3, -2, -1, 0, 1, 2, 3]
    assert np.bincount(x + 3).min() > 1200
    y = Tensor.uniform(10_000, low=-2.0, high=6.0).numpy()
    assert -2 <= y.min() < -1.9 < 5.9 < y.max() < 6
    assert abs(Tensor.normal(10_000, mean=4.0, std=0.5).numpy().std() - 0.5) < 0.02
    assert abs(Tensor.glorot_uniform(30, 20).numpy()).max() <= (6 / 50) ** 0.5
    assert abs(Tensor.kaiming_uniform(30, 20).numpy()).max() <= (6 / (1 + 1e-4) / 20) ** 0.5
    assert abs(Tensor.kaiming_normal(300, 20).numpy().std() - (2 / 20) ** 0.5) < 0.02
    assert abs(Tensor.scaled_uniform(10, 10).numpy()).max() <= 0.1
    assert sorted(Tensor.randperm(50).tolist()) == list(range(50))


def test_multinomial() -> None:
    Tensor.manual_seed(6)
    counts = np.bincount(Tensor.ones(4).multinomial(4000, replacement=True).numpy(), minlength=4)
    assert abs(counts - 1000).max() < 150
    assert sorted(Tensor.ones(100).multinomial(100).tolist()) == list(range(100))
    weights = Tensor([[0.0, 1.0, 0.0], [3.0, 0.0, 1.0]])
    drawn = weights.multinomial(2000, replacement=True).numpy()
    assert drawn.shape == (2, 2000)
    assert set(drawn[0]) == {1}
    assert abs((drawn[1] == 0).mean() - 0.75) < 0.05
    for bad in ({"num_samples": 0}, {"num_samples": 4}):
        with pytest.raises(AssertionError, match="multinomial"):
            weights.multinomial(**bad)


def test_like() -> None:
    x = Tensor.zeros(2, 3, dtype=dtypes.float16)
    assert (x.rand_like().shape, x.rand_like().dtype) == ((2, 3), dtypes.float16)
    assert x.randn_like(dtype=dtypes.float32).dtype == dtypes.float32
    assert Tensor.rand(0, 3).shape == (0, 3)
    assert Tensor.rand().shape == ()


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [(lambda: Tensor.rand(-1), ValueError, "sizes are ints"),
     (lambda: Tensor.rand(2, dtype="int32"), ValueError, "float"),
     (lambda: Tensor.rand(2, device=("CPU:1", "CPU:2")), ValueError, "devices"),
     (lambda: Tensor([1]).rand_like(), ValueError, "float"), (lambda: Tensor.randint(2, low=1.5), TypeError, "ints"),
     (lambda: Tensor.randint(2, low=3, high=3), ValueError, "low"),
     (lambda: Tensor.normal(2, std=-1), ValueError, "std"),
     (lambda: Tensor.randint(2, dtype="float32"), TypeError, "integer"),
     (lambda: Tensor(1.0).uop.rand(3), NotImplementedError, "no random state")],
)  # fmt: skip
def test_errors(make: Callable[[], Tensor], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_explicit_key_and_counter() -> None:
    Tensor.manual_seed(42)
    drawn = Tensor.rand(5).numpy()
    # The key of the first device: the low word of SHA-256 of four zero bytes, and the seed.
    import hashlib

    key = [int.from_bytes(hashlib.sha256(bytes(4)).digest()[-4:], "big"), 42]
    bits = Tensor.random_bits(Tensor(key, dtype=dtypes.uint32), Tensor([0, 0], dtype=dtypes.uint32), 5).numpy()
    np.testing.assert_array_equal(((bits >> 9) | 0x3F800000).view(np.float32) - 1, drawn)


# ---- JIT -----------------------------------------------------------------------------------------------------------


def two_draws(x: Tensor) -> Tensor:
    return (x + Tensor.rand(100) * 2 + Tensor.rand(100)).realize()


def test_replays_draw_new_numbers_and_the_same_as_without_jit() -> None:
    x = Tensor.zeros(100).realize()
    Tensor.manual_seed(1)
    expected = [two_draws(x).numpy() for _ in range(8)]
    after = Tensor.rand(3).numpy()
    Tensor.manual_seed(1)
    jitted = TinyJit(two_draws)
    results = [jitted(x).numpy() for _ in range(8)]
    assert len({r.tobytes() for r in results}) == 8
    for r, e in zip(results, expected, strict=True):
        np.testing.assert_array_equal(r, e)
    np.testing.assert_array_equal(Tensor.rand(3).numpy(), after)


def test_threads_draw_at_once() -> None:
    def draw(_: int) -> list[tuple[float, ...]]:
        return [tuple(Tensor.rand(3).tolist()) for _ in range(10)]

    for _ in range(3):
        with ThreadPoolExecutor(6) as pool:
            drawn = [numbers for part in pool.map(draw, range(6)) for numbers in part]
        assert len(set(drawn)) == 60


def test_a_program_of_one_thread_draws_the_same_numbers_in_any_thread() -> None:
    def draw() -> list[float]:
        Tensor.manual_seed(7)
        return [*Tensor.rand(3).tolist(), *Tensor.rand(3).tolist()]

    expected = draw()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(draw).result() == expected


def test_numbers_of_one_thread_computed_in_another() -> None:
    Tensor.manual_seed(7)
    expected = [Tensor.rand(3).tolist() for _ in range(4)]
    Tensor.manual_seed(7)
    drawn = [Tensor.rand(3) for _ in range(4)]
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(Tensor.tolist, drawn)] == expected
    assert Tensor.rand(3).tolist() not in expected


WIDE_SPANS = [
    ("int32", -(2**31), 2**31 - 1), ("int32", -(2**31), 2**31), ("int32", -(2**31), 2**30), ("uint32", 5, 2**32),
    ("int64", -(2**63), 2**63 - 1), ("int64", -(2**63), 2**63), ("int64", -(2**63), 2**62), ("uint64", 5, 2**64),
    ("int8", -128, 128), ("int16", -(2**15), 2**15), ("uint8", 0, 256),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "low", "high"), WIDE_SPANS)
def test_randint_is_uniform_over_spans_wider_than_the_positive_half(dtype: str, low: int, high: int) -> None:
    Tensor.manual_seed(1)
    numbers = Tensor.randint(4000, low=low, high=high, dtype=dtype).numpy()
    assert numbers.dtype == dtype
    parts, _ = np.histogram(numbers.astype(np.float64), bins=4, range=(float(low), float(high)))
    assert np.abs(parts - 1000).max() < 140  # five standard deviations


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int32", 0, 2**40), ("uint8", -5, 5), ("uint8", 0, 257), ("int8", 0, 129), ("uint64", -1, 5)],
)
def test_randint_refuses_bounds_beyond_the_dtype(dtype: str, low: int, high: int) -> None:
    with pytest.raises(ValueError, match=r"randint.*do not fit"):
        Tensor.randint(3, low=low, high=high, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "bound"),
    [("float32", 3e38), ("float16", 6e4), ("bfloat16", 3e38), ("float64", 1.5e308), ("fp8e5m2", 49152), ("int32", 2e9)],
)
def test_uniform_whose_span_overflows_is_uniform_and_finite(dtype: str, bound: float) -> None:
    Tensor.manual_seed(1)
    shares = Tensor.uniform(4000, low=-bound, high=bound, dtype=dtype).cast("float64").numpy() / bound
    assert np.isfinite(shares).all()
    parts, _ = np.histogram(shares, bins=2, range=(-1.01, 1.01))
    assert parts.sum() == 4000
    assert np.abs(parts - 2000).max() < 600  # fp8 has few numbers
