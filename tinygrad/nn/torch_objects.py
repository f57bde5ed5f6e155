"""What the pickles of PyTorch name: storages, tensors that view them, dtypes and the functions that rebuild tensors.

In:   arguments of the functions that a pickle names, which may be anything.
Out:  lazy tensors, inside their storages.
Why:  a pickle of a stranger may ask for anything, so it gets these objects and nothing else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import prod
from tinygrad.nn.restricted_pickle import Allowed, Placeholder
from tinygrad.tensor import Tensor

__all__ = ["ALLOWED", "MAX_DIMS", "NOTHING", "Storage", "storage_dtype", "view"]

MAX_DIMS: Final = 64
_MAX_NUMEL: Final = 2**63 - 1

_DTYPES: Final[dict[str, DType]] = {
    "float64": dtypes.float64,
    "double": dtypes.float64,
    "float32": dtypes.float32,
    "float": dtypes.float32,
    "float16": dtypes.float16,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
    "float8_e4m3fnuz": dtypes.fp8e4m3fnuz,
    "float8_e5m2fnuz": dtypes.fp8e5m2fnuz,
    "int64": dtypes.int64,
    "int32": dtypes.int32,
    "int16": dtypes.int16,
    "int8": dtypes.int8,
    "uint64": dtypes.uint64,
    "uint32": dtypes.uint32,
    "uint16": dtypes.uint16,
    "uint8": dtypes.uint8,
    "bool": dtypes.bool,
}
# Start of a name of a storage that has no dtype here -> what to save in its place.
_INSTEAD: Final = (
    ("Complex", "save its parts, torch.view_as_real(t)"),
    ("QInt", "save its values, t.dequantize()"),
    ("QUInt", "save its values, t.dequantize()"),
)
_STORAGES: Final[dict[str, DType]] = {
    "DoubleStorage": dtypes.float64,
    "FloatStorage": dtypes.float32,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "LongStorage": dtypes.int64,
    "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16,
    "CharStorage": dtypes.int8,
    "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
    "UntypedStorage": dtypes.uint8,
}
_NUMPY_CODES: Final = frozenset({
    "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16",
})  # fmt: skip


class Storage:
    """A range of bytes of which tensors show parts."""

    __slots__ = ("data", "dtype", "size")

    def __init__(self, data: Tensor, dtype: DType) -> None:
        self.data, self.dtype = data, dtype
        self.size = int(data.shape[0])  # in bytes

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("the pickle tries to change a storage")

    def elements(self, dtype: DType, start: int, count: int) -> Tensor:
        """Return elements [start, start + count) as a lazy one-dimensional tensor."""
        itemsize = dtype.itemsize
        data = self.data[start * itemsize : (start + count) * itemsize]
        if not _is_aligned(data, itemsize):
            data = data.to(None).contiguous()  # elements across their natural boundaries cannot be viewed in place
        return data.bitcast(dtype)


def _is_aligned(data: Tensor, itemsize: int) -> bool:
    place = data.uop.contiguous_view()
    return place is not None and place[1] % itemsize == 0


def storage_dtype(kind: Any) -> DType:
    """Return the dtype of a type of storages, as a pickle names it.

    Raises:
        KeyError: There is no such dtype here.
    """
    if isinstance(kind, _StorageType):
        return kind.dtype
    name = str(getattr(kind, "__qualname__", kind))
    instead = next((f"; {text}" for start, text in _INSTEAD if name.startswith(start)), "")
    raise KeyError(f"torch_load: storage type {name!r} is not supported{instead}; known are {', '.join(_STORAGES)}")


# ---- tensors ----


def view(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    """Return the tensor that shows element ``offset + sum(index * stride)`` of a storage at each index."""
    if not (isinstance(storage, Storage) and isinstance(dtype, DType)):
        raise pickle.UnpicklingError(f"a tensor of {storage!r:.100} and {dtype!r:.100}; expected a storage and a dtype")
    _check_view(storage, dtype, offset, size, stride)
    if 0 in size:
        return Tensor.empty(*size, dtype=dtype)
    axes = [axis for axis, length in enumerate(size) if length > 1 and stride[axis] > 0]  # others repeat the element
    by_stride = sorted(axes, key=lambda axis: (-stride[axis], -size[axis]))
    sizes = [size[axis] for axis in by_stride]
    dense = [stride[axis] for axis in by_stride] == [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    count = 1 + sum((size[axis] - 1) * stride[axis] for axis in axes)
    data = storage.elements(dtype, offset, count)
    if dense and by_stride == axes and count == prod(size):
        return data.reshape(size)
    data = data.to(None)
    if dense:
        data = data.reshape(sizes).permute([by_stride.index(axis) for axis in axes])
    else:
        data = data[_positions([size[axis] for axis in axes], [stride[axis] for axis in axes])]
    return data.reshape([length if axis in axes else 1 for axis, length in enumerate(size)]).expand(size)


def _check_view(storage: Storage, dtype: DType, offset: Any, size: Any, stride: Any) -> None:
    lists = isinstance(size, (tuple, list)) and isinstance(stride, (tuple, list)) and len(size) == len(stride)
    if not lists or len(size) > MAX_DIMS or not all(type(n) is int and n >= 0 for n in (offset, *size, *stride)):
        raise pickle.UnpicklingError(
            f"a tensor with offset {offset!r:.50}, shape {size!r:.100} and strides {stride!r:.100}; expected ints >= 0"
        )
    if prod(size) > _MAX_NUMEL:
        raise pickle.UnpicklingError(f"a tensor of shape {size!r:.100} has more than {_MAX_NUMEL} elements")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if 0 not in size and (last + 1) * dtype.itemsize > storage.size:
        raise pickle.UnpicklingError(
            f"a tensor of {dtype} with offset {offset}, shape {tuple(size)} and strides {tuple(stride)} reaches "
            f"element {last}, but its storage has {storage.size // dtype.itemsize}"
        )


def _positions(size: list[int], stride: list[int]) -> Tensor:
    """Return where each element of a strided view lies; arithmetic on ranges that never exists in memory."""
    last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    dtype = dtypes.int32 if last < 2**31 else dtypes.int64
    total = Tensor.zeros(*[1] * len(size), dtype=dtype)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = [length if i == axis else 1 for i in range(len(size))]
        total = total + Tensor.arange(length, dtype=dtype).reshape(along) * step
    return total


# ---- names of torch in pickles ----


class _StorageType:
    """A class of storages, of which only the dtype matters."""

    __slots__ = ("_dtype",)

    _dtype: DType

    def __init__(self, dtype: DType) -> None:
        object.__setattr__(self, "_dtype", dtype)

    @property
    def dtype(self) -> DType:
        """Dtype of the elements; uint8 if they have none of their own."""
        return self._dtype

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("the pickle tries to change a storage type")


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
    return view(storage, getattr(storage, "dtype", None), offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any = None, _hooks: Any = None, metadata: Any = None
) -> Tensor:
    _check_metadata(metadata)
    return view(storage, getattr(storage, "dtype", None), offset, size, stride)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, metadata: Any = None
) -> Tensor:
    _check_metadata(metadata)
    if not isinstance(dtype, DType):
        raise KeyError(f"torch_load: a tensor of {dtype!r} is not supported; known dtypes are {', '.join(_DTYPES)}")
    return view(storage, dtype, offset, size, stride)


def _check_metadata(metadata: Any) -> None:
    if isinstance(metadata, dict) and (metadata.get("conj") or metadata.get("neg")):
        raise NotImplementedError("torch_load: a tensor with a lazy conjugate or sign; save it with .resolve_neg()")


class _NumpyType:
    """The dtype of a numpy scalar."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or code not in _NUMPY_CODES:
            raise pickle.UnpicklingError(f"numpy dtype {code!r:.50}; expected one of numbers")
        self.code = code
        self.order: Literal["<", ">"] = "<"

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if isinstance(state, tuple) and len(state) > 1 and state[1] == ">" else "<"


