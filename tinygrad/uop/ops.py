"""UOp: the one node type of every graph in the project, from a user's tensor to the last line of a kernel.

In:   an op, a dtype, source nodes and an argument.
Out:  an immutable, interned node: equal fields are the same object, so comparing is ``is`` and hashing is the id.
Why:  interning gives common sub-expressions for free and lets every derived property be cached on the node itself.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

from tinygrad.dtype import AddrSpace, DType, DTypeLike, Invalid, dtypes, strong_dtype, to_dtype, truncate
from tinygrad.errors import ArgumentError, DTypeError, ShapeError, error_text, shown
from tinygrad.mixin.rand import RandMixin
from tinygrad.profiling import _METADATA, Metadata
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.derived import DerivedProperties
from tinygrad.uop.infer import broadcast_axes, broadcast_shape, dtype_from_uop
from tinygrad.uop.integer import IntegerMethods
from tinygrad.uop.kernels import KernelMethods, effect_of
from tinygrad.uop.labels import AllMetadata, LabelMethods
from tinygrad.uop.records import CallInfo, KernelInfo, ParamArg, Placement, ProgramInfo
from tinygrad.uop.sharding import ShardMethods
from tinygrad.uop.sint import (
    resolve,
    sint,
    sint_simplify,
    sint_to_uop,
    smax,
    smin,
    srender,
    ssimplify,
    sym_infer,
    to_max_shape,
)
from tinygrad.uop.storage import StorageMethods, buffers
from tinygrad.uop.variables import VariableMethods
from tinygrad.uop.walking import WalkMethods, consumer_map_from_toposort, gate_kernel_sink


class _NodeRef(weakref.ref["UOp"]):
    """Weak reference that remembers under which key its node is interned."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_interned: dict[tuple[Any, ...], _NodeRef] = {}
_label = _METADATA.get


def _forget(ref: _NodeRef, interned: dict[tuple[Any, ...], _NodeRef] = _interned) -> None:
    # Another thread may have put a new node under the key since this one died. The table is an argument because at
    # exit the names of this module may be gone before the last node is.
    if interned.get(ref.key) is ref:
        interned.pop(ref.key, None)


MovementArg: TypeAlias = tuple[Any, ...]


