"""Names from PyTorch and numpy give what they give there: arithmetic, shapes, statistics, products."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tinygrad import Tensor
from tinygrad.torch_names import GROUPS

torch = pytest.importorskip("torch")

from test.helpers_torch_calls import (  # noqa: E402  it needs torch
    LAYER_GROUPS,
    assert_call,
    assert_gradient,
    assert_same,
    namespaces,
    public_names,
    rows,
)

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
logit: ((a * 0.1).sigmoid().logit(), a.logit(0.1), a.sigmoid().logit(eps=0.25))
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
norm: (a.norm(), a.norm(1, dim=1), a.norm(float("inf"), 0), a.norm(-float("inf"), 1), a.norm("fro", 1), a.norm(dtype=F64), a.norm(0), a.norm(3, dim=-1, keepdim=True))
aminmax: tuple(a.aminmax(dim=1))
count_nonzero: (i.count_nonzero(), a.count_nonzero(0))
nansum: (n.nansum(), n.nansum(dtype=F64), n.reshape(1, 6).nansum(0))
nanmean: n[:4].nanmean()
diff: (a.diff(), a.diff(2, dim=0), v.diff(3), v.diff(0), a.diff(prepend=a[:, :1], append=a), a.diff(2, 0, append=a[:2]))
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
index_select: (a.index_select(1, j), a.index_select(0, j[0]))
take: a.take(j)
take_along_dim: (a.take_along_dim(a.argsort(1), 1), v.take_along_dim(j), a.take_along_dim(a[:1].argsort(1), 1), a[:, :1].take_along_dim(a.argsort(0), -2), a[:1].take_along_dim(a[:, :1].argsort(0) * 0, 0))
index_add: a.index_add(1, j, a[:, :2], alpha=0.5)
index_copy: a.index_copy(1, j, a[:, :2])
index_fill: a.index_fill(0, j, 7.0)
scatter_add: v.scatter_add(0, j, v[:2])
bernoulli: ((v * 0).bernoulli(), (v * 0 + 1).bernoulli())
column_stack: (a.column_stack(a), v.column_stack(v)) ~ (torch.column_stack([a, a]), torch.column_stack([v, v]))
row_stack: v.row_stack(v) ~ torch.row_stack([v, v])
block_diag: a.block_diag(v, a[:1, :1]) ~ torch.block_diag(a, v, a[:1, :1])
atleast_1d: (a[0, 0].atleast_1d(), v.atleast_1d()) ~ (torch.atleast_1d(a[0, 0]), v)
atleast_2d: (a[0, 0].atleast_2d(), v.atleast_2d(), a.atleast_2d()) ~ torch.atleast_2d(a[0, 0], v, a)
atleast_3d: (a[0, 0].atleast_3d(), v.atleast_3d(), a.atleast_3d()) ~ torch.atleast_3d(a[0, 0], v, a)
dstack: (a.dstack(a), v.dstack(v)) ~ (torch.dstack([a, a]), torch.dstack([v, v]))
split_with_sizes: (a.split_with_sizes([1, 3]), a.split_with_sizes([2, 1], dim=1))
adjoint: c.adjoint()
diagflat: (a.diagflat(), a.diagflat(2), v.diagflat(offset=-1))
unravel_index: j.unravel_index((2, 2)) ~ torch.unravel_index(j, (2, 2))
atan2: (a.atan2(v), s.unsqueeze(1).atan2(s), i.atan2(2.0)) ~ (a.atan2(v), s.unsqueeze(1).atan2(s), i.atan2(torch.tensor(2.0)))
arctan2: a.arctan2(v)
hypot: (a.hypot(v), s.unsqueeze(1).hypot(s), (a * 1e30).hypot(a * 1e30), (a * 1e-40).hypot(a * 1e-40))
logaddexp2: (a.logaddexp2(v * 100), (s * 1e4).logaddexp2(s))
heaviside: (n.heaviside(n * 0 + 3), a.detach().heaviside(v.detach()))
sinc: (a.sinc(), (a * 0).sinc())
fmax: n.unsqueeze(1).fmax(n)
fmin: n.unsqueeze(1).fmin(n)
gcd: (i.gcd(i + 12), (i * 120).gcd(i * 48 + 24), i.gcd(i * 0), i.byte().gcd(i.byte() + 3))
lcm: (i.lcm(i + 12), i.lcm(i * 0))
ldexp: a.ldexp(i[0])
frexp: ((i * 0.75).frexp(), a.frexp(), n.frexp(), (a * 1e-40).frexp(), (a.double() * 1e300).frexp(), a.half().frexp())
nextafter: ((i * 0.75).nextafter(v), a.nextafter(v), n.unsqueeze(1).nextafter(n), n.double().unsqueeze(1).nextafter(n.double()))
positive: a.positive()
is_nonzero: (v[0].is_nonzero(), (v[0] * 0).is_nonzero())
cov: (a.cov(), v.cov(), a.cov(correction=0))
corrcoef: (a.corrcoef(), v.corrcoef())
isin: (i.isin(j), a.isin(v, invert=True)) ~ (torch.isin(i, j), torch.isin(a, v, invert=True))
dist: (a.dist(v), a.dist(v, 1))
cdist: (a.cdist(a), a.cdist(a[:2] + 1, 1), c.cdist(c * 2, float("inf"))) ~ (torch.cdist(a, a), torch.cdist(a, a[:2] + 1, 1), torch.cdist(c, c * 2, float("inf")))
renorm: (a.renorm(2, 0, 3.0), a.renorm(1, 1, 2.0))
msort: a.msort()
kthvalue: (a.kthvalue(2), a.kthvalue(3, 0, keepdim=True))
median: (a[:0].median(), a.median(), a.median(0), a.median(1, keepdim=True), n[:5].median(), n[:5].median(0))
quantile: (*(a.quantile(q, dim=d, interpolation=how) for how in HOW for q in (0.3, 0.25, 0.5, 0.75) for d in (0, 1)), a.quantile(0.3), a.quantile(v.abs() * 0.4, dim=0), a.quantile(0.5, dim=1, keepdim=True), n[:4].quantile(0.5), a.quantile(v.abs() * 0.4, keepdim=True))
trapezoid: (a[:0].trapezoid(dim=0), a.trapezoid(), a.trapezoid(dx=0.5, dim=0), a.trapezoid(v), a.trapezoid(a * a, dim=0), c.trapezoid(c[0]), c.trapezoid(c[0, :1]), c.trapezoid(c[0, :, :1], dim=1)) ~ (torch.trapezoid(a[:0], dim=0), torch.trapezoid(a), torch.trapezoid(a, dx=0.5, dim=0), torch.trapezoid(a, v), torch.trapezoid(a, a * a, dim=0), torch.trapezoid(c, c[0]), torch.trapezoid(c, c[0, :1]), torch.trapezoid(c, c[0, :, :1], dim=1))
trapz: a.trapz(v) ~ torch.trapz(a, v)
cumulative_trapezoid: (a.cumulative_trapezoid(), a.cumulative_trapezoid(v)) ~ (torch.cumulative_trapezoid(a), torch.cumulative_trapezoid(a, v))
addbmm: (a[:3, :3]).addbmm(c, c.mT, alpha=2)
vdot: v.vdot(v)
chain_matmul: a.chain_matmul(a.t(), a) ~ torch.linalg.multi_dot([a, a.t(), a])
matrix_power: (a[:3].matrix_power(3), a[:3].matrix_power(0), a[:3].matrix_power(-2))
kron: (a.kron(c), v.kron(a), a.kron(v))
cross: (a.cross(v), a[:3].cross(a[1:], dim=0)) ~ (a.cross(v.expand_as(a), dim=-1), a[:3].cross(a[1:], dim=0))
vander: (v.vander(0), v.vander(), v.vander(4, increasing=True)) ~ (v.unsqueeze(1)[:, :0] * 1, v.unsqueeze(1) ** torch.tensor([2, 1, 0]), v.unsqueeze(1) ** torch.arange(4))
cartesian_prod: (v.cartesian_prod(v, v[:2]), v.cartesian_prod()) ~ (torch.cartesian_prod(v, v, v[:2]), torch.cartesian_prod(v))
"""  # noqa: E501


