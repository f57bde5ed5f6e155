"""Shapes with bound Variables: values against numpy on every device, replays, decoding with a cache, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, UOp, Variable, dtypes, nn
from tinygrad.errors import BindError, ShapeError

ROWS, COLUMNS = 10, 6
RNG = np.random.default_rng(0)
A = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
B = RNG.standard_normal((COLUMNS, ROWS)).astype(np.float32)
V = Variable("v", 0, ROWS)


def read(t: Tensor) -> np.ndarray[Any, Any]:
    """Return the values of a tensor of symbolic shape: padded to the largest shape, then cut to the present one."""
    shape = tuple(s if isinstance(s, int) else s.bound_value() for s in t.shape)
    assert None not in shape
    whole = t.pad_to(t.max_shape) if t.ndim else t
    return whole.numpy()[tuple(slice(0, s) for s in shape)]


def softmax(x: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


# Name -> (tensor program of a, b and the bound size v, the same in numpy of plain arrays and a plain size k).
Case = tuple[Callable[[Tensor, Tensor, UOp], Tensor], Callable[[Any, Any, int], Any]]
VIEWS: dict[str, Case] = {
    # sizes that were computed in different ways, such as v * 6 and 1 * v * 6
    "flat with arange": (lambda a, b, v: a[:v].flatten() + Tensor.arange(v * COLUMNS),
                         lambda a, b, k: a[:k].flatten() + np.arange(k * COLUMNS)),
    "merged twice": (lambda a, b, v: a[:v].flatten() + a[:v].reshape(v * 2, 3).flatten(),
                     lambda a, b, k: 2 * a[:k].flatten()),
    "spread": (lambda a, b, v: a[0, :1].expand(2 * v * 3) + a[:v].flatten(), lambda a, b, k: a[0, 0] + a[:k].flatten()),
    "rows": (lambda a, b, v: a[:v] * 2, lambda a, b, k: a[:k] * 2),
    "columns": (lambda a, b, v: b[:, :v] + 1, lambda a, b, k: b[:, :k] + 1),
    "shrink": (lambda a, b, v: a.shrink(((0, v), (1, 3))), lambda a, b, k: a[:k, 1:3]),
    "tail": (lambda a, b, v: a[v - 1 :].sum(0), lambda a, b, k: a[k - 1 :].sum(0)),
    "part": (lambda a, b, v: a[v - 1 : v], lambda a, b, k: a[k - 1 : k]),
    "row": (lambda a, b, v: a[v - 1], lambda a, b, k: a[k - 1]),
    "element of a column": (lambda a, b, v: b[:, v - 1], lambda a, b, k: b[:, k - 1]),
    "last": (lambda a, b, v: a[:v][-1], lambda a, b, k: a[:k][-1]),
    "without borders": (lambda a, b, v: a[:v].pad((1, 1))[:, 1:-1], lambda a, b, k: a[:k]),
    "transposed": (lambda a, b, v: a[:v].T.contiguous(), lambda a, b, k: a[:k].T),
    "flipped": (lambda a, b, v: a[:v].flip(0), lambda a, b, k: a[:k][::-1]),
    "split dim": (lambda a, b, v: a[:v].reshape(v, 2, 3).sum(2), lambda a, b, k: a[:k].reshape(k, 2, 3).sum(2)),
    "inferred": (lambda a, b, v: a[:v].reshape(v, -1, 3).sum(2), lambda a, b, k: a[:k].reshape(k, 2, 3).sum(2)),
    "inferred first": (lambda a, b, v: a[:v].reshape(-1, 2, 3).sum(2), lambda a, b, k: a[:k].reshape(k, 2, 3).sum(2)),
    "new dim": (lambda a, b, v: a[:v].unsqueeze(0).expand(2, v, COLUMNS), lambda a, b, k: np.stack([a[:k]] * 2)),
    "expanded": (lambda a, b, v: a[:1].expand(v, COLUMNS), lambda a, b, k: np.repeat(a[:1], k, 0)),
    "padded": (lambda a, b, v: a[:2].pad(((v, 0), None), value=1.0).sum(0), lambda a, b, k: a[:2].sum(0) + k),
    "rolled": (lambda a, b, v: a[:v].roll(3, 0), lambda a, b, k: np.roll(a[:k], 3, 0)),
    "repeated": (lambda a, b, v: a[:v].repeat(2, 1).sum(0), lambda a, b, k: a[:k].sum(0) * 2),
    "twice as long": (lambda a, b, v: a.cat(a)[: v * 2].sum(0), lambda a, b, k: np.concatenate([a, a])[: 2 * k].sum(0)),
    "joined": (lambda a, b, v: a[:v].cat(a[:2]).max(0), lambda a, b, k: np.concatenate([a[:k], a[:2]]).max(0)),
    "joined behind": (lambda a, b, v: a[:2].cat(a[:v]).min(0), lambda a, b, k: np.concatenate([a[:2], a[:k]]).min(0)),
    "joined both": (lambda a, b, v: a[:v].cat(a[:v] * 3), lambda a, b, k: np.concatenate([a[:k], a[:k] * 3])),
    "side by side": (lambda a, b, v: a[:v].cat(-a[:v], dim=1), lambda a, b, k: np.concatenate([a[:k], -a[:k]], 1)),
    "stacked": (lambda a, b, v: Tensor.stack(a[:v], a[:v] + 1).sum(1), lambda a, b, k: (
        np.stack([a[:k], a[:k] + 1]).sum(1))),
    "at most 4": (lambda a, b, v: a[: v.minimum(4)], lambda a, b, k: a[: min(k, 4)]),
    "by rows": (lambda a, b, v: a[Tensor([3, 1, 2, 0], device=a.device)[: v.minimum(4)]], lambda a, b, k: (
        a[[3, 1, 2, 0][: min(k, 4)]])),
    "shifted rows": (lambda a, b, v: a[Tensor([0, 1], device=a.device) + (v - 1)].sum(0), lambda a, b, k: (
        a[k - 1] + (a[k] if k < ROWS else 0))),
}  # fmt: skip
VALUES: dict[str, Case] = {
    "sum": (lambda a, b, v: a[:v].sum(0), lambda a, b, k: a[:k].sum(0)),
    "sum of all": (lambda a, b, v: a[:v].sum(), lambda a, b, k: a[:k].sum()),
    "mean": (lambda a, b, v: a[:v].mean(0), lambda a, b, k: a[:k].mean(0)),
    "largest": (lambda a, b, v: (a.abs() * -1)[:v].max(0), lambda a, b, k: (-abs(a))[:k].max(0)),
    "smallest": (lambda a, b, v: a.abs()[:v].min(0), lambda a, b, k: abs(a)[:k].min(0)),
    "product": (lambda a, b, v: a[:v].prod(0), lambda a, b, k: a[:k].prod(0)),
    "variance": (lambda a, b, v: a[:v].var(0, correction=0), lambda a, b, k: a[:k].var(0)),
    "position": (lambda a, b, v: a[:v].argmax(0), lambda a, b, k: a[:k].argmax(0)),
    "position of all": (lambda a, b, v: a[:v].argmax(), lambda a, b, k: a[:k].argmax()),
    "median of all": (lambda a, b, v: a[:v].median(), lambda a, b, k: np.sort(a[:k], None)[(6 * k - 1) // 2]),
    "by mask": (lambda a, b, v: a[:v][a[:v] > 0].sum(), lambda a, b, k: a[:k][a[:k] > 0].sum()),
    "positions": (lambda a, b, v: a[:v].argsort(0), lambda a, b, k: a[:k].argsort(0, kind="stable")),
    "running sum": (lambda a, b, v: a[:v].cumsum(0), lambda a, b, k: a[:k].cumsum(0)),
    "sorted": (lambda a, b, v: a[:v].sort(0)[0], lambda a, b, k: np.sort(a[:k], 0)),
    "softmax": (lambda a, b, v: a[:v].softmax(0), lambda a, b, k: softmax(a[:k], 0)),
    "softmax of rows": (lambda a, b, v: b[:, :v].softmax(1), lambda a, b, k: softmax(b[:, :k], 1)),
    "logsumexp": (lambda a, b, v: a[:v].logsumexp(0), lambda a, b, k: np.log(np.exp(a[:k]).sum(0))),
    "inner matmul": (lambda a, b, v: b[:, :v] @ a[:v], lambda a, b, k: b[:, :k] @ a[:k]),
    "outer matmul": (lambda a, b, v: a[:v] @ b, lambda a, b, k: a[:k] @ b),
    "square matmul": (lambda a, b, v: a[:v] @ b[:, :v], lambda a, b, k: a[:k] @ b[:, :k]),
    "einsum": (lambda a, b, v: Tensor.einsum("ij,ij->j", a[:v], a[:v]), lambda a, b, k: (a[:k] * a[:k]).sum(0)),
    "elementwise": (lambda a, b, v: (a[:v] + b.T[:v] * a[0]).relu(), lambda a, b, k: (
        np.maximum(a[:k] + b.T[:k] * a[0], 0))),
    "chosen": (lambda a, b, v: (a[:v] > 0).where(a[:v], -1.0), lambda a, b, k: np.where(a[:k] > 0, a[:k], -1)),
    "scaled": (lambda a, b, v: a * v + v, lambda a, b, k: a * k + k),
    "scalar": (lambda a, b, v: Tensor(v) + 1, lambda a, b, k: np.int32(k + 1)),
    "stored": (lambda a, b, v: (b[:, :v] + 1).realize() * 2, lambda a, b, k: (b[:, :k] + 1) * 2),
    "stored twice": (lambda a, b, v: ((b[:, :v] + 1).contiguous().realize() * 2).contiguous().sum(1), lambda a, b, k: (
        ((b[:, :k] + 1) * 2).sum(1))),
    "range": (lambda a, b, v: Tensor.arange(v) * 2, lambda a, b, k: np.arange(k) * 2),
    "range from": (lambda a, b, v: Tensor.arange(v, v + 3).float(), lambda a, b, k: np.arange(k, k + 3)),
    "mask": (lambda a, b, v: (Tensor.arange(ROWS) < v).where(b[0], 0.0), lambda a, b, k: (
        np.where(np.arange(ROWS) < k, b[0], 0))),
    "filled": (lambda a, b, v: Tensor.full((v, 3), 2.0).sum(0), lambda a, b, k: np.full(3, 2.0 * k)),
    "triangle": (lambda a, b, v: Tensor.ones(v, v).triu(1).sum(), lambda a, b, k: np.triu(np.ones((k, k)), 1).sum()),
    "causal mask": (lambda a, b, v: Tensor.full((2, ROWS), -1.0).triu(v), lambda a, b, k: (
        np.triu(np.full((2, ROWS), -1.0), k))),
    "normalised": (lambda a, b, v: a[:v].T.layernorm(eps=1e-3), lambda a, b, k: (
        (a[:k].T - a[:k].T.mean(1, keepdims=True)) / np.sqrt(a[:k].T.var(1, keepdims=True) + 1e-3))),
}  # fmt: skip
CASES = VIEWS | VALUES


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, device: str) -> None:
    program, reference = CASES[name]
    for k in (1, 3, ROWS):
        got = read(program(Tensor(A, device=device), Tensor(B, device=device), V.bind(k)))
        wanted = reference(A, B, k)
        assert got.shape == np.shape(wanted)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, err_msg=f"{name} at {k}")


def test_no_rows() -> None:
    none = Tensor(A)[: V.bind(0)]
    assert none.sum(0).tolist() == [0.0] * COLUMNS
    assert none.max().item() == -np.inf
    assert none.prod().item() == 1.0
    assert none.cat(Tensor(A)[:1]).sum(0).tolist() == pytest.approx(A[0].tolist())


@pytest.mark.parametrize("k", [1, 5, 63, 64, 65, 517, 1000])
def test_tails_of_vectors_and_tiles(k: int) -> None:
    rows, columns = 1000, 130
    a = RNG.standard_normal((rows, columns)).astype(np.float32)
    v = Variable("v", 1, rows).bind(k)
    x, xt = Tensor(a), Tensor(a.T.copy())
    found = [read(t) for t in (x[:v] * 2 + 1, x[:v].sum(0), x[:v].sum(1), xt[:, :v].sum(1), xt[:, :v].softmax(1),
                               xt[:, :v].max(1), xt[:, :v] @ x[:v], x[:v] @ xt[:, :7], x[:v] @ x[0])]  # fmt: skip
    y = a[:k]
    wanted = [y * 2 + 1, y.sum(0), y.sum(1), y.sum(0), softmax(y.T, 1), y.max(0), y.T @ y, y @ a.T[:, :7], y @ a[0]]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_two_variables() -> None:
    v, w = V.bind(7), Variable("w", 1, COLUMNS).bind(4)
    part = (Tensor(A)[:v, :w] * 2).realize()
    np.testing.assert_allclose(read(part), A[:7, :4] * 2)
    np.testing.assert_allclose(part.sum().item(), (A[:7, :4] * 2).sum(), rtol=1e-5)


def test_convolution_and_pooling_of_a_symbolic_length() -> None:
    torch = pytest.importorskip("torch")
    signal = RNG.standard_normal((2, 3, 20)).astype(np.float32)
    weight = RNG.standard_normal((4, 3, 3)).astype(np.float32)
    length = Variable("length", 8, 20)
    for k in (8, 11, 20):
        x, t, w = Tensor(signal)[:, :, : length.bind(k)], torch.tensor(signal[:, :, :k]), torch.tensor(weight)
        pairs = [
            (x.conv2d(Tensor(weight)), torch.conv1d(t, w)),
            (x.conv2d(Tensor(weight), padding=1, stride=2), torch.conv1d(t, w, padding=1, stride=2)),
            (x.conv2d(Tensor(weight), dilation=2), torch.conv1d(t, w, dilation=2)),
            (x.max_pool2d((3,), 2, padding=1), torch.max_pool1d(t, 3, 2, 1)),
            (x.avg_pool2d((2,)), torch.nn.functional.avg_pool1d(t, 2)),
        ]
        for got, want in pairs:
            np.testing.assert_allclose(read(got), want.numpy(), rtol=1e-4, atol=1e-5)


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    for k in (1, 4, ROWS):
        x, w = Tensor(A), Tensor(A[:COLUMNS])
        part = x[: V.bind(k)]
        ((part @ w).square().mean() + part.softmax(0).square().sum() + part.max(0).sum()).backward()
        tx, tw = torch.tensor(A, requires_grad=True), torch.tensor(A[:COLUMNS], requires_grad=True)
        ((tx[:k] @ tw).square().mean() + tx[:k].softmax(0).square().sum() + tx[:k].max(0)[0].sum()).backward()
        for ours, theirs in ((x, tx), (w, tw)):
            assert ours.grad is not None
            np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_writes_at_a_symbolic_place() -> None:
    place = Variable("place", 0, 7)
    table, wanted = Tensor.zeros(8, 3).contiguous().realize(), np.zeros((8, 3), np.float32)
    for k in (0, 3, 7, 2):
        p = place.bind(k)
        table[p : p + 1].assign(Tensor.full((1, 3), k + 1.0)).realize()
        wanted[k] = k + 1
        np.testing.assert_equal(table.numpy(), wanted)
    for k in (1, 5):
        p = place.bind(k)
        table[p] = k + 20.0
        table[p + 1 : p + 3] = Tensor([[7.0], [8.0]])
        wanted[k], wanted[k + 1], wanted[k + 2] = k + 20, 7, 8
        np.testing.assert_equal(table.numpy(), wanted)
    p = place.bind(4)
    table[:p] = Tensor.full((p, 3), 9.0)
    wanted[:4] = 9
    np.testing.assert_equal(table.numpy(), wanted)


# ---- replays ---------------------------------------------------------------------------------------------------------


def test_shapes_and_padding_follow_the_variable_of_the_call() -> None:
    f = TinyJit(lambda x: (x * 2).realize())
    i = Variable("i", 1, 10)
    for k in (1, 2, 3, 4, 10, 1):
        result = f(Tensor.ones(10)[: i.bind(k)])
        assert [s.bound_value() for s in result.shape] == [k]
        assert result.pad_to(10).tolist() == [2.0] * k + [0.0] * (10 - k)


def test_one_capture_and_one_compile_for_all_values() -> None:
    from tinygrad.schedule import schedule_cache

    runs: list[int] = []
    x, w = Tensor(A).realize(), Tensor(B[:, :COLUMNS]).realize()

    def step(v: UOp) -> Tensor:
        runs.append(1)
        return (x[:v].softmax(0) @ w).sum(0).realize()

    step(V.bind(1))
    schedules = len(schedule_cache)
    plain = [step(V.bind(k)).numpy() for k in range(2, 10)]
    assert len(schedule_cache) == schedules
    runs.clear()
    jitted = TinyJit(step)
    replayed = [jitted(V.bind(k)).numpy() for k in range(2, 10)]
    assert len(runs) == 2
    np.testing.assert_allclose(replayed, plain, rtol=1e-6)
    for k, got in enumerate(replayed, 2):
        np.testing.assert_allclose(got, (softmax(A[:k], 0) @ B[:, :COLUMNS]).sum(0), rtol=1e-4, atol=1e-5)


def test_a_replay_checks_the_slices_that_its_variables_may_put_out_of_bounds() -> None:
    import pickle

    x, wide = Tensor(np.arange(10, dtype=np.float32)).realize(), Variable("wide", 1, 20)
    table = Tensor.zeros(10).contiguous().realize()

    def step(v: UOp) -> Tensor:
        table[v - 1 : v].assign(Tensor([1.0])).realize()
        return x[:v].sum().realize()

    f = TinyJit(step)
    assert [f(wide.bind(k)).item() for k in (3, 5, 7, 10)] == [3.0, 10.0, 21.0, 45.0]
    for jitted in (f, pickle.loads(pickle.dumps(f))):
        with pytest.raises(IndexError, match=r"TinyJit: a slice of .* is .* to 11 of 10 for wide=11") as caught:
            jitted(wide.bind(11))
        assert "test_symbolic_shapes.py" in str(caught.value)
    assert f(wide.bind(4)).item() == 6.0
    assert table.tolist() == [float(i in {2, 3, 4, 6, 9}) for i in range(10)]


DIM, HEADS, CONTEXT, WORDS = 16, 4, 12, 32


class Block:
    """One layer of a decoder, with a cache of keys and values."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
        self.norm1, self.norm2 = nn.RMSNorm(DIM), nn.LayerNorm(DIM)
        self.cache = Tensor.zeros(2, 1, HEADS, CONTEXT, DIM // HEADS).contiguous().realize()

    def __call__(self, x: Tensor, start: Any, mask: Tensor | None, cached: bool) -> Tensor:
        n = x.shape[1]
        h = self.norm1(x)
        q, k, v = (f(h).reshape(1, n, HEADS, DIM // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        if cached:
            self.cache[:, :, :, start : start + n].assign(Tensor.stack(k, v)).realize()
            k, v = self.cache[0, :, :, : start + n], self.cache[1, :, :, : start + n]
        a = q.scaled_dot_product_attention(k, v, attn_mask=mask, is_causal=not cached)
        x = x + self.o(a.transpose(1, 2).reshape(1, n, DIM))
        return x + self.down(self.up(self.norm2(x)).gelu())


class Decoder:
    def __init__(self) -> None:
        self.words, self.head = nn.Embedding(WORDS, DIM), nn.Linear(DIM, WORDS, bias=False)
        self.places = Tensor.randn(CONTEXT, DIM).realize()
        self.blocks, self.runs = [Block(), Block()], 0

    def step(self, words: Tensor, start: Any) -> Tensor:
        self.runs += 1
        n = words.shape[1]
        mask = None if n == 1 else Tensor.full((1, 1, n, start + n), -np.inf).triu(start + 1)
        return self.run(words, start, mask, cached=True)

    def whole(self, words: Tensor) -> Tensor:
        return self.run(words, 0, None, cached=False)

    def run(self, words: Tensor, start: Any, mask: Tensor | None, cached: bool) -> Tensor:
        x = self.words(words) + self.places[start : start + words.shape[1]]
        for block in self.blocks:
            x = block(x, start, mask, cached)
        return self.head(x).realize()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_decoding_with_a_cache_equals_the_whole_computation(step: int, jit: bool) -> None:
    Tensor.manual_seed(1)
    model = Decoder()
    words = RNG.integers(0, WORDS, (1, CONTEXT)).astype(np.int32)
    start = Variable("start", 0, CONTEXT - step)
    run = TinyJit(model.step) if jit else model.step
    wanted = model.whole(Tensor(words)).numpy()
    for t in range(0, CONTEXT, step):
        got = run(Tensor(words[:, t : t + step]).realize(), start.bind(t)).numpy()
        np.testing.assert_allclose(got, wanted[:, t : t + step], rtol=1e-4, atol=1e-4)
    assert model.runs == (2 if jit else CONTEXT // step)


def test_prompt_of_symbolic_length() -> None:
    Tensor.manual_seed(1)
    model, n = Decoder(), Variable("n", 1, CONTEXT)
    words = Tensor(RNG.integers(0, WORDS, (1, CONTEXT)).astype(np.int32)).realize()
    jitted = TinyJit(lambda x: model.whole(x)[:, -1].realize())
    wanted = model.whole(words).numpy()
    for k in (1, 2, 5, CONTEXT):
        np.testing.assert_allclose(jitted(words[:, : n.bind(k)]).numpy(), wanted[:, k - 1], rtol=1e-4, atol=1e-4)


# ---- errors ----------------------------------------------------------------------------------------------------------

X = Tensor.ones(10).contiguous()
PAIRS = Tensor.ones(10, 2).contiguous()
WIDE = Variable("wide", 1, 20)


@pytest.mark.parametrize(
    ("program", "kind", "parts"),
    [
        (lambda: X[:V].sum().item(), RuntimeError, ["unbound Variable v", ".bind(value)"]),
        (lambda: (X * V).numpy(), RuntimeError, ["unbound Variable v"]),
        (lambda: (X[: V.bind(3)].sum() + X[: V.bind(4)].sum()).item(), RuntimeError, ["bind mismatch on v", "3 and 4"]),
        (lambda: X[: V.bind(3)] + X[: V.bind(4)], BindError, ["add", "bind mismatch on v", "(v=3,)", "(v=4,)"]),
        (lambda: X[: V.bind(3)] + X[: WIDE.bind(3)], ShapeError, ["add", "(v=3,) and (wide=3,)"]),
        (lambda: X[: V.bind(3)].numpy(), AssertionError, ["numpy", "symbolic", "(v=3,)"]),
        (lambda: X[: V.bind(3)].tolist(), AssertionError, ["tolist", "symbolic"]),
        (lambda: X[: V.bind(3)].data(), AssertionError, ["data", "symbolic"]),
        (lambda: X[: V.bind(1)].item(), AssertionError, ["item", "v=1"]),
        (lambda: len(X[: V.bind(3)]), ValueError, ["len", "symbolic", "v=3"]),
        (lambda: V.bind(11), AssertionError, ["bind", "11 is out of range", "0 <= value <= 10"]),
        (lambda: V.bind(-1), AssertionError, ["bind", "-1 is out of range"]),
        (lambda: V.bind(1).bind(2), AssertionError, ["already bound"]),
        (lambda: V.bind(2.5), TypeError, ["bind", "2.5", "float"]),
        (lambda: V.unbind(), AssertionError, ["unbind", "v"]),
        (lambda: Variable("m", 0, 8, multiple_of=4).bind(3), AssertionError, ["bind", "multiple of 4"]),
        (lambda: Variable("m", 5, 1), ValueError, ["'m'", "5 to 1"]),
        (lambda: V.bind(2) * X, RuntimeError, ["node on the left of a Tensor", "Tensor on the left"]),
        (lambda: X[: WIDE.bind(15)], IndexError, ["wide=15", "(10,)"]),
        (lambda: X.shrink(((0, WIDE.bind(15)),)), ValueError, ["shrink", "wide=15"]),
        (lambda: X[WIDE.bind(15)], IndexError, ["index wide=15 is out of bounds", "size 10"]),
        (lambda: X[: V.bind(9)][20], IndexError, ["index 20 is out of bounds", "v=9"]),
        (lambda: X[: V.bind(9)][::0], ValueError, ["getitem", "slice step is 0"]),
        (lambda: X.reshape(V.bind(5), 2), ValueError, ["reshape", "(v=5, 2)", "v*2=10"]),
        (lambda: X.expand(V.bind(10)), ValueError, ["expand", "(v=10,)"]),
        (lambda: X[: V.bind(2)].cat(X.reshape(2, 5)[0], X[: V.bind(2)].reshape(1, V.bind(2))), AssertionError, ["cat"]),
        (lambda: X[: V.bind(4)].split(2), AssertionError, ["split", "symbolic", "v=4"]),
        (lambda: X[: V.bind(4)].pad((1, 1), mode="reflect"), AssertionError, ["pad", "static shape", "v=4"]),
        (lambda: Tensor.rand(V.bind(3)), ValueError, ["rand", "v=3"]),
        (lambda: X[: V.bind(3)].gather(0, Tensor([0.5])), RuntimeError, ["gather", "float"]),
        (lambda: PAIRS[: V.bind(3)].gather(1, Tensor([[0]] * 4)), AssertionError, ["gather", "(4, 1)", "(v=3, 2)"]),
        (lambda: PAIRS.scatter(1, Tensor([[0]] * 4), PAIRS[: V.bind(3)]), AssertionError, ["scatter", "(v=3, 2)"]),
        (lambda: PAIRS[: V.bind(3)].cross_entropy(Tensor([0])), RuntimeError, ["labels have shape (1,)", "(v=3,)"]),
        (lambda: Tensor.einsum("i,i", X[: V.bind(3)], X), RuntimeError, ["einsum", "v=3 and 10"]),
    ],
)  # fmt: skip
def test_errors(program: Callable[[], Any], kind: type[Exception], parts: list[str]) -> None:
    with pytest.raises(kind) as caught:
        program()
    text = str(caught.value)
    assert "UOp(" not in text
    assert "test_symbolic_shapes.py" in text
    for part in parts:
        assert part in text, f"{part!r} is not in\n{text}"


def test_sizes_print_by_name() -> None:
    part = Tensor.ones(10, 2)[: V.bind(3)]
    assert "(v=3, 2)" in repr(part)
    assert (V.bind(3) * 2 + 1).size_text() == "v*2+1=7"
    assert V.size_text() == "v"


def test_sizes_of_memory() -> None:
    part = Tensor.ones(10)[: V.bind(3)]
    assert part.nbytes().bound_value() == 12
    assert part.bitcast(dtypes.uint8).shape[0].bound_value() == 12


def test_an_error_leaves_the_operands_as_they_were() -> None:
    x = Tensor(A)
    with pytest.raises(RuntimeError, match="unbound Variable"):
        x[:V].sum(0).realize()
    np.testing.assert_allclose(x[: V.bind(2)].sum(0).numpy(), A[:2].sum(0), rtol=1e-5)


@pytest.mark.parametrize("length", [1, 3, 65, 257, 600])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
def test_scans_longer_than_a_block(name: str, length: int) -> None:
    data = np.random.default_rng(1).standard_normal((40, 600)).astype(np.float32)
    width = Variable("width", 1, 600)

    def scanned(x: Tensor) -> Tensor:
        result = getattr(x, name)(1)
        return result[0] if isinstance(result, tuple) else result

    whole, plain = Tensor(data).clone().realize(), Tensor(data[:, :length].copy()).clone().realize()
    part = whole[:, : width.bind(length)]
    np.testing.assert_allclose(read(scanned(part)), scanned(plain).numpy(), rtol=1e-4, atol=1e-4)
    if name == "cumprod":
        return  # too long a product of numbers around 0 to compare
    (got,), (expected,) = (scanned(part) ** 2).sum().gradient(whole), (scanned(plain) ** 2).sum().gradient(plain)
    np.testing.assert_allclose(got.numpy()[:, :length], expected.numpy(), rtol=1e-3, atol=1e-2)
    assert not got.numpy()[:, length:].any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3, 1, 2), TypeError, "name is 3 of type int, expected str"),
        (("n", "a", 2), TypeError, "are no ints"),
        (("n", 2, 1), ValueError, "bounds 2 to 1 of 'n' make no interval"),
        (("n", 0, 4, dtypes.weakint, 0), ValueError, "multiple_of is 0 of 'n', expected >= 1"),
    ],
)
def test_what_is_no_variable(arguments: tuple, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        Variable(*arguments)


@pytest.mark.parametrize("shape", [(24,), (6, 4), (4, 6)])
def test_numbers_in_place_of_a_symbolic_size_are_an_error_that_says_how(shape: tuple[int, ...]) -> None:
    v = Variable("v", 1, 8).bind(6)
    rows = Tensor.arange(32).reshape(8, 4).contiguous()[:v]
    with pytest.raises(ValueError, match=r"reshape: .*has v\*4=24 elements(.|\n)*hint +t\.shrink_to\(6, 4\)"):
        rows.reshape(shape)
    assert rows.shrink_to(6, 4).reshape(shape).tolist() == np.arange(24).reshape(shape).tolist()


def test_a_wrong_number_of_symbolic_elements_has_no_such_hint() -> None:
    rows = Tensor.empty(8, 4)[: Variable("v", 1, 8).bind(6)]
    with pytest.raises(ValueError, match="reshape") as error:
        rows.reshape(25)
    assert "shrink_to" not in str(error.value)


def test_shapes_made_of_the_variable() -> None:
    v = Variable("v", 1, 8).bind(6)
    rows = Tensor.arange(32).reshape(8, 4).contiguous()[:v]
    made = (rows.reshape(v * 4), rows.flatten(), rows.reshape(-1), rows.reshape(2, -1).flatten(), rows.reshape(v, 2, 2),
            rows.flatten().reshape(v, 4), rows.flatten().unflatten(0, (-1, 4)), rows.reshape(4, v))  # fmt: skip
    for t in made:
        assert t.flatten().shrink_to(24).tolist() == list(range(24))