class UOp(
    DerivedProperties, KernelMethods, StorageMethods, ShardMethods, VariableMethods, WalkMethods, IntegerMethods,
    LabelMethods, RandMixin,
):  # fmt: skip
    """A node: ``op`` applied to ``src`` with the parameter ``arg``, giving a value of type ``dtype``.

    ``tag`` is a free mark that makes otherwise equal nodes different. ``==`` is identity; ``!=`` builds a CMPNE node.
    """

    __slots__ = (
        "__weakref__", "_axis_", "_bounds", "_device_", "_footprint", "_is_normal_sum", "_key", "_made_by",
        "_ops_below", "_ranges", "_rewrites", "_shape_", "_simplified", "_states", "arg", "dtype", "op", "src", "tag",
    )  # fmt: skip
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    # Missing until they are first asked for, like the slots of DerivedProperties.
    _rewrites: dict[int, UOp | None]
    _simplified: UOp
    _is_normal_sum: bool  # see ``uop/affine.py``
    # What made the node, for people who look at it; not part of what it is.
    _made_by: Metadata | tuple[Metadata, ...] | None

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
        self._made_by = _label()
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

    # There is no __init__: interned nodes must not be initialised twice, and one that does nothing is a call per node.

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
        # An index takes numbers of any size: what it is computed in follows from its bounds, late.
        return UOp.const(x, dtypes.weakint if type(x) is int and self.dtype is dtypes.weakint else None)

    def cast(self, dtype: DType | str) -> UOp:
        """Return the value converted to ``dtype``; constants and equal dtypes need no node."""
        dtype = to_dtype(dtype)
        if self.dtype is dtype:
            return self
        if dtype is dtypes.void:
            raise _no_values("cast", self)
        if self.op is Ops.CONST:
            return UOp(Ops.CONST, dtype, (), _held(_held(self.arg, self.dtype), dtype))
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
        if dtype is dtypes.void:
            raise _no_values("bitcast", self)
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
        return (
            UOp(Ops.CONST, dtypes.from_py(value), (), value)
            if dtype is None
            else UOp(Ops.CONST, dtype, (), _held(value, dtype))
        )

    @staticmethod
    def cconst(value: Any, dtype: DType | str) -> UOp:
        """Return a literal as it stands in finished programs: a CAST of the weak constant."""
        dtype = to_dtype(dtype)
        return UOp(Ops.CAST, dtype, (UOp.const(value),), dtype)

    def const_like(self, value: Any, dtype: DTypeLike | None = None) -> UOp:
        """Return a constant of this node's dtype (or the given one), broadcast to its shape."""
        if not isinstance(value, (int, float, UOp)) and value is not Invalid and not hasattr(value, "item"):
            raise ArgumentError(error_text("const_like", f"the value is {shown(value)}", rule="the value is a number"))
        made = UOp.const(value, self.dtype if dtype is None else dtype)
        shape = self._shape
        return made if not shape else made._mop(Ops.EXPAND, shape)

    def __getitem__(self, idx: Any) -> UOp:
        items = idx if isinstance(idx, tuple) else (idx,)
        kernel_side = self.base.op in (Ops.PARAM, Ops.BUFFER, Ops.AFTER) and self.device is None
        if kernel_side and len(items) == self.ndim and all(isinstance(i, (UOp, int)) for i in items):
            return self.index(*(sint_to_uop(i) for i in items))
        return super().__getitem__(idx)

    # ---- what lies below

    @property
    def base(self) -> UOp:
        """The node under movement and DETACH nodes."""
        u = self
        while u.op in GroupOp.Movement or u.op is Ops.DETACH:
            u = u.src[0]
        return u

    @property
    def without_after(self) -> UOp:
        """The storage under a chain of AFTER nodes."""
        return self.states[0] if self.op is Ops.AFTER else self

    # ---- constants and variables

    @property
    def is_invalid(self) -> bool:
        """Whether this is the constant that marks an undefined value."""
        return self.op is Ops.CONST and self.arg is Invalid

    @property
    def is_variable(self) -> bool:
        """Whether this is a Variable."""
        return self.op is Ops.PARAM and self.arg.addrspace is AddrSpace.ALU

    @property
    def is_bound_var(self) -> bool:
        """Whether this is a Variable with a value."""
        return self.op is Ops.AFTER and self.src[0].is_variable

    # ---- building

    def replace(self, **kwargs: Any) -> UOp:
        """Return the node with some of op, dtype, src, arg, tag changed."""
        extra = kwargs.keys() - {"op", "dtype", "src", "arg", "tag"}
        if extra:
            raise AssertionError(f"replace: unknown fields {sorted(extra)}; a node has op, dtype, src, arg, tag")
        made = UOp(
            kwargs.get("op", self.op),
            kwargs.get("dtype", self.dtype),
            kwargs.get("src", self.src),
            kwargs.get("arg", self.arg),
            kwargs.get("tag", self.tag),
        )
        if made._made_by is None:
            made._made_by = self._made_by
        return made

    def rtag(self, tag: Any = True) -> UOp:
        """Return the node with another tag."""
        return self.replace(tag=tag)

    def sink(*uops: UOp | None, **kwargs: Any) -> UOp:
        """Join roots; None is skipped."""
        return UOp(Ops.SINK, dtypes.void, tuple(effect_of(u) for u in uops if u is not None), **kwargs)

    def group(*uops: UOp | None) -> UOp:
        """Join effects without order; one effect is returned as it is."""
        src = tuple(effect_of(u) for u in uops if u is not None)
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

    def clone(self, device: str | None = None) -> UOp:
        """Return fresh storage, on ``device`` if given, that holds this value."""
        from tinygrad.uop.custom import view_after

        where = device or self.device
        value = self.cast(strong_dtype(self.dtype))
        if where is not None and value.device not in (None, where):
            value = value.copy_to_device(where)
        storage = value.empty_like(device=where)
        return view_after(storage, storage.store(value))

    def data(self) -> Any:
        """A node has no data; a Tensor around it has."""
        raise NotImplementedError("data: a node has no data of its own; use Tensor(node).data()")

    item = data

    def custom_kernel(*srcs: UOp, fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None) -> list[UOp]:
        """Run a hand-written kernel over nodes; returns them as they are after it. See ``Tensor.custom_kernel``."""
        from tinygrad.uop.custom import custom_kernel

        return custom_kernel(srcs, fxn, grad_fxn)

    # ---- walking and rewriting

    def toposort(self, gate: Callable[[UOp], bool] | None = None, enter_calls: bool = True) -> dict[UOp, None]:
        """Return the graph in dependency order, this node last.

        Args:
            gate: A node for which it returns False is left out together with what only it leads to.
            enter_calls: False skips the bodies of CALL and FUNCTION.
        """
        done: dict[UOp, None] = {}
        is_whole = gate is None and enter_calls
        # A node waits, its sources above it on the stack, until the None below them comes up.
        stack: list[UOp | None] = [self]
        waiting: list[UOp] = []
        while stack:
            node = stack.pop()
            if node is None:
                done[waiting.pop()] = None
                continue
            if node in done:
                continue
            src = node.src
            if not is_whole:
                if gate is not None and not gate(node):
                    continue
                if not enter_calls and (node.op is Ops.CALL or node.op is Ops.FUNCTION):
                    src = src[1:]
            if src:
                waiting.append(node)
                stack.append(None)
                stack.extend(src[::-1])
            else:
                done[node] = None
        return done

    def op_in_backward_slice_with_self(self, *ops: Ops) -> bool:
        """Return whether one of the ops occurs in this graph."""
        mask = 0
        for op in ops:
            mask |= 1 << op
        return bool(self.ops_below & mask)

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
        # A node that is its own normal form must not keep itself alive: the marker stands for "self".
        simple = _normal_form()(self)
        if simple is not self:
            self._simplified = simple
        return simple

    def eq(self, x: Any) -> UOp:
        """Return the node that compares for equality."""
        return super().eq(x)


