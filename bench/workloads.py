"""What is measured: each workload once, as data.

In:   nothing.
Out:  ``WORKLOADS``, the table of ``run.py``, and ``FAMILIES``, the series of sizes of ``scaling.py``.
Why:  adding a workload is adding an entry, for all libraries at once.

A workload holds a function per library, called with the library's module and the inputs on its side. Where ``make`` is
set the function is called once and returns the step to measure (training keeps state); else it is the step itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench import networks
from bench.inputs import Array, Inputs

Function = Callable[..., Any]


@dataclass(frozen=True)
class Workload:
    """One line of the table.

    Attributes:
        name: How it is called in the table and on the command line.
        goal: Time of torch / our time that the project is for.
        flops: Arithmetic operations that the task needs.
        nbytes: Bytes that it must read and write at least: each input and each output once.
        inputs: Makes the input arrays.
        functions: Library ("tinygrad", "torch", "numpy", "jax") -> function. jax takes numpy's where it has none.
        dtypes: Library -> dtype to which the float inputs are converted before anything is timed.
        rtol: Largest relative difference of results between two libraries.
        atol: Largest absolute difference.
        make: The functions return the step.
    """

    name: str
    goal: float
    flops: float
    nbytes: float
    inputs: Callable[[Inputs], list[Array]]
    functions: Mapping[str, Function]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    rtol: float = 1e-4
    atol: float = 1e-4
    make: bool = False

    def function(self, library: str) -> Function | None:
        """Return what ``library`` runs, or None if it takes no part."""
        return self.functions.get(library) or (self.functions.get("numpy") if library == "jax" else None)


def _same(function: Function) -> dict[str, Function]:
    """Every library has the operators; the first parameter is its module."""
    return dict.fromkeys(("tinygrad", "torch", "numpy"), function)


def _all_bfloat16(*libraries: str) -> dict[str, str]:
    return dict.fromkeys(libraries, "bfloat16")


# ---- contractions ----------------------------------------------------------------------------------------------------


def matmul(m: int, k: int, n: int, goal: float = 0.95) -> Workload:
    """(m, k) @ (k, n) in float32."""
    return Workload(
        f"matmul {m}x{k}x{n}" if len({m, k, n}) > 1 else f"matmul {m}^3",
        goal, 2.0 * m * k * n, 4.0 * (m * k + k * n + m * n),
        lambda r: [r.floats(m, k), r.floats(k, n)],
        _same(lambda lib, a, b: a @ b),
        atol=2e-6 * k,
    )  # fmt: skip


def narrow_matmul(n: int, dtype: str) -> Workload:
    """N^3 in bfloat16, or int8 with int32 sums; both are held against torch's bfloat16."""
    base = {"torch": lambda t, a, b: a @ b}
    if dtype == "int8":
        functions = base | {"tinygrad": lambda t, a, b: a.matmul(b, dtype=t.dtypes.int32)}
        return Workload(
            f"matmul {n}^3 int8", 2.0, 2.0 * n**3, 2.0 * n * n + 4.0 * n * n,
            lambda r: [r.integers(-8, 8, n, n, dtype=np.int8), r.integers(-8, 8, n, n, dtype=np.int8)],
            functions, {"torch": "bfloat16"}, rtol=1e-2, atol=1.0,
        )  # fmt: skip
    return Workload(
        f"matmul {n}^3 bf16", 2.0, 2.0 * n**3, 6.0 * n * n,
        lambda r: [r.floats(n, n), r.floats(n, n)],
        base | {"tinygrad": lambda t, a, b: a @ b, "jax": lambda jnp, a, b: a @ b},
        _all_bfloat16("torch", "tinygrad", "jax"), rtol=1.6e-2, atol=0.05 * math.sqrt(n / 1024),
    )  # fmt: skip


def chain(n: int, length: int = 20) -> Workload:
    """A chain of small products: what a launch costs."""

    def run(lib: Any, x: Any, w: Any) -> Any:
        for _ in range(length):
            x = x @ w
        return x

    # Rotations: products neither grow nor vanish.
    def inputs(r: Inputs) -> list[Array]:
        rotation, _ = np.linalg.qr(r.floats(n, n).astype(np.float64))
        return [r.floats(n, n), rotation.astype(np.float32)]

    return Workload(f"{length} x matmul {n}^3", 1.5, 2.0 * length * n**3, 4.0 * 3 * length * n * n, inputs, _same(run))


