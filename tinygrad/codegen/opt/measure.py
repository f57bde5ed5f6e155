"""Measure one kernel with given steps on its device: what BEAM asks.

In:   a prepared kernel SINK and steps.
Out:  seconds of one launch on buffers of zeros; inf if it does not compile or run, or there is no memory to try it.
Why:  no cost model knows a machine as well as a clock does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tinygrad.codegen.opt import Opt
from tinygrad.dtype import AddrSpace
from tinygrad.helpers import DEBUG, Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from tinygrad.buffer import Buffer
    from tinygrad.renderer import Renderer

REPEATS = 5
TIME_LIMIT = 2.0  # seconds for one candidate


def _sample_values(sink: UOp) -> dict[str, int]:
    """Return the middle of every Variable's bounds."""
    return {v.expr: (v.arg.vmin_vmax[0] + v.arg.vmin_vmax[1] + 1) // 2 for v in sink.variables()}


class Measurement:
    """Buffers of one kernel, and a way to time its variants on them."""

    def __init__(self, sink: UOp, renderer: Renderer) -> None:
        self.sink, self.renderer = sink, renderer
        self.device = renderer.target.device
        params = (u for u in sink.toposort() if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.GLOBAL)
        self.params = {u.arg.slot: u for u in params}
        self._buffers: dict[int, Buffer] = {}
        self._launches: dict[tuple[Opt, ...], Callable[[], float | None]] = {}

    def __call__(self, steps: tuple[Opt, ...], limit: float) -> float:
        """Return the seconds of a launch with these steps."""
        try:
            if steps not in self._launches:
                self._launches[steps] = self._launch(steps)
            return self._best(self._launches[steps], limit)
        except Exception as error:  # noqa: BLE001  whatever is wrong with a candidate, the policy's kernel remains
            if DEBUG >= 4:
                print(f"BEAM: {steps} failed: {type(error).__name__}: {error}")  # noqa: T201
            return math.inf

    def _memory(self, slot: int) -> Any:
        """Return a buffer of zeros, which all variants share."""
        from tinygrad.buffer import Buffer

        if slot not in self._buffers:
            u = self.params[slot]
            buffer = Buffer(self.device, u.arg.shape[0], u.dtype).allocate()
            buffer.copyin(memoryview(bytearray(u.arg.shape[0] * u.dtype.itemsize)))
            self._buffers[slot] = buffer
        return self._buffers[slot].get_buf(self.device)

    def _launch(self, steps: tuple[Opt, ...]) -> Callable[[], float | None]:
        """Compile the kernel with these steps; the result runs it once and returns the seconds."""
        from tinygrad.codegen import do_to_program
        from tinygrad.device import Device, TinyELF

        ast = self.sink.replace(arg=replace(self.sink.arg, opts_to_apply=steps))
        with Context(DEBUG=0 if DEBUG < 5 else DEBUG.value, BEAM=0):
            program = do_to_program(ast, self.renderer)
        info = program.arg
        memory = [self._memory(slot) for slot in info.globals]
        signature = [(f"data{s}", s, self.params[s].dtype, self.params[s].arg.shape) for s in info.globals]
        signature += [(v.arg.name, i, v.dtype, ()) for i, v in enumerate(info.vars)]
        elf = TinyELF(program.src[3].arg, info.function_name, info.target, signature)
        run = Device[self.device].runtime(elf)
        values = _sample_values(self.sink)
        sizes, local = info.launch_dims(values)
        vals = info.vals(values)
        return lambda: run(*memory, global_size=sizes, local_size=local, vals=vals, wait=True, timeout=TIME_LIMIT)

    @staticmethod
    def _best(launch: Callable[[], float | None], limit: float) -> float:
        best, began = math.inf, time.perf_counter()
        for _ in range(REPEATS):
            took = launch()
            best = min(best, math.inf if took is None else took)
            if best > 3 * limit or time.perf_counter() - began > TIME_LIMIT:
                break
        return best
