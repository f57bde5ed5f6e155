"""Whether one node is legal at a border between stages: a predicate for each kind of node.

In:   a node; for linear programs also the shapes of all values before it.
Out:  True or False, or None where another predicate decides. Errors of a check show the first line of the docstring.
Why:  the tables of ``uop/spec.py`` say which predicate belongs to which operation at which border.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from tinygrad.dtype import AddrSpace, ConstFloat, DType, Invalid, dtypes
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.affine import interval, linear
from tinygrad.uop.records import ParamArg

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_FLOAT_OPS = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.FDIV})
_INT_OPS = frozenset({Ops.CDIV, Ops.SHL, Ops.SHR})
_BIT_OPS = frozenset({Ops.AND, Ops.OR, Ops.XOR})
_MOST_LANES = 256  # a tile of 16 x 16; plain vectors have up to 64
Shapes: TypeAlias = "dict[UOp, tuple[Any, ...]]"


# ---- values ----------------------------------------------------------------------------------------------------------


def legal_const(u: UOp) -> bool:
    """A constant's argument is a Python value of its dtype."""
    if u.src or u.dtype is dtypes.void:
        return False
    if u.arg is Invalid:
        return True
    match u.dtype.kind:
        case "bool":
            return type(u.arg) is bool
        case "float":
            return isinstance(u.arg, ConstFloat)
    return type(u.arg) is int and bool(u.dtype.min <= u.arg <= u.dtype.max)


def legal_alu(u: UOp) -> bool:
    """Operands have one dtype, which the operation takes; comparisons give bool, the others that dtype."""
    found = [s.dtype for s in u.src]
    if u.op is Ops.WHERE:
        return len(found) == 3 and found[0] is dtypes.bool and found[1] is found[2] is u.dtype
    if dtypes.void in found or len(found) != (1 if u.op in GroupOp.Unary else 3 if u.op is Ops.MULACC else 2):
        return False
    if u.op in (Ops.SHL, Ops.SHR):
        return u.dtype is found[0] and all(dtypes.is_int(d) for d in found)
    if any(d is not found[0] for d in found):
        return False
    if u.op in GroupOp.Comparison:
        return u.dtype is dtypes.bool
    if u.op in _FLOAT_OPS and not dtypes.is_float(u.dtype):
        return False
    if u.op in _INT_OPS and not dtypes.is_int(u.dtype):
        return False
    if u.op in _BIT_OPS and dtypes.is_float(u.dtype):
        return False
    if u.op is Ops.THREEFRY and u.dtype is not dtypes.uint64:
        return False
    return u.dtype is found[0]


def legal_cast(u: UOp) -> bool:
    """A conversion has the target dtype as dtype and argument."""
    return len(u.src) == 1 and isinstance(u.arg, DType) and u.arg is u.dtype and u.src[0].dtype is not dtypes.void


def legal_bitcast(u: UOp) -> bool:
    """A reinterpretation is between dtypes that have bits."""
    return legal_cast(u) and u.dtype not in dtypes.weaks and u.src[0].dtype not in dtypes.weaks


def legal_variable(u: UOp) -> bool:
    """A Variable is a named integer with bounds."""
    return not u.src and u.arg.name is not None and dtypes.is_int(u.dtype) and u.arg.shape == ()


def is_storage(u: UOp) -> bool:
    """Return whether a node stands for memory, perhaps after other work; a Variable does not."""
    while u.op is Ops.AFTER:
        u = u.src[0]
    return u.op in GroupOp.Defines and u.arg.addrspace is not AddrSpace.ALU


# ---- tensor graph ----------------------------------------------------------------------------------------------------


def legal_storage(u: UOp) -> bool:
    """Storage describes itself in a ParamArg of its dtype and, in the tensor graph, is not weak."""
    arg = u.arg
    return (
        not u.src and isinstance(arg, ParamArg) and arg.dtype is u.dtype and u.dtype not in (*dtypes.weaks, dtypes.void)
    )


def legal_tensor_buffer(u: UOp) -> bool:
    """A BUFFER of the tensor graph lives on a device and is one-dimensional; split over devices it has any shape."""
    return legal_storage(u) and (len(u.arg.shape) == 1 or u.arg.axis is not None)


def legal_movement(u: UOp) -> bool:
    """A movement node keeps the dtype, and its argument fits its source's shape."""
    x, holes = u.src[0], sum(_holes(a) for a in u.arg) if isinstance(u.arg, tuple) else -1
    if u.dtype is not x.dtype or x._shape is None or holes != len(u.src) - 1:
        return False
    arg, shape = u.marg, x.shape
    match u.op:
        case Ops.PERMUTE:
            return sorted(arg) == list(range(len(shape)))
        case Ops.FLIP:
            return len(arg) == len(shape) and all(type(a) is bool for a in arg)
        case Ops.PAD | Ops.SHRINK:
            return len(arg) == len(shape) and all(len(pair) == 2 for pair in arg)
        case Ops.EXPAND:
            kept = arg[len(arg) - len(shape) :]
            return len(arg) >= len(shape) and all(_fits(s, t) for s, t in zip(shape, kept, strict=True))
    sizes, old = _product(arg), _product(shape)
    return sizes is None or old is None or sizes == old


