"""Files as buffers and tensors: lazy views, nothing written unless assigned, clear errors."""

import pathlib
import uuid

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.device import Buffer, Device


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "numbers.bin"
    path.write_bytes(np.arange(16, dtype=np.float32).tobytes())
    return path


def _on_disk(path: pathlib.Path, size: int, dtype=dtypes.float32) -> Buffer:
    return Buffer(f"DISK:{path}", size, dtype)


# ---- buffers


def test_nothing_happens_to_a_file_that_is_not_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "absent"
    buffer = _on_disk(path, 4).ensure_allocated()
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match="no such file; it is created when a tensor is assigned"):
        buffer.as_memoryview()


def test_views_read_parts(file: pathlib.Path) -> None:
    view = _on_disk(file, 16).view(4, dtypes.float32, 8).ensure_allocated()
    assert view.numpy().tolist() == [2, 3, 4, 5]
    assert view.view(2, dtypes.uint16, 4).ensure_allocated().numpy().tolist() == [0, 0x4040]
    assert bytes(view.as_memoryview(force_zero_copy=True)) == np.arange(2, 6, dtype=np.float32).tobytes()


def test_mapped_bytes_are_read_only(file: pathlib.Path) -> None:
    mapped = _on_disk(file, 16).ensure_allocated().as_memoryview(force_zero_copy=True)
    with pytest.raises(TypeError, match="read-only"):
        mapped[0] = 1


def test_short_file(file: pathlib.Path) -> None:
    buffer = _on_disk(file, 100).ensure_allocated()
    for zero_copy in (True, False):
        with pytest.raises(ValueError, match="has 64 bytes, bytes up to 400 are wanted; the file is cut short"):
            buffer.as_memoryview(force_zero_copy=zero_copy)
    assert file.stat().st_size == 64
    assert buffer.view(16, dtypes.float32, 0).ensure_allocated().numpy()[-1] == 15


