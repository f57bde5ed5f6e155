"""One test for each row of the list of intended differences: what is right here where users have reported a fault.

The names follow the topics of the list: values, indexing, random numbers, TinyJit, other programs, use.
"""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Context, Device, Tensor, TinyJit, Variable, dtypes
from tinygrad.engine.jit import JitError
from tinygrad.errors import ShapeError
from tinygrad.nn.state import safe_load, safe_save, torch_load

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(0)
PATHS = ["folded", "computed", "PYTHON"]


def on_path(path: str, values: Any, dtype: Any = None) -> Tensor:
    """Return values as constants, in memory, or in memory of the PYTHON device."""
    if path == "folded":
        parts = [Tensor(v, dtype=dtype) for v in values]
        return Tensor.stack(*parts)
    return Tensor(values, dtype=dtype, device="CPU" if path == "computed" else "PYTHON").clone().realize()


def same(got: Tensor, expected: Any) -> None:
    """Equal values, NaN at the same places, zeros of the same sign."""
    a, b = np.asarray(got.numpy(), np.float64), np.asarray(expected, np.float64)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a)[a == 0], np.signbit(b)[a == 0])


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.half, dtypes.bfloat16])
def test_nan_in_comparisons(path: str, dtype: Any) -> None:
    x, y = on_path(path, [NAN, 1.0, NAN, 2.0], dtype), on_path(path, [1.0, NAN, NAN, 2.0], dtype)
    for result, last in ((x < y, False), (x <= y, True), (x > y, False), (x >= y, True), (x == y, True)):
        assert result.tolist() == [False, False, False, last]
    assert (x != y).tolist() == [True, True, True, False]


@pytest.mark.parametrize("path", PATHS)
def test_nan_in_maximum_and_its_relatives(path: str) -> None:
    x = on_path(path, [3.0, NAN, 1.0])
    one = on_path(path, [1.0, 1.0, 2.0])
    same(x.maximum(one), [3, NAN, 2])
    same(one.minimum(x), [1, NAN, 1])
    for result in (x.max(), x.min()):
        assert math.isnan(result.item())
    assert (x.argmax().item(), x.argmin().item()) == (1, 1)
    same(x.relu(), [3, NAN, 1])
    same(x.relu6(), [3, NAN, 1])
    same(x.clamp(0, 2), [2, NAN, 1])
    same(x.cummax(0)[0], [3, NAN, NAN])
    same(x.cummin(0)[0], [3, NAN, NAN])
    same(x.sort()[0], [1, 3, NAN])
    same(x.topk(2)[0], [NAN, 3])


@pytest.mark.parametrize("path", PATHS)
def test_float_identities(path: str) -> None:
    x = on_path(path, [INF, NAN, 1.0, -0.0])
    same(x * 0, [NAN, NAN, 0, -0.0])
    same(x - x, [NAN, NAN, 0, 0])
    same(x / x, [NAN, NAN, 1, NAN])
    same(x + 0.0, [INF, NAN, 1, 0.0])
    same(0.0 / x, [0, NAN, 0, NAN])
    i = on_path(path, [3, -5])
    assert [(i * 0).tolist(), (i - i).tolist(), (i // i).tolist()] == [[0, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize("path", PATHS)
def test_negative_zero(path: str) -> None:
    x = on_path(path, [-0.0, 0.0, -0.3])
    same(x, [-0.0, 0.0, np.float32(-0.3)])
    same(x.round(), [-0.0, 0.0, -0.0])
    same(x.trunc(), [-0.0, 0.0, -0.0])
    same(x.floor(), [-0.0, 0.0, -1])
    same(Tensor(1.0).copysign(x), [-1, 1, -1])
    same(on_path(path, [-0.0, -0.0]).max(keepdim=True), [-0.0])
    assert Tensor(0.0).uop is not Tensor(-0.0).uop
    for zero in (0, False, np.int32(0), 0.0, Tensor(0), Tensor(0.0)):
        same(x - zero, [-0.0, 0.0, np.float32(-0.3)])
        same(x + zero, [0.0, 0.0, np.float32(-0.3)])
        same(zero - x, [0.0, 0.0, np.float32(0.3)])
    same(x - -0.0, [0.0, 0.0, np.float32(-0.3)])
    same(x.sub(0), [-0.0, 0.0, np.float32(-0.3)])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32])
