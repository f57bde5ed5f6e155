"""Tensor: a pointer to a node, and the methods that need more than the node.

In:   Python scalars, lists, arrays, files, and calls of the methods of the mixins.
Out:  graphs; and, through ``realize`` and the readers (``numpy``, ``item`` ...), values.
Why:  laziness: a program is known as a whole before any of it runs, so it can be fused, differentiated and cached.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tinygrad.backward import fill_gradients
from tinygrad.boundary import BINARY_OPERATORS, OPERATORS, describe_types, explain_methods
from tinygrad.buffer import Buffer
from tinygrad.construct import _fromnp, is_numpy_ndarray, is_numpy_scalar, node_of
from tinygrad.device import Device, canonicalize_device
from tinygrad.dtype import (
    DType,
    DTypeLike,
    _from_np_dtype,
    _to_np_dtype,
    dtypes,
    to_dtype,
)
from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import prod
from tinygrad.in_place import InPlaceNames, add_in_place_forms
from tinygrad.live import (
    all_tensors,
    apply_map_to_tensors,
    new_storage,
    noticed,
    register,
    storage_under,
)
from tinygrad.mixin.hooks import same_shape
from tinygrad.name_hints import add_hints
from tinygrad.realizing import compute, schedule
from tinygrad.settings import TRAINING, Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import Placement, UOp
from tinygrad.uop.sharding import check_split
from tinygrad.writing import assign, in_place

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Buffer", "Device", "Ops", "Tensor", "UOp", "Variable", "_from_np_dtype", "_fromnp", "_to_np_dtype", "all_tensors",
    "dtypes", "is_numpy_ndarray",
]  # fmt: skip

Variable = UOp
_apply_map_to_tensors = apply_map_to_tensors


class _TensorType(type):
    """Gives the class itself the property ``training``."""

    @property
    def training(cls) -> bool:
        """The context variable TRAINING: dropout and batch statistics are on."""
        return bool(TRAINING.value)

    @training.setter
    def training(cls, value: bool) -> None:
        TRAINING.value = int(value)


class _NoGrad(contextlib.ContextDecorator):
    """Accepted for older programs. Only ``backward`` differentiates, so there is nothing to switch off."""

    def __enter__(self) -> _NoGrad:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Attributes:
    """Gives instances a ``__dict__`` for attributes that users set, and weak references."""


class Tensor(InPlaceNames, _Attributes, metaclass=_TensorType):
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

    uop: UOp
    grad: Tensor | None
    is_param: bool
    _wants_grad = True  # False on tensors for which requires_grad=False was said

    # numpy leaves operators with one of its arrays on the left to us.
    __array_ufunc__ = None
    __array_priority__ = 1000

    def __init__(
        self, data: Any = None, device: Any = None, dtype: DTypeLike | None = None, requires_grad: bool | None = None
    ) -> None:
        kind = None if dtype is None else to_dtype(dtype)
        _set_uop(self, node_of(data, device, kind))
        _set_grad(self, None)
        _set_is_param(self, True)
        register(self)
        self._set_param_flag(requires_grad)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "uop":
            noticed(self)

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        for name, value in {**(state[0] or {}), **state[1]}.items():
            object.__setattr__(self, name, value)
        register(self)  # a tensor that was copied or unpickled shows writes to its storage like any other

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

    def alu(self, op: Ops, *src: Tensor) -> Tensor:
        """Apply one graph operation to self and ``src``: the entry that all elementwise methods end in.

        Example:
            >>> from tinygrad.uop import Ops
            >>> Tensor([1, 2]).alu(Ops.ADD, Tensor([10, 20])).tolist()
            [11, 22]
        """
        return _wrap(self.uop.alu(op, *[s.uop for s in src]))

    def _mop(self, op: Ops, marg: tuple[Any, ...]) -> Tensor:
        return _wrap(self.uop._mop(op, marg))

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
        return self if self.uop.dtype is kind else _wrap(self.uop.cast(kind))

    def bitcast(self, dtype: DTypeLike) -> Tensor:
        """Reinterpret the bits as ``dtype``; the last dim scales with the item size.

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
        return _wrap(UOp.const(getattr(b, "uop", b), kind))

    def const_like(self, b: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Return a constant of this shape and (unless given) dtype.

        Example:
            >>> Tensor([1.5, 2.5]).const_like(7).tolist()
            [7.0, 7.0]
        """
        return _wrap(self.uop.const_like(b, self.uop.dtype if dtype is None else to_dtype(dtype)))

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
        return _wrap(UOp.const(x))

    def _set_param_flag(self, requires_grad: bool | None) -> Tensor:
        if requires_grad is not None:
            self.requires_grad = requires_grad
        return self

    def _with_flags(self, other: Tensor) -> Tensor:
        """Take over what another tensor says about training; returns self."""
        if not other._wants_grad:
            self.requires_grad = False
        return self.is_param_(other.is_param) if not other.is_param else self

    # ---- properties ------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes: ints, or symbolic ints.

        Example:
            >>> Tensor([[1, 2, 3]]).shape
            (1, 3)
        """
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """Element type.

        Example:
            >>> Tensor([1.5]).dtype
            dtypes.float
        """
        return self.uop.dtype

    @property
    def device(self) -> str | tuple[str, ...] | None:
        """Device name, or a tuple of names; None for constants and ranges, which live nowhere.

        Example:
            >>> Tensor([1.5]).device == Device.DEFAULT, Tensor(1.5).device
            (True, None)
        """
        return self.uop.device

    @property
    def ndim(self) -> int:
        """Number of dims.

        Example:
            >>> Tensor([[1, 2, 3]]).ndim
            2
        """
        return len(self.uop.shape)

    @property
    def max_shape(self) -> tuple[int, ...]:
        """Shape with symbolic sizes replaced by their maximum.

        Example:
            >>> n = Variable("n", 1, 10).bind(3)
            >>> Tensor.empty(10, 2)[:n].max_shape
            (10, 2)
        """
        return self.uop.max_shape

    def max_numel(self) -> int:
        """Product of ``max_shape``.

        Example:
            >>> n = Variable("n", 1, 10).bind(3)
            >>> Tensor.empty(10, 2)[:n].max_numel()
            20
        """
        return int(prod(self.max_shape))

    def numel(self) -> Any:
        """Number of elements.

        Example:
            >>> Tensor.empty(2, 3).numel()
            6
        """
        return prod(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of one dim.

        Example:
            >>> Tensor.empty(2, 3).size(), Tensor.empty(2, 3).size(-1)
            ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[self._resolve_dim(dim, op="size")]

    def nbytes(self) -> Any:
        """Number of elements times bytes per element; symbolic where the shape is.

        Raises:
            RuntimeError: The dtype is weak.

        Example:
            >>> Tensor.empty(2, 3, dtype="float16").nbytes()
            12
        """
        return self.numel() * self.element_size()

    @property
    def requires_grad(self) -> bool:
        """Whether optimizers update this tensor, for older programs; with False, ``backward`` does not fill ``grad``.

        Example:
            >>> Tensor([1.0], requires_grad=False).requires_grad
            False
        """
        return self.is_param

    @requires_grad.setter
    def requires_grad(self, value: bool | None) -> None:
        self.is_param = bool(value)
        if bool(value) is not self._wants_grad:
            self._wants_grad = bool(value)

    def is_param_(self, is_param: bool = True) -> Tensor:
        """Set whether optimizers update this tensor; returns self.

        Example:
            >>> Tensor([1.0]).is_param_(False).is_param
            False
        """
        _set_is_param(self, bool(is_param))
        if is_param and not self._wants_grad:
            self._wants_grad = True
        return self

    def requires_grad_(self, requires_grad: bool | None = True) -> Tensor:
        """Set ``requires_grad``; returns self.

        Example:
            >>> Tensor([1.0]).requires_grad_(False).is_param
            False
        """
        self.requires_grad = requires_grad
        return self

    # ---- Python's protocols ----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        grad = "" if self.grad is None else " with grad"
        head = f"Tensor shape={shown(self.shape)} dtype={self.dtype.full_name} device={self.device}{grad}"
        try:
            values = self._values_in_memory()
        except Exception:  # noqa: BLE001  printing must not fail, whatever state the device is in
            values = None
        return f"<{head}>" if values is None else f"<{head}\n{values}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        if not isinstance(self.shape[0], int):
            raise ShapeError(error_text("len", f"dim 0 is symbolic: {shown(self.shape[0])}", {"tensor": self},
                                        hint="t.shape[0] is the symbolic size"))  # fmt: skip
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TypeError("__bool__ on Tensor is not defined: its value is not computed yet; use .item() or where()")

    def __contains__(self, x: object) -> bool:
        raise TypeError("`in` on Tensor is not defined; use (t == x).any().item()")

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            return
        for i in range(len(self)):
            yield self[i]

    def __delitem__(self, indices: Any) -> None:
        raise TypeError("Tensor does not support deleting items; build a new tensor, such as t[:i].cat(t[i + 1:])")

    __hash__ = object.__hash__

    def __eq__(self, x: object) -> Tensor:  # type: ignore[override]  # elementwise, not a bool
        return self.eq(x)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

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
        return _wrap(self.uop.detach())

    def clone(self, device: Any = None) -> Tensor:
        """Return new storage, on ``device`` if given, with the same value; gradients pass through.

        ``grad`` and ``is_param`` are copied.

        Example:
            >>> x = Tensor([1, 2])
            >>> y = x.clone()
            >>> _ = x.assign([3, 4])
            >>> y.tolist()
            [1, 2]
        """
        where = canonicalize_device(self.device if device is None else device)
        value = self.to(where).uop
        copy = _wrap(new_storage(value, where))
        copy.grad = None if self.grad is None else self.grad.clone(device)
        return copy._with_flags(self)

    def to(self, device: Any) -> Tensor:
        """Return the value on ``device`` (None: the default one), with ``grad`` and ``is_param``; self if it is there.

        A tuple of devices gives each of them the whole value. From several devices the value is gathered.

        Raises:
            RuntimeError: The dtype is weak.

        Example:
            >>> Tensor([1, 2]).to("PYTHON").device
            'PYTHON'
        """
        where = canonicalize_device(device)
        if self.device is None or self.device == where:
            return self
        moved = _wrap(self.uop.copy_to_device(where))
        moved.grad = None if self.grad is None else self.grad.to(where)
        return moved._with_flags(self)

    def to_(self, device: Any) -> Tensor:
        """Move this tensor (and its ``grad``) to ``device``; returns self.

        Example:
            >>> Tensor([1, 2]).to_("PYTHON").device
            'PYTHON'
        """
        moved = self.to(device)
        if moved is not self:
            self.uop, self.grad = moved.uop, moved.grad
        return self

    def shard(self, devices: Any, axis: int | None = None) -> Tensor:
        """Split over several devices along ``axis``: each holds an equal piece. One device is ``to``.

        Operations on the result run on all of its devices, each on its piece; where a piece does not suffice, the
        devices exchange what they need. Operands without a device (numbers, ranges) go with everything.

        Args:
            devices: Names of the devices.
            axis: The axis that is split; None gives each device the whole value.

        Returns:
            Tensor of this shape and dtype, with ``grad`` and ``is_param``. A tensor without a device stays as it is.

        Raises:
            RuntimeError: It is on several devices already, the devices do not divide the axis, or the dtype is weak.
            ShapeError: There is no such axis.

        Example:
            >>> t = Tensor([1.0, 2.0, 3.0, 4.0]).shard(("CPU:0", "CPU:1"), axis=0)
            >>> t.uop.shard_shape, t.sum().item()
            ((2,), 10.0)
        """
        where = canonicalize_device(devices)
        if axis is not None:
            axis = self._resolve_dim(axis, op="shard")
        if isinstance(where, str):
            return self.to(where)
        if self.device is None:
            return self
        moved = _wrap(self.uop.shard(where, axis))
        moved.grad = None if self.grad is None else self.grad.shard(where, axis)
        return moved.is_param_(self.is_param)

    def shard_(self, devices: Any, axis: int | None = None) -> Tensor:
        """``shard`` this tensor and its ``grad`` in place; returns self.

        Raises:
            RuntimeError: As ``shard``.
            ShapeError: As ``shard``.

        Example:
            >>> Tensor([1, 2]).shard_(("CPU:0", "CPU:1"), axis=0).uop.shard_shape
            (1,)
        """
        moved = self.shard(devices, axis)
        if moved is not self:
            self.uop, self.grad = moved.uop, moved.grad
        return self

    def shard_like(self, y: Tensor) -> Tensor:
        """Return the value where ``y`` is: on its device, or on its devices and split along the same axis.

        What is on several devices already is split anew.

        Raises:
            RuntimeError: The devices do not divide the axis, or the dtype is weak.
            ShapeError: There is no such axis.

        Example:
            >>> y = Tensor([0.0, 0.0]).shard(("CPU:0", "CPU:1"), axis=0)
            >>> Tensor([[1, 2], [3, 4]]).shard_like(y).uop.shard_shape
            (1, 2)
        """
        if not isinstance(y.device, tuple):
            return self if y.device is None else self.to(y.device)
        axis = y.uop.axis
        if self.device is None or (self.device == y.device and self.uop.axis == axis):
            return self
        if axis is not None:
            axis = check_split(self.shape, axis, len(y.device))
        if not isinstance(self.device, tuple):
            return self.shard(y.device, axis)
        moved = _wrap(self.uop.copy_to_device(y.device if axis is None else Placement(y.device, axis)))
        moved.grad = None if self.grad is None else self.grad.shard_like(y)
        return moved.is_param_(self.is_param)

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
        return self

    # ---- writing ---------------------------------------------------------------------------------------------------

    def assign(self, x: Any) -> Tensor:
        """Write ``x``, broadcast to this shape, into the storage of this tensor; returns self.

        Views of the same storage see the new value. Reads that were made before see the old one.

        Args:
            x: Tensor, number, list or array. Numbers, lists and arrays take this dtype.

        Raises:
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

        Call it before this tensor is realized: storage does not know how its content was computed. Gradients of
        intermediate results last until the storage that they depend on is overwritten, as by an optimizer's step.

        Args:
            gradient: Gradient flowing into this tensor, of its shape; 1.0 if it is a scalar and this is None.

        Raises:
            AssertionError: Not a scalar and no gradient, or its shape differs.
            RuntimeError: Not a float tensor.

        Example:
            >>> x = Tensor([3.0])
            >>> _ = (x * x).sum().backward()
            >>> x.grad.tolist()
            [6.0]
        """
        fill_gradients(self, gradient)
        return self

    @staticmethod
    def train(mode: bool = True) -> Context:
        """Return a context (or decorator) in which TRAINING is on.

        Example:
            >>> with Tensor.train():
            ...     print(Tensor.training)
            True
        """
        return Context(TRAINING=int(mode))

    @staticmethod
    def no_grad() -> _NoGrad:
        """Return a context (or decorator) for code that needs no gradients. Nothing has to be switched off here.

        Example:
            >>> with Tensor.no_grad():
            ...     print((Tensor([2.0]) * 3).tolist())
            [6.0]
        """
        return _NoGrad()

    # ---- memory from outside ---------------------------------------------------------------------------------------

    @staticmethod
    def from_blob(ptr: int, shape: tuple[int, ...], dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
        """Wrap memory at address ``ptr`` without copying or owning it; it must outlive the tensor.

        Raises:
            AssertionError: Several devices.

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
        buffer = Buffer(where, int(prod(shape)), kind).allocate(external_ptr=ptr)
        return _wrap(UOp.from_buffer(buffer).reshape(tuple(shape)))

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

add_in_place_forms(Tensor)
add_hints(Tensor)

describe_types(Self=Tensor, Tensor=Tensor, UOp=UOp, DTypeLike=DType | str)
_special = OPERATORS | {"__init__", "__setitem__", "__invert__", "__neg__"}
explain_methods(Tensor, sorted({n for n in dir(Tensor) if not n.startswith("_")} | _special))

_NUMBERS = frozenset({int, float, bool})
_set_uop, _set_grad, _set_is_param = (Tensor.__dict__[name].__set__ for name in ("uop", "grad", "is_param"))


def _wrap(uop: UOp) -> Tensor:
    """Return a new tensor around a node, without the constructor."""
    tensor = object.__new__(Tensor)
    _set_uop(tensor, uop)
    _set_grad(tensor, None)
    _set_is_param(tensor, True)
    register(tensor)
    return tensor
