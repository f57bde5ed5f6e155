"""A call of every public method of Tensor that makes tensors from one of shape (6, 6).

In:   nothing.
Out:  ``CALLS``, by name; ``NOT_CALLED``, the public methods without a case: they make tensors from nothing, or none.
Why:  what holds for all methods is tested on all of them, and a method that is added later is not forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad import Tensor, dtypes

Call = Callable[[Tensor], Any]


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def like(x: Tensor, *shape: int) -> Tensor:
    """Return further numbers, where x is."""
    return Tensor(np.cos(np.arange(int(np.prod(shape)), dtype=np.float32)).reshape(shape), device=x.device)


def ints(x: Tensor, *values: int) -> Tensor:
    """Return positions, where x is."""
    return Tensor(list(values), device=x.device)


def rows(x: Tensor) -> Tensor:
    """Return positions in x along either axis, one for each element."""
    return Tensor((np.arange(36) * 5 % 6).reshape(6, 6).astype(np.int32), device=x.device)


def image(x: Tensor) -> Tensor:
    """Return x as one image of one channel."""
    return x.reshape(1, 1, 6, 6)


def square(x: Tensor) -> Tensor:
    """Return a matrix that is far from singular."""
    return x + Tensor.eye(6) * 20


NO_ARGUMENTS = names("""
    abs absolute acos acosh all amax amin aminmax any arccos arccosh arcsin arcsinh arctan arctanh argmax argmin
    argsort argwhere asin asinh atan atanh avg_pool2d bfloat16 bool byte ceil celu char clone contiguous
    contiguous_backward cos cosh count_nonzero cpu cummax cummin cumsum deg2rad detach diagonal diff double dropout
    elu erf exp exp2 expit expm1 fix flatten fliplr flipud float floor frac gelu half hardsigmoid hardswish hardtanh
    int isfinite isinf isnan isneginf isposinf layernorm leaky_relu log log10 log1p log2 log_softmax logcumsumexp
    log_sigmoid logical_not logit logsigmoid logsumexp long max max_pool2d mean min mish nan_to_num nanmean nansum neg
    negative
    nonzero norm normalize ones_like prod qr quick_gelu rad2deg ravel reciprocal relu relu6 rot90 round rsqrt selu
    sgn short sigmoid sign signbit silu sin sinh softmax softmin softplus softsign sort sqrt square squeeze std
    std_mean sum svd swish t tan tanh trace transpose tril triu trunc unbind unsqueeze var var_mean zeros_like
    realize
""")
WITH_ONE_LIKE_IT = names("""
    add copysign div divide dot eq float_power floor_divide fmod ge greater greater_equal gt inner isclose allclose
    le less less_equal logaddexp lt matmul maximum minimum mm mod mul multiply ne not_equal pow remainder rsub sub
    subtract true_divide type_as usum uprod xlogy image_dot expand_as reshape_as view_as shard_like hstack vstack
    concat concatenate cat stack meshgrid