def test_narrowing_casts_wrap(path: str, dtype: Any) -> None:
    values = [300, -1, 128, 2**31 + 5, -(2**40) - 7, 2**33 + 200]
    name = str(dtype).split(".")[-1]
    expected = np.array(values, np.int64).astype({"char": "int8", "uchar": "uint8", "short": "int16",
                                                  "ushort": "uint16", "int": "int32"}[name])  # fmt: skip
    assert on_path(path, values, dtypes.int64).cast(dtype).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [*dtypes.ints, dtypes.bool], ids=str)
def test_floats_out_of_range_become_the_same_integers_on_every_path(dtype: Any) -> None:
    values = [NAN, INF, -INF, 1e30, -1e30, 3e9, -3e9, 300.7, -1.5, -0.5]
    results = [on_path(path, values, dtypes.float32).cast(dtype).tolist() for path in PATHS]
    assert results[0] == results[1] == results[2]
    whole = on_path("computed", values * 20, dtypes.float32).cast(dtype).tolist()  # vectors
    assert whole == results[0] * 20


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40, 2**63 - 1, -(2**63), 2**63, 2**64 - 1])
def test_python_integers(value: int) -> None:
    for t in (Tensor(value), Tensor([value]), Tensor([0]) + value):
        assert t.sum().item() == value or t.dtype is dtypes.float64
    assert Tensor([value]).dtype is (dtypes.uint64 if value > 2**63 - 1 else dtypes.int64)
    assert Tensor(value).item() == value


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_python_integers_too_large(value: int) -> None:
    for make in (lambda: Tensor([value]), lambda: Tensor(value).realize(), lambda: Tensor([1]) + value):
        with pytest.raises(OverflowError):
            make()


def test_int64_with_uint64() -> None:
    mixed = Tensor([-1, 5], dtype=dtypes.int64) + Tensor([2**63, 1], dtype=dtypes.uint64)
    assert mixed.dtype is dtypes.float64
    assert mixed.tolist() == [2.0**63, 6.0]


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "atan", "tanh", "sinh", "asinh"])
def test_float32_functions_over_the_whole_range(name: str) -> None:
    exponents = np.linspace(-37, 37 if name != "sinh" else 1.9, 4001)
    x = (10.0**exponents).astype(np.float32) * np.where(np.arange(4001) % 2, 1, -1).astype(np.float32)
    numpy_name = {"atan": "arctan", "asinh": "arcsinh"}.get(name, name)
    expected = getattr(np, numpy_name)(x.astype(np.float64))
    got = getattr(Tensor(x), name)().numpy()
    tiny = float(np.finfo(np.float32).tiny)
    error = np.abs(got - expected) / np.maximum(np.abs(expected), tiny)
    assert error.max() < 5e-7, (x[error.argmax()], got[error.argmax()], expected[error.argmax()])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.half, dtypes.bfloat16])
def test_sums_have_several_partial_sums(dtype: Any) -> None:
    x = RNG.random(100_000).astype(np.float32)
    t = Tensor(x).cast(dtype).realize()
    exact = t.cast(dtypes.float64).numpy().sum()
    assert abs(t.sum(dtype=dtypes.float32).item() - exact) / exact < 1e-6
    assert abs(t.mean().cast(dtypes.float32).item() * 100_000 - exact) / exact < (
        1e-6 if dtype is dtypes.float32 else 5e-3
    )


