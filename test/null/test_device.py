"""Devices and buffers: names, errors, views, lifetimes, caches of freed memory."""

import gc
import os
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tinygrad.buffer import BufferSpec, LRUAllocator
from tinygrad.device import (
    Buffer,
    Compiled,
    CompileError,
    Compiler,
    Device,
    MultiBuffer,
    TinyELF,
    canonicalize_device,
)
from tinygrad.dtype import dtypes
from tinygrad.helpers import Context, GlobalCounters
from tinygrad.settings import DEV

# ---- names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", "CPU"),
        ("cpu:0", "CPU"),
        ("cpu:1", "CPU:1"),
        ("disk:/Some/Path", "DISK:/Some/Path"),
        ("disk:shm:Name", "DISK:shm:Name"),
        ("DISK:/a:0", "DISK:/a:0"),
    ],
)
def test_canonical_name(text: str, name: str) -> None:
    assert Device.canonicalize(text) == name
    assert canonicalize_device(text) == name


@pytest.mark.parametrize("name", [3, 1.5, b"CPU"], ids=str)
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(TypeError, match=r"Device: .* of type .*; expected a name such as 'CPU'"):
        Device[name]  # type: ignore[index]


def test_canonical_names_of_several_devices() -> None:
    assert canonicalize_device(["cpu:0", "cpu:1"]) == ("CPU", "CPU:1")
    assert canonicalize_device(("null:0",)) == "NULL"
    with Context(DEV="null"):
        assert canonicalize_device(None) == "NULL"


def test_unknown_device_says_what_was_meant() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"no device 'PYTHN'.*did you mean PYTHON\?"):
        Device["pythn"]


def test_missing_package_of_a_device_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    folder = tmp_path / "tinygrad" / "runtime"
    folder.mkdir(parents=True)
    (folder / "ops_needy.py").write_text("import a_package_that_nobody_has\n")
    import tinygrad.runtime

    monkeypatch.setattr(tinygrad.runtime, "__path__", [*tinygrad.runtime.__path__, str(folder)])
    with pytest.raises(ModuleNotFoundError, match="a_package_that_nobody_has"):
        Device.get_class("NEEDY")


def test_outside_package_adds_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class ToyDevice(Compiled):
        def __init__(self, device: str) -> None:
            super().__init__(device, None)

    module = types.ModuleType("tinygrad.runtime.ops_toy")
    module.ToyDevice = ToyDevice
    monkeypatch.setitem(sys.modules, "tinygrad.runtime.ops_toy", module)
    assert Device.get_class("toy:3") is ToyDevice
    monkeypatch.delitem(Device._opened, "TOY:3", raising=False)
    device = Device["toy:3"]
    assert (device.device, device.device_id) == ("TOY:3", 3)
    assert Device["TOY:3"] is device
    del Device._opened["TOY:3"]


def test_default_device_follows_dev() -> None:
    with Context(DEV="null"):
        assert Device.DEFAULT == "NULL"
        assert Device.default is Device["NULL"]
    with pytest.raises(AttributeError, match=r"setting Device\.DEFAULT is deprecated"):
        Device.DEFAULT = "CPU"


def test_default_device_is_the_cpu_unless_a_gpu_passes_its_probe() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "DEV"}
    code = "from tinygrad.device import Device; import os; print(Device.DEFAULT, os.environ['DEV'])"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["CPU", "CPU"]


def test_broken_probes_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    class CLDevice(Compiled):
        @classmethod
        def probe(cls) -> bool:
            raise OSError("the driver crashed")

    module = types.ModuleType("tinygrad.runtime.ops_cl")
    module.CLDevice = CLDevice
    monkeypatch.setitem(sys.modules, "tinygrad.runtime.ops_cl", module)
    monkeypatch.setenv("DEV", "")
    assert Device._probe() == "CPU"


def test_devices_are_forbidden_while_tracing() -> None:
    with Context(ALLOW_DEVICE_USAGE=0):
        with pytest.raises(AssertionError, match="usage of device NULL disallowed"):
            Device["NULL"]
        assert Device["PYTHON"].device == "PYTHON"


