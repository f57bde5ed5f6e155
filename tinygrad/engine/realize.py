"""Run a schedule: compile what is missing, in parallel, and launch the calls in order.

In:   LINEAR(CALL(body, buffers...), ...) and the values of its Variables.
Out:  changed buffers; counters, and with DEBUG=2 one line per launch.
Why:  a launch is found by the identity of the interned body, so that running a cached schedule costs nothing that
      grows with the kernels' graphs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tinygrad import settings
from tinygrad.device import Buffer, Device
from tinygrad.dtype import dtypes
from tinygrad.engine.capturing import before_data_access, capturing
from tinygrad.engine.launch import CopyLaunch, KernelLaunch, Launch, blame_largest, get_runtime
from tinygrad.engine.report import run_reported, wants_report
from tinygrad.forking import renew_in_child
from tinygrad.helpers import GlobalCounters, disable_gc, diskcache_puts_together, getenv
from tinygrad.middleware import cache_token
from tinygrad.recent import Recent
from tinygrad.renderer import Estimates
from tinygrad.settings import BEAM, CAPTURING, DEBUG, PARALLEL, Context, in_current_context
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

# ---- finding and making launches -------------------------------------------------------------------------------------

# Switches that change the code of a kernel: a launch that was made under other values is another launch.
_CODE_SWITCHES: Final = tuple(
    getattr(settings, name).get
    for name in (
        "NOOPT", "BEAM", "USE_TC", "TC_SELECT", "TC_OPT", "ALLOW_TF32", "NOLOCALS", "TRANSCENDENTAL",
        "DISABLE_FAST_IDIV", "EMULATED_DTYPES", "NUM_CPU_THREADS", "IMAGE", "FLOAT16", "USE_ATOMICS", "CHECK_BOUNDS",
    )
)  # fmt: skip
_MOST_LAUNCHES: Final = 3072
_MOST_TABLES: Final = 64  # each inserted middleware has one of its own

LaunchTable = Recent[tuple[UOp, str], Launch]
_tables: dict[Any, LaunchTable] = {}


def code_switches() -> tuple[Any, ...]:
    """Return the values of everything that decides which code a kernel becomes, other than the kernel."""
    return (tuple([get() for get in _CODE_SWITCHES]), tuple(settings.DEV.get()), cache_token())


def _table() -> LaunchTable:
    """Return the launches made under the present switches, targets and middleware."""
    key = code_switches()
    table = _tables.get(key)
    if table is None:
        for old in list(_tables)[: len(_tables) + 1 - _MOST_TABLES]:
            _tables.pop(old, None)
        table = _tables.setdefault(key, Recent(_MOST_LAUNCHES))
    return table


def _device_of(call: UOp) -> str:
    """Return the device that runs a call.

    Raises:
        RuntimeError: Its buffers are on several devices.
    """
    body, args = call.src[0], call.src[1:]
    if not args:
        raise RuntimeError(f"run_linear: a call of {body.op.name} without arguments changes nothing")
    device = args[0].device
    if body.op is not Ops.COPY and any(arg.device != device for arg in args if not arg.is_variable):
        names = ", ".join(str(arg.device) for arg in args)
        raise RuntimeError(f"all buffers must be on the same device, a kernel got {names}; move them with .to(device)")
    return str(device)


def start_launch(body: UOp, device: str) -> Callable[[], Callable[[], Launch]]:
    """Lower the body of a call; the result compiles it, and what that returns loads it and returns its launch.

    Raises:
        RuntimeError: The body is of a kind that cannot be run.
    """
    from tinygrad.codegen import start_program

    if body.op is Ops.COPY:
        return lambda: lambda: CopyLaunch(device)
    if body.op is Ops.SINK or body.op is Ops.PROGRAM:
        if getenv("ASSERT_COMPILE", 0):
            raise AssertionError(f"ASSERT_COMPILE: {body.arg.name} would have to be compiled")
        compile_body = start_program(body, Device[device].renderer)

        def compile_launch() -> Callable[[], Launch]:
            finish = compile_body()
            return lambda: KernelLaunch(finish(), device)

        return compile_launch
    raise RuntimeError(f"run_linear: a call of {body.op.name} cannot be run; expected SINK, PROGRAM or COPY")


def launches_of(linear: UOp) -> list[Launch]:
    """Return the launch of every call, compiling what is missing in parallel."""
    table = _table()
    keys = [(call.src[0], _device_of(call)) for call in linear.src]
    found = [table.get(key) for key in keys]
    ready = [launch for launch in found if launch is not None]
    if len(ready) == len(found):
        return ready
    missing = list(dict.fromkeys(key for key, launch in zip(keys, found, strict=True) if launch is None))
    made = dict(zip(missing, _make_all(missing), strict=True))
    table.update(made)
    # Not from the table, which may be too small for a graph of very many kernels.
    return [made[key] if launch is None else launch for key, launch in zip(keys, found, strict=True)]


def _fetched(keys: Sequence[tuple[UOp, str]]) -> int:
    """Take what is in the disk cache, all in one go; returns of how many launches nothing is left to compile."""
    from tinygrad.codegen import fetch_programs

    if len(keys) == 1:
        return 0  # starting it looks there anyway
    kernels: dict[str, list[UOp]] = {}
    for body, device in keys:
        if body.op is Ops.SINK:
            kernels.setdefault(device, []).append(body)
    copies = sum(body.op is Ops.COPY for body, _ in keys)
    return copies + sum(fetch_programs(bodies, Device[device].renderer) for device, bodies in kernels.items())


@disable_gc()  # see realizing.py
def _make_all(keys: Sequence[tuple[UOp, str]]) -> list[Launch]:
    workers = min(PARALLEL.get(), len(keys) - _fetched(keys))
    # What several kernels print must not be mixed, a search must not measure beside a compiler, and no thread starts
    # any more once the main one has ended.
    if workers < 2 or DEBUG.get() >= 3 or BEAM.get() or not threading.main_thread().is_alive():
        return [start_launch(*key)()() for key in keys]
    from concurrent.futures import ThreadPoolExecutor

    # This thread lowers kernel after kernel while the compiler, which releases the interpreter lock, works on others;
    # then it compiles too. One thread for each processor: with one more, lowering, which all wait for, would get less.
    # The threads live as long as this call, so that a forked child inherits none.
    with (
        _short_turns(), diskcache_puts_together(),
        ThreadPoolExecutor(workers - 1, thread_name_prefix="tinygrad-compile") as pool,
    ):  # fmt: skip
        futures: list[Future[Callable[[], Launch]]] = []
        try:
            works = []
            for key in keys:
                works.append(in_current_context(start_launch(*key)))
                futures.append(_submitted(pool, works[-1]))
            return _collected(works, futures)
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _collected(
    works: Sequence[Callable[[], Callable[[], Launch]]], futures: Sequence[Future[Callable[[], Launch]]]
) -> list[Launch]:
    """Return the launches of kernels that threads compile; this one loads what they have compiled, and compiles too."""
    made: dict[int, Launch] = {}
    first = 0  # of those that are not loaded yet
    # From the end, where the others come last.
    for i in reversed(range(len(works))):
        while first < i and futures[first].done():
            made[first] = futures[first].result()()
            first += 1
        if futures[i].cancel():
            made[i] = works[i]()()
    return [made[i] if i in made else future.result()() for i, future in enumerate(futures)]


def _submitted(pool: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    """Return the future of some work; where no thread can start any more, of work that is done."""
    try:
        return pool.submit(work)
    except RuntimeError:  # the main thread has ended just now
        from concurrent.futures import Future

        done: Future[T] = Future()
        done.set_result(work())
        return done


_TURN: Final = 0.0005  # seconds
_turns_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_turns_lock")
_turns: list[float] = []  # the interval to restore, once for each call that has shortened it


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let a thread that has compiled something wait less for the interpreter lock than the usual 5 ms."""
    with _turns_lock:
        _turns.append(_turns[0] if _turns else sys.getswitchinterval())
        sys.setswitchinterval(min(_turns[0], _TURN))
    try:
        yield
    finally:
        with _turns_lock:
            usual = _turns.pop()
            if not _turns:
                sys.setswitchinterval(usual)


