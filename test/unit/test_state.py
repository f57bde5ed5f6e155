"""State dicts of objects, and safetensors files, good and hostile."""

import collections
import dataclasses
import functools
import json
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.nn.state import (
    get_parameters,
    get_state_dict,
    inverse_safe_dtypes,
    load_state_dict,
    safe_dtypes,
    safe_load,
    safe_load_metadata,
    safe_save,
)


class Named(NamedTuple):
    first: Tensor
    second: Tensor


class Everything:
    def __init__(self) -> None:
        self.layer = nn.Linear(2, 3, bias=False)
        self.list = [Tensor([1.0]), (Tensor([2.0]), 5, "text", None)]
        self.dict = {"a": Tensor([3.0]), 7: Tensor([4.0])}
        self.ordered = collections.OrderedDict(z=Tensor([5.0]), b=Tensor([6.0]))
        self.named = Named(Tensor([7.0]), Tensor([8.0]))
        self.kind, self.module, self.array = nn.Linear, np, np.ones(3)


def test_state_dict_of_everything() -> None:
    expected = [
        "layer.weight", "list.0", "list.1.0", "dict.a", "dict.7", "ordered.z", "ordered.b", "named.first",
        "named.second",
    ]  # fmt: skip
    model = Everything()
    assert list(get_state_dict(model)) == expected
    assert list(get_state_dict(model, "model")) == [f"model.{name}" for name in expected]
    assert list(get_state_dict(model, "model.")) == [f"model.{name}" for name in expected]
    assert [t.shape for t in get_parameters(model)] == [(3, 2)] + [(1,)] * 8


def test_state_dict_of_a_tensor() -> None:
    t = Tensor([1.0])
    assert get_state_dict(t)[""] is t
    assert list(get_state_dict(t, "a.")) == ["a"]


def test_state_dict_of_other_types() -> None:
    assert get_state_dict({"a": 1, "b": 2.0, "c": Tensor([1.0])}, tensor_type=float) == {"b": 2.0}


def test_one_tensor_on_two_ways_has_two_names() -> None:
    shared = Tensor([1.0])
    assert list(get_state_dict({"a": shared, "b": [shared]})) == ["a", "b.0"]


def test_an_object_that_holds_itself() -> None:
    model = Everything()
    model.parent = {"model": model, "more": Tensor([9.0])}
    assert "parent.more" in get_state_dict(model)
    assert len(get_state_dict(model)) == 10


def test_a_chain_of_5000_objects() -> None:
    chain = None
    for _ in range(5000):
        chain = {"t": Tensor([1.0]), "next": chain}
    assert len(get_state_dict(chain)) == 5000


def test_shared_objects_without_tensors_are_entered_once() -> None:
    layer: object = "leaf"
    for _ in range(200):
        layer = [layer, layer]  # 2**200 ways lead to the leaf
    assert list(get_state_dict({"x": layer, "t": Tensor([1.0])})) == ["t"]


@dataclasses.dataclass(slots=True)
class Slotted:
    weight: Tensor
    size: int


def test_dataclass_with_slots() -> None:
    assert list(get_state_dict([Slotted(Tensor([1.0]), 3)])) == ["0.weight"]


def closure_model():
    inner = nn.Linear(2, 2, bias=False)
    return lambda x: inner(x)


def test_layers_in_closures() -> None:
    assert list(get_state_dict([closure_model()])) == ["0.inner.weight"]
    layer = nn.Linear(2, 2, bias=False)
    assert list(get_state_dict({"f": functools.partial(lambda w, x: x @ w, layer.weight)})) == ["f.args.0"]
    assert list(get_state_dict({"f": functools.partial(max, key=layer)})) == ["f.key.weight"]
    assert list(get_state_dict({"f": lambda x, layer=layer: layer(x)})) == ["f.layer.weight"]
    assert list(get_state_dict({"f": lambda x, *, layer=layer: layer(x)})) == ["f.layer.weight"]
    assert list(get_state_dict([layer.__call__])) == ["0.self.weight"]
    nested = closure_model()
    assert list(get_state_dict([lambda x: nested(x)])) == ["0.nested.inner.weight"]