def test_unknown_renderer_says_what_was_meant() -> None:
    with (
        Context(DEV="PYTHON:PYTHN"),
        pytest.raises(RuntimeError, match=r"has no renderer 'PYTHN'; did you mean PYTHON\?"),
    ):
        assert Device["PYTHON"].renderer


def test_renderer_follows_dev() -> None:
    plain = Device["PYTHON"].renderer
    with Context(DEV="PYTHON::local,vec64"):
        other = Device["PYTHON"].renderer
        assert other.has_local
        assert other.vector_bytes == 64
        assert Device["PYTHON"].renderer is other
        assert DEV.target("PYTHON").arch == "local,vec64"
    assert Device["PYTHON"].renderer is plain
    assert not plain.has_local
    with Context(DEV="PYTHON::fast"), pytest.raises(RuntimeError, match="PYTHON has no option 'fast'"):
        assert Device["PYTHON"].renderer


def test_device_without_compiler() -> None:
    with pytest.raises(RuntimeError, match="no renderer"):
        assert Device["NPY"].compiler


def test_report_lists_every_device_file() -> None:
    run = subprocess.run([sys.executable, "-m", "tinygrad.device"], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert any(line.split()[0] == "PYTHON" and "works" in line for line in lines)
    assert sum(line.startswith("*") for line in lines) == 1


# ---- buffers


def test_memory_is_counted_and_freed_with_the_last_reference() -> None:
    gc.collect()
    before, before_device = GlobalCounters.mem_used, GlobalCounters.mem_used_per_device["PYTHON"]
    buffer = Buffer("PYTHON", 1000, dtypes.float32)
    assert not buffer.is_allocated()
    assert GlobalCounters.mem_used == before
    buffer.ensure_allocated()
    assert GlobalCounters.mem_used - before == 4000
    assert GlobalCounters.mem_used_per_device["PYTHON"] - before_device == 4000
    view = buffer.view(10, dtypes.float32, 40).ensure_allocated()
    del buffer
    assert GlobalCounters.mem_used - before == 4000
    del view
    assert GlobalCounters.mem_used == before


def test_views_share_memory() -> None:
    base = Buffer("PYTHON", 4, dtypes.int32, initial_value=bytes(range(16)))
    view = base.view(2, dtypes.int16, 6)
    assert (view.base, view.offset, view.nbytes) == (base, 6, 4)
    assert view.is_allocated()
    assert not view.is_initialized()
    assert bytes(view.ensure_allocated().as_memoryview()) == bytes([6, 7, 8, 9])
    inner = view.view(1, dtypes.int8, 3)
    assert (inner.base, inner.offset) == (base, 9)
    inner.ensure_allocated().copyin(memoryview(b"\xff"))
    assert bytes(base.as_memoryview())[8:11] == b"\x08\xff\x0a"
    with pytest.raises(AssertionError, match="views of this buffer are in use"):
        base.deallocate()


def test_misuse_of_buffers() -> None:
    buffer = Buffer("PYTHON", 4, dtypes.int32)
    with pytest.raises(AssertionError, match="not allocated"):
        buffer.deallocate()
    with pytest.raises(AssertionError, match="not allocated"):
        buffer.as_memoryview()
    buffer.allocate()
    with pytest.raises(AssertionError, match="allocated already"):
        buffer.allocate()
    with pytest.raises(AssertionError, match="beyond the end 16"):
        buffer.view(1, dtypes.int8, 17)
    with pytest.raises(AssertionError, match="12 bytes into a buffer of 16"):
        buffer.copy_from(Buffer("PYTHON", 3, dtypes.int32, preallocate=True))
    with pytest.raises(AssertionError, match="offset 0"):
        Buffer("PYTHON", 4, dtypes.int32, offset=4)
    with pytest.raises(AssertionError, match="cannot be stored"):
        Buffer("PYTHON", 4, dtypes.weakint)
    with Context(MAX_BUFFER_SIZE=3), pytest.raises(RuntimeError, match="buffer of size 4 is too large"):
        Buffer("PYTHON", 4, dtypes.int32).allocate()
    buffer.deallocate()
    assert not buffer.is_allocated()


def test_empty_buffer() -> None:
    buffer = Buffer("PYTHON", 0, dtypes.float32, initial_value=b"")
    assert buffer.is_allocated()
    assert bytes(buffer.as_memoryview(force_zero_copy=True)) == b""
    with pytest.raises(AssertionError, match="size must be positive"):
        Device["PYTHON"].allocator.alloc(0)


def test_foreign_memory() -> None:
    import ctypes

    array = (ctypes.c_int * 3)(1, 2, 3)
    before = GlobalCounters.mem_used
    buffer = Buffer("PYTHON", 3, dtypes.int32).allocate(external_ptr=ctypes.addressof(array))
    assert GlobalCounters.mem_used == before
    array[1] = 7
    assert buffer.numpy().tolist() == [1, 7, 3]


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16, dtypes.fp8e4m3, dtypes.float64, dtypes.bool])
def test_numpy_of_every_kind(dtype) -> None:
    import struct

    from tinygrad.dtype import storage_fmt_for_dtype, to_storage_scalar

    values = [True, False] if dtype is dtypes.bool else [1.5, -0.25]
    raw = struct.pack(f"<2{storage_fmt_for_dtype(dtype)}", *(to_storage_scalar(v, dtype) for v in values))
    assert Buffer("PYTHON", 2, dtype, initial_value=raw).numpy().tolist() == values


