"""Checkpoints: every format and view against torch, and pickles that try to run something."""

import argparse
import collections
import io
import os
import pickle
import struct
import subprocess
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Context, Tensor, dtypes, nn
from tinygrad.nn.state import get_state_dict, load_state_dict, torch_load

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
BASE = torch.arange(42, dtype=torch.float32).reshape(6, 7)
BLOCK = torch.arange(60).reshape(3, 4, 5)
VIEWS = {
    "whole": BASE,
    "scalar": torch.tensor(3.5),
    "one element": BASE[2:3, 4:5],
    "empty": torch.zeros(0, 3),
    "rows": BASE[2:5],
    "part of a row": BASE[3, 2:5],
    "corner": BASE[1:, 2:],
    "transposed": BASE.T,
    "transposed corner": BASE[1:4, 2:].T,
    "permuted": BLOCK.permute(2, 0, 1),
    "with axes of size 1": BLOCK.permute(2, 0, 1)[:, None, :, :, None],
    "steps": BASE[::2, ::3],
    "expanded": BASE[:, :1].expand(6, 7),
    "expanded in front": BASE.expand(2, 6, 7),
    "expanded scalar": torch.tensor(2.0).expand(3, 4),
    "expanded and permuted": BASE[:, None].expand(6, 2, 7).permute(2, 1, 0),
    "overlapping windows": torch.arange(10.0).unfold(0, 4, 2),
    "diagonal": BASE[:, :6].diagonal(),
    "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
}
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def _save(path: Path, obj: Any, zipped: bool) -> Path:
    torch.save(obj, path, _use_new_zipfile_serialization=zipped)
    return path


def _assert_same(found: Tensor, expected: torch.Tensor) -> None:
    assert found.shape == tuple(expected.shape)
    array = found.to(None).numpy()
    wanted = expected.detach()
    wanted = wanted.float().numpy() if array.dtype == np.float32 else wanted.numpy()
    np.testing.assert_array_equal(array, wanted)


# ---- tensors


@FORMATS
def test_views(tmp_path: Path, zipped: bool) -> None:
    path = _save(tmp_path / "x.pt", VIEWS, zipped)
    found = torch_load(path)
    assert list(found) == list(VIEWS)
    Tensor.realize(*[t for t in found.values() if not str(t.device).startswith("DISK")])  # all at once is quicker
    for name, expected in VIEWS.items():
        _assert_same(found[name], expected)


@FORMATS
def test_dtypes(tmp_path: Path, zipped: bool) -> None:
    saved = {str(dtype): (torch.arange(12) % 5).to(dtype) for dtype in DTYPES}
    saved |= {f"{name} part": t.reshape(3, 4)[:, 1:3] for name, t in saved.items()}
    found = torch_load(_save(tmp_path / "x.pt", saved, zipped))
    Tensor.realize(*[t for t in found.values() if not str(t.device).startswith("DISK")])
    for name, expected in saved.items():
        _assert_same(found[name], expected)
    assert found["torch.bfloat16"].dtype is dtypes.bfloat16
    assert found["torch.float8_e5m2"].dtype is dtypes.fp8e5m2
    assert found["torch.bool"].dtype is dtypes.bool


def test_contiguous_views_stay_in_the_file(tmp_path: Path) -> None:
    path = _save(tmp_path / "x.pt", VIEWS, True)
    found = torch_load(path)
    lazy = {name for name, t in found.items() if t.device == f"DISK:{path}"}
    assert lazy == {"whole", "scalar", "one element", "rows", "part of a row"}
    assert not any(t.uop.is_realized for name, t in found.items() if name not in lazy | {"empty"})
    before = path.read_bytes()
    (found["whole"].to(None) * 2).realize()
    assert path.read_bytes() == before


def test_from_memory(tmp_path: Path) -> None:
    for zipped in (True, False):
        data = _save(tmp_path / "x.pt", {"a": BASE, "b": BASE[1:, 2:]}, zipped).read_bytes()
        found = torch_load(Tensor(data))
        _assert_same(found["a"], BASE)
        _assert_same(found["b"], BASE[1:, 2:])


@FORMATS
def test_shared_storages_are_read_once(tmp_path: Path, zipped: bool) -> None:
    found = torch_load(_save(tmp_path / "x.pt", [BASE, BASE, BASE[2:4], BASE.T], zipped))
    assert found[0] is found[1], "the same object stays the same object"
    _assert_same(found[2], BASE[2:4])
    if zipped:
        assert found[2].uop.buffer.base is found[0].uop.buffer.base


