"""The Tensor itself: construction, reading, writing and aliasing, promotion, Python's protocols, errors."""

from __future__ import annotations

import copy
import gc
import inspect
import math
import pickle
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.helpers_timing import processor_seconds
from tinygrad import Context, Device, GlobalCounters, Tensor, UOp, Variable, dtypes
from tinygrad.dtype import DType, _to_np_dtype
from tinygrad.errors import ShapeError
from tinygrad.settings import TRAINING
from tinygrad.tensor import _apply_map_to_tensors, _fromnp, all_tensors, is_numpy_ndarray
from tinygrad.uop import Ops

# ---- construction --------------------------------------------------------------------------------------------------


def test_slots_and_registry() -> None:
    assert set(Tensor.__slots__) == {"uop", "is_param", "grad"}
    t = Tensor([1.0])
    assert (t.grad, t.is_param) == (None, True)
    assert any(ref() is t for ref in all_tensors)
    before = len(all_tensors)
    del t
    gc.collect()
    assert len(all_tensors) < before


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (None, dtypes.weakfloat, ()),
        (3, dtypes.weakint, ()),
        (3.5, dtypes.weakfloat, ()),
        (True, dtypes.bool, ()),
        ([1, 2], dtypes.int32, (2,)),
        ([1, 2.5], dtypes.float32, (2,)),
        ([[True], [False]], dtypes.bool, (2, 1)),
        ([], dtypes.float32, (0,)),
        ([[], []], dtypes.float32, (2, 0)),
        ((1, 2, 3), dtypes.int32, (3,)),
        (b"abc", dtypes.uint8, (3,)),
        ([2**40], dtypes.int64, (1,)),
        ([2**63], dtypes.uint64, (1,)),
        (np.zeros((2, 3), np.float64), dtypes.float64, (2, 3)),
        (np.array(3, np.int16), dtypes.int16, ()),
        (np.float32(2.5), dtypes.float32, ()),
        ([np.float32(1.5), 2], dtypes.float32, (2,)),
        ([np.ones(2, np.int64), np.zeros(2, np.int64)], dtypes.int64, (2, 2)),
    ],
)
def test_construction(data: object, dtype: object, shape: tuple) -> None:
    t = Tensor(data)
    assert t.dtype is dtype
    assert t.shape == shape
    wanted = 0.0 if data is None else list(data) if isinstance(data, bytes) else data
    np.testing.assert_array_equal(t.numpy(), np.array(wanted).reshape(shape))


def test_construction_with_dtype() -> None:
    assert Tensor([1.7, -1.7], dtype="int32").tolist() == [1, -1]
    assert Tensor([300, -1], dtype=dtypes.uint8).tolist() == [44, 255]
    assert Tensor(3, dtype=dtypes.half).dtype is dtypes.half
    assert Tensor(np.ones(2), dtype="float32").dtype is dtypes.float32
    assert Tensor(b"\x00\x00\x80\x3f", dtype=dtypes.float32).tolist() == [1.0]
    for dtype in (dtypes.half, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2):
        assert Tensor([1.5], dtype=dtype).item() == 1.5
    assert Tensor([1.0], requires_grad=False).is_param is False
    assert Tensor([1.0]).requires_grad_(False).requires_grad is False
    assert Tensor.ones(2, requires_grad=False).is_param is False


@pytest.mark.parametrize("like", [lambda t, **k: t.zeros_like(**k), lambda t, **k: t.full_like(7, **k)])
@pytest.mark.parametrize("weak", [Tensor(3), Tensor(2.5), Tensor([1]) + 1.5, Tensor([True]) + 1])
def test_like_a_weak_tensor_needs_a_dtype(like: Any, weak: Tensor) -> None:
    with pytest.raises(RuntimeError, match="weak dtype, which has no storage"):
        like(weak)
    assert like(weak, dtype="int8").dtype is dtypes.int8
    assert like(weak, buffer=False).dtype is weak.dtype