def compile_linear(
    linear: UOp, beam: int | None = None, validate: bool = False, input_uops: Sequence[UOp] | None = None,
    profile: Any = None,
) -> UOp:  # fmt: skip
    """Return the schedule with every kernel replaced by its compiled PROGRAM.

    Args:
        linear: LINEAR of calls.
        beam: Width of the search for fast kernels; default: the BEAM switch.
        validate: Accepted for compatibility; VALIDATE_WITH_CPU compares results at run time.
        input_uops: What the PARAMs among the arguments stand for; not needed to compile.
        profile: Accepted for compatibility.
    """
    with ExitStack() as stack:
        if beam is not None and beam != BEAM.get():
            stack.enter_context(Context(BEAM=beam))
        launches = launches_of(linear)
    table = _table()
    calls = []
    for call, launch in zip(linear.src, launches, strict=True):
        if isinstance(launch, KernelLaunch):
            table.setdefault((launch.program, launch.device), launch)
            call = call.replace(src=(launch.program, *call.src[1:]))
        calls.append(call)
    return linear.replace(src=tuple(calls))


# ---- running ---------------------------------------------------------------------------------------------------------


def _buffer_of(arg: UOp, input_uops: Sequence[UOp]) -> Buffer:
    if arg.op is Ops.PARAM:
        if not 0 <= arg.arg.slot < len(input_uops):
            raise RuntimeError(
                f"run_linear: the schedule has an argument {arg.arg.slot}, but {len(input_uops)} are given"
            )
        arg = input_uops[arg.arg.slot]
    found: Buffer | None = buffers.get(arg)
    return found if found is not None else _made_buffer(arg)


