"""JAX on the CPU, jitted. Its threads are limited by the processors that the process may use.

In:   arrays and functions of workloads, as every adapter gets them.
Out:  ``Adapter``: arrays on this library's side, and the step to measure.
Why:  a compiler from graphs to CPU code, as this project is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax  # type: ignore[import-not-found,unused-ignore]
import jax.numpy as jnp  # type: ignore[import-not-found,unused-ignore]
import numpy as np

from bench.inputs import Array


class Adapter:
    """JAX's side of a measurement."""

    lib = jnp

    def __init__(self, threads: int) -> None:
        self.about = f"jax {jax.__version__}, jit, {threads} processors"

    def load(self, array: Array, dtype: str) -> Any:
        """Return an array of JAX's; ``dtype`` is empty for the array's own."""
        return jax.block_until_ready(jnp.asarray(array, dtype=dtype or array.dtype))

    def prepare(self, function: Callable[..., Any], arguments: list[Any], make: bool) -> Callable[[], Any]:
        """Return the step to measure, without arguments."""
        if make:
            return function(jnp, *arguments)  # type: ignore[no-any-return]
        compiled = jax.jit(lambda *xs: function(jnp, *xs))
        return lambda: jax.block_until_ready(compiled(*arguments))

    def array(self, result: Any) -> Array:
        """Return a result as a numpy array."""
        return np.asarray(result.astype(jnp.float32) if result.dtype == jnp.bfloat16 else result)
