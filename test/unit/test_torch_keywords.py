"""Keywords of torch mean what they mean there, or the error says what to write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes, nn
from tinygrad.keywords import SYNONYMS, instead_of

torch = pytest.importorskip("torch")
F = torch.nn.functional


@pytest.mark.parametrize(
    ("call", "same"),
    [
        ("t.sort(axis=0)[0]", "t.sort(dim=0)[0]"),
        ("t.cat(t, axis=1)", "t.cat(t, dim=1)"),
        ("Tensor.stack([t, t], axis=-1)", "Tensor.stack(t, t, dim=-1)"),
        ("t.sum(axis=0, keepdims=True)", "t.sum(0, True)"),
        ("t.cumprod(dim=1)", "t.cumprod(1)"),
        ("t.permute(dims=(1, 0))", "t.T"),
        ("t.gather(axis=0, index=Tensor([[1, 0]]))", "t.gather(0, Tensor([[1, 0]]))"),
        ("t.leaky_relu(negative_slope=0.5)", "t.leaky_relu(0.5)"),
        ("t.split(split_size=1)[1]", "t[1:]"),
        ("t.var(ddof=0)", "t.var(correction=0)"),
        ("t.matmul(other=t)", "t @ t"),
        ("t.unfold(dimension=0, size=1, step=1)", "t.unfold(0, 1, 1)"),
        ("t.std(0, unbiased=False)", "t.std(0, correction=0)"),
        ("t.var_mean(unbiased=True)[0]", "t.var()"),
        ("Tensor.arange(0, end=3)", "Tensor.arange(3)"),
        ("Tensor.linspace(0, end=1, steps=3)", "Tensor.linspace(0, 1, 3)"),
        ("Tensor.full(size=(2,), fill_value=3)", "Tensor.full((2,), 3)"),
        ("t.new_full(size=(2,), fill_value=3)", "t.new_full((2,), 3)"),
        ("t.pad(pad=(1, 1))", "t.pad((1, 1))"),
        ("t.swapaxes(dim0=0, dim1=1)", "t.T"),
        ("t.tensor_split(sections=2)[0]", "t[:1]"),
        ("t.tensor_split(indices=[1])[0]", "t[:1]"),
        ("t.dot(tensor=t)", "t @ t"),
        ("t.sort(stable=True)[0]", "t.sort()[0]"),
        ("t.argsort(stable=False)", "t.argsort()"),
        ("t.dropout(0.5, training=False)", "t"),
        ("t.quantile([0.5, 0.25], dim=1)", "t.quantile(Tensor([0.5, 0.25]), dim=1)"),
    ],
)
def test_keywords_of_other_packages(call: str, same: str) -> None:
    names = {"t": Tensor([[1.0, -2.0], [3.0, -4.0]]), "Tensor": Tensor}
    assert eval(call, names).tolist() == eval(same, names).tolist()


TWO_NAMES = ("sum", "prod", "max", "min", "amax", "amin", "any", "all", "mean", "var", "std", "var_mean", "std_mean",
             "argmax", "argmin", "logsumexp", "softmax", "log_softmax", "softmin", "cumsum", "cummax", "cummin",
             "logcumsumexp", "squeeze", "unsqueeze", "flip", "split", "chunk", "roll", "repeat_interleave", "cat",
             "stack", "cumsum_", "squeeze_", "unsqueeze_")  # fmt: skip


@pytest.mark.parametrize("name", TWO_NAMES)
def test_an_argument_that_is_given_under_two_names(name: str) -> None:
    t = Tensor([[1.0, 2.0], [3.0, 4.0]])
    first, second = (key for key in inspect.signature(getattr(t, name)).parameters if key in {"axis", "dim", "dims"})
    before = [1] if name in {"split", "chunk", "roll", "repeat_interleave"} else [t] if name in {"cat", "stack"} else []
    with pytest.raises(TypeError, match=f"{first} is 0 and {second}, another name of it, is 1\n"):
        getattr(t, name)(*before, **{first: 0, second: 1})
    if name not in {"cat", "stack"}:
        with pytest.raises(TypeError, match=f"{first} is -1 and {second}, another name of it, is 0\n"):
            getattr(t, name)(*before, -1, **{second: 0})
    getattr(t, name)(*before, **{first: 0, second: 0})
    getattr(t, name)(*before, **{second: 0})


def test_every_second_name_is_tried() -> None:
    names = {"axis", "dim", "dims"}
    found = [n for n in dir(Tensor) if n in TWO_NAMES or (not n.startswith("_") and callable(
        inspect.getattr_static(Tensor, n)) and len(names & set(inspect.signature(getattr(Tensor, n)).parameters)) > 1)
    ]  # fmt: skip
    assert sorted(found) == sorted(TWO_NAMES)


@pytest.mark.parametrize(("call", "fault"), [
    ("t.clamp(0, 1, min=2)", "min_ is 0 and min, another name of it, is 2"),
    ("t.clip(max_=1, max=2)", "max_ is 1 and max, another name of it, is 2"),
    ("nn.optim.Adam([t], b1=0.5, betas=(0.9, 0.99))", "b1 and b2 are 0.5 and 0.999, and betas"),
    ("nn.optim.NAdam([t], b2=0.5, betas=(0.9, 0.99))", "b1 and b2 are 0.9 and 0.5, and betas"),
])  # fmt: skip
def test_other_arguments_that_are_given_under_two_names(call: str, fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        eval(call, {"t": Tensor([[1.0]]), "nn": nn})


@pytest.mark.parametrize("call", ["t.sort(axis=0, dim=1)", "t.sort(1, axis=0)", "t.sum(foo=1)", "t.transpose(axis=1)"])
def test_keywords_that_cannot_be_meant(call: str) -> None:
    with pytest.raises(TypeError, match="argument"):
        eval(call, {"t": Tensor([[1.0]])})


# ---- arguments that change the result --------------------------------------------------------------------------------

RNG = np.random.default_rng(5)
ROWS = (RNG.normal(size=(3, 4)) * 20).astype(np.float32)
IMAGES = RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
KERNEL = RNG.normal(size=(4, 3, 2, 3)).astype(np.float32)
HEADS = RNG.normal(size=(2, 2, 6, 4)).astype(np.float32)

Call = Callable[[Any], Any]
SIZES = {"size": (8, 4)}, {"size": (1, 1)}, {"scale_factor": 2}, {"scale_factor": (1.7, 0.6)}
RESIZED: list[tuple[str, Any, Call, Call]] = [
    (f"interpolate {mode} {how} {corners}", IMAGES,
     lambda x, mode=mode, how=how, corners=corners: x.interpolate(mode=mode, align_corners=corners, **how),
     lambda x, mode=mode, how=how, corners=corners: F.interpolate(
         x, mode=mode, align_corners=corners if mode[0] == "b" else None, **how))
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic") for how in SIZES
    for corners in ((False, True) if mode[0] == "b" else (False,))
]  # fmt: skip
CHANGED: list[tuple[str, Any, Call, Call]] = [
    *RESIZED,
    ("trilinear", IMAGES[None], lambda x: x.interpolate((3, 4, 5), "trilinear"),
     lambda x: F.interpolate(x, (3, 4, 5), mode="trilinear")),
    *((f"round {n}", ROWS, lambda x, n=n: x.round(decimals=n), lambda x, n=n: x.round(decimals=n)) for n in (-1, 1, 2)),
    *((f"diag {n}", ROWS[0], lambda x, n=n: x.diag(n), lambda x, n=n: x.diag(n)) for n in (-2, 0, 1)),
    ("softplus", ROWS, lambda x: x.softplus(0.5, 2.0), lambda x: F.softplus(x, 0.5, 2.0)),
    *((f"conv2d {padding} {dilation}", IMAGES,
       lambda x, p=padding, d=dilation: x.conv2d(Tensor(KERNEL), padding=p, dilation=d),
       lambda x, p=padding, d=dilation: F.conv2d(x, torch.tensor(KERNEL), padding=p, dilation=d))
      for padding in ("same", "valid") for dilation in (1, (2, 3))),
    ("conv1d same", IMAGES[0], lambda x: x.conv1d(Tensor(KERNEL[:, :5, 0].repeat(2, 1)[:, :5]), padding="same"),
     lambda x: F.conv1d(x, torch.tensor(KERNEL[:, :5, 0].repeat(2, 1)[:, :5]), padding="same")),
    ("avg_pool2d", IMAGES, lambda x: x.avg_pool2d(3, 1, 1, 1, divisor_override=2),
     lambda x: F.avg_pool2d(x, 3, 1, 1, divisor_override=2)),
    ("avg_pool3d", IMAGES, lambda x: x.avg_pool3d(2, divisor_override=5),
     lambda x: F.avg_pool3d(x, 2, divisor_override=5)),
    ("add", ROWS, lambda x: x.add(x * x, alpha=0.5), lambda x: x.add(x * x, alpha=0.5)),
    ("sub", ROWS, lambda x: x.sub(2, alpha=3), lambda x: x.sub(2, alpha=3)),
    ("subtract", ROWS, lambda x: x.subtract(x * x, alpha=3), lambda x: x.subtract(x * x, alpha=3)),
    ("cumsum", ROWS, lambda x: x.cumsum(dim=1, dtype=dtypes.float64), lambda x: x.cumsum(dim=1, dtype=torch.float64)),
    ("cumprod", ROWS, lambda x: x.cumprod(0, dtype="float64"), lambda x: x.cumprod(0, dtype=torch.float64)),
    ("attention", HEADS, lambda x: x.scaled_dot_product_attention(x * 2, x, is_causal=True, scale=0.3),
     lambda x: F.scaled_dot_product_attention(x, x * 2, x, is_causal=True, scale=0.3)),
    ("attention of groups", HEADS,
     lambda x: x.scaled_dot_product_attention(x[:, :1], x[:, :1], enable_gqa=True, scale=-1.5),
     lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], enable_gqa=True, scale=-1.5)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(("name", "data", "ours", "theirs"), CHANGED, ids=[row[0] for row in CHANGED])
def test_values_and_gradients(name: str, data: Any, ours: Call, theirs: Call) -> None:
    x, y = Tensor(data).clone(), torch.tensor(data, requires_grad=True)
    here, there = ours(x), theirs(y)
    assert here.shape == tuple(there.shape)
    (here * here).float().sum().backward()
    np.testing.assert_allclose(here.numpy(), there.detach().numpy(), rtol=2e-5, atol=2e-5)
    (there * there).float().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=2e-4, atol=2e-4)


def test_dropout_while_training() -> None:
    Tensor.manual_seed(1)
    kept = Tensor.ones(1000).dropout(0.25, training=True).numpy()
    assert 680 < (kept > 0).sum() < 820
    np.testing.assert_allclose(kept[kept > 0], 4 / 3, rtol=1e-6)


def test_nonzero_as_a_tuple() -> None:
    for array in (np.array([[0, 1], [2, 0]]), np.array([0, 3]), np.array(5), np.zeros((2, 0))):
        ours, theirs = Tensor(array).nonzero(as_tuple=True), torch.tensor(array).nonzero(as_tuple=True)
        assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: Tensor(IMAGES).conv2d(Tensor(KERNEL), padding="full"), ValueError, 'conv2d: padding must be numbers'),
        (lambda: Tensor(IMAGES).conv2d(Tensor(KERNEL), stride=2, padding="same"), ValueError, "needs stride 1"),
        (lambda: Tensor(IMAGES).interpolate(mode="bilinear"), ValueError, "interpolate: size None, scale_factor None"),
        (lambda: Tensor(IMAGES).interpolate((2, 2), scale_factor=2), ValueError, "one of the two"),
        (lambda: Tensor(IMAGES).interpolate(scale_factor=0.1), ValueError, "positive sizes"),
        (lambda: Tensor(IMAGES).interpolate((2,), "bilinear"), AssertionError, "interpolate: mode 'bilinear'"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


# ---- keywords that are refused ---------------------------------------------------------------------------------------

# Not keywords of a call, but the operands themselves: here, the first of them is the tensor whose method it is.
OPERANDS = frozenset({
    "self",
    "input",
    "x",
    "x1",
    "input1",
    "a",
    "b",
    "anchor",
    "query",
    "y",
    "elements",
    "condition",
    "tensors",
    "args",
    "kwargs",
    "tensor",
    "theta",
    "log_probs",
})
# Old names of arguments in torch's signatures, which torch itself no longer takes; private ones.
NOT_TAKEN = frozenset({
    "_stacklevel",
    "value",
    "split_size_or_sections",
    "batch2",
    "dividend",
    "indices",
    "List",
    "Tuple",
})


def signatures(function: Any) -> Iterator[list[str]]:
    """Yield the names of the arguments of a function of torch, from its signature or the lines of its documentation."""
    try:
        yield list(inspect.signature(function).parameters)
        return
    except (TypeError, ValueError):
        pass
    name = getattr(function, "__name__", "?")
    for text in re.findall(rf"(?:^|\n)\s*(?:\.\. function:: )?{re.escape(name)}\((.*?)\)\s*->", function.__doc__ or ""):
        parts = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", text).split(",")
        words = [part.split("=")[0].split(":")[0].strip().lstrip("*").strip() for part in parts]
        yield [word.split()[-1] for word in words if word]


def unknown_keywords() -> Iterator[tuple[str, str]]:
    """Yield (name, keyword) for keywords of torch that the method of the same name does not have."""
    for space in (F, torch, torch.Tensor):
        for name in dir(space):
            if name.startswith("_") or name.endswith("_") or not hasattr(Tensor, name) or hasattr(dtypes, name):
                continue
            own = getattr(Tensor, name)
            if not callable(own):
                continue
            parameters = inspect.signature(own).parameters
            if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                continue
            for keywords in signatures(getattr(space, name)):
                for key in keywords:
                    known = key in parameters or any(s in parameters for s in SYNONYMS.get(key, ()))
                    if key.isidentifier() and not known and key not in OPERANDS | NOT_TAKEN:
                        yield name, key


@pytest.mark.filterwarnings("ignore")
def test_no_keyword_of_torch_is_left_without_an_answer() -> None:
    bare = {f"{name}({key}=)" for name, key in unknown_keywords() if instead_of(name, key) is None}
    assert not bare


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda t: t.mse_loss(t, size_average=False), "mse_loss: .*\n.*hint  write reduction="),
        (lambda t: t.relu(inplace=True), "relu: .*\n.*hint  results are new tensors"),
        (lambda t: t.sum().backward(retain_graph=True), "backward: .*\n.*hint  graphs stay"),
        (lambda t: t.cdist(t, compute_mode="x"), "cdist: .*\n.*hint  leave it out"),
        (lambda t: nn.Linear(2, 2, device="CPU"), "Linear: .*\n.*hint  parameters are made on"),
        (lambda t: nn.optim.Adam([t], foreach=True), "Adam: .*\n.*hint  leave it out, or write fused=True"),
        (lambda t: nn.optim.SGD([t], capturable=True), "SGD: .*\n.*hint  leave it out: TinyJit captures"),
        (lambda t: nn.optim.RMSprop([t], differentiable=True), "RMSprop: .*\n.*hint  leave it out: updates are"),
        (lambda t: t.new_zeros(size=(2, 3)), "new_zeros: .*\n.*hint  write the sizes themselves"),
        (lambda t: t.sum(foo=1), "sum: .*\n.*hint  sum has the arguments axis, keepdim, dtype, dim"),
        (lambda t: t.neg(foo=1), "neg: .*\n.*hint  neg has no arguments"),
    ],
)
def test_errors_say_what_to_write(call: Callable[[Tensor], Any], match: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(Tensor([[1.0, 2.0]]))
    text = re.sub(r"\n  (?!hint)[^\n]*", "", str(caught.value))  # without operands and line
    assert re.search(match, text), text


def test_layers_take_the_names_of_torch() -> None:
    assert nn.BatchNorm2d(num_features=3).weight.shape == (3,)
    assert nn.Embedding(num_embeddings=5, embedding_dim=2).weight.shape == (5, 2)
    assert nn.RMSNorm(normalized_shape=4).weight.shape == (4,)
