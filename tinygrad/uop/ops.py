"""UOp: the one node type of every graph in the project, from a user's tensor to the last line of a kernel.

In:   an op, a dtype, source nodes and an argument.
Out:  an immutable, interned node: equal fields are the same object, so comparing is ``is`` and hashing is the id.
Why:  interning gives common sub-expressions for free and lets every derived property be cached on the node itself.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tinygrad.dtype import AddrSpace, DType, DTypeLike, Invalid, dtypes, strong_dtype, to_dtype, truncate
from tinygrad.errors import ArgumentError, DTypeError, ShapeError, error_text, shown
from tinygrad.mixin.rand import RandMixin
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.infer import broadcast_shape, device_from_uop, dtype_from_uop, shape_from_uop
from tinygrad.uop.integer import IntegerMethods
from tinygrad.uop.records import CallInfo, KernelInfo, ParamArg, ProgramInfo
from tinygrad.uop.sint import (
    bound_value,
    resolve,
    sint,
    sint_simplify,
    sint_to_uop,
    size_text,
    smax,
    smin,
    srender,
    ssimplify,
    sym_infer,
    to_max_shape,
)

if TYPE_CHECKING:
    from tinygrad.device import Buffer


class _NodeRef(weakref.ref["UOp"]):
    """Weak reference that remembers under which key its node is interned."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_interned: dict[tuple[Any, ...], _NodeRef] = {}


def _forget(ref: _NodeRef) -> None:
    # Another thread may have put a new node under the key since this one died.
    if _interned.get(ref.key) is ref:
        _interned.pop(ref.key, None)


buffers: weakref.WeakKeyDictionary[UOp, Buffer] = weakref.WeakKeyDictionary()
_buffer_lock = threading.RLock()
_unique_slots = itertools.count()

MovementArg: TypeAlias = tuple[Any, ...]
Derived = TypeVar("Derived")


def derive(u: UOp, slot: str, rule: Callable[[UOp], Derived]) -> Derived:
    """Compute a cached property of ``u`` and of every source that lacks it, sources first, without recursion."""
    stack = [u]
    while stack:
        node = stack[-1]
        if hasattr(node, slot):
            stack.pop()
            continue
        missing = [s for s in node.src if not hasattr(s, slot)]
        if missing:
            stack.extend(missing)
            continue
        setattr(node, slot, rule(node))
        stack.pop()
    derived: Derived = getattr(u, slot)
    return derived


