"""Names from PyTorch and numpy give what they give there; names without a counterpart say what to write."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.in_place import ASSIGNED, REPLACED, InPlaceNames
from tinygrad.torch_names import TorchNames

torch = pytest.importorskip("torch")

# ``name: call`` is the same text in both packages; ``name: call ~ call in torch`` where they differ.
CALLS = """
type: a.type(dtypes.int32) ~ a.type(torch.int32)
astype: a.astype("int32") ~ a.int()
type_as: a.type_as(i)
char: a.char()
byte: a.abs().byte()
cpu: a.cpu()
is_signed: (a.is_signed(), (i > 0).is_signed(), a.byte().is_signed())
new_zeros: a.new_zeros(2, 3)
new_ones: a.new_ones((2, 3))
new_empty: tuple(a.new_empty(2, 3).shape)
new_full: i.new_full((2,), 7)
dim: a.dim()
ndimension: a.ndimension()
nelement: a.nelement()
view_as: a.view_as(a.t())
reshape_as: a.reshape_as(a.t())
expand_as: v.expand_as(a)
broadcast_to: v.broadcast_to((2, 4, 3))
ravel: a.ravel()
t: (a.t(), v.t())
mT: c.mT
mH: c.mH
H: a.H
swapaxes: c.swapaxes(0, -1)
swapdims: c.swapdims(1, 2)
movedim: (c.movedim(0, 2), c.movedim((0, 1), (-1, 0)))
moveaxis: c.moveaxis(-1, 0)
narrow: (a.narrow(0, 1, 2), a.narrow(-1, -2, 1))
select: (a.select(1, 2), a.select(0, -1))
unbind: (a.unbind(), a.unbind(1))
tile: (a.tile(2), a.tile(2, 1, 2), a.tile((2, 3)))
fliplr: a.fliplr()
flipud: a.flipud()
rot90: (a.rot90(), a.rot90(2), a.rot90(-1, (1, 0)), c.rot90(1, (1, 2)))
tensor_split: (a.tensor_split(3), a.tensor_split((1, 2), dim=1), a.tensor_split((3, 1)), a.tensor_split((-1, 9)))
hsplit: (a.hsplit(3), v.hsplit((1,)))
vsplit: a.vsplit((1, 2))
dsplit: c.dsplit(2)
concat: a.concat(a, dim=1) ~ torch.concat([a, a], dim=1)
concatenate: a.concatenate(a) ~ torch.concat([a, a])
hstack: (a.hstack(a), v.hstack(v)) ~ (torch.hstack([a, a]), torch.hstack([v, v]))
vstack: (a.vstack(a), v.vstack(v)) ~ (torch.vstack([a, a]), torch.vstack([v, v]))
absolute: a.absolute()
negative: a.negative()
subtract: a.subtract(v)
multiply: a.multiply(v)
fix: a.fix()
sgn: a.sgn()
arcsin: (a * 0.1).arcsin()
arccos: (a * 0.1).arccos()
arctan: a.arctan()
arcsinh: a.arcsinh()
arccosh: (a.abs() + 1).arccosh()
arctanh: (a * 0.1).arctanh()
expit: a.expit() ~ a.sigmoid()
amax: a.amax(1)
amin: a.amin(1, keepdim=True)
not_equal: a.not_equal(0)
argwhere: i.argwhere()
bitwise_left_shift: i.bitwise_left_shift(2)
bitwise_right_shift: i.bitwise_right_shift(1)
remainder: (a.remainder(1.5), i.remainder(-2))
divide: (a.divide(v), i.divide(2, rounding_mode="floor"))
true_divide: i.true_divide(2)
floor_divide: i.floor_divide(2)
rsub: a.rsub(2, alpha=3) ~ torch.rsub(a, 2, alpha=3)
clamp_min: a.clamp_min(0)
clamp_max: a.clamp_max(0)
nan_to_num: (n.nan_to_num(), n.nan_to_num(1, 2, 3), n.double().nan_to_num(), n.half().nan_to_num(), i.nan_to_num())
frac: a.frac()
deg2rad: a.deg2rad()
rad2deg: a.rad2deg()
logit: (a * 0.1).sigmoid().logit()
signbit: n.signbit()
xlogy: (a.abs().xlogy(a.abs()), (n * 0).xlogy(n))
addcmul: a.addcmul(a, v, value=0.5)
addcdiv: a.addcdiv(a, v, value=0.5)
float_power: i.float_power(2)
gt: a.gt(0)
lt: a.lt(v)
ge: a.ge(0)
le: a.le(0)
greater: a.greater(0)
less: a.less(0)
greater_equal: n.greater_equal(0)
less_equal: n.less_equal(0)
equal: (a.equal(a + 0), a.equal(a + 1), a.equal(v))
logical_and: a.logical_and(i[0])
logical_or: a.logical_or(a * 0)
logical_xor: a.logical_xor(a)
isposinf: n.isposinf()
isneginf: n.isneginf()
norm: (a.norm(), a.norm(1, dim=1), a.norm(float("inf"), 0), a.norm(0), a.norm(3, dim=-1, keepdim=True))
aminmax: tuple(a.aminmax(dim=1))
count_nonzero: (i.count_nonzero(), a.count_nonzero(0))
nansum: (n.nansum(), n.reshape(1, 6).nansum(0))
nanmean: n[:4].nanmean()
diff: (a.diff(), a.diff(2, dim=0), v.diff(3))
trace: a.trace()
mm: a.mm(a.t())
bmm: c.bmm(c.mT)
mv: a.mv(v)
inner: (v.inner(v), a.inner(v))
outer: v.outer(v)
ger: v.ger(v)
addmm: (a @ a.t()).addmm(a, a.t(), beta=0.5, alpha=2)
addmv: a[:, 0].addmv(a, v, alpha=3)
addr: (v.outer(v)).addr(v, v, beta=2)
baddbmm: (c @ c.mT).baddbmm(c, c.mT, beta=0.5)
tensordot: a.tensordot(c, ([1], [1])) ~ torch.tensordot(a, c, ([1], [1]))
index_select: a.index_select(1, j)
take: a.take(j)
take_along_dim: (a.take_along_dim(a.argsort(1), 1), v.take_along_dim(j))
index_add: a.index_add(1, j, a[:, :2], alpha=0.5)
index_copy: a.index_copy(1, j, a[:, :2])
index_fill: a.index_fill(0, j, 7.0)
scatter_add: v.scatter_add(0, j, v[:2])
bernoulli: ((v * 0).bernoulli(), (v * 0 + 1).bernoulli())
"""  # fmt: skip

# ``name_: call`` changes ``x`` (a float matrix) and returns it; ``k`` is an int matrix.
IN_PLACE = """
fill_: x.fill_(3)
zero_: x.zero_()
copy_: x.copy_(a.t().t().double())
uniform_: x.uniform_(2, 2.0000001) ~ x.fill_(2)
normal_: x.normal_(3, 0) ~ x.fill_(3)
abs_: x.abs_()
add_: x.add_(v)
addcdiv_: x.addcdiv_(a, v)
addcmul_: x.addcmul_(a, v, value=2)
addmm_: x.addmm_(a @ a.t(), a)
bitwise_and_: k.bitwise_and_(3)
bitwise_not_: k.bitwise_not_()
bitwise_or_: k.bitwise_or_(4)
bitwise_xor_: k.bitwise_xor_(5)
ceil_: x.ceil_()
clamp_: x.clamp_(-1, 1)
clamp_max_: x.clamp_max_(0)
clamp_min_: x.clamp_min_(0)
clip_: x.clip_(min=-1)
cos_: x.cos_()
div_: x.div_(v)
divide_: x.divide_(2)
erf_: x.erf_()
exp_: x.exp_()
exp2_: x.exp2_()
floor_: x.floor_()
floor_divide_: x.floor_divide_(2)
fmod_: x.fmod_(2)
index_add_: x.index_add_(1, j, a[:, :2])
index_copy_: x.index_copy_(1, j, a[:, :2])
index_fill_: x.index_fill_(1, j, 5.0)
leaky_relu_: x.leaky_relu_(0.25) ~ torch.nn.functional.leaky_relu_(x, 0.25)
lerp_: x.lerp_(a * 2, 0.25)
log_: x.abs_().log_()
log10_: x.abs_().log10_()
log2_: x.abs_().log2_()
masked_fill_: x.masked_fill_(x > 0, 9.0)
mul_: x.mul_(2)
multiply_: x.multiply_(v)
nan_to_num_: x.log_().nan_to_num_(5.0)
neg_: x.neg_()
negative_: x.negative_()
pow_: x.pow_(2)
reciprocal_: x.reciprocal_()
relu_: x.relu_()
remainder_: x.remainder_(2)
round_: x.round_()
rsqrt_: x.abs_().rsqrt_()
scatter_: x.scatter_(1, k % 3, 5.0)
scatter_add_: x.scatter_add_(1, k % 3, a)
scatter_reduce_: x.scatter_reduce_(1, k % 3, a, "amax")
sigmoid_: x.sigmoid_()
sign_: x.sign_()
sin_: x.sin_()
sqrt_: x.abs_().sqrt_()
square_: x.square_()
sub_: x.sub_(a)
subtract_: x.subtract_(1)
tan_: x.tan_()
tanh_: x.tanh_()
tril_: x.tril_()
triu_: x.triu_(1)
true_divide_: x.true_divide_(4)
trunc_: x.trunc_()
detach_: x.detach_()
squeeze_: x.unsqueeze_(0).squeeze_(0)
swapaxes_: x.swapaxes_(0, 1)
swapdims_: x.swapdims_(0, 1)
t_: x.t_()
transpose_: x.transpose_(0, 1)
unsqueeze_: x.unsqueeze_(1)
acos_: x.sigmoid_().acos_()
acosh_: x.abs_().add_(1).acosh_()
asin_: x.sigmoid_().asin_()
asinh_: x.asinh_()
atan_: x.atan_()
atanh_: x.mul_(0.2).atanh_()
celu_: x.celu_() ~ torch.celu_(x)
copysign_: x.copysign_(-a)
cosh_: x.cosh_()
cumprod_: x.cumprod_(1)
cumsum_: x.cumsum_(0)
deg2rad_: x.deg2rad_()
elu_: x.elu_() ~ torch.nn.functional.elu_(x)
expm1_: x.expm1_()
frac_: x.frac_()
hardtanh_: x.hardtanh_() ~ torch.nn.functional.hardtanh_(x)
log1p_: x.abs_().log1p_()
logit_: x.abs_().mul_(0.2).logit_()
rad2deg_: x.rad2deg_()
selu_: x.selu_(alpha=1.6732632423543772, gamma=1.0507009873554805) ~ torch.selu_(x)
sgn_: x.sgn_()
sinh_: x.sinh_()
xlogy_: x.xlogy_(a.abs())
"""

DATA: dict[str, Any] = {
    "a": np.array([[0.5, -1.5, 2.25], [3.0, -0.25, 1.0], [-2.0, 0.75, 4.5], [1.25, -3.5, 0.125]], dtype=np.float32),
    "c": (np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 9) / 4,
    "v": np.array([1.5, -2.0, 0.5], dtype=np.float32),
    "n": np.array([np.nan, 1.0, -0.0, 0.0, np.inf, -np.inf], dtype=np.float32),
    "i": np.array([[1, 0, 3], [-2, 5, 0]], dtype=np.int32),
    "j": np.array([2, 0], dtype=np.int64),
    "k": np.array([[0, 1, 5], [2, 7, 3], [4, 1, 9], [6, 2, 8]], dtype=np.int64),
}


def rows(table: str) -> list[tuple[str, str, str]]:
    """Return (name, call here, call in torch)."""
    found = []
    for line in table.strip().splitlines():
        name, text = line.split(": ", 1)
        ours, _, theirs = text.partition(" ~ ")
        found.append((name, ours, theirs or ours))
    return found


def namespaces() -> tuple[dict[str, Any], dict[str, Any]]:
    ours: dict[str, Any] = {name: Tensor(array).clone() for name, array in DATA.items()}
    theirs: dict[str, Any] = {name: torch.tensor(array) for name, array in DATA.items()}
    for names in (ours, theirs):
        names["x"] = names["a"] + 0
    return ours | {"dtypes": dtypes}, theirs | {"torch": torch}


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a, b)
    elif isinstance(theirs, torch.Tensor):
        assert ours.shape == tuple(theirs.shape)
        assert dtypes.is_float(ours.dtype) == theirs.dtype.is_floating_point
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-6, atol=1e-6)
    else:
        assert ours == theirs


def test_every_name_has_a_row() -> None:
    public = {name for cls in (TorchNames, InPlaceNames) for name in vars(cls) if not name.startswith("_")}
    public |= {f"{name}_" for name in (*ASSIGNED, *REPLACED)}
    listed = [name for table in (CALLS, IN_PLACE) for name, _, _ in rows(table)]
    assert len(listed) == len({*listed})
    assert {*listed} == public - {"cuda"}  # which needs one


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(CALLS), ids=lambda text: "")
def test_call(name: str, ours: str, theirs: str) -> None:
    assert re.search(rf"\.{name}\b", ours)
    here, there = namespaces()
    assert_same(eval(ours, here), eval(theirs, there))


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(IN_PLACE), ids=lambda text: "")
@pytest.mark.parametrize("realized", [False, True])
def test_in_place(name: str, ours: str, theirs: str, realized: bool) -> None:
    here, there = namespaces()
    if realized:
        here["x"].realize(here["k"])
    target = ours[0]
    assert eval(ours, here) is here[target]
    eval(theirs, there)
    assert_same(here[target], there[target])


@pytest.mark.parametrize("dims", [0, 1, 2])
def test_tensordot_over_the_last_dims(dims: int) -> None:
    here, there = namespaces()
    assert_same(
        here["a"].tensordot(here["a"].T if dims == 1 else here["a"], dims),
        torch.tensordot(there["a"], there["a"].T if dims == 1 else there["a"], dims),
    )


def test_in_place_writes_through_views() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    x[1:].mul_(10)
    assert x.tolist() == [1.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda t: t.mm(t[0]), "mm: operands have 2 and 1 dims"),
        (lambda t: t.outer(t), "outer: operands have 2 and 2 dims"),
        (lambda t: t.reshape(1, 2, 2).t(), "t: 3 dims"),
        (lambda t: t.movedim(0, (0, 1)), "movedim: source 0"),
        (lambda t: t.int().add_(1.5), "assign dtype mismatch"),
    ],
)
def test_errors(call: Any, match: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=match):
        call(Tensor([[1.0, 2.0], [3.0, 4.0]]))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("stride", "no strides"),
        ("grad_fn", "t.uop"),
        ("unique", "numpy"),
        ("index_put_", "t[indices]"),
        ("layer_norm", "layernorm"),
        ("conv1d", "conv2d"),
        ("mse_loss", "square().mean()"),
        ("binary_cross_entropy", "binary_crossentropy"),
    ],
)
def test_names_without_counterpart_say_what_to_write(name: str, instead: str) -> None:
    for owner in (Tensor, Tensor([1.0])):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=re.escape(instead)):
            getattr(owner, name)


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
    ],
)
def test_keywords_of_other_packages(call: str, same: str) -> None:
    names = {"t": Tensor([[1.0, -2.0], [3.0, -4.0]]), "Tensor": Tensor}
    assert eval(call, names).tolist() == eval(same, names).tolist()


@pytest.mark.parametrize("call", ["t.sort(axis=0, dim=1)", "t.sort(1, axis=0)", "t.sum(foo=1)", "t.transpose(axis=1)"])
def test_keywords_that_cannot_be_meant(call: str) -> None:
    with pytest.raises(TypeError, match="argument"):
        eval(call, {"t": Tensor([[1.0]])})
