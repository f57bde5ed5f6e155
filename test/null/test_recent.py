"""Mappings that forget what has not been used for longest."""

from __future__ import annotations

import random

import pytest

from tinygrad.recent import Recent


@pytest.mark.parametrize("most", [1, 2, 3, 8, 64])
def test_the_latest_half_is_kept_and_no_more_than_may_be(most: int) -> None:
    kept: Recent[int, int] = Recent(most)
    order: list[int] = []  # keys by their last use
    source = random.Random(most)
    for _ in range(2000):
        key = source.randrange(2 * most)
        if source.random() < 0.5:
            kept[key] = -key
            found: int | None = -key
        else:
            found = kept.get(key) if key in kept or source.random() < 0.5 else None
            assert found is None or kept[key] == found
        assert found in {None, -key}
        if found is not None:
            order = [k for k in order if k != key] + [key]
        assert len(kept) <= max(most, 2)
        assert len(set(kept)) == len(kept)
        assert all(k in kept for k in order[-max(most // 2, 1) :])


def test_as_a_mapping() -> None:
    kept: Recent[str, int] = Recent(4)
    kept.update(a=1, b=2, c=3)
    assert dict(kept) == {"a": 1, "b": 2, "c": 3}
    assert kept.setdefault("a", 5) == 1
    assert kept.pop("b") == 2
    assert kept.get("b") is None
    assert kept.get("b", 7) == 7
    with pytest.raises(KeyError, match="b"):
        kept["b"]
    with pytest.raises(KeyError, match="b"):
        del kept["b"]
    kept.clear()
    assert not kept


def test_what_is_used_stays_among_ever_new_entries() -> None:
    kept: Recent[int, str] = Recent(10)
    kept[-1] = "used"
    for i in range(1000):
        kept[i] = "new"
        if i % 4 == 0:
            assert kept.get(-1) == "used"
    assert len(kept) <= 10
