"""Counters, timers and the profile: what was run, and how long it took.

In:   numbers and ranges that the other stages report.
Out:  ``GlobalCounters``, timing context managers, and, with PROFILE, the list ``cpu_events``. At exit it is written to
      the temporary folder: ``profile.pkl.<user>`` for the viewer, ``profile.json.<user>`` for Perfetto (chrome trace).
Why:  a measurement that is always at hand, and costs next to nothing while it is off, gets used.

Times of events are microseconds as Decimal, so that differences of large clock values stay exact.
"""

from __future__ import annotations

import atexit
import contextvars
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tinygrad.record import field, record
from tinygrad.settings import PROFILE

if TYPE_CHECKING:
    import cProfile
    from decimal import Decimal

__all__ = [
    "_METADATA",
    "GlobalCounters",
    "Metadata",
    "ProfileDeviceEvent",
    "ProfileEvent",
    "ProfileGraphEntry",
    "ProfileGraphEvent",
    "ProfilePointEvent",
    "ProfileProgramEvent",
    "ProfileRangeEvent",
    "Profiling",
    "Timing",
    "TracingKey",
    "chrome_trace",
    "cpu_events",
    "cpu_profile",
    "labelled",
    "perf_counter_us",
    "profile_marker",
    "save_profile",
]


class GlobalCounters:
    """Counters of the process, as class attributes.

    Attributes:
        global_ops: Arithmetic operations of all kernels run.
        global_mem: Bytes read and written by them.
        time_sum_s: Seconds that timed kernels took; grows only when kernels are timed (DEBUG >= 2).
        kernel_count: Kernels and copies run.
        mem_used: Bytes allocated now, on all devices.
        mem_used_per_device: The same per device.
    """

    global_ops: ClassVar[int] = 0
    global_mem: ClassVar[int] = 0
    time_sum_s: ClassVar[float] = 0.0
    kernel_count: ClassVar[int] = 0
    mem_used: ClassVar[int] = 0
    mem_used_per_device: ClassVar[defaultdict[str, int]] = defaultdict(int)

    @staticmethod
    def reset() -> None:
        """Set the counters of kernels to zero; the memory in use stays."""
        GlobalCounters.global_ops = GlobalCounters.global_mem = GlobalCounters.kernel_count = 0
        GlobalCounters.time_sum_s = 0.0


class Timing(ContextDecorator):
    """Print how long a block or a decorated function took.

    Args:
        prefix: Text before the time.
        on_exit: Called with the nanoseconds; the text that it returns is appended.
        enabled: False prints nothing.

    Attributes:
        et: Elapsed nanoseconds, after the block.
    """

    def __init__(self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True) -> None:
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled
        self.et = 0

    def _recreate_cm(self) -> Timing:
        return Timing(self.prefix, self.on_exit, self.enabled)

    def __enter__(self) -> Timing:
        self.st = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self.et = time.perf_counter_ns() - self.st
        if self.enabled:
            extra = self.on_exit(self.et) if self.on_exit else ""
            sys.stdout.write(f"{self.prefix}{self.et * 1e-6:6.2f} ms{extra}\n")


class Profiling(ContextDecorator):
    """Print where Python time goes in a block, with cProfile.

    Args:
        enabled: False does nothing.
        sort: Column to sort by, as in pstats.
        frac: Share of the functions to show.
        fn: File for the raw statistics.
        ts: Factor on the printed times, which are in seconds.
    """

    def __init__(
        self, enabled: bool = True, sort: str = "cumtime", frac: float = 0.2, fn: str | None = None, ts: float = 1
    ) -> None:
        self.enabled, self.sort, self.frac, self.fn, self.ts = enabled, sort, frac, fn, ts
        self.profile: cProfile.Profile | None = None

    def _recreate_cm(self) -> Profiling:
        return Profiling(self.enabled, self.sort, self.frac, self.fn, self.ts)

    def __enter__(self) -> Profiling:
        if self.enabled:
            import cProfile

            self.profile = cProfile.Profile(timer=time.perf_counter_ns, timeunit=1e-9 * self.ts)
            self.profile.enable()
        return self

    def __exit__(self, *_: object) -> None:
        if self.profile is None:
            return
        self.profile.disable()
        import pstats

        if self.fn:
            self.profile.dump_stats(self.fn)
        pstats.Stats(self.profile, stream=sys.stdout).strip_dirs().sort_stats(self.sort).print_stats(self.frac)


@record(frozen=True)
class Metadata:
    """Which tensor method made a node; ``backward`` for nodes of its gradient."""

    name: str
    backward: bool = False

    def __str__(self) -> str:
        return self.name + (" bw" if self.backward else "")


# What new nodes are labelled with: the public method that the user's code is in; None outside of them.
_METADATA: contextvars.ContextVar[Metadata | None] = contextvars.ContextVar("_METADATA", default=None)


class labelled:  # noqa: N801  used like a function; a class, because it is entered for every node of a gradient
    """Context in which new nodes get this label; None: no label."""

    __slots__ = ("_metadata", "_token")

    def __init__(self, metadata: Metadata | None) -> None:
        self._metadata = metadata

    def __enter__(self) -> None:
        self._token = _METADATA.set(self._metadata)

    def __exit__(self, *_: object) -> None:
        _METADATA.reset(self._token)


@record(frozen=True)
class TracingKey:
    """Label of one group of rewrites in a trace.

    Attributes:
        display_name: What the viewer shows.
        keys: Names by which other events refer to it.
        ret: The result, if it is worth keeping.
        tb: Where it was called from.
    """

    display_name: str
    keys: tuple[Any, ...] = ()
    ret: Any = None
    tb: Any = None


