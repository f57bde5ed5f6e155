"""Text of LLVM instructions: types, constants, vectors, memory accesses, and where an instruction is placed.

In:   values (name, dtype, lanes, loop depth) and the text of an instruction.
Out:  lines of IR in their final order.
Why:  a pure instruction is emitted once and as far outside as its operands allow, so the IR needs neither common
      subexpression elimination nor loop-invariant code motion afterwards.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tinygrad.device import CompileError
from tinygrad.dtype import DType, dtypes

_TYPES: Final = {
    dtypes.void: "ptr",
    dtypes.bool: "i1",
    dtypes.int8: "i8",
    dtypes.uint8: "i8",
    dtypes.int16: "i16",
    dtypes.uint16: "i16",
    dtypes.int32: "i32",
    dtypes.uint32: "i32",
    dtypes.int64: "i64",
    dtypes.uint64: "i64",
    dtypes.float16: "half",
    dtypes.float32: "float",
    dtypes.float64: "double",
    # An index that codegen left weak is as wide as pointers.
    dtypes.weakint: "i64",
}
_SUFFIXES: Final = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}


def ir_type(dtype: DType) -> str:
    """Type of a scalar in a register; ``ptr`` for void.

    Raises:
        CompileError: The dtype has no native form here.
    """
    try:
        return _TYPES[dtype]
    except KeyError:
        raise CompileError(f"LLVM: {dtype} has no native form on CPUs; it must be emulated before rendering") from None


def memory_type(dtype: DType) -> str:
    """Type of an element in memory: a bool is a byte."""
    return "i8" if dtype is dtypes.bool else ir_type(dtype)


def masked_type(dtype: DType) -> str:
    """Type in which masked accesses move an element: half precision as integers, which more processors can mask."""
    return "i16" if dtype is dtypes.float16 else memory_type(dtype)


def vector(kind: str, lanes: int) -> str:
    """Type of ``lanes`` elements; the scalar itself for one."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def vector_type(dtype: DType, lanes: int) -> str:
    """Type of a value in registers."""
    return vector(ir_type(dtype), lanes)


def suffix(kind: str, lanes: int) -> str:
    """Suffix of an overloaded intrinsic, such as ``v16f32``."""
    name = _SUFFIXES.get(kind, kind)
    return name if lanes == 1 else f"v{lanes}{name}"