def test_construction_errors() -> None:
    with pytest.raises(ValueError, match="ragged"):
        Tensor([[1], [1, 2]])
    for wrong in ("text", {}, object(), [Tensor([1])], ["a"], Tensor([1])):
        with pytest.raises(RuntimeError, match="could not infer dtype"):
            Tensor(wrong)
    with pytest.raises(AttributeError, match="not the name of a dtype"):
        Tensor([1], dtype="float31")
    with pytest.raises(FileNotFoundError):
        Tensor(Path("/no/such/file"))
    with pytest.raises(TypeError):
        Tensor([1], nonsense=1)
    with pytest.raises(OverflowError):
        Tensor([2**64])
    with pytest.raises(RuntimeError, match="weak dtype"):
        Tensor([1], dtype=dtypes.weakint)


def test_numpy_memory_is_shared_until_moved() -> None:
    array = np.array([1.0, 2.0], np.float32)
    lazy, moved = Tensor(array), Tensor(array).realize()
    array[0] = 7
    assert lazy.tolist() == [7.0, 2.0]
    assert moved.tolist() == [1.0, 2.0]
    assert is_numpy_ndarray(array)
    assert not is_numpy_ndarray([1])
    assert _fromnp(array).is_realized
    read = moved.numpy()
    read[0] = 9
    assert moved.tolist() == [1.0, 2.0]


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(np.arange(4, dtype=np.int32).tobytes())
    t = Tensor(path, dtype=dtypes.int32)
    assert t.device == f"DISK:{path.resolve()}"
    assert t.to("CPU").tolist() == [0, 1, 2, 3]
    assert t[1:3].to(None).tolist() == [1, 2]
    assert Tensor(path, device="CPU").shape == (16,)
    t[1:2].assign([9])
    assert np.frombuffer(path.read_bytes(), np.int32).tolist() == [0, 9, 2, 3]


def test_blob() -> None:
    array = np.arange(6, dtype=np.float32)
    t = Tensor.from_blob(array.ctypes.data, (2, 3), dtype=dtypes.float32, device="CPU")
    assert (t + 1).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    t.assign(Tensor.zeros(2, 3)).realize()
    assert array.tolist() == [0.0] * 6


# ---- properties and Python's protocols -----------------------------------------------------------------------------


def test_properties() -> None:
    t = Tensor.zeros(2, 3)
    assert (t.ndim, t.numel(), t.size(), t.size(-1), t.nbytes(), t.element_size()) == (2, 6, (2, 3), 3, 24, 4)
    assert t.is_floating_point()
    assert not Tensor([1]).is_floating_point()
    assert len(t) == 2
    assert [row.tolist() for row in Tensor([[1], [2]])] == [[1], [2]]
    assert list(Tensor(1.0)) == []
    t.name = "attributes may be set"
    assert t.name


def test_protocol_errors() -> None:
    t = Tensor([1.0])
    for misuse in (lambda: bool(t), lambda: 1 in t, lambda: int(t), lambda: float(t), lambda: len(Tensor(1.0))):
        with pytest.raises(TypeError):
            misuse()
    with pytest.raises(TypeError, match="deleting"):
        del t[0]
    with pytest.raises(RuntimeError, match="weak"):
        Tensor(3).element_size()
    with pytest.raises(AssertionError, match="must have one element"):
        Tensor([1, 2]).item()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint64", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_item(shape: tuple[int, ...], dtype: str) -> None:
    value = Tensor.ones(shape, dtype=dtype).contiguous().realize().item()
    assert type(value) is {"b": bool, "f": float}.get(dtype[0] if dtype != "bfloat16" else "f", int)
    assert value == 1


@pytest.mark.parametrize("shape", [(0,), (2,), (1, 3), (1, 0)])
def test_item_of_another_number_of_elements(shape: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError, match="must have one element"):
        Tensor.zeros(shape).item()


def test_hash_is_identity() -> None:
    a, b = Tensor([1]), Tensor([1])
    assert len({a, b, a}) == 2
    assert (a == b).tolist() == [True]


