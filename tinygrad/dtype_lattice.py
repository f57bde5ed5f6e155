"""The element types, and how they combine.

In:   names, Python scalars, pairs of dtypes.
Out:  interned ``DType`` objects (compare with ``is``), the namespace ``dtypes``, the promotion lattice.
Why:  every stage asks the same tables, so a promotion or conversion means the same everywhere.

Float to integer, one rule on every path and device (``float_to_int``), that of x86 and of numpy there: round toward
zero into the conversion type, then wrap modulo 2**bits. The conversion type is int32 for integers of up to 16 bits and
for int32, int64 for uint32 and int64, and for uint64 all from -2**63 to 2**64 - 1. NaN and what the conversion type
does not hold give its smallest number (so 0 in the narrow types).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, ClassVar, Final, TypeAlias

from tinygrad.constants import ConstFloat, Invalid
from tinygrad.errors import shown
from tinygrad.scalars import float_to_wrapped_int, wrap_int
from tinygrad.settings import DEFAULT_FLOAT, DEFAULT_INT, getenv


class DType:
    """An element type. Instances are unique: equality is identity.

    Attributes:
        priority: Place in the order of types; the larger of two numbers tends to be their common type.
        bitsize: Bits of the value.
        itemsize: Bytes in memory.
        name: Spelling in C.
        fmt: Code of the ``struct`` module, or None.
        full_name: Name with its width, such as ``float32``.
        min: Smallest value (-inf for floats).
        max: Largest value.
    """

    __slots__ = ("_order", "bitsize", "fmt", "full_name", "itemsize", "kind", "max", "min", "name", "priority")

    _interned: ClassVar[dict[tuple[Any, ...], DType]] = {}
    priority: int
    bitsize: int
    itemsize: int
    name: str
    fmt: str | None
    full_name: str
    kind: str
    _order: tuple[int, int, str, str]
    min: Any
    max: Any

    def __new__(
        cls, priority: int, bitsize: int, name: str, fmt: str | None, full_name: str = "", kind: str = "void"
    ) -> DType:
        """Return the interned dtype of these fields."""
        key = (priority, bitsize, name, fmt)
        if key in cls._interned:
            return cls._interned[key]
        self = super().__new__(cls)
        self.priority, self.bitsize, self.name, self.fmt = key
        self.itemsize, self.full_name, self.kind = (bitsize + 7) // 8, full_name or name, kind
        self._order = (priority, bitsize, name, fmt or "")
        match kind:
            case "bool":
                self.min, self.max = False, True
            case "int":
                self.min, self.max = -(1 << (bitsize - 1)), (1 << (bitsize - 1)) - 1
            case "uint":
                self.min, self.max = 0, (1 << bitsize) - 1
            case "float":
                self.min, self.max = -math.inf, math.inf
            case _:
                self.min = self.max = None
        return cls._interned.setdefault(key, self)

    def const(self, value: Any) -> Any:
        """Return ``value`` as a constant of this dtype: integers wrap, floats become ``ConstFloat``, tuples map.

        Floats keep their Python precision; ``truncate`` rounds. Invalid stays Invalid.
        """
        if isinstance(value, tuple):
            return tuple(self.const(item) for item in value)
        if value is Invalid:
            return value
        match self.kind:
            case "float":
                return ConstFloat(value)
            case "bool":
                return bool(value)
            case "void":
                raise TypeError(f"DType.const: dtypes.void has no values, got {value!r}")
        if self.bitsize > 64:
            return int(value)
        return (
            float_to_int(value, self) if isinstance(value, float) else wrap_int(int(value), self.bitsize, self.min < 0)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return DType, (self.priority, self.bitsize, self.name, self.fmt, self.full_name, self.kind)

    def __setstate__(self, state: Any) -> None:
        # Dtypes are shared by the whole process: a pickle that names one must not be able to change it.
        raise TypeError(f"{self!r} cannot be changed")

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DType:
        return self

    def __lt__(self, other: DType) -> bool:
        return self._order < other._order

    def __le__(self, other: DType) -> bool:
        return self._order <= other._order

    def __gt__(self, other: DType) -> bool:
        return self._order > other._order

    def __ge__(self, other: DType) -> bool:
        return self._order >= other._order

    def __repr__(self) -> str:
        return f"dtypes.{INVERSE_DTYPES_DICT[self.name]}"


def conversion_range(dtype: DType) -> tuple[int, int]:
    """Return the limits of the conversion type of ``dtype``: see the top of this file."""
    if dtype is dtypes.uint64:
        return -(1 << 63), (1 << 64) - 1
    bits = 64 if dtype.bitsize > 32 or dtype is dtypes.uint32 else 32
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def float_to_int(x: float, dtype: DType) -> int:
    """Convert a float to an integer dtype by the rule at the top of this file."""
    return float_to_wrapped_int(x, *conversion_range(dtype), dtype.bitsize, dtype.kind == "int")


def _is_float(dtype: DType) -> bool:
    """Whether ``dtype`` is a float, weakfloat included."""
    return dtype.kind == "float"


def _is_int(dtype: DType) -> bool:
    """Whether ``dtype`` is an integer, weakint included. bool is not."""
    return dtype.kind in {"int", "uint"}


def _is_unsigned(dtype: DType) -> bool:
    """Whether ``dtype`` is an unsigned integer."""
    return dtype.kind == "uint"


def _is_bool(dtype: DType) -> bool:
    """Whether ``dtype`` is bool."""
    return dtype.kind == "bool"


def require_fit(
    op: str, value: Any, dtype: DType | None, hint: str = "give a wider dtype=, or .cast() to wrap"
) -> None:
    """Refuse a Python int, meant to be held exactly, that an integer dtype cannot hold; anything else passes.

    Raises:
        OverflowError: The int is outside of the dtype's range.
    """
    if not isinstance(value, int) or dtype is None or dtype.kind not in ("int", "uint") or dtype.bitsize > 64:
        return
    if not dtype.min <= value <= dtype.max:
        raise OverflowError(f"{op}: {value} does not fit {dtype} ({dtype.min} to {dtype.max}); {hint}")


def _int_literal(smallest: int, largest: int) -> DType:
    """Dtype of Python integers between two values: the weak dtype if the default int holds them, else 64 bits."""
    default = dtypes.default_int
    if default.min <= smallest and largest <= default.max:
        return dtypes.weakint
    for wide in (dtypes.int64, dtypes.uint64):
        if wide.min <= smallest and largest <= wide.max:
            return wide
    raise OverflowError(
        f"integers from {smallest} to {largest} fit neither int64 nor uint64; write them as floats or give dtype="
    )


def _from_py(x: Any) -> DType:
    """Dtype of a Python value.

    bool gives bool, float gives weakfloat, int gives weakint, or int64 (uint64 if it must) where the default int is too
    narrow. A list or tuple, nested or not, gives the strong dtype of its largest item; an empty one the default float.
    numpy scalars keep their dtype.

    Raises:
        OverflowError: An int fits no 64-bit integer.
        RuntimeError: Another type.
    """
    if isinstance(x, bool) or x is Invalid:
        return dtypes.bool
    if isinstance(x, int):
        return _int_literal(x, x)
    if isinstance(x, float) and type(x).__module__ != "numpy":
        return dtypes.weakfloat
    if isinstance(x, (list, tuple)):
        return _from_sequence(x)
    if hasattr(x, "dtype") and getattr(x, "shape", None) == ():
        return DTYPES_DICT[x.dtype.name]
    found = f"{x!r} ({type(x).__name__})"
    raise RuntimeError(f"dtypes.from_py: Could not infer dtype of {found}; expected bool, int or float")


def _from_sequence(x: list[Any] | tuple[Any, ...]) -> DType:
    groups: dict[type, list[Any]] = {}
    pending: list[Iterable[Any]] = [x]
    while pending:
        for item in pending.pop():
            if isinstance(item, (list, tuple)):
                pending.append(item)
            else:
                groups.setdefault(type(item), []).append(item)
    if not groups:
        return dtypes.default_float
    if any(issubclass(kind, float) and kind.__module__ != "numpy" for kind in groups):
        # Integers beyond 64 bits are fine beside a float: the list becomes floats.
        groups = {kind: items[:1] for kind, items in groups.items() if not issubclass(kind, int)}
    integers = [groups.pop(kind) for kind in list(groups) if issubclass(kind, int) and kind is not bool]
    found = [_from_py(items[0]) for items in groups.values()]
    if integers:
        found.append(_int_literal(min(map(min, integers)), max(map(max, integers))))
    return strong_dtype(least_upper_dtype(*found))


class DTypes:
    """The namespace of all dtypes; ``dtypes`` is its one instance."""

    __slots__ = ()

    void: Final = DType(-1, 0, "void", None)
    bool: Final = DType(0, 1, "bool", "?", "bool", "bool")
    int8: Final = DType(1, 8, "signed char", "b", "int8", "int")
    uint8: Final = DType(2, 8, "unsigned char", "B", "uint8", "uint")
    int16: Final = DType(3, 16, "short", "h", "int16", "int")
    uint16: Final = DType(4, 16, "unsigned short", "H", "uint16", "uint")
    int32: Final = DType(5, 32, "int", "i", "int32", "int")
    uint32: Final = DType(6, 32, "unsigned int", "I", "uint32", "uint")
    int64: Final = DType(7, 64, "long", "q", "int64", "int")
    uint64: Final = DType(8, 64, "unsigned long", "Q", "uint64", "uint")
    fp8e4m3: Final = DType(10, 8, "float8_e4m3", None, "fp8e4m3", "float")
    fp8e5m2: Final = DType(11, 8, "float8_e5m2", None, "fp8e5m2", "float")
    fp8e4m3fnuz: Final = DType(10, 8, "float8_e4m3fnuz", None, "fp8e4m3fnuz", "float")
    fp8e5m2fnuz: Final = DType(11, 8, "float8_e5m2fnuz", None, "fp8e5m2fnuz", "float")
    float16: Final = DType(12, 16, "half", "e", "float16", "float")
    bfloat16: Final = DType(13, 16, "__bf16", None, "bfloat16", "float")
    float32: Final = DType(14, 32, "float", "f", "float32", "float")
    float64: Final = DType(15, 64, "double", "d", "float64", "float")
    # Weak dtypes belong to Python scalars that have not met a tensor yet; no buffer has one. Their width keeps index
    # arithmetic exact.
    weakint: Final = DType(0, 800, "weakint", None, "weakint", "int")
    weakfloat: Final = DType(9, 800, "weakfloat", None, "weakfloat", "float")

    char: Final = int8
    uchar: Final = uint8
    short: Final = int16
    ushort: Final = uint16
    int: Final = int32
    uint: Final = uint32
    long: Final = int64
    ulong: Final = uint64
    half: Final = float16
    float: Final = float32
    double: Final = float64

    fp8_ocp: Final = (fp8e4m3, fp8e5m2)
    fp8_fnuz: Final = (fp8e4m3fnuz, fp8e5m2fnuz)
    fp8s: Final = fp8_ocp + fp8_fnuz
    floats: Final = (*fp8s, float16, bfloat16, float32, float64)
    int8s: Final = (uint8, int8)
    int16s: Final = (uint16, int16)
    int32s: Final = (uint32, int32)
    int64s: Final = (uint64, int64)
    uints: Final = (uint8, uint16, uint32, uint64)
    sints: Final = (int8, int16, int32, int64)
    ints: Final = uints + sints
    weaks: Final = (weakint, weakfloat)
    all: Final = (*floats, *ints, bool)  # noqa: A003  the dtype is meant

    is_float: Final = staticmethod(_is_float)
    is_int: Final = staticmethod(_is_int)
    is_unsigned: Final = staticmethod(_is_unsigned)
    is_bool: Final = staticmethod(_is_bool)
    from_py: Final = staticmethod(_from_py)

    @property
    def default_float(self) -> DType:
        """The dtype of Python floats: the context variable DEFAULT_FLOAT. Read-only."""
        return _default_dtype("DEFAULT_FLOAT", DEFAULT_FLOAT.get())

    @property
    def default_int(self) -> DType:
        """The dtype of Python ints: the context variable DEFAULT_INT. Read-only."""
        return _default_dtype("DEFAULT_INT", DEFAULT_INT.get())

    @staticmethod
    def finfo(dtype: DType) -> tuple[Any, Any]:
        """Return (exponent bits, mantissa bits) of a float dtype.

        Raises:
            ValueError: ``dtype`` is not a float.
            KeyError: ``dtype`` is weakfloat.
        """
        if not _is_float(dtype):
            raise ValueError(f"finfo: {dtype} is not a floating point dtype")
        return _FINFO[dtype]


_FINFO: Final = {
    DTypes.fp8e4m3: (4, 3),
    DTypes.fp8e5m2: (5, 2),
    DTypes.fp8e4m3fnuz: (4, 3),
    DTypes.fp8e5m2fnuz: (5, 2),
    DTypes.float16: (5, 10),
    DTypes.bfloat16: (8, 7),
    DTypes.float32: (8, 23),
    DTypes.float64: (11, 52),
}

dtypes: Final = DTypes()

DTypeLike: TypeAlias = str | DType

# Attribute name -> dtype, aliases included; and C spelling -> the short attribute name that ``repr`` shows.
DTYPES_DICT: Final[dict[str, DType]] = {name: item for name, item in vars(DTypes).items() if isinstance(item, DType)}
# What torch calls the formats of 8 bits.
TORCH_FP8: Final = {
    "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2", "float8_e4m3fnuz": "fp8e4m3fnuz",
    "float8_e5m2fnuz": "fp8e5m2fnuz",
}  # fmt: skip
INVERSE_DTYPES_DICT: Final[dict[str, str]] = {item.name: name for name, item in DTYPES_DICT.items()}


@functools.lru_cache(maxsize=256)
def _dtype_by_name(name: str) -> DType:
    try:
        return DTYPES_DICT[name.lower().removeprefix("dtypes.")]
    except KeyError:
        raise AttributeError(
            f"{name!r} is not the name of a dtype; known names: {', '.join(sorted(DTYPES_DICT))}"
        ) from None


@functools.lru_cache(maxsize=256)
def _default_dtype(variable: str, name: str) -> DType:
    dtype, fitting = to_dtype(name), dtypes.floats if variable == "DEFAULT_FLOAT" else dtypes.ints
    if dtype not in fitting:
        raise ValueError(f"{variable}: {name} is none of {', '.join(repr(d).removeprefix('dtypes.') for d in fitting)}")
    return dtype


def to_dtype(x: Any) -> DType:
    """Return the dtype itself, or the one with that name (upper or lower case), or that numpy or torch call so.

    Raises:
        AttributeError: No dtype has that name.
    """
    if isinstance(x, DType):
        return x
    return _dtype_by_name(x) if isinstance(x, str) else _dtype_of_others(x)


def _dtype_of_others(x: Any) -> DType:
    """Return the dtype that numpy's or torch's, or the type bool, stands for."""
    if x is bool:
        return dtypes.bool
    kind = x if isinstance(x, type) else type(x)
    is_torch, is_numpy = (kind.__module__.partition(".")[0] == package for package in ("torch", "numpy"))
    name = str(x).removeprefix("torch.") if is_torch else str(getattr(x, "name", getattr(x, "__name__", "")))
    if (is_torch or is_numpy) and (found := DTYPES_DICT.get(TORCH_FP8.get(name, name))) is not None:
        return found
    # numpy and torch take int as 64 bits, and lists of ints become 32 here.
    meant = {int: "dtypes.int32 or dtypes.int64", float: "dtypes.float32 or dtypes.float64"}.get(x)
    expected = meant or "a DType such as dtypes.float32 or its name"
    raise AttributeError(f"{shown(x)} is not a dtype; expected {expected}")


# ---- promotion -----------------------------------------------------------------------------------------------------

_EDGES: Final[dict[DType, tuple[DType, ...]]] = {
    dtypes.bool: (dtypes.weakint,),
    dtypes.weakint: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.int16: (dtypes.int32,),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.int32: (dtypes.int64,),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.int64: (dtypes.weakfloat,),
    dtypes.uint64: (dtypes.weakfloat,),
    dtypes.weakfloat: dtypes.fp8s,
    **dict.fromkeys(dtypes.fp8s, (dtypes.float16, dtypes.bfloat16)),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


def _upper_sets() -> dict[DType, frozenset[DType]]:
    """Every dtype -> all dtypes that it can be promoted to, itself included."""
    above: dict[DType, frozenset[DType]] = {}
    for dtype in reversed(_EDGES):  # declared from low to high, so the sets of the targets are complete
        above[dtype] = frozenset((dtype,)).union(*(above[target] for target in _EDGES[dtype]))
    return above


_ABOVE: Final = _upper_sets()


@functools.cache
def least_upper_dtype(*ds: DType) -> DType:
    """Return the smallest dtype that all of ``ds`` can be promoted to.

    A signed integer with uint64 has no common integer: float64, as in numpy.

    Raises:
        KeyError: ``ds`` contains void.

    Example:
        >>> least_upper_dtype(dtypes.int8, dtypes.uint8)
        dtypes.short
    """
    common = frozenset.intersection(*(_ABOVE[dtype] for dtype in ds))
    # The element with the largest upper set lies below all other common ones. fp8 kinds share float16 and bfloat16,
    # which have equal sets: float16, the lower priority, wins.
    best = min(common, key=lambda dtype: (-len(_ABOVE[dtype]), dtype))
    return dtypes.float64 if best is dtypes.weakfloat and best not in ds else best


def least_upper_float(dtype: DType) -> DType:
    """Return the float dtype in which a float function of ``dtype`` is computed: itself if it is a float."""
    if _is_float(dtype):
        return dtype
    return dtypes.weakfloat if dtype is dtypes.weakint else least_upper_dtype(dtype, dtypes.default_float)


def strong_dtype(dtype: DType) -> DType:
    """Return the default dtype for a weak one, others unchanged."""
    if dtype is dtypes.weakint:
        return dtypes.default_int
    return dtypes.default_float if dtype is dtypes.weakfloat else dtype


def weak_dtype(dtype: DType) -> DType:
    """Return weakfloat for floats, weakint for ints, others unchanged."""
    if _is_float(dtype):
        return dtypes.weakfloat
    return dtypes.weakint if _is_int(dtype) else dtype


def sum_acc_dtype(dtype: DType) -> DType:
    """Return the dtype in which a sum over ``dtype`` is accumulated: at least 32 bits (SUM_DTYPE for floats)."""
    if _is_unsigned(dtype):
        return least_upper_dtype(dtype, dtypes.uint32)
    if _is_float(dtype):
        return least_upper_dtype(dtype, to_dtype(getenv("SUM_DTYPE", "float32")))
    return least_upper_dtype(dtype, dtypes.int32)


def can_lossless_cast(source: DType, target: DType) -> bool:
    """Whether every value of ``source`` has an equal value in ``target``."""
    if source is target or source is dtypes.bool:
        return True
    if source in dtypes.ints and (target in dtypes.ints or target is dtypes.weakint):
        return bool(target.min <= source.min and source.max <= target.max)
    match target:
        case dtypes.float16:
            return source in (*dtypes.int8s, *dtypes.fp8s)
        case dtypes.float32:
            return source in dtypes.floats[:-1] or source in (*dtypes.int8s, *dtypes.int16s)
        case dtypes.float64:
            return source in dtypes.floats or source in (*dtypes.int8s, *dtypes.int16s, *dtypes.int32s)
    return False
