"""Enums with plain members: they are what enums are, and reading a member runs no code of Python."""

from __future__ import annotations

import copy
import pickle
import types
from enum import Enum, IntEnum, auto

import pytest

from tinygrad.codegen.opt import OptOps
from tinygrad.dtype import AddrSpace
from tinygrad.enums import FastEnum, with_plain_members
from tinygrad.uop import AxisType, Ops

ALL = (Ops, AxisType, OptOps, AddrSpace)


class Usual(FastEnum):
    """An enum as Python makes it."""

    ONE = auto()
    TWO = auto()
    SAME = 2


@with_plain_members
class Plain(FastEnum):
    """The same with plain members."""

    ONE = auto()
    TWO = auto()
    SAME = 2


@pytest.mark.parametrize("enum", [*ALL, Plain])
def test_no_code_runs_when_a_member_is_read(enum: type[Enum]) -> None:
    assert not hasattr(type(enum), "__getattr__")


def test_all_that_enums_offer() -> None:
    for enum in (Usual, Plain):
        assert [*enum] == [1, 2]
        assert [*reversed(enum)] == [2, 1]
        assert (len(enum), bool(enum)) == (2, True)
        assert enum(2) is enum["SAME"] is enum.TWO is enum.SAME
        assert [*enum.__members__] == ["ONE", "TWO", "SAME"]
        assert enum.ONE in enum
        assert isinstance(enum.ONE, IntEnum)
        assert (enum.ONE.name, enum.ONE.value, enum.ONE < enum.TWO) == ("ONE", 1, True)
        assert repr(enum.ONE) == str(enum.ONE) == f"{enum.__name__}.ONE"
        assert repr(enum) == f"<enum '{enum.__name__}'>"
        assert {"ONE", "TWO", "__members__"} <= set(dir(enum))
        assert pickle.loads(pickle.dumps(enum.TWO)) is copy.deepcopy(enum.TWO) is enum.TWO
        assert pickle.loads(pickle.dumps(enum)) is copy.deepcopy(enum) is enum
    assert Usual.ONE not in Plain


def test_what_enums_refuse() -> None:
    for enum in (Usual, Plain):
        with pytest.raises(AttributeError, match="ONE"):
            enum.ONE = 3  # type: ignore[misc,assignment]
        with pytest.raises(AttributeError, match="ONE"):
            del enum.ONE  # type: ignore[misc]
        with pytest.raises(AttributeError, match="THREE"):
            enum.THREE  # type: ignore[attr-defined]  # noqa: B018
        with pytest.raises(ValueError, match="7 is not a valid"):
            enum(7)
        with pytest.raises(KeyError, match="THREE"):
            enum["THREE"]
        with pytest.raises(TypeError, match="cannot extend"):
            types.new_class("More", (enum,))
        enum.note = "attributes of its own are free"  # type: ignore[attr-defined]
        assert enum.note == enum.ONE.note  # type: ignore[attr-defined]
        del enum.note  # type: ignore[attr-defined]
        assert not hasattr(enum, "note")


@pytest.mark.parametrize("member", [Ops.ADD, OptOps.UPCAST, AxisType.LOOP, AddrSpace.REG], ids=str)
def test_members_are_pickled_by_value(member: Enum) -> None:
    # Some releases of Python 3.11 write a call of getattr, which a cache that runs no code of others cannot make.
    assert b"getattr" not in pickle.dumps(member)
    assert pickle.loads(pickle.dumps(member)) is member