""")

CALLS: dict[str, Call] = {
    **{name: lambda x, name=name: getattr(x, name)() for name in sorted(NO_ARGUMENTS)},
    **{name: lambda x, name=name: getattr(x, name)(like(x, 6, 6)) for name in sorted(WITH_ONE_LIKE_IT)},
    "avg_pool2d": lambda x: image(x).avg_pool2d(1),
    "max_pool2d": lambda x: image(x).max_pool2d(1),
    "max_unpool2d": lambda x: image(x).max_unpool2d(image(x).max_pool2d(1, return_indices=True)[1], 1),
    "addcdiv": lambda x: x.addcdiv(like(x, 6, 6), like(x, 6, 6)),
    "addcmul": lambda x: x.addcmul(like(x, 6, 6), like(x, 6, 6)),
    "addmm": lambda x: x.addmm(like(x, 6, 2), like(x, 2, 6)),
    "addmv": lambda x: x[0].addmv(x, like(x, 6)),
    "addr": lambda x: x.addr(like(x, 6), like(x, 6)),
    "baddbmm": lambda x: x.reshape(1, 6, 6).baddbmm(like(x, 1, 6, 2), like(x, 1, 2, 6)),
    "bmm": lambda x: x.reshape(1, 6, 6).bmm(like(x, 1, 6, 2)),
    "astype": lambda x: x.astype(dtypes.int32),
    "batchnorm": lambda x: x.batchnorm(like(x, 6), like(x, 6), like(x, 6), like(x, 6)),
    "bernoulli": lambda x: (x * 0 + 1).bernoulli(),
    "binary_crossentropy": lambda x: x.sigmoid().binary_crossentropy((x > 0).float()),
    "binary_crossentropy_logits": lambda x: x.binary_crossentropy_logits((x > 0).float()),
    "bitcast": lambda x: x.bitcast(dtypes.int32),
    **{name: lambda x, name=name: getattr(x.int(), name)(3) for name in (
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "lshift", "rshift")},
    "bitwise_not": lambda x: x.int().bitwise_not(),
    "broadcast_to": lambda x: x.broadcast_to(2, 6, 6),
    "callify": lambda x: (x + 1).callify(),
    "cast": lambda x: x.cast(dtypes.float32),
    "chunk": lambda x: x.chunk(2),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_max": lambda x: x.clamp_max(1),
    "clamp_min": lambda x: x.clamp_min(-1),
    "clip": lambda x: x.clip(-1, 1),
    "const_like": lambda x: x.const_like(3),
    "conv2d": lambda x: image(x).conv2d(like(x, 2, 1, 3, 3), padding=1),
    "image_conv2d": lambda x: image(x).image_conv2d(like(x, 2, 1, 3, 3), padding=1),
    "conv_transpose2d": lambda x: image(x).conv_transpose2d(like(x, 1, 2, 3, 3), stride=2),
    "cross_entropy": lambda x: x.cross_entropy(ints(x, 0, 5, 1, 2, 3, 3)),
    "sparse_categorical_crossentropy": lambda x: x.sparse_categorical_crossentropy(ints(x, 0, 5, 1, 2, 3, 3)),
    "nll_loss": lambda x: x.log_softmax().nll_loss(ints(x, 0, 5, 1, 2, 3, 3)),
    "cumprod": lambda x: x.cumprod(1),
    "diag": lambda x: x.reshape(36).diag(),
    "dsplit": lambda x: x.reshape(1, 6, 6).dsplit(2),
    "hsplit": lambda x: x.hsplit(2),
    "vsplit": lambda x: x.vsplit(2),
    "einsum": lambda x: Tensor.einsum("ij->ji", x),
    "flip": lambda x: x.flip(1),
    "outer": lambda x: x[1].outer(like(x, 6)),
    "expand": lambda x: x.expand(2, 6, 6),
    "full_like": lambda x: x.full_like(3.0),
    "gather": lambda x: x.gather(0, rows(x)),
    "glu": lambda x: x.glu(),
    "ger": lambda x: x[1].ger(like(x, 6)),
    "gradient": lambda x: (x * x).sum().gradient(x),
    "hash": lambda x: x.int().cast(dtypes.uint8).flatten().hash(),
    "keccak": lambda x: x.int().cast(dtypes.uint8).keccak(),
    "index_add": lambda x: x.index_add(0, ints(x, 4, 1), like(x, 2, 6)),
    "index_copy": lambda x: x.index_copy(1, ints(x, 4, 1), like(x, 6, 2)),
    "index_fill": lambda x: x.index_fill(1, ints(x, 4, 1), 2.0),
    "index_select": lambda x: x.index_select(1, ints(x, 4, 1)),
    "interpolate": lambda x: image(x).interpolate((9, 4)),
    "inverse": lambda x: square(x).inverse(),
    "lerp": lambda x: x.lerp(like(x, 6, 6), 0.25),
    "linear": lambda x: x.linear(like(x, 6, 2), like(x, 2)),
    **{name: lambda x, name=name: getattr(x > 0, name)(like(x, 6, 6) > 0) for name in (
        "logical_and", "logical_or", "logical_xor")},
    "masked_fill": lambda x: x.masked_fill(like(x, 6, 6) > 0, 1.0),
    "masked_select": lambda x: x.masked_select(like(x, 6, 6) > 0),
    "moveaxis": lambda x: x.moveaxis(0, 1),
    "movedim": lambda x: x.movedim(0, 1),
    "multinomial": lambda x: (Tensor.eye(6) + x * 0).multinomial(),
    "mv": lambda x: x.mv(like(x, 6)),
    "narrow": lambda x: x.narrow(0, 1, 3),
    "newton_schulz": lambda x: x.newton_schulz(2, (2.0, -1.5, 0.5)),
    "one_hot": lambda x: (rows(x) + (x * 0).int()).one_hot(6),
    "pad": lambda x: x.pad((0, 0, 0, 0)),
    "pad_to": lambda x: x.pad_to(6, 6),
    "permute": lambda x: x.permute(1, 0),
    "rearrange": lambda x: x.rearrange("(a b) c -> a (b c)", a=3),
    "repeat": lambda x: x.repeat(1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(1),
    "reshape": lambda x: x.reshape(4, 9),
    "view": lambda x: x.view(36),
    "roll": lambda x: x.roll(0, 0),
    "scaled_dot_product_attention": lambda x: image(x).scaled_dot_product_attention(image(x), like(x, 1, 1, 6, 6)),
    "scatter": lambda x: x.scatter(1, rows(x), like(x, 6, 6)),
    "scatter_add": lambda x: x.scatter_add(0, rows(x), like(x, 6, 6)),
    "scatter_reduce": lambda x: x.scatter_reduce(1, rows(x), like(x, 6, 6), "amax"),
    "select": lambda x: x.select(0, 3),
    "sequential": lambda x: x.sequential([Tensor.relu]),
    "shard": lambda x: x if isinstance(x.device, tuple) else x.shard("CPU"),
    "shrink": lambda x: x.shrink(((0, 6), (2, 4))),
    "shrink_to": lambda x: x.shrink_to(3, 6),
    "split": lambda x: x.split(3),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "swapdims": lambda x: x.swapdims(0, 1),
    "take": lambda x: x.take(ints(x, 7, 3)),
    "take_along_dim": lambda x: x.take_along_dim(rows(x), 1),
    "tensor_split": lambda x: x.tensor_split(2),
    "tensordot": lambda x: x.tensordot(like(x, 6, 6), 1),
    "threefry": lambda x: x.int().cast(dtypes.uint64).threefry(ints(x, 3).cast(dtypes.uint64)),
    "tile": lambda x: x.tile(1, 1),
    "to": lambda x: x.to(x.device),
    "topk": lambda x: x.topk(6),
    "type": lambda x: x.type(dtypes.float32),
    "ufix": lambda x: x.ufix(x),
    "unflatten": lambda x: x.unflatten(0, (2, 3)),
    "unfold": lambda x: x.unfold(1, 3, 1),
    "where": lambda x: (like(x, 6, 6) > 0).where(x, 0.5),
}  # fmt: skip

NOT_CALLED = names("""
    alu arange as_param assign backward call const cuda custom_kernel data decode_hevc_frame dim element_size empty
    empty_like equal eye from_blob from_url full glorot_uniform invalids is_floating_point is_signed item
    kaiming_normal kaiming_uniform linear_with_vars linspace manual_seed max_numel nbytes ndimension nelement
    new_empty new_full new_ones new_zeros no_grad normal numel numpy ones rand rand_like randint randn randn_like
    random_bits randperm replace scaled_uniform schedule_linear size tolist train uniform zeros
""")


def public_methods() -> set[str]:
    """Return the names of the public methods of Tensor that do not write in place.

    Further names of PyTorch are left out where there is no call of them: they are made of methods that are here, and
    ``test_torch_names.py`` has calls of all of them.
    """
    names = {name for name in dir(Tensor) if not name.startswith("_") and not name.endswith("_")}
    found = {name: getattr(Tensor, name) for name in names if hasattr(Tensor, name)}
    return {
        name
        for name, method in found.items()
        if callable(method)
        and (name in CALLS.keys() | NOT_CALLED or not method.__module__.startswith("tinygrad.torch_names"))
    }


def tensors(made: Any) -> list[Tensor]:
    """Return the tensors in what a method has made."""
    return [made] if isinstance(made, Tensor) else [t for x in made for t in tensors(x)]