def test_repr() -> None:
    t = Tensor([[1.0, 2.0]])
    assert repr(t) == "<Tensor shape=(1, 2) dtype=float32 device=CPU>"
    assert t.uop.base.op is not Ops.BUFFER, "repr never computes"
    t.realize()
    assert repr(t) == "<Tensor shape=(1, 2) dtype=float32 device=CPU\n[[1. 2.]]>"


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, *dtypes.fp8s], ids=str)
def test_repr_of_numbers_that_numpy_has_no_dtype_for(dtype: DType) -> None:
    t = Tensor([[1.0, -0.5], [240.0, 0.0]], dtype=dtype).realize()
    before = GlobalCounters.kernel_count
    text = repr(t)
    assert GlobalCounters.kernel_count == before
    assert text.endswith(f"device=CPU\n{t.numpy()}>")
    assert repr(Tensor([], dtype=dtype).realize()).startswith("<Tensor shape=(0,)")


def test_pickle_and_deepcopy() -> None:
    t = (Tensor([1.0, 2.0]) + 1).realize()
    assert pickle.loads(pickle.dumps(t)).tolist() == [2.0, 3.0]


def test_numpy_operands() -> None:
    t = Tensor([1.0, 2.0])
    array = np.array([10.0, 20.0], np.float32)
    for result in (t + array, array + t, array * t, np.float32(3) * t, t * np.int64(3), array @ t, array > t):
        assert isinstance(result, Tensor)
    assert (array - t).tolist() == [9.0, 18.0]
    assert (np.float64(3) * t).dtype is dtypes.float32
    with pytest.raises(TypeError):
        t + [1, 2]  # noqa: RUF005  what is tested is the operator
    with pytest.raises(RuntimeError):
        t + "1"


# ---- dtypes --------------------------------------------------------------------------------------------------------


def test_promotion() -> None:
    i, f, h = Tensor([1], dtype="int32"), Tensor([1.0]), Tensor([1.0], dtype="float16")
    assert (i + 1).dtype is dtypes.int32
    assert (i + 1.5).dtype is dtypes.weakfloat
    assert (i + 1.5).tolist() == [2.5]
    assert (h + 1.0).dtype is dtypes.half
    assert (h + i).dtype is dtypes.half
    assert (f + h).dtype is dtypes.float32
    assert (Tensor([True]) + 1).dtype is dtypes.weakint
    assert (Tensor([1], dtype="uint8") + Tensor([1], dtype="int8")).dtype is dtypes.int16
    assert (Tensor([1], dtype="int64") + Tensor([1], dtype="uint64")).dtype is dtypes.float64
    assert (i + 2**40).dtype is dtypes.int64
    assert (i / 2).dtype is dtypes.float32
    assert (Tensor([1]) > 0).where(1, 0).dtype is dtypes.weakint


def test_casts() -> None:
    t = Tensor([1.5, -2.5])
    assert [getattr(t, n)().dtype for n in ("half", "double", "int", "long", "short", "bool", "bfloat16")] == [
        dtypes.half, dtypes.double, dtypes.int32, dtypes.int64, dtypes.int16, dtypes.bool, dtypes.bfloat16,
    ]  # fmt: skip
    assert t.cast("float32") is t
    assert t.int().tolist() == [1, -2]
    assert t.bool().tolist() == [True, True]
    assert Tensor([1.0]).bitcast(dtypes.int32).tolist() == [0x3F800000]
    assert Tensor([1, 2, 3, 4], dtype="uint8").bitcast(dtypes.uint16).shape == (2,)
    with pytest.raises(RuntimeError, match="bitcast"):
        Tensor([1, 2, 3], dtype="uint8").bitcast(dtypes.uint16)
    with Context(DEFAULT_FLOAT="float16"):
        assert Tensor([1.0]).dtype is dtypes.half
    assert _to_np_dtype(dtypes.float32) is np.float32


# ---- realizing and reading -----------------------------------------------------------------------------------------