class ProfileEvent:
    """Base class of everything in a profile."""


@record
class ProfileRangeEvent(ProfileEvent):
    """Something that took time on a device: from ``st`` to ``en`` (None while it runs)."""

    device: str
    name: TracingKey | str
    st: Decimal
    en: Decimal | None = None
    profile_key: Any = None


@record(frozen=True)
class ProfilePointEvent(ProfileEvent):
    """Something that happened at one moment."""

    device: str
    name: str
    key: Any
    arg: dict[str, Any] = field(default_factory=dict)
    ts: Decimal = field(default_factory=lambda: perf_counter_us())


@record(frozen=True)
class ProfileDeviceEvent(ProfileEvent):
    """A device was opened.

    Attributes:
        device: Its name.
        props: What is known of it, such as ``arch``.
        ts: When.
    """

    device: str
    props: dict[str, Any] = field(default_factory=dict)
    ts: Decimal = field(default_factory=lambda: perf_counter_us())


@record(frozen=True)
class ProfileProgramEvent(ProfileEvent):
    """A compiled kernel was loaded.

    Attributes:
        device: Where.
        name: Name of its function.
        lib: What the compiler gave; the same kernel can be disassembled from it.
        profile_key: Key under which range events refer to it.
        ts: When.
    """

    device: str
    name: str
    lib: bytes | None = None
    profile_key: Any = None
    ts: Decimal = field(default_factory=lambda: perf_counter_us())


@record(frozen=True)
class ProfileGraphEntry:
    """One launch of a captured graph: it ran from ``sigs[st_id]`` to ``sigs[en_id]`` of its ProfileGraphEvent."""

    device: str
    name: TracingKey | str
    st_id: int
    en_id: int
    profile_key: Any = None


@record(frozen=True)
class ProfileGraphEvent(ProfileEvent):
    """One replay of a captured graph.

    Attributes:
        ents: Its launches in order.
        deps: For each launch the numbers of those that it had to wait for.
        sigs: Times, in microseconds.
    """

    ents: list[ProfileGraphEntry]
    deps: list[list[int]]
    sigs: list[Decimal]


cpu_events: list[ProfileEvent] = []


def perf_counter_us() -> Decimal:
    """Return the monotonic clock in microseconds."""
    from decimal import Decimal

    return Decimal(time.perf_counter_ns()) / 1000


@contextmanager
def cpu_profile(
    name: TracingKey | str, device: str = "TINY", display: bool = True, profile_key: Any = None
) -> Iterator[ProfileRangeEvent]:
    """Time a block; with PROFILE, and ``display``, the event goes into ``cpu_events``."""
    event = ProfileRangeEvent(device, name, perf_counter_us(), profile_key=profile_key)
    try:
        yield event
    finally:
        event.en = perf_counter_us()
        if PROFILE.get() and display:
            cpu_events.append(event)


def profile_marker(name: str, color: str = "gray") -> None:
    """Put a named marker into the profile."""
    if PROFILE.get():
        cpu_events.append(ProfilePointEvent("TINY", "marker", None, {"name": name, "color": color}))


def chrome_trace(events: list[ProfileEvent]) -> dict[str, Any]:
    """Return the ranges and markers in the chrome trace format, which Perfetto opens: one row per device."""
    rows: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, ProfileRangeEvent) and event.en is not None:
            label = event.name.display_name if isinstance(event.name, TracingKey) else event.name
            start, length = float(event.st), float(event.en - event.st)
            rows.append({"name": label, "ph": "X", "pid": 0, "tid": event.device, "ts": start, "dur": length})
        elif isinstance(event, ProfilePointEvent):
            label = str(event.arg.get("name", event.name))
            rows.append({"name": label, "ph": "i", "s": "p", "pid": 0, "tid": event.device, "ts": float(event.ts)})
        elif isinstance(event, ProfileGraphEvent) and event.sigs:
            start, length = float(min(event.sigs)), float(max(event.sigs) - min(event.sigs))
            label = f"graph of {len(event.ents)}"
            rows.append({"name": label, "ph": "X", "pid": 0, "tid": "JIT", "ts": start, "dur": length})
        elif isinstance(event, (ProfileDeviceEvent, ProfileProgramEvent)):
            label = f"load {event.name}" if isinstance(event, ProfileProgramEvent) else "open"
            rows.append({"name": label, "ph": "i", "s": "t", "pid": 0, "tid": event.device, "ts": float(event.ts)})
    tids = {device: number for number, device in enumerate(dict.fromkeys(row["tid"] for row in rows))}
    for row in rows:
        row["tid"] = tids[row["tid"]]
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": device}}
        for device, number in tids.items()
    ]
    return {"traceEvents": names + rows, "displayTimeUnit": "ms"}


def save_profile(folder: Path | None = None) -> None:
    """Write ``cpu_events`` for the viewer and for Perfetto; the default folder is the temporary one."""
    import json
    import pickle

    from tinygrad.system import temp

    pickled, trace = temp("profile.pkl", append_user=True), temp("profile.json", append_user=True)
    if folder is not None:
        pickled, trace = str(folder / Path(pickled).name), str(folder / Path(trace).name)
    Path(pickled).write_bytes(pickle.dumps(cpu_events))
    Path(trace).write_text(json.dumps(chrome_trace(cpu_events)), encoding="utf-8")


def _save_at_exit() -> None:
    if cpu_events and PROFILE.default:
        save_profile()


# Registered first, so it runs after the devices have added their last events.
atexit.register(_save_at_exit)
