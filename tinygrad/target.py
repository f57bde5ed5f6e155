"""The syntax of ``DEV``: which device, through which interface, renderer and architecture.

In:   text such as ``CPU``, ``CPU:LLVM``, ``USB+AMD:LLVM`` or ``NULL:HIP:gfx1100``.
Out:  ``Target`` records. Whether such a device exists is not decided here.
Why:  a target is written by users, compared and printed in several stages, and parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tinygrad.record import record, replace

# Environment variables that once chose a device or a renderer by themselves; ``DEV`` says all of it now.
_DEVICE_NAMES = ("CPU", "CUDA", "NV", "AMD", "METAL", "CL", "QCOM", "WEBGPU", "DSP", "HIP", "PYTHON", "NULL")


@record(frozen=True)
class Target:
    """One target of ``DEV``: ``[INTERFACE[:INDICES]+]DEVICE[:RENDERER[:ARCH]]``; an empty field means "the default".

    Example:
        >>> Target.parse("usb+amd:llvm:gfx1100")
        USB+AMD:LLVM:gfx1100
        >>> Target.parse("CPU").replacedefault(renderer="LLVM")
        CPU:LLVM
    """

    device: str = ""
    renderer: str = ""
    arch: str = ""
    interface: str = ""
    indices: str = ""

    @staticmethod
    def parse(text: str) -> Target:
        """Read one target.

        Raises:
            RuntimeError: More than one ``+``, or more than two ``:`` behind the device.
        """
        # A plus behind a comma switches on a feature of the architecture.
        *front, back = re.split(r"(?<!,)[+]", text.strip())
        if len(front) > 1:
            raise RuntimeError(f"DEV: {text!r} has too many '+'; write [INTERFACE[:INDICES]+]DEVICE[:RENDERER[:ARCH]]")
        interface, _, indices = "".join(front).partition(":")
        fields = back.split(":")
        if len(fields) > 3 or ":" in indices:
            raise RuntimeError(f"DEV: {text!r} has too many ':'; write [INTERFACE[:INDICES]+]DEVICE[:RENDERER[:ARCH]]")
        device, renderer, arch = fields + [""] * (3 - len(fields))
        return Target(device.upper(), renderer.upper(), arch, interface.upper(), indices)

    def replacedefault(self, **defaults: str) -> Target:
        """Return a copy whose empty fields are filled from ``defaults``; fields that are set stay."""
        return replace(self, **{name: text for name, text in defaults.items() if not getattr(self, name)})

    def __repr__(self) -> str:
        front = ":".join(part for part in (self.interface, self.indices) if part) + "+" if self.interface else ""
        return front + ":".join((self.device, self.renderer, self.arch)).rstrip(":")

    def __str__(self) -> str:
        return repr(self)


def check_deprecated_device_variables(environment: Mapping[str, str]) -> None:
    """Refuse the environment variables that chose devices before ``DEV`` did, and say what to write instead.

    Raises:
        AssertionError: One of ``CPU=1``, ``NV_CC=``, ``AMD_IFACE=``, ``CPU_LLVM=1``, ``EMULATE=`` is set.
    """
    for name, text in environment.items():
        instead = _replacement(name, text)
        if instead is not None:
            raise AssertionError(f"the environment variable {name}={text} is deprecated; set DEV={instead} instead")


def _replacement(name: str, text: str) -> str | None:
    if name in _DEVICE_NAMES:
        return name if text == "1" else None  # other values (a path, a version) belong to other programs
    if name == "EMULATE":
        return f"PYTHON::{text}"
    device, _, what = name.partition("_")
    if device not in _DEVICE_NAMES:
        return None
    if what == "IFACE":
        return f"{text}+{device}"
    if what == "CC":
        return f"{device}:{text}"
    if what in {"LLVM", "PTX", "NAK", "LVP", "X86", "CLANG"} and text == "1":
        return f"{device}:{what}"
    return None