def test_realize_points_everybody_at_the_buffer() -> None:
    a = Tensor([1.0, 2.0]) * 2
    view, consumer = a[:1], a + 1
    a.realize()
    assert a.uop.base.op is Ops.BUFFER
    assert view.uop.base is a.uop.base
    assert a.uop.base in consumer.uop.toposort()
    GlobalCounters.reset()
    a.realize()
    assert GlobalCounters.kernel_count == 0


def test_realize_together() -> None:
    a, b = Tensor([1.0]) + 1, Tensor([2.0]) + 1
    assert Tensor.realize(a, b) is a
    assert b.uop.is_realized


def test_virtual_tensors_are_not_realized() -> None:
    for t in (Tensor(3), Tensor.arange(4), Tensor([1]) + 0.5):
        assert t.realize() is t
        assert not t.uop.is_realized
    assert Tensor.arange(4).clone().realize().uop.is_realized
    assert Tensor.arange(4).to("CPU").device is None
    with pytest.raises(RuntimeError, match="cannot realize a weak dtype"):
        (Tensor([1]) + 0.5).schedule_linear()


def test_readers() -> None:
    t = Tensor([[1, 2], [3, 4]])
    assert t.data().shape == (2, 2)
    assert t.data().format == "i"
    assert t.T.tolist() == [[1, 3], [2, 4]]
    assert t.realize().T.numpy().tolist() == [[1, 3], [2, 4]]
    assert t[1, 0].item() == 3
    assert Tensor(2.5).tolist() == 2.5
    assert Tensor.zeros(2, 0).tolist() == [[], []]
    assert Tensor.zeros(0, 3).numpy().shape == (0, 3)
    assert Tensor([1.5], dtype="bfloat16").numpy().dtype == np.float32
    assert np.array(t).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(AssertionError, match="no memory format"):
        Tensor([1.0], dtype="bfloat16").data()


def test_symbolic_shape() -> None:
    v = Variable("v", 1, 10).bind(3)
    t = Tensor.arange(10).clone()
    assert t[:v].sum().item() == 3
    with pytest.raises(AssertionError, match="symbolic"):
        t[:v].numpy()
    assert Tensor(v).item() == 3
    assert (t * v)[1].item() == 3


def test_schedule_linear() -> None:
    t = Tensor([1.0, 2.0]).realize() + 1
    linear = t.schedule_linear()
    assert linear.op is Ops.LINEAR
    assert all(call.op is Ops.CALL for call in linear.src)
    assert t.uop.base.op is Ops.BUFFER


# ---- writing -------------------------------------------------------------------------------------------------------


def test_assign_reaches_views_and_leaves_copies() -> None:
    base = Tensor([1.0, 2.0, 3.0]).realize()
    view, copy, double = base[1:], base.clone(), base * 2
    double.realize()
    base.assign([4.0, 5.0, 6.0])
    assert view.tolist() == [5.0, 6.0]
    assert copy.tolist() == [1.0, 2.0, 3.0]
    assert double.tolist() == [2.0, 4.0, 6.0]
    view += 10
    assert base.tolist() == [4.0, 15.0, 16.0]
    assert base.reshape(3, 1).tolist() == [[4.0], [15.0], [16.0]]


def test_assign_keeps_the_storage() -> None:
    base = Tensor([1.0, 2.0]).realize()
    buffer = base.uop.base
    base.assign(base + 1).realize()
    assert base.uop.base is buffer
    assert base.tolist() == [2.0, 3.0]


def test_equal_expressions_are_two_storages() -> None:
    p = Tensor([1.0, 2.0])
    m, v = p * 0, p * 0
    assert m.uop is v.uop
    m.assign(Tensor([5.0, 5.0]))
    assert v.tolist() == [0.0, 0.0]
    a, b = Tensor.zeros(2), Tensor.zeros(2)
    a += 1
    assert (a.tolist(), b.tolist()) == ([1.0, 1.0], [0.0, 0.0])


def test_assign_does_not_join_two_tensors() -> None:
    a, b = Tensor([1.0]).realize(), Tensor([2.0]) * 1
    b.assign(a)
    b += 1
    assert (a.tolist(), b.tolist()) == ([1.0], [2.0])


