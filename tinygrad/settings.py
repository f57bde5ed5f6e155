"""Every switch of the package: context variables, plain environment variables, and device targets.

In:   the process environment, read once per name.
Out:  ``getenv`` for plain variables, one ``ContextVar`` object per switch, ``Context`` to change switches for a while.
Why:  one file declares all environment variables, so that the documentation and a reader have one list to look at.

A context variable belongs to the thread (exactly: to the ``contextvars`` context) that sets it. ``DEBUG.value = 2``
and ``with Context(DEBUG=2)`` change the running context alone; a thread that starts later sees the value of the
environment. Work that is handed to a thread pool keeps the caller's values through ``in_current_context``.
"""

from __future__ import annotations

import contextvars
import functools
import os
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from tinygrad.errors import PlainKeyError, error_text
from tinygrad.target import Target, check_deprecated_device_variables

__all__ = [
    "ALL2ALL",
    "ALLOW_DEVICE_USAGE",
    "ALLOW_TF32",
    "ALLREDUCE_CAST",
    "BEAM",
    "CACHELEVEL",
    "CAPTURE_PROCESS_REPLAY",
    "CAPTURING",
    "CCACHE",
    "CHECK_BOUNDS",
    "CHECK_OOB",
    "DEBUG",
    "DEBUG_RANGEIFY",
    "DEFAULT_FLOAT",
    "DEFAULT_INT",
    "DEV",
    "DISABLE_FAST_IDIV",
    "DISALLOW_BROADCAST",
    "EMULATED_DTYPES",
    "ENVIRONMENT",
    "FLOAT16",
    "FUSE_OPTIM",
    "GRAPH",
    "HCQ_RUNTIME_DEV",
    "IGNORE_BEAM_CACHE",
    "IMAGE",
    "JIT",
    "JIT_BATCH_SIZE",
    "LRU",
    "MAX_BUFFER_SIZE",
    "MAX_KERNEL_BUFFERS",
    "NOLOCALS",
    "NOOPT",
    "NO_COLOR",
    "NO_MEMORY_PLANNER",
    "NULL_ALLOW_COPYOUT",
    "NUM_CPU_THREADS",
    "OPENPILOT_HACKS",
    "PARALLEL",
    "PCONTIG",
    "PMA",
    "PMC",
    "PROFILE",
    "REWRITE_STACK_LIMIT",
    "RING",
    "SCACHE",
    "SPEC",
    "SPLIT_REDUCEOP",
    "SQTT",
    "TC_OPT",
    "TC_SELECT",
    "TRACEMETA",
    "TRACK_MATCH_STATS",
    "TRAINING",
    "TRANSCENDENTAL",
    "TUPLE_ORDER",
    "USE_ATOMICS",
    "USE_TC",
    "VALIDATE_WITH_CPU",
    "VIZ",
    "WINO",
    "Context",
    "ContextVar",
    "DTypeNameVar",
    "DeviceVar",
    "getenv",
    "in_current_context",
]

T = TypeVar("T")
P = ParamSpec("P")

_FALSE_WORDS = frozenset({"", "0", "false", "no", "off"})


@functools.cache
def getenv(key: str, default: Any = 0) -> Any:
    """Return environment variable ``key``, converted to the type of ``default``.

    The answer is kept per (key, default) for the life of the process.

    Args:
        key: Name of the variable.
        default: Value when the variable is absent; its type (str, int, float, bool) decides the conversion.

    Raises:
        ValueError: The text of the variable is not a value of that type.

    Example:
        >>> getenv("A_NAME_THAT_NOBODY_SETS", 3)
        3
    """
    text = os.environ.get(key)
    if text is None:
        return default
    if isinstance(default, bool):
        return text.strip().lower() not in _FALSE_WORDS
    if isinstance(default, (int, float)) and not text.strip():
        return default
    try:
        return type(default)(text)
    except ValueError:
        raise ValueError(
            f"getenv: environment variable {key}={text!r} is not a value of type {type(default).__name__}; "
            f"set it to something like {key}={default!r} or unset it"
        ) from None


