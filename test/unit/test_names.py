"""Names at the edge of the interface: traces, finished programs, the store of contents, words of other programs."""

import hashlib
import json
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, UOp, Variable, dtypes, nn, tensor as tensor_module
from tinygrad.codegen import to_program
from tinygrad.device import (
    Device,
    ProfileDeviceEvent,
    ProfileGraphEvent,
    ProfileProgramEvent,
    TinyELF,
)
from tinygrad.engine.launch import get_runtime
from tinygrad.profiling import ProfileRangeEvent, cpu_events, save_profile
from tinygrad.uop import Ops
from tinygrad.uop.ops import gate_kernel_sink, graph_rewrite, remove_all_tags, uop_fields

# ---- profiles


@pytest.fixture
def events() -> typing.Iterator[list[typing.Any]]:
    """Yield the profile, empty and recording."""
    kept = cpu_events[:]
    cpu_events.clear()
    with Context(PROFILE=1):
        yield cpu_events
    cpu_events[:] = kept


def of_kind(events: list[typing.Any], kind: type) -> list[typing.Any]:
    return [event for event in events if type(event) is kind]


def test_a_device_that_opens_is_in_the_profile(events: list[typing.Any]) -> None:
    device = Device["PYTHON:91"]
    (event,) = of_kind(events, ProfileDeviceEvent)
    assert event.device == "PYTHON:91"
    assert event.props == {"arch": device.arch, "class": "PythonDevice"}
    assert Device["PYTHON:91"] is device
    assert len(of_kind(events, ProfileDeviceEvent)) == 1, "opened once"


def test_a_program_that_is_loaded_is_in_the_profile(events: list[typing.Any]) -> None:
    x = Tensor(np.ones((3, 83), np.float32)).clone().realize()
    events.clear()
    (x * 5 + 2).realize()
    (event,) = of_kind(events, ProfileProgramEvent)
    (run,) = of_kind(events, ProfileRangeEvent)
    assert event.device == x.device
    assert event.profile_key == hashlib.sha256(event.lib).digest() == run.profile_key
    assert event.ts <= run.st <= run.en


def test_a_replay_is_in_the_profile_as_a_graph(events: list[typing.Any]) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        total = (x * 2).sum(0).contiguous().realize()
        return (total + x.max(0).contiguous().realize()).realize()

    for _ in range(2):
        step(Tensor(np.ones((8, 84), np.float32)).clone().realize())
    events.clear()
    x = Tensor(np.ones((8, 84), np.float32)).clone().realize()
    events.clear()
    step(x)
    runs = of_kind(events, ProfileRangeEvent)
    (graph,) = of_kind(events, ProfileGraphEvent)
    assert [entry.name for entry in graph.ents] == [run.name for run in runs]
    assert [(graph.sigs[e.st_id], graph.sigs[e.en_id]) for e in graph.ents] == [(r.st, r.en) for r in runs]
    assert len(graph.ents) >= 2
    assert graph.deps[0] == []
    assert graph.deps[-1] == list(range(len(graph.ents) - 1)), "the last kernel reads what the others write"


def test_all_events_are_saved(events: list[typing.Any], tmp_path: Path) -> None:
    Device["PYTHON:92"]
    x = Tensor(np.ones((3, 85), np.float32)).clone().realize()
    (x * 5 + 2).realize()
    save_profile(tmp_path)
    (trace,) = tmp_path.glob("profile.json*")
    shown = [row["name"] for row in json.loads(trace.read_text())["traceEvents"]]
    assert "open" in shown
    assert any(name.startswith("load ") for name in shown)


# ---- nodes


def test_as_shape() -> None:
    n = Variable("n", 1, 9)
    assert UOp.const((2, 3)).as_shape == (2, 3)
    assert UOp.const(4).as_shape == (4,)
    assert UOp.stack(n, UOp.const(2) * 3).as_shape == (n, 6)
    with pytest.raises(RuntimeError, match="no list of sizes"):
        UOp.const(1.5).as_shape  # noqa: B018


def test_to_elf() -> None:
    linear = (Tensor.empty(3, 86) * 7).schedule_linear()
    with Context(CACHELEVEL=0):  # programs from the disk come without their instructions, and so without a signature
        program = to_program(linear.src[0].src[0], Device[Device.DEFAULT].renderer)
    elf = program.to_elf()
    assert isinstance(elf, TinyELF)
    assert elf.name == program.arg.function_name
    assert elf.lib == next(u.arg for u in program.src if u.op is Ops.BINARY)
    assert [entry[3] for entry in elf.signature] == [(258,), (258,)]
    assert get_runtime(Device.DEFAULT, program) is not None
    with pytest.raises(RuntimeError, match="no PROGRAM"):
        linear.to_elf()
    with pytest.raises(RuntimeError, match="no BINARY"):
        program.replace(src=program.src[:1]).to_elf()