@pytest.mark.parametrize("n", [3, 64, 1001])
def test_multiply_add_is_rounded_twice_outside_of_sums(n: int) -> None:
    x = Tensor(RNG.normal(size=n).astype(np.float32)).realize()
    y = x.clone().realize()
    assert not (x * x - y * y).numpy().any()
    a = x.numpy()
    np.testing.assert_array_equal((x * 1.1 + 2.3).numpy(), a * np.float32(1.1) + np.float32(2.3))


SATURATED = ["elu", "celu", "selu", "softplus", "mish", "silu", "gelu", "sigmoid", "tanh", "logsigmoid", "softsign"]


@pytest.mark.parametrize("name", [*SATURATED, "relu6", "hardswish", "hardtanh"])
def test_gradients_at_saturation_and_corners(name: str) -> None:
    values = [300.0, -300.0, 100.0, -100.0, 3.0, -3.0, 1.0, -1.0, 0.0, 6.0]
    x = Tensor(values)
    getattr(x, name)().sum().backward()
    y = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    options = {"approximate": "tanh"} if name == "gelu" else {}
    getattr(torch.nn.functional, name)(y, **options).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["logsumexp", "logaddexp"])
@pytest.mark.parametrize("values", [[300.0, -300.0], [-300.0, -300.0], [INF, 1.0], [-INF, 1.0], [300.0, 300.0]])
def test_gradients_of_logarithms_of_sums(name: str, values: list[float]) -> None:
    x = Tensor(values)
    (x.logsumexp() if name == "logsumexp" else x[:1].logaddexp(x[1:]).sum()).backward()
    y = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    y.logsumexp(0).backward()
    assert x.grad is not None
    assert y.grad is not None
    expected = y.grad.numpy() if np.isfinite(y.grad.numpy()).all() else [1.0, 0.0]
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.half])
@pytest.mark.parametrize("n", [2, 70_000])
def test_maximum_over_ties_shares_its_gradient(dtype: Any, n: int) -> None:
    x = Tensor.ones(n, dtype=dtype).contiguous().realize()
    x.max().backward()
    assert x.grad is not None
    assert x.grad.float().numpy().astype(np.float64).sum() == pytest.approx(1, abs=0.01)


def test_fully_masked_attention_row() -> None:
    q = Tensor(RNG.normal(size=(1, 2, 4)).astype(np.float32))
    out = q.scaled_dot_product_attention(q, q, attn_mask=Tensor([[False, False], [True, True]]))
    out.sum().backward()
    assert q.grad is not None
    assert not out.numpy()[0, 0].any()
    assert np.isfinite(q.grad.numpy()).all()


def test_cross_entropy_with_ignored_rows_and_smoothing() -> None:
    logits, labels = RNG.normal(size=(4, 3)).astype(np.float32), np.array([0, 9, 2, 9])
    expected = torch.nn.functional.cross_entropy(
        torch.tensor(logits), torch.tensor(labels), ignore_index=9, label_smoothing=0.3
    )
    got = Tensor(logits).sparse_categorical_crossentropy(Tensor(labels), ignore_index=9, label_smoothing=0.3)
    assert got.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("formula", ["ii", "ii->i", "i...->...", "...ij,...jk", "ba", "iij->j"])
def test_einsum(formula: str) -> None:
    shapes = {"ii": (3, 3), "i...": (2, 3), "...ij": (2, 2, 3), "...jk": (2, 3, 2), "ba": (2, 3), "iij": (2, 2, 3)}
    arrays = [np.arange(np.prod(shapes[i])).reshape(shapes[i]) for i in formula.split("->")[0].split(",")]
    np.testing.assert_array_equal(Tensor.einsum(formula, *map(Tensor, arrays)).numpy(), np.einsum(formula, *arrays))


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (3, 1)])
def test_interpolate_to_one(size: tuple[int, int]) -> None:
    x = RNG.normal(size=(1, 1, 5, 6)).astype(np.float32)
    expected = torch.nn.functional.interpolate(torch.tensor(x), size=size, mode="bilinear", align_corners=True)
    np.testing.assert_allclose(Tensor(x).interpolate(size, align_corners=True).numpy(), expected.numpy(), rtol=1e-5)


