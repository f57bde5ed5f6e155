"""Linear UOps of one kernel -> the text of a Python function: the executable definition of the IR.

In:   the linear program (concrete dtypes; values are scalars or vectors of n lanes; the last node is the SINK).
Out:  ``def NAME(bufs, vals, group, local, begin, end, shared)``, run once per work-item; with a BARRIER it is a
      generator
      that yields at every barrier. The text starts with the signature as a comment for people, and needs the names of
      ``runtime.support.python_numbers``.
Why:  text is quick to run, easy to read at DEBUG=4, and safe to keep in the disk cache.

A scalar is a Python number that is a value of its dtype; a vector is a list of them that is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tinygrad.codegen.opt.tc import BFLOAT16, BFLOAT16_TILES, BYTE_TILES, BYTES, is_tile_arg
from tinygrad.device import CompileError, Compiler
from tinygrad.dtype import AddrSpace, DType, dtypes, truncate
from tinygrad.helpers import to_function_name
from tinygrad.renderer import Renderer, kernel_arguments
from tinygrad.uop import AxisType, GroupOp, Ops

if TYPE_CHECKING:
    from tinygrad.target import Target
    from tinygrad.uop.ops import UOp

# Memory views read and write these themselves; the other dtypes are decoded by table.
DIRECT_FORMATS: Final = frozenset("?bBhHiIqQfd")


def memory_format(dtype: DType) -> str:
    """Return the format of the memory view of a buffer: narrow floats, which Python 3.11 does not know, are bits."""
    return str(dtype.fmt) if dtype.fmt in DIRECT_FORMATS else "H" if dtype.itemsize == 2 else "B"


# ---- elementwise: op -> expression of its operands {0}, {1}, {2} ---------------------------------------------------

_PLAIN: Final[dict[Ops, str]] = {
    Ops.CMPLT: "{0} < {1}",
    Ops.CMPNE: "{0} != {1}",
    Ops.CMPEQ: "{0} == {1}",
    Ops.AND: "{0} & {1}",
    Ops.OR: "{0} | {1}",
    Ops.XOR: "{0} ^ {1}",
    Ops.WHERE: "{1} if {0} else {2}",
}
# The result may leave the dtype: it is wrapped (integers) or rounded (floats).
_WRAPPED: Final[dict[Ops, str]] = {
    Ops.ADD: "{0} + {1}",
    Ops.SUB: "{0} - {1}",
    Ops.MUL: "{0} * {1}",
    Ops.NEG: "-{0}",
    Ops.CDIV: "cdiv({0}, {1})",
    Ops.FDIV: "divide({0}, {1})",
    Ops.RECIPROCAL: "divide(1.0, {0})",
    Ops.SQRT: "square_root({0})",
    Ops.EXP2: "exp2({0})",
    Ops.LOG2: "log2({0})",
    Ops.SIN: "sin({0})",
}
_BOOL: Final[dict[Ops, str]] = {
    Ops.ADD: "{0} | {1}",
    Ops.MUL: "{0} & {1}",
    Ops.MAX: "{0} | {1}",
}


def _fit(expression: str, dtype: DType) -> str:
    """Wrap or round an expression that may be no value of ``dtype``."""
    if dtypes.is_int(dtype):
        mask = (1 << dtype.bitsize) - 1
        if dtypes.is_unsigned(dtype):
            return f"({expression}) & {mask:#x}"
        half = 1 << (dtype.bitsize - 1)
        return f"(({expression}) + {half:#x} & {mask:#x}) - {half:#x}"
    if dtype is dtypes.float64:
        return expression
    return f"round_{dtype.full_name}({expression})" if dtypes.is_float(dtype) else expression


def _max(dtype: DType) -> str:
    # NaN on either side wins; of two zeros with different signs the second is taken.
    return "{0} if {0} > {1} or {0} != {0} else {1}" if dtypes.is_float(dtype) else "{0} if {0} > {1} else {1}"


def alu_expression(u: UOp) -> str:
    """Return the expression of an ALU node, with {0}, {1}, {2} for its operands."""
    op, dtype = u.op, u.dtype
    if dtype is dtypes.bool and op in _BOOL:
        return _BOOL[op]
    if op in _PLAIN:
        return _PLAIN[op]
    if op in _WRAPPED:
        return _fit(_WRAPPED[op], dtype)
    match op:
        case Ops.MAX:
            return _max(dtype)
        case Ops.CMOD:
            return _fit("float_mod({0}, {1})", dtype) if dtypes.is_float(dtype) else "cmod({0}, {1})"
        case Ops.TRUNC:
            if dtype in dtypes.fp8s:
                return _fit("trunc({0})", dtype)  # some have no -0.0
            return "trunc({0})" if dtypes.is_float(dtype) else "{0}"
        case Ops.SHL:
            # By the width or more (a negative count is a large one), nothing is left, or the sign.
            return _fit(f"({{0}} << {{1}} if 0 <= {{1}} < {dtype.bitsize} else 0)", dtype)
        case Ops.SHR:
            far = f"{{0}} >> {dtype.bitsize - 1}" if dtype.kind == "int" else "0"
            return f"({{0}} >> {{1}} if 0 <= {{1}} < {dtype.bitsize} else {far})"
        case Ops.MULACC:
            return (
                f"fma_{dtype.full_name}({{0}}, {{1}}, {{2}})"
                if dtypes.is_float(dtype)
                else _fit("{0} * {1} + {2}", dtype)
            )
    raise CompileError(f"PYTHON: {op} is not an operation of linear programs; codegen/decomp must lower it")


def cast_expression(source: DType, target: DType) -> str:
    """Return the expression that converts {0}."""
    if target is source:
        return "{0}"
    if target is dtypes.bool:
        return "{0} != 0"
    if dtypes.is_float(target):
        if target is dtypes.float64:
            return "float({0})"
        if target is dtypes.float32 and source in dtypes.int64s:
            return "int_to_float32({0})"
        return f"round_{target.full_name}({'{0}' if dtypes.is_float(source) else 'float({0})'})"
    if dtypes.is_float(source):
        return f"to_{target.full_name}({{0}})"
    if source is dtypes.bool:
        return "int({0})"
    return "{0}" if target.min <= source.min and source.max <= target.max else _fit("{0}", target)


def constant(value: Any, dtype: DType) -> str:
    """Return the text of a constant of ``dtype``."""
    text = repr(truncate[dtype](value) if dtype in truncate else value)
    return f"({text})" if text.startswith("-") else text


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


class _Writer:
    """Writes the body of the function, one statement per node."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[UOp, str] = {}
        self.lanes: dict[UOp, int] = {}  # 0 is a scalar
        self.buffers: dict[int, UOp] = {}  # slot -> its first argument
        self.has_barrier = self.has_threads = False

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def define(self, u: UOp, expression: str, lanes: int) -> None:
        name = f"v{len(self.names)}"
        self.line(f"{name} = {expression}")
        self.names[u], self.lanes[u] = name, lanes

    # -- values

    def write(self, u: UOp) -> None:
        """Write the statement of one node."""
        write = _WRITERS.get(u.op)
        if write is not None:
            write(self, u)
        elif u.op in GroupOp.ALU:
            self.elementwise(u, alu_expression(u))
        elif u.op is Ops.WMMA and is_tile_arg(u.arg):
            function = "_".join(("tile", *(dtype.full_name for dtype in u.arg[4])))
            tile = f"{function}({', '.join(self.names[s] for s in u.src)})"
            self.define(u, f"[x & 0xFFFFFFFF for x in {tile}]" if u.dtype is dtypes.uint32 else tile, 256)
        elif u.op is Ops.WMMA:
            self.elementwise(u, f"dot_{u.arg[1].full_name}({{0}}, {{1}}, {{2}})")
        else:
            raise CompileError(f"PYTHON: {u.op} is not an operation of linear programs")

    def elementwise(self, u: UOp, expression: str) -> None:
        lanes = max(self.lanes[s] for s in u.src)
        if not lanes:
            self.define(u, expression.format(*(self.names[s] for s in u.src)), 0)
            return
        if any(self.lanes[s] != lanes for s in u.src):
            raise CompileError(f"PYTHON: {u.op} mixes lanes {[self.lanes[s] for s in u.src]}")
        letters = "abc"[: len(u.src)]
        sources = [self.names[s] for s in u.src]
        pairs = sources[0] if len(sources) == 1 else f"zip({', '.join(sources)})"
        self.define(u, f"[{expression.format(*letters)} for {', '.join(letters)} in {pairs}]", lanes)

    def cast(self, u: UOp) -> None:
        self.elementwise(u, cast_expression(u.src[0].dtype, u.dtype))

    def bitcast(self, u: UOp) -> None:
        value, source = u.src[0], u.src[0].dtype
        if source.itemsize == u.dtype.itemsize:
            self.elementwise(u, f"bits_{source.full_name}_{u.dtype.full_name}({{0}})")
            return
        lanes, rest = divmod(self.lanes[value] * source.itemsize, u.dtype.itemsize)
        if rest or not lanes:
            raise CompileError(
                f"PYTHON: BITCAST from {source} to {u.dtype} changes the item size of {self.lanes[value]} lanes"
            )
        self.define(u, f"lanes_{source.full_name}_{u.dtype.full_name}({self.names[value]})", lanes)

    def const(self, u: UOp) -> None:
        self.names[u], self.lanes[u] = constant(u.arg, u.dtype), 0

    def stack(self, u: UOp) -> None:
        items = [self.names[s] for s in u.src]
        if u.arg is not None:
            n = self.lanes[u.src[0]]
            items = [f"{items[i // n]}[{i % n}]" for i in u.arg]
        splat = len(set(items)) == 1
        self.define(u, f"[{items[0]}] * {len(items)}" if splat else f"[{', '.join(items)}]", len(items))

    def reduce(self, u: UOp) -> None:
        value, op = u.src[0], u.arg[0]
        lanes, expression = self.lanes[value], alu_expression(u.replace(op=op, src=(value, value), arg=None))
        name = self.names[value]
        while lanes > 1:
            lanes //= 2
            self.line(f"h = [{expression.format('a', 'b')} for a, b in zip({name}[:{lanes}], {name}[{lanes}:])]")
            name = "h"
        self.define(u, f"{name}[0]", 0)

    def special(self, u: UOp) -> None:
        kind, axis = str(u.arg)[:-1], int(str(u.arg)[-1])
        self.names[u], self.lanes[u] = f"{'local' if kind == 'lidx' else 'group'}[{axis}]", 0

    def param(self, u: UOp) -> None:
        self.names[u], self.lanes[u] = param_name(u), 0
        if u.arg.addrspace is AddrSpace.ALU:
            return
        first = self.buffers.setdefault(u.arg.slot, u)
        if u.dtype is not first.dtype:
            # The same memory, seen with another dtype.
            self.names[u] = f"{param_name(u)}_{u.dtype.full_name}"
            nbytes = memory_size(u) * u.dtype.itemsize
            self.line(f"{self.names[u]} = {param_name(u)}.cast('B')[:{nbytes}].cast('{memory_format(u.dtype)}')")

    def buffer(self, u: UOp) -> None:
        shape = u.arg.shape
        if u.arg.addrspace is AddrSpace.REG:
            self.names[u], self.lanes[u] = f"reg{u.arg.slot}", int(shape[0]) if shape else 0
        elif u.arg.addrspace is AddrSpace.LOCAL:
            self.names[u], self.lanes[u] = local_name(u), 0
        else:
            raise CompileError(f"PYTHON: BUFFER in {u.arg.addrspace} inside a kernel; expected LOCAL or REG")

    def index(self, u: UOp) -> None:
        base, position = u.src[0], u.src[1]
        if is_memory(base):
            self.names[u], self.lanes[u] = "", self.lanes[position]  # an address; LOAD and STORE read it
        else:
            self.define(u, f"{self.names[base]}[{self.names[position]}]", 0)

    def alias(self, u: UOp) -> None:
        if u.src and u.src[0] in self.names:
            self.names[u], self.lanes[u] = self.names[u.src[0]], self.lanes[u.src[0]]

    # -- memory

    def load(self, u: UOp) -> None:
        address = u.src[0]
        if not is_address(address):
            self.define(u, self.names[address], self.lanes[address])
            return
        memory, position = without_after(address.src[0]), address.src[1]
        lanes = self.lanes[position] or int(u.arg or 0)
        gate = u.src[2] if len(u.src) > 2 else None
        if not lanes:
            text = self._read(memory, self.names[position])
            if gate is not None:
                text = f"({text}) if {self.names[gate]} else {self.names[u.src[1]]}"
            self.define(u, text, 0)
            return
        read = self._read(memory, "i")
        if gate is None:
            self.define(u, f"[{read} for i in {self._positions(position, lanes)}]", lanes)
            return
        alternative = self._lanes_of(u.src[1], lanes)
        zipped = f"zip({self._positions(position, lanes)}, {self._lanes_of(gate, lanes)}, {alternative})"
        self.define(u, f"[({read}) if g else a for i, g, a in {zipped}]", lanes)

    def store(self, u: UOp) -> None:
        address, value = u.src[0], u.src[1]
        if not is_address(address):
            self.line(f"{self.names[address]} = {self.names[value]}")
            return
        memory, position = without_after(address.src[0]), address.src[1]
        lanes, gate = self.lanes[position] or self.lanes[value], u.src[2] if len(u.src) > 2 else None
        if not lanes:
            if gate is not None:
                self.line(f"if {self.names[gate]}:")
                self.depth += 1
            self._write(memory, self.names[position], self.names[value])
            self.depth -= gate is not None
            return
        gates = "" if gate is None else f", {self._lanes_of(gate, lanes)}"
        zipped = f"zip({self._positions(position, lanes)}, {self._lanes_of(value, lanes)}{gates})"
        self.line(f"for i, x{'' if gate is None else ', g'} in {zipped}:")
        self.depth += 1
        if gate is not None:
            self.line("if not g: continue")
        self._write(memory, "i", "x")
        self.depth -= 1

    def _read(self, memory: UOp, position: str) -> str:
        name, size, dtype = self.names[memory], memory_size(memory), memory.dtype
        item = f"{name}[{position}]"
        if memory.op is Ops.PARAM and dtype.fmt not in DIRECT_FORMATS:
            item = f"table_{dtype.full_name}[{item}]"
        return f"{item} if 0 <= {position} < {size} else out_of_bounds('load', '{name}', {position}, {size})"

    def _write(self, memory: UOp, position: str, value: str) -> None:
        name, size = self.names[memory], memory_size(memory)
        self.line(f"if not 0 <= {position} < {size}: out_of_bounds('store', '{name}', {position}, {size})")
        encoded = memory.dtype.fmt in DIRECT_FORMATS or memory.op is Ops.BUFFER
        self.line(f"{name}[{position}] = {value if encoded else f'encode_{memory.dtype.full_name}({value})'}")

    def _positions(self, position: UOp, lanes: int) -> str:
        name = self.names[position]
        return name if self.lanes[position] else f"range({name}, {name} + {lanes})"

    def _lanes_of(self, value: UOp, lanes: int) -> str:
        return self.names[value] if self.lanes[value] else f"[{self.names[value]}] * {lanes}"

    # -- control

    def range(self, u: UOp) -> None:
        name = f"r{len(self.names)}"
        self.names[u], self.lanes[u] = name, 0
        threads = u.arg[-1] is AxisType.THREAD
        self.has_threads |= threads
        bounds = "begin, end" if threads else self.names[u.src[0]]
        self._open(f"for {name} in range({bounds}):")

    def condition(self, u: UOp) -> None:
        self.names[u], self.lanes[u] = "", 0
        self._open(f"if {self.names[u.src[0]]}:")

    def _open(self, header: str) -> None:
        self.line(header)
        self.depth += 1
        self.line("pass")  # a body may turn out to be empty

    def close(self, u: UOp) -> None:
        # An END may close several ranges, and IF takes one ENDIF.
        self.depth -= max(1, sum(s.op is Ops.RANGE for s in u.src[1:]))

    def barrier(self, u: UOp) -> None:
        self.has_barrier = True
        self.line("yield")

    def nothing(self, u: UOp) -> None:
        """NOOP, GROUP, SINK."""