def test_assign_values() -> None:
    t = Tensor.zeros(2, 2, dtype="int32")
    assert t.assign(3).tolist() == [[3, 3], [3, 3]]
    assert t.assign([1, 2]).tolist() == [[1, 2], [1, 2]]
    assert t.assign(np.array([[5], [6]], np.int32)).tolist() == [[5, 5], [6, 6]]
    assert t.assign(t) is t
    with pytest.raises(ValueError, match="cannot broadcast"):
        t.assign([1, 2, 3])
    with pytest.raises(RuntimeError, match="assign dtype mismatch"):
        t.assign(Tensor([1.0, 2.0]))
    with pytest.raises(RuntimeError, match="assign dtype mismatch"):
        t += 1.5
    with pytest.raises(RuntimeError, match="assign device mismatch"):
        t.assign(Tensor([[1, 2], [3, 4]], device="PYTHON"))


def test_in_place_operators() -> None:
    t = Tensor([8, 9])
    alias = t
    t += 1
    t -= 1
    t *= 2
    t //= 3
    t %= 4
    t <<= 2
    t >>= 1
    t |= 1
    t &= 7
    t ^= 2
    assert t is alias
    x = np.array([8, 9])
    x += 1
    x -= 1
    x *= 2
    x //= 3
    x %= 4
    x <<= 2
    x >>= 1
    x |= 1
    x &= 7
    x ^= 2
    assert t.tolist() == x.tolist()
    f = Tensor([4.0])
    f /= 2
    f **= 3
    f @= Tensor([[2.0]])
    assert f.tolist() == [16.0]


def test_assign_to_constants_and_ranges_makes_storage() -> None:
    t = Tensor.arange(3)
    t += 1
    assert t.tolist() == [1, 2, 3]
    assert t.device == Device.DEFAULT
    c = Tensor(2.0)
    c.assign(3.0)
    assert c.item() == 3.0


def test_chained_writes_are_ordered() -> None:
    t = Tensor([1.0, 2.0]).realize()
    for _ in range(3):
        t.assign(t * 2)
    before = t + 0
    t.assign(t + 1)
    assert before.tolist() == [8.0, 16.0]
    assert t.tolist() == [9.0, 17.0]


def test_swap_through_assign() -> None:
    a, b = Tensor([1.0]).realize(), Tensor([2.0]).realize()
    old = a.clone()
    a.assign(b)
    b.assign(old)
    Tensor.realize(a, b)
    assert (a.item(), b.item()) == (2.0, 1.0)


def test_replace() -> None:
    t = Tensor([1.0, 2.0])
    assert t.replace(Tensor([3, 4])) is t
    assert t.dtype is dtypes.int32
    with pytest.raises(AssertionError, match="shape"):
        t.replace(Tensor([1]))


def test_contiguous_clone_to() -> None:
    t = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    assert t.contiguous() is t
    assert t.T.contiguous().realize().uop.contiguous_view() is not None
    t.grad = Tensor([[1.0, 1.0], [1.0, 1.0]])
    copy = t.is_param_(False).clone()
    assert copy.grad.tolist() == [[1.0, 1.0]] * 2
    assert copy.is_param is False
    moved = t.to("PYTHON")
    assert moved.device == "PYTHON"
    assert moved.tolist() == t.tolist()
    assert t.to("CPU") is t
    assert t.shard("CPU") is t
    with pytest.raises(RuntimeError, match="weak"):
        (Tensor([1]) + 0.5).to("PYTHON")


def test_apply_map() -> None:
    a = Tensor([1.0]).realize()
    b = a + 1
    _apply_map_to_tensors({b.uop: Tensor([9.0]).uop}, name="test")
    assert b.tolist() == [9.0]


def test_many_live_tensors_do_not_slow_down_a_write() -> None:
    keep = [Tensor([1.0]) + i for i in range(5000)]
    targets = [Tensor.zeros(2) for _ in range(50)]

    def write() -> None:
        for t in targets:
            t.assign(t + 1)

    assert processor_seconds(write) < 1.0
    assert len(keep) == 5000


