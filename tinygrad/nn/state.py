"""State of models: find the tensors in an object, and replace them.

In:   any object that holds tensors.
Out:  flat dicts from dotted names to tensors.
Why:  models have no base class, so their tensors are found by walking what they hold. The functions that store such
      dicts in files, and read them again, have this module as their public place.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tinygrad.boundary import explained
from tinygrad.errors import ArgumentError, shown
from tinygrad.helpers import DEBUG, slots_of, tqdm
from tinygrad.nn.archives import TensorIO, accept_filename, tar_extract, zip_extract
from tinygrad.nn.content_store import fs_load, fs_store
from tinygrad.nn.safetensors import inverse_safe_dtypes, safe_dtypes, safe_load, safe_load_metadata, safe_save
from tinygrad.nn.torch_file import torch_load
from tinygrad.tensor import Tensor

__all__ = [
    "TensorIO", "accept_filename", "fs_load", "fs_store", "get_parameters", "get_state_dict", "inverse_safe_dtypes",
    "load_state_dict", "safe_dtypes", "safe_load", "safe_load_metadata", "safe_save", "tar_extract", "torch_load",
    "zip_extract",
]  # fmt: skip


@explained
def get_state_dict(obj: Any, prefix: str = "", tensor_type: Any = Tensor) -> dict[str, Any]:
    """Find every tensor that an object holds.

    Attributes, items of dicts, lists, tuples and named tuples are walked; everything else is ignored. A tensor that is
    reached on two ways has two names. Functions, lambdas, methods and ``functools.partial`` objects are searched last,
    for tensors that no other way leads to: layers in a closure, in default arguments or bound to a partial.

    Args:
        obj: A model, a list of layers, a tensor, ...
        prefix: Put before each name, with a dot between.
        tensor_type: The type (or tuple of types) to look for.

    Returns:
        Name -> tensor. A bare tensor has the name ''.

    Raises:
        ValueError: Two tensors have the same name, as those of ``{1: a, "1": b}``: one of them would be lost.

    Example:
        >>> sorted(nn.state.get_state_dict({"first": nn.Linear(2, 3)}))
        ['first.bias', 'first.weight']
    """
    walk = _Walk(tensor_type)
    found: dict[str, Any] = {}
    for key, tensor in walk(obj, prefix.strip(".")):
        if found.setdefault(key, tensor) is not tensor:
            raise ValueError(f"get_state_dict: two tensors have the name {key!r}; rename the key of one of them")
    known = {id(tensor) for tensor in found.values()}
    seen: set[int] = set()
    for name, function in walk.functions:  # grows meanwhile: a closure may hold an object that holds another closure
        if id(function) in seen:
            continue
        seen.add(id(function))
        for inner_name, held in _held_by_function(function):
            for key, tensor in walk(held, _join(name, inner_name)):
                if id(tensor) not in known and key not in found:
                    known.add(id(tensor))
                    found[key] = tensor
    return found


@explained
def get_parameters(obj: Any) -> list[Tensor]:
    """Return every tensor that an object holds, those that are not trained included.

    Example:
        >>> [p.shape for p in nn.state.get_parameters(nn.Linear(2, 3))]
        [(3, 2), (3,)]
    """
    return list(get_state_dict(obj).values())


def _join(prefix: str, name: object) -> str:
    return f"{prefix}.{name}" if prefix else str(name)


class _Walk:
    """A depth-first walk through objects; several calls share what earlier ones have learnt."""

    def __init__(self, tensor_type: Any) -> None:
        self.tensor_type = tensor_type
        self.functions: list[tuple[str, Any]] = []  # met so far, with their names
        self._barren: set[int] = set()  # objects without any tensor below: not entered again
        self._found = 0

    def __call__(self, root: Any, root_name: str) -> Iterator[tuple[str, Any]]:
        """Yield (name, tensor) for each tensor below ``root``, in order."""
        on_path: set[int] = set()  # an object that holds itself, as a child that knows its parent does, ends there
        # An object is on the stack to be entered, then, with the number of tensors found before it, to be left.
        stack: list[tuple[str, Any, int | None]] = [(root_name, root, None)]
        while stack:
            name, obj, found_before = stack.pop()
            if found_before is not None:
                on_path.discard(id(obj))
                if found_before == self._found:
                    self._barren.add(id(obj))
            elif isinstance(obj, self.tensor_type):
                self._found += 1
                yield name, obj
            elif _is_function(obj):
                self.functions.append((name, obj))
            elif id(obj) not in on_path and id(obj) not in self._barren and (children := _children(obj)):
                on_path.add(id(obj))
                stack.append((name, obj, self._found))
                stack.extend((_join(name, key), child, None) for key, child in reversed(children))


def _children(obj: Any) -> list[tuple[object, Any]]:
    """Return what an object holds by name; nothing for leaves such as numbers, classes and graph nodes."""
    if isinstance(obj, (str, bytes, int, float, type, types.ModuleType, Tensor)):
        return []
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return list(zip(obj._fields, obj, strict=True))
    if isinstance(obj, dict):
        return list(obj.items())
    if isinstance(obj, (list, tuple)):
        return list(enumerate(obj))
    if type(obj).__module__.startswith(_INNER_MODULES):
        # A JIT and a @function hold graphs and results of their own; what belongs to the model is the wrapped function.
        wrapped = getattr(obj, "fxn", None)
        return [("fxn", wrapped)] if wrapped is not None else []
    in_slots = [(name, getattr(obj, name)) for name in slots_of(type(obj)) if hasattr(obj, name)]
    return in_slots + list(getattr(obj, "__dict__", {}).items())


# Objects of these modules are machinery, not models.
_INNER_MODULES: Final = (
    "tinygrad.engine", "tinygrad.function", "tinygrad.uop", "tinygrad.dtype", "tinygrad.device", "tinygrad.runtime",
    "tinygrad.renderer", "tinygrad.settings",
)  # fmt: skip


def _is_function(obj: Any) -> bool:
    return isinstance(obj, (types.FunctionType, types.MethodType, functools.partial))


def _held_by_function(function: Any) -> list[tuple[str, Any]]:
    """Return the objects that a function refers to: its closure, default arguments, bound object or bound arguments."""
    if isinstance(function, functools.partial):
        positional = [(f"args.{index}", arg) for index, arg in enumerate(function.args)]
        return [("func", function.func), *positional, *function.keywords.items()]
    if isinstance(function, types.MethodType):
        return [("self", function.__self__), ("func", function.__func__)]
    held = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held.append((name, cell.cell_contents))
        except ValueError:  # the variable has no value yet
            continue
    defaults = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    held += zip(names[len(names) - len(defaults) :], defaults, strict=True)
    held += (function.__kwdefaults__ or {}).items()
    return held


@explained
def load_state_dict(
    model: Any,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Replace each tensor of a model by the one of the same name, moved to where the model's tensor is.

    The dtype is that of the new tensor. Shapes have to agree, but () and (1,) are taken for each other. All names and
    shapes are looked at first: after an error the model is as it was.

    Args:
        model: What ``get_state_dict`` walks.
        state_dict: Name -> tensor. With DEBUG >= 1, names that the model does not have are reported.
        strict: Whether a tensor of the model without a counterpart is an error.
        verbose: Whether a progress bar is shown, on a terminal.
        consume: Whether each entry is deleted once it was used, so that its memory can be given back.
        realize: Whether the tensors are loaded now.

    Returns:
        The tensors of the model that were replaced.

    Raises:
        KeyError: A name is missing and ``strict`` is set.
        ValueError: Two shapes differ.
        ArgumentError: An entry is no tensor.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> new = {"weight": Tensor([[3.0, 4.0]]), "bias": Tensor([0.5])}
        >>> _ = nn.state.load_state_dict(layer, new, verbose=False)
        >>> layer.weight.tolist()
        [[3.0, 4.0]]
    """
    given: Any = state_dict
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise ArgumentError(f"load_state_dict: state_dict is of type {kind}, expected a dict from names to tensors")
    own = get_state_dict(model)
    unused = [name for name in state_dict if name not in own]
    missing = [name for name in own if name not in state_dict]
    if missing and strict:
        others = f" (it has {', '.join(map(str, unused[:4]))}{', ...' if len(unused) > 4 else ''})" if unused else ""
        listed = ", ".join(name or repr(name) for name in missing)
        raise KeyError(
            f"load_state_dict: the state dict has no entry for {listed}{others}; pass strict=False to leave them"
        )
    if unused and DEBUG >= 1:
        warnings.warn(f"load_state_dict: the model has no tensor for {', '.join(unused)}", stacklevel=2)
    names = [name for name in own if name in state_dict]
    for name in names:
        _check_same_shape(name, own[name], state_dict[name])
    loaded = []
    for name in tqdm(names, desc="loading state dict", disable=None if verbose else True):
        tensor, new = own[name], state_dict[name]
        if consume:
            del state_dict[name]
        new = new.reshape(tensor.shape)
        tensor.replace(new.shard_like(tensor) if isinstance(tensor.device, tuple) else new.to(tensor.device))
        if realize and consume:
            tensor.realize()
        loaded.append(tensor)
    if realize and loaded:
        Tensor.realize(*loaded)
    return loaded


def _check_same_shape(name: str, own: Tensor, new: Any) -> None:
    if not isinstance(new, Tensor):
        kind = f"{type(new).__module__}.{type(new).__qualname__}"
        raise ArgumentError(f"load_state_dict: the entry {name!r} is of type {kind}, expected a Tensor")
    if own.shape != new.shape and {own.shape, new.shape} != {(), (1,)}:
        raise ValueError(
            f"Shape mismatch in layer `{name}`: expected shape {shown(own.shape)}, but found {shown(new.shape)} in the "
            "state dict"
        )