_WRITERS: Final[dict[Ops, Callable[[_Writer, UOp], None]]] = {
    Ops.PARAM: _Writer.param,
    Ops.BUFFER: _Writer.buffer,
    Ops.CONST: _Writer.const,
    Ops.STACK: _Writer.stack,
    Ops.INDEX: _Writer.index,
    Ops.REDUCE: _Writer.reduce,
    Ops.CAST: _Writer.cast,
    Ops.BITCAST: _Writer.bitcast,
    Ops.LOAD: _Writer.load,
    Ops.STORE: _Writer.store,
    Ops.RANGE: _Writer.range,
    Ops.END: _Writer.close,
    Ops.IF: _Writer.condition,
    Ops.ENDIF: _Writer.close,
    Ops.SPECIAL: _Writer.special,
    Ops.BARRIER: _Writer.barrier,
    Ops.AFTER: _Writer.alias,
    Ops.GROUP: _Writer.nothing,
    Ops.NOOP: _Writer.nothing,
    Ops.SINK: _Writer.nothing,
}


def without_after(u: UOp) -> UOp:
    """Return the memory that an AFTER orders."""
    while u.op is Ops.AFTER:
        u = u.src[0]
    return u


def is_memory(u: UOp) -> bool:
    """Whether INDEX on this node is an address (and not a lane of a vector)."""
    u = without_after(u)
    return u.op in {Ops.PARAM, Ops.BUFFER} and u.arg.addrspace in {AddrSpace.GLOBAL, AddrSpace.LOCAL}


