"""Compiled programs on disk, found by the kernel's graph before anything is lowered.

In:   a kernel SINK and a renderer.
Out:  the finished PROGRAM, if this version of the compiler made it for this target before.
Why:  lowering is most of the time of a first step; a second run of the same program lowers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes
from tinygrad.fingerprint import source_fingerprint
from tinygrad.helpers import (
    BEAM,
    CACHELEVEL,
    CCACHE,
    DEBUG,
    IGNORE_BEAM_CACHE,
    diskcache_get,
    diskcache_get_many,
    diskcache_put,
)
from tinygrad.uop import Ops
from tinygrad.uop.ops import KernelInfo, ProgramInfo, UOp

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer

TABLE = "program"


def _disk_key(ast: UOp, renderer: Renderer, switches: tuple[Any, ...]) -> str:
    target = f"{type(renderer).__name__}:{renderer.target}:{renderer.compiler.cachekey}"
    return f"{source_fingerprint()}-{ast.key.hex()}-{target}-{switches!r}"


def _usable(renderer: Renderer) -> bool:
    # With output wanted, every stage has to run so that it can be seen; inserted rules may be any Python object.
    from tinygrad.middleware import cache_token

    wanted = bool(CCACHE) and CACHELEVEL >= 1 and DEBUG < 3
    return wanted and not cache_token() and renderer.compiler.cachekey is not None


def load_program(ast: UOp, renderer: Renderer, switches: tuple[Any, ...]) -> UOp | None:
    """Return a program that was kept on disk, or None."""
    if not _usable(renderer) or _searches_anew(ast):
        return None
    return _program(ast, diskcache_get(TABLE, _disk_key(ast, renderer, switches)))


def load_programs(asts: Iterable[UOp], renderer: Renderer, switches: tuple[Any, ...]) -> dict[UOp, UOp]:
    """Return those programs that were kept on disk, by their kernels."""
    if not _usable(renderer):
        return {}
    keys = {ast: _disk_key(ast, renderer, switches) for ast in asts if not _searches_anew(ast)}
    found = diskcache_get_many(TABLE, keys.values())
    programs = {ast: _program(ast, found.get(key)) for ast, key in keys.items()}
    return {ast: program for ast, program in programs.items() if program is not None}


def _searches_anew(ast: UOp) -> bool:
    return bool(IGNORE_BEAM_CACHE and (BEAM or ast.arg.beam))


def _program(ast: UOp, row: Any) -> UOp | None:
    """Return a program from what the disk cache had; None if it had nothing, or nothing that this module wrote."""
    match row:
        case (ProgramInfo() as info, KernelInfo() as applied, str() as source, bytes() as binary):
            pass
        case _:
            return None
    return _kept(ast, info, applied, source, binary)


def _kept(
    ast: UOp, info: ProgramInfo, applied: KernelInfo, source: str, binary: bytes, arguments: tuple[UOp, ...] = ()
) -> UOp:
    src = (
        ast.replace(arg=applied),
        UOp(Ops.LINEAR, dtypes.void, arguments),
        UOp(Ops.SOURCE, dtypes.void, (), source),
        UOp(Ops.BINARY, dtypes.uint8, (), binary),
    )
    return UOp(Ops.PROGRAM, dtypes.void, src, info)


def kept_program(ast: UOp, program: UOp) -> UOp:
    """Return of a compiled program what a process keeps: the kernel that it was made of, its arguments, source, binary.

    The lowered kernel and the rest of the list of nodes are hundreds of objects, which only a compiler needs. A
    process that meets new kernels for ever would collect millions of them, and the garbage collector walks through all.
    """
    sink, linear, source, binary = program.src
    arguments = tuple(u for u in linear.src if u.op is Ops.PARAM)
    return _kept(ast, program.arg, sink.arg, source.arg, binary.arg, arguments)


def save_program(ast: UOp, program: UOp, renderer: Renderer, switches: tuple[Any, ...]) -> None:
    """Keep a compiled program on disk (without its list of nodes, which only a compiler needs)."""
    if not _usable(renderer):
        return
    sink, _, source, binary = program.src
    row = (program.arg, sink.arg, source.arg, binary.arg)
    diskcache_put(TABLE, _disk_key(ast, renderer, switches), row)
