"""What to write instead of names of PyTorch that have no counterpart here.

In:   a class.
Out:  the same class; asking it or its instances for such a name raises an AttributeError that says what does the job.
Why:  "no attribute" leaves the reader to search. A descriptor that raises costs the other attributes nothing, which
      ``__getattr__`` would: with it, no attribute access of the class is specialised by the interpreter.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

_NO_STRIDES: Final = "views are part of the graph and have no strides"
_ALL_GRADS: Final = "backward fills grad of every live float tensor, results in between too"
_NO_COMPLEX: Final = "there are no complex numbers"
_SIZE: Final = "the size of its result depends on values; read them with numpy() first"
_OVER_NUMPY: Final = "numpy has it: Tensor(numpy function of t.numpy())"
_ANY_DIMS: Final = "takes any number of dims"
_ADAPTIVE: Final = "write avg_pool2d with the kernel input size // output size"
_HUBER: Final = "write (d < 1).where(0.5 * d * d, d - 0.5).mean() with d = (a - b).abs()"
_TRIANGLE: Final = "the coordinates under a mask are mask.nonzero(): Tensor.ones(n, m).tril().nonzero().T"
_HINTS: Final = {
    "tensor": "write Tensor(data)",
    "from_numpy": "write Tensor(array)",
    "as_tensor": "write Tensor(data)",
    "stride": _NO_STRIDES,
    "is_contiguous": _NO_STRIDES + "; contiguous() stores a value in order",
    "storage": "realize() computes and t.uop.buffer is the memory",
    "untyped_storage": "realize() computes and t.uop.buffer is the memory",
    "data_ptr": "realize() computes and t.uop.buffer is the memory",
    "grad_fn": "the graph is t.uop",
    "is_leaf": _ALL_GRADS,
    "retain_grad": _ALL_GRADS,
    "register_hook": "Tensor.gradient gives the gradient of any tensor, to be changed at will",
    "is_cuda": "ask t.device",
    "pin_memory": "copies need no pinned memory",
    "share_memory_": "a tensor over shared memory is Tensor.empty(..., device='disk:shm:NAME')",
    "itemsize": "write element_size()",
    "is_complex": _NO_COMPLEX,
    "real": _NO_COMPLEX,
    "imag": _NO_COMPLEX,
    "conj": _NO_COMPLEX,
    "unique": _SIZE,
    "masked_scatter": "write t[mask] = values",
    "index_put": "write t[indices] = values",
    "index_put_": "write t[indices] = values",
    "map_": "write the function of tensors: all methods are lazy and fuse",
    "apply_": "write the function of tensors: all methods are lazy and fuse",
    "median": "sort it and take the middle: t.sort(dim)[0]",
    "nanmedian": "sort it and take the middle: t.sort(dim)[0]",
    "kthvalue": "take it from t.sort(dim)",
    "quantile": "take it from t.sort(dim)[0]",
    "mode": _OVER_NUMPY,
    "bincount": "write t.one_hot(n).sum(0)",
    "histc": _OVER_NUMPY,
    "searchsorted": "count what is smaller: (sorted < t.unsqueeze(-1)).sum(-1)",
    "cross": _OVER_NUMPY,
    "erfc": "write 1 - t.erf(), which loses digits above 2",
    "erfinv": _OVER_NUMPY,
    "lgamma": _OVER_NUMPY,
    "digamma": _OVER_NUMPY,
    "det": "the QR decomposition has it up to the sign: t.qr()[1].diagonal().prod()",
    "logdet": "the QR decomposition has it: t.qr()[1].diagonal().abs().log().sum()",
    "solve": "write a.inverse() @ b",
    "pinverse": "it follows from svd()",
    "eig": _OVER_NUMPY,
    "cholesky": _OVER_NUMPY,
    "lstsq": "it follows from qr() or svd()",
    "atan2": "(y / x).atan() is right for x > 0",
    "arctan2": "(y / x).atan() is right for x > 0",
    "hypot": "write (x * x + y * y).sqrt()",
    "kron": "write the outer product and reshape it",
    "dist": "write (a - b).norm()",
    "cdist": "write (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1).sqrt()",
    "diag_embed": "write t.unsqueeze(-1) * Tensor.eye(n)",
    "fmax": "maximum passes NaN on",
    "fmin": "minimum passes NaN on",
    "new_tensor": "write Tensor(data, dtype=t.dtype, device=t.device)",
    "asarray": "write Tensor(data)",
    "logspace": "write 10 ** Tensor.linspace(start, end, steps)",
    "tril_indices": _TRIANGLE,
    "triu_indices": _TRIANGLE.replace("tril", "triu"),
    "to_sparse": "there are no sparse tensors",
    "isin": "write (t.unsqueeze(-1) == values).any(-1)",
    "bucketize": "count what is smaller: (boundaries < t.unsqueeze(-1)).sum(-1)",
    "slogdet": "the QR decomposition has it: t.qr()[1].diagonal().abs().log().sum()",
    "matrix_power": "write t @ t",
    "matrix_exp": _OVER_NUMPY,
    "put_": "write t.flatten()[indices] = values",
    "fill_diagonal_": "write t[i, i] = value with i = Tensor.arange(n)",
    "column_stack": "write Tensor.stack(a, b, dim=1) for 1-d tensors, a.cat(b, dim=1) for others",
    "row_stack": "write vstack",
    "broadcast_tensors": "write t.expand(shape); operators broadcast by themselves",
    "ldexp": "write t * 2.0 ** n",
    "heaviside": "write (t > 0).where(1.0, (t == 0).where(values, 0.0))",
    "sinc": "write (t == 0).where(1.0, (math.pi * t).sin() / (math.pi * t))",
    "conv1d": f"conv2d {_ANY_DIMS}",
    "conv3d": f"conv2d {_ANY_DIMS}",
    "conv_transpose1d": f"conv_transpose2d {_ANY_DIMS}",
    "conv_transpose3d": f"conv_transpose2d {_ANY_DIMS}",
    "max_pool1d": f"max_pool2d {_ANY_DIMS}: give a kernel of one size, (k,)",
    "max_pool3d": f"max_pool2d {_ANY_DIMS}: give a kernel of three sizes",
    "avg_pool1d": f"avg_pool2d {_ANY_DIMS}: give a kernel of one size, (k,)",
    "avg_pool3d": f"avg_pool2d {_ANY_DIMS}: give a kernel of three sizes",
    "adaptive_avg_pool1d": _ADAPTIVE,
    "adaptive_avg_pool2d": _ADAPTIVE,
    "adaptive_max_pool2d": _ADAPTIVE.replace("avg", "max"),
    "upsample": "write interpolate",
    "pixel_shuffle": "write t.rearrange('b (c p q) h w -> b c (h p) (w q)', p=r, q=r)",
    "pixel_unshuffle": "write t.rearrange('b c (h p) (w q) -> b (c p q) h w', p=r, q=r)",
    "layer_norm": "write layernorm(axis), or nn.LayerNorm with weights",
    "rms_norm": "it is nn.RMSNorm",
    "batch_norm": "write batchnorm, or nn.BatchNorm",
    "group_norm": "it is nn.GroupNorm",
    "instance_norm": "it is nn.InstanceNorm",
    "embedding": "write weight[ids], or nn.Embedding",
    "log_sigmoid": "write logsigmoid",
    "glu": "write a * b.sigmoid() with a, b = t.chunk(2, dim)",
    "prelu": "write (t > 0).where(t, weight * t)",
    "threshold": "write (t > threshold).where(t, value)",
    "hardshrink": "write (t.abs() > lambd).where(t, 0)",
    "softshrink": "write t.sign() * (t.abs() - lambd).relu()",
    "tanhshrink": "write t - t.tanh()",
    "cosine_similarity": "write (a.normalize(dim=dim) * b.normalize(dim=dim)).sum(dim)",
    "pairwise_distance": "write (a - b).norm(dim=-1)",
    "mse_loss": "write (a - b).square().mean()",
    "l1_loss": "write (a - b).abs().mean()",
    "smooth_l1_loss": _HUBER,
    "huber_loss": _HUBER,
    "kl_div": "write (target * (target.log() - t)).sum()",
    "binary_cross_entropy": "write binary_crossentropy",
    "binary_cross_entropy_with_logits": "write binary_crossentropy_logits",
    "schedule": "write schedule_linear()",
    "lazydata": "write t.uop",
}


class _Absent:
    """An attribute that is not there: ``hasattr`` is False, and the error says what to write."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__} has no attribute {self.name!r}: {self.instead}", name=self.name, obj=instance
        )


def add_hints(cls: type) -> None:
    """Let a class answer names that it does not have with a hint."""
    for name, instead in _HINTS.items():
        if not hasattr(cls, name):
            absent = _Absent(instead)
            absent.__set_name__(cls, name)
            setattr(cls, name, absent)
