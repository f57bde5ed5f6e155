"""LLVM as a code generator: IR text in, object code out.

In:   the text of an LLVM IR module that is already in its final form, and a processor.
Out:  an ELF object file.
Why:  only code generation runs, no IR pass pipeline: the renderer writes phi nodes, vectors and folded addresses
      itself, and that halves the compile time. The C functions of llvmlite's library are called directly, with an
      LLVM context and a target machine of its own: llvmlite's own Python layer holds one lock around every
      call, so it could not compile two kernels at once. ctypes releases the interpreter lock meanwhile.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any, Final

from tinygrad.device import CompileError, Compiler
from tinygrad.forking import renew_in_child
from tinygrad.runtime.support.cpu_arch import CPUArch, known_names
from tinygrad.runtime.support.llvm_names import unknown_names

# 0 to 3, as clang's -O levels: it chooses instruction selection and scheduling. 2 and 3 give the same code for kernels.
_CODEGEN_LEVEL: Final = 2
# ELF everywhere, macOS included: the loader is the project's own.
_TRIPLES: Final = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}

# Functions that take long. Others keep the interpreter lock: a thread that gives it up waits for it afterwards, for
# milliseconds while another one lowers kernels.
_LONG: Final = frozenset({"ParseAssembly", "TargetMachineEmitToMemory"})
_P, _S, _I = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_PROTOTYPES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "ContextCreate": (_P, []),
    "ContextDispose": (None, [_P]),
    "ParseAssembly": (_P, [_P, _S, ctypes.POINTER(_P)]),
    "VerifyModule": (_I, [_P, ctypes.POINTER(_P)]),
    "DisposeModule": (None, [_P]),
    "GetTargetFromTriple": (_P, [_S, ctypes.POINTER(_P)]),
    "CreateTargetMachine": (_P, [_P, _S, _S, _S, _I, _S, _S, _I, _I, _S]),
    "TargetMachineEmitToMemory": (_P, [_P, _P, _I, ctypes.POINTER(_P)]),
    "GetBufferStart": (_P, [_P]),
    "GetBufferSize": (ctypes.c_size_t, [_P]),
    "DisposeMemoryBuffer": (None, [_P]),
    "GetHostCPUName": (None, [ctypes.POINTER(_P)]),
    "GetHostCPUFeatures": (_I, [ctypes.POINTER(_P)]),
    "DisposeString": (None, [_P]),
}
_load_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_load_lock")


@functools.cache
def _library_path() -> Path | None:
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "binding"
    names = ("libllvmlite.so", "libllvmlite.dylib", "llvmlite.dll")
    return next((folder / name for name in names if (folder / name).exists()), None)


@functools.cache
def _library_version() -> str:
    """Return text that changes with every installed version; asking the package index for it would take longer."""
    path = _library_path()
    if path is None:
        return "none"
    found = path.stat()
    return f"{found.st_size:x}_{found.st_mtime_ns // 10**9:x}"


class _Library:
    """LLVM's C functions by name; those in ``_LONG`` run without the interpreter lock."""

    def __init__(self, path: Path) -> None:
        unlocked, locked = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(unlocked if name in _LONG else locked, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        for name in ("AllTargetInfos", "AllTargets", "AllTargetMCs", "AllAsmPrinters"):
            getattr(unlocked, f"LLVMPY_Initialize{name}")()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"LLVM: the function {name} has no prototype here")


@functools.cache
def _load() -> _Library:
    path = _library_path()
    if path is None:
        raise CompileError("the package llvmlite is not installed, or has no library; run: pip install llvmlite")
    return _Library(path)


def llvm_library() -> _Library:
    """Return the LLVM library with its targets initialised.

    Raises:
        CompileError: llvmlite is not installed.
    """
    with _load_lock:
        return _load()


def _take_string(library: _Library, pointer: ctypes.c_void_p) -> str:
    if not pointer.value:
        return ""
    text = ctypes.string_at(pointer.value).decode(errors="replace")
    library.DisposeString(pointer)
    return text


@functools.cache
def host_cpu() -> str:
    """Return LLVM's name of the processor that runs."""
    library, text = llvm_library(), ctypes.c_void_p()
    library.GetHostCPUName(ctypes.byref(text))
    return _take_string(library, text)


