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
# Of a turn. Of long kernels one run has to do; of short ones, the shortest of some is not the one that was disturbed.
TURN_SECONDS, MOST_TURN_RUNS = 0.002, 4
# Bytes between two uses of a buffer, after which it has left the caches of a core; and copies of small buffers at most.
COLD_BYTES, MOST_COPIES = 8 << 20, 64


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

    def turns(self, variants: Sequence[Steps], count: int) -> list[list[float]]:
        """Return the seconds of each variant in ``count`` turns, in each of which all of them run, as in programs.

        All times are inf where that is not possible.
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


def no_turns(variants: Sequence[Steps], count: int) -> list[list[float]]:
    """Return what ``Measure.turns`` answers where nothing can be measured."""
    return [[NO_MEASUREMENT] * len(variants) for _ in range(count)]


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
        self._buffers: dict[tuple[int, int], Buffer] = {}
        nbytes = sum(u.arg.shape[0] * u.dtype.itemsize for u in self.params.values())
        self.copies = max(1, min(-(-COLD_BYTES // max(1, nbytes)), MOST_COPIES))
        self._next_copy = 0
        self._first_results: dict[int, bytes] | None = None
        self._launches: dict[Variant, Launch] = {}

    def seconds(self, variant: Variant, limit: float) -> float:
        """Return the seconds of one launch; see ``Measure``.

        Raises:
            WrongResultError: The stopwatch compares results, and those of this variant are others.
        """
        launch = self._launch(variant)
        return launch.best(self.memory(launch), limit)

    def _launch(self, variant: Variant) -> Launch:
        launch = self._launches.get(variant)
        if launch is None:
            launch = self._launches[variant] = Launch(self, variant)
            if self.checked:
                self._compare(launch)
        return launch

    def turns(self, variants: Sequence[Variant], count: int) -> list[list[float]]:
        """Return the seconds of each variant in each of ``count`` turns; see ``Measure``.

        Half of each time is that of a run on buffers that no cache holds any more, half that of the run after it: in
        programs, some arguments come from the kernel before, others from long ago. Nothing happens between runs, so
        that threads are awake as they are in lists of kernels. Who comes first in one turn comes last in the next one,
        and buffers go around, for where a buffer lies matters too.
        """
        launches = [self._launch(variant) for variant in variants]
        for copy in range(self.copies):  # made here, and not between two runs
            self.memory(launches[0], copy)
        rough = [launch.run(self.memory(launch), launch.sizes) for launch in launches]  # wakes the threads
        runs = [max(1, min(int(TURN_SECONDS / max(2 * seconds, 1e-9)), MOST_TURN_RUNS)) for seconds in rough]
        turns = []
        for turn in range(count):
            order = range(len(launches)) if turn % 2 == 0 else reversed(range(len(launches)))
            times = {i: self._in_use(launches[i], runs[i]) for i in order}
            turns.append([times[i] for i in range(len(launches))])
            self._next_copy += 1
        return turns

    def _in_use(self, launch: Launch, runs: int) -> float:
        """Return the seconds of one launch, cold and warm in equal shares."""
        cold, warm = math.inf, math.inf
        for _ in range(runs):
            memory = self.memory(launch, self._next_copy % self.copies)
            self._next_copy += 1
            cold = min(cold, launch.run(memory, launch.sizes))
            if self.copies == 1 and cold > LONG_SECONDS:  # it fills the caches with its own data alone
                return cold
            warm = min(warm, launch.run(memory, launch.sizes))
        return (cold + warm) / 2

    def memory(self, launch: Launch, copy: int = 0) -> list[Any]:
        """Return the device's handles of the buffers that a launch takes: one of several copies of them."""
        return [self._handle(slot, copy) for slot in launch.variant.info.globals]

    def _handle(self, slot: int, copy: int) -> Any:
        """Return the device's handle of a buffer, which all variants share; at first it holds zeros."""
        from tinygrad.buffer import Buffer

        key = (slot, copy)
        if key not in self._buffers:
            u = self.params[slot]
            buffer = Buffer(self.device, u.arg.shape[0], u.dtype).allocate()
            buffer.copyin(memoryview(bytearray(u.arg.shape[0] * u.dtype.itemsize)))
            self._buffers[key] = buffer
        return self._buffers[key].get_buf(self.device)

    def _compare(self, launch: Launch) -> None:
        info, memory = launch.variant.info, self.memory(launch)
        for slot in info.globals:
            u = self.params[slot]
            self._buffers[slot, 0].copyin(memoryview(bytearray(sample_bytes(u.dtype, u.arg.shape[0], slot))))
        launch.run(memory, launch.sizes)
        results = {slot: bytes(self._buffers[slot, 0].as_memoryview()) for slot in info.outs}
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
        signature = [(f"data{s}", s, watch.params[s].dtype, watch.params[s].arg.shape) for s in info.globals]
        signature += [(v.arg.name, i, v.dtype, ()) for i, v in enumerate(info.vars)]
        elf = TinyELF(variant.binary, info.function_name, info.target, signature)
        self._program = Device[watch.device].runtime(elf)
        self.sizes, self._local = info.launch_dims(watch.values)
        self._vals = info.vals(watch.values)

    def run(self, memory: list[Any], sizes: tuple[int, ...]) -> float:
        """Run the kernel, or a part of it; returns the seconds."""
        took: float | None = self._program(
            *memory, global_size=sizes, local_size=self._local, vals=self._vals, wait=True
        )
        return NO_MEASUREMENT if took is None else took

    def best(self, memory: list[Any], limit: float) -> float:
        """Return the shortest time of several runs. With a limit, a long kernel is measured on a part of itself."""
        sizes, share = self.sizes, 1.0
        if limit < math.inf and limit > LONG_SECONDS and getenv("BEAM_ESTIMATE", 1):
            sizes, share = part_of(self.sizes, LONG_SECONDS / limit)
        began = time.perf_counter()
        first = self.run(memory, sizes) * share  # touches memory and code for the first time
        if first > 3 * limit or first == NO_MEASUREMENT:
            return first
        fewest = FEWEST_RUNS if first < RUN_SECONDS else 1
        best, runs = math.inf, 0
        while runs < MOST_RUNS and (runs < fewest or time.perf_counter() - began < RUN_SECONDS):
            best, runs = min(best, self.run(memory, sizes) * share), runs + 1
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
            return self.watch.seconds(self._variant(steps), limit)
        except Exception as error:  # noqa: BLE001  whatever is wrong with a candidate, the policy's kernel remains
            self.report.failed(steps, error)
            return NO_MEASUREMENT

    def turns(self, variants: Sequence[Steps], count: int) -> list[list[float]]:
        """Return the seconds of each variant in each of ``count`` turns."""
        try:
            return self.watch.turns([self._variant(steps) for steps in variants], count)
        except Exception as error:  # noqa: BLE001  there may be no memory for it
            self.report.failed(variants[-1], error)
            return no_turns(variants, count)

    def _variant(self, steps: Steps) -> Variant:
        if steps not in self._variants:
            self._variants[steps] = compile_variant(self.sink, self.renderer, steps, steps != self.start)
        return self._variants[steps]
