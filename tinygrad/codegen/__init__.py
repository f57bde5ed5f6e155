"""One kernel from its graph to a compiled program, made once.

In:   a kernel SINK and a renderer.
Out:  ``PROGRAM(SINK, LINEAR, SOURCE, BINARY; ProgramInfo)``: from this process, from the disk cache, or from the stages
      of ``pipeline`` and the compiler. Only ``do_to_program`` returns the lowered SINK and its list of nodes in LINEAR;
      the others return the kernel, and a LINEAR that holds no more than the arguments.
Why:  a run whose programs are all in the disk cache does not even import the stages.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tinygrad.codegen.kernel_record import record_kernel
from tinygrad.codegen.program_cache import kept_program, load_program, load_programs, save_program
from tinygrad.dtype import dtypes
from tinygrad.forking import renew_in_child
from tinygrad.helpers import BEAM, DEBUG, EMULATED_DTYPES, NOOPT, TRANSCENDENTAL
from tinygrad.recent import Recent
from tinygrad.uop import Ops
from tinygrad.uop.ops import ProgramInfo, UOp

if TYPE_CHECKING:
    from tinygrad.codegen.pipeline import full_rewrite_to_sink, linearize, lower_to_list
    from tinygrad.renderer import Renderer

T = TypeVar("T")
Step: TypeAlias = Callable[[], T]

# A kernel takes some 25 KiB: its graph and source, half of it; its binary, and that in executable pages.
to_program_cache: Recent[tuple[Any, ...], UOp] = Recent(most=3072)
_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tinygrad.codegen import pipeline

    return getattr(pipeline, name)


def do_to_program(ast: UOp, renderer: Renderer) -> UOp:
    """Compile one kernel, without looking into any cache.

    Raises:
        AssertionError: ``ast`` has no KernelInfo.
        RuntimeError: ``ast`` is no SINK.
    """
    return compile_source(_lower(ast, renderer), renderer)


def compile_source(program: UOp, renderer: Renderer) -> UOp:
    """Return a PROGRAM that ends with its SOURCE, with the BINARY after it.

    Raises:
        CompileError: The compiler refused the source.
    """
    return _with_binary(program, renderer.compiler.compile_cached(program.src[-1].arg))


def _with_binary(program: UOp, binary: bytes) -> UOp:
    return program.replace(src=(*program.src, UOp(Ops.BINARY, dtypes.uint8, (), binary)))


def _complete(program: UOp, renderer: Renderer) -> Step[Step[UOp]]:
    """Return what adds to a PROGRAM that it lacks: the binary of its own source, or everything from its kernel."""
    parts = {u.op: u for u in program.src}
    if Ops.BINARY in parts:
        return lambda: lambda: program
    if Ops.SOURCE not in parts:
        return start_program(parts[Ops.SINK], renderer)
    if not isinstance(program.arg, ProgramInfo):
        raise RuntimeError("to_program: a PROGRAM with its own SOURCE needs a ProgramInfo that says how it is launched")

    def compile_own() -> Step[UOp]:
        made = compile_source(program, renderer)
        return lambda: made

    return compile_own


def to_program(ast: UOp, renderer: Renderer) -> UOp:
    """Return the compiled program of a kernel, from the cache if it was compiled in this process.

    Args:
        ast: A kernel SINK with KernelInfo, or a PROGRAM (finished or with its own SOURCE), which is completed.
        renderer: The target.

    Raises:
        AssertionError: The SINK has no KernelInfo.
        RuntimeError: Another op.
        CompileError: The compiler refused the source.
    """
    return start_program(ast, renderer)()()


def start_program(ast: UOp, renderer: Renderer) -> Step[Step[UOp]]:
    """Do the first of the three steps of ``to_program``: lower the kernel. The call of the result compiles it.

    That one may run in another thread. What it returns takes the last step: it keeps the program, and returns it.

    Lowering and keeping hold the interpreter lock and a compiler does not: one thread that lowers kernel after kernel
    while others do nothing but compile them waits less than several that do it all, as each time that a thread wants
    the lock back it waits, and so does the other one until it is through.
    """
    if ast.op is Ops.PROGRAM:
        return _complete(ast, renderer)
    key, switches = _program_key(ast, renderer)
    kept = to_program_cache.get(key)
    if kept is not None:
        return lambda: lambda: kept
    found = load_program(ast, renderer, switches)
    lowered = found if found is not None else _lower(ast, renderer)
    if DEBUG >= 2:
        _show_emulated(ast, lowered.arg.name, renderer)
    source, compiler = lowered.src[-1].arg, renderer.compiler
    binary = compiler.find(source) if found is None else None

    def finish(made: bytes | None) -> UOp:
        program = lowered
        if made is not None:
            if binary is None:
                compiler.keep(source, made)
            program = _with_binary(lowered, made)
            save_program(ast, program, renderer, switches)
            program = kept_program(ast, program)
        record_kernel(ast, program, renderer)
        with _lock:
            return to_program_cache.setdefault(key, program)

    def compile_lowered() -> Step[UOp]:
        made = compiler.compile(source) if found is None and binary is None else binary
        return lambda: finish(made)

    return compile_lowered


def _show_emulated(ast: UOp, name: str, renderer: Renderer) -> None:
    from tinygrad.codegen.decomp import emulated_dtypes

    emulated = emulated_dtypes(ast, renderer)
    if emulated:
        print(f"emulated dtypes of {name} on {renderer.target}: {', '.join(map(str, emulated))}")  # noqa: T201


def _lower(ast: UOp, renderer: Renderer) -> UOp:
    from tinygrad.codegen.pipeline import lower_to_source

    return lower_to_source(ast, renderer)


def _program_key(ast: UOp, renderer: Renderer) -> tuple[Any, tuple[Any, ...]]:
    """Return under which key this process keeps the program of a kernel, and the switches that its code depends on."""
    from tinygrad.middleware import cache_token

    switches = (*(v.value for v in (NOOPT, BEAM, TRANSCENDENTAL, EMULATED_DTYPES)), renderer.threads)
    return (ast, type(renderer), str(renderer.target), cache_token(), switches), switches


def fetch_programs(asts: Sequence[UOp], renderer: Renderer) -> int:
    """Take the programs of kernels that will be started from the disk cache, all in one go.

    Returns:
        How many of them this process has now.
    """
    keys = {ast: _program_key(ast, renderer) for ast in asts}
    missing = [ast for ast, (key, _) in keys.items() if key not in to_program_cache]
    if not missing:
        return len(keys)
    loaded = load_programs(missing, renderer, keys[missing[0]][1])
    for ast, program in loaded.items():
        record_kernel(ast, program, renderer)
        with _lock:
            to_program_cache.setdefault(keys[ast][0], program)
    return len(keys) - len(missing) + len(loaded)


__all__ = [
    "do_to_program",
    "fetch_programs",
    "full_rewrite_to_sink",
    "linearize",
    "lower_to_list",
    "start_program",
    "to_program",
    "to_program_cache",
]