def test_write_creates_extends_and_keeps_the_rest(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    _on_disk(file, 16).view(2, dtypes.float32, 4).ensure_allocated().copyin(memoryview(np.full(2, 9, np.float32)))
    assert np.fromfile(file, np.float32).tolist() == [0, 9, 9, *range(3, 16)]
    fresh = tmp_path / "fresh"
    _on_disk(fresh, 8, dtypes.uint8).view(2, dtypes.uint8, 1).ensure_allocated().copyin(memoryview(b"ab"))
    assert fresh.read_bytes() == b"\0ab\0\0\0\0\0"


def test_what_was_mapped_survives_a_replaced_file(file: pathlib.Path) -> None:
    buffer = _on_disk(file, 16).ensure_allocated()
    mapped = buffer.as_memoryview(force_zero_copy=True)
    other = file.with_suffix(".new")
    other.write_bytes(bytes(64))
    other.replace(file)
    assert np.frombuffer(mapped, np.float32)[15] == 15
    assert buffer.numpy()[15] == 15, "this buffer still means the file that it opened"
    assert _on_disk(file, 16).ensure_allocated().numpy()[15] == 0
    buffer.copyin(memoryview(np.ones(16, np.float32)))
    assert np.fromfile(file, np.float32).tolist() == [1.0] * 16
    assert buffer.numpy().tolist() == [1.0] * 16


def test_files_are_closed(file: pathlib.Path) -> None:
    folder = pathlib.Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("needs /proc")
    before = len(list(folder.iterdir()))
    for _ in range(50):
        _on_disk(file, 16).ensure_allocated().as_memoryview(force_zero_copy=True)
    assert len(list(folder.iterdir())) <= before + 1


def test_copy_from_file_to_file(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "copy.bin"
    _on_disk(target, 16).ensure_allocated().copy_from(_on_disk(file, 16).ensure_allocated())
    assert target.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
def test_copy_from_file_to_device(file: pathlib.Path, device: str) -> None:
    part = _on_disk(file, 16).view(5, dtypes.float32, 12).ensure_allocated()
    assert Buffer(device, 5, dtypes.float32).ensure_allocated().copy_from(part).numpy().tolist() == [3, 4, 5, 6, 7]


def test_directory_and_missing_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        _on_disk(tmp_path / "missing" / "file", 4).ensure_allocated().copyin(memoryview(bytes(16)))
    with pytest.raises(OSError, match="directory"):
        _on_disk(tmp_path, 4).ensure_allocated().copyin(memoryview(bytes(16)))


@pytest.mark.skipif(not pathlib.Path("/dev/shm").exists(), reason="needs /dev/shm")
def test_shared_memory() -> None:
    name = f"test-{uuid.uuid4().hex}"
    try:
        Buffer(f"DISK:shm:{name}", 4, dtypes.uint8).ensure_allocated().copyin(memoryview(b"abcd"))
        assert pathlib.Path("/dev/shm", name).read_bytes() == b"abcd"
        assert bytes(Buffer(f"DISK:shm:{name}", 4, dtypes.uint8).ensure_allocated().as_memoryview()) == b"abcd"
    finally:
        pathlib.Path("/dev/shm", name).unlink()


def test_device_name_keeps_the_path(tmp_path: pathlib.Path) -> None:
    device = Device[f"disk:{tmp_path}/Some:File:0"]
    assert device.path == f"{tmp_path}/Some:File:0"


# ---- tensors


def test_tensor_of_a_path(file: pathlib.Path) -> None:
    raw = Tensor(file)
    assert (raw.dtype, raw.shape, raw.device) == (dtypes.uint8, (64,), f"DISK:{file}")
    numbers = raw.bitcast(dtypes.float32)
    assert numbers[2:5].tolist() == [2, 3, 4]
    assert numbers.reshape(4, 4)[1].tolist() == [4, 5, 6, 7]
    assert (numbers[4:6].to("CPU") * 2).tolist() == [8, 10]


def test_computing_with_a_file_never_changes_it(file: pathlib.Path) -> None:
    before, stamp = file.read_bytes(), file.stat().st_mtime_ns
    (Tensor(file).bitcast(dtypes.float32).to("CPU") * 2).realize()
    assert file.read_bytes() == before
    assert file.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("error", [RuntimeError, AssertionError])
def test_computing_on_the_file_says_to_copy(file: pathlib.Path, error: type) -> None:
    with pytest.raises(error, match=r"must be BUFFER storage of a device that computes; copy it there first with \.to"):
        (Tensor(file) + 1).realize()


def test_assign_writes_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.bin"
    Tensor.empty(4, dtype=dtypes.int32, device=f"disk:{path}").assign(
        Tensor([1, 2, 3, 4], dtype=dtypes.int32)
    ).realize()
    assert np.fromfile(path, np.int32).tolist() == [1, 2, 3, 4]


def test_moved_to_disk(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "moved.bin"
    Tensor([1.0, 2.0]).to(f"disk:{path}").realize()
    assert np.fromfile(path, np.float32).tolist() == [1.0, 2.0]


def test_empty_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    assert Tensor(path).shape == (0,)
    assert Tensor(path).tolist() == []


def test_assign_of_a_list_and_into_a_part(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.bin"
    whole = Tensor.empty(4, dtype=dtypes.int32, device=f"disk:{path}")
    whole.assign([5, 6, 7, 8])
    whole[1:3].assign(Tensor([1, 2], dtype=dtypes.int32) * 10)
    assert np.fromfile(path, np.int32).tolist() == [5, 10, 20, 8]


def test_an_existing_file_as_storage_is_read_at_once(file: pathlib.Path) -> None:
    whole = Tensor.empty(16, dtype=dtypes.float32, device=f"disk:{file}")
    assert whole[3:5].tolist() == [3.0, 4.0]
    assert Tensor.empty(16, dtype=dtypes.float32, device=f"disk:{file}").numpy().tolist() == list(range(16))
    assert Tensor.empty(16, dtype=dtypes.float32, device=f"disk:{file}")[7].item() == 7.0


def test_storage_beyond_the_end_of_a_file(file: pathlib.Path) -> None:
    longer = Tensor.empty(17, dtype=dtypes.float32, device=f"disk:{file}")
    assert longer[:16].tolist() == list(range(16))
    with pytest.raises(ValueError, match="has 64 bytes, bytes up to 68 are wanted"):
        longer.tolist()
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        Tensor.empty(2, device=f"disk:{file}.absent").tolist()


def test_half_floats_are_read_from_the_file(tmp_path: pathlib.Path) -> None:
    values = np.array([[1.5, -0.0, np.inf], [6e-8, 65504, -2]], np.float16)
    (tmp_path / "f").write_bytes(values.tobytes())
    read = Tensor(tmp_path / "f", dtype=dtypes.float16).reshape(2, 3)
    assert read.tolist() == values.tolist()
    assert read[1].tolist() == values[1].tolist()
    assert str(read[0, 1].item()) == "-0.0"


def test_a_clone_of_a_file_is_in_memory_and_the_file_as_it_was(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    before = file.read_bytes()
    part = Tensor(file, dtype=dtypes.float32)[4:6]
    copy = part.clone()
    assert copy.device == Device.DEFAULT
    assert copy.tolist() == [4.0, 5.0]
    copy.assign([0.0, 0.0]).realize()
    with pytest.raises(RuntimeError, match="a clone in the same file would overwrite it"):
        part.clone(part.device)
    assert file.read_bytes() == before
    assert part.clone(f"disk:{tmp_path / 'other'}").realize().tolist() == [4.0, 5.0]
    assert (tmp_path / "other").read_bytes() == before[16:24]


@pytest.mark.parametrize("how", ["to", "clone", "assign"])
@pytest.mark.parametrize(
    "view",
    [lambda t: t[4:6], lambda t: t.reshape(4, 4).T, lambda t: t[::5], lambda t: t.flip(0), lambda t: t[:1].expand(3)],
)
def test_views_of_a_file_go_into_another(file: pathlib.Path, tmp_path: pathlib.Path, view, how: str) -> None:
    part, there = view(Tensor(file, dtype=dtypes.float32)), f"disk:{tmp_path / 'other'}"
    expected = view(Tensor(np.arange(16, dtype=np.float32)).to(None)).tolist()
    if how == "assign":
        copy = Tensor.empty(*part.shape, device=there).assign(part)
    else:
        copy = getattr(part, how)(there).realize()
    assert copy.tolist() == expected
    assert np.fromfile(tmp_path / "other", np.float32).reshape(part.shape).tolist() == expected


def test_a_file_on_the_way_holds_nothing_else(tmp_path: pathlib.Path) -> None:
    through = (Tensor([1.0, 2.0]) + 1).to(f"disk:{tmp_path / 'f'}").to(None) * 2
    assert through.tolist() == [4.0, 6.0]
    assert np.fromfile(tmp_path / "f", np.float32).tolist() == [2.0, 3.0]


def test_strided_views_are_not_read(file: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match="a non-contiguous view is not supported in a file"):
        Tensor(file, dtype=dtypes.float32)[::2].tolist()
    with pytest.raises(AssertionError, match="a non-contiguous view is not supported in a file"):
        Tensor(file, dtype=dtypes.float32).reshape(4, 4).T.numpy()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda disk: Tensor.zeros(3, dtype="int32", device=disk), [0, 0, 0]),
        (lambda disk: Tensor.full((2, 2), 7, dtype="int32", device=disk), [7, 7, 7, 7]),
        (lambda disk: Tensor.empty(3, dtype="int32", device=disk).full_like(5), [5, 5, 5]),
        (lambda disk: (Tensor([1, 2, 3]) * 0).to(disk), [0, 0, 0]),
        (lambda disk: (Tensor([1, 2, 3]) * 2).to(disk), [2, 4, 6]),
        (lambda disk: Tensor([1, 2, 3], device=disk), [1, 2, 3]),
        (lambda disk: Tensor.empty(4, dtype="int32", device=disk).assign(Tensor.arange(4)), [0, 1, 2, 3]),
    ],
)
def test_what_has_no_device_is_computed_elsewhere_and_written(tmp_path: pathlib.Path, make, expected: list) -> None:
    made = make(f"disk:{tmp_path / 'f'}").realize()
    assert np.fromfile(tmp_path / "f", np.int32).tolist() == expected
    assert made.flatten().tolist() == expected


@pytest.mark.parametrize(
    "value",
    [
        [8, 9],
        np.array([8, 9], np.int32),
        Tensor([8, 9]),
        Tensor([7, 8]) + 1,
        Tensor([[8, 9]]),
        Tensor([8, 9], device="PYTHON"),
    ],
    ids=str,
)
def test_parts_of_a_file_take_values_from_anywhere(tmp_path: pathlib.Path, value: object) -> None:
    numbers = Tensor([1, 2, 3, 4], device=f"disk:{tmp_path / 'f'}").realize()
    numbers[1:3] = value
    assert np.fromfile(tmp_path / "f", np.int32).tolist() == [1, 8, 9, 4]


def test_a_file_moved_within_itself(tmp_path: pathlib.Path) -> None:
    content = np.random.default_rng(0).integers(0, 256, 3_000_000, dtype=np.uint8)
    (tmp_path / "f").write_bytes(content.tobytes())
    all_of_it = Tensor(tmp_path / "f")
    all_of_it[1000:] = all_of_it[:-1000]
    np.testing.assert_array_equal(np.fromfile(tmp_path / "f", np.uint8)[1000:], content[:-1000])


def test_what_is_no_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(IsADirectoryError, match="a file is expected, this is a folder"):
        Tensor(tmp_path)
    with pytest.raises(ValueError, match="/dev/null is no regular file; read it and pass the bytes"):
        Tensor(pathlib.Path("/dev/null"))


def test_bytes_behind_the_last_whole_element(tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(np.arange(2, dtype=np.int32).tobytes() + b"x")
    assert Tensor(tmp_path / "f", dtype=dtypes.int32).tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"Tensor: 5 bytes hold no whole number of elements of dtypes.int of 4 bytes"):
        Tensor(b"abcde", dtype=dtypes.int32)
