"""Compile variants of one kernel and time them on its device: what BEAM asks.

In:   a prepared kernel SINK and steps.
Out:  seconds of one launch on buffers of its own; inf if it does not compile or run, or there is no memory to try it.
Why:  no cost model knows a machine as well as a clock does.

The same two parts, ``compile_variant`` and ``Stopwatch``, work in this process and in the search's worker processes
(``workers.py``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tinygrad.codegen.opt.neighbours import Steps
from tinygrad.codegen.opt.samples import differ, sample_bytes
from tinygrad.dtype import AddrSpace
from tinygrad.helpers import Context, getenv
from tinygrad.record import record, replace
from tinygrad.uop import Ops
from tinygrad.uop.ops import ProgramInfo, UOp

if TYPE_CHECKING:
    from tinygrad.buffer import Buffer
    from tinygrad.codegen.opt.search_report import Report
    from tinygrad.renderer import Renderer

MOST_RUNS, FEWEST_RUNS = 20, 2  # of one measurement, after a first one that does not count
RUN_SECONDS = 0.005  # after which the fewest runs are enough; of a kernel that takes longer, one is
MUCH_SLOWER = 1.5  # times the time to beat: a variant that takes so long in one run is not run again
LONG_SECONDS = 0.005  # a kernel that takes longer is measured on a part of its parallel loop
NO_MEASUREMENT = math.inf


class Measure(Protocol):
    """Times variants of one kernel."""

    def prepare(self, variants: Sequence[Steps]) -> None:
        """Compile variants that will be timed, several at once if possible."""

    def __call__(self, steps: Steps, limit: float) -> float:
        """Return the seconds of one launch with these steps; inf if that cannot be measured.

        Args:
            steps: The variant.
            limit: Seconds from which on the time need not be exact; inf measures the whole kernel.
        """


class LimitError(Exception):
    """A candidate exceeds a limit of the search: nothing is wrong with it, but it is not worth trying."""


class WrongResultError(RuntimeError):
    """A candidate computes something else than the kernel of the policy."""


@record(frozen=True)
class Variant:
    """A compiled variant of a kernel: how it is launched, and its code."""

    info: ProgramInfo
    binary: bytes


def compile_variant(sink: UOp, renderer: Renderer, steps: Steps, limited: bool) -> Variant:
    """Compile a kernel with the given steps, without any cache: most variants are never seen again.

    Raises:
        LimitError: The program has more than BEAM_UOPS_MAX operations, and ``limited`` says that this counts.
        CompileError: The compiler refused it.
    """
    from tinygrad.codegen import compile_source
    from tinygrad.codegen.pipeline import lower_to_source

    ast = sink.replace(arg=replace(sink.arg, opts_to_apply=steps))
    with Context(DEBUG=0, BEAM=0, CACHELEVEL=0):
        program = lower_to_source(ast, renderer)
        most, length = getenv("BEAM_UOPS_MAX", 3000), len(program.src[1].src)
        if limited and length > most:
            raise LimitError(f"{length} operations are more than BEAM_UOPS_MAX={most}")
        return Variant(program.arg, compile_source(program, renderer).src[-1].arg)


class Stopwatch:
    """Buffers of one kernel, and times of its variants on them.

    Args:
        sink: The kernel.
        renderer: Its target.
        checked: Give the buffers values, and compare what variants compute with what the first one did.
    """

    def __init__(self, sink: UOp, renderer: Renderer, checked: bool = False) -> None:
        self.device, self.checked = renderer.target.device, checked
        params = (u for u in sink.toposort() if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.GLOBAL)
        self.params = {u.arg.slot: u for u in params}
        # The middle of every Variable's bounds.
        self.values = {v.expr: (v.arg.vmin_vmax[0] + v.arg.vmin_vmax[1] + 1) // 2 for v in sink.variables()}
        self._buffers: dict[int, Buffer] = {}
        self._first_results: dict[int, bytes] | None = None
        self._launches: dict[Variant, Launch] = {}

    def seconds(self, variant: Variant, limit: float) -> float:
        """Return the seconds of one launch; see ``Measure``.

        Raises:
            WrongResultError: The stopwatch compares results, and those of this variant are others.
        """
        launch = self._launches.get(variant)
        if launch is None:
            launch = self._launches[variant] = Launch(self, variant)
            if self.checked:
                self._compare(launch)
        return launch.best(limit)

    def memory(self, slot: int) -> Any:
        """Return the device's handle of a buffer, which all variants share; at first it holds zeros."""
        from tinygrad.buffer import Buffer

        if slot not in self._buffers:
            u = self.params[slot]
            buffer = Buffer(self.device, u.arg.shape[0], u.dtype).allocate()
            buffer.copyin(memoryview(bytearray(u.arg.shape[0] * u.dtype.itemsize)))
            self._buffers[slot] = buffer
        return self._buffers[slot].get_buf(self.device)

    def _compare(self, launch: Launch) -> None:
        info = launch.variant.info
        for slot in info.globals:
            u = self.params[slot]
            self._buffers[slot].copyin(memoryview(bytearray(sample_bytes(u.dtype, u.arg.shape[0], slot))))
        launch.run(launch.sizes)
        results = {slot: bytes(self._buffers[slot].as_memoryview()) for slot in info.outs}
        if self._first_results is None:
            self._first_results = results
            return
        for slot, made in results.items():
            if found := differ(self.params[slot].dtype, self._first_results[slot], made):
                raise WrongResultError(
                    f"BEAM: a variant of {info.name} computes other values in buffer {slot}: {found}"
                )