_LINEAR: Final = Workload(
    "linear relu 1024x1024->4096", 1.0, 2.0 * 1024 * 1024 * 4096, 4.0 * (1024 * 1024 + 2 * 4096 * 1024 + 4096),
    lambda r: [r.floats(1024, 1024), r.floats(4096, 1024, scale=1 / 32), r.floats(4096)],
    {
        "tinygrad": lambda t, x, w, b: x.linear(w.T, b).relu(),
        "torch": lambda t, x, w, b: t.relu(t.nn.functional.linear(x, w, b)),
        "numpy": lambda np, x, w, b: np.maximum(x @ w.T + b, 0),
    },
)  # fmt: skip


def _attention_numpy(np: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * np.float32(1 / math.sqrt(q.shape[-1]))
    scores = np.where(np.tri(q.shape[-2], dtype=bool), scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v


def attention(batch: int, heads: int, length: int, width: int) -> Workload:
    """Causal attention; its operations are counted for the half of the scores that is needed."""
    return Workload(
        f"causal attention {batch}x{heads}x{length}x{width}",
        1.0, 2.0 * batch * heads * length * (length + 1) * width, 4.0 * 4 * batch * heads * length * width,
        lambda r: [r.floats(batch, heads, length, width) for _ in range(3)],
        {
            "tinygrad": lambda t, q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
            "torch": lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            "numpy": _attention_numpy,
        },
    )  # fmt: skip


def _tinygrad_attention_gradients(t: Any, q: Any, k: Any, v: Any, grad: Any) -> Any:
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    return (out, *out.gradient(q, k, v, gradient=grad))


def _torch_attention_gradients(t: Any, q: Any, k: Any, v: Any, grad: Any) -> Any:
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = t.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    return (out.detach(), *t.autograd.grad(out, leaves, grad))


def attention_gradients(batch: int, heads: int, length: int, width: int) -> Workload:
    """Causal attention, and the gradients of its arguments; the operations of the half of the scores that is needed."""
    return Workload(
        f"causal attention and gradients {batch}x{heads}x{length}x{width}",
        1.0, 7.0 * batch * heads * length * (length + 1) * width, 4.0 * 8 * batch * heads * length * width,
        lambda r: [r.floats(batch, heads, length, width) for _ in range(4)],
        {"tinygrad": _tinygrad_attention_gradients, "torch": _torch_attention_gradients},
    )  # fmt: skip


def _attention_block(sdpa: Function, x: Any, weights: Sequence[Any], heads: int) -> Any:
    batch, length, width = x.shape

    def split(rows: Any) -> Any:
        return rows.reshape(batch, length, heads, width // heads).transpose(1, 2)

    queries, keys, values, last = weights
    out = sdpa(split(x @ queries), split(x @ keys), split(x @ values), is_causal=True)
    return out.transpose(1, 2).reshape(batch, length, width) @ last


def attention_block(batch: int, heads: int, length: int, width: int) -> Workload:
    """Causal attention between its four projections, and the gradients of its input and its weights."""

    def tinygrad(t: Any, x: Any, grad: Any, *weights: Any) -> Any:
        out = _attention_block(t.Tensor.scaled_dot_product_attention, x, weights, heads)
        return (out, *out.gradient(x, *weights, gradient=grad))

    def torch(t: Any, x: Any, grad: Any, *weights: Any) -> Any:
        leaves = [tensor.detach().requires_grad_() for tensor in (x, *weights)]
        out = _attention_block(t.nn.functional.scaled_dot_product_attention, leaves[0], leaves[1:], heads)
        return (out.detach(), *t.autograd.grad(out, leaves, grad))

    rows, scores = batch * length, batch * heads * length * (length + 1) // 2
    return Workload(
        f"attention block and gradients {batch}x{length}x{width}",
        1.0, 3 * 4 * 2.0 * rows * width * width + 14.0 * scores * (width // heads),
        4.0 * (4 * rows * width + 8 * width * width),
        lambda r: [
            *[r.floats(batch, length, width) for _ in range(2)],
            *[r.floats(width, width, scale=1 / math.sqrt(width)) for _ in range(4)],
        ],
        {"tinygrad": tinygrad, "torch": torch},
        rtol=1e-3, atol=1e-3,
    )  # fmt: skip


# ---- convolutions ----------------------------------------------------------------------------------------------------


def _jax_conv(jnp: Any, x: Any, w: Any, groups: int = 1) -> Any:
    from jax import lax  # type: ignore[import-not-found,unused-ignore]

    return lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)), feature_group_count=groups)


def conv(n: int, channels: int, side: int, depthwise: bool = False) -> Workload:
    """3x3, padding 1, relu; as many filters as channels."""
    groups = channels if depthwise else 1
    depth, image = channels // groups, n * channels * side * side
    return Workload(
        f"{'depthwise ' if depthwise else ''}conv 3x3 {channels}ch {n}x{side}x{side}",
        1.0, 2.0 * image * depth * 9, 4.0 * (2 * image + channels * depth * 9),
        lambda r: [r.floats(n, channels, side, side), r.floats(channels, depth, 3, 3, scale=1 / math.sqrt(9 * depth))],
        {
            "tinygrad": lambda t, x, w: x.conv2d(w, padding=1, groups=groups).relu(),
            "torch": lambda t, x, w: t.relu(t.nn.functional.conv2d(x, w, padding=1, groups=groups)),
            "jax": lambda jnp, x, w: jnp.maximum(_jax_conv(jnp, x, w, groups), 0),
        },
    )  # fmt: skip


def _torch_conv_gradients(torch: Any, x: Any, w: Any, g: Any) -> Any:
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = torch.relu(torch.nn.functional.conv2d(x, w, padding=1))
    return (y.detach(), *torch.autograd.grad(y, (x, w), g))


def _tinygrad_conv_gradients(tinygrad: Any, x: Any, w: Any, g: Any) -> Any:
    y = x.conv2d(w, padding=1).relu()
    return (y, *y.gradient(x, w, gradient=g))


def _jax_conv_gradients(jnp: Any, x: Any, w: Any, g: Any) -> Any:
    import jax  # type: ignore[import-not-found,unused-ignore]

    y, pull = jax.vjp(lambda x, w: jnp.maximum(_jax_conv(jnp, x, w), 0), x, w)
    return (y, *pull(g))


def conv_gradients(n: int, channels: int, side: int) -> Workload:
    """The convolution, and the gradients of its input and of its filters."""
    image, filters = n * channels * side * side, channels * channels * 9
    return Workload(
        f"conv 3x3 and gradients {channels}ch {n}x{side}x{side}",
        1.0, 3 * 2.0 * image * channels * 9, 4.0 * (4 * image + 2 * filters),
        lambda r: [
            r.floats(n, channels, side, side),
            r.floats(channels, channels, 3, 3, scale=1 / math.sqrt(9 * channels)),
            r.floats(n, channels, side, side),
        ],
        {"tinygrad": _tinygrad_conv_gradients, "torch": _torch_conv_gradients, "jax": _jax_conv_gradients},
        # A relu whose input is rounded to the other side of 0 moves a gradient by more than the rounding.
        rtol=1e-3, atol=2e-3,
    )  # fmt: skip


# ---- memory ----------------------------------------------------------------------------------------------------------


def stream(power: int) -> Workload:
    """((a + b) * a).relu() over 2^power floats."""
    n = 1 << power
    return Workload(
        f"((a+b)*a).relu() 2^{power}", 3.0, 3.0 * n, 12.0 * n,
        lambda r: [r.floats(n), r.floats(n)],
        {
            "tinygrad": lambda t, a, b: ((a + b) * a).relu(),
            "torch": lambda t, a, b: t.relu((a + b) * a),
            "numpy": lambda np, a, b: np.maximum((a + b) * a, 0),
        },
    )  # fmt: skip


def _gelu_numpy(np: Any, x: Any) -> Any:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))


