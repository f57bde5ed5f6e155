"""Indexed writes to, and lookups in, tensors of which one or two sizes are Variables: as with the plain sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from test.helpers_indexed_writes import overwritten
from tinygrad import Tensor, Variable

MOST, N, M = 8, 3, 5
DATA = np.cos(np.arange(MOST * MOST * 3, dtype=np.float32)).reshape(MOST, MOST, 3)
ALL = slice(None)


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: overwritten(x, [0, 1], 1.0),
    "columns": lambda x: overwritten(x, (ALL, [0, 1]), 1.0),
    "columns of itself": lambda x: overwritten(x, (ALL, [0]), x[:, [1]] * 3),
    "last dim": lambda x: overwritten(x, (ALL, ALL, [0, 2]), x[..., :2] * 2),
    "every other row": lambda x: overwritten(x, (slice(None, None, 2), [0]), 2.0),
    "number and list": lambda x: overwritten(x, (0, [1]), 5.0),
    "pairs": lambda x: overwritten(x, ([0, 1], ALL, [0, 1]), 5.0),
    "index tensor": lambda x: overwritten(x, (..., Tensor([0])), x[..., [1]]),
    "greatest place": lambda x: x * x.argmax(),
    "greatest": lambda x: x.flatten().topk(3)[0],
    "selected": lambda x: x.masked_select(x > 0),
    "places": lambda x: x.nonzero(size=5) * x[0, 0, 0],
}
KINDS = {"rows": (True, False), "columns": (False, True), "both": (True, True)}


def values(result: Tensor) -> np.ndarray:
    shape = [s if isinstance(s, int) else s.bound_value() for s in result.shape]
    return result.pad_to(result.max_shape).numpy()[tuple(map(slice, shape))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_writes_and_lookups_are_those_of_the_plain_size(name: str, kind: str) -> None:
    found = []
    for is_symbolic in ((False, False), KINDS[kind]):
        n, m = (Variable(v, 1, MOST).bind(k) if s else k for v, k, s in zip("nm", (N, M), is_symbolic, strict=True))
        whole = Tensor(DATA).clone().realize()
        result = CALLS[name](whole[:n, :m])
        (gradient,) = (result * result).sum().gradient(whole)
        found += [values(gradient), values(result)]
    np.testing.assert_allclose(found[2], found[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[3], found[1], rtol=1e-5, atol=1e-6)