class UOp(IntegerMethods, RandMixin):
    """A node: ``op`` applied to ``src`` with the parameter ``arg``, giving a value of type ``dtype``.

    ``tag`` is a free mark that makes otherwise equal nodes different. ``==`` is identity; ``!=`` builds a CMPNE node.
    """

    __slots__ = (
        "__weakref__", "_bounds", "_device_", "_footprint", "_key", "_ops_below", "_ranges", "_rewrites", "_shape_",
        "_simplified", "arg", "dtype", "op", "src", "tag",
    )  # fmt: skip
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    # Derived on first use and kept on the node: these attributes are missing until then.
    _bounds: tuple[Any, Any]
    _device_: str | tuple[str, ...] | None
    _footprint: int
    _key: bytes
    _ops_below: int
    _ranges: dict[UOp, None]
    _rewrites: dict[int, UOp | None]
    _shape_: tuple[sint, ...] | None
    _simplified: UOp

    def __new__(
        cls, op: Ops, dtype: DType | None = None, src: tuple[UOp, ...] = (), arg: Any = None, tag: Any = None
    ) -> UOp:
        """Return the node with these fields, creating it if no live node has them."""
        if dtype is None:
            if op is Ops.CONST:
                arg = _py_const(arg)
            dtype = dtype_from_uop(op, src, arg)
        if op is Ops.CONST:
            arg = dtype.const(arg)
        key = (op, dtype, src, arg, tag)
        ref = _interned.get(key)
        if ref is not None:
            found = ref()
            if found is not None:
                return found
        self = object.__new__(cls)
        self.op, self.dtype, self.src, self.arg, self.tag = op, dtype, src, arg, tag
        new = _NodeRef(self, _forget)
        new.key = key
        while True:
            # setdefault is atomic: two threads that build the same node end up with the same object.
            there = _interned.setdefault(key, new)
            if there is new:
                return self
            found = there()
            if found is not None:
                return found
            _forget(there)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # everything happens in __new__: interned nodes must not be initialised twice

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        from tinygrad.uop.pickling import _unpickle_graph, save_graph

        return _unpickle_graph, (save_graph(self),)

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UOp:
        return self

    def __repr__(self) -> str:
        from tinygrad.uop.render import tree

        return tree(self)

    def __bool__(self) -> bool:
        return bool(self._number(dtypes.bool))

    def __int__(self) -> int:
        return int(self._number(dtypes.weakint))

    __index__ = __int__

    def __float__(self) -> float:
        return float(self._number(dtypes.weakfloat))

    def _number(self, kind: DType) -> Any:
        if dtypes.is_float(self.dtype) != dtypes.is_float(kind) or (kind == dtypes.bool) != (self.dtype == dtypes.bool):
            raise AssertionError(
                f"a node of dtype {self.dtype.full_name} is no {kind.name.removeprefix('weak')}: {self.size_text()}"
            )
        simple = self.simplify()
        if simple.op is Ops.CONST:
            return simple.arg
        if simple.vmin == simple.vmax:
            return simple.vmin
        raise ValueError(
            error_text(
                "int" if kind is not dtypes.bool else "bool",
                f"eval failed to be a single number, range is {simple.vmin} to {simple.vmax} in {self.render()}",
                hint="a symbolic size has a value only when a kernel runs; make the program independent of it",
            )
        )

    # ---- hooks of the mixins

    @property
    def _uop(self) -> UOp:
        return self

    @classmethod
    def _wrap_uop(cls, uop: UOp) -> UOp:
        return uop

    def _apply_uop(self, fxn: Callable[..., UOp], *others: UOp, **kwargs: Any) -> UOp:
        return fxn(self, *others, **kwargs)

    def alu(self, op: Ops, *src: UOp) -> UOp:
        """Return ``op(self, *src)``; the dtype is derived from the sources."""
        return UOp(op, None, (self, *src))

    def _mop(self, op: Ops, marg: MovementArg) -> UOp:
        """Return a movement node. Sizes that are nodes become extra sources, with a hole in ``arg`` for each."""
        symbolic: list[UOp] = []

        def hole(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(hole(y) for y in x)
            if isinstance(x, UOp):
                symbolic.append(x)
                return None
            return x if type(x) is bool or type(x) is int else operator.index(x)

        arg = tuple(hole(x) for x in marg)
        return UOp(op, self.dtype, (self, *symbolic), arg)

    def _rop(self, op: Ops, axes: tuple[int, ...]) -> UOp:
        """Return a reduction that keeps the reduced axes with size 1."""
        axes = tuple(sorted(axes))
        return UOp(Ops.REDUCE, self.dtype, (self,), (op, axes)) if axes else self

    @property
    def marg(self) -> MovementArg:
        """The argument of a movement node with symbolic sizes filled in.

        Raises:
            RuntimeError: This is not a movement node.
        """
        if self.op not in GroupOp.Movement:
            raise RuntimeError(f"marg: {self.op} is not a movement op")
        arg: MovementArg = self.arg
        if len(self.src) == 1:
            return arg
        extra = iter(self.src[1:])

        def fill(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(fill(y) for y in x)
            return next(extra) if x is None else x

        return tuple(fill(x) for x in arg)

    def ufix(self, x: Any) -> UOp:
        """Return a scalar as a node of a dtype that fits this one.

        Raises:
            RuntimeError: ``x`` is neither a node nor a number.
        """
        if isinstance(x, UOp):
            return x
        if hasattr(x, "uop"):
            # The result of a node and a tensor would be a node, which computes nothing by itself.
            operands = {"left": self.size_text(), "right": x}
            raise RuntimeError(error_text("operator", "a node on the left of a Tensor", operands,
                                          hint="write the Tensor on the left, or Tensor(node)"))  # fmt: skip
        return UOp.const(x)

    def cast(self, dtype: DType | str) -> UOp:
        """Return the value converted to ``dtype``; constants and equal dtypes need no node."""
        dtype = to_dtype(dtype)
        if self.dtype is dtype:
            return self
        if self.op is Ops.CONST:
            return UOp(Ops.CONST, dtype, (), _cast_const(self.arg, dtype))
        return UOp(Ops.CAST, dtype, (self,), dtype)

    def bitcast(self, dtype: DType | str) -> UOp:
        """Return the bits reinterpreted as ``dtype``; the last dimension scales with the item size."""
        dtype = to_dtype(dtype)
        if self.dtype is dtype:
            return self
        if dtypes.weakint in (self.dtype, dtype) or dtypes.weakfloat in (self.dtype, dtype):
            raise DTypeError(
                f"bitcast: weak dtypes have no bits ({self.dtype} to {dtype}); cast to a stored dtype first"
            )
        made = UOp(Ops.BITCAST, dtype, (self,), dtype)
        made._try_shape()
        return made

    def _try_shape(self) -> None:
        if self.src and self.src[0]._shape is not None:
            self.shape  # noqa: B018 - raises ShapeError at the line that built the node

    @staticmethod
    def const(value: Any, dtype: DType | str | None = None) -> UOp:
        """Return a constant node; a tuple gives a STACK of constants.

        Raises:
            RuntimeError: The type of ``value`` has no dtype.
        """
        dtype = None if dtype is None else to_dtype(dtype)
        if isinstance(value, UOp):
            return value if dtype is None else value.cast(dtype)
        if isinstance(value, tuple):
            return UOp.stack(*(UOp.const(v, dtype) for v in value))
        value = _py_const(value)
        return UOp(Ops.CONST, dtypes.from_py(value) if dtype is None else dtype, (), value)

    @staticmethod
    def cconst(value: Any, dtype: DType | str) -> UOp:
        """Return a literal as it stands in finished programs: a CAST of the weak constant."""
        dtype = to_dtype(dtype)
        return UOp(Ops.CAST, dtype, (UOp.const(value),), dtype)

    def const_like(self, value: Any, dtype: DTypeLike | None = None) -> UOp:
        """Return a constant of this node's dtype (or the given one), broadcast to its shape."""
        if isinstance(value, (tuple, list)):
            raise ArgumentError(error_text("const_like", f"the value is a {type(value).__name__}, {shown(value)}",
                                           rule="the value is a number"))  # fmt: skip
        made = UOp.const(value, self.dtype if dtype is None else dtype)
        shape = self._shape
        return made if not shape else made._mop(Ops.EXPAND, shape)

    def contiguous(self, **kwargs: Any) -> UOp:
        """Return a node whose value gets storage of its own."""
        if self.op is Ops.CONTIGUOUS or self.device is None or self.has_buffer_identity():
            return self
        return UOp(Ops.CONTIGUOUS, self.dtype, (self,))

    def contiguous_backward(self) -> UOp:
        """Return the same value; its gradient gets storage of its own."""
        return UOp(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

    def detach(self) -> UOp:
        """Return the same value, cut off from gradients."""
        return UOp(Ops.DETACH, self.dtype, (self,))

    def __getitem__(self, idx: Any) -> UOp:
        items = idx if isinstance(idx, tuple) else (idx,)
        kernel_side = self.base.op in (Ops.PARAM, Ops.BUFFER, Ops.AFTER) and self.device is None
        if kernel_side and len(items) == self.ndim and all(isinstance(i, (UOp, int)) for i in items):
            return self.index(*(sint_to_uop(i) for i in items))
        return super().__getitem__(idx)

    # ---- derived properties

    @property
    def _shape(self) -> tuple[sint, ...] | None:
        try:
            return self._shape_
        except AttributeError:
            return derive(self, "_shape_", shape_from_uop)

    @property
    def shape(self) -> tuple[sint, ...]:
        """Sizes of the value.

        Raises:
            RuntimeError: The node has no value (SINK, STORE lists, ...).
        """
        shape = self._shape
        if shape is None:
            raise RuntimeError(f"{self.op} has no shape")
        return shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def max_shape(self) -> tuple[int, ...]:
        """Shape with symbolic sizes replaced by their maximum."""
        return to_max_shape(self.shape)

    @property
    def device(self) -> str | tuple[str, ...] | None:
        """Where the value lives; None for constants and index arithmetic."""
        return self._device

    @property
    def _device(self) -> str | tuple[str, ...] | None:
        try:
            return self._device_
        except AttributeError:
            return derive(self, "_device_", device_from_uop)

    @property
    def ops_below(self) -> int:
        """Bit set (bit number = op value) of the ops that occur in this graph, itself included."""
        try:
            return self._ops_below
        except AttributeError:
            return derive(self, "_ops_below", _ops_below)

    @property
    def footprint(self) -> int:
        """Bit set of the nodes of this graph, each hashed to one bit: a node whose bit is missing is not in it."""
        try:
            return self._footprint
        except AttributeError:
            return derive(self, "_footprint", _footprint)

    @property
    def footprint_bit(self) -> int:
        """The bit that stands for this node in the footprint of graphs."""
        return 1 << (hash(self) & 2047)

    @property
    def ranges(self) -> dict[UOp, None]:
        """RANGEs that are still open at this node, in a stable order."""
        try:
            return self._ranges
        except AttributeError:
            return derive(self, "_ranges", _open_ranges)

    @property
    def ended_ranges(self) -> tuple[UOp, ...]:
        """RANGEs that this node closes."""
        return self.src[1:] if self.op is Ops.END or (self.op is Ops.REDUCE and len(self.src) > 1) else ()

    @property
    def key(self) -> bytes:
        """SHA-256 of op, dtype, arg and sources (not tag), the same in every process."""
        try:
            return self._key
        except AttributeError:
            return derive(self, "_key", _structural_key)

    @property
    def vmin(self) -> Any:
        """Lower bound of the value."""
        try:
            return self._bounds[0]
        except AttributeError:
            return vmin_vmax(self)[0]

    @property
    def vmax(self) -> Any:
        """Upper bound of the value."""
        try:
            return self._bounds[1]
        except AttributeError:
            return vmin_vmax(self)[1]

    @property
    def addrspace(self) -> AddrSpace | None:
        """Memory space of a BUFFER, PARAM or what indexes it."""
        base = self.buf_uop_or_none
        return None if base is None else base.arg.addrspace

    @property
    def base(self) -> UOp:
        """The node under movement and DETACH nodes."""
        u = self
        while u.op in GroupOp.Movement or u.op is Ops.DETACH:
            u = u.src[0]
        return u

    @property
    def buf_uop_or_none(self) -> UOp | None:
        """The BUFFER or PARAM that this node reads or views, if it is a view of one."""
        u = self
        while u.op in GroupOp.Movement or u.op in (Ops.AFTER, Ops.INDEX, Ops.DETACH, Ops.BITCAST, Ops.LOAD):
            u = u.src[0]
        return u if u.op is Ops.BUFFER or u.op is Ops.PARAM else None

    @property
    def buf_uop(self) -> UOp:
        """The BUFFER or PARAM under this node.

        Raises:
            AssertionError: There is none.
        """
        found = self.buf_uop_or_none
        if found is None:
            raise AssertionError(f"must be BUFFER or a view of one, got {self.op}")
        return found

    @property
    def without_after(self) -> UOp:
        """The storage under a chain of AFTER nodes."""
        u = self
        while u.op is Ops.AFTER:
            u = u.src[0]
        return u

    def has_buffer_identity(self, after_ok: bool = False) -> bool:
        """Return whether this is a BUFFER or PARAM seen through RESHAPEs only."""
        u = self
        while u.op is Ops.RESHAPE or (after_ok and u.op is Ops.AFTER):
            u = u.src[0]
        return u.op is Ops.BUFFER or u.op is Ops.PARAM

    @property
    def buffer(self) -> Buffer:
        """The storage behind a BUFFER (made, not yet allocated, on first use) or behind a contiguous view of one.

        Raises:
            AssertionError: The node is no view of a BUFFER.
            RuntimeError: The view is not contiguous.
        """
        from tinygrad.uop.views import buffer_of

        return buffer_of(self)

    @property
    def realized(self) -> Buffer | None:
        """The storage if it exists and is allocated, else None."""
        u = self.base
        if u.op is not Ops.BUFFER:
            return None
        found = buffers.get(u)
        if found is None or not found.is_allocated():
            return None
        return found if u is self else self.buffer

    @property
    def is_realized(self) -> bool:
        """Whether the base of this view has allocated storage."""
        found = buffers.get(self.base)
        return found is not None and found.is_allocated()

    @property
    def is_virtual(self) -> bool:
        """Whether the value can never own storage: no device, or a weak dtype."""
        return self.device is None or self.dtype in dtypes.weaks

    # ---- constants and variables

    @property
    def val(self) -> Any:
        """The Python value of a constant."""
        if self.op is not Ops.CONST:
            raise AssertionError(f"val: expected a CONST, got {self.op}")
        return self.arg

    @property
    def is_invalid(self) -> bool:
        """Whether this is the constant that marks an undefined value."""
        return self.op is Ops.CONST and self.arg is Invalid

    @staticmethod
    def invalid(dtype: DType = dtypes.weakint) -> UOp:
        """Return the constant that marks an undefined value."""
        return UOp(Ops.CONST, dtype, (), Invalid)

    @staticmethod
    def variable(
        name: str,
        min_val: Any = None,
        max_val: Any = None,
        dtype: DType = dtypes.weakint,
        multiple_of: int = 1,
        param: bool = False,
    ) -> UOp:
        """Return a symbolic scalar with inclusive bounds; without bounds it is a wildcard of patterns.

        Equal arguments give the identical object.
        """
        plain = (int, float, UOp)
        if any(b is not None and not isinstance(b, plain) and not hasattr(b, "__index__") for b in (min_val, max_val)):
            raise TypeError(
                error_text("Variable", f"bounds {shown(min_val)} to {shown(max_val)} of {name!r} are no ints")
            )
        if (min_val is None) != (max_val is None) or (min_val is not None and min_val > max_val):
            raise ValueError(
                error_text("Variable", f"bounds {min_val} to {max_val} of {name!r} make no interval", rule="min <= max")
            )
        limits = None if min_val is None else (min_val, max_val)
        arg = ParamArg(-1, dtype, (), None, name, limits, multiple_of, AddrSpace.ALU)
        return UOp(Ops.PARAM, dtype, (), arg)

    @property
    def is_variable(self) -> bool:
        """Whether this is a Variable."""
        return self.op is Ops.PARAM and self.arg.addrspace is AddrSpace.ALU

    @property
    def is_bound_var(self) -> bool:
        """Whether this is a Variable with a value."""
        return self.op is Ops.AFTER and self.src[0].is_variable

    @property
    def expr(self) -> str:
        """Name of a Variable."""
        u = self.without_after
        if not u.is_variable:
            raise AssertionError(f"expr: expected a Variable, got {self.op}")
        name: str = u.arg.name
        return name

    def bind(self, value: int) -> UOp:
        """Return this Variable with a value.

        Raises:
            AssertionError: The value is out of bounds, not a multiple, or the Variable has a value already.
        """
        if self.is_bound_var:
            name, bound = self.expr, self.unbind()[1]
            raise AssertionError(error_text("bind", f"Variable {name} is already bound, to {bound}",
                                            hint="keep the unbound Variable and bind that"))  # fmt: skip
        if not self.is_variable:
            raise AssertionError(error_text("bind", f"expected an unbound Variable, got {self.size_text()}"))
        given: Any = value  # programs without types pass anything
        if not hasattr(given, "__index__") or isinstance(given, (UOp, type)):
            raise ArgumentError(error_text("bind", f"{shown(value)} of type {type(value).__name__} is no int",
                                           {"Variable": self.expr}))  # fmt: skip
        value = operator.index(value)
        low, high = self.arg.vmin_vmax
        if not low <= value <= high:
            raise AssertionError(error_text("bind", f"{value} is out of range for Variable {self.expr}",
                                            rule=f"{low} <= value <= {high}"))  # fmt: skip
        if value % self.arg.multiple_of:
            raise AssertionError(error_text("bind", f"{value} does not fit Variable {self.expr}",
                                            rule=f"value is a multiple of {self.arg.multiple_of}"))  # fmt: skip
        return UOp(Ops.AFTER, self.dtype, (self, UOp(Ops.STORE, dtypes.void, (self, UOp.const(value, self.dtype)))))

    def unbind(self) -> tuple[UOp, int]:
        """Return (Variable, value) of a bound Variable."""
        if not self.is_bound_var:
            raise AssertionError(error_text("unbind", f"expected a bound Variable, got {self.size_text()}",
                                            hint="bind it first: v.bind(3)"))  # fmt: skip
        return self.src[0], self.src[1].src[1].arg

    def unbind_all(self) -> tuple[UOp, dict[UOp, int]]:
        """Return the graph with bound Variables replaced by plain ones, and their values."""
        bound = [u for u in self.toposort() if u.is_bound_var]
        values: dict[UOp, int] = {}
        for u in bound:
            var, value = u.unbind()
            if values.setdefault(var, value) != value:
                raise RuntimeError(f"bind mismatch on {var.expr}: {values[var]} and {value} in one graph")
        return self.substitute({u: u.src[0] for u in bound}), values

    def variables(self) -> list[UOp]:
        """Return the Variables of the graph, sorted by name."""
        return sorted({u for u in self.toposort() if u.is_variable}, key=lambda v: v.expr)

    # ---- building

    def replace(self, **kwargs: Any) -> UOp:
        """Return the node with some of op, dtype, src, arg, tag changed."""
        extra = kwargs.keys() - {"op", "dtype", "src", "arg", "tag"}
        if extra:
            raise AssertionError(f"replace: unknown fields {sorted(extra)}; a node has op, dtype, src, arg, tag")
        return UOp(
            kwargs.get("op", self.op),
            kwargs.get("dtype", self.dtype),
            kwargs.get("src", self.src),
            kwargs.get("arg", self.arg),
            kwargs.get("tag", self.tag),
        )

    def rtag(self, tag: Any = True) -> UOp:
        """Return the node with another tag."""
        return self.replace(tag=tag)

    def f(self, op: Ops, **kwargs: Any) -> UOp:
        """Return ``op`` applied to this node."""
        return UOp(op, kwargs.pop("dtype", None), (self,), **kwargs)

    def ins(self, arg: Any, **kwargs: Any) -> UOp:
        """Return a machine instruction that reads this node."""
        return UOp(Ops.INS, kwargs.pop("dtype", self.dtype), (self, *kwargs.pop("src", ())), arg, **kwargs)

    def sink(*uops: UOp | None, **kwargs: Any) -> UOp:
        """Join roots; None is skipped."""
        return UOp(Ops.SINK, dtypes.void, tuple(_effect(u) for u in uops if u is not None), **kwargs)

    def group(*uops: UOp | None) -> UOp:
        """Join effects without order; one effect is returned as it is."""
        src = tuple(_effect(u) for u in uops if u is not None)
        return src[0] if len(src) == 1 else UOp(Ops.GROUP, dtypes.void, src)

    def maketuple(*uops: UOp) -> UOp:
        """Join the results of a FUNCTION body."""
        return UOp(Ops.TUPLE, dtypes.void, tuple(uops))

    @staticmethod
    def stack(*uops: UOp, **kwargs: Any) -> UOp:
        """Join equal-shaped values along a new leading dimension (kernel side: scalars to a vector)."""
        if kwargs or any(u._shape for u in uops):
            stacked: UOp = RandMixin.stack(*uops, **kwargs)
            return stacked
        return UOp(Ops.STACK, None, tuple(uops))

    def broadcast(self, n: int) -> UOp:
        """Return a vector of n lanes that all hold this scalar."""
        return UOp(Ops.STACK, self.dtype, (self,) * n)

    @staticmethod
    def range(
        end: sint,
        axis_id: int,
        axis_type: AxisType = AxisType.LOOP,
        *arg: Any,
        dtype: DType = dtypes.weakint,
        src: tuple[UOp, ...] = (),
    ) -> UOp:
        """Return a loop variable that runs from 0 to end - 1."""
        # Simplified here, so that an index that is simplified later still names this very loop.
        return UOp(Ops.RANGE, dtype, (sint_to_uop(end, dtype).simplify(), *src), (axis_id, *arg, axis_type))

    @staticmethod
    def special(end: sint, name: str, dtype: DType = dtypes.weakint) -> UOp:
        """Return a hardware index such as ``gidx0``."""
        return UOp(Ops.SPECIAL, dtype, (sint_to_uop(end, dtype),), name)

    @staticmethod
    def iota(n: sint) -> UOp:
        """Return the tensor-level primitive behind arange: 0, 1, ..., n - 1, weakint, without a device.

        The scheduler turns it into the loop variable itself, so it never exists in memory.
        """
        return UOp(Ops.SPECIAL, dtypes.weakint, (sint_to_uop(n),), "iota")

    @staticmethod
    def param(
        slot: int,
        dtype: DType,
        shape: tuple[sint, ...] | None = None,
        device: str | tuple[str, ...] | None = None,
        vmin_vmax: tuple[Any, Any] | None = None,
        multiple_of: int = 1,
        name: str | None = None,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
        axis: int | None = None,
        volatile: bool = False,
    ) -> UOp:
        """Return argument ``slot`` of a call body or kernel."""
        if dtype in dtypes.weaks and addrspace is not AddrSpace.ALU:
            raise RuntimeError(f"param: weak dtype {dtype} cannot be stored; cast to a concrete dtype")
        arg = ParamArg(slot, dtype, shape or (), device, name, vmin_vmax, multiple_of, addrspace, axis, volatile)
        return UOp(Ops.PARAM, dtype, (), arg)

    def param_like(self, slot: int) -> UOp:
        """Return a PARAM that stands for this value in a call body."""
        return UOp.param(slot, strong_dtype(self.dtype), self.shape, self.device)

    @staticmethod
    def placeholder(
        shape: tuple[int, ...],
        dtype: DType,
        slot: int | None = None,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
        volatile: bool = False,
        **kwargs: Any,
    ) -> UOp:
        """Return a kernel buffer of the given shape: a PARAM for GLOBAL memory, a BUFFER for LOCAL and REG."""
        size = 1
        for s in shape:
            size *= s
        slot = next(_unique_slots) if slot is None else slot
        op = Ops.PARAM if addrspace is AddrSpace.GLOBAL else Ops.BUFFER
        arg = ParamArg(slot, strong_dtype(dtype), (size,), addrspace=addrspace, volatile=volatile)
        flat = UOp(op, arg.dtype, (), arg)
        return flat if len(shape) == 1 else flat._mop(Ops.RESHAPE, tuple(shape))

    def placeholder_like(self, slot: int, addrspace: AddrSpace = AddrSpace.GLOBAL) -> UOp:
        """Return a kernel buffer with this value's shape and dtype."""
        sizes = tuple(s for s in self.shape if isinstance(s, int))
        if len(sizes) < self.ndim:
            raise AssertionError(f"placeholder_like: shape {self.shape} is symbolic")
        return UOp.placeholder(sizes, self.dtype, slot, addrspace)

    @staticmethod
    def new_buffer(device: str, size: int, dtype: DType, num: int | None = None) -> UOp:
        """Return fresh storage for ``size`` elements.

        Raises:
            RuntimeError: ``dtype`` is weak.
        """
        if dtype in dtypes.weaks:
            raise RuntimeError(f"buffer: weak dtype {dtype} cannot be stored; cast to a concrete dtype")
        slot = next(_unique_slots) if num is None else num
        return UOp(Ops.BUFFER, dtype, (), ParamArg(slot, dtype, (size,), device))

    @staticmethod
    def from_buffer(buffer: Buffer, device: str | None = None) -> UOp:
        """Return a node for an existing Buffer."""
        node = UOp.new_buffer(device or buffer.device, buffer.size, buffer.dtype)
        buffers[node] = buffer
        return node

    def index(self, *idx: UOp, gate: UOp | None = None) -> UOp:
        """Return element ``idx`` of kernel storage; several indices address a shaped placeholder."""
        if len(idx) > 1 or self.op in GroupOp.Movement or (self.op is Ops.AFTER and self.src[0].op in GroupOp.Movement):
            from tinygrad.uop.views import kernel_index

            return kernel_index(self, idx, gate)
        return UOp(Ops.INDEX, self.dtype, (self, *idx) if gate is None else (self, *idx, gate))

    def load(self, *src: UOp, width: int | None = None) -> UOp:
        """Return a LOAD of an INDEX (or of a register); ``src`` is (alternative, gate)."""
        return UOp(Ops.LOAD, self.dtype, (self, *src), width)

    def store(self, value: Any, gate: UOp | None = None) -> UOp:
        """Return a STORE of ``value`` to this view, INDEX or register."""
        value = value if isinstance(value, UOp) else self.const_like(value)
        return UOp(Ops.STORE, dtypes.void, (self, value) if gate is None else (self, value, gate))

    def set(self, value: Any, end: Sequence[UOp] | UOp = ()) -> UOp:
        """Store, close the ranges ``end``, and return the buffer after that."""
        ends = (end,) if isinstance(end, UOp) else tuple(end)
        storage = self.buf_uop.after(self.store(value).end(*ends))
        return storage.reshape(self.tag) if self.op is Ops.INDEX and isinstance(self.tag, tuple) else storage

    def end(self, *ranges: UOp) -> UOp:
        """Close ranges, outermost first; without ranges returns self."""
        return UOp(Ops.END, dtypes.void, (_effect(self), *ranges)) if ranges else self

    def after(self, *deps: UOp) -> UOp:
        """Return this value, ordered after ``deps``; without them returns self."""
        return UOp(Ops.AFTER, self.dtype, (self, *map(_effect, deps))) if deps else self

    def barrier(self, *src: UOp) -> UOp:
        """Return a work-group barrier after this node and ``src``."""
        return UOp(Ops.BARRIER, dtypes.void, (self, *src))

    def reduce(self, *ranges: UOp, arg: Ops, **kwargs: Any) -> UOp:
        """Return the combination of this value over kernel ranges."""
        return UOp(Ops.REDUCE, self.dtype, (self, *ranges), (arg, ())) if ranges else self

    def copy_to_device(self, device: str | tuple[str, ...], arg: Any = None) -> UOp:
        """Return this value on another device.

        Raises:
            RuntimeError: The dtype is weak.
        """
        if self.dtype in dtypes.weaks:
            raise RuntimeError(f"copy to {device}: weak dtype {self.dtype} has no storage; cast to a concrete dtype")
        return UOp(Ops.COPY, self.dtype, (self,), device)

    def clone(self, device: str | None = None) -> UOp:
        """Return fresh storage, on ``device`` if given, that holds this value."""
        from tinygrad.uop.custom import view_after

        where = device or self.device
        value = self.cast(strong_dtype(self.dtype))
        value = value if value.device in (None, where) else value.copy_to_device(where)  # type: ignore[arg-type]
        storage = value.empty_like(device=where)
        return view_after(storage, storage.store(value))

    def data(self) -> Any:
        """A node has no data; a Tensor around it has."""
        raise NotImplementedError("data: a node has no data of its own; use Tensor(node).data()")

    item = data

    def gettuple(self, i: int) -> UOp:
        """Return result ``i`` of a FUNCTION or TUPLE."""
        if self.op not in (Ops.FUNCTION, Ops.TUPLE):
            raise AssertionError(f"gettuple: expected FUNCTION or TUPLE, got {self.op}")
        return self.src[i] if self.op is Ops.TUPLE else UOp(Ops.GETTUPLE, None, (self,), i)

    def call(
        self,
        *args: UOp,
        grad_fxn: Callable[..., Any] | None = None,
        name: str | None = None,
        precompile: bool = False,
        precompile_backward: bool = False,
        aux: Any = None,
        **kwargs: Any,
    ) -> UOp:
        """Return a call of this body: CALL for a kernel-like body, FUNCTION for values (wrapped in a TUPLE)."""
        info = CallInfo(grad_fxn, name, precompile, precompile_backward, aux)
        if self.op in (Ops.SINK, Ops.PROGRAM, Ops.LINEAR, Ops.COPY, Ops.CUSTOM_FUNCTION):
            open_ranges = [r for r in self.ranges if r.arg[-1] is not AxisType.DEVICE]
            if open_ranges:
                raise AssertionError(f"ranges {open_ranges} are leaking out of the call; close them with .end()")
            return UOp(Ops.CALL, dtypes.void, (self, *args), info)
        body = self if self.op is Ops.TUPLE else UOp.maketuple(self)
        return UOp(Ops.FUNCTION, dtypes.void, (body, *args), info)

    def custom_kernel(*srcs: UOp, fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None) -> list[UOp]:
        """Run a hand-written kernel over nodes; returns them as they are after it. See ``Tensor.custom_kernel``."""
        from tinygrad.uop.custom import custom_kernel

        return custom_kernel(srcs, fxn, grad_fxn)

    @staticmethod
    def wmma(
        a: UOp, b: UOp, acc: UOp, dims: tuple[int, int, int], device: str, threads: int, tc_upcast_axes: Any = None
    ) -> UOp:
        """Return the multiply-add of a matrix unit on fragments: a @ b + acc."""
        return UOp(Ops.WMMA, acc.dtype, (a, b, acc), (dims, a.dtype, device, threads, tc_upcast_axes))

    @staticmethod
    def custom_function(name: str, *src: UOp) -> UOp:
        """Return an operation that the runtime implements."""
        return UOp(Ops.CUSTOM_FUNCTION, dtypes.void, tuple(src), name)

    def valid(self, cond: UOp) -> UOp:
        """Return this index where ``cond`` holds, an undefined value elsewhere."""
        return UOp(Ops.WHERE, self.dtype, (cond, self, UOp.invalid(self.dtype)))

    def get_idx(self) -> UOp:
        """Return the index of a ``valid`` pair."""
        return self.src[1] if self.op is Ops.WHERE and self.src[2].is_invalid else self

    def get_valid(self) -> UOp:
        """Return the condition of a ``valid`` pair; True for a plain index."""
        return self.src[0] if self.op is Ops.WHERE and self.src[2].is_invalid else UOp.const(True, dtypes.bool)

    def contiguous_view(self) -> tuple[UOp, int] | None:
        """Return (storage node, element offset) if this is a contiguous view of storage."""
        from tinygrad.uop.views import contiguous_view

        return contiguous_view(self)

    def contiguous_view_offset(self) -> int | None:
        """Return the element offset of a contiguous view, or None."""
        found = self.contiguous_view()
        return None if found is None else found[1]

    # ---- walking and rewriting

    def toposort(self, gate: Callable[[UOp], bool] | None = None, enter_calls: bool = True) -> dict[UOp, None]:
        """Return the graph in dependency order, this node last.

        Args:
            gate: A node for which it returns False is left out together with what only it leads to.
            enter_calls: False skips the bodies of CALL and FUNCTION.
        """
        done: dict[UOp, None] = {}
        stack: list[tuple[UOp, bool]] = [(self, False)]
        while stack:
            node, expanded = stack.pop()
            if node in done:
                continue
            if expanded:
                done[node] = None
                continue
            if gate is not None and not gate(node):
                continue
            stack.append((node, True))
            src = node.src
            if not enter_calls and (node.op is Ops.CALL or node.op is Ops.FUNCTION):
                src = src[1:]
            for s in reversed(src):
                if s not in done:
                    stack.append((s, False))
        return done

    def topovisit(self, visitor: Callable[[UOp], Any], cache: dict[UOp, Any]) -> Any:
        """Visit bottom-up with a memo; returns the visitor's result for this node."""
        for node in self.toposort(gate=lambda u: u not in cache):
            cache[node] = visitor(node)
        return cache[self]

    @property
    def backward_slice(self) -> dict[UOp, None]:
        """Every node that this one depends on."""
        found = self.toposort()
        found.pop(self)
        return found

    @property
    def backward_slice_with_self(self) -> dict[UOp, None]:
        """Every node that this one depends on, and itself."""
        return self.toposort()

    def op_in_backward_slice_with_self(self, *ops: Ops) -> bool:
        """Return whether one of the ops occurs in this graph."""
        return any(self.ops_below >> op & 1 for op in ops)

    def substitute(self, dvars: dict[UOp, UOp], name: str | None = None, **kwargs: Any) -> UOp:
        """Return the graph with nodes replaced by the map."""
        from tinygrad.uop.rewrite import substitute

        return substitute(self, dvars, **kwargs)

    def simplify(self, tracked: bool = False) -> UOp:
        """Return the symbolic normal form.

        Raises:
            ZeroDivisionError: Division by the constant 0.
        """
        if self.op is Ops.CONST or self.op is Ops.PARAM:
            return self
        try:
            return self._simplified
        except AttributeError:
            pass
        from tinygrad.uop.rewrite import graph_rewrite
        from tinygrad.uop.symbolic import symbolic

        # A node that is its own normal form must not keep itself alive: the marker stands for "self".
        simple = graph_rewrite(self, symbolic, name="simplify")
        if simple is not self:
            self._simplified = simple
        return simple

    def ssimplify(self) -> Any:
        """Simplify; a Python number when the value is constant."""
        simple = self.simplify()
        return simple.arg if simple.op is Ops.CONST else simple

    def render(self, simplify: bool = True, pm: Any = None) -> str:
        """Return infix text such as ``(a*2+2)``."""
        from tinygrad.uop.render import render

        return render(self.simplify() if simplify else self, pm)

    def bound_value(self) -> int | None:
        """Return the value that this symbolic int has now; None if one of its Variables has no value."""
        return bound_value(self)

    def size_text(self) -> str:
        """Return a symbolic int as messages show it, such as ``i=3``; of another value its shape and dtype."""
        if self._shape == () and self.device is None and dtypes.is_int(self.dtype):
            return size_text(self)
        return f"a node {self.op.name} of shape {shown(self._shape)} and dtype {self.dtype.full_name}"

    def sym_infer(self, var_vals: dict[str, int]) -> int:
        """Evaluate with the given values of Variables."""
        return sym_infer(self, var_vals)

    def split_uop(self, op: Ops) -> Iterator[UOp]:
        """Yield the terms of a chain of ``op`` from left to right."""
        stack = [self]
        while stack:
            u = stack.pop()
            if u.op is op:
                stack.extend(reversed(u.src))
            else:
                yield u

    def eq(self, x: Any) -> UOp:
        """Return the node that compares for equality."""
        return super().eq(x)


def _effect(u: UOp) -> UOp:
    """Return what a kernel has to wait for: the storage after its writes, for a view of it (kernels have no views)."""
    return u.base if u.op in GroupOp.Movement and u.base.op is Ops.AFTER and u.device is None else u


def _py_const(value: Any) -> Any:
    # numpy scalars arrive here from user code
    return value.item() if hasattr(value, "item") and not isinstance(value, UOp) else value


def _cast_const(value: Any, dtype: DType) -> Any:
    from tinygrad.dtype import float_to_int

    if value is Invalid:
        return value
    if isinstance(value, float) and dtypes.is_int(dtype) and dtype not in dtypes.weaks:
        return float_to_int(value, dtype)
    return value


def _footprint(u: UOp) -> int:
    bits = u.footprint_bit
    for s in u.src:
        bits |= s._footprint
    return bits


def _ops_below(u: UOp) -> int:
    bits = 1 << u.op
    for s in u.src:
        bits |= s._ops_below
    return bits


_NO_RANGES: dict[UOp, None] = {}


def _open_ranges(u: UOp) -> dict[UOp, None]:
    if u.op is Ops.RANGE:
        found = {u: None}
        for s in u.src[1:]:
            found |= s._ranges
        return found
    src = u.src
    if not src:
        return _NO_RANGES
    merged = src[0]._ranges
    owned = False
    for s in src[1:]:
        if s._ranges is merged or not s._ranges:
            continue
        if not merged:
            merged = s._ranges
        elif any(r not in merged for r in s._ranges):
            merged = merged | s._ranges
            owned = True
    ended = u.ended_ranges
    if ended:
        merged = {r: None for r in merged if r not in ended}
    elif owned:
        merged = dict(merged)
    return merged


def _structural_key(u: UOp) -> bytes:
    h = hashlib.sha256(f"{u.op.name}|{u.dtype.name}|{u.arg!r}|".encode())
    for s in u.src:
        h.update(s._key)
    return h.digest()


def identity_element(op: Ops, dtype: DType) -> Any:
    """Return the neutral value of a reduction: 0, 1 or the smallest value of the dtype."""
    if op is Ops.MAX and dtype in dtypes.fp8s:
        return dtype.const(truncate[dtype](-1e30))  # three of the four kinds have no infinity
    return dtype.const({Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtype.min}[op])


def broadcast_axes(src_shape: tuple[sint, ...], out_shape: tuple[sint, ...]) -> tuple[int, ...]:
    """Return the axes of ``out_shape`` along which a value of ``src_shape`` was broadcast.

    Raises:
        RuntimeError: ``out_shape`` has fewer dimensions.
    """
    extra = len(out_shape) - len(src_shape)
    if extra < 0:
        raise RuntimeError(f"broadcast_axes: {src_shape} has more dimensions than {out_shape}")
    differs = (
        i + extra for i, s in enumerate(src_shape) if s is not out_shape[i + extra] and s != out_shape[i + extra]
    )
    return (*range(extra), *differs)


_broadcast_shape = broadcast_shape


def consumer_map_from_toposort(nodes: Iterable[UOp]) -> dict[UOp, dict[UOp, None]]:
    """Return for every node the nodes that read it."""
    found: dict[UOp, dict[UOp, None]] = {}
    for u in nodes:
        found.setdefault(u, {})
        for s in u.src:
            found.setdefault(s, {})[u] = None
    return found


Variable: TypeAlias = UOp

from tinygrad.uop.alu import exec_alu, python_alu  # noqa: E402 - these modules need the class above
from tinygrad.uop.bounds import vmin_vmax  # noqa: E402
from tinygrad.uop.matcher import PatternMatcher, TrackedPatternMatcher  # noqa: E402
from tinygrad.uop.render import multirange_str, range_str  # noqa: E402
from tinygrad.uop.rewrite import BottomUpGate, graph_rewrite, rewrite_group  # noqa: E402
from tinygrad.uop.upat import UPat  # noqa: E402

__all__ = [
    "AddrSpace", "AxisType", "BottomUpGate", "CallInfo", "GroupOp", "Invalid", "KernelInfo", "Ops", "ParamArg",
    "PatternMatcher", "ProgramInfo", "ShapeError", "TrackedPatternMatcher", "UOp", "UPat", "Variable", "broadcast_axes",
    "buffers", "consumer_map_from_toposort", "dtypes", "exec_alu", "graph_rewrite", "identity_element", "multirange_str",
    "python_alu", "range_str", "resolve", "rewrite_group", "sint", "sint_simplify", "sint_to_uop", "smax", "smin",
    "srender", "ssimplify", "sym_infer", "to_max_shape",
]  # fmt: skip
