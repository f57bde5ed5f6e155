"""dtype, shape and device of a node, each a function of its op, arg and sources.

In:   a node whose sources already have the property (callers walk the graph; nothing here recurses).
Out:  the property. Raises ShapeError, DTypeError where a node makes no sense, at the moment it is built or asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes, least_upper_dtype, least_upper_float
from tinygrad.errors import BindError, DTypeError, ShapeError, shown
from tinygrad.uop import GroupOp, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

VOID_OPS = frozenset({
    Ops.STORE, Ops.LINEAR, Ops.SINK, Ops.PROGRAM, Ops.SOURCE, Ops.END, Ops.BARRIER, Ops.GROUP, Ops.IF, Ops.ENDIF,
    Ops.TUPLE, Ops.FUNCTION, Ops.CALL, Ops.CUSTOM_FUNCTION, Ops.NOOP,
})  # fmt: skip
FLOAT_OPS = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL})
SHAPELESS_OPS = frozenset({
    Ops.LINEAR, Ops.SINK, Ops.PROGRAM, Ops.SOURCE, Ops.BARRIER, Ops.GROUP, Ops.IF, Ops.ENDIF, Ops.TUPLE, Ops.FUNCTION,
    Ops.CALL, Ops.CUSTOM_FUNCTION, Ops.NOOP, Ops.BINARY, Ops.INS,
})  # fmt: skip


def dtype_from_uop(op: Ops, src: tuple[UOp, ...], arg: Any) -> DType:
    """Derive a node's dtype (api: CAST takes its arg, comparisons are bool, most take their sources' common dtype)."""
    if op in VOID_OPS:
        return dtypes.void
    if op in GroupOp.Comparison:
        return dtypes.bool
    if op is Ops.CAST or op is Ops.BITCAST:
        if not isinstance(arg, DType):
            raise AssertionError(f"{op.name} needs a DType as its arg, got {arg!r}")
        return arg
    if op is Ops.CONST:
        return dtypes.from_py(arg)
    if op is Ops.BUFFER or op is Ops.PARAM:
        if not hasattr(arg, "dtype"):
            raise AssertionError(f"{op.name} needs a ParamArg, got {arg!r}")
        return arg.dtype
    if op is Ops.BINARY:
        return dtypes.uint8
    if op is Ops.GETADDR:
        return dtypes.uint64
    if op is Ops.GETTUPLE:
        body = src[0].src[0] if src[0].op is Ops.FUNCTION else src[0]
        return body.src[arg].dtype
    if op is Ops.RANGE or op is Ops.SPECIAL:
        return dtypes.weakint
    if not src:
        return dtypes.void
    if op is Ops.SHL or op is Ops.SHR:
        if not all(dtypes.is_int(s.dtype) for s in src):
            raise DTypeError(f"{op.name}: shift operands must be int, got {[s.dtype for s in src]}")
        return src[0].dtype
    if op in FLOAT_OPS:
        return least_upper_float(src[0].dtype)
    if op is Ops.WHERE:
        if src[0].dtype != dtypes.bool:
            raise DTypeError(f"WHERE: the condition must be bool, got {src[0].dtype}")
        return src[1].dtype if src[1].dtype is src[2].dtype else least_upper_dtype(src[1].dtype, src[2].dtype)
    if op in GroupOp.ALU or op is Ops.STACK:
        first = src[0].dtype
        return first if all(s.dtype is first for s in src) else least_upper_dtype(*(s.dtype for s in src))
    return src[0].dtype


def broadcast_shape(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return numpy's right-aligned common shape.

    Raises:
        ShapeError: Two sizes differ and neither is 1.
    """
    first = shapes[0]
    if all(s == first for s in shapes[1:]):
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
            elif size is not s[i] and not (type(size) is int and type(s[i]) is int and size == s[i]):
                raise _no_broadcast(shapes, size, s[i])
        out.append(size)
    return tuple(out)


def _no_broadcast(shapes: tuple[tuple[Any, ...], ...], size: Any, other: Any) -> ShapeError:
    from tinygrad.uop.sint import bind_mismatch

    mismatch = bind_mismatch(*shapes)
    text = f"cannot broadcast shapes {' and '.join(map(shown, shapes))}: sizes {shown(size)} and {shown(other)} differ"
    return ShapeError(text) if mismatch is None else BindError(f"{mismatch}; {text}")


def _movement_shape(u: UOp) -> tuple[Any, ...]:
    from tinygrad.uop.sint import sint_simplify

    src_shape, marg = u.src[0].shape, u.marg
    match u.op:
        case Ops.RESHAPE | Ops.EXPAND:
            return marg
        case Ops.PERMUTE:
            return tuple(src_shape[i] for i in marg)
        case Ops.PAD:
            return tuple(sint_simplify(s + b + e) for s, (b, e) in zip(src_shape, marg, strict=True))
        case Ops.SHRINK:
            return tuple(sint_simplify(e - b) for b, e in marg)
        case _:
            return src_shape


def shape_from_uop(u: UOp) -> tuple[Any, ...] | None:
    """Derive a node's shape from its sources' shapes; None for nodes without a value."""
    op, src = u.op, u.src
    if op in GroupOp.ALU:
        if len(src) == 1:
            return src[0].shape
        return broadcast_shape(*(s.shape for s in src))
    if op in GroupOp.Movement:
        return _movement_shape(u)
    if op in SHAPELESS_OPS:
        return None
    match op:
        case Ops.SPECIAL:
            return (src[0].ssimplify(),) if u.arg == "iota" else ()
        case Ops.CONST | Ops.RANGE:
            return ()
        case Ops.BUFFER | Ops.PARAM:
            return u.arg.shape
        case Ops.REDUCE:
            if len(src) > 1 or not isinstance(u.arg[1], tuple):
                return ()
            axes = set(u.arg[1])
            return tuple(1 if i in axes else s for i, s in enumerate(src[0].shape))
        case Ops.BITCAST:
            return _bitcast_shape(u)
        case Ops.STACK:
            return (len(src), *src[0].shape)
        case Ops.INDEX:
            if src[0].op not in (Ops.PARAM, Ops.BUFFER, Ops.AFTER, Ops.CALL):
                return ()  # one lane of a vector
            return broadcast_shape(*(s.shape for s in src[1:]))
        case Ops.LOAD:
            return src[0].shape if u.arg is None else (u.arg,)
        case Ops.GETTUPLE:
            body = src[0].src[0] if src[0].op is Ops.FUNCTION else src[0]
            return body.src[u.arg].shape
        case Ops.GETADDR | Ops.CUSTOM | Ops.CUSTOMI:
            return src[0]._shape if src and op is not Ops.GETADDR else ()
        case _:
            return src[0]._shape if src else None


def _bitcast_shape(u: UOp) -> tuple[Any, ...]:
    from tinygrad.uop.sint import sint_simplify

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
    from tinygrad.uop.sint import sint_simplify

    rest = sint_simplify(nbytes % itemsize)
    return isinstance(rest, int) and rest == 0


def device_from_uop(u: UOp) -> str | tuple[str, ...] | None:
    """Derive where a node's value lives: its storage's device, else that of the first source that has one."""
    if u.op is Ops.BUFFER or u.op is Ops.PARAM:
        return u.arg.device
    if u.op is Ops.COPY:
        return u.arg
    if u.op is Ops.GETTUPLE:
        body = u.src[0].src[0] if u.src[0].op is Ops.FUNCTION else u.src[0]
        found = body.src[u.arg].device
        return found if found is not None else next((s.device for s in u.src[0].src[1:] if s.device is not None), None)
    return next((s._device for s in u.src if s._device is not None), None)