def test_every_name_has_a_row() -> None:
    listed = [name for name, _, _ in rows(CALLS)]
    assert len(listed) == len({*listed})
    public = public_names(*(group for group in GROUPS if group not in LAYER_GROUPS))
    assert {*listed} == public - {"cuda"}  # which needs one


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(CALLS), ids=lambda text: "")
def test_call(name: str, ours: str, theirs: str) -> None:
    assert re.search(rf"\.{name}\b", ours)
    assert_call(ours, theirs)


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(CALLS), ids=lambda text: "")
def test_gradient(name: str, ours: str, theirs: str) -> None:
    assert_gradient(ours, theirs)


@pytest.mark.parametrize("dims", [0, 1, 2])
def test_tensordot_over_the_last_dims(dims: int) -> None:
    here, there = namespaces()
    assert_same(
        here["a"].tensordot(here["a"].T if dims == 1 else here["a"], dims),
        torch.tensordot(there["a"], there["a"].T if dims == 1 else there["a"], dims),
    )


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda t: t.mm(t[0]), "mm: operands have 2 and 1 dims"),
        (lambda t: t.outer(t), "outer: operands have 2 and 2 dims"),
        (lambda t: t.reshape(1, 2, 2).t(), "t: 3 dims"),
        (lambda t: t.movedim(0, (0, 1)), "movedim: source 0"),
        (lambda t: t.int().add_(1.5), "assign dtype mismatch"),
        (lambda t: t.gcd(2), "gcd: operands must be int"),
        (lambda t: t.int().frexp(), "frexp: of float16 or wider"),
        (lambda t: t.int().nextafter(t.int()), "nextafter: of float16 or wider"),
        (lambda t: t.int().quantile(0.5), "quantile: of float16 or wider"),
        (lambda t: t.cross(t), "cross: 2 elements along dim -1"),
        (lambda t: t[:0].median(0), "median: dim 0 has no elements"),
        (lambda t: t.int()[:0].median(), "median: dim 0 has no elements"),
        (lambda t: t[:0].quantile(0.5, dim=0), "quantile: dim 0 has no elements"),
        (lambda t: t.quantile(math.nan), "quantile: q=nan"),
        (lambda t: t.quantile([0.5, 1.5]), "quantile: q=1.5"),
        (lambda t: t.quantile(Tensor([-0.5, 0.5])), "quantile: q=-0.5"),
        (lambda t: t.quantile(0.5, interpolation="cubic"), "quantile: interpolation 'cubic'"),
        (lambda t: t.kthvalue(0), "kthvalue: k=0"),
        (lambda t: t.kthvalue(3), "kthvalue: k=3 for dim 1 of size 2"),
        (lambda t: t.kthvalue(1.5), "kthvalue: k is 1.5"),
        (lambda t: t.cdist(t, -1), "cdist: p=-1"),
        (lambda t: t[0].cdist(t), "cdist: operands have 1 and 2 dims"),
        (lambda t: t.cdist(t[:, :1]), "cdist: points of 2 and 1 numbers"),
        (lambda t: t.renorm(2, 0, -1.0), "renorm: maxnorm=-1.0"),
        (lambda t: t.renorm(0, 0, 1.0), "renorm: p=0"),
        (lambda t: t.diff(-1), "diff: n=-1"),
        (lambda t: t.sum().diff(), "diff: a number has no neighbours"),
        (lambda t: t.trapezoid(t[0, :1]), "trapezoid: 1 places for 2 samples"),
        (lambda t: t[0].trapezoid(t), "trapezoid: places of 2 dims for samples of 1"),
        (lambda t: t[None, None].trapezoid(t[:, :1].expand(2, 3)), "trapezoid: 3 places for 2 samples"),
        (lambda t: t[0, 0].trapezoid(t), "trapezoid: one number has no samples"),
        (lambda t: t.narrow(0, 1, 2), "narrow: start 1, length 2 for dim 0 of size 2"),
        (lambda t: t.narrow(0, -3, 1), "narrow: start -3"),
        (lambda t: t.tile(-1), "tile: dims="),
        (lambda t: t.repeat_interleave(-1), "repeat_interleave: -1 repeats"),
        (lambda t: t.rot90(1, (0, 0)), "rot90: dims"),
        (lambda t: t.tensor_split(0), "tensor_split: sections=0"),
        (lambda t: t.int().unravel_index((2, 0)), "unravel_index: shape="),
        (lambda t: t.unravel_index((2, 2)), "unravel_index: places are integers"),
        (lambda t: t[:1].matrix_power(2), "matrix_power: shape"),
        (lambda t: t.matrix_power(0.5), "matrix_power: n is 0.5"),
        (lambda t: t.vander(), "vander: 2 dims"),
        (lambda t: t[0].vander(-1), "vander: N=-1"),
        (lambda t: t.tensordot(t, 3), "tensordot: 3 dims"),
        (lambda t: t.index_select(0, t.int()), "index_select: index of 2 dims"),
    ],
)
def test_errors(call: Any, match: str) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError), match=match):
        call(Tensor([[1.0, 2.0], [3.0, 4.0]]))
