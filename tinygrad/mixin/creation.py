"""New tensors: filled, uninitialised, ranges.

In:   ``_wrap_uop`` and ``const``.
Out:  constants (CONST, EXPAND), index ranges (iota) and fresh storage (BUFFER, filled by a STORE).
Why:  filled tensors own storage (each a buffer of its own), so that they can be written to; constants and ranges never.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes, strong_dtype, to_dtype
from tinygrad.dtype_lattice import require_fit
from tinygrad.errors import ArgumentError, DTypeError, ShapeError, ZeroStepError, error_text, shown
from tinygrad.mixin.dtype import DTypeMixin
from tinygrad.mixin.hooks import Sint, shape_args, size_arg
from tinygrad.mixin.movement import MovementMixin

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.dtype import DTypeLike
    from tinygrad.uop.ops import UOp


class CreationMixin(MovementMixin, DTypeMixin):
    """Creation of constants, ranges and storage."""

    __slots__ = ()

    def _set_param_flag(self, requires_grad: bool | None) -> Self:
        """Take over the ``requires_grad`` keyword; Tensor keeps it as ``is_param``, nodes have no such flag."""
        return self

    @classmethod
    def _variable(cls, uop: UOp) -> Self:
        """Wrap a constant expression that a program made as a value of its own; for nodes, equal ones are one."""
        return cls._wrap_uop(uop)

    # ---- storage ----------------------------------------------------------------------------------------------------

    @classmethod
    def empty(
        cls,
        *shape: Any,
        device: Any = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return an uninitialised tensor.

        Args:
            *shape: Sizes, separate or as one tuple. Symbolic sizes allocate their maximum.
            device: Device name; the default device if None.
            dtype: The default float if None.
            requires_grad: Accepted for older programs; sets ``is_param``.

        Raises:
            ShapeError: A size is negative.
            RuntimeError: A size is not an int.

        Example:
            >>> Tensor.empty(2, 3).shape
            (2, 3)
        """
        sizes = _checked_shape(shape_args(*_split(shape), op="empty"), "empty")
        kind = to_dtype(dtype) if dtype is not None else dtypes.default_float
        return cls._storage(sizes, strong_dtype(kind), device)._set_param_flag(requires_grad)

    @classmethod
    def _storage(
        cls, shape: tuple[Any, ...], dtype: DType, device: Any, fill: Any = None, axis: int | None = None
    ) -> Self:
        """Return fresh storage, holding ``fill`` (a node of shape () or None for undefined content).

        With an axis, several devices hold equal pieces along it.
        """
        from tinygrad.device import canonicalize_device
        from tinygrad.uop.ops import UOp

        return cls._wrap_uop(UOp.placed_buffer(canonicalize_device(device), shape, dtype, axis, fill))

    @classmethod
    def invalids(cls, *shape: Any, device: Any = None, dtype: DTypeLike | None = None) -> Self:
        """Return write-only scratch: undefined until something is stored. The dtype is bool unless given.

        Example:
            >>> Tensor.invalids(2, dtype="int32").assign([1, 2]).tolist()
            [1, 2]
        """
        return cls.empty(*shape, device=device, dtype=dtypes.bool if dtype is None else dtype)

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        dtype: DTypeLike | None = None,
        device: Any = None,
        buffer: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return a tensor filled with one value.

        Args:
            shape: Size or tuple of sizes.
            fill_value: Python number, Variable or 0-d tensor.
            dtype: That of the fill value if None (the default int or float for Python numbers).
            device: Device name; the default device if None.
            buffer: False gives a constant without device and storage instead.
            requires_grad: Accepted for older programs; sets ``is_param``.

        Raises:
            OverflowError: The dtype does not hold the int ``fill_value``.

        Example:
            >>> Tensor.full((2, 2), 7).tolist()
            [[7, 7], [7, 7]]
        """
        from tinygrad.uop.ops import UOp

        sizes = _checked_shape(tuple(shape) if isinstance(shape, (tuple, list)) else (shape,), "full")
        kind = None if dtype is None else to_dtype(dtype)
        value = getattr(fill_value, "uop", fill_value)
        if isinstance(value, (tuple, list, str)) or value is None:
            raise ArgumentError(error_text("full", f"fill_value is {shown(value)}", rule="fill_value is a number"))
        require_fit("full", value, kind)
        fill = UOp.const(value, kind)
        if not buffer:
            return cls._variable(fill._broadcast_to(sizes))._set_param_flag(requires_grad)
        fill = fill.cast(strong_dtype(fill.dtype))
        return cls._storage(sizes, fill.dtype, device, fill)._set_param_flag(requires_grad)

    @classmethod
    def zeros(cls, *shape: Any, **kwargs: Any) -> Self:
        """Return a tensor of zeros; keywords as for ``full``.

        Example:
            >>> Tensor.zeros(2).tolist()
            [0.0, 0.0]
        """
        return cls.full(shape_args(*_split(shape), op="zeros"), 0.0, **_with_dtype(kwargs))

    @classmethod
    def ones(cls, *shape: Any, **kwargs: Any) -> Self:
        """Return a tensor of ones; keywords as for ``full``.

        Example:
            >>> Tensor.ones(2, dtype="int32").tolist()
            [1, 1]
        """
        return cls.full(shape_args(*_split(shape), op="ones"), 1.0, **_with_dtype(kwargs))

    def full_like(
        self,
        fill_value: Any,
        dtype: DTypeLike | None = None,
        device: Any = None,
        buffer: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return a tensor of this shape, dtype and device, filled with one value.

        Raises:
            RuntimeError: ``device`` is given for a tensor on several devices; or this dtype is weak, none is given, and
                ``buffer`` asks for storage, which weak dtypes do not have.
            OverflowError: The dtype does not hold the int ``fill_value``.

        Example:
            >>> Tensor([1, 2]).full_like(7).tolist()
            [7, 7]
        """
        if device is not None and isinstance(self.device, tuple):
            raise RuntimeError(
                error_text("full_like", "device cannot be given for a tensor on several devices", {"tensor": self})
            )
        from tinygrad.uop.ops import UOp

        kind = self.dtype if dtype is None else to_dtype(dtype)
        if buffer and kind in dtypes.weaks:
            raise DTypeError(
                error_text("full_like", f"{kind} is a weak dtype, which has no storage", {"tensor": self},
                           hint="give dtype=, or buffer=False for a constant")
            )  # fmt: skip
        require_fit("full_like", fill_value, kind)
        where = self.device if device is None else device
        if where is None or not buffer:
            return self._variable(self._uop.const_like(getattr(fill_value, "uop", fill_value), kind))._set_param_flag(
                requires_grad
            )
        if isinstance(where, tuple):
            fill = UOp.const(getattr(fill_value, "uop", fill_value), strong_dtype(kind))
            made = self._storage(self.shape, fill.dtype, where, fill, self._uop.axis)
            return made._set_param_flag(requires_grad)
        return type(self).full(self.shape, fill_value, kind, where, requires_grad=requires_grad)

    def zeros_like(self, **kwargs: Any) -> Self:
        """Return ``full_like`` with 0.

        Example:
            >>> Tensor([[1.5, 2.5]]).zeros_like().tolist()
            [[0.0, 0.0]]
        """
        return self.full_like(0, **kwargs)

    def ones_like(self, **kwargs: Any) -> Self:
        """Return ``full_like`` with 1.

        Example:
            >>> Tensor([[1.5, 2.5]]).ones_like().tolist()
            [[1.0, 1.0]]
        """
        return self.full_like(1, **kwargs)

    def empty_like(self, dtype: DTypeLike | None = None, device: Any = None, requires_grad: bool | None = None) -> Self:
        """Return an uninitialised tensor of this shape, dtype and placement.

        Example:
            >>> x = Tensor([[1, 2]]).empty_like(dtype="float16")
            >>> x.shape, x.dtype
            ((1, 2), dtypes.half)
        """
        kind = strong_dtype(self.dtype if dtype is None else to_dtype(dtype))
        where = self.device if device is None else device
        axis = self._uop.axis if device is None or device == self.device else None
        return self._storage(self.shape, kind, where, axis=axis)._set_param_flag(requires_grad)

    @staticmethod
    def _frompy(data: Any, dtype: DType, device: Any = None) -> Any:
        """Return a node with the content of a list or of bytes, copied to ``device`` from a PYTHON buffer."""
        from tinygrad.construct import from_python
        from tinygrad.device import canonicalize_device

        node, where = from_python(data, dtype), canonicalize_device(device)
        return node if node.device == where else node.copy_to_device(where)

    # ---- ranges: no device, no storage -----------------------------------------------------------------------------

    @classmethod
    def arange(
        cls,
        start: Any,
        stop: Any = None,
        step: Any = 1,
        dtype: DTypeLike | None = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return start, start + step, ... below stop (above it for a negative step); one argument means stop.

        Args:
            start: First value, or stop if it is the only argument.
            stop: End, not included.
            step: Difference of neighbours.
            dtype: The default int, int64 where that is too narrow, or the default float if an argument is a float.
            device: Ignored: a range belongs to no device.
            requires_grad: Accepted for older programs; sets ``is_param``.

        Raises:
            ZeroStepError: ``step`` is 0.
            OverflowError: ``dtype`` cannot hold the values.

        Example:
            >>> Tensor.arange(5, 11, 2).tolist()
            [5, 7, 9]
        """
        from tinygrad.uop.ops import UOp

        if stop is None:
            start, stop = 0, start
        _check_numbers("arange", start=start, stop=stop, step=step)
        start, stop, step = (v.item() if _is_scalar(v) else v for v in (start, stop, step))
        is_float = any(isinstance(v, float) for v in (start, stop, step))
        symbolic = any(isinstance(v, UOp) for v in (start, stop, step))
        if symbolic:
            kind = dtypes.default_int if dtype is None else to_dtype(dtype)
            count = -((start - stop) // step)
            count = count.ssimplify() if isinstance(count, UOp) else count
            return cls._wrap_uop((UOp.iota(count) * step + start).cast(kind))
        count = max(math.ceil((stop - start) / step), 0) if is_float else max(-((start - stop) // step), 0)
        last = start + (count - 1) * step if count else start
        kind = _range_dtype(dtype, is_float, start, last)
        index = UOp.iota(count)
        if dtypes.is_int(kind) and not is_float:
            return cls._wrap_uop((index * step + start).cast(kind))._set_param_flag(requires_grad)
        wide = kind if dtypes.is_float(kind) else dtypes.default_float
        values = index.cast(wide) * UOp.const(step, wide) + UOp.const(start, wide)
        return cls._variable(values.cast(kind))._set_param_flag(requires_grad)

    @classmethod
    def linspace(
        cls,
        start: float,
        stop: float,
        steps: int,
        dtype: DTypeLike | None = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return ``steps`` evenly spaced values from start to stop, both included.

        Raises:
            ValueError: ``steps`` is negative, or the dtype is bool.
            OverflowError: An integer dtype does not hold ``start`` or ``stop``.

        Example:
            >>> Tensor.linspace(0, 1, 5).tolist()
            [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        from tinygrad.uop.ops import UOp

        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        _check_numbers("linspace", start=start, stop=stop, steps=steps)
        if hasattr(steps, "size_text"):
            raise ValueError(error_text("linspace", f"steps={shown(steps)} is symbolic", rule="an int >= 0",
                                        hint="Tensor.arange(steps) * step + start"))  # fmt: skip
        if steps < 0 or kind is dtypes.bool:
            raise ValueError(f"linspace: steps={steps}, dtype={kind}; expected steps >= 0 and a dtype other than bool")
        wide = kind if dtypes.is_float(kind) else dtypes.default_float
        index = UOp.iota(steps)
        step = (stop - start) / (steps - 1) if steps > 1 else 0.0
        ends: tuple[Any, ...] = (start, stop)[:steps]
        for end in ends if dtypes.is_int(kind) else ():
            if isinstance(end, float) and not math.isfinite(end):
                raise OverflowError(f"linspace: {end} does not fit {kind}; expected finite start and stop")
            require_fit("linspace", int(end) if isinstance(end, float) else end, kind)
        # Counting from the nearer end makes both ends exact.
        first = index.cast(wide) * UOp.const(step, wide) + UOp.const(start, wide)
        second = UOp.const(stop, wide) - (steps - 1 - index).cast(wide) * UOp.const(step, wide)
        values = (index < max(steps // 2, 1)).where(first, second)
        return cls._variable(values.cast(kind))._set_param_flag(requires_grad)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        dtype: DTypeLike | None = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return the identity matrix of n rows and m (or n) columns.

        Raises:
            ShapeError: A size is negative.

        Example:
            >>> Tensor.eye(2, 3).tolist()
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        """
        from tinygrad.uop.ops import UOp

        columns = n if m is None else m
        _checked_shape((n, columns), "eye")
        rows = UOp.iota(n).reshape((n, 1))
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        return cls._variable(rows.eq(UOp.iota(columns)).cast(kind))._set_param_flag(requires_grad)


def _is_scalar(value: Any) -> bool:
    """Return whether a number is one of numpy or another library."""
    return hasattr(value, "item") and not hasattr(value, "_uop")


def _check_numbers(op: str, **numbers: Any) -> None:
    for name, value in numbers.items():
        is_number = isinstance(value, (int, float)) or hasattr(value, "size_text") or _is_scalar(value)
        if not is_number or getattr(value, "shape", ()) != () or isinstance(value, type):
            raise ArgumentError(error_text(op, f"{name} is {shown(value)}", numbers, f"{name} is a number"))
        if isinstance(value, float) and not math.isfinite(value) and op == "arange":
            raise ShapeError(error_text(op, f"{name} is {value}", numbers, "finite numbers"))
    if op == "arange" and isinstance(numbers["step"], (int, float)) and numbers["step"] == 0:
        raise ZeroStepError(error_text(op, "step is 0", numbers))


def _split(shape: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Turn ``*shape`` into the arguments of ``shape_args``."""
    return (shape[0], shape[1:]) if shape else ((), ())


def _with_dtype(kwargs: dict[str, Any]) -> dict[str, Any]:
    return kwargs if kwargs.get("dtype") is not None else {**kwargs, "dtype": dtypes.default_float}


def _checked_shape(shape: tuple[Any, ...], op: str) -> tuple[Sint, ...]:
    checked: list[Sint] = []
    for size in shape:
        size = size_arg(size, shape, op)
        if size is None:
            raise ArgumentError(error_text(op, f"shape must be ints, got {shown(shape)}"))
        if isinstance(size, int) and size < 0:
            raise ShapeError(error_text(op, f"negative size in shape {shown(shape)}", rule="sizes >= 0"))
        checked.append(size)
    return tuple(checked)


def _range_dtype(dtype: DTypeLike | None, is_float: bool, first: Any, last: Any) -> DType:
    if dtype is None:
        if is_float:
            return dtypes.default_float
        kind = strong_dtype(dtypes.from_py([int(first), int(last)]))
    else:
        kind = to_dtype(dtype)
    if dtypes.is_int(kind) and not (kind.min <= min(first, last) and max(first, last) <= kind.max):
        raise OverflowError(
            f"arange: values from {first} to {last} do not fit {kind} ({kind.min} to {kind.max}); give dtype="
        )
    return kind
