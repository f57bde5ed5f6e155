"""Names of PyTorch without a counterpart say what to write, or why there is nothing to write."""

from __future__ import annotations

import inspect
import pickle
import re
import rlcompleter
import types
import warnings
from typing import Any

import numpy as np
import pytest

import tinygrad
from tinygrad import Tensor, nn
from tinygrad.name_hints import meaningless, methods

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("stride", "no strides"),
        ("grad_fn", "t.uop"),
        ("unique", "numpy"),
        ("index_put_", "t[indices]"),
        ("batch_norm", "batchnorm"),
        ("view_as_complex", "no complex numbers"),
        ("searchsorted", "count what is smaller"),
    ],
)
def test_names_without_counterpart_say_what_to_write(name: str, instead: str) -> None:
    for owner in (Tensor, Tensor([1.0])):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=re.escape(instead)):
            getattr(owner, name)


def test_what_is_said_to_be_in_numpy_is_there() -> None:
    renamed = {"histc": "histogram", "kaiser_window": "kaiser"}
    said = [name for name, hint in methods.METHODS.items() if "numpy has it" in hint]
    assert len(said) > 4
    for name in said:
        own = renamed.get(name, name)
        assert any(hasattr(owner, own) for owner in (np, np.linalg, np.random)), name


class Named(Tensor):
    """A subclass that has an attribute of which Tensor has only a hint."""

    stride = 3


def test_dir_lists_what_exists_and_no_hints() -> None:
    for owner in (Tensor, Tensor([[1.0]]), Named, Named([[1.0]])):
        names = dir(owner)
        assert names == sorted(names)
        assert not [name for name in names if not hasattr(owner, name)]
        assert {"sum", "shape", "numpy", "__add__", "index_add"} <= {*names}
        assert ("stride" in names) is (owner is not Tensor and type(owner) is not Tensor)
        assert dict(inspect.getmembers(owner)).keys() == {*names}
    x = Tensor([1.0])
    x.stride = 4  # type: ignore[attr-defined]  # what a user attaches
    assert "stride" in dir(x)


@pytest.mark.parametrize("text", ["Tensor.s", "Tensor.str", "x.un"])
def test_completion_offers_what_exists(text: str) -> None:
    completer = rlcompleter.Completer({"Tensor": Tensor, "x": Tensor([[1.0]])})
    offered = [word.rstrip("()") for word in completer.attr_matches(text)]
    assert not {*offered} & {"Tensor.stride", "x.unique", "Tensor.searchsorted"}
    assert not [word for word in offered if not hasattr(Tensor, word.partition(".")[2])]


# What programs ask for names: (namespace of torch, what is asked here).
NAMESPACES = [
    (torch.Tensor, Tensor), (torch, tinygrad), (torch.nn.functional, Tensor), (torch.nn, nn), (torch.optim, nn.optim),
    (torch.optim.lr_scheduler, nn.optim), (torch.linalg, Tensor), (torch.special, Tensor),
]  # fmt: skip


def is_own(namespace: Any, name: str) -> bool:
    """Whether a name of a module is its own: parts of torch, and not what it imports from elsewhere."""
    value = getattr(namespace, name, None)
    if namespace in {torch.linalg, torch.special}:
        return callable(value) and not isinstance(value, type)
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith("torch.") and namespace is not torch.nn.functional
    return namespace is not torch.optim.lr_scheduler or getattr(value, "__module__", None) == namespace.__name__


@pytest.mark.parametrize(("theirs", "ours"), NAMESPACES, ids=lambda space: getattr(space, "__name__", ""))
def test_no_name_of_torch_is_left_without_an_answer(theirs: Any, ours: Any) -> None:
    bare = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated names
        names = [name for name in dir(theirs) if not name.startswith("_") and is_own(theirs, name)]
    for name in names:
        try:
            getattr(ours, name)
        except AttributeError as error:
            if not re.search(rf"has no attribute '{name}': .+ .+", str(error)):
                bare.append(name)
    assert not bare


@pytest.mark.parametrize(
    "table", [methods.METHODS.items(), *map(enumerate, (meaningless.METHODS, meaningless.PACKAGE))]
)
def test_hints_are_needed(table: Any) -> None:
    """No name has both a method and a hint, and no hint is said twice."""
    names = [name for key, row in table for name in (row[1].split() if isinstance(row, tuple) else [key])]
    assert len(names) == len({*names})
    assert not [name for name in names if hasattr(Tensor, name) and "*" not in name]


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        (tinygrad, "cat", "write Tensor.cat"),
        (tinygrad, "searchsorted", "count what is smaller"),
        (tinygrad, "sparse_coo_tensor", "no meaning here, because there are no sparse"),
        (tinygrad, "float32", "write dtypes.float32"),
        (tinygrad, "Linear", "layers are in nn"),
        (nn, "ReLU", "Tensor.relu"),
        (nn.optim, "Rprop", "subclass of Optimizer"),
    ],
)
def test_modules_say_what_to_write(module: Any, name: str, instead: str) -> None:
    assert not hasattr(module, name)
    with pytest.raises(AttributeError, match=re.escape(instead)) as caught:
        getattr(module, name)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_names_of_nobody_have_no_hint() -> None:
    for module in (tinygrad, nn, nn.optim):
        with pytest.raises(AttributeError, match=r"^module '[\w.]+' has no attribute 'frobnicate'$"):
            _ = module.frobnicate
