"""Names from PyTorch and numpy give what they give there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.in_place import ASSIGNED, REPLACED, InPlaceNames
from tinygrad.torch_names import GROUPS

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
column_stack: (a.column_stack(a), v.column_stack(v)) ~ (torch.column_stack([a, a]), torch.column_stack([v, v]))
row_stack: v.row_stack(v) ~ torch.row_stack([v, v])
block_diag: a.block_diag(v, a[:1, :1]) ~ torch.block_diag(a, v, a[:1, :1])
atleast_1d: (a[0, 0].atleast_1d(), v.atleast_1d()) ~ (torch.atleast_1d(a[0, 0]), v)
atleast_2d: (a[0, 0].atleast_2d(), v.atleast_2d(), a.atleast_2d()) ~ torch.atleast_2d(a[0, 0], v, a)
atleast_3d: (a[0, 0].atleast_3d(), v.atleast_3d(), a.atleast_3d()) ~ torch.atleast_3d(a[0, 0], v, a)
dstack: (a.dstack(a), v.dstack(v)) ~ (torch.dstack([a, a]), torch.dstack([v, v]))
split_with_sizes: (a.split_with_sizes([1, 3]), a.split_with_sizes([2, 1], dim=1))
adjoint: c.adjoint()
diagflat: a.diagflat()
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
frexp: (a.frexp(), n.frexp(), (a * 1e-40).frexp(), (a.double() * 1e300).frexp(), a.half().frexp())
nextafter: (a.nextafter(v), n.unsqueeze(1).nextafter(n), n.double().unsqueeze(1).nextafter(n.double()))
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
median: (a.median(), a.median(0), a.median(1, keepdim=True), n[:5].median(), n[:5].median(0))
quantile: (a.quantile(0.3), a.quantile(v.abs() * 0.4, dim=0), a.quantile(0.5, dim=1, keepdim=True), n[:4].quantile(0.5), a.quantile(v.abs() * 0.4, keepdim=True))
trapezoid: (a.trapezoid(), a.trapezoid(dx=0.5, dim=0), a.trapezoid(v), a.trapezoid(a * a, dim=0)) ~ (torch.trapezoid(a), torch.trapezoid(a, dx=0.5, dim=0), torch.trapezoid(a, v), torch.trapezoid(a, a * a, dim=0))
trapz: a.trapz(v) ~ torch.trapz(a, v)
cumulative_trapezoid: (a.cumulative_trapezoid(), a.cumulative_trapezoid(v)) ~ (torch.cumulative_trapezoid(a), torch.cumulative_trapezoid(a, v))
addbmm: (a[:3, :3]).addbmm(c, c.mT, alpha=2)
vdot: v.vdot(v)
chain_matmul: a.chain_matmul(a.t(), a) ~ torch.linalg.multi_dot([a, a.t(), a])
matrix_power: (a[:3].matrix_power(3), a[:3].matrix_power(0), a[:3].matrix_power(-2))
kron: (a.kron(c), v.kron(a), a.kron(v))
cross: (a.cross(v), a[:3].cross(a[1:], dim=0)) ~ (a.cross(v.expand_as(a), dim=-1), a[:3].cross(a[1:], dim=0))
vander: (v.vander(), v.vander(4, increasing=True)) ~ (v.unsqueeze(1) ** torch.tensor([2, 1, 0]), v.unsqueeze(1) ** torch.arange(4))
cartesian_prod: (v.cartesian_prod(v, v[:2]), v.cartesian_prod()) ~ (torch.cartesian_prod(v, v, v[:2]), torch.cartesian_prod(v))
log_sigmoid: a.log_sigmoid() ~ F.logsigmoid(a)
glu: (c.glu(), c.glu(2)) ~ (F.glu(c), F.glu(c, 2))
prelu: (a.prelu(v), v.prelu(v[:1]), c.prelu(v)) ~ (F.prelu(a, v), F.prelu(v, v[:1]), F.prelu(c, v))
threshold: (a.threshold(0.5, 7), n.threshold(0.5, 7)) ~ (F.threshold(a, 0.5, 7), F.threshold(n, 0.5, 7))
hardshrink: (a.hardshrink(), n.hardshrink()) ~ (F.hardshrink(a), F.hardshrink(n))
softshrink: (a.softshrink(), n.softshrink()) ~ (F.softshrink(a), F.softshrink(n))
tanhshrink: a.tanhshrink() ~ F.tanhshrink(a)
conv1d: c.conv1d(c[:, :, :2], v[:2], 2, 1) ~ F.conv1d(c, c[:, :, :2], v[:2], 2, 1)
conv3d: c[None, None].conv3d(c[None, None, :1, :2, :3], padding=1) ~ F.conv3d(c[None, None], c[None, None, :1, :2, :3], padding=1)
conv_transpose1d: c.conv_transpose1d(c[0, :, None, :3], stride=2) ~ F.conv_transpose1d(c, c[0, :, None, :3], stride=2)
conv_transpose3d: c[None, None].conv_transpose3d(c[None, None, :1, :2, :3]) ~ F.conv_transpose3d(c[None, None], c[None, None, :1, :2, :3])
max_pool1d: c.max_pool1d(2) ~ F.max_pool1d(c, 2)
max_pool3d: c[None, None].max_pool3d(2) ~ F.max_pool3d(c[None, None], 2)
avg_pool1d: (c.avg_pool1d(2), c.avg_pool1d(3, 1, 1, False, False)) ~ (F.avg_pool1d(c, 2), F.avg_pool1d(c, 3, 1, 1, False, False))
avg_pool3d: c[None, None].avg_pool3d(2, 1) ~ F.avg_pool3d(c[None, None], 2, 1)
adaptive_avg_pool1d: (c.adaptive_avg_pool1d(2), c.adaptive_avg_pool1d(3)) ~ (F.adaptive_avg_pool1d(c, 2), F.adaptive_avg_pool1d(c, 3))
adaptive_avg_pool2d: (c.adaptive_avg_pool2d(1), c.adaptive_avg_pool2d((2, None))) ~ (F.adaptive_avg_pool2d(c, 1), F.adaptive_avg_pool2d(c, (2, None)))
adaptive_avg_pool3d: c[None].adaptive_avg_pool3d((1, 2, 3)) ~ F.adaptive_avg_pool3d(c[None], (1, 2, 3))
adaptive_max_pool1d: c.adaptive_max_pool1d(3) ~ F.adaptive_max_pool1d(c, 3)
adaptive_max_pool2d: c.adaptive_max_pool2d((2, 2)) ~ F.adaptive_max_pool2d(c, (2, 2))
adaptive_max_pool3d: c[None].adaptive_max_pool3d((1, 2, 3)) ~ F.adaptive_max_pool3d(c[None], (1, 2, 3))
pixel_shuffle: c.reshape(1, 12, 1, 2).pixel_shuffle(2) ~ F.pixel_shuffle(c.reshape(1, 12, 1, 2), 2)
pixel_unshuffle: c.reshape(1, 2, 2, 6).pixel_unshuffle(2) ~ F.pixel_unshuffle(c.reshape(1, 2, 2, 6), 2)
channel_shuffle: c.reshape(1, 6, 2, 2).channel_shuffle(2) ~ F.channel_shuffle(c.reshape(1, 6, 2, 2), 2)
layer_norm: (a.layer_norm((3,), v, v), c.layer_norm((3, 4))) ~ (F.layer_norm(a, (3,), v, v), F.layer_norm(c, (3, 4)))
rms_norm: (a.rms_norm((3,), v, 1e-5), c.rms_norm((3, 4))) ~ (F.rms_norm(a, (3,), v, 1e-5), F.rms_norm(c, (3, 4)))
group_norm: (c.group_norm(3, v, v), a.group_norm(1)) ~ (F.group_norm(c, 3, v, v), F.group_norm(a, 1))
embedding: j.embedding(a) ~ F.embedding(j, a)
mse_loss: (a.mse_loss(a * 2), a.mse_loss(a * 2, reduction="none")) ~ (F.mse_loss(a, a * 2), F.mse_loss(a, a * 2, reduction="none"))
l1_loss: a.l1_loss(a * 2, reduction="sum") ~ F.l1_loss(a, a * 2, reduction="sum")
huber_loss: (a.huber_loss(a * 2), a.huber_loss(a * 2, delta=0.6)) ~ (F.huber_loss(a, a * 2), F.huber_loss(a, a * 2, delta=0.6))
smooth_l1_loss: (a.smooth_l1_loss(a * 2), a.smooth_l1_loss(a * 2, beta=0.0), a.smooth_l1_loss(a * 2, beta=3.0)) ~ (F.smooth_l1_loss(a, a * 2), F.smooth_l1_loss(a, a * 2, beta=0.0), F.smooth_l1_loss(a, a * 2, beta=3.0))
kl_div: (a.kl_div(a.abs(), "none"), a.kl_div(a, "batchmean", True), a.kl_div(a.relu(), "sum")) ~ (F.kl_div(a, a.abs(), reduction="none"), F.kl_div(a, a, None, None, "batchmean", True), F.kl_div(a, a.relu(), reduction="sum"))
binary_cross_entropy: p.binary_cross_entropy(p * p, w) ~ F.binary_cross_entropy(p, p * p, w)
binary_cross_entropy_with_logits: a.binary_cross_entropy_with_logits(p, w, "sum", w) ~ F.binary_cross_entropy_with_logits(a, p, w, None, None, "sum", w)
soft_margin_loss: a.soft_margin_loss(a.detach().sign()) ~ F.soft_margin_loss(a, a.detach().sign())
multilabel_soft_margin_loss: a.multilabel_soft_margin_loss(p) ~ F.multilabel_soft_margin_loss(a, p)
hinge_embedding_loss: a.hinge_embedding_loss(a.sign() * -1) ~ F.hinge_embedding_loss(a, a.sign() * -1)
margin_ranking_loss: v.margin_ranking_loss(v * 2, v.sign(), 0.3) ~ F.margin_ranking_loss(v, v * 2, v.sign(), 0.3)
triplet_margin_loss: (a.triplet_margin_loss(a * 2, a * 3), a.triplet_margin_loss(a * 2, a * 2.5, 2.0, swap=True)) ~ (F.triplet_margin_loss(a, a * 2, a * 3), F.triplet_margin_loss(a, a * 2, a * 2.5, 2.0, swap=True))
cosine_embedding_loss: a.cosine_embedding_loss(a * a, a[:, 0].sign(), 0.1) ~ F.cosine_embedding_loss(a, a * a, a[:, 0].sign(), 0.1)
poisson_nll_loss: (a.poisson_nll_loss(a.abs(), full=True), a.abs().poisson_nll_loss(a.abs() * 2, False)) ~ (F.poisson_nll_loss(a, a.abs(), full=True), F.poisson_nll_loss(a.abs(), a.abs() * 2, False))
gaussian_nll_loss: (a.gaussian_nll_loss(a * 2, a.abs()), a.gaussian_nll_loss(a * 2, a.abs(), True, 1.0)) ~ (F.gaussian_nll_loss(a, a * 2, a.abs()), F.gaussian_nll_loss(a, a * 2, a.abs(), True, 1.0))
cosine_similarity: (a.cosine_similarity(a * a), a.cosine_similarity(v, 0)) ~ (F.cosine_similarity(a, a * a), F.cosine_similarity(a, v, 0))
pairwise_distance: (a.pairwise_distance(a * 2), a.pairwise_distance(v, 1.0, keepdim=True)) ~ (F.pairwise_distance(a, a * 2), F.pairwise_distance(a, v, 1.0, keepdim=True))
"""  # noqa: E501

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
absolute_: x.absolute_()
addbmm_: x.addbmm_(c.mT, c[:, :, :3])
addmv_: y.addmv_(c[0][:, :3], v)
addr_: x.addr_(a[:, 0], v)
arccos_: x.sigmoid_().arccos_()
arccosh_: x.abs_().add_(1).arccosh_()
arcsin_: x.sigmoid_().arcsin_()
arcsinh_: x.arcsinh_()
arctan_: x.arctan_()
arctan2_: x.arctan2_(v.expand_as(x))
arctanh_: x.mul_(0.2).arctanh_()
atan2_: x.atan2_(v.expand_as(x))
baddbmm_: z.baddbmm_(c @ c.mT, c)
bitwise_left_shift_: k.bitwise_left_shift_(2)
bitwise_right_shift_: k.bitwise_right_shift_(1)
eq_: x.eq_(a)
fix_: x.fix_()
gcd_: k.gcd_(k + 6)
ge_: x.ge_(v)
greater_: x.greater_(0)
greater_equal_: x.greater_equal_(1)
gt_: x.gt_(v)
heaviside_: x.heaviside_(a)
hypot_: x.hypot_(a)
lcm_: k.lcm_(k + 6)
ldexp_: x.ldexp_(k)
le_: x.le_(0)
less_: x.less_(v)
less_equal_: x.less_equal_(1)
logical_and_: x.logical_and_(a)
logical_not_: x.logical_not_()
logical_or_: x.logical_or_(a)
logical_xor_: x.logical_xor_(a)
lt_: k.lt_(3)
ne_: x.ne_(1)
nextafter_: x.nextafter_(a + 1)
not_equal_: k.not_equal_(1)
renorm_: x.renorm_(2, 0, 1.0)
sinc_: x.sinc_()
"""

DATA: dict[str, Any] = {
    "a": np.array([[0.5, -1.5, 2.25], [3.0, -0.25, 1.0], [-2.0, 0.75, 4.5], [1.25, -3.5, 0.125]], dtype=np.float32),
    "c": (np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 9) / 4,
    "v": np.array([1.5, -2.0, 0.5], dtype=np.float32),
    "n": np.array([np.nan, 1.0, -0.0, 0.0, np.inf, -np.inf], dtype=np.float32),
    "i": np.array([[1, 0, 3], [-2, 5, 0]], dtype=np.int32),
    "j": np.array([2, 0], dtype=np.int64),
    "p": np.array([[0.5, 0.25, 0.125], [0.75, 0.9, 0.01], [0.3, 0.6, 0.8], [0.2, 0.4, 0.7]], dtype=np.float32),
    "w": np.array([0.5, 1.0, 1.5], dtype=np.float32),
    "s": np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan], dtype=np.float32),
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
        names["x"], names["y"], names["z"] = (names[name] + 0 for name in "avc")
    return ours | {"dtypes": dtypes}, theirs | {"torch": torch, "F": torch.nn.functional}


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, (tuple, list)):
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
    public = {name for cls in (*GROUPS, InPlaceNames) for name in vars(cls) if not name.startswith("_")}
    public |= {f"{name}_" for name in (*ASSIGNED, *REPLACED)}
    listed = [name for table in (CALLS, IN_PLACE) for name, _, _ in rows(table)]
    assert len(listed) == len({*listed})
    assert {*listed} == public - {"cuda"}  # which needs one


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(CALLS), ids=lambda text: "")
def test_call(name: str, ours: str, theirs: str) -> None:
    assert re.search(rf"\.{name}\b", ours)
    here, there = namespaces()
    assert_same(eval(ours, here), eval(theirs, there))


def floats_of(result: Any) -> list[Any]:
    """Return the float tensors of a result that gradients flow into."""
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in floats_of(part)]
    return [result] if hasattr(result, "detach") else []


@pytest.mark.parametrize(("name", "ours", "theirs"), rows(CALLS), ids=lambda text: "")
def test_gradient(name: str, ours: str, theirs: str) -> None:
    here, there = namespaces()
    for leaf in "acvp":
        here[leaf].requires_grad_(True)
        there[leaf].requires_grad_(True)
    both = [floats_of(eval(*side)) for side in ((ours, here), (theirs, there))]
    results = [(x, y) for x, y in zip(*both, strict=True) if y.requires_grad]
    if not results:
        return  # nothing of torch's depends on them
    for side in ([x for x, _ in results], [y for _, y in results]):
        # Weights tell the elements apart.
        total = sum((x.flatten() * (0.5 + (x.detach().flatten() * 0 + 1).cumsum(0))).float().sum() for x in side)
        total.backward()
    for leaf in "acvp":
        if there[leaf].grad is not None:
            expected = (there[leaf].grad + 0).numpy()
            found = np.zeros_like(expected) if here[leaf].grad is None else here[leaf].grad.numpy()
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=leaf)


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
        (lambda t: t.gcd(2), "gcd: operands must be int"),
        (lambda t: t.int().frexp(), "frexp: of float16 or wider"),
        (lambda t: t.int().nextafter(t.int()), "nextafter: of float16 or wider"),
        (lambda t: t.int().quantile(0.5), "quantile: of float16 or wider"),
        (lambda t: t.cross(t), "cross: 2 elements along dim -1"),
    ],
)
def test_errors(call: Any, match: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=match):
        call(Tensor([[1.0, 2.0], [3.0, 4.0]]))


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
