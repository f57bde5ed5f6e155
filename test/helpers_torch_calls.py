"""Calls of methods under names of torch, here and there, and what their results are compared by.

In:   tables of lines ``name: call``, the same text in both packages, or ``name: call ~ call in torch``.
Out:  the calls, the tensors that they name, and checkers of values and gradients.
Why:  a row per name is short enough that every name has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tinygrad import Tensor, dtypes
from tinygrad.torch_names.alignments import AlignmentNames
from tinygrad.torch_names.images import ImageNames
from tinygrad.torch_names.layers import LayerNames
from tinygrad.torch_names.losses import LossNames

LAYER_GROUPS = (ImageNames, LayerNames, LossNames, AlignmentNames)
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
    "offsets": np.array([0, 4, 4, 9, 12]),
    "labels": np.array([[0, 2, -1], [1, -1, 2], [-1, 0, 1], [2, 1, 0]]),
    "ids": np.array([[1, 2, 3], [1, 1, 3]]),
}

# mode, padding_mode and align_corners of grid_sample
SAMPLING = [
    (mode, padding, corners)
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (False, True)
]


def rows(table: str) -> list[tuple[str, str, str]]:
    """Return (name, call here, call in torch)."""
    found = []
    for line in table.strip().splitlines():
        name, text = line.split(": ", 1)
        ours, _, theirs = text.partition(" ~ ")
        found.append((name, ours, theirs or ours))
    return found


def namespaces() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors by name, here and in torch."""
    ours: dict[str, Any] = {name: Tensor(array).clone() for name, array in DATA.items()}
    theirs: dict[str, Any] = {name: torch.tensor(array) for name, array in DATA.items()}
    for names in (ours, theirs):
        names["x"], names["y"], names["z"] = (names[name] + 0 for name in "avc")
        names["SAMPLING"], names["HOW"] = SAMPLING, ("linear", "lower", "higher", "nearest", "midpoint")
    return (
        ours | {"dtypes": dtypes, "F64": dtypes.float64},
        theirs | {"torch": torch, "F": torch.nn.functional, "F64": torch.float64},
    )


def assert_same(ours: Any, theirs: Any) -> None:
    """Compare results: tensors by value, shape and kind of dtype."""
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


def floats_of(result: Any) -> list[Any]:
    """Return the float tensors of a result that gradients flow into."""
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in floats_of(part)]
    return [result] if hasattr(result, "detach") else []


def public_names(*classes: type) -> set[str]:
    """Return the names of the methods that classes define themselves."""
    return {name for cls in classes for name in vars(cls) if not name.startswith("_")}


def assert_call(ours: str, theirs: str) -> None:
    """Compare the values of a call with those of torch."""
    here, there = namespaces()
    assert_same(eval(ours, here), eval(theirs, there))


def assert_gradient(ours: str, theirs: str) -> None:
    """Compare the gradients of what a call names with those of torch."""
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
