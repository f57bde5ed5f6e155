"""C and its relatives.

In:   the linear program of one kernel.
Out:  C-like source text. ``CStyleLanguage`` is the configurable base (OpenCL, CUDA, Metal derive from it);
      ``ClangRenderer`` writes C for CPUs with the same signature as the LLVM renderer.
Why:  a vector value is written as one scalar variable per lane, so every compiler takes it; C compilers find the
      vectors again, and GPUs do not need them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tinygrad.device import CompileError
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.renderer import Renderer, kernel_arguments, lanes_of
from tinygrad.runtime.support.compiler_clang import ClangCompiler
from tinygrad.runtime.support.cpu_arch import parse_arch
from tinygrad.target import Target
from tinygrad.uop import AxisType, Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

OpCode = Callable[..., str]


def _by_dtype(float_form: str, int_form: str, bool_form: str) -> OpCode:
    def code(*operands: str, dtype: DType) -> str:
        form = float_form if dtypes.is_float(dtype) else bool_form if dtype is dtypes.bool else int_form
        return form.format(*operands)

    return code


def _max(x: str, y: str, dtype: DType) -> str:
    if dtypes.is_float(dtype):
        return f"(({x} > {y} || {x} != {x}) ? {x} : {y})"  # NaN in x: x; NaN in y: the comparison fails
    return f"(({x} > {y}) ? {x} : {y})"


def _divide(symbol: str) -> OpCode:
    def code(x: str, y: str, dtype: DType) -> str:
        by_zero, by_minus_one = ("0", f"(0-{x})") if symbol == "/" else (x, "0")
        safe = f"({x}{symbol}{y})"
        if dtype.kind == "int":
            safe = f"({y} == -1 ? {by_minus_one} : {safe})"
        return f"({y} == 0 ? {by_zero} : {safe})"

    return code


def _modulo(of_floats: OpCode) -> OpCode:
    def code(x: str, y: str, dtype: DType) -> str:
        return (of_floats if dtypes.is_float(dtype) else _divide("%"))(x, y, dtype=dtype)

    return code


def _shift_left(x: str, y: str, dtype: DType) -> str:
    return f"((unsigned long)({y}) < {dtype.bitsize}u ? ({x} << {y}) : 0)"


def _shift_right(x: str, y: str, dtype: DType) -> str:
    far = f"({x} >> {dtype.bitsize - 1})" if dtype.kind == "int" else "0"
    return f"((unsigned long)({y}) < {dtype.bitsize}u ? ({x} >> {y}) : {far})"


class CStyleLanguage(Renderer):
    """A C-like language, described by its attributes.

    Attributes:
        kernel_typedef: What stands before the name of a kernel.
        buffer_prefix: What stands before the type of a buffer argument.
        buffer_suffix: What stands after its ``*``.
        smem_align, smem_prefix: What stands before LOCAL arrays.
        var_prefix, var_suffix: Around the type of a variable argument.
        barrier: The statement that waits for the work-group.
        code_for_workitem: "g" and "l" -> text of the group's and the item's index along an axis number.
        extra_args: Further arguments of every kernel.
        type_map: dtype -> type name, where it differs from C's.
        infinity, nan: Their text.
        code_for_op: Operation -> text of operands and ``dtype`` (that of the first operand).
    """

    kernel_typedef: str = "void"
    buffer_prefix: str = ""
    buffer_suffix: str = ""
    smem_align: str = ""
    smem_prefix: str = ""
    smem_prefix_for_cast: bool = True
    var_prefix: str = "const "
    var_suffix: str = ""
    barrier: str = ""
    code_for_workitem: ClassVar[dict[str, Callable[[int], str]]] = {}
    extra_args: ClassVar[Sequence[str]] = ()
    float4: str | None = None
    float4_style: ClassVar[tuple[str, str]] = ("(", ")")
    gep_arr_threshold: int = 4
    type_map: ClassVar[dict[DType, str]] = {}
    infinity: str = "INFINITY"
    nan: str = "NAN"
    string_rewrite: Any = None
    code_for_op: dict[Ops, Callable[..., str]] = {  # noqa: RUF012  a table that subclasses replace
        Ops.ADD: _by_dtype("({0}+{1})", "({0}+{1})", "({0}|{1})"),
        Ops.SUB: _by_dtype("({0}-{1})", "({0}-{1})", "({0}^{1})"),
        Ops.MUL: _by_dtype("({0}*{1})", "({0}*{1})", "({0}&{1})"),
        Ops.FDIV: _by_dtype("({0}/{1})", "({0}/{1})", "({0})"),
        Ops.NEG: _by_dtype("(-{0})", "(0-{0})", "(!{0})"),
        Ops.RECIPROCAL: _by_dtype("(1/{0})", "(1/{0})", "({0})"),
        Ops.SQRT: _by_dtype("sqrt({0})", "({0})", "({0})"),
        Ops.TRUNC: _by_dtype("trunc({0})", "({0})", "({0})"),
        Ops.MAX: _max,
        Ops.CDIV: _divide("/"),
        Ops.CMOD: _modulo(_by_dtype("fmod({0}, {1})", "", "")),
        Ops.CMPLT: _by_dtype("({0}<{1})", "({0}<{1})", "({0}<{1})"),
        Ops.CMPNE: _by_dtype("({0}!={1})", "({0}!={1})", "({0}!={1})"),
        Ops.CMPEQ: _by_dtype("({0}=={1})", "({0}=={1})", "({0}=={1})"),
        Ops.XOR: _by_dtype("", "({0}^{1})", "({0}^{1})"),
        Ops.OR: _by_dtype("", "({0}|{1})", "({0}|{1})"),
        Ops.AND: _by_dtype("", "({0}&{1})", "({0}&{1})"),
        Ops.SHL: _shift_left,
        Ops.SHR: _shift_right,
        Ops.WHERE: _by_dtype("({0}?{1}:{2})", "({0}?{1}:{2})", "({0}?{1}:{2})"),
    }

    def render_dtype(self, dtype: DType) -> str:
        """Return the type of a value in registers."""
        return self.type_map.get(dtype, dtype.name)

    def render_memory_dtype(self, dtype: DType) -> str:
        """Return the type of an element in memory: a bool is a byte."""
        return self.render_dtype(dtypes.uint8 if dtype is dtypes.bool else dtype)

    def render_const(self, value: Any, dtype: DType) -> str:
        """Return a constant; floats in hexadecimal, which is exact."""
        if dtypes.is_float(dtype):
            number = float(value)
            if not math.isfinite(number):
                text = self.nan if math.isnan(number) else self.infinity if number > 0 else f"(-{self.infinity})"
                return f"(({self.render_dtype(dtype)}){text})"
            if dtype is dtypes.float64:
                return f"({number.hex()})"
            if dtype is dtypes.float32:
                try:
                    number = struct.unpack("<f", struct.pack("<f", number))[0]
                except OverflowError:
                    return self.render_const(math.copysign(math.inf, number), dtype)
            return f"(({self.render_dtype(dtype)}){number.hex()}f)"
        if dtype is dtypes.bool:
            return "1" if value else "0"
        suffix = {"int": "", "uint": "u"}[dtype.kind] + ("l" if dtype.bitsize > 32 else "")
        if dtype.kind == "int" and value == dtype.min and dtype.bitsize >= 32:
            return f"({value + 1}{suffix}-1)"  # C has no negative literals
        return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"

    def render_cast(self, text: str, source: DType, dtype: DType) -> str:
        """Return a conversion of values."""
        if dtype is dtypes.bool:
            return f"({text}!=0)"
        if dtypes.is_float(source) and dtypes.is_int(dtype):
            wide = "u64" if dtype is dtypes.uint64 else "i32" if dtype.bitsize <= 16 or dtype is dtypes.int32 else "i64"
            return f"({self.render_dtype(dtype)})float_to_{wide}({text})"
        return f"({self.render_dtype(dtype)})({text})"

    def render_bitcast(self, text: str, source: DType, dtype: DType) -> str:
        """Return a reinterpretation of bits."""
        before, after = self.render_memory_dtype(source), self.render_memory_dtype(dtype)
        body = f"((union {{ {before} a; {after} b; }}){{ .a = ({before})({text}) }}).b"
        return f"({body}!=0)" if dtype is dtypes.bool else f"({body})"

    def render_kernel(
        self,
        function_name: str,
        kernel: Sequence[str],
        bufs: Sequence[tuple[str, DType, bool]],
        uops: Sequence[UOp],
        prefix: Sequence[str] | None = None,
    ) -> str:
        """Return the whole source.

        Args:
            function_name: Name of the kernel.
            kernel: Lines of its body.
            bufs: (name, dtype, whether it is a buffer) of every argument in order.
            uops: The program.
            prefix: Lines before the kernel.
        """
        arguments = [
            f"{self.buffer_prefix}{self.render_memory_dtype(dtype)}*{self.buffer_suffix} {name}"
            if is_buffer
            else f"{self.var_prefix}{self.render_dtype(dtype)}{self.var_suffix} {name}"
            for name, dtype, is_buffer in bufs
        ]
        head = f"{self.kernel_typedef} {function_name}({', '.join([*arguments, *self.extra_args])}) {{"
        return "\n".join([*(prefix or ()), head, *kernel, "}"]) + "\n"

    def render(self, uops: Sequence[UOp]) -> str:
        """Return the source of a kernel."""
        body = _Body(self, uops)
        name, lines = body.lines()
        buffers, variables = kernel_arguments(uops)
        bufs = [(f"data{u.arg.slot}", u.dtype, True) for u in buffers] + [
            (u.arg.name, u.dtype, False) for u in variables
        ]
        return self.render_kernel(name, lines, bufs, uops)


class _Body:
    """Renders the statements of one kernel; every value is a list of texts, one per lane."""

    def __init__(self, language: CStyleLanguage, uops: Sequence[UOp]) -> None:
        self.language, self.uops = language, uops
        self.values: dict[UOp, list[str]] = {}
        self.out: list[str] = []
        self.indent = 1
        self.arrays = {
            u.src[0].without_after
            for u in uops
            if u.op is Ops.INDEX and u.src[0].without_after.op in (Ops.PARAM, Ops.BUFFER)
        }

    def lines(self) -> tuple[str, list[str]]:
        """Return the name of the kernel and its lines."""
        name = "kernel"
        for u in self.uops:
            if u.op is Ops.SINK:
                name = u.arg.function_name if u.arg is not None else name
            else:
                self.statement(u)
        return name, self.out

    def put(self, line: str) -> None:
        self.out.append("  " * self.indent + line)

    def define(self, u: UOp, texts: Sequence[str]) -> None:
        """Give every lane a variable."""
        base = f"v{len(self.values)}"
        names = [base if len(texts) == 1 else f"{base}_{i}" for i in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            self.put(f"{self.language.render_dtype(u.dtype)} {name} = {text};")
        self.values[u] = names

    def value(self, u: UOp) -> list[str]:
        while u.op is Ops.AFTER:
            u = u.src[0]
        if u not in self.values and u.op is Ops.CONST:
            self.values[u] = [self.language.render_const(u.arg, u.dtype)]
        return self.values[u]

    def lanes(self, u: UOp, n: int) -> list[str]:
        """Return the texts of a value, a scalar repeated."""
        texts = self.value(u)
        return texts * n if len(texts) == 1 else texts

    def statement(self, u: UOp) -> None:
        method = _STATEMENTS.get(u.op)
        if method is not None:
            method(self, u)
        elif u.op in self.language.code_for_op:
            code, n = self.language.code_for_op[u.op], lanes_of(u)
            kind = u.src[1].dtype if u.op is Ops.WHERE else u.src[0].dtype
            operands = zip(*(self.lanes(s, n) for s in u.src), strict=True)
            self.define(u, [code(*operand, dtype=kind) for operand in operands])
        else:
            raise CompileError(f"{type(self.language).__name__}: {u.op} on {u.dtype} must be lowered before rendering")

    def _nothing(self, u: UOp) -> None:
        pass

    def _param(self, u: UOp) -> None:
        self.values[u] = [u.arg.name if u.arg.addrspace is AddrSpace.ALU else f"data{u.arg.slot}"]

    def _special(self, u: UOp) -> None:
        self.define(u, [self.language.code_for_workitem[u.arg[0]](int(u.arg[-1]))])

    def _stack(self, u: UOp) -> None:
        lanes = [lane for s in u.src for lane in self.value(s)]
        self.values[u] = lanes if u.arg is None else [lanes[i] for i in u.arg]

    def _index(self, u: UOp) -> None:
        # An address is written by the access that uses it; a lane of a vector is a variable already.
        if u.src[0].without_after.op not in (Ops.PARAM, Ops.BUFFER):
            self.values[u] = [self.value(u.src[0])[u.src[1].arg]]

    def _cast(self, u: UOp) -> None:
        convert = self.language.render_cast if u.op is Ops.CAST else self.language.render_bitcast
        self.define(u, [convert(x, u.src[0].dtype, u.dtype) for x in self.value(u.src[0])])

    def _bitcast(self, u: UOp) -> None:
        value, source, dtype = self.value(u.src[0]), u.src[0].dtype, u.dtype
        if source.itemsize == dtype.itemsize:
            self._cast(u)
            return
        # Through memory: the lanes as an array, copied to one of the other dtype.
        n, name = len(value) * source.itemsize // dtype.itemsize, f"v{len(self.values)}"
        before, after = self.language.render_memory_dtype(source), self.language.render_memory_dtype(dtype)
        self.put(f"union {{ {before} a[{len(value)}]; {after} b[{n}]; }} {name} = {{ .a = {{{', '.join(value)}}} }};")
        self.values[u] = [f"{name}.b[{i}]" for i in range(n)]

    def _barrier(self, u: UOp) -> None:
        self.put(self.language.barrier)

    def _custom(self, u: UOp) -> None:
        text = str(u.arg).format(*(self.value(s)[0] for s in u.src))
        if u.op is Ops.CUSTOMI:
            self.values[u] = [text]
        elif u.dtype is dtypes.void:
            self.put(text)
        else:
            self.define(u, [text])

    def _buffer(self, u: UOp) -> None:
        size = int(u.arg.shape[0]) if u.arg.shape else 1
        if u.arg.addrspace is AddrSpace.REG and u not in self.arrays:
            names = [f"r{u.arg.slot}_{i}" for i in range(size)]
            for name in names:
                self.put(f"{self.language.render_dtype(u.dtype)} {name} = 0;")
            self.values[u] = names
            return
        local = u.arg.addrspace is AddrSpace.LOCAL
        prefix = f"{self.language.smem_align}{self.language.smem_prefix}" if local else ""
        self.put(f"{prefix}{self.language.render_memory_dtype(u.dtype)} m{u.arg.slot}[{size}];")
        self.values[u] = [f"m{u.arg.slot}"]

    def _elements(self, index: UOp, n: int) -> list[str]:
        """Return the memory element of every lane."""
        base, places = self.value(index.src[0])[0], self.value(index.src[1])
        if len(places) == 1 and n > 1:
            return [f"{base}[{places[0]}+{i}]" for i in range(n)]
        return [f"{base}[{place}]" for place in places]

    def _load(self, u: UOp) -> None:
        if u.src[0].op is not Ops.INDEX:
            self.define(u, self.value(u.src[0]))
            return
        n = lanes_of(u)
        texts = self._elements(u.src[0], n)
        if u.dtype is dtypes.bool:
            texts = [f"({text}!=0)" for text in texts]
        if len(u.src) > 2:
            other, gate = self.lanes(u.src[1], n), self.lanes(u.src[2], n)
            texts = [f"({g}?{text}:{o})" for g, text, o in zip(gate, texts, other, strict=True)]
        self.define(u, texts)

    def _store(self, u: UOp) -> None:
        target = u.src[0]
        n = (
            lanes_of(u.src[1])
            if target.op is not Ops.INDEX
            else max(lanes_of(u.src[1]), len(self.value(target.src[1])))
        )
        places = self._elements(target, n) if target.op is Ops.INDEX else self.value(target)
        gate = self.lanes(u.src[2], n) if len(u.src) > 2 else None
        for i, (place, text) in enumerate(zip(places, self.lanes(u.src[1], n), strict=True)):
            self.put(f"{place} = {text};" if gate is None else f"if ({gate[i]}) {{ {place} = {text}; }}")

    def _horizontal(self, u: UOp) -> None:
        texts, code = self.value(u.src[0]), self.language.code_for_op[u.arg[0]]
        while len(texts) > 1:
            half = len(texts) // 2
            made = [f"v{len(self.values)}_{half}_{i}" for i in range(half)]
            for name, x, y in zip(made, texts[:half], texts[half:], strict=True):
                self.put(f"{self.language.render_dtype(u.dtype)} {name} = {code(x, y, dtype=u.dtype)};")
            texts = made
        self.values[u] = list(texts)

    def _control(self, u: UOp) -> None:
        if u.op is Ops.RANGE:
            name, kind = f"i{len(self.values)}", self.language.render_dtype(u.dtype)
            start, stop = ("begin", "end") if u.arg[-1] is AxisType.THREAD else ("0", self.value(u.src[0])[0])
            self.put(f"for ({kind} {name} = {start}; {name} < {stop}; {name}++) {{")
            self.values[u] = [name]
            self.indent += 1
        elif u.op is Ops.IF:
            self.put(f"if ({self.value(u.src[0])[0]}) {{")
            self.indent += 1
        else:
            for _ in range(len(u.src) - 1 if u.op is Ops.END else 1):
                self.indent -= 1
                self.put("}")


_STATEMENTS: dict[Ops, Callable[[_Body, UOp], None]] = {
    **dict.fromkeys((Ops.NOOP, Ops.GROUP, Ops.AFTER, Ops.CONST), _Body._nothing),
    Ops.PARAM: _Body._param,
    Ops.BUFFER: _Body._buffer,
    Ops.SPECIAL: _Body._special,
    Ops.STACK: _Body._stack,
    Ops.INDEX: _Body._index,
    Ops.LOAD: _Body._load,
    Ops.STORE: _Body._store,
    Ops.CAST: _Body._cast,
    Ops.BITCAST: _Body._bitcast,
    Ops.REDUCE: _Body._horizontal,
    **dict.fromkeys((Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF), _Body._control),
    Ops.BARRIER: _Body._barrier,
    **dict.fromkeys((Ops.CUSTOM, Ops.CUSTOMI), _Body._custom),
}


_FLOAT_TO_INT = """
static inline int float_to_i32(double x) { return x >= -0x1p31 && x < 0x1p31 ? (int)x : (-2147483647-1); }
static inline long float_to_i64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (long)x : (-9223372036854775807l-1); }
static inline unsigned long float_to_u64(double x) {
  if (x >= 0x1p63 && x < 0x1p64) return (unsigned long)(long)(x - 0x1p63) ^ (1ul << 63);
  return (unsigned long)float_to_i64(x);
}
"""


def _builtin(name: str) -> OpCode:
    def code(*operands: str, dtype: DType) -> str:
        if not dtypes.is_float(dtype):
            return operands[0]
        return f"__builtin_{name}{'' if dtype is dtypes.float64 else 'f'}({', '.join(operands)})"

    return code


class ClangRenderer(CStyleLanguage):
    """C for CPUs, compiled by clang or by the compiler that the environment variable CC names."""

    device = "CPU"
    has_local = False
    has_shared = False
    has_threads = True
    global_max = None
    local_max = None
    shared_max = 1 << 20
    index_dtype = dtypes.int64
    infinity = "__builtin_inff()"
    nan = '__builtin_nanf("")'
    type_map: ClassVar[dict[DType, str]] = {dtypes.bool: "_Bool", dtypes.float16: "_Float16", dtypes.weakint: "long"}
    code_for_op: dict[Ops, Callable[..., str]] = {  # noqa: RUF012  as in the base class
        **CStyleLanguage.code_for_op,
        Ops.SQRT: _builtin("sqrt"),
        Ops.TRUNC: _builtin("trunc"),
        Ops.CMOD: _modulo(_builtin("fmod")),
        Ops.MULACC: _builtin("fma"),
    }

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(target)
        self.arch = parse_arch(self.target.arch)
        self.vector_registers, self.cache_bytes = self.arch.vector_registers, self.arch.cache_bytes
        if not self.arch.has_fma:
            self.code_for_op = {op: code for op, code in self.code_for_op.items() if op is not Ops.MULACC}
        self.compiler = ClangCompiler(self.arch)

    def supported_dtypes(self) -> tuple[DType, ...]:
        """Return the dtypes of C; bfloat16 and fp8 are lowered before."""
        return (*dtypes.ints, dtypes.bool, dtypes.float16, dtypes.float32, dtypes.float64)

    def render_kernel(
        self,
        function_name: str,
        kernel: Sequence[str],
        bufs: Sequence[tuple[str, DType, bool]],
        uops: Sequence[UOp],
        prefix: Sequence[str] | None = None,
    ) -> str:
        """Return the source: arguments are unpacked from the two arrays of the calling convention."""
        lines = []
        buffers = [(name, dtype) for name, dtype, is_buffer in bufs if is_buffer]
        for i, (name, dtype) in enumerate(buffers):
            kind = self.render_memory_dtype(dtype)
            lines.append(f"  {kind}* {name} = ({kind}*)bufs[{i}];")
        for i, (name, dtype) in enumerate((name, dtype) for name, dtype, is_buffer in bufs if not is_buffer):
            lines.append(f"  {self.render_dtype(dtype)} {name} = vals[{i}];")
        head = f"void {function_name}(void** bufs, long* vals, long begin, long end) {{"
        return "\n".join([_FLOAT_TO_INT, *(prefix or ()), head, *lines, *kernel, "}"]) + "\n"