def test_deflated_checkpoint(tmp_path: Path) -> None:
    plain = _save(tmp_path / "x.pt", {"a": BASE, "b": BASE.T}, True)
    packed = tmp_path / "y.pt"
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as dest:
        for name in source.namelist():
            dest.writestr(name, source.read(name))
    found = torch_load(packed)
    _assert_same(found["a"], BASE)
    _assert_same(found["b"], BASE.T)


@FORMATS
def test_state_of_a_model(tmp_path: Path, zipped: bool) -> None:
    reference = torch.nn.Linear(3, 4)
    model = nn.Linear(3, 4)
    load_state_dict(model, torch_load(_save(tmp_path / "x.pt", reference.state_dict(), zipped)), verbose=False)
    _assert_same(model.weight, reference.weight)
    _assert_same(model.bias, reference.bias)
    with Context(DEBUG=0):
        x = np.ones((2, 3), np.float32)
        np.testing.assert_allclose(model(Tensor(x)).numpy(), reference(torch.tensor(x)).detach().numpy(), rtol=1e-5)


# ---- other objects


@FORMATS
def test_plain_objects(tmp_path: Path, zipped: bool) -> None:
    saved = {
        "ordered": collections.OrderedDict(a=1, b=[2.5, None, True]),
        "default": collections.defaultdict(list, {"x": [1]}),
        "counter": collections.Counter("aab"),
        "set": {1, 2},
        "frozen": frozenset({"a"}),
        "complex": 1 + 2j,
        "slice": slice(1, 5, 2),
        "bytes": b"\x00\xff",
        "none": b"",
        "array of bytes": bytearray(b"xyz"),
        "big": 2**100,
        "text": "ü",
        "size": torch.Size([1, 2]),
        "numpy": np.float64(3.25),
        "numpy int": np.int32(-7),
    }
    found = torch_load(
        _save(tmp_path / "x.pt", saved | {"dtype": torch.bfloat16, "device": torch.device("cpu")}, zipped)
    )
    assert found.pop("dtype") is dtypes.bfloat16
    assert found.pop("device") == "cpu"
    assert found == saved
    assert type(found["ordered"]) is collections.OrderedDict
    assert found["default"].default_factory is list
    assert type(found["numpy int"]) is np.int32


class _List(list):
    pass


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
@FORMATS
def test_unknown_classes_become_placeholders(tmp_path: Path, zipped: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    items = _List([1, 2])
    items.name = "n"
    saved = {"model": model, "args": argparse.Namespace(lr=0.5), "path": Path("/tmp/x"), "items": items}
    found = torch_load(_save(tmp_path / "x.pt", saved, zipped))
    assert repr(found["model"]) == "<placeholder of torch.nn.modules.container.Sequential>"
    assert found["args"].lr == 0.5
    assert found["path"].placeholder_args == ("/", "tmp", "x")
    assert list(found["items"]) == [1, 2]
    assert found["items"].name == "n"
    assert found["model"]._modules["1"].inplace is False
    _assert_same(found["model"]._modules["0"]._parameters["weight"], model[0].weight)
    assert "model._modules.0._parameters.bias" in get_state_dict(found)


OTHER_LAYOUTS = {
    "coo": (lambda: torch.eye(3).to_sparse(), r"a sparse tensor.*\.to_dense\(\)"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), r"a sparse tensor.*\.to_dense\(\)"),
    "bsr": (lambda: torch.eye(4).to_sparse_bsr((2, 2)), r"a sparse tensor.*\.to_dense\(\)"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), r"a nested tensor.*\.unbind\(\)"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        r"a nested tensor.*\.unbind\(\)",
    ),
    "meta": (lambda: torch.empty(3, device="meta"), "a meta tensor.*no values"),
    "conjugate": (lambda: torch.tensor([1 + 2j]).conj().imag, "lazy conjugate or sign"),
}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("name", OTHER_LAYOUTS)
@FORMATS
def test_tensors_that_do_not_exist_here_are_refused(tmp_path: Path, name: str, zipped: bool) -> None:
    make, message = OTHER_LAYOUTS[name]
    with pytest.raises(NotImplementedError, match=message):
        torch_load(_save(tmp_path / "x.pt", {"fine": torch.ones(2), "w": make()}, zipped))


# ---- the oldest format