def _softmax_numpy(np: Any, x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layernorm_numpy(np: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))


_N24: Final = 1 << 24
_SQUARE: Final = 4096
_MEMORY: Final = (
    stream(24),
    Workload(
        "gelu tanh 2^24", 3.0, 30.0 * _N24, 8.0 * _N24, lambda r: [r.floats(_N24)],
        {
            "tinygrad": lambda t, x: x.gelu(),
            "torch": lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
            "numpy": _gelu_numpy,
        },
    ),
    Workload(
        "sum 2^24", 1.0, 1.0 * _N24, 4.0 * _N24, lambda r: [r.uniform(_N24)],
        _same(lambda lib, x: x.sum()),
    ),
    Workload(
        "column sums 4096^2", 1.0, 1.0 * _SQUARE**2, 4.0 * _SQUARE**2, lambda r: [r.floats(_SQUARE, _SQUARE)],
        _same(lambda lib, x: x.sum(0)), atol=5e-3,
    ),
    Workload(
        "transpose copy 4096^2", 1.0, 0.0, 8.0 * _SQUARE**2, lambda r: [r.floats(_SQUARE, _SQUARE)],
        {
            "tinygrad": lambda t, x: x.T.contiguous(),
            "torch": lambda t, x: x.t().contiguous(),
            "numpy": lambda np, x: np.ascontiguousarray(x.T),
            "jax": lambda jnp, x: x.T,
        },
    ),
    Workload(
        "softmax 4096^2", 1.3, 20.0 * _SQUARE**2, 8.0 * _SQUARE**2, lambda r: [r.floats(_SQUARE, _SQUARE)],
        {"tinygrad": lambda t, x: x.softmax(-1), "torch": lambda t, x: x.softmax(-1), "numpy": _softmax_numpy},
        atol=1e-6,
    ),
    Workload(
        "layernorm 8192x1024", 1.3, 8.0 * 8192 * 1024, 8.0 * 8192 * 1024, lambda r: [r.floats(8192, 1024)],
        {
            "tinygrad": lambda t, x: x.layernorm(),
            "torch": lambda t, x: t.nn.functional.layer_norm(x, (1024,)),
            "numpy": _layernorm_numpy,
        },
    ),
    Workload(
        "cumsum 1024x4096", 1.0, 1024.0 * 4096, 8.0 * 1024 * 4096, lambda r: [r.floats(1024, 4096)],
        {"tinygrad": lambda t, x: x.cumsum(1), "torch": lambda t, x: x.cumsum(1), "numpy": lambda np, x: x.cumsum(1)},
        atol=5e-3,
    ),
)  # fmt: skip