# ---- modes ---------------------------------------------------------------------------------------------------------


def test_training_flag() -> None:
    assert Tensor.training is False
    Tensor.training = True
    assert TRAINING.value == 1
    Tensor.training = False
    with Tensor.train():
        assert Tensor.training is True
        with Tensor.train(False):
            assert Tensor.training is False
    assert Tensor.training is False

    @Tensor.train()
    def step() -> bool:
        return Tensor.training

    assert step() is True


def test_no_grad() -> None:
    @Tensor.no_grad()
    def f(x: Tensor) -> Tensor:
        return x * 2

    with Tensor.no_grad():
        assert f(Tensor([1.0])).tolist() == [2.0]


def test_threads() -> None:
    results: dict[int, float] = {}

    def work(i: int) -> None:
        t = Tensor.full((4, 4), float(i)).contiguous()
        for _ in range(3):
            t = (t @ Tensor.eye(4) + 1).realize()
        results[i] = t.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: 16.0 * (i + 3) for i in range(4)}


# ---- calls ---------------------------------------------------------------------------------------------------------


def test_callify() -> None:
    a = Tensor([1.0, 2.0]).realize()
    b = (a + 1) * 2
    assert b.callify() is b
    assert b.uop.op is Ops.GETTUPLE
    assert b.tolist() == [4.0, 6.0]


def test_apply_uop() -> None:
    a, b = Tensor([1.0]), Tensor([2.0])
    c = a._apply_uop(UOp.add, b)
    assert (c.grad, c.is_param, c.tolist()) == (None, True, [3.0])


# ---- errors --------------------------------------------------------------------------------------------------------


def test_shape_errors_name_operation_operands_and_line() -> None:
    with pytest.raises(ShapeError) as caught:
        Tensor.zeros(2, 3) + Tensor.zeros(4, 3)
    text = str(caught.value)
    assert text.splitlines()[0] == "add: shapes (2, 3) and (4, 3) do not broadcast"
    assert "float32   CPU" in text
    assert "test_tensor.py:" in text
    assert "Tensor.zeros(2, 3) + Tensor.zeros(4, 3)" in text


