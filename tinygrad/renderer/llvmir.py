"""LLVM IR for CPUs.

In:   the linear program of one kernel (docs: internal contract of the stages; vectors are values of shape (n,)).
Out:  the text of a module with one function ``void name(ptr bufs, ptr vals, i64 begin, i64 end)``: pointers of the
      buffers by slot, values of the variables by name, bounds of the THREAD loop.
Why:  the IR is final, because no IR pass runs on it. Register variables are SSA values with phi nodes, equal pure
      instructions are emitted once, and pure instructions are placed in front of every loop that they do not depend
      on.

Numbers: every operation rounds by itself (no fast-math flags), except MULACC, which is fused. Integers wrap. x/0 is 0
and x%0 is x, as in Python constants; shifts by the width or more give 0 (or the sign); float to integer as dtype.py
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tinygrad.device import CompileError
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.renderer import Renderer, kernel_arguments
from tinygrad.renderer.llvm_alu import ALU, emit_bitcast, emit_cast, emit_horizontal, words_of
from tinygrad.renderer.llvm_build import Builder, Value, ir_type, memory_type, vector_type
from tinygrad.renderer.llvm_tiles import Tiles, is_tile_product
from tinygrad.runtime.support.compiler_llvm import LLVMCompiler
from tinygrad.runtime.support.cpu_arch import CPUArch, parse_arch
from tinygrad.target import Target
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# Scratch memory of a kernel lives on the stack of the thread that runs it (8 MiB on Linux).
_MAX_STACK_BYTES = 4 << 20


class _Loop(NamedTuple):
    """An open RANGE."""

    label: str
    counter: Value
    phis: list[str]  # the chunk at the head of the body; filled when the loop closes
    carried: dict[UOp, tuple[str, Value]]  # register -> (name of its phi, value before the loop)
    bounds: tuple[Value, Value]
    guarded: bool  # may run zero times
    entry: str  # label of the block before the loop


class _Branch(NamedTuple):
    """An open IF."""

    label: str
    entry: str
    registers: dict[UOp, Value]


class LLVMRenderer(Renderer):
    """Renders kernels for CPUs as LLVM IR."""

    device = "CPU"
    has_local = False
    has_shared = False
    has_threads = True
    supports_float4 = True
    global_max = None
    local_max = None
    shared_max = 1 << 20  # bytes of LOCAL memory that a kernel should use at most
    index_dtype = dtypes.int64

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target)
        self.arch = parse_arch(self.target.arch)
        self.vector_bytes, self.vector_registers = self.arch.vector_bytes, self.arch.vector_registers
        self.cache_bytes = self.arch.cache_bytes
        self.code_for_op = {op: emit for op, emit in ALU.items() if op is not Ops.MULACC or self.arch.has_fma}
        self.tensor_cores = _tensor_cores(self.arch)
        self.compiler = LLVMCompiler(self.arch)

    def supported_dtypes(self) -> tuple[DType, ...]:
        """Return the dtypes with native arithmetic; bfloat16 and fp8 are lowered to integers and float before."""
        return (*dtypes.ints, dtypes.bool, dtypes.float16, dtypes.float32, dtypes.float64)

    def render(self, uops: Sequence[UOp]) -> str:
        """Return the IR module of a kernel.

        Raises:
            CompileError: An operation has no LLVM form, or the scratch memory does not fit the stack.
        """
        return _Kernel(uops, self.arch.machine).module()


def _tensor_cores(arch: CPUArch) -> tuple[Any, ...]:
    """Return the tile instructions, and the dot-product instructions on vectors of 512 bits: the fastest first."""
    from tinygrad.codegen.opt.tc import BFLOAT16, BFLOAT16_TILES, BYTE_TILES, BYTES

    if arch.vector_bytes != 64:
        return ()
    found = (
        ("amx-bf16" in arch.enabled, BFLOAT16_TILES),
        ("amx-int8" in arch.enabled, BYTE_TILES),
        (arch.has_fast_bfloat16, BFLOAT16),
        ("avx512vnni" in arch.enabled, BYTES),
    )
    return tuple(core for has, core in found if has)


def function_attributes(machine: str) -> str:
    """Attributes of every kernel: nothing unwinds, and vectors of 512 bits are not split in two.

    A frame pointer lets LLVM align the stack: otherwise what does not fit the registers is kept at multiples of 16
    bytes there, where every vector of 512 bits lies in two cache lines.
    """
    if machine != "x86_64":
        return 'nounwind "no-builtins"'
    return 'nounwind "no-builtins" "frame-pointer"="all" "prefer-vector-width"="512" "min-legal-vector-width"="512"'


class _Kernel:
    """Renders one linear program."""

    def __init__(self, uops: Sequence[UOp], machine: str) -> None:
        self.uops, self.machine = uops, machine
        self.buffers, self.variables = kernel_arguments(uops)
        self.b = Builder()
        self.values: dict[UOp, Value] = {}
        self.pointers: dict[UOp, Value] = {}
        self.registers: dict[UOp, Value] = {}
        self.words: dict[UOp, tuple[Value, Value]] = {}
        self.open: list[_Loop | _Branch] = []
        self.label = "entry"
        self.stack_bytes = 0
        # Registers that are addressed like arrays live in memory.
        self.arrays = {u.src[0].without_after for u in uops if _is_address(u)}
        self.tiles = Tiles(uops, self.b)
        self.stored = _registers_stored_in_loops(uops)

    def module(self) -> str:
        """Return the text of the module."""
        name = "kernel"
        for u in self.uops:
            if u.op is Ops.SINK:
                name = u.arg.function_name if u.arg is not None else name
            else:
                self.emit(u)
        if self.open:
            raise CompileError(f"LLVM: {len(self.open)} loops or branches of the program are never closed")
        lines = self.b.lines()
        if self.tiles.used:
            lines = [*self.tiles.configure(), *lines, *self.tiles.release()]
        lines = [*self._arguments(), *self.b.entry, *lines, "ret void"]
        body = "\n".join(f"  {line}" if not line.endswith(":") else line for line in lines)
        text = f"define void @{name}(ptr %bufs, ptr %vals, i64 %begin, i64 %end) #0 {{\nentry:\n{body}\n}}\n"
        declarations = "\n".join(sorted(self.b.declarations))
        text += "".join(self.b.definitions.values())
        return f"{text}{declarations}\nattributes #0 = {{ {function_attributes(self.machine)} }}\n"

    def _arguments(self) -> list[str]:
        lines = []
        for i, u in enumerate(self.buffers):
            lines.append(f"%p{i} = getelementptr ptr, ptr %bufs, i64 {i}")
            lines.append(f"%buf{u.arg.slot} = load ptr, ptr %p{i}, align 8")
        for i, u in enumerate(self.variables):
            kind, wide = ir_type(u.dtype), f"%var{i}"
            lines.append(f"%q{i} = getelementptr i64, ptr %vals, i64 {i}")
            if kind == "i64":
                lines.append(f"{wide} = load i64, ptr %q{i}, align 8")
            else:
                lines.append(f"{wide}w = load i64, ptr %q{i}, align 8")
                lines.append(f"{wide} = trunc i64 {wide}w to {kind}")
        return lines

    # ---- one node

    def emit(self, u: UOp) -> None:
        """Emit the instructions of a node and remember its value."""
        method = _EMITTERS.get(u.op)
        if method is not None:
            method(self, u)
        elif u.op in ALU:
            sources = [self.value(s) for s in u.src]
            self.values[u] = ALU[u.op](self.b.at(*sources), u, *sources)
        elif u.op not in (Ops.NOOP, Ops.GROUP, Ops.BARRIER):
            raise CompileError(f"LLVM: {u.op} on {u.dtype} has no LLVM form; it must be lowered before rendering")

    def value(self, u: UOp) -> Value:
        """Return the value of a node that was emitted before; lanes leave their vectors when they are asked for."""
        while u.op is Ops.AFTER:
            u = u.src[0]
        found = self.values.get(u)
        if found is not None:
            return found
        if u in self.tiles.held:
            return self.tiles.as_vector(u)
        if u.op is Ops.CONST:
            made = self.b.constant(u.arg, u.dtype)
        elif u.op is Ops.INDEX and u.src[0] in self.words:
            words = self.words[u.src[0]]
            made = words[u.src[1].arg % len(words)]
        elif u.op is Ops.INDEX:
            vector = self.value(u.src[0])
            lane = u.src[1].arg
            made = self.b.lane(vector, lane)
        else:
            raise CompileError(f"LLVM: {u.op} is used before it is computed")
        self.values[u] = made
        return made

    def emit_param(self, u: UOp) -> None:
        if u.arg.addrspace is AddrSpace.ALU:
            self.values[u] = Value(f"%var{self.variables.index(u)}", u.dtype, 1, 0)
        else:
            self.pointers[u] = Value(f"%buf{u.arg.slot}", u.dtype, 1, 0)

    def emit_buffer(self, u: UOp) -> None:
        size = int(u.arg.shape[0]) if u.arg.shape else 1
        if u in self.tiles.variables:
            return
        if u.arg.addrspace is AddrSpace.REG and u not in self.arrays:
            self.registers[u] = self.b.zero(u.dtype, size)
            return
        self.stack_bytes += size * u.dtype.itemsize
        if self.stack_bytes > _MAX_STACK_BYTES:
            raise CompileError(
                f"LLVM: the kernel uses {self.stack_bytes} bytes of scratch memory, more than the {_MAX_STACK_BYTES} "
                "that fit the stack of a thread; use smaller tiles"
            )
        name = self.b.name()
        self.b.entry.append(f"{name} = alloca [{size} x {memory_type(u.dtype)}], align 64")
        self.pointers[u] = Value(name, u.dtype, 1, 0)

    def emit_stack(self, u: UOp) -> None:
        self.values[u] = self.b.stack(u.dtype, self._lanes(u))

    def _lanes(self, u: UOp) -> list[Value | tuple[Value, int]]:
        """Return the sources of a STACK; a lane of another vector as (vector, lane)."""
        if u.arg is not None:
            sources = [self.value(s) for s in u.src]
            return [(sources[i // sources[0].lanes], i % sources[0].lanes) for i in u.arg]
        lanes: list[Value | tuple[Value, int]] = []
        for s in u.src:
            if s.op is Ops.INDEX and s not in self.values:
                lanes.append((self.value(s.src[0]), s.src[1].arg))
            else:
                lanes.append(self.value(s))
        return lanes

    def emit_index(self, u: UOp) -> None:
        """Emit nothing: addresses are computed by the access, lanes when they are asked for."""

    def emit_cast(self, u: UOp) -> None:
        source = self.value(u.src[0])
        self.values[u] = emit_cast(self.b.at(source), source, u.dtype, self.machine)

    def emit_bitcast(self, u: UOp) -> None:
        stack = u.src[0]
        if u.dtype.itemsize * 2 == stack.dtype.itemsize == 8 and stack.op is Ops.STACK and len(set(stack.src)) == 1:
            # The words of one number. LLVM fails on some constants of which it learns that late, in a vector.
            number = self.value(stack.src[0])
            self.words[u] = words_of(self.b.at(number), number, u.dtype)
        source = self.value(u.src[0])
        self.values[u] = emit_bitcast(self.b.at(source), source, u.dtype)

    def emit_reduce(self, u: UOp) -> None:
        source = self.value(u.src[0])
        self.values[u] = emit_horizontal(self.b.at(source), u, source)

    def emit_dot(self, u: UOp) -> None:
        """Emit a dot-product or tile instruction on words of packed numbers."""
        if is_tile_product(u):
            self.tiles.multiply(u)
            return
        a, b, acc = (self.value(s) for s in u.src)
        found = _DOTS.get((u.arg[1], acc.lanes))
        if found is None:
            raise CompileError(f"LLVM: no dot-product instruction for {u.arg[1]} with {acc.lanes} lanes")
        function, form = found
        if form is not None:
            a, b = (self.b.at(x).emit(f"bitcast {x} to {form}", x.dtype, x.lanes) for x in (a, b))
        kind = form or a.type
        operands = str(acc), f"{kind} {a.name}", f"{kind} {b.name}"
        self.values[u] = self.b.at(a, b, acc).call(acc.dtype, acc.lanes, function, *operands)

    def emit_custom(self, u: UOp) -> None:
        text = str(u.arg).format(*(self.value(s).name for s in u.src))
        if u.op is Ops.CUSTOMI:
            self.values[u] = Value(text, u.dtype, 1, self.b.depth)
        elif u.dtype is dtypes.void:
            self.b.append(text)
        else:
            name = self.b.name()
            self.b.append(f"{name} = {text}")
            self.values[u] = Value(name, u.dtype, 1, self.b.depth)

    # ---- memory

    def address(self, u: UOp) -> Value:
        """Return the pointer, or vector of pointers, of an INDEX. A constant offset gets an instruction of its own."""
        pointer = self.pointers[u.src[0].without_after]
        kind, index, offset = memory_type(u.src[0].dtype), u.src[1], 0
        if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
            index, offset = index.src[0], index.src[1].arg
        elif index.op is Ops.CONST:
            return self.b.at(pointer).emit(f"getelementptr {kind}, ptr {pointer.name}, i64 {index.arg}", dtypes.void, 1)
        at = self.value(index)
        if at.lanes > 1 or offset == 0:
            at = self.value(u.src[1])
            return self.b.at(pointer, at).emit(f"getelementptr {kind}, ptr {pointer.name}, {at}", dtypes.void, at.lanes)
        base = self.b.at(pointer, at).emit(f"getelementptr {kind}, ptr {pointer.name}, {at}", dtypes.void, 1)
        return self.b.at(base).emit(f"getelementptr {kind}, ptr {base.name}, i64 {offset}", dtypes.void, 1)

    def emit_load(self, u: UOp) -> None:
        target = u.src[0]
        if target.op is not Ops.INDEX:
            register = target.without_after
            if register in self.tiles.variables:
                self.tiles.held[u] = self.tiles.variables[register]
            else:
                self.values[u] = self.registers[register]
            return
        if self.tiles.is_tile(u):
            self.tiles.load(u, self.address(target))
            return
        pointer = self.address(target)
        lanes = pointer.lanes if pointer.lanes > 1 else u.arg or 1
        alternative = self.value(u.src[1]) if len(u.src) > 1 else None
        gate = self.value(u.src[2]) if len(u.src) > 2 else None
        self.values[u] = self.b.load(pointer, u.dtype, lanes, alternative, gate)

    def emit_store(self, u: UOp) -> None:
        target, register = u.src[0], u.src[0].without_after
        if register in self.tiles.variables:
            self.tiles.set_variable(register, u.src[1])
            return
        if u.src[1] in self.tiles.held and len(u.src) == 2:
            self.tiles.store(u.src[1], self.address(target))
            return
        value = self.value(u.src[1])
        gate = self.value(u.src[2]) if len(u.src) > 2 else None
        if target.op is not Ops.INDEX:
            old = self.registers[register]
            self.registers[register] = value if gate is None else self.b.at(gate, value, old).select(gate, value, old)
            return
        self.b.store(self.address(target), value, gate)

    # ---- control flow

    def emit_range(self, u: UOp) -> None:
        """Open a loop: a block that runs at least once, behind a test where the count may be zero."""
        kind, parallel = ir_type(u.dtype), u.arg[-1] is AxisType.THREAD
        label, stop = self.b.label(), self.value(u.src[0])
        start = self.b.constant(0, u.dtype)
        if parallel:
            start, stop = Value("%begin", dtypes.int64, 1, 0), Value("%end", dtypes.int64, 1, 0)
            if kind != "i64":
                start, stop = (self.b.at(v).emit(f"trunc i64 {v.name} to {kind}", u.dtype, 1) for v in (start, stop))
        guarded = not parallel and not (u.src[0].op is Ops.CONST and u.src[0].arg > 0)
        entry = self.label
        self.b.enter()
        if guarded:
            test = self.b.name()
            self.b.append(f"{test} = icmp sgt {kind} {stop.name}, 0")
            self.b.append(f"br i1 {test}, label %{label}, label %{label}x")
        else:
            self.b.append(f"br label %{label}")
        self.b.append(f"{label}:")
        phis = self.b.chunk()
        counter = Value(self.b.name(), u.dtype, 1, self.b.depth)
        carried = {}
        for register in self.stored.get(u, ()):
            if register in self.registers:
                before = self.registers[register]
                name = self.b.name()
                carried[register] = (name, before)
                self.registers[register] = Value(name, before.dtype, before.lanes, self.b.depth)
        self.values[u] = counter
        self.open.append(_Loop(label, counter, phis, carried, (start, stop), guarded, entry))
        self.label = label

    def emit_end(self, u: UOp) -> None:
        for _ in u.src[1:]:
            self._close_loop()

    def _close_loop(self) -> None:
        loop = self.open.pop()
        if not isinstance(loop, _Loop):
            raise CompileError("LLVM: END closes a loop while an IF inside it is open")
        counter, kind = loop.counter, ir_type(loop.counter.dtype)
        step, test = self.b.name(), self.b.name()
        self.b.append(f"{step} = add nsw {kind} {counter.name}, 1")
        self.b.append(f"{test} = icmp slt {kind} {step}, {loop.bounds[1].name}")
        self.b.append(f"br i1 {test}, label %{loop.label}, label %{loop.label}x")
        latch = self.label
        loop.phis.append(f"{counter.name} = phi {kind} [ {loop.bounds[0].name}, %{loop.entry} ], [ {step}, %{latch} ]")
        self.b.leave()
        self.b.append(f"{loop.label}x:")
        for register, (name, before) in loop.carried.items():
            after, form = self.registers[register], vector_type(before.dtype, before.lanes)
            loop.phis.append(f"{name} = phi {form} [ {before.name}, %{loop.entry} ], [ {after.name}, %{latch} ]")
            if loop.guarded:
                out = self.b.name()
                self.b.append(f"{out} = phi {form} [ {before.name}, %{loop.entry} ], [ {after.name}, %{latch} ]")
                after = after._replace(name=out)
            self.registers[register] = after._replace(depth=self.b.depth)
        self.label = f"{loop.label}x"

    def emit_if(self, u: UOp) -> None:
        condition, label = self.value(u.src[0]), self.b.label()
        self.b.enter()
        self.b.append(f"br i1 {condition.name}, label %{label}, label %{label}x")
        self.b.append(f"{label}:")
        self.open.append(_Branch(label, self.label, dict(self.registers)))
        self.label = label

    def emit_endif(self, u: UOp) -> None:
        branch = self.open.pop()
        if not isinstance(branch, _Branch):
            raise CompileError("LLVM: ENDIF closes an IF while a loop inside it is open")
        self.b.append(f"br label %{branch.label}x")
        self.b.leave()
        self.b.append(f"{branch.label}x:")
        for register, before in branch.registers.items():
            after = self.registers[register]
            if after is not before:
                name, form = self.b.name(), vector_type(before.dtype, before.lanes)
                self.b.append(
                    f"{name} = phi {form} [ {before.name}, %{branch.entry} ], [ {after.name}, %{self.label} ]"
                )
                self.registers[register] = Value(name, before.dtype, before.lanes, self.b.depth)
        self.label = f"{branch.label}x"


def _is_address(u: UOp) -> bool:
    """Whether an INDEX addresses memory, rather than taking a lane of a vector."""
    return u.op is Ops.INDEX and u.src[0].without_after.op in (Ops.PARAM, Ops.BUFFER)


def _registers_stored_in_loops(uops: Sequence[UOp]) -> dict[UOp, list[UOp]]:
    """Return for every RANGE the register variables that its body stores to: those need a phi node."""
    found: dict[UOp, dict[UOp, None]] = {}
    loops: list[UOp] = []
    for u in uops:
        if u.op is Ops.RANGE:
            loops.append(u)
            found[u] = {}
        elif u.op is Ops.END:
            del loops[len(loops) - len(u.src) + 1 :]
        elif u.op is Ops.STORE and u.src[0].op is not Ops.INDEX:
            for loop in loops:
                found[loop][u.src[0].without_after] = None
    return {loop: list(registers) for loop, registers in found.items()}


# (dtype of the factors, lanes) -> intrinsic, and the type of its factors if it is not that of words.
_DOTS: dict[tuple[DType, int], tuple[str, str | None]] = {
    (dtypes.bfloat16, 16): ("llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>"),
    (dtypes.uint8, 16): ("llvm.x86.avx512.vpdpbusd.512", None),
}

_EMITTERS: dict[Ops, Any] = {
    Ops.PARAM: _Kernel.emit_param,
    Ops.BUFFER: _Kernel.emit_buffer,
    Ops.STACK: _Kernel.emit_stack,
    Ops.INDEX: _Kernel.emit_index,
    Ops.AFTER: _Kernel.emit_index,
    Ops.CONST: _Kernel.emit_index,
    Ops.CAST: _Kernel.emit_cast,
    Ops.BITCAST: _Kernel.emit_bitcast,
    Ops.REDUCE: _Kernel.emit_reduce,
    Ops.LOAD: _Kernel.emit_load,
    Ops.STORE: _Kernel.emit_store,
    Ops.RANGE: _Kernel.emit_range,
    Ops.END: _Kernel.emit_end,
    Ops.IF: _Kernel.emit_if,
    Ops.ENDIF: _Kernel.emit_endif,
    Ops.WMMA: _Kernel.emit_dot,
    Ops.CUSTOM: _Kernel.emit_custom,
    Ops.CUSTOMI: _Kernel.emit_custom,
}