# ---- the network -----------------------------------------------------------------------------------------------------


def training(batch: int) -> Workload:
    """One step of training on MNIST: gather the batch, forward, backward, Adam."""
    return Workload(
        f"MNIST training step {batch}", 1.33, networks.training_flops(batch), 0.0,
        lambda r: networks.training_inputs(r, batch),
        {"tinygrad": networks.tinygrad_training, "torch": networks.torch_training},
        # Rounding alone flips some relu's of near zero, and Adam's first steps only look at signs.
        rtol=3e-2, atol=1e-2, make=True,
    )  # fmt: skip


def forward(batch: int) -> Workload:
    """The same network, without training."""
    return Workload(
        f"MNIST forward {batch}", 1.0, networks.forward_flops(batch), 4.0 * batch * 784,
        lambda r: [r.uniform(batch, 1, 28, 28), *networks.parameters(r)],
        {"tinygrad": networks.tinygrad_forward, "torch": networks.torch_forward},
        rtol=1e-3, atol=1e-3, make=True,
    )  # fmt: skip


# ---- the tables ------------------------------------------------------------------------------------------------------

WORKLOADS: Final = (
    matmul(512, 512, 512),
    matmul(1024, 1024, 1024),
    matmul(2048, 2048, 2048),
    matmul(777, 1001, 513, goal=0.9),
    Workload(
        "batched matmul 64x(128x64x128)", 1.0, 2.0 * 64 * 128 * 64 * 128, 4.0 * 64 * (2 * 128 * 64 + 128 * 128),
        lambda r: [r.floats(64, 128, 64), r.floats(64, 64, 128)], _same(lambda lib, a, b: a @ b),
    ),
    Workload(
        "matrix x vector 4096^2", 1.0, 2.0 * 4096**2, 4.0 * (4096**2 + 2 * 4096),
        lambda r: [r.floats(4096, 4096), r.floats(4096)], _same(lambda lib, a, x: a @ x), atol=5e-3,
    ),
    _LINEAR,
    narrow_matmul(2048, "bfloat16"),
    narrow_matmul(2048, "int8"),
    conv(8, 64, 56),
    conv_gradients(8, 64, 28),
    conv(8, 128, 56, depthwise=True),
    *_MEMORY,
    attention(4, 8, 512, 64),
    attention_gradients(4, 8, 512, 64),
    attention_block(4, 8, 512, 512),
    training(512),
    chain(16),
    chain(64),
    chain(128),
)  # fmt: skip

FAMILIES: Final = {
    "matmul": tuple(matmul(n, n, n) for n in (256, 512, 1024, 2048, 4096)),
    "stream": tuple(stream(power) for power in (20, 22, 24, 26)),
    "network": tuple(forward(batch) for batch in (1, 4, 16, 64, 256, 1024)),
}


def find(name: str) -> Workload:
    """Return the workload with this name.

    Raises:
        KeyError: There is none.
    """
    for workload in (*WORKLOADS, *(w for family in FAMILIES.values() for w in family)):
        if workload.name == name:
            return workload
    raise KeyError(f"there is no workload {name!r}; there are: {', '.join(w.name for w in WORKLOADS)}")