class ContextVar(Generic[T]):
    """A switch with a value per context (thread), initialised from the environment variable of the same name.

    Args:
        key: Environment variable and keyword of ``Context``.
        default: Value when the environment does not set it.
        doc: One line for the documentation.

    Raises:
        RuntimeError: A variable with this key exists already.
    """

    __slots__ = ("_set", "_variable", "default", "doc", "get", "key")

    registry: ClassVar[dict[str, ContextVar[Any]]] = {}
    key: str
    default: T
    doc: str
    get: Callable[[], T]

    def __init__(self, key: str, default: T, doc: str = "") -> None:
        if key in ContextVar.registry:
            raise RuntimeError(f"ContextVar: {key} exists already; import it instead of creating it again")
        self.key, self.doc, self.default = key, doc, default
        self.default = self._convert(getenv(key, default))
        # The value of the process is the default of the contextvars object: threads that start later see it.
        self._variable: contextvars.ContextVar[T] = contextvars.ContextVar(key, default=self.default)
        # Bound C methods: ``get()`` is one C call, which matters on the paths that ask for every node.
        self.get = self._variable.get
        self._set = self._variable.set
        ContextVar.registry[key] = self

    def _convert(self, value: Any) -> T:
        """Bring an assigned value into the form that is stored.

        Raises:
            TypeError: The variable holds integers, and this is none.
        """
        if isinstance(self.default, int) and not isinstance(value, int):
            # Found where it is set: where it is compared with a level, far away, nobody knows where it came from.
            fault = f"{self.key} is {value!r} of type {type(value).__name__}, expected int"
            raise TypeError(error_text("Context", fault))
        converted: T = value
        return converted

    @property
    def value(self) -> T:
        """The value in the running context; assigning sets it for the running context."""
        return self.get()

    @value.setter
    def value(self, new_value: T) -> None:
        self._set(self._convert(new_value))

    def tolist(self, obj: object = None) -> list[Any]:
        """Split a comma separated value; with ``obj``, look every name up as an attribute of it.

        Example:
            >>> EMULATED_DTYPES.tolist()
            []
        """
        names = [name.strip() for name in str(self.value).split(",") if name.strip()]
        return names if obj is None else [getattr(obj, name) for name in names]

    def __bool__(self) -> bool:
        return bool(self.get())

    def __eq__(self, other: object) -> bool:
        return bool(self.get() == (other.get() if isinstance(other, ContextVar) else other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.get() >= other)

    def __gt__(self, other: Any) -> bool:
        return bool(self.get() > other)

    def __le__(self, other: Any) -> bool:
        return bool(self.get() <= other)

    def __lt__(self, other: Any) -> bool:
        return bool(self.get() < other)

    def __int__(self) -> int:
        value: Any = self.get()
        return int(value)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"ContextVar({self.key}={self.get()!r})"


class DTypeNameVar(ContextVar[str]):
    """A switch that names a dtype; a DType may be assigned too."""

    __slots__ = ()

    def _convert(self, value: Any) -> str:
        return value if isinstance(value, str) else repr(value).removeprefix("dtypes.")


class DeviceVar(ContextVar[list[Target]]):
    """The ``DEV`` switch: a list of targets. Attribute access goes to the first one."""

    __slots__ = ()

    def _convert(self, value: Any) -> list[Target]:
        if isinstance(value, str):
            return [Target.parse(part) for part in value.split(";")]
        if isinstance(value, Target):
            return [value]
        return [item if isinstance(item, Target) else Target.parse(item) for item in value] or [Target()]

    def target(self, device: str, **defaults: str) -> Target:
        """Return the first target for ``device``, its empty fields filled from ``defaults``."""
        name = device.split(":")[0].upper()
        chosen = next((target for target in self.get() if target.device == name), Target(device=name))
        return chosen.replacedefault(**defaults)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.get()[0], name)

    def __bool__(self) -> bool:
        return any(target != Target() for target in self.get())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (str, Target, list)):
            return self.get() == self._convert(other)
        return super().__eq__(other)

    __hash__ = object.__hash__


class Context(ContextDecorator):
    """Set context variables inside a ``with`` block or a decorated function, and restore them afterwards.

    Args:
        **values: Names of context variables and the values that they take.

    Raises:
        KeyError: A name is not a context variable; nothing is changed then.
        TypeError: A variable that holds integers gets something else; nothing is changed then.

    Example:
        >>> with Context(DEBUG=0):
        ...     DEBUG.value
        0
    """

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in ContextVar.registry:
                raise PlainKeyError(error_text("Context", f"{name} is not a context variable{_did_you_mean(name)}"))
        self.values = values
        self._saved: list[list[tuple[ContextVar[Any], Any]]] = []

    def _recreate_cm(self) -> Context:
        # A decorated function may run in several threads at once: every call saves into an object of its own.
        return Context(**self.values)

    def __enter__(self) -> Context:
        pairs = [(ContextVar.registry[name], value) for name, value in self.values.items()]
        converted = [(var, var._convert(value)) for var, value in pairs]
        self._saved.append([(var, var.get()) for var, _ in pairs])
        for var, value in converted:
            var._set(value)
        return self

    def __exit__(self, *_: object) -> None:
        for var, value in self._saved.pop():
            var._set(value)


