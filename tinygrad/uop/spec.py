"""What is legal at each border between stages.

In:   a graph, or a linear program (a list in execution order).
Out:  nothing, or a RuntimeError that names the border, the node and its sources.
Why:  a stage that emits something illegal fails here, with the node in hand, not three stages later.

A spec is a table of rules that return True or False, most of them from ``uop/legal.py``. The first rule that fits a
node decides; a node that none fits is illegal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.dtype import AddrSpace, Invalid, dtypes
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.legal import (
    Shapes,
    concrete,
    legal_alu,
    legal_bitcast,
    legal_cast,
    legal_const,
    legal_end,
    legal_kernel_buffer,
    legal_kernel_index,
    legal_kernel_reduce,
    legal_kernel_store,
    legal_movement,
    legal_range,
    legal_storage,
    legal_tensor_buffer,
    legal_tensor_index,
    legal_tensor_reduce,
    legal_tensor_store,
    legal_variable,
    program_alu,
    program_index,
    program_load,
    program_reduce,
    program_shape,
    program_stack,
    program_store,
    same_dtype,
)
from tinygrad.uop.matcher import PatternMatcher
from tinygrad.uop.records import CallInfo, KernelInfo, ParamArg, ProgramInfo
from tinygrad.uop.upat import UPat

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

__all__ = [
    "eval_pyrender", "spec_full", "spec_kernel", "spec_optimized", "spec_program", "spec_shared", "spec_tensor",
    "type_verify",
]  # fmt: skip


# ---- values ----------------------------------------------------------------------------------------------------------


spec_shared = PatternMatcher([
    (UPat(Ops.CONST, name="u"), legal_const),
    (UPat(GroupOp.ALU, name="u"), legal_alu),
    (UPat(Ops.CAST, name="u"), legal_cast),
    (UPat(Ops.BITCAST, name="u"), legal_bitcast),
    # Variables, and Variables with a value
    (UPat(Ops.PARAM, name="u"), lambda u: legal_variable(u) if u.arg.addrspace is AddrSpace.ALU else None),
    (
        UPat(Ops.AFTER, src=(UPat(Ops.PARAM, name="v"),), allow_any_len=True, name="u"),
        lambda u, v: True if v.is_variable else None,
    ),
    (UPat(Ops.STORE, src=(UPat(Ops.PARAM, name="v"), UPat(Ops.CONST))), lambda v: True if v.is_variable else None),
    (UPat((Ops.NOOP, Ops.CUSTOM, Ops.CUSTOMI)), lambda: True),
])


# ---- tensor graph ----------------------------------------------------------------------------------------------------


spec_tensor = spec_shared + PatternMatcher([
    (UPat(Ops.BUFFER, name="u"), legal_tensor_buffer),
    (UPat(Ops.PARAM, name="u"), legal_storage),
    (UPat(GroupOp.Movement, name="u"), legal_movement),
    (UPat(Ops.REDUCE, name="u"), legal_tensor_reduce),
    (
        UPat(
            (Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.AFTER, Ops.MSELECT, Ops.UNSHARD, Ops.ALLREDUCE),
            name="u",
        ),
        same_dtype,
    ),
    (UPat(Ops.NOOP, name="u"), same_dtype),
    (UPat(Ops.COPY, name="u"), lambda u: same_dtype(u) and u.dtype not in dtypes.weaks and u.arg is not None),
    (UPat(Ops.STORE, name="u"), legal_tensor_store),
    (UPat(Ops.INDEX, src=(UPat(), UPat()), allow_any_len=True, name="u"), legal_tensor_index),
    (UPat((Ops.SPECIAL, Ops.RANGE), dtypes.weakint), lambda: True),
    (
        UPat(Ops.FUNCTION, dtypes.void, src=(UPat(Ops.TUPLE),), allow_any_len=True, name="u"),
        lambda u: isinstance(u.arg, CallInfo),
    ),
    (UPat(Ops.CALL, dtypes.void, name="u"), lambda u: isinstance(u.arg, CallInfo) and bool(u.src)),
    (UPat((Ops.TUPLE, Ops.GROUP, Ops.SINK, Ops.LINEAR, Ops.CUSTOM_FUNCTION), dtypes.void), lambda: True),
    (UPat(Ops.GETTUPLE, src=(UPat((Ops.FUNCTION, Ops.TUPLE)),), name="u"), lambda u: isinstance(u.arg, int)),
    (UPat((Ops.STACK, Ops.MSTACK, Ops.GETADDR, Ops.BINARY)), lambda: True),
])


# ---- kernels ---------------------------------------------------------------------------------------------------------


spec_kernel = spec_shared + PatternMatcher([
    (UPat((Ops.PARAM, Ops.BUFFER), name="u"), legal_kernel_buffer),
    (UPat(Ops.RANGE, name="u"), legal_range),
    (UPat(Ops.SPECIAL, name="u"), lambda u: isinstance(u.arg, str) and len(u.src) == 1),
    (UPat(Ops.INDEX, src=(UPat(), UPat()), allow_any_len=True, name="u"), legal_kernel_index),
    (UPat(Ops.LOAD, name="u"), lambda u: bool(u.src) and u.dtype is u.src[0].dtype),
    (UPat(Ops.REDUCE, name="u"), legal_kernel_reduce),
    (UPat(Ops.STORE, name="u"), legal_kernel_store),
    (UPat(Ops.END, name="u"), legal_end),
    (UPat(Ops.AFTER, name="u"), same_dtype),
    (UPat((Ops.GROUP, Ops.BARRIER), dtypes.void), lambda: True),
    (UPat(Ops.SINK, dtypes.void, name="u"), lambda u: isinstance(u.arg, KernelInfo)),
])

# After the schedule language: operands may be staged, and tensor-core instructions may stand for products.
spec_optimized = spec_kernel + PatternMatcher([
    (UPat((Ops.STAGE, Ops.WMMA, Ops.STACK, Ops.CONTIGUOUS), name="u"), lambda u: bool(u.src)),
])


# ---- linear programs -------------------------------------------------------------------------------------------------


spec_program = (
    PatternMatcher([
        (UPat(GroupOp.All - {Ops.SINK, Ops.STORE, Ops.END, Ops.REDUCE}, name="u"), concrete),
        (UPat(GroupOp.ALU, name="u"), program_alu),
        (UPat(Ops.INDEX, src=(UPat(), UPat()), allow_any_len=True, name="u"), program_index),
        (UPat(Ops.LOAD, name="u"), program_load),
        (UPat(Ops.STORE, name="u"), program_store),
        (UPat(Ops.STACK, name="u"), program_stack),
        (UPat(Ops.REDUCE, name="u"), program_reduce),
        (
            UPat(Ops.BUFFER, name="u"),
            lambda u: legal_kernel_buffer(u) and u.arg.addrspace in (AddrSpace.LOCAL, AddrSpace.REG),
        ),
        (
            UPat(Ops.PARAM, name="u"),
            lambda u: legal_variable(u) if u.arg.addrspace is AddrSpace.ALU else legal_kernel_buffer(u),
        ),
        (UPat(Ops.RANGE, name="u"), legal_range),
        (UPat(Ops.END, name="u"), legal_end),
        (UPat(Ops.SPECIAL, dtypes.ints, name="u"), lambda u: isinstance(u.arg, str)),
        (UPat(Ops.IF, src=(UPat(dtype=dtypes.bool),), allow_any_len=True), lambda: True),
        (UPat(Ops.ENDIF, src=(UPat(Ops.IF),)), lambda: True),
        (UPat((Ops.WMMA, Ops.INS, Ops.CALL, Ops.SHRINK, Ops.GETADDR)), lambda: True),
        (UPat((Ops.GROUP, Ops.BARRIER), dtypes.void), lambda: True),
        (UPat(Ops.AFTER, name="u"), same_dtype),
        (UPat(Ops.SINK, dtypes.void, name="u"), lambda u: u.arg is None or isinstance(u.arg, KernelInfo)),
    ])
    + spec_shared
)

# Everything that is legal anywhere, for graphs of which the stage is not known.
spec_full = PatternMatcher([
    (UPat(Ops.PROGRAM, name="u"), lambda u: isinstance(u.arg, ProgramInfo)),
    (UPat(Ops.SOURCE, name="u"), lambda u: isinstance(u.arg, str)),
    (UPat(Ops.BINARY, name="u"), lambda u: isinstance(u.arg, bytes)),
    (UPat((Ops.REDUCE, Ops.STORE, Ops.INDEX, Ops.SINK, Ops.LOAD, Ops.BUFFER, Ops.PARAM)), lambda: True),
    (UPat((Ops.LINEAR, Ops.IF, Ops.ENDIF)), lambda: True),
]) + spec_tensor + spec_optimized  # fmt: skip

_BORDERS = {
    id(spec_shared): "shared",
    id(spec_tensor): "tensor graph",
    id(spec_kernel): "kernel as scheduled",
    id(spec_optimized): "optimised kernel",
    id(spec_program): "linear program",
    id(spec_full): "any stage",
}


# ---- checking --------------------------------------------------------------------------------------------------------


def type_verify(graph_or_list: UOp | list[UOp], spec: PatternMatcher) -> None:
    """Check every node of a graph or linear program. Bodies of calls belong to another stage and are not entered.

    Raises:
        RuntimeError: "UOp verification failed": a node is illegal at this border, or a program uses a value too early.
    """
    in_order = isinstance(graph_or_list, list)
    nodes = graph_or_list if isinstance(graph_or_list, list) else list(graph_or_list.toposort(enter_calls=False))
    shapes: Shapes = {}
    for position, u in enumerate(nodes):
        if in_order and (early := [s for s in u.src if s not in shapes]):
            _fail(u, position, spec, f"{early[0].op.name} is used before it is computed")
        verdict: Any = None
        try:
            shapes[u] = program_shape(u, shapes) if in_order else ()
            verdict = spec.rewrite(u, shapes)
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            _fail(u, position, spec, f"the rules cannot read it: {type(error).__name__}: {error}")
        if verdict is not True:
            _fail(u, position, spec, _reason(u, spec, verdict, shapes))
    if in_order and (not nodes or nodes[-1].op is not Ops.SINK):
        raise RuntimeError(
            f"UOp verification failed ({_BORDERS.get(id(spec), 'custom spec')}): the last node must be SINK"
        )


def _reason(u: UOp, spec: PatternMatcher, verdict: Any, shapes: Shapes) -> str:
    if verdict is None:
        return f"{u.op.name} is not allowed here"
    for rule in spec.by_op.get(u.op, ()):
        if rule.function_for(u.op)(u, shapes) is not None:
            doc = (rule.function.__doc__ or "").split("\n")[0]
            return f"{doc or 'a rule rejects it'} ({rule.where})"
    return "a rule rejects it"


def _fail(u: UOp, position: int, spec: PatternMatcher, reason: str) -> None:
    def line(n: UOp) -> str:
        return f"{n.op.name:<10} {n.dtype.full_name:<9} shape={_shape_text(n)} arg={str(n.arg)[:100]}"

    border = _BORDERS.get(id(spec), "custom spec")
    lines = [f"UOp verification failed ({border}) at node {position}: {reason}", f"  node    {line(u)}"]
    lines += [f"  src[{i}]  {line(s)}" for i, s in enumerate(u.src[:8])]
    raise RuntimeError("\n".join(lines))


def _shape_text(n: UOp) -> str:
    try:
        return str(n._shape)
    except (RuntimeError, ValueError, IndexError):
        return "?"


def eval_pyrender(code: str) -> UOp:
    """Run what ``render.pyrender`` wrote and return the graph.

    The text is executed as Python: use it only on text that this package wrote.
    """
    from tinygrad.codegen import opt
    from tinygrad.uop.ops import UOp

    namespace: dict[str, Any] = {
        "UOp": UOp, "Ops": Ops, "dtypes": dtypes, "ParamArg": ParamArg, "KernelInfo": KernelInfo, "CallInfo": CallInfo,
        "ProgramInfo": ProgramInfo, "AddrSpace": AddrSpace, "AxisType": AxisType, "Invalid": Invalid, "float": float,
        "nan": float("nan"), "inf": float("inf"), "Opt": getattr(opt, "Opt", None),
        "OptOps": getattr(opt, "OptOps", None),
    }  # fmt: skip
    exec(code, namespace)
    root: UOp = namespace["ast"]
    return root
