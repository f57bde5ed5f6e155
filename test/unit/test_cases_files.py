"""Files, threads and processes that users tripped over, each with others of its kind."""

from __future__ import annotations

import json
import os
import pickle
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Tensor, dtypes
from tinygrad.llm.gguf import gguf_load
from tinygrad.nn.state import safe_load, safe_save, torch_load

RNG = np.random.default_rng(0)

# ---- saving and loading --------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "the same": lambda loaded: loaded,
    "another order": lambda loaded: dict(reversed(loaded.items())),
    "computed from what is in the file": lambda loaded: {k: t.to(None) * 2 for k, t in loaded.items()},
    "one of them": lambda loaded: {"b": loaded["b"]},
    "longer": lambda loaded: {"x": Tensor.arange(1000).clone(), **loaded},
    "a view": lambda loaded: {"a": loaded["a"].to(None)[1:, ::2]},
}


@pytest.mark.parametrize("name", CHANGES)
def test_saving_onto_the_file_just_loaded(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.safetensors"
    values = {"a": RNG.normal(size=(5, 7)).astype(np.float32), "b": np.arange(11)}
    safe_save({k: Tensor(v) for k, v in values.items()}, path)
    loaded = safe_load(path)
    made = CHANGES[name](loaded)
    expected = {k: t.to(None).numpy() for k, t in CHANGES[name](safe_load(path)).items()}
    safe_save(made, path)
    again = safe_load(path)
    assert sorted(again) == sorted(expected)
    for k, v in expected.items():
        np.testing.assert_array_equal(again[k].to(None).numpy(), v)
    for k, v in values.items():  # what was loaded before still shows what it showed
        np.testing.assert_array_equal(loaded[k].to(None).numpy(), v)


USES: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda t: t * 2,
    "sum": lambda t: t.sum(),
    "view": lambda t: t[1:].flip(0) + 1,
    "bits": lambda t: t.bitcast(dtypes.int32) + 1,
}


@pytest.mark.parametrize("name", USES)
def test_computing_with_a_file_leaves_it_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    values = RNG.normal(size=6).astype(np.float32)
    path.write_bytes(values.tobytes())
    t = Tensor(path, dtype=dtypes.float32)
    with pytest.raises(RuntimeError, match="DISK"):  # files compute nothing
        USES[name](t).realize()
    assert path.read_bytes() == values.tobytes()
    expected = USES[name](Tensor(values)).numpy()
    np.testing.assert_allclose(USES[name](t.to(None)).realize().numpy(), expected, rtol=1e-6)
    assert path.read_bytes() == values.tobytes()


@pytest.mark.parametrize("shape", [(0, 3), (0,), (2, 0, 4), ()])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.half, dtypes.int8, dtypes.bool])
def test_small_shapes_round_trip(tmp_path: Path, shape: tuple[int, ...], dtype: Any) -> None:
    path = tmp_path / "t"
    safe_save({"e": Tensor.ones(*shape, dtype=dtype).contiguous(), "x": Tensor([1.0])}, path)
    loaded = safe_load(path)
    assert (loaded["e"].shape, loaded["e"].dtype, loaded["x"].tolist()) == (shape, dtype, [1.0])
    np.testing.assert_array_equal(loaded["e"].to(None).numpy(), np.ones(shape, bool))