def test_functions_add_no_second_name() -> None:
    class Model:
        def __init__(self) -> None:
            self.layers = [self.apply, lambda x: self.layer(x)]
            self.layer = nn.Linear(2, 2)

        def apply(self, x: Tensor) -> Tensor:
            return self.layer(x)

    assert list(get_state_dict(Model())) == ["layer.weight", "layer.bias"]


def test_a_jit_adds_no_names() -> None:
    class Model:
        def __init__(self) -> None:
            self.layer = nn.Linear(2, 2)
            self.jitted = TinyJit(self.forward)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).realize()

    model = Model()
    for _ in range(3):
        model.jitted(Tensor.ones(1, 2).clone().realize())
    assert list(get_state_dict(model)) == ["layer.weight", "layer.bias"]


def test_load_state_dict() -> None:
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    weight = target.weight
    state = {**get_state_dict(source), "unused": Tensor([1.0])}
    loaded = load_state_dict(target, state, verbose=False)
    assert target.weight is weight
    assert [t is own for t, own in zip(loaded, get_parameters(target), strict=True)] == [True, True]
    np.testing.assert_array_equal(target.weight.numpy(), source.weight.numpy())
    np.testing.assert_array_equal(target.bias.numpy(), source.bias.numpy())
    with Context(DEBUG=1), pytest.warns(UserWarning, match="no tensor for unused"):
        load_state_dict(target, state, verbose=False)


def test_load_state_dict_keeps_the_dtype_of_the_file() -> None:
    layer = nn.Linear(2, 2, bias=False)
    load_state_dict(layer, {"weight": Tensor.ones(2, 2, dtype=dtypes.half)}, verbose=False)
    assert layer.weight.dtype == dtypes.half


def test_load_state_dict_takes_scalars_for_vectors_of_one() -> None:
    model = {"a": Tensor([1.0]), "b": Tensor.zeros(dtype=dtypes.int64)}
    load_state_dict(model, {"a": Tensor(5.0).clone(), "b": Tensor([7], dtype=dtypes.int64)}, verbose=False)
    assert (model["a"].tolist(), model["b"].tolist()) == ([5.0], 7)


def test_load_state_dict_errors_change_nothing() -> None:
    layer = nn.Linear(2, 3)
    before = layer.weight.numpy()
    with pytest.raises(KeyError, match="no entry for bias"):
        load_state_dict(layer, {"weight": Tensor.ones(3, 2)}, verbose=False)
    wrong = {"weight": Tensor.ones(3, 2), "bias": Tensor.ones(4)}
    with pytest.raises(ValueError, match=r"Shape mismatch in layer `bias`: expected shape \(3,\), but found \(4,\)"):
        load_state_dict(layer, wrong, verbose=False)
    np.testing.assert_array_equal(layer.weight.numpy(), before)


def test_load_state_dict_consume_and_not_strict() -> None:
    layer = nn.Linear(2, 2)
    state = {"weight": Tensor.ones(2, 2), "other": Tensor([1.0])}
    load_state_dict(layer, state, strict=False, verbose=False, consume=True)
    assert list(state) == ["other"]
    assert layer.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_codes() -> None:
    assert len(safe_dtypes) == len(inverse_safe_dtypes) == 15
    assert inverse_safe_dtypes[dtypes.bfloat16] == "BF16"