def _numpy_scalar(kind: Any, data: Any) -> Any:
    import numpy as np

    if not (isinstance(kind, _NumpyType) and isinstance(data, bytes)):
        raise pickle.UnpicklingError(f"a numpy scalar of {kind!r:.50} and {data!r:.50}; expected a dtype and bytes")
    dtype = np.dtype(kind.code).newbyteorder(kind.order)
    if dtype.itemsize != len(data):
        raise pickle.UnpicklingError(f"a numpy scalar of {dtype} and {len(data)} bytes")
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))[0]


def _first(*args: Any) -> Any:
    return args[0]


def _size(numbers: Any = ()) -> tuple[Any, ...]:
    return tuple(numbers)


def _device(kind: Any = "cpu", index: Any = None) -> str:
    return f"{kind}" if index is None else f"{kind}:{index}"


def _from_type(function: Any, _kind: Any, args: Any, _state: Any = None) -> Any:
    """Return what a subclass of tensor wraps."""
    if not isinstance(function, Allowed) or not isinstance(args, tuple):
        raise pickle.UnpicklingError(f"a tensor built by {function!r:.100} of {args!r:.100}")
    return function(*args)


def _refused(kind: str, instead: str) -> Callable[..., NoReturn]:
    """Return a builder of tensors of a kind that does not exist here."""

    def refuse(*_: Any) -> NoReturn:
        raise NotImplementedError(f"torch_load: the file holds a {kind} tensor, which is not supported; {instead}")

    return refuse


_NESTED: Final = _refused("nested", "save the list of its parts, .unbind()")
_FUNCTIONS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
    ("torch._utils", "_rebuild_sparse_tensor"): _refused("sparse", "save it with .to_dense()"),
    ("torch._utils", "_rebuild_nested_tensor"): _NESTED,
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"): _NESTED,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _refused("meta", "it has a shape and no values"),
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("torch", "Size"): _size,
    ("torch", "device"): _device,
    ("numpy", "dtype"): _NumpyType,
    ("numpy._core.multiarray", "scalar"): _numpy_scalar,
    ("numpy.core.multiarray", "scalar"): _numpy_scalar,
}
ALLOWED: Final[dict[tuple[str, str], Any]] = {
    **{(module, name): Allowed(f"{module}.{name}", call) for (module, name), call in _FUNCTIONS.items()},
    **{("torch", name): dtype for name, dtype in _DTYPES.items()},
    **{
        (module, name): _StorageType(dtype)
        for module in ("torch", "torch.cuda", "torch.storage")
        for name, dtype in _STORAGES.items()
    },
}
NOTHING: Final = Allowed("a function of torch", lambda *_: Placeholder())