class Value(NamedTuple):
    """A value of the function: a name or a constant. ``depth`` is the number of loops and branches it is defined in."""

    name: str
    dtype: DType  # void: a pointer
    lanes: int
    depth: int

    @property
    def type(self) -> str:
        """Its LLVM type."""
        return vector_type(self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


def constant_text(value: Any, dtype: DType) -> str:
    """Return a constant as LLVM writes it; floats as the bits of the double that equals them."""
    kind = ir_type(dtype)
    if kind == "i1":
        return "true" if value else "false"
    if kind == "half":
        return f"0xH{_half_bits(float(value)):04X}"
    if kind in ("float", "double"):
        number = float(value)
        if kind == "float":
            try:
                number = struct.unpack("<f", struct.pack("<f", number))[0]
            except OverflowError:
                number = float("inf") if number > 0 else float("-inf")
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    bits = int(kind[1:])
    wrapped = int(value) & (1 << bits) - 1
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _half_bits(number: float) -> int:
    try:
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    except OverflowError:
        return 0x7C00 if number > 0 else 0xFC00


class Builder:
    """Collects the lines of one function and decides where each goes."""

    def __init__(self) -> None:
        self.entry: list[str] = []
        self.declarations: set[str] = set()
        self.definitions: dict[str, str] = {}  # functions that the kernel calls
        self._chunks: list[list[str]] = [[]]
        # The chunk in front of every open loop or branch; instructions that do not depend on it go there.
        self._front: list[list[str]] = [[]]
        self._known: dict[str, Value] = {}
        # The instructions that were emitted in every open loop or branch: they are known until it ends.
        self._within: list[list[str]] = [[]]
        self._depth = 0
        self._count = 0
        self._dummy_bytes = 0

    # ---- lines

    @property
    def depth(self) -> int:
        """Number of open loops and branches."""
        return len(self._front) - 1

    def lines(self) -> list[str]:
        """Return the body in order."""
        if self._dummy_bytes:
            self.entry.append(f"%dummy = alloca [{self._dummy_bytes} x i8], align 64")
        return [line for chunk in self._chunks for line in chunk]

    def name(self) -> str:
        """Return a fresh name."""
        self._count += 1
        return f"%v{self._count}"

    def label(self) -> str:
        """Return a fresh label."""
        self._count += 1
        return f"b{self._count}"

    def append(self, line: str) -> None:
        """Append a line at the current position."""
        self._chunks[-1].append(line)

    def chunk(self) -> list[str]:
        """Return a list whose lines will stand at this position."""
        lines: list[str] = []
        self._chunks += [lines, []]
        return lines

    def enter(self) -> None:
        """Begin a loop or branch; the lines that open it come next."""
        self._front.append(self.chunk())
        self._within.append([])

    def leave(self) -> None:
        """End the innermost loop or branch."""
        self._front.pop()
        for text in self._within.pop():
            del self._known[text]

    def at(self, *operands: Value) -> Builder:
        """Choose the place of the next instructions: the outermost one where all operands are known."""
        self._depth = max((operand.depth for operand in operands), default=0)
        return self

    def emit(self, text: str, dtype: DType, lanes: int) -> Value:
        """Emit a pure instruction at the chosen place, or return the value of an equal one that was emitted before."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = Value(self.name(), dtype, lanes, self._depth)
            place = self._chunks[-1] if self._depth >= self.depth else self._front[self._depth + 1]
            place.append(f"{found.name} = {text}")
            self._within[min(self._depth, self.depth)].append(text)
        # LLVM's types know no sign, and a bool in memory is a byte: equal instructions may stand for different dtypes.
        return found if found.dtype is dtype else found._replace(dtype=dtype)

    def call(self, result: DType, lanes: int, function: str, *operands: str) -> Value:
        """Emit a pure call of an intrinsic; operands are written with their types."""
        form = vector_type(result, lanes)
        self.declare(form, function, operands)
        return self.emit(f"call {form} @{function}({', '.join(operands)})", result, lanes)

    def declare(self, result: str, function: str, operands: Sequence[str]) -> None:
        """Declare a function by the operands of a call."""
        types = ", ".join(_type_of(operand) for operand in operands)
        self.declarations.add(f"declare {result} @{function}({types})")

    # ---- values

    def constant(self, value: Any, dtype: DType) -> Value:
        """Return a scalar constant."""
        return Value(constant_text(value, dtype), dtype, 1, 0)

    def splat_constant(self, value: Any, dtype: DType, lanes: int) -> Value:
        """Return a constant in all lanes."""
        text = constant_text(value, dtype)
        return Value(text if lanes == 1 else f"splat ({ir_type(dtype)} {text})", dtype, lanes, 0)

    def zero(self, dtype: DType, lanes: int) -> Value:
        """Return zero in all lanes."""
        return self.splat_constant(0, dtype, lanes)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """Emit condition ? x : y."""
        return self.emit(f"select {condition}, {x}, {y}", x.dtype, x.lanes)

    def splat(self, x: Value, lanes: int) -> Value:
        """Return a scalar in all lanes."""
        if lanes == 1:
            return x
        kind = ir_type(x.dtype)
        if x.name[0] != "%":
            return Value(f"splat ({kind} {x.name})", x.dtype, lanes, 0)
        self.at(x)
        first = self.emit(f"insertelement <{lanes} x {kind}> poison, {x}, i64 0", x.dtype, lanes)
        return self.emit(f"shufflevector {first}, {first.type} poison, <{lanes} x i32> zeroinitializer", x.dtype, lanes)

    def stack(self, dtype: DType, lanes: Sequence[Value | tuple[Value, int]]) -> Value:
        """Return a vector of scalars and lanes of other vectors."""
        n = len(lanes)
        first = lanes[0]
        if n == 1:
            return first if isinstance(first, Value) else self.lane(*first)
        if isinstance(first, Value) and all(x == first for x in lanes):
            return self.splat(first, n)
        if all(isinstance(x, Value) and x.name[0] != "%" for x in lanes):
            text = ", ".join(map(str, lanes))
            return Value(f"<{text}>", dtype, n, 0)
        pieces = [x for x in lanes if not isinstance(x, Value)]
        if len(pieces) == n:
            return self._shuffle(dtype, pieces)
        scalars = [x if isinstance(x, Value) else self.lane(*x) for x in lanes]
        self.at(*scalars)
        made = f"{vector_type(dtype, n)} poison"
        out = scalars[0]
        for i, x in enumerate(scalars):
            out = self.emit(f"insertelement {made}, {x}, i64 {i}", dtype, n)
            made = str(out)
        return out

    def lane(self, x: Value, lane: int) -> Value:
        """Return one lane of a vector."""
        return x if x.lanes == 1 else self.at(x).emit(f"extractelement {x}, i64 {lane}", x.dtype, 1)

    def _shuffle(self, dtype: DType, lanes: Sequence[tuple[Value, int]]) -> Value:
        """Collect lanes of vectors: two vectors per shuffle, then the results are blended."""
        sources = list(dict.fromkeys(x for x, _ in lanes))
        if len(sources) == 1 and [lane for _, lane in lanes] == list(range(sources[0].lanes)):
            return sources[0]
        if len({x.lanes for x in sources}) > 1:
            return self.stack(dtype, [self.lane(*pair) for pair in lanes])
        parts: list[tuple[Value, list[bool]]] = []
        for i in range(0, len(sources), 2):
            pair = sources[i : i + 2]
            mask = [pair.index(x) * x.lanes + lane if x in pair else None for x, lane in lanes]
            parts.append((self._shuffle_two(pair[0], pair[-1], mask), [m is not None for m in mask]))
        while len(parts) > 1:
            (x, has_x), (y, has_y) = parts.pop(0), parts.pop(0)
            n = len(lanes)
            mask = [i if has_x[i] else n + i if has_y[i] else None for i in range(n)]
            parts.append((self._shuffle_two(x, y, mask), [m is not None for m in mask]))
        return parts[0][0]

    def _shuffle_two(self, x: Value, y: Value, mask: Sequence[int | None]) -> Value:
        picks = ", ".join("i32 poison" if m is None else f"i32 {m}" for m in mask)
        return self.at(x, y).emit(f"shufflevector {x}, {y}, <{len(mask)} x i32> <{picks}>", x.dtype, len(mask))

    def halves(self, x: Value) -> tuple[Value, Value]:
        """Return the lower and the upper half of the lanes."""
        n = x.lanes // 2
        low = self._shuffle_two(x, x, range(n)) if n > 1 else self.lane(x, 0)
        high = self._shuffle_two(x, x, range(n, 2 * n)) if n > 1 else self.lane(x, 1)
        return low, high

    # ---- memory

    def _effect(self, text: str, dtype: DType, lanes: int) -> Value:
        """Emit an instruction that must stay where it is."""
        made = Value(self.name(), dtype, lanes, self.depth)
        self.append(f"{made.name} = {text}")
        return made

    def _gated_pointer(self, pointer: Value, gate: Value, nbytes: int) -> Value:
        """Return the pointer, or that of a scratch area where the scalar gate is False: cheaper than a branch."""
        self._dummy_bytes = max(self._dummy_bytes, nbytes)
        return self.at(pointer, gate).emit(f"select {gate}, {pointer}, ptr %dummy", dtypes.void, 1)

    def _to_memory(self, x: Value, kind: str) -> str:
        """Return the name of a value in the type that it has in memory."""
        if x.dtype is dtypes.bool:
            return self.at(x).emit(f"zext {x} to {vector('i8', x.lanes)}", dtypes.uint8, x.lanes).name
        if kind != ir_type(x.dtype):
            return self.at(x).emit(f"bitcast {x} to {vector(kind, x.lanes)}", dtypes.int16, x.lanes).name
        return x.name

    def _from_memory(self, x: Value, dtype: DType) -> Value:
        if dtype is dtypes.bool:
            zero = "zeroinitializer" if x.lanes > 1 else "0"
            return self._effect(f"icmp ne {vector('i8', x.lanes)} {x.name}, {zero}", dtype, x.lanes)
        return x._replace(dtype=dtype)

    def load(self, pointer: Value, dtype: DType, lanes: int, alternative: Value | None, gate: Value | None) -> Value:
        """Emit a load: scalar, consecutive lanes, or a gather where ``pointer`` is a vector."""
        kind = memory_type(dtype)
        if pointer.lanes > 1 or (gate is not None and gate.lanes > 1):
            return self._masked_load(pointer, dtype, lanes, alternative, gate)
        source = pointer if gate is None else self._gated_pointer(pointer, gate, lanes * dtype.itemsize)
        loaded = self._effect(f"load {vector(kind, lanes)}, {source}, align {dtype.itemsize}", dtype, lanes)
        out = self._from_memory(loaded, dtype)
        if gate is None or alternative is None:
            return out
        return self._effect(f"select {gate}, {out}, {alternative}", dtype, lanes)

    def _mask(self, gate: Value | None, lanes: int) -> Value:
        if gate is None:
            return self.splat_constant(True, dtypes.bool, lanes)
        return gate if gate.lanes > 1 else self.splat(gate, lanes)

    def _masked_load(
        self, pointer: Value, dtype: DType, lanes: int, alternative: Value | None, gate: Value | None
    ) -> Value:
        kind = masked_type(dtype)
        form, mask = vector(kind, lanes), self._mask(gate, lanes)
        other = "zeroinitializer" if alternative is None else self._to_memory(alternative, kind)
        operation = "gather" if pointer.lanes > 1 else "load"
        at = f"v{lanes}p0" if pointer.lanes > 1 else "p0"
        function = f"llvm.masked.{operation}.{suffix(kind, lanes)}.{at}"
        operands = [str(pointer), f"i32 {dtype.itemsize}", str(mask), f"{form} {other}"]
        self.declare(form, function, operands)
        loaded = self._effect(f"call {form} @{function}({', '.join(operands)})", dtype, lanes)
        if kind != memory_type(dtype):
            loaded = self._effect(f"bitcast {form} {loaded.name} to {vector_type(dtype, lanes)}", dtype, lanes)
        return self._from_memory(loaded, dtype)

    def store(self, pointer: Value, value: Value, gate: Value | None) -> None:
        """Emit a store: scalar, consecutive lanes, or a scatter where ``pointer`` is a vector."""
        itemsize, lanes = value.dtype.itemsize, value.lanes
        if pointer.lanes == 1 and (gate is None or gate.lanes == 1):
            target = pointer if gate is None else self._gated_pointer(pointer, gate, lanes * itemsize)
            kind = memory_type(value.dtype)
            self.append(f"store {vector(kind, lanes)} {self._to_memory(value, kind)}, {target}, align {itemsize}")
            return
        if lanes == 1:
            value, lanes = self.splat(value, pointer.lanes), pointer.lanes
        kind, mask = masked_type(value.dtype), self._mask(gate, lanes)
        operation = "scatter" if pointer.lanes > 1 else "store"
        at = f"v{lanes}p0" if pointer.lanes > 1 else "p0"
        function = f"llvm.masked.{operation}.{suffix(kind, lanes)}.{at}"
        operands = [f"{vector(kind, lanes)} {self._to_memory(value, kind)}", str(pointer), f"i32 {itemsize}", str(mask)]
        self.declare("void", function, operands)
        self.append(f"call void @{function}({', '.join(operands)})")


def _type_of(operand: str) -> str:
    """Return the type of a typed operand: everything up to the value."""
    if operand[0] != "<":
        return operand.split(" ", 1)[0]
    return operand[: operand.index(">") + 1]