def _old_tar(path: Path) -> Path:
    """Write what versions before 0.1.10 wrote: storages, tensors that view them, a pickle that refers to these."""
    numbers = np.arange(12, dtype=np.float32)
    dump = lambda obj: pickle.dumps(obj, protocol=2)  # noqa: E731
    storage = b"ctorch\nFloatStorage\n"
    # (key, location, type): the type is a global, so the tuple is written by hand.
    entry = b"\x80\x02(X\x01\x00\x00\x007X\x03\x00\x00\x00cpu" + storage + b"t."
    storages = dump(1) + entry + struct.pack("<q", 12) + numbers.tobytes() + dump([])
    tensors = dump(2)
    for key, size, stride, offset in ((1, (3, 4), (4, 1), 0), (2, (2, 3), (1, 4), 1)):
        tensors += b"\x80\x02(K" + bytes([key]) + b"X\x01\x00\x00\x007ctorch\nFloatTensor\nt."
        tensors += struct.pack("<i4x2q2qq", 2, *size, *stride, offset)
    # {"a": tensor 1, "b": tensor 2, "n": 5}
    text = b"\x80\x02}(U\x01aU\x011QU\x01bU\x012QU\x01nK\x05u."
    with tarfile.open(path, "w") as file:
        for name, data in (("sys_info", dump({})), ("storages", storages), ("tensors", tensors), ("pickle", text)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


def test_old_tar(tmp_path: Path) -> None:
    path = _old_tar(tmp_path / "x.tar")
    expected = torch.load(path, weights_only=False)  # torch still reads it, so the test's writer is right
    found = torch_load(path)
    assert found["n"] == expected["n"] == 5
    for name in "ab":
        _assert_same(found[name], expected[name])
    data = path.read_bytes()
    at = data.index(struct.pack("<q", 12) + struct.pack("<f", 0))
    with pytest.raises(
        pickle.UnpicklingError, match=r"declares 1152921504606846976 elements of .* are left: truncated\?"
    ):
        torch_load(Tensor(data[:at] + struct.pack("<q", 2**60) + data[at + 8 :]))


# ---- pickles that try to run something


class _Calls:
    def __init__(self, function: Any, *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.args


def _archive(path: Path, program: bytes, storages: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", program)
        for key, data in (storages or {}).items():
            file.writestr(f"x/data/{key}", data)
    return path


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (os.system, ("touch {}",)),
        (subprocess.Popen, (["touch", "{}"],)),
        (eval, ("open('{}', 'w')",)),
        (exec, ("open('{}', 'w')",)),
        (getattr, ("x", "upper")),
        (open, ("{}", "w")),
        (__import__, ("os",)),
        (pickle.loads, (b"N.",)),
        (map, (print, [1])),
    ],
)
def test_calls_are_refused(tmp_path: Path, function: Any, args: tuple, protocol: int) -> None:
    made = tmp_path / "made"
    filled = tuple(a.format(made) if isinstance(a, str) else a for a in args)
    filled = tuple([s.format(made) for s in a] if isinstance(a, list) and a[0] == "touch" else a for a in filled)
    program = pickle.dumps({"x": _Calls(function, *filled)}, protocol=protocol)
    for path in (_archive(tmp_path / "x.pt", program), _legacy(tmp_path / "y.pt", program)):
        with pytest.raises(pickle.UnpicklingError, match="is not allowed: it was refused, nothing has been run"):
            torch_load(path)
    assert not made.exists()


def _legacy(path: Path, program: bytes, rest: bytes = b"\x80\x02].") -> Path:
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    path.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in head) + program + rest)
    return path


