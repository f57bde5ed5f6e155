"""A C compiler of the system: clang, or what the environment variable CC names.

In:   C source of a kernel.
Out:  an ELF object file.
Why:  a second way from kernel to machine code, to compare with LLVM's; and its source can be read.
"""

from __future__ import annotations

from tinygrad.device import CompileError, Compiler
from tinygrad.runtime.support.cpu_arch import CPUArch
from tinygrad.settings import getenv

# Every operation rounds by itself, integers wrap, and kernels need nothing but themselves.
_FLAGS = (
    "-c", "-x", "c", "-std=gnu11", "-O2", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fwrapv",
    "-fno-strict-aliasing",    "-fno-stack-protector", "-fno-jump-tables", "-fno-asynchronous-unwind-tables", "-w",
)  # fmt: skip


class ClangCompiler(Compiler):
    """Runs the C compiler as a child process."""

    def __init__(self, arch: CPUArch, command: str | None = None) -> None:
        self.arch = arch
        self.command = command or getenv("CC", "clang")
        super().__init__(f"compile_c_{self.command}_{arch.key}".translate(str.maketrans("-+/. ", "_p___")))

    def _machine_flags(self) -> list[str]:
        flags = [f"-march={self.arch.cpu or 'native'}"]
        if self.arch.cpu:
            flags.append(f"--target={self.arch.machine}-unknown-linux-gnu")
        return flags + [f"-m{'no-' if name[0] == '-' else ''}{name[1:]}" for name in self.arch.features]

    def compile(self, src: str) -> bytes:
        """Compile C source to an object file.

        Raises:
            CompileError: The compiler is missing or refuses the source; the message holds its output.
        """
        # Imported here: most programs never run a C compiler, and these modules take as long as opening the device.
        import shutil
        import subprocess
        import tempfile
        from pathlib import Path

        if shutil.which(self.command.split()[0]) is None:
            raise CompileError(
                f"the C compiler {self.command!r} is not installed; install clang, set CC to another compiler, or use "
                "DEV=CPU:LLVM, which needs none"
            )
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "kernel.o"  # assemblers seek in their output, so it cannot be a pipe
            command = [*self.command.split(), *_FLAGS, *self._machine_flags(), "-", "-o", str(output)]
            done = subprocess.run(command, input=src.encode(), capture_output=True, check=False)
            if done.returncode:
                raise CompileError(f"{self.command} failed:\n{done.stderr.decode(errors='replace')}")
            return output.read_bytes()

    def disassemble(self, lib: bytes) -> None:
        """Print the machine code, if the machine has objdump."""
        from tinygrad.helpers import cpu_objdump

        print(cpu_objdump(lib))  # noqa: T201  DEBUG=7 asked for it