def is_address(u: UOp) -> bool:
    """Whether this node is an address in memory."""
    return u.op is Ops.INDEX and is_memory(u.src[0])


def param_name(u: UOp) -> str:
    """Return the name of an argument: ``data<slot>``, or ``var_<name>`` for a variable."""
    return f"var_{to_function_name(u.arg.name)}" if u.arg.addrspace is AddrSpace.ALU else f"data{u.arg.slot}"


def local_name(u: UOp) -> str:
    """Return the name of a piece of local memory."""
    return f"local{u.arg.slot}"


def memory_size(u: UOp) -> int:
    """Return the number of elements of a buffer argument or of local memory."""
    size = 1
    for dim in u.arg.shape:
        size *= int(dim)
    return size


class PythonRenderer(Renderer):
    """Renders Python. The architecture in ``DEV`` is a comma list of options, so that every style of kernel can be run.

    ``local`` (work-groups and local memory), ``threads`` (a THREAD loop), ``vecN`` (vectors of N bytes, default 16, 0
    for none), ``native`` (EXP2, LOG2, SIN native), ``mulacc``, ``dots`` (dot-product instructions), ``minimal`` (only
    what every device must have), ``gpu`` for ``local,vec16``.
    """

    suffix = "py"
    has_local = False
    has_threads = False
    has_shared = True
    supports_float4 = True
    index_dtype = dtypes.int32
    vector_bytes = 16
    vector_registers = 16
    global_max: Any = (2**31 - 1, 65535, 65535)
    local_max: Any = (1024, 1024, 64)
    shared_max = 1 << 20

    MINIMAL: Final = frozenset({
        Ops.ADD, Ops.MUL, Ops.CMPLT, Ops.CMPNE, Ops.XOR, Ops.OR, Ops.AND, Ops.CDIV, Ops.CMOD, Ops.WHERE, Ops.SHL,
        Ops.SHR, Ops.TRUNC, Ops.RECIPROCAL,
    })  # fmt: skip
    USUAL: Final = MINIMAL | {Ops.SUB, Ops.NEG, Ops.CMPEQ, Ops.FDIV, Ops.SQRT, Ops.MAX}

    code_for_op: dict[Ops, Any] = dict.fromkeys(sorted(USUAL), "")

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.compiler = Compiler("compile_python_1")
        options = {option.strip().lower() for option in target.arch.split(",") if option.strip()}
        ops = set(self.MINIMAL if "minimal" in options else self.USUAL)
        for option in sorted(options):
            if option in {"local", "gpu"} or option.startswith(("gfx", "sm_", "metal")):
                self.has_local = True
            elif option == "threads":
                self.has_threads = True
            elif option == "native":
                ops |= {Ops.EXP2, Ops.LOG2, Ops.SIN}
            elif option == "mulacc":
                ops.add(Ops.MULACC)
            elif option == "dots":
                self.tensor_cores = (*self.tensor_cores, BFLOAT16, BYTES)
            elif option == "tiles":
                self.tensor_cores = (BFLOAT16_TILES, BYTE_TILES, *self.tensor_cores)
            elif option.startswith("vec") and option[3:].isdecimal():
                self.vector_bytes = int(option[3:])
            elif option != "minimal":
                raise RuntimeError(
                    f"DEV={target}: PYTHON has no option {option!r}; "
                    "it has local, threads, vecN, native, mulacc, dots, tiles, minimal, gpu"
                )
        self.code_for_op = dict.fromkeys(sorted(ops), "")

    def render(self, uops: Sequence[UOp]) -> str:
        """Return the text of the kernel's function."""
        writer = _Writer()
        for u in uops:
            writer.write(u)
        buffers, variables = kernel_arguments(uops)
        locals_ = [u for u in uops if u.op is Ops.BUFFER and u.arg.addrspace is AddrSpace.LOCAL]
        info = uops[-1].arg
        head = [
            f"# barrier = {writer.has_barrier}",
            f"# threads = {writer.has_threads}",
            f"# buffers = {_signature(buffers)}",
            f"# shared = {_signature(locals_)}",
            f"def {info.function_name}(bufs, vals, group, local, begin, end, shared):",
        ]
        for unpacked, source in (
            ([param_name(u) for u in buffers], "bufs"),
            ([param_name(u) for u in variables], "vals"),
            ([local_name(u) for u in locals_], "shared"),
        ):
            if unpacked:
                head.append(f"    {_tuple(unpacked)} = {source}")
        return "\n".join([*head, *writer.lines, ""]) if writer.lines else "\n".join([*head, "    pass", ""])


def _signature(memories: Sequence[UOp]) -> list[tuple[str, int]]:
    """(name of the dtype, elements) of each piece of memory."""
    return [(u.dtype.full_name, memory_size(u)) for u in memories]