def _did_you_mean(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name.upper(), ContextVar.registry, n=1)
    return f"; did you mean {close[0]}?" if close else "; tinygrad.settings lists them"


def in_current_context(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap ``function`` so that it runs with the caller's context variables, in whatever thread it is called.

    Every call runs in a copy of its own, so the wrapped function may run in several threads at once.
    """
    context = contextvars.copy_context()

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.copy().run(function, *args, **kwargs)

    return run


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


check_deprecated_device_variables(os.environ)

# Output and tracing
DEBUG = ContextVar("DEBUG", 0, "output level: 1 devices, 2 kernels, 3 schedule steps, 4 source, 5-6 UOps, 7 assembly")
VIZ = ContextVar("VIZ", 0, "record rewrites and profile; 1 also starts the viewer on a terminal; negative: no viewer")
PROFILE = ContextVar("PROFILE", abs(VIZ.value), "record timing events, written to the temporary folder at exit")
TRACEMETA = ContextVar("TRACEMETA", 1, "0 no method names on nodes, 1 names, 2 also in recorded graphs")
TRACK_MATCH_STATS = ContextVar(
    "TRACK_MATCH_STATS", 2 if VIZ.value else 0, "1 count rule hits, 2 keep matches, 3 print each match"
)
NO_COLOR = ContextVar("NO_COLOR", 0, "plain text output")
SPEC = ContextVar("SPEC", 1, "graph verification: 0 off, 1 whole graphs, 2 every node, 3 shapes, 4 print and parse")
CHECK_OOB = ContextVar("CHECK_OOB", 0, "prove kernel accesses in bounds (needs z3)")
CHECK_BOUNDS = ContextVar(
    "CHECK_BOUNDS",
    0,
    "1: an index or class id out of bounds raises IndexError, after the replay in what TinyJit captures with it; "
    "0: an index reads 0, a loss is NaN",
)
CAPTURE_PROCESS_REPLAY = ContextVar("CAPTURE_PROCESS_REPLAY", 0, "store compile inputs and outputs for comparison")
VALIDATE_WITH_CPU = ContextVar("VALIDATE_WITH_CPU", 0, "run each kernel on the CPU too and compare")
SQTT = ContextVar("SQTT", int(abs(VIZ.value) >= 2), "hardware trace (AMD)")
PMC = ContextVar("PMC", int(abs(VIZ.value) >= 2), "hardware counters (AMD)")
PMA = ContextVar("PMA", int(abs(VIZ.value) >= 2), "hardware sampling (NV)")

# Devices and memory
DEV = DeviceVar(
    "DEV",
    "",  # type: ignore[arg-type]  # text, which _convert parses
    "targets: [INTERFACE[:INDICES]+]DEVICE[:RENDERER[:ARCH]], several separated by ';'",
)
ALLOW_DEVICE_USAGE = ContextVar("ALLOW_DEVICE_USAGE", 1, "0 forbids opening devices")
LRU = ContextVar("LRU", 1, "keep freed buffers for reuse")
MAX_BUFFER_SIZE = ContextVar("MAX_BUFFER_SIZE", 0, "refuse larger buffers (elements); 0 no limit")
MAX_KERNEL_BUFFERS = ContextVar("MAX_KERNEL_BUFFERS", 0, "limit of buffers per kernel; 0 device limit")
NO_MEMORY_PLANNER = ContextVar("NO_MEMORY_PLANNER", 0, "keep every intermediate in its own buffer")
NULL_ALLOW_COPYOUT = ContextVar("NULL_ALLOW_COPYOUT", 0, "let NULL return garbage instead of raising")
HCQ_RUNTIME_DEV = ContextVar("HCQ_RUNTIME_DEV", "CPU", "host device of the queue runtime")
RING = ContextVar("RING", 1, "ring all-reduce: 1 when large and more than 2 devices, 2 always")
ALL2ALL = ContextVar("ALL2ALL", 0, "all-to-all all-reduce")
ALLREDUCE_CAST = ContextVar("ALLREDUCE_CAST", 0, "send terms of a sum in the narrow dtype that it is cast to")

# Numbers
DEFAULT_FLOAT = DTypeNameVar("DEFAULT_FLOAT", "float32", "default float dtype")
DEFAULT_INT = DTypeNameVar("DEFAULT_INT", "int32", "default int dtype")
EMULATED_DTYPES = ContextVar(
    "EMULATED_DTYPES",
    "",
    "comma list of dtypes to emulate: narrow floats by float32, int64 and uint64 (either means both) by words",
)
TRANSCENDENTAL = ContextVar("TRANSCENDENTAL", 1, "2 forces software sin, log2, exp2; else device functions if any")
DISABLE_FAST_IDIV = ContextVar("DISABLE_FAST_IDIV", 1, "0 replaces constant integer division by multiply and shift")
DISALLOW_BROADCAST = ContextVar("DISALLOW_BROADCAST", 0, "error on implicit broadcast inside the graph")

# Training
TRAINING = ContextVar("TRAINING", 0, "training mode: dropout, batch statistics, optimizer steps allowed")
FUSE_OPTIM = ContextVar("FUSE_OPTIM", 0, "fused optimizer by default")
USE_ATOMICS = ContextVar("USE_ATOMICS", 0, "atomics in the gradient of embeddings")
WINO = ContextVar("WINO", 0, "Winograd for 3x3 convolutions of stride 1")
IMAGE = ContextVar("IMAGE", 0, "image layouts for matmul and convolution")
FLOAT16 = ContextVar("FLOAT16", 0, "half precision images")
OPENPILOT_HACKS = ContextVar("OPENPILOT_HACKS", 0, "special fusion")

# JIT, caches, workers
JIT = ContextVar("JIT", 1, "0 off, 1 on, 2 more aggressive batching")
GRAPH = ContextVar("GRAPH", 1, "0 replays a JIT without device graphs")
JIT_BATCH_SIZE = ContextVar("JIT_BATCH_SIZE", 32, "first graph batch size, doubles per batch; 0 unlimited")
CAPTURING = ContextVar("CAPTURING", 1, "0 lets a JIT capture ignore what is scheduled")
CACHELEVEL = ContextVar("CACHELEVEL", 2, "0 disables the disk cache")
CCACHE = ContextVar("CCACHE", 1, "compiler cache on disk")
SCACHE = ContextVar("SCACHE", 1, "schedule cache")
IGNORE_BEAM_CACHE = ContextVar("IGNORE_BEAM_CACHE", 0, "search again")
PARALLEL = ContextVar("PARALLEL", 0 if VIZ.value else _cores(), "workers that compile and search")
NUM_CPU_THREADS = ContextVar("NUM_CPU_THREADS", _cores(), "threads of CPU kernels")

# Scheduling and code generation
BEAM = ContextVar("BEAM", 0, "beam width of kernel search; 0 heuristics")
NOOPT = ContextVar("NOOPT", 0, "no kernel optimization")
USE_TC = ContextVar("TC", 1, "tensor cores: 0 off, 1 on, 2 apply the shape but emit no tensor-core op")
TC_SELECT = ContextVar("TC_SELECT", -1, "which tensor core; -1 any")
TC_OPT = ContextVar("TC_OPT", 0, "0 single reduce axis only, 1 multiple, 2 padding allowed")
ALLOW_TF32 = ContextVar("ALLOW_TF32", 0, "float32 inputs on TF32 tensor cores")
NOLOCALS = ContextVar("NOLOCALS", 0, "no local memory")
SPLIT_REDUCEOP = ContextVar("SPLIT_REDUCEOP", 1, "split very large reductions into two kernels")
PCONTIG = ContextVar("PCONTIG", 0, "partial materialisation in the scheduler")
DEBUG_RANGEIFY = ContextVar("DEBUG_RANGEIFY", 0, "print what the scheduler decides")
TUPLE_ORDER = ContextVar("TUPLE_ORDER", 1, "linearizer order")
REWRITE_STACK_LIMIT = ContextVar("REWRITE_STACK_LIMIT", 250_000, "work-list limit of graph_rewrite")


# Plain environment variables, read with getenv where they are used: name -> (default, meaning).
ENVIRONMENT: dict[str, tuple[Any, str]] = {
    "CACHEDB": ("", "path of the cache database; default <cache home>/tinygrad/cache.db"),
    "CACHEDB_MAX_BYTES": (1 << 30, "size above which the oldest entries of the cache database are deleted"),
    "LRU_LIMIT_MB": (0, "bound of the freed memory that a device keeps, in MiB; 0 an eighth of the machine's memory"),
    "XDG_CACHE_HOME": ("", "cache home; default ~/.cache"),
    "DISABLE_HTTP_CACHE": (0, "always download"),
    "SUM_DTYPE": ("float32", "accumulation dtype of float sums"),
    "OPTIM_DTYPE": ("float32", "dtype of optimizer state"),
    "CONST_LR": (0, "constant learning rate"),
    "JITBEAM": (0, "beam width while capturing; default BEAM"),
    "IGNORE_JIT_FIRST_BEAM": (0, "no search on the first call"),
    "UNSAFE_ALLOW_JIT_BUFFER": (0, "allow reading data during capture"),
    "GRAPH_ONE_KERNEL": (0, "graph even single kernels"),
    "DEVICE_IN_FUNCTION_BUG": (0, "allow devices inside @function"),
    "BEAM_UPCAST_MAX": (256, "search limit: copies of a loop body"),
    "BEAM_LOCAL_MAX": (1024, "search limit: local size"),
    "BEAM_UOPS_MAX": (3000, "search limit: length of the program"),
    "BEAM_TIMEOUT_SEC": (10, "search limit: seconds to compile a candidate"),
    "BEAM_MIN_PROGRESS": (0.01, "search stops below this gain, in microseconds"),
    "BEAM_PADTO": (0, "search may pad axes that the first schedule does not"),
    "BEAM_ESTIMATE": (1, "search measures long kernels on a part of their parallel loop"),
    "BEAM_DEV_TIMEOUT": (1, "search stops candidates that run far longer than the best; 0 waits"),
    "BEAM_STRICT_MODE": (0, "errors of candidates are raised, and what they compute is compared"),
    "BEAM_DEBUG": (0, "print the search: 1 every round, 2 every candidate"),
    "BEAM_LOG": ("", "file to which every search that ends adds a line of JSON: its kernel, times and steps"),
    "BEAM_LOG_SURPASS_MAX": (0, "print candidates beyond the limits"),
    "BEAM_MAX_TASKS_PER_CHILD": (0, "candidates after which a worker process of a search is replaced; 0 never"),
    "MV": (1, "matrix-vector heuristic"),
    "MV_BLOCKSIZE": (4, "matrix-vector heuristic"),
    "MV_THREADS_PER_ROW": (8, "matrix-vector heuristic"),
    "MV_ROWS_PER_THREAD": (4, "matrix-vector heuristic"),
    "OCCUPANCY_FLOOR": (4096, "work items below which upcasting stops"),
    "REDUCEOP_SPLIT_THRESHOLD": (32768, "reductions that shrink by more are split"),
    "REDUCEOP_SPLIT_SIZE": (22, "log2 of the largest intermediate of a split reduction"),
    "RING_ALLREDUCE_THRESHOLD": (256_000, "elements from which all-reduce uses a ring"),
    "LATE_ALLREDUCE": (1, "all-reduce is lowered late"),
    "ASSERT_COMPILE": (0, "AssertionError if anything must be compiled"),
    "UPAT_COMPILE": (1, "compile rewrite rules to Python"),
    "PRINT_MATCH_STATS": (0, "print rule statistics at exit"),
    "TEST_PICKLE": (0, "pickle rewrite rules"),
    "DEBUG_LINEARIZE": (0, "print the linearizer's order"),
    "DEBUG_GC": (0, "print what stays alive"),
    "TRACE": (0, "PYTHON device: print every operation"),
    "DMC": (0, "code generation switch"),
    "ALLOW_HALF8": (0, "code generation: vectors of 8 halves"),
    "EXPAND_SSA": (0, "source text: one statement per operation"),
    "ALIGNED": (1, "code generation: buffers are aligned"),
    "THREADS": (1, "CPU kernels use threads"),
    "CC": ("clang", "C compiler"),
    "LLVMOPT": (1, "run LLVM's optimizer"),
    "CUDA_PATH": ("", "CUDA toolkit"),
    "ROCM_PATH": ("", "ROCm toolkit"),
    "NO_HIPCC": (0, "do not use hipcc"),
    "WEBGPU_BACKEND": ("", "adapter backend"),
    "PORT": (8000, "viewer: port"),
    "BROWSER": (0, "viewer: open a browser"),
    "MAX_SQTT_PKTS": (0, "viewer: packets read from a hardware trace"),
    "DEBUGONNX": (0, "ONNX: print every node"),
    "ONNXLIMIT": (-1, "ONNX: stop after this node"),
    "HALF": (1, "language models: half precision weights"),
    "REALIZE": (0, "language models: realize weights"),
    "BENCHMARK_LOG": ("", "where benchmarks write"),
}