def test_pickle_keeps_contents_and_views() -> None:
    base = Buffer("PYTHON", 4, dtypes.uint8, initial_value=b"abcd")
    view = base.view(2, dtypes.uint8, 1).ensure_allocated()
    loaded_base, loaded_view = pickle.loads(pickle.dumps((base, view)))
    assert bytes(loaded_base.as_memoryview()) == b"abcd"
    assert loaded_view.base is loaded_base
    assert bytes(loaded_view.ensure_allocated().as_memoryview()) == b"bc"
    assert not pickle.loads(pickle.dumps(Buffer("PYTHON", 4, dtypes.uint8))).is_allocated()


def test_multi_buffer() -> None:
    buffers = MultiBuffer(("PYTHON", "PYTHON:1"), 4, dtypes.int8)
    assert (buffers.size, buffers.dtype, buffers.is_allocated()) == (4, dtypes.int8, False)
    assert buffers.ensure_allocated().ref(1).is_allocated()
    assert [b.device for b in buffers.bufs] == ["PYTHON", "PYTHON:1"]
    assert [b.uop_refcount for b in buffers.bufs] == [1, 1]


def test_copies_between_devices() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(6, dtype=numpy.int16)
    source = Buffer("NPY", 6, dtypes.int16, opaque=array)
    middle = Buffer("PYTHON", 6, dtypes.int16).ensure_allocated().copy_from(source)
    target = Buffer("PYTHON:1", 3, dtypes.int32).ensure_allocated().copy_from(middle)
    assert bytes(target.as_memoryview()) == array.tobytes()
    array[0] = 77
    assert source.numpy()[0] == 77, "an NPY buffer is the array's own memory"
    assert middle.numpy()[0] == 0


def test_npy_buffer_keeps_its_array_alive() -> None:
    numpy = pytest.importorskip("numpy")
    buffer = Buffer("NPY", 3, dtypes.float32, opaque=numpy.full(3, 2.0, numpy.float32))
    gc.collect()
    assert buffer.numpy().tolist() == [2.0, 2.0, 2.0]
    assert bytes(buffer.view(1, dtypes.float32, 4).ensure_allocated().as_memoryview()) == b"\0\0\0@"
    with pytest.raises(RuntimeError, match="not contiguous"):
        Buffer("NPY", 2, dtypes.float32, opaque=numpy.zeros((2, 2), numpy.float32)[:, 0]).as_memoryview()
    frozen = numpy.zeros(1, numpy.uint8)
    frozen.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        Buffer("NPY", 1, dtypes.uint8, opaque=frozen).copyin(memoryview(b"a"))


