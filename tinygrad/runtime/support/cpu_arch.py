"""What the processor can do: the architecture field of ``DEV=CPU:LLVM:x86_64,znver2,avx2,-avx512f``.

In:   text ``[machine[,cpu][,feature][,-feature]...]``; empty or ``native`` means the machine that runs.
Out:  ``CPUArch``: what the code generators ask for (vector width, registers, fused multiply-add) and what LLVM is told.
Why:  renderers are made on every start, so the host is read from /proc/cpuinfo; LLVM is loaded only to compile.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from pathlib import Path
from typing import Final

from tinygrad.record import record
from tinygrad.system import host_machine

_MACHINES: Final = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}

# The features that choose code, by processor; each line adds to the one above. Names are LLVM's.
_LEVEL_2: Final = frozenset({"sse4.2", "popcnt"})
_LEVEL_3: Final = _LEVEL_2 | {"avx", "avx2", "fma", "f16c", "bmi2"}
_LEVEL_4: Final = _LEVEL_3 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
TILE_FEATURES: Final = frozenset({"amx-tile", "amx-bf16", "amx-int8"})
_CPU_FEATURES: Final = {
    "x86-64": frozenset[str](),
    "x86-64-v2": _LEVEL_2,
    "x86-64-v3": _LEVEL_3,
    "x86-64-v4": _LEVEL_4,
    **dict.fromkeys(("nehalem", "westmere"), _LEVEL_2),
    **dict.fromkeys(("haswell", "broadwell", "skylake", "alderlake", "znver1", "znver2", "znver3"), _LEVEL_3),
    "skylake-avx512": _LEVEL_4,
    **dict.fromkeys(("cascadelake", "icelake-server"), _LEVEL_4 | {"avx512vnni"}),
    **dict.fromkeys(("cooperlake", "znver4", "znver5"), _LEVEL_4 | {"avx512vnni", "avx512bf16"}),
    **dict.fromkeys(
        ("sapphirerapids", "graniterapids"), _LEVEL_4 | {"avx512vnni", "avx512bf16", "avx512fp16"} | TILE_FEATURES
    ),
}
# Spelling in /proc/cpuinfo -> LLVM's; all others of interest are spelled alike.
_CPUINFO_NAMES: Final = {
    "sse4_2": "sse4.2",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx512_vnni": "avx512vnni",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
}
# 512-bit vectors pay off only where bytes, words and masks have instructions too.
_AVX512: Final = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
_DOTS: Final = frozenset({"avx512bf16", "avx512vnni"})

# Second cache of a core: the least of common processors with vectors of 512 bits, and of all others.
_AVX512_CACHE_BYTES: Final = 1 << 20
_SMALL_CACHE_BYTES: Final = 512 << 10
# What is used of a core's part of the third cache, and the most that is.
_THIRD_CACHE_SHARE, _MOST_OF_THIRD_CACHE = 8, 2 << 20
_CACHE_FILES: Final = ("level", "size", "shared_cpu_map")

# Switching a feature off takes those along that build on it.
_IMPLIED: Final = {
    "avx512f": _AVX512 | _DOTS,
    "avx2": _AVX512 | _DOTS,
    "avx": _AVX512 | _DOTS | {"avx2", "fma", "f16c"},
    "amx-tile": TILE_FEATURES,
}


@record(frozen=True)
class CPUArch:
    """A processor as the code generators see it.

    Attributes:
        machine: ``x86_64`` or ``aarch64``.
        cpu: LLVM's name of the processor; empty for the one that runs.
        features: Features switched on (``+name``) or off (``-name``) by ``DEV``, in order.
        enabled: Known features that are on.
        host: Digest of the processor that runs if ``cpu`` is empty; part of the key of compiled code.
    """

    machine: str
    cpu: str
    features: tuple[str, ...]
    enabled: frozenset[str]
    host: str

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register worth using."""
        if self.machine == "aarch64":
            return 16
        return 64 if self.enabled >= _AVX512 else 32 if "avx2" in self.enabled else 16

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.machine == "aarch64" or self.vector_bytes == 64 else 16

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is one instruction."""
        return self.machine == "aarch64" or "fma" in self.enabled

    @property
    def cache_bytes(self) -> int:
        """Size of the memory near a core: its second cache, or its part of the third if that is more."""
        if not self.cpu:
            return _host_cache_bytes()
        return _AVX512_CACHE_BYTES if self.vector_bytes == 64 else _SMALL_CACHE_BYTES

    @property
    def has_fast_bfloat16(self) -> bool:
        """Whether vdpbf16ps beats two fused multiply-adds.

        Intel's processors with AVX512-FP16 have their bfloat16 multipliers in the tile unit: they run vdpbf16ps at a
        quarter of the rate of a fused multiply-add, so numbers that become float32 first are multiplied faster.
        """
        return "avx512bf16" in self.enabled and "avx512fp16" not in self.enabled

    @property
    def key(self) -> str:
        """Text that differs wherever compiled code may differ."""
        return "_".join((self.machine, self.cpu or f"native{self.host}", *self.features))


@functools.cache
def _host_cache_bytes() -> int:
    """Return the memory near a core that runs: its second cache, or its part of the third; small if unknown.

    Blocks are read in long runs, which arrive from the third cache as fast as they are multiplied. How many cores share
    it a guest cannot see, so that its part is taken to be a few times smaller than the system says.
    """
    found = {"2": _SMALL_CACHE_BYTES, "3": 0}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, size, sharers = ((folder / name).read_text().strip() for name in _CACHE_FILES)
        except OSError:
            continue
        if level in found and size[:-1].isdigit() and size[-1] in "KM":
            cores = max(1, int(sharers.replace(",", ""), 16).bit_count()) if level == "3" else 1
            found[level] = (int(size[:-1]) << (10 if size[-1] == "K" else 20)) // cores
    return max(found["2"], min(found["3"] // _THIRD_CACHE_SHARE, _MOST_OF_THIRD_CACHE))


@functools.cache
def allow_tiles() -> bool:
    """Ask the system to let this process use tile registers; whether it may.

    Linux saves their 8 KiB only for processes that asked. All threads may use them then, those that run already too.
    """
    if not sys.platform.startswith("linux") or host_machine() != "x86_64":
        return False
    request_permission, tile_data = 0x1023, 18
    return bool(ctypes.CDLL(None).syscall(158, request_permission, tile_data) == 0)


@functools.cache
def _cpuinfo() -> tuple[frozenset[str], str]:
    """Return the flags of the processor that runs and a digest of flags and model."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    except OSError:
        import platform  # slow to import

        return frozenset(), hashlib.sha256(platform.processor().encode()).hexdigest()[:8]
    fields = dict(line.partition(":")[::2] for line in first.splitlines())
    values = {name.strip(): value.strip() for name, value in fields.items()}
    flags = values.get("flags", values.get("Features", ""))
    named = (values.get(n, "") for n in ("model name", "cpu family", "model", "CPU part"))
    identity = "|".join((flags, *named, str(_host_cache_bytes())))
    names = frozenset(_CPUINFO_NAMES.get(flag, flag) for flag in flags.split())
    if names & TILE_FEATURES and not allow_tiles():
        names -= TILE_FEATURES
        identity += "|no tiles"
    return names, hashlib.sha256(identity.encode()).hexdigest()[:8]