class Launch:
    """One variant, loaded on the device."""

    def __init__(self, watch: Stopwatch, variant: Variant) -> None:
        from tinygrad.device import Device, TinyELF

        self.variant, info = variant, variant.info
        self._memory = [watch.memory(slot) for slot in info.globals]
        signature = [(f"data{s}", s, watch.params[s].dtype, watch.params[s].arg.shape) for s in info.globals]
        signature += [(v.arg.name, i, v.dtype, ()) for i, v in enumerate(info.vars)]
        elf = TinyELF(variant.binary, info.function_name, info.target, signature)
        self._program = Device[watch.device].runtime(elf)
        self.sizes, self._local = info.launch_dims(watch.values)
        self._vals = info.vals(watch.values)

    def run(self, sizes: tuple[int, ...]) -> float:
        """Run the kernel, or a part of it; returns the seconds."""
        took: float | None = self._program(
            *self._memory, global_size=sizes, local_size=self._local, vals=self._vals, wait=True
        )
        return NO_MEASUREMENT if took is None else took

    def best(self, limit: float) -> float:
        """Return the shortest time of several runs. With a limit, a long kernel is measured on a part of itself."""
        sizes, share = self.sizes, 1.0
        if limit < math.inf and limit > LONG_SECONDS and getenv("BEAM_ESTIMATE", 1):
            sizes, share = part_of(self.sizes, LONG_SECONDS / limit)
        began = time.perf_counter()
        first = self.run(sizes) * share  # touches memory and code for the first time
        if first > 3 * limit or first == NO_MEASUREMENT:
            return first
        fewest = FEWEST_RUNS if first < RUN_SECONDS else 1
        best, runs = math.inf, 0
        while runs < MOST_RUNS and (runs < fewest or time.perf_counter() - began < RUN_SECONDS):
            best, runs = min(best, self.run(sizes) * share), runs + 1
            if best > MUCH_SLOWER * limit:
                break
        return best


def part_of(sizes: tuple[int, ...], share: float) -> tuple[tuple[int, ...], float]:
    """Return about ``share`` of a parallel loop, in a multiple of 16 iterations, and by how much that is less."""
    iterations = min(sizes[0], -(-int(sizes[0] * share) // 16) * 16 or 16)
    return (iterations, *sizes[1:]), sizes[0] / iterations


class Measurement:
    """Times variants in this process: one that crashes or never ends takes the process with it.

    Args:
        sink: The kernel.
        renderer: Its target.
        start: The policy's steps, to which no limit applies.
        report: Called with the steps and the error of every candidate that fails.
    """

    def __init__(self, sink: UOp, renderer: Renderer, start: Steps, report: Report) -> None:
        self.sink, self.renderer, self.start, self.report = sink, renderer, start, report
        self.watch = Stopwatch(sink, renderer, checked=report.strict)
        self._variants: dict[Steps, Variant] = {}

    def prepare(self, variants: Sequence[Steps]) -> None:
        """Do nothing: each is compiled when it is timed."""

    def __call__(self, steps: Steps, limit: float) -> float:
        """Return the seconds of a launch with these steps."""
        try:
            if steps not in self._variants:
                limited = steps != self.start
                self._variants[steps] = compile_variant(self.sink, self.renderer, steps, limited)
            return self.watch.seconds(self._variants[steps], limit)
        except Exception as error:  # noqa: BLE001  whatever is wrong with a candidate, the policy's kernel remains
            self.report.failed(steps, error)
            return NO_MEASUREMENT