BASE = torch.arange(42, dtype=torch.float32).reshape(6, 7)
VIEWS = {
    "corner": BASE[1:, 2:],
    "permuted": BASE.reshape(2, 3, 7).permute(2, 0, 1),
    "expanded": BASE[:, :1].expand(6, 5),
    "strided": BASE[::2, 1::3],
    "of one storage": torch.stack([BASE, BASE + 1])[1, 2:4],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("zipped", [True, False])
def test_views_in_torch_files(tmp_path: Path, name: str, zipped: bool) -> None:
    path = tmp_path / "x.pt"
    torch.save({"v": VIEWS[name], "base": BASE}, path, _use_new_zipfile_serialization=zipped)
    loaded = torch_load(path)
    np.testing.assert_array_equal(loaded["v"].to(None).numpy(), VIEWS[name].numpy())
    np.testing.assert_array_equal(loaded["base"].to(None).numpy(), BASE.numpy())


class _Calls:
    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


FORBIDDEN: dict[str, Callable[[Path], _Calls]] = {
    "os.system": lambda mark: _Calls(os.system, f"touch {mark}"),
    "eval": lambda mark: _Calls(eval, f"open({str(mark)!r}, 'w')"),
    "open": lambda mark: _Calls(open, str(mark), "w"),
    "os.mkdir": lambda mark: _Calls(os.mkdir, str(mark)),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_pickles_that_run_something_are_refused(tmp_path: Path, name: str) -> None:
    mark, path = tmp_path / "ran", tmp_path / "x.pt"
    torch.save({"w": torch.ones(2), "x": FORBIDDEN[name](mark)}, path)
    with pytest.raises(pickle.UnpicklingError):
        torch_load(path)
    assert not mark.exists()


def _safetensors(header: Any, data: bytes = bytes(16), length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(begin: int, end: int, shape: Any = (2,)) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


DAMAGED = {
    "empty": b"",
    "cut in the length": bytes(4),
    "cut in the header": _safetensors({"a": _entry(0, 8)})[:20],
    "cut in the data": _safetensors({"a": _entry(0, 8)}, bytes(4)),
    "header of 2**60 bytes": _safetensors({"a": _entry(0, 8)}, length=2**60),
    "header of 2**63 bytes": _safetensors({"a": _entry(0, 8)}, length=2**63),
    "overlapping": _safetensors({"a": _entry(0, 8), "b": _entry(4, 12)}),
    "one inside of the other": _safetensors({"a": _entry(0, 16, (4,)), "b": _entry(4, 8, (1,))}),
    "backwards": _safetensors({"a": _entry(8, 0)}),
    "beyond the file": _safetensors({"a": _entry(2**40, 2**40 + 8)}),
    "another size than the shape": _safetensors({"a": _entry(0, 8, (2**40, 2**40))}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_safetensors(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match=str(path)):
        safe_load(path)


GGUF = {
    "cut in the header": b"GGUF" + struct.pack("<IQ", 3, 1),
    "2**60 tensors": b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
    "2**60 entries": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
    "a key of 2**60 bytes": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60) + bytes(50),
    "another magic": b"GGML" + bytes(50),
}


@pytest.mark.parametrize("name", GGUF)
def test_damaged_gguf(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.gguf"
    path.write_bytes(GGUF[name])
    with pytest.raises(ValueError, match=r"GGUF|gguf"):
        gguf_load(path)


# ---- threads and processes -----------------------------------------------------------------------------------------

WORK: dict[str, Callable[[int], tuple[Tensor, np.ndarray]]] = {}


def work(function: Callable[[int], tuple[Tensor, np.ndarray]]) -> Callable[[int], tuple[Tensor, np.ndarray]]:
    WORK[function.__name__] = function
    return function


@work
def matmuls(k: int) -> tuple[Tensor, np.ndarray]:
    a = np.random.default_rng(k).normal(size=(8 + k % 3, 9)).astype(np.float32)
    return Tensor(a) @ Tensor(a).T, a @ a.T


@work
def gradients(k: int) -> tuple[Tensor, np.ndarray]:
    x = Tensor([1.0 + k, 2.0])
    (x * x * x).sum().backward()
    assert x.grad is not None
    return x.grad, 3 * np.array([1.0 + k, 2.0], np.float32) ** 2


@work
def writes(k: int) -> tuple[Tensor, np.ndarray]:
    t, expected = Tensor.zeros(4, 4).contiguous(), np.zeros((4, 4), np.float32)
    for i in range(4):
        t[i, k % 4] = i + k
        expected[i, k % 4] = i + k
    return t, expected


@pytest.mark.parametrize("name", WORK)
def test_four_threads_and_the_main_one_after_them(name: str) -> None:
    failed: list[BaseException] = []

    def run(thread: int) -> None:
        try:
            for k in range(5):
                got, expected = WORK[name](thread * 5 + k)
                np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed
    got, expected = WORK[name](1)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", WORK)
def test_a_forked_child_computes(name: str) -> None:
    WORK[name](1)[0].realize()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # An expression that the parent has not compiled.
            got, expected = WORK[name](2)
            code = 0 if np.allclose((got * (1.25 + os.getpid())).numpy(), expected * (1.25 + os.getpid())) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    got, expected = WORK[name](3)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)
