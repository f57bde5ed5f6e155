"""GGUF files and the types of GGML, against the package gguf as a black box, and files that were made to do harm."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.llm.ggml_grids import GRIDS
from tinygrad.llm.ggml_types import GGML_TYPES
from tinygrad.llm.gguf import ggml_data_to_tensor, gguf_load

QUANTISED = {number: kind for number, kind in GGML_TYPES.items() if callable(kind.unpack)}
RNG = np.random.default_rng(5)


# ---- types


def _blocks(number: int, count: int = 24) -> np.ndarray:
    """Return random blocks whose scales are finite; then blocks of zeros and of ones."""
    kind = GGML_TYPES[number]
    blocks = RNG.integers(0, 256, (count, kind.block_bytes), dtype=np.uint8)
    scales = {2: [0], 3: [0, 2], 6: [0], 7: [0, 2], 8: [0], 10: [80, 82], 11: [108], 12: [0, 2], 13: [0, 2], 14: [208]}
    scales |= {34: [52], 35: [64]}
    for at in scales.get(number, [0]):
        blocks[:, at : at + 2] = RNG.normal(size=(count, 1)).astype(np.float16).view(np.uint8)
    if number == 29:  # the scale lies in the upper halves of four words: here none is larger than two
        blocks[:, 55] &= 0xBF
    blocks[-1], blocks[-2] = 0, 0
    for at in scales.get(number, [0]):
        blocks[-2, at : at + 2] = (0, 0x3C)
    if number == 39:  # the scale is one byte, a power of two: all of them that are finite, and the subnormal ones
        blocks[:, 0] = np.linspace(0, 254, count).astype(np.uint8)
        blocks[:2, 0] = (0, 1)
    return blocks


def _expected(number: int, blocks: np.ndarray) -> np.ndarray:
    if number == 41:  # the package knows its size only
        scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        signs = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32) * 2 - 1
        return scales * signs
    with np.errstate(over="ignore"):
        return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(number))


@pytest.mark.parametrize("number", QUANTISED, ids=lambda number: GGML_TYPES[number].name)
def test_quantised_types(number: int) -> None:
    kind, blocks = GGML_TYPES[number], _blocks(number)
    found = ggml_data_to_tensor(Tensor(blocks.tobytes()), blocks.shape[0] * kind.block_size, number)
    expected = _expected(number, blocks).reshape(-1)
    assert np.isfinite(expected).all()
    assert len(np.unique(np.abs(expected))) > 2
    assert found.dtype is dtypes.float32
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("number", QUANTISED, ids=lambda number: GGML_TYPES[number].name)
@pytest.mark.parametrize("count", [1, 7])
def test_quantised_types_of_any_bytes(number: int, count: int) -> None:
    """Scales may be subnormal, infinite or no number at all; and the number of blocks may be odd."""
    kind = GGML_TYPES[number]
    blocks = RNG.integers(0, 256, (count, kind.block_bytes), dtype=np.uint8)
    blocks[0] = 255
    with np.errstate(invalid="ignore"):
        expected = _expected(number, blocks).reshape(-1)
    found = ggml_data_to_tensor(Tensor(blocks.tobytes()), expected.size, number).numpy()
    np.testing.assert_array_equal(found, expected)
    signed = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[signed]), np.signbit(expected[signed]))


def test_every_type_that_the_package_unpacks_is_here() -> None:
    for kind, (_, nbytes) in gguf.GGML_QUANT_SIZES.items():
        try:
            gguf.quants.dequantize(np.zeros((1, nbytes), np.uint8), kind)
        except NotImplementedError:
            continue
        assert kind.value in GGML_TYPES, kind.name


def test_scales_of_nvfp4() -> None:
    """The scale is one byte, without a sign: every one, with a level of one."""
    blocks = np.zeros((64, 36), np.uint8)
    blocks[:, :4] = np.arange(256, dtype=np.uint8).reshape(64, 4)
    blocks[:, 4:] = 0x22
    found = ggml_data_to_tensor(Tensor(blocks.tobytes()), 64 * 64, 40).numpy()
    np.testing.assert_array_equal(found, _expected(40, blocks).reshape(-1))


def test_types_are_those_of_the_package() -> None:
    for number, kind in GGML_TYPES.items():
        theirs = gguf.GGMLQuantizationType(number)
        assert kind.name == theirs.name
        assert (kind.block_size, kind.block_bytes) == gguf.GGML_QUANT_SIZES[theirs]


@pytest.mark.parametrize(
    ("number", "values"),
    [
        (0, np.array([1.5, -2, np.inf], np.float32)),
        (1, np.array([1.5, -2, 6e-8], np.float16)),
        (24, np.array([-128, 127], np.int8)),
        (25, np.array([-(2**15), 5], np.int16)),
        (26, np.array([-(2**31), 5], np.int32)),
        (27, np.array([-(2**63), 2**40 + 1], np.int64)),
        (28, np.array([1e300, np.pi], np.float64)),
    ],
)
def test_native_types(number: int, values: np.ndarray) -> None:
    found = ggml_data_to_tensor(Tensor(values.tobytes() + b"more"), values.size, number)
    array = found.numpy()
    assert array.dtype == values.dtype
    np.testing.assert_array_equal(array, values)


def test_bfloat16() -> None:
    found = ggml_data_to_tensor(Tensor(struct.pack("<HH", 0x3FC0, 0xC000)), 2, 30)
    assert found.dtype is dtypes.bfloat16
    assert found.tolist() == [1.5, -2.0]


def test_grids() -> None:
    sizes = {"IQ3_XXS": 256, "IQ3_S": 512, "IQ2_S": 1024, "IQ2_XXS": 256, "IQ2_XS": 512, "IQ1": 2048}
    for name, size in sizes.items():
        entries = GRIDS[name].entries()
        width = GRIDS[name].width
        rows = {entries[i : i + width] for i in range(0, len(entries), width)}
        assert len(rows) == size == len(entries) // width, "every entry is another one"
        assert {n for row in rows for n in row} == set(GRIDS[name].levels)


def test_unpacking_runs_inside_the_kernel_that_uses_it() -> None:
    raw = Tensor(_blocks(12, 8).tobytes()).to(None).realize()
    x = Tensor.ones(256).contiguous().realize()
    weights = ggml_data_to_tensor(raw, 8 * 256, 12).reshape(8, 256)
    GlobalCounters.reset()
    result = (weights @ x).realize()
    assert GlobalCounters.kernel_count == 1
    assert result.shape == (8,)


def test_type_errors() -> None:
    data = Tensor(bytes(64))
    with pytest.raises(ValueError, match="GGML type 99 is not supported; supported are 0 F32, 1 F16, 2 Q4_0"):
        ggml_data_to_tensor(data, 32, 99)
    with pytest.raises(ValueError, match="33 elements of GGML type Q4_0; expected a multiple of 32"):
        ggml_data_to_tensor(data, 33, 2)
    with pytest.raises(ValueError, match="128 elements of Q4_0 take 72 bytes, got 64"):
        ggml_data_to_tensor(data, 128, 2)
    with pytest.raises(ValueError, match="expected a one-dimensional uint8 tensor"):
        ggml_data_to_tensor(Tensor([1.0]), 1, 0)


# ---- files


def _write(path: Path, tensors: dict[str, np.ndarray], add: Any = None, alignment: int | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    if add:
        add(writer)
    for name, array in tensors.items():
        kind = gguf.GGMLQuantizationType[name.split(".")[0]] if array.dtype == np.uint8 else None
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


METADATA = {
    "u8": 255, "i8": -3, "u16": 65535, "i16": -300, "u32": 2**32 - 1, "i32": -5, "u64": 2**63, "i64": -(2**40),
    "f32": 0.5, "f64": 1e300, "yes": True, "no": False, "text": "Grüße",
}  # fmt: skip
LISTS = {"tokens": ["a", "", "ü" * 10] * 20, "scores": [0.5, -1.0], "ids": [1, -2, 3], "flags": [True, False]}


def _add_metadata(writer: gguf.GGUFWriter) -> None:
    adders = {"u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32"}
    adders |= {"u64": "uint64", "i64": "int64", "f32": "float32", "f64": "float64", "yes": "bool", "no": "bool"}
    for key, value in METADATA.items():
        getattr(writer, f"add_{adders.get(key, 'string')}")(key, value)
    for key, values in LISTS.items():
        writer.add_array(key, values)


def _quantised(kind: gguf.GGMLQuantizationType, shape: tuple[int, ...]) -> np.ndarray:
    return gguf.quants.quantize(RNG.normal(size=shape).astype(np.float32), kind)


@pytest.mark.parametrize("source", ["path", "string", "disk tensor", "memory"])
def test_file(tmp_path: Path, source: str) -> None:
    kinds = gguf.GGMLQuantizationType
    tensors = {
        "matrix": RNG.normal(size=(3, 5)).astype(np.float32),
        "half": RNG.normal(size=(2, 3, 4)).astype(np.float16),
        "ints": np.arange(7, dtype=np.int32),
        "Q8_0.weight": _quantised(kinds.Q8_0, (4, 64)),
        "Q4_0.weight": _quantised(kinds.Q4_0, (2, 3, 32)),
    }
    path = _write(tmp_path / "x.gguf", tensors, _add_metadata, alignment=64)
    given = {"path": path, "string": str(path), "disk tensor": Tensor(path), "memory": Tensor(path.read_bytes())}[
        source
    ]
    metadata, found = gguf_load(given)
    assert metadata == METADATA | LISTS | {"general.architecture": "llama", "general.alignment": 64}
    assert {key: type(value) for key, value in metadata.items() if key in ("yes", "u8", "f64", "text")} == {
        "yes": bool, "u8": int, "f64": float, "text": str,
    }  # fmt: skip
    assert list(found) == list(tensors)
    for name, array in tensors.items():
        kind = kinds[name.split(".")[0]] if array.dtype == np.uint8 else None
        expected = gguf.quants.dequantize(array, kind) if kind else array
        assert found[name].shape == expected.shape
        np.testing.assert_array_equal(found[name].numpy(), expected)


@pytest.mark.parametrize("number", QUANTISED, ids=lambda number: GGML_TYPES[number].name)
def test_file_of_each_type_with_an_odd_number_of_rows(tmp_path: Path, number: int) -> None:
    kind = GGML_TYPES[number]
    rows = _blocks(number, 30).reshape(3, 5, 2 * kind.block_bytes)
    path = _write(tmp_path / "x.gguf", {f"{kind.name}.weight": rows, "after": np.arange(3, dtype=np.float32)})
    _, found = gguf_load(path)
    expected = _expected(number, rows.reshape(-1, kind.block_bytes)).reshape(3, 5, 2 * kind.block_size)
    np.testing.assert_array_equal(found[f"{kind.name}.weight"].numpy(), expected)
    assert found["after"].tolist() == [0, 1, 2]


def test_nothing_is_read_before_it_is_used(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.gguf", {"w": np.zeros((64, 64), np.float32)})
    GlobalCounters.reset()
    _, found = gguf_load(path)
    assert not found["w"].uop.is_realized
    assert GlobalCounters.kernel_count == 0
    data = Tensor(path.read_bytes()).to(None).realize()
    assert gguf_load(data)[1]["w"].uop.buffer.base is data.uop.buffer.base, "in memory, tensors are views"


def _raw(entries: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] = (0, 0), version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, counts[1], counts[0]) + entries + tensors


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


@pytest.mark.parametrize("version", [2, 3])
def test_versions_and_nested_lists(version: int) -> None:
    nested = struct.pack("<IQ", 9, 2) + struct.pack("<IQ2B", 0, 2, 7, 8) + struct.pack("<IQ", 8, 1) + _string("x")
    head = _raw(_string("k") + struct.pack("<I", 9) + nested, _tensor("t", (2,), 24, 0), (1, 1), version)
    metadata, tensors = gguf_load(Tensor(head + bytes(-len(head) % 32) + b"\x05\xff"))
    assert metadata == {"k": [[7, 8], ["x"]]}
    assert tensors["t"].tolist() == [5, -1]


@pytest.mark.parametrize("raw", [b"\xff\xfe ok", b"\xf0\x9f", b"\x80", b"\xc3", "\u00e9".encode(), b""])
def test_bytes_that_are_no_text_stay_apart(raw: bytes) -> None:
    tokens = [struct.pack("<Q", len(token)) + token for token in (raw, raw + b"\x81", b"plain")]
    entry = _string("tokens") + struct.pack("<IIQ", 9, 8, len(tokens)) + b"".join(tokens)
    found = gguf_load(Tensor(_raw(entry, counts=(1, 0)) + bytes(64)))[0]["tokens"]
    assert [t.encode("utf-8", "surrogateescape") for t in found] == [raw, raw + b"\x81", b"plain"]
    assert len(set(found)) == 3


def test_empty_tensor() -> None:
    _, tensors = gguf_load(Tensor(_raw(tensors=_tensor("t", (0, 3), 0, 0), counts=(0, 1)) + bytes(64)))
    assert tensors["t"].shape == (3, 0)
    assert tensors["t"].dtype is dtypes.float32


# ---- models in several files


def _parts(folder: Path, count: int = 3, stem: str = "model") -> list[Path]:
    def add(number: int) -> Any:
        def fields(writer: gguf.GGUFWriter) -> None:
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", count)
            writer.add_int32("split.tensors.count", count)
            writer.add_string("part", str(number))

        return fields

    return [
        _write(folder / f"{stem}-{i + 1:05}-of-{count:05}.gguf", {f"t{i}": np.full(3, i, np.float32)}, add(i))
        for i in range(count)
    ]


def test_parts(tmp_path: Path) -> None:
    paths = _parts(tmp_path)
    metadata, tensors = gguf_load(paths[0])
    assert metadata["part"] == "0"
    assert {name: t.tolist() for name, t in tensors.items()} == {"t0": [0] * 3, "t1": [1] * 3, "t2": [2] * 3}
    with pytest.raises(ValueError, match=r"is part 2 of 3; open the first part, \*-00001-of-00003.gguf"):
        gguf_load(paths[1])
    with pytest.raises(ValueError, match="split into 3 parts; give the path of the first one, not a tensor"):
        gguf_load(Tensor(paths[0].read_bytes()))
    renamed = tmp_path / "other.gguf"
    renamed.write_bytes(paths[0].read_bytes())
    with pytest.raises(ValueError, match=r"other.gguf is the first of 3 parts; expected the name NAME-00001-of-00003"):
        gguf_load(renamed)
    third = paths[2].read_bytes()
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(ValueError, match="is not part 3 of 3"):
        gguf_load(paths[0])
    paths[2].write_bytes(third.replace(b"t2", b"t1"))
    with pytest.raises(ValueError, match=r"tensor 't1' occurs in .* and in an earlier part"):
        gguf_load(paths[0])
    paths[2].unlink()
    with pytest.raises(FileNotFoundError, match="is the first of 3 parts, but there is no"):
        gguf_load(paths[0])


# ---- damaged and hostile files

_KEY = _string("k")
_BIG = struct.pack("<Q", 2**60)
HOSTILE = {
    "magic": (b"GGML" + bytes(20), "starts with b'GGML', expected b'GGUF'"),
    "version": (_raw(version=1), "has version 1, supported are 2 and 3\n"),
    "big endian": (b"GGUF\0\0\0\3" + bytes(16), "it is big endian"),
    "tensors": (_raw(counts=(0, 2**60)), f"declares {2**60} tensors, but 8 bytes are left"),
    "entries": (_raw(counts=(2**60, 0)), f"declares {2**60} metadata entries, but 0 bytes"),
    "key": (_raw(_BIG + bytes(30), counts=(1, 0)), f"a key at byte 32 takes {2**60} bytes, 30 are left"),
    "string": (_raw(_KEY + struct.pack("<I", 8) + _BIG + bytes(9), counts=(1, 0)), "the value of 'k' at byte"),
    "type": (_raw(_KEY + struct.pack("<II", 77, 0), counts=(1, 0)), "unknown type 77 for 'k'"),
    "list": (_raw(_KEY + struct.pack("<II", 9, 4) + _BIG, counts=(1, 0)), f"declares {2**60} numbers of 'k'"),
    "strings": (_raw(_KEY + struct.pack("<II", 9, 8) + _BIG, counts=(1, 0)), f"declares {2**60} items of 'k'"),
    "type of a list": (_raw(_KEY + struct.pack("<IIQ", 9, 77, 1) + bytes(99), counts=(1, 0)), "unknown type 77"),
    "nesting": (_raw(_KEY + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50, counts=(1, 0)), "nested more than 8"),
    "key twice": (_raw((_KEY + struct.pack("<IB", 7, 1)) * 2, counts=(2, 0)), "has the key 'k' twice"),
    "alignment": (
        _raw(_string("general.alignment") + struct.pack("<II", 4, 24), counts=(1, 0)),
        "general.alignment 24; expected a power of two",
    ),
    "no alignment": (
        _raw(_string("general.alignment") + struct.pack("<II", 4, 0), counts=(1, 0)),
        "general.alignment 0; expected a power of two",
    ),
    "dims": (_raw(tensors=_string("t") + struct.pack("<I", 2**31) + bytes(99), counts=(0, 1)), "has 2147483648 dims"),
    "tensor type": (
        _raw(tensors=_tensor("t", (1,), 99, 0), counts=(0, 1)) + bytes(99),
        "type 99, which is not supported",
    ),
    "rows": (
        _raw(tensors=_tensor("t", (16, 2), 2, 0), counts=(0, 1)) + bytes(99),
        "rows of 16 elements; expected a mult",
    ),
    "size": (_raw(tensors=_tensor("t", (2**40, 2**40), 0, 0), counts=(0, 1)) + bytes(99), "of data: truncated"),
    "offset": (_raw(tensors=_tensor("t", (1,), 0, 2**62), counts=(0, 1)) + bytes(99), "of data: truncated"),
    "crooked": (
        _raw(tensors=_tensor("t", (1,), 0, 4), counts=(0, 1)) + bytes(99),
        "starts at 4, which is no multiple of 32",
    ),
    "overlap": (
        _raw(tensors=_tensor("t", (9,), 0, 0) + _tensor("u", (1,), 0, 32), counts=(0, 2)) + bytes(199),
        "the data of tensors 't' and 'u' overlap",
    ),
    "tensor twice": (_raw(tensors=_tensor("t", (1,), 0, 0) * 2, counts=(0, 2)) + bytes(99), "has the tensor 't' twice"),
    "split": (_raw(_string("split.no") + struct.pack("<IB", 7, 1), counts=(1, 0)), "is part 2 of 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str) -> None:
    data, message = HOSTILE[name]
    with pytest.raises(ValueError, match=message):
        gguf_load(Tensor(data))


def test_truncated_files(tmp_path: Path) -> None:
    data = _write(tmp_path / "x.gguf", {"w": np.zeros((3, 5), np.float32)}, _add_metadata).read_bytes()
    gguf_load(Tensor(data))
    for length in (1, 3, 4, 10, 24, 40, 100, 333, len(data) // 2, len(data) - 33):
        with pytest.raises(ValueError, match=r"truncated|it is no GGUF file"):
            gguf_load(Tensor(data[:length]))
    with pytest.raises(FileNotFoundError):
        gguf_load(tmp_path / "absent.gguf")
    with pytest.raises(ValueError, match="expected a one-dimensional uint8 tensor"):
        gguf_load(Tensor([1.0]))