def test_trace_num() -> None:
    x = UOp.variable("traced", 0, 10)
    u = x * 3 + 1
    number = u.trace_num
    assert u.trace_num == number
    op, dtype, src, arg, tag = uop_fields[number]
    assert (op, dtype, arg, tag) == (u.op, u.dtype, u.arg, u.tag)
    assert src == tuple(s.trace_num for s in u.src)
    assert all(s < number for s in src), "sources come first"


def test_remove_all_tags_and_gate_kernel_sink() -> None:
    u = (UOp.variable("v", 0, 5).rtag("a") + 1).rtag("b")
    assert graph_rewrite(u, remove_all_tags) is UOp.variable("v", 0, 5) + 1
    linear = (Tensor.empty(3, 87) * 7).schedule_linear()
    ops = {v.op for v in linear.toposort(gate=gate_kernel_sink)}
    assert Ops.CALL in ops
    assert Ops.MUL not in ops
    assert Ops.MUL in {v.op for v in linear.toposort()}


# ---- names of the module


def test_seed() -> None:
    Tensor.manual_seed(1234)
    assert Tensor._seed == 1234
    drawn = Tensor.rand(4).tolist()
    Tensor._seed = 1234
    assert Tensor.rand(4).tolist() == drawn


def test_names_that_programs_import_from_tensor() -> None:
    assert tensor_module.cast is typing.cast
    assert tensor_module._METADATA.get() is None


def test_interpolate_wants_a_tuple() -> None:
    with pytest.raises(AssertionError, match="a tuple of 1 to ndim positive sizes"):
        Tensor.ones(1, 1, 4).interpolate(3)


# ---- the store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tinygrad.nn.content_store.cache_home", lambda: tmp_path)
    return tmp_path / "store"


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "bool", "bfloat16"])
def test_what_is_stored_is_loaded(store: Path, dtype: str) -> None:
    x = Tensor([[1, 0, 3], [4, 5, 6]], dtype=dtype)
    digest = nn.state.fs_store(x)
    assert (digest.dtype, digest.shape) == (dtypes.uint8, (16,))
    assert digest.tolist() == x.hash().tolist()
    loaded = nn.state.fs_load(digest, x.nbytes())
    assert (loaded.dtype, loaded.shape) == (dtypes.uint8, (x.nbytes(),))
    assert loaded.bitcast(dtype).reshape(2, 3).tolist() == x.tolist()


def test_equal_content_is_stored_once_and_less_than_all_can_be_read(store: Path) -> None:
    digest = nn.state.fs_store(Tensor([1, 2, 3], dtype="uint8"))
    again = nn.state.fs_store(Tensor([1, 2, 3, 0, 0], dtype="uint8"))
    assert again.tolist() == digest.tolist(), "zeros at the end do not count"
    assert len([path for path in store.rglob("*") if path.is_file()]) == 1
    assert nn.state.fs_load(digest, 2).tolist() == [1, 2]
    assert nn.state.fs_load(digest, 5).tolist() == [1, 2, 3, 0, 0]


def test_errors_of_the_store(store: Path) -> None:
    digest = nn.state.fs_store(Tensor([1, 2, 3], dtype="uint8"))
    with pytest.raises(AssertionError, match="a digest is 16 bytes"):
        nn.state.fs_load(digest[:15], 3)
    with pytest.raises(AssertionError, match="a digest is 16 bytes"):
        nn.state.fs_load(digest.int(), 3)
    with pytest.raises(FileNotFoundError, match="nothing is stored under"):
        nn.state.fs_load(Tensor([0] * 16, dtype="uint8"), 3)
    with pytest.raises(ValueError, match="4 bytes asked for, 3 are stored"):
        nn.state.fs_load(digest, 4)
    (path,) = (path for path in store.rglob("*") if path.is_file())
    path.write_bytes(b"\x01\x02\x04")
    with pytest.raises(RuntimeError, match="is damaged"):
        nn.state.fs_load(digest, 3)


@pytest.mark.parametrize(
    "name",
    [
        "helpers.getenv", "dtype.dtypes", "device.Device", "tensor.Tensor", "engine.jit.TinyJit", "uop.ops.UOp",
        "engine.realize.run_linear", "nn.optim.SGD", "nn.state.safe_load", "codegen.to_program", "schedule", "mixin",
        "renderer.Renderer", "runtime",
    ],
)  # fmt: skip
def test_parts_are_there_after_importing_the_package_alone(name: str) -> None:
    run = subprocess.run([sys.executable, "-c", f"import tinygrad; tinygrad.{name}"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
