"""The MNIST network and its training step, once per library, with the same parameters and the same batch.

In:   arrays on the library's side: images (N, 1, 28, 28), labels (N,), the positions of one batch, then the parameters.
Out:  a function that makes one training step (or one forward pass) each time it is called.
Why:  a comparison is fair only if all compute the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bench.inputs import Array, Inputs

Function = Callable[..., Any]

_CONVOLUTIONS = ((1, 32, 5), (32, 32, 5), (32, 64, 3), (64, 64, 3))
_IMAGES = 8192
# Sizes of the outputs of the four convolutions, for the count of operations.
_SIDES = (24, 20, 8, 6)


def parameters(inputs: Inputs) -> list[Array]:
    """Return weight and bias of every layer: four convolutions and the linear layer."""
    found = []
    for channels, filters, side in _CONVOLUTIONS:
        scale = 1 / math.sqrt(3 * channels * side * side)
        found += [inputs.floats(filters, channels, side, side, scale=scale), inputs.floats(filters, scale=scale)]
    scale = 1 / math.sqrt(3 * 576)
    return [*found, inputs.floats(10, 576, scale=scale), inputs.floats(10, scale=scale)]


def training_inputs(inputs: Inputs, batch: int) -> list[Array]:
    """Return images, labels, positions of the batch, parameters."""
    images, labels = inputs.uniform(_IMAGES, 1, 28, 28), inputs.integers(0, 10, _IMAGES)
    return [images, labels, inputs.integers(0, _IMAGES, batch), *parameters(inputs)]


def forward_flops(batch: int) -> float:
    """Return the operations of the convolutions and the linear layer."""
    layers = zip(_CONVOLUTIONS, _SIDES, strict=True)
    return batch * 2.0 * (sum(c * f * k * k * side * side for (c, f, k), side in layers) + 5760)


def training_flops(batch: int) -> float:
    """Return the operations of a step: forward, and the gradients of inputs and weights (the images need none)."""
    first = batch * 2.0 * 32 * 25 * 24 * 24
    return 3 * forward_flops(batch) - first


# ---- torch -----------------------------------------------------------------------------------------------------------


def _torch_model(torch: Any, values: tuple[Any, ...]) -> Any:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(576, 10),
    )  # fmt: skip
    layers = [layer for layer in model if isinstance(layer, (nn.Conv2d, nn.Linear))]
    with torch.no_grad():
        for i, layer in enumerate(layers):
            layer.weight.copy_(values[2 * i])
            layer.bias.copy_(values[2 * i + 1])
    return model


def torch_training(torch: Any, images: Any, labels: Any, samples: Any, *values: Any) -> Function:
    """Return a training step of torch, eager."""
    model = _torch_model(torch, values)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    labels, samples = labels.long(), samples.long()

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[samples]), labels[samples])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def torch_forward(torch: Any, images: Any, *values: Any) -> Function:
    """Return a forward pass of torch, without gradients."""
    model = _torch_model(torch, values).eval()

    def run() -> Any:
        with torch.no_grad():
            return model(images)

    return run


# ---- tinygrad, ours and upstream -------------------------------------------------------------------------------------


class TinygradModel:
    """The same network; ``values`` replace the random parameters."""

    def __init__(self, tinygrad: Any, values: tuple[Any, ...] = ()) -> None:
        nn, tensor = tinygrad.nn, tinygrad.Tensor
        first, second = nn.BatchNorm(32), nn.BatchNorm(64)
        weighted = [*(nn.Conv2d(*sizes) for sizes in _CONVOLUTIONS), nn.Linear(576, 10)]
        for i, layer in enumerate(weighted if values else ()):
            layer.weight.assign(values[2 * i]).realize()
            layer.bias.assign(values[2 * i + 1]).realize()
        self.layers = [
            weighted[0], tensor.relu, weighted[1], tensor.relu, first, tensor.max_pool2d,
            weighted[2], tensor.relu, weighted[3], tensor.relu, second, tensor.max_pool2d,
            lambda x: x.flatten(1), weighted[4],
        ]  # fmt: skip

    def __call__(self, x: Any) -> Any:
        return x.sequential(self.layers)


def tinygrad_step(tinygrad: Any, model: TinygradModel, images: Any, labels: Any, draw: Function) -> Function:
    """Return a jitted training step on the batch whose positions ``draw`` returns."""
    optimizer = tinygrad.nn.optim.Adam(tinygrad.nn.state.get_parameters(model), lr=0.001)

    def step() -> Any:
        with tinygrad.Context(TRAINING=1):
            optimizer.zero_grad()
            samples = draw()
            # Images are data: their gradient, which torch does not compute either, would be part of what is captured.
            loss = model(images[samples].detach()).sparse_categorical_crossentropy(labels[samples]).backward()
            return loss.realize(*optimizer.schedule_step())

    return tinygrad.TinyJit(step)  # type: ignore[no-any-return]


def tinygrad_training(tinygrad: Any, images: Any, labels: Any, samples: Any, *values: Any) -> Function:
    """Return a training step through TinyJit."""
    return tinygrad_step(tinygrad, TinygradModel(tinygrad, values), images, labels, lambda: samples)


def mnist_program(tinygrad: Any, batch: int = 512) -> Function:
    """Return the training step of ``examples/beautiful_mnist.py``: the data of the package, random batches."""
    images, labels, _, _ = tinygrad.nn.datasets.mnist()
    draw = lambda: tinygrad.Tensor.randint(batch, high=images.shape[0])  # noqa: E731
    return tinygrad_step(tinygrad, TinygradModel(tinygrad), images, labels, draw)


def tinygrad_forward(tinygrad: Any, images: Any, *values: Any) -> Function:
    """Return a forward pass through TinyJit."""
    model = TinygradModel(tinygrad, values)
    run = tinygrad.TinyJit(lambda x: model(x).realize())
    return lambda: run(images)


# ---- a transformer, for the growth of compile time -------------------------------------------------------------------


def transformer_inputs(tinygrad: Any, layers: int, width: int = 64, length: int = 32) -> tuple[Any, list[list[Any]]]:
    """Return the input of a transformer with so many layers, and the four weights of each layer, realised."""
    tensor = tinygrad.Tensor
    shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    weights = [[tensor.randn(*shape) * 0.1 for shape in shapes] for _ in range(layers)]
    x = tensor.randn(2, length, width)
    return x.realize(*(w for layer in weights for w in layer)), weights


def transformer_gradients(x: Any, weights: list[list[Any]], heads: int = 4) -> list[Any]:
    """Return the gradients of all weights of a transformer, not realised."""
    batch, length, width = x.shape
    for packed, out, up, down in weights:
        q, k, v = (
            part.reshape(batch, length, heads, width // heads).transpose(1, 2)
            for part in (x.layernorm() @ packed).chunk(3, dim=-1)
        )
        attended = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + attended @ out
        x = x + (x.layernorm() @ up).gelu() @ down
    return x.square().mean().gradient(*(w for layer in weights for w in layer))  # type: ignore[no-any-return]