@pytest.mark.parametrize("dtype", list(inverse_safe_dtypes), ids=str)
def test_round_trip(tmp_path: Path, dtype) -> None:
    values = Tensor([[0, 1, 2], [3, 1, 0]]).cast(dtype)
    scalar = Tensor([1]).cast(dtype).reshape(()).contiguous()
    empty = Tensor.zeros(0, 3, dtype=dtype)
    safe_save({"values": values, "scalar": scalar, "empty": empty}, tmp_path / "t.safetensors")
    loaded = safe_load(tmp_path / "t.safetensors")
    assert list(loaded) == ["values", "scalar", "empty"]
    assert {t.dtype for t in loaded.values()} == {dtype}
    assert [t.shape for t in loaded.values()] == [(2, 3), (), (0, 3)]
    assert loaded["values"].device.startswith("DISK")
    assert loaded["values"].to(None).cast(dtypes.float32).tolist() == values.cast(dtypes.float32).tolist()
    assert loaded["scalar"].to(None).cast(dtypes.float32).item() == 1.0
    assert loaded["empty"].tolist() == []


def test_files_of_the_other_reader_and_writer(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, 2], dtype=np.int64)}
    theirs.save_file(arrays, tmp_path / "theirs")
    for name, tensor in safe_load(tmp_path / "theirs").items():
        np.testing.assert_array_equal(tensor.numpy(), arrays[name])
    safe_save({name: Tensor(array) for name, array in arrays.items()}, tmp_path / "ours", {"by": "us"})
    for name, array in theirs.load_file(tmp_path / "ours").items():
        np.testing.assert_array_equal(array, arrays[name])


