"""Records that nodes carry in ``arg``: immutable, hashable, printable.

In:   nothing.
Out:  ParamArg (storage), Placement (copies), KernelInfo and ProgramInfo (kernels), CallInfo (calls): plain data.
Why:  named fields can be read, checked and given defaults where a tuple could not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.dtype import AddrSpace, DType
from tinygrad.record import field, fields, record
from tinygrad.uop import AxisType


class _ShortRepr:
    """Prints the fields that differ from their defaults: graphs hold thousands of records."""

    def __repr__(self) -> str:
        shown = (f for f in fields(self) if f.repr)  # type: ignore[arg-type]  # subclasses are dataclasses
        values = ((f.name, getattr(self, f.name), f.default) for f in shown)
        return f"{type(self).__name__}({', '.join(f'{name}={v!r}' for name, v, default in values if v != default)})"


@record(frozen=True, repr=False, init=False)
class ParamArg(_ShortRepr):
    """What a BUFFER or PARAM stands for.

    Args:
        slot: Position of a PARAM among the arguments of its call or kernel; for a BUFFER a number that is unique in
            the process; -1 for Variables, which are known by name.
        dtype: Element type.
        shape: Sizes; ``(size,)`` for kernel buffers, ``()`` for Variables and scalar registers.
        device: Device name, or None inside kernels and for Variables.
        name: Name of a Variable.
        vmin_vmax: Inclusive bounds of a Variable.
        multiple_of: A number that divides every value of a Variable.
        addrspace: GLOBAL memory, LOCAL (work-group or per-thread scratch), REG (register), ALU (a scalar argument).
        axis: Axis along which a multi-device tensor is split, or None.
        volatile: Every access must touch memory.
        part: For the storage of one device that belongs to storage over several, the device's number among them.
    """

    slot: int
    dtype: DType
    shape: tuple[Any, ...] = ()
    device: str | tuple[str, ...] | None = None
    name: str | None = None
    vmin_vmax: tuple[Any, Any] | None = None
    multiple_of: int = 1
    addrspace: AddrSpace = AddrSpace.GLOBAL
    axis: int | None = None
    volatile: bool = False
    part: int | None = None

    def __init__(
        self,
        slot: int,
        dtype: DType,
        shape: tuple[Any, ...] = (),
        device: str | tuple[str, ...] | None = None,
        name: str | None = None,
        vmin_vmax: tuple[Any, Any] | None = None,
        multiple_of: int = 1,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
        axis: int | None = None,
        volatile: bool = False,
        part: int | None = None,
    ) -> None:
        # All fields at once: setting each of a frozen dataclass takes three times as long, and every result has one.
        self.__dict__.update(
            slot=slot, dtype=dtype, shape=shape, device=device, name=name, vmin_vmax=vmin_vmax,
            multiple_of=multiple_of, addrspace=addrspace, axis=axis, volatile=volatile, part=part,
        )  # fmt: skip

    def __hash__(self) -> int:
        # What nearly always tells two of them apart; a node is hashed four times in its life.
        return hash((self.slot, self.shape, self.name))


@record(frozen=True, repr=False)
class Placement(_ShortRepr):
    """Where a COPY puts a value that is split over several devices.

    Args:
        devices: Their names.
        axis: The axis along which each gets an equal piece.
    """

    devices: tuple[str, ...]
    axis: int


@record(frozen=True, repr=False)
class KernelInfo(_ShortRepr):
    """What is known of a kernel besides its graph; ``name == "test"`` means that it is named automatically."""

    name: str = "test"
    axis_types: tuple[AxisType, ...] = ()
    dont_use_locals: bool = False
    applied_opts: tuple[Any, ...] = ()
    opts_to_apply: tuple[Any, ...] | None = None
    estimates: Any = None
    beam: int = 0

    @property
    def function_name(self) -> str:
        """The name as an identifier of the target language."""
        from tinygrad.helpers import to_function_name

        return to_function_name(self.name)


@record(frozen=True, repr=False)
class ProgramInfo(_ShortRepr):
    """How a compiled kernel is launched.

    Args:
        name: Display name of the kernel.
        global_size: Iterations of the grid (on a CPU: of the THREAD loop in the first entry).
        local_size: Work-group size, or None.
        vars: Variables in the order in which their values are passed.
        globals: PARAM slots in the order in which buffers are passed.
        outs: Slots that are written.
        ins: Slots that are read.
        target: Printed form of the renderer's target.
        estimates: Operations and bytes of one launch.
        pieces: For each buffer in ``globals`` the bytes that each iteration of the THREAD loop has for itself, or 0.
        overlaps: The last iteration of the THREAD loop may also touch bytes of the one before.
    """

    name: str
    global_size: tuple[Any, ...] = (1, 1, 1)
    local_size: tuple[Any, ...] | None = None
    vars: tuple[Any, ...] = ()
    globals: tuple[int, ...] = ()
    outs: tuple[int, ...] = ()
    ins: tuple[int, ...] = ()
    target: str = ""
    estimates: Any = None
    pieces: tuple[int, ...] = ()
    overlaps: bool = False

    @property
    def function_name(self) -> str:
        """The name as an identifier of the target language."""
        from tinygrad.helpers import to_function_name

        return to_function_name(self.name)

    def vals(self, var_vals: dict[str, int]) -> tuple[int, ...]:
        """Return the values of this kernel's variables in order.

        Raises:
            RuntimeError: A variable has no value.
        """
        missing = [v.expr for v in self.vars if v.expr not in var_vals]
        if missing:
            names = ", ".join(missing)
            raise RuntimeError(f"unbound Variable {names} in kernel {self.name}: bind it with .bind(value)")
        return tuple(var_vals[v.expr] for v in self.vars)

    def launch_dims(self, var_vals: dict[str, int]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Return global and local sizes as ints, with Variables replaced by their values."""
        from tinygrad.uop.sint import sym_infer

        sizes = tuple(sym_infer(x, var_vals) for x in self.global_size)
        return sizes, None if self.local_size is None else tuple(sym_infer(x, var_vals) for x in self.local_size)


@record(frozen=True, repr=False)
class CallInfo(_ShortRepr):
    """How a FUNCTION or CALL is differentiated, named and compiled.

    Args:
        grad_fxn: ``grad_fxn(grad, call=node)`` returning one gradient (or None) per argument.
        name: Qualified name of the Python function.
        precompile: Compile the forward pass as a unit of its own.
        precompile_backward: The same for the backward pass.
        aux: Whatever a runtime wants to keep with the call.
    """

    # Not printed: a node's key is made of its printed form, and a function prints with an address of this process.
    grad_fxn: Callable[..., Any] | None = field(default=None, compare=True, repr=False)
    name: str | None = None
    precompile: bool = False
    precompile_backward: bool = False
    aux: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Python functions do not travel between processes: a pickled call keeps all but its gradient function.
        return CallInfo, (None, self.name, self.precompile, self.precompile_backward, self.aux)
