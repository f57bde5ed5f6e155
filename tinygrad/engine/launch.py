"""One call of a schedule, ready to run: a loaded kernel, or a copy.

In:   a compiled PROGRAM, or a COPY body.
Out:  objects with ``launch(buffers, var_vals, wait)``; ``get_runtime`` loads a program once per device.
Why:  everything that depends on the kernel alone is worked out here once, so that a launch only looks at its buffers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tinygrad.device import Buffer, Device
from tinygrad.profiling import ProfileProgramEvent, cpu_events
from tinygrad.recent import Recent
from tinygrad.renderer import Estimates
from tinygrad.settings import PROFILE
from tinygrad.uop.finished import elf_of, signature_of
from tinygrad.uop.ops import ProgramInfo, UOp, sym_infer


class Launch(Protocol):
    """What runs one call of a schedule."""

    name: str
    device: str

    def launch(self, buffers: Sequence[Buffer], var_vals: Mapping[str, int], wait: bool = False) -> float | None:
        """Run on the buffers (the arguments of the call); seconds if ``wait``."""
        ...

    def work(self, buffers: Sequence[Buffer], var_vals: Mapping[str, int]) -> tuple[int, int]:
        """Return (operations, bytes) of one launch."""
        ...


# ---- kernels ---------------------------------------------------------------------------------------------------------

_runtimes: Recent[tuple[str, UOp], Any] = Recent(most=3072)  # launches hold those that they run


def get_runtime(device: str, program: UOp, cache: bool = True) -> Any:
    """Return the loaded program of a PROGRAM on a device.

    Args:
        device: Name of the device.
        program: A finished PROGRAM.
        cache: Keep it, and return what was kept.

    Raises:
        RuntimeError: The PROGRAM has not been compiled.
    """
    key = (device, program)
    loaded = _runtimes.get(key) if cache else None
    if loaded is not None:
        return loaded
    elf = elf_of(program)
    loaded = Device[device].runtime(elf)
    if PROFILE.get():
        cpu_events.append(ProfileProgramEvent(device, elf.name, elf.lib, elf.profile_key))
    if not cache:
        return loaded
    return _runtimes.setdefault(key, loaded)


class KernelLaunch:
    """A compiled kernel on a device.

    Attributes:
        program: The PROGRAM.
        run: The loaded program.
        slots: For each buffer of the program its position among the arguments of the call.
    """

    def __init__(self, program: UOp, device: str) -> None:
        info: ProgramInfo = program.arg
        self.program, self.info, self.device = program, info, device
        self.name = info.name
        self.run = get_runtime(device, program)
        self.slots = info.globals
        sizes = (*info.global_size, *(info.local_size or ()))
        self.is_static = not info.vars and all(isinstance(s, int) for s in sizes)
        self.sizes: tuple[Any, Any] = (info.global_size, info.local_size)
        estimates = info.estimates if isinstance(info.estimates, Estimates) else Estimates()
        self.estimates = estimates
        self.fixed_work = _fixed_work(estimates)

    @property
    def profile_key(self) -> bytes | None:
        """The key under which profiles show the program."""
        return elf_of(self.program).profile_key

    def launch(self, buffers: Sequence[Buffer], var_vals: Mapping[str, int], wait: bool = False) -> float | None:
        """Run the kernel."""
        opaque = []
        for slot in self.slots:
            memory = buffers[slot]._buf
            opaque.append(memory if memory is not None else self._allocate(buffers, slot))
        sizes: tuple[Any, Any] = self.sizes
        vals: tuple[int, ...] = ()
        if not self.is_static:
            values = dict(var_vals)
            sizes, vals = self.info.launch_dims(values), self.info.vals(values)
        seconds: float | None = self.run(*opaque, global_size=sizes[0], local_size=sizes[1], vals=vals, wait=wait)
        return seconds

    def _allocate(self, buffers: Sequence[Buffer], slot: int) -> Any:
        try:
            return buffers[slot].ensure_allocated().get_buf()
        except MemoryError as error:
            raise _out_of_memory(self, buffers, slot, error) from error

    def work(self, buffers: Sequence[Buffer], var_vals: Mapping[str, int]) -> tuple[int, int]:
        """Return (operations, bytes) of one launch."""
        if self.fixed_work is not None:
            return self.fixed_work
        values = dict(var_vals)
        return int(sym_infer(self.estimates.ops, values)), int(sym_infer(self.estimates.mem, values))


def _fixed_work(estimates: Estimates) -> tuple[int, int] | None:
    """Return (operations, bytes) if they do not depend on Variables."""
    ops, mem = estimates.ops, estimates.mem
    return (ops, mem) if isinstance(ops, int) and isinstance(mem, int) else None


# ---- copies ----------------------------------------------------------------------------------------------------------


class CopyLaunch:
    """A copy from argument 1 to argument 0, on whatever devices they are."""

    name = "copy"

    def __init__(self, device: str) -> None:
        self.device = device

    def launch(self, buffers: Sequence[Buffer], var_vals: Mapping[str, int], wait: bool = False) -> float | None:
        """Copy; returns seconds if ``wait``."""
        start = time.perf_counter() if wait else 0.0
        dest, source = buffers[0], buffers[1]
        try:
            dest.ensure_allocated()
        except MemoryError as error:
            raise _out_of_memory(self, buffers, 0, error) from error
        dest.copy_from(source.ensure_allocated())
        if not wait:
            return None
        Device[dest.device].synchronize()
        return time.perf_counter() - start

    def work(self, buffers: Sequence[Buffer], var_vals: Mapping[str, int]) -> tuple[int, int]:
        """Return (operations, bytes): bytes are counted once, at the destination."""
        return 0, buffers[0].nbytes


# ---- no memory left --------------------------------------------------------------------------------------------------


def _out_of_memory(launch: Launch, buffers: Sequence[Buffer], slot: int, cause: MemoryError) -> MemoryError:
    error = MemoryError(_needs(launch, buffers, slot, cause))
    wanted = buffers[slot]
    if wanted.base.nbytes != wanted.nbytes:
        error.__dict__["shared"] = (wanted.base, cause)
    return error


def _needs(launch: Launch, buffers: Sequence[Buffer], slot: int, cause: MemoryError) -> str:
    wanted, whole = buffers[slot], buffers[slot].base
    size = f"{wanted.nbytes / 1e6:.2f} MB"
    part = "" if whole.nbytes == wanted.nbytes else f", part of {whole.nbytes / 1e6:.2f} MB that intermediates share"
    if isinstance(launch, CopyLaunch):
        return f"out of memory: copying {size} from {buffers[1].device} to {wanted.device}{part}\n  {cause}"
    sizes = ", ".join(f"{b.size} x {b.dtype.name}" for b in buffers)
    return (
        f"out of memory: kernel {launch.name} on {launch.device} needs {size} for argument {slot}{part} "
        f"(its arguments: {sizes})\n  {cause}"
    )


def blame_largest(error: MemoryError, calls: Iterable[tuple[Launch, Sequence[Buffer]]]) -> None:
    """Let an error about memory that intermediates share name the largest of them and what computes it.

    The first call that touches the memory allocates all of it, be it for a seed of 8 bytes.
    """
    shared, cause = error.__dict__.get("shared", (None, error))
    parts = [(b.nbytes, launch, buffers, slot) for launch, buffers in calls for slot, b in enumerate(buffers)
             if b.base is shared]  # fmt: skip
    if parts:
        _, launch, buffers, slot = max(parts, key=lambda part: part[0])  # the first of equal ones: where it is written
        error.args = (_needs(launch, buffers, slot, cause),)


__all__ = ["CopyLaunch", "KernelLaunch", "Launch", "blame_largest", "get_runtime", "signature_of"]