# ---- indexing and assignment: further cases in test_cases_programs ---------------------------------------------------


def test_boolean_masks() -> None:
    x = np.arange(12).reshape(3, 4)
    for mask in (x % 3 == 0, np.array([True, False, True])):
        t = Tensor(x).clone()
        np.testing.assert_array_equal(t[Tensor(mask)].numpy(), x[mask])
        expected = x.copy()
        t[Tensor(mask)] = expected[mask] = x[mask] * 2  # type: ignore[assignment]
        np.testing.assert_array_equal(t.numpy(), expected)


def test_setitem_forms() -> None:
    expected = np.arange(24).reshape(4, 6)
    t = Tensor(expected).clone().realize()
    writes: list[tuple[Any, Any]] = [
        (np.s_[::2, 1::2], 5), (np.s_[::-1], np.arange(24).reshape(4, 6)), (np.s_[-1, -3:], 7), (np.s_[[0, 0, 1]], 9),
        (np.s_[1:, [5, 0, 5]], np.array([1, 2, 3])), (np.s_[..., 2], np.arange(4)), (np.s_[[1, 2], [3, 4]], -1),
        (np.s_[:, None, 0], 8), (np.s_[3:0:-2, ::3], 6),
    ]  # fmt: skip
    for where, value in writes:
        expected[where] = value
        t[where] = value
        np.testing.assert_array_equal(t.numpy(), expected, err_msg=str(where))


@pytest.mark.parametrize("index", [5, -6, [0, 5], [-6], (slice(None), 7)])
def test_index_out_of_bounds(index: Any) -> None:
    with pytest.raises(IndexError):
        Tensor.arange(10).reshape(5, 2).clone()[index]


def test_index_tensor_out_of_bounds() -> None:
    x, i = Tensor([1.0, 2.0]).clone().realize(), Tensor([1, 2]).clone().realize()
    assert x[i].tolist() == [2.0, 0.0]
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexError, match="2"):
        x[i].realize()


# ---- random numbers: further cases in test_cases_replays -----------------------------------------------------------


def test_two_random_tensors_never_hold_the_same_numbers() -> None:
    a, b = Tensor.rand(8), Tensor.rand(8)
    second, first = b.tolist(), a.tolist()
    assert first != second
    Tensor.manual_seed(42)
    np.testing.assert_allclose(Tensor.rand(3).numpy(), [0.53342068, 0.67015517, 0.76307893], rtol=1e-6)


# ---- TinyJit: further cases in test_jit and test_cases_replays -------------------------------------------------------


def test_jit_results_keep_their_values() -> None:
    f = TinyJit(lambda x: (x + 1).realize())
    results = [f(Tensor([float(i)]).clone().realize()) for i in range(5)]
    assert [r.item() for r in results] == [1, 2, 3, 4, 5]


def test_jit_python_scalars_are_part_of_the_key() -> None:
    f = TinyJit(lambda x, k: (x * k).realize())
    x = Tensor([10.0]).clone().realize()
    assert [f(x, k).item() for k in (1, 2, 3, 4, 1, 2)] == [10, 20, 30, 40, 10, 20]


def test_jit_another_shape_or_dtype() -> None:
    f, g = TinyJit(lambda x: (x + 1).realize()), TinyJit(lambda x: (x + 1).realize(), recapture=True)
    for function in (f, g):
        for _ in range(3):
            function(Tensor([1.0]).clone().realize())
    for other in ([1.0, 2.0], [1]):
        with pytest.raises(JitError, match="args mismatch"):
            f(Tensor(other).clone().realize())
        assert g(Tensor(other).clone().realize()).tolist() == [v + 1 for v in other]


def test_jit_bound_variables() -> None:
    v = Variable("v", 1, 5)
    f = TinyJit(lambda x: (x + 1).realize())
    x = Tensor([1.0, 2.0, 3.0, 4.0, 5.0]).clone().realize()
    for k in (1, 2, 3, 5):
        assert [s if isinstance(s, int) else s.bound_value() for s in f(x[: v.bind(k)]).shape] == [k]


