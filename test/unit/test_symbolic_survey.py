"""Every kind of method on a tensor with a symbolic size: the values of the plain size, or an error with a way out.

The size is that of the first dim ("rows", (v, 4)) or of the second one ("columns", (4, v)), so that each method meets
it as a batch, as a length and in what it reduces. A call is text that is evaluated twice: with a bound Variable, and
with the int. In it are ``x`` and ``y`` (alike), ``i`` (positions, alike), ``n``, ``m`` (the sizes of x), ``w`` (8 by
8), ``image`` (the size is that of the batch, or the height), ``square`` (v by v), ``few`` (two positions).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, Variable, dtypes, nn
from tinygrad.uop.ops import UOp

MOST, OTHER = 8, 4
FEW = 3  # the size in the tests: the largest one would hide what takes it for granted
V = Variable("v", 1, MOST)
RNG = np.random.default_rng(0)
A, B, IMAGES = (RNG.standard_normal(shape).astype(np.float32) for shape in ((8, 8), (8, 8), (8, 1, 8, 8)))
POSITIONS = (np.arange(64).reshape(8, 8) * 5 % 8).astype(np.int32)

UNARY = """abs all argmax argmin argwhere clone contiguous count_nonzero detach diagonal flatten fliplr flipud gelu int
layernorm log_softmax logical_not logsumexp max mean min nonzero norm normalize numel ones_like prod ravel
relu rot90 size squeeze std std_mean sum trace transpose tril triu unsqueeze var var_mean zeros_like median
nanmean nansum cov argsort nbytes"""
ALONG_A_DIM = """any argmax argmin argsort cummax cummin cumprod cumsum diff flip log_softmax logcumsumexp logsumexp max
mean median min norm prod softmax sort squeeze std sum unsqueeze var"""
WITH_ANOTHER = """add allclose cat copysign div eq expand_as fmod hstack isclose logaddexp lt maximum meshgrid mod mul
reshape_as stack vstack xlogy"""
OTHERS = """
x.cat(y, dim=1)
x.cat(x[:1])
x @ y.T
x.T @ y
w[:, :n] @ x
x.linear(w[:m, :3], w[0, :3])
Tensor.einsum("ij,kj->ik", x, y)
Tensor.einsum("i,j->ij", x[:, 0], x[0])
x.tensordot(y.T, 1)
x.topk(2, 0)
x.topk(2, 1, largest=False)
x.kthvalue(1, dim=0)
x.kthvalue(1, dim=1)
x.quantile(0.3, dim=0)
x.quantile(0.3, dim=1)
x.sort(1, descending=True)
x.gather(0, i % n)
x.gather(1, x.argsort(1))
x.take_along_dim(x.argsort(0), 0)
x.scatter(0, i % n, y)
x.scatter(1, i % m, y)
x.scatter(1, x.argsort(1), 2.0)
x.scatter_add(0, i % n, y)
x.scatter_reduce(1, i % m, y, "amax")
x.scatter_reduce(0, i % n, y, "mean")
x.scatter(0, i % n, y).sum(0) + x[0]
x.masked_select(x > 0)
x.masked_select(x > 0, size=5)
x.masked_fill(y > 0, 1.0)
x[x > 0]
(x > 0).nonzero(size=4)
x.index_select(0, few)
x.index_add(0, few, x[:2])
x.index_copy(1, few, x[:, :2])
x.index_fill(0, few, 2.0)
x.take(few)
x[:, few]
x[few, few]
x[x.argmax(0)]
x[-1]
x[..., -1]
x[1:]
x[:, :-1]
x[:, ::2]
x[::-2]
x.pad((1, 2, 3, 4), value=2.0)
x.pad((-1, 0, 0, -1))
x.pad_to(9, 9, value=1)
x.shrink(((1, n), (0, 1)))
x.roll(1)
x.roll((1, 2), (0, 1))
x.repeat(3, 1, 2)
x.repeat(n, 1)
x.repeat_interleave(2)
x.repeat_interleave(2, 0)
x.repeat_interleave(2, 1)
x.narrow(0, 0, 1)
x.select(1, 0)
x.permute(1, 0)
x.reshape(m, n)
x.reshape(1, n, -1)
x.flatten().reshape(n, m)
x.unflatten(1, (1, -1))
x.expand(3, -1, -1)
x.unfold(0, 2, 1)
x.unfold(1, 2, 1)
x.rearrange("a b -> (b a)")
x.rearrange("(a c) b -> b c a", c=1)
x.triu(1)
x.triu(-n)
x.diagonal(1)
x.diagonal(-1)
x[0].diag()
x[:, 0].diag()
(x > 0).int().one_hot(3)
x.var(0, correction=0)
x.layernorm(axis=0)
x.cross_entropy(x[:, 0].int() * 0)
x.cross_entropy(y.softmax(1))
x.sparse_categorical_crossentropy(x[:, 0].int() * 0)
x.sigmoid().binary_crossentropy((y > 0).float())
x.mse_loss(y)
x.kl_div(y.softmax(1))
x.lerp(y, 0.25)
(x > 0).where(x, y)
x.bitcast(dtypes.uint8)
x.bitcast(dtypes.uint8).bitcast(dtypes.float32)
x.full_like(3.0)
Tensor.full((n, m), 2.0)
Tensor.eye(n, m)
Tensor.arange(0, m, 2)
Tensor.arange(n, 0, -1)
Tensor.linspace(0, n, 3)
x[None, None].scaled_dot_product_attention(y[None, None], y[None, None])
x[None, None].scaled_dot_product_attention(y[None, None], y[None, None], is_causal=True)
x[None, None].scaled_dot_product_attention(y[None, None], y[None, None], attn_mask=x @ y.T > 0)
x[:, None, None].scaled_dot_product_attention(y[:, None, None], y[:, None, None])
image.conv2d(w[:2, :2].reshape(1, 1, 2, 2), padding=1, stride=2)
image.conv_transpose2d(w[:2, :2].reshape(1, 1, 2, 2), stride=2)
image.avg_pool2d(2)
image.avg_pool2d(2, padding=1, count_include_pad=False)
image.max_pool2d(2, return_indices=True)
image.max_pool2d(2, ceil_mode=True)
image.avg_pool2d(3, stride=2, ceil_mode=True)
image.max_unpool2d(image.max_pool2d(1, return_indices=True)[1], 1)
image.interpolate((4, 4))
image.interpolate((4, 4), mode="linear", align_corners=True)
image.interpolate(scale_factor=2)
image.adaptive_avg_pool2d(1)
image.batchnorm(None, None, w[0, :1], w[1, :1] + 3)
x.cosine_similarity(y)
x.trapezoid(dim=0)
x.renorm(2, 0, 1.0)
x.kron(y)
x[0].vander(3)
x.newton_schulz(2, (2.0, -1.5, 0.5))
table(x.argmax(1))
x * n + m
x.mean() * n
x.maximum(n)
"""
CALLS = [
    *(f"x.{name}()" for name in UNARY.split()),
    *(f"x.{name}({dim})" for name in ALONG_A_DIM.split() for dim in (0, 1)),
    *(f"x.{name}(y)" for name in WITH_ANOTHER.split()),
    *OTHERS.strip().splitlines(),
]


def names_of(kind: str, k: int, size: Any) -> dict[str, Any]:
    """Return what a call may name, with the size as it is given: the int k, or a Variable bound to it."""
    at = (slice(size), slice(OTHER)) if kind == "rows" else (slice(OTHER), slice(size))
    a, b, images = Tensor(A), Tensor(B), Tensor(IMAGES)
    Tensor.manual_seed(0)
    table = nn.Embedding(MOST, 3)
    n, m = (size, OTHER) if kind == "rows" else (OTHER, size)
    image = images[:size] if kind == "rows" else images[:, :, :size]
    square = (a + Tensor.eye(MOST) * 9)[:size, :size]
    return {"x": a[at], "y": b[at], "i": Tensor(POSITIONS)[at], "n": n, "m": m, "w": b, "image": image,
            "square": square, "few": Tensor([1, 0]), "table": table, "Tensor": Tensor, "dtypes": dtypes}  # fmt: skip


def values(result: Any) -> list[Any]:
    """Return tensors as arrays and sizes as ints."""
    if isinstance(result, Tensor):
        shape = tuple(s if isinstance(s, int) else s.bound_value() for s in result.shape)
        whole = result if shape == result.shape else result.pad_to(result.max_shape)
        return [whole.numpy()[tuple(slice(0, s) for s in shape)]]
    if isinstance(result, (tuple, list)):
        return [value for part in result for value in values(part)]
    return [result.bound_value() if isinstance(result, UOp) else result]


@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_gives_what_it_gives_for_the_plain_size(call: str, kind: str) -> None:
    wanted = values(eval(call, names_of(kind, FEW, FEW)))
    got = values(eval(call, names_of(kind, FEW, V.bind(FEW))))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


GRADIENTS = """
x.scatter(0, i % n, y)
x.scatter_reduce(1, i % m, y, "sum")
x.gather(1, x.argsort(1))
x.index_select(0, few)
x[few, few]
x.topk(2, 0)[0]
x.topk(2, 1)[0]
x.sort(0)[0]
x.cumsum(0)
x.cumprod(1)
x.cummax(1)[0]
x.logcumsumexp(0)
x.roll((1, 2), (0, 1))
x.repeat(3, 1, 2)
x.pad((1, 2, 3, 4), value=2.0)
x.diagonal(1)
x.unfold(0, 2, 1)
x.rearrange("a b -> (b a)")
x[None, None].scaled_dot_product_attention(y[None, None], y[None, None], is_causal=True)
image.conv2d(w[:2, :2].reshape(1, 1, 2, 2), padding=1, stride=2)
image.max_pool2d(2, ceil_mode=True)
image.avg_pool2d(3, stride=2, ceil_mode=True)
image.interpolate(scale_factor=2)
x.var(0)
x.norm(dim=1)
x.layernorm(axis=0)
x @ y.T
x.kron(y)
"""


@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize("call", GRADIENTS.strip().splitlines())
def test_a_gradient_is_that_for_the_plain_size(call: str, kind: str) -> None:
    slopes = []
    for size in (FEW, V.bind(FEW)):
        names = names_of(kind, FEW, size)
        targets = [names[name] for name in ("x", "y", "image", "w")]
        used = [t for t, name in zip(targets, ("x", "y", "image", "w"), strict=True) if f"{name}" in call]
        slopes.append(values(list(eval(call, names).square().sum().gradient(*used))))
    for a, b in zip(*slopes, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=5e-4, atol=5e-5)


# ---- random numbers: drawn for the largest sizes, then cut -----------------------------------------------------------


def test_random_numbers_of_a_symbolic_shape() -> None:
    part = Tensor.ones(1000, 2)[: Variable("many", 1, 1000).bind(700)]
    for make in (Tensor.rand_like, Tensor.randn_like, Tensor.bernoulli):
        drawn = values(make(part))[0]
        assert drawn.shape == (700, 2)
        assert len(np.unique(drawn)) > 1000 or set(np.unique(drawn)) == {1.0}
    with Context(TRAINING=1):
        kept = values(part.dropout(0.25))[0]
    assert 0.7 < (kept != 0).mean() < 0.8
    np.testing.assert_allclose(kept[kept != 0], 1 / 0.75, rtol=1e-6)
    weights = Tensor([[1.0, 0.0, 3.0]]).expand(part.shape[0], 3)
    for replacement in (False, True):
        picked = values(weights.multinomial(1, replacement))[0]
        assert picked.shape == (700, 1)
        assert 0.68 < (picked == 2).mean() < 0.82
        assert not (picked == 1).any()


# ---- errors ----------------------------------------------------------------------------------------------------------

PAD = "pad_to"
ERRORS = [
    ("x.tolist()", AssertionError, ["tolist", PAD]),
    ("x.numpy()", AssertionError, ["numpy", PAD]),
    ("x.data()", AssertionError, ["data", PAD]),
    ("len(x.T if x.shape[0] == 4 else x)", ValueError, ["len"]),
    ("x.split(1, 1 if n == 4 else 0)", AssertionError, ["split", PAD]),
    ("x.chunk(2, 1 if n == 4 else 0)", AssertionError, ["chunk", PAD]),
    ("x.tensor_split(2, 1 if n == 4 else 0)", AssertionError, ["tensor_split", PAD]),
    ("x.unbind(1 if n == 4 else 0)", AssertionError, ["unbind", PAD]),
    ("x.pad((1, 1, 1, 1), mode='reflect')", AssertionError, ["pad", "reflect", "cat"]),
    ("Tensor.rand(n, m)", ValueError, ["rand", "shrink_to"]),
    ("Tensor.randint(n, m, high=4)", ValueError, ["randint", "shrink_to"]),
    ("Tensor.linspace(0, 1, m if n == 4 else n)", ValueError, ["linspace", "arange"]),
    ("square.inverse()", ValueError, ["inverse", PAD]),
    ("square.qr()", ValueError, ["qr", PAD]),
    ("square.svd()", ValueError, ["svd", PAD]),
    ("x.int().cast(dtypes.uint8).keccak()", ValueError, ["keccak", PAD]),
    ("x.int().cast(dtypes.uint8).hash()", AssertionError, ["hash", PAD]),
    ("(x if m == 4 else x.T)[None, None].interpolate(scale_factor=1.5)", ValueError, ["interpolate", PAD]),
    ("range(m if n == 4 else n)", ValueError, ["int", "unbind()[1]", PAD]),
    ("x.topk(7, 1 if n == 4 else 0)", ValueError, ["topk", "k=7"]),
    ("x.unfold(1 if n == 4 else 0, 7, 1)", RuntimeError, ["unfold", "size 7"]),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize(("call", "error", "parts"), ERRORS, ids=[call for call, *_ in ERRORS])
def test_an_error_names_the_method_the_size_and_what_to_do(
    call: str, kind: str, error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as caught:
        eval(call, {**names_of(kind, 3, V.bind(3)), "n": V.bind(3) if kind == "rows" else 4})
    text = str(caught.value)
    for part in (*parts, "v"):
        assert part in text, f"{part!r} is not in\n{text}"
    assert "UOp(" not in text
