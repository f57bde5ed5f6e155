"""dtype, shape and device of a node, each a function of its op, arg and sources.

In:   a node whose sources already have the property (callers walk the graph; nothing here recurses).
Out:  the property. Raises ShapeError, DTypeError where a node makes no sense, at the moment it is built or asked.
Why:  an op's rules are one entry per table, and a wrong graph fails at the line that builds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tinygrad.dtype import DType, dtypes, least_upper_dtype, least_upper_float
from tinygrad.errors import BindError, DTypeError, ShapeError, shown
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.records import Placement
from tinygrad.uop.sint import sint_simplify

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp
    from tinygrad.uop.records import ParamArg

Sources: TypeAlias = "tuple[UOp, ...]"
Shape: TypeAlias = tuple[Any, ...]
DTypeRule: TypeAlias = Callable[[Ops, Sources, Any], DType]

_VOID_OPS = (
    Ops.STORE, Ops.LINEAR, Ops.SINK, Ops.PROGRAM, Ops.SOURCE, Ops.END, Ops.BARRIER, Ops.GROUP, Ops.IF, Ops.ENDIF,
    Ops.TUPLE, Ops.FUNCTION, Ops.CALL, Ops.CUSTOM_FUNCTION, Ops.NOOP,
)  # fmt: skip
_SHAPELESS_OPS = (
    Ops.LINEAR, Ops.SINK, Ops.PROGRAM, Ops.SOURCE, Ops.BARRIER, Ops.GROUP, Ops.IF, Ops.ENDIF, Ops.TUPLE, Ops.FUNCTION,
    Ops.CALL, Ops.CUSTOM_FUNCTION, Ops.BINARY, Ops.INS,
)  # fmt: skip

# ---- dtype -----------------------------------------------------------------------------------------------------------


def _dtype_of_target(op: Ops, src: Sources, arg: Any) -> DType:
    if not isinstance(arg, DType):
        raise AssertionError(f"{op.name} needs a DType as its arg, got {arg!r}")
    return arg


def _dtype_of_storage(op: Ops, src: Sources, arg: Any) -> DType:
    dtype = getattr(arg, "dtype", None)
    if not isinstance(dtype, DType):
        raise AssertionError(f"{op.name} needs a ParamArg, got {arg!r}")
    return dtype


def _dtype_of_result(op: Ops, src: Sources, arg: Any) -> DType:
    position: int = arg
    return _body(src[0]).src[position].dtype


def _dtype_of_shift(op: Ops, src: Sources, arg: Any) -> DType:
    if not all(dtypes.is_int(s.dtype) for s in src):
        raise DTypeError(f"{op.name}: shift operands must be int, got {[s.dtype for s in src]}")
    return src[0].dtype


def _dtype_of_where(op: Ops, src: Sources, arg: Any) -> DType:
    if src[0].dtype != dtypes.bool:
        raise DTypeError(f"WHERE: the condition must be bool, got {src[0].dtype}")
    return src[1].dtype if src[1].dtype is src[2].dtype else least_upper_dtype(src[1].dtype, src[2].dtype)


def _common_dtype(op: Ops, src: Sources, arg: Any) -> DType:
    first = src[0].dtype
    return first if all(s.dtype is first for s in src) else least_upper_dtype(*(s.dtype for s in src))


def _first_dtype(op: Ops, src: Sources, arg: Any) -> DType:
    return src[0].dtype


_DTYPES: Final = {
    **dict.fromkeys(_VOID_OPS, dtypes.void),
    **dict.fromkeys(GroupOp.Comparison, dtypes.bool),
    **dict.fromkeys((Ops.RANGE, Ops.SPECIAL), dtypes.weakint),
    Ops.BINARY: dtypes.uint8,
    Ops.GETADDR: dtypes.uint64,
}
_DTYPE_FROM_ARG: Final[dict[Ops, DTypeRule]] = {
    Ops.CAST: _dtype_of_target,
    Ops.BITCAST: _dtype_of_target,
    Ops.CONST: lambda op, src, arg: dtypes.from_py(arg),
    Ops.BUFFER: _dtype_of_storage,
    Ops.PARAM: _dtype_of_storage,
    Ops.GETTUPLE: _dtype_of_result,
}
_DTYPE_FROM_SOURCES: Final[dict[Ops, DTypeRule]] = {
    **dict.fromkeys((*GroupOp.ALU, Ops.STACK), _common_dtype),
    **dict.fromkeys((Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL),
                    lambda op, src, arg: least_upper_float(src[0].dtype)),
    **dict.fromkeys((Ops.SHL, Ops.SHR), _dtype_of_shift),
    Ops.WHERE: _dtype_of_where,
}  # fmt: skip


def dtype_from_uop(op: Ops, src: Sources, arg: Any) -> DType:
    """Derive a node's dtype: CAST takes its arg, comparisons are bool, most take their sources' common dtype."""
    fixed = _DTYPES.get(op)
    if fixed is not None:
        return fixed
    from_arg = _DTYPE_FROM_ARG.get(op)
    if from_arg is not None:
        return from_arg(op, src, arg)
    return _DTYPE_FROM_SOURCES.get(op, _first_dtype)(op, src, arg) if src else dtypes.void


def _body(call: UOp) -> UOp:
    """Return the TUPLE of results of a FUNCTION, or the TUPLE itself."""
    return call.src[0] if call.op is Ops.FUNCTION else call


# ---- shape -----------------------------------------------------------------------------------------------------------


def broadcast_shape(*shapes: Shape) -> Shape:
    """Return numpy's right-aligned common shape.

    Raises:
        ShapeError: Two sizes differ and neither is 1.
    """
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    ndim = max(len(s) for s in shapes)
    out: list[Any] = []
    for axis in range(ndim):
        size: Any = 1
        for s in shapes:
            i = axis - (ndim - len(s))
            if i < 0 or (type(s[i]) is int and s[i] == 1):
                continue
            if type(size) is int and size == 1:
                size = s[i]
            elif size is not s[i] and not _is_same_size(size, s[i]):
                raise _no_broadcast(shapes, size, s[i])
        out.append(size)
    return tuple(out)


def _is_same_size(a: Any, b: Any) -> bool:
    if type(a) is int and type(b) is int:
        return a == b
    from tinygrad.mixin.hooks import same_size

    return same_size(a, b)  # a*b is b*a, but another node


def broadcast_axes(src_shape: Shape, out_shape: Shape) -> tuple[int, ...]:
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


def _no_broadcast(shapes: tuple[Shape, ...], size: Any, other: Any) -> ShapeError:
    from tinygrad.uop.sint import bind_mismatch

    mismatch = bind_mismatch(*shapes)
    text = f"cannot broadcast shapes {' and '.join(map(shown, shapes))}: sizes {shown(size)} and {shown(other)} differ"
    return ShapeError(text) if mismatch is None else BindError(f"{mismatch}; {text}")


def _movement_shape(u: UOp) -> Shape:
    src_shape, marg = u.src[0].shape, u.marg
    match u.op:
        case Ops.RESHAPE | Ops.EXPAND:
            return marg
        case Ops.PERMUTE:
            return tuple(src_shape[i] for i in marg)
        case Ops.PAD:
            return tuple(sint_simplify(s + b + e) for s, (b, e) in zip(src_shape, marg, strict=True))
        case Ops.SHRINK:
            return tuple(sint_simplify(e if isinstance(b, int) and b == 0 else e - b) for b, e in marg)
        case _:
            return src_shape


def _bitcast_shape(u: UOp) -> Shape:
    shape = u.src[0].shape
    before, after = u.src[0].dtype.itemsize, u.dtype.itemsize
    if before == after:
        return shape
    if not shape or not _divides(shape[-1] * before, after):
        raise DTypeError(
            f"bitcast: {u.src[0].dtype} with shape {shown(shape)} cannot become {u.dtype}: the last dimension's "
            f"{before} byte elements do not divide into {after} byte ones"
        )
    return (*shape[:-1], sint_simplify(shape[-1] * before // after))


def _divides(nbytes: Any, itemsize: int) -> bool:
    rest = sint_simplify(nbytes % itemsize)
    return isinstance(rest, int) and rest == 0


def _alu_shape(u: UOp) -> Shape:
    first = u.src[0].shape
    for s in u.src[1:]:
        if s.shape != first:
            return broadcast_shape(*(s.shape for s in u.src))
    return first


def _storage_shape(u: UOp) -> Shape:
    record: ParamArg = u.arg
    return record.shape


def _reduce_shape(u: UOp) -> Shape:
    if len(u.src) > 1 or not isinstance(u.arg[1], tuple):
        return ()  # over the ranges of a kernel
    axes = set(u.arg[1])
    return tuple(1 if i in axes else s for i, s in enumerate(u.src[0].shape))


def _index_shape(u: UOp) -> Shape:
    if u.src[0].op not in (Ops.PARAM, Ops.BUFFER, Ops.AFTER, Ops.CALL):
        return ()  # one lane of a vector
    return broadcast_shape(*(s.shape for s in u.src[1:]))


def _unshard_shape(u: UOp) -> Shape:
    count = len(u.src[0]._device or ())
    return tuple(s * count if i == u.arg else s for i, s in enumerate(u.src[0].shape))


def _scalar_shape(u: UOp) -> Shape:
    return ()


def _no_shape(u: UOp) -> None:
    return None


def _first_shape(u: UOp) -> Shape | None:
    return u.src[0]._shape if u.src else None


_SHAPES: Final[dict[Ops, Callable[[UOp], Shape | None]]] = {
    **dict.fromkeys(_SHAPELESS_OPS, _no_shape),
    **dict.fromkeys(GroupOp.ALU, _alu_shape),
    **dict.fromkeys(GroupOp.Movement, _movement_shape),
    **dict.fromkeys((Ops.CONST, Ops.RANGE, Ops.GETADDR), _scalar_shape),
    **dict.fromkeys((Ops.BUFFER, Ops.PARAM), _storage_shape),
    **dict.fromkeys((Ops.CUSTOM, Ops.CUSTOMI), lambda u: u.src[0]._shape if u.src else ()),
    Ops.SPECIAL: lambda u: (u.src[0].ssimplify(),) if u.arg == "iota" else (),
    Ops.REDUCE: _reduce_shape,
    Ops.BITCAST: _bitcast_shape,
    Ops.STACK: lambda u: (len(u.src), *u.src[0].shape) if u.arg is None else (len(u.arg),),
    Ops.INDEX: _index_shape,
    Ops.LOAD: lambda u: u.src[0].shape if u.arg is None else (u.arg,),
    Ops.GETTUPLE: lambda u: _body(u.src[0]).src[u.arg].shape,
    **dict.fromkeys((Ops.MSELECT, Ops.ALLREDUCE), lambda u: u.src[0].shard_shape),
    Ops.UNSHARD: _unshard_shape,
    Ops.NOOP: lambda u: None if u.dtype is dtypes.void else _first_shape(u),
}


def shape_from_uop(u: UOp) -> Shape | None:
    """Derive a node's shape from its sources' shapes; None for nodes without a value."""
    return _SHAPES.get(u.op, _first_shape)(u)


# ---- device ----------------------------------------------------------------------------------------------------------


def _copy_target(u: UOp) -> str | tuple[str, ...]:
    target: str | tuple[str, ...] = u.arg.devices if isinstance(u.arg, Placement) else u.arg
    return target


def _stacked_devices(u: UOp) -> tuple[str, ...]:
    return tuple(str(s._device) for s in u.src)


_PLACED: Final[dict[Ops, Callable[[Any], str | tuple[str, ...]]]] = {
    Ops.COPY: _copy_target,
    Ops.MSELECT: lambda u: u.src[0]._device[u.arg],
    Ops.MSTACK: _stacked_devices,
    Ops.ALLREDUCE: lambda u: u.arg[1],
}


def device_from_uop(u: UOp) -> str | tuple[str, ...] | None:
    """Derive where a node's value lives: its storage's device, else that of the first source that has one."""
    if u.op is Ops.BUFFER or u.op is Ops.PARAM:
        record: ParamArg = u.arg
        return record.device
    placed = _PLACED.get(u.op)
    if placed is not None:
        return placed(u)
    if u.op is Ops.GETTUPLE:
        found = _body(u.src[0]).src[u.arg].device
        return found if found is not None else next((s.device for s in u.src[0].src[1:] if s.device is not None), None)
    for s in u.src:
        device = s._device
        if device is not None:
            return device
    return None