def test_jit_methods_have_a_capture_for_each_instance() -> None:
    class Layer:
        def __init__(self, by: float) -> None:
            self.by = Tensor([by]).clone().realize()

        @TinyJit
        def __call__(self, x: Tensor) -> Tensor:
            return (x * self.by).realize()

    layers = [Layer(2.0), Layer(3.0)]
    for _ in range(4):
        assert [layer(Tensor([5.0]).clone().realize()).item() for layer in layers] == [10, 15]


def test_jit_containers_are_inputs() -> None:
    @dataclasses.dataclass
    class Inputs:
        x: Tensor

    f = TinyJit(lambda a, b, c, d: (a[0] + b[0] * 10 + c["x"] * 100 + d.x * 1000).realize())
    for k in range(4):
        tensors = [Tensor([float(k + i)]).clone().realize() for i in range(4)]
        got = f([tensors[0]], (tensors[1],), {"x": tensors[2]}, Inputs(tensors[3]))
        assert got.item() == k + (k + 1) * 10 + (k + 2) * 100 + (k + 3) * 1000


@pytest.mark.parametrize("make", [lambda b: b[1:], lambda b: b.reshape(2, 2).T, lambda b: Tensor(1.0)])
def test_jit_views_and_constants_as_inputs(make: Callable[[Tensor], Tensor]) -> None:
    base = Tensor([1.0, 2.0, 3.0, 4.0]).clone().realize()
    f, g = TinyJit(lambda x: (x + 1).realize()), TinyJit(lambda x: (x + 1).realize(), recapture=True)

    def calls() -> None:
        for _ in range(3):
            f(make(base))

    with pytest.raises(JitError, match=r"clone\(\)"):
        calls()
    for _ in range(4):
        np.testing.assert_array_equal(g(make(base)).numpy(), make(base).numpy() + 1)


@pytest.mark.parametrize(("jit", "graph"), [(0, 1), (1, 1), (2, 1), (1, 0), (2, 0)])
def test_jit_levels(jit: int, graph: int) -> None:
    with Context(JIT=jit, GRAPH=graph):
        f = TinyJit(lambda x: ((x + 1).contiguous().sum() * 2).realize())
        for k in range(5):
            assert f(Tensor([float(k), 1.0]).clone().realize()).item() == 2 * (k + 3)


def test_jit_random_tensors_made_outside() -> None:
    noise = Tensor.rand(4)
    f = TinyJit(lambda x: (x + noise + Tensor.rand(4)).realize())
    results = {tuple(f(Tensor.zeros(4).contiguous().realize()).tolist()) for _ in range(6)}
    assert len(results) == 6


# ---- programs for older or other interfaces ------------------------------------------------------------------------


