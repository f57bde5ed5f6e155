"""Values of constant nodes that Python has no type for, and the memory spaces.

In:   nothing.
Out:  ``Invalid`` (an undefined value), ``ConstFloat`` (a float with identity semantics), ``AddrSpace``.
Why:  the package's own values have to compare and hash as constants of nodes do: by identity and by bits.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import ClassVar, Final, TypeAlias

from tinygrad.enums import with_plain_members


class InvalidType:
    """Type of ``Invalid``, the marker constant of an undefined value. There is one instance, equal only to itself."""

    _instance: ClassVar[InvalidType | None] = None

    def __new__(cls) -> InvalidType:
        """Return the one instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "Invalid"

    def __reduce__(self) -> str:
        return "Invalid"


Invalid: Final = InvalidType()


class ConstFloat(float):
    """A float as the value of a constant node: NaN equals NaN, and 0.0 and -0.0 are different constants.

    Against a plain number it compares by value, so that ``const.arg == 0`` reads as usual (and holds for both zeros).
    """

    __slots__ = ()
    # Names of the class: at exit those of the module may be gone before the last node is, whose constant is hashed.
    _is_nan = staticmethod(math.isnan)
    _copy_sign = staticmethod(math.copysign)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float) and self._is_nan(self):
            return self._is_nan(other)
        if isinstance(other, type(self)):
            return float.__eq__(self, other) and self._copy_sign(1.0, self) == self._copy_sign(1.0, other)
        return float.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        if self._is_nan(self):
            return 0x7FF8_0000
        return 0x8000_0001 if self.is_negative_zero() else float.__hash__(self)

    def is_negative_zero(self) -> bool:
        """Whether this is -0.0."""
        return float.__eq__(self, 0.0) and self._copy_sign(1.0, self) < 0

    def __repr__(self) -> str:
        return float.__repr__(self)


PyConst: TypeAlias = float | int | bool
ConstType: TypeAlias = float | int | bool | InvalidType


@with_plain_members
class AddrSpace(Enum):
    """Where memory lives: device memory, memory of a work-group, registers, or no memory (a value in flight)."""

    GLOBAL = auto()
    LOCAL = auto()
    REG = auto()
    ALU = auto()

    def __repr__(self) -> str:
        return f"AddrSpace.{self.name}"

    def __lt__(self, other: AddrSpace) -> bool:
        return bool(self.value < other.value)

    # The members are single objects; hashing the name through Python code would be slow in the keys of nodes.
    __hash__ = object.__hash__
