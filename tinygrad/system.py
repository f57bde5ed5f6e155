"""The machine around the process: files, commands, raw memory.

In:   paths, command lines, addresses.
Out:  text, bytes, memory views.
Why:  what depends on the operating system is in one file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "amdgpu_disassemble",
    "capstone_flatdump",
    "cpu_objdump",
    "flat_mv",
    "from_mv",
    "host_machine",
    "mv_address",
    "system",
    "temp",
    "to_char_p_p",
    "to_mv",
]


def host_machine() -> str:
    """Return the architecture of the machine that runs, such as ``x86_64``, in lower case."""
    if hasattr(os, "uname"):
        return os.uname().machine.lower()
    import platform  # slow to import

    return platform.machine().lower()


def temp(name: str, append_user: bool = False) -> str:
    """Return the path of ``name`` in the temporary folder, with ``.<user>`` at the end if asked."""
    import tempfile

    return str(Path(tempfile.gettempdir()) / (f"{name}.{_user()}" if append_user else name))


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid()) if hasattr(os, "getuid") else "user"


def system(cmd: str | Sequence[str], **kw: Any) -> str:
    """Run a command without a shell and return what it printed.

    Args:
        cmd: The command line; a string is split at spaces as a shell would.
        **kw: Passed to ``subprocess.run``.

    Raises:
        RuntimeError: The command does not exist or exits with another status than 0; its output is in the message.
    """
    import shlex
    import subprocess

    words = shlex.split(cmd) if isinstance(cmd, str) else list(cmd)
    try:
        done = subprocess.run(words, **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "check": False, **kw})
    except FileNotFoundError as error:
        raise RuntimeError(f"system: {words[0]} is not installed") from error
    output = done.stdout if isinstance(done.stdout, str) else (done.stdout or b"").decode(errors="replace")
    if done.returncode:
        raise RuntimeError(f"system: {' '.join(words)} failed with exit status {done.returncode}:\n{output}")
    return output.strip()


# ---- memory views --------------------------------------------------------------------------------------------------


def flat_mv(mv: memoryview) -> memoryview:
    """Return the bytes of a contiguous memory view as a view of one dimension."""
    if mv.nbytes == 0:
        return memoryview(b"")
    return mv if mv.ndim == 1 and mv.format == "B" else mv.cast("B")


def mv_address(mv: memoryview) -> int:
    """Return the address of the first byte; 0 for an empty view. Read-only views work too."""
    import ctypes

    if mv.nbytes == 0:
        return 0
    if not mv.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(mv))
    import numpy as np

    return int(np.frombuffer(mv, dtype=np.uint8).ctypes.data)


def from_mv(mv: memoryview, to_type: type[Any] | None = None) -> Any:
    """Return a ctypes array of ``to_type`` (c_char) over the memory of a view."""
    import ctypes

    element = to_type or ctypes.c_char
    length = mv.nbytes // ctypes.sizeof(element)
    # The array keeps the view's memory alive only while the view lives; callers hold on to it.
    return ctypes.cast(mv_address(mv), ctypes.POINTER(element * length)).contents


def to_mv(ptr: int, sz: int) -> memoryview:
    """Return a memory view of ``sz`` bytes at an address."""
    import ctypes

    return memoryview((ctypes.c_uint8 * sz).from_address(ptr)).cast("B") if sz else memoryview(bytearray())


def to_char_p_p(options: Sequence[bytes], to_type: type[Any] | None = None) -> Any:
    """Return a C array of strings (``char **``)."""
    import ctypes

    element = ctypes.POINTER(to_type or ctypes.c_char)
    # The strings stay alive as the array's own attribute: cast pointers do not keep their buffers.
    buffers = [ctypes.create_string_buffer(option) for option in options]
    array = (element * len(options))(*(ctypes.cast(buffer, element) for buffer in buffers))
    array._strings = buffers  # type: ignore[attr-defined]  # ctypes objects take attributes
    return array


# ---- disassembly ---------------------------------------------------------------------------------------------------


def _disassemble(lib: bytes, command: Sequence[str]) -> str:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.o"
        file.write_bytes(lib)
        return system([*command, str(file)])


def cpu_objdump(lib: bytes, objdump_tool: str = "objdump") -> str:
    """Return the disassembly of an object file, by objdump."""
    return _disassemble(lib, [objdump_tool, "-d"])


def amdgpu_disassemble(lib: bytes) -> str:
    """Return the disassembly of an AMD GPU object file, by llvm-objdump."""
    return _disassemble(lib, ["llvm-objdump", "-d"])


def capstone_flatdump(lib: bytes, arch: str | None = None) -> str:
    """Return the disassembly of bare machine code, by the capstone package.

    Raises:
        RuntimeError: capstone is not installed, or the architecture is not known to it here.
    """
    try:
        import capstone  # type: ignore[import-not-found, unused-ignore]  # may be installed or not
    except ImportError as error:
        raise RuntimeError("capstone_flatdump: the package capstone is not installed (pip install capstone)") from error
    machine = (arch or host_machine()).lower()
    if machine in {"x86_64", "amd64"}:
        decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    elif machine in {"aarch64", "arm64"}:
        decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    else:
        raise RuntimeError(f"capstone_flatdump: no disassembler for {machine}; expected x86_64 or aarch64")
    decoder.skipdata = True
    return "\n".join(f"{i.address:#08x}: {i.mnemonic}\t{i.op_str}" for i in decoder.disasm(lib, 0))