def test_older_programs() -> None:
    from tinygrad.engine.jit import TinyJit as Old
    from tinygrad.uop.ops import Ops, PatternMatcher, UOp, dtypes as old_dtypes, graph_rewrite

    assert Old is TinyJit
    assert old_dtypes is dtypes
    a = UOp.variable("a")
    double = PatternMatcher([(a + a, lambda a: a * 2)])
    n = UOp.variable("n", 0, 9)
    assert graph_rewrite(n + n, double).op is Ops.MUL
    x = Tensor([1.0, 2.0], requires_grad=True).requires_grad_()
    with Tensor.train():
        assert Tensor.training
    Tensor.training = True
    try:
        assert Tensor.training
        assert (Tensor.ones(1000).contiguous().dropout(0.5).numpy() == 0).any()
    finally:
        Tensor.training = False
    with Tensor.no_grad():
        x + 1

    @Tensor.no_grad()
    def evaluated() -> Tensor:
        return x * 2

    assert evaluated().tolist() == [2.0, 4.0]
    m = Tensor([[1.0, 2.0], [3.0, 5.0]])
    assert m.sum(axis=0).tolist() == m.sum(dim=0).tolist() == [4.0, 7.0]
    for name, arguments in (("cat", (m,)), ("stack", (m,)), ("sort", ()), ("argsort", ()), ("repeat_interleave", (2,)),
                            ("max", ()), ("argmax", ()), ("cumsum", ()), ("softmax", ()), ("split", (1,)),
                            ("unsqueeze", ())):  # fmt: skip
        by_dim, by_axis = getattr(m, name)(*arguments, dim=0), getattr(m, name)(*arguments, axis=0)
        several = isinstance(by_dim, (tuple, list))
        for a, b in zip(by_dim, by_axis, strict=True) if several else [(by_dim, by_axis)]:
            assert a.tolist() == b.tolist()
    assert m.flip(axis=0).tolist() == m.flip(dims=0).tolist() == [[3.0, 5.0], [1.0, 2.0]]
    assert m.roll(1, dims=0).tolist() == m.roll(1, axis=0).tolist()
    array = np.array([1.0, 2.0], np.float32)
    for got in (m + array, array + m, m * np.float32(1), np.float32(1) * m):
        assert isinstance(got, Tensor)
    assert (array + m).tolist() == [[2.0, 4.0], [4.0, 7.0]]


# ---- use -----------------------------------------------------------------------------------------------------------


def test_threads() -> None:
    levels, failed = {}, []

    def run(level: int) -> None:
        try:
            with Context(TRAINING=level % 2):
                for k in range(20):
                    assert (Tensor([1.0, 2.0]) * (k + level)).sum().item() == 3 * (k + level)
                from tinygrad.helpers import TRAINING

                levels[level] = TRAINING.value
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    assert levels == {0: 0, 1: 1, 2: 0, 3: 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork() -> None:
    (Tensor([1.0]) + 1).realize()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = (
                0 if (Tensor([2.0, 3.0]) * (os.getpid() % 97 + 0.5)).sum().item() == 5 * (os.getpid() % 97 + 0.5) else 2
            )
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_repr_never_computes() -> None:
    lazy = Tensor([1.0, 2.0]) + 1
    text = repr(lazy)
    assert "float" in text
    assert "CPU" in text
    assert "2" in text
    assert lazy.uop.base.op.name != "BUFFER", "it has been computed"
    assert "2." in repr(lazy.realize())
    assert "3." in repr(lazy)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    safe_save({"a": Tensor([1.0, 2.0]), "e": Tensor.zeros(0, 3).contiguous()}, path)
    safe_save(safe_load(path), path)
    assert safe_load(path)["a"].tolist() == [1.0, 2.0]
    assert safe_load(path)["e"].shape == (0, 3)
    torch.save(torch.arange(6.0).reshape(2, 3).T.expand(2, 3, 2)[:, 1:], tmp_path / "v.pt")
    np.testing.assert_array_equal(torch_load(tmp_path / "v.pt").to(None).numpy(), [[[1, 4], [2, 5]]] * 2)


def test_numpy_input_shares_its_memory() -> None:
    array = np.array([1.0, 2.0], np.float32)
    shared, copied = Tensor(array, device="NPY"), Tensor(array).clone().realize()
    array[0] = 9
    assert shared.tolist() == [9.0, 2.0]
    assert copied.tolist() == [1.0, 2.0]


def test_mismatched_shapes() -> None:
    for error in (ShapeError, ValueError, IndexError):
        with pytest.raises(error):
            Tensor.ones(2) + Tensor.ones(3)


def test_default_device() -> None:
    code = "from tinygrad import Device; print(Device.DEFAULT)"
    env = {k: v for k, v in os.environ.items() if k not in ("DEV", "CPU", "CL")}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
    assert shown.strip() in ("CPU", "CUDA", "NV", "AMD", "METAL"), "never an OpenCL driver that emulates a GPU"
    assert Device.DEFAULT