def _made_buffer(arg: UOp) -> Buffer:
    made: Buffer = arg.buffer
    return made


def call_buffers(call: UOp, input_uops: Sequence[UOp] = ()) -> list[Buffer]:
    """Return the buffers that a call is given, outputs first."""
    return [_buffer_of(arg, input_uops) for arg in call.src[1:]]


def resolve_params(call: UOp, inputs: Sequence[UOp]) -> UOp:
    """Return the call with its PARAM arguments replaced by ``inputs``."""
    new = tuple(inputs[arg.arg.slot] if arg.op is Ops.PARAM and not arg.is_variable else arg for arg in call.src[1:])
    return call.replace(src=(call.src[0], *new))


def run_linear(
    linear: UOp, var_vals: Mapping[str, int] | None = None, input_uops: Sequence[UOp] = (), update_stats: bool = True,
    jit: bool = False, wait: bool = False, between: Callable[[int], None] | None = None,
) -> float | None:  # fmt: skip
    """Run a schedule, or hand it to the JIT that is capturing.

    Args:
        linear: LINEAR(CALL(body, buffers...), ...); bodies are kernels (SINK or PROGRAM) or COPY.
        var_vals: Values of Variables by name.
        input_uops: What PARAMs among the arguments stand for.
        update_stats: Count the launches in ``GlobalCounters``.
        jit: This is a replay: never captured, and marked in the output.
        wait: Wait for every launch and return the time.
        between: Called before each launch with the number of those that are done; it may raise.

    Returns:
        Seconds of all launches if ``wait``, else None.

    Raises:
        RuntimeError: Buffers of one kernel are on several devices, or a Variable has no value.
        CompileError: A kernel does not compile.
        MemoryError: A device has no memory left; the message names the kernel.
    """
    var_vals = var_vals or {}
    if capturing and CAPTURING.get() and not jit:
        capturing[-1].add_linear(linear, var_vals)
        return None
    launches = launches_of(linear)
    reported = wants_report()
    total, done = 0.0, 0
    try:
        for call, launch in zip(linear.src, launches, strict=True):
            if between is not None:
                between(done)
            arguments = [_buffer_of(arg, input_uops) for arg in call.src[1:]]
            if reported:
                total += run_reported(call, launch, arguments, var_vals, jit)
            elif wait:
                total += launch.launch(arguments, var_vals, wait=True) or 0.0
            else:
                launch.launch(arguments, var_vals)
            done += 1
            if update_stats:
                work = launch.work(arguments, var_vals)
                GlobalCounters.kernel_count += 1
                GlobalCounters.global_ops += work[0]
                GlobalCounters.global_mem += work[1]
    except BaseException as error:
        error.__dict__["calls_done"] = done  # whoever catches it has to know what has been computed
        if isinstance(error, MemoryError):
            buffers = ([_buffer_of(arg, input_uops) for arg in call.src[1:]] for call in linear.src)
            blame_largest(error, zip(launches, buffers, strict=True))
        raise
    return total if wait else None