def _host_features() -> frozenset[str]:
    flags = _cpuinfo()[0]
    if not flags and _MACHINES.get(host_machine()) == "x86_64":
        from tinygrad.runtime.support.compiler_llvm import host_features

        return frozenset(name[1:] for name in host_features().split(",") if name.startswith("+"))
    return flags


def _is_feature(name: str) -> bool:
    return name.startswith(("avx", "sse", "fma", "f16c", "bmi", "popcnt", "neon", "sve", "amx"))


@functools.cache
def parse_arch(text: str = "") -> CPUArch:
    """Read the architecture field of a target.

    Raises:
        RuntimeError: The machine is unknown.

    Example:
        >>> parse_arch("x86_64,znver2").vector_bytes, parse_arch("x86_64,znver2,-avx2").vector_bytes
        (32, 16)
    """
    host = _MACHINES.get(host_machine(), host_machine())
    parts = [part.strip() for part in text.split(",") if part.strip() and part.strip() != "native"]
    machine = host
    if parts and not _is_feature(parts[0].lstrip("+-")):
        name = parts.pop(0)
        if name.lower() not in _MACHINES:
            raise RuntimeError(
                f"DEV: unknown architecture {name!r} in {text!r}; write machine[,cpu][,feature][,-feature], with "
                "machine one of x86_64, aarch64"
            )
        machine = _MACHINES[name.lower()]
    cpu = ""
    if parts and parts[0][0] not in "+-" and not _is_feature(parts[0]):
        cpu = parts.pop(0)
    elif machine != host:
        cpu = "generic" if machine == "aarch64" else "x86-64"
    features = tuple(part if part[0] in "+-" else f"+{part}" for part in parts)
    enabled = set(_CPU_FEATURES.get(cpu, frozenset()) if cpu else _host_features())
    for feature in features:
        if feature[0] == "+":
            enabled.add(feature[1:])
        else:
            enabled -= {feature[1:], *_IMPLIED.get(feature[1:], ())}
    return CPUArch(machine, cpu, features, frozenset(enabled), "" if cpu else _cpuinfo()[1])


@functools.cache
def known_names() -> frozenset[str]:
    """Return the processors and features that choose code here; LLVM knows more."""
    return frozenset(_CPU_FEATURES).union(*_CPU_FEATURES.values(), {"generic"})


@functools.cache
def missing_features(text: str = "") -> tuple[str, ...]:
    """Return the known features that code for an architecture may use and the processor that runs does not have."""
    known = frozenset[str]().union(*_CPU_FEATURES.values())
    return tuple(sorted((parse_arch(text).enabled & known) - _host_features()))