def test_metadata(tmp_path: Path) -> None:
    path = tmp_path / "t"
    safe_save({"a": Tensor([1.0, 2.0])}, path, {"author": "somebody"})
    tensor, start, header = safe_load_metadata(path)
    assert header["__metadata__"] == {"author": "somebody"}
    assert header["a"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert start % 8 == 0
    assert tensor.shape == (start + 8,)
    assert list(safe_load(str(path))) == ["a"]


def test_load_from_a_tensor_in_memory(tmp_path: Path) -> None:
    safe_save({"a": Tensor([1.0, 2.0])}, tmp_path / "t")
    content = Tensor((tmp_path / "t").read_bytes())
    assert safe_load(content)["a"].tolist() == [1.0, 2.0]


def test_save_views(tmp_path: Path) -> None:
    base = Tensor.arange(12).reshape(3, 4).clone().realize()
    safe_save({"t": base.T, "s": base[1:, ::2], "e": base[0].expand(2, 4), "f": base.flip(0)}, tmp_path / "t")
    loaded = {name: t.numpy() for name, t in safe_load(tmp_path / "t").items()}
    expected = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(loaded["t"], expected.T)
    np.testing.assert_array_equal(loaded["s"], expected[1:, ::2])
    np.testing.assert_array_equal(loaded["e"], np.broadcast_to(expected[0], (2, 4)))
    np.testing.assert_array_equal(loaded["f"], expected[::-1])


def test_save_onto_the_file_just_loaded(tmp_path: Path) -> None:
    path = tmp_path / "t"
    safe_save({"a": Tensor([1.0, 2.0]), "b": Tensor([3, 4])}, path)
    loaded = safe_load(path)
    # The order and the header differ, so every offset of the new file differs from the old one.
    safe_save({"b": loaded["b"], "a": loaded["a"]}, path, {"note": "a header of another length"})
    again = safe_load(path)
    assert list(again) == ["b", "a"]
    assert (again["a"].tolist(), again["b"].tolist()) == ([1.0, 2.0], [3, 4])
    assert (loaded["a"].tolist(), loaded["b"].tolist()) == ([1.0, 2.0], [3, 4])


def test_a_new_file_of_the_same_name_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for value in (1.0, 2.0):
        safe_save({"a": Tensor([value])}, path)
        assert safe_load(path)["a"].item() == value


def test_using_loaded_tensors_never_changes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    safe_save({"a": Tensor([1.0, 2.0])}, path)
    before = path.read_bytes()
    assert (safe_load(path)["a"].to(None) * 2).realize().tolist() == [2.0, 4.0]
    assert path.read_bytes() == before


def test_metadata_are_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected an object of strings"):
        safe_save({"a": Tensor([1.0])}, tmp_path / "t", metadata={"epoch": 3})  # type: ignore[dict-item]
    assert not (tmp_path / "t").exists()


def test_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "t"
    safe_save({"a": Tensor([1.0])}, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="b is of the weak dtype"):
        safe_save({"a": Tensor([2.0]), "b": Tensor(1)}, path)
    with pytest.raises(KeyError, match="no code for"):
        safe_save({"a": Tensor([2.0]).cast(dtypes.fp8e4m3fnuz)}, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        safe_load(tmp_path / "nothing")


def write(path: Path, header: object, data: bytes = b"\0" * 16, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: object = "F32", shape: object = (2,), begin: object = 0, end: object = 8) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": entry(), "b": entry(begin=4, end=12)}, "overlap"),
        ({"a": entry(), "b": entry()}, "overlap"),
        ({"a": entry(begin=16, end=24)}, "truncated"),
        ({"a": entry(begin=4, end=12)}, "'a' start at 4, but 0 comes first: a hole"),
        ({"a": entry(), "b": entry(shape=[1], begin=12, end=16)}, "'b' start at 12, but 8 comes after those of 'a'"),
        ({"a": entry()}, "the tensors take 8 bytes, but the file has 16"),
        ({"a": entry(shape=[4], end=16), "__metadata__": {"epoch": 3}}, "__metadata__ is {'epoch': 3}"),
        ({"a": entry(shape=[4], end=16), "__metadata__": "text"}, "__metadata__ is 'text'"),
        ({"a": entry(shape=[2**61], end=2**63)}, "truncated"),
        ({"a": entry(shape=[3])}, "takes 12 bytes"),
        ({"a": entry(begin=8, end=0)}, "hold -8"),
        ({"a": entry(begin=-8, end=0)}, "data_offsets"),
        ({"a": entry(shape=[-1, -2])}, "shape"),
        ({"a": entry(shape=[2.0])}, "shape"),
        ({"a": entry(shape=[True, 2])}, "shape"),
        ({"a": entry(shape="2")}, "shape"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "has no dtype, shape and data_offsets"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, "has no dtype, shape and data_offsets"),
        ({"a": 5}, "has no dtype, shape and data_offsets"),
        ([1, 2], "is a list, expected an object"),
        (b'{"a": 1, "a": 2}', "occurs twice"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
    ],
)
def test_hostile_headers(tmp_path: Path, header: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        safe_load(write(tmp_path / "t", header))


@pytest.mark.parametrize("dtype", ["F128", 5, ["F32"]])
def test_unknown_dtype(tmp_path: Path, dtype: object) -> None:
    with pytest.raises(KeyError, match="unknown dtype"):
        safe_load(write(tmp_path / "t", {"a": entry(dtype=dtype)}))


@pytest.mark.parametrize("length", [25, 2**20, 2**63, 2**64 - 1])
def test_header_longer_than_the_file(tmp_path: Path, length: int) -> None:
    with pytest.raises(ValueError, match="declares a header of"):
        safe_load(write(tmp_path / "t", b"{}", b"\0" * 20, length))


@pytest.mark.parametrize("content", [b"", b"\0", b"\0" * 7])
def test_file_without_a_header(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ValueError, match="8"):
        safe_load(tmp_path / "t")


def test_truncated_data(tmp_path: Path) -> None:
    safe_save({"a": Tensor([1.0, 2.0, 3.0])}, tmp_path / "t")
    content = (tmp_path / "t").read_bytes()
    (tmp_path / "cut").write_bytes(content[:-1])
    with pytest.raises(ValueError, match="the data of 'a' end at 12, but the file has 11 bytes"):
        safe_load(tmp_path / "cut")


def test_data_at_an_odd_position(tmp_path: Path) -> None:
    data = np.array([1.5, -2.5], dtype=np.float32).tobytes()
    header = json.dumps({"a": entry()}).encode()
    header += b" " * (-len(header) % 8 + 3)
    assert safe_load(write(tmp_path / "t", header, data))["a"].tolist() == [1.5, -2.5]


def test_slots_of_every_kind() -> None:
    class Base:
        __slots__ = "scale"

        def __init__(self) -> None:
            self.scale = Tensor([1.0])

    class Layer(Base):
        __slots__ = ("__private", "__weakref__", "absent", "weight")

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.__private = Tensor([2.0]), Tensor([3.0])

    class Open(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.more = Tensor([4.0])

    assert list(get_state_dict(Layer())) == ["scale", "_Layer__private", "weight"]
    assert list(get_state_dict(Open(), "m")) == ["m.scale", "m._Layer__private", "m.weight", "m.more"]


def test_two_tensors_of_one_name() -> None:
    with pytest.raises(ValueError, match="two tensors have the name '1'"):
        get_state_dict({1: Tensor([1.0]), "1": Tensor([2.0])})
    with pytest.raises(ValueError, match=r"two tensors have the name 'a.b'"):
        get_state_dict({"a.b": Tensor([1.0]), "a": {"b": Tensor([2.0])}})
    shared = Tensor([1.0])
    assert list(get_state_dict({1: shared, "1": shared})) == ["1"]


@pytest.mark.parametrize(
    ("entry", "kind"),
    [(object(), "builtins.object"), ([[1.0, 2.0]], "builtins.list"), (np.ones((1, 2)), "numpy.ndarray")],
)
def test_load_state_dict_of_what_is_no_tensor(entry: object, kind: str) -> None:
    layer = nn.Linear(2, 1)
    with pytest.raises(TypeError, match=rf"the entry 'weight' is of type {kind}, expected a Tensor"):
        load_state_dict(layer, {"weight": entry, "bias": Tensor([0.0])})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"state_dict is .*, expected dict"):
        load_state_dict(layer, "file.safetensors")  # type: ignore[arg-type]


def test_load_state_dict_tells_the_names_that_there_are() -> None:
    with pytest.raises(KeyError, match=r"no entry for weight, bias \(it has m.weight, m.bias\); pass strict=False"):
        load_state_dict(nn.Linear(2, 1), get_state_dict(nn.Linear(2, 1), "m"))


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({1: Tensor([1.0])}, TypeError, "1 is the name of a tensor, expected a string"),
        ({"__metadata__": Tensor([1.0])}, ValueError, "no tensor of the name '__metadata__'"),
        ({"\ud800": Tensor([1.0])}, ValueError, "the file format allows no tensor of the name"),
        ({"a": 1}, TypeError, "a is of type builtins.int, expected a Tensor"),
        ({"a": {"b": Tensor([1.0])}}, TypeError, "a is of type builtins.dict, .*get_state_dict makes names"),
        ({"a": np.ones(2)}, TypeError, "a is of type numpy.ndarray, expected a Tensor"),
        ([Tensor([1.0])], TypeError, "tensors is .* of type list, expected Mapping"),
        ({"a": Tensor.ones(4).contiguous()[: Variable("n", 1, 4).bind(2)]}, AssertionError, "the symbolic shape"),
    ],
)
def test_what_cannot_be_saved(tmp_path: Path, tensors: object, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        safe_save(tensors, tmp_path / "t")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no such folder: '.*/absent'"):
        safe_save({"a": Tensor([1.0])}, tmp_path / "absent" / "t")
    with pytest.raises(IsADirectoryError, match="the name of a file is expected, this is a folder"):
        safe_save({"a": Tensor([1.0])}, tmp_path)


def test_half_floats_are_read_from_the_file(tmp_path: Path) -> None:
    safe_save({"a": Tensor([1.5, 2.5], dtype=dtypes.float16)}, tmp_path / "t")
    assert safe_load(tmp_path / "t")["a"].tolist() == [1.5, 2.5]