def _holes(a: Any) -> int:
    return sum(_holes(x) for x in a) if isinstance(a, tuple) else int(a is None)


def _fits(size: Any, target: Any) -> bool:
    return not (isinstance(size, int) and isinstance(target, int)) or size in (1, target)


def _product(sizes: Iterable[Any]) -> int | None:
    total = 1
    for s in sizes:
        if not isinstance(s, int):
            return None
        total *= s
    return total


def legal_tensor_reduce(u: UOp) -> bool:
    """A REDUCE of the tensor graph names its operation and the axes, which it keeps with size 1."""
    op, axes = u.arg
    return (
        len(u.src) == 1
        and u.dtype is u.src[0].dtype
        and op in GroupOp.Reduce
        and all(0 <= a < u.src[0].ndim for a in axes)
    )


def legal_tensor_store(u: UOp) -> bool:
    """A STORE writes a value of the target's dtype and shape into a view of storage."""
    target, value = u.src[:2]
    return u.dtype is dtypes.void and target.dtype is value.dtype and target._shape == value._shape


def legal_tensor_index(u: UOp) -> bool:
    """An INDEX of the tensor graph addresses elements of flat storage by a tensor of integers, with a bool gate."""
    base, idx, *gate = u.src
    return (
        u.dtype is base.dtype
        and base.ndim == 1
        and dtypes.is_int(idx.dtype)
        and [g.dtype for g in gate]
        in (
            [],
            [dtypes.bool],
        )
    )


def same_dtype(u: UOp) -> bool:
    """The node passes its first source on."""
    return bool(u.src) and u.dtype is u.src[0].dtype


# ---- kernels ---------------------------------------------------------------------------------------------------------


def legal_range(u: UOp) -> bool:
    """A loop counts from 0 to its integer end and says how it is run."""
    return (
        len(u.src) >= 1
        and u.dtype is u.src[0].dtype
        and dtypes.is_int(u.dtype)
        and isinstance(u.arg, tuple)
        and isinstance(u.arg[-1], AxisType)
    )


def legal_kernel_buffer(u: UOp) -> bool:
    """Storage of a kernel is flat; registers may be scalars."""
    return legal_storage(u) and len(u.arg.shape) <= 1


def legal_kernel_index(u: UOp) -> bool:
    """An access has an integer index and a bool gate, and does not leave its storage."""
    base, idx = u.src[0], u.src[1]
    if base.op is Ops.STACK or (len(base._shape or ()) == 1 and not is_storage(base)):
        return len(u.src) == 2 and dtypes.is_int(idx.dtype)
    if not is_storage(base) or u.dtype is not base.dtype or not dtypes.is_int(idx.dtype) or len(u.src) > 3:
        return False
    if len(u.src) == 3:
        return u.src[2].dtype is dtypes.bool
    return not _surely_outside(base, idx)


def _surely_outside(base: UOp, idx: UOp) -> bool:
    """Whether an ungated index leaves the storage: decided for sums of loop variables, whose bounds are met."""
    while base.op is Ops.AFTER:
        base = base.src[0]
    size = base.arg.shape[0] if base.arg.shape else 1
    if not isinstance(size, int) or idx.dtype is not dtypes.weakint:
        return False
    terms, constant = linear(idx)
    if any(t.op is not Ops.RANGE or t.src[0].op is not Ops.CONST or t.src[0].arg < 1 for t in terms):
        return False
    low, high = interval(terms, constant)
    return low < 0 or high >= size


def legal_kernel_reduce(u: UOp) -> bool:
    """A REDUCE of a kernel combines a value over loops."""
    op, axes = u.arg
    return (
        u.dtype is u.src[0].dtype and op in GroupOp.Reduce and axes == () and all(r.op is Ops.RANGE for r in u.src[1:])
    )


def legal_kernel_store(u: UOp) -> bool:
    """A STORE writes a value of the storage's dtype to an element or register."""
    target, value = u.src[:2]
    fits = u.dtype is dtypes.void and target.dtype is value.dtype and (target.op is Ops.INDEX or is_storage(target))
    return fits and (len(u.src) == 2 or (len(u.src) == 3 and u.src[2].dtype is dtypes.bool))