def test_null_does_not_pretend_to_have_values() -> None:
    buffer = Buffer("NULL", 4, dtypes.uint8, initial_value=b"abcd")
    with pytest.raises(RuntimeError, match="NULL_ALLOW_COPYOUT"):
        buffer.as_memoryview()
    with Context(NULL_ALLOW_COPYOUT=1):
        assert len(buffer.as_memoryview()) == 4


# ---- the cache of freed memory


class _Counting(LRUAllocator):
    """Hands out numbers and remembers which it got back."""

    def __init__(self, limit: int, room: int = 1 << 30) -> None:
        super().__init__(types.SimpleNamespace(device="COUNTING"), cache_limit=limit)
        self.next, self.freed, self.room = 0, [], room

    def _alloc(self, size, options):
        if size > self.room:
            raise RuntimeError("no room")
        self.room -= size
        self.next += 1
        return (self.next, size)

    def _free(self, opaque, options) -> None:
        self.room += opaque[1]
        self.freed.append(opaque[0])


def test_freed_block_is_used_again() -> None:
    allocator = _Counting(limit=1000)
    block = allocator.alloc(100)
    allocator.free(block, 100)
    assert allocator.freed == []
    assert allocator.alloc(100, BufferSpec(host=True)) != block, "other options, other memory"
    assert allocator.alloc(101) != block
    assert allocator.alloc(100) == block


@pytest.mark.parametrize("sizes", [(100,), (100, 100), (100, 50), (50, 100, 100, 7)])
def test_freed_blocks_of_several_sizes_are_used_again(sizes: tuple[int, ...]) -> None:
    allocator = _Counting(limit=1000)
    blocks = [allocator.alloc(size) for size in sizes]
    for _ in range(4):
        for block in blocks:
            allocator.free(block, block[1])
        assert allocator.cached_bytes == sum(sizes)
        again = [allocator.alloc(size) for size in sizes]
        assert sorted(again) == sorted(blocks)
        assert [size for _, size in again] == list(sizes)
        assert allocator.cached_bytes == 0
        blocks = again
    assert allocator.freed == []


def test_cache_is_bounded_and_drops_the_oldest() -> None:
    allocator = _Counting(limit=250)
    blocks = [allocator.alloc(100) for _ in range(3)] + [allocator.alloc(50)]
    for block in blocks[:3]:
        allocator.free(block, 100)
    assert allocator.freed == [1]
    assert allocator.cached_bytes == 200
    allocator.free(blocks[3], 50)
    assert allocator.freed == [1]
    allocator.free_cache()
    assert sorted(allocator.freed) == [1, 2, 3, 4]
    assert allocator.cached_bytes == 0


def test_reuse_keeps_the_order_book_short() -> None:
    allocator = _Counting(limit=1000)
    for _ in range(5000):
        blocks = allocator.alloc(100), allocator.alloc(50)
        for block in blocks:
            allocator.free(block, block[1])
    assert allocator.next == 2
    assert len(allocator._order) < 2000


def test_lru_off_and_nolru_free_at_once() -> None:
    allocator = _Counting(limit=1000)
    with Context(LRU=0):
        allocator.free(allocator.alloc(10), 10)
    spec = BufferSpec(nolru=True)
    allocator.free(allocator.alloc(10, spec), 10, spec)
    assert allocator.freed == [1, 2]


def test_full_memory_empties_the_cache_before_giving_up() -> None:
    allocator = _Counting(limit=1000, room=100)
    allocator.free(allocator.alloc(60), 60)
    allocator.alloc(80)
    assert allocator.freed == [1]
    with pytest.raises(MemoryError, match=r"COUNTING: allocation of 0.00 MB failed .*no room.*free tensors"):
        allocator.alloc(90)


