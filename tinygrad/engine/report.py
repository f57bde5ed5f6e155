"""What is said about each launch: counters, the DEBUG=2 line, profile events, and the comparison with a reference.

In:   a launch, its buffers, and the seconds that it took.
Out:  changed ``GlobalCounters``, printed lines, ``cpu_events``.
Why:  a launch that nobody watches pays for one test; everything else about watching is here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.engine.launch import CopyLaunch, KernelLaunch, Launch
from tinygrad.helpers import GlobalCounters, colored, time_to_str
from tinygrad.profiling import Metadata, ProfileRangeEvent, cpu_events, perf_counter_us
from tinygrad.settings import DEBUG, PROFILE, VALIDATE_WITH_CPU, Context
from tinygrad.text import ansipad

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_NAME_WIDTH = 40
_TOLERANCE = 1e-3


def wants_report() -> bool:
    """Whether launches must be timed one by one."""
    return DEBUG.get() >= 2 or bool(PROFILE.get()) or bool(VALIDATE_WITH_CPU.get())


def run_reported(
    call: UOp,
    launch: Launch,
    buffers: Sequence[Buffer],
    var_vals: Mapping[str, int],
    jit: bool = False,
    events: list[ProfileRangeEvent] | None = None,
) -> float:
    """Run one call and say so; returns seconds. With PROFILE, its event is added to ``events`` too."""
    check = prepare_check(call, launch, buffers, var_vals) if VALIDATE_WITH_CPU.get() else None
    begin = perf_counter_us()
    start = time.perf_counter()
    seconds = launch.launch(buffers, var_vals, wait=True)
    if seconds is None:
        seconds = time.perf_counter() - start
    if PROFILE.get():
        key = launch.profile_key if isinstance(launch, KernelLaunch) else None
        event = ProfileRangeEvent(launch.device, launch.name, begin, perf_counter_us(), key)
        cpu_events.append(event)
        if events is not None:
            events.append(event)
    GlobalCounters.time_sum_s += seconds
    if DEBUG.get() >= 2:
        print(kernel_line(launch, buffers, launch.work(buffers, var_vals), seconds, jit, call.metadata or ()))  # noqa: T201
    if check is not None:
        check()
    return seconds


def kernel_line(
    launch: Launch,
    buffers: Sequence[Buffer],
    work: tuple[Any, Any],
    seconds: float,
    jit: bool = False,
    metadata: Sequence[Metadata] = (),
) -> str:
    """Return the line of one launch.

    ``*** DEVICE count name arg N mem GB tm time/total (GFLOPS share GB/s share) methods``
    """
    ops_per_s, bytes_per_s = (amount / max(seconds, 1e-9) for amount in work)
    of_ops, of_bytes = _shares(launch.device, ops_per_s, bytes_per_s)
    rate = f"({ops_per_s * 1e-9:8.2f} GFLOPS{of_ops} {bytes_per_s * 1e-9:7.1f} GB/s{of_bytes})"
    names = "  " + ", ".join(map(str, metadata)) if metadata else ""
    name = launch.name
    if isinstance(launch, CopyLaunch):
        name = colored(f"copy {buffers[0].nbytes:8d}, {buffers[0].device:>7s} <- {buffers[1].device:7s}", "yellow")
    head = colored(f"*** {launch.device[:7]:7s} {GlobalCounters.kernel_count + 1:4d}", "magenta" if jit else None)
    return (
        f"{head} {ansipad(name, _NAME_WIDTH)} arg {len(buffers):2d} mem {GlobalCounters.mem_used / 1e9:6.2f} GB "
        f"tm {time_to_str(seconds)}/{GlobalCounters.time_sum_s * 1e3:9.2f}ms {rate}{names}"
    )


def _shares(device: str, ops_per_s: float, bytes_per_s: float) -> tuple[str, str]:
    """Return the shares of what the machine reaches at most, as text; empty where that is not known."""
    if device.partition(":")[0] != "CPU":
        return "", ""
    from tinygrad.runtime.support.cpu_peak import cpu_peak

    most_ops, most_bytes = cpu_peak()
    return f"{ops_per_s / most_ops:4.0%}", f"{bytes_per_s / most_bytes:4.0%}"


# ---- comparison with a reference -------------------------------------------------------------------------------------


def prepare_check(
    call: UOp, launch: Launch, buffers: Sequence[Buffer], var_vals: Mapping[str, int]
) -> Callable[[], None] | None:
    """Run a kernel on copies of its buffers with an unoptimised CPU build; returns what compares the results.

    On the CPU itself the reference is the same kernel without optimisation.

    Raises:
        RuntimeError: (by the returned function) A result differs by more than 1e-3.
    """
    from tinygrad.codegen import to_program
    from tinygrad.device import Device
    from tinygrad.uop import Ops

    body = call.src[0]
    ast = body.src[0] if body.op is Ops.PROGRAM and body.src and body.src[0].op is Ops.SINK else body
    if not isinstance(launch, KernelLaunch) or call.src[0].op is Ops.PROGRAM or ast.op is not Ops.SINK:
        return None
    copies = []
    for buffer in buffers:
        buffer.ensure_allocated()
        copies.append(Buffer("CPU", buffer.size, buffer.dtype).ensure_allocated().copyin(buffer.as_memoryview()))
    with Context(NOOPT=1):
        reference = KernelLaunch(to_program(ast, Device["CPU"].renderer), "CPU")
    reference.launch(copies, var_vals, wait=True)

    def check() -> None:
        import numpy as np

        for slot in launch.info.outs:
            got, wanted = buffers[slot].numpy(), copies[slot].numpy()
            rtol = _TOLERANCE if dtypes.is_float(buffers[slot].dtype) else 0
            try:
                np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol, equal_nan=True)
            except AssertionError as error:
                raise RuntimeError(
                    f"VALIDATE_WITH_CPU: kernel {launch.name} on {launch.device} differs from the reference in "
                    f"argument {slot}: {error}"
                ) from None

    return check


__all__ = ["kernel_line", "prepare_check", "run_reported", "wants_report"]