@pytest.mark.parametrize(
    ("program", "message"),
    [
        # a dotted name under an innocent module is only the name of a placeholder, which runs nothing
        (b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c\x07echo hi\x85R.", None),
        (b"\x80\x02cbuiltins\nbytearray\nK\x05\x85R.", r"bytes\(\) of a int"),
        (b"\x80\x02cbuiltins\nbytes\n\x8a\x05\x00\x00\x00\x00\x10\x85R.", r"bytes\(\) of a int"),
        (b"\x80\x02cbuiltins\nstr\n]\x85R.", r"str\(\) of a list"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00ax\x02\x00\x00\x00", "no complete pickle"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.", "expected text and latin1"),
        (b"\x80\x02ccopyreg\n_reconstructor\ncbuiltins\nint\ncbuiltins\nobject\nN\x87R.", "class that is not loaded"),
        (b"\x80\x02\x82\x01.", "extension codes"),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "memo index 2147483647 at operation"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\x00\x00", "no complete pickle at byte 0"),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "no complete pickle at byte 0"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x05\x00\x00\x00_callK\x01sb.", "tries to change torch._utils"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x05\x00\x00\x00_callK\x01s\x86b.", "tries to change"),
        (b"\x80\x02ctorch\nFloatStorage\n}X\x06\x00\x00\x00_dtypeK\x01sb.", "damaged: '_StorageType' object has no"),
        (b"\x80\x02ctorch\nfloat32\nN}X\x04\x00\x00\x00nameK\x01s\x86b.", "damaged: dtypes.float cannot be changed"),
        (b"\x80\x02ccollections\nOrderedDict\nN}X\x06\x00\x00\x00updateK\x01s\x86b.", "damaged"),
        (b"\x80\x02K\x01Q.", "persistent id 1; expected a storage"),
        (b"\x80\x02K\x01K\x02R.", "damaged"),
        (b"", "no complete pickle"),
        (b"\x80\x02", "no complete pickle"),
        (b"garbage", "no complete pickle"),
    ],
)
def test_hostile_programs(tmp_path: Path, program: bytes, message: str | None) -> None:
    path = _archive(tmp_path / "x.pt", program)
    if message is None:
        assert repr(torch_load(path)) == "<placeholder of torch.os.system>"
        return
    with pytest.raises(pickle.UnpicklingError, match=message):
        torch_load(path)


def _tensor_program(offset: int, size: tuple, stride: tuple, numel: int = 4, kind: str = "FloatStorage") -> bytes:
    storage = f"ctorch\n{kind}\n".encode()
    out = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage" + storage
    out += b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + _plain(numel) + b"tQ"
    return out + _plain(offset) + _plain(size) + _plain(stride) + b"\x89NtR."


def _plain(obj: Any) -> bytes:
    return pickle.dumps(obj, protocol=2)[2:-1].replace(b"q\x00", b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, (4,), (1,)), "reaches element 4, but its storage has 4"),
        ((0, (2, 2), (2**40, 1)), "but its storage has 4"),
        ((-1, (2,), (1,)), "expected ints >= 0"),
        ((0, (2,), (-1,)), "expected ints >= 0"),
        ((0, (2, 2), (1,)), "expected ints >= 0"),
        ((0, (2**40, 2**40), (0, 0)), "has more than"),
        ((0, ("a",), (1,)), "expected ints >= 0"),
        ((0, (4,), (1,), 5), "storage '0' has 16 bytes, declared are 5 of"),
        ((0, (4,), (1,), -1), "storage with the key '0' and -1 elements"),
    ],
)
def test_hostile_tensors(tmp_path: Path, arguments: tuple, message: str) -> None:
    path = _archive(tmp_path / "x.pt", _tensor_program(*arguments), {"0": bytes(16)})
    with pytest.raises(pickle.UnpicklingError, match=message):
        torch_load(path)


def test_the_hostile_programs_differ_from_good_ones_only_there(tmp_path: Path) -> None:
    data = np.arange(4, dtype=np.float32).tobytes()
    found = torch_load(_archive(tmp_path / "x.pt", _tensor_program(1, (3,), (1,)), {"0": data}))
    assert found.to(None).tolist() == [1, 2, 3]
    huge = torch_load(_archive(tmp_path / "y.pt", _tensor_program(1, (2**40,), (0,)), {"0": data}))
    assert huge.shape == (2**40,), "an expanded view takes no memory"


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.zeros(2, dtype=torch.complex64), r"'ComplexFloatStorage' is not supported; .*view_as_real\(t\)"),
        (lambda: torch.zeros(2, dtype=torch.complex128), r"'ComplexDoubleStorage' is not supported; .*view_as_real"),
        *(
            (
                lambda d=d: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, d),
                r"Q.*Storage' is not supported; .*t.dequant",
            )
            for d in (torch.qint8, torch.quint8, torch.qint32)
        ),
    ],
)
def test_storages_without_a_dtype_here(tmp_path: Path, make: Any, message: str, zipped: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, on its own storages
        path = _save(tmp_path / "x.pt", make(), zipped)
    with pytest.raises(KeyError, match=message + ".*; known are DoubleStorage"):
        torch_load(path)


def test_a_storage_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match="there is no storage '0' in the archive"):
        torch_load(_archive(tmp_path / "y.pt", _tensor_program(0, (4,), (1,))))


def test_truncated_files(tmp_path: Path) -> None:
    errors = (pickle.UnpicklingError, zipfile.BadZipFile, tarfile.ReadError, ValueError)
    for zipped in (True, False):
        data = _save(tmp_path / "x.pt", {"a": BASE, "b": [BASE.T, 1]}, zipped).read_bytes()
        for length in {*range(40), *range(40, len(data), max(1, len(data) // 25)), len(data) - 1}:
            with pytest.raises(errors, match=r"torch_load|zip|truncated"):
                torch_load(Tensor(data[:length]) if length else Tensor.empty(0, dtype=dtypes.uint8))
    with pytest.raises(FileNotFoundError):
        torch_load(tmp_path / "absent.pt")
    with zipfile.ZipFile(_archive(tmp_path / "z.pt", b"N."), "a") as file:
        file.writestr("x/byteorder", b"big")
    with pytest.raises(ValueError, match="has the byte order b'big'; only little endian is supported"):
        torch_load(tmp_path / "z.pt")
