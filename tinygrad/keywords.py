"""Keywords of other packages: which argument they mean here, or what to write in their place.

In:   the name of a call and a keyword that it does not have.
Out:  ``SYNONYMS``: keyword -> own keywords that may be meant; ``instead_of``: what to write.
Why:  programs are written from memory of numpy and torch. A table that is only read once a call has failed costs the
      calls that succeed nothing.
"""

from __future__ import annotations

from typing import Final

# What the same argument is called elsewhere. numpy and torch disagree, so either word is taken.
SYNONYMS: Final = {
    "axis": ("dim", "dims"), "dim": ("axis", "dims"),
    "dims": ("order", "axis", "dim"), "dimension": ("dim",), "keepdims": ("keepdim",), "other": ("x", "w", "y"),
    "input": ("x",), "negative_slope": ("neg_slope",), "split_size": ("sizes",), "split_size_or_sections": ("sizes",),
    "ddof": ("correction",), "sorted": ("sorted_",), "exponent": ("x",), "target": ("Y",), "shift": ("shifts",),
    "unbiased": ("correction",),  # True is 1 and False is 0
    "end": ("stop",), "size": ("shape",), "pad": ("padding",), "dim0": ("axis0",), "dim1": ("axis1",),
    "sections": ("indices_or_sections",), "indices": ("indices_or_sections", "index"),
    "tensor": ("w", "other"), "tensor2": ("x", "source"), "divisor": ("x", "other"), "input2": ("x2",),
    "num_features": ("sz",), "num_embeddings": ("vocab_size",), "embedding_dim": ("embed_size",),
    "normalized_shape": ("dim",), "min": ("min_",), "max": ("max_",),
}  # fmt: skip

# numpy's functions pass these on to the methods of what they get, as None where their caller has not given them.
NOT_GIVEN: Final = frozenset({"out", "dtype"})

_REDUCTION: Final = "write reduction='mean', 'sum' or 'none'"
_NEW: Final = "results are new tensors: leave it out, or write the method that ends in an underscore"
_OUT: Final = "results are new tensors: write x.assign(...) to fill the storage of x"
_DENSE: Final = "gradients are dense: leave it out"
_GRAPH: Final = "graphs stay as long as a tensor of theirs does, and gradients are graph: leave it out"
_SAMPLES: Final = "Tensor.gradient differentiates; the slopes of samples are (t[2:] - t[:-2]) / 2 inside"
_WINDOWS: Final = "write t.im2col(kernel_size, dilation, padding, stride)"
_CAST: Final = "write t.cast(dtype)"
_MOVE: Final = "parameters are made on Device.DEFAULT, as dtypes.default_float; move them with layer.weight.to_(device)"

# keyword, or "call keyword" where it differs from call to call -> what to write.
_INSTEAD: Final = {
    "size_average": _REDUCTION,
    "reduce": _REDUCTION,
    "inplace": _NEW,
    "out": _OUT,
    "sparse_grad": _DENSE,
    "sparse": _DENSE,
    "retain_graph": _GRAPH,
    "create_graph": _GRAPH,
    "backward inputs": "write t.gradient(*inputs), or t.detach() for what needs no gradient",
    "out_dtype": "write dtype=..., an argument of matmul",
    "dtype": _CAST,
    "generator": "write Tensor.manual_seed(n): the state of random numbers is a seed and counters on each device",
    "requires_grad": "write .requires_grad_() of the result",
    "size": "write the sizes themselves, or one tuple of them: Tensor.zeros(2, 3)",
    "layout": "leave it out: there are no layouts of memory",
    "memory_format": "leave it out: there are no layouts of memory",
    "pin_memory": "leave it out: copies need no pinned memory",
    "non_blocking": "leave it out: no copy blocks",
    "to dtype": "write t.cast(dtype), and t.to(device) for the device",
    "to copy": "write t.clone()",
    "numpy force": "leave it out: the values are copied wherever they are",
    "output_size": "leave it out: the size of the result is known from the repeats",
    "compute_mode": "leave it out: distances are always sums of differences",
    "assume_unique": "leave it out: every element is compared with every other",
    "fweights": "repeat the observations: t.repeat_interleave(n, 1)",
    "aweights": "write the weighted mean and products: d = t - (t * w).sum(1, keepdim=True) / w.sum(), (d * w) @ d.T",
    "qr some": "leave it out, and shrink: q[:, :n], r[:n]",
    "svd some": "write full_matrices=False for some=True",
    "compute_uv": "leave it out: what is not used is not computed",
    "recompute_scale_factor": "write size=..., whose ratio to the old size is then the scale",
    "antialias": "blur first, with avg_pool2d or conv2d",
    "max_norm": "write weight.renorm(p, 0, max_norm) before the look-up",
    "norm_type": "write weight.renorm(p, 0, max_norm) before the look-up",
    "scale_grad_by_freq": "divide the gradient of the table by ids.one_hot(n).sum(0)",
    "spacing": _SAMPLES,
    "edge_order": _SAMPLES,
    "gradient dim": _SAMPLES,
    **dict.fromkeys(("unfold kernel_size", "unfold dilation", "unfold padding", "unfold stride"), _WINDOWS),
    "max other": "write t.maximum(other)",
    "min other": "write t.minimum(other)",
    "tensors": "write the tensors themselves: Tensor.cat(a, b), or a list of them",
    "Embedding padding_idx": "write ids.embedding(weight, padding_idx=n)",
    "device": _MOVE,
    "amsgrad": "there is no such variant: a subclass of Optimizer with _step",
    "dampening": "there is no such variant: a subclass of Optimizer with _step",
    "foreach": "leave it out, or write fused=True: all updates are one kernel",
    "capturable": "leave it out: TinyJit captures every optimizer",
    "differentiable": "leave it out: updates are graph",
}


def instead_of(call: str, keyword: str) -> str | None:
    """Return what to write instead of a keyword of numpy or torch that a call does not have, or None.

    Example:
        >>> instead_of("mse_loss", "size_average")
        "write reduction='mean', 'sum' or 'none'"
    """
    return _INSTEAD.get(f"{call} {keyword}") or _INSTEAD.get(keyword)
