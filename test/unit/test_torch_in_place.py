"""Methods of torch that end in an underscore change the tensor, and give what they give there."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.in_place import ASSIGNED, REPLACED, InPlaceNames

torch = pytest.importorskip("torch")

from test.helpers_torch_calls import assert_same, namespaces, public_names, rows  # noqa: E402  it needs torch

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


def test_every_name_has_a_row() -> None:
    listed = [name for name, _, _ in rows(IN_PLACE)]
    assert len(listed) == len({*listed})
    assert {*listed} == public_names(InPlaceNames) | {f"{name}_" for name in (*ASSIGNED, *REPLACED)}


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


def test_in_place_writes_through_views() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    x[1:].mul_(10)
    assert x.tolist() == [1.0, 20.0, 30.0]


WRONG = [
    ("x.hardtanh_('a')", "hardtanh_: min_val is 'a' of type str, expected float"),
    ("x.masked_fill_(False, 1)", "masked_fill_: mask is False of type bool, expected Tensor"),
    ("x.addmm_(numpy, 1)", r"addmm_: mat1 is ndarray \(2,\) .*, expected Tensor"),
    ("x.index_fill_(0, 1, 2.0)", "index_fill_: index is 1 of type int, expected Tensor"),
    ("x.elu_(1, 2, 3)", "elu_: takes from 1 to 2 positional arguments but 4 were given"),
    ("x.sub_(y, q=3)", "sub_: got an unexpected keyword argument 'q'"),
    ("x.add_(x[:2])", r"add_: shapes \(3,\) and \(2,\) do not broadcast"),
    ("x.unsqueeze_('a')", "unsqueeze_: dim 'a' is a str"),
    ("x.clamp_()", "clamp_: at least one of min_ and max_ must be given"),
]


@pytest.mark.parametrize(("call", "text"), WRONG)
def test_errors_are_those_of_the_method_under_the_name_that_was_called(call: str, text: str) -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    with pytest.raises(Exception, match=f"^{text}") as caught:
        eval(call, {"x": x, "y": x, "numpy": np.zeros(2)})
    assert "\n  line " in str(caught.value)
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_in_place_forms_have_the_signature_of_their_method() -> None:
    for name in (*ASSIGNED, *REPLACED):
        form = getattr(Tensor, f"{name}_")
        assert form.__name__ == f"{name}_"
        assert inspect.signature(form) == inspect.signature(getattr(Tensor, name)), name
