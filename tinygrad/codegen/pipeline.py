"""The stages that a kernel goes through, from its graph to the source of a program.

In:   a kernel SINK (STOREs over RANGE, INDEX, REDUCE and elementwise nodes, KernelInfo) and a renderer.
Out:  ``PROGRAM(SINK, LINEAR, SOURCE; ProgramInfo)``.
Why:  the pipeline is this one list of stages; every stage runs through ``run_stage`` and can be watched and replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.codegen.estimate import estimate_kernel
from tinygrad.codegen.grid import place_grid
from tinygrad.codegen.late.linearizer import linearize
from tinygrad.codegen.late.lower import Lowering
from tinygrad.codegen.opt.policy import is_written_by_hand, optimize_kernel
from tinygrad.codegen.pieces import pieces
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.dtype import dtypes
from tinygrad.helpers import DEBUG, NOOPT
from tinygrad.record import replace
from tinygrad.renderer import Estimates
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import KernelInfo, ProgramInfo, UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer


def full_rewrite_to_sink(ast: UOp, renderer: Renderer, optimize: bool = True) -> UOp:
    """Return the optimised kernel in scalar form, with only operations that the renderer declares.

    Args:
        ast: A kernel SINK with KernelInfo.
        renderer: The target.
        optimize: False leaves the loops as they are.
    """
    from tinygrad.codegen.decomp import decompose
    from tinygrad.middleware import run_stage

    sink = place_grid(run_stage("kernel", ast), renderer)
    sink = run_stage("simplify", sink, passes=simplify_kernel)
    if optimize:
        sink = run_stage("optimize", sink, ctx=renderer, passes=lambda graph: optimize_kernel(graph, renderer))
        sink = place_grid(sink, renderer) if renderer.has_local else sink
    return run_stage("decompose", sink, ctx=renderer, passes=lambda graph: decompose(graph, renderer))


def lower_to_list(sink: UOp, renderer: Renderer) -> list[UOp]:
    """Return the linear program of an optimised kernel."""
    from tinygrad.codegen.decomp import support_of
    from tinygrad.codegen.decomp.narrow_indices import index_dtype
    from tinygrad.middleware import run_stage

    native, support = renderer.code_for_op, support_of(renderer)
    wanted = index_dtype(sink, renderer.index_dtype, support.has_wide_integers)
    lowering = Lowering(sink, wanted, Ops.MULACC in native, Ops.MAX in native)

    def lower(_: UOp) -> UOp:
        lowered = lowering.run()
        if support.has_wide_integers:
            return lowered
        from tinygrad.codegen.decomp.wide_integers import Wide, split_wide

        wide = Wide(lowering.values, support.ops, support.has_double, lowering.slots)
        lowered, lowering.order = split_wide(lowered, lowering.order, wide)
        return lowered

    lowered = run_stage("lower", sink, ctx=renderer, passes=lower)
    return list(run_stage("linear", linearize(lowered, lowering.order), ctx=renderer))


def program_info(linear: list[UOp], sink: UOp, renderer: Renderer) -> ProgramInfo:
    """Return how the linear program of an optimised kernel is launched."""
    from tinygrad.renderer import kernel_arguments

    info: KernelInfo = sink.arg
    buffers, variables = kernel_arguments(linear)
    written, read = (
        {u.src[0].buf_uop.arg.slot for u in linear if u.op is op and u.src[0].buf_uop.op is Ops.PARAM}
        for op in (Ops.STORE, Ops.LOAD)
    )
    grid: dict[str, Any] = {}
    for u in linear:
        if u.op is Ops.SPECIAL:
            grid[u.arg] = u.src[0].ssimplify()
        elif u.op is Ops.RANGE and u.arg[-1] is AxisType.THREAD:
            grid["gidx0"] = u.src[0].ssimplify()
    has_local = any(name.startswith("lidx") for name in grid)
    estimates = info.estimates if info.estimates is not None else Estimates.from_uops(linear, ignore_indexing=True)
    parts, overlaps = pieces(sink, buffers)
    return ProgramInfo(
        name=info.name,
        global_size=tuple(grid.get(f"gidx{i}", 1) for i in range(3)),
        local_size=tuple(grid.get(f"lidx{i}", 1) for i in range(3)) if has_local else None,
        vars=tuple(variables),
        globals=tuple(u.arg.slot for u in buffers),
        outs=tuple(u.arg.slot for u in buffers if u.arg.slot in written),
        ins=tuple(u.arg.slot for u in buffers if u.arg.slot in read),
        target=str(renderer.target),
        estimates=estimates,
        pieces=parts,
        overlaps=overlaps,
    )


def _size_text(size: UOp) -> str:
    # How long a loop is that was cut differs from iteration to iteration of the one around it.
    return str(size.vmax) if size.op is Ops.CONST or size.op_in_backward_slice_with_self(Ops.RANGE) else size.render()


def kernel_name(sink: UOp) -> str:
    """Return a name made of the kind of kernel and the sizes of its loops: ``r_64_32`` reduces, ``E_1024`` does not."""
    ranges = sorted((u for u in sink.toposort() if u.op is Ops.RANGE), key=lambda r: r.arg[:-1])
    kind = "r" if any(u.op is Ops.REDUCE for u in sink.toposort()) else "E"
    sizes = [_size_text(r.src[0]) for r in ranges]
    return "_".join([kind, *sizes]) if sizes else f"{kind}_1"


def lower_to_source(ast: UOp, renderer: Renderer) -> UOp:
    """Return ``PROGRAM(SINK, LINEAR, SOURCE; ProgramInfo)`` of one kernel: all but the binary.

    Raises:
        AssertionError: ``ast`` has no KernelInfo.
        RuntimeError: ``ast`` is no SINK.
    """
    if ast.op is not Ops.SINK:
        raise RuntimeError(f"to_program: expected a SINK or PROGRAM, got {ast.op}")
    if not isinstance(ast.arg, KernelInfo):
        raise AssertionError("to_program: the SINK of a kernel needs a KernelInfo as its arg")
    if DEBUG >= 5:
        print(ast)  # noqa: T201
    sink = full_rewrite_to_sink(ast, renderer, optimize=not NOOPT)
    info = sink.arg if sink.arg.name != "test" else replace(sink.arg, name=kernel_name(sink))
    if info.estimates is None and not is_written_by_hand(ast):
        info = replace(info, estimates=Estimates(*estimate_kernel(ast)))
    sink = sink.replace(arg=info)
    if DEBUG >= 3:
        print(f"{info.name}: {', '.join(map(repr, info.applied_opts)) or 'no optimisation steps'}")  # noqa: T201
    return render_list(sink, lower_to_list(sink, renderer), renderer)


def render_list(sink: UOp, linear: list[UOp], renderer: Renderer) -> UOp:
    """Return ``PROGRAM(SINK, LINEAR, SOURCE; ProgramInfo)`` of a linear program."""
    from tinygrad.middleware import run_stage

    if DEBUG >= 6:
        from tinygrad.uop.render import print_uops

        print_uops(linear)
    source = run_stage("render", renderer.render(linear), ctx=renderer)
    if DEBUG >= 4:
        print(source)  # noqa: T201
    src = (sink, UOp(Ops.LINEAR, dtypes.void, tuple(linear)), UOp(Ops.SOURCE, dtypes.void, (), source))
    return UOp(Ops.PROGRAM, dtypes.void, src, program_info(linear, sink, renderer))


__all__ = ["full_rewrite_to_sink", "kernel_name", "linearize", "lower_to_list", "lower_to_source", "program_info"]