# ---- looking at calls ------------------------------------------------------------------------------------------------


def get_call_arg_uops(call: UOp) -> tuple[UOp, ...]:
    """Return the arguments of a call."""
    return call.src[1:]


def get_call_name(call: UOp) -> str:
    """Return the display name of a call."""
    body = call.src[0]
    if body.op is Ops.COPY:
        return f"copy to {call.src[1].device} from {call.src[2].device}"
    return str(getattr(body.arg, "name", body.op.name))


def get_call_outs_ins(call: UOp) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the positions of the arguments that a call writes, and of those that it reads."""
    body = call.src[0]
    if body.op is Ops.COPY:
        return (0,), (1,)
    if body.op is Ops.PROGRAM:
        return body.arg.outs, body.arg.ins
    return _outs_ins_of_ast(body)


def _outs_ins_of_ast(ast: UOp) -> tuple[tuple[int, ...], tuple[int, ...]]:
    outs: set[int] = set()
    ins: set[int] = set()
    for u in ast.toposort():
        if u.op is Ops.STORE and (written := u.src[0].buf_uop_or_none) is not None and written.op is Ops.PARAM:
            outs.add(written.arg.slot)
            if u.arg is not None:  # accumulates
                ins.add(written.arg.slot)
    users = {u for u in ast.toposort() if u.op is not Ops.STORE}
    read = {s for u in users for s in u.src if s.op is Ops.INDEX} | {
        s for u in ast.toposort() if u.op is Ops.STORE for s in u.src[1:] if s.op is Ops.INDEX
    }
    ins.update(u.buf_uop.arg.slot for u in read if u.buf_uop.op is Ops.PARAM)
    return tuple(sorted(outs)), tuple(sorted(ins))


def estimate_uop(call: UOp) -> Estimates:
    """Return the work of a call; kernels that are not compiled yet are compiled."""
    launch = launches_of(UOp(Ops.LINEAR, dtypes.void, (call,)))[0]
    if isinstance(launch, KernelLaunch):
        return launch.estimates
    nbytes = call.src[1].arg.shape[0] * call.src[1].dtype.itemsize
    return Estimates(0, nbytes, nbytes)


def time_call(
    call: UOp, var_vals: Mapping[str, int] | None = None, timeout: float | None = None, clear_l2: bool = False
) -> Iterator[float]:
    """Run a call again and again, yielding the seconds of each run.

    Args:
        call: CALL(body, buffers...). Its buffers are changed.
        var_vals: Values of Variables.
        timeout: Milliseconds after which a single launch gives up, where the device can.
        clear_l2: Empty the device's caches before each run.
    """
    launch = launches_of(UOp(Ops.LINEAR, dtypes.void, (call,)))[0]
    arguments = call_buffers(call)
    device = Device[launch.device]
    while True:
        if clear_l2:
            device.invalidate_caches()
        yield launch.launch(arguments, var_vals or {}, wait=True) or 0.0


__all__ = [
    "before_data_access", "call_buffers", "capturing", "code_switches", "compile_linear", "estimate_uop",
    "get_call_arg_uops", "get_call_name", "get_call_outs_ins", "get_runtime", "launches_of", "resolve_params",
    "run_linear", "start_launch", "time_call",
]  # fmt: skip