def legal_end(u: UOp) -> bool:
    """An END closes loops."""
    return u.dtype is dtypes.void and len(u.src) > 1 and all(r.op is Ops.RANGE for r in u.src[1:])


# ---- linear programs -------------------------------------------------------------------------------------------------


def program_shape(u: UOp, shapes: Shapes) -> tuple[Any, ...]:
    """Return the shape of a value of a program from those of its sources.

    A node's own ``shape`` follows the rules of the tensor graph, where REDUCE keeps the axis; here it gives a scalar.
    """
    match u.op:
        case Ops.PARAM | Ops.BUFFER:
            return tuple(u.arg.shape)
        case Ops.STACK:
            return (len(u.src if u.arg is None else u.arg),)
        case Ops.LOAD if u.arg is not None:
            return (u.arg,)
        case Ops.INDEX:
            return shapes.get(u.src[1], ()) if is_storage(u.src[0]) else ()
        case Ops.REDUCE | Ops.CONST | Ops.RANGE | Ops.SPECIAL | Ops.GETADDR:
            return ()
        case Ops.BITCAST if u.src[0].dtype.itemsize != u.dtype.itemsize:
            return tuple(n * u.src[0].dtype.itemsize // u.dtype.itemsize for n in shapes.get(u.src[0], ()))
        case Ops.WMMA | Ops.CUSTOM | Ops.CUSTOMI | Ops.INS | Ops.CALL | Ops.SHRINK:
            return u._shape or ()
    return shapes.get(u.src[0], ()) if u.src else ()


def _is_vector(shape: tuple[Any, ...]) -> bool:
    return (
        len(shape) == 1
        and isinstance(shape[0], int)
        and 2 <= shape[0] <= _MOST_LANES
        and shape[0] & (shape[0] - 1) == 0
    )


def concrete(ctx: Shapes, u: UOp) -> bool | None:
    """Values of a program have a dtype with a width, and are scalars or vectors of 2, 4, 8 ... 256 lanes."""
    # False decides, None leaves it to the rules below
    if u.dtype in dtypes.weaks:
        return False
    if u.dtype is dtypes.void or u.op in GroupOp.Defines or ctx[u] == ():
        return None
    return None if _is_vector(ctx[u]) else False


def program_alu(ctx: Shapes, u: UOp) -> bool:
    """Operands of a program have one shape: nothing is repeated implicitly."""
    return legal_alu(u) and len({ctx[s] for s in u.src}) == 1


def program_index(ctx: Shapes, u: UOp) -> bool:
    """An INDEX is the address of elements, or a lane of a vector."""
    base, idx = u.src[0], u.src[1]
    if len(u.src) != 2 or not dtypes.is_int(idx.dtype) or u.dtype is not base.dtype:
        return False
    return is_storage(base) or (_is_vector(ctx[base]) and idx.op is Ops.CONST and 0 <= idx.arg < ctx[base][0])


def program_load(ctx: Shapes, u: UOp) -> bool:
    """A LOAD reads an element, consecutive elements, chosen elements, or a register; with an alternative and a gate."""
    source = u.src[0]
    if source.dtype is not u.dtype or (source.op is not Ops.INDEX and not is_storage(source)):
        return False
    if u.arg is not None and (source.op is not Ops.INDEX or ctx[source] != ()):
        return False
    if len(u.src) == 1:
        return True
    if len(u.src) != 3 or u.src[2].dtype is not dtypes.bool:
        return False
    return u.src[1].dtype is u.dtype and ctx[u.src[1]] == ctx[u] and ctx[u.src[2]] in ((), ctx[u])


def program_store(ctx: Shapes, u: UOp) -> bool:
    """A STORE writes an element, consecutive elements, chosen elements, or a register; with a gate."""
    target, value = u.src[:2]
    if not legal_kernel_store(u):
        return False
    return ctx[target] in ((), ctx[value]) if target.op is Ops.INDEX else ctx[target] == ctx[value]


def program_reduce(ctx: Shapes, u: UOp) -> bool:
    """A REDUCE combines the lanes of a vector."""
    return len(u.src) == 1 and u.dtype is u.src[0].dtype and u.arg[0] in GroupOp.Reduce and _is_vector(ctx[u.src[0]])


def program_stack(ctx: Shapes, u: UOp) -> bool:
    """A STACK joins scalars to a vector; with numbers, those lanes of vectors, counted through all of them."""
    if u.arg is not None:
        shapes = {ctx[s] for s in u.src}
        total = sum(ctx[s][0] for s in u.src) if all(ctx[s] for s in u.src) else 0
        return len(shapes) == 1 and all(0 <= i < total for i in u.arg) and all(s.dtype is u.dtype for s in u.src)
    return len(u.src) > 1 and all(ctx[s] == () and s.dtype is u.dtype for s in u.src)
