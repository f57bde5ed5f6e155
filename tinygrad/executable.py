"""From the source of a kernel to something that runs: what a device file fills in.

In:   source text.
Out:  ``Compiler.compile`` gives bytes, ``TinyELF`` holds them with all that is needed to call them, and ``Program`` is
      such a kernel loaded on a device.
Why:  a renderer's compiler and a device's runtime meet here, and neither knows the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.settings import CCACHE

if TYPE_CHECKING:
    from tinygrad.dtype import DType
    from tinygrad.target import Target

__all__ = ["CompileError", "Compiler", "Program", "StorageOnlyError", "TinyELF"]


class StorageOnlyError(RuntimeError, AssertionError):
    """A computation on a device that only stores data, such as DISK."""


class CompileError(Exception):
    """The source of a kernel does not compile; the message holds the compiler's output."""


def _digest(src: str) -> str:
    import hashlib

    return hashlib.sha256(src.encode()).hexdigest()


class Compiler:
    """Turns the source of a kernel into bytes. The default keeps the text.

    Args:
        cachekey: Table of the disk cache that holds compiled programs, or None to compile every time. It must name
            everything that the result depends on besides the source: compiler version, flags, architecture.
    """

    def __init__(self, cachekey: str | None = None) -> None:
        self.cachekey = cachekey if CCACHE.value else None

    def compile(self, src: str) -> bytes:
        """Compile ``src``. Raises CompileError."""
        return src.encode()

    def compile_cached(self, src: str) -> bytes:
        """Compile ``src``, or take the result from the disk cache."""
        found = self.find(src)
        return self.compile_and_keep(src) if found is None else found

    def find(self, src: str) -> bytes | None:
        """Return what ``src`` was compiled to before, if the disk cache has it."""
        if self.cachekey is None:
            return None
        from tinygrad.helpers import diskcache_get

        lib = diskcache_get(self.cachekey, _digest(src))
        return lib if isinstance(lib, bytes) else None

    def compile_and_keep(self, src: str) -> bytes:
        """Compile ``src`` and put the result into the disk cache."""
        made = self.compile(src)
        self.keep(src, made)
        return made

    def keep(self, src: str, lib: bytes) -> None:
        """Put what ``src`` was compiled to into the disk cache."""
        if self.cachekey is not None:
            from tinygrad.helpers import diskcache_put

            diskcache_put(self.cachekey, _digest(src), lib)

    def disassemble(self, lib: bytes) -> None:
        """Print the machine code of a compiled program."""


class TinyELF:
    """A compiled kernel with all that is needed to load and call it.

    Args:
        lib: What the compiler gave.
        name: Name of the function.
        target: Text of the target that it was compiled for.
        signature: (name, slot, dtype, shape) of each buffer, in the order in which they are passed, then of each
            variable (shape ()).
        profile_key: Key under which profiles show the kernel.
    """

    __slots__ = ("lib", "name", "profile_key", "signature", "target")

    def __init__(
        self,
        lib: bytes,
        name: str,
        target: Target | str = "",
        signature: Sequence[tuple[str, int, DType, tuple[int, ...]]] = (),
        profile_key: bytes | None = None,
    ) -> None:
        self.lib, self.name, self.target, self.signature = lib, name, target, tuple(signature)
        self.profile_key = profile_key

    @staticmethod
    def iter_sig(
        signature: Sequence[tuple[str, int, DType, tuple[int, ...]]], offset: int = 0
    ) -> Iterator[tuple[int, DType]]:
        """Yield (byte offset, dtype) of every argument in an argument block, each aligned to its size.

        A buffer is passed as its address (uint64).
        """
        from tinygrad.dtype import dtypes

        for _, _, dtype, shape in signature:
            passed = dtypes.uint64 if shape else dtype
            offset = -(-offset // passed.itemsize) * passed.itemsize
            yield offset, passed
            offset += passed.itemsize


class Program:
    """A kernel loaded on a device, ready to run."""

    def __init__(self, dev: Any, elf: TinyELF) -> None:
        self.dev, self.elf, self.name = dev, elf, elf.name

    def __call__(
        self,
        *bufs: Any,
        global_size: tuple[int, ...] = (1, 1, 1),
        local_size: tuple[int, ...] | None = (1, 1, 1),
        vals: Sequence[int] = (),
        wait: bool = False,
        timeout: float | None = None,
    ) -> float | None:
        """Run the kernel.

        Args:
            bufs: The allocator's handles of the buffers, in the order of the program's ``globals``.
            global_size: Work-groups of the grid; on a CPU (iterations of the THREAD loop, 1, 1).
            local_size: Work-items of a group; None where the device has no groups.
            vals: Values of the variables, in the order of the program's ``vars``.
            wait: Wait for the end and return the time.
            timeout: Milliseconds after which a waiting call gives up, where the device can.

        Returns:
            Seconds if ``wait``, else None.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement __call__")
