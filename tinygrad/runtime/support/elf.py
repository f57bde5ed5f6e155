"""Load a relocatable ELF object into executable memory.

In:   the bytes of an object file (``.o``), as LLVM or a C compiler writes them for x86-64 or AArch64.
Out:  ``LoadedObject``: the address of every function that it defines. The memory lives as long as the object.
Why:  kernels are one function and a few constants. Placing those takes a tenth of a millisecond and no compiler
      library, so a program whose kernels are in the disk cache never loads LLVM.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
from collections.abc import Callable
from typing import Any, Final

from tinygrad.record import field, record
from tinygrad.system import host_machine

_SHF_WRITE, _SHF_ALLOC = 1, 2
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 1, 2, 4, 8, 9
_SHN_UNDEF, _SHN_ABS, _SHN_COMMON = 0, 0xFFF1, 0xFFF2
_PROT_READ, _PROT_WRITE, _PROT_EXEC = 1, 2, 4
_EM_X86_64, _EM_AARCH64 = 62, 183
_STUB_BYTES: Final = 16

# Unwind tables are never used: kernels do not throw, and nobody unwinds through them.
_SKIPPED_SECTIONS = (".eh_frame", ".note", ".comment", ".debug")


class ElfError(RuntimeError):
    """An object file cannot be loaded: another format, an unknown relocation or an unknown symbol."""


@record
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int
    address: int = 0  # where it was placed; 0 if it is not loaded


@record
class _Symbol:
    name: str
    section: int
    value: int


@record
class _Object:
    data: bytes
    machine: int
    sections: list[_Section]
    symbols: list[_Symbol] = field(default_factory=list)


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _parse(data: bytes) -> _Object:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ElfError(f"not a 64-bit little-endian ELF object: it begins with {data[:6]!r}")
    machine = struct.unpack_from("<H", data, 18)[0]
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names_index = struct.unpack_from("<HHH", data, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    names = data[raw[names_index][4] : raw[names_index][4] + raw[names_index][5]]
    sections = [
        _Section(_text(names, name), kind, flags, offset, nbytes, link, info, max(align, 1), entsize)
        for name, kind, flags, _, offset, nbytes, link, info, align, entsize in raw
    ]
    found = _Object(data, machine, sections)
    for section in sections:
        if section.kind == _SHT_SYMTAB:
            strings = sections[section.link]
            table = data[strings.offset : strings.offset + strings.size]
            for i in range(section.size // 24):
                name, _, _, index, value, _ = struct.unpack_from("<IBBHQQ", data, section.offset + i * 24)
                found.symbols.append(_Symbol(_text(table, name), index, value))
    return found


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def external_symbol(name: str) -> int:
    """Return the address of a C library function that compiled code may call (memset, fmaf, ...).

    Raises:
        ElfError: No library of the process, nor libm or libgcc, has it.
    """
    # ctypes.util.find_library would start a compiler to ask.
    for library in (None, "libm.so.6", "libgcc_s.so.1"):
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError):
            continue
        return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
    raise ElfError(f"compiled code calls {name}, which neither libc, libm nor libgcc defines")


class LoadedObject:
    """An object file in executable memory.

    Args:
        data: The object file.

    Attributes:
        functions: Name of each global symbol that the object defines -> its address.

    Raises:
        ElfError: It cannot be loaded here.
    """

    def __init__(self, data: bytes) -> None:
        obj = _parse(data)
        host = {"x86_64": _EM_X86_64, "amd64": _EM_X86_64, "aarch64": _EM_AARCH64, "arm64": _EM_AARCH64}
        if obj.machine != host.get(host_machine()):
            raise ElfError(f"the object is for ELF machine {obj.machine}, this machine is {host_machine()}")
        externals = sorted({s.name for s in obj.symbols if s.section == _SHN_UNDEF and s.name})
        fixed, total, stubs = _layout(obj, len(externals))
        self._memory = mmap.mmap(-1, total, prot=_PROT_READ | _PROT_WRITE)
        # The ctypes object pins the mapping: both die with this object.
        self._pin = ctypes.c_char.from_buffer(self._memory)
        base = ctypes.addressof(self._pin)
        for section in obj.sections:
            if section.address >= 0:
                if section.kind != _SHT_NOBITS:
                    content = data[section.offset : section.offset + section.size]
                    self._memory[section.address : section.address + section.size] = content
                section.address += base
        outside = {name: external_symbol(name) for name in externals}
        linker = _Linker(obj, self._memory, base, self._write_stubs(obj.machine, stubs, base, outside))
        linker.link()
        self.functions = {s.name: linker.address(s) for s in obj.symbols if s.name and s.section not in (0, _SHN_ABS)}
        if _libc().mprotect(ctypes.c_void_p(base), ctypes.c_size_t(fixed), _PROT_READ | _PROT_EXEC):
            raise ElfError(f"mprotect refused executable memory (errno {ctypes.get_errno()})")
        _clear_instruction_cache(base, fixed)

    def _write_stubs(self, machine: int, offset: int, base: int, outside: dict[str, int]) -> dict[str, tuple[int, int]]:
        """Write one jump per external function, since it may be too far for a direct call; name -> (stub, slot)."""
        places = {}
        for name, address in outside.items():
            jump = (
                b"\xff\x25\x02\0\0\0\x90\x90" if machine == _EM_X86_64 else struct.pack("<II", 0x58000050, 0xD61F0200)
            )
            self._memory[offset : offset + _STUB_BYTES] = jump + struct.pack("<Q", address)
            places[name] = (base + offset, base + offset + 8)
            offset += _STUB_BYTES
        return places


def _layout(obj: _Object, externals: int) -> tuple[int, int, int]:
    """Give every loaded section an offset: code and constants, then stubs, then a page boundary, then writable data.

    Returns:
        Bytes that become read-only and executable, bytes in all, offset of the stubs.
    """
    loaded = []
    for section in obj.sections:
        section.address = -1
        if section.flags & _SHF_ALLOC and section.size and not section.name.startswith(_SKIPPED_SECTIONS):
            loaded.append(section)
    offset = 0

    def place(sections: list[_Section]) -> None:
        nonlocal offset
        for section in sections:
            offset = -(-offset // section.align) * section.align
            section.address = offset
            offset += section.size

    place([s for s in loaded if not s.flags & _SHF_WRITE])
    stubs = offset = -(-offset // _STUB_BYTES) * _STUB_BYTES
    offset += externals * _STUB_BYTES
    fixed = offset = max(-(-offset // mmap.PAGESIZE), 1) * mmap.PAGESIZE
    place([s for s in loaded if s.flags & _SHF_WRITE])
    return fixed, -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE, stubs


def _clear_instruction_cache(address: int, nbytes: int) -> None:
    if host_machine() in ("x86_64", "amd64"):
        return  # the caches of x86 are coherent
    if hasattr(_libc(), "sys_icache_invalidate"):
        _libc().sys_icache_invalidate(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
        return
    clear = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(external_symbol("__clear_cache"))
    clear(address, address + nbytes)


class _Linker:
    """Applies the relocations of one object whose sections have their final addresses."""

    def __init__(self, obj: _Object, memory: mmap.mmap, base: int, externals: dict[str, tuple[int, int]]) -> None:
        self.obj, self.memory, self.base, self.externals = obj, memory, base, externals

    def address(self, symbol: _Symbol) -> int:
        if symbol.section == _SHN_ABS:
            return symbol.value
        if symbol.section == _SHN_COMMON:
            raise ElfError(f"common symbol {symbol.name} is not supported; compile with -fno-common")
        if symbol.section == _SHN_UNDEF:
            return self.externals[symbol.name][0] if symbol.name else 0
        return self.obj.sections[symbol.section].address + symbol.value

    def link(self) -> None:
        apply = _apply_x86_64 if self.obj.machine == _EM_X86_64 else _apply_aarch64
        for section in self.obj.sections:
            if section.kind == _SHT_REL:
                raise ElfError("relocations without addends (SHT_REL) are not supported")
            if section.kind != _SHT_RELA or self.obj.sections[section.info].address < self.base:
                continue
            target = self.obj.sections[section.info].address
            for i in range(section.size // 24):
                offset, info, addend = struct.unpack_from("<QQq", self.obj.data, section.offset + i * 24)
                symbol = self.obj.symbols[info >> 32]
                slot = self.externals[symbol.name][1] if symbol.name in self.externals else None
                apply(self, info & 0xFFFFFFFF, target + offset, self.address(symbol), addend, slot)

    def write(self, fmt: str, place: int, value: int) -> None:
        try:
            struct.pack_into(fmt, self.memory, place - self.base, value)
        except struct.error:
            raise ElfError(f"relocation value {value:#x} does not fit its field") from None

    def patch(self, place: int, change: Callable[[int], int]) -> None:
        (word,) = struct.unpack_from("<I", self.memory, place - self.base)
        struct.pack_into("<I", self.memory, place - self.base, change(word) & 0xFFFFFFFF)


def _apply_x86_64(linker: _Linker, kind: int, place: int, symbol: int, addend: int, slot: int | None) -> None:
    match kind:
        case 1:  # R_X86_64_64
            linker.write("<Q", place, (symbol + addend) & (1 << 64) - 1)
        case 2 | 4:  # PC32, PLT32
            linker.write("<i", place, symbol + addend - place)
        case 9 | 41 | 42 if slot is not None:  # GOTPCREL and its relaxable forms, for external functions
            linker.write("<i", place, slot + addend - place)
        case 24:  # PC64
            linker.write("<q", place, symbol + addend - place)
        case _:
            raise ElfError(f"x86-64 relocation type {kind} is not supported")


# Scale of the 12-bit offset of AArch64's loads and stores, and of ADD.
_AARCH64_LOW12: Final = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}


def _apply_aarch64(linker: _Linker, kind: int, place: int, symbol: int, addend: int, slot: int | None) -> None:
    value = symbol + addend
    match kind:
        case 257:  # R_AARCH64_ABS64
            linker.write("<Q", place, value & (1 << 64) - 1)
        case 260:  # PREL64
            linker.write("<q", place, value - place)
        case 261:  # PREL32
            linker.write("<i", place, value - place)
        case 275 | 311:  # ADR_PREL_PG_HI21, ADR_GOT_PAGE
            pages = ((slot if kind == 311 and slot is not None else value) >> 12) - (place >> 12)
            linker.patch(place, lambda word: word | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)
        case 282 | 283:  # JUMP26, CALL26
            linker.patch(place, lambda word: word & 0xFC000000 | (value - place) >> 2 & 0x3FFFFFF)
        case 312 if slot is not None:  # LD64_GOT_LO12_NC
            linker.patch(place, lambda word: word | ((slot & 0xFFF) >> 3) << 10)
        case _ if kind in _AARCH64_LOW12:
            linker.patch(place, lambda word: word | ((value & 0xFFF) >> _AARCH64_LOW12[kind]) << 10)
        case _:
            raise ElfError(f"AArch64 relocation type {kind} is not supported")