@pytest.mark.parametrize(
    ("action", "error", "match"),
    [
        (lambda t: t.reshape(5), ValueError, "reshape: .* elements"),
        (lambda t: t.reshape(-1, -1), RuntimeError, "only one size can be inferred"),
        (lambda t: t.reshape(-1, 4), ValueError, "cannot infer"),
        (lambda t: t.expand(3, 3), ValueError, "cannot broadcast"),
        (lambda t: t.permute(0, 0), RuntimeError, "not a permutation"),
        (lambda t: t.permute(0, 2), IndexError, "out of range"),
        (lambda t: t.transpose(0, 5), IndexError, "out of range"),
        (lambda t: t.flip(0, 0), RuntimeError, "multiple times"),
        (lambda t: t.flip(True), AssertionError, "ints"),
        (lambda t: t.shrink(((0, 9), None)), ValueError, "outside the shape"),
        (lambda t: t.pad((1, 2, 3)), ValueError, "flat padding"),
        (lambda t: t.pad((1, 1), mode="nonsense"), NotImplementedError, "mode"),
        (lambda t: t.pad((5, 0), mode="reflect"), ValueError, "too large"),
        (lambda t: t.squeeze(7), IndexError, "out of range"),
        (lambda t: t.split([1, 5]), AssertionError, "sum to"),
        (lambda t: t.chunk(0), AssertionError, "positive"),
        (lambda t: t.repeat(2), ValueError, "repeats for"),
        (lambda t: t.diag(), ValueError, "1 dim"),
        (lambda t: t.diagonal(0, 1, 1), RuntimeError, "two different dims"),
        (lambda t: t.unfold(0, 5, 1), RuntimeError, "size 5"),
        (lambda t: t.sum(4), IndexError, "out of range"),
        (lambda t: t.sum((0, 0)), RuntimeError, "multiple times"),
        (lambda t: t.where(1, 2), RuntimeError, "condition must be bool"),
        (lambda t: t.clamp(), RuntimeError, "at least one"),
        (lambda t: t & 1, RuntimeError, "must be int or bool"),
        (lambda t: t.div(2, rounding_mode="up"), RuntimeError, "rounding_mode"),
        (lambda t: t.gelu("exact"), RuntimeError, "approximate"),
        (lambda t: t.meshgrid(t, indexing="yx"), RuntimeError, "indexing"),
    ],
)  # fmt: skip
def test_errors(action: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        action(Tensor.zeros(2, 3))


def test_registry_does_not_keep_tensors_alive() -> None:
    t = Tensor([1.0, 5.0]).realize()
    ref = weakref.ref(t)
    view = t[0:1]
    view.assign([2.0])
    del t
    gc.collect()
    assert ref() is None
    assert view.tolist() == [2.0]
    assert math.isfinite(view.item())


@pytest.mark.parametrize("remake", [copy.copy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copied", "unpickled"])
def test_a_tensor_made_anew_shows_what_is_written_to_it(remake: Callable[[Tensor], Tensor]) -> None:
    t = Tensor([1.0, 2.0]).is_param_(False).realize()
    again = remake(t)
    again.assign(again + 1).realize()
    assert again.tolist() == [2.0, 3.0]
    assert not again.is_param


@pytest.mark.parametrize(
    ("shape", "new"), [((3, 0), (0,)), ((0, 3), (3, 0)), ((0,), (2, 0, 4)), ((2, 0, 4), (0, 2)), ((0, 1), (0, 5))]
)
def test_paddings_of_reshaped_nothing(shape: tuple[int, ...], new: tuple[int, ...]) -> None:
    x = Tensor(np.zeros(shape, np.float32)).clone()
    padded = (x.reshape(new) * 2).exp().pad([(1, 1)] * len(new), value=3.0)
    np.testing.assert_array_equal(padded.numpy(), np.full([n + 2 for n in new], 3.0))
    (x.reshape(new) * x.reshape(new).exp()).sum().backward()
    assert x.grad is not None
    assert x.grad.numpy().shape == shape


def test_gradient_of_elements_of_which_none_is_used() -> None:
    x = Tensor([1.0, 2.0, 3.0]).clone()
    nothing = x.unsqueeze(1)[:, :0].flatten()
    (nothing * (nothing.detach() + 1).cumsum(0)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


MEMBERS: dict[str, Callable[[], Tensor]] = {
    "number": lambda: Tensor(1.0),
    "vector": lambda: Tensor([1.0]),
    "matrix": lambda: Tensor.ones(2, 3),
    "nothing": lambda: Tensor.empty(0),
    "bools": lambda: Tensor([True]),
    "weak": lambda: Tensor(1) + 1,
    "without device": lambda: Tensor.arange(3),
    "split": lambda: Tensor.ones(4).shard(("CPU:0", "CPU:1"), 0),
    "symbolic": lambda: Tensor.ones(8)[: Variable("v", 1, 8).bind(3)],
}


@pytest.mark.parametrize("name", MEMBERS)
def test_looking_at_all_members_raises_nothing(name: str) -> None:
    tensor = MEMBERS[name]()
    members = dict(inspect.getmembers(tensor))
    assert members["shape"] == tensor.shape
    assert [key in members for key in ("T", "mT", "H")] == [tensor.ndim > 1, tensor.ndim != 1, tensor.ndim != 1]


def test_a_vector_has_no_transpose() -> None:
    assert not hasattr(Tensor([1.0]), "mT")
    for error in (ShapeError, IndexError, AttributeError):
        with pytest.raises(error, match="mT: 1 dim"):
            _ = Tensor([1.0]).mT
        with pytest.raises(error, match="transpose: dim 1 is out of range for 1 dims"):
            _ = Tensor([1.0]).T
