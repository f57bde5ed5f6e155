"""Finished programs: what a compiled PROGRAM needs to be loaded and called.

In:   a PROGRAM with its LINEAR and BINARY.
Out:  the signature of its arguments, and the TinyELF that a device loads.
Why:  whoever has a PROGRAM can load it, and the rules for its arguments are in one place.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tinygrad.device import TinyELF
from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.records import ProgramInfo

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


def _parts(program: UOp) -> dict[Ops, UOp]:
    return {u.op: u for u in program.src}


def signature_of(program: UOp) -> list[tuple[str, int, Any, tuple[int, ...]]]:
    """Return (name, slot, dtype, shape) of the buffers of a PROGRAM, then of its variables."""
    linear = _parts(program).get(Ops.LINEAR)
    if linear is None:
        return []  # a program that came as source or binary: its arguments are not checked
    info: ProgramInfo = program.arg
    params = {u.arg.slot: u for u in linear.src if u.op is Ops.PARAM and u.arg.addrspace is not AddrSpace.ALU}
    if any(slot not in params for slot in info.globals):
        return []
    buffers = [(f"data{slot}", slot, params[slot].dtype, params[slot].arg.shape or (1,)) for slot in info.globals]
    # The variables of a linear program have concrete dtypes, those of ProgramInfo may be the user's.
    concrete = {u.arg.name: u.dtype for u in linear.src if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.ALU}
    return [*buffers, *((v.expr, -1, concrete.get(v.expr, v.dtype), ()) for v in info.vars)]


def elf_of(program: UOp) -> TinyELF:
    """Return a finished PROGRAM as a device loads it.

    Raises:
        RuntimeError: The PROGRAM has not been compiled.
    """
    binary = _parts(program).get(Ops.BINARY)
    if binary is None:
        raise RuntimeError(f"the program {program.arg.name} has no BINARY; compile it with to_program first")
    info: ProgramInfo = program.arg
    digest = hashlib.sha256(binary.arg).digest()
    return TinyELF(binary.arg, info.function_name, info.target, signature_of(program), digest)
