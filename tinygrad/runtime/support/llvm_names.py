"""Processors and features that LLVM does not know, told before it ends the process.

In:   a triple and the names that ``DEV=CPU:LLVM:x86_64,NAME,+FEATURE`` gave.
Out:  those that LLVM does not know.
Why:  LLVM ignores an unknown name with a line on stderr, and then gives up the process where the code needs what the
      processor would have had. It has no function that says which names it knows, so another process asks it.
"""

from __future__ import annotations

import functools
import sys

_PROGRAM = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu=sys.argv[2], features=sys.argv[3])
"""
_SECONDS = 30  # it takes an eighth of one


@functools.cache
def unknown_names(triple: str, cpu: str, features: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names among ``cpu`` and ``features`` that LLVM does not know; none if it cannot be asked.

    Example:
        >>> unknown_names("x86_64-unknown-linux-gnu", "ivybridge", ("+avx", "-avx5"))
        ('-avx5',)
    """
    import subprocess  # rarely needed, and slow to import

    command = [sys.executable, "-c", _PROGRAM, triple, cpu, ",".join(features)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False).stderr
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(name for name in (cpu, *features) if f"'{name}' is not a recognized" in said)