@functools.cache
def _normal_form() -> Callable[[UOp], UOp]:
    """Return what rewrites a graph to its normal form: an import takes long for a function that is called often."""
    from tinygrad.uop.rewrite import graph_rewrite
    from tinygrad.uop.symbolic import symbolic

    return lambda u: graph_rewrite(u, symbolic, name="simplify")


def _py_const(value: Any) -> Any:
    # numpy scalars arrive here from user code
    return value.item() if hasattr(value, "item") and not isinstance(value, UOp) else value


def _held(value: Any, dtype: DType) -> Any:
    """Return the number that ``dtype`` holds for a constant: what storage of this dtype would give back."""
    return value if value is Invalid or dtype is dtypes.void else truncate[dtype](value)


def _no_values(op: str, x: UOp) -> DTypeError:
    return DTypeError(error_text(op, "dtypes.void has no values", {"tensor": x}, hint="give a dtype of numbers"))


_broadcast_shape = broadcast_shape


all_metadata = AllMetadata(lambda: (u for ref in list(_interned.values()) if (u := ref()) is not None))


Variable: TypeAlias = UOp

from tinygrad.uop.alu import exec_alu, identity_element, python_alu  # noqa: E402 - these modules need the class above
from tinygrad.uop.matcher import PatternMatcher, TrackedPatternMatcher  # noqa: E402
from tinygrad.uop.render import multirange_str, range_str  # noqa: E402
from tinygrad.uop.rewrite import BottomUpGate, graph_rewrite, rewrite_group  # noqa: E402
from tinygrad.uop.tracing import (  # noqa: E402
    RewriteTrace,
    TrackedGraphRewrite,
    active_group,
    active_rewrites,
    tracked_ctxs,
    tracked_keys,
    uop_fields,
)
from tinygrad.uop.upat import UPat  # noqa: E402

remove_all_tags = PatternMatcher([
    # x with a tag = x without it
    (UPat(GroupOp.All, name="x"), lambda x: None if x.tag is None else x.replace(tag=None)),
])

__all__ = [
    "AddrSpace", "AxisType", "BottomUpGate", "CallInfo", "GroupOp", "Invalid", "KernelInfo", "Ops", "ParamArg",
    "PatternMatcher", "Placement", "ProgramInfo", "RewriteTrace", "ShapeError", "TrackedGraphRewrite",
    "TrackedPatternMatcher", "UOp", "UPat", "Variable", "active_group", "active_rewrites", "all_metadata",
    "broadcast_axes", "buffers", "consumer_map_from_toposort", "dtypes", "exec_alu", "gate_kernel_sink",
    "graph_rewrite", "identity_element", "multirange_str", "python_alu", "range_str", "remove_all_tags", "resolve",
    "rewrite_group", "sint", "sint_simplify", "sint_to_uop", "smax", "smin", "srender", "ssimplify", "sym_infer",
    "to_max_shape", "tracked_ctxs", "tracked_keys", "uop_fields",
]  # fmt: skip
