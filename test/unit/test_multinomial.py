"""Draws from weights: none of weight 0 while others are left, and no draws from what is no distribution."""

from __future__ import annotations

import math

import pytest

from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType

BAD = [[1.0, -2.0], [math.nan, 1.0], [0.0, 0.0], [math.inf, 1.0]]


@pytest.mark.parametrize("seed", range(5))
def test_weights_of_0_come_last(seed: int) -> None:
    Tensor.manual_seed(seed)
    weights = Tensor([[0.0, 1.0, 0.0, 3.0, 0.0], [1e-30, 0.0, 1.0, 0.0, 1e30]])
    drawn = weights.multinomial(5).tolist()
    assert sorted(drawn[0][:2]) == [1, 3]
    assert sorted(drawn[1][:3]) == [0, 2, 4]
    assert [sorted(row) for row in drawn] == [[0, 1, 2, 3, 4]] * 2


def test_weights_of_0_are_never_drawn_with_replacement() -> None:
    Tensor.manual_seed(0)
    weights = [0.0, 0.1, 0.0, 0.7, 0.0, 0.0]
    assert set(Tensor(weights).multinomial(5000, replacement=True).tolist()) == {1, 3}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.fp8e5m2], ids=str)
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("weights", BAD, ids=str)
def test_no_distribution(weights: list[float], replacement: bool, dtype: DType) -> None:
    with pytest.raises(ValueError, match="no distribution"):
        Tensor(weights, dtype=dtype).realize().multinomial(1, replacement)
    later = (Tensor([weights, [1.0, 0.0]]) * 1).multinomial(1, replacement)
    assert later.tolist() == [[-1], [0]]
