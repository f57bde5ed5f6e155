"""Records behave as dataclasses do, for those who use them and for those who look at them from outside."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from tinygrad import record as module

T = TypeVar("T")
MAKERS = {
    "record": (module._record, module._field),
    "dataclass": (dataclasses.dataclass, dataclasses.field),
}


@module.record(frozen=True)
class Point:
    """At the top of the module, as pickles need it."""

    x: int
    y: int = 2
    names: list[str] = module.field(default_factory=list)


@pytest.fixture(params=MAKERS)
def makers(request: pytest.FixtureRequest) -> Any:
    """``record`` and its ``field``, or what they stand for: every test below holds for both."""
    return MAKERS[request.param]


def test_init_takes_positions_names_and_defaults(makers: Any) -> None:
    make, field = makers

    @make
    class Plain:
        a: int
        b: float = 1.5
        c: list[int] = field(default_factory=list)
        d: int = field(default=7, init=False)
        e: list[int] = field(default_factory=lambda: [1], init=False)
        shared: ClassVar[int] = 3

    first, second = Plain(1), Plain(1, c=[4], b=2)
    assert (first.a, first.b, first.c, first.d, first.e) == (1, 1.5, [], 7, [1])
    assert (second.a, second.b, second.c) == (1, 2, [4])
    assert first.c is not Plain(1).c
    assert Plain.b == 1.5
    assert not hasattr(Plain, "c")
    assert Plain.__match_args__ == ("a", "b", "c")
    first.a = 5
    assert repr(first) == f"{Plain.__qualname__}(a=5, b=1.5, c=[], d=7, e=[1])"
    with pytest.raises(TypeError, match=r"Plain.__init__\(\) missing 1 required positional argument: 'a'"):
        Plain()
    with pytest.raises(TypeError, match="unexpected keyword argument 'shared'"):
        Plain(1, shared=2)
    assert str(inspect.signature(Plain)) == "(a: 'int', b: 'float' = 1.5, c: 'list[int]' = <factory>) -> None"


def test_equality_and_hash(makers: Any) -> None:
    make, field = makers

    @make(frozen=True)
    class Frozen:
        a: Any
        b: Any = field(default=None, compare=False)

    @make(frozen=True)
    class Other:
        a: Any

    @make
    class Changing:
        a: Any

    @make(eq=False)
    class Identical:
        a: Any

    @make(frozen=True)
    class Empty:
        pass

    nan = float("nan")
    assert Frozen(1, 2) == Frozen(1, 3) != Frozen(2, 2)
    assert Frozen(nan) == Frozen(nan)  # the same object, as in tuples
    assert hash(Frozen((1, 2), [])) == hash(Frozen((1, 2)))
    assert len({Frozen(1), Frozen(1), Frozen(2), Other(1)}) == 3
    assert Frozen(1) != Other(1)
    assert Changing([1]) == Changing([1])
    assert Changing.__hash__ is None
    assert Identical(1) != Identical(1)
    assert len({Identical(1), Identical(1)}) == 2
    assert Empty() == Empty()
    assert hash(Empty()) == hash(())


def test_order(makers: Any) -> None:
    make, _ = makers

    @make(frozen=True, order=True)
    class Pair:
        a: int
        b: int

    pairs = [Pair(2, 1), Pair(1, 3), Pair(1, 2)]
    assert sorted(pairs) == [Pair(1, 2), Pair(1, 3), Pair(2, 1)]
    assert Pair(1, 2) <= Pair(1, 2) < Pair(1, 3)
    assert Pair(1, 3) >= Pair(1, 3) > Pair(1, 2)
    with pytest.raises(TypeError, match="not supported"):
        assert Pair(1, 2) < (1, 3)


def test_frozen_ones_refuse(makers: Any) -> None:
    make, _ = makers

    @make(frozen=True)
    class Frozen:
        a: int

    class Below(Frozen):
        pass

    for change in (lambda: setattr(Frozen(1), "a", 2), lambda: setattr(Frozen(1), "other", 2)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field"):
            change()
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del Frozen(1).a
    below = Below(1)
    below.other = 3
    assert below.other == 3
    with pytest.raises(AttributeError, match="cannot assign to field 'a'"):
        below.a = 2


def test_what_a_class_defines_itself_stays(makers: Any) -> None:
    make, field = makers

    class Named:
        def __repr__(self) -> str:
            return "inherited"

    @make(frozen=True, repr=False, init=False)
    class Own(Named):
        a: int
        b: int = field(default=0, repr=False)

        def __init__(self, a: int) -> None:
            self.__dict__.update(a=a + 1, b=2)

        def __hash__(self) -> int:
            return 5

    assert repr(Own(1)) == "inherited"
    assert (Own(1).a, hash(Own(1))) == (2, 5)
    assert Own(1) == Own(1)


def test_inherited_fields_come_first(makers: Any) -> None:
    make, _ = makers

    @make
    class Base(Generic[T]):
        a: int
        b: int = 1

    @make
    class Sub(Base[int]):
        c: int = 2
        a: int = 9

    assert repr(Sub(c=5)).endswith("Sub(a=9, b=1, c=5)")
    assert [f.name for f in dataclasses.fields(Sub)] == ["a", "b", "c"]
    assert Base(1) != Sub(1)


def test_one_that_holds_itself_can_be_printed(makers: Any) -> None:
    make, _ = makers

    @make
    class Loop:
        inner: Any = None

    loop = Loop()
    loop.inner = [loop]
    assert repr(loop).endswith("Loop(inner=[...])")


def test_whoever_asks_sees_a_dataclass() -> None:
    point = Point(1)
    assert dataclasses.is_dataclass(point)
    assert [(f.name, f.type) for f in dataclasses.fields(point)] == [("x", "int"), ("y", "int"), ("names", "list[str]")]
    assert dataclasses.replace(point, y=3) == Point(1, 3)
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "names": []}

    @dataclasses.dataclass(frozen=True)
    class Below(Point):
        z: int = 0

    assert (Below(1, z=4).x, Below(1, z=4).z) == (1, 4)


def test_replace_and_fields() -> None:
    assert module.replace(Point(1), y=3) == Point(1, 3)
    assert [f.name for f in module.fields(Point)] == [f.name for f in module.fields(Point(1))] == ["x", "y", "names"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        module.replace(Point(1), z=3)


def test_copies_and_pickles() -> None:
    point = Point(1, names=["a"])
    for other in (pickle.loads(pickle.dumps(point)), copy.copy(point), copy.deepcopy(point)):
        assert other == point
        assert type(other) is Point