def test_free_from_the_collector_inside_an_allocation() -> None:
    allocator = _Counting(limit=1000)
    block = allocator.alloc(10)
    with allocator._lock:  # as if ``free`` ran inside ``alloc``, which a garbage collection can cause
        allocator.free(block, 10)
    assert allocator.alloc(10) == block


# ---- compilers and programs


def test_compiler_keeps_results_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    calls = []

    class Slow(Compiler):
        def compile(self, src: str) -> bytes:
            calls.append(src)
            if src == "bad":
                raise CompileError("line 1: bad")
            return src.upper().encode()

    key = f"test_compiler_{os.getpid()}_{id(calls)}"
    assert [Slow(key).compile_cached("abc") for _ in range(2)] == [b"ABC", b"ABC"]
    assert calls == ["abc"]
    assert Slow().compile_cached("abc") == b"ABC"
    assert calls == ["abc", "abc"], "without a key nothing is kept"
    with pytest.raises(CompileError, match="line 1: bad"):
        Slow(key).compile_cached("bad")
    assert Compiler().compile("text") == b"text"


def test_argument_block_is_aligned() -> None:
    signature = [("data0", 0, dtypes.int8, (4,)), ("n", -1, dtypes.int32, ()), ("m", -1, dtypes.int64, ())]
    assert list(TinyELF.iter_sig(signature)) == [(0, dtypes.uint64), (8, dtypes.int32), (16, dtypes.int64)]
    assert next(TinyELF.iter_sig(signature, offset=4)) == (8, dtypes.uint64)


# ---- threads and processes


def test_one_device_object_for_many_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: Device["PYTHON:77"], range(64)))
    assert len(set(map(id, opened))) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_computes_while_another_thread_of_the_parent_holds_every_lock() -> None:
    code = """
import os, threading
from contextlib import ExitStack
from tinygrad import Tensor, TinyJit, diskcache, forking
jitted = TinyJit(lambda x: (x + 1).realize())
for i in range(3):
    jitted(Tensor([float(i)]).realize())
locks = [getattr(holder, name) for holder, names in forking._holders.items() for name in names]
held, done = threading.Event(), threading.Event()
def hold():
    with ExitStack() as stack:
        for lock in (*locks, diskcache._state.lock):
            stack.enter_context(lock)
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    new = (Tensor([2.0, 3.0]) * 4 + 1).sum().item()  # has to be scheduled, compiled and allocated
    os._exit(int(new + jitted(Tensor([5.0]).realize()).item()))
done.set()
thread.join()
print(len(locks) > 10, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "True 28", run.stderr


def test_every_lock_of_a_module_is_renewed_in_children() -> None:
    found = {}
    for path in (Path(__file__).parents[2] / "tinygrad").rglob("*.py"):
        text = path.read_text()
        for name in re.findall(r"^\s*((?:self\.)?\w+)(?:: [^=\n]+)? = threading\.R?Lock\(\)", text, re.MULTILINE):
            found[path.name, name] = text
    assert len(found) > 10
    own_way = {("diskcache.py", "self.lock")}  # forgets connections too
    for (file, name), text in found.items():
        renewed = re.findall(r"^\s*renew_in_child\((.*)\)$", text, re.MULTILINE)
        registered = any(f'"{name.removeprefix("self.")}"' in call for call in renewed)
        assert registered or (file, name) in own_way, f"{file}: {name} is not renewed in forked children"


def test_null_renders_for_other_devices() -> None:
    with Context(DEV="NULL:LLVM"):
        assert type(Device["NULL"].renderer).__name__ == "LLVMRenderer"
    with Context(DEV="NULL::local"):
        renderer = Device["NULL"].renderer
        assert (type(renderer).__name__, renderer.has_local) == ("NullRenderer", True)
    with Context(DEV="NULL:PYTHON"):
        assert type(Device["NULL"].renderer).__name__ == "PythonRenderer"
    with Context(DEV="NULL:LLVN"), pytest.raises(RuntimeError, match=r"no renderer 'LLVN'; did you mean LLVM\?"):
        assert Device["NULL"].renderer
