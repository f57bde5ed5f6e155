"""Tensor: a pointer to a node, and the methods that need more than the node.

In:   Python scalars, lists, arrays, files, and calls of the methods of the mixins.
Out:  graphs; and, through ``realize`` and the readers (``numpy``, ``item`` ...), values.
Why:  laziness: a program is known as a whole before any of it runs, so it can be fused, differentiated and cached.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from tinygrad.backward import fill_gradients, nodes_to_differentiate, warn_of_equal
from tinygrad.boundary import BINARY_OPERATORS, OPERATORS, describe_types, explain_methods
from tinygrad.buffer import Buffer
from tinygrad.construct import _fromnp, from_address, is_numpy_ndarray, is_numpy_scalar, node_of, numpy_of_torch
from tinygrad.copying import deep_copy
from tinygrad.device import Device, StorageOnlyError, canonicalize_device
from tinygrad.dtype import (
    DType,
    DTypeLike,
    _from_np_dtype,
    _to_np_dtype,
    dtypes,
    to_dtype,
)
from tinygrad.errors import ArgumentError, error_text, shown
from tinygrad.families import Family
from tinygrad.gradient_marks import mark_gradient
from tinygrad.in_place import add_in_place_forms
from tinygrad.live import all_tensors, noticed, register, storage_under
from tinygrad.mixin.hooks import same_shape
from tinygrad.name_hints import add_hints, existing
from tinygrad.own_values import add_own_values
from tinygrad.placement import PlacementMethods
from tinygrad.profiling import _METADATA
from tinygrad.realizing import compute, schedule
from tinygrad.repointing import apply_map_to_tensors, new_storage
from tinygrad.training_flags import TensorType
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.views import own_constant
from tinygrad.writing import assign, in_place

__all__ = [
    "_METADATA", "Buffer", "Device", "Ops", "Tensor", "UOp", "Variable", "_from_np_dtype", "_fromnp", "_to_np_dtype",
    "all_tensors", "cast", "dtypes", "is_numpy_ndarray",
]  # fmt: skip

Variable = UOp
_apply_map_to_tensors = apply_map_to_tensors


class _Attributes:
    """Gives instances a ``__dict__`` for attributes that users set, weak references, and a family (see ``live``)."""

    __slots__ = "__dict__", "__weakref__", "_family"
    _family: Family | None
    _is_replaced = False  # whether it was made to show what another tensor shows


class Tensor(PlacementMethods, _Attributes, metaclass=TensorType):
    """A multi-dimensional array whose value is computed when it is asked for.

    Args:
        data: None (0.0), a Python number, nested lists of numbers, bytes, a numpy array, a path (the file's
            content), or a graph node.
        device: Where the value shall live; the default device if None. Scalars live nowhere.
        dtype: Inferred if None: any float in a list gives the default float, else any int the default int, else bool.
        requires_grad: For older programs: False sets ``is_param`` to False, and ``backward`` leaves ``grad`` None.

    Attributes:
        uop: Graph node of the value.
        grad: Gradient, filled by ``backward``; None before.
        is_param: Whether optimizers update this tensor.

    Raises:
        ValueError: Nested lists are ragged.
        RuntimeError: ``data`` has another type.
        FileNotFoundError: There is no such file.

    Example:
        >>> (Tensor([[1, 2], [3, 4]]) + 1).tolist()
        [[2, 3], [4, 5]]
    """

    __slots__ = "grad", "is_param", "uop"

    __array_priority__ = 1000

    def __init__(
        self, data: Any = None, device: Any = None, dtype: DTypeLike | None = None, requires_grad: bool | None = None
    ) -> None:
        kind = None if dtype is None else to_dtype(dtype)
        node = node_of(data, device, kind)
        _set_uop(self, node if isinstance(data, UOp) else _own(node))
        _set_grad(self, None)
        _set_is_param(self, True)
        _set_family(self, None)
        register(self)
        self._set_param_flag(requires_grad)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "uop":
            _set_family(self, None)
            noticed(self)

    def __dir__(self) -> list[str]:
        return existing(self, super().__dir__())

    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        attributes, slots = cast("tuple[dict[str, Any] | None, dict[str, Any]]", super().__getstate__())
        return attributes, {name: value for name, value in slots.items() if name != "_family"}  # that of this process

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        _set_family(self, None)
        for name, value in {**(state[0] or {}), **state[1]}.items():
            object.__setattr__(self, name, value)
        register(self)  # a tensor that was copied or unpickled shows writes to its storage like any other

    def __copy__(self) -> Tensor:
        """Return another tensor that shows the same elements, and later writes to them; ``grad`` is shared too."""
        made = _view(self, self.uop)._with_flags(self)
        made.grad = self.grad
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Return a value of its own, with copies of ``grad`` and of attributes; no gradients pass through it.

        What is in storage is copied at once. Views of the same, copied as parts of one object, are views of one copy.
        What is in a file gets copied to the default device.
        """
        return deep_copy(self, memo)

    # ---- hooks of the mixins ---------------------------------------------------------------------------------------

    def _apply_uop(self, fxn: Callable[..., UOp], *x: Tensor, **kwargs: Any) -> Tensor:
        """Apply a function of nodes to the nodes of self and ``x``; the result is a new tensor."""
        return _wrap(fxn(self.uop, *[t.uop for t in x], **kwargs))

    @property
    def _uop(self) -> UOp:
        return self.uop

    @classmethod
    def _wrap_uop(cls, uop: UOp) -> Tensor:
        return _wrap(uop)

    @classmethod
    def _variable(cls, uop: UOp) -> Tensor:
        return _wrap(_own(uop))

    def alu(self, op: Ops, *src: Tensor) -> Tensor:
        """Apply one graph operation to self and ``src``: the entry that all elementwise methods end in.

        Example:
            >>> from tinygrad.uop import Ops
            >>> Tensor([1, 2]).alu(Ops.ADD, Tensor([10, 20])).tolist()
            [11, 22]
        """
        if not isinstance(op, Ops):
            raise ArgumentError(error_text("alu", f"op is {op!r}", {"self": self}, "op is one of Ops", "Ops.ADD"))
        return _wrap(self.uop.alu(op, *[s.uop for s in src]))

    def _mop(self, op: Ops, marg: tuple[Any, ...]) -> Tensor:
        return _view(self, self.uop._mop(op, marg))

    def _rop(self, op: Ops, axes: tuple[int, ...]) -> Tensor:
        return _wrap(self.uop._rop(op, axes))

    def cast(self, dtype: DTypeLike) -> Tensor:
        """Convert to ``dtype``: floats are truncated to ints, ints wrap, non-zero is True.

        Raises:
            AttributeError: No dtype has that name.

        Example:
            >>> Tensor([1.7, -1.7, 300.0]).cast("int32").tolist()
            [1, -1, 300]
            >>> Tensor([300]).cast(dtypes.uint8).tolist()
            [44]
        """
        kind = to_dtype(dtype)
        if self.uop.dtype is kind:
            return self
        made = self.uop.cast(kind)
        # Ints and numbers of Python become what a gradient can be asked for.
        is_new = kind.kind == "float" and self.uop.dtype not in dtypes.floats
        return _wrap(_own(made) if is_new else made)

    def bitcast(self, dtype: DTypeLike) -> Tensor:
        """Reinterpret the bits as ``dtype``; the last dim scales with the item size.

        The result is a value of its own, not a view as in PyTorch: a write to it does not change this tensor.

        Raises:
            DTypeError: A dtype is weak, or the last dim does not divide.

        Example:
            >>> Tensor([1.0]).bitcast("int32").item() == 0x3F800000
            True
        """
        kind = to_dtype(dtype)
        return self if self.uop.dtype is kind else _wrap(self.uop.bitcast(kind))

    @staticmethod
    def const(b: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Return a constant without device: a scalar, a bound Variable, or a vector from a tuple of scalars.

        Example:
            >>> Tensor.const(3.0, "float16").item(), Tensor.const((1, 2)).tolist()
            (3.0, [1, 2])
        """
        kind = None if dtype is None else to_dtype(dtype)
        if isinstance(b, tuple):
            return Tensor(list(b), dtype=kind)
        return _wrap(_own(UOp.const(getattr(b, "uop", b), kind)))

    def const_like(self, b: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Return a constant of this shape and (unless given) dtype.

        Example:
            >>> Tensor([1.5, 2.5]).const_like(7).tolist()
            [7.0, 7.0]
        """
        return _wrap(_own(self.uop.const_like(b, self.uop.dtype if dtype is None else to_dtype(dtype))))

    def ufix(self, x: Any) -> Tensor:
        """Return an operand as a tensor: numbers become constants, arrays are placed on this device.

        Raises:
            RuntimeError: ``x`` is neither a tensor, a node, a number nor an array.
            TypeError: ``x`` is a list.

        Example:
            >>> (Tensor([1.5]).ufix(2) * 3).item()
            6
        """
        if type(x) is Tensor:
            return x
        if type(x) in _NUMBERS or isinstance(x, UOp):
            return _wrap(UOp.const(x))
        if isinstance(x, Tensor):
            return x
        if is_numpy_scalar(x):
            return _wrap(UOp.const(x.item()))
        if is_numpy_ndarray(x):
            return Tensor(x, device=self.device)
        if isinstance(x, (list, tuple)):
            raise TypeError(f"operand is a {type(x).__name__}; write Tensor({x!r}) to make a tensor of it")
        if getattr(x, "ndim", 0) and (instead := numpy_of_torch(x)):
            raise RuntimeError(f"operand is {shown(x)}{instead}")
        return _wrap(UOp.const(x))

    __hash__ = object.__hash__

    def __eq__(self, x: object) -> Tensor:  # type: ignore[override]  # elementwise, not a bool
        return self.eq(x)

    # ---- realizing -------------------------------------------------------------------------------------------------

    def realize(self, *lst: Tensor, do_update_stats: bool = True) -> Tensor:
        """Compute this tensor and ``lst`` together; returns self.

        Args:
            *lst: More tensors.
            do_update_stats: False leaves GlobalCounters untouched.

        Raises:
            RuntimeError: Tensors on several devices in one kernel, in-place writes that depend on each other in a
                cycle, a Variable without a value.
            MemoryError: The device has no memory left.

        Example:
            >>> x = (Tensor([1, 2]) + 1).realize()
            >>> x.uop.is_realized
            True
        """
        pending = [t for t in (self, *lst) if t._is_pending()]
        if pending:
            compute(pending, do_update_stats)
        return self

    def _is_pending(self) -> bool:
        return not (self.uop.is_virtual or storage_under(self.uop).op is Ops.BUFFER)

    def linear_with_vars(self, *lst: Tensor) -> tuple[UOp, dict[str, int]]:
        """Schedule this tensor and ``lst`` without running anything; they now show their result buffers.

        Returns:
            The LINEAR node of kernel calls, and the values of Variables by name.

        Raises:
            RuntimeError: A dtype is weak.

        Example:
            >>> linear, variables = (Tensor([1, 2]) + 1).linear_with_vars()
            >>> len(linear.src), variables
            (2, {})
        """
        for t in (self, *lst):
            if t.dtype in dtypes.weaks:
                raise RuntimeError(f"cannot realize a weak dtype, {t.dtype}; cast to a concrete dtype first")
        return schedule([t for t in (self, *lst) if t._is_pending()])

    def schedule_linear(self, *lst: Tensor) -> UOp:
        """``linear_with_vars`` without Variables.

        Raises:
            AssertionError: Variables are bound.

        Example:
            >>> len((Tensor([1, 2]) + 1).schedule_linear().src)
            2
        """
        linear, var_vals = self.linear_with_vars(*lst)
        if var_vals:
            raise AssertionError(f"schedule_linear: Variables {sorted(var_vals)} are bound; use linear_with_vars")
        return linear

    # ---- storage ---------------------------------------------------------------------------------------------------

    def contiguous(self, **kwargs: Any) -> Tensor:
        """Return the value with contiguous storage of its own; self if it has that already, or can never have it.

        Example:
            >>> x = Tensor([[1, 2], [3, 4]]).T.contiguous().realize()
            >>> x.tolist()
            [[1, 3], [2, 4]]
        """
        if self.uop.is_virtual or self.uop.has_buffer_identity(after_ok=True) or self.uop.op is Ops.CONTIGUOUS:
            return self
        return _wrap(UOp(Ops.CONTIGUOUS, self.dtype, (self.uop,)))

    def contiguous_backward(self) -> Tensor:
        """Return the same value; the gradient that flows into it gets contiguous storage.

        Example:
            >>> Tensor([1.0, 2.0]).contiguous_backward().tolist()
            [1.0, 2.0]
        """
        return _wrap(self.uop.contiguous_backward())

    def detach(self) -> Tensor:
        """Return the same value, cut off from gradients.

        Example:
            >>> x = Tensor([3.0])
            >>> (x * x.detach()).sum().gradient(x)[0].tolist()
            [3.0]
        """
        return _view(self, self.uop.detach())

    def clone(self, device: Any = None) -> Tensor:
        """Return new storage, on ``device`` if given, with the same value; gradients pass through.

        ``grad`` and ``is_param`` are copied. The clone of what is in a file, which cannot hold a second copy of it, is
        on the default device.

        Raises:
            StorageOnlyError: The device is the file that the tensor is in.

        Example:
            >>> x = Tensor([1, 2])
            >>> y = x.clone()
            >>> _ = x.assign([3, 4])
            >>> y.tolist()
            [1, 2]
        """
        in_file = str(self.device).startswith("DISK")
        where = canonicalize_device(self.device if device is None and not in_file else device)
        if in_file and where == self.device:
            raise StorageOnlyError(error_text("clone", "a clone in the same file would overwrite it", {"self": self},
                                              hint="clone() is in memory, clone('DISK:path') elsewhere"))  # fmt: skip
        # A value on its way into a file has no other place there.
        value = self.uop if str(where).startswith("DISK") else self.to(where).uop
        copy = _wrap(new_storage(value, where))
        copy.grad = None if self.grad is None else self.grad.clone(device)
        return copy._with_flags(self)

    def replace(self, x: Tensor) -> Tensor:
        """Make this tensor show what ``x`` shows (dtype and device may differ); returns self.

        Raises:
            AssertionError: The shapes differ.

        Example:
            >>> x = Tensor([1, 2])
            >>> x.replace(Tensor([3.5, 4.5])).tolist()
            [3.5, 4.5]
        """
        if not same_shape(self.shape, x.shape):
            raise AssertionError(error_text("replace", "the shape must stay", {"self": self, "x": x}))
        self.uop = x.uop
        self._is_replaced = True
        return self

    # ---- writing ---------------------------------------------------------------------------------------------------

    def assign(self, x: Any) -> Tensor:
        """Write ``x``, broadcast to this shape, into the storage of this tensor; returns self.

        Views of the same storage see the new value. Reads that were made before see the old one.

        Args:
            x: Tensor, number, list or array. Numbers, lists and arrays take this dtype.

        Raises:
            TypeError: ``x`` is None.
            ShapeError: ``x`` does not broadcast.
            RuntimeError: Dtype, device, or the axis along which several devices split the value differ.

        Example:
            >>> x = Tensor([[1, 2], [3, 4]])
            >>> x.assign(7).tolist()
            [[7, 7], [7, 7]]
            >>> _ = x[0].assign([8, 9])
            >>> x.tolist()
            [[8, 9], [7, 7]]
        """
        assign(self, x)
        return self

    # ---- gradients -------------------------------------------------------------------------------------------------

    def backward(self, gradient: Tensor | None = None) -> Tensor:
        """Fill ``grad`` of every live float tensor in the graph of this one; existing gradients are added to.

        Tensors with ``requires_grad=False`` are left alone.

        Reading values before, such as a loss by ``item()`` or predictions by ``numpy()``, changes nothing, as long as
        no data that the gradient depends on is overwritten, and not too much else was read since: then a warning tells
        which tensors get no gradient. Gradients go through in-place operations, such as ``z += f(w)``, too.
        What ``realize`` stores without reading, unless it is one number, is where gradients end: storage does not know
        how its content was computed.
        Gradients of intermediate results last until an optimizer's step overwrites the parameters.

        Args:
            gradient: Gradient flowing into this tensor, of its shape; 1.0 if it is a scalar and this is None.

        Raises:
            AssertionError: Not a scalar and no gradient, or its shape differs.
            RuntimeError: Not a float tensor.

        Warns:
            RuntimeWarning: A gradient is missing, because the graph of a value that was read is not kept any more.

        Example:
            >>> x = Tensor([3.0])
            >>> _ = (x * x).sum().backward()
            >>> x.grad.tolist()
            [6.0]
        """
        fill_gradients(self, gradient)
        return self

    def _differentiated(self, *targets: Tensor) -> list[UOp]:
        warn_of_equal(targets)
        return nodes_to_differentiate(self, *targets)

    def _gradient_of(self, target: Tensor, node: UOp) -> Tensor:
        mark_gradient(node, target)
        return self._wrap_uop(node)

    # ---- memory from outside ---------------------------------------------------------------------------------------

    @staticmethod
    def from_blob(ptr: int, shape: tuple[int, ...], dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
        """Wrap memory at address ``ptr`` without copying or owning it; it must outlive the tensor and all its views.

        Args:
            ptr: Address, a multiple of the size of an element: ``array.ctypes.data`` of numpy, ``t.data_ptr()`` of
                torch. The elements lie one after the other.
            shape: Of the tensor.
            dtype: Of the elements; the default float if None.
            device: One that uses memory of this process, such as CPU; the default device if None.

        Raises:
            AssertionError: Several devices.
            ValueError: There can be no such memory at ``ptr``, or elements across their natural boundaries.
            DTypeError: The dtype has no size in memory.
            DeviceError: The device uses no memory of this process.

        Example:
            >>> import ctypes
            >>> memory = (ctypes.c_float * 3)(1.0, 2.0, 3.0)
            >>> Tensor.from_blob(ctypes.addressof(memory), (3,), dtype="float32", device="CPU").tolist()
            [1.0, 2.0, 3.0]
        """
        where = canonicalize_device(device)
        if not isinstance(where, str):
            raise AssertionError(f"from_blob: one device expected, got {where}")
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        return _wrap(from_address(operator.index(ptr), tuple(map(operator.index, shape)), kind, where))

    @staticmethod
    def from_url(url: str, gunzip: bool = False, **kwargs: Any) -> Tensor:
        """Download (cached) and return a uint8 tensor over the file; keywords go to the constructor.

        Example:
            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "file")
            >>> _ = path.write_bytes(b"abc")
            >>> Tensor.from_url(str(path)).tolist()
            [97, 98, 99]
        """
        from tinygrad.helpers import fetch

        return Tensor(fetch(url, gunzip=gunzip), **kwargs)


for _name in BINARY_OPERATORS:
    setattr(Tensor, f"__i{_name}__", in_place(getattr(Tensor, f"__{_name}__"), _name))

add_own_values(Tensor)
add_in_place_forms(Tensor)
add_hints(Tensor)

describe_types(Self=Tensor, Tensor=Tensor, UOp=UOp, DType=DType, DTypeLike=DType | str)
_special = OPERATORS | {"__invert__", "__neg__"}
_parts = {"alu", "const", "const_like", "ufix"}  # of nearly every call, which gives the label
explain_methods(Tensor, sorted({n for n in type.__dir__(Tensor) if not n.startswith("_")} - _parts | _special))
explain_methods(Tensor, sorted(_parts), labels=False, counts=False)
explain_methods(Tensor, ("__init__", "__setitem__"), counts=False)  # of values, whose dtype matters

_NUMBERS = frozenset({int, float, bool})
_set_uop, _set_grad, _set_is_param = (Tensor.__dict__[name].__set__ for name in ("uop", "grad", "is_param"))
_set_family = _Attributes.__dict__["_family"].__set__


def _wrap(uop: UOp) -> Tensor:
    """Return a new tensor around a node, without the constructor."""
    tensor = object.__new__(Tensor)
    _set_uop(tensor, uop)
    _set_grad(tensor, None)
    _set_is_param(tensor, True)
    _set_family(tensor, None)
    register(tensor)
    return tensor


def _own(uop: UOp) -> UOp:
    """Return a node that a tensor shows alone: constants, which have no storage to tell them apart, get a mark.

    Only what a gradient can be asked for: not weak dtypes.
    """
    return own_constant(uop) if uop.device is None and uop.dtype in dtypes.floats else uop


def _view(of: Tensor, uop: UOp) -> Tensor:
    """Return a new tensor around a node that shows the elements of another tensor: they are of one family."""
    view = _wrap(uop)
    family = of._family
    if family is None:
        family = Family()
        _set_family(of, family)
    _set_family(view, family)
    return view
