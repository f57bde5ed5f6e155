"""Devices: how one is found, opened and asked for its renderer.

In:   device names such as ``CPU``, ``PYTHON:1`` or ``disk:/path``, and the ``DEV`` context variable.
Out:  ``Device[name]`` (an opened ``Compiled``). ``Buffer`` (memory on a device) and the small classes that a device
      file fills in, ``Allocator``, ``Compiler`` and ``Program``, can be imported from here too.
Why:  a device is the module ``tinygrad.runtime.ops_<name>``, imported on first use, so an outside package can add one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

from tinygrad.buffer import (
    Allocator,
    Buffer,
    BufferSpec,
    LRUAllocator,
    MultiBuffer,
    register_device_lookup,
)
from tinygrad.errors import ArgumentError, error_text, shown
from tinygrad.executable import CompileError, Compiler, Program, StorageOnlyError as StorageOnlyError, TinyELF
from tinygrad.forking import renew_in_child
from tinygrad.profiling import (
    ProfileDeviceEvent,
    ProfileGraphEntry,
    ProfileGraphEvent,
    ProfileProgramEvent,
    cpu_events,
)
from tinygrad.settings import ALLOW_DEVICE_USAGE, DEBUG, DEV, PROFILE
from tinygrad.target import Target

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer

__all__ = [
    "Allocator",
    "Buffer",
    "BufferSpec",
    "CompileError",
    "Compiled",
    "Compiler",
    "Device",
    "LRUAllocator",
    "MultiBuffer",
    "ProfileDeviceEvent",
    "ProfileGraphEntry",
    "ProfileGraphEvent",
    "ProfileProgramEvent",
    "Program",
    "TinyELF",
    "canonicalize_device",
    "enumerate_devices_str",
]

# The CPU stands before devices that must not be chosen by accident; a GPU is chosen only if its ``probe`` runs a
# kernel.
_PROBE_ORDER = ("METAL", "AMD", "NV", "CUDA", "QCOM", "CL", "CPU", "DSP", "WEBGPU")
# Devices without a compiler of their own may be used while tracing.
_ALWAYS_ALLOWED = frozenset({"DISK", "TINYFS", "NPY", "PYTHON"})
_NAMED_BY_TEXT = frozenset({"DISK", "TINYFS"})  # behind the colon is a path


class _Device:
    """The registry of devices; ``Device`` is its one instance."""

    def __init__(self) -> None:
        self._opened: dict[str, Compiled] = {}
        self._names: dict[str, str] = {}
        self._probed: str | None = None
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")

    @property
    def _opened_devices(self) -> set[str]:
        return set(self._opened)

    def canonicalize(self, device: str | None) -> str:
        """Return the one spelling of a device name: upper case, without ``:0``; None is the default device.

        Example:
            >>> Device.canonicalize("cpu:0"), Device.canonicalize("disk:/Data/x")
            ('CPU', 'DISK:/Data/x')
        """
        if device is None:
            return self.DEFAULT
        known = self._names.get(device)
        if known is None:
            if not isinstance(device, str):
                raise ArgumentError(
                    f"Device: {device!r} of type {type(device).__name__}; expected a name such as 'CPU'"
                )
            name, colon, rest = device.partition(":")
            known = self._names[device] = name.upper() + ("" if rest == "0" else colon + rest)
        return known

    def __getitem__(self, name: str) -> Compiled:
        """Return the opened device.

        Raises:
            ModuleNotFoundError: No device file has this name.
            AssertionError: Devices are forbidden here (``ALLOW_DEVICE_USAGE=0``), as inside a traced function.
        """
        name = self.canonicalize(name)
        if not ALLOW_DEVICE_USAGE.get() and name.partition(":")[0] not in _ALWAYS_ALLOWED:
            raise AssertionError(
                f"usage of device {name} disallowed: a traced function only builds a graph, so it can neither realize "
                "a tensor nor read its values; do that outside the function"
            )
        return self.described(name)

    def described(self, name: str) -> Compiled:
        """Return the opened device, to ask what it is like: that may decide on the graph, so traced functions ask too.

        Raises:
            ModuleNotFoundError: No device file has this name.
        """
        name = self.canonicalize(name)
        opened = self._opened.get(name)
        return opened if opened is not None else self._open(name)

    def _open(self, name: str) -> Compiled:
        with self._lock:
            if name not in self._opened:
                device = self.get_class(name)(name)  # type: ignore[call-arg] # a device file's class takes the name
                self._opened[name] = device
                if PROFILE.get():
                    cpu_events.append(ProfileDeviceEvent(name, {"arch": device.arch, "class": type(device).__name__}))
                if DEBUG.get() >= 1:
                    print(f"opened device {name} in process {os.getpid()}")  # noqa: T201
            return self._opened[name]

    def get_class(self, name: str) -> type[Compiled]:
        """Return the class of a device without opening it: ``<Name>Device`` of ``tinygrad.runtime.ops_<name>``.

        Raises:
            ModuleNotFoundError: No device file has this name.
        """
        short = self.canonicalize(name).partition(":")[0]
        module_name = f"tinygrad.runtime.ops_{short.lower()}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise  # the device file exists and lacks a package of its own: its message is the right one
            raise ModuleNotFoundError(_unknown_device(short), name=module_name) from None
        for attribute, value in vars(module).items():
            if attribute.upper() == f"{short}DEVICE" and isinstance(value, type):
                return value
        raise ModuleNotFoundError(f"Device: {module_name} does not define a class {short.title()}Device")

    @property
    def DEFAULT(self) -> str:  # noqa: N802  part of the public interface
        """The device of tensors that name none: the first of ``DEV``, else the first usable device."""
        for target in DEV.get():
            if target.device:
                return target.device
        if self._probed is None:
            self._probed = self._probe()
        return self._probed

    @DEFAULT.setter
    def DEFAULT(self, value: object) -> None:  # noqa: N802
        raise AttributeError(
            f"setting Device.DEFAULT is deprecated; write DEV.value = {value!r} or with Context(DEV={value!r}):"
        )

    def _probe(self) -> str:
        with self._lock:
            for name in _PROBE_ORDER:
                # A broken driver must not keep the package from working on the CPU, whatever it raises.
                with contextlib.suppress(Exception):
                    if _has_file(name) and self.get_class(name).probe():
                        os.environ["DEV"] = name  # child processes need not search again
                        return name
        raise RuntimeError(
            f"Device: no usable devices; tried {', '.join(_PROBE_ORDER)}. Set DEV to one that exists here, such as "
            "DEV=PYTHON, and see python -m tinygrad.device for what is missing"
        )

    @property
    def default(self) -> Compiled:
        """The opened default device."""
        return self[self.DEFAULT]

    def get_available_devices(self) -> Iterator[str]:
        """Yield the names of the devices that open here, in the order in which a default is looked for."""
        for name in (*_PROBE_ORDER, "PYTHON", "NULL", "NPY"):
            with contextlib.suppress(Exception):
                yield self[name].device

    def finalize(self) -> None:
        """Let every opened device release what it holds; called at exit."""
        for device in reversed(list(self._opened.values())):
            with contextlib.suppress(Exception):  # the interpreter is shutting down: nothing can be done about it
                device.finalize()


def _has_file(short: str) -> bool:
    module = f"tinygrad.runtime.ops_{short.lower()}"
    return module in sys.modules or importlib.util.find_spec(module) is not None


def _device_files() -> list[str]:
    import tinygrad.runtime

    found = pkgutil.iter_modules(tinygrad.runtime.__path__)
    return sorted(module.name[4:].upper() for module in found if module.name.startswith("ops_"))


def _unknown_device(name: str) -> str:
    import difflib

    known = _device_files()
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known devices: {', '.join(known)}"
    return error_text("Device", f"there is no device {name!r} (no module tinygrad.runtime.ops_{name.lower()}); {hint}")


Device = _Device()
register_device_lookup(Device)
atexit.register(Device.finalize)


@overload
def canonicalize_device(device: str | None) -> str: ...
@overload
def canonicalize_device(device: Sequence[str]) -> str | tuple[str, ...]: ...
def canonicalize_device(device: str | Sequence[str] | None) -> str | tuple[str, ...]:
    """Return the canonical name, or a tuple of names (a single one collapses to a string).

    Raises:
        ModuleNotFoundError: There is no device of that name.
        ValueError: Something else than a number behind the colon.
        ArgumentError: No string, and no list or tuple of strings.
    """
    if device is None:
        return Device.DEFAULT
    if isinstance(device, str):
        return _known_device(device)
    if not isinstance(device, (list, tuple)) or not device or not all(isinstance(name, str) for name in device):
        raise ArgumentError(
            f"device {shown(device)} of type {type(device).__name__}; expected a name such as 'CPU' or a tuple of names"
        )
    names = tuple(_known_device(name) for name in device)
    if len(set(names)) < len(names):
        raise ArgumentError(f"device {shown(device)} names one device twice; each holds a part of its own")
    return names[0] if len(names) == 1 else names


@functools.cache
def _known_device(device: str) -> str:
    name = Device.canonicalize(device)
    short = name.partition(":")[0]
    if not short.isidentifier() or not _has_file(short):
        raise ModuleNotFoundError(_unknown_device(short), name=f"tinygrad.runtime.ops_{short.lower()}")
    number = name.partition(":")[2]
    if ":" in name and short not in _NAMED_BY_TEXT and not (number.isascii() and number.isdecimal()):
        raise ValueError(f"device {shown(device)}: {shown(number)} is no number; expected '{short}' or '{short}:1'")
    return name


# ---- a device ------------------------------------------------------------------------------------------------------


class Compiled:
    """An opened device.

    Args:
        device: Canonical name.
        allocator: Its memory.
        renderers: Renderer classes, the default one first.
        runtime: ``runtime(elf) -> Program``.
        graph: Class that replays captured kernels as one launch, or None.
        arch: Architecture that renderers compile for if ``DEV`` names none.
    """

    ifaces: ClassVar[Sequence[Any]] = ()
    has_copy_queue: ClassVar[bool] = False
    # Whether the times of launches tell which code is faster: what BEAM searches by.
    has_clock: ClassVar[bool] = True

    def __init__(
        self,
        device: str,
        allocator: Allocator[Any],
        renderers: Sequence[type[Renderer]] | None = None,
        runtime: Callable[..., Any] | None = None,
        graph: Any = None,
        arch: str | None = None,
    ) -> None:
        self.device, self.allocator, self.graph, self.arch = device, allocator, graph, arch
        self.renderers: tuple[type[Renderer], ...] = tuple(renderers or ())
        if runtime is not None:
            self.runtime = runtime
        self._made: dict[Target, Renderer] = {}
        suffix = device.partition(":")[2]
        self.device_id = int(suffix) if suffix.isdecimal() else 0

    @classmethod
    def probe(cls) -> bool:
        """Whether this device may become the default without being asked for. A GPU runs a small kernel to find out."""
        return False

    @property
    def target(self) -> Target:
        """The target that ``DEV`` asks for, completed with this device's defaults."""
        name = self.device.partition(":")[0]
        return DEV.target(name, renderer=self._renderer_names()[0] if self.renderers else "", arch=self.arch or "")

    def _renderer_names(self) -> list[str]:
        # The class name says it: LLVMRenderer and CPULLVMRenderer both answer to DEV=CPU:LLVM.
        names = [cls.__name__.upper().removesuffix("RENDERER") for cls in self.renderers]
        device = self.device.partition(":")[0]
        return [name if name == device else name.removeprefix(device) for name in names]

    @property
    def renderer(self) -> Renderer:
        """The renderer that ``DEV`` asks for, else the first that works here.

        Raises:
            RuntimeError: This device has no renderer of that name, or none at all.
        """
        target = self.target
        made = self._made.get(target)
        if made is None:
            made = self._made[target] = self._make_renderer(target)
        return made

    def _make_renderer(self, target: Target) -> Renderer:
        names = self._renderer_names()
        if not names:
            raise StorageOnlyError(
                f"device {self.device} has no renderer, it only stores data: an operand must be BUFFER storage of "
                "a device that computes; copy it there first with .to(None)"
            )
        if target.renderer not in names:
            import difflib

            close = difflib.get_close_matches(target.renderer, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(names) or 'none'}"
            raise RuntimeError(f"DEV={target}: device {self.device} has no renderer {target.renderer!r}; {hint}")
        return self.renderers[names.index(target.renderer)](target)

    @property
    def compiler(self) -> Compiler:
        """The compiler of the chosen renderer. Raises RuntimeError if it has none."""
        compiler: Compiler | None = getattr(self.renderer, "compiler", None)
        if compiler is None:
            raise RuntimeError(f"{self.device}: renderer {type(self.renderer).__name__} has no compiler")
        return compiler

    def synchronize(self) -> None:
        """Wait until everything that was given to the device is done."""

    def count(self) -> int:
        """Return how many devices of this kind the machine has."""
        return 1

    def invalidate_caches(self) -> None:
        """Empty the device's caches, for timings that start cold."""

    def _at_profile_finalize(self) -> None:
        """Add what the device still knows to the profile that is about to be written."""

    def finalize(self) -> None:
        """Release what the device holds; it is not used afterwards."""
        self.synchronize()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.device}>"


def enumerate_devices_str() -> Iterator[str]:
    """Yield one line per device file: the name, whether it works here, and with which renderers or why not."""
    default = Device.DEFAULT
    for name in _device_files():
        mark = "*" if name == default else " "
        try:
            device = Device[name]
            detail = f"works   {', '.join(device._renderer_names()) or 'memory only'}"
        except Exception as error:  # noqa: BLE001  the report is about what does not work
            detail = f"no      {type(error).__name__}: {(str(error).splitlines() or [''])[0][:80]}"
        yield f"{mark} {name:<8} {detail}"


if __name__ == "__main__":
    # Run as a script this file is __main__; the registry that device files know is that of the imported module.
    from tinygrad import device as _module

    print("\n".join(_module.enumerate_devices_str()))  # noqa: T201