@functools.cache
def host_features() -> str:
    """Return the features of the processor that runs, as LLVM takes them: ``+avx,-avx512f,...``."""
    library, text = llvm_library(), ctypes.c_void_p()
    library.GetHostCPUFeatures(ctypes.byref(text))
    return _take_string(library, text)


@functools.cache
def check_names(arch: CPUArch) -> None:
    """Refuse a processor or features that LLVM does not know.

    Raises:
        CompileError: There are some.
    """
    given = {arch.cpu, *(feature[1:] for feature in arch.features)} - {""}
    if given <= known_names():
        return
    import difflib  # rarely needed, and slow to import

    for name in unknown_names(_TRIPLES[arch.machine], arch.cpu, arch.features):
        what, plain = ("processor", name) if name == arch.cpu else ("feature", name[1:])
        near = difflib.get_close_matches(plain, known_names(), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise CompileError(f"DEV: LLVM knows no {what} {plain!r} of {arch.machine}{hint}")


class LLVMCompiler(Compiler):
    """Compiles LLVM IR for one processor; may be used from several threads at once."""

    def __init__(self, arch: CPUArch, level: int = _CODEGEN_LEVEL) -> None:
        self.arch, self.level = arch, level
        # Machines that no thread is using. Threads come and go (a pool per realize), machines stay.
        self._machines: collections.deque[Any] = collections.deque()
        super().__init__(f"compile_llvm_{_library_version()}_{arch.key}_{level}".replace("-", "_").replace("+", "p"))

    def _take_target_machine(self, library: _Library) -> Any:
        try:
            return self._machines.pop()
        except IndexError:
            return self._make_target_machine(library)

    def _make_target_machine(self, library: _Library) -> Any:
        arch, error = self.arch, ctypes.c_void_p()
        triple = _TRIPLES[arch.machine].encode()
        target = library.GetTargetFromTriple(triple, ctypes.byref(error))
        if not target:
            raise CompileError(f"LLVM: no target for {triple.decode()}: {_take_string(library, error)}")
        check_names(arch)
        native = not arch.cpu
        cpu = host_cpu() if native else arch.cpu
        features = ",".join(([host_features()] if native else []) + list(arch.features))
        return library.CreateTargetMachine(
            target, triple, cpu.encode(), features.encode(), self.level, b"pic", b"small", 0, 0, b""
        )

    def compile(self, src: str) -> bytes:
        """Compile IR text to an object file.

        Raises:
            CompileError: The IR is malformed; the message quotes the line.
        """
        return self._emit(src, as_object=True)

    def assembly(self, src: str) -> str:
        """Return the assembly that ``src`` compiles to, for reading."""
        return self._emit(src, as_object=False).decode()

    def _emit(self, src: str, as_object: bool) -> bytes:
        library = llvm_library()
        machine, error = self._take_target_machine(library), ctypes.c_void_p()
        context = library.ContextCreate()
        module = None
        try:
            module = library.ParseAssembly(context, src.encode(), ctypes.byref(error))
            if not module:
                raise CompileError(f"LLVM IR does not parse: {_take_string(library, error)}")
            if library.VerifyModule(module, ctypes.byref(error)):
                raise CompileError(f"LLVM IR is invalid: {_take_string(library, error)}\n{src}")
            buffer = library.TargetMachineEmitToMemory(machine, module, int(as_object), ctypes.byref(error))
            if not buffer:
                raise CompileError(f"LLVM gave no code: {_take_string(library, error)}")
            start, size = library.GetBufferStart(buffer), library.GetBufferSize(buffer)
            code = ctypes.string_at(start, size)
            library.DisposeMemoryBuffer(buffer)
            return code
        finally:
            if module:
                library.DisposeModule(module)
            library.ContextDispose(context)
            self._machines.append(machine)

    def disassemble(self, lib: bytes) -> None:
        """Print the machine code, if the machine has objdump."""
        from tinygrad.helpers import cpu_objdump

        print(cpu_objdump(lib))  # noqa: T201  DEBUG=7 asked for it
