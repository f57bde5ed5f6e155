"""What every renderer answers: limits of its target, the operations that are native there, and the text of a kernel.

In:   the linear program of one kernel: UOps in execution order, SINK last.
Out:  source text for the renderer's compiler; ``Estimates`` of the work that a program does.
Why:  code generation asks these attributes and never for a device name, so a new target is a new subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.record import record
from tinygrad.settings import NUM_CPU_THREADS
from tinygrad.target import Target
from tinygrad.uop import GroupOp, Ops

if TYPE_CHECKING:
    from tinygrad.device import Compiler
    from tinygrad.uop.ops import UOp
    from tinygrad.uop.sint import sint


@record(frozen=True)
class Estimates:
    """Work of one launch; numbers, or expressions of Variables.

    Attributes:
        ops: Arithmetic operations; a fused multiply-add counts two.
        lds: Bytes that loads and stores move.
        mem: Bytes of the buffers that are touched, each byte once.
    """

    ops: sint = 0
    lds: sint = 0
    mem: sint = 0

    def __add__(self, other: Estimates) -> Estimates:
        return Estimates(self.ops + other.ops, self.lds + other.lds, self.mem + other.mem)

    def simplify(self) -> Estimates:
        """Return the same estimates with their expressions simplified."""
        from tinygrad.uop.sint import ssimplify

        return Estimates(ssimplify(self.ops), ssimplify(self.lds), ssimplify(self.mem))

    @staticmethod
    def from_uops(uops: Sequence[UOp], ignore_indexing: bool = False) -> Estimates:
        """Count the work of a linear program.

        Args:
            uops: The program.
            ignore_indexing: Leave out arithmetic that only computes addresses and gates.
        """
        ignored = _address_arithmetic(uops) if ignore_indexing else frozenset[Any]()
        ops: Any = 0
        lds: Any = 0
        touched: dict[UOp, int] = {}
        times: list[Any] = [1]
        for u in uops:
            match u.op:
                case Ops.RANGE:
                    times.append(times[-1] * _number(u.src[0]))
                case Ops.END:
                    del times[len(times) - max(1, len(u.src) - 1) :]
                case Ops.SPECIAL:
                    times = [t * _number(u.src[0]) for t in times]
                case Ops.LOAD | Ops.STORE if u.src[0].op is Ops.INDEX:
                    buffer = u.src[0].buf_uop
                    nbytes = times[-1] * buffer.dtype.itemsize * lanes_of(u if u.op is Ops.LOAD else u.src[1])
                    if buffer.arg.addrspace is AddrSpace.GLOBAL:
                        lds = lds + nbytes
                        size = buffer.arg.shape[0] if buffer.arg.shape else 1
                        touched[buffer] = size * buffer.dtype.itemsize
                case Ops.REDUCE:
                    ops = ops + times[-1] * (lanes_of(u.src[0]) - 1)
                case _ if u.op in GroupOp.ALU and u not in ignored:
                    ops = ops + times[-1] * lanes_of(u) * (2 if u.op is Ops.MULACC else 1)
        return Estimates(ops, lds, sum(touched.values()))


def _number(u: UOp) -> Any:
    """Return how often a loop runs, a number or an expression of Variables; the most if it depends on other loops."""
    if u.op is Ops.CONST:
        return u.arg
    return u.vmax if u.op_in_backward_slice_with_self(Ops.RANGE, Ops.LOAD, Ops.SPECIAL) else u


def lanes_of(u: UOp) -> int:
    """Number of lanes of a value in a linear program; 1 for scalars."""
    shape = u._shape
    return int(shape[0]) if shape else 1


def _address_arithmetic(uops: Iterable[UOp]) -> frozenset[UOp]:
    roots: list[UOp] = []
    for u in uops:
        if u.op is Ops.INDEX:
            roots.extend(u.src[1:])
        elif u.op in (Ops.LOAD, Ops.STORE):
            roots.extend(u.src[2:])
        elif u.op is Ops.IF:
            roots.append(u.src[0])
    found: set[UOp] = set()
    while roots:
        u = roots.pop()
        if u not in found:
            found.add(u)
            # A loaded index was computed by loads, whose own addresses are roots already.
            roots.extend(() if u.op in (Ops.LOAD, Ops.RANGE) else u.src)
    return frozenset(found)


class Renderer:
    """Turns the linear program of a kernel into source text. Subclasses set the attributes and ``render``.

    Args:
        target: The parsed ``DEV`` entry; ``target.arch`` may change attributes.
    """

    device: ClassVar[str] = ""
    suffix: str = ""
    supports_float4: bool = True
    has_local: bool = True
    has_threads: bool = False
    has_shared: bool = True
    # x, y, z; None for no limit. On a CPU with threads the first entry bounds the THREAD loop.
    global_max: tuple[int, ...] | None = (0x8FFFFFFF, 0x8FFFFFFF, 0x8FFFFFFF)
    local_max: tuple[int, ...] | None = (0x8FFFFFFF, 0x8FFFFFFF, 0x8FFFFFFF)
    global_prod_max: tuple[int, ...] | None = None
    shared_max: int = 32768
    tensor_cores: Sequence[Any] = ()
    extra_matcher: Any = None
    code_for_op: dict[Ops, Callable[..., str]] = {}  # noqa: RUF012  replaced by subclasses, per instance where a target differs
    index_dtype: DType = dtypes.int32
    vector_bytes: int = 0
    vector_registers: int = 16
    cache_bytes: int = 512 << 10  # near a core
    compiler: Compiler

    def __init__(self, target: Target | None = None) -> None:
        self.target = target if target is not None else Target(device=self.device)

    @property
    def threads(self) -> int:
        """How many iterations of a THREAD loop run at once."""
        return NUM_CPU_THREADS.get() if self.has_threads else 1

    def render(self, uops: Sequence[UOp]) -> str:
        """Return the source of a kernel."""
        raise NotImplementedError(f"{type(self).__name__} does not implement render")

    def asm(self, program: UOp, linear: UOp) -> bytes:
        """Return machine code; for targets without a compiler."""
        raise NotImplementedError(f"{type(self).__name__} does not implement asm")

    def supported_dtypes(self) -> tuple[DType, ...]:
        """Return the dtypes that kernels may use; all others are emulated before rendering."""
        return dtypes.all

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.target,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.target}>"


def kernel_arguments(uops: Sequence[UOp]) -> tuple[list[UOp], list[UOp]]:
    """Return the buffers of a linear program by slot and its variables by name: the order in which they are passed.

    Several PARAMs of one slot are the same buffer, seen with several dtypes; one of them stands for it.
    """
    params = [u for u in dict.fromkeys(uops) if u.op is Ops.PARAM]
    variables = [u for u in params if u.arg.addrspace is AddrSpace.ALU]
    buffers = [u for u in params if u.arg.addrspace is not AddrSpace.ALU]
    buffers = list({u.arg.slot: u for u in reversed(buffers)}.values())
    return sorted(buffers, key=lambda u: u.arg.slot), sorted(variables, key=lambda u: u.arg.name)
