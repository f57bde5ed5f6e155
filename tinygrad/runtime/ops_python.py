"""PYTHON: runs kernels as Python functions. Slow, exact, and the reference that every other device is compared with.

In:   linear UOps, written as Python text by ``PythonRenderer``.
Out:  the device ``PYTHON``. An access outside a buffer raises IndexError with the buffer, the index and the size.
Why:  it shows all that a device needs: an allocator, a renderer with its compiler, and a program.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from tinygrad.device import Allocator, BufferSpec, Compiled, Program, TinyELF
from tinygrad.dtype import DType, dtypes, to_dtype
from tinygrad.helpers import to_mv
from tinygrad.renderer.python import PythonRenderer, memory_format

__all__ = ["PythonAllocator", "PythonDevice", "PythonProgram", "PythonRenderer"]


class PythonAllocator(Allocator[memoryview]):
    """Memory is a memory view of bytes, so views, copies and foreign memory need nothing else."""

    wraps_memory = True

    def _alloc(self, size: int, options: BufferSpec) -> memoryview:
        if options.external_ptr is not None:
            return to_mv(options.external_ptr, size)
        return memoryview(bytearray(size))

    def _copyin(self, dest: memoryview, src: memoryview) -> None:
        dest[: len(src)] = src

    def _copyout(self, dest: memoryview, src: memoryview) -> None:
        dest[:] = src[: len(dest)]

    def _offset(self, buf: memoryview, size: int, offset: int) -> memoryview:
        return buf[offset : offset + size]

    def _as_buffer(self, buf: memoryview) -> memoryview:
        return buf


def _names(code: CodeType) -> set[str]:
    """Global names that a function uses, those of its comprehensions included."""
    found: set[str] = set()
    pending = [code]
    while pending:
        current = pending.pop()
        found.update(current.co_names)
        pending += [item for item in current.co_consts if isinstance(item, CodeType)]
    return found


@functools.lru_cache(maxsize=1024)
def _load(text: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the kernel's function, and the facts that its first lines state."""
    # Here, because only kernels of this device need them; its memory holds the data of every ``Tensor([1, 2, 3])``.
    import ast

    from tinygrad.runtime.support.python_numbers import namespace_for

    facts = {}
    for line in itertools.takewhile(lambda line: line.startswith("# "), text.splitlines()):
        key, _, value = line[2:].partition(" = ")
        facts[key] = ast.literal_eval(value)
    code = compile(text, "<kernel of the PYTHON device>", "exec")
    namespace = namespace_for(tuple(sorted(_names(code))))
    namespace["__builtins__"] = {"range": range, "zip": zip, "int": int, "float": float}
    exec(code, namespace)
    name = next(item.co_name for item in code.co_consts if isinstance(item, CodeType))
    return namespace[name], facts


class PythonProgram(Program):
    """Runs the work-items of a kernel one after the other; between two barriers, all those of a group."""

    def __init__(self, dev: Any, elf: TinyELF) -> None:
        super().__init__(dev, elf)
        self.function, self.facts = _load(elf.lib.decode())

    def __call__(
        self,
        *bufs: Any,
        global_size: tuple[int, ...] = (1, 1, 1),
        local_size: tuple[int, ...] | None = (1, 1, 1),
        vals: Sequence[int] = (),
        wait: bool = False,
        timeout: float | None = None,
    ) -> float | None:
        """Run the kernel; see ``Program``. A THREAD loop has ``global_size[0]`` iterations and no grid around it."""
        start = time.perf_counter()
        memory = self._typed(bufs)
        has_threads = self.facts["threads"]
        groups, items = _indices((1,) if has_threads else global_size), _indices(local_size or (1,))
        end = int(global_size[0]) if has_threads else 1
        for group in groups:
            shared = tuple([_poison(to_dtype(name))] * size for name, size in self.facts["shared"])
            launched = [self.function(memory, tuple(vals), group, local, 0, end, shared) for local in items]
            if self.facts["barrier"]:
                self._in_lockstep(launched)
        return time.perf_counter() - start if wait else None

    def _typed(self, bufs: Sequence[memoryview]) -> tuple[memoryview, ...]:
        declared = self.facts["buffers"]
        if len(bufs) != len(declared):
            raise RuntimeError(f"{self.name}: the kernel takes {len(declared)} buffers, got {len(bufs)}")
        typed = []
        for number, (buf, (name, size)) in enumerate(zip(bufs, declared, strict=True)):
            dtype = to_dtype(name)
            nbytes = size * dtype.itemsize
            if len(buf) < nbytes:
                raise IndexError(f"{self.name}: buffer {number} has {len(buf)} bytes, the kernel's has {nbytes}")
            code: Any = memory_format(dtype)
            typed.append(buf[:nbytes].cast(code))
        return tuple(typed)

    def _in_lockstep(self, items: list[Iterator[None]]) -> None:
        while items:
            waiting = [item for item in items if next(item, self) is None]
            if waiting and len(waiting) != len(items):
                raise RuntimeError(
                    f"{self.name}: {len(waiting)} of {len(items)} work-items wait at a barrier that others never reach"
                )
            items = waiting


def _indices(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Every (x, y, z) of a grid, x fastest."""
    x, y, z = (*(int(size) for size in sizes), 1, 1, 1)[:3]
    return [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]


def _poison(dtype: DType) -> Any:
    """What fresh local memory holds: a value that shows if a kernel reads before it writes."""
    return math.nan if dtypes.is_float(dtype) else dtype is dtypes.bool or 0x55


class PythonDevice(Compiled):
    """The device ``PYTHON``."""

    has_clock = False

    def __init__(self, device: str = "PYTHON") -> None:
        super().__init__(device, PythonAllocator(self), [PythonRenderer], functools.partial(PythonProgram, self))
